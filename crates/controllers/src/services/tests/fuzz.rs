//! Malformed objects: each is read as far as possible and harms no other object, and the planner comes to
//! rest.

use kube::core::{DeserializeGuard, ObjectList};
use landfall_api::{IP, IPGroup, condition, keys::CONDITION_ALLOCATED};
use proptest::{
    bool::weighted,
    collection::{btree_map, vec},
    prelude::*,
    sample::{Index, select},
};
use serde_json::{Value, json};

use super::{
    fuzzing::{self, seen_claim, seen_pool, seen_service},
    sim::{KINDS, Sim, Stored},
};
use crate::{
    cluster::{
        pool::{self, PoolView},
        service::{Balancer, Request},
    },
    ledger::{Tenure, object},
    object::ObjectKey,
};

/// Names of fields that mean something somewhere.
const FIELDS: &[&str] = &[
    "metadata",
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "generation",
    "labels",
    "ipgroup",
    "gsm",
    "annotations",
    "virtualips.paas.il/owner",
    "landfall.dev/addresses",
    "kube-vip.io/loadbalancerIPs",
    "kube-vip.io/ignore",
    "implementation",
    "ipam-address",
    "finalizers",
    "landfall.dev/pool",
    "landfall.dev/sharing-key",
    "landfall.dev/sharing-with",
    "spec",
    "type",
    "ipFamilies",
    "ipFamilyPolicy",
    "ports",
    "port",
    "protocol",
    "selector",
    "externalIPs",
    "loadBalancerIP",
    "loadBalancerClass",
    "status",
    "loadBalancer",
    "ingress",
    "ip",
    "hostname",
    "conditions",
    "reason",
    "address",
    "use",
    "pool",
    "holders",
    "kind",
    "sharingKey",
    "seenVersion",
    "reservedFor",
    "expires",
    "segment",
    "ranges",
    "excludedIPs",
    "priority",
    "autoAssign",
    "avoidEnds",
    "drain",
    "retainFor",
    "quota",
    "perNamespace",
    "namespaces",
    "announce",
    "namespaceSelector",
    "serviceSelector",
    "matchLabels",
    "matchExpressions",
    "operator",
    "values",
    "key",
];

/// Texts that mean something somewhere. None of them covers the addresses of the good pool, apart
/// from single ones.
const TEXTS: &[&str] = &[
    "",
    " ",
    ",",
    "/",
    "10.0.0.1",
    "10.0.0.1,10.0.0.2",
    "10.0.0.1, fd00::1",
    "10.0.0.01",
    "::ffff:10.0.0.1",
    "10.0.0.0/29",
    "10.0.0.0/33",
    "10.0.0.0/7",
    "10.0.0.3-10.0.0.6",
    "10.0.0.6-10.0.0.3",
    "10.0.0.3-fd00::1",
    "fd00::1",
    "fd00::/64",
    "::/0",
    "203.0.113.1",
    "203.0.113.2",
    "good",
    "IPGroup/good",
    "wild-0",
    "wild-0,wild-1,wild-0",
    "IPGroup/wild-1",
    "IPGroup/",
    "good/web-0",
    "good/web-0/x",
    "wild/w-0",
    "web-0",
    "w-0",
    "wild",
    "*",
    "Service",
    "Namespace",
    "Node",
    "LoadBalancer",
    "Reserved",
    "Egress",
    "ClusterIP",
    "ExternalName",
    "kube-vip",
    "web.example.com",
    "0.0.0.0",
    "service.kubernetes.io/load-balancer-cleanup",
    "IPv4",
    "IPv6",
    "IPv5",
    "RequireDualStack",
    "PreferDualStack",
    "TCP",
    "TCP/443",
    "UDP",
    "In",
    "NotIn",
    "Exists",
    "Odd",
    "True",
    "False",
    "Ready",
    CONDITION_ALLOCATED,
    "lb.example.org",
    "example.org/lb",
    "45s",
    "5m",
    "1h-5m",
    "999999999999999999999h",
    "1970-01-01T00:05:00Z",
    "0000-01-01T00:00:00Z",
    "18446744073709551616",
    "-1",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => select(TEXTS).prop_map(str::to_owned), 1 => "\\PC{0,12}"]
}

/// Any JSON, with names and texts that mean something and with others.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-2..70_000_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    let field = prop_oneof![9 => select(FIELDS).prop_map(str::to_owned), 1 => text()];
    leaf.prop_recursive(4, 40, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(field.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A change to one part of an object.
#[derive(Clone, Debug)]
enum Damage {
    Remove,
    /// Replaces a text; other values stay.
    Reword(String),
    Replace(Value),
}

impl Damage {
    fn happen(self, object: &mut Value, at: Index) {
        let mut paths = Vec::new();
        collect_paths(object, "", &mut paths);
        let Some((parent, child)) = (!paths.is_empty()).then(|| at.get(&paths)) else { return };
        let Some(part) = object.pointer_mut(parent) else { return };
        match (self, part) {
            (Self::Remove, Value::Object(fields)) => {
                fields.remove(child);
            }
            (Self::Remove, Value::Array(items)) => {
                items.remove(child.parse().unwrap());
            }
            (Self::Reword(text), part) => {
                if let Some(Value::String(old)) = part.pointer_mut(&format!("/{}", escaped(child)))
                {
                    *old = text;
                }
            }
            (Self::Replace(value), part) => {
                if let Some(old) = part.pointer_mut(&format!("/{}", escaped(child))) {
                    *old = value;
                }
            }
            (Self::Remove, _) => {}
        }
    }
}

/// Every part of a value: the path of its parent, and its field or index there.
fn collect_paths(value: &Value, path: &str, paths: &mut Vec<(String, String)>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => {
            fields.iter().map(|(field, child)| (field.clone(), child)).collect()
        }
        Value::Array(items) => {
            items.iter().enumerate().map(|(index, child)| (index.to_string(), child)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    for (name, child) in children {
        collect_paths(child, &format!("{path}/{}", escaped(&name)), paths);
        paths.push((path.to_owned(), name));
    }
}

/// A field's name as it is written in a JSON pointer (RFC 6901).
fn escaped(field: &str) -> String {
    field.replace('~', "~0").replace('/', "~1")
}

/// Fields without which an object or a part of it cannot be read at all.
const REQUIRED: &[&str] = &[
    "metadata",
    "spec",
    "kind",
    "name",
    "namespace",
    "type",
    "status",
    "reason",
    "message",
    "lastTransitionTime",
    "port",
    "key",
    "operator",
];

/// The same value without some of its optional parts.
fn thinned(value: &Value, keep: &mut impl Iterator<Item = bool>) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(field, child)| {
                let stays = REQUIRED.contains(&field.as_str()) || keep.next()?;
                stays.then(|| (field.clone(), thinned(child, keep)))
            });
            Value::Object(kept.collect())
        }
        Value::Array(items) => {
            let kept = items.iter().filter_map(|item| {
                let stays = keep.next()?;
                stays.then(|| thinned(item, keep))
            });
            Value::Array(kept.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// An object that has some of its parts, a few of them damaged.
fn damaged(whole: Value) -> impl Strategy<Value = Value> {
    let damage = prop_oneof![
        1 => Just(Damage::Remove),
        4 => text().prop_map(Damage::Reword),
        2 => any_json().prop_map(Damage::Replace),
    ];
    let kept = vec(weighted(0.4), 64);
    (kept, vec((damage, any::<Index>()), 0..4)).prop_map(move |(kept, damages)| {
        let mut object = thinned(&whole, &mut kept.into_iter());
        for (damage, at) in damages {
            damage.happen(&mut object, at);
        }
        object
    })
}

fn service_object() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "namespace": "wild", "name": "w-0", "uid": "u", "resourceVersion": "5", "generation": 1,
            "creationTimestamp": "1970-01-01T00:00:00Z",
            "deletionTimestamp": "1970-01-01T00:00:00Z",
            "labels": {"app": "web"},
            "annotations": {
                "landfall.dev/addresses": "10.0.0.1, fd00::1",
                "kube-vip.io/loadbalancerIPs": "203.0.113.1",
                "landfall.dev/pool": "wild-0, good",
                "landfall.dev/sharing-key": "k",
                "landfall.dev/sharing-with": "*",
            },
        },
        "spec": {
            "type": "LoadBalancer",
            "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack",
            "loadBalancerIP": "10.0.0.1", "loadBalancerClass": "example.org/lb",
            "externalIPs": ["10.0.0.9"], "selector": {"app": "web"},
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": "https"}],
        },
        "status": {
            "loadBalancer": {"ingress": [
                {"ip": "10.0.0.1", "ipMode": "VIP", "ports": [{"port": 443, "protocol": "TCP"}]},
                {"hostname": "lb.example.org"},
            ]},
            "conditions": [condition_object(CONDITION_ALLOCATED)],
        },
    })
}

fn claim_object() -> Value {
    json!({
        "apiVersion": "paas.org/v1", "kind": "IP",
        "metadata": {
            "name": "10.0.0.1", "uid": "u", "resourceVersion": "5",
            "labels": {"ipgroup": "wild-0", "gsm": "old"},
            "annotations": {"virtualips.paas.il/owner": "wild/w-0"},
        },
        "spec": {
            "address": "10.0.0.1", "use": "LoadBalancer", "pool": "IPGroup/wild-0",
            "holders": [
                {
                    "kind": "Service", "namespace": "wild", "name": "w-0", "uid": "uid-of-w-0",
                    "ports": ["TCP/443"], "sharingKey": "k", "seenVersion": "5",
                    "loadBalancerClass": "example.org/lb",
                },
                {"kind": "Service", "namespace": "good", "name": "web-0"},
                {"kind": "Node", "name": "n"},
            ],
            "reservedFor": {
                "namespace": "wild", "name": "w-0", "expires": "1970-01-01T00:05:00Z",
            },
        },
        "status": {"node": "n", "conditions": [condition_object("Ready")]},
    })
}

fn pool_object() -> Value {
    let selector = json!({
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}],
    });
    json!({
        "apiVersion": "paas.org/v1", "kind": "IPGroup",
        "metadata": {"name": "wild-0", "uid": "u", "resourceVersion": "5", "generation": 2},
        "spec": {
            "segment": "10.0.0.0/29",
            "ranges": ["10.0.0.8-10.0.0.12", "fd00::/64", "10.1.0.0/30"],
            "excludedIPs": ["10.0.0.3", "10.0.0.4/31"],
            "priority": 5, "autoAssign": false, "avoidEnds": true, "drain": true,
            "namespaceSelector": selector, "serviceSelector": selector,
            "loadBalancerClass": "example.org/lb", "retainFor": "5m",
            "quota": {"perNamespace": 2, "namespaces": {"wild": 1}},
            "announce": {"keepalivedGroup": "net/edge"},
        },
        "status": {
            "capacity": "13", "used": "0", "free": "x", "observedGeneration": 1,
            "conditions": [condition_object("Ready")],
        },
    })
}

fn condition_object(kind: &str) -> Value {
    json!({
        "type": kind, "status": "False", "reason": "Exhausted", "message": "",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
    })
}

/// The same object with metadata that the API server itself sets.
fn identified(mut object: Value, namespace: Option<&str>, name: &str) -> Value {
    let whole = json!({"annotations": {}, "labels": {}});
    let metadata = object.as_object_mut().unwrap().entry("metadata").or_insert(whole.clone());
    if !metadata.is_object() {
        *metadata = whole;
    }
    metadata["name"] = name.into();
    metadata["uid"] = format!("uid-of-{name}").into();
    metadata["resourceVersion"] = "0".into();
    metadata["namespace"] = namespace.into();
    object
}

fn good_pool() -> PoolView {
    let object = json!({
        "apiVersion": "paas.org/v1", "kind": "IPGroup", "metadata": {"name": "good"},
        "spec": {"segment": "203.0.113.0/24"},
    });
    seen_pool(object).unwrap()
}

fn good_service(name: &str) -> Balancer {
    let object = json!({"spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"]}});
    seen_service(identified(object, Some("good"), name)).unwrap()
}

/// Objects that arrive together. They get names and versions when they arrive.
#[derive(Clone, Debug)]
struct Wave {
    claims: Vec<Value>,
    pools: Vec<Value>,
    services: Vec<Value>,
}

fn wave() -> impl Strategy<Value = Wave> {
    let claims = vec(damaged(claim_object()), 0..5);
    let pools = vec(damaged(pool_object()), 0..3);
    let services = vec(damaged(service_object()), 0..5);
    (claims, pools, services).prop_map(|(claims, pools, services)| Wave { claims, pools, services })
}

impl Wave {
    /// Creates everything that the API server would accept, and one valid Service.
    fn come(self, sim: &mut Sim, number: usize) {
        let pools = self.pools.into_iter().enumerate().filter_map(|(index, object)| {
            seen_pool(identified(object, None, &format!("wild-{}", index + 3 * number)))
        });
        for view in pools {
            sim.cluster.put_pool(&view.name.clone(), |pool| *pool = view);
        }
        for (index, object) in self.claims.into_iter().enumerate() {
            let block = if index % 2 == 0 { "10.0.0" } else { "203.0.113" };
            let name = format!("{block}.{}", index + 5 * number);
            if let Some(claim) = seen_claim(identified(object, None, &name)) {
                // An operator may have taken the address meanwhile: then the name is not free.
                sim.cluster.claims.entry(claim.addr).or_insert(claim);
            }
        }
        let wild = self.services.into_iter().enumerate().filter_map(|(index, object)| {
            seen_service(identified(object, Some("wild"), &format!("w-{}", index + 5 * number)))
        });
        for view in wild.chain([good_service(&format!("web-{number}"))]) {
            let stored = Stored::new(view);
            sim.cluster.services.insert(stored.view.key.clone(), stored);
        }
        for kind in KINDS {
            sim.list(0, kind);
        }
        sim.settle();
    }
}

/// Whether a Service shows exactly one address, by a claim that names it.
fn is_served(sim: &Sim, key: &ObjectKey) -> bool {
    let service = &sim.cluster.services[key].view;
    let [addr] = service.shows[..] else { return false };
    sim.cluster.claims.get(&addr).is_some_and(|claim| claim.holder(service).is_some())
}

/// Whether a Service that can be told only by a condition has no condition.
fn is_left_in_the_dark(stored: &Stored) -> bool {
    let service = &stored.view;
    let ours = service.class.is_none() && !service.deleting;
    let told = condition::get(&service.conditions, CONDITION_ALLOCATED);
    // Where kube-vip is not in use, the Service without its annotation counts.
    let plain = service.plain.as_ref();
    let has_hostname =
        service.ingress_has_hostname || plain.is_some_and(|plain| plain.ingress_has_hostname);
    matches!(service.request, Request::Bad(_))
        && ours
        && service.shows.is_empty()
        && !has_hostname
        && told.is_none_or(|told| told.status != "False" || told.message.is_empty())
}

proptest! {
    #[test]
    fn any_json_is_observed_without_harm(
        object in prop_oneof![
            any_json(),
            damaged(service_object()),
            damaged(claim_object()),
            damaged(pool_object()),
        ]
    ) {
        fuzzing::object(&object);
    }

    #[test]
    fn a_list_is_read_to_its_end_with_any_text_in_its_objects(
        specs in vec(any_json(), 1..6)
    ) {
        let items = |names: &dyn Fn(usize) -> String| -> Value {
            let items = specs.iter().enumerate();
            let items: Vec<_> = items
                .map(|(index, spec)| json!({"metadata": {"name": names(index)}, "spec": spec}))
                .collect();
            json!({"metadata": {"resourceVersion": "1"}, "items": items})
        };
        let claims: ObjectList<DeserializeGuard<IP>> =
            serde_json::from_value(items(&|index| format!("10.0.0.{index}"))).unwrap();
        prop_assert_eq!(claims.items.iter().filter_map(object::read).count(), specs.len());
        for claim in &claims.items {
            let unreadable = matches!(
                object::read(claim).unwrap().tenure,
                Tenure::WithoutHolder(text) if text.contains("cannot be read")
            );
            prop_assert_eq!(unreadable, claim.0.is_err(), "it takes its address all the same");
        }
        let pools: ObjectList<DeserializeGuard<IPGroup>> =
            serde_json::from_value(items(&|index| format!("wild-{index}"))).unwrap();
        prop_assert_eq!(pools.items.len(), specs.len());
        for group in &pools.items {
            prop_assert!(pool::read(group).pool.is_err() || group.0.is_ok());
        }
    }

    #[test]
    fn malformed_objects_harm_only_themselves(first in wave(), second in wave()) {
        let mut sim = Sim::new(1);
        let good = good_pool();
        sim.cluster.put_pool(&good.name.clone(), |pool| *pool = good);
        for (number, wave) in [first, second].into_iter().enumerate() {
            wave.come(&mut sim, number);
        }
        for number in 0..2 {
            let key = ObjectKey::new("good", &format!("web-{number}"));
            prop_assert!(is_served(&sim, &key), "{:?}", sim.cluster.services[&key]);
        }
        let in_the_dark: Vec<_> =
            sim.cluster.services.values().filter(|stored| is_left_in_the_dark(stored)).collect();
        prop_assert!(in_the_dark.is_empty(), "{:?}", in_the_dark);
        let writes = sim.cluster.writes.len();
        for kind in KINDS {
            sim.list(0, kind);
        }
        sim.settle();
        prop_assert_eq!(sim.cluster.writes.len(), writes, "a list that tells nothing new");
    }
}
