//! Headers rewritten in place for the quick way: addresses, ports, TTL and checksums, word by word.

use super::quick::{From, IPV4_LEN, TCP_END, UDP_END};
use crate::endpoint::AddressPort;
use crate::packet::Side;
use natgate_wire::checksum::fold;
use natgate_wire::{protocol, tcp, udp};

/// Decrements the TTL and updates the header's checksum.
pub(super) fn forward_as_it_is(bytes: &mut [u8]) {
    let Some(head) = bytes.first_chunk_mut::<UDP_END>() else { return };
    let second = aged(u64_at(head, 8), 0);
    head[8..16].copy_from_slice(&second.to_be_bytes());
}

/// The second word of a header with a decremented TTL, and with its checksum updated for the TTL
/// and for another change.
#[inline(always)]
pub(super) fn aged(second: u64, change: u32) -> u64 {
    const TTL: u64 = 1 << 56;
    /// Change of the checksum when the upper byte of a word is decremented.
    const TTL_CHANGE: u32 = 0xfeff;
    const CHECKSUM: u64 = 0xffff << 32;
    let checksum = updated((second >> 32) as u16, change + TTL_CHANGE);
    (second - TTL) & !CHECKSUM | u64::from(checksum) << 32
}

/// Replaces an old endpoint by a new one: the source of packets from inside, the destination of
/// others. Decrements the TTL, and updates both checksums by the changes (RFC 1624).
#[inline(always)]
pub(super) fn rewrite<F: From>(bytes: &mut [u8], protocol: u8, old: AddressPort, new: AddressPort) {
    let change = u64::from(!old.address) + u64::from(new.address);
    let change = (change >> 16) as u32 + (change & 0xffff) as u32;
    let transport = change + u32::from(!old.port) + u32::from(new.port);
    let Some(head) = bytes.first_chunk_mut::<UDP_END>() else { return };
    let (second, third) = (u64_at(head, 8), u64_at(head, 16));
    let second = aged(second, change);
    let (address, port) = (u64::from(new.address), u64::from(new.port));
    let (second, third) = match F::SIDE {
        Side::Inside => (second >> 32 << 32 | address, third & !(0xffff << 16) | port << 16),
        Side::Outside => (second, address << 32 | third & (0xffff << 16) | port),
    };
    head[8..16].copy_from_slice(&second.to_be_bytes());
    head[16..24].copy_from_slice(&third.to_be_bytes());
    if protocol == protocol::UDP {
        let checksum = u16_at(head, IPV4_LEN + udp::CHECKSUM);
        if checksum != 0 {
            let updated = match updated(checksum, transport) {
                0 => 0xffff,
                updated => updated,
            };
            head[IPV4_LEN + udp::CHECKSUM..].copy_from_slice(&updated.to_be_bytes());
        }
    } else if let Some(head) = bytes.first_chunk_mut::<TCP_END>() {
        let at = IPV4_LEN + tcp::CHECKSUM;
        let updated = updated(u16_at(head, at), transport);
        head[at..at + 2].copy_from_slice(&updated.to_be_bytes());
    }
}

#[inline(always)]
pub(super) fn updated(checksum: u16, change: u32) -> u16 {
    !fold(u32::from(!checksum) + change)
}

#[inline(always)]
pub(super) fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(super) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
pub(super) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}
