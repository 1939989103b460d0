//! Plans become configurations, at once and as seldom as possible.

use std::time::Duration;

use landfall_api::keepalived_group::InstanceState;
use landfall_testkit::proxy::Record;
use landfall_testkit::{Bed, wait};

use super::group::{Group, slot};
use crate::LONG;

const ALL: [&str; 3] = ["n1", "n2", "n3"];

#[tokio::test]
async fn a_plan_becomes_addresses_on_one_node_each_and_is_reported() {
    let Some(group) = Group::with_agents("agent-plans").await else { return };
    let sampler = group.bed.sampler().unwrap();
    let (one, two, six) = (Bed::vip4(1), Bed::vip4(2), Bed::vip6(1));
    let first = slot(1, &[0, 1, 2], &[one, six]);
    group.write(&group.plan(1, vec![first.clone()])).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(one, &ALL).await;
    assert_eq!(group.holder(six, &ALL).await, holder);
    group
        .says(&holder, "that it holds the instance", |node| {
            node.state_of("edge/1") == InstanceState::Master && node.instances.len() == 1
        })
        .await;
    for name in ALL {
        let node = group.reported(name).await.unwrap();
        assert_eq!(node.device.as_deref(), Some("eth0"));
        assert!(node.keepalived_version.unwrap().starts_with("2."));
        group.ready(name).await;
        assert_eq!(group.page(name, "/healthz").0, 200);
        assert_eq!(group.metric(name, "keepalived_up"), 1);
        assert_eq!(group.metric(name, "landfall_agent_generation"), 1);
    }

    let second = slot(2, &[1, 2, 0], &[]);
    let first = slot(1, &[0, 1, 2], &[one, two, six]);
    group.write(&group.plan(2, vec![first, second])).await;
    group.applied(2, &ALL).await;
    assert_eq!(group.holder(two, &ALL).await, holder);
    group.holder("169.254.112.2".parse().unwrap(), &ALL).await;
    sampler.next_sample().await;
    let record = sampler.record();
    assert_eq!(record.holdings(one).len(), 1, "the address has moved: {:?}", record.holdings(one));
    assert!(record.all_doubled(&ALL).is_empty(), "{:?}", record.all_doubled(&ALL));
    for name in ALL {
        assert_eq!(group.metric(name, "landfall_agent_reloads_total"), 2);
        assert_eq!(group.metric(name, "landfall_agent_duplicate_masters_total"), 0);
    }
}

#[tokio::test]
async fn a_plan_without_a_difference_for_keepalived_is_applied_without_a_reload() {
    let Some(group) = Group::with_agents("agent-same").await else { return };
    let mut plan = group.plan(1, vec![slot(1, &[0, 1, 2], &[Bed::vip4(1)])]);
    group.write(&plan).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(Bed::vip4(1), &ALL).await;
    // No node but one may hold it: a matter of the files that mute.
    let other = ALL.iter().position(|name| *name != holder).unwrap();
    plan.generation = 2;
    plan.instances[0].only_on = Some(vec![u32::try_from(other).unwrap()]);
    group.write(&plan).await;
    group.applied(2, &ALL).await;
    assert_eq!(group.holder(Bed::vip4(1), &[ALL[other]]).await, ALL[other]);
    group
        .says(&holder, "that it is out of service", |node| {
            node.state_of("edge/1") == InstanceState::Fault
        })
        .await;
    // It keeps no node from being ready.
    assert_eq!(group.page(&holder, "/readyz").0, 200);
    for name in ALL {
        assert_eq!(group.metric(name, "landfall_agent_reloads_total"), 1);
    }
}

#[tokio::test]
async fn a_burst_of_plans_is_a_few_reloads_and_ends_with_the_last_plan() {
    let Some(group) = Group::with_agents("agent-burst").await else { return };
    let begin = std::time::Instant::now();
    for number in 1..=40 {
        let addresses: Vec<_> = (1..=number).map(Bed::vip4).collect();
        group.write(&group.plan(number.into(), vec![slot(1, &[0, 1, 2], &addresses)])).await;
    }
    group.applied(40, &ALL).await;
    // Two a second, and one for each end.
    let most = begin.elapsed().as_secs() * 2 + 2;
    let holder = group.holder(Bed::vip4(40), &ALL).await;
    assert_eq!(group.holder(Bed::vip4(1), &ALL).await, holder);
    for name in ALL {
        let reloads = group.metric(name, "landfall_agent_reloads_total");
        assert!((1..=most.min(39)).contains(&reloads), "{reloads} on {name}, at most {most}");
    }
}

#[tokio::test]
async fn an_idle_agent_writes_nothing() {
    let Some(group) = Group::with_agents("agent-idle").await else { return };
    group.write(&group.plan(1, vec![slot(1, &[0, 1, 2], &[Bed::vip4(1)])])).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(Bed::vip4(1), &ALL).await;
    group.says(&holder, "that it holds", |node| !node.instances.is_empty()).await;
    wait::until("a while without a request", LONG, async || {
        let (idle, all) = (group.proxy.idle(), group.proxy.requests());
        let is_quiet = idle > Duration::from_secs(10);
        if is_quiet { Ok(()) } else { Err(format!("{:?}", all.last())) }
    })
    .await
    .unwrap();
    let writes: Vec<_> = group.proxy.requests().into_iter().filter(Record::is_write).collect();
    // Each node: the plan, and one or two for the states that followed.
    assert!(writes.len() <= 9, "{writes:?}");
    let reads = ["configmaps", "secrets", "keepalivedgroups"];
    let strange: Vec<_> = group
        .proxy
        .requests()
        .into_iter()
        .filter(|request| {
            !reads.iter().any(|kind| request.is_for(kind)) || request.is_for("secrets")
        })
        .collect();
    assert_eq!(strange.len(), 0, "no password is used: {strange:?}");
}

#[tokio::test]
async fn a_plan_that_keepalived_does_not_take_changes_nothing_and_is_reported() {
    let Some(group) = Group::with_agents("agent-refused").await else { return };
    let vip = Bed::vip4(1);
    let good = group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])]);
    group.write(&good).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(vip, &ALL).await;
    let sampler = group.bed.sampler().unwrap();

    let mut bad = good.clone();
    bad.generation = 2;
    bad.global_lines = vec!["no_such_keyword yes".to_owned()];
    bad.instances[0].excluded.clear();
    group.write(&bad).await;
    for name in ALL {
        group
            .says(name, "what keepalived does not like", |node| {
                let error = node.last_error.as_deref().unwrap_or_default();
                error.contains("no_such_keyword") && node.generation == Some(1)
            })
            .await;
        assert_eq!(group.metric(name, "landfall_agent_generation"), 1);
        assert!(group.metric(name, "landfall_agent_reload_failures_total") > 0);
    }

    group.write_text(r#"{"format": 99, "somethingElse": true}"#).await;
    for name in ALL {
        group
            .says(name, "that the plan is too new", |node| {
                node.last_error.as_deref().is_some_and(|error| error.contains("format 99"))
            })
            .await;
    }
    sampler.next_sample().await;
    let record = sampler.record();
    assert_eq!((record.holdings(vip).len(), record.holders(vip)), (1, vec![holder.as_str()]));

    let next = group.plan(3, vec![slot(1, &[0, 1, 2], &[vip, Bed::vip4(2)])]);
    group.write(&next).await;
    group.applied(3, &ALL).await;
    assert_eq!(group.holder(Bed::vip4(2), &ALL).await, holder);
}

#[tokio::test]
async fn a_node_that_the_plan_does_not_name_gives_everything_up() {
    let Some(group) = Group::with_agents("agent-removed").await else { return };
    let vip = Bed::vip4(1);
    group.write(&group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])])).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(vip, &ALL).await;
    let others = group.bed.names_without(&holder);
    let sampler = group.bed.sampler().unwrap();

    let mut fewer = group.plan(2, vec![slot(1, &[0, 1], &[vip])]);
    fewer.nodes.retain(|node| node.name != holder);
    group.write(&fewer).await;
    group.applied(2, &others).await;
    group.holder(vip, &others).await;
    wait::until("the removed node has neither addresses nor an entry", LONG, async || {
        let is_reported = group.reported(&holder).await.is_some();
        !is_reported && !group.bed.node(&holder).holds(vip).unwrap()
    })
    .await
    .unwrap();
    sampler.next_sample().await;
    let doubled = sampler.record().all_doubled(&ALL);
    assert!(doubled.is_empty(), "{doubled:?}");
    let owned = group.bed.node(&holder).dir().join("run/owned.json");
    wait::until("nothing is remembered as ours", LONG, async || {
        let owned = std::fs::read_to_string(&owned).unwrap();
        if owned == "[]" { Ok(()) } else { Err(owned) }
    })
    .await
    .unwrap();

    let sampler = group.bed.sampler().unwrap();
    group.write(&group.plan(3, vec![slot(1, &[0, 1, 2], &[vip])])).await;
    group.applied(3, &ALL).await;
    sampler.next_sample().await;
    let doubled = sampler.record().all_doubled(&ALL);
    assert!(doubled.is_empty(), "{doubled:?}");
}

#[tokio::test]
async fn a_device_is_found_by_its_route_and_followed() {
    let Some(group) = Group::with_agents("agent-route").await else { return };
    let vip = Bed::vip4(1);
    let mut plan = group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])]);
    plan.interface = "nosuch0".to_owned();
    plan.interface_from = Some("198.51.100.1".parse().unwrap());
    group.write(&plan).await;
    for name in ALL {
        group
            .says(name, "the group's device", |node| node.device.as_deref() == Some("nosuch0"))
            .await;
        assert!(!group.bed.node(name).holds(vip).unwrap());
    }
    for name in ALL {
        let node = group.bed.node(name);
        node.ip(&format!("route add 198.51.100.0/24 via {}", group.bed.client().ipv4())).unwrap();
        group.says(name, "the route's device", |node| node.device.as_deref() == Some("eth0")).await;
    }
    let holder = group.holder(vip, &ALL).await;
    // A route that is gone moves nothing.
    group.bed.node(&holder).ip("route del 198.51.100.0/24").unwrap();
    plan.generation = 2;
    group.write(&plan).await;
    group.applied(2, &ALL).await;
    assert_eq!(group.holder(vip, &ALL).await, holder);
    assert_eq!(group.reported(&holder).await.unwrap().device.as_deref(), Some("eth0"));
}
