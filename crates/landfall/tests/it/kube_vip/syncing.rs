//! The outcome for one Service, given its fields and the data of the `ConfigMap`.

use landfall_testkit::builders::load_balancer;
use serde_json::{Value, json};

use super::{Map, carries, from_json};
use crate::stage::arena;

/// A user's fields, the data of the `ConfigMap`, and the fields of the Service in the end.
fn rows() -> Vec<(&'static str, Value, Value, Value)> {
    let nothing = json!({});
    let pool = json!({"cidr-global": "192.168.1.1/24"});
    let with = |more: Value| {
        let mut map = pool.clone();
        map.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        map
    };
    let given = json!({
        "implementation": "kube-vip", "addresses": "192.168.1.1", "spec": "192.168.1.1",
    });
    let on_eth0 = {
        let mut marks = given.clone();
        marks["interface"] = json!("eth0");
        marks
    };
    let both = json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6", "IPv4"]});
    vec![
        (
            "an address by spec, with a label of the first versions",
            json!({
                "metadata": {"labels": {"implementation": "kube-vip", "ipam-address": "192.168.1.1"}},
                "spec": {"loadBalancerIP": "192.168.1.1"},
            }),
            Value::Null,
            given.clone(),
        ),
        ("nothing", nothing.clone(), pool.clone(), given.clone()),
        (
            "an annotation only: the spec stays empty, and no pool is needed",
            json!({"metadata": {"annotations": {"kube-vip.io/loadbalancerIPs": "192.168.1.1"}}}),
            Value::Null,
            json!({"implementation": "kube-vip", "addresses": "192.168.1.1"}),
        ),
        (
            "IPv6",
            json!({"spec": {"ipFamilies": ["IPv6"], "ipFamilyPolicy": "SingleStack"}}),
            json!({"cidr-global": "fe80::10/126"}),
            json!({"implementation": "kube-vip", "addresses": "fe80::10", "spec": "fe80::10"}),
        ),
        (
            "both families, IPv6 first",
            json!({ "spec": both }),
            json!({"cidr-global": "10.120.120.1/24,fe80::10/126"}),
            json!({
                "implementation": "kube-vip", "addresses": "fe80::10,10.120.120.1",
                "spec": "fe80::10",
            }),
        ),
        (
            "an interface for all",
            nothing.clone(),
            with(json!({"interface-global": "eth0"})),
            on_eth0.clone(),
        ),
        (
            "an interface for its namespace",
            nothing.clone(),
            with(json!({"interface-test": "eth0"})),
            on_eth0,
        ),
        ("an interface for another", nothing, with(json!({"interface-what": "eth0"})), given),
    ]
}

#[tokio::test]
async fn a_service_ends_as_the_original_left_it() {
    let arena = arena().await;
    let tenant = arena.tenant("test").await;
    // Some rows have no map: then a class says that kube-vip is there.
    let operator = arena.operator_with(&["--kube-vip-class="]).await;
    let map = Map::new(&arena.client).read_by(&operator);
    for (case, written, data, expected) in rows() {
        if data.is_null() {
            map.goes().await;
        } else {
            map.says(&data).await;
        }
        tenant.create(from_json(load_balancer("name"), &[written])).await;
        carries(&tenant.services, "name", case, &expected).await;
        tenant.settled().await;
        tenant.clear().await;
    }
    map.goes().await;
    tenant.ends(&[]).await;
    operator.terminate().await.unwrap();
}
