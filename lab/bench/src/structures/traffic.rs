//! The packets. They follow the paper's generator: random endpoints in 192.168.0.0/16, nearly all
//! different. First all of them send, which creates the sessions; then all are answered. The paper
//! does not have the other packets: packets of present sessions, with uniform distribution and by
//! Zipf's law.
//!
//! Packets are written before the time is taken and checked after it, some thousand at a time. So
//! they lie in the cache like packets that a network card has just delivered.

use super::nat::Translator;
use crate::clock;
use crate::frame::{self, End, Frame};
use crate::random::{Random, Shuffle};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use rand_distr::{Distribution, Zipf};
use std::ops::{Add, Range};
use std::time::Instant;

/// Packets that are written together.
const CHUNK: usize = 4096;
/// Bounds of the number of packets of established sessions in a run.
const DRAWN: Range<usize> = 4096..1 << 20;
/// Exponent of Zipf's law.
const ZIPF: f64 = 1.0;
const NETWORK: u32 = 0xc0a8_0000;
const REMOTE: End = (0xc612_0001, 443);
const FIRST_PORT: u16 = 1024;

/// An internal endpoint: the host's part of the address, and the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tuple {
    host: u16,
    port: u16,
}

impl Tuple {
    /// Creates `count` random endpoints.
    pub(super) fn random(count: u64, random: &mut Random) -> Vec<Self> {
        let ports = u64::from(u16::MAX - FIRST_PORT) + 1;
        let mut tuple = || Self {
            host: random.below(1 << 16) as u16,
            port: FIRST_PORT + random.below(ports) as u16,
        };
        (0..count).map(|_| tuple()).collect()
    }

    fn end(self) -> End {
        (NETWORK + u32::from(self.host), self.port)
    }
}

/// Time of packets, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elapsed {
    /// Processor time of the thread.
    pub(super) cpu: f64,
    /// Wall time.
    pub(super) wall: f64,
    /// Number of packets.
    pub(super) packets: usize,
}

impl Elapsed {
    /// Processor time of one packet.
    pub(super) fn each(self) -> f64 {
        self.cpu / self.packets.max(1) as f64
    }
}

impl Add for Elapsed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            wall: self.wall + other.wall,
            packets: self.packets + other.packets,
        }
    }
}

/// Sender of packets through a NAT.
pub(super) struct Traffic {
    frames: Vec<Frame>,
    random: Random,
}

impl Traffic {
    pub(super) fn new() -> Self {
        Self { frames: vec![Frame([0; 64]); CHUNK], random: Random::new(11) }
    }

    /// Sends a packet from every endpoint; returns the external endpoints.
    pub(super) fn create(
        &mut self,
        nat: &mut dyn Translator,
        tuples: &[Tuple],
    ) -> (Elapsed, Vec<End>) {
        let mut externals = Vec::with_capacity(tuples.len());
        let mut elapsed = Elapsed::default();
        for tuples in tuples.chunks(CHUNK) {
            let frames = &mut self.frames[..tuples.len()];
            for (frame, tuple) in frames.iter_mut().zip(tuples) {
                frame::udp(frame, tuple.end(), REMOTE);
            }
            elapsed = elapsed + time(frames, |frames| nat.outbound(frames));
            externals.extend(frames.iter().map(frame::source));
        }
        (elapsed, externals)
    }

    /// Answers every packet, in the order of sending.
    pub(super) fn answer(
        &mut self,
        nat: &mut dyn Translator,
        tuples: &[Tuple],
        externals: &[End],
    ) -> Elapsed {
        let mut elapsed = Elapsed::default();
        for (tuples, externals) in tuples.chunks(CHUNK).zip(externals.chunks(CHUNK)) {
            let frames = &mut self.frames[..tuples.len()];
            for (frame, &external) in frames.iter_mut().zip(externals) {
                frame::udp(frame, REMOTE, external);
            }
            elapsed = elapsed + time(frames, |frames| nat.inbound(frames));
            for (frame, tuple) in frames.iter().zip(tuples) {
                assert_eq!(frame::destination(frame), tuple.end(), "not the way back");
            }
        }
        elapsed
    }

    /// Sends packets of established sessions, with uniform distribution.
    pub(super) fn find(
        &mut self,
        nat: &mut dyn Translator,
        tuples: &[Tuple],
        externals: &[End],
    ) -> Elapsed {
        let mut random = self.random.clone();
        let elapsed = self.draw(nat, tuples, externals, || random.below(tuples.len() as u64));
        self.random = random;
        elapsed
    }

    /// Sends packets of established sessions, by Zipf's law. The frequency of a session does not
    /// depend on its age.
    pub(super) fn find_zipf(
        &mut self,
        nat: &mut dyn Translator,
        tuples: &[Tuple],
        externals: &[End],
    ) -> Elapsed {
        let count = tuples.len() as u64;
        let zipf = Zipf::new(count as f64, ZIPF).expect("there is a session");
        let mut random = ChaCha8Rng::seed_from_u64(self.random.next());
        let order = Shuffle::new(count);
        let mut rank = || (zipf.sample(&mut random) as u64).clamp(1, count) - 1;
        self.draw(nat, tuples, externals, || order.at(rank()))
    }

    fn draw(
        &mut self,
        nat: &mut dyn Translator,
        tuples: &[Tuple],
        externals: &[End],
        mut next: impl FnMut() -> u64,
    ) -> Elapsed {
        let mut elapsed = Elapsed::default();
        let mut left = tuples.len().clamp(DRAWN.start, DRAWN.end);
        let mut drawn = Vec::with_capacity(CHUNK);
        while left > 0 {
            drawn.clear();
            drawn.extend((0..left.min(CHUNK)).map(|_| next() as usize));
            left -= drawn.len();
            let frames = &mut self.frames[..drawn.len()];
            for (frame, &session) in frames.iter_mut().zip(&drawn) {
                frame::udp(frame, tuples[session].end(), REMOTE);
            }
            elapsed = elapsed + time(frames, |frames| nat.outbound(frames));
            for (frame, &session) in frames.iter().zip(&drawn) {
                assert_eq!(frame::source(frame), externals[session], "another mapping");
            }
        }
        elapsed
    }
}

fn time(frames: &mut [Frame], work: impl FnOnce(&mut [Frame])) -> Elapsed {
    let wall = Instant::now();
    let (cpu, ()) = clock::time(|| work(frames));
    Elapsed { cpu, wall: wall.elapsed().as_nanos() as f64, packets: frames.len() }
}

#[cfg(test)]
mod tests {
    use super::super::kind::Variant;
    use super::*;

    #[test]
    fn every_nat_brings_every_packet_there_and_back() {
        let tuples = Tuple::random(6000, &mut Random::new(3));
        for variant in Variant::all() {
            let (mut nat, mut traffic) = (variant.build(tuples.len()), Traffic::new());
            let (created, externals) = traffic.create(&mut *nat, &tuples);
            let answered = traffic.answer(&mut *nat, &tuples, &externals);
            let found = traffic.find(&mut *nat, &tuples, &externals);
            let zipf = traffic.find_zipf(&mut *nat, &tuples, &externals);
            for elapsed in [created, answered, found, zipf] {
                assert_eq!(elapsed.packets, 6000, "{}", variant.name());
                assert!(elapsed.cpu > 0.0);
            }
        }
    }

    #[test]
    fn nearly_all_endpoints_are_different() {
        let tuples = Tuple::random(100_000, &mut Random::new(3));
        let different: std::collections::HashSet<End> = tuples.iter().map(|t| t.end()).collect();
        assert!(different.len() > 99_000, "{}", different.len());
    }
}
