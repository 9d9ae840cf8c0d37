//! Blocks without an owner: a bit for each, and draws that cost the same at any fill level.

use super::PROTOCOLS;
use super::{Blocks, LOW, NOBODY, Row};
use crate::calendar::NONE;
use crate::random::Generator;

/// Place of a block in the bitmap of blocks without an owner.
pub(super) struct BlockBit {
    pool: usize,
    /// Index of the address.
    index: u32,
    /// Side of port 1024.
    pub(super) side: usize,
    /// Word of the bitmap.
    word: usize,
    bit: u64,
}

impl Blocks {
    /// Number of assignable blocks of a pool; 0 for a pool without blocks.
    pub(crate) fn nobodys(&self, pool: usize) -> u32 {
        self.pools[pool].as_ref().map_or(0, |pool| pool.nobodys.iter().sum())
    }

    /// Number of ports of a pool's assignable blocks on a side of port 1024. The pool has blocks.
    pub(crate) fn assignable_ports(&self, pool: usize, side: usize) -> u32 {
        let pool = self.pool(pool);
        pool.nobodys[side].saturating_mul(pool.blocking.size.into())
    }

    /// [`Blocks::assignable_ports`] of one address.
    pub(crate) fn assignable_ports_of(&self, pool: usize, index: u32, side: usize) -> u32 {
        u32::from(self.count[index as usize][side]) * u32::from(self.pool(pool).blocking.size)
    }

    /// Iterates over the ports of each block of an address.
    pub(crate) fn ports_of(&self, index: u32) -> impl Iterator<Item = (u16, u16)> + '_ {
        let row = self.row_of[index as usize];
        let blocks = (row != NONE).then(|| self.blocks_of(row));
        blocks.into_iter().flatten().map(|block| self.place_of(block).1)
    }

    /// True if a block may be given to a subscriber.
    pub(crate) fn is_assignable(&self, block: u32) -> bool {
        let BlockBit { word, bit, .. } = self.bit(block);
        self.unowned[word] & bit != 0
    }

    /// Place of a block in the bitmap.
    pub(super) fn bit(&self, block: u32) -> BlockBit {
        let (row, local) = (block / self.stride, block % self.stride);
        let Row { index, pool, .. } = self.rows[row as usize];
        let low = self.pool(pool as usize).blocking.of_side(LOW).1;
        let word = row as usize * self.words + local as usize / 64;
        let (pool, side) = (pool as usize, usize::from(local >= low));
        BlockBit { pool, index, side, word, bit: 1 << (local % 64) }
    }

    /// Updates the bitmap and the lists of assignable blocks by the present state of a block.
    pub(super) fn mark(&mut self, block: u32) {
        let entry = &self.entries[block as usize];
        let may_be_assigned =
            entry.owner == NOBODY && entry.busy == 0 && entry.free != [0; PROTOCOLS];
        let BlockBit { pool, index, side, word, bit } = self.bit(block);
        if may_be_assigned == (self.unowned[word] & bit != 0) {
            return;
        }
        self.unowned[word] ^= bit;
        let of_pool = self.pools[pool].as_mut().expect("a pool with blocks");
        let nobodys = &mut of_pool.nobodys[side];
        *nobodys = if may_be_assigned { *nobodys + 1 } else { *nobodys - 1 };
        let count = &mut self.count[index as usize][side];
        *count = if may_be_assigned { *count + 1 } else { *count - 1 };
        let open = &mut of_pool.open[side];
        match (may_be_assigned, *count) {
            (true, 1) => {
                self.place[index as usize][side] = open.len() as u32;
                open.push(index);
            }
            (false, 0) => {
                let place = core::mem::replace(&mut self.place[index as usize][side], NONE);
                open.swap_remove(place as usize);
                if let Some(&moved) = open.get(place as usize) {
                    self.place[moved as usize][side] = place;
                }
            }
            _ => {}
        }
    }

    /// Draws an assignable block of an address and side that has a free port for the protocol. All
    /// blocks are equally likely unless static mappings have taken all ports of some.
    pub(crate) fn draw(
        &self,
        pool: usize,
        index: u32,
        side: usize,
        protocol: usize,
        generator: &mut Generator,
    ) -> Option<u32> {
        let count = u32::from(self.count[index as usize][side]);
        if count == 0 {
            return None;
        }
        let row = self.row_of[index as usize];
        let words = &self.unowned[row as usize * self.words..][..self.words];
        let (from, to) = self.pool(pool).blocking.of_side(side);
        let unowned = |word: usize| {
            let below = |block: u32| match (block as usize).saturating_sub(word * 64) {
                bits @ 0..64 => (1_u64 << bits) - 1,
                _ => u64::MAX,
            };
            words[word] & below(to) & !below(from)
        };
        let first = row * self.stride;
        let has_port = |block: &u32| self.entries[*block as usize].free[protocol] > 0;
        let mut which = generator.below(count);
        let mut word = from as usize / 64;
        while which >= unowned(word).count_ones() {
            which -= unowned(word).count_ones();
            word += 1;
        }
        let rest = (0..which).fold(unowned(word), |rest, _| rest & (rest - 1));
        let drawn = (word * 64) as u32 + rest.trailing_zeros();
        let is_unowned = |local: &u32| unowned(*local as usize / 64) >> (local % 64) & 1 != 0;
        let others = || (drawn + 1..to).chain(from..drawn).filter(is_unowned);
        Some(first + drawn)
            .filter(has_port)
            .or_else(|| others().map(|local| first + local).find(has_port))
    }

    /// Draws a block ([`Blocks::draw`]) of the better of two random addresses. If `has_port`
    /// excludes both, the next possible address is used.
    pub(crate) fn draw_anywhere(
        &self,
        pool: usize,
        side: usize,
        protocol: usize,
        generator: &mut Generator,
        has_port: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let open = &self.pool(pool).open[side];
        if open.is_empty() {
            return None;
        }
        let unowned = |place: u32| self.count[open[place as usize] as usize][side];
        let count = open.len() as u32;
        let better = generator.better_of_two(count, |a, b| unowned(a) >= unowned(b));
        let circle = (better..count).chain(0..better);
        circle.map(|place| open[place as usize]).find_map(|index| {
            let will_do = has_port(index);
            will_do.then(|| self.draw(pool, index, side, protocol, generator)).flatten()
        })
    }
}
