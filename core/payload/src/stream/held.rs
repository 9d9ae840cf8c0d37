//! Bytes of one direction that are held: an incomplete message, segments that came before their
//! turn, and bytes that the framework has acknowledged itself.
//!
//! The bytes lie in one window from `base` on. At most four ranges of it are filled. A byte that is
//! there never changes: a later segment with other bytes for the same numbers is ignored.

use super::sequence::distance;
use crate::saved::{Saved, restore_bytes, save_bytes};
use alloc::vec;
use alloc::vec::Vec;

/// Length of the window, bytes.
pub(crate) const WINDOW: usize = 8192;

const MOST_RANGES: usize = 4;

/// Held bytes.
#[derive(Debug)]
pub(crate) struct Held {
    base: u32,
    bytes: Vec<u8>,
    /// Filled ranges, sorted, not adjacent; an empty range is unused and stands behind the others.
    ranges: [(u16, u16); MOST_RANGES],
}

impl Held {
    pub(crate) fn new() -> Self {
        Self { base: 0, bytes: vec![0; WINDOW], ranges: [(0, 0); MOST_RANGES] }
    }

    /// Forgets all bytes, and moves the window.
    pub(crate) fn reset(&mut self, base: u32) {
        self.base = base;
        self.ranges = [(0, 0); MOST_RANGES];
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges[0].1 == 0
    }

    /// Appends the bytes of a flow that is saved.
    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        self.base.save(to);
        for (from, end) in self.ranges {
            from.save(to);
            save_bytes(&self.bytes[usize::from(from)..usize::from(end)], to);
        }
    }

    /// Appends the bytes from a number on, with their numbers.
    pub(crate) fn save_from(&self, at: u32, to: &mut Vec<u8>) {
        for (from, end) in self.ranges {
            let start = self.base.wrapping_add(from.into());
            let bytes = &self.bytes[usize::from(from)..usize::from(end)];
            let skipped = distance(at, start).max(0).cast_unsigned();
            if let Some(bytes) = bytes.get(skipped as usize..).filter(|bytes| !bytes.is_empty()) {
                start.wrapping_add(skipped).save(to);
                save_bytes(bytes, to);
            }
        }
    }

    /// Reads what [`Held::save`] wrote. `None`: the bytes mean nothing.
    pub(crate) fn restore(&mut self, from: &mut &[u8]) -> Option<()> {
        self.reset(u32::restore(from)?);
        for _ in 0..MOST_RANGES {
            let start = u16::restore(from)?;
            let bytes = restore_bytes(from)?;
            let at = self.base.wrapping_add(start.into());
            self.insert(at, bytes).then_some(())?;
        }
        Some(())
    }

    /// Sequence number of the window's first byte.
    pub(crate) fn base(&self) -> u32 {
        self.base
    }

    /// The bytes from the window's start to the first gap.
    pub(crate) fn contiguous(&self) -> &[u8] {
        let (start, end) = self.ranges[0];
        if start == 0 { &self.bytes[..usize::from(end)] } else { &[] }
    }

    /// Sequence number behind [`Held::contiguous`].
    pub(crate) fn end(&self) -> u32 {
        self.base.wrapping_add(self.contiguous().len() as u32)
    }

    /// Adds bytes; those before the window are ignored. False: they do not fit, or are one range
    /// too many; then nothing changes.
    pub(crate) fn insert(&mut self, at: u32, bytes: &[u8]) -> bool {
        let offset = distance(at, self.base);
        let skipped = usize::try_from(-i64::from(offset)).unwrap_or(0).min(bytes.len());
        let bytes = &bytes[skipped..];
        let start = usize::try_from(offset).unwrap_or(0);
        let end = start + bytes.len();
        if bytes.is_empty() {
            return true;
        }
        if end > WINDOW {
            return false;
        }
        let mut merged = [(0_u16, 0_u16); MOST_RANGES + 1];
        let mut count = 0;
        let mut own = (start as u16, end as u16);
        let mut is_placed = false;
        for &range in self.ranges.iter().filter(|range| range.1 > 0) {
            if range.1 < own.0 || own.1 < range.0 {
                if own.1 < range.0 && !is_placed {
                    merged[count] = own;
                    (count, is_placed) = (count + 1, true);
                }
                merged[count] = range;
                count += 1;
            } else {
                own = (own.0.min(range.0), own.1.max(range.1));
            }
        }
        if !is_placed {
            merged[count] = own;
            count += 1;
        }
        if count > MOST_RANGES {
            return false;
        }
        self.fill(start, bytes);
        merged[..count].sort_unstable();
        self.ranges.copy_from_slice(&merged[..MOST_RANGES]);
        true
    }

    /// Writes bytes where none are yet.
    fn fill(&mut self, start: usize, bytes: &[u8]) {
        let end = start + bytes.len();
        let mut at = start;
        for (from, to) in self.ranges.map(|(from, to)| (usize::from(from), usize::from(to))) {
            if to == 0 || to <= at {
                continue;
            }
            let gap = from.clamp(at, end);
            self.bytes[at..gap].copy_from_slice(&bytes[at - start..gap - start]);
            at = to.min(end).max(gap);
        }
        self.bytes[at..end].copy_from_slice(&bytes[at - start..]);
    }

    /// Forgets the bytes before `to`, and moves the window there. `to` is not beyond
    /// [`Held::end`].
    pub(crate) fn trim(&mut self, to: u32) {
        let Ok(count @ 1..) = usize::try_from(distance(to, self.base)) else { return };
        let count = count.min(self.contiguous().len());
        let end = self.ranges.iter().map(|range| usize::from(range.1)).max().unwrap_or(0);
        self.bytes.copy_within(count..end, 0);
        self.base = self.base.wrapping_add(count as u32);
        for (from, to) in self.ranges.iter_mut().filter(|range| range.1 > 0) {
            (*from, *to) = (from.saturating_sub(count as u16), to.saturating_sub(count as u16));
        }
        if self.ranges[0].1 == 0 {
            self.ranges.rotate_left(1);
        }
    }

    /// Forgets the bytes from a number on that is in [`Held::contiguous`], or at its end.
    pub(crate) fn forget_from(&mut self, at: u32) {
        let len = u16::try_from(distance(at, self.base)).unwrap_or(0);
        let first = if self.ranges[0].0 == 0 { (0, self.ranges[0].1.min(len)) } else { (0, 0) };
        self.ranges = [first, (0, 0), (0, 0), (0, 0)];
    }

    /// Forgets the bytes behind the first gap.
    pub(crate) fn drop_beyond(&mut self) {
        let first = if self.ranges[0].0 == 0 { self.ranges[0] } else { (0, 0) };
        self.ranges = [first, (0, 0), (0, 0), (0, 0)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_that_are_there_do_not_change() {
        let mut held = Held::new();
        held.reset(u32::MAX - 1);
        assert!(held.insert(u32::MAX.wrapping_add(2), b"cd"));
        assert_eq!(held.contiguous(), b"");
        assert!(held.insert(u32::MAX - 3, b"..abXYZe"));
        assert_eq!(held.contiguous(), b"abXcdZ"[..].replace(b"Z", b"e"));
    }

    trait Replace {
        fn replace(&self, one: &[u8], other: &[u8]) -> Vec<u8>;
    }

    impl Replace for [u8] {
        fn replace(&self, one: &[u8], other: &[u8]) -> Vec<u8> {
            self.iter().map(|&byte| if byte == one[0] { other[0] } else { byte }).collect()
        }
    }

    #[test]
    fn the_window_and_the_ranges_have_limits() {
        let mut held = Held::new();
        held.reset(0);
        assert!(held.insert(0, &[1; WINDOW]) && !held.insert(1, &[1; WINDOW]));
        held.reset(0);
        assert!((1..5).all(|at| held.insert(at * 10, b"x")) && !held.insert(100, b"x"));
        assert!(held.insert(11, &[7; 30]));
        assert!(held.insert(0, &[7; 10]));
        assert_eq!(held.contiguous().len(), 41);
        held.drop_beyond();
        held.trim(41);
        assert!(held.is_empty() && held.base() == 41);
    }

    /// Offset and length of an insertion, bytes to trim, and the first byte.
    fn step() -> impl Strategy<Value = (u32, usize, u32, u8)> {
        (0_u32..60, 1_usize..20, 0_u32..8, any::<u8>())
    }

    proptest! {
        /// A map of single bytes is the simple twin.
        #[test]
        fn agrees_with_a_map(
            base: u32,
            steps in proptest::collection::vec(step(), 1..60),
        ) {
            let mut held = Held::new();
            held.reset(base);
            let mut map = alloc::collections::BTreeMap::new();
            let mut low = 0_u32;
            for (at, len, trim, byte) in steps {
                let at = low + at;
                let bytes: Vec<u8> = (0..len).map(|n| byte.wrapping_add(n as u8)).collect();
                if held.insert(base.wrapping_add(at), &bytes) {
                    for (n, byte) in bytes.iter().enumerate() {
                        map.entry(at + n as u32).or_insert(*byte);
                    }
                }
                let run: Vec<u8> = (low..).map_while(|n| map.get(&n).copied()).collect();
                prop_assert_eq!(held.contiguous(), &run[..]);
                low += trim.min(run.len() as u32);
                held.trim(base.wrapping_add(low));
                prop_assert_eq!(held.base(), base.wrapping_add(low));
                prop_assert_eq!(held.contiguous(), &run[trim.min(run.len() as u32) as usize..]);
            }
        }
    }
}
