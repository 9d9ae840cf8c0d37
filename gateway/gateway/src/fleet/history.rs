//! Owners of the slices since the start, as far as this node knows: for the log of events, and for
//! questions about an earlier time.

use super::status::{SliceChange, SliceOwner};
use std::collections::VecDeque;

/// Most changes that are kept; the oldest go first.
const MOST: usize = 256;

/// Changes of owners.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Changes that nobody has asked for yet.
    new: Vec<SliceChange>,
    all: VecDeque<SliceChange>,
}

impl History {
    /// Notes a change, if there is one.
    pub(super) fn note(&mut self, change: Option<SliceChange>) {
        let Some(change) = change else { return };
        self.new.push(change);
        if self.all.len() >= MOST {
            self.all.pop_front();
        }
        self.all.push_back(change);
    }

    /// The changes since the last call.
    pub(super) fn take_new(&mut self) -> std::vec::Drain<'_, SliceChange> {
        self.new.drain(..)
    }

    /// All that are kept, the oldest first, with the names of the owners.
    pub(super) fn list(&self, name: impl Fn(natgate_pair::Node) -> String) -> Vec<SliceOwner> {
        let named = |change: &SliceChange| SliceOwner {
            slice: change.slice.into(),
            since: change.time,
            epoch: change.epoch,
            owner: name(change.owner),
            continued: change.continued,
        };
        self.all.iter().map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::Timestamp;
    use natgate_pair::Node;

    #[test]
    fn the_latest_changes_are_kept_and_each_is_new_once() {
        let mut history = History::default();
        for number in 0..MOST as u64 + 3 {
            let (time, epoch) = (Timestamp(number), number);
            let (slice, owner, continued) = (1, Node::B, None);
            history.note(Some(SliceChange { time, slice, epoch, owner, continued }));
        }
        assert_eq!(history.take_new().count(), MOST + 3);
        assert_eq!(history.take_new().count(), 0);
        let all = history.list(|node| format!("{node:?}"));
        assert_eq!((all.len(), all[0].epoch, all[0].since), (MOST, 3, Timestamp(3)));
        assert!(all.iter().all(|one| one.owner == "B" && one.slice == 1));
    }
}
