use std::net::IpAddr;

use landfall_ipam::Terms;

use super::*;

fn seen_claim(object: Value) -> Option<Claim> {
    read(&serde_json::from_value(object).unwrap())
}

#[test]
fn claims_of_the_original_operator_are_read_from_label_and_annotation() {
    let tenure = |labels: Value, annotations: Value| {
        seen_claim(json!({
            "apiVersion": "paas.org/v1", "kind": "IP", "spec": {},
            "metadata": {"name": "10.0.0.5", "labels": labels, "annotations": annotations},
        }))
        .unwrap()
    };
    let owner = json!({"virtualips.paas.il/owner": "shop/web"});
    let of_service = tenure(json!({"ipgroup": "dmz"}), owner.clone());
    let holder = &of_service.services()[0];
    assert_eq!((holder.key.as_str(), &holder.uid, holder.legacy), ("shop/web", &None, true));
    assert_eq!(of_service.pool, Some(PoolName::new("IPGroup/dmz")));

    let of_virtual_ip = tenure(json!({"gsm": "dmz"}), owner);
    assert_eq!(of_virtual_ip.to_string(), "VirtualIP shop/web");
    assert_eq!(of_virtual_ip.services(), []);
    let without_holder = tenure(json!({}), json!({}));
    assert_eq!(
        without_holder.tenure,
        Tenure::WithoutHolder("an IP object that names no holder".to_owned())
    );
    let odd = tenure(json!({}), json!({"virtualips.paas.il/owner": "no-slash"}));
    assert!(matches!(odd.tenure, Tenure::WithoutHolder(text) if text.contains("no-slash")));
}

/// A claim with every field set.
fn whole() -> Claim {
    let holder = HolderEntry {
        uid: Some("u".into()),
        class: Some("example.org/lb".into()),
        seen: Some(Version(17)),
        terms: Some(Arc::new(Terms {
            key: Some("k".to_owned()),
            with: vec!["other".to_owned()],
            ports: vec!["TCP/443".to_owned()],
            local: true,
            selector: Some("app=web".to_owned()),
            other_pods: true,
        })),
        asked_pools: vec![PoolName::new("IPGroup/dmz"), PoolName::new("IPGroup/rest")],
        replaces: Some("fd00::4".parse().unwrap()),
        ..HolderEntry::new(HolderKind::Service, ObjectKey::new("shop", "web"))
    };
    let addr: IpAddr = "fd00::5".parse().unwrap();
    let pool = Some(PoolName::new("IPGroup/dmz"));
    let reserved = Reservation {
        kind: HolderKind::Service,
        namespace: "shop".to_owned(),
        name: Some("web".to_owned()),
        expires: Some("2030-01-01T00:00:00Z".parse().unwrap()),
        retained: true,
    };
    Claim { reserved: Some(reserved), ..Claim::new(addr, Use::LoadBalancer, pool, holder) }
}

/// A claim read back from an object that has only what its patch contains.
fn patched(claim: &Claim) -> Claim {
    let mut object = patch(claim);
    object["apiVersion"] = json!("paas.org/v1");
    object["kind"] = json!("IP");
    object["metadata"]["name"] = json!(name::of(claim.addr));
    // A field that is patched with null is removed.
    for part in ["/spec", "/metadata/labels", "/metadata/annotations"] {
        let fields = object.pointer_mut(part).unwrap().as_object_mut().unwrap();
        fields.retain(|_, value| !value.is_null());
    }
    seen_claim(object).unwrap()
}

#[test]
fn a_claim_survives_being_written_and_read() {
    let service = whole();
    let node = HolderEntry::new(HolderKind::Node, ObjectKey::cluster_scoped("n1"));
    let namespace = HolderEntry::new(HolderKind::Namespace, ObjectKey::cluster_scoped("shop"));
    for claim in [
        service.clone(),
        service.held_by(Vec::new()),
        Claim { reserved: None, ..service.clone() },
        Claim { purpose: Some(Use::Floating), reserved: None, ..service.held_by(vec![node]) },
        Claim { purpose: Some(Use::Egress), reserved: None, ..service.held_by(vec![namespace]) },
    ] {
        assert_eq!(read(&DeserializeGuard(Ok(object(&claim)))).as_ref(), Some(&claim));
        assert_eq!(patched(&claim), claim);
    }
}

#[test]
fn a_claim_of_another_use_is_never_judged_by_the_rules_of_services() {
    let spec = |use_: &str| {
        let holder = json!({"kind": "Service", "namespace": "shop", "name": "web"});
        let object = json!({
            "apiVersion": "paas.org/v1", "kind": "IP",
            "metadata": {"name": "10.0.0.5"}, "spec": {"use": use_, "holders": [holder]},
        });
        seen_claim(object).unwrap()
    };
    assert_eq!(spec("LoadBalancer").services().len(), 1);
    for other in ["Egress", "Floating"] {
        let claim = spec(other);
        assert!(claim.services().is_empty() && !claim.is_of_services(), "{other}");
        assert_eq!(claim.holders().len(), 1, "{other}");
    }
}

#[test]
fn a_claim_without_a_service_describes_its_holder_or_reservation() {
    for (spec, expected) in [
        (json!({"holders": [{"kind": "Namespace", "name": "shop"}]}), "Namespace shop"),
        (
            json!({"holders": [{"kind": "VirtualIP", "namespace": "shop", "name": "v"}]}),
            "VirtualIP shop/v",
        ),
        (
            json!({"use": "Reserved", "reservedFor": {"namespace": "shop"}}),
            "a reservation for shop/*",
        ),
        (
            json!({"reservedFor": {
                "namespace": "shop", "name": "web", "expires": "2030-01-01T00:00:00Z",
            }}),
            "a reservation for shop/web until 2030-01-01T00:00:00Z",
        ),
        (json!({"use": "Reserved"}), "a reservation for no namespace"),
        (json!({"use": "Floating"}), "an IP object for Floating that names no holder"),
        (json!({"use": "Floating", "holders": [{"kind": "Node", "name": "n1"}]}), "Node n1"),
        (
            json!({"use": "Egress", "holders": [
                {"kind": "Service", "namespace": "shop", "name": "web"},
            ]}),
            "Service shop/web",
        ),
        (
            json!({"use": "Reserved", "reservedFor": {"kind": "Namespace", "namespace": "shop"}}),
            "a reservation for Namespace shop",
        ),
        (
            json!({"use": "Reserved", "reservedFor": {"kind": "Node", "name": "n1"}}),
            "a reservation for Node n1",
        ),
        (json!({"holders": [{"kind": "Later", "name": "x"}]}), "Later x"),
        (json!({"use": "Anycast"}), "an IP object for Anycast"),
        (
            json!({"use": "Anycast", "reservedFor": {"namespace": "shop"}}),
            "an IP object for Anycast",
        ),
        (
            json!({"reservedFor": {"kind": "Later", "namespace": "shop"}}),
            "a reservation for Later shop/*",
        ),
        (
            json!({"use": "Reserved", "reservedFor": {"kind": "Later", "name": "x"}}),
            "a reservation for Later x",
        ),
        (
            json!({"use": "Anycast", "holders": [
                {"kind": "Service", "namespace": "shop", "name": "web"},
            ]}),
            "Service shop/web",
        ),
        (json!({"holders": [{"kind": "Service", "name": "no-namespace"}]}), "Service no-namespace"),
        (json!({"holders": 5}), "an IP object that cannot be read"),
    ] {
        let claim = seen_claim(json!({
            "apiVersion": "paas.org/v1", "kind": "IP",
            "metadata": {"name": "10.0.0.5"}, "spec": spec,
        }))
        .unwrap();
        let described = claim.to_string();
        assert!(described.starts_with(expected), "{described}");
        assert!(claim.services().is_empty());
    }
}

#[test]
fn an_ip_whose_name_is_no_address_takes_none() {
    for name in ["web", "10.0.0.05", "10.0.0.0-24"] {
        let object = json!({
            "apiVersion": "paas.org/v1", "kind": "IP", "metadata": {"name": name}, "spec": {},
        });
        assert_eq!(seen_claim(object), None, "{name}");
    }
}

#[test]
fn the_label_tells_which_kind_of_pool_gave_an_address() {
    let long = "p".repeat(64);
    let of = |kind: HolderKind, pool: &str| {
        let holder = HolderEntry::new(kind, ObjectKey::new("shop", "web"));
        let pool = Some(pool).filter(|pool| !pool.is_empty()).map(PoolName::new);
        labels(&Claim::new("10.0.0.5".parse().unwrap(), Use::LoadBalancer, pool, holder))
    };
    let (service, virtual_ip) = (HolderKind::Service, HolderKind::VirtualIp);
    let text = |text: &str| Some(text.to_owned());
    for (case, kind, pool, gsm, ipgroup) in [
        ("an IPGroup", service, "IPGroup/dmz", None, text("dmz")),
        ("a name that does not fit", service, &*format!("IPGroup/{long}"), None, None),
        ("a key of a ConfigMap", service, "ConfigMap/kubevip/cidr-shop", None, None),
        ("no pool", service, "", None, None),
        ("a mapping", virtual_ip, "GroupSegmentMapping/dmz", text("dmz"), None),
        ("a long mapping", virtual_ip, &*format!("GroupSegmentMapping/{long}"), text(""), None),
        ("no mapping", virtual_ip, "", text(""), None),
    ] {
        assert_eq!(of(kind, pool), [(LABEL_GSM, gsm), (LABEL_IPGROUP, ipgroup)], "{case}");
    }
}
