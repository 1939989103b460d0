//! Nodes that somebody has given the same priority: two of them are due at the same time.

use std::time::Instant;

use landfall_vrrp::Preempt;

use super::group::Group;
use super::kinds::{Kind, addresses, mixed, one_and_a_half_adverts};
use super::site::{ALL, Site, without};

#[tokio::test]
async fn nodes_of_equal_priority_agree_on_one_holder_and_stay_with_it() {
    let Some(group) = Group::with_agents("agent-equal").await else { return };
    let mut instances = mixed(&Kind::ALL);
    for instance in &mut instances {
        // The last line of a kind counts.
        instance.lines = vec!["priority 100".to_owned()];
        instance.preempt = Preempt::Never;
    }
    let mut site = Site::new(group, instances).await;
    for _ in ALL {
        let mut before = Vec::new();
        for instance in site.instances() {
            before.push((site.holder(&instance, &ALL).await, instance));
        }
        let victim = before[0].0;
        let others = without(victim);
        let begin = Instant::now();
        site.group.bed.node(victim).power_off().unwrap();
        for (_, instance) in &before {
            site.holder(instance, &others).await;
        }
        let settled = Instant::now();
        site.group.bed.node(victim).power_on().await.unwrap();
        site.group.start(victim);
        site.all_ready().await;
        let record = site.record_since(begin).await;
        let since = record.clone().since(settled);
        for (holder, instance) in &before {
            for address in addresses(instance) {
                let doubled = record.doubled(address, &ALL);
                let what = format!("{address}: {doubled:?} {:?}", record.holdings(address));
                assert!(doubled.total <= one_and_a_half_adverts(instance), "{what}");
                assert_eq!(since.holdings(address).len(), 1, "{what}");
                assert!(*holder == victim || record.holdings(address).len() == 1, "{what}");
            }
        }
    }
}
