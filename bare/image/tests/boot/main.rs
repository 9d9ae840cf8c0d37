//! The image in an emulator: the vectors through it, byte for byte, with each kind of card; random
//! frames; a large table; the menu; failures; booting from a USB stick. Needs the programs that
//! `make test` installs, and fails without them.

#[path = "../../../../natgate/tests/vectors/capture.rs"]
#[expect(dead_code, reason = "not all of it is needed here")]
mod capture;
mod ipv6;
mod machine;
mod p4;
#[path = "../../../../natgate/tests/vectors/read.rs"]
mod read;
mod status_client;
mod usb;
#[path = "../../../../natgate/tests/vectors/words.rs"]
mod words;
mod workers;
#[path = "../../../../natgate/tests/vectors/write.rs"]
mod write;

use machine::Machine;
use natgate_control::config;
use natgate_engine::Event;
use natgate_gateway::ipv6::Translator;
use natgate_gateway::replay::{self, Flush, Input};
use natgate_io::pcap::Capture;

use natgate_timings::{Fill, ROOM, Size, Timing};
use natgate_wire::{Ipv4, protocol};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors");

/// Fast cases with every kind of packet and every path.
const CASES: [&str; 14] = [
    "bypass",
    "filtering-address-and-port-dependent",
    "hairpin-icmp-errors",
    "hairpin-udp",
    "icmp-extensions",
    "ip-options",
    "local",
    "malformed",
    "martians",
    "portless",
    "snat-rule",
    "static-address",
    "ttl",
    "udp-checksums",
];

/// Configuration of all other tests.
const CONFIGURATION: &str = "\
    [inside]\ndevice = \"eth0\"\naddress = \"10.0.0.1/16\"\n\
    [outside]\ndevice = \"eth1\"\naddress = \"192.0.2.254/24\"\ngateway = \"192.0.2.1\"\n\
    [[pool]]\naddresses = [\"203.0.113.0/30\"]\n\
    [limits]\nnew_mappings_per_second = 100000\n";

/// Packets that come out of each side.
type Output = [Vec<Vec<u8>>; 2];

#[test]
fn vectors_by_e1000() {
    all_cases("e1000");
}

#[test]
fn vectors_by_e1000e() {
    all_cases("e1000e");
}

#[test]
fn vectors_by_virtio() {
    all_cases("virtio-net-pci");
}

fn all_cases(card: &str) {
    cases_agree(&CASES, 50, |name, configuration, input| {
        let configuration = configuration
            .replace("\"inside0\"", "\"eth0\"\ngateway = \"10.0.0.254\"")
            .replace("\"outside0\"", "\"eth1\"\ngateway = \"192.0.2.1\"");
        let machine = Machine::start(name, card, &configuration, "seed=0");
        live(&machine, input)
    });
}

/// Compares the output of the image, which `live` returns for a vector's name, configuration and
/// capture, with that of `natgate replay`. More than `fewest` packets must come out in all.
fn cases_agree(names: &[&str], fewest: usize, live: impl Fn(&str, &str, &[u8]) -> Output) {
    let mut failures = String::new();
    let mut packets = 0;
    for name in names {
        let folder = Path::new(VECTORS).join(name);
        let text = |file| std::fs::read_to_string(folder.join(file)).expect("the vector is there");
        let input = capture::from_text(&text("in.txt")).expect("the vector can be read");
        let configuration = text("config.toml");
        let expected = sorted(replayed(&configuration, &input));
        let came = sorted(live(name, &configuration, &input));
        packets += came.iter().map(Vec::len).sum::<usize>();
        if came != expected {
            failures += &format!("{name}:\n{}", difference(&expected, &came));
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
    assert!(packets > fewest, "only {packets} packets came out");
}

/// Output of `natgate replay` for a capture.
fn replayed(configuration: &str, input: &[u8]) -> Output {
    struct Silent;
    impl replay::Observer for Silent {
        fn event(&mut self, _: &Event, _: Option<&Translator>) -> io::Result<()> {
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let settings = config::parse(configuration, "config.toml").expect("it is good");
    let mut bytes = Vec::new();
    let capture = Input::single(Capture::new(input));
    let report = replay::replay(&settings, [0; 32], capture, &mut bytes, &mut Silent, Flush::AtEnd);
    report.end.expect("the capture is whole");
    let mut output = Output::default();
    for frame in capture::frames(&bytes, None) {
        output[frame.side].push(frame.packet().to_vec());
    }
    output
}

/// Output of the image for the packets of a capture at the same times.
fn live(machine: &Machine, input: &[u8]) -> Output {
    let frames = capture::frames(input, None);
    let mut output = Output::default();
    let begin = Instant::now();
    for frame in &frames {
        let due = Duration::from_nanos(frame.time() - frames[0].time());
        std::thread::sleep(due.saturating_sub(begin.elapsed()));
        machine.send(frame.side, frame.packet());
        for (all, some) in output.iter_mut().zip(machine.settle()) {
            all.extend(some);
        }
    }
    output
}

fn sorted(mut output: Output) -> Output {
    output.iter_mut().for_each(|packets| packets.sort());
    output
}

/// Missing and unexpected packets, as text.
fn difference(expected: &Output, came: &Output) -> String {
    let mut text = String::new();
    for (side, name) in ["inside", "outside"].iter().enumerate() {
        let (expected, came) = (&expected[side], &came[side]);
        let missing = expected.iter().filter(|packet| !came.contains(packet)).map(|p| ("-", p));
        let odd = came.iter().filter(|packet| !expected.contains(packet)).map(|p| ("+", p));
        for (sign, packet) in missing.chain(odd) {
            text += &format!("  {sign} {name} {}\n", read::packet(packet));
        }
    }
    text
}

/// A UDP datagram without a checksum.
fn datagram(source: (u32, u16), destination: (u32, u16)) -> Vec<u8> {
    let mut bytes = vec![0; 28];
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(28);
    header.set_ttl(64);
    header.set_protocol(protocol::UDP);
    header.set_source(source.0);
    header.set_destination(destination.0);
    header.fill_checksum();
    bytes[20..22].copy_from_slice(&source.1.to_be_bytes());
    bytes[22..24].copy_from_slice(&destination.1.to_be_bytes());
    bytes[24..26].copy_from_slice(&8_u16.to_be_bytes());
    bytes
}

/// Returns true if a host's datagram goes out and the answer comes back to it.
fn passes(machine: &Machine, host: (u32, u16)) -> bool {
    let remote = (0xc633_6401, 53);
    machine.send(0, &datagram(host, remote));
    let [_, out] = machine.settle();
    let Some(out) = out.first().and_then(|packet| Ipv4::new_checked(&packet[..]).ok()) else {
        return false;
    };
    let port = u16::from_be_bytes([out.payload()[0], out.payload()[1]]);
    machine.send(1, &datagram(remote, (out.source(), port)));
    let [back, _] = machine.settle();
    let back = back.first().and_then(|packet| Ipv4::new_checked(&packet[..]).ok());
    back.is_some_and(|back| {
        let port = u16::from_be_bytes([back.payload()[2], back.payload()[3]]);
        (back.destination(), port) == host
    })
}

/// Random numbers from a seed (splitmix64).
struct Numbers(u64);

impl Numbers {
    /// Random numbers from a new seed, which is printed.
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = std::env::var("NATGATE_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(|| now.expect("it is after 1970").as_nanos() as u64);
        println!("NATGATE_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> usize {
        (self.next() % end) as usize
    }
}

/// Random bytes of any length from the shortest frame to the longest. Some begin like frames to the
/// gateway.
fn garbage(numbers: &mut Numbers) -> Vec<u8> {
    let len = 14 + numbers.below(1501);
    let mut frame: Vec<u8> = (0..len).map(|_| numbers.next() as u8).collect();
    let kind = [[8, 0], [8, 6], [0x81, 0], [0x86, 0xdd]][numbers.below(4)];
    if numbers.below(4) > 0 {
        frame[..6].fill(0xff);
        frame[6] &= 0xfe;
        frame[12..14].copy_from_slice(&kind);
    }
    if numbers.below(2) > 0 {
        frame[..6].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 1 + (numbers.0 & 1) as u8]);
    }
    if numbers.below(2) > 0 && len > 34 {
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    }
    frame
}

/// Time of random frames for each kind of card.
fn garbage_time() -> Duration {
    let said = std::env::var("NATGATE_GARBAGE_SECONDS").ok();
    Duration::from_secs(said.map_or(3, |text| text.parse().expect("it is a number of seconds")))
}

#[test]
fn garbage_on_both_cards_does_no_harm() {
    for card in ["e1000", "e1000e", "virtio-net-pci", "virtio-net-pci,disable-legacy=on"] {
        let machine = Machine::start("garbage", card, CONFIGURATION, "");
        let mut numbers = Numbers::new();
        let (begin, mut frames) = (Instant::now(), 0);
        // A minimum number of frames is sent even on a busy machine.
        while frames < 1000 || begin.elapsed() < garbage_time() {
            for _ in 0..100 {
                let frame = garbage(&mut numbers);
                machine.send_frame(numbers.below(2), &frame);
            }
            frames += 100;
            if frames % 2000 == 0 {
                machine.settle();
            }
        }
        machine.settle();
        println!("{card}: {frames} frames of garbage");
        assert!(passes(&machine, (0x0a00_0005, 4000)), "{card}: nothing passes any more");
    }
}

#[test]
fn cables_may_be_pulled_and_plugged_in_again() {
    for card in ["e1000", "e1000e", "virtio-net-pci"] {
        let mut machine = Machine::start("cables", card, CONFIGURATION, "");
        for (side, name) in ["Inside: eth0 ", "Outside: eth1 "].into_iter().enumerate() {
            assert!(passes(&machine, (0x0a00_0005, 4000)), "{card}");
            machine.plug(side, false);
            let line = machine.wait_for(name);
            assert!(line.ends_with(" down"), "{card}: {line}");
            // No host waits for packets that are lost now.
            for _ in 0..100 {
                machine.send(0, &datagram((0x0a00_0006, 4001), (0xc633_6401, 53)));
            }
            machine.plug(side, true);
            let line = machine.wait_for(name);
            assert!(line.ends_with(" up"), "{card}: {line}");
            machine.settle();
        }
        assert!(passes(&machine, (0x0a00_0005, 4000)), "{card}");
    }
}

#[test]
fn a_hundred_thousand_mappings_live_at_once() {
    let mut machine = Machine::start("table", "e1000", CONFIGURATION, "");
    // This resolves the next hop.
    assert!(passes(&machine, (0x0a00_0005, 4000)));
    let wanted = 100_000;
    let mut out = 0;
    for number in 0..wanted {
        let host = 0x0a00_0100 + number / 500;
        let source = (host, 10_000 + (number % 500) as u16);
        machine.send(0, &datagram(source, (0xc633_6401, 53)));
        if number % 100 == 99 {
            out += machine.settle()[1].len();
        }
    }
    assert_eq!(out, wanted as usize);
    machine.press("n");
    let line = machine.wait_for("mappings  ");
    assert!(line.starts_with("mappings  100001 of "), "{line}");
}

#[test]
fn events_are_told_to_collectors_on_both_sides() {
    let collectors = [(0, 0x0a00_0900_u32), (1, 0xc633_6463)];
    let logs: String = collectors
        .iter()
        .map(|(_, address)| {
            let address = std::net::Ipv4Addr::from(*address);
            format!("[[log]]\nkind = \"syslog\"\ncollector = \"{address}:514\"\n")
        })
        .collect();
    let mut machine =
        Machine::start("logs", "virtio-net-pci", &format!("{CONFIGURATION}{logs}"), "");
    let wanted = 300;
    for number in 0..wanted {
        machine.send(0, &datagram((0x0a00_0005, 10_000 + number), (0xc633_6401, 53)));
    }
    let mut told = [Vec::new(), Vec::new()];
    let begin = Instant::now();
    while told.iter().any(|told| told.len() < usize::from(wanted)) {
        assert!(begin.elapsed() < machine::PATIENCE, "{} and {}", told[0].len(), told[1].len());
        let out = machine.settle();
        for (side, address) in collectors {
            let messages = out[side].iter().filter_map(|packet| {
                let ip = Ipv4::new_checked(&packet[..]).ok();
                let ip = ip.filter(|ip| ip.destination() == address)?;
                assert!(ip.checksum_valid() && ip.source() == [0x0a00_0001, 0xc000_02fe][side]);
                Some(String::from_utf8(ip.payload()[8..].to_vec()).expect("it is text"))
            });
            told[side].extend(messages);
        }
    }
    for (told, own) in told.iter().zip(["10.0.0.1", "192.0.2.254"]) {
        // The messages come in order, each once. The event log's own tests check their content.
        for (number, message) in (0..wanted).zip(told) {
            let begin = message.split_once(' ').map(|(begin, _)| begin);
            assert_eq!(begin, Some("<134>1"), "{message}");
            assert!(message.contains(&format!(" {own} natgate - mapping_created [natgate@32473 ")));
            let internal = format!(" internal=\"10.0.0.5:{}\"", 10_000 + number);
            assert!(message.contains(&internal), "{message}");
        }
    }
    machine.press("n");
    machine.wait_for("logs      sent 600 waiting 0 lost 0 events");
}

#[test]
fn the_status_page_tells_metrics_inside_and_nowhere_else() {
    let inside = (0, [10, 0, 0, 5].into());
    let place = ([10, 0, 0, 1].into(), 9464);
    let metrics = format!("{CONFIGURATION}[metrics]\nlisten = \"10.0.0.1:9464\"\n");
    let machine = Machine::start("page", "e1000", &metrics, "");
    assert!(passes(&machine, (0x0a00_0005, 4000)));
    for _ in 0..10 {
        let page = status_client::get(&machine, inside, place, "/metrics").expect("it answers");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        let counted = "natgate_packets_total{direction=\"outbound\",verdict=\"forwarded\"} 1\n";
        assert!(page.contains(counted), "{page}");
        assert!(page.contains("natgate_device_up{device=\"eth1\",side=\"outside\"} 1\n"), "{page}");
    }
    assert_eq!(status_client::get(&machine, inside, (place.0, 9465), "/"), None, "another port");
    let outside = (1, [198, 51, 100, 1].into());
    for address in [[192, 0, 2, 254], [10, 0, 0, 1], [203, 0, 113, 1]] {
        assert_eq!(
            status_client::get(&machine, outside, (address.into(), 9464), "/"),
            None,
            "{address:?}"
        );
    }
    // There is no page unless it is configured.
    let machine = Machine::start("no-page", "e1000", CONFIGURATION, "");
    assert_eq!(status_client::get(&machine, inside, place, "/metrics"), None);
}

#[test]
fn a_frame_ends_a_sleep() {
    let by_message = [("virtio-net-pci", true), ("virtio-net-pci,vectors=0", false)];
    let by_wire = [("e1000", true), ("e1000e", true)];
    for (card, interrupts) in by_message.into_iter().chain(by_wire) {
        let mut machine = Machine::start("sleeps", card, CONFIGURATION, "");
        let ten = || (0..10).for_each(|_| assert!(passes(&machine, (0x0a00_0005, 4000)), "{card}"));
        ten();
        machine.press("n");
        let line = machine.wait_for("interrupts ");
        let figures: Vec<u64> = line.split([' ', ',']).filter_map(|w| w.parse().ok()).collect();
        // A machine without interrupts by frames does not sleep while a gateway is running.
        assert_eq!(figures[1] > 0, interrupts, "{card}: {line}");
        assert!(figures[0] > 0 || !interrupts, "{card}: {line}");
    }
}

#[test]
fn the_menu_shows_what_there_is() {
    let mut machine = Machine::start("menu", "e1000", CONFIGURATION, "");
    assert!(passes(&machine, (0x0a00_0005, 4000)));
    machine.press("c");
    machine.wait_for("inside: eth0, 10.0.0.1/16");
    machine.press("m");
    let line = machine.wait_for("10.0.0.5:4000");
    assert!(line.starts_with("udp  10.0.0.5:4000 ") && line.contains(" 203.0.113."), "{line}");
    machine.wait_for("these are all");
    machine.press("n");
    machine.wait_for("outbound  forwarded 1 replied 0 dropped 0");
    machine.press("n");
    machine.press("s");
    machine.wait_for("it is running already");
    machine.press("r");
    machine.wait_for("reboot?");
    machine.press("n");
    machine.press("h");
    machine.wait_for("keys: s start");
    machine.press("ry");
    machine.wait_for_restart();
}

#[test]
fn it_starts_by_itself_unless_somebody_is_there() {
    let mut machine = Machine::boot("waits", "e1000", CONFIGURATION, "");
    machine.wait_for("starts in 5 s");
    machine.press("x");
    machine.wait_for("waiting for a key");
    machine.press("s");
    machine.wait_for("natgate is running");
    let mut machine = Machine::boot("starts", "e1000", CONFIGURATION, "");
    machine.wait_for("natgate is running");
}

#[test]
fn problems_are_shown_with_their_places() {
    let wrong = CONFIGURATION.replace("10.0.0.1/16", "10.0.0.1/99");
    let mut machine = Machine::boot("wrong", "e1000", &wrong, "start");
    machine.wait_for("configuration:3:11: inside.address: ");
    machine.wait_for("there is no configuration to start with");
    machine.press("c");
    machine.wait_for("there is no configuration that can be used");

    let other = CONFIGURATION.replace("eth1", "eth7");
    let mut machine = Machine::boot("other", "e1000", &other, "start quickly");
    machine.wait_for("\"quickly\", which is no option");
    machine.wait_for("starts in 5 s");
    machine.press("s");
    machine.wait_for("there is no card \"eth7\" that is free; the cards are eth0, eth1");

    let three = format!("{CONFIGURATION}[workers]\ncount = 3\n");
    let two = ["-smp", "2"];
    let mut machine = Machine::boot_with("many", "e1000", &three, "start", &two);
    machine.wait_for("workers.count is 3, and this machine has 2 processors; it can be that many");

    let mut machine = Machine::boot("none", "e1000", "", "start");
    machine.wait_for("configuration: there is none; have the boot loader load a file");
}

#[test]
fn timings_are_told_and_the_machine_starts_again() {
    let mut machine = Machine::boot("timings", "e1000", CONFIGURATION, "timings=quick");
    machine.wait_for_restart();
    let read = |line: &String| Timing::from_line(line);
    let timings: Vec<Timing> = machine.printed.iter().filter_map(read).collect();
    let entries: Vec<u32> = timings.iter().map(|timing| timing.entries).collect();
    assert_eq!(entries, Size::Quick.entries(), "{}", machine.printed.join("\n"));
    for Timing { add, look_up, forward, .. } in timings {
        assert!([add, look_up, forward].iter().all(|cost| cost.median_ns > 0.0));
    }
}

#[test]
fn the_largest_table_is_filled() {
    let small = ["-m", "192"];
    let mut machine = Machine::boot_with("fill", "e1000", CONFIGURATION, "fill", &small);
    machine.wait_for_restart();
    let fill = machine.printed.iter().find_map(|line| Fill::from_line(line));
    let fill = fill.unwrap_or_else(|| panic!("{}", machine.printed.join("\n")));
    assert!(fill.entries > ROOM && fill.table <= fill.memory && fill.memory < 192 << 20);
}

#[test]
fn failures_are_told_with_counters_and_the_machine_starts_again() {
    for (key, told) in [
        ("p", "a panic was asked for"),
        ("e", "exception 6 (invalid instruction)"),
        ("w", "watchdog: the gateway has stood still for 5 seconds"),
    ] {
        let mut machine = Machine::start(&format!("fails-{key}"), "e1000", CONFIGURATION, "");
        assert!(passes(&machine, (0x0a00_0005, 4000)));
        // Counters are saved once a second, so they are saved when they are shown.
        machine.press("n");
        machine.wait_for("inbound   forwarded 1 ");
        machine.press("t");
        machine.wait_for("trial: p panic");
        machine.press(key);
        machine.wait_for(told);
        if key != "p" {
            machine.wait_for("rip 000000000");
        }
        machine.wait_for("outbound  forwarded 1 ");
        machine.wait_for_restart();
    }
}
