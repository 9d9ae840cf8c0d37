//! The ports that a packet of a control flow has: one of its ports is among them. A bit for each
//! port answers for nearly all packets, with some dozen instructions.

use natgate_wire::{ipv6, protocol};

/// First byte of an IPv4 packet without options.
const PLAIN: u8 = 0x45;

/// A set of ports.
#[derive(Debug)]
pub(super) struct WatchedPorts(Box<[u64; 1024]>);

impl WatchedPorts {
    pub(super) fn none() -> Self {
        Self(Box::new([0; 1024]))
    }

    /// Replaces the set.
    pub(super) fn set(&mut self, ports: impl Iterator<Item = u16>) {
        self.0.fill(0);
        for port in ports {
            self.0[usize::from(port >> 6)] |= 1 << (port & 63);
        }
    }

    /// Makes every port one of the set.
    pub(super) fn set_all(&mut self) {
        self.0.fill(u64::MAX);
    }

    #[inline(always)]
    fn has(&self, port: [u8; 2]) -> bool {
        let port = u16::from_be_bytes(port);
        self.0[usize::from(port >> 6)] >> (port & 63) & 1 == 1
    }

    /// False if a packet of IPv6 certainly has none of the ports. With extension headers it may.
    #[inline]
    pub(super) fn may_have_ipv6(&self, packet: &[u8]) -> bool {
        match (packet.get(ipv6::NEXT_HEADER), packet.get(ipv6::HEADER_LEN..ipv6::HEADER_LEN + 4)) {
            (Some(&(protocol::TCP | protocol::UDP)), Some(&[a, b, c, d])) => {
                self.has([a, b]) || self.has([c, d])
            }
            (Some(&next), Some(_)) => ipv6::is_extension(next),
            _ => false,
        }
    }

    /// False if an IPv4 packet certainly has none of the ports.
    #[inline(always)]
    pub(super) fn may_have(&self, packet: &[u8]) -> bool {
        match packet.first_chunk::<24>() {
            Some(head) if head[0] == PLAIN => {
                self.has([head[20], head[21]]) | self.has([head[22], head[23]])
            }
            _ => self.may_have_behind_options(packet),
        }
    }

    #[cold]
    fn may_have_behind_options(&self, packet: &[u8]) -> bool {
        let Some(first) = packet.first() else { return false };
        let start = usize::from(first & 15) * 4;
        match packet.get(start..start + 4) {
            Some(&[a, b, c, d]) => self.has([a, b]) || self.has([c, d]),
            _ => false,
        }
    }
}
