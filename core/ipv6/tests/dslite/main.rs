//! DS-Lite (RFC 6333) packet by packet: subscribers behind tunnels, with equal inner addresses.

mod attacks;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/explained.rs"]
mod explained;
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

//= test rfc6333#section-6.6-source
//= test rfc6333#section-6.6-reverse
//= test rfc6333#section-7.1-class
#[test]
fn subscribers_with_one_inner_address_do_not_meet() {
    let mut world = World::new();
    let left = [B4, OTHER_B4].map(|b4| {
        let inner = udp((HOST, REMOTE), (5000, 53), b4.as_bytes());
        let left = world.leave(b4, &inner);
        let expected = udp((EXTERNAL, REMOTE), (port_at(&left, 0), 53), b4.as_bytes());
        assert_eq!(left, after_hop(expected));
        left
    });
    assert_ne!(port_at(&left[0], 0), port_at(&left[1], 0));
    for (b4, left) in [B4, OTHER_B4].into_iter().zip(&left) {
        let expected = after_hop(udp((REMOTE, HOST), (53, 5000), b"pong"));
        assert_eq!(world.enter(&answer(left, b"pong")), (b4.to_owned(), expected));
    }
    assert_eq!(world.hosts(), (2, 2));
    let realm = world.realm();
    let numbers = world.translator.numbers(HostKind::Dslite, B4.parse().unwrap(), 128);
    let (found, numbers) = numbers.expect("a B4");
    assert_eq!(found, realm);
    let name = world.translator.host(realm, numbers.first().into()).expect("a name");
    let inner = name.address.and_then(|address| address.to_ipv4_mapped());
    assert_eq!((inner, name.prefix.to_string(), name.len), (Some(HOST.into()), B4.into(), 128));
    assert_eq!(world.packets(), 4);
    let counters = world.translator.domain_counters().last().expect("those of DS-Lite");
    assert_eq!((counters.outbound.0, counters.inbound.0, counters.spoofed), (2, 2, 0));
    assert!(counters.outbound.1 > 2 * 68 && counters.inbound.1 > 2 * 68);
}

/// More subscribers than one external address has ports, all with one inner endpoint.
#[test]
fn many_subscribers_with_one_inner_address_keep_their_own_sessions() {
    const SUBSCRIBERS: usize = 100_000;
    let mut world = World::with(|config, _| {
        config.pools[0].addresses[0].last = Ipv4Addr::new(203, 0, 113, 16);
        let limits = &mut config.limits;
        limits.mappings = Some(SUBSCRIBERS as u32);
        limits.subscribers = Some(SUBSCRIBERS as u32);
    });
    let b4 = |number: usize| Ipv6Addr::from_bits(address(B4) + number as u128).to_string();
    let left: Vec<Vec<u8>> = (0..SUBSCRIBERS)
        .map(|number| world.leave(&b4(number), &udp((HOST, REMOTE), (5000, 53), &[1])))
        .collect();
    let external = |left: &Vec<u8>| ([left[12], left[13], left[14], left[15]], port_at(left, 0));
    let all: std::collections::HashSet<_> = left.iter().map(external).collect();
    assert_eq!(all.len(), SUBSCRIBERS, "each subscriber has an external endpoint of its own");
    let expected = after_hop(udp((REMOTE, HOST), (53, 5000), &[2]));
    for (number, left) in left.iter().enumerate() {
        let (to, port) = external(left);
        let answer = udp((REMOTE, to), (53, port), &[2]);
        assert_eq!(world.enter(&answer), (b4(number), expected.clone()));
    }
    assert_eq!(world.hosts(), (SUBSCRIBERS, SUBSCRIBERS));
}

/// The address of RFC 6333 may be one that several gateways share. A report comes to any of them,
/// so none may change what a gateway sends; the sender outside still learns of a tunnel's end.
#[test]
fn without_path_mtu_a_report_makes_no_path_narrow() {
    let mut world = World::with(|_, dslite| dslite.softwire.path_mtu = false);
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let large = answer(&left, &[5; 1300]);
    let (_, quoted, _) = world.take(Side::Outside, &large).expect("a packet");
    let too_big = report(icmpv6::kind::PACKET_TOO_BIG, 0, 1300, &quoted[..100]);
    let taken = world.take(Side::Inside, &too_big);
    assert!(taken.is_err(), "{taken:?}");
    assert_eq!(world.queued(), None);
    let (_, bytes, cut) = world.take(Side::Outside, &large).expect("a packet");
    assert_eq!((bytes, cut), (quoted.clone(), None));
    let unreachable = report(icmpv6::kind::UNREACHABLE, 3, 0, &quoted[..200]);
    assert!(world.take(Side::Inside, &unreachable).is_err());
    let (side, error) = world.queued().expect("an error");
    assert_eq!((side, &error[16..20], error[20]), (Side::Outside, &REMOTE[..], 3));
}

#[test]
fn tcp_and_echo_pass_both_ways() {
    let mut world = World::with(|config, _| config.tcp_mss = Some(1452));
    let left = world.leave(B4, &tcp_syn((HOST, REMOTE), (5000, 80)));
    // The tunnel's headers are taken off the announced size.
    assert_eq!(left[40..44], [2, 4, 0x05, 0x8c]);
    let mut expected = tcp_syn((EXTERNAL, REMOTE), (port_at(&left, 0), 80))[20..].to_vec();
    expected[20..24].copy_from_slice(&[2, 4, 0x05, 0x8c]);
    expected[16..18].fill(0);
    let expected = transport((EXTERNAL, REMOTE), 6, 16, expected);
    assert_eq!(left, after_hop(expected));
    let echo = icmp((HOST, REMOTE), &[8, 0, 0, 0, 0, 5, 0, 1, 9]);
    let left = world.leave(OTHER_B4, &echo);
    let identifier = port_at(&left, 4).to_be_bytes();
    let reply = [0, 0, 0, 0, identifier[0], identifier[1], 0, 1, 9];
    let expected = after_hop(icmp((REMOTE, HOST), &[0, 0, 0, 0, 0, 5, 0, 1, 9]));
    let entered = world.enter(&icmp((REMOTE, EXTERNAL), &reply));
    assert_eq!(entered, (OTHER_B4.to_owned(), expected));
}

#[test]
fn subscribers_reach_each_other_by_external_endpoints() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let external = port_at(&left, 0);
    let turned = udp((HOST, EXTERNAL), (6000, external), &[7; 9]);
    match world.take(Side::Inside, &tunneled(OTHER_B4, &turned)) {
        Ok((Side::Inside, bytes, None)) => {
            let (b4, inner) = open(&bytes);
            let expected = udp((EXTERNAL, HOST), (port_at(&inner, 0), 5000), &[7; 9]);
            assert_eq!((b4.as_str(), inner), (B4, after_hop(expected)));
        }
        other => panic!("{other:?}"),
    }
}

//= test rfc6333#section-11-sources
//= test rfc6333#section-11-registered
#[test]
fn forged_sources_are_dropped_and_leave_nothing() {
    let mut world = World::new();
    let good = udp((HOST, REMOTE), (5000, 53), &[1]);
    let from = |ends| udp(ends, (5000, 53), &[1]);
    let broken = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cases = [
        ("2001:db8:b6::1", good.clone(), R::SoftwireSource),
        (B4, from(([127, 0, 0, 1], REMOTE)), R::MartianSource),
        (B4, from(([0, 0, 0, 0], REMOTE)), R::MartianSource),
        (B4, from(([8, 8, 8, 8], REMOTE)), R::NotSubscriber),
        (B4, from(([192, 0, 0, 0], REMOTE)), R::NotSubscriber),
        (B4, from(([192, 0, 0, 1], REMOTE)), R::NotSubscriber),
        (B4, from(([192, 0, 0, 1], [192, 0, 0, 1])), R::NotSubscriber),
        (B4, from(([192, 0, 0, 7], REMOTE)), R::NotSubscriber),
        (B4, from((HOST, [224, 0, 0, 1])), R::MartianDestination),
        (B4, from((HOST, HOST)), R::Land),
        (B4, broken(10), R::BadHeaderChecksum),
        (B4, good[..19].to_vec(), R::BadLength),
        (B4, tunneled(OTHER_B4, &good), R::NotIpv4),
    ];
    for (b4, inner, reason) in cases {
        let taken = world.take(Side::Inside, &tunneled(b4, &inner));
        assert_eq!(taken, Err(reason), "{b4} {inner:x?}");
    }
    world.translator.sweep(&world.engine, world.now);
    assert_eq!(world.hosts(), (0, 0));
    // Fragments of a source that is no B4 do not wait.
    let fragment = [&[IPV4, 0, 0, 1, 0, 0, 0, 9][..], &good[..24]].concat();
    let taken = world.take(Side::Inside, &six("2001:db8:b6::1", 44, &fragment));
    assert_eq!(taken, Err(R::SoftwireSource));
    assert_eq!(world.translator.domain_counters().last().map(|one| one.spoofed), Some(2));
    // Tunnels end inside alone.
    let taken = world.take(Side::Outside, &tunneled(B4, &good));
    assert!(taken.is_err(), "{taken:?}");
}

//= test rfc6333#section-6.5-address
#[test]
fn addresses_of_section_5_7_are_usable() {
    let mut world = World::new();
    let b4_itself = [192, 0, 0, 2];
    let left = world.leave(B4, &udp((b4_itself, REMOTE), (123, 123), &[1]));
    assert_eq!(world.enter(&answer(&left, &[2])).1[16..20], b4_itself);
    let echo = icmp((b4_itself, [192, 0, 0, 1]), &[8, 0, 0, 0, 0, 5, 0, 1]);
    match world.take(Side::Inside, &tunneled(B4, &echo)) {
        Ok((Side::Inside, bytes, None)) => {
            let (b4, inner) = open(&bytes);
            let header = Ipv4::new_checked(&inner[..]).expect("a packet");
            assert_eq!((b4.as_str(), &inner[12..20]), (B4, &[192, 0, 0, 1, 192, 0, 0, 2][..]));
            assert_eq!((inner[20], checksum(header.payload())), (0, 0));
        }
        other => panic!("{other:?}"),
    }
}

//= test rfc6333#section-6.3-fragment
//= test rfc6333#section-6.3-order
#[test]
fn outer_packets_are_cut_and_inner_ones_never() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    for (data, cut) in [(1432, None), (1433, Some(1500)), (4000, Some(1500))] {
        for flags in [0, 0x4000] {
            let answer = answer(&left, &vec![5; data]);
            let answer = with_field(answer, |header| header.set_fragment_field(flags));
            let (side, bytes, found) = world.take(Side::Outside, &answer).expect("a packet");
            assert_eq!((side, bytes.len(), found), (Side::Inside, 40 + 28 + data, cut));
            assert_eq!(open(&bytes).1[28..], vec![5; data]);
        }
    }
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

//= test rfc2473#section-8.3-unreachable
#[test]
fn reports_of_routers_in_tunnels_are_believed_if_they_quote_a_hosts_packet() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let large = answer(&left, &[5; 1300]);
    let (_, quoted, _) = world.take(Side::Outside, &large).expect("a packet");
    let mut forged = quoted.clone();
    forged[39] ^= 1;
    let too_big = |quoted: &[u8]| report(icmpv6::kind::PACKET_TOO_BIG, 0, 1300, &quoted[..100]);
    assert_eq!(world.take(Side::Inside, &too_big(&forged)), Err(R::IcmpNoSession));
    let mut wrong = too_big(&quoted);
    wrong[43] ^= 1;
    assert_eq!(world.take(Side::Inside, &wrong), Err(R::IcmpBadChecksum));
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, None);
    assert!(world.take(Side::Inside, &too_big(&quoted)).is_err());
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, Some(1300));
    // The tunnel's end is out of reach: the sender outside learns it.
    let unreachable = report(icmpv6::kind::UNREACHABLE, 3, 0, &quoted[..200]);
    let counted = world.packets();
    assert!(world.take(Side::Inside, &unreachable).is_err());
    assert_eq!(world.packets(), counted + 1);
    let (side, error) = world.queued().expect("an error");
    let header = Ipv4::new_checked(&error[..]).expect("a packet");
    assert_eq!((side, header.destination()), (Side::Outside, u32::from_be_bytes(REMOTE)));
    let message = Icmp::new_checked(header.payload()).expect("a message");
    assert!(message.checksum_valid());
    assert_eq!((message.kind(), message.code()), (3, 1));
    let about = Ipv4::new_header_checked(message.body()).expect("a packet");
    assert_eq!(about.destination(), u32::from_be_bytes(EXTERNAL));
    assert_eq!(about.payload()[2..4], left[20..22]);
}

#[test]
fn a_report_about_a_packet_of_no_session_makes_no_path_narrow() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let large = answer(&left, &[5; 1300]);
    let too_big = |ends: Ends, ports: (u16, u16)| {
        let packet = to_tunnel(B4, &udp(ends, ports, &[5; 100]));
        report(icmpv6::kind::PACKET_TOO_BIG, 0, 1280, &packet)
    };
    let guesses = [
        too_big((REMOTE, HOST), (53, 5001)),
        too_big((REMOTE, HOST), (54, 5000)),
        too_big(([198, 51, 100, 8], HOST), (53, 5000)),
    ];
    for guess in guesses {
        assert_eq!(world.take(Side::Inside, &guess), Err(R::IcmpNoSession));
    }
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, None);
    assert!(world.take(Side::Inside, &too_big((REMOTE, HOST), (53, 5000))).is_err());
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, Some(1280));
}

#[test]
fn a_report_of_less_than_ipv6_permits_is_discarded() {
    let mut world = World::new();
    let left = world.leave(B4, &udp((HOST, REMOTE), (5000, 53), &[1]));
    let large = answer(&left, &[5; 1300]);
    let (_, quoted, _) = world.take(Side::Outside, &large).expect("a packet");
    for width in [0, 68, 1279] {
        let report = report(icmpv6::kind::PACKET_TOO_BIG, 0, width, &quoted[..100]);
        assert_eq!(world.take(Side::Inside, &report), Err(R::LocalUnsupported));
    }
    assert_eq!(world.take(Side::Outside, &large).expect("a packet").2, None);
}

#[test]
fn the_end_of_the_tunnels_answers_an_echo_request() {
    let mut world = World::new();
    let mut request = vec![128, 0, 0, 0, 0, 1, 0, 2];
    let start = pseudo_header_v6(address(B4), address(AFTR), 58, 8);
    let total = !fold(sum(&request, start));
    request[2..4].copy_from_slice(&total.to_be_bytes());
    let (side, bytes, _) = world.take(Side::Inside, &six(B4, 58, &request)).expect("a reply");
    let header = Ipv6::new_checked(&bytes[..]).expect("a packet");
    assert_eq!((side, header.destination()), (Side::Inside, address(B4)));
    let message = Icmpv6::new_checked(header.payload()).expect("a message");
    assert!(message.kind() == 129 && message.checksum_valid(header.source(), address(B4)));
}

#[test]
fn icmp_errors_pass_both_ways() {
    let mut world = World::new();
    let inner = udp((HOST, REMOTE), (5000, 53), &[1, 2, 3]);
    let left = world.leave(B4, &inner);
    // From outside, about a packet that left.
    let router = [198, 51, 100, 1];
    let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &left].concat();
    let (b4, error) = world.enter(&icmp((router, EXTERNAL), &message));
    let header = Ipv4::new_checked(&error[..]).expect("a packet");
    assert_eq!((b4.as_str(), checksum(header.payload())), (B4, 0));
    assert_eq!(error[12..20], [198, 51, 100, 1, 192, 168, 1, 2]);
    assert_eq!(error[28..], after_hop(inner)[..]);
    // From a router behind the B4, about an answer. The router needs no number.
    let (_, arrived) = world.enter(&answer(&left, &[9; 40]));
    let message = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &arrived].concat();
    let error = world.leave(B4, &icmp(([192, 168, 1, 1], REMOTE), &message));
    let header = Ipv4::new_checked(&error[..]).expect("a packet");
    assert_eq!((header.source(), checksum(header.payload())), (u32::from_be_bytes(EXTERNAL), 0));
    assert_eq!(error[28..], after_hop(answer(&left, &[9; 40]))[..]);
    assert_eq!(world.hosts(), (1, 1));
    // The same error from another B4 is about nothing.
    let message = icmp((HOST, REMOTE), &[&[3, 3, 0, 0, 0, 0, 0, 0][..], &arrived].concat());
    let taken = world.take(Side::Inside, &tunneled(OTHER_B4, &message));
    assert_eq!(taken, Err(R::IcmpNoSession));
}

#[test]
fn errors_of_the_gateways_own_go_into_the_tunnel() {
    let mut world = World::new();
    let inner = udp((HOST, REMOTE), (5000, 53), &[1, 2, 3]);
    let inner = with_field(inner, |header| header.set_ttl(1));
    assert_eq!(world.take(Side::Inside, &tunneled(B4, &inner)), Err(R::TtlExceeded));
    let (side, bytes) = world.made().expect("an error");
    let (b4, error) = open(&bytes);
    assert_eq!((side, b4.as_str()), (Side::Inside, B4));
    assert_eq!(error[12..20], [192, 0, 0, 1, 192, 168, 1, 2]);
    assert_eq!((error[20], error[21], checksum(&error[20..])), (11, 0, 0));
    assert_eq!(error[28..], inner[..]);
}

//= test rfc6333#section-6.3-reassemble
#[test]
fn fragments_of_tunnel_packets_are_put_together() {
    let mut world = World::new();
    let inner = udp((HOST, REMOTE), (5000, 53), &[6; 1460]);
    let fragments = [(0, 800, true), (800, inner.len(), false)].map(|(from, to, more)| {
        let field = (from as u16 | u16::from(more)).to_be_bytes();
        let header = [IPV4, 0, field[0], field[1], 0, 0, 0, 9];
        six(B4, 44, &[&header[..], &inner[from..to]].concat())
    });
    assert!(world.take(Side::Inside, &fragments[1]).is_err());
    assert_eq!(world.queued(), None);
    assert!(world.take(Side::Inside, &fragments[0]).is_err());
    let (side, left) = world.queued().expect("a packet");
    let expected = udp((EXTERNAL, REMOTE), (port_at(&left, 0), 53), &[6; 1460]);
    assert_eq!((side, left), (Side::Outside, after_hop(expected)));
    assert_eq!(world.packets(), 2);
}

#[test]
fn fragments_wait_for_their_time_and_are_ipv4_alone() {
    let mut world = World::new();
    let inner = udp((HOST, REMOTE), (5000, 53), &[6; 1460]);
    let fragment = |next: u8, from: usize, to: usize| {
        let field = (from as u16 | u16::from(to < inner.len())).to_be_bytes();
        let header = [next, 0, field[0], field[1], 0, 0, 0, 9];
        six(B4, 44, &[&header[..], &inner[from..to]].concat())
    };
    assert!(world.take(Side::Inside, &fragment(IPV4, 0, 800)).is_err());
    // The time is over, though nothing has looked at the clock since.
    world.now = Timestamp(world.now.0 + 2 * SECOND);
    let late = fragment(IPV4, 800, inner.len());
    assert_eq!(world.take(Side::Inside, &late), Err(R::FragmentUnmatched));
    assert_eq!(world.queued(), None);
    // Options between the fragment header and the IPv4 packet: more than IPv4 is in the tunnel.
    let options = [&[IPV4, 0, 1, 4, 0, 0, 0, 0][..], &inner[..64]].concat();
    let first = six(B4, 44, &[&[60, 0, 0, 1, 0, 0, 0, 9][..], &options].concat());
    assert_eq!(world.take(Side::Inside, &first), Err(R::LocalUnsupported));
}

#[test]
fn fragments_of_inner_packets_keep_their_cuts() {
    let mut world = World::new();
    let whole = udp((HOST, REMOTE), (5000, 53), &[6; 1000]);
    let cut = |whole: &[u8], from: usize, to: usize, more: bool| {
        let bytes = [&whole[..20], &whole[20 + from..20 + to]].concat();
        with_field(bytes, |header| {
            header.set_total_len(20 + (to - from) as u16);
            header.set_identification(77);
            header.set_fragment_field((from as u16 / 8) | u16::from(more) << 13);
        })
    };
    let first = world.leave(B4, &cut(&whole, 0, 600, true));
    let second = world.leave(B4, &cut(&whole, 600, 1008, false));
    let expected = udp((EXTERNAL, REMOTE), (port_at(&first, 0), 53), &[6; 1000]);
    let payload = [&first[20..], &second[20..]].concat();
    assert_eq!(payload, expected[20..]);
    // The second fragment of an answer comes first, and waits in the engine.
    let reply = answer(&first, &[8; 1000]);
    assert!(world.take(Side::Outside, &cut(&reply, 600, 1008, false)).is_err());
    let (_, start) = world.enter(&cut(&reply, 0, 600, true));
    let (side, later) = world.made().expect("the fragment");
    let (b4, later) = open(&later);
    assert_eq!((side, b4.as_str()), (Side::Inside, B4));
    let expected = udp((REMOTE, HOST), (53, 5000), &[8; 1000]);
    assert_eq!([&start[20..], &later[20..]].concat(), expected[20..]);
}

#[test]
fn a_subscriber_has_256_hosts_and_hosts_without_mappings_lose_their_numbers() {
    let mut world = World::with(|config, _| config.limits.subscribers = Some(17));
    let inner = |host: u16, port| {
        let [high, low] = host.to_be_bytes();
        udp(([10, 0, high, low], REMOTE), (port, 53), &[1])
    };
    for host in 0..256 {
        world.leave(B4, &inner(host, 5000));
    }
    let taken = world.take(Side::Inside, &tunneled(B4, &inner(256, 5000)));
    assert_eq!(taken, Err(R::PortQuota));
    assert_eq!(world.refusal(B4), (1, [10, 0, 1, 0], inner(256, 5000)));
    for other in 0..16 {
        world.leave(&format!("2001:db8:b4:1::{other:x}"), &inner(256, 5000));
    }
    let third = tunneled("2001:db8:b4::3", &inner(0, 5000));
    assert_eq!(world.take(Side::Inside, &third), Err(R::MappingTableFull));
    assert_eq!(world.refusal("2001:db8:b4::3"), (1, [10, 0, 0, 0], inner(0, 5000)));
    assert_eq!(world.hosts(), (272, 17));
    // Hosts without mappings lose their numbers.
    world.wait(900);
    assert_eq!(world.hosts(), (0, 0));
    assert!(world.take(Side::Inside, &third).is_ok());
}

#[test]
fn a_host_without_a_number_is_answered_as_a_host_without_a_port_is() {
    use natgate_engine::Refusal;
    for (refusal, code) in [(Refusal::Prohibited, Some(13)), (Refusal::Silent, None)] {
        let mut world = World::with(|config, _| {
            config.refusal = refusal;
            config.limits.subscribers = Some(1);
        });
        let packet = udp((HOST, REMOTE), (5000, 53), &[1]);
        world.leave(B4, &packet);
        let taken = world.take(Side::Inside, &tunneled(OTHER_B4, &packet));
        assert_eq!(taken, Err(R::MappingTableFull));
        match code {
            Some(code) => assert_eq!(world.refusal(OTHER_B4), (code, HOST, packet)),
            None => assert_eq!(world.queued(), None),
        }
    }
}

#[test]
fn a_tunnel_that_provokes_errors_leaves_others_theirs() {
    let mut world = World::with(|config, _| config.limits.subscribers = Some(1));
    let packet = udp((HOST, REMOTE), (5000, 53), &[1]);
    world.leave("2001:db8:b4:99::1", &packet);
    // Customers may differ in any bits of their networks.
    let mut answers = |b4: &str| {
        (0..1000)
            .filter(|_| {
                let taken = world.take(Side::Inside, &tunneled(b4, &packet));
                taken == Err(R::MappingTableFull) && world.queued().is_some()
            })
            .count()
    };
    let first = answers("2001:db8:b4:1::1");
    assert!((1..1000).contains(&first));
    for other in ["2001:db8:b4:1001::1", "2001:db8:b4:2::1"] {
        assert_eq!(answers(other), first, "{other}");
    }
}

#[test]
fn a_quota_counts_all_hosts_of_a_subscriber() {
    let mut world = World::with(|config, _| config.limits.udp_ports = 3);
    let inner = |host: u8| udp(([10, 0, 0, host], REMOTE), (5000, 53), &[1]);
    for host in 1..=3 {
        world.leave(B4, &inner(host));
    }
    assert_eq!(world.take(Side::Inside, &tunneled(B4, &inner(4))), Err(R::PortQuota));
    world.leave(OTHER_B4, &inner(4));
    world.translator.sweep(&world.engine, world.now);
    assert_eq!(world.hosts(), (4, 2));
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

//= test rfc7785#section-4-contexts
#[test]
fn a_quota_counts_a_prefix_if_the_subscriber_is_one() {
    let mut world = of_prefixes();
    let send = |world: &mut World, b4: &str, host: u8, port| {
        let ends = ([192, 168, 1, host], REMOTE);
        world.take(Side::Inside, &tunneled(b4, &udp(ends, (port, 53), b"x")))
    };
    for (b4, host) in [(MOVING[0], 1), (MOVING[0], 2), (MOVING[1], 3), (MOVING[1], 4)] {
        assert!(send(&mut world, b4, host, 4000).is_ok(), "{b4} {host}");
    }
    assert_eq!(send(&mut world, MOVING[1], 5, 4000), Err(R::PortQuota));
    assert!(send(&mut world, MOVING[2], 5, 4000).is_ok());
    let [first, other] = [MOVING[1], MOVING[2]].map(|b4| b4.parse().expect("an address"));
    let inner = Ipv4Addr::new(192, 168, 1, 1);
    let number = world.translator.number_behind(first, inner).expect("a host");
    let name = world.translator.host(world.realm(), number);
    let name = name.expect("a name");
    assert_eq!((name.prefix.to_string(), name.len), ("2001:db8:b4:100::".to_owned(), 56));
    // Each address of the prefix names the subscriber.
    let numbers = |prefix, len| world.translator.numbers(HostKind::Dslite, prefix, len);
    assert_eq!(numbers(first, 128), numbers(name.prefix, 56));
    assert_ne!(numbers(other, 128), numbers(first, 128));
}

//= test rfc7785#section-4-migrate
//= test rfc7785#section-4-softwires
//= test rfc7785#section-4-rate
#[test]
fn hosts_move_to_the_tunnel_of_the_last_packet_and_not_too_often() {
    let mut world = of_prefixes();
    let packet = |port| udp((HOST, REMOTE), (port, 53), b"x");
    let left = world.leave(MOVING[0], &packet(4000));
    assert_eq!(world.enter(&answer(&left, b"y")).0, MOVING[0]);
    // The first change is free; the mapping moves too.
    world.leave(MOVING[1], &packet(4001));
    assert_eq!(world.enter(&answer(&left, b"y")).0, MOVING[1]);
    assert_eq!(world.leave(MOVING[1], &packet(4000)), left);
    // The next change has to wait, and changes nothing.
    let early = world.take(Side::Inside, &tunneled(MOVING[0], &packet(4000)));
    assert_eq!(early, Err(R::SoftwireSource));
    assert_eq!(world.enter(&answer(&left, b"y")).0, MOVING[1]);
    world.now = Timestamp(world.now.0 + 1_800_000_000_000);
    let later = world.leave(MOVING[0], &packet(4002));
    assert_eq!(world.enter(&answer(&later, b"y")).0, MOVING[0]);
    // Hosts that another process takes over keep the tunnel.
    let carried: Vec<_> = world.translator.carried_hosts().collect();
    assert!(carried.iter().all(|host| host.address == address(MOVING[0])), "{carried:?}");
    // Another subscriber is another one.
    world.leave(MOVING[2], &packet(4000));
    assert_eq!(world.enter(&answer(&later, b"y")).0, MOVING[0]);
}

/// A world with a static mapping of a host behind the first B4 of a prefix, and a packet to it.
fn with_server_of_prefix(interval: u64) -> (World, Vec<u8>) {
    let hosts = [(address(MOVING[0]).into(), HOST.into())];
    let hosts = StaticHost::first_behind(&hosts, 56, 1);
    let number = hosts[0].number;
    let external = (Ipv4Addr::from(EXTERNAL), Some(80));
    let world = World::with(|config, dslite| {
        dslite.subscriber_length = 56;
        dslite.b4_change_interval = Duration::from_secs(interval);
        dslite.static_hosts.clone_from(&hosts);
        config.statics = vec![StaticMapping {
            realm: 1,
            protocol: Some(17),
            internal: (number, Some(80)),
            external,
            ..StaticMapping::default()
        }];
    });
    (world, udp((REMOTE, EXTERNAL), (53, 80), b"y"))
}

/// A host of a static mapping is reached before it has sent anything, and moves like any other.
#[test]
fn hosts_of_static_mappings_move_too() {
    let (mut world, inward) = with_server_of_prefix(0);
    assert_eq!(world.enter(&inward).0, MOVING[0]);
    world.leave(MOVING[1], &udp((HOST, REMOTE), (4000, 53), b"x"));
    assert_eq!(world.enter(&inward).0, MOVING[1]);
    world.wait(600);
    assert_eq!((world.enter(&inward).0.as_str(), world.hosts()), (MOVING[1], (1, 1)));
}

/// The B4 that a static mapping names gets its tunnel back with its next packet.
#[test]
fn a_b4_of_a_static_mapping_returns_without_waiting() {
    let (mut world, inward) = with_server_of_prefix(1800);
    let packet = udp((HOST, REMOTE), (4000, 53), b"x");
    let early = Err(R::SoftwireSource);
    for _ in 0..2 {
        world.leave(MOVING[1], &packet);
        assert_eq!(world.enter(&inward).0, MOVING[1]);
        world.leave(MOVING[0], &packet);
        assert_eq!(world.enter(&inward).0, MOVING[0]);
        // Others have to wait from then on.
        world.now = Timestamp(world.now.0 + 1799 * SECOND);
        assert_eq!(world.take(Side::Inside, &tunneled(MOVING[1], &packet)), early);
        world.now = Timestamp(world.now.0 + SECOND);
    }
    // Without the mapping it is a B4 like any other.
    world.translator.keep(&[]);
    world.leave(MOVING[1], &packet);
    assert_eq!(world.take(Side::Inside, &tunneled(MOVING[0], &packet)), early);
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

#[test]
fn remote_hosts_reach_static_mappings_before_their_hosts_have_sent_anything() {
    let mut world = with_servers();
    world.wait(1000);
    assert_eq!(world.hosts(), (2, 2));
    for (b4, port) in [(B4, 80), (OTHER_B4, 81)] {
        let (to, inner) = world.enter(&udp((REMOTE, EXTERNAL), (5000, port), b"question"));
        assert_eq!((to.as_str(), &inner[16..20], &inner[22..24]), (b4, &HOST[..], &[31, 144][..]));
        let left = world.leave(b4, &udp((HOST, REMOTE), (8080, 5000), b"answer"));
        assert_eq!((&left[12..16], &left[20..22]), (&EXTERNAL[..], &port.to_be_bytes()[..]));
    }
    // Another host's packets from that port are its own.
    let other = [192, 168, 1, 3];
    let left = world.leave(B4, &udp((other, REMOTE), (8080, 5000), b"other"));
    assert_ne!(left[20..22], [0, 80]);
}

#[test]
fn a_request_for_a_mapping_is_the_callers_and_gives_no_number() {
    let mut world = World::new();
    let own = [192, 0, 0, 1];
    let request = tunneled(B4, &udp((HOST, own), (4000, 5351), b"request"));
    assert_eq!(world.take(Side::Inside, &request), Err(R::LocalUnsupported));
    assert_eq!(world.hosts(), (0, 0));
    let found = world.translator.tunneled_request(&request).expect("a request");
    assert_eq!((found.b4.to_string(), found.end.to_string()), (B4.into(), AFTR.into()));
    assert_eq!((found.asked, found.packet), (own.into(), &request[40..]));
    // A run of packets goes the same way.
    let inner = |ends: Ends| udp(ends, (4000, 5351), b"request");
    let mut buffers: Vec<Vec<u8>> = [inner((HOST, REMOTE)), inner((HOST, own))]
        .iter()
        .map(|inner| [vec![0; ROOM], tunneled(B4, inner)].concat())
        .collect();
    let mut packets: Vec<Packet<'_>> =
        buffers.iter_mut().map(|buffer| Packet::new(buffer, ROOM)).collect();
    let World { translator, engine, now } = &mut world;
    let mut fates = [Fate::Nothing; 2];
    let count = translator.take_some(engine, *now, Side::Inside, &mut packets, &mut fates);
    assert_eq!(count, 1, "the request must be alone");
    translator.sweep(engine, *now);
    translator.take_some(engine, *now, Side::Inside, &mut packets[1..], &mut fates);
    assert_eq!(fates[0], Fate::Local);
    assert!(translator.tunneled_request(packets[1].bytes()).is_some(), "it is as it came");
}

#[test]
fn what_is_no_request_for_a_mapping() {
    let mut world = World::new();
    let own = [192, 0, 0, 1];
    let good = udp((HOST, own), (4000, 5351), b"request");
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        let sum = {
            bytes[10..12].fill(0);
            checksum(&bytes[..20])
        };
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let others = [
        ("another port", tunneled(B4, &udp((HOST, own), (4000, 5352), b"request"))),
        ("another address", tunneled(B4, &udp((HOST, REMOTE), (4000, 5351), b"request"))),
        ("no B4", tunneled("2001:db8:bad::1", &good)),
        ("no inner host", tunneled(B4, &udp(([198, 51, 100, 9], own), (4000, 5351), b"request"))),
        ("the gateway itself", tunneled(B4, &udp((own, own), (4000, 5351), b"request"))),
        ("a fragment", tunneled(B4, &with(6, 0x20))),
        ("TCP", tunneled(B4, &with(9, 6))),
        (
            "a length beyond the packet",
            tunneled(B4, &{
                let mut bytes = good.clone();
                bytes[25] = 200;
                bytes
            }),
        ),
    ];
    for (name, packet) in others {
        assert_eq!(world.translator.tunneled_request(&packet), None, "{name}");
        let _ = world.take(Side::Inside, &packet);
    }
    for len in 0..40 + good.len() {
        let whole = tunneled(B4, &good);
        assert_eq!(world.translator.tunneled_request(&whole[..len]), None, "{len} bytes");
    }
}
