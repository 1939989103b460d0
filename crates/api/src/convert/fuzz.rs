//! Any text in an `IPGroup` makes a pool, or an error that names it.

use k8s_openapi::api::core::v1::ServicePort;
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    sample::select,
};
use serde_json::{Map, Value};

use super::*;
use crate::fuzzing;

const FIELDS: [&str; 13] = [
    "segment",
    "ranges",
    "excludedIPs",
    "priority",
    "autoAssign",
    "avoidEnds",
    "drain",
    "quota",
    "retainFor",
    "announce",
    "loadBalancerClass",
    "namespaceSelector",
    "serviceSelector",
];

/// Addresses, ranges and CIDRs, among them some that are none. Networks stay small, because what
/// `avoidEnds` holds back is counted out.
fn entry() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => any::<(u8, u8)>().prop_map(|(net, host)| format!("10.0.{net}.{host}")),
        4 => (any::<u8>(), 14..34_u8).prop_map(|(net, prefix)| format!("10.{net}.0.9/{prefix}")),
        4 => any::<(u8, u8)>().prop_map(|(first, last)| format!("10.0.0.{first}-10.0.1.{last}")),
        2 => (0..130_u8).prop_map(|prefix| format!("fd00::5/{prefix}")),
        1 => "[0-9./:-]{0,20}",
        1 => "\\PC{0,12}",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        entry().prop_map(Value::from),
        vec(entry(), 0..5).prop_map(Value::from),
        btree_map("perNamespace|namespaces|matchLabels|keepalivedGroup", any::<i64>(), 0..3)
            .prop_map(|fields| Value::Object(fields.into_iter().map(field).collect())),
    ]
}

fn field<V: Into<Value>>((name, value): (String, V)) -> (String, Value) {
    (name, value.into())
}

/// What a Service says about sharing, in words that are often the same.
fn sharer() -> impl Strategy<Value = (ObjectMeta, ServiceSpec)> {
    let keys = keys::SHARING_KEYS.iter().flat_map(|source| [Some(source.key), source.with]);
    let keys: Vec<_> = keys.flatten().map(str::to_owned).collect();
    let text = prop_oneof![3 => "k|\\*|a|b|a, b|", 1 => "\\PC{0,300}"];
    let annotations = btree_map(select(keys), text, 0..4);
    let ports = vec((select(&["TCP", "UDP", ""][..]), 1..4_i32), 0..3);
    (annotations, "a|b", ports, select(&["Local", "Cluster", ""][..]), option::of("x|y")).prop_map(
        |(annotations, namespace, ports, policy, selector)| {
            let metadata = ObjectMeta {
                namespace: Some(namespace),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            };
            let ports = ports.into_iter().map(|(protocol, port)| ServicePort {
                protocol: (!protocol.is_empty()).then(|| protocol.to_owned()),
                port,
                ..ServicePort::default()
            });
            let spec = ServiceSpec {
                ports: Some(ports.collect()),
                external_traffic_policy: (!policy.is_empty()).then(|| policy.to_owned()),
                selector: selector.map(|value| [("app".to_owned(), value)].into()),
                ..ServiceSpec::default()
            };
            (metadata, spec)
        },
    )
}

proptest! {
    #[test]
    fn any_json_is_refused_or_becomes_a_pool_or_the_words_why_not(
        fields in btree_map(select(&FIELDS[..]).prop_map(str::to_owned), value(), 0..6)
    ) {
        fuzzing::ipgroup(Value::Object(fields.into_iter().collect::<Map<_, _>>()));
    }

    #[test]
    fn two_services_agree_to_share_or_neither_does(one in sharer(), other in sharer()) {
        fuzzing::sharing(&one, &other);
    }

    #[test]
    fn each_entry_that_cannot_be_read_is_named_and_all_others_count(
        segment in option::of(entry()),
        ranges in vec(entry(), 0..5),
        excluded in option::of(vec(entry(), 0..5)),
        avoid_ends: bool,
    ) {
        let spec = IPGroupSpec {
            segment,
            ranges,
            excluded_ips: excluded,
            avoid_ends: Some(avoid_ends),
            ..IPGroupSpec::default()
        };
        let block = |text: &String| text.parse::<AddrBlock>().ok();
        let main = |text: &String| block(text).filter(|block| block.is_cidr());
        let covering: Vec<_> = spec.segment.iter().filter_map(main).chain(spec.ranges.iter().filter_map(block)).collect();
        let excluded: Vec<_> = spec.excluded().iter().filter_map(block).collect();
        let segment = spec.segment.iter().filter(|text| main(text).is_none());
        let others = spec.ranges.iter().chain(spec.excluded()).filter(|text| block(text).is_none());
        let bad: Vec<_> = segment.chain(others).collect();
        let said = match pool(PoolName::new("IPGroup/wild"), &spec) {
            Ok(read) => {
                let set = |blocks: Vec<AddrBlock>| blocks.into_iter().map(AddrBlock::range).collect();
                prop_assert_eq!(read.pool.ranges(), &set(covering));
                prop_assert_eq!(read.pool.excluded(), &set(excluded));
                prop_assert_eq!(read.unreadable.is_empty(), bad.is_empty());
                read.unreadable
            }
            Err(problems) if problems[0].starts_with("avoidEnds: ") => return Ok(()),
            Err(problems) => {
                prop_assert!(covering.is_empty(), "{:?}", problems);
                problems
            }
        };
        let named = bad.iter().take(MOST_PROBLEMS);
        for text in named {
            let quoted = format!("{:?}", text.trim());
            prop_assert!(said.iter().any(|words| words.contains(&quoted)), "{:?}: {:?}", text, said);
        }
    }
}
