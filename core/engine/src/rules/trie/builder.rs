//! Writing tries, from stretches of addresses that follow each other and have one answer each.

use super::{LEAST_BITS, Leaf, Leaves, MOST_BITS, Ref, Root, Tries, UNIT, WideLeaf};
use alloc::vec;
use alloc::vec::Vec;

/// Stretches to an element of an array, about.
const LOAD: usize = 3;
/// Elements to a stretch, at most, where an array has an answer for each address.
const DENSE: usize = 2;
/// Bits that an array for few stretches may always take: those that crowd together are parted soon,
/// so that no trie is deep.
const FEW_BITS: u32 = 6;

/// The last address of a stretch, and its answer.
pub(in super::super) type Stretch = (u32, Ref);

/// One in so many may take longer than the others, and costs them no step.
const STRAGGLERS: usize = 64;

/// Tries under construction.
#[derive(Debug)]
pub(in super::super) struct Builder {
    elements: Vec<Ref>,
    pub(super) leaves: Vec<Leaf>,
    pub(super) wide_leaves: Vec<WideLeaf>,
    /// Of the present trie: how many stretches are found after so many arrays.
    depths: [usize; DEPTHS],
}

/// More arrays than there can be, one after the other.
const DEPTHS: usize = 32 / LEAST_BITS as usize + 2;

/// Addresses that a trie has answers for, by how far they are from its first.
#[derive(Clone, Copy, Debug)]
struct Region {
    first: u32,
    bits: u32,
}

impl Region {
    fn last(self) -> u32 {
        self.first + mask(self.bits)
    }

    /// One of the parts that an array divides it into.
    fn part(self, element: usize, takes: u32) -> Self {
        let bits = self.bits - takes;
        Self { first: self.first + ((element as u64) << bits) as u32, bits }
    }
}

/// Where stretches are written: theirs is a region, `around` it are those that may share its
/// leaves.
#[derive(Clone, Copy, Debug)]
struct Place {
    region: Region,
    around: Region,
    /// Arrays that lead here.
    depth: usize,
}

impl Default for Builder {
    /// With one element and leaf of each sort, for searches that have come to their end sooner.
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

    /// The first address of a trie that is searched by port and address. No rule looks at addresses
    /// outside `first` to `last`.
    pub(in super::super) fn base_of_ports(first: u32, last: u32) -> u32 {
        first & !mask(bits_between(first, last))
    }

    /// Writes a trie that is asked by address alone. Here and below, the stretches cover all
    /// addresses, which are counted from a base; no rule looks at one beyond `last`.
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

    /// Writes a trie for one port, of those that are asked by port and address.
    pub(in super::super) fn write_port(&mut self, stretches: &[Stretch], last: u32) -> Ref {
        let region = Region { first: 0, bits: bits_between(0, last) };
        let here = Rest { stretches }.take(region);
        let place = Place { region, around: region, depth: 0 };
        self.write::<WideLeaf>(here, here, place, &mut None)
    }

    /// Leads on by port: to what was written for those that have something, ascending.
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

    /// Writes what is in a region, whose stretches are `here`; `on` has what follows them around it
    /// as well, with which a leaf is filled up. `leaf` is the one that was begun last there, and
    /// the stretches from its first on.
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
            // The one begun last has them all.
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

    /// Arrays by which all but a few come, in what was written since it was asked last.
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

    /// The finished tries; `None`: they have more than places can name.
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

/// The upper end of so many bits.
fn mask(bits: u32) -> u32 {
    ((1_u64 << bits) - 1) as u32
}

/// Bits that addresses from one to another may differ in, at least one.
fn bits_between(first: u32, last: u32) -> u32 {
    32 - ((first ^ last) | 1).leading_zeros()
}

/// Bits that an array for these stretches takes: as few as leave few of them to further arrays;
/// where that would take too many, as if they were spread evenly.
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

/// Stretches in those parts of so many bits that have more than a leaf takes.
fn crowded<L: Leaves>(stretches: &[Stretch], bits: u32) -> usize {
    let parts = stretches.chunk_by(|one, other| one.0 >> bits == other.0 >> bits);
    // One more goes on from there.
    parts.map(<[Stretch]>::len).filter(|&len| len >= L::MOST).sum()
}

/// Stretches that are taken from the front, region by region.
struct Rest<'a> {
    stretches: &'a [Stretch],
}

impl<'a> Rest<'a> {
    /// Those that have addresses in the next region.
    fn take(&mut self, region: Region) -> &'a [Stretch] {
        let (all, last) = (self.stretches, region.last());
        let count = all.iter().take_while(|stretch| stretch.0 < last).count() + 1;
        let ends_here = usize::from(all[count - 1].0 == last);
        self.stretches = &all[count - 1 + ends_here..];
        &all[..count]
    }
}
