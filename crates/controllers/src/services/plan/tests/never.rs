//! Addresses that no Service can have.

use super::*;
use crate::sim::Foreign;

fn asks(sim: &mut Sim, key: &str, addr: &str) {
    sim.cluster.create_service(key);
    sim.cluster.edit_service(key, |stored| {
        stored.view.request = Request::Addresses(vec![ip(addr)]);
    });
}

#[test]
fn a_cluster_ip_is_its_services_until_that_goes() {
    let mut sim = running(1);
    let service = Foreign::ClusterIp(ObjectKey::new("shop", "inside"));
    sim.cluster.set_foreign(&service, &[ip("10.0.0.0")]);
    sim.cluster.create_service("shop/any");
    asks(&mut sim, "shop/asks", "10.0.0.0");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/any"), ["10.0.0.1"]);
    let said = condition_of(&sim, "shop/asks").2;
    let taken = "10.0.0.0 is taken by Service shop/inside, whose ClusterIP it is";
    assert!(said.starts_with(taken), "{said}");
    sim.cluster.set_foreign(&service, &[]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/asks"), ["10.0.0.0"]);
}

#[test]
fn a_cluster_ip_that_a_service_range_covers_costs_no_memory() {
    let mut sim = running(1);
    sim.set_service_ranges("10.96.0.0/12 fd00:96::/108");
    let inside = Foreign::ClusterIp(ObjectKey::new("shop", "inside"));
    sim.cluster.set_foreign(&inside, &[ip("10.96.0.7"), ip("fd00:96::7")]);
    sim.settle();
    assert_eq!(sim.remembered_cluster_ips(0), 0);
    let outside = Foreign::ClusterIp(ObjectKey::new("shop", "outside"));
    sim.cluster.set_foreign(&outside, &[ip("10.0.0.0"), ip("fd00:96::8")]);
    sim.settle();
    assert_eq!(sim.remembered_cluster_ips(0), 1);
}

#[test]
fn an_address_in_a_service_range_is_given_by_no_pool_and_stays_with_its_holder() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/first");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/first"), ["10.0.0.0"]);
    sim.set_service_ranges("10.0.0.0/31");
    sim.cluster.create_service("shop/any");
    asks(&mut sim, "shop/asks", "10.0.0.1");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/first"), ["10.0.0.0"], "no address changes");
    assert_eq!(shown_by(&sim, "shop/any"), ["10.0.0.2"]);
    let said = condition_of(&sim, "shop/asks").2;
    assert!(
        said.starts_with("10.0.0.1 is an address that the cluster gives as ClusterIP"),
        "{said}"
    );
    let pool = sim.cluster.pool_status("IPGroup/a");
    let ready = landfall_api::condition::get(&pool.conditions, "Ready").unwrap();
    assert!(ready.message.contains("10.0.0.0-10.0.0.1 is of a range"), "{}", ready.message);
    assert_eq!((pool.capacity.as_deref(), pool.used.as_deref()), (Some("2"), Some("2")));
    sim.set_service_ranges("10.9.0.0/24");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/asks"), ["10.0.0.1"], "and served once it is over");
}

#[test]
fn a_reservation_of_an_address_that_no_service_can_have_is_not_used() {
    let mut sim = running(1);
    sim.set_service_ranges("10.0.0.1");
    let reservation = Reservation {
        kind: HolderKind::Service,
        namespace: "shop".to_owned(),
        name: Some("web".to_owned()),
        expires: None,
        retained: false,
    };
    sim.cluster.reserve(ip("10.0.0.1"), reservation);
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.1")]);
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
}

#[test]
fn a_pool_over_the_unspecified_address_gives_no_lease() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "0.0.0.0/30", "");
    for key in ["shop/one", "shop/two"] {
        sim.cluster.create_service(key);
        sim.settle();
    }
    assert_eq!(shown_by(&sim, "shop/one"), ["0.0.0.1"]);
    assert_eq!(shown_by(&sim, "shop/two"), ["0.0.0.2"]);
    asks(&mut sim, "shop/asks", "0.0.0.0");
    sim.settle();
    let said = condition_of(&sim, "shop/asks").2;
    assert!(said.starts_with("0.0.0.0 is the unspecified address and never given"), "{said}");
    // A Service that shows it by mistake, as if from DHCP, gets an address.
    sim.cluster.create_service("shop/mistaken");
    sim.cluster.edit_service("shop/mistaken", |stored| stored.view.shows = vec![ip("0.0.0.0")]);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/mistaken"), ["0.0.0.3"]);
}
