//! The DCCP header (RFC 4340 section 5.1).

use crate::{get_u16, put_u16};

/// Length of the shortest header (with short sequence numbers), bytes.
pub const HEADER_LEN: usize = 12;

/// Offset of the checksum, bytes.
pub const CHECKSUM: usize = 6;

/// Packet types.
pub mod kind {
    /// Opens a connection.
    pub const REQUEST: u8 = 0;
    /// Answers a request.
    pub const RESPONSE: u8 = 1;
    /// Data without an acknowledgement.
    pub const DATA: u8 = 2;
    /// An acknowledgement without data.
    pub const ACK: u8 = 3;
    /// Data with an acknowledgement.
    pub const DATA_ACK: u8 = 4;
    /// A server's request that the client close the connection.
    pub const CLOSE_REQUEST: u8 = 5;
    /// Closes a connection.
    pub const CLOSE: u8 = 6;
    /// Ends a connection, normally or not.
    pub const RESET: u8 = 7;
    /// Asks for sequence numbers to be synchronised.
    pub const SYNC: u8 = 8;
    /// Answers a request for synchronisation.
    pub const SYNC_ACK: u8 = 9;
    /// Tells that a server waits for a request (RFC 5596).
    pub const LISTEN: u8 = 10;
}

/// A view of a DCCP header.
#[derive(Clone, Copy, Debug)]
pub struct Dccp<T>(T);

impl<T: AsRef<[u8]>> Dccp<T> {
    /// Wraps bytes. `None`: the header is not complete by its data offset, or the data offset is
    /// too small.
    pub fn new_checked(bytes: T) -> Option<Self> {
        let header = Self::new_prefix_checked(bytes)?;
        (HEADER_LEN..=header.0.as_ref().len()).contains(&header.header_len()).then_some(header)
    }

    /// Wraps bytes whose options may be incomplete, as in a first fragment. `None`: the bytes are
    /// shorter than the shortest header.
    pub fn new_prefix_checked(bytes: T) -> Option<Self> {
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

    /// Header length with options, bytes.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[4]) * 4
    }

    /// The packet type (see [`kind`]).
    pub fn kind(&self) -> u8 {
        self.0.as_ref()[8] >> 1 & 0xf
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        get_u16(self.0.as_ref(), CHECKSUM)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Dccp<T> {
    /// Sets the source port.
    pub fn set_source_port(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 0, value);
    }

    /// Sets the destination port.
    pub fn set_destination_port(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 2, value);
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, value: u16) {
        put_u16(self.0.as_mut(), CHECKSUM, value);
    }
}
