//! The rules that must hold when an attack is over, and those that must hold at every moment of it.
//!
//! The rules are written a second time here, naively and from the objects alone; they share no code with the
//! planner. A toy, which users also write by hand, may show an address that is not its own, but then it must
//! be told, and no other Service may suffer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use landfall_api::{IP, IPGroup, condition, convert, keys, name};
use landfall_ipam::{AddrBlock, AddrRange, Family, clash};

use super::world::{self, is_toy};
use crate::cluster::{History, Snapshot, asked, in_status, key, shown, terms};

/// Moments that nothing excuses: an address was doubled, or was shown by a Service that its claim did not
/// name.
pub(super) fn of_history(history: &History) -> Vec<String> {
    let by_hand = |key: &Option<String>| key.as_deref().is_some_and(is_toy);
    let findings = history.findings().into_iter().filter(|found| !by_hand(&found.shown_by));
    findings.map(|it| it.to_string()).collect()
}

/// Addresses that changed or went, even for a moment, although no user asked for it.
pub(super) fn unasked(history: &History) -> Vec<String> {
    let unasked = history.unasked().into_iter().filter(|unasked| !is_toy(&unasked.service));
    unasked.map(|it| it.to_string()).collect()
}

/// Problems of a cluster at rest, except those that come from what toys show by hand.
pub(super) fn beside_toys(seen: &Snapshot) -> Vec<String> {
    let toys: Vec<_> = seen.services.iter().map(key).filter(|key| is_toy(key)).collect();
    let of_toys = |problem: &String| toys.iter().any(|toy| problem.contains(&format!("/{toy}/")));
    seen.problems().into_iter().filter(|problem| !of_toys(problem)).collect()
}

/// Addresses that a toy shows by hand although they have no claim or another holder, if the toy or the holder
/// is not told.
pub(super) fn untold(seen: &Snapshot) -> Vec<String> {
    let claims = ledger(seen);
    let mut untold = Vec::new();
    for toy in seen.services.iter().filter(|service| is_toy(&key(service)) && is_served(service)) {
        for addr in shown(toy) {
            let Some(claim) = claims.get(&addr) else {
                untold.push(format!("{} shows {addr}, which has no claim", key(toy)));
                continue;
            };
            if names(claim, toy) {
                continue;
            }
            if says(toy).is_none_or(|(status, _)| status != "False") {
                untold.push(format!("{} shows {addr} by hand and is not told", key(toy)));
            }
            for holder in seen.services.iter().filter(|service| names(claim, service)) {
                let told = says(holder)
                    .is_some_and(|(status, reason)| status == "False" || reason == "AlsoShown");
                if !told {
                    let (holder, toy) = (key(holder), key(toy));
                    untold.push(format!("{holder} is not told that {toy} shows its {addr}"));
                }
            }
        }
    }
    untold
}

/// Services that lack an address they could have.
pub(super) fn unserved(seen: &Snapshot, pools: &[IPGroup]) -> Vec<String> {
    let (claims, announced) = (ledger(seen), announced(seen));
    let mut unserved = Vec::new();
    for service in seen.services.iter().filter(|service| is_served(service)) {
        let spec = service.spec.clone().unwrap_or_default();
        let class = spec.load_balancer_class.as_deref();
        let known = pools.iter().any(|pool| pool.spec.load_balancer_class.as_deref() == class);
        if !known {
            continue;
        }
        let families = spec.ip_families.unwrap_or_default();
        let wants: Vec<_> = [Family::V4, Family::V6]
            .into_iter()
            .filter(|family| families.contains(&family.to_string()))
            .map(|family| want(service, family, pools, &claims, &announced))
            .collect();
        let all_or_none = spec.ip_family_policy.as_deref() == Some("RequireDualStack");
        // A Service that is refused the address it asks for may be left without its other addresses.
        let refused = wants
            .iter()
            .any(|want| matches!(want, Want::NotToBeHad { asked } if *asked || all_or_none));
        if !refused {
            for want in &wants {
                if let Want::Missing(what) = want {
                    unserved.push(format!(
                        "{} could have {what}: {:?}",
                        key(service),
                        says(service)
                    ));
                }
            }
        }
    }
    unserved
}

enum Want {
    Had,
    Missing(String),
    NotToBeHad { asked: bool },
}

fn want(
    service: &Service,
    family: Family,
    pools: &[IPGroup],
    claims: &BTreeMap<IpAddr, &IP>,
    announced: &BTreeSet<IpAddr>,
) -> Want {
    let has = shown(service).into_iter().find(|addr| Family::of(*addr) == family);
    let asks: Vec<_> =
        asked(service).into_iter().filter(|addr| Family::of(*addr) == family).collect();
    let may_have = |addr: IpAddr| {
        claims.get(&addr).is_none_or(|claim| open_to(claim, service)) && !announced.contains(&addr)
    };
    let mut open = serving(service, pools).flat_map(|pool| addresses(pool, family));
    match (&*asks, has) {
        ([asks], Some(has)) if *asks == has => Want::Had,
        ([asks], _) => {
            if open.any(|addr| addr == *asks) && may_have(*asks) {
                Want::Missing(format!("{asks}, which it asks for"))
            } else {
                Want::NotToBeHad { asked: true }
            }
        }
        // The request contradicts itself.
        ([_, _, ..], _) => Want::NotToBeHad { asked: true },
        ([], Some(_)) => Want::Had,
        ([], None) => open
            .find(|addr| may_have(*addr))
            .map_or(Want::NotToBeHad { asked: false }, |addr| Want::Missing(addr.to_string())),
    }
}

/// The pools that give this Service addresses.
fn serving<'a>(service: &Service, pools: &'a [IPGroup]) -> impl Iterator<Item = &'a IPGroup> {
    let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.clone());
    let named: Vec<_> =
        keys::entries(&service.metadata, keys::ANNOTATION_POOL).map(str::to_owned).collect();
    let asks = !asked(service).is_empty();
    let namespace = service.namespace().unwrap_or_default();
    pools.iter().filter(move |pool| {
        let meant = if named.is_empty() {
            world::gives(pool, &namespace, asks)
        } else {
            named.contains(&pool.name_any()) && namespace != world::HOSTILE
        };
        pool.spec.load_balancer_class == class && meant && !pool.spec.drain()
    })
}

/// All addresses of a pool. The pools here are small, and their exclusions are undone before any Service is
/// judged.
fn addresses(pool: &IPGroup, family: Family) -> Vec<IpAddr> {
    let blocks = pool.spec.ranges.iter().chain(&pool.spec.segment);
    let ranges = blocks.filter_map(|text| text.parse::<AddrBlock>().ok()).map(AddrBlock::range);
    ranges.filter(|range| range.family() == family).flat_map(all_of).collect()
}

fn all_of(range: AddrRange) -> Vec<IpAddr> {
    match (range.first(), range.last()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            (u32::from(first)..=u32::from(last)).map(|n| Ipv4Addr::from(n).into()).collect()
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => {
            (u128::from(first)..=u128::from(last)).map(|n| Ipv6Addr::from(n).into()).collect()
        }
        // A range is of one family.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => Vec::new(),
    }
}

/// Whether a Service may have a claim's address: it is reserved for it, or all its holders would share.
fn open_to(claim: &IP, service: &Service) -> bool {
    let namespace = service.namespace().unwrap_or_default();
    let mine = terms(service);
    let reserved = claim.spec.reserved_for.as_ref();
    let kept = reserved.is_some_and(|reserved| {
        let name = reserved.name.as_deref();
        reserved.namespace == namespace && name.is_none_or(|name| name == service.name_any())
    });
    if claim.spec.holders.is_empty() {
        return kept;
    }
    (reserved.is_none() || kept)
        && claim.spec.holders.iter().filter(|holder| holder.uid != service.uid()).all(|holder| {
            let theirs = convert::holder_terms(holder);
            let there = holder.namespace.as_deref().unwrap_or_default();
            clash((&namespace, mine.as_ref()), (there, theirs.as_ref())).is_none()
        })
}

fn ledger(seen: &Snapshot) -> BTreeMap<IpAddr, &IP> {
    let claims = seen.claims.iter();
    claims.filter_map(|claim| Some((name::parse(&claim.name_any()).ok()?, claim))).collect()
}

/// Addresses in the status of Services that have an annotation for kube-vip: only kube-vip writes there, and
/// so it announces them, whatever the annotation says now.
fn announced(seen: &Snapshot) -> BTreeSet<IpAddr> {
    let annotated = seen.services.iter().filter(|service| {
        let annotations = service.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(keys::ANNOTATION_KUBE_VIP_ADDRESSES))
    });
    let announced = annotated.flat_map(|service| {
        let shown = shown(service);
        in_status(service).into_iter().filter(move |addr| !shown.contains(addr))
    });
    announced.collect()
}

fn names(claim: &IP, service: &Service) -> bool {
    claim.spec.holders.iter().any(|holder| holder.uid == service.uid())
}

fn is_served(service: &Service) -> bool {
    let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
    kind == Some("LoadBalancer") && service.metadata.deletion_timestamp.is_none()
}

/// Status and reason of the operator's condition on a Service.
fn says(service: &Service) -> Option<(&str, &str)> {
    let conditions = service.status.as_ref()?.conditions.as_deref()?;
    let said = condition::get(conditions, keys::CONDITION_ALLOCATED)?;
    Some((&said.status, &said.reason))
}

#[cfg(test)]
mod tests;
