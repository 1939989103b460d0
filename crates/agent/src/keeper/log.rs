//! The log of keepalived: passed on, as far as it can be.
//!
//! keepalived waits until what it logs is written, and sends no adverts meanwhile. So it writes to a pipe of which it
//! is a reader itself: that has no end when the keeper has gone, and takes nothing when it is full.

use std::{
    fs::{File, OpenOptions, Permissions, set_permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use nix::{errno::Errno, fcntl::OFlag, sys::stat::Mode, unistd::mkfifo};
use tokio::io::unix::AsyncFd;

use crate::{Output, descriptor::watched};

/// As much as is read at a time.
const BUFFER: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Log {
    pipe: AsyncFd<File>,
    output: Output,
}

impl Log {
    /// Makes the pipe if it is missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        match mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let file = pipe(path)?;
        set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { pipe: watched(file)?, output: Output::stderr() })
    }

    /// Passes on what keepalived logs, until the future is dropped or the pipe cannot be read.
    pub(super) async fn pass_on(mut self) -> io::Error {
        let mut buffer = vec![0; BUFFER];
        loop {
            let mut ready = match self.pipe.readable().await {
                Ok(ready) => ready,
                Err(error) => return error,
            };
            match ready.try_io(|pipe| pipe.get_ref().read(&mut buffer)) {
                Ok(Ok(length)) => {
                    // What is not written is not worth another line.
                    self.output.write_all(buffer.get(..length).unwrap_or_default()).ok();
                }
                Ok(Err(error)) => return error,
                Err(_) => {}
            }
        }
    }
}

/// An end of the pipe that neither waits nor finds the other end closed.
pub(super) fn pipe(path: &Path) -> io::Result<File> {
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits();
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("it is no pipe"));
    }
    Ok(file)
}

/// The pipe in a folder.
pub(super) fn path(run_dir: &crate::RunDir) -> PathBuf {
    run_dir.path().join("log")
}
