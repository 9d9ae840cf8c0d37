//! Memory for waiting packets: blocks of one size, chained, with a list of free blocks. The first
//! block stands for its packet and has the packet's attributes. Links between first blocks form
//! queues of packets.

use crate::{Direction, Side, Timestamp};
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of a block. An Ethernet-sized fragment takes three, and any IPv4 header fits in one.
pub(super) const BLOCK: usize = 512;

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// Destination of a packet that does not wait any more.
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
    // The following fields are valid only in a packet's first block.
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

/// Packets in order.
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
    /// Blocks that have ever been used. Capacity for the rest is reserved.
    blocks: Vec<Block>,
    /// First block of the list of free blocks.
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

    /// Keeps a copy of a packet at the end of a queue. The caller has checked that there is room.
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

    /// Removes a queue's first packet and returns its length.
    pub(super) fn discard(&mut self, queue: &mut Queue) -> Option<usize> {
        let packet = self.take(queue)?;
        let len = usize::from(self.blocks[packet as usize].len);
        self.give_back(packet);
        Some(len)
    }

    /// Removes a queue's first packet and writes it to the front of `buffer`.
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

    /// Moves the first packet of `from` to the end of `to`, with its way. `change` gets the bytes
    /// of its first block. Returns the packet's length.
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
