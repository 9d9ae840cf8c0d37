//! The part of the external ports that belongs to this engine, if several engines share the work.
//!
//! The engines have one configuration and know the same addresses and ports. Each engine gives out
//! only its own ports. Ports change hands in stretches of whole bitmap words, at any time, if no
//! port of the stretch has an owner. Ports that follow from the subscriber's address belong to
//! every engine: the engine of the subscriber uses them.

use super::index_set::IndexSet;
use super::{EMPTY, ExternalPorts, HELD, Mode, PORTS, Ports, WORDS};
use crate::BlockId;
use crate::endpoint::External;
use crate::protocols::PROTOCOLS;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Words of ports below 1024.
const LOW_WORDS: usize = 1024 / 64;

/// Addresses that a search for idle words reads if the one with the most free ports has none.
const MORE_ADDRESSES: usize = 3;

/// Addresses and blocks that one search for a split block reads.
const BLOCKS_A_LOOK: usize = 256;

/// A bit for each word of an address's ports.
type Words = [u64; WORDS / 64];

const NO_WORDS: Words = [0; WORDS / 64];

/// Protocols and numbers of held ports.
pub(crate) type HeldPorts = Vec<(u8, u16)>;

/// The ports that this engine gives out.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// `None`: all ports.
    owned: Option<Owned>,
}

/// The engine's own ports.
#[derive(Clone, Debug)]
struct Owned {
    /// Words by the address's index.
    words: Vec<Words>,
    /// The addresses with own words.
    addresses: IndexSet,
    /// The index of an address, and a word: the next block to be looked at whether this engine has
    /// it in part.
    next_block: (u32, usize),
}

impl Owned {
    fn set(&mut self, index: u32, words: Words) {
        self.words[index as usize] = words;
        self.addresses.set(index, words != NO_WORDS);
    }
}

impl Part {
    /// True if several engines share the work.
    pub(super) fn is_divided(&self) -> bool {
        self.owned.is_some()
    }

    /// Mask of a word's ports that belong to the engine: all or none.
    #[inline]
    pub(super) fn mask(&self, index: u32, word: usize) -> u64 {
        let bits = |owned: &Owned| owned.words[index as usize][word / 64] >> (word % 64) & 1;
        self.owned.as_ref().map_or(u64::MAX, |owned| bits(owned).wrapping_neg())
    }

    /// True if a port belongs to the engine.
    #[inline]
    pub(super) fn has(&self, index: u32, port: u16) -> bool {
        self.mask(index, usize::from(port) / 64) != 0
    }

    /// True if all ports of a range belong to the engine.
    pub(super) fn has_all(&self, index: u32, (first, last): (u16, u16)) -> bool {
        let Some(owned) = &self.owned else { return true };
        let (first, last) = (usize::from(first) / 64, usize::from(last) / 64);
        let words = &owned.words[index as usize];
        (first / 64..=last / 64).all(|at| {
            let from = if at == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
            let to = if at == last / 64 { u64::MAX >> (63 - last % 64) } else { u64::MAX };
            !words[at] & from & to == 0
        })
    }

    /// The addresses of which a port belongs to the engine, by their indexes from 64 * `word` on: a
    /// bit each.
    pub(super) fn addresses(&self, word: u32) -> u64 {
        self.owned.as_ref().map_or(u64::MAX, |owned| owned.addresses.word(word))
    }

    /// True if any port of an address belongs to the engine.
    pub(super) fn has_any(&self, index: u32) -> bool {
        self.addresses(index / 64) >> (index % 64) & 1 != 0
    }

    /// True if some ports of an address belong to the engine, and others do not.
    fn is_split(&self, index: u32) -> bool {
        let words = self.owned.as_ref().map(|owned| &owned.words[index as usize]);
        words.is_some_and(|words| *words != NO_WORDS && *words != [u64::MAX; WORDS / 64])
    }

    /// Takes all ports of a new external address from the engine.
    pub(super) fn forget(&mut self, index: u32) {
        if let Some(owned) = &mut self.owned {
            owned.set(index, NO_WORDS);
        }
    }

    fn set(&mut self, index: u32, word: usize, is_own: bool) {
        let Some(owned) = &mut self.owned else { return };
        let mut words = owned.words[index as usize];
        let (word, bit) = (&mut words[word / 64], 1 << (word % 64));
        *word = if is_own { *word | bit } else { *word & !bit };
        owned.set(index, words);
    }

    /// Divides the ports of `room` addresses. These words of each of them are the engine's own.
    fn divide(&mut self, room: usize, words: Words) {
        let mut addresses = IndexSet::new(room);
        (0..room as u32).for_each(|index| addresses.set(index, words != NO_WORDS));
        let (words, next_block) = (vec![words; room], (0, 0));
        self.owned = Some(Owned { words, addresses, next_block });
    }
}

impl ExternalPorts {
    /// Gives out only the engine's own ports from now on. At first it has none.
    pub(crate) fn divide(&mut self) {
        self.part.divide(self.room, NO_WORDS);
        for index in 0..self.slots.len() as u32 {
            self.renew_all(index);
        }
    }

    /// Gives out only the engine's own ports from now on. At first it has all.
    pub(crate) fn divide_as_it_is(&mut self) {
        self.part.divide(self.room, [u64::MAX; WORDS / 64]);
    }

    /// Gives out these ports of an address from now on. `words` counts words of 64 ports.
    pub(crate) fn own(&mut self, index: u32, words: Range<usize>) {
        // After a reload most words are the engine's own already.
        if words.clone().any(|word| self.part.mask(index, word) == 0) {
            self.pass_on(index, words, true);
        }
    }

    /// True if a word of 64 ports of an address is the engine's own.
    pub(crate) fn owns(&self, index: u32, word: usize) -> bool {
        self.part.mask(index, word) != 0
    }

    /// Gives out exactly these words of ports of an address from now on.
    pub(crate) fn own_only(&mut self, index: u32, own: &[Range<usize>]) {
        let Some(owned) = &self.part.owned else { return };
        let (before, mut after) = (owned.words[index as usize], NO_WORDS);
        for word in own.iter().cloned().flatten().filter(|word| *word < WORDS) {
            after[word / 64] |= 1 << (word % 64);
        }
        if before == after {
            return;
        }
        let has = |words: &Words, word: usize| words[word / 64] >> (word % 64) & 1 != 0;
        let mut first = 0;
        while first < WORDS {
            let is_own = has(&after, first);
            let changes =
                |word: &usize| has(&after, *word) == is_own && has(&before, *word) != is_own;
            let end = first + (first..WORDS).take_while(changes).count();
            if end > first {
                self.pass_on(index, first..end, is_own);
            }
            first = end.max(first + 1);
        }
    }

    /// Gives words of ports to this engine (`is_own`), or takes them from it.
    pub(super) fn pass_on(&mut self, index: u32, words: Range<usize>, is_own: bool) {
        words.clone().for_each(|word| self.part.set(index, word, is_own));
        let pool = self.pool_of(index);
        for protocol in 0..PROTOCOLS.len() {
            let mut bits = [0; WORDS];
            let given_out = self.given_out(index, protocol, words.clone());
            bits[words.clone()].iter_mut().zip(given_out).for_each(|(bits, all)| *bits = all);
            if pool < self.pools.len() {
                let words = words.clone();
                match words == (0..WORDS) {
                    // Whole addresses change hands when no port is in use.
                    true => {
                        let is_busy = self.slots[index as usize].busy > 0;
                        self.ports[protocol].renew(index, Some(pool), is_busy, &bits);
                    }
                    false => self.ports[protocol].renew_words(index, pool, words, &bits),
                }
                self.count_shares(index, protocol);
            }
        }
    }

    /// Gives up at most `most` consecutive words of ports without owners, on one side of port 1024.
    /// The words are of address `only`, or of one of the pool
    /// ([`ExternalPorts::idle_words_of_pool`]). A pool with blocks gives up whole blocks: otherwise
    /// no engine could give the block to a subscriber ([`crate::Blocking::words_of_block`]).
    pub(crate) fn cede(
        &mut self,
        pool: usize,
        only: Option<u32>,
        is_low: bool,
        most: usize,
    ) -> Option<(u32, Range<usize>)> {
        self.part.owned.as_ref()?;
        if self.is_whole(pool) {
            return self.cede_whole(pool);
        }
        let (index, words) = match only {
            Some(index) if !self.is_open(index, pool) => return None,
            Some(index) => (index, self.idle_words(index, is_low, most)?),
            None => self.idle_words_of_pool(pool, is_low, most)?,
        };
        self.pass_on(index, words.clone(), false);
        Some((index, words))
    }

    /// Idle words of the pool's address with the most free ports on a side of port 1024, or the
    /// most blocks without owners. If that has none, a few other addresses follow: each call looks
    /// at the next ones.
    fn idle_words_of_pool(
        &mut self,
        pool: usize,
        is_low: bool,
        most: usize,
    ) -> Option<(u32, Range<usize>)> {
        let slots = &self.pools[pool].slots;
        let free = |index: &u32| match self.blocks.has(pool) {
            true => self.fewest_free_of(*index, is_low),
            false => self.ports[0].free_on_side(*index, is_low),
        };
        let idle_words = |index: u32| Some((index, self.idle_words(index, is_low, most)?));
        let is_open = |index: &u32| self.is_open(*index, pool);
        let best = slots.iter().copied().filter(is_open).max_by_key(free)?;
        let mut found = idle_words(best);
        let side = usize::from(!is_low);
        let first = self.pools[pool].next_searched[side];
        let mut next = first;
        let places = (0..slots.len()).map(|step| (first + step) % slots.len());
        let is_other = |index: &u32| *index != best && is_open(index) && free(index) > 0;
        let others = places.filter(|place| is_other(&slots[*place]));
        for place in others.take(MORE_ADDRESSES) {
            if found.is_some() {
                break;
            }
            (found, next) = (idle_words(slots[place]), place + 1);
        }
        self.pools[pool].next_searched[side] = next;
        found
    }

    /// Gives up consecutive words of an address whose block has a subscriber in another engine.
    /// Returns the held ports with their protocols, and the block if another subscriber had it
    /// here. The ports stay held here, too: until the other engine holds them, a list of held ports
    /// has them from this one. `None`: not all words are the engine's own, or a port there has a
    /// mapping or rests. A whole address goes with all its words, if no mapping without a port
    /// rests either.
    pub(crate) fn cede_held(
        &mut self,
        index: u32,
        words: Range<usize>,
    ) -> Option<(HeldPorts, Option<BlockId>)> {
        let is_own = |word: usize| self.part.mask(index, word) != 0;
        if self.part.owned.is_none() || !words.clone().all(is_own) {
            return None;
        }
        let whole = self.whole_block(index);
        if whole.is_some() && (words != (0..WORDS) || self.slots[index as usize].all_mappings() > 0)
        {
            return None;
        }
        let mut held = Vec::new();
        // Most whole addresses have no such port.
        let is_busy = self.slots[index as usize].busy > 0;
        let protocols = if is_busy { PROTOCOLS.len() } else { 0 };
        for (place, own) in PROTOCOLS.into_iter().enumerate().take(protocols) {
            for port in words.start * 64..words.end * 64 {
                let entry = index as usize * PORTS + port;
                let owner = self.ports[place].owner[entry];
                if owner == EMPTY {
                    continue;
                }
                if owner & HELD == 0 || self.is_resting(place, entry) {
                    return None;
                }
                held.push((own, port as u16));
            }
        }
        if whole.is_some_and(|block| !self.blocks.has_busy(block, held.len() as u32)) {
            return None;
        }
        let released = self.take_unused(External::new(index, (words.start * 64) as u16));
        self.pass_on(index, words, false);
        Some((held, released))
    }

    /// Looks for the next block without a subscriber of which this engine has the first word, and
    /// not all. Returns the first words that it lacks. `None`: there is none among some blocks; the
    /// next call looks at others.
    pub(crate) fn next_split_block(&mut self) -> Option<(u32, Range<usize>)> {
        let (mut index, mut word) = self.part.owned.as_ref()?.next_block;
        let mut found = None;
        for _ in 0..BLOCKS_A_LOOK {
            if word == WORDS || !self.may_have_split_block(index) {
                let is_last = index as usize + 1 >= self.slots.len();
                (index, word) = (if is_last { 0 } else { index + 1 }, 0);
                continue;
            }
            let port = (word * 64) as u16;
            let Some(block) = self.block_words(index, port) else {
                word += 1;
                continue;
            };
            word = block.end;
            let has = |word: &usize| self.owns(index, *word);
            let from = block.start + block.clone().take_while(has).count();
            if has(&block.start) && from < block.end && self.is_nobodys(index, port) {
                let lacking = (from..block.end).take_while(|word| !has(word)).count();
                found = Some((index, from..from + lacking));
                break;
            }
        }
        self.part.owned.as_mut()?.next_block = (index, word);
        found
    }

    /// True if an address gives out blocks, and this engine has some of its words and not all.
    fn may_have_split_block(&self, index: u32) -> bool {
        let Some(slot) = self.slots.get(index as usize) else { return false };
        let pool = usize::from(slot.pool);
        self.blocks.has(pool) && self.is_open(index, pool) && self.part.is_split(index)
    }

    fn is_nobodys(&self, index: u32, port: u16) -> bool {
        self.blocks.is_nobodys(self.pool_of(index), index, port)
    }

    /// Gives up words of a block to the engine that has the block's first word. Returns false if
    /// they are not all idle words of this engine, or the block has a subscriber here.
    pub(crate) fn cede_rest(&mut self, index: u32, words: Range<usize>) -> bool {
        let (pool, port) = (self.pool_of(index), (words.start * 64) as u16);
        let is_rest = |block: Range<usize>| block.start < words.start && words.end <= block.end;
        let is_idle = |word: usize| self.owns(index, word) && self.is_free_word(pool, index, word);
        let gives_up = self.part.is_divided()
            && self.is_open(index, pool)
            && self.block_words(index, port).is_some_and(is_rest)
            && self.is_nobodys(index, port)
            && words.clone().all(is_idle);
        if gives_up {
            self.pass_on(index, words, false);
        }
        gives_up
    }

    /// The words of the block of a port, if the port is in a block of whole words. A whole address
    /// is one.
    pub(crate) fn block_words(&self, index: u32, port: u16) -> Option<Range<usize>> {
        if self.is_whole(self.pool_of(index)) {
            return Some(0..WORDS);
        }
        let block = self.blocks.find(self.pool_of(index), index, port)?;
        let (first, last) = self.blocks.place_of(block).1;
        let (first, end) = (usize::from(first), usize::from(last) + 1);
        (first % 64 == 0 && end % 64 == 0).then_some(first / 64..end / 64)
    }

    /// The first consecutive words, at most `most`, on one side of port 1024 whose ports are all
    /// free and belong to this engine. In a pool with blocks they have a whole block, and are cut
    /// where blocks are.
    fn idle_words(&self, index: u32, is_low: bool, most: usize) -> Option<Range<usize>> {
        let pool = self.pool_of(index);
        let has_blocks = self.pools[pool].mode == Mode::Block;
        let is_idle = |word: usize| {
            self.part.mask(index, word) != 0
                && (!has_blocks || self.has_unowned_blocks(pool, index, word))
                && self.is_free_word(pool, index, word)
        };
        let side = if is_low { 0..LOW_WORDS } else { LOW_WORDS..WORDS };
        // The end of a side is not in a block.
        let may_part = |word: usize| {
            !has_blocks || word == side.end || self.blocks.may_part(pool, (word * 64) as u16)
        };
        let mut from = side.start;
        while let Some(first) = (from..side.end).find(|&word| may_part(word) && is_idle(word)) {
            let idle = (first..side.end).take(most).take_while(|&word| is_idle(word)).count();
            let end = (first + 1..=first + idle).rev().find(|&word| may_part(word));
            let words = end.map(|end| first..end);
            if let Some(words) = words
                && (!has_blocks || self.has_assignable_block(pool, index, &words))
            {
                return Some(words);
            }
            from = end.unwrap_or(first + 1);
        }
        None
    }

    /// True if all ports of a word that the address gives out are free, for all protocols, and no
    /// other port of the word has an owner. Without blocks, it gives out some of them. A static
    /// mapping of the whole address keeps the ports of its protocol at every engine.
    fn is_free_word(&self, pool: usize, index: u32, word: usize) -> bool {
        let mut gives_some = self.pools[pool].mode == Mode::Block;
        let is_free = self.ports.iter().enumerate().all(|(place, of_protocol)| {
            let ports = self.given_out(index, place, word..word + 1).fold(0, |_, bits| bits);
            gives_some |= ports != 0;
            let owners = &of_protocol.owner[index as usize * PORTS + word * 64..][..64];
            of_protocol.free[index as usize * WORDS + word] & ports == ports
                && owners.iter().all(|&owner| owner == EMPTY)
        });
        is_free && gives_some
    }

    /// True if a word has ports of blocks, and none of these blocks has an owner.
    fn has_unowned_blocks(&self, pool: usize, index: u32, word: usize) -> bool {
        let mut blocks = self.blocks_among(pool, index, word..word + 1).peekable();
        blocks.peek().is_some() && blocks.all(|block| self.blocks.owner_of(block).is_none())
    }

    /// True if a block that may be given to a subscriber has all its ports among some words.
    fn has_assignable_block(&self, pool: usize, index: u32, words: &Range<usize>) -> bool {
        let is_among = |block: u32| {
            let (_, (first, last)) = self.blocks.place_of(block);
            words.start <= usize::from(first) / 64 && usize::from(last) / 64 < words.end
        };
        let mut blocks = self.blocks_among(pool, index, words.clone());
        blocks.any(|block| is_among(block) && self.blocks.is_assignable(block))
    }

    /// The blocks with ports among some words; a block may come several times.
    fn blocks_among(
        &self,
        pool: usize,
        index: u32,
        words: Range<usize>,
    ) -> impl Iterator<Item = u32> {
        // A block has at least 16 ports.
        let ports = (words.start * 64..words.end * 64).step_by(16).chain([words.end * 64 - 1]);
        ports.filter_map(move |port| self.blocks.find(pool, index, port as u16))
    }

    /// The index of an address, and true if other engines may have ports of the address.
    pub(crate) fn place_of_address(&self, index: u32) -> (usize, bool) {
        let is_whole = (0..WORDS).all(|word| self.part.mask(index, word) != 0);
        (index as usize, self.part.owned.is_some() && !is_whole)
    }

    /// Number of free ports of a pool on one side of port 1024, for the protocol with the fewest
    /// (of TCP, UDP, ICMP). In a pool with blocks, the free ports of a subscriber's block are of no
    /// use to others: those of blocks that may be given to a subscriber count.
    pub(crate) fn fewest_free(&self, pool: usize, is_low: bool) -> u32 {
        if self.is_whole(pool) {
            return self.free_of_whole(pool);
        }
        let side = usize::from(!is_low);
        if self.blocks.has(pool) {
            return self.blocks.assignable_ports(pool, side);
        }
        let free = |ports: &Ports| ports.pool_count.get(pool).map_or(0, |count| count[side]);
        self.ports[..3].iter().map(free).min().unwrap_or_default()
    }

    /// [`ExternalPorts::fewest_free`] of one address.
    pub(crate) fn fewest_free_of(&self, index: u32, is_low: bool) -> u32 {
        let pool = self.pool_of(index);
        if self.blocks.has(pool) && !self.is_whole(pool) {
            return self.blocks.assignable_ports_of(pool, index, usize::from(!is_low));
        }
        let free = |ports: &Ports| ports.free_on_side(index, is_low);
        self.ports[..3].iter().map(free).min().unwrap_or_default()
    }
}
