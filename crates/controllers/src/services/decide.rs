//! What one Service should have, given everything known. Pure; changes nothing.

use std::{net::IpAddr, sync::Arc};

use landfall_api::{Holder, keys};
use landfall_ipam::{Clash, Family, PoolName, Refusal, Verdict};

use self::pools::{
    Candidate, Grant, candidates, is_meant_for, is_open_to, may_ask_beyond_pools, serves, specific,
    within_quota,
};
pub(super) use self::{
    pools::{awaited, place, serves_namespace},
    shown::is_known,
};
use super::{
    audience::Audience,
    view::{Place, Request, ServiceView},
    wish::could_want,
    world::World,
};
use crate::ledger::{Claim, HolderEntry, Phase};

mod pools;
mod shown;

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
    /// Its namespace holds as many addresses as it may, and this one waits for a deleted Service. Give
    /// that up, then decide again.
    GiveUp(IpAddr),
}

/// An address, and the pool that gives it, if one does.
pub(super) type Given = (IpAddr, Option<PoolName>);
/// Addresses to take.
type Takes = [Given];

/// Whether it stands for "ask DHCP" where an address should stand. Nobody has it, and everybody may.
pub(super) const fn is_lease(addr: IpAddr) -> bool {
    addr.is_unspecified()
}

/// Whether the Service has a lease by this address: only kube-vip asks DHCP, and it reads the
/// annotation.
fn is_leased(service: &ServiceView, addr: IpAddr) -> bool {
    service.place == Place::Annotation && is_lease(addr)
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
    /// One more, once this address that waits for a deleted Service is given up.
    After(IpAddr),
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
            // No pool would give it that one, and so it stays as it was written.
            Slot::Takes(addr, pool) => takes.push((addr, pool.filter(|_| !is_extra_family))),
            Slot::Nothing(refusal) => refusals.push(refusal),
            Slot::Settling => settling = settling.saturating_add(1),
            Slot::Soon => soon = soon.saturating_add(1),
            Slot::Later => later = true,
            Slot::Foreign => return Decision::LeaveAlone,
            Slot::Disputed(refusal) => return Decision::Disputed(refusal),
            Slot::Follow => return Decision::Follow,
            Slot::After(retained) => return Decision::GiveUp(retained),
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
            shown.find(|addr| is_leased(service, *addr) && Family::of(*addr) == family)
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
    // Also if another family must wait: somebody younger might take it meanwhile.
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
fn is_written_by_hand(service: &ServiceView, claims: &[&Claim], family: Family) -> bool {
    let mut shown = service.shows.iter().filter(|addr| Family::of(**addr) == family);
    shown.any(|addr| !claims.iter().any(|claim| claim.addr == *addr && claim.pool.is_some()))
}

/// The address of one family, and a refused request beside it, if any.
fn slot(
    world: &World,
    service: &ServiceView,
    claims: &[&Claim],
    family: Family,
    takes: &Takes,
) -> (Slot, Option<Refusal>) {
    let shown = shown::of_family(world, service, claims, family);
    // In a status it is no lease but no address at all. One that a pool of ours covers was given by
    // us, before we knew better.
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
                // Until that is known it keeps the one it has.
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
    // What it shows comes before what claims of the original operator keep for it: it leaves some
    // behind. What a claim of ours keeps comes first, because then somebody else changed what is
    // shown; or that claim is unknown here, and is read before anything is withdrawn.
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
/// It changed its ports, key or consent so that they clash with theirs, and whoever changes leaves:
/// as long as it showed the address, two Services would answer for one port.
fn no_longer_shared(world: &World, service: &ServiceView, addr: IpAddr) -> Option<Refusal> {
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

/// The Service with the terms on which it may share: its own, else those of a namespace that lets all
/// its Services share, as long as it does and for as long after as the Service has an address so.
pub(super) fn with_terms(world: &World, mut service: ServiceView) -> ServiceView {
    let recorded = |shares: fn(&HolderEntry) -> bool| {
        let claims = world.claims_naming(&service);
        let mut holders = claims.filter_map(|claim| claim.holder(&service));
        holders.any(shares)
    };
    if let Some(terms) = service.terms.as_ref().filter(|_| service.meant_all) {
        // What it shows and has no claim on was shared under the rules of another program.
        let unclaimed = |addr: &IpAddr| {
            let claim = world.claim(*addr);
            claim.is_none_or(|claim| claim.holder(&service).is_none())
        };
        let with_all = world.tenancy.inherited_keys_share_everywhere
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
        // Whoever takes it now may be one to share it with. If not, there is nothing to wait for,
        // and somebody younger might take what is left meanwhile.
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

/// A claimed address, unless a call about its claim is under way.
fn has(world: &World, service: &ServiceView, addr: IpAddr) -> Slot {
    let under_way = under_way(world, addr);
    let stays = matches!(under_way, Some(Slot::Soon))
        && world.ledger.claim_to_be(addr).is_some_and(|to_be| to_be.holder(service).is_some());
    if stays { Slot::Settling } else { under_way.unwrap_or(Slot::Has(addr)) }
}

/// What an address comes to that a Service can have once a call about its claim has ended, if there
/// is one.
fn under_way(world: &World, addr: IpAddr) -> Option<Slot> {
    Some(match world.ledger.in_flight(addr)?.phase {
        Phase::Held | Phase::Writing => Slot::Soon,
        Phase::ReadDue(_) | Phase::Reading => Slot::Later,
    })
}

/// The claimed address that the Service shows, else the lowest one kept for it.
fn current(service: &ServiceView, claims: &[&Claim], family: Family) -> Option<IpAddr> {
    let mut of_family: Vec<IpAddr> =
        claims.iter().map(|claim| claim.addr).filter(|addr| Family::of(*addr) == family).collect();
    of_family.sort_unstable();
    let shown = of_family.iter().copied().find(|addr| service.shows.contains(addr));
    shown.or_else(|| of_family.first().copied())
}

/// Whether the Service may have an address together with those who have it.
fn may_join(world: &World, claim: &Claim, service: &ServiceView) -> Result<(), Refusal> {
    let (addr, audience) = (claim.addr, world.audience(service));
    let full = claim.services().len() >= Holder::MOST;
    // Who shares by leave of its namespace needs that of all the others' as well.
    let namespace_allows_sharing = |holder: &HolderEntry| {
        !holder.shares_by_map() || world.namespace_allows_sharing(holder.key.namespace())
    };
    let all_agree = claim.services().iter().all(namespace_allows_sharing);
    if claim.services().is_empty() || service.terms.is_none() || full || !all_agree {
        return Err(Refusal::TakenBy(addr, claim.described(audience)));
    }
    if let Some(kept) = claim.reserved.as_ref().filter(|kept| !kept.is_for_service(&service.key)) {
        return Err(Refusal::Reserved(addr, audience.reservation(kept)));
    }
    let clash = claim.clash(service);
    clash.map_or(Ok(()), |(holder, clash)| Err(sharing_refused(addr, holder, clash, audience)))
}

/// Whether it may be given to the Service beside its holders: what somebody outside the ledger has
/// never is.
fn may_be_given(world: &World, claim: &Claim, service: &ServiceView) -> Result<(), Refusal> {
    may_join(world, claim, service)?;
    let foreign_address = world.foreign_address(claim.addr, service);
    let text = |foreign_address| world.audience(service).foreign_address(foreign_address);
    foreign_address
        .map_or(Ok(()), |foreign_address| Err(Refusal::TakenBy(claim.addr, text(foreign_address))))
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
            let first = world.ledger.book.first_free(&name, family, service.pools.is_some());
            // A quota is in the way only of what the pool would give.
            if matches!(first, Ok(_) | Err(Verdict::Full(_))) {
                within_quota(world, view, service, None, takes)?;
            }
            first
        });
        match given {
            Ok(lease) if is_lease(lease) => return Ok(Slot::Leased(lease)),
            Ok(addr) => return Ok(Slot::Takes(addr, Some(name))),
            Err(verdict @ Verdict::OverQuota(_)) => {
                match world.to_give_up(&name, service.key.namespace()) {
                    Some(retained) => return Ok(after(world, retained)),
                    None => verdicts.push((name, verdict)),
                }
            }
            Err(verdict) => verdicts.push((name, verdict)),
        }
    }
    Err(verdicts)
}

/// What a Service gets once an address that waits for a deleted one is given up.
fn after(world: &World, retained: IpAddr) -> Slot {
    if world.is_in_flight(retained) { Slot::Later } else { Slot::After(retained) }
}

/// The address that the Service has, or one of the pools that it asks for since it got that one.
fn to_asked_pools(
    world: &World,
    service: &ServiceView,
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
    world: &World,
    service: &ServiceView,
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
    use super::super::{
        tests::fixtures::service,
        world::{AnnotatedServices, Tenancy},
    };
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
            let world = World::new(annotated, Tenancy::default());
            for class in [None, Some(ours), Some(other)] {
                let service = class.into_iter().fold(bare.clone(), ServiceView::of_class);
                let left_alone = matches!(decide(&world, &service), Decision::LeaveAlone);
                assert_eq!(left_alone, !classes.contains(&class), "{classes:?}, {class:?}");
            }
        }
    }
}
