//! A sender that is faster than the gateway, for several seconds. Every frame is accounted for, the
//! memory does not grow, and requests to the gateway are answered.
//!
//! `NATGATE_OVERLOAD_SECONDS` sets the duration; its default is a few seconds.

use super::TAG;
use super::tester::{End, Flaw, counters, network, outbound, start};
use natgate_control::socket::ask;
use natgate_io::BATCH;
use natgate_testnet::{GATEWAY_INSIDE, Gateway, Network, Turn};
use natgate_wire::arp::Mac;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Number of different packets that are sent repeatedly.
const PACKETS: u32 = 1024;

/// Flaws of packets, each with the interval of its packets.
const FLAWS: [(u32, Flaw); 5] = [
    (61, Flaw::Ttl),
    (67, Flaw::Checksum),
    (71, Flaw::Stranger),
    (73, Flaw::Elsewhere),
    (79, Flaw::Foreign),
];

fn seconds() -> u64 {
    let text = std::env::var("NATGATE_OVERLOAD_SECONDS");
    text.map_or(3, |text| text.parse().expect("NATGATE_OVERLOAD_SECONDS is a number"))
}

/// All packets. With `foreign` some of them carry no IPv4; they must get to the gateway and not to
/// the kernel.
fn packets(macs: [Mac; 2], foreign: bool) -> Vec<Vec<u8>> {
    let flaw = |number: u32| {
        let found = FLAWS.iter().find(|(every, _)| number % every == every - 1);
        let flaw = found.map_or(Flaw::Nothing, |(_, flaw)| *flaw);
        if flaw == Flaw::Foreign && !foreign { Flaw::Nothing } else { flaw }
    };
    (0..PACKETS).map(|number| outbound(number, macs, flaw(number))).collect()
}

/// Counters of the tester: `[inside, outside]`.
#[derive(Debug, Default)]
struct Tested {
    /// Sent frames, and received frames.
    frames: [(u64, u64); 2],
    /// Sent ARP frames.
    answered: [u64; 2],
    /// Packets received on the outside.
    delivered: u64,
}

/// Sends as fast as possible until `stop` is set, then serves until no more frames come.
fn test(foreign: bool, stop: &AtomicBool) -> Tested {
    let (mut inside, mut outside) = (End::open("inside"), End::open("outside"));
    let gateway = inside.find(GATEWAY_INSIDE, Ipv4Addr::new(10, 0, 0, 2));
    let mut packets = packets([inside.mac(), gateway], foreign);
    let count = packets.len() / BATCH;
    for number in (0..count).cycle() {
        inside.send(&mut packets[number * BATCH..][..BATCH]);
        inside.serve();
        outside.serve();
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(1500) {
        let before = (inside.packets + inside.asked, outside.packets + outside.asked);
        inside.serve();
        outside.serve();
        if before != (inside.packets + inside.asked, outside.packets + outside.asked) {
            quiet = Instant::now();
        }
    }
    Tested {
        delivered: outside.packets,
        answered: [inside.answered, outside.answered],
        frames: [inside.counts(), outside.counts()],
    }
}

/// Sends requests to the running gateway, and returns the longest time of an answer.
fn question(gateway: &Gateway, network: &Network) -> Duration {
    let begin = Instant::now();
    gateway.status().unwrap();
    let status = begin.elapsed();
    let begin = Instant::now();
    let socket = network.file("control.sock");
    let answer = ask(&socket, "POST", "/v1/reload", &json!({ "dry_run": true }), PATIENCE).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    status.max(begin.elapsed())
}

const PATIENCE: Duration = Duration::from_secs(10);

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

fn sum(object: &Value) -> u64 {
    object.as_object().expect("an object").values().map(number).sum()
}

/// Permitted growth of the memory, bytes. Meanwhile the list of all mappings is written, and tables
/// are touched for the first time. A few bytes for each frame would be more.
const GROWTH: u64 = 16 << 20;

fn overload(backend: &str) {
    let turn = Turn::take(TAG);
    let network = network(&turn);
    let gateway = start(&network, backend);
    let (stop, foreign) = (AtomicBool::new(false), backend != "af-xdp");
    let (tested, slowest, grown) = thread::scope(|scope| {
        let tester = scope.spawn(|| network.node("tester").enter(|| test(foreign, &stop)).unwrap());
        thread::sleep(Duration::from_secs(1));
        // The first answers allocate their buffers.
        for _ in 0..3 {
            question(&gateway, &network);
        }
        let (before, mut slowest) = (gateway.resident().unwrap(), Duration::ZERO);
        let end = Instant::now() + Duration::from_secs(seconds());
        while Instant::now() < end {
            thread::sleep(Duration::from_millis(300));
            slowest = slowest.max(question(&gateway, &network));
        }
        let grown = gateway.resident().unwrap().saturating_sub(before);
        stop.store(true, Ordering::Relaxed);
        (tester.join().unwrap(), slowest, grown)
    });
    eprintln!("{backend}: {tested:?}, slowest answer {slowest:?}, {grown} bytes more");
    let status = gateway.status().unwrap();
    accounts_add_up(&network, backend, &tested, &status);
    assert!(number(&status["devices"]["inside"]["receive_overrun"]) > 0, "it was no overload");
    assert!(slowest < Duration::from_secs(1), "an answer took {slowest:?}");
    assert!(grown < GROWTH, "the memory has grown by {grown} bytes");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

/// Checks that every frame is counted in exactly one place.
fn accounts_add_up(network: &Network, backend: &str, tested: &Tested, status: &Value) {
    let all = format!("{tested:?} {status:#}");
    let devices = ["inside", "outside"].map(|side| &status["devices"][side]);
    let of = |key: &str| devices.map(|device| number(&device[key]));
    // Frames that the kernel lost between the ends of a cable. Frames that an AF_XDP socket does
    // not accept are counted there, too.
    let wire = ["inside", "outside"].map(|device| {
        let [tester, nat] = counters(network, device, "tx_dropped");
        let dropped = counters(network, device, "rx_dropped");
        let own = if backend == "af-xdp" { 0 } else { dropped[1] };
        [tester + own, nat + dropped[0]]
    });
    let kept = ["received", "receive_overrun", "receive_oversize", "receive_unfinished"].map(of);
    for side in 0..2 {
        let arrived: u64 = kept.iter().map(|count| count[side]).sum();
        assert_eq!(tested.frames[side].0, arrived + wire[side][0], "sent to side {side}: {all}");
        let (sent, came) = (of("transmitted")[side], tested.frames[side].1);
        assert_eq!(sent, came + wire[side][1], "sent by side {side}: {all}");
    }
    let (counters, router) = (&status["counters"], &status["router"]);
    let packets = counters["packets"].as_object().expect("an object");
    let outcome = |name: &str| -> u64 { packets.values().map(|way| number(&way[name])).sum() };
    let (forwarded, dropped) = (outcome("forwarded"), outcome("dropped"));
    assert_eq!(sum(&counters["drops"]), dropped, "every drop has a reason: {all}");
    let taken = forwarded + dropped + outcome("replied");
    // ARP answers may be lost under overload.
    let arp = number(&router["arp_received"]);
    assert!((1..=tested.answered.iter().sum()).contains(&arp), "{all}");
    let received: u64 = of("received").iter().sum();
    assert_eq!(received, taken + number(&router["frames_not_addressed"]) + arp, "{all}");
    let own = number(&counters["generated"]) + number(&router["arp_asked"]);
    let own = own + number(&router["arp_answered"]) - number(&router["own_packets_lost"]);
    assert_eq!(of("transmitted").iter().sum::<u64>(), forwarded + own, "{all}");
    // The tester has lost no frame.
    assert_eq!(tested.delivered, forwarded, "{all}");
    for reason in ["bad_header_checksum", "not_subscriber", "ttl_exceeded"] {
        assert!(number(&counters["drops"][reason]) > 0, "{reason}: {all}");
    }
}

#[test]
fn packet_sockets_account_for_everything_under_overload() {
    overload("af-packet");
}

#[test]
fn af_xdp_accounts_for_everything_under_overload() {
    overload("af-xdp");
}
