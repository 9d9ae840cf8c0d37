//! Digests of a copy: for each bucket of keys the sum over keys and fingerprints.
//!
//! The sums change with each record, so that a comparison costs nothing but the comparison.

use alloc::boxed::Box;
use alloc::vec;

/// Number of buckets. A key belongs to the bucket `key % BUCKETS`.
pub const BUCKETS: usize = 1024;

/// The digests of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests(Box<[u64]>);

impl Default for Digests {
    fn default() -> Self {
        Self(vec![0; BUCKETS].into())
    }
}

impl Digests {
    /// The bucket of a key.
    pub fn bucket(key: u32) -> usize {
        key as usize % BUCKETS
    }

    /// Digest of a bucket.
    pub fn of(&self, bucket: usize) -> u64 {
        self.0[bucket]
    }

    /// Reads digests from as many numbers in little-endian order.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks();
        let is_whole = rest.is_empty() && words.len() == BUCKETS;
        is_whole.then(|| Self(words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }

    /// The digests in the order of buckets.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied()
    }

    /// Replaces a key's fingerprint. 0: the key has no record.
    pub(crate) fn replace(&mut self, key: u32, former: u64, now: u64) {
        let digest = &mut self.0[Self::bucket(key)];
        *digest = digest.wrapping_sub(mixed(key, former)).wrapping_add(mixed(key, now));
    }
}

/// A number for a key with a fingerprint. Without a record: 0.
fn mixed(key: u32, fingerprint: u64) -> u64 {
    if fingerprint == 0 {
        return 0;
    }
    let product = u128::from(fingerprint ^ u64::from(key).rotate_left(32))
        * u128::from(0x9e37_79b9_7f4a_7c15_u64);
    (product as u64) ^ ((product >> 64) as u64) ^ fingerprint.rotate_left(17)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_depend_on_keys_and_fingerprints_and_not_on_the_way() {
        let (mut one, mut other) = (Digests::default(), Digests::default());
        one.replace(5, 0, 77);
        one.replace(5 + 1024, 0, 78);
        other.replace(5 + 1024, 0, 9);
        other.replace(5, 0, 77);
        assert_ne!(one, other);
        other.replace(5 + 1024, 9, 78);
        assert_eq!(one, other);
        other.replace(5, 77, 78);
        other.replace(5 + 1024, 78, 77);
        assert_ne!(one, other, "the keys are exchanged");
        one.replace(5, 77, 0);
        one.replace(5 + 1024, 78, 0);
        assert_eq!(one, Digests::default());
    }
}
