//! A proxy between operator and API server that can lose, refuse, delay and freeze.
//!
//! It speaks plain HTTP to the operator and TLS to the API server, passes credentials through, and streams,
//! so that a watch sees each event when it happens. It runs on its own thread, so a test that blocks does not
//! stop the traffic it is testing.

pub mod faults;
mod gate;
mod relay;
mod reply;
mod stop;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use tokio::sync::{Notify, oneshot, watch};

use crate::{ControlPlane, Error, Result};
use gate::Flow;
pub use relay::Upstream;
use reply::Lists;
use stop::Stop;

/// A request as the proxy saw it, and its outcome.
#[derive(Clone, Debug)]
pub struct Record {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub user_agent: String,
    /// Time since the proxy started.
    pub at: Duration,
    /// Whether it was forwarded to the API server.
    pub forwarded: bool,
    /// The status answered by the API server or by a rule; `None` until there is one. It is recorded even if
    /// the reply was then kept from the operator.
    pub status: Option<StatusCode>,
}

impl Record {
    /// Whether it asks for a change.
    pub fn is_write(&self) -> bool {
        [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(&self.method)
    }

    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1")
    }

    /// Whether it reads all objects of a kind, and not one of them.
    pub fn is_list(&self) -> bool {
        let last = self.path.rsplit('/').next();
        self.method == Method::GET && !self.is_watch() && self.resource() == last
    }

    /// Whether it is about a resource, such as `services`, or one of its subresources.
    pub fn is_for(&self, resource: &str) -> bool {
        self.resource() == Some(resource)
    }

    /// The resource in plural, `None` outside the resource paths (such as `/version`).
    pub fn resource(&self) -> Option<&str> {
        let mut parts = self.path.trim_matches('/').split('/');
        match parts.next()? {
            "api" => parts.next()?,
            "apis" => parts.nth(1)?,
            _ => return None,
        };
        match parts.next()? {
            // A namespace itself, or an object in it; `status` and `finalize` are subresources.
            "namespaces" => {
                let inside = parts.nth(1).filter(|part| !["status", "finalize"].contains(part));
                Some(inside.unwrap_or("namespaces"))
            }
            resource => Some(resource),
        }
    }

    /// A write that counts as work: neither a renewed lease nor an event.
    pub fn is_work(&self) -> bool {
        self.is_write() && !self.is_for("leases") && !self.is_for("events")
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, path, query, at, forwarded, status, .. } = self;
        let seconds = at.as_secs_f64();
        let by = if *forwarded { "API server" } else { "proxy" };
        let status = status.map_or_else(|| "nothing".to_owned(), |status| status.to_string());
        write!(f, "{seconds:8.3} {method} {path}?{query}: {status} by {by}")
    }
}

/// What to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Pass,
    /// Answer with this status, as an API server in trouble would; the request is not forwarded.
    Answer(StatusCode),
    /// Answer that there are too many requests and when to retry, in seconds: in a header and as plain text,
    /// as the API server's flow control does. The request is not forwarded.
    Throttle(u32),
    /// Let it be done, then answer with this status anyway.
    Deny(StatusCode),
    /// Let it be done, then cut the connection instead of replying.
    LoseReply,
    /// Let it be done, then cut the connection in the middle of the reply.
    HalveReply,
    /// Pass it on after a while.
    Delay(Duration),
    /// Keep it back until [`Proxy::thaw`]; then pass it on.
    Freeze,
    /// Let it be done and keep the reply until [`Proxy::thaw`].
    HoldReply,
    /// Pass on each piece of the reply, such as an event of a watch, this much later.
    HoldStream(Duration),
    /// Silently leave out the events of a watch that contain this text.
    DropEvents(String),
    /// Tell a watch at once, by an event, that its version is too old.
    Expire,
    /// Pass it, and remember the answer for [`Action::ReplayList`].
    RememberList,
    /// Answer with the oldest remembered answer to the same question; if there is none, pass it on and
    /// remember the answer.
    ReplayList,
}

impl Action {
    /// Whether the operator notices anything.
    fn harms(&self) -> bool {
        !matches!(self, Self::Pass | Self::RememberList)
    }
}

/// The name under which [`Proxy::harm`] counts it.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str("passed"),
            Self::Answer(status) => write!(f, "answered {}", status.as_u16()),
            Self::Throttle(_) => f.write_str("throttled"),
            Self::Deny(status) => write!(f, "done, then answered {}", status.as_u16()),
            Self::LoseReply => f.write_str("reply lost"),
            Self::HalveReply => f.write_str("reply cut"),
            Self::Delay(_) => f.write_str("delayed"),
            Self::Freeze => f.write_str("frozen"),
            Self::HoldReply => f.write_str("reply held"),
            Self::HoldStream(_) => f.write_str("watch held back"),
            Self::DropEvents(_) => f.write_str("events dropped"),
            Self::Expire => f.write_str("watch expired"),
            Self::RememberList => f.write_str("list remembered"),
            Self::ReplayList => f.write_str("stale list"),
        }
    }
}

type Rule = Box<dyn FnMut(&Record) -> Option<Action> + Send>;
type Filter = Box<dyn Fn(&Record) -> bool + Send>;

struct State {
    start: Instant,
    records: Mutex<Vec<Record>>,
    rules: Mutex<Vec<Rule>>,
    stop: Mutex<Option<Stop>>,
    harm: Mutex<BTreeMap<String, u64>>,
    /// Answers to lists, by path, query and accepted form.
    lists: Mutex<BTreeMap<String, Lists>>,
    flow: watch::Sender<Flow>,
    /// Counts thaws, so that a request held by a rule knows when to go on.
    thaws: watch::Sender<u64>,
    cut: Notify,
}

impl State {
    fn count(&self, action: &Action) {
        if action.harms() {
            *lock(&self.harm).entry(action.to_string()).or_default() += 1;
        }
    }

    /// Ends all traffic. Both steps are needed: the flow refuses new traffic, the cut closes connections.
    fn stop(&self) {
        self.flow.send_replace(Flow::Stopped);
        self.cut.notify_one();
    }
}

/// A panic while a test held one of these locks leaves the lists valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running proxy; dropping it cuts every connection.
pub struct Proxy {
    addr: SocketAddr,
    state: Arc<State>,
    /// Dropping it ends the thread.
    alive: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of a control plane; it survives restarts of the API server.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .map_err(Error::io("binding the proxy's port"))?;
        Self::start_on(listener, Upstream::of(plane)?).await
    }

    /// Starts a proxy that is reached through `listener`, which may be in another network namespace.
    pub async fn start_on(listener: TcpListener, upstream: Upstream) -> Result<Self> {
        let bound = || Error::io("taking over the proxy's port");
        listener.set_nonblocking(true).map_err(bound())?;
        let addr = listener.local_addr().map_err(bound())?;
        let state = Arc::new(State {
            start: Instant::now(),
            records: Mutex::default(),
            rules: Mutex::default(),
            stop: Mutex::default(),
            harm: Mutex::default(),
            lists: Mutex::default(),
            flow: watch::Sender::new(Flow::Open),
            thaws: watch::Sender::new(0),
            cut: Notify::new(),
        });
        let (alive, end) = oneshot::channel();
        let (report, started) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("making the proxy's runtime"))?;
        let worker = Arc::clone(&state);
        let url = upstream.url();
        let thread = thread::spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).map_err(bound());
                let ready = listener.and_then(|listener| Ok((listener, upstream.client()?)));
                match ready {
                    Ok((listener, client)) => {
                        if report.send(Ok(())).is_ok() {
                            relay::serve(listener, client, worker, end).await;
                        }
                    }
                    Err(error) => drop(report.send(Err(error))),
                }
            });
        });
        started.await.map_err(|_| Error::Http { url, reason: "the proxy died".into() })??;
        Ok(Self { addr, state, alive: Some(alive), thread: Some(thread) })
    }

    /// The URL that goes into a kubeconfig instead of the API server's.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<Record> {
        lock(&self.state.records).clone()
    }

    /// Every write so far that is neither lease nor event.
    pub fn work(&self) -> Vec<Record> {
        self.requests().into_iter().filter(Record::is_work).collect()
    }

    /// The time since the last write that is neither lease nor event, or since the start of the proxy if
    /// there was none.
    pub fn idle(&self) -> Duration {
        let last =
            lock(&self.state.records).iter().rfind(|record| record.is_work()).map(|it| it.at);
        self.state.start.elapsed().saturating_sub(last.unwrap_or_default())
    }

    /// How often each kind of harm was done to requests.
    pub fn harm(&self) -> BTreeMap<String, u64> {
        lock(&self.state.harm).clone()
    }

    /// The number of requests so far: a mark for [`Proxy::requests_since`].
    pub fn mark(&self) -> usize {
        lock(&self.state.records).len()
    }

    /// The requests that came after a mark.
    pub fn requests_since(&self, mark: usize) -> Vec<Record> {
        lock(&self.state.records).iter().skip(mark).cloned().collect()
    }

    /// Adds a rule; of all rules, in the order added, the first that returns an action decides.
    pub fn add_rule(&self, rule: impl FnMut(&Record) -> Option<Action> + Send + 'static) {
        lock(&self.state.rules).push(Box::new(rule));
    }

    /// Adds a rule that acts on the first matching request and never again.
    pub fn once(&self, filter: impl Fn(&Record) -> bool + Send + 'static, action: Action) {
        let mut action = Some(action);
        self.add_rule(move |request| if filter(request) { action.take() } else { None });
    }

    /// Adds a rule that harms requests as planned.
    pub fn suffer(&self, mut plan: faults::Plan) {
        self.add_rule(move |request| plan.action(request));
    }

    /// Passes everything from now on; requests already held stay held until [`Proxy::thaw`].
    pub fn clear_rules(&self) {
        lock(&self.state.rules).clear();
    }

    /// Ends all traffic once the API server has answered the `count`-th matching write from now.
    ///
    /// That answer does not reach the operator: connections are cut and later ones refused, as if the
    /// operator had died between the write and its answer. No matching write beyond the `count`-th reaches
    /// the API server even when many are in flight at once, so the state left behind is exactly that of
    /// `count` writes. With 0, traffic ends instead of the first write.
    pub fn stop_after(&self, count: usize, filter: impl Fn(&Record) -> bool + Send + 'static) {
        *lock(&self.state.stop) = Some(Stop::after(count, Box::new(filter)));
    }

    /// Whether [`Proxy::stop_after`] has struck, or [`Proxy::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        *self.state.flow.borrow() == Flow::Stopped
    }

    /// Returns once all traffic has ended.
    pub async fn stopped(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        drop(self.state.flow.subscribe().wait_for(|flow| *flow == Flow::Stopped).await);
    }

    /// Cuts every connection and refuses new ones, now.
    pub fn stop(&self) {
        self.state.stop();
    }

    /// Cuts every connection; new ones are accepted.
    pub fn cut_connections(&self) {
        self.state.cut.notify_one();
    }

    /// Lets nothing through in either direction while connections stay open, as a network that
    /// drops every packet does. A request that reached the API server before is still done.
    pub fn freeze_all(&self) {
        self.state.flow.send_replace(Flow::Frozen);
    }

    /// Undoes [`Proxy::freeze_all`], and lets go of everything that rules froze or hold.
    pub fn thaw(&self) {
        self.state.flow.send_if_modified(|flow| {
            let frozen = *flow == Flow::Frozen;
            if frozen {
                *flow = Flow::Open;
            }
            frozen
        });
        self.state.thaws.send_modify(|thaws| *thaws += 1);
    }

    /// Accepts traffic again after a stop, for the next operator on the same kubeconfig.
    pub fn resume(&self) {
        lock(&self.state.stop).take();
        self.state.flow.send_replace(Flow::Open);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been printed by the thread itself.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn record(path: &str) -> Record {
        Record {
            method: Method::POST,
            path: path.into(),
            query: String::new(),
            user_agent: String::new(),
            at: Duration::ZERO,
            forwarded: false,
            status: None,
        }
    }

    #[test]
    fn resource_is_found_in_every_kind_of_path() {
        for (path, resource) in [
            ("/api/v1/services", Some("services")),
            ("/api/v1/namespaces/a/services/b/status", Some("services")),
            ("/api/v1/namespaces/a/events", Some("events")),
            ("/api/v1/namespaces/a", Some("namespaces")),
            ("/api/v1/namespaces/a/finalize", Some("namespaces")),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", Some("leases")),
            ("/apis/landfall.dev/v1/ips/a", Some("ips")),
            ("/apis/landfall.dev/v1", None),
            ("/version", None),
        ] {
            assert_eq!(record(path).resource(), resource, "{path}");
        }
    }

    #[test]
    fn a_list_reads_all_objects_of_a_kind() {
        for (path, query, is_list) in [
            ("/api/v1/services", "limit=500", true),
            ("/api/v1/namespaces/a/services", "", true),
            ("/api/v1/namespaces", "", true),
            ("/api/v1/services", "watch=true", false),
            ("/api/v1/namespaces/a/services/b", "", false),
            ("/api/v1/namespaces/a", "", false),
            ("/version", "", false),
        ] {
            let read = Record { method: Method::GET, query: query.into(), ..record(path) };
            assert_eq!(read.is_list(), is_list, "{path}?{query}");
            assert!(!record(path).is_list(), "{path}: a write");
        }
    }

    #[test]
    fn leases_and_events_are_no_work() {
        for (path, is_work) in [
            ("/api/v1/namespaces/a/services", true),
            ("/apis/events.k8s.io/v1/namespaces/a/events", false),
            ("/apis/coordination.k8s.io/v1/namespaces/a/leases/b", false),
        ] {
            assert_eq!(record(path).is_work(), is_work, "{path}");
        }
    }
}
