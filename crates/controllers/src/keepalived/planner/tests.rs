//! The planner with an API server that keeps its objects as JSON, and agents that carry plans out at once.

mod addressless;
mod announcing;
mod changing;
mod entitled;
mod guarding;
mod handing_over;
mod hostile;
mod limits;
mod membership;
mod naming;
mod neighbours;
mod own_instances;
mod passwords;
mod pods;
mod reasons;
mod reporting;
mod serving;
mod sizes;
mod taking_over;

use std::fmt::Write as _;

use jiff::Timestamp;
use kube::core::{DeserializeGuard, DynamicObject};
use landfall_api::{IPGroup, KeepalivedGroup};
use landfall_vrrp::{Instance, NodeIndex, Plan};
use serde_json::{Map, Value, from_value, json};

use super::{
    super::{
        children::{self, Child},
        round::{MISSING_SECRET_INTERVAL, PLAN_INTERVAL, SECRET_INTERVAL},
    },
    *,
};
use crate::{
    announcements::Wanted,
    cluster::{
        News, Seen, endpoints,
        keepalived::{self, ChildView, GroupView},
        node, pool, service,
    },
    engine::{Call as _, Planner as _},
    ledger::object as claim,
    object::Version,
    shared::Shared,
    store::Watched,
};

const GROUP: &str = "infra/edge";
const IMAGE: &str = "landfall:test";
const SECOND: Duration = Duration::from_secs(1);

/// The planner, everything that the engine would lend it, and the objects of the API server.
struct Rig {
    shared: Shared,
    planner: Planner,
    uptime: Duration,
    version: u64,
    /// By kind and key.
    objects: BTreeMap<(&'static str, String), Value>,
    secrets: BTreeMap<String, String>,
    /// The calls made so far, each by its label and object.
    calls: Vec<String>,
    /// The events so far, each as `object reason: message`.
    events: Vec<String>,
    /// Nodes without an agent, or whose agent is frozen.
    silent: BTreeSet<String>,
}

impl Rig {
    /// A cluster of three nodes, in which everything is listed.
    fn new() -> Self {
        let mut shared = Shared::default();
        let pods = Pods { image: IMAGE.to_owned() };
        let planner = Planner::new(pods, &mut shared.ledger);
        let mut rig = Self {
            shared,
            planner,
            uptime: Duration::from_secs(1),
            version: 100,
            objects: BTreeMap::new(),
            secrets: BTreeMap::new(),
            calls: Vec::new(),
            events: Vec::new(),
            silent: BTreeSet::new(),
        };
        let mut lists = vec![
            News::Claims(Watched::ListEnds),
            News::Services(Watched::ListEnds),
            News::Pools(pool::PoolSource::IpGroups, Watched::ListEnds),
            News::Namespaces(Watched::ListEnds),
            News::Nodes(Watched::ListEnds),
            News::ApiServers(Watched::ListEnds),
            News::KeepalivedGroups(Watched::ListEnds),
            News::Endpoints(Watched::ListEnds),
        ];
        lists.extend(ChildKind::ALL.map(|kind| News::Children(kind, Watched::ListEnds)));
        for news in lists {
            rig.hear(news);
        }
        assert!(rig.shared.has_listed(Planner::KINDS));
        for (name, last) in [("n1", 1), ("n2", 2), ("n3", 3)] {
            rig.node(name, &json!({ "edge": "yes" }), &format!("192.0.2.{last}"));
        }
        rig
    }

    fn now(&self) -> Now {
        Now { wall: Timestamp::UNIX_EPOCH + self.uptime, uptime: self.uptime }
    }

    fn hear(&mut self, news: News) {
        let changes = self.shared.hear(news);
        self.tell(&changes);
    }

    fn tell(&mut self, changes: &[Change]) {
        let now = self.now();
        for change in changes {
            self.planner.changed(self.shared.lend(now), change);
        }
        self.planner.catch_up(self.shared.lend(now), &mut Out::default());
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn node(&mut self, name: &str, labels: &Value, address: &str) {
        let object = json!({
            "metadata": { "name": name, "labels": labels },
            "status": {
                "addresses": [{ "type": "InternalIP", "address": address }],
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        let version = Version(self.next_version());
        let view = Box::new(node::read(from_value(object).unwrap()));
        self.hear(News::Nodes(Watched::Present(name.to_owned(), version, view)));
    }

    fn node_fails(&mut self, name: &str) {
        let version = Version(self.next_version());
        let mut view = self.shared.cluster.nodes.get(&name.to_owned()).unwrap().clone();
        view.ready = false;
        self.silent.insert(name.to_owned());
        self.hear(News::Nodes(Watched::Present(name.to_owned(), version, Box::new(view))));
    }

    /// Stores an object and lets the planner hear of it.
    fn store(&mut self, kind: &'static str, mut object: Value) {
        let version = self.next_version();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("{kind}/{namespace}/{name}"));
        }
        let key = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        self.objects.insert((kind, key), object.clone());
        let is_child = ChildKind::ALL.iter().any(|child| child.plural() == kind);
        // Other objects are not watched.
        if !is_child || object["metadata"]["labels"]["keepalivedGroup"].is_string() {
            let news = Self::news(kind, object);
            self.hear(news);
        }
    }

    fn news(kind: &'static str, object: Value) -> News {
        match kind {
            "services" => {
                let view = service::read(&from_value(object).unwrap());
                News::Services(Watched::Present(view.key.clone(), view.version, view))
            }
            "keepalivedgroups" => {
                let view = group_view(object);
                News::KeepalivedGroups(Watched::Present(
                    view.key.clone(),
                    view.version,
                    Box::new(view),
                ))
            }
            "ipgroups" => {
                let group: IPGroup = from_value(object).unwrap();
                let view = pool::read(&DeserializeGuard(Ok(group)));
                let (name, version) = (view.name.clone(), view.version);
                News::Pools(view.source, Watched::Present(name, version, Box::new(view)))
            }
            "endpointslices" => {
                let view = endpoints::read(from_value(object).unwrap());
                News::Endpoints(Watched::Present(view.key.clone(), view.version, view))
            }
            "ips" => {
                let ip = DeserializeGuard(Ok(from_value(object).unwrap()));
                let claim = claim::read(&ip).unwrap();
                News::Claims(Watched::Present(claim.addr, claim.version, claim))
            }
            kind => {
                let kind = child_kind(kind);
                let view = child_view(kind, object);
                News::Children(
                    kind,
                    Watched::Present(view.key.clone(), view.version, Box::new(view)),
                )
            }
        }
    }

    fn remove(&mut self, kind: &'static str, key: &str) {
        self.objects.remove(&(kind, key.to_owned())).unwrap();
        let version = Version(self.next_version());
        let key = ObjectKey::parse(key).unwrap();
        self.hear(match kind {
            "services" => News::Services(Watched::Gone(key, version)),
            "keepalivedgroups" => News::KeepalivedGroups(Watched::Gone(key, version)),
            kind => News::Children(child_kind(kind), Watched::Gone(key, version)),
        });
    }

    /// Changes an object with a merge patch.
    fn patch(&mut self, kind: &'static str, key: &str, patch: &Value) {
        let mut object = self.objects[&(kind, key.to_owned())].clone();
        merge(&mut object, patch);
        self.store(kind, object);
    }

    fn group(&mut self, spec: &Value) {
        self.group_named("edge", spec);
    }

    fn group_named(&mut self, name: &str, spec: &Value) {
        let mut object = json!({
            "metadata": { "name": name, "namespace": "infra", "generation": 1 },
            "spec": { "image": "", "interface": "eth0", "nodeSelector": { "edge": "yes" } },
        });
        merge(&mut object["spec"], spec);
        self.store("keepalivedgroups", object);
    }

    /// A `LoadBalancer` that shows these addresses and asks for the group.
    fn balancer(&mut self, name: &str, addresses: &[&str]) {
        let ingress: Vec<_> = addresses.iter().map(|address| json!({ "ip": address })).collect();
        let second = self.next_version();
        self.store(
            "services",
            json!({
                "metadata": {
                    "name": name,
                    "namespace": "shop",
                    "creationTimestamp": format!("2026-01-01T00:00:00.{second:03}Z"),
                    "annotations": { "keepalived-operator.redhat-cop.io/keepalivedgroup": GROUP },
                },
                "spec": { "type": "LoadBalancer" },
                "status": { "loadBalancer": { "ingress": ingress } },
            }),
        );
    }

    /// Edits the spec of the group.
    fn edit(&mut self, spec: &Value) {
        let generation = self.next_version();
        let edit = json!({ "metadata": { "generation": generation }, "spec": spec });
        self.patch("keepalivedgroups", GROUP, &edit);
    }

    /// Writes annotations of the replaced operator, by their names without prefix.
    fn annotate(&mut self, name: &str, annotations: &Value) {
        let all = annotations.as_object().unwrap().iter();
        let all = all.map(|(key, value)| {
            (format!("keepalived-operator.redhat-cop.io/{key}"), value.clone())
        });
        let all: Map<String, Value> = all.collect();
        let key = format!("shop/{name}");
        self.patch("services", &key, &json!({ "metadata": { "annotations": all } }));
    }

    /// Lets a Service show these addresses.
    fn shows(&mut self, name: &str, addresses: &[&str]) {
        let ingress: Vec<_> = addresses.iter().map(|address| json!({ "ip": address })).collect();
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        self.patch("services", &format!("shop/{name}"), &status);
    }

    /// A claim of a holder in `shop`.
    fn claim(&mut self, address: &str, usage: &str, kind: &str, name: &str) {
        let holder = json!({ "kind": kind, "namespace": "shop", "name": name });
        let spec = json!({
            "address": address, "use": usage, "pool": "IPGroup/dmz", "holders": [holder],
        });
        self.store("ips", json!({ "metadata": { "name": address }, "spec": spec }));
    }

    /// Carries out everything that is planned, until nothing more is.
    fn settle(&mut self) {
        // Looking for a Secret that is missing never ends.
        let mut looks = 0;
        for _ in 0..100 {
            let effects = self.plan_once();
            let reported = self.agents_report();
            if effects.is_empty() && !reported {
                let Some(due) = self.planner.next_due(&self.shared.cluster, &self.shared.ledger)
                else {
                    return;
                };
                // The same goes for one that is there.
                if due > self.uptime + Duration::from_secs(40) {
                    return;
                }
                self.uptime = due;
            }
            let only_looks = effects.iter().all(|it| matches!(it.step, Step::LookAtSecret { .. }));
            looks = if only_looks { looks + effects.len() } else { 0 };
            for effect in effects {
                self.perform(effect);
            }
            if looks > 3 {
                return;
            }
        }
        panic!("no end: {:#?}", self.calls);
    }

    fn perform(&mut self, effect: Effect) {
        self.calls.push(format!("{} {}", effect.label(), effect.object()));
        let result = self.answer(&effect);
        self.report(effect, result);
    }

    /// Lets the planner know how a call ended.
    fn report(&mut self, effect: Effect, mut result: Result<Answer, Failure>) {
        let seen = result.as_mut().ok().and_then(Effect::take_seen);
        let changes = seen.map(|seen| self.shared.learn(seen)).unwrap_or_default();
        self.tell(&changes);
        let report = Report { effect, result };
        let (mut out, now) = (Out::default(), self.now());
        self.planner.reported(self.shared.lend(now), report, &mut out);
        self.note_events(&out);
    }

    fn note_events(&mut self, out: &Out<Effect>) {
        self.events.extend(out.events.iter().map(|event| {
            let about = event.about.name.as_deref().unwrap_or_default();
            format!("{about} {}: {}", event.reason, event.message)
        }));
    }

    /// Another process takes over, which knows only what the API server has.
    fn restart(&mut self) {
        let pods = Pods { image: IMAGE.to_owned() };
        self.planner = Planner::new(pods, &mut self.shared.ledger);
        let now = self.now();
        self.planner.reconsider_all(self.shared.lend(now));
    }

    fn answer(&mut self, effect: &Effect) -> Result<Answer, Failure> {
        match &effect.step {
            Step::Status { version, status, .. } => {
                let key = ("keepalivedgroups", effect.group.to_string());
                let object = self.objects.get_mut(&key).ok_or(Failure::NotFound)?;
                if object["metadata"]["resourceVersion"] != version.to_string() {
                    return Err(Failure::Conflict);
                }
                merge(object, &json!({ "status": status }));
                self.version += 1;
                object["metadata"]["resourceVersion"] = json!(self.version.to_string());
                let view = group_view(object.clone());
                Ok(Answer::Seen(Some(Seen::KeepalivedGroup(Box::new(view)))))
            }
            Step::Create { child } => {
                let key = (child.kind.plural(), child.key.to_string());
                if self.objects.contains_key(&key) {
                    return Err(Failure::Exists);
                }
                let mut object = child.object.clone();
                object["metadata"]["name"] = json!(child.key.name());
                object["metadata"]["namespace"] = json!(child.key.namespace());
                object["metadata"]["uid"] = json!(format!("{}/{}", key.0, key.1));
                Ok(self.written(child, object))
            }
            Step::Align { child, version, .. } => {
                let key = (child.kind.plural(), child.key.to_string());
                let mut object = self.objects.get(&key).ok_or(Failure::NotFound)?.clone();
                if object["metadata"]["resourceVersion"] != version.to_string() {
                    return Err(Failure::Conflict);
                }
                merge(&mut object, &child.object);
                Ok(self.written(child, object))
            }
            Step::LookAtSecret { secret } => {
                Ok(Answer::Secret(self.secrets.get(&secret.to_string()).cloned()))
            }
            Step::LookAt { child } => {
                let found = self.objects.get(&(child.kind.plural(), child.key.to_string()));
                Ok(Answer::Found(found.map(|it| Box::new(child_view(child.kind, it.clone())))))
            }
            Step::FindLeftovers => {
                let inside = |key: &str| {
                    ObjectKey::parse(key)
                        .is_some_and(|key| key.namespace() == effect.group.namespace())
                };
                let kinds = [ChildKind::Role, ChildKind::RoleBinding];
                let views = kinds.into_iter().flat_map(|kind| {
                    let all = self.objects.iter();
                    let all = all.filter(move |((of, key), _)| *of == kind.plural() && inside(key));
                    all.map(move |(_, object)| child_view(kind, object.clone()))
                });
                Ok(Answer::Leftovers(views.filter(|it| adopt::left_for(it).is_some()).collect()))
            }
            Step::Remove { kind, key, .. } => {
                let gone = self.objects.remove(&(kind.plural(), key.to_string()));
                gone.map(|_| Answer::Removed).ok_or(Failure::NotFound)
            }
        }
    }

    fn written(&mut self, child: &Child, mut object: Value) -> Answer {
        drop_nulls(&mut object);
        object["metadata"]["resourceVersion"] = json!(self.next_version().to_string());
        self.objects.insert((child.kind.plural(), child.key.to_string()), object.clone());
        Answer::Seen(Some(Seen::Child(Box::new(child_view(child.kind, object)))))
    }

    /// Lets the agent of each node carry the present plan out; returns whether any had something to report.
    fn agents_report(&mut self) -> bool {
        let groups = self.objects.keys().filter(|(kind, _)| *kind == "keepalivedgroups");
        let groups: Vec<_> = groups.map(|(_, key)| key.clone()).collect();
        let reports: Vec<_> = groups.iter().map(|group| self.agents_of(group)).collect();
        reports.contains(&true)
    }

    fn agents_of(&mut self, group: &str) -> bool {
        let Some(plan) = self.plan_of(group) else { return false };
        if !self.objects.contains_key(&("daemonsets", group.to_owned())) {
            return false;
        }
        let running = |index: &NodeIndex| {
            plan.node(*index).is_some_and(|node| !self.silent.contains(&node.name))
        };
        let holder = |instance: &Instance| {
            let mut able = instance.order.iter().filter(|index| running(index));
            able.find(|index| !plan.is_muted_on(instance, **index)).copied()
        };
        let mut nodes = Vec::new();
        for (index, node) in (0..).zip(&plan.nodes) {
            let old = self.status(group)["nodes"].as_array().cloned().unwrap_or_default();
            let old = old.into_iter().find(|report| report["node"] == node.name.as_str());
            if self.silent.contains(&node.name) {
                nodes.extend(old);
                continue;
            }
            let states = plan.instances.iter().filter_map(|instance| {
                let state = if plan.is_muted_on(instance, index) {
                    "FAULT"
                } else if holder(instance) == Some(index) {
                    "MASTER"
                } else {
                    return None;
                };
                let since = "2026-01-02T03:04:05Z";
                Some(json!({ "name": instance.name, "state": state, "since": since }))
            });
            let states: Vec<_> = states.collect();
            nodes.push(json!({
                "node": node.name, "generation": plan.generation, "instances": states,
            }));
        }
        if self.status(group)["nodes"] == json!(nodes) {
            return false;
        }
        self.patch("keepalivedgroups", group, &json!({ "status": { "nodes": nodes } }));
        true
    }

    fn status(&self, group: &str) -> Value {
        self.objects[&("keepalivedgroups", group.to_owned())]["status"].clone()
    }

    fn plan_of(&self, group: &str) -> Option<Plan> {
        let map = self.objects.get(&("configmaps", group.to_owned()))?;
        serde_json::from_str(map["data"][children::PLAN].as_str()?).ok()
    }

    fn plan(&self) -> Plan {
        self.plan_of(GROUP).unwrap()
    }

    /// The plan as nodes read it.
    fn plan_text(&self) -> String {
        let map = &self.objects[&("configmaps", GROUP.to_owned())];
        map["data"][children::PLAN].as_str().unwrap().to_owned()
    }

    fn file(&self) -> String {
        let map = &self.objects[&("configmaps", GROUP.to_owned())];
        map["data"][children::FILE].as_str().unwrap().to_owned()
    }

    /// The addresses of each instance, as `name id: addresses`.
    fn instances(&self) -> Vec<String> {
        let line = |instance: &Instance| {
            let mut line = format!("{} {}:", instance.name, instance.router_id);
            for address in instance.served() {
                write!(line, " {address}").unwrap();
            }
            line
        };
        self.plan().instances.iter().map(line).collect()
    }

    /// What the condition of a Service should be.
    fn announced(&self, name: &str) -> String {
        match self.shared.announcements.wanted(&ObjectKey::new("shop", name)) {
            Wanted::AsItIs => "as it is".to_owned(),
            Wanted::Absent => "none".to_owned(),
            Wanted::This(one) => format!("{} {}: {}", one.announced, one.reason, one.message),
        }
    }

    /// Plans once, at this moment.
    fn plan_once(&mut self) -> Vec<Effect> {
        let changes = self.shared.settle();
        self.tell(&changes);
        let (mut out, now) = (Out::default(), self.now());
        self.planner.plan(self.shared.lend(now), &mut out);
        self.note_events(&out);
        out.effects
    }

    /// Plans once, and carries out what comes of it.
    fn step(&mut self) {
        self.plan_once().into_iter().for_each(|effect| self.perform(effect));
    }

    /// The nodes on which a Service has a ready endpoint.
    fn endpoints(&mut self, service: &str, nodes: &[&str]) {
        let endpoint = |node: &&str| json!({ "addresses": ["10.0.0.1"], "nodeName": node });
        let labels = json!({ "kubernetes.io/service-name": service });
        self.store(
            "endpointslices",
            json!({
                "metadata": { "name": service, "namespace": "shop", "labels": labels },
                "addressType": "IPv4",
                "endpoints": nodes.iter().map(endpoint).collect::<Vec<_>>(),
            }),
        );
    }

    /// Status, reason and message of a condition of the group.
    fn condition(&self, kind: &str) -> (String, String, String) {
        let status = self.status(GROUP);
        let all = status["conditions"].as_array().unwrap();
        let found = all.iter().find(|one| one["type"] == kind).unwrap();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    fn forget_calls(&mut self) {
        self.calls.clear();
    }
}

fn group_view(object: Value) -> GroupView {
    let group: KeepalivedGroup = from_value(object).unwrap();
    keepalived::read(DeserializeGuard(Ok(group)))
}

fn child_view(kind: ChildKind, object: Value) -> ChildView {
    let object: DynamicObject = from_value(object).unwrap();
    keepalived::read_child(kind, object)
}

fn child_kind(plural: &str) -> ChildKind {
    ChildKind::ALL.into_iter().find(|kind| kind.plural() == plural).unwrap()
}

/// What the API server does to fields without a value.
fn drop_nulls(object: &mut Value) {
    match object {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(entries) => entries.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A JSON merge patch.
fn merge(object: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut object[key.as_str()], value);
        }
    }
}
