//! How many packets may be on their way.
//!
//! A partner that copies more slowly than this node sends confirms later and later. A whole window
//! would wait at the partner, new changes would wait behind it, and it would count as lost by its
//! time. A late confirmation tells the partner's rate: packets that have arrived in the time that
//! this one took. No more are allowed then than arrive in a shorter time. The number grows while
//! confirmations come soon. A confirmation that is late although few packets were on their way
//! changes nothing.

use super::Sender;
use crate::packet::WINDOW;

/// Packets that are always allowed, and that are at first.
const LEAST: u64 = 64;
const FIRST: u64 = 1024;

/// Packets that have arrived so far, and those that have arrived or are lost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ended {
    arrived: u64,
    all: u64,
}

/// The packets that are allowed, and those that are on their way.
#[derive(Debug)]
pub(super) struct Pace {
    allowed: u64,
    /// Confirmations that were neither late nor quick since the number has grown by one for them.
    others: u64,
    on_way: u64,
    /// Time of a confirmation that comes late, nanoseconds.
    late: u64,
    ended: Ended,
    /// Packets for which the partner is quick enough, by the late packets of this confirmation.
    found: Option<u64>,
    /// Time that the packet took which has arrived last, nanoseconds.
    took: u64,
}

impl Default for Pace {
    fn default() -> Self {
        let ended = Ended::default();
        Self { allowed: FIRST, others: 0, on_way: 0, late: u64::MAX, ended, found: None, took: 0 }
    }
}

impl Pace {
    /// True if no further packet may be sent now.
    pub(super) fn is_full(&self) -> bool {
        self.on_way >= self.allowed
    }

    /// A packet goes. Returns what has ended so far.
    pub(super) fn note_sent(&mut self) -> Ended {
        self.on_way += 1;
        self.ended
    }

    pub(super) fn note_lost(&mut self) {
        self.on_way -= 1;
        self.ended.all += 1;
    }

    /// A packet has arrived at all readers, after this time. `before`: what had ended when it went.
    /// `took` is `None` for a long one, whose time tells nothing about others.
    pub(super) fn note_arrived(&mut self, before: Ended, took: Option<u64>) {
        self.on_way -= 1;
        self.ended.arrived += 1;
        self.ended.all += 1;
        let Some(took) = took else { return };
        self.took = took;
        if took > self.late {
            if self.ended.all - before.all >= self.allowed / 2 {
                let arrived = u128::from(self.ended.arrived - before.arrived);
                let in_time = arrived * u128::from(self.late) * 3 / 4 / u128::from(took);
                self.found = self.found.max(Some(in_time as u64));
            }
        } else if took < self.late / 2 {
            self.allowed = (self.allowed + 1).min(WINDOW);
        } else {
            self.others += 1;
            if self.others >= self.allowed {
                (self.others, self.allowed) = (0, (self.allowed + 1).min(WINDOW));
            }
        }
    }

    /// All packets of a confirmation have been noted: the last ones tell the rate best.
    pub(super) fn end_confirmation(&mut self) {
        if let Some(found) = self.found.take() {
            self.allowed = self.allowed.min(LEAST.max(found));
        }
    }
}

impl Sender {
    /// Sets the time after which a confirmation comes late, nanoseconds: fewer packets are sent
    /// ahead then. At first none comes late.
    pub fn set_late(&mut self, late: u64) {
        self.pace.late = late;
    }

    /// Time until the packet that arrived last was confirmed, nanoseconds.
    pub fn took(&self) -> u64 {
        self.pace.took
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Confirmation, PACKET_HEAD, RECORD_HEAD, StreamId};
    use crate::{Present, Stream, Written};
    use alloc::vec::Vec;

    /// Time that the partner needs for a packet, and time after which a confirmation is late.
    const EACH: u64 = 100_000;
    const LATE: u64 = 20_000_000;

    /// Room of a packet with one record.
    const ROOM: usize = PACKET_HEAD + RECORD_HEAD + 100;

    /// A sender, and a partner that confirms the packets one by one.
    struct Slow {
        sender: Sender,
        now: u64,
        sent: u64,
        confirmed: u64,
    }

    impl Slow {
        fn new() -> Self {
            let stream = Stream { from: 1, to: 2, epoch: 1 };
            let mut sender = Sender::new(StreamId { slice: 0, worker: 0, reader: 0, stream });
            sender.set_late(LATE);
            Self { sender, now: 1, sent: 0, confirmed: 0 }
        }

        /// Sends what may go. Returns the number of packets on their way.
        fn send(&mut self) -> u64 {
            let source = |_, out: &mut Vec<u8>| {
                out.extend([0; 100]);
                Present::Record { fingerprint: 1 }
            };
            while let Written::Packet(_) = self.sender.write(self.now, (ROOM, 1 << 20), source) {
                self.sent += 1;
            }
            self.sent - self.confirmed
        }

        /// The partner confirms the next packet after some time.
        fn confirm(&mut self, after: u64) {
            self.confirm_all(self.confirmed + 1, after);
        }

        /// The partner confirms the packets up to this number after some time.
        fn confirm_all(&mut self, number: u64, after: u64) {
            self.now += after;
            self.confirmed = number;
            let (below, bits) = (number + 1, Vec::new());
            let confirmation = Confirmation { number, missing: 0, is_swept: true, below, bits };
            self.sender.confirm(0, &confirmation, self.now);
        }
    }

    #[test]
    fn a_slow_partner_has_fewer_packets_before_it_and_a_quick_one_has_more() {
        let mut slow = Slow::new();
        (0..200_000).for_each(|key| _ = slow.sender.change(key, 0));
        assert_eq!(slow.send(), FIRST);
        for _ in 0..20_000 {
            slow.confirm(EACH);
            slow.send();
        }
        let waiting = slow.send();
        assert!((LEAST..=2 * LATE / EACH).contains(&waiting), "{waiting} packets");
        assert!(slow.sender.took() <= 2 * LATE, "{} ns", slow.sender.took());
        for _ in 0..20_000 {
            slow.confirm(EACH / 100);
            slow.send();
        }
        assert_eq!(slow.send(), WINDOW, "the partner is quick again");
        assert_eq!(slow.sender.counters().lost, 0);
    }

    #[test]
    fn a_slow_partner_always_has_packets_before_it() {
        let mut slow = Slow::new();
        (0..200_000).for_each(|key| _ = slow.sender.change(key, 0));
        let mut least = slow.send();
        for _ in 0..20_000 {
            slow.confirm(EACH);
            least = least.min(slow.send());
        }
        assert!(least >= LATE / EACH / 2, "{least} packets");
    }

    #[test]
    fn one_late_confirmation_of_few_packets_changes_nothing() {
        let mut slow = Slow::new();
        (0..10).for_each(|key| _ = slow.sender.change(key, 0));
        assert_eq!(slow.send(), 10);
        (0..10).for_each(|_| slow.confirm(2 * LATE));
        (10..200_000).for_each(|key| _ = slow.sender.change(key, slow.now));
        assert_eq!(slow.send(), FIRST);
    }

    #[test]
    fn a_slow_partner_has_fewer_packets_before_it_also_if_most_are_lost() {
        let mut slow = Slow::new();
        (0..200_000).for_each(|key| _ = slow.sender.change(key, 0));
        for _ in 0..100 {
            let all = slow.send();
            // Of all that are on their way one of four arrives.
            slow.sender.note_unsent(all as usize * 3 / 4, slow.now);
            slow.confirm_all(slow.sent - all + all / 4, 2 * LATE);
            slow.confirmed = slow.sent;
        }
        assert!(slow.send() < FIRST / 2);
    }
}
