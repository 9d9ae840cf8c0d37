//! The option by which a host learns the prefixes of its NAT64 (RFC 7225).
//!
//! Contents of the option: the length of the prefix in bytes (two bytes), the prefix, and a suffix
//! that fills both up to twelve bytes: an address is the prefix, the IPv4 address and the suffix.
//! The suffix of this translator is zero (RFC 6052 section 2.2). A list of IPv4 prefixes would
//! follow, if the prefix were for some remote hosts only. There is none: each prefix is for all.

use crate::message::Fields;
use core::net::Ipv6Addr;

/// Bytes of the contents without a list of IPv4 prefixes.
pub(crate) const LEN: usize = 14;

/// Bytes of prefix and suffix.
const BOTH: usize = LEN - 2;

/// Lengths of prefixes, bytes (RFC 6052 section 2.2).
const LENGTHS: [u16; 6] = [4, 5, 6, 7, 8, 12];

/// The prefix of a NAT64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix64 {
    /// The first bytes are the prefix; all others are zero.
    bytes: [u8; BOTH],
    /// Length of the prefix, bytes.
    len: u8,
}

impl Prefix64 {
    /// The prefix of `len` bits of an address; `None`: RFC 6052 permits no such length.
    pub fn new(address: Ipv6Addr, len: u8) -> Option<Self> {
        let whole = len / 8;
        let is_permitted = len.is_multiple_of(8) && LENGTHS.contains(&whole.into());
        let mut bytes = [0; BOTH];
        let octets = address.octets();
        let prefix = usize::from(whole).min(BOTH);
        bytes[..prefix].copy_from_slice(&octets[..prefix]);
        is_permitted.then_some(Self { bytes, len: whole })
    }

    /// Contents of the option.
    //= rfc7225#section-4.1-format
    //= rfc7225#section-4.2-suffix
    pub(crate) fn contents(&self) -> [u8; LEN] {
        let mut contents = [0; LEN];
        contents[1] = self.len;
        contents[2..].copy_from_slice(&self.bytes);
        contents
    }
}

/// True if these are the contents of a question. Which prefix stands in it does not matter.
pub(crate) fn is_well_formed(contents: &[u8]) -> bool {
    contents.len() >= LEN && LENGTHS.contains(&Fields(contents).short(0))
}
