//! What somebody gains who knows the hash key of an earlier start: nothing at the next one.
//!
//! The attacker here has read the source and got hold of the key of one start, so it can choose
//! internal endpoints that all land in one place of the index. At that start they are slow indeed;
//! at another, whose seed it does not know, they are like any others.

use super::bench::config;
use crate::clock;
use crate::frame::{self, End, Frame, LEN};
use crate::random::Random;
use natgate_engine::{Engine, Packet, Side, Timestamp, Verdict};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const ROOM: u64 = 65_536;
const KEYS: usize = 2_000;
const OLD: [u8; 32] = [1; 32];
const NEW: [u8; 32] = [2; 32];
const UDP: u64 = 17;

/// The engine's hash as the attacker knows it.
struct Known([u64; 3]);

impl Known {
    fn of(seed: [u8; 32]) -> Self {
        let mut generator = ChaCha8Rng::from_seed(seed);
        let [a, b, c] = [(); 3].map(|()| generator.next_u64());
        Self([a | 1, b | 1, c])
    }

    fn hash(&self, (address, port): End) -> u64 {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            (product as u64) ^ ((product >> 64) as u64)
        };
        let word = u64::from(address) << 32 | u64::from(port) << 16 | UDP;
        let [a, b, c] = self.0;
        fold(fold(word ^ a, b), a ^ c)
    }
}

fn endpoints(random: &mut Random) -> impl Iterator<Item = End> {
    std::iter::repeat_with(|| {
        let number = random.next();
        (0x0a00_0000 + (number as u32 & 0xff_ffff), 1024 + (number >> 32) as u16 % 64_000)
    })
}

/// Nanoseconds a packet over sessions with these internal endpoints.
fn cost(seed: [u8; 32], internal: &[End]) -> f64 {
    let mut engine = Engine::new(&config(ROOM), seed, Timestamp(0)).unwrap();
    let mut best = f64::MAX;
    for round in 1..4 {
        let mut frames = vec![Frame([0; 64]); internal.len()];
        for (frame, &internal) in frames.iter_mut().zip(internal) {
            frame::udp(frame, internal, (0xc612_0001, 53));
        }
        let start = clock::now();
        for frames in frames.chunks_mut(50) {
            let mut packets: Vec<Packet<'_>> =
                frames.iter_mut().map(|frame| Packet::new(&mut frame.0[..LEN], 0)).collect();
            let mut verdicts = [Verdict::Held; 50];
            engine.process(Timestamp(round), Side::Inside, &mut packets, &mut verdicts);
            assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Forward(Side::Outside)));
            while engine.poll_event().is_some() {}
        }
        best = best.min((clock::now() - start) as f64 / internal.len() as f64);
    }
    best
}

#[test]
fn keys_chosen_for_an_old_start_do_not_slow_a_new_one() {
    let mut random = Random::new(1);
    let known = Known::of(OLD);
    let harmless: Vec<End> = endpoints(&mut random).take(KEYS).collect();
    let chosen: Vec<End> = endpoints(&mut random)
        .filter(|&internal| known.hash(internal) >> 51 == 0)
        .take(KEYS)
        .collect();
    let usual = cost(NEW, &harmless);
    let (attacked, started_anew) = (cost(OLD, &chosen), cost(NEW, &chosen));
    assert!(
        attacked > 8.0 * usual,
        "the attack is none ({attacked} ns against {usual}): has the engine's hash changed?"
    );
    assert!(started_anew < 3.0 * usual, "{started_anew} ns instead of {usual}");
}
