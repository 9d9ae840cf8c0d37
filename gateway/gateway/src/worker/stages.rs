//! Stages of a batch: sort, translate, route, send.

use super::families::Families;
use super::serve;
use crate::counters::Origin;
use crate::limits::MOST_DEVICES;
use crate::link::Link;
use crate::links::Header;
use crate::load::Load;
use crate::local_tcp_port::LocalTcpPort;
use crate::pcp::{Admission, PcpService};
use crate::router::{Fate, Router};
use crate::tap::{Captures, Moment};
use crate::team::Member;
use crate::wiring::{Devices, LinkMap, side_of};
use arrayvec::ArrayVec;
use natgate_engine::{DropReason, Engine, Packet, Side, Timestamp, Verdict};
use natgate_io::{BATCH, Batch, Frame, Lost, Transmit};
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::net::Ipv4Addr;
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
}

/// Packets of one batch, and their realms if they come from inside. The frames stay in place from
/// one stage to the next, because moving a batch would cost too much. After translation a realm is
/// the destination's, if the packet leaves by the inside.
pub(super) struct Packets<'d> {
    pub(super) frames: Batch<'d>,
    pub(super) realms: [u16; BATCH],
}

impl<'d> Packets<'d> {
    /// No packets.
    pub(super) fn new() -> Self {
        Self { frames: Batch::new(), realms: [0; BATCH] }
    }

    /// One packet.
    pub(super) fn one(frame: Frame<'d>, realm: u16) -> Self {
        let mut packets = Self::new();
        packets.push(frame, realm);
        packets
    }

    pub(super) fn push(&mut self, frame: Frame<'d>, realm: u16) {
        self.realms[self.frames.len()] = realm;
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
        (std::mem::take(&mut self.frames[number]), self.realms[number])
    }

    /// Bytes and realms of the packets.
    pub(super) fn views(&self) -> impl Iterator<Item = (&[u8], u16)> {
        self.frames.iter().zip(self.realms).map(|(frame, realm)| (frame.bytes(), realm))
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
        let is_crowded = side_of(place) == Side::Inside && self.engine.is_crowded();
        let usual = if is_crowded { None } else { self.usual(place) };
        let mut kept = 0;
        for number in 0..packets.len() {
            let frame = &mut packets.frames[number];
            let realm = match &usual {
                Some(usual) if usual.is_header_of(frame.bytes()) => {
                    let (start, end) = frame.range();
                    frame.set_range(start + ETHERNET_LEN, end);
                    usual.realm
                }
                _ => match self.sort_frame(now, (place, is_crowded), frame) {
                    Some(realm) => realm,
                    None => continue,
                },
            };
            packets.realms[kept] = realm;
            if kept != number {
                packets.frames.swap(kept, number);
            }
            kept += 1;
        }
        packets.frames.truncate(kept);
    }

    /// Header of most frames of a device. `None` if each frame has to be looked at in
    /// [`Stages::sort_frame`].
    fn usual(&self, place: usize) -> Option<UsualHeader> {
        let realm = self.cables.carried[place].untagged()?;
        let link = Link::new(side_of(place), realm);
        let is_plain = self.team.is_none() && !self.router.has_kernel(link);
        is_plain.then(|| UsualHeader::new(self.router.mac(link), realm))
    }

    /// Sorts one frame; returns its realm if it has a packet for the translator. The frame is then
    /// the packet.
    fn sort_frame(
        &mut self,
        now: Timestamp,
        (place, is_crowded): (usize, bool),
        frame: &mut Frame<'_>,
    ) -> Option<u16> {
        let from = side_of(place);
        let Some((destination, source, kind)) = arp::read_ethernet(frame.bytes()) else {
            self.engine.count_foreign(from, 0);
            return None;
        };
        let header = self.cables.carried[place].header(frame.bytes(), kind);
        let (realm, kind, header_len) = match header {
            Header::Of(realm, kind, len) => (realm, kind, len),
            Header::Unknown(ethertype::ARP, _) => {
                self.router.ignore_arp();
                return None;
            }
            Header::Unknown(_, len) => {
                self.engine.count_unknown_realm(frame.len() - len);
                return None;
            }
        };
        let link = Link::new(from, realm);
        // The type tells the families of packets apart.
        match kind {
            ethertype::ARP => self.sort_arp(now, link, header_len, frame),
            ethertype::IPV6 if self.families.is_some() => {
                let macs = (destination, source);
                return self.sort_ipv6(now, link, macs, header_len, frame).then_some(realm);
            }
            // A frame that was broadcast, or sent to another station, is not forwarded.
            //= rfc1812#section-4.3.2.7-link
            //= rfc1812#section-5.3.4-forward
            //= rfc1812#section-5.3.4-discard
            _ if destination != self.router.mac(link) => self.not_addressed += 1,
            ethertype::IPV4 => {
                let (start, end) = frame.range();
                frame.set_range(start + header_len, end);
                return self.takes(now, (link, source), is_crowded, frame).then_some(realm);
            }
            _ => self.engine.count_foreign(from, frame.len() - header_len),
        }
        None
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
    fn takes(
        &mut self,
        now: Timestamp,
        (link, source): (Link, Mac),
        is_crowded: bool,
        packet: &Frame<'_>,
    ) -> bool {
        !self.router.is_for_the_kernel(link, packet.bytes())
            && (!is_crowded || self.is_admitted(now, link, source, packet))
            && (self.team.is_none() || self.is_here(now, link, source, packet))
    }

    /// True if a packet from inside may go to the translator while the table of subscribers is more
    /// than half full: its host has a record already, or a neighbour entry agrees with its source.
    /// So forged sources fill at most half of the table. Hosts of another worker are checked there.
    #[cold]
    pub(super) fn is_admitted(
        &mut self,
        now: Timestamp,
        link: Link,
        mac: Mac,
        packet: &Frame<'_>,
    ) -> bool {
        let octets = packet.bytes().get(12..16).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
        let Some(source) = octets.map(Ipv4Addr::from) else { return true };
        self.team.as_ref().is_some_and(|team| !team.has(link.realm, source))
            || self.engine.is_established(link.realm, source)
            || self.router.vouches(now, link, source, mac)
    }

    /// Takes packets of a side through all stages.
    pub(super) fn carry(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        transmitters: &mut [&mut dyn Transmit],
    ) {
        if packets.is_empty() {
            return;
        }
        if self.families.is_some() {
            return self.carry_both(now, from, packets, transmitters);
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
        change(packets, |views| self.engine.process(now, from, views, verdicts));
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
        let of_hosts = families.as_ref().and_then(|families| families.mtu_of_hosts());
        let mtu = |link| u16::try_from(router.mtu(link)).unwrap_or(u16::MAX);
        engine.set_mtus(|side, realm| match of_hosts {
            Some((of_hosts, mtu)) if side == Side::Inside && of_hosts == realm => mtu,
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
        let mut leaving = Leaving::default();
        let mut number = 0;
        while number < packets.len() {
            number = self.route_known(from, (packets, verdicts), number, &mut leaving);
            if number < packets.len() {
                let routed = self.route(now, from, packets, (number, verdicts[number]));
                if let Some((device, origin)) = routed {
                    leaving.push(&mut packets.frames, number, device, origin);
                }
                number += 1;
            }
        }
        let Leaving { device, count, origins, mut others } = leaving;
        if count > 0 {
            let frames = &mut packets.frames[..count];
            self.transmit((frames, &origins), &mut *transmitters[device]);
        }
        for (place, output) in &mut others {
            self.send(output, transmitters[*place]);
        }
    }

    /// Routes forwarded packets with known neighbours from the packet `first` on, as long as all
    /// leave by the same link. Returns the number of the first other packet.
    #[inline]
    fn route_known<'d>(
        &self,
        from: Side,
        (packets, verdicts): (&mut Packets<'d>, &Verdicts),
        first: usize,
        leaving: &mut Leaving<'d>,
    ) -> usize {
        let (verdict, realm) = (verdicts[first], packets.realms[first]);
        let Verdict::Forward(side) = verdict else { return first };
        let link = Link::new(side, realm);
        let (exit, device) = (self.router.exit(link), self.cables.device_of(link));
        let count = packets.len();
        for (number, each) in verdicts.iter().enumerate().take(count).skip(first) {
            let is_same =
                *each == verdict && (side == Side::Outside || packets.realms[number] == realm);
            let frame = &mut packets.frames[number];
            // Translation changes no length, and bytes behind the packet have been cut off.
            let len = frame.len();
            if !is_same || !exit.send(frame) {
                return number;
            }
            let origin = Origin::forwarded(from, side, len);
            leaving.push(&mut packets.frames, number, device, origin);
        }
        count
    }

    /// Routes any packet; returns the device that it leaves by, if it leaves now.
    fn route(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        (number, verdict): (usize, Verdict),
    ) -> Option<(usize, Origin)> {
        let (frame, realm) = (&mut packets.frames[number], packets.realms[number]);
        let len = frame.len();
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
        (fate == Fate::Ready).then(|| (self.cables.device_of(link), origin))
    }

    /// Takes a packet to the gateway itself that the translator does not understand, if it is a
    /// request for a mapping or for the program.
    //= rfc6887#section-8.2-interface
    #[cold]
    fn take_own(&mut self, now: Timestamp, realm: u16, frame: &mut Frame<'_>) {
        let hardware = serve::source(frame, self.router.mac(Link::inside(realm)));
        let packet = frame.bytes();
        let own = self.engine.config().inside_of(realm).address;
        let mut taken = Admission::NoRequest;
        if self.pcp.is_open() {
            let known = (&self.router, &self.engine);
            taken = self.pcp.take(now, realm, packet, own, |client| {
                serve::sender(known, realm, hardware, client)
            });
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

/// Lets the translator change packets, then adapts the frames that hold them.
pub(super) fn change(packets: &mut Packets<'_>, action: impl FnOnce(&mut [Packet<'_>])) {
    let Packets { frames, realms } = packets;
    let mut views: ArrayVec<Packet<'_>, BATCH> = ArrayVec::new();
    for (frame, realm) in frames.iter_mut().zip(&*realms) {
        let (start, _) = frame.range();
        views.push(Packet::new(frame.buffer_mut(), start).in_realm(*realm));
    }
    action(&mut views);
    let mut changed = [(0, 0); BATCH];
    for ((view, changed), realm) in views.iter().zip(&mut changed).zip(realms) {
        *changed = (view.start(), view.end());
        *realm = view.realm();
    }
    drop(views);
    for (frame, (start, end)) in frames.iter_mut().zip(changed) {
        frame.set_range(start, end);
    }
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
    /// Realm of the packet.
    realm: u16,
}

impl UsualHeader {
    /// The destination and the type.
    const MASK: u128 = 0xffff_ffff_ffff | 0xffff << 96;

    fn new(destination: Mac, realm: u16) -> Self {
        let mut header = [0; ETHERNET_LEN];
        arp::write_ethernet(&mut header, destination, Mac::default(), ethertype::IPV4);
        let mut bytes = [0; size_of::<u128>()];
        bytes[..ETHERNET_LEN].copy_from_slice(&header);
        Self { bytes: u128::from_le_bytes(bytes), realm }
    }

    /// True if a frame has this header. Frames shorter than 16 bytes count as others.
    #[inline]
    fn is_header_of(&self, frame: &[u8]) -> bool {
        let first = frame.first_chunk().map(|bytes| u128::from_le_bytes(*bytes));
        first.is_some_and(|first| (first ^ self.bytes) & Self::MASK == 0)
    }
}

/// Frames of a batch that leave. The frames of one device are the first of the batch.
#[derive(Default)]
struct Leaving<'d> {
    /// Device of the first frames.
    device: usize,
    /// Number of these frames.
    count: usize,
    origins: ArrayVec<Option<Origin>, BATCH>,
    /// Frames for other devices.
    others: Vec<(usize, Output<'d>)>,
}

impl<'d> Leaving<'d> {
    /// Adds a frame of the batch; frames come in order of their numbers.
    #[inline(always)]
    fn push(&mut self, frames: &mut Batch<'d>, number: usize, device: usize, origin: Origin) {
        if self.count == 0 {
            self.device = device;
        }
        if device != self.device {
            return self.other(device).push(std::mem::take(&mut frames[number]), Some(origin));
        }
        if self.count != number {
            frames.swap(self.count, number);
        }
        self.count += 1;
        self.origins.push(Some(origin));
    }

    /// Frames that leave by another device than the first.
    #[cold]
    fn other(&mut self, place: usize) -> &mut Output<'d> {
        let known = self.others.iter().position(|(known, _)| *known == place);
        let at = known.unwrap_or_else(|| {
            self.others.push((place, Output::default()));
            self.others.len() - 1
        });
        &mut self.others[at].1
    }
}

/// Frames that leave by one device.
#[derive(Debug, Default)]
pub(super) struct Output<'d> {
    pub(super) frames: Batch<'d>,
    pub(super) origins: ArrayVec<Option<Origin>, BATCH>,
}

impl<'d> Output<'d> {
    pub(super) fn push(&mut self, frame: Frame<'d>, origin: Option<Origin>) {
        self.frames.push(frame);
        self.origins.push(origin);
    }
}
