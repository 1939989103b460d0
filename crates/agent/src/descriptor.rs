//! Waits for descriptors of kinds that tokio has no type for.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use tokio::io::unix::AsyncFd;

/// Takes a descriptor that can be waited for until it is readable.
#[expect(
    deprecated,
    reason = "its replacement is unsafe; what owns its descriptor, and all that is `AsFd` here does, is sound"
)]
pub(crate) fn watched<T: AsFd + AsRawFd>(descriptor: T) -> io::Result<AsyncFd<T>> {
    AsyncFd::with_interest(descriptor, tokio::io::Interest::READABLE)
}
