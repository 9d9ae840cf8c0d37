//! A search for the best rule, step by step: so that a batch of them can wait for memory together.
//!
//! After [`RuleSet::search`], and after each step, call [`RuleSearch::prefetch`] for the whole batch
//! before the next step of any.

use super::lines::Walk;
use super::{Roots, RuleSet, Ruling};

/// Bits of an answer that say what to do.
pub(super) const RULING_BITS: u32 = 19;

/// A search under way.
#[derive(Clone, Copy, Debug)]
pub struct RuleSearch([Walk; 4]);

impl RuleSet {
    /// Begins a search; the endpoints are those of [`RuleSet::find`].
    #[inline(always)]
    pub fn search(&self, inner: (u32, u16), outer: (u32, u16)) -> RuleSearch {
        let [a, b] = walks(self.source, inner);
        let [c, d] = walks(self.destination, outer);
        RuleSearch([a, b, c, d])
    }
}

/// The searches for one end, without and with the port.
#[inline(always)]
fn walks(roots: Roots, (address, port): (u32, u16)) -> [Walk; 2] {
    let address = u64::from(address.rotate_left(16));
    [
        Walk { at: roots.any_port, numbers: address },
        Walk { at: roots.by_port, numbers: address << 16 | u64::from(port) },
    ]
}

impl RuleSearch {
    /// Fetches what the next step reads.
    #[inline(always)]
    pub fn prefetch(&self, rules: &RuleSet) {
        for walk in &self.0 {
            walk.prefetch(&rules.lines);
        }
    }

    /// Takes a step; says whether there is another to take.
    #[inline(always)]
    pub fn step(&mut self, rules: &RuleSet) -> bool {
        let mut more = false;
        for walk in &mut self.0 {
            walk.step(&rules.lines);
            more |= walk.at.is_map();
        }
        more
    }

    /// What the best rule says, once there is no step to take.
    #[inline(always)]
    pub fn ruling(&self, rules: &RuleSet) -> Option<Ruling> {
        let [a, b, c, d] = self.0.map(|walk| walk.at.number());
        let best = a.max(b).max(c.max(d));
        if best == 0 {
            return None;
        }
        rules.rulings.get((best & ((1 << RULING_BITS) - 1)) as usize).copied()
    }
}
