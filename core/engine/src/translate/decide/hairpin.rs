//! Hairpin (RFC 4787 REQ-9): packets from a subscriber to an external endpoint of another one. The
//! sender's end is decided first, the receiver's when the plan for the sender has been carried out,
//! by this engine or by another.

use super::{Decided, Decision, Recorder};
use crate::DropReason;
use crate::endpoint::{AddressPort, External};
use crate::packet::{Direction, Side, Verdict};
use crate::parse::Kind;
use crate::rules::Snat;
use crate::translate::mappings::Arrival;
use crate::translate::plan::{Act, Stop, Unsettled};
use crate::translate::transit::is_echo_request;

impl<R: Recorder> Decision<'_, R> {
    pub(super) fn turn_round(&mut self, snat: Snat, index: u32) -> Decided<Verdict> {
        let engine = self.engine;
        //= rfc4787#REQ-9
        //= rfc5382#REQ-8
        //= rfc6146#section-3.8
        if !engine.config.hairpinning {
            return Err(DropReason::HairpinDisabled.into());
        }
        self.check_transit(engine.hairpin_mtu(self.headers.realm))?;
        let fate = match self.turns_in_steps() && self.is_answered_here(index) {
            true => Err(DropReason::NoMapping.into()),
            false => self.by_first(|decision| decision.hairpin(snat, index)),
        };
        self.or_local(fate)
    }

    /// True if another engine may have the receiver.
    fn turns_in_steps(&self) -> bool {
        self.engine.is_divided || self.engine.turns_in_steps
    }

    /// True if a ping of the gateway's own address, which is external too, is for none of the
    /// mappings here.
    fn is_answered_here(&self, index: u32) -> bool {
        let (protocol, port) = (self.headers.protocol, self.headers.destination.port);
        self.is_ping_of_own() && self.engine.external.owner(protocol, index, port).is_none()
    }

    /// A ping of the gateway's own address that no mapping expects is the gateway's to answer.
    fn or_local(&mut self, fate: Decided<Verdict>) -> Decided<Verdict> {
        match fate {
            Err(Stop::Drop(DropReason::NoMapping)) if self.is_ping_of_own() => self.local(),
            fate => fate,
        }
    }

    pub(super) fn is_ping_of_own(&self) -> bool {
        self.engine.is_own(self.headers.realm, self.headers.outside.address)
            && !self.headers.is_aimed()
            && is_echo_request(self.bytes, self.headers)
    }

    fn hairpin(&mut self, snat: Snat, index: u32) -> Decided<Verdict> {
        let in_steps = self.turns_in_steps();
        match self.headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported.into()),
            Kind::IcmpError if in_steps => {
                self.error_outbound()?;
                return Ok(Verdict::HandOver);
            }
            Kind::IcmpError => {
                self.hairpin_error()?;
                return Ok(Verdict::Forward(Side::Inside));
            }
            _ => {}
        }
        let by = self.outbound(snat)?;
        if in_steps {
            self.plan.act = Act::Send(by);
            return Ok(Verdict::HandOver);
        }
        self.plan.act = Act::Turn(by, index);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Decides about the receiver of a packet that turns round and has this source outside.
    pub(in crate::translate) fn take_turning(
        &mut self,
        index: u32,
        source: AddressPort,
    ) -> Result<(), Unsettled> {
        self.plan.direction = Direction::Hairpin;
        let fate = self.receive_turning(index, source);
        let fate = self.or_local(fate);
        self.finish(fate)
    }

    fn receive_turning(&mut self, index: u32, source: AddressPort) -> Decided<Verdict> {
        //= rfc4787#REQ-9a
        //= rfc5382#REQ-8a
        //= rfc5597#REQ-8
        //= rfc7857#section-12
        // A query's identifier is all it has of ports: outside, it would be the sender's.
        //= rfc5508#REQ-7
        let query = matches!(self.headers.kind, Kind::IcmpQuery { .. });
        let port = if query { source.port } else { self.headers.outside.port };
        let remote = if query { AddressPort::new(source.address, 0) } else { source };
        match self.receive((index, port), remote, Some(source)) {
            Err(Stop::Drop(reason)) => {
                self.remember_refused(reason, remote);
                Err(reason.into())
            }
            fate => fate,
        }
    }

    /// Decides about a packet that turned round in another engine, which has translated its
    /// sender's end.
    pub(in crate::translate) fn take_turned(&mut self) -> Result<(), Unsettled> {
        self.plan.direction = Direction::Hairpin;
        self.begin();
        let fate = match self.engine.external.index(self.headers.destination.address) {
            Some(index) => self.by_fragment(|decision| decision.receive_turned(index)),
            None => Err(DropReason::NoMapping.into()),
        };
        self.finish(fate)
    }

    /// The second half of [`Decision::hairpin`].
    fn receive_turned(&mut self, index: u32) -> Decided<Verdict> {
        match self.headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported.into()),
            Kind::IcmpError => return self.receive_turned_error(),
            _ => {}
        }
        let (remote, port) = (self.headers.remote_inbound(), self.headers.destination.port);
        self.receive((index, port), remote, None)
    }

    /// Lets a packet that has turned round in. It gets `source` unless the receiver sees another.
    fn receive(
        &mut self,
        (index, port): (u32, u16),
        remote: AddressPort,
        source: Option<AddressPort>,
    ) -> Decided<Verdict> {
        let external = External::new(index, port);
        let seen = self.seen_by_receiver(self.headers.protocol, external, remote)?;
        let arrival = Arrival { index, port, remote, seen, from: Some(self.headers.realm) };
        let found = self.admit(arrival)?;
        self.let_in(arrival, found, source)?;
        Ok(Verdict::Forward(Side::Inside))
    }
}
