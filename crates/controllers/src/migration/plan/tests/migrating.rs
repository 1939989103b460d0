use serde_json::{Value, json};

use super::{MIGRATED, VALID, annotate, delete, service, valid, vip, with};
use crate::{
    migration::{
        tests::sim::Cluster,
        world::{is_load_balancer, shows},
    },
    object::ObjectKey,
};

fn shown(cluster: &Cluster, key: &str) -> Vec<String> {
    shows(cluster.get_service(key).unwrap()).map(|addr| addr.to_string()).collect()
}

fn asked(cluster: &Cluster, key: &str) -> Option<String> {
    cluster.get_service(key)?.spec.as_ref()?.load_balancer_ip.clone()
}

fn whose(cluster: &Cluster, addr: &str) -> String {
    cluster.claim_on(addr.parse().unwrap()).unwrap().to_string()
}

#[test]
fn a_service_takes_over_without_a_gap() {
    for (case, ip, expected) in
        [("any address", None, None), ("one it asked for", Some("10.0.0.1"), Some("10.0.0.1"))]
    {
        let mut cluster = valid();
        cluster.group("p", "10.0.0.0/29", &[]);
        let mut vip = cluster.vip("shop/web").clone();
        vip.wanted = ip.map(str::to_owned);
        cluster.put_virtual_ip(vip);
        annotate(&mut cluster, "shop/web");
        cluster.settle();
        let cleaning: &[_] = if ip.is_some() {
            &["end_reservation", "drop_copy", "finalizers", "status"]
        } else {
            &["end_reservation", "drop_copy", "stop_asking", "finalizers", "status"]
        };
        let handing = ["status", "status", "pass", "status", "convert", "status"];
        assert_eq!(cluster.trace, [&handing, cleaning].concat(), "{case}");
        assert_eq!(cluster.gaps, [], "{case}");
        assert_eq!(cluster.state("shop/web"), MIGRATED, "{case}");
        assert_eq!(shown(&cluster, "shop/web"), ["10.0.0.1"], "{case}");
        assert_eq!(asked(&cluster, "shop/web").as_deref(), expected, "{case}");
        assert_eq!(whose(&cluster, "10.0.0.1"), "Service shop/web");
        let vip = cluster.vip("shop/web");
        assert!(!vip.is_held(), "{case}");
        let status = &vip.status;
        assert_eq!(
            (&status.gsm, &status.keepalived_group, &status.cloned_service),
            (&None, &None, &None)
        );
        assert_eq!(
            (status.ip.as_deref(), status.service.as_deref()),
            (Some("10.0.0.1"), Some("web"))
        );

        delete(&mut cluster, "shop/web");
        cluster.settle();
        assert_eq!(shown(&cluster, "shop/web"), ["10.0.0.1"], "{case}: it may go without a loss");
        assert_eq!(whose(&cluster, "10.0.0.1"), "Service shop/web");
    }
}

type Change = fn(&mut Cluster);
/// The name of an obstacle, how it arises, the state and message it leads to, and how it is removed.
type Obstacle = (&'static str, Change, (&'static str, &'static str), Change);

/// Everything that was there is still there, and the migration goes on when the obstacle is gone.
fn overcomes((case, obstruct, said, clear): Obstacle) {
    let mut cluster = valid();
    obstruct(&mut cluster);
    annotate(&mut cluster, "shop/web");
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), said, "{case}");
    assert!(cluster.is_shown("10.0.0.1".parse().unwrap()), "{case}");
    assert!(cluster.get_service("shop/web-keepalived-clone").is_some(), "{case}");
    let steps = cluster.trace.len();
    cluster.settle();
    assert_eq!(cluster.trace.len(), steps, "{case}: it rests");
    clear(&mut cluster);
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), MIGRATED, "{case}");
    assert_eq!(shown(&cluster, "shop/web"), ["10.0.0.1"], "{case}");
    assert_eq!(cluster.gaps, [], "{case}");
}

#[test]
fn behind_any_obstacle_everything_stays_and_goes_on_when_it_is_gone() {
    let missing = "could not get the service to be exposed: Service \"web\" not found";
    let no_group = "could not get IPGroup object of IP: no IPGroup covers 10.0.0.1 \
                    (GroupSegmentMapping g1 has 10.0.0.0/29)";
    let other =
        "service is already of type LoadBalancer, change service type to proceed with migration";
    let group: Change = |cluster| {
        cluster.group("p", "10.0.0.0/29", &[]);
    };
    let rows: [Obstacle; 7] = [
        (
            "the Service is missing",
            |cluster| {
                cluster.group("p", "10.0.0.0/29", &[]).remove_service("shop/web");
            },
            ("Migrating: preparing for migration", missing),
            |cluster| {
                cluster.service(service("web"));
            },
        ),
        (
            "no IPGroup covers the address",
            |_| {},
            ("Migrating: reassociating IP object", no_group),
            group,
        ),
        (
            "the claim is another holder's",
            |cluster| {
                cluster.group("p", "10.0.0.0/29", &[]);
                cluster.remove_claim("10.0.0.1");
                cluster.claim("10.0.0.1", &json!({"ipgroup": "p"}), "shop/thief", &json!({}));
            },
            ("Migrating: reassociating IP object", "10.0.0.1 is held by Service shop/thief"),
            |cluster| {
                cluster.remove_claim("10.0.0.1");
            },
        ),
        (
            "the address is reserved for another use",
            |cluster| {
                cluster.group("p", "10.0.0.0/29", &[]);
                cluster.remove_claim("10.0.0.1");
                let kept = json!({
                    "use": "Egress", "reservedFor": {"namespace": "shop", "name": "web"},
                });
                cluster.claim("10.0.0.1", &json!({"ipgroup": "p"}), "", &kept);
            },
            (
                "Migrating: reassociating IP object",
                "10.0.0.1 is held by a reservation for shop/web with use Egress",
            ),
            |cluster| {
                cluster.remove_claim("10.0.0.1");
            },
        ),
        (
            "the Service has another address",
            |cluster| {
                cluster.group("p", "10.0.0.0/29", &[]);
                let balancer = json!({
                    "spec": {"type": "LoadBalancer"},
                    "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.6"}]}},
                });
                cluster.patch_service(&ObjectKey::new("shop", "web"), &balancer);
            },
            ("Migrating: preparing for migration", other),
            |cluster| {
                let plain = json!({"spec": {"type": "ClusterIP"}, "status": null});
                cluster.patch_service(&ObjectKey::new("shop", "web"), &plain);
            },
        ),
        (
            "the Service is a LoadBalancer that waits for an address of its own",
            |cluster| {
                cluster.group("p", "10.0.0.0/29", &[]);
                cluster.patch_service(
                    &ObjectKey::new("shop", "web"),
                    &json!({"spec": {"type": "LoadBalancer"}}),
                );
            },
            ("Migrating: preparing for migration", other),
            |cluster| {
                cluster.patch_service(
                    &ObjectKey::new("shop", "web"),
                    &json!({"spec": {"type": "ClusterIP"}}),
                );
            },
        ),
        (
            "the API server refuses the type",
            |cluster| {
                cluster.group("p", "10.0.0.0/29", &[]);
                cluster.refuses_conversion = true;
            },
            ("Migrating: converting service", "could not convert the service: exceeded quota"),
            |cluster| cluster.refuses_conversion = false,
        ),
    ];
    rows.into_iter().for_each(overcomes);
}

/// No `LoadBalancer` can be made of it, whatever the API server would say.
#[test]
fn a_service_that_can_have_no_address_is_left_alone_until_it_can() {
    let alias = "service is of type ExternalName, change service type to proceed with migration";
    let headless = "service is headless, recreate it with a cluster IP to proceed with migration";
    let rows: [Obstacle; 2] = [
        (
            "the Service is an alias",
            |cluster| {
                cluster.group("p", "10.0.0.0/29", &[]);
                let alias = json!({"spec": {"type": "ExternalName", "externalName": "a.example"}});
                cluster.patch_service(&ObjectKey::new("shop", "web"), &alias);
            },
            ("Migrating: preparing for migration", alias),
            |cluster| {
                let plain = json!({"spec": {"type": "ClusterIP", "externalName": null}});
                cluster.patch_service(&ObjectKey::new("shop", "web"), &plain);
            },
        ),
        (
            "the Service is headless",
            |cluster| {
                cluster.group("p", "10.0.0.0/29", &[]).remove_service("shop/web");
                cluster.service(with(service("web"), "/spec/clusterIP", json!("None")));
            },
            ("Migrating: preparing for migration", headless),
            |cluster| {
                cluster.remove_service("shop/web").service(service("web"));
            },
        ),
    ];
    rows.into_iter().for_each(overcomes);
}

#[test]
fn steps_that_are_done_are_not_repeated() {
    let addr = "10.0.0.1".parse().unwrap();
    let rows: [(&str, Change, &[&str]); 3] = [
        (
            "the copy is gone",
            |cluster| {
                cluster.remove_service("shop/web-keepalived-clone");
            },
            &["drop_copy", "copy"],
        ),
        (
            "the claim is gone",
            |cluster| {
                cluster.remove_claim("10.0.0.1");
            },
            &["pass"],
        ),
        (
            "the Service shows the address by itself",
            |cluster| {
                let balancer = json!({
                    "spec": {"type": "LoadBalancer"},
                    "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}},
                });
                cluster.patch_service(&ObjectKey::new("shop", "web"), &balancer);
            },
            &["convert", "stop_asking"],
        ),
    ];
    for (case, change, never) in rows {
        let mut cluster = valid();
        cluster.group("p", "10.0.0.0/29", &[]);
        change(&mut cluster);
        annotate(&mut cluster, "shop/web");
        cluster.settle();
        assert_eq!(cluster.state("shop/web"), MIGRATED, "{case}");
        assert_eq!(shown(&cluster, "shop/web"), ["10.0.0.1"], "{case}");
        for word in never {
            assert!(!cluster.trace.contains(word), "{case}: {:?}", cluster.trace);
        }
        assert!(!cluster.claim_on(addr).unwrap().is_kept_for(&ObjectKey::new("shop", "web")));
    }
}

/// A migration that cannot be finished, because the API server refuses to make its Service a `LoadBalancer`.
fn half_way() -> Cluster {
    let mut cluster = valid();
    cluster.group("p", "10.0.0.0/29", &[]);
    cluster.refuses_conversion = true;
    annotate(&mut cluster, "shop/web");
    cluster.settle();
    cluster
}

/// Another operator that does not know the `VirtualIP` may take the claim for a leftover.
#[test]
fn a_holder_that_was_taken_out_of_a_kept_claim_is_put_back() {
    let mut cluster = half_way();
    cluster.remove_claim("10.0.0.1");
    let kept = json!({"use": "Reserved", "reservedFor": {"namespace": "shop", "name": "web"}});
    cluster.claim("10.0.0.1", &json!({"ipgroup": "p"}), "", &kept);
    cluster.refuses_conversion = false;
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), MIGRATED);
    assert_eq!(whose(&cluster, "10.0.0.1"), "Service shop/web");
}

#[test]
fn of_two_for_one_service_the_first_wins_and_the_second_keeps_working() {
    let mut cluster = valid();
    cluster.group("p", "10.0.0.0/29", &[]);
    cluster.virtual_ip(vip("web-second", &json!({"service": "web"})));
    cluster.settle();
    for key in ["shop/web-second", "shop/web"] {
        annotate(&mut cluster, key);
    }
    assert!(cluster.follow("shop/web-second"));
    let waits = "VirtualIP shop/web of the same service is migrated first";
    assert_eq!(cluster.state("shop/web-second"), ("Migrating: preparing for migration", waits));
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), MIGRATED);
    let (state, message) = cluster.state("shop/web-second");
    assert_eq!(state, "Migrating: preparing for migration");
    assert!(message.starts_with("service is already of type LoadBalancer"), "{message}");
    assert!(cluster.is_shown("10.0.0.2".parse().unwrap()));
    assert_eq!(whose(&cluster, "10.0.0.2"), "VirtualIP shop/web-second");

    delete(&mut cluster, "shop/web-second");
    cluster.settle();
    assert!(cluster.claim_on("10.0.0.2".parse().unwrap()).is_none());
    assert_eq!(shown(&cluster, "shop/web"), ["10.0.0.1"]);
}

#[test]
fn the_virtual_ip_repeats_the_allocators_word_about_the_service() {
    let mut cluster = valid();
    cluster.group("p", "10.0.0.0/29", &[]);
    annotate(&mut cluster, "shop/web");
    // Up to the point where the Service waits for the allocator, which this cluster does not have.
    for _ in 0..5 {
        let vip = cluster.vip("shop/web").clone();
        let step = cluster.next(&vip).unwrap();
        cluster.apply(&vip, &step);
    }
    let condition = json!({
        "type": "landfall.dev/Allocated", "status": "False", "reason": "LedgerRefused",
        "message": "no", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    cluster.patch_service(
        &ObjectKey::new("shop", "web"),
        &json!({"status": {"conditions": [condition]}}),
    );
    let vip = cluster.vip("shop/web").clone();
    let step = cluster.next(&vip).unwrap();
    cluster.apply(&vip, &step);
    let said = "VirtualIP is being migrated; its service says: no";
    assert_eq!(cluster.state("shop/web"), ("Migrating: assigning original IP", said));
}

/// Two operators at once may both hand over the claim; then one of them has to go back.
#[test]
fn a_claim_whose_handover_failed_comes_back() {
    let mut cluster = half_way();
    assert_eq!(whose(&cluster, "10.0.0.1"), "Service shop/web");
    let elsewhere = json!({
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.6"}]}},
    });
    cluster.patch_service(&ObjectKey::new("shop", "web"), &elsewhere);
    cluster.settle();
    assert_eq!(whose(&cluster, "10.0.0.1"), "VirtualIP shop/web");
    assert!(cluster.is_shown("10.0.0.1".parse().unwrap()));
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert!(!cluster.has_vip("shop/web"));
}

#[test]
fn deletion_before_the_claim_passed_is_a_deletion_and_after_it_is_finished() {
    let addr = "10.0.0.1".parse().unwrap();
    let mut cluster = valid();
    annotate(&mut cluster, "shop/web");
    cluster.settle();
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert!(!cluster.has_vip("shop/web"));
    assert!(cluster.claim_on(addr).is_none());
    assert!(!is_load_balancer(cluster.get_service("shop/web").unwrap()));

    let mut cluster = half_way();
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert!(cluster.has_vip("shop/web") && cluster.is_shown(addr), "it waits, nothing is lost");
    cluster.refuses_conversion = false;
    cluster.settle();
    assert!(!cluster.has_vip("shop/web"));
    assert_eq!(shown(&cluster, "shop/web"), ["10.0.0.1"]);
    assert_eq!(whose(&cluster, "10.0.0.1"), "Service shop/web");
    assert!(cluster.get_service("shop/web-keepalived-clone").is_none());
    assert_eq!(cluster.gaps, []);

    // If the Service is gone, there is nothing to finish.
    let without_service = || {
        let mut cluster = half_way();
        cluster.remove_service("shop/web");
        cluster
    };
    let mut cluster = without_service();
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert!(!cluster.has_vip("shop/web"));
    assert_eq!(whose(&cluster, "10.0.0.1"), "Service shop/web", "left to the allocator");
    assert_eq!(cluster.claim_on(addr).unwrap().reserved, None, "to be released");

    // The allocator may have removed the Service from the claim before.
    let mut cluster = without_service();
    cluster.remove_claim("10.0.0.1");
    let kept = json!({"use": "Reserved", "reservedFor": {"namespace": "shop", "name": "web"}});
    cluster.claim("10.0.0.1", &json!({"ipgroup": "p"}), "", &kept);
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert!(!cluster.has_vip("shop/web"));
    assert!(cluster.claim_on(addr).is_none(), "no other program would release it");
}

/// An alias or a headless Service in the place of the Service that got the claim.
#[test]
fn a_claim_that_was_handed_to_a_service_that_can_have_no_address_comes_back() {
    for (pointer, value) in [("/spec/clusterIP", "None"), ("/spec/type", "ExternalName")] {
        let mut cluster = half_way();
        assert_eq!(whose(&cluster, "10.0.0.1"), "Service shop/web");
        cluster.remove_service("shop/web").service(with(service("web"), pointer, json!(value)));
        cluster.settle();
        assert_eq!(whose(&cluster, "10.0.0.1"), "VirtualIP shop/web", "{value}");
        assert_eq!(cluster.gaps, [], "{value}");
        delete(&mut cluster, "shop/web");
        cluster.settle();
        assert!(!cluster.has_vip("shop/web"), "{value}: its deletion is not stuck");
    }
}

#[test]
fn a_migrated_virtual_ip_stays_so_even_if_the_service_changes() {
    let plain = json!({"spec": {"type": "ClusterIP"}, "status": null});
    let moved = json!({
        "spec": {"loadBalancerIP": "10.0.0.6"},
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.6"}]}},
    });
    for (case, change) in [("deleted", None), ("plain", Some(plain)), ("moved", Some(moved))] {
        let mut cluster = valid();
        cluster.group("p", "10.0.0.0/29", &[]);
        annotate(&mut cluster, "shop/web");
        cluster.settle();
        cluster.trace.clear();
        match change {
            None => drop(cluster.remove_service("shop/web")),
            Some(patch) => cluster.patch_service(&ObjectKey::new("shop", "web"), &patch),
        }
        cluster.remove_claim("10.0.0.1");
        cluster.settle();
        assert_eq!(cluster.trace, Vec::<&str>::new(), "{case}");
        assert_eq!(cluster.state("shop/web"), MIGRATED, "{case}");
    }
}

#[test]
fn one_without_an_address_is_exposed_first() {
    let mut cluster = Cluster::default();
    cluster.mapping("g1", "10.0.0.0/30", &[]).group("p", "10.0.0.0/30", &[]);
    cluster.service(service("web"));
    let taken = json!({"service": "web", "ip": "10.0.0.1"});
    let annotations = json!({"virtualips.paas.org/migrate": ""});
    let error = json!({"state": "Error", "message": "could not get the service to be exposed: Service \"\" not found"});
    let object = with(vip("web", &taken), "/metadata/annotations", annotations);
    cluster.claim("10.0.0.1", &json!({"gsm": "g1"}), "shop/first", &json!({}));
    cluster.virtual_ip(with(object, "/status", error));
    cluster.settle();
    let why = "could not allocate an IP: failed to allocate specific ip: the requested ip is not available";
    assert_eq!(cluster.state("shop/web"), ("Error", why));
    cluster.remove_claim("10.0.0.1");
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), MIGRATED);
    assert_eq!(shown(&cluster, "shop/web"), ["10.0.0.1"]);
}

#[test]
fn a_virtual_ip_without_a_request_to_migrate_stays_as_it_is() {
    let mut cluster = valid();
    cluster.group("p", "10.0.0.0/29", &[]);
    cluster.settle();
    assert_eq!(cluster.trace, Vec::<&str>::new());
    assert_eq!(cluster.state("shop/web"), VALID);
    let spec: Value = serde_json::to_value(cluster.get_service("shop/web")).unwrap();
    assert_eq!(spec["spec"]["type"], "ClusterIP");
}
