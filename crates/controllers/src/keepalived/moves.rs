//! What a group says in events when addresses go from one node to another.

use std::collections::BTreeMap;

use landfall_api::keepalived_group::AnnouncedAddress;

/// How many addresses an event names.
const MOST_NAMED: usize = 3;
/// How many events there are for one change of the status.
const MOST_EVENTS: usize = 8;

/// What happened between two states of a group, one text for each pair of nodes. Addresses that were not announced
/// before, or no longer are, have not moved.
pub(super) fn moves(before: &[AnnouncedAddress], after: &[AnnouncedAddress]) -> Vec<String> {
    let before: BTreeMap<_, _> =
        before.iter().map(|entry| (entry.address.as_str(), entry.node.as_deref())).collect();
    let mut moved: BTreeMap<(Option<&str>, Option<&str>), Vec<&str>> = BTreeMap::new();
    for entry in after {
        let now = entry.node.as_deref();
        if let Some(old) = before.get(entry.address.as_str()).filter(|old| **old != now) {
            moved.entry((*old, now)).or_default().push(&entry.address);
        }
    }
    let texts = moved.into_iter().map(|((old, now), addresses)| {
        let named = addresses.iter().take(MOST_NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = addresses.len().saturating_sub(MOST_NAMED);
        let named = if more > 0 { format!("{named} and {more} more") } else { named };
        match (old, now) {
            (Some(old), Some(now)) => format!("{now} holds {named}, after {old}"),
            (None, Some(now)) => format!("{now} holds {named}"),
            (Some(old), None) => format!("no node holds {named}, after {old}"),
            (None, None) => String::new(),
        }
    });
    texts.filter(|text| !text.is_empty()).take(MOST_EVENTS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry((address, node): &(&str, Option<&str>)) -> AnnouncedAddress {
        AnnouncedAddress {
            address: (*address).to_owned(),
            node: node.map(str::to_owned),
            ..AnnouncedAddress::default()
        }
    }

    #[test]
    fn each_pair_of_nodes_is_one_text() {
        let before = [
            ("a", Some("n1")),
            ("b", Some("n1")),
            ("c", Some("n1")),
            ("d", Some("n1")),
            ("e", None),
            ("f", Some("n2")),
            ("g", Some("n2")),
            ("gone", Some("n1")),
        ];
        let after = [
            ("a", Some("n2")),
            ("b", Some("n2")),
            ("c", Some("n2")),
            ("d", Some("n2")),
            ("e", Some("n3")),
            ("f", None),
            ("g", Some("n2")),
            ("new", Some("n1")),
        ];
        let all = |list: &[(&str, Option<&str>)]| list.iter().map(entry).collect::<Vec<_>>();
        assert_eq!(
            moves(&all(&before), &all(&after)),
            ["n3 holds e", "n2 holds a, b, c and 1 more, after n1", "no node holds f, after n2",]
        );
        assert_eq!(moves(&all(&after), &all(&after)), [""; 0]);
    }
}
