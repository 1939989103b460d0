//! The kinds of vip-allocator-operator up to 0.3: its stored objects are read and kept as they are.

use std::path::Path;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use landfall_api::{GroupSegmentMapping, VirtualIP};
use landfall_testkit::ControlPlane;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::refusal;

const NAMESPACE: &str = "legacy";

/// The shared control plane with the old kinds as well.
async fn cluster() -> &'static ControlPlane {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let cluster = crate::cluster().await;
    INSTALLED
        .get_or_init(async || {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
            cluster.install_crds(Path::new(path)).await.unwrap();
            cluster.ensure_namespace(NAMESPACE).await.unwrap();
        })
        .await;
    cluster
}

async fn virtual_ips() -> Api<DynamicObject> {
    let client = cluster().await.admin_client().await.unwrap();
    Api::namespaced_with(client, NAMESPACE, &ApiResource::erase::<VirtualIP>(&()))
}

fn object(kind: &str, name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "paas.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

#[tokio::test]
async fn kubectl_get_shows_the_originals_columns() {
    let cluster = cluster().await;
    let client = cluster.admin_client().await.unwrap();
    let mappings: Api<DynamicObject> =
        Api::all_with(client, &ApiResource::erase::<GroupSegmentMapping>(&()));
    let spec = json!({"keepalivedGroup": "ns/kg", "segment": "10.66.0.0/24", "excludedIPs": []});
    let mapping = object("GroupSegmentMapping", "columns", &spec);
    mappings.create(&PostParams::default(), &mapping).await.unwrap();
    let vips = virtual_ips().await;
    let vip = object("VirtualIP", "columns", &json!({"service": "web"}));
    vips.create(&PostParams::default(), &vip).await.unwrap();
    let status = json!({"status": {"service": "web", "ip": "10.66.0.1", "state": "Valid"}});
    vips.patch_status("columns", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    for (args, header, row) in [
        (
            &["get", "gsm", "columns"][..],
            "NAME KEEPALIVED GROUP SEGMENT AGE",
            "columns ns/kg 10.66.0.0/24",
        ),
        (
            &["get", "vip", "columns", "-n", NAMESPACE],
            "NAME SERVICE IP STATE AGE",
            "columns web 10.66.0.1 Valid",
        ),
    ] {
        let printed = cluster.kubectl(args).await.unwrap();
        let lines: Vec<Vec<_>> =
            printed.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0].join(" "), header, "{args:?}");
        assert!(lines[1].join(" ").starts_with(row), "{args:?}: {printed}");
    }
}

#[tokio::test]
async fn objects_of_every_release_are_kept_and_fit_our_types() {
    let vips = virtual_ips().await;
    let client = cluster().await.admin_client().await.unwrap();
    let typed: Api<VirtualIP> = Api::namespaced(client, NAMESPACE);
    for (name, spec, status, address) in [
        (
            "of-0-1",
            json!({"service": "web", "segment": "10.0.0.0/24", "clone": true}),
            json!({"IP": "10.0.0.5", "clone": true, "service": "web"}),
            Some("10.0.0.5"),
        ),
        (
            "of-0-3",
            json!({"service": "web", "ip": "10.0.0.6"}),
            json!({
                "message": "successfully allocated an IP address", "ip": "10.0.0.6",
                "keepalivedGroup": "ns/kg", "service": "web", "state": "Valid",
                "clonedService": "of-0-3-keepalived-clone", "gsm": "g1",
            }),
            Some("10.0.0.6"),
        ),
        ("without-ip", json!({"service": "web", "ip": ""}), json!({"state": "Error"}), None),
    ] {
        let created = vips.create(&PostParams::default(), &object("VirtualIP", name, &spec)).await;
        assert_eq!(created.unwrap().data["spec"], spec, "{name}");
        let patch = Patch::Merge(json!({ "status": status }));
        let stored = vips.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        assert_eq!(stored.data["status"], status, "{name}: nothing dropped");
        let read = typed.get(name).await.unwrap();
        assert_eq!(read.spec.service, "web");
        assert_eq!(read.status.unwrap().address(), address, "{name}");
    }
}

#[tokio::test]
async fn fields_that_the_original_required_are_required() {
    let vips = virtual_ips().await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let message = refusal(vips.create(&dry, &object("VirtualIP", "a", &json!({}))).await);
    assert!(message.contains("spec.service") && message.contains("Required"), "{message}");
    let client = cluster().await.admin_client().await.unwrap();
    let mappings: Api<DynamicObject> =
        Api::all_with(client, &ApiResource::erase::<GroupSegmentMapping>(&()));
    // Release 0.1 did not require `excludedIPs`; its objects stay editable.
    let message =
        refusal(mappings.create(&dry, &object("GroupSegmentMapping", "a", &json!({}))).await);
    for field in ["keepalivedGroup", "segment"] {
        assert!(message.contains(&format!("spec.{field}: Required")), "{message}");
    }
}
