use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;
use kube::core::DeserializeGuard;
use landfall_api::{HolderKind, IP, VirtualIP};
use serde_json::json;

use super::*;
use crate::{
    call::Failure,
    cluster::{News, Seen, pool::PoolSource, service, virtual_ip},
    engine::{Call as _, Planner as _},
    ledger::{HolderEntry, object},
    object::Version,
    shared::Shared,
    store::Watched,
};

fn now(seconds: u64) -> Now {
    Now { wall: Timestamp::UNIX_EPOCH, uptime: Duration::from_secs(seconds) }
}

/// The planner with everything that the engine would lend it. Its Services are never there when it looks.
struct Rig {
    shared: Shared,
    planner: Planner,
}

impl Rig {
    fn new(orphan_grace: Duration) -> Self {
        let mut shared = Shared::default();
        let planner = Planner::new(orphan_grace, &mut shared.ledger);
        Self { shared, planner }
    }

    /// One that has listed everything, and found nothing.
    fn listed(orphan_grace: Duration) -> Self {
        let mut rig = Self::new(orphan_grace);
        for news in [
            News::VirtualIps(Watched::ListEnds),
            News::Mappings(Watched::ListEnds),
            News::Pools(PoolSource::IpGroups, Watched::ListEnds),
            News::Claims(Watched::ListEnds),
        ] {
            rig.hear(news);
            assert!(!rig.shared.has_listed(Planner::KINDS));
        }
        rig.hear(News::Services(Watched::ListEnds));
        assert!(rig.shared.has_listed(Planner::KINDS));
        rig
    }

    fn hear(&mut self, news: News) {
        let changes = self.shared.hear(news);
        self.tell(&changes);
    }

    fn tell(&mut self, changes: &[Change]) {
        for change in changes {
            self.planner.changed(self.shared.lend(now(0)), change);
        }
        self.planner.catch_up(self.shared.lend(now(0)), &mut Plan::default());
    }

    /// The effects that are planned once the planner has looked at its Services.
    fn plan(&mut self, now: Now) -> Vec<Effect> {
        let mut steps = Vec::new();
        loop {
            let changes = self.shared.settle();
            self.tell(&changes);
            let mut out = Plan::default();
            self.planner.plan(self.shared.lend(now), &mut out);
            let (looks, others): (Vec<_>, Vec<_>) =
                out.effects.into_iter().partition(|effect| effect.label() == "look");
            steps.extend(others);
            if looks.is_empty() {
                return steps;
            }
            for look in looks {
                self.report(look, Ok(Answer::Services(Box::default())), now);
            }
        }
    }

    fn report(&mut self, effect: Effect, mut result: Result<Answer, Failure>, now: Now) {
        let seen = result.as_mut().ok().and_then(Effect::take_seen);
        let changes = seen.map(|seen| self.shared.learn(seen)).unwrap_or_default();
        self.tell(&changes);
        let report = Report { effect, result };
        self.planner.reported(self.shared.lend(now), report, &mut Plan::default());
        self.tell(&[]);
    }

    fn next_due(&self) -> Option<Duration> {
        self.planner.next_due(&self.shared.cluster, &self.shared.ledger)
    }
}

fn vip(version: u64) -> VirtualIpView {
    let object: VirtualIP = serde_json::from_value(json!({
        "apiVersion": "paas.org/v1", "kind": "VirtualIP",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": version.to_string(),
        },
        "spec": {"service": "web"},
    }))
    .unwrap();
    virtual_ip::read(DeserializeGuard(Ok(object))).unwrap()
}

fn claim(uid: &str, version: u64) -> Claim {
    let holder = json!({"kind": "VirtualIP", "namespace": "shop", "name": "web", "uid": uid});
    let object: IP = serde_json::from_value(json!({
        "apiVersion": "paas.org/v1", "kind": "IP",
        "metadata": {"name": "10.0.0.1", "uid": "c", "resourceVersion": version.to_string()},
        "spec": {"holders": [holder]},
    }))
    .unwrap();
    object::read(&DeserializeGuard(Ok(object))).unwrap()
}

fn is(claim: Claim) -> News {
    News::Claims(Watched::Present(claim.addr, claim.version, claim))
}

fn service(addrs: &[&str], version: u64) -> News {
    let object: Service = serde_json::from_value(json!({
        "metadata": {"name": "other", "namespace": "shop", "resourceVersion": version.to_string()},
        "spec": {"externalIPs": addrs},
    }))
    .unwrap();
    let view = service::read(&object);
    News::Services(Watched::Present(view.key.clone(), view.version, view))
}

fn known(vip: VirtualIpView) -> Rig {
    let mut rig = Rig::listed(Duration::ZERO);
    rig.hear(there(vip));
    rig
}

/// The answer to a write of the `VirtualIP`.
fn wrote(view: VirtualIpView) -> Answer {
    Answer::Seen(Some(Seen::VirtualIp(Box::new(view))))
}

fn there(vip: VirtualIpView) -> News {
    News::VirtualIps(Watched::Present(vip.key.clone(), vip.version, vip))
}

fn gone(version: u64) -> News {
    News::VirtualIps(Watched::Gone(ObjectKey::new("shop", "web"), Version(version)))
}

#[test]
fn a_virtual_ip_has_one_call_under_way_and_is_planned_again_when_it_ends() {
    let mut rig = known(vip(5));
    let [effect] = &rig.plan(now(1))[..] else { panic!("one step") };
    assert_eq!(effect.label(), "status");
    rig.hear(News::Claims(Watched::ListEnds));
    assert_eq!(rig.plan(now(1)), []);
    rig.report(effect.clone(), Err(Failure::NotSent), now(1));
    assert_eq!(rig.plan(now(1)).len(), 1, "it was never sent");
}

#[test]
fn a_failed_step_is_tried_later_and_a_refused_one_is_told_meanwhile() {
    for (failure, told) in [
        (Failure::Conflict, None),
        (Failure::Unknown("timeout".to_owned()), None),
        (Failure::Refused("no".to_owned()), Some("could not update the VirtualIP: no")),
    ] {
        let mut rig = known(vip(5));
        let [effect] = &rig.plan(now(1))[..] else { panic!("one step") };
        let effect = effect.clone();
        let result = Err(failure.clone());
        rig.report(effect.clone(), result, now(1));
        let meanwhile = rig.plan(now(1));
        let message = meanwhile.first().map(|effect| {
            let Step::Status { status, .. } = &effect.step else { panic!("{effect:?}") };
            status.message.clone().unwrap()
        });
        assert_eq!(message.as_deref(), told, "{failure:?}");
        for effect in meanwhile {
            rig.report(effect, Ok(Answer::Seen(None)), now(1));
        }
        let due = rig.next_due().unwrap();
        assert!(due > Duration::from_secs(1), "{failure:?}");
        assert_eq!(rig.plan(now(3)), [effect], "{failure:?}");
    }
}

#[test]
fn a_step_that_writes_a_claim_carries_the_call_that_the_ledger_waits_for() {
    let mut rig = known(vip(5));
    let mapping = serde_json::from_value(json!({
        "apiVersion": "paas.org/v1", "kind": "GroupSegmentMapping",
        "metadata": {"name": "g1", "resourceVersion": "6"},
        "spec": {"keepalivedGroup": "g1", "segment": "10.0.0.0/29", "excludedIPs": ["10.0.0.0"]},
    }));
    let mapping = virtual_ip::read_mapping(&DeserializeGuard(Ok(mapping.unwrap())));
    rig.hear(News::Mappings(Watched::Present(mapping.name.clone(), mapping.version, mapping)));
    let mut vip = vip(5);
    for version in 7..20 {
        let [effect] = &rig.plan(now(1))[..] else { panic!("one step") };
        if let Step::Take { claim } = &effect.step {
            assert_eq!(effect.write, Some(Write::Take { claim: claim.clone() }));
            assert!(rig.shared.ledger.is_in_flight(claim.addr));
            rig.report(effect.clone(), Err(Failure::Exists), now(1));
            assert_eq!(rig.shared.ledger.next_due(), Some(now(1).uptime), "it is read");
            return;
        }
        assert_eq!(effect.write, None);
        if let Step::Status { status, .. } = &effect.step {
            vip.status = status.clone();
        } else if let Step::Finalizers { finalizers, .. } = &effect.step {
            vip.finalizers.clone_from(finalizers);
        }
        vip.version = Version(version);
        rig.report(effect.clone(), Ok(wrote(vip.clone())), now(1));
    }
    panic!("nothing is taken");
}

#[test]
fn the_answer_to_a_write_is_known_before_the_watch_tells() {
    let mut rig = known(vip(5));
    let [effect] = &rig.plan(now(1))[..] else { panic!("one step") };
    let mut written = vip(6);
    let Step::Status { status, .. } = &effect.step else { panic!("{effect:?}") };
    written.status = status.clone();
    let result = Ok(wrote(written));
    rig.report(effect.clone(), result, now(1));
    assert_eq!(rig.plan(now(1)), [], "there is no mapping, and it has said so");
}

#[test]
fn a_claim_whose_virtual_ip_is_gone_is_released_once_no_service_shows_the_address() {
    let released = |rig: &mut Rig| {
        let effects = rig.plan(now(1));
        effects.iter().filter(|effect| effect.label() == "release").count()
    };
    let mut rig = Rig::listed(Duration::ZERO);
    rig.hear(service(&["10.0.0.1"], 3));
    rig.hear(is(claim("u", 4)));
    assert_eq!(released(&mut rig), 0, "a Service shows it");
    rig.hear(service(&[], 5));
    assert_eq!(released(&mut rig), 1);

    // A claim on an earlier `VirtualIP` of the same name is released; a claim on the present one is not.
    for (uid, expected) in [("before", 1), ("u", 0)] {
        let mut rig = known(vip(5));
        rig.hear(is(claim(uid, 6)));
        let mut count = 0;
        for _ in 0..3 {
            for effect in rig.plan(now(1)) {
                count += usize::from(effect.label() == "release");
                let result = if let Step::Status { status, .. } = &effect.step {
                    let status = status.clone();
                    Ok(wrote(VirtualIpView { status, ..vip(7) }))
                } else if matches!(effect.step, Step::Release { .. }) {
                    Ok(Answer::Ledger(ledger::Answer::Released { by: None }))
                } else {
                    Err(Failure::NotSent)
                };
                rig.report(effect, result, now(1));
            }
        }
        assert_eq!(count, expected, "{uid}");
    }

    // A `VirtualIP` that vanishes leaves its claim behind.
    let mut rig = known(VirtualIpView { deleting: true, ..vip(5) });
    rig.hear(is(claim("u", 6)));
    assert_eq!(released(&mut rig), 0, "it has no finalizer, so it is about to vanish");
    rig.hear(gone(8));
    assert_eq!(released(&mut rig), 1);
}

/// The grace is five minutes, and the claim is known from second 10 on.
#[test]
fn a_claim_waits_for_a_virtual_ip_that_was_never_seen_and_not_for_one_that_left() {
    // Being deleted, so that nothing else is done for it.
    let vip = || there(VirtualIpView { deleting: true, ..vip(5) });
    let held = || is(claim("u", 6));
    // A list without it, after the watch was broken.
    let lost = || [News::VirtualIps(Watched::ListBegins), News::VirtualIps(Watched::ListEnds)];
    for (case, first, then, expected) in [
        ("never seen", vec![held()], vec![], Some(310)),
        ("seen to leave", vec![vip(), held()], vec![gone(8)], Some(20)),
        ("gone when the watch was back", vec![vip(), held()], lost().into(), Some(20)),
        (
            "its kind went",
            vec![vip(), held()],
            vec![News::VirtualIps(Watched::Unserved)],
            Some(320),
        ),
        ("without its kind", vec![News::VirtualIps(Watched::Unserved), held()], vec![], Some(310)),
        ("came late", vec![held()], vec![vip()], None),
        ("came late and left", vec![held()], vec![vip(), gone(8)], Some(20)),
        ("cannot be read", vec![held(), gone(5)], vec![], Some(310)),
        ("shown at first", vec![held(), service(&["10.0.0.1"], 7)], vec![], None),
    ] {
        let mut rig = Rig::listed(Duration::from_mins(5));
        let mut then = Some(then);
        for news in first {
            rig.hear(news);
        }
        let mut released = None;
        for seconds in 10..400 {
            if seconds == 20 {
                then.take().into_iter().flatten().for_each(|news| rig.hear(news));
            }
            for effect in rig.plan(now(seconds)) {
                assert_eq!(effect.label(), "release", "{case}");
                released = released.or(Some(seconds));
            }
            if released.is_none() && expected.is_some() && seconds >= 20 {
                let due = rig.next_due().map(|due| due.as_secs());
                assert_eq!(due, expected, "{case}: it is not forgotten");
            }
        }
        assert_eq!(released, expected, "{case}");
    }
}

#[test]
fn a_claim_that_was_shown_for_longer_than_the_grace_goes_when_it_is_shown_no_more() {
    let mut rig = Rig::listed(Duration::from_mins(5));
    rig.hear(service(&["10.0.0.1"], 3));
    rig.hear(is(claim("u", 4)));
    assert_eq!(rig.plan(now(10)), []);
    assert_eq!(rig.plan(now(310)), []);
    assert_eq!(rig.next_due(), None, "it waits for another program, not for the clock");
    rig.hear(service(&[], 5));
    assert_eq!(rig.plan(now(311)).len(), 1);
}

#[test]
fn no_virtual_ip_waits_for_a_claim_that_passed_on() {
    let mut rig = Rig::listed(Duration::from_mins(5));
    rig.hear(is(claim("u", 4)));
    assert_eq!(rig.plan(now(10)), []);
    let service = HolderEntry {
        uid: Some("s".into()),
        ..HolderEntry::new(HolderKind::Service, ObjectKey::new("shop", "web"))
    };
    rig.hear(is(claim("u", 5).held_by(vec![service])));
    assert_eq!(rig.next_due(), None);
    assert_eq!(rig.plan(now(400)), []);
}

#[test]
fn a_look_that_began_before_a_change_is_repeated() {
    let mut rig = known(vip(5));
    let looks = |rig: &mut Rig| {
        let mut out = Plan::default();
        rig.planner.plan(rig.shared.lend(now(1)), &mut out);
        out.effects
    };
    for (case, planned_since) in [("planned since", true), ("not planned since", false)] {
        let look = looks(&mut rig).pop().unwrap();
        assert_eq!(look.label(), "look", "{case}");
        // The target of the VirtualIP changes after it was read.
        rig.hear(News::Services(Watched::Gone(ObjectKey::new("shop", "web"), Version(9))));
        if planned_since {
            assert_eq!(looks(&mut rig), [], "{case}: the call is in flight");
        }
        rig.report(look, Ok(Answer::Services(Box::default())), now(1));
        let again = looks(&mut rig);
        assert_eq!(again.iter().map(Effect::label).collect::<Vec<_>>(), ["look"], "{case}");
        for look in again {
            rig.report(look, Err(Failure::NotSent), now(1));
        }
    }
}

/// Reports that arrive together are taken in one after the other, and planned for once.
#[test]
fn a_look_that_began_before_a_change_is_repeated_if_both_are_reported_together() {
    let mut rig = known(vip(5));
    let looks = |rig: &mut Rig| {
        let mut out = Plan::default();
        rig.planner.plan(rig.shared.lend(now(1)), &mut out);
        out.effects
    };
    let changes = [
        News::Services(Watched::Gone(ObjectKey::new("shop", "web"), Version(9))),
        is(claim("u", 11)),
        there(vip(12)),
    ];
    let mut look = looks(&mut rig).pop().unwrap();
    for change in changes {
        let case = format!("{change:?}");
        rig.report(look, Ok(Answer::Services(Box::default())), now(1));
        rig.hear(change);
        look = looks(&mut rig).pop().unwrap();
        assert_eq!(look.label(), "look", "{case}");
    }
}
