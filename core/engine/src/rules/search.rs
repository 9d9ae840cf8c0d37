//! Searches for the best rule: single searches, and batches whose memory accesses overlap.
//!
//! In a [`RuleBatch`] each step reads the data that the step before has prefetched, so a caller may
//! do other work between steps. The number of tries and their depths are the same for all packets,
//! so the processor predicts all branches here.

use super::trie::{Leaf, Leaves, Root, Start, Tries, Walk, WideLeaf};
use super::{Roots, RuleSet, Ruling};
use crate::endpoint::AddressPort;

/// An endpoint: address and port.
type End = AddressPort;

impl RuleSet {
    /// The decision of the best rule about a packet with these endpoints (host byte order; port 0
    /// where there is none). `inner` is the endpoint on the inside.
    #[inline]
    pub fn find(&self, inner: AddressPort, outer: AddressPort) -> Option<Ruling> {
        let best = |roots: &Roots, end: End| match roots.is_empty() {
            true => 0,
            false => roots.best(&self.tries, end),
        };
        self.ruling(best(&self.source, inner).max(best(&self.destination, outer)))
    }

    /// The ruling of an answer.
    #[inline(always)]
    fn ruling(&self, answer: u32) -> Option<Ruling> {
        // Answer 0 means none.
        self.rulings.get((answer as usize).wrapping_sub(1)).copied()
    }
}

impl Roots {
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.any_port.is_none() && self.by_port.is_none()
    }

    /// The best answer for one endpoint.
    #[inline(never)]
    pub(super) fn best(&self, tries: &Tries, end: End) -> u32 {
        let mut best = 0;
        if let Some(root) = &self.any_port {
            best = search::<AnyPort>(root, tries, end);
        }
        if let Some(root) = &self.by_port {
            best = better(best, search::<ByPort>(root, tries, end));
        }
        best
    }
}

/// The greater of two answers, without a branch: a branch would be unpredictable.
#[inline(always)]
fn better(one: u32, other: u32) -> u32 {
    // Answers have at most three bytes.
    let is_less = (one.wrapping_sub(other) as i32 >> 31) as u32;
    one ^ (one ^ other) & is_less
}

/// A complete search for one endpoint. Returns the answer.
#[inline(always)]
fn search<A: Asked>(root: &Root, tries: &Tries, end: End) -> u32 {
    let mut walk = A::start(root, end).step(tries);
    for _ in 0..root.steps {
        walk = walk.step(tries);
    }
    walk.end::<A::Leaves>(tries)
}

/// The key of a trie.
trait Asked {
    type Leaves: Leaves;

    fn start(root: &Root, end: End) -> Start;
}

/// Search by address.
enum AnyPort {}

impl Asked for AnyPort {
    type Leaves = Leaf;

    #[inline(always)]
    fn start(root: &Root, end: End) -> Start {
        root.by_address(end.address)
    }
}

/// Search by port and address.
enum ByPort {}

impl Asked for ByPort {
    type Leaves = WideLeaf;

    #[inline(always)]
    fn start(root: &Root, end: End) -> Start {
        root.by_port(end)
    }
}

/// Searches for several packets at once.
#[derive(Clone, Debug)]
pub struct RuleBatch {
    inner: [End; Self::MOST],
    outer: [End; Self::MOST],
    /// Walks by trie: source without and with port, destination without and with port.
    walks: [[Walk; Self::MOST]; 4],
    /// The best answer for each packet so far.
    best: [u32; Self::MOST],
    packets: usize,
    /// Number of steps taken.
    steps: u32,
}

impl Default for RuleBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl RuleBatch {
    /// Most packets of a batch.
    pub const MOST: usize = 32;

    /// Makes an empty batch.
    pub const fn new() -> Self {
        Self {
            inner: [AddressPort::new(0, 0); Self::MOST],
            outer: [AddressPort::new(0, 0); Self::MOST],
            walks: [[Walk::NOWHERE; Self::MOST]; 4],
            best: [0; Self::MOST],
            packets: 0,
            steps: 0,
        }
    }

    /// Begins the search for one more packet and prefetches the data of its first step. The
    /// endpoints are those of [`RuleSet::find`]. Returns the packet's place in the batch.
    ///
    /// # Panics
    /// When there are [`RuleBatch::MOST`] packets already.
    #[inline(always)]
    pub fn add(&mut self, rules: &RuleSet, inner: AddressPort, outer: AddressPort) -> usize {
        let packet = self.packets;
        (self.inner[packet], self.outer[packet]) = (inner, outer);
        self.best[packet] = 0;
        self.packets += 1;
        prefetch(&rules.source, &rules.tries, inner);
        prefetch(&rules.destination, &rules.tries, outer);
        packet
    }

    /// Takes a step of all searches and prefetches the data of the next step. Returns `false` if
    /// there was no step to take.
    #[inline]
    pub fn step(&mut self, rules: &RuleSet) -> bool {
        let tries = &rules.tries;
        let RuleBatch { walks: [a, b, c, d], best, packets, steps, .. } = self;
        let best = &mut best[..*packets];
        let (inner, outer) = (&self.inner[..*packets], &self.outer[..*packets]);
        let (source, destination) = (&rules.source, &rules.destination);
        let turn = *steps;
        *steps += 1;
        let any = [
            step::<AnyPort>(source.any_port, tries, turn, inner, a, best),
            step::<ByPort>(source.by_port, tries, turn, inner, b, best),
            step::<AnyPort>(destination.any_port, tries, turn, outer, c, best),
            step::<ByPort>(destination.by_port, tries, turn, outer, d, best),
        ];
        any.contains(&true)
    }

    /// The decision of the best rule about a packet, after all steps.
    #[inline(always)]
    pub fn ruling(&self, rules: &RuleSet, packet: usize) -> Option<Ruling> {
        rules.ruling(self.best[packet])
    }

    /// Empties the batch.
    #[inline(always)]
    pub fn clear(&mut self) {
        (self.packets, self.steps) = (0, 0);
    }
}

#[inline(always)]
fn prefetch(roots: &Roots, tries: &Tries, end: End) {
    if let Some(root) = &roots.any_port {
        AnyPort::start(root, end).prefetch(tries);
    }
    if let Some(root) = &roots.by_port {
        ByPort::start(root, end).prefetch(tries);
    }
}

/// Takes step `number` of all searches of a trie. Returns false if there is no such step.
#[inline(always)]
fn step<A: Asked>(
    root: Option<Root>,
    tries: &Tries,
    number: u32,
    ends: &[End],
    walks: &mut [Walk; RuleBatch::MOST],
    best: &mut [u32],
) -> bool {
    let Some(root) = root else { return false };
    if number > root.steps + 1 {
        return false;
    }
    for ((&end, walk), best) in ends.iter().zip(walks).zip(best) {
        if number > root.steps {
            *best = better(*best, walk.end::<A::Leaves>(tries));
            continue;
        }
        *walk = match number {
            0 => A::start(&root, end).step(tries),
            _ => walk.step(tries),
        };
        walk.prefetch::<A::Leaves>(tries);
    }
    true
}
