//! What a client sees of an address: it asks all the time, and remembers which node answered when.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::Node;
use super::answers::NUMBER;
use crate::worker::Background;
use crate::{Error, Result};

/// The time between two questions by UDP.
const UDP_INTERVAL: Duration = Duration::from_millis(2);
/// The time between two connections by TCP.
const TCP_INTERVAL: Duration = Duration::from_millis(20);
/// A connection that takes longer counts as failed. The kernel repeats a lost packet after a second.
const TCP_TIMEOUT: Duration = Duration::from_secs(3);

/// How it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Udp,
    Tcp,
}

/// A question, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub asked: Instant,
    pub answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub at: Instant,
    pub node: Arc<str>,
}

/// Answers of one node that follow each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub node: Arc<str>,
    /// When the first of the questions was asked.
    pub from: Instant,
    /// When the last of them was answered.
    pub until: Instant,
    pub answers: usize,
}

/// All questions by one protocol, in the order in which they were asked.
#[derive(Clone, Debug, Default)]
pub struct Questions(Vec<Question>);

impl Questions {
    fn ask(&mut self, asked: Instant) -> u64 {
        self.0.push(Question { asked, answer: None });
        u64::try_from(self.0.len() - 1).unwrap_or(u64::MAX)
    }

    fn answered(&mut self, number: u64, node: &str, at: Instant) {
        let question = usize::try_from(number).ok().and_then(|index| self.0.get_mut(index));
        // A packet may arrive twice.
        if let Some(question) = question.filter(|it| it.answer.is_none()) {
            question.answer = Some(Answer { at, node: node.into() });
        }
    }

    pub fn all(&self) -> &[Question] {
        &self.0
    }

    /// The number of answers.
    pub fn answers(&self) -> usize {
        self.0.iter().filter(|it| it.answer.is_some()).count()
    }

    /// The longest silence since a moment: from a question to the next answer that arrived, to whichever
    /// question, or to `now`. It is about as long as an answer takes if nothing happened, and a client that a
    /// busy machine kept from asking sees none.
    pub fn silence(&self, since: Instant, now: Instant) -> Duration {
        let mut arrivals: Vec<_> =
            self.0.iter().filter_map(|it| Some(it.answer.as_ref()?.at)).collect();
        arrivals.sort_unstable();
        let mut longest = Duration::ZERO;
        let mut questions = self.0.iter().map(|it| it.asked).skip_while(|asked| *asked < since);
        let mut next = questions.next();
        // Of the questions between two arrivals the first is the beginning of the silence.
        for arrival in arrivals.into_iter().filter(|it| *it >= since).chain([now]) {
            if let Some(asked) = next.filter(|asked| *asked <= arrival) {
                longest = longest.max(arrival - asked);
                next = questions.find(|asked| *asked > arrival);
            }
        }
        longest
    }

    /// Which nodes answered what was asked since a moment, in the order of the questions. A move is two runs;
    /// more runs than nodes mean that two nodes answered at the same time.
    pub fn runs(&self, since: Instant) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for Question { asked, answer } in self.0.iter().filter(|it| it.asked >= since) {
            let Some(Answer { at, node }) = answer else { continue };
            match runs.last_mut() {
                Some(run) if run.node == *node => {
                    run.until = run.until.max(*at);
                    run.answers += 1;
                }
                _ => {
                    let node = Arc::clone(node);
                    runs.push(Run { node, from: *asked, until: *at, answers: 1 });
                }
            }
        }
        runs
    }

    /// Whether a node answered again after another had.
    pub fn is_answered_by_two(&self, since: Instant) -> bool {
        let mut nodes: Vec<_> = self.runs(since).into_iter().map(|run| run.node).collect();
        let runs = nodes.len();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len() < runs
    }
}

/// A client that asks; dropping it ends its thread.
#[derive(Debug)]
pub struct Asking {
    seen: Arc<Seen>,
    _thread: Background<oneshot::Sender<()>>,
}

#[derive(Debug, Default)]
struct Seen {
    udp: Mutex<Questions>,
    tcp: Mutex<Questions>,
}

impl Asking {
    pub(super) fn start(client: &Node, address: SocketAddr) -> Result<Self> {
        let any = if address.is_ipv4() {
            "0.0.0.0:0".parse()
        } else {
            Ok((Ipv6Addr::UNSPECIFIED, 0).into())
        };
        let any: SocketAddr = any.unwrap_or(address);
        let socket = client
            .inside(move || -> io::Result<UdpSocket> {
                let socket = UdpSocket::bind(any)?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            })?
            .map_err(Error::io("making the client's socket"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("making the client's runtime"))?;
        let seen = Arc::new(Seen::default());
        let (stop, stopped) = oneshot::channel();
        let theirs = Arc::clone(&seen);
        let thread = client.thread(move || {
            runtime.block_on(async {
                let Ok(socket) = tokio::net::UdpSocket::from_std(socket) else { return };
                tokio::select! {
                    _ended = stopped => {}
                    () = ask_by_udp(&socket, address, &theirs.udp) => {}
                    () = hear_by_udp(&socket, &theirs.udp) => {}
                    () = ask_by_tcp(address, &theirs) => {}
                }
            });
        })?;
        Ok(Self { seen, _thread: Background::new(stop, thread) })
    }

    /// What was asked until now.
    pub fn questions(&self, protocol: Protocol) -> Questions {
        match protocol {
            Protocol::Udp => lock(&self.seen.udp).clone(),
            Protocol::Tcp => lock(&self.seen.tcp).clone(),
        }
    }

    /// The longest silence since a moment, by UDP; see [`Questions::silence`].
    pub fn silence(&self, since: Instant) -> Duration {
        self.questions(Protocol::Udp).silence(since, Instant::now())
    }

    /// The node that answered the last question that was answered.
    pub fn answered_by(&self, protocol: Protocol) -> Option<Arc<str>> {
        let answers = |questions: &Questions| {
            let last = questions.0.iter().rev().find_map(|it| it.answer.as_ref());
            last.map(|answer| Arc::clone(&answer.node))
        };
        match protocol {
            Protocol::Udp => answers(&lock(&self.seen.udp)),
            Protocol::Tcp => answers(&lock(&self.seen.tcp)),
        }
    }
}

/// A panic while a test held the lock leaves the list valid.
fn lock(questions: &Mutex<Questions>) -> MutexGuard<'_, Questions> {
    questions.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn ask_by_udp(socket: &tokio::net::UdpSocket, address: SocketAddr, seen: &Mutex<Questions>) {
    let mut ticks = ticks(UDP_INTERVAL);
    loop {
        ticks.tick().await;
        let number = lock(seen).ask(Instant::now());
        // Without a route or a neighbour the question is not sent, and stays without an answer.
        drop(socket.try_send_to(&number.to_be_bytes(), address));
    }
}

async fn hear_by_udp(socket: &tokio::net::UdpSocket, seen: &Mutex<Questions>) {
    let mut buffer = [0; 256];
    loop {
        // An error tells of an earlier question that could not be delivered.
        let Ok(length) = socket.recv(&mut buffer).await else { continue };
        let now = Instant::now();
        if let Some((number, node)) = buffer[..length].split_first_chunk::<NUMBER>() {
            let node = String::from_utf8_lossy(node);
            lock(seen).answered(u64::from_be_bytes(*number), &node, now);
        }
    }
}

async fn ask_by_tcp(address: SocketAddr, seen: &Arc<Seen>) {
    let mut ticks = ticks(TCP_INTERVAL);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _tick = ticks.tick() => {
                let number = lock(&seen.tcp).ask(Instant::now());
                let seen = Arc::clone(seen);
                connections.spawn(async move {
                    if let Ok(Ok(node)) = timeout(TCP_TIMEOUT, connect(address)).await {
                        lock(&seen.tcp).answered(number, &node, Instant::now());
                    }
                });
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn connect(address: SocketAddr) -> io::Result<String> {
    let mut node = String::new();
    TcpStream::connect(address).await?.read_to_string(&mut node).await?;
    Ok(node)
}

fn ticks(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval(period);
    // Questions that a busy machine missed are not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Questions at the given times, each with its answer.
    fn questions(begin: Instant, all: &[(u64, Option<(u64, &str)>)]) -> Questions {
        let mut questions = Questions::default();
        for (asked, answer) in all {
            let number = questions.ask(begin + ms(*asked));
            if let Some((at, node)) = answer {
                questions.answered(number, node, begin + ms(*at));
                questions.answered(number, "twice", begin + ms(at + 1));
            }
        }
        questions
    }

    #[test]
    fn silence_lasts_from_a_question_to_the_next_answer_to_any() {
        let begin = Instant::now();
        let (a, b) = (|at| Some((at, "n1")), |at| Some((at, "n2")));
        let late = [(0, a(1)), (10, a(61)), (20, a(60)), (70, a(71))];
        for (case, all, since, now, expected) in [
            ("nothing was asked", &[][..], 0, 100, 0),
            ("all are answered", &[(0, a(1)), (10, a(12))], 0, 12, 2),
            ("some are lost", &[(0, a(1)), (10, None), (20, None), (30, b(31))], 0, 40, 21),
            ("none is answered since", &[(0, a(1)), (10, None), (20, None)], 0, 90, 80),
            ("before that moment", &[(0, None), (50, a(51)), (60, a(61))], 50, 65, 1),
            ("answers come late and out of order", &late, 0, 80, 50),
            ("the client did not ask", &[(0, a(1)), (90, a(91))], 0, 95, 1),
        ] {
            let silence = questions(begin, all).silence(begin + ms(since), begin + ms(now));
            assert_eq!(silence, ms(expected), "{case}");
        }
    }

    #[test]
    fn a_move_is_two_runs_and_two_holders_are_more() {
        let begin = Instant::now();
        let moved = [(0, Some((1, "n1"))), (2, Some((3, "n1"))), (4, None), (6, Some((7, "n2")))];
        let moved = questions(begin, &moved);
        let run = |node: &str, from, until, answers| Run {
            node: node.into(),
            from: begin + ms(from),
            until: begin + ms(until),
            answers,
        };
        assert_eq!(moved.runs(begin), [run("n1", 0, 3, 2), run("n2", 6, 7, 1)]);
        assert_eq!(moved.runs(begin + ms(4)), [run("n2", 6, 7, 1)]);
        assert!(!moved.is_answered_by_two(begin));
        assert_eq!(moved.answers(), 3);

        let both = [(0, Some((1, "n1"))), (2, Some((3, "n2"))), (4, Some((5, "n1")))];
        assert!(questions(begin, &both).is_answered_by_two(begin));
    }
}
