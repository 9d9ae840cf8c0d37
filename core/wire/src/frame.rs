//! A frame, or the packet in it, in a buffer with room around it.
//!
//! One type goes from the device that receives to the device that sends: the engine changes packets
//! where they lie, and no step copies them. The buffer has another owner: a slot of a ring, a piece
//! of a shared memory area, a test's vector. Its bytes before the frame are free for headers to
//! grow into.

use crate::{Lease, Pool, TakenOver};
use core::mem;

/// Number of the realms that a frame can name: 0 to 4,095.
pub const REALMS: u16 = 1 << 12;

/// A frame in a buffer. Without its link header it is an IP packet.
#[derive(Debug, Default)]
pub struct Frame<'b> {
    buffer: &'b mut [u8],
    start: usize,
    end: usize,
    realm: u16,
    lease: Option<&'b Lease>,
}

impl<'b> Frame<'b> {
    /// The frame that fills `buffer[start..]`.
    ///
    /// # Panics
    /// When `start` is beyond the buffer.
    pub fn new(buffer: &'b mut [u8], start: usize) -> Self {
        let end = buffer.len();
        Self::of(buffer, start, end)
    }

    /// The frame `buffer[start..end]`.
    ///
    /// # Panics
    /// If the range is no part of the buffer.
    pub fn of(buffer: &'b mut [u8], start: usize, end: usize) -> Self {
        assert!(start <= end && end <= buffer.len());
        Self { buffer, start, end, realm: 0, lease: None }
    }

    /// The frame `buffer[start..end]`. The device that sends it may take ownership of the buffer.
    ///
    /// # Panics
    /// If the range is no part of the buffer.
    pub fn leased(buffer: &'b mut [u8], start: usize, end: usize, lease: &'b Lease) -> Self {
        Self { lease: Some(lease), ..Self::of(buffer, start, end) }
    }

    /// Takes ownership of the frame's buffer, if it is leased and belongs to `pool`. The frame is
    /// empty then.
    pub fn take_over(&mut self, pool: Pool) -> Option<TakenOver> {
        let buffer = self.lease?.take(pool)?;
        let Self { start, end, .. } = mem::take(self);
        Some(TakenOver { buffer, start, end })
    }

    /// Sets the realm that the packet came from.
    ///
    /// # Panics
    /// When `realm` is not a possible number of a realm.
    #[must_use]
    pub fn in_realm(mut self, realm: u16) -> Self {
        assert!(realm < REALMS, "there is no realm {realm}");
        self.realm = realm;
        self
    }

    /// Number of the inside realm that the packet came from, or of the realm to send it to.
    #[inline]
    pub fn realm(&self) -> u16 {
        self.realm
    }

    /// Changes the realm that the packet came from, or goes to.
    #[inline]
    pub fn set_realm(&mut self, realm: u16) {
        self.realm = realm;
    }

    /// Bytes of the frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Bytes of the frame, mutable.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Length, bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True if the frame has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free bytes before the frame.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Offset of the frame's first byte in the buffer.
    #[inline]
    pub fn start(&self) -> usize {
        self.start
    }

    /// Offset of the frame's end in the buffer.
    #[inline]
    pub fn end(&self) -> usize {
        self.end
    }

    /// Offsets of the frame's first byte and of its end in the buffer.
    #[inline]
    pub fn range(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    /// Buffer up to the frame's end, for edits that use the headroom.
    #[inline]
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[..self.end]
    }

    /// The `N` free bytes right before the frame; `None` if there are fewer.
    #[inline]
    pub fn room_mut<const N: usize>(&mut self) -> Option<&mut [u8; N]> {
        self.buffer[..self.start].last_chunk_mut()
    }

    /// Bytes of the buffer from the frame's start on. The frame may end earlier.
    #[inline(always)]
    pub fn tail(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Bytes of the buffer from the frame's start on, mutable. The frame may end earlier.
    #[inline(always)]
    pub fn tail_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..]
    }

    /// Moves the frame's ends within its buffer.
    ///
    /// # Panics
    /// If the range does not lie in the buffer, in order.
    #[inline]
    pub fn set_range(&mut self, start: usize, end: usize) {
        assert!(start <= end && end <= self.buffer.len());
        (self.start, self.end) = (start, end);
    }

    /// Moves the frame's start to another offset in the buffer. The frame keeps its end, so it
    /// grows into the headroom or loses its first bytes.
    ///
    /// # Panics
    /// When `start` is behind the frame's end.
    #[inline]
    pub fn set_start(&mut self, start: usize) {
        assert!(start <= self.end, "a frame starts before its end");
        self.start = start;
    }

    /// Cuts off the bytes after the first `len`, which there are.
    #[inline(always)]
    pub fn cut(&mut self, len: usize) {
        debug_assert!(len <= self.len());
        self.end = self.start + len;
    }

    /// Cuts off the bytes after the first `len`. A `len` beyond the frame's length changes nothing.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_move_within_the_buffer() {
        let mut buffer = [1, 2, 3, 4, 5, 6];
        let mut frame = Frame::of(&mut buffer, 2, 5);
        assert_eq!((frame.bytes(), frame.headroom(), frame.len()), (&[3, 4, 5][..], 2, 3));
        frame.set_range(1, 6);
        assert_eq!(frame.bytes(), [2, 3, 4, 5, 6]);
        frame.set_start(3);
        frame.truncate(2);
        frame.truncate(9);
        assert_eq!((frame.bytes(), frame.tail()), (&[4, 5][..], &[4, 5, 6][..]));
        assert_eq!(frame.room_mut::<4>(), None);
        assert_eq!(frame.room_mut::<2>(), Some(&mut [2, 3]));
        frame.set_range(4, 4);
        assert!(frame.is_empty());
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn ends_outside_the_buffer_are_refused() {
        let mut buffer = [0; 4];
        Frame::of(&mut buffer, 0, 4).set_range(0, 5);
    }

    #[test]
    #[should_panic(expected = "no realm 4096")]
    fn impossible_realms_are_refused() {
        let _ = Frame::new(&mut [], 0).in_realm(REALMS);
    }
}
