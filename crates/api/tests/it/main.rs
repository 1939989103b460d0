//! The CRDs on a real API server: what it accepts, what it refuses and with which words.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the exemption for tests does not reach the functions tests share"
)]

mod columns;
mod compatibility;
mod keepalived;
mod keywords;
mod legacy;
mod original;
mod validation;

use std::path::Path;

use kube::{
    Client,
    api::{Api, DynamicObject},
    discovery::ApiResource,
};
use landfall_api::{IP, IPGroup};
use landfall_testkit::ControlPlane;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// The CRDs as users install them.
fn generated() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds"))
}

/// The shared control plane with our CRDs. Tests use object names of their own.
async fn cluster() -> &'static ControlPlane {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let cluster = landfall_testkit::shared().await.unwrap();
    INSTALLED.get_or_init(async || cluster.install_crds(generated()).await.unwrap()).await;
    cluster
}

/// Untyped, because what an older or careless writer sends need not fit our types.
fn api(client: Client, kind: &str) -> Api<DynamicObject> {
    let resource = match kind {
        "IPGroup" => ApiResource::erase::<IPGroup>(&()),
        _ => ApiResource::erase::<IP>(&()),
    };
    Api::all_with(client, &resource)
}

fn object(kind: &str, name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "paas.org/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    }))
    .unwrap()
}

/// The API server's answer, which a refusal must be.
fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> String {
    match answer {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}
