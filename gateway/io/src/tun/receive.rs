//! The receiving half: one read a packet, into memory of this process with room for the Ethernet
//! header.

use super::{ANSWERS, Answer, GATEWAY, LONGEST_ANSWER, STATION, socket};
use crate::{BATCH, Batch, Frame, HEADROOM};
use arrayvec::ArrayVec;
use natgate_wire::arp;
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Frames counted on the way in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) oversize: u64,
}

/// Receiver of a device that exists.
#[derive(Debug)]
pub(super) struct Receiver {
    file: Arc<OwnedFd>,
    mtu: usize,
    memory: Vec<u8>,
}

/// Offset of a packet in its piece of the memory.
const PACKET: usize = HEADROOM + ETHERNET_LEN;

impl Receiver {
    pub(super) fn new(file: Arc<OwnedFd>, mtu: usize) -> Self {
        Self { file, mtu, memory: vec![0; BATCH * piece(mtu)] }
    }

    pub(super) fn receive<'d>(
        &'d mut self,
        answers: &mut ArrayVec<Answer, ANSWERS>,
        batch: &mut Batch<'d>,
        counts: &mut Counts,
    ) {
        let before = batch.len();
        for memory in self.memory.chunks_exact_mut(piece(self.mtu)).take(batch.remaining_capacity())
        {
            if !answers.is_empty() {
                let answer = answers.remove(0);
                memory[HEADROOM..HEADROOM + answer.len()].copy_from_slice(&answer);
                batch.push(Frame::of(memory, HEADROOM, HEADROOM + answer.len()));
                continue;
            }
            let Some(len) = socket::read(&self.file, &mut memory[PACKET..]) else { break };
            if len > self.mtu {
                counts.oversize += 1;
                continue;
            }
            let kind = match memory[PACKET] >> 4 {
                6 => ethertype::IPV6,
                _ => ethertype::IPV4,
            };
            if let Some(header) = memory[HEADROOM..].first_chunk_mut() {
                arp::write_ethernet(header, GATEWAY, STATION, kind);
            }
            batch.push(Frame::of(memory, HEADROOM, PACKET + len));
        }
        counts.received += (batch.len() - before) as u64;
    }
}

/// Memory for a packet, bytes: one more than the longest packet, so that a longer one is detected.
/// An answer of the device fits, too.
fn piece(mtu: usize) -> usize {
    PACKET + mtu.max(LONGEST_ANSWER) + 1
}
