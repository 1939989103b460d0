//! The name of an address in the ledger.
//!
//! Exactly one name per address, and one address per name: the API server's refusal to create a
//! name twice is what keeps an address from being given twice. So reading is strict.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Text that names no address in the ledger.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{0:?} names no address, expected IPv4 such as 10.0.0.5 or eight groups of IPv6 without zero \
     padding such as 2001-db8-0-0-0-0-0-10"
)]
pub struct NameError(String);

/// The name of an address: IPv4 as it is, IPv6 as eight groups without zero padding joined by `-`,
/// because object names may hold no colon.
///
/// IPv4-mapped IPv6 (`::ffff:10.0.0.5`) has a name of its own like any other address; no holder is given one.
pub fn of(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => v6.segments().map(|group| format!("{group:x}")).join("-"),
    }
}

/// The address a name stands for; only the form that [`of`] writes is taken.
pub fn parse(name: &str) -> Result<IpAddr, NameError> {
    let address = if name.contains('-') {
        name.replace('-', ":").parse::<Ipv6Addr>().map(IpAddr::V6)
    } else {
        name.parse::<Ipv4Addr>().map(IpAddr::V4)
    };
    address.ok().filter(|address| of(*address) == name).ok_or_else(|| NameError(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzzing;

    #[test]
    fn names_are_canonical() {
        for (address, name) in [
            ("10.0.0.5", "10.0.0.5"),
            ("255.255.255.255", "255.255.255.255"),
            ("::", "0-0-0-0-0-0-0-0"),
            ("2001:db8::10", "2001-db8-0-0-0-0-0-10"),
            ("2001:0DB8::A", "2001-db8-0-0-0-0-0-a"),
            ("::ffff:10.0.0.5", "0-0-0-0-0-ffff-a00-5"),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(of(address), name);
            assert_eq!(parse(name), Ok(address));
        }
    }

    #[test]
    fn other_spellings_are_refused_with_the_expected_form() {
        for name in [
            "",
            "web",
            "10.0.0",
            "10.0.0.05",
            "10.0.0.5 ",
            "10-0-0-5",
            "::1",
            "2001:db8:0:0:0:0:0:10",
            "2001-db8--10",
            "2001-DB8-0-0-0-0-0-10",
            "2001-0db8-0-0-0-0-0-10",
            "2001-db8-0-0-0-0-0-10-0",
            "2001-db8-0-0-0-0-0",
            "0-0-0-0-0-ffff-10.0.0.5",
        ] {
            let error = parse(name).unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?}")), "{error}");
            assert!(error.contains("10.0.0.5") && error.contains("2001-db8-0"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn every_address_survives_its_name(address: IpAddr) {
            prop_assert_eq!(parse(&of(address)), Ok(address));
        }

        #[test]
        fn a_name_that_is_read_is_the_name_that_is_written(
            name in "[0-9]{1,3}(\\.[0-9]{1,3}){3}|[0-9a-f]{1,4}(-[0-9a-f]{0,4}){1,8}|\\PC*"
        ) {
            fuzzing::name(&name);
        }

        #[test]
        fn names_fit_where_kubernetes_takes_them(address: IpAddr) {
            let name = of(address);
            prop_assert!(name.len() <= 63, "also a label value");
            prop_assert!(name.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f' | '.' | '-')));
            prop_assert!(!name.starts_with(['-', '.']) && !name.ends_with(['-', '.']));
        }
    }
}
