//! The permissions that the migration needs, beside the code that needs them.

use crate::{
    kinds::MAPPINGS,
    permissions::{Role, Rule},
};

/// Rules for the whole cluster, on top of those of [`crate::services`]: to read the old kinds, and to
/// write problems into their status.
pub const CLUSTER: &[Rule] = &[
    Rule::of_definitions(&[MAPPINGS]),
    Rule {
        groups: &["paas.org"],
        resources: &["virtualips"],
        verbs: &["get", "list", "watch"],
        names: &[],
    },
    Rule {
        groups: &["paas.org"],
        resources: &["virtualips/status"],
        verbs: &["patch"],
        names: &[],
    },
    Rule {
        groups: &["paas.org"],
        resources: &["groupsegmentmappings"],
        verbs: &["list", "watch"],
        names: &[],
    },
];

/// Writes for the old kinds. A separate role, because most clusters have none of them.
pub const MIGRATE: Role = Role {
    label: "migration",
    purpose: "Needed where there are VirtualIPs, to make and delete the copies of Services that show \
              their addresses, to turn Services into LoadBalancers, and to take finalizers off \
              VirtualIPs. Without it each VirtualIP says in its status what is refused.",
    rules: &[
        Rule { groups: &["paas.org"], resources: &["virtualips"], verbs: &["patch"], names: &[] },
        Rule {
            groups: &[""],
            resources: &["services"],
            verbs: &["create", "delete", "patch"],
            names: &[],
        },
    ],
};
