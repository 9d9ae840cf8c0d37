//! The writing of tries, from consecutive stretches of addresses with one answer each.

use super::{LEAST_BITS, Leaf, Leaves, MOST_BITS, Ref, Root, Tries, UNIT, WideLeaf};
use alloc::vec;
use alloc::vec::Vec;

/// Approximate number of stretches for each element of an array.
const LOAD: usize = 3;
/// Most elements for each stretch, in an array with an answer for each address.
const DENSE: usize = 2;
/// Bits that an array for few stretches may always consume. Crowded stretches are then separated
/// soon, so that no trie is deep.
const FEW_BITS: u32 = 6;

/// The last address of a stretch, and its answer.
pub(in super::super) type Stretch = (u32, Ref);

/// One stretch in this many may need more steps than the others, so that the others need fewer.
const STRAGGLERS: usize = 64;

/// Tries under construction.
#[derive(Debug)]
pub(in super::super) struct Builder {
    elements: Vec<Ref>,
    pub(super) leaves: Vec<Leaf>,
    pub(super) wide_leaves: Vec<WideLeaf>,
    /// Number of stretches that are found after each number of arrays, in the present trie.
    depths: [usize; DEPTHS],
}

/// More than the largest number of consecutive arrays.
const DEPTHS: usize = 32 / LEAST_BITS as usize + 2;

/// Addresses that a trie has answers for, as distances from its first address.
#[derive(Clone, Copy, Debug)]
struct Region {
    first: u32,
    bits: u32,
}

impl Region {
    fn last(self) -> u32 {
        self.first + mask(self.bits)
    }

    /// One of the parts into which an array divides the region.
    fn part(self, element: usize, takes: u32) -> Self {
        let bits = self.bits - takes;
        Self { first: self.first + ((element as u64) << bits) as u32, bits }
    }
}

/// Target of stretches that are written: their region, and the region `around` whose stretches may
/// share its leaves.
#[derive(Clone, Copy, Debug)]
struct Place {
    region: Region,
    around: Region,
    /// Number of arrays before this place.
    depth: usize,
}

impl Default for Builder {
    /// Makes one array and one leaf of each kind, for searches that have finished early.
    fn default() -> Self {
        Self {
            elements: vec![Ref::NONE; UNIT],
            leaves: vec![Leaf::of(&[], 0)],
            wide_leaves: vec![WideLeaf::of(&[], 0)],
            depths: [0; DEPTHS],
        }
    }
}

impl Builder {
    /// The first address of a trie that is searched by address alone.
    pub(in super::super) fn base(first: u32) -> u32 {
        first & !mask(Leaf::BITS)
    }

    /// The first address of a trie that is searched by port and address. All rules are within
    /// `first` to `last`.
    pub(in super::super) fn base_of_ports(first: u32, last: u32) -> u32 {
        first & !mask(bits_between(first, last))
    }

    /// Writes a trie that is searched by address alone. Here and below, the stretches cover all
    /// addresses, which count from a base. All rules are within `last`.
    pub(in super::super) fn write_addresses(
        &mut self,
        stretches: &[Stretch],
        base: u32,
        last: u32,
    ) -> Root {
        let slices = (last >> Leaf::BITS) as usize + 1;
        let start = self.add_elements(slices + 1);
        let mut rest = Rest { stretches };
        for slice in 0..slices {
            let region = Region { first: (slice as u32) << Leaf::BITS, bits: Leaf::BITS };
            let here = rest.take(region);
            let place = Place { region, around: region, depth: 0 };
            self.elements[start + slice] = self.write::<Leaf>(here, here, place, &mut None);
        }
        let (steps, skip) = (self.take_steps(), 32 - Leaf::BITS);
        Root { first: base, start, last: slices as u32, steps, skip }
    }

    /// Writes the trie of one port, for searches by port and address.
    pub(in super::super) fn write_port(&mut self, stretches: &[Stretch], last: u32) -> Ref {
        let region = Region { first: 0, bits: bits_between(0, last) };
        let here = Rest { stretches }.take(region);
        let place = Place { region, around: region, depth: 0 };
        self.write::<WideLeaf>(here, here, place, &mut None)
    }

    /// Writes the array of ports that leads to the tries of ports, ascending.
    pub(in super::super) fn write_ports(
        &mut self,
        ports: &[(u16, Ref)],
        base: u32,
        last: u32,
    ) -> Option<Root> {
        let most = u32::from(ports.last()?.0) + 1;
        let start = self.add_elements(most as usize + 1);
        for &(port, place) in ports {
            self.elements[start + usize::from(port)] = place;
        }
        let (steps, skip) = (self.take_steps(), 32 - bits_between(0, last));
        Some(Root { first: base, start, last: most, steps, skip })
    }

    /// Writes a region with the stretches `here`. `on` also has the stretches that follow around
    /// it, which fill up a leaf. `leaf` is the last leaf begun there, with the stretches from its
    /// first on.
    fn write<'a, L: Leaves>(
        &mut self,
        here: &'a [Stretch],
        on: &'a [Stretch],
        place: Place,
        leaf: &mut Option<(Ref, &'a [Stretch])>,
    ) -> Ref {
        if here.len() > L::MOST {
            return self.write_array::<L>(here, place);
        }
        self.depths[place.depth] += here.len();
        match (here, *leaf) {
            (&[(_, all)], _) => all,
            // The last leaf has all these stretches.
            (_, Some((place, its))) if its.len() - on.len() + here.len() <= L::MOST => place,
            _ => {
                let leaves = L::written(self);
                let reference = Ref::leaf(leaves.len());
                leaves.push(L::of(on, place.around.last()));
                *leaf = Some((reference, on));
                reference
            }
        }
    }

    fn write_array<L: Leaves>(&mut self, stretches: &[Stretch], place: Place) -> Ref {
        let takes = wanted_bits::<L>(stretches, place.region);
        let start = self.add_elements(1 << takes);
        let mut rest = Rest { stretches };
        let mut leaf = None;
        for element in 0..1 << takes {
            let region = place.region.part(element, takes);
            let on = rest.stretches;
            let here = rest.take(region);
            let place = Place { region, around: place.region, depth: place.depth + 1 };
            self.elements[start + element] = self.write::<L>(here, on, place, &mut leaf);
        }
        Ref::array(takes, start)
    }

    /// Number of arrays that all but a few searches visit, in the trie written since the last call.
    fn take_steps(&mut self) -> u32 {
        let depths = core::mem::replace(&mut self.depths, [0; DEPTHS]);
        let few = depths.iter().sum::<usize>() / STRAGGLERS;
        let deeper = |steps: usize| depths[steps + 1..].iter().sum::<usize>();
        (0..DEPTHS).find(|&steps| deeper(steps) <= few).unwrap_or(0) as u32
    }

    fn add_elements(&mut self, count: usize) -> usize {
        let start = self.elements.len();
        self.elements.resize(start + count.next_multiple_of(UNIT), Ref::NONE);
        start
    }

    /// The finished tries; `None`: they need more places than a [`Ref`] can name.
    pub(in super::super) fn finish(self) -> Option<Tries> {
        let most = 1 << super::KIND_SHIFT;
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

/// A mask of the lowest `bits` bits.
fn mask(bits: u32) -> u32 {
    ((1_u64 << bits) - 1) as u32
}

/// Number of bits in which addresses from `first` to `last` may differ, at least one.
fn bits_between(first: u32, last: u32) -> u32 {
    32 - ((first ^ last) | 1).leading_zeros()
}

/// Number of bits that an array for these stretches consumes: the fewest that leave only few
/// stretches to further arrays. If that number is too large, the number for evenly spread
/// stretches.
fn wanted_bits<L: Leaves>(stretches: &[Stretch], region: Region) -> u32 {
    let many = stretches.len();
    let most = MOST_BITS.min(region.bits);
    if region.bits <= MOST_BITS && 1 << region.bits <= DENSE * many {
        return most;
    }
    let bits = |load: usize| (many / load).max(1).ilog2().clamp(LEAST_BITS.min(most), most);
    let limit = bits(1).max(FEW_BITS.min(most));
    let parts = |takes: &u32| crowded::<L>(stretches, region.bits - takes) <= many / STRAGGLERS;
    let spread = if many >> FEW_BITS > LOAD { bits(LOAD) } else { limit };
    (bits(2 * LOAD)..=limit).find(parts).unwrap_or(spread)
}

/// Number of stretches in parts of `bits` bits with more stretches than a leaf takes.
fn crowded<L: Leaves>(stretches: &[Stretch], bits: u32) -> usize {
    let parts = stretches.chunk_by(|one, other| one.0 >> bits == other.0 >> bits);
    // One more stretch continues from there.
    parts.map(<[Stretch]>::len).filter(|&len| len >= L::MOST).sum()
}

/// Stretches that are taken from the front, region by region.
struct Rest<'a> {
    stretches: &'a [Stretch],
}

impl<'a> Rest<'a> {
    /// The stretches that have addresses in the next region.
    fn take(&mut self, region: Region) -> &'a [Stretch] {
        let (all, last) = (self.stretches, region.last());
        let count = all.iter().take_while(|stretch| stretch.0 < last).count() + 1;
        let ends_here = usize::from(all[count - 1].0 == last);
        self.stretches = &all[count - 1 + ends_here..];
        &all[..count]
    }
}
