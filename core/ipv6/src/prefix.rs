//! Prefixes of IPv6 addresses.

use core::fmt::{self, Display, Formatter};
use core::net::Ipv6Addr;

/// An IPv6 prefix: an address and a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix6 {
    /// An address of the network; bits after the prefix do not count.
    pub address: Ipv6Addr,
    /// Length, bits: 0 to 128.
    pub len: u8,
}

impl Prefix6 {
    /// The bits of an address after a prefix of `len` bits.
    pub(crate) const fn host_bits(len: u8) -> u128 {
        match len {
            0 => u128::MAX,
            128.. => 0,
            len => u128::MAX >> len,
        }
    }

    /// The first address.
    pub const fn first(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.address.to_bits() & !Self::host_bits(self.len))
    }

    /// The last address.
    pub const fn last(self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.address.to_bits() | Self::host_bits(self.len))
    }

    /// True if an address has this prefix.
    pub const fn contains(self, address: Ipv6Addr) -> bool {
        (address.to_bits() ^ self.address.to_bits()) & !Self::host_bits(self.len) == 0
    }

    /// True if the two have an address in common.
    pub const fn overlaps(self, other: Self) -> bool {
        let len = if self.len < other.len { self.len } else { other.len };
        (self.address.to_bits() ^ other.address.to_bits()) & !Self::host_bits(len) == 0
    }
}

impl Display for Prefix6 {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn prefix(text: &str, len: u8) -> Prefix6 {
        Prefix6 { address: text.parse().expect("an address"), len }
    }

    #[test]
    fn a_prefix_has_a_first_and_a_last_address() {
        let ends = |text, len| {
            let prefix = prefix(text, len);
            (prefix.first().to_string(), prefix.last().to_string())
        };
        assert_eq!(
            ends("2001:db8::5", 64),
            ("2001:db8::".into(), "2001:db8::ffff:ffff:ffff:ffff".into())
        );
        assert_eq!(ends("2001:db8::5", 128), ("2001:db8::5".into(), "2001:db8::5".into()));
        assert_eq!(ends("2001:db8::5", 0).0, "::");
        assert_eq!(prefix("2001:db8::5", 32).to_string(), "2001:db8::/32");
    }

    #[test]
    fn prefixes_overlap_if_one_has_the_other() {
        let net = prefix("2001:db8::", 32);
        assert!(
            net.overlaps(prefix("2001:db8:1::", 48)) && prefix("2001:db8:1::", 48).overlaps(net)
        );
        assert!(!net.overlaps(prefix("2001:db9::", 48)) && net.overlaps(prefix("::", 0)));
        assert!(net.contains("2001:db8:ffff::1".parse().expect("an address")));
        assert!(!net.contains("2001:db9::1".parse().expect("an address")));
    }
}
