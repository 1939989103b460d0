//! Claims with another use than that of Services, whichever namespace they are reserved for.

use kube::core::DeserializeGuard;
use landfall_api::{Quota, Use};
use serde_json::json;

use super::*;
use crate::ledger::{Tenure, object};

const OTHERS: [Use; 2] = [Use::Egress, Use::Floating];

/// A claim without a holder on `10.0.0.0`, as it is written.
fn claimed(sim: &mut Sim, purpose: Use, reserved: Option<Reservation>) -> Claim {
    let pool = Some(PoolName::new("IPGroup/a"));
    sim.cluster.hold(ip("10.0.0.0"), Vec::new());
    let claim = sim.cluster.claims[&ip("10.0.0.0")].clone();
    sim.cluster.put_claim(Claim { purpose: Some(purpose), pool, reserved, ..claim })
}

/// A reservation for a namespace or one of its Services, without a kind.
fn kept(namespace: &str, name: Option<&str>) -> Reservation {
    Reservation {
        kind: HolderKind::default(),
        namespace: namespace.to_owned(),
        name: name.map(str::to_owned),
        expires: None,
        retained: false,
    }
}

fn asks(sim: &mut Sim, key: &str) {
    sim.cluster.create_service(key);
    sim.cluster.edit_service(key, |stored| stored.view = stored.view.clone().asking("10.0.0.0"));
}

#[test]
fn an_address_reserved_for_another_use_is_given_to_no_service() {
    for purpose in OTHERS {
        for (name, whom) in
            [(None, "shop/*"), (Some("asks"), "shop/asks"), (Some("any"), "shop/any")]
        {
            let mut sim = running(1);
            let claim = claimed(&mut sim, purpose, Some(kept("shop", name)));
            sim.cluster.create_service("shop/any");
            asks(&mut sim, "shop/asks");
            sim.settle();
            assert_eq!(shown_by(&sim, "shop/any"), ["10.0.0.1"], "{claim:?}");
            assert_eq!(shown_by(&sim, "shop/asks"), [] as [&str; 0], "{claim:?}");
            let (_, reason, message) = condition_of(&sim, "shop/asks");
            let use_ = purpose.as_str();
            let text = format!("10.0.0.0 is kept by a reservation for {whom} with use {use_}.");
            assert!(message.starts_with(&text), "{message}");
            assert_eq!(reason, "Reserved");
            for key in ["shop/any", "shop/asks"] {
                sim.cluster.recreate_service(key);
                sim.settle();
                sim.cluster.delete_service(key);
                sim.settle();
            }
            assert_eq!(sim.cluster.claims[&ip("10.0.0.0")], claim, "it is as it was");
        }
    }
}

#[test]
fn a_service_that_shows_an_address_of_another_use_is_told_and_takes_nothing() {
    for purpose in OTHERS {
        let mut sim = running(1);
        let claim = claimed(&mut sim, purpose, Some(kept("shop", None)));
        sim.cluster.create_service("shop/web");
        let show = |stored: &mut Stored| stored.view = stored.view.clone().showing(&["10.0.0.0"]);
        sim.cluster.edit_service("shop/web", show);
        sim.settle();
        assert_eq!(sim.cluster.claims[&ip("10.0.0.0")], claim);
        assert_eq!(condition_of(&sim, "shop/web").1, "TakenBy");
    }
}

#[test]
fn a_namespace_at_its_quota_gives_up_no_address_of_another_use() {
    for purpose in OTHERS {
        let mut sim = running(1);
        sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| {
            view.quota = Some(Quota { per_namespace: Some(1), ..Quota::default() });
        });
        let expires = Some("2100-01-01T00:00:00Z".parse().unwrap());
        let waits = Reservation { expires, retained: true, ..kept("shop", Some("gone")) };
        let claim = claimed(&mut sim, purpose, Some(waits));
        sim.cluster.create_service("shop/web");
        sim.settle();
        assert_eq!(condition_of(&sim, "shop/web").1, "QuotaExceeded");
        assert_eq!(sim.cluster.claims[&ip("10.0.0.0")], claim);
    }
}

#[test]
fn a_claim_of_another_use_without_a_holder_is_no_finding_and_stays() {
    for purpose in OTHERS {
        for reserved in [None, Some(kept("shop", None)), Some(kept("shop", Some("web")))] {
            let mut sim = running(1);
            let claim = claimed(&mut sim, purpose, reserved);
            assert_eq!(claim.tenure, Tenure::Held(Vec::new()));
            sim.settle();
            sim.pass_time(Duration::from_mins(11));
            sim.settle();
            asks(&mut sim, "other/asks");
            sim.settle();
            assert!(sim.counted(0).values().all(|count| *count == 0), "{:?}", sim.counted(0));
            let status = sim.cluster.pool_status("IPGroup/a");
            let consistent = landfall_api::condition::get(&status.conditions, "Consistent");
            assert!(consistent.is_none(), "{consistent:?}");
            let reason = condition_of(&sim, "other/asks").1;
            assert_eq!(reason, if claim.reserved.is_some() { "Reserved" } else { "TakenBy" });
            assert_eq!(sim.cluster.claims[&ip("10.0.0.0")], claim);
        }
    }
}

#[test]
fn a_claim_with_words_of_another_version_is_taken_and_never_judged() {
    let holder = json!({"kind": "Service", "namespace": "shop", "name": "gone"});
    for spec in [
        json!({"use": "Anycast"}),
        json!({"use": "Anycast", "reservedFor": {"namespace": "shop"}}),
        json!({"use": "Anycast", "holders": [holder.clone()]}),
        json!({"reservedFor": {"kind": "Later", "namespace": "shop"}}),
        json!({"use": "Reserved", "reservedFor": {
            "kind": "Later", "namespace": "shop", "expires": "1970-01-01T00:00:01Z", "retained": true,
        }}),
        json!({"reservedFor": {"kind": "Later", "namespace": "shop"}, "holders": [holder]}),
    ] {
        let object = serde_json::from_value(json!({
            "apiVersion": "paas.org/v1", "kind": "IP",
            "metadata": {"name": "10.0.0.0"}, "spec": spec,
        }));
        let claim = object::read(&DeserializeGuard(Ok(object.unwrap()))).unwrap();
        let mut sim = running(1);
        let claim = sim.cluster.put_claim(claim);
        sim.cluster.create_service("shop/any");
        asks(&mut sim, "shop/asks");
        sim.settle();
        sim.pass_time(Duration::from_mins(11));
        sim.settle();
        assert_eq!(shown_by(&sim, "shop/any"), ["10.0.0.1"], "{spec}");
        assert_eq!(condition_of(&sim, "shop/asks").1, "TakenBy", "{spec}");
        assert!(sim.counted(0).values().all(|count| *count == 0), "{spec}: {:?}", sim.counted(0));
        assert_eq!(sim.cluster.claims[&ip("10.0.0.0")], claim, "{spec}");
    }
}
