//! The vectors through every back end. The output packets equal those of `natgate replay`, byte for
//! byte, with every back end.
//!
//! A gateway runs here in simulated time, in a network namespace, on real devices. The test at
//! their other ends sends a vector's packets and answers ARP. It compares the output at each
//! instant with the offline output of the program for equal packets and seed. Needs root and the
//! programs that `make test` installs, and fails without them.

#[path = "../vectors/capture.rs"]
#[expect(dead_code, reason = "not all of it is needed here")]
mod capture;
mod links;
#[path = "../vectors/read.rs"]
mod read;
#[path = "../vectors/words.rs"]
mod words;
#[path = "../vectors/write.rs"]
mod write;

use links::{BackEnd, Link};
use natgate_control::config;
use natgate_engine::{Event, Side, Timestamp};
use natgate_gateway::{Observer, Settings, Status, Worker};
use natgate_io::{Change, LinkInfo};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors");

/// Vectors with every kind of packet and every path. Vectors with long silence take many turns and
/// are omitted.
const CASES: [&str; 23] = [
    "bypass",
    "fragments",
    "fragments-malformed",
    "fragments-overlap",
    "hairpin-icmp-errors",
    "hairpin-tcp",
    "hairpin-udp",
    "icmp-errors-inbound",
    "icmp-errors-outbound",
    "icmp-query",
    "ip-options",
    "local",
    "mtu",
    "output-fragments",
    "port-parity",
    "port-quota",
    "snat-rule",
    "tcp-reset",
    "tcp-timeouts",
    "tcp-unsolicited-syn",
    "timeouts",
    "ttl",
    "udp-checksums",
];

/// Long enough for any machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Output: the instant, nanoseconds since 1970; the side; and the packets, in alphabetical order.
type Output = BTreeMap<(u64, usize), Vec<Vec<u8>>>;

#[test]
fn packet_sockets() {
    all_cases(BackEnd::AfPacket);
}

#[test]
fn packet_sockets_for_rate() {
    all_cases(BackEnd::AfPacketRate);
}

#[test]
fn af_xdp() {
    all_cases(BackEnd::AfXdp);
}

#[test]
fn tun() {
    all_cases(BackEnd::Tun);
}

#[cfg(feature = "dpdk")]
#[test]
fn dpdk() {
    all_cases(BackEnd::Dpdk);
}

fn all_cases(kind: BackEnd) {
    links::enter_namespace();
    let mut failures = String::new();
    let mut packets = 0;
    for name in CASES {
        let folder = Path::new(VECTORS).join(name);
        let text = std::fs::read_to_string(folder.join("in.txt")).expect("the vector is there");
        let in_pieces = text.contains(" part=") || text.contains(" frag=");
        if in_pieces && !kind.passes_pieces() {
            continue;
        }
        let input = capture::from_text(&text).expect("the vector can be read");
        let expected = replayed(kind, name, &input);
        let config = std::fs::read_to_string(folder.join("config.toml")).expect("it is there");
        let came = live(kind, &settings(&config), &input);
        packets += came.values().map(Vec::len).sum::<usize>();
        if came != expected {
            failures += &format!("{name}:\n{}", difference(&expected, &came));
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
    assert!(packets > 100, "only {packets} packets came out");
}

/// The vector's configuration, with next hops for addresses that are not directly connected.
fn settings(text: &str) -> Settings {
    let mut settings = config::parse(text, "config.toml").expect("the configuration is good");
    settings.inside.gateway = Some([10, 0, 0, 254].into());
    settings.outside.gateway = Some([192, 0, 2, 1].into());
    settings
}

/// Output of the program for a capture.
fn replayed(kind: BackEnd, name: &str, input: &[u8]) -> Output {
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("same-bytes-{kind:?}-{name}"));
    std::fs::create_dir_all(&work).expect("a folder to work in");
    let (from, to) = (work.join("in.pcapng"), work.join("out.pcapng"));
    std::fs::write(&from, input).expect("the capture can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_natgate"));
    command.arg("replay").arg("-c").arg(Path::new(VECTORS).join(name).join("config.toml"));
    let output = command.arg("--in").arg(&from).arg("--out").arg(&to).output().expect("it runs");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::read(&to).expect("it has written");
    std::fs::remove_dir_all(&work).expect("the folder can be removed");
    let mut expected = Output::new();
    for frame in capture::frames(&bytes, None) {
        expected.entry((frame.time(), frame.side)).or_default().push(frame.packet().to_vec());
    }
    sorted(expected)
}

fn sorted(mut output: Output) -> Output {
    output.values_mut().for_each(|packets| packets.sort());
    output
}

/// Output of a gateway on these devices for equal packets at equal times.
fn live(kind: BackEnd, settings: &Settings, input: &[u8]) -> Output {
    let frames = capture::frames(input, None);
    let begin = Timestamp(frames[0].time());
    let (devices, links) = links::open(kind);
    let mut bench = Bench {
        worker: Worker::new(settings, [0; 32], devices, begin).expect("the settings are good"),
        links,
        sent: [0; 2],
        output: Output::new(),
    };
    for frame in &frames {
        let time = Timestamp(frame.time());
        bench.pass_time_until(time);
        bench.links[frame.side].send(frame.packet());
        bench.sent[frame.side] += 1;
        bench.settle(time);
    }
    // Replay does this at the end of a capture.
    let end = Timestamp(frames[frames.len() - 1].time());
    bench.pass_time_until(end);
    sorted(bench.output)
}

/// A gateway, the other ends of its cables, and the output.
struct Bench {
    worker: Worker,
    links: [Link; 2],
    /// Frames sent to the gateway, by side.
    sent: [u64; 2],
    output: Output,
}

impl Bench {
    /// Lets the gateway do all work that is due before a time.
    fn pass_time_until(&mut self, time: Timestamp) {
        loop {
            let due = self.worker.next_deadline();
            if due >= time {
                return;
            }
            self.settle(due);
        }
    }

    /// Runs turns at this time until no packet is in flight.
    fn settle(&mut self, now: Timestamp) {
        let begin = Instant::now();
        let mut idle = 0;
        while idle < 2 {
            assert!(begin.elapsed() < PATIENCE, "frames are lost: {}", self.counts(now));
            let received = self.worker.turn(now, &mut Silent);
            let mut came = 0;
            for side in 0..2 {
                came += self.take(now, side);
            }
            let quiet = received == 0 && came == 0 && self.nothing_is_under_way(now);
            idle = if quiet { idle + 1 } else { 0 };
        }
    }

    /// Counters for a message about lost frames.
    fn counts(&mut self, now: Timestamp) -> String {
        let [inside, outside] = self.worker.status(now).sides.map(|side| side.frames);
        let came = self.links.each_mut().map(Link::received);
        format!("sent {:?}, came {came:?}, {inside:?}, {outside:?}", self.sent)
    }

    /// Takes the output of one side, and answers ARP.
    fn take(&mut self, now: Timestamp, side: usize) -> usize {
        let (packets, answers, count) = self.links[side].receive();
        self.sent[side] += answers;
        if !packets.is_empty() {
            self.output.entry((now.0, side)).or_default().extend(packets);
        }
        count
    }

    /// Returns true if all sent frames have been received, at both ends.
    fn nothing_is_under_way(&mut self, now: Timestamp) -> bool {
        let sides = self.worker.status(now).sides;
        let mut counts = self.links.iter_mut().zip(&self.sent).zip(&sides);
        counts.all(|((link, sent), side)| {
            let frames = &side.frames;
            assert_eq!((frames.transmit_full, frames.transmit_refused), (0, 0), "{frames:?}");
            link.is_synchronous()
                || frames.received == *sent && frames.transmitted == link.received()
        })
    }
}

/// An observer that requires links to stay up.
struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: &Event) {}

    fn link(&mut self, side: Side, link: &LinkInfo, change: &Change) {
        assert!(matches!(change, Change::Up), "{side:?} {link:?}: {change:?}");
    }

    fn status(&mut self, _: &Status<'_>) {}

    fn idle(&mut self) {}
}

/// Missing and unexpected packets, as text.
fn difference(expected: &Output, came: &Output) -> String {
    let lines = |output: &Output| -> Vec<String> {
        let line = |(time, side): &(u64, usize), packet: &Vec<u8>| {
            let time = (*time - capture::BEGIN * 1_000_000_000) as f64 / 1e9;
            format!("{time:.6} {} {}\n", ["inside", "outside"][*side], read::packet(packet))
        };
        let all = output.iter();
        all.flat_map(|(key, packets)| packets.iter().map(move |packet| line(key, packet))).collect()
    };
    let (expected, came) = (lines(expected), lines(came));
    let missing = expected.iter().filter(|line| !came.contains(line)).map(|line| ("-", line));
    let odd = came.iter().filter(|line| !expected.contains(line)).map(|line| ("+", line));
    missing.chain(odd).map(|(sign, line)| format!("  {sign} {line}")).collect()
}
