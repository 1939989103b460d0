//! The permissions that the allocator needs, beside the code that needs them.

use crate::{
    kinds::VIRTUAL_IPS,
    permissions::{Role, Rule},
};

/// Rules for the whole cluster.
pub const CLUSTER: &[Rule] = &[
    Rule { groups: &[""], resources: &["services"], verbs: &["get", "list", "watch"], names: &[] },
    Rule { groups: &[""], resources: &["services/status"], verbs: &["patch"], names: &[] },
    Rule {
        groups: &[""],
        resources: &["namespaces", "nodes"],
        verbs: &["list", "watch"],
        names: &[],
    },
    Rule { groups: &["paas.org"], resources: &["ipgroups"], verbs: &["list", "watch"], names: &[] },
    Rule { groups: &["paas.org"], resources: &["ipgroups/status"], verbs: &["patch"], names: &[] },
    Rule {
        groups: &["paas.org"],
        resources: &["ips"],
        verbs: &["create", "delete", "get", "list", "patch", "watch"],
        names: &[],
    },
    // Read to know which addresses are not free; most clusters have none of them.
    Rule {
        groups: &["paas.org"],
        resources: &["virtualips"],
        verbs: &["list", "watch"],
        names: &[],
    },
    // Read to know from which ranges the cluster gives ClusterIPs.
    Rule {
        groups: &["networking.k8s.io"],
        resources: &["servicecidrs"],
        verbs: &["list", "watch"],
        names: &[],
    },
    Rule::of_definitions(&[VIRTUAL_IPS]),
    Rule { groups: &["events.k8s.io"], resources: &["events"], verbs: &["create"], names: &[] },
];

/// Writes of Services beyond their status. A separate role, because a cluster with neither kube-vip nor
/// an operator to replace can do without it.
pub const WRITE_SERVICES: Role = Role {
    label: "services",
    purpose: "Needed where kube-vip announces addresses, to write its annotation, and while another \
              allocator is replaced, to take its finalizer off Services. Without it a Service that \
              must be written says ServiceRefused; all others are served.",
    rules: &[Rule { groups: &[""], resources: &["services"], verbs: &["patch"], names: &[] }],
};

/// The default namespace of the `ConfigMap` with kube-vip's pools.
pub const KUBE_VIP_NAMESPACE: &str = "kube-system";

/// Rules in that namespace.
pub const KUBE_VIP: &[Rule] = &[Rule {
    groups: &[""],
    resources: &["configmaps"],
    verbs: &["list", "watch"],
    names: &["kubevip"],
}];

/// Rules in the namespace `default`, where the API server lists its own addresses.
pub const DEFAULT_NAMESPACE: &[Rule] = &[Rule {
    groups: &["discovery.k8s.io"],
    resources: &["endpointslices"],
    verbs: &["list", "watch"],
    names: &[],
}];
