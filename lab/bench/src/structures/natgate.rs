//! natgate's engine with the same packets. It does more than a lookup: validation, filtering,
//! unpredictable allocation, limits, timers, counters, events, verification of checksums.

use super::BATCH;
use super::nat::Translator;
use crate::frame::{Frame, LEN};
use crate::full_table;
use arrayvec::ArrayVec;
use natgate_engine::{Config, Engine, Packet, Side, Timestamp, Verdict};

/// Sessions of an external address: four fifths of its ports, because many subscribers with a
/// random number of sessions share an address.
const SESSIONS_PER_ADDRESS: u64 = 51_000;
const POOL: u32 = 0x6440_0000;
/// Virtual nanoseconds of a packet.
const SPACING: u64 = 50;

pub(super) struct Natgate {
    engine: Engine,
    batch: usize,
    now: u64,
}

impl Natgate {
    pub(super) fn new(sessions: u64, batch: usize) -> Self {
        let engine = Engine::new(&config(sessions), [1; 32], Timestamp(0));
        let mut engine = engine.expect("the laboratory's configuration can be run");
        engine.populate();
        Self { engine, batch, now: 1 }
    }

    fn process(&mut self, side: Side, frames: &mut [Frame]) {
        let Self { engine, batch, now } = self;
        for frames in frames.chunks_mut(*batch) {
            let packets = frames.iter_mut().map(|frame| Packet::new(&mut frame.0[..LEN], 0));
            let mut packets: ArrayVec<Packet<'_>, BATCH> = packets.collect();
            let mut verdicts = [Verdict::Held; BATCH];
            let verdicts = &mut verdicts[..packets.len()];
            *now += SPACING * packets.len() as u64;
            while engine.advance(Timestamp(*now)) {}
            engine.process(Timestamp(*now), side, &mut packets, verdicts);
            while engine.poll_event().is_some() {}
            let refused = verdicts.iter().find(|v| !matches!(v, Verdict::Forward(_)));
            assert!(refused.is_none(), "{refused:?} instead of forwarding");
        }
    }
}

impl Translator for Natgate {
    fn outbound(&mut self, frames: &mut [Frame]) {
        self.process(Side::Inside, frames);
    }

    fn inbound(&mut self, frames: &mut [Frame]) {
        self.process(Side::Outside, frames);
    }
}

/// The default configuration with room for `sessions` sessions.
fn config(sessions: u64) -> Config {
    full_table::config(POOL, sessions.div_ceil(SESSIONS_PER_ADDRESS) as u32, sessions)
}
