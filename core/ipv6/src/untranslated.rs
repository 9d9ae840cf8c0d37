//! Datagrams to hosts of NAT64 whose first fragment could not be converted: the others are dropped,
//! too (RFC 6146 section 3.4). The number of datagrams is bounded; the oldest makes room.

use alloc::collections::VecDeque;
use natgate_engine::DropReason;
use natgate_wire::Ipv4;

/// Most datagrams that are remembered.
const MOST: usize = 64;

/// A datagram: source, destination, identification, protocol.
type Datagram = (u32, u32, u16, u8);

/// A fragment: its datagram, and true for the first one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    datagram: Datagram,
    is_first: bool,
}

impl Piece {
    /// The fragment in an IPv4 packet; `None`: the packet is whole.
    #[inline]
    pub(crate) fn of(packet: &[u8]) -> Option<Self> {
        let header = Ipv4::new_header_checked(packet).ok().filter(Ipv4::is_fragment)?;
        let ends = (header.source(), header.destination());
        let datagram = (ends.0, ends.1, header.identification(), header.protocol());
        Some(Self { datagram, is_first: header.fragment_offset() == 0 })
    }
}

/// The datagrams, the oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Untranslated(VecDeque<(Datagram, DropReason)>);

impl Untranslated {
    /// The reason why a fragment is dropped: its first fragment was.
    pub(crate) fn reason(&self, piece: Piece) -> Option<DropReason> {
        if piece.is_first {
            return None;
        }
        let known = self.0.iter().find(|(datagram, _)| *datagram == piece.datagram);
        known.map(|(_, reason)| *reason)
    }

    /// Notes whether a first fragment could be converted.
    pub(crate) fn note(&mut self, piece: Piece, refused: Option<DropReason>) {
        if !piece.is_first {
            return;
        }
        self.0.retain(|(datagram, _)| *datagram != piece.datagram);
        let Some(reason) = refused else { return };
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((piece.datagram, reason));
    }
}
