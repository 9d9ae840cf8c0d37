//! Memory for the messages that a worker sends.
//!
//! A worker begins thousands of messages a second, and the link's thread ends them. Each would be
//! memory that one thread asks the system for and another gives back. A few long pieces of memory
//! go round instead: a piece is used again when all of its messages have gone.

use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;

/// Bytes of a piece.
const PIECE: usize = 64 << 10;

/// Longest message that is in a piece: one that waits keeps the whole piece.
const LONGEST: usize = 2 << 10;

/// Pieces that are kept: more than QUIC holds back.
const PIECES: usize = 16;

/// Memory for messages.
#[derive(Debug, Default)]
pub struct Memory {
    /// The piece in use is the last.
    pieces: VecDeque<BytesMut>,
}

impl Memory {
    /// Copies a message.
    pub fn copy(&mut self, message: &[u8]) -> Bytes {
        if message.len() > LONGEST {
            return Bytes::copy_from_slice(message);
        }
        let has_room = |piece: &BytesMut| piece.capacity() - piece.len() >= message.len();
        if !self.pieces.back().is_some_and(has_room) {
            self.turn();
        }
        let piece = self.pieces.back_mut().expect("one has been put there");
        piece.extend_from_slice(message);
        piece.split().freeze()
    }

    /// Puts a piece with room at the end: the first one if all of its messages have gone. A new one
    /// takes its place otherwise.
    fn turn(&mut self) {
        let first = if self.pieces.len() < PIECES { None } else { self.pieces.pop_front() };
        let free = first.and_then(|mut piece| piece.try_reclaim(PIECE).then_some(piece));
        self.pieces.push_back(free.unwrap_or_else(|| BytesMut::with_capacity(PIECE)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: [u8; 1000] = [7; 1000];

    #[test]
    fn memory_goes_round_while_messages_go() {
        let mut memory = Memory::default();
        let mut pieces = std::collections::BTreeSet::new();
        for number in 0..100_000_u32 {
            let message = memory.copy(&MESSAGE);
            assert_eq!(message, &MESSAGE[..]);
            pieces.insert(message.as_ptr() as usize);
            assert!(number < 2000 || pieces.len() <= PIECES * PIECE / MESSAGE.len());
        }
    }

    #[test]
    fn messages_that_stay_keep_their_bytes() {
        let mut memory = Memory::default();
        let bytes = |number: u32| number.to_be_bytes().repeat(250);
        let messages: Vec<_> = (0..5000).map(|number| memory.copy(&bytes(number))).collect();
        assert!(memory.pieces.len() <= PIECES);
        for (number, message) in (0..).zip(&messages) {
            assert_eq!(message, &bytes(number)[..]);
        }
        let long = vec![1; PIECE];
        assert_eq!(memory.copy(&long), &long[..]);
    }
}
