//! Captures in files and streams: pcapng and classic pcap in, pcapng out.
//!
//! [`Capture`] returns a packet as soon as the last byte of its block has arrived and never waits
//! for more, so a program at the other end of a pipe can read the answer before it sends the next
//! packet. The reader trusts nothing: a contradiction ends the reading with the offset of the
//! block, and no length in the file makes it allocate more than [`MAX_BLOCK`] bytes. [`Writer`]
//! writes little-endian pcapng with times in nanoseconds. This module knows nothing of sides,
//! clocks and translation.

mod classic;
mod ng;
mod writer;

pub use writer::{Direction, Writer};

use classic::Classic;
use natgate_wire::link::{self, Network, ethertype};
use ng::Ng;
use std::io::{self, BufReader, Cursor, Read};

/// Longest block or record that is read, bytes: sixteen mebibytes, the limit of other readers, and
/// room for the framing.
pub const MAX_BLOCK: usize = (16 << 20) + (64 << 10);

/// Most interfaces that a section may describe.
pub const MAX_INTERFACES: usize = 256;

const READ_BUFFER: usize = 256 << 10;

/// Type of the header in front of the network packet, by number in captures (LINKTYPE_ values).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkType(u16);

impl LinkType {
    /// Ethernet, perhaps with VLAN tags.
    pub const ETHERNET: Self = Self(1);
    /// No header: IPv4 or IPv6, by the version field.
    pub const RAW: Self = Self(101);
    /// Linux cooked.
    pub const COOKED: Self = Self(113);
    /// No header: IPv4.
    pub const IPV4: Self = Self(228);
    /// No header: IPv6.
    pub const IPV6: Self = Self(229);
    /// Linux cooked, version 2.
    pub const COOKED2: Self = Self(276);
    /// Other numbers of raw IP, in files of some systems.
    const RAW_ELSEWHERE: [u16; 2] = [12, 14];

    /// Link type of this number, if it can be read.
    pub fn from_number(number: u16) -> Option<Self> {
        let known =
            [Self::ETHERNET, Self::RAW, Self::COOKED, Self::IPV4, Self::IPV6, Self::COOKED2];
        (known.contains(&Self(number)) || Self::RAW_ELSEWHERE.contains(&number))
            .then_some(Self(number))
    }

    /// Number of the link type in files.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// True if the network packet stands alone, without a link header.
    pub fn is_bare(self) -> bool {
        !matches!(self, Self::ETHERNET | Self::COOKED | Self::COOKED2)
    }

    /// Finds the network packet in a frame of this type; `None` if the frame ends before it.
    pub fn locate(self, frame: &[u8]) -> Option<Network> {
        let bare = |ethertype| Some(Network { ethertype, offset: 0 });
        match self {
            Self::ETHERNET => link::ethernet(frame),
            Self::COOKED => link::cooked(frame),
            Self::COOKED2 => link::cooked2(frame),
            Self::IPV4 => bare(ethertype::IPV4),
            Self::IPV6 => bare(ethertype::IPV6),
            _ => match frame.first()? >> 4 {
                6 => bare(ethertype::IPV6),
                _ => bare(ethertype::IPV4),
            },
        }
    }
}

/// An interface as a capture describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, if it is given.
    pub name: Option<Vec<u8>>,
    /// Type of the first header of the frames.
    pub link: LinkType,
    /// Most bytes kept of a frame; 0: all.
    pub snaplen: u32,
}

/// A captured packet; [`Capture::frame`] has its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Index of the packet's interface in the section.
    pub interface: usize,
    /// Nanoseconds since 1970. A packet without a time has the latest time before it.
    pub time: u64,
    /// Length on the wire, bytes.
    pub original_len: u32,
}

/// Result of [`Capture::next_item`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A section begins: interfaces are numbered from 0 again.
    Section,
    /// The interface with this index is described.
    Interface(usize),
    /// A packet.
    Packet(Record),
}

/// Reason why reading ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The capture contradicts itself or ends within a block.
    #[error("damaged at byte offset {offset}: {what}")]
    Damaged {
        /// First byte of the block or record that cannot be read.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// The capture is whole, but of a kind that is not supported.
    #[error("at byte offset {offset}: {what}")]
    Unsupported {
        /// First byte of the unsupported block.
        offset: u64,
        /// Description of the unsupported kind, and what would be right.
        what: String,
    },
    /// The input could not be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// A reader of a capture of either format.
#[derive(Debug)]
pub struct Capture<R>(State<R>);

#[derive(Debug)]
enum State<R> {
    Unopened(Option<R>),
    Ng(Ng<R>),
    Classic(Classic<R>),
}

impl<R: Read> Capture<R> {
    /// Creates a reader of a capture from its first byte on; nothing is read yet.
    pub fn new(input: R) -> Self {
        Self(State::Unopened(Some(input)))
    }

    /// Reads up to and including the next item; `None` at the end. After an error there is nothing
    /// more to read.
    ///
    /// # Errors
    /// [`ReadError`]; all items before it have been returned.
    pub fn next_item(&mut self) -> Result<Option<Item>, ReadError> {
        if let State::Unopened(input) = &mut self.0 {
            let Some(input) = input.take() else { return Ok(None) };
            self.0 = open(input)?;
        }
        match &mut self.0 {
            State::Unopened(_) => Ok(None),
            State::Ng(reader) => reader.next_item(),
            State::Classic(reader) => reader.next_item(),
        }
    }

    /// Bytes of the last packet.
    pub fn frame(&mut self) -> &mut [u8] {
        match &mut self.0 {
            State::Unopened(_) => &mut [],
            State::Ng(reader) => reader.frame(),
            State::Classic(reader) => reader.frame(),
        }
    }

    /// Interfaces of this section so far.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.0 {
            State::Unopened(_) => &[],
            State::Ng(reader) => reader.interfaces(),
            State::Classic(reader) => reader.interfaces(),
        }
    }

    /// True if this is a classic pcap, which has one interface and no names.
    pub fn is_classic(&self) -> bool {
        matches!(self.0, State::Classic(_))
    }

    /// First byte of the block or record of the last item.
    pub fn offset(&self) -> u64 {
        match &self.0 {
            State::Unopened(_) => 0,
            State::Ng(reader) => reader.offset(),
            State::Classic(reader) => reader.offset(),
        }
    }
}

/// The input, with the first four bytes put back before the rest.
type Input<R> = io::Chain<Cursor<[u8; 4]>, BufReader<R>>;

/// Detects the format by the first four bytes.
fn open<R: Read>(input: R) -> Result<State<R>, ReadError> {
    let mut input = BufReader::with_capacity(READ_BUFFER, input);
    let mut magic = [0; 4];
    let what = match read_up_to(&mut input, &mut magic)? {
        0 => "the file is empty".into(),
        4 => {
            let input = Cursor::new(magic).chain(input);
            if u32::from_be_bytes(magic) == ng::SECTION_HEADER {
                return Ok(State::Ng(Ng::new(input)));
            }
            if let Some(encoding) = classic::encoding(magic) {
                return Ok(State::Classic(Classic::new(input, encoding)));
            }
            format!("a file that begins with {magic:02x?} is neither pcapng nor pcap")
        }
        len => format!("the file ends after {len} bytes"),
    };
    Err(ReadError::Damaged { offset: 0, what })
}

/// Reads until `buffer` is full or the input ends, and not a byte more; returns the number of
/// bytes.
fn read_up_to(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Link type of this number, or a message that names the supported ones.
fn supported(number: u16) -> Result<LinkType, String> {
    LinkType::from_number(number).ok_or_else(|| {
        format!(
            "link type {number} is not supported; Ethernet (1), raw IP (12, 14, 101), Linux \
             cooked (113, 276), IPv4 (228) and IPv6 (229) are"
        )
    })
}

/// Byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endian {
    Little,
    Big,
}

impl Endian {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = [bytes[at], bytes[at + 1]];
        match self {
            Self::Little => u16::from_le_bytes(field),
            Self::Big => u16::from_be_bytes(field),
        }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        match self {
            Self::Little => u32::from_le_bytes(field),
            Self::Big => u32::from_be_bytes(field),
        }
    }

    fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let (first, second) = (u64::from(self.u32(bytes, at)), u64::from(self.u32(bytes, at + 4)));
        match self {
            Self::Little => second << 32 | first,
            Self::Big => first << 32 | second,
        }
    }
}
