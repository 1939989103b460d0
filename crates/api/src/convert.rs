//! From what users write to plain pools and terms.

use k8s_openapi::{api::core::v1::ServiceSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use landfall_ipam::{
    AddrBlock, AddrSet, Family, Never, Pool, PoolName, Refusal, Terms, link_local,
};

use crate::{Holder, IPGroupSpec, keys, kube_vip::quote, text};

/// The API server takes no longer name of a namespace.
pub(crate) const LONGEST_NAMESPACE: usize = 63;

/// Holds back ends only where that stays cheap: two intervals per /24, so up to a /8.
pub(crate) const AVOID_ENDS_LIMIT: u128 = 1 << 24;

/// A text that is longer is no address, CIDR or range, however it is written.
const LONGEST_ENTRY: usize = 128;

/// More problems than this are only counted: a list may have a hundred thousand entries.
const MOST_PROBLEMS: usize = 8;

/// A pool as far as it can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPool {
    /// The pool without the entries that cannot be read.
    pub pool: Pool,
    /// Those entries, each with its field and what is wrong with it.
    pub unreadable: Vec<String>,
    /// Entries that were read and are hardly meant so.
    pub warnings: Vec<String>,
}

/// The pool that a spec describes, or why it cannot be used at all, part by part.
///
/// An entry that cannot be read counts for nothing, and the rest of the pool works. This is so even
/// for an exclusion, which the original ignored as well: the addresses that the entry was meant to
/// keep back have been given all the time, and a pool that stops serving because of it would be an
/// outage that a take-over brings.
pub fn pool(name: PoolName, spec: &IPGroupSpec) -> Result<ReadPool, Vec<String>> {
    let mut unreadable = Problems::default();
    let main = spec.segment.iter().filter_map(|text| unreadable.keep(segment(text)));
    let mut blocks: Vec<AddrBlock> = main.collect();
    blocks.extend(spec.ranges.iter().filter_map(|text| unreadable.keep(entry("ranges", text))));
    if blocks.is_empty() && unreadable.is_empty() {
        unreadable.keep::<()>(Err("it has no addresses: set segment or ranges".to_owned()));
    }
    let excluded = spec.excluded().iter();
    let excluded: Vec<_> =
        excluded.filter_map(|text| unreadable.keep(entry("excludedIPs", text))).collect();
    let unreadable = unreadable.all();
    if blocks.is_empty() {
        return Err(unreadable);
    }
    let mut pool = Pool::new(name, blocks.iter().copied(), excluded);
    pool.priority = spec.priority();
    pool.auto_assign = spec.auto_assign();
    pool.drain = spec.drain();
    if spec.avoid_ends() {
        if pool.ranges().len_of(Family::V4) > AVOID_ENDS_LIMIT {
            return Err(vec!["avoidEnds: works for up to a /8 of IPv4 addresses".to_owned()]);
        }
        pool = pool.avoid_ends(blocks);
    }
    let given = pool.ranges().difference(pool.excluded());
    let special = special_among(&given);
    let never: AddrSet = Never::special().map(|(_, range)| range).collect();
    if !special.is_empty() && given.difference(&never).is_empty() {
        return Err(special);
    }
    let local = given.intersection(&link_local());
    let local = local.ranges().next().map(|range| {
        format!("{range} is link-local: it works within one network, and no router passes it on")
    });
    let warnings = special.into_iter().chain(local).collect();
    Ok(ReadPool { pool, unreadable, warnings })
}

/// Those of these addresses that no Service can have, with the reason.
fn special_among(addrs: &AddrSet) -> Vec<String> {
    let among = Never::special().flat_map(|(why, range)| {
        let among = addrs.intersection(&AddrSet::from_iter([range]));
        let why = text::never(why);
        let named: Vec<_> =
            among.ranges().map(|range| format!("{range} is {why} and never given")).collect();
        named
    });
    among.take(MOST_PROBLEMS).collect()
}

/// The main block of a pool: a CIDR, and not a lone address, whose prefix may have been forgotten.
fn segment(text: &str) -> Result<AddrBlock, String> {
    let block = entry("segment", text)?;
    if block.is_cidr() {
        Ok(block)
    } else {
        let text = text.trim();
        Err(format!("segment: {text:?} is not a CIDR such as 10.0.0.0/24; others go into ranges"))
    }
}

fn entry(field: &str, text: &str) -> Result<AddrBlock, String> {
    if text.trim().len() > LONGEST_ENTRY {
        let quoted = quote(text.trim());
        return Err(format!("{field}: {quoted} is not an address, a CIDR or a first-last range"));
    }
    text.trim().parse().map_err(|error| format!("{field}: {error}"))
}

/// What is wrong, entry by entry, up to a bound.
#[derive(Default)]
struct Problems {
    named: Vec<String>,
    more: usize,
}

impl Problems {
    const fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// The value, if it could be read; otherwise the reason is kept.
    fn keep<T>(&mut self, read: Result<T, String>) -> Option<T> {
        match read {
            Ok(read) => return Some(read),
            Err(problem) if self.named.len() < MOST_PROBLEMS => self.named.push(problem),
            Err(_) => self.more = self.more.saturating_add(1),
        }
        None
    }

    fn all(mut self) -> Vec<String> {
        if self.more > 0 {
            self.named.push(format!("{} more entries cannot be read", self.more));
        }
        self.named
    }
}

/// On which terms a Service would share an address: none without a key.
pub fn sharing_terms(
    metadata: &ObjectMeta,
    spec: &ServiceSpec,
) -> Result<Option<SharingTerms>, Refusal> {
    let annotations = metadata.annotations.as_ref();
    let found = keys::SHARING_KEYS.iter().find_map(|source| {
        let key = annotations?.get(source.key)?.trim();
        (!key.is_empty()).then_some((source, key))
    });
    let Some((source, key)) = found else { return Ok(None) };
    let unparseable = |field, input: &str, expected| {
        Err(Refusal::Unparseable { field, input: keys::excerpt(input), expected })
    };
    if key.len() > Holder::LONGEST_KEY {
        let expected = "a key of at most 253 bytes";
        return unparseable(source.key, key, expected);
    }
    let mut with = Vec::new();
    for name in source.with.into_iter().flat_map(|with| keys::entries(metadata, with)) {
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
    let (key, with) = (Some(keys::SHARING_KEY_BY_MAP.to_owned()), vec!["*".to_owned()]);
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
        let shares = metadata(keys::ANNOTATION_SHARING_KEY);
        assert!(sharing_terms(&shares, &ports(1024)).unwrap().is_some());
        let refused = sharing_terms(&shares, &ports(1025)).unwrap_err();
        assert!(matches!(refused, Refusal::Unparseable { field: "spec.ports", .. }), "{refused:?}");
        assert_eq!(sharing_terms(&metadata("other"), &ports(1025)), Ok(None));
    }

    #[test]
    fn an_unreadable_entry_is_named_and_the_rest_of_the_pool_works() {
        let long = "x".repeat(100_000);
        for (case, segment, excluded, left, named) in [
            (
                "a blank before the address",
                "10.46.3.0/30",
                vec![" 10.46.3.2"],
                "10.46.3.0 10.46.3.1 10.46.3.3",
                &[][..],
            ),
            ("blanks in a range", " 10.0.0.0/30\n", vec!["10.0.0.0 - 10.0.0.2\t"], "10.0.0.3", &[]),
            (
                "a name",
                "10.0.0.0/31",
                vec!["gw", "10.0.0.0"],
                "10.0.0.1",
                &["excludedIPs: \"gw\" is not an address"],
            ),
            (
                "nothing",
                "10.0.0.0/31",
                vec!["", " "],
                "10.0.0.0 10.0.0.1",
                &["excludedIPs: \"\" is not", "it is empty"],
            ),
            (
                "leading zero",
                "10.0.0.0/31",
                vec!["10.0.0.01"],
                "10.0.0.0 10.0.0.1",
                &["\"10.0.0.01\"", "leading zeros"],
            ),
            (
                "a very long text",
                "10.0.0.0/31",
                vec![&long],
                "10.0.0.0 10.0.0.1",
                &["xxx\"… is not an address"],
            ),
        ] {
            let spec = IPGroupSpec {
                segment: Some(segment.to_owned()),
                excluded_ips: Some(excluded.into_iter().map(str::to_owned).collect()),
                ..IPGroupSpec::default()
            };
            let ReadPool { pool, unreadable, warnings } = pool(PoolName::new("p"), &spec).unwrap();
            assert_eq!(warnings, Vec::<String>::new(), "{case}");
            let free = pool.ranges().difference(pool.excluded());
            let expected =
                left.split_whitespace().map(|addr| addr.parse::<std::net::IpAddr>().unwrap());
            assert_eq!(free, expected.collect(), "{case}");
            let said = unreadable.join("; ");
            assert_eq!(said.is_empty(), named.is_empty(), "{case}: {said}");
            assert!(named.iter().all(|part| said.contains(part)), "{case}: {said}");
            assert!(said.len() < 2048, "{case}: {}", said.len());
        }
    }

    #[test]
    fn a_pool_without_a_range_that_can_be_read_cannot_be_used() {
        for (segment, ranges, problem) in [
            (None, vec![], "it has no addresses: set segment or ranges"),
            (Some(""), vec![], "segment: \"\" is not an address"),
            (Some("abc"), vec![], "segment: \"abc\" is not an address"),
            (Some("1.1.1.0"), vec![], "segment: \"1.1.1.0\" is not a CIDR such as 10.0.0.0/24"),
            (None, vec!["10.0.0.9-10.0.0.5"], "ranges: \"10.0.0.9-10.0.0.5\" is empty"),
        ] {
            let spec = IPGroupSpec {
                segment: segment.map(str::to_owned),
                ranges: ranges.into_iter().map(str::to_owned).collect(),
                ..IPGroupSpec::default()
            };
            let problems = pool(PoolName::new("p"), &spec).unwrap_err();
            assert!(problems[0].starts_with(problem), "{problems:?}");
        }
    }

    #[test]
    fn addresses_that_no_service_can_have_are_told() {
        for (segment, excluded, usable, warnings) in [
            ("10.0.0.0/24", "", true, &[][..]),
            ("0.0.0.0/30", "", true, &["0.0.0.0 is the unspecified address and never given"]),
            ("0.0.0.0/30", "0.0.0.0", true, &[]),
            ("::/126", "", true, &[":: is the unspecified address", "::1 is a loopback address"]),
            ("169.254.7.0/24", "", true, &["169.254.7.0-169.254.7.255 is link-local"]),
            ("fe80::/64", "", true, &["fe80::-fe80::ffff:ffff:ffff:ffff is link-local"]),
            ("127.0.0.0/8", "", false, &["127.0.0.0-127.255.255.255 is a loopback address"]),
            ("127.0.0.0/8", "127.0.0.0/9", false, &["127.128.0.0-127.255.255.255 is a loopback"]),
            ("ff00::/8", "", false, &["is a multicast address and never given"]),
            ("255.255.255.255/32", "", false, &["255.255.255.255 is the broadcast address"]),
        ] {
            let spec = IPGroupSpec {
                segment: Some(segment.to_owned()),
                excluded_ips: Some(excluded.split_whitespace().map(str::to_owned).collect()),
                ..IPGroupSpec::default()
            };
            let read = pool(PoolName::new("p"), &spec);
            assert_eq!(read.is_ok(), usable, "{segment}: {read:?}");
            let told = read.map_or_else(|problems| problems, |read| read.warnings);
            assert_eq!(told.len(), warnings.len(), "{segment}: {told:?}");
            for (told, part) in told.iter().zip(warnings) {
                assert!(told.contains(part), "{segment}: {told}");
            }
        }
    }

    #[test]
    fn problems_are_counted_beyond_a_bound() {
        let spec = IPGroupSpec {
            segment: Some("10.0.0.0/24".to_owned()),
            excluded_ips: Some((0..100_000).map(|n| format!("host-{n}")).collect()),
            ..IPGroupSpec::default()
        };
        let unreadable = pool(PoolName::new("p"), &spec).unwrap().unreadable;
        assert_eq!(unreadable.len(), MOST_PROBLEMS + 1);
        assert_eq!(unreadable.last().unwrap(), "99992 more entries cannot be read");
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
