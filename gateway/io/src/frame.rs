//! Frames and batches of them.
//!
//! A frame is a part of a buffer that somebody else owns: a slot of a ring, a piece of a shared
//! memory area, a test's vector. What is before and after it in the buffer is free for headers to
//! grow into, at least [`HEADROOM`] bytes before it as received.

use crate::{Lease, Pool, TakenOver};
use arrayvec::ArrayVec;
use std::mem;

/// Most frames that are handed over at once.
pub const BATCH: usize = 64;

/// Free bytes before every received frame.
pub const HEADROOM: usize = 64;

/// Frames that one call hands over.
pub type Batch<'d> = ArrayVec<Frame<'d>, BATCH>;

/// A frame in a buffer with room around it.
#[derive(Debug, Default)]
pub struct Frame<'d> {
    buffer: &'d mut [u8],
    start: usize,
    end: usize,
    lease: Option<&'d Lease>,
}

impl<'d> Frame<'d> {
    /// The frame `buffer[start..end]`.
    ///
    /// # Panics
    /// When that is no part of the buffer.
    pub fn new(buffer: &'d mut [u8], start: usize, end: usize) -> Self {
        assert!(start <= end && end <= buffer.len());
        Self { buffer, start, end, lease: None }
    }

    /// The frame `buffer[start..end]`, whose buffer who sends it may take over.
    ///
    /// # Panics
    /// When that is no part of the buffer.
    pub fn leased(buffer: &'d mut [u8], start: usize, end: usize, lease: &'d Lease) -> Self {
        Self { lease: Some(lease), ..Self::new(buffer, start, end) }
    }

    /// Takes the frame's buffer over, if it is one of `pool` and on lease; the frame is empty then.
    pub fn take_over(&mut self, pool: Pool) -> Option<TakenOver> {
        let buffer = self.lease?.take(pool)?;
        let Self { start, end, .. } = mem::take(self);
        Some(TakenOver { buffer, start, end })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Its bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Its length, bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free bytes before it.
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Where it begins and ends in its buffer.
    pub fn range(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    /// The buffer up to the frame's end, for who edits the frame with its headroom.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.end]
    }

    /// Moves the frame's ends within its buffer.
    ///
    /// # Panics
    /// When they would not lie in the buffer, in order.
    pub fn set_range(&mut self, start: usize, end: usize) {
        assert!(start <= end && end <= self.buffer.len());
        (self.start, self.end) = (start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_move_within_the_buffer() {
        let mut buffer = [1, 2, 3, 4, 5, 6];
        let mut frame = Frame::new(&mut buffer, 2, 5);
        assert_eq!((frame.bytes(), frame.headroom(), frame.len()), (&[3, 4, 5][..], 2, 3));
        frame.set_range(1, 6);
        assert_eq!(frame.bytes(), [2, 3, 4, 5, 6]);
        frame.set_range(4, 4);
        assert!(frame.is_empty());
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn ends_outside_the_buffer_are_refused() {
        let mut buffer = [0; 4];
        Frame::new(&mut buffer, 0, 4).set_range(0, 5);
    }
}
