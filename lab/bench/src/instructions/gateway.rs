//! The gateway around the engine: a worker with two devices in memory, and an engine with the same
//! sessions that gets the same packets.
//!
//! The difference of both counts is the cost of sorting frames, finding next hops and writing
//! headers. With application-level gateways on, the worker also gets messages of SIP. Functions
//! whose names begin with `counted` are counted. The devices' own functions are not: callgrind
//! stops counting while they run.

use super::sip;
use crate::clock;
use crate::lane::Lane;
use natgate_engine::{
    AddressRange, Config, Engine, Packet, PoolConfig, Prefix, Side, SideConfig, Timestamp, Verdict,
};
use natgate_gateway::{AlgKind, AlgSettings, Settings, SideSettings, StaticNeighbor, Worker};
use natgate_io::{BATCH, Batch, Device, Frame, HEADROOM, Lost, Receive, Transmit};
use natgate_wire::Ipv4;
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::protocol;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sessions, each of a host of its own.
const SESSIONS: u32 = 100;
/// Batches of a round.
const BATCHES: usize = 16;
/// Packets or messages of a round.
pub(crate) const PACKETS: usize = BATCHES * BATCH;

/// Bytes of a payload in a frame of 64 bytes.
const PAYLOAD: usize = 60 - ETHERNET_LEN - PORTS - 8;
/// Offset of the ports in a packet.
const PORTS: usize = 20;
const BUFFER: usize = 2048;

const INSIDE: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OUTSIDE: Mac = Mac([2, 0, 0, 0, 0, 2]);
const STATION: Mac = Mac([2, 0, 0, 0, 2, 9]);
const HOSTS: u32 = Ipv4Addr::new(10, 0, 0, 16).to_bits();
const UPSTREAM: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
/// No application-level gateway has this port.
pub(crate) const REMOTE: (u32, u16) = (Ipv4Addr::new(198, 51, 100, 9).to_bits(), 443);
const POOL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const PORT: u16 = 4000;

/// Bytes of frames: those that come to a device, or those that have left it.
pub(crate) type Frames = Vec<Vec<u8>>;
pub(crate) type Shared = Arc<Mutex<Frames>>;

/// A gateway and an engine with the same sessions.
pub(crate) struct Pair {
    worker: Worker,
    engine: Engine,
    /// Frames that come to each device, and those that have left each device.
    ports: [(Shared, Shared); 2],
    /// Frames in each direction, by session: first from inside, then from outside.
    frames: [Frames; 2],
    /// Messages of SIP that have been sent, and the answers to the last of them.
    messages: u32,
    answers: Frames,
    now: Timestamp,
    /// Processor time of the worker's turns, nanoseconds.
    spent: f64,
}

impl Pair {
    /// Creates both, with their sessions. `alg`: with all application-level gateways on.
    pub(crate) fn new(alg: bool) -> Self {
        let range = AddressRange { first: POOL, last: POOL };
        let (mut settings, now) = (settings(SESSIONS, range), Timestamp(1_000_000_000));
        if alg {
            for kind in AlgKind::ALL {
                settings.alg.set(kind, AlgSettings::usual_ports(kind).to_vec());
            }
            settings.alg.reserve(&mut settings.engine.limits);
        }
        let ports: [(Shared, Shared); 2] = Default::default();
        let worker = Worker::new(&settings, [7; 32], devices(&ports), now);
        let worker = worker.expect("the laboratory's settings can be run");
        let engine = Engine::new(&settings.engine, [7; 32], now);
        let mut engine = engine.expect("the laboratory's configuration can be run");
        engine.populate();
        let frames: Frames =
            (0..SESSIONS).map(|host| outbound(host, (PORT, REMOTE.1), &[0; PAYLOAD])).collect();
        let frames = [frames, Vec::new()];
        let (messages, answers) = (0, Vec::new());
        let mut pair = Self { worker, engine, ports, frames, messages, answers, now, spent: 0.0 };
        pair.open();
        pair
    }

    /// Creates the sessions, and sends the first answer of each.
    fn open(&mut self) {
        for session in 0..SESSIONS as usize {
            let first = self.frames[0][session].clone();
            lock(&self.ports[0].0).push(first.clone());
            self.turn();
            let left = lock(&self.ports[1].1).pop().expect("the gateway forwards the packet");
            self.frames[1].push(answer(&left, &[0; PAYLOAD]));
            self.engine_batch(Side::Inside, &[first]);
            self.answer(session);
        }
    }

    fn answer(&mut self, session: usize) {
        let answer = self.frames[1][session].clone();
        lock(&self.ports[1].0).push(answer.clone());
        self.turn();
        assert!(lock(&self.ports[0].1).pop().is_some(), "the gateway forwards the answer");
        self.engine_batch(Side::Outside, &[answer]);
    }

    /// One turn of the worker.
    fn turn(&mut self) {
        self.now = Timestamp(self.now.0 + 10_000);
        let (time, ()) = clock::time(|| counted_turn(&mut self.worker, self.now));
        self.spent += time;
    }

    /// Processor time of a packet of a round in the worker's turns, nanoseconds.
    pub(crate) fn timed(&mut self, round: impl FnOnce(&mut Self)) -> f64 {
        let before = self.spent;
        round(self);
        (self.spent - before) / PACKETS as f64
    }

    /// Gives frames to the engine alone, as one batch.
    fn engine_batch(&mut self, side: Side, frames: &[Vec<u8>]) {
        let mut buffers = frames.to_vec();
        let mut packets: Vec<Packet<'_>> =
            buffers.iter_mut().map(|bytes| Packet::new(&mut bytes[..], ETHERNET_LEN)).collect();
        let mut verdicts = vec![Verdict::Held; frames.len()];
        counted_engine(&mut self.engine, self.now, side, &mut packets, &mut verdicts);
        assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Forward(_))));
    }

    /// Frames of a batch from a side, in an order that repeats no host at once.
    fn batch(&self, side: Side, number: usize) -> Frames {
        let frames = &self.frames[usize::from(side == Side::Outside)];
        (0..BATCH)
            .map(|place| frames[(number * BATCH + place) * 37 % frames.len()].clone())
            .collect()
    }

    /// Gives a round of packets from a side to the gateway.
    pub(crate) fn gateway(&mut self, side: Side) {
        for number in 0..BATCHES {
            self.forward(side, self.batch(side, number));
        }
    }

    /// Gives frames from a side to the gateway, a batch at most. Returns what has left.
    fn forward(&mut self, side: Side, frames: Frames) -> Frames {
        let (from, to) = if side == Side::Inside { (0, 1) } else { (1, 0) };
        let count = frames.len();
        lock(&self.ports[from].0).extend(frames);
        self.turn();
        let left = std::mem::take(&mut *lock(&self.ports[to].1));
        assert_eq!(left.len(), count, "the gateway forwards every packet");
        left
    }

    /// Gives a round of messages of SIP from inside to the gateway, and keeps the answers.
    pub(crate) fn ask_by_sip(&mut self, request: fn(host: u32, number: u32) -> Vec<u8>) {
        self.answers.clear();
        for _ in 0..BATCHES {
            let one = |place| {
                let number = self.messages + place;
                let host = number % SESSIONS;
                outbound(host, (sip::PORT, sip::PORT), &request(host, number))
            };
            let frames = (0..BATCH as u32).map(one).collect();
            self.messages += BATCH as u32;
            let left = self.forward(Side::Inside, frames);
            let answers = left.iter().map(|left| answer(left, &sip::ok(payload(left))));
            self.answers.extend(answers);
        }
    }

    /// Gives the answers to the last round to the gateway.
    pub(crate) fn answer_by_sip(&mut self) {
        let answers = std::mem::take(&mut self.answers);
        for batch in answers.chunks(BATCH) {
            self.forward(Side::Outside, batch.to_vec());
        }
    }

    /// Gives a round of packets from a side to the engine.
    pub(crate) fn engine(&mut self, side: Side) {
        for number in 0..BATCHES {
            let frames = self.batch(side, number);
            self.now = Timestamp(self.now.0 + 10_000);
            self.engine_batch(side, &frames);
        }
    }
}

/// The devices inside and outside: frames that come, and frames that have left.
pub(crate) fn devices(ports: &[(Shared, Shared); 2]) -> [Box<dyn Device>; 2] {
    let device = |name: &str, mac, (from, to): &(Shared, Shared)| -> Box<dyn Device> {
        let source = Source { buffers: vec![[0; BUFFER]; BATCH], frames: Arc::clone(from) };
        Box::new(Lane::new(name, mac, 1500, (source, Sink { frames: Arc::clone(to) })))
    };
    [device("in", INSIDE, &ports[0]), device("out", OUTSIDE, &ports[1])]
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

/// Settings of a gateway with this number of hosts, whose hardware addresses it knows, and these
/// external addresses.
pub(crate) fn settings(hosts: u32, range: AddressRange) -> Settings {
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
    let pool = PoolConfig { name: "pool".into(), addresses: vec![range], ..PoolConfig::default() };
    let engine = Config {
        inside: config([10, 0, 0, 1], 8),
        outside: config([192, 0, 2, 1], 24),
        pools: vec![pool],
        ..Config::default()
    };
    let hosts = (0..hosts).map(|host| (Side::Inside, Ipv4Addr::from_bits(HOSTS + host)));
    let neighbors = hosts.chain([(Side::Outside, UPSTREAM)]);
    let neighbors = neighbors.map(|(side, address)| StaticNeighbor { side, address, mac: STATION });
    let inside = side("in", [10, 0, 0, 1], 8, None);
    let outside = side("out", [192, 0, 2, 1], 24, Some(UPSTREAM));
    Settings { neighbors: neighbors.collect(), ..Settings::new(engine, inside, outside) }
}

/// A frame from a host to the remote host, between these ports.
pub(crate) fn outbound(host: u32, (from, to): (u16, u16), payload: &[u8]) -> Vec<u8> {
    frame(INSIDE, ((HOSTS + host, from), (REMOTE.0, to)), payload)
}

/// A frame that answers one which has left the gateway.
pub(crate) fn answer(left: &[u8], payload: &[u8]) -> Vec<u8> {
    let packet = &left[ETHERNET_LEN..];
    let ip = Ipv4::new_checked(packet).expect("a packet");
    let port = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (to, from) = ((ip.source(), port(PORTS)), (ip.destination(), port(PORTS + 2)));
    frame(OUTSIDE, (from, to), payload)
}

/// The payload of a frame.
fn payload(frame: &[u8]) -> &[u8] {
    &frame[ETHERNET_LEN + PORTS + 8..]
}

/// A frame to a device with a UDP datagram between two ends. The datagram has no checksum.
fn frame(to: Mac, (source, destination): ((u32, u16), (u32, u16)), payload: &[u8]) -> Vec<u8> {
    let len = PORTS + 8 + payload.len();
    let mut frame = vec![0; ETHERNET_LEN + len];
    if let Some(header) = frame.first_chunk_mut() {
        arp::write_ethernet(header, to, STATION, ethertype::IPV4);
    }
    let packet = &mut frame[ETHERNET_LEN..];
    let mut ip = Ipv4::init(&mut packet[..], PORTS);
    ip.set_total_len(len as u16);
    ip.set_ttl(64);
    ip.set_protocol(protocol::UDP);
    ip.set_source(source.0);
    ip.set_destination(destination.0);
    ip.fill_checksum();
    packet[20..22].copy_from_slice(&source.1.to_be_bytes());
    packet[22..24].copy_from_slice(&destination.1.to_be_bytes());
    packet[24..26].copy_from_slice(&((len - PORTS) as u16).to_be_bytes());
    packet[28..].copy_from_slice(payload);
    frame
}

/// Takes a lock. The program ends with the panic of a thread, so a poisoned lock is usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Receive for Source {
    fn receive<'d>(&'d mut self, batch: &mut Batch<'d>) {
        let mut frames = lock(&self.frames);
        for (buffer, frame) in self.buffers.iter_mut().zip(frames.drain(..)) {
            let end = HEADROOM + frame.len();
            buffer[HEADROOM..end].copy_from_slice(&frame);
            batch.push(Frame::of(buffer, HEADROOM, end));
        }
    }
}

impl Transmit for Sink {
    fn transmit(&mut self, frames: &mut [Frame<'_>]) -> Lost {
        lock(&self.frames).extend(frames.iter().map(|frame| frame.bytes().to_vec()));
        Lost::NONE
    }
}
