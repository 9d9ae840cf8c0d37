//! Lists of timers for the engine: a ring of list heads, several for each tick, and a bit for each
//! tick that has elements. The links are stored with the elements: in a [`Link`] of each record for
//! timers that may be taken out, or wherever the owner likes.
//!
//! A ring reaches `span` ticks ahead. An element with a later deadline enters at the end of the
//! reach and enters again when that tick comes.

use alloc::vec;
use alloc::vec::Vec;

/// No element.
pub(crate) const NONE: u32 = u32::MAX;

/// Marks a `prev` that is the place of a list's head, not an element.
const HEAD: u32 = 1 << 31;

/// An element's neighbours in its list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    next: u32,
    prev: u32,
}

impl Link {
    /// The link of an element in no list.
    pub(crate) const OUT: Self = Self { next: NONE, prev: NONE };

    /// The next element of the list, or [`NONE`].
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Makes the next element of the list know that `own`, whose link this is, comes before it.
    #[inline(always)]
    pub(crate) fn announce(self, links: &mut impl Links, own: u32) {
        if self.next != NONE {
            links.link(self.next).prev = own;
        }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::OUT
    }
}

/// Access to the links of a timer's elements.
pub(crate) trait Links {
    fn link(&mut self, element: u32) -> &mut Link;
}

/// Number of lists for each tick. A walk through one list waits at each element for the memory that
/// names the next. So the engine walks through several lists in turns.
pub(crate) const LANES: usize = 4;

/// Number of the tick's list that an element belongs to.
#[inline(always)]
pub(crate) fn lane(element: u32) -> usize {
    element as usize % LANES
}

/// The ring of list heads.
#[derive(Clone, Debug)]
pub(crate) struct Calendar {
    /// Heads with all bits inverted. So an empty list is zero, and the memory of ticks that never
    /// had an element stays untouched.
    inverted: Vec<[u32; LANES]>,
    /// A bit for each tick that has elements.
    occupied: Vec<u64>,
    /// Number of ticks that have elements.
    ticks: usize,
}

impl Calendar {
    /// A calendar that reaches at least `span` ticks ahead.
    pub(crate) fn new(span: u32) -> Self {
        let size = (span as usize + 1).next_power_of_two().max(64);
        Self { inverted: vec![[!NONE; LANES]; size], occupied: vec![0; size / 64], ticks: 0 }
    }

    /// Largest distance, in ticks, at which an element may be entered.
    pub(crate) fn span(&self) -> u32 {
        self.inverted.len() as u32 - 1
    }

    #[inline(always)]
    fn place(&self, tick: u32) -> usize {
        tick as usize & (self.inverted.len() - 1)
    }

    /// The first element of each list of a tick, or [`NONE`].
    #[inline(always)]
    pub(crate) fn heads(&self, tick: u32) -> [u32; LANES] {
        self.inverted[self.place(tick)].map(|head| !head)
    }

    /// The first element of a tick's first non-empty list, counted from list `from` on in turn, or
    /// [`NONE`].
    #[inline(always)]
    pub(crate) fn head(&self, tick: u32, from: usize) -> u32 {
        if self.ticks == 0 {
            return NONE;
        }
        let heads = self.heads(tick);
        let mut lanes = (0..LANES).map(|lane| heads[(from + lane) % LANES]);
        lanes.find(|&head| head != NONE).unwrap_or(NONE)
    }

    /// Takes the first element out of one list of a tick: `next` is the first now ([`NONE`]: the
    /// list becomes empty).
    #[inline(always)]
    pub(crate) fn advance(&mut self, tick: u32, lane: usize, next: u32) {
        let place = self.place(tick);
        if next == NONE {
            self.empty(place, lane);
        } else {
            // The list keeps elements, so its tick stays marked.
            self.inverted[place][lane] = !next;
        }
    }

    /// Makes `element` the first of one list of a tick; returns the element that was the first.
    #[inline]
    pub(crate) fn push(&mut self, tick: u32, lane: usize, element: u32) -> u32 {
        self.push_at(self.place(tick), lane, element)
    }

    #[inline(always)]
    fn push_at(&mut self, place: usize, lane: usize, element: u32) -> u32 {
        let next = !core::mem::replace(&mut self.inverted[place][lane], !element);
        if next == NONE {
            self.mark(place);
        }
        next
    }

    /// Makes one list of a place empty.
    #[inline]
    fn empty(&mut self, place: usize, lane: usize) {
        let heads = &mut self.inverted[place];
        // Reads the other lanes only, so that no load waits for the store below.
        let others = (0..LANES).filter(|&other| other != lane).any(|other| heads[other] != !NONE);
        heads[lane] = !NONE;
        let (word, bit) = (&mut self.occupied[place / 64], 1 << (place % 64));
        if !others && *word & bit != 0 {
            *word ^= bit;
            self.ticks -= 1;
        }
    }

    /// Notes that a tick has elements.
    #[inline(always)]
    fn mark(&mut self, place: usize) {
        let (word, bit) = (&mut self.occupied[place / 64], 1 << (place % 64));
        self.ticks += usize::from(*word & bit == 0);
        *word |= bit;
    }

    /// The first tick from `from` on, within the reach, that has elements.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        if self.ticks == 0 {
            return None;
        }
        let start = self.place(from);
        let words = self.occupied.len();
        for step in 0..=words {
            // Both lengths are powers of two.
            let word = (start / 64 + step) & (words - 1);
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                let ahead = place.wrapping_sub(start) & (self.inverted.len() - 1);
                return Some(from + ahead as u32);
            }
        }
        None
    }

    /// Enters an element at a tick that is within the reach.
    #[inline]
    pub(crate) fn enter(&mut self, links: &mut impl Links, element: u32, tick: u32) {
        let link = self.begin(element, tick);
        *links.link(element) = link;
        link.announce(links, element);
    }

    /// The part of [`Calendar::enter`] for an element whose link the caller stores. The caller then
    /// calls [`Link::announce`].
    #[inline(always)]
    pub(crate) fn begin(&mut self, element: u32, tick: u32) -> Link {
        let place = self.place(tick);
        let next = self.push_at(place, lane(element), element);
        Link { next, prev: HEAD | place as u32 }
    }

    /// Takes an element out that is the first of its list, at a tick. The element's own link stays
    /// as it is.
    #[inline(always)]
    pub(crate) fn take_first(&mut self, links: &mut impl Links, element: u32, tick: u32) {
        let Link { next, prev } = *links.link(element);
        debug_assert_eq!(prev, HEAD | self.place(tick) as u32);
        if next != NONE {
            links.link(next).prev = prev;
        }
        self.advance(tick, lane(element), next);
    }

    /// Takes an element out of its list. An element in no list stays so.
    #[inline]
    pub(crate) fn take(&mut self, links: &mut impl Links, element: u32) {
        let Link { next, prev } = core::mem::take(links.link(element));
        if prev == NONE {
            return;
        }
        if next != NONE {
            links.link(next).prev = prev;
        }
        if prev & HEAD == 0 {
            links.link(prev).next = next;
            return;
        }
        let place = (prev & !HEAD) as usize;
        if next == NONE {
            self.empty(place, lane(element));
        } else {
            // The list keeps elements, so its tick stays marked.
            self.inverted[place][lane(element)] = !next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    impl Links for Vec<Link> {
        fn link(&mut self, element: u32) -> &mut Link {
            &mut self[element as usize]
        }
    }

    proptest! {
        /// Compares the calendar with a map from element to tick, while the current tick moves.
        #[test]
        fn behaves_as_a_map(
            ops in proptest::collection::vec((0_u32..20, 0_u32..64, 0_u32..30), 1..200),
        ) {
            let mut calendar = Calendar::new(63);
            let mut links = vec![Link::default(); 20];
            let mut map: BTreeMap<u32, u32> = BTreeMap::new();
            let mut now = 0;
            for (element, ahead, step) in ops {
                calendar.take(&mut links, element);
                map.remove(&element);
                if ahead > 3 {
                    calendar.enter(&mut links, element, now + ahead);
                    map.insert(element, now + ahead);
                }
                prop_assert_eq!(calendar.next(now), map.values().min().copied());
                let target = now + step;
                while let Some(tick) = calendar.next(now).filter(|&t| t <= target) {
                    let first = calendar.head(tick, 0);
                    if first.is_multiple_of(2) {
                        calendar.take(&mut links, first);
                    } else {
                        calendar.take_first(&mut links, first, tick);
                        links[first as usize] = Link::OUT;
                    }
                    prop_assert_eq!(map.remove(&first), Some(tick));
                }
                now = target;
            }
        }
    }
}
