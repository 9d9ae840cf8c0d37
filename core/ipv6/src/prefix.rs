//! Prefixes of IPv6 addresses.

use core::fmt::{self, Display, Formatter};
use core::net::Ipv6Addr;
use natgate_engine::Ranges;

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

/// The addresses of prefixes.
pub(crate) fn addresses_of(prefixes: &[Prefix6]) -> Ranges<u128> {
    let ends = |prefix: &Prefix6| (prefix.first().to_bits(), prefix.last().to_bits());
    Ranges::new(prefixes.iter().map(ends))
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
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// Prefixes close together, so that many lie within others or touch them.
        #[test]
        fn addresses_are_those_that_one_of_the_prefixes_has(
            prefixes in proptest::collection::vec((0..64_u32, 56..=64_u8), 0..12),
            has_all in any::<bool>(),
        ) {
            let prefix = |&(low, len): &(u32, u8)| {
                let address = Ipv6Addr::from_bits(u128::from(low << 2) << 64);
                Prefix6 { address, len }
            };
            let mut prefixes: Vec<Prefix6> = prefixes.iter().map(prefix).collect();
            if has_all {
                prefixes.push(Prefix6 { address: Ipv6Addr::UNSPECIFIED, len: 0 });
            }
            let set = addresses_of(&prefixes);
            for low in (0..=0x120_u128).chain([u128::MAX >> 64]) {
                for address in [low << 64, low << 64 | 5, low << 64 | u128::from(u64::MAX)] {
                    let address = Ipv6Addr::from_bits(address);
                    let expected = prefixes.iter().any(|prefix| prefix.contains(address));
                    prop_assert_eq!(set.has(address.to_bits()), expected, "{}", address);
                }
            }
        }
    }

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
