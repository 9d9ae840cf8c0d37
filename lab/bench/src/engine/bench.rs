//! An engine with sessions, and rounds of packets for it.
//!
//! The packets of a round are written before the time is taken. Their sessions are uniformly
//! random. Then the engine gets them as from a gateway: let time pass, process a batch, take the
//! events.

use super::Plan;
use crate::clock;
use crate::frame::{self, End, Frame};
use crate::full_table;
use crate::memory::resident;
use crate::random::{Random, Shuffle};
use natgate_engine::{Change, Config, Engine, Packet, Side, Timestamp, Verdict};
use natgate_wire::tcp::flags::{ACK, SYN};
use std::ops::Range;
use std::time::Instant;

/// Packets of a round: as many as a busy network card has in its rings.
pub(crate) const ROUND: usize = 1 << 12;
/// Number of subscribers, if each then has at most a thousand sessions. With more sessions there
/// are more subscribers.
const SUBSCRIBERS: u64 = 65_536;
const SESSIONS_PER_SUBSCRIBER: u64 = 1000;
/// Sessions of an external address: nearly all of its ports.
const SESSIONS_PER_ADDRESS: u64 = 62_000;
const INSIDE: u32 = 0x0a00_0001;
const OUTSIDE: u32 = 0xc612_0001;
const POOL: u32 = 0xcb00_7100;

/// Direction of the packets of a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    Outbound,
    Inbound,
    /// Batches alternately outbound and inbound.
    Mixed,
}

/// Time of one packet of a round, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elapsed {
    /// Processor time of the thread.
    pub(crate) cpu: f64,
    /// Wall time.
    pub(crate) wall: f64,
}

/// An engine, its sessions, and the packets of a round.
pub(crate) struct Bench {
    engine: Engine,
    sessions: u64,
    batch: usize,
    tcp: bool,
    subscribers: u64,
    /// External endpoint of each session.
    external: Vec<(u32, u16)>,
    /// True for a subscriber that a remote endpoint has answered.
    is_answered: Vec<bool>,
    frames: Vec<Frame>,
    verdicts: Vec<Verdict>,
    pub(super) random: Random,
    /// Virtual time, nanoseconds.
    pub(super) now: u64,
    /// Virtual time of one packet, nanoseconds.
    pub(super) spacing: u64,
    /// Number of removed mappings.
    pub(super) removed: u64,
    resident_before: u64,
}

impl Bench {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self::with_config(plan, &config(plan.sessions))
    }

    pub(super) fn with_config(plan: &Plan, config: &Config) -> Self {
        let external = vec![(u32::MAX, u16::MAX); plan.sessions as usize];
        let frames = vec![Frame([0; 64]); ROUND];
        let resident_before = resident();
        let mut engine = Engine::new(config, [1; 32], Timestamp(0))
            .expect("the laboratory's configuration can be run");
        engine.populate();
        Self {
            engine,
            sessions: plan.sessions,
            batch: plan.batch,
            tcp: plan.tcp,
            subscribers: subscribers(plan.sessions),
            external,
            is_answered: vec![false; subscribers(plan.sessions) as usize],
            frames,
            verdicts: vec![Verdict::Held; ROUND],
            random: Random::new(7),
            now: 1,
            spacing: 50,
            removed: 0,
            resident_before,
        }
    }

    fn internal(&self, session: u64) -> End {
        let port = 1024 + session / self.subscribers;
        (INSIDE + (session % self.subscribers) as u32, port as u16)
    }

    /// Remote endpoint of a session.
    pub(crate) fn remote(session: u64) -> End {
        (OUTSIDE + (session % 60_013) as u32, 443)
    }

    /// Creates every session, in a pseudo-random order. Returns nanoseconds a session, by round.
    pub(crate) fn fill(&mut self, mut made: impl FnMut(u64)) -> Vec<f64> {
        let rounds = (0..self.sessions).step_by(ROUND);
        let time = |start: u64| {
            let places = start..self.sessions.min(start + ROUND as u64);
            made(places.end - places.start);
            self.create(places).cpu
        };
        rounds.map(time).collect()
    }

    /// Creates the sessions at these places of the order, at most one round.
    pub(crate) fn create(&mut self, places: Range<u64>) -> Elapsed {
        self.prepare_creation(places.clone());
        let elapsed = self.process(0..(places.end - places.start) as usize, Mode::Outbound);
        self.finish_creation(places);
        elapsed
    }

    /// Writes the packets that create the sessions at these places.
    pub(crate) fn prepare_creation(&mut self, places: Range<u64>) {
        let order = Shuffle::new(self.sessions);
        for (place, session) in places.map(|place| order.at(place)).enumerate() {
            self.write(place, self.internal(session), Self::remote(session), SYN);
        }
    }

    /// Records the external endpoints of these packets. A TCP connection gets an answer. So does a
    /// subscriber's first session: nobody has many sessions without an answer.
    pub(crate) fn finish_creation(&mut self, places: Range<u64>) {
        let order = Shuffle::new(self.sessions);
        let sessions = places.map(|place| order.at(place));
        for (place, session) in sessions.clone().enumerate() {
            self.external[session as usize] = frame::source(&self.frames[place]);
        }
        let mut count = 0;
        for session in sessions {
            let subscriber = (session % self.subscribers) as usize;
            if !std::mem::replace(&mut self.is_answered[subscriber], true) || self.tcp {
                let external = self.external[session as usize];
                self.write(count, Self::remote(session), external, SYN | ACK);
                count += 1;
            }
        }
        if count > 0 {
            self.process(0..count, Mode::Inbound);
        }
    }

    fn write(&mut self, place: usize, source: End, destination: End, flags: u8) {
        let frame = &mut self.frames[place];
        if self.tcp {
            frame::tcp(frame, source, destination, flags);
        } else {
            frame::udp(frame, source, destination);
        }
    }

    /// Runs a round over all sessions.
    pub(crate) fn round(&mut self, mode: Mode) -> Elapsed {
        self.prepare(mode, ROUND, 0..self.sessions);
        self.process(0..ROUND, mode)
    }

    /// Writes packets of random sessions among the sessions at these places of the order.
    pub(crate) fn prepare(&mut self, mode: Mode, count: usize, made: Range<u64>) {
        let order = Shuffle::new(self.sessions);
        for place in 0..count {
            let session = order.at(made.start + self.random.below(made.end - made.start));
            if self.is_inbound(place, mode) {
                self.write(place, Self::remote(session), self.external[session as usize], ACK);
            } else {
                self.write(place, self.internal(session), Self::remote(session), ACK);
            }
        }
    }

    /// Sends the first answer of every session, which takes longer than others.
    pub(crate) fn answer(&mut self) {
        for start in (0..self.sessions).step_by(ROUND) {
            let sessions = start..self.sessions.min(start + ROUND as u64);
            for (place, session) in sessions.clone().enumerate() {
                let external = self.external[session as usize];
                self.write(place, Self::remote(session), external, ACK);
            }
            self.process(0..(sessions.end - sessions.start) as usize, Mode::Inbound);
        }
    }

    /// Sends an outbound packet of each of these sessions, in the order of their creation.
    pub(super) fn refresh(&mut self, mut made: Range<u64>) {
        let order = Shuffle::new(self.sessions);
        while !made.is_empty() {
            let end = made.end.min(made.start + ROUND as u64);
            self.send((made.start..end).map(|at| order.at(at)));
            made.start = end;
        }
    }

    /// Sends an outbound packet of each of these sessions, at most one round; returns the time of
    /// one.
    pub(super) fn send(&mut self, sessions: impl Iterator<Item = u64>) -> Elapsed {
        let mut count = 0;
        for session in sessions {
            self.write(count, self.internal(session), Self::remote(session), ACK);
            count += 1;
        }
        self.process(0..count, Mode::Outbound)
    }

    fn is_inbound(&self, place: usize, mode: Mode) -> bool {
        match mode {
            Mode::Outbound => false,
            Mode::Inbound => true,
            Mode::Mixed => place / self.batch % 2 == 1,
        }
    }

    /// Gives frames to the engine, which must forward all of them; returns the time of one.
    pub(crate) fn process(&mut self, places: Range<usize>, mode: Mode) -> Elapsed {
        let (count, batch, first) = (places.len(), self.batch, places.start);
        let Self { engine, verdicts, now, removed, spacing, .. } = self;
        let mut packets: Vec<Packet<'_>> = self.frames[places.clone()]
            .iter_mut()
            .map(|frame| Packet::new(&mut frame.0[..frame::LEN], 0))
            .collect();
        let (wall, cpu) = (Instant::now(), clock::now());
        for (number, packets) in packets.chunks_mut(batch).enumerate() {
            let number = first / batch + number;
            let side = match mode {
                Mode::Outbound => Side::Inside,
                Mode::Inbound => Side::Outside,
                Mode::Mixed if number % 2 == 1 => Side::Outside,
                Mode::Mixed => Side::Inside,
            };
            *now += *spacing * packets.len() as u64;
            let verdicts = &mut verdicts[number * batch..][..packets.len()];
            *removed += turn(engine, Timestamp(*now), side, packets, verdicts);
        }
        let cpu = (clock::now() - cpu) as f64;
        let wall = wall.elapsed().as_nanos() as f64;
        let refused = verdicts[places].iter().find(|v| !matches!(v, Verdict::Forward(_)));
        assert!(refused.is_none(), "{refused:?} instead of forwarding");
        Elapsed { cpu: cpu / count as f64, wall: wall / count as f64 }
    }

    /// Does all work that is due.
    pub(super) fn settle(&mut self) {
        while self.engine.advance(Timestamp(self.now)) {
            self.removed += drain(&mut self.engine);
        }
        self.removed += drain(&mut self.engine);
    }

    /// Lets time pass until every mapping is removed and every port is free again.
    pub(crate) fn expire(&mut self) {
        self.now += 10_000 * 1_000_000_000;
        let before = self.removed;
        loop {
            let (engine, now) = (&mut self.engine, Timestamp(self.now));
            let removed = turn(engine, now, Side::Inside, &mut [], &mut []);
            self.removed += removed;
            if self.removed > before && removed == 0 && engine.next_deadline().is_none() {
                break;
            }
        }
    }

    /// Number of packets so far that did not take the engine's quick way.
    pub(super) fn complete_ways(&self) -> u64 {
        self.engine.complete_ways()
    }

    /// Changes the number of packets in a batch.
    pub(crate) fn set_batch(&mut self, batch: usize) {
        self.batch = batch;
    }

    /// Packets in a batch.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Resident bytes for each session.
    pub(crate) fn resident(&self) -> f64 {
        resident().saturating_sub(self.resident_before) as f64 / self.sessions as f64
    }
}

/// One turn of a gateway with a batch; returns the number of removed mappings. The `instructions`
/// benchmark finds this function by its name.
#[inline(never)]
fn turn(
    engine: &mut Engine,
    now: Timestamp,
    side: Side,
    packets: &mut [Packet<'_>],
    verdicts: &mut [Verdict],
) -> u64 {
    engine.advance(now);
    engine.process(now, side, packets, verdicts);
    drain(engine)
}

/// Takes the events; returns the number of removed mappings.
fn drain(engine: &mut Engine) -> u64 {
    let events = std::iter::from_fn(|| engine.poll_event());
    events.filter(|event| matches!(event.change, Change::MappingRemoved(_))).count() as u64
}

/// Number of subscribers with so many sessions in all.
pub(crate) fn subscribers(sessions: u64) -> u64 {
    SUBSCRIBERS.max(sessions / SESSIONS_PER_SUBSCRIBER).min(sessions.div_ceil(16))
}

/// The default configuration with room for `sessions` sessions.
pub(crate) fn config(sessions: u64) -> Config {
    let addresses = sessions.div_ceil(SESSIONS_PER_ADDRESS) as u32;
    let mut config = full_table::config(POOL, addresses, sessions);
    config.limits.tcp_ports = u32::MAX;
    config
}
