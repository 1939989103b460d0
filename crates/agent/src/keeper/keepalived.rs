//! Keeps keepalived running, and gives up its addresses whenever it does not.

use std::{io, path::PathBuf, time::Duration};

use rustix::process::Signal;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use super::{
    Settings,
    backoff::Backoff,
    daemon::{self, Daemon},
    dump,
    files::{Files, Seen},
    known::Known,
    link_local,
    notices::{Notice, Notices},
    proc::{self, Ours},
    pulse::{Life, Pulse, patience, patience_with_reading},
    socket::Call,
    stopped,
};
use crate::{
    RunDir,
    call::{Answer, InstanceReport, Request},
};

/// How long the first start waits for the worker, which may get a newer plan than the one that the configuration
/// was made from, and then asks. A worker that cannot work keeps no node from serving.
const WORKER_DEADLINE: Duration = Duration::from_secs(15);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const SETTLED: Duration = Duration::from_secs(10);
/// How long it may take to stop: as long as its parent process waits for its children.
const STOP_DEADLINE: Duration = Duration::from_secs(5);
/// How long it may take to read its configuration as long as it holds nothing: far longer than a busy machine needs
/// for the largest one.
const READ_DEADLINE: Duration = Duration::from_secs(30);
/// How old the counters in an answer may be, since keepalived logs a line for each dump. States are never older
/// than the last transition.
const FRESH: Duration = Duration::from_secs(15);

type Reply = oneshot::Sender<Answer>;

#[derive(Debug)]
pub(super) struct Keeping {
    run_dir: RunDir,
    launcher: Vec<std::ffi::OsString>,
    program: PathBuf,
    ours: Ours,
    /// Asks for a dump.
    ask: Signal,
    notices: Notices,
    files: Files,
    calls: mpsc::Receiver<Call>,
    stop: watch::Receiver<bool>,
    known: Known,
    starts: u64,
    backoff: Backoff,
    /// Whether a transition was told since keepalived was asked, which the dump may be older than.
    noticed: bool,
    /// The last dump, until something changes.
    last: Option<(Instant, Vec<InstanceReport>)>,
    /// Get the next dump.
    waiting: Vec<Reply>,
    /// Wait until the configuration can be read.
    uses: Vec<Reply>,
}

/// What keepalived is doing for us.
#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    /// Reads its configuration.
    Reading {
        until: Instant,
        told: bool,
    },
    /// Writes a dump.
    Dumping {
        until: Instant,
        again: Instant,
    },
}

impl Phase {
    /// It reads it because it starts.
    fn starting() -> Self {
        Self::Reading { until: Instant::now() + READ_DEADLINE, told: false }
    }
}

fn tell_to_read(daemon: &Daemon) {
    if let Err(error) = daemon.parent.signal(Signal::HUP) {
        warn!(%error, "keepalived cannot be told to read its configuration");
    }
}

#[derive(Debug)]
enum Event {
    Ended,
    ChildEnded,
    Stop,
    Noticed(io::Result<Vec<Notice>>),
    Saw(io::Result<Vec<Seen>>),
    Called(Call),
    Look,
}

/// What a predecessor of the keeper has left behind: a keepalived that goes on, or else nothing, once it is swept.
///
/// This is the first thing that a keeper does, for another node may hold the addresses by now.
pub(super) async fn begin(settings: &Settings) -> (Known, Option<Daemon>) {
    let run_dir = &settings.run_dir;
    let ours = Ours::new(&settings.keepalived, run_dir.configuration());
    let mut known = Known::default();
    known.read(run_dir);
    let adopted = Daemon::adopt(run_dir, &ours);
    if let Some(daemon) = &adopted {
        info!(pid = daemon.parent.id(), "keepalived goes on running");
    } else {
        daemon::kill_all(&ours).await;
        known.sweep(run_dir);
    }
    (known, adopted)
}

/// Why keepalived is looked after no longer.
#[derive(Debug)]
enum End {
    Stop,
    Failed(&'static str),
}

impl Keeping {
    pub(super) fn new(
        settings: &Settings,
        ask: Signal,
        (notices, files): (Notices, Files),
        calls: mpsc::Receiver<Call>,
        known: Known,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let run_dir = settings.run_dir.clone();
        Self {
            ours: Ours::new(&settings.keepalived, run_dir.configuration()),
            run_dir,
            launcher: settings.launcher.clone(),
            program: settings.keepalived.clone(),
            ask,
            notices,
            files,
            calls,
            stop,
            known,
            starts: 0,
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT, SETTLED),
            noticed: false,
            last: None,
            waiting: Vec::new(),
            uses: Vec::new(),
        }
    }

    /// Runs until the agent is to stop.
    pub(super) async fn run(mut self, mut adopted: Option<Daemon>) {
        let mut due = Instant::now() + WORKER_DEADLINE;
        let mut why = "keepalived has no configuration yet";
        loop {
            let daemon = match adopted.take() {
                Some(daemon) => daemon,
                None => match self.start(due, why).await {
                    Some(daemon) => daemon,
                    None => return,
                },
            };
            match self.attend(daemon).await {
                (daemon, End::Stop) => return self.stop(&daemon).await,
                (daemon, End::Failed(failure)) => {
                    // Even a line in the log may take its time.
                    self.give_up(&daemon).await;
                    error!(pid = daemon.parent.id(), failure, "keepalived has failed");
                    self.answer_down(failure);
                    due = Instant::now() + self.backoff.after(daemon.started.elapsed());
                    why = failure;
                }
            }
        }
    }

    /// Starts keepalived once that is due and there is a configuration; `None` if the agent is to stop.
    async fn start(&mut self, mut due: Instant, mut why: &'static str) -> Option<Daemon> {
        loop {
            self.wait(due, why).await?;
            // Its addresses are on no node for longer, but on no two nodes.
            self.known.read(&self.run_dir);
            tokio::select! {
                () = link_local::settled(self.known.farewells()) => {}
                () = stopped(&mut self.stop) => return None,
            }
            match Daemon::start(&self.launcher, &self.program, &self.run_dir) {
                Ok(daemon) => {
                    info!(pid = daemon.parent.id(), "keepalived was started");
                    self.starts += 1;
                    return Some(daemon);
                }
                Err(error) => error!(%error, "keepalived cannot be started"),
            }
            why = "keepalived cannot be started";
            self.answer_down(why);
            due = Instant::now() + self.backoff.after(Duration::ZERO);
        }
    }

    /// Waits until keepalived can be started; `None` if the agent is to stop.
    async fn wait(&mut self, due: Instant, why: &'static str) -> Option<()> {
        loop {
            let is_configured = self.run_dir.configuration().exists();
            let call = tokio::select! {
                () = sleep_until(due), if is_configured => return Some(()),
                () = stopped(&mut self.stop) => return None,
                Some(call) = self.calls.recv() => call,
            };
            match call.request {
                Request::Use if self.run_dir.configuration().exists() => {
                    self.waiting.push(call.reply);
                    // It may be the cure.
                    self.backoff.reset();
                    return Some(());
                }
                Request::Use | Request::Report | Request::Alive => {
                    self.reply_down(call.reply, why);
                }
            }
        }
    }

    /// Looks after a running keepalived.
    async fn attend(&mut self, mut daemon: Daemon) -> (Daemon, End) {
        let mut pulse = Pulse::default();
        self.expect_dumps(&daemon);
        let mut phase = if daemon.child.is_some() && !self.known.farewells().is_empty() {
            // An adopted one may hold addresses.
            self.dump(&daemon, patience(self.known.longest_interval(), true))
        } else if daemon.is_adopted && self.known.farewells().is_empty() {
            // Without instances it tells nothing.
            Phase::Idle
        } else {
            Phase::starting()
        };
        let mut next_look = Instant::now();
        loop {
            if matches!(phase, Phase::Idle) && !self.uses.is_empty() {
                phase = self.reload(&daemon);
            }
            let event = tokio::select! {
                biased;
                () = daemon.parent.ended() => Event::Ended,
                () = daemon.child_ended() => Event::ChildEnded,
                () = stopped(&mut self.stop) => Event::Stop,
                noticed = self.notices.next() => Event::Noticed(noticed),
                seen = self.files.next() => Event::Saw(seen),
                Some(call) = self.calls.recv() => Event::Called(call),
                () = sleep_until(next_look) => Event::Look,
            };
            match event {
                Event::Ended => return (daemon, End::Failed("keepalived has ended")),
                Event::Stop => return (daemon, End::Stop),
                Event::ChildEnded => {
                    // Its parent process starts another one, which takes nothing over for three adverts.
                    daemon.child = None;
                    self.known.note_last(self.notices.told());
                    self.known.give_up(&self.run_dir);
                    warn!("keepalived's VRRP process has ended");
                    self.answer_down("keepalived's VRRP process has ended");
                    phase = Phase::starting();
                }
                Event::Noticed(Ok(notices)) => {
                    if daemon.child.as_ref().is_some_and(|child| proc::is_exiting(child.id())) {
                        self.known.note_last(notices);
                    } else {
                        self.known.note(notices);
                    }
                    self.noticed = true;
                    self.last = None;
                }
                Event::Saw(Ok(seen)) => {
                    for seen in seen {
                        phase = self.saw(seen, phase, &mut daemon);
                    }
                    if matches!(phase, Phase::Idle) {
                        pulse.reset();
                    }
                }
                Event::Noticed(Err(error)) | Event::Saw(Err(error)) => {
                    error!(%error, "keepalived cannot be watched");
                    return (daemon, End::Failed("keepalived cannot be watched"));
                }
                Event::Called(call) => phase = self.called(call, phase, &daemon),
                Event::Look => {
                    if let Some(failure) = self.look(&mut phase, &mut pulse, &daemon) {
                        return (daemon, End::Failed(failure));
                    }
                    next_look = Instant::now() + Pulse::interval(self.patience());
                }
            }
        }
    }

    fn saw(&mut self, seen: Seen, phase: Phase, daemon: &mut Daemon) -> Phase {
        match (seen, phase) {
            // Without instances it starts no VRRP process, and there is nothing to wait for.
            (Seen::Started, Phase::Reading { .. }) if self.known.farewells().is_empty() => {
                self.answer(Vec::new());
                Phase::Idle
            }
            (Seen::Started, _) => phase,
            (Seen::Read, _) => {
                if daemon.child.is_none() {
                    daemon.find_child(&self.run_dir, &self.ours);
                    self.expect_dumps(daemon);
                }
                self.known.read(&self.run_dir);
                self.last = None;
                match phase {
                    Phase::Reading { .. } if self.known.farewells().is_empty() => {
                        // Without instances there is no dump either.
                        self.known.forget();
                        self.answer(Vec::new());
                        Phase::Idle
                    }
                    Phase::Reading { .. } => self.dump(daemon, self.patience()),
                    Phase::Idle | Phase::Dumping { .. } => phase,
                }
            }
            (Seen::Dumped, Phase::Dumping { .. }) => match self.read_dump() {
                Ok(_) if self.noticed => self.dump(daemon, self.patience()),
                Ok(instances) => {
                    self.known.set(&instances);
                    self.answer(instances);
                    Phase::Idle
                }
                Err(error) => {
                    // It is asked again.
                    warn!(%error, "keepalived's dump cannot be understood");
                    phase
                }
            },
            (Seen::Dumped, Phase::Idle | Phase::Reading { .. }) => {
                // Nothing is known about the time that it was written at.
                drop(self.files.take_dump());
                phase
            }
        }
    }

    fn called(&mut self, call: Call, phase: Phase, daemon: &Daemon) -> Phase {
        match (call.request, &self.last) {
            (Request::Use, _) => self.uses.push(call.reply),
            (Request::Alive, _) => self.reply(call.reply, Vec::new()),
            (Request::Report, Some((at, instances))) if at.elapsed() < FRESH => {
                let instances = instances.clone();
                self.reply(call.reply, instances);
            }
            (Request::Report, _) => {
                self.waiting.push(call.reply);
                if matches!(phase, Phase::Idle) {
                    return self.report(daemon);
                }
            }
        }
        phase
    }

    fn report(&mut self, daemon: &Daemon) -> Phase {
        if self.known.farewells().is_empty() {
            self.answer(Vec::new());
            return Phase::Idle;
        }
        self.dump(daemon, self.patience())
    }

    /// Looks for signs of life; returns the failure if there are none.
    fn look(
        &mut self,
        phase: &mut Phase,
        pulse: &mut Pulse,
        daemon: &Daemon,
    ) -> Option<&'static str> {
        let now = Instant::now();
        match *phase {
            Phase::Idle => {
                let child = daemon.child.as_ref().filter(|_| !self.known.farewells().is_empty())?;
                if pulse.look(child.id()) != Life::Shown {
                    *phase = self.dump(daemon, self.patience() / 2);
                }
            }
            Phase::Reading { until, .. } if now >= until => {
                return Some("keepalived does not read its configuration");
            }
            Phase::Reading { told, .. } => match &daemon.child {
                // It cannot be asked meanwhile, but it is no less watched.
                Some(child) if pulse.look(child.id()) == Life::Lost => {
                    return Some("keepalived does not read its configuration");
                }
                // It may not have taken signals yet when it was told.
                None if told => tell_to_read(daemon),
                Some(_) | None => {}
            },
            Phase::Dumping { until, .. } if now >= until => {
                return Some("keepalived does not answer");
            }
            Phase::Dumping { until, again } => {
                if now >= again {
                    *phase = self.dump_until(daemon, until);
                }
            }
        }
        None
    }

    /// Lets keepalived read its configuration again, for all that wait for that.
    fn reload(&mut self, daemon: &Daemon) -> Phase {
        self.waiting.append(&mut self.uses);
        tell_to_read(daemon);
        if daemon.child.is_none() {
            self.known.read(&self.run_dir);
            if self.known.farewells().is_empty() {
                self.answer(Vec::new());
                return Phase::Idle;
            }
        }
        let longest = if self.known.holds_something() {
            patience_with_reading(self.known.longest_interval())
        } else {
            READ_DEADLINE
        };
        Phase::Reading { until: Instant::now() + longest, told: true }
    }

    /// Asks the VRRP process itself: it is the one whose silence counts.
    fn dump(&mut self, daemon: &Daemon, patience: Duration) -> Phase {
        self.noticed = false;
        drop(self.files.take_dump());
        self.dump_until(daemon, Instant::now() + patience)
    }

    fn dump_until(&self, daemon: &Daemon, until: Instant) -> Phase {
        if let Some(Err(error)) = daemon.child.as_ref().map(|it| it.signal(self.ask)) {
            warn!(%error, "keepalived cannot be asked");
        }
        // A question that comes while it reads its configuration is lost.
        Phase::Dumping { until, again: Instant::now() + self.patience() / 4 }
    }

    fn read_dump(&self) -> io::Result<Vec<InstanceReport>> {
        Ok(dump::parse(&self.files.take_dump()?)?)
    }

    fn expect_dumps(&mut self, daemon: &Daemon) {
        let watched = daemon.child.as_ref().map(|child| self.files.watch_dumps_of(child.id()));
        if let Some(Err(error)) = watched {
            warn!(%error, "keepalived's dumps cannot be watched for");
        }
    }

    fn patience(&self) -> Duration {
        patience(self.known.longest_interval(), self.known.holds_something())
    }

    /// Ends keepalived in order.
    async fn stop(&mut self, daemon: &Daemon) {
        info!(pid = daemon.parent.id(), "keepalived is told to stop");
        if daemon.stop(STOP_DEADLINE).await {
            // It has said goodbye itself.
            drop(self.notices.told());
            self.known.forget();
        } else {
            warn!("keepalived does not stop");
        }
        self.give_up(daemon).await;
    }

    /// Kills what is left of keepalived, and gives up what it held.
    async fn give_up(&mut self, daemon: &Daemon) {
        daemon.kill().await;
        self.known.note_last(self.notices.told());
        self.known.give_up(&self.run_dir);
        self.last = None;
        daemon.ended(STOP_DEADLINE).await;
        // Its parent process may have started a VRRP process that was not known yet.
        if daemon::kill_all(&self.ours).await {
            self.known.give_up(&self.run_dir);
        }
    }

    fn answer(&mut self, instances: Vec<InstanceReport>) {
        for reply in std::mem::take(&mut self.waiting) {
            self.reply(reply, instances.clone());
        }
        self.last = Some((Instant::now(), instances));
    }

    fn answer_down(&mut self, why: &str) {
        for reply in std::mem::take(&mut self.waiting) {
            self.reply_down(reply, why);
        }
    }

    fn reply(&self, reply: Reply, instances: Vec<InstanceReport>) {
        let (starts, counts) = (self.starts, self.known.counts);
        // The worker may have given up.
        drop(reply.send(Answer::Runs { starts, instances, counts }));
    }

    fn reply_down(&self, reply: Reply, why: &str) {
        let counts = self.known.counts;
        drop(reply.send(Answer::Down { error: why.to_owned(), counts }));
    }
}
