//! The Secret with a group's password: its versions, and the rights that concern it.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Secret;
use landfall_vrrp::Step;

use super::conformance::{Ground, ground};
use super::*;

/// The operator looks at a Secret that is there once a minute.
const NOTICED: Duration = Duration::from_mins(1).saturating_add(LONG);

async fn write(ground: &Ground, password: &str) {
    let secrets: Api<Secret> =
        Api::namespaced(ground.tenant.client.clone(), &ground.tenant.namespace);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "vrrp" },
        "stringData": { "password": password },
    });
    let patch = Patch::Apply(secret);
    secrets.patch("vrrp", &PatchParams::apply("test").force(), &patch).await.unwrap();
}

/// What a password is called in the plan.
fn name_of(plan: &Plan) -> Option<String> {
    plan.instances.first()?.form.password.clone()
}

#[tokio::test]
async fn the_next_version_of_a_secret_goes_to_the_nodes_one_after_the_other() {
    let password = json!({ "secretRef": { "name": "vrrp" } });
    let ground = ground("conf-rotation", 2, json!({ "passwordAuth": password })).await;
    write(&ground, "correct1").await;
    ground.tenant.create(external("web", &ground.key, &["10.254.12.1"])).await;
    let group = &ground.group;
    let with_both = |plan: &Plan| plan.nodes.len() == 2 && name_of(plan).is_some();
    let before = group.is_carried_out_with("a password", with_both).await;
    let old = name_of(&before).unwrap();

    write(&ground, "correct2").await;
    let changing = wait::until("the change to begin", NOTICED, async || {
        let plan = group.plan().await.ok_or("no plan")?;
        let begun = plan.instances.iter().any(|instance| instance.change.is_some());
        if begun { Ok(plan) } else { Err(format!("{plan:?}")) }
    });
    let changing = changing.await.unwrap();
    let new = name_of(&changing).unwrap();
    assert_ne!(new, old);
    let change = changing.instances[0].change.clone().unwrap();
    assert_eq!((change.step, change.before.password.as_ref()), (Step::Mute, Some(&old)));
    let is_new = |plan: &Plan| name_of(plan).as_ref() == Some(&new);
    let after = group.is_carried_out_with("the new password", is_new).await;
    assert_eq!(served(&after), served(&before));
    // Neither is told anywhere: names say which version it is.
    for text in [group.file().await, group.text("plan.json").await.unwrap()] {
        assert!(!text.contains("correct"), "{text}");
    }
}

#[tokio::test]
async fn a_secret_that_is_deleted_under_a_running_group_changes_nothing_on_its_nodes() {
    let password = json!({ "secretRef": { "name": "vrrp" } });
    let ground = ground("conf-secret-gone", 1, json!({ "passwordAuth": password })).await;
    write(&ground, "correct1").await;
    ground.tenant.create(external("web", &ground.key, &["10.254.13.1"])).await;
    let group = &ground.group;
    let plan = group.is_carried_out_with("a password", |plan| name_of(plan).is_some()).await;
    let secrets: Api<Secret> =
        Api::namespaced(ground.tenant.client.clone(), &ground.tenant.namespace);
    secrets.delete("vrrp", &DeleteParams::default()).await.unwrap();
    let says = wait::until("the group to say so", NOTICED, async || {
        let conditions = group.get().await.status.unwrap_or_default().conditions;
        let said = condition::get(&conditions, "ReconcileError").cloned();
        said.filter(|said| said.status == "True").ok_or_else(|| format!("{conditions:?}"))
    });
    let said = says.await.unwrap();
    assert!(said.message.contains("Secret"), "{said:?}");
    group.says("Ready", "False", "PasswordMissing", "Secret").await;
    assert_eq!(group.plan().await, Some(plan));
    write(&ground, "correct1").await;
    group.says("ReconcileError", "False", "LastReconcileCycleSucceded", "").await;
}

#[tokio::test]
async fn an_agent_may_read_its_own_secret_and_map_and_no_other_object() {
    let password = json!({ "secretRef": { "name": "vrrp" } });
    let ground = ground("conf-rights", 1, json!({ "passwordAuth": password })).await;
    write(&ground, "correct1").await;
    let namespace = ground.tenant.namespace.as_str();
    ground.group.is_carried_out().await;
    ground.group.says("Ready", "True", "Serving", "").await;
    let reviews: Api<SubjectAccessReview> = Api::all(ground.tenant.client.clone());
    let may = async |namespace: &str, verb: &str, resource: &str, name: &str| {
        let (group, resource) = resource.split_once('/').unwrap_or(("", resource));
        let (resource, part) = resource.split_once('.').unwrap_or((resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {
                "user": "system:serviceaccount:conf-rights:edge-agent",
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": {
                    "namespace": namespace, "verb": verb, "group": group, "resource": resource,
                    "subresource": part, "name": name,
                },
            },
        });
        let review = serde_json::from_value(review).unwrap();
        let review = reviews.create(&PostParams::default(), &review).await.unwrap();
        review.status.unwrap().allowed
    };
    let groups = "redhatcop.redhat.io/keepalivedgroups";
    let status = "redhatcop.redhat.io/keepalivedgroups.status";
    let own = [
        ("get", "secrets", "vrrp"),
        ("watch", "secrets", "vrrp"),
        ("get", "configmaps", "edge"),
        ("watch", "configmaps", "edge"),
        ("patch", status, "edge"),
    ];
    for (verb, resource, name) in own {
        wait::until(format!("the agent to {verb} {resource} {name}"), LONG, async || {
            may(namespace, verb, resource, name).await.then_some(()).ok_or("it may not")
        })
        .await
        .unwrap();
        assert!(!may("default", verb, resource, name).await, "{verb} {resource} elsewhere");
    }
    for (verb, resource, name) in [
        ("get", "secrets", "other"),
        ("list", "secrets", ""),
        ("watch", "secrets", ""),
        ("update", "secrets", "vrrp"),
        ("delete", "secrets", "vrrp"),
        ("get", "configmaps", "other"),
        ("list", "configmaps", ""),
        ("patch", "configmaps", "edge"),
        ("patch", groups, "edge"),
        ("get", groups, "edge"),
        ("patch", status, "other"),
        ("get", "pods", "any"),
        ("get", "services", "web"),
        ("patch", "services", "web"),
        ("get", "nodes", "any"),
        ("create", "pods", ""),
        ("create", "serviceaccounts.token", "edge-agent"),
    ] {
        assert!(!may(namespace, verb, resource, name).await, "{verb} {resource} {name}");
    }
}
