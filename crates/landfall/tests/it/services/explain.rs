//! What pools and metrics say about waiters.

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::{IPGroupStatus, Quota, condition, keys};
use landfall_controllers::services::{Settings, explain::Snapshot};
use landfall_ipam::Reason;
use landfall_testkit::builders::{PoolBuilder as _, ServiceBuilder as _, load_balancer, pool};
use landfall_testkit::wait;
use serde_json::json;

use crate::stage::{LONG, Tenant, arena, tenant};

/// Waits until a pool names these waiters, in this order.
async fn waited_for_by(tenant: &Tenant, pool: &str, count: i64, longest: &[(&str, &str)]) {
    wait::until(format!("{pool} to be waited for by {longest:?}"), LONG, async || {
        let pool = tenant.pools.get(pool).await.map_err(|error| error.to_string())?;
        let IPGroupStatus { waiting, longest_waiting, .. } = pool.status.unwrap_or_default();
        let seen: Vec<_> =
            longest_waiting.iter().map(|one| (one.name.as_str(), one.reason.as_str())).collect();
        if waiting == Some(count) && seen == longest {
            Ok(())
        } else {
            Err(format!("{waiting:?} {seen:?}"))
        }
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_pool_names_the_services_that_wait_for_it_and_the_reason() {
    let tenant = tenant("explain").await;
    let full = pool("explain-full", &["10.15.1.0/32"]).only_for("explain");
    tenant.pool(full.with_priority(1)).await;
    let limited = pool("explain-limited", &["10.15.1.8/29"]).only_for("explain");
    let none = Quota { per_namespace: Some(0), ..Quota::default() };
    tenant.pool(limited.with(|spec| spec.quota = Some(none))).await;
    tenant.pool(pool("explain-others", &["10.15.1.16/29"]).only_for("nobody")).await;
    tenant.create(load_balancer("has")).await;
    tenant.shows("has", &["10.15.1.0"]).await;
    tenant.create(load_balancer("waits")).await;
    tenant
        .says("waits", "False", "Exhausted", "IPGroup/explain-limited: namespace quota reached")
        .await;
    tenant.create(load_balancer("asks").asking("10.15.1.0")).await;
    tenant.says("asks", "False", "TakenBy", "").await;
    // In the order of their age; those created in one second go by name.
    let both = tenant.get("asks").await.metadata.creation_timestamp
        == tenant.get("waits").await.metadata.creation_timestamp;
    let mut longest = [("waits", "Exhausted"), ("asks", "TakenBy")];
    if both {
        longest.sort_unstable();
    }
    waited_for_by(&tenant, "explain-full", 2, &longest).await;
    waited_for_by(&tenant, "explain-limited", 1, &[("waits", "QuotaExceeded")]).await;
    waited_for_by(&tenant, "explain-others", 0, &[]).await;
    let drains = json!({"quota": null, "drain": true});
    tenant.edit_pool("explain-limited", drains).await;
    waited_for_by(&tenant, "explain-limited", 1, &[("waits", "Draining")]).await;
    tenant.edit_pool("explain-limited", json!({"drain": null})).await;
    tenant.shows("waits", &["10.15.1.8"]).await;
    waited_for_by(&tenant, "explain-limited", 0, &[]).await;
    waited_for_by(&tenant, "explain-full", 1, &[("asks", "TakenBy")]).await;
    tenant.ends(&["explain-full", "explain-limited", "explain-others"]).await;
}

#[tokio::test]
async fn a_caller_without_an_operator_is_told_the_same_as_by_conditions() {
    let tenant = tenant("explain-offline").await;
    tenant.pool(pool("explain-offline", &["10.15.3.0/32"]).only_for("explain-offline")).await;
    tenant.create(load_balancer("has")).await;
    tenant.shows("has", &["10.15.3.0"]).await;
    tenant.create(load_balancer("waits")).await;
    tenant.create(load_balancer("asks").asking("10.15.3.0")).await;
    tenant.create(load_balancer("strays").asking("10.15.4.0")).await;
    for (name, reason) in [
        ("has", "Allocated"),
        ("waits", "Exhausted"),
        ("asks", "TakenBy"),
        ("strays", "OutsideEveryPool"),
    ] {
        // Pools of other tests come and go, and both speak of them.
        wait::until(format!("{name} to be explained as its condition says"), LONG, async || {
            let snapshot = Snapshot::read(&tenant.client, Settings::default()).await;
            let told = snapshot.unwrap().explain(&tenant.namespace, name).unwrap();
            let status = tenant.get(name).await.status.unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let said = condition::get(&conditions, keys::CONDITION_ALLOCATED);
            let said = said.map(|said| (said.reason.clone(), said.message.clone()));
            let same = said == Some((told.reason.clone(), told.message.clone()));
            if same && told.reason == reason { Ok(()) } else { Err(format!("{said:?} {told:?}")) }
        })
        .await
        .unwrap();
    }
    tenant.ends(&["explain-offline"]).await;
}

/// The samples of `/metrics`: name and labels as written, and the value.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(key, n)| (key, n.parse().unwrap()))
        .collect()
}

/// The metrics that the reference page lists, with their labels and the values each may have; none
/// are listed for a label that names pools or versions.
fn documented() -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
    let page = include_str!("../../../../../docs/reference/metrics.md");
    let of_operator = page.split("## Of agents").next().unwrap();
    let rows = of_operator.lines().filter(|line| line.starts_with("| `landfall_"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let quoted = |text: &str| -> Vec<String> {
            text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
        };
        let labels = cells[3].split(';').filter(|label| !label.is_empty()).map(|label| {
            let words = quoted(label);
            let closed = !words[0].contains("pool") && !words[0].contains("version");
            let values = words[1..].iter().filter(|_| closed).cloned().collect();
            (words[0].clone(), values)
        });
        (quoted(cells[1])[0].clone(), labels.collect())
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_those_of_the_reference_and_count_existing_objects() {
    let arena = arena().await;
    let tenant = arena.tenant("metered").await;
    let ranges = ["10.15.2.0/30", "fd00:15:2::/126"];
    tenant.pool(pool("metered", &ranges).excluding(&["10.15.2.3"])).await;
    let operator = arena.operator().await;
    for name in ["a", "b", "c"] {
        tenant.create(load_balancer(name)).await;
        tenant.shows_something(name).await;
    }
    tenant.create(load_balancer("d").with_families("SingleStack", &["IPv6"])).await;
    tenant.shows_something("d").await;
    tenant.create(load_balancer("waits")).await;
    tenant.create(load_balancer("asks").asking("10.15.2.3")).await;
    let expected = [
        (r#"landfall_pool_addresses{pool="IPGroup/metered",family="IPv4",state="capacity"}"#, 3.0),
        (r#"landfall_pool_addresses{pool="IPGroup/metered",family="IPv4",state="used"}"#, 3.0),
        (r#"landfall_pool_addresses{pool="IPGroup/metered",family="IPv4",state="free"}"#, 0.0),
        (r#"landfall_pool_addresses{pool="IPGroup/metered",family="IPv6",state="capacity"}"#, 4.0),
        (r#"landfall_pool_addresses{pool="IPGroup/metered",family="IPv6",state="used"}"#, 1.0),
        (r#"landfall_pool_addresses{pool="IPGroup/metered",family="IPv6",state="free"}"#, 3.0),
        (r#"landfall_pool_services_waiting{pool="IPGroup/metered"}"#, 2.0),
        (r#"landfall_services_pending{reason="Exhausted"}"#, 1.0),
        (r#"landfall_services_pending{reason="Excluded"}"#, 1.0),
        (r#"landfall_services_pending{reason="NoPool"}"#, 0.0),
        (r#"landfall_calls_total{controller="services",effect="take",result="done"}"#, 4.0),
        ("landfall_allocation_seconds_count", 4.0),
    ];
    let text = wait::until("the metrics to count", LONG, async || {
        let text = operator.metrics().await.map_err(|error| format!("{error:?}"))?;
        let seen = samples(&text);
        let wrong = expected.iter().find(|(key, value)| seen.get(key) != Some(value));
        match wrong {
            Some((key, _)) => Err(format!("{key}: {:?}", seen.get(key))),
            None => Ok(text.clone()),
        }
    })
    .await
    .unwrap();

    let documented = documented();
    let mut met = BTreeSet::new();
    for key in samples(&text).keys() {
        let (name, labels) = key.split_once('{').unwrap_or((key, ""));
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        let known = documented.get(base).unwrap_or_else(|| panic!("{key} is not documented"));
        met.insert(base.to_owned());
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        for (label, value) in labels.filter_map(|label| label.split_once('=')) {
            if label == "le" {
                continue;
            }
            let values = known.get(label).unwrap_or_else(|| panic!("{label} of {key}"));
            assert!(values.is_empty() || values.contains(value.trim_matches('"')), "{key}");
        }
    }
    let unmet: Vec<_> = documented.keys().filter(|name| !met.contains(*name)).collect();
    assert_eq!(unmet, Vec::<&String>::new(), "documented and not served");
    let reasons = &documented["landfall_services_pending"]["reason"];
    assert_eq!(reasons.len(), Reason::ALL.len());
    tenant.settled().await;
}
