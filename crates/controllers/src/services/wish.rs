//! Whether a Service could want an address: the one judgement that every operator must share.
//!
//! Publishing and releasing both ask [`could_want`], and nothing else, whether an address that the
//! Service does not show may still become its own. If the two disagreed, one operator could release
//! a claim while another publishes it.

use landfall_ipam::Family;

use super::status;
use crate::{
    cluster::service::Balancer,
    ledger::{Claim, HolderEntry},
};

/// Whether the holder could still want the claimed address, judged from its own fields and the claim
/// itself: never from pools or selectors, of which two operators may have different copies. The claim
/// cannot differ: publishing on it and releasing it both need one version of it.
///
/// A Service that shows another address of the family wants this one only if it asks for it. One that
/// shows none could want any address that a claim keeps for it, whatever it asks for: it gets that
/// address back if its request is refused. One that asks for other pools since the claim was made never
/// had the address and wants one of theirs. One that may not share the address with its holders cannot
/// want it.
pub(super) fn could_want(service: &Balancer, holder: &HolderEntry, claim: &Claim) -> bool {
    let addr = claim.addr;
    let family = Family::of(addr);
    // It is to replace an address that is in none of the pools that the Service asks for.
    let replaces = || {
        let replaced = holder.replaces.is_some_and(|shown| service.shows.contains(&shown));
        let asks_the_same = service.pools.as_ref() == Some(&holder.asked_pools);
        replaced && asks_the_same && service.request.of(family).is_none()
    };
    let shows_another =
        || service.shows.iter().any(|shown| *shown != addr && Family::of(*shown) == family);
    holder.is(service)
        && !service.deleting
        && (holder.legacy || holder.class == service.class)
        && service.families.contains(&family)
        && (service.request.of(family) == Some(addr) || replaces() || !shows_another())
        && !asks_for_other_pools(service, holder, claim)
        && claim.clash(service).is_none()
}

/// Whether the Service asks for other pools since the claim was made, and never had the address: it
/// neither shows nor names it in its condition. If only its status was wiped, it gets the address back.
pub(super) fn asks_for_other_pools(
    service: &Balancer,
    holder: &HolderEntry,
    claim: &Claim,
) -> bool {
    let asks_for_it = service.request.of(Family::of(claim.addr)) == Some(claim.addr);
    let asked = service.pools.as_ref().filter(|_| !service.pools_left && !holder.legacy);
    asked.is_some_and(|asked| {
        let of_these = claim.pool.as_ref().is_some_and(|pool| asked.contains(pool));
        let changed = *asked != holder.asked_pools && !of_these;
        let had = service.shows.contains(&claim.addr) || status::names(service, claim.addr);
        changed && !asks_for_it && !had
    })
}

/// Whether this holder may be released from the claim, given its present state.
///
/// `None` is a Service that is gone or no longer of type `LoadBalancer`. A Service of the same name
/// that shows the address keeps the claim even if the claim names another uid: a person must decide.
pub(super) fn may_release(live: Option<&Balancer>, holder: &HolderEntry, claim: &Claim) -> bool {
    live.is_none_or(|service| {
        !service.shows.contains(&claim.addr) && !could_want(service, holder, claim)
    })
}

#[cfg(test)]
mod tests {
    use landfall_ipam::PoolName;

    use super::*;
    use crate::sim::fixtures::{claim_of, holder_of, ip, service};

    #[test]
    fn a_claim_is_released_only_when_its_holder_neither_shows_nor_could_want_it() {
        let base = service("shop/web");
        let holder = holder_of(&base);
        let claim = claim_of(ip("10.0.0.1"), &[&base]);
        for (case, live, releasable) in [
            ("gone", None, true),
            ("shows nothing", Some(base.clone()), false),
            ("shows it", Some(base.clone().showing(&["10.0.0.1"])), false),
            ("shows another", Some(base.clone().showing(&["10.0.0.2"])), true),
            (
                "shows another but asks for it",
                Some(base.clone().showing(&["10.0.0.2"]).asking("10.0.0.1")),
                false,
            ),
            (
                "shows nothing and asks for another: may get it back if that is refused",
                Some(base.clone().asking("10.0.0.2")),
                false,
            ),
            ("being deleted", Some(base.clone().deleting()), true),
            (
                "being deleted but still showing it",
                Some(base.clone().showing(&["10.0.0.1"]).deleting()),
                false,
            ),
            ("made again under the same name", Some(base.clone().with_uid("other")), true),
            (
                "made again and showing it",
                Some(base.clone().with_uid("other").showing(&["10.0.0.1"])),
                false,
            ),
            ("of another class by now", Some(base.clone().of_class("other.example/lb")), true),
            ("of the other family only", Some(base.clone().with_families(&[Family::V6])), true),
            (
                "shows an address of the other family",
                Some(base.with_families(&[Family::V4, Family::V6]).showing(&["fd00::1"])),
                false,
            ),
        ] {
            assert_eq!(may_release(live.as_ref(), &holder, &claim), releasable, "{case}");
        }
    }

    #[test]
    fn a_service_that_asks_for_other_pools_before_it_has_an_address_wants_one_of_theirs() {
        let base = service("shop/web");
        let (holder, claim) = (holder_of(&base), claim_of(ip("10.0.0.1"), &[&base]));
        let asking = |pool: &str| {
            let pools = Some(vec![PoolName::new(pool)]);
            Balancer { pools, ..base.clone() }
        };
        let of_its_pool =
            Balancer { pools: claim.pool.clone().map(|pool| vec![pool]), ..base.clone() };
        let other = asking("IPGroup/other");
        let since_then =
            HolderEntry { asked_pools: vec![PoolName::new("IPGroup/other")], ..holder.clone() };
        for (case, service, holder, wanted) in [
            ("any pool", base.clone(), &holder, true),
            ("its pool", of_its_pool, &holder, true),
            ("another", other.clone(), &holder, false),
            ("another, as it did when the claim was made", other.clone(), &since_then, true),
            ("another, and shows it", other.clone().showing(&["10.0.0.1"]), &holder, true),
            ("another, and asks for this address", other.asking("10.0.0.1"), &holder, true),
        ] {
            assert_eq!(could_want(&service, holder, &claim), wanted, "{case}");
        }
    }

    #[test]
    fn a_claim_of_the_original_operator_holds_for_any_class() {
        let service = service("shop/web").of_class("any.example/lb");
        let mut holder = holder_of(&service);
        holder.class = None;
        let claim = claim_of(ip("10.0.0.1"), &[&service]);
        assert!(!could_want(&service, &holder, &claim));
        holder.legacy = true;
        assert!(could_want(&service, &holder, &claim));
    }

    #[test]
    fn a_service_that_may_not_share_an_address_with_its_other_holders_cannot_want_it() {
        let (web, dns) =
            (service("shop/web").sharing("k", 80), service("shop/dns").sharing("k", 53));
        let claim = claim_of(ip("10.0.0.1"), &[&web, &dns]);
        let holder = holder_of(&web);
        assert!(could_want(&web, &holder, &claim));
        for (case, changed) in [
            ("a port of the other", web.clone().sharing("k", 53)),
            ("another key", web.clone().sharing("other", 80)),
            ("no key", service("shop/web")),
        ] {
            assert!(!could_want(&changed, &holder, &claim), "{case}");
            assert!(may_release(Some(&changed), &holder, &claim), "{case}");
            let showing = changed.showing(&["10.0.0.1"]);
            assert!(!may_release(Some(&showing), &holder, &claim), "{case}: shown first");
        }
    }
}
