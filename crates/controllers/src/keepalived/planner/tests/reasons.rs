//! What a Service is told in full, for each thing that can be in its way.

use landfall_api::announce::NotAnnounced;

use super::*;

/// What `shop/web` at 192.0.2.50 is told once everything has settled.
fn told(arrange: impl FnOnce(&mut Rig)) -> String {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.balancer("older", &["192.0.2.40"]);
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    assert!(rig.announced("web").starts_with("true Announced"));
    arrange(&mut rig);
    rig.settle();
    let told = rig.announced("web");
    let (_, told) = told.split_once("false ").unwrap_or_else(|| panic!("{told}"));
    // What the condition says is what the event says.
    let event = format!("web {told}");
    assert!(rig.events.contains(&event), "{event}: {:?}", rig.events);
    told.to_owned()
}

/// Lets all agents report the same state of every instance, and then nothing more.
fn all_say(rig: &mut Rig, state: &str) {
    let plan = rig.plan();
    let report = |instance: &Instance| json!({ "name": instance.name, "state": state, "since": "2026-01-02T03:04:05Z" });
    let instances: Vec<_> = plan.instances.iter().map(report).collect();
    let nodes: Vec<_> = ["n1", "n2", "n3"]
        .map(|node| json!({ "node": node, "generation": plan.generation, "instances": instances }))
        .into();
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    rig.patch("keepalivedgroups", GROUP, &json!({ "status": { "nodes": nodes } }));
}

/// A thing in the way, and what is said of it.
type Case = (fn(&mut Rig), &'static str);

const CASES: [Case; 15] = [
    (
        |rig| rig.annotate("web", &json!({ "keepalivedgroup": "infra/none" })),
        "GroupUnknown: there is no KeepalivedGroup infra/none. Name a group that exists, or create it.",
    ),
    (
        |rig| rig.edit(&json!({ "allowedNamespaces": { "matchLabels": { "team": "net" } } })),
        "NamespaceRefused: infra/edge does not announce Services of namespace shop. Let the group's \
         `allowedNamespaces` match the namespace, or name another group.",
    ),
    (
        |rig| rig.edit(&json!({ "allowedRanges": ["198.51.100.0/24"] })),
        "RangeRefused: 192.0.2.50 is outside the allowedRanges of infra/edge. Add the address to the group's \
         `allowedRanges`, or give the Service another address.",
    ),
    (
        |rig| rig.shows("web", &["192.0.2.2"]),
        "RangeRefused: 192.0.2.2 is an address of node n2. Give the Service another address.",
    ),
    (
        |rig| {
            let version = Version(rig.next_version());
            let server = vec!["192.0.2.50".parse().unwrap()];
            let slice = "kubernetes".to_owned();
            rig.hear(News::ApiServers(Watched::Present(slice, version, server)));
        },
        "RangeRefused: 192.0.2.50 is an address of the API server. Give the Service another address.",
    ),
    (
        |rig| rig.shows("web", &["169.254.112.1"]),
        "RangeRefused: 169.254.112.1 is a link-local address, which no group announces. Give the Service another \
         address.",
    ),
    (
        |rig| rig.shows("web", &["192.0.2.40"]),
        "AddressConflict: 192.0.2.40 is held by Service shop/older. Give the Service another address, or delete the \
         other Service.",
    ),
    (
        |rig| rig.annotate("web", &json!({ "keepalivedgroup": "a/b/c" })),
        "Unparseable: keepalived-operator.redhat-cop.io/keepalivedgroup: \"a/b/c\" is not the namespace/name of a \
         KeepalivedGroup. Write the group's namespace, a slash and its name, or remove the annotation.",
    ),
    (
        |rig| {
            rig.edit(&json!({ "interface": "{" }));
            rig.shows("web", &["192.0.2.51"]);
        },
        "NotApplied: infra/edge cannot be used as it is written. Correct the group as its `Ready` condition says.",
    ),
    (
        |rig| rig.edit(&json!({ "nodeSelector": { "edge": "no" } })),
        "NotApplied: infra/edge has no node. Let the group's `nodeSelector` match nodes on which its pods can run.",
    ),
    (
        |rig| {
            let ids = json!({ "first": 1, "last": 8 });
            rig.edit(&json!({ "vrrp": { "routerIDs": ids } }));
            let local = json!({ "spec": { "externalTrafficPolicy": "Local" } });
            rig.patch("services", "shop/web", &local);
        },
        "NotApplied: infra/edge has no router ID left. Give the group the field `vrrp` or more router IDs \
         (`vrrp.routerIDs`, `blacklistRouterIDs`), or remove one of its Services.",
    ),
    (
        |rig| {
            rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
            rig.shows("web", &["192.0.2.51"]);
        },
        "NotApplied: no node of infra/edge runs generation 2 yet. Wait a moment; if nothing changes, look at `nodes` \
         in the group's status.",
    ),
    (
        |rig| all_say(rig, "BACKUP"),
        "NoHolder: no node of infra/edge holds 192.0.2.50. Look at `nodes` in the group's status.",
    ),
    (
        |rig| {
            let local = json!({ "spec": { "externalTrafficPolicy": "Local" } });
            rig.patch("services", "shop/web", &local);
        },
        "NoHolder: no node of infra/edge has a ready pod of the Service. Let a pod of the Service be ready on a node \
         of the group, or set `externalTrafficPolicy: Cluster`.",
    ),
    (
        |rig| {
            let instance = rig.status(GROUP)["addresses"].as_array().unwrap().clone();
            let web = instance.iter().find(|one| one["address"] == "192.0.2.50").unwrap().clone();
            let holder = web["node"].as_str().unwrap().to_owned();
            rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
            rig.node_fails(&holder);
        },
        "HolderSilent: node {holder}, which held 192.0.2.50, is not ready. Bring the node back, or look at the other \
         nodes in the group's status.",
    ),
];

#[test]
fn a_service_is_told_what_is_in_its_way_and_what_to_do() {
    let mut reasons = BTreeSet::new();
    for (arrange, expected) in CASES {
        let told = told(arrange);
        let named = told.split([' ', ',']).find(|word| ["n1", "n2", "n3"].contains(word));
        let expected = expected.replace("{holder}", named.unwrap_or_default());
        assert_eq!(told, expected);
        reasons.insert(told.split(':').next().unwrap().to_owned());
    }
    let all = NotAnnounced::ALL.map(|reason| reason.as_str().to_owned());
    assert_eq!(reasons, all.into());
}

#[test]
fn a_group_with_short_adverts_says_how_many_addresses_it_carries() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": { "advertInterval": "50ms", "slots": 1 } }));
    let addresses: Vec<_> =
        (0..1000_u32).map(|n| IpAddr::from((0xc612_0000 + n).to_be_bytes())).collect();
    let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    rig.balancer("many", &texts.iter().map(String::as_str).collect::<Vec<_>>());
    rig.settle();
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    assert_eq!(rig.plan().instances[0].served().count(), 1000);
    assert_eq!(
        rig.announced("web"),
        "false NotApplied: infra/edge carries 1000 addresses, as many as its advertInterval allows. Set \
         `vrrp.advertInterval` of the group to 100ms or more, or name another group."
    );
    rig.edit(&json!({ "vrrp": { "advertInterval": "100ms" } }));
    rig.settle();
    assert!(rig.announced("web").starts_with("true Announced"), "{}", rig.announced("web"));
}
