//! The agent on a node: a keeper, which looks after keepalived and speaks to no API server, and a worker, which
//! carries out the plan of its group.
//!
//! They are two processes, so that whatever happens to the worker, the keeper still takes the addresses of a
//! dead keepalived off the node and says goodbye for it. They share a folder, [`RunDir`], and the keeper answers
//! the worker on a socket in it, see [`call`].

pub mod call;
mod client;
mod descriptor;
pub mod init;
pub mod keeper;
mod output;
mod probe;
mod run_dir;
pub mod session;
pub mod worker;

pub use self::{
    client::Keeper,
    output::Output,
    probe::probe,
    run_dir::{Error, Farewell, OwnedAddress, RunDir},
};
