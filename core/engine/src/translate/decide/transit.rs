//! The decisions of any router: its own addresses, time to live, size, and packets that pass
//! untranslated (sections 3.2, 3.5, 3.15 and 8 of the specification).

use super::{Decided, Decision, Recorder, Step};
use crate::DropReason;
use crate::config::Refusal;
use crate::endpoint::AddressPort;
use crate::packet::{Direction, Side, Verdict};
use crate::parse::{Headers, Kind};
use crate::respond::Message;
use crate::translate::plan::{Act, Answer};
use crate::translate::transit::is_echo_request;
use core::net::Ipv4Addr;

impl<R: Recorder> Decision<'_, R> {
    /// Answers an echo request to the gateway itself.
    pub(super) fn local(&mut self) -> Decided<Verdict> {
        self.plan.direction = Direction::Local;
        self.note(Step::Local);
        //= rfc1812#section-4.3.2.1
        //= rfc1812#section-4.3.3.2-ignore
        //= rfc1812#section-4.3.3.3-ignore
        //= rfc1812#section-4.3.3.7
        if !is_echo_request(self.bytes, self.headers) {
            return Err(DropReason::LocalUnsupported.into());
        }
        //= rfc5508#REQ-10a
        //= rfc1812#section-4.2.2.9-local
        //= rfc1812#section-4.3.3.6-echo
        self.plan.act = Act::Echo;
        Ok(Verdict::Reply(self.from))
    }

    /// Forwards the packet untranslated.
    pub(super) fn bypass(&mut self) -> Decided<Verdict> {
        let mtu = match self.from {
            Side::Inside => self.engine.outside_mtu(),
            Side::Outside => self.engine.inside_mtu(self.plan.leaving),
        };
        self.check_transit(mtu)?;
        self.plan.act = Act::Forward;
        Ok(Verdict::Forward(self.from.other()))
    }

    /// Forwards a packet from inside, or an error about it, within its own realm.
    #[cold]
    pub(super) fn route_inside(&mut self) -> Decided<Verdict> {
        let Headers { realm, destination, .. } = *self.headers;
        self.plan.direction = Direction::Hairpin;
        self.note(Step::Inside(Ipv4Addr::from_bits(destination.address)));
        self.check_transit(self.engine.inside_mtu(realm))?;
        self.plan.act = Act::Forward;
        self.plan.leaving = realm;
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Checks that the packet may travel on: its TTL lasts and it fits into `mtu` bytes.
    pub(super) fn check_transit(&mut self, mtu: u16) -> Decided<()> {
        let Headers { ttl, total_len: len, dont_fragment, .. } = *self.headers;
        self.note(Step::Transit { ttl, len, mtu, dont_fragment });
        //= rfc5508#REQ-10a
        //= rfc5508#section-7.2
        //= rfc1812#section-4.2.2.9-zero
        //= rfc1812#section-5.2.7.3
        //= rfc1812#section-5.3.1-error
        //= rfc1812#section-5.3.1-predict
        if ttl <= 1 {
            self.answer(Message::TTL_EXCEEDED);
            return Err(DropReason::TtlExceeded.into());
        }
        //= rfc4787#REQ-13
        //= rfc5508#REQ-10a
        //= rfc5508#section-7.1.1-honour
        //= rfc6864#section-4.3-df
        if dont_fragment && len > mtu {
            self.answer(Message::fragmentation_needed(mtu));
            return Err(DropReason::TooBig.into());
        }
        Ok(())
    }

    /// [`Decision::check_transit`] of a fragment other than the first, which is not asked again.
    pub(super) fn check_later(&mut self) -> Decided<()> {
        let (engine, headers) = (self.engine, &*self.headers);
        if headers.kind != Kind::LaterFragment {
            return Ok(());
        }
        let mtu = match self.from {
            Side::Inside if engine.external.index(headers.destination.address).is_some() => {
                engine.hairpin_mtu(headers.realm)
            }
            Side::Inside if engine.stays_inside(headers) => engine.inside_mtu(headers.realm),
            Side::Inside => engine.outside_mtu(),
            // Only the first fragment tells the realm of its destination.
            Side::Outside => engine.realms.least_mtu(),
        };
        self.check_transit(mtu)
    }

    /// Has the sender get an ICMP error, unless the packet is of a kind that gets none (RFC 1812
    /// section 4.3.2.7). ICMP that is no query may be an error.
    fn answer(&mut self, message: Message) {
        //= rfc5508#REQ-10e
        //= rfc1812#section-4.3.2.7-error
        //= rfc1812#section-4.3.2.7-fragment
        let kind = self.headers.kind;
        if !matches!(kind, Kind::IcmpError | Kind::IcmpOther | Kind::LaterFragment) {
            self.plan.answer = Answer::Now(message);
            let (kind, code) = message.kind_and_code();
            self.note(Step::Answer { kind, code, late: false });
        }
    }

    /// Tells a subscriber that its packet found no room, as the configuration says.
    pub(super) fn refuse(&mut self) {
        match self.engine.config.refusal {
            Refusal::HostUnreachable => self.answer(Message::HOST_UNREACHABLE),
            //= rfc5508#REQ-8-code
            Refusal::Prohibited => self.answer(Message::PROHIBITED),
            Refusal::Silent => {}
        }
    }

    /// Has the sender of a SYN that was refused be told later; `remote` is the sender as seen
    /// outside.
    pub(super) fn remember_refused(&mut self, reason: DropReason, remote: AddressPort) {
        //= rfc5382#REQ-4a
        if self.engine.config.answer_unsolicited_syn
            && matches!(reason, DropReason::NoMapping | DropReason::Filtered)
            && matches!(self.headers.kind, Kind::Tcp | Kind::Dccp)
            && self.headers.segment.opens()
        {
            self.plan.answer = Answer::Late(remote);
            let (kind, code) = Message::PORT_UNREACHABLE.kind_and_code();
            self.note(Step::Answer { kind, code, late: true });
        }
    }
}
