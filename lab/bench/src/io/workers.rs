//! Several workers compared with one: the gateway's own loop without a network, over devices that
//! make their packets themselves. So every processor runs a worker, and none runs the tester.
//!
//! Turns alternate. In the first, one worker alone has all mappings, on each processor in its turn.
//! In the second, the requested number of workers, each on a processor of its own, share the
//! mappings. In the third, as many independent gateways of one worker show what the machine
//! permits. In one half of the measurements every packet comes to the worker that owns it. In the
//! other half packets come to any worker, so most have to be handed over.

use super::feed::{Count, FLOWS_EACH, Feed};
use crate::clock;
use crate::spread::Spread;
use natgate_engine::{AddressRange, Config, Limits, PoolConfig, Prefix, SideConfig, Timeouts};
use natgate_gateway::{Clock, Settings, SideSettings, Worker, WorkerSettings, team};
use natgate_io::{Device, worker_of_source};
use natgate_wire::arp::Mac;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SUBSCRIBERS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 0);
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
/// Mappings of an external address.
const MAPPINGS_EACH: u32 = 40_000;
/// Longer than any measurement.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// Time of one turn.
const TURN: Duration = Duration::from_millis(100);
/// Longest time to create the mappings.
const MOST_FILLING: Duration = Duration::from_secs(60);

/// Results of several workers and of one alone.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) workers: u16,
    pub(super) mappings: u32,
    /// True if packets come to the worker that owns them.
    pub(super) steered: bool,
    /// Packets a second of one worker, by wall time.
    pub(super) one_pps: Spread,
    /// Packets a second of all workers together, by wall time.
    pub(super) all_pps: Spread,
    /// Ratio of `all_pps` to `one_pps`, by wall time, for each turn.
    pub(super) times: Spread,
    /// Ratio by the threads' processor time: the sum of each thread's packets a second.
    pub(super) times_by_processor: Spread,
    /// Ratio of as many independent gateways of one worker each to one worker, by wall time. The
    /// gateways share only the machine.
    pub(super) apart_times: Spread,
}

impl Row {
    /// Returns true for a steered row with this number of workers and mappings.
    pub(super) fn is_of(&self, workers: u16, mappings: u32) -> bool {
        (self.workers, self.mappings, self.steered) == (workers, mappings, true)
    }
}

/// A worker, and the count of packets that have left it.
struct Running {
    worker: Worker,
    sent: Count,
    /// Processor of this worker alone.
    core: usize,
}

/// Work of a worker in one turn.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    packets: f64,
    /// Seconds of wall time and of processor time.
    wall: f64,
    cpu: f64,
}

/// Measures `workers` workers over `mappings` mappings for about `time`.
pub(super) fn measure(workers: u16, mappings: u32, steered: bool, time: Duration) -> Row {
    let count = usize::from(workers);
    let mut one = gateway(1, mappings, true);
    let mut all = gateway(count, mappings, steered);
    let mut apart = apart(count, mappings);
    let turns = (time.as_secs_f64() / TURN.as_secs_f64() / 2.0).ceil().max(3.0) as usize;
    let mut found: Vec<[Vec<Done>; 3]> = Vec::new();
    let each = if steered { 1 } else { u64::from(workers) };
    fill(&mut one, mappings.into());
    fill(&mut all, each * u64::from(mappings));
    fill(&mut apart, mappings.into());
    for turn in 0..turns {
        one[0].core = turn % count;
        found.push([run(&mut one), run(&mut all), run(&mut apart)]);
    }
    let wall = |done: &[Done]| done.iter().map(|done| done.packets / done.wall).sum::<f64>();
    let cpu = |done: &[Done]| done.iter().map(|done| done.packets / done.cpu).sum::<f64>();
    let spread =
        |of: &dyn Fn(&[Vec<Done>; 3]) -> f64| Spread::of(&found.iter().map(of).collect::<Vec<_>>());
    Row {
        workers,
        mappings,
        steered,
        one_pps: spread(&|[one, ..]| wall(one)),
        all_pps: spread(&|[_, all, _]| wall(all)),
        times: spread(&|[one, all, _]| wall(all) / wall(one)),
        times_by_processor: spread(&|[one, all, _]| cpu(all) / cpu(one)),
        apart_times: spread(&|[one, _, apart]| wall(apart) / wall(one)),
    }
}

/// Creates all mappings: each device sends a packet of every flow before it draws random flows.
fn fill(workers: &mut [Running], flows: u64) {
    let sent = |workers: &[Running]| workers.iter().map(|one| one.sent.read()).sum::<u64>();
    let enough = Instant::now() + MOST_FILLING;
    // One device may be ahead of another, so the loop waits for twice the number of packets.
    while sent(workers) < 2 * flows && Instant::now() < enough {
        run(workers);
    }
}

/// Runs all workers for one turn.
fn run(workers: &mut [Running]) -> Vec<Done> {
    let (barrier, stop) = (&Barrier::new(workers.len()), &AtomicBool::new(false));
    thread::scope(|scope| {
        let threads: Vec<_> =
            workers.iter_mut().map(|one| scope.spawn(move || one.turn(barrier, stop))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

impl Running {
    fn turn(&mut self, barrier: &Barrier, stop: &AtomicBool) -> Done {
        let mut set = CpuSet::new();
        set.set(self.core);
        // If this is forbidden, the figures by processor time remain valid.
        let _ = sched_setaffinity(None, &set);
        let clock = Clock::new();
        barrier.wait();
        let (begin, cpu) = (Instant::now(), clock::now());
        let before = self.sent.read();
        while !stop.load(Ordering::Relaxed) {
            self.worker.turn(clock.now(), &mut ());
            if begin.elapsed() >= TURN {
                stop.store(true, Ordering::Relaxed);
            }
        }
        Done {
            packets: (self.sent.read() - before) as f64,
            wall: begin.elapsed().as_secs_f64(),
            cpu: (clock::now() - cpu) as f64 / 1e9,
        }
    }
}

/// Creates a gateway of `count` workers, with devices that send the packets of `flows` flows.
fn gateway(count: usize, flows: u32, steered: bool) -> Vec<Running> {
    let settings = settings(count, flows);
    let subscribers: Vec<u32> =
        (SUBSCRIBERS.to_bits() + 256..).take((flows / FLOWS_EACH).max(1) as usize).collect();
    let of = |worker: usize| -> Vec<u32> {
        let own =
            |address: &&u32| !steered || worker_of_source((**address).into(), count) == worker;
        subscribers.iter().filter(own).copied().collect()
    };
    let device = |worker: usize| -> (Count, Vec<Box<dyn Device>>) {
        let sent = Count::default();
        let inside = Feed::new("in", Mac([2, 0, 0, 0, 0, 1]), of(worker), Count::default());
        let outside = Feed::new("out", Mac([2, 0, 0, 0, 0, 2]), Vec::new(), sent.clone());
        (sent, vec![Box::new(inside), Box::new(outside)])
    };
    let now = Clock::new().now();
    let running = |core: usize, sent, worker: Result<Worker, _>| Running {
        worker: worker.unwrap_or_else(|error| panic!("the laboratory's settings: {error}")),
        sent,
        core,
    };
    if count == 1 {
        let (sent, devices) = device(0);
        return vec![running(0, sent, Worker::new(&settings, [1; 32], devices, now))];
    }
    let wakers = (0..count).map(|_| UnixStream::pair().expect("a pair of sockets").0).collect();
    let worker = |(number, member)| {
        let (sent, devices) = device(number);
        let seed = [number as u8 + 1; 32];
        running(number, sent, Worker::of_team(&settings, seed, devices, member, now))
    };
    team(&settings, wakers).into_iter().enumerate().map(worker).collect()
}

/// Creates `count` gateways of one worker, each on a processor of its own, with `flows` flows
/// together.
fn apart(count: usize, flows: u32) -> Vec<Running> {
    let one = |core| {
        let mut one = gateway(1, flows / count as u32, true);
        one[0].core = core;
        one
    };
    (0..count).flat_map(one).collect()
}

fn settings(count: usize, flows: u32) -> Settings {
    let side = |address: Ipv4Addr, len: u8| {
        let settings = SideSettings {
            address: Some((address, len)),
            ..SideSettings::new(address.to_string())
        };
        let network = Some(Prefix::new(address, len));
        (settings, SideConfig { address: Some(address), network, ..SideConfig::default() })
    };
    let (inside, inside_engine) = side(Ipv4Addr::new(10, 0, 0, 1), 8);
    let (outside, outside_engine) = side(Ipv4Addr::new(192, 0, 2, 1), 24);
    let addresses = (flows.div_ceil(MAPPINGS_EACH)).max(count as u32 * 2);
    let last = Ipv4Addr::from_bits(POOL.to_bits() + addresses - 1);
    let engine = Config {
        inside: inside_engine,
        outside: outside_engine,
        pools: vec![PoolConfig {
            name: "default".into(),
            addresses: vec![AddressRange { first: POOL, last }],
            ports: (1024, 65_535),
            ..PoolConfig::default()
        }],
        limits: Limits {
            mappings: Some(flows + flows / 4 + 1024),
            extra_sessions: Some(0),
            ..Limits::default()
        },
        timeouts: Timeouts { udp: TIMEOUT, ..Timeouts::default() },
        ..Config::default()
    };
    let workers = WorkerSettings { count, cores: Vec::new() };
    Settings { workers, ..Settings::new(engine, inside, outside) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_flows_have_mappings_before_anything_is_measured() {
        for (count, steered) in [(1, true), (2, true), (2, false)] {
            let mut workers = gateway(count, 6400, steered);
            let each = if steered { 1 } else { count as u64 };
            fill(&mut workers, each * 6400);
            let now = Clock::new().now();
            let mut mappings = 0;
            for one in &mut workers {
                mappings += one.worker.status(now).engine.mappings().count();
            }
            assert_eq!(mappings, 6400, "{count} workers, steered: {steered}");
        }
    }

    #[test]
    fn several_workers_carry_packets() {
        let row = measure(2, 640, false, Duration::from_millis(1));
        assert!(row.one_pps.min > 0.0 && row.all_pps.min > 0.0, "{row:?}");
    }
}
