//! Hairpinned packets when several engines share the work: one engine has the sender, another or
//! the same has the receiver. The sender's engine translates the sender's endpoint and returns
//! [`Verdict::HandOver`]; the receiver's engine translates the other endpoint here. Each such
//! packet takes both steps, even in a single engine, so that no engine needs to know the others'
//! state.

use super::mappings::Arrival;
use super::transit::is_echo_request;
use super::{Engine, Fate};
use crate::endpoint::{AddressPort, External};
use crate::packet::{Direction, Packet, Side, Verdict};
use crate::parse::{Embedded, Headers, Kind, parse_turned};
use crate::rewrite::{Rewrite, apply, apply_embedded};
use crate::{DropReason, Timestamp};
use natgate_wire::{Delta, Ipv4};

impl Engine {
    /// Takes packets for which an engine of the same configuration returned [`Verdict::HandOver`],
    /// and sends them on to their receivers. The packets' realm is the realm of their sender.
    ///
    /// # Panics
    /// When the slices differ in length or hold more than [`Engine::MAX_BATCH`].
    pub fn process_turned(
        &mut self,
        now: Timestamp,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        assert!(packets.len() == verdicts.len() && packets.len() <= Self::MAX_BATCH);
        self.observe(now);
        for (packet, verdict) in packets.iter_mut().zip(verdicts) {
            *verdict = self.decide_turned(packet);
        }
    }

    fn decide_turned(&mut self, packet: &mut Packet<'_>) -> Verdict {
        let (mut direction, realm) = (Direction::Hairpin, packet.realm());
        give_back_hop(packet.bytes_mut());
        let fate = parse_turned(packet.bytes()).and_then(|headers| {
            let headers = Headers { realm, turned: true, ..headers };
            self.take_turned(packet.bytes_mut(), &headers, &mut direction)
        });
        self.settle(packet, direction, packet.len(), fate)
    }

    fn take_turned(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        direction: &mut Direction,
    ) -> Fate {
        let index =
            self.external.index(headers.destination.address).ok_or(DropReason::NoMapping)?;
        let way = |engine: &mut Self, bytes: &mut [u8], _: &mut Direction| {
            engine.receive_turned(bytes, headers, index)
        };
        self.by_fragment(bytes, headers, Side::Inside, direction, way)
    }

    /// Does the second half of [`Engine::hairpin`].
    fn receive_turned(&mut self, bytes: &mut [u8], headers: &Headers, index: u32) -> Fate {
        match headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => return self.receive_turned_error(bytes, headers),
            _ => {}
        }
        let (remote, port) = (headers.remote_inbound(), headers.destination.port);
        let seen = self.seen_by_receiver(headers.protocol, External::new(index, port), remote);
        let arrival = Arrival { index, port, remote, seen, from: Some(headers.realm) };
        let found = self.admit(headers, arrival)?;
        let receiver = self.enter(headers, arrival, found)?;
        self.realms.leaving = self.table.mapping(receiver).host().realm();
        let destination = Some(self.internal_of(receiver));
        apply(bytes, headers, Rewrite { source: arrival.new_source(), destination });
        self.clamp_mss(bytes, headers);
        self.count_portless(headers);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Does the second half of [`Engine::hairpin_error`].
    fn receive_turned_error(&mut self, bytes: &mut [u8], headers: &Headers) -> Fate {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        let remote = embedded.remote_of_source();
        let (internal, seen) = self.error_internal(&embedded, remote)?;
        let realm = internal.host.realm();
        self.check_realms(headers.realm, realm, true)?;
        self.realms.leaving = realm;
        self.check_dropped_error(&embedded, internal, seen.address, seen)?;
        let internal = AddressPort::new(internal.host.address(), internal.port);
        let destination = (seen != remote).then_some(seen);
        apply_embedded(message, &embedded, Rewrite { source: Some(internal), destination });
        //= rfc5508#REQ-7
        //= rfc5508#REQ-7a
        let source = (seen != remote).then_some(AddressPort::new(seen.address, 0));
        apply(
            bytes,
            headers,
            Rewrite { source, destination: Some(AddressPort::new(internal.address, 0)) },
        );
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Translates the sender's endpoint of a hairpinned packet.
    pub(super) fn turn_over(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        sender: u32,
    ) -> Verdict {
        let source = self.external_of(sender);
        let destination = headers.new_destination(source.port);
        apply(bytes, headers, Rewrite { source: Some(source), destination });
        self.clamp_mss(bytes, headers);
        Verdict::HandOver
    }

    /// True if a ping of the gateway's own address, which is external too, is for no mapping here.
    pub(super) fn is_answered_here(&mut self, bytes: &[u8], headers: &Headers, index: u32) -> bool {
        is_echo_request(bytes, headers)
            && !headers.is_aimed()
            && self.is_own(headers.realm, headers.outside.address)
            && self.external.owner(headers.protocol, index, headers.destination.port).is_none()
    }
}

/// Increments the TTL, which the sender's engine has decremented: a packet takes one hop.
fn give_back_hop(bytes: &mut [u8]) {
    let Ok(mut packet) = Ipv4::new_header_checked(bytes) else { return };
    let (old, protocol) = (packet.ttl(), u16::from(packet.protocol()));
    let new = old.saturating_add(1);
    packet.set_ttl(new);
    let words = (u16::from(old) << 8 | protocol, u16::from(new) << 8 | protocol);
    packet.update_checksum(Delta::NONE.replace_u16(words.0, words.1));
}
