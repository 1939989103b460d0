//! The permissions that the planner of keepalived groups needs.

use crate::{
    kinds::{KEEPALIVED_GROUPS, POD_MONITORS},
    permissions::{Role, Rule},
};

/// Rules for the whole cluster that every operator has, to notice groups and to say what is wrong with them.
pub const CLUSTER: &[Rule] = &[
    Rule::of_definitions(&[KEEPALIVED_GROUPS, POD_MONITORS]),
    Rule {
        groups: &["redhatcop.redhat.io"],
        resources: &["keepalivedgroups"],
        verbs: &["list", "watch"],
        names: &[],
    },
    Rule {
        groups: &["redhatcop.redhat.io"],
        resources: &["keepalivedgroups/status"],
        verbs: &["patch"],
        names: &[],
    },
    // Which node carries an address.
    Rule { groups: &["paas.org"], resources: &["ips/status"], verbs: &["patch"], names: &[] },
];

/// Everything else about keepalived groups. A separate role, because most clusters have none of them, and because it
/// includes what the agents may do: nobody can grant a right that they do not have.
pub const KEEPALIVED: Role = Role {
    label: "keepalived",
    purpose: "Needed where there are KeepalivedGroups, to create the pods of each group with their \
              account and role. Without it nothing is announced. The operator looks at the metadata of the Secrets \
              that groups name; it must be allowed to read them in order to let the agents read them. The same \
              goes for endpoints, pods and services, which Prometheus may read where groups are.",
    rules: &[
        // To grant it to agents.
        Rule {
            groups: &["redhatcop.redhat.io"],
            resources: &["keepalivedgroups/status"],
            verbs: &["patch"],
            names: &[],
        },
        // Nodes with a ready endpoint of a Service whose traffic stays on its node.
        Rule {
            groups: &["discovery.k8s.io"],
            resources: &["endpointslices"],
            verbs: &["list", "watch"],
            names: &[],
        },
        // An owner reference that blocks the deletion of the owner needs it.
        Rule {
            groups: &["redhatcop.redhat.io"],
            resources: &["keepalivedgroups/finalizers"],
            verbs: &["update"],
            names: &[],
        },
        Rule {
            groups: &[""],
            resources: &["configmaps"],
            verbs: &["create", "get", "list", "patch", "watch"],
            names: &[],
        },
        Rule {
            groups: &[""],
            resources: &["serviceaccounts"],
            verbs: &["create", "get", "list", "patch", "watch"],
            names: &[],
        },
        Rule {
            groups: &[""],
            resources: &["secrets"],
            verbs: &["get", "list", "watch"],
            names: &[],
        },
        Rule {
            groups: &["apps"],
            resources: &["daemonsets"],
            verbs: &["create", "get", "list", "patch", "watch"],
            names: &[],
        },
        // It deletes those that the replaced operator left of groups that no longer exist.
        Rule {
            groups: &["rbac.authorization.k8s.io"],
            resources: &["roles", "rolebindings"],
            verbs: &["create", "delete", "get", "list", "patch", "watch"],
            names: &[],
        },
        Rule {
            groups: &["monitoring.coreos.com"],
            resources: &["podmonitors"],
            verbs: &["create", "get", "list", "patch", "watch"],
            names: &[],
        },
        Rule {
            groups: &[""],
            resources: &["endpoints", "pods", "services"],
            verbs: &["get", "list", "watch"],
            names: &[],
        },
    ],
};
