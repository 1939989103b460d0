//! Tracks whether every watch has listed once: the answer of `/readyz`, and the gate before any plan.
//!
//! Leadership does not matter here. A standby lists like the leader, and a rolling update waits for it
//! to be ready before it ends the old leader.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{Notify, watch};

use crate::blind::Checks;

/// Pending until [`Readiness::seal`], so that nothing is ready before all watches are registered.
const REGISTRATION: &str = "registration";

/// The number of entries that nothing waits for.
const NEVER_MISSING: u64 = u64::MAX;

#[derive(Debug, Default)]
struct State {
    /// Watches that have not listed; the number distinguishes two of one name.
    missing: BTreeSet<(&'static str, u64)>,
    registered: u64,
    sealed: bool,
}

impl State {
    fn pending(&self) -> Vec<&'static str> {
        let registration = (!self.sealed).then_some(REGISTRATION);
        let mut names: Vec<_> =
            registration.into_iter().chain(self.missing.iter().map(|(name, _)| *name)).collect();
        names.dedup();
        names
    }

    fn is_ready(&self) -> bool {
        self.sealed && self.missing.is_empty()
    }
}

/// The registry of all watches of this process; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    state: Arc<watch::Sender<State>>,
    failures: Arc<Notify>,
    checks: Checks,
}

impl Readiness {
    /// A registry whose watches are compared with live lists.
    pub fn checking(checks: Checks) -> Self {
        Self { checks, ..Self::default() }
    }

    /// Registers a watch, which delays readiness until [`Listed::done`].
    #[must_use = "without `done` the process never becomes ready"]
    pub fn register(&self, name: &'static str) -> Listed {
        let mut number = 0;
        self.state.send_modify(|state| {
            number = state.registered;
            state.registered = number.saturating_add(1);
            state.missing.insert((name, number));
        });
        Listed { readiness: self.clone(), entry: (name, number) }
    }

    /// A watch that the process is ready without: it begins only when its objects are asked for.
    #[must_use = "it has the settings of the watch"]
    pub fn on_demand(&self, name: &'static str) -> Listed {
        Listed { readiness: self.clone(), entry: (name, NEVER_MISSING) }
    }

    /// Marks registration as complete; until then an empty registry would look ready.
    pub fn seal(&self) {
        self.state.send_modify(|state| state.sealed = true);
    }

    /// Starts again: nothing is ready until everything has been registered and listed once more.
    /// Earlier registrations no longer count.
    pub fn restart(&self) {
        self.state.send_modify(|state| {
            state.missing.clear();
            state.sealed = false;
        });
    }

    /// Whether registration is complete and every registered watch has listed once.
    pub fn is_ready(&self) -> bool {
        self.state.borrow().is_ready()
    }

    /// The missing watches, in order and each name once; empty exactly when ready.
    pub fn pending(&self) -> Vec<&'static str> {
        self.state.borrow().pending()
    }

    /// Waits until a watch has failed since the last call.
    pub async fn watch_failed(&self) {
        self.failures.notified().await;
    }

    /// Waits until [`is_ready`](Self::is_ready) holds.
    pub async fn wait_ready(&self) {
        // Fails only when the sender is gone, and `self` holds it.
        self.state.subscribe().wait_for(State::is_ready).await.ok();
    }
}

/// One watch's entry in [`Readiness`].
///
/// Dropping it leaves the watch pending: a watch that ended before it listed is not ready.
#[derive(Clone, Debug)]
pub struct Listed {
    readiness: Readiness,
    entry: (&'static str, u64),
}

impl Listed {
    /// Resolves once this watch has listed, for another that must list after it.
    pub fn subscribe(&self) -> impl Future<Output = ()> + use<> {
        let (mut state, entry) = (self.readiness.state.subscribe(), self.entry);
        async move {
            state.wait_for(|state| !state.missing.contains(&entry)).await.ok();
        }
    }

    /// How the watch is compared with live lists.
    pub(crate) fn checks(&self) -> Checks {
        self.readiness.checks.clone()
    }

    /// The watch has failed, and retries by itself.
    pub fn failed(&self) {
        self.readiness.failures.notify_one();
    }

    /// The watch has listed; later calls (a watch lists again after a lost connection) do nothing.
    pub fn done(&self) {
        self.readiness.state.send_if_modified(|state| state.missing.remove(&self.entry));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn an_empty_registry_is_ready_only_once_sealed() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready());
        assert_eq!(readiness.pending(), ["registration"]);
        readiness.seal();
        assert!(readiness.is_ready());
        assert!(readiness.pending().is_empty());
    }

    #[test]
    fn pending_names_the_watches_that_have_not_listed() {
        let readiness = Readiness::default();
        let services = readiness.register("services");
        let pools = readiness.register("ipgroups");
        readiness.seal();
        assert_eq!(readiness.pending(), ["ipgroups", "services"]);
        services.done();
        services.done();
        assert_eq!(readiness.pending(), ["ipgroups"]);
        pools.done();
        assert!(readiness.is_ready());
    }

    #[test]
    fn two_watches_of_one_name_both_have_to_list() {
        let readiness = Readiness::default();
        let (first, second) = (readiness.register("services"), readiness.register("services"));
        readiness.seal();
        first.done();
        first.done();
        assert_eq!(readiness.pending(), ["services"]);
        second.done();
        assert!(readiness.is_ready());
    }

    #[test]
    fn after_a_restart_only_watches_registered_from_then_on_count() {
        let readiness = Readiness::default();
        let (listed, never) = (readiness.register("services"), readiness.register("ips"));
        readiness.seal();
        listed.done();
        readiness.restart();
        assert_eq!(readiness.pending(), ["registration"]);
        let again = readiness.register("services");
        readiness.seal();
        listed.done();
        assert_eq!(readiness.pending(), ["services"], "the old one cannot speak for the new one");
        again.done();
        assert!(readiness.is_ready());
        drop(never);
    }

    #[test]
    fn a_watch_on_demand_delays_nothing() {
        let readiness = Readiness::default();
        let watch = readiness.on_demand("daemonsets");
        readiness.seal();
        assert!(readiness.is_ready());
        watch.done();
        assert!(readiness.is_ready());
    }

    #[test]
    fn a_dropped_watch_stays_pending() {
        let readiness = Readiness::default();
        drop(readiness.register("services"));
        readiness.seal();
        assert_eq!(readiness.pending(), ["services"]);
    }

    #[test]
    fn waiting_ends_with_the_last_list() {
        let readiness = Readiness::default();
        let services = readiness.register("services");
        let mut waiting = Box::pin(readiness.wait_ready());
        readiness.seal();
        assert!(waiting.as_mut().now_or_never().is_none());
        services.done();
        assert!(waiting.as_mut().now_or_never().is_some());
    }
}
