//! Services that kube-vip announces: pools in its `ConfigMap`, addresses in its annotation.

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use landfall_testkit::{Operator, wait};
use serde_json::{Value, json};

use crate::guide::{self, Guide};
use crate::stage::{Arena, LONG, Tenant, arena};

mod additive;
mod beyond;
mod editing;
mod mixed;
mod modes;
mod predicates;
mod selecting;
mod sharing;
mod syncing;
mod writing;

/// The `ConfigMap` with the pools.
pub(crate) struct Map<'a> {
    maps: Api<ConfigMap>,
    name: &'static str,
    reader: Option<&'a Operator>,
}

impl<'a> Map<'a> {
    pub(crate) fn new(client: &Client) -> Self {
        Self::at(client, "kube-system", "kubevip")
    }

    pub(crate) fn at(client: &Client, namespace: &str, name: &'static str) -> Self {
        Self { maps: Api::namespaced(client.clone(), namespace), name, reader: None }
    }

    /// The same, read by this operator: a change then waits until the operator no longer knows the old data.
    /// Nothing orders the news of two kinds, and a Service might be served by the old data.
    pub(crate) fn read_by(self, operator: &'a Operator) -> Self {
        Self { reader: Some(operator), ..self }
    }

    /// Replaces its data by this, deleting it first.
    pub(crate) async fn says(&self, data: &Value) {
        self.goes().await;
        self.keeps(data).await;
    }

    /// The same, without deleting it first.
    pub(crate) async fn keeps(&self, data: &Value) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}, "data": data,
        });
        let params = PatchParams::apply("test").force();
        self.maps.patch(self.name, &params, &Patch::Apply(map)).await.unwrap();
    }

    pub(crate) async fn goes(&self) {
        // Otherwise pools that its reader does not show yet would count as gone.
        if self.has_pools().await {
            self.is_read(true).await;
        }
        self.maps.delete(self.name, &DeleteParams::default()).await.ok();
        self.is_read(false).await;
    }

    async fn has_pools(&self) -> bool {
        let map = self.maps.get_opt(self.name).await.unwrap();
        let data = map.and_then(|map| map.data).unwrap_or_default();
        data.keys().any(|key| key.starts_with("cidr-") || key.starts_with("range-"))
    }

    /// Waits until the metrics of its reader, if it has one, show its pools or no longer do.
    async fn is_read(&self, there: bool) {
        let Some(reader) = self.reader else { return };
        let pool = format!("pool=\"ConfigMap/{}/", self.name);
        let what = if there { "shown" } else { "gone" };
        wait::until(format!("the pools of {} to be {what}", self.name), LONG, async || {
            let metrics = reader.metrics().await.map_err(|error| error.to_string())?;
            let shown: Vec<_> = metrics.lines().filter(|line| line.contains(&pool)).collect();
            if shown.is_empty() == there { Err(shown.join("; ")) } else { Ok(()) }
        })
        .await
        .unwrap();
    }
}

/// Applies `deploy/kube-vip` to an arena in which earlier tests left nothing of it.
pub(crate) async fn deploy(arena: &Arena) {
    for gone in ["deployment/kube-vip-cloud-provider", "lease/kube-vip-cloud-controller"] {
        arena.kubectl(&["-n", "kube-system", "delete", gone, "--ignore-not-found"]).await;
    }
    let guide = Guide::read("from-kube-vip.md");
    let apply = guide.commands().into_iter().find(|line| line.ends_with(" deploy/kube-vip"));
    guide::walk(arena, apply.unwrap()).await;
}

/// Starts the operator as the Deployment says: with its arguments and variables, under its account.
pub(crate) async fn deployed(arena: &Arena, url: &str) -> Operator {
    let get = ["-n", "kube-system", "get", "deployment", "kube-vip-cloud-provider", "-o", "json"];
    let deployment: Value = serde_json::from_str(&arena.kubectl(&get).await).unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    let [container] = &pod["containers"].as_array().unwrap()[..] else { panic!("{pod}") };
    assert_eq!(container.get("command"), None, "the image has its own");
    let args: Vec<String> = serde_json::from_value(container["args"].clone()).unwrap();
    let (verb, flags) = args.split_first().unwrap();
    assert_eq!(verb, "operator");
    // Every operator under test logs as text.
    let flags: Vec<_> =
        flags.iter().map(String::as_str).filter(|flag| !flag.starts_with("--log-format")).collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let variables = container["env"].as_array().into_iter().flatten();
    let variables: Vec<_> = variables.map(|it| (text(&it["name"]), text(&it["value"]))).collect();
    let account = text(&pod["serviceAccountName"]);
    let plane = arena.plane();
    let kubeconfig = plane.service_account_kubeconfig_via("kube-system", &account, url).await;
    let binary = Path::new(env!("CARGO_BIN_EXE_landfall"));
    Operator::spawn_with(binary, &kubeconfig.unwrap(), &flags, &variables).await.unwrap()
}

/// The fields of a Service that matter to this dialect.
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

/// Waits until a Service has exactly these; fields that are not named must be missing.
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

/// Waits until a Service's annotation has this value.
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

/// A Service with these patches applied, as by `kubectl patch`.
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

/// Lets an operator serve the namespace `shop` from these pools, if any, while `act` runs; afterwards all
/// must be in order, and another start must write nothing.
pub(crate) async fn played(data: &Value, act: impl AsyncFn(&Arena, &Map<'_>, &Tenant)) {
    let arena = arena().await;
    let map = Map::new(&arena.client);
    if !data.is_null() {
        map.says(data).await;
    }
    let tenant = arena.tenant("shop").await;
    let operator = arena.operator().await;
    let map = map.read_by(&operator);
    act(&arena, &map, &tenant).await;
    tenant.settled().await;
    tenant.answered().await;
    arena.a_start_writes_nothing().await;
    tenant.clear().await;
    map.goes().await;
    operator.terminate().await.unwrap();
}
