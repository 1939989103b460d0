//! Randomness that is the same in every run.

use std::ops::Range;

/// A generator good enough to shake things up, and small enough to read (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another generator, the same for the same seed and number, and different for each number.
    #[must_use]
    pub fn child(seed: u64, number: u64) -> Self {
        let mut parent = Self(seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self(parent.number())
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % bound as u64).unwrap_or_default()
    }

    /// A number of a range that is not empty.
    pub fn among(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.len())
    }

    /// Yes once in `times`; never for 0.
    pub fn once_in(&mut self, times: usize) -> bool {
        times > 0 && self.below(times) == 0
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_tells_the_whole_sequence_and_children_differ() {
        let sequence = |mut random: Random| (0..8).map(|_| random.below(1000)).collect::<Vec<_>>();
        assert_eq!(sequence(Random::new(7)), sequence(Random::new(7)));
        assert_eq!(sequence(Random::child(7, 1)), sequence(Random::child(7, 1)));
        assert_ne!(sequence(Random::child(7, 1)), sequence(Random::child(7, 2)));
        assert_ne!(sequence(Random::child(7, 1)), sequence(Random::child(8, 1)));
    }

    #[test]
    fn once_in_means_about_as_often() {
        let mut random = Random::new(1);
        let hits = (0..10_000).filter(|_| random.once_in(10)).count();
        assert!((800..1200).contains(&hits), "{hits}");
        assert!(!(0..1000).any(|_| random.once_in(0)));
        assert!((0..1000).all(|_| (3..5).contains(&random.among(3..5))));
    }
}
