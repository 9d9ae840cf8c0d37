//! A tester on both sides of a translator: sends UDP flows, receives what comes of them, counts.
//!
//! It is the network's router on both sides and answers ARP as such, so it needs two devices and
//! nothing else; any back end will do. First each flow sends until its mapping is there; its
//! external endpoint is read from what arrives. Then flows are drawn at random, all alike, and sent
//! at a rate or as fast as they are taken. Each packet carries its flow, a number and the time.
//! Where packets are checked, every byte is compared with what translation must make of it.

mod histogram;
mod packet;
mod station;

pub use histogram::Histogram;

use natgate_io::{Device, Frame};
use packet::{Endpoint, Stamp, Template};
use station::Station;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Packets sent together.
const BURST: usize = 64;
/// Flows of one subscriber.
const FLOWS_EACH: u32 = 64;
/// Times that flows without a mapping are sent again.
const ROUNDS: usize = 20;
/// New mappings that may be under way at once.
const WINDOW: usize = 512;
/// How long a packet may be under way.
const PATIENCE: Duration = Duration::from_millis(300);
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

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The translator's own addresses, `[inside, outside]`.
    pub gateway: [Ipv4Addr; 2],
    /// The tester's, which the translator has as next hops.
    pub own: [Ipv4Addr; 2],
    /// The first subscriber; each has 64 flows.
    pub subscribers: Ipv4Addr,
    /// The remote host.
    pub remote: Ipv4Addr,
    /// How many flows there are.
    pub flows: u32,
    /// Length of a frame on the wire with its checksum, bytes, 64 to 1518.
    pub frame: u16,
    /// Which packets are sent.
    pub way: Way,
    /// Packets a second; `None`: as many as are taken.
    pub rate: Option<u64>,
    /// For how long, once every flow has its mapping.
    pub duration: Duration,
    /// Whether every byte is checked.
    pub check: bool,
    /// A process whose time on the processor is taken meanwhile.
    pub process: Option<u32>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Packets that were taken.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Packets that arrived and are not as they should be.
    pub wrong: u64,
    /// Time between the first and the last that was sent.
    pub elapsed: Duration,
    /// Time on the processor that the process had.
    pub process_time: Option<Duration>,
    /// How long packets were under way.
    pub delay: Histogram,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
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
    /// The process cannot be looked at.
    #[error("the processor time of process {0} cannot be read: {1}")]
    Process(u32, io::Error),
}

/// Sends and receives as the plan says; `devices` are the translator's peers, `[inside, outside]`.
///
/// # Errors
/// [`TrafficError`] when nobody answers, or flows get no mapping.
pub fn run<'a>(plan: &'a Plan, devices: [&'a mut dyn Device; 2]) -> Result<Report, TrafficError> {
    if !(64..=1518).contains(&plan.frame) {
        return Err(TrafficError::Plan("frames have 64 to 1518 bytes"));
    }
    if plan.flows == 0 || plan.flows > 1 << 24 {
        return Err(TrafficError::Plan("there are 1 to 16777216 flows"));
    }
    let mut tester = Tester::new(plan, devices)?;
    tester.open_way(0)?;
    tester.make_mappings()?;
    tester.open_way(1)?;
    let before = plan.process.map(processor_time).transpose()?;
    tester.report = Report::default();
    let begin = Instant::now();
    tester.measure();
    tester.report.elapsed = begin.elapsed();
    let after = plan.process.map(processor_time).transpose()?;
    tester.receive_rest();
    tester.report.process_time = before.zip(after).map(|(before, after)| after - before);
    Ok(tester.report)
}

/// What a process has had of the processors so far.
fn processor_time(process: u32) -> Result<Duration, TrafficError> {
    let failed = |error| TrafficError::Process(process, error);
    // Nanoseconds that the main thread and the others ran, in the first number of each.
    let tasks = fs::read_dir(format!("/proc/{process}/task")).map_err(failed)?;
    let mut total = 0;
    for task in tasks {
        let path = task.map_err(failed)?.path().join("schedstat");
        let text = fs::read_to_string(path).map_err(failed)?;
        total += text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0u64);
    }
    Ok(Duration::from_nanos(total))
}

struct Tester<'a> {
    plan: &'a Plan,
    sides: [Station<'a>; 2],
    /// What is sent on each side, and what arrives there.
    sent: [Template; 2],
    expected: [Template; 2],
    /// Each flow's external endpoint; port 0: not known yet.
    external: Vec<Endpoint>,
    /// Frames that are being made.
    buffers: Vec<Vec<u8>>,
    begin: Instant,
    number: u32,
    random: u64,
    report: Report,
}

impl<'a> Tester<'a> {
    fn new(plan: &'a Plan, devices: [&'a mut dyn Device; 2]) -> Result<Self, TrafficError> {
        let [inside, outside] = devices;
        let mut sides = [
            Station::new(inside, plan.own[0], plan.gateway[0]),
            Station::new(outside, plan.own[1], plan.gateway[1]),
        ];
        for side in &mut sides {
            side.meet(START).ok_or(TrafficError::Silence(side.gateway))?;
        }
        let len = usize::from(plan.frame) - packet::CHECK_SEQUENCE;
        let sent = sides.each_ref().map(|side| Template::new(len, side.mac(), side.peer, 64));
        let expected = sides.each_ref().map(|side| Template::new(len, side.peer, side.mac(), 63));
        Ok(Self {
            plan,
            sides,
            sent,
            expected,
            external: vec![Endpoint::default(); plan.flows as usize],
            buffers: vec![vec![0; len]; BURST],
            begin: Instant::now(),
            number: 0,
            random: 0x9e37_79b9_7f4a_7c15,
            report: Report::default(),
        })
    }

    /// Sends by a side until something arrives on the other, so that the translator knows its
    /// neighbour there: what comes before it does would be lost but for a few.
    fn open_way(&mut self, side: usize) -> Result<(), TrafficError> {
        for _ in 0..ROUNDS {
            self.send(side, &[0]);
            let end = Instant::now() + PATIENCE;
            while Instant::now() < end {
                if self.receive() > 0 {
                    return Ok(());
                }
            }
        }
        Err(TrafficError::NoWay(if side == 0 { "outside" } else { "inside" }))
    }

    fn make_mappings(&mut self) -> Result<(), TrafficError> {
        let mut missing: Vec<u32> = (0..self.plan.flows).collect();
        for _ in 0..ROUNDS {
            for flows in missing.chunks(WINDOW) {
                for some in flows.chunks(BURST) {
                    self.send(0, some);
                }
                let end = Instant::now() + PATIENCE;
                let lacks = |tester: &Self| {
                    flows.iter().any(|&flow| tester.external[flow as usize].port == 0)
                };
                while lacks(self) && Instant::now() < end {
                    self.receive();
                }
            }
            missing.retain(|&flow| self.external[flow as usize].port == 0);
            if missing.is_empty() {
                return Ok(());
            }
        }
        Err(TrafficError::NoMapping(missing.len()))
    }

    fn measure(&mut self) {
        let begin = Instant::now();
        let mut flows = [0; BURST];
        let mut turn = 0;
        loop {
            let elapsed = begin.elapsed();
            if elapsed >= self.plan.duration {
                return;
            }
            let due = self.plan.rate.map_or(u64::MAX, |rate| {
                (elapsed.as_nanos() * u128::from(rate) / 1_000_000_000) as u64
            });
            let count = due.saturating_sub(self.report.sent).min(BURST as u64) as usize;
            flows[..count].fill_with(|| self.draw());
            let side = match self.plan.way {
                Way::Up => 0,
                Way::Down => 1,
                Way::Both => turn & 1,
            };
            turn += 1;
            if count > 0 {
                self.send(side, &flows[..count]);
            }
            self.receive();
        }
    }

    fn receive_rest(&mut self) {
        let mut last = Instant::now();
        while last.elapsed() < PATIENCE {
            if self.receive() > 0 {
                last = Instant::now();
            }
        }
    }

    /// Any of the flows, all alike (xorshift64*).
    fn draw(&mut self) -> u32 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let drawn = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        ((drawn * u64::from(self.plan.flows)) >> 32) as u32
    }

    fn internal(plan: &Plan, flow: u32) -> Endpoint {
        let address = plan.subscribers.to_bits().wrapping_add(flow / FLOWS_EACH);
        Endpoint { address, port: (10_000 + flow % FLOWS_EACH) as u16 }
    }

    fn remote(plan: &Plan) -> Endpoint {
        Endpoint { address: plan.remote.to_bits(), port: 53 }
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// Sends a packet of each of these flows by a side.
    fn send(&mut self, side: usize, flows: &[u32]) {
        let time = self.now();
        let remote = Self::remote(self.plan);
        for (&flow, buffer) in flows.iter().zip(&mut self.buffers) {
            let (source, destination) = match side {
                0 => (Self::internal(self.plan, flow), remote),
                _ => (remote, self.external[flow as usize]),
            };
            let stamp = Stamp { flow, number: self.number, time };
            self.number = self.number.wrapping_add(1);
            self.sent[side].write(buffer, source, destination, stamp);
        }
        let mut frames = natgate_io::Batch::new();
        for buffer in &mut self.buffers[..flows.len()] {
            let end = buffer.len();
            frames.push(Frame::new(buffer, 0, end));
        }
        let lost = self.sides[side].device.split().1.transmit(&mut frames);
        self.report.sent += flows.len() as u64 - u64::from(lost.count());
    }

    /// Takes in what has come; returns how many packets.
    fn receive(&mut self) -> usize {
        let time = self.now();
        let mut count = 0;
        for side in 0..2 {
            let Self { plan, sides, expected, external, report, .. } = self;
            let expected = &mut expected[side];
            sides[side].receive(&mut |frame| {
                count += 1;
                match arrived(plan, side, expected, external, frame) {
                    Some(stamp) => {
                        report.received += 1;
                        report.delay.add(time.saturating_sub(stamp.time));
                    }
                    None => report.wrong += 1,
                }
            });
        }
        count
    }
}

/// What a frame that came in on a side carries, if it is as it should be.
fn arrived(
    plan: &Plan,
    side: usize,
    expected: &mut Template,
    external: &mut [Endpoint],
    frame: &[u8],
) -> Option<Stamp> {
    let stamp = expected.stamp(frame)?;
    let known = external.get_mut(stamp.flow as usize)?;
    let remote = Tester::remote(plan);
    let (source, destination) = match side {
        0 => (remote, Tester::internal(plan, stamp.flow)),
        _ => {
            if known.port == 0 {
                *known = packet::source(frame);
            }
            (*known, remote)
        }
    };
    (!plan.check || expected.matches(frame, source, destination, stamp)).then_some(stamp)
}
