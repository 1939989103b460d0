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
fn addresses_are_read_in_order_beside_what_is_none() {
    for (text, addrs, others) in [
        (None, &[][..], &[][..]),
        (Some(""), &[], &[]),
        (Some("10.0.0.1"), &["10.0.0.1"], &[]),
        (Some("fd00::1,10.0.0.1"), &["fd00::1", "10.0.0.1"], &[]),
        (Some(" 10.0.0.1 ,\tfd00::1,"), &["10.0.0.1", "fd00::1"], &[]),
        (Some("web.example.com, 10.0.0.1"), &["10.0.0.1"], &["web.example.com"]),
        (Some("10.0.0.01,10.0.0.0/24"), &[], &["10.0.0.01", "10.0.0.0/24"]),
    ] {
        let annotation = |text: &str| (words::ANNOTATION_KUBE_VIP_ADDRESSES.into(), text.into());
        let annotations = text.map(|text| [annotation(text)].into());
        let metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        let addrs: Vec<_> = addrs.iter().map(|addr| ip(addr)).collect();
        let others: Vec<_> = others.iter().map(|&other| other.to_owned()).collect();
        assert_eq!(addresses(&metadata), (addrs, others), "{text:?}");
    }
}

#[test]
fn addresses_are_written_without_blanks_in_their_order() {
    for text in ["", "10.0.0.1", "fd00::1,10.0.0.1", "10.0.0.1,fd00::1"] {
        let addrs: Vec<_> = text.split_terminator(',').map(ip).collect();
        assert_eq!(addresses_text(&addrs), text);
    }
}
