//! A translator with its engine, and what is seen of them.

use crate::explained;
use crate::traffic::Traffic;
use natgate_engine::{Counters, Engine, Event, Packet, Side, Timestamp};
use natgate_ipv6::convert::{Cut, HEADROOM};
use natgate_ipv6::{Departure, ERROR_ROOM, Fate, HostKind, Translator};
use natgate_wire::{Ipv4, ipv6};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const START: u64 = 1_000_000_000_000;
/// Next header of IPv4 in a tunnel.
const IPV4: u8 = 4;
/// Calls in which a sweep of few hosts and mappings ends.
const SWEEP: usize = 8;

/// An own packet: side, realm and bytes.
pub(crate) type Own = (Side, u16, Vec<u8>);

/// What is seen of a translator while it takes a batch.
#[derive(Default)]
pub(crate) struct Seen {
    /// The departure and the bytes of each packet; `None`: it did not leave.
    pub(crate) packets: Vec<Option<(Departure, Vec<u8>)>>,
    /// Events; names take the places of numbers.
    pub(crate) events: Vec<String>,
    /// Packets of the engine's own.
    pub(crate) of_engine: Vec<Own>,
    /// Packets of the translator's own.
    pub(crate) own: Vec<Own>,
}

pub(crate) struct World {
    engine: Engine,
    translator: Translator,
    now: Timestamp,
}

impl World {
    pub(crate) fn new(Traffic { settings, config, .. }: &Traffic) -> Self {
        let mut config = config.clone();
        let translator = Translator::new(settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let now = Timestamp(START);
        let engine = Engine::new(&config, [1; 32], now).expect("a good configuration");
        Self { engine, translator, now }
    }

    /// Takes a batch in runs. Returns their number.
    pub(crate) fn take_runs(&mut self, side: Side, batch: &[Vec<u8>], seen: &mut Seen) -> usize {
        let mut buffers: Vec<Vec<u8>> = batch.iter().map(|bytes| buffer(bytes)).collect();
        let mut packets: Vec<Packet<'_>> =
            buffers.iter_mut().map(|buffer| Packet::new(buffer, HEADROOM)).collect();
        let mut fates = vec![Fate::Nothing; batch.len()];
        let (mut taken, mut runs) = (0, 0);
        while taken < packets.len() {
            let Self { engine, translator, now } = self;
            let rest = &mut packets[taken..];
            let count = translator.take_some(engine, *now, side, rest, &mut fates);
            assert!(count > 0, "a run has a packet");
            for (packet, fate) in rest[..count].iter().zip(&fates) {
                let came = &batch[seen.packets.len()];
                seen.packets.push(left(came, *fate, packet));
            }
            self.settle(seen);
            (taken, runs) = (taken + count, runs + 1);
        }
        runs
    }

    /// Takes a batch packet by packet. Each is explained before it is taken.
    pub(crate) fn take_singles(&mut self, side: Side, batch: &[Vec<u8>], seen: &mut Seen) {
        for bytes in batch {
            let mut buffer = buffer(bytes);
            let mut packet = Packet::new(&mut buffer, HEADROOM);
            let Self { engine, translator, now } = self;
            let fate = explained::take(translator, engine, (*now, side), &mut packet);
            seen.packets.push(left(bytes, fate, &packet));
            self.settle(seen);
        }
    }

    fn settle(&mut self, seen: &mut Seen) {
        while let Some(event) = self.engine.poll_event() {
            seen.events.push(self.named(&event));
        }
        let mut buffer = vec![0; ERROR_ROOM + 65_535];
        while let Some((_, side, len)) = self.engine.poll_transmit(&mut buffer[ERROR_ROOM..]) {
            let realm = self.engine.transmit_realm();
            let mut packet = Packet::new(&mut buffer[..ERROR_ROOM + len], ERROR_ROOM);
            let is_to_host = side == Side::Inside && self.translator.realms().has(realm);
            let lost =
                is_to_host && self.translator.convert_own_to_host(realm, &mut packet).is_err();
            let bytes = if lost { Vec::new() } else { packet.bytes().to_vec() };
            seen.of_engine.push((side, realm, bytes));
        }
        while let Some((side, len)) = self.translator.poll_transmit(&mut buffer) {
            seen.own.push((side, 0, buffer[..len].to_vec()));
        }
    }

    /// An event with the name of its host in place of the number.
    fn named(&self, event: &Event) -> String {
        let text = format!("{event:?}");
        let Some((realm, number)) = event.change.subject() else { return text };
        match self.translator.host(realm, number) {
            Some(name) => text.replace(&format!("{number:?}"), &format!("{name:?}")),
            None => text,
        }
    }

    /// Lets time pass, and sweeps come to their end.
    pub(crate) fn pause(&mut self, nanos: u64) {
        self.now.0 += nanos;
        // Events of what ends, and errors that were due, do not depend on runs.
        while self.engine.advance(self.now) {
            self.settle(&mut Seen::default());
        }
        self.settle(&mut Seen::default());
        for _ in 0..SWEEP {
            self.translator.sweep(&self.engine, self.now);
        }
    }

    /// The counters of both together.
    pub(crate) fn counters(&self) -> Counters {
        let (mut sum, others) = (self.engine.counters().clone(), self.translator.counters());
        let ways = sum.packets.iter_mut().chain(&mut sum.bytes).flatten().chain(&mut sum.drops);
        let other_ways = others.packets.iter().chain(&others.bytes).flatten().chain(&others.drops);
        for (count, other) in ways.zip(other_ways) {
            *count = count.wrapping_add(*other);
        }
        sum.generated += others.generated;
        sum.errors_suppressed += others.errors_suppressed;
        sum
    }

    /// Sessions, with the names of hosts.
    pub(crate) fn sessions(&self) -> BTreeSet<String> {
        let name = |realm: u16, number: Ipv4Addr| match self.translator.host(realm, number) {
            Some(host) => format!("{host:?}"),
            None => format!("{number:?}"),
        };
        let sessions = self.engine.sessions();
        let text = |session: natgate_engine::SessionInfo| {
            let id = session.mapping;
            let host = name(id.realm, id.internal.address);
            let (port, external) = (id.internal.port, id.external);
            format!("{} {host} {port} {external:?} {:?}", id.protocol, session.remote)
        };
        sessions.map(text).collect()
    }

    /// Numbers of hosts and of subscribers, of each kind.
    pub(crate) fn hosts(&self) -> [Option<(usize, usize)>; 2] {
        HostKind::ALL.map(|kind| self.translator.hosts(kind).map(natgate_ipv6::Hosts::counts))
    }
}

fn buffer(bytes: &[u8]) -> Vec<u8> {
    [&[0xa5; HEADROOM], bytes].concat()
}

/// A departure and its bytes. Identifications that the translator chose are left out: they depend
/// on the host's number, and a run has more numbers in use.
fn left(came: &[u8], fate: Fate, packet: &Packet<'_>) -> Option<(Departure, Vec<u8>)> {
    let Fate::Send(mut departure) = fate else { return None };
    let mut bytes = packet.bytes().to_vec();
    if came[0] >> 4 == 6 {
        // A packet of NAT64 may go into a tunnel.
        let is_tunneled = bytes[0] >> 4 == 6 && bytes[6] == IPV4;
        let at = if is_tunneled { ipv6::HEADER_LEN } else { 0 };
        if let Ok(mut header) = Ipv4::new_checked(&mut bytes[at..]) {
            header.set_identification(0);
            header.fill_checksum();
        }
        departure.cut = departure.cut.map(|cut| Cut { identification: 0, ..cut });
    }
    Some((departure, bytes))
}
