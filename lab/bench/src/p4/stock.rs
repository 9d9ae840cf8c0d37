//! Devices without a network for the measurement. The measurement writes the incoming frames
//! beforehand and counts the outgoing ones.
//!
//! The device copies the head of an incoming frame to a buffer that stays in the processor's first
//! cache. No reader looks at the rest of the frame.

use crate::io::feed::{STATION, answer};
use crate::lane::Lane;
use natgate_io::{Batch, Device, Frame, HEADROOM, Lost, Receive, Transmit};
use natgate_wire::Ipv4;
use natgate_wire::arp::{Mac, write_ethernet};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a frame's head: headers and the packet's number.
pub(super) const HEAD: usize = 60;
/// Position of the packet's number in the frame.
const NUMBER: std::ops::Range<usize> = 42..46;
const LONGEST: usize = 1518;

/// An endpoint: address and port.
pub(super) type End = (u32, u16);

/// Head of a frame.
pub(super) type Head = [u8; HEAD];

/// Creates the head of a frame of `length` bytes with its checksum. The frame is a UDP datagram
/// with a number.
pub(super) fn head(to: Mac, length: u16, source: End, destination: End, number: u32) -> Head {
    let mut head = [0; HEAD];
    if let Some(header) = head.first_chunk_mut() {
        write_ethernet(header, to, STATION, ethertype::IPV4);
    }
    let length = length - 4 - ETHERNET_LEN as u16;
    let mut packet = Ipv4::init(&mut head[ETHERNET_LEN..], 20);
    packet.set_total_len(length);
    packet.set_ttl(64);
    packet.set_protocol(protocol::UDP);
    packet.set_source(source.0);
    packet.set_destination(destination.0);
    packet.fill_checksum();
    // The UDP checksum is wrong; no reader checks it.
    let udp = [source.1, destination.1, length - 20, 0x1234];
    for (place, word) in head[34..42].chunks_exact_mut(2).zip(udp) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    head[NUMBER].copy_from_slice(&number.to_be_bytes());
    head
}

/// Number and source of a packet, if the packet is complete.
fn sent(frame: &[u8]) -> Option<(u32, End)> {
    let word = |at: usize| Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    Some((word(NUMBER.start)?, (word(26)?, (word(34)? >> 16) as u16)))
}

#[derive(Debug, Default)]
struct Shared {
    heads: Vec<Head>,
    next: usize,
    /// Bytes of each frame.
    length: usize,
    sent: u64,
    /// Numbers and sources of outgoing packets, if they are recorded.
    kept: Option<Vec<(u32, End)>>,
    answers: VecDeque<Vec<u8>>,
}

/// The other end of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire(Arc<Mutex<Shared>>);

impl Wire {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues frames for reception; `length` includes the checksum.
    pub(super) fn send(&self, heads: Vec<Head>, length: u16) {
        let mut shared = self.lock();
        shared.length = usize::from(length) - 4;
        (shared.heads, shared.next) = (heads, 0);
    }

    /// Number of frames that the device has not received yet.
    pub(super) fn waiting(&self) -> usize {
        let shared = self.lock();
        shared.heads.len() - shared.next + shared.answers.len()
    }

    /// Number of outgoing frames.
    pub(super) fn count(&self) -> u64 {
        self.lock().sent
    }

    /// Records outgoing packets from now on.
    pub(super) fn keep(&self) {
        self.lock().kept = Some(Vec::new());
    }

    /// Numbers and sources of the recorded packets.
    pub(super) fn take_kept(&self) -> Vec<(u32, End)> {
        self.lock().kept.take().unwrap_or_default()
    }
}

/// Creates a device with this hardware address, and its other end.
pub(super) fn stock(name: &str, mac: Mac) -> (impl Device + use<>, Wire) {
    let wire = Wire::default();
    let buffers = vec![[0; HEADROOM + LONGEST]; natgate_io::BATCH];
    let source = Source { wire: wire.clone(), buffers };
    (Lane::new(name, mac, 1500, (source, Sink(wire.clone()))), wire)
}

#[derive(Debug)]
struct Source {
    wire: Wire,
    buffers: Vec<[u8; HEADROOM + LONGEST]>,
}

impl Receive for Source {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        let mut shared = self.wire.lock();
        for buffer in self.buffers.iter_mut().take(batch.remaining_capacity()) {
            let length = match shared.answers.pop_front() {
                Some(answer) => {
                    buffer[HEADROOM..][..answer.len()].copy_from_slice(&answer);
                    answer.len()
                }
                None => {
                    let Some(head) = shared.heads.get(shared.next) else { break };
                    buffer[HEADROOM..][..HEAD].copy_from_slice(head);
                    shared.next += 1;
                    shared.length
                }
            };
            batch.push(Frame::of(buffer, HEADROOM, HEADROOM + length));
        }
    }
}

#[derive(Debug)]
struct Sink(Wire);

impl Transmit for Sink {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        let mut shared = self.0.lock();
        for frame in frames {
            let bytes = frame.bytes();
            if bytes.get(12..ETHERNET_LEN) == Some(&ethertype::ARP.to_be_bytes()) {
                shared.answers.extend(answer(bytes));
                continue;
            }
            shared.sent += 1;
            if let Some(kept) = &mut shared.kept {
                kept.extend(sent(bytes));
            }
        }
        Lost::NONE
    }
}
