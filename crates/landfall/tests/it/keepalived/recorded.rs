//! Clusters as keepalived-operator left them, recorded from the running program.

use landfall_testkit::Recording;
use landfall_vrrp::{Transport, Version};
use rstest::rstest;

use super::*;
use crate::stage::{ArenaSlot, WITH_GROUPS, arena_of_groups, quiet, writes_only};

/// The password in the recorded Secret.
const PASSWORD: &str = "s3cr3tpw";
/// The same as the Secret has it.
const ENCODED: &str = "czNjcjN0cHc=";
const NAMESPACES: [&str; 6] =
    ["edge-vips", "media", "shop", "keepalived-operator", "lb-system", "apps"];
/// The groups of the one recorded cluster, and of the other.
const FULL: &str = "edge-vips/keepalivedgroup-full";
const MANY: &str = "edge-vips/keepalivedgroup-many";
const ONE: &str = "lb-system/one";
const TWO: &str = "lb-system/two";
const THREE: &str = "lb-system/three";

/// The expected changes of a recorded cluster. Everything else stays as it is.
#[derive(Default)]
struct Fate {
    /// Names whose router IDs are free in the end, each with its group.
    freed: &'static [(&'static str, &'static str)],
    /// Groups whose file changes while pods of the original may read it.
    rewritten: &'static [&'static str],
    /// Groups that have no node.
    idle: &'static [&'static str],
    /// Objects that are removed, by kind and `namespace/name`.
    gone: &'static [(&'static str, &'static str)],
    /// Services that get an event, and its reason.
    told: &'static [(&'static str, &'static str)],
    /// Whether it is checked that a second start writes nothing, which takes its time.
    again: bool,
}

pub(super) fn recording(name: &str) -> Recording {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/keepalived-operator");
    Recording::load(&std::fs::read_to_string(format!("{folder}/{name}.yaml")).unwrap()).unwrap()
}

/// A control plane of one of the recorded clusters: of the two, one had the kind `PodMonitor`.
pub(super) async fn arena(monitored: bool) -> Arena {
    static WITH: ArenaSlot = ArenaSlot::new();
    static WITHOUT: ArenaSlot = ArenaSlot::new();
    let arena = arena_of_groups(if monitored { &WITH } else { &WITHOUT }).await;
    if monitored {
        install_pod_monitors(&arena).await;
    }
    let kinds = if monitored { format!("{KINDS},podmonitors") } else { KINDS.to_owned() };
    for namespace in NAMESPACES {
        let now = ["--all", "--force", "--grace-period=0", "-n", namespace];
        arena.kubectl(&[&["delete", kinds.as_str()], &now[..]].concat()).await;
    }
    arena.kubectl(&["delete", "nodes", "--all"]).await;
    arena
}

/// All objects of these kinds where recorded ones are.
async fn recorded(arena: &Arena, kinds: &str) -> Objects {
    let mut all = objects(arena, kinds).await;
    all.retain(|(_, key), _| NAMESPACES.iter().any(|it| key.starts_with(&format!("{it}/"))));
    all
}

/// The recorded groups.
pub(super) fn groups(recording: &Recording) -> Vec<&DynamicObject> {
    let all = recording.items().iter();
    all.filter(|object| identity(object).0 == "KeepalivedGroup").collect()
}

/// The recorded file of each group that has one.
pub(super) fn files(recording: &Recording) -> BTreeMap<String, String> {
    let maps = recording.items().iter().filter(|object| identity(object).0 == "ConfigMap");
    maps.map(|map| {
        let text = map.data["data"]["keepalived.conf"].as_str().unwrap();
        (identity(map).1, text.to_owned())
    })
    .collect()
}

/// The router IDs that a group has in the end.
fn expected_ids(group: &DynamicObject, fate: &Fate) -> BTreeMap<String, i64> {
    let key = identity(group).1;
    let recorded = group.data["status"]["routerIDs"].as_object().cloned().unwrap_or_default();
    let stays = |name: &str| !fate.freed.contains(&(key.as_str(), name));
    let kept = recorded.into_iter().filter(|(name, _)| stays(name));
    kept.map(|(name, id)| (name, id.as_i64().unwrap())).collect()
}

/// Replays a recording, starts the operator, and checks that nothing changes but what must.
async fn taken_over(arena: &Arena, name: &str, monitored: bool, fate: &Fate) {
    let recording = recording(name);
    recording.replay(&arena.client).await.unwrap();
    let kinds = if monitored { format!("{KINDS},podmonitors") } else { KINDS.to_owned() };
    let before = recorded(arena, &kinds).await;
    let nodes = objects(arena, "nodes").await;
    let proxy = arena.proxy().await;
    let operator = arena.operator_via_with(&proxy, &WITH_GROUPS).await;
    for group in groups(&recording) {
        let key = identity(group).1;
        // No agent runs on the nodes of a recording.
        let ready = if fate.idle.contains(&&*key) { "NoNodes" } else { "NoAgents" };
        let now = Group::of(&arena.client, &key);
        now.says("Ready", "False", ready, "").await;
        now.has_ids(&expected_ids(group, fate)).await;
        is_complete(arena, &key, monitored).await;
    }
    for (kind, key) in fate.gone {
        is_gone(arena, kind, key).await;
    }
    let after = recorded(arena, &kinds).await;
    nothing_else_changed(&before, &after, fate);
    assert_eq!(objects(arena, "nodes").await, nodes);
    nothing_has_the_password(&before, &after);
    for (key, file) in files(&recording) {
        let group = Group::of(&arena.client, &key);
        let plan = group.plan().await.unwrap();
        if fate.rewritten.contains(&&*key) {
            continue;
        }
        assert_eq!(group.file().await, file, "{key}");
        assert_eq!(served(&plan), served_by_file(&file), "{key}");
        goes_on_as_in(&plan, &file);
    }
    for (service, reason) in fate.told {
        let (namespace, name) = service.split_once('/').unwrap();
        arena.tenant(namespace).await.tells(name, reason, "").await;
    }
    // The last pod of the original has been replaced.
    for group in groups(&recording) {
        let key = identity(group).1;
        let now = Group::of(&arena.client, &key);
        let spec = &group.data["spec"];
        let (unicast, secret) = (spec["unicastEnabled"] == true, !spec["passwordAuth"].is_null());
        let is_final = |plan: &Plan| {
            let unicast = unicast && plan.nodes.len() > 1;
            let forms = plan.instances.iter().map(|instance| &instance.form);
            let mut forms = forms.filter(|form| form.version == Version::V2);
            forms.all(|form| {
                (form.transport == Transport::Unicast) == unicast
                    && form.password.is_some() == secret
            })
        };
        let plan = now.is_carried_out_with("the forms of the group", is_final).await;
        assert_eq!(plan.interface, spec["interface"], "{key}");
        let without = wait::until("a file without password", LONG, async || {
            let file = now.file().await;
            if file.contains(PASSWORD) { Err(file) } else { Ok(file) }
        });
        let file = without.await.unwrap();
        assert_eq!(served_by_file(&file), served(&plan), "{key}");
        let interface = format!("interface {}\n", plan.interface);
        assert_eq!(file.matches(&interface).count(), plan.instances.len(), "{key}");
    }
    if !fate.again {
        return;
    }
    // What lasts for a moment only is not told.
    quiet(&proxy).await;
    operator.terminate().await.unwrap();
    let proxy = arena.proxy().await;
    let again = arena.operator_via_with(&proxy, &WITH_GROUPS).await;
    // Every new leader says again why a Service is not announced.
    writes_only(again, &proxy, &["leases", "events"]).await;
}

/// Every object is what it was, but for what a take-over adds to it.
fn nothing_else_changed(before: &Objects, after: &Objects, fate: &Fate) {
    let changed = |object: &DynamicObject| {
        after.get(&identity(object)).map(|now| (now.uid(), now.resource_version()))
            != Some((object.uid(), object.resource_version()))
    };
    for object in before.values() {
        let (kind, key) = identity(object);
        if fate.gone.contains(&(kind.as_str(), key.as_str())) {
            continue;
        }
        let now = after.get(&(kind.clone(), key.clone()));
        let now = now.unwrap_or_else(|| panic!("{kind} {key} is gone"));
        assert_eq!(now.uid(), object.uid(), "{kind} {key}");
        match kind.as_str() {
            "KeepalivedGroup" => {
                assert_eq!(now.data["spec"], object.data["spec"], "{key}");
                assert_eq!(now.metadata.generation, object.metadata.generation, "{key}");
            }
            "Service" => {
                let balancer = |it: &DynamicObject| it.data["status"]["loadBalancer"].clone();
                assert_eq!(now.data["spec"], object.data["spec"], "{key}");
                assert_eq!(now.annotations(), object.annotations(), "{key}");
                assert_eq!(balancer(now), balancer(object), "{key}");
            }
            "DaemonSet" => is_rolled(object, now),
            "ConfigMap" => {
                let labels = object.labels().clone();
                assert_eq!(now.labels(), &labels, "{key}");
                is_owned(now, after);
            }
            "PodMonitor" => {
                assert_eq!(now.data["spec"], object.data["spec"], "{key}");
                assert_eq!(now.labels(), object.labels(), "{key}");
                is_owned(now, after);
            }
            "Role" | "RoleBinding" => {
                for field in ["rules", "roleRef", "subjects"] {
                    assert_eq!(now.data[field], object.data[field], "{kind} {key}");
                }
                is_owned(now, after);
            }
            _ => assert!(!changed(object), "{kind} {key}"),
        }
    }
}

/// Waits until a group has all its objects.
async fn is_complete(arena: &Arena, key: &str, monitored: bool) {
    let (namespace, name) = key.split_once('/').unwrap();
    let agent =
        ["serviceaccount", "role", "rolebinding"].map(|kind| format!("{kind}/{name}-agent"));
    let monitor = [
        format!("podmonitor/{name}"),
        format!("role/{name}-prometheus-k8s"),
        format!("rolebinding/{name}-prometheus-k8s"),
    ];
    let monitor = monitor.into_iter().filter(|_| monitored);
    let all: Vec<_> =
        [format!("daemonset/{name}")].into_iter().chain(agent).chain(monitor).collect();
    wait::until(format!("all objects of {key}"), LONG, async || {
        for object in &all {
            let get = ["get", object, "-n", namespace, "-o", "json"];
            let found = arena.plane().kubectl(&get).await.map_err(|error| error.to_string())?;
            let found: Value = serde_json::from_str(&found).map_err(|error| error.to_string())?;
            if found["metadata"]["labels"]["keepalivedGroup"] != name {
                return Err(format!("{object} is not the group's: {found}"));
            }
        }
        Ok(())
    })
    .await
    .unwrap();
    let prometheus = format!("{name}-prometheus-k8s");
    let role = arena.plane().kubectl(&["get", "-n", namespace, "role", &prometheus]).await;
    assert_eq!(role.is_ok(), monitored, "{key}");
}

/// The controller of an object is its group.
fn is_owned(object: &DynamicObject, all: &Objects) {
    let label = &object.labels()["keepalivedGroup"];
    let key = format!("{}/{label}", object.namespace().unwrap());
    let group = &all[&("KeepalivedGroup".to_owned(), key)];
    let [owner] = object.owner_references() else { panic!("{:?}", object.metadata) };
    assert_eq!((&owner.uid, owner.controller), (&group.uid().unwrap(), Some(true)));
}

/// Pods are replaced one by one, and a successor's pods are still those of the same `DaemonSet`.
fn is_rolled(before: &DynamicObject, now: &DynamicObject) {
    let name = now.name_any();
    let (old, new) = (&before.data["spec"], &now.data["spec"]);
    assert_eq!(new["selector"], old["selector"], "{name}");
    assert_eq!(new["updateStrategy"]["rollingUpdate"]["maxUnavailable"], 1, "{name}");
    assert_eq!(now.owner_references(), before.owner_references(), "{name}");
    let (old, new) = (&old["template"], &new["template"]);
    assert_eq!(new["metadata"], old["metadata"], "{name}");
    for field in ["nodeSelector", "priorityClassName", "tolerations", "hostNetwork"] {
        assert_eq!(new["spec"][field], old["spec"][field], "{name} {field}");
    }
    let containers = new["spec"]["containers"].as_array().unwrap();
    let names: Vec<_> = containers.iter().map(|container| &container["name"]).collect();
    assert_eq!(names, ["keepalived"], "{name}");
    let images = new["spec"]["initContainers"].as_array().into_iter().flatten().chain(containers);
    let images: Vec<_> = images.map(|container| container["image"].as_str().unwrap()).collect();
    assert!(images.contains(&"example.com/landfall:test"), "{images:?}");
    let own = old["spec"]["containers"][0]["image"].as_str().unwrap();
    assert_eq!(images.contains(&own), !own.contains("ose-keepalived-ipfailover"), "{images:?}");
}

/// No object has the password but the Secret and the file that had it before.
fn nothing_has_the_password(before: &Objects, after: &Objects) {
    for (identity, object) in after {
        let had = before.get(identity).map(|object| json!(object.data).to_string());
        let text = json!(object).to_string();
        for secret in [PASSWORD, ENCODED] {
            let had = had.as_ref().is_some_and(|had| had.contains(secret));
            assert!(had || !text.contains(secret), "{identity:?}");
        }
        if identity.0 == "ConfigMap" {
            assert!(
                !object.data["data"]["plan.json"].to_string().contains(PASSWORD),
                "{identity:?}"
            );
        }
    }
}

/// Each instance of a plan sends the adverts that the file says, as long as pods of the original may run.
fn goes_on_as_in(plan: &Plan, file: &str) {
    let file = conf::parse(file).unwrap();
    let found: BTreeMap<_, _> =
        conf::instances(&file).map(|instance| (instance.name.clone(), instance)).collect();
    for instance in &plan.instances {
        let (found, form) = (&found[&instance.name], &instance.form);
        assert_eq!(instance.change, None, "{}", instance.name);
        assert_eq!(Some(instance.router_id), found.router_id, "{}", instance.name);
        assert_eq!(form.advertised, found.advertised, "{}", instance.name);
        assert_eq!(form.advert_millis, found.advert_millis.unwrap_or(1000), "{}", instance.name);
        assert_eq!(
            form.transport == Transport::Unicast,
            !found.peers.is_empty(),
            "{}",
            instance.name
        );
        assert_eq!(form.password.is_some(), found.password.is_some(), "{}", instance.name);
        let version = if form.advertised[0].is_ipv4() { Version::V2 } else { Version::V3 };
        assert_eq!(form.version, version, "{}", instance.name);
    }
}

#[rstest]
// The file had an instance with router ID 0, which stops keepalived.
#[case::before_there_were_pods("02-services-no-pods", Fate { rewritten: &[FULL], ..Fate::default() })]
#[case::without_peers("03-pods-running-peers-empty", Fate::default())]
#[case::steady("04-steady", Fate { again: true, ..Fate::default() })]
#[case::with_gaps("05-after-churn", Fate::default())]
// The group could not be written at all, because two of its 257 addresses got no router ID.
#[case::without_a_free_router_id("06-exhausted-group", Fate {
    rewritten: &[MANY],
    idle: &[MANY],
    told: &[("media/flood", "NotApplied")],
    again: true,
    ..Fate::default()
})]
#[case::after_a_group_was_deleted("07-operator-stopped", Fate {
    gone: &[
        ("Role", "edge-vips/keepalivedgroup-many-prometheus-k8s"),
        ("RoleBinding", "edge-vips/keepalivedgroup-many-prometheus-k8s"),
    ],
    ..Fate::default()
})]
#[tokio::test(flavor = "multi_thread")]
async fn what_keepalived_operator_left_beside_prometheus(#[case] name: &str, #[case] fate: Fate) {
    taken_over(&arena(true).await, name, true, &fate).await;
}

// Two Services have the same address, and only the older one keeps it.
#[rstest]
#[case::two_groups("11-no-podmonitor-two-groups", Fate {
    rewritten: &[TWO],
    told: &[("apps/same-ip", "AddressConflict")],
    ..Fate::default()
})]
#[case::other_pods("13-pods-replaced", Fate {
    rewritten: &[TWO],
    told: &[("apps/same-ip", "AddressConflict")],
    ..Fate::default()
})]
#[case::rejected_by_the_api_server("14-boolean-node-selector", Fate {
    rewritten: &[TWO],
    idle: &[THREE],
    told: &[("apps/same-ip", "AddressConflict")],
    ..Fate::default()
})]
#[case::crashed("15-operator-crashed-malformed-annotation", Fate {
    freed: &[(ONE, "apps/a")],
    rewritten: &[ONE],
    idle: &[THREE],
    told: &[("apps/a", "Unparseable"), ("apps/bad", "Unparseable")],
    again: true,
    ..Fate::default()
})]
#[tokio::test(flavor = "multi_thread")]
async fn what_keepalived_operator_left_without_prometheus(#[case] name: &str, #[case] fate: Fate) {
    taken_over(&arena(false).await, name, false, &fate).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_whose_secret_was_missing_is_served_once_it_is_there() {
    let arena = arena(true).await;
    let recording = recording("01-groups-only-secret-missing");
    recording.replay(&arena.client).await.unwrap();
    let flags = [&["--leader-elect=false"], &WITH_GROUPS[..]].concat();
    let _operator = arena.operator_with(&flags).await;
    let [plain, full] =
        ["edge-vips/keepalivedgroup-plain", FULL].map(|key| Group::of(&arena.client, key));
    plain.says("ReconcileError", "False", "LastReconcileCycleSucceded", "").await;
    full.says("ReconcileError", "True", "LastReconcileCycleFailed", "Secret").await;
    assert_eq!(plain.file().await, files(&recording)["edge-vips/keepalivedgroup-plain"]);
    let all = recorded(&arena, "configmaps,daemonsets").await;
    let of_full = all.into_keys().filter(|(_, key)| key == FULL).collect::<Vec<_>>();
    assert_eq!(of_full, [], "nothing is made without the password");
    let secret = ["-n", "edge-vips", "create", "secret", "generic", "vrrp-auth"];
    arena.kubectl(&[&secret[..], &["--from-literal=password=correct1"]].concat()).await;
    full.says("ReconcileError", "False", "LastReconcileCycleSucceded", "").await;
    is_complete(&arena, FULL, true).await;
}
