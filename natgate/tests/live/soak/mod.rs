//! Traffic of all kinds at once, for as long as one likes: flows that come and go, connections,
//! pings, tunnels, fragments, calls between subscribers, forgeries, floods; meanwhile the gateway
//! is asked, and given other configurations. Nothing grows, every byte of every connection arrives,
//! every packet is accounted for, and answers come within a second.
//!
//! It goes by rounds: traffic, then silence until the last mapping has gone, when the accounts have
//! to add up to the packet. `NATGATE_SOAK_SECONDS` says how long all four tests take together;
//! `NATGATE_SOAK_SEED` repeats the choices of one.

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

/// How many tests share the time.
const RUNS: u64 = 4;

/// Subscribers of each node: the last part of the first one's address, and how many there are.
const HOSTS: [(&str, u8); 2] = [("sub1", 100), ("sub2", 150)];
const HOSTS_EACH: u8 = 48;

/// The kernel's own address on the inside's device, and a port where it takes datagrams.
const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const KERNEL_PORT: u16 = 9000;

/// New mappings a second that a subscriber may make, by turns.
const RATES: [u64; 2] = [20, 25];

/// How long the longest mapping lives in silence, seconds.
const LONGEST: u64 = 5;

/// Addresses that send from inside.
const SENDERS: u64 = 250;

/// What the memory may grow by, bytes: while it was warming up, and after that. The lists of all
/// mappings, which are made to be told, take some by their size.
const EARLY_GROWTH: u64 = 48 << 20;
const GROWTH: u64 = 8 << 20;

/// How long it takes to warm up, and how often the gateway is asked at least.
const WARM_UP: Duration = Duration::from_secs(1);
const ASKED: Duration = Duration::from_millis(250);

/// Rounds at most until there was everything that should have been.
const MOST_ROUNDS: u64 = 6;

/// Threads that wait a while for more after they have answered.
const LINGERING: usize = 2;

/// Why packets must have been dropped, among other things.
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

/// A kind of traffic: in which node, and what is done there until it is to stop.
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

/// Choices that can be repeated (SplitMix64).
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

    /// Sleeps for so many milliseconds at most.
    fn nap(&mut self, most: u64) {
        thread::sleep(Duration::from_micros(self.below(most * 1000)));
    }
}

macro_rules! tally {
    ($($name:ident,)*) => {
        /// What clients have counted.
        #[derive(Debug, Default)]
        struct Tally {
            $($name: AtomicU64,)*
        }

        impl Tally {
            /// Names and counts.
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

/// What all kinds of traffic share.
struct World<'w> {
    network: &'w Network,
    stop: AtomicBool,
    tally: &'w Tally,
    /// How long there is between floods, about.
    pace: Duration,
    /// External endpoints that somebody had lately.
    met: Mutex<Vec<SocketAddrV4>>,
}

impl World<'_> {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps, but not beyond the end.
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

/// One gateway under traffic.
struct Soak<'s> {
    network: &'s Network,
    gateway: Gateway,
    backend: &'static str,
    name: String,
    config: Box<dyn Fn(u64) -> String>,
    socket: PathBuf,
    random: Random,
    tally: Tally,
    /// As it was when nothing had come yet.
    first: (Wires, Value),
    reloads: u64,
    /// The longest that an answer, and that the state by signal took.
    slowest: Duration,
    slowest_status: Duration,
}

/// The configuration, by how fast subscribers may make mappings. Everything is short-lived.
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

/// How long a test takes, if somebody wants to know.
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
    // Nobody asks for it, so the machine itself sends nothing.
    network.ip("sub1", &format!("neighbor add {KERNEL} lladdr {mac} dev eth0"));
}

/// The program, told to give back what it has freed, and without huge pages: else the C library
/// keeps, and the kernel clears, tens of megabytes at once now and then, and what is resident says
/// little.
fn frugal(network: &Network) -> PathBuf {
    // Programs that this one starts inherit it.
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
    let first = (Wires::read(&network), gateway.status().unwrap());
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
    /// Rounds for that long in all, at least one. It is warm after the most that can come, by which
    /// tables and lists have had their largest size, after the first round, and after a tenth of
    /// the time.
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

    /// What the gateway takes when nobody asks it anything.
    fn footprint(&self) -> Footprint {
        let read = || {
            thread::sleep(Duration::from_millis(50));
            Footprint::of(&self.gateway).unwrap()
        };
        // Threads that have answered may not have ended yet.
        (0..4).map(|_| read()).min_by_key(|one| (one.threads, one.files)).unwrap()
    }

    /// Traffic for that long, with so much time between floods.
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

    /// Asks the gateway all the time, and gives it another configuration now and then.
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

    /// Waits until everything has run out; then the accounts add up.
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

    /// A line about what was.
    fn report(&self, elapsed: Duration, status: &Value, [warm, now]: [Footprint; 2]) {
        let Footprint { resident, threads, files } = now;
        let grown = resident as i64 - warm.resident as i64;
        let counts = self.tally.each().into_iter().map(|(name, count)| format!("{name} {count}"));
        eprintln!(
            "soak: {}: {} s: forwarded {}, dropped {}, replied {}; {}; \
             {} KiB resident, {:+} of them since the beginning, {threads} threads, {files} files, {} reloads, slowest \
             answer {:?}, slowest state {:?}",
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

    /// What should have been and has not yet.
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

/// Whoever ends, by a panic too, ends all of it.
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
