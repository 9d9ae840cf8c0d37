//! A tester on both sides of a translator: sends UDP flows, receives what comes of them, counts.
//!
//! It is the network's router on both sides and answers ARP as such, so it needs two devices and
//! nothing else; any back end will do. [`Tester::meet`] finds the translator, [`Tester::establish`]
//! has each flow send until its mapping is there (its external endpoint is read from what
//! arrives), and [`Tester::run`] sends packets of flows drawn at random, all alike, at a rate or as
//! fast as they are taken; as often as is wanted. Each packet carries its flow, a number and the
//! time. Where packets are checked, every byte is compared with what translation must make of it.

#![forbid(unsafe_code)]

mod histogram;
mod mix;
mod packet;
mod processor;
mod station;

pub use histogram::Histogram;
pub use mix::Mix;
pub use packet::{Endpoint, Template};
pub use processor::{ProcessorError, process_time, task_time};

use natgate_io::{Device, Frame};
use packet::{CHECK_SEQUENCE, Stamp};
use station::Station;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Packets sent together.
const BURST: usize = 64;
/// Flows of one subscriber.
const FLOWS_EACH: u32 = 64;
/// The first port of a subscriber.
const FIRST_PORT: u16 = 10_000;
/// The port of the remote hosts.
const REMOTE_PORT: u16 = 53;
/// Times that flows without a mapping are sent again.
const ROUNDS: usize = 20;
/// New mappings that may be under way at once.
const WINDOW: usize = 192;
/// How long a packet may be under way.
const PATIENCE: Duration = Duration::from_millis(300);
/// How long nothing may arrive, at first, before those that are missing are given up for a while.
const LEAST_PATIENCE: Duration = Duration::from_millis(2);
/// How long a listener waits for what is still under way.
const LINGER: Duration = Duration::from_millis(30);
/// How long a listener that hears nothing sleeps.
const GLANCE: Duration = Duration::from_micros(100);
/// How long the devices and the gateway may take to be there.
const START: Duration = Duration::from_secs(20);

/// Which packets are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the inside out.
    Up,
    /// From the outside in.
    Down,
    /// Both, in turn.
    Both,
}

/// Where the tester stands, and whom it plays.
#[derive(Clone, Debug)]
pub struct Place {
    /// The translator's own addresses, `[inside, outside]`.
    pub gateway: [Ipv4Addr; 2],
    /// The tester's, which the translator has as next hops.
    pub own: [Ipv4Addr; 2],
    /// The first subscriber; each has 64 flows.
    pub subscribers: Ipv4Addr,
    /// The first remote host.
    pub remote: Ipv4Addr,
    /// How many remote hosts there are; flow after flow has the next.
    pub remotes: u32,
    /// How many flows there are at most.
    pub flows: u32,
}

/// What is sent.
#[derive(Clone, Debug)]
pub struct Load {
    /// How long frames are.
    pub frames: Mix,
    /// Which packets are sent.
    pub way: Way,
    /// Packets a second; `None`: as many as are taken.
    pub rate: Option<f64>,
    /// For how long.
    pub duration: Duration,
    /// Whether every byte is checked.
    pub check: bool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packets that were taken.
    pub sent: u64,
    /// Packets that were to be sent by the end, if there was a rate.
    pub due: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Packets that arrived after one of their side that was sent later.
    pub reordered: u64,
    /// Packets that arrived and are not as they should be.
    pub wrong: u64,
    /// Time between the first and the last that was sent.
    pub elapsed: Duration,
    /// How long packets were under way.
    pub delay: Histogram,
}

impl Report {
    /// Whether the tester kept to its rate, to a hundredth; otherwise the trial does not count.
    pub fn kept_pace(&self) -> bool {
        self.sent as f64 >= self.due as f64 * 0.99
    }

    /// Which part of what was sent did not arrive.
    pub fn loss(&self) -> f64 {
        1.0 - self.received.min(self.sent) as f64 / self.sent.max(1) as f64
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum TesterError {
    /// The plan cannot be carried out.
    #[error("{0}")]
    Plan(&'static str),
    /// Nobody answers.
    #[error("the translator does not answer ARP for {0}; does it run, and are the devices joined?")]
    Silence(Ipv4Addr),
    /// Nothing arrives at all.
    #[error("nothing arrives on the {0}; do the translator's routes lead to the tester?")]
    NoWay(&'static str),
    /// Flows get no mapping.
    #[error("{0} flows got no mapping; are the translator's pools and limits large enough?")]
    NoMapping(usize),
}

/// A tester at its place.
#[derive(Debug)]
pub struct Tester<'a> {
    place: Place,
    sides: [Station<'a>; 2],
    /// Each flow's external endpoint; port 0: not known yet.
    external: Vec<Endpoint>,
    /// Flows that have a mapping: so many from the first on.
    established: u32,
    /// Frames that are being made.
    buffers: Vec<Vec<u8>>,
    begin: Instant,
    number: u32,
    /// The latest number that arrived on each side.
    latest: [u32; 2],
    random: u64,
}

/// What is sent on each side, and what arrives there, for each length of frames.
#[derive(Debug)]
struct Templates {
    lengths: Vec<[Template; 2]>,
    expected: Vec<[Template; 2]>,
    check: bool,
}

impl<'a> Tester<'a> {
    /// A tester that knows nobody yet; `devices` are the translator's peers, `[inside, outside]`.
    ///
    /// # Errors
    /// [`TesterError::Plan`].
    pub fn new(place: Place, devices: [&'a mut dyn Device; 2]) -> Result<Self, TesterError> {
        if place.flows == 0 || place.flows > 1 << 24 {
            return Err(TesterError::Plan("there are 1 to 16777216 flows"));
        }
        if place.remotes == 0 {
            return Err(TesterError::Plan("there is at least 1 remote host"));
        }
        let [inside, outside] = devices;
        let sides = [
            Station::new(inside, place.own[0], place.gateway[0]),
            Station::new(outside, place.own[1], place.gateway[1]),
        ];
        Ok(Self {
            external: vec![Endpoint::default(); place.flows as usize],
            place,
            sides,
            established: 0,
            buffers: vec![Vec::new(); BURST],
            begin: Instant::now(),
            number: 0,
            latest: [0; 2],
            random: 0x9e37_79b9_7f4a_7c15,
        })
    }

    /// Waits until the translator answers on both sides.
    ///
    /// # Errors
    /// [`TesterError::Silence`].
    pub fn meet(&mut self) -> Result<(), TesterError> {
        for side in &mut self.sides {
            side.meet(START).ok_or(TesterError::Silence(side.gateway))?;
        }
        Ok(())
    }

    /// Forgets the mappings: the translator is another, or has forgotten them, too.
    pub fn forget(&mut self) {
        self.external.fill(Endpoint::default());
        self.established = 0;
    }

    /// Sees to it that the first `flows` flows have their mappings; at most as many as the place
    /// has. Those that have them already are not sent again.
    ///
    /// # Errors
    /// [`TesterError`] when nothing arrives, or flows get no mapping.
    pub fn establish(&mut self, flows: u32) -> Result<(), TesterError> {
        let flows = flows.min(self.place.flows);
        let templates = self.templates(&Mix::of(64)?, false);
        self.open_way(0, &templates)?;
        self.make_mappings(flows, &templates)?;
        self.open_way(1, &templates)?;
        // What was sent twice and comes late must not be taken for what is sent next.
        self.receive_rest(&templates, &mut Report::default());
        self.established = flows;
        Ok(())
    }

    /// Lets the first of the flows that have mappings be all that there are.
    pub fn keep(&mut self, flows: u32) {
        self.established = self.established.min(flows.max(1));
    }

    /// Sends at a rate, each packet that of a flow without mapping, until so many have been sent;
    /// then these flows have mappings. Returns how many of the packets arrived.
    ///
    /// # Errors
    /// [`TesterError::Plan`]: there are not so many flows.
    pub fn create(&mut self, count: u32, rate: f64) -> Result<Report, TesterError> {
        let first = self.established;
        if count > self.place.flows - first {
            return Err(TesterError::Plan("there are not so many flows left"));
        }
        let templates = self.templates(&Mix::of(64)?, false);
        let mut report = Report::default();
        let begin = Instant::now();
        let mut flows = [0; BURST];
        while report.sent < u64::from(count) {
            let due = (begin.elapsed().as_secs_f64() * rate) as u64;
            let waiting = due.min(count.into()).saturating_sub(report.sent).min(BURST as u64);
            let sent = first + report.sent as u32;
            let burst = &mut flows[..waiting as usize];
            burst.iter_mut().zip(sent..).for_each(|(flow, number)| *flow = number);
            if waiting > 0 {
                // What the tester's own link does not take is sent again.
                self.send(0, burst, &templates, &mut report);
            }
            self.receive(&templates, &mut report);
        }
        report.elapsed = begin.elapsed();
        report.due = (report.elapsed.as_secs_f64() * rate) as u64;
        report.due = report.due.min(count.into());
        self.receive_rest(&templates, &mut report);
        self.established = first + count;
        Ok(report)
    }

    /// Sends and receives as the load says.
    ///
    /// # Errors
    /// [`TesterError::Plan`] when no flow has a mapping.
    pub fn run(&mut self, load: &Load) -> Result<Report, TesterError> {
        self.run_beside(load, || ())
    }

    /// As [`Self::run`]; calls `end` when the last packet has been sent, before what is still under
    /// way is waited for.
    ///
    /// # Errors
    /// As there.
    pub fn run_beside(&mut self, load: &Load, end: impl FnOnce()) -> Result<Report, TesterError> {
        if self.established == 0 {
            return Err(TesterError::Plan("no flow has a mapping yet"));
        }
        let templates = self.templates(&load.frames, load.check);
        let mut report = Report::default();
        self.measure(load, &templates, &mut report);
        end();
        self.receive_rest(&templates, &mut report);
        Ok(report)
    }

    /// Receives until told to stop what others send for the tester, and what is then still under
    /// way. Delays mean nothing.
    pub fn listen(&mut self, frames: &Mix, stop: &AtomicBool) -> Report {
        let templates = self.templates(frames, false);
        let mut report = Report::default();
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if self.receive(&templates, &mut report) == 0 {
                // Whoever sends may have the same processor.
                std::thread::sleep(GLANCE);
            }
        }
        report.elapsed = begin.elapsed();
        let mut last = Instant::now();
        while last.elapsed() < LINGER {
            if self.receive(&templates, &mut report) > 0 {
                last = Instant::now();
            }
        }
        report
    }

    /// What packets of this length that are sent by a side (0: inside) have in common; for
    /// generators beside the tester, with [`Self::listen`].
    pub fn template(&self, len: u16, side: usize) -> Template {
        let from = &self.sides[side];
        Template::new(usize::from(len) - CHECK_SEQUENCE, from.mac(), from.peer, 64)
    }

    /// Where it stands.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The external endpoints of the flows that have mappings.
    pub fn external(&self) -> &[Endpoint] {
        &self.external[..self.established as usize]
    }

    fn templates(&self, frames: &Mix, check: bool) -> Templates {
        let of = |send: bool| {
            let lengths = frames.lengths().map(|len| usize::from(len) - CHECK_SEQUENCE);
            let template = |len, side: &Station<'_>| match send {
                true => Template::new(len, side.mac(), side.peer, 64),
                false => Template::new(len, side.peer, side.mac(), 63),
            };
            lengths.map(|len| self.sides.each_ref().map(|side| template(len, side))).collect()
        };
        Templates { lengths: of(true), expected: of(false), check }
    }

    /// Sends by a side until something arrives on the other, so that the translator knows its
    /// neighbour there: what comes before it does would be lost but for a few.
    fn open_way(&mut self, side: usize, templates: &Templates) -> Result<(), TesterError> {
        for _ in 0..ROUNDS {
            self.send(side, &[0], templates, &mut Report::default());
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end {
                if self.receive(templates, &mut Report::default()) > 0 {
                    return Ok(());
                }
            }
        }
        Err(TesterError::NoWay(if side == 0 { "outside" } else { "inside" }))
    }

    fn make_mappings(&mut self, flows: u32, templates: &Templates) -> Result<(), TesterError> {
        let lacks = |tester: &Self, flow: u32| tester.external[flow as usize].port == 0;
        let mut missing: Vec<u32> = (0..flows).filter(|&flow| lacks(self, flow)).collect();
        let mut report = Report::default();
        for round in 0..ROUNDS {
            // What is lost is sent again in the next round, when those who wait have more patience.
            let patience = PATIENCE.min(LEAST_PATIENCE * (1 << round.min(8)));
            for flows in missing.chunks(WINDOW) {
                for some in flows.chunks(BURST) {
                    self.send(0, some, templates, &mut report);
                    self.receive(templates, &mut report);
                }
                let mut last = Instant::now();
                while flows.iter().any(|&flow| lacks(self, flow)) && last.elapsed() < patience {
                    if self.receive(templates, &mut report) > 0 {
                        last = Instant::now();
                    }
                }
            }
            missing.retain(|&flow| lacks(self, flow));
            if missing.is_empty() {
                return Ok(());
            }
        }
        Err(TesterError::NoMapping(missing.len()))
    }

    fn measure(&mut self, load: &Load, templates: &Templates, report: &mut Report) {
        let begin = Instant::now();
        let mut flows = [0; BURST];
        let mut turn = 0;
        loop {
            let elapsed = begin.elapsed();
            let due = load.rate.map(|rate| (elapsed.as_secs_f64() * rate) as u64);
            if elapsed >= load.duration {
                (report.elapsed, report.due) = (elapsed, due.unwrap_or(0));
                return;
            }
            let waiting = due.map_or(u64::MAX, |due| due.saturating_sub(report.sent));
            let count = waiting.min(BURST as u64) as usize;
            flows[..count].fill_with(|| self.draw());
            let side = match load.way {
                Way::Up => 0,
                Way::Down => 1,
                Way::Both => turn & 1,
            };
            if count > 0 {
                turn += 1;
                self.send(side, &flows[..count], templates, report);
            }
            self.receive(templates, report);
        }
    }

    fn receive_rest(&mut self, templates: &Templates, report: &mut Report) {
        let mut last = Instant::now();
        while last.elapsed() < PATIENCE {
            if self.receive(templates, report) > 0 {
                last = Instant::now();
            }
        }
    }

    /// Any of the flows that have mappings, all alike (xorshift64*).
    fn draw(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let drawn = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((drawn * u64::from(self.established)) >> 32) as u32
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Sends a packet of each of these flows by a side.
    fn send(&mut self, side: usize, flows: &[u32], templates: &Templates, report: &mut Report) {
        let time = self.now();
        let kinds = templates.lengths.len();
        for (&flow, buffer) in flows.iter().zip(&mut self.buffers) {
            let remote = self.place.remote_of(flow);
            let (source, destination) = match side {
                0 => (self.place.internal(flow), remote),
                _ => (remote, self.external[flow as usize]),
            };
            let stamp = Stamp { flow, number: self.number, time };
            let template = &templates.lengths[self.number as usize % kinds][side];
            self.number = self.number.wrapping_add(1);
            template.write(buffer, source, destination, stamp);
        }
        let mut frames = natgate_io::Batch::new();
        for buffer in &mut self.buffers[..flows.len()] {
            let end = buffer.len();
            frames.push(Frame::new(buffer, 0, end));
        }
        let lost = self.sides[side].device.split().1.transmit(&mut frames);
        report.sent += flows.len() as u64 - u64::from(lost.count());
    }

    /// Takes in what has come; returns how many packets.
    fn receive(&mut self, templates: &Templates, report: &mut Report) -> usize {
        let time = self.now();
        let mut count = 0;
        for side in 0..2 {
            let Self { place, sides, external, latest, .. } = self;
            sides[side].receive(&mut |frame| {
                count += 1;
                let Some(stamp) = templates.arrived(place, side, external, frame) else {
                    report.wrong += 1;
                    return;
                };
                report.received += 1;
                report.delay.add(time.saturating_sub(stamp.time));
                if stamp.number.wrapping_sub(latest[side]) > u32::MAX / 2 {
                    report.reordered += 1;
                } else {
                    latest[side] = stamp.number;
                }
            });
        }
        count
    }
}

impl Place {
    /// The internal endpoint of a flow.
    pub fn internal(&self, flow: u32) -> Endpoint {
        let address = self.subscribers.to_bits().wrapping_add(flow / FLOWS_EACH);
        Endpoint { address, port: FIRST_PORT + (flow % FLOWS_EACH) as u16 }
    }

    /// The remote endpoint of a flow.
    pub fn remote_of(&self, flow: u32) -> Endpoint {
        let address = self.remote.to_bits().wrapping_add(flow % self.remotes);
        Endpoint { address, port: REMOTE_PORT }
    }
}

impl Templates {
    /// What a frame that came in on a side carries, if it is as it should be.
    fn arrived(
        &self,
        place: &Place,
        side: usize,
        external: &mut [Endpoint],
        frame: &[u8],
    ) -> Option<Stamp> {
        let (expected, stamp) =
            self.expected.iter().find_map(|kind| Some((&kind[side], kind[side].stamp(frame)?)))?;
        let known = external.get_mut(stamp.flow as usize)?;
        let remote = place.remote_of(stamp.flow);
        let (source, destination) = match side {
            0 => (remote, place.internal(stamp.flow)),
            _ => {
                if known.port == 0 {
                    *known = packet::source(frame);
                }
                (*known, remote)
            }
        };
        let right = !self.check || expected.matches(frame, source, destination, stamp);
        right.then_some(stamp)
    }
}
