//! Rings of descriptors of sixteen bytes, which the program writes and the card writes back.

use super::register;
use crate::alarm::Alarm;
use crate::dma::{Area, Buffers};
use crate::registers::Registers;
use natgate_io::{BATCH, Batch, Frame, HEADROOM, Lost, Receive, Transmit};

/// Descriptors of each ring. One of them always stays empty, because a full ring looks like an
/// empty one.
pub(super) const COUNT: usize = 512;

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;

/// Longest frame that the card writes, bytes.
pub(super) const LONGEST: usize = 2048;

/// Bytes of a buffer: each begins at a cache line.
const BUFFER: usize = HEADROOM + LONGEST;

/// Shortest frame: two addresses and a type.
const SHORTEST: usize = 14;

/// Buffers that are offered to the card together. A register write costs as much as some packets,
/// especially in an emulated machine.
const TOGETHER: usize = 64;

/// The card pads shorter frames to this number of bytes.
const PADDED: usize = 17;

/// Causes of interrupts by received frames: few descriptors are left, no descriptor was left, any
/// frame.
pub(super) const RECEIVED: u32 = 1 << 4 | 1 << 6 | 1 << 7;

/// Offsets of a descriptor's fields.
pub(super) mod field {
    pub(in super::super) const ADDRESS: usize = 0;
    pub(in super::super) const LEN: usize = 8;
    pub(in super::super) const STATUS: usize = 12;
    /// Error bits of a receive descriptor.
    pub(in super::super) const ERRORS: usize = 13;
}

/// Status bit: the card has finished with the descriptor.
pub(super) const DONE: u8 = 1;
/// Errors of a received frame itself. The other error bits are about checksums inside the frame,
/// which the driver ignores.
const DAMAGED: u8 = 0x97;
/// Status bit: the descriptor has the end of a frame.
pub(super) const END: u8 = 2;

/// Writes the address and length of a ring to the card.
fn announce<R: Registers>(registers: &mut R, base: u32, descriptors: &Area) {
    let address = descriptors.address(0);
    registers.write32(base + register::RING_LOW, address as u32);
    registers.write32(base + register::RING_HIGH, (address >> 32) as u32);
    registers.write32(base + register::RING_LEN, (COUNT * DESCRIPTOR) as u32);
    registers.write32(base + register::HEAD, 0);
    registers.write32(base + register::TAIL, 0);
}

/// Receiving half of the card.
#[derive(Debug)]
pub(super) struct Incoming<R> {
    registers: R,
    descriptors: Area,
    buffers: Buffers,
    /// Next descriptor that the card will finish.
    next: usize,
    /// Number of descriptors before `next` whose buffers are lent, or have come back and wait to be
    /// offered together.
    lent: usize,
    /// True inside a frame that is too long, until its last piece arrives.
    in_pieces: bool,
    /// Request for interrupts, and true if the card interrupts.
    pub(super) alarm: Option<Alarm>,
    interrupts: bool,
    pub(super) received: u64,
    /// Dropped frames that were not single complete frames.
    pub(super) odd: u64,
}

impl<R: Registers> Incoming<R> {
    pub(super) fn start(mut registers: R) -> Self {
        const ENABLE: u32 = 1 << 1;
        const ALL_MULTICAST: u32 = 1 << 4;
        const BROADCAST: u32 = 1 << 15;
        const STRIP_CHECKSUM: u32 = 1 << 26;
        let mut incoming = Self {
            descriptors: Area::new(COUNT * DESCRIPTOR),
            buffers: Buffers::new(COUNT, BUFFER),
            next: 0,
            lent: 0,
            in_pieces: false,
            alarm: None,
            interrupts: false,
            received: 0,
            odd: 0,
            registers: registers.clone(),
        };
        announce(&mut registers, register::RECEIVE, &incoming.descriptors);
        (0..COUNT).for_each(|number| incoming.offer(number));
        registers.write32(register::RECEIVE_CHECKSUMS, 0);
        // Neighbor discovery has a group for each address.
        let groups = BROADCAST | ALL_MULTICAST;
        registers.write32(register::RECEIVE_CONTROL, ENABLE | groups | STRIP_CHECKSUM);
        registers.write32(register::RECEIVE + register::TAIL, COUNT as u32 - 1);
        incoming
    }

    /// Writes a descriptor that offers its buffer to the card.
    fn offer(&mut self, number: usize) {
        let at = number * DESCRIPTOR;
        let address = self.buffers.give(number) + HEADROOM as u64;
        self.descriptors.write(at + field::STATUS, 0_u32);
        self.descriptors.write(at + field::ADDRESS, address);
    }

    /// Takes lent buffers back, and offers them to the card if there are enough.
    fn take_back(&mut self) {
        if self.lent < TOGETHER {
            return;
        }
        for back in (1..=self.lent).rev() {
            self.offer((self.next + COUNT - back) % COUNT);
        }
        self.lent = 0;
        let last = (self.next + COUNT - 1) % COUNT;
        self.registers.write32(register::RECEIVE + register::TAIL, last as u32);
    }

    /// Switches the card's interrupts on or off. A frame from before this call can be found after
    /// it.
    pub(super) fn interrupt(&mut self, is_wanted: bool) {
        if std::mem::replace(&mut self.interrupts, is_wanted) == is_wanted {
            return;
        }
        if is_wanted {
            // Reading the register clears the old causes, which would otherwise interrupt at once.
            self.registers.read32(register::INTERRUPT_CAUSE);
            self.registers.write32(register::INTERRUPTS_ON, RECEIVED);
        } else {
            self.registers.write32(register::INTERRUPTS_OFF, u32::MAX);
        }
    }

    /// Examines the next descriptor. Returns the length of its frame, or `Some(None)` if it is no
    /// single complete frame.
    fn examine(&mut self) -> Option<Option<usize>> {
        let at = self.next * DESCRIPTOR;
        let status: u8 = self.descriptors.read(at + field::STATUS);
        if status & DONE == 0 {
            return None;
        }
        let len = usize::from(self.descriptors.read::<u16>(at + field::LEN));
        let errors: u8 = self.descriptors.read(at + field::ERRORS);
        let is_last = status & END != 0;
        let is_first = !std::mem::replace(&mut self.in_pieces, !is_last);
        let is_whole =
            is_first && is_last && errors & DAMAGED == 0 && (SHORTEST..=LONGEST).contains(&len);
        Some(is_whole.then_some(len))
    }
}

impl<R: Registers> Receive for Incoming<R> {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        self.take_back();
        if let Some(alarm) = &self.alarm {
            let is_wanted = alarm.is_set();
            self.interrupt(is_wanted);
        }
        let mut whole = [(0, 0); BATCH];
        let mut count = 0;
        while count < batch.remaining_capacity()
            && self.lent < COUNT - 1
            && let Some(frame) = self.examine()
        {
            self.buffers.take(self.next);
            match frame {
                Some(len) => {
                    whole[count] = (self.next, len);
                    count += 1;
                }
                None => self.odd += 1,
            }
            self.next = (self.next + 1) % COUNT;
            self.lent += 1;
        }
        self.received += count as u64;
        let lent = self.buffers.lend(&whole[..count]);
        batch.extend(lent.map(|(bytes, len)| Frame::of(bytes, HEADROOM, HEADROOM + len)));
    }
}

/// Sending half of the card. A frame is copied into a buffer, which belongs to the card until the
/// frame is sent.
#[derive(Debug)]
pub(super) struct Outgoing<R> {
    registers: R,
    descriptors: Area,
    buffers: Buffers,
    /// Next descriptor to write, and the oldest unfinished descriptor.
    next: usize,
    oldest: usize,
    pub(super) sent: u64,
    pub(super) full: u64,
}

impl<R: Registers> Outgoing<R> {
    pub(super) fn start(mut registers: R, is_later: bool) -> Self {
        const ENABLE: u32 = 1 << 1;
        const PAD: u32 = 1 << 3;
        /// Number and distance of retries on a half duplex link.
        const COLLISIONS: u32 = 0x0f << 4 | 0x40 << 12;
        const GAP: u32 = 0x0060_2008;
        /// The newer family needs a bit to count in descriptors.
        const BY_DESCRIPTORS: u32 = 1 << 22;
        let descriptors = Area::new(COUNT * DESCRIPTOR);
        announce(&mut registers, register::TRANSMIT, &descriptors);
        if is_later {
            let control = registers.read32(register::TRANSMIT_DESCRIPTORS);
            registers.write32(register::TRANSMIT_DESCRIPTORS, control | BY_DESCRIPTORS);
        }
        registers.write32(register::TRANSMIT_GAP, GAP);
        registers.write32(register::TRANSMIT_CONTROL, ENABLE | PAD | COLLISIONS);
        let buffers = Buffers::new(COUNT, BUFFER);
        Self { registers, descriptors, buffers, next: 0, oldest: 0, sent: 0, full: 0 }
    }

    /// Takes back the buffers of sent frames.
    fn take_back(&mut self) {
        while self.oldest != self.next {
            let status: u8 = self.descriptors.read(self.oldest * DESCRIPTOR + field::STATUS);
            if status & DONE == 0 {
                return;
            }
            self.buffers.take(self.oldest);
            self.oldest = (self.oldest + 1) % COUNT;
        }
    }

    /// Puts a frame into the ring; returns false if the frame is too long or the ring is full.
    fn put(&mut self, frame: &[u8]) -> bool {
        /// End of a frame, append the checksum, write the descriptor back.
        const COMMAND: u8 = 1 | 2 | 8;
        let after = (self.next + 1) % COUNT;
        if after == self.oldest || !(SHORTEST..=LONGEST).contains(&frame.len()) {
            return false;
        }
        let len = frame.len().max(PADDED);
        let bytes = self.buffers.bytes_mut(self.next);
        bytes[..frame.len()].copy_from_slice(frame);
        bytes[frame.len()..len].fill(0);
        let address = self.buffers.give(self.next);
        let at = self.next * DESCRIPTOR;
        self.descriptors.write(at + field::ADDRESS, address);
        self.descriptors.write(at + field::STATUS, 0_u32);
        self.descriptors.write(at + field::LEN, len as u32 | u32::from(COMMAND) << 24);
        self.next = after;
        true
    }
}

impl<R: Registers> Transmit for Outgoing<R> {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        assert!(frames.len() <= BATCH);
        self.take_back();
        let mut lost = Lost::NONE;
        for (number, frame) in frames.iter().enumerate() {
            if !self.put(frame.bytes()) {
                lost.mark(number);
            }
        }
        let refused = u64::from(lost.count());
        self.full += refused;
        self.sent += frames.len() as u64 - refused;
        if refused < frames.len() as u64 {
            self.registers.write32(register::TRANSMIT + register::TAIL, self.next as u32);
        }
        lost
    }
}
