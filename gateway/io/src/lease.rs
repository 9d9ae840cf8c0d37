//! Leases: how the memory of a frame changes hands between two devices without being copied.
//!
//! Devices whose buffers come from one pool lend their frames on lease. Who is given such a frame
//! to send, and draws from the same pool, takes its buffer over: the frame is empty from then on,
//! so nobody sees the buffer any more, and the lender does not take it back. What a buffer is
//! called (an address, a number) is the pool's business. Nobody but those who know a [`Pool`]'s
//! value can lease or take over its buffers.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Memory that several devices take their buffers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool(u32);

impl Pool {
    /// A pool unlike every other.
    ///
    /// # Panics
    /// When there are four thousand million of them.
    pub fn unique() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number != u32::MAX);
        Self(number)
    }
}

/// The lender's note about one buffer that it has lent.
#[derive(Debug)]
pub struct Lease {
    pool: Pool,
    /// What the pool calls the buffer; 0: nothing is lent, or it was taken over.
    buffer: AtomicUsize,
}

/// A buffer that was taken over, and where in it the frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// What the pool calls the buffer.
    pub buffer: NonZeroUsize,
    /// Where the frame begins.
    pub start: usize,
    /// Where the frame ends.
    pub end: usize,
}

impl Lease {
    /// For a buffer of this pool.
    pub fn new(pool: Pool) -> Self {
        Self { pool, buffer: AtomicUsize::new(0) }
    }

    /// Notes which buffer is about to be lent.
    pub fn lend(&mut self, buffer: NonZeroUsize) {
        *self.buffer.get_mut() = buffer.get();
    }

    /// Ends the lease: the buffer, unless somebody took it over.
    pub fn end(&mut self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(std::mem::take(self.buffer.get_mut()))
    }

    /// Takes the buffer over. A frame is in one place at a time, so nobody else does just now; and
    /// the lender looks again only when the frame is gone.
    pub(crate) fn take(&self, pool: Pool) -> Option<NonZeroUsize> {
        if self.pool != pool {
            return None;
        }
        let buffer = NonZeroUsize::new(self.buffer.load(Ordering::Relaxed));
        self.buffer.store(0, Ordering::Relaxed);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;

    const BUFFER: NonZeroUsize = NonZeroUsize::new(7).unwrap();

    #[test]
    fn a_buffer_that_was_taken_over_does_not_come_back() {
        let pool = Pool::unique();
        let mut lease = Lease::new(pool);
        lease.lend(BUFFER);
        let mut bytes = [0; 100];
        let mut frame = Frame::leased(&mut bytes, 20, 80, &lease);
        assert_eq!(frame.take_over(pool), Some(TakenOver { buffer: BUFFER, start: 20, end: 80 }));
        assert!(frame.is_empty() && frame.buffer_mut().is_empty());
        assert_eq!(frame.take_over(pool), None);
        assert_eq!(lease.end(), None);
    }

    #[test]
    fn a_buffer_that_nobody_took_over_comes_back_once() {
        let (pool, other) = (Pool::unique(), Pool::unique());
        let mut lease = Lease::new(pool);
        lease.lend(BUFFER);
        let mut bytes = [0; 100];
        let mut frame = Frame::leased(&mut bytes, 20, 80, &lease);
        assert_eq!(frame.take_over(other), None);
        assert_eq!(frame.len(), 60);
        assert_eq!((lease.end(), lease.end()), (Some(BUFFER), None));
    }

    #[test]
    fn a_frame_without_a_lease_stays_as_it_is() {
        let mut bytes = [0; 100];
        let mut frame = Frame::new(&mut bytes, 20, 80);
        assert_eq!(frame.take_over(Pool::unique()), None);
        assert_eq!(frame.range(), (20, 80));
    }
}
