//! Notices a holder that falls silent in the middle of a change.
//!
//! During a change all nodes but the holder wait in state FAULT, in which keepalived hears nothing. If the holder
//! dies, its addresses would be on no node until the operator finds out. So the agent listens itself, and lets
//! this node take part again after ten adverts that did not come.

use std::{collections::BTreeMap, io, io::Read as _, time::Duration};

use landfall_vrrp::{
    NodeIndex, Plan,
    goodbye::{GROUP_V4, GROUP_V6, PROTOCOL},
};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use tokio::{io::unix::AsyncFd, time::Instant};

use super::netlink::Device;
use crate::descriptor::watched;

/// The number of adverts whose absence counts as silence.
const MISSED: u32 = 10;
/// Longer than any advert.
const BUFFER: usize = 2048;

/// The instances that wait for their holder.
#[derive(Debug, Default)]
pub(super) struct Silence {
    waiting: BTreeMap<String, Waiting>,
    ended: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    router_id: u8,
    holder: NodeIndex,
    patience: Duration,
    heard: Instant,
}

impl Silence {
    /// Takes the instances that wait for their holder according to a plan. Those that have waited before go on.
    pub(super) fn follow(&mut self, plan: &Plan, node: Option<NodeIndex>, now: Instant) {
        let before = std::mem::take(&mut self.waiting);
        let instances = plan
            .instances
            .iter()
            .filter(|instance| node.is_some_and(|node| instance.waits_for_holder_on(node)));
        for instance in instances {
            let Some(change) = &instance.change else { continue };
            let longest = instance.form.advert_millis.max(change.before.advert_millis);
            let known = before.get(&instance.name).filter(|it| it.holder == change.holder);
            let waiting = Waiting {
                router_id: instance.router_id,
                holder: change.holder,
                patience: Duration::from_millis(longest.into()) * MISSED,
                heard: known.map_or(now, |known| known.heard),
            };
            if known.is_none() {
                self.ended.retain(|name| *name != instance.name);
            }
            self.waiting.insert(instance.name.clone(), waiting);
        }
        self.ended.retain(|name| self.waiting.contains_key(name));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The instances that wait no longer.
    pub(super) fn ended(&self) -> &[String] {
        &self.ended
    }

    /// An advert of this router id has come.
    pub(super) fn heard(&mut self, router_id: u8, now: Instant) {
        for waiting in self.waiting.values_mut().filter(|it| it.router_id == router_id) {
            waiting.heard = now;
        }
    }

    /// All holders count as heard now, because there was no listener before.
    pub(super) fn begin(&mut self, now: Instant) {
        for waiting in self.waiting.values_mut() {
            waiting.heard = now;
        }
    }

    /// When the next holder counts as silent, unless it is heard.
    pub(super) fn due(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().filter(|(name, _)| !self.ended.contains(name));
        waiting.map(|(_, it)| it.heard + it.patience).min()
    }

    /// Ends the wait for holders that are silent; returns whether there is one.
    pub(super) fn end(&mut self, now: Instant) -> bool {
        let is_silent = |(name, it): &(&String, &Waiting)| {
            it.heard + it.patience <= now && !self.ended.contains(name)
        };
        let silent: Vec<_> =
            self.waiting.iter().filter(is_silent).map(|(name, _)| name.clone()).collect();
        self.ended.extend(silent.iter().cloned());
        !silent.is_empty()
    }
}

/// Hears the adverts that come to a device, of both families and to whichever address.
#[derive(Debug)]
pub(super) struct Listener {
    v4: AsyncFd<Socket>,
    v6: AsyncFd<Socket>,
    index: u32,
}

impl Listener {
    pub(super) fn open(device: &Device) -> io::Result<Self> {
        let open = |domain| {
            let protocol = Protocol::from(i32::from(PROTOCOL));
            let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
            socket.set_nonblocking(true)?;
            socket.bind_device(Some(device.name.as_bytes()))?;
            Ok::<_, io::Error>(socket)
        };
        let (v4, v6) = (open(Domain::IPV4)?, open(Domain::IPV6)?);
        // Unicast adverts come without.
        v4.join_multicast_v4_n(&GROUP_V4, &InterfaceIndexOrAddress::Index(device.index))?;
        v6.join_multicast_v6(&GROUP_V6, device.index)?;
        Ok(Self { v4: watched(v4)?, v6: watched(v6)?, index: device.index })
    }

    /// Whether it listens to this device.
    pub(super) fn is_on(&self, device: &Device) -> bool {
        self.index == device.index
    }

    /// The router id of the next advert of a holder that means to stay.
    pub(super) async fn next(&self) -> io::Result<u8> {
        loop {
            let found = tokio::select! {
                packet = receive(&self.v4) => router_id(without_header(&packet?)),
                packet = receive(&self.v6) => router_id(&packet?),
            };
            if let Some(found) = found {
                return Ok(found);
            }
        }
    }
}

async fn receive(socket: &AsyncFd<Socket>) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let mut ready = socket.readable().await?;
        if let Ok(received) = ready.try_io(|socket| (&mut socket.get_ref()).read(&mut buffer)) {
            buffer.truncate(received?);
            return Ok(buffer);
        }
    }
}

/// A packet of IPv4 comes with its header.
fn without_header(packet: &[u8]) -> &[u8] {
    let words = packet.first().map_or(0, |first| usize::from(first & 0x0f));
    packet.get(words * 4..).unwrap_or_default()
}

/// Of an advert of either version, unless it says goodbye.
fn router_id(advert: &[u8]) -> Option<u8> {
    match advert {
        [0x21 | 0x31, router_id, priority, ..] if *priority != 0 => Some(*router_id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use landfall_vrrp::{Change, Form, Instance, Step, goodbye::goodbye};

    use super::*;
    use crate::worker::samples::{form, instance, plan};

    fn changing(name: &str, router_id: u8, holder: NodeIndex) -> Instance {
        let before = Form { advert_millis: 1000, ..form(&["192.0.2.9"]) };
        let mut instance = instance(name, router_id, form(&["192.0.2.9"]));
        instance.change = Some(Change { before, holder, step: Step::Mute, since: 1 });
        instance
    }

    #[test]
    fn a_wait_ends_after_ten_adverts_that_did_not_come() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let plan =
            plan(vec![changing("ns/a", 1, 1), changing("ns/b", 2, 1), changing("ns/c", 3, 0)]);
        let mut silence = Silence::default();
        silence.follow(&plan, Some(0), start);
        assert_eq!(silence.due(), Some(at(10)));
        silence.heard(1, at(5));
        silence.heard(3, at(5));
        // A later plan of the same change begins nothing again.
        silence.follow(&plan, Some(0), at(6));
        assert!(!silence.end(at(9)));
        assert!(silence.end(at(10)));
        assert_eq!(silence.ended(), ["ns/b"]);
        assert_eq!(silence.due(), Some(at(15)));
        silence.begin(at(14));
        assert!(!silence.end(at(20)));
        assert!(silence.end(at(24)));
        assert_eq!(silence.ended(), ["ns/b", "ns/a"]);
        assert_eq!(silence.due(), None);
    }

    #[test]
    fn another_holder_is_waited_for_again_and_no_change_ends_everything() {
        let start = Instant::now();
        let late = start + Duration::from_mins(1);
        let mut silence = Silence::default();
        silence.follow(&plan(vec![changing("ns/a", 1, 1)]), Some(0), start);
        assert!(silence.end(late));
        let mut other = plan(vec![changing("ns/a", 1, 2)]);
        silence.follow(&other, Some(0), late);
        assert!(silence.ended().is_empty() && !silence.end(late));
        assert!(silence.end(late + Duration::from_mins(1)));
        other.instances[0].change = None;
        silence.follow(&other, Some(0), late);
        assert!(silence.is_empty() && silence.ended().is_empty());
    }

    #[test]
    fn only_adverts_of_holders_that_stay_count() {
        let any = Ipv4Addr::LOCALHOST.into();
        let mut advert = goodbye(7, &form(&["192.0.2.9"]), None, any, any);
        assert_eq!(router_id(&advert), None);
        advert[2] = 1;
        assert_eq!(router_id(&advert), Some(7));
        let mut packet = vec![0x46; 24];
        packet.extend(&advert);
        assert_eq!(router_id(without_header(&packet)), Some(7));
        for other in [&[][..], &[0x31], &[0x32, 7, 1, 1], &[0x45; 10]] {
            assert_eq!(router_id(other), None);
            assert_eq!(router_id(without_header(other)), None);
        }
    }
}
