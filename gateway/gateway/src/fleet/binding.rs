//! When an owner lets packets of control flows out without its partner: if the partner confirms
//! nothing for long, connections must go on.
//!
//! The partner must know it before. With each state the owner says if it is sure that the partner
//! has everything that it has let out. Once a confirmation is late, it says so no more. Only when
//! the last such word is too old to count at the partner ([`APART`]), packets go alone. Then no
//! evidence of the owner's end can come while the word counts. Clocks need not agree: both nodes
//! count from the same message, and whoever stands still counts too much.
//!
//! Packets are bound again when the partner confirms again, and the owner is sure when everything
//! has arrived of before that. So it is when the first copy of a stream is whole.

use natgate_engine::Timestamp;
use std::time::Duration;

/// Wait for a confirmation from which the owner is not sure.
const LATE: Duration = Duration::from_secs(5);

/// Time after the last word of the owner that it is sure. At the partner that word counts for 10 s.
const APART: Duration = Duration::from_secs(15);

/// How packets of one stream's control flows depend on the partner.
#[derive(Debug)]
pub(super) struct Binding {
    is_sure: bool,
    binds: bool,
    last_sure: Timestamp,
    /// The checkpoint whose arrival changes something.
    checkpoint: u64,
}

impl Binding {
    /// Packets of a new stream are bound.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { is_sure: false, binds: true, last_sure: now, checkpoint: 1 }
    }

    /// True if packets wait for the partner.
    pub(super) fn binds(&self) -> bool {
        self.binds
    }

    /// True if the partner has everything that the owner has let out.
    pub(super) fn is_sure(&self) -> bool {
        self.is_sure
    }

    /// Notes the latest checkpoint that has arrived, as [`Binding::look`] does, before a state is
    /// sent. The owner may be sure from now on. Packets are bound, and stay so.
    pub(super) fn note_arrival(&mut self, now: Timestamp, oldest: Option<Timestamp>, arrived: u64) {
        self.is_sure |= self.binds && arrived >= self.checkpoint && !is_late(now, oldest);
    }

    /// The word about this for a state that is sent now.
    pub(super) fn word(&mut self, now: Timestamp) -> bool {
        if self.is_sure {
            self.last_sure = now;
        }
        self.is_sure
    }

    /// Looks at the time since which a packet waits, at the number of the next checkpoint, and at
    /// the latest one that has arrived. The caller then tells the gateways if packets are bound.
    pub(super) fn look(
        &mut self,
        now: Timestamp,
        oldest: Option<Timestamp>,
        (next, arrived): (u64, u64),
    ) {
        let (is_late, has_arrived) = (is_late(now, oldest), arrived >= self.checkpoint);
        if is_late && self.is_sure {
            (self.is_sure, self.checkpoint) = (false, next);
        } else if is_late && self.binds && now.since(self.last_sure) > APART {
            (self.binds, self.checkpoint) = (false, next);
        } else if !self.is_sure && !self.binds && has_arrived {
            (self.binds, self.checkpoint) = (true, next);
        } else {
            self.note_arrival(now, oldest, arrived);
        }
    }
}

/// True if a confirmation is late that a packet has been waiting for since a time.
fn is_late(now: Timestamp, oldest: Option<Timestamp>) -> bool {
    oldest.is_some_and(|oldest| now.since(oldest) > LATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_go_alone_only_when_the_last_word_is_old() {
        let at = |seconds: u64| Timestamp(seconds * 1_000_000_000);
        let mut binding = Binding::new(at(100));
        binding.look(at(100), None, (1, 0));
        assert!(!binding.word(at(100)) && binding.binds(), "the partner has nothing yet");
        binding.look(at(101), None, (2, 1));
        let waits = Some(at(110));
        assert!(binding.word(at(112)));
        binding.look(at(115), waits, (8, 3));
        assert!(binding.word(at(115)), "it is not late yet");
        binding.look(at(116), waits, (8, 3));
        assert!(!binding.word(at(116)) && binding.binds());
        binding.look(at(130), waits, (8, 3));
        assert!(binding.binds(), "the word of 115 may count");
        binding.look(at(131), waits, (9, 3));
        assert!(!binding.word(at(131)) && !binding.binds());
        // The link is there again: packets wait first, and then the owner is sure.
        binding.look(at(140), waits, (10, 9));
        assert!(!binding.word(at(140)) && binding.binds());
        binding.look(at(141), None, (10, 9));
        assert!(!binding.word(at(141)), "packets that went alone may be on their way");
        binding.look(at(142), None, (11, 10));
        assert!(binding.word(at(142)) && binding.binds());
        // A confirmation that is late, but not for long.
        binding.look(at(150), Some(at(144)), (12, 10));
        assert!(!binding.word(at(150)));
        binding.look(at(151), None, (13, 12));
        assert!(binding.word(at(151)) && binding.binds());
    }

    #[test]
    fn what_arrives_before_a_state_makes_the_owner_sure_while_packets_wait() {
        let at = |seconds: u64| Timestamp(seconds * 1_000_000_000);
        let mut binding = Binding::new(at(100));
        binding.look(at(100), None, (1, 0));
        binding.note_arrival(at(100), None, 1);
        assert!(binding.word(at(100)));
        let waits = Some(at(104));
        binding.look(at(110), waits, (8, 3));
        binding.look(at(116), waits, (9, 3));
        binding.note_arrival(at(117), None, 9);
        assert!(!binding.is_sure() && !binding.binds(), "packets go alone up to the next look");
        binding.look(at(117), None, (10, 9));
        binding.note_arrival(at(117), waits, 10);
        assert!(!binding.is_sure() && binding.binds(), "another packet waits");
        binding.note_arrival(at(118), None, 10);
        assert!(binding.is_sure());
    }
}
