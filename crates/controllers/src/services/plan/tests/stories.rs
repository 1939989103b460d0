//! Random stories: operators that are stale, slow or killed, and users who change their minds.

use landfall_ipam::Terms;
use proptest::prelude::*;

use super::*;

/// A step of a random story; numbers are taken modulo the number of choices.
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
    /// An administrator reserves an address for a Service, or for any Service of the namespace, for a while
    /// or for good.
    Reserve(u8, u8, u8),
    Retain(u8),
    /// A user changes a Service's sharing terms: key, consent, port, traffic policy, or none at all.
    Share(u8, u8),
    /// A replaced operator leaves its finalizer on a Service.
    LeaveFinalizer(u8),
    /// Only in wild stories: a user writes a status, which only operators should.
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
        2 => any::<u8>().prop_map(Step::LeaveFinalizer),
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
            other_pods: false,
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
            let name = ObjectKey::parse(&name(*service)).unwrap().name().to_owned();
            let expires = (how % 2 == 0).then(|| sim.wall() + jiff::SignedDuration::from_secs(9));
            let name = (how % 3 > 0).then_some(name);
            let reservation = Reservation {
                kind: HolderKind::Service,
                namespace: "shop".to_owned(),
                name,
                expires,
                retained: false,
            };
            sim.cluster.reserve(addr(*what), reservation);
        }
        Step::Retain(pick) => sim.cluster.put_pool(&PoolName::new("IPGroup/a"), |view| {
            view.retain_for = (pick % 2 == 0).then(|| Duration::from_secs(5));
        }),
        Step::Share(service, what) => {
            sim.cluster.edit_service(&name(*service), |stored| stored.view.terms = terms(*what));
        }
        Step::LeaveFinalizer(service) => sim.cluster.edit_service(&name(*service), |stored| {
            stored.finalizer |= !stored.view.deleting;
        }),
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
                // The addresses of a Service of a foreign class are for its own program to fix.
                if stored.load_balancer && stored.view.class.is_none() {
                    let old = std::mem::replace(&mut stored.view.shows, vec![addr(*what)]);
                    // The spec agrees with an annotation until a user edits only one of them.
                    if stored.view.place == Place::Annotation && what % 2 == 0 && !old.is_empty() {
                        stored.view.spec_contradicts_annotation = old != stored.view.shows;
                        stored.view.request = Request::Addresses(old);
                    }
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

proptest! {
    // 256 stories unless PROPTEST_CASES says more.
    #![proptest_config(ProptestConfig { max_shrink_iters: 3_000, ..ProptestConfig::default() })]

    /// Any number of operators, stale, slow, crashing, with lost answers, against users who change their
    /// minds: at no moment does a Service show an address whose claim does not name it, and in the end
    /// nothing is leaked and every Service that can be served is.
    #[test]
    fn no_address_is_ever_doubled(
        place in prop_oneof![Just(Place::Status), Just(Place::Annotation)],
        operators in 1..=3_usize,
        steps in prop::collection::vec(tame_step(), 1..300),
    ) {
        let mut sim = running_in(place, operators);
        for step in &steps {
            happen(&mut sim, step);
            let wrong = sim.cluster.shown_without_claim();
            prop_assert!(wrong.is_empty(), "after {step:?}: {wrong:?}");
            prop_assert!(sim.cluster.wrongs.is_empty(), "{step:?}: {:?}", sim.cluster.wrongs);
            let clashing = sim.cluster.recorded_clashes();
            prop_assert!(clashing.is_empty(), "after {step:?}: {clashing:?}");
        }
        sim.settle();
        let wrong = sim.cluster.violations();
        prop_assert!(wrong.is_empty(), "in the end: {wrong:?}");
        prop_assert_eq!(sim.starved(), vec![]);
        let stuck: Vec<_> = sim.cluster.services.values().filter(|stored| stored.finalizer).collect();
        prop_assert!(stuck.is_empty(), "finalizers left: {stuck:?}");
        // Another start changes nothing and writes nothing.
        let before = (shown(&sim), said(&sim));
        let writes = sim.cluster.writes.len();
        for operator in 0..operators {
            sim.crash(operator);
        }
        sim.settle();
        prop_assert_eq!((shown(&sim), said(&sim)), before);
        prop_assert_eq!(&sim.cluster.writes[writes..], &[] as &[&str]);
        // And repair, which judges independently, finds nothing.
        for operator in 0..operators {
            prop_assert_eq!(sim.counted(operator), BTreeMap::new());
        }
    }

    /// The same while users write fields that only operators should: nothing is promised at every moment, but
    /// in the end ledger and Services agree again, unless two Services were made to show one address.
    #[test]
    fn damage_by_users_is_repaired(
        place in prop_oneof![Just(Place::Status), Just(Place::Annotation)],
        operators in 1..=2_usize,
        steps in prop::collection::vec(wild_step(), 1..300),
    ) {
        let mut sim = running_in(place, operators);
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
