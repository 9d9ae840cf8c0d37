//! The external address that serves a packet: that of its mapping, or of the mapping that it would
//! make. One of a pair asks before it translates, because the address's owner may be the other one
//! (`docs/design/pair.md`). Nothing changes.
//!
//! The answers are those of a decision (`decide.rs`) as far as the address depends on them. A
//! packet that a decision would drop may have an address here: its owner drops it.

use super::Engine;
use crate::endpoint::{AddressPort, Internal};
use crate::host::Host;
use crate::packet::{Packet, Side};
use crate::parse::{Embedded, Headers, Kind, parse, parse_turned};
use crate::rules::{Ruling, Snat};
use core::net::Ipv4Addr;
use natgate_wire::Ipv4;

/// The external address that serves a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// This one.
    Address(Ipv4Addr),
    /// This one, that of its subscriber in the pool, for a mapping that there is not yet.
    New(Ipv4Addr, usize),
    /// Any address of the pool: its subscriber has none yet.
    Any(usize),
    /// None: the packet is not translated by a mapping.
    Nothing,
}

/// The sender of a packet that is not IPv4, as the engine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberedSender {
    /// Realm and number. The number is `None` as long as the host has none.
    pub host: (u16, Option<Ipv4Addr>),
    /// Protocol, and the internal port. `None`: the packet does not tell.
    pub port: Option<(u8, u16)>,
    /// Remote endpoint.
    pub remote: (Ipv4Addr, u16),
}

impl Engine {
    /// The address that serves a packet from inside.
    pub fn serving_outbound(&self, packet: &Packet<'_>) -> Serving {
        self.serving_of(packet.bytes(), packet.realm(), None)
    }

    /// The address that serves a packet from a tunnel: the packet in it, and the realm and the
    /// number of its sender.
    pub fn serving_tunneled(&self, inner: &[u8], (realm, number): (u16, Ipv4Addr)) -> Serving {
        self.serving_of(inner, realm, Some(number))
    }

    /// The address that serves a packet of a host with a number that is not IPv4.
    pub fn serving_numbered(&self, sender: NumberedSender) -> Serving {
        let (realm, number) = sender.host;
        if !self.has_realm(realm) {
            return Serving::Nothing;
        }
        let snat = Snat::of_pool(self.config.default_pool_of(realm));
        let Some(number) = number else { return Serving::Any(snat.pool) };
        let host = Host::new(realm, number.to_bits());
        let (address, port) = sender.remote;
        let remote = AddressPort::new(address.to_bits(), port);
        let mapped = sender.port.map(|(protocol, port)| (protocol, Internal::new(host, port)));
        self.serving_host(host, snat, mapped.map(|(protocol, end)| (protocol, end, remote)))
    }

    /// The external address that a packet goes to, from outside, or when it turns round. `None`: it
    /// goes elsewhere, or to the gateway itself.
    pub fn external_destination(&self, packet: &[u8]) -> Option<Ipv4Addr> {
        let destination = Ipv4::new_checked(packet).ok()?.destination();
        let is_own = self.is_outside_own(destination);
        let is_external = !is_own && self.external.index(destination).is_some();
        is_external.then(|| Ipv4Addr::from_bits(destination))
    }

    /// Has packets that turn round take two steps from now on, as
    /// [`Verdict::HandOver`](crate::Verdict::HandOver) says.
    pub fn turn_in_steps(&mut self) {
        self.turns_in_steps = true;
    }

    fn serving_of(&self, bytes: &[u8], realm: u16, number: Option<Ipv4Addr>) -> Serving {
        let parsed = match number {
            None => parse(bytes),
            Some(_) => parse_turned(bytes),
        };
        let Ok(mut headers) = parsed else { return Serving::Nothing };
        let source = headers.source.address;
        headers.realm = realm;
        if let Some(number) = number {
            headers.source.address = number.to_bits();
        }
        if headers.fragment {
            // All fragments of a datagram are served alike, and only the first has ports.
            headers.kind = Kind::LaterFragment;
        }
        let bytes = &bytes[..usize::from(headers.total_len)];
        let Some(snat) = self.serving_rule(bytes, &headers) else { return Serving::Nothing };
        let host = headers.host();
        let (host, mapped) = match headers.kind {
            Kind::IcmpOther => return Serving::Nothing,
            Kind::LaterFragment => (host, None),
            Kind::IcmpError => {
                let message = &bytes[usize::from(headers.header_len)..];
                let Ok(about) = Embedded::read(message) else { return Serving::Nothing };
                match number {
                    // A router behind a tunnel tells of another host of the tunnel.
                    Some(_) if about.destination.address != source => (host, None),
                    Some(_) => (host, Some(mapped_by(&about, host))),
                    None => {
                        let host = Host::new(realm, about.destination.address);
                        (host, Some(mapped_by(&about, host)))
                    }
                }
            }
            _ => (host, Some((headers.protocol, headers.internal(), headers.remote_outbound()))),
        };
        self.serving_host(host, snat, mapped)
    }

    /// The rule for a packet from inside. `None`: it is not translated by a mapping.
    fn serving_rule(&self, bytes: &[u8], headers: &Headers) -> Option<Snat> {
        let (realm, destination) = (headers.realm, headers.destination.address);
        let is_external = || self.external.index(destination).is_some();
        let is_near = self.is_own(realm, destination) || self.is_inside(realm, destination);
        if !self.has_realm(realm) || is_near && !self.has_numbers(realm) && !is_external() {
            return None;
        }
        match self.ruling(bytes, headers, Side::Inside, realm) {
            Some(Ruling::Bypass | Ruling::Drop) => None,
            _ if self.stays_inside(headers) || self.is_error_that_stays(bytes, headers) => None,
            Some(Ruling::Snat(snat)) => Some(snat),
            None => {
                let is_subscriber = self.is_subscriber(headers.host());
                (is_subscriber || headers.kind == Kind::IcmpError)
                    .then(|| Snat::of_pool(self.config.default_pool_of(realm)))
            }
        }
    }

    /// The address that serves a host's packets of a flow; `None`: of any flow.
    fn serving_host(
        &self,
        host: Host,
        snat: Snat,
        mapped: Option<(u8, Internal, AddressPort)>,
    ) -> Serving {
        let index = match mapped {
            None => None,
            Some((protocol, internal, remote)) => {
                let found = self.look_up_internal(protocol, internal, remote);
                let found = found.map(|slot| self.table.mapping(slot).external().index);
                let whole = || Some(self.statics.external(host, protocol)?.0);
                found.or_else(whole)
            }
        };
        let fixed = || self.external.index(snat.address?.to_bits());
        let paired = || {
            let record = self.subscribers.find(host);
            let paired = record.and_then(|at| self.subscribers.paired(at, snat.pool));
            self.external.pairing(snat.pool, host, paired)
        };
        let address = |index| Ipv4Addr::from_bits(self.external.address(index));
        if let Some(index) = index.or_else(fixed) {
            return Serving::Address(address(index));
        }
        match paired() {
            // There may be a mapping.
            Some(index) if mapped.is_none() => Serving::Address(address(index)),
            Some(index) => Serving::New(address(index), snat.pool),
            None => Serving::Any(snat.pool),
        }
    }
}

/// The flow that an error from inside is about: the packet in it went to the host.
fn mapped_by(about: &Embedded, host: Host) -> (u8, Internal, AddressPort) {
    let internal = Internal::new(host, about.destination.port);
    (about.protocol, internal, about.remote_of_destination())
}
