//! Keepalived groups: addresses of Services float over the nodes of a group, by VRRP and the real keepalived.
//!
//! The operator decides a plan for each group and writes it into the group's `ConfigMap`; an agent on each node
//! carries it out and reports who holds what.

use crate::{engine::AnyPlanner, ledger::Ledger};

pub use self::children::Pods;

mod adopt;
mod change;
mod children;
mod decide;
mod effect;
mod file;
mod found;
mod handover;
mod judge;
mod lag;
mod leftovers;
mod members;
mod membership;
mod moves;
mod neighbours;
mod notices;
mod password;
pub mod permissions;
mod planner;
mod progress;
mod round;
mod status;
mod telling;

/// The planner of keepalived groups.
pub(crate) fn planner(pods: Pods, ledger: &mut Ledger) -> Box<dyn AnyPlanner> {
    Box::new(planner::Planner::new(pods, ledger))
}
