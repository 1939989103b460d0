use std::net::IpAddr;

use futures::future::join_all;
use landfall_testkit::bed::{Doubled, Keepalived, Protocol, Sampler, State};
use landfall_testkit::{Bed, wait};

use super::{ALL, DEADLINE, bed};

const INSTANCE: &str = "group/0";

/// Ten adverts a second.
fn config(node: &str, address: IpAddr) -> String {
    config_with(node, address, "0.1")
}

/// Version 3 by multicast, and an order in which n1 comes first and n3 far behind n2.
fn config_with(node: &str, address: IpAddr, advert: &str) -> String {
    let priority = match node {
        "n1" => 254,
        "n2" => 253,
        _ => 1,
    };
    format!(
        "global_defs {{
            router_id {node}
            vrrp_version 3
            enable_script_security
            script_user root
            vrrp_higher_prio_send_advert true
        }}
        vrrp_instance {INSTANCE} {{
            state BACKUP
            interface eth0
            virtual_router_id 7
            priority {priority}
            advert_int {advert}
            virtual_ipaddress {{
                {address}
            }}
        }}
"
    )
}

async fn start(bed: &Bed, name: &str, address: IpAddr) -> Keepalived {
    Keepalived::start(bed.node(name), "keepalived", &config(name, address)).await.unwrap()
}

async fn until_held_by(sampler: &Sampler, address: IpAddr, node: &str) {
    wait::until(format!("{node} alone to hold {address}"), DEADLINE, async || {
        let record = sampler.record();
        let holders = record.holders(address);
        if holders == [node] { Ok(()) } else { Err(format!("{holders:?}")) }
    })
    .await
    .unwrap();
}

/// A group elects one node; when that dies, the next in order takes over.
async fn a_group_survives_its_holder(address: IpAddr) {
    let Some(bed) = bed().await else { return };
    for name in ALL {
        Keepalived::check(bed.node(name), &config(name, address)).unwrap();
    }
    let (sampler, announcements) = (bed.sampler().unwrap(), bed.announcements().unwrap());
    let daemons = join_all(ALL.map(|name| start(&bed, name, address))).await;
    daemons[0].reaches(INSTANCE, State::Master, DEADLINE).await.unwrap();
    for daemon in &daemons[1..] {
        daemon.reaches(INSTANCE, State::Backup, DEADLINE).await.unwrap();
    }
    until_held_by(&sampler, address, "n1").await;
    let asking = bed.ask(address).unwrap();
    wait::until("answers", DEADLINE, async || asking.questions(Protocol::Udp).answers() > 0)
        .await
        .unwrap();

    let died = bed.node("n1").power_off().unwrap();
    // On a machine that is too busy n3 may be first, but not for long.
    until_held_by(&sampler, address, "n2").await;
    let others = bed.names_without("n1");
    let heard =
        wait::until("an announcement", DEADLINE, async || announcements.first(address, died))
            .await
            .unwrap();
    assert!(others.contains(&heard.node.as_str()), "{heard:?}");
    wait::until("answers of n2", DEADLINE, async || {
        asking.questions(Protocol::Udp).runs(died).iter().any(|run| &*run.node == "n2")
    })
    .await
    .unwrap();
    let record = sampler.record();
    let taken = record.taken(address, "n1", died).unwrap();
    assert!(others.contains(&taken.node.as_str()), "{taken:?}");
    assert!(record.gap(address, died, &others) >= taken.after);
    assert!(asking.silence(died) > std::time::Duration::ZERO);

    // It comes back and takes its place again.
    bed.node("n1").power_on().await.unwrap();
    let _again = start(&bed, "n1", address).await;
    until_held_by(&sampler, address, "n1").await;
}

/// At one advert a second, for then the second node has a second before the third: no machine is so busy that
/// both are due at once.
#[tokio::test]
async fn an_address_has_one_holder_at_most_while_it_moves() {
    let Some(bed) = bed().await else { return };
    let vip = Bed::vip4(1);
    let start = async |name: &str| {
        let config = config_with(name, vip, "1");
        Keepalived::start(bed.node(name), "keepalived", &config).await.unwrap()
    };
    let first = start("n1").await;
    first.reaches(INSTANCE, State::Master, DEADLINE).await.unwrap();
    let (second, third) = (start("n2").await, start("n3").await);
    for backup in [&second, &third] {
        backup.reaches(INSTANCE, State::Backup, DEADLINE).await.unwrap();
    }
    let sampler = bed.sampler().unwrap();
    sampler.next_sample().await;
    bed.node("n1").power_off().unwrap();
    assert_eq!(sampler.holder(vip, &["n2", "n3"], DEADLINE).await.unwrap(), "n2");
    let died = bed.node("n2").power_off().unwrap();
    assert_eq!(sampler.holder(vip, &["n3"], DEADLINE).await.unwrap(), "n3");
    sampler.next_sample().await;
    let record = sampler.record();
    assert_eq!(record.doubled(vip, &ALL), Doubled::default());
    let nodes: Vec<_> = record.holdings(vip).iter().map(|it| it.node.as_str()).collect();
    assert_eq!(nodes, ALL);
    assert_eq!(record.since(died).holders(vip), ["n3"]);
}

#[tokio::test]
async fn an_ipv4_group_survives_its_holder() {
    a_group_survives_its_holder(Bed::vip4(1)).await;
}

#[tokio::test]
async fn an_ipv6_group_survives_its_holder() {
    a_group_survives_its_holder(Bed::vip6(1)).await;
}

/// n1 as the only node of a group, which therefore holds the address.
async fn lone_holder(bed: &Bed, address: IpAddr) -> Keepalived {
    let daemon = start(bed, "n1", address).await;
    daemon.reaches(INSTANCE, State::Master, DEADLINE).await.unwrap();
    until_held(bed, address, true).await;
    daemon
}

async fn until_held(bed: &Bed, address: IpAddr, expected: bool) {
    wait::until(format!("{address} to be held: {expected}"), DEADLINE, async || {
        bed.node("n1").holds(address).unwrap() == expected
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_daemon_killed_at_once_leaves_its_address_and_one_that_can_notice_takes_it_along() {
    let Some(bed) = bed().await else { return };
    let vip = Bed::vip4(1);
    let daemon = lone_holder(&bed, vip).await;
    daemon.kill_at_once().unwrap();
    assert!(!daemon.process().is_running());
    assert_eq!(daemon.child(), None);
    assert!(bed.node("n1").holds(vip).unwrap());

    // The next one finds the address and keeps it.
    let daemon = lone_holder(&bed, vip).await;
    daemon.kill_parent().unwrap();
    until_held(&bed, vip, false).await;

    let daemon = lone_holder(&bed, vip).await;
    daemon.terminate().await.unwrap();
    until_held(&bed, vip, false).await;
}

#[tokio::test]
async fn a_child_that_is_killed_is_started_again() {
    let Some(bed) = bed().await else { return };
    let daemon = lone_holder(&bed, Bed::vip4(1)).await;
    let before = daemon.child().unwrap();
    daemon.kill_child().unwrap();
    wait::until("another child", DEADLINE, async || {
        daemon.child().is_some_and(|child| child != before)
    })
    .await
    .unwrap();
    daemon.reaches(INSTANCE, State::Master, DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_frozen_holder_and_its_successor_hold_the_address_together() {
    let Some(bed) = bed().await else { return };
    let vip = Bed::vip4(1);
    let sampler = bed.sampler().unwrap();
    let first = lone_holder(&bed, vip).await;
    let second = start(&bed, "n2", vip).await;
    second.reaches(INSTANCE, State::Backup, DEADLINE).await.unwrap();
    first.suspend().unwrap();
    second.reaches(INSTANCE, State::Master, DEADLINE).await.unwrap();
    wait::until("a double", DEADLINE, async || sampler.record().doubled(vip, &ALL).samples > 0)
        .await
        .unwrap();
    first.resume().unwrap();
    second.reaches(INSTANCE, State::Backup, DEADLINE).await.unwrap();
    until_held_by(&sampler, vip, "n1").await;
}

#[tokio::test]
async fn a_reload_adds_an_address_of_the_other_family() {
    let Some(bed) = bed().await else { return };
    let (vip, added) = (Bed::vip4(1), Bed::vip6(1));
    let daemon = lone_holder(&bed, vip).await;
    let child = daemon.child();
    let config = config("n1", vip).replace(
        "virtual_ipaddress {",
        &format!("virtual_ipaddress_excluded {{\n{added}\n}}\nvirtual_ipaddress {{"),
    );
    Keepalived::check(bed.node("n1"), &config).unwrap();
    daemon.reload(&config).unwrap();
    until_held(&bed, added, true).await;
    assert_eq!(daemon.child(), child);
    let dump = daemon.dump().await.unwrap();
    assert_eq!(dump.len(), 1);
    assert!(dump[0]["data"]["evips"].to_string().contains("fd77"), "{}", dump[0]["data"]);
}

#[tokio::test]
async fn a_configuration_with_a_warning_is_refused_with_its_text() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n1");
    let config = config("n1", Bed::vip4(1));
    Keepalived::check(node, &config).unwrap();
    for (wrong, expected) in [
        (config.replace("advert_int", "advert_intt"), "advert_intt"),
        (config.replace("interface eth0", "interface eth7"), "eth7"),
        (config.replace("virtual_router_id 7", "virtual_router_id 0"), "not valid"),
    ] {
        let said = Keepalived::check(node, &wrong).unwrap_err();
        assert!(said.contains(expected), "{expected}: {said}");
    }
}
