//! PPTP between two subscribers: the server inside has a static mapping, and the client names its
//! external endpoint.
//!
//! The engine takes such a packet out of one side and into it again at once. For a control
//! connection, the framework has two flows: that of the client towards the server's external
//! endpoint, and that of the server towards the client's. Each segment passes both, the sender's
//! first. Between them it has the form that it would have outside. No message changes its length,
//! so the engine's numbers stay right. A packet of a call passes a call of each host in the same
//! way. A worker knows its own subscribers alone: a pair of hosts of two workers has no calls.

use super::calls::Call;
use super::gre::{self, Datagram, Packet, Rewrite, Tunnel};
use super::tunnels::rewritten;
use super::{Arrived, Control, Ends, Kind, Stage};
use natgate_engine::{Engine, Side, Timestamp};
use natgate_payload::{Fate, Room};
use natgate_wire::protocol;
use std::net::SocketAddr;

impl Stage {
    /// Takes a packet that the engine has sent back to the inside through both of its flows. Other
    /// protocols than PPTP pass unread.
    pub(super) fn edit_hairpinned(
        &mut self,
        engine: &mut Engine,
        (arrived, realm): (Arrived, u16),
        before: Ends,
        room: &mut Room<'_>,
    ) -> Fate {
        let Some(after) = Ends::read(room.bytes()) else { return Fate::Pass };
        let between = Ends { destination: before.destination, ..after };
        let is_of_pptp = |control: &Control| control.kind == Kind::Pptp;
        let out = self.outbound(arrived.realm, before, between).filter(is_of_pptp);
        let into = self.inbound(between).filter(is_of_pptp);
        let (Some(out), Some(into)) = (out, into) else { return Fate::Pass };
        gre::redirect(room.bytes_mut(), between.destination);
        let mut fate = self.edit((engine, None), arrived, out, room);
        if fate == Fate::Pass {
            let arrived = Arrived { from: Side::Outside, realm, ..arrived };
            fate = self.edit((engine, None), arrived, into, room);
        }
        gre::redirect(room.bytes_mut(), after.destination);
        fate
    }

    /// Takes a packet of the framework's own that would come back from the engine, because another
    /// subscriber has its other end: it passes what is left of both flows. Returns the realm of the
    /// host that it reaches. Outer `None`: it is no such packet. Inner `None`: it ends here.
    pub(super) fn turn_own(
        &mut self,
        engine: &mut Engine,
        (now, to): (Timestamp, Side),
        room: &mut Room<'_>,
    ) -> Option<Option<u16>> {
        let ends = Ends::read(room.bytes())?;
        self.payloads.find(ends.protocol, ends.source, ends.destination)?;
        let into = self.inbound(ends).filter(|control| control.kind == Kind::Pptp)?;
        let realm = into.endpoints.realm;
        let SocketAddr::V4(internal) = into.endpoints.internal else { return None };
        if to == Side::Outside {
            let arrived = Arrived { now, from: Side::Outside, realm };
            if self.edit((engine, None), arrived, into, room) != Fate::Pass {
                return Some(None);
            }
        }
        gre::redirect(room.bytes_mut(), internal);
        Some(Some(realm))
    }

    /// True if a packet came from outside, and its call is with another subscriber, whose packets
    /// come from inside: the sender is neither of both.
    pub(super) fn is_from_neither(&self, from: Side, call: &Call) -> bool {
        from == Side::Outside && self.is_hairpinned(call)
    }

    /// True if a call is with another subscriber: its remote end is the external end of a control
    /// connection from there.
    pub(super) fn is_hairpinned(&self, call: &Call) -> bool {
        self.payloads.find(protocol::TCP, call.remote, call.external).is_some()
    }

    /// MTU of the link of the receiver of a packet that its sender's call sends back to the inside.
    /// `None`: the configuration in force lets no packet turn round to that host.
    pub(super) fn mtu_of_turned(
        &self,
        engine: &Engine,
        (now, packet): (u32, Packet),
        call: &Call,
        new: Rewrite,
    ) -> Option<u16> {
        let receiver = self.returned(now, packet, new);
        let realm = receiver.map_or(call.realm, |(other, ..)| other.realm);
        let config = engine.config();
        let may_turn = config.hairpinning && config.may_hairpin(call.realm, realm);
        may_turn.then(|| engine.inside_mtu(realm))
    }

    /// The call of the receiver of a packet that its sender's call sends back to the inside, the
    /// packet as it would be outside, and the fields that it has inside. `None`: it has no call.
    pub(super) fn returned(
        &self,
        now: u32,
        packet: Packet,
        new: Rewrite,
    ) -> Option<(Call, Packet, Rewrite)> {
        let (packet, ends) = outside(packet, new);
        let (call, _) = self.call_of(now, (Side::Outside, 0), packet)?;
        let inside = rewritten(Side::Outside, packet, &call, ends);
        let (number, identification) = (inside.call.or(new.call), new.identification);
        Some((call, packet, Rewrite { call: number, identification, ..inside }))
    }
}

/// A packet with its new fields, and its addresses.
fn outside(packet: Packet, new: Rewrite) -> (Packet, (u32, u32)) {
    let Rewrite { source, destination, call, identification, error } = new;
    let tunnel = |of: Tunnel| Tunnel { source, destination, call: call.unwrap_or(of.call) };
    let datagram = |of: Datagram| {
        let identification = identification.unwrap_or(of.identification);
        Datagram { source, destination, identification }
    };
    let packet = match packet {
        Packet::Data(of) => Packet::Data(tunnel(of)),
        Packet::First(of, piece) => Packet::First(tunnel(of), datagram(piece)),
        Packet::Later(piece) => Packet::Later(datagram(piece)),
        Packet::Error(quoted) => Packet::Error(tunnel(quoted)),
    };
    (packet, error.unwrap_or((source, destination)))
}
