//! Services whose addresses are published in an annotation, which their users write as well.

use landfall_api::kube_vip::{Leases, Scope};
use landfall_ipam::Family;

use super::*;
use crate::cluster::pool::Rank;

fn annotated() -> Sim {
    let mut sim = running_in(Place::Annotation, 1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.writes.clear();
    sim
}

fn edited(change: impl FnOnce(&mut Balancer)) -> Sim {
    let mut sim = annotated();
    sim.cluster.create_service("shop/other");
    sim.settle();
    sim.cluster.writes.clear();
    sim.cluster.edit_service("shop/web", |stored| change(&mut stored.view));
    sim.settle();
    sim
}

/// The spec asks for another address than the annotation names.
fn spec_contradicts_annotation(view: &mut Balancer, asked: &str) {
    view.request = Request::Addresses(vec![ip(asked)]);
    view.spec_contradicts_annotation = true;
}

#[test]
fn an_address_takes_two_writes_and_then_silence() {
    let mut sim = running_in(Place::Annotation, 1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take", "annotate"]);
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
    assert_eq!(sim.plan(0), 0);
}

#[test]
fn whichever_is_edited_the_service_moves() {
    type Change = fn(&mut Balancer);
    for (case, change, writes, shows) in [
        (
            "the spec",
            (|view| spec_contradicts_annotation(view, "10.0.0.2")) as Change,
            &["take", "annotate", "release"][..],
            "10.0.0.2",
        ),
        (
            "the annotation",
            |view| view.shows = vec![ip("10.0.0.2")],
            &["take", "release"],
            "10.0.0.2",
        ),
        (
            "the annotation, while the spec still says the old one",
            |view| {
                view.shows = vec![ip("10.0.0.2")];
                spec_contradicts_annotation(view, "10.0.0.0");
            },
            &["annotate", "take", "release"],
            "10.0.0.2",
        ),
        (
            "the annotation is removed",
            |view| view.shows.clear(),
            &["touch", "annotate"],
            "10.0.0.0",
        ),
        (
            "outside every pool",
            |view| view.shows = vec![ip("192.0.2.1")],
            &["take", "publish", "release"],
            "192.0.2.1",
        ),
        (
            "what another has, while the spec still says the old one: no Service is moved",
            |view| {
                view.shows = vec![ip("10.0.0.1")];
                spec_contradicts_annotation(view, "10.0.0.0");
            },
            &["publish", "publish"],
            "10.0.0.1",
        ),
    ] {
        let sim = edited(change);
        assert_eq!(sim.cluster.writes, writes, "{case}");
        assert_eq!(shown_by(&sim, "shop/web"), [shows], "{case}");
        assert_eq!(shown_by(&sim, "shop/other"), ["10.0.0.1"], "{case}");
    }
}

#[test]
fn a_lease_is_not_taken_away_because_the_other_family_is_missing() {
    for (lease, asks, shown, missing) in [
        ("0.0.0.0", None, &["0.0.0.0"][..], "FamilyMissing"),
        ("::", Some("10.0.0.1"), &["10.0.0.0", "::"], "TakenBy"),
    ] {
        let mut sim = edited(|view| {
            view.shows = vec![ip(lease)];
            view.families = vec![Family::V4, Family::V6];
            view.require_all = true;
            view.request = asks.map_or(Request::Any, |asked| Request::Addresses(vec![ip(asked)]));
        });
        assert_eq!(shown_by(&sim, "shop/web"), shown);
        assert_eq!(condition_of(&sim, "shop/web").1, missing);
        assert_eq!(sim.cluster.claims.len(), shown.len(), "what it does not show is free");
        assert_eq!(sim.plan(0), 0);
    }
}

#[test]
fn a_service_with_leases_of_both_families_has_no_claim() {
    for (leases, shown) in [(Leases::All, &["0.0.0.0"][..]), (Leases::Each, &["0.0.0.0", "::"])] {
        let mut sim = running_in(Place::Annotation, 1);
        sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| view.leases = leases);
        for key in ["shop/a", "shop/b"] {
            sim.cluster.create_service(key);
            sim.cluster.edit_service(key, |stored| {
                stored.view.families = vec![Family::V4, Family::V6];
                stored.view.require_all = true;
            });
        }
        sim.settle();
        assert_eq!(shown_by(&sim, "shop/a"), shown);
        assert_eq!(shown_by(&sim, "shop/b"), shown);
        assert_eq!(sim.cluster.claims.len(), 0);
    }
}

#[test]
fn an_address_from_the_pool_of_others_stays_where_it_is_shown() {
    for (namespace, place) in [("shop", Place::Annotation), ("other", Place::Status)] {
        let mut sim = running(1);
        sim.cluster.delete_pool(&PoolName::new("IPGroup/a"));
        let key = PoolName::new("ConfigMap/kubevip/cidr-shop");
        sim.cluster.set_pool(key.as_str(), "10.0.0.0-10.0.0.3", "");
        sim.cluster.put_pool(&key, |view| {
            view.place = Place::Annotation;
            view.rank = Rank::OfNamespace;
            view.scope = Some(Scope::OnlyOne("shop".to_owned()));
        });
        let name = format!("{namespace}/web");
        sim.cluster.create_service(&name);
        sim.cluster
            .edit_service(&name, |stored| stored.view = stored.view.clone().showing(&["10.0.0.2"]));
        sim.settle();
        let stored = &sim.cluster.services[&ObjectKey::new(namespace, "web")];
        assert_eq!(stored.view.place, place, "{namespace}");
        assert_eq!(shown_by(&sim, &name), ["10.0.0.2"]);
        assert_eq!(sim.cluster.claims.len(), 1, "{namespace}");
    }
}

#[test]
fn a_family_that_is_given_up_goes_unless_its_user_wrote_the_address() {
    let both = ["10.0.0.0", "fd00::"];
    let with_both = |given: bool| {
        let mut sim = running_in(Place::Annotation, 1);
        sim.cluster.set_pool("IPGroup/a", "10.0.0.0-10.0.0.3 fd00::-fd00::3", "");
        sim.cluster.create_service("shop/web");
        sim.cluster.edit_service("shop/web", |stored| {
            stored.view.families = vec![Family::V4, Family::V6];
            if !given {
                stored.view.place = Place::Annotation;
                stored.view.shows = both.map(ip).to_vec();
                stored.view.extra_family = Some(Family::V6);
            }
        });
        sim.settle();
        assert_eq!(shown_by(&sim, "shop/web"), both);
        sim
    };
    let mut sim = with_both(true);
    sim.cluster.writes.clear();
    sim.cluster.edit_service("shop/web", |stored| stored.view.extra_family = Some(Family::V6));
    sim.settle();
    assert_eq!(sim.cluster.writes, ["annotate", "release"]);
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);

    // Even when its claims are written again.
    let mut sim = with_both(false);
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows = vec![ip("10.0.0.0")]);
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows = both.map(ip).to_vec());
    sim.crash(0);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), both);
    assert_eq!(sim.cluster.claims[&ip("fd00::")].pool, None);
}

/// The address would be announced again as soon as the Service became a `LoadBalancer` again.
#[test]
fn the_annotation_goes_before_the_address_is_released() {
    let mut sim = annotated();
    sim.cluster.edit_service("shop/web", |stored| stored.load_balancer = false);
    sim.settle();
    assert_eq!(sim.cluster.writes, ["clean_up", "release"]);
    assert_eq!(sim.cluster.claims.len(), 0);
}

#[test]
fn a_service_that_moves_from_the_status_to_the_annotation_leaves_nothing_behind() {
    let mut sim = running(1);
    let (group, key) = (PoolName::new("IPGroup/a"), PoolName::new("ConfigMap/kubevip/a"));
    sim.cluster.set_pool(key.as_str(), "10.0.0.2-10.0.0.5", "");
    sim.cluster.put_pool(&key, |view| {
        view.place = Place::Annotation;
        view.rank = Rank::Fallback;
    });
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take", "publish"]);
    // Its pool goes; the address it shows stays published.
    sim.cluster.writes.clear();
    sim.cluster.delete_pool(&group);
    sim.settle();
    assert_eq!(sim.cluster.writes, ["publish"], "that no pool covers it any more");
    sim.cluster.writes.clear();
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.3")]);
    });
    sim.settle();
    let said = "and that all is well";
    assert_eq!(
        sim.cluster.writes,
        ["take", "publish", "touch", "annotate", "publish", "release"],
        "{said}"
    );
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.3"]);
    assert_eq!(sim.cluster.wrongs, Vec::<String>::new());
}

/// Only an unreadable annotation must be fixed by its user before the planner writes to it.
#[test]
fn a_clashing_service_leaves_even_if_its_request_makes_no_sense() {
    let mut sim = running_in(Place::Annotation, 1);
    share(&mut sim, "shop/a", "k", 80);
    share(&mut sim, "shop/b", "k", 443);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.0"]);
    let clashing = |annotation_unreadable: bool| {
        move |stored: &mut Stored| {
            stored.view = stored.view.clone().sharing("k", 80);
            stored.view.request = Request::Bad(Refusal::WrongFamily(ip("fd00::1")));
            stored.view.annotation_unreadable = annotation_unreadable;
        }
    };
    sim.cluster.edit_service("shop/b", clashing(true));
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.0"]);
    sim.cluster.edit_service("shop/b", clashing(false));
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/b"), [] as [&str; 0]);
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.0"]);
}

#[test]
fn an_address_that_moved_to_another_pool_is_shown_where_that_pool_says() {
    let mut sim = running_in(Place::Annotation, 1);
    let kept = Reservation {
        kind: HolderKind::Service,
        namespace: "shop".to_owned(),
        name: None,
        expires: None,
        retained: false,
    };
    sim.cluster.reserve(ip("10.0.0.1"), kept);
    sim.cluster.create_service("shop/first");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/first"), ["10.0.0.1"]);
    sim.cluster.delete_service("shop/first");
    let (group, others) = (PoolName::new("IPGroup/a"), PoolName::new("IPGroup/others"));
    sim.cluster.delete_pool(&group);
    sim.cluster.set_pool(others.as_str(), "10.0.0.0-10.0.0.3", "");
    sim.cluster.put_pool(&others, |view| view.scope = Some(Scope::OnlyOne("other".to_owned())));
    sim.settle();
    sim.cluster.create_service("shop/second");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/second"), ["10.0.0.1"]);
    let second = &sim.cluster.services[&ObjectKey::parse("shop/second").unwrap()];
    assert_eq!(second.view.place, Place::Annotation);
}

#[test]
fn an_address_that_no_pool_gave_is_of_none_even_if_one_covers_it_later() {
    let mut sim = running_in(Place::Annotation, 1);
    sim.cluster.create_service("shop/web");
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("192.0.2.1")]);
    });
    sim.settle();
    assert_eq!(sim.cluster.claims[&ip("192.0.2.1")].pool, None);
    sim.cluster.set_pool("IPGroup/later", "192.0.2.0-192.0.2.9", "");
    share(&mut sim, "shop/web", "k", 80);
    sim.settle();
    let claim = &sim.cluster.claims[&ip("192.0.2.1")];
    assert_eq!(claim.services()[0].terms.as_ref().unwrap().ports, ["TCP/80"], "it was written");
    assert_eq!(claim.pool, None);
}

#[test]
fn an_address_that_no_pool_gave_is_of_none_for_the_next_service_of_the_same_name() {
    let mut sim = running_in(Place::Annotation, 1);
    let make = |sim: &mut Sim| {
        sim.cluster.create_service("shop/web");
        sim.cluster.edit_service("shop/web", |stored| {
            stored.view.place = Place::Annotation;
            stored.view.shows = vec![ip("192.0.2.1")];
        });
    };
    make(&mut sim);
    sim.settle();
    let before = sim.cluster.claims[&ip("192.0.2.1")].clone();
    sim.cluster.delete_service("shop/web");
    make(&mut sim);
    let later = PoolName::new("IPGroup/later");
    sim.cluster.set_pool(later.as_str(), "192.0.2.0-192.0.2.9", "");
    sim.cluster.put_pool(&later, |view| {
        view.place = Place::Status;
        view.scope = Some(Scope::OnlyOne("other".to_owned()));
    });
    sim.crash(0);
    sim.settle();
    let claim = &sim.cluster.claims[&ip("192.0.2.1")];
    assert_ne!(claim.services()[0].uid, before.services()[0].uid);
    assert_eq!(claim.pool, None);
}

#[test]
fn a_service_that_shows_addresses_of_both_kinds_keeps_showing_them_where_it_does() {
    let mut sim = running(1);
    let (group, key) = (PoolName::new("IPGroup/a"), PoolName::new("ConfigMap/kubevip/a"));
    sim.cluster.set_pool(key.as_str(), "fd00::1-fd00::9", "");
    sim.cluster.put_pool(&key, |view| view.place = Place::Annotation);
    sim.cluster.create_service("shop/web");
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.families = vec![Family::V4, Family::V6];
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0", "fd00::1"]);
    sim.cluster.writes.clear();
    sim.cluster.put_pool(&group, |view| view.scope = Some(Scope::OnlyOne("other".to_owned())));
    sim.settle();
    assert_eq!(sim.cluster.writes, [] as [&str; 0]);
}

#[test]
fn an_address_that_a_pool_excludes_is_given_to_no_service_even_beyond_the_pools() {
    let mut sim = running_in(Place::Annotation, 1);
    let others = PoolName::new("ConfigMap/kubevip/others");
    sim.cluster.set_pool(others.as_str(), "192.0.2.1-192.0.2.2", "192.0.2.2");
    sim.cluster.put_pool(&others, |view| view.scope = Some(Scope::OnlyOne("other".to_owned())));
    for (key, asked) in [("shop/may", "192.0.2.1"), ("shop/may-not", "192.0.2.2")] {
        sim.cluster.create_service(key);
        sim.cluster.edit_service(key, |stored| {
            stored.view.request = Request::Addresses(vec![ip(asked)]);
        });
    }
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/may"), ["192.0.2.1"]);
    assert_eq!(shown_by(&sim, "shop/may-not"), [] as [&str; 0]);
}

/// From then on it counts as an address of the pool for all its holders.
#[test]
fn joining_an_address_that_no_pool_gave_makes_it_count_for_the_others_at_once() {
    let mut sim = running_in(Place::Annotation, 1);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.9", "10.0.0.9");
    let share_with_all = |sim: &mut Sim, key: &str, port: u16| {
        share(sim, key, "key", port);
        sim.cluster.edit_service(key, |stored| {
            let terms = stored.view.terms.as_mut().map(Arc::make_mut);
            terms.unwrap().with = vec!["*".to_owned()];
        });
    };
    share_with_all(&mut sim, "other/beyond", 80);
    sim.cluster.edit_service("other/beyond", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "other/beyond"), ["10.0.0.0"]);
    share_with_all(&mut sim, "shop/joins", 443);
    sim.cluster.create_service("other/waits");
    sim.settle();
    sim.cluster.set_pool("IPGroup/b", POOLS[0].0, "");
    sim.cluster.put_pool(&PoolName::new("IPGroup/b"), |view| {
        let per_namespace = Some(1);
        view.quota = Some(landfall_api::Quota { per_namespace, ..Default::default() });
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/joins"), ["10.0.0.0"]);
    assert_eq!(shown_by(&sim, "other/waits"), Vec::<String>::new(), "one is what it may hold");
}

#[test]
fn a_clean_up_whose_answer_is_lost_still_frees_the_address() {
    let mut sim = annotated();
    sim.cluster.edit_service("shop/web", |stored| stored.load_balancer = false);
    sim.deliver(0, Kind::Services, usize::MAX);
    assert_eq!(sim.plan(0), 1, "what it showed goes first");
    sim.take_hold(0, 0);
    sim.lose(0, 0);
    // The planner plans before the watch tells that the write did happen.
    assert_eq!(sim.plan(0), 0);
    sim.quiet();
    assert_eq!(sim.cluster.writes, ["clean_up", "release"]);
    assert!(sim.cluster.claims.is_empty());
}
