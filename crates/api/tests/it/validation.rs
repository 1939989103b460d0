use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::{api, cluster, object, refusal};

/// Asks the API server without storing anything.
fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

async fn accepts(kind: &str, cases: &[(&str, &str, Value)]) {
    let api = api(cluster().await.admin_client().await.unwrap(), kind);
    for (case, name, spec) in cases {
        let answer = api.create(&dry_run(), &object(kind, name, spec)).await;
        let stored = answer.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(stored.data["spec"], *spec, "{case}: nothing added, nothing dropped");
    }
}

async fn refuses(kind: &str, cases: &[(&str, &str, Value, &[&str])]) {
    let api = api(cluster().await.admin_client().await.unwrap(), kind);
    for (case, name, spec, fragments) in cases {
        let message = refusal(api.create(&dry_run(), &object(kind, name, spec)).await);
        for fragment in *fragments {
            assert!(message.contains(fragment), "{case}: no {fragment:?} in {message:?}");
        }
    }
}

#[tokio::test]
async fn pools_that_make_sense_are_accepted() {
    accepts(
        "IPGroup",
        &[
            ("as the original wrote it", "a", json!({"segment": "10.0.0.0/24", "excludedIPs": ["10.0.0.1"]})),
            ("nothing excluded", "a", json!({"segment": "10.0.0.0/24", "excludedIPs": []})),
            ("host bits", "a", json!({"segment": "10.0.0.5/29", "excludedIPs": []})),
            ("excludedIPs left out", "a", json!({"segment": "10.0.0.0/24"})),
            ("one address", "a", json!({"segment": "10.0.0.5/32"})),
            ("everything", "a", json!({"segment": "0.0.0.0/0"})),
            ("IPv6", "a", json!({"segment": "fd00::/64"})),
            ("longest IPv6", "a", json!({"segment": "1111:2222:3333:4444:5555:6666:7777:8888/128"})),
            (
                "ranges of every form",
                "a",
                json!({"ranges": ["10.0.0.0/24", "10.1.0.5", "10.2.0.5-10.2.0.9", "fd00::1-fd00::ff", "fd01::/64"]}),
            ),
            (
                "exclusions of every form",
                "a",
                json!({"segment": "10.0.0.0/24", "excludedIPs": ["10.0.0.1", "10.0.0.8/30", "10.0.0.20-10.0.0.29"]}),
            ),
            (
                "every field",
                &"n".repeat(253),
                json!({
                    "segment": "10.0.0.0/24",
                    "priority": -1,
                    "autoAssign": false,
                    "namespaceSelector": {"matchLabels": {"team": "a"}},
                    "serviceSelector": {"matchExpressions": [{"key": "lb", "operator": "Exists"}]},
                    "loadBalancerClass": "example.org/dmz",
                    "avoidEnds": true,
                    "drain": true,
                    "quota": {"perNamespace": 5, "namespaces": {"team-a": 20, "team-b": 0}},
                    "retainFor": "1h30m",
                    "announce": {"keepalivedGroup": "keepalived/dmz"},
                }),
            ),
            ("hours", "a", json!({"segment": "10.0.0.0/24", "retainFor": "24h"})),
            ("minutes and seconds", "a", json!({"segment": "10.0.0.0/24", "retainFor": "5m30s"})),
            ("no time at all", "a", json!({"segment": "10.0.0.0/24", "retainFor": "0s"})),
            ("longest", "a", json!({"segment": "10.0.0.0/24", "retainFor": "999999h999999m999999s"})),
            (
                "blanks around everything",
                "a",
                json!({"segment": " 10.0.0.0/24 ", "ranges": [" 10.0.0.1 - 10.0.0.5 ", "10.1.0.0/24\t"]}),
            ),
            ("link-local", "a", json!({"ranges": ["169.254.1.0/24", "fe80::1", "fe80::5-fe80::9"]})),
            ("as many ranges as may be", "a", json!({"ranges": many(1024)})),
        ],
    )
    .await;
}

/// The longest entries there are, to spend as much of the API server's CEL budget as possible.
fn many(count: usize) -> Vec<String> {
    let end = "1111:2222:3333:4444:5555:6666:7777";
    (0..count).map(|n| format!("{end}:{:x}-{end}:{n:x}", n + 0x1000)).collect()
}

#[tokio::test]
async fn pools_that_make_no_sense_are_refused_with_the_reason() {
    const ENTRY: &str = "must be an address (10.0.0.5), a CIDR (10.0.0.0/28) or a range";
    const SPECIAL: &str = "must hold no address that a Service cannot have";
    const POOL: &str = "a pool needs addresses: set segment (for example 10.0.0.0/24) or ranges";
    const RETAIN: &str = "must be a duration such as 1h30m";
    let with = |field: &str, value: Value| json!({"segment": "10.0.0.0/24", field: value});
    refuses(
        "IPGroup",
        &[
            ("exclusions alone", "a", json!({"excludedIPs": ["10.0.0.1"]}), &[POOL]),
            ("no ranges", "a", json!({"ranges": []}), &[POOL]),
            ("list as segment", "a", json!({"segment": ["10.0.0.0/24"]}), &["spec.segment"]),
            (
                "words in ranges",
                "a",
                json!({"ranges": ["here"]}),
                &["spec.ranges[0]", ENTRY, "not \"here\""],
            ),
            ("empty range", "a", json!({"ranges": [""]}), &[ENTRY, "not \"\""]),
            ("open range", "a", json!({"ranges": ["10.0.0.1-"]}), &[ENTRY]),
            ("three ends", "a", json!({"ranges": ["10.0.0.1-10.0.0.2-10.0.0.3"]}), &[ENTRY]),
            ("two families", "a", json!({"ranges": ["10.0.0.1-fd00::1"]}), &[ENTRY]),
            ("unspecified", "a", json!({"ranges": ["0.0.0.0"]}), &["spec.ranges[0]", SPECIAL]),
            ("unspecified IPv6", "a", json!({"ranges": ["fd00::1", "::/126"]}), &[SPECIAL]),
            ("loopback", "a", json!({"ranges": ["127.0.0.5-127.0.0.9"]}), &[SPECIAL]),
            ("around loopback", "a", json!({"ranges": [" 64.0.0.0/2 "]}), &[SPECIAL]),
            ("loopback IPv6", "a", json!({"ranges": ["::1"]}), &[SPECIAL]),
            ("multicast", "a", json!({"ranges": ["224.1.0.0/16"]}), &[SPECIAL]),
            ("up to multicast", "a", json!({"ranges": ["223.0.0.1 - 224.0.0.1"]}), &[SPECIAL]),
            ("multicast IPv6", "a", json!({"ranges": ["ff02::/64"]}), &[SPECIAL]),
            ("around multicast IPv6", "a", json!({"ranges": ["fe00::/7"]}), &[SPECIAL]),
            ("broadcast", "a", json!({"ranges": ["255.255.255.240/28"]}), &[SPECIAL]),
            ("everything", "a", json!({"ranges": ["0.0.0.0/0"]}), &[SPECIAL, "0.0.0.0/0"]),
            ("leading zero", "a", json!({"ranges": ["10.0.0.01"]}), &[ENTRY, "10.0.0.01"]),
            ("zone", "a", json!({"ranges": ["fe80::1%eth0"]}), &[ENTRY]),
            ("long word", "a", json!({"ranges": ["x".repeat(97)]}), &["Too long", "96"]),
            ("too many", "a", json!({"ranges": many(1025)}), &["Too many: 1025", "1024"]),
            ("rules alone", "a", json!({"priority": 5}), &["spec", POOL]),
            (
                "no unit",
                "a",
                with("retainFor", json!("90")),
                &["spec.retainFor", RETAIN, "not \"90\""],
            ),
            ("days", "a", with("retainFor", json!("3d")), &[RETAIN]),
            ("back in time", "a", with("retainFor", json!("-1h")), &[RETAIN]),
            ("empty time", "a", with("retainFor", json!("")), &[RETAIN]),
            (
                "negative quota",
                "a",
                with("quota", json!({"perNamespace": -1})),
                &["perNamespace", "greater than or equal to 0"],
            ),
            (
                "negative quota of one",
                "a",
                with("quota", json!({"namespaces": {"x": -1}})),
                &["namespaces", "greater than or equal to 0"],
            ),
            (
                "group without namespace",
                "a",
                with("announce", json!({"keepalivedGroup": "dmz"})),
                &["keepalivedGroup", "must be namespace/name"],
            ),
            (
                "empty class",
                "a",
                with("loadBalancerClass", json!("")),
                &["loadBalancerClass", "at least 1"],
            ),
            ("priority in words", "a", with("priority", json!("high")), &["spec.priority"]),
        ],
    )
    .await;
}

#[tokio::test]
async fn addresses_that_make_sense_are_accepted() {
    accepts(
        "IP",
        &[
            ("as the original wrote it", "10.0.0.5", json!({})),
            ("IPv6 by name alone", "2001-db8-0-0-0-0-0-10", json!({})),
            ("address", "10.0.0.5", json!({"address": "10.0.0.5"})),
            ("IPv6, short", "2001-db8-0-0-0-0-0-10", json!({"address": "2001:db8::10"})),
            ("IPv6, long", "2001-db8-0-0-0-0-0-10", json!({"address": "2001:0db8:0000:0000:0000:0000:0000:0010"})),
            (
                "every field",
                "10.0.0.5",
                json!({
                    "address": "10.0.0.5",
                    "use": "LoadBalancer",
                    "pool": format!("IPGroup/{}", "n".repeat(253)),
                    "holders": [
                        {"kind": "Service", "namespace": "shop", "name": "web", "uid": "06a88850", "ports": ["TCP/443"],
                         "sharingKey": "k", "loadBalancerClass": "example.org/dmz", "seenVersion": "4711"},
                        {"kind": "Node", "name": "n1"},
                    ],
                    "reservedFor": {"namespace": "shop", "name": "web", "expires": "2026-12-01T00:00:00Z"},
                }),
            ),
            (
                "reserved for a namespace",
                "10.0.0.5",
                json!({"address": "10.0.0.5", "use": "Reserved", "reservedFor": {"namespace": "shop"}}),
            ),
            (
                "reserved for a Namespace with egress addresses",
                "10.0.0.5",
                json!({"use": "Reserved", "reservedFor": {"kind": "Namespace", "namespace": "shop"}}),
            ),
            (
                "reserved for a Node",
                "10.0.0.5",
                json!({"use": "Reserved", "reservedFor": {"kind": "Node", "name": "n1"}}),
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn addresses_that_make_no_sense_are_refused_with_the_reason() {
    const NAME: &str = "the name of an IP must be its address";
    const OTHER: &str = "the address must be the one that the object's name says";
    refuses(
        "IP",
        &[
            ("a word for a name", "web", json!({"use": "Reserved"}), &[NAME, "not \"web\""]),
            ("short IPv6 name", "2001-db8--10", json!({"pool": "IPGroup/a"}), &[NAME]),
            (
                "padded IPv6 name",
                "2001-0db8-0-0-0-0-0-10",
                json!({"address": "2001:db8::10"}),
                &[NAME],
            ),
            (
                "padded IPv4 name",
                "10.0.0.05",
                json!({"reservedFor": {"namespace": "shop"}}),
                &[NAME],
            ),
            (
                "another address",
                "10.0.0.5",
                json!({"address": "10.0.0.6"}),
                &["spec.address", OTHER],
            ),
            (
                "another IPv6 address",
                "2001-db8-0-0-0-0-0-10",
                json!({"address": "2001:db8::11"}),
                &[OTHER],
            ),
            ("the other family", "10.0.0.5", json!({"address": "2001:db8::10"}), &[OTHER]),
            (
                "no address",
                "10.0.0.5",
                json!({"address": "web"}),
                &["spec.address", "must be an IP address", "not \"web\""],
            ),
            ("empty address", "10.0.0.5", json!({"address": ""}), &["must be an IP address"]),
            ("CIDR", "10.0.0.5", json!({"address": "10.0.0.5/32"}), &["must be an IP address"]),
            (
                "unknown use",
                "10.0.0.5",
                json!({"use": "Ingress"}),
                &["spec.use", "LoadBalancer", "Reserved"],
            ),
            (
                "holder without name",
                "10.0.0.5",
                json!({"holders": [{"kind": "Service"}]}),
                &["holders[0].name", "Required"],
            ),
            (
                "reserved without a namespace",
                "10.0.0.5",
                json!({"reservedFor": {"name": "web"}}),
                &["reservedFor.namespace", "Required"],
            ),
            (
                "reserved for any Node",
                "10.0.0.5",
                json!({"reservedFor": {"kind": "Node", "namespace": "shop"}}),
                &["reservedFor.name", "the name of the Node is needed"],
            ),
            (
                "reserved for an unknown kind",
                "10.0.0.5",
                json!({"reservedFor": {"kind": "Pod", "namespace": "shop"}}),
                &["reservedFor.kind", "Unsupported value"],
            ),
            (
                "expires some day",
                "10.0.0.5",
                json!({"reservedFor": {"namespace": "shop", "expires": "friday"}}),
                &["expires"],
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn an_address_once_set_cannot_change() {
    let ips = api(cluster().await.admin_client().await.unwrap(), "IP");
    let name = "10.77.0.1";
    ips.create(&PostParams::default(), &object("IP", name, &json!({}))).await.unwrap();
    let patch = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        ips.patch(name, &PatchParams::default(), &patch).await
    };

    // The original's objects have none; taking one over sets it.
    patch(json!({"address": name, "use": "LoadBalancer"})).await.unwrap();
    patch(json!({"use": "Reserved"})).await.unwrap();
    for (case, spec) in [
        ("removed", json!({"address": null})),
        ("another", json!({"address": "10.77.0.2"})),
        ("removed with all else", json!(null)),
    ] {
        let message = refusal(patch(spec).await);
        assert!(message.contains("cannot change"), "{case}: {message}");
    }
    ips.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn null_is_the_same_as_absent() {
    let groups = api(cluster().await.admin_client().await.unwrap(), "IPGroup");
    let spec =
        json!({"segment": "10.0.0.0/24", "priority": null, "retainFor": null, "quota": null});
    let stored = groups.create(&dry_run(), &object("IPGroup", "nulls", &spec)).await.unwrap();
    assert_eq!(stored.data["spec"], json!({"segment": "10.0.0.0/24"}));
    let nothing = json!({"segment": null});
    let stored = groups.create(&dry_run(), &object("IPGroup", "nulls", &nothing)).await.unwrap();
    assert_eq!(stored.data["spec"], json!({}));
}
