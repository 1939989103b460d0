//! What a [`Sampler`](super::Sampler) saw: which node held which address, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A time during which a node held an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub node: String,
    pub from: Instant,
    /// `None` if it still held it when the record was made.
    pub until: Option<Instant>,
}

impl Holding {
    fn is_at(&self, time: Instant) -> bool {
        self.from <= time && self.until.is_none_or(|until| time < until)
    }
}

/// How much an address was held by two nodes or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubled {
    pub samples: usize,
    /// The longest time from the first to the last of samples that follow each other; zero for a single one.
    pub longest: Duration,
}

/// The first node that took an address after a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub node: String,
    pub after: Duration,
}

/// One sample in which several nodes held an address, each for the whole of one common moment.
#[derive(Clone, Debug)]
struct Double {
    sample: usize,
    at: Instant,
    nodes: Vec<String>,
}

/// What was seen until now.
#[derive(Clone, Debug)]
pub struct Record {
    begin: Instant,
    last: Instant,
    samples: usize,
    longest_pause: Duration,
    holdings: BTreeMap<IpAddr, Vec<Holding>>,
    /// By node, what it holds now.
    held: BTreeMap<String, BTreeSet<IpAddr>>,
    doubles: BTreeMap<IpAddr, Vec<Double>>,
}

impl Record {
    pub(super) fn new(begin: Instant) -> Self {
        let (holdings, held, doubles) = Default::default();
        let longest_pause = Duration::ZERO;
        Self { begin, last: begin, samples: 0, longest_pause, holdings, held, doubles }
    }

    /// A node holds an address from now on. To hear it twice changes nothing.
    pub(super) fn held(&mut self, node: &str, address: IpAddr, at: Instant) {
        if self.held.entry(node.to_owned()).or_default().insert(address) {
            let holding = Holding { node: node.to_owned(), from: at, until: None };
            self.holdings.entry(address).or_default().push(holding);
        }
    }

    /// A node no longer holds an address.
    pub(super) fn left(&mut self, node: &str, address: IpAddr, at: Instant) {
        if !self.held.get_mut(node).is_some_and(|held| held.remove(&address)) {
            return;
        }
        let mut holdings = self.holdings.get_mut(&address).into_iter().flatten();
        if let Some(open) = holdings.find(|it| it.until.is_none() && it.node == node) {
            open.until = Some(at);
        }
    }

    /// A node holds exactly these addresses from now on.
    pub(super) fn holds(&mut self, node: &str, addresses: &BTreeSet<IpAddr>, at: Instant) {
        let held = self.held.get(node).cloned().unwrap_or_default();
        for address in held.difference(addresses) {
            self.left(node, *address, at);
        }
        for address in addresses.difference(&held) {
            self.held(node, *address, at);
        }
    }

    /// A sample is complete.
    pub(super) fn sampled(&mut self, at: Instant) {
        self.longest_pause = self.longest_pause.max(at.saturating_duration_since(self.last));
        self.last = at;
        self.samples += 1;
    }

    /// In the sample being taken, these nodes held an address together.
    pub(super) fn doubled_by(&mut self, address: IpAddr, nodes: Vec<String>, at: Instant) {
        let double = Double { sample: self.samples, at, nodes };
        self.doubles.entry(address).or_default().push(double);
    }

    /// What was seen since a moment: everything before is forgotten, and what was held then is held from then.
    #[must_use]
    pub fn since(mut self, begin: Instant) -> Self {
        self.begin = self.begin.max(begin);
        for holdings in self.holdings.values_mut() {
            holdings.retain(|it| it.until.is_none_or(|until| until > begin));
            for holding in holdings {
                holding.from = holding.from.max(begin);
            }
        }
        for doubles in self.doubles.values_mut() {
            doubles.retain(|double| double.at >= begin);
        }
        self
    }

    /// The number of samples since the sampler began.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The longest time between two samples since the sampler began, which tells how much a busy machine may have hidden. What came
    /// and stayed was seen anyway.
    pub fn longest_pause(&self) -> Duration {
        self.longest_pause
    }

    /// When it began.
    pub fn begin(&self) -> Instant {
        self.begin
    }

    /// The time of the last sample.
    pub fn last(&self) -> Instant {
        self.last
    }

    /// Every address that any node ever held, without those of `lo`.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.holdings.keys().copied()
    }

    /// Who held an address when, by the time it began.
    pub fn holdings(&self, address: IpAddr) -> &[Holding] {
        self.holdings.get(&address).map_or(&[], Vec::as_slice)
    }

    /// The nodes that hold an address now.
    pub fn holders(&self, address: IpAddr) -> Vec<&str> {
        let now = self.holdings(address).iter().filter(|it| it.until.is_none());
        now.map(|it| it.node.as_str()).collect()
    }

    /// The nodes that held an address at a moment.
    pub fn holders_at(&self, address: IpAddr, at: Instant) -> Vec<&str> {
        let then = self.holdings(address).iter().filter(|it| it.is_at(at));
        then.map(|it| it.node.as_str()).collect()
    }

    /// How much an address was held by two or more of the `living` nodes.
    ///
    /// It counts only samples that prove it: each of the nodes was seen to hold the address before and after
    /// one common moment. A move from one node to another is never taken for a double.
    pub fn doubled(&self, address: IpAddr, living: &[&str]) -> Doubled {
        let all = self.doubles.get(&address).map_or(&[][..], Vec::as_slice);
        let counts = |double: &&Double| {
            double.nodes.iter().filter(|node| living.contains(&node.as_str())).count() > 1
        };
        let mut doubled = Doubled::default();
        let mut run: Option<(Instant, usize)> = None;
        for double in all.iter().filter(counts) {
            let begin = match run {
                Some((begin, previous)) if double.sample == previous + 1 => begin,
                _ => double.at,
            };
            run = Some((begin, double.sample));
            doubled.samples += 1;
            doubled.longest = doubled.longest.max(double.at.duration_since(begin));
        }
        doubled
    }

    /// Every address that was held by two or more of the `living` nodes.
    pub fn all_doubled(&self, living: &[&str]) -> BTreeMap<IpAddr, Doubled> {
        let all = self.doubles.keys().map(|address| (*address, self.doubled(*address, living)));
        all.filter(|(_, doubled)| doubled.samples > 0).collect()
    }

    /// The longest time since `from` in which none of the `living` nodes held an address.
    pub fn gap(&self, address: IpAddr, from: Instant, living: &[&str]) -> Duration {
        let theirs = self.holdings(address).iter().filter(|it| living.contains(&it.node.as_str()));
        let mut longest = Duration::ZERO;
        let mut held_until = from;
        // They are in the order in which they began.
        for holding in theirs {
            longest = longest.max(holding.from.saturating_duration_since(held_until));
            held_until = held_until.max(holding.until.unwrap_or(self.last));
        }
        longest.max(self.last.saturating_duration_since(held_until))
    }

    /// The first node other than `from` that took an address at or after a moment.
    pub fn taken(&self, address: IpAddr, from: &str, at: Instant) -> Option<Taken> {
        let mut others = self.holdings(address).iter().filter(|it| it.node != from);
        let first = others.find(|it| it.from >= at)?;
        Some(Taken { node: first.node.clone(), after: first.from - at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 1, 1));
    const ALL: [&str; 3] = ["n1", "n2", "n3"];

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// n1 holds from 100 to 200, n2 from 300 to 600, n3 from 500 on; samples every 100, the last at 900.
    fn record(begin: Instant) -> Record {
        let mut record = Record::new(begin);
        let at = |time| begin + ms(time);
        record.held("n1", VIP, at(100));
        record.held("n1", VIP, at(110));
        record.left("n1", VIP, at(200));
        record.left("n1", VIP, at(210));
        record.holds("n2", &BTreeSet::from([VIP]), at(300));
        record.held("n3", VIP, at(500));
        record.holds("n2", &BTreeSet::new(), at(600));
        for time in 1..10 {
            if [5, 6, 8].contains(&time) {
                record.doubled_by(VIP, vec!["n2".into(), "n3".into()], at(time * 100));
            }
            record.sampled(at(time * 100));
        }
        record
    }

    #[test]
    fn holders_are_those_whose_time_has_begun_and_not_ended() {
        let begin = Instant::now();
        let record = record(begin);
        for (time, holders) in [
            (0, &[][..]),
            (100, &["n1"]),
            (199, &["n1"]),
            (200, &[]),
            (550, &["n2", "n3"]),
            (600, &["n3"]),
            (9000, &["n3"]),
        ] {
            assert_eq!(record.holders_at(VIP, begin + ms(time)), holders, "at {time}");
        }
        assert_eq!(record.holders(VIP), ["n3"]);
        assert_eq!(record.holdings(VIP).len(), 3);
        assert_eq!((record.samples(), record.longest_pause()), (9, ms(100)));
    }

    #[test]
    fn a_double_counts_only_among_living_nodes_and_lasts_while_samples_follow_each_other() {
        let record = record(Instant::now());
        let expected = Doubled { samples: 3, longest: ms(100) };
        assert_eq!(record.doubled(VIP, &ALL), expected);
        assert_eq!(record.all_doubled(&ALL), BTreeMap::from([(VIP, expected)]));
        assert_eq!(record.doubled(VIP, &["n1", "n2"]), Doubled::default());
        assert!(record.all_doubled(&["n3"]).is_empty());
    }

    #[test]
    fn what_was_before_a_moment_is_forgotten() {
        let begin = Instant::now();
        let record = record(begin).since(begin + ms(550));
        let nodes: Vec<_> = record.holdings(VIP).iter().map(|it| it.node.as_str()).collect();
        assert_eq!(nodes, ["n2", "n3"]);
        assert_eq!(record.holders_at(VIP, begin + ms(540)), Vec::<&str>::new());
        assert_eq!(record.holders_at(VIP, begin + ms(550)), ["n2", "n3"]);
        assert_eq!(record.doubled(VIP, &ALL), Doubled { samples: 2, longest: ms(0) });
    }

    #[test]
    fn a_gap_is_the_longest_time_without_a_living_holder() {
        let begin = Instant::now();
        let record = record(begin);
        for (from, living, gap) in [
            (0, &ALL[..], 100),
            (100, &ALL, 100),
            (250, &ALL, 50),
            (300, &ALL, 0),
            (300, &["n1", "n2"], 300),
            (300, &["n1"], 600),
            (0, &["n3"], 500),
        ] {
            assert_eq!(record.gap(VIP, begin + ms(from), living), ms(gap), "{from} {living:?}");
        }
        let never = IpAddr::from([10, 77, 9, 9]);
        assert_eq!(record.gap(never, begin, &ALL), ms(900));
    }

    #[test]
    fn an_address_is_taken_by_the_first_other_node() {
        let begin = Instant::now();
        let record = record(begin);
        let taken = |from, time| record.taken(VIP, from, begin + ms(time));
        let by = |node: &str, after| Some(Taken { node: node.into(), after: ms(after) });
        assert_eq!(taken("n1", 180), by("n2", 120));
        assert_eq!(taken("n2", 180), by("n3", 320));
        assert_eq!(taken("n1", 600), None);
    }
}
