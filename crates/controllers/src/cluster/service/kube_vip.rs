//! The marks of kube-vip's cloud provider on Services.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use landfall_api::{
    keys::{
        self, ANNOTATION_KUBE_VIP_ADDRESSES, ANNOTATION_KUBE_VIP_IGNORE, IMPLEMENTATION_KUBE_VIP,
        LABEL_IMPLEMENTATION, LABEL_KUBE_VIP_ADDRESS,
    },
    kube_vip::{self, Addresses},
};
use landfall_ipam::{Family, Refusal};

use super::{Balancer, Place, Plain, Request, request};
use crate::object::label;

/// The marks of this dialect on a Service.
pub(super) struct KubeVipMarks {
    /// Its annotation, unless it has none or a blank one.
    annotated: Option<Addresses>,
    /// Whether it has the label of Services that were given an address.
    pub labelled: bool,
    /// Whether it has a label of the provider's first versions.
    outdated: bool,
    ignored: bool,
}

impl KubeVipMarks {
    pub(super) fn read(metadata: &ObjectMeta) -> Self {
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        let value =
            annotation(ANNOTATION_KUBE_VIP_ADDRESSES).filter(|value| !value.trim().is_empty());
        let implementation = label(metadata, LABEL_IMPLEMENTATION);
        Self {
            annotated: value.map(|_| kube_vip::addresses(metadata)),
            labelled: implementation.is_some_and(|value| value == IMPLEMENTATION_KUBE_VIP),
            outdated: label(metadata, LABEL_KUBE_VIP_ADDRESS).is_some(),
            ignored: annotation(ANNOTATION_KUBE_VIP_IGNORE).is_some_and(|value| value == "true"),
        }
    }

    /// Whether it has any mark of this dialect.
    pub(super) const fn is_evident(&self) -> bool {
        self.annotated.is_some() || self.labelled
    }
}

/// The error in the annotation, if its user must correct it.
fn problem(annotated: &Addresses) -> Option<Refusal> {
    let unparseable = annotated.other.as_ref().map(|other| Refusal::Unparseable {
        field: ANNOTATION_KUBE_VIP_ADDRESSES,
        input: other.clone(),
        expected: "addresses, at most one per family; entries that are none are left to kube-vip",
    });
    let twice = || {
        let surplus = annotated.surplus?;
        let same = |addr: &&IpAddr| Family::of(**addr) == Family::of(surplus);
        Some(Refusal::TwoOfOneFamily(*annotated.first.iter().find(same)?, surplus))
    };
    unparseable.or_else(twice)
}

/// A Service as seen where this dialect is in use, with its plain view inside.
pub(super) fn announced(
    plain: Balancer,
    metadata: &ObjectMeta,
    spec_ip: Option<&str>,
    single: bool,
    bad: Option<Refusal>,
) -> Balancer {
    let carried = KubeVipMarks::read(metadata);
    let opts_out_of = carried.ignored.then_some(Place::Annotation);
    if !carried.is_evident() {
        return Balancer { opts_out_of, ..plain };
    }
    let is_annotated = carried.annotated.is_some();
    let annotated = carried.annotated.unwrap_or_default();
    let problem = problem(&annotated);
    let mut families = plain.families.clone();
    let mut extra_family = None;
    for family in annotated.first.iter().map(|addr| Family::of(*addr)) {
        // It was given one address of each family, or its user wrote them.
        if !families.contains(&family) {
            families.push(family);
            extra_family = single.then_some(family);
        }
    }
    // An address in both was written by the program that gave it.
    let spec_ip = spec_ip
        .filter(|text| !text.parse().is_ok_and(|addr: IpAddr| annotated.first.contains(&addr)));
    let annotation_unreadable = problem.is_some();
    let request = match problem.or(bad) {
        Some(refusal) => Request::Bad(refusal),
        None => request::addresses(metadata, spec_ip, &families),
    };
    let by_spec_alone = keys::entries(metadata, keys::ANNOTATION_ADDRESSES).next().is_none();
    let spec_contradicts_annotation = spec_ip.is_some()
        && by_spec_alone
        && annotated.first.iter().any(|addr| request.of(Family::of(*addr)).is_some());
    Balancer {
        families,
        extra_family,
        spec_contradicts_annotation,
        request,
        place: Place::Annotation,
        ingress_has_hostname: false,
        label_missing: is_annotated && (!carried.labelled || carried.outdated),
        annotation_unreadable,
        opts_out_of,
        shows: annotated.first,
        announced: plain.shows.clone(),
        plain: Some(Box::new(Plain {
            families: plain.families,
            request: plain.request,
            ingress_has_hostname: plain.ingress_has_hostname,
            marked: carried.labelled,
        })),
        ..plain
    }
}
