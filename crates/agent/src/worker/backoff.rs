//! Growing waits between tries, a little different on each node so that all do not try in step.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    /// By how many percent the waits of this node are longer than the shortest.
    percent: u32,
    tries: u32,
}

impl Backoff {
    pub(super) fn new(node: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        node.hash(&mut hasher);
        let percent = u32::try_from(hasher.finish() % 50).unwrap_or_default();
        Self { percent, tries: 0 }
    }

    /// The wait after one more failure.
    pub(super) fn failed(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.tries.min(16)).unwrap_or(u32::MAX);
        self.tries = self.tries.saturating_add(1);
        FIRST.saturating_mul(factor).min(LONGEST) * (100 + self.percent) / 100
    }

    pub(super) fn succeeded(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_differ_between_nodes() {
        let waits = |node: &str| {
            let mut backoff = Backoff::new(node);
            let mut waits: Vec<_> = (0..8).map(|_| backoff.failed()).collect();
            backoff.succeeded();
            waits.push(backoff.failed());
            waits
        };
        for node in ["n1", "n2", "n3"] {
            let waits = waits(node);
            assert!(waits[0] >= FIRST && waits[0] < FIRST * 3 / 2, "{waits:?}");
            assert_eq!(waits[1], waits[0] * 2);
            assert!(waits[7] >= LONGEST && waits[7] < LONGEST * 3 / 2, "{waits:?}");
            assert_eq!((waits[6], waits[8]), (waits[7], waits[0]));
        }
        assert_ne!(waits("n1"), waits("n2"));
    }
}
