//! Both families at work: the translator of IPv6 and the router of IPv6, beside the engine.
//!
//! A worker has this part only if the configuration mentions IPv6. Packets of a batch that the
//! translator claims are taken in runs, in their order: all of IPv6, and of IPv4 what SIIT or the
//! CLAT translates. The engine then takes the other packets together, as it does without IPv6.
//! Packets of one flow all go one of the two ways, so their order stays.
//!
//! Hosts of NAT64 have numbers in the engine, in a realm of their own. Packets that the engine
//! sends to that realm are converted here. Changes are kept with the names of their hosts as soon
//! as a run is taken, because a number may pass to another host with the next run.

mod carry;
mod made;
mod together;

use super::stages::{Output, Packets, Stages, Verdicts};
use crate::alg::Algs;
use crate::bindings::BindingTaker;
use crate::counters::{Origin, summed};
use crate::limits::LONGEST;
use crate::link::Link;
use crate::observer::{SideStatus6, Status6};
use crate::router::{Fate as Way, Router};
use crate::router6::{Received, Router6};
use crate::settings::Settings;
use crate::tap::Moment;
use crate::worker_error::WorkerError;
use natgate_engine::{
    Config, ConfigError, Counters, DropReason, Engine, Event, Packet, Side, Timestamp, Verdict,
};
use natgate_io::{BATCH, Frame, HEADROOM, Transmit};
use natgate_ipv6::convert::Cut;
use natgate_ipv6::{CopiedHosts, Departure, Fate, HostName, Translator};
use natgate_wire::arp::Mac;
use natgate_wire::ipv6::MIN_MTU;
use std::sync::Arc;

/// Bytes before a packet of the gateway's own: an ICMPv6 error may quote more than the engine's.
const ROOM: usize = MIN_MTU + HEADROOM;

/// Parts of a worker for IPv6.
pub(super) struct Families {
    pub(super) translator: Translator,
    pub(super) router: Router6,
    /// Buffer for packets of the gateway's own, behind headroom.
    buffer: Vec<u8>,
    /// Changes that packets have made since they were last reported.
    pub(super) told: Vec<(Event, Option<HostName>)>,
    /// New bindings of lw4o6.
    bindings: Option<BindingTaker>,
}

impl Families {
    /// Creates the parts, and adds the realm of NAT64 to the engine's configuration. `None`: the
    /// settings have nothing about IPv6.
    pub(super) fn new(
        settings: &Settings,
        config: &mut Config,
        seed: [u8; 32],
        macs: &[Mac],
    ) -> Result<Option<Box<Self>>, WorkerError> {
        let wrong = |message| WorkerError::Engine(ConfigError { message });
        let Some(translator) = Translator::new(&settings.ipv6, config, seed).map_err(wrong)? else {
            return Ok(None);
        };
        let router = Router6::new(settings, macs)?;
        let Some(router) = router else { return Ok(None) };
        let buffer = vec![0; ROOM + LONGEST];
        let bindings = settings.bindings.clone().map(BindingTaker::new);
        Ok(Some(Box::new(Self { translator, router, buffer, told: Vec::new(), bindings })))
    }

    /// Takes new bindings of lw4o6.
    fn take_bindings(&mut self) {
        if let Some(bindings) = &mut self.bindings {
            bindings.take(&mut self.translator);
        }
    }

    /// State of IPv6.
    pub(super) fn status(&self) -> Status6<'_> {
        let sides = [Side::Inside, Side::Outside].map(|side| SideStatus6 {
            addresses: self.router.addresses(side),
            neighbors: self.router.neighbors(side),
        });
        Status6 { translator: &self.translator, router: self.router.counters(), sides }
    }

    /// The largest IPv4 packet that may go to the hosts of a realm, bytes. `None`: they have no
    /// numbers.
    pub(super) fn mtu_of_hosts(&self, realm: u16) -> Option<u16> {
        let link = u16::try_from(self.router.mtu(Link::inside(0))).unwrap_or(u16::MAX);
        let kind = self.translator.realms().kind(realm)?;
        Some(Translator::mtu_of_hosts(kind, link))
    }

    /// Name of the host that a change is about, if it has a number.
    pub(super) fn name(&self, event: &Event) -> Option<HostName> {
        let (realm, number) = event.change.subject()?;
        self.translator.host(realm, number)
    }
}

impl Stages {
    /// The engine, the hosts that have numbers in it, and the gateways, for the partner of a pair.
    pub(super) fn copied(
        &mut self,
        now: Timestamp,
    ) -> (&mut Engine, CopiedHosts<'_>, &mut Option<Box<Algs>>) {
        let translator = self.families.as_mut().map(|families| &mut families.translator);
        (&mut self.engine, CopiedHosts::new(translator, now), &mut self.algs)
    }

    /// True if a frame with IPv6 is for this gateway's translator. Its bytes are then the packet.
    pub(super) fn sort_ipv6(
        &mut self,
        now: Timestamp,
        link: Link,
        (destination, source): (Mac, Mac),
        header_len: usize,
        frame: &mut Frame<'_>,
    ) -> bool {
        let Some(families) = self.families.as_mut().filter(|_| link.realm == 0) else {
            self.engine.count_foreign(link.side, frame.len() - header_len);
            return false;
        };
        if !families.router.accepts(link, destination) {
            self.not_addressed += 1;
            return false;
        }
        let (start, end) = frame.range();
        frame.set_range(start + header_len, end);
        if frame.bytes().first().is_none_or(|first| first >> 4 != 6) {
            self.engine.count_foreign(link.side, frame.len());
            return false;
        }
        let received = families.router.receive(now, link, source, frame.bytes());
        if received == Received::Ignored && link.side == Side::Inside && self.pcp.is_open() {
            self.take_ignored(now, link, source, frame);
            return false;
        }
        if let (Received::Discovery, Some(team)) = (received, &mut self.team) {
            team.tell_ipv6(link, source, frame.bytes());
        }
        let is_forwarded = received == Received::Forward;
        // A packet that was sent to a group of stations is not forwarded.
        let is_own = destination == self.router.mac(link);
        self.not_addressed += u64::from(is_forwarded && !is_own);
        is_forwarded
            && is_own
            && (self.team.is_none() || self.is_here_ipv6(now, link, source, frame))
    }

    /// True if hosts of a realm have numbers.
    pub(super) fn is_of_hosts(&self, side: Side, realm: u16) -> bool {
        let families = self.families.as_ref();
        side == Side::Inside && families.is_some_and(|one| one.translator.realms().has(realm))
    }

    /// Does what is due for IPv6 without a packet, and sends what the router of IPv6 has to send.
    pub(super) fn attend_ipv6(&mut self, now: Timestamp, transmitters: &mut [&mut dyn Transmit]) {
        let Some(mut families) = self.families.take() else { return };
        families.router.advance(now);
        families.translator.sweep(&self.engine, now);
        let mut passage = Passage::new(self, &mut families, now, transmitters);
        passage.send_errors();
        passage.send_queued();
        self.families = Some(families);
    }

    /// Tells the hosts of the inside link that this router ends.
    pub(super) fn take_leave(&mut self, now: Timestamp, transmitters: &mut [&mut dyn Transmit]) {
        if let Some(families) = &mut self.families {
            families.router.take_leave();
        }
        self.attend_ipv6(now, transmitters);
    }

    /// Puts routes, neighbours and advertisements of new settings in force, and the addresses of
    /// the engine's new configuration.
    pub(super) fn renew_ipv6(&mut self, settings: &Settings) {
        if let Some(families) = &mut self.families {
            families.translator.renew(self.engine.config());
            if let Some(lw4o6) = &settings.ipv6.lw4o6 {
                // The settings in force keep the former table.
                families.translator.exchange_bindings(Arc::clone(&lw4o6.bindings));
            }
            families.bindings = settings.bindings.clone().map(BindingTaker::new);
            let hosts: Vec<_> = settings.ipv6.static_hosts().copied().collect();
            families.translator.keep(&hosts);
            // Next hops have been checked when the settings were prepared. An error changes
            // nothing.
            let _ = families.router.reconfigure(settings);
        }
    }

    /// Returns the changes that packets of either family have made, and the names of their hosts.
    pub(super) fn told(&mut self) -> impl Iterator<Item = (Event, Option<HostName>)> + '_ {
        self.families.iter_mut().flat_map(|families| families.told.drain(..))
    }

    /// Name of the host that a change is about, if it has a number.
    pub(super) fn host_name(&self, event: &Event) -> Option<HostName> {
        self.families.as_ref().and_then(|families| families.name(event))
    }
}

/// Counters of all input packets. Packets lost after translation count as dropped.
pub(super) fn input_counters(
    engine: &Engine,
    router: &Router,
    families: Option<&Families>,
) -> Counters {
    let Some(families) = families else { return router.losses().correct(engine.counters()) };
    let sum = summed(engine.counters(), &families.translator.counters());
    families.router.losses().correct(&router.losses().correct(&sum))
}

/// Packets on their way through both families.
pub(super) struct Passage<'s, 't, 'r, 'd> {
    pub(super) stages: &'s mut Stages,
    pub(super) families: &'s mut Families,
    pub(super) now: Timestamp,
    transmitters: &'t mut [&'r mut dyn Transmit],
    /// Frames that leave, by device.
    leaving: Vec<(usize, Output<'d>)>,
}

impl<'s, 't, 'r, 'd> Passage<'s, 't, 'r, 'd> {
    pub(super) fn new(
        stages: &'s mut Stages,
        families: &'s mut Families,
        now: Timestamp,
        transmitters: &'t mut [&'r mut dyn Transmit],
    ) -> Self {
        Self { stages, families, now, transmitters, leaving: Vec::new() }
    }

    /// As [`Passage::take_all`], with packets of NAT64 and of DS-Lite apart: each kind goes to the
    /// engine together.
    fn take_claimed(&mut self, from: Side, packets: &mut Packets<'d>) {
        let translator = &self.families.translator;
        let may_mix = from == Side::Inside && translator.has_two_kinds();
        if !may_mix || self.stages.captures.is_on() {
            return self.take_all(from, packets);
        }
        let (mut tunneled, mut others) = packets.divide(|bytes, _| translator.is_tunneled(bytes));
        self.take_all(from, &mut others);
        self.take_all(from, &mut tunneled);
    }

    /// Takes packets that the translator claims, and for which it is prepared.
    fn take_all(&mut self, from: Side, packets: &mut Packets<'d>) {
        if self.stages.captures.is_on() {
            // The counters tell what became of each.
            for number in 0..packets.len() {
                let (frame, realm) = packets.take(number);
                self.take(from, frame, realm);
            }
            return;
        }
        let mut fates = [Fate::Nothing; BATCH];
        let mut taken = 0;
        while taken < packets.len() {
            let Self { stages, families, now, .. } = self;
            let (engine, rest) = (&mut stages.engine, &mut packets.frames[taken..]);
            let count = families.translator.take_some(engine, *now, from, rest, &mut fates);
            for (number, fate) in fates[..count].iter().enumerate() {
                match fate {
                    Fate::Local if from == Side::Inside => {
                        let frame = &mut packets.frames[taken + number];
                        self.stages.take_own_ipv6(self.families, self.now, frame);
                    }
                    Fate::Local | Fate::Nothing => {}
                    fate => {
                        let (frame, _) = packets.take(taken + number);
                        self.carry_out(*fate, frame);
                    }
                }
            }
            self.settle();
            taken += count;
        }
    }

    /// Takes a packet that the translator claims, for captures as well.
    fn take(&mut self, from: Side, mut frame: Frame<'d>, realm: u16) {
        let before = self.sum();
        self.stages.captures.before(std::iter::once((frame.bytes(), realm)));
        let moment = Moment { now: self.now, from, turned: false };
        if !is_ipv6(frame.bytes()) && self.stages.bars(self.now, from, &mut frame) {
            let verdict = Verdict::Drop(DropReason::MappingTableFull);
            return self.stages.captures.after(moment, std::iter::once((frame.bytes(), verdict)));
        }
        let (start, _) = frame.range();
        let mut packet = Packet::new(frame.buffer_mut(), start).in_realm(realm);
        let Self { stages, families, now, .. } = self;
        let fate = stages
            .engine
            .admitting(|engine| families.translator.take(engine, *now, from, &mut packet));
        let (start, end) = (packet.start(), packet.end());
        frame.set_range(start, end);
        let verdict = self.verdict(fate, &before);
        self.stages.captures.after(moment, std::iter::once((frame.bytes(), verdict)));
        match fate {
            Fate::Local if from == Side::Inside => {
                self.stages.take_own_ipv6(self.families, self.now, &mut frame);
            }
            fate => self.carry_out(fate, frame),
        }
        self.settle();
    }

    /// Counters of the engine and of the translator together.
    pub(super) fn sum(&self) -> Counters {
        summed(self.stages.engine.counters(), &self.families.translator.counters())
    }

    /// Verdict of a packet for captures; `before` has the drops before the packet.
    pub(super) fn verdict(&self, fate: Fate, before: &Counters) -> Verdict {
        match fate {
            Fate::Send(Departure { side, answers: true, .. }) => Verdict::Reply(side),
            Fate::Send(Departure { side, .. }) => Verdict::Forward(side),
            Fate::HandOver(_) => Verdict::HandOver,
            Fate::Nothing | Fate::Local => {
                let after = self.sum().drops;
                let mut reasons = DropReason::ALL.iter().zip(after.iter().zip(&before.drops));
                let reason = reasons.find(|(_, (after, before))| after != before);
                reason.map_or(Verdict::Held, |(reason, _)| Verdict::Drop(*reason))
            }
        }
    }

    /// Sends a packet that the translator has taken.
    fn depart(&mut self, departure: Departure, mut frame: Frame<'d>) {
        let Departure { side, realm, cut, counted: (direction, outcome, len), .. } = departure;
        let origin = Some(Origin { direction, outcome, len });
        if let Some(cut) = cut {
            return self.send_cut((side, realm), cut, frame.bytes(), origin);
        }
        if let Some(device) = self.route((side, realm), &mut frame, origin) {
            self.push(device, frame, origin);
        }
    }

    /// Finds the next hop of a packet of either family; returns the device that the finished frame
    /// leaves by, if it leaves now.
    fn route(
        &mut self,
        (side, realm): (Side, u16),
        frame: &mut Frame<'_>,
        origin: Option<Origin>,
    ) -> Option<usize> {
        let Self { stages, families, now, .. } = self;
        let link = Link::new(side, realm);
        let way = match is_ipv6(frame.bytes()) {
            true => families.router.send(*now, link, frame, origin),
            false => {
                if frame.len() > stages.router.mtu(link)
                    && let Err(reason) = stages.engine.identify(frame.bytes_mut())
                {
                    stages.router.note_loss(origin, reason);
                    return None;
                }
                stages.router.send(*now, link, frame, origin)
            }
        };
        (way == Way::Ready).then(|| stages.cables.device_of(link))
    }

    /// Adds a frame to those that leave.
    fn push(&mut self, device: usize, frame: Frame<'d>, origin: Option<Origin>) {
        let known = self.leaving.iter().position(|(known, _)| *known == device);
        let place = known.unwrap_or_else(|| {
            self.leaving.push((device, Output::default()));
            self.leaving.len() - 1
        });
        self.leaving[place].1.push(frame, origin);
    }

    /// Sends the frames that leave.
    fn flush(&mut self) {
        for (device, mut output) in self.leaving.drain(..) {
            self.stages.send(&mut output, &mut *self.transmitters[device]);
        }
    }

    /// Sends a packet in a buffer of the gateway's own, after the frames before it.
    pub(super) fn send_now(
        &mut self,
        to: (Side, u16),
        mut frame: Frame<'_>,
        origin: Option<Origin>,
    ) {
        if let Some(device) = self.route(to, &mut frame, origin) {
            self.send_frame(device, frame, origin);
        }
    }

    /// Sends a packet in fragments. The packet counts as lost if its first fragment is lost.
    pub(super) fn send_cut(
        &mut self,
        to: (Side, u16),
        cut: Cut,
        packet: &[u8],
        mut origin: Option<Origin>,
    ) {
        let mut fragments = cut.fragments(packet);
        let mut buffer = vec![0; HEADROOM + cut.limit];
        while let Some(len) = fragments.write_next(&mut buffer[HEADROOM..]) {
            let frame = Frame::of(&mut buffer, HEADROOM, HEADROOM + len);
            self.send_now(to, frame, origin.take());
        }
    }

    /// Converts and sends a packet of the engine's own to a host with a number in a realm. The
    /// packet is in a buffer behind [`ROOM`].
    fn send_to_host(&mut self, realm: u16, buffer: &mut [u8], len: usize) {
        let mut packet = Packet::new(&mut buffer[..ROOM + len], ROOM);
        let converted = self.families.translator.convert_own_to_host(realm, &mut packet);
        if self.stages.captures.is_on() && converted.is_ok() {
            self.stages.captures.leaving(self.now, Side::Inside, packet.bytes());
        }
        match converted {
            Ok(Some(cut)) => self.send_cut((Side::Inside, 0), cut, packet.bytes(), None),
            Ok(None) => {
                let (start, end) = (packet.start(), packet.end());
                self.send_now((Side::Inside, 0), Frame::of(buffer, start, end), None);
            }
            Err(reason) => self.stages.router.note_loss(None, reason),
        }
    }

    /// Converts and sends the packets of a batch that the engine has translated for hosts with
    /// numbers. An empty frame stays in the place of each.
    fn send_to_hosts(&mut self, from: Side, packets: &mut Packets<'d>, verdicts: &mut Verdicts) {
        let count = packets.len();
        let (mut lens, mut results) = ([0; BATCH], [None; BATCH]);
        packets.frames.iter().zip(&mut lens).for_each(|(frame, len)| *len = frame.len());
        let translator = &mut self.families.translator;
        translator.convert_to_hosts(&mut packets.frames, &verdicts[..count], &mut results[..count]);
        let to = (Side::Inside, 0);
        for number in 0..count {
            let Some(converted) = results[number] else { continue };
            verdicts[number] = Verdict::Held;
            let (mut frame, _) = packets.take(number);
            let origin = Some(Origin::forwarded(from, Side::Inside, lens[number]));
            match converted {
                Ok(Some(cut)) => self.send_cut(to, cut, frame.bytes(), origin),
                Ok(None) => {
                    if let Some(device) = self.route(to, &mut frame, origin) {
                        self.push(device, frame, origin);
                    }
                }
                Err(reason) => self.stages.router.note_loss(origin, reason),
            }
        }
        self.flush();
    }

    /// Translates and sends the errors about packets of IPv6 that could not be delivered. They are
    /// no input packets, so they are not counted as such.
    fn send_errors(&mut self) {
        while let Some((from, error)) = self.families.router.poll_error() {
            let before = self.sum();
            let mut buffer = with_room(&error);
            let mut packet = Packet::new(&mut buffer, ROOM);
            let Self { stages, families, now, .. } = self;
            let fate = families.translator.take(&mut stages.engine, *now, from.side, &mut packet);
            let (start, end) = (packet.start(), packet.end());
            match fate {
                Fate::Send(Departure { side, cut: None, .. }) => {
                    self.send_error(side, Frame::of(&mut buffer, start, end));
                }
                Fate::HandOver(realm) => self.turn_error_over(realm, &buffer[start..end]),
                _ => {}
            }
            self.settle();
            let after = self.sum();
            self.families.router.exclude(&before, &after);
        }
    }

    /// Sends a translated error of a router's own.
    fn send_error(&mut self, side: Side, mut frame: Frame<'_>) {
        let Self { stages, families, now, .. } = self;
        let link = Link::new(side, 0);
        let way = match is_ipv6(frame.bytes()) {
            true => families.router.send_error(*now, link, &mut frame),
            false => stages.router.send_error(*now, link, &mut frame),
        };
        if way == Way::Ready {
            let device = stages.cables.device_of(link);
            self.send_frame(device, frame, None);
        }
    }

    /// Sends a finished frame, after the frames before it.
    fn send_frame(&mut self, device: usize, frame: Frame<'_>, origin: Option<Origin>) {
        self.flush();
        let mut output = Output::default();
        output.push(frame, origin);
        self.stages.send(&mut output, &mut *self.transmitters[device]);
    }

    /// Sends the router's own frames, and packets that waited for neighbours.
    fn send_queued(&mut self) {
        while let Some((link, mut frame, origin)) = self.families.router.poll_transmit() {
            let (end, device) = (frame.len(), self.stages.cables.device_of(link));
            self.send_frame(device, Frame::of(&mut frame, 0, end), origin);
        }
    }

    /// Takes what the engine and the translator have produced about the last packets.
    pub(super) fn settle(&mut self) {
        while let Some(event) = self.stages.engine.poll_event() {
            let name = self.families.name(&event);
            self.families.told.push((event, name));
        }
        let mut buffer = std::mem::take(&mut self.families.buffer);
        let of_hosts = self.families.translator.realms();
        while let Some((_, side, len)) = self.stages.engine.poll_transmit(&mut buffer[ROOM..]) {
            let realm = self.stages.engine.transmit_realm();
            if self.stages.engine.transmit_turns() {
                self.turn_over_made(realm, &buffer[ROOM..ROOM + len]);
                continue;
            }
            if side == Side::Inside && of_hosts.has(realm) {
                self.send_to_host(realm, &mut buffer, len);
                continue;
            }
            let frame = Frame::of(&mut buffer, ROOM, ROOM + len);
            if self.stages.captures.is_on() {
                self.stages.captures.leaving(self.now, side, frame.bytes());
            }
            self.send_now((side, realm), frame, None);
        }
        while let Some((realm, packet)) = self.families.translator.poll_turned() {
            self.turn_over_made(realm, &packet);
        }
        while let Some((side, len)) = self.families.translator.poll_transmit(&mut buffer[ROOM..]) {
            if self.stages.captures.is_on() {
                self.stages.captures.leaving(self.now, side, &buffer[ROOM..ROOM + len]);
            }
            self.send_now((side, 0), Frame::of(&mut buffer, ROOM, ROOM + len), None);
        }
        self.families.buffer = buffer;
        self.families.translator.sweep(&self.stages.engine, self.now);
    }
}

fn is_ipv6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

/// A buffer with a packet of the gateway's own behind [`ROOM`].
fn with_room(packet: &[u8]) -> Vec<u8> {
    [&[0; ROOM][..], packet].concat()
}
