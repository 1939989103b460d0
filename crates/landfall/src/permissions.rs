//! The rights that the runtime itself needs, apart from its controllers.

use landfall_controllers::permissions::Rule;

use crate::elector::LEASE_NAME;

/// Rules in the operator's own namespace: the lease of the leader election.
pub const NAMESPACED: &[Rule] = &lease(&[LEASE_NAME]);

/// The lease of kube-vip-cloud-provider, for an operator that takes its place.
pub const KUBE_VIP_LEASE_NAME: &str = "kube-vip-cloud-controller";

/// Rules in that lease's namespace.
pub const KUBE_VIP: &[Rule] = &lease(&[KUBE_VIP_LEASE_NAME]);

const fn lease(names: &'static [&'static str]) -> [Rule; 2] {
    let (groups, resources) = (&["coordination.k8s.io"], &["leases"]);
    [
        Rule { groups, resources, verbs: &["get", "update"], names },
        Rule { groups, resources, verbs: &["create"], names: &[] },
    ]
}
