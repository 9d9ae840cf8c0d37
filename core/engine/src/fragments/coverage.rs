//! Which bytes of a datagram its fragments have brought so far. Every piece is remembered as it
//! came, sorted, none merged: so a repeated fragment can be told from one that overlaps others,
//! which a merged range could not do. What a repetition carries is not compared (the first may be
//! gone): it is dropped, so it need not be trusted.
//!
//! No two pieces share a byte; none lies beyond the last one.

use super::Fragment;
use crate::DropReason;

/// Most fragments of one datagram: the largest datagram in packets of 576 bytes takes 119.
pub(super) const MAX_PIECES: usize = 128;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Piece {
    start: u16,
    end: u16,
}

/// Why a fragment finds no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The very same range has come before: networks repeat packets.
    Duplicate,
    /// It shares bytes with another piece but is not its repetition, or contradicts where the
    /// datagram ends.
    Overlap,
    /// There are as many pieces as can be remembered.
    Full,
}

impl Misfit {
    /// Why the fragment is dropped.
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
    /// Where the datagram ends, once its last fragment is there.
    end: Option<u16>,
}

impl Coverage {
    pub(super) const EMPTY: Self =
        Self { pieces: [Piece { start: 0, end: 0 }; MAX_PIECES], count: 0, covered: 0, end: None };

    /// Whether every byte up to the end is there.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.covered)
    }

    /// The place where a fragment fits in; [`Coverage::insert`] puts it there. The fragment is not
    /// empty and not too long.
    pub(super) fn place(&self, fragment: &Fragment) -> Result<usize, Misfit> {
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
        } else if self.count == MAX_PIECES {
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
