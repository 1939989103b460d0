//! Answers the worker on the keeper's socket.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tracing::debug;

use crate::call::{Answer, Counts, Request};

/// A request, and where its answer goes. Dropping it answers that keepalived does not run.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// More connections than one worker needs.
const CONNECTIONS: usize = 16;
/// Requests are a few words.
const LONGEST_LINE: u64 = 1024;

/// Makes the socket in place of one that a predecessor left.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until the future is dropped.
pub(super) async fn serve(listener: &UnixListener, calls: &mpsc::Sender<Call>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    let calls = calls.clone();
                    connections.spawn(async move {
                        if let Err(error) = converse(stream, &calls).await {
                            debug!(%error, "a connection of the worker failed");
                        }
                    });
                }
                // It went while it waited; others may come.
                Err(error) => debug!(%error, "a connection of the worker failed"),
            },
        }
    }
}

async fn converse(mut stream: UnixStream, calls: &mpsc::Sender<Call>) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        if (&mut reader).take(LONGEST_LINE).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let request = serde_json::from_str(&line)?;
        let (reply, answer) = oneshot::channel();
        // A keeper that is about to end takes no calls.
        drop(calls.send(Call { request, reply }).await);
        let answer = answer.await.unwrap_or_else(|_| Answer::Down {
            error: "keepalived has ended".to_owned(),
            counts: Counts::default(),
        });
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        writer.write_all(&text).await?;
    }
}
