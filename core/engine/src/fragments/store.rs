//! Memory for packets that wait: blocks of one size, chained, taken from and given back to a free
//! list. A packet is named by its first block, which also carries what is known about it; packets
//! form queues by links in their first blocks.

use crate::{Direction, Side, Timestamp};
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of a block: an Ethernet-sized fragment takes three, and any IPv4 header fits in one.
pub(super) const BLOCK: usize = 512;

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// Where a packet that is no longer waiting goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) time: Timestamp,
    pub(super) out: Side,
    pub(super) realm: u16,
    pub(super) direction: Direction,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    /// The packet's next block, or the next free block.
    next: u32,
    // What follows means something in a packet's first block only.
    next_packet: u32,
    len: u16,
    way: Way,
}

impl Block {
    const EMPTY: Self = Self {
        next: NONE,
        next_packet: NONE,
        len: 0,
        way: Way {
            time: Timestamp(0),
            out: Side::Inside,
            realm: 0,
            direction: Direction::Outbound,
        },
    };
}

/// Packets one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };
}

#[derive(Clone, Debug)]
pub(super) struct Store {
    bytes: Vec<u8>,
    /// Those that have ever been used; room for the rest is set aside.
    blocks: Vec<Block>,
    /// Used before and free.
    free: u32,
    free_blocks: usize,
}

impl Store {
    pub(super) fn new(blocks: usize) -> Self {
        Self {
            bytes: vec![0; blocks * BLOCK],
            blocks: Vec::with_capacity(blocks),
            free: NONE,
            free_blocks: blocks,
        }
    }

    pub(super) fn memory(blocks: usize) -> u64 {
        (blocks * (BLOCK + size_of::<Block>())) as u64
    }

    /// Blocks that a packet of `len` bytes takes.
    pub(super) fn blocks(len: usize) -> usize {
        len.div_ceil(BLOCK)
    }

    pub(super) fn free_blocks(&self) -> usize {
        self.free_blocks
    }

    /// Keeps a copy of a packet at the end of a queue. The caller has seen that there is room.
    pub(super) fn push(&mut self, queue: &mut Queue, packet: &[u8]) {
        let first = self.next_free();
        let mut last = first;
        for (i, part) in packet.chunks(BLOCK).enumerate() {
            if i > 0 {
                let block = self.next_free();
                self.blocks[last as usize].next = block;
                last = block;
            }
            self.bytes[last as usize * BLOCK..][..part.len()].copy_from_slice(part);
        }
        self.blocks[first as usize].len = packet.len() as u16;
        self.append(queue, first);
    }

    fn next_free(&mut self) -> u32 {
        self.free_blocks -= 1;
        match self.free {
            NONE => {
                self.blocks.push(Block::EMPTY);
                self.blocks.len() as u32 - 1
            }
            block => {
                self.free = core::mem::replace(&mut self.blocks[block as usize].next, NONE);
                block
            }
        }
    }

    fn append(&mut self, queue: &mut Queue, packet: u32) {
        self.blocks[packet as usize].next_packet = NONE;
        match queue.tail {
            NONE => queue.head = packet,
            tail => self.blocks[tail as usize].next_packet = packet,
        }
        queue.tail = packet;
    }

    fn take(&mut self, queue: &mut Queue) -> Option<u32> {
        let packet = queue.head;
        if packet == NONE {
            return None;
        }
        queue.head = self.blocks[packet as usize].next_packet;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        Some(packet)
    }

    /// The way of the first packet in a queue.
    pub(super) fn front(&self, queue: &Queue) -> Option<Way> {
        self.blocks.get(queue.head as usize).map(|block| block.way)
    }

    /// Takes a queue's first packet out, forgets its bytes and says how many they were.
    pub(super) fn discard(&mut self, queue: &mut Queue) -> Option<usize> {
        let packet = self.take(queue)?;
        let len = usize::from(self.blocks[packet as usize].len);
        self.give_back(packet);
        Some(len)
    }

    /// Takes a queue's first packet out and writes it to the front of `buffer`.
    pub(super) fn pop(&mut self, queue: &mut Queue, buffer: &mut [u8]) -> Option<(Way, usize)> {
        let packet = self.take(queue)?;
        let Block { way, len, .. } = self.blocks[packet as usize];
        let mut at = packet as usize;
        for part in buffer[..usize::from(len)].chunks_mut(BLOCK) {
            part.copy_from_slice(&self.bytes[at * BLOCK..][..part.len()]);
            at = self.blocks[at].next as usize;
        }
        self.give_back(packet);
        Some((way, usize::from(len)))
    }

    fn give_back(&mut self, packet: u32) {
        let mut last = packet;
        self.free_blocks += 1;
        while self.blocks[last as usize].next != NONE {
            last = self.blocks[last as usize].next;
            self.free_blocks += 1;
        }
        self.blocks[last as usize].next = self.free;
        self.free = packet;
    }

    /// Moves the first packet of `from` to the end of `to`, on its way; `change` sees the bytes of
    /// its first block. Returns the packet's length.
    pub(super) fn send(
        &mut self,
        from: &mut Queue,
        to: &mut Queue,
        way: Way,
        change: impl FnOnce(&mut [u8]),
    ) -> Option<usize> {
        let packet = self.take(from)?;
        let block = &mut self.blocks[packet as usize];
        block.way = way;
        let len = usize::from(block.len);
        change(&mut self.bytes[packet as usize * BLOCK..][..len.min(BLOCK)]);
        self.append(to, packet);
        Some(len)
    }
}
