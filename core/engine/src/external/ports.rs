//! The ports of one protocol on all external addresses: free ports, owners of the others, and the
//! search for a free port.
//!
//! A free port is drawn: a random word of the address's bitmap, and in it the first free port from
//! a random one on. If free ports are rare, they are counted instead, with the help of counts by
//! group. So finding one of a few free ports takes at most some hundred steps.

use super::index_set::{IndexSet, Members};
use super::{GROUP_WORDS, GROUPS, PORTS, WORDS};
use crate::calendar::{Calendar, lane};
use crate::prefetch::prefetch_within;
use crate::random::Generator;
use crate::time::{TICK, nanos};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{self, RangeInclusive};

/// Entry of a port without a mapping: free, reserved, or in no pool.
pub(super) const EMPTY: u32 = 0;
/// Marks a port in hold-down. The other bits are the next port released with it.
pub(super) const HELD: u32 = 1 << 31;
/// The end of a list of held ports.
pub(super) const LAST: u32 = HELD - 1;

/// The longest hold-down that may be configured, ticks: an hour.
const MOST_HOLD: u32 = (3600 * 1_000_000_000 / nanos(TICK)) as u32;

/// Random draws before the free ports are counted.
const DRAWS: u32 = 8;
/// Ranges of at most this many words are counted at once. A draw would favour the ports at their
/// ends.
const FEW_WORDS: usize = 16;

const EVEN: u64 = 0x5555_5555_5555_5555;

/// A range of ports: one side of port 1024, all ports of a pool on one side, or a subscriber's
/// share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
}

/// Numbers of ports of an address.
#[derive(Clone, Copy, Debug)]
struct Counts {
    /// Free ports a group, even and odd.
    groups: [[u16; 2]; GROUPS],
    /// Free ports below 1024, and from 1024 on.
    free: [u32; 2],
    /// Held ports.
    held: u32,
}

impl Counts {
    const NONE: Self = Self { groups: [[0; 2]; GROUPS], free: [0; 2], held: 0 };
}

/// The ports of one protocol over all addresses.
#[derive(Clone, Debug)]
pub(super) struct Ports {
    /// A bit a free port, [`WORDS`] an address.
    pub(super) free: Vec<u64>,
    /// By address.
    counts: Vec<Counts>,
    /// Addresses with a free port below 1024, and with one from 1024 on.
    some_free: [IndexSet; 2],
    /// Free ports a pool: below 1024, and from 1024 on.
    pub(super) pool_count: Vec<[u32; 2]>,
    /// An entry a port, [`PORTS`] an address.
    pub(super) owner: Vec<u32>,
    /// Lists of ports in hold-down, by the tick of release.
    pub(super) holds: Calendar,
    /// Number of held ports of each pool.
    pub(super) pool_held: Vec<u32>,
    /// Hold-down of ports that mappings give back, ticks.
    pub(super) hold: u32,
}

impl Ports {
    /// Makes `addresses` addresses without free ports, and room for `room`. Memory beyond
    /// `addresses` is not touched. `hold` is the hold-down in ticks.
    pub(super) fn new(addresses: usize, room: usize, hold: u32) -> Self {
        let mut counts = Vec::with_capacity(room);
        counts.resize(addresses, Counts::NONE);
        Self {
            free: begun(vec![0; room * WORDS], addresses * WORDS),
            counts,
            some_free: [(); 2].map(|()| IndexSet::new(room)),
            pool_count: Vec::new(),
            owner: begun(vec![EMPTY; room * PORTS], addresses * PORTS),
            holds: Calendar::new(MOST_HOLD + 1),
            pool_held: Vec::new(),
            hold,
        }
    }

    /// Number of addresses.
    pub(super) fn addresses(&self) -> usize {
        self.owner.len() / PORTS
    }

    /// Adds an address.
    pub(super) fn grow(&mut self) {
        let addresses = self.addresses() + 1;
        self.free.resize(addresses * WORDS, 0);
        self.owner.resize(addresses * PORTS, EMPTY);
        self.counts.resize(addresses, Counts::NONE);
    }

    /// The place of a port of an address among all ports.
    #[inline(always)]
    pub(super) fn entry(address: u32, port: u16) -> usize {
        address as usize * PORTS + usize::from(port)
    }

    #[inline(always)]
    pub(super) fn is_free(&self, address: u32, port: u16) -> bool {
        self.free[address as usize * WORDS + usize::from(port) / 64] >> (port % 64) & 1 != 0
    }

    /// Prefetches the bit that says whether a port is free.
    pub(super) fn prefetch_free(&self, address: u32, port: u16) {
        prefetch_within(&self.free, address as usize * WORDS + usize::from(port) / 64);
    }

    /// Makes a port free that is not.
    #[inline(always)]
    pub(super) fn set_free(&mut self, address: u32, pool: usize, port: u16) {
        debug_assert!(!self.is_free(address, port));
        self.free[address as usize * WORDS + usize::from(port) / 64] |= 1 << (port % 64);
        self.count_free(address, pool, port, true);
    }

    /// Makes a port not free; returns false if it was not.
    #[inline(always)]
    pub(super) fn take_free(&mut self, address: u32, pool: usize, port: u16) -> bool {
        let word = &mut self.free[address as usize * WORDS + usize::from(port) / 64];
        let bit = 1 << (port % 64);
        if *word & bit == 0 {
            return false;
        }
        *word ^= bit;
        self.count_free(address, pool, port, false);
        true
    }

    /// Counts a free port of an address more, or less.
    #[inline(always)]
    fn count_free(&mut self, address: u32, pool: usize, port: u16, is_more: bool) {
        let counts = &mut self.counts[address as usize];
        let in_group = &mut counts.groups[usize::from(port) / (GROUP_WORDS * 64)];
        let in_group = &mut in_group[usize::from(port & 1)];
        *in_group = if is_more { *in_group + 1 } else { *in_group - 1 };
        let side = usize::from(port >= 1024);
        let (free, all) = (&mut counts.free[side], &mut self.pool_count[pool][side]);
        for count in [&mut *free, all] {
            *count = if is_more { *count + 1 } else { *count - 1 };
        }
        // The first free port has come, or the last one has gone.
        if *free == u32::from(is_more) {
            self.note_some_free(address, side);
        }
    }

    /// Notes whether an address has a free port on a side of port 1024.
    #[cold]
    fn note_some_free(&mut self, address: u32, side: usize) {
        let has_any = self.counts[address as usize].free[side] > 0;
        self.some_free[side].set(address, has_any);
    }

    /// Makes exactly those ports of an address free that are `usable` (by words) and have no owner.
    /// `pool` counts the free ports. `owned` is false if no port of the address has an owner.
    pub(super) fn renew(
        &mut self,
        address: u32,
        pool: Option<usize>,
        owned: bool,
        usable: &[u64; WORDS],
    ) {
        let owners = &self.owner[address as usize * PORTS..][..PORTS];
        let nobodys = |word: usize| -> u64 {
            let owners = owners[word * 64..][..64].iter().enumerate();
            owners.fold(0, |bits, (bit, &owner)| bits | u64::from(owner == EMPTY) << bit)
        };
        let words = &mut self.free[address as usize * WORDS..][..WORDS];
        for (number, (word, &bits)) in words.iter_mut().zip(usable).enumerate() {
            *word = if owned && bits != 0 { bits & nobodys(number) } else { bits };
        }
        let counts = &mut self.counts[address as usize];
        for (group, words) in counts.groups.iter_mut().zip(words.chunks(GROUP_WORDS)) {
            let count =
                |mask: u64| words.iter().map(|word| (word & mask).count_ones() as u16).sum();
            *group = [count(EVEN), count(EVEN << 1)];
        }
        let count = |words: &[u64]| words.iter().map(|word| word.count_ones()).sum();
        let (low, high) = words.split_at(1024 / 64);
        let now: [u32; 2] = [count(low), count(high)];
        let before = core::mem::replace(&mut counts.free, now);
        if let Some(pool) = pool {
            for (all, (now, before)) in
                self.pool_count[pool].iter_mut().zip(now.into_iter().zip(before))
            {
                *all = *all + now - before;
            }
        }
        (0..2).for_each(|side| self.note_some_free(address, side));
    }

    /// [`Ports::renew`] for some words of an address only. `usable` has all words.
    pub(super) fn renew_words(
        &mut self,
        address: u32,
        pool: usize,
        words: ops::Range<usize>,
        usable: &[u64; WORDS],
    ) {
        for word in words {
            let owners = self.owner[address as usize * PORTS + word * 64..][..64].iter();
            let nobodys = owners
                .enumerate()
                .fold(0, |bits, (bit, &owner)| bits | u64::from(owner == EMPTY) << bit);
            let now = usable[word] & nobodys;
            let free = &mut self.free[address as usize * WORDS + word];
            let before = core::mem::replace(free, now);
            let counts = &mut self.counts[address as usize];
            for (count, mask) in counts.groups[word / GROUP_WORDS].iter_mut().zip([EVEN, EVEN << 1])
            {
                let (now, before) = ((now & mask).count_ones(), (before & mask).count_ones());
                *count = *count + now as u16 - before as u16;
            }
            let side = usize::from(word >= 1024 / 64);
            for count in [&mut counts.free[side], &mut self.pool_count[pool][side]] {
                *count = *count + now.count_ones() - before.count_ones();
            }
        }
        (0..2).for_each(|side| self.note_some_free(address, side));
    }

    /// Enters a port that is not free in the list of a tick of release.
    pub(super) fn hold_until(&mut self, address: u32, port: u16, release: u32) {
        let entry = Self::entry(address, port);
        let lane = lane(entry as u32);
        let next = self.holds.push(release, lane, entry as u32);
        // `NONE` without its uppermost bit is `LAST`.
        self.owner[entry] = HELD | next;
    }

    /// Counts a held port of an address more, or less. `pool` is the address's pool, if it is in a
    /// pool.
    #[inline(always)]
    pub(super) fn count_held(&mut self, address: u32, pool: usize, is_more: bool) {
        let held = &mut self.counts[address as usize].held;
        *held = if is_more { *held + 1 } else { *held - 1 };
        if let Some(held) = self.pool_held.get_mut(pool) {
            *held = if is_more { *held + 1 } else { *held - 1 };
        }
    }

    /// Moves the count of an address's held ports to another pool.
    pub(super) fn move_held(&mut self, address: u32, from: usize, to: usize) {
        let held = self.counts[address as usize].held;
        if let Some(all) = self.pool_held.get_mut(from) {
            *all -= held;
        }
        if let Some(all) = self.pool_held.get_mut(to) {
            *all += held;
        }
    }

    /// Number of held ports of an address.
    pub(super) fn held_of(&self, address: u32) -> u32 {
        self.counts[address as usize].held
    }

    pub(super) fn free_in(&self, address: u32, range: Range) -> u32 {
        Self::in_range(self.counts[address as usize].free, range)
    }

    /// Number of free ports of an address on one side of port 1024.
    pub(super) fn free_on_side(&self, address: u32, is_low: bool) -> u32 {
        self.counts[address as usize].free[usize::from(!is_low)]
    }

    pub(super) fn in_range([low, high]: [u32; 2], range: Range) -> u32 {
        (if range.first < 1024 { low } else { 0 }) + if range.last >= 1024 { high } else { 0 }
    }

    /// The first of a pool's addresses that has a free port in a range, from the address with index
    /// `from` on, in a circle.
    pub(super) fn next_free(&self, members: &Members, from: u32, range: Range) -> Option<u32> {
        let [low, high] = &self.some_free;
        members.next(from, |word| {
            (if range.first < 1024 { low.word(word) } else { 0 })
                | if range.last >= 1024 { high.word(word) } else { 0 }
        })
    }

    /// Number of free ports in a range of an address.
    pub(super) fn count_within(&self, address: u32, range: Range) -> u32 {
        let free = &self.free[address as usize * WORDS..][..WORDS];
        range.words().map(|word| (free[word] & range.bits(word)).count_ones()).sum()
    }

    /// Number of held ports in a range of an address.
    pub(super) fn held_within(&self, address: u32, range: Range) -> u32 {
        let entries = Self::entry(address, range.first)..=Self::entry(address, range.last);
        self.owner[entries].iter().filter(|&&owner| owner & HELD != 0).count() as u32
    }

    // ---- choice of a port ----

    /// A random free port of an address, in a range and of a parity, by draws of bitmap words. If
    /// words with such a port are rare, every such port is equally likely.
    pub(super) fn choose(
        &self,
        address: u32,
        range: Range,
        parity: Parity,
        generator: &mut Generator,
    ) -> Option<u16> {
        //= rfc7857#section-9
        for _ in 0..DRAWS {
            // A range may end within a word.
            let port = self.pick(&range.draw(address, parity, generator));
            if port.is_some_and(|port| (range.first..=range.last).contains(&port)) {
                return port;
            }
        }
        //= rfc6888#REQ-13
        self.choose_counted(address, range, parity, generator)
    }

    /// [`Ports::choose`] for a range that may be small.
    pub(super) fn choose_within(
        &self,
        address: u32,
        range: Range,
        parity: Parity,
        generator: &mut Generator,
    ) -> Option<u16> {
        //= rfc7422#section-2-random
        if range.words().count() > FEW_WORDS {
            return self.choose(address, range, parity, generator);
        }
        self.choose_counted(address, range, parity, generator)
    }

    /// The first free port in a range of an address that has the parity and is not in `but`.
    pub(super) fn first_but(
        &self,
        address: u32,
        range: Range,
        parity: Parity,
        but: &[u16],
    ) -> Option<u16> {
        let words = &self.free[address as usize * WORDS..][..WORDS];
        range.words().find_map(|word| {
            let here = but.iter().filter(|&&port| usize::from(port) / 64 == word);
            let unwanted = here.fold(0_u64, |bits, port| bits | 1 << (port % 64));
            let bits = words[word] & parity.mask() & range.bits(word) & !unwanted;
            (bits != 0).then(|| (word * 64) as u16 + bits.trailing_zeros() as u16)
        })
    }

    /// The free port that a draw gives, if the word has one.
    #[inline(always)]
    pub(super) fn pick(&self, draw: &Draw) -> Option<u16> {
        let bits = self.free[draw.place()];
        if draw.turn >= Draw::EXACT {
            let bit = draw.turn % 64;
            return (bits >> bit & 1 != 0).then_some(draw.word * 64 + u16::from(bit));
        }
        let bits = bits & draw.parity.mask();
        let turn = u32::from(draw.turn);
        let bit = (bits.rotate_right(turn).trailing_zeros() + turn) % 64;
        (bits != 0).then_some(draw.word * 64 + bit as u16)
    }

    /// Chooses by counting: draws the number of a free port, then finds the port with that number.
    fn choose_counted(
        &self,
        address: u32,
        range: Range,
        parity: Parity,
        generator: &mut Generator,
    ) -> Option<u16> {
        let words = &self.free[address as usize * WORDS..][..WORDS];
        let bits = |word: usize| words[word] & parity.mask() & range.bits(word);
        // Groups that lie completely in the range are counted already.
        let in_group = |group: usize| -> u32 {
            if range.has_group(group) {
                let [even, odd] = self.counts[address as usize].groups[group];
                return match parity {
                    Parity::Even => u32::from(even),
                    Parity::Odd => u32::from(odd),
                    Parity::Any => u32::from(even) + u32::from(odd),
                };
            }
            range.words_of(group).map(|word| bits(word).count_ones()).sum()
        };
        let counts: [u32; GROUPS] = core::array::from_fn(in_group);
        let all: u32 = counts.iter().sum();
        if all == 0 {
            return None;
        }
        let mut which = generator.below(all);
        let group = counts.iter().position(|&count| {
            let here = which < count;
            which -= if here { 0 } else { count };
            here
        })?;
        let word = range.words_of(group).find(|&word| {
            let here = which < bits(word).count_ones();
            which -= if here { 0 } else { bits(word).count_ones() };
            here
        })?;
        let rest = (0..which).fold(bits(word), |rest, _| rest & (rest - 1));
        Some((word * 64) as u16 + rest.trailing_zeros() as u16)
    }
}

/// The first `len` elements of a list of zeros, with the capacity of all. Memory that is never
/// written takes no pages. (A list that grew beyond its capacity would be copied, and would take
/// all pages.)
fn begun<T>(mut list: Vec<T>, len: usize) -> Vec<T> {
    list.truncate(len);
    list
}

/// Parity that a port must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Parity {
    Even,
    Odd,
    Any,
}

impl Parity {
    /// Mask of the ports of a word that have the parity.
    #[inline(always)]
    fn mask(self) -> u64 {
        static MASKS: [u64; 3] = [EVEN, EVEN << 1, u64::MAX];
        MASKS[self as usize]
    }

    /// Result of a search with this parity; failing that, of a search with any parity.
    pub(super) fn or_any<T>(self, mut search: impl FnMut(Self) -> Option<T>) -> Option<T> {
        //= rfc7857#section-9-parity
        match search(self) {
            None if self != Self::Any => search(Self::Any),
            found => found,
        }
    }
}

/// A drawn word of an address's bitmap, the parity to find, and the bit at which the search begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    pub(super) address: u32,
    word: u16,
    turn: u8,
    parity: Parity,
}

impl Draw {
    /// Values of `turn` from this one on mean one exact port.
    const EXACT: u8 = 64;

    /// Draws exactly this port, if it is still free.
    pub(super) fn exactly(address: u32, port: u16) -> Self {
        let turn = Self::EXACT + (port % 64) as u8;
        Self { address, word: port / 64, turn, parity: Parity::Any }
    }

    /// The index of the address.
    pub(crate) fn index(&self) -> u32 {
        self.address
    }

    pub(super) fn place(&self) -> usize {
        self.address as usize * WORDS + usize::from(self.word)
    }
}

impl Range {
    /// The ports, first to last, that an internal port below 1024, or another, may have: if there
    /// are ports on both sides of 1024, ports on the internal port's side.
    pub(super) fn sides((first, last): (u16, u16)) -> [Self; 2] {
        //= rfc4787#REQ-3a
        //= rfc6146#section-3.5.1.1-well-known
        //= rfc6146#section-3.5.1.1-high
        //= rfc6146#section-3.5.2.3-well-known
        //= rfc6146#section-3.5.2.3-high
        if first >= 1024 || last < 1024 {
            return [Self { first, last }; 2];
        }
        [Self { first, last: 1023 }, Self { first: 1024, last }]
    }

    /// Draws a word of the bitmap, and the bit at which the search for a free port begins.
    #[inline]
    pub(super) fn draw(self, address: u32, parity: Parity, generator: &mut Generator) -> Draw {
        let (first, last) = (self.first / 64, self.last / 64);
        let random = generator.next_u32();
        //= rfc6056#section-4-obfuscate
        //= rfc6056#section-4-parity
        //= rfc6888#REQ-15
        let words = u64::from(last - first) + 1;
        // Six bits are the turn, the others choose among at most 1024 words: each is equally likely
        // up to one part in 2^16.
        let word = first + ((u64::from(random >> 6) * words) >> 26) as u16;
        Draw { address, word, turn: random as u8 % 64, parity }
    }

    /// The ports of a bitmap's word that are in the range.
    pub(super) fn bits(self, word: usize) -> u64 {
        let below = |port: usize| match port.saturating_sub(word * 64) {
            bits @ 0..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        below(usize::from(self.last) + 1) & !below(usize::from(self.first))
    }

    /// The words that have ports of the range.
    fn words(self) -> RangeInclusive<usize> {
        usize::from(self.first / 64)..=usize::from(self.last / 64)
    }

    /// The words that have ports of the range and are in a group.
    fn words_of(self, group: usize) -> RangeInclusive<usize> {
        let words = self.words();
        let (first, last) = (group * GROUP_WORDS, (group + 1) * GROUP_WORDS - 1);
        *words.start().max(&first)..=*words.end().min(&last)
    }

    /// True if all ports of a group are in the range.
    fn has_group(self, group: usize) -> bool {
        let (first, last) = (group * GROUP_WORDS * 64, (group + 1) * GROUP_WORDS * 64 - 1);
        // Port 0 is never given out.
        usize::from(self.first) <= first.max(1) && last <= usize::from(self.last)
    }
}
