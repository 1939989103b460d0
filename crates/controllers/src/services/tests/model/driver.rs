//! Carries out the acts of a story in the simulated cluster.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use jiff::SignedDuration;
use kube::core::Selector;
use landfall_api::{HolderKind, Quota, kube_vip};
use landfall_ipam::{AddrBlock, Family, PoolName, Refusal};

use super::{
    super::sim::Sim,
    acts::{Act, NODES, Name, Rank, Scope, Stack},
    reference::{Model, Pool},
};
use crate::{
    cluster::{
        classes::Classes,
        pool::{self, PoolView},
        service::{Place, Request},
    },
    ledger::Reservation,
    object::ObjectKey,
    sim::Foreign,
};

/// The label that selectors require.
const LABEL: (&str, &str) = ("zone", "public");

/// Carries out one act, and then everything that follows from it at once. The new state of what a user writes
/// is read from the model, which has it already.
pub(super) fn happen(sim: &mut Sim, act: &Act, after: &Model) {
    if after.ignores(act) {
        return;
    }
    let cluster = &mut sim.cluster;
    match act {
        Act::Create(name, terms) => {
            if !cluster.services.contains_key(&ObjectKey::parse(name).unwrap()) {
                cluster.create_service(name);
                cluster.edit_service(name, |stored| {
                    stored.view.terms = terms.clone().map(Arc::new);
                });
            }
        }
        Act::Delete(name) => cluster.delete_service(name),
        Act::BeginDeletion(name) => {
            cluster.edit_service(name, |stored| stored.view.deleting = true);
        }
        Act::Recreate(name) => cluster.recreate_service(name),
        Act::Type(name, load_balancer) => {
            cluster.edit_service(name, |stored| stored.load_balancer = *load_balancer);
        }
        Act::Class(name, class) => change_class(sim, name, class.map(Arc::from)),
        Act::Stack(name, _) | Act::Ask(name, _) => cluster.edit_service(name, |stored| {
            let service = &after.services[name];
            stored.view.families = service.stack.families();
            stored.view.require_all = service.stack == Stack::Require;
            stored.view.request = request(&service.asks, &stored.view.families);
        }),
        Act::AskPools(name, pools) => cluster.edit_service(name, |stored| {
            let names = pools.iter().map(|pool| PoolName::new(pool));
            stored.view.pools = (!pools.is_empty()).then(|| names.collect());
        }),
        Act::LabelService(name, on) => cluster.edit_service(name, |stored| {
            let (key, value) = LABEL;
            let label = on.then(|| (key.to_owned(), value.to_owned()));
            stored.view.labels = label.into_iter().collect();
        }),
        Act::Share(name, terms) => cluster.edit_service(name, |stored| {
            stored.view.terms = terms.clone().map(Arc::new);
        }),
        Act::LabelNamespace(name, on) => {
            cluster.label_namespace(name, if *on { &[LABEL] } else { &[] });
        }
        Act::EditPool(name, _) => {
            cluster.put_pool(&PoolName::new(name), |view| write_pool(view, &after.pools[name]));
        }
        Act::DeletePool(name) => cluster.delete_pool(&PoolName::new(name)),
        Act::Reserve { addr, namespace, name, ends_in } => {
            let expires = ends_in.map(|seconds| sim.wall() + SignedDuration::from_secs(seconds));
            let (namespace, name) = ((*namespace).to_owned(), name.map(str::to_owned));
            sim.cluster.reserve(
                *addr,
                Reservation {
                    kind: HolderKind::Service,
                    namespace,
                    name,
                    expires,
                    retained: false,
                },
            );
        }
        Act::Unreserve(addr) => {
            if cluster.claims.get(addr).is_some_and(|claim| claim.waits_for().is_some()) {
                cluster.delete_claim(*addr);
            }
        }
        Act::Node(name, addrs) => cluster.set_foreign(&node(name), addrs),
        Act::PassTime(seconds) => sim.pass_time(Duration::from_secs(seconds.unsigned_abs())),
        Act::Restart => sim.crash(0),
    }
    sim.quiet();
}

/// As the API server allows it: only together with a change of type, which also empties the status. An
/// annotation is removed by the operator in between.
fn change_class(sim: &mut Sim, name: Name, class: Option<Arc<str>>) {
    let stored = sim.cluster.services.get(&ObjectKey::parse(name).unwrap());
    let Some(stored) = stored.filter(|stored| stored.load_balancer) else { return };
    if stored.view.class == class {
        return;
    }
    if stored.view.place == Place::Annotation {
        sim.cluster.edit_service(name, |stored| stored.load_balancer = false);
        sim.quiet();
    }
    sim.cluster.edit_service(name, |stored| {
        stored.load_balancer = true;
        stored.view.shows.clear();
        stored.view.class = class;
    });
}

/// Lets a moment pass, because a pool's status is written at most once a second.
pub(super) fn pass_a_moment(sim: &mut Sim) {
    for _ in 0..2 {
        sim.pass_time(Duration::from_secs(1));
        sim.quiet();
    }
}

fn node(name: Name) -> Foreign {
    // One of them as the API server's: only the address matters.
    if name == NODES[0] {
        Foreign::Node(name.to_owned())
    } else {
        Foreign::ApiServer(name.to_owned())
    }
}

/// The request of a Service that asks for these addresses.
fn request(addrs: &[IpAddr], families: &[Family]) -> Request {
    let mut asked: BTreeMap<Family, IpAddr> = BTreeMap::new();
    for addr in addrs {
        let family = Family::of(*addr);
        if !families.contains(&family) {
            return Request::Bad(Refusal::WrongFamily(*addr));
        }
        let other = *asked.entry(family).or_insert(*addr);
        if other != *addr {
            return Request::Bad(Refusal::TwoOfOneFamily(other, *addr));
        }
    }
    if asked.is_empty() { Request::Any } else { Request::Addresses(asked.into_values().collect()) }
}

fn write_pool(view: &mut PoolView, pool: &Pool) {
    let four = pool.v4.map(|(first, last)| format!("10.0.0.{first}-10.0.0.{last}"));
    let six = pool.v6.map(|(first, last)| format!("fd00::{first}-fd00::{last}"));
    let blocks: Vec<AddrBlock> =
        four.iter().chain(&six).map(|text| text.parse().unwrap()).collect();
    let excluded: Vec<AddrBlock> =
        pool.excluded.iter().map(|addr| addr.to_string().parse().unwrap()).collect();
    let mut written = landfall_ipam::Pool::new(view.name.clone(), blocks.clone(), excluded);
    if pool.avoid_ends {
        written = written.avoid_ends(blocks);
    }
    written.priority = pool.priority;
    written.auto_assign = pool.gives_unasked();
    written.drain = pool.drain;
    view.pool = if pool.broken { Err(vec!["it cannot be read".to_owned()]) } else { Ok(written) };
    let selector = || Selector::from_iter([LABEL]);
    view.namespaces = pool.some_namespaces.then(selector);
    view.services = pool.some_services.then(selector);
    view.scope = pool.scope.map(|scope| match scope {
        Scope::Only(name) => kube_vip::Scope::OnlyOne(name.to_owned()),
        Scope::AllBut(name) => kube_vip::Scope::AllBut([name.to_owned()].into()),
    });
    view.rank = match pool.rank {
        Rank::OfNamespace => pool::Rank::OfNamespace,
        Rank::Usual => pool::Rank::Usual,
        Rank::Rest => pool::Rank::Fallback,
        Rank::OnRequest => pool::Rank::OnRequest,
    };
    view.falls_back = pool.falls_back;
    view.classes = Classes::only(pool.class);
    let limit = |limit: u32| i32::try_from(limit).unwrap();
    let (each, shop) = pool.quota;
    view.quota = Some(Quota {
        per_namespace: each.map(limit),
        namespaces: shop.map(|shop| ("shop".to_owned(), limit(shop))).into_iter().collect(),
    });
    view.retain_for = pool.retain_for.map(|seconds| Duration::from_secs(seconds.unsigned_abs()));
}
