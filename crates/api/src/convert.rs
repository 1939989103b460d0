//! From what users write to plain pools and terms.

use k8s_openapi::{api::core::v1::ServiceSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use landfall_ipam::{AddrBlock, Family, Pool, PoolName, Refusal, Terms};

use crate::{Holder, IPGroupSpec, words};

/// The API server takes no longer name of a namespace.
pub(crate) const LONGEST_NAMESPACE: usize = 63;

/// Holds back ends only where that stays cheap: two intervals per /24, so up to a /8.
pub(crate) const AVOID_ENDS_LIMIT: u128 = 1 << 24;

/// The pool that a spec describes, or what is wrong with it, part by part.
///
/// A part that cannot be read makes the whole pool unusable: to give addresses without an exclusion
/// that was meant would be worse than to give none.
pub fn pool(name: PoolName, spec: &IPGroupSpec) -> Result<Pool, Vec<String>> {
    let mut problems = Vec::new();
    let segment = spec.segment.iter().map(|text| ("segment", text));
    let ranges = spec.ranges.iter().map(|text| ("ranges", text));
    let blocks = read(segment.chain(ranges), &mut problems);
    let excluded = read(spec.excluded().iter().map(|text| ("excludedIPs", text)), &mut problems);
    if blocks.is_empty() && problems.is_empty() {
        problems.push("it has no addresses: set segment or ranges".to_owned());
    }
    let mut pool = Pool::new(name, blocks.iter().copied(), excluded);
    pool.priority = spec.priority();
    pool.auto_assign = spec.auto_assign();
    pool.drain = spec.drain();
    if spec.avoid_ends() {
        if pool.ranges().len_of(Family::V4) > AVOID_ENDS_LIMIT {
            problems.push("avoidEnds: works for up to a /8 of IPv4 addresses".to_owned());
        } else {
            pool = pool.avoid_ends(blocks);
        }
    }
    if problems.is_empty() { Ok(pool) } else { Err(problems) }
}

fn read<'a>(
    texts: impl Iterator<Item = (&'static str, &'a String)>,
    problems: &mut Vec<String>,
) -> Vec<AddrBlock> {
    let mut blocks = Vec::new();
    for (field, text) in texts {
        match text.parse() {
            Ok(block) => blocks.push(block),
            Err(error) => problems.push(format!("{field}: {error}")),
        }
    }
    blocks
}

/// On which terms a Service would share an address: none without a key.
pub fn sharing_terms(
    metadata: &ObjectMeta,
    spec: &ServiceSpec,
) -> Result<Option<SharingTerms>, Refusal> {
    let annotations = metadata.annotations.as_ref();
    let found = words::SHARING_KEYS.iter().find_map(|source| {
        let key = annotations?.get(source.key)?.trim();
        (!key.is_empty()).then_some((source, key))
    });
    let Some((source, key)) = found else { return Ok(None) };
    let unparseable = |field, input: &str, expected| {
        Err(Refusal::Unparseable { field, input: words::excerpt(input), expected })
    };
    if key.len() > Holder::LONGEST_KEY {
        let expected = "a key of at most 253 bytes";
        return unparseable(source.key, key, expected);
    }
    let mut with = Vec::new();
    for name in source.with.into_iter().flat_map(|with| words::entries(metadata, with)) {
        if with.len() == Holder::MOST_NAMESPACES || name.len() > LONGEST_NAMESPACE {
            let expected = "`*` or the names of at most 64 namespaces";
            return unparseable(source.with.unwrap_or(source.key), name, expected);
        }
        with.push(name.to_owned());
    }
    let ports = spec.ports.as_ref().map_or(0, Vec::len);
    if ports > Holder::MOST_PORTS {
        let expected =
            "a Service with at most 1024 ports, which is how many one that shares may have";
        return unparseable("spec.ports", &format!("{ports} ports"), expected);
    }
    let permits = source.other_pods.and_then(|word| annotations?.get(word));
    let other_pods = permits.is_some_and(|value| value.trim() == "true");
    let terms = Terms { key: Some(key.to_owned()), with, other_pods, ..needs(spec) };
    Ok(Some(SharingTerms { terms, meant_all: source.with.is_none() }))
}

/// On which terms a Service would share, as it says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharingTerms {
    /// The terms; they name no namespace besides its own unless the Service does.
    pub terms: Terms,
    /// Whether its key is of a program for which the key alone meant every namespace.
    pub meant_all: bool,
}

/// The terms of a Service whose namespace lets all its Services share, by a key of kube-vip's pool
/// `ConfigMap`.
pub fn terms_by_map(spec: &ServiceSpec) -> Terms {
    let (key, with) = (Some(words::SHARING_KEY_BY_MAP.to_owned()), vec!["*".to_owned()]);
    Terms { key, with, ..needs(spec) }
}

/// What a Service needs on an address that it would share, whomever it shares with.
fn needs(spec: &ServiceSpec) -> Terms {
    let mut ports: Vec<_> = spec
        .ports
        .iter()
        .flatten()
        .take(Holder::MOST_PORTS)
        .map(|port| format!("{}/{}", port.protocol.as_deref().unwrap_or("TCP"), port.port))
        .collect();
    ports.sort_unstable();
    let selector = spec.selector.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let selector = selector.collect::<Vec<_>>().join(",");
    let comparable = !selector.is_empty() && selector.len() <= Holder::LONGEST_SELECTOR;
    Terms {
        ports,
        local: spec.external_traffic_policy.as_deref() == Some("Local"),
        selector: comparable.then_some(selector),
        ..Terms::default()
    }
}

/// On which terms a holder is entered in a claim.
pub fn holder_terms(holder: &Holder) -> Option<Terms> {
    let terms = Terms {
        key: holder.sharing_key.clone(),
        with: holder.sharing_with.clone(),
        ports: holder.ports.clone(),
        local: holder.local_traffic == Some(true),
        selector: holder.selector.clone(),
        other_pods: holder.other_pods == Some(true),
    };
    (terms != Terms::default()).then_some(terms)
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_with_more_ports_than_a_claim_can_name_does_not_share() {
        let ports = |count| {
            let port =
                |port| k8s_openapi::api::core::v1::ServicePort { port, ..Default::default() };
            ServiceSpec { ports: Some((1..=count).map(port).collect()), ..Default::default() }
        };
        let metadata = |key: &str| ObjectMeta {
            annotations: Some([(key.to_owned(), "k".to_owned())].into()),
            ..ObjectMeta::default()
        };
        let shares = metadata(words::ANNOTATION_SHARING_KEY);
        assert!(sharing_terms(&shares, &ports(1024)).unwrap().is_some());
        let refused = sharing_terms(&shares, &ports(1025)).unwrap_err();
        assert!(matches!(refused, Refusal::Unparseable { field: "spec.ports", .. }), "{refused:?}");
        assert_eq!(sharing_terms(&metadata("other"), &ports(1025)), Ok(None));
    }

    #[test]
    fn consent_given_to_another_program_holds_as_far_as_it_went_there() {
        let ours = ["landfall.dev/sharing-key", "landfall.dev/sharing-with"];
        let cilium = ["lbipam.cilium.io/sharing-key", "lbipam.cilium.io/sharing-cross-namespace"];
        let older = ["io.cilium/lb-ipam-sharing-key", "io.cilium/lb-ipam-sharing-cross-namespace"];
        let all = |key| Some((key, vec![], true));
        for (case, annotations, expected) in [
            ("none", vec![], None),
            ("ours", vec![(ours[0], "k"), (ours[1], "a, b")], Some(("k", vec!["a", "b"], false))),
            ("MetalLB's", vec![("metallb.io/allow-shared-ip", "k")], all("k")),
            ("MetalLB's older", vec![("metallb.universe.tf/allow-shared-ip", "k")], all("k")),
            ("PureLB's", vec![("purelb.io/allow-shared-ip", "k")], all("k")),
            (
                "Cilium's older, across namespaces",
                vec![(older[0], "k"), (older[1], "a")],
                Some(("k", vec!["a"], false)),
            ),
            ("Cilium's", vec![(cilium[0], "k")], Some(("k", vec![], false))),
            (
                "Cilium's, across namespaces",
                vec![(cilium[0], "k"), (cilium[1], "a")],
                Some(("k", vec!["a"], false)),
            ),
            (
                "ours before others",
                vec![(ours[0], "k"), ("metallb.io/allow-shared-ip", "other")],
                Some(("k", vec![], false)),
            ),
            (
                "ours without a key",
                vec![(ours[0], " "), ("metallb.io/allow-shared-ip", "other")],
                all("other"),
            ),
        ] {
            let texts = annotations.iter().map(|(key, text)| ((*key).into(), (*text).into()));
            let metadata =
                ObjectMeta { annotations: Some(texts.collect()), ..ObjectMeta::default() };
            let terms = sharing_terms(&metadata, &ServiceSpec::default()).unwrap();
            let read = terms.map(|read| (read.terms.key.unwrap(), read.terms.with, read.meant_all));
            let expected = expected.map(|(key, with, all): (&str, Vec<&str>, bool)| {
                (key.to_owned(), with.into_iter().map(str::to_owned).collect::<Vec<_>>(), all)
            });
            assert_eq!(read, expected, "{case}");
        }
    }
}
