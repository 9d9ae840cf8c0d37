//! A worker in a team, for IPv6: whose a packet is, what all workers hear of, and packets between
//! hosts of different workers.

use super::{Passage, ROOM, with_room};
use crate::link::Link;
use crate::team::Kind;
use crate::worker::stages::{NO_VERDICTS, Packets, Stages, TranslatedPacket, Verdicts};
use crate::worker::together::is_link_local;
use natgate_engine::{Direction, Packet, Side, Timestamp, Verdict};
use natgate_io::{Frame, Transmit};
use natgate_ipv6::Fate;
use natgate_wire::arp::Mac;
use natgate_wire::{ipv6, protocol};

impl Stages {
    /// True if this worker owns an IPv6 packet that came in by a link; otherwise the packet has
    /// been handed over.
    pub(super) fn is_here_ipv6(
        &mut self,
        now: Timestamp,
        link: Link,
        source: Mac,
        frame: &Frame<'_>,
    ) -> bool {
        let Self { team: Some(team), families: Some(families), .. } = self else { return true };
        if families.translator.is_path_report(link.side, frame.bytes()) {
            // Packets to one customer may leave by any worker.
            team.tell_ipv6(link, source, frame.bytes());
            families.translator.overhear(now, frame.bytes());
        }
        let way = team.dispatch_ipv6(Kind::Packet(link, source), frame.bytes());
        self.has_come(way, Direction::forwarded(link.side, link.side.other()), frame.len())
    }

    /// Takes a packet to a link-local address if it is a request for a mapping, or hands it to the
    /// worker of its host.
    pub(super) fn take_ignored(
        &mut self,
        now: Timestamp,
        link: Link,
        source: Mac,
        frame: &Frame<'_>,
    ) {
        let bytes = frame.bytes();
        if !self.pcp.serves_nat64() || !is_link_local(bytes) {
            return;
        }
        let is_elsewhere = self.team.is_some()
            && is_request(bytes)
            && !self.is_here_ipv6(now, link, source, frame);
        let is_taken = is_elsewhere || self.take_link_local(now, source, bytes);
        if let Some(families) = self.families.as_mut().filter(|_| is_taken) {
            families.router.take_ignored();
        }
    }

    /// Learns from an IPv6 packet that another worker has received.
    pub(in crate::worker) fn overhear_ipv6(
        &mut self,
        now: Timestamp,
        link: Link,
        source: Mac,
        packet: &[u8],
    ) {
        let Some(families) = &mut self.families else { return };
        if families.translator.is_path_report(link.side, packet) {
            families.translator.overhear(now, packet);
        } else {
            families.router.overhear(now, link, source, packet);
        }
    }

    /// Converts and sends the packets of a batch that have turned round to hosts of NAT64. An empty
    /// frame stays in the place of each.
    pub(in crate::worker) fn send_turned_to_hosts(
        &mut self,
        now: Timestamp,
        packets: &mut Packets<'_>,
        verdicts: &mut Verdicts,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut families) = self.families.take() else { return };
        let mut passage = Passage::new(self, &mut families, now, transmitters);
        passage.send_to_hosts(Side::Inside, packets, verdicts);
        self.families = Some(families);
    }
}

impl<'d> Passage<'_, '_, '_, 'd> {
    /// Does with a packet what the translator has decided.
    pub(super) fn carry_out(&mut self, fate: Fate, frame: Frame<'d>) {
        match fate {
            Fate::Send(departure) => self.depart(departure, frame),
            Fate::HandOver(realm) => {
                let turned = self.stages.turn_over(self.now, frame, realm);
                if let Some(turned) = turned {
                    self.send_turned(turned);
                }
            }
            Fate::Local | Fate::Nothing => {}
        }
    }

    /// Sends a hairpin packet whose receiver's endpoint is translated.
    fn send_turned(&mut self, (frame, verdict, realm): TranslatedPacket<'d>) {
        let (mut packets, mut verdicts) = (Packets::one(frame, realm), NO_VERDICTS);
        verdicts[0] = verdict;
        self.send_to_hosts(Side::Inside, &mut packets, &mut verdicts);
        self.flush();
        self.stages.deliver(
            self.now,
            Side::Inside,
            (&mut packets, &verdicts),
            &mut *self.transmitters,
        );
    }

    /// Hands over a hairpin packet that is in no batch. Sends it if this worker has its receiver.
    #[cold]
    pub(in crate::worker) fn turn_over_made(&mut self, realm: u16, packet: &[u8]) {
        let mut buffer = with_room(packet);
        let end = buffer.len();
        let frame = Frame::of(&mut buffer, ROOM, end);
        let turned = self.stages.turn_over(self.now, frame, realm);
        let Some((frame, Verdict::Forward(side), realm)) = turned else { return };
        let to_host = side == Side::Inside && self.families.translator.realms().has(realm);
        let packet = frame.bytes().to_vec();
        self.send_made((side, realm), to_host, &packet);
    }

    /// Hands over a hairpin error of the router's own, or sends it if this worker has its receiver.
    #[cold]
    pub(super) fn turn_error_over(&mut self, realm: u16, error: &[u8]) {
        let mut buffer = with_room(error);
        let end = buffer.len();
        let frame = Frame::of(&mut buffer, ROOM, end);
        let turned = self.stages.turn_error_over(self.now, frame, realm);
        let Some((frame, Verdict::Forward(side), realm)) = turned else { return };
        let (mut buffer, end) = (with_room(frame.bytes()), ROOM + frame.len());
        let mut packet = Packet::new(&mut buffer, ROOM);
        let translator = &mut self.families.translator;
        let to_host = side == Side::Inside && translator.realms().has(realm);
        if to_host && translator.convert_own_to_host(realm, &mut packet).is_err() {
            return;
        }
        let (start, end) = if to_host { (packet.start(), packet.end()) } else { (ROOM, end) };
        self.send_error(side, Frame::of(&mut buffer, start, end));
    }

    /// Sends a packet of the gateway's own making; `to_host`: to a host with a number.
    #[cold]
    pub(super) fn send_made(&mut self, to: (Side, u16), to_host: bool, packet: &[u8]) {
        let mut buffer = with_room(packet);
        match to_host {
            true => self.send_to_host(to.1, &mut buffer, packet.len()),
            false => {
                let end = buffer.len();
                self.send_now(to, Frame::of(&mut buffer, ROOM, end), None);
            }
        }
    }
}

/// True if an IPv6 packet may be a request for a mapping.
fn is_request(packet: &[u8]) -> bool {
    const PORT: [u8; 2] = natgate_pcp::SERVER_PORT.to_be_bytes();
    let port = packet.get(ipv6::HEADER_LEN + 2..ipv6::HEADER_LEN + 4);
    packet.get(ipv6::NEXT_HEADER) == Some(&protocol::UDP) && port == Some(&PORT)
}
