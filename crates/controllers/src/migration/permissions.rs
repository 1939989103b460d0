//! What the old kinds need, kept beside what is done for them.

use crate::permissions::Rule;

/// Rules for the whole cluster, on top of those of [`crate::services`].
pub const CLUSTER: &[Rule] = &[
    Rule {
        groups: &["apiextensions.k8s.io"],
        resources: &["customresourcedefinitions"],
        verbs: &["list", "watch"],
        names: &[super::VIRTUAL_IPS, super::MAPPINGS],
    },
    Rule {
        groups: &["paas.org"],
        resources: &["virtualips"],
        verbs: &["get", "list", "patch", "watch"],
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
    // The copies that show the addresses, and the Services that take them over.
    Rule {
        groups: &[""],
        resources: &["services"],
        verbs: &["create", "delete", "patch"],
        names: &[],
    },
];
