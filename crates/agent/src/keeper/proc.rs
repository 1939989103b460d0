//! What `/proc` tells about processes.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

/// How a keepalived of ours is told from everybody else's.
#[derive(Clone, Debug)]
pub(super) struct Ours {
    /// The name of the program's file.
    program: PathBuf,
    /// The configuration file, which its command line names.
    configuration: PathBuf,
}

impl Ours {
    pub(super) fn new(program: &Path, configuration: PathBuf) -> Self {
        let name = program.file_name().unwrap_or_default();
        Self { program: name.into(), configuration }
    }

    pub(super) fn is(&self, id: u32) -> bool {
        let exe = fs::read_link(format!("/proc/{id}/exe"));
        let line = fs::read(format!("/proc/{id}/cmdline"));
        exe.is_ok_and(|exe| line.is_ok_and(|line| self.matches(&exe, &line)))
    }

    /// Every process that is ours.
    pub(super) fn all(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name());
        let ids = names.filter_map(|name| name.to_str()?.parse().ok());
        ids.filter(|id| self.is(*id)).collect()
    }

    fn matches(&self, exe: &Path, command_line: &[u8]) -> bool {
        // An upgrade may have replaced the file of the running program.
        let exe = exe.as_os_str().as_bytes();
        let exe = exe.strip_suffix(b" (deleted)").unwrap_or(exe);
        let name = Path::new(OsStr::from_bytes(exe)).file_name();
        let mut words = command_line.split(|byte| *byte == 0);
        let configuration = self.configuration.as_os_str().as_bytes();
        name == Some(self.program.as_os_str()) && words.any(|word| word == configuration)
    }
}

/// The id in a pid file.
pub(super) fn pid_file(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

pub(super) fn parent(id: u32) -> Option<u32> {
    field(&fs::read_to_string(format!("/proc/{id}/status")).ok()?, "PPid")?.try_into().ok()
}

/// How often a process has gone to sleep. It grows as long as a daemon with timers runs, and stands still when
/// it is stopped, stuck in a loop or stuck in the kernel.
pub(super) fn sleeps(id: u32) -> Option<u64> {
    field(&fs::read_to_string(format!("/proc/{id}/status")).ok()?, "voluntary_ctxt_switches")
}

/// Whether a process will never run its own code again, although the kernel may still be at work on its end.
pub(super) fn is_exiting(id: u32) -> bool {
    // Without the file it has ended.
    fs::read_to_string(format!("/proc/{id}/stat")).map_or(true, |stat| has_exiting_flag(&stat))
}

fn has_exiting_flag(stat: &str) -> bool {
    // The name before it may have any character in it, spaces among them.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields);
    let flags = fields.and_then(|fields| fields.split_whitespace().nth(FLAGS)?.parse().ok());
    flags.is_some_and(|flags: u64| flags & PF_EXITING != 0)
}

/// The place of the flags, counted from the state of the process.
const FLAGS: usize = 6;
/// `<linux/sched.h>`
const PF_EXITING: u64 = 0x4;

fn field(status: &str, name: &str) -> Option<u64> {
    let rows = status.lines().filter_map(|line| line.split_once(':'));
    let mut values = rows.filter(|(key, _)| *key == name);
    values.next()?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keepalived_of_ours_is_told_by_its_program_and_its_configuration() {
        let ours = Ours::new(Path::new("/usr/sbin/keepalived"), "/run/a/keepalived.conf".into());
        let line = |path: &str| format!("keepalived\0--vrrp\0--use-file\0{path}\0").into_bytes();
        let own = line("/run/a/keepalived.conf");
        for (exe, line, is_ours) in [
            ("/usr/sbin/keepalived", &own, true),
            ("/usr/sbin/keepalived (deleted)", &own, true),
            ("/opt/keepalived", &own, true),
            ("/usr/bin/vi", &own, false),
            ("/usr/sbin/keepalived", &line("/run/b/keepalived.conf"), false),
            ("/usr/sbin/keepalived", &line("/run/a/keepalived.conf.new"), false),
            ("/usr/sbin/keepalived", &Vec::new(), false),
        ] {
            assert_eq!(ours.matches(Path::new(exe), line), is_ours, "{exe} {line:?}");
        }
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status =
            "Name:\tx\nPPid:\t7\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t9\n";
        assert_eq!(field(status, "PPid"), Some(7));
        assert_eq!(field(status, "voluntary_ctxt_switches"), Some(12));
        assert_eq!(field(status, "nonvoluntary_ctxt_switches"), Some(9));
        assert_eq!(field(status, "Threads"), None);
    }

    #[test]
    fn the_end_of_a_process_is_seen_by_its_flags() {
        let stat = |flags| format!("7 (a (b) R 1) S 1 7 7 0 -1 {flags} 99 0 0 0 0 0 0 0 20 0 1 0");
        assert!(!has_exiting_flag(&stat("4194560")));
        assert!(has_exiting_flag(&stat("4194564")));
        assert!(!has_exiting_flag(""));
        assert!(!is_exiting(std::process::id()));
        assert!(is_exiting(u32::MAX));
    }

    #[test]
    fn the_kernel_tells_of_this_process() {
        let own = std::process::id();
        assert_eq!(parent(own), Some(std::os::unix::process::parent_id()));
        assert!(sleeps(own).is_some());
        assert_eq!(sleeps(u32::MAX), None);
    }
}
