//! Sees what keepalived does with files: that it writes its pid file, that it opens its pipe, which it does
//! whenever it has read its configuration, and that a dump is complete.

use std::{
    ffi::OsString,
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};
use tokio::io::unix::AsyncFd;

use crate::descriptor::watched;

/// The folder of the dump. keepalived cannot be told to use another one.
const DUMP_FOLDER: &str = "tmp";
const DUMP: &str = "keepalived.json";

/// What keepalived did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// Its parent process runs, and takes signals from about now on.
    Started,
    /// Its VRRP process has read the configuration, at its start or because it was told to.
    Read,
    /// It has written a dump.
    Dumped,
}

#[derive(Debug)]
pub(super) struct Files {
    events: AsyncFd<Events>,
    pipe: WatchDescriptor,
    run_dir: WatchDescriptor,
    pid_file: OsString,
    /// The folder of the dump, and how it is watched.
    dump: Option<(PathBuf, WatchDescriptor)>,
}

#[derive(Debug)]
struct Events(Inotify);

impl AsFd for Events {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Events {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Files {
    /// Watches an existing pipe, and the folder of a pid file.
    pub(super) fn watch(pipe: &Path, pid_file: &Path) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let pipe = inotify.add_watch(pipe, AddWatchFlags::IN_OPEN)?;
        let folder = pid_file.parent().unwrap_or_else(|| Path::new("/"));
        let run_dir = inotify.add_watch(folder, AddWatchFlags::IN_CLOSE_WRITE)?;
        let pid_file = pid_file.file_name().unwrap_or_default().to_owned();
        Ok(Self { events: watched(Events(inotify))?, pipe, run_dir, pid_file, dump: None })
    }

    /// Watches for the dumps of a process from now on, in the file system that it sees.
    pub(super) fn watch_dumps_of(&mut self, id: u32) -> io::Result<()> {
        self.watch_dumps_in(Path::new(&format!("/proc/{id}/root")).join(DUMP_FOLDER))
    }

    fn watch_dumps_in(&mut self, folder: PathBuf) -> io::Result<()> {
        let inotify = &self.events.get_ref().0;
        let watch = inotify.add_watch(&folder, AddWatchFlags::IN_CLOSE_WRITE)?;
        let before = self.dump.replace((folder, watch));
        if let Some((_, before)) = before.filter(|(_, before)| *before != watch) {
            // The folder may be gone, and the kernel have ended the watch itself.
            inotify.rm_watch(before).ok();
        }
        Ok(())
    }

    /// Takes the dump away, which has passwords in it.
    pub(super) fn take_dump(&self) -> io::Result<Vec<u8>> {
        let (folder, _) = self.dump.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let path = folder.join(DUMP);
        let text = fs::read(&path)?;
        fs::remove_file(path)?;
        Ok(text)
    }

    /// Waits until something is seen. Losing the future loses nothing.
    pub(super) async fn next(&self) -> io::Result<Vec<Seen>> {
        loop {
            let mut ready = self.events.readable().await?;
            let read = ready.get_inner().0.read_events();
            match read {
                Ok(events) => {
                    let seen: Vec<_> = events.iter().filter_map(|it| self.sort(it)).collect();
                    if !seen.is_empty() {
                        return Ok(seen);
                    }
                }
                Err(Errno::EAGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn sort(&self, event: &InotifyEvent) -> Option<Seen> {
        let name = event.name.as_deref();
        let dump = self.dump.as_ref().map(|(_, watch)| *watch);
        if event.wd == self.pipe {
            event.mask.contains(AddWatchFlags::IN_OPEN).then_some(Seen::Read)
        } else if event.wd == self.run_dir && name == Some(&self.pid_file) {
            Some(Seen::Started)
        } else if Some(event.wd) == dump && name.is_some_and(|name| name == DUMP) {
            Some(Seen::Dumped)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    async fn seen(files: &Files, count: usize) -> Vec<Seen> {
        let mut seen = Vec::new();
        while seen.len() < count {
            seen.extend(files.next().await.unwrap());
        }
        seen
    }

    #[tokio::test]
    async fn what_keepalived_does_is_seen_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        mkfifo(&path("notify"), Mode::S_IRWXU).unwrap();
        let mut files = Files::watch(&path("notify"), &path("pid")).unwrap();
        assert!(files.take_dump().is_err());
        for folder in ["first", "second"] {
            fs::create_dir(path(folder)).unwrap();
            files.watch_dumps_in(path(folder)).unwrap();
            fs::write(path(folder).join("other"), "").unwrap();
            fs::write(path("other"), "").unwrap();
            fs::write(path("pid"), "1").unwrap();
            OpenOptions::new().read(true).write(true).open(path("notify")).unwrap();
            fs::write(path(folder).join(DUMP), folder).unwrap();
            assert_eq!(seen(&files, 3).await, [Seen::Started, Seen::Read, Seen::Dumped]);
            assert_eq!(files.take_dump().unwrap(), folder.as_bytes());
            assert!(files.take_dump().is_err());
        }
        // Where dumps came from before, none is expected any more.
        fs::write(path("first").join(DUMP), "").unwrap();
        fs::write(path("pid"), "2").unwrap();
        assert_eq!(seen(&files, 1).await, [Seen::Started]);
    }

    #[tokio::test]
    async fn dumps_are_expected_where_the_process_sees_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name| dir.path().join(name);
        mkfifo(&path("notify"), Mode::S_IRWXU).unwrap();
        let mut files = Files::watch(&path("notify"), &path("pid")).unwrap();
        files.watch_dumps_of(std::process::id()).unwrap();
        assert!(files.watch_dumps_of(u32::MAX).is_err());
    }
}
