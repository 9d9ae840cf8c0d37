//! The price of the copy: what a partner costs the worker that makes new mappings; and the time
//! until a partner that joins has a copy of all.
//!
//! A worker with devices in memory makes mappings at a steady rate, each with a packet and its
//! answer: first without a partner, then with a partner in a second thread. The link between the
//! two is the real one, over the loopback device. The clock is real too, so that both nodes and the
//! link do their work as often as they do in a gateway. Only the workers' turns are timed.
//!
//! For a join, the owner makes all mappings while its partner is away.

use crate::clock;
use crate::instructions::gateway::{
    Frames, REMOTE, Shared, answer, devices, lock, outbound, settings,
};
use anyhow::{Context, ensure};
use natgate_engine::AddressRange;
use natgate_gateway::fleet::{
    Fleet, FleetAsker, FleetRequest, FleetSettings, LinkStatus, PartnerLink, PartnerSettings,
    SliceSettings,
};
use natgate_gateway::{Clock, Worker};
use natgate_io::BATCH;
use natgate_partner::{Link, Memory};
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Names of the nodes.
const NAMES: [&str; 2] = ["a", "b"];

/// Hosts inside, which make mappings in turn.
const HOSTS: u32 = 1024;

/// The first external address, and the mappings for which there is one.
const FIRST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 0);
const EACH: u32 = 1 << 15;

/// Mappings of a node whose price is measured.
const PRICED: u32 = 1 << 20;

/// Bytes of a payload in a frame of 64 bytes.
const PAYLOAD: [u8; 18] = [0; 18];

/// Time until mappings are copied as fast as they are made: a mapping of UDP is copied after two
/// seconds.
const WARM: Duration = Duration::from_secs(3);

/// Longer than any measurement.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Longest wait for a state of the pair.
const PATIENCE: Duration = Duration::from_secs(60);

/// Mappings that are copied in a second at least.
const LEAST_RATE: u32 = 50_000;

/// Time between two turns of a node that waits to become an owner, and between two questions for
/// the owner's state.
const PAUSE: Duration = Duration::from_millis(1);

/// Time between two looks at the partner's copies.
const LOOK: Duration = Duration::from_millis(200);

/// Processor time for each new mapping, nanoseconds; the work of an idle worker is included.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Price {
    /// The worker of a gateway without a partner.
    pub alone_ns: f64,
    /// The worker of the active gateway of a pair.
    pub active_ns: f64,
    /// The worker of its partner.
    pub partner_ns: f64,
}

/// A partner that joins an owner with many mappings.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Join {
    /// The mappings.
    pub mappings: u32,
    /// Time from the start of the partner's link until the owner knows that the copy is complete,
    /// milliseconds.
    pub copied_ms: f64,
    /// Processor time for each mapping meanwhile, nanoseconds: the owner's worker, the partner's,
    /// and both links with what else the process does.
    pub owner_ns: f64,
    /// As above.
    pub partner_ns: f64,
    /// As above.
    pub links_ns: f64,
    /// Packets, and those of them that counted as lost.
    pub packets: u64,
    /// As above.
    pub lost: u64,
}

/// Measures both gateways for this time, at this rate of new mappings a second. The folder has the
/// certificates of two nodes, `a` and `b`.
///
/// # Errors
/// The link cannot be started, the two do not become a pair, the rate is not reached, or the
/// partner does not get a copy of each mapping.
pub fn measure(folder: &Path, rate: u32, time: Duration) -> anyhow::Result<Price> {
    let mut alone = Node::new(PRICED)?;
    let alone_ns = alone.run(rate, time)?;
    drop(alone);
    let ports = new_pair(folder)?;
    let mut active = Node::new(PRICED)?;
    active.join(folder, 0, ports)?;
    let mut partner = Node::new(PRICED)?;
    partner.join(folder, 1, ports)?;
    let (partner, stop) = (Mutex::new(partner), AtomicBool::new(false));
    thread::scope(|scope| {
        let second = scope.spawn(|| serve(&partner, &stop));
        let result = active.begin().and_then(|()| active.run(rate, time));
        let copied = result.and_then(|spent| active.see_copied(&partner).map(|()| spent));
        stop.store(true, Ordering::Relaxed);
        let spent = second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Price { alone_ns, active_ns: copied?, partner_ns: spent / f64::from(active.made) })
    })
}

/// Takes a node's turns until it is to stop. Returns their processor time, nanoseconds.
fn serve(node: &Mutex<Node>, stop: &AtomicBool) -> f64 {
    let mut spent = 0.0;
    while !stop.load(Ordering::Relaxed) {
        let mut node = lock(node);
        spent += node.turn();
        let next = node.worker.next_deadline().since(node.clock.now());
        drop(node);
        thread::sleep(next);
    }
    spent
}

/// Measures the join of a partner. The folder is as for [`measure`].
///
/// # Errors
/// As [`measure`], or the copy is not complete after long.
pub fn join(folder: &Path, mappings: u32) -> anyhow::Result<Join> {
    let ports = new_pair(folder)?;
    let mut owner = Node::new(mappings)?;
    let asker = owner.join(folder, 0, ports)?;
    let mut former = Node::new(mappings)?;
    former.join(folder, 1, ports)?;
    let (former, stop) = (Mutex::new(former), AtomicBool::new(false));
    thread::scope(|scope| {
        let second = scope.spawn(|| serve(&former, &stop));
        let result = owner.begin();
        stop.store(true, Ordering::Relaxed);
        second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result
    })?;
    drop(former);
    owner.fill(mappings)?;
    let mut partner = Node::new(mappings)?;
    let (began, before) = (Instant::now(), clock::of_process());
    partner.join(folder, 1, ports)?;
    let (nodes, stop) = ([owner, partner].map(Mutex::new), AtomicBool::new(false));
    thread::scope(|scope| {
        let workers = nodes.each_ref().map(|node| scope.spawn(|| serve(node, &stop)));
        let copied = wait_for_copy(&asker, mappings);
        let (took, all) = (began.elapsed(), clock::of_process() - before);
        stop.store(true, Ordering::Relaxed);
        let [owner_ns, partner_ns] =
            workers.map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let (packets, lost) = copied?;
        let copies = lock(&nodes[1]).mappings();
        ensure!(copies == mappings, "the partner has {copies} copies of {mappings} mappings");
        let each = |time: f64| time / f64::from(mappings);
        Ok(Join {
            mappings,
            copied_ms: took.as_secs_f64() * 1e3,
            owner_ns: each(owner_ns),
            partner_ns: each(partner_ns),
            links_ns: each(all as f64 - owner_ns - partner_ns),
            packets,
            lost,
        })
    })
}

/// Waits until the owner knows that the copy of this number of mappings is complete. Returns the
/// numbers of packets and of lost ones.
fn wait_for_copy(asker: &FleetAsker, mappings: u32) -> anyhow::Result<(u64, u64)> {
    let end = Instant::now() + PATIENCE + Duration::from_secs((mappings / LEAST_RATE).into());
    loop {
        let status = asker.ask(FleetRequest::Status).map_err(anyhow::Error::msg)?;
        let slice = status.slices.first().context("a slice")?;
        if let Some(sent) = slice.sent.filter(|sent| sent.records >= u64::from(mappings))
            && slice.is_complete
        {
            return Ok((sent.packets, sent.lost));
        }
        ensure!(Instant::now() < end, "the copy is not complete: {slice:?}");
        thread::sleep(PAUSE);
    }
}

/// Two ports for a new pair, whose nodes start for the first time.
fn new_pair(folder: &Path) -> anyhow::Result<[u16; 2]> {
    NAMES.iter().for_each(|name| _ = std::fs::remove_file(starts(folder, name)));
    free_ports().context("no free ports")
}

/// File of the number of a node's starts.
fn starts(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.price"))
}

struct Node {
    worker: Worker,
    clock: Clock,
    /// The external addresses.
    range: AddressRange,
    /// Frames that come to each device, and those that have left each device.
    ports: [(Shared, Shared); 2],
    /// Mappings so far.
    made: u32,
}

impl Node {
    fn new(mappings: u32) -> anyhow::Result<Self> {
        let last = FIRST.to_bits() + mappings.div_ceil(EACH) - 1;
        let range = AddressRange { first: FIRST, last: last.into() };
        let mut settings = settings(HOSTS, range);
        let limits = &mut settings.engine.limits;
        // Mappings without an answer do not fill the whole table.
        limits.mappings = Some(mappings + mappings / 4);
        // For a join the hosts make all mappings at once.
        (limits.udp_ports, limits.new_mappings_per_second) = (mappings, 1_000_000_000);
        settings.engine.timeouts.udp = TIMEOUT;
        let (ports, clock) = (Default::default(), Clock::new());
        let worker = Worker::new(&settings, [7; 32], devices(&ports), clock.now());
        let worker =
            worker.map_err(|error| anyhow::anyhow!("the laboratory's settings: {error}"))?;
        Ok(Self { worker, clock, range, ports, made: 0 })
    }

    /// Becomes the first or the second node of a pair.
    fn join(&mut self, folder: &Path, node: usize, ports: [u16; 2]) -> anyhow::Result<FleetAsker> {
        let file = |kind: &str| folder.join(format!("{}.{kind}", NAMES[node]));
        let at = |node: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, ports[node]));
        let fleet = FleetSettings {
            node: NAMES[node].into(),
            workers: 1,
            listen: at(node),
            certificate: file("pem"),
            key: file("key"),
            authorities: folder.join("ca.pem"),
            partner: PartnerSettings { node: NAMES[1 - node].into(), address: at(1 - node) },
            slices: vec![SliceSettings { addresses: vec![self.range], owner: "a".into() }],
            starts: starts(folder, NAMES[node]),
            hang: PATIENCE,
        };
        let link = natgate_partner::start(&natgate_partner::Settings {
            node: fleet.node.clone(),
            listen: fleet.listen,
            certificate: fleet.certificate.clone(),
            key: fleet.key.clone(),
            authorities: fleet.authorities.clone(),
            partner: fleet.partner.node.clone(),
            address: fleet.partner.address,
        })?;
        let (part, asker) =
            Fleet::new(fleet, Box::new(Carrier(link, Memory::default())), node as u32)?;
        self.worker.join_fleet(part, self.clock.now());
        Ok(asker)
    }

    /// Processor time of a turn, nanoseconds.
    fn turn(&mut self) -> f64 {
        let now = self.clock.now();
        clock::time(|| self.worker.turn(now, &mut ())).0
    }

    /// Takes the turns that are due until then. Returns their processor time.
    fn wait(&mut self, until: Instant) -> f64 {
        let mut spent = 0.0;
        while let left = until.saturating_duration_since(Instant::now())
            && !left.is_zero()
        {
            let next = self.worker.next_deadline().since(self.clock.now());
            thread::sleep(left.min(next));
            if next < left {
                spent += self.turn();
            }
        }
        spent
    }

    /// Takes turns until there is a mapping: the node then is the owner of its slice.
    fn begin(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.mappings() == 0 {
            self.ask(1);
            ensure!(Instant::now() < end, "the nodes have not become a pair");
            self.turn();
            thread::sleep(PAUSE);
        }
        self.made = 1;
        Ok(())
    }

    /// Makes mappings up to this number, and waits until they are old enough for a copy.
    fn fill(&mut self, mappings: u32) -> anyhow::Result<()> {
        while self.made < mappings {
            let count = (mappings - self.made).min(BATCH as u32);
            self.ask(count);
            self.made += count;
            self.turn();
            lock(&self.ports[1].1).clear();
        }
        self.wait(Instant::now() + WARM);
        let made = self.mappings();
        ensure!(made == mappings, "the owner has {made} of {mappings} mappings");
        Ok(())
    }

    /// Puts the first packets of new mappings before the inside device. Returns what has left the
    /// outside device since the last call.
    fn ask(&mut self, count: u32) -> Frames {
        let frame = |number: u32| {
            let port = 1024 + number / HOSTS;
            outbound(number % HOSTS, (port as u16, REMOTE.1), &PAYLOAD)
        };
        lock(&self.ports[0].0).extend((self.made..self.made + count).map(frame));
        std::mem::take(&mut lock(&self.ports[1].1))
    }

    /// Makes mappings at the rate, and answers each. Returns the processor time for each, once they
    /// are copied as fast as they are made.
    fn run(&mut self, rate: u32, time: Duration) -> anyhow::Result<f64> {
        let slot = Duration::from_secs(1) * BATCH as u32 / rate;
        let slots = |time: Duration| (time.as_nanos() / slot.as_nanos()) as u32;
        let (warm, all) = (slots(WARM), slots(WARM + time));
        let (begin, mut spent) = (Instant::now(), 0.0);
        for number in 0..all {
            let waited = self.wait(begin + slot * number);
            let left = self.ask(BATCH as u32);
            self.made += BATCH as u32;
            lock(&self.ports[1].0).extend(left.iter().map(|frame| answer(frame, &PAYLOAD)));
            let turn = self.turn();
            if number >= warm {
                spent += waited + turn;
            }
            lock(&self.ports[0].1).clear();
        }
        let late = begin.elapsed().saturating_sub(slot * all);
        ensure!(late < time / 10, "the rate was not reached: {late:?} behind");
        Ok(spent / f64::from((all - warm) * BATCH as u32))
    }

    /// Takes turns until the partner has a copy of each mapping.
    fn see_copied(&mut self, partner: &Mutex<Self>) -> anyhow::Result<()> {
        let (made, end) = (self.mappings(), Instant::now() + PATIENCE);
        loop {
            let copies = lock(partner).mappings();
            if copies == made {
                return Ok(());
            }
            let in_time = Instant::now() < end;
            ensure!(in_time, "the partner has {copies} copies of {made} mappings");
            self.wait(Instant::now() + LOOK);
        }
    }

    fn mappings(&mut self) -> u32 {
        let now = self.clock.now();
        self.worker.status(now).engine.mappings().count() as u32
    }
}

/// Two ports of UDP that nobody has.
fn free_ports() -> std::io::Result<[u16; 2]> {
    let socket = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let sockets = [socket()?, socket()?];
    Ok([sockets[0].local_addr()?.port(), sockets[1].local_addr()?.port()])
}

/// The link as a worker sees it. There is no guardian.
struct Carrier(Link, Memory);

impl PartnerLink for Carrier {
    fn send(&mut self, message: Vec<u8>) -> bool {
        self.0.queue(message)
    }

    fn send_copy(&mut self, message: &[u8]) -> bool {
        self.0.queue(self.1.copy(message))
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        self.0.receive()
    }

    fn room(&self) -> usize {
        self.0.datagram_room()
    }

    fn tell(&mut self, view: Vec<u8>) {
        // A view of one slice is far below the limit.
        let _ = self.0.tell(view);
    }

    fn heard(&mut self) -> Option<Vec<u8>> {
        self.0.heard()
    }

    fn pass(&mut self, datagram: &[u8]) -> bool {
        self.0.pass(datagram)
    }

    fn passed(&mut self) -> Option<Vec<u8>> {
        self.0.passed()
    }

    fn status(&self) -> LinkStatus {
        let status = self.0.status();
        LinkStatus {
            connected: status.connected_since.map(|since| since.elapsed()),
            leaves_keys: status.version.is_some_and(|version| version >= natgate_partner::KEYS),
            ..LinkStatus::default()
        }
    }

    fn ended(&mut self) -> Option<u64> {
        self.0.partner_ended()
    }

    fn beat(&mut self, _: u64) {}
}
