//! Frames and batches of them.
//!
//! A frame is a part of a buffer with another owner: a slot of a ring, a piece of a shared memory
//! area, a test's vector. The bytes of the buffer before and after the frame are free for headers
//! to grow into; a received frame has at least [`HEADROOM`] bytes before it.

use crate::{Lease, Pool, TakenOver};
use arrayvec::ArrayVec;
use std::mem;

/// Most frames of one call.
pub const BATCH: usize = 64;

/// Free bytes before every received frame.
pub const HEADROOM: usize = 64;

/// Frames of one call.
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
    /// If the range is no part of the buffer.
    pub fn new(buffer: &'d mut [u8], start: usize, end: usize) -> Self {
        assert!(start <= end && end <= buffer.len());
        Self { buffer, start, end, lease: None }
    }

    /// The frame `buffer[start..end]`. The device that sends it may take ownership of the buffer.
    ///
    /// # Panics
    /// If the range is no part of the buffer.
    pub fn leased(buffer: &'d mut [u8], start: usize, end: usize, lease: &'d Lease) -> Self {
        Self { lease: Some(lease), ..Self::new(buffer, start, end) }
    }

    /// Takes ownership of the frame's buffer, if it is leased and belongs to `pool`. The frame is
    /// empty then.
    pub fn take_over(&mut self, pool: Pool) -> Option<TakenOver> {
        let buffer = self.lease?.take(pool)?;
        let Self { start, end, .. } = mem::take(self);
        Some(TakenOver { buffer, start, end })
    }

    /// Bytes of the frame.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Bytes of the frame, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Length, bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True if the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free bytes before the frame.
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Offsets of the frame's first byte and of its end in the buffer.
    pub fn range(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    /// Buffer up to the frame's end, for edits that use the headroom.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.end]
    }

    /// Moves the frame's ends within its buffer.
    ///
    /// # Panics
    /// If the range does not lie in the buffer, in order.
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
