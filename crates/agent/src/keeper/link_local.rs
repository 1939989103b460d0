//! Whether devices have a link-local address that is ready to be used.
//!
//! A keepalived that starts before cannot send adverts over IPv6, and every node believes to be alone.

use std::{collections::BTreeSet, fs, net::IpAddr, time::Duration};

use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::Farewell;

/// `<linux/if_addr.h>`
const IFA_F_DADFAILED: u8 = 0x08;
const IFA_F_TENTATIVE: u8 = 0x40;
/// The scope of link-local addresses.
const LINK: u8 = 0x20;

/// Longer than the kernel asks whether another machine has the address.
const DEADLINE: Duration = Duration::from_secs(5);
const INTERVAL: Duration = Duration::from_millis(20);

/// Waits until the devices that adverts leave from over IPv6 have one, but not for ever: a device may be gone,
/// or have none at all.
pub(super) async fn settled(farewells: &[Farewell]) {
    let over_v6 =
        farewells.iter().filter(|it| it.form.advertised.first().is_some_and(IpAddr::is_ipv6));
    let devices: BTreeSet<_> = over_v6.map(|it| it.interface.as_str()).collect();
    let until = Instant::now() + DEADLINE;
    for device in devices {
        while !is_ready(&fs::read_to_string("/proc/net/if_inet6").unwrap_or_default(), device) {
            if Instant::now() > until {
                warn!(device, "its link-local address is not ready to be used");
                break;
            }
            sleep(INTERVAL).await;
        }
    }
}

/// Whether the table of the kernel lists a link-local address of the device about which it has no question.
fn is_ready(table: &str, device: &str) -> bool {
    table.lines().any(|line| {
        // The address, number and prefix, then what counts here.
        let mut words = line.split_whitespace().skip(3);
        let mut hex = || u8::from_str_radix(words.next()?, 16).ok();
        let (scope, flags) = (hex(), hex());
        let is_settled = |it: u8| it & IFA_F_TENTATIVE == 0 || it & IFA_F_DADFAILED != 0;
        words.next() == Some(device) && scope == Some(LINK) && flags.is_some_and(is_settled)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_ready_once_the_kernel_knows_that_no_other_machine_has_it() {
        let table = "\
fe80000000000000e8356dfffe3708dc 03 40 20 80     eth0
fe80000000000000e8356dfffe3708dd 04 40 20 c0     eth1
fd010000000000000000000000000001 04 40 00 80     eth1
fe80000000000000e8356dfffe3708de 05 40 20 c8     eth2
00000000000000000000000000000001 01 80 10 80       lo
";
        for (device, expected) in
            [("eth0", true), ("eth1", false), ("eth2", true), ("lo", false), ("eth9", false)]
        {
            assert_eq!(is_ready(table, device), expected, "{device}");
        }
    }
}
