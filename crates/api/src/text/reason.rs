//! The causes of a reason, and what a person can do about it.

use std::borrow::Cow;

use landfall_ipam::Reason;

use super::noun;
use crate::HolderKind::{self, Namespace, Node, Pool, Service, VirtualIp};

/// The cause of a refusal, as a sentence.
pub fn cause(kind: HolderKind, reason: Reason) -> Cow<'static, str> {
    let noun = noun(kind);
    match (reason, kind) {
        (Reason::Exhausted, _) => {
            format!("Every pool that may serve the {noun} has all its addresses taken.").into()
        }
        (Reason::NotSelected, Service) => {
            "There are pools, but their selectors or `autoAssign: false` leave the Service out.".into()
        }
        (Reason::NotSelected, _) => {
            format!("There are pools, but none of them is for the {noun}.").into()
        }
        (Reason::Excluded, _) => {
            let held_back = if kind == Service { "by `avoidEnds`" } else { "at its ends" };
            format!("The asked-for address is excluded by a pool that covers it, or held back {held_back}, or one that no {noun} can have: unspecified, loopback, multicast, broadcast, an IPv4 address written as an IPv6 one, or of a range from which the cluster gives ClusterIPs.").into()
        }
        (Reason::TakenBy, _) => {
            "Another holder has the asked-for address; the message names it.".into()
        }
        (Reason::Reserved, _) => {
            "The asked-for address is kept for another holder, by an administrator or after a deletion (`retainFor`).".into()
        }
        (Reason::SharingRefused, Service) => {
            "The Service may not share the address with a Service that has it: a key, a namespace, a port or the traffic policy is in the way; the message names that Service and the obstacle.".into()
        }
        (Reason::SharingRefused, _) => {
            format!("The {noun} may not share the address with its holder; the message names the holder and the obstacle.").into()
        }
        (Reason::OutsideEveryPool, _) => "No pool covers the asked-for address.".into(),
        (Reason::FamilyMissing, _) => {
            format!("No pool that may serve the {noun} has addresses of that family.").into()
        }
        (Reason::Draining, Service) => {
            "The pools that may serve the Service are set to `drain` and give no more.".into()
        }
        (Reason::Draining, _) => {
            format!("The pools that may serve the {noun} are draining and give no more.").into()
        }
        (Reason::Unparseable, Service) => {
            "The request of the Service cannot be read, for instance because it holds a text that is no address, or more than one address of a family.".into()
        }
        (Reason::Unparseable, _) => {
            format!("The request of the {noun} cannot be read, for instance because it holds a text that is no address.").into()
        }
        (Reason::QuotaExceeded, Service | VirtualIp) => {
            "The namespace holds as many addresses of the pool as the pool's `quota` allows.".into()
        }
        (Reason::QuotaExceeded, _) => {
            format!("The {noun} holds as many addresses of the pool as the pool's quota allows.")
                .into()
        }
        (Reason::ClassUnknown, Service) => {
            "None of the pools that the Service may use serves its `spec.loadBalancerClass`, or all serve some class and the Service has none.".into()
        }
        (Reason::ClassUnknown, _) => {
            format!("None of the pools that the {noun} may use serves its class.").into()
        }
        (Reason::PoolUnknown, Service) => {
            "The annotation `landfall.dev/pool` names no pool that exists.".into()
        }
        (Reason::PoolUnknown, _) => format!("The {noun} names no pool that exists.").into(),
        (Reason::PoolInvalid, Service) => {
            "The pools that may serve the Service cannot be used; their `Ready` condition says why.".into()
        }
        (Reason::PoolInvalid, _) => {
            format!("The pools that may serve the {noun} cannot be used as they are written.").into()
        }
        (Reason::NoPool, Service) => {
            "The cluster has no `IPGroup`, and kube-vip's `ConfigMap` has no key for the namespace or for all.".into()
        }
        (Reason::NoPool, VirtualIp) => "The cluster has no `GroupSegmentMapping`.".into(),
        (Reason::NoPool, Namespace) => "The cluster has no `EgressIPAM`.".into(),
        (Reason::NoPool, Node | Pool) => "The cluster has no `FloatingIPPool`.".into(),
        (Reason::LedgerRefused, _) => {
            "The API server refuses to write the `IP` object, for instance because of RBAC, a policy, a webhook or a missing CRD.".into()
        }
        (Reason::HolderRefused, Service) => {
            "The API server refuses to write the Service itself: kube-vip's annotation, or the removal of what a replaced operator left. The role for it is not bound, or a policy or a webhook says no.".into()
        }
        (Reason::HolderRefused, _) => {
            format!("The API server refuses to write the {noun} itself. The role for it is not bound, or a policy or a webhook says no.").into()
        }
    }
}

/// The nearest fix, as a sentence.
pub fn fix(kind: HolderKind, reason: Reason) -> Cow<'static, str> {
    let noun = noun(kind);
    match (reason, kind) {
        (Reason::Exhausted, Service) => {
            "Add addresses to a pool (`ranges`), add a pool, or delete a Service.".into()
        }
        (Reason::Exhausted, VirtualIp) => "Add a pool, or delete a VirtualIP.".into(),
        (Reason::Exhausted, Namespace) => {
            "Add addresses to a pool, add a pool, or take the addresses from a Namespace that does not need them.".into()
        }
        (Reason::Exhausted, Node) => {
            "Add addresses to a pool, add a pool, or let the pool match fewer Nodes.".into()
        }
        (Reason::Exhausted, Pool) => "Add addresses to a pool, or add a pool.".into(),
        (Reason::NotSelected, Service) => {
            "Change the pool's selectors or the labels of the Service or its namespace, or ask for one of the pool's addresses if it is `autoAssign: false`.".into()
        }
        (Reason::NotSelected, _) => {
            format!("Let a pool select the {noun}, or add a pool that does.").into()
        }
        (Reason::Excluded, _) => {
            "Ask for another address, or remove the exclusion if there is one.".into()
        }
        (Reason::TakenBy, Service | VirtualIp) => {
            "Ask for another address, or delete the holder.".into()
        }
        (Reason::TakenBy, _) => "Ask for another address, or let its holder release it.".into(),
        (Reason::Reserved, _) => {
            "Ask for another address, wait until the reservation ends, or let an administrator delete the `IP` object.".into()
        }
        (Reason::SharingRefused, Service) => {
            "Use other ports, or give both Services the same `landfall.dev/sharing-key` and let each name the other's namespace in `landfall.dev/sharing-with`; or ask for another address.".into()
        }
        (Reason::SharingRefused, _) => "Ask for another address.".into(),
        (Reason::OutsideEveryPool, _) => {
            "Ask for an address inside a pool, or add a range that covers it to a pool.".into()
        }
        (Reason::FamilyMissing, _) => "Add a range of that family to a pool.".into(),
        (Reason::Draining, Service) => "Set `drain: false` on a pool, or add a pool.".into(),
        (Reason::Draining, _) => "Let a pool give addresses again, or add a pool.".into(),
        (Reason::Unparseable, _) => "Write what the message expects there, or remove it.".into(),
        (Reason::QuotaExceeded, Service | VirtualIp) => {
            format!("Delete a {noun} of the namespace, or raise the pool's `quota`; the oldest {noun} that waits is served at once.").into()
        }
        (Reason::QuotaExceeded, _) => {
            format!("Release an address of the {noun}, or raise the pool's quota.").into()
        }
        (Reason::ClassUnknown, Service) => {
            "Set `loadBalancerClass` of a pool to that of the Service, or add a pool without one for Services without one.".into()
        }
        (Reason::ClassUnknown, _) => {
            format!("Add a pool that serves the class of the {noun}.").into()
        }
        (Reason::PoolUnknown, _) => "Name a pool that exists, or create it.".into(),
        (Reason::PoolInvalid, Service) => {
            "Correct the pool as its `Ready` condition says.".into()
        }
        (Reason::PoolInvalid, _) => "Correct the pool.".into(),
        (Reason::NoPool, Service) => "Create an `IPGroup`, or a key of the `ConfigMap`.".into(),
        (Reason::NoPool, VirtualIp) => "Create a `GroupSegmentMapping`.".into(),
        (Reason::NoPool, Namespace) => "Create an `EgressIPAM`.".into(),
        (Reason::NoPool, Node | Pool) => "Create a `FloatingIPPool`.".into(),
        (Reason::LedgerRefused, _) => {
            "Remove what refuses the write, as the message says; the operator tries again by itself.".into()
        }
        (Reason::HolderRefused, Service) => {
            "Let the operator patch Services (`deploy/rbac-services.yaml`), or remove what refuses the write; the operator tries again by itself.".into()
        }
        (Reason::HolderRefused, _) => {
            format!("Let the operator patch {noun}s, or remove what refuses the write; the operator tries again by itself.").into()
        }
    }
}
