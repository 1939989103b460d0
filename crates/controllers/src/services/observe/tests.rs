#![expect(clippy::needless_pass_by_value, reason = "`json!` values read better as arguments")]

use k8s_openapi::api::core::v1::ConfigMap;
use landfall_ipam::{Refusal, Terms};
use serde_json::{Value, json};

use super::*;

fn seen_service(object: Value) -> Option<ServiceView> {
    service(&serde_json::from_value(object).unwrap())
}

fn seen_pool(spec: Value) -> PoolView {
    let object = json!({
        "apiVersion": "paas.org/v1", "kind": "IPGroup",
        "metadata": {"name": "dmz", "uid": "u", "resourceVersion": "7", "generation": 3},
        "spec": spec,
    });
    pool(&serde_json::from_value(object).unwrap())
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
fn what_a_service_shows_is_read_with_what_is_no_address() {
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
fn an_annotation_is_its_users_to_mend_if_it_cannot_be_read_itself() {
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

#[test]
fn a_pool_says_which_of_its_parts_is_wrong() {
    for (spec, expected) in [
        (json!({}), vec!["it has no addresses: set segment or ranges"]),
        (
            json!({"segment": "10.0.0.0/33", "ranges": ["10.0.0.9-10.0.0.5"]}),
            vec![
                "segment: \"10.0.0.0/33\" is not an address, a CIDR or a first-last range; its prefix is longer than the address",
                "ranges: \"10.0.0.9-10.0.0.5\" is empty: its first address comes after its last; write 10.0.0.5-10.0.0.9",
            ],
        ),
        (
            json!({"segment": "10.0.0.0/7", "avoidEnds": true}),
            vec!["avoidEnds: works for up to a /8 of IPv4 addresses"],
        ),
    ] {
        assert_eq!(seen_pool(spec).pool.unwrap_err(), expected);
    }
    let partly = seen_pool(json!({"segment": "10.0.0.0/24", "excludedIPs": ["10.0.0.01"]}));
    assert!(partly.pool.is_ok());
    assert_eq!(
        partly.unreadable,
        [
            "excludedIPs: \"10.0.0.01\" is not an address, a CIDR or a first-last range; write its numbers without leading zeros, which some programs read as octal"
        ]
    );
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Odd", "values": []}]});
    let bad = seen_pool(json!({"segment": "10.0.0.0/24", "namespaceSelector": selector}));
    assert!(bad.pool.unwrap_err()[0].starts_with("namespaceSelector: "));
    let unreadable = seen_pool(json!({"segment": 5}));
    assert!(!unreadable.pool.unwrap_err().is_empty());
}

#[test]
fn a_pool_is_read_with_its_rules() {
    let view = seen_pool(json!({
        "segment": "10.0.0.5/29", "excludedIPs": ["10.0.0.0"], "ranges": ["fd00::/64"],
        "priority": 5, "autoAssign": false, "drain": true, "avoidEnds": true,
        "loadBalancerClass": "example.org/lb", "retainFor": "1h", "quota": {"perNamespace": 2},
        "announce": {"keepalivedGroup": "net/edge"},
    }));
    assert_eq!((view.name.as_str(), &*view.object), ("IPGroup/dmz", "dmz"));
    assert_eq!(view.classes, Classes::only(Some("example.org/lb")));
    assert_eq!(view.ignored, ["announce"]);
    assert_eq!(view.retain_for, Some(std::time::Duration::from_hours(1)));
    assert_eq!(view.quota.unwrap().of("shop"), Some(2));
    let pool = view.pool.unwrap();
    assert_eq!((pool.priority, pool.auto_assign, pool.drain), (5, false, true));
    assert_eq!(pool.ranges().len(), (1 << 64) + 8);
    assert!(pool.held_back().contains("10.0.0.7".parse().unwrap()));
}

#[test]
fn a_map_tells_what_is_odd_about_it_also_without_a_pool() {
    let odd = |count: usize| (0..count).map(|n| format!("odd-{n}")).collect::<Vec<_>>();
    for (keys, told, serves) in
        [(odd(3), 3, false), (odd(70), 65, false), (vec!["cidr-global".to_owned()], 0, true)]
    {
        let data = keys.iter().map(|key| (key.clone(), "10.0.0.0/29".to_owned()));
        let map = ConfigMap { data: Some(data.collect()), ..ConfigMap::default() };
        let views = kube_vip::pools(&map, &Classes::default());
        assert_eq!(views.len(), 1, "{keys:?}");
        assert_eq!(views[0].warnings.len(), told, "{keys:?}");
        assert_eq!(views[0].scope.as_ref().unwrap().includes("shop"), serves, "{keys:?}");
    }
}
