//! A bench for the planner: a real planner with a watch and an API server simulated in memory, so that only
//! planning is measured.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        LoadBalancerIngress, LoadBalancerStatus, Service, ServicePort, ServiceSpec, ServiceStatus,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::core::DeserializeGuard;
use landfall_api::{IPGroup, IPGroupSpec, Use, keys::ANNOTATION_ADDRESSES};
use landfall_ipam::{AddrRange, Family, PoolName};

use super::super::{
    effect::{Answer, Effect},
    plan::Settings,
    tests::runner::Runner,
};
use crate::{
    call::Failure,
    cluster::{
        News, Seen,
        pool::{self, PoolSource, PoolView},
        service::{self, ServiceView},
    },
    engine::Now,
    ledger::{self, Claim, Write},
    object::{ObjectKey, Version},
    store::Watched,
};

const NAMESPACE: &str = "shop";
/// Time between two steps, so that deadlines pass as often as in a busy cluster.
const STEP: Duration = Duration::from_micros(250);

/// A planner that knows one pool and many Services that have an address of it.
///
/// Each function returns the time that the planner itself needed: to take in news and answers, to plan after
/// each of them, and to say when it is due again. Simulating the cluster does not count.
pub struct PlannerRig {
    runner: Runner,
    pool: IPGroup,
    /// Services created since, oldest first.
    newcomers: Vec<Service>,
    /// The number of the next Service.
    number: u32,
    version: u64,
    uptime: Duration,
}

impl PlannerRig {
    /// Takes addresses of the pool for this many Services, from its first on in steps of `stride`: one leaves
    /// no gap, two leaves a gap after each, which is the worst case for a set of intervals.
    pub fn new(pool: AddrRange, taken: u32, stride: u32) -> Self {
        let spec = IPGroupSpec { ranges: vec![pool.to_string()], ..IPGroupSpec::default() };
        let mut group = IPGroup::new("bench", spec);
        group.metadata.generation = Some(1);
        let mut rig = Self {
            runner: Runner::new(Settings::default()),
            pool: group,
            newcomers: Vec::new(),
            number: 0,
            version: 0,
            uptime: Duration::ZERO,
        };
        let mut claims = Vec::new();
        let mut services = Vec::new();
        for index in 0..taken {
            let addr = nth(pool.first(), index.saturating_mul(stride));
            let mut service = rig.service(Family::of(addr), None);
            shown(&mut service, &[addr]);
            let view = service::read(&service);
            let pool = Some(PoolName::new("IPGroup/bench"));
            claims.extend(view.balancer.as_ref().map(|view| Claim {
                uid: format!("uid-of-{addr}").into(),
                version: Version(rig.next_version()),
                ..Claim::new(addr, Use::LoadBalancer, pool, view.holder_entry())
            }));
            services.push(view);
        }
        rig.list(claims, services);
        let calls = rig.plan();
        rig.serve(calls);
        rig
    }

    /// A Service is created, and is served or told why not.
    pub fn arrive(&mut self, family: Family) -> Duration {
        self.come(family, None)
    }

    /// A Service that asks for this address is created, and is served or told why not.
    pub fn arrive_asking(&mut self, addr: IpAddr) -> Duration {
        self.come(Family::of(addr), Some(addr))
    }

    /// The newest Service is deleted, and its address is released.
    pub fn leave(&mut self) -> Duration {
        let Some(service) = self.newcomers.pop() else { return Duration::ZERO };
        let key = ObjectKey::of(&service.metadata);
        let version = Version(self.next_version());
        self.tell(News::Services(Watched::Gone(key, version)))
    }

    /// The addresses that the newest Service shows.
    pub fn shown(&self) -> Vec<IpAddr> {
        let view = self.newcomers.last().and_then(service::balancer);
        view.map(|view| view.shows).unwrap_or_default()
    }

    fn come(&mut self, family: Family, asks: Option<IpAddr>) -> Duration {
        let service = self.service(family, asks);
        let news = watched(&service);
        self.newcomers.push(service);
        self.tell(news)
    }

    /// The planner gets news, and its effects are carried out, answered and echoed by the watches.
    fn tell(&mut self, news: News) -> Duration {
        let (calls, time) = self.timed(|runner, now| {
            runner.hear(news, now);
            runner.plan(now).effects
        });
        time.saturating_add(self.serve(calls))
    }

    fn plan(&mut self) -> Vec<Effect> {
        self.timed(|runner, now| runner.plan(now).effects).0
    }

    fn serve(&mut self, mut calls: Vec<Effect>) -> Duration {
        let mut total = Duration::ZERO;
        while let Some(effect) = calls.pop() {
            let (result, echo) = self.call(&effect);
            let (more, time) = self.timed(|runner, now| {
                runner.report(effect, result, now);
                runner.plan(now).effects
            });
            calls.extend(more);
            total = total.saturating_add(time);
            let (more, time) = self.timed(|runner, now| {
                if let Some(news) = echo {
                    runner.hear(news, now);
                }
                runner.plan(now).effects
            });
            calls.extend(more);
            total = total.saturating_add(time);
        }
        total
    }

    fn timed(
        &mut self,
        step: impl FnOnce(&mut Runner, Now) -> Vec<Effect>,
    ) -> (Vec<Effect>, Duration) {
        self.uptime = self.uptime.saturating_add(STEP);
        let wall = Timestamp::UNIX_EPOCH.checked_add(self.uptime).unwrap_or_default();
        let now = Now { wall, uptime: self.uptime };
        let began = Instant::now();
        let effects = step(&mut self.runner, now);
        std::hint::black_box(self.runner.next_due());
        (effects, began.elapsed())
    }

    /// Carries out a call, and returns the news of it. There is no other writer, so no call fails.
    fn call(&mut self, effect: &Effect) -> (Result<Answer, Failure>, Option<News>) {
        match effect {
            Effect::Claim { write: Write::Take { claim } | Write::Touch { claim }, .. } => {
                let mut claim = claim.clone();
                claim.uid = format!("uid-of-{}", claim.addr).into();
                claim.version = Version(self.next_version());
                let echo = Watched::Present(claim.addr, claim.version, claim.clone());
                (Ok(Answer::Ledger(ledger::Answer::Claim(claim))), Some(News::Claims(echo)))
            }
            Effect::Publish { key, ingress, conditions, .. } => {
                let version = self.next_version();
                let is_it = |service: &&mut Service| ObjectKey::of(&service.metadata) == *key;
                let Some(service) = self.newcomers.iter_mut().rev().find(is_it) else {
                    return (Err(Failure::NotFound), None);
                };
                service.metadata.resource_version = Some(version.to_string());
                if let Some(addrs) = ingress {
                    shown(service, addrs);
                }
                service.status.get_or_insert_default().conditions = Some(conditions.clone());
                let seen = Seen::Service(Box::new(service::read(service)));
                (Ok(Answer::Seen(Some(seen))), Some(watched(service)))
            }
            Effect::Release { claim: Claim { addr, .. }, .. }
            | Effect::Claim { write: Write::Expire { addr, .. }, .. } => {
                let version = Version(self.next_version());
                let gone = News::Claims(Watched::Gone(*addr, version));
                (Ok(Answer::Ledger(ledger::Answer::Released { by: None })), Some(gone))
            }
            Effect::PoolStatus { status, .. } => {
                self.pool.status = Some(status.clone());
                let view = self.written_pool();
                let echo =
                    Watched::Present(view.name.clone(), view.version, Box::new(view.clone()));
                let seen = Seen::Pool(Box::new(view));
                let echo = News::Pools(PoolSource::IpGroups, echo);
                (Ok(Answer::Seen(Some(seen))), Some(echo))
            }
            // No Service here has a finalizer, and kube-vip announces none.
            Effect::CleanUp { .. } | Effect::Annotate { .. } | Effect::SetConditions { .. } => {
                (Err(Failure::NotFound), None)
            }
            // Without other writers no live read is needed, and nothing says which node carries an address.
            Effect::Claim { write: Write::Read { .. } | Write::Place { .. }, .. }
            | Effect::LookAtService { .. } => (Err(Failure::NotSent), None),
        }
    }

    fn written_pool(&mut self) -> PoolView {
        self.pool.metadata.resource_version = Some(self.next_version().to_string());
        pool::read(&DeserializeGuard(Ok(self.pool.clone())))
    }

    fn service(&mut self, family: Family, asks: Option<IpAddr>) -> Service {
        self.number = self.number.saturating_add(1);
        let created = Timestamp::from_second(i64::from(self.number)).unwrap_or_default();
        let annotations = asks.map(|addr| (ANNOTATION_ADDRESSES.to_owned(), addr.to_string()));
        Service {
            metadata: ObjectMeta {
                namespace: Some(NAMESPACE.to_owned()),
                name: Some(format!("service-{}", self.number)),
                uid: Some(format!("00000000-0000-0000-0000-{:012}", self.number)),
                resource_version: Some(self.next_version().to_string()),
                creation_timestamp: Some(Time(created)),
                annotations: annotations.map(|annotation| [annotation].into()),
                ..ObjectMeta::default()
            },
            spec: Some(ServiceSpec {
                type_: Some("LoadBalancer".to_owned()),
                ip_families: Some(vec![family.to_string()]),
                ports: Some(vec![ServicePort { port: 443, ..ServicePort::default() }]),
                ..ServiceSpec::default()
            }),
            status: None,
        }
    }

    fn next_version(&mut self) -> u64 {
        self.version = self.version.saturating_add(1);
        self.version
    }

    /// Every watch lists once.
    fn list(&mut self, claims: Vec<Claim>, services: Vec<ServiceView>) {
        let now = Now { wall: Timestamp::UNIX_EPOCH, uptime: self.uptime };
        let pool = self.written_pool();
        let mut hear = |news| drop(self.runner.hear(news, now));
        for claim in claims {
            hear(News::Claims(Watched::Present(claim.addr, claim.version, claim)));
        }
        hear(News::Claims(Watched::ListEnds));
        for service in services {
            hear(News::Services(Watched::Present(service.key.clone(), service.version, service)));
        }
        hear(News::Services(Watched::ListEnds));
        let pool = Watched::Present(pool.name.clone(), pool.version, Box::new(pool));
        hear(News::Pools(PoolSource::IpGroups, pool));
        hear(News::Pools(PoolSource::IpGroups, Watched::ListEnds));
        hear(News::Pools(PoolSource::ConfigMap, Watched::ListEnds));
        hear(News::Namespaces(Watched::ListEnds));
        hear(News::ServiceRanges(Watched::ListEnds));
        hear(News::Nodes(Watched::ListEnds));
        hear(News::ApiServers(Watched::ListEnds));
        hear(News::VirtualIps(Watched::ListEnds));
    }
}

/// The watch's news of a Service.
fn watched(object: &Service) -> News {
    let view = service::read(object);
    News::Services(Watched::Present(view.key.clone(), view.version, view))
}

fn shown(service: &mut Service, addrs: &[IpAddr]) {
    let entries = addrs.iter().map(|addr| LoadBalancerIngress {
        ip: Some(addr.to_string()),
        ip_mode: Some("VIP".to_owned()),
        ..LoadBalancerIngress::default()
    });
    let status = service.status.get_or_insert_with(ServiceStatus::default);
    status.load_balancer = Some(LoadBalancerStatus { ingress: Some(entries.collect()) });
}

fn nth(first: IpAddr, index: u32) -> IpAddr {
    match first {
        IpAddr::V4(first) => Ipv4Addr::from(u32::from(first).saturating_add(index)).into(),
        IpAddr::V6(first) => {
            Ipv6Addr::from(u128::from(first).saturating_add(u128::from(index))).into()
        }
    }
}
