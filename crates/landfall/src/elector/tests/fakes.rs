//! A lease server in memory, links to it that fail, and an arena that counts leaders all the time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;
use k8s_openapi::api::coordination::v1::LeaseSpec;
use landfall_controllers::leadership::Leadership;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::*;

/// How often the arena counts the leaders.
const TICK: Duration = Duration::from_millis(20);

/// How long a message takes when all is well.
pub(super) const FAST: Duration = Duration::from_millis(5);

/// Numbers below the one asked for, the same for the same seed.
pub(super) fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |sides| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % sides
    }
}

/// Imitates the API server: every write has a version and names the one it replaces.
#[derive(Default)]
pub(super) struct Server {
    pub(super) lease: Option<Lease>,
    pub(super) reads: usize,
    version: u64,
}

impl Server {
    fn store(&mut self, mut lease: Lease) -> Written {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.lease = Some(lease.clone());
        Written::Done(Box::new(lease))
    }

    /// An edit of a person with `kubectl edit`.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut LeaseSpec)) {
        let mut lease = self.lease.clone().unwrap();
        change(lease.spec.as_mut().unwrap());
        self.store(lease);
    }

    fn read(&mut self) -> Option<Lease> {
        self.reads += 1;
        self.lease.clone()
    }

    fn create(&mut self, lease: Lease) -> Written {
        if self.lease.is_some() { Written::Refused } else { self.store(lease) }
    }

    fn update(&mut self, lease: Lease) -> Written {
        let version = |lease: &Lease| lease.metadata.resource_version.clone();
        assert!(version(&lease).is_some(), "an update without a guard");
        match &self.lease {
            Some(old) if version(old) == version(&lease) => self.store(lease),
            _ => Written::Refused,
        }
    }
}

struct Faults {
    dice: Option<Box<dyn FnMut(usize) -> usize + Send>>,
    /// The delays of request and answer.
    delays: [Duration; 2],
    lose_answer: bool,
}

impl Faults {
    /// How long a message takes that would take `usual`; `None` if it gets lost.
    fn travel(&mut self, usual: Duration) -> Option<Duration> {
        let Some(dice) = &mut self.dice else { return Some(usual) };
        if dice(12) == 0 {
            return None;
        }
        // Mostly fast, sometimes beyond every deadline.
        let most = [50, 50, 400, 400, 3_000, 30_000][dice(6)];
        Some(Duration::from_millis(dice(most) as u64))
    }
}

/// One candidate's way to the server.
///
/// A message once sent travels on even if its sender has given up: that is what makes late writes.
#[derive(Clone)]
pub(super) struct Link {
    server: Arc<Mutex<Server>>,
    faults: Arc<Mutex<Faults>>,
    frozen: watch::Sender<bool>,
    wire: Arc<Mutex<JoinSet<()>>>,
}

impl Link {
    fn new(server: Arc<Mutex<Server>>) -> Self {
        let faults = Faults { dice: None, delays: [FAST; 2], lose_answer: false };
        Self {
            server,
            faults: Arc::new(Mutex::new(faults)),
            frozen: watch::Sender::new(false),
            wire: Arc::default(),
        }
    }

    pub(super) fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    pub(super) fn thaw(&self) {
        self.frozen.send_replace(false);
    }

    pub(super) fn misbehave(&self, seed: u64) {
        self.faults.lock().unwrap().dice = Some(Box::new(dice(seed)));
    }

    pub(super) fn behave(&self) {
        self.faults.lock().unwrap().dice = None;
    }

    pub(super) fn delay(&self, there: Duration, back: Duration) {
        self.faults.lock().unwrap().delays = [there, back];
    }

    pub(super) fn lose_next_answer(&self) {
        self.faults.lock().unwrap().lose_answer = true;
    }

    async fn call<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Server) -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let (there, back, lose) = {
            let mut faults = self.faults.lock().unwrap();
            let [there, back] = faults.delays;
            (faults.travel(there), faults.travel(back), std::mem::take(&mut faults.lose_answer))
        };
        let (answer, answered) = oneshot::channel();
        let (server, mut frozen) = (Arc::clone(&self.server), self.frozen.subscribe());
        self.wire.lock().unwrap().spawn(async move {
            let Some(there) = there else { return answer_never(answer).await };
            sleep(there).await;
            frozen.wait_for(|frozen| !frozen).await.ok();
            let result = act(&mut server.lock().unwrap());
            let Some(back) = back.filter(|_| !lose) else { return answer_never(answer).await };
            sleep(back).await;
            frozen.wait_for(|frozen| !frozen).await.ok();
            answer.send(result).ok();
        });
        answered.await.map_err(|_| CallError::Late)
    }
}

/// A lost message is silence, not an error.
async fn answer_never<T>(_answer: oneshot::Sender<T>) {
    std::future::pending::<()>().await;
}

impl Leases for Link {
    async fn read(&self) -> Result<Option<Lease>, CallError> {
        self.call(Server::read).await
    }

    async fn create(&self, lease: &Lease) -> Result<Written, CallError> {
        let lease = lease.clone();
        self.call(|server| server.create(lease)).await
    }

    async fn update(&self, lease: &Lease) -> Result<Written, CallError> {
        let lease = lease.clone();
        self.call(|server| server.update(lease)).await
    }
}

/// `SIGSTOP` and `SIGCONT` for a future.
#[derive(Default)]
struct Brake {
    on: AtomicBool,
    waker: AtomicWaker,
}

impl Brake {
    async fn run(self: Arc<Self>, work: impl Future<Output = ()>) {
        let mut work = Box::pin(work);
        std::future::poll_fn(|context| {
            self.waker.register(context.waker());
            if self.on.load(Ordering::SeqCst) {
                return Poll::Pending;
            }
            Pin::new(&mut work).poll(context)
        })
        .await;
    }
}

struct Contender {
    link: Link,
    brake: Arc<Brake>,
    stop: CancellationToken,
    leadership: Leadership,
}

/// Several electors on one server, and a record of which of them led.
pub(super) struct Arena {
    pub(super) server: Arc<Mutex<Server>>,
    contenders: BTreeMap<&'static str, Contender>,
    terms: RefCell<Vec<&'static str>>,
    leading: RefCell<Option<&'static str>>,
    _tasks: JoinSet<()>,
}

/// Each reads a clock of its own, days apart: nothing may depend on it.
fn wall(name: &str) -> fn() -> Timestamp {
    fn paused(days: i64) -> Timestamp {
        thread_local! {
            static START: Instant = Instant::now();
        }
        let passed = START.with(Instant::elapsed).as_secs();
        Timestamp::from_second(days * 86_400 + i64::try_from(passed).unwrap()).unwrap()
    }
    match name {
        "a" => || paused(30_000),
        "b" => || paused(10_000),
        _ => || paused(20_000),
    }
}

impl Arena {
    pub(super) fn new<const N: usize>(names: [&'static str; N]) -> Self {
        Self::with_timing(names, Timing::default())
    }

    pub(super) fn with_timing<const N: usize>(names: [&'static str; N], timing: Timing) -> Self {
        let server = Arc::<Mutex<Server>>::default();
        let mut tasks = JoinSet::new();
        let mut contenders = BTreeMap::new();
        for name in names {
            let link = Link::new(Arc::clone(&server));
            let (setter, leadership) = leadership();
            let candidate = Candidate::new(name.into(), timing);
            let elector = Elector::new(link.clone(), candidate, setter, wall(name));
            let (stop, brake) = (CancellationToken::new(), Arc::new(Brake::default()));
            tasks.spawn(Arc::clone(&brake).run(elector.run(stop.clone())));
            contenders.insert(name, Contender { link, brake, stop, leadership });
        }
        Self {
            server,
            contenders,
            terms: RefCell::default(),
            leading: RefCell::default(),
            _tasks: tasks,
        }
    }

    pub(super) fn link(&self, name: &str) -> &Link {
        &self.contenders[name].link
    }

    pub(super) fn stop(&self, name: &str) {
        self.contenders[name].stop.cancel();
    }

    pub(super) fn pause(&self, name: &str) {
        self.contenders[name].brake.on.store(true, Ordering::SeqCst);
    }

    pub(super) fn resume(&self, name: &str) {
        let brake = &self.contenders[name].brake;
        brake.on.store(false, Ordering::SeqCst);
        brake.waker.wake();
    }

    pub(super) fn spec(&self) -> LeaseSpec {
        self.server.lock().unwrap().lease.clone().unwrap().spec.unwrap()
    }

    /// The candidates that lead now.
    pub(super) fn leaders(&self) -> Vec<&'static str> {
        let leads = self.contenders.iter().filter(|(_, it)| it.leadership.is_leader());
        leads.map(|(name, _)| *name).collect()
    }

    /// The leaders so far, in order, each unbroken term once.
    pub(super) fn terms(&self) -> Vec<&'static str> {
        self.terms.borrow().clone()
    }

    /// Lets time pass and panics if ever two lead.
    pub(super) async fn watch_for(&self, time: Duration) {
        self.watch(time, 1).await;
    }

    /// Lets time pass in which two may lead.
    pub(super) async fn watch_overlap_for(&self, time: Duration) {
        self.watch(time, 2).await;
    }

    async fn watch(&self, time: Duration, most: usize) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep_until(end.min(Instant::now() + TICK)).await;
            let leaders = self.leaders();
            assert!(leaders.len() <= most, "too many leaders: {leaders:?}");
            let leader = leaders.first().copied();
            if self.leading.replace(leader) != leader {
                self.terms.borrow_mut().extend(leader);
            }
        }
    }
}
