//! How long the planner itself takes for one Service, with many addresses taken.
//!
//! `cargo bench -p landfall-controllers --features bench`
#![expect(clippy::expect_used, reason = "a bench that cannot be set up measures nothing")]

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use landfall_controllers::services::rig::PlannerRig;
use landfall_ipam::{AddrBlock, AddrRange};

const POOLS: [(&str, &str); 2] = [("v4-8", "10.0.0.0/8"), ("v6-64", "fd00::/64")];
const LAYOUTS: [(&str, u32); 2] = [("contiguous", 1), ("fragmented", 2)];
const TAKEN: [u32; 3] = [1_000, 10_000, 100_000];
const WAITING: u32 = 1_000;

/// A Service comes and is served, asks for an address and is served, and goes again.
fn with_room(criterion: &mut Criterion) {
    for (pool_name, pool) in POOLS {
        let pool = range(pool);
        for (layout, stride) in LAYOUTS {
            for taken in TAKEN {
                let mut rig = PlannerRig::new(pool, taken, stride);
                let id = |what| format!("{what}/{pool_name}/{layout}/{taken}");
                criterion.bench_function(&id("allocate"), |bencher| {
                    bencher.iter_custom(|rounds| {
                        (0..rounds).map(|_| served(&mut rig, |rig| rig.arrive(pool.family()))).sum()
                    });
                });
                let last = pool.last();
                criterion.bench_function(&id("allocate-specific"), |bencher| {
                    bencher.iter_custom(|rounds| {
                        (0..rounds).map(|_| served(&mut rig, |rig| rig.arrive_asking(last))).sum()
                    });
                });
                criterion.bench_function(&id("release"), |bencher| {
                    bencher.iter_custom(|rounds| {
                        let release = |_| {
                            rig.arrive(pool.family());
                            rig.leave()
                        };
                        (0..rounds).map(release).sum()
                    });
                });
            }
        }
    }
}

/// A Service is served, and goes again so that the next finds the planner as it was.
fn served(rig: &mut PlannerRig, arrive: impl FnOnce(&mut PlannerRig) -> Duration) -> Duration {
    let time = arrive(rig);
    assert_eq!(rig.shown().len(), 1, "there is room, so it is served");
    rig.leave();
    time
}

/// A Service comes while others wait for a pool that is full, and is told so.
fn full(criterion: &mut Criterion) {
    for taken in TAKEN {
        let first = range("10.0.0.0/8").first();
        let last = std::net::Ipv4Addr::from(0x0a00_0000 + taken - 1).into();
        let pool = AddrRange::new(first, last).expect("the pool begins before it ends");
        let mut rig = PlannerRig::new(pool, taken, 1);
        for _ in 0..WAITING {
            rig.arrive(pool.family());
        }
        let id = format!("full/{WAITING}-waiting/{taken}");
        criterion.bench_function(&id, |bencher| {
            bencher.iter_custom(|rounds| {
                let arrive = |_| {
                    let time = rig.arrive(pool.family());
                    assert!(rig.shown().is_empty(), "there is no room");
                    rig.leave();
                    time
                };
                (0..rounds).map(arrive).sum()
            });
        });
    }
}

fn range(cidr: &str) -> AddrRange {
    cidr.parse::<AddrBlock>().expect("a pool of the bench is a CIDR").range()
}

criterion_group! {
    name = planner;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .without_plots();
    targets = with_room, full
}
criterion_main!(planner);
