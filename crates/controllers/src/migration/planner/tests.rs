use kube::core::DeserializeGuard;
use landfall_api::{HolderKind, IP, VirtualIP};
use serde_json::json;

use super::*;
use crate::{
    call::Failure,
    engine::{Call as _, Report},
    ledger::{HolderEntry, object},
    object::Version,
};

fn now(seconds: u64) -> Now {
    Now { wall: jiff::Timestamp::UNIX_EPOCH, uptime: Duration::from_secs(seconds) }
}

fn lists(planner: &mut Planner) {
    for news in [
        News::VirtualIps(Watched::ListEnds),
        News::Mappings(Watched::ListEnds),
        News::Groups(Watched::ListEnds),
        News::Claims(Watched::ListEnds),
    ] {
        planner.on_news(news);
        assert_eq!(planner.plan(now(0)), [], "nothing is planned before all is known");
    }
    planner.on_news(News::Services(Watched::ListEnds));
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
    observe::virtual_ip(DeserializeGuard(Ok(object))).unwrap()
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
    News::Services(Watched::Present(
        ObjectKey::of(&object.metadata),
        Version(version),
        Box::new(object),
    ))
}

fn known(vip: VirtualIpView) -> Planner {
    let mut planner = Planner::default();
    lists(&mut planner);
    planner.on_news(there(vip));
    planner
}

fn there(vip: VirtualIpView) -> News {
    News::VirtualIps(Watched::Present(vip.key.clone(), vip.version, vip))
}

fn gone(version: u64) -> News {
    News::VirtualIps(Watched::Gone(ObjectKey::new("shop", "web"), Version(version)))
}

#[test]
fn a_virtual_ip_has_one_call_under_way_and_is_planned_again_when_it_ends() {
    let mut planner = known(vip(5));
    let [effect] = &planner.plan(now(1))[..] else { panic!("one step") };
    assert_eq!(effect.label(), "status");
    planner.on_news(News::Claims(Watched::ListEnds));
    assert_eq!(planner.plan(now(1)), []);
    let report = Report { effect: effect.clone(), result: Err(Failure::NotSent) };
    planner.on_report(report, now(1));
    assert_eq!(planner.plan(now(1)).len(), 1, "it was never sent");
}

#[test]
fn what_failed_is_tried_later_and_what_was_refused_is_told_meanwhile() {
    for (failure, told) in [
        (Failure::Conflict, None),
        (Failure::Unknown("timeout".to_owned()), None),
        (Failure::Refused("no".to_owned()), Some("could not update the VirtualIP: no")),
    ] {
        let mut planner = known(vip(5));
        let [effect] = &planner.plan(now(1))[..] else { panic!("one step") };
        let effect = effect.clone();
        let result = Err(failure.clone());
        planner.on_report(Report { effect: effect.clone(), result }, now(1));
        let meanwhile = planner.plan(now(1));
        let message = meanwhile.first().map(|effect| {
            let Step::Status { status, .. } = &effect.step else { panic!("{effect:?}") };
            status.message.clone().unwrap()
        });
        assert_eq!(message.as_deref(), told, "{failure:?}");
        for effect in meanwhile {
            planner.on_report(Report { effect, result: Ok(Answer::VirtualIp(None)) }, now(1));
        }
        let due = planner.next_due().unwrap();
        assert!(due > Duration::from_secs(1), "{failure:?}");
        assert_eq!(planner.plan(now(3)), [effect], "{failure:?}");
    }
}

#[test]
fn the_answer_to_a_write_is_known_before_the_watch_tells() {
    let mut planner = known(vip(5));
    let [effect] = &planner.plan(now(1))[..] else { panic!("one step") };
    let mut written = vip(6);
    let Step::Status { status, .. } = &effect.step else { panic!("{effect:?}") };
    written.status = status.clone();
    let result = Ok(Answer::VirtualIp(Some(written)));
    planner.on_report(Report { effect: effect.clone(), result }, now(1));
    assert_eq!(planner.plan(now(1)), [], "there is no mapping, and it has said so");
}

#[test]
fn a_claim_whose_virtual_ip_is_gone_is_given_up_once_nobody_shows_the_address() {
    let released = |planner: &mut Planner| {
        let effects = planner.plan(now(1));
        effects.iter().filter(|effect| effect.label() == "release").count()
    };
    let mut planner = Planner::default();
    lists(&mut planner);
    planner.on_news(service(&["10.0.0.1"], 3));
    planner.on_news(is(claim("u", 4)));
    assert_eq!(released(&mut planner), 0, "somebody shows it");
    planner.on_news(service(&[], 5));
    assert_eq!(released(&mut planner), 1);

    // A claim on an earlier `VirtualIP` of the same name is released; a claim on the present one is not.
    for (uid, expected) in [("before", 1), ("u", 0)] {
        let mut planner = known(vip(5));
        planner.on_news(is(claim(uid, 6)));
        let mut count = 0;
        for _ in 0..3 {
            for effect in planner.plan(now(1)) {
                count += usize::from(effect.label() == "release");
                let result = if let Step::Status { status, .. } = &effect.step {
                    let status = status.clone();
                    Ok(Answer::VirtualIp(Some(VirtualIpView { status, ..vip(7) })))
                } else if matches!(effect.step, Step::Release { .. }) {
                    Ok(Answer::Ledger(ledger::Answer::Released { by: None }))
                } else {
                    Err(Failure::NotSent)
                };
                planner.on_report(Report { effect, result }, now(1));
            }
        }
        assert_eq!(count, expected, "{uid}");
    }

    // A `VirtualIP` that vanishes leaves its claim behind.
    let mut planner = known(VirtualIpView { deleting: true, ..vip(5) });
    planner.on_news(is(claim("u", 6)));
    assert_eq!(released(&mut planner), 0, "it has no finalizer, so it is about to vanish");
    planner.on_news(gone(8));
    assert_eq!(released(&mut planner), 1);
}

/// The grace is five minutes, and the claim is known from second 10 on.
#[test]
fn a_claim_waits_for_one_that_was_never_seen_and_not_for_one_that_left() {
    // Being deleted, so that nothing else is done for it.
    let vip = || there(VirtualIpView { deleting: true, ..vip(5) });
    let held = || is(claim("u", 6));
    // A list without it, after the watch was broken.
    let lost = || [Watched::ListBegins, Watched::ListEnds].map(News::VirtualIps);
    for (case, first, then, expected) in [
        ("never seen", vec![held()], vec![], Some(310)),
        ("seen to leave", vec![vip(), held()], vec![gone(8)], Some(20)),
        ("gone when the watch was back", vec![vip(), held()], lost().into(), Some(20)),
        ("its kind went", vec![vip(), held()], vec![News::NoVirtualIps], Some(320)),
        ("without its kind", vec![News::NoVirtualIps, held()], vec![], Some(310)),
        ("came late", vec![held()], vec![vip()], None),
        ("came late and left", vec![held()], vec![vip(), gone(8)], Some(20)),
        ("cannot be read", vec![held(), gone(5)], vec![], Some(310)),
        ("shown at first", vec![held(), service(&["10.0.0.1"], 7)], vec![], None),
    ] {
        let mut planner = Planner::new(Duration::from_mins(5));
        lists(&mut planner);
        let mut then = Some(then);
        for news in first {
            planner.on_news(news);
        }
        let mut released = None;
        for seconds in 10..400 {
            if seconds == 20 {
                then.take().into_iter().flatten().for_each(|news| planner.on_news(news));
            }
            for effect in planner.plan(now(seconds)) {
                assert_eq!(effect.label(), "release", "{case}");
                released = released.or(Some(seconds));
            }
            if released.is_none() && expected.is_some() && seconds >= 20 {
                let due = planner.next_due().map(|due| due.as_secs());
                assert_eq!(due, expected, "{case}: it is not forgotten");
            }
        }
        assert_eq!(released, expected, "{case}");
    }
}

#[test]
fn a_claim_that_was_shown_for_longer_than_the_grace_goes_when_it_is_shown_no_more() {
    let mut planner = Planner::new(Duration::from_mins(5));
    lists(&mut planner);
    planner.on_news(service(&["10.0.0.1"], 3));
    planner.on_news(is(claim("u", 4)));
    assert_eq!(planner.plan(now(10)), []);
    assert_eq!(planner.plan(now(310)), []);
    assert_eq!(planner.next_due(), None, "it waits for somebody, not for the clock");
    planner.on_news(service(&[], 5));
    assert_eq!(planner.plan(now(311)).len(), 1);
}

#[test]
fn a_claim_that_passed_on_is_nobodys_to_wait_for() {
    let mut planner = Planner::new(Duration::from_mins(5));
    lists(&mut planner);
    planner.on_news(is(claim("u", 4)));
    assert_eq!(planner.plan(now(10)), []);
    let service = HolderEntry {
        uid: Some("s".into()),
        ..HolderEntry::new(HolderKind::Service, ObjectKey::new("shop", "web"))
    };
    planner.on_news(is(claim("u", 5).held_by(vec![service])));
    assert_eq!(planner.next_due(), None);
    assert_eq!(planner.plan(now(400)), []);
}
