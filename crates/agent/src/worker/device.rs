//! Which device the instances of this node are on, and whether adverts can be sent from it.

use std::{net::IpAddr, time::Duration};

use landfall_vrrp::{Form, Node, Plan, Transport};
use tokio::time::Instant;

use super::netlink::Network;

/// How long adverts over IPv6 wait for the device's own address. The kernel needs one to two seconds to make
/// sure that no other machine has it; a device without IPv6 never gets one.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The device for a plan. `route` is that of the route to the plan's `interface_from`, and `before` the device
/// that was used last: a route that is gone for a moment moves nothing.
pub(super) fn choose<'a>(
    plan: &'a Plan,
    node: &str,
    network: &'a Network,
    route: Option<u32>,
    before: Option<&'a str>,
) -> &'a str {
    if let Some(name) = plan.interfaces.get(node) {
        return name;
    }
    let Some(target) = plan.interface_from else { return &plan.interface };
    // The route to an address of the node itself leads to `lo`; the address is on the device we look for.
    let own = network.addresses.iter().filter(|address| address.ip == target);
    let candidates = own.map(|address| address.index).chain(route);
    let mut devices = candidates.filter_map(|index| network.at(index));
    let found = devices.find(|device| !device.is_loopback);
    let by_route = found.map(|device| device.name.as_str()).or(before);
    by_route.unwrap_or(&plan.interface)
}

/// Whether adverts over IPv6 can be sent from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ipv6 {
    Usable,
    /// There is no link-local address yet, or only a tentative one.
    Pending,
    LinkDown,
}

/// `is_ours` tells addresses that keepalived puts on the device.
pub(super) fn ipv6(network: &Network, device: &str, is_ours: impl Fn(IpAddr) -> bool) -> Ipv6 {
    let Some(device) = network.named(device).filter(|device| device.is_up) else {
        return Ipv6::LinkDown;
    };
    let is_link_local = |ip: IpAddr| match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let mut own = network.addresses.iter().filter(|address| {
        address.index == device.index && is_link_local(address.ip) && !is_ours(address.ip)
    });
    if own.any(|address| !address.is_tentative) { Ipv6::Usable } else { Ipv6::Pending }
}

/// The address that adverts of a form leave from, if they are sent to single nodes and the node does not have it yet.
/// Until then the node cannot hear the others, and would hold addresses beside them, however long that takes.
pub(super) fn missing_source(network: &Network, own: &Node, form: &Form) -> Option<IpAddr> {
    let is_unicast = form.transport == Transport::Unicast;
    let source = form.address_of(own).filter(|_| is_unicast)?;
    let mut usable = network.addresses.iter().filter(|address| !address.is_tentative);
    usable.all(|address| address.ip != source).then_some(source)
}

/// Decides when instances that send adverts over IPv6 may take part: a keepalived that tries to send from a
/// tentative address fails, so that several nodes become the holder.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wait {
    since: Option<Instant>,
}

impl Wait {
    /// Whether they may, and else when to look again at the latest.
    pub(super) fn is_over(&mut self, state: Ipv6, now: Instant) -> Result<(), Option<Instant>> {
        match state {
            Ipv6::Usable => {
                self.since = None;
                Ok(())
            }
            Ipv6::LinkDown => {
                self.since = None;
                Err(None)
            }
            Ipv6::Pending => {
                let end = *self.since.get_or_insert(now) + LONGEST_WAIT;
                if now < end { Err(Some(end)) } else { Ok(()) }
            }
        }
    }
}

#[cfg(test)]
mod tests;
