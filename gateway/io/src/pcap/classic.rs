//! Classic pcap: a file header, then records of 16 bytes and a frame.
//!
//! The first item is the only interface. Both byte orders, microseconds and nanoseconds are read. A
//! header may announce a frame check sequence: it is left at the frame's end, where the translator
//! cuts off the bytes behind the IP packet.

use super::{Endian, Input, Interface, Item, MAX_BLOCK, ReadError, Record, read_up_to, supported};
use std::io::Read;

const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Encoding according to the magic number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoding {
    endian: Endian,
    /// Nanoseconds of one unit of a record's fraction of a second.
    unit: u64,
}

/// Encoding according to the first four bytes, if they are a classic pcap's.
pub(super) fn encoding(magic: [u8; 4]) -> Option<Encoding> {
    [Endian::Little, Endian::Big].into_iter().find_map(|endian| {
        let unit = match endian.u32(&magic, 0) {
            MICROSECONDS => 1000,
            NANOSECONDS => 1,
            _ => return None,
        };
        Some(Encoding { endian, unit })
    })
}

#[derive(Debug)]
pub(super) struct Classic<R> {
    input: Input<R>,
    encoding: Encoding,
    /// Offsets of the record, or the file header, read last, and of the next one.
    offset: u64,
    next_offset: u64,
    interfaces: Vec<Interface>,
    frame: Vec<u8>,
}

impl<R: Read> Classic<R> {
    pub(super) fn new(input: Input<R>, encoding: Encoding) -> Self {
        let (interfaces, frame) = (Vec::new(), Vec::new());
        Self { input, encoding, offset: 0, next_offset: 0, interfaces, frame }
    }

    pub(super) fn next_item(&mut self) -> Result<Option<Item>, ReadError> {
        self.offset = self.next_offset;
        if self.interfaces.is_empty() {
            let interface = self.file_header()?;
            self.interfaces.push(interface);
            return Ok(Some(Item::Interface(0)));
        }
        Ok(self.record()?.map(Item::Packet))
    }

    pub(super) fn frame(&mut self) -> &mut [u8] {
        &mut self.frame
    }

    pub(super) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    fn file_header(&mut self) -> Result<Interface, ReadError> {
        let mut header = [0; FILE_HEADER];
        let len = read_up_to(&mut self.input, &mut header)?;
        if len < FILE_HEADER {
            return self.damaged(format!("the file ends within its header, after {len} bytes"));
        }
        let endian = self.encoding.endian;
        let version = endian.u16(&header, 4);
        if version != 2 {
            return self.damaged(format!("the pcap version is {version}, not 2"));
        }
        // The upper bits of the link type are the length of the frame check sequence.
        let link = supported(endian.u16(&header, if endian == Endian::Big { 22 } else { 20 }))
            .map_err(|what| ReadError::Unsupported { offset: self.offset, what })?;
        self.next_offset = FILE_HEADER as u64;
        Ok(Interface { name: None, link, snaplen: endian.u32(&header, 16) })
    }

    fn record(&mut self) -> Result<Option<Record>, ReadError> {
        let mut header = [0; RECORD_HEADER];
        match read_up_to(&mut self.input, &mut header)? {
            0 => return Ok(None),
            RECORD_HEADER => {}
            len => return self.damaged(format!("the file ends after {len} bytes of a record")),
        }
        let Encoding { endian, unit } = self.encoding;
        let field = |index: usize| endian.u32(&header, 4 * index);
        let (seconds, fraction, len) = (field(0), field(1), field(2) as usize);
        if len > MAX_BLOCK {
            return self.damaged(format!("a frame of {len} bytes is longer than {MAX_BLOCK}"));
        }
        self.frame.resize(len, 0);
        let there = read_up_to(&mut self.input, &mut self.frame)?;
        if there < len {
            return self.damaged(format!("the file ends after {there} of {len} bytes of a frame"));
        }
        self.next_offset += (RECORD_HEADER + len) as u64;
        let time = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit;
        Ok(Some(Record { interface: 0, time, original_len: field(3) }))
    }

    fn damaged<T>(&self, what: String) -> Result<T, ReadError> {
        Err(ReadError::Damaged { offset: self.offset, what })
    }
}
