#![expect(clippy::needless_pass_by_value, reason = "`json!` values read better as arguments")]

use landfall_ipam::{Refusal, Terms};
use serde_json::{Value, json};

use super::*;

fn seen_service(object: Value) -> Option<Balancer> {
    super::balancer(&serde_json::from_value(object).unwrap())
}

fn balancer(spec: Value, status: Value) -> Value {
    let mut base = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"]});
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "12"},
        "spec": base, "status": status,
    })
}

#[test]
fn only_load_balancers_are_seen() {
    for kind in ["ClusterIP", "NodePort", "ExternalName"] {
        assert_eq!(seen_service(balancer(json!({"type": kind}), json!({}))), None);
    }
    assert_eq!(seen_service(json!({"metadata": {"name": "bare"}})), None);
    let seen = seen_service(balancer(json!({}), json!({}))).unwrap();
    assert_eq!((seen.key.as_str(), seen.version), ("shop/web", Version(12)));
}

#[test]
fn a_request_is_read_or_kept_as_the_reason_why_not() {
    let request = |spec| seen_service(balancer(spec, json!({}))).unwrap().request;
    let addr = |text: &str| text.parse().unwrap();
    for (spec, expected) in [
        (json!({}), Request::Any),
        (json!({"loadBalancerIP": ""}), Request::Any),
        (json!({"loadBalancerIP": " 10.0.0.5 "}), Request::Addresses(vec![addr("10.0.0.5")])),
        (
            json!({"loadBalancerIP": "10.0.0"}),
            Request::Bad(Refusal::Unparseable {
                field: "spec.loadBalancerIP",
                input: "10.0.0".to_owned(),
                expected: "an address such as 10.0.0.5 or fd00::5",
            }),
        ),
        (json!({"loadBalancerIP": "fd00::1"}), Request::Bad(Refusal::WrongFamily(addr("fd00::1")))),
        (
            json!({"loadBalancerIP": "fd00::1", "ipFamilies": ["IPv6"]}),
            Request::Addresses(vec![addr("fd00::1")]),
        ),
    ] {
        assert_eq!(request(spec.clone()), expected, "{spec}");
    }
}

#[test]
fn annotations_ask_for_addresses_and_pools() {
    let seen = |annotations: Value, spec: Value| {
        let mut object = balancer(spec, json!({}));
        object["metadata"]["annotations"] = annotations;
        let view = seen_service(object).unwrap();
        (view.request, view.pools)
    };
    let dual = json!({"ipFamilies": ["IPv4", "IPv6"]});
    let addr = |text: &str| -> IpAddr { text.parse().unwrap() };
    let asks = |text: &str| seen(json!({"landfall.dev/addresses": text}), dual.clone()).0;
    assert_eq!(asks(""), Request::Any);
    assert_eq!(
        asks("10.0.0.5, fd00::5"),
        Request::Addresses(vec![addr("10.0.0.5"), addr("fd00::5")])
    );
    assert_eq!(
        asks("10.0.0.5,10.0.0.6"),
        Request::Bad(Refusal::TwoOfOneFamily(addr("10.0.0.5"), addr("10.0.0.6")))
    );
    assert_eq!(
        asks("10.0.0.5,nonsense"),
        Request::Bad(Refusal::Unparseable {
            field: "landfall.dev/addresses",
            input: "nonsense".to_owned(),
            expected: "an address such as 10.0.0.5 or fd00::5",
        })
    );
    let both = |annotation: &str, spec: &str| {
        let spec = json!({"ipFamilies": ["IPv4", "IPv6"], "loadBalancerIP": spec});
        seen(json!({"landfall.dev/addresses": annotation}), spec).0
    };
    assert_eq!(both("10.0.0.5", "10.0.0.5"), Request::Addresses(vec![addr("10.0.0.5")]));
    assert_eq!(
        both("fd00::5", "10.0.0.5"),
        Request::Addresses(vec![addr("fd00::5"), addr("10.0.0.5")])
    );
    assert!(matches!(both("10.0.0.6", "10.0.0.5"), Request::Bad(Refusal::TwoOfOneFamily(..))));

    let pools = |text: &str| seen(json!({"landfall.dev/pool": text}), json!({})).1;
    assert_eq!(pools(" , "), None);
    let expected = vec![PoolName::new("IPGroup/dmz"), PoolName::new("IPGroup/other")];
    assert_eq!(pools("dmz, IPGroup/other"), Some(expected));
    let key = "ConfigMap/kubevip/cidr-shop.dmz";
    assert_eq!(pools(key), Some(vec![PoolName::new(key)]));
}

#[test]
fn shown_addresses_are_read_and_other_ingress_is_noticed() {
    let seen = |ingress| {
        let seen = seen_service(balancer(json!({}), json!({"loadBalancer": {"ingress": ingress}})));
        let seen = seen.unwrap();
        (seen.shows.iter().map(ToString::to_string).collect::<Vec<_>>(), seen.ingress_has_hostname)
    };
    assert_eq!(seen(json!([{"ip": "10.0.0.5"}])), (vec!["10.0.0.5".to_owned()], false));
    assert_eq!(seen(json!([{"hostname": "lb.example.org"}])), (vec![], true));
    assert_eq!(
        seen(json!([{"ip": "fd00::1"}, {"ip": "nonsense"}])),
        (vec!["fd00::1".to_owned()], true)
    );
}

#[test]
fn the_terms_of_sharing_are_read_with_a_key_and_not_without() {
    let terms = |annotations: Value| {
        let spec = json!({
            "ports": [{"port": 443}, {"port": 53, "protocol": "UDP"}],
            "selector": {"b": "2", "a": "1"},
            "externalTrafficPolicy": "Local",
        });
        let mut object = balancer(spec, json!({}));
        object["metadata"]["annotations"] = annotations;
        let view = seen_service(object).unwrap();
        (view.terms.as_deref().cloned(), view.request)
    };
    let key = "landfall.dev/sharing-key";
    let with = "landfall.dev/sharing-with";
    assert_eq!(terms(json!({with: "*"})), (None, Request::Any));
    assert_eq!(terms(json!({key: "  "})), (None, Request::Any));
    let read = Terms {
        key: Some("k".to_owned()),
        with: vec!["a".to_owned(), "b".to_owned()],
        ports: vec!["TCP/443".to_owned(), "UDP/53".to_owned()],
        local: true,
        selector: Some("a=1,b=2".to_owned()),
        other_pods: false,
    };
    assert_eq!(terms(json!({key: "k", with: "a, b,"})), (Some(read), Request::Any));
    let many = vec!["ns"; 65].join(",");
    for (annotations, field) in [
        (json!({key: "k".repeat(254)}), key),
        (json!({key: "k", with: many}), with),
        (json!({key: "k", with: "n".repeat(64)}), with),
    ] {
        let (terms, request) = terms(annotations);
        assert_eq!(terms, None);
        assert!(
            matches!(&request, Request::Bad(Refusal::Unparseable { field: bad, .. }) if *bad == field),
            "{request:?}"
        );
    }
}

#[test]
fn an_annotation_is_its_users_to_fix_if_it_cannot_be_read_itself() {
    let annotation_unreadable = |annotated: &str, spec_ip: &str| {
        let view = seen_service(json!({
            "metadata": {
                "namespace": "shop", "name": "web",
                "annotations": {"kube-vip.io/loadbalancerIPs": annotated},
            },
            "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "loadBalancerIP": spec_ip},
        }));
        let view = view.unwrap();
        (matches!(view.request, Request::Bad(_)), view.annotation_unreadable)
    };
    for (annotated, spec_ip, expected) in [
        ("10.0.0.1", "10.0.0.1", (false, false)),
        ("10.0.0.1", "nonsense", (true, false)),
        ("10.0.0.1", "fd00::1", (true, false)),
        ("10.0.0.1,nonsense", "", (true, true)),
        ("10.0.0.1,10.0.0.2", "", (true, true)),
        ("", "nonsense", (true, false)),
    ] {
        assert_eq!(
            annotation_unreadable(annotated, spec_ip),
            expected,
            "{annotated:?} and {spec_ip:?}"
        );
    }
}
