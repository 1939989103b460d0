//! Small texts: truth values and lists of addresses.

use super::*;

#[test]
fn truth_values_are_those_of_go() {
    for text in ["1", "t", "T", "TRUE", "true", "True"] {
        assert_eq!(go_bool(text), Some(true), "{text}");
    }
    for text in ["0", "f", "F", "FALSE", "false", "False"] {
        assert_eq!(go_bool(text), Some(false), "{text}");
    }
    for text in ["", "yes", "no", "tRUE", " true", "on", "2"] {
        assert_eq!(go_bool(text), None, "{text}");
    }
}

#[test]
fn one_address_of_each_family_is_read_however_many_are_listed() {
    let all_of_a_pool: Vec<_> = (0..=255).map(|last| format!("10.0.0.{last}")).collect();
    for (text, first, surplus, other) in [
        (None, &[][..], None, None),
        (Some(""), &[], None, None),
        (Some("10.0.0.1"), &["10.0.0.1"], None, None),
        (Some("fd00::1,10.0.0.1"), &["fd00::1", "10.0.0.1"], None, None),
        (Some(" 10.0.0.1 ,\tfd00::1,"), &["10.0.0.1", "fd00::1"], None, None),
        (Some("web.example.com, 10.0.0.1"), &["10.0.0.1"], None, Some("web.example.com")),
        (Some("10.0.0.01,10.0.0.0/24"), &[], None, Some("10.0.0.01")),
        (Some("10.0.0.1,fd00::1,10.0.0.2"), &["10.0.0.1", "fd00::1"], Some("10.0.0.2"), None),
        (Some(&*all_of_a_pool.join(",")), &["10.0.0.0"], Some("10.0.0.1"), None),
    ] {
        let annotation = |text: &str| (keys::ANNOTATION_KUBE_VIP_ADDRESSES.into(), text.into());
        let annotations = text.map(|text| [annotation(text)].into());
        let metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        let first: Vec<_> = first.iter().map(|addr| ip(addr)).collect();
        let (surplus, other) = (surplus.map(ip), other.map(str::to_owned));
        assert_eq!(addresses(&metadata), Addresses { first, surplus, other }, "{text:?}");
    }
}

#[test]
fn addresses_are_written_without_blanks_in_their_order() {
    for text in ["", "10.0.0.1", "fd00::1,10.0.0.1", "10.0.0.1,fd00::1"] {
        let addrs: Vec<_> = text.split_terminator(',').map(ip).collect();
        assert_eq!(addresses_text(&addrs), text);
    }
}
