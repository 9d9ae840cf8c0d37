//! Headers of a packet as the quick way reads them: once, word by word, into the words that tables
//! compare. A packet of another kind than the usual one is left to the complete way.

use super::patch::{half_at, u16_at, u32_at, word_at};
use super::quick::{From, TCP_END, UDP_END};
use crate::calendar::NONE;
use crate::endpoint::{AddressPort, Internal};
use crate::external::Wish;
use crate::host::Host;
use crate::packet::Side;
use natgate_wire::{protocol, tcp, udp};

/// The fields of a packet that matter here, read once. Endpoints are words, as tables compare them.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParsedHeaders {
    /// From inside: the hash that the mapping is filed by. From outside: the place of the external
    /// port among all of its protocol.
    pub(super) place: u64,
    /// From inside: the internal endpoint. From outside: the external endpoint, in realm 0.
    pub(super) near: u64,
    /// The remote endpoint.
    pub(super) remote: u64,
    /// The mapping's slot, most likely, or [`NONE`]. Known from stage two on.
    pub(super) slot: u32,
    pub(super) total_len: u16,
    /// TCP, UDP, or 0: the packet is for the complete way.
    pub(super) protocol: u8,
    pub(super) flags: u8,
}

const _: () = assert!(size_of::<ParsedHeaders>() == 32);

impl ParsedHeaders {
    pub(super) const OTHER: Self =
        Self { place: 0, near: 0, remote: 0, slot: NONE, total_len: 0, protocol: 0, flags: 0 };

    /// True if the packet, which is from inside, seems to have no mapping.
    #[inline(always)]
    pub(super) fn is_new(&self) -> bool {
        self.slot == NONE && self.protocol != 0
    }

    /// The request of a new mapping for it.
    #[inline(always)]
    pub(super) fn wish(&self, pool: usize, paired: Option<u32>, fixed: Option<u32>) -> Wish {
        let internal_port = self.internal().port;
        Wish { pool, protocol: self.protocol, internal_port, paired, fixed }
    }

    /// The realm that the packet came from, if from inside.
    #[inline(always)]
    pub(super) fn realm(&self) -> u16 {
        self.internal().host.realm()
    }

    /// The host inside that sent it.
    #[inline(always)]
    pub(super) fn host(&self) -> Host {
        self.internal().host
    }

    /// The internal endpoint that sent it.
    #[inline(always)]
    pub(super) fn internal(&self) -> Internal {
        Internal::from_word(self.near)
    }

    /// The internal endpoint that sent it, as its header has it.
    #[inline(always)]
    pub(super) fn source(&self) -> AddressPort {
        let Internal { host, port } = self.internal();
        AddressPort::new(host.address(), port)
    }

    /// The remote endpoint.
    #[inline(always)]
    pub(super) fn remote(&self) -> AddressPort {
        AddressPort::from_word(self.remote)
    }

    /// Reads the headers of a packet from a side. If the packet is not of the usual kind, the
    /// protocol is 0.
    #[inline(always)]
    pub(super) fn read<F: From>(&mut self, bytes: &[u8]) {
        /// Version, header length, and the flags and offset that only fragments have.
        const SHAPE: u64 = u64::from_ne_bytes([0xff, 0, 0, 0, 0, 0, 0xbf, 0xff]);
        const USUAL: u64 = u64::from_ne_bytes([0x45, 0, 0, 0, 0, 0, 0, 0]);
        self.protocol = 0;
        let Some(head) = bytes.first_chunk::<UDP_END>() else { return };
        let [first, second] = [word_at(head, 0), word_at(head, 8)];
        let (destination, ports) = (half_at(head, 16), u32_at(head, 20));
        let (total_len, ttl, protocol) = (u16_at(head, 2), head[8], head[9]);
        // Number of bytes after the first 28.
        let rest = usize::from(total_len).wrapping_sub(UDP_END);
        if first & SHAPE != USUAL || rest > bytes.len() - UDP_END || ttl <= 1 {
            return;
        }
        // A sum modulo 0xffff is the same in each order of bytes (RFC 1071 section 2).
        let (sum, over) = first.overflowing_add(second);
        let (sum, over_again) = sum.overflowing_add(u64::from(destination) + u64::from(over));
        // Not all words are zero, so that this says whether all bits of the folded sum are ones.
        if !(sum + u64::from(over_again)).is_multiple_of(0xffff) {
            return;
        }
        if protocol == protocol::UDP {
            if usize::from(u16_at(head, 24)).wrapping_sub(udp::HEADER_LEN) > rest {
                return;
            }
            self.flags = 0;
        } else if protocol == protocol::TCP
            && let Some(head) = bytes.first_chunk::<TCP_END>()
        {
            let header_len = usize::from(head[32] >> 4) * 4;
            if !(tcp::HEADER_LEN..=rest.wrapping_add(udp::HEADER_LEN)).contains(&header_len) {
                return;
            }
            self.flags = head[33];
        } else {
            return;
        }
        let (source, destination) = (u32_at(head, 12), u32::from_be(destination));
        let source = AddressPort::new(source, (ports >> 16) as u16);
        let destination = AddressPort::new(destination, ports as u16);
        let (near, remote) = match F::SIDE {
            Side::Inside => (source, destination),
            Side::Outside => (destination, source),
        };
        self.near = Internal::new(Host::new(0, near.address), near.port).word();
        self.remote = remote.word();
        (self.total_len, self.protocol) = (total_len, protocol);
    }
}
