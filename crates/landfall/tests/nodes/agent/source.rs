//! The address of a node that its adverts to single nodes leave from comes later than its link.

use std::time::{Duration, Instant};

use landfall_api::keepalived_group::InstanceState;
use landfall_testkit::bed::Node;
use landfall_testkit::{Bed, wait};
use landfall_vrrp::{Instance, Preempt};

use super::group::Group;
use super::kinds::{Family, Kind, addresses, instance, one_and_a_half_adverts};
use super::site::{ALL, Site};
use crate::LONG;

/// Longer than a node waits for adverts, and than it waits for an address of its link.
const LONG_WITHOUT_ADVERTS: Duration = Duration::from_secs(6);

fn own(node: &Node) -> String {
    format!("{}/64 dev {}", node.ipv6(), node.device())
}

/// As the first node of all prefers it.
fn of_n1() -> Instance {
    instance(Kind::UnicastSlot, Family::V6, 1, &[0, 1, 2], Preempt::AtOnce)
}

/// Gives the node its address, and waits until it holds what it prefers, and no other node does.
async fn gets_its_address(site: &Site, begin: Instant) {
    let n1 = site.group.bed.node("n1");
    n1.ip(&format!("address add {}", own(n1))).unwrap();
    let instance = of_n1();
    site.holder(&instance, &["n1"]).await;
    let record = site.record_since(begin).await;
    for address in addresses(&instance) {
        let doubled = record.doubled(address, &ALL);
        assert!(doubled.longest <= one_and_a_half_adverts(&instance), "{address}: {doubled:?}");
    }
}

#[tokio::test]
async fn a_node_takes_part_when_it_has_the_address_that_its_adverts_leave_from() {
    let Some(mut group) = Group::new("agent-source").await else { return };
    let n1 = group.bed.node("n1").clone();
    n1.ip(&format!("address del {}", own(&n1))).unwrap();
    for name in ALL {
        group.start(name);
    }
    let sampler = group.bed.sampler().unwrap();
    let plan = group.plan(1, vec![of_n1()]);
    group.write(&plan).await;
    group.applied(1, &ALL).await;
    let what = "that it waits for its address";
    group.says("n1", what, |node| node.state_of("edge/1") == InstanceState::Fault).await;
    group.holder(Bed::vip6(1), &group.bed.names_without("n1")).await;
    let site = Site { group, sampler, plan };
    gets_its_address(&site, site.sampler.record().begin()).await;
}

#[tokio::test]
async fn a_link_that_is_back_without_the_address_of_the_node_brings_no_second_holder() {
    let Some(group) = Group::with_agents("agent-source-link").await else { return };
    let site = Site::new(group, vec![of_n1()]).await;
    site.holder(&of_n1(), &["n1"]).await;
    let n1 = site.group.bed.node("n1").clone();
    n1.cut_link().unwrap();
    let others = site.group.bed.names_without("n1");
    site.group.holder(Bed::vip6(1), &others).await;
    let back = Instant::now();
    n1.ip(&format!("link set {} up", n1.device())).unwrap();
    wait::until("a while without the address", LONG, async || {
        site.sampler.record().last() > back + LONG_WITHOUT_ADVERTS
    })
    .await
    .unwrap();
    gets_its_address(&site, back).await;
}
