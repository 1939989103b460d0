//! One tenant's Services do not affect those of another.

use std::collections::BTreeMap;

use landfall_api::Quota;
use landfall_ipam::{Family, Terms};

use super::*;
use crate::{cluster::service::Plain, sim::Foreign};

const POOL: &str = "IPGroup/a";

fn pool(sim: &mut Sim, change: impl FnOnce(&mut PoolView)) {
    sim.cluster.put_pool(&PoolName::new(POOL), change);
}

fn quota(sim: &mut Sim, per_namespace: i32) {
    let quota = Quota { per_namespace: Some(per_namespace), namespaces: BTreeMap::new() };
    pool(sim, |view| view.quota = Some(quota));
}

/// A user writes kube-vip's annotation on a Service, whether or not kube-vip is in use there.
fn annotate(sim: &mut Sim, key: &str, addr: &str) {
    sim.cluster.edit_service(key, |stored| {
        let view = &mut stored.view;
        if view.place == Place::Status {
            view.announced = std::mem::take(&mut view.shows);
        }
        view.plain = Some(Box::new(Plain {
            families: view.families.clone(),
            request: Request::Addresses(vec![ip(addr)]),
            ingress_has_hostname: false,
            marked: false,
        }));
        view.place = Place::Annotation;
        view.shows = vec![ip(addr)];
    });
}

fn externals(sim: &mut Sim, key: &str, addrs: &[&str]) {
    let key = ObjectKey::parse(key).unwrap();
    let addrs: Vec<_> = addrs.iter().map(|addr| ip(addr)).collect();
    sim.cluster.set_foreign(&Foreign::External(key), &addrs);
}

fn reason(sim: &Sim, key: &str) -> String {
    let stored = &sim.cluster.services[&ObjectKey::parse(key).unwrap()];
    stored.view.conditions.first().map(|said| said.reason.clone()).unwrap_or_default()
}

fn message(sim: &Sim, key: &str) -> String {
    let stored = &sim.cluster.services[&ObjectKey::parse(key).unwrap()];
    stored.view.conditions.first().map(|said| said.message.clone()).unwrap_or_default()
}

#[test]
fn without_kube_vip_its_annotation_is_a_request_like_any_other() {
    for (case, addr, prepare, outcome) in [
        ("free", "10.0.0.2", (|_| {}) as fn(&mut Sim), Ok("10.0.0.2")),
        (
            "of other namespaces",
            "10.0.0.2",
            |sim| {
                pool(sim, |view| {
                    view.scope = Some(landfall_api::kube_vip::Scope::OnlyOne("other".to_owned()));
                });
            },
            Err("NotSelected"),
        ),
        ("over quota", "10.0.0.2", |sim| quota(sim, 0), Err("QuotaExceeded")),
        (
            "excluded",
            "10.0.0.2",
            |sim| sim.cluster.set_pool(POOL, "10.0.0.0-10.0.0.3", "10.0.0.2"),
            Err("Excluded"),
        ),
        (
            "draining",
            "10.0.0.2",
            |sim| {
                sim.cluster.put_pool(&PoolName::new(POOL), |view| {
                    view.pool.as_mut().unwrap().drain = true;
                });
            },
            Err("Draining"),
        ),
        ("outside every pool", "192.0.2.1", |_| {}, Err("OutsideEveryPool")),
        ("loopback", "127.0.0.1", |_| {}, Err("OutsideEveryPool")),
        ("multicast", "224.0.0.1", |_| {}, Err("OutsideEveryPool")),
        (
            "a node's",
            "10.0.0.2",
            |sim| {
                sim.cluster.set_foreign(&Foreign::Node("n".to_owned()), &[ip("10.0.0.2")]);
            },
            Err("TakenBy"),
        ),
    ] {
        let mut sim = running(1);
        prepare(&mut sim);
        sim.settle();
        sim.cluster.create_service("shop/web");
        annotate(&mut sim, "shop/web", addr);
        sim.settle();
        let stored = &sim.cluster.services[&ObjectKey::parse("shop/web").unwrap()];
        let in_status: Vec<_> = stored.view.announced.iter().map(ToString::to_string).collect();
        match outcome {
            Ok(addr) => assert_eq!(in_status, [addr], "{case}"),
            Err(expected) => {
                assert_eq!(in_status, [] as [&str; 0], "{case}");
                assert_eq!(reason(&sim, "shop/web"), expected, "{case}");
                assert!(sim.cluster.claims.is_empty(), "{case}");
            }
        }
    }
}

#[test]
fn an_annotation_without_proof_is_judged_by_the_rules_of_every_group() {
    let kube_vip = PoolName::new("ConfigMap/kubevip/cidr-global");
    for (case, addr, proof, outcome) in [
        ("of a group that serves others", "10.0.0.1", false, Err::<(), _>("NotSelected")),
        ("the same, announced already when we came", "10.0.0.1", true, Ok(())),
        ("of the map", "10.9.0.1", false, Ok(())),
        ("outside every pool", "192.0.2.1", false, Ok(())),
        ("loopback", "127.0.0.1", false, Err("OutsideEveryPool")),
        ("multicast", "224.0.0.1", false, Err("OutsideEveryPool")),
        ("broadcast", "255.255.255.255", false, Err("OutsideEveryPool")),
    ] {
        let mut sim = running(1);
        pool(&mut sim, |view| {
            view.scope = Some(landfall_api::kube_vip::Scope::OnlyOne("other".to_owned()));
        });
        sim.cluster.set_pool(kube_vip.as_str(), "10.9.0.1-10.9.0.9", "");
        sim.cluster.put_pool(&kube_vip, |view| view.place = Place::Annotation);
        sim.cluster.create_service("shop/web");
        annotate(&mut sim, "shop/web", addr);
        if proof {
            sim.cluster.edit_service("shop/web", |stored| stored.view.announced = vec![ip(addr)]);
            sim.crash(0);
        }
        sim.settle();
        assert_eq!(sim.cluster.claims.contains_key(&ip(addr)), outcome.is_ok(), "{case}");
        if let Err(expected) = outcome {
            assert_eq!(reason(&sim, "shop/web"), expected, "{case}");
        }
        assert_eq!(shown_by(&sim, "shop/web"), [addr], "{case}: its user's text stays");
    }
}

#[test]
fn an_annotation_that_was_refused_is_not_proven_by_later_announcements_of_kube_vip() {
    let mut sim = running_in(Place::Annotation, 1);
    sim.cluster.create_service("other/first");
    sim.settle();
    sim.cluster.create_service("shop/web");
    annotate(&mut sim, "shop/web", "10.0.0.0");
    sim.settle();
    assert_eq!(reason(&sim, "shop/web"), "TakenBy");
    sim.cluster.edit_service("shop/web", |stored| stored.view.announced = vec![ip("10.0.0.0")]);
    sim.settle();
    assert_eq!(reason(&sim, "shop/web"), "TakenBy");
    let holders = sim.cluster.claims[&ip("10.0.0.0")].services();
    assert_eq!(holders.len(), 1);
    assert_eq!(holders[0].key.as_str(), "other/first");
}

#[test]
fn a_request_is_not_proven_by_announcements_of_kube_vip_before_it_is_answered() {
    let mut sim = running_in(Place::Annotation, 1);
    let others = PoolName::new("IPGroup/others");
    sim.cluster.set_pool(others.as_str(), "10.1.0.0-10.1.0.9", "");
    sim.cluster.put_pool(&others, |view| {
        view.place = Place::Status;
        view.scope = Some(landfall_api::kube_vip::Scope::OnlyOne("other".to_owned()));
    });
    sim.settle();
    sim.cluster.create_service("shop/web");
    annotate(&mut sim, "shop/web", "10.1.0.1");
    sim.cluster.edit_service("shop/web", |stored| stored.view.announced = vec![ip("10.1.0.1")]);
    sim.settle();
    assert_eq!(reason(&sim, "shop/web"), "NotSelected");
    assert!(sim.cluster.claims.is_empty());
    // This does not hold for a later Service of that name.
    sim.cluster.delete_service("shop/web");
    sim.settle();
    sim.crash(0);
    sim.cluster.create_service("shop/web");
    annotate(&mut sim, "shop/web", "10.1.0.1");
    sim.cluster.edit_service("shop/web", |stored| stored.view.announced = vec![ip("10.1.0.1")]);
    sim.settle();
    assert!(sim.cluster.claims.contains_key(&ip("10.1.0.1")));
}

#[test]
fn an_address_that_is_merely_listed_goes_to_the_oldest_service_that_waits_for_it() {
    let mut sim = running_in(Place::Annotation, 1);
    sim.cluster.set_pool(POOL, "10.0.0.0", "");
    for key in ["shop/has", "shop/waits"] {
        sim.cluster.create_service(key);
    }
    sim.settle();
    sim.cluster.create_service("evil/snatcher");
    annotate(&mut sim, "evil/snatcher", "10.0.0.0");
    sim.settle();
    sim.cluster.delete_service("shop/has");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/waits"), ["10.0.0.0"]);
    assert_eq!(sim.cluster.claims[&ip("10.0.0.0")].services()[0].key.as_str(), "shop/waits");
}

#[test]
fn setting_and_removing_an_annotation_rewrites_no_service_beyond_the_tenants_rights() {
    for place in [Place::Status, Place::Annotation] {
        let mut sim = running_in(place, 1);
        pool(&mut sim, |view| {
            view.scope = Some(landfall_api::kube_vip::Scope::OnlyOne("shop".to_owned()));
        });
        for key in ["shop/a", "shop/b"] {
            sim.cluster.create_service(key);
        }
        sim.settle();
        sim.cluster.create_service("evil/web");
        sim.settle();
        let before: Vec<_> = ["shop/a", "shop/b"]
            .map(|key| sim.cluster.services[&ObjectKey::parse(key).unwrap()].view.version)
            .to_vec();
        for addr in ["10.0.0.0", "10.0.0.1", "10.0.0.0"] {
            annotate(&mut sim, "evil/web", addr);
            sim.settle();
        }
        let after: Vec<_> = ["shop/a", "shop/b"]
            .map(|key| sim.cluster.services[&ObjectKey::parse(key).unwrap()].view.version)
            .to_vec();
        assert_eq!(before, after, "{place:?}");
    }
}

#[test]
fn a_service_whose_address_others_write_in_their_annotations_is_told_less_and_less_often() {
    let mut sim = running_in(Place::Annotation, 1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    let began = sim.wall();
    for round in 0..100_u32 {
        let key = format!("evil/web-{}", round % 7);
        sim.cluster.create_service(&key);
        annotate(&mut sim, &key, "10.0.0.0");
        sim.settle();
        sim.cluster.delete_service(&key);
        sim.settle();
    }
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
    let minutes = sim.wall().duration_since(began).as_mins();
    assert!(minutes > 60, "told 200 times in {minutes} minutes");
}

#[test]
fn external_addresses_count_as_far_as_their_namespace_has_a_right_to_them() {
    let all = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3"];
    for (case, prepare, left) in [
        ("no rules", (|_| {}) as fn(&mut Sim), 0),
        ("a quota of two", |sim| quota(sim, 2), 2),
        (
            "a pool of others",
            |sim| {
                pool(sim, |view| {
                    view.scope =
                        Some(landfall_api::kube_vip::Scope::AllBut(["evil".to_owned()].into()));
                });
            },
            4,
        ),
    ] {
        let mut sim = running(1);
        prepare(&mut sim);
        externals(&mut sim, "evil/list", &all);
        sim.settle();
        let free = sim.cluster.pool_status(POOL).free;
        assert_eq!(free, Some(left.to_string()), "{case}");
        for key in ["shop/a", "other/b", "more/c", "most/d"] {
            sim.cluster.create_service(key);
        }
        sim.settle();
        assert_eq!(sim.cluster.claims.len(), left, "{case}");
        let findings = sim.counted(0).get(&landfall_api::Finding::ExternalIPIgnored).copied();
        assert_eq!(findings.is_some(), left > 0, "{case}: told on the pool");
        externals(&mut sim, "evil/list", &[]);
        sim.settle();
        assert_eq!(sim.cluster.claims.len(), 4, "{case}: what it gives up is free");
        let said = sim.cluster.pool_status(POOL).conditions;
        assert!(said.iter().all(|one| one.reason != "ExternalIPIgnored"), "{case}: {said:?}");
    }
}

#[test]
fn a_services_own_external_address_is_its_request_and_no_obstacle() {
    for asks in [true, false] {
        let mut sim = running(1);
        externals(&mut sim, "shop/web", &["10.0.0.2"]);
        sim.cluster.create_service("shop/web");
        sim.cluster.edit_service("shop/web", |stored| {
            stored.view.external = vec![ip("10.0.0.2")];
            if asks {
                stored.view.request = Request::Addresses(vec![ip("10.0.0.2")]);
            }
        });
        sim.settle();
        assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.2"], "{asks}");
        sim.cluster.create_service("shop/other");
        sim.cluster.edit_service("shop/other", |stored| {
            stored.view.request = Request::Addresses(vec![ip("10.0.0.2")]);
        });
        sim.settle();
        assert_eq!(reason(&sim, "shop/other"), "TakenBy", "{asks}");
    }
}

#[test]
fn retained_addresses_count_for_the_quota_and_the_oldest_is_given_up_first() {
    let mut sim = running(1);
    quota(&mut sim, 2);
    pool(&mut sim, |view| view.retain_for = Some(Duration::from_hours(24)));
    for round in 0..6_u32 {
        let key = format!("evil/web-{round}");
        sim.cluster.create_service(&key);
        sim.settle();
        assert_eq!(shown_by(&sim, &key).len(), 1, "round {round}");
        assert!(sim.cluster.claims.len() <= 2, "round {round}: {:?}", sim.cluster.claims);
        sim.cluster.delete_service(&key);
        sim.pass_time(Duration::from_secs(10));
        sim.settle();
    }
    // The youngest is still reserved for its Service.
    let kept: Vec<_> = sim.cluster.claims.values().filter_map(Claim::waits_for).collect();
    let names: Vec<_> = kept.iter().map(|kept| kept.name.clone().unwrap()).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"web-5".to_owned()) && names.contains(&"web-4".to_owned()));
    sim.cluster.create_service("evil/web-5");
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(sim.cluster.claims.len(), 3, "what is kept comes back, and others are served");
}

#[test]
fn retained_addresses_of_one_namespace_are_not_given_up_for_another() {
    let mut sim = running(1);
    sim.cluster.set_pool(POOL, "10.0.0.0", "");
    quota(&mut sim, 1);
    pool(&mut sim, |view| view.retain_for = Some(Duration::from_hours(24)));
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.delete_service("shop/web");
    sim.settle();
    sim.cluster.create_service("evil/web");
    sim.settle();
    assert_eq!(reason(&sim, "evil/web"), "Exhausted");
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.0"]);
}

/// A Service with the sharing key of a program that had no other way to express consent.
fn inherited(sim: &mut Sim, key: &str, port: u16) {
    share(sim, key, "true", port);
    sim.cluster.edit_service(key, |stored| {
        let terms = stored.view.terms.as_mut().map(Arc::make_mut).unwrap();
        terms.with.clear();
        stored.view.meant_all = true;
    });
}

#[test]
fn a_key_of_another_program_shares_within_its_namespace_unless_the_ledger_has_it_otherwise() {
    let mut sim = running(1);
    inherited(&mut sim, "shop/a", 80);
    inherited(&mut sim, "shop/b", 443);
    inherited(&mut sim, "evil/c", 8080);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), shown_by(&sim, "shop/b"));
    assert_ne!(shown_by(&sim, "shop/a"), shown_by(&sim, "evil/c"));

    // Two namespaces that already share keep the address, even if a port changes, and no other may join.
    let mut sim = running(1);
    for (key, port) in [("shop/a", 80), ("other/b", 443)] {
        inherited(&mut sim, key, port);
        sim.cluster.edit_service(key, |stored| stored.view.shows = vec![ip("10.0.0.2")]);
    }
    sim.settle();
    assert_eq!(sim.cluster.claims[&ip("10.0.0.2")].services().len(), 2);
    sim.cluster.edit_service("shop/a", |stored| {
        let terms = stored.view.terms.as_mut().map(Arc::make_mut).unwrap();
        terms.ports = vec!["TCP/81".to_owned()];
    });
    inherited(&mut sim, "evil/c", 8080);
    sim.cluster.edit_service("evil/c", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.2")]);
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.2"]);
    assert_eq!(shown_by(&sim, "other/b"), ["10.0.0.2"]);
    assert_eq!(reason(&sim, "evil/c"), "SharingRefused");
}

#[test]
fn services_that_share_against_todays_rules_keep_their_address_and_say_so() {
    let mut sim = running(1);
    let local = |key: &str, port: u16, sim: &mut Sim| {
        share(sim, key, "k", port);
        sim.cluster.edit_service(key, |stored| {
            let terms = stored.view.terms.as_mut().map(Arc::make_mut).unwrap();
            *terms =
                Terms { local: true, selector: Some("app=web".to_owned()), ..terms.with_all() };
            stored.view.shows = vec![ip("10.0.0.1")];
        });
    };
    local("shop/a", 80, &mut sim);
    local("other/b", 443, &mut sim);
    for key in ["shop/a", "other/b"] {
        let view = &sim.cluster.services[&ObjectKey::parse(key).unwrap()].view;
        let holder = view.holder_entry();
        let holders =
            sim.cluster.claims.get(&ip("10.0.0.1")).map(|claim| claim.services().to_vec());
        let holders = holders.unwrap_or_default().into_iter().chain([holder]).collect();
        sim.cluster.hold(ip("10.0.0.1"), holders);
    }
    sim.settle();
    for key in ["shop/a", "other/b"] {
        assert_eq!(shown_by(&sim, key), ["10.0.0.1"]);
        assert_eq!(reason(&sim, key), "SharedAsBefore");
        assert!(message(&sim, key).contains("the same pods of one namespace"), "{key}");
    }
    // An additional port is no reason to move.
    sim.cluster.edit_service("shop/a", |stored| {
        stored.view.terms.as_mut().map(Arc::make_mut).unwrap().ports.push("TCP/81".to_owned());
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.1"]);
}

#[test]
fn several_addresses_of_one_family_stay_when_we_come() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    let shows = ["192.0.2.9", "10.0.0.2", "10.0.0.1"];
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows = shows.map(ip).to_vec());
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), shows);
    assert_eq!(sim.cluster.writes, ["take", "take"], "the Service is not written");
    assert_eq!(
        sim.cluster.claims.keys().copied().collect::<Vec<_>>(),
        ["10.0.0.1", "10.0.0.2"].map(ip)
    );
    let found = sim.counted(0).get(&landfall_api::Finding::SeveralShown).copied();
    assert!(found.is_some());
    sim.crash(0);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), shows);
    assert_eq!(sim.cluster.writes, ["take", "take"]);
    // Only its owner changes that.
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.3")]);
    });
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.3"]);
    assert_eq!(sim.cluster.claims.len(), 1);
}

#[test]
fn a_condition_goes_with_its_cause() {
    for place in [Place::Status, Place::Annotation] {
        let mut sim = running_in(place, 1);
        sim.cluster.set_pool(POOL, "10.0.0.0", "");
        for key in ["shop/has", "shop/waits"] {
            sim.cluster.create_service(key);
            sim.settle();
        }
        sim.cluster.edit_service("shop/waits", |stored| stored.load_balancer = false);
        sim.settle();
        assert_eq!(reason(&sim, "shop/waits"), "", "{place:?}");
        sim.cluster.edit_service("shop/has", |stored| {
            stored.load_balancer = false;
        });
        sim.settle();
        assert_eq!(reason(&sim, "shop/has"), "", "{place:?}");
        assert!(sim.cluster.claims.is_empty());
        let writes = sim.cluster.writes.len();
        sim.crash(0);
        sim.settle();
        assert_eq!(sim.cluster.writes.len(), writes, "once");
    }
    let mut sim = running(1);
    sim.cluster.set_pool(POOL, "10.0.0.0", "10.0.0.0");
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_ne!(reason(&sim, "shop/web"), "");
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.class = Some("another.example/lb".into());
    });
    sim.settle();
    assert_eq!(reason(&sim, "shop/web"), "");
}

#[test]
fn a_service_that_waits_says_so_again_less_and_less_often() {
    let mut sim = running(1);
    sim.cluster.set_pool(POOL, "10.0.0.0", "10.0.0.0");
    sim.cluster.create_service("shop/web");
    sim.settle();
    let mut told = Vec::new();
    for minute in 1..=300_u64 {
        sim.pass_time(Duration::from_mins(1));
        told.extend((sim.events_planned(0) > 0).then_some(minute));
    }
    let gaps: Vec<_> = told.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(told[0], 5, "{told:?}");
    assert!(gaps.is_sorted() && gaps.iter().all(|gap| *gap <= 60), "{told:?}");
    assert_eq!(gaps.last(), Some(&55), "{told:?}");
}

#[test]
fn names_of_other_namespaces_are_hidden_where_an_administrator_says_so() {
    for hide_holders in [false, true] {
        let mut sim = running(1);
        sim.set_tenancy(Tenancy { hide_holders, ..Tenancy::default() });
        sim.cluster.create_service("secret/project");
        sim.settle();
        for key in ["shop/curious", "secret/curious"] {
            sim.cluster.create_service(key);
            sim.cluster.edit_service(key, |stored| {
                stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
            });
        }
        sim.settle();
        let told = |key: &str| message(&sim, key).contains("secret/project");
        assert_eq!(told("shop/curious"), !hide_holders, "{}", message(&sim, "shop/curious"));
        assert!(told("secret/curious"));
    }
}

#[test]
fn both_families_of_a_service_find_room_in_the_quota_that_retained_addresses_take() {
    let mut sim = running(1);
    sim.cluster.set_pool(POOL, "10.0.0.0-10.0.0.3 fd00::-fd00::3", "");
    quota(&mut sim, 2);
    pool(&mut sim, |view| view.retain_for = Some(Duration::from_hours(1)));
    let dual = |sim: &mut Sim, key: &str| {
        sim.cluster.create_service(key);
        sim.cluster.edit_service(key, |stored| {
            stored.view.families = vec![Family::V4, Family::V6];
            stored.view.require_all = true;
        });
        sim.settle();
    };
    dual(&mut sim, "shop/a");
    sim.cluster.delete_service("shop/a");
    sim.settle();
    assert_eq!(sim.cluster.claims.len(), 2);
    dual(&mut sim, "shop/b");
    assert_eq!(shown_by(&sim, "shop/b").len(), 2);
    assert_eq!(sim.cluster.claims.len(), 2);
}
