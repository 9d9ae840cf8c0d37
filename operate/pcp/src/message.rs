//! The parts of a PCP message (RFC 6887 sections 7, 11.1 and 12.1): where each field is, read and
//! written.
//!
//! Addresses have sixteen bytes; an IPv4 address is mapped into IPv6 (::ffff:a.b.c.d).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The version that is spoken here.
pub const VERSION: u8 = 2;
/// Bytes of the header that all messages have.
pub const HEADER_LEN: usize = 24;
/// Opcode: is there a server, and since when.
pub const ANNOUNCE: u8 = 0;
/// Opcode: a mapping for all remote endpoints.
pub const MAP: u8 = 1;
/// Opcode: a mapping towards one remote endpoint.
pub const PEER: u8 = 2;

/// Bytes that follow the header of a message, by opcode, before the options.
pub(crate) const MAP_LEN: usize = 36;
pub(crate) const PEER_LEN: usize = 56;

/// The bit of the second byte that marks responses.
pub(crate) const RESPONSE: u8 = 0x80;

/// A client's proof that it made a mapping.
pub type Nonce = [u8; 12];

/// An IPv4 address as PCP writes it.
pub fn mapped(address: Ipv4Addr) -> [u8; 16] {
    address.to_ipv6_mapped().octets()
}

/// The IPv4 address in sixteen bytes, if it is one.
pub(crate) fn unmapped(bytes: [u8; 16]) -> Option<Ipv4Addr> {
    Ipv6Addr::from(bytes).to_ipv4_mapped()
}

/// The address in sixteen bytes, of either family.
pub(crate) fn address(bytes: [u8; 16]) -> IpAddr {
    unmapped(bytes).map_or(IpAddr::V6(bytes.into()), IpAddr::V4)
}

/// Fields at their places; all of them are zero where a message is too short. There is none for
/// bits that are reserved.
//= rfc6887#section-7.1-reserved
#[derive(Clone, Copy)]
pub(crate) struct Fields<'m>(pub(crate) &'m [u8]);

impl Fields<'_> {
    pub(crate) fn bytes<const N: usize>(self, at: usize) -> [u8; N] {
        let found = self.0.get(at..).and_then(|rest| rest.first_chunk::<N>());
        found.copied().unwrap_or([0; N])
    }

    pub(crate) fn byte(self, at: usize) -> u8 {
        let [byte] = self.bytes(at);
        byte
    }

    pub(crate) fn short(self, at: usize) -> u16 {
        u16::from_be_bytes(self.bytes(at))
    }

    pub(crate) fn long(self, at: usize) -> u32 {
        u32::from_be_bytes(self.bytes(at))
    }

    pub(crate) fn opcode(self) -> u8 {
        self.byte(1) & !RESPONSE
    }

    pub(crate) fn is_response(self) -> bool {
        self.byte(1) & RESPONSE != 0
    }

    pub(crate) fn lifetime(self) -> u32 {
        self.long(4)
    }

    /// The address that the client believes to have.
    pub(crate) fn client(self) -> IpAddr {
        address(self.bytes(8))
    }

    // ---- of MAP and PEER ----

    pub(crate) fn nonce(self) -> Nonce {
        self.bytes(24)
    }

    pub(crate) fn protocol(self) -> u8 {
        self.byte(36)
    }

    pub(crate) fn internal_port(self) -> u16 {
        self.short(INTERNAL_PORT)
    }

    pub(crate) fn external_port(self) -> u16 {
        self.short(EXTERNAL_PORT)
    }

    /// The external address that is asked for; of nothing but zeros, in either family: any.
    pub(crate) fn external_address(self) -> WantedEndpoint {
        let bytes = self.bytes(EXTERNAL_ADDRESS);
        match unmapped(bytes) {
            _ if bytes == [0; 16] => WantedEndpoint::Any,
            Some(address) if address.is_unspecified() => WantedEndpoint::Any,
            Some(address) => WantedEndpoint::This(address),
            // No mapping of this translator has such an address; it is only a wish.
            None => WantedEndpoint::Other,
        }
    }

    // ---- of PEER ----

    pub(crate) fn remote_port(self) -> u16 {
        self.short(60)
    }

    pub(crate) fn remote_address(self) -> IpAddr {
        address(self.bytes(64))
    }
}

/// The external address that a client would like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WantedEndpoint {
    Any,
    This(Ipv4Addr),
    /// An address that is not of IPv4.
    Other,
}

pub(crate) const INTERNAL_PORT: usize = 40;
pub(crate) const EXTERNAL_PORT: usize = 42;
pub(crate) const EXTERNAL_ADDRESS: usize = 44;
