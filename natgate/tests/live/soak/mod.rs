//! Traffic of all kinds at once, for any duration: flows, connections, pings, tunnels, fragments,
//! calls between subscribers, forged packets, floods. Meanwhile the gateway gets requests and other
//! configurations. No resource grows, every byte of every connection arrives, every packet is
//! accounted for, and answers come within a second.
//!
//! The test runs in rounds of traffic and silence. The silence lasts until the last mapping is
//! removed; then the accounts must be exact. `NATGATE_SOAK_SECONDS` sets the time of all four tests
//! together. `NATGATE_SOAK_SEED` repeats the random choices of one test.

mod accounts;
mod clients;
mod raw;
mod strays;

use super::PROGRAM;
use accounts::{Footprint, Wires, differences, number, outcome};
use natgate_control::socket::ask;
use natgate_testnet::{Gateway, Network, TestNetwork, config_with_pool};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Number of tests that share the time.
const RUNS: u64 = 4;

/// Subscribers of each node: the last byte of the first address, and their number.
const HOSTS: [(&str, u8); 2] = [("sub1", 100), ("sub2", 150)];
const HOSTS_EACH: u8 = 48;

/// The kernel's own address on the inside's device, and a port on which it receives datagrams.
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const KERNEL_PORT: u16 = 9000;

/// Alternating limits of new mappings of a subscriber, a second.
const RATES: [u64; 2] = [20, 25];

/// Longest lifetime of a mapping in silence, seconds.
const LONGEST: u64 = 5;

/// Number of addresses that send from inside.
const SENDERS: u64 = 250;

/// Permitted growth of the memory, bytes: during the warm-up, and after it. The lists of all
/// mappings in answers take memory according to their size.
const EARLY_GROWTH: u64 = 48 << 20;
const GROWTH: u64 = 8 << 20;

/// Duration of the warm-up, and longest interval of requests to the gateway.
const WARM_UP: Duration = Duration::from_secs(1);
const ASKED: Duration = Duration::from_millis(250);

/// Most rounds until all expected events have occurred.
const MOST_ROUNDS: u64 = 6;

/// Threads that wait for further requests after an answer.
const LINGERING: usize = 2;

/// Expected reasons of dropped packets.
const REASONS: [&str; 9] = [
    "ttl_exceeded",
    "not_subscriber",
    "fragment_unmatched",
    "no_mapping",
    "mapping_rate",
    "icmp_no_session",
    "no_neighbor",
    "no_route",
    "local_unsupported",
];

const PATIENCE: Duration = Duration::from_secs(10);

/// A kind of traffic: its node, and the function that sends until the end.
type Traffic = (&'static str, fn(&World<'_>, &str, Random));

const TRAFFIC: [Traffic; 15] = [
    ("sub1", clients::flows),
    ("sub2", clients::flows),
    ("sub1", clients::connections),
    ("sub1", clients::connections),
    ("sub2", clients::connections),
    ("sub2", clients::connections),
    ("sub1", clients::pings),
    ("sub2", clients::pings),
    ("sub1", clients::meetings),
    ("sub2", clients::tunnels),
    ("server2", clients::tunnels_end),
    ("sub1", strays::inside),
    ("server1", strays::outside),
    ("sub2", strays::floods),
    ("server2", strays::floods),
];

/// Random numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.next().to_ne_bytes());
        words.take(len).collect()
    }

    /// Sleeps for at most `most` milliseconds.
    fn nap(&mut self, most: u64) {
        thread::sleep(Duration::from_micros(self.below(most * 1000)));
    }
}

macro_rules! tally {
    ($($name:ident,)*) => {
        /// Counters of the clients.
        #[derive(Debug, Default)]
        struct Tally {
            $($name: AtomicU64,)*
        }

        impl Tally {
            /// Names and values of the counters.
            fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

tally! {
    answers, refusals, connections, bytes, pings, large_pings, meetings, tunnels, unanswered,
    unconnected,
}

/// State that all kinds of traffic share.
struct World<'w> {
    network: &'w Network,
    stop: AtomicBool,
    tally: &'w Tally,
    /// Approximate pause between floods.
    pace: Duration,
    /// Recently used external endpoints.
    met: Mutex<Vec<SocketAddrV4>>,
}

impl World<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps, but not beyond the end of the round.
    fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && self.goes_on() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn meet(&self, external: SocketAddrV4) {
        const MOST: usize = 64;
        let mut met = self.met.lock().unwrap();
        if met.len() == MOST {
            met.remove(0);
        }
        met.push(external);
    }

    fn met(&self, random: &mut Random) -> Option<SocketAddrV4> {
        let met = self.met.lock().unwrap();
        let place = random.below(met.len().max(1) as u64);
        met.get(place as usize).copied()
    }
}

/// A gateway under traffic.
struct Soak<'s> {
    network: &'s Network,
    gateway: Gateway,
    backend: &'static str,
    name: String,
    config: Box<dyn Fn(u64) -> String>,
    socket: PathBuf,
    random: Random,
    tally: Tally,
    /// Counters before the first packet.
    first: (Wires, Value),
    reloads: u64,
    /// Longest time of an answer, and of the status by signal.
    slowest: Duration,
    slowest_status: Duration,
}

/// Configuration with a rate of new mappings. All lifetimes are short.
fn config(backend: &str, workers: u64, addresses: u8, socket: &Path, rate: u64) -> String {
    let pool = format!("addresses = [\"203.0.113.1-203.0.113.{addresses}\"]");
    let more = format!(
        "[control]\nsocket = {socket:?}\n\
         [workers]\ncount = {workers}\n\
         [limits]\nmappings = 65536\nextra_sessions = 8192\nnew_mappings_per_second = {rate}\n\
         [timeouts]\nudp = \"1s\"\nicmp = \"1s\"\nother = \"1s\"\ntcp_opening = \"1s\"\n\
         tcp_closing = \"1s\"\ntcp_established = \"{LONGEST}s\"\nhold_down = \"1s\"\n\
         fragment = \"1s\"\n"
    );
    config_with_pool(&pool, &more).replace("af-packet", backend)
}

fn seed() -> u64 {
    let time = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let text = std::env::var("NATGATE_SOAK_SEED");
    text.map_or_else(|_| time(), |text| text.parse().expect("NATGATE_SOAK_SEED is a number"))
}

/// Duration of a test, if the environment sets one.
fn time() -> Option<Duration> {
    let text = std::env::var("NATGATE_SOAK_SECONDS").ok()?;
    let seconds: u64 = text.parse().expect("NATGATE_SOAK_SECONDS is a number");
    Some(Duration::from_secs(seconds / RUNS))
}

/// Gives the nodes their subscribers, and the gateway's machine an address of its own.
fn populate(network: &TestNetwork) {
    for (node, first) in HOSTS {
        let lines = (first..first + HOSTS_EACH)
            .map(|host| format!("address add 10.0.0.{host}/24 dev eth0\n"));
        network.node(node).ip_batch(&lines.collect::<String>()).unwrap();
    }
    network.ip("nat", &format!("address add {KERNEL}/24 dev inside"));
    let shown = network.ip("nat", "-o link show dev inside");
    let mac = shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    // This entry avoids ARP requests, so the machine itself sends no packet.
    network.ip("sub1", &format!("neighbor add {KERNEL} lladdr {mac} dev eth0"));
}

/// The program with settings that make resident memory meaningful: it returns freed memory at once,
/// and has no huge pages. Otherwise the C library keeps, and the kernel clears, tens of megabytes
/// at once from time to time.
fn frugal(network: &Network) -> PathBuf {
    // Child processes inherit this setting.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let path = network.file("natgate");
    let text = format!(
        "#!/bin/sh\n\
         export MALLOC_MMAP_THRESHOLD_=131072 MALLOC_TRIM_THRESHOLD_=131072 MALLOC_ARENA_MAX=1\n\
         exec {PROGRAM} \"$@\"\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

/// Counters at a time without packets in flight: new devices send packets of their own, and one
/// that comes between two readings would be in one of them alone.
fn at_rest(network: &Network, gateway: &Gateway) -> (Wires, Value) {
    let deadline = Instant::now() + PATIENCE;
    let read = || (Wires::read(network), gateway.status().unwrap());
    let mut before = read();
    loop {
        thread::sleep(Duration::from_millis(100));
        let now = read();
        if now.0 == before.0 && now.1["devices"] == before.1["devices"] {
            return now;
        }
        assert!(Instant::now() < deadline, "packets without end: {before:?}, then {now:?}");
        before = now;
    }
}

fn soak(backend: &'static str, workers: u64, addresses: u8) {
    let network = super::network();
    populate(&network);
    let seed = seed();
    let name = format!("{backend}, workers {workers}, addresses {addresses}");
    eprintln!("soak: {name}: seed {seed}");
    let bind = || UdpSocket::bind((KERNEL, KERNEL_PORT)).unwrap();
    let _sink = network.node("nat").enter(bind).unwrap();
    let socket = network.file("control.sock");
    let own = socket.clone();
    let config = move |rate| config(backend, workers, addresses, &own, rate);
    let program = frugal(&network);
    let gateway = Gateway::start_in(&network, "nat", &program, &config(RATES[0])).unwrap();
    let first = at_rest(&network, &gateway);
    let mut soak = Soak {
        network: &network,
        gateway,
        backend,
        name,
        config: Box::new(config),
        socket,
        random: Random(seed),
        tally: Tally::default(),
        first,
        reloads: 0,
        slowest: Duration::ZERO,
        slowest_status: Duration::ZERO,
    };
    let (time, round) = match time() {
        None => (Duration::ZERO, Duration::from_millis(1200)),
        Some(time) => (time, Duration::from_secs(50)),
    };
    soak.goes_on(time, round);
    assert_eq!(soak.gateway.stop().unwrap().code(), Some(0));
}

impl Soak<'_> {
    /// Runs rounds for `time` in all, at least one. The memory is warm after three events: the
    /// largest possible load, by which tables and lists reach their largest size; the first round;
    /// and a tenth of the time.
    fn goes_on(&mut self, time: Duration, round: Duration) {
        let begin = Instant::now();
        self.traffic(WARM_UP, Duration::ZERO);
        let first = self.footprint();
        let mut most = first.resident + EARLY_GROWTH;
        let mut warm = first.resident;
        for number in 1.. {
            self.traffic(round, round / 8);
            let status = self.silence();
            let (now, name) = (self.footprint(), &self.name);
            self.report(begin.elapsed(), &status, [first, now]);
            assert!(now.resident <= most, "{name}: {first:?}, then {warm} bytes, then {now:?}");
            let threads = first.threads + LINGERING;
            assert!(
                now.threads <= threads && now.files <= first.files,
                "{name}: {first:?}, {now:?}"
            );
            if number == 1 || begin.elapsed() < time / 10 {
                warm = warm.max(now.resident);
            } else {
                most = warm + GROWTH;
            }
            let missing = self.missing(&status);
            if begin.elapsed() + round > time && (missing.is_empty() || number >= MOST_ROUNDS) {
                assert!(missing.is_empty(), "{name}: {missing:?}: {:?} {status:#}", self.tally);
                return;
            }
        }
    }

    /// Resources of the gateway without requests.
    fn footprint(&self) -> Footprint {
        let read = || {
            thread::sleep(Duration::from_millis(50));
            Footprint::of(&self.gateway).unwrap()
        };
        // Threads that have answered may not have ended yet.
        (0..4).map(|_| read()).min_by_key(|one| (one.threads, one.files)).unwrap()
    }

    /// Runs traffic for `time`, with `pace` between floods.
    fn traffic(&mut self, time: Duration, pace: Duration) {
        let tally = std::mem::take(&mut self.tally);
        let world = World {
            network: self.network,
            stop: AtomicBool::new(false),
            tally: &tally,
            pace,
            met: Mutex::default(),
        };
        thread::scope(|scope| {
            let world = &world;
            let ends = EndsWithIt(world);
            for (name, kind) in TRAFFIC {
                let (random, node) = (Random(self.random.next()), self.network.node(name));
                scope.spawn(move || {
                    let _ends = EndsWithIt(world);
                    node.enter(|| kind(world, name, random)).unwrap();
                });
            }
            self.interrogate(world, time);
            drop(ends);
        });
        self.tally = tally;
    }

    /// Sends requests to the gateway all the time, and another configuration from time to time.
    fn interrogate(&mut self, world: &World<'_>, time: Duration) {
        let end = Instant::now() + time;
        let mut next_reload = Instant::now() + world.pace;
        while Instant::now() < end && world.goes_on() {
            world.sleep(world.pace.clamp(Duration::from_millis(100), ASKED));
            let begin = Instant::now();
            let status = self.gateway.status().unwrap();
            self.slowest_status = self.slowest_status.max(begin.elapsed());
            self.question("GET", "/v1/workers", &Value::Null);
            let mappings = status["mappings"].as_array().expect("a list").len() as u64;
            let most = SENDERS * RATES[1] * (LONGEST + 2);
            assert!(mappings <= most, "{}: {mappings} mappings", self.name);
            if Instant::now() >= next_reload {
                next_reload += 2 * world.pace.max(ASKED);
                self.reload();
            }
        }
        assert!(self.slowest < Duration::from_secs(1), "{}: {:?}", self.name, self.slowest);
    }

    fn question(&mut self, method: &str, path: &str, body: &Value) {
        let begin = Instant::now();
        let answer = ask(&self.socket, method, path, body, PATIENCE).unwrap();
        assert_eq!(answer.status, 200, "{}: {}", self.name, answer.body);
        self.slowest = self.slowest.max(begin.elapsed());
    }

    fn reload(&mut self) {
        self.reloads += 1;
        let text = (self.config)(RATES[self.reloads as usize % 2]);
        std::fs::write(self.network.file("natgate.toml"), text).unwrap();
        self.question("POST", "/v1/reload", &json!({ "dry_run": true }));
        if self.reloads.is_multiple_of(2) {
            self.gateway.reload().unwrap();
        } else {
            self.question("POST", "/v1/reload", &json!({}));
        }
    }

    /// Waits until every mapping has expired; then the accounts must be exact.
    fn silence(&self) -> Value {
        let begin = Instant::now();
        loop {
            let wires = Wires::read(self.network);
            let status = self.gateway.status().unwrap();
            let left = status["mappings"].as_array().expect("a list").len();
            let (wires_then, status_then) = &self.first;
            let found = differences(self.backend, [&wires, wires_then], [&status, status_then]);
            if found.is_empty() && left == 0 {
                return status;
            }
            let patience = Duration::from_secs(LONGEST) + PATIENCE;
            if begin.elapsed() > patience {
                panic!(
                    "{}: {left} mappings left, {found:#?}, {:?}, {wires:?} after {wires_then:?}, \
                     {status:#} after {}: {}",
                    self.name,
                    self.tally,
                    status_then["devices"],
                    self.gateway.log()
                );
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Prints a line about the results.
    fn report(&self, elapsed: Duration, status: &Value, [warm, now]: [Footprint; 2]) {
        let Footprint { resident, threads, files } = now;
        let grown = resident as i64 - warm.resident as i64;
        let counts = self.tally.each().into_iter().map(|(name, count)| format!("{name} {count}"));
        eprintln!(
            "soak: {}: {} s: forwarded {}, dropped {}, replied {}; {}; \
             {} KiB resident, {:+} of them since the beginning, {threads} threads, {files} files, \
             {} reloads, slowest answer {:?}, slowest state {:?}",
            self.name,
            elapsed.as_secs(),
            outcome(status, "forwarded"),
            outcome(status, "dropped"),
            outcome(status, "replied"),
            counts.collect::<Vec<_>>().join(", "),
            resident >> 10,
            grown >> 10,
            self.reloads,
            self.slowest,
            self.slowest_status,
        );
    }

    /// Expected events that have not occurred yet.
    fn missing(&self, status: &Value) -> Vec<&'static str> {
        let optional = ["unanswered", "unconnected"];
        let counts = self.tally.each().into_iter().filter(|(name, _)| !optional.contains(name));
        let drops = REASONS.map(|reason| (reason, number(&status["counters"]["drops"][reason])));
        let others = [
            ("errors_made", number(&status["router"]["errors_made"])),
            ("reloads", self.reloads / 2),
        ];
        let all = counts.chain(drops).chain(others);
        all.filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    }
}

/// Ends the whole round when any thread ends, even by a panic.
struct EndsWithIt<'w>(&'w World<'w>);

impl Drop for EndsWithIt<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

#[test]
fn soak_packet_sockets() {
    soak("af-packet", 1, 4);
}

#[test]
fn soak_packet_sockets_of_two_workers() {
    soak("af-packet", 2, 1);
}

#[test]
fn soak_af_xdp() {
    soak("af-xdp", 1, 4);
}

#[test]
fn soak_af_xdp_of_two_workers() {
    soak("af-xdp", 2, 4);
}
