//! A node takes an address back after a while.

use std::time::{Duration, Instant};

use landfall_vrrp::Preempt;

use super::group::Group;
use super::kinds::{Family, Kind, addresses, instance, is_taking_back};
use super::site::{ALL, Site};

const DELAY: u32 = 2;

#[tokio::test]
async fn a_node_that_comes_back_takes_its_addresses_back_after_the_delay_and_not_before() {
    let Some(group) = Group::with_agents("agent-delay").await else { return };
    let kinds = Kind::ALL.iter().flat_map(|kind| Family::BOTH.map(|family| (*kind, family)));
    let preempt = Preempt::AfterSeconds(DELAY);
    let instances = (1..)
        .zip(kinds)
        .map(|(number, (kind, family))| instance(kind, family, number, &[0, 1, 2], preempt));
    let mut site = Site::new(group, instances.collect()).await;
    for instance in site.instances() {
        site.holder(&instance, &["n1"]).await;
    }
    site.group.bed.node("n1").power_off().unwrap();
    for instance in site.instances() {
        site.holder(&instance, &["n2"]).await;
    }
    let begin = Instant::now();
    site.group.bed.node("n1").power_on().await.unwrap();
    // Its keepalived starts later than that.
    let started = Instant::now();
    site.group.start("n1");
    for instance in site.instances() {
        assert_eq!(site.holder(&instance, &["n1"]).await, "n1");
        site.holder(&instance, &ALL).await;
    }
    let record = site.record_since(begin).await;
    for address in site.instances().iter().flat_map(addresses) {
        let holdings = record.holdings(address);
        let what = format!("{address}: {holdings:?}");
        assert_eq!(holdings.len(), 2, "{what}");
        assert_eq!(holdings[1].node, "n1", "{what}");
        let after = holdings[1].from - started;
        assert!(after >= Duration::from_secs(DELAY.into()), "{after:?}: {what}");
        assert!(is_taking_back(record.doubled(address, &ALL), 1), "{what}");
    }
}
