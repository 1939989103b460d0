//! The test bench of the migration: a cluster in memory.

pub(super) mod sim;
