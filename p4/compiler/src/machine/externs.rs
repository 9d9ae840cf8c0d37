//! State and results of the architecture's externs.

use super::bits::Writer;
use crate::ir::{Algorithm, Object, ObjectKind, Ty};
use std::collections::BTreeMap;

/// Rates and bursts of a meter (RFC 2698), in bytes or packets; rates are per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Committed information rate.
    pub committed: u64,
    /// Committed burst size.
    pub committed_burst: u64,
    /// Peak information rate.
    pub peak: u64,
    /// Peak burst size.
    pub peak_burst: u64,
}

/// Colours in the architecture's numbering.
const RED: u128 = 0;
const GREEN: u128 = 1;
const YELLOW: u128 = 2;

const SECOND: u128 = 1_000_000_000;

/// A meter with its two buckets.
#[derive(Clone, Debug)]
pub struct Meter {
    rates: Rates,
    /// Tokens times 10^9.
    committed: u128,
    peak: u128,
    last: u64,
}

impl Meter {
    /// Creates a meter with full buckets.
    pub(super) fn new(rates: Rates, now: u64) -> Self {
        let full = |burst: u64| u128::from(burst) * SECOND;
        Self {
            rates,
            committed: full(rates.committed_burst),
            peak: full(rates.peak_burst),
            last: now,
        }
    }

    /// Rates of the meter.
    pub(crate) fn rates(&self) -> Rates {
        self.rates
    }

    /// Colour of a packet, from its colour before and its size in the meter's unit.
    pub(crate) fn colour(&mut self, now: u64, before: u128, size: u128) -> u128 {
        let elapsed = u128::from(now.saturating_sub(self.last));
        self.last = self.last.max(now);
        let filled = |tokens: u128, rate: u64, burst: u64| {
            (tokens + elapsed * u128::from(rate)).min(u128::from(burst) * SECOND)
        };
        self.committed = filled(self.committed, self.rates.committed, self.rates.committed_burst);
        self.peak = filled(self.peak, self.rates.peak, self.rates.peak_burst);
        let size = size * SECOND;
        if before == RED || self.peak < size {
            return RED;
        }
        self.peak -= size;
        if before == YELLOW || self.committed < size {
            return YELLOW;
        }
        self.committed -= size;
        GREEN
    }
}

/// State of an object between packets; cells that were never touched take no memory.
#[derive(Clone, Debug)]
pub(super) enum Memory {
    /// Packets and bytes.
    Counter(BTreeMap<u32, (u64, u64)>),
    Meter(BTreeMap<u32, Meter>),
    Register(BTreeMap<u32, Vec<u128>>),
    /// Ones' complement sum of one packet.
    Checksum(u16),
    Random(u64),
    None,
}

impl Memory {
    pub(super) fn new(kind: &ObjectKind, seed: u64) -> Self {
        match kind {
            ObjectKind::Counter { .. } => Self::Counter(BTreeMap::new()),
            ObjectKind::Meter { .. } => Self::Meter(BTreeMap::new()),
            ObjectKind::Register { .. } => Self::Register(BTreeMap::new()),
            ObjectKind::Checksum => Self::Checksum(0),
            ObjectKind::Random { .. } => Self::Random(seed),
            ObjectKind::Hash { .. } | ObjectKind::Digest { .. } => Self::None,
        }
    }

    /// Counts a packet; an index beyond the array is ignored.
    pub(super) fn count(&mut self, object: &Object, index: u128, bytes: u128) {
        if let (Self::Counter(cells), ObjectKind::Counter { size, width }) = (self, &object.kind)
            && index < u128::from(*size)
        {
            let most = Ty::Bit(*width).mask() as u64;
            let (packets, total) = cells.entry(index as u32).or_default();
            *packets = packets.wrapping_add(1) & most;
            *total = total.wrapping_add(bytes as u64) & most;
        }
    }

    /// Colour of a packet; a meter without rates leaves it as it is.
    pub(super) fn meter(&mut self, object: &Object, now: u64, args: &[u128]) -> u128 {
        let (Self::Meter(cells), ObjectKind::Meter { bytes, .. }) = (self, &object.kind) else {
            return args[1];
        };
        let size = if *bytes { args[2] } else { 1 };
        match u32::try_from(args[0]).ok().and_then(|index| cells.get_mut(&index)) {
            Some(meter) => meter.colour(now, args[1], size),
            None => args[1],
        }
    }

    pub(super) fn read(&self, object: &Object, index: u128) -> Vec<u128> {
        let (Self::Register(cells), ObjectKind::Register { initial, .. }) = (self, &object.kind)
        else {
            return Vec::new();
        };
        let found = u32::try_from(index).ok().and_then(|index| cells.get(&index));
        found.cloned().unwrap_or_else(|| initial.iter().map(|(_, value)| *value).collect())
    }

    pub(super) fn write(&mut self, object: &Object, index: u128, values: &[u128]) {
        if let (Self::Register(cells), ObjectKind::Register { size, .. }) = (self, &object.kind)
            && index < u128::from(*size)
        {
            cells.insert(index as u32, values.to_vec());
        }
    }

    /// Adds words, or their complements, to the sum.
    pub(super) fn sum(&mut self, bytes: &[u8], subtracts: bool) {
        if let Self::Checksum(state) = self {
            for word in bytes.chunks_exact(2) {
                let word = u16::from_be_bytes([word[0], word[1]]);
                *state = added(*state, if subtracts { !word } else { word });
            }
        }
    }

    /// Next number of a pseudorandom sequence (SplitMix64).
    pub(super) fn random(&mut self, object: &Object) -> u128 {
        let (Self::Random(state), ObjectKind::Random { ty, least, most }) = (self, &object.kind)
        else {
            return 0;
        };
        random(state, *least, *most) & ty.mask()
    }
}

/// Next number of a pseudorandom sequence within a range (SplitMix64).
pub(crate) fn random(state: &mut u64, least: u128, most: u128) -> u128 {
    let mut next = || {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    let wide = u128::from(next()) << 64 | u128::from(next());
    match (most - least).checked_add(1) {
        Some(count) => least + wide % count,
        None => wide,
    }
}

/// Ones' complement sum.
fn added(left: u16, right: u16) -> u16 {
    let (sum, carry) = left.overflowing_add(right);
    sum + u16::from(carry)
}

/// Values, each of a number of bits, as consecutive bytes.
pub(crate) fn bytes(values: impl Iterator<Item = (u128, u32)>) -> Vec<u8> {
    let mut writer = Writer::default();
    values.for_each(|(value, bits)| writer.put(value, bits));
    writer.finish()
}

pub(crate) fn hash(algorithm: Algorithm, data: &[u8]) -> u128 {
    match algorithm {
        Algorithm::Identity => {
            let tail = &data[data.len().saturating_sub(16)..];
            tail.iter().fold(0, |value, byte| value << 8 | u128::from(*byte))
        }
        Algorithm::Crc32 => crc32fast::hash(data).into(),
        Algorithm::Crc16 => crc16(data).into(),
        Algorithm::OnesComplement16 => {
            let words = data.chunks(2).map(|word| {
                u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or_default()])
            });
            (!words.fold(0, added)).into()
        }
    }
}

/// CRC-16 with the polynomial 0x8005, reflected (CRC-16/ARC).
fn crc16(data: &[u8]) -> u16 {
    data.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte), |crc, _| match crc & 1 {
            0 => crc >> 1,
            _ => (crc >> 1) ^ 0xa001,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_their_check_values() {
        let check = b"123456789";
        assert_eq!(hash(Algorithm::Crc32, check), 0xcbf4_3926);
        assert_eq!(hash(Algorithm::Crc16, check), 0xbb3d);
        assert_eq!(hash(Algorithm::Identity, &[1, 2]), 0x0102);
        assert_eq!(hash(Algorithm::OnesComplement16, &[0xff, 0xff, 0x00, 0x01]), 0xfffe);
    }

    #[test]
    fn a_meter_has_two_rates_and_three_colours() {
        let rates = Rates { committed: 100, committed_burst: 100, peak: 200, peak_burst: 200 };
        let mut meter = Meter::new(rates, 0);
        let mut colour = |now, size| meter.colour(now, GREEN, size);
        assert_eq!((colour(0, 100), colour(0, 100), colour(0, 1)), (GREEN, YELLOW, RED));
        // Half a second later: 50 tokens, and 100 in the peak bucket.
        assert_eq!((colour(500_000_000, 50), colour(500_000_000, 50)), (GREEN, YELLOW));
        assert_eq!(colour(500_000_000, 1), RED);
    }
}
