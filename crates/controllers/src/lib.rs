//! The controllers of Landfall, which observe, plan and apply, and the parts they share.

mod absent;
mod backoff;
pub mod blind;
mod call;
mod engine;
mod event;
pub mod history;
mod index;
pub mod kinds;
pub mod leadership;
mod ledger;
pub mod migration;
mod object;
pub mod permissions;
pub mod readiness;
pub mod services;
mod store;
mod watch;

use std::sync::Arc;

pub use self::engine::Metrics;
use self::{engine::Tools, history::History, leadership::Leadership, readiness::Readiness};

/// The dependencies of every controller.
#[derive(Clone)]
pub struct Context {
    pub client: kube::Client,
    pub leadership: Leadership,
    pub readiness: Readiness,
    pub history: History,
    /// The name of this process in events.
    pub instance: Arc<str>,
    pub metrics: Metrics,
}

impl Context {
    fn tools(&self) -> Tools {
        Tools {
            client: self.client.clone(),
            instance: self.instance.clone(),
            leadership: self.leadership.clone(),
            history: self.history.clone(),
            metrics: self.metrics.clone(),
        }
    }
}
