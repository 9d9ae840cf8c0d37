//! An engine under watch: every call is followed by a look at what must hold.

use natgate_engine::{
    Change, Config, DropReason, Engine, MappingId, MappingKind, Packet, PoolUsage, Pooling, Side,
    Timestamp, Verdict,
};
use natgate_wire::{Icmp, Ipv4, checksum, protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Protocols whose external endpoints come from pools' ports.
const POOLED: [u8; 3] = [protocol::ICMP, protocol::TCP, protocol::UDP];
/// Translated packets that are kept for replies and errors about them.
const MEMORY: usize = 16;
/// An engine starts here, nanoseconds.
const START: u64 = 1_700_000_000_000_000_000;

/// A packet that left the engine.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Side by which it left.
    pub side: Side,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Mappings that exist according to the events, and their numbers: mappings of protocols without
/// ports differ by remotes, which events do not tell.
type Announced = BTreeMap<Flat, u32>;
/// A mapping's protocol, internal and external endpoint.
type Flat = (u8, Ipv4Addr, u16, Ipv4Addr, u16);

/// An engine, its clock, and what is known of it from outside.
pub struct World {
    engine: Engine,
    config: Config,
    now: Timestamp,
    fed: u64,
    last_event: Timestamp,
    announced: Announced,
    /// The latest packets that left, oldest first.
    pub sent: Vec<Sent>,
}

impl World {
    /// An engine of a valid configuration.
    pub fn new(config: Config) -> Self {
        let now = Timestamp(START);
        let engine = Engine::new(&config, [7; 32], now).expect("the configuration is valid");
        Self {
            engine,
            config,
            now,
            fed: 0,
            last_event: now,
            announced: Announced::new(),
            sent: Vec::new(),
        }
    }

    /// Lets time pass.
    pub fn wait(&mut self, duration: Duration) {
        self.now = self.now.plus(duration);
        // Each call does a bounded part of the work: much more of them than work is a live-lock.
        for _ in 0..10_000 {
            let more = self.engine.advance(self.now);
            self.drain();
            if !more {
                return;
            }
        }
        panic!("advance never comes to an end");
    }

    /// Feeds one batch, and looks at each verdict.
    pub fn feed(&mut self, from: Side, batch: &[Vec<u8>]) {
        let mut buffers = batch.to_vec();
        let mut packets: Vec<_> = buffers.iter_mut().map(|buffer| Packet::new(buffer, 0)).collect();
        let mut verdicts = vec![Verdict::Held; packets.len()];
        self.engine.process(self.now, from, &mut packets, &mut verdicts);
        self.fed += batch.len() as u64;
        let after: Vec<Vec<u8>> = packets.iter().map(|packet| packet.bytes().to_vec()).collect();
        for ((verdict, before), after) in verdicts.iter().zip(batch).zip(after) {
            match *verdict {
                Verdict::Forward(side) => {
                    check_forwarded(before, &after);
                    self.remember(side, after);
                }
                Verdict::Reply(side) => {
                    assert_eq!(side, from);
                    check_own(&after);
                }
                Verdict::Drop(DropReason::NoRoute | DropReason::NoNeighbor) => {
                    panic!("the engine does no routing")
                }
                Verdict::Drop(_) => assert_eq!(after[..], before[..after.len()], "bytes changed"),
                Verdict::Held => assert!(is_fragment(before)),
                Verdict::HandOver => panic!("one engine alone has nobody to hand over to"),
            }
        }
        self.drain();
        assert!(self.counted() <= self.fed, "a packet is counted once");
    }

    /// Looks at all that must hold between calls.
    pub fn check(&self) {
        self.check_pools();
        self.check_mappings();
        self.check_sessions();
        self.check_announced();
        self.check_subscribers();
    }

    /// Lets everything end: no fragment stays without a fate, no dynamic mapping without end.
    pub fn finish(mut self) {
        self.wait(self.config.timeouts.fragment + Duration::from_secs(1));
        assert_eq!(self.counted(), self.fed, "every packet has been counted");
        self.check();
        let timeouts = self.config.timeouts.clone();
        let longest = [timeouts.udp, timeouts.tcp_established, timeouts.icmp, timeouts.other];
        let longest = longest.into_iter().chain([timeouts.tcp_opening]).max().expect("some");
        self.wait(longest + timeouts.tcp_closing + Duration::from_secs(1));
        self.check();
        assert_eq!(self.dynamic().count(), 0, "everything has expired");
        self.wait(timeouts.hold_down + Duration::from_secs(1));
        for protocol in POOLED {
            for pool in 0..self.config.pools.len() {
                let usage = self.engine.pool_usage(pool, protocol);
                assert_eq!((usage.used, usage.held), (0, 0), "every port is free again");
            }
        }
    }

    fn counted(&self) -> u64 {
        self.engine.counters().packets.iter().flatten().sum()
    }

    fn remember(&mut self, side: Side, bytes: Vec<u8>) {
        if self.sent.len() == MEMORY {
            self.sent.remove(0);
        }
        self.sent.push(Sent { side, bytes });
    }

    fn drain(&mut self) {
        while let Some(event) = self.engine.poll_event() {
            assert!(self.last_event <= event.time && event.time <= self.now, "events in order");
            self.last_event = event.time;
            match event.change {
                Change::MappingCreated(id) => *self.announced.entry(flat(&id)).or_default() += 1,
                Change::MappingRemoved(id) => {
                    let count = self.announced.get_mut(&flat(&id)).expect("it was announced");
                    *count -= 1;
                    if *count == 0 {
                        self.announced.remove(&flat(&id));
                    }
                }
                _ => {}
            }
        }
        let mut buffer = [0; 2048];
        while let Some((time, side, len)) = self.engine.poll_transmit(&mut buffer) {
            assert!(time <= self.now);
            let bytes = &buffer[..len];
            if is_fragment(bytes) {
                check_header(bytes);
            } else {
                check_own(bytes);
            }
            self.remember(side, bytes.to_vec());
        }
    }

    fn dynamic(&self) -> impl Iterator<Item = MappingId> + '_ {
        let ids = self.engine.mappings().map(|mapping| mapping.id);
        ids.filter(|id| id.kind != MappingKind::Static)
    }

    fn check_pools(&self) {
        for (index, pool) in self.config.pools.iter().enumerate() {
            let addresses: u64 = pool
                .addresses
                .iter()
                .map(|range| u64::from(range.last.to_bits() - range.first.to_bits()) + 1)
                .sum();
            let all = addresses * (u64::from(pool.ports.1 - pool.ports.0) + 1);
            for protocol in POOLED {
                let usage = self.engine.pool_usage(index, protocol);
                let PoolUsage { free, used, held, reserved } = usage;
                assert_eq!(free + used + held + reserved, all, "{usage:?}");
                let inside = |id: &MappingId| {
                    let address = id.external.address;
                    let here = |range: &natgate_engine::AddressRange| {
                        (range.first..=range.last).contains(&address)
                    };
                    id.protocol == protocol && pool.addresses.iter().any(here)
                };
                assert_eq!(self.dynamic().filter(inside).count() as u64, used, "{usage:?}");
                assert!(protocol != protocol::TCP || held == 0, "TCP ports are not held");
            }
        }
    }

    fn check_mappings(&self) {
        let mut external = BTreeSet::new();
        for mapping in self.engine.mappings() {
            let id = mapping.id;
            let limit = u32::from(self.config.limits.sessions_per_mapping);
            assert!(mapping.sessions <= limit);
            assert!(mapping.sessions > 0 || mapping.expires.is_none(), "{id:?} has no session");
            assert!(mapping.created <= self.now);
            if POOLED.contains(&id.protocol) {
                assert!(external.insert((id.protocol, id.external)), "{id:?} is there twice");
            }
        }
    }

    fn check_sessions(&self) {
        let tick = natgate_engine::TICK.as_nanos() as u64;
        let mut count = BTreeMap::<_, u32>::new();
        let mut remotes = BTreeSet::new();
        for session in self.engine.sessions() {
            let id = session.mapping;
            // Sessions end at ticks, of which the latest is done.
            assert!(session.expires.0 > self.now.0 / tick * tick, "{session:?} has expired");
            let of = (id.protocol, id.external, id.internal, session.remote);
            assert!(remotes.insert(of), "{session:?} is there twice");
            *count.entry(flat(&id)).or_default() += 1;
        }
        // Mappings of protocols without ports look alike, and so do dependent ones from inside.
        for mapping in self.engine.mappings().filter(|m| POOLED.contains(&m.id.protocol)) {
            let found = count.get(&flat(&mapping.id)).copied().unwrap_or(0);
            assert_eq!(found, mapping.sessions, "{mapping:?}");
        }
    }

    fn check_announced(&self) {
        assert_eq!(self.engine.counters().events_lost, 0);
        let mut there = Announced::new();
        for id in self.dynamic() {
            *there.entry(flat(&id)).or_default() += 1;
        }
        assert_eq!(self.announced, there);
    }

    fn check_subscribers(&self) {
        let limits = &self.config.limits;
        let quotas = [limits.tcp_ports, limits.udp_ports, limits.icmp_ports];
        let mut counts = BTreeMap::<_, u32>::new();
        let mut paired = BTreeMap::new();
        for id in self.dynamic() {
            let class = match id.protocol {
                protocol::TCP => 0,
                protocol::UDP => 1,
                _ => 2,
            };
            let count = counts.entry((id.internal.address, class)).or_default();
            *count += 1;
            assert!(*count <= quotas[class], "{id:?} is beyond the quota");
            if self.config.pooling == Pooling::Paired && self.config.rules.is_empty() {
                let address = paired.entry(id.internal.address).or_insert(id.external.address);
                assert_eq!(*address, id.external.address, "{id:?} is not paired");
            }
        }
    }
}

fn flat(id: &MappingId) -> Flat {
    let (internal, external) = (id.internal, id.external);
    (id.protocol, internal.address, internal.port, external.address, external.port)
}

fn is_fragment(bytes: &[u8]) -> bool {
    Ipv4::new_checked(bytes)
        .is_ok_and(|packet| packet.more_fragments() || packet.fragment_offset() > 0)
}

fn check_header(bytes: &[u8]) {
    let packet = Ipv4::new_checked(bytes).expect("a readable packet");
    assert!(packet.checksum_valid());
    assert_eq!(usize::from(packet.total_len()), bytes.len());
}

/// A packet that the engine wrote itself: an ICMP error or an echo reply.
fn check_own(bytes: &[u8]) {
    check_header(bytes);
    let packet = Ipv4::new_checked(bytes).expect("just read");
    assert_eq!((packet.ttl(), packet.protocol()), (64, protocol::ICMP));
    assert!(Icmp::new_checked(packet.payload()).expect("a header").checksum_valid());
}

/// Checks that a forwarded packet keeps its length, all but the ends of its header, and the state
/// of its checksums.
fn check_forwarded(before: &[u8], after: &[u8]) {
    check_header(after);
    let (old, new) = (Ipv4::new_checked(before).unwrap(), Ipv4::new_checked(after).unwrap());
    assert_eq!(old.total_len(), new.total_len());
    assert_eq!(old.ttl() - 1, new.ttl());
    assert_eq!((old.protocol(), old.options()), (new.protocol(), new.options()));
    assert_eq!(before[1], after[1]);
    assert_eq!(before[6..8], after[6..8]);
    if is_fragment(before) {
        return;
    }
    assert_eq!(old.identification(), new.identification());
    assert_eq!(checksum_state(&old), checksum_state(&new), "right stays right, wrong wrong");
}

#[derive(Debug, PartialEq, Eq)]
enum Sum {
    Absent,
    Right,
    Wrong,
}

fn checksum_state(packet: &Ipv4<&[u8]>) -> Sum {
    let payload = packet.payload();
    let right = match packet.protocol() {
        protocol::UDP if payload[6..8] == [0, 0] => return Sum::Absent,
        protocol::UDP => {
            let length = usize::from(u16::from_be_bytes([payload[4], payload[5]]));
            pseudo_sum(packet, &payload[..length])
        }
        protocol::TCP => pseudo_sum(packet, payload),
        protocol::ICMP => Icmp::new_checked(payload).expect("a header").checksum_valid(),
        _ => return Sum::Absent,
    };
    if right { Sum::Right } else { Sum::Wrong }
}

fn pseudo_sum(packet: &Ipv4<&[u8]>, payload: &[u8]) -> bool {
    let length = payload.len() as u16;
    let (source, destination) = (packet.source(), packet.destination());
    let pseudo = checksum::pseudo_header(source, destination, packet.protocol(), length);
    checksum::fold(checksum::sum(payload, pseudo)) == 0xffff
}
