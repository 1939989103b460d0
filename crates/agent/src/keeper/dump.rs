//! Reads keepalived's JSON dump. What it says about passwords is skipped.

use serde::Deserialize;

use crate::call::{Counters, InstanceReport, State};

#[derive(Deserialize)]
struct Entry {
    data: Data,
    stats: Stats,
}

#[derive(Deserialize)]
struct Data {
    iname: String,
    /// Missing as long as the device is.
    #[serde(default)]
    ifp_ifname: String,
    vrid: u8,
    version: Option<u8>,
    /// Seconds.
    adver_int: Option<f64>,
    base_priority: Option<u8>,
    state: u8,
    /// Seconds since 1970.
    last_transition: f64,
    /// Both lists are missing when they are empty.
    #[serde(default)]
    vips: Vec<String>,
    #[serde(default)]
    evips: Vec<String>,
}

/// The names that [`Counters`] has in the dump. Two of them depend on how keepalived was built.
#[derive(Deserialize)]
struct Stats {
    advert_rcvd: u64,
    advert_sent: u64,
    become_master: u64,
    release_master: u64,
    packet_len_err: u64,
    advert_interval_err: u64,
    ip_ttl_err: u64,
    invalid_type_rcvd: u64,
    addr_list_err: u64,
    invalid_authtype: u64,
    #[serde(default)]
    authtype_mismatch: u64,
    #[serde(default)]
    auth_failure: u64,
    pri_zero_rcvd: u64,
    pri_zero_sent: u64,
}

/// The instances of a dump, in its order.
pub(super) fn parse(text: &[u8]) -> Result<Vec<InstanceReport>, serde_json::Error> {
    let entries: Vec<Entry> = serde_json::from_slice(text)?;
    Ok(entries.into_iter().map(report).collect())
}

fn report(Entry { data, stats }: Entry) -> InstanceReport {
    // Each is the address, perhaps with the length of its prefix, and then its device and more.
    let address = |text: &String| text.split([' ', '/']).next().unwrap_or_default().to_owned();
    InstanceReport {
        name: data.iname,
        interface: data.ifp_ifname,
        router_id: data.vrid,
        version: data.version,
        advert_millis: data.adver_int.and_then(|seconds| millis(seconds).try_into().ok()),
        priority: data.base_priority,
        state: state(data.state),
        last_transition_millis: millis(data.last_transition),
        addresses: data.vips.iter().chain(&data.evips).map(address).collect(),
        counters: Counters {
            advert_rcvd: stats.advert_rcvd,
            advert_sent: stats.advert_sent,
            become_master: stats.become_master,
            release_master: stats.release_master,
            packet_len_err: stats.packet_len_err,
            advert_interval_err: stats.advert_interval_err,
            ip_ttl_err: stats.ip_ttl_err,
            invalid_type_rcvd: stats.invalid_type_rcvd,
            addr_list_err: stats.addr_list_err,
            invalid_authtype: stats.invalid_authtype,
            authtype_mismatch: stats.authtype_mismatch,
            auth_failure: stats.auth_failure,
            pri_zero_rcvd: stats.pri_zero_rcvd,
            pri_zero_sent: stats.pri_zero_sent,
        },
    }
}

fn state(number: u8) -> State {
    match number {
        1 => State::Backup,
        2 => State::Master,
        3 => State::Fault,
        _ => State::Init,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a number outside the range becomes its end")]
fn millis(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of keepalived 2.2.7: a master of version 3 with excluded addresses of both families, a backup of version
    /// 2 with a password, and an instance on a device that does not exist.
    const RECORDED: &[u8] = include_bytes!("dump/recorded.json");

    #[test]
    fn a_recorded_dump_is_understood() {
        let instances = parse(RECORDED).unwrap();
        let told: Vec<_> = instances
            .iter()
            .map(|it| (it.name.as_str(), it.interface.as_str(), it.router_id, it.state))
            .collect();
        assert_eq!(
            told,
            [
                ("g/0", "eth0", 51, State::Master),
                ("ns/old", "eth0", 52, State::Backup),
                ("ns/gone", "eth9", 53, State::Fault),
            ]
        );
        let forms: Vec<_> =
            instances.iter().map(|it| (it.version, it.advert_millis, it.priority)).collect();
        assert_eq!(forms[0], (Some(3), Some(100), Some(254)));
        assert_eq!((forms[1].0, forms[1].1), (Some(2), Some(1000)));
        assert_eq!(instances[0].addresses, ["169.254.112.51", "192.0.2.7", "fd01::77"]);
        assert_eq!(instances[1].addresses, ["192.0.2.9"]);
        assert_eq!(instances[0].last_transition_millis, 1_795_050_870_178);
        assert_eq!(instances[0].counters.advert_sent, 19);
        assert_eq!(instances[0].counters.become_master, 1);
    }

    #[test]
    fn every_counter_is_the_one_of_its_name() {
        let names = "advert_rcvd advert_sent become_master release_master packet_len_err \
            advert_interval_err ip_ttl_err invalid_type_rcvd addr_list_err invalid_authtype \
            authtype_mismatch auth_failure pri_zero_rcvd pri_zero_sent";
        let mut dump: serde_json::Value = serde_json::from_slice(RECORDED).unwrap();
        for (name, number) in names.split_whitespace().zip(1_u64..) {
            let counter = &mut dump[0]["stats"][name];
            assert!(counter.is_u64(), "{name}");
            *counter = number.into();
        }
        let counters = parse(dump.to_string().as_bytes()).unwrap()[0].counters;
        let serde_json::Value::Object(read) = serde_json::to_value(counters).unwrap() else {
            unreachable!("a struct is an object")
        };
        let camel = |name: &str| {
            let mut words = name.split('_');
            let first = words.next().unwrap().to_owned();
            words.fold(first, |all, word| all + &word[..1].to_uppercase() + &word[1..])
        };
        for (name, number) in names.split_whitespace().zip(1_u64..) {
            assert_eq!(read[&camel(name)], number, "{name}");
        }
        assert_eq!(read.len(), 14);
    }

    #[test]
    fn a_password_is_not_kept() {
        assert!(RECORDED.windows(6).any(|bytes| bytes == b"secret"));
        assert!(!format!("{:?}", parse(RECORDED).unwrap()).contains("secret"));
    }

    #[test]
    fn half_a_dump_is_an_error() {
        for end in 0..RECORDED.trim_ascii_end().len() {
            assert!(parse(&RECORDED[..end]).is_err(), "{end}");
        }
    }
}
