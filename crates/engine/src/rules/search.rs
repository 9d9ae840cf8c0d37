//! Searches for the best rule: one alone, and many that wait for memory together.
//!
//! In a [`RuleBatch`] each step reads what the step before had fetched, so between steps a caller may
//! do other work. Arrays come first, leaves last: which of both a search has come to is not branched
//! on, for it could not be predicted, but decides in which list the search goes on.

use super::trie::{Tries, Walk};
use super::{Roots, RuleSet, Ruling};

/// Bits of an answer that say what to do.
pub(super) const RULING_BITS: u32 = 19;

/// Searches for one packet.
const WALKS: usize = 4;

impl RuleSet {
    /// What the best rule says of a packet with these endpoints (address and port, which is 0 where
    /// there is none; host byte order), `inner` being the one on the inside.
    #[inline]
    pub fn find(&self, inner: (u32, u16), outer: (u32, u16)) -> Option<Ruling> {
        let [a, b, c, d] = self.walks(inner, outer);
        let one = a.finish(&self.tries).max(b.finish(&self.tries));
        self.ruling(one.max(c.finish(&self.tries)).max(d.finish(&self.tries)))
    }

    #[inline(always)]
    fn walks(&self, inner: (u32, u16), outer: (u32, u16)) -> [Walk; WALKS] {
        let [a, b] = walks(self.source, inner);
        let [c, d] = walks(self.destination, outer);
        [a, b, c, d]
    }

    /// What an answer stands for.
    #[inline(always)]
    fn ruling(&self, answer: u32) -> Option<Ruling> {
        let number = (answer & ((1 << RULING_BITS) - 1)) as usize;
        if answer == 0 { None } else { self.rulings.get(number).copied() }
    }
}

/// The searches for one end, without and with the port.
#[inline(always)]
pub(super) fn walks(roots: Roots, (address, port): (u32, u16)) -> [Walk; 2] {
    let address = u64::from(address);
    [
        Walk { at: roots.any_port, owner: 0, bits: address << 32 },
        Walk { at: roots.by_port, owner: 0, bits: u64::from(port) << 48 | address << 16 },
    ]
}

/// Searches for several packets at once.
#[derive(Clone, Debug)]
pub struct RuleBatch {
    arrays: List,
    leaves: List,
    wide_leaves: List,
    /// The best answer for each packet so far.
    best: [u32; Self::MOST],
    packets: usize,
}

/// Searches that have come to places of one sort.
#[derive(Clone, Debug)]
struct List {
    walks: [Walk; WALKS * RuleBatch::MOST],
    len: usize,
}

impl List {
    const EMPTY: Self = Self { walks: [Walk::NOWHERE; WALKS * RuleBatch::MOST], len: 0 };

    /// The searches but for the first so many.
    #[inline(always)]
    fn from(&self, first: usize) -> &[Walk] {
        &self.walks[first..self.len]
    }

    /// Adds a search if it belongs here; there is room for all.
    #[inline(always)]
    fn add_if(&mut self, walk: Walk, belongs: bool) {
        self.walks[self.len] = walk;
        self.len += usize::from(belongs);
    }
}

impl Default for RuleBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl RuleBatch {
    /// Packets that it has room for.
    pub const MOST: usize = 32;

    /// An empty one.
    pub const fn new() -> Self {
        let (arrays, leaves, wide_leaves) = (List::EMPTY, List::EMPTY, List::EMPTY);
        Self { arrays, leaves, wide_leaves, best: [0; Self::MOST], packets: 0 }
    }

    /// Begins the search for one more packet, whose place among the others is returned, and fetches
    /// what the first step reads; the endpoints are those of [`RuleSet::find`].
    ///
    /// # Panics
    /// When there are [`RuleBatch::MOST`] already.
    #[inline(always)]
    pub fn add(&mut self, rules: &RuleSet, inner: (u32, u16), outer: (u32, u16)) -> usize {
        let packet = self.packets;
        self.best[packet] = 0;
        self.packets += 1;
        let [a, b, c, d] = rules.walks(inner, outer);
        self.add_walk(rules, a);
        self.add_walk(rules, b);
        self.add_walk(rules, c);
        self.add_walk(rules, d);
        packet
    }

    #[inline(always)]
    fn add_walk(&mut self, rules: &RuleSet, walk: Walk) {
        let packet = self.packets - 1;
        // The same for all packets, so predicted.
        if walk.is_at_array() {
            walk.prefetch_array(&rules.tries);
            self.arrays.add_if(Walk { owner: packet as u32, ..walk }, true);
        } else {
            self.best[packet] = self.best[packet].max(walk.answer());
        }
    }

    /// Takes a step with all searches and fetches what the next one reads; `false`: there was none
    /// to take.
    #[inline]
    pub fn step(&mut self, rules: &RuleSet) -> bool {
        if self.arrays.len > 0 {
            self.step_arrays(&rules.tries);
            return true;
        }
        let any = self.leaves.len + self.wide_leaves.len > 0;
        for walk in self.leaves.from(0) {
            let best = &mut self.best[walk.owner as usize % Self::MOST];
            *best = (*best).max(walk.read_leaf(&rules.tries).answer());
        }
        for walk in self.wide_leaves.from(0) {
            let best = &mut self.best[walk.owner as usize % Self::MOST];
            *best = (*best).max(walk.read_wide_leaf(&rules.tries).answer());
        }
        (self.leaves.len, self.wide_leaves.len) = (0, 0);
        any
    }

    fn step_arrays(&mut self, tries: &Tries) {
        let (leaves, wide_leaves) = (self.leaves.len, self.wide_leaves.len);
        let all = core::mem::take(&mut self.arrays.len);
        for at in 0..all {
            let walk = self.arrays.walks[at].read_array(tries);
            let best = &mut self.best[walk.owner as usize % Self::MOST];
            *best = (*best).max(walk.answer());
            self.leaves.add_if(walk, walk.is_at_leaf());
            self.wide_leaves.add_if(walk, walk.is_at_wide_leaf());
            // No more than were read: what is still to be read is not written over.
            self.arrays.add_if(walk, walk.is_at_array());
        }
        self.arrays.from(0).iter().for_each(|walk| walk.prefetch_array(tries));
        self.leaves.from(leaves).iter().for_each(|walk| walk.prefetch_leaf(tries));
        self.wide_leaves.from(wide_leaves).iter().for_each(|walk| walk.prefetch_wide_leaf(tries));
    }

    /// What the best rule says of a packet, once there is no step to take.
    #[inline(always)]
    pub fn ruling(&self, rules: &RuleSet, packet: usize) -> Option<Ruling> {
        rules.ruling(self.best[packet])
    }

    /// Makes room for other packets.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.packets = 0;
        (self.arrays.len, self.leaves.len, self.wide_leaves.len) = (0, 0, 0);
    }
}
