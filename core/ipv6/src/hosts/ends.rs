//! Far ends of tunnels whose subscriber is a prefix (RFC 7785).
//!
//! A host is then found by the subscriber's prefix and its inner address, and a subscriber has one
//! tunnel at a time: that of the address that sent last. With another address all hosts of the
//! subscriber move to the new tunnel, and keep their numbers, mappings and quotas. After a change
//! the next one has to wait, unless it is to the address that a static mapping names.

use super::{Hosts, NO_INNER};
use alloc::vec::Vec;

/// The address of an end that is not known. No B4 has it.
const UNKNOWN: u128 = 0;

/// The end of a subscriber's tunnel.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// The address, or [`UNKNOWN`].
    address: u128,
    /// Time of the last change, nanoseconds; `None`: the address is the first one.
    changed: Option<u64>,
}

/// The ends of all subscribers, by place.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    all: Vec<End>,
    /// Least time between two changes, nanoseconds.
    interval: u64,
}

impl Ends {
    pub(super) fn new(interval: u64) -> Self {
        Self { all: Vec::new(), interval }
    }
}

impl Hosts {
    /// The address by which a host is found: behind a tunnel, that of its subscriber.
    pub(super) fn key_of(&self, address: u128, inner: u32) -> u128 {
        if inner == NO_INNER { address } else { self.prefix_of(address) }
    }

    /// The end of the tunnel of the subscriber at a place, if it is known.
    fn end_at(&self, place: usize) -> Option<End> {
        let end = *self.ends.as_ref()?.all.get(place)?;
        (end.address != UNKNOWN).then_some(end)
    }

    /// Forgets the end of the tunnel of the subscriber that had a place.
    pub(super) fn forget_end(&mut self, place: u32) {
        if let Some(end) = self.ends.as_mut().and_then(|ends| ends.all.get_mut(place as usize)) {
            *end = End::default();
        }
    }

    /// Notes the end of the tunnel of a host with a number, if no other end is known: a host of a
    /// static mapping can be reached before it has sent.
    pub(super) fn begin_end(&mut self, number: u32, address: u128, now: u64) {
        if self.subscriber_of(number).is_some_and(|place| self.end_at(place).is_none()) {
            self.note_end(number, address, now);
        }
    }

    /// The end of the tunnel of a host with a number; `address`: that by which the host is found.
    pub(super) fn end_of(&self, number: u32, address: u128) -> u128 {
        if self.ends.is_none() {
            return address;
        }
        let end = self.subscriber_of(number).and_then(|place| self.end_at(place));
        end.map_or(address, |end| end.address)
    }

    /// Exchanges the end of the tunnel of a host with a number, and returns the former one; `None`:
    /// no end is known, and none is noted.
    pub(crate) fn exchange_end(&mut self, number: u32, address: u128) -> Option<u128> {
        let place = self.subscriber_of(number)?;
        self.end_at(place)?;
        let end = &mut self.ends.as_mut()?.all[place];
        Some(core::mem::replace(&mut end.address, address))
    }

    /// True if an address is the end of its subscriber's tunnel; always, if the end is the
    /// subscriber.
    #[inline]
    pub(crate) fn is_end(&self, address: u128) -> bool {
        self.ends.is_none() || self.has_end(address)
    }

    #[inline(never)]
    fn has_end(&self, address: u128) -> bool {
        let place = self.find_subscriber(self.prefix_of(address));
        let end = place.and_then(|place| self.end_at(place as usize));
        end.is_some_and(|end| end.address == address)
    }

    /// True if the ends of tunnels are others than the subscribers.
    #[inline]
    pub(crate) fn have_ends(&self) -> bool {
        self.ends.is_some()
    }

    /// True if a subscriber may send from an address at a time, nanoseconds: it is that of the
    /// tunnel or of a static mapping, or the last change is long ago.
    //= rfc7785#section-4-rate
    pub(crate) fn may_send_from(&self, address: u128, now: u64) -> bool {
        self.change_to(address, now) != Some(false)
    }

    /// True if a packet from an address moves a subscriber from the tunnel of another one.
    pub(crate) fn may_move_to(&self, address: u128, now: u64) -> bool {
        self.change_to(address, now) == Some(true)
    }

    /// Whether a subscriber may change to an address at a time, nanoseconds; `None`: it has this
    /// one or none, or always has its own.
    fn change_to(&self, address: u128, now: u64) -> Option<bool> {
        let ends = self.ends.as_ref()?;
        let place = self.find_subscriber(self.prefix_of(address))?;
        let end = self.end_at(place as usize).filter(|end| end.address != address)?;
        let is_settled = |changed: u64| now >= changed.saturating_add(ends.interval);
        Some(end.changed.is_none_or(is_settled) || self.kept.has_end(address))
    }

    /// Notes the address from which a host with a number has sent at a time, nanoseconds.
    //= rfc7785#section-4-migrate
    //= rfc7785#section-4-softwires
    pub(crate) fn note_end(&mut self, number: u32, address: u128, now: u64) {
        let Some(place) = self.subscriber_of(number).filter(|_| self.ends.is_some()) else {
            return;
        };
        let known = self.end_at(place);
        if known.is_some_and(|end| end.address == address) {
            return;
        }
        if let Some(Ends { all, .. }) = &mut self.ends {
            if all.len() <= place {
                all.resize(place + 1, End::default());
            }
            all[place] = End { address, changed: known.map(|_| now) };
        }
    }
}
