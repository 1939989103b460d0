//! A password that changes while its group runs, and a Secret that goes.

use landfall_vrrp::Step as ChangeStep;

use super::*;

/// A group with a password, which announces one Service.
fn running() -> Rig {
    let mut rig = Rig::new();
    rig.secrets.insert("infra/vrrp".to_owned(), "u/7".to_owned());
    rig.group(&json!({ "passwordAuth": { "secretRef": { "name": "vrrp" } } }));
    rig.balancer("web", &["192.0.2.100"]);
    rig.settle();
    assert_eq!(password(&rig), "u/7");
    rig
}

/// The name of the password that the instance uses, or will.
fn password(rig: &Rig) -> String {
    rig.plan().instances[0].form.password.clone().unwrap_or_default()
}

/// The steps of a change, each with the names of the password before and after it.
fn changes(rig: &mut Rig) -> Vec<(ChangeStep, String, String)> {
    let mut changes = Vec::new();
    for _ in 0..200 {
        rig.step();
        let instance = rig.plan().instances.remove(0);
        let new = instance.form.password.unwrap_or_default();
        if let Some(change) = instance.change {
            let found = (change.step, change.before.password.unwrap_or_default(), new);
            if changes.last() != Some(&found) {
                changes.push(found);
            }
        }
        rig.agents_report();
        rig.uptime += Duration::from_millis(100);
    }
    rig.settle();
    assert_eq!(rig.plan().instances[0].change, None);
    changes
}

#[test]
fn another_password_is_noticed_in_time_and_goes_from_the_holder_to_the_others() {
    let mut rig = running();
    rig.secrets.insert("infra/vrrp".to_owned(), "u/8".to_owned());
    rig.settle();
    assert_eq!(password(&rig), "u/7", "the Secret is looked at now and then only");
    rig.uptime += SECRET_INTERVAL;
    let between = |step| (step, "u/7".to_owned(), "u/8".to_owned());
    let all = [ChangeStep::Mute, ChangeStep::Holder, ChangeStep::Others].map(between);
    assert_eq!(changes(&mut rig), all);
    assert_eq!(password(&rig), "u/8");
    assert_eq!(rig.condition("Degraded").0, "False");
    assert!(rig.announced("web").starts_with("true Announced"));
}

#[test]
fn a_password_that_is_given_up_is_a_change_as_well() {
    let mut rig = running();
    rig.edit(&json!({ "passwordAuth": null }));
    let between = |step| (step, "u/7".to_owned(), String::new());
    let all = [ChangeStep::Mute, ChangeStep::Holder, ChangeStep::Others].map(between);
    assert_eq!(changes(&mut rig), all);
    assert_eq!(rig.plan().password_from, None);
}

#[test]
fn a_group_whose_secret_is_deleted_goes_on_as_it_is_and_says_so() {
    let mut rig = running();
    let (plan, file) = (rig.plan(), rig.file());
    rig.secrets.clear();
    rig.uptime += SECRET_INTERVAL;
    rig.settle();
    assert_eq!(rig.condition("Ready").1, "PasswordMissing");
    let (status, reason, message) = rig.condition("ReconcileError");
    assert_eq!((&*status, &*reason), ("True", "LastReconcileCycleFailed"));
    assert!(message.contains("Secret"), "{message}");
    assert_eq!(rig.condition("ReconcileSuccess").0, "False");
    assert_eq!((rig.plan(), rig.file()), (plan.clone(), file.clone()));
    assert!(rig.announced("web").starts_with("true Announced"), "{}", rig.announced("web"));
    // News of other things do not change that.
    rig.balancer("mail", &["192.0.2.101"]);
    rig.node("n4", &json!({ "edge": "yes" }), "192.0.2.4");
    rig.settle();
    assert_eq!((rig.plan(), rig.file()), (plan, file));
    assert_eq!(
        rig.announced("mail"),
        "false NotApplied: infra/edge cannot be used as it is written. Correct the group as its `Ready` condition \
         says."
    );
    // It comes back as another object, by which the password has another name.
    rig.secrets.insert("infra/vrrp".to_owned(), "v/1".to_owned());
    rig.uptime += MISSING_SECRET_INTERVAL;
    rig.settle();
    assert_eq!(rig.condition("ReconcileError").0, "False");
    assert_eq!((password(&rig).as_str(), rig.plan().nodes.len()), ("v/1", 4));
    assert!(rig.announced("mail").starts_with("true Announced"));
}
