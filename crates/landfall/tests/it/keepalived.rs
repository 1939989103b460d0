//! Keepalived groups on a real API server, with an operator, and with agents whose reports the tests write.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Service};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use landfall_api::keys::ANNOTATION_KEEPALIVED_GROUP as GROUP_OF;
use landfall_api::{KeepalivedGroup, condition};
use landfall_testkit::builders::{ServiceBuilder as _, load_balancer};
use landfall_testkit::wait;
use landfall_vrrp::{Instance, NodeIndex, Plan, conf};
use serde_json::{Value, json};

use crate::stage::{Arena, LONG};

mod conformance;
mod controlled;
mod guide;
mod hostile;
mod leftovers;
mod local_traffic;
mod recorded;
mod secrets;

/// The kinds of objects that have to do with groups, as `kubectl get` takes them.
const KINDS: &str = "secrets,configmaps,serviceaccounts,pods,services,events,leases,daemonsets,\
                     controllerrevisions,roles,rolebindings,keepalivedgroups";
/// The kind by which Prometheus finds pods, as far as groups need it.
const POD_MONITORS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: podmonitors.monitoring.coreos.com
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, listKind: PodMonitorList, plural: podmonitors, singular: podmonitor}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";
/// Since when instances are in their state.
const SINCE: &str = "2026-01-02T03:04:05Z";

/// Installs the kind by which Prometheus finds pods.
async fn install_pod_monitors(arena: &Arena) {
    arena.apply(POD_MONITORS).await;
    let name = "crd/podmonitors.monitoring.coreos.com";
    arena.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", name]).await;
    wait::until("pod monitors to be served", LONG, async || {
        arena.plane().kubectl(&["get", "podmonitors", "-A"]).await
    })
    .await
    .unwrap();
}

/// Objects by kind and `namespace/name`.
type Objects = BTreeMap<(String, String), DynamicObject>;

/// All objects of these kinds in the cluster.
async fn objects(arena: &Arena, kinds: &str) -> Objects {
    let list = arena.kubectl(&["get", kinds, "-A", "-o", "json"]).await;
    let list: Value = serde_json::from_str(&list).unwrap();
    let all = list["items"].as_array().unwrap().iter();
    let all = all.map(|item| serde_json::from_value::<DynamicObject>(item.clone()).unwrap());
    all.map(|object| (identity(&object), object)).collect()
}

fn identity(object: &DynamicObject) -> (String, String) {
    let key = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    (object.types.clone().unwrap_or_default().kind, key)
}

/// Waits until there is no such object.
async fn is_gone(arena: &Arena, kind: &str, key: &str) {
    let (namespace, name) = key.split_once('/').unwrap();
    wait::until(format!("{kind} {key} to go"), LONG, async || {
        let found =
            arena.kubectl(&["get", kind, name, "-n", namespace, "--ignore-not-found"]).await;
        if found.is_empty() { Ok(()) } else { Err(found) }
    })
    .await
    .unwrap();
}

/// The addresses of each instance.
type Served = BTreeMap<String, BTreeSet<IpAddr>>;

fn served(plan: &Plan) -> Served {
    let each = plan.instances.iter();
    each.map(|instance| (instance.name.clone(), instance.served().collect())).collect()
}

/// The same, as literals.
fn as_served(all: &[(&str, &[&str])]) -> Served {
    let addresses = |all: &[&str]| all.iter().map(|one| one.parse().unwrap()).collect();
    all.iter().map(|(name, all)| ((*name).to_owned(), addresses(all))).collect()
}

/// The addresses of each instance of a file that has any and could run.
fn served_by_file(text: &str) -> Served {
    let file = conf::parse(text).unwrap();
    let able = conf::instances(&file)
        .filter(|instance| instance.router_id.is_some() && !instance.advertised.is_empty());
    let addresses = |instance: &conf::FoundInstance| {
        let all = instance.advertised.iter().chain(&instance.excluded).chain(&instance.ignored);
        all.copied().collect()
    };
    able.map(|instance| (instance.name.clone(), addresses(&instance))).collect()
}

/// A Service of type `ClusterIP` with these `spec.externalIPs`, which asks for a group.
fn external(name: &str, group: &str, addresses: &[&str]) -> Service {
    let service = load_balancer(name).of_type("ClusterIP").annotated(GROUP_OF, group);
    let addresses = addresses.iter().map(ToString::to_string).collect();
    service.with_spec(|spec| spec.external_ips = Some(addresses))
}

/// Makes a ready node with these labels and this address.
async fn make_node(client: &Client, name: &str, labels: &Value, address: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels },
    });
    let node: Node = serde_json::from_value(node).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": address }],
        "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
    } });
    let patch = Patch::Strategic(status);
    nodes.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// A group and what is generated for it.
struct Group {
    groups: Api<KeepalivedGroup>,
    maps: Api<ConfigMap>,
    name: String,
}

impl Group {
    /// The group of this `namespace/name`, whether it exists or not.
    fn of(client: &Client, key: &str) -> Self {
        let (namespace, name) = key.split_once('/').unwrap();
        Self {
            groups: Api::namespaced(client.clone(), namespace),
            maps: Api::namespaced(client.clone(), namespace),
            name: name.to_owned(),
        }
    }

    async fn make(client: &Client, key: &str, spec: Value) -> Self {
        let group = Self::of(client, key);
        let mut object = json!({
            "apiVersion": "redhatcop.redhat.io/v1alpha1",
            "kind": "KeepalivedGroup",
            "metadata": { "name": group.name },
            "spec": spec,
        });
        if object["spec"]["interface"].is_null() {
            object["spec"]["interface"] = json!("ens3");
        }
        let object = serde_json::from_value(object).unwrap();
        group.groups.create(&PostParams::default(), &object).await.unwrap();
        group
    }

    async fn get(&self) -> KeepalivedGroup {
        self.groups.get(&self.name).await.unwrap()
    }

    async fn edit(&self, spec: Value) {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.groups.patch(&self.name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete(&self) {
        self.groups.delete(&self.name, &DeleteParams::default()).await.unwrap();
    }

    async fn text(&self, key: &str) -> Option<String> {
        self.maps.get_opt(&self.name).await.unwrap()?.data?.remove(key)
    }

    /// The file for all nodes.
    async fn file(&self) -> String {
        self.text("keepalived.conf").await.unwrap()
    }

    async fn plan(&self) -> Option<Plan> {
        Some(serde_json::from_str(&self.text("plan.json").await?).unwrap())
    }

    /// Waits until the plan is as it should be.
    async fn plans(&self, what: impl Debug, test: impl Fn(&Plan) -> bool) -> Plan {
        wait::until(
            format!("the plan of {} to have {what:?}", self.name),
            LONG,
            async || match self.plan().await {
                Some(plan) if test(&plan) => Ok(plan),
                plan => Err(format!("{plan:?}")),
            },
        )
        .await
        .unwrap()
    }

    /// Waits until the plan has exactly these instances, each with its addresses.
    async fn serves(&self, expected: &[(&str, &[&str])]) -> Plan {
        let expected = as_served(expected);
        self.plans(&expected, |plan| served(plan) == expected).await
    }

    /// Waits until the router IDs in the status are exactly these.
    async fn has_ids(&self, expected: &BTreeMap<String, i64>) {
        wait::until(format!("the router IDs of {}", self.name), LONG, async || {
            let ids = self.get().await.status.unwrap_or_default().router_ids;
            if ids == *expected { Ok(()) } else { Err(format!("{ids:?}, not {expected:?}")) }
        })
        .await
        .unwrap();
    }

    /// The same, as literals.
    async fn has(&self, expected: &[(&str, i64)]) {
        let expected = expected.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect();
        self.has_ids(&expected).await;
    }

    /// Waits for a condition: status, reason, and a part of the message.
    async fn says(&self, kind: &str, status: &str, reason: &str, fragment: &str) {
        let what = format!("{} to say {kind} {status} {reason} {fragment:?}", self.name);
        wait::until(what, LONG, async || {
            let conditions = self.get().await.status.unwrap_or_default().conditions;
            let said = condition::get(&conditions, kind);
            let there = said.is_some_and(|said| {
                said.status == status && said.reason == reason && said.message.contains(fragment)
            });
            if there { Ok(()) } else { Err(format!("{conditions:?}")) }
        })
        .await
        .unwrap();
    }

    /// Lets an agent on each node carry out every plan, until there is nothing more to carry out.
    async fn is_carried_out(&self) -> Plan {
        wait::until(format!("the plan of {} to be carried out", self.name), LONG, async || {
            let plan = self.plan().await.ok_or("no plan")?;
            let reports = reports(&plan);
            let status = self.get().await.status.unwrap_or_default();
            if json!(status.nodes) != reports {
                let patch = Patch::Merge(json!({ "status": { "nodes": reports } }));
                let params = PatchParams::default();
                let written = self.groups.patch_status(&self.name, &params, &patch).await;
                written.map_err(|error| error.to_string())?;
                return Err(format!("reported {}", plan.generation));
            }
            let all = i64::try_from(plan.nodes.len()).unwrap();
            let is_known = status.generation == Some(plan.generation)
                && status.applied_nodes == Some(all)
                && plan.instances.iter().all(|instance| instance.change.is_none());
            if is_known { Ok(plan) } else { Err(format!("{status:?}")) }
        })
        .await
        .unwrap()
    }
}

impl Group {
    /// The same, until the plan that they have carried out is as it should be: a change of what all nodes agree on
    /// begins only when all of them have reported.
    async fn is_carried_out_with(&self, what: &str, test: impl Fn(&Plan) -> bool) -> Plan {
        wait::until(format!("the nodes of {} to have {what}", self.name), LONG, async || {
            let plan = self.is_carried_out().await;
            if test(&plan) { Ok(plan) } else { Err(format!("{plan:?}")) }
        })
        .await
        .unwrap()
    }
}

/// What the agents of all nodes report once they have carried a plan out.
fn reports(plan: &Plan) -> Value {
    let holder = |instance: &Instance| {
        instance.order.iter().find(|index| !plan.is_muted_on(instance, **index)).copied()
    };
    let state = |instance: &Instance, index: NodeIndex| {
        let muted = plan.is_muted_on(instance, index);
        let held = (holder(instance) == Some(index)).then_some("MASTER");
        if muted { Some("FAULT") } else { held }
    };
    let node = |(index, name): (NodeIndex, &str)| {
        let states = plan.instances.iter().filter_map(|instance| {
            let state = state(instance, index)?;
            Some(json!({ "name": instance.name, "state": state, "since": SINCE }))
        });
        let mut report = json!({ "node": name, "generation": plan.generation });
        let states: Vec<_> = states.collect();
        if !states.is_empty() {
            report["instances"] = json!(states);
        }
        report
    };
    let nodes = (0..).zip(plan.nodes.iter().map(|node| node.name.as_str()));
    nodes.map(node).collect()
}
