//! The bed isolates, and everything that can be done to a node is done to it and to nothing else.

mod faults;
mod programs;
mod proxy;
mod vrrp;
mod watching;

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use landfall_testkit::bed::{ANSWER_PORT, Node};
use landfall_testkit::{Bed, wait};

/// Longer than any machine is busy.
const DEADLINE: Duration = Duration::from_mins(3);
/// How long a client waits for an answer before it believes that there is none.
const PATIENCE: Duration = Duration::from_millis(300);
const ALL: [&str; 3] = ["n1", "n2", "n3"];

async fn bed() -> Option<Bed> {
    Bed::for_test().await.unwrap()
}

fn give(node: &Node, address: IpAddr) {
    let nodad = if address.is_ipv6() { "nodad" } else { "" };
    node.ip(&format!("address add {address} dev {} {nodad}", node.device())).unwrap();
}

fn take(node: &Node, address: IpAddr) {
    node.ip(&format!("address del {address} dev {}", node.device())).unwrap();
}

/// Whether an address answers when asked from a node.
fn reaches(from: &Node, address: IpAddr) -> bool {
    let target = SocketAddr::new(address, ANSWER_PORT);
    from.inside(move || TcpStream::connect_timeout(&target, PATIENCE).is_ok()).unwrap()
}

async fn until_reaches(from: &Node, address: IpAddr) {
    let what = format!("an answer from {address} at {}", from.name());
    wait::until(what, DEADLINE, async || reaches(from, address)).await.unwrap();
}

#[tokio::test]
async fn beds_have_the_same_addresses_and_nothing_in_common() {
    let Some(one) = bed().await else { return };
    let two = Bed::new().await.unwrap();
    let vip = Bed::vip4(1);
    give(one.node("n1"), vip);
    until_reaches(one.client(), vip).await;
    assert!(!reaches(two.client(), vip));
    assert!(!two.node("n1").holds(vip).unwrap());
    for bed in [&one, &two] {
        for node in bed.nodes() {
            until_reaches(bed.client(), node.ipv4().into()).await;
        }
    }
    let here = std::fs::read_to_string("/proc/net/dev").unwrap();
    for name in ["bridge:", "n1:", "n2:", "n3:"] {
        assert!(!here.contains(name), "{here}");
    }
}

#[tokio::test]
async fn nodes_reach_each_other_by_both_families() {
    let Some(bed) = bed().await else { return };
    for node in bed.nodes() {
        for address in [IpAddr::from(node.ipv4()), node.ipv6().into()] {
            for from in [bed.client(), bed.api(), bed.node("n1")] {
                until_reaches(from, address).await;
            }
        }
        let mut own: Vec<_> = node.addresses().unwrap();
        own.sort_by_key(|address| address.ip);
        let ips: Vec<_> = own.iter().map(|it| it.ip).collect();
        assert_eq!(ips, [IpAddr::from(node.ipv4()), node.ipv6().into(), node.link_local().into()]);
        assert!(own.iter().all(|address| !address.tentative), "{own:?}");
    }
}
