//! Packets that may be of control flows: flows whose payload an application-level gateway reads.
//!
//! The engine knows ports of such flows, in two sets. A mapping whose first session has a port of
//! the first set is doubted: its packets take the complete way. The second set has all ports. A
//! packet that begins a flow with such a port takes the complete way. There,
//! [`Engine::process_to_control`] asks its caller about packets with such a port, and stops before
//! a packet that is of a control flow. [`Engine::process_control`] takes that packet, and the
//! mapping is doubted from then on. The quick way asks nothing.
//!
//! Ports that messages name are in the second set alone: a host that names the port of a busy
//! service must not slow other hosts down.

use crate::endpoint::{AddressPort, External};
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
    /// True if later fragments, which have no ports, may be of control flows.
    fragments: bool,
}

/// Ports of control flows as an engine has them.
#[derive(Clone, Debug)]
pub(crate) struct Controls {
    /// The ports of flows whose mappings are doubted.
    doubted: ControlPorts,
    /// These ports, and ports that messages have named.
    watched: ControlPorts,
    /// True if messages have named ports. Then a doubted mapping stays doubted.
    has_named: bool,
    /// True while a packet of a control flow is translated.
    marks: bool,
}

impl Controls {
    /// Bytes of the sets.
    pub(crate) const MEMORY: u64 = 2 * size_of::<[u64; 1024]>() as u64;

    /// No port.
    pub(crate) fn none() -> Self {
        let (doubted, watched) = (ControlPorts::none(), ControlPorts::none());
        Self { doubted, watched, has_named: false, marks: false }
    }
}

impl ControlPorts {
    /// No port.
    pub fn none() -> Self {
        Self { bits: Box::new([0; 1024]), is_empty: true, fragments: false }
    }

    /// Replaces the set. `fragments`: later fragments may be of control flows, too.
    pub fn set(&mut self, ports: impl Iterator<Item = u16>, fragments: bool) {
        self.bits.fill(0);
        (self.is_empty, self.fragments) = (true, fragments);
        self.add(ports);
    }

    /// Adds ports.
    pub fn add(&mut self, ports: impl Iterator<Item = u16>) {
        for port in ports {
            self.bits[usize::from(port >> 6)] |= 1 << (port & 63);
            self.is_empty = false;
        }
    }

    /// Takes over another set.
    pub fn copy(&mut self, other: &Self) {
        self.bits.copy_from_slice(&other.bits[..]);
        (self.is_empty, self.fragments) = (other.is_empty, other.fragments);
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

    /// True if a packet may be of a control flow.
    fn concern(&self, packet: &[u8]) -> bool {
        !self.is_empty && (self.may_have(packet) || self.fragments && is_later_fragment(packet))
    }
}

fn is_later_fragment(packet: &[u8]) -> bool {
    Ipv4::new_checked(packet).is_ok_and(|ip| ip.fragment_offset() > 0)
}

impl Engine {
    /// Replaces the ports of control flows: those of flows whose mappings are doubted, and all.
    /// Packets of sessions that are there, with a port that the first set did not have, may take
    /// the quick way until [`Engine::reconfigure`] has their mappings checked. Sets for new
    /// settings are put in force directly behind it.
    pub fn set_control_ports(&mut self, doubted: &ControlPorts, watched: &ControlPorts) {
        self.controls.doubted.copy(doubted);
        self.controls.watched.copy(watched);
        self.controls.has_named = doubted.bits != watched.bits;
    }

    /// [`Engine::process`] that stops before a packet of a control flow. `is_control` is asked
    /// about packets with one of the ports of [`Engine::set_control_ports`]. Returns the number of
    /// packets in front of that packet, which are processed; or of all packets.
    ///
    /// # Panics
    /// As [`Engine::process`].
    pub fn process_to_control(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
        is_control: &dyn Fn(&[u8]) -> bool,
    ) -> usize {
        self.begin_batch(now, packets.len(), verdicts.len());
        self.take_batch(from, packets, verdicts, Some(is_control))
    }

    /// [`Engine::process`] of a packet of a control flow, whose mapping is doubted from then on.
    /// Its host may become a subscriber.
    pub fn process_control(
        &mut self,
        now: Timestamp,
        from: Side,
        packet: &mut Packet<'_>,
    ) -> Verdict {
        self.controls.marks = true;
        let verdict = self.process_unguarded(now, from, packet);
        self.controls.marks = false;
        verdict
    }

    /// Doubts the mapping of a control flow of an earlier process, by the external and the remote
    /// endpoint of the flow.
    pub fn doubt_control(&mut self, protocol: u8, external: AddressPort, remote: AddressPort) {
        let Some(index) = self.external.index(external.address) else { return };
        let external = External::new(index, external.port);
        if let Some(slot) = self.look_up_external(protocol, external, remote) {
            self.table.set_answers(slot, false);
        }
    }

    /// True if [`Engine::process_to_control`] asks about a packet.
    #[inline(always)]
    pub(crate) fn may_be_control(&self, packet: &Packet<'_>) -> bool {
        self.controls.watched.concern(packet.bytes())
    }

    /// True if a flow with this port may be a control flow.
    #[inline(always)]
    pub(crate) fn is_control_port(&self, port: u16) -> bool {
        !self.controls.watched.is_empty && self.controls.watched.has(port)
    }

    /// True if a mapping is doubted for the ports of its first session.
    pub(crate) fn has_control(&self, slot: u32) -> bool {
        let mapping = self.table.mapping(slot);
        let ports = [mapping.internal().port, mapping.external().port, mapping.first.remote().port];
        !self.controls.doubted.is_empty
            && has_ports(mapping.protocol)
            && ports.into_iter().any(|port| self.controls.doubted.has(port))
    }

    /// True if packets of a mapping's first session take the complete way, whatever the tables of
    /// the realm say: they may be of a control flow, they are hairpinned, or they have the address
    /// of their sender as their destination.
    pub(crate) fn is_odd(&self, slot: u32) -> bool {
        let mapping = self.table.mapping(slot);
        let remote = mapping.first.remote().address;
        self.has_control(slot)
            || self.external.has_address(remote)
            || remote == mapping.host().address()
    }

    /// Notes whether the first session of a mapping answers for its packets.
    pub(crate) fn set_answers(&mut self, slot: u32, answers: bool) {
        let stays = self.controls.has_named && self.table.is_doubted(slot);
        self.table.set_answers(slot, answers && !stays);
    }

    /// Notes whether the first session of a mapping answers for its packets, which a packet that
    /// went this way has begun.
    pub(crate) fn note_answers(&mut self, slot: u32, way: Way) {
        let answers = match way {
            Way::Out => !self.is_odd(slot),
            Way::In => self.first_answers(slot),
        };
        self.set_answers(slot, answers);
    }

    /// Doubts the mapping that a packet went by, if the packet is of a control flow. Its session
    /// may be the mapping's first session later.
    #[inline(always)]
    pub(crate) fn mark_control(&mut self, slot: u32) {
        if self.controls.marks {
            self.table.set_answers(slot, false);
        }
    }
}
