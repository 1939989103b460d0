//! What happens to Services and addresses, and when.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::stream::select_all;
use futures::{StreamExt as _, future};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use landfall_api::keys::CONDITION_ALLOCATED;
use landfall_api::{IP, IPGroup, condition, name};
use tokio::sync::mpsc;

use super::samples::{Expected, Sample};

/// A change, and when we saw it.
pub(super) type News = (Instant, Change);

#[derive(Debug)]
pub(super) enum Change {
    Service(Box<Service>),
    ServiceGone(Box<Service>),
    Claim(Box<IP>),
    /// A pool that is none of the samples', by name.
    OtherPool(String),
}

/// What of a cluster is watched.
#[derive(Debug)]
pub(super) struct Scope {
    services: Vec<Api<Service>>,
    claims: (Api<IP>, watcher::Config),
    other_pools: Option<(Api<IPGroup>, watcher::Config)>,
}

impl Scope {
    /// All Services and all claims.
    pub(super) fn whole(client: Client) -> Self {
        Self {
            services: vec![Api::all(client.clone())],
            claims: (Api::all(client), watcher::Config::default()),
            other_pools: None,
        }
    }

    /// The Services of some namespaces, and the claims with some labels.
    pub(super) fn only(client: &Client, namespaces: &[String], claims: &str) -> Self {
        let services = namespaces.iter().map(|one| Api::namespaced(client.clone(), one));
        Self {
            services: services.collect(),
            claims: (Api::all(client.clone()), watcher::Config::default().labels(claims)),
            other_pools: None,
        }
    }

    /// Watches for pools without this label as well.
    #[must_use]
    pub(super) fn and_pools_without(self, client: &Client, (key, value): (&str, &str)) -> Self {
        let others = watcher::Config::default().labels(&format!("{key}!={value}"));
        Self { other_pools: Some((Api::all(client.clone()), others)), ..self }
    }
}

/// Watches until one of the watches ends, and says which.
pub(super) async fn run(scope: Scope, news: mpsc::Sender<News>) -> &'static str {
    let Scope { services, claims: (claims, labelled), other_pools } = scope;
    let services = services
        .into_iter()
        .map(|services| watcher(services, watcher::Config::default()).default_backoff().boxed());
    let services = select_all(services);
    let claims = watcher(claims, labelled).default_backoff();
    let tell = async |change| news.send((Instant::now(), change)).await.is_ok();
    let services = services.for_each(async |event| {
        // An error is tried again by the watcher itself.
        let change = match event {
            Ok(Event::Apply(service) | Event::InitApply(service)) => {
                Change::Service(Box::new(service))
            }
            Ok(Event::Delete(service)) => Change::ServiceGone(Box::new(service)),
            Ok(Event::Init | Event::InitDone) | Err(_) => return,
        };
        tell(change).await;
    });
    let claims = claims.for_each(async |event| {
        if let Ok(Event::Apply(claim) | Event::InitApply(claim)) = event {
            tell(Change::Claim(Box::new(claim))).await;
        }
    });
    let other_pools = async {
        let Some((pools, others)) = other_pools else { return future::pending().await };
        let pools = watcher(pools, others).default_backoff();
        pools
            .for_each(async |event| {
                if let Ok(Event::Apply(pool) | Event::InitApply(pool)) = event {
                    tell(Change::OtherPool(pool.name_any())).await;
                }
            })
            .await;
    };
    tokio::select! {
        () = services => "Services",
        () = claims => "IP objects",
        () = other_pools => "IPGroups",
    }
}

/// What is known of one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub service: String,
    /// The address it asks for.
    pub wish: Option<String>,
    /// Addresses and the pools they came from.
    pub addresses: Vec<(String, String)>,
    /// From when we first saw the Service until it had what it has.
    pub took: Option<Duration>,
    /// Reason and message, where it does not have what it wants.
    pub refusal: Option<(String, String)>,
}

impl Row {
    /// Whether the operator has said anything about it yet.
    pub(super) fn is_settled(&self) -> bool {
        !self.addresses.is_empty() || self.refusal.is_some()
    }

    fn ips(&self) -> impl Iterator<Item = &str> {
        self.addresses.iter().map(|(ip, _)| ip.as_str())
    }
}

/// Every Service of type `LoadBalancer`, in the order they appeared.
#[derive(Debug, Default)]
pub(super) struct Board {
    rows: Vec<(Instant, Row)>,
    /// Pools by address.
    pools: BTreeMap<String, String>,
}

impl Board {
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().map(|(_, row)| row)
    }

    pub(super) fn take_in(&mut self, change: Change, at: Instant) {
        match change {
            Change::Claim(claim) => {
                let address = name::parse(&claim.name_any()).map(|address| address.to_string());
                if let (Ok(address), Some(pool)) = (address, &claim.spec.pool) {
                    self.pools.insert(address, pool.clone());
                    self.name_pools();
                }
            }
            Change::ServiceGone(service) => {
                let key = key(&service);
                self.rows.retain(|(_, row)| row.service != key);
            }
            Change::Service(service) => self.put(&service, at),
            // Nothing of it is shown.
            Change::OtherPool(_) => {}
        }
    }

    fn put(&mut self, service: &Service, at: Instant) {
        let key = key(service);
        let spec = service.spec.as_ref();
        if spec.and_then(|spec| spec.type_.as_deref()) != Some("LoadBalancer") {
            self.rows.retain(|(_, row)| row.service != key);
            return;
        }
        let status = service.status.clone().unwrap_or_default();
        let ingress = status.load_balancer.and_then(|balancer| balancer.ingress);
        let addresses = ingress.into_iter().flatten().filter_map(|entry| entry.ip);
        let addresses: Vec<_> = addresses.map(|ip| (ip, String::new())).collect();
        let conditions = status.conditions.unwrap_or_default();
        let refusal = condition::get(&conditions, CONDITION_ALLOCATED)
            .filter(|condition| condition.status == "False")
            .map(|condition| (condition.reason.clone(), condition.message.clone()));
        let wish = spec.and_then(|spec| spec.load_balancer_ip.clone());
        let mut row = Row { service: key, wish, addresses, took: None, refusal };
        match self.rows.iter_mut().find(|(_, old)| old.service == row.service) {
            Some((first, old)) => {
                // A new wish begins anew; what else changes about an address takes it no time.
                if old.wish != row.wish {
                    *first = at;
                }
                let same = plain(old) == plain(&row)
                    || (!row.addresses.is_empty() && old.ips().eq(row.ips()));
                let took = || row.is_settled().then(|| at.duration_since(*first));
                row.took = if same { old.took } else { took() };
                *old = row;
            }
            None => self.rows.push((at, row)),
        }
        self.name_pools();
    }

    fn name_pools(&mut self) {
        for (address, pool) in self.rows.iter_mut().flat_map(|(_, row)| &mut row.addresses) {
            if let Some(known) = self.pools.get(address) {
                pool.clone_from(known);
            }
        }
    }

    /// What a sample lacks, in words; `None` if it has what it should.
    pub(super) fn shortfall(&self, sample: &Sample) -> Option<String> {
        let Some(row) = self.rows().find(|row| row.service == sample.service) else {
            return Some(format!("{}: not seen yet", sample.service));
        };
        let fine = match &sample.expected {
            Expected::From(pools) => row.addresses.iter().map(|(_, pool)| pool).eq(pools),
            Expected::Address(address) => row.ips().eq([*address]),
            Expected::Refused(reason) => {
                row.addresses.is_empty()
                    && row.refusal.as_ref().is_some_and(|(word, _)| word == reason.as_str())
            }
        };
        let has = match &row.refusal {
            Some((reason, message)) => format!("{reason}: {message}"),
            None => format!("{:?}", row.addresses),
        };
        (!fine).then(|| format!("{}: expected {:?}, has {has}", sample.service, sample.expected))
    }
}

/// What of a row a new look can change, apart from the pools, which come from elsewhere.
fn plain(row: &Row) -> (Vec<&str>, Option<&(String, String)>) {
    (row.ips().collect(), row.refusal.as_ref())
}

fn key(service: &Service) -> String {
    format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(wish: Option<&str>, ip: Option<&str>, reason: Option<&str>) -> Change {
        let ingress: Vec<_> = ip.iter().map(|ip| json!({ "ip": ip })).collect();
        let conditions: Vec<_> = reason
            .iter()
            .map(|reason| {
                json!({
                    "type": CONDITION_ALLOCATED, "status": "False", "reason": reason,
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            })
            .collect();
        let service = json!({
            "metadata": { "namespace": "shop", "name": "web" },
            "spec": { "type": "LoadBalancer", "loadBalancerIP": wish },
            "status": { "loadBalancer": { "ingress": ingress }, "conditions": conditions },
        });
        Change::Service(Box::new(serde_json::from_value(service).unwrap()))
    }

    #[test]
    fn the_clock_runs_from_a_wish_to_its_address() {
        let (mut board, begin) = (Board::default(), Instant::now());
        for (case, second, change, took) in [
            ("seen", 1, service(None, None, None), None),
            ("given", 3, service(None, Some("192.0.2.1"), None), Some(2)),
            ("another wish", 10, service(Some("192.0.2.9"), Some("192.0.2.1"), None), Some(2)),
            (
                "refused, and keeps what it had",
                11,
                service(Some("192.0.2.9"), Some("192.0.2.1"), Some("TakenBy")),
                Some(2),
            ),
            ("granted", 14, service(Some("192.0.2.9"), Some("192.0.2.9"), None), Some(4)),
        ] {
            board.take_in(change, begin + Duration::from_secs(second));
            let row = board.rows().next().unwrap();
            assert_eq!(row.took.map(|took| took.as_secs()), took, "{case}");
        }
    }

    #[test]
    fn a_sample_that_has_something_else_is_told_with_what_it_has() {
        use landfall_ipam::Reason;

        let taken = || service(Some("192.0.2.9"), None, Some("TakenBy"));
        for (case, change, expected, told) in [
            ("nothing yet", None, Expected::Address("192.0.2.9"), Some("not seen yet")),
            (
                "another address",
                Some(service(None, Some("192.0.2.1"), None)),
                Expected::Address("192.0.2.9"),
                Some("192.0.2.1"),
            ),
            ("refused", Some(taken()), Expected::Address("192.0.2.9"), Some("TakenBy")),
            ("refused as it should be", Some(taken()), Expected::Refused(Reason::TakenBy), None),
            (
                "refused for another reason",
                Some(taken()),
                Expected::Refused(Reason::Excluded),
                Some("TakenBy"),
            ),
            (
                "its pool not known yet",
                Some(service(None, Some("192.0.2.1"), None)),
                Expected::From(vec!["IPGroup/a".to_owned()]),
                Some("IPGroup/a"),
            ),
        ] {
            let mut board = Board::default();
            if let Some(change) = change {
                board.take_in(change, Instant::now());
            }
            let shortfall = board.shortfall(&Sample { service: "shop/web".to_owned(), expected });
            assert_eq!(shortfall.is_some(), told.is_some(), "{case}: {shortfall:?}");
            assert!(shortfall.unwrap_or_default().contains(told.unwrap_or_default()), "{case}");
        }
    }
}
