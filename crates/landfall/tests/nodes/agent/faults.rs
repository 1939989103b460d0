//! What fails around the worker: the API server, the worker itself, the link.

use futures::future::join_all;
use landfall_testkit::bed::{Keepalived, Node, Sampler};
use landfall_testkit::process::Signal;
use landfall_testkit::{Bed, wait};
use landfall_vrrp::{Form, Preempt};

use super::group::{Group, slot};
use super::kinds::is_taking_back;
use crate::LONG;

const ALL: [&str; 3] = ["n1", "n2", "n3"];

#[tokio::test]
async fn without_an_api_server_even_a_rebooted_node_carries_out_the_last_plan() {
    let Some(mut group) = Group::with_agents("agent-alone").await else { return };
    let vip = Bed::vip4(1);
    group.write(&group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])])).await;
    group.applied(1, &ALL).await;
    group.holder(vip, &ALL).await;
    for name in ALL {
        group.proxy.freeze_all();
        group.bed.node(name).power_off().unwrap();
        let others = group.bed.names_without(name);
        group.holder(vip, &others).await;
        group.bed.node(name).power_on().await.unwrap();
        group.start(name);
        group.ready(name).await;
        assert_eq!(group.metric(name, "landfall_agent_generation"), 1);
    }
    group.proxy.thaw();
    group.write(&group.plan(2, vec![slot(1, &[0, 1, 2], &[vip, Bed::vip4(2)])])).await;
    group.applied(2, &ALL).await;
    assert_eq!(group.holder(vip, &ALL).await, group.holder(Bed::vip4(2), &ALL).await);
}

#[tokio::test]
async fn a_worker_that_is_killed_moves_nothing_and_reloads_nothing() {
    let Some(group) = Group::with_agents("agent-killed").await else { return };
    let vip = Bed::vip4(1);
    group.write(&group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])])).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(vip, &ALL).await;
    let sampler = group.bed.sampler().unwrap();
    group.worker(&holder).unwrap().signal(Signal::SIGKILL).unwrap();
    wait::until("the next worker", LONG, async || {
        let log = group.agent(&holder).log_tail(1000);
        let starts = log.matches("the worker was started").count();
        if starts == 2 && group.page(&holder, "/readyz").0 == 200 { Ok(()) } else { Err(log) }
    })
    .await
    .unwrap();
    assert_eq!(group.metric(&holder, "landfall_agent_reloads_total"), 0);
    sampler.next_sample().await;
    let record = sampler.record();
    assert_eq!((record.holdings(vip).len(), record.holders(vip)), (1, vec![holder.as_str()]));
    group.write(&group.plan(2, vec![slot(1, &[0, 1, 2], &[vip, Bed::vip4(2)])])).await;
    group.applied(2, &ALL).await;
    assert_eq!(group.metric(&holder, "landfall_agent_reloads_total"), 1);
}

#[tokio::test]
async fn an_ipv6_address_moves_with_the_link_and_comes_back_with_it() {
    let Some(group) = Group::with_agents("agent-six").await else { return };
    let vip = Bed::vip6(1);
    let mut instance = slot(1, &[0, 1, 2], &[Bed::vip4(1)]);
    instance.form = Form { advertised: vec![vip], anchor: false, ..instance.form };
    // A node that comes back takes the address at once, as soon as it may.
    instance.preempt = Preempt::AtOnce;
    group.write(&group.plan(1, vec![instance])).await;
    group.applied(1, &ALL).await;
    group.holder(vip, &["n1"]).await;
    let all_again = async |sampler: &Sampler| {
        group.holder(vip, &ALL).await;
        wait::until("n1 holds it alone", LONG, async || sampler.record().holders(vip) == ["n1"])
            .await
            .unwrap();
        sampler.next_sample().await;
        let record = sampler.record();
        let doubled = record.doubled(vip, &ALL);
        assert!(is_taking_back(doubled, 1), "{doubled:?} {:?}", record.holdings(vip));
    };
    for _ in 0..2 {
        let sampler = group.bed.sampler().unwrap();
        group.bed.node("n1").cut_link().unwrap();
        group.holder(vip, &["n2"]).await;
        group.bed.node("n1").restore().await.unwrap();
        all_again(&sampler).await;
    }
    let sampler = group.bed.sampler().unwrap();
    for node in group.bed.nodes() {
        node.cut_link().unwrap();
    }
    wait::until("no holder", LONG, async || sampler.record().holders(vip).is_empty())
        .await
        .unwrap();
    for restored in join_all(group.bed.nodes().iter().map(Node::restore)).await {
        restored.unwrap();
    }
    all_again(&sampler).await;
}

#[tokio::test]
async fn a_new_ipv6_instance_waits_until_its_device_can_send() {
    let Some(group) = Group::with_agents("agent-tentative").await else { return };
    let (vip, four) = (Bed::vip6(1), Bed::vip4(1));
    let first = slot(1, &[0, 1, 2], &[four]);
    let mut second = slot(2, &[0, 1, 2], &[]);
    second.form = Form { advertised: vec![vip], anchor: false, ..second.form };
    group.write(&group.plan(1, vec![first.clone()])).await;
    group.applied(1, &ALL).await;
    group.holder(four, &ALL).await;
    let sampler = group.bed.sampler().unwrap();
    for node in group.bed.nodes() {
        // The kernel asks three times, a second apart, and meanwhile nothing can be sent from the address.
        let script = format!(
            "echo 3 > /proc/sys/net/ipv6/conf/eth0/dad_transmits
            ip -6 address del {address}/64 dev eth0
            ip -6 address add {address}/64 dev eth0",
            address = node.link_local(),
        );
        let mut shell = std::process::Command::new("sh");
        shell.args(["-ec", &script]);
        node.output(shell).unwrap();
    }
    group.write(&group.plan(2, vec![first, second])).await;
    group.applied(2, &ALL).await;
    group.holder(vip, &ALL).await;
    for node in group.bed.nodes() {
        node.settled().await.unwrap();
    }
    let holder = group.holder(vip, &ALL).await;
    sampler.next_sample().await;
    let record = sampler.record();
    assert!(record.all_doubled(&ALL).is_empty(), "{:?}", record.doubled(vip, &ALL));
    assert_eq!(record.holders(vip), [holder.as_str()]);
    assert_eq!(record.holdings(four).len(), 1, "the other instance has moved");
}

#[tokio::test]
async fn adverts_of_a_stranger_raise_an_alarm() {
    let Some(group) = Group::with_agents("agent-doubled").await else { return };
    let vip = Bed::vip4(1);
    group.write(&group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])])).await;
    group.applied(1, &ALL).await;
    group.holder(vip, &ALL).await;
    let sum = |metric: &str| ALL.iter().map(|name| group.metric(name, metric)).sum::<u64>();
    let alarms = || sum("landfall_agent_duplicate_master");
    assert_eq!(alarms(), 0);
    // Of another cluster, perhaps: the same router id on the same network, and other addresses.
    let stranger = "vrrp_instance stranger {
        interface eth0
        virtual_router_id 1
        version 3
        advert_int 0.1
        virtual_ipaddress {
            10.77.9.9
        }
    }\n";
    let client = group.bed.client();
    let stranger = Keepalived::start(client, "stranger", stranger).await.unwrap();
    // The node with the highest priority stays or becomes the holder; backups hear two and take turns with it.
    wait::until("the alarm", LONG, async || alarms() > 0).await.unwrap();
    stranger.terminate().await.unwrap();
    wait::until("the end of the alarm", LONG, async || alarms() == 0).await.unwrap();
    assert!(sum("landfall_agent_duplicate_masters_total") > 0);
}

#[tokio::test]
async fn a_frozen_api_server_delays_no_states_and_reports_follow_when_it_is_back() {
    let Some(group) = Group::with_agents("agent-frozen").await else { return };
    let vip = Bed::vip4(1);
    group.write(&group.plan(1, vec![slot(1, &[0, 1, 2], &[vip])])).await;
    group.applied(1, &ALL).await;
    let holder = group.holder(vip, &ALL).await;
    group.says(&holder, "that it holds", |node| !node.instances.is_empty()).await;
    group.proxy.freeze_all();
    group.agent(&holder).signal(Signal::SIGTERM).unwrap();
    let others = group.bed.names_without(&holder);
    let second = group.holder(vip, &others).await;
    wait::until("the state in the metrics", LONG, async || {
        group.metric(&second, "landfall_agent_state") == 2
    })
    .await
    .unwrap();
    group.proxy.thaw();
    group.says(&second, "that it holds", |node| !node.instances.is_empty()).await;
}
