//! What comes by the tunnel: packets, perhaps in pieces, and words of presence. The leading worker
//! reads it.

use super::message::{Arrival, Datagram, Id, Presence, read};
use super::presence::Shared;
use crate::fleet::board::Order;
use crate::limits::LONGEST;
use natgate_engine::Timestamp;
use natgate_pair::Boot;
use std::time::Duration;

/// Packets that may wait for pieces.
const MOST_PARTIAL: usize = 64;

/// Longest wait of a packet for its pieces.
const WAIT: Duration = Duration::from_secs(1);

/// A packet that has come by the tunnel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PassedPacket {
    bytes: Vec<u8>,
    /// Bytes before the packet.
    head: usize,
}

impl PassedPacket {
    fn new(bytes: Vec<u8>) -> Option<Self> {
        let (_, packet) = Arrival::read(&bytes)?;
        let head = bytes.len() - packet.len();
        // No device receives longer ones.
        (packet.len() <= LONGEST).then_some(Self { bytes, head })
    }

    /// How it has come to the other node.
    pub(crate) fn arrival(&self) -> Arrival<'_> {
        // It was read before.
        Arrival::read(&self.bytes).map_or(Arrival::Outside, |(arrival, _)| arrival)
    }

    /// The packet.
    pub(crate) fn packet(&self) -> &[u8] {
        &self.bytes[self.head..]
    }
}

/// A packet whose pieces come.
#[derive(Debug)]
struct Partial {
    id: Id,
    pieces: Vec<Option<Vec<u8>>>,
    until: Timestamp,
}

/// The reader.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// The oldest first.
    partial: Vec<Partial>,
    /// Start and number of the last word of presence. Parts of one word have one number.
    last_word: (Boot, u64),
}

impl Arrivals {
    /// Reads a datagram; returns a packet that is whole. `boots`: those of the other node and of
    /// this one.
    pub(crate) fn read(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        (orders, boots): (&[Order], (Boot, Boot)),
        shared: &Shared,
    ) -> Option<PassedPacket> {
        self.give_up(now, shared);
        match read(datagram) {
            Some(Datagram::Presence(word)) => {
                self.hear(now, &word, orders.len(), boots, shared);
                None
            }
            Some(Datagram::Piece(id, place, part)) => {
                let is_taken = |order: &Order| match order.owns {
                    true => order.epoch == id.epoch,
                    // It has left the other node before that one knew of the move.
                    false => order.gave_after(id.epoch),
                };
                if !orders.get(usize::from(id.slice)).is_some_and(is_taken) {
                    shared.count(|counters| counters.foreign += 1);
                    return None;
                }
                let whole = match place {
                    (_, 1) => part.to_vec(),
                    place => self.add(now, (id, place), part, shared)?,
                };
                let packet = PassedPacket::new(whole);
                shared.count(|counters| match &packet {
                    Some(packet) => counters.taken[packet.arrival().place()] += 1,
                    None => counters.damaged += 1,
                });
                packet
            }
            None => {
                shared.count(|counters| counters.damaged += 1);
                None
            }
        }
    }

    /// Hears a word of presence. One of another start, or an earlier one, does not count.
    fn hear(
        &mut self,
        now: Timestamp,
        word: &Presence,
        slices: usize,
        boots: (Boot, Boot),
        shared: &Shared,
    ) {
        let last = (word.from, word.number);
        if (word.from, word.to) == boots && last >= self.last_word {
            self.last_word = last;
            shared.hear(now, word.first, &word.epochs, slices);
        }
    }

    /// Adds a piece. Returns the whole packet with the last one.
    fn add(
        &mut self,
        now: Timestamp,
        (id, (place, count)): (Id, (u8, u8)),
        part: &[u8],
        shared: &Shared,
    ) -> Option<Vec<u8>> {
        let known = self.partial.iter().position(|partial| partial.id == id);
        let at = known.unwrap_or_else(|| {
            if self.partial.len() == MOST_PARTIAL {
                self.partial.remove(0);
                shared.count(|counters| counters.partial += 1);
            }
            let pieces = vec![None; usize::from(count)];
            self.partial.push(Partial { id, pieces, until: now.plus(WAIT) });
            self.partial.len() - 1
        });
        let pieces = &mut self.partial[at].pieces;
        if pieces.len() == usize::from(count) {
            pieces[usize::from(place)] = Some(part.to_vec());
        }
        if pieces.iter().any(Option::is_none) {
            return None;
        }
        Some(self.partial.remove(at).pieces.into_iter().flatten().flatten().collect())
    }

    /// Gives packets up whose pieces do not come.
    pub(crate) fn give_up(&mut self, now: Timestamp, shared: &Shared) {
        let late = self.partial.iter().take_while(|partial| partial.until <= now).count();
        if late > 0 {
            self.partial.drain(..late);
            shared.count(|counters| counters.partial += late as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TunnelCounters;
    use super::super::message::write;
    use super::*;

    const BOOTS: (Boot, Boot) = (5, 6);

    fn order(epoch: u64) -> Order {
        Order { owns: true, epoch, ..Order::default() }
    }

    fn pieces(number: u32, len: usize) -> Vec<Vec<u8>> {
        let id = Id { slice: 0, epoch: 9, worker: 0, number };
        write(id, Arrival::Outside, &vec![number as u8; len], 1000).expect("it is short enough")
    }

    #[test]
    fn packets_of_other_epochs_and_slices_are_refused() {
        let (mut arrivals, shared, now) = (Arrivals::default(), Shared::default(), Timestamp(1));
        let mut read = |orders: &[Order]| {
            let piece = &pieces(1, 100)[0];
            arrivals.read(now, piece, (orders, BOOTS), &shared).map(|packet| packet.packet().len())
        };
        assert_eq!(read(&[order(9)]), Some(100));
        assert_eq!(read(&[order(10)]), None);
        assert_eq!(read(&[order(8)]), None);
        assert_eq!(read(&[Order { owns: false, ..order(9) }]), None);
        let given = |given: u64| {
            let gave = Some((given + 1, Timestamp(0)));
            Order { owns: false, gave, ..order(10) }
        };
        assert_eq!(read(&[given(9)]), Some(100), "it was on its way in a planned move");
        assert_eq!((read(&[given(8)]), read(&[given(0)])), (None, None));
        assert_eq!(read(&[Order { owns: true, ..given(9) }]), None);
        assert_eq!(read(&[]), None);
        let counters = TunnelCounters { taken: [0, 2, 0], foreign: 7, ..TunnelCounters::default() };
        assert_eq!(shared.counters(), counters);
    }

    #[test]
    fn pieces_come_in_any_order_and_some_never() {
        let (mut arrivals, shared, mut now) =
            (Arrivals::default(), Shared::default(), Timestamp(1));
        let orders = [order(9)];
        let mut read = |now, piece: &[u8]| {
            let packet = arrivals.read(now, piece, (&orders, BOOTS), &shared);
            packet.map(|packet| (packet.arrival().place(), packet.packet().to_vec()))
        };
        let (mut first, second) = (pieces(1, 2500), pieces(2, 2500));
        first.reverse();
        assert_eq!(read(now, &first[0]), None);
        assert_eq!(read(now, &second[0]), None);
        assert_eq!(read(now, &first[1]), None);
        assert_eq!(read(now, &first[1]), None, "a piece that is repeated");
        assert_eq!(read(now, &first[2]), Some((1, vec![1; 2500])));
        now = now.plus(WAIT);
        assert_eq!(read(now, &second[1]), None);
        assert_eq!(read(now, &second[2]), None, "the first one came too early");
        for number in 0..2 * MOST_PARTIAL as u32 {
            assert_eq!(read(now, &pieces(10 + number, 2500)[0]), None);
        }
        // The number of pieces is another one than before.
        let mut other = pieces(10 + 2 * MOST_PARTIAL as u32 - 1, 2500);
        other[1][17] = 2;
        assert_eq!(read(now, &other[1]), None);
        assert_eq!(read(now, &[7; 40]), None);
        let counters = shared.counters();
        assert_eq!((counters.partial, counters.damaged), (1 + 1 + MOST_PARTIAL as u64, 1));
        arrivals.give_up(now.plus(WAIT), &shared);
        assert!(arrivals.partial.is_empty());
    }

    #[test]
    fn only_the_latest_word_of_the_present_start_counts() {
        let (mut arrivals, shared, now) = (Arrivals::default(), Shared::default(), Timestamp(1));
        let orders = [Order::default(), Order::default()];
        let mut hear = |(from, to), number, epochs: &[u64]| {
            let word = Presence { from, to, number, first: 0, epochs: epochs.to_vec() };
            assert_eq!(arrivals.read(now, &word.write(), (&orders, BOOTS), &shared), None);
            [0, 1].map(|slice| shared.is_there(slice, 9, now))
        };
        assert_eq!(hear((5, 6), 2, &[9, 8]), [true, false]);
        assert_eq!(hear((5, 6), 1, &[0, 9]), [true, false], "an earlier word");
        assert_eq!(hear((4, 6), 3, &[0, 9]), [true, false], "of another start");
        assert_eq!(hear((5, 5), 3, &[0, 9]), [true, false], "to another start");
        assert_eq!(hear((5, 6), 3, &[0, 9, 9]), [false, true], "more slices than there are");
        assert!(!shared.is_there(1, 9, now.plus(Duration::from_millis(100))));
    }
}
