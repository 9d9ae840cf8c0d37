//! The NAT in P4, interpreted and as Rust, beside natgate: the same Ethernet frames through each, in memory.
//!
//! Each is a whole forwarder between two devices: what comes in is parsed, looked up, translated, routed, and given
//! its next hop's hardware address. `README.md` beside this file says how it is measured.

mod page;
mod stock;
mod subject;

use crate::clock;
use crate::engine::{self, Bench, Mode};
use crate::random::Random;
use crate::report::{Report, progress};
use crate::spread::Spread;
use natgate_wire::arp::Mac;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use stock::{End, Head, head};
use subject::{Subject, nat};

/// Most entries that the program's tables have room for, and the pool here.
pub const MOST_ENTRIES: u32 = 1_000_000;

/// Most that the interpreter is measured with: it keeps them in ordered maps.
const MOST_INTERPRETED: u32 = 10_000;

/// Packets of a round: as many as wait in the rings of a busy network card.
const ROUND: usize = 1 << 12;
/// The same for the interpreter.
const ROUND_INTERPRETED: usize = 1 << 8;

/// Rounds at least.
const ROUNDS: usize = 3;

/// Hardware addresses of the inside and the outside.
const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
/// The next hops there.
const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 168, 0, 9), Ipv4Addr::new(192, 0, 2, 9)];
/// Where everything is sent.
const REMOTE: End = (Ipv4Addr::new(198, 51, 100, 7).to_bits(), 53);
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
const FIRST_SUBSCRIBER: u32 = Ipv4Addr::new(10, 0, 4, 0).to_bits();
/// Addresses of subscribers that share an external address, not all of them in use.
const SUBSCRIBERS_EACH: u32 = 1024;
/// Flows of a subscriber, and of an external address: no two of its subscribers have the same port, as the
/// program takes the subscriber's own or one of the next three.
const FLOWS_EACH: u32 = 64;
const FLOWS_OF_ADDRESS: u32 = 960 * FLOWS_EACH;
const FIRST_PORT: u32 = 2048;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Lengths of frames with their checksum, bytes, from 64 on.
    pub frames: Vec<u16>,
    /// Numbers of flows, each with its entries; at most [`MOST_ENTRIES`].
    pub entries: Vec<u32>,
    /// How long each combination is measured.
    pub time: Duration,
}

impl Plan {
    /// Everything.
    pub fn full() -> Self {
        Self {
            frames: vec![64, 128, 256, 512, 1024, 1280, 1518],
            entries: vec![100, 10_000, MOST_ENTRIES],
            time: Duration::from_secs(1),
        }
    }

    /// A few seconds of it.
    pub fn quick() -> Self {
        Self { frames: vec![64, 1518], entries: vec![100, 10_000], time: Duration::from_millis(50) }
    }
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    Upload,
    Download,
}

/// What was found in a combination.
#[derive(Clone, Debug, Serialize)]
struct Row {
    subject: &'static str,
    way: Way,
    entries: u32,
    frame: u16,
    /// Nanoseconds of processor time a packet.
    ns: Spread,
    /// Cycles of the time-stamp counter a packet.
    cycles: f64,
}

const DEVICES: &str = "the devices alone";
const ENGINE: &str = "natgate's translator alone";
const NATGATE: &str = "natgate";
const RUST: &str = "P4 as Rust";
const INTERPRETED: &str = "P4 interpreted";

/// How many external addresses so many flows have.
fn addresses(entries: u32) -> u32 {
    entries.div_ceil(FLOWS_OF_ADDRESS)
}

/// A flow's internal endpoint.
fn internal(flow: u32) -> End {
    let (address, own) = (flow / FLOWS_OF_ADDRESS, flow % FLOWS_OF_ADDRESS);
    let subscriber = FIRST_SUBSCRIBER + address * SUBSCRIBERS_EACH + own / FLOWS_EACH;
    (subscriber, (FIRST_PORT + own) as u16)
}

/// Something that is measured, with all flows made.
struct Running<'p> {
    name: &'static str,
    subject: Subject<'p>,
    /// The external endpoint of each flow.
    external: Vec<End>,
    round: usize,
    random: Random,
}

impl<'p> Running<'p> {
    /// Sends a packet of each flow, and takes down the endpoint that it leaves with.
    fn new(name: &'static str, mut subject: Subject<'p>, entries: u32, round: usize) -> Self {
        // The first ones may wait for their neighbour's hardware address.
        subject.wires[0].send(vec![outbound(0, 64)], 64);
        settle(&mut subject);
        let mut external = vec![None; entries as usize];
        subject.wires[1].keep();
        for flows in (0..entries).collect::<Vec<_>>().chunks(ROUND) {
            subject.wires[0].send(flows.iter().map(|flow| outbound(*flow, 64)).collect(), 64);
            settle(&mut subject);
        }
        for (flow, end) in subject.wires[1].take_kept() {
            external[flow as usize] = Some(end);
        }
        let external: Option<Vec<End>> = external.into_iter().collect();
        let external = external.unwrap_or_else(|| panic!("{name}: some flows were not forwarded"));
        subject.wires[1].send(vec![inbound(&external, 0, 64)], 64);
        settle(&mut subject);
        Self { name, subject, external, round, random: Random::new(7) }
    }

    /// Nanoseconds a packet of a round of flows at random, all of which must be forwarded.
    fn round(&mut self, way: Way, frame: u16) -> f64 {
        let flows = self.external.len() as u64;
        let draw = |random: &mut Random| random.below(flows) as u32;
        let heads: Vec<Head> = (0..self.round)
            .map(|_| match (way, draw(&mut self.random)) {
                (Way::Upload, flow) => outbound(flow, frame),
                (Way::Download, flow) => inbound(&self.external, flow, frame),
            })
            .collect();
        let (from, to) = if way == Way::Upload { (0, 1) } else { (1, 0) };
        self.subject.wires[from].send(heads, frame);
        let before = self.subject.wires[to].count();
        let (time, ()) = clock::time(|| {
            while self.subject.wires[from].has_more() {
                self.subject.turn();
            }
        });
        let sent = self.subject.wires[to].count() - before;
        assert_eq!(sent, self.round as u64, "{}: {way:?}: all are forwarded", self.name);
        time / self.round as f64
    }
}

/// A flow's packet from inside, in a frame of so many bytes.
fn outbound(flow: u32, frame: u16) -> Head {
    head(MACS[0], frame, internal(flow), REMOTE, flow)
}

/// A flow's packet from outside.
fn inbound(external: &[End], flow: u32, frame: u16) -> Head {
    head(MACS[1], frame, REMOTE, external[flow as usize], flow)
}

/// Has everything done that is there to do.
fn settle(subject: &mut Subject<'_>) {
    while subject.wires.iter().any(|wire| wire.has_more()) {
        subject.turn();
    }
    // What waited for an answer leaves.
    subject.turn();
}

/// Measures, and reports as `p4`.
pub fn measure(plan: &Plan, command: &str) -> Report {
    let mut report = Report::new("p4", "The NAT in P4 (S4)", command);
    let cycles_per_ns = report.machine().cycles_per_ns();
    let bar = progress((plan.entries.len() * plan.frames.len() * 2) as u64);
    let program = nat();
    let mut rows = Vec::new();
    for &entries in &plan.entries {
        let mut all = vec![
            Running::new(NATGATE, Subject::natgate(entries), entries, ROUND),
            Running::new(RUST, Subject::program(&program, false, entries), entries, ROUND),
            Running::new(DEVICES, Subject::devices(), entries, ROUND),
        ];
        if entries <= MOST_INTERPRETED {
            let subject = Subject::program(&program, true, entries);
            all.push(Running::new(INTERPRETED, subject, entries, ROUND_INTERPRETED));
        }
        let mut engine = translator(entries);
        for way in [Way::Upload, Way::Download] {
            for &frame in &plan.frames {
                let mut row = |subject, times: &[f64]| {
                    let ns = Spread::of(times);
                    let cycles = ns.median * cycles_per_ns;
                    rows.push(Row { subject, way, entries, frame, ns, cycles });
                };
                let mut times: Vec<Vec<f64>> = vec![Vec::new(); all.len() + 1];
                let begun = Instant::now();
                while begun.elapsed() < plan.time || times[0].len() < ROUNDS {
                    for (running, times) in all.iter_mut().zip(&mut times) {
                        times.push(running.round(way, frame));
                    }
                    times[all.len()].push(translate(&mut engine, entries, way));
                }
                let names = all.iter().map(|running| running.name).chain([ENGINE]);
                names.zip(&times).for_each(|(name, times)| row(name, times));
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    page::write(&mut report, &rows, cycles_per_ns);
    report
}

/// natgate's translator without what is around it, with so many sessions.
fn translator(entries: u32) -> Bench {
    let sessions = entries.into();
    let plan = engine::Plan { sessions, batch: 64, time: Duration::ZERO, tcp: false };
    let mut bench = Bench::new(&plan);
    for first in (0..sessions).step_by(ROUND) {
        bench.create(first..sessions.min(first + ROUND as u64));
    }
    bench
}

/// Nanoseconds a packet that it takes.
fn translate(bench: &mut Bench, entries: u32, way: Way) -> f64 {
    let mode = if way == Way::Upload { Mode::Outbound } else { Mode::Inbound };
    bench.prepare(mode, ROUND, 0..entries.into());
    bench.process(0..ROUND, mode).cpu
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_of_an_external_address_have_ports_of_their_own() {
        let last = FLOWS_OF_ADDRESS - 1;
        assert_eq!(internal(last).1, 63_487);
        assert_eq!(internal(last).0, FIRST_SUBSCRIBER + 959);
        assert_eq!(internal(FLOWS_OF_ADDRESS), (FIRST_SUBSCRIBER + 1024, 2048));
        assert!(addresses(MOST_ENTRIES) <= 17);
    }

    #[test]
    fn everything_forwards_both_ways() {
        let plan = Plan { frames: vec![64, 200], entries: vec![100], time: Duration::ZERO };
        let report = measure(&plan, "a test");
        let rows = report.json()["rows"].as_array().expect("rows").len();
        assert_eq!(rows, 2 * 2 * 5);
        let page = report.markdown();
        for wanted in ["## 100 entries, upload", "## 100 entries, download", "| P4 as Rust |"] {
            assert!(page.contains(wanted), "{wanted} is not in {page}");
        }
    }
}
