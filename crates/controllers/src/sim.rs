//! The simulated API server of the tests, once for all systems. Each system adds how its calls are carried
//! out.

pub(crate) use self::{
    api_server::{ApiServer, Foreign, Stored},
    history::{KINDS, Kind},
};

mod api_server;
pub(crate) mod fixtures;
mod history;
