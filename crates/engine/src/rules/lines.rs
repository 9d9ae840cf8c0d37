//! Maps from 16-bit numbers to references, laid out in cache lines.
//!
//! A map divides the numbers into parts, each with a reference: to another map, or an answer. It is
//! a search tree over the parts' last numbers whose nodes are single lines. A leaf has ten last
//! numbers and eleven references; an index has 32 last numbers and 33 children, which follow it. In
//! a line one counts the last numbers that lie below the one that is looked for, which needs no
//! branch. Two levels of indexes reach 11,979 parts; a map that has more is a plain array.

use crate::prefetch::prefetch;
use alloc::vec::Vec;

/// A cache line of numbers.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Line([u16; NUMBERS]);

const NUMBERS: usize = 32;
/// Parts of a leaf.
const LEAF: usize = 11;
/// Children of an index.
const CHILDREN: usize = NUMBERS + 1;
/// References in a line of an array.
const IN_ARRAY: usize = NUMBERS / 2;
/// Lines of an array.
const ARRAY_LINES: usize = (1 << 16) / IN_ARRAY;
/// Lines of an index and its leaves.
const BLOCK: usize = 1 + CHILDREN;
/// Parts of the largest search tree.
const MOST_PARTS: usize = LEAF * CHILDREN * CHILDREN;
/// What stands where there is no last number: no number lies above it.
const NO_LAST: u16 = u16::MAX;

/// A map, or an answer: a number below 2^31, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ref(u32);

/// Marks a map. Below it are two bits that say how its first line is read, and the line's place.
const MAP: u32 = 1 << 31;
const KIND_SHIFT: u32 = 29;
const LEAF_KIND: u32 = 0;
/// An index over leaves.
const INDEX_KIND: u32 = 1;
/// An index over indexes.
const UPPER_KIND: u32 = 2;
const ARRAY_KIND: u32 = 3;

/// Lines that references reach.
pub(super) const MOST_LINES: usize = 1 << KIND_SHIFT;

impl Ref {
    /// No answer.
    pub(super) const NONE: Self = Self(0);

    /// An answer.
    pub(super) const fn answer(number: u32) -> Self {
        Self(number)
    }

    fn map(kind: u32, line: usize) -> Self {
        debug_assert!(line < MOST_LINES);
        Self(MAP | kind << KIND_SHIFT | line as u32)
    }

    #[inline(always)]
    pub(super) fn is_map(self) -> bool {
        self.0 & MAP != 0
    }

    /// The answer; of a map something else.
    #[inline(always)]
    pub(super) fn number(self) -> u32 {
        self.0
    }

    #[inline(always)]
    fn kind(self) -> u32 {
        self.0 >> KIND_SHIFT & 3
    }

    #[inline(always)]
    fn first(self) -> usize {
        (self.0 & (MOST_LINES as u32 - 1)) as usize
    }

    /// The line that a search for `number` reads here.
    #[inline(always)]
    fn line(self, number: u16) -> usize {
        let into = if self.kind() == ARRAY_KIND { usize::from(number) / IN_ARRAY } else { 0 };
        self.first() + into
    }
}

impl Line {
    /// How many of its first numbers lie below one.
    #[inline(always)]
    fn below<const N: usize>(&self, number: u16) -> usize {
        let count: u16 = self.0[..N].iter().map(|&last| u16::from(last < number)).sum();
        usize::from(count)
    }

    /// The reference that stands at a pair of numbers.
    #[inline(always)]
    fn reference(&self, at: usize) -> Ref {
        Ref(u32::from(self.0[at]) | u32::from(self.0[at + 1]) << 16)
    }

    fn set_reference(&mut self, at: usize, reference: Ref) {
        self.0[at] = reference.0 as u16;
        self.0[at + 1] = (reference.0 >> 16) as u16;
    }
}

/// A search through maps: where it is, and the numbers that it still goes by, the next one lowest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) at: Ref,
    pub(super) numbers: u64,
}

impl Walk {
    /// Fetches the line that the next step reads.
    #[inline(always)]
    pub(super) fn prefetch(&self, lines: &[Line]) {
        if self.at.is_map() {
            prefetch(lines, self.at.line(self.numbers as u16));
        }
    }

    /// Reads a line, if it is at a map.
    #[inline(always)]
    pub(super) fn step(&mut self, lines: &[Line]) {
        if !self.at.is_map() {
            return;
        }
        let number = self.numbers as u16;
        let line = &lines[self.at.line(number)];
        let first = self.at.first();
        self.at = match self.at.kind() {
            UPPER_KIND => Ref::map(INDEX_KIND, first + 1 + BLOCK * line.below::<NUMBERS>(number)),
            INDEX_KIND => Ref::map(LEAF_KIND, first + 1 + line.below::<NUMBERS>(number)),
            LEAF_KIND => {
                self.numbers >>= 16;
                line.reference(LEAF - 1 + 2 * line.below::<{ LEAF - 1 }>(number))
            }
            _ => {
                self.numbers >>= 16;
                line.reference(2 * (usize::from(number) % IN_ARRAY))
            }
        };
    }
}

/// A map under construction: last number and reference of each part, ascending.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<(u16, Ref)>);

impl Parts {
    /// Adds the part that goes on to `last`; it joins the one before if they come to the same.
    pub(super) fn push(&mut self, last: u16, reference: Ref) {
        match self.0.last_mut() {
            Some((end, same)) if *same == reference => *end = last,
            _ => self.0.push((last, reference)),
        }
    }

    /// Writes the map behind the others, and starts afresh. The parts cover all numbers.
    pub(super) fn write(&mut self, lines: &mut Vec<Line>) -> Ref {
        debug_assert_eq!(self.0.last().map(|part| part.0), Some(u16::MAX));
        let parts = &self.0[..];
        let place = lines.len();
        let map = match parts {
            [(_, same)] => *same,
            _ if parts.len() <= LEAF => {
                write_leaf(parts, lines);
                Ref::map(LEAF_KIND, place)
            }
            _ if parts.len() <= LEAF * CHILDREN => {
                write_block(parts, lines);
                Ref::map(INDEX_KIND, place)
            }
            _ if parts.len() <= MOST_PARTS => {
                write_index(parts, LEAF * CHILDREN, lines);
                for parts in parts.chunks(LEAF * CHILDREN) {
                    write_block(parts, lines);
                }
                Ref::map(UPPER_KIND, place)
            }
            _ => {
                write_array(parts, lines);
                Ref::map(ARRAY_KIND, place)
            }
        };
        self.0.clear();
        map
    }
}

/// An index over leaves, and the leaves.
fn write_block(parts: &[(u16, Ref)], lines: &mut Vec<Line>) {
    write_index(parts, LEAF, lines);
    for parts in parts.chunks(LEAF) {
        write_leaf(parts, lines);
    }
}

/// The last number of every child but the last, children having `each` parts.
fn write_index(parts: &[(u16, Ref)], each: usize, lines: &mut Vec<Line>) {
    let mut line = Line([NO_LAST; NUMBERS]);
    let children = parts.chunks(each);
    let lasts = children.filter_map(<[_]>::last).take(parts.len().div_ceil(each) - 1);
    for (number, (last, _)) in line.0.iter_mut().zip(lasts) {
        *number = *last;
    }
    lines.push(line);
}

fn write_leaf(parts: &[(u16, Ref)], lines: &mut Vec<Line>) {
    let mut line = Line([NO_LAST; NUMBERS]);
    for (at, (last, reference)) in parts.iter().enumerate() {
        if at + 1 < parts.len() {
            line.0[at] = *last;
        }
        line.set_reference(LEAF - 1 + 2 * at, *reference);
    }
    lines.push(line);
}

fn write_array(parts: &[(u16, Ref)], lines: &mut Vec<Line>) {
    let place = lines.len();
    lines.resize(place + ARRAY_LINES, Line([0; NUMBERS]));
    let mut next = 0;
    for (last, reference) in parts {
        for number in next..=usize::from(*last) {
            let line = &mut lines[place + number / IN_ARRAY];
            line.set_reference(2 * (number % IN_ARRAY), *reference);
        }
        next = usize::from(*last) + 1;
    }
}

const _: () = assert!(size_of::<Line>() == 64 && LEAF - 1 + 2 * LEAF == NUMBERS);
