//! Random traffic through the NAT in each of its executors: the same packets, tables and counters.

use super::{INSIDE, NEIGHBOURS, OUTSIDE, OWN, all, fill, framed, nat, udp, values};
use crate::together::together;
use natgate_p4::{Key, Machine, Program, programs};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A frame that comes in, after `pass` milliseconds.
#[derive(Clone, Debug)]
struct Arrival {
    pass: u64,
    side: usize,
    packet: String,
    /// A byte of the frame, and the change of it; zero changes nothing.
    harm: (prop::sample::Index, u8),
    /// Bytes that are missing at the end.
    missing: usize,
}

/// A packet in the vectors' notation, from few endpoints.
fn packet(side: usize) -> impl Strategy<Value = String> {
    let (host, port) = (prop_oneof![8 => 1..4_u8, 1 => Just(99)], 0..6_u16);
    let kind = prop_oneof![
        Just("udp"),
        Just("tcp-syn"),
        Just("tcp-ack"),
        Just("tcp-fin"),
        Just("echo"),
        Just("reply")
    ];
    let ttl = prop_oneof![9 => Just(64), 1 => 0..3_u8];
    (kind, host, port, 1..3_u8, ttl).prop_map(move |(kind, host, port, remote, ttl)| {
        let inside = match host {
            99 => "192.0.2.99".to_owned(),
            host => format!("10.0.0.{host}"),
        };
        let (remote, port) = (format!("198.51.100.{remote}"), 4000 + port);
        let (source, destination) = match side {
            0 => (inside, remote),
            _ => (remote, "203.0.113.1".to_owned()),
        };
        let (near, far) = if side == 0 { (port, 80) } else { (80, port) };
        let transport = |name: &str, more: &str| {
            format!("{name} {source}:{near} > {destination}:{far} {more} ttl={ttl}")
        };
        match kind {
            "udp" => transport("udp", "bytes=5"),
            "tcp-syn" => transport("tcp", "S seq=1"),
            "tcp-ack" => transport("tcp", "A seq=1"),
            "tcp-fin" => transport("tcp", "FA seq=1"),
            "echo" => format!("icmp {source} > {destination} echo ident={port} n=1 ttl={ttl}"),
            _ => format!("icmp {source} > {destination} echo-reply ident={port} n=1 ttl={ttl}"),
        }
    })
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let pass = prop_oneof![8 => 0..2000_u64, 1 => 0..400_000_u64];
    let harm = (any::<prop::sample::Index>(), prop_oneof![9 => Just(0), 1 => any::<u8>()]);
    let missing = prop_oneof![19 => Just(0), 1 => 0..60_usize];
    (0..2_usize).prop_flat_map(packet_of(pass.boxed(), harm.boxed(), missing.boxed()))
}

/// Arrivals of one side.
fn packet_of(
    pass: BoxedStrategy<u64>,
    harm: BoxedStrategy<(prop::sample::Index, u8)>,
    missing: BoxedStrategy<usize>,
) -> impl Fn(usize) -> BoxedStrategy<Arrival> {
    move |side| {
        let parts = (pass.clone(), packet(side), harm.clone(), missing.clone());
        let made =
            move |(pass, packet, harm, missing)| Arrival { pass, side, packet, harm, missing };
        parts.prop_map(made).boxed()
    }
}

fn frame(arrival: &Arrival) -> Vec<u8> {
    let side = arrival.side;
    let mut frame = framed(OWN[side], NEIGHBOURS[side], 0x0800, &udp(&arrival.packet));
    let (place, by) = arrival.harm;
    let place = place.index(frame.len());
    frame[place] ^= by;
    frame.truncate(frame.len() - arrival.missing.min(frame.len()));
    frame
}

/// Everything that the control plane can read.
fn seen(machine: &mut Machine<'_>) -> String {
    let mut text = String::new();
    for table in ["stations", "upload", "download"] {
        text += &format!("{table} {:?}\n", machine.read(table).expect("it is there"));
    }
    for (counter, last) in [("drops", 13), ("subscriber_out", 8)] {
        let cells = (0..last).map(|index| machine.counter(counter, index).expect("it is there"));
        text += &format!("{counter} {:?}\n", cells.collect::<Vec<_>>());
    }
    while let Some(digest) = machine.digest() {
        text += &format!("{digest:?}\n");
    }
    text
}

/// Checks that no two internal endpoints share an external endpoint, and that each gets its
/// answers.
fn check_ports(machine: &Machine<'_>) {
    let [upload, download] =
        ["upload", "download"].map(|table| machine.read(table).expect("it is there"));
    let owners: BTreeMap<Vec<u128>, &[u128]> =
        download.iter().map(|entry| (values(&entry.keys), &*entry.args)).collect();
    let mut ends = BTreeSet::new();
    for entry in &upload {
        let internal = values(&entry.keys);
        let external = [internal[0], entry.args[0], entry.args[1]];
        assert!(ends.insert(external), "{external:?} are two");
        assert_eq!(owners.get(&external[..]), Some(&&internal[1..]), "{external:?}");
    }
}

/// The NAT as Rust, with enough other mappings that its tables are prefetched.
fn crowded(program: &Program) -> Machine<'_> {
    let made = programs::compiled(program, 0).expect("it is compiled with the crate");
    let mut machine = Machine::with(program, made);
    fill(&mut machine, (4000, 4005));
    for number in 0..21_000 {
        let [internal, external] = [0x0b00_0000, 0xcb00_7200].map(|first| first + number);
        let own = [17, internal, 5000].map(Key::Exact);
        machine.insert("upload", &own, "to_external", &[external, 5000], 0).expect("it fits");
        let own = [17, external, 5000].map(Key::Exact);
        machine.insert("download", &own, "to_internal", &[internal, 5000], 0).expect("it fits");
    }
    machine
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Frames of both sides come in by one, so that some lines are fetched in vain.
    #[test]
    fn a_group_that_went_ahead_is_the_same(
        groups in prop::collection::vec(prop::collection::vec(arrival(), 1..100), 1..12),
    ) {
        let program = nat();
        let [mut alone, mut crowd] = [crowded(&program), crowded(&program)];
        let mut now = Duration::ZERO;
        for group in &groups {
            now += Duration::from_millis(group[0].pass);
            let port = [INSIDE, OUTSIDE][group[0].side];
            let frames: Vec<Vec<u8>> = group.iter().map(frame).collect();
            for (frame, outcome) in frames.iter().zip(together(&mut crowd, now, port, &frames)) {
                prop_assert_eq!(outcome, alone.process(now, port, frame));
            }
        }
        prop_assert_eq!(seen(&mut crowd), seen(&mut alone));
        check_ports(&crowd);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_nat_is_the_same(arrivals in prop::collection::vec(arrival(), 1..80)) {
        let program = nat();
        let (_turn, mut machines) = all(&program);
        for (_, machine) in &mut machines {
            fill(machine, (4000, 4005));
            let internal = [17, 0x0a00_0003, 4003].map(Key::Exact);
            let external = [0xcb00_7101, 4001];
            machine.insert("upload", &internal, "to_external", &external, 0).expect("it fits");
        }
        let mut now = 0;
        for (number, arrival) in arrivals.iter().enumerate() {
            now += arrival.pass;
            let (now, port) = (Duration::from_millis(now), [INSIDE, OUTSIDE][arrival.side]);
            let frame = frame(arrival);
            let mut expected = None;
            for (by, machine) in &mut machines {
                let is = machine.process(now, port, &frame);
                let expected = expected.get_or_insert_with(|| is.clone());
                prop_assert_eq!(&is, &*expected, "{}, {}: {:?}", by, number, arrival);
            }
        }
        let expected = seen(&mut machines[0].1);
        for (by, machine) in &mut machines[1..] {
            prop_assert_eq!(seen(machine), expected.as_str(), "{}", by);
        }
    }

    #[test]
    fn what_comes_at_once_is_the_same(
        groups in prop::collection::vec(prop::collection::vec(arrival(), 1..100), 1..5),
    ) {
        let program = nat();
        let (_turn, mut machines) = all(&program);
        machines.iter_mut().for_each(|(_, machine)| fill(machine, (4000, 4005)));
        let mut now = Duration::ZERO;
        for group in &groups {
            now += Duration::from_millis(group[0].pass);
            let port = [INSIDE, OUTSIDE][group[0].side];
            let frames: Vec<Vec<u8>> = group.iter().map(frame).collect();
            let mut expected = None;
            for (by, machine) in &mut machines {
                let outcomes = together(machine, now, port, &frames);
                let expected = expected.get_or_insert_with(|| outcomes.clone());
                prop_assert_eq!(&outcomes, &*expected, "{}", by);
            }
        }
        let expected = seen(&mut machines[0].1);
        for (by, machine) in &mut machines[1..] {
            prop_assert_eq!(seen(machine), expected.as_str(), "{}", by);
        }
    }
}
