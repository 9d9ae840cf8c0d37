//! The gateway around the engine: a worker with two devices in memory, and an engine with the same
//! sessions that gets the same packets.
//!
//! The difference of both counts is the cost of sorting frames, finding next hops and writing
//! headers. Functions whose names begin with `counted` are counted. The devices' own functions are
//! not: callgrind stops counting while they run.

use natgate_engine::{
    AddressRange, Config, Engine, Packet, PoolConfig, Prefix, Side, SideConfig, Timestamp, Verdict,
};
use natgate_gateway::{Settings, SideSettings, StaticNeighbor, Worker};
use natgate_io::{
    BATCH, Batch, Change, Device, Frame, HEADROOM, LinkInfo, Lost, Receive, Statistics, Transmit,
};
use natgate_wire::Ipv4;
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// Sessions, each of a host of its own.
const SESSIONS: u32 = 100;
/// Batches of a round.
pub(super) const BATCHES: usize = 16;

/// Bytes of a frame of 64 bytes without its checksum, and of its packet.
const FRAME: usize = 60;
const PACKET: usize = FRAME - ETHERNET_LEN;
const BUFFER: usize = 256;

const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OUTSIDE: Mac = Mac([2, 0, 0, 0, 0, 2]);
const STATION: Mac = Mac([2, 0, 0, 0, 2, 9]);
const HOSTS: u32 = Ipv4Addr::new(10, 0, 0, 16).to_bits();
const UPSTREAM: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const REMOTE: (u32, u16) = (Ipv4Addr::new(198, 51, 100, 9).to_bits(), 53);
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const PORT: u16 = 4000;

/// Bytes of frames: those that come to a device, or those that have left it.
type Frames = Vec<[u8; FRAME]>;
type Shared = Arc<Mutex<Frames>>;

/// A gateway and an engine with the same sessions.
pub(super) struct Pair {
    worker: Worker,
    engine: Engine,
    /// Frames that come to each device, and those that have left each device.
    ports: [(Shared, Shared); 2],
    /// Frames in each direction, by session: first from inside, then from outside.
    frames: [Frames; 2],
    now: Timestamp,
}

impl Pair {
    /// Creates both, with their sessions.
    pub(super) fn new() -> Self {
        let (settings, now) = (settings(), Timestamp(1_000_000_000));
        let ports: [(Shared, Shared); 2] = Default::default();
        let device = |name: &str, mac, (from, to): &(Shared, Shared)| -> Box<dyn Device> {
            Box::new(Lane {
                link: LinkInfo { name: name.into(), index: 1, mac, mtu: 1500, up: true },
                source: Source { buffers: vec![[0; BUFFER]; BATCH], frames: Arc::clone(from) },
                sink: Sink { frames: Arc::clone(to) },
            })
        };
        let devices = [device("in", INSIDE, &ports[0]), device("out", OUTSIDE, &ports[1])];
        let worker = Worker::new(&settings, [7; 32], devices, now);
        let worker = worker.expect("the laboratory's settings can be run");
        let engine = Engine::new(&settings.engine, [7; 32], now);
        let mut engine = engine.expect("the laboratory's configuration can be run");
        engine.populate();
        let outbound: Frames =
            (0..SESSIONS).map(|host| frame(INSIDE, ((HOSTS + host, PORT), REMOTE))).collect();
        let mut pair = Self { worker, engine, ports, frames: [outbound, Vec::new()], now };
        pair.open();
        pair
    }

    /// Creates the sessions, and sends the first answer of each.
    fn open(&mut self) {
        for session in 0..SESSIONS as usize {
            let first = self.frames[0][session];
            lock(&self.ports[0].0).push(first);
            self.turn();
            let left = lock(&self.ports[1].1).pop().expect("the gateway forwards the packet");
            let ip = Ipv4::new_checked(&left[ETHERNET_LEN..]).expect("a packet");
            let port = u16::from_be_bytes([left[34], left[35]]);
            self.frames[1].push(frame(OUTSIDE, (REMOTE, (ip.source(), port))));
            self.engine_batch(Side::Inside, &[first]);
            self.answer(session);
        }
    }

    fn answer(&mut self, session: usize) {
        let answer = self.frames[1][session];
        lock(&self.ports[1].0).push(answer);
        self.turn();
        assert!(lock(&self.ports[0].1).pop().is_some(), "the gateway forwards the answer");
        self.engine_batch(Side::Outside, &[answer]);
    }

    /// One turn of the worker.
    fn turn(&mut self) {
        self.now = Timestamp(self.now.0 + 10_000);
        counted_turn(&mut self.worker, self.now);
    }

    /// Gives frames to the engine alone, as one batch.
    fn engine_batch(&mut self, side: Side, frames: &[[u8; FRAME]]) {
        let mut buffers: Vec<[u8; FRAME]> = frames.to_vec();
        let mut packets: Vec<Packet<'_>> =
            buffers.iter_mut().map(|bytes| Packet::new(&mut bytes[..], ETHERNET_LEN)).collect();
        let mut verdicts = vec![Verdict::Held; frames.len()];
        counted_engine(&mut self.engine, self.now, side, &mut packets, &mut verdicts);
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Forward(_))));
    }

    /// Frames of a batch from a side, in an order that repeats no host at once.
    fn batch(&self, side: Side, number: usize) -> Frames {
        let frames = &self.frames[usize::from(side == Side::Outside)];
        (0..BATCH).map(|place| frames[(number * BATCH + place) * 37 % frames.len()]).collect()
    }

    /// Gives a round of packets from a side to the gateway.
    pub(super) fn gateway(&mut self, side: Side) {
        let (from, to) = if side == Side::Inside { (0, 1) } else { (1, 0) };
        for number in 0..BATCHES {
            let frames = self.batch(side, number);
            lock(&self.ports[from].0).extend(frames);
            self.turn();
            let left = std::mem::take(&mut *lock(&self.ports[to].1));
            assert_eq!(left.len(), BATCH, "the gateway forwards every packet");
        }
    }

    /// Gives a round of packets from a side to the engine.
    pub(super) fn engine(&mut self, side: Side) {
        for number in 0..BATCHES {
            let frames = self.batch(side, number);
            self.now = Timestamp(self.now.0 + 10_000);
            self.engine_batch(side, &frames);
        }
    }
}

/// One turn of a gateway. Callgrind finds this function by its name.
#[inline(never)]
fn counted_turn(worker: &mut Worker, now: Timestamp) {
    worker.turn(now, &mut ());
}

/// One turn of an engine without a gateway. Callgrind finds this function by its name.
#[inline(never)]
fn counted_engine(
    engine: &mut Engine,
    now: Timestamp,
    side: Side,
    packets: &mut [Packet<'_>],
    verdicts: &mut [Verdict],
) {
    engine.advance(now);
    engine.process(now, side, packets, verdicts);
    while engine.poll_event().is_some() {}
}

fn settings() -> Settings {
    let side = |name: &str, address: [u8; 4], len, gateway| SideSettings {
        address: Some((address.into(), len)),
        gateway,
        ..SideSettings::new(name)
    };
    let config = |address: [u8; 4], len| SideConfig {
        address: Some(address.into()),
        network: Some(Prefix::new(address.into(), len)),
        ..SideConfig::default()
    };
    let range = AddressRange { first: POOL, last: POOL };
    let pool = PoolConfig { name: "pool".into(), addresses: vec![range], ..PoolConfig::default() };
    let engine = Config {
        inside: config([10, 0, 0, 1], 8),
        outside: config([192, 0, 2, 1], 24),
        pools: vec![pool],
        ..Config::default()
    };
    let hosts = (0..SESSIONS).map(|host| (Side::Inside, Ipv4Addr::from_bits(HOSTS + host)));
    let neighbors = hosts.chain([(Side::Outside, UPSTREAM)]);
    let neighbors = neighbors.map(|(side, address)| StaticNeighbor { side, address, mac: STATION });
    let inside = side("in", [10, 0, 0, 1], 8, None);
    let outside = side("out", [192, 0, 2, 1], 24, Some(UPSTREAM));
    Settings { neighbors: neighbors.collect(), ..Settings::new(engine, inside, outside) }
}

/// A frame to a device with a UDP datagram between two ends. The datagram has no checksum.
fn frame(to: Mac, (source, destination): ((u32, u16), (u32, u16))) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    if let Some(header) = frame.first_chunk_mut() {
        arp::write_ethernet(header, to, STATION, ethertype::IPV4);
    }
    let packet = &mut frame[ETHERNET_LEN..];
    let mut ip = Ipv4::init(&mut packet[..], 20);
    ip.set_total_len(PACKET as u16);
    ip.set_ttl(64);
    ip.set_protocol(protocol::UDP);
    ip.set_source(source.0);
    ip.set_destination(destination.0);
    ip.fill_checksum();
    packet[20..22].copy_from_slice(&source.1.to_be_bytes());
    packet[22..24].copy_from_slice(&destination.1.to_be_bytes());
    packet[24..26].copy_from_slice(&(PACKET as u16 - 20).to_be_bytes());
    frame
}

/// The list is complete at any time, so a poisoned lock is usable.
fn lock(frames: &Shared) -> std::sync::MutexGuard<'_, Frames> {
    frames.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device in memory.
#[derive(Debug)]
struct Lane {
    link: LinkInfo,
    source: Source,
    sink: Sink,
}

#[derive(Debug)]
struct Source {
    buffers: Vec<[u8; BUFFER]>,
    frames: Shared,
}

#[derive(Debug)]
struct Sink {
    frames: Shared,
}

impl Device for Lane {
    fn split(&mut self) -> (&mut dyn Receive, &mut dyn Transmit) {
        (&mut self.source, &mut self.sink)
    }

    fn link(&self) -> &LinkInfo {
        &self.link
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn maintain(&mut self) -> Option<Change> {
        None
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Receive for Source {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        let mut frames = lock(&self.frames);
        for (buffer, frame) in self.buffers.iter_mut().zip(frames.drain(..)) {
            let end = HEADROOM + FRAME;
            buffer[HEADROOM..end].copy_from_slice(&frame);
            batch.push(Frame::of(buffer, HEADROOM, end));
        }
    }
}

impl Transmit for Sink {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        let left = frames.iter().filter_map(|frame| <[u8; FRAME]>::try_from(frame.bytes()).ok());
        lock(&self.frames).extend(left);
        Lost::NONE
    }
}
