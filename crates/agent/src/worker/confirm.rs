//! Whether keepalived runs what a configuration says.

use std::{collections::BTreeSet, net::IpAddr};

use landfall_vrrp::conf::{self, FoundInstance};

use crate::call::InstanceReport;

/// The instances of a configuration that we wrote.
pub(super) fn expected(text: &str) -> Vec<FoundInstance> {
    conf::parse(text).map(|file| conf::instances(&file).collect()).unwrap_or_default()
}

/// The first difference between the instances of a configuration and those that keepalived reports.
pub(super) fn difference(expected: &[FoundInstance], reports: &[InstanceReport]) -> Option<String> {
    for wanted in expected {
        let name = &wanted.name;
        let Some(report) = reports.iter().find(|report| report.name == *name) else {
            return Some(format!("keepalived does not run instance {name}"));
        };
        if Some(report.router_id) != wanted.router_id {
            return Some(format!("keepalived runs instance {name} with another router id"));
        }
        // What follows an address is the length of its prefix, or its device.
        let address = |text: &String| text.split([' ', '/']).next()?.parse::<IpAddr>().ok();
        let has: BTreeSet<_> = report.addresses.iter().filter_map(address).collect();
        let wants: BTreeSet<_> =
            wanted.advertised.iter().chain(&wanted.excluded).copied().collect();
        if has != wants {
            return Some(format!("keepalived runs instance {name} with other addresses"));
        }
    }
    let extra = reports.iter().find(|report| expected.iter().all(|it| it.name != report.name));
    extra.map(|report| format!("keepalived still runs instance {}", report.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
vrrp_instance ns/a {
    virtual_router_id 7
    virtual_ipaddress {
        169.254.112.7/32 scope link
    }
    virtual_ipaddress_excluded {
        2001:db8::1
    }
}
";

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
        let both = &["169.254.112.7/32 dev eth0 scope link", "2001:0db8::0001"];
        for (reports, difference_says) in [
            (vec![report("ns/a", 7, both)], None),
            (vec![], Some("does not run instance ns/a")),
            (vec![report("ns/a", 8, both)], Some("another router id")),
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
