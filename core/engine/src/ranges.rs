//! Sets of addresses as ranges: a look-up takes a few steps, however many prefixes a configuration
//! has.

use crate::config::{AddressRange, Prefix};
use alloc::vec::Vec;

/// A set of addresses of one family: ranges, first to last, ascending and with gaps between them.
#[derive(Clone, Debug, Default)]
pub struct Ranges<A>(Vec<(A, A)>);

impl<A: Copy + Ord> Ranges<A> {
    /// The addresses of ranges, each with its first and its last address. The ranges may overlap.
    pub fn new(ranges: impl IntoIterator<Item = (A, A)>) -> Self
    where
        A: Into<u128>,
    {
        let mut ranges: Vec<(A, A)> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let touches = |last: A, first: A| {
            let (last, first): (u128, u128) = (last.into(), first.into());
            first <= last.saturating_add(1)
        };
        let mut joined: Vec<(A, A)> = Vec::new();
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if touches(before.1, first) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self(joined)
    }

    /// True if no address is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first and the last address of each range.
    pub fn iter(&self) -> impl Iterator<Item = (A, A)> + '_ {
        self.0.iter().copied()
    }

    /// True if an address is in the set.
    #[inline]
    pub fn has(&self, address: A) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= address);
        self.0[..after].last().is_some_and(|(_, last)| address <= *last)
    }
}

impl Ranges<u32> {
    /// The addresses of prefixes of IPv4.
    pub fn of_ipv4<'p>(prefixes: impl IntoIterator<Item = &'p Prefix>) -> Self {
        Self::new(prefixes.into_iter().map(|prefix| (prefix.first(), prefix.last())))
    }

    /// The addresses of ranges of IPv4.
    pub fn of_ranges(ranges: &[AddressRange]) -> Self {
        Self::new(ranges.iter().map(|range| (range.first.to_bits(), range.last.to_bits())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn prefix() -> impl Strategy<Value = Prefix> {
        let address = prop_oneof![0_u32..64, Just(u32::MAX), Just(u32::MAX - 5), any::<u32>()];
        let len = prop_oneof![6 => 26_u8..=32, 1 => 0_u8..26];
        (address, len).prop_map(|(address, len)| Prefix::new(Ipv4Addr::from_bits(address), len))
    }

    proptest! {
        /// Compares with a look at each prefix.
        #[test]
        fn a_set_has_what_a_prefix_contains(
            prefixes in prop::collection::vec(prefix(), 0..12),
            addresses in prop::collection::vec(any::<u32>(), 4),
        ) {
            let set = Ranges::of_ipv4(&prefixes);
            prop_assert!(set.0.len() <= prefixes.len());
            prop_assert!(set.0.windows(2).all(|two| two[0].1 < two[1].0 - 1));
            let ends = prefixes.iter().flat_map(|prefix| {
                let (first, last) = (prefix.first(), prefix.last());
                [first, last, first.wrapping_sub(1), last.wrapping_add(1)]
            });
            for address in ends.chain(0..70).chain(addresses) {
                let is_in = prefixes.iter().any(|prefix| prefix.contains(address));
                prop_assert_eq!(set.has(address), is_in, "{}", Ipv4Addr::from_bits(address));
            }
        }
    }

    /// Prefixes that nobody can join make as many runs, and each is found.
    #[test]
    fn thousands_of_prefixes_are_found() {
        let nth = |number: u32| Prefix::new(Ipv4Addr::from_bits(number << 8), 25);
        let prefixes: Vec<Prefix> = (1..10_000).rev().map(nth).collect();
        let set = Ranges::of_ipv4(&prefixes);
        assert_eq!(set.0.len(), prefixes.len());
        for prefix in prefixes {
            assert!(set.has(prefix.first()) && set.has(prefix.last()));
            assert!(!set.has(prefix.first() - 1) && !set.has(prefix.last() + 1));
        }
    }
}
