//! Frames on their way out of the router, and losses there.

use super::errors::Errors;
use super::neighbors::WaitingPacket;
use super::{Fate, Router6Counters};
use crate::counters::{Losses, Origin};
use crate::link::Link;
use natgate_engine::DropReason;
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::collections::VecDeque;

/// Most frames that wait to be fetched; beyond that, no answers are added.
const MOST_QUEUED: usize = 4096;

/// Frames on their way out, and losses there.
#[derive(Debug)]
pub(super) struct Outbox {
    frames: VecDeque<(Link, Vec<u8>, Option<Origin>)>,
    /// Packets that wait for neighbours, both links.
    pub(super) held: usize,
    pub(super) losses: Losses,
    pub(super) counters: Router6Counters,
    pub(super) errors: Errors,
    /// True if the router sends what a gateway sends once; else the router of another worker does.
    pub(super) speaks: bool,
}

impl Outbox {
    pub(super) fn new(errors: Errors) -> Self {
        Self {
            frames: VecDeque::new(),
            held: 0,
            losses: Losses::default(),
            counters: Router6Counters::default(),
            errors,
            speaks: true,
        }
    }

    /// True if so many frames wait that no answer should be added.
    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= MOST_QUEUED
    }

    /// Adds a packet of the router's own to `destination`; returns false if there is no room.
    pub(super) fn push_own(
        &mut self,
        link: Link,
        (source, destination): (Mac, Mac),
        packet: &[u8],
    ) -> bool {
        let is_full = self.is_full();
        if !is_full {
            self.push(link, (source, destination), with_header_room(packet), None);
        }
        !is_full
    }

    /// As [`Outbox::push_own`], for a packet that only one of several workers sends.
    pub(super) fn push_once(&mut self, link: Link, ends: (Mac, Mac), packet: &[u8]) -> bool {
        self.speaks && self.push_own(link, ends, packet)
    }

    /// Adds a packet behind room for its header.
    pub(super) fn push(
        &mut self,
        link: Link,
        (source, destination): (Mac, Mac),
        mut frame: Vec<u8>,
        origin: Option<Origin>,
    ) {
        if let Some(header) = frame.first_chunk_mut() {
            arp::write_ethernet(header, destination, source, ethertype::IPV6);
        }
        self.frames.push_back((link, frame, origin));
    }

    /// Returns the oldest frame.
    pub(super) fn pop(&mut self) -> Option<(Link, Vec<u8>, Option<Origin>)> {
        self.frames.pop_front()
    }

    /// Drops the frames that wait for a link, and the errors about packets of that link.
    pub(super) fn forget(&mut self, link: Link) {
        let Self { frames, losses, errors, .. } = self;
        frames.retain(|(out, _, origin)| {
            if *out == link {
                losses.note(*origin, DropReason::NoNeighbor);
            }
            *out != link
        });
        errors.forget(link);
    }

    /// Counts a loss.
    pub(super) fn lose(&mut self, origin: Option<Origin>, reason: DropReason) -> Fate {
        self.losses.note(origin, reason);
        Fate::Lost
    }

    /// Counts the loss of packets that waited for a neighbour.
    pub(super) fn give_up(&mut self, held: impl IntoIterator<Item = WaitingPacket>) {
        for held in held {
            self.held -= 1;
            self.losses.note(held.origin, DropReason::NoNeighbor);
        }
    }
}

/// Copies a packet, with room for an Ethernet header in front.
pub(super) fn with_header_room(packet: &[u8]) -> Vec<u8> {
    [&[0; ETHERNET_LEN], packet].concat()
}
