//! What happens to a packet, in the order of the specification's sections 3 to 7. Everything is
//! decided before the first byte is changed, so that an ICMP error can quote the packet as it came.
//! Fragments take a turn on the way (section 11): the first is translated as a whole packet is, the
//! others get its rewrite.
//!
//! A batch goes through stages (`batch.rs`). The first ones only warm caches and recognize packets
//! of established sessions; the decisions would be the same without them.
//!
//! This file has the ways that packets take. What they find or make on the way is in `mappings.rs`,
//! ICMP errors in `errors.rs`, what any router does in `transit.rs`.

mod admission;
mod batch;
mod errors;
mod explain;
mod fragmented;
mod hairpin;
mod lookup;
mod mappings;
mod overload;
mod parsed;
mod patch;
mod quick;
mod ruled;
mod transit;
mod turned;
mod twice;
mod watch;

use crate::endpoint::{AddressPort, Internal};
use crate::engine::Engine;
use crate::packet::direction_from;
use crate::packet::{Direction, Outcome, Packet, Side, Verdict};
use crate::parse::{Embedded, Headers, Kind, parse};
use crate::protocols::has_ports;
use crate::respond::Envelope;
use crate::rewrite::{Rewrite, apply};
use crate::rules::{Ruling, Snat};
use crate::{DropReason, Timestamp};
pub(crate) use batch::Workspace;
pub use explain::{AddressChoice, Becomes, End, Explanation, Step};
use mappings::Arrival;
pub(crate) use mappings::Opening;
use natgate_wire::protocol;
pub(crate) use overload::Rings;
use transit::is_echo_request;
pub(crate) use watch::PoolWatches;

/// What was decided of a packet.
type Fate = Result<Verdict, DropReason>;

/// Endpoints of a packet as rules match them.
#[derive(Clone, Copy, Debug)]
struct RuleEnds {
    /// Endpoint on the inside.
    inner: AddressPort,
    /// Endpoint on the outside.
    outer: AddressPort,
}

impl Engine {
    /// Translates a batch that came in on one side, in order: rewrites each packet in place and
    /// says what to do with it.
    ///
    /// # Panics
    /// When the slices differ in length or hold more than [`Engine::MAX_BATCH`].
    pub fn process(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        assert!(packets.len() == verdicts.len() && packets.len() <= Self::MAX_BATCH);
        if now.0 < self.now {
            self.counters.clock_backwards += 1;
        }
        self.observe(now);
        self.make_room();
        self.take_batch(from, packets, verdicts);
    }

    /// Decides one packet and counts it.
    fn decide(&mut self, from: Side, packet: &mut Packet<'_>) -> Verdict {
        let mut direction = direction_from(from);
        let (fate, len) = match &parse(packet.bytes()) {
            Err(reason) => (Err(*reason), packet.len()),
            Ok(headers) => {
                let len = usize::from(headers.total_len);
                packet.truncate(len);
                let realm = if from == Side::Inside { packet.realm() } else { 0 };
                self.realms.leaving = realm;
                let headers = Headers { realm, ..*headers };
                let bytes = packet.bytes_mut();
                let fate = match from {
                    Side::Inside => self.take_inside(bytes, &headers, &mut direction),
                    Side::Outside => self.take_outside(bytes, &headers, &mut direction),
                };
                (fate, len)
            }
        };
        self.settle(packet, direction, len, fate)
    }

    /// Counts what was decided of a packet.
    fn settle(
        &mut self,
        packet: &mut Packet<'_>,
        direction: Direction,
        len: usize,
        fate: Fate,
    ) -> Verdict {
        match fate {
            // Counted when it is released or given up, or by who takes it over.
            Ok(verdict @ (Verdict::Held | Verdict::HandOver)) => verdict,
            Ok(verdict) => {
                if verdict == Verdict::Forward(Side::Inside) {
                    packet.set_realm(self.realms.leaving);
                }
                let outcome = match verdict {
                    Verdict::Reply(_) => Outcome::Replied,
                    _ => Outcome::Forwarded,
                };
                self.counters.count(direction, outcome, len);
                verdict
            }
            Err(reason) => {
                //= rfc1812#section-4.2.2.11-counted
                //= rfc1812#section-5.3.9-counted
                self.counters.count_drop(direction, reason, len);
                Verdict::Drop(reason)
            }
        }
    }

    // ---- from the inside ----

    fn take_inside(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        direction: &mut Direction,
    ) -> Fate {
        let (realm, destination) = (headers.realm, headers.destination.address);
        if !self.has_realm(realm) {
            return Err(DropReason::UnknownRealm);
        }
        self.check_ends(headers, Side::Inside)?;
        if self.has_twice() {
            return self.take_inside_twice(bytes, headers, direction);
        }
        //= rfc1812#section-5.2.3
        if self.is_own(realm, destination) && self.external.index(destination).is_none() {
            *direction = Direction::Local;
            return self.local(bytes, headers, Side::Inside);
        }
        if headers.fragment && self.rules_of(realm).by_port() {
            // What the rules say of a later fragment, only the first can tell.
            self.check_later(bytes, headers, Side::Inside)?;
            let way = |engine: &mut Self, bytes: &mut [u8], direction: &mut Direction| {
                engine.inside(bytes, headers, direction)
            };
            return self.by_fragment(bytes, headers, Side::Inside, direction, way);
        }
        self.inside(bytes, headers, direction)
    }

    fn inside(&mut self, bytes: &mut [u8], headers: &Headers, direction: &mut Direction) -> Fate {
        let (realm, destination) = (headers.realm, headers.outside.address);
        let pool = self.config.default_pool_of(realm);
        let by_default = Snat { pool, address: None, timeouts: 0 };
        let snat = match self.ruling(bytes, headers, Side::Inside, realm) {
            //= rfc6888#REQ-6
            Some(Ruling::Bypass) => return self.bypass(bytes, headers, Side::Inside),
            Some(Ruling::Drop) => return Err(DropReason::Rule),
            _ if self.stays_inside(headers) || self.is_error_that_stays(bytes, headers) => {
                *direction = Direction::Hairpin;
                return self.route_inside(bytes, headers);
            }
            Some(Ruling::Snat(snat)) => snat,
            None if self.is_subscriber(headers.host()) => by_default,
            // Any host may send an error, a router on the path too. An error that is about no
            // session is dropped later.
            //= rfc5508#REQ-5
            None if headers.kind == Kind::IcmpError => by_default,
            //= rfc1812#section-4.3.2.7-silent
            None => return Err(DropReason::NotSubscriber),
        };
        self.check_outside(headers)?;
        if let Some(index) = self.external.index(destination) {
            *direction = Direction::Hairpin;
            return self.turn_round(bytes, headers, direction, snat, index);
        }
        if self.is_inside(realm, destination) && !headers.is_aimed() {
            return Err(DropReason::SameSide);
        }
        self.check_transit(bytes, headers, Side::Inside, self.outside_mtu())?;
        self.by_first(bytes, headers, Side::Inside, direction, |engine, bytes, _| {
            engine.send_out(bytes, headers, snat)
        })
    }

    fn send_out(&mut self, bytes: &mut [u8], headers: &Headers, snat: Snat) -> Fate {
        match headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => {
                self.translate_error_outbound(bytes, headers)?;
                return Ok(Verdict::Forward(Side::Outside));
            }
            _ => {}
        }
        let slot = self.outbound(bytes, headers, snat)?;
        let source = self.external_of(slot);
        let destination = headers.new_destination(source.port);
        apply(bytes, headers, Rewrite { source: Some(source), destination });
        self.clamp_mss(bytes, headers);
        self.count_portless(headers);
        Ok(Verdict::Forward(Side::Outside))
    }

    // ---- from the outside ----

    fn take_outside(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        direction: &mut Direction,
    ) -> Fate {
        let destination = headers.destination.address;
        self.check_ends(headers, Side::Outside)?;
        let own = self.config.outside.address.is_some_and(|own| own.to_bits() == destination);
        let Some(index) = self.external.index(destination) else {
            if own {
                *direction = Direction::Local;
                return self.local(bytes, headers, Side::Outside);
            }
            return self.pass_in(bytes, headers, direction);
        };
        if self.is_plain() && self.is_inside(0, headers.source.address) && !self.has_twice() {
            return Err(DropReason::SpoofedSource);
        }
        self.check_later(bytes, headers, Side::Outside)?;
        let way = |engine: &mut Self, bytes: &mut [u8], _: &mut Direction| {
            engine.inbound(bytes, headers, index)
        };
        let fate = self.by_fragment(bytes, headers, Side::Outside, direction, way);
        if own && fate == Err(DropReason::NoMapping) && is_echo_request(bytes, headers) {
            *direction = Direction::Local;
            return self.local(bytes, headers, Side::Outside);
        }
        if let Err(reason) = fate {
            self.remember_refused(bytes, headers, reason, Side::Outside, headers.source);
        }
        fate
    }

    /// A packet to an address that is not external: forwarded if a rule bypasses translation.
    fn pass_in(&mut self, bytes: &mut [u8], headers: &Headers, direction: &mut Direction) -> Fate {
        let by_port = self.realms.any_by_port();
        if headers.fragment && by_port {
            self.check_later(bytes, headers, Side::Outside)?;
        }
        let way = |engine: &mut Self, bytes: &mut [u8], _: &mut Direction| {
            engine.pass_into_realm(bytes, headers)
        };
        if by_port {
            self.by_fragment(bytes, headers, Side::Outside, direction, way)
        } else {
            way(self, bytes, direction)
        }
    }

    /// The first realm decides whose rules say that such a packet bypasses translation or is
    /// dropped.
    fn pass_into_realm(&mut self, bytes: &mut [u8], headers: &Headers) -> Fate {
        let mut place = 0;
        while let Some(realm) = self.realms.plain(place) {
            match self.ruling(bytes, headers, Side::Outside, realm) {
                Some(Ruling::Bypass) => {
                    self.check_bypass(
                        realm,
                        (headers.source.address, headers.destination.address),
                    )?;
                    self.realms.leaving = realm;
                    return self.bypass(bytes, headers, Side::Outside);
                }
                Some(Ruling::Drop) => return Err(DropReason::Rule),
                _ => place += 1,
            }
        }
        Err(DropReason::NotForUs)
    }

    /// What the rules of a realm say of a packet. An ICMP error has no ports; if no rule sends it
    /// past the translator, or drops it, by its addresses, what it is about may.
    fn ruling(&self, bytes: &[u8], headers: &Headers, from: Side, realm: u16) -> Option<Ruling> {
        let rules = self.rules_of(realm);
        let ends = |source, destination, from| match from {
            Side::Inside => RuleEnds { inner: source, outer: destination },
            Side::Outside => RuleEnds { inner: destination, outer: source },
        };
        let (source, destination) = (headers.source, headers.destination);
        let sent = ends(with_port(headers, source), with_port(headers, destination), from);
        if headers.kind != Kind::IcmpError {
            return rules.find(sent.inner, sent.outer);
        }
        let message = &bytes[usize::from(headers.header_len)..];
        let Ok(about) = Embedded::read(message) else {
            return rules.find(sent.inner, sent.outer);
        };
        // The packet that it is about went the other way.
        let about_ends = ends(about.source, about.destination, from.other());
        self.error_ruling(realm, sent, &about, about_ends)
    }

    /// What the rules of a realm say of an ICMP error with these ends, about a packet with those.
    fn error_ruling(
        &self,
        realm: u16,
        RuleEnds { inner, outer }: RuleEnds,
        about: &Embedded,
        about_ends: RuleEnds,
    ) -> Option<Ruling> {
        let is_plain = |ruling| matches!(ruling, Some(Ruling::Bypass | Ruling::Drop));
        let rules = self.rules_of(realm);
        let ruling = rules.find(inner, outer);
        if is_plain(ruling) {
            return ruling;
        }
        let ports = has_ports(about.protocol) && about.protocol != protocol::ICMP;
        let end = |end: AddressPort| if ports { end } else { AddressPort::new(end.address, 0) };
        let about = rules.find(end(about_ends.inner), end(about_ends.outer));
        if is_plain(about) { about } else { ruling }
    }

    /// Whether a rule drops what comes in, or turns round, to an internal endpoint from a remote
    /// one.
    #[inline]
    fn check_dropped(
        &self,
        headers: &Headers,
        Internal { host, port }: Internal,
        remote: AddressPort,
    ) -> Result<(), DropReason> {
        let rules = self.rules_of(host.realm());
        if !rules.drops() {
            return Ok(());
        }
        let internal = AddressPort::new(host.address(), port);
        match rules.find(with_port(headers, internal), with_port(headers, remote)) {
            Some(Ruling::Drop) => Err(DropReason::Rule),
            _ => Ok(()),
        }
    }

    /// Remembers a SYN that was refused, to tell its sender later; `remote` is the sender as seen
    /// outside.
    fn remember_refused(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        reason: DropReason,
        from: Side,
        remote: AddressPort,
    ) {
        //= rfc5382#REQ-4a
        if self.config.answer_unsolicited_syn
            && matches!(reason, DropReason::NoMapping | DropReason::Filtered)
            && matches!(headers.kind, Kind::Tcp | Kind::Dccp)
            && headers.segment.opens()
        {
            let envelope = Envelope {
                side: from,
                realm: headers.realm,
                source: headers.destination.address,
                destination: headers.source.address,
            };
            let connection = (headers.protocol, headers.outside, remote);
            self.remember_syn(envelope, connection, bytes);
        }
    }

    fn inbound(&mut self, bytes: &mut [u8], headers: &Headers, index: u32) -> Fate {
        let (remote, port) = (headers.remote_inbound(), headers.destination.port);
        let mut arrival = Arrival { index, port, remote, seen: remote, from: None };
        if self.has_twice() {
            arrival.seen = self.source_inside(bytes, headers, arrival)?;
        }
        match headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => {
                self.translate_error_inbound(bytes, headers, arrival.seen, Side::Outside)?;
                return Ok(Verdict::Forward(Side::Inside));
            }
            _ => {}
        }
        let found = self.admit(headers, arrival)?;
        let realm = self.realm_of(found);
        self.check_transit(bytes, headers, Side::Outside, self.inside_mtu(realm))?;
        let slot = self.enter(headers, arrival, found)?;
        self.realms.leaving = realm;
        let destination = Some(self.internal_of(slot));
        apply(bytes, headers, Rewrite { source: arrival.new_source(), destination });
        self.clamp_mss(bytes, headers);
        self.count_portless(headers);
        Ok(Verdict::Forward(Side::Inside))
    }
}

/// An endpoint as rules see it: ICMP identifiers are no ports.
fn with_port(headers: &Headers, endpoint: AddressPort) -> AddressPort {
    match headers.kind {
        Kind::Tcp | Kind::Udp | Kind::Dccp => endpoint,
        _ => AddressPort::new(endpoint.address, 0),
    }
}
