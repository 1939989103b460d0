//! How the addresses of a keepalived group are shared out over VRRP instances, nodes and configuration files.
//!
//! The operator decides a [`Plan`], and the agent on each node makes keepalived's configuration from it. Both
//! use this crate, so that they agree on every detail. Everything here is pure: no Kubernetes, no clock, no I/O.
//!
//! - [`Plan`]: everything the nodes of a group need to know, as one value.
//! - [`slot_of`], [`preference`], [`priority`]: which instance an address belongs to, and which node comes first.
//! - [`layout`]: the instances for the addresses of a group, and what may not change about them.
//! - [`router_ids`]: virtual router ids, lowest free first.
//! - [`render`]: the configuration file of one node.
//! - [`conf`]: reads configuration files, such as those of a replaced operator.
//! - [`goodbye`]: the advert by which a holder gives its addresses up at once.
#![no_std]
#![warn(missing_docs, clippy::indexing_slicing)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

extern crate alloc;

pub mod conf;
pub mod goodbye;
pub mod layout;
mod order;
mod plan;
pub mod render;
pub mod router_ids;

pub use self::{
    order::{preference, priority, slot_of},
    plan::{
        Change, Departing, FORMAT, Form, Instance, Leaving, Node, NodeIndex, PasswordFrom, Plan,
        Preempt, Step, Transport, Version, password_name,
    },
};
