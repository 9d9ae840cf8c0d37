//! The rings of descriptors: sixteen bytes each, which the program writes and the card writes back.

use super::register;
use crate::alarm::Alarm;
use crate::dma::{Area, Buffers};
use crate::registers::Registers;
use natgate_io::{BATCH, Batch, Frame, HEADROOM, Lost, Receive, Transmit};

/// Descriptors of each ring; one of them is always left empty, for a full ring looks like an empty
/// one.
pub(super) const COUNT: usize = 512;

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;

/// Most bytes of a frame that the card writes.
pub(super) const LONGEST: usize = 2048;

/// Bytes of a buffer: such that each begins at the beginning of a cache line.
const BUFFER: usize = HEADROOM + LONGEST;

/// The shortest frame: two addresses and a type.
const SHORTEST: usize = 14;

/// Buffers that are offered to the card together: telling it costs as much as some packets, in an
/// emulated machine above all.
const TOGETHER: usize = 64;

/// Shorter frames are made up to this many bytes by the card.
const PADDED: usize = 17;

/// Interrupts of frames that have come: so many that descriptors are running out, one for which
/// there was none, any.
pub(super) const RECEIVED: u32 = 1 << 4 | 1 << 6 | 1 << 7;

/// Where a descriptor's fields are.
pub(super) mod field {
    pub(in super::super) const ADDRESS: usize = 0;
    pub(in super::super) const LEN: usize = 8;
    pub(in super::super) const STATUS: usize = 12;
    /// Of those that receive.
    pub(in super::super) const ERRORS: usize = 13;
}

/// The card is done with it.
pub(super) const DONE: u8 = 1;
/// Of a received frame, those errors that are of the frame. The others are of checksums in it,
/// which are not the card's business.
const DAMAGED: u8 = 0x97;
/// Of a received frame: this is its last piece.
pub(super) const END: u8 = 2;

/// Tells the card where a ring is.
fn announce<R: Registers>(registers: &mut R, base: u32, descriptors: &Area) {
    let address = descriptors.address(0);
    registers.write32(base + register::RING_LOW, address as u32);
    registers.write32(base + register::RING_HIGH, (address >> 32) as u32);
    registers.write32(base + register::RING_LEN, (COUNT * DESCRIPTOR) as u32);
    registers.write32(base + register::HEAD, 0);
    registers.write32(base + register::TAIL, 0);
}

/// The half that receives.
#[derive(Debug)]
pub(super) struct Incoming<R> {
    registers: R,
    descriptors: Area,
    buffers: Buffers,
    /// The next descriptor that the card will be done with.
    next: usize,
    /// Descriptors before that one whose buffers are lent, or have come back and wait for others.
    lent: usize,
    /// Whether a frame has begun that is too long, whose last piece has not come.
    in_pieces: bool,
    /// By what the card is told when to interrupt, and whether it does.
    pub(super) alarm: Option<Alarm>,
    interrupts: bool,
    pub(super) received: u64,
    /// Frames that were not one whole frame.
    pub(super) odd: u64,
}

impl<R: Registers> Incoming<R> {
    pub(super) fn start(mut registers: R) -> Self {
        const ENABLE: u32 = 1 << 1;
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
        registers.write32(register::RECEIVE_CONTROL, ENABLE | BROADCAST | STRIP_CHECKSUM);
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

    /// Takes back what was lent, and tells the card as soon as that is worth it.
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

    /// Has the card interrupt when a frame comes, or not any more. What came before this can be
    /// found after it.
    pub(super) fn interrupt(&mut self, is_wanted: bool) {
        if std::mem::replace(&mut self.interrupts, is_wanted) == is_wanted {
            return;
        }
        if is_wanted {
            // It forgets what has happened so far, of which it would tell otherwise.
            self.registers.read32(register::INTERRUPT_CAUSE);
            self.registers.write32(register::INTERRUPTS_ON, RECEIVED);
        } else {
            self.registers.write32(register::INTERRUPTS_OFF, u32::MAX);
        }
    }

    /// The length of the frame in the next descriptor, if there is one: `Some(None)` if that is no
    /// whole frame.
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
        batch.extend(lent.map(|(bytes, len)| Frame::new(bytes, HEADROOM, HEADROOM + len)));
    }
}

/// The half that sends. A frame is copied into a buffer, which stays the card's until it has gone.
#[derive(Debug)]
pub(super) struct Outgoing<R> {
    registers: R,
    descriptors: Area,
    buffers: Buffers,
    /// The next descriptor to be written, and the oldest that the card may not be done with.
    next: usize,
    oldest: usize,
    pub(super) sent: u64,
    pub(super) full: u64,
}

impl<R: Registers> Outgoing<R> {
    pub(super) fn start(mut registers: R, is_later: bool) -> Self {
        const ENABLE: u32 = 1 << 1;
        const PAD: u32 = 1 << 3;
        /// How often, and how far apart, a half duplex link tries.
        const COLLISIONS: u32 = 0x0f << 4 | 0x40 << 12;
        const GAP: u32 = 0x0060_2008;
        /// The later family counts in descriptors, which has to be said.
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

    /// Takes back the buffers of frames that have gone.
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

    /// Puts a frame into the ring; `false`: it does not fit, or the ring is full.
    fn put(&mut self, frame: &[u8]) -> bool {
        /// The frame ends here, its checksum is to be appended, and this descriptor to be written
        /// back.
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
