//! Requests, reasons and the texts about them.

use std::{iter, net::IpAddr};

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{GroupName, Problem, keys};

fn request(annotations: &[(&str, &str)]) -> AnnounceRequest {
    let annotation = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    AnnounceRequest::read(&annotations.iter().map(annotation).collect())
}

fn edge() -> GroupName {
    "net/edge".parse().unwrap()
}

fn ip() -> IpAddr {
    IpAddr::from([192, 0, 2, 5])
}

#[test]
fn a_group_is_a_namespace_a_slash_and_a_name() {
    for good in
        ["net/edge", "a/b", "n-1/edge.dmz", &format!("{}/{}", "n".repeat(63), "g".repeat(253))]
    {
        let read = request(&[(keys::ANNOTATION_KEEPALIVED_GROUP, good)]).group.unwrap().unwrap();
        assert_eq!(read.to_string(), good);
        let (namespace, name) = good.split_once('/').unwrap();
        assert_eq!((read.namespace(), read.name()), (namespace, name));
    }
    for bad in [
        "",
        "foo",
        "/",
        "a/",
        "/b",
        "a/b/c",
        "a/b/",
        " a/b",
        "a/b\n",
        "A/b",
        "a.b/c",
        "a/b..c",
        "a/-b",
        "a/b-",
        "a/b_c",
        "a/{b}",
        "ä/b",
        &format!("{}/b", "n".repeat(64)),
        &format!("a/{}", "g".repeat(254)),
    ] {
        let problem =
            request(&[(keys::ANNOTATION_KEEPALIVED_GROUP, bad)]).group.unwrap().unwrap_err();
        assert_eq!(problem.field, keys::ANNOTATION_KEEPALIVED_GROUP, "{bad}");
        assert!(problem.to_string().len() < 400, "{bad}");
    }
    assert_eq!(request(&[]), AnnounceRequest::default());
}

#[test]
fn addresses_are_spread_for_exactly_the_word_true() {
    for (value, spread) in
        [("true", true), ("True", false), ("yes", false), ("true ", false), ("", false)]
    {
        assert_eq!(request(&[(keys::ANNOTATION_SPREAD_VIPS, value)]).spread, spread, "{value:?}");
    }
}

#[test]
fn a_service_with_a_bad_line_is_announced_all_the_same() {
    let read = request(&[
        (keys::ANNOTATION_KEEPALIVED_GROUP, "net/edge"),
        (keys::ANNOTATION_VERBATIM_CONFIG, r#"{"a": 1}"#),
    ]);
    assert_eq!(read.group, Some(Ok(edge())));
    assert_eq!((read.lines.lines.is_empty(), read.lines.refused.len()), (true, 1));
}

/// All obstacles: each names the one that follows it, so that none can be forgotten.
fn obstacles() -> impl Iterator<Item = Obstacle> {
    iter::successors(Some(Obstacle::GroupUnknown(edge())), |obstacle| {
        Some(match obstacle {
            Obstacle::GroupUnknown(_) => Obstacle::NamespaceRefused(edge(), "shop".to_owned()),
            Obstacle::NamespaceRefused(..) => Obstacle::OutsideRanges(edge(), ip()),
            Obstacle::OutsideRanges(..) => Obstacle::Unusable(ip(), "a loopback address"),
            Obstacle::Unusable(..) => Obstacle::NotEntitled(ip(), "shop".to_owned()),
            Obstacle::NotEntitled(..) => {
                Obstacle::TooManyChosen(edge(), ip(), "shop".to_owned(), 1024)
            }
            Obstacle::TooManyChosen(..) => Obstacle::AddressOfNode(ip(), "n1".to_owned()),
            Obstacle::AddressOfNode(..) => Obstacle::AddressOfApiServer(ip()),
            Obstacle::AddressOfApiServer(_) => {
                Obstacle::AddressConflict(ip(), "Service shop/web".to_owned())
            }
            Obstacle::AddressConflict(..) => {
                Obstacle::Unparseable(Problem::new("annotation", "it is bad", "Write it well"))
            }
            Obstacle::Unparseable(_) => Obstacle::GroupUnusable(edge()),
            Obstacle::GroupUnusable(_) => Obstacle::NoNodes(edge()),
            Obstacle::NoNodes(_) => Obstacle::NoRouterId(edge()),
            Obstacle::NoRouterId(_) => Obstacle::TooManyInstances(edge(), "shop".to_owned(), 64),
            Obstacle::TooManyInstances(..) => Obstacle::TooManyAddresses(edge(), 1000),
            Obstacle::TooManyAddresses(..) => Obstacle::GroupFull(edge(), 9000),
            Obstacle::GroupFull(..) => Obstacle::NotApplied(edge(), 7),
            Obstacle::NotApplied(..) => Obstacle::NoHolder(edge(), ip()),
            Obstacle::NoHolder(..) => Obstacle::NoReadyPod(edge()),
            Obstacle::NoReadyPod(_) => Obstacle::HolderSilent(ip(), "n1".to_owned()),
            Obstacle::HolderSilent(..) => return None,
        })
    })
}

#[test]
fn every_obstacle_has_a_reason_of_the_list_and_every_reason_an_obstacle() {
    let mut reasons: Vec<_> = obstacles().map(|obstacle| obstacle.reason()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons, NotAnnounced::ALL);
}

#[test]
fn every_text_is_a_complete_sentence() {
    let sentence = |text: &str| {
        let body = text.strip_suffix('.').unwrap_or_default();
        body.split_whitespace().count() > 2
            && !text.contains("  ")
            && !body.ends_with(['.', ' ', ';'])
            && text.starts_with(|first: char| first.is_uppercase())
    };
    for reason in NotAnnounced::ALL {
        assert!(sentence(reason.cause()), "{reason}: {}", reason.cause());
        assert!(sentence(reason.fix()), "{reason}: {}", reason.fix());
    }
    for obstacle in obstacles() {
        assert!(sentence(&obstacle.fix()), "{obstacle:?}: {}", obstacle.fix());
        let (reason, message) = not_announced(std::slice::from_ref(&obstacle)).unwrap();
        assert_eq!(reason, obstacle.reason());
        assert_eq!(message, format!("{obstacle}. {}", obstacle.fix()));
    }
}

#[test]
fn several_obstacles_have_the_word_and_the_fix_of_the_first_in_the_list() {
    let conflict = Obstacle::AddressConflict(ip(), "Service shop/web".to_owned());
    let outside = Obstacle::OutsideRanges(edge(), IpAddr::from([10, 0, 0, 1]));
    let (reason, message) = not_announced(&[conflict, outside]).unwrap();
    assert_eq!(reason, NotAnnounced::RangeRefused);
    assert_eq!(
        message,
        "10.0.0.1 is outside the allowedRanges of net/edge; 192.0.2.5 is held by Service shop/web. \
         Add the address to the group's `allowedRanges`, or give the Service another address."
    );
    let many: Vec<_> = (0..20).map(|n| Obstacle::NoHolder(edge(), [10, 0, 0, n].into())).collect();
    let (_, message) = not_announced(&many).unwrap();
    assert!(message.contains("holds 10.0.0.7; and 12 more. Look"), "{message}");
    assert_eq!(not_announced(&[]), None);
}

#[test]
fn a_service_that_is_announced_names_its_nodes() {
    let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
    let (one, other) = (ip(), IpAddr::from([192, 0, 2, 6]));
    assert_eq!(announced(&[(one, "n2", at(0))]), "n2 since 2027-01-15T08:00:00Z");
    assert_eq!(
        announced(&[(one, "n2", at(0)), (other, "n2", at(5))]),
        "n2 since 2027-01-15T08:00:05Z",
        "since when it has all of them"
    );
    assert_eq!(
        announced(&[(one, "n2", at(0)), (other, "n1", at(5))]),
        "192.0.2.5: n2 since 2027-01-15T08:00:00Z; 192.0.2.6: n1 since 2027-01-15T08:00:05Z"
    );
}

proptest! {
    #[test]
    fn a_group_that_is_read_is_written_as_it_was(text in "[a-z0-9./A-Z-]{0,20}|\\PC{0,20}") {
        if let Ok(name) = text.parse::<GroupName>() {
            prop_assert_eq!(name.to_string(), text);
        }
    }
}
