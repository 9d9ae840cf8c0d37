//! The addresses of many prefixes. A look-up takes a few steps for thousands of prefixes.

use crate::config::{Prefix, joined};
use alloc::vec::Vec;

/// Addresses in the form of runs, first to last: ascending, and with gaps between them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefixSet(Vec<(u32, u32)>);

impl PrefixSet {
    /// The addresses of these prefixes, which may overlap.
    pub(crate) fn of(prefixes: &[Prefix]) -> Self {
        Self(joined(prefixes.iter().map(|prefix| (prefix.first(), prefix.last())).collect()))
    }

    /// True if a prefix contains an address.
    #[inline]
    pub(crate) fn has(&self, address: u32) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= address);
        self.0[..after].last().is_some_and(|(_, last)| address <= *last)
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
            let set = PrefixSet::of(&prefixes);
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
        let set = PrefixSet::of(&prefixes);
        assert_eq!(set.0.len(), prefixes.len());
        for prefix in prefixes {
            assert!(set.has(prefix.first()) && set.has(prefix.last()));
            assert!(!set.has(prefix.first() - 1) && !set.has(prefix.last() + 1));
        }
    }
}
