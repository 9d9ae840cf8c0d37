//! Packets that may be of control flows: flows whose payload an application-level gateway reads.
//!
//! The engine knows the ports of such flows and nothing else about them. A mapping whose first
//! session has one of the ports is doubted: its packets take the complete way. So do packets that
//! begin a flow with such a port. On the complete way, [`Engine::process_to_control`] stops before
//! a packet with such a port and leaves the packet to its caller. The quick way asks nothing.

use crate::engine::Engine;
use crate::protocols::has_ports;
use crate::session::Way;
use crate::{Packet, Side, Timestamp, Verdict};
use alloc::boxed::Box;
use natgate_wire::Ipv4;

/// First byte of an IPv4 packet without options.
const PLAIN: u8 = 0x45;

/// A set of ports: a bit for each.
#[derive(Clone, Debug)]
pub struct ControlPorts {
    bits: Box<[u64; 1024]>,
    is_empty: bool,
}

impl ControlPorts {
    /// Bytes of a set.
    pub(crate) const MEMORY: u64 = size_of::<[u64; 1024]>() as u64;

    /// No port.
    pub fn none() -> Self {
        Self { bits: Box::new([0; 1024]), is_empty: true }
    }

    /// Replaces the set.
    pub fn set(&mut self, ports: impl Iterator<Item = u16>) {
        self.bits.fill(0);
        self.is_empty = true;
        for port in ports {
            self.bits[usize::from(port >> 6)] |= 1 << (port & 63);
            self.is_empty = false;
        }
    }

    /// Takes over another set.
    fn copy(&mut self, other: &Self) {
        self.bits.copy_from_slice(&other.bits[..]);
        self.is_empty = other.is_empty;
    }

    /// True if the set has a port.
    #[inline(always)]
    pub fn has(&self, port: u16) -> bool {
        self.bits[usize::from(port >> 6)] >> (port & 63) & 1 == 1
    }

    /// False if an IPv4 packet certainly has none of the ports. The first two words behind its
    /// header count as ports, whatever its protocol is.
    #[inline(always)]
    pub fn may_have(&self, packet: &[u8]) -> bool {
        match packet.first_chunk::<24>() {
            Some(head) if head[0] == PLAIN => {
                self.has_either([head[20], head[21], head[22], head[23]])
            }
            _ => self.may_have_behind_options(packet),
        }
    }

    #[cold]
    fn may_have_behind_options(&self, packet: &[u8]) -> bool {
        let Some(first) = packet.first() else { return false };
        let start = usize::from(first & 15) * 4;
        match packet.get(start..start + 4) {
            Some(&[a, b, c, d]) => self.has_either([a, b, c, d]),
            _ => false,
        }
    }

    /// True if the set has the source port or the destination port.
    #[inline(always)]
    pub fn has_either(&self, [a, b, c, d]: [u8; 4]) -> bool {
        self.has(u16::from_be_bytes([a, b])) | self.has(u16::from_be_bytes([c, d]))
    }

    /// True if a packet has one of the ports, or is a later fragment, which has no ports.
    fn concern(&self, packet: &[u8]) -> bool {
        !self.is_empty && (self.may_have(packet) || is_later_fragment(packet))
    }
}

fn is_later_fragment(packet: &[u8]) -> bool {
    Ipv4::new_checked(packet).is_ok_and(|ip| ip.fragment_offset() > 0)
}

impl Engine {
    /// Replaces the ports of control flows. Packets of sessions that are there, with a port that
    /// the set did not have, may take the quick way until [`Engine::reconfigure`] has their
    /// mappings checked. A set for new settings is put in force directly behind it.
    pub fn set_control_ports(&mut self, ports: &ControlPorts) {
        self.controls.copy(ports);
    }

    /// [`Engine::process`] that stops before a packet that may be of a control flow: a packet with
    /// one of the ports of [`Engine::set_control_ports`], and a later fragment. Returns the number
    /// of packets in front of that packet, which are processed; or of all packets.
    ///
    /// # Panics
    /// As [`Engine::process`].
    pub fn process_to_control(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) -> usize {
        self.begin_batch(now, packets.len(), verdicts.len());
        self.take_batch(from, packets, verdicts, true)
    }

    /// True if a packet stops [`Engine::process_to_control`].
    #[inline(always)]
    pub(crate) fn stops_at(&self, packet: &Packet<'_>) -> bool {
        self.controls.concern(packet.bytes())
    }

    /// True if the packets of a flow with this port may be of a control flow.
    #[inline(always)]
    pub(crate) fn is_control_port(&self, port: u16) -> bool {
        !self.controls.is_empty && self.controls.has(port)
    }

    /// True if the packets of a mapping's first session may be of a control flow.
    pub(crate) fn has_control(&self, slot: u32) -> bool {
        let mapping = self.table.mapping(slot);
        let ports = [mapping.internal().port, mapping.external().port, mapping.first.remote().port];
        has_ports(mapping.protocol) && ports.into_iter().any(|port| self.is_control_port(port))
    }

    /// Notes whether the first session of a mapping answers for its packets, which a packet that
    /// went this way has begun.
    pub(crate) fn note_answers(&mut self, slot: u32, way: Way) {
        let answers = match way {
            Way::Out => !self.has_control(slot),
            Way::In => self.first_answers(slot),
        };
        self.table.set_answers(slot, answers);
    }
}
