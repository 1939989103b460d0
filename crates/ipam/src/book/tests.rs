use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::AddrBlock;

fn blocks(text: &str) -> Vec<AddrBlock> {
    text.split_whitespace().map(|part| part.parse().unwrap()).collect()
}

fn pool(name: &str, ranges: &str, excluded: &str) -> Pool {
    Pool::new(PoolName::new(name), blocks(ranges), blocks(excluded))
}

fn book(pools: impl IntoIterator<Item = Pool>) -> Book {
    let mut book = Book::new();
    book.replace_pools(pools);
    book
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn give(book: &mut Book, name: &str) -> Result<String, Verdict> {
    let addr = book.first_free(&PoolName::new(name), Family::V4, false)?;
    assert!(book.take(addr));
    Ok(format!("{addr}"))
}

#[test]
fn addresses_come_lowest_first_without_the_excluded_ones() {
    for (ranges, excluded, expected) in [
        ("1.1.1.0/29", "", &["1.1.1.0", "1.1.1.1", "1.1.1.2"][..]),
        ("1.1.1.5/29", "", &["1.1.1.0", "1.1.1.1"]),
        ("10.1.2.3/32", "", &["10.1.2.3"]),
        ("1.1.1.0/30", "1.1.1.0 1.1.1.1 1.1.1.2 1.1.1.3", &[]),
        ("1.1.1.0/30", "1.1.1.0/31", &["1.1.1.2", "1.1.1.3"]),
        ("1.1.1.0/30", "1.1.1.0-1.1.1.2", &["1.1.1.3"]),
        ("1.1.1.0/30", "9.9.9.9", &["1.1.1.0"]),
        ("1.1.1.0/29", "1.1.1.0 1.1.1.2 1.1.1.7", &["1.1.1.1", "1.1.1.3", "1.1.1.4"]),
        ("1.1.1.4/31 1.1.1.0/31", "", &["1.1.1.0", "1.1.1.1", "1.1.1.4", "1.1.1.5"]),
    ] {
        let mut book = book([pool("p", ranges, excluded)]);
        for addr in expected {
            assert_eq!(give(&mut book, "p").as_deref(), Ok(*addr), "{ranges} minus {excluded}");
        }
        if expected.is_empty() {
            assert_eq!(give(&mut book, "p"), Err(Verdict::Full(Family::V4)));
        }
    }
}

#[test]
fn a_descending_pool_gives_its_highest_free_address_of_either_family() {
    let ranges = "10.0.0.0/29 10.0.0.20-10.0.0.21 fd00::10-fd00::12";
    for (excluded, taken, v4, v6) in [
        ("", "", "10.0.0.21", "fd00::12"),
        ("10.0.0.21", "fd00::12", "10.0.0.20", "fd00::11"),
        ("", "10.0.0.20 10.0.0.21 fd00::11", "10.0.0.7", "fd00::12"),
        ("10.0.0.2-10.0.0.20", "10.0.0.21 fd00::11 fd00::12", "10.0.0.1", "fd00::10"),
    ] {
        let mut pool = pool("p", ranges, excluded);
        pool.descending = true;
        let mut book = book([pool]);
        for addr in taken.split_whitespace() {
            book.take(ip(addr));
        }
        for (family, expected) in [(Family::V4, v4), (Family::V6, v6)] {
            let got = book.first_free(&PoolName::new("p"), family, false);
            assert_eq!(got, Ok(ip(expected)), "without {excluded} {taken}");
        }
    }
}

#[test]
fn whole_networks_cost_no_more_than_one_address() {
    let mut book = book([pool("huge", "0.0.0.0/2 fd00::/64", "0.0.0.0/8")]);
    assert_eq!(give(&mut book, "huge").as_deref(), Ok("1.0.0.0"));
    assert_eq!(book.first_free(&PoolName::new("huge"), Family::V6, false), Ok(ip("fd00::")));
    let count = book.count(&PoolName::new("huge"));
    assert_eq!(count.capacity, (1 << 64) + (1 << 30) - (1 << 24));
    assert_eq!((count.used, count.free), (1, count.capacity - 1));
}

#[test]
fn overlapping_pools_never_give_one_address_twice() {
    let mut book = book([pool("a", "10.0.0.0/30", ""), pool("b", "10.0.0.0/29", "")]);
    let mut given = alloc::collections::BTreeSet::new();
    while let Ok(addr) = give(&mut book, "a").or_else(|_| give(&mut book, "b")) {
        assert!(given.insert(addr));
    }
    assert_eq!(given.len(), 8);
}

#[test]
fn an_exclusion_in_one_pool_holds_in_every_pool_that_overlaps() {
    let book = book([pool("a", "10.0.0.0/29", ""), pool("b", "10.0.0.0/30", "10.0.0.0 10.0.0.4")]);
    // .0 is inside b, which excludes it; .4 is not inside b, so b does not matter.
    assert_eq!(book.first_free(&PoolName::new("a"), Family::V4, false), Ok(ip("10.0.0.1")));
    assert_eq!(
        book.can_give(&PoolName::new("a"), ip("10.0.0.0"), String::new),
        Err(Refusal::Excluded(ip("10.0.0.0"), PoolName::new("b")))
    );
    assert_eq!(book.can_give(&PoolName::new("a"), ip("10.0.0.4"), String::new), Ok(()));
}

#[test]
fn a_specific_address_is_given_or_refused_with_the_reason() {
    let mut drained = pool("drained", "10.9.0.0/30", "");
    drained.drain = true;
    let held = pool("held", "10.8.0.0/30", "").avoid_ends(blocks("10.8.0.0/30"));
    let mut book = book([pool("p", "10.0.0.0/29", "10.0.0.2"), drained, held]);
    book.take(ip("10.0.0.1"));
    for (name, addr, expected) in [
        ("p", "10.0.0.3", Ok(())),
        ("p", "10.0.0.1", Err(Refusal::TakenBy(ip("10.0.0.1"), "shop/web".into()))),
        ("p", "10.0.0.2", Err(Refusal::Excluded(ip("10.0.0.2"), PoolName::new("p")))),
        ("p", "10.0.0.8", Err(Refusal::OutsideEveryPool(ip("10.0.0.8")))),
        ("held", "10.8.0.0", Err(Refusal::HeldBack(ip("10.8.0.0"), PoolName::new("held")))),
        (
            "drained",
            "10.9.0.1",
            Err(Refusal::NotServed(
                ip("10.9.0.1"),
                [(PoolName::new("drained"), Verdict::Draining)].into(),
            )),
        ),
    ] {
        let got = book.can_give(&PoolName::new(name), ip(addr), || "shop/web".into());
        assert_eq!(got, expected, "{addr}");
    }
}

#[test]
fn pool_edits_move_no_holder_and_free_addresses_follow() {
    let mut book = book([pool("p", "10.0.0.0/30", "")]);
    for _ in 0..4 {
        give(&mut book, "p").unwrap();
    }
    assert_eq!(give(&mut book, "p"), Err(Verdict::Full(Family::V4)));
    book.replace_pools([pool("p", "10.0.0.2-10.0.0.5", "")]);
    assert!(book.is_taken(ip("10.0.0.0")), "an address that left its pool stays with its holder");
    assert_eq!(
        book.count(&PoolName::new("p")),
        PoolCount { capacity: 4, used: 2, free: 2 },
        "only what lies inside counts"
    );
    assert_eq!(give(&mut book, "p").as_deref(), Ok("10.0.0.4"));
    assert!(book.release(ip("10.0.0.0")));
    assert_eq!(give(&mut book, "p").as_deref(), Ok("10.0.0.5"), "and is not given again");
}

#[test]
fn an_address_that_no_service_can_have_is_never_given() {
    let mut book = book([
        pool("low", "0.0.0.0/30 ::/126", ""),
        pool("wide", "126.255.255.255-128.0.0.1 223.255.255.255-224.0.0.5", ""),
        pool("cluster", "10.96.0.0/30 10.96.0.8/30", ""),
    ]);
    book.set_cluster_ips(
        blocks("10.96.0.0/29 10.99.0.0/24").into_iter().map(AddrBlock::range).collect(),
    );
    for (name, free) in [
        ("low", "0.0.0.1 0.0.0.2 0.0.0.3"),
        ("wide", "126.255.255.255 128.0.0.0 128.0.0.1 223.255.255.255"),
        ("cluster", "10.96.0.8 10.96.0.9 10.96.0.10 10.96.0.11"),
    ] {
        for addr in free.split_whitespace() {
            assert_eq!(give(&mut book, name).as_deref(), Ok(addr));
        }
        assert_eq!(give(&mut book, name), Err(Verdict::Full(Family::V4)), "{name}");
    }
    assert_eq!(book.first_free(&PoolName::new("low"), Family::V6, false), Ok(ip("::2")));
    for (addr, why) in [
        ("0.0.0.0", Never::Unspecified),
        ("127.0.0.1", Never::Loopback),
        ("224.0.0.1", Never::Multicast),
        ("255.255.255.255", Never::Broadcast),
        ("::1", Never::Loopback),
        ("::ffff:192.0.2.1", Never::Mapped),
        ("10.96.0.1", Never::ClusterIps),
        ("10.99.0.1", Never::ClusterIps),
    ] {
        let refusal = book.offers(&PoolName::new("low"), ip(addr)).unwrap_err();
        assert_eq!(refusal, Refusal::NeverGiven(ip(addr), why));
        assert_eq!(refusal.reason(), crate::Reason::Excluded);
    }
    // An address that already has a holder there is not affected.
    assert!(book.take(ip("10.96.0.1")));
    assert!(book.release(ip("10.96.0.1")));
    assert_eq!(give(&mut book, "cluster"), Err(Verdict::Full(Family::V4)), "and not given after");
    book.set_cluster_ips(AddrSet::new());
    assert_eq!(give(&mut book, "cluster").as_deref(), Ok("10.96.0.0"));
}

#[test]
fn pools_that_share_an_address_name_each_other() {
    for (pools, expected) in [
        (&[("a", "10.0.0.0/24"), ("b", "10.0.1.0/24"), ("c", "fd00::/64")][..], &[][..]),
        (&[("a", "10.0.0.0/24"), ("b", "10.0.0.255-10.0.1.9")], &[("a", "b"), ("b", "a")]),
        (
            &[
                ("a", "10.0.0.0/16"),
                ("b", "10.0.1.0/24"),
                ("c", "10.0.2.0/24 10.0.1.7"),
                ("d", "10.1.0.0"),
            ],
            &[("a", "b c"), ("b", "a c"), ("c", "a b")],
        ),
        (
            &[("a", "10.0.0.0/24 fd00::1"), ("b", "10.9.0.0/24 fd00::/64")],
            &[("a", "b"), ("b", "a")],
        ),
        (
            &[("a", "10.0.0.5 10.0.0.5"), ("b", "10.0.0.0/29"), ("c", "10.0.0.6")],
            &[("a", "b"), ("b", "a c"), ("c", "b")],
        ),
    ] {
        let book = book(pools.iter().map(|(name, ranges)| pool(name, ranges, "")));
        let found: Vec<(String, String)> = book
            .overlaps()
            .into_iter()
            .map(|(name, others)| {
                let others: Vec<_> = others.iter().map(PoolName::as_str).collect();
                (String::from(name.as_str()), others.join(" "))
            })
            .collect();
        let found: Vec<_> = found.iter().map(|(name, others)| (&**name, &**others)).collect();
        assert_eq!(found, expected, "{pools:?}");
    }
}

#[test]
fn pools_are_asked_by_priority_then_name() {
    let mut first = pool("z", "10.0.0.0/30", "");
    first.priority = 1;
    let book = book([pool("b", "10.1.0.0/30", ""), first, pool("a", "10.2.0.0/30", "")]);
    let names: Vec<_> = book.pools().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["z", "a", "b"]);
}

/// A step of the model: one thing that may happen to a book.
#[derive(Clone, Debug)]
enum Step {
    GiveFirst(usize),
    Take(u8),
    Release(u8),
    /// It is no longer known which pool gave the address.
    Forget(u8),
    Edit(usize, u8, u8, u8),
    TurnRound(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..2usize).prop_map(Step::GiveFirst),
        2 => (0..40u8).prop_map(Step::Take),
        3 => (0..40u8).prop_map(Step::Release),
        1 => (0..40u8).prop_map(Step::Forget),
        1 => (0..2usize, 0..32u8, 0..32u8, 0..40u8)
            .prop_map(|(pool, a, b, excluded)| Step::Edit(pool, a.min(b), a.max(b), excluded)),
        1 => (0..2usize).prop_map(Step::TurnRound),
    ]
}

/// The same as [`Book`], done naively one address at a time.
#[derive(Default)]
struct Naive {
    ranges: [(u8, u8); 2],
    excluded: [u8; 2],
    descending: [bool; 2],
    /// With the pool that gave it, if one did.
    taken: BTreeMap<u8, Option<usize>>,
}

impl Naive {
    fn covers(&self, pool: usize, addr: u8) -> bool {
        (self.ranges[pool].0..=self.ranges[pool].1).contains(&addr)
    }

    fn usable(&self, pool: usize, addr: u8) -> bool {
        self.covers(pool, addr)
            && !(0..2).any(|other| self.covers(other, addr) && self.excluded[other] == addr)
    }

    fn first(&self, pool: usize) -> Option<u8> {
        let mut free =
            (0..64).filter(|addr| self.usable(pool, *addr) && !self.taken.contains_key(addr));
        if self.descending[pool] { free.next_back() } else { free.next() }
    }

    /// The giver as long as it covers the address, else the first pool that does.
    fn counted_for(&self, addr: u8) -> Option<usize> {
        let giver = self.taken.get(&addr)?.filter(|giver| self.covers(*giver, addr));
        giver.or_else(|| (0..2).find(|pool| self.covers(*pool, addr)))
    }

    /// Replaces the book's pools and then repeats which pool gave each address, as callers must.
    fn replace_pools(&self, book: &mut Book) {
        book.replace_pools(self.pools());
        for (last, giver) in &self.taken {
            let giver = giver.map(|giver| PoolName::new(&format!("{giver}")));
            book.count_for(IpAddr::from([10, 0, 0, *last]), giver.as_ref());
        }
    }

    fn count(&self, pool: usize) -> PoolCount {
        let count = |test: &dyn Fn(u8) -> bool| (0..64).filter(|addr| test(*addr)).count() as u128;
        PoolCount {
            capacity: count(&|addr| self.usable(pool, addr)),
            used: count(&|addr| self.counted_for(addr) == Some(pool)),
            free: count(&|addr| self.usable(pool, addr) && !self.taken.contains_key(&addr)),
        }
    }

    fn pools(&self) -> [Pool; 2] {
        [0, 1].map(|n| {
            let (first, last) = self.ranges[n];
            let ranges = format!("10.0.0.{first}-10.0.0.{last}");
            let excluded = format!("10.0.0.{}", self.excluded[n]);
            let mut pool = pool(&format!("{n}"), &ranges, &excluded);
            pool.descending = self.descending[n];
            pool
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_book_agrees_with_counting_one_by_one(steps in prop::collection::vec(step(), 1..80)) {
        let addr = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut naive = Naive { ranges: [(0, 15), (8, 31)], excluded: [3, 9], ..Naive::default() };
        let mut book = book(naive.pools());
        for step in steps {
            match step {
                Step::GiveFirst(pool) => {
                    let name = PoolName::new(&format!("{pool}"));
                    let got = book.first_free(&name, Family::V4, false).ok();
                    prop_assert_eq!(got, naive.first(pool).map(addr));
                    if let Some(first) = naive.first(pool) {
                        prop_assert!(book.take(addr(first)));
                        book.count_for(addr(first), Some(&name));
                        naive.taken.insert(first, Some(pool));
                    }
                }
                Step::Take(last) => {
                    let new = !naive.taken.contains_key(&last);
                    prop_assert_eq!(book.take(addr(last)), new);
                    naive.taken.entry(last).or_insert(None);
                }
                Step::Forget(last) => {
                    book.count_for(addr(last), None);
                    naive.taken.entry(last).and_modify(|giver| *giver = None);
                }
                Step::Release(last) => {
                    prop_assert_eq!(book.release(addr(last)), naive.taken.remove(&last).is_some());
                }
                Step::Edit(pool, first, last, excluded) => {
                    naive.ranges[pool] = (first, last);
                    naive.excluded[pool] = excluded;
                    naive.replace_pools(&mut book);
                }
                Step::TurnRound(pool) => {
                    naive.descending[pool] = !naive.descending[pool];
                    naive.replace_pools(&mut book);
                }
            }
            for pool in 0..2 {
                prop_assert_eq!(
                    book.count(&PoolName::new(&format!("{pool}"))),
                    naive.count(pool)
                );
            }
        }
    }
}
