//! Cargo programs that are built once and kept beside the control plane.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cargo;
use crate::output::Output;

/// A program on crates.io, in the version that we use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

impl Tool {
    /// The path of the program, which is built unless it exists.
    pub(crate) fn prepare(self, output: &Output) -> Result<PathBuf, cargo::Error> {
        let Self { name, version } = self;
        let home = PathBuf::from(env::var_os("HOME").unwrap_or_default());
        let root = home.join(".cache/landfall/tools");
        let program = root.join("bin").join(name);
        let wanted = format!("{name} {version}");
        let answer = Command::new(&program).arg("--version").stderr(Stdio::null()).output();
        if !answer.is_ok_and(|answer| String::from_utf8_lossy(&answer.stdout).trim() == wanted) {
            output.say(format_args!("building {wanted}; this takes some minutes, once"));
            let mut install = cargo::command();
            install.args(["install", "--locked", "--force", "--version", version]);
            install.arg("--root").arg(&root).arg(name);
            cargo::run(&format!("cargo install {name}"), &mut install)?;
        }
        Ok(program)
    }
}
