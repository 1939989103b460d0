//! Which addresses exist, which are taken, and which holder may have one.
//!
//! It knows holders, pools and requests, but no messages for people: those differ by the kind of holder.
//!
//! Everything here is pure: no clock, no I/O, no hash order. An address pool is a set of intervals,
//! so a whole IPv6 /64 costs as much as a single address, and the first free address of a pool, a
//! specific one, and a release are each `O(log n)` in the number of intervals.
//!
//! - [`AddrBlock`] and [`AddrRange`]: what users write, parsed once at the edge.
//! - [`AddrSet`]: any set of addresses of both families.
//! - [`Pool`]: a set of addresses with rules; [`Book`]: all pools and every taken address.
//! - [`Terms`] and [`clash`]: on which terms an address may have several holders.
//! - [`Refusal`]: why a holder gets nothing, from a closed list.
//! - [`check`]: the invariants that must hold over a whole cluster; tests end with it.
#![no_std]
#![warn(missing_docs, clippy::arithmetic_side_effects, clippy::indexing_slicing)]

extern crate alloc;

mod book;
mod check;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod never;
mod pool;
mod range;
mod refusal;
mod set;
mod sharing;

pub use self::{
    book::{Book, PoolCount},
    check::{ClaimFact, HolderFact, Violation, check},
    never::{Never, link_local},
    pool::{Pool, PoolName},
    range::{AddrBlock, AddrRange, Family, ParseError},
    refusal::{Reason, Refusal, Verdict},
    set::AddrSet,
    sharing::{Clash, Party, Terms, clash},
};
