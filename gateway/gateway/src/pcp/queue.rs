//! Requests that wait, and the order in which they are served.
//!
//! A forger chooses the source address of each request, so a budget for each address does not hold
//! a forger back. Two rules do: senders that natgate knows are served before all others, and groups
//! of senders in one class take turns. A group is a hardware address if it is known, and a prefix
//! otherwise. So one sender fills the room that no other sender needs, and no more.

use super::Datagram;
use std::collections::VecDeque;

/// Requests of one class that wait.
pub(super) const ROOM: usize = 64;

/// Number of groups of senders.
pub(super) const GROUPS: usize = 256;

/// While requests of both classes wait, one request in this number is of an unknown sender.
const TURN_OF_UNKNOWN: u32 = 4;

/// Requests of known senders, and of unknown ones.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    known: FairQueue,
    unknown: FairQueue,
    served: u32,
}

impl Waiting {
    /// The queue of a class of senders.
    pub(super) fn of(&mut self, is_known: bool) -> &mut FairQueue {
        if is_known { &mut self.known } else { &mut self.unknown }
    }

    /// True if no request waits.
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty() && self.unknown.is_empty()
    }

    /// Takes out the next request.
    pub(super) fn next(&mut self) -> Option<Datagram> {
        self.served = self.served.wrapping_add(1);
        let mut queues = [&mut self.known, &mut self.unknown];
        if self.served.is_multiple_of(TURN_OF_UNKNOWN) {
            queues.reverse();
        }
        queues.into_iter().find_map(FairQueue::next)
    }
}

/// A queue of at most [`ROOM`] requests, whose groups are served by turns.
#[derive(Debug)]
pub(super) struct FairQueue {
    /// Waiting requests in order of arrival.
    order: VecDeque<Entry>,
    slots: Vec<Datagram>,
    free: Vec<u8>,
    /// Number of waiting requests of each group.
    counts: [u8; GROUPS],
    /// Group that was served last.
    last: u8,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    group: u8,
    slot: u8,
}

/// Result of adding a request to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    /// The request waits.
    Waits,
    /// The request waits in the place of one of the largest group.
    Replaces,
    /// There is no room for the request's group.
    Refused,
}

impl Default for FairQueue {
    fn default() -> Self {
        Self {
            order: VecDeque::with_capacity(ROOM),
            slots: Vec::new(),
            free: Vec::new(),
            counts: [0; GROUPS],
            last: 0,
        }
    }
}

impl FairQueue {
    /// True if no request of the class waits.
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// True if a request of a group finds a place.
    pub(super) fn has_room(&self, group: u8) -> bool {
        self.order.len() < ROOM || self.longest().is_some_and(|longest| self.yields(longest, group))
    }

    /// Adds a request. If all places are taken, the request gets the place of the latest request of
    /// the largest group, as long as its own group stays smaller.
    pub(super) fn push(&mut self, group: u8, datagram: &Datagram) -> Pushed {
        let mut pushed = Pushed::Waits;
        if self.order.len() >= ROOM {
            let longest = self.longest().filter(|longest| self.yields(*longest, group));
            let Some(longest) = longest else { return Pushed::Refused };
            let latest = self.order.iter().rposition(|entry| entry.group == longest);
            self.remove(latest.expect("the group has requests"));
            pushed = Pushed::Replaces;
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[usize::from(slot)] = *datagram;
                slot
            }
            None => {
                self.slots.push(*datagram);
                (self.slots.len() - 1) as u8
            }
        };
        self.counts[usize::from(group)] += 1;
        self.order.push_back(Entry { group, slot });
        pushed
    }

    /// Takes out the oldest request of the group whose turn it is.
    fn next(&mut self) -> Option<Datagram> {
        let distance = |entry: &Entry| entry.group.wrapping_sub(self.last).wrapping_sub(1);
        let (place, _) = self.order.iter().enumerate().min_by_key(|(_, entry)| distance(entry))?;
        let Entry { group, slot } = self.remove(place);
        self.last = group;
        Some(self.slots[usize::from(slot)])
    }

    /// Group with the most waiting requests.
    fn longest(&self) -> Option<u8> {
        self.order.iter().map(|entry| entry.group).max_by_key(|group| self.count(*group))
    }

    /// True if group `longest` gives a place to `group` and then does not have fewer requests.
    fn yields(&self, longest: u8, group: u8) -> bool {
        self.count(longest) > self.count(group) + 1
    }

    fn count(&self, group: u8) -> u8 {
        self.counts[usize::from(group)]
    }

    fn remove(&mut self, place: usize) -> Entry {
        let entry = self.order.remove(place).expect("the place is taken");
        self.counts[usize::from(entry.group)] -= 1;
        self.free.push(entry.slot);
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcp::write_datagram;
    use natgate_pcp::SERVER_PORT;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    /// A request of the client with this number.
    fn datagram(number: u32) -> Datagram {
        let own = Ipv4Addr::new(10, 0, 0, 1);
        let client = (Ipv4Addr::from_bits(0x0a01_0000 + number), 4000);
        let mut bytes = [0; 64];
        let len = write_datagram((client, (own, SERVER_PORT)), 64, b"hello", &mut bytes);
        Datagram::read(0, &bytes[..len], Some(own)).unwrap()
    }

    fn number(datagram: &Datagram) -> u32 {
        let IpAddr::V4(client) = datagram.client.0 else { panic!("{datagram:?}") };
        client.to_bits() - 0x0a01_0000
    }

    #[test]
    fn a_group_that_floods_leaves_places_and_turns_to_others() {
        let mut queue = FairQueue::default();
        for number in 0..1000 {
            queue.push(7, &datagram(number));
        }
        assert_eq!(queue.order.len(), ROOM);
        assert_eq!(queue.push(7, &datagram(1000)), Pushed::Refused);
        assert!(queue.has_room(9) && !queue.has_room(7));
        assert_eq!(queue.push(9, &datagram(2000)), Pushed::Replaces);
        let served: Vec<u32> = (0..2).filter_map(|_| queue.next()).map(|it| number(&it)).collect();
        assert!(served.contains(&2000), "{served:?}");
    }

    #[test]
    fn known_senders_are_served_first_and_others_get_every_fourth_turn() {
        let mut waiting = Waiting::default();
        for one in 0..32 {
            waiting.of(true).push(1, &datagram(one));
            waiting.of(false).push(1, &datagram(100 + one));
        }
        let served: Vec<u32> =
            (0..40).filter_map(|_| waiting.next()).map(|it| number(&it)).collect();
        assert_eq!(served[..8], [0, 1, 2, 100, 3, 4, 5, 101]);
        assert_eq!(served.iter().filter(|number| **number >= 100).count(), 10);
        while waiting.next().is_some() {}
        assert!(waiting.is_empty());
    }

    proptest! {
        /// Whatever comes, places are bounded, each waiting request is served once, in order within
        /// its group, and a group with less than its share of the room finds a place.
        #[test]
        fn places_are_shared_whatever_comes(
            steps in prop::collection::vec(prop::option::weighted(0.8, 0u8..12), 1..600)
        ) {
            let mut queue = FairQueue::default();
            let mut model: Vec<(u8, u32)> = Vec::new();
            for (number_of_step, step) in steps.into_iter().enumerate() {
                let groups: std::collections::HashSet<u8> =
                    model.iter().map(|(group, _)| *group).chain(step).collect();
                let Some(group) = step else {
                    let served = queue.next().map(|datagram| number(&datagram));
                    let place = model.iter().position(|(_, one)| Some(*one) == served);
                    prop_assert_eq!(served.is_some(), place.is_some());
                    if let Some(place) = place {
                        let (group, _) = model.remove(place);
                        prop_assert!(model[..place].iter().all(|(other, _)| *other != group));
                    }
                    continue;
                };
                let own = model.iter().filter(|(other, _)| *other == group).count();
                let new = number_of_step as u32;
                let has_room = queue.has_room(group);
                let pushed = queue.push(group, &datagram(new));
                prop_assert_eq!(has_room, pushed != Pushed::Refused);
                if pushed == Pushed::Refused {
                    let share = ROOM / groups.len();
                    prop_assert!(own + 1 >= share, "{own} of {share}");
                    continue;
                }
                if pushed == Pushed::Replaces {
                    let count = |group: u8| model.iter().filter(|(one, _)| *one == group).count();
                    let lost = queue.order.iter().map(|entry| {
                        number(&queue.slots[usize::from(entry.slot)])
                    }).collect::<Vec<_>>();
                    let gone = model.iter().position(|(_, one)| !lost.contains(one)).unwrap();
                    let most = model.iter().map(|(one, _)| count(*one)).max();
                    prop_assert_eq!(Some(count(model[gone].0)), most);
                    model.remove(gone);
                }
                model.push((group, new));
                prop_assert_eq!(queue.order.len(), model.len());
                prop_assert!(model.len() <= ROOM && queue.slots.len() <= ROOM);
            }
        }
    }
}
