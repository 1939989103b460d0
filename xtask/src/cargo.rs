//! Runs cargo from within cargo: the only place that knows how.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("running `{command}`")]
    Run { command: String, source: io::Error },
    #[error("`{command}` failed ({status})")]
    Failed { command: String, status: String },
    #[error("`cargo build` named no binary `landfall`")]
    NoBinary,
}

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Cargo itself, at the root of the repository.
pub(crate) fn command() -> Command {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    // `cargo run` describes xtask in these; ring's build script would see a change and build again.
    for (variable, _) in env::vars_os() {
        let name = variable.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&variable);
        }
    }
    command.current_dir(repository());
    command
}

/// Runs a command to its end, with its output where ours goes.
pub(crate) fn run(title: &str, command: &mut Command) -> Result<(), Error> {
    let status =
        command.status().map_err(|source| Error::Run { command: title.to_owned(), source })?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed { command: title.to_owned(), status: status.to_string() })
    }
}

/// Builds the operator and returns the path of its binary.
pub(crate) fn build_operator(release: bool) -> Result<PathBuf, Error> {
    let mut args = vec!["build", "--package", "landfall", "--bin", "landfall"];
    args.extend(release.then_some("--release"));
    let title = format!("cargo {}", args.join(" "));
    let answer = command()
        .args(&args)
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|source| Error::Run { command: title.clone(), source })?;
    if !answer.status.success() {
        return Err(Error::Failed { command: title, status: answer.status.to_string() });
    }
    let lines = String::from_utf8_lossy(&answer.stdout);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut binaries = messages.filter_map(|message| {
        let ours = message["target"]["name"] == "landfall";
        message["executable"].as_str().filter(|_| ours).map(PathBuf::from)
    });
    binaries.next_back().ok_or(Error::NoBinary)
}
