//! The translation both ways, packets that are dropped, ports, and answers to neighbors.

use crate::executors::all;
use crate::packets::{ICMPV6, Kind, Packet, is_right, raw_ipv6};
use natgate_p4::{Entries, Key, Machine, Outcome, Program, compile};
use natgate_wire::Ipv4;
use natgate_wire::checksum::{fold, pseudo_header_v6, sum};
use std::time::Duration;

pub(crate) const INSIDE: u32 = 1;
pub(crate) const OUTSIDE: u32 = 2;
const CONTROLLER: u32 = 0xffff_fffd;
/// Hardware addresses of the gateway, and those of its neighbors.
const OWN: [u64; 2] = [0x0200_0000_0001, 0x0200_0000_0002];
const NEIGHBORS: [u64; 2] = [0x0200_0000_0011, 0x0200_0000_0022];
const ETHERTYPES: [u16; 2] = [0x86dd, 0x0800];
pub(crate) const POOL: u32 = 0xcb00_7101;
pub(crate) const REMOTE: u32 = 0xc633_6407;
const PREFIX: u128 = 0x0064_ff9b << 96;
pub(crate) const HOSTS: u128 = 0x2001_0db8_0005_0000 << 64;

pub(crate) fn nat64() -> Program {
    let text = include_str!("../../../nat64.p4");
    compile("nat64.p4", text).unwrap_or_else(|error| panic!("{}", error.rendered()))
}

/// Fills the tables from the file of entries, and sets the ports of the pool.
pub(crate) fn fill(program: &Program, machine: &mut Machine<'_>, (first, last): (u16, u16)) {
    let text = include_str!("../../../nat64.toml");
    let text =
        text.replace("first = 1024, last = 65535", &format!("first = {first}, last = {last}"));
    let entries = Entries::read(program, "nat64.toml", &text);
    let loaded = entries.and_then(|entries| entries.load(machine));
    loaded.unwrap_or_else(|error| panic!("{}", error.rendered()));
}

/// Runs a case in every executor, with tables for these ports.
fn with_each(ports: (u16, u16), mut case: impl FnMut(&str, &mut Machine<'_>)) {
    let program = nat64();
    let (_turn, machines) = all(&program);
    for (by, mut machine) in machines {
        fill(&program, &mut machine, ports);
        case(by, &mut machine);
    }
}

pub(crate) fn embedded(address: u32) -> u128 {
    PREFIX | u128::from(address)
}

pub(crate) fn framed(to: u64, from: u64, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let macs = [to, from].map(|mac| mac.to_be_bytes()[2..].to_vec());
    [&macs[0][..], &macs[1], &ethertype.to_be_bytes(), payload].concat()
}

/// The frame of a packet that comes in on a side.
pub(crate) fn arriving(side: usize, packet: &[u8]) -> Vec<u8> {
    framed(OWN[side], NEIGHBORS[side], ETHERTYPES[side], packet)
}

/// Processes a packet that came in on a side; returns the packet that leaves on the other.
fn process(machine: &mut Machine<'_>, seconds: u64, side: usize, packet: &[u8]) -> Option<Vec<u8>> {
    let frame = arriving(side, packet);
    match machine.process(Duration::from_secs(seconds), [INSIDE, OUTSIDE][side], &frame) {
        Outcome::Sent { port, packet } => {
            let out = 1 - side;
            assert_eq!(port, [INSIDE, OUTSIDE][out]);
            let header = framed(NEIGHBORS[out], OWN[out], ETHERTYPES[out], &[]);
            assert_eq!(packet[..14], header, "the neighbor gets it");
            assert!(is_right(&packet[14..]), "{packet:02x?}");
            Some(packet[14..].to_vec())
        }
        Outcome::Dropped => None,
    }
}

fn drops(machine: &Machine<'_>, reason: u32) -> u64 {
    machine.counter("drops", reason).expect("it counts").0
}

const KINDS: [Kind; 3] = [Kind::Udp, Kind::Tcp(2), Kind::Echo];

#[test]
fn packets_pass_both_ways() {
    with_each((1024, 65_535), |by, machine| {
        for kind in KINDS {
            for data in [0, 11, 1200, 1220, 1221, 1232, 1233, 1400] {
                let to = if kind == Kind::Echo { 4000 } else { 53 };
                let packet = Packet { class: 0xb8, data, ..Packet::new(kind, 4000, to) };
                let sent = packet.ipv6(HOSTS | 5, embedded(REMOTE));
                let left =
                    process(machine, 1, 0, &sent).unwrap_or_else(|| panic!("{by}: {packet:?}"));
                let identification = u16::from_be_bytes([left[4], left[5]]);
                let passed = Packet { hops: 63, ..packet };
                let wanted = passed.ipv4(POOL, REMOTE, identification);
                assert_eq!(left, wanted, "{by}: {packet:?}");
                assert!(left.len() <= 1260 || identification == 0);

                let kind = match kind {
                    Kind::Tcp(_) => Kind::Tcp(0x12),
                    Kind::Echo => Kind::EchoReply,
                    other => other,
                };
                let answer = Packet { ports: (to, 4000), kind, ..packet };
                let back = process(machine, 1, 1, &answer.ipv4(REMOTE, POOL, 77));
                let answer = Packet { hops: 63, ..answer };
                let wanted = answer.ipv6(embedded(REMOTE), HOSTS | 5);
                assert_eq!(back, Some(wanted), "{by}: answer to {packet:?}");
            }
        }
    });
}

/// Every sum of a checksum passes: also those that are zero on one side or on both.
#[test]
fn checksums_of_zero_are_written_as_the_other_zero() {
    with_each((1024, 65_535), |by, machine| {
        // A packet a second, because the rate of a subscriber is limited.
        let mut zeros = 0;
        for remote_port in 1..=65_535 {
            let packet = Packet { data: 0, ..Packet::new(Kind::Udp, 4000, remote_port) };
            let left =
                process(machine, remote_port.into(), 0, &packet.ipv6(HOSTS | 5, embedded(REMOTE)));
            let left = left.unwrap_or_else(|| panic!("{by}: {remote_port}"));
            zeros += usize::from(left[26..28] == [0xff, 0xff]);
        }
        assert_eq!(zeros, 1, "{by}");
    });
}

#[test]
fn mappings_are_those_of_endpoints_and_keep_the_parity_of_ports() {
    with_each((4000, 4007), |by, machine| {
        let mut port = |host: u128, from: u16, remote: u32| {
            let packet = Packet::new(Kind::Udp, from, 53).ipv6(HOSTS | host, embedded(remote));
            let left = process(machine, 1, 0, &packet)?;
            Some(u16::from_be_bytes([left[20], left[21]]))
        };
        assert_eq!(port(1, 4001, REMOTE), Some(4001), "{by}");
        assert_eq!(port(1, 4001, REMOTE + 1), Some(4001), "{by}: another remote host");
        assert_eq!(port(2, 4001, REMOTE), Some(4003), "{by}: another host");
        assert_eq!(port(1 << 32, 4001, REMOTE), Some(4005), "{by}: its middle part differs");
        assert_eq!(port(1 << 64, 4001, REMOTE), Some(4007), "{by}: its high part differs");
        assert_eq!(port(3, 4001, REMOTE), None, "{by}: no port of this parity is left");
        assert_eq!(port(3, 4002, REMOTE), Some(4002), "{by}");
        assert_eq!(drops(machine, 7), 1, "{by}");
    });
}

#[test]
fn mappings_end_after_silence_and_hosts_outside_make_none() {
    with_each((1024, 65_535), |by, machine| {
        let answer = Packet::new(Kind::Udp, 53, 4000).ipv4(REMOTE, POOL, 1);
        assert_eq!(process(machine, 0, 1, &answer), None, "{by}");
        let question = Packet::new(Kind::Udp, 4000, 53).ipv6(HOSTS | 5, embedded(REMOTE));
        assert!(process(machine, 1, 0, &question).is_some(), "{by}");
        assert!(process(machine, 299, 1, &answer).is_some(), "{by}");
        assert!(process(machine, 598, 1, &answer).is_some(), "{by}: the answer has prolonged it");
        assert_eq!(process(machine, 900, 1, &answer), None, "{by}");
        assert_eq!(drops(machine, 6), 2, "{by}");
    });
}

/// A packet of IPv4 with another total length, and the right checksum of the header.
fn shortened(mut packet: Vec<u8>, total_len: u16) -> Vec<u8> {
    let mut header = Ipv4::new_checked(&mut packet[..]).expect("a packet");
    header.set_total_len(total_len);
    header.fill_checksum();
    packet
}

/// The least lengths and the MTU are not those of dropped packets.
#[test]
fn the_shortest_and_the_longest_packets_pass() {
    with_each((1024, 65_535), |by, machine| {
        // UDP's data has 1,472 bytes in the longest IPv4 packet, 1,452 in the longest IPv6 packet.
        for (kind, sent, back) in
            [(Kind::Udp, 0, 0), (Kind::Tcp(2), 0, 0), (Kind::Echo, 0, 0), (Kind::Udp, 1472, 1452)]
        {
            let packet = |data| Packet { data, ..Packet::new(kind, 4000, 4000) };
            let sent = packet(sent).ipv6(HOSTS | 5, embedded(REMOTE));
            assert!(process(machine, 1, 0, &sent).is_some(), "{by}: {kind:?}");
            let back = packet(back).ipv4(REMOTE, POOL, 1);
            assert!(process(machine, 1, 1, &back).is_some(), "{by}: {kind:?}");
        }
    });
}

#[test]
fn dropped_packets_are_counted_by_their_reason() {
    let udp = Packet::new(Kind::Udp, 4000, 53);
    let inside = |packet: Packet| packet.ipv6(HOSTS | 5, embedded(REMOTE));
    let changed = |mut bytes: Vec<u8>, at: usize, value: u8| {
        bytes[at] = value;
        bytes
    };
    let echo = |kind| Packet::new(kind, 9, 9);
    let mut without_checksum = udp.ipv4(REMOTE, POOL, 1);
    without_checksum[26..28].fill(0);
    let mut fragment = udp.ipv4(REMOTE, POOL, 1);
    fragment[6] = 0x20;
    let tcp = Packet { data: 0, ..Packet::new(Kind::Tcp(2), 4000, 80) };
    let from = |source: u32| udp.ipv4(source, POOL, 1);
    // IPv6's header has 20 bytes more.
    let big = |data| Packet { data, ..udp };
    for (reason, side, packet) in [
        (2, 0, changed(inside(udp), 0, 0x50)),
        (2, 0, inside(udp)[..45].to_vec()),
        (2, 1, changed(udp.ipv4(REMOTE, POOL, 1), 10, 0x77)),
        (2, 0, changed(inside(udp), 5, 7)),
        (2, 0, changed(inside(echo(Kind::Echo)), 5, 7)),
        (2, 0, changed(inside(tcp), 5, 19)),
        (2, 1, shortened(udp.ipv4(REMOTE, POOL, 1), 27)),
        (2, 1, shortened(tcp.ipv4(REMOTE, POOL, 1), 39)),
        (3, 0, changed(inside(udp), 6, 44)),
        (3, 0, changed(inside(echo(Kind::Echo)), 40, 1)),
        (3, 1, changed(udp.ipv4(REMOTE, POOL, 1), 0, 0x46)),
        (3, 1, fragment),
        (4, 0, udp.ipv6(0x2a00 << 112, embedded(REMOTE))),
        (6, 0, inside(echo(Kind::EchoReply))),
        (6, 1, udp.ipv4(REMOTE, POOL, 1)),
        (8, 0, inside(Packet::new(Kind::Tcp(0x10), 4000, 80))),
        (9, 0, inside(Packet { hops: 1, ..udp })),
        (9, 1, Packet { hops: 1, ..udp }.ipv4(REMOTE, POOL, 1)),
        (10, 0, udp.ipv6(HOSTS | 5, embedded(0x0a00_0001))),
        (10, 1, from(0xc0a8_0001)),
        (13, 0, udp.ipv6(HOSTS | 5, HOSTS | 6)),
        (14, 0, {
            let mut packet = inside(udp);
            packet[46..48].fill(0);
            packet
        }),
        (14, 1, without_checksum),
        (15, 0, udp.ipv6(embedded(5), embedded(REMOTE))),
        (15, 1, from(0)),
        (15, 1, from(0x7f00_0001)),
        (15, 1, from(0xe000_0001)),
        (15, 1, from(u32::MAX)),
        (16, 0, udp.ipv6(HOSTS | 5, embedded(POOL))),
        (16, 1, from(POOL)),
        (17, 0, inside(big(1473))),
        (17, 1, big(1453).ipv4(REMOTE, POOL, 1)),
    ] {
        with_each((1024, 65_535), |by, machine| {
            assert_eq!(process(machine, 0, side, &packet), None, "{by}: {reason} {packet:02x?}");
            assert_eq!(drops(machine, reason), 1, "{by}: {reason}, {packet:02x?}");
            assert_eq!(machine.entries("upload"), Ok(1), "{by}: the static mapping alone");
        });
    }
}

#[test]
fn frames_of_other_stations_and_families_are_dropped() {
    with_each((1024, 65_535), |by, machine| {
        let packet = Packet::new(Kind::Udp, 4000, 53).ipv6(HOSTS | 5, embedded(REMOTE));
        let mut frame = arriving(0, &packet);
        frame[5] ^= 1;
        assert_eq!(machine.process(Duration::ZERO, INSIDE, &frame), Outcome::Dropped);
        assert_eq!(drops(machine, 12), 1, "{by}");
        frame[5] ^= 1;
        frame[..6].copy_from_slice(&OWN[1].to_be_bytes()[2..]);
        assert_eq!(machine.process(Duration::ZERO, OUTSIDE, &frame), Outcome::Dropped);
        assert_eq!(drops(machine, 3), 1, "{by}: IPv6 outside");
    });
}

#[test]
fn static_mappings_are_the_controllers() {
    with_each((1024, 65_535), |by, machine| {
        for seconds in [0, 90_000] {
            let asked = Packet::new(Kind::Tcp(2), 5000, 80);
            let reached = process(machine, seconds, 1, &asked.ipv4(REMOTE, POOL, 3));
            let passed = Packet { ports: (5000, 8080), hops: 63, ..asked };
            let wanted = passed.ipv6(embedded(REMOTE), HOSTS | 0x80);
            assert_eq!(reached, Some(wanted), "{by}");
        }
        let taken = Packet::new(Kind::Tcp(2), 80, 80).ipv6(HOSTS | 5, embedded(REMOTE));
        let left = process(machine, 90_000, 0, &taken).expect("it has another port");
        assert_ne!(left[20..22], [0, 80], "{by}");
    });
}

/// A solicitation of an address, from a neighbor.
fn solicitation(source: u128, target: u128) -> Vec<u8> {
    let mac = NEIGHBORS[0].to_be_bytes();
    let mut message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.to_be_bytes(), &[1, 1], &mac[2..]];
    let group = 0xff02_u128 << 112 | 0x0001_ff00_0000 | target & 0xff_ffff;
    let mut bytes = std::mem::take(&mut message).concat();
    let pseudo = pseudo_header_v6(source, group, ICMPV6, bytes.len() as u32);
    let checksum = !fold(sum(&bytes, pseudo));
    bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
    let packet = raw_ipv6(source, group, (ICMPV6, 255, 0), &bytes);
    framed(0x3333_ff00_0001, NEIGHBORS[0], ETHERTYPES[0], &packet)
}

#[test]
fn neighbors_get_the_boxs_hardware_addresses() {
    const LINK_LOCAL: u128 = 0xfe80 << 112;
    with_each((1024, 65_535), |by, machine| {
        let mut ask = |frame: &[u8]| machine.process(Duration::ZERO, INSIDE, frame);
        let asked = solicitation(LINK_LOCAL | 0xfe, LINK_LOCAL | 1);
        let Outcome::Sent { port: INSIDE, packet } = ask(&asked) else { panic!("{by}: no answer") };
        assert_eq!(packet[..14], framed(NEIGHBORS[0], OWN[0], ETHERTYPES[0], &[]), "{by}");
        let (header, message) = packet[14..].split_at(40);
        let ends = [(LINK_LOCAL | 1).to_be_bytes(), (LINK_LOCAL | 0xfe).to_be_bytes()].concat();
        assert_eq!((header[7], &header[8..]), (255, &ends[..]), "{by}");
        assert!(is_right(&packet[14..]), "{by}");
        let wanted = [&[0xe0, 0, 0, 0][..], &(LINK_LOCAL | 1).to_be_bytes(), &[2, 1]].concat();
        let own = &OWN[0].to_be_bytes()[2..];
        assert_eq!((message[0], &message[4..26], &message[26..]), (136, &wanted[..], own), "{by}");

        let other = ask(&solicitation(LINK_LOCAL | 0xfe, LINK_LOCAL | 2));
        assert!(matches!(other, Outcome::Sent { port: CONTROLLER, .. }), "{by}: {other:?}");
        let mut harmed = asked.clone();
        harmed[60] ^= 1;
        assert_eq!(ask(&harmed), Outcome::Dropped, "{by}");
        assert_eq!(ask(&solicitation(0, LINK_LOCAL | 1)), Outcome::Dropped, "{by}: no source");
        let advertised = raw_ipv6(LINK_LOCAL | 0xfe, LINK_LOCAL | 1, (ICMPV6, 255, 0), &{
            let mut message = vec![0; 24];
            message[0] = 136;
            message
        });
        let told = ask(&arriving(0, &advertised));
        assert!(matches!(told, Outcome::Sent { port: CONTROLLER, .. }), "{by}: {told:?}");
        assert_eq!(drops(machine, 2), 2, "{by}");
    });
}

#[test]
fn a_full_table_makes_no_mapping() {
    let text = include_str!("../../../nat64.p4");
    for full in ["upload", "download"] {
        let begin = text.find(&format!("table {full} {{")).expect("a table");
        // One entry is the static mapping's.
        let small = text[begin..].replacen("size = 1048576;", "size = 3;", 1);
        let text = format!("{}{small}", &text[..begin]);
        let program =
            compile("nat64.p4", &text).unwrap_or_else(|error| panic!("{}", error.rendered()));
        let mut machine = Machine::new(&program, 0);
        fill(&program, &mut machine, (4000, 4007));
        let mut passes = |seconds, host: u128| {
            let packet = Packet::new(Kind::Udp, 4000, 53).ipv6(HOSTS | host, embedded(REMOTE));
            process(&mut machine, seconds, 0, &packet).is_some()
        };
        assert_eq!([1, 2, 3].map(|host| passes(0, host)), [true, true, false], "{full}");
        assert!(passes(1, 1) && passes(400, 3), "{full}");
        let keys = [17, u128::from(POOL), 4000].map(Key::Exact);
        assert!(machine.remove("download", &keys).is_ok(), "{full}");
    }
}
