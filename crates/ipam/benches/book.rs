//! What one address costs in a book with many taken: it must grow no faster than their logarithm.
//!
//! `cargo bench -p landfall-ipam`
#![expect(clippy::expect_used, reason = "a bench that cannot be set up measures nothing")]

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::{Duration, Instant},
};

use criterion::{Criterion, criterion_group, criterion_main};
use landfall_ipam::{AddrBlock, Book, Family, Pool, PoolName};

const POOLS: [(&str, &str); 2] = [("v4-8", "10.0.0.0/8"), ("v6-64", "fd00::/64")];
/// One leaves no gap; two leaves a gap after each address, so that each is an interval of its own.
const LAYOUTS: [(&str, u32); 2] = [("contiguous", 1), ("fragmented", 2)];
const TAKEN: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Timed together, because reading the clock takes as long as one of them; then undone.
const BATCH: u32 = 64;
/// Coprime to every number of taken addresses: steps of this size visit them all, out of order.
const SPREAD: u32 = 7_919;

struct Bench {
    book: Book,
    pool: PoolName,
    first: IpAddr,
    taken: u32,
    stride: u32,
}

impl Bench {
    fn new(cidr: &str, taken: u32, stride: u32) -> Self {
        let block: AddrBlock = cidr.parse().expect("a pool of the bench is a CIDR");
        let pool = PoolName::new("pool/bench");
        let mut book = Book::new();
        book.replace_pools([Pool::new(pool.clone(), [block], [])]);
        let mut bench = Self { book, pool, first: block.range().first(), taken, stride };
        for index in 0..taken {
            let addr = bench.taken_at(index);
            bench.book.take(addr);
        }
        bench
    }

    fn taken_at(&self, index: u32) -> IpAddr {
        let offset = index % self.taken * self.stride;
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first) + offset).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first) + u128::from(offset)).into(),
        }
    }

    /// Some taken addresses from all over the pool, others for each batch.
    fn some_taken(&self, number: u64, size: u32) -> Vec<IpAddr> {
        let start = u32::try_from(number % u64::from(self.taken)).unwrap_or_default();
        (0..size).map(|step| self.taken_at(start + step * SPREAD)).collect()
    }

    /// Gives the first free addresses, and takes them back when the clock has stopped.
    fn give_first(&mut self, size: u32) -> Duration {
        let mut given = Vec::with_capacity(BATCH as usize);
        let family = Family::of(self.first);
        let began = Instant::now();
        for _ in 0..size {
            if let Ok(addr) = self.book.first_free(&self.pool, family, false) {
                self.book.take(addr);
                given.push(addr);
            }
        }
        let time = began.elapsed();
        for addr in given {
            self.book.release(addr);
        }
        time
    }

    /// Releases addresses from all over the pool, asks for each of them, and takes them again; gives
    /// the times of the first two.
    fn release_and_judge(&mut self, number: u64, size: u32) -> (Duration, Duration) {
        let addrs = self.some_taken(number, size);
        let began = Instant::now();
        for addr in &addrs {
            self.book.release(*addr);
        }
        let released = began.elapsed();
        let began = Instant::now();
        for addr in &addrs {
            black_box(self.book.can_give(&self.pool, *addr, String::new).is_ok());
        }
        let judged = began.elapsed();
        for addr in addrs {
            self.book.take(addr);
        }
        (released, judged)
    }
}

/// The time of so many operations, measured batch by batch; each is told its number and its size.
fn of_batches(rounds: u64, mut batch: impl FnMut(u64, u32) -> Duration) -> Duration {
    let whole = (0..rounds / u64::from(BATCH)).map(|number| (number, BATCH));
    let rest = u32::try_from(rounds % u64::from(BATCH)).unwrap_or_default();
    whole.chain([(rounds, rest)]).map(|(number, size)| batch(number, size)).sum()
}

fn book(criterion: &mut Criterion) {
    for (pool, cidr) in POOLS {
        for (layout, stride) in LAYOUTS {
            for taken in TAKEN {
                let mut bench = Bench::new(cidr, taken, stride);
                let id = |what| format!("{what}/{pool}/{layout}/{taken}");
                criterion.bench_function(&id("first_free+take"), |bencher| {
                    bencher
                        .iter_custom(|rounds| of_batches(rounds, |_, size| bench.give_first(size)));
                });
                criterion.bench_function(&id("can_give"), |bencher| {
                    bencher.iter_custom(|rounds| {
                        of_batches(rounds, |number, size| bench.release_and_judge(number, size).1)
                    });
                });
                criterion.bench_function(&id("release"), |bencher| {
                    bencher.iter_custom(|rounds| {
                        of_batches(rounds, |number, size| bench.release_and_judge(number, size).0)
                    });
                });
            }
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .without_plots();
    targets = book
}
criterion_main!(benches);
