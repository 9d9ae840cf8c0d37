//! Requests from outside that the filter has refused. An error answers each of them six seconds
//! later, unless the inside has sent something from the endpoint by then: both ends of a connection
//! may begin it (RFC 6092 sections 3.3.1 and 3.3.2).

use super::records::{Key, SECOND};
use crate::errors::requester_of;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use natgate_wire::ipv6::{self, MIN_MTU};
use natgate_wire::{Ipv6, icmpv6};

/// Time between a request and its answer, nanoseconds (RFC 6092 REC-34, REC-39).
const DELAY: u64 = 6 * SECOND;
/// Most requests that wait for an answer, and most of them in a class.
const MOST: usize = 1024;
const MOST_OF_CLASS: u8 = 64;
/// Classes of the networks that requests come from.
const CLASSES: usize = 256;
/// Longest quotation in an error, bytes.
const QUOTE: usize = MIN_MTU - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;
/// A request that was refused.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Time of the answer, nanoseconds.
    pub(super) due: u64,
    pub(super) receiver: Key,
    /// The start of the packet as received.
    pub(super) quoted: Vec<u8>,
}

/// The requests that wait for an answer, oldest first. One network has a share of the places.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    waiting: VecDeque<Request>,
    /// Requests of each class.
    counts: [u8; CLASSES],
}

impl Default for Requests {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), counts: [0; CLASSES] }
    }
}

/// The class of the network that a packet comes from.
fn class_of(packet: &[u8]) -> usize {
    let source = Ipv6::new_header_checked(packet).map_or(0, |header| header.source());
    requester_of((source >> 64) as u64) as usize % CLASSES
}

impl Requests {
    /// Remembers a request to `received`, its destination as it came. Returns `false` if there are
    /// too many.
    pub(super) fn add(&mut self, now: u64, receiver: Key, bytes: &[u8], received: u128) -> bool {
        let count = &mut self.counts[class_of(bytes)];
        if self.waiting.len() >= MOST || *count >= MOST_OF_CLASS {
            return false;
        }
        *count += 1;
        let mut quoted = bytes[..bytes.len().min(QUOTE)].to_vec();
        if let Ok(mut header) = Ipv6::new_header_checked(&mut quoted[..]) {
            header.set_destination(received);
        }
        self.waiting.push_back(Request { due: now.saturating_add(DELAY), receiver, quoted });
        true
    }

    /// The oldest request, if its answer is due.
    pub(super) fn pop(&mut self, now: u64) -> Option<Request> {
        let request = self.waiting.pop_front_if(|request| request.due <= now)?;
        self.counts[class_of(&request.quoted)] -= 1;
        Some(request)
    }
}
