//! Virtual router ids: one for each instance, kept for as long as the instance exists.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    string::String,
    vec::Vec,
};
use core::ops::RangeInclusive;

/// Which ids may be given.
#[derive(Clone, Debug)]
pub struct Ids {
    /// From these.
    pub range: RangeInclusive<u8>,
    /// None of these: an instance that has one gets another.
    pub forbidden: BTreeSet<u8>,
    /// Not these either, which groups with a node in common have: an instance that has one keeps it, since a
    /// new id would interrupt it.
    pub elsewhere: BTreeSet<u8>,
    /// Those of them that an instance gives up as long as another id is left.
    pub yielded: BTreeSet<u8>,
    /// These only when no other id is left: groups without a node in common have them, and may be on the same
    /// network.
    pub distant: BTreeSet<u8>,
}

/// The ids of a group's instances.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// By instance name.
    pub ids: BTreeMap<String, u8>,
    /// The instances for which no id was left.
    pub without: Vec<String>,
}

/// Gives each wanted instance its id: the one it has, or else the lowest free one, in the order of names. Instances
/// that have none go before those that are to give theirs up.
pub fn assign(existing: &BTreeMap<String, u8>, wanted: &BTreeSet<String>, ids: &Ids) -> Assignment {
    let mut taken = BTreeSet::new();
    let mut kept = BTreeMap::new();
    for (name, id) in existing {
        let stays = *id != 0 && wanted.contains(name) && !ids.forbidden.contains(id);
        // The same id twice cannot come from us: the first name keeps it.
        if stays && taken.insert(*id) {
            kept.insert(name.clone(), *id);
        }
    }
    let is_free = |id: &u8| {
        *id != 0
            && !ids.forbidden.contains(id)
            && !ids.elsewhere.contains(id)
            && !taken.contains(id)
    };
    let free = ids.range.clone().filter(is_free).rev();
    let (mut free, near): (Vec<_>, Vec<_>) = free.partition(|id| ids.distant.contains(id));
    // The last one is given first.
    free.extend(near);
    let mut assignment = Assignment { ids: kept, without: Vec::new() };
    for name in wanted {
        if assignment.ids.contains_key(name) {
            continue;
        }
        match free.pop() {
            Some(id) => drop(assignment.ids.insert(name.clone(), id)),
            None => assignment.without.push(name.clone()),
        }
    }
    for id in assignment.ids.values_mut().filter(|id| ids.yielded.contains(id)) {
        *id = free.pop().unwrap_or(*id);
    }
    assignment
}

#[cfg(test)]
mod tests {
    use alloc::{format, string::ToString};

    use proptest::{collection::btree_set, prelude::*};

    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn map(entries: &[(&str, u8)]) -> BTreeMap<String, u8> {
        entries.iter().map(|(name, id)| ((*name).to_string(), *id)).collect()
    }

    fn from(range: RangeInclusive<u8>, forbidden: &[u8], elsewhere: &[u8]) -> Ids {
        let set = |ids: &[u8]| ids.iter().copied().collect();
        let (yielded, distant) = (BTreeSet::new(), BTreeSet::new());
        Ids { range, forbidden: set(forbidden), elsewhere: set(elsewhere), yielded, distant }
    }

    #[test]
    fn ids_of_distant_groups_are_given_last_and_yielded_ones_only_for_others() {
        let set = |ids: &[u8]| ids.iter().copied().collect::<BTreeSet<_>>();
        for (case, existing, wanted, range, expected) in [
            ("others first", map(&[]), names(&["a", "b"]), 1..=9, map(&[("a", 5), ("b", 6)])),
            (
                "then distant ones",
                map(&[]),
                names(&["a", "b", "c"]),
                1..=6,
                map(&[("a", 5), ("b", 6), ("c", 3)]),
            ),
            (
                "a yielded id moves, a distant one stays",
                map(&[("a", 1), ("b", 4)]),
                names(&["a", "b"]),
                1..=9,
                map(&[("a", 5), ("b", 4)]),
            ),
            (
                "newcomers go first, and without a free id nothing moves",
                map(&[("a", 1), ("b", 3), ("c", 4), ("d", 5)]),
                names(&["a", "b", "c", "d", "e"]),
                1..=6,
                map(&[("a", 1), ("b", 3), ("c", 4), ("d", 5), ("e", 6)]),
            ),
        ] {
            let ids =
                Ids { yielded: set(&[1]), distant: set(&[3, 4]), ..from(range, &[], &[1, 2]) };
            let found = assign(&existing, &wanted, &ids);
            assert_eq!((found.ids, found.without.len()), (expected, 0), "{case}");
        }
    }

    #[test]
    fn ids_are_kept_and_the_lowest_free_ones_are_given_in_order() {
        let all = || from(1..=255, &[], &[]);
        for (case, existing, wanted, ids, expected) in [
            (
                "three from the start",
                map(&[]),
                names(&["ns/b", "ns/a", "ns/c"]),
                all(),
                map(&[("ns/a", 1), ("ns/b", 2), ("ns/c", 3)]),
            ),
            (
                "a gap is filled",
                map(&[("ns/a", 1), ("ns/b", 2), ("ns/c", 3)]),
                names(&["ns/a", "ns/c", "ns/d"]),
                all(),
                map(&[("ns/a", 1), ("ns/c", 3), ("ns/d", 2)]),
            ),
            (
                "an id found is kept",
                map(&[("ns/a", 77)]),
                names(&["ns/a", "ns/b"]),
                all(),
                map(&[("ns/a", 77), ("ns/b", 1)]),
            ),
            (
                "forbidden ids are skipped",
                map(&[]),
                names(&["ns/a"]),
                from(1..=255, &[1, 2], &[]),
                map(&[("ns/a", 3)]),
            ),
            (
                "an id forbidden later moves, others stay",
                map(&[("ns/a", 3), ("ns/b", 4)]),
                names(&["ns/a", "ns/b"]),
                from(1..=255, &[1, 2, 3], &[]),
                map(&[("ns/a", 5), ("ns/b", 4)]),
            ),
            (
                "ids of other groups are skipped and never taken away",
                map(&[("ns/a", 1)]),
                names(&["ns/a", "ns/b"]),
                from(1..=255, &[], &[1, 2]),
                map(&[("ns/a", 1), ("ns/b", 3)]),
            ),
            (
                "0 and an id given twice are replaced",
                map(&[("ns/a", 0), ("ns/b", 7), ("ns/c", 7)]),
                names(&["ns/a", "ns/b", "ns/c"]),
                all(),
                map(&[("ns/a", 1), ("ns/b", 7), ("ns/c", 2)]),
            ),
            (
                "an id outside the range is kept",
                map(&[("ns/a", 7)]),
                names(&["ns/a", "ns/b"]),
                from(100..=101, &[], &[]),
                map(&[("ns/a", 7), ("ns/b", 100)]),
            ),
        ] {
            let found = assign(&existing, &wanted, &ids);
            assert_eq!((found.ids, found.without.len()), (expected, 0), "{case}");
        }
    }

    #[test]
    fn instances_beyond_the_last_id_are_named_and_the_others_have_theirs() {
        let wanted: BTreeSet<_> = (0..257).map(|number| format!("ns/{number:03}")).collect();
        let found = assign(&map(&[]), &wanted, &from(1..=255, &[], &[]));
        assert_eq!(found.without, ["ns/255", "ns/256"]);
        assert_eq!(found.ids.len(), 255);
    }

    proptest! {
        #[test]
        fn an_assignment_is_stable_distinct_and_allowed(
            existing in proptest::collection::btree_map("[a-f]", 0..8_u8, 0..6),
            wanted in btree_set("[a-f]", 0..6),
            forbidden in btree_set(0..8_u8, 0..4),
            elsewhere in btree_set(0..8_u8, 0..4),
            yielded in btree_set(0..8_u8, 0..2),
            distant in btree_set(0..8_u8, 0..4),
            range in (0..8_u8, 0..8_u8),
        ) {
            let yielded = elsewhere.intersection(&yielded).copied().collect();
            let range = range.0..=range.1;
            let ids = Ids { range, forbidden: forbidden.clone(), elsewhere, yielded, distant };
            let found = assign(&existing, &wanted, &ids);
            let distinct: BTreeSet<_> = found.ids.values().copied().collect();
            prop_assert_eq!(distinct.len(), found.ids.len());
            prop_assert!(distinct.is_disjoint(&forbidden) && !distinct.contains(&0));
            prop_assert_eq!(found.ids.len() + found.without.len(), wanted.len());
            prop_assert!(found.ids.keys().all(|name| wanted.contains(name)));
            prop_assert_eq!(&assign(&found.ids, &wanted, &ids), &found);
        }
    }
}
