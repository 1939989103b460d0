//! Which edits of a Service have an effect.

use kube::ResourceExt as _;
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use landfall_testkit::wait;
use serde_json::{Value, json};

use super::writing::{CLEANUP, watched, writes};
use super::{Map, annotated, from_json};
use crate::stage::{LONG, arena, quiet};

const NOTHING: [&str; 0] = [];
const MOVES: [&str; 3] = ["POST ips", "PATCH services", "DELETE ips"];

#[tokio::test]
async fn each_edit_leads_to_the_writes_it_needs() {
    let data = json!({"cidr-global": "10.0.0.1-10.0.0.9,fd00::1-fd00::9"});
    watched(&data, async |_, tenant, proxy| {
        let local = json!({"spec": {"externalTrafficPolicy": "Local"}});
        tenant.create(from_json(load_balancer("web"), &[local])).await;
        annotated(&tenant.services, "web", "10.0.0.1").await;
        quiet(proxy).await;
        let port = |more: Value| {
            let mut port = json!({"name": "http", "port": 80});
            port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"spec": {"ports": [port]}})
        };
        let both = json!({"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]});
        let one = json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]});
        for (case, patch, done, shows) in [
            ("targetPort", port(json!({"targetPort": 1})), &NOTHING[..], "10.0.0.1"),
            ("appProtocol", port(json!({"appProtocol": "UDP"})), &NOTHING, "10.0.0.1"),
            ("another", port(json!({"appProtocol": "SCTP"})), &NOTHING, "10.0.0.1"),
            (
                "externalTrafficPolicy",
                json!({"spec": {"externalTrafficPolicy": null}}),
                &NOTHING,
                "10.0.0.1",
            ),
            ("ipFamilies", json!({ "spec": both }), &MOVES[..2], "10.0.0.1,fd00::1"),
            (
                "spec.loadBalancerIP",
                json!({"spec": {"loadBalancerIP": "10.0.0.7"}}),
                &MOVES,
                "10.0.0.7,fd00::1",
            ),
            ("one family again", json!({ "spec": one }), &MOVES[1..], "10.0.0.7"),
        ] {
            let mark = proxy.mark();
            tenant.patch("web", patch).await;
            annotated(&tenant.services, "web", shows).await;
            assert_eq!(writes(proxy, mark).await, done, "{case}");
        }
        let mark = proxy.mark();
        tenant.set_ingress("web", json!([{"ip": "10.0.0.7"}])).await;
        assert_eq!(writes(proxy, mark).await, NOTHING, "status");
    })
    .await;
}

/// The class of a Service, and whether it is being deleted, decide whether its finalizer is removed.
#[tokio::test]
async fn only_services_of_the_own_class_are_cleaned_up() {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    map.says(&json!({"cidr-global": "10.35.0.0/28"})).await;
    let tenant = arena.tenant("predicates").await;
    let (own, other) = ("kube-vip.io/kube-vip-class", "example.com/other");
    let marked = json!({"metadata": {"finalizers": [CLEANUP]}});
    for (name, class, finalizer, deleted) in [
        ("own-both", own, true, true),
        ("own-marked", own, true, false),
        ("own-deleted", own, false, true),
        ("other-both", other, true, true),
        ("other-marked", other, true, false),
    ] {
        let service = load_balancer(name).of_class(class);
        let marks = finalizer.then(|| marked.clone());
        tenant.create(from_json(service, marks.as_slice())).await;
        if deleted {
            tenant.delete(name).await;
        }
    }
    let operator = arena.operator_with(&[&format!("--kube-vip-class={own}")]).await;
    annotated(&tenant.services, "own-marked", "10.35.0.1").await;
    for gone in ["own-both", "own-deleted"] {
        wait::until(format!("{gone} to go"), LONG, async || {
            let left = tenant.services.get_opt(gone).await.map_err(|error| error.to_string())?;
            left.map_or(Ok(()), |service| Err(format!("{:?}", service.metadata)))
        })
        .await
        .unwrap();
    }
    for name in ["other-both", "other-marked"] {
        let left = tenant.get(name).await;
        assert_eq!(left.finalizers(), [CLEANUP], "{name}");
        tenant.patch(name, json!({"metadata": {"finalizers": null}})).await;
    }
    tenant.settled().await;
    tenant.clear().await;
    map.goes().await;
    operator.terminate().await.unwrap();
}
