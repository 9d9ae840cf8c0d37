//! Packets of calls of PPTP. They go past the engine, which knows no call: enhanced GRE, and ICMP
//! errors that quote it. A packet that does not belong to a call goes through the engine, as if
//! there were no gateways. So does a packet whose TTL ends, or that is too big, and the engine
//! answers it.

use super::calls::{Call, likely_worker};
use super::gre::{self, Packet, Rewrite, Tunnel};
use super::{AlgExpectation, Arrived, Kind, OpenExpectation, Stage, Taken, seconds};
use crate::counters::{Losses, Origin};
use natgate_engine::{Endpoint, Engine, Side, Timestamp, Verdict};
use natgate_payload::Room;
use natgate_wire::{Ipv4, protocol, tcp};
use std::net::SocketAddrV4;
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
            Packet::Data(tunnel) => CallSearch {
                is_here: self.calls.of_inbound(0, tunnel).is_some(),
                likely: Some(likely_worker(tunnel.call)),
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
        engine: &Engine,
        arrived: Arrived,
        room: &mut Room<'_>,
        losses: &mut Losses,
    ) -> Option<Taken> {
        if self.calls.is_empty() {
            return None;
        }
        let Arrived { now, from, realm } = arrived;
        let packet = gre::read(room.bytes())?;
        let call = self.call_of(seconds(now), (from, realm), packet)?;
        let mtu = match from {
            Side::Inside => engine.outside_mtu(),
            Side::Outside => engine.inside_mtu(call.realm),
        };
        if !gre::may_pass(room.bytes(), mtu) {
            return None;
        }
        let len = room.bytes().len();
        let ip = Ipv4::new_checked(room.bytes()).ok()?;
        let (total_len, ends) = (ip.total_len(), (ip.source(), ip.destination()));
        room.set_len(usize::from(total_len));
        gre::rewrite(room.bytes_mut(), rewritten(from, packet, &call, ends));
        if matches!(packet, Packet::Data(_)) {
            self.calls.note(seconds(now), &call, from == Side::Inside);
        }
        losses.keep(Origin::forwarded(from, from.other(), len));
        Some(Taken::Decided(Verdict::Forward(from.other()), call.realm))
    }

    fn call_of(&self, now: u32, (from, realm): (Side, u16), packet: Packet) -> Option<Call> {
        match (from, packet) {
            (Side::Inside, Packet::Data(tunnel)) => self.calls.of_outbound(now, realm, tunnel),
            (Side::Inside, Packet::Error(quoted)) => {
                self.calls.of_quoted_inside(now, realm, quoted)
            }
            (Side::Outside, Packet::Data(tunnel)) => self.calls.of_inbound(now, tunnel),
            (Side::Outside, Packet::Error(quoted)) => self.calls.of_quoted_outside(now, quoted),
        }
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
    pub(super) fn waiting_calls(&self, now: Timestamp) -> impl Iterator<Item = OpenExpectation> {
        self.calls.waiting(seconds(now)).map(move |call| OpenExpectation {
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

/// The fields of a call's packet on the other side. `ends`: the packet's addresses.
fn rewritten(from: Side, packet: Packet, call: &Call, ends: (u32, u32)) -> Rewrite {
    let (host, outer) = (call.internal.ip().to_bits(), call.external.ip().to_bits());
    match (from, packet) {
        (Side::Inside, Packet::Data(tunnel)) => {
            Rewrite { tunnel: Tunnel { source: outer, ..tunnel }, error: None }
        }
        (Side::Outside, Packet::Data(tunnel)) => {
            Rewrite { tunnel: Tunnel { destination: host, call: call.own, ..tunnel }, error: None }
        }
        (Side::Inside, Packet::Error(quoted)) => Rewrite {
            tunnel: Tunnel { destination: outer, call: call.outer, ..quoted },
            error: Some((outer, ends.1)),
        },
        (Side::Outside, Packet::Error(quoted)) => {
            Rewrite { tunnel: Tunnel { source: host, ..quoted }, error: Some((ends.0, host)) }
        }
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
