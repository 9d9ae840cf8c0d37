//! Map from every address to an answer: a trie of arrays, with leaves of one cache line.
//!
//! An array consumes some of the next bits of the address: the more stretches with one answer are
//! below it, the more bits, so that there are about four stretches to an element. An element is an
//! answer, another array, or a leaf. A leaf has the last addresses of a few stretches and their
//! answers. The search in a leaf counts, without a branch, the last addresses below the one that is
//! looked for. Neighboring elements share a leaf, so leaves are nearly full.
//!
//! All searches of a trie take the same steps: the root, as many arrays as the trie is deep, a
//! leaf. A search that finishes early waits, and no branch depends on it. So the processor starts
//! the next search while one waits for memory, and several searches wait together. Therefore a
//! million rules take hardly longer than a hundred. `builder` writes tries.

mod builder;

pub(super) use builder::{Builder, Stretch};

use crate::endpoint::AddressPort;
use crate::prefetch::{below_i16, below_i32, prefetch};
use alloc::sync::Arc;
use core::hint::select_unpredictable;

/// A place in a trie, or an answer. An answer is a number of three bytes, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ref(u32);

/// The upper six bits of a place are its kind: `LEAF` for a leaf; for an array 64 minus the bits
/// that the array consumes. The processor uses five bits of a shift count, so a right shift by the
/// kind leaves the array's bits. The lower bits are an index.
const LEAF: u32 = 32;
const KIND_SHIFT: u32 = 26;
/// Least and most bits that an array consumes.
const LEAST_BITS: u32 = 3;
const MOST_BITS: u32 = 16;
/// Arrays start at a multiple of this number of elements.
const UNIT: usize = 1 << LEAST_BITS;

impl Ref {
    /// No answer.
    pub(super) const NONE: Self = Self(0);
    /// The greatest answer.
    pub(super) const MOST_ANSWER: u32 = (1 << 24) - 1;
    /// The least place of an array.
    const ARRAY: Self = Self((64 - MOST_BITS) << KIND_SHIFT);

    /// Makes an answer.
    pub(super) const fn answer(number: u32) -> Self {
        Self(number)
    }

    fn leaf(index: usize) -> Self {
        Self(LEAF << KIND_SHIFT | index as u32)
    }

    fn array(takes: u32, start: usize) -> Self {
        Self((64 - takes) << KIND_SHIFT | (start / UNIT) as u32)
    }

    #[inline(always)]
    fn kind(self) -> u32 {
        self.0 >> KIND_SHIFT
    }

    #[inline(always)]
    fn is_array(self) -> bool {
        self >= Self::ARRAY
    }

    #[inline(always)]
    fn index(self) -> usize {
        (self.0 & ((1 << KIND_SHIFT) - 1)) as usize
    }

    /// All bits set for a leaf, otherwise none. It is computed without a branch.
    #[inline(always)]
    fn leaf_mask(self) -> u32 {
        ((self.kind() ^ LEAF).wrapping_sub(1) as i32 >> 31) as u32
    }

    /// The leaf's index, or the index of a leaf that always exists.
    #[inline(always)]
    fn leaf_or_first(self) -> usize {
        self.index() & self.leaf_mask() as usize
    }
}

/// The end of a trie: the last addresses of consecutive stretches, except the last stretch, and the
/// answers of all.
pub(super) trait Leaves: Copy + 'static {
    /// Most stretches of a leaf.
    const MOST: usize;
    /// Number of lower address bits that a leaf compares.
    const BITS: u32;

    /// Makes a leaf of the first stretches, as many as fit. `end` is the last address that matters.
    fn of(stretches: &[Stretch], end: u32) -> Self;

    /// The answer for an address.
    fn find(&self, address: u32) -> Ref;

    /// All leaves of this kind.
    fn all(tries: &Tries) -> &[Self];

    /// All leaves of this kind, under construction.
    fn written(builder: &mut Builder) -> &mut alloc::vec::Vec<Self>;
}

/// Stretches whose last addresses differ in sixteen bits. Numbers are shifted by half of their
/// range, because processors have a signed comparison.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Leaf {
    lasts: [i16; 12],
    answers: Answers<40>,
}

/// Stretches whose last addresses differ in more than sixteen bits.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct WideLeaf {
    lasts: [i32; 8],
    answers: Answers<32>,
}

const _: () = assert!(size_of::<Leaf>() == 64 && size_of::<WideLeaf>() == 64);

/// Answers of three bytes each, and one byte at the end that is read with the last answer.
#[derive(Clone, Copy, Debug)]
struct Answers<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Answers<BYTES> {
    fn of(stretches: &[Stretch]) -> Self {
        let mut bytes = [0; BYTES];
        for (bytes, (_, answer)) in bytes.chunks_exact_mut(3).zip(stretches) {
            bytes.copy_from_slice(&answer.0.to_le_bytes()[..3]);
        }
        Self(bytes)
    }

    #[inline(always)]
    fn get(&self, at: usize) -> Ref {
        let bytes = self.0.get(3 * at..).and_then(|bytes| bytes.first_chunk::<4>());
        Ref(bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)) & Ref::MOST_ANSWER)
    }
}

impl Leaf {
    #[inline(always)]
    fn key(address: u32) -> i16 {
        (address as u16 ^ 1 << 15) as i16
    }
}

impl Leaves for Leaf {
    const MOST: usize = 13;
    const BITS: u32 = 16;

    fn of(stretches: &[Stretch], end: u32) -> Self {
        let stretches = &stretches[..stretches.len().min(Self::MOST)];
        let mut leaf = Self { lasts: [i16::MAX; 12], answers: Answers::of(stretches) };
        for (its, &(last, _)) in leaf.lasts.iter_mut().zip(stretches) {
            *its = Self::key(last.min(end));
        }
        leaf
    }

    #[inline(always)]
    fn find(&self, address: u32) -> Ref {
        let key = Self::key(address);
        let (first, last) = (self.lasts.first_chunk::<8>(), self.lasts.last_chunk::<8>());
        let [first, last] = [first, last].map(|some| some.map_or(0, |some| below_i16(some, key)));
        // The numbers ascend, so numbers below the key come first.
        self.answers.get((first | last << 4).trailing_ones() as usize)
    }

    #[inline(always)]
    fn all(tries: &Tries) -> &[Self] {
        &tries.leaves
    }

    fn written(builder: &mut Builder) -> &mut alloc::vec::Vec<Self> {
        &mut builder.leaves
    }
}

impl WideLeaf {
    #[inline(always)]
    fn key(address: u32) -> i32 {
        (address ^ 1 << 31) as i32
    }
}

impl Leaves for WideLeaf {
    const MOST: usize = 9;
    const BITS: u32 = 32;

    fn of(stretches: &[Stretch], end: u32) -> Self {
        let stretches = &stretches[..stretches.len().min(Self::MOST)];
        let mut leaf = Self { lasts: [i32::MAX; 8], answers: Answers::of(stretches) };
        for (its, &(last, _)) in leaf.lasts.iter_mut().zip(stretches) {
            *its = Self::key(last.min(end));
        }
        leaf
    }

    #[inline(always)]
    fn find(&self, address: u32) -> Ref {
        let below = below_i32(&self.lasts, Self::key(address));
        self.answers.get(below.trailing_ones() as usize)
    }

    #[inline(always)]
    fn all(tries: &Tries) -> &[Self] {
        &tries.wide_leaves
    }

    fn written(builder: &mut Builder) -> &mut alloc::vec::Vec<Self> {
        &mut builder.wide_leaves
    }
}

/// All arrays and leaves. There is at least one of each. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Tries {
    elements: Arc<[Ref]>,
    leaves: Arc<[Leaf]>,
    wide_leaves: Arc<[WideLeaf]>,
}

impl Tries {
    /// Bytes that the tries take.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.elements) + size_of_val(&*self.leaves) + size_of_val(&*self.wide_leaves)
    }
}

/// Start of a trie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root {
    /// The first address with answers. Searches use the distance of an address from it.
    first: u32,
    /// The first array, and its last element, which has no answer.
    start: usize,
    last: u32,
    /// Arrays that most searches visit after the first one.
    pub(super) steps: u32,
    /// Number of upper address bits that are not used after the first array.
    skip: u32,
}

impl Root {
    /// Begins a search by address.
    #[inline(always)]
    pub(super) fn by_address(&self, address: u32) -> Start {
        let key = address.wrapping_sub(self.first);
        Start { element: self.element(key >> Leaf::BITS), bits: key << Leaf::BITS, key }
    }

    /// Begins a search by port and address.
    #[inline(always)]
    pub(super) fn by_port(&self, AddressPort { address, port }: AddressPort) -> Start {
        let key = address.wrapping_sub(self.first);
        let bits = key << self.skip;
        let beyond = bits >> self.skip != key;
        let number = select_unpredictable(beyond, self.last, u32::from(port));
        Start { element: self.element(number), bits, key }
    }

    #[inline(always)]
    fn element(&self, number: u32) -> usize {
        self.start + number.min(self.last) as usize
    }
}

/// A search before its first read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    element: usize,
    bits: u32,
    key: u32,
}

impl Start {
    #[inline(always)]
    pub(super) fn prefetch(&self, tries: &Tries) {
        prefetch(&tries.elements, self.element);
    }

    /// The first step.
    #[inline(always)]
    pub(super) fn step(&self, tries: &Tries) -> Walk {
        Walk { at: tries.elements[self.element], bits: self.bits, key: self.key }
    }
}

/// A search: its place, the remaining bits with the next one highest, and the key for a leaf.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    at: Ref,
    bits: u32,
    key: u32,
}

impl Walk {
    pub(super) const NOWHERE: Self = Self { at: Ref::NONE, bits: 0, key: 0 };

    /// Index of the element in the present array. At a leaf or an answer, an index that always
    /// exists.
    #[inline(always)]
    fn element(&self) -> usize {
        let next_bits = self.bits.wrapping_shr(self.at.kind());
        let element = self.at.index() * UNIT + next_bits as usize;
        select_unpredictable(self.at.is_array(), element, 0)
    }

    /// Prefetches the data of the next step, at an array or a leaf.
    #[inline(always)]
    pub(super) fn prefetch<L: Leaves>(&self, tries: &Tries) {
        prefetch(&tries.elements, self.element());
        prefetch(L::all(tries), self.at.leaf_or_first());
    }

    /// Takes the step from an array. At a leaf or an answer the search stays.
    #[inline(always)]
    pub(super) fn step(self, tries: &Tries) -> Self {
        let next = tries.elements[self.element()];
        // A leaf or an answer uses no more of these bits.
        let bits = self.bits.wrapping_shl(self.at.kind().wrapping_neg());
        Self { at: select_unpredictable(self.at.is_array(), next, self.at), bits, ..self }
    }

    /// Takes the last step, from a leaf or an answer.
    #[inline(always)]
    pub(super) fn end<L: Leaves>(self, tries: &Tries) -> u32 {
        let at = if self.at.is_array() { deeper(self.at, self.bits, tries) } else { self.at };
        let found = L::all(tries)[at.leaf_or_first()].find(self.key);
        let mask = at.leaf_mask();
        found.0 & mask | at.0 & !mask
    }
}

/// Completes the few searches that visit more arrays than the others.
#[cold]
#[inline(never)]
fn deeper(at: Ref, bits: u32, tries: &Tries) -> Ref {
    let mut walk = Walk { at, bits, key: 0 };
    while walk.at.is_array() {
        walk = walk.step(tries);
    }
    walk.at
}
