//! Recently used neighbours, found without a search in the table of all.
//!
//! An entry has what a packet to the neighbour needs. The entry guarantees that the neighbour is
//! known by this hardware address, and that the table marks it as used until it is confirmed again.
//! So a packet that finds its neighbour here need not touch the table. A change of the table that
//! breaks the guarantee takes the entry out first.

use std::net::Ipv4Addr;

/// Fewest and most entries; there are as many as neighbours, rounded up to a power of two.
const FEWEST: usize = 16;
const MOST: usize = crate::limits::MOST_NEIGHBORS;

const _: () = assert!(FEWEST.is_power_of_two() && MOST.is_power_of_two());

/// One entry for each slot of the hash.
#[derive(Debug)]
pub(super) struct Recent<T> {
    places: Vec<Option<(Ipv4Addr, T)>>,
}

impl<T: Copy> Default for Recent<T> {
    fn default() -> Self {
        Self { places: vec![None; FEWEST] }
    }
}

impl<T: Copy> Recent<T> {
    /// Entry of a neighbour that is here.
    #[inline]
    pub(super) fn get(&self, address: Ipv4Addr) -> Option<T> {
        match self.places[self.place(address)] {
            Some((known, entry)) if known == address => Some(entry),
            _ => None,
        }
    }

    /// Adds a neighbour that is known and marked as used; another may lose its slot.
    pub(super) fn put(&mut self, address: Ipv4Addr, entry: T) {
        let place = self.place(address);
        self.places[place] = Some((address, entry));
    }

    /// Removes a neighbour, if it is here.
    pub(super) fn take_out(&mut self, address: Ipv4Addr) {
        let place = self.place(address);
        self.places[place].take_if(|(known, _)| *known == address);
    }

    /// Removes all neighbours.
    pub(super) fn clear(&mut self) {
        self.places.fill(None);
    }

    /// Grows to hold `neighbors` neighbours, within the limits.
    pub(super) fn fit(&mut self, neighbors: usize) {
        let wanted = neighbors.next_power_of_two().clamp(FEWEST, MOST);
        if wanted > self.places.len() {
            let before = std::mem::replace(&mut self.places, vec![None; wanted]);
            before.into_iter().flatten().for_each(|(address, entry)| self.put(address, entry));
        }
    }

    /// Slot of an address. Neighbours often differ in their last bits only, and these count most
    /// here.
    fn place(&self, address: Ipv4Addr) -> usize {
        let bits = address.to_bits() as usize;
        (bits ^ bits >> 12) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_wire::arp::Mac;

    fn neighbor(last: u8) -> (Ipv4Addr, Mac) {
        (Ipv4Addr::new(10, 0, 0, last), Mac([2, 0, 0, 0, 0, last]))
    }

    #[test]
    fn who_is_put_here_is_found_until_taken_out() {
        let mut recent = Recent::default();
        let (one, two) = (neighbor(1), neighbor(2));
        recent.put(one.0, one.1);
        recent.put(two.0, two.1);
        assert_eq!((recent.get(one.0), recent.get(two.0)), (Some(one.1), Some(two.1)));
        recent.take_out(one.0);
        assert_eq!((recent.get(one.0), recent.get(two.0)), (None, Some(two.1)));
        recent.clear();
        assert_eq!(recent.get(two.0), None);
    }

    #[test]
    fn of_two_who_share_a_place_the_later_has_it() {
        let mut recent = Recent::default();
        let (one, other) = (neighbor(1), neighbor(1 + FEWEST as u8));
        recent.put(one.0, one.1);
        recent.put(other.0, other.1);
        assert_eq!((recent.get(one.0), recent.get(other.0)), (None, Some(other.1)));
        // Removing an absent neighbour leaves the others.
        recent.take_out(one.0);
        assert_eq!(recent.get(other.0), Some(other.1));
    }

    #[test]
    fn there_are_as_many_places_as_neighbours() {
        let mut recent = Recent::default();
        recent.fit(100);
        assert_eq!(recent.places.len(), 128);
        for last in 0..100 {
            let (address, mac) = neighbor(last);
            recent.put(address, mac);
        }
        assert!((0..100).all(|last| recent.get(neighbor(last).0) == Some(neighbor(last).1)));
        recent.fit(300);
        assert_eq!(recent.get(neighbor(99).0), Some(neighbor(99).1), "they stay");
        recent.fit(3);
        assert_eq!(recent.get(neighbor(99).0), Some(neighbor(99).1), "they do not shrink");
        recent.fit(1 << 20);
        assert_eq!(recent.places.len(), MOST);
    }
}
