//! The world in which users act: its namespaces, names and pools, and how a Service is written. Another way
//! to ask for addresses needs another such file and nothing else.

use std::net::{IpAddr, Ipv4Addr};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt as _;
use landfall_api::{IPGroup, keys};
use serde_json::{Value, json};

use crate::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use crate::random::Random;

/// The last one is served from kube-vip's `ConfigMap`.
pub(super) const NAMESPACES: [&str; 3] = ["play-a", "play-b", ANNOTATED];
const ANNOTATED: &str = "play-k";
/// The namespace and name of the `ConfigMap`.
pub(super) const MAP: (&str, &str) = ("kube-system", "kubevip");
const MAPPED: [&str; 2] = ["10.40.3.0-10.40.3.40", "fd00:43::1-fd00:43::3f"];
/// The namespace of a tenant that no pool serves.
pub(super) const HOSTILE: &str = "play-evil";
const SERVICES: usize = 14;
const TOYS: usize = 3;
const CLASS: &str = "play.example/lb";
const WIDE: &str = "play-wide";
const TIGHT: &str = "play-tight";
const CLASSY: &str = "play-classy";
const SIX: &str = "play-six";

/// One Service, or a toy: a Service whose status and claims users also write by hand, for which the operator
/// is not to blame.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) namespace: &'static str,
    pub(super) name: String,
}

impl Name {
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

pub(super) fn any_service(random: &mut Random) -> Name {
    let namespace = *random.pick(&NAMESPACES);
    Name { namespace, name: format!("s{:02}", random.below(SERVICES)) }
}

pub(super) fn any_toy(random: &mut Random) -> Name {
    Name { namespace: NAMESPACES[0], name: format!("toy{}", random.below(TOYS)) }
}

/// Whether a `namespace/name` belongs to a toy.
pub(super) fn is_toy(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(namespace, name)| NAMESPACES.contains(&namespace) && name.starts_with("toy"))
}

/// The pools before any edit: one for all, one that is soon full, gives only on request and keeps the
/// addresses of deleted Services, one of a class, and one of the other family.
pub(super) fn pools() -> Vec<IPGroup> {
    let all = vec![
        pool(WIDE, &["10.40.0.0/26"]),
        pool(TIGHT, &["10.40.1.0/29"]).with(|spec| {
            spec.auto_assign = Some(false);
            spec.retain_for = Some("2s".into());
        }),
        pool(CLASSY, &["10.40.2.0/28"]).for_class(CLASS),
        pool(SIX, &["fd00:40::/122"]),
    ];
    let not_hostile = LabelSelectorRequirement {
        key: "kubernetes.io/metadata.name".to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec![HOSTILE.to_owned()]),
    };
    let selector =
        LabelSelector { match_expressions: Some(vec![not_hostile]), ..LabelSelector::default() };
    let for_others = |pool: IPGroup| {
        let selector = selector.clone();
        pool.with(|spec| spec.namespace_selector = Some(selector))
    };
    all.into_iter().map(for_others).collect()
}

/// Whether a pool of the list above, or the one of the `ConfigMap`, gives addresses to a namespace: a
/// namespace with a key of its own gets others only if it asks for them.
pub(super) fn gives(pool: &IPGroup, namespace: &str, asks: bool) -> bool {
    if namespace == HOSTILE {
        return false;
    }
    match (pool.name_any() == ANNOTATED, namespace == ANNOTATED) {
        (true, own) => own,
        (false, own) => asks || (pool.spec.auto_assign() && !own),
    }
}

/// The key of the `ConfigMap`, written as a pool like the others.
pub(super) fn mapped_pool() -> IPGroup {
    pool(ANNOTATED, &MAPPED)
}

/// The `ConfigMap` before any edit.
pub(super) fn map() -> Value {
    map_with(&MAPPED.join(","))
}

fn map_with(range: &str) -> Value {
    let (namespace, name) = MAP;
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name},
        "data": {format!("range-{ANNOTATED}"): range},
    })
}

/// An edit of the `ConfigMap`; none of them may change a Service's address.
pub(super) fn any_map_edit(random: &mut Random) -> Value {
    match random.below(5) {
        0 => map_with("10.40.3.20-10.40.3.60"),
        1 => map_with("10.40.3.20-10.40.3"),
        2 => {
            let mut map = map();
            map["data"]["search-order"] = json!("desc");
            map
        }
        // Then the namespace is served like the others.
        3 => {
            let mut map = map();
            map["data"] = json!({});
            map
        }
        _ => map(),
    }
}

/// An address that a Service might ask for.
pub(super) fn any_address(random: &mut Random) -> IpAddr {
    let (third, fourths) = *random.pick(&[(0, 64), (0, 16), (1, 8), (2, 16), (3, 41)]);
    let fourth = u8::try_from(random.below(fourths)).unwrap_or_default();
    IpAddr::from(Ipv4Addr::new(10, 40, third, fourth))
}

/// An address of an `IPGroup`.
pub(super) fn any_group_address(random: &mut Random) -> IpAddr {
    let (third, fourths) = *random.pick(&[(0, 64), (1, 8), (2, 16)]);
    let fourth = u8::try_from(random.below(fourths)).unwrap_or_default();
    IpAddr::from(Ipv4Addr::new(10, 40, third, fourth))
}

/// A Service as a user might write it.
pub(super) fn any_manifest(random: &mut Random, name: &str) -> Service {
    let service = load_balancer(name);
    let service = match random.below(10) {
        0 => service.of_class(CLASS),
        1 => service.annotated(keys::ANNOTATION_POOL, TIGHT),
        2 => service.with_families("PreferDualStack", &["IPv4", "IPv6"]),
        3 => service.with_families("RequireDualStack", &["IPv4", "IPv6"]),
        _ => service,
    };
    match random.below(6) {
        0 => service.asking(&any_address(random).to_string()),
        1 => service.annotated(keys::ANNOTATION_ADDRESSES, &any_address(random).to_string()),
        2 | 3 => service.sharing(any_key(random), &[any_port(random)]),
        _ => service,
    }
}

fn any_key(random: &mut Random) -> &'static str {
    if random.once_in(2) { "red" } else { "blue" }
}

fn any_port(random: &mut Random) -> i32 {
    *random.pick(&[80, 81, 443, 8080])
}

/// Patches of a Service, one after the other, and what they mean.
pub(super) fn any_change(random: &mut Random) -> (&'static str, Vec<Value>) {
    let ask = random.once_in(2).then(|| any_address(random).to_string());
    let class = random.once_in(2).then_some(CLASS);
    match random.below(9) {
        0..=2 => ("asks by the field", vec![json!({"spec": {"loadBalancerIP": ask}})]),
        3 => {
            let annotations = json!({keys::ANNOTATION_ADDRESSES: ask});
            ("asks by the annotation", vec![json!({"metadata": {"annotations": annotations}})])
        }
        4 => {
            let kind = *random.pick(&["ClusterIP", "LoadBalancer"]);
            let spec = json!({"type": kind, "allocateLoadBalancerNodePorts": null});
            ("changes its type", vec![json!({ "spec": spec })])
        }
        // A class is fixed as long as the type is.
        5 => {
            let none = json!({"type": "ClusterIP", "allocateLoadBalancerNodePorts": null,
                "loadBalancerClass": null});
            let other = json!({"type": "LoadBalancer", "loadBalancerClass": class});
            ("changes its class", vec![json!({"spec": none}), json!({"spec": other})])
        }
        6 => {
            let policy = *random.pick(&["SingleStack", "PreferDualStack", "RequireDualStack"]);
            ("changes its families", vec![json!({"spec": {"ipFamilyPolicy": policy}})])
        }
        7 => {
            let key = if random.once_in(3) { None } else { Some(any_key(random)) };
            let annotations = json!({keys::ANNOTATION_SHARING_KEY: key});
            let ports = json!([{"name": "p", "port": any_port(random)}]);
            let patch = json!({"metadata": {"annotations": annotations}, "spec": {"ports": ports}});
            ("changes whom it shares with", vec![patch])
        }
        _ => {
            let pool = random.once_in(2).then_some(*random.pick(&[TIGHT, WIDE]));
            let annotations = json!({keys::ANNOTATION_POOL: pool});
            ("asks for a pool", vec![json!({"metadata": {"annotations": annotations}})])
        }
    }
}

/// An edit of a pool, or `None` to delete it; none of them may change a Service's address.
pub(super) fn any_pool_edit(random: &mut Random) -> (&'static str, Option<Value>) {
    let name = *random.pick(&[WIDE, WIDE, TIGHT, CLASSY, SIX]);
    let edit = match random.below(6) {
        0 => json!({"drain": random.once_in(2)}),
        1 | 2 => {
            let first = random.below(40);
            json!({"excludedIPs": [format!("10.40.0.{first}-10.40.0.{}", first + 12)]})
        }
        3 => json!({"priority": random.below(200)}),
        // A holder of an address outside the smaller range keeps it.
        4 if name == WIDE => json!({"ranges": ["10.40.0.16-10.40.0.63"]}),
        5 if name != SIX => return (name, None),
        _ => json!({"avoidEnds": random.once_in(2)}),
    };
    (name, Some(edit))
}
