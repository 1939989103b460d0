use std::{sync::Arc, time::Duration};

use landfall_ipam::Terms;
use proptest::prelude::*;

use super::super::{
    fixtures::ip,
    sim::{KINDS, Kind, Sim, Stored},
    view::Request,
};
use super::*;

mod promises;

/// A step of a random story; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Create(u8),
    Delete(u8),
    ToggleType(u8),
    Ask(u8, u8),
    AskNothing(u8),
    WipeStatus(u8),
    ChangeClass(u8),
    WritePool(u8),
    Deliver(u8, u8, u8),
    Plan(u8),
    TakeHold(u8, u8),
    Answer(u8, u8),
    Lose(u8, u8),
    Stray(u8),
    Crash(u8),
    List(u8, u8),
    PassTime(u8),
    /// An administrator keeps an address for a Service, or for any of the namespace, for a while or
    /// for good.
    Reserve(u8, u8, u8),
    Retain(u8),
    /// A user changes on which terms a Service shares: key, consent, port, traffic policy, or not at all.
    Share(u8, u8),
    /// Only in wild stories: a user writes what only operators should.
    HandEditStatus(u8, u8),
    DeleteClaim(u8),
}

fn tame_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<u8>().prop_map(Step::Create),
        3 => any::<u8>().prop_map(Step::Delete),
        2 => any::<u8>().prop_map(Step::ToggleType),
        3 => any::<(u8, u8)>().prop_map(|(a, b)| Step::Ask(a, b)),
        2 => any::<u8>().prop_map(Step::AskNothing),
        1 => any::<u8>().prop_map(Step::WipeStatus),
        1 => any::<u8>().prop_map(Step::ChangeClass),
        1 => any::<u8>().prop_map(Step::WritePool),
        1 => any::<(u8, u8, u8)>().prop_map(|(a, b, c)| Step::Reserve(a, b, c)),
        1 => any::<u8>().prop_map(Step::Retain),
        4 => any::<(u8, u8)>().prop_map(|(a, b)| Step::Share(a, b)),
        20 => any::<(u8, u8, u8)>().prop_map(|(a, b, c)| Step::Deliver(a, b, c)),
        20 => any::<u8>().prop_map(Step::Plan),
        20 => any::<(u8, u8)>().prop_map(|(a, b)| Step::TakeHold(a, b)),
        16 => any::<(u8, u8)>().prop_map(|(a, b)| Step::Answer(a, b)),
        2 => any::<(u8, u8)>().prop_map(|(a, b)| Step::Lose(a, b)),
        3 => any::<u8>().prop_map(Step::Stray),
        1 => any::<u8>().prop_map(Step::Crash),
        4 => any::<(u8, u8)>().prop_map(|(a, b)| Step::List(a, b)),
        3 => any::<u8>().prop_map(Step::PassTime),
    ]
}

fn wild_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        40 => tame_step(),
        1 => any::<(u8, u8)>().prop_map(|(a, b)| Step::HandEditStatus(a, b)),
        1 => any::<u8>().prop_map(Step::DeleteClaim),
    ]
}

const POOLS: [(&str, &str); 4] = [
    ("10.0.0.0-10.0.0.3", ""),
    ("10.0.0.0-10.0.0.1", ""),
    ("10.0.0.0-10.0.0.3", "10.0.0.1"),
    ("10.0.0.2-10.0.0.5", ""),
];

fn name(pick: u8) -> String {
    match pick % 5 {
        4 => "other/s4".to_owned(),
        n => format!("shop/s{n}"),
    }
}

fn terms(pick: u8) -> Option<Arc<Terms>> {
    let bit = |n: u8| pick >> n & 1 == 1;
    (!pick.is_multiple_of(5)).then(|| {
        let port = |n: u8| format!("TCP/{}", 80 + n);
        Arc::new(Terms {
            key: Some(if bit(7) && bit(6) { "b" } else { "a" }.to_owned()),
            with: if bit(5) { vec!["*".to_owned()] } else { vec![] },
            ports: (0..3).filter(|n| bit(*n)).map(port).collect(),
            local: bit(3) && bit(4),
            selector: bit(6).then(|| "app=web".to_owned()),
        })
    })
}

fn addr(pick: u8) -> std::net::IpAddr {
    [10, 0, 0, pick % 6].into()
}

fn happen(sim: &mut Sim, step: &Step) {
    let operators = sim.operators.len();
    let who = |pick: u8| usize::from(pick) % operators;
    match step {
        Step::Create(service) => sim.cluster.create_service(&name(*service)),
        Step::Delete(service) => sim.cluster.delete_service(&name(*service)),
        Step::ToggleType(service) => {
            sim.cluster.edit_service(&name(*service), |stored| stored.load_balancer ^= true);
        }
        Step::Ask(service, what) => sim.cluster.edit_service(&name(*service), |stored| {
            stored.view.request = Request::Addresses(vec![addr(*what)]);
        }),
        Step::AskNothing(service) => {
            sim.cluster.edit_service(&name(*service), |stored| stored.view.request = Request::Any);
        }
        Step::WipeStatus(service) => {
            sim.cluster.edit_service(&name(*service), |stored| stored.view.shows.clear());
        }
        // As the API server allows it: only together with a change of type.
        Step::ChangeClass(service) => sim.cluster.edit_service(&name(*service), |stored| {
            stored.view.shows.clear();
            let other = stored.view.class.is_none().then(|| "other.example/lb".into());
            stored.view.class = other;
        }),
        Step::WritePool(pick) => {
            let (ranges, excluded) = POOLS[usize::from(*pick) % POOLS.len()];
            sim.cluster.set_pool("IPGroup/a", ranges, excluded);
        }
        Step::Reserve(what, service, how) => {
            let name = ServiceKey::parse(&name(*service)).unwrap().name().to_owned();
            let expires = (how % 2 == 0).then(|| sim.wall() + jiff::SignedDuration::from_secs(9));
            let name = (how % 3 > 0).then_some(name);
            let reservation = Reservation { namespace: "shop".to_owned(), name, expires };
            sim.cluster.reserve(addr(*what), reservation);
        }
        Step::Retain(pick) => sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| {
            view.retain_for = (pick % 2 == 0).then(|| Duration::from_secs(5));
        }),
        Step::Share(service, what) => {
            sim.cluster.edit_service(&name(*service), |stored| stored.view.terms = terms(*what));
        }
        Step::Deliver(operator, kind, count) => {
            let kind = KINDS[usize::from(*kind) % KINDS.len()];
            sim.deliver(who(*operator), kind, usize::from(*count % 4) + 1);
        }
        Step::Plan(operator) => {
            sim.plan(who(*operator));
        }
        Step::TakeHold(operator, call) => with_call(sim, who(*operator), *call, Sim::take_hold),
        Step::Answer(operator, call) => with_call(sim, who(*operator), *call, Sim::answer),
        Step::Lose(operator, call) => with_call(sim, who(*operator), *call, Sim::lose),
        Step::Stray(pick) => sim.stray(usize::from(*pick)),
        Step::Crash(operator) => sim.crash(who(*operator)),
        Step::List(operator, kind) => {
            sim.list(who(*operator), KINDS[usize::from(*kind) % KINDS.len()]);
        }
        Step::PassTime(tenths) => sim.pass_time(Duration::from_millis(u64::from(*tenths) * 100)),
        Step::HandEditStatus(service, what) => {
            sim.cluster.edit_service(&name(*service), |stored: &mut Stored| {
                // What a Service of a foreign class shows is for its own program to mend.
                if stored.load_balancer && stored.view.class.is_none() {
                    stored.view.shows = vec![addr(*what)];
                }
            });
        }
        Step::DeleteClaim(what) => sim.cluster.delete_claim(addr(*what)),
    }
}

fn with_call(sim: &mut Sim, operator: usize, pick: u8, act: fn(&mut Sim, usize, usize)) {
    let calls = sim.calls(operator);
    if calls > 0 {
        act(sim, operator, usize::from(pick) % calls);
    }
}

/// A cluster with one pool and operators that have listed everything.
fn running(operators: usize) -> Sim {
    let mut sim = Sim::new(operators);
    sim.cluster.set_pool("IPGroup/a", POOLS[0].0, POOLS[0].1);
    for operator in 0..operators {
        for kind in KINDS {
            sim.list(operator, kind);
        }
    }
    sim
}

/// What every Service says, to the word.
fn said(sim: &Sim) -> Vec<(String, Vec<String>)> {
    let words = |stored: &Stored| {
        stored.view.conditions.iter().map(|condition| condition.message.clone()).collect()
    };
    sim.cluster.services.iter().map(|(key, stored)| (key.to_string(), words(stored))).collect()
}

fn shown(sim: &Sim) -> Vec<(String, Vec<String>)> {
    sim.cluster
        .services
        .iter()
        .map(|(key, stored)| {
            (key.to_string(), stored.view.shows.iter().map(ToString::to_string).collect())
        })
        .collect()
}

proptest! {
    // 256 stories unless PROPTEST_CASES says more.
    #![proptest_config(ProptestConfig { max_shrink_iters: 3_000, ..ProptestConfig::default() })]

    /// Any number of operators, stale, slow, crashing, with lost answers, against users who change
    /// their minds: at no moment does a Service show an address whose claim does not name it, and
    /// in the end nothing is leaked and everyone who can be served is.
    #[test]
    fn no_address_is_ever_doubled(
        operators in 1..=3_usize,
        steps in prop::collection::vec(tame_step(), 1..300),
    ) {
        let mut sim = running(operators);
        for step in &steps {
            happen(&mut sim, step);
            let wrong = sim.cluster.shown_without_claim();
            prop_assert!(wrong.is_empty(), "after {step:?}: {wrong:?}");
            let clashing = sim.cluster.recorded_clashes();
            prop_assert!(clashing.is_empty(), "after {step:?}: {clashing:?}");
        }
        sim.settle();
        let wrong = sim.cluster.violations();
        prop_assert!(wrong.is_empty(), "in the end: {wrong:?}");
        prop_assert_eq!(sim.starved(), vec![]);
        // Another start changes nothing and writes nothing.
        let before = (shown(&sim), said(&sim));
        let writes = sim.cluster.writes.len();
        for operator in 0..operators {
            sim.crash(operator);
        }
        sim.settle();
        prop_assert_eq!((shown(&sim), said(&sim)), before);
        prop_assert_eq!(&sim.cluster.writes[writes..], &[] as &[&str]);
    }

    /// The same while users write what only operators should: no promise for the moment, but in
    /// the end ledger and Services agree again, unless two Services were made to show one address.
    #[test]
    fn what_users_break_is_mended(
        operators in 1..=2_usize,
        steps in prop::collection::vec(wild_step(), 1..300),
    ) {
        let mut sim = running(operators);
        for step in &steps {
            happen(&mut sim, step);
        }
        sim.settle();
        let disputed = |violation: &landfall_ipam::Violation| matches!(
            violation,
            landfall_ipam::Violation::ShownWithoutClaim(..)
                | landfall_ipam::Violation::SharedWithoutConsent(..)
        );
        let wrong: Vec<_> =
            sim.cluster.violations().into_iter().filter(|wrong| !disputed(wrong)).collect();
        prop_assert!(wrong.is_empty(), "in the end: {wrong:?}");
    }
}

#[test]
fn an_address_takes_two_writes_and_then_silence() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take", "publish"]);
    assert_eq!(shown(&sim), [("shop/web".to_owned(), vec!["10.0.0.0".to_owned()])]);
    assert_eq!(sim.plan(0), 0);
}

#[test]
fn a_new_request_is_granted_before_the_old_address_is_given_up() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.writes.clear();
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.2")]);
    });
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take", "publish", "release"]);
    assert_eq!(shown(&sim)[0].1, ["10.0.0.2"]);
}

#[test]
fn a_crash_after_the_claim_is_resumed_without_a_second_address_or_an_extra_write() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.deliver(0, Kind::Services, 9);
    sim.plan(0);
    sim.take_hold(0, 0);
    assert_eq!(sim.cluster.writes, ["take"]);
    sim.crash(0);
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take", "publish"]);
    assert_eq!(shown(&sim)[0].1, ["10.0.0.0"]);
}

#[test]
fn a_service_that_changed_since_the_claim_has_it_touched_first() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.writes.clear();
    sim.cluster.edit_service("shop/web", |stored| stored.view.shows.clear());
    sim.settle();
    assert_eq!(sim.cluster.writes, ["touch", "publish"]);
    assert_eq!(shown(&sim)[0].1, ["10.0.0.0"], "the same address comes back");
}

#[test]
fn a_freed_address_goes_to_the_oldest_and_nobody_else_is_written() {
    let mut sim = running(1);
    for name in ["a", "b", "c", "d", "e", "f", "g"] {
        sim.cluster.create_service(&format!("shop/{name}"));
    }
    sim.settle();
    sim.cluster.writes.clear();
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["release", "take", "publish"]);
    let e = shown(&sim).into_iter().find(|(key, _)| key == "shop/e").unwrap();
    assert_eq!(e.1, ["10.0.0.1"]);
}

#[test]
fn a_refused_request_keeps_the_old_address_and_says_why() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/a");
    sim.settle();
    sim.cluster.create_service("shop/b");
    sim.settle();
    sim.cluster.edit_service("shop/b", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    let b = &sim.cluster.services[&ServiceKey::parse("shop/b").unwrap()].view;
    assert_eq!(b.shows, [ip("10.0.0.1")]);
    let condition = &b.conditions[0];
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "TakenBy"));
    assert!(
        condition.message.starts_with("keeps 10.0.0.1; 10.0.0.0 is taken by Service shop/a"),
        "{}",
        condition.message
    );
}

#[test]
fn a_shown_address_without_a_claim_is_entered_in_the_ledger_and_nothing_is_written_on_the_service()
{
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.delete_claim(ip("10.0.0.0"));
    sim.cluster.writes.clear();
    sim.settle();
    assert_eq!(sim.cluster.writes, ["take"]);
    assert_eq!(shown(&sim)[0].1, ["10.0.0.0"]);
}

#[test]
fn an_address_that_left_its_pool_stays_and_says_so() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.settle();
    sim.cluster.set_pool("IPGroup/a", "10.0.0.2-10.0.0.3", "");
    sim.settle();
    let web = &sim.cluster.services[&ServiceKey::parse("shop/web").unwrap()].view;
    assert_eq!(web.shows, [ip("10.0.0.0")]);
    assert_eq!(web.conditions[0].reason, "OutsidePool");
    assert_eq!(web.conditions[0].status, "True");
}

/// What a Service's condition says: status, reason and message.
fn condition_of(sim: &Sim, key: &str) -> (String, String, String) {
    let view = &sim.cluster.services[&ServiceKey::parse(key).unwrap()].view;
    let condition = &view.conditions[0];
    (condition.status.clone(), condition.reason.clone(), condition.message.clone())
}

#[test]
fn a_quota_holds_for_a_namespace_and_the_oldest_is_served_when_one_is_given_back() {
    let mut sim = running(1);
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| {
        view.quota = Some(landfall_api::Quota { per_namespace: Some(2), ..Default::default() });
    });
    for key in ["shop/a", "shop/b", "shop/c", "shop/d", "other/a"] {
        sim.cluster.create_service(key);
    }
    sim.settle();
    let served: Vec<_> = shown(&sim).into_iter().filter(|(_, addrs)| !addrs.is_empty()).collect();
    let served: Vec<_> = served.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(served, ["other/a", "shop/a", "shop/b"], "one address is free, but not for shop");
    let (status, reason, message) = condition_of(&sim, "shop/c");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "QuotaExceeded"));
    assert!(message.contains("IPGroup/a: the namespace may hold 2 of its addresses"), "{message}");

    sim.cluster.writes.clear();
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["release", "take", "publish"]);
    let of = |key: &str| shown(&sim).into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!((of("shop/c").len(), of("shop/d").len()), (1, 0));
}

#[test]
fn a_service_gets_its_address_from_the_pools_it_asks_for_in_its_own_order() {
    let mut sim = running(1);
    sim.cluster.set_pool("IPGroup/b", "10.0.0.16-10.0.0.17", "");
    sim.cluster.set_pool("IPGroup/on-request", "10.0.0.32", "");
    sim.cluster.put_pool(&PoolName::new("IPGroup/on-request"), |view| {
        if let Ok(pool) = &mut view.pool {
            pool.auto_assign = false;
        }
    });
    let asks = |sim: &mut Sim, key: &str, pools: &[&str]| {
        sim.cluster.create_service(key);
        sim.cluster.edit_service(key, |stored| {
            stored.view.pools = Some(pools.iter().map(|pool| PoolName::new(pool)).collect());
        });
    };
    asks(&mut sim, "shop/first", &["IPGroup/on-request", "IPGroup/b"]);
    asks(&mut sim, "shop/second", &["IPGroup/on-request", "IPGroup/b"]);
    asks(&mut sim, "shop/third", &["IPGroup/none"]);
    sim.settle();
    let of = |key: &str| shown(&sim).into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!(of("shop/first"), ["10.0.0.32"], "also one that serves only on request");
    assert_eq!(of("shop/second"), ["10.0.0.16"]);
    let (_, reason, message) = condition_of(&sim, "shop/third");
    assert_eq!(reason, "PoolUnknown");
    assert!(
        message.starts_with("no IPv4 address: IPGroup/none: there is no such pool"),
        "{message}"
    );
}

#[test]
fn a_deleted_service_gets_its_address_back_if_it_comes_again_in_time() {
    let mut sim = running(1);
    let retain = |view: &mut PoolView| view.retain_for = Some(Duration::from_hours(1));
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), retain);
    for key in ["shop/a", "shop/b"] {
        sim.cluster.create_service(key);
    }
    sim.quiet();
    sim.cluster.delete_service("shop/a");
    sim.quiet();
    sim.cluster.create_service("shop/c");
    sim.quiet();
    let of = |sim: &Sim, key: &str| shown(sim).into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!(of(&sim, "shop/c"), ["10.0.0.2"], "10.0.0.0 waits for shop/a");
    sim.cluster.writes.clear();
    sim.cluster.create_service("shop/a");
    sim.quiet();
    assert_eq!(of(&sim, "shop/a"), ["10.0.0.0"]);
    assert_eq!(sim.cluster.writes, ["touch", "publish"]);
    // It goes for good, and after the time the address is free for others.
    sim.cluster.delete_service("shop/a");
    sim.quiet();
    assert!(sim.cluster.claims[&ip("10.0.0.0")].waits_for().is_some());
    sim.pass_time(Duration::from_hours(2));
    sim.settle();
    assert!(!sim.cluster.claims.contains_key(&ip("10.0.0.0")));
}

#[test]
fn a_reservation_is_for_one_service_or_namespace_and_outlives_it() {
    let mut sim = running(1);
    let kept = |name: Option<&str>| Reservation {
        namespace: "shop".to_owned(),
        name: name.map(str::to_owned),
        expires: None,
    };
    sim.cluster.reserve(ip("10.0.0.0"), kept(Some("vip")));
    sim.cluster.reserve(ip("10.0.0.1"), kept(None));
    for key in ["other/first", "shop/any", "shop/vip"] {
        sim.cluster.create_service(key);
    }
    sim.cluster.create_service("other/asks");
    sim.cluster.edit_service("other/asks", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    let of = |sim: &Sim, key: &str| shown(sim).into_iter().find(|(name, _)| name == key).unwrap().1;
    assert_eq!(of(&sim, "shop/vip"), ["10.0.0.0"]);
    assert_eq!(of(&sim, "shop/any"), ["10.0.0.1"]);
    assert_eq!(of(&sim, "other/first"), ["10.0.0.2"]);
    sim.cluster.delete_service("shop/vip");
    sim.settle();
    let (_, reason, message) = condition_of(&sim, "other/asks");
    assert_eq!(reason, "Reserved");
    assert!(message.starts_with("10.0.0.0 is kept by a reservation for shop/vip."), "{message}");
}

#[test]
fn whatever_becomes_of_an_asked_for_address_is_told_whether_a_pool_has_it_or_not() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/web");
    sim.cluster.edit_service("shop/web", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.9")]);
    });
    sim.settle();
    assert_eq!(condition_of(&sim, "shop/web").1, "OutsideEveryPool");
    let (namespace, name) = ("other".to_owned(), None);
    sim.cluster.reserve(ip("10.0.0.9"), Reservation { namespace, name, expires: None });
    sim.settle();
    assert_eq!(condition_of(&sim, "shop/web").1, "Reserved");
}

#[test]
fn whoever_is_overtaken_gets_the_next_address_or_the_reason() {
    let taken = |asked: Option<&str>| {
        let mut sim = running(1);
        sim.cluster.create_service("shop/web");
        sim.cluster.edit_service("shop/web", |stored| {
            let addrs = asked.map(|addr| Request::Addresses(vec![ip(addr)]));
            stored.view.request = addrs.unwrap_or_default();
        });
        sim.deliver(0, Kind::Services, 9);
        sim.plan(0);
        // The call is under way, and an administrator is faster.
        let (namespace, name) = ("other".to_owned(), None);
        sim.cluster.reserve(ip("10.0.0.0"), Reservation { namespace, name, expires: None });
        sim.settle();
        sim
    };
    let any = taken(None);
    assert_eq!(shown_by(&any, "shop/web"), ["10.0.0.1"]);
    assert_eq!(any.cluster.writes, ["take", "publish"]);
    let asking = taken(Some("10.0.0.0"));
    assert_eq!(shown_by(&asking, "shop/web"), [] as [&str; 0], "no other address will do");
    assert_eq!(condition_of(&asking, "shop/web").1, "Reserved");
    assert_eq!(asking.cluster.writes, ["publish"]);
}

#[test]
fn a_service_that_is_being_deleted_gives_up_what_it_does_not_show() {
    for (shows, expected) in [(false, 0), (true, 1)] {
        let mut sim = running(1);
        sim.cluster.create_service("shop/web");
        sim.settle();
        sim.cluster.edit_service("shop/web", |stored| {
            stored.view.deleting = true;
            stored.view.shows.truncate(usize::from(shows));
        });
        sim.settle();
        assert_eq!(sim.cluster.claims.len(), expected, "shows: {shows}");
    }
}

#[test]
fn a_pool_names_those_that_have_waited_longest_for_it_and_why() {
    let mut sim = running(1);
    for n in 10..30 {
        sim.cluster.create_service(&format!("shop/s{n}"));
    }
    sim.cluster.create_service("shop/asks");
    sim.cluster.edit_service("shop/asks", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    let status = sim.cluster.pool_status("IPGroup/a");
    assert_eq!(status.waiting, Some(17));
    let longest: Vec<_> =
        status.longest_waiting.iter().map(|one| (one.name.as_str(), one.reason.as_str())).collect();
    assert_eq!(longest.len(), 10);
    assert_eq!((longest[0], longest[9]), (("s14", "Exhausted"), ("s23", "Exhausted")));
    for n in 14..30 {
        sim.cluster.delete_service(&format!("shop/s{n}"));
    }
    sim.settle();
    let status = sim.cluster.pool_status("IPGroup/a");
    assert_eq!((status.waiting, status.longest_waiting.len()), (Some(1), 1));
    assert_eq!(status.longest_waiting[0].reason, "TakenBy");
}

/// A cluster with these Services, each with a sharing key and one port.
fn sharing(services: &[(&str, &str, u16)]) -> Sim {
    let mut sim = running(1);
    for (key, sharing_key, port) in services {
        share(&mut sim, key, sharing_key, *port);
    }
    sim.settle();
    sim.cluster.writes.clear();
    sim
}

/// Creates a Service, if it is not there, and gives it terms.
fn share(sim: &mut Sim, key: &str, sharing_key: &str, port: u16) {
    sim.cluster.create_service(key);
    sim.cluster.edit_service(key, |stored| {
        stored.view = stored.view.clone().sharing(sharing_key, port);
    });
}

fn shown_by(sim: &Sim, key: &str) -> Vec<String> {
    shown(sim).into_iter().find(|(name, _)| name == key).unwrap().1
}

#[test]
fn services_with_one_key_share_an_address_as_long_as_their_ports_allow_it() {
    let mut sim = sharing(&[("shop/a", "k", 80)]);
    share(&mut sim, "shop/b", "k", 443);
    sim.settle();
    assert_eq!(sim.cluster.writes, ["touch", "publish"], "joining is two writes, too");
    share(&mut sim, "shop/c", "k", 80);
    share(&mut sim, "shop/d", "other", 22);
    sim.settle();
    for (key, addr) in [
        ("shop/a", "10.0.0.0"),
        ("shop/b", "10.0.0.0"),
        ("shop/c", "10.0.0.1"),
        ("shop/d", "10.0.0.2"),
    ] {
        assert_eq!(shown_by(&sim, key), [addr], "{key}");
    }
}

#[test]
fn a_holder_that_leaves_a_shared_address_leaves_it_to_the_others() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    sim.cluster.delete_service("shop/a");
    sim.settle();
    assert_eq!(sim.cluster.writes, ["leave"]);
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.0"]);
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert!(sim.cluster.claims.is_empty());
}

#[test]
fn a_request_for_a_shared_address_names_who_and_what_is_in_the_way_and_waits_for_it() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    share(&mut sim, "shop/late", "k", 443);
    sim.cluster.edit_service("shop/late", |stored| {
        stored.view.request = Request::Addresses(vec![ip("10.0.0.0")]);
    });
    sim.settle();
    let (status, reason, message) = condition_of(&sim, "shop/late");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "SharingRefused"));
    assert!(
        message.starts_with("10.0.0.0 cannot be shared with Service shop/b: it uses TCP/443, too."),
        "{message}"
    );
    sim.cluster.delete_service("shop/b");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/late"), ["10.0.0.0"]);
}

#[test]
fn whoever_changes_so_that_it_clashes_leaves_and_gets_an_address_of_its_own() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    share(&mut sim, "shop/b", "k", 80);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.0"], "the other is not moved");
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.1"]);
    assert_eq!(sim.cluster.writes, ["take", "publish", "touch", "publish", "leave"]);
}

#[test]
fn without_another_address_whoever_clashes_is_told_and_shows_none() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    sim.cluster.set_pool("IPGroup/a", "10.0.0.0", "");
    sim.settle();
    share(&mut sim, "shop/a", "k", 443);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), [] as [&str; 0]);
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.0"]);
    let (_, reason, _) = condition_of(&sim, "shop/a");
    assert_eq!(reason, "Exhausted");
    // Out of the way again, it joins again.
    share(&mut sim, "shop/a", "k", 80);
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/a"), ["10.0.0.0"]);
}

#[test]
fn a_new_port_that_is_free_is_entered_in_the_ledger_and_nobody_moves() {
    let mut sim = sharing(&[("shop/a", "k", 80), ("shop/b", "k", 443)]);
    share(&mut sim, "shop/b", "k", 8443);
    sim.settle();
    assert_eq!(sim.cluster.writes, ["touch"]);
    let holders = sim.cluster.claims[&ip("10.0.0.0")].holders();
    assert_eq!(holders[1].terms.as_ref().unwrap().ports, ["TCP/8443"]);
}

#[test]
fn a_holder_that_is_gone_takes_no_address_from_the_others() {
    let mut sim = running(1);
    sim.cluster.create_service("shop/gone");
    sim.cluster.create_service("shop/web");
    sim.settle();
    // As nobody but a person would write it: two holders, and no word of sharing.
    sim.cluster.edit_service("shop/gone", |stored| stored.view.shows = vec![ip("10.0.0.1")]);
    let both: Vec<_> = ["10.0.0.0", "10.0.0.1"]
        .iter()
        .map(|addr| sim.cluster.claims[&ip(addr)].holders()[0].clone())
        .collect();
    sim.cluster.hold(ip("10.0.0.1"), both);
    sim.cluster.delete_service("shop/gone");
    sim.settle();
    assert_eq!(shown_by(&sim, "shop/web"), ["10.0.0.1"]);
    assert_eq!(sim.cluster.violations(), std::collections::BTreeSet::new());
}

#[test]
fn a_quota_counts_a_shared_address_once() {
    let mut sim = running(1);
    sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| {
        view.quota = Some(landfall_api::Quota { per_namespace: Some(1), ..Default::default() });
    });
    for (key, port) in [("shop/a", 80), ("shop/b", 443), ("shop/c", 80)] {
        share(&mut sim, key, "k", port);
        sim.settle();
    }
    assert_eq!(shown_by(&sim, "shop/b"), ["10.0.0.0"]);
    assert_eq!(condition_of(&sim, "shop/c").1, "QuotaExceeded");
}
