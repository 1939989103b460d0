//! A connection that can be frozen or cut from outside.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Whether bytes may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    Frozen,
    Stopped,
}

type Passage = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// A stream on which nothing moves while the flow is frozen.
///
/// The freeze is here, below HTTP, and not in the handling of requests: a frozen watch must not
/// even see the bytes of an event whose reply began long ago.
pub(super) struct Gated {
    stream: TcpStream,
    flow: watch::Receiver<Flow>,
    waiting: Option<Passage>,
}

impl Gated {
    pub(super) fn new(stream: TcpStream, flow: watch::Receiver<Flow>) -> Self {
        Self { stream, flow, waiting: None }
    }

    fn poll_pass(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waiting.is_none() {
            match *self.flow.borrow() {
                Flow::Open => return Poll::Ready(Ok(())),
                Flow::Frozen => {}
                Flow::Stopped => return Poll::Ready(Err(cut())),
            }
        }
        let flow = &self.flow;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(pass(flow.clone())));
        let outcome = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(outcome)
    }
}

/// Waits while frozen; fails once stopped.
pub(super) async fn pass(mut flow: watch::Receiver<Flow>) -> io::Result<()> {
    match flow.wait_for(|flow| *flow != Flow::Frozen).await.as_deref() {
        Ok(Flow::Open) => Ok(()),
        _ => Err(cut()),
    }
}

fn cut() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

impl AsyncRead for Gated {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_pass(cx))?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gated {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pass(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The end of a connection is a packet as well.
        ready!(self.poll_pass(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
