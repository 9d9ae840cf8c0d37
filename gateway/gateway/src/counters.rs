//! Counters of packets that were lost after the translator let them pass.
//!
//! The translator counts a packet as forwarded when it has done its part. If the router or the
//! device then loses the packet, [`Losses`] notes that, and [`Losses::correct`] moves it to the
//! drops, so that every input packet is still counted once.

use natgate_engine::{Counters, Direction, DropReason, Outcome, Side};

/// An input packet as the translator has counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Direction of the packet.
    pub direction: Direction,
    /// Outcome that was counted.
    pub outcome: Outcome,
    /// Bytes as received.
    pub len: usize,
}

impl Origin {
    /// A packet that came in on `from` and was forwarded by `to`.
    pub fn forwarded(from: Side, to: Side, len: usize) -> Self {
        let direction = Direction::forwarded(from, to);
        Self { direction, outcome: Outcome::Forwarded, len }
    }

    /// A request to the gateway itself that became the reply.
    pub fn replied(len: usize) -> Self {
        Self { direction: Direction::Local, outcome: Outcome::Replied, len }
    }
}

/// Packets that the translator let pass and that were lost afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Losses by direction and counted outcome.
    counted: Counters,
    /// Packets of the gateway's own making that were lost.
    own: u64,
    /// Counts of the translator for packets that did not come in.
    excluded: Counters,
    /// Input packets that the translator did not see: their bytes leave with others.
    kept: Counters,
}

impl Losses {
    /// Counts the loss of a packet; without an origin it was of the gateway's own making.
    pub fn note(&mut self, origin: Option<Origin>, reason: DropReason) {
        match origin {
            Some(Origin { direction, outcome, len }) => {
                self.counted.count(direction, outcome, len);
                self.counted.drops[reason as usize] += 1;
            }
            None => self.own += 1,
        }
    }

    /// Counts an input packet that the translator does not see, because its bytes leave with those
    /// of another packet.
    pub fn keep(&mut self, Origin { direction, outcome, len }: Origin) {
        self.kept.count(direction, outcome, len);
    }

    /// Excludes a packet of the gateway's own making that had to be translated, and is no input
    /// packet: subtracts the difference between two readings of the translator's counters.
    pub fn exclude(&mut self, before: &Counters, after: &Counters) {
        combine(&mut self.excluded, after, |sum, count| *sum += count);
        combine(&mut self.excluded, before, |sum, count| *sum -= count);
    }

    /// Packets of the gateway's own making that were lost.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// The translator's counters of input packets; packets lost afterwards count as dropped.
    #[must_use]
    pub fn correct(&self, counters: &Counters) -> Counters {
        let mut corrected = counters.clone();
        combine(&mut corrected, &self.excluded, |count, excluded| *count -= excluded);
        combine(&mut corrected, &self.kept, |count, kept| *count += kept);
        let lost = &self.counted;
        for (way, outcomes) in corrected.packets.iter_mut().zip(&lost.packets) {
            move_to_dropped(way, outcomes);
        }
        for (way, outcomes) in corrected.bytes.iter_mut().zip(&lost.bytes) {
            move_to_dropped(way, outcomes);
        }
        for (drops, lost) in corrected.drops.iter_mut().zip(lost.drops) {
            *drops += lost;
        }
        corrected
    }
}

/// The counters of the engine and of the translator of IPv6 together. The translator takes back
/// what it could not carry out, so its counts may be negative.
pub(crate) fn summed(engine: &Counters, translator: &Counters) -> Counters {
    let mut sum = engine.clone();
    combine(&mut sum, translator, |count, other| *count = count.wrapping_add(other));
    sum.generated += translator.generated;
    sum.errors_suppressed += translator.errors_suppressed;
    sum
}

/// Applies `action` to each count of packets, bytes and drops, with the same count of `with`.
fn combine(counters: &mut Counters, with: &Counters, action: impl Fn(&mut u64, u64)) {
    let ways = counters.packets.iter_mut().chain(&mut counters.bytes).flatten();
    let counts = ways.chain(&mut counters.drops);
    let others = with.packets.iter().chain(&with.bytes).flatten().chain(&with.drops);
    for (count, other) in counts.zip(others) {
        action(count, *other);
    }
}

fn move_to_dropped(counts: &mut [u64; 3], lost: &[u64; 3]) {
    for outcome in [Outcome::Forwarded, Outcome::Replied] {
        let moved = lost[outcome as usize].min(counts[outcome as usize]);
        counts[outcome as usize] -= moved;
        counts[Outcome::Dropped as usize] += moved;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_packet_is_counted_once_as_dropped() {
        let mut counters = Counters::default();
        counters.count(Direction::Outbound, Outcome::Forwarded, 100);
        counters.count(Direction::Outbound, Outcome::Forwarded, 50);
        counters.count(Direction::Local, Outcome::Replied, 84);
        let mut losses = Losses::default();
        let outbound = Origin::forwarded(Side::Inside, Side::Outside, 100);
        losses.note(Some(outbound), DropReason::NoNeighbor);
        losses.note(Some(Origin::replied(84)), DropReason::NoRoute);
        losses.note(None, DropReason::NoRoute);

        let corrected = losses.correct(&counters);
        assert_eq!(corrected.packets[Direction::Outbound as usize], [1, 0, 1]);
        assert_eq!(corrected.bytes[Direction::Outbound as usize], [50, 0, 100]);
        assert_eq!(corrected.packets[Direction::Local as usize], [0, 0, 1]);
        assert_eq!(corrected.drops[DropReason::NoNeighbor as usize], 1);
        assert_eq!(corrected.drops[DropReason::NoRoute as usize], 1);
        assert_eq!(losses.own(), 1);
    }

    #[test]
    fn packets_that_did_not_come_in_are_not_counted() {
        let mut counters = Counters::default();
        counters.count(Direction::Inbound, Outcome::Forwarded, 100);
        let before = counters.clone();
        counters.count(Direction::Inbound, Outcome::Forwarded, 56);
        counters.count_drop(Direction::Outbound, DropReason::IcmpNoSession, 70);
        let mut losses = Losses::default();
        losses.exclude(&before, &counters);
        assert_eq!(losses.correct(&counters), before);
        counters.count(Direction::Inbound, Outcome::Forwarded, 10);
        let inbound = losses.correct(&counters).packets[Direction::Inbound as usize];
        assert_eq!(inbound, [2, 0, 0]);
    }

    #[test]
    fn directions_follow_from_the_sides() {
        let direction = |from, to| Origin::forwarded(from, to, 0).direction;
        assert_eq!(direction(Side::Inside, Side::Outside), Direction::Outbound);
        assert_eq!(direction(Side::Outside, Side::Inside), Direction::Inbound);
        assert_eq!(direction(Side::Inside, Side::Inside), Direction::Hairpin);
    }
}
