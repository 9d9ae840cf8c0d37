//! Filters of external endpoints: a frame of a spool is read only if its filter may have the
//! endpoint in question.

use super::format::Entry;
use std::net::Ipv4Addr;

/// Bits of a filter for each entry, and number of bits that each key sets.
const BITS_EACH: usize = 12;
const HASHES: u64 = 6;

/// Number of ports that share a key.
const PORTS: u16 = 64;

/// Most bits of an entry.
pub(super) const MOST_BITS: usize = MOST_KEYS * BITS_EACH;

/// Most keys of a block; a larger one sets the key of its whole address.
const MOST_KEYS: usize = 64;

/// Filter of external endpoints (a Bloom filter): it has all endpoints of the entries, and few
/// others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filter(pub(crate) Vec<u8>);

impl Filter {
    pub(super) fn of(entries: &[Entry]) -> Self {
        let mut keys = Vec::with_capacity(entries.len());
        for holding in entries.iter().filter_map(Entry::holding) {
            let (first, last) = (holding.ports.0 / PORTS, holding.ports.1 / PORTS);
            let of_ports = (first..=last).map(|part| key(holding.external, Some(part)));
            match usize::from(last.saturating_sub(first)) < MOST_KEYS {
                true => keys.extend(of_ports),
                false => keys.push(key(holding.external, None)),
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let len = (keys.len() * BITS_EACH).div_ceil(8).next_power_of_two().max(8);
        let mut filter = Self(vec![0; len]);
        for key in keys {
            for bit in filter.bits(key) {
                filter.0[bit / 8] |= 1 << (bit % 8);
            }
        }
        filter
    }

    /// Positions of a key's bits.
    fn bits(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let (one, two, len) = (key, key >> 32 | 1, self.0.len() as u64 * 8);
        (0..HASHES).map(move |at| (one.wrapping_add(two.wrapping_mul(at)) % len) as usize)
    }

    /// True if there may be an entry about an external endpoint.
    pub(crate) fn may_have(&self, external: Ipv4Addr, port: u16) -> bool {
        let has = |key| self.bits(key).all(|bit| self.0[bit / 8] & 1 << (bit % 8) != 0);
        !self.0.is_empty() && (has(key(external, Some(port / PORTS))) || has(key(external, None)))
    }
}

/// Key of a part of an address' ports, or of all.
fn key(external: Ipv4Addr, part: Option<u16>) -> u64 {
    let part = part.map_or(u64::from(u16::MAX), u64::from);
    let mut key = u64::from(external.to_bits()) << 16 | part;
    // The finish of SplitMix64: keys that differ in one bit get unrelated values.
    key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}
