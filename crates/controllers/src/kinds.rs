//! Tells whether the API server serves a kind, and when that changes.
//!
//! Kinds of other operators may be missing, and may come or go while we run. Watching a missing kind
//! means failing requests again and again; watching its definition costs nothing until it appears.

use std::{future::Future, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    core::PartialObjectMeta,
    runtime::watcher::{Config, Event},
};
use tokio::{
    sync::{mpsc, watch},
    time::{sleep, timeout},
};
use tracing::warn;

use crate::{readiness::Listed, watch::feed};

/// The definition of `VirtualIP`.
pub const VIRTUAL_IPS: &str = "virtualips.paas.org";

/// The definition of `GroupSegmentMapping`.
pub const MAPPINGS: &str = "groupsegmentmappings.paas.org";

/// The definition of `KeepalivedGroup`.
pub const KEEPALIVED_GROUPS: &str = "keepalivedgroups.redhatcop.redhat.io";

/// The definition of `PodMonitor`, by which Prometheus finds the metrics of pods.
pub const POD_MONITORS: &str = "podmonitors.monitoring.coreos.com";

/// The group and version of `ServiceCIDR`, and its plural. Kubernetes has it so since 1.33.
pub const SERVICE_CIDRS: (&str, &str) = ("networking.k8s.io/v1", "servicecidrs");

/// How often a missing built-in kind is asked for: it comes only with another version of the API
/// server.
const ASK_AGAIN: Duration = Duration::from_mins(10);
/// The delay of the next request after one without an answer.
const ASK_AGAIN_SOON: Duration = Duration::from_secs(1);
/// The deadline of a request.
const DEADLINE: Duration = Duration::from_secs(10);

/// Tells whether a kind is served. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Served {
    /// `None` until the definition has been looked up.
    known: watch::Receiver<Option<bool>>,
}

impl Served {
    /// Whether the kind is served, as soon as that is known.
    pub async fn now(&mut self) -> bool {
        // Fails only when the watch has ended, and then the kind counts as not served.
        self.known.wait_for(Option::is_some).await.is_ok_and(|known| *known == Some(true))
    }

    /// Waits until the kind is served, or until it is not.
    ///
    /// A definition that is being deleted still counts as served: its objects may wait for us to remove
    /// our finalizers.
    pub async fn becomes(&mut self, served: bool) {
        if self.known.wait_for(|known| *known == Some(served)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Informs a [`Served`] about something that is not a kind but begins and ends as kinds do.
#[derive(Debug)]
pub struct Notice(watch::Sender<Option<bool>>);

impl Notice {
    /// It is there, or it is not.
    pub fn tell(&self, there: bool) {
        self.0.send_if_modified(|known| known.replace(there) != Some(there));
    }

    /// The same, unless something is known already.
    pub fn tell_first(&self, there: bool) {
        self.0.send_if_modified(|known| {
            let is_first = known.is_none();
            known.get_or_insert(there);
            is_first
        });
    }
}

/// A notice, and the [`Served`] that it informs.
pub fn told() -> (Notice, Served) {
    let (sender, known) = watch::channel(None);
    (Notice(sender), Served { known })
}

/// Whether two things are both there. The future ends only when one of the sources has ended.
pub fn both(one: Served, other: Served) -> (Served, impl Future<Output = ()>) {
    let (sender, known) = watch::channel(None);
    let (mut one, mut other) = (one.known, other.known);
    let joining = async move {
        loop {
            let told = (*one.borrow_and_update(), *other.borrow_and_update());
            let both = match told {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                (None, _) | (_, None) => None,
            };
            if both.is_some() {
                sender.send_replace(both);
            }
            let changed = tokio::select! {
                changed = one.changed() => changed,
                changed = other.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
        }
    };
    (Served { known }, joining)
}

/// Begins with some work when something is there for the first time.
pub async fn from_first(mut there: Served, work: impl Future<Output = ()>) {
    there.becomes(true).await;
    work.await;
}

/// Runs `there` while the kind is served, and `absent` whenever it is not.
///
/// Ends when either reports that the receiver is gone: `there` by ending, `absent` by an error.
pub async fn whenever_served<There, Absent, E>(
    mut served: Served,
    there: impl Fn() -> There,
    absent: impl Fn() -> Absent,
) where
    There: Future<Output = ()>,
    Absent: Future<Output = Result<(), E>>,
{
    loop {
        if served.now().await {
            tokio::select! {
                () = there() => return,
                () = served.becomes(false) => {}
            }
        }
        if absent().await.is_err() {
            return;
        }
        served.becomes(true).await;
    }
}

/// Watches the definition of one kind, by its name such as `virtualips.paas.org`.
///
/// The future passes on what it sees and ends only when all receivers are gone.
pub fn watch(
    client: Client,
    definition: &'static str,
    listed: Listed,
) -> (Served, impl Future<Output = ()>) {
    let (sender, known) = watch::channel(None);
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client);
    let config = Config::default().fields(&format!("metadata.name={definition}"));
    let (news, mut told) = mpsc::channel(1);
    let watching = feed(definition, (api, config), news, listed, |event| vec![sight(&event)]);
    let telling = async move {
        let mut there = false;
        while let Some(sight) = told.recv().await {
            match sight {
                Sight::ListBegins => there = false,
                Sight::There => there = true,
                Sight::Told(now) => {
                    sender.send_replace(Some(now.unwrap_or(there)));
                }
            }
        }
    };
    let both = async move {
        tokio::join!(watching, telling);
    };
    (Served { known }, both)
}

/// Whether the API server serves a built-in kind, by group and version and its plural. Such a kind has
/// no definition to watch.
///
/// The future ends once there is nothing left to ask.
pub fn built_in(
    client: Client,
    (version, plural): (&'static str, &'static str),
) -> (Served, impl Future<Output = ()>) {
    let (sender, known) = watch::channel(None);
    let asking = async move {
        loop {
            let asked = timeout(DEADLINE, client.list_api_group_resources(version)).await;
            let pause = match asked {
                Ok(Ok(list)) if list.resources.iter().any(|kind| kind.name == plural) => {
                    sender.send_replace(Some(true));
                    return;
                }
                Ok(Ok(_)) => {
                    sender.send_replace(Some(false));
                    ASK_AGAIN
                }
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(kind = plural, error, "cannot ask for a kind; it goes on");
                    ASK_AGAIN_SOON
                }
                Err(_) => ASK_AGAIN_SOON,
            };
            sleep(pause).await;
        }
    };
    (Served { known }, asking)
}

/// The meaning of one event of the watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    ListBegins,
    /// It is in a list that is not complete yet.
    There,
    /// It exists or not; `None` means as the list said.
    Told(Option<bool>),
}

fn sight<K>(event: &Event<K>) -> Sight {
    match event {
        Event::Init => Sight::ListBegins,
        Event::InitApply(_) => Sight::There,
        Event::InitDone => Sight::Told(None),
        Event::Apply(_) => Sight::Told(Some(true)),
        Event::Delete(_) => Sight::Told(Some(false)),
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn both_are_there_only_together() {
        let ((one, first), (other, second)) = (told(), told());
        let (mut both, joining) = both(first, second);
        let mut joining = Box::pin(joining);
        assert_eq!(joining.as_mut().now_or_never(), None);
        assert_eq!(both.now().now_or_never(), None);
        one.tell_first(true);
        assert_eq!(joining.as_mut().now_or_never(), None);
        assert_eq!(both.now().now_or_never(), None, "the other one is not known");
        other.tell(true);
        assert_eq!(joining.as_mut().now_or_never(), None);
        assert_eq!(both.now().now_or_never(), Some(true));
        one.tell_first(true);
        one.tell(false);
        assert_eq!(joining.as_mut().now_or_never(), None);
        assert_eq!(both.now().now_or_never(), Some(false));
        drop(one);
        assert_eq!(joining.as_mut().now_or_never(), Some(()));
    }

    #[test]
    fn work_that_begins_with_the_first_object_goes_on_after_the_last() {
        let (any, are_any) = told();
        let (steps, mut taken) = mpsc::channel(2);
        let mut work = Box::pin(from_first(are_any, async {
            for _ in 0..2 {
                steps.send(()).await.unwrap();
                tokio::task::yield_now().await;
            }
        }));
        assert_eq!(work.as_mut().now_or_never(), None);
        any.tell_first(false);
        assert_eq!(work.as_mut().now_or_never(), None);
        assert!(taken.try_recv().is_err(), "there is none");
        any.tell(true);
        assert_eq!(work.as_mut().now_or_never(), None);
        assert_eq!(taken.try_recv(), Ok(()));
        any.tell(false);
        while work.as_mut().now_or_never().is_none() {}
        assert_eq!(taken.try_recv(), Ok(()));
    }

    #[test]
    fn nothing_is_said_before_the_definition_was_looked_for() {
        let (sender, known) = watch::channel(None);
        let mut served = Served { known };
        assert_eq!(served.now().now_or_never(), None);
        sender.send_replace(Some(false));
        assert_eq!(served.now().now_or_never(), Some(false));
        assert_eq!(served.becomes(true).now_or_never(), None);
        sender.send_replace(Some(true));
        assert_eq!(served.becomes(true).now_or_never(), Some(()));
        assert_eq!(served.becomes(false).now_or_never(), None);
    }
}
