//! The server on every node that answers each question, by UDP or TCP and at any of its addresses, with the
//! name of the node.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Write};
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::home::Home;
use crate::worker::Background;
use crate::{Error, Result};

/// The port, of UDP as of TCP, on which every node answers.
pub const PORT: u16 = 7077;

/// By UDP, the number of the question comes before the name of the node.
pub(super) const NUMBER: usize = 8;

/// The thread that answers for one node, until this is dropped.
#[derive(Debug)]
pub(super) struct Answers {
    _thread: Background<PipeWriter>,
}

impl Answers {
    pub(super) fn start(home: &Home, node: &str) -> Result<Self> {
        let sockets = home.inside(Sockets::bind)?.map_err(Error::io("binding port 7077"))?;
        let (stopped, stop) = io::pipe().map_err(Error::io("making a pipe"))?;
        let node = node.to_owned();
        let thread = home.thread(move || {
            // An error is the end of the pipe, or of the network itself.
            while sockets.answer(&stopped, &node).is_ok() {}
        })?;
        Ok(Self { _thread: Background::new(stop, thread) })
    }
}

/// For both families, on whatever address the node has at the time.
struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Sockets {
    fn bind() -> io::Result<Self> {
        let any = (Ipv6Addr::UNSPECIFIED, PORT);
        let (udp, tcp) = (UdpSocket::bind(any)?, TcpListener::bind(any)?);
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        Ok(Self { udp, tcp })
    }

    /// Waits for questions and answers them.
    fn answer(&self, stopped: &PipeReader, node: &str) -> io::Result<()> {
        let mut fds = [stopped.as_fd(), self.udp.as_fd(), self.tcp.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut fds, PollTimeout::NONE)?;
        if fds[0].any().unwrap_or(true) {
            return Err(ErrorKind::Interrupted.into());
        }
        let mut number = [0; NUMBER];
        while let Some((length, asker)) = next(self.udp.recv_from(&mut number))? {
            let answer = [&number[..length], node.as_bytes()].concat();
            // The network may be unreachable just now; then the question stays without an answer.
            drop(self.udp.send_to(&answer, asker));
        }
        while let Some((mut stream, _)) = next(self.tcp.accept())? {
            // The asker may have gone.
            drop(stream.write_all(node.as_bytes()));
        }
        Ok(())
    }
}

/// What came, or `None` if nothing is waiting. An error that an earlier packet left on the socket tells no more
/// than that.
fn next<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Err(error),
        Err(_) => Ok(None),
    }
}
