//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624, equation 3).

/// Ones' complement sum of `bytes` as big-endian 16-bit words, added to `start`; an odd last byte
/// counts as the high half of a word.
pub fn sum(bytes: &[u8], start: u32) -> u32 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut total = u64::from(start);
    for &word in words {
        // Two words at once: the carry between them is folded in at the end.
        total += u64::from(u32::from_be_bytes(word));
    }
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    total += u64::from(u32::from_be_bytes(last));
    while total >> 32 != 0 {
        total = (total & 0xffff_ffff) + (total >> 32);
    }
    total as u32
}

/// Folds a 32-bit partial sum to 16 bits.
#[inline(always)]
pub fn fold(total: u32) -> u16 {
    let (sum, carry) = (total as u16).overflowing_add((total >> 16) as u16);
    // A sum with a carry is below 0xffff.
    sum + u16::from(carry)
}

/// The checksum of `bytes`: the complement of their sum. The result is zero for data with a correct
/// checksum.
pub fn checksum(bytes: &[u8]) -> u16 {
    !fold(sum(bytes, 0))
}

/// The partial sum of the TCP or UDP pseudo header.
pub fn pseudo_header(source: u32, destination: u32, protocol: u8, length: u16) -> u32 {
    (source >> 16)
        + (source & 0xffff)
        + (destination >> 16)
        + (destination & 0xffff)
        + u32::from(protocol)
        + u32::from(length)
}

/// The partial sum of the pseudo header of IPv6 (RFC 8200 section 8.1). `length` is the length of
/// the transport header and its data, bytes.
pub fn pseudo_header_v6(source: u128, destination: u128, protocol: u8, length: u32) -> u32 {
    let rest = sum(&length.to_be_bytes(), u32::from(protocol));
    sum(&destination.to_be_bytes(), sum(&source.to_be_bytes(), rest))
}

/// The change of a checksum by replaced fields: `~m + m'` for each. It is kept as a partial sum, so
/// that several fields cost one fold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta(u32);

impl Delta {
    /// No change.
    pub const NONE: Self = Self(0);

    /// Adds the replacement of a 16-bit field.
    #[must_use]
    pub fn replace_u16(self, old: u16, new: u16) -> Self {
        Self(self.0 + u32::from(!old) + u32::from(new))
    }

    /// Adds the replacement of a 32-bit field. At most 4096 replacements fit in one delta.
    #[must_use]
    pub fn replace_u32(self, old: u32, new: u32) -> Self {
        self.replace_u16((old >> 16) as u16, (new >> 16) as u16).replace_u16(old as u16, new as u16)
    }

    /// Adds the replacement of fields with the partial sum `old` by fields with the partial sum
    /// `new`. The fields start at even offsets.
    #[must_use]
    pub fn replace_sum(self, old: u32, new: u32) -> Self {
        self.replace_u16(fold(old), fold(new))
    }

    /// The sum of both changes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }

    /// The checksum after the change: `HC' = ~(~HC + ~m + m')`.
    #[must_use]
    pub fn apply(self, checksum: u16) -> u16 {
        !fold(u32::from(!checksum) + self.0)
    }
}
