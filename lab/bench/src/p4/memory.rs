//! Measurements in memory. Each subject gets equal frames in rounds, one subject after the other. A
//! device costs a copy of a few bytes. With several cores each core has subjects of its own. All
//! cores together have as many flows as one core alone, and they run the same step at the same
//! time.

use super::stock::{End, Head, head};
use super::subject::Subject;
use super::{DEVICES, ENGINE, MEMORY, NATGATE, Place, Plan, Results, Way, is_fit};
use crate::clock;
use crate::engine::{self, Bench, Mode};
use crate::program::{With, nat};
use crate::random::Random;
use indicatif::ProgressBar;
use natgate_p4::Program;
use natgate_timings::cycles;
use natgate_wire::arp::Mac;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::net::Ipv4Addr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Packets of a round: as many as a busy network card has in its rings. As many packets pass
/// uncounted before a round, because other subjects have used the caches.
const ROUND: usize = 1 << 12;
/// Packets of a round for the interpreter.
const ROUND_INTERPRETED: usize = 1 << 8;

/// Lowest number of rounds.
const ROUNDS: usize = 3;

/// Hardware addresses of the inside and the outside.
pub(super) const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
/// Addresses of the next hops on the inside and the outside.
pub(super) const GATEWAYS: [Ipv4Addr; 2] =
    [Ipv4Addr::new(192, 168, 0, 9), Ipv4Addr::new(192, 0, 2, 9)];
/// Destination of all packets.
const REMOTE: End = (Ipv4Addr::new(198, 51, 100, 7).to_bits(), 53);
pub(super) const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
pub(super) const FIRST_SUBSCRIBER: u32 = Ipv4Addr::new(10, 0, 4, 0).to_bits();
/// Subscribers' addresses that share an external address; not all of them are in use.
pub(super) const SUBSCRIBERS_EACH: u32 = 1024;
/// Flows of a subscriber and of an external address. No two subscribers of an external address have
/// equal ports, as the program takes the subscriber's own port or one of the next three.
const FLOWS_EACH: u32 = 64;
const FLOWS_OF_ADDRESS: u32 = 960 * FLOWS_EACH;
const FIRST_PORT: u32 = 2048;

/// Number of external addresses of `entries` flows.
pub(super) fn addresses(entries: u32) -> u32 {
    entries.div_ceil(FLOWS_OF_ADDRESS)
}

/// Internal endpoint of a flow.
fn internal(flow: u32) -> End {
    let (address, own) = (flow / FLOWS_OF_ADDRESS, flow % FLOWS_OF_ADDRESS);
    let subscriber = FIRST_SUBSCRIBER + address * SUBSCRIBERS_EACH + own / FLOWS_EACH;
    (subscriber, (FIRST_PORT + own) as u16)
}

/// A measured subject in which all flows have mappings.
pub(crate) struct Running<'p> {
    name: &'static str,
    subject: Subject<'p>,
    /// External endpoint of each flow.
    external: Vec<End>,
    round: usize,
    random: Random,
}

impl<'p> Running<'p> {
    /// Sends a packet of each flow, records its external endpoint, and sends an answer.
    pub(crate) fn new(
        name: &'static str,
        mut subject: Subject<'p>,
        entries: u32,
        round: usize,
    ) -> Self {
        // The first packets may wait for their neighbor's hardware address.
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
        // The first answer changes the state of a flow, so it takes longer than the others.
        for flows in (0..entries).collect::<Vec<_>>().chunks(ROUND) {
            let answers = flows.iter().map(|flow| inbound(&external, *flow, 64)).collect();
            subject.wires[1].send(answers, 64);
            settle(&mut subject);
        }
        Self { name, subject, external, round, random: Random::new(7) }
    }

    /// Sends outbound packets of random flows one after the other. Returns cycles from the time
    /// when a packet is ready on the inside to the time when it has left on the outside.
    pub(crate) fn delays(&mut self, packets: usize) -> Vec<u64> {
        let flows = self.external.len() as u64;
        let before = self.subject.wires[1].count();
        let delays = (0..packets)
            .map(|_| {
                let flow = self.random.below(flows) as u32;
                self.subject.wires[0].send(vec![outbound(flow, 64)], 64);
                let begin = cycles();
                self.subject.turn();
                cycles() - begin
            })
            .collect();
        let sent = self.subject.wires[1].count() - before;
        assert_eq!(sent, packets as u64, "{}: all are forwarded", self.name);
        delays
    }

    /// Runs a round of random flows, which must all be forwarded; returns nanoseconds a packet.
    fn round(&mut self, way: Way, frame: u16, barrier: &Barrier) -> f64 {
        let flows = self.external.len() as u64;
        let draw = |random: &mut Random| random.below(flows) as u32;
        let heads: Vec<Head> = (0..2 * self.round)
            .map(|_| match (way, draw(&mut self.random)) {
                (Way::Upload, flow) => outbound(flow, frame),
                (Way::Download, flow) => inbound(&self.external, flow, frame),
            })
            .collect();
        let (from, to) = if way == Way::Upload { (0, 1) } else { (1, 0) };
        self.subject.wires[from].send(heads, frame);
        while self.subject.wires[from].waiting() > self.round {
            self.subject.turn();
        }
        let before = self.subject.wires[to].count();
        barrier.wait();
        let (time, ()) = clock::time(|| {
            while self.subject.wires[from].waiting() > 0 {
                self.subject.turn();
            }
        });
        let sent = self.subject.wires[to].count() - before;
        assert_eq!(sent, self.round as u64, "{}: {way:?}: all are forwarded", self.name);
        time / self.round as f64
    }
}

/// Outbound packet of a flow, in a frame of `frame` bytes.
fn outbound(flow: u32, frame: u16) -> Head {
    head(MACS[0], frame, internal(flow), REMOTE, flow)
}

/// Inbound packet of a flow, in a frame of `frame` bytes.
fn inbound(external: &[End], flow: u32, frame: u16) -> Head {
    head(MACS[1], frame, REMOTE, external[flow as usize], flow)
}

/// Lets the subject process all waiting frames.
fn settle(subject: &mut Subject<'_>) {
    while subject.wires.iter().any(|wire| wire.waiting() > 0) {
        subject.turn();
    }
    // Packets that waited for an ARP answer leave now.
    subject.turn();
}

/// All subjects, with mappings of all flows.
fn all(program: &Program, entries: u32) -> Vec<Running<'_>> {
    let natgate = Running::new(NATGATE, Subject::natgate(entries), entries, ROUND);
    let programs = With::all().filter(|with| is_fit(*with, entries)).map(|with| {
        let round = if with == With::Interpreter { ROUND_INTERPRETED } else { ROUND };
        Running::new(with.name(), Subject::program(program, with, entries), entries, round)
    });
    let devices = Running::new(DEVICES, Subject::devices(), entries, ROUND);
    std::iter::once(natgate).chain(programs).chain([devices]).collect()
}

/// State that the cores share: the begin of each step, and the decision on another round.
struct Shared {
    barrier: Barrier,
    goes_on: AtomicBool,
}

/// Nanoseconds a packet of each round, by subject.
type Times = Vec<(&'static str, Vec<f64>)>;

/// Measures with `entries` flows on `cores` cores.
pub(super) fn measure(
    plan: &Plan,
    entries: u32,
    cores: u16,
    results: &mut Results,
    bar: &ProgressBar,
) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    if usize::from(cores) > processors {
        let why = format!("there are {processors} processors");
        results.fail(MEMORY, cores, "all", entries, why);
        return;
    }
    let shared = Shared { barrier: Barrier::new(cores.into()), goes_on: AtomicBool::new(true) };
    let each = (entries / u32::from(cores)).max(1);
    let measured: Vec<Vec<(Way, u16, Times)>> = thread::scope(|scope| {
        let start = |number: u16| {
            let (shared, bar) = (&shared, (number == 0).then_some(bar));
            scope.spawn(move || {
                if cores > 1 {
                    let mut set = CpuSet::new();
                    set.set(number.into());
                    // If this is forbidden, the scheduler spreads the threads.
                    let _ = sched_setaffinity(None, &set);
                }
                run(plan, each, shared, bar)
            })
        };
        let threads: Vec<_> = (0..cores).map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut steps: Vec<_> = measured.into_iter().map(Vec::into_iter).collect();
    while let Some((way, frame, times)) = steps[0].next() {
        let others: Vec<Times> =
            steps[1..].iter_mut().filter_map(Iterator::next).map(|(.., times)| times).collect();
        for (number, (subject, mut ns)) in times.into_iter().enumerate() {
            others.iter().for_each(|other| ns.extend(&other[number].1));
            let place = Place { driver: MEMORY, cores, subject, way, entries, frame };
            results.add(place, &ns, None);
        }
    }
}

/// Work of one core: all ways and lengths. One of the cores has the progress bar.
fn run(
    plan: &Plan,
    entries: u32,
    shared: &Shared,
    bar: Option<&ProgressBar>,
) -> Vec<(Way, u16, Times)> {
    let program = nat();
    let mut all = all(&program, entries);
    let mut engine = translator(entries);
    let mut steps = Vec::new();
    for way in [Way::Upload, Way::Download] {
        for &frame in &plan.frames {
            let names = all.iter().map(|running| running.name).chain([ENGINE]);
            let mut times: Times = names.map(|name| (name, Vec::new())).collect();
            let begun = Instant::now();
            loop {
                if bar.is_some() {
                    let is_enough = begun.elapsed() >= plan.time && times[0].1.len() >= ROUNDS;
                    shared.goes_on.store(!is_enough, Ordering::Relaxed);
                }
                shared.barrier.wait();
                let goes_on = shared.goes_on.load(Ordering::Relaxed);
                // All threads must have read the decision before one of them makes the next.
                shared.barrier.wait();
                if !goes_on {
                    break;
                }
                for (running, (_, times)) in all.iter_mut().zip(&mut times) {
                    times.push(running.round(way, frame, &shared.barrier));
                }
                let last = times.len() - 1;
                times[last].1.push(translate(&mut engine, entries, way, &shared.barrier));
            }
            steps.push((way, frame, times));
            bar.inspect(|bar| bar.inc(1));
        }
    }
    steps
}

/// natgate's translator without its gateway, with `entries` sessions.
fn translator(entries: u32) -> Bench {
    let sessions = entries.into();
    let plan = engine::Plan { sessions, batch: 64, time: Duration::ZERO, tcp: false };
    let mut bench = Bench::new(&plan);
    for first in (0..sessions).step_by(ROUND) {
        bench.create(first..sessions.min(first + ROUND as u64));
    }
    bench
}

/// Runs one round of the translator; returns nanoseconds a packet.
fn translate(bench: &mut Bench, entries: u32, way: Way, barrier: &Barrier) -> f64 {
    let mode = if way == Way::Upload { Mode::Outbound } else { Mode::Inbound };
    bench.prepare(mode, ROUND, 0..entries.into());
    bench.process(0..ROUND / 2, mode);
    barrier.wait();
    bench.process(ROUND / 2..ROUND, mode).cpu
}

#[cfg(test)]
mod tests {
    use super::super::MOST_ENTRIES;
    use super::*;

    #[test]
    fn flows_of_an_external_address_have_ports_of_their_own() {
        let last = FLOWS_OF_ADDRESS - 1;
        assert_eq!(internal(last).1, 63_487);
        assert_eq!(internal(last).0, FIRST_SUBSCRIBER + 959);
        assert_eq!(internal(FLOWS_OF_ADDRESS), (FIRST_SUBSCRIBER + 1024, 2048));
        assert!(addresses(MOST_ENTRIES) <= 17);
    }
}
