//! Finds watches that miss events without knowing it.
//!
//! Once per interval a kind is listed live, metadata only, and compared with the events of its watch. A
//! watch may be a moment behind; one that is still behind after a while is blind, and must start again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    future::Future,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    pin::Pin,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Resource,
    api::ListParams,
    runtime::watcher::{Config, Event},
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

/// How long a watch may lag.
const LATEST: Duration = Duration::from_mins(1);
/// Objects per page: without spec and status they are small.
const PAGE: u32 = 500;
/// The deadline of a page.
const PAGE_DEADLINE: Duration = Duration::from_secs(30);
/// Means "never".
const NEVER: Duration = Duration::from_hours(24 * 365);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// How often watches are compared with live lists, and how many were blind. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// `None` never compares.
    every: Option<Duration>,
    found: Family<Kind, Counter>,
}

impl Checks {
    /// Compares once per interval, and registers the metric of blind watches.
    pub fn register(every: Duration, registry: &mut Registry) -> Self {
        let checks = Self { every: Some(every), found: Family::default() };
        registry.register(
            "landfall_watches_blind",
            "Watches that missed events and were begun again, by kind",
            checks.found.clone(),
        );
        checks
    }
}

/// A hash of an object's name.
type Id = u64;

fn id(meta: &ObjectMeta) -> Id {
    let mut hasher = DefaultHasher::new();
    (&meta.namespace, &meta.name).hash(&mut hasher);
    hasher.finish()
}

fn version(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The state that a watch has shown, in as little memory as can be compared.
#[derive(Debug, Default)]
struct Heard {
    there: BTreeMap<Id, u64>,
    /// Objects deleted since a comparison began.
    gone: BTreeMap<Id, u64>,
}

/// A live list and its version.
#[derive(Debug, Default)]
struct Listed {
    there: BTreeMap<Id, u64>,
    at: u64,
}

/// Changes that a watch has not shown yet.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owed {
    /// These exist, at this version or a later one.
    there: BTreeMap<Id, u64>,
    /// These no longer exist at the version that was shown.
    gone: BTreeMap<Id, u64>,
}

impl Heard {
    /// The differences between a list and the state that the watch has shown.
    fn owes(&self, listed: &Listed) -> Owed {
        let there = listed.there.iter().filter(|(id, version)| !self.has_told(**id, **version));
        let gone = self.there.iter().filter(|(id, version)| {
            // An object newer than the list cannot be in it.
            **version <= listed.at && !listed.there.contains_key(id)
        });
        Owed {
            there: there.map(|(id, version)| (*id, *version)).collect(),
            gone: gone.map(|(id, version)| (*id, *version)).collect(),
        }
    }

    fn has_told(&self, id: Id, version: u64) -> bool {
        let told = [&self.there, &self.gone].map(|of| of.get(&id));
        told.into_iter().flatten().any(|told| *told >= version)
    }

    /// How many of the differences remain.
    fn still_owes(&self, owed: &Owed) -> usize {
        let there = owed.there.iter().filter(|(id, version)| !self.has_told(**id, **version));
        let gone = owed.gone.iter().filter(|(id, version)| self.there.get(id) == Some(*version));
        let all: BTreeSet<_> = there.chain(gone).map(|(id, _)| *id).collect();
        all.len()
    }
}

/// The stage of the comparison.
enum Stage {
    Resting { until: Instant },
    Listing(Pin<Box<dyn Future<Output = kube::Result<Listed>> + Send>>),
    Waiting { until: Instant, owed: Owed },
}

/// The next event of a comparison.
pub(crate) enum Step {
    Due,
    Listed(kube::Result<Listing>),
    Late,
}

/// The answer to a live list, for the comparison only.
pub(crate) struct Listing(Listed);

/// Compares one watch with live lists.
pub(crate) struct Comparison<K> {
    kind: &'static str,
    api: Api<K>,
    params: ListParams,
    checks: Checks,
    told: Heard,
    stage: Stage,
}

impl<K> Comparison<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    pub(crate) fn new(kind: &'static str, api: Api<K>, config: &Config, checks: Checks) -> Self {
        let params = ListParams {
            label_selector: config.label_selector.clone(),
            field_selector: config.field_selector.clone(),
            ..ListParams::default()
        };
        // Zero from the start, so that a rate can be computed.
        drop(checks.found.get_or_create(&Kind { kind }));
        let stage = Stage::Resting { until: Instant::now() + NEVER };
        Self { kind, api, params: params.limit(PAGE), checks, told: Heard::default(), stage }
    }

    fn rest(&mut self) {
        self.told.gone.clear();
        self.stage = Stage::Resting { until: Instant::now() + self.checks.every.unwrap_or(NEVER) };
    }

    /// Takes in an event of the watch.
    pub(crate) fn told(&mut self, event: &Event<K>) {
        if self.checks.every.is_none() {
            return;
        }
        match event {
            Event::Init => {
                self.told = Heard::default();
                self.stage = Stage::Resting { until: Instant::now() + NEVER };
            }
            Event::InitDone => self.rest(),
            Event::Apply(object) | Event::InitApply(object) => {
                let version = version(object.meta().resource_version.as_deref());
                self.told.there.insert(id(object.meta()), version);
            }
            Event::Delete(object) => {
                let (id, at) = (id(object.meta()), object.meta().resource_version.as_deref());
                self.told.there.remove(&id);
                if !matches!(self.stage, Stage::Resting { .. }) {
                    self.told.gone.insert(id, version(at));
                }
            }
        }
    }

    /// Waits for the next step. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Step {
        match &mut self.stage {
            Stage::Resting { until } => {
                sleep_until(*until).await;
                Step::Due
            }
            Stage::Listing(list) => Step::Listed(list.await.map(Listing)),
            Stage::Waiting { until, .. } => {
                sleep_until(*until).await;
                Step::Late
            }
        }
    }

    /// Takes the step; returns whether the watch is blind.
    pub(crate) fn goes_on(&mut self, step: Step) -> bool {
        match step {
            Step::Due => {
                let list = list(self.api.clone(), self.params.clone());
                self.stage = Stage::Listing(Box::pin(list));
            }
            Step::Listed(Ok(Listing(listed))) => {
                let owed = self.told.owes(&listed);
                if owed == Owed::default() {
                    self.rest();
                } else {
                    let patience = self.checks.every.map_or(LATEST, |every| every.min(LATEST));
                    self.stage = Stage::Waiting { until: Instant::now() + patience, owed };
                }
            }
            Step::Listed(Err(error)) => {
                debug!(kind = self.kind, %error, "the watch could not be compared with a list");
                self.rest();
            }
            Step::Late => {
                let missed = match &self.stage {
                    Stage::Waiting { owed, .. } => self.told.still_owes(owed),
                    Stage::Resting { .. } | Stage::Listing(_) => 0,
                };
                self.rest();
                if missed > 0 {
                    warn!(kind = self.kind, missed, "the watch is blind; it begins again");
                    self.checks.found.get_or_create(&Kind { kind: self.kind }).inc();
                    return true;
                }
            }
        }
        false
    }
}

/// Lists everything live, never from a cache.
async fn list<K>(api: Api<K>, mut params: ListParams) -> kube::Result<Listed>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut all = Listed::default();
    loop {
        let late = |_| kube::Error::Service("no answer in time".into());
        let page = timeout(PAGE_DEADLINE, api.list_metadata(&params)).await.map_err(late)??;
        // All pages are of one version.
        all.at = version(page.metadata.resource_version.as_deref());
        all.there.extend(page.items.iter().map(|object| {
            (id(&object.metadata), version(object.metadata.resource_version.as_deref()))
        }));
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(there: &[(Id, u64)], gone: &[(Id, u64)]) -> Heard {
        Heard { there: there.iter().copied().collect(), gone: gone.iter().copied().collect() }
    }

    #[test]
    fn a_watch_owes_each_change_that_a_list_shows_and_it_has_not_told() {
        let listed = Listed { there: [(1, 10), (2, 20), (3, 30)].into(), at: 40 };
        for (case, told_so_far, late, told_then, blind) in [
            ("everything", told(&[(1, 10), (2, 20), (3, 30)], &[]), 0, told(&[], &[]), 0),
            ("more", told(&[(1, 50), (2, 20), (3, 30), (4, 41)], &[]), 0, told(&[], &[]), 0),
            ("a deletion since", told(&[(1, 10), (2, 20)], &[(3, 42)]), 0, told(&[], &[]), 0),
            (
                "an object later",
                told(&[(1, 10), (2, 20)], &[]),
                1,
                told(&[(1, 10), (2, 20), (3, 30)], &[]),
                0,
            ),
            (
                "an object that was deleted by then",
                told(&[(1, 10), (2, 20)], &[]),
                1,
                told(&[(1, 10), (2, 20)], &[(3, 43)]),
                0,
            ),
            (
                "no change of an object",
                told(&[(1, 10), (2, 19), (3, 30)], &[]),
                1,
                told(&[(1, 50), (2, 19), (3, 51)], &[]),
                1,
            ),
            (
                "a deletion later",
                told(&[(1, 10), (2, 20), (3, 30), (4, 5)], &[]),
                1,
                told(&[(1, 10), (2, 20), (3, 30)], &[(4, 35)]),
                0,
            ),
            (
                "an object made again",
                told(&[(1, 10), (2, 20), (3, 30), (4, 5)], &[]),
                1,
                told(&[(1, 10), (2, 20), (3, 30), (4, 60)], &[]),
                0,
            ),
            (
                "no deletion",
                told(&[(1, 10), (2, 20), (3, 30), (4, 5)], &[]),
                1,
                told(&[(1, 10), (2, 20), (3, 30), (4, 5)], &[]),
                1,
            ),
        ] {
            let owed = told_so_far.owes(&listed);
            assert_eq!(owed.there.len() + owed.gone.len(), late, "{case}: {owed:?}");
            assert_eq!(told_then.still_owes(&owed), blind, "{case}: {owed:?}");
        }
    }
}
