//! The UDP header (RFC 768).

use crate::{get_u16, put_u16};

/// Header length, bytes.
pub const HEADER_LEN: usize = 8;

/// Offset of the checksum, bytes.
pub const CHECKSUM: usize = 6;

/// A view of a UDP datagram. Only its first eight bytes must be available.
#[derive(Clone, Copy, Debug)]
pub struct Udp<T>(T);

impl<T: AsRef<[u8]>> Udp<T> {
    /// Wraps bytes. `None`: they are shorter than the header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_LEN).then_some(Self(bytes))
    }

    /// Source port.
    pub fn source_port(&self) -> u16 {
        get_u16(self.0.as_ref(), 0)
    }

    /// Destination port.
    pub fn destination_port(&self) -> u16 {
        get_u16(self.0.as_ref(), 2)
    }

    /// Length of header and data, bytes.
    pub fn length(&self) -> u16 {
        get_u16(self.0.as_ref(), 4)
    }

    /// The checksum field; zero means that the sender computed none.
    pub fn checksum(&self) -> u16 {
        get_u16(self.0.as_ref(), CHECKSUM)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Udp<T> {
    /// Sets the source port.
    pub fn set_source_port(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 0, value);
    }

    /// Sets the destination port.
    pub fn set_destination_port(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 2, value);
    }

    /// Sets the length.
    pub fn set_length(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 4, value);
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, value: u16) {
        put_u16(self.0.as_mut(), CHECKSUM, value);
    }
}
