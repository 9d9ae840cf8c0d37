//! The gateway under test: a translator between two virtual links in memory, in virtual time.
//!
//! Frames arrive at an even rate. Each side has a receive ring of [`RING`] frames, like a network
//! card. A frame that finds its ring full is lost. The gateway takes a batch from each side in
//! turn. Then its time advances by the processor time of the turn, so other work of the machine
//! does not count. The tester's work costs no virtual time. So a rate that passes is a rate of the
//! engine on one core of its own, without the cost of network cards and drivers.

use super::Plan;
use super::nat64::Nat64;
use super::tester::{POOL, POOL_ADDRESSES, Phase, Tester};
use crate::clock;
use crate::frame::{self, Frame};
use crate::full_table;
use natgate_engine::{Change, Config, Engine, Packet, Side, Timeouts, Timestamp, Verdict};
use std::time::Duration;

/// Frames in one side's ring.
pub(super) const RING: u64 = 4096;
/// Sessions of an external address: few enough for each subscriber to keep one address.
const SESSIONS_PER_ADDRESS: u64 = 50_000;
/// Longer than any trial.
const TIMEOUT: Duration = Duration::from_secs(600);
/// Pause between two phases, nanoseconds: twice the half second that a frame may be under way.
const REST: u64 = 1_000_000_000;

/// A gateway and its virtual time.
pub(super) struct Gateway {
    subject: Subject,
    batch: usize,
    frames: [Vec<Frame>; 2],
    /// Virtual time, nanoseconds.
    now: u64,
    /// Cost of reading the clock, nanoseconds. It is no part of a turn.
    clock_cost: u64,
}

/// The translator under test.
enum Subject {
    Nat44(Box<Nat44>),
    Nat64(Box<Nat64>),
}

/// The engine alone.
struct Nat44 {
    engine: Engine,
    verdicts: Vec<Verdict>,
    changed: Changed,
}

/// Result of one batch.
pub(super) struct Turn {
    /// Nanoseconds of processor time.
    pub(super) time: u64,
    /// True if every frame came out correctly.
    pub(super) passed: bool,
}

/// Frames that one side sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    from: Side,
    count: u64,
    /// Virtual nanoseconds between two frames; 0 if the ring is always full and no frame is lost.
    gap: f64,
    start: u64,
    taken: u64,
}

/// Result of a trial.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// True if every frame came out correctly.
    pub(super) passed: bool,
    /// Virtual nanoseconds of the trial.
    pub(super) time: f64,
    /// Nanoseconds from the arrival of each frame to its departure, if requested.
    pub(super) delays: Vec<f64>,
}

impl Stream {
    /// A stream of `count` frames with `rate` frames a second.
    pub(super) fn new(from: Side, count: u64, rate: f64) -> Self {
        Self { from, count, gap: 1e9 / rate, start: 0, taken: 0 }
    }

    /// A stream of `count` frames, each sent as soon as the gateway takes it.
    pub(super) fn saturating(from: Side, count: u64) -> Self {
        Self { from, count, gap: 0.0, start: 0, taken: 0 }
    }

    /// Number of frames that have arrived until now.
    fn arrived(&self, now: u64) -> u64 {
        if self.gap == 0.0 {
            return self.count.min(self.taken + RING);
        }
        let elapsed = now.saturating_sub(self.start) as f64;
        ((elapsed / self.gap) as u64).min(self.count)
    }

    /// Arrival time of frame `place`.
    fn arrival(&self, place: u64) -> f64 {
        self.start as f64 + (place + 1) as f64 * self.gap
    }
}

impl Gateway {
    /// Creates an empty gateway with room for `capacity` sessions and external addresses for
    /// `ports`.
    pub(super) fn new(capacity: u64, ports: u64, plan: &Plan) -> Self {
        let (config, batch) = (config(capacity, ports), plan.batch);
        let subject = if plan.nat64 {
            Subject::Nat64(Box::new(Nat64::new(config, batch)))
        } else {
            Subject::Nat44(Box::new(Nat44::new(&config, batch)))
        };
        Self {
            subject,
            batch,
            frames: [(); 2].map(|()| vec![Frame([0; 64]); batch]),
            now: 0,
            clock_cost: clock_cost(),
        }
    }

    /// Highest number of sessions.
    pub(super) const fn most() -> u64 {
        POOL_ADDRESSES as u64 * SESSIONS_PER_ADDRESS / 4
    }

    /// Runs until every frame has passed or one is lost. With `delays` it continues after a loss.
    pub(super) fn trial(
        &mut self,
        tester: &mut Tester,
        phase: Phase,
        streams: &mut [Stream],
        delays: bool,
    ) -> Outcome {
        tester.phase = phase;
        self.now += REST;
        for stream in &mut *streams {
            stream.start = self.now;
        }
        let start = self.now;
        let mut outcome = Outcome { passed: true, ..Outcome::default() };
        loop {
            outcome.time = (self.now - start) as f64;
            let counts = [Side::Inside, Side::Outside]
                .map(|side| self.take(side, tester, streams, &mut outcome));
            if !outcome.passed && !delays {
                return outcome;
            }
            if counts == [0, 0] {
                let left = streams.iter().filter(|stream| stream.taken < stream.count);
                match left.map(|stream| stream.arrival(stream.taken)).reduce(f64::min) {
                    Some(next) => self.now = self.now.max(next as u64 + 1),
                    None => return outcome,
                }
                continue;
            }
            self.turn(counts, tester, &mut outcome);
            if delays {
                for stream in &*streams {
                    let count = counts[stream.from as usize] as u64;
                    let taken = stream.taken - count..stream.taken;
                    let delay = |place| self.now as f64 - stream.arrival(place);
                    outcome.delays.extend(taken.map(delay));
                }
            }
        }
    }

    /// Takes a batch from a side's ring; returns the number of frames.
    fn take(
        &mut self,
        side: Side,
        tester: &mut Tester,
        streams: &mut [Stream],
        outcome: &mut Outcome,
    ) -> usize {
        let Some(stream) = streams.iter_mut().find(|stream| stream.from == side) else { return 0 };
        let waiting = stream.arrived(self.now) - stream.taken;
        if waiting > RING {
            // The latest frames found the ring full.
            outcome.passed = false;
            stream.count -= (waiting - RING).min(stream.count);
        }
        let count = waiting.min(self.batch as u64).min(stream.count.saturating_sub(stream.taken));
        for frame in &mut self.frames[side as usize][..count as usize] {
            tester.write(side, stream.taken, frame);
            stream.taken += 1;
        }
        count as usize
    }

    /// Runs one turn of the gateway's loop over the taken frames. Then the tester checks the frames
    /// that came out.
    fn turn(&mut self, counts: [usize; 2], tester: &mut Tester, outcome: &mut Outcome) {
        let now = Timestamp(self.now);
        for from in [Side::Inside, Side::Outside] {
            let frames = &mut self.frames[from as usize][..counts[from as usize]];
            if frames.is_empty() {
                continue;
            }
            let turn = match &mut self.subject {
                Subject::Nat44(nat44) => nat44.turn(now, from, frames, tester),
                Subject::Nat64(nat64) => nat64.turn(now, from, frames, tester),
            };
            self.now += turn.time.saturating_sub(self.clock_cost);
            outcome.passed &= turn.passed;
        }
    }

    /// Expires all sessions at once and frees all ports. Returns the number of removed mappings,
    /// and nanoseconds of processor time from the first removal to the last.
    ///
    /// # Panics
    /// If a mapping is left.
    pub(super) fn tear_down(&mut self) -> (u64, f64) {
        let before = self.removed();
        self.now += TIMEOUT.as_nanos() as u64 + REST;
        let (mut start, mut more) = (clock::now(), true);
        while more {
            if self.removed() == before {
                start = clock::now();
            }
            more = self.advance();
        }
        let time = (clock::now() - start) as f64;
        self.now += Timeouts::default().hold_down.as_nanos() as u64 + REST;
        while self.advance() {}
        assert!(self.mappings() == 0 && self.is_empty());
        (self.removed() - before, time)
    }

    /// Does the work that is due; returns true if more is due.
    fn advance(&mut self) -> bool {
        let now = Timestamp(self.now);
        match &mut self.subject {
            Subject::Nat44(nat44) => nat44.advance(now),
            Subject::Nat64(nat64) => nat64.gateway.advance(now),
        }
    }

    fn is_empty(&self) -> bool {
        match &self.subject {
            Subject::Nat44(nat44) => nat44.engine.mappings().next().is_none(),
            Subject::Nat64(nat64) => nat64.gateway.is_empty(),
        }
    }

    fn removed(&self) -> u64 {
        match &self.subject {
            Subject::Nat44(nat44) => nat44.changed.removed,
            Subject::Nat64(nat64) => nat64.gateway.removed,
        }
    }

    /// Number of present mappings.
    pub(super) fn mappings(&self) -> u64 {
        let made = match &self.subject {
            Subject::Nat44(nat44) => nat44.changed.made,
            Subject::Nat64(nat64) => nat64.gateway.made,
        };
        made - self.removed()
    }
}

impl Nat44 {
    fn new(config: &Config, batch: usize) -> Self {
        let config = Config { subscribers: vec![Tester::subscribers()], ..config.clone() };
        let mut engine = Engine::new(&config, [93; 32], Timestamp(0))
            .expect("the laboratory's configuration can be run");
        engine.populate();
        Self { engine, verdicts: vec![Verdict::Held; batch], changed: Changed::default() }
    }

    fn turn(
        &mut self,
        now: Timestamp,
        from: Side,
        frames: &mut [Frame],
        tester: &mut Tester,
    ) -> Turn {
        let mut packets: Vec<Packet<'_>> =
            frames.iter_mut().map(|frame| Packet::new(&mut frame.0[..frame::LEN], 0)).collect();
        let start = clock::now();
        while self.advance(now) {}
        let verdicts = &mut self.verdicts[..packets.len()];
        self.engine.process(now, from, &mut packets, verdicts);
        self.changed.take(&mut self.engine);
        let time = clock::now() - start;
        let (mut passed, out) = (true, from.other());
        for (frame, verdict) in frames.iter().zip(&self.verdicts) {
            passed &= *verdict == Verdict::Forward(out) && tester.receive(out, frame);
        }
        Turn { time, passed }
    }

    fn advance(&mut self, now: Timestamp) -> bool {
        let is_more = self.engine.advance(now);
        self.changed.take(&mut self.engine);
        is_more
    }
}

/// Changes of the mappings, from the events.
#[derive(Clone, Copy, Debug, Default)]
struct Changed {
    made: u64,
    removed: u64,
}

impl Changed {
    /// Takes the engine's events.
    fn take(&mut self, engine: &mut Engine) {
        while let Some(event) = engine.poll_event() {
            match event.change {
                Change::MappingCreated(_) => self.made += 1,
                Change::MappingRemoved(_) => self.removed += 1,
                _ => {}
            }
        }
    }
}

/// Nanoseconds of two reads of the clock: the shortest of many tries.
fn clock_cost() -> u64 {
    let between = |_| {
        let start = clock::now();
        clock::now() - start
    };
    (0..1000).map(between).min().unwrap_or(0)
}

fn config(capacity: u64, ports: u64) -> Config {
    let addresses = (ports.div_ceil(SESSIONS_PER_ADDRESS) as u32).max(2);
    let mut config = full_table::config(POOL, addresses, capacity);
    config.limits.extra_sessions = Some(0);
    config.timeouts = Timeouts { udp: TIMEOUT, ..Timeouts::default() };
    config
}
