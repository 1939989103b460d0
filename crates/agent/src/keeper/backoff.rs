//! How long to wait before something that keeps failing is tried again.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    /// Whatever lasted so long was no failure.
    settled: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(first: Duration, longest: Duration, settled: Duration) -> Self {
        Self { first, longest, settled, next: Duration::ZERO }
    }

    /// How long to wait after something that lasted so long. The first time it is no time at all.
    pub(super) fn after(&mut self, lasted: Duration) -> Duration {
        if lasted >= self.settled {
            self.reset();
        }
        let wait = self.next;
        self.next = (wait * 2).clamp(self.first, self.longest);
        wait
    }

    pub(super) fn reset(&mut self) {
        self.next = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_longest_and_start_again_after_a_success() {
        let millis = Duration::from_millis;
        let mut backoff = Backoff::new(millis(100), millis(500), millis(1000));
        let mut waits = |lasted: [u64; 6]| lasted.map(|it| backoff.after(millis(it)).as_millis());
        assert_eq!(waits([0, 0, 999, 0, 0, 0]), [0, 100, 200, 400, 500, 500]);
        assert_eq!(waits([1000, 0, 0, 5000, 0, 0]), [0, 100, 200, 0, 100, 200]);
    }
}
