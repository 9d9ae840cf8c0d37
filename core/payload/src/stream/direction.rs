//! One direction of a TCP connection: the order of its bytes, the map of its sequence numbers, held
//! bytes, and acknowledgments.
//!
//! Three numbers of the sender divide the stream: `acked` <= `next` <= the end of what came. Bytes
//! before `acked` are at the receiver. Bytes before `next` have passed the protocol. The rest is
//! held. `confirmed` is the end of the bytes that are acknowledged to the sender: those before
//! `acked`, and what the framework has acknowledged itself. It moves further than `acked` only
//! while `acked` equals `next`: so the sender still has every byte that passes later but was not
//! held, and its timer covers them all.

mod saved;

use super::edits::{Amount, Edits};
use super::held::WINDOW;
use super::sequence::{distance, earlier, is_before, later};
use super::work::Pool;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Result of a protocol that reads bytes in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The first bytes pass, with the edits of the draft.
    Pass(usize),
    /// More bytes are needed.
    More,
    /// The flow is no ALG's any more.
    Leave,
}

/// A protocol, as a direction sees it.
pub(crate) trait Reader {
    /// Reads bytes in order. Edits go to the draft, with offsets as numbers.
    fn read(&mut self, bytes: &[u8], draft: &mut Edits) -> Read;
    /// The flow leaves the protocol: the stream ends in a message, there is no buffer, or a message
    /// is too long.
    fn leave(&mut self, cause: Cause);
    /// True if the flow has left the protocol.
    fn has_left(&self) -> bool;
}

/// Cause of a direction, not of the protocol, to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The stream ends in the middle of a message.
    Truncated,
    /// No work is free, or no room for edits.
    NoBuffer,
    /// The message exceeds the window.
    TooLong,
}

/// Data of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data<'p> {
    pub(crate) sequence: u32,
    pub(crate) bytes: &'p [u8],
    pub(crate) is_last: bool,
}

impl Data<'_> {
    fn end(&self) -> u32 {
        self.sequence.wrapping_add(self.bytes.len() as u32)
    }
}

/// What became of a segment's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// The receiver's number of the first byte that leaves.
    pub(crate) sequence: u32,
    /// True if the end of the stream leaves with the bytes.
    pub(crate) is_last: bool,
    /// Number that the framework acknowledges to the sender at once.
    pub(crate) acknowledge: Option<u32>,
    /// True if the segment could neither pass nor be held.
    pub(crate) is_dropped: bool,
}

/// Memory for the edits of one segment.
#[derive(Debug)]
pub(crate) struct Scratch {
    /// Edits of one message, with offsets as numbers.
    draft: Edits,
    /// Edits of all messages that pass with the segment.
    edits: Edits,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Self { draft: Edits::new(Amount::SMALL), edits: Edits::new(Amount::LARGE) }
    }

    /// Empty memory for the edits of one message.
    pub(crate) fn draft(&mut self) -> &mut Edits {
        self.draft.clear();
        &mut self.draft
    }

    /// Lets the protocol read bytes from number `next` on, message by message, as long as any edits
    /// of the next message have `room` beside those before.
    fn pass(
        &mut self,
        (next, bytes, is_end): (u32, &[u8], bool),
        room: Amount,
        reader: &mut dyn Reader,
    ) -> Passed {
        self.edits.clear();
        let mut used = 0;
        while used < bytes.len() && !reader.has_left() {
            if !self.edits.amount().fits(Amount::SMALL, room) {
                return Passed { used, is_full: true };
            }
            self.draft.clear();
            match reader.read(&bytes[used..], &mut self.draft) {
                Read::Pass(count) => {
                    let is_added = self.edits.append(&self.draft, next.wrapping_add(used as u32));
                    debug_assert!(is_added, "there is room for the edits of any message");
                    used += count.clamp(1, bytes.len() - used);
                }
                Read::More if is_end => reader.leave(Cause::Truncated),
                Read::More => return Passed { used, is_full: false },
                Read::Leave => {}
            }
        }
        Passed { used: bytes.len(), is_full: false }
    }
}

/// What the protocol has read.
struct Passed {
    /// Number of bytes that pass.
    used: usize,
    /// True if the edits of a further message may have no room until the receiver has acknowledged
    /// others.
    is_full: bool,
}

const NO_WORK: u16 = u16::MAX;

/// Largest distance of a number behind `acked`: that of any window (RFC 7323 section 2.3). Numbers
/// before `acked` are half as far away at most. So the order of two numbers is sure.
const LARGEST: i32 = 1 << 30;

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Direction {
    next: u32,
    acked: u32,
    confirmed: u32,
    /// Sum of the changes of acknowledged edits.
    older: u32,
    /// Number of the borrowed work, or `NO_WORK`.
    work: u16,
    /// Last value of the sender's window field.
    pub(crate) window: u16,
    /// Largest segment that the sender of this direction accepts, bytes.
    pub(crate) mss: u16,
    /// True if the SYN was seen.
    pub(crate) is_started: bool,
    /// True if the FIN has left.
    pub(crate) is_ended: bool,
    /// Last timestamp of the sender (RFC 7323).
    pub(crate) stamp: u32,
}

impl Direction {
    pub(crate) const fn new() -> Self {
        Self {
            next: 0,
            acked: 0,
            confirmed: 0,
            older: 0,
            work: NO_WORK,
            window: 0,
            mss: 536,
            is_started: false,
            is_ended: false,
            stamp: 0,
        }
    }

    /// What the receiver's numbers are ahead of the sender's, from the next byte on.
    pub(crate) fn sum(&self, pool: &Pool) -> u32 {
        self.next_forward(pool).wrapping_sub(self.next)
    }

    /// True if bytes are acknowledged to their sender that the receiver has not acknowledged: only
    /// this side of the connection still has them.
    pub(crate) fn owes(&self) -> bool {
        is_before(self.acked, self.confirmed)
    }

    /// Starts the stream behind a SYN.
    pub(crate) fn start(&mut self, syn: u32, mss: Option<u16>) {
        self.next = syn.wrapping_add(1);
        (self.acked, self.confirmed) = (self.next, self.next);
        self.mss = mss.unwrap_or(536).max(64);
        self.is_started = true;
    }

    /// True if a number is the next one that the sender sends.
    pub(crate) fn is_next(&self, at: u32, pool: &Pool) -> bool {
        at == self.next || at == self.received(pool)
    }

    /// True if a number is so close to the next one that its byte could be held.
    pub(crate) fn is_near(&self, at: u32, pool: &Pool) -> bool {
        distance(at, self.received(pool)).unsigned_abs() < WINDOW as u32
    }

    /// Gives the borrowed memory back.
    pub(crate) fn close(&mut self, pool: &mut Pool) {
        if self.work != NO_WORK {
            pool.give_back(self.work);
            self.work = NO_WORK;
        }
    }

    fn has_held(&self, pool: &Pool) -> bool {
        self.work != NO_WORK && !pool.get(self.work).held.is_empty()
    }

    /// End of what the sender has sent in order.
    fn received(&self, pool: &Pool) -> u32 {
        if self.has_held(pool) {
            later(self.next, pool.get(self.work).held.end())
        } else {
            self.next
        }
    }

    /// Bytes that the protocol needs more of.
    pub(crate) fn waiting<'p>(&self, pool: &'p Pool) -> &'p [u8] {
        if self.work == NO_WORK {
            return &[];
        }
        let held = &pool.get(self.work).held;
        let skipped = distance(self.next, held.base()).max(0) as usize;
        held.contiguous().get(skipped..).unwrap_or_default()
    }

    /// Order of a number to that of the next byte.
    pub(crate) fn order(&self, at: u32, pool: &Pool) -> Ordering {
        distance(at, self.received(pool)).cmp(&0)
    }

    /// The receiver's number of a sender's number.
    pub(crate) fn forward(&self, at: u32, pool: &Pool) -> u32 {
        if self.work == NO_WORK {
            return at.wrapping_add(self.older);
        }
        pool.get(self.work).edits.forward(at, self.older)
    }

    /// The last sender's number that is not after a receiver's number.
    pub(crate) fn back(&self, at: u32, pool: &Pool) -> u32 {
        if self.work == NO_WORK {
            return at.wrapping_sub(self.older);
        }
        pool.get(self.work).edits.back(at, self.older)
    }

    /// The receiver's number of the next byte that leaves.
    pub(crate) fn next_forward(&self, pool: &Pool) -> u32 {
        self.forward(self.next, pool)
    }

    /// The receiver's number of a segment without data. The end of held bytes becomes the next byte
    /// that leaves: the receiver has seen nothing behind it.
    pub(crate) fn forward_empty(&self, at: u32, pool: &Pool) -> u32 {
        let is_behind_held = is_before(self.next, at) && at == self.received(pool);
        self.forward(if is_behind_held { self.next } else { at }, pool)
    }

    /// The receiver acknowledges its number `at`. Returns the number to acknowledge to the sender,
    /// and true if this is news.
    pub(crate) fn acknowledge(&mut self, at: u32, pool: &mut Pool) -> (u32, bool) {
        let at = self.back(at, pool);
        let old = self.confirmed;
        if is_before(at, self.acked) {
            return (at, false);
        }
        // More than was sent cannot be acknowledged; the receiver of this lie may judge it.
        if is_before(self.next, at) {
            return (at, true);
        }
        self.acked = at;
        self.confirmed = later(at, self.confirmed);
        if self.work != NO_WORK {
            let edits = &mut pool.get_mut(self.work).edits;
            self.older = self.older.wrapping_add(edits.settle(at));
            self.confirm(pool);
            self.tidy(pool);
        }
        (self.confirmed, self.confirmed != old)
    }

    /// Acknowledges all held bytes in order, if nothing else is on its way to the receiver.
    fn confirm(&mut self, pool: &Pool) {
        if self.acked == self.next {
            self.confirmed = later(self.confirmed, self.received(pool));
        }
    }

    /// Forgets bytes that nobody needs any more.
    fn tidy(&mut self, pool: &mut Pool) {
        let is_kept = is_before(self.acked, self.confirmed);
        let needed = if is_kept { earlier(self.acked, self.next) } else { self.next };
        let work = pool.get_mut(self.work);
        work.held.trim(needed);
        let is_edited = !work.edits.is_empty();
        if work.held.is_empty() {
            // The base stays near, however long there are edits.
            work.held.reset(self.next);
            if !is_edited {
                self.close(pool);
            }
        } else if !is_edited {
            pool.reduce(self.work);
        }
    }

    /// True if a number is too far away to be one of the connection.
    fn is_far(&self, at: u32) -> bool {
        !(-LARGEST / 2..=LARGEST).contains(&distance(at, self.acked))
    }

    /// Takes the data of a segment, and appends the bytes that leave to `out`.
    pub(crate) fn take(
        &mut self,
        data: Data<'_>,
        reader: &mut dyn Reader,
        (pool, scratch): (&mut Pool, &mut Scratch),
        out: &mut Vec<u8>,
    ) -> Taken {
        // A flow that is not read needs the order of numbers for its work alone.
        if self.is_far(data.sequence) && (self.work != NO_WORK || !reader.has_left()) {
            return Taken { is_dropped: true, ..Taken::default() };
        }
        if is_before(self.received(pool), data.sequence) {
            return self.take_early(data, reader, pool, out);
        }
        let before = self.next;
        let is_placed = self.read(data, reader, (pool, scratch));
        if !is_placed {
            return Taken { is_dropped: true, ..Taken::default() };
        }
        let end = data.end();
        let is_last = data.is_last && (self.next == end || self.next == end.wrapping_add(1));
        let to = if self.next == before { earlier(end, self.next) } else { self.next };
        let from = self.first_to_send(earlier(data.sequence, before), pool);
        let from = if is_before(to, from) { to } else { from };
        self.write(data, (from, to), pool, out);
        let sequence = self.forward(from, pool);
        if is_last {
            (self.next, self.is_ended) = (end.wrapping_add(1), true);
        }
        let told = self.confirmed;
        let mut acknowledge = None;
        if self.work != NO_WORK {
            self.confirm(pool);
            // A repeated segment of held bytes is acknowledged again.
            let is_held = is_before(self.next, self.received(pool)) && self.acked == self.next;
            let is_news = self.confirmed != told || out.is_empty();
            acknowledge = (is_held && is_news).then_some(self.confirmed);
            self.tidy(pool);
        }
        Taken { sequence, is_last, acknowledge, is_dropped: false }
    }

    /// Number of the first byte to send with a segment: earlier than the segment, if the framework
    /// alone still has bytes that the receiver lacks.
    fn first_to_send(&self, sequence: u32, pool: &Pool) -> u32 {
        let is_kept = is_before(self.acked, self.confirmed) && self.has_held(pool);
        if is_kept { earlier(sequence, self.acked) } else { sequence }
    }

    /// Takes a segment that came before its turn.
    fn take_early(
        &mut self,
        data: Data<'_>,
        reader: &dyn Reader,
        pool: &mut Pool,
        out: &mut Vec<u8>,
    ) -> Taken {
        if reader.has_left() {
            let sequence = self.forward(data.sequence, pool);
            out.extend_from_slice(data.bytes);
            self.next = later(self.next, data.end());
            if self.work != NO_WORK {
                pool.get_mut(self.work).held.drop_beyond();
                self.tidy(pool);
            }
            return Taken { sequence, is_last: data.is_last, ..Taken::default() };
        }
        if self.work == NO_WORK {
            self.work = pool.borrow(self.next).unwrap_or(NO_WORK);
        }
        let is_held = self.work != NO_WORK && {
            let held = &mut pool.get_mut(self.work).held;
            if held.is_empty() {
                held.reset(self.next);
            }
            let is_near = distance(data.sequence, held.base()).unsigned_abs() < WINDOW as u32;
            is_near && held.insert(data.sequence, data.bytes)
        };
        if self.work != NO_WORK {
            self.tidy(pool);
        }
        // Equal acknowledgments make the sender repeat the missing segment (RFC 5681).
        let acknowledge = Some(self.confirmed);
        Taken { sequence: 0, is_last: false, acknowledge, is_dropped: !is_held }
    }

    /// Lets the protocol read what is new, and holds the rest. False: the segment has no place.
    fn read(
        &mut self,
        data: Data<'_>,
        reader: &mut dyn Reader,
        (pool, scratch): (&mut Pool, &mut Scratch),
    ) -> bool {
        let is_held = self.has_held(pool);
        if is_held && !pool.get_mut(self.work).held.insert(data.sequence, data.bytes) {
            let end = pool.get(self.work).held.end();
            let undecided = distance(end, self.next).max(0) as usize;
            if undecided + data.bytes.len() > WINDOW {
                reader.leave(Cause::TooLong);
                self.next = later(self.next, end);
            }
            return false;
        }
        let is_end = data.is_last && !is_before(data.end(), self.received(pool));
        let (start, bytes) = if is_held {
            let held = &pool.get(self.work).held;
            (held.base(), held.contiguous())
        } else {
            (data.sequence, data.bytes)
        };
        let skipped = distance(self.next, start).max(0) as usize;
        let bytes = bytes.get(skipped..).unwrap_or_default();
        let room = pool.room((self.work != NO_WORK).then_some(self.work));
        let Passed { used, is_full } = scratch.pass((self.next, bytes, is_end), room, reader);
        let rest = bytes.len() - used;
        if !scratch.edits.is_empty() && !self.edit(&scratch.edits, pool) {
            reader.leave(Cause::NoBuffer);
        }
        self.next = self.next.wrapping_add(used as u32);
        if is_full {
            // Nobody has acknowledged the rest: where bytes that are held were acknowledged, no
            // edits waited, and a message had room. So the sender repeats the rest.
            if is_held {
                pool.get_mut(self.work).held.forget_from(self.next);
            }
            return is_before(data.sequence, self.next);
        }
        if rest > 0 && !is_held && !self.hold(&data.bytes[data.bytes.len() - rest..], pool) {
            reader.leave(Cause::NoBuffer);
            self.next = self.next.wrapping_add(rest as u32);
        }
        if reader.has_left() && self.work != NO_WORK {
            self.next = later(self.next, self.received(pool));
            pool.get_mut(self.work).held.drop_beyond();
        }
        true
    }

    /// Holds bytes from `next` on, where none are held. False: no work is free.
    fn hold(&mut self, bytes: &[u8], pool: &mut Pool) -> bool {
        if self.work == NO_WORK {
            self.work = pool.borrow(self.next).unwrap_or(NO_WORK);
        }
        self.work != NO_WORK && {
            let held = &mut pool.get_mut(self.work).held;
            held.reset(self.next);
            held.insert(self.next, bytes)
        }
    }

    /// Remembers edits. False: there is no room.
    fn edit(&mut self, edits: &Edits, pool: &mut Pool) -> bool {
        if self.work == NO_WORK {
            self.work = pool.borrow(self.next).unwrap_or(NO_WORK);
        }
        if self.work == NO_WORK {
            return false;
        }
        let own = &pool.get(self.work).edits;
        if !own.amount().fits(edits.amount(), own.limit()) {
            pool.enlarge(self.work);
        }
        pool.get_mut(self.work).edits.append(edits, 0)
    }

    /// Appends the receiver's bytes for a range of the sender's numbers, from what is held and from
    /// the segment.
    fn write(&self, data: Data<'_>, (from, to): (u32, u32), pool: &Pool, out: &mut Vec<u8>) {
        if self.work == NO_WORK {
            let skipped = distance(from, data.sequence).max(0) as usize;
            let count = distance(to, from).max(0) as usize;
            out.extend_from_slice(data.bytes.get(skipped..skipped + count).unwrap_or_default());
            return;
        }
        let work = pool.get(self.work);
        let mut copy = |start: u32, bytes: &[u8], (from, to): (u32, u32)| -> u32 {
            let end = earlier(to, start.wrapping_add(bytes.len() as u32));
            if is_before(from, start) || !is_before(from, end) {
                return from;
            }
            let range = distance(from, start) as usize..distance(end, start) as usize;
            let Some(bytes) = bytes.get(range) else { return from };
            work.edits.write(from, bytes, out);
            end
        };
        let (base, held) = (work.held.base(), work.held.contiguous());
        // What is held comes first: a later segment cannot change it.
        let at = copy(base, held, (from, to));
        let until = if is_before(at, base) && !held.is_empty() { earlier(base, to) } else { to };
        let at = copy(data.sequence, data.bytes, (at, until));
        copy(base, held, (at, to));
    }
}
