//! The watched objects of one kind, with our own writes on top.
//!
//! An entry is always the newest version known from a watch, a list or the answer to one of our own
//! calls. Older news is dropped, so an echo that arrives late cannot undo newer knowledge.

use std::collections::BTreeMap;

use crate::object::Version;

/// A change of one watched object.
#[derive(Debug)]
pub(crate) enum Watched<K, V> {
    ListBegins,
    ListEnds,
    /// The object exists at this version.
    Present(K, Version, V),
    /// The object is gone, or no longer of the sort we keep.
    Gone(K, Version),
    /// The kind is not installed, so there are no objects.
    Unserved,
}

impl<K, V> Watched<K, V> {
    /// The same news with another view of the object.
    pub(crate) fn map<W>(self, view: impl FnOnce(V) -> W) -> Watched<K, W> {
        self.filter_map(|value| Some(view(value)))
    }

    /// The same, where an object without such a view is not of the sort we keep.
    pub(crate) fn filter_map<W>(self, view: impl FnOnce(V) -> Option<W>) -> Watched<K, W> {
        match self {
            Self::ListBegins => Watched::ListBegins,
            Self::ListEnds => Watched::ListEnds,
            Self::Present(key, version, value) => match view(value) {
                Some(value) => Watched::Present(key, version, value),
                None => Watched::Gone(key, version),
            },
            Self::Gone(key, version) => Watched::Gone(key, version),
            Self::Unserved => Watched::Unserved,
        }
    }
}

/// The source of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Watch,
    /// The answer to our own write or live read, which the watch will echo.
    Own,
}

#[derive(Debug)]
struct Entry<V> {
    version: Version,
    /// Boxed, because a tree keeps room for almost twice as many entries as it has.
    value: Box<V>,
    /// The list or watch period in which it was last confirmed.
    period: u64,
    source: Source,
}

/// The record of a removed object: news up to its version is stale.
#[derive(Debug)]
struct Tombstone {
    floor: Version,
    period: u64,
    until: Until,
}

/// How long stale news can arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// We deleted it, and the watch has not shown that yet.
    WatchCaughtUp,
    /// A call about it is in flight.
    CallEnded,
}

/// The newest known objects of one kind.
#[derive(Debug)]
pub(crate) struct Store<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    tombstones: BTreeMap<K, Tombstone>,
    period: u64,
    listed: bool,
}

impl<K, V> Default for Store<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), tombstones: BTreeMap::new(), period: 0, listed: false }
    }
}

/// The result of putting a version into the store.
#[derive(Debug, PartialEq)]
pub(crate) enum Put<V> {
    /// It is not newer than the known version.
    Stale,
    /// It is now the newest, and replaced this.
    New(Option<V>),
}

impl<V> Put<V> {
    /// The consequence of a new version, which replaced this value.
    pub(crate) fn then<C>(self, consequence: impl FnOnce(Option<V>) -> C) -> Option<C> {
        match self {
            Self::Stale => None,
            Self::New(old) => Some(consequence(old)),
        }
    }
}

/// A change of a store.
#[derive(Debug, PartialEq)]
pub(crate) enum Change<K, V> {
    /// The object has a newer version, which replaced this one.
    Put(K, Option<V>),
    /// The object is gone, or no longer of the sort we keep. This is the last version known.
    Left(K, V),
    /// We wrote the object since the list began, and the list lacks it: it was created after the list,
    /// or deleted meanwhile. Only a live read can tell.
    Unsure(K),
    /// A list is complete.
    Listed,
}

impl<K: Ord + Clone, V> Store<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &*entry.value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &*entry.value)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    /// Whether a list has been completed at least once.
    pub(crate) fn listed(&self) -> bool {
        self.listed
    }

    /// Takes in a version of an object.
    pub(crate) fn put(&mut self, key: K, version: Version, value: V, source: Source) -> Put<V> {
        let period = self.period;
        if let Some(entry) = self.entries.get_mut(&key) {
            if version <= entry.version {
                entry.period = period;
                if source == Source::Watch && version == entry.version {
                    entry.source = Source::Watch;
                }
                return Put::Stale;
            }
            let old = std::mem::replace(&mut *entry.value, value);
            (entry.version, entry.period, entry.source) = (version, period, source);
            return Put::New(Some(old));
        }
        if self.tombstones.get(&key).is_some_and(|tombstone| version <= tombstone.floor) {
            return Put::Stale;
        }
        self.tombstones.remove(&key);
        self.entries.insert(key, Entry { version, value: Box::new(value), period, source });
        Put::New(None)
    }

    /// Takes in a deletion that the watch has shown, or that the object is no longer of the sort we
    /// keep. A newer known version stays.
    ///
    /// With `pinned`, a call about the object is in flight whose answer may be older than this: the
    /// version is remembered until [`Store::unpin`].
    pub(crate) fn remove(&mut self, key: &K, version: Version, pinned: bool) -> Option<V> {
        let known = self.entries.get(key).map(|entry| entry.version);
        if known.is_some_and(|known| version < known) {
            return None;
        }
        self.tombstones.remove(key);
        if pinned {
            self.set_tombstone(key, version, Until::CallEnded);
        }
        self.entries.remove(key).map(|entry| *entry.value)
    }

    /// Takes in our own deletion of exactly this version. Stale news of it is dropped until the watch
    /// has shown the deletion.
    pub(crate) fn deleted(&mut self, key: &K, version: Version) -> Option<V> {
        if self.entries.get(key).is_some_and(|entry| entry.version == version) {
            self.set_tombstone(key, version, Until::WatchCaughtUp);
            return self.entries.remove(key).map(|entry| *entry.value);
        }
        // The watch was faster: it has shown the deletion, or a later state.
        self.tombstones.remove(key);
        None
    }

    /// Takes in the answer to our own call that shows that the object, at this version, is not of the
    /// sort we keep. Stale news of it is dropped until the watch has shown the same.
    pub(crate) fn left(&mut self, key: &K, version: Version) -> Option<V> {
        if self.entries.get(key).is_none_or(|entry| version <= entry.version) {
            return None;
        }
        self.set_tombstone(key, version, Until::WatchCaughtUp);
        self.entries.remove(key).map(|entry| *entry.value)
    }

    /// No call about the object is in flight any more, so no older answer can arrive.
    pub(crate) fn unpin(&mut self, key: &K) {
        if self.tombstones.get(key).is_some_and(|tombstone| tombstone.until == Until::CallEnded) {
            self.tombstones.remove(key);
        }
    }

    fn set_tombstone(&mut self, key: &K, floor: Version, until: Until) {
        self.tombstones.insert(key.clone(), Tombstone { floor, period: self.period, until });
    }

    /// Takes in an event of a watch, and returns the changes.
    ///
    /// `is_in_flight` says whether a call about an object is in flight, see [`Store::remove`].
    pub(crate) fn observe(
        &mut self,
        news: Watched<K, V>,
        is_in_flight: impl FnOnce(&K) -> bool,
    ) -> Vec<Change<K, V>> {
        match news {
            Watched::ListBegins => {
                self.begin_list();
                Vec::new()
            }
            Watched::ListEnds => self.end_list(),
            Watched::Unserved => {
                self.begin_list();
                self.end_list()
            }
            Watched::Present(key, version, value) => {
                match self.put(key.clone(), version, value, Source::Watch) {
                    Put::Stale => Vec::new(),
                    Put::New(old) => vec![Change::Put(key, old)],
                }
            }
            Watched::Gone(key, version) => {
                let pinned = is_in_flight(&key);
                let old = self.remove(&key, version, pinned);
                old.map(|old| Change::Left(key, old)).into_iter().collect()
            }
        }
    }

    /// The same for a kind that we make no calls about.
    pub(crate) fn observe_only(&mut self, news: Watched<K, V>) -> Vec<Change<K, V>> {
        self.observe(news, |_| false)
    }

    /// A list begins: known objects that it lacks are gone.
    fn begin_list(&mut self) {
        self.period = self.period.saturating_add(1);
    }

    /// The list is complete.
    fn end_list(&mut self) -> Vec<Change<K, V>> {
        self.listed = true;
        let period = self.period;
        self.tombstones.retain(|_, tombstone| tombstone.period == period);
        let mut unsure = Vec::new();
        let mut gone = Vec::new();
        for (key, entry) in &self.entries {
            if entry.period < period {
                gone.push(key.clone());
            } else if entry.source == Source::Own {
                unsure.push(key.clone());
            }
        }
        let left = gone.into_iter().filter_map(|key| {
            let entry = self.entries.remove(&key)?;
            Some(Change::Left(key, *entry.value))
        });
        let mut changes: Vec<_> = left.collect();
        changes.extend(unsure.into_iter().map(Change::Unsure));
        changes.push(Change::Listed);
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Words = Store<&'static str, &'static str>;

    fn v(version: u64) -> Version {
        Version(version)
    }

    #[test]
    fn an_object_without_the_view_that_is_kept_counts_as_gone() {
        let kept = |word: &'static str| Some(word.len()).filter(|length| *length > 1);
        let seen = |watched: Watched<&'static str, &'static str>| {
            format!("{:?}", watched.filter_map(kept))
        };
        assert_eq!(seen(Watched::Present("a", v(3), "long")), "Present(\"a\", Version(3), 4)");
        assert_eq!(seen(Watched::Present("a", v(3), "s")), "Gone(\"a\", Version(3))");
        assert_eq!(seen(Watched::Gone("a", v(3))), "Gone(\"a\", Version(3))");
        assert_eq!(seen(Watched::ListBegins), "ListBegins");
        assert_eq!(seen(Watched::ListEnds), "ListEnds");
        assert_eq!(seen(Watched::Unserved), "Unserved");
    }

    #[test]
    fn the_newest_version_wins_from_a_watch_and_from_an_answer() {
        let mut store = Words::default();
        assert_eq!(store.put("a", v(5), "written", Source::Own), Put::New(None));
        assert_eq!(store.put("a", v(4), "late", Source::Watch), Put::Stale);
        assert_eq!(store.put("a", v(5), "echo", Source::Watch), Put::Stale);
        assert_eq!(store.get(&"a"), Some(&"written"));
        assert_eq!(store.put("a", v(6), "newer", Source::Watch), Put::New(Some("written")));
    }

    #[test]
    fn a_late_deletion_does_not_touch_a_recreated_object() {
        let mut store = Words::default();
        store.put("a", v(3), "first", Source::Watch);
        assert_eq!(store.deleted(&"a", v(3)), Some("first"));
        assert_eq!(store.put("a", v(3), "late news of the first", Source::Watch), Put::Stale);
        assert_eq!(store.put("a", v(9), "second", Source::Own), Put::New(None));
        assert_eq!(store.remove(&"a", v(4), false), None, "deletion of the first");
        assert_eq!(store.get(&"a"), Some(&"second"));
        assert_eq!(store.remove(&"a", v(10), false), Some("second"));
    }

    #[test]
    fn the_answer_to_a_call_does_not_bring_back_an_object_that_the_watch_removed() {
        let mut store = Words::default();
        store.put("a", v(3), "first", Source::Watch);
        store.remove(&"a", v(7), true);
        assert_eq!(store.put("a", v(5), "answer", Source::Own), Put::Stale);
        store.unpin(&"a");
        assert!(store.tombstones.is_empty());
    }

    #[test]
    fn our_deletion_and_its_echo_leave_nothing_behind() {
        let mut store = Words::default();
        store.put("a", v(3), "first", Source::Watch);
        store.deleted(&"a", v(3));
        store.unpin(&"a");
        assert_eq!(
            store.put("a", v(2), "late", Source::Watch),
            Put::Stale,
            "the watch is still behind"
        );
        store.remove(&"a", v(4), false);
        assert!(store.tombstones.is_empty());

        store.put("b", v(3), "first", Source::Watch);
        store.remove(&"b", v(4), true); // the echo first, the answer after it
        store.deleted(&"b", v(3));
        assert!(store.tombstones.is_empty());
    }

    #[test]
    fn a_list_tells_which_objects_vanished_and_doubts_only_our_own_late_writes() {
        let mut store = Words::default();
        for key in ["kept", "gone", "written before"] {
            store.put(key, v(1), key, Source::Watch);
        }
        store.put("written before", v(2), "own", Source::Own);
        assert_eq!(store.observe_only(Watched::ListBegins), []);
        store.put("written during", v(9), "own", Source::Own);
        assert_eq!(store.observe_only(Watched::Present("kept", v(1), "kept")), []);
        assert!(!store.listed());
        assert_eq!(
            store.observe_only(Watched::ListEnds),
            [
                Change::Left("gone", "gone"),
                Change::Left("written before", "own"),
                Change::Unsure("written during"),
                Change::Listed,
            ]
        );
        assert!(store.listed());
    }

    #[test]
    fn news_changes_something_only_if_it_is_newer_than_the_known_version() {
        let mut store = Words::default();
        for (case, news, changes) in [
            ("new", Watched::Present("a", v(2), "first"), vec![Change::Put("a", None)]),
            ("known", Watched::Present("a", v(2), "first"), vec![]),
            ("newer", Watched::Present("a", v(4), "second"), vec![Change::Put("a", Some("first"))]),
            ("an old deletion", Watched::Gone("a", v(3)), vec![]),
            ("a deletion", Watched::Gone("a", v(5)), vec![Change::Left("a", "second")]),
            ("a deletion of what is not there", Watched::Gone("a", v(6)), vec![]),
        ] {
            assert_eq!(store.observe_only(news), changes, "{case}");
        }
        store.put("b", v(1), "first", Source::Watch);
        assert_eq!(store.observe(Watched::Gone("b", v(3)), |_| true), [Change::Left("b", "first")]);
        assert_eq!(store.put("b", v(2), "an old answer", Source::Own), Put::Stale);
    }
}
