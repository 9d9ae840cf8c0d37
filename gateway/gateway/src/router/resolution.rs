//! ARP on the router's links: requests, answers, and what the router learns from messages.
//!
//! [`super::claims`] decides which message is believed; [`super::neighbors`] keeps the neighbours.

use super::claims::Assertion;
use super::neighbors::{Action, WaitingPacket};
use super::outbox::Outbox;
use super::{Fate, MOST_HELD_IN_ALL, Port, Router, index, link_at};
use crate::link::Link;
use natgate_engine::{DropReason, Timestamp};
use natgate_wire::arp::{self, Arp, Mac, Operation, Repr};
use natgate_wire::link::ETHERNET_LEN;
use std::net::Ipv4Addr;

/// Most reports about neighbours that wait to be fetched.
const MOST_REPORTS: usize = 64;

/// Most neighbours of a link that are asked for in a second to verify the source of a packet.
pub const MOST_CHECKED_PER_SECOND: u32 = 256;

/// Change of a neighbour's hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborEvent {
    /// Other hardware claimed the address, and was rejected.
    Conflict,
    /// Other hardware has the address now.
    Changed,
}

impl NeighborEvent {
    /// Name of the event in logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conflict => "neighbor_conflict",
            Self::Changed => "neighbor_changed",
        }
    }
}

/// A claim to a neighbour's address, and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborReport {
    /// Result of the claim.
    pub event: NeighborEvent,
    /// The link.
    pub link: Link,
    /// Address of the neighbour.
    pub address: Ipv4Addr,
    /// Hardware address that the neighbour had.
    pub mac: Mac,
    /// Hardware address of the claim.
    pub other: Mac,
}

impl Router {
    /// Asks for a neighbour's hardware address, unless it is known or being asked for.
    pub fn seek(&mut self, now: Timestamp, link: Link, address: Ipv4Addr) {
        let Self { ports, outbox, .. } = self;
        let port = &mut ports[index(link)];
        let asker = port.asker();
        port.neighbors.ask(now, address, &mut |action| asker.act(action, link, outbox));
    }

    /// Hardware address of a neighbour, if it is known; changes nothing.
    pub fn known(&self, link: Link, address: Ipv4Addr) -> Option<Mac> {
        self.ports.get(index(link))?.neighbors.known(address)
    }

    /// True if a packet from a link may be from its source. A source behind a router may be. A
    /// source of the link's network may be if the neighbour with that address has this hardware
    /// address. An unknown neighbour is asked for, and the refusal is counted.
    pub fn vouches(&mut self, now: Timestamp, link: Link, source: Ipv4Addr, mac: Mac) -> bool {
        let Self { ports, outbox, .. } = self;
        let port = &mut ports[index(link)];
        if !port.routes.is_on_link(source) || port.owned.contains(source) {
            return true;
        }
        let known = port.neighbors.known(source);
        if known == Some(mac) {
            return true;
        }
        outbox.counters.sources_refused += 1;
        if known.is_none() && port.neighbors.source_checks.take(now, MOST_CHECKED_PER_SECOND) {
            let asker = port.asker();
            port.neighbors.ask(now, source, &mut |action| asker.act(action, link, outbox));
        }
        false
    }

    /// Processes an Ethernet frame without a tag that carries ARP.
    pub fn receive_arp(&mut self, now: Timestamp, link: impl Into<Link>, frame: &[u8]) {
        let link = link.into();
        self.outbox.counters.arp_received += 1;
        if let Some(message) = self.learn_neighbor(now, link, frame, false)
            && message.operation == Operation::Request
        {
            self.answer(link, &message);
        }
    }

    /// Counts an ARP frame that belongs to no link.
    pub fn ignore_arp(&mut self) {
        self.outbox.counters.arp_received += 1;
        self.outbox.counters.arp_ignored += 1;
    }

    /// Learns from an ARP frame that another router with the same addresses has received and
    /// answers.
    pub fn overhear_arp(&mut self, now: Timestamp, link: impl Into<Link>, frame: &[u8]) {
        let counters = self.outbox.counters;
        self.learn_neighbor(now, link.into(), frame, true);
        // The other router has counted the frame.
        (self.outbox.counters.arp_ignored, self.outbox.counters.arp_conflicts) =
            (counters.arp_ignored, counters.arp_conflicts);
    }

    /// Learns a neighbour from ARP; returns the message if it may be answered.
    fn learn_neighbor(
        &mut self,
        now: Timestamp,
        link: Link,
        frame: &[u8],
        overheard: bool,
    ) -> Option<Repr> {
        let Some(Received { destination, source, message }) = Received::read(frame) else {
            self.outbox.counters.arp_ignored += 1;
            return None;
        };
        let Self { ports, outbox, .. } = self;
        let port = &mut ports[index(link)];
        if !(destination == port.mac || destination == Mac::BROADCAST)
            || message.sender_mac == port.mac
            //= rfc1812#section-3.3.2-group
            //= rfc1812#section-5.3.4-send
            || !message.sender_mac.is_station()
        {
            outbox.counters.arp_ignored += 1;
            return None;
        }
        // A station that claims an address of the gateway is neither believed nor answered.
        if port.owned.contains(message.sender) {
            outbox.counters.arp_conflicts += 1;
            return None;
        }
        let is_request = message.operation == Operation::Request;
        let said = Assertion {
            address: message.sender,
            mac: message.sender_mac,
            is_reply: !is_request && destination == port.mac,
            // A subscriber asks for its gateway before its first packet.
            teaches: is_request
                && port.owned.contains(message.target)
                && port.routes.is_on_link(message.sender)
                && source == message.sender_mac,
            overheard,
            is_next_hop: port.routes.is_next_hop(message.sender),
        };
        let asker = port.asker();
        let reaction =
            port.neighbors.told(now, &said, &mut |action| asker.act(action, link, outbox));
        outbox.counters.neighbors_refused += u64::from(reaction.refused);
        self.release(link, message.sender_mac, reaction.released);
        Some(message)
    }

    /// Answers a request for an address of the gateway. A probe (RFC 5227), whose sender has no
    /// address yet, is answered like any other request: so the prober learns that the address is
    /// taken.
    fn answer(&mut self, link: Link, request: &Repr) {
        let port = &self.ports[index(link)];
        if !port.owned.contains(request.target) || self.outbox.is_full() {
            return;
        }
        let reply = Repr {
            operation: Operation::Reply,
            sender_mac: port.mac,
            sender: request.target,
            target_mac: request.sender_mac,
            target: request.sender,
        };
        self.outbox.push(link, reply.frame(request.sender_mac).to_vec(), None);
        self.outbox.counters.arp_answered += 1;
    }

    /// Sends the packets that waited for a neighbour.
    pub(super) fn release(&mut self, link: Link, mac: Mac, released: Vec<WaitingPacket>) {
        for held in released {
            self.outbox.held -= 1;
            let port = &self.ports[index(link)];
            self.outbox.push_packet(link, port, mac, held.frame, held.origin);
        }
    }

    /// Does the work that is due: asks again, gives up, forgets.
    pub fn advance(&mut self, now: Timestamp) {
        let Self { ports, outbox, .. } = self;
        for (place, port) in ports.iter_mut().enumerate() {
            let (asker, link) = (port.asker(), link_at(place));
            port.neighbors.advance(now, &mut |action| asker.act(action, link, outbox));
        }
    }

    /// Returns the next report about a neighbour's hardware address, oldest first.
    pub fn poll_report(&mut self) -> Option<NeighborReport> {
        self.outbox.reports.pop_front()
    }
}

impl Port {
    pub(super) fn asker(&self) -> Asker {
        Asker { mac: self.mac, address: self.address }
    }
}

/// The sender of ARP requests on a link.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    mac: Mac,
    address: Ipv4Addr,
}

impl Asker {
    pub(super) fn act(self, action: Action, link: Link, outbox: &mut Outbox) {
        match action {
            Action::Ask(target, known) => {
                let request = Repr {
                    operation: Operation::Request,
                    sender_mac: self.mac,
                    sender: self.address,
                    target_mac: Mac::default(),
                    target,
                };
                let frame = request.frame(known.unwrap_or(Mac::BROADCAST));
                outbox.push(link, frame.to_vec(), None);
                outbox.counters.arp_asked += 1;
            }
            Action::GiveUp(hop, held) => {
                outbox.report_held(link, &held);
                outbox.note_silence(link, hop, &held);
                outbox.give_up(held);
            }
            Action::Evict(held) => outbox.give_up(held),
            Action::Conflict { address, mac, claimed } => {
                outbox.counters.neighbor_conflicts += 1;
                let event = NeighborEvent::Conflict;
                outbox.add_report(NeighborReport { event, link, address, mac, other: claimed });
            }
            Action::Changed { address, from, to } => {
                outbox.counters.neighbor_changes += 1;
                let event = NeighborEvent::Changed;
                outbox.add_report(NeighborReport { event, link, address, mac: from, other: to });
            }
        }
    }
}

impl Outbox {
    /// Adds a report; if the queue is full, the report is left out.
    fn add_report(&mut self, report: NeighborReport) {
        if self.reports.len() < MOST_REPORTS {
            self.reports.push_back(report);
        }
    }
}

/// Keeps a packet until its neighbour is known, and asks for the neighbour.
#[cold]
pub(super) fn hold(
    now: Timestamp,
    link: Link,
    hop: Ipv4Addr,
    held: WaitingPacket,
    port: &mut Port,
    outbox: &mut Outbox,
) -> Fate {
    let asker = port.asker();
    let asked = port.neighbors.ask(now, hop, &mut |action| asker.act(action, link, outbox));
    outbox.counters.neighbors_refused += u64::from(!asked);
    // Packets to neighbours that were known before have twice as much room.
    let most = match port.neighbors.was_known(hop) {
        true => 2 * MOST_HELD_IN_ALL,
        false => MOST_HELD_IN_ALL,
    };
    let held = if asked && outbox.held < most { port.neighbors.hold(hop, held) } else { Err(held) };
    match held {
        Ok(()) => {
            outbox.held += 1;
            Fate::Kept
        }
        Err(held) => outbox.lose(held.origin, DropReason::NoNeighbor),
    }
}

/// An ARP message, and the addresses of its frame.
pub(super) struct Received {
    pub(super) destination: Mac,
    source: Mac,
    pub(super) message: Repr,
}

impl Received {
    /// Reads an Ethernet frame without a tag.
    pub(super) fn read(frame: &[u8]) -> Option<Self> {
        let (destination, source, _) = arp::read_ethernet(frame)?;
        let message = Arp::new_checked(&frame[ETHERNET_LEN..])?.repr();
        Some(Self { destination, source, message })
    }
}
