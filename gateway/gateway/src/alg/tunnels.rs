//! Packets of calls of PPTP. They go past the engine, which knows no call: enhanced GRE, and ICMP
//! errors that quote it. A packet that does not belong to a call goes through the engine, as if
//! there were no gateways. So does a packet whose TTL ends, or that is too big, and the engine
//! answers it.

use super::calls::{Call, likely_worker};
use super::gre::{self, Datagram, Packet, Rewrite};
use super::{AlgExpectation, Arrived, Kind, OpenExpectation, Stage, Taken, seconds};
use crate::counters::{Losses, Origin};
use natgate_engine::{
    Becomes, Direction, DropReason, End, Endpoint, Engine, Explanation, Side, Timestamp, Verdict,
};
use natgate_ipv6::Translator;
use natgate_payload::{Edit, Room};
use natgate_wire::{Ipv4, protocol, tcp};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Answer of a worker that is asked for the call of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallSearch {
    /// True if the worker knows the call.
    pub(crate) is_here: bool,
    /// The worker that is likely to know the call.
    pub(crate) likely: Option<usize>,
}

impl Stage {
    /// True if a packet may be a later fragment of a call, whose first bytes are any.
    #[inline]
    pub(super) fn may_follow(&self, packet: &[u8]) -> bool {
        self.has_pieces() && matches!(gre::read(packet), Some(Packet::Later(_)))
    }

    /// True if later fragments of calls may come.
    #[inline(always)]
    pub(super) fn has_pieces(&self) -> bool {
        self.calls.has_pieces()
    }

    /// True if a packet may be of a call.
    pub(super) fn may_have_call(&self, packet: &[u8]) -> bool {
        !self.calls.is_empty() && gre::read(packet).is_some()
    }

    /// What this worker knows about the call of a packet from outside. `None`: the packet is of no
    /// call.
    #[cold]
    pub(crate) fn search_call(&self, packet: &[u8]) -> Option<CallSearch> {
        let is_on = self.settings.has(Kind::Pptp) || self.former.has(Kind::Pptp);
        let packet = gre::read(packet).filter(|_| is_on)?;
        // A call whose time has passed is nobody else's.
        Some(match packet {
            Packet::Data(tunnel) | Packet::First(tunnel, _) => CallSearch {
                is_here: self.calls.of_inbound(0, tunnel).is_some(),
                likely: Some(likely_worker(tunnel.call)),
            },
            Packet::Later(datagram) => CallSearch {
                is_here: self.calls.of_later(0, (None, datagram)).is_some(),
                likely: None,
            },
            Packet::Error(quoted) => CallSearch {
                is_here: self.calls.of_quoted_outside(0, quoted).is_some(),
                likely: None,
            },
        })
    }

    /// Takes a packet of a call. `None`: it is of no call, or the engine has to answer it.
    pub(super) fn take_call(
        &mut self,
        engine: &mut Engine,
        arrived: Arrived,
        room: &mut Room<'_>,
        losses: &mut Losses,
    ) -> Option<Taken> {
        if self.calls.is_empty() {
            return None;
        }
        let len = room.bytes().len();
        self.take_call_of(engine, arrived, (room, len), losses)
    }

    /// As [`Stage::take_call`], for a packet that came with `len` bytes.
    pub(crate) fn take_call_of(
        &mut self,
        engine: &mut Engine,
        arrived: Arrived,
        (room, len): (&mut Room<'_>, usize),
        losses: &mut Losses,
    ) -> Option<Taken> {
        let Arrived { now, from, realm } = arrived;
        let packet = gre::read(room.bytes())?;
        let (call, mut identification) = self.call_of(seconds(now), (from, realm), packet)?;
        if self.is_from_neither(from, &call) {
            return None;
        }
        let ip = Ipv4::new_checked(room.bytes()).ok()?;
        let (total_len, ends) = (ip.total_len(), (ip.source(), ip.destination()));
        let is_turned = from == Side::Inside && self.is_hairpinned(&call);
        let new = Rewrite { identification, ..rewritten(from, packet, &call, ends) };
        let mtu = match is_turned {
            true => self.mtu_of_turned(engine, (seconds(now), packet), &call, new)?,
            false => mtu_beyond(engine, from, call.realm),
        };
        if !gre::may_pass(room.bytes(), mtu) {
            return None;
        }
        let to = if is_turned { Side::Inside } else { from.other() };
        let origin = Origin::forwarded(from, to, len);
        losses.keep(origin);
        if let Packet::First(_, datagram) = packet {
            match self.begin_datagram(engine, arrived, &call, datagram) {
                Ok(new) => identification = new,
                Err(reason) => {
                    losses.note(Some(origin), reason);
                    return Some(Taken::Kept);
                }
            }
        }
        room.set_len(usize::from(total_len));
        let mut new = Rewrite { identification, ..new };
        let is_error = matches!(packet, Packet::Error(_));
        let mut realm = call.realm;
        if is_turned {
            let Some((other, outside, inside)) = self.returned(seconds(now), packet, new) else {
                losses.note(Some(origin), DropReason::Filtered);
                return Some(Taken::Kept);
            };
            if let Packet::First(_, datagram) = outside {
                let until = seconds(now.plus(engine.config().timeouts.fragment));
                self.calls.note_first(until, &other, (None, datagram), None);
            }
            if !is_error {
                self.calls.note(seconds(now), &other, false);
            }
            (new, realm) = (inside, other.realm);
        }
        gre::rewrite(room.bytes_mut(), new);
        if !is_error {
            self.calls.note(seconds(now), &call, from == Side::Inside);
        }
        Some(Taken::Decided(Verdict::Forward(to), realm))
    }

    /// Explains a packet of a call. `None`: it is of no call, or the engine would answer it.
    pub(crate) fn explain_call(
        &self,
        engine: &Engine,
        Arrived { now, from, realm }: Arrived,
        bytes: &[u8],
    ) -> Option<(Explanation, natgate_payload::Explanation)> {
        let packet = gre::read(bytes)?;
        let (call, identification) = self.call_of(seconds(now), (from, realm), packet)?;
        if self.is_from_neither(from, &call) {
            return None;
        }
        let ip = Ipv4::new_checked(bytes).ok()?;
        let ends = (ip.source(), ip.destination());
        let new = Rewrite { identification, ..rewritten(from, packet, &call, ends) };
        let (mut new, mut to, mut realm) = (new, from.other(), call.realm);
        let is_turned = from == Side::Inside && self.is_hairpinned(&call);
        let mtu = match is_turned {
            true => self.mtu_of_turned(engine, (seconds(now), packet), &call, new)?,
            false => mtu_beyond(engine, from, call.realm),
        };
        if !gre::may_pass(bytes, mtu) {
            return None;
        }
        if is_turned {
            let (other, _, inside) = self.returned(seconds(now), packet, new)?;
            (new, to, realm) = (inside, Side::Inside, other.realm);
        }
        let (source, destination) = new.error.unwrap_or((new.source, new.destination));
        let [source, destination] = [source, destination]
            .map(|address| End { address: Some(Ipv4Addr::from_bits(address)), port: None });
        let mut told = Explanation::new();
        told.verdict = Verdict::Forward(to);
        told.direction = Direction::forwarded(from, to);
        told.becomes = Some(Becomes { source, destination, realm });
        let old = match packet {
            Packet::Data(tunnel) | Packet::First(tunnel, _) | Packet::Error(tunnel) => tunnel.call,
            Packet::Later(_) => 0,
        };
        let edit = |new: u16| Edit { old: old.to_be_bytes().into(), new: new.to_be_bytes().into() };
        let payload = natgate_payload::Explanation {
            edits: new.call.map(edit).into_iter().collect(),
            ..natgate_payload::Explanation::of_call(Kind::Pptp)
        };
        Some((told, payload))
    }

    /// Begins a fragmented datagram of a call; returns the identification that it leaves with.
    /// Hosts behind one external address do not know each other's.
    fn begin_datagram(
        &mut self,
        engine: &mut Engine,
        Arrived { now, from, realm }: Arrived,
        call: &Call,
        datagram: Datagram,
    ) -> Result<Option<u16>, DropReason> {
        let new = match from {
            Side::Inside => engine.draw_identification(*call.external.ip(), *call.internal.ip())?,
            Side::Outside => None,
        };
        let until = seconds(now.plus(engine.config().timeouts.fragment));
        self.calls.note_first(until, call, (realm_of(from, realm), datagram), new);
        Ok(new)
    }

    /// The call of a packet, and the identification of a later fragment.
    pub(super) fn call_of(
        &self,
        now: u32,
        (from, realm): (Side, u16),
        packet: Packet,
    ) -> Option<(Call, Option<u16>)> {
        let call = match (from, packet) {
            (_, Packet::Later(datagram)) => {
                return self.calls.of_later(now, (realm_of(from, realm), datagram));
            }
            (Side::Inside, Packet::Data(tunnel) | Packet::First(tunnel, _)) => {
                self.calls.of_outbound(now, realm, tunnel)
            }
            (Side::Inside, Packet::Error(quoted)) => {
                self.calls.of_quoted_inside(now, realm, quoted)
            }
            (Side::Outside, Packet::Data(tunnel) | Packet::First(tunnel, _)) => {
                self.calls.of_inbound(now, tunnel)
            }
            (Side::Outside, Packet::Error(quoted)) => self.calls.of_quoted_outside(now, quoted),
        };
        Some((call?, None))
    }

    /// Ends calls without packets, and calls whose control connection is not there any more.
    pub(super) fn sweep_calls(&mut self, engine: &mut Engine, now: Timestamp) {
        let Self { payloads, calls, .. } = self;
        calls.sweep(seconds(now), |call| {
            payloads.is_open(protocol::TCP, call.external, call.remote)
                && engine.expects(&segment(call.remote, call.external))
        });
    }

    /// Calls without a packet so far, as expectations.
    pub(super) fn waiting_calls(
        &self,
        translator: Option<&Translator>,
        now: Timestamp,
    ) -> impl Iterator<Item = OpenExpectation> {
        let host = move |call: &Call| translator?.host(call.realm, *call.internal.ip());
        self.calls.waiting(seconds(now)).map(move |call| OpenExpectation {
            host: host(call),
            made: expectation(call),
            left: Duration::from_secs((call.expires - seconds(now)).into()),
            once: true,
        })
    }
}

fn expectation(call: &Call) -> AlgExpectation {
    AlgExpectation {
        time: call.made,
        kind: Kind::Pptp,
        protocol: protocol::GRE,
        realm: call.realm,
        internal: Endpoint { address: *call.internal.ip(), port: call.own },
        external: Endpoint { address: *call.external.ip(), port: call.outer },
        remote: Some(*call.remote.ip()),
        remote_port: 0,
    }
}

/// MTU of the side that a packet of a flow leaves by. The host inside is of a realm.
pub(super) fn mtu_beyond(engine: &Engine, from: Side, realm: u16) -> u16 {
    match from {
        Side::Inside => engine.outside_mtu(),
        Side::Outside => engine.inside_mtu(realm),
    }
}

/// The realm that fragments come from.
fn realm_of(from: Side, realm: u16) -> Option<u16> {
    (from == Side::Inside).then_some(realm)
}

/// The fields of a call's packet on the other side. `ends`: the packet's addresses.
pub(super) fn rewritten(from: Side, packet: Packet, call: &Call, ends: (u32, u32)) -> Rewrite {
    let (host, outer) = (call.internal.ip().to_bits(), call.external.ip().to_bits());
    let (source, destination) = match packet {
        Packet::Error(quoted) => (quoted.source, quoted.destination),
        _ => ends,
    };
    let is_error = matches!(packet, Packet::Error(_));
    let is_later = matches!(packet, Packet::Later(_));
    let none = Rewrite { source, destination, call: None, identification: None, error: None };
    match (from, is_error) {
        (Side::Inside, false) => Rewrite { source: outer, ..none },
        (Side::Outside, false) => {
            Rewrite { destination: host, call: (!is_later).then_some(call.own), ..none }
        }
        (Side::Inside, true) => Rewrite {
            destination: outer,
            call: Some(call.outer),
            error: Some((outer, ends.1)),
            ..none
        },
        (Side::Outside, true) => Rewrite { source: host, error: Some((ends.0, host)), ..none },
    }
}

/// A segment without flags, to ask the engine for the mapping of its destination.
fn segment(from: SocketAddrV4, to: SocketAddrV4) -> [u8; 40] {
    let mut bytes = [0; 20 + tcp::HEADER_LEN];
    let mut ip = Ipv4::init(&mut bytes[..], 20);
    ip.set_total_len(40);
    ip.set_ttl(64);
    ip.set_protocol(protocol::TCP);
    ip.set_source(from.ip().to_bits());
    ip.set_destination(to.ip().to_bits());
    ip.fill_checksum();
    bytes[20..22].copy_from_slice(&from.port().to_be_bytes());
    bytes[22..24].copy_from_slice(&to.port().to_be_bytes());
    bytes[32] = 0x50;
    bytes
}
