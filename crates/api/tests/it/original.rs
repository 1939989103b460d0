//! Our schemas accept all that those of vip-allocator-operator accept: its manifests lie in repositories
//! and backups, and are applied again.

use std::time::Duration;

use kube::api::{Api, DynamicObject, PostParams};
use kube::discovery::ApiResource;
use landfall_api::{GroupSegmentMapping, IP, IPGroup, VirtualIP};
use landfall_testkit::wait;
use proptest::{
    collection::vec, option, prelude::*, strategy::ValueTree as _, test_runner::TestRunner,
};
use serde_json::{Value, json};

/// The group under which the original's schemas lie beside ours.
const GROUP: &str = "original.example";
const NAMESPACE: &str = "original";

/// A kind as the original has it.
pub(crate) struct Original {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    /// The schema of `spec`.
    pub(crate) spec: Value,
    pub(crate) spec_required: bool,
}

fn originals() -> [Original; 4] {
    let text = || json!({"type": "string"});
    let texts = || json!({"type": "array", "items": {"type": "string"}});
    [
        Original {
            resource: ApiResource::erase::<IPGroup>(&()),
            namespaced: false,
            spec: json!({
                "type": "object",
                "required": ["excludedIPs", "segment"],
                "properties": {"excludedIPs": texts(), "segment": text()},
            }),
            spec_required: false,
        },
        Original {
            resource: ApiResource::erase::<IP>(&()),
            namespaced: false,
            spec: json!({"type": "object"}),
            spec_required: false,
        },
        Original {
            resource: ApiResource::erase::<GroupSegmentMapping>(&()),
            namespaced: false,
            spec: json!({
                "type": "object",
                "required": ["excludedIPs", "keepalivedGroup", "segment"],
                "properties": {
                    "excludedIPs": texts(), "keepalivedGroup": text(), "segment": text(),
                },
            }),
            spec_required: true,
        },
        Original {
            resource: ApiResource::erase::<VirtualIP>(&()),
            namespaced: true,
            spec: json!({
                "type": "object",
                "required": ["service"],
                "properties": {"ip": text(), "service": text()},
            }),
            spec_required: true,
        },
    ]
}

/// One kind of both programs.
pub(crate) struct Pair {
    resource: ApiResource,
    ours: Api<DynamicObject>,
    original: Api<DynamicObject>,
}

/// The shared control plane, with the original's schemas in a group of their own.
async fn pairs() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for original in originals() {
        pairs.push(Pair::install(original).await);
    }
    pairs
}

fn of_original(resource: &ApiResource) -> ApiResource {
    let api_version = format!("{GROUP}/{}", resource.version);
    ApiResource { group: GROUP.to_owned(), api_version, ..resource.clone() }
}

impl Pair {
    /// Installs the original's kind beside ours, as often as tests ask for it.
    pub(crate) async fn install(original: Original) -> Self {
        let cluster = crate::cluster().await;
        cluster.ensure_namespace(NAMESPACE).await.unwrap();
        let Original { resource, namespaced, spec, spec_required } = original;
        let required = if spec_required { json!(["spec"]) } else { json!([]) };
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{GROUP}", resource.plural)},
            "spec": {
                "group": GROUP,
                "names": {"kind": resource.kind, "plural": resource.plural},
                "scope": if namespaced { "Namespaced" } else { "Cluster" },
                "versions": [{
                    "name": resource.version, "served": true, "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "required": required,
                        "properties": {"spec": spec, "status": {"type": "object"}},
                    }},
                }],
            },
        });
        cluster.apply_yaml(&crd.to_string()).await.unwrap();
        let client = cluster.admin_client().await.unwrap();
        let listed: Api<DynamicObject> = Api::all_with(client.clone(), &of_original(&resource));
        wait::until("the original's kind", Duration::from_mins(1), async || {
            listed.list(&kube::api::ListParams::default()).await.is_ok()
        })
        .await
        .unwrap();
        let api = |resource: &ApiResource| {
            if namespaced {
                Api::namespaced_with(client.clone(), NAMESPACE, resource)
            } else {
                Api::all_with(client.clone(), resource)
            }
        };
        Self { ours: api(&resource), original: api(&of_original(&resource)), resource }
    }

    /// Asks both and stores nothing; says whether the original accepts.
    pub(crate) async fn judge(&self, name: &str, spec: Option<&Value>) -> bool {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let kind = &self.resource.kind;
        let object = |api_version: &str| {
            let mut object = json!({
                "apiVersion": api_version, "kind": kind, "metadata": {"name": name},
            });
            if let Some(spec) = spec {
                object["spec"] = spec.clone();
            }
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        let original = object(&of_original(&self.resource).api_version);
        let Ok(stored) = self.original.create(&dry, &original).await else { return false };
        let case = format!("{kind} {name} {spec:?}");
        let ours = self.ours.create(&dry, &object(&self.resource.api_version)).await;
        let ours = ours.unwrap_or_else(|error| panic!("{case}: {error}"));
        // Fields that the original drops may be kept, as some are of its first release.
        for (field, value) in
            stored.data.get("spec").and_then(Value::as_object).into_iter().flatten()
        {
            assert_eq!(ours.data["spec"][field], *value, "{case}: {field}");
        }
        true
    }
}

#[tokio::test]
async fn manifests_that_the_original_took_are_taken_as_they_are() {
    let many: Vec<_> = (0..10_000).map(|n| format!("10.{}.{}.1", n / 256, n % 256)).collect();
    let group =
        |segment: &str, excluded: Value| json!({"segment": segment, "excludedIPs": excluded});
    let pairs = pairs().await;
    for (case, spec) in [
        ("no spec", None),
        ("a blank before an address", Some(group("10.46.3.0/24", json!([" 10.46.3.2"])))),
        ("a range", Some(group("10.0.0.0/24", json!(["10.0.0.1 - 10.0.0.5"])))),
        ("words", Some(group("the dmz", json!(["gateway", "", "10.0.0.01"])))),
        ("nothing", Some(group("", json!([])))),
        ("no prefix", Some(group("1.1.1.0", json!([])))),
        ("long texts", Some(group(&"x".repeat(5000), json!(["y".repeat(5000)])))),
        ("a long list", Some(group("10.0.0.0/8", json!(many)))),
        ("everything", Some(group("0.0.0.0/0", json!(["0.0.0.0", "224.0.0.0"])))),
        ("an unknown field", Some(json!({"segment": "a", "excludedIPs": [], "note": 5}))),
    ] {
        assert!(pairs[0].judge("table", spec.as_ref()).await, "{case}: the original takes it");
    }
    for name in ["10.0.0.5", "web", "10.0.0.05", "2001-db8--1"] {
        for spec in [None, Some(json!({})), Some(json!({"note": "kept"}))] {
            assert!(pairs[1].judge(name, spec.as_ref()).await, "{name}: the original takes it");
        }
    }
}

/// A text as people write it.
fn text() -> BoxedStrategy<String> {
    prop_oneof![
        4 => "[ \\t]?[0-9]{1,3}(\\.[0-9]{1,3}){3}( ?[/-] ?[0-9.]{1,12})?[ \\n]?",
        2 => "[0-9a-f:]{0,40}(/[0-9]{1,3})?",
        2 => "\\PC{0,120}",
    ]
    .boxed()
}

/// The value of a field: of its type, or of any.
fn value(typed: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop_oneof![
        16 => typed,
        1 => text().prop_map(Value::from),
        1 => vec(text(), 0..6).prop_map(Value::from),
        1 => Just(Value::Null),
        1 => vec(any::<bool>(), 0..3).prop_map(Value::from),
        1 => Just(json!({})),
    ]
}

/// A spec with fields that the original knows, rightly typed or not, and with one that it drops.
fn spec() -> impl Strategy<Value = Option<Value>> {
    let field = |name: &'static str| {
        let typed = match name {
            "excludedIPs" => vec(text(), 0..6).prop_map(Value::from).boxed(),
            _ => text().prop_map(Value::from).boxed(),
        };
        option::weighted(0.9, value(typed)).prop_map(move |value| Some((name.to_owned(), value?)))
    };
    let fields = ["segment", "excludedIPs", "keepalivedGroup", "service", "ip", "note"];
    let fields: Vec<_> = fields.into_iter().map(field).collect();
    let object = fields.prop_map(|fields| Value::Object(fields.into_iter().flatten().collect()));
    option::weighted(0.95, object)
}

#[tokio::test]
async fn our_schemas_accept_every_object_that_the_originals_accept() {
    // Each case is some calls: as many as a test may take, and no more.
    const CASES: usize = 150;
    let pairs = pairs().await;
    let mut runner = TestRunner::default();
    let name = "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?|[0-9]{1,3}(\\.[0-9]{1,3}){3}";
    let mut accepted = vec![0_usize; pairs.len()];
    for _ in 0..CASES {
        let (name, spec) = (name, spec()).new_tree(&mut runner).unwrap().current();
        for (pair, accepted) in pairs.iter().zip(&mut accepted) {
            *accepted += usize::from(pair.judge(&name, spec.as_ref()).await);
        }
    }
    assert!(accepted.iter().all(|count| *count > CASES / 10), "too few say anything: {accepted:?}");
}
