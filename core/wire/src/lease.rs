//! Leases: the memory of a frame changes its owner between two devices without a copy.
//!
//! Devices whose buffers come from one pool lend their frames on lease. A device of the same pool
//! that sends such a frame takes ownership of its buffer: the frame is empty from then on, so no
//! other code sees the buffer, and the lender does not take it back. The pool defines the number of
//! a buffer (an address, an index). Only holders of a [`Pool`]'s value can lease or take over its
//! buffers.

use core::num::NonZeroUsize;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Memory from which several devices take their buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool(u32);

impl Pool {
    /// Creates a pool unlike every other.
    ///
    /// # Panics
    /// If there are four thousand million pools.
    pub fn unique() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(number != u32::MAX);
        Self(number)
    }
}

/// The lender's record of one lent buffer.
#[derive(Debug)]
pub struct Lease {
    pool: Pool,
    /// Number of the buffer in the pool; 0 if nothing is lent, or the buffer was taken over.
    buffer: AtomicUsize,
}

/// A buffer that was taken over, and the frame's range in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// Number of the buffer in the pool.
    pub buffer: NonZeroUsize,
    /// Offset of the frame's first byte.
    pub start: usize,
    /// Offset of the frame's end.
    pub end: usize,
}

impl Lease {
    /// Creates a lease for a buffer of this pool.
    pub fn new(pool: Pool) -> Self {
        Self { pool, buffer: AtomicUsize::new(0) }
    }

    /// Records the buffer that is about to be lent.
    pub fn lend(&mut self, buffer: NonZeroUsize) {
        *self.buffer.get_mut() = buffer.get();
    }

    /// Ends the lease; returns the buffer, unless it was taken over.
    pub fn end(&mut self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(core::mem::take(self.buffer.get_mut()))
    }

    /// Takes the buffer over. A frame is in one place at a time, so no other call does so now; and
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
        let mut frame = Frame::of(&mut bytes, 20, 80);
        assert_eq!(frame.take_over(Pool::unique()), None);
        assert_eq!(frame.range(), (20, 80));
    }
}
