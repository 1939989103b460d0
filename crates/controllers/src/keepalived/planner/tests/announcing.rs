//! What Services are told about being announced, and claims about the nodes that carry their addresses.

use super::*;

/// A group of slots that announces `shop/web` at this address.
fn serving() -> Rig {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.settle();
    rig
}

fn holder(rig: &Rig) -> String {
    let status = rig.status(GROUP);
    status["addresses"][0]["node"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_service_is_announced_once_a_node_holds_its_address_in_a_plan_that_has_it() {
    let mut rig = Rig::new();
    rig.group(&json!({ "vrrp": {} }));
    rig.silent.extend(["n1", "n2", "n3"].map(str::to_owned));
    rig.balancer("web", &["192.0.2.50"]);
    rig.step();
    assert_eq!(rig.announced("web"), "as it is", "the plan may be applied in a moment");
    rig.settle();
    let told = rig.announced("web");
    assert!(told.starts_with("false NotApplied: no node of infra/edge runs generation"), "{told}");
    assert_eq!(rig.events.len(), 1, "{:?}", rig.events);

    rig.silent.clear();
    rig.settle();
    let node = holder(&rig);
    let announced = format!("true Announced: {node} since 2026-01-02T03:04:05Z");
    assert_eq!(rig.announced("web"), announced);
    rig.shows("web", &[]);
    rig.settle();
    assert_eq!(rig.announced("web"), "none", "it has no address");
    rig.shows("web", &["192.0.2.50"]);
    rig.settle();
    assert_eq!(rig.announced("web"), announced);
    rig.remove("services", "shop/web");
    rig.settle();
    assert_eq!(rig.announced("web"), "none");
}

#[test]
fn a_move_is_told_once_it_has_settled_and_a_loss_once_it_lasts() {
    let mut rig = serving();
    let first = holder(&rig);
    let before = rig.announced("web");
    rig.node_fails(&first);
    rig.step();
    assert_eq!(rig.announced("web"), before, "it may be a moment");
    rig.agents_report();
    rig.step();
    rig.uptime += SECOND;
    rig.settle();
    let second = holder(&rig);
    assert_ne!(second, first);
    assert!(rig.announced("web").starts_with(&format!("true Announced: {second} since")));
    let event = format!("edge Moved: {second} holds 192.0.2.50, after {first}");
    assert!(rig.events.contains(&event), "{:?}", rig.events);
    // The last node dies, and nobody is left to report anything.
    for node in ["n1", "n2", "n3"] {
        rig.node_fails(node);
    }
    rig.settle();
    let told = rig.announced("web");
    assert!(told.starts_with(&format!("false HolderSilent: node {second}, which held")), "{told}");
}

#[test]
fn a_refusal_is_told_at_once() {
    let mut rig = serving();
    rig.edit(&json!({ "allowedRanges": ["198.51.100.0/24"] }));
    rig.step();
    assert!(rig.announced("web").starts_with("false RangeRefused: 192.0.2.50 is outside"));
    rig.edit(&json!({ "allowedRanges": null }));
    rig.settle();
    assert!(rig.announced("web").starts_with("true Announced"));
    rig.annotate("web", &json!({ "keepalivedgroup": "infra/none" }));
    rig.settle();
    assert!(rig.announced("web").starts_with("false GroupUnknown: there is no"));
    rig.annotate("web", &json!({ "keepalivedgroup": "a/b/c" }));
    rig.settle();
    assert!(rig.announced("web").starts_with("false Unparseable"));
    rig.annotate("web", &json!({ "keepalivedgroup": null }));
    rig.settle();
    assert_eq!(rig.announced("web"), "none");
    let reasons: Vec<_> = rig.events.iter().filter_map(|event| event.split(':').next()).collect();
    assert_eq!(reasons, ["web RangeRefused", "web GroupUnknown", "web Unparseable"]);
}

#[test]
fn a_group_that_cannot_be_used_keeps_announcing_what_it_announced() {
    let mut rig = serving();
    let before = rig.announced("web");
    rig.edit(&json!({ "vrrp": { "advertInterval": "nonsense" } }));
    rig.balancer("mail", &["192.0.2.51"]);
    rig.settle();
    assert_eq!(rig.announced("web"), before);
    assert!(rig.announced("mail").starts_with("false NotApplied: infra/edge cannot be used"));
}

#[test]
fn a_new_leader_says_the_same_and_sends_no_event_about_what_services_say_already() {
    let mut rig = serving();
    rig.edit(&json!({ "allowedRanges": ["198.51.100.0/24"] }));
    rig.settle();
    let told = rig.announced("web");
    let condition = json!({
        "type": "landfall.dev/Announced",
        "status": "False",
        "reason": "RangeRefused",
        "message": told.split_once(": ").unwrap().1,
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    });
    rig.patch("services", "shop/web", &json!({ "status": { "conditions": [condition] } }));
    rig.events.clear();
    let now = rig.now();
    rig.planner.reconsider_all(rig.shared.lend(now));
    assert_eq!(rig.announced("web"), "as it is");
    rig.settle();
    assert_eq!((rig.announced("web"), rig.events.len()), (told, 0));
}

#[test]
fn a_password_that_is_not_known_yet_takes_no_condition_away() {
    let mut rig = Rig::new();
    rig.group(&json!({ "passwordAuth": { "secretRef": { "name": "vrrp" } } }));
    rig.balancer("web", &["192.0.2.50"]);
    rig.plan_once();
    assert_eq!(rig.announced("web"), "as it is");
}

#[test]
fn traffic_that_stays_on_its_node_goes_only_to_nodes_with_a_ready_endpoint() {
    let external = ["192.0.2.50"];
    for (vrrp, spec) in [
        (Value::Null, json!({ "type": "LoadBalancer" })),
        (json!({}), json!({ "type": "LoadBalancer" })),
        // No health check node port is given to these, and none is needed.
        (Value::Null, json!({ "type": "NodePort", "externalIPs": external })),
        (json!({}), json!({ "type": "NodePort", "externalIPs": external })),
        (Value::Null, json!({ "type": "ClusterIP", "externalIPs": external })),
        (json!({}), json!({ "type": "ClusterIP", "externalIPs": external })),
    ] {
        let case = format!("{vrrp} {spec}");
        let mut rig = Rig::new();
        rig.group(&json!({ "vrrp": vrrp }));
        let is_balancer = spec["type"] == "LoadBalancer";
        rig.balancer("web", if is_balancer { &external } else { &[] });
        rig.patch("services", "shop/web", &json!({ "spec": spec }));
        rig.balancer("mail", &["192.0.2.51"]);
        let local = json!({ "spec": { "externalTrafficPolicy": "Local" } });
        rig.patch("services", "shop/web", &local);
        rig.settle();
        let told = rig.announced("web");
        assert!(told.starts_with("false NoHolder: no node of infra/edge has a"), "{case}: {told}");
        for (nodes, expected) in [(&["n2"][..], "n2"), (&["n3", "n9"], "n3")] {
            rig.endpoints("web", nodes);
            rig.settle();
            let told = rig.announced("web");
            let expected = format!("true Announced: {expected} since");
            assert!(told.starts_with(&expected), "{case}: {told}");
        }
        rig.endpoints("web", &[]);
        rig.settle();
        assert!(rig.announced("web").starts_with("false NoHolder"), "{case}");
        assert!(rig.announced("mail").starts_with("true Announced"), "{case}");
        rig.forget_calls();
        rig.endpoints("mail", &["n1"]);
        rig.settle();
        assert_eq!(rig.calls, [""; 0], "{case}: its traffic may go on to other nodes");
    }
}

#[test]
fn the_ledger_learns_which_node_carries_an_address() {
    let mut rig = serving();
    rig.claim("192.0.2.50", "LoadBalancer", "Service", "web");
    rig.settle();
    let placed = |rig: &mut Rig| {
        let now = rig.now();
        let mut out = Out::default();
        crate::ledger::Keeper.plan(rig.shared.lend(now), &mut out);
        out.effects.iter().map(|write| format!("{write:?}")).collect::<Vec<_>>()
    };
    let writes = placed(&mut rig);
    let node = holder(&rig);
    assert_eq!(writes.len(), 1);
    assert!(writes[0].contains("Place") && writes[0].contains(&format!("Some(\"{node}\")")));
}
