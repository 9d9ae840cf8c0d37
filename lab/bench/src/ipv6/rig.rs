//! A translator and an engine with sessions, and rounds of packets for them.
//!
//! The packets of a round are written before the time is taken, and their sessions are uniformly
//! random, as in the engine's benchmark. A turn calls the translator as a worker of the gateway
//! does (`gateway/gateway/src/worker/families.rs`): packets that the translator claims go in runs,
//! the others go to the engine together, and those for hosts with numbers are converted then.

use super::customers;
use super::packet::Buffer;
use super::translation::{Session, Translation};
use crate::clock;
use crate::engine::{Bench, Mode, ROUND, config};
use crate::frame::End;
use crate::memory::resident;
use crate::random::{Random, Shuffle};
use natgate_engine::{Change, Config, Engine, Packet, Side, Timestamp, Verdict};
use natgate_ipv6::{Fate, Translator};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Virtual time of one packet, nanoseconds, as in the engine's benchmark.
const SPACING: u64 = 50;
/// Time between two sweeps of NAT64's hosts and a little more, nanoseconds.
const UNTIL_SWEEP: u64 = 61_000_000_000;
/// Mappings that one call of the sweep looks at.
pub(super) const SWEEP_STEP: u64 = 256;
/// Calls of the sweep that are measured at most.
const SWEEP_CALLS: u64 = 1000;
/// Length of the longest packet of the translator's own, bytes.
const LONGEST: usize = 1500;

/// The parts of a gateway that see a packet.
pub(crate) struct Gateway {
    engine: Engine,
    translator: Translator,
    verdicts: Vec<Verdict>,
    fates: Vec<Fate>,
    /// Buffer for packets of the gateway's own.
    own: Vec<u8>,
    /// Numbers of made and of removed mappings.
    pub(crate) made: u64,
    pub(crate) removed: u64,
}

impl Gateway {
    /// Creates a gateway with this translation alone, and batches of at most `batch` packets.
    pub(crate) fn new(translation: Translation, mut config: Config, batch: usize) -> Self {
        let translator = Translator::new(&translation.settings(), &mut config, [1; 32])
            .expect("the laboratory's settings agree")
            .expect("the settings have IPv6");
        let mut engine = Engine::new(&config, [1; 32], Timestamp(0))
            .expect("the laboratory's configuration can be run");
        engine.populate();
        Self {
            engine,
            translator,
            verdicts: vec![Verdict::Held; batch],
            fates: vec![Fate::Nothing; batch],
            own: vec![0; LONGEST],
            made: 0,
            removed: 0,
        }
    }

    /// Does the work that is due at a time; returns true if more is due.
    pub(crate) fn advance(&mut self, now: Timestamp) -> bool {
        let is_more = self.engine.advance(now);
        settle(self, now);
        is_more
    }

    /// True if there is no mapping.
    pub(crate) fn is_empty(&self) -> bool {
        self.engine.mappings().next().is_none()
    }

    /// Takes a batch of packets from one side; returns how many leave.
    pub(crate) fn take(&mut self, now: Timestamp, side: Side, packets: &mut [Packet<'_>]) -> usize {
        turn(self, now, side, packets)
    }
}

/// A translator with its sessions.
pub(super) struct Rig {
    translation: Translation,
    gateway: Gateway,
    sessions: u64,
    hosts: u64,
    /// Hosts that a remote host has answered.
    is_answered: Vec<bool>,
    batch: usize,
    /// External endpoint of each session of NAT64.
    external: Vec<End>,
    buffers: Vec<Buffer>,
    random: Random,
    now: u64,
    resident_before: u64,
}

impl Rig {
    pub(super) fn new(translation: Translation, sessions: u64, batch: usize) -> Self {
        let room = if translation.is_stateful() { sessions } else { 1 };
        let external = vec![(u32::MAX, u16::MAX); room as usize];
        let buffers = vec![Buffer::EMPTY; ROUND];
        let hosts = translation.hosts(sessions);
        let is_answered = vec![false; hosts as usize];
        let resident_before = resident();
        Self {
            translation,
            gateway: Gateway::new(translation, config(room), batch),
            sessions,
            hosts,
            is_answered,
            batch,
            external,
            buffers,
            random: Random::new(7),
            now: 1,
            resident_before,
        }
    }

    /// Creates every session of a stateful translation, in a pseudo-random order. Returns
    /// nanoseconds a session, by round.
    pub(super) fn fill(&mut self, mut made: impl FnMut(u64)) -> Vec<f64> {
        let order = Shuffle::new(self.sessions);
        let rounds = (0..self.sessions).step_by(ROUND);
        let create = |start: u64| {
            let places = start..self.sessions.min(start + ROUND as u64);
            let sessions = || places.clone().map(|place| order.at(place)).enumerate();
            for (place, session) in sessions() {
                self.write_outbound(place, session);
            }
            let count = places.end - places.start;
            let time = self.process(count as usize, Mode::Outbound);
            for (place, session) in sessions() {
                let buffer = &mut self.buffers[place];
                let len = buffer.packet().len();
                self.external[session as usize] = buffer.source_ipv4(len);
            }
            self.answer_hosts(sessions().map(|(_, session)| session));
            made(count);
            time
        };
        rounds.map(create).collect()
    }

    /// Sends an answer to each host of these sessions that has had none: while no remote host has
    /// answered a host, the engine keeps more for each of its sessions.
    fn answer_hosts(&mut self, sessions: impl Iterator<Item = u64>) {
        let mut count = 0;
        for session in sessions {
            let host = (session % self.hosts) as usize;
            if !std::mem::replace(&mut self.is_answered[host], true) {
                self.write_inbound(count, session);
                count += 1;
            }
        }
        if count > 0 {
            self.process(count, Mode::Inbound);
        }
    }

    /// Sends the first answer of every session.
    pub(super) fn answer(&mut self) {
        for start in (0..self.sessions).step_by(ROUND) {
            let sessions = start..self.sessions.min(start + ROUND as u64);
            for (place, session) in sessions.clone().enumerate() {
                self.write_inbound(place, session);
            }
            self.process((sessions.end - sessions.start) as usize, Mode::Inbound);
        }
    }

    /// Runs a round over all sessions; returns nanoseconds of processor time a packet.
    pub(super) fn round(&mut self, mode: Mode) -> f64 {
        for place in 0..ROUND {
            let session = self.random.below(self.sessions);
            match self.side(place / self.batch, mode) {
                Side::Inside => self.write_outbound(place, session),
                Side::Outside => self.write_inbound(place, session),
            }
        }
        self.process(ROUND, mode)
    }

    /// Runs a round of lw4o6 while another thread changes bindings.
    pub(super) fn changing_round(&mut self, mode: Mode) -> f64 {
        let bindings = self.gateway.translator.bindings().map(Arc::clone);
        let bindings = bindings.expect("lw4o6 has bindings");
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _over = Over(&is_over);
            scope.spawn(|| customers::change_bindings(&bindings, &is_over));
            self.round(mode)
        })
    }

    /// The side that a batch comes from.
    fn side(&self, batch: usize, mode: Mode) -> Side {
        match mode {
            Mode::Outbound => Side::Inside,
            Mode::Inbound => Side::Outside,
            Mode::Mixed if batch % 2 == 1 => Side::Outside,
            Mode::Mixed => Side::Inside,
        }
    }

    fn session(&self, session: u64) -> Session {
        Session { host: session % self.hosts, place: session / self.hosts }
    }

    fn write_outbound(&mut self, place: usize, session: u64) {
        let ends = self.translation.outbound(self.session(session), Bench::remote(session));
        self.buffers[place].write(ends);
    }

    fn write_inbound(&mut self, place: usize, session: u64) {
        // Only the engine's sessions have endpoints here.
        let external = self.external.get(session as usize).copied().unwrap_or_default();
        let remote = Bench::remote(session);
        let ends = self.translation.inbound(self.session(session), remote, external);
        self.buffers[place].write(ends);
    }

    /// Gives packets to the translator, which must send all of them on; returns the time of one.
    fn process(&mut self, count: usize, mode: Mode) -> f64 {
        let sides = [0, 1].map(|batch| self.side(batch, mode));
        let batch = self.batch;
        let Self { gateway, now, .. } = self;
        let mut packets: Vec<Packet<'_>> =
            self.buffers[..count].iter_mut().map(Buffer::packet).collect();
        let mut left = 0;
        let start = clock::now();
        for (number, packets) in packets.chunks_mut(batch).enumerate() {
            *now += SPACING * packets.len() as u64;
            let (now, side) = (Timestamp(*now), sides[number % 2]);
            left += turn(gateway, now, side, packets);
        }
        let time = (clock::now() - start) as f64;
        assert_eq!(left, count, "{} loses packets", self.translation.name());
        time / count as f64
    }

    /// The time of one call while a sweep of NAT64's hosts looks at mappings, nanoseconds.
    pub(super) fn sweep(&mut self) -> f64 {
        let now = Timestamp(self.now + UNTIL_SWEEP);
        let Gateway { engine, translator, .. } = &mut self.gateway;
        // The first call begins the sweep.
        translator.sweep(engine, now);
        let calls = (self.sessions / SWEEP_STEP).clamp(1, SWEEP_CALLS);
        let (time, ()) = clock::time(|| (0..calls).for_each(|_| translator.sweep(engine, now)));
        time / calls as f64
    }

    /// Bytes that became resident since the start.
    pub(super) fn resident(&self) -> u64 {
        resident().saturating_sub(self.resident_before)
    }
}

/// Ends the changes of another thread when it goes.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One turn of a gateway with a batch; returns how many packets leave.
#[inline(never)]
fn turn(gateway: &mut Gateway, now: Timestamp, side: Side, packets: &mut [Packet<'_>]) -> usize {
    gateway.engine.advance(now);
    gateway.translator.prepare(side, packets.iter().map(|packet| packet.bytes()));
    let is_claimed =
        |packet: &Packet<'_>| gateway.translator.claims(side, packet.realm(), packet.bytes());
    let claimed = packets.iter().filter(|packet| is_claimed(packet)).count();
    let mut left = 0;
    if claimed == 0 {
        let Gateway { engine, translator, verdicts, .. } = gateway;
        let verdicts = &mut verdicts[..packets.len()];
        engine.process(now, side, packets, verdicts);
        left = send_to_hosts(translator, packets, verdicts);
        settle(gateway, now);
        return left;
    }
    assert_eq!(claimed, packets.len(), "a batch has packets of one kind");
    let mut rest = packets;
    while !rest.is_empty() {
        let Gateway { engine, translator, fates, .. } = gateway;
        let count = translator.take_some(engine, now, side, rest, fates);
        left += fates[..count].iter().filter(|fate| matches!(fate, Fate::Send(_))).count();
        rest = &mut rest[count..];
        settle(gateway, now);
    }
    left
}

/// Converts the packets that the engine has translated for hosts of NAT64; returns their number.
fn send_to_hosts(
    translator: &mut Translator,
    packets: &mut [Packet<'_>],
    verdicts: &[Verdict],
) -> usize {
    let mut results = [None; Engine::MAX_BATCH];
    let results = &mut results[..packets.len()];
    translator.convert_to_hosts(packets, verdicts, results);
    results.iter().filter(|result| matches!(result, Some(Ok(_)))).count()
}

/// Takes what engine and translator have produced, and frees hosts.
fn settle(gateway: &mut Gateway, now: Timestamp) {
    let Gateway { engine, translator, own, made, removed, .. } = gateway;
    while let Some(event) = engine.poll_event() {
        match event.change {
            Change::MappingCreated(_) => *made += 1,
            Change::MappingRemoved(_) => *removed += 1,
            _ => {}
        }
        let subject = event.change.subject();
        black_box(subject.and_then(|(realm, number)| translator.host(realm, number)));
    }
    while engine.poll_transmit(own).is_some() {}
    while translator.poll_transmit(own).is_some() {}
    translator.sweep(engine, now);
}

#[cfg(test)]
mod tests {
    use super::super::packet::Ends;
    use super::*;

    const SESSIONS: u64 = 5000;

    /// Takes the packet in the first buffer; returns the ends of the packet that leaves.
    fn pass(rig: &mut Rig, side: Side) -> Ends {
        let mut packets = [rig.buffers[0].packet()];
        let left = turn(&mut rig.gateway, Timestamp(rig.now), side, &mut packets);
        assert_eq!(left, 1, "{:?} {side:?}", rig.translation);
        ends(packets[0].bytes())
    }

    fn ends(bytes: &[u8]) -> Ends {
        Ends::read(bytes).expect("a packet").0
    }

    #[test]
    fn an_answer_goes_back_to_its_host() {
        for translation in Translation::ALL {
            let mut rig = Rig::new(translation, SESSIONS, 64);
            if translation.is_stateful() {
                rig.fill(|_| ());
            }
            for session in [0, 1, 311, 312, 313, SESSIONS - 1] {
                rig.write_outbound(0, session);
                let sent = ends(rig.buffers[0].packet().bytes());
                let left = pass(&mut rig, Side::Inside);
                rig.write_inbound(0, session);
                let answer = ends(rig.buffers[0].packet().bytes());
                assert_eq!(answer, left.reversed(), "{translation:?} {session}");
                let back = pass(&mut rig, Side::Outside);
                assert_eq!(back, sent.reversed(), "{translation:?} {session}");
            }
        }
    }

    #[test]
    fn customers_of_many_sessions_have_ports_of_their_own() {
        for translation in [Translation::Lw4o6, Translation::MapE, Translation::MapT] {
            let mut rig = Rig::new(translation, 65_000_000, 64);
            for session in [64_999_999, 64_000_000, 999_999] {
                rig.write_outbound(0, session);
                let left = pass(&mut rig, Side::Inside);
                rig.write_inbound(0, session);
                assert_eq!(ends(rig.buffers[0].packet().bytes()), left.reversed());
            }
        }
    }
}
