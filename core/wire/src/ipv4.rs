//! The IPv4 header (RFC 791).

use crate::checksum::{self, Delta};
use crate::{get_u16, get_u32, put_u16, put_u32};

/// Length of a header without options, bytes.
pub const HEADER_LEN: usize = 20;

/// Reason why bytes are not an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv4Error {
    /// The version field is not 4.
    Version,
    /// The bytes end before the header or before the total length, or length fields contradict each
    /// other.
    Length,
}

/// A view of an IPv4 packet: header, options, payload.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<T>(T);

impl<T: AsRef<[u8]>> Ipv4<T> {
    /// Wraps bytes with a whole packet. More bytes may follow the packet.
    ///
    /// # Errors
    /// [`Ipv4Error`] when the version is not 4 or the lengths do not fit together.
    pub fn new_checked(bytes: T) -> Result<Self, Ipv4Error> {
        let packet = Self::new_header_checked(bytes)?;
        if usize::from(packet.total_len()) > packet.0.as_ref().len() {
            return Err(Ipv4Error::Length);
        }
        Ok(packet)
    }

    /// Wraps bytes with the start of a packet, as ICMP errors embed it. The header must be
    /// complete, the payload need not be.
    ///
    /// # Errors
    /// [`Ipv4Error`] when the version is not 4 or the lengths do not fit together.
    pub fn new_header_checked(bytes: T) -> Result<Self, Ipv4Error> {
        let data = bytes.as_ref();
        match data.first() {
            None => return Err(Ipv4Error::Length),
            Some(first) if first >> 4 != 4 => return Err(Ipv4Error::Version),
            Some(_) => {}
        }
        if data.len() < HEADER_LEN {
            return Err(Ipv4Error::Length);
        }
        let packet = Self(bytes);
        let header_len = packet.header_len();
        if header_len < HEADER_LEN
            || header_len > packet.0.as_ref().len()
            || usize::from(packet.total_len()) < header_len
        {
            return Err(Ipv4Error::Length);
        }
        Ok(packet)
    }

    /// Header length with options, bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[0] & 0x0f) * 4
    }

    /// Type of service.
    pub fn service(&self) -> u8 {
        self.0.as_ref()[1]
    }

    /// Length of header and payload, bytes.
    pub fn total_len(&self) -> u16 {
        get_u16(self.0.as_ref(), 2)
    }

    /// Identification.
    pub fn identification(&self) -> u16 {
        get_u16(self.0.as_ref(), 4)
    }

    /// The don't-fragment flag.
    pub fn dont_fragment(&self) -> bool {
        self.0.as_ref()[6] & 0x40 != 0
    }

    /// The more-fragments flag.
    pub fn more_fragments(&self) -> bool {
        self.0.as_ref()[6] & 0x20 != 0
    }

    /// Offset of this fragment's payload in the datagram, bytes.
    pub fn fragment_offset(&self) -> usize {
        usize::from(get_u16(self.0.as_ref(), 6) & 0x1fff) * 8
    }

    /// True if the packet is a part of a datagram.
    pub fn is_fragment(&self) -> bool {
        get_u16(self.0.as_ref(), 6) & 0x3fff != 0
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.0.as_ref()[8]
    }

    /// Protocol number of the payload.
    pub fn protocol(&self) -> u8 {
        self.0.as_ref()[9]
    }

    /// The header checksum field.
    pub fn header_checksum(&self) -> u16 {
        get_u16(self.0.as_ref(), 10)
    }

    /// Source address, host byte order.
    pub fn source(&self) -> u32 {
        get_u32(self.0.as_ref(), 12)
    }

    /// Destination address, host byte order.
    pub fn destination(&self) -> u32 {
        get_u32(self.0.as_ref(), 16)
    }

    /// The options, between the fixed header and the payload.
    pub fn options(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..self.header_len()]
    }

    /// True if the header checksum is right.
    pub fn checksum_valid(&self) -> bool {
        checksum::checksum(&self.0.as_ref()[..self.header_len()]) == 0
    }

    /// The available payload: up to the total length, or to the end of the bytes.
    pub fn payload(&self) -> &[u8] {
        let data = self.0.as_ref();
        &data[self.header_len()..usize::from(self.total_len()).min(data.len())]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4<T> {
    /// Sets version 4 and the header length, bytes (a multiple of 4). The caller fills in the other
    /// fields.
    ///
    /// # Panics
    /// When `bytes` is shorter than `header_len`.
    pub fn init(mut bytes: T, header_len: usize) -> Self {
        assert!(bytes.as_ref().len() >= header_len && (HEADER_LEN..=60).contains(&header_len));
        bytes.as_mut()[..header_len].fill(0);
        bytes.as_mut()[0] = 0x40 | (header_len / 4) as u8;
        Self(bytes)
    }

    /// Sets the total length; the checksum is left to [`Ipv4::fill_checksum`].
    pub fn set_total_len(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 2, value);
    }

    /// Sets the identification; the checksum is left to [`Ipv4::fill_checksum`].
    pub fn set_identification(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 4, value);
    }

    /// Sets flags and fragment offset as one field; the checksum is left to
    /// [`Ipv4::fill_checksum`].
    pub fn set_fragment_field(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 6, value);
    }

    /// Sets the type of service; the checksum is left to [`Ipv4::fill_checksum`].
    pub fn set_service(&mut self, value: u8) {
        self.0.as_mut()[1] = value;
    }

    /// Sets the time to live; the checksum is left to the caller.
    pub fn set_ttl(&mut self, value: u8) {
        self.0.as_mut()[8] = value;
    }

    /// Sets the protocol; the checksum is left to [`Ipv4::fill_checksum`].
    pub fn set_protocol(&mut self, value: u8) {
        self.0.as_mut()[9] = value;
    }

    /// Sets the source address; the checksum is left to the caller.
    pub fn set_source(&mut self, value: u32) {
        put_u32(self.0.as_mut(), 12, value);
    }

    /// Sets the destination address; the checksum is left to the caller.
    pub fn set_destination(&mut self, value: u32) {
        put_u32(self.0.as_mut(), 16, value);
    }

    /// Updates the header checksum by the change of other fields.
    pub fn update_checksum(&mut self, delta: Delta) {
        let checksum = delta.apply(self.header_checksum());
        put_u16(self.0.as_mut(), 10, checksum);
    }

    /// Computes the header checksum afresh.
    pub fn fill_checksum(&mut self) {
        put_u16(self.0.as_mut(), 10, 0);
        let checksum = checksum::checksum(&self.0.as_ref()[..self.header_len()]);
        put_u16(self.0.as_mut(), 10, checksum);
    }

    /// The payload, mutable.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.header_len(), usize::from(self.total_len()));
        let data = self.0.as_mut();
        let to = to.min(data.len());
        &mut data[from..to]
    }
}

/// Result of a look at the options, as it matters to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Options {
    /// No option that matters.
    Plain,
    /// A loose or strict source route.
    SourceRoute,
    /// An option's length runs past the header or is too small.
    Malformed,
}

/// Walks an option list (RFC 791 section 3.1).
pub fn scan_options(mut options: &[u8]) -> Options {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    while let Some(&kind) = options.first() {
        match kind {
            END => return Options::Plain,
            NO_OPERATION => options = &options[1..],
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Options::SourceRoute,
            //= rfc1812#section-4.2.2.1-stream
            //= rfc1812#section-4.2.2.6
            //= rfc1812#section-5.3.13.1
            //= rfc1812#section-5.3.13.3
            _ => match options.get(1) {
                Some(&len) if len >= 2 && usize::from(len) <= options.len() => {
                    options = &options[usize::from(len)..];
                }
                _ => return Options::Malformed,
            },
        }
    }
    Options::Plain
}

/// True if an option list holds a loose or strict source route with addresses that are still to be
/// visited. A source route without a legal pointer counts as one. A malformed list ends the search.
pub fn has_unexpired_source_route(mut options: &[u8]) -> bool {
    while let Some(&kind) = options.first() {
        let len = match (kind, options.get(1)) {
            (0, _) => return false,
            (1, _) => 1,
            (131 | 137, len) => match (len, options.get(2)) {
                (Some(&len), Some(&pointer)) if len >= 3 && pointer > len => usize::from(len),
                _ => return true,
            },
            (_, Some(&len)) if len >= 2 => usize::from(len),
            _ => return false,
        };
        options = options.get(len..).unwrap_or_default();
    }
    false
}
