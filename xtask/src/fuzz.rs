//! `cargo xtask fuzz`: runs the targets in `fuzz/`, guided by coverage, if a nightly toolchain is installed,
//! else the same checks as random tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::cargo;
use crate::output::Output;
use crate::tools::Tool;

const CARGO_FUZZ: Tool = Tool { name: "cargo-fuzz", version: "0.13.2" };
/// The packages of the random tests, and the tests' names there.
const TESTS: &[(&str, &[&str])] = &[
    ("landfall-ipam", &["fuzz::"]),
    ("landfall-api", &["fuzz::", "name::", "verbatim::", "keepalived_group::"]),
    ("landfall-controllers", &["services::fuzz::"]),
];
/// Meaningful words, which libFuzzer would otherwise have to find by trying.
const DICTIONARY: &str = "fuzz/words.dict";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Use random tests, also where a nightly toolchain is at hand
    #[arg(long)]
    proptest: bool,
    /// Only these targets
    targets: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Cargo(#[from] cargo::Error),
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("there is no target {target}; there are {known}")]
    Unknown { target: String, known: String },
}

pub(crate) fn run(args: &Args, output: &Output) -> Result<(), Error> {
    if args.proptest || !has_nightly() {
        return random_tests(args, output);
    }
    let program = CARGO_FUZZ.prepare(output)?;
    let known = targets(&cargo::repository().join("fuzz/fuzz_targets"))?;
    if let Some(target) = args.targets.iter().find(|target| !known.contains(target)) {
        return Err(Error::Unknown { target: target.clone(), known: known.join(", ") });
    }
    let wanted = |target: &&String| args.targets.is_empty() || args.targets.contains(target);
    for target in known.iter().filter(wanted) {
        output.heading(format_args!("fuzzing {target} for {} s", args.seconds));
        let mut fuzz = Command::new("rustup");
        fuzz.args(["run", "nightly"]).arg(&program).args(["run", target]);
        let (time, dictionary) = (args.seconds, cargo::repository().join(DICTIONARY));
        fuzz.args(["--", &format!("-max_total_time={time}"), "-max_len=16384", "-verbosity=0"]);
        fuzz.arg(format!("-dict={}", dictionary.display()));
        // Each of these selects a toolchain for cargo, and the present one is not nightly.
        for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS"] {
            fuzz.env_remove(variable);
        }
        fuzz.current_dir(cargo::repository());
        cargo::run(&format!("cargo fuzz run {target}"), &mut fuzz)?;
    }
    Ok(())
}

/// Plays new random stories again and again, for as long as each target would have had.
fn random_tests(args: &Args, output: &Output) -> Result<(), Error> {
    output.say("no nightly toolchain, so by random tests");
    for (package, tests) in TESTS {
        output.heading(format_args!("random tests of {package} for {} s", args.seconds));
        let until = Instant::now() + Duration::from_secs(args.seconds);
        let mut seed = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        while Instant::now() < until {
            seed += 1;
            let mut test = cargo::command();
            test.args(["test", "--quiet", "--release", "--package", package, "--lib", "--"]);
            test.args(*tests)
                .env("PROPTEST_RNG_SEED", seed.to_string())
                .env("PROPTEST_CASES", "5000");
            cargo::run(&format!("PROPTEST_RNG_SEED={seed} cargo test -p {package}"), &mut test)?;
        }
    }
    Ok(())
}

/// The names of all targets, in order.
fn targets(folder: &Path) -> Result<Vec<String>, Error> {
    let failed = |source| Error::Read { path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// libFuzzer needs flags that a stable compiler does not accept.
fn has_nightly() -> bool {
    let mut ask = Command::new("rustup");
    ask.args(["run", "nightly", "rustc", "--version"]);
    ask.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_a_binary_of_the_fuzz_crate() {
        let root = cargo::repository().join("fuzz");
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let targets = targets(&root.join("fuzz_targets")).unwrap();
        assert!(targets.len() >= 6, "{targets:?}");
        for target in &targets {
            let path = format!("path = \"fuzz_targets/{target}.rs\"");
            assert!(manifest.contains(&path), "{target}");
        }
        assert_eq!(manifest.matches("[[bin]]").count(), targets.len());
    }
}
