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
pub fn sharing_terms(metadata: &ObjectMeta, spec: &ServiceSpec) -> Result<Option<Terms>, Refusal> {
    let annotations = metadata.annotations.as_ref();
    let found = words::SHARING_KEYS.iter().find_map(|source| {
        let key = annotations?.get(source.key)?.trim();
        (!key.is_empty()).then_some((source, key))
    });
    let Some((source, key)) = found else { return Ok(None) };
    let unparseable = |field, input: &str, expected| {
        Err(Refusal::Unparseable { field, input: input.to_owned(), expected })
    };
    if key.len() > Holder::LONGEST_KEY {
        let expected = "a key of at most 253 bytes";
        return unparseable(source.key, key, expected);
    }
    let with = source.with.map_or_else(|| vec!["*"], |with| words::entries(metadata, with));
    let longest = with.iter().max_by_key(|name| name.len()).copied().unwrap_or_default();
    if with.len() > Holder::MOST_NAMESPACES || longest.len() > LONGEST_NAMESPACE {
        let expected = "`*` or the names of at most 64 namespaces";
        return unparseable(source.with.unwrap_or(source.key), longest, expected);
    }
    let (key, with) = (Some(key.to_owned()), with.into_iter().map(str::to_owned).collect());
    Ok(Some(Terms { key, with, ..needs(spec) }))
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
    };
    (terms != Terms::default()).then_some(terms)
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consent_given_to_another_program_holds_as_far_as_it_went_there() {
        let ours = ["landfall.dev/sharing-key", "landfall.dev/sharing-with"];
        let cilium = ["lbipam.cilium.io/sharing-key", "lbipam.cilium.io/sharing-cross-namespace"];
        for (case, annotations, expected) in [
            ("none", vec![], None),
            ("ours", vec![(ours[0], "k"), (ours[1], "a, b")], Some(("k", vec!["a", "b"]))),
            ("MetalLB's", vec![("metallb.io/allow-shared-ip", "k")], Some(("k", vec!["*"]))),
            (
                "MetalLB's older",
                vec![("metallb.universe.tf/allow-shared-ip", "k")],
                Some(("k", vec!["*"])),
            ),
            ("PureLB's", vec![("purelb.io/allow-shared-ip", "k")], Some(("k", vec!["*"]))),
            ("Cilium's", vec![(cilium[0], "k")], Some(("k", vec![]))),
            (
                "Cilium's, across namespaces",
                vec![(cilium[0], "k"), (cilium[1], "a")],
                Some(("k", vec!["a"])),
            ),
            (
                "ours before others",
                vec![(ours[0], "k"), ("metallb.io/allow-shared-ip", "other")],
                Some(("k", vec![])),
            ),
            (
                "ours without a key",
                vec![(ours[0], " "), ("metallb.io/allow-shared-ip", "other")],
                Some(("other", vec!["*"])),
            ),
        ] {
            let texts = annotations.iter().map(|(key, text)| ((*key).into(), (*text).into()));
            let metadata =
                ObjectMeta { annotations: Some(texts.collect()), ..ObjectMeta::default() };
            let terms = sharing_terms(&metadata, &ServiceSpec::default()).unwrap();
            let read = terms.map(|terms| (terms.key.unwrap(), terms.with));
            let expected = expected.map(|(key, with)| {
                (key.to_owned(), with.into_iter().map(str::to_owned).collect::<Vec<_>>())
            });
            assert_eq!(read, expected, "{case}");
        }
    }
}
