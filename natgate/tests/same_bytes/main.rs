//! The vectors through every back end: the same packets come out, byte for byte, as of `natgate
//! replay`, whichever way they come in and go out.
//!
//! A gateway runs here in simulated time, in a network namespace, on real devices; whatever is at
//! their other ends sends a vector's packets and answers ARP. What comes out at each instant is
//! compared with what the program makes of the same packets and seed offline. Needs root and the
//! programs that `make test` installs, and fails without.

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

/// Those that have to do with every kind of packet and with every way it can take; long silence,
/// which takes many turns, is left to the others.
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

/// What comes out: at which instant, nanoseconds since 1970, on which side, and the packets, in the
/// order of the alphabet.
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

/// The vector's configuration, and next hops for what is not directly connected.
fn settings(text: &str) -> Settings {
    let mut settings = config::parse(text, "config.toml").expect("the configuration is good");
    settings.inside.gateway = Some([10, 0, 0, 254].into());
    settings.outside.gateway = Some([192, 0, 2, 1].into());
    settings
}

/// What the program makes of a capture.
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

/// What a gateway on these devices makes of the same packets, at the same times.
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
    // What replay does when the capture has ended.
    let end = Timestamp(frames[frames.len() - 1].time());
    bench.pass_time_until(end);
    sorted(bench.output)
}

/// A gateway, what is at the other ends of its cables, and what has come out.
struct Bench {
    worker: Worker,
    links: [Link; 2],
    /// Frames that were sent to the gateway, by side.
    sent: [u64; 2],
    output: Output,
}

impl Bench {
    /// Has the gateway do what is due before a time.
    fn pass_time_until(&mut self, time: Timestamp) {
        loop {
            let due = self.worker.next_deadline();
            if due >= time {
                return;
            }
            self.settle(due);
        }
    }

    /// Turns at this time until nothing is under way.
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

    /// For who looks for what was lost.
    fn counts(&mut self, now: Timestamp) -> String {
        let [inside, outside] = self.worker.status(now).sides.map(|side| side.frames);
        let came = self.links.each_mut().map(Link::received);
        format!("sent {:?}, came {came:?}, {inside:?}, {outside:?}", self.sent)
    }

    /// Takes what has come out of one side, and answers ARP.
    fn take(&mut self, now: Timestamp, side: usize) -> usize {
        let (packets, answers, count) = self.links[side].receive();
        self.sent[side] += answers;
        if !packets.is_empty() {
            self.output.entry((now.0, side)).or_default().extend(packets);
        }
        count
    }

    /// Whether what was sent was received, here and there.
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

/// Nobody wants to know.
struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: &Event) {}

    fn link(&mut self, side: Side, link: &LinkInfo, change: &Change) {
        assert!(matches!(change, Change::Up), "{side:?} {link:?}: {change:?}");
    }

    fn status(&mut self, _: &Status<'_>) {}

    fn idle(&mut self) {}
}

/// What is expected and missing, and what came and is not expected.
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
