//! Hairpin (RFC 4787 REQ-9): packets from a subscriber to an external endpoint of another
//! subscriber.

use super::{Arrival, Fate, is_echo_request};
use crate::DropReason;
use crate::endpoint::{AddressPort, External};
use crate::engine::Engine;
use crate::packet::{Direction, Side, Verdict};
use crate::parse::{Headers, Kind};
use crate::rewrite::{Rewrite, apply};
use crate::rules::Snat;

impl Engine {
    pub(super) fn turn_round(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        direction: &mut Direction,
        snat: Snat,
        index: u32,
    ) -> Fate {
        //= rfc4787#REQ-9
        //= rfc5382#REQ-8
        if !self.config.hairpinning {
            return Err(DropReason::HairpinDisabled);
        }
        self.check_transit(bytes, headers, Side::Inside, self.hairpin_mtu(headers.realm))?;
        let way = |engine: &mut Self, bytes: &mut [u8], _: &mut Direction| {
            engine.hairpin(bytes, headers, snat, index)
        };
        let fate = match self.is_divided && self.is_answered_here(bytes, headers, index) {
            true => Err(DropReason::NoMapping),
            false => self.by_first(bytes, headers, Side::Inside, direction, way),
        };
        if fate == Err(DropReason::NoMapping)
            && self.is_own(headers.realm, headers.outside.address)
            && !headers.is_aimed()
            && is_echo_request(bytes, headers)
        {
            *direction = Direction::Local;
            return self.local(bytes, headers, Side::Inside);
        }
        fate
    }

    pub(super) fn hairpin(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        snat: Snat,
        index: u32,
    ) -> Fate {
        match headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError if self.is_divided => {
                self.translate_error_outbound(bytes, headers)?;
                return Ok(Verdict::HandOver);
            }
            Kind::IcmpError => {
                self.hairpin_error(bytes, headers)?;
                return Ok(Verdict::Forward(Side::Inside));
            }
            _ => {}
        }
        let sender = self.outbound(bytes, headers, snat)?;
        if self.is_divided {
            return Ok(self.turn_over(bytes, headers, sender));
        }
        //= rfc4787#REQ-9a
        //= rfc5382#REQ-8a
        //= rfc5597#REQ-8
        let source = self.external_of(sender);
        //= rfc7857#section-12
        // A query has an identifier in place of ports. Outside, it would be the sender's.
        //= rfc5508#REQ-7
        let query = matches!(headers.kind, Kind::IcmpQuery { .. });
        let port = if query { source.port } else { headers.outside.port };
        let remote = if query { AddressPort::new(source.address, 0) } else { source };
        let seen = self.seen_by_receiver(headers.protocol, External::new(index, port), remote);
        let arrival = Arrival { index, port, remote, seen, from: Some(headers.realm) };
        let entered =
            self.admit(headers, arrival).and_then(|found| self.enter(headers, arrival, found));
        let receiver = match entered {
            Ok(slot) => slot,
            Err(reason) => {
                self.remember_refused(bytes, headers, reason, Side::Inside, arrival.remote);
                return Err(reason);
            }
        };
        self.realms.leaving = self.table.mapping(receiver).host().realm();
        let destination = Some(self.internal_of(receiver));
        let source = Some(arrival.new_source().unwrap_or(source));
        apply(bytes, headers, Rewrite { source, destination });
        self.clamp_mss(bytes, headers);
        self.count_portless(headers);
        Ok(Verdict::Forward(Side::Inside))
    }
}
