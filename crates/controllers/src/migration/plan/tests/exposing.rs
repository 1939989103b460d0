use serde_json::{Value, json};

use super::{VALID, delete, service, valid, vip, with};
use crate::{migration::tests::sim::Cluster, object::ObjectKey};

#[test]
fn a_new_one_gets_an_address_and_a_copy_step_by_step() {
    let mut cluster = Cluster::default();
    cluster.mapping("g1", "10.0.0.0/29", &["10.0.0.0"]).service(service("web"));
    cluster.virtual_ip(vip("web", &json!({"service": "web"})));
    assert!(cluster.follow("shop/web"));
    assert_eq!(
        cluster.trace,
        ["finalizers", "take", "status", "status", "finalizers", "copy", "status"]
    );
    assert_eq!(cluster.state("shop/web"), VALID);
    let status = &cluster.vip("shop/web").status;
    assert_eq!(status.ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.gsm.as_deref(), Some("g1"));
    assert_eq!(status.keepalived_group.as_deref(), Some("kg"));
    assert_eq!(status.service.as_deref(), Some("web"));
    assert_eq!(status.cloned_service.as_deref(), Some("web-keepalived-clone"));
    let original = cluster.get_service("shop/web").unwrap();
    assert_eq!(original.spec.as_ref().unwrap().external_ips, None, "untouched");
}

/// What the original operator's documents say about its example groups.
#[test]
fn addresses_are_given_as_the_examples_say() {
    let mut cluster = Cluster::default();
    cluster
        .mapping("g1", "1.1.1.0/29", &["1.1.1.0", "1.1.1.2", "1.1.1.7"])
        .mapping("g2", "1.1.2.0/29", &["1.1.2.0", "1.1.2.1", "1.1.2.5", "1.1.2.7"])
        .mapping(
            "g3",
            "1.1.3.0/29",
            &["1.1.3.0", "1.1.3.1", "1.1.3.2", "1.1.3.5", "1.1.3.6", "1.1.3.7"],
        )
        .service(service("web"));
    let specific = "could not allocate an IP: failed to allocate specific ip: ";
    for (name, ip, expected) in [
        ("a", json!("1.1.2.4"), Ok("1.1.2.4")),
        ("b", json!("1.1.2.6"), Ok("1.1.2.6")),
        ("c", json!("1.1.2.6"), Err("the requested ip is not available")),
        ("d", json!("1.1.2.1"), Err("the requested ip is not available")),
        ("e", json!("1.1.2.40"), Err("GroupSegmentMapping not found for the requested ip")),
        ("f", json!("1.1.2"), Err("the requested ip could not be parsed")),
        ("any-01", json!(""), Ok("1.1.1.1")),
        ("any-02", Value::Null, Ok("1.1.1.3")),
        ("any-03", Value::Null, Ok("1.1.1.4")),
        ("any-04", Value::Null, Ok("1.1.1.5")),
        ("any-05", Value::Null, Ok("1.1.1.6")),
        ("any-06", Value::Null, Ok("1.1.2.2")),
        ("any-07", Value::Null, Ok("1.1.2.3")),
        ("any-08", Value::Null, Ok("1.1.3.3")),
        ("any-09", Value::Null, Ok("1.1.3.4")),
    ] {
        cluster.virtual_ip(vip(name, &json!({"service": "web", "ip": ip})));
        let key = format!("shop/{name}");
        assert!(cluster.follow(&key));
        match expected {
            Ok(addr) => {
                assert_eq!(cluster.vip(&key).status.ip.as_deref(), Some(addr), "{name}");
                assert_eq!(cluster.state(&key), VALID, "{name}");
            }
            Err(why) => {
                let message = format!("{specific}{why}");
                assert_eq!(cluster.state(&key), ("Error", message.as_str()), "{name}");
            }
        }
    }
    cluster.virtual_ip(vip("last", &json!({"service": "web"})));
    assert!(cluster.follow("shop/last"));
    let none = ("Error", "could not allocate an IP: no IP could be allocated");
    assert_eq!(cluster.state("shop/last"), none);
    assert!(!cluster.vip("shop/last").is_held(), "nothing to hold");

    // A waiter is served when an address becomes free.
    delete(&mut cluster, "shop/b");
    cluster.settle();
    assert!(!cluster.has_vip("shop/b"));
    assert_eq!(cluster.vip("shop/c").status.ip.as_deref(), Some("1.1.2.6"));
}

#[test]
fn an_address_is_free_only_if_it_is_not_held_shown_or_excluded() {
    let mut cluster = Cluster::default();
    let shown = json!({"loadBalancer": {"ingress": [{"ip": "10.0.0.2"}]}});
    cluster
        .mapping("g1", "10.0.0.0/28", &["10.0.0.0"])
        .mapping("g2", "10.0.0.0/29", &["10.0.0.4"])
        .group("p", "10.0.0.0/24", &["10.0.0.5"])
        .claim("10.0.0.1", &json!({"ipgroup": "p"}), "shop/x", &json!({}))
        .service(with(with(service("lb"), "/spec/type", json!("LoadBalancer")), "/status", shown))
        .service(with(service("external"), "/spec/externalIPs", json!(["10.0.0.3"])))
        .claim("10.0.0.6", &json!({}), "", &json!({"use": "Reserved"}))
        .service(service("web"))
        .virtual_ip(vip("web", &json!({"service": "web"})));
    cluster.settle();
    assert_eq!(cluster.vip("shop/web").status.ip.as_deref(), Some("10.0.0.7"));
}

#[test]
fn a_mapping_that_cannot_be_read_harms_only_itself_and_is_named() {
    let mut cluster = Cluster::default();
    cluster.mapping("bad", "all of it", &[]).service(service("web"));
    cluster.virtual_ip(vip("web", &json!({"service": "web"})));
    cluster.settle();
    let (state, message) = cluster.state("shop/web");
    assert_eq!(state, "Error");
    assert!(message.contains("no IP could be allocated; GroupSegmentMapping bad"), "{message}");
    cluster.mapping("good", "10.0.0.8/30", &[]);
    cluster.settle();
    assert_eq!(cluster.vip("shop/web").status.ip.as_deref(), Some("10.0.0.8"));
}

#[test]
fn an_interrupted_exposure_is_resumed() {
    for (case, claim) in [
        ("as the original wrote it", json!({})),
        (
            "as we write it",
            json!({"holders": [{"kind": "VirtualIP", "namespace": "shop", "name": "web", "uid": "uid-of-vip-web"}]}),
        ),
    ] {
        let mut cluster = Cluster::default();
        cluster.mapping("g1", "10.0.0.0/29", &[]).service(service("web"));
        cluster.claim("10.0.0.5", &json!({"gsm": "g1"}), "shop/web", &claim);
        cluster.virtual_ip(vip("web", &json!({"service": "web"})));
        cluster.settle();
        assert_eq!(cluster.vip("shop/web").status.ip.as_deref(), Some("10.0.0.5"), "{case}");
        assert!(!cluster.trace.contains(&"take"), "{case}");
    }
    // The owner's text has no kind: this one means the Service of the same name.
    let mut cluster = Cluster::default();
    cluster.mapping("g1", "10.0.0.0/29", &[]).service(service("web"));
    cluster.claim("10.0.0.5", &json!({"ipgroup": "g1"}), "shop/web", &json!({}));
    cluster.virtual_ip(vip("web", &json!({"service": "web"})));
    cluster.settle();
    assert_eq!(cluster.vip("shop/web").status.ip.as_deref(), Some("10.0.0.0"));
}

#[test]
fn a_missing_service_is_an_error_until_it_appears() {
    let mut cluster = valid();
    cluster.remove_service("shop/web");
    cluster.settle();
    let missing = ("Error", "could not get the service to be exposed: Service \"web\" not found");
    assert_eq!(cluster.state("shop/web"), missing);
    assert!(cluster.get_service("shop/web-keepalived-clone").is_some(), "the copy stays");
    cluster.service(service("web"));
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), VALID);
}

#[test]
fn another_service_is_exposed_with_the_same_address() {
    let mut cluster = valid();
    cluster.service(service("other"));
    let mut vip = cluster.vip("shop/web").clone();
    vip.service = "other".to_owned();
    cluster.put_virtual_ip(vip);
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), VALID);
    assert_eq!(cluster.vip("shop/web").status.ip.as_deref(), Some("10.0.0.1"));
    let copy = cluster.get_service("shop/web-keepalived-clone").unwrap();
    let selector = copy.spec.as_ref().unwrap().selector.as_ref().unwrap();
    assert_eq!(selector["app"], "other");
    assert_eq!(cluster.trace, ["status", "align", "status"]);
}

#[test]
fn changes_of_the_service_and_of_the_copy_are_brought_in_line() {
    let copy = ObjectKey::new("shop", "web-keepalived-clone");
    for (case, key, patch) in [
        (
            "label",
            ObjectKey::new("shop", "web"),
            json!({"metadata": {"labels": {"app": null, "b": "c"}}}),
        ),
        ("ports", ObjectKey::new("shop", "web"), json!({"spec": {"ports": [{"port": 81}]}})),
        ("selector", ObjectKey::new("shop", "web"), json!({"spec": {"selector": {"app": null}}})),
        ("the copy's addresses", copy.clone(), json!({"spec": {"externalIPs": ["10.0.0.9"]}})),
        ("the copy's type", copy.clone(), json!({"spec": {"type": "NodePort"}})),
    ] {
        let mut cluster = valid();
        cluster.patch_service(&key, &patch);
        cluster.settle();
        assert_eq!(cluster.trace, ["align"], "{case}");
        assert_eq!(cluster.state("shop/web"), VALID, "{case}");
    }
    let mut cluster = valid();
    cluster.remove_service("shop/web-keepalived-clone");
    cluster.settle();
    assert_eq!(cluster.trace, ["copy"], "a copy that was deleted is made again");
}

#[test]
fn a_service_that_bears_the_copys_name_is_left_alone() {
    let mut cluster = Cluster::default();
    cluster.mapping("g1", "10.0.0.0/29", &[]).service(service("web"));
    cluster.service(service("web-keepalived-clone"));
    cluster.virtual_ip(vip("web", &json!({"service": "web"})));
    cluster.settle();
    let (state, message) = cluster.state("shop/web");
    assert_eq!(state, "Error");
    assert!(message.contains("shop/web-keepalived-clone is in the way"), "{message}");
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert!(!cluster.has_vip("shop/web"));
    assert!(cluster.get_service("shop/web-keepalived-clone").is_some());
}

#[test]
fn a_claim_that_went_is_made_again_unless_the_address_has_another_holder() {
    let addr = "10.0.0.1".parse().unwrap();
    let mut cluster = valid();
    cluster.remove_claim("10.0.0.1");
    cluster.settle();
    assert_eq!(cluster.trace, ["take"]);

    cluster.remove_claim("10.0.0.1");
    cluster.claim("10.0.0.1", &json!({"ipgroup": "p"}), "shop/thief", &json!({}));
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), ("Error", "10.0.0.1 is held by Service shop/thief"));
    assert!(cluster.is_shown(addr), "no Service is moved");
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert!(!cluster.has_vip("shop/web"));
    assert!(cluster.claim_on(addr).is_some(), "it was not ours to delete");
}

#[test]
fn deletion_takes_the_copy_then_the_claim_then_the_finalizers() {
    let mut cluster = valid();
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert_eq!(cluster.trace, ["drop_copy", "release", "finalizers"]);
    assert!(!cluster.has_vip("shop/web"));

    // A copy and a claim that are gone already do not stop the deletion.
    let mut cluster = valid();
    cluster.remove_service("shop/web-keepalived-clone");
    cluster.remove_claim("10.0.0.1");
    delete(&mut cluster, "shop/web");
    cluster.settle();
    assert_eq!(cluster.trace, ["finalizers"]);
}

#[test]
fn two_of_one_service_have_an_address_and_a_copy_each() {
    let mut cluster = valid();
    cluster.virtual_ip(vip("web-second", &json!({"service": "web"})));
    cluster.settle();
    assert_eq!(cluster.vip("shop/web-second").status.ip.as_deref(), Some("10.0.0.2"));
    assert!(cluster.get_service("shop/web-second-keepalived-clone").is_some());
}

#[test]
fn an_address_of_0_1_is_kept() {
    let mut cluster = Cluster::default();
    cluster.mapping("g1", "10.0.0.0/29", &[]).service(service("web"));
    cluster.claim("10.0.0.5", &json!({"gsm": "g1"}), "shop/web", &json!({}));
    let old = with(vip("web", &json!({"service": "web"})), "/status", json!({"IP": "10.0.0.5"}));
    cluster.virtual_ip(old);
    cluster.settle();
    assert_eq!(cluster.vip("shop/web").status.ip.as_deref(), Some("10.0.0.5"));
    assert_eq!(cluster.state("shop/web"), VALID);
}

#[test]
fn a_refused_step_is_an_error_in_the_api_servers_words() {
    let mut cluster = Cluster::default();
    cluster.mapping("g1", "10.0.0.0/29", &[]).service(service("web"));
    cluster.virtual_ip(vip("web", &json!({"service": "web"})));
    let step = cluster.next(cluster.vip("shop/web")).unwrap();
    let vip = cluster.vip("shop/web").clone();
    let said = crate::migration::plan::refused(&vip, &step, "no").unwrap();
    cluster.apply(&vip, &said);
    assert_eq!(cluster.state("shop/web"), ("Error", "could not update the VirtualIP: no"));
    let vip = cluster.vip("shop/web").clone();
    assert_eq!(crate::migration::plan::refused(&vip, &step, "no"), None, "once is enough");
}
