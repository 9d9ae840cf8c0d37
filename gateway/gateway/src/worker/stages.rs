//! Stages of a batch: sort, translate, route, send.

use super::families::Families;
pub(super) use super::leaving::Output;
use super::leaving::{Finished, Leaving};
use super::serve;
use crate::alg::{Algs, Aside};
use crate::counters::Origin;
use crate::fleet::Tunnel;
use crate::health::Health;
use crate::limits::MOST_DEVICES;
use crate::link::Link;
use crate::links::Header;
use crate::load::Load;
use crate::local_tcp_port::LocalTcpPort;
use crate::pcp::{Admission, Datagram, PcpService};
use crate::router::{Fate, Router};
use crate::tap::{Captures, Moment};
use crate::team::Member;
use crate::wiring::{Devices, LinkMap, side_of};
use arrayvec::ArrayVec;
use natgate_engine::{DropReason, Engine, Side, Timestamp, Verdict};
use natgate_io::{BATCH, Batch, Frame, Lost, Transmit};
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::net::IpAddr;
use std::sync::Arc;

/// Parts of a worker that packets need, and the stages of a batch in order of the methods.
pub(super) struct Stages {
    pub(super) engine: Engine,
    pub(super) router: Router,
    pub(super) cables: LinkMap,
    /// Frames sent to other stations or by broadcast that were not ARP.
    pub(super) not_addressed: u64,
    /// Membership in a team, if there are several workers.
    pub(super) team: Option<Member>,
    pub(super) load: Arc<Load>,
    /// Captures that run.
    pub(super) captures: Captures,
    /// Service for requests for mappings.
    pub(super) pcp: PcpService,
    /// Queue of packets for the program.
    pub(super) local_tcp: LocalTcpPort,
    /// Parts for IPv6, if it is configured.
    pub(super) families: Option<Box<Families>>,
    /// Application-level gateways, if any is on.
    pub(super) algs: Option<Box<Algs>>,
    /// Those that are not needed now.
    pub(super) algs_aside: Aside,
    /// Health checks of servers, if there are any.
    pub(super) health: Option<Box<Health>>,
    /// The tunnel to the other node, if the gateway is one of a pair.
    pub(super) tunnel: Option<Box<Tunnel>>,
}

/// Packets of one batch. The frames stay in place from one stage to the next, because moving a
/// batch would cost too much. A frame has the realm that its packet comes from; after translation
/// the realm is the destination's, if the packet leaves by the inside.
pub(super) struct Packets<'d> {
    pub(super) frames: Batch<'d>,
}

impl<'d> Packets<'d> {
    /// No packets.
    pub(super) fn new() -> Self {
        Self { frames: Batch::new() }
    }

    /// One packet.
    pub(super) fn one(frame: Frame<'d>, realm: u16) -> Self {
        let mut packets = Self::new();
        packets.push(frame, realm);
        packets
    }

    pub(super) fn push(&mut self, mut frame: Frame<'d>, realm: u16) {
        frame.set_realm(realm);
        self.frames.push(frame);
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Takes a packet out; an empty frame stays in its place.
    pub(super) fn take(&mut self, number: usize) -> (Frame<'d>, u16) {
        let frame = std::mem::take(&mut self.frames[number]);
        let realm = frame.realm();
        (frame, realm)
    }

    /// Takes all packets out: those of which `is_first` says yes, and the others.
    pub(super) fn divide(&mut self, is_first: impl Fn(&[u8], u16) -> bool) -> (Self, Self) {
        let (mut first, mut second) = (Self::new(), Self::new());
        for number in 0..self.len() {
            let (frame, realm) = self.take(number);
            let packets = if is_first(frame.bytes(), realm) { &mut first } else { &mut second };
            packets.push(frame, realm);
        }
        (first, second)
    }

    /// Bytes and realms of the packets.
    pub(super) fn views(&self) -> impl Iterator<Item = (&[u8], u16)> {
        self.frames.iter().map(|frame| (frame.bytes(), frame.realm()))
    }
}

/// Verdicts of one batch.
pub(super) type Verdicts = [Verdict; BATCH];

/// Verdicts before translation.
pub(super) const NO_VERDICTS: Verdicts = [Verdict::Held; BATCH];

/// A packet after translation, its verdict, and the realm of its destination if it leaves by the
/// inside.
pub(super) type TranslatedPacket<'d> = (Frame<'d>, Verdict, u16);

impl Stages {
    /// Sorts the frames of a device: keeps those with packets for the gateway, as packets;
    /// processes ARP; counts the rest.
    pub(super) fn sort(&mut self, now: Timestamp, place: usize, packets: &mut Packets<'_>) {
        let usual = self.usual(place);
        let frames = &mut packets.frames;
        // Most batches have frames with this header alone, if devices steer with packets for this
        // worker alone.
        let first_other = match (&usual, &self.team) {
            (Some(usual), None) => frames.iter_mut().position(|frame| !usual.take_any(frame)),
            (Some(usual), Some(team)) if !self.passes_from(usual.link.side) => {
                frames.iter_mut().position(|frame| !usual.take_own(team, frame))
            }
            _ => Some(0),
        };
        let Some(first_other) = first_other else { return };
        let mut kept = first_other;
        for number in first_other..frames.len() {
            let frame = &mut frames[number];
            let taken = usual.as_ref().and_then(|usual| usual.take_from(frame));
            let is_here = match taken {
                Some((link, source)) => self.is_here_soon(now, link, source, frame),
                None => self.sort_frame(now, place, frame),
            };
            if is_here {
                if kept != number {
                    frames.swap(kept, number);
                }
                kept += 1;
            }
        }
        frames.truncate(kept);
    }

    /// Header of most frames of a device. `None` if each frame has to be looked at in
    /// [`Stages::sort_frame`].
    fn usual(&self, place: usize) -> Option<UsualHeader> {
        let realm = self.cables.carried[place].untagged()?;
        let link = Link::new(side_of(place), realm);
        (!self.router.has_kernel(link)).then(|| UsualHeader::new(self.router.mac(link), link))
    }

    /// Sorts one frame; returns true if it has a packet for the translator of this worker. The
    /// frame is then the packet.
    fn sort_frame(&mut self, now: Timestamp, place: usize, frame: &mut Frame<'_>) -> bool {
        let from = side_of(place);
        let Some((destination, source, kind)) = arp::read_ethernet(frame.bytes()) else {
            self.engine.count_foreign(from, 0);
            return false;
        };
        let header = self.cables.carried[place].header(frame.bytes(), kind);
        let (realm, kind, header_len) = match header {
            Header::Of(realm, kind, len) => (realm, kind, len),
            Header::Unknown(ethertype::ARP, _) => {
                self.router.ignore_arp();
                return false;
            }
            Header::Unknown(_, len) => {
                self.engine.count_unknown_realm(frame.len() - len);
                return false;
            }
        };
        let link = Link::new(from, realm);
        // The type tells the families of packets apart.
        match kind {
            ethertype::ARP => self.sort_arp(now, link, header_len, frame),
            ethertype::IPV6 if self.families.is_some() => {
                let macs = (destination, source);
                let is_here = self.sort_ipv6(now, link, macs, header_len, frame);
                frame.set_realm(realm);
                return is_here;
            }
            // A frame that was broadcast, or sent to another station, is not forwarded.
            //= rfc1812#section-4.3.2.7-link
            //= rfc1812#section-5.3.4-forward
            //= rfc1812#section-5.3.4-discard
            _ if destination != self.router.mac(link) => self.not_addressed += 1,
            ethertype::IPV4 => {
                let (start, end) = frame.range();
                frame.set_range(start + header_len, end);
                frame.set_realm(realm);
                return self.takes(now, (link, source), frame);
            }
            _ => self.engine.count_foreign(from, frame.len() - header_len),
        }
        false
    }

    /// Gives an ARP message to the router, and to the other workers.
    fn sort_arp(&mut self, now: Timestamp, link: Link, header_len: usize, frame: &mut Frame<'_>) {
        let (start, end) = frame.range();
        let tag = header_len - ETHERNET_LEN;
        let addresses = ETHERNET_LEN - size_of::<u16>();
        // The bytes behind the addresses are now the type.
        frame.bytes_mut().copy_within(..addresses, tag);
        frame.set_range(start + tag, end);
        self.router.receive_arp(now, link, frame.bytes());
        if let Some(team) = &mut self.team {
            team.tell_arp(link, frame.bytes());
        }
    }

    /// True if an IPv4 packet is for the translator of this worker.
    fn takes(&mut self, now: Timestamp, (link, source): (Link, Mac), packet: &Frame<'_>) -> bool {
        !self.router.is_for_the_kernel(link, packet.bytes())
            && self.is_here(now, link, source, packet)
    }

    /// Takes packets of a side through all stages, or passes them on to the other node of a pair.
    pub(super) fn carry(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        if self.tunnel.is_some() {
            self.pass_on(now, from, packets);
        }
        self.carry_here(now, from, packets, transmitters);
    }

    /// Takes packets of a side through all stages.
    pub(super) fn carry_here(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        if self.families.is_some() {
            return self.carry_both(now, from, packets, transmitters);
        }
        if self.algs.is_some() && !self.captures.is_on() {
            return self.carry_to_controls(now, from, packets, transmitters);
        }
        if self.algs.is_some() {
            self.carry_controls(now, from, packets, transmitters);
        }
        if packets.is_empty() {
            return;
        }
        let mut verdicts = NO_VERDICTS;
        self.translate(now, from, packets, &mut verdicts);
        self.deliver(now, from, (packets, &verdicts), transmitters);
    }

    /// Translates packets in place. Hairpin packets continue to the worker of their receiver.
    pub(super) fn translate(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        verdicts: &mut Verdicts,
    ) {
        let watched = self.captures.is_on();
        if watched {
            self.captures.before(packets.views());
        }
        self.process(now, from, packets, verdicts);
        if watched {
            let moment = Moment { now, from, turned: false };
            self.captures.after(moment, seen(packets, verdicts));
        }
        if verdicts[..packets.len()].contains(&Verdict::HandOver) {
            self.turn_over_some(now, packets, verdicts);
        }
    }

    /// Translates packets in place; of hairpin packets only the sender's endpoint.
    fn process(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        verdicts: &mut [Verdict],
    ) {
        let verdicts = &mut verdicts[..packets.len()];
        self.engine.process(now, from, &mut packets.frames, verdicts);
        self.admit_newcomers(now, from, &mut packets.frames, verdicts);
    }

    /// Translates an ICMP error of the router's own as if it had come in by `from`, and routes it.
    /// The error is no input packet, so it is not counted as one.
    pub(super) fn translate_error<'d>(
        &mut self,
        now: Timestamp,
        from: Link,
        error: Frame<'d>,
    ) -> Option<(Link, Frame<'d>)> {
        let before = self.engine.counters().clone();
        let (mut error, mut verdict) = (Packets::one(error, from.realm), [Verdict::Held]);
        self.process(now, from.side, &mut error, &mut verdict);
        let ((frame, realm), [verdict]) = (error.take(0), verdict);
        if self.captures.is_on()
            && let Verdict::Forward(side) = verdict
        {
            self.captures.leaving(now, side, frame.bytes());
        }
        let fated = match verdict {
            Verdict::HandOver => self.turn_error_over(now, frame, realm),
            verdict => Some((frame, verdict, realm)),
        };
        self.router.exclude(&before, self.engine.counters());
        self.emit(now, fated?)
    }

    /// Routes a translated ICMP error of the router's own.
    pub(super) fn emit<'d>(
        &mut self,
        now: Timestamp,
        (mut frame, verdict, realm): TranslatedPacket<'d>,
    ) -> Option<(Link, Frame<'d>)> {
        let Verdict::Forward(side) = verdict else { return None };
        let link = Link::new(side, realm);
        if self.is_of_hosts(side, realm) {
            // The caller has the error converted.
            return Some((link, frame));
        }
        let fate = self.router.send_error(now, link, &mut frame);
        (fate == Fate::Ready).then_some((link, frame))
    }

    /// Gives the translator the MTUs of the router.
    #[cold]
    pub(super) fn set_engine_mtus(&mut self) {
        let Self { engine, router, families, .. } = self;
        let of_hosts = |realm| families.as_ref().and_then(|families| families.mtu_of_hosts(realm));
        let mtu = |link| u16::try_from(router.mtu(link)).unwrap_or(u16::MAX);
        engine.set_mtus(|side, realm| match of_hosts(realm) {
            Some(mtu) if side == Side::Inside => mtu,
            _ => mtu(Link::new(side, realm)),
        });
    }

    /// Routes the packets that were not dropped, and sends them. Frames that leave by the device of
    /// the first one stay in place.
    pub(super) fn deliver(
        &mut self,
        now: Timestamp,
        from: Side,
        (packets, verdicts): (&mut Packets<'_>, &Verdicts),
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let mut leaving = Leaving::new(from);
        let mut number = 0;
        while number < packets.len() {
            number = self.route_known((packets, verdicts), number, &mut leaving);
            if number < packets.len() {
                let routed = self.route(now, from, packets, (number, verdicts[number]));
                if let Some((device, is_reply)) = routed {
                    let finished = Finished { first: number, count: 1, device, is_reply };
                    leaving.add(&self.router, &mut packets.frames, finished);
                }
                number += 1;
            }
        }
        leaving.transmit(&mut self.router, &mut packets.frames, transmitters);
        for (place, output) in &mut leaving.others {
            self.send(output, transmitters[*place]);
        }
    }

    /// Routes forwarded packets with known neighbours from the packet `first` on, as long as all
    /// leave by the same link. Returns the number of the first other packet.
    #[inline]
    fn route_known<'d>(
        &self,
        (packets, verdicts): (&mut Packets<'d>, &Verdicts),
        first: usize,
        leaving: &mut Leaving<'d>,
    ) -> usize {
        let Verdict::Forward(side) = verdicts[first] else { return first };
        let realm = packets.frames[first].realm();
        let link = Link::new(side, realm);
        let mut exit = self.router.exit(link);
        let mut rest = packets.frames[first..].iter_mut().zip(&verdicts[first..]);
        let other = rest.position(|(frame, verdict)| {
            *verdict != Verdict::Forward(side)
                || (side == Side::Inside && frame.realm() != realm)
                || !exit.send(frame)
        });
        let count = other.unwrap_or(packets.len() - first);
        if count > 0 {
            let device = self.cables.device_of(link);
            let finished = Finished { first, count, device, is_reply: false };
            leaving.add(&self.router, &mut packets.frames, finished);
        }
        first + count
    }

    /// Routes any packet. Returns the device that the packet leaves by, if it leaves now, and true
    /// if it is a reply.
    fn route(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        (number, verdict): (usize, Verdict),
    ) -> Option<(usize, bool)> {
        let frame = &mut packets.frames[number];
        let (len, realm) = (frame.len(), frame.realm());
        let (side, origin) = match verdict {
            Verdict::Forward(side) => (side, Origin::forwarded(from, side, len)),
            Verdict::Reply(side) => (side, Origin::replied(len)),
            Verdict::Drop(DropReason::LocalUnsupported) if from == Side::Inside => {
                self.take_own(now, realm, frame);
                return None;
            }
            Verdict::Drop(_) | Verdict::Held | Verdict::HandOver => return None,
        };
        let link = Link::new(side, realm);
        if len > self.router.mtu(link)
            && let Err(reason) = self.engine.identify(frame.bytes_mut())
        {
            self.router.note_loss(Some(origin), reason);
            return None;
        }
        let fate = self.router.send(now, link, frame, Some(origin));
        let is_reply = matches!(verdict, Verdict::Reply(_));
        (fate == Fate::Ready).then(|| (self.cables.device_of(link), is_reply))
    }

    /// Takes a packet to the gateway itself that the translator does not understand, if it is a
    /// request for a mapping, for the program, or the answer to a check of a server.
    //= rfc6887#section-8.2-interface
    #[cold]
    fn take_own(&mut self, now: Timestamp, realm: u16, frame: &mut Frame<'_>) {
        if self.engine.guards(realm) && !self.is_admitted(now, frame) {
            return;
        }
        let hardware = serve::source(frame, self.router.mac(Link::inside(realm)));
        let packet = frame.bytes();
        let own = self.engine.config().inside_of(realm).address;
        let mut taken = Admission::NoRequest;
        if self.pcp.is_open()
            && let Some(request) = Datagram::read(realm, packet, own)
            && let IpAddr::V4(client) = request.client.0
        {
            let sender = serve::sender((&self.router, &self.engine), realm, hardware, client);
            taken = self.pcp.admit(now, request, sender);
        }
        if taken == Admission::NoRequest
            && let Some(health) = &mut self.health
            && health.take(now, realm, packet, own)
        {
            taken = Admission::Waiting;
        }
        if realm == 0 && taken == Admission::NoRequest {
            taken = self.local_tcp.take(packet, own);
        }
        let other = match taken {
            Admission::NoRequest => return,
            Admission::Waiting => None,
            Admission::Refused => Some(DropReason::RequestLimit),
        };
        self.engine.count_local(other, packet.len());
    }

    /// Sends the frames of one device; returns the losses.
    pub(super) fn send(&mut self, output: &mut Output<'_>, device: &mut dyn Transmit) -> Lost {
        if output.frames.is_empty() {
            return Lost::NONE;
        }
        self.transmit((&mut output.frames, &output.origins), device)
    }

    /// Sends frames, and counts the losses.
    fn transmit(
        &mut self,
        (frames, origins): (&mut [Frame<'_>], &[Option<Origin>]),
        device: &mut dyn Transmit,
    ) -> Lost {
        let lost = device.transmit(frames);
        if lost.count() == 0 {
            return lost;
        }
        for (number, origin) in origins.iter().enumerate() {
            if lost.contains(number) {
                self.router.note_loss(*origin, DropReason::TransmitFull);
            }
        }
        lost
    }
}

/// Transmit halves of the devices, in order.
pub(super) fn transmitters(devices: &mut Devices) -> ArrayVec<&mut dyn Transmit, MOST_DEVICES> {
    devices.iter_mut().map(|device| device.split().1).collect()
}

/// Bytes and verdicts of packets, for captures.
pub(super) fn seen<'p>(
    packets: &'p Packets<'_>,
    verdicts: &'p [Verdict],
) -> impl Iterator<Item = (&'p [u8], Verdict)> {
    packets.frames.iter().zip(verdicts).map(|(frame, verdict)| (frame.bytes(), *verdict))
}

/// Header of an IPv4 packet to the gateway without a tag: most frames begin like that.
struct UsualHeader {
    /// Bytes that the frame begins with, as far as [`UsualHeader::MASK`] reaches.
    bytes: u128,
    /// Link of the packet.
    link: Link,
}

impl UsualHeader {
    /// The destination and the type.
    const MASK: u128 = 0xffff_ffff_ffff | 0xffff << 96;

    fn new(destination: Mac, link: Link) -> Self {
        let mut header = [0; ETHERNET_LEN];
        arp::write_ethernet(&mut header, destination, Mac::default(), ethertype::IPV4);
        let mut bytes = [0; size_of::<u128>()];
        bytes[..ETHERNET_LEN].copy_from_slice(&header);
        Self { bytes: u128::from_le_bytes(bytes), link }
    }

    /// Takes this header off a frame, which is the packet then. Returns the packet's link and the
    /// frame's source; `None`, and changes nothing, if the frame begins otherwise. Frames shorter
    /// than 16 bytes count as others.
    #[inline]
    fn take_from(&self, frame: &mut Frame<'_>) -> Option<(Link, Mac)> {
        let first = self.begins(frame)?;
        self.strip(frame);
        let source = std::array::from_fn(|byte| (first >> (48 + 8 * byte)) as u8);
        Some((self.link, Mac(source)))
    }

    /// [`UsualHeader::take_from`] of a frame whose source does not matter; returns false if the
    /// frame begins otherwise.
    #[inline(always)]
    fn take_any(&self, frame: &mut Frame<'_>) -> bool {
        let begins = self.begins(frame).is_some();
        if begins {
            self.strip(frame);
        }
        begins
    }

    /// [`UsualHeader::take_any`] of a frame whose packet this worker of a team owns; changes
    /// nothing about other frames, and returns false.
    #[inline(always)]
    fn take_own(&self, team: &Member, frame: &mut Frame<'_>) -> bool {
        let is_own = self.begins(frame).is_some()
            && team.owner_of(self.link, &frame.bytes()[ETHERNET_LEN..]) == Some(team.number());
        if is_own {
            self.strip(frame);
        }
        is_own
    }

    /// First bytes of a frame that begins with this header.
    #[inline(always)]
    fn begins(&self, frame: &Frame<'_>) -> Option<u128> {
        let first = u128::from_le_bytes(*frame.bytes().first_chunk()?);
        ((first ^ self.bytes) & Self::MASK == 0).then_some(first)
    }

    #[inline(always)]
    fn strip(&self, frame: &mut Frame<'_>) {
        frame.set_start(frame.start() + ETHERNET_LEN);
        frame.set_realm(self.link.realm);
    }
}
