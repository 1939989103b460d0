//! The keeper with the real keepalived, on nodes made of network namespaces, with no rights but those that it has
//! in a cluster.

// The attribute tells clippy that the helpers in there are tests as well.
#[cfg(test)]
mod cold;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod failures;
#[cfg(test)]
mod first_process;
#[cfg(test)]
mod program;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod site;
