use std::net::IpAddr;
use std::process::Command;

use landfall_testkit::bed::Node;
use landfall_testkit::{Bed, wait};

use super::{DEADLINE, bed, give, reaches, until_reaches};

/// What the node itself sees of its device, such as `<BROADCAST,MULTICAST,UP,LOWER_UP>`.
fn flags(node: &Node) -> String {
    let link = node.ip("-oneline link show dev eth0").unwrap();
    link.split_whitespace().find(|word| word.starts_with('<')).unwrap().to_owned()
}

fn is_cut_off(bed: &Bed, node: &Node) -> bool {
    let theirs: IpAddr = node.ipv4().into();
    let client: IpAddr = bed.client().ipv4().into();
    !reaches(bed.client(), theirs) && !reaches(node, client)
}

/// Restores a node after a fault and looks whether everything is as before.
async fn comes_back(bed: &Bed, node: &Node) {
    node.restore().await.unwrap();
    for address in [IpAddr::from(node.ipv4()), node.ipv6().into()] {
        until_reaches(bed.client(), address).await;
    }
    assert!(flags(node).contains("LOWER_UP"));
}

#[tokio::test]
async fn a_node_whose_link_is_cut_sees_its_device_down_and_loses_its_ipv6_addresses() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n2");
    node.cut_link().unwrap();
    assert!(!flags(node).contains("UP"), "{}", flags(node));
    assert!(node.holds(node.ipv4().into()).unwrap());
    assert!(!node.holds(node.ipv6().into()).unwrap());
    assert!(is_cut_off(&bed, node));
    until_reaches(bed.client(), bed.node("n1").ipv4().into()).await;
    comes_back(&bed, node).await;
}

#[tokio::test]
async fn a_node_whose_port_is_cut_sees_that_its_carrier_is_gone() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n2");
    node.cut_port().unwrap();
    wait::until("no carrier", DEADLINE, async || flags(node).contains("NO-CARRIER")).await.unwrap();
    assert!(is_cut_off(&bed, node));
    comes_back(&bed, node).await;
}

#[tokio::test]
async fn a_silent_port_drops_frames_both_ways_and_the_node_sees_nothing_of_it() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n2");
    let (flags_before, addresses) = (flags(node), node.addresses().unwrap());
    // Known neighbours, so that it is not only the question for them that is lost.
    until_reaches(bed.client(), node.ipv4().into()).await;
    until_reaches(node, bed.client().ipv4().into()).await;
    node.silence_port().unwrap();
    assert!(is_cut_off(&bed, node));
    assert_eq!(flags(node), flags_before);
    assert_eq!(node.addresses().unwrap(), addresses);
    comes_back(&bed, node).await;
    // One fault upon another is undone as well.
    node.silence_port().unwrap();
    node.cut_port().unwrap();
    node.cut_link().unwrap();
    comes_back(&bed, node).await;
}

#[tokio::test]
async fn a_node_without_power_is_gone_and_comes_back_with_nothing_but_its_disk() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n2");
    let mut sleep = Command::new("sleep");
    sleep.arg("1000");
    let program = node.run(sleep, "sleep.log").unwrap();
    give(node, Bed::vip4(1));
    give(node, Bed::vip6(1));
    std::fs::write(node.dir().join("disk"), "still here").unwrap();

    node.power_off().unwrap();
    assert!(!program.is_running());
    assert!(!node.is_on());
    assert!(node.ip("link").unwrap_err().to_string().contains("n2 is switched off"));
    for address in [node.ipv4().into(), Bed::vip4(1), Bed::vip6(1)] {
        assert!(!reaches(bed.client(), address));
    }

    node.power_on().await.unwrap();
    until_reaches(bed.client(), node.ipv4().into()).await;
    assert!(!node.holds(Bed::vip4(1)).unwrap());
    assert_eq!(std::fs::read_to_string(node.dir().join("disk")).unwrap(), "still here");
    node.output(Command::new("true")).unwrap();
}

#[tokio::test]
async fn programs_that_are_killed_all_at_once_leave_their_addresses_behind() {
    let Some(bed) = bed().await else { return };
    let node = bed.node("n2");
    let mut shell = Command::new("sh");
    // Either would tell the other's death.
    shell.args(["-c", "sh -c 'sleep 1000; echo first'; echo second"]);
    let program = node.run(shell, "shell.log").unwrap();
    give(node, Bed::vip4(1));
    node.kill_programs().unwrap();
    assert!(!program.is_running());
    assert_eq!(program.log_tail(5), "");
    until_reaches(bed.client(), Bed::vip4(1)).await;
    node.output(Command::new("true")).unwrap();
}
