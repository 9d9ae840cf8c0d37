//! Random traffic through the program in each of its executors: the same packets, tables and
//! counters, and right checksums.

use crate::cases::{HOSTS, INSIDE, OUTSIDE, POOL, REMOTE, arriving, embedded, fill, nat64};
use crate::executors::all;
use crate::packets::{Kind, Packet, is_right};
use natgate_p4::{Machine, Outcome};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

/// A frame that comes in, after `pass` milliseconds.
#[derive(Clone, Debug)]
struct Arrival {
    pass: u64,
    side: usize,
    packet: Vec<u8>,
    /// A byte of the frame, and the change of it; zero changes nothing.
    harm: (prop::sample::Index, u8),
    /// Bytes that are missing at the end.
    missing: usize,
}

impl Arrival {
    fn frame(&self) -> Vec<u8> {
        let mut frame = arriving(self.side, &self.packet);
        let (place, by) = self.harm;
        let place = place.index(frame.len());
        frame[place] ^= by;
        frame.truncate(frame.len() - self.missing.min(frame.len()));
        frame
    }

    fn is_harmed(&self) -> bool {
        self.harm.1 != 0 || self.missing > 0
    }
}

/// A packet of few endpoints.
fn packet() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let kind = prop_oneof![
        Just(Kind::Udp),
        Just(Kind::Tcp(0x02)),
        Just(Kind::Tcp(0x10)),
        Just(Kind::Echo),
        Just(Kind::EchoReply)
    ];
    let hops = prop_oneof![9 => Just(64), 1 => 0..3_u8];
    let ends = (0..2_usize, 1..4_u128, 4000..4006_u16, 0..2_u32);
    let rest = (kind, hops, any::<u8>(), prop_oneof![4 => 0..20_usize, 1 => 1190..1250_usize]);
    (ends, rest).prop_map(|((side, host, port, remote), (kind, hops, class, data))| {
        let is_echo = matches!(kind, Kind::Echo | Kind::EchoReply);
        let far = if is_echo { port } else { 80 };
        let packet = Packet { kind, ports: (port, far), hops, class, data };
        let remote = REMOTE + remote;
        let bytes = match side {
            0 => packet.ipv6(HOSTS | host, embedded(remote)),
            _ => Packet { ports: (far, port), ..packet }.ipv4(remote, POOL, 7),
        };
        (side, bytes)
    })
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let pass = prop_oneof![8 => 0..2000_u64, 1 => 0..400_000_u64];
    let harm = (any::<prop::sample::Index>(), prop_oneof![9 => Just(0), 1 => any::<u8>()]);
    let missing = prop_oneof![19 => Just(0), 1 => 0..80_usize];
    (pass, packet(), harm, missing).prop_map(|(pass, (side, packet), harm, missing)| Arrival {
        pass,
        side,
        packet,
        harm,
        missing,
    })
}

/// All that a controller can read.
fn seen(machine: &Machine<'_>) -> String {
    let mut text = String::new();
    for table in ["upload", "download"] {
        text += &format!("{table} {:?}\n", machine.read(table).expect("it is there"));
    }
    for (counter, last) in [("drops", 18), ("subscriber_out", 8)] {
        let cells = (0..last).map(|index| machine.counter(counter, index).expect("it is there"));
        text += &format!("{counter} {:?}\n", cells.collect::<Vec<_>>());
    }
    text
}

/// Checks that no two internal endpoints have one external endpoint.
fn check_ports(machine: &Machine<'_>) {
    let upload = machine.read("upload").expect("it is there");
    let owned: BTreeSet<_> =
        upload.iter().map(|entry| (entry.keys[0].value, entry.args[1])).collect();
    assert_eq!(owned.len(), upload.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn the_nat_is_the_same(arrivals in prop::collection::vec(arrival(), 1..80)) {
        let program = nat64();
        let (_turn, mut machines) = all(&program);
        machines.iter_mut().for_each(|(_, machine)| fill(&program, machine, (4000, 4005)));
        let mut now = 0;
        for (number, arrival) in arrivals.iter().enumerate() {
            now += arrival.pass;
            let (now, port) = (Duration::from_millis(now), [INSIDE, OUTSIDE][arrival.side]);
            let mut expected = None;
            for (by, machine) in &mut machines {
                let is = machine.process(now, port, &arrival.frame());
                if let (Outcome::Sent { packet, .. }, false) = (&is, arrival.is_harmed()) {
                    prop_assert!(is_right(&packet[14..]), "{}, {}: {:?}", by, number, arrival);
                }
                let expected = expected.get_or_insert_with(|| is.clone());
                prop_assert_eq!(&is, &*expected, "{}, {}: {:?}", by, number, arrival);
            }
        }
        let expected = seen(&machines[0].1);
        check_ports(&machines[0].1);
        for (by, machine) in &machines[1..] {
            prop_assert_eq!(seen(machine), expected.as_str(), "{}", by);
        }
    }
}
