//! Packets in tunnels of DS-Lite that came in fragments, or behind further headers, as if they had
//! come without. A caller that looks into tunnels itself takes them again.

use super::tunnel::IPV4;
use super::{MOST_RELEASED, Softwires};
use crate::translator::{Fate, Translator};
use alloc::vec::Vec;
use natgate_engine::{Direction, DropReason};
use natgate_wire::{Ipv6, ipv6};

/// Bytes of the longest packet that comes in.
const LONGEST: usize = u16::MAX as usize;

/// A packet in a tunnel, with nothing between the outer and the inner header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainPacket {
    bytes: Vec<u8>,
    /// What came beyond one packet of this length: packets and bytes.
    beyond: (u64, u64),
}

impl PlainPacket {
    /// The packet.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Translator {
    /// Says whether packets in tunnels of DS-Lite that came in fragments, or behind further
    /// headers, are given to the caller before they are translated
    /// ([`Translator::poll_plain`]).
    pub fn give_plain(&mut self, gives: bool) {
        if let Some(softwires) = &mut self.softwires {
            softwires.gives_plain = gives;
        }
    }

    /// The oldest packet that waits for the caller, who takes it as one that has come in. If it
    /// stays at this gateway, the caller says so ([`Translator::count_beyond`]).
    pub fn poll_plain(&mut self) -> Option<PlainPacket> {
        self.softwires.as_mut()?.plain.pop_front()
    }

    /// Counts what such a packet came in, beside the packet itself.
    pub fn count_beyond(&mut self, packet: &PlainPacket) {
        let (packets, bytes) = packet.beyond;
        self.counts_mut().count_forwarded(Direction::Outbound, packets, bytes);
    }

    /// True if the caller wants such packets.
    pub(super) fn gives_plain(&self) -> bool {
        self.softwires.as_ref().is_some_and(|softwires| softwires.gives_plain)
    }

    /// Gives the caller a packet whose inner one begins at `at`. It came in a number of packets,
    /// which had some bytes together.
    #[cold]
    pub(super) fn push_plain(
        &mut self,
        bytes: &[u8],
        at: usize,
        (pieces, received): (u64, usize),
    ) -> Fate {
        let softwires = self.softwires.as_mut().filter(|one| one.plain.len() < MOST_RELEASED);
        let reason = match (bytes.get(..ipv6::HEADER_LEN).zip(bytes.get(at..)), softwires) {
            (Some((_, inner)), _) if ipv6::HEADER_LEN + inner.len() > LONGEST => {
                DropReason::FragmentTooLong
            }
            (Some((header, inner)), Some(softwires)) => {
                softwires.push_plain(header, inner, (pieces, received));
                return Fate::Nothing;
            }
            _ => DropReason::FragmentLimit,
        };
        self.count_drop(Direction::Outbound, reason, received);
        Fate::Nothing
    }
}

impl Softwires {
    fn push_plain(&mut self, header: &[u8], inner: &[u8], (pieces, received): (u64, usize)) {
        let mut bytes = [header, inner].concat();
        if let Ok(mut header) = Ipv6::new_header_checked(&mut bytes[..]) {
            header.set_payload_len(inner.len() as u16);
            header.set_next_header(IPV4);
        }
        let more = received.saturating_sub(bytes.len()) as u64;
        self.plain.push_back(PlainPacket { bytes, beyond: (pieces - 1, more) });
    }
}
