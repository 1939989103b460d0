//! Tests of Landfall as a whole, on real API servers and as a real process.

mod admission;
#[cfg(test)]
mod alerts;
#[cfg(test)]
mod chaos;
mod cli;
#[cfg(test)]
mod docs;
mod election;
#[cfg(test)]
mod guide;
#[cfg(test)]
mod keepalived;
#[cfg(test)]
mod kube_vip;
mod leadership;
#[cfg(test)]
mod migration;
#[cfg(test)]
mod roles;
// The attribute tells clippy that the helpers in there are tests as well.
#[cfg(test)]
mod services;
#[cfg(test)]
mod stage;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod texts;
#[cfg(test)]
mod watches;
