//! Packets of experiments: UDP and TCP in the smallest Ethernet frame. It has 64 bytes with its
//! checksum, which leaves 46 for IPv4.

use natgate_wire::{Ipv4, checksum, protocol, tcp, udp};

/// Length of the IPv4 packet in a 64-byte frame, bytes.
pub const LEN: usize = 46;

/// Offset of the number in a numbered datagram.
const NUMBER: usize = 28;

/// An endpoint: address and port.
pub type End = (u32, u16);

/// An aligned buffer for one packet.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Frame(pub [u8; 64]);

/// Writes a UDP datagram.
pub fn udp(frame: &mut Frame, source: End, destination: End) {
    header(frame, protocol::UDP, source, destination);
    let bytes = &mut frame.0[..LEN];
    bytes[24..26].copy_from_slice(&((LEN - 20) as u16).to_be_bytes());
    finish(bytes, protocol::UDP, 20 + udp::CHECKSUM);
}

/// Writes a UDP datagram with a number.
pub fn numbered(frame: &mut Frame, source: End, destination: End, number: u64) {
    header(frame, protocol::UDP, source, destination);
    let bytes = &mut frame.0[..LEN];
    bytes[24..26].copy_from_slice(&((LEN - 20) as u16).to_be_bytes());
    bytes[NUMBER..NUMBER + 8].copy_from_slice(&number.to_be_bytes());
    finish(bytes, protocol::UDP, 20 + udp::CHECKSUM);
}

/// Number in a datagram.
pub fn number(frame: &Frame) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&frame.0[NUMBER..NUMBER + 8]);
    u64::from_be_bytes(number)
}

/// Writes a TCP segment with these flags.
pub fn tcp(frame: &mut Frame, source: End, destination: End, flags: u8) {
    header(frame, protocol::TCP, source, destination);
    let bytes = &mut frame.0[..LEN];
    bytes[32] = 5 << 4;
    bytes[33] = flags;
    bytes[34..36].copy_from_slice(&8192_u16.to_be_bytes());
    finish(bytes, protocol::TCP, 20 + tcp::CHECKSUM);
}

fn header(frame: &mut Frame, protocol: u8, source: End, destination: End) {
    let bytes = &mut frame.0[..LEN];
    bytes.fill(0);
    let mut packet = Ipv4::init(&mut bytes[..], 20);
    packet.set_total_len(LEN as u16);
    packet.set_ttl(64);
    packet.set_protocol(protocol);
    packet.set_source(source.0);
    packet.set_destination(destination.0);
    packet.fill_checksum();
    bytes[20..22].copy_from_slice(&source.1.to_be_bytes());
    bytes[22..24].copy_from_slice(&destination.1.to_be_bytes());
}

fn finish(bytes: &mut [u8], protocol: u8, at: usize) {
    let word =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let pseudo = checksum::pseudo_header(word(12), word(16), protocol, (LEN - 20) as u16);
    let sum = match !checksum::fold(checksum::sum(&bytes[20..], pseudo)) {
        // A datagram with the checksum 0 has none, and a translator to IPv6 may drop it.
        0 => u16::MAX,
        sum => sum,
    };
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Source of a packet.
pub fn source(frame: &Frame) -> End {
    end(frame, 12, 20)
}

/// Destination of a packet.
pub fn destination(frame: &Frame) -> End {
    end(frame, 16, 22)
}

fn end(Frame(bytes): &Frame, address: usize, port: usize) -> End {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    (u32::from(word(address)) << 16 | u32::from(word(address + 2)), word(port))
}
