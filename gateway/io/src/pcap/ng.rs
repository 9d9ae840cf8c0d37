//! pcapng: sections of blocks, each with its length at both ends.
//!
//! Sections, interfaces and packets of all three kinds (enhanced, simple, and the obsolete one) are
//! read; every other block is skipped by its length. A block is checked as a whole before any part
//! of it is returned. Options of packets are ignored.

use super::{
    Endian, Input, Interface, Item, MAX_BLOCK, MAX_INTERFACES, ReadError, Record, read_up_to,
    supported,
};
use std::io::Read;
use std::ops::Range;

/// Type of a section header, the same in both byte orders.
pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// Type, length, length again: the shortest block, and the framing of every block.
const FRAMING: usize = 12;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

const OPTION_NAME: u16 = 2;
const OPTION_RESOLUTION: u16 = 9;
const OPTION_OFFSET: u16 = 14;

#[derive(Debug)]
pub(super) struct Ng<R> {
    input: Input<R>,
    /// Byte order of this section.
    endian: Endian,
    /// Offsets of the block read last, and of the next one.
    offset: u64,
    next_offset: u64,
    block: Vec<u8>,
    /// Range of the packet in the block.
    packet: Range<usize>,
    interfaces: Vec<Interface>,
    clocks: Vec<Clock>,
    /// The latest time seen.
    latest: u64,
}

impl<R: Read> Ng<R> {
    pub(super) fn new(input: Input<R>) -> Self {
        Self {
            input,
            endian: Endian::Little,
            offset: 0,
            next_offset: 0,
            block: Vec::new(),
            packet: 0..0,
            interfaces: Vec::new(),
            clocks: Vec::new(),
            latest: 0,
        }
    }

    pub(super) fn next_item(&mut self) -> Result<Option<Item>, ReadError> {
        while self.read_block()? {
            let item = match self.endian.u32(&self.block, 0) {
                SECTION_HEADER => self.section()?,
                INTERFACE => self.interface()?,
                ENHANCED_PACKET | OBSOLETE_PACKET => Item::Packet(self.packet()?),
                SIMPLE_PACKET => Item::Packet(self.simple_packet()?),
                _ => continue,
            };
            return Ok(Some(item));
        }
        Ok(None)
    }

    pub(super) fn frame(&mut self) -> &mut [u8] {
        &mut self.block[self.packet.clone()]
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Reads one block, framing checked; `false` at the end of the file.
    fn read_block(&mut self) -> Result<bool, ReadError> {
        self.offset = self.next_offset;
        self.packet = 0..0;
        self.block.resize(FRAMING, 0);
        match read_up_to(&mut self.input, &mut self.block)? {
            0 => return Ok(false),
            FRAMING => {}
            len => return self.damaged(format!("the file ends after {len} bytes of a block")),
        }
        // A section may have another byte order than the one before; only its header shows that.
        if self.endian.u32(&self.block, 0) == SECTION_HEADER {
            self.endian = self.byte_order()?;
        }
        let len = self.endian.u32(&self.block, 4) as usize;
        if !(FRAMING..=MAX_BLOCK).contains(&len) || !len.is_multiple_of(4) {
            return self.damaged(format!(
                "a block's length is {len}, not a multiple of 4 from {FRAMING} to {MAX_BLOCK}"
            ));
        }
        self.block.resize(len, 0);
        let there = FRAMING + read_up_to(&mut self.input, &mut self.block[FRAMING..])?;
        if there < len {
            return self.damaged(format!("the file ends after {there} of {len} bytes of a block"));
        }
        let trailer = self.endian.u32(&self.block, len - 4) as usize;
        if trailer != len {
            return self
                .damaged(format!("a block's length is {len} before and {trailer} after it"));
        }
        self.next_offset += len as u64;
        Ok(true)
    }

    fn byte_order(&self) -> Result<Endian, ReadError> {
        [Endian::Little, Endian::Big]
            .into_iter()
            .find(|endian| endian.u32(&self.block, 8) == BYTE_ORDER)
            .map_or_else(|| self.damaged("a section's byte order is not to be told".into()), Ok)
    }

    fn section(&mut self) -> Result<Item, ReadError> {
        self.expect_len(28, "a section header")?;
        let version = self.endian.u16(&self.block, 12);
        if version != 1 {
            return self.damaged(format!("the pcapng version is {version}, not 1"));
        }
        self.interfaces.clear();
        self.clocks.clear();
        Ok(Item::Section)
    }

    fn interface(&mut self) -> Result<Item, ReadError> {
        self.expect_len(20, "an interface description")?;
        let index = self.interfaces.len();
        let link = supported(self.endian.u16(&self.block, 8));
        let link = match link {
            Ok(_) if index >= MAX_INTERFACES => {
                Err(format!("the section has more than {MAX_INTERFACES} interfaces"))
            }
            link => link,
        };
        let link = link.map_err(|what| ReadError::Unsupported { offset: self.offset, what })?;
        let (name, clock) = match options(self.endian, &self.block[16..self.block.len() - 4]) {
            Ok(options) => options,
            Err(what) => return self.damaged(what),
        };
        self.interfaces.push(Interface { name, link, snaplen: self.endian.u32(&self.block, 12) });
        self.clocks.push(clock);
        Ok(Item::Interface(index))
    }

    /// Reads an enhanced packet, or an obsolete one: they differ in the field of the interface.
    fn packet(&mut self) -> Result<Record, ReadError> {
        self.expect_len(32, "a packet block")?;
        let field = |index: usize| self.endian.u32(&self.block, 8 + 4 * index);
        let interface = match self.endian.u32(&self.block, 0) {
            OBSOLETE_PACKET => usize::from(self.endian.u16(&self.block, 8)),
            _ => field(0) as usize,
        };
        let Some(clock) = self.clocks.get(interface) else {
            return self.undescribed(interface);
        };
        let time = clock.nanoseconds(u64::from(field(1)) << 32 | u64::from(field(2)));
        let (len, original_len) = (field(3) as usize, field(4));
        self.set_packet(28, len)?;
        self.latest = self.latest.max(time);
        Ok(Record { interface, time, original_len })
    }

    /// Reads a simple packet. It belongs to the first interface and has no time of its own. Its
    /// captured length follows from the interface's limit.
    fn simple_packet(&mut self) -> Result<Record, ReadError> {
        self.expect_len(16, "a simple packet block")?;
        let Some(interface) = self.interfaces.first() else {
            return self.undescribed(0);
        };
        let original_len = self.endian.u32(&self.block, 8);
        let len = match interface.snaplen {
            0 => original_len,
            snaplen => original_len.min(snaplen),
        };
        self.set_packet(12, len as usize)?;
        Ok(Record { interface: 0, time: self.latest, original_len })
    }

    fn set_packet(&mut self, start: usize, len: usize) -> Result<(), ReadError> {
        let room = self.block.len() - 4 - start;
        if len > room {
            return self.damaged(format!("a packet of {len} bytes is in a block with {room}"));
        }
        self.packet = start..start + len;
        Ok(())
    }

    fn expect_len(&self, least: usize, name: &str) -> Result<(), ReadError> {
        match self.block.len() {
            len if len < least => {
                self.damaged(format!("{name} of {len} bytes is shorter than {least}"))
            }
            _ => Ok(()),
        }
    }

    fn undescribed<T>(&self, interface: usize) -> Result<T, ReadError> {
        let count = self.interfaces.len();
        self.damaged(format!("a packet is of interface {interface}, but {count} are described"))
    }

    fn damaged<T>(&self, what: String) -> Result<T, ReadError> {
        Err(ReadError::Damaged { offset: self.offset, what })
    }
}

/// Name and clock of an interface, from the options of its description.
fn options(endian: Endian, mut bytes: &[u8]) -> Result<(Option<Vec<u8>>, Clock), String> {
    let (mut name, mut clock) = (None, Clock::default());
    while bytes.len() >= 4 {
        let (code, len) = (endian.u16(bytes, 0), usize::from(endian.u16(bytes, 2)));
        if code == 0 {
            break;
        }
        let Some(value) = bytes.get(4..4 + len) else {
            return Err(format!("option {code} of an interface runs past its block"));
        };
        match (code, len) {
            (OPTION_NAME, _) => name = Some(value.to_vec()),
            (OPTION_RESOLUTION, 1) => clock.resolution = value[0],
            (OPTION_OFFSET, 8) => clock.offset = endian.u64(value, 0) as i64,
            (OPTION_RESOLUTION | OPTION_OFFSET, _) => {
                return Err(format!("option {code} of an interface cannot be {len} bytes long"));
            }
            _ => {}
        }
        bytes = bytes.get(4 + len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok((name, clock))
}

/// Units and offset of an interface's times.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// if_tsresol: a negative power of ten or, with the highest bit set, of two.
    resolution: u8,
    /// Seconds to add.
    offset: i64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { resolution: 6, offset: 0 }
    }
}

impl Clock {
    /// Nanoseconds since 1970, rounded down; before 1970 and after 2554 the nearest possible time.
    fn nanoseconds(self, units: u64) -> u64 {
        const BILLION: i128 = 1_000_000_000;
        let power = u32::from(self.resolution & 0x7f);
        let units = i128::from(units);
        let nanoseconds = if self.resolution & 0x80 != 0 {
            (units * BILLION) >> power
        } else if power <= 9 {
            units * 10_i128.pow(9 - power)
        } else {
            // A divisor of more than 38 digits does not fit; the quotient is zero.
            10_i128.checked_pow(power - 9).map_or(0, |divisor| units / divisor)
        };
        let time = nanoseconds + i128::from(self.offset) * BILLION;
        time.clamp(0, i128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_of_every_resolution() {
        let at = |resolution, offset, units| Clock { resolution, offset }.nanoseconds(units);
        assert_eq!(at(6, 0, 1_500_000), 1_500_000_000);
        assert_eq!(at(0, 0, 7), 7_000_000_000);
        assert_eq!(at(9, 0, 123), 123);
        assert_eq!(at(12, 0, 1999), 1);
        assert_eq!(at(127, 0, u64::MAX), 0);
        assert_eq!(at(0x80 | 10, 0, 1536), 1_500_000_000);
        assert_eq!(at(0x80, 0, 3), 3_000_000_000);
        assert_eq!(at(0xff, 0, u64::MAX), 0);
        assert_eq!(at(6, 2, 1), 2_000_001_000);
        assert_eq!(at(6, -2, 1), 0);
        assert_eq!(at(0, i64::MAX, u64::MAX), u64::MAX);
        assert_eq!(at(0, i64::MIN, u64::MAX), u64::MAX);
    }
}
