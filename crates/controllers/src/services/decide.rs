//! What one Service should have, given everything known. Pure; changes nothing.

use std::{net::IpAddr, sync::Arc};

use landfall_api::{Holder, words};
use landfall_ipam::{Clash, Family, PoolName, Refusal, Verdict};

pub(super) use self::pools::place;
use self::pools::{
    Candidate, candidates, is_meant_for, is_open_to, may_ask_beyond_pools, serves, specific,
    within_quota,
};
use super::{
    view::{ClaimView, HolderView, Place, Request, ServiceView},
    world::{Busy, World},
};

mod pools;

/// What to do for one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Not ours: another class, or an address somebody else's program gave it outside every pool.
    LeaveAlone,
    /// An address it needs is in the middle of a write; look again when that is over.
    Later,
    /// Take these addresses for it, then decide again.
    Take(Vec<Given>),
    /// What it asks for contradicts what its user had it show since. Write over it what it shows.
    Follow,
    /// It should show exactly these addresses; what could not be had stands beside them. It may be
    /// satisfied all the same: one family of two is what `PreferDualStack` puts up with.
    Show { addrs: Vec<IpAddr>, refusals: Vec<Refusal>, satisfied: bool },
    /// It shows an address that belongs to somebody else. Nobody is moved, both are told.
    Disputed(Refusal),
}

/// An address, and the pool that gives it, if one does.
pub(super) type Given = (IpAddr, Option<PoolName>);
/// Addresses to take.
type Takes = [Given];

/// Whether it stands for "ask DHCP" where an address should stand. Nobody has it, and everybody may.
pub(super) const fn is_lease(addr: IpAddr) -> bool {
    addr.is_unspecified()
}

/// What one family of a Service comes to.
enum Slot {
    Has(IpAddr),
    Takes(IpAddr, Option<PoolName>),
    Nothing(Refusal),
    /// One that it has in any case; which one is known when a call under way has ended.
    Settling,
    /// One that it will have if a call under way goes well.
    Soon,
    /// Nobody knows before a call under way has ended.
    Later,
    Foreign,
    Disputed(Refusal),
    Follow,
    /// Whatever DHCP will give it for this.
    Leased(IpAddr),
}

/// Decides for a Service of type `LoadBalancer` that is not being deleted.
pub(super) fn decide(world: &World, service: &ServiceView) -> Decision {
    let claims = world.claims_of(service);
    // Also one that it may not keep makes it ours: it is for us to take it away.
    let known_class =
        world.serves_class(service.class.as_ref()) || world.claims_naming(service).next().is_some();
    if !known_class {
        return Decision::LeaveAlone;
    }
    if claims.is_empty() && service.shows_other {
        return Decision::LeaveAlone;
    }
    let mut addrs = Vec::new();
    let mut takes = Vec::new();
    let mut refusals = Vec::new();
    let mut in_vain = false;
    let mut settling: usize = 0;
    let mut soon: usize = 0;
    let mut again: usize = 0;
    let mut later = false;
    for family in &service.families {
        let is_unwanted = service.unwanted == Some(*family);
        if is_unwanted && !is_written_by_hand(service, &claims, *family) {
            continue;
        }
        let (slot, refusal) = slot(world, service, &claims, *family, &takes);
        in_vain |= service.request.is_about(*family)
            && (refusal.is_some() || matches!(slot, Slot::Nothing(_)));
        refusals.extend(refusal.filter(|refusal| !refusals.contains(refusal)));
        match slot {
            Slot::Has(addr) => addrs.push(addr),
            // No pool would give it that one, and so it stays as it was written.
            Slot::Takes(addr, pool) => takes.push((addr, pool.filter(|_| !is_unwanted))),
            Slot::Nothing(refusal) => refusals.push(refusal),
            Slot::Settling => settling = settling.saturating_add(1),
            Slot::Soon => soon = soon.saturating_add(1),
            Slot::Later => later = true,
            Slot::Foreign => return Decision::LeaveAlone,
            Slot::Disputed(refusal) => return Decision::Disputed(refusal),
            Slot::Follow => return Decision::Follow,
            // One lease may do for both families.
            Slot::Leased(lease) if addrs.contains(&lease) => again = again.saturating_add(1),
            Slot::Leased(lease) => addrs.push(lease),
        }
    }
    let possible = [addrs.len(), takes.len(), settling, soon, again]
        .into_iter()
        .fold(0, usize::saturating_add);
    let incomplete = possible < service.families.len();
    if service.require_all && (incomplete || soon > 0 || later) {
        // All or nothing new: what it might have soon may be somebody else's by then. What it has or
        // shows already is not taken away for that.
        takes.retain(|(addr, _)| service.shows.contains(addr));
        let leased = |family: Family| {
            let mut shown = service.shows.iter().copied();
            shown.find(|addr| is_lease(*addr) && Family::of(*addr) == family)
        };
        // One that it asks for and has a claim on is nobody else's, and cannot be released either.
        let asked = |family: Family| {
            let asked = service.request.of(family);
            asked.filter(|addr| claims.iter().any(|claim| claim.addr == *addr))
        };
        let families = service.families.iter().copied();
        let has = |family| {
            let other = || current(service, &claims, family);
            leased(family).or_else(|| asked(family)).or_else(other)
        };
        addrs = families.filter_map(has).collect();
        later |= addrs.iter().any(|addr| world.is_busy(*addr));
    }
    // Also if another family must wait: somebody younger might take it meanwhile.
    if !takes.is_empty() {
        return Decision::Take(takes);
    }
    if later || soon > 0 || settling > 0 {
        return Decision::Later;
    }
    let puts_up = !addrs.is_empty() && !in_vain && !service.require_all;
    let satisfied = refusals.is_empty() || puts_up;
    Decision::Show { addrs, refusals, satisfied }
}

/// Whether the Service shows an address of the family that no pool gave it.
fn is_written_by_hand(service: &ServiceView, claims: &[&ClaimView], family: Family) -> bool {
    let mut shown = service.shows.iter().filter(|addr| Family::of(**addr) == family);
    shown.any(|addr| !claims.iter().any(|claim| claim.addr == *addr && claim.pool.is_some()))
}

/// The address of one family, and a refused request beside it, if any.
fn slot(
    world: &World,
    service: &ServiceView,
    claims: &[&ClaimView],
    family: Family,
    takes: &Takes,
) -> (Slot, Option<Refusal>) {
    let shown = service.shows.iter().copied().find(|addr| Family::of(*addr) == family);
    let lost = shown.and_then(|addr| no_longer_shared(world, service, addr));
    let its_own = |addr: &IpAddr| claims.iter().any(|claim| claim.addr == *addr);
    let asks_for_another = |addr: &IpAddr| {
        !service.at_odds && service.request.of(family).is_some_and(|asked| asked != *addr)
    };
    let written = shown.filter(|addr| {
        service.place == Place::Annotation
            && lost.is_none()
            && !its_own(addr)
            && !asks_for_another(addr)
    });
    if let Some(addr) = written {
        let problem = match &service.request {
            Request::Bad(refusal) => Some(refusal.clone()),
            Request::Any | Request::Addresses(_) => None,
        };
        return (written_by_its_user(world, service, addr), problem);
    }
    let refused = match &service.request {
        Request::Bad(refusal) => Some(refusal.clone()),
        Request::Any => None,
        Request::Addresses(_) => match service.request.of(family) {
            None => None,
            Some(addr) if claims.iter().any(|claim| claim.addr == addr) => {
                return (has(world, service, addr), None);
            }
            Some(addr) if is_lease(addr) && place(world, service, &[]) == Place::Annotation => {
                return (Slot::Leased(addr), None);
            }
            Some(addr) if world.is_busy(addr) => {
                // Until that is known it keeps the one it has.
                let kept = current(service, claims, family).filter(|kept| !world.is_busy(*kept));
                return (kept.map_or(Slot::Later, |_| Slot::Settling), None);
            }
            Some(addr) => match specific(world, service, addr, takes) {
                Ok(pool) => return (Slot::Takes(addr, Some(pool)), None),
                Err(refusal) if may_ask_beyond_pools(world, service, addr, &refusal) => {
                    return (Slot::Takes(addr, None), None);
                }
                Err(refusal) => Some(refusal),
            },
        },
    };
    // What it shows comes before what claims of the original operator keep for it: it leaves some
    // behind. What a claim of ours keeps comes first, because then somebody else changed what is
    // shown; or that claim is unknown here, and is read before anything is withdrawn.
    let kept = claims.iter().filter(|claim| Family::of(claim.addr) == family).any(|claim| {
        let ours = claim.holder(service).is_some_and(|holder| !holder.legacy);
        ours || service.shows.contains(&claim.addr)
    });
    let to_adopt = shown.filter(|_| lost.is_none() && !kept);
    let known = |addr: &IpAddr| world.claim(*addr).is_some() || world.book.pool_of(*addr).is_some();
    if let Some(addr) = to_adopt.filter(known) {
        return (adopt(world, service, addr), refused);
    }
    if let Some(addr) = current(service, claims, family) {
        return (has(world, service, addr), refused.or(lost));
    }
    if to_adopt.is_some() {
        return (Slot::Foreign, refused);
    }
    if let Some(refusal) = refused {
        return (Slot::Nothing(refusal), None);
    }
    let slot = match world.kept_for(service, family) {
        Some((addr, pool)) => {
            under_way(world, addr).unwrap_or_else(|| Slot::Takes(addr, Some(pool.clone())))
        }
        None => chosen(world, service, family, takes),
    };
    (slot, lost)
}

/// Why the Service may not keep an address that a claim gives it together with others.
///
/// It changed its ports, key or consent so that they clash with theirs, and whoever changes leaves:
/// as long as it showed the address, two Services would answer for one port.
fn no_longer_shared(world: &World, service: &ServiceView, addr: IpAddr) -> Option<Refusal> {
    let claim = world.claim(addr).filter(|claim| claim.holder(service).is_some())?;
    claim.clash(service).map(|(holder, clash)| sharing_refused(addr, holder, clash))
}

fn sharing_refused(addr: IpAddr, holder: &HolderView, clash: Clash) -> Refusal {
    Refusal::SharingRefused(addr, format!("Service {}", holder.key), clash)
}

/// The Service with the terms on which it may share: its own, else those of a namespace that lets all
/// its Services share, as long as it does and for as long after as the Service has an address so.
pub(super) fn with_terms(world: &World, mut service: ServiceView) -> ServiceView {
    let by_leave = || {
        let recorded = world.claims_naming(&service).filter_map(|claim| claim.holder(&service));
        let mut recorded = recorded.map(HolderView::shares_by_map);
        recorded.any(|by_map| by_map)
            || (world.lets_share(service.key.namespace())
                && place(world, &service, &[]) == Place::Annotation)
    };
    if service.terms.is_none() && by_leave() {
        service.terms = Some(Arc::clone(&service.terms_by_map));
    }
    service
}

/// An address to share, else a free one, of the pools that are asked first. Those that are asked next
/// are only for who finds neither there.
fn chosen(world: &World, service: &ServiceView, family: Family, takes: &Takes) -> Slot {
    let mut verdicts = Vec::new();
    for pools in candidates(world, service) {
        if let Some(slot) = shared(world, service, family, takes, &pools) {
            return slot;
        }
        match any(world, service, family, takes, pools) {
            Ok(slot) => return slot,
            Err(more) => verdicts.extend(more),
        }
    }
    Slot::Nothing(Refusal::NoneGives(family, verdicts))
}

/// The first address in these pools, in the order of the first one, of those with the Service's
/// sharing key that it may share.
fn shared(
    world: &World,
    service: &ServiceView,
    family: Family,
    takes: &Takes,
    pools: &[Candidate<'_>],
) -> Option<Slot> {
    let key = service.terms.as_ref()?.key.as_ref()?;
    if key == words::SHARING_KEY_BY_MAP && family == Family::V6 {
        return None;
    }
    let addrs = world.sharing.of(key);
    let mut addrs: Vec<_> = addrs.filter(|addr| Family::of(**addr) == family).collect();
    let mut views = pools.iter().filter_map(|(_, view)| *view);
    let first = views.find(|view| is_meant_for(world, view, service));
    if first.and_then(|view| view.pool.as_ref().ok()).is_some_and(|pool| pool.descending) {
        addrs.reverse();
    }
    for addr in addrs {
        // Whoever takes it now may be one to share it with. If not, there is nothing to wait for,
        // and somebody younger might take what is left meanwhile.
        let claim = world.claim_to_be(*addr);
        if claim.is_none_or(|claim| may_be_given(world, claim, service).is_err()) {
            continue;
        }
        let served = pools.iter().find_map(|(name, view)| {
            let view = (*view).filter(|view| is_open_to(view, service))?;
            serves(world, view, service).ok()?;
            within_quota(world, view, service, Some(*addr), takes).ok()?;
            world.book.offers(name, *addr).ok()?;
            Some(name)
        });
        if let Some(pool) = served {
            let takes = Slot::Takes(*addr, Some(pool.clone()));
            return Some(under_way(world, *addr).unwrap_or(takes));
        }
    }
    None
}

/// A claimed address, unless a call about its claim is under way.
fn has(world: &World, service: &ServiceView, addr: IpAddr) -> Slot {
    match world.busy.get(&addr) {
        Some(Busy::Writing(Some(to_be))) if to_be.holder(service).is_some() => Slot::Settling,
        _ => under_way(world, addr).unwrap_or(Slot::Has(addr)),
    }
}

/// What an address comes to that a Service can have once a call about its claim has ended, if there
/// is one.
fn under_way(world: &World, addr: IpAddr) -> Option<Slot> {
    Some(match world.busy.get(&addr)? {
        Busy::Writing(_) => Slot::Soon,
        Busy::Looking { .. } => Slot::Later,
    })
}

/// The claimed address that the Service shows, else the lowest one kept for it.
fn current(service: &ServiceView, claims: &[&ClaimView], family: Family) -> Option<IpAddr> {
    let mut of_family: Vec<IpAddr> =
        claims.iter().map(|claim| claim.addr).filter(|addr| Family::of(*addr) == family).collect();
    of_family.sort_unstable();
    let shown = of_family.iter().copied().find(|addr| service.shows.contains(addr));
    shown.or_else(|| of_family.first().copied())
}

/// Enters an address that the Service shows already, whoever gave it, into the ledger.
fn adopt(world: &World, service: &ServiceView, addr: IpAddr) -> Slot {
    if world.is_busy(addr) {
        return Slot::Later;
    }
    if let Some(claim) = world.claim(addr) {
        if claim.left_by_namesake(service) {
            return Slot::Has(addr);
        }
        if let Err(refusal) = may_join(world, claim, service) {
            return Slot::Disputed(refusal);
        }
    }
    let pool = world.book.pool_of(addr).map(|pool| pool.name.clone());
    pool.map_or(Slot::Foreign, |pool| Slot::Takes(addr, Some(pool)))
}

/// Whether the Service may have an address together with those who have it.
fn may_join(world: &World, claim: &ClaimView, service: &ServiceView) -> Result<(), Refusal> {
    let addr = claim.addr;
    let full = claim.holders().len() >= Holder::MOST;
    // Who shares by leave of its namespace needs that of all the others' as well.
    let by_leave =
        |holder: &HolderView| !holder.shares_by_map() || world.lets_share(holder.key.namespace());
    let all_agree = claim.holders().iter().all(by_leave);
    if claim.holders().is_empty() || service.terms.is_none() || full || !all_agree {
        return Err(Refusal::TakenBy(addr, claim.described()));
    }
    if let Some(kept) = claim.reserved.as_ref().filter(|kept| !kept.is_for(&service.key)) {
        return Err(Refusal::Reserved(addr, kept.to_string()));
    }
    let clash = claim.clash(service);
    clash.map_or(Ok(()), |(holder, clash)| Err(sharing_refused(addr, holder, clash)))
}

/// Whether it may be given to the Service, too: what somebody outside the ledger has never is.
fn may_be_given(world: &World, claim: &ClaimView, service: &ServiceView) -> Result<(), Refusal> {
    may_join(world, claim, service)?;
    let outsider = world.outsider(claim.addr);
    outsider.map_or(Ok(()), |outsider| Err(Refusal::TakenBy(claim.addr, outsider)))
}

/// The first free address, in its own order, of the first of these pools that serves the Service and
/// has one, or what they say.
fn any(
    world: &World,
    service: &ServiceView,
    family: Family,
    takes: &Takes,
    pools: Vec<Candidate<'_>>,
) -> Result<Slot, Vec<(PoolName, Verdict)>> {
    let mut verdicts = Vec::new();
    for (name, view) in pools {
        let given = view.ok_or(Verdict::Missing).and_then(|view| {
            serves(world, view, service)?;
            if let Some(lease) = view.leases.of(family) {
                return Ok(lease);
            }
            let first = world.book.first_free(&name, family, service.pools.is_some());
            // A quota is in the way only of what the pool would give.
            if matches!(first, Ok(_) | Err(Verdict::Full(_))) {
                within_quota(world, view, service, None, takes)?;
            }
            first
        });
        match given {
            Ok(lease) if is_lease(lease) => return Ok(Slot::Leased(lease)),
            Ok(addr) => return Ok(Slot::Takes(addr, Some(name))),
            Err(verdict) => verdicts.push((name, verdict)),
        }
    }
    Err(verdicts)
}

/// An address that stands where the Service is announced from, and that it has no claim on: its user
/// wrote it there, or an operator we replace.
fn written_by_its_user(world: &World, service: &ServiceView, addr: IpAddr) -> Slot {
    if is_lease(addr) {
        return Slot::Leased(addr);
    }
    let kept = world.claim(addr).and_then(ClaimView::waits_for);
    let slot = if kept.is_some_and(|kept| kept.is_for(&service.key)) && !world.is_busy(addr) {
        Slot::Takes(addr, world.book.pool_of(addr).map(|pool| pool.name.clone()))
    } else {
        adopt(world, service, addr)
    };
    // What is outside every pool is announced whatever we say: nobody else may get it.
    let slot = if matches!(slot, Slot::Foreign) { Slot::Takes(addr, None) } else { slot };
    let had = matches!(slot, Slot::Has(_) | Slot::Takes(..));
    if had && service.at_odds { Slot::Follow } else { slot }
}

#[cfg(test)]
mod tests {
    use super::super::{fixtures::service, world::AnnotatedServices};
    use super::*;

    #[test]
    fn a_class_without_any_pool_is_served_only_if_it_is_one_that_kube_vip_has_pools_for() {
        let (ours, other) = ("kube-vip.io/kube-vip-class", "example.com/other");
        let bare = service("shop/web");
        for classes in [&[None][..], &[Some(ours)], &[Some(other)], &[None, Some(ours)], &[]] {
            let annotated = AnnotatedServices {
                classes: classes.iter().copied().collect(),
                ..Default::default()
            };
            let world = World::new(annotated);
            for class in [None, Some(ours), Some(other)] {
                let service = class.into_iter().fold(bare.clone(), ServiceView::of_class);
                let left_alone = matches!(decide(&world, &service), Decision::LeaveAlone);
                assert_eq!(left_alone, !classes.contains(&class), "{classes:?}, {class:?}");
            }
        }
    }
}
