//! The agent as a whole, keeper and worker, on real nodes: from a plan in a `ConfigMap` to addresses on devices.

mod changes;
mod cold;
mod deaf;
mod ended;
mod equal;
mod fault;
mod faults;
pub(crate) mod group;
mod kinds;
mod left;
mod plans;
mod rivals;
mod rounds;
mod site;
mod source;
mod staggered;
mod stranger;
