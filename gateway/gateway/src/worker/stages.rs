//! Stages of a batch: sort, translate, route, send.

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
}

/// A packet, and its realm if it comes from inside.
pub(super) type ReceivedPacket<'d> = (Frame<'d>, u16);

/// Packets of one batch. They stay in place from one stage to the next, because moving a batch
/// would cost too much. After translation the realm is the destination's, if the packet leaves by
/// the inside.
pub(super) type Packets<'d> = ArrayVec<ReceivedPacket<'d>, BATCH>;

/// Verdicts of one batch.
pub(super) type Verdicts = [Verdict; BATCH];

/// Verdicts before translation.
pub(super) const NO_VERDICTS: Verdicts = [Verdict::Held; BATCH];

/// A packet after translation, its verdict, and the realm of its destination if it leaves by the
/// inside.
pub(super) type TranslatedPacket<'d> = (Frame<'d>, Verdict, u16);

impl Stages {
    /// Sorts frames: keeps those with IPv4 for the gateway, as packets; processes ARP; counts the
    /// rest.
    pub(super) fn sort<'d>(
        &mut self,
        now: Timestamp,
        place: usize,
        batch: &mut Batch<'d>,
        packets: &mut Packets<'d>,
    ) {
        let from = side_of(place);
        let is_crowded = from == Side::Inside && self.engine.is_crowded();
        for mut frame in batch.drain(..) {
            let Some((destination, source, kind)) = arp::read_ethernet(frame.bytes()) else {
                self.engine.count_foreign(from, 0);
                continue;
            };
            let header = self.cables.carried[place].header(frame.bytes(), kind);
            let (realm, kind, header_len) = match header {
                Header::Of(realm, kind, len) => (realm, kind, len),
                Header::Unknown(ethertype::ARP, _) => {
                    self.router.ignore_arp();
                    continue;
                }
                Header::Unknown(_, len) => {
                    self.engine.count_unknown_realm(frame.len() - len);
                    continue;
                }
            };
            let link = Link::new(from, realm);
            if kind == ethertype::ARP {
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
            } else if destination != self.router.mac(link) {
                // A frame that was broadcast, or sent to another station, is not forwarded.
                //= rfc1812#section-4.3.2.7-link
                //= rfc1812#section-5.3.4-forward
                //= rfc1812#section-5.3.4-discard
                self.not_addressed += 1;
            } else if kind == ethertype::IPV4 {
                let (start, end) = frame.range();
                frame.set_range(start + header_len, end);
                let is_kernels = self.router.is_for_the_kernel(link, frame.bytes());
                if is_crowded && !is_kernels && !self.is_admitted(now, link, source, &frame) {
                    continue;
                }
                if !is_kernels && (self.team.is_none() || self.is_here(now, link, source, &frame)) {
                    packets.push((frame, realm));
                }
            } else {
                self.engine.count_foreign(from, frame.len() - header_len);
            }
        }
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
        let mut verdicts = NO_VERDICTS;
        self.translate(now, from, packets, &mut verdicts);
        self.deliver(now, from, (packets, &verdicts), transmitters);
    }

    /// Translates packets in place. Hairpin packets continue to the worker of their receiver.
    fn translate(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut Packets<'_>,
        verdicts: &mut Verdicts,
    ) {
        let watched = self.captures.is_on();
        if watched {
            let packets = packets.iter().map(|(frame, realm)| (frame.bytes(), *realm));
            self.captures.before(packets);
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
        packets: &mut [ReceivedPacket<'_>],
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
        let (mut error, mut verdict) = ([(error, from.realm)], [Verdict::Held]);
        self.process(now, from.side, &mut error, &mut verdict);
        let ([(frame, realm)], [verdict]) = (error, verdict);
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
        let fate = self.router.send_error(now, link, &mut frame);
        (fate == Fate::Ready).then_some((link, frame))
    }

    /// Gives the translator the MTUs of the router.
    #[cold]
    pub(super) fn set_engine_mtus(&mut self) {
        let Self { engine, router, .. } = self;
        let mtu = |link| u16::try_from(router.mtu(link)).unwrap_or(u16::MAX);
        engine.set_mtus(|side, realm| mtu(Link::new(side, realm)));
    }

    /// Routes the packets that were not dropped, and sends them.
    pub(super) fn deliver(
        &mut self,
        now: Timestamp,
        from: Side,
        (packets, verdicts): (&mut Packets<'_>, &Verdicts),
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let mut outputs = Outputs::default();
        for ((mut frame, realm), verdict) in packets.drain(..).zip(verdicts) {
            // Translation changes no length, and bytes behind the packet have been cut off.
            let len = frame.len();
            let (side, origin) = match *verdict {
                Verdict::Forward(side) => (side, Origin::forwarded(from, side, len)),
                Verdict::Reply(side) => (side, Origin::replied(len)),
                Verdict::Drop(DropReason::LocalUnsupported) if from == Side::Inside => {
                    self.take_own(now, realm, &mut frame);
                    continue;
                }
                Verdict::Drop(_) | Verdict::Held | Verdict::HandOver => continue,
            };
            let link = Link::new(side, realm);
            if frame.len() > self.router.mtu(link)
                && let Err(reason) = self.engine.identify(frame.bytes_mut())
            {
                self.router.note_loss(Some(origin), reason);
            } else if self.router.send(now, link, &mut frame, Some(origin)) == Fate::Ready {
                outputs.of(self.cables.device_of(link)).push(frame, Some(origin));
            }
        }
        for (output, transmitter) in outputs.near.iter_mut().zip(&mut *transmitters) {
            self.send(output, *transmitter);
        }
        for (place, output) in &mut outputs.further {
            self.send(output, transmitters[*place]);
        }
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
        let lost = device.transmit(&mut output.frames);
        if lost.count() == 0 {
            return lost;
        }
        for (number, origin) in output.origins.iter().enumerate() {
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
pub(super) fn change(packets: &mut [ReceivedPacket<'_>], action: impl FnOnce(&mut [Packet<'_>])) {
    let mut views: ArrayVec<Packet<'_>, BATCH> = ArrayVec::new();
    for (frame, realm) in &mut *packets {
        let (start, _) = frame.range();
        views.push(Packet::new(frame.buffer_mut(), start).in_realm(*realm));
    }
    action(&mut views);
    let mut changed = [(0, 0, 0); BATCH];
    for (view, changed) in views.iter().zip(&mut changed) {
        *changed = (view.start(), view.end(), view.realm());
    }
    drop(views);
    for ((frame, realm), (start, end, now)) in packets.iter_mut().zip(changed) {
        frame.set_range(start, end);
        *realm = now;
    }
}

/// Bytes and verdicts of packets, for captures.
pub(super) fn seen<'p>(
    packets: &'p [ReceivedPacket<'_>],
    verdicts: &'p [Verdict],
) -> impl Iterator<Item = (&'p [u8], Verdict)> {
    packets.iter().zip(verdicts).map(|((frame, _), verdict)| (frame.bytes(), *verdict))
}

/// Frames that leave, by device.
#[derive(Debug, Default)]
pub(super) struct Outputs<'d> {
    /// Frames for the first two devices, which every gateway has.
    pub(super) near: [Output<'d>; 2],
    pub(super) further: Vec<(usize, Output<'d>)>,
}

impl<'d> Outputs<'d> {
    /// Frames that leave by the device at `place`.
    pub(super) fn of(&mut self, place: usize) -> &mut Output<'d> {
        if let Some(near) = self.near.get_mut(place) {
            return near;
        }
        let known = self.further.iter().position(|(known, _)| *known == place);
        let at = known.unwrap_or_else(|| {
            self.further.push((place, Output::default()));
            self.further.len() - 1
        });
        &mut self.further[at].1
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
