//! Headers rewritten in place for the quick way: addresses, ports, TTL and checksums, word by word.

use super::quick::{From, IPV4_LEN, TCP_END, UDP_END};
use crate::endpoint::AddressPort;
use crate::packet::Side;
use natgate_wire::checksum::fold;
use natgate_wire::{protocol, tcp, udp};

/// Decrements the TTL and updates the header's checksum.
pub(super) fn forward_as_it_is(bytes: &mut [u8]) {
    if let Some(head) = bytes.first_chunk_mut::<UDP_END>() {
        age(head, 0);
    }
}

/// Decrements the TTL, and updates the header's checksum for it and for another change, which is a
/// sum of words as the machine reads them.
#[inline(always)]
fn age(head: &mut [u8; UDP_END], change: u32) {
    /// Change of the checksum when the upper byte of a word is decremented.
    const TTL_CHANGE: u32 = u16::from_ne_bytes([0xfe, 0xff]) as u32;
    head[8] -= 1;
    put(head, 10, updated(quarter_at(head, 10), change + TTL_CHANGE));
}

/// Replaces the source endpoint of packets from inside, the destination of others. Decrements the
/// TTL, and updates both checksums by the changes (RFC 1624). Words are summed as the machine reads
/// them, which RFC 1071 section 2 allows.
#[inline(always)]
pub(super) fn rewrite<F: From>(bytes: &mut [u8], protocol: u8, new: AddressPort) {
    let (address_at, port_at) = match F::SIDE {
        Side::Inside => (12, 20),
        Side::Outside => (16, 22),
    };
    let Some(head) = bytes.first_chunk_mut::<UDP_END>() else { return };
    let (address, port) = (new.address.to_be(), new.port.to_be());
    let change = u64::from(!half_at(head, address_at)) + u64::from(address);
    let change = (change >> 16) as u32 + (change & 0xffff) as u32;
    let transport = change + u32::from(!quarter_at(head, port_at)) + u32::from(port);
    age(head, change);
    head[address_at..address_at + 4].copy_from_slice(&address.to_ne_bytes());
    put(head, port_at, port);
    if protocol == protocol::UDP {
        const AT: usize = IPV4_LEN + udp::CHECKSUM;
        let checksum = quarter_at(head, AT);
        if checksum != 0 {
            let updated = match updated(checksum, transport) {
                0 => 0xffff,
                updated => updated,
            };
            put(head, AT, updated);
        }
    } else if let Some(head) = bytes.first_chunk_mut::<TCP_END>() {
        const AT: usize = IPV4_LEN + tcp::CHECKSUM;
        put(head, AT, updated(quarter_at(head, AT), transport));
    }
}

#[inline(always)]
fn updated(checksum: u16, change: u32) -> u16 {
    !fold(u32::from(!checksum) + change)
}

#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8; N], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_ne_bytes());
}

/// Two bytes as the machine reads them.
#[inline(always)]
fn quarter_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

/// Four bytes as the machine reads them.
#[inline(always)]
pub(super) fn half_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Eight bytes as the machine reads them.
#[inline(always)]
pub(super) fn word_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(word)
}

#[inline(always)]
pub(super) fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
pub(super) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
