//! The pages that an agent serves: what dashboards and the kubelet read.

use std::collections::BTreeMap;

use landfall_testkit::bed::Running;
use landfall_testkit::{Bed, wait};

use super::group::{Group, slot};
use crate::LONG;

const ALL: [&str; 3] = ["n1", "n2", "n3"];

/// keepalived's counters, by the names that dashboards know.
const COUNTERS: [&str; 14] = [
    "keepalived_vrrp_addr_list_err",
    "keepalived_vrrp_advert_interval_err",
    "keepalived_vrrp_advert_rcvd",
    "keepalived_vrrp_advert_sent",
    "keepalived_vrrp_auth_failure",
    "keepalived_vrrp_authtype_mismatch",
    "keepalived_vrrp_become_master",
    "keepalived_vrrp_invalid_authtype",
    "keepalived_vrrp_invalid_type_rcvd",
    "keepalived_vrrp_ip_ttl_err",
    "keepalived_vrrp_packet_len_err",
    "keepalived_vrrp_pri_zero_rcvd",
    "keepalived_vrrp_pri_zero_sent",
    "keepalived_vrrp_release_master",
];

/// The samples of keepalived's counters: their names, their labels as they are written, and their values.
fn counters(page: &str) -> BTreeMap<(&str, &str), u64> {
    let samples = page.lines().filter(|line| line.starts_with("keepalived_vrrp_"));
    let split = samples.map(|line| {
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, value) = rest.split_once("} ").unwrap();
        ((name, labels), value.parse().unwrap())
    });
    split.collect()
}

#[tokio::test]
async fn a_scrape_has_every_counter_of_every_instance_with_the_labels_that_dashboards_know() {
    let Some(group) = Group::with_agents("agent-scrape").await else { return };
    let instances = vec![slot(1, &[0, 1, 2], &[Bed::vip4(1)]), slot(2, &[1, 2, 0], &[])];
    group.write(&group.plan(1, instances)).await;
    group.applied(1, &ALL).await;
    let anchors = ["169.254.112.1", "169.254.112.2"].map(|anchor| anchor.parse().unwrap());
    let holders = [group.holder(anchors[0], &ALL).await, group.holder(anchors[1], &ALL).await];
    for name in ALL {
        group.ready(name).await;
        let states = [1, 2].map(|number: usize| {
            let is_holder = holders[number - 1] == name;
            (number, if is_holder { "MASTER" } else { "BACKUP" })
        });
        let labels = states.map(|(number, state)| {
            format!(r#"name="edge/{number}",intf="eth0",vrid="{number}",state="{state}""#)
        });
        wait::until(format!("the counters of {name}"), LONG, async || {
            let (status, page) = group.page(name, "/metrics");
            assert_eq!(status, 200);
            let found = counters(&page);
            let expected = COUNTERS.iter().flat_map(|name| labels.each_ref().map(|it| (*name, it)));
            let is_whole = found.keys().copied().eq(expected.map(|(name, it)| (name, it.as_str())));
            let moves = labels.iter().zip(states).all(|(labels, (_, state))| {
                let of = |counter| found.get(&(counter, labels.as_str())).copied();
                let (sent, received) =
                    (of("keepalived_vrrp_advert_sent"), of("keepalived_vrrp_advert_rcvd"));
                if state == "MASTER" { sent > Some(0) } else { received > Some(0) }
            });
            if is_whole && moves && page.lines().any(|line| line == "keepalived_up 1") {
                Ok(())
            } else {
                Err(page)
            }
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn a_node_is_unhealthy_while_its_keepalived_is_down() {
    let Some(group) = Group::with_agents("agent-down").await else { return };
    group.write(&group.plan(1, vec![slot(1, &[0, 1, 2], &[Bed::vip4(1)])])).await;
    group.applied(1, &ALL).await;
    group.ready("n1").await;
    assert_eq!(group.page("n1", "/healthz").0, 200);
    // Each time it waits longer until it starts it again.
    wait::until("n1 to be unhealthy", LONG, async || {
        Running::kill_at_once(&group.keepalived("n1")).unwrap();
        let (health, up) = (group.page("n1", "/healthz"), group.metric("n1", "keepalived_up"));
        if health.0 == 503 && up == 0 { Ok(()) } else { Err(format!("{health:?}, up: {up}")) }
    })
    .await
    .unwrap();
    assert_eq!(group.page("n2", "/healthz").0, 200);
    wait::until("n1 to be healthy again", LONG, async || {
        let health = group.page("n1", "/healthz");
        if health.0 == 200 { Ok(()) } else { Err(format!("{health:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(group.metric("n1", "keepalived_up"), 1);
}
