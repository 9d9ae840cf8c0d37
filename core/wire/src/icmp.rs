//! The ICMP header (RFC 792).

use crate::{checksum, get_u16, put_u16};

/// Length of the common part of all messages, with its second word, bytes.
pub const HEADER_LEN: usize = 8;

/// Message types.
pub mod kind {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Source quench (deprecated by RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Timestamp request.
    pub const TIMESTAMP_REQUEST: u8 = 13;
    /// Timestamp reply.
    pub const TIMESTAMP_REPLY: u8 = 14;
}

/// A view of an ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct Icmp<T>(T);

impl<T: AsRef<[u8]>> Icmp<T> {
    /// Wraps bytes. `None`: there are fewer than eight.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= HEADER_LEN).then_some(Self(bytes))
    }

    /// Message type.
    pub fn kind(&self) -> u8 {
        self.0.as_ref()[0]
    }

    /// Message code.
    pub fn code(&self) -> u8 {
        self.0.as_ref()[1]
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        get_u16(self.0.as_ref(), 2)
    }

    /// The query identifier (queries and replies only).
    pub fn identifier(&self) -> u16 {
        get_u16(self.0.as_ref(), 4)
    }

    /// True if the checksum over the whole message is right.
    pub fn checksum_valid(&self) -> bool {
        checksum::checksum(self.0.as_ref()) == 0
    }

    /// The bytes after the first eight: the embedded packet of an error.
    pub fn body(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmp<T> {
    /// Sets the message type.
    pub fn set_kind(&mut self, value: u8) {
        self.0.as_mut()[0] = value;
    }

    /// Sets the message code.
    pub fn set_code(&mut self, value: u8) {
        self.0.as_mut()[1] = value;
    }

    /// Sets the checksum.
    pub fn set_checksum(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 2, value);
    }

    /// Sets the query identifier.
    pub fn set_identifier(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 4, value);
    }

    /// Computes the checksum over the whole message afresh.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let checksum = checksum::checksum(self.0.as_ref());
        self.set_checksum(checksum);
    }

    /// The bytes after the first eight, mutable.
    pub fn body_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[HEADER_LEN..]
    }
}

/// True if a message type reports an error about an embedded packet.
pub fn is_error(kind: u8) -> bool {
    matches!(
        kind,
        self::kind::UNREACHABLE
            | self::kind::SOURCE_QUENCH
            | self::kind::REDIRECT
            | self::kind::TIME_EXCEEDED
            | self::kind::PARAMETER_PROBLEM
    )
}
