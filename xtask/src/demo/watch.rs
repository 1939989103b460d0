//! What happens to Services and addresses, and when.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use futures::stream::select_all;
use futures::{StreamExt as _, future};
use k8s_openapi::api::core::v1::Service;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use landfall_api::keepalived_group::AnnouncedAddress;
use landfall_api::keys::CONDITION_ALLOCATED;
use landfall_api::{IP, IPGroup, KeepalivedGroup, condition, name};
use tokio::sync::mpsc;

use super::samples::{Expected, Sample};

/// A change, and when we saw it.
pub(super) type News = (Instant, Change);

#[derive(Debug)]
pub(super) enum Change {
    Service(Box<Service>),
    ServiceGone(Box<Service>),
    Claim(Box<IP>),
    /// The addresses of a keepalived group.
    Announced(Vec<AnnouncedAddress>),
    /// A pool that is none of the samples', by name.
    OtherPool(String),
}

/// The watched part of a cluster.
#[derive(Debug)]
pub(super) struct Scope {
    services: Vec<Api<Service>>,
    claims: (Api<IP>, watcher::Config),
    groups: Option<Api<KeepalivedGroup>>,
    other_pools: Option<(Api<IPGroup>, watcher::Config)>,
}

impl Scope {
    /// All Services, all claims and all keepalived groups.
    pub(super) fn whole(client: Client) -> Self {
        Self {
            services: vec![Api::all(client.clone())],
            claims: (Api::all(client.clone()), watcher::Config::default()),
            groups: Some(Api::all(client)),
            other_pools: None,
        }
    }

    /// The Services of some namespaces, and the claims with some labels.
    pub(super) fn only(client: &Client, namespaces: &[String], claims: &str) -> Self {
        let services = namespaces.iter().map(|one| Api::namespaced(client.clone(), one));
        Self {
            services: services.collect(),
            claims: (Api::all(client.clone()), watcher::Config::default().labels(claims)),
            groups: None,
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
    let Scope { services, claims: (claims, labelled), groups, other_pools } = scope;
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
    let groups = async {
        let Some(groups) = groups else { return future::pending().await };
        let groups = watcher(groups, watcher::Config::default()).default_backoff();
        groups
            .for_each(async |event| {
                if let Ok(Event::Apply(group) | Event::InitApply(group)) = event {
                    let addresses = group.status.unwrap_or_default().addresses;
                    tell(Change::Announced(addresses)).await;
                }
            })
            .await;
    };
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
        () = groups => "KeepalivedGroups",
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
    /// The node that holds its first address, if a keepalived group announces it.
    pub node: Option<String>,
    /// How long the address had no holder when it came to that node from another.
    pub moved: Option<Duration>,
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

    /// The name of its node, and how long the last move took.
    pub(super) fn place(&self) -> String {
        let node = self.node.clone().unwrap_or_default();
        match self.moved {
            Some(moved) => format!("{node} after {} ms", moved.as_millis()),
            None => node,
        }
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
    /// Holders by address.
    nodes: BTreeMap<String, String>,
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
            Change::Announced(addresses) => {
                let held = addresses.into_iter().filter_map(|it| Some((it.address, it.node?)));
                self.nodes.extend(held);
                self.name_nodes();
            }
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
        let (took, node, moved) = (None, None, None);
        let mut row = Row { service: key, wish, addresses, node, moved, took, refusal };
        match self.rows.iter_mut().find(|(_, old)| old.service == row.service) {
            Some((first, old)) => {
                // A new wish starts the clock again; other changes of an address do not.
                if old.wish != row.wish {
                    *first = at;
                }
                let same = plain(old) == plain(&row)
                    || (!row.addresses.is_empty() && old.ips().eq(row.ips()));
                let took = || row.is_settled().then(|| at.duration_since(*first));
                row.took = if same { old.took } else { took() };
                if same {
                    (row.node, row.moved) = (old.node.take(), old.moved);
                }
                *old = row;
            }
            None => self.rows.push((at, row)),
        }
        self.name_pools();
        self.name_nodes();
    }

    /// An address that a node holds, and that node.
    pub(super) fn held(&self) -> Option<(IpAddr, String)> {
        self.rows().find_map(|row| Some((row.ips().next()?.parse().ok()?, row.node.clone()?)))
    }

    /// The address has had no holder for so long before it came to the node that holds it now.
    pub(super) fn moved(&mut self, address: IpAddr, after: Duration) {
        let address = address.to_string();
        let mut rows = self.rows.iter_mut().map(|(_, row)| row);
        if let Some(row) = rows.find(|row| row.ips().next() == Some(&address)) {
            row.moved = Some(after);
        }
    }

    fn name_nodes(&mut self) {
        for (_, row) in &mut self.rows {
            let node = row.addresses.first().and_then(|(address, _)| self.nodes.get(address));
            if row.node.as_ref() != node {
                row.node = node.cloned();
                row.moved = None;
            }
        }
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
            Expected::Floating(pool) => {
                row.addresses.iter().map(|(_, pool)| pool).eq([pool]) && row.node.is_some()
            }
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

/// The parts of a row that a new look can change, apart from the pools, which come from elsewhere.
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
    fn the_time_of_a_move_is_told_until_the_next_move() {
        let held = |node: &str| {
            let (address, node) = ("192.0.2.1".to_owned(), Some(node.to_owned()));
            Change::Announced(vec![AnnouncedAddress { address, node, ..Default::default() }])
        };
        let (mut board, now) = (Board::default(), Instant::now());
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let given = || service(None, Some("192.0.2.1"), None);
        board.take_in(held("n1"), now);
        assert_eq!(board.held(), None);
        board.take_in(given(), now);
        for (case, change, moved, place) in [
            ("announced before it was seen", None, None, "n1"),
            ("moved", Some(held("n2")), Some(Duration::from_millis(312)), "n2 after 312 ms"),
            ("the Service is as it was", Some(given()), None, "n2 after 312 ms"),
            ("it has no holder just now", Some(Change::Announced(vec![])), None, "n2 after 312 ms"),
            ("moved again, unseen", Some(held("n1")), None, "n1"),
        ] {
            if let Some(change) = change {
                board.take_in(change, now);
            }
            if let Some(after) = moved {
                board.moved(address, after);
            }
            assert_eq!(board.rows().next().unwrap().place(), place, "{case}");
            assert!(
                board
                    .held()
                    .is_some_and(|(held, node)| held == address && place.starts_with(&node))
            );
        }
    }

    #[test]
    fn a_sample_that_has_something_else_is_told_with_its_addresses() {
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
