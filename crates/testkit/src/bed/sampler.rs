//! One thread that sees every address of every node.
//!
//! It reads all addresses every ten milliseconds, and hears of each change from the kernels in between. Changes
//! give the times, samples give the certainty: a change that was lost, or two nodes that hold an address at
//! once, cannot hide from them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, PipeReader, PipeWriter};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::gettid;

use super::Node;
use super::netlink::{Dumps, Events};
use super::record::Record;
use crate::wait::{self, TimedOut};
use crate::worker::Background;
use crate::{Error, Result, tools};

/// The time between two samples.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// A running sampler; dropping it ends its thread.
#[derive(Debug)]
pub struct Sampler {
    record: Arc<Mutex<Record>>,
    thread: Background<PipeWriter>,
}

impl Sampler {
    /// Begins to watch; what is held already counts from now.
    pub(super) fn start(nodes: Vec<Node>) -> Result<Self> {
        let (stopped, stop) = io::pipe().map_err(Error::io("making a pipe"))?;
        let record = Arc::new(Mutex::new(Record::new(Instant::now())));
        let mut eyes = Eyes {
            watched: nodes.into_iter().map(Watched::new).collect(),
            twice: BTreeMap::new(),
            sampled_at: Instant::now(),
            record: Arc::clone(&record),
            stopped,
        };
        let thread = thread::spawn(move || {
            precede();
            eyes.watch();
        });
        Ok(Self { record, thread: Background::new(stop, thread) })
    }

    /// Everything seen until now.
    pub fn record(&self) -> Record {
        lock(&self.record).clone()
    }

    /// Returns once a sample is complete that began after the call.
    pub async fn next_sample(&self) {
        let wanted = self.next();
        // A thread that has panicked takes no more; what the test then looks at fails it.
        while lock(&self.record).samples() < wanted && !self.thread.is_finished() {
            tokio::time::sleep(INTERVAL / 2).await;
        }
    }

    /// The number of samples that there will be after the next that begins; one may be under way.
    fn next(&self) -> usize {
        lock(&self.record).samples() + 2
    }

    /// Waits until exactly one of the nodes holds an address, in a sample that begins after the call, and names
    /// it.
    pub async fn holder(
        &self,
        address: IpAddr,
        among: &[&str],
        deadline: Duration,
    ) -> std::result::Result<String, TimedOut> {
        let wanted = self.next();
        wait::until(format!("one holder of {address}"), deadline, async || {
            let record = lock(&self.record);
            if record.samples() < wanted {
                return Err("no new sample".to_owned());
            }
            let mut holders = record.holders(address);
            holders.retain(|node| among.contains(node));
            match holders[..] {
                [one] => Ok(one.to_owned()),
                _ => Err(format!("holders: {holders:?}")),
            }
        })
        .await
    }
}

/// Lets the calling thread run before everything else on the machine, as the daemons do that it watches, where that
/// is allowed.
fn precede() {
    let mut chrt = Command::new("chrt");
    chrt.args(["--rr", "--pid", "1"]).arg(gettid().to_string());
    tools::add_path(&mut chrt);
    // Where it is not allowed, `Record::longest_pause` tells what that costs.
    drop(chrt.output());
}

/// A panic while a test held the lock leaves the record valid.
fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread has.
struct Eyes {
    watched: Vec<Watched>,
    /// The addresses that more than one node held when last looked at, and by which.
    twice: BTreeMap<IpAddr, BTreeSet<usize>>,
    /// When the last sample began.
    sampled_at: Instant,
    record: Arc<Mutex<Record>>,
    stopped: PipeReader,
}

impl Eyes {
    fn watch(&mut self) {
        let mut next = Instant::now();
        loop {
            for watched in &mut self.watched {
                watched.follow();
            }
            self.hear();
            if Instant::now() >= next {
                self.sample();
                // Samples that a busy machine missed are not made up for.
                let now = Instant::now();
                next = if next + INTERVAL > now { next + INTERVAL } else { now + INTERVAL };
            }
            if self.wait(next).is_err() {
                return;
            }
        }
    }

    /// Waits for the next change or sample; an error is the end.
    fn wait(&self, next: Instant) -> io::Result<()> {
        let mut fds = vec![PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN)];
        let events = self.watched.iter().filter_map(|it| it.sockets.as_ref());
        fds.extend(events.map(|it| PollFd::new(it.events.as_fd(), PollFlags::POLLIN)));
        let left = next.saturating_duration_since(Instant::now());
        // Rounded up, so that it does not turn in circles within the last millisecond.
        let left = u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        poll(&mut fds, PollTimeout::from(left))?;
        let is_stopped = fds[0].any().unwrap_or(true);
        if is_stopped { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }

    fn hear(&mut self) {
        for watched in &mut self.watched {
            let Some(sockets) = &mut watched.sockets else { continue };
            let before = std::mem::replace(&mut watched.heard_at, Instant::now());
            let Ok(events) = sockets.events.read() else { continue };
            let now = Instant::now();
            let mut record = lock(&self.record);
            for event in events.into_iter().filter(|it| !it.address.ip.is_loopback()) {
                watched.is_settled = false;
                if event.is_held {
                    record.held(watched.node.name(), event.address.ip, now);
                } else {
                    record.left(watched.node.name(), event.address.ip, before, now);
                }
            }
        }
    }

    fn sample(&mut self) {
        let began = Instant::now();
        let before = std::mem::replace(&mut self.sampled_at, began);
        self.look();
        let mut record = lock(&self.record);
        for watched in self.watched.iter_mut().filter(|it| !it.is_settled) {
            record.holds(watched.node.name(), &watched.seen, before, watched.seen_at);
            watched.is_settled = true;
        }
        drop(record);
        if !self.twice.is_empty() {
            self.prove();
        }
        lock(&self.record).sampled(began, Instant::now());
    }

    /// Looks again. A node that holds an address in both rounds held it between them, where the first had
    /// ended and the second not begun; if two did, they held it together.
    fn prove(&mut self) {
        let between = Instant::now();
        let first = self.twice.clone();
        self.look();
        let mut record = lock(&self.record);
        for (address, nodes) in &first {
            let Some(again) = self.twice.get(address) else { continue };
            let both = nodes.intersection(again);
            let both: Vec<_> = both.map(|it| self.watched[*it].node.name().to_owned()).collect();
            if both.len() > 1 {
                record.doubled_by(*address, both, between);
            }
        }
    }

    /// Reads the addresses of each node, one node after the other.
    fn look(&mut self) {
        let mut changed = false;
        for watched in &mut self.watched {
            changed |= watched.look();
        }
        if !changed {
            return;
        }
        self.twice.clear();
        for (index, watched) in self.watched.iter().enumerate() {
            for address in &watched.seen {
                self.twice.entry(*address).or_default().insert(index);
            }
        }
        self.twice.retain(|_, nodes| nodes.len() > 1);
    }
}

/// A node, and the sockets that look into it.
struct Watched {
    node: Node,
    /// Of which of its lives they are.
    life: u64,
    sockets: Option<Sockets>,
    /// What it held when last looked at.
    seen: BTreeSet<IpAddr>,
    seen_at: Instant,
    /// When its events were last asked for.
    heard_at: Instant,
    /// Whether the record says the same.
    is_settled: bool,
}

struct Sockets {
    dumps: Dumps,
    events: Events,
}

impl Sockets {
    fn open() -> io::Result<Self> {
        // Changes first, so that none falls between the two.
        let events = Events::open()?;
        Ok(Self { dumps: Dumps::open()?, events })
    }
}

impl Watched {
    fn new(node: Node) -> Self {
        let now = Instant::now();
        Self {
            node,
            life: 0,
            sockets: None,
            seen: BTreeSet::new(),
            seen_at: now,
            heard_at: now,
            is_settled: true,
        }
    }

    /// Notices that the node was switched off or on.
    fn follow(&mut self) {
        let life = self.node.life();
        if self.sockets.is_none() || life != self.life {
            // A node that is off has none; a failure is tried again with the next sample.
            self.sockets = self.node.inside(Sockets::open).ok().and_then(io::Result::ok);
            self.life = life;
        }
    }

    /// Reads its addresses, and returns whether they are others than before.
    fn look(&mut self) -> bool {
        let seen = match self.sockets.as_mut().map(|it| it.dumps.read()) {
            Some(Ok(None)) => None,
            Some(Ok(Some(all))) => Some(all.iter().map(|it| it.ip).collect()),
            // A node that is off, or about to be.
            Some(Err(_)) | None => Some(BTreeSet::new()),
        };
        self.seen_at = Instant::now();
        let Some(mut seen) = seen else { return false };
        seen.retain(|ip: &IpAddr| !ip.is_loopback());
        self.is_settled = false;
        std::mem::replace(&mut self.seen, seen) != self.seen
    }
}
