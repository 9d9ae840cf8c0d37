//! Index of external addresses: runs of consecutive addresses with consecutive indexes. Usually
//! there is one run, or one run has most of the addresses. The longest run is looked at first.

use alloc::vec::Vec;

/// Consecutive addresses, and the index of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: u32,
    last: u32,
    index: u32,
}

impl Span {
    /// A span without any possible address of a host.
    const NONE: Self = Self { first: u32::MAX, last: u32::MAX, index: 0 };

    /// The index of an address, if the span contains it.
    #[inline(always)]
    fn index(&self, address: u32) -> Option<u32> {
        let offset = address.wrapping_sub(self.first);
        (offset <= self.last - self.first).then(|| self.index + offset)
    }

    fn len(&self) -> u32 {
        self.last - self.first
    }
}

/// The external addresses.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    /// One of the longest spans in `all`.
    longest: Span,
    /// Sorted, disjoint.
    all: Vec<Span>,
    /// The least and the greatest address.
    bounds: (u32, u32),
}

impl Spans {
    /// Makes an empty set, with room for `room` spans.
    pub(super) fn new(room: usize) -> Self {
        Self { longest: Span::NONE, all: Vec::with_capacity(room), bounds: (u32::MAX, 0) }
    }

    /// The index of an address.
    #[inline(always)]
    pub(super) fn index(&self, address: u32) -> Option<u32> {
        self.longest.index(address).or_else(|| {
            let next = self.all.partition_point(|span| span.last < address);
            self.all.get(next)?.index(address)
        })
    }

    /// The first address from `address` on, and its index.
    pub(super) fn from(&self, address: u32) -> Option<(u32, u32)> {
        let span = self.all.get(self.all.partition_point(|span| span.last < address))?;
        let address = address.max(span.first);
        Some((address, span.index + (address - span.first)))
    }

    /// True if an address lies between the least and the greatest.
    #[inline(always)]
    pub(super) fn may_have(&self, address: u32) -> bool {
        (self.bounds.0..=self.bounds.1).contains(&address)
    }

    /// Adds an address that is not in the set.
    pub(super) fn insert(&mut self, address: u32, index: u32) {
        let at = self.all.partition_point(|span| span.last < address);
        let follows = |before: &Span, after: &Span| {
            before.last.checked_add(1) == Some(after.first)
                && before.index + before.len() + 1 == after.index
        };
        let new = Span { first: address, last: address, index };
        let joins_left = at > 0 && follows(&self.all[at - 1], &new);
        let joins_right = self.all.get(at).is_some_and(|after| follows(&new, after));
        match (joins_left, joins_right) {
            (true, true) => self.all[at - 1].last = self.all.remove(at).last,
            (true, false) => self.all[at - 1].last = address,
            (false, true) => (self.all[at].first, self.all[at].index) = (address, index),
            (false, false) => self.all.insert(at, new),
        }
        let changed = self.all[if joins_left { at - 1 } else { at }];
        if self.longest == Span::NONE || changed.len() >= self.longest.len() {
            self.longest = changed;
        }
        self.note_bounds();
    }

    /// Removes an address that is in the set.
    pub(super) fn remove(&mut self, address: u32) {
        let at = self.all.partition_point(|span| span.last < address);
        let Span { first, last, index } = self.all[at];
        match (address == first, address == last) {
            (true, true) => drop(self.all.remove(at)),
            (true, false) => (self.all[at].first, self.all[at].index) = (first + 1, index + 1),
            (false, true) => self.all[at].last = last - 1,
            (false, false) => {
                let rest = index + (address - first) + 1;
                self.all[at].last = address - 1;
                self.all.insert(at + 1, Span { first: address + 1, last, index: rest });
            }
        }
        let longest = self.all.iter().copied().max_by_key(Span::len);
        self.longest = longest.unwrap_or(Span::NONE);
        self.note_bounds();
    }

    fn note_bounds(&mut self) {
        let ends = self.all.first().zip(self.all.last());
        self.bounds = ends.map_or((u32::MAX, 0), |(first, last)| (first.first, last.last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a map, while addresses come and go near both ends of the number space too.
        #[test]
        fn behaves_as_a_map(
            base in prop::sample::select(vec![0_u32, 1000, u32::MAX - 16]),
            ops in prop::collection::vec((0_u32..16, 0_u32..40), 1..200),
        ) {
            let mut spans = Spans::new(40);
            let mut map = BTreeMap::new();
            for (offset, index) in ops {
                let address = base + offset;
                if map.remove(&address).is_some() {
                    spans.remove(address);
                } else {
                    // Often such that it joins its neighbours.
                    let index = if index < 30 { 100 + offset } else { index };
                    map.insert(address, index);
                    spans.insert(address, index);
                }
                for address in base..=base + 15 {
                    prop_assert_eq!(spans.index(address), map.get(&address).copied());
                }
                prop_assert_eq!(spans.index(base ^ 1 << 20), None);
                let joined = spans.all.windows(2).all(|pair| {
                    pair[0].last < pair[1].first
                        && (pair[0].last + 1 != pair[1].first
                            || pair[0].index + pair[0].len() + 1 != pair[1].index)
                });
                prop_assert!(joined, "{:?}", spans.all);
                let bounds = map.keys().next().zip(map.keys().next_back());
                for address in base..=base + 15 {
                    let may =
                        bounds.is_some_and(|(first, last)| (first..=last).contains(&&address));
                    prop_assert_eq!(spans.may_have(address), may);
                }
            }
        }
    }
}
