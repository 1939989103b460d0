//! Several Services on one address, with the consent of all of them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use landfall_api::keys::{ANNOTATION_SHARING_KEY, ANNOTATION_SHARING_WITH};
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::wait;
use serde_json::{Value, json};

use crate::stage::{LONG, Tenant, tenant};

fn ports(ports: &[i32]) -> Value {
    let port = |port: &i32| json!({"name": format!("p{port}"), "port": port});
    json!({"spec": {"ports": ports.iter().map(port).collect::<Vec<_>>()}})
}

/// Waits until the claim on an address names exactly these holders, each with its ports.
async fn held_by(tenant: &Tenant, addr: &str, expected: &[(&str, &str)]) {
    wait::until(format!("{addr} to be held by {expected:?}"), LONG, async || {
        let claim = tenant.claim(addr).await.ok_or("there is no claim")?;
        let holders: Vec<_> = claim
            .spec
            .holders
            .iter()
            .map(|holder| (holder.name.clone(), holder.ports.join(",")))
            .collect();
        let same = holders.len() == expected.len()
            && holders.iter().zip(expected).all(|(one, other)| (&*one.0, &*one.1) == *other);
        if same { Ok(()) } else { Err(format!("{holders:?}")) }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn services_with_one_key_share_an_address_and_others_do_not() {
    let tenant = tenant("share-key").await;
    tenant.pool(pool("share-key", &["10.14.1.0/28"]).only_for("share-key")).await;
    tenant.create(load_balancer("web").sharing("front", &[80, 443])).await;
    tenant.shows("web", &["10.14.1.0"]).await;
    tenant.create(load_balancer("ssh").sharing("front", &[22])).await;
    tenant.shows("ssh", &["10.14.1.0"]).await;
    tenant.says("ssh", "True", "Allocated", "10.14.1.0 from IPGroup/share-key").await;
    held_by(&tenant, "10.14.1.0", &[("web", "TCP/443,TCP/80"), ("ssh", "TCP/22")]).await;
    let in_short = async || {
        let claim = tenant.claim("10.14.1.0").await.unwrap();
        claim.metadata.annotations.unwrap_or_default().get("landfall.dev/holders").cloned()
    };
    assert_eq!(in_short().await.as_deref(), Some("share-key/web +1"), "for the column");
    // A port that is in use, another key, no key: an address of its own.
    tenant.create(load_balancer("web2").sharing("front", &[443])).await;
    tenant.shows("web2", &["10.14.1.1"]).await;
    tenant.create(load_balancer("back").sharing("back", &[22])).await;
    tenant.shows("back", &["10.14.1.2"]).await;
    tenant.create(load_balancer("alone")).await;
    tenant.shows("alone", &["10.14.1.3"]).await;
    tenant.pool_counts("share-key", "16", "4", "12").await;
    // A Service that is deleted leaves the address to the others; the last one frees it.
    tenant.delete("web").await;
    held_by(&tenant, "10.14.1.0", &[("ssh", "TCP/22")]).await;
    assert_eq!(in_short().await, None, "one alone needs no such text");
    tenant.delete("ssh").await;
    tenant.claim_is_gone("10.14.1.0").await;
    tenant.ends(&["share-key"]).await;
}

#[tokio::test]
async fn a_refusal_names_the_service_and_the_port_in_the_way() {
    let tenant = tenant("share-refused").await;
    tenant.pool(pool("share-refused", &["10.14.2.0/28"]).only_for("share-refused")).await;
    tenant.create(load_balancer("web").sharing("k", &[80, 443]).asking("10.14.2.5")).await;
    tenant.shows("web", &["10.14.2.5"]).await;
    let local = load_balancer("local").sharing("k", &[25]).asking("10.14.2.5");
    let local = local.with_spec(|spec| {
        spec.external_traffic_policy = Some("Local".into());
        spec.selector = Some([("app".to_owned(), "mail".to_owned())].into());
    });
    let cannot = "10.14.2.5 cannot be shared with Service share-refused/web: ";
    for (service, why) in [
        (load_balancer("late").sharing("k", &[443, 8443]).asking("10.14.2.5"), "both use TCP/443"),
        (
            load_balancer("other").sharing("x", &[22]).asking("10.14.2.5"),
            "its landfall.dev/sharing",
        ),
        (local, "their externalTrafficPolicy differs"),
    ] {
        let name = service.metadata.name.clone().unwrap();
        tenant.create(service).await;
        tenant.says(&name, "False", "SharingRefused", &format!("{cannot}{why}")).await;
    }
    tenant.create(load_balancer("keyless").asking("10.14.2.5")).await;
    let taken = "10.14.2.5 is taken by Service share-refused/web";
    tenant.says("keyless", "False", "TakenBy", taken).await;
    let long = load_balancer("long").annotated(ANNOTATION_SHARING_KEY, &"k".repeat(254));
    tenant.create(long).await;
    tenant.says("long", "False", "Unparseable", "is not a key of at most 253 bytes").await;
    // Each is served as soon as its obstacle is gone.
    tenant.patch("web", ports(&[80])).await;
    tenant.shows("late", &["10.14.2.5"]).await;
    tenant.patch("local", json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await;
    tenant.shows("local", &["10.14.2.5"]).await;
    held_by(
        &tenant,
        "10.14.2.5",
        &[("web", "TCP/80"), ("late", "TCP/443,TCP/8443"), ("local", "TCP/25")],
    )
    .await;
    tenant.ends(&["share-refused"]).await;
}

#[tokio::test]
async fn across_namespaces_each_must_name_the_other() {
    let (one, two) = (tenant("share-one").await, tenant("share-two").await);
    let both = LabelSelector {
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".into(),
            operator: "In".into(),
            values: Some(vec!["share-one".into(), "share-two".into()]),
        }]),
        ..LabelSelector::default()
    };
    let shared = pool("share-spaces", &["10.14.3.0/28"]);
    one.pool(shared.with(|spec| spec.namespace_selector = Some(both))).await;
    one.create(load_balancer("web").sharing("k", &[80])).await;
    one.shows("web", &["10.14.3.0"]).await;
    two.create(load_balancer("dns").sharing("k", &[53]).asking("10.14.3.0")).await;
    let cannot = "10.14.3.0 cannot be shared with Service share-one/web: ";
    let says = |why: &str| format!("{cannot}{why}");
    let not_named = "landfall.dev/sharing-with of this Service does not name share-one";
    two.says("dns", "False", "SharingRefused", &says(not_named)).await;
    let with = |names: &str| json!({"metadata": {"annotations": {ANNOTATION_SHARING_WITH: names}}});
    two.patch("dns", with("share-one")).await;
    let not_named = "its landfall.dev/sharing-with does not name share-two";
    two.says("dns", "False", "SharingRefused", &says(not_named)).await;
    one.patch("web", with("nobody,share-two")).await;
    two.shows("dns", &["10.14.3.0"]).await;
    // Without a request, the key is enough to find the address.
    let any = load_balancer("any").sharing("k", &[22]).annotated(ANNOTATION_SHARING_WITH, "*");
    two.create(any).await;
    two.shows("any", &["10.14.3.0"]).await;
    // Consent is withdrawn: the Service that changed leaves, no other moves.
    one.patch("web", with("nobody")).await;
    one.shows("web", &["10.14.3.1"]).await;
    two.shows("dns", &["10.14.3.0"]).await;
    two.shows("any", &["10.14.3.0"]).await;
    held_by(&two, "10.14.3.0", &[("dns", "TCP/53"), ("any", "TCP/22")]).await;
    one.tells("web", "SharingRefused", "10.14.3.0 cannot be shared with Service share-two/").await;
    one.ends(&[]).await;
    two.ends(&["share-spaces"]).await;
}

#[tokio::test]
async fn a_service_that_takes_anothers_port_leaves_and_one_that_takes_a_free_one_stays() {
    let tenant = tenant("share-ports").await;
    tenant.pool(pool("share-ports", &["10.14.4.0/31"]).only_for("share-ports")).await;
    for (name, port) in [("web", 80), ("dns", 53)] {
        tenant.create(load_balancer(name).sharing("k", &[port])).await;
        tenant.shows(name, &["10.14.4.0"]).await;
    }
    tenant.patch("dns", ports(&[53, 853])).await;
    held_by(&tenant, "10.14.4.0", &[("web", "TCP/80"), ("dns", "TCP/53,TCP/853")]).await;
    tenant.patch("dns", ports(&[80])).await;
    tenant.shows("dns", &["10.14.4.1"]).await;
    tenant.shows("web", &["10.14.4.0"]).await;
    // Without another address it shows none, and names the Service in the way.
    tenant.create(load_balancer("ssh").sharing("k", &[22])).await;
    tenant.shows("ssh", &["10.14.4.0"]).await;
    tenant.patch("ssh", ports(&[80])).await;
    tenant.says("ssh", "False", "Exhausted", "all its IPv4 addresses are taken").await;
    tenant.shows("ssh", &[]).await;
    tenant.patch("ssh", ports(&[22])).await;
    tenant.shows("ssh", &["10.14.4.0"]).await;
    tenant.ends(&["share-ports"]).await;
}
