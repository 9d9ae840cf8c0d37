//! Packed keys of tables: one after the other, the last in the lowest bits.

use crate::ir::Match;
use std::fmt::Debug;
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::BitAnd;

/// Keys in one number, or a number each if they have more than 128 bits together. The order is that
/// of the keys.
pub trait Packed: Copy + Ord + Hash + Debug {
    /// Packs keys of these widths.
    fn pack(widths: &[u32], values: impl Iterator<Item = u128>) -> Self;

    /// Unpacks the keys.
    fn unpack(self, widths: &[u32]) -> Vec<u128>;

    /// A hash that cannot be predicted without the secret.
    fn mixed(self, secret: Secret) -> u64;
}

/// Secret of a table's hashes.
#[derive(Clone, Copy, Debug)]
pub struct Secret(u64, u64);

impl Secret {
    /// Draws a random secret.
    pub(super) fn draw() -> Self {
        let state = RandomState::new();
        Self(state.hash_one(0), state.hash_one(1) | 1)
    }
}

/// Both halves of a product, combined; they depend on all bits of both factors.
fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

impl Packed for u64 {
    fn pack(widths: &[u32], values: impl Iterator<Item = u128>) -> Self {
        u128::pack(widths, values) as Self
    }

    fn unpack(self, widths: &[u32]) -> Vec<u128> {
        u128::from(self).unpack(widths)
    }

    #[inline]
    fn mixed(self, Secret(first, second): Secret) -> u64 {
        folded(folded(self ^ first, 0x9e37_79b9_7f4a_7c15) ^ second, 0xd6e8_feb8_6659_fd93)
    }
}

impl Packed for u128 {
    fn pack(widths: &[u32], values: impl Iterator<Item = u128>) -> Self {
        let shifted = |packed: Self, width: &u32| packed.checked_shl(*width).unwrap_or(0);
        widths.iter().zip(values).fold(0, |packed, (width, value)| shifted(packed, width) | value)
    }

    fn unpack(self, widths: &[u32]) -> Vec<u128> {
        let mut rest = self;
        let mut values: Vec<u128> = Vec::new();
        for width in widths.iter().rev() {
            let mask = Self::MAX.checked_shr(128 - width).unwrap_or(0);
            values.push(rest & mask);
            rest = rest.checked_shr(*width).unwrap_or(0);
        }
        values.reverse();
        values
    }

    #[inline]
    fn mixed(self, secret: Secret) -> u64 {
        let Secret(first, second) = secret;
        (self as u64).mixed(Secret(first, second ^ ((self >> 64) as u64).mixed(secret)))
    }
}

impl<const N: usize> Packed for [u128; N] {
    fn pack(_: &[u32], values: impl Iterator<Item = u128>) -> Self {
        let mut packed = [0; N];
        packed.iter_mut().zip(values).for_each(|(place, value)| *place = value);
        packed
    }

    fn unpack(self, _: &[u32]) -> Vec<u128> {
        self.to_vec()
    }

    fn mixed(self, secret: Secret) -> u64 {
        self.iter().fold(secret.0, |hash, value| value.mixed(Secret(hash, secret.1)))
    }
}

/// Packed values of entries' keys.
pub(super) fn values<K: Packed>(widths: &[u32], keys: &[Match]) -> K {
    K::pack(widths, keys.iter().map(|key| key.value))
}

/// Packed masks of entries' keys.
pub(super) fn masks<K: Packed + BitAnd>(widths: &[u32], keys: &[Match]) -> K {
    K::pack(widths, keys.iter().map(|key| key.mask))
}

/// Matches of an entry, for the control plane.
pub(super) fn matches<K: Packed>(widths: &[u32], value: K, mask: K) -> Vec<Match> {
    let pairs = value.unpack(widths).into_iter().zip(mask.unpack(widths));
    pairs.map(|(value, mask)| Match { value, mask }).collect()
}

/// All bits of all keys.
pub(super) fn full<K: Packed>(widths: &[u32]) -> K {
    K::pack(widths, widths.iter().map(|width| u128::MAX.checked_shr(128 - width).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        let keys = [3, 0x0a00_0001, 0xffff];
        assert_eq!(u64::pack(&[8, 32, 16], keys.into_iter()), 0x03_0a00_0001_ffff);
        assert_eq!(0x03_0a00_0001_ffff_u64.unpack(&[8, 32, 16]), keys);
        let wide = [u128::MAX];
        assert_eq!(u128::pack(&[128], wide.into_iter()).unpack(&[128]), wide);
        assert_eq!(full::<u64>(&[8, 4]), 0xfff);
        assert_eq!(<[u128; 2]>::pack(&[100, 100], [1, 2].into_iter()).unpack(&[100, 100]), [1, 2]);
    }

    #[test]
    fn every_bit_of_a_key_changes_half_of_the_hash() {
        let secret = Secret::draw();
        let changed = |bit: u32| {
            let flips =
                |key: u128| (key.mixed(secret) ^ (key ^ 1 << bit).mixed(secret)).count_ones();
            (0..64).map(|key| flips(key * 0x1_0001)).sum::<u32>() / 64
        };
        for bit in 0..128 {
            assert!(
                (20..44).contains(&changed(bit)),
                "bit {bit}: {} bits ({secret:?})",
                changed(bit)
            );
        }
    }
}
