//! Observe, plan, apply: the controllers of Landfall, and the small parts they share.

mod absent;
pub mod blind;
mod engine;
pub mod history;
mod index;
pub mod kinds;
pub mod leadership;
pub mod migration;
mod object;
pub mod permissions;
pub mod readiness;
pub mod services;
mod store;

use std::sync::Arc;

use self::{history::History, leadership::Leadership, readiness::Readiness};

/// What every controller is given.
#[derive(Clone)]
pub struct Context {
    pub client: kube::Client,
    pub leadership: Leadership,
    pub readiness: Readiness,
    pub history: History,
    /// The name of this process in events.
    pub instance: Arc<str>,
}
