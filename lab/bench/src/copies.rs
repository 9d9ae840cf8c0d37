//! The price of the copy: what a partner costs the worker that makes new mappings.
//!
//! A worker with devices in memory makes mappings at a steady rate, each with a packet and its
//! answer: first without a partner, then with a partner in a second thread. The link between the
//! two is the real one, over the loopback device. The clock is real too, so that both nodes and the
//! link do their work as often as they do in a gateway. Only the workers' turns are timed.

use crate::clock;
use crate::instructions::gateway::{
    Frames, REMOTE, Shared, answer, devices, lock, outbound, settings,
};
use anyhow::{Context, ensure};
use natgate_engine::AddressRange;
use natgate_gateway::fleet::{
    Fleet, FleetSettings, LinkStatus, PartnerLink, PartnerSettings, SliceSettings,
};
use natgate_gateway::{Clock, Worker};
use natgate_io::BATCH;
use natgate_partner::Link;
use serde::Serialize;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// New mappings a second.
pub const RATE: u32 = 100_000;

/// Hosts inside, which make mappings in turn.
const HOSTS: u32 = 1024;

/// The external addresses.
const RANGE: AddressRange =
    AddressRange { first: Ipv4Addr::new(203, 0, 113, 0), last: Ipv4Addr::new(203, 0, 113, 31) };

/// Bytes of a payload in a frame of 64 bytes.
const PAYLOAD: [u8; 18] = [0; 18];

/// Time until mappings are copied as fast as they are made: a mapping of UDP is copied after two
/// seconds.
const WARM: Duration = Duration::from_secs(3);

/// Longer than any measurement.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// Longest wait for a state of the pair.
const PATIENCE: Duration = Duration::from_secs(20);

/// Time between two turns of the partner, and of a node that waits.
const PAUSE: Duration = Duration::from_millis(1);

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

/// Measures both gateways for this time. The folder has the certificates of two nodes, `a` and `b`.
///
/// # Errors
/// The link cannot be started, or the two do not become a pair.
pub fn measure(folder: &Path, time: Duration) -> anyhow::Result<Price> {
    let mut alone = Node::new()?;
    let alone_ns = alone.run(time)?;
    drop(alone);
    let ports = free_ports().context("no free ports")?;
    let mut active = Node::new()?;
    active.join(folder, 0, ports)?;
    let mut partner = Node::new()?;
    partner.join(folder, 1, ports)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let second = scope.spawn(|| partner.serve(&stop));
        let result = active.begin().and_then(|()| active.run(time));
        stop.store(true, Ordering::Relaxed);
        let (spent, copies) =
            second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let made = active.mappings();
        ensure!(copies == made, "the partner has {copies} copies of {made} mappings");
        let partner_ns = spent / f64::from(made);
        Ok(Price { alone_ns, active_ns: result?, partner_ns })
    })
}

struct Node {
    worker: Worker,
    clock: Clock,
    /// Frames that come to each device, and those that have left each device.
    ports: [(Shared, Shared); 2],
    /// Mappings so far.
    made: u32,
}

impl Node {
    fn new() -> anyhow::Result<Self> {
        let mut settings = settings(HOSTS, RANGE);
        settings.engine.limits.mappings = Some(1 << 20);
        settings.engine.timeouts.udp = TIMEOUT;
        let (ports, clock) = (Default::default(), Clock::new());
        let worker = Worker::new(&settings, [7; 32], devices(&ports), clock.now());
        let worker =
            worker.map_err(|error| anyhow::anyhow!("the laboratory's settings: {error}"))?;
        Ok(Self { worker, clock, ports, made: 0 })
    }

    /// Becomes the first or the second node of a pair.
    fn join(&mut self, folder: &Path, node: usize, ports: [u16; 2]) -> anyhow::Result<()> {
        let names = ["a", "b"];
        let file = |kind: &str| folder.join(format!("{}.{kind}", names[node]));
        let at = |node: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, ports[node]));
        let starts = file("price");
        let _ = std::fs::remove_file(&starts);
        let fleet = FleetSettings {
            node: names[node].into(),
            workers: 1,
            listen: at(node),
            certificate: file("pem"),
            key: file("key"),
            authorities: folder.join("ca.pem"),
            partner: PartnerSettings { node: names[1 - node].into(), address: at(1 - node) },
            slices: vec![SliceSettings { addresses: vec![RANGE], owner: "a".into() }],
            starts,
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
        let (part, _) = Fleet::new(fleet, Box::new(Carrier(link)), node as u32)?;
        self.worker.join_fleet(part, self.clock.now());
        Ok(())
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

    /// Takes turns until a packet is translated: the node then is the owner of its slice.
    fn begin(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while self.ask(1).is_empty() {
            ensure!(Instant::now() < end, "the nodes have not become a pair");
            self.turn();
            thread::sleep(PAUSE);
        }
        self.made = 1;
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
    fn run(&mut self, time: Duration) -> anyhow::Result<f64> {
        let slot = Duration::from_secs(1) * BATCH as u32 / RATE;
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
        // The last mappings are copied.
        self.wait(Instant::now() + WARM);
        Ok(spent / f64::from((all - warm) * BATCH as u32))
    }

    /// Takes turns until it is to stop. Returns the processor time of all, and the number of
    /// mappings then.
    fn serve(&mut self, stop: &AtomicBool) -> (f64, u32) {
        let mut spent = 0.0;
        while !stop.load(Ordering::Relaxed) {
            spent += self.turn();
            let next = self.worker.next_deadline().since(self.clock.now());
            thread::sleep(next.min(PAUSE));
        }
        (spent, self.mappings())
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
struct Carrier(Link);

impl PartnerLink for Carrier {
    fn send(&mut self, message: Vec<u8>) -> bool {
        self.0.send(message)
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
