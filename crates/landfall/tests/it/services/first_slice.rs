//! The basics: an address is given, changes on request, and is released.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use landfall_api::keys;
use landfall_testkit::builders::{
    PoolBuilder as _, ServiceBuilder as _, load_balancer, pool, segment,
};
use landfall_testkit::cluster::{Recorder, shown};
use serde_json::{Value, json};

use crate::stage::{allocated, ip, tenant};

/// The user's part of a Service: everything but the status and the fields that every write changes.
fn users_part(service: &Service) -> Value {
    let mut value = serde_json::to_value(service).unwrap();
    value.as_object_mut().unwrap().remove("status");
    let metadata = value["metadata"].as_object_mut().unwrap();
    metadata.remove("resourceVersion");
    metadata.remove("managedFields");
    value
}

#[tokio::test]
async fn a_service_gets_the_lowest_free_address_and_everything_says_so() {
    let tenant = tenant("slice-lowest").await;
    tenant
        .pool(segment("slice-lowest", "10.1.1.5/29", &["10.1.1.0"]).only_for("slice-lowest"))
        .await;
    let made = load_balancer("web").labelled("app", "web").with_spec(|spec| {
        spec.allocate_load_balancer_node_ports = Some(true);
        spec.external_ips = Some(vec!["198.51.100.7".into()]);
    });
    let before = tenant.create(made).await;
    assert!(before.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].node_port.is_some());

    let web = tenant.shows("web", &["10.1.1.1"]).await;
    assert_eq!(users_part(&web), users_part(&before), "only the status is ours");
    let ingress = web.status.as_ref().unwrap().load_balancer.clone().unwrap().ingress.unwrap();
    assert_eq!(ingress.len(), 1);
    assert_eq!(ingress[0].ip_mode.as_deref(), Some("VIP"));

    let claim = tenant.claim("10.1.1.1").await.unwrap();
    assert_eq!(claim.spec.address.as_deref(), Some("10.1.1.1"));
    assert_eq!(claim.spec.use_.as_deref(), Some("LoadBalancer"));
    assert_eq!(claim.spec.pool.as_deref(), Some("IPGroup/slice-lowest"));
    assert_eq!(claim.labels().get(keys::LABEL_IPGROUP).unwrap(), "slice-lowest");
    assert_eq!(claim.annotations().get(keys::ANNOTATION_OWNER).unwrap(), "slice-lowest/web");
    assert_eq!(claim.metadata.finalizers, None);
    let holder = &claim.spec.holders[..];
    assert_eq!(holder.len(), 1);
    assert_eq!((holder[0].kind.as_str(), holder[0].name.as_str()), ("Service", "web"));
    assert_eq!(holder[0].namespace.as_deref(), Some("slice-lowest"));
    assert_eq!(holder[0].uid, web.uid());

    tenant.says("web", "True", "Allocated", "10.1.1.1 from IPGroup/slice-lowest").await;
    tenant.tells("web", "Allocated", "10.1.1.1").await;
    tenant.pool_counts("slice-lowest", "7", "1", "6").await;
    tenant.pool_says("slice-lowest", "True", "gives addresses").await;

    tenant.create(load_balancer("next")).await;
    tenant.shows("next", &["10.1.1.2"]).await;
    tenant.delete("web").await;
    tenant.claim_is_gone("10.1.1.1").await;
    tenant.create(load_balancer("again")).await;
    tenant.shows("again", &["10.1.1.1"]).await;
    tenant.ends(&["slice-lowest"]).await;
}

#[tokio::test]
async fn a_request_is_granted_kept_replaced_and_never_leaves_the_service_without() {
    let tenant = tenant("slice-request").await;
    tenant.pool(pool("slice-request", &["10.1.2.0/29"]).only_for("slice-request")).await;
    let recorder = Recorder::start(&tenant.client).await.unwrap();
    tenant.create(load_balancer("web").asking("10.1.2.5")).await;
    let web = tenant.shows("web", &["10.1.2.5"]).await;

    // Cleared: it keeps its address. Set to that address: nothing to do, in either place.
    let claim = tenant.claim("10.1.2.5").await.unwrap();
    tenant.ask("web", None).await;
    let asked = tenant.ask("web", "10.1.2.5").await;
    tenant.create(load_balancer("barrier")).await;
    tenant.shows("barrier", &["10.1.2.0"]).await;
    assert_eq!(tenant.get("web").await.resource_version(), asked.resource_version());
    assert_eq!(tenant.claim("10.1.2.5").await.unwrap(), claim);
    assert_eq!(allocated(&tenant.get("web").await), allocated(&web));

    tenant.ask("web", "10.1.2.3").await;
    tenant.shows("web", &["10.1.2.3"]).await;
    tenant.claim_is_gone("10.1.2.5").await;
    tenant.says("web", "True", "Allocated", "10.1.2.3").await;
    tenant.tells("web", "Released", "10.1.2.5 is free again").await;
    let history = recorder.finish().await.unwrap();
    let web: Vec<_> = ["10.1.2.5", "10.1.2.3"].iter().map(|addr| vec![ip(addr)]).collect();
    assert_eq!(history.shown_by("slice-request/web")[1..], web, "nothing shown in between");
    tenant.ends(&["slice-request"]).await;
}

#[tokio::test]
async fn an_address_is_released_when_the_type_or_the_class_changes_and_comes_again() {
    let tenant = tenant("slice-type").await;
    tenant.pool(pool("slice-type", &["10.1.3.0/29"]).only_for("slice-type")).await;
    let of_class = pool("slice-type-class", &["10.1.3.8/29"]).only_for("slice-type");
    tenant.pool(of_class.for_class("slice.example/lb")).await;
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.1.3.0"]).await;

    for kind in ["ClusterIP", "NodePort"] {
        let change = json!({"spec": {"type": kind, "allocateLoadBalancerNodePorts": null}});
        let changed = tenant.patch("web", change).await;
        assert!(shown(&changed).is_empty(), "the API server wipes the status by itself");
        tenant.claim_is_gone("10.1.3.0").await;
        tenant.tells("web", "Released", "10.1.3.0 is free again").await;
        let back = tenant.patch("web", json!({"spec": {"type": "LoadBalancer"}})).await;
        tenant.shows("web", &["10.1.3.0"]).await;
        assert_eq!(back.uid(), changed.uid(), "the same Service");
    }

    let change = json!({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": null}});
    tenant.patch("web", change).await;
    let class = json!({"spec": {"type": "LoadBalancer", "loadBalancerClass": "slice.example/lb"}});
    tenant.patch("web", class).await;
    tenant.shows("web", &["10.1.3.8"]).await;
    tenant.claim_is_gone("10.1.3.0").await;
    tenant.ends(&["slice-type", "slice-type-class"]).await;
}

#[tokio::test]
async fn services_of_other_types_are_never_touched() {
    let tenant = tenant("slice-other").await;
    tenant.pool(pool("slice-other", &["10.1.4.0/29"]).only_for("slice-other")).await;
    let mut made = vec![];
    for kind in ["ClusterIP", "NodePort"] {
        made.push(tenant.create(load_balancer(&kind.to_lowercase()).of_type(kind)).await);
    }
    let external = load_balancer("external").of_type("ExternalName").with_spec(|spec| {
        spec.external_name = Some("example.com".into());
    });
    made.push(tenant.create(external).await);
    tenant.create(load_balancer("web")).await;
    tenant.shows("web", &["10.1.4.0"]).await;
    for service in made {
        let now = tenant.get(&service.name_any()).await;
        assert_eq!(now.resource_version(), service.resource_version(), "{}", service.name_any());
    }
    tenant.ends(&["slice-other"]).await;
}

#[tokio::test]
async fn dual_stack_services_get_one_address_of_each_family() {
    let tenant = tenant("slice-dual").await;
    tenant.pool(pool("slice-dual4", &["10.1.5.0/30"]).only_for("slice-dual")).await;
    tenant.pool(segment("slice-dual6", "fd00:1:5::/64", &[]).only_for("slice-dual")).await;
    let both = ["IPv4", "IPv6"];
    tenant.pool_counts("slice-dual6", "18446744073709551616", "0", "18446744073709551616").await;

    tenant.create(load_balancer("both").with_families("RequireDualStack", &both)).await;
    tenant.shows("both", &["10.1.5.0", "fd00:1:5::"]).await;
    let claim = tenant.claim("fd00:1:5::").await.unwrap();
    assert_eq!(claim.name_any(), "fd00-1-5-0-0-0-0-0");
    assert_eq!(claim.spec.address.as_deref(), Some("fd00:1:5::"));
    tenant.create(load_balancer("six").with_families("SingleStack", &["IPv6"])).await;
    tenant.shows("six", &["fd00:1:5::1"]).await;
    tenant.create(load_balancer("four").with_families("SingleStack", &["IPv4"])).await;
    tenant.shows("four", &["10.1.5.1"]).await;
    let asked = load_balancer("asked").asking("fd00:1:5::10");
    tenant.create(asked.with_families("PreferDualStack", &["IPv6", "IPv4"])).await;
    tenant.shows("asked", &["fd00:1:5::10", "10.1.5.2"]).await;
    tenant.pool_counts("slice-dual6", "18446744073709551616", "3", "18446744073709551613").await;

    // IPv4 runs out. A Service that requires both families gets neither and says so; one that prefers both
    // gets one, and the other when it is there.
    tenant.create(load_balancer("last").with_families("SingleStack", &["IPv4"])).await;
    tenant.shows("last", &["10.1.5.3"]).await;
    tenant.create(load_balancer("insists").with_families("RequireDualStack", &both)).await;
    tenant.says("insists", "False", "Exhausted", "no IPv4 address").await;
    tenant.create(load_balancer("prefers").with_families("PreferDualStack", &both)).await;
    tenant.shows("prefers", &["fd00:1:5::2"]).await;
    tenant.says("prefers", "True", "Allocated", "no IPv4 address").await;
    assert!(shown(&tenant.get("insists").await).is_empty());
    tenant.edit_pool("slice-dual4", json!({"ranges": ["10.1.5.0/30", "10.1.5.8-10.1.5.9"]})).await;
    tenant.shows("insists", &["10.1.5.8", "fd00:1:5::3"]).await;
    tenant.shows("prefers", &["10.1.5.9", "fd00:1:5::2"]).await;

    // A family that a Service gives up is released; one that it takes on comes beside the other.
    let one = json!({"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}});
    tenant.patch("both", one).await;
    tenant.shows("both", &["10.1.5.0"]).await;
    tenant.claim_is_gone("fd00:1:5::").await;
    let two = json!({"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": both}});
    tenant.patch("four", two).await;
    tenant.shows("four", &["10.1.5.1", "fd00:1:5::"]).await;
    tenant.ends(&["slice-dual4", "slice-dual6"]).await;
}

#[tokio::test]
async fn a_service_that_is_held_back_from_deletion_keeps_its_address_until_it_is_gone() {
    let tenant = tenant("slice-deleting").await;
    tenant.pool(pool("slice-deleting", &["10.1.6.0/31"]).only_for("slice-deleting")).await;
    let mut web = load_balancer("web");
    web.finalizers_mut().push("example.com/slow".into());
    tenant.create(web).await;
    tenant.shows("web", &["10.1.6.0"]).await;
    tenant.delete("web").await;
    tenant.create(load_balancer("next")).await;
    tenant.shows("next", &["10.1.6.1"]).await;
    // Nor does a Service that is being deleted get a new address.
    let mut late = load_balancer("late");
    late.finalizers_mut().push("example.com/slow".into());
    tenant.create(late).await;
    tenant.says("late", "False", "Exhausted", "").await;
    tenant.delete("late").await;
    tenant.delete("next").await;
    tenant.claim_is_gone("10.1.6.1").await;
    tenant.create(load_balancer("other")).await;
    tenant.shows("other", &["10.1.6.1"]).await;
    assert!(shown(&tenant.get("late").await).is_empty());
    assert_eq!(shown(&tenant.get("web").await), [ip("10.1.6.0")]);

    let none = json!({"metadata": {"finalizers": null}});
    tenant.patch("late", none.clone()).await;
    tenant.patch("web", none).await;
    tenant.claim_is_gone("10.1.6.0").await;
    tenant.ends(&["slice-deleting"]).await;
}
