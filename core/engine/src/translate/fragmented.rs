//! Fragments of datagrams: each fragment gets the rewrite of its datagram's first fragment.

use super::Fate;
use super::plan::Plan;
use crate::endpoint::External;
use crate::engine::Engine;
use crate::fragments::{Fragment, Later, Rewrite as FragmentRewrite};
use crate::identification;
use crate::packet::{Side, Verdict};
use crate::parse::{Headers, parse};
use crate::{DropReason, Timestamp};
use core::net::Ipv4Addr;
use natgate_wire::Ipv4;

impl Engine {
    /// Carries out the plan for a first fragment; what the rest of its datagram gets follows.
    pub(super) fn act_first(
        &mut self,
        bytes: &mut [u8],
        headers: &mut Headers,
        from: Side,
        plan: &mut Plan,
        fragment: &Fragment,
    ) {
        let now = Timestamp(self.now);
        if let Err(reason) = self.fragments.first(now, fragment, &mut self.counters) {
            plan.fate = Err(reason);
            return;
        }
        self.act(bytes, headers, from, plan);
        let rewrite =
            plan.fate.and_then(|verdict| self.identify_fragment(bytes, headers, verdict, plan));
        if let Err(reason) = rewrite {
            plan.fate = Err(reason);
        }
        self.fragments.decided(now, fragment, rewrite.ok(), &mut self.counters);
    }

    /// Gives a fragment other than the first the rewrite of the first, or holds or drops it.
    pub(super) fn act_later(&mut self, bytes: &mut [u8], plan: &mut Plan, fragment: &Fragment) {
        let now = Timestamp(self.now);
        let later = self.fragments.later(now, fragment, bytes, &mut self.counters);
        plan.fate = self.fate_of_later(&later);
        if let (Ok(_), Later::Apply(rewrite)) = (plan.fate, later) {
            rewrite.apply(bytes);
            (plan.direction, plan.leaving) = (rewrite.direction, rewrite.realm);
        }
    }

    /// The fate of a fragment other than the first, as the table of fragments has it.
    pub(super) fn fate_of_later(&self, later: &Later) -> Fate {
        match later {
            Later::Apply(rewrite)
                if rewrite.out == Side::Inside && !self.has_realm(rewrite.realm) =>
            {
                Err(DropReason::UnknownRealm)
            }
            Later::Apply(rewrite) if rewrite.hands_over() => Ok(Verdict::HandOver),
            Later::Apply(rewrite) => Ok(Verdict::Forward(rewrite.out)),
            Later::Held => Ok(Verdict::Held),
            Later::Drop(reason) => Err(*reason),
        }
    }

    /// Gives a translated first fragment an identification of its external address's own, and says
    /// what the rest of its datagram gets.
    fn identify_fragment(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        verdict: Verdict,
        plan: &Plan,
    ) -> Result<FragmentRewrite, DropReason> {
        let out = match verdict {
            Verdict::Forward(out) => out,
            Verdict::HandOver => Side::Outside,
            _ => return Err(DropReason::LocalUnsupported),
        };
        let packet = Ipv4::new_checked(&bytes[..]).expect("a translated packet stays one");
        let (source, destination) = (packet.source(), packet.destination());
        let mut identification = packet.identification();
        //= rfc7857#section-10
        //= rfc6864#section-5.3.1
        // A hairpinned packet has such an identification already.
        if let Some(index) = self.external.index(source).filter(|_| !headers.turned) {
            identification = self
                .identifications
                .next_for(
                    Timestamp(self.now),
                    self.external.place_of_address(index),
                    headers.source.address,
                )
                .ok_or(DropReason::FragmentLimit)?;
            identification::write(bytes, identification);
        }
        let (realm, direction) = (plan.leaving, plan.direction);
        Ok(FragmentRewrite { source, destination, identification, out, realm, direction })
    }

    /// Draws an identification for a fragmented datagram of an internal host that leaves with an
    /// external address, past this engine. `None`: the address is not external, and the datagram
    /// keeps its own.
    ///
    /// # Errors
    /// [`DropReason::FragmentLimit`] when each identification of the address may still be in use,
    /// or the internal host has had its share.
    pub fn draw_identification(
        &mut self,
        external: Ipv4Addr,
        host: Ipv4Addr,
    ) -> Result<Option<u16>, DropReason> {
        let Some(index) = self.external.index(external.to_bits()) else { return Ok(None) };
        let address = self.external.place_of_address(index);
        let next = self.identifications.next_for(Timestamp(self.now), address, host.to_bits());
        next.map(Some).ok_or(DropReason::FragmentLimit)
    }

    /// Gives an identification of its external address to a whole datagram that the gateway is
    /// about to fragment after translation (RFC 6864 section 5.3.1). A datagram does not change if
    /// it has another source, must not be fragmented, or came in fragments and has its
    /// identification.
    ///
    /// # Errors
    /// [`DropReason::FragmentLimit`] when each identification of the address may still be in use,
    /// or the internal host has had its share.
    pub fn identify(&mut self, packet: &mut [u8]) -> Result<(), DropReason> {
        let Ok(headers) = parse(packet) else { return Ok(()) };
        let Some(index) = self.external.index(headers.source.address) else { return Ok(()) };
        if headers.fragment || headers.dont_fragment {
            return Ok(());
        }
        let external = External::new(index, headers.source.port);
        let slot = self.look_up_external(headers.protocol, external, headers.remote_outbound());
        // A reply of the gateway itself counts for its receiver.
        let internal = slot.map(|slot| self.internal_of(slot).address);
        let host = internal.unwrap_or(headers.destination.address);
        //= rfc6864#section-5.3.1
        let address = self.external.place_of_address(index);
        let next = self.identifications.next_for(Timestamp(self.now), address, host);
        identification::write(packet, next.ok_or(DropReason::FragmentLimit)?);
        Ok(())
    }
}
