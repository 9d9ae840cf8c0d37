//! The end of a subscriber's mappings, and of its records.

use super::{FREE, NONE, Subscriber, Subscribers};
use crate::class::KINDS;
use crate::host::Host;
use crate::protocols::quota_of;

impl Subscribers {
    /// Counts the removal of a mapping of a pool; `place` is the place of its protocol. Removes the
    /// subscriber's record with its last mapping. `likely` is the subscriber's record as
    /// [`Subscribers::approach`] found it, or none. `sibling` is the mapping's entry in the list of
    /// mappings of an unanswered subscriber, if it has one.
    pub(crate) fn release(
        &mut self,
        (likely, host): (u32, Host),
        sibling: Option<u32>,
        pool: usize,
        place: usize,
    ) {
        let kind = quota_of(place);
        let host = self.grouping.subscriber(host);
        let at = self.find_from(likely, host).expect("a mapping's subscriber has a record");
        if let Some(sibling) = sibling {
            self.end_sibling(at, sibling, (pool, place));
        }
        self.settle(at);
        let class = self.records[at as usize].class;
        self.classes.release(class, kind);
        if self.records[at as usize].pool as usize != pool {
            let further = self.find_record(host, pool as u32);
            self.release_from(further.expect("a further pool has a record"), 0);
            self.records[at as usize].elsewhere -= 1;
        }
        self.release_from(at, kind);
        let Subscriber { pool, has, elsewhere, .. } = &self.records[at as usize];
        if *elsewhere > 0 && has.mappings.iter().sum::<u32>() == *elsewhere {
            // No mapping of the first pool is left: the next one there may have another address.
            self.part(at, *pool as usize);
        }
    }

    /// Ends the entry of a mapping in the list of mappings of an unanswered subscriber. The
    /// subscriber may have been answered since.
    #[cold]
    fn end_sibling(&mut self, at: u32, sibling: u32, (pool, place): (usize, usize)) {
        if let Some(entry) = self.unanswered_entry(at, pool) {
            self.unanswered.remove_mapping(entry, sibling, place);
        }
        self.unanswered.free_sibling(sibling);
    }

    #[inline]
    fn release_from(&mut self, at: u32, kind: usize) {
        let record = &mut self.records[at as usize];
        record.has.mappings[kind] -= 1;
        if record.has.mappings == [0; KINDS] {
            // A record that was found before does not pass for the subscriber's present one.
            let (host, further) = (record.host, core::mem::replace(&mut record.further, FREE));
            if core::mem::take(&mut record.is_unanswered) {
                self.unanswered.leave(record.next);
            }
            record.next = core::mem::replace(&mut self.free, at);
            self.used -= 1;
            if further == NONE {
                self.present -= 1;
                self.by_bucket[host.bucket()] -= 1;
            }
            if let Some(tenants) = self.tenants.get_mut(record.paired as usize) {
                *tenants -= 1;
            }
            self.index.remove(self.hash(host, further), at);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;
    use crate::class::Classes;
    use crate::host::{Grouping, Host};
    use crate::random::{Generator, HashKey};
    use crate::subscriber::{NONE, SubscriberRoom, Subscribers};

    const KIND: usize = 1;
    const POOL: (usize, Option<u32>) = (0, Some(0));

    /// The look-ahead of timers keeps the place of a record, and the record may go in the meantime.
    #[test]
    fn the_place_of_a_record_that_went_leads_to_the_present_one() {
        let room = SubscriberRoom { subscribers: 4, records: 4, slots: 8, pools: 1 };
        let classes = Classes::new(&Config::default());
        let key = HashKey::new(&mut Generator::new([3; 32]));
        let mut subscribers = Subscribers::new(room, 1, classes, Grouping::NONE, key);
        let [one, other] = [1, 2].map(|address| Host::new(0, address));
        let before = subscribers.count(None, one, POOL, KIND, 0);
        let place = subscribers.count(None, other, POOL, KIND, 0);
        assert_eq!(subscribers.find_from(before, one), Some(before));
        subscribers.release((before, one), None, POOL.0, KIND);
        assert_eq!(subscribers.find_from(before, one), None);
        subscribers.release((NONE, other), None, POOL.0, KIND);
        // The record that went last is the next to be used.
        let now = subscribers.count(None, one, POOL, KIND, 0);
        assert_eq!((now, before != place), (place, true));
        assert_eq!(subscribers.find_from(before, one), Some(now));
        subscribers.release((before, one), None, POOL.0, KIND);
        assert_eq!(subscribers.find(one), None);
        assert_eq!(subscribers.filled().used, 0);
    }
}
