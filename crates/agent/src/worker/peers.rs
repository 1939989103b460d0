//! The nodes that adverts are sent to one by one, as the kernel reaches them.
//!
//! A kernel that got no answer about the hardware address of another node asks again after a second. If a link was down
//! for less than that, or a switch is not ready as soon as its port is up, the adverts of that second reach nobody, and
//! a node that takes its addresses back holds them together with the one that it takes them from. So the worker asks
//! more often for a while.

use std::{collections::BTreeSet, io, net::IpAddr, time::Duration};

use landfall_vrrp::{NodeIndex, Plan, Transport};
use tokio::time::Instant;

use super::netlink;

/// Well below the shortest time in which a node takes addresses back.
const INTERVAL: Duration = Duration::from_millis(50);
/// A node that was not found by then may be down.
const LONGEST: Duration = Duration::from_secs(5);

/// The search for other nodes after the link has come up.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The device, while its link is up.
    device: Option<u32>,
    missing: BTreeSet<IpAddr>,
    ends: Option<Instant>,
    due: Option<Instant>,
}

impl Search {
    /// Begins if the device or its link is back. `peers` are those of the plan that runs.
    pub(super) fn follow(
        &mut self,
        device: Option<u32>,
        peers: impl FnOnce() -> BTreeSet<IpAddr>,
        now: Instant,
    ) {
        if device == self.device {
            return;
        }
        self.device = device;
        self.missing = if device.is_some() { peers() } else { BTreeSet::new() };
        let is_needed = !self.missing.is_empty();
        self.ends = is_needed.then(|| now + LONGEST);
        self.due = is_needed.then_some(now);
    }

    /// When to look next.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Lets the kernel ask at once for every node that it has not found.
    pub(super) fn look(&mut self, now: Instant) -> io::Result<()> {
        self.due = None;
        let Some(device) = self.device else { return Ok(()) };
        let found = netlink::neighbours(device)?;
        self.missing.retain(|peer| !found.contains(peer));
        for peer in &self.missing {
            netlink::forget_neighbour(*peer, device)?;
            netlink::find_neighbour(*peer, device)?;
        }
        let goes_on = !self.missing.is_empty() && self.ends.is_some_and(|ends| now < ends);
        self.due = goes_on.then(|| now + INTERVAL);
        Ok(())
    }
}

/// The addresses that adverts of this node go to, if they are not multicast.
pub(super) fn of(plan: &Plan, node: NodeIndex) -> BTreeSet<IpAddr> {
    let forms = plan.instances.iter().map(|instance| instance.form_on(node));
    let unicast = forms.filter(|form| form.transport == Transport::Unicast);
    unicast.flat_map(|form| plan.peers(form, plan.node(node))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::samples::{form, instance, plan};

    #[test]
    fn only_unicast_adverts_have_peers_and_these_are_of_their_family() {
        let mut v4 = instance("ns/a", 1, form(&["192.0.2.9"]));
        let v6 = instance("ns/b", 2, form(&["2001:db8::9"]));
        assert_eq!(of(&plan(vec![v4.clone(), v6.clone()]), 0), BTreeSet::new());
        v4.form.transport = Transport::Unicast;
        let only_v4 = of(&plan(vec![v4.clone(), v6.clone()]), 0);
        assert_eq!(only_v4, ["192.0.2.2".parse().unwrap()].into());
        let mut both = plan(vec![v4, v6]);
        both.instances[1].form.transport = Transport::Unicast;
        let expected = ["192.0.2.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        assert_eq!(of(&both, 1), expected.into());
    }

    #[test]
    fn a_search_begins_with_the_link_and_ends_with_it() {
        let (start, mut search) = (Instant::now(), Search::default());
        let peers = || -> BTreeSet<IpAddr> { ["192.0.2.2".parse().unwrap()].into() };
        search.follow(None, peers, start);
        assert_eq!(search.due(), None);
        search.follow(Some(7), BTreeSet::new, start);
        assert_eq!(search.due(), None);
        search.follow(Some(7), peers, start);
        assert_eq!(search.due(), None, "nothing has changed");
        search.follow(None, peers, start);
        search.follow(Some(7), peers, start);
        assert_eq!(search.due(), Some(start));
        search.follow(None, peers, start);
        assert_eq!(search.due(), None);
    }
}
