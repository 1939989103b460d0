//! `cargo xtask test`: prepares a fresh Debian or Ubuntu with Rust and Go, and runs every check and test.

use std::collections::BTreeSet;
use std::env;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use landfall_testkit::assets;
use landfall_testkit::tools::{self as programs, Tool};

use crate::output::{Output, seconds};
use crate::{cargo, control_plane, generate, tools};

/// Selects the random stories of the tests: the same ones each time, so that the result depends on the commit
/// alone. Set it, or run the tests without xtask, to play others.
const STORIES: &str = "PROPTEST_RNG_SEED";

/// What tests are told, unless it is set already. A test that is skipped is green as well, and would show nothing.
const TOLD: [(&str, &str); 2] = [(STORIES, "1"), (programs::CI, "true")];

const CARGO_DENY: tools::Tool = tools::Tool { name: "cargo-deny", version: "0.20.2" };

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    #[error(
        "Go {required} or newer is needed to build the control plane, see https://go.dev/dl/; {found}"
    )]
    Go { required: &'static str, found: String },
    #[error("{missing} missing; run `{command}` as root")]
    Tools { missing: String, command: String },
    #[error(transparent)]
    Testkit(#[from] landfall_testkit::Error),
    #[error(transparent)]
    ControlPlane(#[from] control_plane::Error),
    #[error(transparent)]
    Generate(#[from] generate::Error),
}

/// Runs the steps in order and ends with the first that fails.
pub(crate) fn run(output: &Output) -> Result<(), Error> {
    let mut steps = Steps { output, done: Vec::new() };
    let outcome = run_steps(&mut steps);
    steps.report();
    outcome
}

fn run_steps(steps: &mut Steps<'_>) -> Result<(), Error> {
    let output = steps.output;
    steps.step("prerequisites", || prerequisites(output))?;
    steps.step("control plane", || Ok(control_plane::build(output)?))?;
    steps.cargo(&["fmt", "--all", "--check"])?;
    let all = ["--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    steps.cargo(&[&["clippy"], &all[..]].concat())?;
    steps.step("generate --check", || Ok(generate::run(true)?))?;
    steps.step("cargo deny", || deny(output))?;
    steps.step("fuzz targets", check_fuzz_targets)?;
    // Tests run the binary, and cargo builds a package's binaries only for its own tests.
    steps.cargo(&["build", "-p", "landfall"])?;
    let mut test = cargo::command();
    // One run reports everything that fails.
    test.args(["test", "--workspace", "--no-fail-fast"]);
    for (name, value) in TOLD.into_iter().filter(|(name, _)| env::var_os(name).is_none()) {
        test.env(name, value);
    }
    steps.step("cargo test --workspace", || Ok(cargo::run("cargo test --workspace", &mut test)?))
}

/// The steps that were run, and how long each took.
struct Steps<'a> {
    output: &'a Output,
    done: Vec<(String, &'static str, Duration)>,
}

impl Steps<'_> {
    fn step(&mut self, title: &str, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        self.output.heading(title);
        let begin = Instant::now();
        let outcome = work();
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        self.done.push((title.to_owned(), verdict, begin.elapsed()));
        outcome
    }

    fn cargo(&mut self, args: &[&str]) -> Result<(), Error> {
        let title = format!("cargo {}", args.join(" "));
        self.step(&title, || Ok(cargo::run(&title, cargo::command().args(args))?))
    }

    fn report(&self) {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY).set_header(["step", "outcome", "time"]);
        for (title, verdict, time) in &self.done {
            table.add_row([title.as_str(), verdict, &seconds(*time)]);
        }
        self.output.say(format_args!("\n{table}"));
    }
}

fn prerequisites(output: &Output) -> Result<(), Error> {
    output.say(check_go()?);
    let missing = missing_tools();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: BTreeSet<_> = missing.iter().map(|tool| tool.package).collect();
    let packages = Vec::from_iter(packages).join(" ");
    let install = format!("apt-get install --yes --no-install-recommends {packages}");
    let named = |missing: Vec<Tool>| {
        let programs: Vec<_> = missing.iter().map(|tool| tool.program).collect();
        Error::Tools { missing: programs.join(", "), command: install.clone() }
    };
    if !is_root() || programs::find("apt-get").is_none() {
        return Err(named(missing));
    }
    let apt = |line: &str| {
        output.say(line);
        let mut command = Command::new("apt-get");
        command.args(line.split(' ').skip(1)).env("DEBIAN_FRONTEND", "noninteractive");
        cargo::run(line, &mut command)
    };
    apt("apt-get update")?;
    if let Err(error) = apt(&install) {
        // A package may come with a daemon that cannot be started here, and fail because of it although its
        // programs are installed. We need only the programs.
        output.error(&error);
    }
    let missing = missing_tools();
    if missing.is_empty() { Ok(()) } else { Err(named(missing)) }
}

fn missing_tools() -> Vec<Tool> {
    programs::missing(&[programs::BED, programs::OTHERS].concat())
}

/// Checks licences, bans and sources of all dependencies, and reports known advisories. No commit causes an
/// advisory, and the database of advisories may be out of reach: neither fails the step.
fn deny(output: &Output) -> Result<(), Error> {
    let program = CARGO_DENY.prepare(output)?;
    let check = |what: &[&str]| {
        let mut check = Command::new(&program);
        check.arg("check").args(what).current_dir(cargo::repository());
        cargo::run(&format!("cargo deny check {}", what.join(" ")), &mut check)
    };
    check(&["bans", "licenses", "sources"])?;
    if let Err(error) = check(&["advisories"]) {
        output.say(format_args!("{error}: see above; an advisory to act on, or no database"));
    }
    Ok(())
}

/// The fuzz targets are outside the workspace; everything they call must exist.
fn check_fuzz_targets() -> Result<(), Error> {
    let mut check = cargo::command();
    check.args(["check", "--manifest-path", "fuzz/Cargo.toml", "--locked"]);
    // Most of their dependencies are built there already.
    check.args(["--target-dir", "target"]);
    Ok(cargo::run("cargo check --manifest-path fuzz/Cargo.toml", &mut check)?)
}

/// Run in the folder of the Go module, where an older Go fetches the version that go.mod requires.
fn check_go() -> Result<String, Error> {
    let required = assets::required_go()?;
    let outdated = |found: String| Error::Go { required, found };
    let answer = Command::new("go")
        .args(["env", "GOVERSION"])
        .current_dir(assets::go_module_dir())
        .output()
        .map_err(|error| outdated(format!("`go` does not run: {error}")))?;
    let found = String::from_utf8_lossy(&answer.stdout).trim().to_owned();
    if !answer.status.success() {
        let reason = String::from_utf8_lossy(&answer.stderr).trim().to_owned();
        return Err(outdated(format!("`go env GOVERSION` says: {reason}")));
    }
    if numbers(found.trim_start_matches("go")) < numbers(required) {
        return Err(outdated(format!("found {found}")));
    }
    Ok(format!("{found} (needed: {required})"))
}

/// `1.26.8` as numbers that compare; a suffix such as `rc1` does not count.
fn numbers(version: &str) -> Vec<u32> {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    version.split('.').map_while(|part| digits(part).parse().ok()).collect()
}

fn is_root() -> bool {
    let answer = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    answer.is_ok_and(|answer| answer.stdout == b"0\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_compare_by_number() {
        for (found, required, enough) in [
            ("1.26.8", "1.26.0", true),
            ("1.26", "1.26.0", false),
            ("1.27rc1", "1.26.0", true),
            ("1.9.9", "1.26.0", false),
            ("2.0", "1.26.0", true),
        ] {
            assert_eq!(numbers(found) >= numbers(required), enough, "{found} for {required}");
        }
    }
}
