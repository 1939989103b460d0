//! The connections of the admin port: few, short, and one request each.
//!
//! Any client that reaches the port can open connections and never finish a request. They cost at most
//! [`Limits`], and they do not keep the kubelet out: a connection beyond the limit replaces the oldest one.
//! Leaving it in the backlog would make a probe wait behind all the others, and refusing it would let the
//! others keep the port for themselves.

use std::collections::VecDeque;
use std::panic;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// Room for a request; no probe and no scraper sends more than a few hundred bytes.
const REQUEST_BYTES: usize = 16 * 1024;
/// How long answers that are under way at the stop may take.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// What all connections together may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Connections open at once.
    pub(super) connections: usize,
    /// From the beginning of a connection to its end: head and body of the request, and the answer.
    pub(super) time: Duration,
}

/// Serves `router` until `stop`.
pub(super) async fn serve(
    mut listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let service = TowerToHyperService::new(router);
    let mut http = http1::Builder::new();
    // A connection that may wait for another request would count as open all that time.
    http.keep_alive(false).max_buf_size(REQUEST_BYTES);
    let mut connections = JoinSet::new();
    let mut oldest_first = VecDeque::<AbortHandle>::new();
    loop {
        let (stream, peer) = tokio::select! {
            () = stop.cancelled() => break,
            Some(ended) = connections.join_next() => {
                pass_panic_on(ended);
                continue;
            }
            // The listener's own `accept` gives up at the first error; axum's retries.
            accepted = Listener::accept(&mut listener) => accepted,
        };
        oldest_first.retain(|connection| !connection.is_finished());
        if oldest_first.len() >= limits.connections
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.abort();
        }
        let connection = http.serve_connection(TokioIo::new(stream), service.clone());
        oldest_first.push_back(connections.spawn(async move {
            match timeout(limits.time, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!(%peer, %error, "a connection failed"),
                Err(_) => debug!(%peer, "a connection took too long"),
            }
        }));
    }
    let rest = async {
        while let Some(ended) = connections.join_next().await {
            pass_panic_on(ended);
        }
    };
    timeout(STOP_GRACE, rest).await.ok();
}

/// A panic of a handler ends the process like that of any other task.
fn pass_panic_on(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && let Ok(payload) = error.try_into_panic()
    {
        panic::resume_unwind(payload);
    }
}
