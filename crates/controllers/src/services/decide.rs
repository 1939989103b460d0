//! Decides which addresses one Service should have. Pure; changes nothing.

use std::{net::IpAddr, sync::Arc};

use landfall_api::{Holder, keys};
use landfall_ipam::{Clash, Family, PoolName, Refusal, Verdict};

use self::pools::{
    Candidate, Grant, candidates, is_meant_for, is_open_to, may_ask_beyond_pools, serves, specific,
    within_quota,
};
pub(super) use self::{
    pools::{awaited, place},
    shown::is_known,
};
use super::{audience::Audience, wish::could_want, world::World};
use crate::{
    cluster::service::{Balancer, Place, Request},
    ledger::{Claim, HolderEntry, Phase},
};

mod pools;
mod shown;

/// What to do for one Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Not ours: another class, or an address outside every pool that another program gave it.
    LeaveAlone,
    /// A call about an address it needs is in flight; decide again when it has ended.
    Later,
    /// Take these addresses for it, then decide again.
    Take(Vec<Given>),
    /// Its user made it show other addresses than it asks for. Write those over the request.
    Follow,
    /// It should show exactly these addresses, with refusals for those it could not have. It may be
    /// satisfied all the same: `PreferDualStack` accepts one family of two.
    Show { addrs: Vec<IpAddr>, refusals: Vec<Refusal>, satisfied: bool },
    /// It shows an address that belongs to another. Neither is moved, both are told.
    Disputed(Refusal),
    /// Its namespace has reached its quota, and this address waits for a deleted Service. Free it,
    /// then decide again.
    FreeRetained(IpAddr),
}

/// An address, and the pool that gives it, if one does.
pub(super) type Given = (IpAddr, Option<PoolName>);
/// Addresses to take.
type Takes = [Given];

/// Whether it means "ask DHCP" instead of an address. It is never taken, and any Service may have it.
pub(super) const fn is_lease(addr: IpAddr) -> bool {
    addr.is_unspecified()
}

/// Whether this address gives the Service a lease: only kube-vip asks DHCP, and it reads the
/// annotation.
fn is_leased(service: &Balancer, addr: IpAddr) -> bool {
    service.place == Place::Annotation && is_lease(addr)
}

/// The result for one family of a Service.
enum Slot {
    Has(IpAddr),
    Takes(IpAddr, Option<PoolName>),
    Nothing(Refusal),
    /// It has an address in any case; which one is known when the call in flight has ended.
    Settling,
    /// It will have an address if the call in flight succeeds.
    Soon,
    /// Unknown until the call in flight has ended.
    Later,
    Foreign,
    Disputed(Refusal),
    Follow,
    /// The address that DHCP gives it for this one.
    Leased(IpAddr),
    /// An address, once this one, which waits for a deleted Service, is given up.
    After(IpAddr),
}

/// Decides for a Service of type `LoadBalancer` that is not being deleted.
pub(super) fn decide(world: World<'_>, service: &Balancer) -> Decision {
    let claims = world.claims_of(service);
    // Even a claim that it may not keep makes it ours: we have to release it.
    let known_class =
        world.serves_class(service.class.as_ref()) || world.claims_naming(service).next().is_some();
    if !known_class {
        return Decision::LeaveAlone;
    }
    if claims.is_empty() && service.ingress_has_hostname {
        return Decision::LeaveAlone;
    }
    let mut addrs = Vec::new();
    let mut takes = Vec::new();
    let mut refusals = Vec::new();
    let mut request_refused = false;
    let mut settling: usize = 0;
    let mut soon: usize = 0;
    let mut again: usize = 0;
    let mut later = false;
    let mut beside = Vec::new();
    for family in &service.families {
        let is_extra_family = service.extra_family == Some(*family);
        if is_extra_family && !is_written_by_hand(service, &claims, *family) {
            continue;
        }
        let (slot, refusal) = slot(world, service, &claims, *family, &takes);
        let in_other_pools = matches!(refusal, Some(Refusal::NoneGives(..)));
        request_refused |= in_other_pools
            || (service.request.is_about(*family)
                && (refusal.is_some() || matches!(slot, Slot::Nothing(_))));
        if let Slot::Has(addr) | Slot::Takes(addr, _) = slot {
            beside.extend(shown::beside(world, service, &claims, addr));
        }
        refusals.extend(refusal.filter(|refusal| !refusals.contains(refusal)));
        match slot {
            Slot::Has(addr) => addrs.push(addr),
            // No pool would give it an extra family, so the address stays as its user wrote it.
            Slot::Takes(addr, pool) => takes.push((addr, pool.filter(|_| !is_extra_family))),
            Slot::Nothing(refusal) => refusals.push(refusal),
            Slot::Settling => settling = settling.saturating_add(1),
            Slot::Soon => soon = soon.saturating_add(1),
            Slot::Later => later = true,
            Slot::Foreign => return Decision::LeaveAlone,
            Slot::Disputed(refusal) => return Decision::Disputed(refusal),
            Slot::Follow => return Decision::Follow,
            Slot::After(retained) => return Decision::FreeRetained(retained),
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
        // All or nothing new: an address that it may have soon could be another's by then. It keeps
        // those that it has or shows already.
        takes.retain(|(addr, _)| service.shows.contains(addr));
        let leased = |family: Family| {
            let mut shown = service.shows.iter().copied();
            shown.find(|addr| is_leased(service, *addr) && Family::of(*addr) == family)
        };
        // An address that it asks for and has a claim on belongs to no other, and cannot be released.
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
        later |= addrs.iter().any(|addr| world.is_in_flight(*addr));
    }
    for slot in beside {
        match slot {
            Slot::Has(addr) => addrs.push(addr),
            Slot::Takes(addr, pool) => takes.push((addr, pool)),
            Slot::Disputed(refusal) => return Decision::Disputed(refusal),
            Slot::Settling
            | Slot::Soon
            | Slot::Later
            | Slot::Nothing(_)
            | Slot::Foreign
            | Slot::Follow
            | Slot::Leased(_)
            | Slot::After(_) => later = true,
        }
    }
    // Even if another family must wait: a younger Service might take it meanwhile.
    if !takes.is_empty() {
        return Decision::Take(takes);
    }
    if later || soon > 0 || settling > 0 {
        return Decision::Later;
    }
    let puts_up = !addrs.is_empty() && !request_refused && !service.require_all;
    let satisfied = refusals.is_empty() || puts_up;
    Decision::Show { addrs, refusals, satisfied }
}

/// Whether the Service shows an address of the family that no pool gave it.
fn is_written_by_hand(service: &Balancer, claims: &[&Claim], family: Family) -> bool {
    let mut shown = service.shows.iter().filter(|addr| Family::of(**addr) == family);
    shown.any(|addr| !claims.iter().any(|claim| claim.addr == *addr && claim.pool.is_some()))
}

/// The address of one family, and a refused request beside it, if any.
fn slot(
    world: World<'_>,
    service: &Balancer,
    claims: &[&Claim],
    family: Family,
    takes: &Takes,
) -> (Slot, Option<Refusal>) {
    let shown = shown::of_family(world, service, claims, family);
    // In a status it is neither a lease nor an address. If one of our pools covers it, an earlier
    // version of ours gave it.
    let is_nothing = |addr: &IpAddr| {
        is_lease(*addr) && !is_leased(service, *addr) && world.ledger.book.pool_of(*addr).is_some()
    };
    let shown = shown.filter(|addr| !is_nothing(addr));
    let lost = shown.and_then(|addr| no_longer_shared(world, service, addr));
    let its_own = |addr: &IpAddr| claims.iter().any(|claim| claim.addr == *addr);
    let asks_for_another = |addr: &IpAddr| {
        !service.spec_contradicts_annotation
            && service.request.of(family).is_some_and(|asked| asked != *addr)
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
        return (shown::annotated(world, service, addr, takes), problem);
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
            Some(addr) if world.is_in_flight(addr) => {
                // Until the call has ended it keeps the address it has.
                let kept =
                    current(service, claims, family).filter(|kept| !world.is_in_flight(*kept));
                return (kept.map_or(Slot::Later, |_| Slot::Settling), None);
            }
            Some(addr) => match requested(world, service, addr, takes) {
                Ok(slot) => return (slot, None),
                Err(refusal) => Some(refusal),
            },
        },
    };
    // The shown address comes before claims of the original operator, which leaves some behind. Our own
    // claim comes first, because then another program changed the shown address; or our claim is
    // unknown here, and is read before anything is withdrawn.
    let kept = claims.iter().filter(|claim| Family::of(claim.addr) == family).any(|claim| {
        let ours = claim.holder(service).is_some_and(|holder| !holder.legacy);
        ours || service.shows.contains(&claim.addr)
    });
    let to_adopt = shown.filter(|_| lost.is_none() && !kept);
    if let Some(addr) = to_adopt.filter(|addr| is_known(world, *addr)) {
        return (shown::adopt(world, service, addr), refused);
    }
    if let Some(addr) = current(service, claims, family) {
        if refused.is_none() && lost.is_none() {
            return to_asked_pools(world, service, claims, addr, takes);
        }
        return (has(world, service, addr), refused.or(lost));
    }
    if to_adopt.is_some() {
        return (Slot::Foreign, refused);
    }
    if let Some(refusal) = refused {
        return (Slot::Nothing(refusal), None);
    }
    let external = shown::external(world, service, family);
    if let Some(addr) = external {
        let slot = if world.is_in_flight(addr) {
            Ok(Slot::Later)
        } else {
            requested(world, service, addr, takes)
        };
        return (slot.unwrap_or_else(Slot::Nothing), lost);
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
/// It changed its ports, key or consent so that they clash with theirs. The Service that changed must
/// leave: while it shows the address, two Services would answer for one port.
fn no_longer_shared(world: World<'_>, service: &Balancer, addr: IpAddr) -> Option<Refusal> {
    let claim = world.claim(addr).filter(|claim| claim.holder(service).is_some())?;
    let audience = world.audience(service);
    claim.clash(service).map(|(holder, clash)| sharing_refused(addr, holder, clash, audience))
}

fn sharing_refused(
    addr: IpAddr,
    holder: &HolderEntry,
    clash: Clash,
    audience: Audience<'_>,
) -> Refusal {
    Refusal::SharingRefused(addr, audience.service(&holder.key), audience.clash(clash))
}

/// The Service with its terms of sharing: its own, else those of a namespace that lets all its Services
/// share, while it does and afterwards for as long as the Service has an address on them.
pub(super) fn with_terms(world: World<'_>, mut service: Balancer) -> Balancer {
    let recorded = |shares: fn(&HolderEntry) -> bool| {
        let claims = world.claims_naming(&service);
        let mut holders = claims.filter_map(|claim| claim.holder(&service));
        holders.any(shares)
    };
    if let Some(terms) = service.terms.as_ref().filter(|_| service.meant_all) {
        // An address that it shows without a claim was shared under another program's rules.
        let unclaimed = |addr: &IpAddr| {
            let claim = world.claim(*addr);
            claim.is_none_or(|claim| claim.holder(&service).is_none())
        };
        let with_all = world.notes.tenancy.inherited_keys_share_everywhere
            || service.in_status().iter().any(unclaimed)
            || recorded(HolderEntry::shares_with_all);
        if with_all {
            service.terms = Some(Arc::new(terms.with_all()));
        }
    } else if service.terms.is_none()
        && (recorded(HolderEntry::shares_by_map)
            || (world.namespace_allows_sharing(service.key.namespace())
                && place(world, &service, &[]) == Place::Annotation))
    {
        service.terms = Some(Arc::clone(&service.terms_by_map));
    }
    service
}

/// An address to share, else a free one, from the pools that are asked first. The later pools are only
/// asked if those give neither.
fn chosen(world: World<'_>, service: &Balancer, family: Family, takes: &Takes) -> Slot {
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

/// The first address in these pools, in the order of the first one, with the Service's sharing key and
/// that it may share.
fn shared(
    world: World<'_>,
    service: &Balancer,
    family: Family,
    takes: &Takes,
    pools: &[Candidate<'_>],
) -> Option<Slot> {
    let key = service.terms.as_ref()?.key.as_ref()?;
    if key == keys::SHARING_KEY_BY_MAP && family == Family::V6 {
        return None;
    }
    let addrs = world.ledger.under_sharing_key(key);
    let mut addrs: Vec<_> = addrs.filter(|addr| Family::of(**addr) == family).collect();
    let mut views = pools.iter().filter_map(|(_, view)| *view);
    let first = views.find(|view| is_meant_for(world, view, service));
    if first.and_then(|view| view.pool.as_ref().ok()).is_some_and(|pool| pool.descending) {
        addrs.reverse();
    }
    for addr in addrs {
        // A Service that is taking it now may be one to share with. If not, there is nothing to wait
        // for, and a younger Service might take the rest meanwhile.
        let claim = world.ledger.claim_to_be(*addr);
        if claim.is_none_or(|claim| may_be_given(world, claim, service).is_err()) {
            continue;
        }
        let served = pools.iter().find_map(|(name, view)| {
            let view = (*view).filter(|view| is_open_to(view, service))?;
            serves(world, view, service).ok()?;
            within_quota(world, view, service, Some(*addr), takes).ok()?;
            world.ledger.book.offers(name, *addr).ok()?;
            Some(name)
        });
        if let Some(pool) = served {
            let takes = Slot::Takes(*addr, Some(pool.clone()));
            return Some(under_way(world, *addr).unwrap_or(takes));
        }
    }
    None
}

/// A claimed address, unless a call about its claim is in flight.
fn has(world: World<'_>, service: &Balancer, addr: IpAddr) -> Slot {
    let under_way = under_way(world, addr);
    let stays = matches!(under_way, Some(Slot::Soon))
        && world.ledger.claim_to_be(addr).is_some_and(|to_be| to_be.holder(service).is_some());
    if stays { Slot::Settling } else { under_way.unwrap_or(Slot::Has(addr)) }
}

/// The result for an address that a Service can have once the call about its claim has ended, if there
/// is one.
fn under_way(world: World<'_>, addr: IpAddr) -> Option<Slot> {
    Some(match world.ledger.in_flight(addr)?.phase {
        Phase::Held | Phase::Writing => Slot::Soon,
        Phase::ReadDue(_) | Phase::Reading => Slot::Later,
    })
}

/// The claimed address that the Service shows, else its lowest claimed one.
fn current(service: &Balancer, claims: &[&Claim], family: Family) -> Option<IpAddr> {
    let mut of_family: Vec<IpAddr> =
        claims.iter().map(|claim| claim.addr).filter(|addr| Family::of(*addr) == family).collect();
    of_family.sort_unstable();
    let shown = of_family.iter().copied().find(|addr| service.shows.contains(addr));
    shown.or_else(|| of_family.first().copied())
}

/// Whether the Service may share an address with its holders.
fn may_join(world: World<'_>, claim: &Claim, service: &Balancer) -> Result<(), Refusal> {
    let (addr, audience) = (claim.addr, world.audience(service));
    let full = claim.services().len() >= Holder::MOST;
    // Sharing by permission of the namespace needs that permission for every holder.
    let namespace_allows_sharing = |holder: &HolderEntry| {
        !holder.shares_by_map() || world.namespace_allows_sharing(holder.key.namespace())
    };
    let all_agree = claim.services().iter().all(namespace_allows_sharing);
    if claim.services().is_empty() || service.terms.is_none() || full || !all_agree {
        return Err(Refusal::TakenBy(addr, claim.described(audience)));
    }
    let reservation = claim.reserved.as_ref();
    if let Some(kept) = reservation.filter(|_| !claim.is_reserved_for(&service.key)) {
        return Err(Refusal::Reserved(addr, audience.reservation(kept)));
    }
    let clash = claim.clash(service);
    clash.map_or(Ok(()), |(holder, clash)| Err(sharing_refused(addr, holder, clash, audience)))
}

/// Whether it may be given to the Service beside its holders. A foreign address never is.
fn may_be_given(world: World<'_>, claim: &Claim, service: &Balancer) -> Result<(), Refusal> {
    may_join(world, claim, service)?;
    let foreign_address = world.foreign_address(claim.addr, service);
    let text = |foreign_address| world.audience(service).foreign_address(foreign_address);
    foreign_address
        .map_or(Ok(()), |foreign_address| Err(Refusal::TakenBy(claim.addr, text(foreign_address))))
}

/// The first free address, in the pool's own order, of the first of these pools that serves the Service
/// and has one, else the verdicts.
fn any(
    world: World<'_>,
    service: &Balancer,
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
            let first = world.ledger.book.first_free(&name, family, service.pools.is_some());
            // A quota matters only if the pool would give an address.
            if matches!(first, Ok(_) | Err(Verdict::Full(_))) {
                within_quota(world, view, service, None, takes)?;
            }
            first
        });
        match given {
            Ok(lease) if is_lease(lease) => return Ok(Slot::Leased(lease)),
            Ok(addr) => return Ok(Slot::Takes(addr, Some(name))),
            Err(verdict @ Verdict::OverQuota(_)) => {
                match world.retained_to_free(&name, service.key.namespace()) {
                    Some(retained) => return Ok(after(world, retained)),
                    None => verdicts.push((name, verdict)),
                }
            }
            Err(verdict) => verdicts.push((name, verdict)),
        }
    }
    Err(verdicts)
}

/// The result once an address that waits for a deleted Service is given up.
fn after(world: World<'_>, retained: IpAddr) -> Slot {
    if world.is_in_flight(retained) { Slot::Later } else { Slot::After(retained) }
}

/// The address that the Service has, or one from the pools that it asks for since it took that one.
fn to_asked_pools(
    world: World<'_>,
    service: &Balancer,
    claims: &[&Claim],
    has_now: IpAddr,
    takes: &Takes,
) -> (Slot, Option<Refusal>) {
    let stays = || has(world, service, has_now);
    let holder = |claim: &Claim| claim.holder(service).cloned();
    let Some(asked) = service.pools.as_ref().filter(|_| !service.pools_left) else {
        return (stays(), None);
    };
    let replacement = claims.iter().find(|claim| {
        let holder = holder(claim).filter(|holder| holder.replaces == Some(has_now));
        holder.is_some_and(|holder| could_want(service, &holder, claim))
    });
    if let Some(claim) = replacement {
        return (has(world, service, claim.addr), None);
    }
    let Some(claim) = claims.iter().find(|claim| claim.addr == has_now) else {
        return (stays(), None);
    };
    let changed = holder(claim).is_some_and(|holder| holder.asked_pools != *asked);
    let covers = |name: &PoolName| {
        claim.pool.as_ref() == Some(name)
            || world.ledger.book.pool(name).is_some_and(|pool| pool.contains(has_now))
    };
    if !changed || !service.shows.contains(&has_now) || asked.iter().any(covers) {
        return (stays(), None);
    }
    match chosen(world, service, Family::of(has_now), takes) {
        Slot::Nothing(refusal) => (stays(), Some(refusal)),
        slot @ (Slot::Has(_)
        | Slot::Takes(..)
        | Slot::Settling
        | Slot::Soon
        | Slot::Later
        | Slot::Foreign
        | Slot::Disputed(_)
        | Slot::Follow
        | Slot::Leased(_)
        | Slot::After(_)) => (slot, None),
    }
}

/// An address that the Service asks for, if it may have it.
fn requested(
    world: World<'_>,
    service: &Balancer,
    addr: IpAddr,
    takes: &Takes,
) -> Result<Slot, Refusal> {
    match specific(world, service, addr, takes) {
        Ok(Grant::From(pool)) => Ok(Slot::Takes(addr, Some(pool))),
        Ok(Grant::After(retained)) => Ok(after(world, retained)),
        Err(refusal) if may_ask_beyond_pools(world, service, addr, &refusal) => {
            Ok(Slot::Takes(addr, None))
        }
        Err(refusal) => Err(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::{AnnotatedServices, Notes};
    use super::*;
    use crate::{cluster::Cluster, ledger::Ledger, sim::fixtures::service};

    #[test]
    fn a_class_without_any_pool_is_served_only_if_it_is_one_that_kube_vip_has_pools_for() {
        let (ours, other) = ("kube-vip.io/kube-vip-class", "example.com/other");
        let bare = service("shop/web");
        for classes in [&[None][..], &[Some(ours)], &[Some(other)], &[None, Some(ours)], &[]] {
            let annotated = AnnotatedServices {
                classes: classes.iter().copied().collect(),
                ..Default::default()
            };
            let notes = Notes { annotated, ..Notes::default() };
            let (cluster, ledger) = (Cluster::default(), Ledger::default());
            let world = World { cluster: &cluster, ledger: &ledger, notes: &notes };
            for class in [None, Some(ours), Some(other)] {
                let service = class.into_iter().fold(bare.clone(), Balancer::of_class);
                let left_alone = matches!(decide(world, &service), Decision::LeaveAlone);
                assert_eq!(left_alone, !classes.contains(&class), "{classes:?}, {class:?}");
            }
        }
    }
}
