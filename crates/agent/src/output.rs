//! A standard error output that never makes a writer wait.
//!
//! Whatever reads the log of a container may stop reading, and then the pipe to it is full. A keeper that waited for
//! that would look after nothing meanwhile.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _},
    sync::Arc,
};

use nix::fcntl::OFlag;

/// This process's standard error output, as a file of its own: what is set for it holds for no other process.
const STDERR: &str = "/proc/self/fd/2";

/// Standard error, except that a pipe that is full takes nothing, and what does not fit is dropped.
#[derive(Clone, Debug)]
pub struct Output {
    /// The pipe, if it is one.
    pipe: Option<Arc<File>>,
}

impl Output {
    pub fn stderr() -> Self {
        // Another kind of file is always ready, and a pipe that cannot be opened is written to as it is.
        let is_pipe = fs::metadata(STDERR).is_ok_and(|it| it.file_type().is_fifo());
        let pipe = is_pipe.then(|| open(STDERR)).and_then(Result::ok);
        Self { pipe: pipe.map(Arc::new) }
    }
}

fn open(pipe: &str) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(pipe)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(pipe) = &self.pipe else { return io::stderr().write(bytes) };
        match pipe.as_ref().write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(bytes.len()),
            outcome => outcome,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_a_full_pipe_does_not_take_is_dropped() {
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        let mut output = Output { pipe: Some(Arc::new(open(&path).unwrap())) };
        // More than any pipe holds.
        let lines = vec![b'x'; 32 * 1024];
        for _ in 0..64 {
            output.write_all(&lines).unwrap();
        }
        drop((output, writer));
        let mut held = Vec::new();
        reader.read_to_end(&mut held).unwrap();
        assert!(!held.is_empty() && held.len() < 64 * 32 * 1024, "{}", held.len());
    }
}
