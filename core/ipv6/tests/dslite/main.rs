//! DS-Lite (RFC 6333) packet by packet: subscribers behind tunnels, with equal inner addresses.

mod attacks;
#[path = "../common/mod.rs"]
mod common;
mod errors;
#[path = "../common/explained.rs"]
mod explained;
mod fragments;
mod moves;
mod requests;
mod sessions;
mod widths;

use common::Ends;
use natgate_engine::{
    AddressRange, Config, DropReason as R, Engine, Packet, PoolConfig, Side, StaticMapping,
    Timestamp,
};
use natgate_ipv6::softwire::{DsliteSettings, SoftwireSettings};
use natgate_ipv6::{Fate, HostKind, Prefix6, Settings, StaticHost, Translator};
use natgate_wire::checksum::{checksum, fold, pseudo_header, pseudo_header_v6, sum};
use natgate_wire::{Icmp, Icmpv6, Ipv4, Ipv6, icmpv6};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const START: Timestamp = Timestamp(1_000_000_000_000);
const SECOND: u64 = 1_000_000_000;
const ROOM: usize = 64;
const AFTR: &str = "2001:db8:ffff::1";
const B4: &str = "2001:db8:b4::1";
const OTHER_B4: &str = "2001:db8:b4:1::1";
const HOST: [u8; 4] = [192, 168, 1, 2];
const REMOTE: [u8; 4] = [198, 51, 100, 7];
const EXTERNAL: [u8; 4] = [203, 0, 113, 1];
const IPV4: u8 = 4;

struct World {
    engine: Engine,
    translator: Translator,
    now: Timestamp,
}

fn address(text: &str) -> u128 {
    text.parse().map(Ipv6Addr::to_bits).expect("an address")
}

impl World {
    fn with(change: impl FnOnce(&mut Config, &mut DsliteSettings)) -> Self {
        Self::build(1500, change)
    }

    /// A world whose inside link has an MTU, bytes.
    fn wide(mtu: u16) -> Self {
        Self::build(mtu, |_, _| ())
    }

    fn build(mtu: u16, change: impl FnOnce(&mut Config, &mut DsliteSettings)) -> Self {
        let external = Ipv4Addr::from(EXTERNAL);
        let addresses = vec![AddressRange { first: external, last: external }];
        let pool = PoolConfig { addresses, ..PoolConfig::default() };
        let mut config = Config { pools: vec![pool], ..Config::default() };
        config.outside.address = Some(Ipv4Addr::new(203, 0, 113, 254));
        let b4 = Prefix6 { address: "2001:db8:b4::".parse().expect("an address"), len: 47 };
        let mut dslite = DsliteSettings {
            subscriber_length: 128,
            b4_change_interval: std::time::Duration::ZERO,
            address: AFTR.parse().expect("an address"),
            b4: vec![b4],
            softwire: SoftwireSettings { mtu: None, path_mtu: true },
            static_hosts: Vec::new(),
        };
        change(&mut config, &mut dslite);
        let mut settings =
            Settings { configured: true, dslite: Some(dslite), ..Settings::default() };
        settings.inside.address = Some((AFTR.parse().expect("an address"), 64));
        settings.inside.mtu = mtu;
        let translator = Translator::new(&settings, &mut config, [1; 32]);
        let translator = translator.expect("good settings").expect("settings of IPv6");
        let engine = Engine::new(&config, [1; 32], START).expect("a good configuration");
        Self { engine, translator, now: START }
    }

    fn new() -> Self {
        Self::with(|_, _| ())
    }

    fn drops(&self) -> Vec<u64> {
        let both = [self.engine.counters().drops, self.translator.counters().drops];
        both[0].iter().zip(&both[1]).map(|(one, other)| one + other).collect()
    }

    /// Packets of all ways and outcomes.
    fn packets(&self) -> u64 {
        let both = [self.engine.counters().packets, self.translator.counters().packets];
        both.iter().flatten().flatten().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// Takes a packet; returns its bytes and the limit of its cut, or the reason of its end.
    fn take(&mut self, from: Side, bytes: &[u8]) -> Result<(Side, Vec<u8>, Option<usize>), R> {
        let mut buffer = vec![0; ROOM];
        buffer.extend(bytes);
        let mut packet = Packet::new(&mut buffer, ROOM);
        let before = self.drops();
        let Self { translator, engine, now } = self;
        match explained::take(translator, engine, (*now, from), &mut packet) {
            Fate::Send(departure) => {
                // Packets to hosts have IPv6, and go to no realm.
                assert!(departure.side == Side::Outside || departure.realm == 0);
                let cut = departure.cut.map(|cut| cut.limit);
                Ok((departure.side, packet.bytes().to_vec(), cut))
            }
            Fate::HandOver(_) => unreachable!("the engine is alone"),
            Fate::Nothing | Fate::Local => {
                let after = self.drops();
                let counts = |reason: &R| after[*reason as usize] != before[*reason as usize];
                Err(R::ALL.iter().copied().find(counts).unwrap_or(R::FragmentUnmatched))
            }
        }
    }

    /// Takes a packet from a tunnel that leaves outside.
    fn leave(&mut self, b4: &str, inner: &[u8]) -> Vec<u8> {
        match self.take(Side::Inside, &tunneled(b4, inner)) {
            Ok((Side::Outside, bytes, None)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Takes a packet from outside that goes whole into a tunnel: its end and its content.
    fn enter(&mut self, bytes: &[u8]) -> (String, Vec<u8>) {
        match self.take(Side::Outside, bytes) {
            Ok((Side::Inside, bytes, None)) => open(&bytes),
            other => panic!("{other:?}"),
        }
    }

    /// A packet of the engine's own, as it leaves.
    fn made(&mut self) -> Option<(Side, Vec<u8>)> {
        let mut buffer = vec![0; ROOM + 1500];
        let (_, side, len) = self.engine.poll_transmit(&mut buffer[ROOM..])?;
        let mut packet = Packet::new(&mut buffer[..ROOM + len], ROOM);
        let realm = self.engine.transmit_realm();
        if side == Side::Inside && self.translator.realms().has(realm) {
            self.translator.convert_own_to_host(realm, &mut packet).expect("a host");
        }
        Some((side, packet.bytes().to_vec()))
    }

    /// A packet that the translator sends by its queue.
    fn queued(&mut self) -> Option<(Side, Vec<u8>)> {
        let mut buffer = vec![0; 66_000];
        let (side, len) = self.translator.poll_transmit(&mut buffer)?;
        Some((side, buffer[..len].to_vec()))
    }

    /// The code, the receiver and the quotation of an ICMP error from the gateway's address in the
    /// tunnel, "unreachable", that has just been sent to a B4.
    fn refusal(&mut self, b4: &str) -> (u8, [u8; 4], Vec<u8>) {
        let (side, bytes) = self.queued().expect("an error");
        let (end, error) = open(&bytes);
        assert_eq!((side, end.as_str(), &error[12..16]), (Side::Inside, b4, &[192, 0, 0, 1][..]));
        assert_eq!((error[9], error[20], checksum(&error[20..])), (1, 3, 0));
        let receiver = [error[16], error[17], error[18], error[19]];
        (error[21], receiver, error[28..].to_vec())
    }

    fn realm(&self) -> u16 {
        self.translator.realms().of(HostKind::Dslite).expect("DS-Lite")
    }

    fn hosts(&self) -> (usize, usize) {
        self.translator.hosts(HostKind::Dslite).expect("DS-Lite").counts()
    }

    /// Lets time pass, in steps, so that sweeps come to their end.
    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = Timestamp(self.now.0 + SECOND);
            self.engine.advance(self.now);
            while self.engine.poll_event().is_some() {}
            self.translator.sweep(&self.engine, self.now);
        }
    }
}

fn four(ends: Ends, protocol: u8, payload: &[u8]) -> Vec<u8> {
    common::four(0xb8, ends, protocol, payload)
}

fn transport(ends: Ends, protocol: u8, at: usize, mut payload: Vec<u8>) -> Vec<u8> {
    let [source, destination] = [ends.0, ends.1].map(u32::from_be_bytes);
    let start = pseudo_header(source, destination, protocol, payload.len() as u16);
    let total = match !fold(sum(&payload, start)) {
        // Zero would mean "no checksum" (RFC 768).
        0 if protocol == 17 => u16::MAX,
        total => total,
    };
    payload[at..at + 2].copy_from_slice(&total.to_be_bytes());
    four(ends, protocol, &payload)
}

fn udp(ends: Ends, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
    let mut payload = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    payload.extend((8 + data.len() as u16).to_be_bytes());
    payload.extend([0, 0]);
    payload.extend(data);
    transport(ends, 17, 6, payload)
}

fn tcp_syn(ends: Ends, ports: (u16, u16)) -> Vec<u8> {
    let mut payload = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    payload.resize(24, 0);
    (payload[12], payload[13]) = (6 << 4, 2);
    payload[20..24].copy_from_slice(&[2, 4, 5, 0xb4]);
    transport(ends, 6, 16, payload)
}

fn icmp(ends: Ends, message: &[u8]) -> Vec<u8> {
    let mut payload = message.to_vec();
    let sum = checksum(&payload);
    payload[2..4].copy_from_slice(&sum.to_be_bytes());
    four(ends, 1, &payload)
}

fn with_field(mut bytes: Vec<u8>, change: impl FnOnce(&mut Ipv4<&mut [u8]>)) -> Vec<u8> {
    let mut header = Ipv4::new_header_checked(&mut bytes[..]).expect("a packet");
    change(&mut header);
    header.fill_checksum();
    bytes
}

/// A packet of which the network took a hop.
fn after_hop(bytes: Vec<u8>) -> Vec<u8> {
    with_field(bytes, |header| {
        let ttl = header.ttl();
        header.set_ttl(ttl - 1);
    })
}

fn six(source: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 40];
    let mut header = Ipv6::init(&mut bytes[..]);
    header.set_payload_len(payload.len() as u16);
    header.set_next_header(next);
    header.set_hop_limit(64);
    header.set_source(address(source));
    header.set_destination(address(AFTR));
    bytes.extend(payload);
    bytes
}

fn tunneled(b4: &str, inner: &[u8]) -> Vec<u8> {
    six(b4, IPV4, inner)
}

/// The far end and the content of a packet to a tunnel.
fn open(bytes: &[u8]) -> (String, Vec<u8>) {
    let outer = Ipv6::new_checked(bytes).expect("a packet of IPv6");
    assert_eq!((outer.next_header(), outer.source()), (IPV4, address(AFTR)));
    assert_eq!((outer.hop_limit(), outer.traffic_class()), (64, outer.payload()[1]));
    (Ipv6Addr::from_bits(outer.destination()).to_string(), outer.payload().to_vec())
}

/// A packet of the gateway's to a tunnel.
fn to_tunnel(b4: &str, inner: &[u8]) -> Vec<u8> {
    let mut bytes = six(b4, IPV4, inner);
    let mut header = Ipv6::new_header_checked(&mut bytes[..]).expect("a packet");
    header.set_source(address(AFTR));
    header.set_destination(address(b4));
    bytes
}

fn port_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[20 + at], bytes[21 + at]])
}

/// An answer to a packet of UDP that left.
fn answer(left: &[u8], data: &[u8]) -> Vec<u8> {
    udp((REMOTE, EXTERNAL), (port_at(left, 2), port_at(left, 0)), data)
}

fn report(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    let mut payload = vec![kind, code, 0, 0];
    payload.extend(word.to_be_bytes());
    payload.extend(quoted);
    let router = "2001:db8:77::1";
    let start = pseudo_header_v6(address(router), address(AFTR), 58, payload.len() as u32);
    let total = !fold(sum(&payload, start));
    payload[2..4].copy_from_slice(&total.to_be_bytes());
    six(router, 58, &payload)
}

/// Two hosts with one inner address that have static mappings.
fn with_servers() -> World {
    let of = |b4: &str| (b4.parse().expect("an address"), Ipv4Addr::from(HOST));
    let hosts = StaticHost::first_behind(&[of(B4), of(OTHER_B4)], 128, 1);
    let mapping = |host: &StaticHost, port| StaticMapping {
        realm: 1,
        protocol: Some(17),
        internal: (host.number, Some(8080)),
        external: (EXTERNAL.into(), Some(port)),
        ..StaticMapping::default()
    };
    World::with(|config, dslite| {
        config.statics = vec![mapping(&hosts[0], 80), mapping(&hosts[1], 81)];
        dslite.static_hosts = hosts;
    })
}

/// Two B4s in one /56, and one in another.
const MOVING: [&str; 3] = ["2001:db8:b4:100::1", "2001:db8:b4:1ff::2", "2001:db8:b4:200::1"];

fn of_prefixes() -> World {
    World::with(|config, dslite| {
        config.limits.udp_ports = 4;
        dslite.subscriber_length = 56;
        dslite.b4_change_interval = Duration::from_secs(1800);
    })
}
