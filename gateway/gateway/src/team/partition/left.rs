//! Addresses that a reload has taken from the configuration.
//!
//! An engine may still have something of such an address: a subscriber's block, or held ports. Then
//! it still has its words, too. If a later reload brings the address back, each word must have the
//! owner that it had, so the partition keeps the lists of owners. No packet needs them: the reload
//! ends the mappings. A list goes when no engine has anything of its address. So there are at most
//! as many lists as the engines have room for addresses, and those of one reload more.

use super::{Owners, Partition};
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Owners of ports of addresses that have left the configuration, sorted by address.
#[derive(Debug, Default)]
pub(super) struct Left(Vec<(u32, Arc<Owners>)>);

impl Left {
    fn find(&self, address: u32) -> Option<&Arc<Owners>> {
        let at = self.0.binary_search_by_key(&address, |(known, _)| *known).ok()?;
        Some(&self.0[at].1)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (u32, &Arc<Owners>)> {
        self.0.iter().map(|(address, owners)| (*address, owners))
    }
}

impl Partition {
    /// Owners of the ports of an address that the configuration has or had.
    pub(super) fn owners_of(&self, address: u32) -> Option<&Arc<Owners>> {
        let row = self.row(address).map(|row| &row.owners);
        row.or_else(|| self.left.find(address))
    }

    /// The addresses of this partition that `after` does not have.
    pub(super) fn left_behind(&self, after: &Self) -> Left {
        let rows = self.rows.iter().map(|row| (row.address, &row.owners));
        let gone =
            rows.chain(self.left.each()).filter(|(address, _)| after.row(*address).is_none());
        let mut left: Vec<_> =
            gone.map(|(address, owners)| (address, Arc::clone(owners))).collect();
        left.sort_unstable_by_key(|(address, _)| *address);
        Left(left)
    }

    /// Forgets the addresses that left before the reload from `before` to this partition, unless an
    /// engine `has` something of them.
    pub(crate) fn forget_left(&mut self, before: &Self, has: impl Fn(Ipv4Addr) -> bool) {
        let is_new = |address: u32| before.row(address).is_some();
        let left = &mut self.left.0;
        left.retain(|(address, _)| is_new(*address) || has(Ipv4Addr::from_bits(*address)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{AddressRange, Config, PoolConfig};

    /// A pool of addresses that end in these numbers.
    fn config(first: u8, last: u8) -> Config {
        let address = |last| Ipv4Addr::new(203, 0, 113, last);
        let addresses = vec![AddressRange { first: address(first), last: address(last) }];
        let pools = vec![PoolConfig { addresses, ..PoolConfig::default() }];
        Config { pools, ..Config::default() }
    }

    fn owners(partition: &Partition, address: Ipv4Addr) -> Vec<usize> {
        let owners = partition.owners_of(address.to_bits()).expect("it is known");
        (0..super::super::WORDS).map(|word| owners.of(word)).collect()
    }

    #[test]
    fn an_address_that_comes_back_has_the_owners_that_it_had() {
        let address = Ipv4Addr::new(203, 0, 113, 3);
        let first = Partition::new(&config(1, 3), None, 2, None);
        first.give(address, 100..200, 1);
        first.note_copy(1, 17, address, 5000);
        let before = owners(&first, address);
        let mut second = Partition::new(&config(1, 2), None, 2, Some(&first));
        second.forget_left(&first, |_| false);
        assert!(second.row(address.to_bits()).is_none(), "no packet is for the translator");
        // Words that were on their way, and the rest of a port.
        let coming = second.owned_of(1, address, &(0..150)).into_iter().flatten();
        assert!(coming.eq(100..150));
        assert!(second.note_end(1, 17, address, 5000));
        let mut third = Partition::new(&config(1, 1), None, 2, Some(&second));
        third.forget_left(&second, |one| one == address);
        // Now it is the second address of the pool, not the third one.
        let fourth = Partition::new(&config(2, 3), None, 2, Some(&third));
        assert_eq!(owners(&fourth, address), before);
        assert_eq!(fourth.stray(17, address, 5000), None);
        // Another process may have the address again.
        let heir = Partition::new(&config(2, 3), None, 2, None);
        assert_ne!(owners(&heir, address), before);
        heir.adopt(&third.division().expect("it can")).expect("it fits");
        assert_eq!(owners(&heir, address), before);
    }

    #[test]
    fn an_address_that_no_engine_has_any_more_is_forgotten() {
        let mut partition = Partition::new(&config(1, 2), None, 2, None);
        for number in 2..200 {
            let mut next = Partition::new(&config(number, number + 1), None, 2, Some(&partition));
            next.forget_left(&partition, |address| address.octets()[3].is_multiple_of(50));
            let left = usize::from(number) / 50;
            assert!((left..=left + 2).contains(&next.left.0.len()), "{number}");
            partition = next;
        }
    }
}
