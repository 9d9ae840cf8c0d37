//! When a packet counts as lost: the rules of QUIC (RFC 9002, sections 5.3 and 6) for a stream of
//! records.
//!
//! A packet is lost if a later one is confirmed, and it is older than confirmations are on this
//! link. If no later one is confirmed, only time tells: then the oldest packets are repeated, and
//! the confirmation of the repetition tells what else was lost. So a partner that stands still gets
//! some packets again, not all of the window.

use super::{Flying, Sender};
use alloc::vec::Vec;

/// Packets after which an unconfirmed one counts as lost, if they are confirmed.
const REORDERED: u64 = 3;

/// Least difference between two times that are told apart, nanoseconds.
const GRANULARITY: u64 = 1_000_000;

/// Time for which an observation of disorder counts, and the longest disorder that counts beyond
/// two round trips, nanoseconds. One packet that was very late must not delay repetitions for long.
const REMEMBERED: u64 = 10_000_000_000;
const MOST_DISORDER: u64 = 10_000_000;

/// Least time from the beginning of a watch for a lost packet to that of the next one.
const WATCHES: u64 = 1_000_000_000;

/// Packets that one look repeats because of their time.
const REPEATED: usize = 2;

/// Such repetitions without a confirmation before their time doubles, and its most doublings.
const PATIENT: u32 = 3;
const MOST_DOUBLINGS: u32 = 10;

/// Longest time after which the oldest packet is repeated, unless confirmations take longer.
const MOST: u64 = 2_000_000_000;

/// Longest time that counts as that of a link, nanoseconds: longer ones are those of a node that
/// stood still.
const MOST_MEASURED: u64 = 500_000_000;

/// How long confirmations take on this link; nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Measured {
    latest: u64,
    smoothed: u64,
    variation: u64,
}

/// What a sender knows of the times of confirmations.
#[derive(Debug, Default)]
pub(super) struct Losses {
    measured: Option<Measured>,
    /// The longest time after which a packet was confirmed that others had overtaken, and the time
    /// of that.
    disorder: u64,
    disordered_at: u64,
    /// Time of the last packet that arrived, or that was repeated because of its time; and the
    /// repetitions since one arrived.
    quiet_since: u64,
    repetitions: u32,
    /// A packet that was lost because others have overtaken it, and the time up to which the stream
    /// waits for it all the same; and the time from which the next one may be watched for.
    watched: Option<(u64, u64)>,
    next_watch: u64,
    /// Time at which a packet that others have overtaken becomes old enough to be lost, unless a
    /// confirmation comes before.
    pub(super) look_at: u64,
}

impl Losses {
    /// Time until a packet was confirmed, with no later one before it.
    pub(super) fn measure(&mut self, latest: u64) {
        let latest = latest.min(MOST_MEASURED);
        let measured = match self.measured {
            None => Measured { latest, smoothed: latest, variation: latest / 2 },
            Some(Measured { smoothed, variation, .. }) => Measured {
                latest,
                smoothed: smoothed - smoothed / 8 + latest / 8,
                variation: variation - variation / 4 + smoothed.abs_diff(latest) / 4,
            },
        };
        self.measured = Some(measured);
    }

    /// A packet was confirmed after this time although a later one was before it.
    pub(super) fn note_overtaken(&mut self, took: u64, now: u64) {
        let is_old = now.saturating_sub(self.disordered_at) > REMEMBERED;
        if is_old || took >= self.disorder {
            (self.disorder, self.disordered_at) = (took, now);
        }
    }

    pub(super) fn note_arrived(&mut self, now: u64) {
        (self.quiet_since, self.repetitions) = (now, 0);
    }

    /// Ages from which a packet is lost if [`REORDERED`] later ones are confirmed, and if any is.
    /// QUIC looks at no age in the first case. Here the packets of a busy stream are closer to each
    /// other than the times of some links are equal: those that others overtake would be repeated,
    /// and make the stream busier. So the longest time of such a packet counts, within bounds, and
    /// an eighth more: then the next one may take a little longer, and is noticed.
    fn overtaken(&self, now: u64) -> (u64, u64) {
        let Some(Measured { latest, smoothed, variation }) = self.measured else {
            return (0, u64::MAX);
        };
        let is_present = now.saturating_sub(self.disordered_at) <= REMEMBERED;
        let disorder = if is_present { self.disorder.saturating_add(self.disorder / 8) } else { 0 };
        let disorder = disorder.min(self.most_disorder());
        let long = smoothed.max(latest);
        let margin = (4 * variation).max(long / 8).max(GRANULARITY);
        (disorder.max(smoothed), disorder.max(long.saturating_add(margin)))
    }

    /// Longest disorder that counts.
    fn most_disorder(&self) -> u64 {
        let smoothed = self.measured.map_or(0, |measured| measured.smoothed);
        MOST_DISORDER.saturating_add(2 * smoothed)
    }

    /// A packet that was sent at a time is lost because others have overtaken it. It may be late
    /// only. While the numbers of later packets stay valid, its confirmation tells: the floor waits
    /// for it as long as for a packet on such a link.
    fn watch(&mut self, number: u64, sent: u64, now: u64) {
        if now >= self.next_watch {
            self.watched = Some((number, sent.saturating_add(self.most_disorder())));
            self.next_watch = now.saturating_add(WATCHES);
        }
    }

    /// True if the stream waits for a lost packet.
    pub(super) fn watches(&self, number: u64, now: u64) -> bool {
        self.watched.is_some_and(|(watched, until)| watched == number && now < until)
    }

    /// The stream waits for a lost packet no more; `None`: for none.
    pub(super) fn end_watch(&mut self, number: Option<u64>) {
        self.watched.take_if(|(watched, _)| number.is_none_or(|number| number == *watched));
    }

    /// Time from which the ages of [`Losses::overtaken`] may be others without a confirmation.
    fn forgets_at(&self) -> u64 {
        self.disordered_at.saturating_add(REMEMBERED + 1)
    }

    /// Time without a confirmation after which the oldest packets are repeated.
    fn timeout(&self, (round_trip, delay): (u64, u64)) -> u64 {
        let first =
            Measured { latest: round_trip, smoothed: round_trip, variation: round_trip / 2 };
        let Measured { smoothed, variation, .. } = self.measured.unwrap_or(first);
        let margin = (4 * variation).max(GRANULARITY);
        let time = smoothed.saturating_add(margin).saturating_add(delay);
        let doublings = self.repetitions.saturating_sub(PATIENT - 1).min(MOST_DOUBLINGS);
        time.saturating_mul(1 << doublings).min(MOST.max(time))
    }
}

impl Sender {
    /// Looks for packets that are lost, because of the time: to be called regularly. `round_trip`
    /// is that of the link, and counts until the first confirmation. A partner waits for `delay` at
    /// most before it confirms a packet. Nanoseconds.
    pub fn time_out(&mut self, now: u64, (round_trip, delay): (u64, u64)) {
        if now >= self.losses.look_at {
            self.lose_overtaken(now);
        }
        self.lose_all_long(now);
        let is_short = |flying: &Flying| !flying.is_settled && flying.long.is_none();
        if let Some(first) = self.flying.iter().position(is_short) {
            let since = self.losses.quiet_since.max(self.flying[first].sent);
            if now.saturating_sub(since) >= self.losses.timeout((round_trip, delay)) {
                self.losses.quiet_since = now;
                self.losses.repetitions = self.losses.repetitions.saturating_add(1);
                let all = self.flying.iter().enumerate().skip(first);
                let oldest = all.filter(|(_, flying)| is_short(flying)).take(REPEATED);
                let oldest: Vec<usize> = oldest.map(|(at, _)| at).collect();
                oldest.into_iter().for_each(|at| self.lose(at));
            }
        }
        self.advance(now);
    }

    /// Packets that later ones have overtaken count as lost, once they are old enough. Without a
    /// confirmation there is nothing more to find before the next look.
    pub(super) fn lose_overtaken(&mut self, now: u64) {
        let (of_some, of_any) = self.losses.overtaken(now);
        let (mut ahead, mut until, mut look_at) = (0, 0, u64::MAX);
        for at in 0..self.flying.len() {
            let number = self.floor + at as u64;
            if number >= until {
                (ahead, until) = self.readers_ahead(number);
            }
            if ahead == 0 {
                break;
            }
            let flying = &self.flying[at];
            let waits = ahead & !flying.confirmed;
            if flying.is_settled || flying.long.is_some() || waits == 0 {
                continue;
            }
            let age = now.saturating_sub(flying.sent);
            if age < of_some {
                look_at = look_at.min(flying.sent.saturating_add(of_some));
                break;
            }
            let is_waiting = |bit: &usize| waits & 1 << bit != 0;
            let readers = (0..self.readers.len()).filter(is_waiting);
            let greatest = readers.map(|bit| self.readers[bit].greatest).max().unwrap_or(0);
            let is_some = greatest.saturating_sub(number) >= REORDERED;
            let least = if is_some { of_some } else { of_any };
            if age >= least {
                self.losses.watch(number, flying.sent, now);
                self.flying[at].is_overtaken = true;
                self.lose(at);
            } else {
                look_at = look_at.min(flying.sent.saturating_add(least));
            }
        }
        if look_at < u64::MAX && now < self.losses.forgets_at() {
            look_at = look_at.min(self.losses.forgets_at());
        }
        self.losses.look_at = look_at;
    }

    /// The readers that have confirmed a later packet than this one, a bit for each, and the first
    /// number for which they are others.
    fn readers_ahead(&self, number: u64) -> (u64, u64) {
        let all = self.readers.iter().enumerate();
        let ahead = all.filter(|(_, reader)| reader.greatest > number);
        ahead.fold((0, u64::MAX), |(bits, until), (bit, reader)| {
            (bits | 1 << bit, until.min(reader.greatest))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Confirmation, PACKET_HEAD, RECORD_HEAD, StreamId, WINDOW};
    use crate::{Present, Stream, Written};
    use alloc::collections::BTreeSet;
    use alloc::vec;

    /// Room of a packet with one record.
    const ROOM: usize = PACKET_HEAD + RECORD_HEAD + 1;

    fn sender(readers: usize) -> Sender {
        let stream = Stream { from: 1, to: 2, epoch: 1 };
        Sender::to_readers(StreamId { slice: 0, worker: 0, reader: 0, stream }, readers)
    }

    /// Writes a packet of one record.
    fn write(sender: &mut Sender, key: u32, now: u64) {
        assert!(sender.change(key, now));
        let written = sender.write(now, (ROOM, 1 << 20), |_, out: &mut Vec<u8>| {
            out.push(0);
            Present::Record { fingerprint: now }
        });
        assert!(matches!(written, Written::Packet(_)));
    }

    /// A reader confirms these packets of those on their way.
    fn confirm(sender: &mut Sender, reader: usize, arrived: impl Fn(u64) -> bool, now: u64) {
        let (below, mut bits) = (sender.floor, vec![0; WINDOW as usize / 64]);
        for at in (0..sender.next - below).filter(|at| arrived(below + at)) {
            bits[at as usize / 64] |= 1 << (at % 64);
        }
        let confirmation = Confirmation { number: now, missing: 0, is_swept: true, below, bits };
        sender.confirm(reader as u8, &confirmation, now);
    }

    /// Number of packets that are lost now because others have overtaken them, by the rule as it is
    /// told.
    fn overtaken(sender: &Sender, now: u64) -> u64 {
        let (of_some, of_any) = sender.losses.overtaken(now);
        let is_lost = |(at, flying): &(usize, &Flying)| {
            let (number, age) = (sender.floor + *at as u64, now - flying.sent);
            let readers = sender.readers.iter().enumerate();
            let lacking = readers.filter(|(bit, _)| flying.confirmed & 1 << bit == 0);
            let later = lacking.map(|(_, reader)| reader.greatest.saturating_sub(number)).max();
            let later = later.unwrap_or(0);
            let is_old = later >= REORDERED && age >= of_some || later > 0 && age >= of_any;
            is_old && !flying.is_settled && flying.long.is_none()
        };
        sender.flying.iter().enumerate().filter(is_lost).count() as u64
    }

    /// Otherwise each turn would look at all packets that the reader has not confirmed.
    #[test]
    fn a_reader_that_stands_still_makes_no_look_due() {
        const PACKETS: u64 = 1000;
        let mut sender = sender(2);
        (1..=PACKETS).for_each(|number| write(&mut sender, 7, number * 100_000));
        let now = PACKETS * 100_000 + 500_000;
        confirm(&mut sender, 0, |_| true, now);
        assert_eq!(sender.losses.look_at, u64::MAX);
        confirm(&mut sender, 1, |number| number != PACKETS - 1, now);
        assert!((now..2 * now).contains(&sender.losses.look_at), "packets overtake one");
    }

    /// A look that is left out would have found nothing.
    #[test]
    fn a_look_comes_when_a_packet_is_old_enough() {
        let (mut turns, mut looks, mut lost) = (0, 0, 0);
        for seed in 0..100 {
            let mut random: u64 = seed;
            let mut below = |bound: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005_u64).wrapping_add(1);
                (random >> 33) % bound
            };
            let readers = 1 + below(3) as usize;
            let (mut sender, mut now) = (sender(readers), 1_000_000_000);
            let mut arrived = vec![BTreeSet::new(); readers];
            for _ in 0..500 {
                let most = if below(9) == 0 { 5_000_000 } else { 300_000 };
                now += 1 + below(most);
                now += if below(200) == 0 { REMEMBERED } else { 0 };
                if !sender.is_full() {
                    write(&mut sender, below(50) as u32, now);
                }
                if below(3) == 0 {
                    let reader = below(readers as u64) as usize;
                    let all = sender.floor..sender.next;
                    arrived[reader].extend(all.filter(|_| below(3) == 0));
                    let has = |number| arrived[reader].contains(&number);
                    confirm(&mut sender, reader, has, now);
                    assert_eq!(overtaken(&sender, now), 0, "seed {seed}");
                    continue;
                }
                let (found, before) = (overtaken(&sender, now), sender.counters.lost);
                (turns, lost) = (turns + 1, lost + found);
                if now >= sender.losses.look_at {
                    looks += 1;
                    sender.lose_overtaken(now);
                    sender.advance(now);
                }
                assert_eq!(sender.counters.lost - before, found, "seed {seed}");
            }
        }
        assert!(looks < turns / 2 && lost > 100, "{looks} of {turns}, {lost} lost");
    }
}
