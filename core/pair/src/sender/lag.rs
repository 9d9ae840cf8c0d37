//! For how long changes wait for the partner.
//!
//! Most changes have no time of their own: a search through the keys has that of its first change.
//! Keys of a lost packet keep theirs. Otherwise the next search would have it, and with it all of
//! its packets. One of them is lost, too, and so on: the lag would grow as long as changes come.

use super::{Flying, Sender};

impl Flying {
    /// A key of the packet has been waiting since a time, because an earlier packet with the key
    /// was lost. If one between the two has arrived, that is longer than the change has waited.
    pub(super) fn wait_since(&mut self, key: u32, since: u64) {
        match self.again.iter_mut().find(|(again, _)| *again == key) {
            Some((_, earliest)) => *earliest = since.min(*earliest),
            None => self.again.push((key, since)),
        }
    }
}

impl Sender {
    /// A packet has lost a key, which has been waiting since a time.
    pub(super) fn change_again(&mut self, key: u32, since: u64) {
        self.changed.insert(key);
        let earliest = self.again.entry(key).or_insert(since);
        *earliest = since.min(*earliest);
    }

    /// Time for which the oldest change has been waiting to be sent or confirmed, nanoseconds.
    pub fn lag(&self, now: u64) -> u64 {
        let flying = self.flying.iter().filter(|flying| !flying.is_settled);
        let on_way = flying.flat_map(|flying| {
            let again = flying.again.iter().map(|(_, since)| *since);
            again.chain([flying.since])
        });
        let waiting = self.again.values().copied().chain(self.oldest).chain(self.newer);
        on_way.chain(waiting).min().map_or(0, |since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Confirmation, Message, StreamId, read};
    use crate::{Present, Stream, Written};
    use alloc::collections::{BTreeMap, BTreeSet};
    use alloc::vec;
    use alloc::vec::Vec;

    /// Time of a turn.
    const TURN: u64 = 5_000_000;

    /// Packets of five records.
    const ROOM: usize = 53 + 5 * 26;

    /// Changes come at each turn, and one packet of five is lost. Each key waits for some turns.
    #[test]
    fn lost_packets_do_not_add_up() {
        let stream = Stream { from: 1, to: 2, epoch: 1 };
        let id = StreamId { slice: 0, worker: 0, reader: 0, stream };
        let mut sender = Sender::new(id);
        let mut random: u64 = 1;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        // For each key that the partner lacks the time of its change.
        let mut waits = BTreeMap::new();
        let (mut arrived, mut most) = (BTreeSet::new(), 0);
        for turn in 1..400 {
            let now = turn * TURN;
            for _ in 0..100 {
                let key = below(5_000) as u32;
                sender.change(key, now);
                waits.entry(key).or_insert(now);
            }
            let mut came = Vec::new();
            let source = |_, out: &mut Vec<u8>| {
                out.extend([0; 20]);
                Present::Record { fingerprint: now }
            };
            while let Written::Packet(bytes) = sender.write(now, (ROOM, 5_000), source) {
                let Some((_, Message::Packet(packet))) = read(&bytes) else { panic!("a packet") };
                if below(5) > 0 {
                    arrived.insert(packet.number);
                    came.extend(packet.records().map(|record| record.key));
                }
            }
            let lag = sender.lag(now + TURN / 2);
            let oldest = waits.values().min().expect("some wait");
            assert!(lag >= now + TURN / 2 - oldest, "turn {turn}");
            most = most.max(lag);
            came.iter().for_each(|key| _ = waits.remove(key));
            let (below, mut bits) = (sender.floor, vec![0; 64]);
            for number in arrived.range(below..) {
                bits[(number - below) as usize / 64] |= 1 << ((number - below) % 64);
            }
            let confirmation =
                Confirmation { number: turn, missing: 0, is_swept: true, below, bits };
            sender.confirm(0, &confirmation, now + TURN / 2);
            sender.time_out(now + TURN - 1, (TURN / 2, TURN / 2));
            let oldest = waits.values().min().copied().unwrap_or(now + TURN);
            assert!(sender.lag(now + TURN) >= now + TURN - oldest, "turn {turn}");
        }
        assert!(sender.counters().lost > 500, "packets are lost");
        assert!(most <= 16 * TURN, "{most} ns");
    }
}
