//! Instances of both layouts and both families.

use std::net::IpAddr;
use std::time::Duration;

use landfall_testkit::Bed;
use landfall_testkit::bed::{Doubled, SAMPLE_INTERVAL};
use landfall_vrrp::{Form, Instance, Preempt, Transport, Version};

use super::group::slot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// As in the layout of slots: an anchor, and adverts of version 3 every 100 ms.
    Slot,
    /// The same to each node's own address.
    UnicastSlot,
    /// As in the classic layout: an address of a Service, and adverts every second, of version 2 in IPv4.
    Classic,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Slot, Self::UnicastSlot, Self::Classic];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// An instance with an address of both families, whose adverts are of one.
pub(super) fn instance(
    kind: Kind,
    family: Family,
    number: u8,
    order: &[u32],
    preempt: Preempt,
) -> Instance {
    let (v4, v6) = (Bed::vip4(number.into()), Bed::vip6(number.into()));
    let anchor = match family {
        Family::V4 => format!("169.254.112.{number}"),
        Family::V6 => format!("fe80::112:{number:x}"),
    };
    let (advertised, excluded): (IpAddr, _) = match (kind, family) {
        (Kind::Slot | Kind::UnicastSlot, _) => (anchor.parse().unwrap(), vec![v4, v6]),
        (Kind::Classic, Family::V4) => (v4, vec![v6]),
        (Kind::Classic, Family::V6) => (v6, vec![v4]),
    };
    let slot = slot(number, order, &excluded);
    let form = match kind {
        Kind::Slot => Form { advertised: vec![advertised], ..slot.form },
        Kind::UnicastSlot => {
            Form { transport: Transport::Unicast, advertised: vec![advertised], ..slot.form }
        }
        Kind::Classic => Form {
            // Version 2 has no IPv6.
            version: if family == Family::V4 { Version::V2 } else { Version::V3 },
            advert_millis: 1000,
            advertised: vec![advertised],
            anchor: false,
            ..slot.form
        },
    };
    Instance { form, preempt, ..slot }
}

/// Of these kinds, in every family, one instance that stays where it is and one that its first node takes back.
pub(super) fn mixed(kinds: &[Kind]) -> Vec<Instance> {
    let families = kinds.iter().flat_map(|kind| Family::BOTH.map(|family| (*kind, family)));
    let both = [(Preempt::Never, [0, 1, 2]), (Preempt::AtOnce, [1, 2, 0])];
    let all = families.flat_map(|it| both.map(|(preempt, order)| (it, preempt, order)));
    let numbered = (1..).zip(all);
    numbered
        .map(|(number, ((kind, family), preempt, order))| {
            instance(kind, family, number, &order, preempt)
        })
        .collect()
}

/// All addresses that a holder of it has.
pub(super) fn addresses(instance: &Instance) -> Vec<IpAddr> {
    instance.form.advertised.iter().chain(&instance.excluded).copied().collect()
}

/// Whether an address was held twice no more than when nodes take it from others so many times. A node that takes it
/// back has it before the other one hears so and gives it up, which takes about half a millisecond.
pub(super) fn is_taking_back(doubled: Doubled, times: u32) -> bool {
    let most = SAMPLE_INTERVAL * 2 * times;
    doubled.total <= most && doubled.samples <= 2 * usize::try_from(times).unwrap()
}

/// How long two nodes may hold an address if two of them were due to take it at the same time, on a machine that
/// is busy: until each has heard the other.
pub(super) fn one_and_a_half_adverts(instance: &Instance) -> Duration {
    Duration::from_millis(instance.form.advert_millis.into()) * 3 / 2
}
