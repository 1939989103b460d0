//! Services that kube-vip announces: pools in its `ConfigMap`, addresses in its annotation.

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use landfall_testkit::wait;
use serde_json::{Value, json};

use crate::stage::LONG;

mod beyond;
mod editing;
mod mixed;
mod selecting;
mod sharing;
mod syncing;
mod writing;

/// The `ConfigMap` with the pools.
pub(crate) struct Map {
    maps: Api<ConfigMap>,
}

impl Map {
    pub(crate) fn new(client: &Client) -> Self {
        Self { maps: Api::namespaced(client.clone(), "kube-system") }
    }

    /// Makes it say this and nothing else.
    pub(crate) async fn says(&self, data: &Value) {
        self.goes().await;
        self.keeps(data).await;
    }

    /// The same, without its being gone for a moment.
    pub(crate) async fn keeps(&self, data: &Value) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kubevip"}, "data": data,
        });
        let params = PatchParams::apply("test").force();
        self.maps.patch("kubevip", &params, &Patch::Apply(map)).await.unwrap();
    }

    pub(crate) async fn goes(&self) {
        self.maps.delete("kubevip", &DeleteParams::default()).await.ok();
    }
}

/// What stands on a Service, as far as this dialect is concerned.
pub(crate) fn marks(service: &Service) -> Value {
    let metadata = &service.metadata;
    let label = |key: &str| metadata.labels.as_ref().and_then(|all| all.get(key));
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|all| all.get(key));
    json!({
        "implementation": label("implementation"),
        "ipam-address": label("ipam-address"),
        "addresses": annotation("kube-vip.io/loadbalancerIPs"),
        "interface": annotation("kube-vip.io/serviceInterface"),
        "spec": service.spec.as_ref().and_then(|spec| spec.load_balancer_ip.clone()),
        "finalizers": metadata.finalizers,
        "ingress": service.status.as_ref().and_then(|status| status.load_balancer.clone()).and_then(|it| it.ingress),
    })
}

/// Waits until exactly this stands on a Service; what is not named is not there.
pub(crate) async fn carries(
    services: &Api<Service>,
    name: &str,
    case: &str,
    expected: &Value,
) -> Service {
    let mut wanted = marks(&Service::default());
    for (key, value) in expected.as_object().unwrap() {
        wanted[key] = value.clone();
    }
    wait::until(format!("{case}: {name} to carry {wanted}"), LONG, async || {
        let service = services.get(name).await.map_err(|error| error.to_string())?;
        let seen = marks(&service);
        if seen == wanted { Ok(service) } else { Err(format!("{seen}, {:?}", service.status)) }
    })
    .await
    .unwrap()
}

/// Waits until a Service's annotation reads so.
pub(crate) async fn annotated(services: &Api<Service>, name: &str, addrs: &str) -> Service {
    wait::until(format!("{name} to be annotated with {addrs}"), LONG, async || {
        let service = services.get(name).await.map_err(|error| error.to_string())?;
        let seen = marks(&service);
        if seen["addresses"] == *addrs {
            Ok(service)
        } else {
            Err(format!("{seen}, {:?}", service.status))
        }
    })
    .await
    .unwrap()
}

/// A Service with more laid over it, as `kubectl patch` would.
pub(crate) fn from_json(service: Service, more: &[Value]) -> Service {
    let mut value = serde_json::to_value(service).unwrap();
    for patch in more {
        lay_over(&mut value, patch);
    }
    serde_json::from_value(value).unwrap()
}

fn lay_over(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in fields {
        lay_over(&mut target[key], value);
    }
}
