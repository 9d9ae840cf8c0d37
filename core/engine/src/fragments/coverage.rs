//! The bytes of a datagram that its fragments have brought so far. Every piece is remembered as it
//! came, sorted and not merged. So a repeated fragment can be told from a fragment that overlaps
//! others. The contents of a repetition are not compared, because the first may be gone. A
//! repetition is dropped, so its contents need not be trusted.
//!
//! No two pieces share a byte; no piece lies beyond the last.

use super::Fragment;
use crate::DropReason;

/// Most fragments of one datagram that a limit may allow. The largest datagram in packets of 576
/// bytes takes 119.
pub(super) const MAX_PIECES: usize = 128;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Piece {
    start: u16,
    end: u16,
}

/// Reason why a fragment finds no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// A piece with this range has come before: networks repeat packets.
    Duplicate,
    /// The fragment shares bytes with another piece without being its repetition, or contradicts
    /// the end of the datagram.
    Overlap,
    /// The number of remembered pieces has reached its limit.
    Full,
}

impl Misfit {
    /// The drop reason of the fragment.
    pub(super) const fn reason(self) -> DropReason {
        match self {
            Self::Duplicate | Self::Overlap => DropReason::FragmentOverlap,
            Self::Full => DropReason::FragmentLimit,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Coverage {
    pieces: [Piece; MAX_PIECES],
    count: usize,
    /// Bytes in the pieces.
    covered: u16,
    /// Length of the datagram's payload, once its last fragment has come.
    end: Option<u16>,
}

impl Coverage {
    pub(super) const EMPTY: Self =
        Self { pieces: [Piece { start: 0, end: 0 }; MAX_PIECES], count: 0, covered: 0, end: None };

    /// True if every byte up to the end has come.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.covered)
    }

    /// Finds the place of a fragment among at most `most`; [`Coverage::insert`] puts it there. The
    /// fragment is not empty and not too long.
    pub(super) fn place(&self, fragment: &Fragment, most: usize) -> Result<usize, Misfit> {
        let piece = Piece::of(fragment);
        let pieces = &self.pieces[..self.count];
        let place = pieces.partition_point(|p| p.start < piece.start);
        let (before, after) = pieces.split_at(place);
        if after.first() == Some(&piece) && fragment.more == (self.end != Some(piece.end)) {
            return Err(Misfit::Duplicate);
        }
        let overlaps = before.last().is_some_and(|p| p.end > piece.start)
            || after.first().is_some_and(|p| p.start < piece.end);
        let beyond_end = match self.end {
            Some(end) => !fragment.more || piece.end > end,
            None => !fragment.more && !after.is_empty(),
        };
        if overlaps || beyond_end {
            Err(Misfit::Overlap)
        } else if self.count >= most.min(MAX_PIECES) {
            Err(Misfit::Full)
        } else {
            Ok(place)
        }
    }

    pub(super) fn insert(&mut self, place: usize, fragment: &Fragment) {
        let piece = Piece::of(fragment);
        self.pieces.copy_within(place..self.count, place + 1);
        self.pieces[place] = piece;
        self.count += 1;
        self.covered += piece.end - piece.start;
        if !fragment.more {
            self.end = Some(piece.end);
        }
    }
}

impl Piece {
    fn of(fragment: &Fragment) -> Self {
        Self { start: fragment.start, end: fragment.end as u16 }
    }
}
