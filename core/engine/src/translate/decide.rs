//! The decision of the complete way: the questions of the specification in their order, asked of
//! the engine without a change to it. The result is a [`Plan`].
//!
//! A decision tells its [`Recorder`] each answer. To translate is to decide with [`Silent`], which
//! keeps nothing and costs nothing, and to carry the plan out (`carry_out.rs`). To explain is to
//! decide with a recorder that keeps the steps (`explain.rs`).
//!
//! A decision that draws at random draws with a copy of the generator. The copy takes the
//! generator's place when the plan is carried out.

mod errors;
mod fragmented;
mod hairpin;
mod inbound;
mod limits;
mod outbound;
mod sessions;
mod transit;
mod twice;

use super::explain::Step;
use super::plan::{Act, Plan, Stop, Unsettled};
use super::transit::is_echo_request;
use super::{Engine, explain, with_port};
use crate::DropReason;
use crate::endpoint::{AddressPort, External, Internal};
use crate::packet::{Direction, Side, Verdict};
use crate::parse::{Headers, Kind};
use crate::random::Generator;
use crate::rules::{Ruling, Snat};
use core::net::Ipv4Addr;

/// A recorder keeps the steps of a decision, or nothing.
pub(crate) trait Recorder {
    /// True if the recorder keeps steps and nothing is carried out. A decision to be carried out
    /// stops for all work that a reload left undone; an explanation goes on without that work.
    const KEEPS: bool;

    /// Notes a step.
    fn note(&mut self, step: Step);

    /// Notes that the fate may be another when the packet comes, by what is drawn then.
    fn doubt(&mut self);
}

/// The recorder of a decision that is carried out.
pub(crate) struct Silent;

const _: () = assert!(size_of::<Silent>() == 0, "deciding without steps costs nothing");

impl Recorder for Silent {
    const KEEPS: bool = false;

    #[inline(always)]
    fn note(&mut self, _: Step) {}

    #[inline(always)]
    fn doubt(&mut self) {}
}

/// An end of the decision, or of a part.
pub(super) type Decided<T> = Result<T, Stop>;

/// A packet that is decided.
pub(super) struct Decision<'e, R> {
    pub(super) engine: &'e Engine,
    /// The time, nanoseconds.
    pub(super) now: u64,
    pub(super) bytes: &'e [u8],
    /// The packet's headers. The decision notes the destination as seen outside there.
    pub(super) headers: &'e mut Headers,
    pub(super) from: Side,
    /// The copy of the generator, from the first draw on.
    pub(super) draws: &'e mut Option<Generator>,
    pub(super) recorder: &'e mut R,
    pub(super) plan: &'e mut Plan,
}

impl<R: Recorder> Decision<'_, R> {
    /// Decides what becomes of a packet that came in on a side.
    pub(super) fn take(&mut self) -> Result<(), Unsettled> {
        self.begin();
        let fate = match self.from {
            Side::Inside => self.take_inside(),
            Side::Outside => self.take_outside(),
        };
        self.finish(fate)
    }

    fn begin(&mut self) {
        if R::KEEPS {
            let Headers { protocol, kind, source, destination, .. } = *self.headers;
            let (source, destination) =
                (explain::end(kind, source), explain::end(kind, destination));
            self.note(Step::Read { protocol, what: explain::what(kind), source, destination });
            if !self.engine.is_settled() {
                self.note(Step::Unsettled);
            }
        }
    }

    #[inline]
    fn finish(&mut self, fate: Decided<Verdict>) -> Result<(), Unsettled> {
        self.plan.fate = match fate {
            Ok(verdict) => Ok(verdict),
            Err(Stop::Drop(reason)) => {
                self.plan.act = Act::Nothing;
                Err(reason)
            }
            Err(Stop::Unsettled(unsettled)) => return Err(unsettled),
            Err(Stop::Newcomer) => {
                (self.plan.act, self.plan.first) = (Act::Nothing, None);
                Ok(Verdict::Held)
            }
        };
        Ok(())
    }

    #[inline(always)]
    fn note(&mut self, step: Step) {
        self.recorder.note(step);
    }

    /// Has a copy of the generator made, if something is drawn and none is there.
    #[inline(always)]
    fn begin_to_draw(&mut self) {
        if self.draws.is_none() {
            *self.draws = Some(self.engine.generator.clone());
        }
    }

    // ---- from the inside ----

    fn take_inside(&mut self) -> Decided<Verdict> {
        let (engine, realm) = (self.engine, self.headers.realm);
        self.note(Step::Realm(realm));
        if !engine.has_realm(realm) {
            return Err(DropReason::UnknownRealm.into());
        }
        engine.check_ends(self.headers, Side::Inside)?;
        if engine.has_twice() {
            return self.take_inside_twice();
        }
        //= rfc1812#section-5.2.3
        if self.is_local() {
            return self.local();
        }
        if self.headers.fragment && engine.rules_of(realm).by_port() {
            // The rule for a later fragment follows from the first one.
            self.check_later()?;
            return self.by_fragment(Self::inside);
        }
        self.inside()
    }

    /// True if the packet is addressed to the gateway, and not to an external address.
    fn is_local(&self) -> bool {
        let (realm, destination) = (self.headers.realm, self.headers.destination.address);
        let engine = self.engine;
        engine.is_own(realm, destination) && engine.external.index(destination).is_none()
    }

    fn inside(&mut self) -> Decided<Verdict> {
        let engine = self.engine;
        let (realm, destination) = (self.headers.realm, self.headers.outside.address);
        let pool = engine.config.default_pool_of(realm);
        let by_default = Snat::of_pool(pool);
        let snat = match self.ruling(realm) {
            //= rfc6888#REQ-6
            Some(Ruling::Bypass) => return self.bypass(),
            Some(Ruling::Drop) => return Err(DropReason::Rule.into()),
            _ if engine.stays_inside(self.headers)
                || engine.is_error_that_stays(self.bytes, self.headers) =>
            {
                return self.route_inside();
            }
            Some(Ruling::Snat(snat)) => snat,
            None => {
                let is_subscriber = engine.is_subscriber(self.headers.host());
                self.note(Step::Subscriber(is_subscriber));
                // Any host may send an error, a router on the path too. An error that is about no
                // session is dropped later.
                //= rfc5508#REQ-5
                //= rfc1812#section-4.3.2.7-silent
                if !is_subscriber && self.headers.kind != Kind::IcmpError {
                    return Err(DropReason::NotSubscriber.into());
                }
                by_default
            }
        };
        engine.check_outside(self.headers)?;
        if let Some(index) = engine.external.index(destination) {
            self.plan.direction = Direction::Hairpin;
            self.note(Step::Hairpin(Ipv4Addr::from_bits(destination)));
            return self.turn_round(snat, index);
        }
        if engine.is_inside(realm, destination) && !self.headers.is_aimed() {
            return Err(DropReason::SameSide.into());
        }
        self.check_transit(engine.outside_mtu())?;
        self.by_first(|decision| decision.send_out(snat))
    }

    fn send_out(&mut self, snat: Snat) -> Decided<Verdict> {
        match self.headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported.into()),
            Kind::IcmpError => {
                self.error_outbound()?;
                return Ok(Verdict::Forward(Side::Outside));
            }
            _ => {}
        }
        self.plan.act = Act::Send(self.outbound(snat)?);
        Ok(Verdict::Forward(Side::Outside))
    }

    // ---- from the outside ----

    fn take_outside(&mut self) -> Decided<Verdict> {
        let (engine, destination) = (self.engine, self.headers.destination.address);
        engine.check_ends(self.headers, Side::Outside)?;
        let own = engine.is_outside_own(destination);
        let Some(index) = engine.external.index(destination) else {
            if own {
                return self.local();
            }
            return self.pass_in();
        };
        self.note(Step::External(Ipv4Addr::from_bits(destination)));
        if engine.is_plain()
            && engine.is_inside(0, self.headers.source.address)
            && !engine.has_twice()
        {
            return Err(DropReason::SpoofedSource.into());
        }
        self.check_later()?;
        let fate = self.by_fragment(|decision| decision.inbound(index));
        if own
            && let Err(Stop::Drop(DropReason::NoMapping)) = fate
            && is_echo_request(self.bytes, self.headers)
        {
            return self.local();
        }
        if let Err(Stop::Drop(reason)) = fate {
            self.remember_refused(reason, self.headers.source);
        }
        fate
    }

    /// A packet to an address that is not external: forwarded if a rule bypasses translation.
    fn pass_in(&mut self) -> Decided<Verdict> {
        let by_port = self.engine.realms.any_by_port();
        if self.headers.fragment && by_port {
            self.check_later()?;
        }
        if by_port { self.by_fragment(Self::pass_into_realm) } else { self.pass_into_realm() }
    }

    /// The first realm decides whose rules say that such a packet bypasses translation or is
    /// dropped.
    fn pass_into_realm(&mut self) -> Decided<Verdict> {
        let mut place = 0;
        while let Some(realm) = self.engine.realms.plain(place) {
            match self.ruling(realm) {
                Some(Ruling::Bypass) => {
                    let ends = (self.headers.source.address, self.headers.destination.address);
                    self.engine.check_bypass(realm, ends)?;
                    self.plan.leaving = realm;
                    return self.bypass();
                }
                Some(Ruling::Drop) => return Err(DropReason::Rule.into()),
                _ => place += 1,
            }
        }
        Err(DropReason::NotForUs.into())
    }

    /// The ruling of a realm's rules for the packet.
    fn ruling(&mut self, realm: u16) -> Option<Ruling> {
        let ruling = self.engine.ruling(self.bytes, self.headers, self.from, realm);
        if R::KEEPS {
            let source = with_port(self.headers, self.headers.source);
            let destination = with_port(self.headers, self.headers.destination);
            let (inner, outer) = match self.from {
                Side::Inside => (source, destination),
                Side::Outside => (destination, source),
            };
            self.note_rule(realm, (inner, outer), ruling);
        }
        ruling
    }

    fn note_rule(
        &mut self,
        realm: u16,
        (inner, outer): (AddressPort, AddressPort),
        ruling: Option<Ruling>,
    ) {
        let (inner, outer) = (explain::endpoint(inner), explain::endpoint(outer));
        self.note(Step::Rule { realm, inner, outer, ruling });
    }

    // ---- mappings that are looked up ----

    /// The mapping of an internal endpoint towards a remote one.
    fn find_internal(
        &self,
        protocol: u8,
        internal: Internal,
        remote: AddressPort,
    ) -> Decided<Option<u32>> {
        self.judged(self.engine.look_up_internal(protocol, internal, remote))
    }

    /// The mapping of an external endpoint, for protocols without ports towards a remote one.
    #[inline]
    fn find_external(
        &self,
        protocol: u8,
        external: External,
        remote: AddressPort,
    ) -> Decided<Option<u32>> {
        self.judged(self.engine.look_up_external(protocol, external, remote))
    }

    /// A mapping that was looked up, which the configuration in force must have judged.
    #[inline]
    fn judged(&self, found: Option<u32>) -> Decided<Option<u32>> {
        match found {
            Some(slot) if !R::KEEPS && !self.engine.table.is_asked(slot) => {
                Err(Unsettled::Mapping(slot).into())
            }
            _ => Ok(found),
        }
    }

    fn note_mapping(&mut self, slot: u32) {
        if R::KEEPS {
            let info = self.engine.describe(slot);
            let (sessions, expires) = (info.sessions, info.expires);
            self.note(Step::Mapping { id: info.id, sessions, expires });
        }
    }

    fn note_no_session(&mut self, remote: AddressPort) {
        self.note(Step::NoSession(explain::endpoint(remote)));
    }
}
