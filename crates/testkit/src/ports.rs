use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::{Error, Result};

/// Below the range from which Linux takes ports for outgoing connections (32768 and up): a port
/// from there could be taken by any connection while an API server restarts on it.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

static TRIED: AtomicU16 = AtomicU16::new(0);

/// A loopback port that is free now and that this process will not hand out again soon.
///
/// Two processes may still pick the same port, so callers retry with another.
pub(crate) fn free() -> Result<u16> {
    let start = std::process::id().wrapping_mul(101) % u32::from(COUNT);
    (0..COUNT)
        .map(|_| {
            let tried = u32::from(TRIED.fetch_add(1, Ordering::Relaxed));
            let offset = (start + tried) % u32::from(COUNT);
            FIRST + u16::try_from(offset).unwrap_or(0)
        })
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .ok_or(Error::NoPort { first: FIRST, last: FIRST + COUNT })
}
