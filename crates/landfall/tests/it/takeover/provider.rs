//! Takes over from kube-vip's cloud provider, whose Services show their addresses in an annotation.

use super::*;

/// Recorded while it ran, after it was killed, and in each of its modes. Of several Services on one address
/// the first in the file has it: when replayed, it is the oldest.
#[rstest]
#[case::stuck_deletions("stuck-deletion", &[], Fate {
    go: &["web/auto-1", "web/dual", "shop/share-b", "tiny/pending"],
    foreign: &["web/other-class"],
    ..Fate::default()
})]
#[case::highest_first("ranges-desc", &[], Fate {
    wait: &[("web/hostname-req", "Unparseable"), ("web/auto-1", "TakenBy")],
    doubled: &["172.31.1.3"],
    ..Fate::default()
})]
#[case::an_empty_annotation("poisoned-empty-annotation", &[], Fate::default())]
#[case::of_a_class("class-mode", &["--kube-vip-class=kube-vip.io/kube-vip-class"], Fate {
    wait: &[("shop/pending", "Exhausted")],
    go: &["web/to-clusterip-deleted"],
    foreign: &["web/no-class", "web/other-class"],
    free: &["172.30.16.4", "172.30.16.5"],
    ..Fate::default()
})]
#[tokio::test(flavor = "multi_thread")]
async fn objects_of_kube_vips_provider_are_taken_over(
    #[case] file: &str,
    #[case] flags: &[&str],
    #[case] fate: Fate,
) {
    let arena = unharmed_arena().await;
    let recording = recording(&format!("kube-vip-cloud-provider/{file}.yaml"));
    let flags = [&["--leader-elect=false"], flags].concat();
    taken_over_by(&arena, &recording, &fate, async || arena.operator_with(&flags).await).await;
    let proxy = arena.proxy().await;
    let again = arena.operator_via_with(&proxy, flags.get(1..).unwrap_or_default()).await;
    // Every new leader reports doubled addresses and odd keys again.
    writes_only(again, &proxy, &["leases", "events"]).await;
    Map::new(&arena.client).goes().await;
}

/// As its own manifest makes it, on a cluster where `kubectl apply` was not used.
const PROVIDER: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: kube-vip-cloud-provider
  namespace: kube-system
spec:
  selector:
    matchLabels: {app: kube-vip, component: kube-vip-cloud-provider}
  template:
    metadata:
      labels: {app: kube-vip, component: kube-vip-cloud-provider}
    spec:
      serviceAccountName: kube-vip-cloud-controller
      containers:
      - name: kube-vip-cloud-provider
        image: kube-vip-cloud-provider
        command:
        - /kube-vip-cloud-provider
        - --leader-elect-resource-name=kube-vip-cloud-controller
";

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_leads_from_kube_vips_provider_to_ours() {
    let arena = unharmed_arena().await;
    let recording = recording("kube-vip-cloud-provider/default-mode.yaml");
    arena.apply(PROVIDER).await;
    let guide = Guide::read("from-kube-vip.md");
    let fate = Fate {
        wait: &[("tiny/pending", "Exhausted")],
        foreign: &["web/other-class"],
        free: &["172.30.0.6"],
        ..Fate::default()
    };
    let asked = |items: &[Service]| -> BTreeMap<String, Option<String>> {
        let balancers = items.iter().filter(|service| {
            service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer")
        });
        let field = |service: &Service| service.spec.as_ref()?.load_balancer_ip.clone();
        balancers.map(|service| (cluster::key(service), field(service))).collect()
    };
    let recorded = recording.clone().only(&["Service"]);
    let before: Vec<_> = recorded.items().iter().map(as_service).collect();
    let (install, check) =
        (guide.section("2. Put it in its place"), guide.section("3. Look at it"));
    taken_over_by(&arena, &recording, &fate, async || {
        for line in guide.section("1. Look at what you have").commands() {
            guide::walk(&arena, line).await;
        }
        for line in install.commands() {
            guide::walk(&arena, line).await;
        }
        let operator = deployed(&arena, arena.plane().url()).await;
        // Events have the lowest priority; an operator that ends does not send them.
        arena.tenant("kube-system").await.tells("kubevip", "PoolWarning", "").await;
        operator
    })
    .await;
    let mut seen = String::new();
    for line in check.commands() {
        seen.push_str(&guide::walk(&arena, line).await);
    }
    for word in ["172.30.1.1", "web/dual", "fd00:30::1", "tiny/pending: Exhausted", "PoolWarning"] {
        assert!(seen.contains(word), "{word}: {seen}");
    }
    let now = Snapshot::take(&arena.client).await.unwrap();
    is_in_the_ledger(&now);
    let finalizers: Vec<_> = now.services.iter().filter(|it| !it.finalizers().is_empty()).collect();
    assert!(finalizers.is_empty(), "{finalizers:?}");
    let after = asked(&now.services);
    for (key, field) in asked(&before) {
        assert_eq!(after.get(&key), Some(&field), "{key}");
    }
    // Every new leader reports the keys of the ConfigMap without effect again.
    let proxy = arena.proxy().await;
    writes_only(deployed(&arena, &proxy.url()).await, &proxy, &["leases", "events"]).await;
    for line in guide.section("5. Tidy up").commands() {
        guide::walk(&arena, line).await;
    }
    Map::new(&arena.client).goes().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_that_kube_vips_provider_put_on_one_address_are_told_and_not_moved() {
    let arena = unharmed_arena().await;
    recording("kube-vip-cloud-provider/duplicates.yaml").replay(&arena.client).await.unwrap();
    let before = shown_now(&Snapshot::take(&arena.client).await.unwrap());
    deploy(&arena).await;
    let operator = deployed(&arena, arena.plane().url()).await;
    let (blue, red, web) =
        (arena.tenant("blue").await, arena.tenant("red").await, arena.tenant("web").await);
    for (tenant, name, first) in
        [(&red, "a", "blue/a"), (&red, "b", "blue/b"), (&web, "static", "web/auto")]
    {
        tenant.says(name, "False", "TakenBy", first).await;
        tenant.tells(name, "SharedWithoutConsent", first).await;
    }
    for (tenant, name, second) in
        [(&blue, "a", "red/a"), (&blue, "b", "red/b"), (&web, "auto", "web/static")]
    {
        tenant.tells(name, "SharedWithoutConsent", second).await;
    }
    assert_eq!(shown_now(&Snapshot::take(&arena.client).await.unwrap()), before);
    for line in
        Guide::read("from-kube-vip.md").section("4. Duplicates that the provider left").commands()
    {
        guide::walk(&arena, line).await;
    }
    red.shows("a", &["172.30.8.3"]).await;
    blue.shows("a", &["172.30.8.1"]).await;
    operator.terminate().await.unwrap();
    Map::new(&arena.client).goes().await;
}
