//! Edits of one direction: the map from the sender's sequence numbers to the receiver's, and back.
//!
//! The map is a sum of all old changes, and a list of edits that the receiver has not acknowledged.
//! Byte `i` of an edit is byte `i` of its replacement, or the replacement's end if the replacement
//! is shorter. The last byte of an edit carries what a longer replacement has more. So the map
//! never decreases, and the end of one segment is the start of the next, wherever the cut is.

use super::sequence::distance;
use crate::saved::{Saved, restore_bytes, save_bytes};
use alloc::vec::Vec;
use core::ops::Range;

/// Numbers of edits, and bytes of their replacements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) edits: usize,
    pub(crate) bytes: usize,
}

impl Amount {
    /// Most edits of one message, and of a direction without further room.
    pub(crate) const SMALL: Self = Self { edits: 64, bytes: 4096 };

    /// Most edits of a direction with further room: those of some hundred messages of SIP, which
    /// is what the largest window without scaling holds.
    pub(crate) const LARGE: Self = Self { edits: 1024, bytes: 24 << 10 };

    /// True if both amounts together are within a limit.
    pub(crate) fn fits(self, beside: Self, limit: Self) -> bool {
        self.edits + beside.edits <= limit.edits && self.bytes + beside.bytes <= limit.bytes
    }
}

/// One edit: bytes of the stream, and the place of their replacement.
#[derive(Clone, Copy, Debug)]
struct Edit {
    /// Sequence number of the first replaced byte.
    start: u32,
    /// Number of replaced bytes, at least 1.
    len: u16,
    /// Offset of the replacement in the texts.
    text: u16,
    /// Length of the replacement, bytes.
    text_len: u16,
}

impl Edit {
    fn end(&self) -> u32 {
        self.start.wrapping_add(u32::from(self.len))
    }

    /// The change of all later numbers.
    fn change(&self) -> u32 {
        u32::from(self.text_len).wrapping_sub(u32::from(self.len))
    }

    /// Bytes of the replacement before a sender's number that is in the edit, or at its end.
    fn before(&self, at: u32) -> usize {
        let offset = distance(at, self.start).cast_unsigned();
        let is_end = offset >= u32::from(self.len);
        if is_end { self.text_len.into() } else { offset.min(self.text_len.into()) as usize }
    }
}

/// Edits that the receiver has not acknowledged, in order.
#[derive(Debug)]
pub(crate) struct Edits {
    list: Vec<Edit>,
    texts: Vec<u8>,
    limit: Amount,
}

impl Edits {
    /// Bytes of memory of one edit without its text.
    pub(crate) const EACH: usize = size_of::<Edit>();

    /// No edits, with room for an amount.
    pub(crate) fn new(limit: Amount) -> Self {
        let Amount { edits, bytes } = limit;
        Self { list: Vec::with_capacity(edits), texts: Vec::with_capacity(bytes), limit }
    }

    /// The amount that there is room for.
    pub(crate) fn limit(&self) -> Amount {
        self.limit
    }

    /// The edits that are there.
    pub(crate) fn amount(&self) -> Amount {
        Amount { edits: self.list.len(), bytes: self.texts.len() }
    }

    /// Changes the amount that there is room for. What is there fits.
    pub(crate) fn set_limit(&mut self, limit: Amount) {
        let Amount { edits, bytes } = limit;
        self.limit = limit;
        self.list.reserve_exact(edits.saturating_sub(self.list.len()));
        self.texts.reserve_exact(bytes.saturating_sub(self.texts.len()));
        self.list.shrink_to(edits);
        self.texts.shrink_to(bytes);
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.texts.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// True if there is room for a number of edits with this length of their texts, bytes.
    pub(crate) fn has_room(&self, edits: usize, bytes: usize) -> bool {
        self.amount().fits(Amount { edits, bytes }, self.limit)
    }

    /// Adds an edit behind the others. False: there is no room.
    pub(crate) fn push(&mut self, start: u32, len: usize, text: &[u8]) -> bool {
        let fits = self.has_room(1, text.len());
        let (true, Ok(len @ 1..)) = (fits, u16::try_from(len)) else { return false };
        let at = self.texts.len() as u16;
        self.texts.extend_from_slice(text);
        self.list.push(Edit { start, len, text: at, text_len: text.len() as u16 });
        true
    }

    /// Appends the bytes of a flow that is saved.
    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        (self.list.len() as u16).save(to);
        for edit in &self.list {
            edit.start.save(to);
            edit.len.save(to);
            save_bytes(&self.texts[usize::from(edit.text)..][..usize::from(edit.text_len)], to);
        }
    }

    /// Reads what [`Edits::save`] wrote. `None`: the bytes mean nothing.
    pub(crate) fn restore(&mut self, from: &mut &[u8]) -> Option<()> {
        self.clear();
        for _ in 0..u16::restore(from)? {
            let (start, len) = <(u32, u16)>::restore(from)?;
            let text = restore_bytes(from)?;
            self.push(start, len.into(), text).then_some(())?;
        }
        Some(())
    }

    /// True if the edits follow each other, each ends behind `acked`, and none behind `next`, which
    /// is less than 2^30 behind `acked`.
    pub(crate) fn are_between(&self, acked: u32, next: u32) -> bool {
        let mut before = i32::MIN;
        self.list.iter().all(|edit| {
            let (start, end) = (distance(edit.start, acked), distance(edit.end(), acked));
            let is_behind = start >= before && end > 0 && end <= distance(next, acked);
            before = end;
            is_behind
        })
    }

    /// Adds the edits of a draft, whose first byte has the number `start`. False: there is no room,
    /// and nothing is added.
    pub(crate) fn append(&mut self, draft: &Self, start: u32) -> bool {
        let count = self.list.len();
        let is_added = draft.list.iter().all(|edit| {
            let text = &draft.texts[usize::from(edit.text)..][..usize::from(edit.text_len)];
            self.push(start.wrapping_add(edit.start), usize::from(edit.len), text)
        });
        if !is_added {
            self.truncate(count);
        }
        is_added
    }

    /// The range of each edit from number 0 on, and the replacement.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Range<usize>, &[u8])> {
        self.list.iter().map(|edit| {
            let text = &self.texts[usize::from(edit.text)..][..usize::from(edit.text_len)];
            (edit.start as usize..edit.start as usize + usize::from(edit.len), text)
        })
    }

    /// Removes all edits but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.list.truncate(count);
        let end = self.list.last().map_or(0, |edit| edit.text + edit.text_len);
        self.texts.truncate(usize::from(end));
    }

    /// Removes the edits that end at or before `acked`. Returns the sum of their changes.
    pub(crate) fn settle(&mut self, acked: u32) -> u32 {
        let count = self.list.iter().take_while(|edit| distance(edit.end(), acked) <= 0).count();
        if count == 0 {
            return 0;
        }
        let done = self.list.drain(..count);
        let (mut change, mut end) = (0_u32, 0);
        for edit in done {
            change = change.wrapping_add(edit.change());
            end = edit.text + edit.text_len;
        }
        self.texts.drain(..usize::from(end));
        self.list.iter_mut().for_each(|edit| edit.text -= end);
        change
    }

    /// The receiver's number of a sender's number, with the sum of the older changes.
    pub(crate) fn forward(&self, at: u32, older: u32) -> u32 {
        let mut change = older;
        for edit in &self.list {
            let offset = distance(at, edit.start);
            if offset <= 0 {
                break;
            }
            if offset < i32::from(edit.len) {
                let offset = offset.cast_unsigned().min(u32::from(edit.text_len));
                return edit.start.wrapping_add(change).wrapping_add(offset);
            }
            change = change.wrapping_add(edit.change());
        }
        at.wrapping_add(change)
    }

    /// The last sender's number whose receiver's number is not after `at`.
    pub(crate) fn back(&self, at: u32, older: u32) -> u32 {
        let mut change = older;
        for edit in &self.list {
            let offset = distance(at, edit.start.wrapping_add(change));
            if offset < 0 {
                break;
            }
            if offset < i32::from(edit.text_len) {
                let offset = offset.cast_unsigned().min(u32::from(edit.len) - 1);
                return edit.start.wrapping_add(offset);
            }
            change = change.wrapping_add(edit.change());
        }
        at.wrapping_sub(change)
    }

    /// Appends the receiver's bytes for the sender's bytes from `start` on.
    pub(crate) fn write(&self, start: u32, bytes: &[u8], out: &mut Vec<u8>) {
        let end = start.wrapping_add(bytes.len() as u32);
        let mut at = start;
        let slice = |from: u32, to: u32| {
            &bytes[distance(from, start) as usize..distance(to, start) as usize]
        };
        for edit in &self.list {
            if distance(edit.end(), at) <= 0 {
                continue;
            }
            if distance(edit.start, end) >= 0 {
                break;
            }
            if distance(edit.start, at) > 0 {
                out.extend_from_slice(slice(at, edit.start));
                at = edit.start;
            }
            // The part of the replacement between the numbers of both ends.
            let until = if distance(edit.end(), end) <= 0 { edit.end() } else { end };
            let (from, to) = (edit.before(at), edit.before(until));
            let text = usize::from(edit.text);
            out.extend_from_slice(&self.texts[text + from..text + to]);
            at = until;
        }
        out.extend_from_slice(slice(at, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    /// Edits of a stream of ten bytes that starts shortly before the numbers wrap around.
    fn edits() -> (u32, Edits) {
        let start = u32::MAX - 4;
        let mut edits = Edits::new(Amount::SMALL);
        assert!(edits.push(start.wrapping_add(2), 3, b"longer"));
        assert!(edits.push(start.wrapping_add(7), 2, b""));
        (start, edits)
    }

    #[test]
    fn the_map_never_decreases_and_comes_back() {
        let (start, edits) = edits();
        let numbers: Vec<u32> =
            (0..=10).map(|n| edits.forward(start.wrapping_add(n), 5).wrapping_sub(start)).collect();
        assert_eq!(numbers, [5, 6, 7, 8, 9, 13, 14, 15, 15, 15, 16]);
        let back: Vec<u32> =
            (5..=16).map(|n| edits.back(start.wrapping_add(n), 5).wrapping_sub(start)).collect();
        assert_eq!(back, [0, 1, 2, 3, 4, 4, 4, 4, 5, 6, 9, 10]);
    }

    #[test]
    fn any_two_cuts_give_the_same_bytes() {
        let (start, edits) = edits();
        for one in 0..=10 {
            for two in one..=10 {
                let mut out = vec![];
                for (from, to) in [(0, one), (one, two), (two, 10)] {
                    let at = start.wrapping_add(from as u32);
                    edits.write(at, &b"0123456789"[from..to], &mut out);
                    let end = edits.forward(start.wrapping_add(to as u32), 5);
                    assert_eq!(end.wrapping_sub(start).wrapping_sub(5) as usize, out.len());
                }
                assert_eq!(out, b"01longer569", "{one} {two}");
            }
        }
    }

    #[test]
    fn settled_edits_are_a_sum() {
        let (start, mut edits) = edits();
        assert_eq!(edits.settle(start.wrapping_add(4)), 0);
        let end = edits.forward(start.wrapping_add(10), 0);
        let change = edits.settle(start.wrapping_add(5));
        assert_eq!((change, edits.list.len()), (3, 1));
        assert_eq!(edits.forward(start.wrapping_add(10), change), end);
        edits.truncate(0);
        assert!(edits.is_empty() && edits.texts.is_empty());
    }

    #[test]
    fn there_is_a_limit() {
        for limit in [Amount::SMALL, Amount::LARGE] {
            let mut edits = Edits::new(limit);
            assert!(!edits.push(0, 0, b"nothing is replaced"));
            assert!((0..limit.edits).all(|at| edits.push(at as u32 * 4, 2, b"x")));
            assert!(!edits.push(9999, 2, b"x"));
            let mut edits = Edits::new(limit);
            assert!(edits.push(0, 2, &vec![b'x'; limit.bytes]) && !edits.push(9, 2, b"x"));
        }
    }

    #[test]
    fn further_room_changes_no_edit() {
        let (start, mut edits) = edits();
        let mut before = vec![];
        edits.write(start, b"0123456789", &mut before);
        for limit in [Amount::LARGE, Amount::SMALL] {
            edits.set_limit(limit);
            let mut out = vec![];
            edits.write(start, b"0123456789", &mut out);
            assert_eq!((&out, edits.limit()), (&before, limit));
        }
    }
}
