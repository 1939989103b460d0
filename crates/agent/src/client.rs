//! The worker's end of the keeper's socket.

use std::{io, path::PathBuf};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
};

use crate::{
    RunDir,
    call::{Answer, Request},
};

/// The keeper, as the worker sees it. Each call has a connection of its own, so that one that is given up
/// leaves nothing behind.
#[derive(Clone, Debug)]
pub struct Keeper {
    socket: PathBuf,
}

impl Keeper {
    pub fn new(run_dir: &RunDir) -> Self {
        Self { socket: run_dir.socket() }
    }

    /// Lets keepalived use the configuration in the folder, and returns once it does, or why it does not.
    pub async fn use_configuration(&self) -> io::Result<Answer> {
        self.call(Request::Use).await
    }

    /// What every instance does.
    pub async fn report(&self) -> io::Result<Answer> {
        self.call(Request::Report).await
    }

    async fn call(&self, request: Request) -> io::Result<Answer> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = String::new();
        if BufReader::new(stream).read_line(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }
}
