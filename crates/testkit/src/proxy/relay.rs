//! Passes requests to the API server and replies to the operator.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, USER_AGENT};
use http::request::Parts;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::gate::{Flow, Gated, pass};
use super::reply::{self, Reply};
use super::stop::Turn;
use super::{Action, Lists, Record, State, lock};
use crate::control_plane::install_crypto;
use crate::{ControlPlane, Error, Result};

/// What a proxy passes requests on to: everything needed to make a client of it once the proxy's own runtime
/// runs.
#[derive(Clone, Debug)]
pub struct Upstream {
    url: Uri,
    /// `None` for plain HTTP.
    ca: Option<Vec<u8>>,
}

impl Upstream {
    /// An API server.
    pub fn of(plane: &ControlPlane) -> Result<Self> {
        Ok(Self { url: parse(plane.url())?, ca: Some(plane.ca_der().to_vec()) })
    }

    /// Anything that speaks plain HTTP.
    pub fn http(addr: SocketAddr) -> Result<Self> {
        Ok(Self { url: parse(&format!("http://{addr}"))?, ca: None })
    }

    pub(super) fn url(&self) -> String {
        self.url.to_string()
    }

    /// A client without credentials, because the operator's own pass through it. kube's client is used
    /// because its TLS is already set up and proven; it neither retries nor buffers replies here.
    pub(super) fn client(self) -> Result<Client> {
        install_crypto();
        let mut config = Config::new(self.url);
        config.root_cert = self.ca.map(|ca| vec![ca]);
        config.default_retry = false;
        config.read_timeout = None;
        Client::try_from(config).map_err(Error::kube("making the proxy's client"))
    }
}

fn parse(url: &str) -> Result<Uri> {
    url.parse().map_err(|error: http::uri::InvalidUri| Error::Http {
        url: url.into(),
        reason: error.to_string(),
    })
}

/// Serves until `end` closes.
pub(super) async fn serve(
    listener: TcpListener,
    client: Client,
    state: Arc<State>,
    mut end: oneshot::Receiver<()>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // Cuts come first, so that no connection is accepted between a stop and its cut.
            biased;
            _closed = &mut end => return,
            () = state.cut.notified() => connections.abort_all(),
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                // Dropping the stream is the refusal.
                if *state.flow.borrow() == Flow::Stopped {
                    continue;
                }
                let (client, state) = (client.clone(), Arc::clone(&state));
                connections.spawn(async move {
                    let io = TokioIo::new(Gated::new(stream, state.flow.subscribe()));
                    let service = service_fn(move |request| {
                        relay(client.clone(), Arc::clone(&state), request)
                    });
                    // An error is a connection cut by either side, often by us on purpose.
                    drop(http1::Builder::new().serve_connection(io, service).await);
                });
            }
        }
    }
}

/// Handles one request; an error cuts its connection without a reply.
async fn relay(client: Client, state: Arc<State>, request: Request<Incoming>) -> io::Result<Reply> {
    let (mut parts, body) = request.into_parts();
    let record = record(&parts, state.start.elapsed());
    // First, so that a test that sees the entry and then thaws also thaws this request.
    let mut thaws = state.thaws.subscribe();
    let entry = Entry::new(&state, record.clone());
    // Requests are small; collecting them lets a cut fall only before or after one.
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();

    let action = lock(&state.rules).iter_mut().find_map(|rule| rule(&record));
    let action = action.unwrap_or(Action::Pass);
    let question = format!("{} {:?}", parts.uri, parts.headers.get(ACCEPT));
    match &action {
        Action::Answer(status) => {
            state.count(&action);
            entry.answered(*status);
            return Ok(reply::refusal(*status));
        }
        Action::Throttle(seconds) => {
            state.count(&action);
            entry.answered(StatusCode::TOO_MANY_REQUESTS);
            return Ok(reply::throttled(*seconds));
        }
        Action::Expire => {
            state.count(&action);
            entry.answered(StatusCode::OK);
            return Ok(reply::expired());
        }
        Action::ReplayList => {
            if let Some(stale) = lock(&state.lists).get(&question).and_then(Lists::stale) {
                state.count(&action);
                entry.answered(stale.status());
                return Ok(stale);
            }
        }
        Action::Delay(time) => tokio::time::sleep(*time).await,
        Action::Freeze => thaws.changed().await.map_err(io::Error::other)?,
        Action::Pass
        | Action::Deny(_)
        | Action::LoseReply
        | Action::HalveReply
        | Action::HoldReply
        | Action::HoldStream(_)
        | Action::DropEvents(_)
        | Action::RememberList => {}
    }
    pass(state.flow.subscribe()).await?;

    let count = Count::begin(&state, &record).await?;
    reply::strip(&mut parts.headers);
    entry.forwarded();
    let answer = client.send(Request::from_parts(parts, Body::from(body))).await;
    let mut answer = answer.map_err(io::Error::other)?;
    entry.answered(answer.status());
    reply::strip(answer.headers_mut());
    let given = match action {
        // A replay was counted where it replaced the request; here there was nothing to replay.
        Action::RememberList | Action::ReplayList => remember(&state, question, answer).await?,
        Action::LoseReply | Action::Deny(_) => {
            state.count(&action);
            // Read to its end, so that everything it announces has happened.
            answer.into_body().collect().await.map_err(io::Error::other)?;
            let Action::Deny(status) = action else {
                return Err(io::ErrorKind::ConnectionReset.into());
            };
            reply::refusal(status)
        }
        Action::HalveReply => {
            state.count(&action);
            reply::halved(answer)
        }
        Action::HoldStream(time) => {
            state.count(&action);
            reply::held(answer, time)
        }
        Action::DropEvents(ref text) => {
            state.count(&action);
            reply::without(answer, text.clone())
        }
        Action::Pass
        | Action::Answer(_)
        | Action::Throttle(_)
        | Action::Delay(_)
        | Action::Freeze
        | Action::HoldReply
        | Action::Expire => {
            state.count(&action);
            reply::whole(answer)
        }
    };
    drop(count);
    if action == Action::HoldReply {
        thaws.changed().await.map_err(io::Error::other)?;
    }
    pass(state.flow.subscribe()).await?;
    Ok(given)
}

/// The record of a request before anything is done with it.
fn record(parts: &Parts, at: Duration) -> Record {
    Record {
        method: parts.method.clone(),
        path: parts.uri.path().into(),
        query: parts.uri.query().unwrap_or_default().into(),
        user_agent: parts
            .headers
            .get(USER_AGENT)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default(),
        at,
        forwarded: false,
        status: None,
    }
}

/// Remembers the answer to a list, if it is one.
async fn remember(state: &State, question: String, answer: Response<Body>) -> io::Result<Reply> {
    let is_good = answer.status() == StatusCode::OK;
    let (headers, body, given) = reply::read(answer).await.map_err(io::Error::other)?;
    if is_good {
        lock(&state.lists).entry(question).or_default().remember(headers, body);
    }
    Ok(given)
}

/// The entry of one request in the log of requests.
struct Entry<'a> {
    state: &'a State,
    index: usize,
}

impl<'a> Entry<'a> {
    fn new(state: &'a State, record: Record) -> Self {
        let mut records = lock(&state.records);
        records.push(record);
        Self { state, index: records.len() - 1 }
    }

    fn forwarded(&self) {
        lock(&self.state.records)[self.index].forwarded = true;
    }

    fn answered(&self, status: StatusCode) {
        lock(&self.state.records)[self.index].status = Some(status);
    }
}

/// A counted write on its way; it counts as answered when dropped, for whatever reason, because an operator
/// that hung up must not prevent the stop.
struct Count<'a>(Option<&'a State>);

impl<'a> Count<'a> {
    async fn begin(state: &'a State, request: &Record) -> io::Result<Self> {
        let turn = lock(&state.stop).as_mut().map_or(Turn::Free, |stop| stop.turn(request));
        match turn {
            Turn::Free => Ok(Self(None)),
            Turn::Counted => Ok(Self(Some(state))),
            // The cut that follows the last answer ends this wait.
            Turn::Beyond => std::future::pending().await,
            Turn::Stop => {
                state.stop();
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.0
            && lock(&state.stop).as_mut().is_some_and(super::Stop::answered)
        {
            state.stop();
        }
    }
}
