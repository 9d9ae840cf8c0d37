//! The ICMPv6 header (RFC 4443), with the length field of RFC 4884.
//!
//! ```
//! use natgate_wire::{Icmpv6, icmpv6};
//!
//! let mut bytes = [0; 8];
//! let mut message = Icmpv6::new_checked(&mut bytes).unwrap();
//! message.set_kind(icmpv6::kind::ECHO_REQUEST);
//! message.set_identifier(7);
//! message.fill_checksum(1, 2);
//! assert!(message.checksum_valid(1, 2) && !message.checksum_valid(1, 3));
//! ```

use crate::checksum::{self, pseudo_header_v6};
use crate::{get_u16, get_u32, protocol, put_u16, put_u32};

/// Length of the common part of all messages, with its second word, bytes.
pub const HEADER_LEN: usize = 8;

/// Offset of the checksum, bytes.
pub const CHECKSUM: usize = 2;

/// Message types.
pub mod kind {
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Router solicitation (RFC 4861).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router advertisement (RFC 4861).
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbor solicitation (RFC 4861).
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// Neighbor advertisement (RFC 4861).
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
    /// Redirect (RFC 4861).
    pub const REDIRECT: u8 = 137;
}

/// A view of an ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6<T>(T);

impl<T: AsRef<[u8]>> Icmpv6<T> {
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
        get_u16(self.0.as_ref(), CHECKSUM)
    }

    /// The echo identifier (echo requests and replies only).
    pub fn identifier(&self) -> u16 {
        get_u16(self.0.as_ref(), 4)
    }

    /// The second word: the MTU of "packet too big", the pointer of "parameter problem".
    pub fn word(&self) -> u32 {
        get_u32(self.0.as_ref(), 4)
    }

    /// Length of the embedded packet with padding, bytes, if an extension structure follows it (RFC
    /// 4884 section 4.4; only "destination unreachable" and "time exceeded" have the field).
    pub fn original_len(&self) -> Option<usize> {
        let has_field = matches!(self.kind(), kind::UNREACHABLE | kind::TIME_EXCEEDED);
        let len = usize::from(self.0.as_ref()[4]) * 8;
        (has_field && len != 0).then_some(len)
    }

    /// True if the checksum over the whole message and the pseudo header is right.
    pub fn checksum_valid(&self, source: u128, destination: u128) -> bool {
        checksum(self.0.as_ref(), source, destination) == 0
    }

    /// The bytes after the first eight: the embedded packet of an error.
    pub fn body(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Icmpv6<T> {
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
        put_u16(self.0.as_mut(), CHECKSUM, value);
    }

    /// Sets the echo identifier.
    pub fn set_identifier(&mut self, value: u16) {
        put_u16(self.0.as_mut(), 4, value);
    }

    /// Sets the second word: MTU or pointer.
    pub fn set_word(&mut self, value: u32) {
        put_u32(self.0.as_mut(), 4, value);
    }

    /// Computes the checksum over the whole message and the pseudo header afresh.
    pub fn fill_checksum(&mut self, source: u128, destination: u128) {
        self.set_checksum(0);
        let checksum = checksum(self.0.as_ref(), source, destination);
        self.set_checksum(checksum);
    }

    /// The bytes after the first eight, mutable.
    pub fn body_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[HEADER_LEN..]
    }
}

/// True if a message type reports an error about an embedded packet (RFC 4443 section 2.1).
pub fn is_error(kind: u8) -> bool {
    kind < 128
}

/// The checksum of a message with the pseudo header. The result is zero for a message with a
/// correct checksum.
pub fn checksum(message: &[u8], source: u128, destination: u128) -> u16 {
    let start = pseudo_header_v6(source, destination, protocol::ICMPV6, message.len() as u32);
    !checksum::fold(checksum::sum(message, start))
}
