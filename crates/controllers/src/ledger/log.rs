//! The changes of the ledger, in order, until every reader has taken them in.

use std::{collections::VecDeque, sync::Arc};

/// A reader of a [`Log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader(usize);

/// Changes that some reader has not taken in yet. Without readers nothing is kept.
#[derive(Debug)]
pub(super) struct Log<C> {
    changes: VecDeque<Arc<C>>,
    /// How many changes came before the first that is kept.
    before: usize,
    /// How many changes each reader has taken in.
    read: Vec<usize>,
}

impl<C> Default for Log<C> {
    fn default() -> Self {
        Self { changes: VecDeque::new(), before: 0, read: Vec::new() }
    }
}

impl<C> Log<C> {
    /// Adds a reader, which gets all changes from now on.
    pub(super) fn reader(&mut self) -> Reader {
        self.read.push(self.before.saturating_add(self.changes.len()));
        Reader(self.read.len().saturating_sub(1))
    }

    pub(super) fn push(&mut self, change: C) {
        if !self.read.is_empty() {
            self.changes.push_back(Arc::new(change));
        }
    }

    /// The changes since the last call for this reader.
    pub(super) fn take(&mut self, reader: Reader) -> Vec<Arc<C>> {
        let end = self.before.saturating_add(self.changes.len());
        let Some(read) = self.read.get_mut(reader.0) else { return Vec::new() };
        let known = std::mem::replace(read, end).saturating_sub(self.before);
        let new = self.changes.iter().skip(known).cloned().collect();
        let read_by_all = self.read.iter().min().copied().unwrap_or(end);
        while self.before < read_by_all {
            self.changes.pop_front();
            self.before = self.before.saturating_add(1);
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(log: &mut Log<u8>, reader: Reader) -> Vec<u8> {
        log.take(reader).iter().map(|change| **change).collect()
    }

    #[test]
    fn every_reader_gets_every_change_once_and_nothing_is_kept_longer() {
        let mut log = Log::default();
        log.push(0);
        let first = log.reader();
        log.push(1);
        let second = log.reader();
        log.push(2);
        assert_eq!(taken(&mut log, first), [1, 2]);
        log.push(3);
        assert_eq!(log.changes.len(), 2, "the second reader has not read them");
        assert_eq!(taken(&mut log, second), [2, 3]);
        assert_eq!(taken(&mut log, second), [0_u8; 0]);
        assert_eq!(taken(&mut log, first), [3]);
        assert!(log.changes.is_empty());
    }
}
