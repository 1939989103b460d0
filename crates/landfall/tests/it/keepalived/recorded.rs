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

/// What a group announces: the addresses of each instance.
#[derive(Clone, Copy)]
enum Announces {
    /// Exactly these.
    These(&'static [(&'static str, &'static [&'static str])]),
    /// What every instance with a recorded router ID is named after.
    EachRecorded,
}

/// Everything that the group announces whose file had a router ID 0.
const OF_FULL: Announces = Announces::These(&[
    ("media/spread/192.168.131.150", &["192.168.131.150"]),
    ("media/spread/192.168.131.151", &["192.168.131.151"]),
    ("media/spread/192.168.131.152", &["192.168.131.152"]),
    ("media/stream-local", &["192.168.131.155"]),
    ("media/tuned", &["192.168.131.160"]),
    ("shop/api", &["192.168.131.131"]),
]);
/// What the group without the Service `same-ip` announces, whose address an older Service has.
const OF_TWO: Announces = Announces::These(&[
    ("apps/dual", &["10.20.30.120", "fd00:20::120"]),
    ("apps/host-only/10.20.30.121", &["10.20.30.121"]),
]);
/// What the group without the Service `a` announces, which names another one.
const OF_ONE: Announces = Announces::These(&[
    ("apps/b", &["10.20.30.101"]),
    ("apps/spread5/10.20.30.110", &["10.20.30.110"]),
    ("apps/spread5/10.20.30.111", &["10.20.30.111"]),
    ("apps/spread5/10.20.30.112", &["10.20.30.112"]),
    ("apps/spread5/10.20.30.113", &["10.20.30.113"]),
    ("apps/spread5/10.20.30.114", &["10.20.30.114"]),
]);

impl Announces {
    fn by(self, group: &DynamicObject) -> Served {
        match self {
            Self::These(all) => as_served(all),
            Self::EachRecorded => {
                let names = group.data["status"]["routerIDs"].as_object().unwrap().keys();
                names
                    .map(|name| {
                        let address = name.rsplit('/').next().unwrap().parse().unwrap();
                        (name.clone(), BTreeSet::from([address]))
                    })
                    .collect()
            }
        }
    }
}

/// The expected changes of a recorded cluster. Everything else stays as it is.
#[derive(Default)]
struct Fate {
    /// Names whose router IDs are free in the end, each with its group.
    freed: &'static [(&'static str, &'static str)],
    /// Groups whose file changes while pods of the original may read it, and what they announce then.
    rewritten: &'static [(&'static str, Announces)],
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
    for object in groups(&recording) {
        let (key, spec) = (identity(object).1, &object.data["spec"]);
        let plan = Group::of(&arena.client, &key).plan().await.unwrap();
        let rewritten = fate.rewritten.iter().find(|(group, _)| *group == key);
        if let Some((_, announces)) = rewritten {
            assert_eq!(served(&plan), announces.by(object), "{key}");
        }
        let from = spec["interfaceFromIP"].as_str().map(|text| text.parse().unwrap());
        assert_eq!(plan.interface_from, from, "{key}");
        let has_lines = !spec["verbatimConfig"].is_null();
        // What has no effect on the nodes is left out there.
        let lines = if has_lines { &["vrrp_garp_master_refresh 60"][..] } else { &[] };
        assert_eq!(plan.global_lines, lines, "{key}");
        for instance in &plan.instances {
            let is_tuned = instance.name == "media/tuned";
            let lines = if is_tuned { &["track_src_ip"][..] } else { &[] };
            assert_eq!(instance.lines, lines, "{}", instance.name);
            let form = instance.change.as_ref().map_or(&instance.form, |change| &change.before);
            assert_eq!(form.advert_millis, if is_tuned { 2000 } else { 1000 }, "{}", instance.name);
        }
    }
    for (key, file) in files(&recording) {
        let group = Group::of(&arena.client, &key);
        let plan = group.plan().await.unwrap();
        if fate.rewritten.iter().any(|(group, _)| *group == key) {
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
        // No pod of the original reads it any more, so that no line about its scripts is needed.
        let lines = ["vrrp_iptables my-keepalived", "vrrp_garp_master_refresh 60"];
        let has_lines = !spec["verbatimConfig"].is_null();
        assert!(lines.iter().all(|line| file.contains(line) == has_lines), "{key}: {file}");
        assert_eq!(
            file.contains("track_src_ip"),
            served(&plan).contains_key("media/tuned"),
            "{key}"
        );
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
#[case::before_there_were_pods("02-services-no-pods", Fate { rewritten: &[(FULL, OF_FULL)], ..Fate::default() })]
#[case::without_peers("03-pods-running-peers-empty", Fate::default())]
#[case::steady("04-steady", Fate { again: true, ..Fate::default() })]
#[case::with_gaps("05-after-churn", Fate::default())]
// The group could not be written at all, because two of its 257 addresses got no router ID.
#[case::without_a_free_router_id("06-exhausted-group", Fate {
    rewritten: &[(MANY, Announces::EachRecorded)],
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
    rewritten: &[(TWO, OF_TWO)],
    told: &[("apps/same-ip", "AddressConflict")],
    ..Fate::default()
})]
#[case::other_pods("13-pods-replaced", Fate {
    rewritten: &[(TWO, OF_TWO)],
    told: &[("apps/same-ip", "AddressConflict")],
    ..Fate::default()
})]
#[case::rejected_by_the_api_server("14-boolean-node-selector", Fate {
    rewritten: &[(TWO, OF_TWO)],
    idle: &[THREE],
    told: &[("apps/same-ip", "AddressConflict")],
    ..Fate::default()
})]
#[case::crashed("15-operator-crashed-malformed-annotation", Fate {
    freed: &[(ONE, "apps/a")],
    rewritten: &[(ONE, OF_ONE)],
    idle: &[THREE],
    told: &[("apps/a", "Unparseable"), ("apps/bad", "Unparseable")],
    again: true,
    ..Fate::default()
})]
#[tokio::test(flavor = "multi_thread")]
async fn what_keepalived_operator_left_without_prometheus(#[case] name: &str, #[case] fate: Fate) {
    taken_over(&arena(false).await, name, false, &fate).await;
}

#[test]
fn the_file_of_a_group_says_the_same_however_it_was_rendered() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/keepalived-operator/conf");
    let all = |group: &str| -> Vec<Served> {
        let path = |index| format!("{folder}/12-rerender-{index}.lb-system.{group}.conf");
        (0..4).map(|index| served_by_file(&std::fs::read_to_string(path(index)).unwrap())).collect()
    };
    let a = as_served(&[("apps/a", &["10.20.30.100"])]);
    let same_ip = as_served(&[("apps/same-ip", &["10.20.30.100"])]);
    for (group, announces, more) in [("one", OF_ONE, a), ("two", OF_TWO, same_ip)] {
        let Announces::These(expected) = announces else { unreachable!("it lists them") };
        let expected: Served = as_served(expected).into_iter().chain(more).collect();
        assert_eq!(all(group), vec![expected; 4], "{group}");
    }
}

/// The value `true` was written as a boolean, and the API server refused the `DaemonSet`.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_the_api_server_rejected_announces_its_service_once_a_node_has_its_label() {
    let arena = arena(false).await;
    recording("14-boolean-node-selector").replay(&arena.client).await.unwrap();
    let flags = [&["--leader-elect=false"], &WITH_GROUPS[..]].concat();
    let _operator = arena.operator_with(&flags).await;
    let three = Group::of(&arena.client, THREE);
    three.says("Ready", "False", "NoNodes", "").await;
    arena.kubectl(&["label", "node", "node0", "vips=true", "--overwrite"]).await;
    let has_node = |plan: &Plan| plan.nodes.iter().map(|node| &*node.name).eq(["node0"]);
    let plan = three.is_carried_out_with("its node", has_node).await;
    three.says("Ready", "True", "Serving", "").await;
    assert_eq!(served(&plan), as_served(&[("apps/t", &["10.20.30.130"])]));
    let set = arena.kubectl(&["get", "daemonset", "three", "-n", "lb-system", "-o", "json"]).await;
    let set: Value = serde_json::from_str(&set).unwrap();
    assert_eq!(set["spec"]["template"]["spec"]["nodeSelector"], json!({ "vips": "true" }));
}

/// The older Service of two with one address names no group any more.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_one_of_two_services_gave_up_is_announced_for_the_other_one_only() {
    let arena = arena(false).await;
    recording("15-operator-crashed-malformed-annotation").replay(&arena.client).await.unwrap();
    let flags = [&["--leader-elect=false"], &WITH_GROUPS[..]].concat();
    let _operator = arena.operator_with(&flags).await;
    let contested: IpAddr = "10.20.30.100".parse().unwrap();
    let mut having = Vec::new();
    for key in [ONE, TWO, THREE] {
        let group = Group::of(&arena.client, key);
        let plan = group.plans("its generation", |plan| plan.generation > 0).await;
        let with = served(&plan).into_iter().filter(|(_, all)| all.contains(&contested));
        having.extend(with.map(|(instance, _)| (key, instance)));
    }
    assert_eq!(having, [(TWO, "apps/same-ip".to_owned())]);
    let two = Group::of(&arena.client, TWO);
    two.serves(&[
        ("apps/dual", &["10.20.30.120", "fd00:20::120"]),
        ("apps/host-only/10.20.30.121", &["10.20.30.121"]),
        ("apps/same-ip", &["10.20.30.100"]),
    ])
    .await;
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
