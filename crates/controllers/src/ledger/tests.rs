//! Tests of the ledger; each test plays both the watch and the API server.

use jiff::Timestamp;
use landfall_api::{HolderKind, Use};
use landfall_ipam::Terms;

use super::*;
use crate::{call::Failure, object::Version};

const POOL: &str = "IPGroup/dmz";

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn at(seconds: u64) -> Now {
    Now { wall: Timestamp::UNIX_EPOCH, uptime: Duration::from_secs(seconds) }
}

fn holder(key: &str) -> HolderEntry {
    HolderEntry::new(HolderKind::Service, ObjectKey::parse(key).unwrap())
}

fn claim(last: u8, key: &str) -> Claim {
    Claim::new(ip(last), Use::LoadBalancer, Some(PoolName::new(POOL)), holder(key))
}

/// The claim as the API server stores it.
fn stored(claim: &Claim, version: u64) -> Claim {
    Claim {
        uid: format!("uid-of-{}", claim.addr).into(),
        version: Version(version),
        ..claim.clone()
    }
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    let blocks = ["10.0.0.0-10.0.0.9".parse().unwrap()];
    ledger.set_pools(vec![Pool::new(PoolName::new(POOL), blocks, [])], &AddrSet::new());
    ledger.observe(Watched::ListBegins);
    ledger.observe(Watched::ListEnds);
    ledger
}

/// A ledger whose changes are read.
fn read() -> (Ledger, Reader) {
    let mut ledger = ledger();
    let reader = ledger.reader();
    (ledger, reader)
}

/// The changes since the last call.
fn told(ledger: &mut Ledger, reader: Reader) -> Vec<Change> {
    let changes = ledger.take_changes(reader).into_iter();
    changes.map(|change| Arc::into_inner(change).unwrap()).collect()
}

fn count(ledger: &Ledger) -> usize {
    ledger.count(&PoolName::new(POOL), "shop")
}

#[test]
fn an_address_is_taken_and_counted_from_the_moment_it_is_planned() {
    let (mut ledger, reader) = read();
    let write = ledger.take(claim(1, "shop/web"));
    assert!(ledger.book.is_taken(ip(1)) && ledger.is_in_flight(ip(1)));
    assert_eq!((count(&ledger), ledger.claim(ip(1))), (1, None));
    let given = Change::Given(PoolName::new(POOL), "shop".to_owned());
    assert_eq!(told(&mut ledger, reader), [given, Change::Settled(ip(1))]);

    let answer = Ok(Answer::Claim(stored(&claim(1, "shop/web"), 5)));
    assert_eq!(ledger.written(&write, None, answer, at(1)), Outcome::Done);
    assert_eq!((count(&ledger), ledger.is_in_flight(ip(1))), (1, false));
    assert!(ledger.has_service(&ObjectKey::new("shop", "web")));
    let changes = told(&mut ledger, reader);
    assert!(!changes.iter().any(|change| matches!(change, Change::Given(..) | Change::Freed(_))));
    ledger.observe(Watched::Present(ip(1), Version(5), stored(&claim(1, "shop/web"), 5)));
    assert_eq!(told(&mut ledger, reader), [], "the echo tells nothing new");
}

#[test]
fn a_write_that_did_not_happen_counts_no_more_and_one_that_may_have_happened_does() {
    for (failure, outcome, counts, read_due) in [
        (Failure::NotSent, Outcome::Nothing, 0, None),
        (
            Failure::Throttled(Duration::from_secs(3)),
            Outcome::Refused(Failure::Throttled(Duration::from_secs(3))),
            0,
            None,
        ),
        (Failure::Refused("no".into()), Outcome::Refused(Failure::Refused("no".into())), 0, None),
        (Failure::Exists, Outcome::Conflict, 0, Some(10_000)),
        (Failure::Unknown("lost".into()), Outcome::Unknown, 1, Some(10_250)),
    ] {
        let mut ledger = ledger();
        let write = ledger.take(claim(1, "shop/web"));
        let reported = ledger.written(&write, None, Err(failure.clone()), at(10));
        assert_eq!(reported, outcome, "{failure:?}");
        assert_eq!(count(&ledger), counts, "{failure:?}");
        assert_eq!(ledger.book.is_taken(ip(1)), read_due.is_some(), "{failure:?}");
        assert_eq!(ledger.next_due(), read_due.map(Duration::from_millis), "{failure:?}");
    }
}

#[test]
fn the_holder_of_a_lost_write_waits_until_a_read_tells_its_outcome() {
    for (answer, left) in [
        (Answer::NoClaim, 0),
        (Answer::Claim(stored(&claim(1, "shop/web"), 5)), 1),
        (Answer::Claim(stored(&claim(1, "other/web"), 5)), 0),
    ] {
        let (mut ledger, reader) = read();
        let (web, lost) = (ObjectKey::new("shop", "web"), Failure::Unknown("lost".into()));
        let waiter = Some(HolderRef::service(&web));
        let write = ledger.take(claim(1, "shop/web"));
        ledger.written(&write, waiter.clone(), Err(lost.clone()), at(10));
        assert_eq!(ledger.read_due(at(10)), []);
        let reads = ledger.read_due(at(11));
        assert_eq!(reads, [Write::Read { addr: ip(1), known: None }]);
        assert_eq!(ledger.read_due(at(12)), [], "it is read once");
        assert_eq!(ledger.written(&reads[0], None, Err(lost), at(12)), Outcome::Unknown);
        assert_eq!(count(&ledger), 1, "it still may have happened");
        let reads = ledger.read_due(at(20));
        let outcome = ledger.written(&reads[0], None, Ok(answer), at(20));
        assert_eq!((outcome, count(&ledger)), (Outcome::Read, left));
        assert!(told(&mut ledger, reader).contains(&Change::Read(ip(1), waiter)));
        assert!(!ledger.is_in_flight(ip(1)));
    }
}

#[test]
fn a_list_during_a_call_has_the_claim_read_when_the_call_has_ended() {
    let mut ledger = ledger();
    let write = ledger.take(claim(1, "shop/web"));
    ledger.observe(Watched::ListBegins);
    ledger.observe(Watched::ListEnds);
    ledger.written(&write, None, Ok(Answer::Claim(stored(&claim(1, "shop/web"), 5))), at(10));
    assert_eq!(ledger.read_due(at(10)), [Write::Read { addr: ip(1), known: Some(Version(5)) }]);
}

#[test]
fn holders_count_for_quotas_and_sharing_until_the_last_of_them_left() {
    let (mut ledger, reader) = read();
    let sharing = |key: &str| HolderEntry {
        terms: Some(Terms { key: Some("k".to_owned()), ..Terms::default() }.into()),
        ..holder(key)
    };
    let (web, dns) = (sharing("shop/web"), sharing("shop/dns"));
    let both = claim(1, "shop/web").held_by(vec![web.clone(), dns.clone()]);
    ledger.observe(Watched::Present(ip(1), Version(5), stored(&both, 5)));
    assert_eq!((count(&ledger), ledger.under_sharing_key("k").count()), (1, 1));
    let one = both.held_by(vec![dns]);
    told(&mut ledger, reader);
    ledger.observe(Watched::Present(ip(1), Version(6), stored(&one, 6)));
    assert_eq!((count(&ledger), ledger.under_sharing_key("k").count()), (1, 1));
    assert!(!ledger.has_service(&web.key));
    told(&mut ledger, reader);
    ledger.observe(Watched::Gone(ip(1), Version(7)));
    assert_eq!((count(&ledger), ledger.under_sharing_key("k").count()), (0, 0));
    assert_eq!(
        told(&mut ledger, reader),
        [
            Change::Returned(PoolName::new(POOL), "shop".to_owned()),
            Change::Claim(ip(1), Some(stored(&one, 6))),
            Change::Freed(ip(1)),
            Change::Settled(ip(1)),
        ]
    );
}

#[test]
fn an_address_under_release_counts_until_it_is_free() {
    let mut ledger = ledger();
    let known = stored(&claim(1, "shop/web"), 5);
    ledger.observe(Watched::Present(ip(1), Version(5), known.clone()));
    for (result, outcome, counts) in [
        (Ok(Answer::Kept), Outcome::Kept, 1),
        (Err(Failure::Unknown("lost".into())), Outcome::Unknown, 1),
        (Ok(Answer::Released { by: None }), Outcome::Done, 0),
    ] {
        ledger.begin_release(&known, &known.holders()[0], &Then::Free);
        assert_eq!((count(&ledger), ledger.claim_to_be(ip(1))), (1, None));
        let reported = ledger.release_ended(ip(1), Version(5), result, at(10));
        assert_eq!((reported, count(&ledger)), (outcome, counts));
    }
    assert!(!ledger.book.is_taken(ip(1)));
}

#[test]
fn a_release_that_is_forbidden_is_tried_less_and_less_often() {
    let (mut ledger, reader) = read();
    let known = stored(&claim(1, "shop/web"), 5);
    ledger.observe(Watched::Present(ip(1), Version(5), known.clone()));
    for wait in [250, 500, 1000] {
        ledger.begin_release(&known, &known.holders()[0], &Then::Free);
        ledger.release_ended(ip(1), Version(5), Ok(Answer::Kept), at(10));
        let until = Duration::from_secs(10) + Duration::from_millis(wait);
        assert_eq!(ledger.release_delay(ip(1), at(10)).unwrap().until, Some(until));
    }
    told(&mut ledger, reader);
    ledger.end_release_delays(at(20));
    assert_eq!(told(&mut ledger, reader), [Change::ReleaseDue(ip(1))]);
    ledger.end_release_delays(at(20));
    assert_eq!(told(&mut ledger, reader), []);
    ledger.begin_release(&known, &known.holders()[0], &Then::Free);
    ledger.release_ended(ip(1), Version(5), Ok(Answer::Kept), at(20));
    ledger.observe(Watched::Present(ip(1), Version(6), stored(&known, 6)));
    assert_eq!(ledger.release_delay(ip(1), at(20)), None, "something newer is known");
}

#[test]
fn a_reservation_is_kept_for_its_service_until_it_ends() {
    let (mut ledger, reader) = read();
    let end = Timestamp::from_second(60).unwrap();
    let reservation = Reservation {
        kind: HolderKind::Service,
        namespace: "shop".to_owned(),
        name: Some("web".to_owned()),
        expires: Some(end),
        retained: true,
    };
    let known = stored(&claim(1, "shop/web"), 5);
    let kept = Then::RetainIfGone(reservation).leaves(&known, &known.holders()[0]).unwrap();
    ledger.observe(Watched::Present(ip(1), Version(5), known.clone()));
    told(&mut ledger, reader);
    ledger.observe(Watched::Present(ip(1), Version(6), stored(&kept, 6)));
    let pool = PoolName::new(POOL);
    let returned = Change::Returned(pool.clone(), "shop".to_owned());
    assert!(
        told(&mut ledger, reader).contains(&returned),
        "the namespace can give it up for another"
    );
    assert_eq!(ledger.kept_for("shop", Some("web")).collect::<Vec<_>>(), [&ip(1)]);
    assert_eq!((ledger.retained(&pool, "shop"), count(&ledger)), ((1, Some(ip(1))), 1));
    assert_eq!(ledger.expire_due(at(10)), []);
    assert_eq!(ledger.next_due(), Some(Duration::from_secs(70)));
    let over = Now { wall: end, ..at(70) };
    let (uid, version) = (stored(&kept, 6).uid, Version(6));
    assert_eq!(ledger.expire_due(over), [Write::Expire { addr: ip(1), uid, version }]);
    assert_eq!(ledger.expire_due(over), [], "it is in flight");
}

#[test]
fn a_claim_of_another_use_keeps_its_use_when_its_holder_goes() {
    let reservation = Reservation {
        kind: HolderKind::Namespace,
        namespace: "shop".to_owned(),
        name: None,
        expires: None,
        retained: false,
    };
    let namespace = HolderEntry::new(HolderKind::Namespace, ObjectKey::cluster_scoped("shop"));
    for (purpose, left) in [
        (Use::LoadBalancer, Use::Reserved),
        (Use::Reserved, Use::Reserved),
        (Use::Egress, Use::Egress),
        (Use::Floating, Use::Floating),
    ] {
        let claim = Claim::new(ip(1), purpose, None, namespace.clone());
        let kept = Then::Reserve(reservation.clone()).leaves(&claim, &namespace).unwrap();
        assert_eq!((kept.purpose, kept.waits_for()), (Some(left), Some(&reservation)));
    }
}

#[test]
fn an_address_of_another_kind_of_holder_is_taken_and_has_no_service() {
    let mut ledger = ledger();
    let node = HolderEntry::new(HolderKind::Node, ObjectKey::cluster_scoped("n1"));
    let floating = Claim::new(ip(1), Use::Floating, None, node.clone());
    ledger.observe(Watched::Present(ip(1), Version(5), stored(&floating, 5)));
    assert!(ledger.book.is_taken(ip(1)));
    assert_eq!(ledger.held(&node.holder()).collect::<Vec<_>>(), [&ip(1)]);
    assert_eq!(ledger.claim(ip(1)).unwrap().services(), []);
}

/// The nodes that are to be written into claims.
fn placing(ledger: &mut Ledger, seconds: u64) -> Vec<Option<String>> {
    let mut nodes = Vec::new();
    for write in ledger.place_due(at(seconds)) {
        let Write::Place { node, .. } = write else { panic!("{write:?}") };
        nodes.push(node.map(|node| node.to_string()));
    }
    nodes
}

#[test]
fn the_node_that_carries_an_address_is_written_into_its_claim_once() {
    let (mut ledger, n1) = (ledger(), [Some("n1".to_owned())]);
    ledger.place(ip(1), Some("n1"));
    assert_eq!(placing(&mut ledger, 1), [], "there is no claim");
    let known = stored(&claim(1, "shop/web"), 5);
    ledger.observe(Watched::Present(ip(1), Version(5), known.clone()));
    assert_eq!(ledger.next_due(), Some(Duration::ZERO));
    assert_eq!(placing(&mut ledger, 1), n1);
    assert_eq!((placing(&mut ledger, 1), count(&ledger)), (vec![], 1), "it is in flight");
    let write = Write::Place { addr: ip(1), version: Version(5), node: Some("n1".into()) };
    let placed = Claim { node: Some("n1".into()), version: Version(6), ..known.clone() };
    ledger.written(&write, None, Ok(Answer::Claim(placed.clone())), at(1));
    assert_eq!((placing(&mut ledger, 1), ledger.next_due()), (vec![], None));
    ledger.place(ip(1), Some("n1"));
    assert_eq!(ledger.next_due(), None, "it says so already");

    // Another program writes something else.
    let other = Claim { node: Some("n9".into()), version: Version(7), ..known.clone() };
    ledger.observe(Watched::Present(ip(1), Version(7), other));
    assert_eq!(placing(&mut ledger, 2), n1);
    let write = Write::Place { addr: ip(1), version: Version(7), node: Some("n1".into()) };
    ledger.written(&write, None, Err(Failure::Conflict), at(2));
    assert_eq!(ledger.read_due(at(2)).len(), 1, "it is read before it is written again");
    let read = Write::Read { addr: ip(1), known: Some(Version(7)) };
    let now = Claim { version: Version(8), ..placed };
    ledger.written(&read, None, Ok(Answer::Claim(now)), at(2));
    assert_eq!(placing(&mut ledger, 3), []);
    ledger.place(ip(1), None);
    assert_eq!(placing(&mut ledger, 3), [None]);
}

#[test]
fn a_refused_note_about_a_node_is_tried_less_and_less_often_and_holds_up_nothing() {
    let mut ledger = ledger();
    let known = stored(&claim(1, "shop/web"), 5);
    ledger.observe(Watched::Present(ip(1), Version(5), known));
    ledger.place(ip(1), Some("n1"));
    for (seconds, wait) in [(10, 250), (20, 500), (30, 1000)] {
        assert_eq!(placing(&mut ledger, seconds).len(), 1);
        let write = Write::Place { addr: ip(1), version: Version(5), node: Some("n1".into()) };
        ledger.written(&write, None, Err(Failure::Refused("no".into())), at(seconds));
        assert!(!ledger.is_in_flight(ip(1)));
        assert_eq!(placing(&mut ledger, seconds), []);
        let due = Duration::from_secs(seconds) + Duration::from_millis(wait);
        assert_eq!(ledger.next_due(), Some(due));
    }
}

#[test]
fn an_address_of_which_nothing_was_told_keeps_its_node() {
    let mut ledger = ledger();
    let known = Claim { node: Some("n1".into()), ..stored(&claim(1, "shop/web"), 5) };
    ledger.observe(Watched::Present(ip(1), Version(5), known));
    assert_eq!((placing(&mut ledger, 1), ledger.next_due()), (vec![], None));
}
