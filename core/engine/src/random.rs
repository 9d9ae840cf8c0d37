//! Randomness and hashing, both keyed by the engine's seed: the generator of every choice that must
//! not be guessed (RFC 6056), and the hash of the lookup structures. Keys that collide under one
//! seed do not collide under another.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// A generator whose output only the seed predicts.
#[derive(Clone, Debug)]
pub(crate) struct Generator(ChaCha8Rng);

impl Generator {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha8Rng::from_seed(seed))
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    #[inline(always)]
    pub(crate) fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// A number below `bound`. The numbers are equally likely up to one part in 2^32 / bound.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(bound)) >> 32) as u32
    }

    /// The better of two random numbers below `count`. Loads become even this way, although the
    /// least load is not known.
    pub(crate) fn better_of_two(
        &mut self,
        count: u32,
        first_is_better: impl Fn(u32, u32) -> bool,
    ) -> u32 {
        let (a, b) = (self.below(count), self.below(count));
        if first_is_better(a, b) { a } else { b }
    }
}

/// A key of the hash of lookup structures.
#[derive(Clone, Copy, Debug)]
pub struct HashKey([u64; 3]);

impl HashKey {
    /// A key for a structure beside the engine, from a secret seed. Keys of different `purpose` are
    /// independent.
    pub fn from_seed(mut seed: [u8; 32], purpose: u64) -> Self {
        for (byte, other) in seed.iter_mut().zip(purpose.to_le_bytes()) {
            *byte ^= other;
        }
        Self::new(&mut Generator::new(seed))
    }

    pub(crate) fn new(generator: &mut Generator) -> Self {
        Self([generator.next_u64() | 1, generator.next_u64() | 1, generator.next_u64()])
    }

    /// The key, for another engine.
    pub(crate) fn words(self) -> [u64; 3] {
        self.0
    }

    /// Makes the key of another engine.
    pub(crate) fn from_words([first, second, third]: [u64; 3]) -> Self {
        Self([first | 1, second | 1, third])
    }

    /// Hash of two words. Each word is folded with a secret of its own, so that no bit of the
    /// result can be controlled without the secrets.
    pub fn hash(self, a: u64, b: u64) -> u64 {
        let [first, second, third] = self.0;
        fold(fold(a ^ first, second) ^ b, first ^ third)
    }
}

/// The two halves of a 128-bit product, combined.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_covers_its_range_evenly() {
        let mut generator = Generator::new([7; 32]);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[generator.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
    }

    #[test]
    fn another_key_separates_what_one_key_lets_collide() {
        let key = |seed| HashKey::new(&mut Generator::new([seed; 32]));
        let (old, new) = (key(1), key(2));
        let colliding: alloc::vec::Vec<u64> =
            (0..200_000).filter(|&a| old.hash(a, 0) >> 56 == 0).collect();
        let still = colliding.iter().filter(|&&a| new.hash(a, 0) >> 56 == 0).count();
        assert!(colliding.len() > 500);
        assert!(still * 64 < colliding.len(), "{still} of {}", colliding.len());
    }
}
