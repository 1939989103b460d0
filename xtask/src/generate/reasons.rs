//! `docs/reference/reasons.md`: every reason for having no address, for an address that is not announced, and of a
//! keepalived group's own conditions, its cause and the fix.

use landfall_api::{HolderKind, announce::NotAnnounced, text};
use landfall_ipam::Reason;

use super::{File, NOTICE, cell};

const HEAD: &str = "# Reasons

A Service that does not have what it wants says so in its condition `landfall.dev/Allocated`: status
`False`, one of the reasons below, and a message with a verdict per pool and the nearest fix. The
same word is the reason of the event on the Service and the label `reason` of the metric
`landfall_services_pending`. The list is closed: there are no other reasons.

A Service that has what it wants says `True` with the reason `Allocated`, or `OutsidePool` if an edit
left its address outside every pool; it keeps the address in either case.

| reason | cause | fix |
| --- | --- | --- |
";

const ANNOUNCED: &str = "
## Addresses that are not announced

A Service that a `KeepalivedGroup` is to announce, by its annotation or by `announce` of its pool, says in its
condition `landfall.dev/Announced` whether a node holds its addresses: `True` with the reason
`Announced`, the node and since when, or `False` with one of the reasons below. This list is closed as well,
and the condition does not affect `landfall.dev/Allocated`.

| reason | cause | fix |
| --- | --- | --- |
";

const GROUPS: &str = "
## Conditions of keepalived groups

A `KeepalivedGroup` says in its condition `Ready` whether it announces anything, and in `Degraded` what does not work as it should. Of
several obstacles the condition has the first, in the order of this table. `ReconcileSuccess` and `ReconcileError` repeat the same for
programs that know them from keepalived-operator.

| where | reason | cause | fix |
| --- | --- | --- | --- |
";

const TAIL: &str = "\n[Troubleshooting](../troubleshooting.md) has an example for each.\n";

/// What a keepalived group says about itself.
struct GroupReason {
    place: &'static str,
    reason: &'static str,
    cause: &'static str,
    fix: &'static str,
}

/// Every reason of a group's own conditions, and that of the event about lines for keepalived.
const GROUP_REASONS: &[GroupReason] = &[
    GroupReason {
        place: "Ready `True`",
        reason: "Serving",
        cause: "The group has a plan and nodes; the message says how many nodes.",
        fix: "",
    },
    GroupReason {
        place: "Ready `False`",
        reason: "Invalid",
        cause: "A field of the group's `spec` cannot be used; the message names it.",
        fix: "Correct the field as the message says.",
    },
    GroupReason {
        place: "Ready `False`",
        reason: "PasswordMissing",
        cause: "The Secret that `passwordAuth` names does not exist in the namespace of the group.",
        fix: "Create the Secret, or correct its name; the operator notices it within seconds.",
    },
    GroupReason {
        place: "Ready `False`",
        reason: "Pending",
        cause: "The Secret with the password is being looked up, or the plan is being written.",
        fix: "Wait a moment. If it stays, the condition `Degraded` or the operator's log says which call fails.",
    },
    GroupReason {
        place: "Ready `False`",
        reason: "NoNodes",
        cause: "No node has the labels of `nodeSelector`, or all that have them are tainted as out of service.",
        fix: "Label a node, or change `nodeSelector`.",
    },
    GroupReason {
        place: "Ready `False`",
        reason: "NoAgents",
        cause: "The plan is written, and no agent has reported that its node carries it out.",
        fix: "Wait a moment. If it stays, look at the pods of the group's DaemonSet: `kubectl describe` says why one \
              is missing or does not start.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "WriteRefused",
        cause: "The API server refuses to write an object of the group, or an object of that name exists and belongs to \
                another owner; the message says which.",
        fix: "Apply the `deploy/rbac-keepalived.yaml` of this version, remove the policy that refuses the write, or \
              rename the other object; the operator tries again by itself.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "RouterIDsExhausted",
        cause: "No router ID is left for some VRRP instances; the message names them. All others are served.",
        fix: "Set `vrrp` of the group, which needs a few router IDs for any number of Services; or announce fewer \
              Services, or exclude fewer IDs (`blacklistRouterIDs`, `vrrp.routerIDs`).",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "RouterIDsShared",
        cause: "Another group with a node in common has some of the same router IDs; the message names both. In the \
                layout of slots, one of two instances with one ID is held by no node.",
        fix: "Add the IDs to `blacklistRouterIDs` of one of the groups, which gives its instances other ones.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "PlanFull",
        cause: "The plan has no room for more addresses, because a `ConfigMap` holds at most a MiB. Those that it has \
                are announced.",
        fix: "Let another group announce the Services that wait, or give this one fewer nodes or the field `vrrp`.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "AdvertIntervalKept",
        cause: "`vrrp.advertInterval` was set below 100 ms while the group had more addresses than that allows. \
                Adverts stay as far apart as they were.",
        fix: "Set it to 100 ms or more, or let other groups announce some of the addresses.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "ChangeWaits",
        cause: "A change that all nodes must agree on waits for nodes whose agents do not report; the message names them.",
        fix: "See why no agent reports from there. A change does not begin before every ready node has an agent; once \
              begun, each of its steps waits for 30 seconds at most.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "NodesFailing",
        cause: "Agents report errors, for instance that keepalived refused its configuration or that the device is \
                missing; the message has the node and its error. Such a node keeps its last good configuration.",
        fix: "Correct what the error names.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "NodesWithoutAgent",
        cause: "No agent has reported from the named nodes for 30 seconds, although they are ready.",
        fix: "Look at the pods of the group's DaemonSet there.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "NodesBehind",
        cause: "The named nodes have carried out an earlier plan for 30 seconds. Their addresses stay where they are.",
        fix: "Look at the log of the pods there, and delete a pod that does not reach the API server.",
    },
    GroupReason {
        place: "Degraded `True`",
        reason: "PartlyRead",
        cause: "Lines of `verbatimConfig` or other entries of the `spec` are left out; the message names them.",
        fix: "Correct or remove these entries; the reference lists the [lines that are accepted](verbatim.md).",
    },
    GroupReason {
        place: "Degraded `False`",
        reason: "AsExpected",
        cause: "Nothing is known to be wrong.",
        fix: "",
    },
    GroupReason {
        place: "Event on a Service",
        reason: "LineRefused",
        cause: "Lines of the Service's annotation `verbatimconfig` are left out; the message names them.",
        fix: "Correct or remove these lines; the reference lists the [lines that are accepted](verbatim.md).",
    },
];

pub(super) fn file() -> File {
    let rows = Reason::ALL.map(|reason| {
        let cause = text::cause(HolderKind::Service, reason);
        let fix = text::fix(HolderKind::Service, reason);
        format!("| `{reason}` | {} | {} |", cell(&cause), cell(&fix))
    });
    let announced = NotAnnounced::ALL.map(|reason| {
        format!("| `{reason}` | {} | {} |", cell(reason.cause()), cell(reason.fix()))
    });
    let groups = GROUP_REASONS.iter().map(|one| {
        format!("| {} | `{}` | {} | {} |", one.place, one.reason, cell(one.cause), cell(one.fix))
    });
    let (rows, announced) = (rows.join("\n"), announced.join("\n"));
    let groups = groups.collect::<Vec<_>>().join("\n");
    let announced = format!("{ANNOUNCED}{announced}\n{GROUPS}{groups}\n");
    let text = format!("<!-- {NOTICE} -->\n{HEAD}{rows}\n{announced}{TAIL}");
    File { path: "docs/reference/reasons.md".to_owned(), text }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The code that words the conditions, and the event.
    const SOURCES: [&str; 2] = [
        include_str!("../../../crates/controllers/src/keepalived/status.rs"),
        include_str!("../../../crates/controllers/src/keepalived/notices.rs"),
    ];

    /// Words in these sources that are no reasons of ours: types of conditions, reasons that the replaced operator
    /// had, and the action of an event.
    const OTHERS: [&str; 6] = [
        "Announce",
        "Degraded",
        "LastReconcileCycleFailed",
        "LastReconcileCycleSucceded",
        "ReconcileError",
        "ReconcileSuccess",
    ];

    #[test]
    fn the_reasons_of_groups_are_those_of_the_code() {
        let literals = SOURCES.iter().flat_map(|source| source.split('"').skip(1).step_by(2));
        let is_word = |text: &&str| {
            text.starts_with(|first: char| first.is_ascii_uppercase())
                && text.chars().all(|letter| letter.is_ascii_alphanumeric())
        };
        let said: BTreeSet<_> = literals.filter(is_word).collect();
        let said: BTreeSet<_> = said.difference(&OTHERS.into()).copied().collect();
        let listed: BTreeSet<_> = GROUP_REASONS.iter().map(|one| one.reason).collect();
        assert_eq!(said, listed);
    }
}
