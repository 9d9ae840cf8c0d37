//! A TCP segment in an IPv4 packet: the fields that the framework reads and writes.
//!
//! After [`Segment::parse`], every offset lies in the packet. A changed packet gets its checksums
//! anew, so the parser refuses a packet whose checksum was wrong: a new one would hide the damage.

use super::sequence::is_before;
use crate::room::Room;
use core::net::SocketAddrV4;
use natgate_wire::tcp::flags;
use natgate_wire::{Ipv4, Tcp, checksum, protocol};

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
const MD5: u8 = 19;
const AUTHENTICATION: u8 = 29;

/// Numbers and places of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Offset of the TCP header.
    pub(crate) tcp: usize,
    /// Offset of the data.
    pub(crate) data: usize,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    pub(crate) is_urgent: bool,
    /// Maximum segment size option.
    pub(crate) mss: Option<u16>,
    /// Offset of the timestamps option's values.
    stamps: Option<usize>,
    /// Offset and length of the SACK option.
    sack: Option<(usize, usize)>,
    /// True if TCP authenticates its segments.
    pub(crate) is_signed: bool,
}

impl Segment {
    /// Reads a packet whose IPv4 header is right. `None`: the packet has no whole TCP header, or a
    /// wrong checksum.
    pub(crate) fn parse(packet: &[u8]) -> Option<Self> {
        let tcp = Ipv4::new_checked(packet).ok()?.header_len();
        let header = Tcp::new_checked(&packet[tcp..])?;
        let number = |at: usize| -> u32 {
            let bytes = &packet[tcp + at..tcp + at + 4];
            bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
        };
        const URGENT: u8 = 0x20;
        let mut segment = Self {
            tcp,
            data: tcp + header.header_len(),
            sequence: number(4),
            acknowledgment: number(8),
            flags: header.flags(),
            window: header.window(),
            is_urgent: header.flags() & URGENT != 0,
            mss: header.max_segment_size().map(|(_, mss)| mss),
            stamps: None,
            sack: None,
            is_signed: false,
        };
        segment.read_options(packet);
        let (sum, tcp_bytes) = (pseudo_header(packet), &packet[tcp..]);
        (checksum::fold(checksum::sum(tcp_bytes, sum)) == 0xffff).then_some(segment)
    }

    fn read_options(&mut self, packet: &[u8]) {
        let mut at = self.tcp + natgate_wire::tcp::HEADER_LEN;
        while at < self.data && packet[at] != END {
            if packet[at] == NO_OPERATION {
                at += 1;
                continue;
            }
            let len = packet[..self.data].get(at + 1).map_or(0, |len| usize::from(*len));
            if len < 2 || at + len > self.data {
                return;
            }
            match packet[at] {
                SACK if len >= 10 => self.sack = Some((at, len)),
                TIMESTAMPS if len == 10 => self.stamps = Some(at + 2),
                MD5 | AUTHENTICATION => self.is_signed = true,
                _ => {}
            }
            at += len;
        }
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The sender's timestamp.
    pub(crate) fn stamp(&self, packet: &[u8]) -> Option<u32> {
        let at = self.stamps?;
        packet[at..at + 4].try_into().ok().map(u32::from_be_bytes)
    }

    /// Length of the options, bytes.
    pub(crate) fn options_len(&self) -> usize {
        self.data - self.tcp - natgate_wire::tcp::HEADER_LEN
    }

    /// Maps both ends of each SACK block (RFC 2018). If a block becomes empty, the option goes.
    pub(crate) fn map_sack(&self, packet: &mut [u8], map: impl Fn(u32, u32) -> (u32, u32)) {
        let Some((at, len)) = self.sack else { return };
        let mut is_whole = true;
        for block in packet[at + 2..at + len].chunks_exact_mut(8) {
            let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, b| sum << 8 | u32::from(*b));
            let (left, right) = map(number(&block[..4]), number(&block[4..]));
            block[..4].copy_from_slice(&left.to_be_bytes());
            block[4..].copy_from_slice(&right.to_be_bytes());
            is_whole &= is_before(left, right);
        }
        if !is_whole {
            packet[at..at + len].fill(NO_OPERATION);
        }
    }

    /// Writes numbers, flags and data, and both checksums. The data fits.
    pub(crate) fn write(&self, room: &mut Room<'_>, numbers: (u32, u32), flags: u8, data: &[u8]) {
        let len = self.data + data.len();
        room.set_len(len);
        let packet = room.bytes_mut();
        packet[self.data..].copy_from_slice(data);
        packet[self.tcp + 4..self.tcp + 8].copy_from_slice(&numbers.0.to_be_bytes());
        packet[self.tcp + 8..self.tcp + 12].copy_from_slice(&numbers.1.to_be_bytes());
        packet[self.tcp + 13] = flags;
        finish(packet, self.tcp);
    }

    /// Makes a copy of the packet's headers the acknowledgment of its data. `window` is the last
    /// window and `stamp` the last timestamp of the other host.
    pub(crate) fn answer(&self, room: &mut Room<'_>, numbers: (u32, u32), window: u16, stamp: u32) {
        room.set_len(self.data);
        let packet = room.bytes_mut();
        let (tcp, data) = (self.tcp, self.data);
        let (first, second) = packet[12..20].split_at_mut(4);
        first.swap_with_slice(second);
        let (first, second) = packet[tcp..tcp + 4].split_at_mut(2);
        first.swap_with_slice(second);
        let stamps = self.stamp(packet);
        packet[tcp + natgate_wire::tcp::HEADER_LEN..data].fill(NO_OPERATION);
        if let (Some(at), Some(echo)) = (self.stamps, stamps) {
            packet[at - 2..at].copy_from_slice(&[TIMESTAMPS, 10]);
            packet[at..at + 4].copy_from_slice(&stamp.to_be_bytes());
            packet[at + 4..at + 8].copy_from_slice(&echo.to_be_bytes());
        }
        packet[tcp + 14..tcp + 16].copy_from_slice(&window.to_be_bytes());
        packet[8] = 64;
        set_atomic(packet);
        self.write(room, numbers, flags::ACK, &[]);
    }
}

/// A reset with the receiver's next number (RFC 9293 section 3.10.7.4).
pub(crate) fn reset(from: SocketAddrV4, to: SocketAddrV4, sequence: u32) -> [u8; 40] {
    let mut packet = [0; 40];
    (packet[0], packet[8], packet[9]) = (0x45, 64, protocol::TCP);
    packet[12..16].copy_from_slice(&from.ip().octets());
    packet[16..20].copy_from_slice(&to.ip().octets());
    packet[20..22].copy_from_slice(&from.port().to_be_bytes());
    packet[22..24].copy_from_slice(&to.port().to_be_bytes());
    packet[24..28].copy_from_slice(&sequence.to_be_bytes());
    (packet[32], packet[33]) = (5 << 4, flags::RST);
    set_atomic(&mut packet);
    finish(&mut packet, 20);
    packet
}

/// Sets the don't-fragment flag and clears the identification (RFC 6864).
pub(crate) fn set_atomic(packet: &mut [u8]) {
    packet[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
}

fn pseudo_header(packet: &[u8]) -> u32 {
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    let number = |at: usize| packet[at..at + 4].iter().fold(0, |sum, b| sum << 8 | u32::from(*b));
    checksum::pseudo_header(number(12), number(16), packet[9], (packet.len() - header_len) as u16)
}

/// Writes the total length and both checksums of a packet with TCP or UDP.
pub(crate) fn finish(packet: &mut [u8], transport: usize) {
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum::checksum(&packet[..transport]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    let at = transport + if packet[9] == protocol::UDP { 6 } else { 16 };
    packet[at..at + 2].fill(0);
    let sum = !checksum::fold(checksum::sum(&packet[transport..], pseudo_header(packet)));
    // A UDP checksum of 0 means that there is none (RFC 768).
    let sum = if sum == 0 && packet[9] == protocol::UDP { 0xffff } else { sum };
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// True if the checksum of a UDP datagram is right, or there is none.
pub(crate) fn datagram_is_valid(packet: &[u8], transport: usize) -> bool {
    packet[transport + 6..transport + 8] == [0, 0]
        || checksum::fold(checksum::sum(&packet[transport..], pseudo_header(packet))) == 0xffff
}
