//! Each rule of the judge condemns a made-up cluster that breaks it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use landfall_api::ReservedFor;

use super::*;
use crate::builders::{PoolBuilder as _, ServiceBuilder as _, bare_claim, pool};
use crate::cluster::tests::{claim, service};

const A: &str = "10.0.0.1";
const B: &str = "10.0.0.2";

/// A Service of a namespace in which there are toys.
fn player(name: &str, shows: &[&str]) -> Service {
    let mut service = service(name, name, shows);
    service.metadata.namespace = Some("play-a".into());
    service.with_families("SingleStack", &["IPv4"])
}

fn held(addr: &str, name: &str) -> IP {
    let mut claim = claim(addr, name, name);
    for holder in &mut claim.spec.holders {
        holder.namespace = Some("play-a".into());
    }
    claim
}

fn told(mut service: Service, status: &str, reason: &str) -> Service {
    let condition = Condition {
        type_: keys::CONDITION_ALLOCATED.into(),
        status: status.into(),
        reason: reason.into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH),
    };
    service.status.get_or_insert_default().conditions = Some(vec![condition]);
    service
}

fn cluster(claims: &[IP], services: &[Service]) -> Snapshot {
    Snapshot { claims: claims.to_vec(), services: services.to_vec() }
}

#[test]
fn a_history_is_condemned_unless_it_was_done_by_hand() {
    let good = || cluster(&[held(A, "s1")], &[player("s1", &[A])]);
    let doubled = |by: &str| cluster(&[held(A, "s1")], &[player("s1", &[A]), player(by, &[A])]);
    let dropped = |who: &str| {
        vec![cluster(&[held(A, who)], &[player(who, &[A])]), cluster(&[], &[player(who, &[A])])]
    };
    for (case, moments, expected) in [
        ("in order", vec![good(), good()], 0),
        ("doubled for a moment", vec![good(), doubled("s2"), good()], 1),
        ("doubled by hand", vec![good(), doubled("toy1"), good()], 0),
        ("released while shown", dropped("s1"), 1),
        ("its claim deleted by hand", dropped("toy1"), 0),
        (
            "taken from its holder by what was done by hand",
            vec![good(), cluster(&[held(A, "toy1")], &[player("s1", &[A]), player("toy1", &[A])])],
            1,
        ),
    ] {
        let found = of_history(&History::of_moments(moments));
        assert_eq!(found.len(), expected, "{case}: {found:?}");
    }
}

#[test]
fn an_address_that_goes_is_noticed_even_if_it_comes_back() {
    let given = |who: &str| cluster(&[held(A, who)], &[player(who, &[A])]);
    let away = |who: &str| cluster(&[held(A, who)], &[player(who, &[])]);
    let moved = |who: &str| cluster(&[held(A, who), held(B, who)], &[player(who, &[B])]);
    for (case, then, expected) in
        [("kept", given as fn(&str) -> Snapshot, 0), ("lost", away, 1), ("moved", moved, 1)]
    {
        for (who, expected) in [("s1", expected), ("toy1", 0)] {
            let history = History::of_moments(vec![given(who), then(who)]);
            assert_eq!(unasked(&history).len(), expected, "{case} {who}");
            let history = History::of_moments(vec![given(who), then(who), given(who)]);
            assert_eq!(unasked(&history).is_empty(), expected == 0, "{case} {who} and back");
        }
    }
}

#[test]
fn only_problems_made_by_toys_are_excused_at_rest() {
    let (s1, toy) = (player("s1", &[A]), player("toy1", &[A]));
    for (case, seen, expected) in [
        ("in order", cluster(&[held(A, "s1")], &[player("s1", &[A])]), 0),
        ("doubled by a toy", cluster(&[held(A, "s1")], &[s1.clone(), toy]), 0),
        ("doubled", cluster(&[held(A, "s1")], &[s1.clone(), player("s2", &[A])]), 2),
        ("a claim without a holder", cluster(&[held(B, "s9")], &[]), 1),
        ("shown without a claim", cluster(&[], &[s1]), 1),
    ] {
        let found = beside_toys(&seen);
        assert_eq!(found.len(), expected, "{case}: {found:?}");
    }
}

#[test]
fn an_address_shown_by_hand_must_be_told_on_both_services() {
    let holder = |reason: &str| told(player("s1", &[A]), "True", reason);
    let toy = |status: &str| told(player("toy1", &[A]), status, "TakenBy");
    for (case, claims, services, expected) in [
        ("both are", vec![held(A, "s1")], vec![holder("AlsoShown"), toy("False")], 0),
        ("only the toy is", vec![held(A, "s1")], vec![holder("Allocated"), toy("False")], 1),
        ("only the holder is", vec![held(A, "s1")], vec![holder("AlsoShown"), toy("True")], 1),
        ("neither is", vec![held(A, "s1")], vec![player("s1", &[A]), player("toy1", &[A])], 2),
        ("it has no claim at all", vec![], vec![toy("False")], 1),
        ("it is its own", vec![held(A, "toy1")], vec![player("toy1", &[A])], 0),
    ] {
        let found = untold(&cluster(&claims, &services));
        assert_eq!(found.len(), expected, "{case}: {found:?}");
    }
}

#[test]
fn a_service_that_could_be_served_must_be() {
    let two = "10.0.0.1-10.0.0.2";
    let pools = || vec![pool("two", &[two]), pool("six", &["fd00::/127"])];
    let full = || vec![held(A, "s1"), held(B, "s2")];
    let all = || vec![player("s1", &[A]), player("s2", &[B])];
    let waits = || player("s3", &[]);
    let kept = |name: &str| {
        let mut claim = bare_claim(B.parse().unwrap());
        claim.spec.reserved_for = Some(ReservedFor {
            namespace: "play-a".into(),
            name: Some(name.into()),
            ..ReservedFor::default()
        });
        claim
    };
    let shared = {
        let mut claim = held(A, "s1");
        claim.spec.holders[0].sharing_key = Some("k".into());
        claim.spec.holders[0].ports = vec!["TCP/80".into()];
        claim
    };
    let dual = |policy| waits().with_families(policy, &["IPv4", "IPv6"]);
    let shows_six = |policy| player("s3", &["fd00::1"]).with_families(policy, &["IPv4", "IPv6"]);
    let on_request = |name: &str| pool(name, &[two]).with(|spec| spec.auto_assign = Some(false));
    for (case, claims, services, pools, expected) in [
        ("all are", full(), all(), pools(), 0),
        ("the pool is full", full(), [all(), vec![waits()]].concat(), pools(), 0),
        ("there is room", vec![held(A, "s1")], vec![player("s1", &[A]), waits()], pools(), 1),
        ("it is not a load balancer", vec![], vec![waits().of_type("ClusterIP")], pools(), 0),
        ("its class is another's", vec![], vec![waits().of_class("other")], pools(), 0),
        (
            "its class is ours",
            vec![],
            vec![waits().of_class("other")],
            vec![pool("two", &[two]).for_class("other")],
            1,
        ),
        (
            "it does not get what it asks for",
            vec![],
            vec![player("s3", &[B]).asking(A)],
            pools(),
            1,
        ),
        ("what it asks for is taken", full(), vec![player("s3", &[]).asking(A)], pools(), 0),
        (
            "it asks for two",
            vec![],
            vec![waits().asking(A).annotated(keys::ANNOTATION_ADDRESSES, B)],
            pools(),
            0,
        ),
        ("what it asks for is nowhere", vec![], vec![waits().asking("10.9.9.9")], pools(), 0),
        ("only on request", vec![], vec![waits()], vec![on_request("two")], 0),
        ("and it requests", vec![], vec![waits().asking(A)], vec![on_request("two")], 1),
        (
            "it asks for that pool",
            vec![],
            vec![waits().annotated(keys::ANNOTATION_POOL, "two")],
            vec![on_request("two"), pool("wide", &["10.0.1.0/24"])],
            1,
        ),
        (
            "the pool it asks for is full",
            full(),
            vec![waits().annotated(keys::ANNOTATION_POOL, "two")],
            vec![pool("two", &[two]), pool("wide", &["10.0.1.0/24"])],
            0,
        ),
        ("it is kept for it", vec![held(A, "s1"), kept("s3")], vec![waits()], pools(), 1),
        ("it is kept for another", vec![held(A, "s1"), kept("s4")], vec![waits()], pools(), 0),
        (
            "it might share",
            vec![shared.clone(), held(B, "s2")],
            vec![waits().sharing("k", &[443])],
            pools(),
            1,
        ),
        (
            "its port is in use",
            vec![shared, held(B, "s2")],
            vec![waits().sharing("k", &[80])],
            pools(),
            0,
        ),
        ("one family is missing", vec![], vec![shows_six("PreferDualStack")], pools(), 1),
        ("one family is full", full(), vec![shows_six("PreferDualStack")], pools(), 0),
        ("the other is not", full(), vec![dual("PreferDualStack")], pools(), 1),
        ("it wants both or none", full(), vec![dual("RequireDualStack")], pools(), 0),
        ("both are there", vec![], vec![dual("RequireDualStack")], pools(), 2),
    ] {
        let found = unserved(&cluster(&claims, &services), &pools);
        assert_eq!(found.len(), expected, "{case}: {found:?}");
    }
}

#[test]
fn an_address_that_kube_vip_announces_is_not_available() {
    let asks = player("s3", &[]).asking(A);
    let announced = player("s4", &[A])
        .annotated(keys::ANNOTATION_KUBE_VIP_ADDRESSES, "10.9.9.9")
        .labelled(keys::LABEL_IMPLEMENTATION, keys::IMPLEMENTATION_KUBE_VIP);
    let pools = [pool("two", &["10.0.0.1-10.0.0.2"])];
    for (services, expected) in [(vec![asks.clone()], 1), (vec![asks, announced], 0)] {
        let found = unserved(&cluster(&[], &services), &pools);
        assert_eq!(found.len(), expected, "{found:?}");
    }
}
