//! A tester on both sides of a translator: it sends UDP flows, receives the results, and counts.
//!
//! It plays the next router on both sides and answers ARP, so it needs only two devices, of any
//! back end. [`Tester::meet`] finds the translator. [`Tester::establish`] sends packets of each
//! flow until its mapping exists; the arriving packet has the external endpoint. [`Tester::run`]
//! sends packets of uniformly random flows, at a rate or as fast as the device accepts them, any
//! number of times. Each packet has its flow, a number and the time. With checks every byte is
//! compared with the correct translation.
//!
//! ```
//! use natgate_tester::{Histogram, Mix};
//!
//! // Lengths of frames, and a histogram of delays.
//! assert_eq!(Mix::imix().lengths().take(3).collect::<Vec<_>>(), [64, 570, 64]);
//! let mut delays = Histogram::default();
//! [900, 1000, 50_000].into_iter().for_each(|delay| delays.add(delay));
//! assert_eq!((delays.count(), delays.most()), (3, 50_000));
//! assert!(delays.percentile(0.5) < 1100);
//! ```

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
/// Most new mappings in flight at once.
const WINDOW: usize = 192;
/// Longest time of a packet in flight.
const PATIENCE: Duration = Duration::from_millis(300);
/// First limit of silence after which missing packets are sent again.
const LEAST_PATIENCE: Duration = Duration::from_millis(2);
/// Time that a listener waits for packets in flight.
const LINGER: Duration = Duration::from_millis(30);
/// Sleep of a listener without packets.
const GLANCE: Duration = Duration::from_micros(100);
/// Longest time until the devices and the gateway are ready.
const START: Duration = Duration::from_secs(20);

/// Direction of the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the inside out.
    Up,
    /// From the outside in.
    Down,
    /// Both directions, in turn.
    Both,
}

/// Addresses of the tester, and of the hosts that it plays.
#[derive(Clone, Debug)]
pub struct Place {
    /// The translator's own addresses, `[inside, outside]`.
    pub gateway: [Ipv4Addr; 2],
    /// The tester's own addresses, which are next hops of the translator.
    pub own: [Ipv4Addr; 2],
    /// First subscriber; each has 64 flows.
    pub subscribers: Ipv4Addr,
    /// First remote host.
    pub remote: Ipv4Addr,
    /// Number of remote hosts; consecutive flows have consecutive hosts.
    pub remotes: u32,
    /// Most flows.
    pub flows: u32,
}

/// Load of a trial.
#[derive(Clone, Debug)]
pub struct Load {
    /// Lengths of frames.
    pub frames: Mix,
    /// Direction of the packets.
    pub way: Way,
    /// Packets a second; `None` to send as many as the device accepts.
    pub rate: Option<f64>,
    /// Duration of the trial.
    pub duration: Duration,
    /// True to check every byte.
    pub check: bool,
}

/// Results of a trial.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packets that the device accepted.
    pub sent: u64,
    /// Packets due by the end, if the load has a rate.
    pub due: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Packets that arrived behind a later one of their side.
    pub reordered: u64,
    /// Packets that arrived with wrong content.
    pub wrong: u64,
    /// Time from the first sent packet to the last.
    pub elapsed: Duration,
    /// Delays of the packets.
    pub delay: Histogram,
}

impl Report {
    /// Returns true if the tester kept its rate, to a hundredth; otherwise the trial does not
    /// count.
    pub fn kept_pace(&self) -> bool {
        self.sent as f64 >= self.due as f64 * 0.99
    }

    /// Lost share of the sent packets.
    pub fn loss(&self) -> f64 {
        1.0 - self.received.min(self.sent) as f64 / self.sent.max(1) as f64
    }
}

/// Reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum TesterError {
    /// The plan is impossible.
    #[error("{0}")]
    Plan(&'static str),
    /// The translator does not answer.
    #[error("the translator does not answer ARP for {0}; does it run, and are the devices joined?")]
    Silence(Ipv4Addr),
    /// No packet arrives.
    #[error("nothing arrives on the {0}; do the translator's routes lead to the tester?")]
    NoWay(&'static str),
    /// Flows without a mapping.
    #[error("{0} flows got no mapping; are the translator's pools and limits large enough?")]
    NoMapping(usize),
}

/// A tester with its devices.
#[derive(Debug)]
pub struct Tester<'a> {
    place: Place,
    sides: [Station<'a>; 2],
    /// External endpoint of each flow; port 0 if it is unknown.
    external: Vec<Endpoint>,
    /// Number of flows with a mapping, counted from the first flow.
    established: u32,
    /// Buffers of frames to send.
    buffers: Vec<Vec<u8>>,
    begin: Instant,
    number: u32,
    /// Highest packet number that arrived on each side.
    latest: [u32; 2],
    random: u64,
}

/// Sent and received packets of each side, for each length of frames.
#[derive(Debug)]
struct Templates {
    lengths: Vec<[Template; 2]>,
    expected: Vec<[Template; 2]>,
    check: bool,
}

impl<'a> Tester<'a> {
    /// Creates a tester that does not know the translator yet. `devices` are the translator's
    /// peers, `[inside, outside]`.
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

    /// Forgets the mappings, for a new or restarted translator.
    pub fn forget(&mut self) {
        self.external.fill(Endpoint::default());
        self.established = 0;
    }

    /// Creates the mappings of the first `flows` flows, at most as many as the place has. Flows
    /// with a mapping are not sent again.
    ///
    /// # Errors
    /// [`TesterError`] if no packet arrives, or if flows get no mapping.
    pub fn establish(&mut self, flows: u32) -> Result<(), TesterError> {
        let flows = flows.min(self.place.flows);
        let templates = self.templates(&Mix::of(64)?, false);
        self.open_way(0, &templates)?;
        self.make_mappings(flows, &templates)?;
        self.open_way(1, &templates)?;
        // Late copies of repeated packets must not be confused with the next packets.
        self.receive_rest(&templates, &mut Report::default());
        self.established = flows;
        Ok(())
    }

    /// Limits the flows with mappings to the first `flows` ones.
    pub fn keep(&mut self, flows: u32) {
        self.established = self.established.min(flows.max(1));
    }

    /// Sends `count` packets at a rate, each of a flow without a mapping. Then these flows have
    /// mappings. The report has the number of arrived packets.
    ///
    /// # Errors
    /// [`TesterError::Plan`] if there are fewer flows.
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
                // Packets that the tester's own link does not accept are sent again.
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

    /// Sends and receives according to the load.
    ///
    /// # Errors
    /// [`TesterError::Plan`] if no flow has a mapping.
    pub fn run(&mut self, load: &Load) -> Result<Report, TesterError> {
        self.run_beside(load, || ())
    }

    /// Sends and receives like [`Self::run`]; calls `end` after the last packet, before the wait
    /// for packets in flight.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
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

    /// Receives packets of other generators for the tester until `stop` is set, and then the
    /// packets in flight. The delays of the report are meaningless.
    pub fn listen(&mut self, frames: &Mix, stop: &AtomicBool) -> Report {
        let templates = self.templates(frames, false);
        let mut report = Report::default();
        let begin = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if self.receive(&templates, &mut report) == 0 {
                // The generator may run on this processor.
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

    /// Common part of all packets of this length that a side sends (0: inside). For generators
    /// beside the tester, together with [`Self::listen`].
    pub fn template(&self, len: u16, side: usize) -> Template {
        let from = &self.sides[side];
        Template::new(usize::from(len) - CHECK_SEQUENCE, from.mac(), from.peer, 64)
    }

    /// Addresses of the tester.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// External endpoints of the flows with mappings.
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

    /// Sends by a side until a packet arrives on the other. Then the translator knows its neighbor
    /// there. Before that, it would lose most packets.
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
            // Lost packets are sent again in the next round, with a longer patience.
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

    /// A uniformly random flow among those with mappings (xorshift64*).
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
            frames.push(Frame::of(buffer, 0, end));
        }
        let lost = self.sides[side].device.split().1.transmit(&mut frames);
        report.sent += flows.len() as u64 - u64::from(lost.count());
    }

    /// Processes received packets; returns their number.
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
    /// Internal endpoint of a flow.
    pub fn internal(&self, flow: u32) -> Endpoint {
        let address = self.subscribers.to_bits().wrapping_add(flow / FLOWS_EACH);
        Endpoint { address, port: FIRST_PORT + (flow % FLOWS_EACH) as u16 }
    }

    /// Remote endpoint of a flow.
    pub fn remote_of(&self, flow: u32) -> Endpoint {
        let address = self.remote.to_bits().wrapping_add(flow % self.remotes);
        Endpoint { address, port: REMOTE_PORT }
    }
}

impl Templates {
    /// Stamp of a received frame, if the frame is correct.
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
