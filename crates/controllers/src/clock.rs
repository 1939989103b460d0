//! The clocks by which everything is planned.

use std::time::Duration;

use jiff::Timestamp;

/// The two clocks of a plan: one for people, one that never jumps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub wall: Timestamp,
    /// Time since the process started.
    pub uptime: Duration,
}
