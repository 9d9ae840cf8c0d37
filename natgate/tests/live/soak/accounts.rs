//! Counters of the gateway, and of the kernel at both ends of its cables, and their sums; resources
//! of the gateway.

use crate::tester::counter;
use natgate_testnet::{Gateway, Network};
use serde_json::Value;
use std::fs;
use std::io;

/// Devices of the gateway, and the node and device at the other end of each cable.
const CABLES: [(&str, &str, &str); 2] = [("inside", "switch", "nat"), ("outside", "router", "nat")];

/// Counters of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wires {
    /// Frames to the gateway's devices, and frames from them: `[inside, outside]`. Frames that the
    /// other end did not accept are included.
    came: [u64; 2],
    left: [u64; 2],
    /// IP packets that the gateway's kernel received.
    kernels: u64,
}

impl Wires {
    pub(super) fn read(network: &Network) -> Self {
        let nat = |device: &str, name: &str| {
            network.node("nat").enter(|| counter(device, name)).expect("it is there")
        };
        let came = CABLES.map(|(_, node, device)| {
            network.node(node).enter(|| counter(device, "tx_packets")).expect("it is there")
        });
        let left = CABLES.map(|(device, ..)| nat(device, "tx_packets") + nat(device, "tx_dropped"));
        let kernels = network.node("nat").enter(ip_received).expect("it is there");
        Self { came, left, kernels }
    }
}

/// IP packets that the kernel of the thread's namespace has received.
fn ip_received() -> u64 {
    let table = fs::read_to_string("/proc/thread-self/net/snmp").expect("it can be read");
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Ip: "));
    let (names, counts) = (lines.next().expect("names"), lines.next().expect("counts"));
    let place = names.split(' ').position(|name| name == "InReceives").expect("a name");
    counts.split(' ').nth(place).expect("a count").parse().expect("a number")
}

/// A counter in the gateway's status.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// Number of packets with this outcome.
pub(super) fn outcome(status: &Value, name: &str) -> u64 {
    let packets = status["counters"]["packets"].as_object().expect("an object");
    packets.values().map(|way| number(&way[name])).sum()
}

fn devices(status: &Value, key: &str) -> [u64; 2] {
    ["inside", "outside"].map(|side| number(&status["devices"][side][key]))
}

fn workers(status: &Value, key: &str) -> u64 {
    let workers = status["workers"].as_array().expect("a list");
    workers.iter().map(|worker| number(&worker[key])).sum()
}

/// Sums that differ although they must be equal, by name, for a gateway without packets in flight.
pub(super) fn differences(
    backend: &str,
    [wires, wires_then]: [&Wires; 2],
    [status, status_then]: [&Value; 2],
) -> Vec<String> {
    let mut found = within(status);
    let mut check = |what: String, one: u64, other: u64| {
        if one != other {
            found.push(format!("{what}: {one} and {other}"));
        }
    };
    let since = |key: &str| {
        let (now, then) = (devices(status, key), devices(status_then, key));
        [now[0] - then[0], now[1] - then[1]]
    };
    let kept = ["received", "receive_overrun", "receive_oversize", "receive_unfinished"].map(since);
    let arrived = [0, 1].map(|side| kept.iter().map(|count| count[side]).sum::<u64>());
    let came = [0, 1].map(|side| wires.came[side] - wires_then.came[side]);
    let left = [0, 1].map(|side| wires.left[side] - wires_then.left[side]);
    // If natgate gets frames first, the kernel gets the frames that natgate passes on.
    let kernels = if backend == "af-xdp" { wires.kernels - wires_then.kernels } else { 0 };
    check(
        "came by cable, and arrived".into(),
        came[0] + came[1],
        arrived[0] + arrived[1] + kernels,
    );
    for (side, (device, ..)) in CABLES.iter().enumerate() {
        check(format!("sent by {device}"), left[side], since("transmitted")[side]);
    }
    found
}

/// Differences between the gateway's own counters.
fn within(status: &Value) -> Vec<String> {
    let (counters, router) = (&status["counters"], &status["router"]);
    let drops = counters["drops"].as_object().expect("an object");
    let (forwarded, replied) = (outcome(status, "forwarded"), outcome(status, "replied"));
    let dropped = outcome(status, "dropped");
    let others = ["frames_not_addressed", "left_to_the_kernel", "arp_received"];
    let others: u64 = others.iter().map(|key| number(&router[key])).sum();
    let own = ["arp_asked", "arp_answered", "errors_made"];
    let own: u64 = own.iter().map(|key| number(&router[key])).sum();
    let own = own + number(&counters["generated"]) - number(&router["own_packets_lost"]);
    let sums = [
        ("drops by reason", drops.values().map(number).sum(), dropped),
        (
            "received, and what became of it",
            devices(status, "received").iter().sum(),
            forwarded + replied + dropped + others,
        ),
        ("sent, and why", devices(status, "transmitted").iter().sum(), forwarded + replied + own),
        ("handed over and taken", workers(status, "handed_over"), workers(status, "taken_over")),
        (
            "handed over when there was no room",
            workers(status, "hand_over_full"),
            number(&drops["hand_over_full"]),
        ),
        ("frames of workers", workers(status, "frames"), devices(status, "received").iter().sum()),
    ];
    let different = sums.into_iter().filter(|(_, one, other)| one != other);
    different.map(|(what, one, other)| format!("{what}: {one} and {other}")).collect()
}

/// Resources of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footprint {
    /// Resident memory, bytes.
    pub(super) resident: u64,
    pub(super) threads: usize,
    pub(super) files: usize,
}

impl Footprint {
    pub(super) fn of(gateway: &Gateway) -> io::Result<Self> {
        let process = format!("/proc/{}", gateway.process());
        let count = |directory: &str| -> io::Result<usize> {
            Ok(fs::read_dir(format!("{process}/{directory}"))?.count())
        };
        let (threads, files) = (count("task")?, count("fd")?);
        Ok(Self { resident: gateway.resident()?, threads, files })
    }
}
