//! Lists in order, read page by page, as SNMP managers read tables.
//!
//! A page has a bounded number of entries. Workers keep mappings in the order of their external
//! endpoints, so a page of mappings costs what lies between its ends. Subscribers have no order:
//! each page of subscribers scans all of them. As with any list, the asker owns the memory, and a
//! worker looks at a few slots a turn.

use crate::command::{CommandError, Commander};
use natgate_engine::{ByEndpoint, Cursor, Endpoint, Filter, MappingInfo, SubscriberInfo};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Entries of one part of a list.
const PART: usize = 1024;

/// A page of a list that is in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// True if no entry follows the page.
    pub is_last: bool,
}

/// Position of a mapping: protocol number, external address and port.
pub type MappingPlace = (u8, Ipv4Addr, u16);

/// Position of a subscriber: rank and address.
pub type SubscriberPlace = (u16, Ipv4Addr);

fn place(info: &MappingInfo) -> MappingPlace {
    (info.id.protocol, info.id.external.address, info.id.external.port)
}

impl Commander {
    /// At most `most` mappings in the order of protocol number, external address and port, from a
    /// position on. Mappings of protocols without ports have no position. Of mappings that share an
    /// external endpoint the page has one.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn mappings_from(
        &self,
        (protocol, address, port): MappingPlace,
        most: usize,
    ) -> Result<Page<MappingInfo>, CommandError> {
        let cursor = Cursor::at_endpoint(protocol, Endpoint { address, port });
        let most = most.max(1);
        let (mut entries, mut until) = (Vec::new(), None);
        for worker in 0..self.workers() {
            let (found, is_last) = self.page::<ByEndpoint>(worker, cursor, most)?;
            // A worker with more mappings may have some behind the last one that it returned.
            if let Some(ByEndpoint(last)) = found.last().filter(|_| !is_last) {
                until = until.into_iter().chain([place(last)]).min();
            }
            entries.extend(found.into_iter().map(|ByEndpoint(info)| info));
        }
        entries.retain(|info| until.is_none_or(|until| place(info) <= until));
        entries.sort_by_key(place);
        // All workers have the static mappings.
        entries.dedup_by_key(|info| place(info));
        let is_last = until.is_none() && entries.len() <= most;
        entries.truncate(most);
        Ok(Page { entries, is_last })
    }

    /// At most `most` subscribers in the order of rank and address, from a position on. `rank`
    /// gives each subscriber its rank; subscribers without a rank are left out.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn subscribers_from(
        &self,
        rank: &dyn Fn(&SubscriberInfo) -> Option<u16>,
        from: SubscriberPlace,
        most: usize,
    ) -> Result<Page<SubscriberInfo>, CommandError> {
        let mut least = Least::new(from, most.max(1));
        let mut list = self.list::<SubscriberInfo>(Filter::default(), PART);
        while let Some((part, _)) = list.next_part()? {
            for info in part {
                if let Some(rank) = rank(info) {
                    least.offer((rank, info.address), *info);
                }
            }
        }
        Ok(least.page())
    }

    /// One subscriber, if it has mappings.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn subscriber(
        &self,
        realm: u16,
        address: Ipv4Addr,
    ) -> Result<Option<SubscriberInfo>, CommandError> {
        let filter =
            Filter { realm: Some(realm), subscriber: Some(address.into()), ..Filter::default() };
        let mut list = self.list::<SubscriberInfo>(filter, 1);
        while let Some((part, _)) = list.next_part()? {
            if let Some(info) = part.first() {
                return Ok(Some(*info));
            }
        }
        Ok(None)
    }
}

/// The `most` smallest of unordered entries, from a position on.
#[derive(Debug)]
struct Least<K, T> {
    from: K,
    most: usize,
    found: BTreeMap<K, T>,
    is_last: bool,
}

impl<K: Ord, T> Least<K, T> {
    fn new(from: K, most: usize) -> Self {
        Self { from, most, found: BTreeMap::new(), is_last: true }
    }

    fn offer(&mut self, place: K, one: T) {
        let is_full = self.found.len() >= self.most;
        let last = self.found.last_key_value();
        if place < self.from {
            return;
        }
        if is_full && last.is_some_and(|(last, _)| place > *last) {
            self.is_last = false;
            return;
        }
        self.found.insert(place, one);
        if self.found.len() > self.most {
            self.found.pop_last();
            self.is_last = false;
        }
    }

    fn page(self) -> Page<T> {
        Page { entries: self.found.into_values().collect(), is_last: self.is_last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_what_has_no_order_follow_each_other_and_leave_nothing_out() {
        // Numbers below 1,009, each twice, in a strange order.
        let offered = || (1..2018_u64).map(|number| number * 7919 % 1009);
        for most in [1, 7, 1008, 1009, 5000] {
            let (mut from, mut all) = (0, Vec::<u64>::new());
            loop {
                let mut least = Least::new(from, most);
                offered().for_each(|number| least.offer(number, number));
                let page = least.page();
                assert!(page.entries.len() <= most);
                all.extend(&page.entries);
                match page.entries.last() {
                    Some(last) if !page.is_last => from = last + 1,
                    _ => break,
                }
            }
            assert!(all.into_iter().eq(0..1009));
        }
    }
}
