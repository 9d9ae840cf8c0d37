//! The IPv6 header and its extension headers (RFC 8200).
//!
//! [`Ipv6`] is the view of the fixed header. [`Ipv6::walk`] follows the chain of extension headers
//! to the transport header: at most [`MOST_HEADERS`] headers, and never past the packet. A packet
//! of more than 65,535 bytes (RFC 2675) has payload length zero and reads as an empty packet.
//!
//! ```
//! use natgate_wire::{Ipv6, ipv6};
//!
//! let mut bytes = [0; 48];
//! let mut packet = Ipv6::init(&mut bytes);
//! packet.set_payload_len(8);
//! packet.set_next_header(17);
//! packet.set_source(0x2001_0db8_u128 << 96 | 1);
//! let packet = Ipv6::new_checked(&bytes[..]).unwrap();
//! let walk = packet.walk().unwrap();
//! assert_eq!((walk.protocol, walk.transport), (17, ipv6::HEADER_LEN));
//! ```

use crate::{get_u16, get_u32, put_u16, put_u32};

/// Length of the fixed header, bytes.
pub const HEADER_LEN: usize = 40;
/// Length of a fragment header, bytes.
pub const FRAGMENT_LEN: usize = 8;
/// Smallest MTU of an IPv6 link, bytes (RFC 8200 section 5).
pub const MIN_MTU: usize = 1280;
/// Most extension headers that [`Ipv6::walk`] follows.
pub const MOST_HEADERS: usize = 8;
/// Offset of the next header field in the fixed header, bytes.
pub const NEXT_HEADER: usize = 6;

/// Number of buckets of prefixes when several workers divide packets.
pub const BUCKETS: usize = 256;

/// Bucket of a prefix, without its lower bits, when several workers divide packets. The kernel's
/// filter for packet sockets works it out, too, so it takes few instructions of 32 bits.
pub const fn bucket(prefix: u128) -> usize {
    const SCATTER: u32 = 0x9e37_79b1;
    let (mut hash, mut word) = (0_u32, 4);
    while word > 0 {
        word -= 1;
        hash = hash.wrapping_add((prefix >> (32 * word)) as u32).wrapping_mul(SCATTER);
    }
    (hash >> 24) as usize
}

/// Next header values of extension headers, and of "no next header".
pub mod next {
    /// Hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing header.
    pub const ROUTING: u8 = 43;
    /// Fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: u8 = 51;
    /// No next header.
    pub const NONE: u8 = 59;
    /// Destination options.
    pub const DESTINATION: u8 = 60;
    /// Mobility header (RFC 6275).
    pub const MOBILITY: u8 = 135;
    /// Host Identity Protocol (RFC 7401).
    pub const HOST_IDENTITY: u8 = 139;
    /// Shim6 (RFC 5533).
    pub const SHIM6: u8 = 140;
}

/// True if a next header value names an extension header other than ESP, in the sense of RFC 7915
/// section 5.1.1.
pub fn is_extension(next_header: u8) -> bool {
    matches!(
        next_header,
        next::HOP_BY_HOP
            | next::ROUTING
            | next::FRAGMENT
            | next::AUTHENTICATION
            | next::DESTINATION
            | next::MOBILITY
            | next::HOST_IDENTITY
            | next::SHIM6
    )
}

/// Reason why bytes are not an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Error {
    /// The version field is not 6.
    Version,
    /// The bytes end before the header or before the payload length.
    Length,
}

/// A view of an IPv6 packet: fixed header, extension headers, payload.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<T>(T);

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Wraps bytes with a whole packet. More bytes may follow the packet.
    ///
    /// # Errors
    /// [`Ipv6Error`] when the version is not 6 or the packet is not complete.
    pub fn new_checked(bytes: T) -> Result<Self, Ipv6Error> {
        let packet = Self::new_header_checked(bytes)?;
        if packet.total_len() > packet.0.as_ref().len() {
            return Err(Ipv6Error::Length);
        }
        Ok(packet)
    }

    /// Wraps bytes with the start of a packet, as ICMP errors embed it. The fixed header must be
    /// complete, the payload need not be.
    ///
    /// # Errors
    /// [`Ipv6Error`] when the version is not 6 or the header is not complete.
    pub fn new_header_checked(bytes: T) -> Result<Self, Ipv6Error> {
        let data = bytes.as_ref();
        match data.first() {
            None => Err(Ipv6Error::Length),
            Some(first) if first >> 4 != 6 => Err(Ipv6Error::Version),
            Some(_) if data.len() < HEADER_LEN => Err(Ipv6Error::Length),
            Some(_) => Ok(Self(bytes)),
        }
    }

    /// Traffic class.
    pub fn traffic_class(&self) -> u8 {
        (get_u16(self.0.as_ref(), 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        get_u32(self.0.as_ref(), 0) & 0xf_ffff
    }

    /// Length of everything after the fixed header, bytes.
    pub fn payload_len(&self) -> u16 {
        get_u16(self.0.as_ref(), 4)
    }

    /// Length of the fixed header and everything after it, bytes.
    pub fn total_len(&self) -> usize {
        HEADER_LEN + usize::from(self.payload_len())
    }

    /// Type of the header after the fixed one.
    pub fn next_header(&self) -> u8 {
        self.0.as_ref()[NEXT_HEADER]
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[7]
    }

    /// Source address, host byte order.
    pub fn source(&self) -> u128 {
        get_u128(self.0.as_ref(), 8)
    }

    /// Destination address, host byte order.
    pub fn destination(&self) -> u128 {
        get_u128(self.0.as_ref(), 24)
    }

    /// The available payload with extension headers: up to the payload length, or to the end of the
    /// bytes.
    pub fn payload(&self) -> &[u8] {
        let data = self.0.as_ref();
        &data[HEADER_LEN..self.total_len().min(data.len())]
    }

    /// Follows the extension headers up to the transport header, or up to the payload of a fragment
    /// that is not the first.
    ///
    /// # Errors
    /// [`WalkError`] when the chain is longer than [`MOST_HEADERS`], or does not end within the
    /// available packet.
    pub fn walk(&self) -> Result<Walk, WalkError> {
        let data = self.0.as_ref();
        walk(&data[..self.total_len().min(data.len())])
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Sets version 6 and clears all other fields of the fixed header. The caller fills them in.
    ///
    /// # Panics
    /// When `bytes` is shorter than the header.
    pub fn init(mut bytes: T) -> Self {
        bytes.as_mut()[..HEADER_LEN].fill(0);
        bytes.as_mut()[0] = 0x60;
        Self(bytes)
    }

    /// Sets the traffic class.
    pub fn set_traffic_class(&mut self, value: u8) {
        let data = self.0.as_mut();
        let word = get_u16(data, 0) & 0xf00f | u16::from(value) << 4;
        put_u16(data, 0, word);
    }

    /// Sets the flow label to the lower 20 bits of `value`.
    pub fn set_flow_label(&mut self, value: u32) {
        let data = self.0.as_mut();
        let word = get_u32(data, 0) & 0xfff0_0000 | value & 0xf_ffff;
        put_u32(data, 0, word);
    }

    /// Sets the payload length.
    pub fn set_payload_len(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 4, value);
    }

    /// Sets the type of the header after the fixed one.
    pub fn set_next_header(&mut self, value: u8) {
        self.0.as_mut()[NEXT_HEADER] = value;
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, value: u8) {
        self.0.as_mut()[7] = value;
    }

    /// Sets the source address; checksums over it are left to the caller.
    pub fn set_source(&mut self, value: u128) {
        self.0.as_mut()[8..24].copy_from_slice(&value.to_be_bytes());
    }

    /// Sets the destination address; checksums over it are left to the caller.
    pub fn set_destination(&mut self, value: u128) {
        self.0.as_mut()[24..40].copy_from_slice(&value.to_be_bytes());
    }

    /// The payload with extension headers, mutable.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let to = self.total_len();
        let data = self.0.as_mut();
        let to = to.min(data.len());
        &mut data[HEADER_LEN..to]
    }
}

/// The contents of a fragment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Type of the header after the fragment header.
    pub next_header: u8,
    /// Offset of the fragment's payload in the fragmentable part, bytes; a multiple of 8.
    pub offset: usize,
    /// The more-fragments flag.
    pub more: bool,
    /// Identification.
    pub identification: u32,
}

impl Fragment {
    /// Reads a fragment header. `None`: there are fewer than eight bytes.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        (bytes.len() >= FRAGMENT_LEN).then(|| Self {
            next_header: bytes[0],
            offset: usize::from(get_u16(bytes, 2) & 0xfff8),
            more: bytes[3] & 1 != 0,
            identification: get_u32(bytes, 4),
        })
    }

    /// Writes the fragment header at the front of `bytes`.
    ///
    /// # Panics
    /// When there are fewer than eight bytes.
    pub fn write(self, bytes: &mut [u8]) {
        bytes[0] = self.next_header;
        bytes[1] = 0;
        put_u16(bytes, 2, self.offset as u16 & 0xfff8 | u16::from(self.more));
        put_u32(bytes, 4, self.identification);
    }

    /// True if the fragment is a whole packet (RFC 6946).
    pub fn is_atomic(self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// Result of [`Ipv6::walk`]. Offsets count from the first byte of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Type of the transport header, or of the first header that is no known extension header.
    pub protocol: u8,
    /// Offset of the transport header, or of the payload of a later fragment.
    pub transport: usize,
    /// Offset of the next header field that names `protocol`.
    pub named_at: usize,
    /// The first fragment header and its offset.
    pub fragment: Option<(usize, Fragment)>,
    /// Offset of the first segments left field that is not zero.
    pub segments_left: Option<usize>,
}

impl Walk {
    /// True if an extension header other than ESP follows the fragment header.
    pub fn extension_after_fragment(&self) -> bool {
        self.fragment.is_some_and(|(_, fragment)| is_extension(fragment.next_header))
    }
}

/// Reason why a walk over the extension headers did not reach the transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkError {
    /// There are more than [`MOST_HEADERS`] extension headers.
    TooMany,
    /// The available bytes end within an extension header, or before it.
    Truncated,
}

fn walk(packet: &[u8]) -> Result<Walk, WalkError> {
    let mut at = Walk {
        protocol: packet[NEXT_HEADER],
        transport: HEADER_LEN,
        named_at: NEXT_HEADER,
        fragment: None,
        segments_left: None,
    };
    for _ in 0..=MOST_HEADERS {
        let header = &packet[at.transport..];
        let len = match at.protocol {
            next::HOP_BY_HOP | next::ROUTING | next::DESTINATION => {
                usize::from(*header.get(1).ok_or(WalkError::Truncated)?) * 8 + 8
            }
            next::FRAGMENT => FRAGMENT_LEN,
            _ => return Ok(at),
        };
        let header = header.get(..len).ok_or(WalkError::Truncated)?;
        match at.protocol {
            next::ROUTING if header[3] != 0 => {
                at.segments_left = at.segments_left.or(Some(at.transport + 3));
            }
            next::FRAGMENT => {
                let fragment = Fragment::read(header).ok_or(WalkError::Truncated)?;
                at.fragment = at.fragment.or(Some((at.transport, fragment)));
                if fragment.offset != 0 {
                    // Later fragments carry payload, whatever the next header field names.
                    at.named_at = at.transport;
                    at.protocol = fragment.next_header;
                    at.transport += len;
                    return Ok(at);
                }
            }
            _ => {}
        }
        at.named_at = at.transport;
        at.protocol = header[0];
        at.transport += len;
    }
    Err(WalkError::TooMany)
}

/// Reads a big-endian 128-bit field.
fn get_u128(bytes: &[u8], at: usize) -> u128 {
    let mut field = [0; 16];
    field.copy_from_slice(&bytes[at..at + 16]);
    u128::from_be_bytes(field)
}
