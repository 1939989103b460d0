//! Whether keepalived runs what a configuration says.

use std::{collections::BTreeSet, net::IpAddr};

use landfall_vrrp::{
    Version,
    conf::{self, FoundInstance},
};

use crate::call::InstanceReport;

/// An instance of a configuration that we wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    instance: FoundInstance,
    priority: Option<u8>,
}

impl Expected {
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.instance.advertised.iter().chain(&self.instance.excluded).copied()
    }
}

/// The instances of a configuration that we wrote.
pub(super) fn expected(text: &str) -> Vec<Expected> {
    let file = conf::parse(text).unwrap_or_default();
    let named = file.iter().filter(|statement| statement.keyword() == "vrrp_instance");
    let blocks = named.map(|statement| &statement.block);
    let both = conf::instances(&file).zip(blocks).map(|(mut instance, block)| {
        // A line of a Service may say it once more, and the last one counts.
        let last = |keyword: &str| block.iter().rev().find(|line| line.keyword() == keyword);
        let is_repeated =
            |keyword: &str| block.iter().filter(|line| line.keyword() == keyword).count() > 1;
        instance.advert_millis = instance.advert_millis.filter(|_| !is_repeated("advert_int"));
        instance.version = instance.version.filter(|_| !is_repeated("version"));
        let priority = last("priority").and_then(|line| line.word(1)?.parse().ok());
        Expected { instance, priority }
    });
    both.collect()
}

/// The first difference between the instances of a configuration and those that keepalived reports. What decides
/// whether nodes understand each other is compared as far as keepalived tells it.
pub(super) fn difference(expected: &[Expected], reports: &[InstanceReport]) -> Option<String> {
    for expected in expected {
        let Expected { instance: wanted, priority } = expected;
        let name = &wanted.name;
        let Some(report) = reports.iter().find(|report| report.name == *name) else {
            return Some(format!("keepalived does not run instance {name}"));
        };
        let other = |what| Some(format!("keepalived runs instance {name} with {what}"));
        if Some(report.router_id) != wanted.router_id {
            return other("another router id");
        }
        let version = wanted.version.map(|version| if version == Version::V2 { 2 } else { 3 });
        if differ(report.version, version) {
            return other("another version of the protocol");
        }
        if differ(report.advert_millis, wanted.advert_millis) {
            return other("another time between adverts");
        }
        if differ(report.priority, *priority) {
            return other("another priority");
        }
        // What follows an address is the length of its prefix, or its device.
        let address = |text: &String| text.split([' ', '/']).next()?.parse::<IpAddr>().ok();
        let has: BTreeSet<_> = report.addresses.iter().filter_map(address).collect();
        let wants: BTreeSet<_> = expected.addresses().collect();
        if has != wants {
            return other("other addresses");
        }
    }
    let extra =
        reports.iter().find(|report| expected.iter().all(|it| it.instance.name != report.name));
    extra.map(|report| format!("keepalived still runs instance {}", report.name))
}

/// Whether both are known and not the same.
fn differ<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
vrrp_instance ns/a {
    virtual_router_id 7
    version 3
    advert_int 0.1
    priority 100
    priority 254
    virtual_ipaddress {
        169.254.112.7/32 scope link
    }
    virtual_ipaddress_excluded {
        2001:db8::1
    }
}
";

    #[test]
    fn what_a_line_says_once_more_is_not_taken_from_the_first() {
        let text = TEXT.replace("    priority 100", "    advert_int 2\n    version 2");
        let [Expected { instance, priority }] = expected(&text).try_into().unwrap();
        assert_eq!((instance.version, instance.advert_millis), (None, None));
        assert_eq!((instance.router_id, priority), (Some(7), Some(254)));
    }

    #[test]
    fn every_difference_is_named() {
        let expected = expected(TEXT);
        assert_eq!(expected.len(), 1);
        let report = |name: &str, router_id, addresses: &[&str]| InstanceReport {
            name: name.to_owned(),
            router_id,
            addresses: addresses.iter().map(ToString::to_string).collect(),
            ..InstanceReport::default()
        };
        let with = |version, advert_millis, priority| {
            let report = report("ns/a", 7, &["169.254.112.7", "2001:db8::1"]);
            vec![InstanceReport { version, advert_millis, priority, ..report }]
        };
        let both = &["169.254.112.7/32 dev eth0 scope link", "2001:0db8::0001"];
        for (reports, difference_says) in [
            (vec![report("ns/a", 7, both)], None),
            (vec![], Some("does not run instance ns/a")),
            (vec![report("ns/a", 8, both)], Some("another router id")),
            (with(Some(3), Some(100), Some(254)), None),
            (with(None, None, Some(254)), None),
            (with(Some(2), Some(100), Some(254)), Some("another version")),
            (with(Some(3), Some(1000), Some(254)), Some("another time between adverts")),
            (with(Some(3), Some(100), Some(1)), Some("another priority")),
            (vec![report("ns/a", 7, &both[..1])], Some("other addresses")),
            (
                vec![report("ns/a", 7, &["169.254.112.7", "2001:db8::1", "192.0.2.1"])],
                Some("other addresses"),
            ),
            (
                vec![report("ns/a", 7, both), report("ns/b", 8, &[])],
                Some("still runs instance ns/b"),
            ),
        ] {
            let found = difference(&expected, &reports);
            match difference_says {
                None => assert_eq!(found, None),
                Some(text) => {
                    assert!(found.clone().is_some_and(|it| it.contains(text)), "{found:?}");
                }
            }
        }
    }
}
