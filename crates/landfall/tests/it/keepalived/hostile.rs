//! A tenant who writes whatever it likes on its own Services harms nobody else, and nothing that it wrote gets
//! anywhere.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use landfall_testkit::Operator;

use super::*;
use crate::stage::{Tenant, tenant_of_groups};

const LINES: &str = "keepalived-operator.redhat-cop.io/verbatimconfig";
/// In all texts, so that they can be found wherever they get to.
const MARK: &str = "evil7f3a";

/// The group of an administrator, with two good Services of other tenants, and a tenant that is not good.
struct Victims {
    evil: Tenant,
    /// The first three numbers of all addresses.
    net: &'static str,
    group: Group,
    operator: &'static Operator,
    good: Vec<Instance>,
}

/// All tests of this file use nodes and groups of their own.
async fn victims(name: &str, net: &'static str, spec: Value) -> Victims {
    let infra = format!("{name}-infra");
    let (tenant, operator) = tenant_of_groups(&infra).await;
    let labels = json!({ "example.com/ground": name });
    for index in 0..2 {
        let address = format!("{net}.{}", index + 1);
        make_node(&tenant.client, &format!("{name}-{index}"), &labels, &address).await;
    }
    let mut all = json!({ "nodeSelector": labels });
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let group = Group::make(&tenant.client, &format!("{infra}/edge"), all).await;
    let (good, _) = tenant_of_groups(&format!("{name}-good")).await;
    let key = format!("{infra}/edge");
    let [first, second, third] = [101, 102, 103].map(|last| format!("{net}.{last}"));
    good.create(external("first", &key, &[&first])).await;
    good.create(external("second", &key, &[&second, &third])).await;
    let names = ["first", "second"].map(|service| good.key(service));
    group.serves(&[(&names[0], &[&first]), (&names[1], &[&second, &third])]).await;
    // News of nodes and of Services come in any order.
    let plan =
        group.plans("both nodes", |plan| plan.nodes.len() == 2 && served(plan).len() == 2).await;
    let (evil, _) = tenant_of_groups(name).await;
    Victims { evil, net, group, operator, good: plan.instances }
}

impl Victims {
    fn address(&self, last: usize) -> String {
        format!("{}.{last}", self.net)
    }

    fn key(&self) -> String {
        format!("{}-infra/edge", self.evil.namespace)
    }

    /// The good Services are announced as they were.
    async fn good_ones_are_unmoved(&self) {
        let plan = self.group.plan().await.unwrap();
        let prefix = format!("{}/", self.evil.namespace);
        let others = plan.instances.into_iter().filter(|one| !one.name.starts_with(&prefix));
        assert_eq!(others.collect::<Vec<_>>(), self.good);
    }

    /// Nothing that was written for us has the mark but the Services themselves and the events about them.
    async fn nothing_has_the_mark(&self) {
        for resource in [
            ("ConfigMap", "", "v1"),
            ("DaemonSet", "apps", "v1"),
            ("KeepalivedGroup", "redhatcop.redhat.io", "v1alpha1"),
        ] {
            let (kind, group, version) = resource;
            let kind = kube::core::GroupVersionKind::gvk(group, version, kind);
            let resource = kube::core::ApiResource::from_gvk(&kind);
            let api: Api<DynamicObject> = Api::all_with(self.evil.client.clone(), &resource);
            for object in api.list(&kube::api::ListParams::default()).await.unwrap() {
                let text = json!(object).to_string();
                assert!(!text.contains(MARK), "{:?}: {text}", identity(&object));
            }
        }
        let log = std::fs::read_to_string(self.operator.process().log()).unwrap();
        let line = log.lines().find(|line| line.contains(MARK));
        assert_eq!(line, None);
    }
}

#[tokio::test]
async fn lines_and_group_names_of_a_tenant_get_nowhere() {
    let victims = victims("hostile-text", "198.51.100", json!({})).await;
    let (evil, key) = (&victims.evil, victims.key());
    let root = format!("/{MARK}");
    let lines = [
        json!({ "track_src_ip": format!("\n}}\nvrrp_instance {MARK} {{\n") }),
        json!({ "track_src_ip": format!("{{ {MARK} }}") }),
        json!({ "track_src_ip": format!("\"{MARK}\"") }),
        json!({ "track_src_ip": format!("# {MARK}") }),
        json!({ "track_src_ip": format!("! {MARK}") }),
        json!({ "notify": root }),
        json!({ "notify_master": root }),
        json!({ "notify_fifo_script": root }),
        json!({ "include": root }),
        json!({ "track_script": MARK }),
        json!({ "script_user": MARK }),
        json!({ (format!("track_src_ip\n}}\n{MARK} {{")): "" }),
        json!({ (format!("{MARK} {{")): "" }),
        json!({ (format!("notify {root}")): "" }),
        json!({ "virtual_ipaddress": format!("{{ {MARK} }}") }),
        json!({ "advert_int": format!("1 {MARK}") }),
        json!({ "@host": MARK }),
        json!({ "$VAR": MARK }),
    ];
    let texts = lines.iter().map(Value::to_string);
    let broken = [format!("{{{MARK}"), format!("[\"{MARK}\"]"), format!("{{\"{MARK}\": 1}}")];
    for (index, text) in texts.chain(broken).enumerate() {
        let name = format!("line-{index}");
        let address = victims.address(130 + index);
        evil.create(external(&name, &key, &[&address]).annotated(LINES, &text)).await;
        evil.tells(&name, "LineRefused", "").await;
        // What is refused is the line, not the Service.
        let instance = evil.key(&name);
        let plan = victims.group.plans(&name, |plan| served(plan).contains_key(&instance)).await;
        let found = plan.instances.iter().find(|one| one.name == instance).unwrap();
        assert_eq!(found.lines, Vec::<String>::new(), "{text}");
        victims.good_ones_are_unmoved().await;
    }
    let ids = victims.group.get().await.status.unwrap().router_ids;
    let names = [
        "malformed".to_owned(),
        format!("a/b/{MARK}"),
        String::new(),
        "/".to_owned(),
        format!("{MARK}\n/edge"),
        format!("{key}\n{MARK}"),
        format!("{key} {{"),
        format!("\"{key}\""),
        format!("{}/", key.split_once('/').unwrap().0),
    ];
    for (index, group) in names.iter().enumerate() {
        let name = format!("group-{index}");
        evil.create(external(&name, group, &[&victims.address(120)])).await;
        evil.tells(&name, "Unparseable", "").await;
    }
    evil.create(external("unknown", &format!("{MARK}/edge"), &[&victims.address(121)])).await;
    evil.tells("unknown", "GroupUnknown", "").await;
    assert_eq!(victims.group.get().await.status.unwrap().router_ids, ids);
    let plan = victims.group.plan().await.unwrap();
    let held: BTreeSet<IpAddr> = served(&plan).into_values().flatten().collect();
    assert!(!held.contains(&victims.address(120).parse().unwrap()));
    victims.good_ones_are_unmoved().await;
    victims.nothing_has_the_mark().await;
}

#[tokio::test]
async fn addresses_that_are_not_a_tenants_are_never_announced_for_it() {
    let selector = json!({ "matchExpressions": [
        { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["hostile-other"] },
    ] });
    let spec = json!({ "allowedRanges": ["203.0.113.0/24"], "allowedNamespaces": selector });
    let victims = victims("hostile-address", "203.0.113", spec).await;
    let (evil, key) = (&victims.evil, victims.key());
    for (name, address, reason, fragment) in [
        ("outside", "192.0.2.1", "RangeRefused", "192.0.2.1"),
        ("other-family", "2001:db8::1", "RangeRefused", "2001:db8::1"),
        ("node", "203.0.113.1", "RangeRefused", "node hostile-address-0"),
        ("taken", "203.0.113.101", "AddressConflict", "hostile-address-good/first"),
        ("taken-too", "203.0.113.103", "AddressConflict", "hostile-address-good/second"),
    ] {
        evil.create(external(name, &key, &[address])).await;
        evil.tells(name, reason, fragment).await;
        victims.good_ones_are_unmoved().await;
    }
    let (other, _) = tenant_of_groups("hostile-other").await;
    other.create(external("web", &key, &["203.0.113.110"])).await;
    other.tells("web", "NamespaceRefused", "hostile-other").await;
    // One good address among bad ones is announced, and only that.
    let mixed = external("mixed", &key, &["203.0.113.111", "192.0.2.1", "203.0.113.2"]);
    evil.create(mixed).await;
    let plan = victims
        .group
        .plans("mixed", |plan| served(plan).contains_key("hostile-address/mixed"))
        .await;
    assert_eq!(
        served(&plan)["hostile-address/mixed"],
        BTreeSet::from(["203.0.113.111".parse().unwrap()])
    );
    evil.tells("mixed", "RangeRefused", "192.0.2.1").await;
    victims.good_ones_are_unmoved().await;
    let ids = victims.group.get().await.status.unwrap().router_ids;
    assert_eq!(ids.len(), 3, "a refused Service uses up no router ID: {ids:?}");

    // The same without allowedRanges: the addresses of nodes and of the API server are refused.
    let open = Group::make(
        &evil.client,
        "hostile-address-infra/open",
        json!({
            "nodeSelector": { "example.com/ground": "hostile-address" }, "metricsPort": 9651,
        }),
    )
    .await;
    let open_key = "hostile-address-infra/open";
    let server = "203.0.113.250";
    let slices: Api<EndpointSlice> = Api::namespaced(evil.client.clone(), "default");
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": "kubernetes", "labels": { "kubernetes.io/service-name": "kubernetes" },
        },
        "endpoints": [{ "addresses": [server] }],
        "ports": [{ "name": "https", "port": 6443, "protocol": "TCP" }],
    });
    let slice = serde_json::from_value(slice).unwrap();
    slices.create(&PostParams::default(), &slice).await.unwrap();
    evil.create(external("apiserver", open_key, &[server])).await;
    evil.tells("apiserver", "RangeRefused", "API server").await;
    evil.create(external("open-node", open_key, &["203.0.113.2"])).await;
    evil.tells("open-node", "RangeRefused", "node hostile-address-1").await;
    // An address that another group announces is taken as well.
    evil.create(external("open-taken", open_key, &["203.0.113.102"])).await;
    evil.tells("open-taken", "AddressConflict", "hostile-address-good/second").await;
    evil.create(external("open-good", open_key, &["192.0.2.7"])).await;
    open.serves(&[("hostile-address/open-good", &["192.0.2.7"])]).await;
    victims.good_ones_are_unmoved().await;
    // Once its holder is gone, and its nodes have let it go, the next one has it.
    let (good, _) = tenant_of_groups("hostile-address-good").await;
    good.delete("second").await;
    victims
        .group
        .plans("no second", |plan| !served(plan).contains_key("hostile-address-good/second"))
        .await;
    victims.group.is_carried_out().await;
    open.plans("the next", |plan| served(plan).contains_key("hostile-address/open-taken")).await;
    victims
        .group
        .plans("the next", |plan| served(plan).contains_key("hostile-address/taken-too"))
        .await;
}
