//! What a [`Sampler`](super::Sampler) saw: which node held which address, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::sampler::INTERVAL;

/// A time during which a node held an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub node: String,
    pub from: Instant,
    /// `None` if it still held it when the record was made.
    pub until: Option<Instant>,
    /// Until when it held it for certain: it was heard at `until` that it does no longer.
    certain: Option<Instant>,
}

impl Holding {
    fn is_at(&self, time: Instant) -> bool {
        self.from <= time && self.until.is_none_or(|until| time < until)
    }
}

/// How much an address was held by two nodes or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Doubled {
    /// Samples that prove it.
    pub samples: usize,
    /// The longest time, and all times together, as far as the kernels' events leave no doubt: a sampler that a busy
    /// machine stopped for a while sees less than there was, and never more.
    pub longest: Duration,
    pub total: Duration,
}

impl Doubled {
    /// Whether no two nodes held it longer than a node takes to give up what another one has just taken, of which no
    /// sample needs to know.
    pub fn is_none(self) -> bool {
        self.samples == 0 && self.longest <= INTERVAL
    }
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
    at: Instant,
    nodes: Vec<String>,
}

/// What was seen until now.
#[derive(Clone, Debug)]
pub struct Record {
    begin: Instant,
    /// When the last sample began and when it ended.
    looked: Instant,
    last: Instant,
    samples: usize,
    /// Each that was longer than it should be, by its end.
    pauses: Vec<(Instant, Duration)>,
    holdings: BTreeMap<IpAddr, Vec<Holding>>,
    /// By node, what it holds now.
    held: BTreeMap<String, BTreeSet<IpAddr>>,
    doubles: BTreeMap<IpAddr, Vec<Double>>,
}

impl Record {
    pub(super) fn new(begin: Instant) -> Self {
        let (pauses, holdings, held, doubles) = Default::default();
        Self { begin, looked: begin, last: begin, samples: 0, pauses, holdings, held, doubles }
    }

    /// A node holds an address from now on. To hear it twice changes nothing.
    pub(super) fn held(&mut self, node: &str, address: IpAddr, at: Instant) {
        if self.held.entry(node.to_owned()).or_default().insert(address) {
            let holding = Holding { node: node.to_owned(), from: at, until: None, certain: None };
            self.holdings.entry(address).or_default().push(holding);
        }
    }

    /// A node no longer holds an address, which it gave up at some time after it was looked at before.
    pub(super) fn left(&mut self, node: &str, address: IpAddr, before: Instant, at: Instant) {
        if !self.held.get_mut(node).is_some_and(|held| held.remove(&address)) {
            return;
        }
        let mut holdings = self.holdings.get_mut(&address).into_iter().flatten();
        if let Some(open) = holdings.find(|it| it.until.is_none() && it.node == node) {
            open.until = Some(at);
            open.certain = Some(before.max(open.from));
        }
    }

    /// A node holds exactly these addresses from now on, and was looked at before.
    pub(super) fn holds(
        &mut self,
        node: &str,
        addresses: &BTreeSet<IpAddr>,
        before: Instant,
        at: Instant,
    ) {
        let held = self.held.get(node).cloned().unwrap_or_default();
        for address in held.difference(addresses) {
            self.left(node, *address, before, at);
        }
        for address in addresses.difference(&held) {
            self.held(node, *address, at);
        }
    }

    /// A sample is complete, which began at another time: what left before it is known.
    pub(super) fn sampled(&mut self, began: Instant, at: Instant) {
        let pause = at.saturating_duration_since(self.last);
        if pause > INTERVAL {
            self.pauses.push((at, pause));
        }
        self.looked = began;
        self.last = at;
        self.samples += 1;
    }

    /// In the sample being taken, these nodes held an address together.
    pub(super) fn doubled_by(&mut self, address: IpAddr, nodes: Vec<String>, at: Instant) {
        let double = Double { at, nodes };
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
                holding.certain = holding.certain.map(|until| until.max(begin));
            }
        }
        for doubles in self.doubles.values_mut() {
            doubles.retain(|double| double.at >= begin);
        }
        self.pauses.retain(|(end, _)| *end > begin);
        self
    }

    /// The number of samples since the sampler began.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The longest time between two samples, which tells how much a busy machine may have hidden: what two nodes held
    /// for less. What came and stayed was seen anyway.
    pub fn longest_pause(&self) -> Duration {
        let longest = self.pauses.iter().map(|(_, pause)| *pause).max();
        longest.unwrap_or(INTERVAL)
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
    /// one common moment. Times are those from when the second of two nodes was heard to have it to when one of them
    /// was last known to have it. A move from one node to another is never taken for a double.
    pub fn doubled(&self, address: IpAddr, living: &[&str]) -> Doubled {
        let all = self.doubles.get(&address).map_or(&[][..], Vec::as_slice);
        let counts = |double: &&Double| {
            double.nodes.iter().filter(|node| living.contains(&node.as_str())).count() > 1
        };
        let mut doubled =
            Doubled { samples: all.iter().filter(counts).count(), ..Doubled::default() };
        // By when they begin: what one has in common with those before is over when they are.
        let mut held_until: Option<Instant> = None;
        let mut doubled_until: Option<(Instant, Instant)> = None;
        for (from, until) in self.certain(address, living) {
            let both =
                held_until.map(|held| (from, until.min(held))).filter(|(from, to)| from < to);
            held_until = held_until.max(Some(until));
            let Some((from, to)) = both else { continue };
            let (begin, from) = match doubled_until {
                Some((begin, end)) if end >= from => (begin, end),
                _ => (from, from),
            };
            let to = to.max(from);
            doubled.total += to - from;
            doubled.longest = doubled.longest.max(to - begin);
            doubled_until = Some((begin, to));
        }
        doubled
    }

    /// When some of the nodes held an address for certain, by when it began.
    fn certain(&self, address: IpAddr, nodes: &[&str]) -> impl Iterator<Item = (Instant, Instant)> {
        let theirs = self.holdings(address).iter().filter(|it| nodes.contains(&it.node.as_str()));
        theirs.filter_map(|it| {
            let until = it.until.map_or(Some(self.looked), |_| it.certain)?;
            (it.from < until).then_some((it.from, until))
        })
    }

    /// Every address that was held by two or more of the `living` nodes.
    pub fn all_doubled(&self, living: &[&str]) -> BTreeMap<IpAddr, Doubled> {
        let all = self.addresses().map(|address| (address, self.doubled(address, living)));
        all.filter(|(_, doubled)| !doubled.is_none()).collect()
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

    /// n1 holds from 100 to 200, n2 from 300 to 600, for certain until 580, n3 from 500 on; samples every 100, the last
    /// at 900.
    fn record(begin: Instant) -> Record {
        let mut record = Record::new(begin);
        let at = |time| begin + ms(time);
        record.held("n1", VIP, at(100));
        record.held("n1", VIP, at(110));
        record.left("n1", VIP, at(190), at(200));
        record.left("n1", VIP, at(200), at(210));
        record.holds("n2", &BTreeSet::from([VIP]), at(290), at(300));
        record.held("n3", VIP, at(500));
        record.holds("n2", &BTreeSet::new(), at(580), at(600));
        for time in 1..10 {
            if [5, 6, 8].contains(&time) {
                record.doubled_by(VIP, vec!["n2".into(), "n3".into()], at(time * 100));
            }
            record.sampled(at(time * 100), at(time * 100));
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
    fn a_double_counts_only_among_living_nodes_and_lasts_as_long_as_is_certain() {
        let record = record(Instant::now());
        let expected = Doubled { samples: 3, longest: ms(80), total: ms(80) };
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
        let doubled = Doubled { samples: 2, longest: ms(30), total: ms(30) };
        assert_eq!(record.doubled(VIP, &ALL), doubled);
    }

    #[test]
    fn doubles_between_samples_are_seen_and_add_up_while_moves_are_none() {
        let begin = Instant::now();
        let at = |time| begin + ms(time);
        let mut record = Record::new(begin);
        record.held("n1", VIP, at(100));
        // Heard late: the other may have left long before.
        record.held("n2", VIP, at(200));
        record.left("n1", VIP, at(150), at(230));
        assert!(record.doubled(VIP, &ALL).is_none());
        for time in [300, 400, 500] {
            record.held("n3", VIP, at(time));
            record.left("n3", VIP, at(time + 8), at(time + 9));
        }
        record.sampled(at(600), at(601));
        let doubled = record.doubled(VIP, &ALL);
        assert_eq!(doubled, Doubled { samples: 0, longest: ms(8), total: ms(24) });
        assert!(doubled.is_none() && record.all_doubled(&ALL).is_empty());
        record.held("n1", VIP, at(610));
        record.held("n3", VIP, at(620));
        record.left("n2", VIP, at(630), at(630));
        record.left("n1", VIP, at(640), at(640));
        record.sampled(at(650), at(651));
        let doubled = record.doubled(VIP, &ALL);
        assert_eq!(doubled, Doubled { samples: 0, longest: ms(30), total: ms(54) });
        assert!(record.all_doubled(&ALL).contains_key(&VIP));
        assert_eq!(record.longest_pause(), ms(601));
        record.sampled(at(655), at(656));
        assert_eq!(record.clone().since(at(602)).longest_pause(), ms(50));
        assert_eq!(record.since(at(652)).longest_pause(), INTERVAL);
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
