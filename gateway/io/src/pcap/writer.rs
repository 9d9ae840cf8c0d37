//! Writing of pcapng: one section, its interfaces, enhanced packets.
//!
//! The file is little-endian on every machine, has times in nanoseconds, and no options but name
//! and resolution. The same calls give the same bytes.

use super::{Interface, ng::SECTION_HEADER};
use std::io::{self, Write};

/// Longest name that is written, bytes.
const MAX_NAME: usize = 1024;

/// Direction of a packet, as seen from the interface's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The packet was received.
    Inbound = 1,
    /// The packet was sent.
    Outbound = 2,
}

/// A writer of a pcapng file.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
}

impl<W: Write> Writer<W> {
    /// Begins a capture with these interfaces; packets name an interface by its index.
    ///
    /// # Errors
    /// The error of the output.
    pub fn new(mut output: W, interfaces: &[Interface]) -> io::Result<Self> {
        let length_unknown = [0xff; 8];
        let header = [&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &length_unknown].concat();
        write_block(&mut output, SECTION_HEADER, &[&header])?;
        for interface in interfaces {
            write_block(&mut output, 1, &[&description(interface)])?;
        }
        Ok(Self { output })
    }

    /// Writes a packet in two parts, which are contiguous in the file: the link header, and the
    /// network packet. `time` is nanoseconds since 1970.
    ///
    /// # Errors
    /// The error of the output.
    pub fn packet(
        &mut self,
        interface: u32,
        time: u64,
        link_header: &[u8],
        packet: &[u8],
    ) -> io::Result<()> {
        let header = packet_header(interface, time, link_header.len() + packet.len());
        write_block(&mut self.output, ENHANCED_PACKET, &[&header, link_header, packet])
    }

    /// Writes a packet with its direction, by the option epb_flags. `time` is nanoseconds since
    /// 1970.
    ///
    /// # Errors
    /// The error of the output.
    pub fn packet_going(
        &mut self,
        interface: u32,
        time: u64,
        direction: Direction,
        packet: &[u8],
    ) -> io::Result<()> {
        let header = packet_header(interface, time, packet.len());
        let padding = &[0; 3][..packet.len().next_multiple_of(4) - packet.len()];
        let options = [2, 0, 4, 0, direction as u8, 0, 0, 0, 0, 0, 0, 0];
        write_block(&mut self.output, ENHANCED_PACKET, &[&header, packet, padding, &options])
    }

    /// Writes a packet with its direction and a comment. `len` is the packet's length on the wire;
    /// `packet` may be only the beginning. `interface` comes with the time, nanoseconds since 1970.
    ///
    /// # Errors
    /// The error of the output.
    pub fn packet_told(
        &mut self,
        (interface, time): (u32, u64),
        direction: Direction,
        comment: &str,
        packet: &[u8],
        len: usize,
    ) -> io::Result<()> {
        let mut header = packet_header(interface, time, packet.len());
        header[16..].copy_from_slice(&(len as u32).to_le_bytes());
        let padding = &[0; 3][..packet.len().next_multiple_of(4) - packet.len()];
        let mut options = Vec::new();
        put_option(&mut options, COMMENT, &comment.as_bytes()[..comment.len().min(MAX_NAME)]);
        put_option(&mut options, 2, &(direction as u32).to_le_bytes());
        put_option(&mut options, 0, &[]);
        write_block(&mut self.output, ENHANCED_PACKET, &[&header, packet, padding, &options])
    }

    /// Writes the number of packets of an interface until a time, nanoseconds since 1970, and the
    /// number of packets that are missing.
    ///
    /// # Errors
    /// The error of the output.
    pub fn statistics(
        &mut self,
        interface: u32,
        time: u64,
        packets: u64,
        missing: u64,
    ) -> io::Result<()> {
        let mut body = Vec::new();
        for word in [interface, (time >> 32) as u32, time as u32] {
            body.extend(word.to_le_bytes());
        }
        if missing > 0 {
            let comment =
                format!("{missing} packets are missing: they came faster than they were read");
            put_option(&mut body, COMMENT, comment.as_bytes());
        }
        put_option(&mut body, 4, &packets.to_le_bytes());
        put_option(&mut body, 5, &missing.to_le_bytes());
        put_option(&mut body, 0, &[]);
        write_block(&mut self.output, INTERFACE_STATISTICS, &[&body])
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// The error of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Returns the output.
    pub fn into_inner(self) -> W {
        self.output
    }
}

const ENHANCED_PACKET: u32 = 6;
const INTERFACE_STATISTICS: u32 = 5;

/// Code of the comment option.
const COMMENT: u16 = 1;

/// Header of a packet of this length in its block.
fn packet_header(interface: u32, time: u64, len: usize) -> [u8; 20] {
    let mut header = [0; 20];
    let fields = [interface, (time >> 32) as u32, time as u32, len as u32, len as u32];
    for (bytes, field) in header.chunks_exact_mut(4).zip(fields) {
        bytes.copy_from_slice(&field.to_le_bytes());
    }
    header
}

fn description(interface: &Interface) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(interface.link.number().to_le_bytes());
    body.extend([0; 2]);
    body.extend(interface.snaplen.to_le_bytes());
    if let Some(name) = &interface.name {
        put_option(&mut body, 2, &name[..name.len().min(MAX_NAME)]);
    }
    put_option(&mut body, 9, &[9]);
    put_option(&mut body, 0, &[]);
    body
}

fn put_option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Writes a block whose body is these parts, one after the other, padded to a multiple of four.
fn write_block(output: &mut impl Write, kind: u32, parts: &[&[u8]]) -> io::Result<()> {
    let body: usize = parts.iter().map(|part| part.len()).sum();
    let padded = body.next_multiple_of(4);
    let len = (12 + padded as u32).to_le_bytes();
    output.write_all(&kind.to_le_bytes())?;
    output.write_all(&len)?;
    for part in parts {
        output.write_all(part)?;
    }
    output.write_all(&[0; 3][..padded - body])?;
    output.write_all(&len)
}
