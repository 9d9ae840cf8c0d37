//! Floods of fragments, while a victim's datagrams pass in pieces: in order, and last piece first.
//! Each flood lasts four seconds at 10,000 packets a second, two lifetimes of the table of
//! datagrams. The memory stays within `limits.fragment_memory`.

use crate::common::*;
use crate::world::*;
use natgate_engine::{DropReason, Side, Verdict};
use natgate_wire::Ipv4;
use std::time::Duration;

const FLOOD: u32 = 40_000;
/// Packets of the flood between two datagrams of the victim each way.
const PACE: u32 = 100;
const MEMORY: u64 = 16 << 20;

/// The victim's datagrams that came out whole, in percent of those sent.
#[derive(Debug, PartialEq)]
struct Share {
    in_order: u32,
    last_first: u32,
}

const ALL: Share = Share { in_order: 100, last_first: 100 };

/// A victim, two ways of its datagrams, and the number that pass.
struct FragmentFlood {
    lab: Lab,
    external: String,
    sent: u32,
    in_order: u32,
    last_first: u32,
    received_bytes: u64,
    most_waiting: u64,
}

impl FragmentFlood {
    fn new() -> Self {
        let config = config();
        assert_eq!(config.limits.fragment_memory as u64, MEMORY);
        let mut lab = Lab::new(&config);
        let external = lab.external_of(&udp(VICTIM, REMOTE));
        let received_bytes = settled_bytes(&lab);
        Self { lab, external, sent: 0, in_order: 0, last_first: 0, received_bytes, most_waiting: 0 }
    }

    /// Feeds a packet. Returns the number of packets that leave because of it, itself included.
    fn feed(&mut self, from: Side, packet: &[u8]) -> usize {
        self.received_bytes += packet.len() as u64;
        let passed = usize::from(passes(&mut self.lab, from, packet));
        let released = self.lab.sent.len();
        self.lab.sent.clear();
        self.most_waiting = self.most_waiting.max(self.received_bytes - settled_bytes(&self.lab));
        passed + released
    }

    /// Sends the victim's datagrams of three pieces, in and out, in order and last piece first.
    fn victim(&mut self) {
        let identification = self.sent as u16;
        let ways = [
            (Side::Inside, udp_with(VICTIM, REMOTE, &[7; 3000])),
            (Side::Outside, udp_with(REMOTE, &self.external.clone(), &[7; 3000])),
        ];
        for (from, datagram) in ways {
            let [first, second, third] = [(0, 1400), (1400, 2800), (2800, 3008)]
                .map(|(start, end)| part(&datagram, identification, start, end));
            let counted: usize =
                [&first, &second, &third].map(|piece| self.feed(from, piece)).iter().sum();
            self.in_order += u32::from(counted == 3);
            let reversed = [&third, &second, &first].map(|piece| {
                let mut other = piece.clone();
                other[4] ^= 0x80;
                fill_header_checksum(&mut other);
                other
            });
            let counted: usize = reversed.map(|piece| self.feed(from, &piece)).iter().sum();
            self.last_first += u32::from(counted == 3);
            self.sent += 1;
        }
    }

    /// Runs a flood from a side while the victim continues. `packets` makes the flood.
    fn flood(
        mut self,
        name: &str,
        from: Side,
        mut packets: impl FnMut(u32) -> Vec<Vec<u8>>,
    ) -> Share {
        for n in 0..FLOOD {
            for packet in packets(n) {
                self.feed(from, &packet);
            }
            if n % PACE == 0 {
                self.victim();
            }
            self.lab.wait(Duration::from_micros(100));
        }
        let percent = |passed: u32| passed * 100 / self.sent;
        let share =
            Share { in_order: percent(self.in_order), last_first: percent(self.last_first) };
        println!("{name}: {share:?}, at most {} KiB waiting", self.most_waiting / 1024);
        assert!(self.most_waiting <= MEMORY, "{} bytes wait", self.most_waiting);
        // Nothing of the flood remains after its end.
        self.lab.wait_s(3.0);
        assert_eq!(settled_bytes(&self.lab), self.received_bytes, "all are sent or dropped");
        for n in 0..4 {
            let (in_order, last_first) = (self.in_order, self.last_first);
            self.sent = 30_000 + n;
            self.victim();
            assert_eq!((self.in_order, self.last_first), (in_order + 2, last_first + 2));
        }
        share
    }
}

/// Senders of the flood: one host, or a forged source for each packet.
#[derive(Clone, Copy, Debug)]
enum Senders {
    One,
    Many,
}

impl Senders {
    fn source(self, n: u32) -> String {
        match self {
            Self::One => "192.0.2.66:6666".into(),
            Self::Many => format!("100.{}.{}.{}:6666", 70 + (n >> 16), n >> 8 & 0xff, n & 0xff),
        }
    }
}

/// A datagram to a port without a mapping, so that its first fragment is refused.
fn stray(senders: Senders, n: u32) -> Vec<u8> {
    udp_with(&senders.source(n), "203.0.113.1:80", &[6; 3000])
}

/// A fragment of 1400 bytes from a place in a stray datagram's payload.
fn piece(senders: Senders, n: u32, start: usize, more: bool) -> Vec<u8> {
    fragment(&stray(senders, n), (n % 60_000) as u16, start, &[6; 1400], more)
}

/// Makes a flood's packets, by their number.
type Packets = fn(Senders, u32) -> Vec<Vec<u8>>;

/// Kinds of flood whose datagrams cannot be completed.
fn kinds() -> [(&'static str, Packets); 7] {
    [
        ("first fragments", |senders, n| vec![part(&stray(senders, n), n as u16, 0, 1400)]),
        ("later fragments", |senders, n| vec![piece(senders, n, 1400, false)]),
        ("teardrop", |senders, n| {
            let header = stray(senders, n);
            let half =
                |start, len, more| fragment(&header, n as u16, start, &[6; 600][..len], more);
            vec![half(16, 600, true), half(24, 4, false)]
        }),
        ("tiny", |senders, n| {
            let header = stray(senders, n);
            let id = n as u16;
            vec![fragment(&header, id, 0, &[], true), fragment(&header, id, 8, &[6; 7], true)]
        }),
        ("ping of death", |senders, n| vec![piece(senders, n, 65_528, false)]),
        ("more pieces than may be", |senders, n| {
            // One datagram for each 200 packets.
            vec![fragment(&stray(senders, n / 200), 7, 8 + 8 * (n % 200) as usize, &[6; 8], true)]
        }),
        ("repetitions", |senders, n| vec![piece(senders, n / 100, 1400, false)]),
    ]
}

//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_fragments_from_one_host_costs_others_nothing() {
    for (name, packets) in kinds() {
        let share = FragmentFlood::new().flood(name, Side::Outside, |n| packets(Senders::One, n));
        assert_eq!(share, ALL, "{name}");
    }
}

/// A flood from many forged sources. Datagrams in order pass. Fragments that must wait for their
/// first find the memory, or their half of the table, full.
//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_fragments_from_many_hosts_costs_nothing_that_comes_in_order() {
    for (name, packets) in kinds() {
        let share = FragmentFlood::new().flood(name, Side::Outside, |n| packets(Senders::Many, n));
        assert_eq!(share.in_order, 100, "{name}");
        let spared = matches!(name, "tiny" | "more pieces than may be" | "repetitions");
        let expected = if spared { 100..=100 } else { 35..=50 };
        assert!(expected.contains(&share.last_first), "{name}: {share:?}");
    }
}

/// Translated first fragments take places in the table too, for two seconds if nothing follows. For
/// any number of senders, through a mapping that admits them or from inside, some places stay free
/// for a host without one.
//= test rfc4787#REQ-14a
#[test]
fn a_flood_of_translated_first_fragments_costs_nothing_that_comes_in_order() {
    for hosts in [1, 8, 60] {
        let scene = FragmentFlood::new();
        let external = scene.external.clone();
        let share = scene.flood(&format!("translated, from {hosts} outside"), Side::Outside, |n| {
            let header = udp_with(&format!("100.70.0.{}:80", 1 + n % hosts), &external, &[6; 3000]);
            vec![part(&header, (n / hosts) as u16, 0, 1400)]
        });
        assert_eq!(share.in_order, 100);
        let share = FragmentFlood::new().flood(
            &format!("translated, from {hosts} inside"),
            Side::Inside,
            |n| {
                let header =
                    udp_with(&format!("10.0.1.{}:4000", 1 + n % hosts), REMOTE, &[6; 3000]);
                vec![part(&header, (n / hosts) as u16, 0, 1400)]
            },
        );
        assert_eq!(share.in_order, 100);
    }
}

/// A flood with a host's own forged address takes that host's share, an eighth. This host's
/// datagrams suffer, other hosts' do not.
#[test]
fn a_flood_in_the_name_of_a_host_costs_that_host_its_fragments() {
    let header = udp_with(REMOTE, "203.0.113.1:80", &[6; 3000]);
    let mut scene = FragmentFlood::new();
    for n in 0..10_000_u32 {
        let identification = 0x4000 | n as u16;
        scene.feed(Side::Outside, &fragment(&header, identification, 1400, &[6; 400], false));
        scene.lab.wait(Duration::from_micros(100));
    }
    let counted = dropped(&scene.lab, DropReason::FragmentLimit);
    assert!(counted > 5000, "{counted}");
    let external = scene.external.clone();
    let own = udp_with(REMOTE, &external, &[7; 3000]);
    assert_eq!(scene.feed(Side::Outside, &part(&own, 1, 0, 1400)), 0);
    let other = udp_with("198.51.100.8:80", &external, &[7; 3000]);
    assert_eq!(scene.feed(Side::Outside, &part(&other, 1, 0, 1400)), 1);
    // Whole datagrams of that host pass, and fragments pass again two seconds later.
    assert_eq!(scene.feed(Side::Outside, &udp(REMOTE, &external)), 1);
    scene.lab.wait_s(2.2);
    assert_eq!(scene.feed(Side::Outside, &part(&own, 2, 0, 1400)), 1);
}

/// A forged piece of a datagram under way needs the right identification of 16 bits. The datagram
/// is then lost, not changed: no two pieces that leave share a byte.
#[test]
fn a_forged_piece_discards_a_datagram_and_never_replaces_a_part_of_it() {
    let mut lab = Lab::new(&config());
    let external = lab.external_of(&udp(VICTIM, REMOTE));
    let datagram = udp_with(REMOTE, &external, &[7; 3000]);
    let forged = udp_with(REMOTE, &external, &[0xee; 3000]);
    // In place of the second piece, before it, across it and the first, or instead of the first.
    for (n, (start, end)) in [(1400, 2800), (1408, 2800), (8, 1408), (0, 1408)].iter().enumerate() {
        let identification = 100 + n as u16;
        let mut covered = vec![0_u32; 3008];
        for packet in [
            part(&datagram, identification, 0, 1400),
            part(&forged, identification, *start, *end),
            part(&datagram, identification, 1400, 2800),
            part(&datagram, identification, 2800, 3008),
        ] {
            if let (Verdict::Forward(_), bytes) = lab.pass(Side::Outside, &packet) {
                let header = Ipv4::new_checked(&bytes[..]).unwrap();
                let start = header.fragment_offset();
                covered[start..start + header.payload().len()].iter_mut().for_each(|n| *n += 1);
            }
        }
        assert!(covered.iter().all(|&n| n <= 1), "piece {start}..{end}");
    }
    // One of 65,536 identifications is right. 8,000 wrong ones change nothing.
    assert!(passes(&mut lab, Side::Outside, &part(&datagram, 7, 0, 1400)));
    for identification in 1000..9000 {
        passes(&mut lab, Side::Outside, &part(&forged, identification, 1408, 2808));
    }
    assert!(passes(&mut lab, Side::Outside, &part(&datagram, 7, 1400, 2800)));
    assert!(passes(&mut lab, Side::Outside, &part(&datagram, 7, 2800, 3008)));
}
