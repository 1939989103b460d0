//! A program as a node runs it: with files and rights of its own, like a container.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::name_of;
use crate::{Error, Result};

/// Gives the program a `/tmp` and a `/run` of its own, in which only the directories named are those of the
/// host, and optionally a root that cannot be written and precedence over everything else on the machine, where
/// that is allowed. The arguments are `yes` or `no` for the latter two, the directory of its container or
/// nothing, the number of directories, the directories and the command.
const SETUP: &str = r#"
set -e
confined=$1 container=$2 count=$3
shift 3
if [ "$confined" = yes ]; then
    chrt --rr --pid 1 $$ > /dev/null 2>&1 || true
fi
# Everything is gathered where it stays visible until the end.
mount -n -t tmpfs tmpfs /mnt
for number in $(seq "$count"); do
    mkdir "/mnt/$number"
    mount -n --rbind "$1" "/mnt/$number"
    printf %s "$1" > "/mnt/$number.path"
    shift
done
for name in tmp run; do
    mkdir "/mnt/$name"
    if [ -n "$container" ]; then
        mount -n --bind "$container/$name" "/mnt/$name"
    else
        mount -n -t tmpfs -o mode=1777 tmpfs "/mnt/$name"
    fi
done
for name in tmp run; do
    mount -n --move "/mnt/$name" "/$name"
done
for number in $(seq "$count"); do
    dir=$(cat "/mnt/$number.path")
    mkdir -p "$dir"
    mount -n --move "/mnt/$number" "$dir"
done
umount -n /mnt
if [ "$confined" = yes ]; then
    mount -n -o remount,bind,ro /
fi
exec "$@"
"#;

/// All that a daemon of VRRP needs.
const RIGHTS: &str = "+net_admin,+net_raw,+net_broadcast";

/// A command, and how a node confines it.
#[derive(Debug)]
#[must_use]
pub struct Program {
    command: Command,
    visible: Vec<PathBuf>,
    container: Option<String>,
    is_confined: bool,
}

impl Program {
    pub fn new(command: Command) -> Self {
        Self { command, visible: Vec::new(), container: None, is_confined: false }
    }

    /// Lets it see a directory of the host that is in `/tmp` or `/run`, which it has its own of. It always
    /// sees the directory of its node and the one its program is in.
    pub fn sees(mut self, dir: impl Into<PathBuf>) -> Self {
        self.visible.push(dir.into());
        self
    }

    /// Gives it the `/tmp` and `/run` of all programs on its node that name the same container, whether they run
    /// at the same time or one after the other. They are in the directory of the node, under that name.
    pub fn in_container(mut self, name: &str) -> Self {
        self.container = Some(name.to_owned());
        self
    }

    /// Takes all rights but `NET_ADMIN`, `NET_RAW` and `NET_BROADCAST` from it, lets it gain none, and lets
    /// it write to `/tmp`, `/run` and the directories it sees only.
    ///
    /// It runs before everything else on the machine, where that is allowed: adverts that follow each other every
    /// 100 ms must not wait for a compiler.
    pub fn confined(mut self) -> Self {
        self.is_confined = true;
        self
    }

    pub(super) fn name(&self) -> String {
        name_of(&self.command)
    }

    /// The command that makes the surroundings and then becomes the program: the process id stays the same.
    /// Containers are in `dir`.
    pub(super) fn wrapped(&self, dir: &Path) -> Result<Command> {
        let container = self.container.as_ref().map(|name| dir.join(name)).unwrap_or_default();
        if self.container.is_some() {
            for name in ["tmp", "run"] {
                let dir = container.join(name);
                fs::create_dir_all(&dir).map_err(Error::io(format!("making {}", dir.display())))?;
            }
        }
        let mut visible: Vec<PathBuf> = Vec::new();
        let own = Path::new(self.command.get_program()).parent().map(Path::to_owned);
        for dir in own.iter().chain(&self.visible) {
            let is_hidden = ["/tmp", "/run"]
                .iter()
                .any(|top| dir.starts_with(top) && dir.as_path() != Path::new(top));
            // One inside another is seen with it.
            if is_hidden && !visible.iter().any(|other| dir.starts_with(other)) {
                visible.retain(|other| !other.starts_with(dir));
                visible.push(dir.clone());
            }
        }
        let mut wrapped = Command::new("unshare");
        wrapped.args(["--mount", "--propagation", "private", "--", "sh", "-c", SETUP, "program"]);
        wrapped.arg(if self.is_confined { "yes" } else { "no" }).arg(container);
        wrapped.arg(visible.len().to_string()).args(&visible);
        if self.is_confined {
            let set = |name: &str| OsString::from(format!("--{name}=-all,{RIGHTS}"));
            wrapped.args(["setpriv", "--no-new-privs"]);
            wrapped.args([set("bounding-set"), set("inh-caps"), set("ambient-caps")]).arg("--");
        }
        wrapped.arg(self.command.get_program()).args(self.command.get_args());
        for (key, value) in self.command.get_envs() {
            match value {
                Some(value) => wrapped.env(key, value),
                None => wrapped.env_remove(key),
            };
        }
        if let Some(dir) = self.command.get_current_dir() {
            wrapped.current_dir(dir);
        }
        Ok(wrapped)
    }
}

impl From<Command> for Program {
    fn from(command: Command) -> Self {
        Self::new(command)
    }
}
