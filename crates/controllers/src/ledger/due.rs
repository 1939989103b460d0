//! Addresses by the time at which something is due about them, so that a round walks only what is due.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use crate::clock::Now;

/// At most one uptime per address.
#[derive(Debug, Default)]
pub(super) struct Due {
    at: BTreeMap<IpAddr, Duration>,
    by_time: BTreeSet<(Duration, IpAddr)>,
}

impl Due {
    /// Replaces the uptime at which something is due about an address.
    pub(super) fn set(&mut self, addr: IpAddr, at: Option<Duration>) {
        let before = match at {
            Some(at) => self.at.insert(addr, at),
            None => self.at.remove(&addr),
        };
        if before != at {
            before.map(|before| self.by_time.remove(&(before, addr)));
            at.map(|at| self.by_time.insert((at, addr)));
        }
    }

    /// The uptime at which the next is due.
    pub(super) fn next(&self) -> Option<Duration> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Addresses about which something is due by now, the lowest first. They are due no more.
    pub(super) fn take(&mut self, now: Now) -> BTreeSet<IpAddr> {
        let due = self.by_time.iter().take_while(|(at, _)| *at <= now.uptime);
        let due: BTreeSet<_> = due.map(|(_, addr)| *addr).collect();
        for addr in &due {
            self.set(*addr, None);
        }
        due
    }

    /// All addresses about which something is or will be due.
    pub(super) fn all(&self) -> Vec<IpAddr> {
        self.at.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn now(seconds: u64) -> Now {
        Now { wall: Timestamp::UNIX_EPOCH, uptime: at(seconds) }
    }

    #[test]
    fn an_address_is_due_once_at_the_last_time_that_was_set() {
        let [one, two, three] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        let mut due = Due::default();
        for (addr, time) in [(three, 1), (two, 2), (one, 2), (three, 3)] {
            due.set(addr, Some(at(time)));
        }
        assert_eq!(due.next(), Some(at(2)));
        assert_eq!(due.take(now(1)), BTreeSet::new());
        due.set(two, None);
        assert_eq!(due.all(), [one, three]);
        assert_eq!(due.take(now(2)), [one].into());
        assert_eq!(due.next(), Some(at(3)));
        assert_eq!(due.take(now(9)), [three].into());
        assert_eq!((due.next(), due.take(now(9))), (None, BTreeSet::new()));
    }
}
