//! What a stream of the link has: one byte for its kind, then its content to the stream's end.
//!
//! A view has a number before its bytes, 64 bits in little-endian order, which grows with each view
//! of a connection. A datagram has no head: it is a message, unless it
//! begins with the mark of a packet of the tunnel.

/// Kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The node that listens has checked the node that dials. No content.
    Greeting,
    /// A message that does not fit a datagram.
    Message,
    /// A view.
    View,
    /// The certificates of the node that listens have changed: the other opens a new connection.
    Renewal,
}

impl Kind {
    pub(crate) fn byte(self) -> u8 {
        match self {
            Self::Greeting => 0,
            Self::Message => 1,
            Self::View => 2,
            Self::Renewal => 3,
        }
    }

    pub(crate) fn read(byte: u8) -> Option<Self> {
        let all = [Self::Greeting, Self::Message, Self::View, Self::Renewal];
        all.into_iter().find(|kind| kind.byte() == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_from_its_byte_and_others_are_refused() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|byte| Kind::read(*byte).is_some()).collect();
        assert_eq!(known, [0, 1, 2, 3]);
        assert!(known.iter().all(|byte| Kind::read(*byte).map(Kind::byte) == Some(*byte)));
    }
}
