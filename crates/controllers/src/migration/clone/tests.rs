use kube::core::DeserializeGuard;
use landfall_api::VirtualIP;
use serde_json::json;

use super::*;
use crate::cluster::virtual_ip;

fn vip() -> VirtualIpView {
    let object: VirtualIP = serde_json::from_value(json!({
        "apiVersion": "paas.org/v1", "kind": "VirtualIP",
        "metadata": {"name": "front", "namespace": "shop", "uid": "u"},
        "spec": {"service": "web"},
    }))
    .unwrap();
    virtual_ip::read(DeserializeGuard(Ok(object))).unwrap()
}

fn original() -> Service {
    serde_json::from_value(json!({
        "metadata": {
            "name": "web", "namespace": "shop",
            "labels": {"app": "web"},
            "annotations": {"keepalived-operator.redhat-cop.io/keepalivedgroup": "ns/kg"},
            "finalizers": ["ips.paas.org/finalizer", "example.org/other"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p"}],
        },
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"],
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 31000,
            "loadBalancerIP": "10.0.0.9", "loadBalancerClass": "c.example/lb",
            "loadBalancerSourceRanges": ["10.0.0.0/8"], "allocateLoadBalancerNodePorts": true,
            "externalIPs": ["192.0.2.1"],
            "ports": [
                {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 8080, "nodePort": 30080},
                {"name": "b", "port": 53, "protocol": "UDP", "targetPort": "dns", "nodePort": 30053},
            ],
            "selector": {"app": "web"}, "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            "publishNotReadyAddresses": true, "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}},
    }))
    .unwrap()
}

fn addr() -> IpAddr {
    "10.0.0.5".parse().unwrap()
}

/// A headless Service without a selector may have families that the cluster does not have.
#[test]
fn a_copy_of_a_headless_service_is_not_headless_and_has_families_that_the_cluster_has() {
    for (selector, families, policy) in [
        (json!(null), json!(["IPv4"]), json!(null)),
        (json!({"app": "web"}), json!(["IPv4", "IPv6"]), json!("RequireDualStack")),
    ] {
        let original = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"],
                "ports": [{"port": 80}], "selector": selector,
                "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack",
            },
        }))
        .unwrap();
        let copy = serde_json::to_value(make(&vip(), &original, addr())).unwrap();
        assert_eq!(copy["spec"]["clusterIP"], json!(null), "{selector}");
        assert_eq!(copy["spec"]["ipFamilies"], families, "{selector}");
        assert_eq!(copy["spec"]["ipFamilyPolicy"], policy, "{selector}");
    }
}

#[test]
fn a_copy_has_the_fields_that_the_original_copies_and_a_cluster_ip_may_have() {
    let copy = serde_json::to_value(make(&vip(), &original(), addr())).unwrap();
    assert_eq!(
        copy,
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "front-keepalived-clone", "namespace": "shop",
                "labels": {"app": "web"},
                "annotations": {"keepalived-operator.redhat-cop.io/keepalivedgroup": "ns/kg"},
                "ownerReferences": [
                    {"apiVersion": "paas.org/v1", "kind": "VirtualIP", "name": "front", "uid": "u"},
                ],
            },
            "spec": {
                "type": "ClusterIP", "externalIPs": ["10.0.0.5"],
                "ports": [
                    {"name": "a", "port": 80, "protocol": "TCP", "targetPort": 8080},
                    {"name": "b", "port": 53, "protocol": "UDP", "targetPort": "dns"},
                ],
                "selector": {"app": "web"}, "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "publishNotReadyAddresses": true, "internalTrafficPolicy": "Cluster",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            },
        })
    );
}

#[test]
fn a_fresh_copy_is_in_line() {
    assert_eq!(difference(&make(&vip(), &original(), addr()), &original(), addr()), None);
}

#[test]
fn only_differences_are_written() {
    type Change = fn(&mut Service);
    let rows: [(&str, Change, Value); 7] = [
        (
            "labels",
            |copy| copy.metadata.labels = Some([("mine".to_owned(), "x".to_owned())].into()),
            json!({"metadata": {"labels": {"app": "web", "mine": null}}, "spec": {}}),
        ),
        (
            "annotations",
            |copy| copy.metadata.annotations = None,
            json!({
                "metadata": {"annotations": {"keepalived-operator.redhat-cop.io/keepalivedgroup": "ns/kg"}},
                "spec": {},
            }),
        ),
        (
            "selector",
            |copy| copy.spec.as_mut().unwrap().selector = None,
            json!({"metadata": {}, "spec": {"selector": {"app": "web"}}}),
        ),
        (
            "session affinity",
            |copy| {
                let spec = copy.spec.as_mut().unwrap();
                spec.session_affinity = Some("None".to_owned());
                spec.session_affinity_config = None;
            },
            json!({"metadata": {}, "spec": {
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
            }}),
        ),
        (
            "unready addresses",
            |copy| copy.spec.as_mut().unwrap().publish_not_ready_addresses = None,
            json!({"metadata": {}, "spec": {"publishNotReadyAddresses": true}}),
        ),
        (
            "addresses",
            |copy| copy.spec.as_mut().unwrap().external_ips = None,
            json!({"metadata": {}, "spec": {"externalIPs": ["10.0.0.5"]}}),
        ),
        (
            "fields that are not kept in line",
            |copy| copy.spec.as_mut().unwrap().external_traffic_policy = Some("Local".to_owned()),
            Value::Null,
        ),
    ];
    for (case, change, expected) in rows {
        let mut copy = make(&vip(), &original(), addr());
        change(&mut copy);
        let patch = difference(&copy, &original(), addr()).unwrap_or(Value::Null);
        assert_eq!(patch, expected, "{case}");
    }
}
