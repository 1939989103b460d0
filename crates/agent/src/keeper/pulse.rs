//! Whether keepalived shows signs of life without being asked. To ask costs it a line in its log.

use std::time::Duration;

use super::proc;

/// Within the time that keepalived may be silent, it is looked at so often.
const LOOKS: u32 = 8;
const SHORTEST_PATIENCE: Duration = Duration::from_secs(1);
/// As long as it holds nothing, its silence harms nothing.
const PATIENCE_WITHOUT_ADDRESSES: Duration = Duration::from_secs(10);
const ADVERTS: u32 = 5;
/// What it may take longer than that to read its configuration: less than a second for the largest one.
const READING: Duration = Duration::from_secs(3);

/// How long keepalived may be silent.
pub(super) fn patience(interval: Duration, holds_something: bool) -> Duration {
    let shortest = if holds_something { SHORTEST_PATIENCE } else { PATIENCE_WITHOUT_ADDRESSES };
    shortest.max(interval * ADVERTS)
}

/// How long keepalived may take to read its configuration while it holds something.
pub(super) fn patience_with_reading(interval: Duration) -> Duration {
    READING + interval * ADVERTS
}

/// What follows from the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Nothing is to be done.
    Shown,
    /// It has been silent for half of the time that it may be: it should be asked.
    Silent,
    /// It has been silent for all of that time.
    Lost,
}

/// Looks are counted rather than measured: a keeper that was itself stopped for a while sees no silence in that.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    sleeps: Option<u64>,
    silent: u32,
}

impl Pulse {
    /// The time from one look to the next.
    pub(super) fn interval(patience: Duration) -> Duration {
        patience / LOOKS
    }

    /// Looks at a process.
    pub(super) fn look(&mut self, id: u32) -> Life {
        self.seen(proc::sleeps(id))
    }

    /// It answered.
    pub(super) fn reset(&mut self) {
        self.silent = 0;
    }

    fn seen(&mut self, sleeps: Option<u64>) -> Life {
        self.silent = if sleeps == self.sleeps { self.silent + 1 } else { 0 };
        self.sleeps = sleeps;
        match self.silent {
            LOOKS.. => Life::Lost,
            silent if silent >= LOOKS / 2 => Life::Silent,
            _ => Life::Shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_never_sleeps_is_silent_after_half_of_the_looks_and_lost_after_all() {
        let mut pulse = Pulse::default();
        let mut look = |sleeps| pulse.seen(Some(sleeps));
        assert_eq!([1, 2, 2, 2, 2].map(&mut look), [Life::Shown; 5]);
        assert_eq!([2, 2].map(&mut look), [Life::Silent; 2]);
        assert_eq!([3, 3, 3, 3].map(&mut look), [Life::Shown; 4]);
        assert_eq!(look(3), Life::Silent);
        assert_eq!([3; 3].map(&mut look), [Life::Silent; 3]);
        assert_eq!([3; 2].map(&mut look), [Life::Lost; 2]);
        pulse.reset();
        assert_eq!(pulse.seen(Some(3)), Life::Shown);
    }

    #[test]
    fn patience_is_five_adverts_and_no_less_than_a_second() {
        for (millis, holds, expected) in [
            (30, true, 1000),
            (100, true, 1000),
            (1000, true, 5000),
            (100, false, 10_000),
            (40_000, true, 200_000),
            (40_000, false, 200_000),
        ] {
            let found = patience(Duration::from_millis(millis), holds);
            assert_eq!(found.as_millis(), expected, "{millis} ms, {holds}");
        }
    }
}
