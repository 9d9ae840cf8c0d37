//! Sets of addresses as ranges, ascending and apart: a search takes few steps, however many
//! prefixes a configuration has.

use crate::Prefix6;
use alloc::boxed::Box;
use alloc::vec::Vec;
use natgate_engine::{AddressRange, Prefix};

/// A set of addresses of one family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges<A>(Box<[(A, A)]>);

impl<A: Copy + Ord> Ranges<A> {
    /// The addresses of ranges, each with its first and its last address.
    pub(crate) fn new(ranges: impl IntoIterator<Item = (A, A)>) -> Self {
        let mut ranges: Vec<(A, A)> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let mut apart: Vec<(A, A)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match apart.last_mut() {
                Some(before) if first <= before.1 => before.1 = before.1.max(last),
                _ => apart.push((first, last)),
            }
        }
        Self(apart.into_boxed_slice())
    }

    /// True if no address is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first and the last address of each range.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (A, A)> + '_ {
        self.0.iter().copied()
    }

    /// True if an address is in the set.
    #[inline]
    pub(crate) fn has(&self, address: A) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= address);
        after > 0 && address <= self.0[after - 1].1
    }
}

impl Ranges<u128> {
    /// The addresses of prefixes of IPv6.
    pub(crate) fn of_ipv6(prefixes: &[Prefix6]) -> Self {
        let ends = |prefix: &Prefix6| (prefix.first().to_bits(), prefix.last().to_bits());
        Self::new(prefixes.iter().map(ends))
    }
}

impl Ranges<u32> {
    /// The addresses of ranges of IPv4.
    pub(crate) fn of_ranges(ranges: &[AddressRange]) -> Self {
        Self::new(ranges.iter().map(|range| (range.first.to_bits(), range.last.to_bits())))
    }

    /// The addresses of prefixes of IPv4.
    pub(crate) fn of_ipv4<'p>(prefixes: impl IntoIterator<Item = &'p Prefix>) -> Self {
        Self::new(prefixes.into_iter().map(|prefix| (prefix.first(), prefix.last())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, Ipv6Addr};
    use proptest::prelude::*;

    proptest! {
        /// Prefixes close together, so that many lie within others or touch them.
        #[test]
        fn a_set_has_what_one_of_its_prefixes_has(
            prefixes in proptest::collection::vec((0..64_u32, 24..=32_u8), 0..12),
            wide in any::<bool>(),
        ) {
            let narrow = |&(low, len): &(u32, u8)| Prefix::new(Ipv4Addr::from_bits(low << 2), len);
            let mut four: Vec<Prefix> = prefixes.iter().map(narrow).collect();
            let broad = |&(low, len): &(u32, u8)| {
                let address = Ipv6Addr::from_bits(u128::from(low << 2) << 64);
                Prefix6 { address, len: len + 32 }
            };
            let mut six: Vec<Prefix6> = prefixes.iter().map(broad).collect();
            if wide {
                four.push(Prefix::new(Ipv4Addr::UNSPECIFIED, 0));
                six.push(Prefix6 { address: Ipv6Addr::UNSPECIFIED, len: 0 });
            }
            let (set4, set6) = (Ranges::of_ipv4(&four), Ranges::of_ipv6(&six));
            for address in (0..=0x120_u32).chain([u32::MAX - 1, u32::MAX]) {
                let expected = four.iter().any(|prefix| prefix.contains(address));
                prop_assert_eq!(set4.has(address), expected, "{}", address);
                let address = Ipv6Addr::from_bits(u128::from(address) << 64 | 5);
                let expected = six.iter().any(|prefix| prefix.contains(address));
                prop_assert_eq!(set6.has(address.to_bits()), expected, "{}", address);
            }
        }
    }
}
