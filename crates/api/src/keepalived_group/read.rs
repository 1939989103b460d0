//! The spec of a group becomes plain settings, or all that is wrong with it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    ops::RangeInclusive,
    time::Duration,
};

use landfall_ipam::{AddrBlock, AddrSet};

use super::{
    KeepalivedGroup, KeepalivedGroupSpec, Vrrp, named,
    settings::{Device, GroupSettings, Layout, ROUTER_IDS, Slots},
};
use crate::{ipgroup::hours_minutes_seconds, keys, problem::Problem, verbatim};

/// Longest name of a network device that Linux takes.
const LONGEST_DEVICE: usize = 15;
/// The name of a group is the value of a label.
const LONGEST_GROUP: usize = 63;
/// The shortest and the longest time between two adverts.
const ADVERTS: RangeInclusive<Duration> = Duration::from_millis(30)..=Duration::from_secs(40);
/// keepalived counts adverts in steps of so many milliseconds, and warns about others.
const STEP: u128 = 10;
/// Longest `preempt_delay` that keepalived takes.
const LONGEST_DELAY: Duration = Duration::from_secs(1000);
/// All groups of a network share 255 router IDs, and each slot costs its own adverts.
const MOST_SLOTS: i32 = 64;
/// More entries that cannot be read than this are not named.
const MOST_PROBLEMS: usize = 8;

impl KeepalivedGroup {
    /// The settings of the group, or everything that is wrong with it.
    pub fn settings(&self) -> Result<GroupSettings, Vec<Problem>> {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        let mut problems = Vec::new();
        if name.len() > LONGEST_GROUP {
            problems.push(Problem::new(
                "metadata.name",
                format!("it has {} characters, and its pods carry it in a label of at most {LONGEST_GROUP}", name.len()),
                "Create the group under a shorter name",
            ));
        }
        match self.spec.settings() {
            Ok(settings) if problems.is_empty() => Ok(settings),
            Ok(_) => Err(problems),
            Err(others) => {
                problems.extend(others);
                Err(problems)
            }
        }
    }
}

impl KeepalivedGroupSpec {
    /// The settings that the spec describes, or everything that is wrong with it.
    pub fn settings(&self) -> Result<GroupSettings, Vec<Problem>> {
        let mut found = Found::default();
        // The field that wins says it for all nodes; the other need not make sense then.
        let device = named_device("interface", &self.interface);
        let own_name = match &device {
            Ok(Device::Named(name)) => Some(name.clone()),
            Ok(Device::Towards(_)) | Err(_) => None,
        };
        let device = match named(self.interface_from_ip.as_deref()) {
            Some(text) => route(text).map(Device::Towards),
            None => device,
        };
        let device = found.keep(device);
        let devices = self.interfaces.iter().filter_map(|(node, name)| {
            Some((node.clone(), found.keep(named_device("interfaces", name))?))
        });
        let devices = devices.collect();
        let layout = match &self.vrrp {
            None => Layout::PerService,
            Some(vrrp) => Layout::Slots(slots(vrrp, &mut found)),
        };
        let verbatim::ReadLines { mut lines, refused } =
            verbatim::of_group(self.verbatim_config.as_ref().unwrap_or(&BTreeMap::new()));
        found.warnings.extend(refused);
        if self.vrrp.is_some() {
            let unfit = lines.fit_slots().into_iter().map(|keyword| {
                Problem::new(
                    "verbatimConfig",
                    format!("{keyword} has no effect together with vrrp, which sets it"),
                    "Remove it",
                )
            });
            found.warnings.extend(unfit);
        }
        let excluded_router_ids = self.excluded_router_ids(&mut found);
        let allowed_ranges = self.allowed_ranges(&mut found);
        let metrics_port = self.metrics_port.unwrap_or(keys::DEFAULT_METRICS_PORT);
        let metrics_port = u16::try_from(metrics_port).ok().filter(|port| *port > 0);
        let metrics_port = metrics_port.ok_or_else(|| {
            Problem::new("metricsPort", "it is no port", "Set it to a number from 1 to 65535")
        });
        let metrics_port = found.keep(metrics_port).unwrap_or_default();
        if let Layout::Slots(slots) = &layout {
            let left = layout.router_ids().filter(|id| !excluded_router_ids.contains(id)).count();
            if found.faults.is_empty() && left < usize::from(slots.count) {
                found.faults.push(Problem::new(
                    "vrrp.routerIDs",
                    format!("{} slots need as many router IDs, and {left} are left", slots.count),
                    "Widen the range, take IDs off blacklistRouterIDs, or set fewer slots",
                ));
            }
        }
        let Some(device) = device.filter(|_| found.faults.is_empty()) else {
            return Err(found.faults);
        };
        Ok(GroupSettings {
            layout,
            default_device: device,
            named_device: own_name,
            devices,
            node_selector: self.node_selector.clone().unwrap_or_default(),
            password: self.password_source(),
            lines,
            excluded_router_ids,
            unicast: self.unicast(),
            image: self.other_image().map(str::to_owned),
            priority_class: self.priority_class().map(str::to_owned),
            pod_annotations: self.daemonset_pod_annotations.clone().unwrap_or_default(),
            allowed_namespaces: self.allowed_namespaces.clone(),
            allowed_ranges,
            metrics_port,
            warnings: found.warnings,
        })
    }

    fn excluded_router_ids(&self, found: &mut Found) -> BTreeSet<u8> {
        let mut excluded = BTreeSet::new();
        for id in self.blacklist_router_ids.iter().flatten() {
            match u8::try_from(*id) {
                Ok(id) if ROUTER_IDS.contains(&id) => drop(excluded.insert(id)),
                Ok(_) | Err(_) => found.warn(|| {
                    let fault = format!("{id} is no router ID and excludes nothing");
                    Problem::new("blacklistRouterIDs", fault, "Remove it")
                }),
            }
        }
        excluded
    }

    fn allowed_ranges(&self, found: &mut Found) -> Option<AddrSet> {
        let read = self.allowed_ranges.iter().filter_map(|text| {
            found.keep(text.trim().parse::<AddrBlock>().map_err(|_| {
                let fault = format!("{:?} is no CIDR, address or range", keys::excerpt(text));
                Problem::new("allowedRanges", fault, "Write a CIDR such as 10.0.0.0/24")
            }))
        });
        let blocks: Vec<_> = read.map(AddrBlock::range).collect();
        (!self.allowed_ranges.is_empty()).then(|| blocks.into_iter().collect())
    }
}

/// What is wrong: faults make the group unusable, warnings do not.
#[derive(Default)]
struct Found {
    faults: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Found {
    /// What could be read; if nothing, why is kept.
    fn keep<T>(&mut self, read: Result<T, Problem>) -> Option<T> {
        match read {
            Ok(read) => return Some(read),
            Err(problem) if self.faults.len() < MOST_PROBLEMS => self.faults.push(problem),
            Err(_) => {}
        }
        None
    }

    fn warn(&mut self, problem: impl FnOnce() -> Problem) {
        if self.warnings.len() < MOST_PROBLEMS {
            self.warnings.push(problem());
        }
    }
}

/// A device by its name: what Linux takes, less what means something in keepalived's configuration.
fn named_device(field: &'static str, text: &str) -> Result<Device, Problem> {
    let name = text.trim();
    let plain = |letter: u8| letter.is_ascii_alphanumeric() || b"._+-".contains(&letter);
    if name == "lo" {
        let fault = "lo reaches no other node";
        return Err(Problem::new(
            field,
            fault,
            "Name the device of the network that all nodes share",
        ));
    }
    let fits = (1..=LONGEST_DEVICE).contains(&name.len()) && name.bytes().all(plain);
    if fits && name != "." && name != ".." {
        Ok(Device::Named(name.to_owned()))
    } else {
        let fault = format!("{:?} is no network device", keys::excerpt(name));
        Err(Problem::new(
            field,
            fault,
            "Name a device such as eth0, of at most 15 letters, digits and . _ + -",
        ))
    }
}

/// The address whose route names the device.
fn route(text: &str) -> Result<IpAddr, Problem> {
    const FIELD: &str = "interfaceFromIP";
    let address: IpAddr = text.parse().map_err(|_| {
        let fault = format!("{:?} is no IP address", keys::excerpt(text));
        Problem::new(FIELD, fault, "Write an address of the network that all nodes share")
    })?;
    let address = address.to_canonical();
    if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
        let fault = format!("the way to {address} leads over no device of a network");
        return Err(Problem::new(
            FIELD,
            fault,
            "Write an address of the network that all nodes share",
        ));
    }
    Ok(address)
}

fn slots(vrrp: &Vrrp, found: &mut Found) -> Slots {
    let advert_interval = vrrp.advert_interval.as_deref().unwrap_or("100ms");
    let advert_interval = found.keep(advert_time(advert_interval)).unwrap_or_default();
    let count = vrrp.slots.unwrap_or(keys::DEFAULT_SLOTS);
    let count = u8::try_from(count).ok().filter(|_| (1..=MOST_SLOTS).contains(&count));
    let count = found.keep(count.ok_or_else(|| {
        Problem::new("vrrp.slots", "it is no number of slots", "Set it to a number from 1 to 64")
    }));
    let delay = vrrp.preempt_delay.as_deref().map_or(Ok(Duration::ZERO), preempt_delay);
    let delay = found.keep(delay).unwrap_or_default();
    let preempt = vrrp.preempt.unwrap_or(false);
    if !preempt && !delay.is_zero() {
        found.warn(|| {
            let fault = "it has no effect without preempt: true";
            Problem::new("vrrp.preemptDelay", fault, "Set vrrp.preempt, or remove it")
        });
    }
    let range = vrrp.router_ids.unwrap_or_default();
    let id = |id: Option<i32>, default| match id {
        None => Some(default),
        Some(id) => u8::try_from(id).ok().filter(|id| *id > 0),
    };
    let range = id(range.first, *ROUTER_IDS.start()).zip(id(range.last, *ROUTER_IDS.end()));
    let range = range.filter(|(first, last)| first <= last);
    let range = range.map(|(first, last)| first..=last).ok_or_else(|| {
        let fix = "Set first and last to numbers from 1 to 255, and first not above last";
        Problem::new("vrrp.routerIDs", "it is no range of router IDs", fix)
    });
    Slots {
        count: count.unwrap_or_default(),
        advert_interval,
        preempt_after: preempt.then_some(delay),
        router_ids: found.keep(range).unwrap_or(ROUTER_IDS),
    }
}

/// A time such as `100ms` or `1s500ms`.
fn advert_time(text: &str) -> Result<Duration, Problem> {
    let (seconds, millis) = match text.split_once('s') {
        Some((seconds, rest)) if !seconds.ends_with('m') => (Some(seconds), rest),
        _ => (None, text),
    };
    let number = |text: &str, longest: usize| {
        let plain = (1..=longest).contains(&text.len());
        let plain = plain && text.bytes().all(|digit| digit.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| plain)
    };
    let seconds = seconds.map_or(Some(0), |text| number(text, 2));
    let millis = if millis.is_empty() && !text.is_empty() {
        Some(0)
    } else {
        millis.strip_suffix("ms").and_then(|text| number(text, 5))
    };
    let time = seconds.zip(millis).and_then(|(seconds, millis)| {
        Duration::from_secs(seconds).checked_add(Duration::from_millis(millis))
    });
    let time = time.filter(|time| ADVERTS.contains(time));
    time.filter(|time| time.as_millis().is_multiple_of(STEP)).ok_or_else(|| {
        let fault =
            format!("{:?} is no time from 30ms to 40s in steps of 10 ms", keys::excerpt(text));
        Problem::new("vrrp.advertInterval", fault, "Write a time such as 100ms or 1s")
    })
}

fn preempt_delay(text: &str) -> Result<Duration, Problem> {
    let time = hours_minutes_seconds(text).filter(|time| *time <= LONGEST_DELAY);
    time.ok_or_else(|| {
        let fault = format!("{:?} is no duration of at most 1000s", keys::excerpt(text));
        Problem::new("vrrp.preemptDelay", fault, "Write a duration such as 45s or 5m")
    })
}
