//! A worker in a team: hands packets to their owners, and processes packets that others have handed
//! over.

use super::stages::{
    NO_VERDICTS, Output, Packets, Stages, TranslatedPacket, Verdicts, seen, transmitters,
};
use crate::link::Link;
use crate::single_writer::add;
use crate::tap::Moment;
use crate::team::{HandedPacket, Kind, Member, OwnerLookup, Parcel, Way};
use crate::wiring::Devices;
use natgate_engine::{Direction, DropReason, Side, Timestamp, Verdict};
use natgate_io::{BATCH, Frame, HEADROOM, Transmit};
use natgate_wire::Ipv6;
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};

/// Packets that other workers have handed over, a batch at most, until their buffers go back.
#[derive(Debug)]
pub(super) struct Handed {
    /// Packets as they came in by a link of the inside and of the outside. This worker owns them,
    /// so they fill up the batches of devices of their side.
    plain: [Vec<Parcel>; 2],
    others: Vec<Parcel>,
    /// Messages to all workers. A packet may need what they tell.
    pub(super) told: Vec<Parcel>,
}

impl Handed {
    pub(super) fn new() -> Self {
        let room = || Vec::with_capacity(BATCH);
        Self { plain: [room(), room()], others: room(), told: room() }
    }

    /// Takes a batch; returns the number of packets in it, without messages to all workers.
    pub(super) fn take_from(&mut self, team: &mut Member) -> usize {
        let mut taken = 0;
        let parcel = |from, parcel: HandedPacket| {
            let is_told = matches!(parcel.kind, Kind::Arp(_) | Kind::Told(..));
            taken += usize::from(!is_told);
            // No packet overtakes an earlier one of its sender, such as a fragment of its flow.
            let is_first = self.others.last().is_none_or(|(last, _)| *last != from);
            let parcels = match (parcel.kind, parcel.asked) {
                _ if is_told => &mut self.told,
                (Kind::Packet(link, _), OwnerLookup::Settled) if is_first => {
                    &mut self.plain[link.side as usize]
                }
                _ => &mut self.others,
            };
            parcels.push((from, parcel));
        };
        team.take(parcel, BATCH);
        taken
    }

    /// Packets for the batches of a side.
    pub(super) fn of(&mut self, side: Side) -> &mut Vec<Parcel> {
        &mut self.plain[side as usize]
    }

    /// All packets that have not gone back.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Vec<Parcel>> {
        self.plain.iter_mut().chain([&mut self.others])
    }
}

impl Stages {
    /// [`Stages::is_here`], quicker for packets of the commonest kind.
    #[inline(always)]
    pub(super) fn is_here_soon(
        &mut self,
        now: Timestamp,
        link: Link,
        source: Mac,
        packet: &Frame<'_>,
    ) -> bool {
        if !self.passes_from(link.side)
            && let Some(team) = &mut self.team
            && let Some(owner) = team.owner_of(link, packet.bytes())
        {
            if owner == team.number() {
                return true;
            }
            let way = team.hand_over(owner, Kind::Packet(link, source), packet.bytes());
            return self.has_come(
                way,
                Direction::forwarded(link.side, link.side.other()),
                packet.len(),
            );
        }
        self.is_here(now, link, source, packet)
    }

    /// Returns true if this worker owns a packet that came in by a link. Otherwise the packet has
    /// been handed over or passed on to the other node of a pair, waits for its first fragment, or
    /// is lost and counted.
    pub(super) fn is_here(
        &mut self,
        now: Timestamp,
        link: Link,
        source: Mac,
        packet: &Frame<'_>,
    ) -> bool {
        if self.passes_from(link.side) && self.pass_inbound(now, packet.bytes()) {
            return false;
        }
        let Some(team) = &mut self.team else { return true };
        let kind = Kind::Packet(link, source);
        let way =
            team.dispatch(now, (&mut self.engine, self.algs.as_deref()), kind, packet.bytes());
        self.has_come(way, Direction::forwarded(link.side, link.side.other()), packet.len())
    }

    /// True if packets from a side may pass on to the other node of a pair before their worker is
    /// searched for.
    #[inline]
    pub(super) fn passes_from(&self, side: Side) -> bool {
        side == Side::Outside && self.tunnel.is_some()
    }

    /// Counts a packet that does not stay here; returns true if it stays.
    #[inline]
    pub(super) fn has_come(&mut self, way: Way, direction: Direction, len: usize) -> bool {
        match way {
            Way::Here => return true,
            Way::Gone => {}
            Way::Lost => {
                add(&self.load.hand_over_full, 1);
                self.engine.count_lost(direction, DropReason::HandOverFull, len);
            }
            Way::Unguided => {
                self.engine.count_lost(direction, DropReason::FragmentLimit, len);
            }
        }
        false
    }

    /// Hands a hairpin packet, with its sender's endpoint translated, to the receiver's worker. If
    /// that is this worker, returns the packet and its verdict.
    pub(super) fn turn_over<'d>(
        &mut self,
        now: Timestamp,
        packet: Frame<'d>,
        realm: u16,
    ) -> Option<TranslatedPacket<'d>> {
        if self.pass_turned(now, realm, packet.bytes()) {
            return None;
        }
        let way = self.dispatch_turned(now, Kind::Turned(realm), packet.bytes());
        if !self.has_come(way, Direction::Hairpin, packet.len()) {
            return None;
        }
        Some(self.receive_one_turned(now, (packet, realm)))
    }

    /// Finds the worker of the receiver of a packet that turns round.
    fn dispatch_turned(&mut self, now: Timestamp, kind: Kind, packet: &[u8]) -> Way {
        let Some(team) = &mut self.team else { return Way::Here };
        team.dispatch(now, (&mut self.engine, self.algs.as_deref()), kind, packet)
    }

    /// Hands over the hairpin packets of a batch.
    pub(super) fn turn_over_some(
        &mut self,
        now: Timestamp,
        packets: &mut Packets<'_>,
        verdicts: &mut Verdicts,
    ) {
        for (number, verdict) in verdicts.iter_mut().enumerate().take(packets.len()) {
            if *verdict != Verdict::HandOver {
                continue;
            }
            let (frame, realm) = packets.take(number);
            // A packet that was handed over leaves an empty frame, which is skipped.
            let fated = self.turn_over(now, frame, realm);
            let (mut frame, fate, realm) = fated.unwrap_or((Frame::default(), Verdict::Held, 0));
            frame.set_realm(realm);
            packets.frames[number] = frame;
            *verdict = fate;
        }
    }

    /// Hands over a hairpin ICMP error of the router's own. It has not come in, so it is not
    /// counted.
    pub(super) fn turn_error_over<'d>(
        &mut self,
        now: Timestamp,
        error: Frame<'d>,
        realm: u16,
    ) -> Option<TranslatedPacket<'d>> {
        if self.pass_turned(now, realm, error.bytes()) {
            return None;
        }
        let way = self.dispatch_turned(now, Kind::Error(realm), error.bytes());
        if !self.error_has_come(way) {
            return None;
        }
        Some(self.receive_one_turned(now, (error, realm)))
    }

    /// Counts an error that is lost; returns true if the error stays here.
    fn error_has_come(&mut self, way: Way) -> bool {
        if let Way::Lost | Way::Unguided = way {
            self.router.suppress_error();
        }
        way == Way::Here
    }

    /// Processes a hairpin ICMP error that another worker has handed over.
    #[cold]
    fn unpack_error(
        &mut self,
        now: Timestamp,
        error: (Frame<'_>, u16),
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let before = self.engine.counters().clone();
        let fated = self.receive_one_turned(now, error);
        self.router.exclude(&before, self.engine.counters());
        if let Some((link, frame)) = self.emit(now, fated) {
            if self.is_of_hosts(link.side, link.realm) {
                return self.send_error_to_host(now, (link.realm, frame.bytes()), transmitters);
            }
            let mut output = Output::default();
            output.push(frame, None);
            self.send(&mut output, transmitters[self.cables.device_of(link)]);
        }
    }

    /// Translates the receiver's endpoint of a hairpin packet.
    fn receive_one_turned<'d>(
        &mut self,
        now: Timestamp,
        (frame, realm): (Frame<'d>, u16),
    ) -> TranslatedPacket<'d> {
        let (mut packet, mut verdict) = (Packets::one(frame, realm), [Verdict::Held]);
        self.receive_turned(now, &mut packet, &mut verdict);
        let ((frame, realm), [verdict]) = (packet.take(0), verdict);
        (frame, verdict, realm)
    }

    /// Translates the receivers' endpoints of several hairpin packets.
    fn receive_turned(
        &mut self,
        now: Timestamp,
        packets: &mut Packets<'_>,
        verdicts: &mut [Verdict],
    ) {
        let verdicts = &mut verdicts[..packets.len()];
        let watched = self.captures.is_on();
        if watched {
            self.captures.before(packets.views());
        }
        self.engine.process_turned(now, &mut packets.frames, verdicts);
        if watched {
            let moment = Moment { now, from: Side::Inside, turned: true };
            self.captures.after(moment, seen(packets, verdicts));
        }
    }

    /// Ethernet type of a packet from a realm that may be a request for a mapping: all of IPv6, and
    /// of IPv4 what is for the gateway itself.
    fn request_family(&self, link: Link, packet: &[u8]) -> Option<u16> {
        let own = self.engine.config().inside_of(link.realm).address;
        let is_local = || own.is_some_and(|own| packet.get(16..20) == Some(&own.octets()));
        match packet.first()? >> 4 {
            6 => Some(ethertype::IPV6),
            _ => is_local().then_some(ethertype::IPV4),
        }
    }

    /// Returns the frame of a packet that another worker has handed over. `None`: the packet was
    /// for a link-local address, and this worker has taken it. `is_crowded`: new hosts are judged
    /// by their frames' sources.
    fn open<'d>(
        &mut self,
        now: Timestamp,
        HandedPacket { kind, buffer, start, end, .. }: &'d mut HandedPacket,
        is_crowded: bool,
    ) -> Option<Frame<'d>> {
        match *kind {
            Kind::Packet(link @ Link { side: Side::Inside, .. }, source) => {
                let family = self.request_family(link, &buffer[*start..*end]);
                if let Some(family) = family.or(is_crowded.then_some(ethertype::IPV4)) {
                    // Requests for mappings are judged by their frames' sources, too.
                    let mut header = [0; ETHERNET_LEN];
                    arp::write_ethernet(&mut header, self.router.mac(link), source, family);
                    buffer[*start - ETHERNET_LEN..*start].copy_from_slice(&header);
                }
                if family == Some(ethertype::IPV6) && is_link_local(&buffer[*start..*end]) {
                    self.take_link_local(now, source, &buffer[*start..*end]);
                    return None;
                }
            }
            Kind::Passed(link) => self.name_no_source((link.side, link.realm), buffer, *start),
            _ => {}
        }
        Some(Frame::of(buffer, *start, *end))
    }

    /// Fills a batch up with packets of its side that other workers have handed over, and that
    /// this worker owns. Returns their number.
    pub(super) fn join<'d>(
        &mut self,
        now: Timestamp,
        packets: &mut Packets<'d>,
        parcels: &'d mut [Parcel],
    ) -> usize {
        let joined = parcels.len().min(packets.frames.remaining_capacity());
        // The packets may crowd the table before the last of them has its turn.
        let is_crowded = joined > 0 && self.engine.is_crowded_after(packets.len() + joined);
        for (_, parcel) in parcels.iter_mut().take(joined) {
            let realm = parcel.kind.link().realm;
            if let Some(frame) = self.open(now, parcel, is_crowded) {
                packets.push(frame, realm);
            }
        }
        joined
    }

    /// Processes packets that other workers have handed over.
    pub(super) fn unpack(
        &mut self,
        now: Timestamp,
        parcels: &mut [Parcel],
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let mut inside = Packets::new();
        let mut outside = Packets::new();
        let mut turned = Packets::new();
        // The other node has passed them on.
        let mut passed = [Packets::new(), Packets::new()];
        // The packets may crowd the table before the last of them has its turn.
        let is_crowded = self.engine.is_crowded_after(parcels.len());
        for (_, parcel) in parcels {
            let (kind, asked) = (parcel.kind, parcel.asked);
            let Some(frame) = self.open(now, parcel, is_crowded) else { continue };
            if let Kind::Arp(link) = kind {
                self.router.overhear_arp(now, link, frame.bytes());
            } else if let Kind::Told(link, source) = kind {
                self.overhear_ipv6(now, link, source, frame.bytes());
            } else if self.is_settled(now, (kind, asked), frame.bytes()) {
                match kind {
                    Kind::Packet(link, _) => match link.side {
                        Side::Inside => inside.push(frame, link.realm),
                        Side::Outside => outside.push(frame, 0),
                    },
                    Kind::Passed(link) => passed[link.side as usize].push(frame, link.realm),
                    Kind::Turned(realm) => turned.push(frame, realm),
                    Kind::Error(realm) => self.unpack_error(now, (frame, realm), transmitters),
                    Kind::Request { realm, class, .. } => {
                        self.pcp.take_over(realm, class, frame.bytes());
                    }
                    Kind::Arp(_) | Kind::Told(..) => {}
                }
            }
        }
        self.carry(now, Side::Inside, &mut inside, transmitters);
        self.carry(now, Side::Outside, &mut outside, transmitters);
        for (side, passed) in [Side::Inside, Side::Outside].into_iter().zip(&mut passed) {
            self.carry_here(now, side, passed, transmitters);
        }
        if !turned.is_empty() {
            self.carry_turned(now, &mut turned, transmitters);
        }
    }

    /// Takes packets through all stages that have turned round.
    pub(super) fn carry_turned(
        &mut self,
        now: Timestamp,
        turned: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let mut verdicts = NO_VERDICTS;
        self.receive_turned(now, turned, &mut verdicts);
        self.send_turned_to_hosts(now, turned, &mut verdicts, transmitters);
        self.deliver(now, Side::Inside, (turned, &verdicts), transmitters);
    }

    /// Returns true if this worker owns a handed packet; otherwise the packet has been handed on,
    /// or is lost and counted.
    fn is_settled(
        &mut self,
        now: Timestamp,
        (kind, asked): (Kind, OwnerLookup),
        bytes: &[u8],
    ) -> bool {
        if asked == OwnerLookup::Settled {
            return true;
        }
        let Some(team) = &mut self.team else { return true };
        let way = team.dispatch_again(
            now,
            (&mut self.engine, self.algs.as_deref()),
            (kind, asked),
            bytes,
        );
        match kind {
            // The worker that received the request has counted it; the client asks again.
            Kind::Request { .. } => way == Way::Here,
            Kind::Error(_) => self.error_has_come(way),
            kind => self.has_come(way, direction_of(kind), bytes.len()),
        }
    }

    /// Releases fragments whose first fragment has come, and drops those that have waited in vain.
    pub(super) fn follow_fragments(&mut self, now: Timestamp, devices: &mut Devices) {
        while let Some((kind, bytes)) = self.team.as_mut().and_then(Member::recalled) {
            let buffer = [vec![0; HEADROOM], bytes].concat().into_boxed_slice();
            let end = buffer.len();
            let asked = OwnerLookup::Settled;
            let mut parcel = [(0, HandedPacket { kind, asked, buffer, start: HEADROOM, end })];
            self.unpack(now, &mut parcel, &mut transmitters(devices));
        }
        while let Some((kind, len, full)) = self.team.as_mut().and_then(|team| team.given_up(now)) {
            add(&self.load.hand_over_full, u64::from(full));
            let reason =
                if full { DropReason::HandOverFull } else { DropReason::FragmentUnmatched };
            self.engine.count_lost(direction_of(kind), reason, len);
        }
    }
}

/// True if an IPv6 packet is for a link-local address.
pub(super) fn is_link_local(packet: &[u8]) -> bool {
    let header = Ipv6::new_header_checked(packet);
    header.is_ok_and(|header| header.destination() >> 118 == 0xfe80 >> 6)
}

/// Direction for the counters of a handed packet.
fn direction_of(kind: Kind) -> Direction {
    match kind {
        Kind::Packet(Link { side: Side::Inside, .. }, _)
        | Kind::Passed(Link { side: Side::Inside, .. }) => Direction::Outbound,
        Kind::Request { .. } => Direction::Local,
        Kind::Packet(..) | Kind::Passed(_) | Kind::Arp(_) | Kind::Told(..) => Direction::Inbound,
        Kind::Turned(_) | Kind::Error(_) => Direction::Hairpin,
    }
}
