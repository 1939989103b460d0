//! `deploy/admission-virtualips.yaml`: which changes of a `VirtualIP` are still allowed.

use std::path::Path;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use landfall_api::{VirtualIP, VirtualIPSpec, keys};
use landfall_testkit::wait;
use serde_json::{Value, json};

use super::Old;
use crate::stage::{LONG, old_arena};

const DEPRECATED: &str =
    "VirtualIP resource is deprecated, use a service with type LoadBalancer instead";
const STOPPED: &str = "VirtualIP migration can not be stopped";
const NOT_VALID: &str = "not valid VirtualIP can not be migrated";
const SERVICE: &str = "can not change service once migration has begun";
const IMMUTABLE: &str = ".spec.ip is immutable";

fn verdict<T>(answer: kube::Result<T>) -> Option<String> {
    match answer {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

fn annotation(value: &Value) -> Value {
    json!({"metadata": {"annotations": {keys::ANNOTATION_MIGRATE: value}}})
}

#[tokio::test]
async fn virtual_ips_may_only_go_forward() {
    let arena = old_arena().await;
    let old = Old::new(&arena, "vip-policy").await;
    for name in ["valid", "error", "empty", "migrating", "migrated"] {
        old.expose(name, "web", Some("10.43.0.1")).await;
    }
    let states = [
        ("valid", "Valid"),
        ("error", "Error"),
        ("migrating", "Migrating: preparing for migration"),
        ("migrated", "Migrated"),
    ];
    let set_state = async |name: &str, state: &str| {
        let status = Patch::Merge(json!({"status": {"state": state}}));
        old.vips.patch_status(name, &PatchParams::default(), &status).await
    };
    for (name, state) in states {
        set_state(name, state).await.unwrap();
    }
    for name in ["migrating", "migrated"] {
        old.migrate(name).await;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let policy = std::fs::read_to_string(root.join("deploy/admission-virtualips.yaml")).unwrap();
    arena.apply(&policy).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let new = VirtualIP::new("new", VirtualIPSpec { service: "web".into(), ip: None });
    wait::until("the policy", LONG, async || {
        old.vips.create(&dry, &new).await.map_or_else(
            |error| {
                if error.to_string().contains(DEPRECATED) { Ok(()) } else { Err(error.to_string()) }
            },
            |_| Err("created".to_owned()),
        )
    })
    .await
    .unwrap();

    let other = json!({"spec": {"service": "other"}});
    let both = json!({
        "metadata": {"annotations": {keys::ANNOTATION_MIGRATE: null}},
        "spec": {"service": "other", "ip": "10.43.0.9"},
    });
    for (case, name, patch, refusal) in [
        ("labels only", "error", json!({"metadata": {"labels": {"a": "b"}}}), None),
        ("finalizers only", "migrating", json!({"metadata": {"finalizers": ["a.b/c"]}}), None),
        ("begin, Valid", "valid", annotation(&json!("")), None),
        ("begin, Valid, with a value", "valid", annotation(&json!("yes")), None),
        ("begin, Error", "error", annotation(&json!("")), Some(NOT_VALID)),
        ("begin, no state", "empty", annotation(&json!("")), Some(NOT_VALID)),
        ("another value", "migrating", annotation(&json!("again")), None),
        ("another value, Migrated", "migrated", annotation(&json!("again")), None),
        ("stop", "migrating", annotation(&Value::Null), Some(STOPPED)),
        ("stop, Migrated", "migrated", annotation(&Value::Null), Some(STOPPED)),
        ("another service before", "valid", other.clone(), None),
        ("another service before, Error", "error", other.clone(), None),
        ("another service after", "migrating", other, Some(SERVICE)),
        ("another address", "valid", json!({"spec": {"ip": "10.43.0.2"}}), Some(IMMUTABLE)),
        ("no address", "valid", json!({"spec": {"ip": null}}), Some(IMMUTABLE)),
        ("everything at once: the first counts", "migrating", both, Some(STOPPED)),
    ] {
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        let answer = old.vips.patch(name, &params, &Patch::Merge(patch)).await;
        let (said, wanted) = (verdict(answer), refusal.map(str::to_owned));
        let agrees = match (&said, &wanted) {
            (None, None) => true,
            (Some(said), Some(wanted)) => said.ends_with(wanted.as_str()),
            (Some(_), None) | (None, Some(_)) => false,
        };
        assert!(agrees, "{case}: {said:?}, not {wanted:?}");
    }
    set_state("error", "Valid").await.unwrap();
    for name in ["valid", "error", "migrating", "migrated"] {
        old.vips.delete(name, &DeleteParams::default()).await.unwrap();
    }
}
