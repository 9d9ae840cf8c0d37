//! The end of a packet on its way: all readers have confirmed it, or it is lost.

use super::long::LONG;
use super::{Checkpoint, Flying, MOST_READERS, Sender};
use crate::packet::{Confirmation, WINDOW};
use core::mem::take;

impl Sender {
    /// A reader has confirmed packets. A confirmation of a packet that was never sent is ignored,
    /// and so is one of a reader that there is not.
    pub fn confirm(&mut self, reader: u8, confirmation: &Confirmation, now: u64) {
        let greatest = confirmation.greatest();
        let all = u64::MAX >> (MOST_READERS - self.readers.len());
        let Some(its) = self.readers.get_mut(usize::from(reader)) else { return };
        if greatest >= self.next {
            return;
        }
        if confirmation.number > its.latest {
            its.latest = confirmation.number;
            its.missing = confirmation.missing;
        }
        let before = its.greatest;
        its.greatest = before.max(greatest);
        its.is_swept |= confirmation.is_swept;
        if !self.is_swept && self.readers.iter().all(|reader| reader.is_swept) {
            self.is_swept = true;
            self.released.append(&mut self.early);
        }
        for at in 0..self.flying.len() {
            let number = self.floor + at as u64;
            if number > greatest {
                break;
            }
            let Flying { sent, confirmed, is_settled, is_overtaken, long, .. } =
                &mut self.flying[at];
            if *is_settled && !*is_overtaken || !confirmation.contains(number) {
                continue;
            }
            // A packet of before the floor may count as arrived. One on its way, lost or not, has
            // arrived.
            if *confirmed & 1 << reader == 0 && long.is_none() {
                let took = now.saturating_sub(*sent);
                if number < before {
                    self.losses.note_overtaken(took, now);
                } else if number == greatest && !*is_settled {
                    self.losses.measure(took);
                }
            }
            *confirmed |= 1 << reader;
            if *confirmed == all {
                match *is_settled {
                    true => self.losses.end_watch(Some(number)),
                    false => self.settle(at, number, now),
                }
            }
        }
        self.pace.end_confirmation();
        self.lose_overtaken(now);
        self.advance(now);
    }

    /// Packets that were sent before a time, and are unconfirmed, count as lost. A long record has
    /// a time of its own.
    pub fn expire(&mut self, before: u64, now: u64) {
        for at in 0..self.flying.len() {
            let Flying { sent, is_settled, long, .. } = self.flying[at];
            if sent >= before {
                break;
            }
            if long.is_some() {
                self.lose_long(at, now);
            } else if !is_settled {
                self.lose(at);
            }
        }
        self.losses.end_watch(None);
        self.advance(now);
    }

    /// A packet has arrived at all readers.
    fn settle(&mut self, at: usize, number: u64, now: u64) {
        let Flying { sent, ended, long, .. } = self.flying[at];
        if long.is_some() {
            let took = now.saturating_sub(sent);
            let needed = (0..self.patience).find(|doublings| LONG << doublings >= 2 * took);
            self.patience = needed.unwrap_or(self.patience);
        }
        self.shorten(at);
        self.losses.note_arrived(now);
        let took = long.is_none().then_some(now.saturating_sub(sent));
        self.pace.note_arrived(ended, took);
        let flying = &mut self.flying[at];
        flying.is_settled = true;
        let (keys, again) = (take(&mut flying.keys), take(&mut flying.again));
        self.counters.waits.note(now, (flying.since, keys.len()), &again);
        for key in keys {
            self.end_long(key, number);
            if self.mark(key) == 0 && self.last[key as usize] == number as u32 {
                self.shared.remove(key);
            }
            if let Some(checkpoint) = &mut self.checkpoint
                && number >= checkpoint.from
            {
                checkpoint.owed.remove(key);
            }
            if !self.awaited.is_empty() {
                self.awaited.settle(key, number);
            }
            if !self.resting.is_empty() {
                self.end_rests(key, number);
            }
        }
    }

    /// A packet that tells of the end of a key's mapping has arrived, or a later one with the key.
    fn end_rests(&mut self, key: u32, number: u64) {
        let ended = (key, 0, 0)..=(key, number, u128::MAX);
        while let Some(end) = self.resting.range(ended.clone()).next().copied() {
            self.resting.remove(&end);
            let to = if self.is_swept { &mut self.released } else { &mut self.early };
            to.push(end.2);
        }
    }

    /// The last packets, this number, were not sent: their keys are to be sent again.
    pub fn note_unsent(&mut self, number: usize, now: u64) {
        for at in self.flying.len().saturating_sub(number)..self.flying.len() {
            if !self.flying[at].is_settled {
                self.lose(at);
            }
        }
        self.advance(now);
    }

    pub(super) fn lose(&mut self, at: usize) {
        self.shorten(at);
        self.pace.note_lost();
        let flying = &mut self.flying[at];
        flying.is_settled = true;
        let (since, again) = (flying.since, take(&mut flying.again));
        let number = self.floor + at as u64;
        self.counters.lost += 1;
        for key in take(&mut flying.keys) {
            self.end_long(key, number);
            let of_key = again.iter().find(|(again, _)| *again == key);
            let since = of_key.map_or(since, |(_, since)| *since);
            if self.last[key as usize] == number as u32 {
                self.lost.insert(key);
                self.awaited.note_lost(key);
            }
            if self.lost.contains(key) {
                self.change_again(key, since);
            } else if let Some(later) = self.on_its_way(key) {
                self.flying[later].wait_since(key, since);
            }
            self.owe(key, number);
        }
    }

    /// The place of the last packet with a key, if the packet is on its way.
    fn on_its_way(&self, key: u32) -> Option<usize> {
        let at = self.last_packet(key).checked_sub(self.floor)? as usize;
        self.flying.get(at).is_some_and(|flying| !flying.is_settled).then_some(at)
    }

    /// A packet with a key was lost. If it was sent before the checkpoint, a later one with the key
    /// must arrive.
    fn owe(&mut self, key: u32, number: u64) {
        let last = self.last_packet(key);
        let is_on_its_way = self.on_its_way(key).is_some();
        if let Some(Checkpoint { from, owed }) = &mut self.checkpoint
            && number < *from
            && (self.lost.contains(key) || last >= *from && is_on_its_way)
        {
            owed.insert(key);
        }
    }

    /// Raises the floor beyond packets that have arrived or are lost. It waits for one that is
    /// watched for, unless half of the window has gone after that.
    pub(super) fn advance(&mut self, now: u64) {
        while self.flying.front().is_some_and(|flying| flying.is_settled) {
            let has_room = self.next - self.floor < WINDOW / 2;
            if has_room && self.losses.watches(self.floor, now) {
                break;
            }
            self.flying.pop_front();
            self.floor += 1;
        }
    }
}
