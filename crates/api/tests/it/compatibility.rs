use std::{fs, time::Duration};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use landfall_api::{IP, IPGroup, IPSpec};
use landfall_testkit::{ControlPlane, wait};
use serde_json::{Value, json};

use crate::{api, cluster, generated, object, refusal};

fn recorded() -> Vec<DynamicObject> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/vip-allocator-operator.yaml");
    serde_saphyr::from_multiple(&fs::read_to_string(path).unwrap()).unwrap()
}

fn kind(object: &DynamicObject) -> &str {
    &object.types.as_ref().unwrap().kind
}

#[tokio::test]
async fn objects_of_the_original_are_taken_unchanged_and_fit_our_types() {
    let client = cluster().await.admin_client().await.unwrap();
    for recorded in recorded() {
        let name = recorded.metadata.name.clone().unwrap();
        let api = api(client.clone(), kind(&recorded));
        let stored = api.create(&PostParams::default(), &recorded).await.unwrap();
        assert_eq!(stored.data, recorded.data, "{name}");
        assert_eq!(stored.metadata.labels, recorded.metadata.labels, "{name}");
        assert_eq!(stored.metadata.annotations, recorded.metadata.annotations, "{name}");
        if kind(&recorded) == "IPGroup" {
            let group: IPGroup = Api::all(client.clone()).get(&name).await.unwrap();
            assert_eq!(serde_json::to_value(&group.spec).unwrap(), recorded.data["spec"]);
        } else {
            let ip: IP = Api::all(client.clone()).get(&name).await.unwrap();
            assert_eq!(ip.spec, IPSpec::default(), "{name}");
        }
    }
}

/// Both CRDs as permissive as the original's, which checked types and nothing more.
fn permissive() -> Vec<CustomResourceDefinition> {
    let mut crds = landfall_api::crds();
    for version in crds.iter_mut().flat_map(|crd| &mut crd.spec.versions) {
        version.selectable_fields = None;
        version.schema = serde_json::from_value(json!({"openAPIV3Schema": {
            "type": "object",
            "properties": {
                "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            },
        }}))
        .unwrap();
    }
    crds
}

/// Objects the original let in and that say nothing we could serve.
fn stored_before() -> [(&'static str, &'static str, Value); 6] {
    [
        ("IPGroup", "bad-segment", json!({"segment": "all of it", "excludedIPs": []})),
        ("IPGroup", "empty-segment", json!({"segment": "", "excludedIPs": []})),
        (
            "IPGroup",
            "bad-exclusion",
            json!({"segment": "10.0.0.0/24", "excludedIPs": ["10.0.0.01", "gw"]}),
        ),
        ("IPGroup", "without-spec", Value::Null),
        ("IP", "not-an-address", json!({})),
        ("IP", "10.1.1.1", Value::Null),
    ]
}

#[tokio::test]
async fn objects_stored_before_stay_readable_and_editable() {
    let cluster = ControlPlane::start().await.unwrap();
    let client = cluster.admin_client().await.unwrap();
    let permissive: Vec<_> =
        permissive().iter().map(|crd| serde_saphyr::to_string(crd).unwrap()).collect();
    cluster.apply_yaml(&permissive.join("---\n")).await.unwrap();
    cluster.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await.unwrap();
    for (kind, name, spec) in stored_before() {
        let mut object = object(kind, name, &spec);
        if spec.is_null() {
            object.data = json!({});
        }
        api(client.clone(), kind).create(&PostParams::default(), &object).await.unwrap();
    }

    cluster.install_crds(generated()).await.unwrap();
    // A CRD is established before its new schema is in force.
    for (kind, spec) in [("IPGroup", json!({"ranges": []})), ("IP", json!({"use": "Reserved"}))] {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let probes = api(client.clone(), kind);
        wait::until("the new schema", Duration::from_mins(1), async || {
            probes.create(&dry, &object(kind, "probe", &spec)).await.is_err()
        })
        .await
        .unwrap();
    }

    for (kind, name, spec) in stored_before() {
        let api = api(client.clone(), kind);
        let edit = async |patch: Value| {
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
        };
        let found = api.get(name).await.unwrap();
        let expected = if spec.is_null() { json!({}) } else { spec };
        assert_eq!(found.data["spec"], expected, "{name}: readers always find a spec");
        edit(json!({"metadata": {"labels": {"seen": "yes"}}}))
            .await
            .unwrap_or_else(|error| panic!("{name}: label: {error}"));
        let other =
            if kind == "IPGroup" { json!({"priority": 5}) } else { json!({"use": "Reserved"}) };
        edit(json!({"spec": other})).await.unwrap_or_else(|error| panic!("{name}: spec: {error}"));
        api.patch_status(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": {"conditions": []}})),
        )
        .await
        .unwrap_or_else(|error| panic!("{name}: status: {error}"));
    }
    let _: Vec<IPGroup> =
        Api::all(client.clone()).list(&ListParams::default()).await.unwrap().items;
    let _: Vec<IP> = Api::all(client.clone()).list(&ListParams::default()).await.unwrap().items;

    let groups = api(client, "IPGroup");
    for (name, spec) in [
        ("bad-segment", json!({"segment": "some of it"})),
        ("bad-exclusion", json!({"excludedIPs": ["gw"]})),
        ("bad-segment", json!({"segment": "10.0.0.0/24"})),
        ("bad-exclusion", json!({"excludedIPs": ["10.0.0.1"]})),
        ("without-spec", json!({"ranges": ["10.0.0.1"]})),
    ] {
        let patch = Patch::Merge(json!({"spec": spec}));
        groups.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
    let message = refusal(
        groups
            .patch(
                "without-spec",
                &PatchParams::default(),
                &Patch::Merge(json!({"spec": {"ranges": []}})),
            )
            .await,
    );
    assert!(message.contains("a pool needs addresses"), "{message}");
}
