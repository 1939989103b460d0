//! Growing delays between retries.

use std::time::Duration;

use crate::clock::Now;

/// The wait after the first failure. Each failure after it doubles the wait.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_mins(1);

/// How long to wait before the next try. The wait grows with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// `None` once the wait is over; the number of tries is remembered until one succeeds.
    pub(crate) until: Option<Duration>,
    pub(crate) tries: u32,
}

impl Backoff {
    /// The wait after one more failure, when there were this many before.
    pub(crate) fn after(tries: u32, now: Now) -> Self {
        let factor = 1_u32.checked_shl(tries.min(16)).unwrap_or(u32::MAX);
        let wait = FIRST.saturating_mul(factor).min(LONGEST);
        Self { until: Some(now.uptime.saturating_add(wait)), tries: tries.saturating_add(1) }
    }

    pub(crate) fn holds(self, now: Now) -> bool {
        self.until.is_some_and(|until| until > now.uptime)
    }

    /// Makes the wait last at least as long as the API server asked for, up to the longest wait.
    pub(crate) fn at_least(self, wait: Duration, now: Now) -> Self {
        let asked = now.uptime.saturating_add(wait.min(LONGEST));
        Self { until: self.until.max(Some(asked)), ..self }
    }

    /// Ends the wait if its time has come; returns whether it ended just now.
    pub(crate) fn end(&mut self, now: Now) -> bool {
        let over = self.until.is_some() && !self.holds(now);
        if over {
            self.until = None;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(millis: u64) -> Now {
        Now { wall: Timestamp::UNIX_EPOCH, uptime: Duration::from_millis(millis) }
    }

    #[test]
    fn each_failure_doubles_the_wait_up_to_a_minute() {
        let mut backoff = Backoff::after(0, at(0));
        let mut waits = Vec::new();
        for _ in 0..10 {
            waits.push(backoff.until.unwrap().as_millis());
            backoff = Backoff::after(backoff.tries, at(0));
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(Backoff::after(u32::MAX, at(0)).until, Some(LONGEST));
    }

    #[test]
    fn a_wait_ends_once_and_its_tries_are_remembered() {
        let mut backoff = Backoff::after(0, at(1000));
        assert!(backoff.holds(at(1249)) && !backoff.end(at(1249)));
        assert!(!backoff.holds(at(1250)) && backoff.end(at(1250)));
        assert!(!backoff.end(at(1251)));
        assert_eq!(backoff, Backoff { until: None, tries: 1 });
    }

    #[test]
    fn the_api_server_may_ask_for_a_longer_wait_but_not_for_hours() {
        let backoff = Backoff::after(0, at(0));
        for (asked, until) in [(0, 250), (3000, 3000), (3_600_000, 60_000)] {
            let wait = backoff.at_least(Duration::from_millis(asked), at(0));
            assert_eq!(wait.until, Some(Duration::from_millis(until)), "{asked}");
        }
    }
}
