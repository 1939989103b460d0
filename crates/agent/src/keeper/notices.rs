//! The pipe on which keepalived tells of transitions as they happen.

use std::{
    fs::{File, OpenOptions, Permissions, set_permissions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use nix::{errno::Errno, fcntl::OFlag, sys::stat::Mode, unistd::mkfifo};
use tokio::io::unix::AsyncFd;

use crate::call::State;
use crate::descriptor::watched;

/// A transition of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) instance: String,
    pub(super) state: State,
}

#[derive(Debug)]
pub(super) struct Notices {
    pipe: AsyncFd<File>,
    /// The beginning of a line whose end is still to come.
    begun: Vec<u8>,
}

impl Notices {
    /// Opens the pipe, which is made if it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        // For writing as well, so that it has no end when keepalived has gone.
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        if !file.metadata()?.file_type().is_fifo() {
            return Err(io::Error::other("it is no pipe"));
        }
        set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { pipe: watched(file)?, begun: Vec::new() })
    }

    /// Waits for transitions. Losing the future loses none of them.
    pub(super) async fn next(&mut self) -> io::Result<Vec<Notice>> {
        loop {
            let mut ready = self.pipe.readable().await?;
            let read = drain(ready.get_inner(), &mut self.begun);
            ready.clear_ready();
            let notices = take_lines(&mut self.begun);
            read?;
            if !notices.is_empty() {
                return Ok(notices);
            }
        }
    }

    /// The transitions that were told until now, without waiting.
    pub(super) fn told(&mut self) -> Vec<Notice> {
        // An error means that there is nothing more to read.
        drop(drain(self.pipe.get_ref(), &mut self.begun));
        take_lines(&mut self.begun)
    }
}

fn drain(mut pipe: &File, into: &mut Vec<u8>) -> io::Result<()> {
    match pipe.read_to_end(into) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Takes the whole lines, and leaves the beginning of the last one.
fn take_lines(bytes: &mut Vec<u8>) -> Vec<Notice> {
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let rest = bytes.split_off(end + 1);
    let lines = std::mem::replace(bytes, rest);
    String::from_utf8_lossy(&lines).lines().filter_map(parse).collect()
}

/// A line such as `INSTANCE "group/0" MASTER 254`. Lines of other kinds tell of no transition.
fn parse(line: &str) -> Option<Notice> {
    let (instance, rest) = line.strip_prefix("INSTANCE \"")?.rsplit_once("\" ")?;
    let state = match rest.split(' ').next()? {
        "MASTER" => State::Master,
        "BACKUP" => State::Backup,
        "FAULT" => State::Fault,
        "STOP" | "DELETED" => State::Init,
        _ => return None,
    };
    Some(Notice { instance: instance.to_owned(), state })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn lines_tell_of_transitions_and_other_lines_of_nothing() {
        for (line, expected) in [
            ("INSTANCE \"g/0\" MASTER 254", Some(("g/0", State::Master))),
            ("INSTANCE \"ns/svc/10.0.0.1\" BACKUP 1", Some(("ns/svc/10.0.0.1", State::Backup))),
            ("INSTANCE \"a\" FAULT 0", Some(("a", State::Fault))),
            ("INSTANCE \"a\" STOP 0", Some(("a", State::Init))),
            ("INSTANCE \"a\" DELETED 0", Some(("a", State::Init))),
            ("INSTANCE \"a\" MASTER_RX_LOWER_PRI 1", None),
            ("INSTANCE \"a\" MASTER_PRIORITY 1", None),
            ("GROUP \"a\" MASTER 0", None),
            ("INSTANCE a MASTER 0", None),
            ("", None),
        ] {
            let notice = parse(line);
            let told = notice.as_ref().map(|it| (it.instance.as_str(), it.state));
            assert_eq!(told, expected, "{line}");
        }
    }

    #[tokio::test]
    async fn a_line_in_two_parts_is_one_transition() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let mut notices = Notices::open(&path).unwrap();
        let mut keepalived = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(notices.told(), []);
        keepalived.write_all(b"INSTANCE \"a\" MAS").unwrap();
        assert_eq!(notices.told(), []);
        keepalived.write_all(b"TER 1\nINSTANCE \"b\" BACKUP 1\nINST").unwrap();
        let master = Notice { instance: "a".to_owned(), state: State::Master };
        let backup = Notice { instance: "b".to_owned(), state: State::Backup };
        assert_eq!(notices.next().await.unwrap(), [master.clone(), backup]);
        drop(keepalived);
        let mut keepalived = OpenOptions::new().write(true).open(&path).unwrap();
        keepalived.write_all(b"ANCE \"a\" MASTER 1\n").unwrap();
        assert_eq!(notices.next().await.unwrap(), [master]);
    }

    #[tokio::test]
    async fn a_file_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        std::fs::write(&path, "").unwrap();
        assert!(Notices::open(&path).is_err());
    }
}
