//! The ways of `translate.rs`, `transit.rs` and `turned.rs`, step by step, for reading alone. Each
//! function here is named as its twin there and decides as that does.

use super::{End, Explanation, Step, end, endpoint, what};
use crate::endpoint::{AddressPort, External, Internal};
use crate::fragments::{Fragment, Later};
use crate::packet::{Direction, Side, Verdict};
use crate::parse::{Headers, Kind};
use crate::random::Generator;
use crate::respond::Message;
use crate::rules::{Ruling, Snat};
use crate::translate::mappings::{Arrival, InboundMatch};
use crate::translate::transit::is_echo_request;
use crate::translate::{Engine, Fate, with_port};
use crate::{DropReason, Timestamp};
use core::net::Ipv4Addr;
use natgate_wire::Ipv4;

/// A packet on its way.
pub(super) struct Walk<'e> {
    pub(super) engine: &'e Engine,
    /// The time, nanoseconds.
    pub(super) now: u64,
    pub(super) bytes: &'e [u8],
    pub(super) headers: Headers,
    /// A copy, to find out whether something would be found.
    pub(super) generator: Generator,
    pub(super) told: &'e mut Explanation,
    /// What the packet would become: addresses and ports, and which of them are only drawn.
    pub(super) source: AddressPort,
    pub(super) destination: AddressPort,
    /// Whether the source's address, its port, would be drawn.
    pub(super) drawn: (bool, bool),
    pub(super) leaving: u16,
}

impl<'e> Walk<'e> {
    pub(super) fn new(
        engine: &'e Engine,
        now: Timestamp,
        bytes: &'e [u8],
        headers: Headers,
        told: &'e mut Explanation,
    ) -> Self {
        Self {
            engine,
            now: engine.now.max(now.0),
            bytes,
            headers,
            generator: engine.generator.clone(),
            told,
            source: headers.source,
            destination: headers.destination,
            drawn: (false, false),
            leaving: headers.realm,
        }
    }

    pub(super) fn note(&mut self, step: Step) {
        self.told.note(step);
    }

    /// Decides as `Engine::decide`, and says what the packet would become.
    pub(super) fn take(mut self, from: Side) -> Fate {
        self.begin();
        let fate = match from {
            Side::Inside => self.take_inside(),
            Side::Outside => self.take_outside(),
        };
        self.finish(fate)
    }

    fn begin(&mut self) {
        let Headers { protocol, kind, source, destination, .. } = self.headers;
        let (source, destination) = (end(kind, source), end(kind, destination));
        self.note(Step::Read { protocol, what: what(kind), source, destination });
        if !self.engine.is_settled() {
            self.note(Step::Unsettled);
        }
    }

    fn finish(self, fate: Fate) -> Fate {
        let kind = self.headers.kind;
        if matches!(fate, Ok(Verdict::Forward(_) | Verdict::Reply(_) | Verdict::HandOver)) {
            let known = end(kind, self.source);
            let source = End {
                address: known.address.filter(|_| !self.drawn.0),
                port: known.port.filter(|_| !self.drawn.1),
            };
            let known = end(kind, self.destination);
            // A query has its identifier once.
            let is_drawn = self.drawn.1 && matches!(kind, Kind::IcmpQuery { .. });
            let destination = End { port: known.port.filter(|_| !is_drawn), ..known };
            let becomes = super::Becomes { source, destination, realm: self.leaving };
            self.told.becomes = Some(becomes);
        }
        fate
    }

    // ---- from the inside ----

    fn take_inside(&mut self) -> Fate {
        let (engine, realm) = (self.engine, self.headers.realm);
        self.note(Step::Realm(realm));
        if !engine.has_realm(realm) {
            return Err(DropReason::UnknownRealm);
        }
        engine.check_ends(&self.headers, Side::Inside)?;
        if engine.has_twice() {
            return self.take_inside_twice();
        }
        if self.is_local() {
            return self.local(Side::Inside);
        }
        if self.headers.fragment && engine.rules_of(realm).by_port() {
            self.check_later(Side::Inside)?;
            return self.by_fragment(Side::Inside, Self::inside);
        }
        self.inside()
    }

    /// Whether it is addressed to the gateway, and not to an external address.
    fn is_local(&self) -> bool {
        let (realm, destination) = (self.headers.realm, self.headers.destination.address);
        let engine = self.engine;
        engine.is_own(realm, destination) && engine.external.index(destination).is_none()
    }

    fn take_inside_twice(&mut self) -> Fate {
        if !self.headers.fragment {
            return self.inside_aimed();
        }
        self.check_later(Side::Inside)?;
        self.by_fragment(Side::Inside, Self::inside_aimed)
    }

    fn inside_aimed(&mut self) -> Fate {
        self.headers.outside = self.destination_outside();
        if self.headers.is_aimed() {
            self.note(Step::Aimed(endpoint(self.headers.outside)));
        }
        if self.is_local() {
            let realm = self.headers.realm;
            let untranslated = || {
                let ruling = self.engine.ruling(self.bytes, &self.headers, Side::Inside, realm);
                matches!(ruling, Some(Ruling::Bypass | Ruling::Drop))
            };
            if !self.headers.is_aimed() || untranslated() {
                return self.local(Side::Inside);
            }
        }
        self.inside()
    }

    fn inside(&mut self) -> Fate {
        let engine = self.engine;
        let (realm, destination) = (self.headers.realm, self.headers.outside.address);
        let pool = engine.config.default_pool_of(realm);
        let by_default = Snat { pool, address: None, timeouts: 0 };
        let ruling = self.ruling(Side::Inside, realm);
        let snat = match ruling {
            Some(Ruling::Bypass) => return self.bypass(Side::Inside),
            Some(Ruling::Drop) => return Err(DropReason::Rule),
            _ if engine.stays_inside(&self.headers)
                || engine.is_error_that_stays(self.bytes, &self.headers) =>
            {
                return self.route_inside();
            }
            Some(Ruling::Snat(snat)) => snat,
            None => {
                let is_subscriber = engine.is_subscriber(self.headers.host());
                self.note(Step::Subscriber(is_subscriber));
                if !is_subscriber && self.headers.kind != Kind::IcmpError {
                    return Err(DropReason::NotSubscriber);
                }
                by_default
            }
        };
        engine.check_outside(&self.headers)?;
        if let Some(index) = engine.external.index(destination) {
            self.told.direction = Direction::Hairpin;
            self.note(Step::Hairpin(Ipv4Addr::from_bits(destination)));
            return self.turn_round(snat, index);
        }
        if engine.is_inside(realm, destination) && !self.headers.is_aimed() {
            return Err(DropReason::SameSide);
        }
        self.check_transit(engine.outside_mtu())?;
        self.by_first(Side::Inside, |walk| walk.send_out(snat))
    }

    fn send_out(&mut self, snat: Snat) -> Fate {
        match self.headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => {
                self.translate_error_outbound()?;
                return Ok(Verdict::Forward(Side::Outside));
            }
            _ => {}
        }
        self.source = self.outbound(snat)?.source;
        if let Some(destination) = self.headers.new_destination(self.source.port) {
            self.destination = destination;
        }
        if matches!(self.headers.kind, Kind::IcmpQuery { .. }) {
            self.destination.port = self.source.port;
        }
        Ok(Verdict::Forward(Side::Outside))
    }

    // ---- from the outside ----

    fn take_outside(&mut self) -> Fate {
        let (engine, destination) = (self.engine, self.headers.destination.address);
        engine.check_ends(&self.headers, Side::Outside)?;
        let own = engine.config.outside.address.is_some_and(|own| own.to_bits() == destination);
        let Some(index) = engine.external.index(destination) else {
            if own {
                return self.local(Side::Outside);
            }
            return self.pass_in();
        };
        self.note(Step::External(Ipv4Addr::from_bits(destination)));
        if engine.is_plain()
            && engine.is_inside(0, self.headers.source.address)
            && !engine.has_twice()
        {
            return Err(DropReason::SpoofedSource);
        }
        self.check_later(Side::Outside)?;
        let fate = self.by_fragment(Side::Outside, |walk| walk.inbound(index));
        if own && fate == Err(DropReason::NoMapping) && is_echo_request(self.bytes, &self.headers) {
            return self.local(Side::Outside);
        }
        if let Err(reason) = fate {
            self.remember_refused(reason);
        }
        fate
    }

    fn pass_in(&mut self) -> Fate {
        let by_port = self.engine.realms.any_by_port();
        if self.headers.fragment && by_port {
            self.check_later(Side::Outside)?;
        }
        if by_port {
            self.by_fragment(Side::Outside, Self::pass_into_realm)
        } else {
            self.pass_into_realm()
        }
    }

    fn pass_into_realm(&mut self) -> Fate {
        let mut place = 0;
        while let Some(realm) = self.engine.realms.plain(place) {
            match self.ruling(Side::Outside, realm) {
                Some(Ruling::Bypass) => {
                    let ends = (self.headers.source.address, self.headers.destination.address);
                    self.engine.check_bypass(realm, ends)?;
                    self.leaving = realm;
                    return self.bypass(Side::Outside);
                }
                Some(Ruling::Drop) => return Err(DropReason::Rule),
                _ => place += 1,
            }
        }
        Err(DropReason::NotForUs)
    }

    fn inbound(&mut self, index: u32) -> Fate {
        let (remote, port) = (self.headers.remote_inbound(), self.headers.destination.port);
        let mut arrival = Arrival { index, port, remote, seen: remote, from: None };
        if self.engine.has_twice() {
            arrival.seen = self.source_inside(arrival)?;
        }
        match self.headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => {
                self.translate_error_inbound(arrival.seen)?;
                return Ok(Verdict::Forward(Side::Inside));
            }
            _ => {}
        }
        let found = self.admit(arrival)?;
        let realm = self.engine.realm_of(found);
        self.check_transit(self.engine.inside_mtu(realm))?;
        self.let_in(arrival, found)?;
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Lets an admitted packet in, and says what it becomes.
    fn let_in(&mut self, arrival: Arrival, found: InboundMatch) -> Result<(), DropReason> {
        let Internal { host, port } = self.enter(arrival, found)?;
        self.leaving = host.realm();
        self.destination = AddressPort::new(host.address(), port);
        if let Some(source) = arrival.new_source() {
            (self.source, self.drawn) = (source, (false, false));
        }
        if matches!(self.headers.kind, Kind::IcmpQuery { .. }) {
            // Both ends have the identifier; the receiver's counts.
            (self.source.port, self.drawn.1) = (port, false);
        }
        Ok(())
    }

    // ---- hairpin ----

    fn turn_round(&mut self, snat: Snat, index: u32) -> Fate {
        let engine = self.engine;
        if !engine.config.hairpinning {
            return Err(DropReason::HairpinDisabled);
        }
        self.check_transit(engine.hairpin_mtu(self.headers.realm))?;
        let fate = match engine.is_divided && self.is_answered_here(index) {
            true => Err(DropReason::NoMapping),
            false => self.by_first(Side::Inside, |walk| walk.hairpin(snat, index)),
        };
        if fate == Err(DropReason::NoMapping)
            && engine.is_own(self.headers.realm, self.headers.outside.address)
            && !self.headers.is_aimed()
            && is_echo_request(self.bytes, &self.headers)
        {
            return self.local(Side::Inside);
        }
        fate
    }

    fn is_answered_here(&self, index: u32) -> bool {
        let (engine, headers) = (self.engine, &self.headers);
        is_echo_request(self.bytes, headers)
            && !headers.is_aimed()
            && engine.is_own(headers.realm, headers.outside.address)
            && engine.external.owner(headers.protocol, index, headers.destination.port).is_none()
    }

    fn hairpin(&mut self, snat: Snat, index: u32) -> Fate {
        match self.headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError if self.engine.is_divided => {
                self.translate_error_outbound()?;
                return Ok(Verdict::HandOver);
            }
            Kind::IcmpError => {
                self.hairpin_error()?;
                return Ok(Verdict::Forward(Side::Inside));
            }
            _ => {}
        }
        let sent = self.outbound(snat)?;
        self.source = sent.source;
        if self.engine.is_divided {
            if let Some(destination) = self.headers.new_destination(sent.source.port) {
                self.destination = destination;
            }
            return Ok(Verdict::HandOver);
        }
        // What is made for the sender may be what the receiver is asked about.
        self.told.is_certain &= !sent.is_new;
        let query = matches!(self.headers.kind, Kind::IcmpQuery { .. });
        let port = if query { sent.source.port } else { self.headers.outside.port };
        let remote = if query { AddressPort::new(sent.source.address, 0) } else { sent.source };
        let seen = self.seen_by_receiver(self.headers.protocol, External::new(index, port), remote);
        let from = Some(self.headers.realm);
        let arrival = Arrival { index, port, remote, seen, from };
        let entered = self.admit(arrival).and_then(|found| self.let_in(arrival, found));
        if let Err(reason) = entered {
            self.remember_refused(reason);
            return Err(reason);
        }
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Decides as `Engine::decide_turned`.
    pub(super) fn take_turned(mut self) -> Fate {
        self.begin();
        let fate = match self.engine.external.index(self.headers.destination.address) {
            Some(index) => self.by_fragment(Side::Inside, |walk| walk.receive_turned(index)),
            None => Err(DropReason::NoMapping),
        };
        self.finish(fate)
    }

    fn receive_turned(&mut self, index: u32) -> Fate {
        match self.headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => return self.receive_turned_error(),
            _ => {}
        }
        let (remote, port) = (self.headers.remote_inbound(), self.headers.destination.port);
        let seen = self.seen_by_receiver(self.headers.protocol, External::new(index, port), remote);
        let from = Some(self.headers.realm);
        let arrival = Arrival { index, port, remote, seen, from };
        let found = self.admit(arrival)?;
        self.let_in(arrival, found)?;
        Ok(Verdict::Forward(Side::Inside))
    }

    // ---- what any router does ----

    fn local(&mut self, from: Side) -> Fate {
        self.told.direction = Direction::Local;
        self.note(Step::Local);
        if !is_echo_request(self.bytes, &self.headers) {
            return Err(DropReason::LocalUnsupported);
        }
        (self.source, self.destination) = (self.headers.destination, self.headers.source);
        self.drawn = (false, false);
        Ok(Verdict::Reply(from))
    }

    fn bypass(&mut self, from: Side) -> Fate {
        let mtu = match from {
            Side::Inside => self.engine.outside_mtu(),
            Side::Outside => self.engine.inside_mtu(self.leaving),
        };
        self.check_transit(mtu)?;
        Ok(Verdict::Forward(from.other()))
    }

    fn route_inside(&mut self) -> Fate {
        let Headers { realm, destination, .. } = self.headers;
        self.told.direction = Direction::Hairpin;
        self.note(Step::Inside(Ipv4Addr::from_bits(destination.address)));
        self.check_transit(self.engine.inside_mtu(realm))?;
        self.leaving = realm;
        Ok(Verdict::Forward(Side::Inside))
    }

    pub(super) fn check_transit(&mut self, mtu: u16) -> Result<(), DropReason> {
        let Headers { ttl, total_len: len, dont_fragment, .. } = self.headers;
        self.note(Step::Transit { ttl, len, mtu, dont_fragment });
        if ttl <= 1 {
            self.answer(Message::TTL_EXCEEDED);
            return Err(DropReason::TtlExceeded);
        }
        if dont_fragment && len > mtu {
            self.answer(Message::fragmentation_needed(mtu));
            return Err(DropReason::TooBig);
        }
        Ok(())
    }

    fn check_later(&mut self, from: Side) -> Result<(), DropReason> {
        if self.headers.kind != Kind::LaterFragment {
            return Ok(());
        }
        let engine = self.engine;
        let mtu = match from {
            Side::Inside if engine.external.index(self.headers.destination.address).is_some() => {
                engine.hairpin_mtu(self.headers.realm)
            }
            Side::Inside if engine.stays_inside(&self.headers) => {
                engine.inside_mtu(self.headers.realm)
            }
            Side::Inside => engine.outside_mtu(),
            Side::Outside => engine.realms.least_mtu(),
        };
        self.check_transit(mtu)
    }

    pub(super) fn answer(&mut self, message: Message) {
        let kind = self.headers.kind;
        if !matches!(kind, Kind::IcmpError | Kind::IcmpOther | Kind::LaterFragment) {
            let (kind, code) = message.kind_and_code();
            self.note(Step::Answer { kind, code, late: false });
        }
    }

    fn remember_refused(&mut self, reason: DropReason) {
        if self.engine.config.answer_unsolicited_syn
            && matches!(reason, DropReason::NoMapping | DropReason::Filtered)
            && matches!(self.headers.kind, Kind::Tcp | Kind::Dccp)
            && self.headers.segment.opens()
        {
            let (kind, code) = Message::PORT_UNREACHABLE.kind_and_code();
            self.note(Step::Answer { kind, code, late: true });
        }
    }

    /// What the rules of a realm say of the packet.
    fn ruling(&mut self, from: Side, realm: u16) -> Option<Ruling> {
        if self.engine.rules_of(realm).is_empty() {
            return None;
        }
        let ruling = self.engine.ruling(self.bytes, &self.headers, from, realm);
        let source = with_port(&self.headers, self.headers.source);
        let destination = with_port(&self.headers, self.headers.destination);
        let (inner, outer) = match from {
            Side::Inside => (source, destination),
            Side::Outside => (destination, source),
        };
        let (inner, outer) = (endpoint(inner), endpoint(outer));
        self.note(Step::Rule { realm, inner, outer, ruling });
        ruling
    }

    // ---- fragments ----

    fn by_first(&mut self, from: Side, translate: impl FnOnce(&mut Self) -> Fate) -> Fate {
        let by_port = self.engine.rules_of(self.headers.realm).by_port();
        if self.headers.fragment && (by_port || self.engine.has_twice()) {
            return translate(self);
        }
        self.by_fragment(from, translate)
    }

    fn by_fragment(&mut self, from: Side, translate: impl FnOnce(&mut Self) -> Fate) -> Fate {
        if !self.headers.fragment {
            return translate(self);
        }
        let packet = Ipv4::new_checked(self.bytes).expect("a parsed packet stays one");
        let fragment = Fragment::of(from, &packet).expect("it is a fragment");
        let fragment = fragment.in_realm(self.headers.realm);
        let first = self.headers.kind != Kind::LaterFragment;
        self.note(Step::Fragment { first });
        if !first {
            return self.later(&fragment);
        }
        self.engine.fragments.try_first(&fragment)?;
        let verdict = translate(self)?;
        if !matches!(verdict, Verdict::Forward(_) | Verdict::HandOver) {
            return Err(DropReason::LocalUnsupported);
        }
        let index = self.engine.external.index(self.source.address);
        if let Some(index) = index.filter(|_| !self.headers.turned) {
            self.told.is_certain &= !self.drawn.0;
            let address = self.engine.external.place_of_address(index);
            let (now, host) = (Timestamp(self.now), self.headers.source.address);
            if !self.engine.identifications.has_next_for(now, address, host) {
                return Err(DropReason::FragmentLimit);
            }
        }
        Ok(verdict)
    }

    fn later(&mut self, fragment: &Fragment) -> Fate {
        match self.engine.fragments.try_later(fragment, self.bytes.len()) {
            Later::Apply(rewrite)
                if rewrite.out == Side::Inside && !self.engine.has_realm(rewrite.realm) =>
            {
                Err(DropReason::UnknownRealm)
            }
            Later::Apply(rewrite) => {
                self.note(Step::AsFirst);
                (self.source.address, self.destination.address) =
                    (rewrite.source, rewrite.destination);
                self.told.direction = rewrite.direction;
                self.leaving = rewrite.realm;
                Ok(match rewrite.hands_over() {
                    true => Verdict::HandOver,
                    false => Verdict::Forward(rewrite.out),
                })
            }
            Later::Held => Ok(Verdict::Held),
            Later::Drop(reason) => Err(reason),
        }
    }
}
