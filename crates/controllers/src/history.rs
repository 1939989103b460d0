//! Detects that the cluster's versions went back, as after a restore of etcd.
//!
//! Every change gives its object a higher `resourceVersion` than any before. When etcd is restored from
//! a snapshot under a running operator, versions go back: changes that watches showed since the
//! snapshot never happened, watches wait for versions yet to come, and guarded writes conflict for
//! ever. Only a fresh start helps.
//!
//! The proof must be certain: the answer to a write of our own, or to a read of the newest state, that
//! is older than what was known of the same object or kind before the call was sent. No cache answers
//! either, whichever API server is asked.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, stream};
use kube::{Api, Client, api::ListParams};
use landfall_api::IP;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::readiness::Readiness;

/// How often the version of the ledger is read if no lease shows that of the cluster.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(20);
/// The delay after a failed attempt.
const PROBE_AGAIN: Duration = Duration::from_secs(5);
/// The deadline of a call.
const PROBE_DEADLINE: Duration = Duration::from_secs(10);

/// Detects when versions go back. Clones share the result.
#[derive(Clone, Debug, Default)]
pub struct History {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// How often versions went back.
    rewinds: watch::Sender<u64>,
    /// The newest version of any claim.
    claims: Mutex<Known>,
}

/// A version known before a call was sent, and the history it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    version: u64,
    rewinds: u64,
}

impl History {
    /// How often versions went back.
    pub fn rewinds(&self) -> u64 {
        *self.shared.rewinds.borrow()
    }

    /// Yields each time that versions go back from now on.
    pub fn went_back(&self) -> impl Stream<Item = ()> + use<> {
        stream::unfold(self.shared.rewinds.subscribe(), async |mut rewinds| {
            rewinds.changed().await.ok().map(|()| ((), rewinds))
        })
    }

    /// Remembers what is known now, before a call is sent.
    pub fn known(&self, version: u64) -> Known {
        Known { version, rewinds: self.rewinds() }
    }

    /// Compares the version in an answer with the one known before; returns whether it belongs to the
    /// present history.
    ///
    /// A version known from an earlier history proves nothing.
    pub fn answered(&self, what: &str, known: Known, found: u64) -> bool {
        let went_back = found < known.version
            && self.shared.rewinds.send_if_modified(|rewinds| {
                let same_past = *rewinds == known.rewinds;
                *rewinds = rewinds.saturating_add(u64::from(same_past));
                same_past
            });
        if went_back {
            error!(
                what,
                known = known.version,
                found,
                "the cluster's history went back, as when etcd is restored from a snapshot; starting \
                 afresh"
            );
        }
        known.rewinds == self.rewinds()
    }

    /// Takes in the version of a claim from a watch, in the history that began with this many rewinds.
    pub fn saw_claim(&self, past: u64, version: u64) {
        if past == self.rewinds() {
            let mut claims = self.shared.claims.lock().unwrap_or_else(PoisonError::into_inner);
            let known = claims.version_in(past).max(version);
            *claims = Known { version: known, rewinds: past };
        }
    }

    /// The newest known version of any claim.
    pub fn newest_claim(&self) -> Known {
        let claims = self.shared.claims.lock().unwrap_or_else(PoisonError::into_inner);
        self.known(claims.version_in(self.rewinds()))
    }
}

impl Known {
    /// The version, or 0 if it belongs to another history.
    fn version_in(self, past: u64) -> u64 {
        if self.rewinds == past { self.version } else { 0 }
    }
}

/// The newest version of one thing that is read repeatedly.
#[derive(Debug)]
pub struct Line {
    history: History,
    what: &'static str,
    newest: Mutex<Known>,
}

impl Line {
    pub fn new(history: History, what: &'static str) -> Self {
        Self { history, what, newest: Mutex::default() }
    }

    /// The version known before a call is sent.
    pub fn before(&self) -> Known {
        let newest = *self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        self.history.known(newest.version_in(self.history.rewinds()))
    }

    /// Takes in the `resourceVersion` of the answer to a call.
    pub fn after(&self, known: Known, version: Option<&str>) {
        let Some(found) = version.and_then(|text| text.parse().ok()) else { return };
        self.history.answered(self.what, known, found);
        let now = self.before();
        let newest = self.history.known(now.version.max(found));
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = newest;
    }
}

/// Reads the version of the ledger whenever a watch has failed, because a restore makes watches fail,
/// and once per `every` if that is given, until `stop`.
///
/// A list of one object reads the newest state like any other, and the version of a list is that of the
/// store, which no claim can exceed. A process that renews or reads a lease gets a version with it
/// every second or two, and needs no interval.
pub async fn probe(
    client: Client,
    history: History,
    readiness: Readiness,
    every: Option<Duration>,
    stop: CancellationToken,
) {
    let claims: Api<IP> = Api::all(client);
    let one = ListParams::default().limit(1);
    let mut next = every;
    loop {
        let time = async {
            match next {
                Some(time) => sleep(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = readiness.watch_failed() => {}
            () = time => {}
        }
        let known = history.newest_claim();
        next = match timeout(PROBE_DEADLINE, claims.list_metadata(&one)).await {
            Ok(Ok(list)) => {
                let version = list.metadata.resource_version.and_then(|text| text.parse().ok());
                if let Some(version) = version
                    && history.answered("ips", known, version)
                {
                    history.saw_claim(known.rewinds, version);
                }
                every
            }
            // Without the kind there is no version to read.
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => every,
            Ok(Err(error)) => {
                debug!(%error, "the version of the ledger could not be read");
                Some(PROBE_AGAIN)
            }
            Err(_) => Some(PROBE_AGAIN),
        };
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt as _, StreamExt as _};

    use super::*;

    #[test]
    fn only_an_answer_older_than_the_state_known_before_proves_a_restore() {
        let history = History::default();
        let mut told = Box::pin(history.went_back());
        for (found, known) in [(7, 0), (7, 7), (9, 7)] {
            assert!(history.answered("a claim", history.known(known), found));
        }
        assert_eq!((history.rewinds(), told.next().now_or_never()), (0, None));
        assert!(!history.answered("a claim", history.known(9), 8));
        assert_eq!((history.rewinds(), told.next().now_or_never()), (1, Some(Some(()))));
    }

    #[test]
    fn one_restore_is_told_once_even_if_several_answers_prove_it() {
        let history = History::default();
        let (lease, probe) =
            (Line::new(history.clone(), "lease"), Line::new(history.clone(), "list"));
        for line in [&lease, &probe] {
            line.after(line.before(), Some("100"));
        }
        let sent_before = history.known(90);
        lease.after(lease.before(), Some("50"));
        probe.after(probe.before(), Some("51"));
        history.answered("a claim", sent_before, 52);
        assert_eq!(history.rewinds(), 1);
        lease.after(lease.before(), Some("53"));
        probe.after(probe.before(), Some("40"));
        assert_eq!(history.rewinds(), 2, "another restore");
    }

    #[test]
    fn versions_that_watches_told_of_an_earlier_past_are_forgotten() {
        let history = History::default();
        history.saw_claim(0, 100);
        history.saw_claim(0, 90);
        let known = history.newest_claim();
        assert_eq!(known, history.known(100));
        assert!(!history.answered("ips", known, 60));
        history.saw_claim(0, 101);
        assert_eq!(history.newest_claim(), history.known(0));
        history.saw_claim(1, 61);
        assert_eq!(history.newest_claim(), history.known(61));
    }

    #[test]
    fn an_answer_that_was_overtaken_by_another_proves_nothing() {
        let history = History::default();
        let line = Line::new(history.clone(), "lease");
        let slow = line.before();
        line.after(line.before(), Some("100"));
        line.after(slow, Some("90"));
        line.after(line.before(), None);
        assert_eq!(history.rewinds(), 0);
        line.after(line.before(), Some("99"));
        assert_eq!(history.rewinds(), 1, "the highest is remembered");
    }
}
