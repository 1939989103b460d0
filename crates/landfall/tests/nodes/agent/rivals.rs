//! Two nodes that do not understand each other both hold an address.

use landfall_testkit::bed::{Keepalived, State};
use landfall_testkit::{Bed, wait};
use landfall_vrrp::{Instance, Preempt, Version};

use super::group::{Group, slot};
use super::kinds::{Family, Kind, instance};
use super::site::ALL;
use crate::LONG;

/// Lets a machine outside the group hold the same router id in a form that the group's keepalived does not look at.
async fn rival_raises_an_alarm(namespace: &str, ours: Instance) {
    let Some(group) = Group::with_agents(namespace).await else { return };
    let address = ours.excluded[0];
    group.write(&group.plan(1, vec![ours])).await;
    group.applied(1, &ALL).await;
    group.holder(address, &ALL).await;
    let sum = |metric: &str| ALL.iter().map(|name| group.metric(name, metric)).sum::<u64>();
    let alarms = || sum("landfall_agent_duplicate_master");
    assert_eq!(alarms(), 0);
    let text = "vrrp_instance rival {
        interface eth0
        virtual_router_id 1
        version 3
        advert_int 0.1
        virtual_ipaddress {
            10.77.9.9
        }
    }\n";
    let rival = Keepalived::start(group.bed.client(), "rival", text).await.unwrap();
    rival.reaches("rival", State::Master, LONG).await.unwrap();
    wait::until("the alarm", LONG, async || alarms() > 0).await.unwrap();
    rival.terminate().await.unwrap();
    wait::until("the end of the alarm", LONG, async || alarms() == 0).await.unwrap();
    assert!(sum("landfall_agent_duplicate_masters_total") > 0);
}

#[tokio::test]
async fn a_rival_of_another_version_raises_an_alarm() {
    // A master of version 3 would not hear one of version 2, which sends nothing as long as it hears the former.
    let mut ours = slot(1, &[0, 1, 2], &[Bed::vip4(1)]);
    (ours.form.version, ours.form.advert_millis) = (Version::V2, 1000);
    rival_raises_an_alarm("agent-rival-version", ours).await;
}

#[tokio::test]
async fn a_rival_by_multicast_raises_an_alarm_among_unicast_nodes() {
    let ours = instance(Kind::UnicastSlot, Family::V4, 1, &[0, 1, 2], Preempt::Never);
    rival_raises_an_alarm("agent-rival-multicast", ours).await;
}
