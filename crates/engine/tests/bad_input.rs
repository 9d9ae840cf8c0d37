//! Packets that nobody should send: each is dropped under its own reason, and that is all that
//! happens. No byte of it changes, no mapping, session, timer or port is touched, no event is raised
//! and nobody is answered (sections 2 to 6 of the specification).
//!
//! The tables name the fault and the reason. The engine that they run against has live mappings of
//! every kind, so that there is something to damage, and translates as before afterwards. The end of
//! the file turns random bytes, and good packets with random faults, into the same checks.

mod common;

use common::*;
use natgate_engine::{
    Config, Counters, Direction, DropReason, MappingInfo, Outcome, Packet, PoolUsage, SessionInfo,
    Side, StaticMapping, Timestamp, Verdict,
};
use natgate_wire::{Icmp, Ipv4, protocol};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const INNER: &str = "10.0.0.5:4000";
const SIDES: [Side; 2] = [Side::Inside, Side::Outside];
/// IP protocols whose pools are watched.
const POOLED: [u8; 3] = [protocol::ICMP, protocol::TCP, protocol::UDP];

/// Everything that a packet could have touched.
#[derive(Clone, Debug, PartialEq)]
struct State {
    mappings: Vec<MappingInfo>,
    sessions: Vec<SessionInfo>,
    usage: [PoolUsage; 3],
    next_deadline: Option<Timestamp>,
    events: usize,
    sent: usize,
}

/// An engine with live mappings, and the external endpoints of each.
struct World {
    lab: Lab,
    udp: String,
    tcp: String,
    ping: u16,
}

impl World {
    fn new() -> Self {
        let mut lab = Lab::new(&Config {
            statics: vec![StaticMapping {
                protocol: Some(protocol::TCP),
                internal: (Ipv4Addr::new(10, 0, 0, 80), Some(8080)),
                external: (Ipv4Addr::new(203, 0, 113, 9), Some(80)),
                ..StaticMapping::default()
            }],
            // Few ports, for every look at the state takes all mappings that there could be.
            pools: vec![pool("203.0.113.1", "203.0.113.1", (1024, 1279))],
            ..config()
        });
        let udp_external = lab.external_of(&udp(INNER, REMOTE));
        let tcp_external = lab.external_of(&tcp(INNER, REMOTE, "S", 100, 0));
        lab.inward(&tcp(REMOTE, &tcp_external, "SA", 500, 101));
        let out = lab.out(&ping("10.0.0.5", "198.51.100.7", 77));
        let identifier = u16::from_be_bytes([out[24], out[25]]);
        // From here on a timer that starts afresh shows.
        lab.wait_s(1.0);
        lab.events.clear();
        Self { lab, udp: udp_external, tcp: tcp_external, ping: identifier }
    }

    fn state(&self) -> State {
        let engine = &self.lab.engine;
        let mut mappings: Vec<_> = engine.mappings().collect();
        mappings.sort_by_key(|mapping| (mapping.id.protocol, mapping.id.external));
        let mut sessions: Vec<_> = engine.sessions().collect();
        sessions.sort_by_key(|session| {
            (session.mapping.protocol, session.mapping.external, session.remote)
        });
        State {
            mappings,
            sessions,
            usage: POOLED.map(|protocol| engine.pool_usage(0, protocol)),
            next_deadline: engine.next_deadline(),
            events: self.lab.events.len(),
            sent: self.lab.sent.len(),
        }
    }

    /// A good packet of the UDP session, from a side.
    fn good(&self, from: Side) -> Vec<u8> {
        match from {
            Side::Inside => udp(INNER, REMOTE),
            Side::Outside => udp(REMOTE, &self.udp),
        }
    }

    /// A good packet of the TCP session, from a side.
    fn good_tcp(&self, from: Side) -> Vec<u8> {
        match from {
            Side::Inside => tcp(INNER, REMOTE, "A", 101, 501),
            Side::Outside => tcp(REMOTE, &self.tcp, "A", 501, 101),
        }
    }

    /// A good query of the ICMP session from inside, a good reply from outside.
    fn good_ping(&self, from: Side) -> Vec<u8> {
        match from {
            Side::Inside => ping("10.0.0.5", "198.51.100.7", 77),
            Side::Outside => {
                let [high, low] = self.ping.to_be_bytes();
                icmp("198.51.100.7", "203.0.113.1", 0, 0, &[high, low, 0, 1, b'x'])
            }
        }
    }

    /// A good ICMP error about the UDP session, from a side, with what it embeds changed.
    fn error(&self, from: Side, kind: u8, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut about = match from {
            Side::Inside => udp(REMOTE, INNER),
            Side::Outside => udp(&self.udp, REMOTE),
        };
        change(&mut about);
        match from {
            Side::Inside => error("10.0.0.5", "198.51.100.7", kind, 0, &about),
            Side::Outside => error("192.0.2.1", "203.0.113.1", kind, 0, &about),
        }
    }

    /// Feeds a packet that must be dropped for `reason` and leave no trace but one count.
    fn refuse(&mut self, name: &str, from: Side, bytes: &[u8], reason: DropReason) {
        let context = format!("{name}, from {from:?}");
        let (state, counters) = (self.state(), self.lab.engine.counters().clone());
        // Bytes of the caller's around the packet stay the caller's.
        let mut buffer = [&[0xee; 6][..], bytes].concat();
        let mut packets = [Packet::new(&mut buffer, 6)];
        let mut verdicts = [Verdict::Held];
        self.lab.engine.process(self.lab.now, from, &mut packets, &mut verdicts);
        let received = packets[0].len();
        assert_eq!(verdicts[0], Verdict::Drop(reason), "{context}");
        assert_eq!(buffer, [&[0xee; 6][..], bytes].concat(), "{context}: bytes changed");
        self.lab.wait_s(0.0);
        assert_eq!(self.state(), state, "{context}: state changed");
        let counted = self.lab.engine.counters();
        assert_eq!(*counted, expected_count(counters, counted, reason, received), "{context}");
    }

    /// As [`World::refuse`], from both sides, of a packet that is made for each.
    fn refuse_both(
        &mut self,
        name: &str,
        reason: DropReason,
        make: impl Fn(&Self, Side) -> Vec<u8>,
    ) {
        for side in SIDES {
            let bytes = make(self, side);
            self.refuse(name, side, &bytes, reason);
        }
    }

    /// Feeds a packet that must be forwarded to the other side, and returns it as it left.
    fn forward(&mut self, name: &str, from: Side, bytes: &[u8]) -> Vec<u8> {
        let (verdict, after) = self.lab.pass(from, bytes);
        assert_eq!(verdict, Verdict::Forward(from.other()), "{name}, from {from:?}");
        after
    }

    /// All sessions still translate, and nothing that was refused is answered late.
    fn finish(mut self) {
        for side in SIDES {
            for bytes in [self.good(side), self.good_tcp(side), self.good_ping(side)] {
                ends(&self.forward("afterwards", side, &bytes));
            }
        }
        self.lab.wait_s(7.0);
        assert_eq!((self.lab.sent.len(), self.lab.events.len()), (0, 0));
    }
}

/// The counters with one more drop, of whatever direction it was counted in.
fn expected_count(
    mut before: Counters,
    after: &Counters,
    reason: DropReason,
    len: usize,
) -> Counters {
    let more = |direction: &&Direction| {
        let at = (**direction as usize, Outcome::Dropped as usize);
        after.packets[at.0][at.1] > before.packets[at.0][at.1]
    };
    let direction = *Direction::ALL.iter().find(more).expect("a drop is counted");
    before.packets[direction as usize][Outcome::Dropped as usize] += 1;
    before.bytes[direction as usize][Outcome::Dropped as usize] += len as u64;
    before.drops[reason as usize] += 1;
    before
}

// ---- making faults ----

/// A copy with one byte replaced, the header checksum set right again.
fn with(bytes: &[u8], at: usize, value: u8) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    changed[at] = value;
    sealed(changed)
}

/// The packet with its header checksum right, if it has a header.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Ok(mut packet) = Ipv4::new_header_checked(&mut bytes[..]) {
        packet.fill_checksum();
    }
    bytes
}

/// The packet with its ICMP and header checksums right.
fn sealed_icmp(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Ok(mut packet) = Ipv4::new_checked(&mut bytes[..])
        && let Some(mut message) = Icmp::new_checked(packet.payload_mut())
    {
        message.fill_checksum();
    }
    sealed(bytes)
}

/// The packet cut to `len` bytes, which its total length then admits to.
fn shortened(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut short = bytes[..len].to_vec();
    short[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    sealed(short)
}

/// The packet with IP options, of whole words.
fn with_options(bytes: &[u8], options: &[u8]) -> Vec<u8> {
    let mut long = [&bytes[..20], options, &bytes[20..]].concat();
    long[0] += (options.len() / 4) as u8;
    let total_len = long.len() as u16;
    long[2..4].copy_from_slice(&total_len.to_be_bytes());
    sealed(long)
}

fn with_addresses(bytes: &[u8], source: Option<u32>, destination: Option<u32>) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let mut packet = Ipv4::new_checked(&mut changed[..]).unwrap();
    packet.set_source(source.unwrap_or(packet.source()));
    packet.set_destination(destination.unwrap_or(packet.destination()));
    sealed(changed)
}

fn address(text: &str) -> u32 {
    endpoint(text).0
}

// ---- section 2 ----

#[test]
fn packets_cut_at_any_length_have_a_bad_length() {
    let mut world = World::new();
    for side in SIDES {
        let options = with_options(&world.good(side), &[148, 4, 0, 0]);
        let error = world.error(side, 3, |_| {});
        for bytes in [world.good(side), world.good_tcp(side), world.good_ping(side), options, error]
        {
            for len in 0..bytes.len() {
                world.refuse(&format!("cut to {len}"), side, &bytes[..len], DropReason::BadLength);
            }
        }
    }
    world.finish();
}

#[test]
fn packets_whose_transport_header_is_cut_have_a_bad_length() {
    let mut world = World::new();
    for side in SIDES {
        // The least IP payload of each that can be translated: the UDP length says 13.
        for (bytes, least) in
            [(world.good(side), 13), (world.good_tcp(side), 20), (world.good_ping(side), 8)]
        {
            for payload in 0..least {
                let name = format!("{payload} bytes of protocol {}", bytes[9]);
                let short = shortened(&bytes, 20 + payload);
                world.refuse(&name, side, &short, DropReason::BadLength);
            }
        }
    }
    world.finish();
}

#[test]
fn headers_that_lie_about_versions_and_lengths() {
    let mut world = World::new();
    for version in (0..16).filter(|&version| version != 4) {
        world.refuse_both(&format!("version {version}"), DropReason::NotIpv4, |world, side| {
            with(&world.good(side), 0, version << 4 | 5)
        });
    }
    for words in (0..5).chain([9, 15]) {
        // Nine words are 36 bytes of a packet of 33.
        world.refuse_both(&format!("{words} words"), DropReason::BadLength, |world, side| {
            with(&world.good(side), 0, 0x40 | words)
        });
    }
    for total_len in [0, 1, 19, 34, 1500, 65_535_u16] {
        let name = format!("total length {total_len}");
        world.refuse_both(&name, DropReason::BadLength, |world, side| {
            let mut bytes = world.good(side);
            bytes[2..4].copy_from_slice(&total_len.to_be_bytes());
            sealed(bytes)
        });
    }
    world.finish();
}

#[test]
fn bytes_after_the_total_length_are_cut_off() {
    let mut world = World::new();
    for side in SIDES {
        let good = world.good(side);
        for more in [1, 13, 1000] {
            let after = world.forward("more bytes", side, &[&good[..], &vec![0xff; more]].concat());
            assert_eq!(after.len(), good.len());
            ends(&after);
        }
    }
    world.finish();
}

#[test]
fn a_wrong_header_checksum_is_seen_whatever_bit_is_wrong() {
    let mut world = World::new();
    // Version and lengths, which are looked at before, have their own test.
    for at in (0..20).filter(|at| !matches!(at, 0 | 2 | 3)) {
        for bit in 0..8 {
            let name = format!("bit {bit} of byte {at}");
            world.refuse_both(&name, DropReason::BadHeaderChecksum, |world, side| {
                let mut bytes = world.good(side);
                bytes[at] ^= 1 << bit;
                bytes
            });
        }
    }
    world.finish();
}

#[test]
fn source_routes_and_broken_options_are_dropped() {
    let mut world = World::new();
    let cases: [(&str, &[u8], DropReason); 9] = [
        ("loose", &[131, 7, 4, 198, 51, 100, 7, 0], DropReason::SourceRoute),
        ("strict", &[137, 7, 4, 198, 51, 100, 7, 0], DropReason::SourceRoute),
        ("already used up", &[131, 3, 4, 0], DropReason::SourceRoute),
        ("behind padding", &[1, 1, 1, 137, 3, 4, 0, 0], DropReason::SourceRoute),
        ("behind a record route", &[7, 7, 4, 0, 0, 0, 0, 131, 3, 4, 0, 0], DropReason::SourceRoute),
        ("length zero", &[7, 0, 4, 0], DropReason::BadOptions),
        ("length one", &[7, 1, 4, 0], DropReason::BadOptions),
        ("past the header", &[1, 7, 4, 0], DropReason::BadOptions),
        ("no length", &[1, 1, 1, 7], DropReason::BadOptions),
    ];
    for (name, options, reason) in cases {
        world.refuse_both(name, reason, |world, side| with_options(&world.good(side), options));
    }
    world.finish();
}

#[test]
fn other_options_pass_unchanged() {
    let mut world = World::new();
    for options in [
        &[0, 0, 0, 0][..],
        &[1, 1, 1, 1],
        &[148, 4, 0, 0],
        &[7, 7, 4, 0, 0, 0, 0, 0],
        &[68, 8, 5, 0, 0, 0, 0, 0],
        &[0, 131, 3, 4],
        &[1; 40],
    ] {
        for side in SIDES {
            let sent = with_options(&world.good(side), options);
            let after = world.forward(&format!("{options:?}"), side, &sent);
            assert_eq!(&after[20..20 + options.len()], options);
            assert!(Ipv4::new_checked(&after[..]).unwrap().checksum_valid());
        }
    }
    world.finish();
}

#[test]
fn martians_and_land_are_dropped() {
    let mut world = World::new();
    for martian in [
        "0.0.0.0",
        "0.1.2.3",
        "0.255.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        let martian_bits = Some(address(martian));
        world.refuse_both(&format!("{martian} >"), DropReason::MartianSource, |world, side| {
            with_addresses(&world.good(side), martian_bits, None)
        });
        world.refuse_both(
            &format!("> {martian}"),
            DropReason::MartianDestination,
            |world, side| with_addresses(&world.good(side), None, martian_bits),
        );
    }
    for same in ["10.0.0.5", "198.51.100.7", "203.0.113.1", "192.0.2.254", "10.0.0.1"] {
        world.refuse_both(same, DropReason::Land, |world, side| {
            with_addresses(&world.good_tcp(side), Some(address(same)), Some(address(same)))
        });
    }
    world.finish();
}

#[test]
fn neighbours_of_martians_are_ordinary() {
    let mut world = World::new();
    for ordinary in ["1.0.0.0", "126.255.255.255", "128.0.0.0", "223.255.255.255"] {
        let sent = with_addresses(&world.good(Side::Inside), None, Some(address(ordinary)));
        world.forward(ordinary, Side::Inside, &sent);
        let sent = with_addresses(&world.good(Side::Outside), Some(address(ordinary)), None);
        world.forward(ordinary, Side::Outside, &sent);
    }
}

#[test]
fn transport_headers_that_lie_have_a_bad_length() {
    let mut world = World::new();
    // The segment has 20 bytes.
    for words in (0..5).chain([6, 15]) {
        world.refuse_both(&format!("{words} words"), DropReason::BadLength, |world, side| {
            with(&world.good_tcp(side), 32, words << 4)
        });
    }
    // The datagram has 13 bytes.
    for length in (0..8).chain([14, 21, 1480, 65_535_u16]) {
        let name = format!("UDP length {length}");
        world.refuse_both(&name, DropReason::BadLength, |world, side| {
            let mut bytes = world.good(side);
            bytes[24..26].copy_from_slice(&length.to_be_bytes());
            bytes
        });
    }
    // Bytes between the datagram's end and the packet's are nobody's business.
    for side in SIDES {
        let short = with(&world.good(side), 25, 8);
        world.forward("UDP length 8", side, &short);
    }
    world.finish();
}

#[test]
fn the_first_fault_gives_the_reason() {
    let mut world = World::new();
    // A packet with every fault; each step mends the one that was named.
    let mut bytes = shortened(&with_options(&world.good(Side::Outside), &[131, 9, 1, 1]), 28);
    bytes[0] = 0x66;
    bytes[12] = 127;
    bytes[16] = 240;
    let mut refuse = |bytes: &[u8], reason: DropReason| {
        for side in SIDES {
            world.refuse(reason.name(), side, bytes, reason);
        }
    };
    refuse(&bytes, DropReason::NotIpv4);
    bytes[0] = 0x46;
    refuse(&bytes[..27], DropReason::BadLength);
    refuse(&bytes, DropReason::BadHeaderChecksum);
    bytes = sealed(bytes);
    refuse(&bytes, DropReason::SourceRoute);
    bytes = with(&bytes, 20, 7);
    refuse(&bytes, DropReason::BadOptions);
    bytes = with(&bytes, 21, 4);
    refuse(&bytes, DropReason::MartianSource);
    bytes = with(&bytes, 12, 10);
    refuse(&bytes, DropReason::MartianDestination);
    let source: [u8; 4] = bytes[12..16].try_into().unwrap();
    bytes[16..20].copy_from_slice(&source);
    bytes = sealed(bytes);
    refuse(&bytes, DropReason::Land);
    // Behind the options there are four bytes of UDP.
    bytes = with_addresses(&bytes, Some(address("10.0.0.1")), Some(address("203.0.113.1")));
    refuse(&bytes, DropReason::BadLength);
    let whole = with_addresses(&udp(INNER, &world.udp), Some(address("10.0.0.1")), None);
    for side in SIDES {
        world.refuse("spoofed", side, &whole, DropReason::SpoofedSource);
    }
    world.finish();
}

// ---- sections 3 and 4: who may send to whom ----

#[test]
fn own_and_external_addresses_are_no_sources() {
    let mut world = World::new();
    for source in ["10.0.0.1", "192.0.2.254", "203.0.113.1", "203.0.113.9"] {
        world.refuse_both(source, DropReason::SpoofedSource, |world, side| {
            // Not to itself, which would be something else.
            let to = if source == "203.0.113.1" { "203.0.113.9" } else { "203.0.113.1" };
            with_addresses(&world.good(side), Some(address(source)), Some(address(to)))
        });
    }
    world.finish();
}

#[test]
fn packets_between_the_wrong_parties_are_dropped() {
    let mut world = World::new();
    let cases = [
        ("no subscriber", Side::Inside, "9.9.9.9:1", REMOTE, DropReason::NotSubscriber),
        ("its own network", Side::Inside, INNER, "10.0.0.6:1", DropReason::SameSide),
        (
            "the gateway, from inside",
            Side::Inside,
            INNER,
            "10.0.0.1:53",
            DropReason::LocalUnsupported,
        ),
        ("its far side", Side::Inside, INNER, "192.0.2.254:53", DropReason::LocalUnsupported),
        ("the gateway", Side::Outside, REMOTE, "192.0.2.254:53", DropReason::LocalUnsupported),
        ("a subscriber", Side::Outside, REMOTE, INNER, DropReason::NotForUs),
        ("its inner side", Side::Outside, REMOTE, "10.0.0.1:53", DropReason::NotForUs),
        ("another network", Side::Outside, REMOTE, "192.0.2.9:1", DropReason::NotForUs),
        ("an unused port", Side::Outside, REMOTE, "203.0.113.1:1023", DropReason::NoMapping),
        ("an unused static port", Side::Outside, REMOTE, "203.0.113.9:81", DropReason::NoMapping),
    ];
    for (name, side, from, to, reason) in cases {
        world.refuse(name, side, &udp(from, to), reason);
        world.refuse(name, side, &tcp(from, to, "SA", 1, 1), reason);
    }
    world.finish();
}

#[test]
fn the_gateway_answers_nothing_but_good_pings() {
    let mut world = World::new();
    for (side, from, to) in
        [(Side::Inside, "10.0.0.5", "10.0.0.1"), (Side::Outside, "192.0.2.9", "192.0.2.254")]
    {
        let request = ping(from, to, 7);
        // Fragments but the last have whole eights of payload.
        let padded = shortened(&[&request[..], &[0; 11]].concat(), 36);
        let cases = [
            ("wrong checksum", with(&request, 22, !request[22])),
            ("a fragment", with(&padded, 6, 0x20)),
            ("a reply", icmp(from, to, 0, 0, &[0; 4])),
            ("a timestamp request", icmp(from, to, 13, 0, &[0; 16])),
            ("an error", error(from, to, 3, 3, &world.good(side))),
        ];
        for (name, bytes) in cases {
            world.refuse(name, side, &bytes, DropReason::LocalUnsupported);
        }
    }
    world.finish();
}

#[test]
fn only_a_bare_syn_opens_a_connection() {
    let mut world = World::new();
    const LETTERS: [(u8, char); 5] = [(1, 'F'), (2, 'S'), (4, 'R'), (8, 'P'), (16, 'A')];
    for bits in 0..32_u8 {
        let flags: String =
            LETTERS.iter().filter(|(bit, _)| bits & bit != 0).map(|&(_, letter)| letter).collect();
        if bits & 0b10111 == 0b00010 {
            continue;
        }
        let external = world.tcp.clone();
        let cases = [
            ("no mapping", Side::Inside, "10.0.0.6:1", REMOTE, DropReason::TcpNotSyn),
            ("no session", Side::Inside, INNER, "192.0.2.9:1", DropReason::TcpNotSyn),
            ("no session", Side::Outside, "192.0.2.9:1", &external, DropReason::TcpNotSyn),
            ("static", Side::Outside, REMOTE, "203.0.113.9:80", DropReason::TcpNotSyn),
            ("no mapping", Side::Outside, REMOTE, "203.0.113.1:1023", DropReason::NoMapping),
        ];
        for (name, side, from, to, reason) in cases {
            world.refuse(&format!("{flags} {name}"), side, &tcp(from, to, &flags, 9, 9), reason);
        }
    }
    world.finish();
}

// ---- sections 3.7, 4.3 and 6: ICMP ----

#[test]
fn icmp_types_that_are_not_translated_are_dropped() {
    let mut world = World::new();
    let known = [0, 3, 4, 8, 11, 12, 13, 14];
    for kind in (0..=255).filter(|kind| !known.contains(kind)) {
        world.refuse_both(&format!("type {kind}"), DropReason::IcmpUnsupported, |world, side| {
            sealed_icmp(with(&world.good_ping(side), 20, kind))
        });
    }
    // A redirect looks like an error about a live session; it is none that a host may be told.
    world.refuse_both("redirect", DropReason::IcmpUnsupported, |world, side| {
        world.error(side, 5, |_| {})
    });
    world.finish();
}

#[test]
fn replies_need_a_mapping() {
    let mut world = World::new();
    for kind in [0, 14] {
        let reply = icmp("10.0.0.6", "198.51.100.7", kind, 0, &[0, 9, 0, 1]);
        world.refuse("reply from inside", Side::Inside, &reply, DropReason::NoMapping);
    }
    for kind in [0, 8, 13, 14] {
        let [high, low] = (world.ping ^ 1).to_be_bytes();
        let query = icmp("198.51.100.7", "203.0.113.1", kind, 0, &[high, low, 0, 1]);
        world.refuse("from outside", Side::Outside, &query, DropReason::NoMapping);
    }
    world.finish();
}

#[test]
fn cut_icmp_errors_are_dropped() {
    let mut world = World::new();
    for side in SIDES {
        for kind in [3, 4, 11, 12] {
            let whole = world.error(side, kind, |_| {});
            // Outer header 20, ICMP header 8, embedded header 20, embedded transport 8.
            for len in 20..56 {
                let reason = match len {
                    20..28 => DropReason::BadLength,
                    _ => DropReason::IcmpBadEmbedded,
                };
                let name = format!("type {kind} cut to {len}");
                let cut = sealed_icmp(shortened(&whole, len));
                world.refuse(&name, side, &cut, reason);
            }
            let least = sealed_icmp(shortened(&whole, 56));
            let after = world.forward("eight bytes of transport", side, &least);
            assert_eq!(after.len(), 56);
            ends(&after);
        }
    }
    world.finish();
}

#[test]
fn icmp_errors_that_embed_rubbish_are_dropped() {
    let mut world = World::new();
    let bad = DropReason::IcmpBadEmbedded;
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, DropReason, Change); 14] = [
        ("IPv6", bad, |about| about[0] = 0x65),
        ("four words", bad, |about| about[0] = 0x44),
        ("a header longer than what is there", bad, |about| about[0] = 0x4f),
        ("a total length below the header's", bad, |about| *about = with(about, 3, 19)),
        ("a later fragment", bad, |about| *about = with(about, 7, 1)),
        ("wrong header checksum", DropReason::IcmpBadChecksum, |about| about[10] ^= 1),
        ("wrong TTL", DropReason::IcmpBadChecksum, |about| about[8] ^= 1),
        ("an ICMP error", bad, |about| *about = as_icmp(about, 3)),
        ("a redirect", bad, |about| *about = as_icmp(about, 5)),
        ("an unknown ICMP type", bad, |about| *about = as_icmp(about, 42)),
        ("another port", DropReason::IcmpNoSession, |about| about[21] ^= 1),
        ("another remote port", DropReason::IcmpNoSession, |about| about[23] ^= 1),
        ("another protocol", DropReason::IcmpNoSession, |about| *about = with(about, 9, 47)),
        ("its own direction", DropReason::IcmpNoSession, |about| reverse(about)),
    ];
    for (name, reason, change) in cases {
        for kind in [3, 4, 11, 12] {
            world.refuse_both(name, reason, |world, side| world.error(side, kind, change));
        }
    }
    for at in [12, 16] {
        let name = format!("another address at {at}");
        world.refuse_both(&name, DropReason::IcmpNoSession, |world, side| {
            world.error(side, 3, |about| *about = with(about, at, 77))
        });
    }
    world.finish();
}

/// An embedded packet made an ICMP message of some type.
fn as_icmp(about: &[u8], kind: u8) -> Vec<u8> {
    with(&with(about, 9, protocol::ICMP), 20, kind)
}

/// An embedded packet with its ends exchanged.
fn reverse(about: &mut [u8]) {
    let (addresses, ports) = (about[12..20].to_vec(), about[20..24].to_vec());
    about[12..20].copy_from_slice(&[&addresses[4..], &addresses[..4]].concat());
    about[20..24].copy_from_slice(&[&ports[2..], &ports[..2]].concat());
}

#[test]
fn a_wrong_icmp_checksum_of_an_error_is_seen_whatever_bit_is_wrong() {
    let mut world = World::new();
    let len = world.error(Side::Inside, 3, |_| {}).len();
    // The type's bits would make it another message.
    for at in 21..len {
        for bit in 0..8 {
            let name = format!("bit {bit} of byte {at}");
            world.refuse_both(&name, DropReason::IcmpBadChecksum, |world, side| {
                let mut bytes = world.error(side, 3, |_| {});
                bytes[at] ^= 1 << bit;
                bytes
            });
        }
    }
    world.finish();
}

/// Queries are not errors: their checksum is the receiver's to look at.
#[test]
fn a_wrong_checksum_of_a_query_passes_and_stays_wrong() {
    let mut world = World::new();
    for side in SIDES {
        let good = world.good_ping(side);
        let bad = with(&good, 22, good[22] ^ 0x40);
        let after = world.forward("wrong checksum", side, &bad);
        assert!(!Icmp::new_checked(&after[20..]).unwrap().checksum_valid());
    }
    world.finish();
}

// ---- found by fuzzing ----

/// A message of zeros is the one case that RFC 1624 gets wrong: its sum is 0x0000, not 0xffff.
#[test]
fn a_message_of_zeros_keeps_a_right_checksum() {
    let mut lab = Lab::new(&config());
    let out = lab.out(&icmp("10.0.0.5", "198.51.100.7", 8, 0, &[0; 4]));
    ends(&out);
    let reply = icmp("198.51.100.7", "203.0.113.1", 0, 0, &[out[24], out[25], 0, 0]);
    assert_eq!(lab.inward(&reply)[20..], [0, 0, 0xff, 0xff, 0, 0, 0, 0]);
}

/// A clone has the room of its original, although it was cloned when there was nothing in it.
#[test]
fn a_clone_does_what_its_original_does() {
    let mut original = Lab::new(&config());
    let mut clone = Lab::new(&config());
    clone.engine = original.engine.clone();
    for host in 5..250 {
        let sent = udp(&format!("10.0.0.{host}:4000"), REMOTE);
        assert_eq!(original.out(&sent), clone.out(&sent));
    }
}

// ---- random faults ----

/// Reasons that say that the packet itself is at fault, or finds nothing that could change.
fn is_harmless(reason: DropReason) -> bool {
    use DropReason::*;
    matches!(
        reason,
        NotIpv4
            | BadLength
            | BadHeaderChecksum
            | BadOptions
            | SourceRoute
            | MartianSource
            | MartianDestination
            | Land
            | SpoofedSource
            | NotSubscriber
            | SameSide
            | NotForUs
            | LocalUnsupported
            | IcmpBadChecksum
            | IcmpBadEmbedded
            | IcmpUnsupported
            | IcmpNoSession
    )
}

/// Feeds a packet that nothing is known of: whatever becomes of it, the verdict keeps its word.
fn feed(world: &mut World, from: Side, bytes: &[u8]) -> Verdict {
    let (state, counters) = (world.state(), world.lab.engine.counters().clone());
    let mut buffer = bytes.to_vec();
    let mut packets = [Packet::new(&mut buffer, 0)];
    let mut verdicts = [Verdict::Held];
    world.lab.engine.process(world.lab.now, from, &mut packets, &mut verdicts);
    let after = packets[0].bytes().to_vec();
    world.lab.wait_s(0.0);
    match verdicts[0] {
        Verdict::Forward(_) => {
            let (old, new) =
                (Ipv4::new_checked(bytes).unwrap(), Ipv4::new_checked(&after[..]).unwrap());
            assert!(new.checksum_valid());
            assert_eq!(new.ttl(), old.ttl() - 1);
            assert_eq!(after.len(), usize::from(old.total_len()));
        }
        Verdict::Reply(to) => assert_eq!(to, from),
        Verdict::Drop(reason) => {
            assert_eq!(buffer, bytes, "{reason:?} changed the packet");
            if is_harmless(reason) {
                assert_eq!(world.state(), state, "{reason:?} changed the state");
            }
        }
        Verdict::Held => assert!(is_fragment(bytes)),
    }
    // A fragment may be held, or decide the fate of others that were.
    if !is_fragment(bytes) {
        let counted = |counters: &Counters| counters.packets.iter().flatten().sum::<u64>();
        assert_eq!(counted(world.lab.engine.counters()), counted(&counters) + 1);
    }
    verdicts[0]
}

fn is_fragment(bytes: &[u8]) -> bool {
    Ipv4::new_checked(bytes)
        .is_ok_and(|packet| packet.more_fragments() || packet.fragment_offset() > 0)
}

/// Bytes replaced at places, then what the sealing says: nothing, the header, or ICMP too.
type Faults = (Vec<(prop::sample::Index, u8)>, u8);

fn faults() -> impl Strategy<Value = Faults> {
    let value = prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x45)];
    (prop::collection::vec((any::<prop::sample::Index>(), value), 1..6), 0..3_u8)
}

fn spoiled(mut bytes: Vec<u8>, (replaced, sealing): &Faults) -> Vec<u8> {
    for (at, value) in replaced {
        let at = at.index(bytes.len());
        bytes[at] = *value;
    }
    match sealing {
        0 => bytes,
        1 => sealed(bytes),
        _ => sealed_icmp(bytes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_do_no_harm(
        packets in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 1..40),
    ) {
        let mut world = World::new();
        let state = world.state();
        for bytes in packets {
            for side in SIDES {
                prop_assert!(matches!(feed(&mut world, side, &bytes), Verdict::Drop(_)));
            }
        }
        prop_assert_eq!(world.state(), state);
        world.finish();
    }

    #[test]
    fn good_packets_with_random_faults_do_no_harm(
        cases in prop::collection::vec((0..4_u8, faults()), 1..60),
    ) {
        let mut world = World::new();
        for (base, faults) in cases {
            for side in SIDES {
                let bytes = match base {
                    0 => world.good(side),
                    1 => world.good_tcp(side),
                    2 => world.good_ping(side),
                    _ => world.error(side, 3, |_| {}),
                };
                feed(&mut world, side, &spoiled(bytes, &faults));
            }
        }
        // Protocols without ports, which a fault may turn a packet into, share their endpoint.
        let endpoints: Vec<_> = world
            .lab
            .engine
            .mappings()
            .map(|mapping| (mapping.id.protocol, mapping.id.external))
            .filter(|(protocol, _)| POOLED.contains(protocol))
            .collect();
        prop_assert_eq!(endpoints.iter().collect::<BTreeSet<_>>().len(), endpoints.len());
    }

    /// Random bytes seldom get past the checksum: here they stand behind good headers.
    #[test]
    fn errors_about_random_bytes_do_no_harm(
        abouts in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..60), any::<bool>(), any::<bool>()), 1..40,
        ),
    ) {
        let mut world = World::new();
        for (mut about, looks_right, right) in abouts {
            if looks_right && about.len() >= 20 {
                about[0] = 0x45;
                about[2] = 1;
            }
            if right {
                about = sealed(about);
            }
            for side in SIDES {
                let bytes = world.error(side, 3, |embedded| *embedded = about.clone());
                let verdict = feed(&mut world, side, &bytes);
                let named = matches!(
                    verdict,
                    Verdict::Drop(
                        DropReason::IcmpBadChecksum
                            | DropReason::IcmpBadEmbedded
                            | DropReason::IcmpNoSession
                            | DropReason::SourceRoute
                    )
                );
                prop_assert!(named, "{:?}", verdict);
            }
        }
        world.finish();
    }
}
