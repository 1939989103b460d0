//! The allocator's test bench: simulated clusters, the model, random objects, and the rig of the benchmark.

// The parts of the allocator that the tests use, under their own names.
#[cfg(test)]
use super::{classes, effect, explain, observe, plan, status, view, wish, world};

#[cfg(test)]
pub(in crate::services) mod fixtures;
#[cfg(test)]
mod fuzz;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod model;
#[cfg(feature = "bench")]
pub mod rig;
#[cfg(test)]
pub(in crate::services) mod sim;
