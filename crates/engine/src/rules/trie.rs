//! Where every address has its answer: a trie of arrays, with leaves of one cache line.
//!
//! An array takes some of the address's next bits, more the more stretches of addresses with one answer
//! there are below it: about five to an element. What is left in an element is an answer, another
//! array, or a leaf, which has the last addresses of a few stretches and their answers; how many of
//! the last addresses lie below the one that is looked for is counted without a branch. So a search
//! touches two or three of them, at the worst one for each three bits.

use crate::prefetch::prefetch;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// A place in a trie, or an answer: a number below 2^31, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ref(u32);

/// Marks a place. Below it are five bits of kind (for an array the bits that it takes) and an index.
const PLACE: u32 = 1 << 31;
const KIND_SHIFT: u32 = 26;
const LEAF: u32 = 0;
const WIDE_LEAF: u32 = 31;
/// Least and most bits that an array takes.
const LEAST_BITS: u32 = 3;
const MOST_BITS: u32 = 16;
/// Arrays begin at a multiple of this.
const UNIT: usize = 1 << LEAST_BITS;
/// Stretches to an element of an array, about.
const LOAD: usize = 5;
/// Addresses to a stretch, at most, where an array may have an answer for each address.
const DENSE: usize = 4;

impl Ref {
    /// No answer.
    pub(super) const NONE: Self = Self(0);

    /// An answer.
    pub(super) const fn answer(number: u32) -> Self {
        Self(number)
    }

    fn place(kind: u32, index: usize) -> Self {
        Self(PLACE | kind << KIND_SHIFT | index as u32)
    }

    #[inline(always)]
    fn is_place(self) -> bool {
        self.0 & PLACE != 0
    }

    #[inline(always)]
    fn kind(self) -> u32 {
        self.0 >> KIND_SHIFT & 31
    }

    #[inline(always)]
    fn index(self) -> usize {
        (self.0 & ((1 << KIND_SHIFT) - 1)) as usize
    }
}

/// Stretches whose last addresses differ in sixteen bits.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Leaf {
    lasts: [u16; 10],
    answers: [Ref; 11],
}

/// Stretches whose last addresses differ in more.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct WideLeaf {
    lasts: [u32; 7],
    answers: [Ref; 8],
}

const _: () = assert!(size_of::<Leaf>() == 64 && size_of::<WideLeaf>() == 64);

/// All arrays and leaves. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Tries {
    elements: Arc<[Ref]>,
    leaves: Arc<[Leaf]>,
    wide_leaves: Arc<[WideLeaf]>,
}

impl Tries {
    /// Bytes that they take.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.elements) + size_of_val(&*self.leaves) + size_of_val(&*self.wide_leaves)
    }
}

/// A search: where it is, and the bits that it still goes by, the next one highest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) at: Ref,
    /// Whose it is, for those that take many together.
    pub(super) owner: u32,
    pub(super) bits: u64,
}

impl Walk {
    pub(super) const NOWHERE: Self = Self { at: Ref::NONE, owner: 0, bits: 0 };

    /// Goes to the end: the answer.
    #[inline(always)]
    pub(super) fn finish(mut self, tries: &Tries) -> u32 {
        while self.is_at_array() {
            self = self.read_array(tries);
        }
        if self.is_at_leaf() {
            self = self.read_leaf(tries);
        } else if self.is_at_wide_leaf() {
            self = self.read_wide_leaf(tries);
        }
        self.at.0
    }

    /// The answer that it has come to; 0 if it is not at the end.
    #[inline(always)]
    pub(super) fn answer(&self) -> u32 {
        if self.at.is_place() { 0 } else { self.at.0 }
    }

    #[inline(always)]
    pub(super) fn is_at_array(&self) -> bool {
        self.at.is_place() && self.at.kind().wrapping_sub(1) < MOST_BITS
    }

    #[inline(always)]
    pub(super) fn is_at_leaf(&self) -> bool {
        self.at.0 >> KIND_SHIFT == PLACE >> KIND_SHIFT | LEAF
    }

    #[inline(always)]
    pub(super) fn is_at_wide_leaf(&self) -> bool {
        self.at.0 >> KIND_SHIFT == PLACE >> KIND_SHIFT | WIDE_LEAF
    }

    /// Where an array's element is.
    #[inline(always)]
    fn element(&self) -> usize {
        self.at.index() * UNIT + (self.bits >> (64 - self.at.kind())) as usize
    }

    #[inline(always)]
    pub(super) fn prefetch_array(&self, tries: &Tries) {
        prefetch(&tries.elements, self.element());
    }

    #[inline(always)]
    pub(super) fn prefetch_leaf(&self, tries: &Tries) {
        prefetch(&tries.leaves, self.at.index());
    }

    #[inline(always)]
    pub(super) fn prefetch_wide_leaf(&self, tries: &Tries) {
        prefetch(&tries.wide_leaves, self.at.index());
    }

    /// The step from an array.
    #[inline(always)]
    pub(super) fn read_array(self, tries: &Tries) -> Self {
        let at = tries.elements[self.element()];
        Self { at, bits: self.bits << self.at.kind(), ..self }
    }

    /// The step from a leaf, the last.
    #[inline(always)]
    pub(super) fn read_leaf(self, tries: &Tries) -> Self {
        let leaf = &tries.leaves[self.at.index()];
        let at = leaf.answers[below_u16(&leaf.lasts, (self.bits >> 48) as u16)];
        Self { at, ..self }
    }

    /// The same from a wide one.
    #[inline(always)]
    pub(super) fn read_wide_leaf(self, tries: &Tries) -> Self {
        let leaf = &tries.wide_leaves[self.at.index()];
        let at = leaf.answers[below_u32(&leaf.lasts, (self.bits >> 32) as u32)];
        Self { at, ..self }
    }
}

/// How many of the numbers lie below one; counted in numbers of their own size, all at once.
#[inline(always)]
fn below_u16(numbers: &[u16; 10], one: u16) -> usize {
    let count: u16 = numbers.iter().map(|&number| u16::from(number < one)).sum();
    usize::from(count)
}

#[inline(always)]
fn below_u32(numbers: &[u32; 7], one: u32) -> usize {
    let count: u32 = numbers.iter().map(|&number| u32::from(number < one)).sum();
    count as usize
}

/// Tries under construction.
#[derive(Debug, Default)]
pub(super) struct Builder {
    elements: Vec<Ref>,
    leaves: Vec<Leaf>,
    wide_leaves: Vec<WideLeaf>,
}

/// The last address of a stretch, and its answer.
pub(super) type Stretch = (u32, Ref);

impl Builder {
    /// Writes a trie for all addresses, whose first array takes sixteen bits.
    pub(super) fn write_root(&mut self, stretches: &[Stretch]) -> Ref {
        match stretches {
            [(_, all)] => *all,
            _ => self.write_array(stretches, 0, 32, MOST_BITS),
        }
    }

    /// Writes a trie for the 2^bits addresses from `first` on, which the stretches cover; the first of
    /// them may begin before and the last go on.
    pub(super) fn write(&mut self, stretches: &[Stretch], first: u32, bits: u32) -> Ref {
        match stretches.len() {
            1 => stretches[0].1,
            2..=11 if bits <= 16 => self.write_leaf(stretches, first, bits),
            2..=8 => self.write_wide_leaf(stretches, first, bits),
            // So dense that all answers may stand side by side.
            many if bits <= MOST_BITS && 1 << bits <= DENSE * many => {
                self.write_array(stretches, first, bits, bits)
            }
            many => {
                let wanted = many.div_ceil(LOAD).next_power_of_two().ilog2();
                self.write_array(stretches, first, bits, wanted.clamp(LEAST_BITS, MOST_BITS))
            }
        }
    }

    /// An array that leads on by port: the references of those ports that have one, ascending.
    pub(super) fn write_ports(&mut self, ports: &[(u16, Ref)]) -> Ref {
        if ports.is_empty() {
            return Ref::NONE;
        }
        let (start, array) = self.add_array(MOST_BITS);
        for &(port, reference) in ports {
            self.elements[start + usize::from(port)] = reference;
        }
        array
    }

    fn write_array(&mut self, stretches: &[Stretch], first: u32, bits: u32, takes: u32) -> Ref {
        // Fewer bits than an array takes at least cannot hold more stretches than a leaf.
        let takes = takes.min(bits);
        let left = bits - takes;
        let (start, array) = self.add_array(takes);
        let mut rest = stretches;
        for element in 0..1_usize << takes {
            let first = first + ((element as u64) << left) as u32;
            let last = first + (((1_u64 << left) - 1) as u32);
            let here = rest.iter().take_while(|stretch| stretch.0 < last).count() + 1;
            self.elements[start + element] = self.write(&rest[..here], first, left);
            let ends_here = usize::from(rest[here - 1].0 == last);
            rest = &rest[here - 1 + ends_here..];
        }
        array
    }

    fn add_array(&mut self, takes: u32) -> (usize, Ref) {
        let start = self.elements.len();
        self.elements.resize(start + (1 << takes), Ref::NONE);
        (start, Ref::place(takes, start / UNIT))
    }

    fn write_leaf(&mut self, stretches: &[Stretch], first: u32, bits: u32) -> Ref {
        let mut leaf = Leaf { lasts: [u16::MAX; 10], answers: [Ref::NONE; 11] };
        for (at, &(last, answer)) in stretches.iter().enumerate() {
            leaf.answers[at] = answer;
            if at + 1 < stretches.len() {
                leaf.lasts[at] = (highest(last - first, bits) >> 16) as u16;
            }
        }
        self.leaves.push(leaf);
        Ref::place(LEAF, self.leaves.len() - 1)
    }

    fn write_wide_leaf(&mut self, stretches: &[Stretch], first: u32, bits: u32) -> Ref {
        let mut leaf = WideLeaf { lasts: [u32::MAX; 7], answers: [Ref::NONE; 8] };
        for (at, &(last, answer)) in stretches.iter().enumerate() {
            leaf.answers[at] = answer;
            if at + 1 < stretches.len() {
                leaf.lasts[at] = highest(last - first, bits);
            }
        }
        self.wide_leaves.push(leaf);
        Ref::place(WIDE_LEAF, self.wide_leaves.len() - 1)
    }

    /// The finished tries; `None`: they have more than places can name.
    pub(super) fn finish(self) -> Option<Tries> {
        let most = 1 << KIND_SHIFT;
        let fits = self.elements.len() / UNIT <= most
            && self.leaves.len() <= most
            && self.wide_leaves.len() <= most;
        fits.then(|| Tries {
            elements: self.elements.into(),
            leaves: self.leaves.into(),
            wide_leaves: self.wide_leaves.into(),
        })
    }
}

/// The greatest number of 32 bits that has these as its highest.
fn highest(number: u32, bits: u32) -> u32 {
    (((u64::from(number) + 1) << (32 - bits)) - 1) as u32
}
