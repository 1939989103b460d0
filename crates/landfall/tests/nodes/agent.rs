//! The agent as a whole, keeper and worker, on real nodes: from a plan in a `ConfigMap` to addresses on devices.

mod beside;
mod changes;
mod cold;
mod deaf;
mod devices;
mod ended;
mod equal;
mod fault;
mod faults;
mod first_process;
pub(crate) mod group;
mod kinds;
mod left;
mod pages;
mod plans;
mod preempt;
mod rivals;
mod rounds;
mod site;
mod source;
mod staggered;
mod stranger;
