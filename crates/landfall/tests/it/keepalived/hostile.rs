//! A tenant who writes whatever it likes on its own Services harms nobody else, and nothing that it wrote gets
//! anywhere.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use landfall_testkit::Operator;
use landfall_testkit::builders::segment;

use super::*;
use crate::stage::{ArenaSlot, Tenant, WITH_GROUPS, arena_of_groups, tenant_of_groups};

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
        self.no_object_has_the_mark().await;
        let log = std::fs::read_to_string(self.operator.process().log()).unwrap();
        let line = log.lines().find(|line| line.contains(MARK));
        assert_eq!(line, None);
    }

    async fn no_object_has_the_mark(&self) {
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
    // The event names the keyword of the line, as far as it is one word.
    let texts = lines.iter().map(|line| {
        let key = line.as_object().unwrap().keys().next().unwrap();
        (line.to_string(), key.split([' ', '\n']).next().unwrap().to_owned())
    });
    let broken = [format!("{{{MARK}"), format!("[\"{MARK}\"]"), format!("{{\"{MARK}\": 1}}")];
    let broken = broken.map(|text| (text, "is not a JSON object with texts as values".to_owned()));
    for (index, (text, fragment)) in texts.chain(broken).enumerate() {
        let name = format!("line-{index}");
        let address = victims.address(130 + index);
        evil.create(external(&name, &key, &[&address]).annotated(LINES, &text)).await;
        evil.tells(&name, "LineRefused", &fragment).await;
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
        let fault = "is not the namespace/name of a KeepalivedGroup";
        evil.tells(&name, "Unparseable", fault).await;
    }
    evil.create(external("unknown", &format!("{MARK}/edge"), &[&victims.address(121)])).await;
    let fault = format!("there is no KeepalivedGroup {MARK}/edge");
    evil.tells("unknown", "GroupUnknown", &fault).await;
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

#[tokio::test]
async fn the_api_server_takes_no_ipv4_address_that_is_written_as_ipv6() {
    let (tenant, _) = tenant_of_groups("hostile-mapped").await;
    let group = "hostile-mapped/none";
    for spelling in ["::ffff:203.0.113.1", "::FFFF:cb00:7101", "0:0:0:0:0:ffff:203.0.113.1"] {
        let service = external("web", group, &[spelling]);
        let refused = tenant.services.create(&PostParams::default(), &service).await.unwrap_err();
        assert!(refused.to_string().contains("IPv4-mapped"), "{spelling}: {refused}");
    }
    tenant.create(load_balancer("web").annotated(GROUP_OF, group)).await;
    let ingress = json!({ "status": { "loadBalancer": { "ingress": [
        { "ip": "::ffff:203.0.113.1" },
    ] } } });
    let patch = Patch::Merge(ingress);
    let written = tenant.services.patch_status("web", &PatchParams::default(), &patch).await;
    let refused = written.unwrap_err();
    assert!(refused.to_string().contains("IPv4-mapped"), "{refused}");
}

#[tokio::test]
async fn in_a_group_of_slots_a_tenant_gets_what_its_pool_gave_it_and_nothing_else() {
    let (infra, _) = tenant_of_groups("hostile-slots-infra").await;
    let labels = json!({ "example.com/ground": "hostile-slots" });
    make_node(&infra.client, "hostile-slots-0", &labels, "10.249.0.1").await;
    let key = "hostile-slots-infra/edge";
    let spec = json!({ "nodeSelector": labels, "vrrp": { "slots": 2 } });
    let group = Group::make(&infra.client, key, spec).await;
    let mut pool = segment("hostile-slots", "198.18.49.0/24", &[]);
    pool.spec.announce = serde_json::from_value(json!({ "keepalivedGroup": key })).unwrap();
    infra.pool(pool).await;
    let (good, _) = tenant_of_groups("hostile-slots-good").await;
    good.create(load_balancer("web").asking("198.18.49.1")).await;
    let given = |address: &str| BTreeSet::from([address.parse::<IpAddr>().unwrap()]);
    let all = |plan: &Plan| -> BTreeSet<IpAddr> { served(plan).into_values().flatten().collect() };
    let before = group.plans("the good one", |plan| all(plan) == given("198.18.49.1")).await;

    let (evil, _) = tenant_of_groups("hostile-slots").await;
    let lines = json!({ "track_src_ip": format!("\n}}\n{MARK} {{"), "notify": format!("/{MARK}") });
    // Lines count only for the group that the Service itself names.
    let pooled = load_balancer("pooled").asking("198.18.49.2").annotated(LINES, &lines.to_string());
    evil.create(pooled.with_spec(|spec| {
        spec.external_ips = Some(["198.18.49.1", "10.249.0.1"].map(str::to_owned).into());
    }))
    .await;
    let both: BTreeSet<_> = given("198.18.49.1").into_iter().chain(given("198.18.49.2")).collect();
    group.plans("both", |plan| all(plan) == both).await;
    // The same Service, which names the group, and says what is wrong.
    let name = json!({ "metadata": { "annotations": { (GROUP_OF): key } } });
    evil.patch("pooled", name).await;
    evil.tells("pooled", "LineRefused", "track_src_ip takes no value, not").await;
    evil.tells("pooled", "RangeRefused", "10.249.0.1 is an address of node hostile-slots-0").await;
    evil.tells("pooled", "RangeRefused", "198.18.49.1 is held by").await;
    for (name, address, reason, fragment) in [
        ("node", "10.249.0.1", "RangeRefused", "node hostile-slots-0"),
        ("taken", "198.18.49.1", "AddressConflict", "198.18.49.1 is held by"),
    ] {
        evil.create(external(name, key, &[address])).await;
        evil.tells(name, reason, fragment).await;
    }
    let plan = group.plan().await.unwrap();
    assert_eq!(all(&plan), both);
    let slots = |plan: &Plan| -> Vec<_> {
        plan.instances.iter().map(|one| (one.name.clone(), one.form.clone())).collect()
    };
    assert_eq!(slots(&plan), slots(&before));
    assert!(plan.instances.iter().all(|one| one.lines.is_empty()), "{plan:?}");
    let text = [group.file().await, group.text("plan.json").await.unwrap()].concat();
    assert!(!text.contains(MARK), "{text}");
    group.is_carried_out().await;
    wait::until("the good one to stay announced", LONG, async || {
        let status = good.get("web").await.status;
        let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
        let said = condition::get(&conditions, "landfall.dev/Announced").cloned();
        said.filter(|said| said.status == "True").ok_or_else(|| format!("{conditions:?}"))
    })
    .await
    .unwrap();
}

/// What is logged of a text has no line breaks of its own, however much is logged.
#[tokio::test(flavor = "multi_thread")]
async fn no_line_of_the_log_is_a_tenants() {
    static SLOT: ArenaSlot = ArenaSlot::new();
    let arena = arena_of_groups(&SLOT).await;
    let flags = [&["--leader-elect=false", "--log-level=debug"], &WITH_GROUPS[..]].concat();
    let operator = arena.operator_with(&flags).await;
    let evil = arena.tenant("hostile-log").await;
    let labels = json!({ "example.com/ground": "hostile-log" });
    make_node(&arena.client, "hostile-log-0", &labels, "10.249.1.1").await;
    let key = evil.key("edge");
    let group = Group::make(&arena.client, &key, json!({ "nodeSelector": labels })).await;
    for (index, end) in ["\n", "\r", "\r\n", "\u{85}", "\u{2028}", "\u{b}"].iter().enumerate() {
        let text = format!("a{end}{MARK}{end}");
        let lines = json!({ "track_src_ip": text, (text.clone()): "" }).to_string();
        let address = format!("198.18.50.{index}");
        let service = external(&format!("line-{index}"), &key, &[&address]);
        evil.create(service.annotated(LINES, &lines)).await;
        evil.tells(&format!("line-{index}"), "LineRefused", "track_src_ip takes no value").await;
        evil.create(external(&format!("group-{index}"), &text, &[&address])).await;
        evil.tells(&format!("group-{index}"), "Unparseable", "is not the namespace/name").await;
    }
    group.plans("all lines", |plan| served(plan).len() == 6).await;
    let log = std::fs::read_to_string(operator.process().log()).unwrap();
    assert!(log.contains("DEBUG"), "{log}");
    // Everything that a reader or a program may take for the end of a line.
    let ends = ['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'];
    let theirs = log.split(ends).find(|line| line.trim_start().starts_with(MARK));
    assert_eq!(theirs, None);
}
