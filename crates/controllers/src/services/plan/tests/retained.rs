//! Addresses that wait for deleted Services, and Services whose quota lets them have another only in place of
//! one of these.

use landfall_api::{Quota, kube_vip::Scope};

use super::*;
use crate::call::Failure;

const NOTHING: [&str; 0] = [];

/// A pool from which `shop` may have one address, which waits for `shop/gone`.
fn one_waits_for_its_service(range: &str) -> Sim {
    let mut sim = Sim::showing_in(Place::Status, 1);
    sim.cluster.set_pool("IPGroup/stable", range, "");
    sim.cluster.put_pool(&PoolName::new("IPGroup/stable"), |view| {
        let namespaces = [("shop".to_owned(), 1)].into();
        view.quota = Some(Quota { per_namespace: None, namespaces });
        view.retain_for = Some(Duration::from_hours(24));
    });
    sim.cluster.create_service("shop/gone");
    sim.settle();
    sim.cluster.delete_service("shop/gone");
    sim.settle();
    sim
}

/// The same for `10.0.0.0`. The only address of a pool that comes first is claimed for an earlier Service of the
/// name `shop/web`, and no operator has seen the new one yet.
fn a_namesake_left_an_address() -> Sim {
    let mut sim = one_waits_for_its_service("10.0.0.0-10.0.0.3");
    sim.cluster.set_pool("IPGroup/first", "10.0.0.4", "");
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.4"]);
    sim.cluster.recreate_service("shop/web");
    sim
}

/// The address that waits for `shop/gone`.
fn waits_for_its_service(sim: &Sim) -> Option<IpAddr> {
    let name = |claim: &Claim| claim.waits_for().and_then(|kept| kept.name.clone());
    let mut claims = sim.cluster.claims.values();
    claims.find(|claim| name(claim).as_deref() == Some("gone")).map(|claim| claim.addr)
}

#[test]
fn no_address_is_given_up_for_a_service_that_can_have_its_namesakes() {
    let mut sim = a_namesake_left_an_address();
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.4"]);
    assert_eq!(waits_for_its_service(&sim), Some(ip("10.0.0.0")));
}

#[test]
fn the_address_of_a_namesake_goes_to_the_oldest_service_that_can_have_it() {
    let mut sim = a_namesake_left_an_address();
    sim.cluster.put_pool(&PoolName::new("IPGroup/stable"), |view| {
        view.scope = Some(Scope::OnlyOne("shop".to_owned()));
    });
    sim.cluster.create_service("other/young");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.4"]);
    assert_eq!(shown_by(&sim, "other/young"), NOTHING);
    assert_eq!(waits_for_its_service(&sim), Some(ip("10.0.0.0")));
}

#[test]
fn no_service_waits_for_an_address_of_its_namesake_that_cannot_be_released() {
    let mut sim = a_namesake_left_an_address();
    for _ in 0..9 {
        sim.play(0, |effect| {
            let releases = matches!(effect, Effect::Release { .. });
            releases.then(|| Err(Failure::Refused("not allowed".to_owned())))
        });
    }
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
    assert_eq!(waits_for_its_service(&sim), None);
}

#[test]
fn an_address_that_is_given_up_goes_to_the_oldest_service_that_can_have_it() {
    let mut sim = one_waits_for_its_service("10.0.0.0");
    sim.cluster.create_service("shop/old");
    sim.cluster.create_service("other/young");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/old"), ["10.0.0.0"]);
    assert_eq!(shown_by(&sim, "other/young"), NOTHING);
}

#[test]
fn a_service_that_is_created_again_has_its_address_before_waiting_services() {
    for asks in [false, true] {
        let mut sim = one_waits_for_its_service("10.0.0.0");
        sim.cluster.create_service("shop/gone");
        sim.settle();
        if asks {
            sim.cluster.edit_service("shop/gone", |stored| {
                stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
            });
        }
        sim.cluster.create_service("shop/waits");
        sim.settle();
        sim.cluster.recreate_service("shop/gone");
        sim.settle();
        assert_eq!(shown_by(&sim, "shop/gone"), ["10.0.0.0"], "{asks}");
        assert_eq!(shown_by(&sim, "shop/waits"), NOTHING, "{asks}");
    }
}
