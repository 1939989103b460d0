//! The allocator's test bench: simulated clusters, the model, random objects, and the rig of the benchmark.

// The parts of the allocator that the tests use, under their own names.
#[cfg(test)]
use super::{effect, explain, plan, wish, world};

#[cfg(test)]
mod calls;
#[cfg(test)]
mod fuzz;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
#[cfg(test)]
mod model;
#[cfg(feature = "bench")]
pub mod rig;
#[cfg(any(test, feature = "bench"))]
mod runner;
#[cfg(test)]
pub(in crate::services) mod sim;
