//! How often something may be done: at once after a rest, and at most so often in a row.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Throttle {
    interval: Duration,
    next: Option<Instant>,
}

impl Throttle {
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, next: None }
    }

    /// When it may be done next: now, or later.
    pub(super) fn next(&self, now: Instant) -> Instant {
        self.next.map_or(now, |next| next.max(now))
    }

    pub(super) fn done(&mut self, now: Instant) {
        self.next = Some(now + self.interval);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, sleep_until};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_is_at_once_and_a_burst_is_stretched() {
        let start = Instant::now();
        let mut throttle = Throttle::new(Duration::from_millis(500));
        let mut done = Vec::new();
        for rest in [0, 0, 0, 100, 2000, 0] {
            sleep(Duration::from_millis(rest)).await;
            sleep_until(throttle.next(Instant::now())).await;
            throttle.done(Instant::now());
            done.push(start.elapsed().as_millis());
        }
        assert_eq!(done, [0, 500, 1000, 1500, 3500, 4000]);
    }
}
