//! Ports of the pipeline: packets come from memory and go to memory, each with a private header in
//! front.

use super::sys::Packet;
use natgate_p4::rt::{Tick, Verdict, World};
use natgate_p4::swx::{ARRIVAL_BYTES, DEPARTURE_BYTES};
use std::ffi::{c_int, c_void};

/// Bytes that instructions and look-ups may read behind a field's first byte.
const BEYOND: usize = 64;

/// Most packets at once: as many as a batch of devices.
pub(super) const BATCH: usize = 64;

/// State that tables and extern objects share with the caller of the pipeline.
#[derive(Debug)]
pub(super) struct Shared {
    /// Time, nanoseconds.
    pub(super) now: u64,
    /// The latest tick of timers.
    pub(super) tick: Tick,
    /// Further state of the program, while it runs.
    pub(super) world: *mut World,
}

/// Fate of a packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    /// The packet leaves by this port and begins at this offset of the buffer.
    Sent(u32, usize),
    Dropped,
}

/// Input and output of packets: packets leave in the order in which they come.
#[derive(Debug)]
pub(super) struct Ports {
    /// Buffers, one for each packet.
    memory: Vec<u8>,
    /// Length of a buffer.
    stride: usize,
    /// Offset in the buffer at which an arriving packet begins.
    start: usize,
    /// Most bytes of a packet that the program reads.
    most: usize,
    /// Lengths of the packets that have come, and number of packets that the pipeline has taken.
    lengths: Vec<usize>,
    taken: usize,
    /// Fates of the packets that the pipeline has finished.
    fates: Vec<Fate>,
}

impl Ports {
    /// Creates ports for a program that reads `most` bytes of a packet and adds up to `grown`
    /// bytes.
    pub(super) fn new(most: usize, grown: usize) -> Self {
        let start = grown + DEPARTURE_BYTES + ARRIVAL_BYTES + BEYOND;
        let stride = (start + most + BEYOND).next_multiple_of(64);
        let memory = vec![0; stride * BATCH];
        let (lengths, fates) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Self { memory, stride, start, most, lengths, taken: 0, fates }
    }

    /// Forgets all packets.
    pub(super) fn begin(&mut self) {
        self.lengths.clear();
        self.fates.clear();
        self.taken = 0;
    }

    /// Adds a packet that waits.
    ///
    /// # Panics
    ///
    /// If there are [`BATCH`] packets already.
    pub(super) fn put(&mut self, now: u64, port: u32, packet: &[u8]) {
        let kept = packet.len().min(self.most);
        let buffer = &mut self.memory[self.lengths.len() * self.stride..][..self.stride];
        let (before, own) = buffer.split_at_mut(self.start);
        let arrival = &mut before[self.start - ARRIVAL_BYTES..];
        arrival[..4].copy_from_slice(&port.to_be_bytes());
        arrival[4..8].copy_from_slice(&(packet.len() as u32).to_be_bytes());
        arrival[8..].copy_from_slice(&now.to_be_bytes());
        own[..kept].copy_from_slice(&packet[..kept]);
        self.lengths.push(packet.len());
    }

    /// True if packets are on their way.
    pub(super) fn is_busy(&self) -> bool {
        self.fates.len() < self.lengths.len()
    }

    /// Fate of a packet, and its new beginning if it leaves.
    pub(super) fn fate(&self, number: usize) -> (Verdict, &[u8]) {
        let taken = self.lengths[number].min(self.most);
        match self.fates[number] {
            Fate::Sent(port, begin) => {
                let buffer = &self.memory[number * self.stride..];
                (Verdict { port: Some(port), taken }, &buffer[begin..self.start + taken])
            }
            Fate::Dropped => (Verdict { port: None, taken }, &[]),
        }
    }

    /// Offset of a packet's buffer.
    fn offset(&self, number: usize) -> usize {
        number * self.stride
    }
}

/// Hands the next packet over, if one waits.
///
/// # Safety
///
/// The ports are [`Ports`] that no other code accesses meanwhile, and the packet can be written.
pub(super) unsafe extern "C" fn receive(ports: *mut c_void, packet: *mut Packet) -> c_int {
    // SAFETY: the caller promises it.
    let (ports, packet) = unsafe { (&mut *ports.cast::<Ports>(), &mut *packet) };
    let Some(length) = ports.lengths.get(ports.taken) else { return 0 };
    *packet = Packet {
        handle: std::ptr::null_mut(),
        bytes: ports.memory.as_mut_ptr(),
        offset: (ports.offset(ports.taken) + ports.start - ARRIVAL_BYTES) as u32,
        length: (length + ARRIVAL_BYTES) as u32,
    };
    ports.taken += 1;
    1
}

/// Takes a packet that leaves.
///
/// # Safety
///
/// The conditions of [`receive`].
pub(super) unsafe extern "C" fn send(ports: *mut c_void, packet: *mut Packet) {
    // SAFETY: the caller promises it.
    let (ports, packet) = unsafe { (&mut *ports.cast::<Ports>(), &*packet) };
    let begin = packet.offset as usize;
    let port = ports.memory.get(begin..begin + DEPARTURE_BYTES);
    let port = port.and_then(|port| port.try_into().ok()).map(u32::from_be_bytes);
    let own = begin + DEPARTURE_BYTES - ports.offset(ports.fates.len());
    ports.fates.push(port.map_or(Fate::Dropped, |port| Fate::Sent(port, own)));
}

/// Takes a packet that is dropped.
///
/// # Safety
///
/// The conditions of [`receive`].
pub(super) unsafe extern "C" fn discard(ports: *mut c_void, _: *mut Packet) {
    // SAFETY: the caller promises it.
    let ports = unsafe { &mut *ports.cast::<Ports>() };
    ports.fates.push(Fate::Dropped);
}
