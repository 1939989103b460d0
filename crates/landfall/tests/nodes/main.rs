//! Tests on real nodes, made of network namespaces, with the real keepalived.
//!
//! They are a program of their own, because cargo runs one test program after the other: adverts that follow each
//! other every 100 ms need a machine that is not busy with a hundred other tests.

#[cfg(test)]
mod agent;
#[cfg(test)]
mod image;
#[cfg(test)]
mod keepalived;
#[cfg(test)]
mod kube_proxy;
#[cfg(test)]
mod membership;
#[cfg(test)]
mod moves;
#[cfg(test)]
mod rolled;
#[cfg(test)]
mod stage;

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Not a measurement: long enough for a machine that is busy with everything else.
pub(crate) const LONG: Duration = Duration::from_secs(90);

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
