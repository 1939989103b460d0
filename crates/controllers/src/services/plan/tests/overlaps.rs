//! Two pools that cover one range.

use landfall_api::{FamilyCount, condition};

use super::*;

fn overlaps(sim: &Sim, pool: &str) -> Option<String> {
    let status = sim.cluster.pool_status(pool);
    condition::get(&status.conditions, "Overlaps").map(|said| said.message.clone())
}

fn used(sim: &Sim, pool: &str) -> String {
    sim.cluster.pool_status(pool).used.unwrap()
}

#[test]
fn pools_that_overlap_say_so_until_they_do_not() {
    let mut sim = running(1);
    sim.settle();
    assert_eq!(overlaps(&sim, "IPGroup/a"), None);
    sim.cluster.set_pool("IPGroup/b", "10.0.0.3-10.0.0.9", "");
    sim.cluster.set_pool("IPGroup/c", "10.1.0.0/24", "");
    sim.settle();
    for (pool, other) in [("IPGroup/a", "IPGroup/b"), ("IPGroup/b", "IPGroup/a")] {
        let said = overlaps(&sim, pool).unwrap();
        assert!(
            said.starts_with(&format!("has addresses that {other} can give as well")),
            "{said}"
        );
    }
    assert_eq!(overlaps(&sim, "IPGroup/c"), None);
    sim.cluster.set_pool("IPGroup/b", "10.0.0.4-10.0.0.9", "");
    sim.settle();
    assert_eq!((overlaps(&sim, "IPGroup/a"), overlaps(&sim, "IPGroup/b")), (None, None));
}

#[test]
fn an_address_counts_as_used_where_it_was_given_even_if_other_pools_come_and_go() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    // This pool is asked first from now on, but it did not give the address.
    let first = PoolName::new("IPGroup/first");
    sim.cluster.set_pool(first.as_str(), "10.0.0.0-10.0.0.3", "");
    sim.cluster.put_pool(&first, |view| view.pool.as_mut().unwrap().priority = 1);
    sim.settle();
    assert_eq!((used(&sim, "IPGroup/a"), used(&sim, "IPGroup/first")), ("1".into(), "0".into()));
    sim.cluster.create_service("shop/next");
    sim.settle();
    assert_eq!((used(&sim, "IPGroup/a"), used(&sim, "IPGroup/first")), ("1".into(), "1".into()));
    sim.cluster.delete_service("shop/web");
    sim.settle();
    assert_eq!((used(&sim, "IPGroup/a"), used(&sim, "IPGroup/first")), ("0".into(), "1".into()));
    // The giver no longer covers the address: it counts for the pool that does.
    sim.cluster.set_pool(first.as_str(), "10.0.0.9", "");
    sim.settle();
    assert_eq!((used(&sim, "IPGroup/a"), used(&sim, "IPGroup/first")), ("1".into(), "0".into()));
}

#[test]
fn a_waiter_counts_for_the_pool_that_would_serve_it() {
    let mut sim = running(1);
    let first = PoolName::new("IPGroup/first");
    sim.cluster.set_pool(first.as_str(), "10.0.0.0-10.0.0.3", "10.0.0.3");
    sim.cluster.put_pool(&first, |view| {
        view.pool.as_mut().unwrap().priority = 1;
        view.namespaces = Some([("team", "other")].into_iter().collect());
    });
    sim.cluster.create_service("shop/web");
    sim.settle();
    for (key, addr) in [("shop/taken", "10.0.0.0"), ("shop/excluded", "10.0.0.3")] {
        sim.cluster.create_service(key);
        sim.cluster.edit_service(key, |stored| {
            stored.view.request = Request::Addresses(vec![ip(addr)]);
        });
    }
    sim.settle();
    let waiting = |pool: &str| sim.cluster.pool_status(pool).waiting;
    assert_eq!((waiting("IPGroup/a"), waiting("IPGroup/first")), (Some(2), Some(0)));
}

#[test]
fn a_pool_tells_its_numbers_by_family() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.3 fd00::/64", "");
    sim.cluster.create_service("shop/web");
    sim.settle();
    let count = |capacity: &str, used: &str, free: &str| {
        let [capacity, used, free] = [capacity, used, free].map(str::to_owned);
        Some(FamilyCount { capacity, used, free })
    };
    let status = sim.cluster.pool_status("IPGroup/a");
    assert_eq!(status.ipv4, count("4", "1", "3"));
    assert_eq!(status.ipv6, count("18446744073709551616", "0", "18446744073709551616"));
    assert_eq!(status.free.as_deref(), Some("18446744073709551619"));
    assert_eq!(status.free_short.as_deref(), Some("1.8e19"));
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.3", "");
    sim.settle();
    let status = sim.cluster.pool_status("IPGroup/a");
    assert_eq!((status.ipv4, status.ipv6), (count("4", "1", "3"), None));
}
