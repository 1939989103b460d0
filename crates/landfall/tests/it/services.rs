//! The allocator on a real API server, tested from outside.

mod adoption;
mod bad_input;
mod blind;
mod choice;
mod crashes;
mod explain;
mod faults;
mod first_slice;
mod foreign;
mod idle;
pub(crate) mod many;
mod patience;
mod requests;
mod rewind;
mod sharing;
mod stale;
mod stops;
mod succession;
mod tenants;
mod waking;
