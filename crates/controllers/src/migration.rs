//! The old kinds `VirtualIP` and `GroupSegmentMapping`: existing ones keep working, and become
//! `LoadBalancer` Services with the same address when their user says so.
//!
//! It shares nothing but the ledger with the allocator: the claim that passes to a Service is the message.
//! Claims alone are enough to act on, even without the kind: their holders may be gone for good, and then
//! the claims must be released.

use std::time::Duration;

use self::planner::Planner;
use crate::{engine::AnyPlanner, ledger::Ledger};

mod apply;
mod claim;
mod clone;
mod effect;
pub mod permissions;
mod plan;
mod planner;
#[cfg(test)]
mod tests;
mod world;

/// A planner that reads all changes of this ledger from now on. A claim waits for `orphan_grace` for a
/// `VirtualIP` that was missing when we started.
pub(crate) fn planner(orphan_grace: Duration, ledger: &mut Ledger) -> Box<dyn AnyPlanner> {
    Box::new(Planner::new(orphan_grace, ledger))
}
