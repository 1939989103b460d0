//! Keys and words that users and other programs write or read. One place, which feeds the docs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use landfall_ipam::Refusal;

/// Prefix of every word that is ours.
pub const PREFIX: &str = "landfall.dev/";

/// Label on an `IP`: name of its `IPGroup`, as vip-allocator-operator 1.0 writes it. See [`ipgroup_label`].
pub const LABEL_IPGROUP: &str = "ipgroup";
/// Label on an `IP` of vip-allocator-operator up to 0.3: name of its `GroupSegmentMapping`.
pub const LABEL_GSM: &str = "gsm";
/// Annotation on an `IP`: `namespace/name` of its holder. The domain is `paas.il`, unlike all else.
pub const ANNOTATION_OWNER: &str = "virtualips.paas.il/owner";
/// Annotation on an `IP` with several holders: the first of them and how many more, for the column.
pub const ANNOTATION_HOLDERS: &str = "landfall.dev/holders";
/// Finalizer that vip-allocator-operator leaves on Services. We set none and remove this one.
pub const FINALIZER_SERVICE: &str = "ips.paas.org/finalizer";
/// Finalizers of replaced operators, which leave a Service once the ledger is right about it.
pub const FINALIZERS_LEFT: &[&str] = &[FINALIZER_SERVICE];
/// Webhook of vip-allocator-operator. When that is gone and this is not, no `IP` can be written.
pub const WEBHOOK_LEFT: &str = "vip.kb.io";
/// The configuration that holds [`WEBHOOK_LEFT`].
pub const WEBHOOK_LEFT_CONFIGURATION: &str =
    "vip-allocator-operator-validating-webhook-configuration";
/// Finalizer on a `VirtualIP`: its `IP` must be deleted.
pub const FINALIZER_VIRTUALIP_IP: &str = "ip.finalizers.virtualips.paas.org";
/// Finalizer on a `VirtualIP`: its clone Service must be deleted.
pub const FINALIZER_VIRTUALIP_SERVICE: &str = "service.finalizers.virtualips.paas.org";
/// Annotation on a `VirtualIP`, with any value: start its migration.
pub const ANNOTATION_MIGRATE: &str = "virtualips.paas.org/migrate";

/// Annotation on a Service: addresses it asks for, one per family, separated by commas.
pub const ANNOTATION_ADDRESSES: &str = "landfall.dev/addresses";
/// Annotation on a Service: pools to use, in order, separated by commas.
pub const ANNOTATION_POOL: &str = "landfall.dev/pool";
/// Annotation on a Service: only Services with the same key share an address.
pub const ANNOTATION_SHARING_KEY: &str = "landfall.dev/sharing-key";
/// Annotation on a Service: namespaces it shares its address with, or `*`.
pub const ANNOTATION_SHARING_WITH: &str = "landfall.dev/sharing-with";

/// Annotation on a Service: its addresses for kube-vip, the primary family first, with commas and no
/// blanks between them.
pub const ANNOTATION_KUBE_VIP_ADDRESSES: &str = "kube-vip.io/loadbalancerIPs";
/// Annotation on a Service: the network interface on which kube-vip announces it.
pub const ANNOTATION_KUBE_VIP_INTERFACE: &str = "kube-vip.io/serviceInterface";
/// Annotation on a Service: the address that kube-vip got for it from a DHCP server.
pub const ANNOTATION_KUBE_VIP_REQUESTED: &str = "kube-vip.io/requestedIP";
/// Annotation on a Service: kube-vip leaves it alone.
pub const ANNOTATION_KUBE_VIP_IGNORE: &str = "kube-vip.io/ignore";
/// Label on a Service that kube-vip-cloud-provider counts the addresses of; see [`IMPLEMENTATION_KUBE_VIP`].
pub const LABEL_IMPLEMENTATION: &str = "implementation";
/// The value of [`LABEL_IMPLEMENTATION`].
pub const IMPLEMENTATION_KUBE_VIP: &str = "kube-vip";
/// Label on a Service of early kube-vip-cloud-provider: its address.
pub const LABEL_KUBE_VIP_ADDRESS: &str = "ipam-address";
/// The sharing key of holders that share because their namespace lets all its Services do so.
pub const SHARING_KEY_BY_MAP: &str = "kube-vip.io/allow-share";
/// Finalizer that cloud providers, kube-vip-cloud-provider among them, leave on Services.
pub const FINALIZER_CLOUD_PROVIDER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Class of the Services that kube-vip announces, unless it is told another.
pub const CLASS_KUBE_VIP: &str = "kube-vip.io/kube-vip-class";

/// Annotation on a Service: the `KeepalivedGroup` that announces it, as `namespace/name`.
pub const ANNOTATION_KEEPALIVED_GROUP: &str = "keepalived-operator.redhat-cop.io/keepalivedgroup";
/// Annotation on a Service: `true` gives each of its addresses an instance and a preferred node of its own.
pub const ANNOTATION_SPREAD_VIPS: &str = "keepalived-operator.redhat-cop.io/spreadvips";
/// Annotation on a Service: lines for its instances, a JSON object with texts as values.
pub const ANNOTATION_VERBATIM_CONFIG: &str = "keepalived-operator.redhat-cop.io/verbatimconfig";
/// Label on all that belongs to a `KeepalivedGroup`: name of the group.
pub const LABEL_KEEPALIVED_GROUP: &str = "keepalivedGroup";
/// Port of the metrics of a `KeepalivedGroup` that sets none.
pub const DEFAULT_METRICS_PORT: i32 = 9650;
/// Slots of a `KeepalivedGroup` that sets none.
pub const DEFAULT_SLOTS: i32 = 8;

/// An annotation that holds a sharing key, and how its Service consents to share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SharingKey {
    /// The annotation.
    pub key: &'static str,
    /// The annotation with the namespaces to share with. Where a program has none, its key alone meant
    /// every namespace; here it means the Service's own unless an administrator says otherwise.
    pub with: Option<&'static str>,
    /// The annotation by which a Service with `externalTrafficPolicy: Local` agrees to share with
    /// Services that select other pods.
    pub other_pods: Option<&'static str>,
}

/// Annotations with a sharing key, ours first. The others are those of programs that ran before us:
/// an agreement of Services under them still holds, so that shared addresses can be taken over.
pub const SHARING_KEYS: &[SharingKey] = &[
    SharingKey {
        key: ANNOTATION_SHARING_KEY,
        with: Some(ANNOTATION_SHARING_WITH),
        other_pods: None,
    },
    SharingKey { key: "metallb.io/allow-shared-ip", with: None, other_pods: None },
    SharingKey { key: "metallb.universe.tf/allow-shared-ip", with: None, other_pods: None },
    SharingKey {
        key: "lbipam.cilium.io/sharing-key",
        with: Some("lbipam.cilium.io/sharing-cross-namespace"),
        other_pods: Some(CILIUM_OTHER_PODS),
    },
    SharingKey {
        key: "io.cilium/lb-ipam-sharing-key",
        with: Some("io.cilium/lb-ipam-sharing-cross-namespace"),
        other_pods: Some(CILIUM_OTHER_PODS),
    },
    SharingKey { key: "purelb.io/allow-shared-ip", with: None, other_pods: None },
];

/// Cilium's word for sharing between Services that select different pods.
const CILIUM_OTHER_PODS: &str = "lbipam.cilium.io/sharing-permit-different-pods";

/// Annotations by which Services asked programs that ran before us for addresses. The first one that
/// is there counts, and only where the Service says nothing in our words or in its spec.
pub const ADDRESS_REQUESTS_LEFT: &[&str] = &[
    "metallb.io/loadBalancerIPs",
    "metallb.universe.tf/loadBalancerIPs",
    "lbipam.cilium.io/ips",
    "io.cilium/lb-ipam-ips",
    "purelb.io/addresses",
];

/// The same for pools, which they name without a kind.
pub const POOL_REQUESTS_LEFT: &[&str] =
    &["metallb.io/address-pool", "metallb.universe.tf/address-pool", "purelb.io/service-group"];

/// Most entries in a list that a user writes on a Service: addresses or pools that it asks for.
pub const MOST_ENTRIES: usize = 16;
/// Longest entry in such a list, which is the longest name of a pool.
pub const LONGEST_ENTRY: usize = 512;
/// Most `spec.externalIPs` that are read.
pub const MOST_EXTERNAL_IPS: usize = 1024;
/// Most labels of a Service that are read.
pub const MOST_LABELS: usize = 128;
/// Most finalizers of a Service that leftovers are looked for among.
pub const MOST_FINALIZERS: usize = 64;
/// Longest value of an annotation that is read: longer than any list within these bounds.
pub const LONGEST_VALUE: usize = 16 * 1024;
/// Longest piece of a user's text that is repeated in a message.
const LONGEST_EXCERPT: usize = 64;

/// Condition on a Service: whether it has the addresses it asked for.
pub const CONDITION_ALLOCATED: &str = "landfall.dev/Allocated";
/// Condition on a Service: whether its addresses are announced to the network.
pub const CONDITION_ANNOUNCED: &str = "landfall.dev/Announced";
/// Condition on our own kinds: whether the object can do its work.
pub const CONDITION_READY: &str = "Ready";

/// Condition on an `IPGroup`: whether ledger and Services agree about its addresses.
pub const CONDITION_CONSISTENT: &str = "Consistent";

/// Condition on an `IPGroup`: it has addresses that other pools have as well.
pub const CONDITION_OVERLAPS: &str = "Overlaps";

/// Condition on a `KeepalivedGroup`: part of it does not work as it should.
pub const CONDITION_DEGRADED: &str = "Degraded";
/// Condition on a `KeepalivedGroup`, known from keepalived-operator: the group is rendered as it is written.
pub const CONDITION_RECONCILE_SUCCESS: &str = "ReconcileSuccess";
/// Condition on a `KeepalivedGroup`, known from keepalived-operator: the group cannot be rendered.
pub const CONDITION_RECONCILE_ERROR: &str = "ReconcileError";
/// The reason of [`CONDITION_RECONCILE_SUCCESS`], in the spelling of keepalived-operator.
pub const REASON_RECONCILED: &str = "LastReconcileCycleSucceded";
/// The reason of [`CONDITION_RECONCILE_ERROR`].
pub const REASON_NOT_RECONCILED: &str = "LastReconcileCycleFailed";

/// Priority of an `IPGroup` that sets none.
pub const DEFAULT_PRIORITY: i32 = landfall_ipam::Pool::DEFAULT_PRIORITY;

/// Label of a role in `deploy/`: which of the sets of rights in the code it grants.
pub const LABEL_ROLE: &str = "landfall.dev/role";
/// Annotation of a role in `deploy/`: its purpose.
pub const ANNOTATION_PURPOSE: &str = "landfall.dev/purpose";

/// Longest value the API server takes for a label.
const LONGEST_LABEL_VALUE: usize = 63;

/// The value for [`LABEL_IPGROUP`], or `None` if the pool's name is too long to be one.
///
/// A pool may have a name of 253 characters. The label is for people and for the replaced operator;
/// `spec.pool` always carries the full name, so nothing is lost when the label is left out.
pub fn ipgroup_label(group: &str) -> Option<&str> {
    (group.len() <= LONGEST_LABEL_VALUE).then_some(group)
}

/// The entries of an annotation that lists things, separated by commas.
pub fn entries<'a>(metadata: &'a ObjectMeta, key: &str) -> impl Iterator<Item = &'a str> {
    let text = metadata.annotations.as_ref().and_then(|all| all.get(key));
    let parts = text.into_iter().flat_map(|text| text.split(',')).map(str::trim);
    parts.filter(|part| !part.is_empty())
}

/// The same, refused if there are more than [`MOST_ENTRIES`] or one is longer than [`LONGEST_ENTRY`]:
/// the part of an object that is kept must stay small, whatever its user writes.
pub fn bounded_entries<'a>(
    metadata: &'a ObjectMeta,
    key: &'static str,
) -> Result<Vec<&'a str>, Refusal> {
    let mut listed = Vec::new();
    for entry in entries(metadata, key) {
        if listed.len() == MOST_ENTRIES || entry.len() > LONGEST_ENTRY {
            let expected = "a list of at most 16 entries of at most 512 bytes each";
            return Err(Refusal::Unparseable { field: key, input: excerpt(entry), expected });
        }
        listed.push(entry);
    }
    Ok(listed)
}

/// The annotations on Services that are looked at.
pub fn read_on_services() -> impl Iterator<Item = &'static str> {
    let ours = TERMS.iter().filter(|term| term.place == "Service annotation").map(|term| term.key);
    let sharing = SHARING_KEYS.iter();
    let sharing = sharing.flat_map(|source| [Some(source.key), source.with, source.other_pods]);
    let requests = ADDRESS_REQUESTS_LEFT.iter().chain(POOL_REQUESTS_LEFT).copied();
    ours.chain(sharing.flatten()).chain(requests)
}

/// Whether an annotation on a Service is one of them.
pub fn is_read_on_services(key: &str) -> bool {
    read_on_services().any(|read| read == key)
}

/// The beginning of a user's text, for a message.
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(LONGEST_EXCERPT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.split_at(end).0),
    }
}

/// A key on an object, the place of the key, and its meaning: a row of the reference page.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Term {
    /// Kind of object and place on it, such as `Service annotation`.
    pub place: &'static str,
    /// The key itself.
    pub key: &'static str,
    /// What it says, in a sentence.
    pub meaning: &'static str,
}

/// Every key in this module, in the order the reference shows them.
pub const TERMS: &[Term] = &[
    term(
        "Service annotation",
        ANNOTATION_ADDRESSES,
        "Addresses the Service asks for, one per family, separated by commas. `spec.loadBalancerIP` is the same with one.",
    ),
    term("Service annotation", ANNOTATION_POOL, "Pools to use, in order, separated by commas."),
    term(
        "Service annotation",
        ANNOTATION_SHARING_KEY,
        "Services with the same key may share an address if both consent and their ports are disjoint.",
    ),
    term(
        "Service annotation",
        ANNOTATION_SHARING_WITH,
        "Namespaces the Service shares its address with, separated by commas, or `*` for all.",
    ),
    term(
        "Service annotation",
        ANNOTATION_KUBE_VIP_ADDRESSES,
        "Addresses that kube-vip announces for the Service, one per family, separated by commas. Written where a pool of its `ConfigMap` serves. A user's value is a request, and at most one address per family is read. Without such a `ConfigMap` or `--kube-vip-class` it counts as a request of the lowest precedence.",
    ),
    term(
        "Service annotation",
        ANNOTATION_KUBE_VIP_INTERFACE,
        "The network interface on which kube-vip announces them. Written together with an address that a pool chose.",
    ),
    term(
        "Service annotation",
        ANNOTATION_KUBE_VIP_REQUESTED,
        "Written by kube-vip: an address that DHCP gave. It counts once kube-vip shows it in the Service's status.",
    ),
    term(
        "Service annotation",
        ANNOTATION_KUBE_VIP_IGNORE,
        "`\"true\"`: no pool of kube-vip's `ConfigMap` serves the Service.",
    ),
    term(
        "Service annotation",
        ANNOTATION_KEEPALIVED_GROUP,
        "The `KeepalivedGroup` that announces the Service, as `namespace/name`. It wins over `announce` of the pool.",
    ),
    term(
        "Service annotation",
        ANNOTATION_SPREAD_VIPS,
        "`\"true\"`: each address of the Service has a VRRP instance and a preferred node of its own. Without effect in groups with `vrrp`, which spread all addresses.",
    ),
    term(
        "Service annotation",
        ANNOTATION_VERBATIM_CONFIG,
        "Lines for the VRRP instances of the Service, a JSON object such as `{\"track_src_ip\": \"\"}`, by keywords of a [closed list](verbatim.md).",
    ),
    term(
        "Service label",
        LABEL_IMPLEMENTATION,
        "`kube-vip` where the Service shows its addresses in kube-vip's annotation.",
    ),
    term(
        "Service label",
        LABEL_KUBE_VIP_ADDRESS,
        "Left by the first versions of kube-vip-cloud-provider; removed.",
    ),
    term(
        "Service condition",
        CONDITION_ALLOCATED,
        "`True` when the Service has the addresses it asked for; otherwise why not, pool by pool, and the nearest fix.",
    ),
    term(
        "Service condition",
        CONDITION_ANNOUNCED,
        "`True` when a node holds the addresses and announces them, with its name; otherwise why not, and the nearest fix.",
    ),
    term(
        "Service finalizer",
        FINALIZER_SERVICE,
        "Left by vip-allocator-operator; removed when its Service is taken over.",
    ),
    term(
        "Service finalizer",
        FINALIZER_CLOUD_PROVIDER,
        "Left by kube-vip-cloud-provider; removed where the Service is one of those that it served. Other programs use the same finalizer, and theirs stays.",
    ),
    term(
        "IP label",
        LABEL_IPGROUP,
        "Name of the `IPGroup` the address was given from. Left out when that name is longer than 63 characters; `spec.pool` always says it.",
    ),
    term(
        "IP label",
        LABEL_GSM,
        "Name of the `GroupSegmentMapping` (vip-allocator-operator up to 0.3).",
    ),
    term("IP annotation", ANNOTATION_OWNER, "The holder of the address, as `namespace/name`."),
    term(
        "IP annotation",
        ANNOTATION_HOLDERS,
        "Where the address has several holders: the first of them and how many more, for `kubectl get ips`. Written, never read.",
    ),
    term(
        "IPGroup condition",
        CONDITION_READY,
        "`True` when the pool can serve; otherwise what is wrong with it.",
    ),
    term(
        "IPGroup condition",
        CONDITION_CONSISTENT,
        "`False` when repair found that ledger and Services disagree about addresses of the pool, with the findings; `True` when that is over. Not set before anything was found.",
    ),
    term(
        "IPGroup condition",
        CONDITION_OVERLAPS,
        "`True` while other pools have some of its addresses, with their names. Not set otherwise.",
    ),
    term(
        "KeepalivedGroup condition",
        CONDITION_READY,
        "`True` when the group can announce; otherwise what is wrong with it.",
    ),
    term(
        "KeepalivedGroup condition",
        CONDITION_DEGRADED,
        "`True` while part of the group does not work as it should, such as a node that is silent or a line that is refused, with the part's name.",
    ),
    term(
        "KeepalivedGroup condition",
        CONDITION_RECONCILE_SUCCESS,
        "`True` when the group is carried out as it is written, else `False`. Known from keepalived-operator.",
    ),
    term(
        "KeepalivedGroup condition",
        CONDITION_RECONCILE_ERROR,
        "`True` when the group cannot be carried out as it is written, with the error, else `False`. Known from keepalived-operator.",
    ),
    term(
        "Label of a group's pods and generated objects",
        LABEL_KEEPALIVED_GROUP,
        "Name of the `KeepalivedGroup` in the same namespace that the object belongs to.",
    ),
    term(
        "VirtualIP annotation",
        ANNOTATION_MIGRATE,
        "With any value: turn this VirtualIP into a LoadBalancer Service.",
    ),
    term(
        "VirtualIP finalizer",
        FINALIZER_VIRTUALIP_IP,
        "The VirtualIP's `IP` object is still to be deleted.",
    ),
    term(
        "VirtualIP finalizer",
        FINALIZER_VIRTUALIP_SERVICE,
        "The VirtualIP's clone Service is still to be deleted.",
    ),
    term(
        "Role label",
        LABEL_ROLE,
        "In the manifests: which set of the operator's rights the role or binding is about.",
    ),
    term("Role annotation", ANNOTATION_PURPOSE, "In the manifests: the purpose of the role."),
];

const fn term(place: &'static str, key: &'static str, meaning: &'static str) -> Term {
    Term { place, key, meaning }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_pool_name_becomes_a_label_only_if_it_fits() {
        let fits = "n".repeat(63);
        assert_eq!(ipgroup_label(&fits), Some(fits.as_str()));
        assert_eq!(ipgroup_label(&"n".repeat(64)), None);
    }

    #[test]
    fn each_term_is_explained_once() {
        let keys: BTreeSet<_> = TERMS.iter().map(|term| (term.place, term.key)).collect();
        assert_eq!(keys.len(), TERMS.len());
        for term in TERMS {
            assert!(term.meaning.ends_with('.'), "{term:?}");
        }
    }
}
