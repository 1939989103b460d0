//! An index from keys to values, compact for keys with one value.

use std::{
    borrow::Borrow,
    collections::{
        BTreeMap, BTreeSet,
        btree_map::Entry::{Occupied, Vacant},
    },
};

/// Values by key, in order. A key without values is not in it.
#[derive(Debug)]
pub(crate) struct Index<K, V>(BTreeMap<K, Values<V>>);

/// A set would take as much memory for one value as for eleven, and there is one for every Service.
#[derive(Debug)]
enum Values<V> {
    One(V),
    More(BTreeSet<V>),
}

impl<V: Ord> Values<V> {
    fn iter(&self) -> impl DoubleEndedIterator<Item = &V> {
        let (one, more) = match self {
            Self::One(value) => (Some(value), None),
            Self::More(values) => (None, Some(values)),
        };
        one.into_iter().chain(more.into_iter().flatten())
    }

    fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::More(values) => values.len(),
        }
    }

    fn contains(&self, value: &V) -> bool {
        match self {
            Self::One(only) => only == value,
            Self::More(values) => values.contains(value),
        }
    }

    fn insert(&mut self, value: V) -> bool {
        if self.contains(&value) {
            return false;
        }
        let values = match std::mem::replace(self, Self::More(BTreeSet::new())) {
            Self::One(only) => BTreeSet::from([only, value]),
            Self::More(mut values) => {
                values.insert(value);
                values
            }
        };
        *self = Self::More(values);
        true
    }
}

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord, V: Ord> Index<K, V> {
    /// Adds a value; returns whether it is new.
    pub(crate) fn insert(&mut self, key: K, value: V) -> bool {
        match self.0.entry(key) {
            Vacant(vacant) => {
                vacant.insert(Values::One(value));
                true
            }
            Occupied(mut occupied) => occupied.get_mut().insert(value),
        }
    }

    /// Removes a value; returns whether it was there.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q, value: &V) -> bool
    where
        K: Borrow<Q>,
    {
        let Some(values) = self.0.get_mut(key) else { return false };
        if !values.contains(value) {
            return false;
        }
        if let Values::More(more) = values {
            more.remove(value);
            if more.len() > 1 {
                return true;
            }
            if let Some(last) = more.pop_first() {
                *values = Values::One(last);
                return true;
            }
        }
        self.0.remove(key);
        true
    }

    /// Removes a key with all its values.
    pub(crate) fn remove_key<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.0.remove(key);
    }

    /// The values of a key.
    pub(crate) fn of<'a, Q: Ord + ?Sized>(
        &'a self,
        key: &Q,
    ) -> impl DoubleEndedIterator<Item = &'a V> + use<'a, Q, K, V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key).into_iter().flat_map(Values::iter)
    }

    /// How many values a key has.
    pub(crate) fn count<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.0.get(key).map_or(0, Values::len)
    }

    /// Whether a key has any values.
    pub(crate) fn has<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.contains_key(key)
    }

    /// Whether a key has this value.
    pub(crate) fn contains<Q: Ord + ?Sized>(&self, key: &Q, value: &V) -> bool
    where
        K: Borrow<Q>,
    {
        self.0.get(key).is_some_and(|values| values.contains(value))
    }

    /// The keys that have values.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_index_is_a_map_of_sets_without_the_empty_ones(
            acts in proptest::collection::vec((any::<bool>(), 0..3_u8, 0..4_u8), 0..60),
        ) {
            let (mut index, mut sets) = (Index::default(), BTreeMap::<u8, BTreeSet<u8>>::new());
            for (adds, key, value) in acts {
                if adds {
                    let new = sets.entry(key).or_default().insert(value);
                    prop_assert_eq!(index.insert(key, value), new);
                } else {
                    let was_there = sets.get_mut(&key).is_some_and(|set| set.remove(&value));
                    sets.retain(|_, set| !set.is_empty());
                    prop_assert_eq!(index.remove(&key, &value), was_there);
                }
                prop_assert_eq!(index.keys().collect::<Vec<_>>(), sets.keys().collect::<Vec<_>>());
                for key in 0..3 {
                    let set = sets.get(&key).cloned().unwrap_or_default();
                    prop_assert_eq!(index.of(&key).copied().collect::<BTreeSet<_>>(), set.clone());
                    prop_assert!(index.of(&key).is_sorted());
                    prop_assert!(index.of(&key).rev().is_sorted_by(|a, b| a > b));
                    prop_assert_eq!(index.count(&key), set.len());
                    prop_assert_eq!(index.has(&key), !set.is_empty());
                    for value in 0..4 {
                        prop_assert_eq!(index.contains(&key, &value), set.contains(&value));
                    }
                    let one = matches!(index.0.get(&key), Some(Values::One(_)));
                    prop_assert_eq!(one, set.len() == 1, "one value takes no set");
                }
            }
        }
    }
}
