//! The programs that tests run, where they are found, and which Debian package has each.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// A program the tests run, and the Debian package that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    pub program: &'static str,
    pub package: &'static str,
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// What a [`Bed`](crate::Bed) runs.
pub const BED: &[Tool] = &[
    tool("bridge", "iproute2"),
    tool("chrt", "util-linux"),
    tool("curl", "curl"),
    tool("ip", "iproute2"),
    tool("iptables", "iptables"),
    tool("keepalived", "keepalived"),
    tool("mount", "mount"),
    tool("setpriv", "util-linux"),
    tool("unshare", "util-linux"),
];

/// What other tests run besides, as far as it is not built by ourselves.
pub const OTHERS: &[Tool] = &[tool("promtool", "prometheus")];

/// Where Debian has programs for administrators, which is not on every user's `PATH`.
const ADMIN_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The `PATH` that programs are looked up in.
pub fn path() -> OsString {
    let given = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = env::split_paths(&given).collect();
    for dir in ADMIN_DIRS.map(PathBuf::from) {
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    // A directory that cannot be written in a `PATH` was not read from one.
    env::join_paths(dirs).unwrap_or(given)
}

/// Lets a command find its programs there, unless it has a `PATH` of its own.
pub(crate) fn add_path(command: &mut Command) {
    if !command.get_envs().any(|(name, _)| name == "PATH") {
        command.env("PATH", path());
    }
}

/// Where a program is, if it is installed.
pub fn find(program: &str) -> Option<PathBuf> {
    env::split_paths(&path()).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Those of `tools` that are not installed.
pub fn missing(tools: &[Tool]) -> Vec<Tool> {
    tools.iter().copied().filter(|tool| find(tool.program).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_administrators_are_found_without_them_on_the_path() {
        let dirs: Vec<_> = env::split_paths(&path()).collect();
        for dir in ADMIN_DIRS {
            assert_eq!(dirs.iter().filter(|it| it.as_os_str() == dir).count(), 1, "{dir}");
        }
        assert!(find("sh").is_some());
        let absent = tool("no-such-program", "none");
        assert_eq!(missing(&[tool("sh", "dash"), absent]), [absent]);
    }
}
