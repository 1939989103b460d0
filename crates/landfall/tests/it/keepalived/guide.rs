//! The guide from keepalived-operator, walked from its recorded state to Landfall and back.

use super::recorded::{arena, files, groups, recording};
use super::*;
use crate::guide::{Guide, walk};

/// As its manifests make it; the recording has no Deployments.
const ORIGINAL: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: keepalived-operator-controller-manager, namespace: keepalived-operator}
spec:
  replicas: 1
  selector: {matchLabels: {operator: keepalived-operator}}
  template:
    metadata: {labels: {operator: keepalived-operator}}
    spec: {containers: [{name: manager, image: example.com/keepalived-operator}]}
";

async fn walked(arena: &Arena, section: &Guide) -> String {
    let mut seen = String::new();
    for line in section.commands() {
        seen.push_str(&walk(arena, line).await);
    }
    seen
}

/// The replicas of both operators.
async fn replicas(arena: &Arena) -> [String; 2] {
    let mut found = Vec::new();
    for (namespace, name) in [
        ("keepalived-operator", "keepalived-operator-controller-manager"),
        ("landfall-system", "landfall-operator"),
    ] {
        let path = "jsonpath={.spec.replicas}";
        found.push(arena.kubectl(&["-n", namespace, "get", "deployment", name, "-o", path]).await);
    }
    found.try_into().unwrap()
}

/// Every address that the group serves.
fn addresses(plan: &Plan) -> BTreeSet<IpAddr> {
    served(plan).into_values().flatten().collect()
}

/// Whether each of these addresses is listed with a node, and with an instance that is not named after the group. One
/// Service has its traffic stay on its node, and no pods.
fn is_back(listed: &str, all: &BTreeSet<IpAddr>) -> bool {
    let rows: Vec<Vec<&str>> = listed.lines().map(|row| row.split(' ').collect()).collect();
    let is_own = |row: &Vec<&str>| match row[..] {
        [_, "shop/np-local", ""] => true,
        [_, instance, node] => !node.is_empty() && !instance.starts_with("keepalivedgroup-plain/"),
        _ => false,
    };
    let listed = rows.iter().filter_map(|row| row.first()?.parse().ok());
    rows.iter().all(is_own) && listed.collect::<BTreeSet<IpAddr>>() == *all
}

/// Takes `vrrp` off the group as the guide says, and then waits as it says.
async fn leaves_its_slots(arena: &Arena, plain: &Group, layout: &str, look: &str) {
    let later = "192.168.131.189".parse().unwrap();
    let slots =
        plain.is_carried_out_with("one Service less", |plan| !addresses(plan).contains(&later));
    let all = addresses(&slots.await);
    assert!(!is_back(&walk(arena, look).await, &all), "it is in slots");
    walk(arena, layout).await;
    let gone =
        |plan: &Plan| !plan.instances.iter().any(|one| one.form.anchor) && addresses(plan) == all;
    plain.is_carried_out_with("no slots", gone).await;
    wait::until("what the guide waits for", LONG, async || {
        let seen = walk(arena, look).await;
        if is_back(&seen, &all) { Ok(()) } else { Err(seen) }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_leads_from_the_original_to_ours_and_back() {
    let arena = arena(true).await;
    let recording = recording("04-steady");
    recording.replay(&arena.client).await.unwrap();
    arena.apply(ORIGINAL).await;
    let guide = Guide::read("from-keepalived-operator.md");
    let section = |heading: &str| guide.section(heading);

    let seen = walked(&arena, &section("1. Look at what you have")).await;
    for word in ["keepalivedgroup-full", "shop/web: [\"192.168.131.130\"]", "\"shop/multi\":2"] {
        assert!(seen.contains(word), "{word}: {seen}");
    }
    walked(&arena, &section("2. Stop the original")).await;
    walked(&arena, &section("3. Start Landfall")).await;
    let [original, ours] = replicas(&arena).await;
    assert_eq!(original, "0");
    assert_ne!(ours, "0");
    // There are no nodes for the operator's own pod: it runs as its Deployment says.
    let env = "jsonpath={.spec.template.spec.containers[0].env[?(@.name==\"LANDFALL_AGENT_IMAGE\")].value}";
    let get = ["-n", "landfall-system", "get", "deployment", "landfall-operator", "-o", env];
    let image = arena.kubectl(&get).await;
    let flag = format!("--agent-image={image}");
    let operator = arena.operator_with(&["--leader-elect=false", &flag]).await;
    let [plain, full] = ["plain", "full"]
        .map(|name| Group::of(&arena.client, &format!("edge-vips/keepalivedgroup-{name}")));
    for group in [&plain, &full] {
        group.says("Ready", "False", "NoAgents", "DaemonSet edge-vips/keepalivedgroup-").await;
        let key = format!("edge-vips/{}", group.name);
        assert_eq!(group.file().await, files(&recording)[&key]);
        let carried = group.is_carried_out().await;
        group.says("Ready", "True", "Serving", "announced from 3 nodes").await;
        assert_eq!(served(&carried), served_by_file(&files(&recording)[&key]));
    }
    let seen = walked(&arena, &section("4. Watch the pods being replaced")).await;
    for word in ["worker-1", "worker-2", "worker-3"] {
        assert!(seen.contains(word), "{word}: {seen}");
    }
    let set = ["-n", "edge-vips", "get", "daemonset", "keepalivedgroup-plain", "-o", "yaml"];
    let set = arena.kubectl(&set).await;
    assert!(set.contains(&image) && set.contains("maxUnavailable: 1"), "{set}");
    let seen = walked(&arena, &section("5. Look at it")).await;
    for word in ["192.168.131.130 shop/web 1 worker-", "announced from 3 nodes"] {
        assert!(seen.contains(word), "{word}: {seen}");
    }

    // Slots, with the same addresses.
    let before = plain.plan().await.unwrap();
    walked(&arena, &section("6. Move a group to the layout of slots")).await;
    plain.plans("slots", |plan| plan.instances.iter().any(|one| one.form.anchor)).await;
    let moved = wait::until("the addresses in slots", LONG, async || {
        let plan = plain.is_carried_out().await;
        if addresses(&plan) == addresses(&before) { Ok(plan) } else { Err(format!("{plan:?}")) }
    });
    let moved = moved.await.unwrap();
    assert!(moved.instances.iter().any(|one| one.name == "keepalivedgroup-plain/0"));

    let pool = section("7. From externalIPs to a pool");
    for block in pool.blocks("yaml") {
        arena.apply(block).await;
    }
    let commands = pool.commands();
    let [make, shown, remove] = &commands[..] else { panic!("{commands:?}") };
    let web = "192.168.131.130".parse().unwrap();
    for line in [make, shown, remove] {
        walk(&arena, line).await;
        assert!(addresses(&plain.plan().await.unwrap()).contains(&web), "{line}");
    }
    let shop = arena.tenant("shop").await;
    shop.shows("web", &["192.168.131.130"]).await;
    shop.says("web", "True", "Allocated", "").await;
    // It is still announced now that neither the field nor the annotation says so.
    shop.create(external("after", "edge-vips/keepalivedgroup-plain", &["192.168.131.189"])).await;
    plain
        .plans("a later Service", |plan| {
            addresses(plan).contains(&"192.168.131.189".parse().unwrap())
        })
        .await;
    assert!(addresses(&plain.plan().await.unwrap()).contains(&web));
    shop.delete("after").await;

    // Back: every Service of the group has a router ID of its own before the original starts.
    let back =
        section("The way back").commands().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let [layout, look, stop, start, tidy] = &back[..] else { panic!("{back:?}") };
    leaves_its_slots(&arena, &plain, layout, look).await;
    let ids = plain.get().await.status.unwrap().router_ids;
    for group in groups(&recording).iter().filter(|group| group.name_any() == plain.name) {
        for name in group.data["status"]["routerIDs"].as_object().unwrap().keys() {
            // It is announced by its pool now, under the same name.
            assert!(ids.contains_key(name), "{name}: {ids:?}");
        }
    }
    for line in [stop, start] {
        walk(&arena, line).await;
    }
    assert_eq!(replicas(&arena).await, ["1", "0"]);
    operator.terminate().await.unwrap();
    walk(&arena, tidy).await;
    for kind in ["serviceaccount", "role", "rolebinding"] {
        is_gone(&arena, kind, "edge-vips/keepalivedgroup-plain-agent").await;
    }
    let left = recorded_children(&arena).await;
    assert_eq!(left.len(), 10, "{left:?}");
    for (namespace, name) in [
        ("keepalived-operator", "keepalived-operator-controller-manager"),
        ("landfall-system", "landfall-operator"),
    ] {
        arena.kubectl(&["-n", namespace, "delete", "deployment", name]).await;
    }
}

/// The objects that the original finds when it starts again.
async fn recorded_children(arena: &Arena) -> Vec<(String, String)> {
    let kinds = "configmaps,daemonsets,podmonitors,roles,rolebindings";
    let all = objects(arena, kinds).await.into_keys();
    all.filter(|(_, key)| key.starts_with("edge-vips/keepalivedgroup-")).collect()
}
