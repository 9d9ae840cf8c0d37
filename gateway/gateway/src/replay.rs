//! The offline loop: reads a capture and writes the translated packets, in simulated time.
//!
//! The clock is the packets' timestamps. Before a packet is taken, everything due earlier happens
//! at its own time. A timestamp that goes back counts as the latest seen. The translator starts at
//! the first timestamp. The replay ends with the last packet: timers are not run out, and fragments
//! that wait then stay without a fate. If asked for, the results of one packet are flushed before
//! the next packet is read.
//!
//! [`Input`] tells the side of a packet; the output module chooses the link header of a packet that
//! leaves. IPv6 is taken if the settings use it. There is no ARP and no routing here: a forwarded
//! packet leaves by the other interface, in fragments if it is longer than that side's MTU. VLAN
//! tags of the inside's frames tell realms apart.

mod controls;
mod input;
mod output;

pub use input::{Arrival, Input, InputError, Step};

use crate::Settings;
use crate::alg::{self, AlgCounters, AlgExpectation, Kind as AlgKind};
use crate::counters::{Losses, Origin, summed};
use crate::fragment::fragment;
use crate::limits::LONGEST;
use crate::link::VLAN_BITS;
use crate::links::DeviceLinks;
use natgate_engine::{
    ConfigError, Counters, DropReason, Engine, Event, Packet, Side, SideConfig, Timestamp, Verdict,
};
use natgate_io::pcap::{Interface, LinkType};
use natgate_ipv6::convert::Cut;
use natgate_ipv6::{Departure, Fate, HostRealms, Translator};
use natgate_wire::link::ethertype;
use output::{Cause, Header, Output};
use std::io::{self, Read, Write};

/// The capture's two interfaces in the order of the capture, with their sides.
pub type Interfaces = [(Side, Interface); 2];

/// Bytes before a packet that may change its family: as many as the longest ICMPv6 error has.
const HEADROOM: usize = 1280;

/// Room behind a packet of a control flow, bytes: as much as edits may add.
const ALG_ROOM: usize = 2048;

/// Longest packet of a side without a configured MTU, bytes.
const DEFAULT_MTU: u16 = 1500;

/// Receiver of the translator's events.
pub trait Observer {
    /// Takes an event. `translator` knows the hosts behind numbers, if there is NAT64.
    ///
    /// # Errors
    /// The error of the write.
    fn event(&mut self, event: &Event, translator: Option<&Translator>) -> io::Result<()>;

    /// Takes an expectation that an application-level gateway made. Unless written, nobody is told.
    ///
    /// # Errors
    /// The error of the write.
    fn expectation(&mut self, _: &AlgExpectation, _: Option<&Translator>) -> io::Result<()> {
        Ok(())
    }

    /// Flushes all events taken so far.
    ///
    /// # Errors
    /// The error of the write.
    fn flush(&mut self) -> io::Result<()>;
}

/// Time of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// After each packet: for conversations.
    EachPacket,
    /// If buffers are full, and at the end: for files.
    AtEnd,
}

/// Reason why a replay ended early. Everything before has been translated and written.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The translator cannot run with these settings.
    #[error("{}", .0.message)]
    Config(ConfigError),
    /// The input cannot be read further.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The output cannot be written.
    #[error("the translated capture cannot be written")]
    Output(#[source] io::Error),
    /// The observer failed.
    #[error("events cannot be written")]
    Events(#[source] io::Error),
}

/// Result of a replay.
#[derive(Debug)]
pub struct Report {
    /// Counters at the end.
    pub counters: Counters,
    /// Counters of the application-level gateways that are on.
    pub algs: Vec<(AlgKind, AlgCounters)>,
    /// `Ok` if the replay reached the end of the input.
    pub end: Result<(), ReplayError>,
}

/// Translates every packet of `input` with these settings and this seed, and writes the packets
/// that leave to `output` as pcapng.
pub fn replay<R: Read, W: Write>(
    settings: &Settings,
    seed: [u8; 32],
    mut input: Input<R>,
    output: W,
    observer: &mut dyn Observer,
    flush: Flush,
) -> Report {
    let mut config = settings.engine.clone();
    let ipv6 = settings.ipv6.alone(&mut config);
    let translator = match Translator::new(&ipv6, &mut config, seed) {
        Ok(translator) => translator,
        Err(message) => {
            let end = Err(ReplayError::Config(ConfigError { message }));
            return Report { counters: Counters::default(), algs: Vec::new(), end };
        }
    };
    let config = &config;
    let mut replay = Replay {
        output: Output::new(output),
        translator,
        alg: alg::Stage::new(&settings.alg, config, seed),
        observer,
        mtu_outside: mtu(&config.outside),
        mtus_inside: config.realm_numbers().map(|realm| mtu(config.inside_of(realm))).collect(),
        vlans: settings.insides().map(|(_, _, vlan)| vlan).collect(),
        carried: DeviceLinks::by_device(settings).swap_remove(0),
        losses: Losses::default(),
        now: Timestamp::default(),
        backwards: 0,
        buffer: vec![0; HEADROOM + LONGEST],
        work: Vec::new(),
    };
    if let Some(translator) = &mut replay.translator {
        translator.give_plain(replay.alg.is_some());
    }
    let mut engine = None;
    let start = |now| Engine::new(config, seed, now).map_err(ReplayError::Config);
    let end = replay.run(&mut engine, start, &mut input, flush);
    let finished = replay.finish(&input);
    let mut counters = engine.map_or_else(Counters::default, |mut engine| {
        engine.drop_held();
        if let Some(translator) = &mut replay.translator {
            translator.drop_held();
        }
        let counters = match &replay.translator {
            Some(translator) => summed(engine.counters(), &translator.counters()),
            None => engine.counters().clone(),
        };
        replay.losses.correct(&counters)
    });
    counters.clock_backwards += replay.backwards;
    let algs = replay.alg.iter().flat_map(alg::Stage::counters).collect();
    Report { counters, algs, end: end.and(finished) }
}

fn mtu(side: &SideConfig) -> usize {
    side.mtu.unwrap_or(DEFAULT_MTU).into()
}

struct Replay<'a, W> {
    output: Output<W>,
    /// The translator of both families, if IPv6 is used.
    translator: Option<Translator>,
    /// Application-level gateways, if any is on.
    alg: Option<alg::Stage>,
    observer: &'a mut dyn Observer,
    /// Largest packets, bytes: of the outside, and of each realm inside.
    mtu_outside: usize,
    mtus_inside: Vec<usize>,
    /// VLAN of each realm, and realms of the inside's frames.
    vlans: Vec<Option<u16>>,
    carried: DeviceLinks,
    /// Packets that were too long after translation.
    losses: Losses,
    /// Latest timestamp seen.
    now: Timestamp,
    /// Timestamps that went back. The engine gets only times that do not.
    backwards: u64,
    /// Buffer for packets of the engine's own, behind headroom.
    buffer: Vec<u8>,
    /// Buffer for a packet that may change its family, behind headroom.
    work: Vec<u8>,
}

impl<W: Write> Replay<'_, W> {
    /// Starts the engine with the first packet, because its clock counts from its start.
    fn run<R: Read>(
        &mut self,
        engine: &mut Option<Engine>,
        start: impl Fn(Timestamp) -> Result<Engine, ReplayError>,
        input: &mut Input<R>,
        flush: Flush,
    ) -> Result<(), ReplayError> {
        while let Some(step) = input.next_step()? {
            self.begin(input)?;
            if let Step::Packet(arrival) = step {
                let engine = match engine {
                    Some(engine) => engine,
                    None => engine.insert(start(arrival.time)?),
                };
                self.let_time_pass(engine, arrival.time)?;
                self.take(engine, arrival, input.frame())?;
            }
            if flush == Flush::EachPacket {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn begin<R: Read>(&mut self, input: &Input<R>) -> Result<(), ReplayError> {
        self.output.begin(|| input.interfaces()).map_err(ReplayError::Output)
    }

    /// Flushes events before packets: a reader that has a packet finds the changes that it made.
    fn flush(&mut self) -> Result<(), ReplayError> {
        self.observer.flush().map_err(ReplayError::Events)?;
        self.output.flush().map_err(ReplayError::Output)
    }

    fn finish<R: Read>(&mut self, input: &Input<R>) -> Result<(), ReplayError> {
        self.begin(input)?;
        self.flush()
    }

    /// Lets everything happen that is due before a packet's time.
    fn let_time_pass(&mut self, engine: &mut Engine, time: Timestamp) -> Result<(), ReplayError> {
        if time < self.now {
            self.backwards += 1;
        } else {
            self.now = time;
        }
        loop {
            let more = engine.advance(self.now);
            self.drain(engine, None)?;
            if !more {
                return Ok(());
            }
        }
    }

    fn take(
        &mut self,
        engine: &mut Engine,
        arrival: Arrival,
        frame: &mut [u8],
    ) -> Result<(), ReplayError> {
        let Arrival { side, link, .. } = arrival;
        let network = link.locate(frame);
        let start = network.map_or(0, |network| network.offset);
        if !network.is_some_and(|network| self.takes(network.ethertype, &frame[start..])) {
            engine.count_foreign(side, frame.len() - start);
            return Ok(());
        }
        let Some((realm, header)) = self.realm(arrival, &frame[..start]) else {
            engine.count_unknown_realm(frame.len() - start);
            return Ok(());
        };
        self.output.saw(side, header);
        let packet = &frame[start..];
        let translator = self.translator.as_ref();
        if let (Side::Inside, Some(alg), Some(translator)) = (side, &self.alg, translator)
            && alg.claims_of_host(translator, packet)
        {
            return self.take_control_of_host(engine, header, packet);
        }
        if self.alg.as_ref().is_some_and(|alg| alg.claims(side, packet))
            && !translator.is_some_and(|translator| translator.claims(side, realm, packet))
        {
            return self.take_control(engine, (side, realm, header), packet);
        }
        if translator.is_some() {
            self.take_any(engine, (side, realm, header), packet)?;
            return self.take_plain(engine, header);
        }
        let mut packets = [Packet::new(frame, start).in_realm(realm)];
        let mut verdicts = [Verdict::Held];
        engine.process(self.now, side, &mut packets, &mut verdicts);
        let ([mut packet], [verdict]) = (packets, verdicts);
        let from = (side, packet.realm(), header);
        self.send_decided(engine, from, verdict, packet.bytes_mut())?;
        self.drain(engine, Some((side, header)))
    }

    /// Sends a packet on which the engine has decided. `from`: its side, the realm that it goes to,
    /// and its link header.
    fn send_decided(
        &mut self,
        engine: &mut Engine,
        (side, realm, header): (Side, u16, Header),
        verdict: Verdict,
        packet: &mut [u8],
    ) -> Result<(), ReplayError> {
        let way = match verdict {
            Verdict::Forward(to) => {
                Some((to, Cause::Passed(header), Origin::forwarded(side, to, packet.len())))
            }
            Verdict::Reply(to) => {
                Some((to, Cause::Answered(header), Origin::replied(packet.len())))
            }
            Verdict::Drop(_) | Verdict::Held | Verdict::HandOver => None,
        };
        let Some((to, cause, origin)) = way else { return Ok(()) };
        self.send_translated(engine, (to, realm), cause, packet, origin)
    }

    /// Sends an IPv4 packet that the engine has translated.
    fn send_translated(
        &mut self,
        engine: &mut Engine,
        (to, realm): (Side, u16),
        cause: Cause,
        packet: &mut [u8],
        origin: Origin,
    ) -> Result<(), ReplayError> {
        let long = packet.len() > self.mtu(to, realm);
        match if long { engine.identify(packet) } else { Ok(()) } {
            Ok(()) => self.send((to, realm), self.now, cause, packet, Some(origin)),
            Err(reason) => {
                self.losses.note(Some(origin), reason);
                Ok(())
            }
        }
    }

    /// True if a packet of this type is translated or routed.
    fn takes(&self, ethertype: u16, packet: &[u8]) -> bool {
        let version = packet.first().map(|first| first >> 4);
        match ethertype {
            ethertype::IPV4 => self.translator.is_none() || version != Some(6),
            ethertype::IPV6 => self.translator.is_some() && version == Some(6),
            _ => false,
        }
    }

    /// Takes a packet of either family.
    fn take_any(
        &mut self,
        engine: &mut Engine,
        (side, realm, header): (Side, u16, Header),
        bytes: &[u8],
    ) -> Result<(), ReplayError> {
        let mut work = std::mem::take(&mut self.work);
        work.resize(HEADROOM, 0);
        work.extend_from_slice(bytes);
        let mut packet = Packet::new(&mut work, HEADROOM).in_realm(realm);
        let Some(translator) = &mut self.translator else { return Ok(()) };
        if let Fate::Send(departure) = translator.take(engine, self.now, side, &mut packet) {
            let cause =
                if departure.answers { Cause::Answered(header) } else { Cause::Passed(header) };
            self.depart(engine, departure, cause, packet.bytes_mut())?;
        }
        self.work = work;
        self.drain(engine, Some((side, header)))
    }

    /// Takes packets of tunnels that came in pieces as if they had come whole: gateways read them.
    fn take_plain(&mut self, engine: &mut Engine, header: Header) -> Result<(), ReplayError> {
        while let Some(plain) = self.translator.as_mut().and_then(Translator::poll_plain) {
            let tools = self.alg.as_ref().zip(self.translator.as_ref());
            let is_claimed = tools
                .is_some_and(|(alg, translator)| alg.claims_of_host(translator, plain.bytes()));
            match is_claimed {
                true => self.take_control_of_host(engine, header, plain.bytes())?,
                false => self.take_any(engine, (Side::Inside, 0, header), plain.bytes())?,
            }
            if let Some(translator) = &mut self.translator {
                translator.count_beyond(&plain);
            }
        }
        Ok(())
    }

    /// Sends a packet that the translator has taken.
    fn depart(
        &mut self,
        engine: &mut Engine,
        departure: Departure,
        cause: Cause,
        packet: &mut [u8],
    ) -> Result<(), ReplayError> {
        let Departure { side, realm, cut, counted: (direction, outcome, len), .. } = departure;
        let origin = Origin { direction, outcome, len };
        if is_ipv6(packet) || cut.is_some() {
            return self.send_converted((side, cut), self.now, cause, packet);
        }
        self.send_translated(engine, (side, realm), cause, packet, origin)
    }

    /// Writes a packet that was converted or routed, in the fragments that the conversion asks for.
    fn send_converted(
        &mut self,
        (side, cut): (Side, Option<Cut>),
        time: Timestamp,
        cause: Cause,
        packet: &[u8],
    ) -> Result<(), ReplayError> {
        let Some(cut) = cut else {
            let written = self.output.packet((side, None), time, cause, packet);
            return written.map_err(ReplayError::Output);
        };
        let mut fragments = cut.fragments(packet);
        let mut buffer = vec![0; cut.limit];
        while let Some(len) = fragments.write_next(&mut buffer) {
            let written = self.output.packet((side, None), time, cause, &buffer[..len]);
            written.map_err(ReplayError::Output)?;
        }
        Ok(())
    }

    /// Realm of a frame, and its header without the realm's tag; `None` if no realm has the tag.
    fn realm(&self, arrival: Arrival, header: &[u8]) -> Option<(u16, Header)> {
        let plain = Header::new(arrival.link, header);
        let tags_tell = arrival.side == Side::Inside
            && arrival.link == LinkType::ETHERNET
            && self.carried.has_vlans();
        let vlan = header.get(12..16).filter(|_| tags_tell);
        let vlan = vlan.and_then(|tag| tag.strip_prefix(&ethertype::VLAN.to_be_bytes()));
        let Some(&[high, low]) = vlan else { return Some((0, plain)) };
        let realm = self.carried.realm(u16::from_be_bytes([high, low]) & VLAN_BITS)?;
        Some((realm, plain.without_tag()))
    }

    /// Largest packet that leaves by a side, bytes. The realm counts on the inside.
    fn mtu(&self, side: Side, realm: u16) -> usize {
        match side {
            Side::Inside => self.mtus_inside.get(usize::from(realm)).copied().unwrap_or(LONGEST),
            Side::Outside => self.mtu_outside,
        }
    }

    /// Writes a packet, in fragments if it is too long for its side.
    fn send(
        &mut self,
        (side, realm): (Side, u16),
        time: Timestamp,
        cause: Cause,
        packet: &[u8],
        origin: Option<Origin>,
    ) -> Result<(), ReplayError> {
        let mtu = self.mtu(side, realm);
        let vlan = self.vlans.get(usize::from(realm)).copied().flatten();
        let vlan = vlan.filter(|_| side == Side::Inside);
        if packet.len() <= mtu {
            let written = self.output.packet((side, vlan), time, cause, packet);
            return written.map_err(ReplayError::Output);
        }
        let Some(fragments) = fragment(packet, mtu) else {
            self.losses.note(origin, DropReason::TooBig);
            return Ok(());
        };
        for fragment in fragments {
            let written = self.output.packet((side, vlan), time, cause, &fragment);
            written.map_err(ReplayError::Output)?;
        }
        Ok(())
    }

    /// Writes the events and packets that the engine produced in its last call. `provoked_by` is
    /// the packet of that call, if any.
    fn drain(
        &mut self,
        engine: &mut Engine,
        provoked_by: Option<(Side, Header)>,
    ) -> Result<(), ReplayError> {
        while let Some(event) = engine.poll_event() {
            let told = self.observer.event(&event, self.translator.as_ref());
            told.map_err(ReplayError::Events)?;
        }
        // Answers that have become due are no answers to a packet that comes now.
        if provoked_by.is_none() {
            self.sweep(engine);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let of_hosts = self.translator.as_ref().map_or(HostRealms::NONE, Translator::realms);
        while let Some((time, side, len)) = engine.poll_transmit(&mut buffer[HEADROOM..]) {
            let packet = &buffer[HEADROOM..HEADROOM + len];
            let cause = match provoked_by {
                // The engine makes no fragments itself: these waited for this packet.
                Some((_, header)) if is_fragment(packet) => Cause::Passed(header),
                Some((from, header)) if side == from => Cause::Answered(header),
                _ => Cause::Unknown,
            };
            let realm = engine.transmit_realm();
            if side == Side::Inside && of_hosts.has(realm) {
                let packet = Packet::new(&mut buffer[..HEADROOM + len], HEADROOM).in_realm(realm);
                self.send_to_host(packet, time, cause, None)?;
            } else {
                self.send((side, realm), time, cause, packet, None)?;
            }
        }
        while let Some(translator) = &mut self.translator
            && let Some((side, len)) = translator.poll_transmit(&mut buffer)
        {
            let cause = match provoked_by {
                Some((from, header)) if side == from => Cause::Answered(header),
                _ => Cause::Unknown,
            };
            let packet = &mut buffer[..len];
            if is_ipv6(packet) {
                self.send_converted((side, None), self.now, cause, packet)?;
                continue;
            }
            // A packet of a tunnel that is whole again may be too long for the other side.
            let long = packet.len() > self.mtu(side, 0);
            match if long { engine.identify(packet) } else { Ok(()) } {
                Ok(()) => self.send((side, 0), self.now, cause, packet, None)?,
                Err(reason) => self.losses.note(None, reason),
            }
        }
        self.buffer = buffer;
        if provoked_by.is_some() {
            self.sweep(engine);
        }
        Ok(())
    }

    /// Has the translator of both families do what is due.
    fn sweep(&mut self, engine: &Engine) {
        if let Some(translator) = &mut self.translator {
            translator.sweep(engine, self.now);
        }
    }

    /// Sends a packet of the engine's to a host with a number, in the packet's realm. Without
    /// `origin` the engine has made it.
    fn send_to_host(
        &mut self,
        mut packet: Packet<'_>,
        time: Timestamp,
        cause: Cause,
        origin: Option<Origin>,
    ) -> Result<(), ReplayError> {
        let Some(translator) = &mut self.translator else { return Ok(()) };
        let converted = match origin {
            Some(_) => translator.convert_to_host(packet.realm(), &mut packet),
            None => translator.convert_own_to_host(packet.realm(), &mut packet),
        };
        match converted {
            Ok(cut) => self.send_converted((Side::Inside, cut), time, cause, packet.bytes()),
            Err(reason) => {
                self.losses.note(origin, reason);
                Ok(())
            }
        }
    }
}

fn is_ipv6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

fn is_fragment(packet: &[u8]) -> bool {
    natgate_wire::Ipv4::new_header_checked(packet).is_ok_and(|packet| packet.is_fragment())
}
