//! `natgate p4 replay`: frames with ports and times at input and output.

use super::bench::*;
use natgate_io::pcap::LinkType;
use serde_json::json;
use std::net::Ipv4Addr;

const NAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/nat.p4");
const NAT_ENTRIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/nat.toml");
const LINKS: [LinkType; 2] = [LinkType::ETHERNET; 2];

/// Path of a program of the compiler's tests.
fn small(name: &str) -> String {
    format!("{}/../p4/examples/programs/{name}.p4", env!("CARGO_MANIFEST_DIR"))
}

/// Three numbers and the bytes behind them, in the format of the small programs.
fn words(a: u16, b: u16, c: u32, rest: &[u8]) -> Vec<u8> {
    [&a.to_be_bytes()[..], &b.to_be_bytes(), &c.to_be_bytes(), rest].concat()
}

/// Output of a program; the run must succeed.
fn through(directory: &Directory, program: &str, capture: &[u8], more: &[&str]) -> Vec<Packet> {
    directory.write("in", capture);
    let files = ["p4", "replay", program, "--in", "in", "--out", "out", "--stats", "stats"];
    assert_succeeded(&directory.natgate(&[&files[..], more].concat()).output().unwrap());
    packets(&directory.read("out"))
}

#[test]
fn frames_leave_by_the_interface_of_their_port() {
    let directory = Directory::new("p4-ports");
    // The first number is the output port.
    let came = [
        packet(0, 0, words(2, 0, 0, b"rest")),
        packet(1, 5, words(1, 0, 0, b"")),
        packet(1, 6, words(2, 0, 0, b"")),
        packet(0, 7, words(9, 0, 0, b"")),
        packet(0, 8, words(0, 0, 0, b"")),
    ];
    let left = through(&directory, &small("ports"), &capture(&LINKS, &came), &[]);
    assert_eq!(
        left,
        [
            packet(1, 0, words(2, 1, 12, b"rest")),
            packet(0, 5, words(1, 2, 8, b"")),
            packet(1, 6, words(2, 2, 8, b"")),
        ]
    );
    let counts = json!({ "received": 5, "sent": 3, "dropped": 1, "elsewhere": 1 });
    assert_eq!(directory.json("stats"), counts);
    let described = interfaces(&directory.read("out"));
    let names = described.iter().map(|interface| interface.name.as_deref().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), [&b"inside"[..], b"outside"]);

    let [inside, outside] = [0, 1]
        .map(|side| came.iter().filter(|one| one.interface == side).cloned().collect::<Vec<_>>());
    directory.write("inside", &classic(1, &inside));
    directory.write("outside", &classic(1, &outside));
    let pair = ["p4", "replay", &small("ports"), "--inside", "inside", "--outside", "outside"];
    let output = directory.natgate(&[&pair[..], &["--out", "merged"]].concat()).output().unwrap();
    assert_succeeded(&output);
    let ways = |packets: &[Packet]| -> Vec<_> {
        packets.iter().map(|one| (one.interface, one.frame.clone())).collect()
    };
    assert_eq!(ways(&packets(&directory.read("merged"))), ways(&left));
}

#[test]
fn the_programs_time_is_that_of_the_capture() {
    let directory = Directory::new("p4-times");
    let entries = "[[profile]]\nnumber = 3\nseconds = 10\n";
    directory.write("entries.toml", entries.as_bytes());
    // A learned entry lives for ten seconds after its latest use.
    let at = |seconds: u64, b| packet(0, seconds * SECOND, words(1, b, 0, b""));
    let came = capture(&LINKS, &[at(0, 7), at(5, 8), at(14, 9), at(24, 9)]);
    let left = through(&directory, &small("add_on_miss"), &came, &["--entries", "entries.toml"]);
    let last = left.iter().map(|one| one.frame[7]).collect::<Vec<_>>();
    assert_eq!(last, [1, 7, 7, 1]);
    assert_eq!(left[2].time, START + 14 * SECOND);
}

#[test]
fn messages_to_controllers_are_lines() {
    let directory = Directory::new("p4-digests");
    let came = capture(&LINKS, &[packet(0, SECOND, words(0x1234, 5, 0, b""))]);
    through(&directory, &small("digests"), &came, &["--digests", "digests"]);
    let line = json!({
        "time": 1_700_000_001.0, "digest": "Main.news", "fields": { "a": 0x1234, "n": 5 }
    });
    assert_eq!(directory.events("digests"), [line]);
}

/// The NAT with its example of entries: the interpreter and Rust write equal bytes, and an answer
/// is translated back.
#[test]
fn the_nat_translates_captures() {
    const EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
    let directory = Directory::new("p4-nat");
    let framed = |destination: u8, source: u8, packet: Vec<u8>| {
        let mac = |last| [2, 0, 0, 0, 0, last];
        [&mac(destination)[..], &mac(source), &[8, 0], &packet].concat()
    };
    let request = framed(1, 0x11, udp(SUBSCRIBER, SERVER, b"question"));
    let came = capture(&LINKS, &[packet(0, 0, request.clone())]);
    let with = |by| ["--entries", NAT_ENTRIES, "--with", by];
    let left = through(&directory, NAT, &came, &with("interpreter"));
    let bytes = directory.read("out");
    let [asked] = &left[..] else { panic!("{left:?}") };
    let (external, server) = endpoints(&asked.frame[14..]);
    assert_eq!((external.0, server, asked.interface), (EXTERNAL, SERVER, 1));
    assert_eq!(through(&directory, NAT, &came, &with("rust")), left);
    assert_eq!(directory.read("out"), bytes);

    let answer = framed(2, 0x22, udp(SERVER, external, b"answer"));
    let both = capture(&LINKS, &[packet(0, 0, request), packet(1, SECOND, answer)]);
    let left = through(&directory, NAT, &both, &with("rust"));
    assert_eq!((left.len(), left[1].interface), (2, 0));
    assert_eq!(endpoints(&left[1].frame[14..]), (SERVER, SUBSCRIBER));
}

#[test]
fn what_cannot_be_replayed_is_refused() {
    let directory = Directory::new("p4-refused");
    let program = small("ports");
    let run = |arguments: &[&str]| {
        let all = [&["p4", "replay", &program][..], arguments].concat();
        directory.natgate(&all).output().unwrap()
    };
    directory.write("mixed", &capture(&[LinkType::ETHERNET, LinkType::RAW], &[]));
    let text = refusal(&run(&["--in", "mixed", "--out", "out"]));
    assert!(text.contains("different link types"), "{text}");
    directory.write("in", &capture(&LINKS, &[packet(0, 0, words(2, 0, 0, b""))]));
    let text = refusal(&run(&["--in", "in", "--out", "in"]));
    assert!(text.contains("named for something else too"), "{text}");
    let text = refusal(&run(&["--in", "in", "--out", "out", "--entry", "t 1 a"]));
    assert!(text.contains("there is no one table `t`"), "{text}");
    // The output has all packets before the damage.
    let whole = directory.read("in");
    directory.write("cut", &[&whole[..], &whole[..9]].concat());
    let text = refusal(&run(&["--in", "cut", "--out", "out"]));
    assert!(text.contains("cut: damaged at byte offset "), "{text}");
    assert_eq!(packets(&directory.read("out")).len(), 1);
}
