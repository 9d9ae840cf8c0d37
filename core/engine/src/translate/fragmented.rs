//! Fragments of datagrams: each fragment gets the rewrite of its datagram's first fragment.

use super::Fate;
use crate::endpoint::External;
use crate::engine::Engine;
use crate::fragments::{Fragment, Later, Rewrite as FragmentRewrite};
use crate::identification;
use crate::packet::{Direction, Side, Verdict};
use crate::parse::{Headers, Kind, parse};
use crate::{DropReason, Timestamp};
use natgate_wire::Ipv4;

impl Engine {
    /// [`Engine::by_fragment`], unless the packet has passed through it already on its way to the
    /// rules.
    #[inline]
    pub(super) fn by_first(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        from: Side,
        direction: &mut Direction,
        translate: impl FnOnce(&mut Self, &mut [u8], &mut Direction) -> Fate,
    ) -> Fate {
        let by_port = self.rules_of(headers.realm).by_port();
        if headers.fragment && (by_port || self.has_twice()) {
            return translate(self, bytes, direction);
        }
        self.by_fragment(bytes, headers, from, direction, translate)
    }

    /// Translates a whole packet or a first fragment. Other fragments get the rewrite of the first.
    #[inline]
    pub(super) fn by_fragment(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        from: Side,
        direction: &mut Direction,
        translate: impl FnOnce(&mut Self, &mut [u8], &mut Direction) -> Fate,
    ) -> Fate {
        if !headers.fragment {
            return translate(self, bytes, direction);
        }
        let now = Timestamp(self.now);
        let packet = Ipv4::new_checked(&bytes[..]).expect("a parsed packet stays one");
        let fragment = Fragment::of(from, &packet).expect("it is a fragment");
        let fragment = fragment.in_realm(headers.realm);
        if headers.kind == Kind::LaterFragment {
            //= rfc1812#section-5.2.6-reassembly
            return match self.fragments.later(now, &fragment, bytes, &mut self.counters) {
                Later::Apply(rewrite)
                    if rewrite.out == Side::Inside && !self.has_realm(rewrite.realm) =>
                {
                    Err(DropReason::UnknownRealm)
                }
                Later::Apply(rewrite) => {
                    rewrite.apply(bytes);
                    *direction = rewrite.direction;
                    self.realms.leaving = rewrite.realm;
                    Ok(if rewrite.hands_over() {
                        Verdict::HandOver
                    } else {
                        Verdict::Forward(rewrite.out)
                    })
                }
                Later::Held => Ok(Verdict::Held),
                Later::Drop(reason) => Err(reason),
            };
        }
        self.fragments.first(now, &fragment, &mut self.counters)?;
        let fate = translate(self, bytes, direction)
            .and_then(|verdict| self.identify_fragment(bytes, headers, verdict, *direction));
        let rewrite = fate.ok().map(|(_, rewrite)| rewrite);
        self.fragments.decided(now, &fragment, rewrite, &mut self.counters);
        fate.map(|(verdict, _)| verdict)
    }

    /// Gives a translated first fragment an identification of its external address. Returns the
    /// rewrite for the rest of its datagram.
    pub(super) fn identify_fragment(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        verdict: Verdict,
        direction: Direction,
    ) -> Result<(Verdict, FragmentRewrite), DropReason> {
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
        let realm = self.realms.leaving;
        let rewrite =
            FragmentRewrite { source, destination, identification, out, realm, direction };
        Ok((verdict, rewrite))
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
