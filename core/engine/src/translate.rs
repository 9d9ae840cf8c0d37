//! The translation of a packet, in the order of the specification's sections 3 to 7. The complete
//! way decides everything before anything changes (`decide.rs`), so that an ICMP error can quote
//! the packet as it came; then it carries the plan out (`carry_out.rs`). The first fragment of a
//! datagram (section 11) is translated like a whole packet, the others get its rewrite.
//!
//! A batch goes through stages (`batch.rs`). The first ones only warm caches and recognize packets
//! of established sessions; the decisions would be the same without them.
//!
//! This file has the stages and the rulings for a packet. Mappings and sessions are made in
//! `mappings.rs`.

mod batch;
mod carry_out;
mod decide;
mod explain;
mod fragmented;
mod lookup;
mod mappings;
mod overload;
mod parsed;
mod patch;
mod plan;
mod quick;
mod ruled;
mod serving;
mod transit;
mod turned;
mod twice;
mod watch;

use crate::endpoint::{AddressPort, Internal};
use crate::engine::Engine;
use crate::packet::direction_from;
use crate::packet::{Direction, Outcome, Packet, Side, Verdict};
use crate::parse::{Embedded, Headers, Kind, parse, parse_turned};
use crate::protocols::has_ports;
use crate::rules::Ruling;
use crate::{DropReason, Timestamp};
pub(crate) use batch::Workspace;
pub use explain::{AddressChoice, Becomes, End, Explanation, Step};
pub(crate) use mappings::Opening;
use natgate_wire::protocol;
pub(crate) use overload::Rings;
use plan::Plan;
pub use serving::{NumberedSender, Serving};
pub(crate) use watch::PoolWatches;

/// The decision about a packet.
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
        self.begin_batch(now, packets.len(), verdicts.len());
        self.take_batch(from, packets, verdicts, None);
    }

    /// Begins a batch of packets.
    pub(crate) fn begin_batch(&mut self, now: Timestamp, packets: usize, verdicts: usize) {
        assert!(packets == verdicts && packets <= Self::MAX_BATCH);
        if now.0 < self.now {
            self.counters.clock_backwards += 1;
        }
        self.observe(now);
        self.sweep.note_packets(packets as u32);
        self.make_room();
    }

    /// Takes one packet the complete way and counts it.
    fn complete(&mut self, from: Side, packet: &mut Packet<'_>) -> Verdict {
        let parsed = &mut match parse(packet.bytes()) {
            // A number may equal the destination's address by chance.
            Err(DropReason::Land) if from == Side::Inside && self.has_numbers(packet.realm()) => {
                parse_turned(packet.bytes())
            }
            parsed => parsed,
        };
        let headers = match parsed {
            Ok(headers) => headers,
            Err(reason) => {
                let fate = (direction_from(from), Err(*reason));
                return self.settle(packet, packet.len(), fate, 0);
            }
        };
        let len = usize::from(headers.total_len);
        packet.truncate(len);
        headers.realm = if from == Side::Inside { packet.realm() } else { 0 };
        let mut plan = Plan::new(direction_from(from), headers.realm);
        self.decide((packet.bytes(), headers), from, &mut plan, |it| it.take());
        self.carry_out(packet.bytes_mut(), headers, from, &mut plan);
        self.settle(packet, len, (plan.direction, plan.fate), plan.leaving)
    }

    /// Counts what became of a packet, which goes to a realm if it leaves by the inside.
    fn settle(
        &mut self,
        packet: &mut Packet<'_>,
        len: usize,
        (direction, fate): (Direction, Fate),
        leaving: u16,
    ) -> Verdict {
        match fate {
            // Counted when it is released or given up, or by who takes it over.
            Ok(verdict @ (Verdict::Held | Verdict::HandOver)) => verdict,
            Ok(verdict) => {
                if verdict == Verdict::Forward(Side::Inside) {
                    packet.set_realm(leaving);
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

    /// The ruling of a realm's rules for a packet. An ICMP error has no ports: if no rule bypasses
    /// or drops it by its addresses, the rule for its embedded packet may.
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

    /// The ruling of a realm's rules for an ICMP error with these ends, about a packet with those.
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

    /// Checks that no rule drops packets that come in, or turn round, to an internal endpoint from
    /// a remote endpoint.
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

    /// Checks that no rule drops an error from `sender` about the session between these endpoints,
    /// or the packets that the session sends.
    pub(super) fn check_dropped_error(
        &self,
        about: &Embedded,
        Internal { host, port }: Internal,
        sender: u32,
        remote: AddressPort,
    ) -> Result<(), DropReason> {
        if !self.rules_of(host.realm()).drops() {
            return Ok(());
        }
        let ends = RuleEnds {
            inner: AddressPort::new(host.address(), 0),
            outer: AddressPort::new(sender, 0),
        };
        let about_ends = RuleEnds { inner: AddressPort::new(host.address(), port), outer: remote };
        match self.error_ruling(host.realm(), ends, about, about_ends) {
            Some(Ruling::Drop) => Err(DropReason::Rule),
            _ => Ok(()),
        }
    }
}

/// An endpoint as rules see it: ICMP identifiers are no ports.
fn with_port(headers: &Headers, endpoint: AddressPort) -> AddressPort {
    match headers.kind {
        Kind::Tcp | Kind::Udp | Kind::Dccp => endpoint,
        _ => AddressPort::new(endpoint.address, 0),
    }
}
