//! p4/nat.p4 in all its executors: the vectors that it covers, and its behavior around the
//! translation.
//!
//! The vectors' packets get an Ethernet header, and the tables get the entries of a controller for
//! the vectors' configuration.

mod control;
mod same;
mod team;

use crate::executors::all;
use crate::words::Words;
use crate::{read, write};
use natgate_p4::rt::Match;
use natgate_p4::{Entries, Key, Machine, Outcome, Program, Rates, compile};
use std::path::Path;
use std::time::Duration;

const INSIDE: u32 = 1;
const OUTSIDE: u32 = 2;
const CONTROLLER: u32 = 0xffff_fffd;
/// Hardware addresses of the gateway, and those of its neighbours.
const OWN: [u64; 2] = [0x0200_0000_0001, 0x0200_0000_0002];
const NEIGHBOURS: [u64; 2] = [0x0200_0000_0011, 0x0200_0000_0022];
const POOL: u128 = 0xcb00_7101;

fn nat() -> Program {
    let text = include_str!("../../../nat.p4");
    compile("nat.p4", text).unwrap_or_else(|error| panic!("{}", error.rendered()))
}

/// The interpreted program with filled tables.
fn filled(program: &Program, ports: (u16, u16)) -> Machine<'_> {
    let mut machine = Machine::new(program, 0);
    fill(&mut machine, ports);
    machine
}

/// Fills the tables: one external address with these ports.
fn fill(machine: &mut Machine<'_>, ports: (u16, u16)) {
    for (profile, seconds) in [(0, 300), (1, 60), (2, 240), (3, 7440), (4, 300)] {
        machine.set_profile(profile, Duration::from_secs(seconds));
    }
    let sides = [("inside", INSIDE), ("outside", OUTSIDE)];
    for (((action, port), own), neighbour) in sides.into_iter().zip(OWN).zip(NEIGHBOURS) {
        let port_key = Key::Exact(port.into());
        machine.insert("interfaces", &[port_key], action, &[own.into()], 0).expect("a port");
        let keys = [port_key, Key::Exact(port.into())];
        let macs = [own.into(), neighbour.into()];
        machine.insert("next_hops", &keys, "neighbor", &macs, 0).expect("a neighbour");
    }
    let ten = Key::Prefix(0x0a00_0000, 8);
    machine.insert("subscribers", &[ten], "subscriber", &[7, 0], 0).expect("subscribers");
    let pool = [POOL, ports.0.into(), ports.1.into()];
    machine.insert("pool", &[Key::Exact(0)], "external_address", &pool, 0).expect("a pool");
    // A gateway is named by its port.
    let via = |port: u32| [port.into(), port.into()];
    machine.insert("routes", &[ten], "via", &via(INSIDE), 0).expect("a route");
    machine.insert("routes", &[Key::Prefix(0, 0)], "via", &via(OUTSIDE), 0).expect("a route");
}

fn framed(destination: u64, source: u64, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let macs = [destination, source].map(|mac| mac.to_be_bytes()[2..].to_vec());
    [&macs[0][..], &macs[1], &ethertype.to_be_bytes(), payload].concat()
}

/// Processes an IPv4 packet that came in on a side; returns what leaves.
fn process(
    machine: &mut Machine<'_>,
    now: Duration,
    side: usize,
    packet: &[u8],
) -> Option<(usize, Vec<u8>)> {
    let frame = framed(OWN[side], NEIGHBOURS[side], 0x0800, packet);
    let port = [INSIDE, OUTSIDE][side];
    match machine.process(now, port, &frame) {
        Outcome::Sent { port, packet } => {
            let side = if port == INSIDE { 0 } else { 1 };
            let header = framed(NEIGHBOURS[side], OWN[side], 0x0800, &[]);
            assert_eq!(packet[..14], header, "the neighbour gets it");
            Some((side, packet[14..].to_vec()))
        }
        Outcome::Dropped => None,
    }
}

/// Time, side and packet of a line.
fn line(text: &str) -> Option<(f64, usize, Vec<u8>)> {
    let text = text.split_once('#').map_or(text, |(before, _)| before).trim();
    let mut words = Words::new(text).expect("the vectors' notation");
    if words.plain.is_empty() {
        return None;
    }
    let time = words.next("a time").expect("a time").parse().expect("seconds");
    let side = match &*words.next("a side").expect("a side") {
        "inside" => 0,
        _ => 1,
    };
    Some((time, side, write::packet(&mut words).expect("a packet")))
}

/// Processes a vector with the program, and compares the output with that of the engine.
fn vector(name: &str, ports: (u16, u16)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(name);
    let text = |file| std::fs::read_to_string(folder.join(file)).expect("the vector is there");
    let shown = |(time, side, packet): &(f64, usize, Vec<u8>)| {
        format!("{time:.3} {} {}", ["inside", "outside"][*side], read::packet(packet))
    };
    let expected: Vec<_> = text("out.txt").lines().filter_map(line).collect();
    assert!(!expected.is_empty());
    let lines = |packets: &[_]| packets.iter().map(shown).collect::<Vec<_>>();
    let program = nat();
    let (_turn, machines) = all(&program);
    for (by, mut machine) in machines {
        fill(&mut machine, ports);
        let (mut clock, mut sent) = (0.0_f64, Vec::new());
        for (time, side, packet) in text("in.txt").lines().filter_map(line) {
            clock = clock.max(time);
            if let Some((side, packet)) =
                process(&mut machine, Duration::from_secs_f64(clock), side, &packet)
            {
                sent.push((clock, side, packet));
            }
        }
        assert_eq!(lines(&sent), lines(&expected), "{name}, {by}");
        assert_eq!(sent, expected, "{name}, {by}: to the byte");
    }
}

#[test]
fn the_vectors_that_it_covers_come_to_what_the_engine_makes_of_them() {
    for name in [
        "udp-basic",
        "udp-checksums",
        "mapping-endpoint-independent",
        "filtering-endpoint-independent",
        "clock-backwards",
        "tcp-simultaneous-open",
    ] {
        vector(name, (1024, 65535));
    }
    vector("icmp-query", (77, 78));
    vector("port-preserve", (4000, 4003));
}

fn udp(text: &str) -> Vec<u8> {
    write::packet(&mut Words::new(text).expect("the notation")).expect("a packet")
}

fn drops(machine: &Machine<'_>, reason: u32) -> u64 {
    machine.counter("drops", reason).expect("it counts").0
}

#[test]
fn what_is_dropped_is_counted_by_its_reason() {
    let program = nat();
    for (reason, side, text) in [
        (2, 0, "udp 10.0.0.5:4000 > 198.51.100.7:53 ipsum=+1"),
        (3, 0, "gre 10.0.0.5 > 198.51.100.7 hex=00"),
        (
            3,
            1,
            "icmp 198.51.100.7 > 203.0.113.1 unreachable code=3 { udp 203.0.113.1:4000 > \
             198.51.100.7:53 }",
        ),
        (4, 0, "udp 192.0.2.5:4000 > 198.51.100.7:53"),
        (6, 1, "udp 198.51.100.7:53 > 203.0.113.1:4000"),
        (6, 0, "icmp 10.0.0.5 > 198.51.100.7 echo-reply ident=9 n=1"),
        (8, 0, "tcp 10.0.0.5:4000 > 198.51.100.7:80 A seq=1"),
        (9, 0, "udp 10.0.0.5:4000 > 198.51.100.7:53 ttl=1"),
    ] {
        let mut machine = filled(&program, (1024, 65535));
        assert_eq!(process(&mut machine, Duration::ZERO, side, &udp(text)), None, "{text}");
        assert_eq!(drops(&machine, reason), 1, "{text}");
        assert_eq!(machine.entries("upload"), Ok(0), "{text}: nothing is learnt");
    }
}

#[test]
fn ports_run_out_and_are_free_again_when_their_mappings_have_gone() {
    let program = nat();
    let mut machine = filled(&program, (5000, 5001));
    let mut ask = |seconds, host: u8| {
        let packet = udp(&format!("tcp 10.0.0.{host}:5000 > 198.51.100.7:80 S seq=1"));
        process(&mut machine, Duration::from_secs(seconds), 0, &packet)
            .map(|(_, packet)| packet[21])
    };
    assert_eq!((ask(0, 1), ask(0, 2), ask(0, 3)), (Some(0x88), Some(0x89), None));
    assert_eq!((ask(200, 1), ask(250, 3)), (Some(0x88), Some(0x89)), "the second's time is over");
    assert_eq!(drops(&machine, 7), 1);
}

/// Values of an entry's keys.
fn values(keys: &[Match]) -> Vec<u128> {
    keys.iter().map(|key| key.value).collect()
}

/// External port of a packet from inside after translation.
fn port(machine: &mut Machine<'_>, seconds: u64, host: u8, internal: u16) -> Option<u16> {
    let packet = udp(&format!("udp 10.0.0.{host}:{internal} > 198.51.100.7:53"));
    let sent = process(machine, Duration::from_secs(seconds), 0, &packet);
    sent.map(|(_, packet)| u16::from_be_bytes([packet[20], packet[21]]))
}

#[test]
fn what_a_range_has_is_given_out_and_no_other_port() {
    let program = nat();
    for only in [1, 5000, 65_535] {
        let mut machine = filled(&program, (only, only));
        assert_eq!(port(&mut machine, 0, 1, 4000), Some(only));
        assert_eq!(port(&mut machine, 1, 1, 4000), Some(only));
        assert_eq!(port(&mut machine, 2, 2, only), None);
        assert_eq!(port(&mut machine, 302, 2, 4001), Some(only), "the first was silent");
    }
}

#[test]
fn a_static_mappings_port_is_nobody_elses() {
    let program = nat();
    let mut machine = filled(&program, (4000, 4007));
    let keys = [17, POOL, 4002].map(Key::Exact);
    machine.insert("download", &keys, "to_internal", &[0x0a00_0050, 53], 0).expect("it fits");
    assert_eq!(port(&mut machine, 0, 1, 4002), Some(4004));
    // A packet from outside keeps only the mapping of its destination alive.
    let is_there = |machine: &Machine<'_>| {
        let upload = machine.read("upload").expect("it is there");
        upload.iter().any(|entry| values(&entry.keys) == [17, 0x0a00_0050, 53])
    };
    assert_eq!(port(&mut machine, 0, 0x50, 53), Some(4001));
    let asked = udp("udp 198.51.100.7:53 > 203.0.113.1:4002");
    let answer = process(&mut machine, Duration::from_secs(200), 1, &asked);
    let to = answer.map(|(_, packet)| read::packet(&packet));
    assert_eq!(to.as_deref(), Some("udp 198.51.100.7:53 > 10.0.0.80:53 ttl=63"));
    assert!(is_there(&machine));
    assert!(process(&mut machine, Duration::from_secs(302), 1, &asked).is_some());
    assert!(!is_there(&machine));
}

/// Whichever table is full: two endpoints never have one port.
#[test]
fn without_room_there_is_no_mapping() {
    let text = include_str!("../../../nat.p4");
    for full in ["upload", "download"] {
        let begin = text.find(&format!("table {full} {{")).expect("a table");
        let small = text[begin..].replacen("size = 1048576;", "size = 2;", 1);
        let text = format!("{}{small}", &text[..begin]);
        let program =
            compile("nat.p4", &text).unwrap_or_else(|error| panic!("{}", error.rendered()));
        let mut machine = filled(&program, (4000, 4007));
        let ports = [1, 2, 3, 4].map(|host| port(&mut machine, 0, host, 4000));
        assert_eq!(ports, [Some(4000), Some(4002), None, None], "{full}");
        assert_eq!(port(&mut machine, 1, 1, 4000), Some(4000));
        assert_eq!(drops(&machine, 7), 2, "{full}");
        assert_eq!(machine.entries("upload"), Ok(2), "{full}");
        let later = [3, 4].map(|host| port(&mut machine, 400, host, 4000));
        assert!(later.iter().all(Option::is_some) && later[0] != later[1], "{full}: {later:?}");
    }
}

#[test]
fn static_mappings_are_the_controllers() {
    let program = nat();
    let mut machine = filled(&program, (1024, 65535));
    let internal = [6, 0x0a00_0050, 8080];
    let external = [6, POOL, 80];
    let keys = |values: [u128; 3]| values.map(Key::Exact);
    machine.insert("download", &keys(external), "to_internal", &internal[1..], 0).expect("it fits");
    let to_external = [POOL, 80];
    machine.insert("upload", &keys(internal), "to_external", &to_external, 0).expect("it fits");
    check_static_mapping(&mut machine);
}

/// Checks that 203.0.113.1:80 is 10.0.0.80:8080, now and a day later.
fn check_static_mapping(machine: &mut Machine<'_>) {
    for seconds in [0, 90_000] {
        let now = Duration::from_secs(seconds);
        let asked = udp("tcp 198.51.100.7:5000 > 203.0.113.1:80 S seq=1");
        let (side, packet) = process(machine, now, 1, &asked).expect("it is forwarded");
        assert_eq!(
            (side, read::packet(&packet)),
            (0, "tcp 198.51.100.7:5000 > 10.0.0.80:8080 S seq=1 ttl=63".into())
        );
        let answer = udp("tcp 10.0.0.80:8080 > 198.51.100.7:5000 SA seq=1 ack=2");
        let (side, packet) = process(machine, now, 0, &answer).expect("it is forwarded");
        assert_eq!(
            (side, read::packet(&packet)),
            (1, "tcp 203.0.113.1:80 > 198.51.100.7:5000 SA seq=1 ack=2 ttl=63".into())
        );
    }
}

#[test]
fn a_file_of_entries_fills_its_tables() {
    let program = nat();
    let mut machine = Machine::new(&program, 0);
    let text = include_str!("../../../nat.toml");
    let entries = Entries::read(&program, "nat.toml", text);
    let loaded = entries.and_then(|entries| entries.load(&mut machine));
    loaded.unwrap_or_else(|error| panic!("{}", error.rendered()));
    let asked = udp("udp 10.0.0.5:4000 > 198.51.100.7:53");
    let (side, packet) = process(&mut machine, Duration::ZERO, 0, &asked).expect("it goes out");
    let translated = "udp 203.0.113.1:4000 > 198.51.100.7:53 ttl=63";
    assert_eq!((side, read::packet(&packet)), (1, translated.into()));
    check_static_mapping(&mut machine);
}

#[test]
fn subscribers_are_counted_and_metered() {
    let program = nat();
    let mut machine = filled(&program, (1024, 65535));
    let rates = Rates { committed: 100, committed_burst: 100, peak: 100, peak_burst: 100 };
    machine.set_meter("subscriber_rate", 7, rates).expect("it is there");
    let packet = udp("udp 10.0.0.5:4000 > 198.51.100.7:53 bytes=32");
    let passes = |machine: &mut Machine<'_>, seconds| {
        process(machine, Duration::from_secs(seconds), 0, &packet).is_some()
    };
    assert!(passes(&mut machine, 0) && !passes(&mut machine, 0) && passes(&mut machine, 1));
    assert_eq!(machine.counter("subscriber_out", 7), Ok((3, 180)));
    assert_eq!(drops(&machine, 5), 1);
}

#[test]
fn stations_are_learnt_and_frames_for_others_are_switched() {
    let program = nat();
    let mut machine = filled(&program, (1024, 65535));
    const AWAY: u32 = 3;
    let role = [0x0200_0000_0003];
    machine.insert("interfaces", &[Key::Exact(AWAY.into())], "inside", &role, 0).expect("a port");
    let (one, other) = (0x0200_0000_0011, 0x0200_0000_0077);
    let there = framed(other, one, 0x86dd, &[1, 2, 3]);
    let back = framed(one, other, 0x86dd, &[4, 5, 6]);
    let mut process = |seconds, port, frame: &Vec<u8>| {
        let now = Duration::from_secs(seconds);
        match machine.process(now, port, frame) {
            Outcome::Sent { port, packet } => {
                assert_eq!(packet, *frame);
                Some(port)
            }
            Outcome::Dropped => None,
        }
    };
    assert_eq!(process(0, INSIDE, &there), None, "nobody knows where it is");
    assert_eq!(process(1, AWAY, &back), Some(INSIDE), "its sender was heard there");
    assert_eq!(process(2, INSIDE, &there), Some(AWAY));
    assert_eq!(process(3, AWAY, &there), None, "both are at the same link");
    assert_eq!(process(200, AWAY, &back), Some(INSIDE));
    assert_eq!(process(400, INSIDE, &there), Some(AWAY), "heard 200 seconds ago");
    assert_eq!(process(701, AWAY, &back), None, "it was silent for more than five minutes");
    let group = framed(other, 0x0300_0000_0011, 0x86dd, &[]);
    assert_eq!(process(702, INSIDE, &group), Some(AWAY));
    let to_group = framed(0x0300_0000_0011, other, 0x86dd, &[]);
    assert_eq!(process(703, AWAY, &to_group), None, "nobody sends as a group");
    assert_eq!(process(704, 9, &there), None);
    assert_eq!((drops(&machine, 11), drops(&machine, 12)), (3, 1));
    assert_eq!(drops(&machine, 1), 1, "a port without a role");
}

#[test]
fn arp_is_answered_for_own_addresses_and_told_to_the_controller_otherwise() {
    let program = nat();
    let mut machine = filled(&program, (1024, 65535));
    let keys = [Key::Exact(INSIDE.into()), Key::Exact(0x0a00_0001)];
    machine.insert("addresses", &keys, "answer", &[OWN[0].into()], 0).expect("it fits");
    let arp = |operation: u8, from: (u64, [u8; 4]), to: (u64, [u8; 4])| {
        let mac = |mac: u64| mac.to_be_bytes()[2..].to_vec();
        let head = [0, 1, 8, 0, 6, 4, 0, operation];
        [&head[..], &mac(from.0), &from.1, &mac(to.0), &to.1].concat()
    };
    let (own, host) = ((OWN[0], [10, 0, 0, 1]), (NEIGHBOURS[0], [10, 0, 0, 5]));
    let question = framed(0xffff_ffff_ffff, host.0, 0x0806, &arp(1, host, (0, own.1)));
    let answer = framed(host.0, own.0, 0x0806, &arp(2, own, host));
    let outcome = machine.process(Duration::ZERO, INSIDE, &question);
    assert_eq!(outcome, Outcome::Sent { port: INSIDE, packet: answer.clone() });
    let outcome = machine.process(Duration::ZERO, INSIDE, &answer);
    assert_eq!(outcome, Outcome::Sent { port: CONTROLLER, packet: answer });
}
