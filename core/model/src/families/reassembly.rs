//! 20.19: the fragments of a packet in a tunnel, put together.

use super::headers::Six;
use natgate_engine::{Config, DropReason};

/// Most fragments of a packet, and most packets.
const MOST: (usize, usize) = (64, 4096);
/// A source may use one part in this number.
const SHARE: usize = 8;
/// Memory that a packet costs besides its payload, bytes.
const OVERHEAD: usize = 512;

/// A fragment: its offset, what it carries, true if more follow, and its length as received.
#[derive(Clone, Debug)]
struct Piece {
    offset: usize,
    payload: Vec<u8>,
    more: bool,
    received: usize,
    /// True if it was marked on a congested way.
    marked: bool,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.payload.len()
    }

    /// True if no packet has both fragments.
    fn contradicts(&self, other: &Self) -> bool {
        let overlaps = self.offset < other.end() && other.offset < self.end();
        let is_behind = |last: &Self, one: &Self| !last.more && one.end() > last.end();
        let are_last = !self.more && !other.more;
        overlaps || is_behind(self, other) || is_behind(other, self) || are_last
    }
}

/// Fragments of a packet.
#[derive(Clone, Debug)]
struct Parts {
    /// Source, and identification. All have the same destination.
    name: (u128, u32),
    /// End of the time that they wait, nanoseconds.
    until: u64,
    /// The header of the first fragment.
    header: Vec<u8>,
    pieces: Vec<Piece>,
    /// The reason why the packet is lost, and what is still to come of it.
    ended: Option<DropReason>,
}

/// A packet that is whole again.
pub(crate) struct Whole {
    pub(crate) bytes: Vec<u8>,
    /// Number of its fragments.
    pub(crate) fragments: u64,
    /// Their lengths together.
    pub(crate) received: usize,
}

/// Fragments that are lost: their number, their bytes, and the reason.
pub(crate) type Lost = (u64, u64, DropReason);

/// The fragments that wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiting {
    parts: Vec<Parts>,
}

impl Waiting {
    /// Ends what is due.
    pub(crate) fn expire(&mut self, now: u64) -> Vec<Lost> {
        let (due, rest) =
            std::mem::take(&mut self.parts).into_iter().partition(|one| one.until <= now);
        self.parts = rest;
        let due: Vec<Parts> = due;
        let waited = due.iter().filter(|parts| parts.ended.is_none());
        waited.map(|parts| parts.lost(DropReason::FragmentUnmatched)).collect()
    }

    /// Takes a fragment of a packet. `payer`: whose share a source uses.
    ///
    /// # Errors
    /// Reason of the drop, and what is lost with the fragment.
    pub(crate) fn take(
        &mut self,
        config: &Config,
        now: u64,
        six: &Six,
        payer: impl Fn(u128) -> u128,
    ) -> Result<Option<Whole>, (DropReason, Option<Lost>)> {
        let piece = Piece {
            offset: six.transport.offset,
            payload: six.transport.bytes.to_vec(),
            more: six.transport.more,
            received: six.bytes.len(),
            marked: six.bytes[1] & 0x30 == 0x30,
        };
        if piece.end() > 65_535 {
            return Err((DropReason::FragmentTooLong, None));
        }
        if piece.payload.is_empty() || piece.more && !piece.payload.len().is_multiple_of(8) {
            return Err((DropReason::FragmentTiny, None));
        }
        let name = (six.source, six.fragment.map_or(0, |(identification, _)| identification));
        let known = self.parts.iter().find(|one| one.name == name);
        if let Some(reason) = known.and_then(|one| one.ended) {
            return Err((reason, None));
        }
        let memory = config.limits.fragment_memory;
        let new = usize::from(known.is_none());
        let is_too_much = |parts: &[&Parts], share: usize| {
            let used: usize = parts.iter().map(|one| one.cost()).sum();
            used + new * OVERHEAD + piece.payload.len() > memory / share
                || parts.len() + new > MOST.1 / share
        };
        let all: Vec<&Parts> = self.parts.iter().collect();
        let is_payers = |one: &&Parts| payer(one.name.0) == payer(name.0);
        let of_payer: Vec<&Parts> = self.parts.iter().filter(is_payers).collect();
        if is_too_much(&all, 1) || is_too_much(&of_payer, SHARE) {
            return Err((DropReason::FragmentLimit, None));
        }
        let place = self.parts.iter().position(|one| one.name == name).unwrap_or_else(|| {
            let until = now + config.timeouts.fragment.as_nanos() as u64;
            let (header, pieces) = (Vec::new(), Vec::new());
            self.parts.push(Parts { name, until, header, pieces, ended: None });
            self.parts.len() - 1
        });
        let parts = &mut self.parts[place];
        let is_wrong = parts.pieces.iter().any(|one| one.contradicts(&piece));
        if is_wrong || parts.pieces.len() >= MOST.0 {
            let limit =
                if is_wrong { DropReason::FragmentOverlap } else { DropReason::FragmentLimit };
            let lost = parts.lost(limit);
            parts.pieces.clear();
            parts.ended = Some(limit);
            return Err((limit, Some(lost)));
        }
        if piece.offset == 0 {
            parts.header = six.bytes[..40].to_vec();
        }
        parts.pieces.push(piece);
        let whole = parts.whole();
        if whole.is_some() {
            self.parts.remove(place);
        }
        Ok(whole)
    }
}

impl Parts {
    fn cost(&self) -> usize {
        OVERHEAD + self.pieces.iter().map(|one| one.payload.len()).sum::<usize>()
    }

    fn received(&self) -> usize {
        self.pieces.iter().map(|one| one.received).sum()
    }

    fn lost(&self, reason: DropReason) -> Lost {
        (self.pieces.len() as u64, self.received() as u64, reason)
    }

    /// The packet, if no fragment is missing. The fragments do not overlap.
    fn whole(&self) -> Option<Whole> {
        let len: usize = self.pieces.iter().map(|one| one.payload.len()).sum();
        let is_whole = self.pieces.iter().any(|one| !one.more && one.end() == len);
        if !is_whole || self.header.is_empty() {
            return None;
        }
        let mut pieces = self.pieces.clone();
        pieces.sort_by_key(|one| one.offset);
        let mut bytes = self.header.clone();
        super::words::put(&mut bytes, 4, len as u16);
        bytes[6] = 4;
        if pieces.iter().any(|one| one.marked) {
            bytes[1] |= 0x30;
        }
        pieces.iter().for_each(|one| bytes.extend(&one.payload));
        let (fragments, received) = (self.pieces.len() as u64, self.received());
        Some(Whole { bytes, fragments, received })
    }
}
