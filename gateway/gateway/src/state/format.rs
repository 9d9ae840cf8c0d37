//! Format of the file with the saved ports; numbers are big-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `NATPORTS` |
//! | 2 | version, 1 |
//! | for each address and protocol of which a port is in use: | |
//! | 4, 1 | address, protocol |
//! | 128 | which of the 1,024 words of its bitmap are not zero; the first is the highest bit |
//! | 8 each | those words; port 0 is the lowest bit of the first |
//! | 4 | CRC-32 (IEEE) of all that precedes it |
//!
//! So an address with few ports in use takes few bytes, and one with all ports in use 8,325 bytes.
//! A reader checks the whole file before it uses any record.

use crc32fast::Hasher;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Ipv4Addr;

/// Words of a bitmap of all ports.
pub(super) const WORDS: usize = 1024;

pub(super) const VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"NATPORTS";

/// Ports in use of one address and protocol, one bit each.
pub(super) type Bitmap = Box<[u64; WORDS]>;

/// Ports in use of one address and protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) address: Ipv4Addr,
    pub(super) protocol: u8,
    pub(super) ports: Bitmap,
}

/// Reason why bytes are no valid file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormatError {
    /// Natgate did not write the bytes.
    Foreign,
    /// Another version of this program wrote them.
    Version(u16),
    /// Bytes have been lost or changed.
    Damaged(&'static str),
}

/// Writes records one by one.
#[derive(Debug)]
pub(super) struct Writer<W> {
    output: W,
    hasher: Hasher,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(output: W) -> io::Result<Self> {
        let mut writer = Self { output, hasher: Hasher::new() };
        writer.put(MAGIC)?;
        writer.put(&VERSION.to_be_bytes())?;
        Ok(writer)
    }

    pub(super) fn record(&mut self, record: &Record) -> io::Result<()> {
        self.put(&record.address.octets())?;
        self.put(&[record.protocol])?;
        for words in record.ports.chunks(64) {
            let bit = |mask: u64, word: &u64| mask << 1 | u64::from(*word != 0);
            self.put(&words.iter().fold(0, bit).to_be_bytes())?;
        }
        for word in record.ports.iter().filter(|word| **word != 0) {
            self.put(&word.to_be_bytes())?;
        }
        Ok(())
    }

    /// Writes the checksum; without it the file counts as damaged.
    pub(super) fn finish(mut self) -> io::Result<W> {
        let sum = self.hasher.finalize();
        self.output.write_all(&sum.to_be_bytes())?;
        Ok(self.output)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.output.write_all(bytes)
    }
}

/// Reads the records of a file.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Record>, FormatError> {
    const ENDS_EARLY: FormatError = FormatError::Damaged("it ends too early");
    if !bytes.starts_with(MAGIC) {
        // A file that was cut to nothing, or within the magic, has no content to protect.
        return Err(if MAGIC.starts_with(bytes) { ENDS_EARLY } else { FormatError::Foreign });
    }
    let mut input = Input(&bytes[MAGIC.len()..]);
    match input.take().map(u16::from_be_bytes).ok_or(ENDS_EARLY)? {
        VERSION => {}
        version => return Err(FormatError::Version(version)),
    }
    if !is_summed(bytes) {
        return Err(FormatError::Damaged("its checksum is wrong"));
    }
    let end = input.0.len().checked_sub(size_of::<u32>()).ok_or(ENDS_EARLY)?;
    input.0 = &input.0[..end];
    let mut records = Vec::new();
    while !input.0.is_empty() {
        records.push(input.record().ok_or(ENDS_EARLY)?);
    }
    Ok(records)
}

/// True if the last bytes are the checksum of all bytes before.
pub(super) fn is_summed(bytes: &[u8]) -> bool {
    let sum = bytes.split_last_chunk();
    sum.is_some_and(|(body, sum)| crc32fast::hash(body) == u32::from_be_bytes(*sum))
}

/// True if a file's checksum is right and its name and version, as far as they are there, are those
/// of this format. The file is not read into memory.
pub(super) fn is_whole(mut file: &File) -> io::Result<bool> {
    const SUM: u64 = size_of::<u32>() as u64;
    let Some(body) = file.metadata()?.len().checked_sub(SUM) else { return Ok(false) };
    let mut start = [0; MAGIC.len() + size_of::<u16>()];
    if body < start.len() as u64 {
        return Ok(false);
    }
    file.read_exact(&mut start)?;
    let mut sum = Sum(Hasher::new());
    sum.0.update(&start);
    io::copy(&mut file.take(body - start.len() as u64), &mut sum)?;
    let mut expected = [0; SUM as usize];
    file.read_exact(&mut expected)?;
    let (magic, version) = start.split_at(MAGIC.len());
    let is_ours = magic == MAGIC && version == VERSION.to_be_bytes();
    Ok(is_ours && sum.0.finalize() == u32::from_be_bytes(expected))
}

/// A writer that keeps only the checksum of the bytes.
struct Sum(Hasher);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Bytes that are not read yet.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn record(&mut self) -> Option<Record> {
        let address = Ipv4Addr::from(self.take::<4>()?);
        let [protocol] = self.take()?;
        let mut present = [0; WORDS / 64];
        for mask in &mut present {
            *mask = u64::from_be_bytes(self.take()?);
        }
        let mut ports = Box::new([0; WORDS]);
        for (number, word) in ports.iter_mut().enumerate() {
            if present[number / 64] << (number % 64) >> 63 == 1 {
                *word = u64::from_be_bytes(self.take()?);
            }
        }
        Some(Record { address, protocol, ports })
    }
}
