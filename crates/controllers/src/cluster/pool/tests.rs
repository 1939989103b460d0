#![expect(clippy::needless_pass_by_value, reason = "`json!` values read better as arguments")]

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::*;

fn seen_pool(spec: Value) -> PoolView {
    let object = json!({
        "apiVersion": "paas.org/v1", "kind": "IPGroup",
        "metadata": {"name": "dmz", "uid": "u", "resourceVersion": "7", "generation": 3},
        "spec": spec,
    });
    read(&serde_json::from_value(object).unwrap())
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
    assert_eq!(view.announce, crate::object::ObjectKey::parse("net/edge"));
    assert_eq!(view.retain_for, Some(std::time::Duration::from_hours(1)));
    assert_eq!(view.quota.unwrap().of("shop"), Some(2));
    let pool = view.pool.unwrap();
    assert_eq!((pool.priority, pool.auto_assign, pool.drain), (5, false, true));
    assert_eq!(pool.ranges().len(), (1 << 64) + 8);
    assert!(pool.held_back().contains("10.0.0.7".parse().unwrap()));
}

#[test]
fn a_map_tells_its_oddities_even_without_a_pool() {
    let odd = |count: usize| (0..count).map(|n| format!("odd-{n}")).collect::<Vec<_>>();
    for (keys, told, serves) in
        [(odd(3), 3, false), (odd(70), 65, false), (vec!["cidr-global".to_owned()], 0, true)]
    {
        let data = keys.iter().map(|key| (key.clone(), "10.0.0.0/29".to_owned()));
        let map = ConfigMap { data: Some(data.collect()), ..ConfigMap::default() };
        let views = map::read(&map, &Classes::default());
        assert_eq!(views.len(), 1, "{keys:?}");
        assert_eq!(views[0].warnings.len(), told, "{keys:?}");
        assert_eq!(views[0].scope.as_ref().unwrap().includes("shop"), serves, "{keys:?}");
    }
}
