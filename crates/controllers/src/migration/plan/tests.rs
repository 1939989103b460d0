//! Each `VirtualIP` is followed until it rests: through each step of the original operator, and from every
//! state in which an interruption may have left it.

mod exposing;
mod migrating;
mod resuming;

use serde_json::{Value, json};

use crate::migration::tests::sim::Cluster;

const VALID: (&str, &str) = ("Valid", "successfully allocated an IP address");
const MIGRATED: (&str, &str) = ("Migrated", "VirtualIP has been migrated");

fn vip(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "paas.org/v1", "kind": "VirtualIP",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-of-vip-{name}")},
        "spec": spec,
    })
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[field] = value;
    object
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": "shop",
            "labels": {"app": name}, "annotations": {"team": "a"},
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"],
            "selector": {"app": name}, "sessionAffinity": "None",
            "ports": [
                {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080},
                {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53},
            ],
        },
    })
}

/// A `VirtualIP` `web` of Service `web` that is Valid with 10.0.0.1, as 0.3 leaves it.
fn valid() -> Cluster {
    let mut cluster = Cluster::default();
    cluster.mapping("g1", "10.0.0.0/29", &["10.0.0.0"]).service(service("web"));
    cluster.virtual_ip(vip("web", &json!({"service": "web"})));
    cluster.settle();
    assert_eq!(cluster.state("shop/web"), VALID);
    cluster.trace.clear();
    cluster
}

/// Asks for the migration.
fn annotate(cluster: &mut Cluster, key: &str) {
    let mut vip = cluster.vip(key).clone();
    vip.migrate = true;
    cluster.put_virtual_ip(vip);
}

fn delete(cluster: &mut Cluster, key: &str) {
    let mut vip = cluster.vip(key).clone();
    vip.deleting = true;
    cluster.put_virtual_ip(vip);
}
