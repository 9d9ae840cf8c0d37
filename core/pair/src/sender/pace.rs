//! How many packets may be on their way.
//!
//! A partner that copies more slowly than this node sends confirms later and later. A whole window
//! would wait at the partner, new changes would wait behind it, and it would count as lost by its
//! time. So the number shrinks while confirmations come late, and grows while they come soon.

use super::Sender;
use crate::packet::WINDOW;

/// Packets that are always allowed.
const LEAST: u64 = 64;

/// The packets that are allowed, and those that are on their way.
#[derive(Debug)]
pub(super) struct Pace {
    allowed: u64,
    /// Confirmations that were neither late nor quick since the number has grown by one for them.
    others: u64,
    on_way: u64,
    /// Time of a confirmation that comes late, nanoseconds.
    late: u64,
    /// Time that the packet took which has arrived last, nanoseconds.
    took: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { allowed: WINDOW, others: 0, on_way: 0, late: u64::MAX, took: 0 }
    }
}

impl Pace {
    /// True if no further packet may be sent now.
    pub(super) fn is_full(&self) -> bool {
        self.on_way >= self.allowed
    }

    pub(super) fn note_sent(&mut self) {
        self.on_way += 1;
    }

    pub(super) fn note_lost(&mut self) {
        self.on_way -= 1;
    }

    /// A packet has arrived at all readers, after this time. `None`: a long one, whose time tells
    /// nothing about others.
    pub(super) fn note_arrived(&mut self, took: Option<u64>) {
        self.on_way -= 1;
        let Some(took) = took else { return };
        self.took = took;
        if took > self.late {
            self.allowed = (self.allowed - 1).max(LEAST);
        } else if took < self.late / 2 {
            self.allowed = (self.allowed + 1).min(WINDOW);
        } else {
            self.others += 1;
            if self.others >= self.allowed {
                (self.others, self.allowed) = (0, (self.allowed + 1).min(WINDOW));
            }
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
            self.now += after;
            self.confirmed += 1;
            let below = self.confirmed + 1;
            let number = self.confirmed;
            let bits = Vec::new();
            let confirmation = Confirmation { number, missing: 0, is_swept: true, below, bits };
            self.sender.confirm(0, &confirmation, self.now);
        }
    }

    #[test]
    fn a_slow_partner_has_fewer_packets_before_it_and_a_quick_one_has_more() {
        let mut slow = Slow::new();
        (0..200_000).for_each(|key| _ = slow.sender.change(key, 0));
        assert_eq!(slow.send(), WINDOW);
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
}
