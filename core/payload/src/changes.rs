//! Changes of one message of text: places in it, and the texts that replace what stands there.
//!
//! All texts share one memory, so a change allocates nothing of its own. A message has few changes;
//! the caller limits how many may pass.

use alloc::vec::Vec;
use core::ops::Range;

/// Changes for which a message has memory from the start, and bytes of their texts.
const USUAL: (usize, usize) = (16, 256);

/// Changes of one message.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Places in the message, and places of the texts.
    list: Vec<(Range<usize>, Range<usize>)>,
    texts: Vec<u8>,
}

impl Changes {
    /// No changes.
    pub(crate) fn new() -> Self {
        Self { list: Vec::with_capacity(USUAL.0), texts: Vec::with_capacity(USUAL.1) }
    }

    /// Adds a change of a place to the text that `write` appends.
    pub(crate) fn add(&mut self, place: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.texts.len();
        write(&mut self.texts);
        self.list.push((place, start..self.texts.len()));
    }

    /// Number of changes.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes that the changes behind the first `count` add, and bytes that they remove.
    pub(crate) fn sums(&self, count: usize) -> (usize, usize) {
        let sum = |(added, removed), (place, text): &(Range<usize>, Range<usize>)| {
            (added + text.len(), removed + place.len())
        };
        self.list[count..].iter().fold((0, 0), sum)
    }

    /// Puts the changes in the order of their places. Of several changes that begin at one place,
    /// the first stays. Changes to what stands in the message already go.
    pub(crate) fn put_in_order(&mut self, message: &[u8]) {
        self.list.sort_by_key(|(place, _)| place.start);
        self.list.dedup_by_key(|(place, _)| place.start);
        let texts = &self.texts;
        self.list.retain(|(place, text)| message[place.clone()] != texts[text.clone()]);
    }

    /// Joins changes in order that are at most `gap` bytes apart.
    pub(crate) fn join(&mut self, gap: usize, message: &[u8]) {
        let mut joined = Self::new();
        for (place, text) in self.each() {
            let last = joined.list.last_mut().filter(|(before, _)| {
                place.start.checked_sub(before.end).is_some_and(|between| between <= gap)
            });
            let Some((before, all)) = last else {
                joined.add(place, |to| to.extend_from_slice(text));
                continue;
            };
            joined.texts.extend_from_slice(&message[before.end..place.start]);
            joined.texts.extend_from_slice(text);
            (before.end, all.end) = (place.end, joined.texts.len());
        }
        *self = joined;
    }

    /// The place of each change, and its text.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Range<usize>, &[u8])> {
        self.list.iter().map(|(place, text)| (place.clone(), &self.texts[text.clone()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(changes: &Changes) -> Vec<(Range<usize>, &[u8])> {
        changes.each().collect()
    }

    #[test]
    fn changes_come_in_order_and_once() {
        let mut changes = Changes::new();
        for (place, text) in [(7..8, "seven"), (2..4, "two"), (2..5, "again"), (5..6, "5")] {
            changes.add(place, |to| to.extend_from_slice(text.as_bytes()));
        }
        assert_eq!((changes.len(), changes.sums(1)), (4, (9, 6)));
        changes.put_in_order(b"0123456789");
        assert_eq!(all(&changes), [(2..4, &b"two"[..]), (7..8, b"seven")]);
    }

    #[test]
    fn changes_that_are_near_become_one() {
        let mut changes = Changes::new();
        for place in [0..1, 3..4, 7..8, 8..8] {
            changes.add(place, |to| to.extend_from_slice(b"ab"));
        }
        changes.join(2, b"0123456789");
        assert_eq!(all(&changes), [(0..4, &b"ab12ab"[..]), (7..8, b"abab")]);
    }
}
