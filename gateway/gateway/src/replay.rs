//! The offline loop: reads a capture and writes the translated packets, in simulated time.
//!
//! The clock is the packets' timestamps. Before a packet is taken, everything due earlier happens
//! at its own time. A timestamp that goes back counts as the latest seen. The translator starts at
//! the first timestamp. The replay ends with the last packet: timers are not run out, and fragments
//! that wait then stay without a fate. If asked for, the results of one packet are flushed before
//! the next packet is read.
//!
//! [`Input`] tells the side of a packet; the output module chooses the link header of a packet that
//! leaves. There is no ARP and no routing here: a forwarded packet leaves by the other interface,
//! in fragments if it is longer than that side's MTU. VLAN tags of the inside's frames tell realms
//! apart.

mod input;
mod output;

pub use input::{Arrival, Input, InputError, Step};

use crate::Settings;
use crate::counters::{Losses, Origin};
use crate::fragment::fragment;
use crate::link::VLAN_BITS;
use crate::links::DeviceLinks;
use natgate_engine::{
    ConfigError, Counters, DropReason, Engine, Event, Packet, Side, SideConfig, Timestamp, Verdict,
};
use natgate_io::pcap::{Interface, LinkType};
use natgate_wire::link::ethertype;
use output::{Cause, Header, Output};
use std::io::{self, Read, Write};

/// The capture's two interfaces in the order of the capture, with their sides.
pub type Interfaces = [(Side, Interface); 2];

/// Longest packet that the translator makes, bytes.
const MAX_PACKET: usize = 65_535;

/// Longest packet of a side without a configured MTU, bytes.
const DEFAULT_MTU: u16 = 1500;

/// Receiver of the translator's events.
pub trait Observer {
    /// Takes an event.
    ///
    /// # Errors
    /// The error of the write.
    fn event(&mut self, event: &Event) -> io::Result<()>;

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
    let config = &settings.engine;
    let mut replay = Replay {
        output: Output::new(output),
        observer,
        mtu_outside: mtu(&config.outside),
        mtus_inside: config.realm_numbers().map(|realm| mtu(config.inside_of(realm))).collect(),
        vlans: settings.insides().map(|(_, _, vlan)| vlan).collect(),
        carried: DeviceLinks::by_device(settings).swap_remove(0),
        losses: Losses::default(),
        now: Timestamp::default(),
        backwards: 0,
        buffer: vec![0; MAX_PACKET],
    };
    let mut engine = None;
    let start = |now| Engine::new(config, seed, now).map_err(ReplayError::Config);
    let end = replay.run(&mut engine, start, &mut input, flush);
    let finished = replay.finish(&input);
    let mut counters = engine.map_or_else(Counters::default, |mut engine| {
        engine.drop_held();
        replay.losses.correct(engine.counters())
    });
    counters.clock_backwards += replay.backwards;
    Report { counters, end: end.and(finished) }
}

fn mtu(side: &SideConfig) -> usize {
    side.mtu.unwrap_or(DEFAULT_MTU).into()
}

struct Replay<'a, W> {
    output: Output<W>,
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
    /// Buffer for packets of the engine's own.
    buffer: Vec<u8>,
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
        if network.is_none_or(|network| network.ethertype != ethertype::IPV4) {
            engine.count_foreign(side, frame.len() - start);
            return Ok(());
        }
        let Some((realm, header)) = self.realm(arrival, &frame[..start]) else {
            engine.count_unknown_realm(frame.len() - start);
            return Ok(());
        };
        self.output.saw(side, header);
        let mut packets = [Packet::new(frame, start).in_realm(realm)];
        let mut verdicts = [Verdict::Held];
        engine.process(self.now, side, &mut packets, &mut verdicts);
        let ([mut packet], [verdict]) = (packets, verdicts);
        let realm = packet.realm();
        let way = match verdict {
            Verdict::Forward(to) => {
                Some((to, Cause::Passed(header), Origin::forwarded(side, to, packet.len())))
            }
            Verdict::Reply(to) => {
                Some((to, Cause::Answered(header), Origin::replied(packet.len())))
            }
            Verdict::Drop(_) | Verdict::Held | Verdict::HandOver => None,
        };
        if let Some((to, cause, origin)) = way {
            let long = packet.len() > self.mtu(to, realm);
            match if long { engine.identify(packet.bytes_mut()) } else { Ok(()) } {
                Ok(()) => self.send((to, realm), self.now, cause, packet.bytes(), Some(origin))?,
                Err(reason) => self.losses.note(Some(origin), reason),
            }
        }
        self.drain(engine, Some((side, header)))
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
            Side::Inside => self.mtus_inside[usize::from(realm)],
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
        let vlan = self.vlans[usize::from(realm)].filter(|_| side == Side::Inside);
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
            self.observer.event(&event).map_err(ReplayError::Events)?;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some((time, side, len)) = engine.poll_transmit(&mut buffer) {
            let packet = &buffer[..len];
            let cause = match provoked_by {
                // The engine makes no fragments itself: these waited for this packet.
                Some((_, header)) if is_fragment(packet) => Cause::Passed(header),
                Some((from, header)) if side == from => Cause::Answered(header),
                _ => Cause::Unknown,
            };
            self.send((side, engine.transmit_realm()), time, cause, packet, None)?;
        }
        self.buffer = buffer;
        Ok(())
    }
}

fn is_fragment(packet: &[u8]) -> bool {
    natgate_wire::Ipv4::new_header_checked(packet)
        .is_ok_and(|packet| packet.more_fragments() || packet.fragment_offset() > 0)
}
