//! What the runtime itself must be allowed to do, apart from its controllers.

use landfall_controllers::permissions::Rule;

use crate::elector::LEASE_NAME;

/// Rules in the operator's own namespace: the lease of the leader election.
pub const NAMESPACED: &[Rule] = &[
    Rule {
        groups: &["coordination.k8s.io"],
        resources: &["leases"],
        verbs: &["get", "update"],
        names: &[LEASE_NAME],
    },
    Rule {
        groups: &["coordination.k8s.io"],
        resources: &["leases"],
        verbs: &["create"],
        names: &[],
    },
];
