//! Frames on their way out of the router, and losses there.
//!
//! Frames wait here until the worker fetches them. Packets longer than the link are cut into
//! fragments as they come in, once their neighbour is known. Losses are counted here, and reported
//! to senders if that is due.

use super::errors::{Conversation, Errors, Unreachable};
use super::neighbors::WaitingPacket;
use super::resolution::NeighborReport;
use super::{Fate, Port, RouterCounters, with_header_room};
use crate::counters::{Losses, Origin};
use crate::fragment::fragment;
use crate::link::Link;
use natgate_engine::DropReason;
use natgate_wire::arp::Mac;
use natgate_wire::link::ETHERNET_LEN;
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Most frames that wait to be fetched; beyond that, no answers are added.
const MOST_QUEUED: usize = 4096;

/// Most routers outside without an answer that wait to be fetched.
const MOST_SILENT: usize = 16;

/// Frames on their way out, and losses there.
#[derive(Debug)]
pub(super) struct Outbox {
    frames: VecDeque<(Link, Vec<u8>, Option<Origin>)>,
    /// Packets that wait for neighbours, all links.
    pub(super) held: usize,
    pub(super) losses: Losses,
    pub(super) counters: RouterCounters,
    pub(super) errors: Errors,
    /// Reports about neighbours, oldest first.
    pub(super) reports: VecDeque<NeighborReport>,
    /// Routers outside that did not answer, until they are fetched.
    pub(super) silent: Vec<Ipv4Addr>,
}

impl Outbox {
    pub(super) fn new(errors: Errors) -> Self {
        Self {
            frames: VecDeque::new(),
            held: 0,
            losses: Losses::default(),
            counters: RouterCounters::default(),
            errors,
            reports: VecDeque::new(),
            silent: Vec::new(),
        }
    }

    /// True if so many frames wait that no answer should be added.
    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= MOST_QUEUED
    }

    /// Adds a finished frame.
    pub(super) fn push(&mut self, link: Link, frame: Vec<u8>, origin: Option<Origin>) {
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

    /// Adds a packet to a neighbour, behind room for its header; in fragments if the link needs
    /// that. The packet counts as lost if its first fragment is lost.
    pub(super) fn push_packet(
        &mut self,
        link: Link,
        port: &Port,
        mac: Mac,
        mut frame: Vec<u8>,
        origin: Option<Origin>,
    ) -> Fate {
        let packet = &frame[ETHERNET_LEN..];
        if packet.len() <= port.mtu {
            port.write_header(&mut frame, mac);
            self.push(link, frame, origin);
            return Fate::Kept;
        }
        let Some(fragments) = fragment(packet, port.mtu) else {
            return self.lose(origin, DropReason::TooBig);
        };
        let mut origin = origin;
        for fragment in fragments {
            let mut frame = with_header_room(&fragment);
            port.write_header(&mut frame, mac);
            self.push(link, frame, origin.take());
        }
        Fate::Kept
    }

    /// Counts a loss.
    pub(super) fn lose(&mut self, origin: Option<Origin>, reason: DropReason) -> Fate {
        self.losses.note(origin, reason);
        Fate::Lost
    }

    /// Counts the loss of packets whose neighbour is no longer asked for.
    pub(super) fn give_up(&mut self, held: Vec<WaitingPacket>) {
        self.counters.neighbors_lost += 1;
        self.held -= held.len();
        for held in held {
            self.losses.note(held.origin, DropReason::NoNeighbor);
        }
    }

    /// Notes that a next hop does not answer for which packets have waited, if it is a router
    /// outside. A host that does not answer is no fault of the link.
    pub(super) fn note_silence(&mut self, link: Link, hop: Ipv4Addr, held: &[WaitingPacket]) {
        const DESTINATION: usize = ETHERNET_LEN + 16;
        let is_routed = |held: &WaitingPacket| {
            held.frame.get(DESTINATION..DESTINATION + 4) != Some(&hop.octets()[..])
        };
        let is_new = !self.silent.contains(&hop) && self.silent.len() < MOST_SILENT;
        if is_new && link == Link::OUTSIDE && held.iter().any(is_routed) {
            self.silent.push(hop);
        }
    }

    /// Makes the error about a packet that cannot be delivered; returns true if an error was due.
    pub(super) fn report(
        &mut self,
        link: Link,
        packet: &[u8],
        origin: Option<Origin>,
        unreachable: Unreachable,
    ) -> bool {
        let made = self.errors.report(link, packet, origin, unreachable);
        self.counters.errors_suppressed += u64::from(made == Some(false));
        made.is_some()
    }

    /// Makes errors about packets that waited in vain for a neighbour, one for each conversation.
    pub(super) fn report_held(&mut self, link: Link, held: &[WaitingPacket]) {
        let mut told: Vec<Conversation> = Vec::new();
        for held in held {
            let packet = &held.frame[ETHERNET_LEN..];
            let Some(conversation) = Conversation::of(packet) else { continue };
            if !told.contains(&conversation)
                && self.report(link, packet, held.origin, Unreachable::Host)
            {
                told.push(conversation);
            }
        }
    }
}
