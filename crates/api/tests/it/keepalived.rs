//! `KeepalivedGroup`: what keepalived-operator accepted and wrote is accepted and kept, and what new fields say
//! is checked.

use std::fs;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use landfall_api::{GroupSettings, KeepalivedGroup};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    strategy::ValueTree as _,
    test_runner::TestRunner,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    original::{Original, Pair},
    refusal,
};

const NAMESPACE: &str = "groups";

async fn groups() -> Api<DynamicObject> {
    let cluster = cluster().await;
    cluster.ensure_namespace(NAMESPACE).await.unwrap();
    let client = cluster.admin_client().await.unwrap();
    Api::namespaced_with(client, NAMESPACE, &ApiResource::erase::<KeepalivedGroup>(&()))
}

fn group(name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup",
        "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

/// Groups as the original left them, in many states of its life.
fn recorded() -> Vec<DynamicObject> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/keepalived-operator.yaml");
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

#[tokio::test]
async fn groups_of_the_original_are_taken_unchanged_with_their_status_and_can_be_used() {
    let cluster = cluster().await;
    let client = cluster.admin_client().await.unwrap();
    let recorded = recorded();
    assert!(recorded.len() > 10, "{}", recorded.len());
    for recorded in recorded {
        let namespace = recorded.metadata.namespace.clone().unwrap();
        let name = recorded.metadata.name.clone().unwrap();
        cluster.ensure_namespace(&namespace).await.unwrap();
        let resource = ApiResource::erase::<KeepalivedGroup>(&());
        let groups: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &namespace, &resource);
        let stored = groups.create(&PostParams::default(), &recorded).await.unwrap();
        assert_eq!(stored.data["spec"], recorded.data["spec"], "{name}");
        let status = Patch::Merge(json!({"status": recorded.data["status"]}));
        let stored = groups.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
        assert_eq!(stored.data["status"], recorded.data["status"], "{name}: nothing dropped");

        let typed: Api<KeepalivedGroup> = Api::namespaced(client.clone(), &namespace);
        let read = typed.get(&name).await.unwrap();
        assert_eq!(serde_json::to_value(&read.spec).unwrap(), recorded.data["spec"], "{name}");
        assert_eq!(serde_json::to_value(&read.status).unwrap(), recorded.data["status"], "{name}");
        let settings: GroupSettings = read.settings().unwrap();
        assert_eq!(settings.warnings, [], "{name}: every line of it is accepted");
        groups.delete(&name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn groups_that_make_sense_are_accepted() {
    let groups = groups().await;
    let device_names: serde_json::Map<_, _> =
        (0..5000).map(|n| (format!("{}{n}", "n".repeat(200)), json!("enp0s31f6.40000"))).collect();
    let end = "1111:2222:3333:4444:5555:6666:7777";
    let ranges: Vec<_> = (0..1024).map(|n| format!("{end}:{n:x}-{end}:{:x}", n + 0x1000)).collect();
    for (case, fields) in [
        ("slots with their defaults", json!({"vrrp": {}})),
        (
            "every new field",
            json!({
                "vrrp": {
                    "advertInterval": "1s500ms", "slots": 64, "preempt": true, "preemptDelay": "5m",
                    "routerIDs": {"first": 1, "last": 255},
                },
                "allowedNamespaces": {"matchLabels": {"team": "a"}},
                "allowedRanges": ["10.0.0.0/24", "fd00::/64", "10.1.0.5", "10.2.0.5-10.2.0.9", "0.0.0.0/0"],
                "metricsPort": 65535,
                "interfaces": {"n1": "bond0.100", "n2": "br-ex"},
            }),
        ),
        ("the shortest interval", json!({"vrrp": {"advertInterval": "30ms"}})),
        ("the longest interval", json!({"vrrp": {"advertInterval": "40s"}})),
        ("half a range of IDs", json!({"vrrp": {"routerIDs": {"first": 100}}})),
        ("the longest delay", json!({"vrrp": {"preemptDelay": "1000s"}})),
        ("the way to an IPv6 address", json!({"interfaceFromIP": "fd00::1"})),
        ("as many devices as may be", json!({"interfaces": device_names})),
        ("as many ranges as may be", json!({"allowedRanges": ranges})),
    ] {
        let mut spec = fields;
        spec["interface"] = json!("eth0");
        spec["image"] = json!("example.org/keepalived");
        let answer = groups.create(&dry_run(), &group("a", &spec)).await;
        let stored = answer.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(stored.data["spec"], spec, "{case}: nothing added, nothing dropped");
        let read: KeepalivedGroup = stored.try_parse().unwrap();
        assert!(read.settings().is_ok(), "{case}");
    }
}

#[tokio::test]
async fn groups_that_make_no_sense_are_refused_with_the_reason() {
    const INTERVAL: &str = "must be a time from 30ms to 40s in steps of 10 ms";
    const DEVICE: &str = "must be a network device such as eth0";
    let groups = groups().await;
    for (case, fields, fragments) in [
        (
            "too short",
            json!({"vrrp": {"advertInterval": "20ms"}}),
            &["vrrp.advertInterval", INTERVAL, "not \"20ms\""][..],
        ),
        ("too long", json!({"vrrp": {"advertInterval": "41s"}}), &[INTERVAL]),
        ("between steps", json!({"vrrp": {"advertInterval": "35ms"}}), &[INTERVAL]),
        ("decimals", json!({"vrrp": {"advertInterval": "0.1s"}}), &[INTERVAL]),
        ("empty", json!({"vrrp": {"advertInterval": ""}}), &[INTERVAL]),
        ("no slots", json!({"vrrp": {"slots": 0}}), &["vrrp.slots", "greater than or equal to 1"]),
        ("many slots", json!({"vrrp": {"slots": 65}}), &["vrrp.slots", "less than or equal to 64"]),
        (
            "a long delay",
            json!({"vrrp": {"preemptDelay": "1001s"}}),
            &["vrrp.preemptDelay", "at most 1000s"],
        ),
        (
            "ID 0",
            json!({"vrrp": {"routerIDs": {"first": 0}}}),
            &["routerIDs.first", "greater than or equal to 1"],
        ),
        (
            "ID 256",
            json!({"vrrp": {"routerIDs": {"last": 256}}}),
            &["routerIDs.last", "less than or equal to 255"],
        ),
        (
            "backwards",
            json!({"vrrp": {"routerIDs": {"first": 9, "last": 8}}}),
            &["routerIDs", "first must not be greater than last"],
        ),
        (
            "words for a range",
            json!({"allowedRanges": ["all"]}),
            &["allowedRanges[0]", "must be an address", "not \"all\""],
        ),
        ("port 0", json!({"metricsPort": 0}), &["metricsPort", "greater than or equal to 1"]),
        (
            "a large port",
            json!({"metricsPort": 65536}),
            &["metricsPort", "less than or equal to 65535"],
        ),
        ("a long device", json!({"interfaces": {"n1": "enp0s31f6.40000x"}}), &["interfaces", "15"]),
        (
            "a device with a brace",
            json!({"interfaces": {"n1": "eth0{"}}),
            &["interfaces", DEVICE, "not \"eth0{\""],
        ),
        ("a device with a line", json!({"interfaces": {"n1": "eth0\nx"}}), &[DEVICE]),
        ("no device", json!({"interfaces": {"n1": ""}}), &[DEVICE]),
        ("loopback", json!({"interfaces": {"n1": "lo"}}), &[DEVICE]),
        (
            "the way to a word",
            json!({"interfaceFromIP": "gateway"}),
            &["interfaceFromIP", "must be an IP address"],
        ),
        (
            "a password from nowhere",
            json!({"passwordAuth": {}}),
            &["passwordAuth.secretRef", "Required"],
        ),
        (
            "an ID twice",
            json!({"blacklistRouterIDs": [1, 1]}),
            &["blacklistRouterIDs[1]", "Duplicate"],
        ),
    ] {
        let mut spec = fields;
        spec["interface"] = json!("eth0");
        let message = refusal(groups.create(&dry_run(), &group("a", &spec)).await);
        for fragment in fragments {
            assert!(message.contains(fragment), "{case}: no {fragment:?} in {message:?}");
        }
    }
    let message = refusal(groups.create(&dry_run(), &group("a", &json!({"image": "i"}))).await);
    assert!(message.contains("spec.interface: Required"), "{message}");
}

#[tokio::test]
async fn a_group_without_a_spec_can_be_read_and_says_what_is_missing() {
    let groups = groups().await;
    let mut empty = group("empty", &json!({}));
    empty.data = json!({});
    let stored = groups.create(&dry_run(), &empty).await.unwrap();
    let read: KeepalivedGroup = stored.try_parse().unwrap();
    let problems = read.settings().unwrap_err();
    assert_eq!(problems.iter().map(|problem| problem.field).collect::<Vec<_>>(), ["interface"]);
}

#[tokio::test]
async fn what_the_original_left_out_has_its_defaults() {
    let groups = groups().await;
    let spec = json!({"interface": "eth0", "passwordAuth": {"secretRef": {"name": "s"}}});
    let stored = groups.create(&dry_run(), &group("defaults", &spec)).await.unwrap();
    assert_eq!(
        stored.data["spec"],
        json!({
            "image": "registry.redhat.io/openshift4/ose-keepalived-ipfailover", "interface": "eth0",
            "passwordAuth": {"secretRef": {"name": "s"}, "secretKey": "password"},
        })
    );
}

#[tokio::test]
async fn agents_and_operator_write_one_status_and_leave_each_others_part_alone() {
    let groups = groups().await;
    let spec = json!({"interface": "eth0"});
    groups.create(&PostParams::default(), &group("shared", &spec)).await.unwrap();
    let report = async |node: &str, state: &str| {
        let report = json!({
            "apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup",
            "status": {"nodes": [{
                "node": node, "generation": 3, "keepalivedVersion": "2.2.7", "device": "eth0",
                "instances": [{"name": "shared/0", "state": state, "since": "2027-01-15T08:00:00Z"}],
                "guard": {"generation": 3, "step": "Reloaded"},
            }]},
        });
        let manager = PatchParams::apply(&format!("landfall-agent-{node}"));
        groups.patch_status("shared", &manager, &Patch::Apply(report)).await.unwrap()
    };
    report("n1", "MASTER").await;
    report("n2", "FAULT").await;
    let status = json!({"status": {
        "routerIDs": {"shared/0": 1}, "generation": 3, "appliedNodes": 2,
        "addresses": [{
            "address": "192.0.2.5", "service": "shop/web", "instance": "shared/0", "vrid": 1, "node": "n1",
            "since": "2027-01-15T08:00:00Z",
        }],
    }});
    groups.patch_status("shared", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let stored = report("n1", "FAULT").await;
    let read: KeepalivedGroup = stored.try_parse().unwrap();
    let read = read.status.unwrap();
    let nodes: Vec<_> = read
        .nodes
        .iter()
        .map(|node| (node.node.as_str(), node.state_of("shared/0").as_str()))
        .collect();
    assert_eq!(nodes, [("n1", "FAULT"), ("n2", "FAULT")]);
    assert_eq!(serde_json::to_value(&read.addresses).unwrap(), status["status"]["addresses"]);
    assert_eq!((read.generation, read.applied_nodes), (Some(3), Some(2)));

    // An agent that is gone takes its part with it, and only that.
    let nothing = json!({"apiVersion": "redhatcop.redhat.io/v1alpha1", "kind": "KeepalivedGroup", "status": {}});
    let manager = PatchParams::apply("landfall-agent-n1");
    let stored = groups.patch_status("shared", &manager, &Patch::Apply(nothing)).await.unwrap();
    let read: KeepalivedGroup = stored.try_parse().unwrap();
    let read = read.status.unwrap();
    assert_eq!(read.nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["n2"]);
    assert_eq!(read.router_ids.get("shared/0"), Some(&1));
    groups.delete("shared", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn kubectl_get_shows_how_a_group_is() {
    // In full, because other tests install the original's schema under the same short name.
    const KIND: &str = "keepalivedgroups.redhatcop.redhat.io";
    let cluster = cluster().await;
    let groups = groups().await;
    let spec = json!({"interface": "ens3"});
    groups.create(&PostParams::default(), &group("columns", &spec)).await.unwrap();
    let status = json!({"status": {"generation": 7, "appliedNodes": 3, "conditions": [{
        "type": "Ready", "status": "True", "reason": "Announcing", "message": "",
        "lastTransitionTime": "2027-01-15T08:00:00Z",
    }]}});
    groups.patch_status("columns", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let printed = cluster.kubectl(&["get", KIND, "columns", "-n", NAMESPACE]).await.unwrap();
    let lines: Vec<Vec<_>> =
        printed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "NAME INTERFACE GENERATION APPLIED READY AGE");
    assert!(lines[1].join(" ").starts_with("columns ens3 7 3 True "), "{printed}");
}

/// The schema of the original's `spec`.
fn original() -> Original {
    let text = || json!({"type": "string"});
    let texts = || json!({"type": "object", "additionalProperties": {"type": "string"}});
    let image = "registry.redhat.io/openshift4/ose-keepalived-ipfailover";
    Original {
        resource: ApiResource::erase::<KeepalivedGroup>(&()),
        namespaced: true,
        spec: json!({
            "type": "object",
            "required": ["image", "interface"],
            "properties": {
                "image": {"type": "string", "default": image},
                "interface": text(),
                "interfaceFromIP": {"type": "string", "format": "ipv4"},
                "nodeSelector": texts(),
                "passwordAuth": {
                    "type": "object",
                    "required": ["secretRef"],
                    "properties": {
                        "secretRef": {"type": "object", "properties": {"name": text()}},
                        "secretKey": {"type": "string", "default": "password"},
                    },
                },
                "verbatimConfig": texts(),
                "blacklistRouterIDs": {
                    "type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set",
                },
                "unicastEnabled": {"type": "boolean"},
                "daemonsetPodPriorityClassName": text(),
                "daemonsetPodAnnotations": texts(),
            },
        }),
        spec_required: false,
    }
}

#[tokio::test]
async fn manifests_that_the_original_took_are_taken_as_they_are() {
    let pair = Pair::install(original()).await;
    for (case, spec) in [
        ("no spec", None),
        ("a device", Some(json!({"interface": "ens3"}))),
        ("an empty device", Some(json!({"interface": ""}))),
        ("a device that is none", Some(json!({"interface": "x".repeat(5000)}))),
        (
            "to a mapped address",
            Some(json!({"interface": "a", "interfaceFromIP": "::ffff:10.0.0.1"})),
        ),
        (
            "another",
            Some(
                json!({"interface": "a", "interfaceFromIP": "0000:0000:0000:0000:0000:ffff:255.255.255.255"}),
            ),
        ),
        (
            "a secret without a name",
            Some(json!({"interface": "a", "passwordAuth": {"secretRef": {}, "secretKey": ""}})),
        ),
        (
            "IDs out of range",
            Some(
                json!({"interface": "a", "blacklistRouterIDs": [0, -5, 70_000, 9_223_372_036_854_775_807_i64]}),
            ),
        ),
        (
            "many IDs",
            Some(json!({"interface": "a", "blacklistRouterIDs": (0..3000).collect::<Vec<_>>()})),
        ),
        (
            "harmful lines",
            Some(json!({"interface": "a", "verbatimConfig": {"notify_master": "x\n}"}})),
        ),
        ("a field of nobody", Some(json!({"interface": "a", "note": 5}))),
    ] {
        assert!(pair.judge("table", spec.as_ref()).await, "{case}: the original takes it");
    }
}

#[tokio::test]
async fn whatever_the_originals_schema_accepts_ours_accepts_and_reads() {
    // Each case is some calls: as many as a test may take, and no more.
    const CASES: usize = 200;
    let pair = Pair::install(original()).await;
    let groups = groups().await;
    let mut runner = TestRunner::default();
    let mut accepted = 0;
    for _ in 0..CASES {
        let spec = spec().new_tree(&mut runner).unwrap().current();
        if pair.judge("random", spec.as_ref()).await {
            accepted += 1;
            let mut object = group("random", &json!({}));
            object.data = spec.map_or_else(|| json!({}), |spec| json!({"spec": spec}));
            let stored = groups.create(&dry_run(), &object).await.unwrap();
            let read: KeepalivedGroup = stored.clone().try_parse().unwrap();
            assert_eq!(serde_json::to_value(&read.spec).unwrap(), stored.data["spec"]);
        }
    }
    assert!(accepted > CASES / 4, "too few say anything: {accepted}");
}

/// The value of a field: of its type, or now and then of any.
fn value(typed: BoxedStrategy<Value>) -> impl Strategy<Value = Value> {
    prop_oneof![
        60 => typed,
        1 => "\\PC{0,20}".prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => vec(any::<bool>(), 0..3).prop_map(Value::from),
        1 => Just(json!({})),
    ]
}

/// A spec with fields that the original knows, rightly typed or not, and with one that it drops.
fn spec() -> impl Strategy<Value = Option<Value>> {
    let text = || "\\PC{0,60}".prop_map(Value::from).boxed();
    let texts =
        || btree_map("[a-z./-]{0,12}", "\\PC{0,40}", 0..4).prop_map(|map| json!(map)).boxed();
    let address = prop_oneof![
        6 => any::<[u8; 4]>().prop_map(|octets| json!(std::net::Ipv4Addr::from(octets))),
        1 => any::<[u8; 4]>().prop_map(|[a, b, c, d]| json!(format!("::ffff:{a}.{b}.{c}.{d}"))),
        1 => "[0-9.:]{0,16}".prop_map(Value::from),
    ];
    let ids = prop_oneof![
        6 => vec(-3_i64..300, 0..5).prop_map(Value::from),
        1 => vec(any::<i64>(), 0..5).prop_map(Value::from),
        1 => vec((-3_i32..300).prop_map(f64::from), 0..5).prop_map(Value::from),
        1 => vec(any::<f64>(), 0..2).prop_map(Value::from),
        1 => vec(any::<u64>(), 0..2).prop_map(Value::from),
    ];
    let auth = (option::of(text()), option::of(text())).prop_map(|(name, key)| {
        let mut auth = json!({"secretRef": {}});
        if let Some(name) = name {
            auth["secretRef"]["name"] = name;
        }
        if let Some(key) = key {
            auth["secretKey"] = key;
        }
        auth
    });
    let fields = [
        ("image", text()),
        ("interface", text()),
        ("interfaceFromIP", address.boxed()),
        ("nodeSelector", texts()),
        ("passwordAuth", auth.boxed()),
        ("verbatimConfig", texts()),
        ("blacklistRouterIDs", ids.boxed()),
        ("unicastEnabled", any::<bool>().prop_map(Value::from).boxed()),
        ("daemonsetPodPriorityClassName", text()),
        ("daemonsetPodAnnotations", texts()),
        ("note", text()),
    ];
    let fields = fields.map(|(name, typed)| {
        let weight = if name == "interface" { 0.97 } else { 0.5 };
        // The API server takes a list where a schema asks for a text with a format, and the original could
        // not read it.
        let value = if name == "interfaceFromIP" { typed } else { value(typed).boxed() };
        option::weighted(weight, value).prop_map(move |value| Some((name.to_owned(), value?)))
    });
    let object =
        Vec::from(fields).prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()));
    option::weighted(0.97, object)
}
