//! Words of 16 bits and their sums, in ordinary arithmetic modulo 65,535.

use natgate_wire::protocol::ICMPV6;

pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The sum of all words. A last single byte is the upper half of a word.
pub(crate) fn total(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&b| b.into())).sum()
}

/// The checksum of words with this sum.
pub(crate) fn checksum_of(total: u64) -> u16 {
    match total {
        0 => 0xffff,
        _ => 0xffff - (1 + (total - 1) % 0xffff) as u16,
    }
}

/// A checksum after a part of the covered words with the sum `old` became one with the sum `new`.
pub(crate) fn moved(checksum: u16, old: u64, new: u64) -> u16 {
    let covered = u64::from(0xffff - checksum) + 0xffff - old % 0xffff + new % 0xffff;
    checksum_of(if covered == 0 { 0xffff } else { covered })
}

/// A length as the pseudo header of IPv6 counts it.
pub(crate) fn length_sum(len: usize) -> u64 {
    (len as u64 >> 16) + (len as u64 & 0xffff)
}

/// The addresses of an IPv4 header.
pub(crate) fn pair(ends: (u32, u32)) -> [u8; 8] {
    (u64::from(ends.0) << 32 | u64::from(ends.1)).to_be_bytes()
}

/// The addresses of an IPv6 header.
pub(crate) fn pair6(ends: (u128, u128)) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&ends.0.to_be_bytes());
    bytes[16..].copy_from_slice(&ends.1.to_be_bytes());
    bytes
}

/// The sum of an ICMPv6 message and its pseudo header.
pub(crate) fn total_icmpv6(ends: (u128, u128), message: &[u8]) -> u64 {
    total(message) + total(&pair6(ends)) + u64::from(ICMPV6) + length_sum(message.len())
}
