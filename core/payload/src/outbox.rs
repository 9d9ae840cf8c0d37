//! Packets of the framework's own: parts of a message that became too long for one segment, and
//! acknowledgments of held bytes.
//!
//! The queue has a fixed number of buffers. A packet without a buffer is not sent: TCP repeats it.

use crate::Side;
use crate::room::Room;
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Length of a buffer, bytes.
pub(crate) const BUFFER: usize = 2048;

/// The queue.
#[derive(Debug)]
pub(crate) struct Outbox {
    free: Vec<Vec<u8>>,
    queue: VecDeque<(Side, Vec<u8>, usize)>,
}

impl Outbox {
    pub(crate) fn new(count: usize) -> Self {
        let free = (0..count).map(|_| vec![0; BUFFER]).collect();
        Self { free, queue: VecDeque::with_capacity(count) }
    }

    /// Queues a packet for a side: the start of `headers`, and what `write` makes of it. False:
    /// there is no buffer.
    pub(crate) fn push(
        &mut self,
        side: Side,
        headers: &[u8],
        write: impl FnOnce(&mut Room<'_>),
    ) -> bool {
        if headers.len() > BUFFER {
            return false;
        }
        let Some(mut buffer) = self.free.pop() else { return false };
        buffer[..headers.len()].copy_from_slice(headers);
        let mut room = Room::new(&mut buffer, headers.len());
        write(&mut room);
        let len = room.bytes().len();
        self.queue.push_back((side, buffer, len));
        true
    }

    /// Copies the oldest packet to `out`. Returns the side to send it to, and its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`BUFFER`].
    pub(crate) fn pop(&mut self, out: &mut [u8]) -> Option<(Side, usize)> {
        let (side, buffer, len) = self.queue.pop_front()?;
        out[..len].copy_from_slice(&buffer[..len]);
        self.free.push(buffer);
        Some((side, len))
    }
}
