//! Every text for every kind of holder.

use std::{iter, net::IpAddr};

use landfall_ipam::{Clash, Family, Never, PoolName, Reason, Refusal, Verdict, Violation};

use super::*;

/// A holder that a text may name, whatever kind the text is for.
const HOLDER: &str = "Service shop/web";
/// A field that a refusal quotes.
const FIELD: &str = "spec.loadBalancerIP";

fn ip() -> IpAddr {
    IpAddr::from([192, 0, 2, 5])
}

fn pool() -> PoolName {
    PoolName::new("IPGroup/public")
}

/// All verdicts: each names the one that follows it, so that none can be forgotten.
fn verdicts() -> impl Iterator<Item = Verdict> {
    iter::successors(Some(Verdict::NotAsked), |verdict| {
        Some(match verdict {
            Verdict::NotAsked => Verdict::Missing,
            Verdict::Missing => Verdict::OtherClass,
            Verdict::OtherClass => Verdict::OfOtherNamespaces,
            Verdict::OfOtherNamespaces => Verdict::OtherNamespaces,
            Verdict::OtherNamespaces => Verdict::Ignored,
            Verdict::Ignored => Verdict::OtherHolders,
            Verdict::OtherHolders => Verdict::OnRequestOnly,
            Verdict::OnRequestOnly => Verdict::NoFamily(Family::V6),
            Verdict::NoFamily(_) => Verdict::Invalid,
            Verdict::Invalid => Verdict::Draining,
            Verdict::Draining => Verdict::OverQuota(5),
            Verdict::OverQuota(_) => Verdict::Full(Family::V4),
            Verdict::Full(_) => return None,
        })
    })
}

fn clashes() -> impl Iterator<Item = Clash> {
    iter::successors(Some(Clash::NoKey), |clash| {
        Some(match clash {
            Clash::NoKey => Clash::OtherHasNoKey,
            Clash::OtherHasNoKey => Clash::OtherKey,
            Clash::OtherKey => Clash::NotNamed("shop".to_owned()),
            Clash::NotNamed(_) => Clash::OtherDoesNotName("bank".to_owned()),
            Clash::OtherDoesNotName(_) => Clash::Port("TCP/443".to_owned()),
            Clash::Port(_) => Clash::Policy,
            Clash::Policy => Clash::Pods,
            Clash::Pods => return None,
        })
    })
}

fn nevers() -> impl Iterator<Item = Never> {
    iter::successors(Some(Never::Unspecified), |never| {
        Some(match never {
            Never::Unspecified => Never::Loopback,
            Never::Loopback => Never::Multicast,
            Never::Multicast => Never::Broadcast,
            Never::Broadcast => Never::Mapped,
            Never::Mapped => Never::ClusterIps,
            Never::ClusterIps => return None,
        })
    })
}

fn violations() -> impl Iterator<Item = Violation> {
    let holder = || HOLDER.to_owned();
    iter::successors(Some(Violation::ClaimedTwice(ip())), move |violation| {
        Some(match violation {
            Violation::ClaimedTwice(_) => Violation::ShownWithoutClaim(ip(), holder()),
            Violation::ShownWithoutClaim(..) => Violation::HolderGone(ip(), holder()),
            Violation::HolderGone(..) => Violation::NeverShown(ip(), holder()),
            Violation::NeverShown(..) => Violation::HeldByNobody(ip()),
            Violation::HeldByNobody(_) => Violation::ShownTwice(ip(), holder()),
            Violation::ShownTwice(..) => Violation::SharedWithoutConsent(ip(), holder(), holder()),
            Violation::SharedWithoutConsent(..) => return None,
        })
    })
}

/// All refusals, and those that carry a verdict, a clash or the like once with each of them.
fn refusals() -> impl Iterator<Item = Refusal> {
    let first = Refusal::Unparseable {
        field: FIELD,
        input: "192.0.2.300".to_owned(),
        expected: "an address",
    };
    let kinds = iter::successors(Some(first), |refusal| {
        Some(match refusal {
            Refusal::Unparseable { .. } => Refusal::TwoOfOneFamily(ip(), ip()),
            Refusal::TwoOfOneFamily(..) => Refusal::OutsideEveryPool(ip()),
            Refusal::OutsideEveryPool(_) => Refusal::Excluded(ip(), pool()),
            Refusal::Excluded(..) => Refusal::NeverGiven(ip(), Never::Loopback),
            Refusal::NeverGiven(..) => Refusal::HeldBack(ip(), pool()),
            Refusal::HeldBack(..) => Refusal::TakenBy(ip(), HOLDER.to_owned()),
            Refusal::TakenBy(..) => Refusal::Reserved(ip(), "a reservation for shop".to_owned()),
            Refusal::Reserved(..) => Refusal::SharingRefused(ip(), HOLDER.to_owned(), Clash::NoKey),
            Refusal::SharingRefused(..) => Refusal::WrongFamily(ip()),
            Refusal::WrongFamily(_) => Refusal::NotServed(ip(), Vec::new()),
            Refusal::NotServed(..) => Refusal::LedgerRefused("forbidden".to_owned()),
            Refusal::LedgerRefused(_) => Refusal::HolderRefused("forbidden".to_owned()),
            Refusal::HolderRefused(_) => Refusal::NoneGives(Family::V4, Vec::new()),
            Refusal::NoneGives(..) => return None,
        })
    });
    let kinds = kinds.filter(|refusal| !matches!(refusal, Refusal::NotServed(..)));
    let never = nevers().map(|why| Refusal::NeverGiven(ip(), why));
    let shared = clashes().map(|why| Refusal::SharingRefused(ip(), HOLDER.to_owned(), why));
    let not_served = verdicts().map(|why| Refusal::NotServed(ip(), vec![(pool(), why)]));
    let none_gives = verdicts().map(|why| Refusal::NoneGives(Family::V4, vec![(pool(), why)]));
    kinds.chain(never).chain(shared).chain(not_served).chain(none_gives)
}

/// Whether each text is complete, and speaks of Services only where it is about one or names one.
fn assert_sound(kind: HolderKind, about: &dyn std::fmt::Debug, text: &str, sentence: bool) {
    let context = format!("{kind}, {about:?}: {text:?}");
    assert!(text.split_whitespace().count() > 1 && !text.contains("  "), "{context}");
    let body = text.strip_suffix('.');
    assert_eq!(body.is_some(), sentence, "{context}");
    let last = body.unwrap_or(text).chars().next_back();
    assert!(last.is_some_and(|last| last.is_alphanumeric() || ")`".contains(last)), "{context}");
    if kind != HolderKind::Service {
        let others = text.replace(HOLDER, "").replace(FIELD, "");
        for foreign in ["ervice", "loadBalancer", "externalTraffic", "landfall.dev", "kube-vip"] {
            assert!(!others.contains(foreign), "{context}");
        }
    }
}

#[test]
fn every_text_is_complete_and_speaks_of_its_own_kind_of_holder() {
    for kind in HolderKind::ALL {
        for reason in Reason::ALL {
            assert_sound(kind, &reason, &cause(kind, reason), true);
            assert_sound(kind, &reason, &fix(kind, reason), true);
        }
        for facts in refusals() {
            let text = refusal(kind, &facts);
            assert_sound(kind, &facts, &text, true);
            assert!(text.ends_with(&*fix(kind, facts.reason())), "{kind}: {text}");
        }
        for answer in verdicts() {
            assert_sound(kind, &answer, &verdict(kind, answer), false);
        }
        for obstacle in clashes() {
            assert_sound(kind, &obstacle, &clash(kind, &obstacle), false);
        }
        for damage in violations() {
            assert_sound(kind, &damage, &violation(kind, &damage), false);
        }
        for why in nevers() {
            assert_sound(kind, &why, never(why), false);
        }
    }
}

#[test]
fn no_refusal_is_without_a_reason_of_the_list_and_no_reason_without_a_refusal() {
    let mut reasons: Vec<_> = refusals().map(|refusal| refusal.reason()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons, Reason::ALL);
}

#[test]
fn a_text_calls_the_holder_by_its_kind() {
    let refused = Refusal::HolderRefused("forbidden".to_owned());
    let never_shown = Violation::NeverShown(ip(), "HOLDER".to_owned());
    for (kind, written, asks, quota, shows) in [
        (
            HolderKind::Service,
            "the Service cannot be written",
            "the Service asks for other pools",
            "namespace quota reached (5 of 5)",
            "the claim on 192.0.2.5 names HOLDER, which does not show it",
        ),
        (
            HolderKind::VirtualIp,
            "the VirtualIP cannot be written",
            "the VirtualIP asks for other pools",
            "namespace quota reached (5 of 5)",
            "the claim on 192.0.2.5 names HOLDER, which does not show it",
        ),
        (
            HolderKind::Namespace,
            "the Namespace cannot be written",
            "the Namespace asks for other pools",
            "namespace quota reached (5 of 5)",
            "the claim on 192.0.2.5 names HOLDER, which does not use it",
        ),
        (
            HolderKind::Node,
            "the Node cannot be written",
            "the Node asks for other pools",
            "quota reached (5 of 5)",
            "the claim on 192.0.2.5 names HOLDER, which does not carry it",
        ),
        (
            HolderKind::Pool,
            "the holding pool cannot be written",
            "the holding pool asks for other pools",
            "quota reached (5 of 5)",
            "the claim on 192.0.2.5 names HOLDER, which does not list it",
        ),
    ] {
        assert!(refusal(kind, &refused).starts_with(written), "{kind}");
        assert_eq!(verdict(kind, Verdict::NotAsked), asks, "{kind}");
        assert_eq!(verdict(kind, Verdict::OverQuota(5)), quota, "{kind}");
        assert_eq!(violation(kind, &never_shown), shows, "{kind}");
    }
}

#[test]
fn a_message_names_each_pool_up_to_a_bound_and_the_fix() {
    let many =
        (0..100).map(|n| (PoolName::new(&format!("IPGroup/p{n}")), Verdict::Full(Family::V4)));
    let text = refusal(HolderKind::Service, &Refusal::NoneGives(Family::V4, many.collect()));
    assert!(
        text.starts_with(
            "no IPv4 address: IPGroup/p0: all its IPv4 addresses are taken; IPGroup/p1:"
        )
    );
    assert!(text.ends_with(
        "; and 92 more. Add addresses to a pool (`ranges`), add a pool, or delete a Service."
    ));
}
