//! IPv6 packets that are routed: hop limit, MTU, simple security, and echo of the gateway's own.

use crate::addresses::is_deprecated;
use crate::convert::{ErrorMessage, Refusal};
use crate::errors::OWN_HOPS;
use crate::settings::Side6;
use crate::softwire::Softwires;
use crate::translator::{Taken, Translator};
use natgate_engine::{Direction, DropReason, Packet, Side, Timestamp};
use natgate_wire::{Icmpv6, Ipv6, icmpv6, protocol};

/// Checks that a packet may be forwarded once more.
pub(crate) fn check_hop(bytes: &[u8]) -> Result<(), Refusal> {
    let header = Ipv6::new_header_checked(bytes).map_err(|_| DropReason::BadLength)?;
    match header.hop_limit() {
        0 | 1 => Err(Refusal::with(DropReason::TtlExceeded, ErrorMessage::HOP_LIMIT_EXCEEDED)),
        _ => Ok(()),
    }
}

/// Turns an echo request to the gateway into the reply; `false`: it is none, and is unchanged.
pub fn answer_echo(bytes: &mut [u8]) -> bool {
    let Ok(header) = Ipv6::new_checked(&*bytes) else { return false };
    let (source, destination) = (header.source(), header.destination());
    let Ok(walk) = header.walk() else { return false };
    let message = &bytes[walk.transport..];
    let is_request = walk.protocol == protocol::ICMPV6
        && walk.fragment.is_none()
        && walk.segments_left.is_none()
        && Icmpv6::new_checked(message).is_some_and(|message| {
            message.kind() == icmpv6::kind::ECHO_REQUEST
                && message.checksum_valid(source, destination)
        });
    if !is_request || source >> 120 == 0xff {
        return false;
    }
    let transport = walk.transport;
    let Ok(mut header) = Ipv6::new_checked(&mut *bytes) else { return false };
    header.set_source(destination);
    header.set_destination(source);
    header.set_hop_limit(OWN_HOPS);
    let Some(mut message) = Icmpv6::new_checked(&mut bytes[transport..]) else { return false };
    message.set_kind(icmpv6::kind::ECHO_REPLY);
    message.fill_checksum(destination, source);
    true
}

/// A network: the bits of its addresses that are equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    first: u128,
    mask: u128,
}

impl Network {
    /// The network of a link's own address; without one, a network that has no address.
    pub(crate) fn of(link: &Side6) -> Self {
        let Some((address, len)) = link.address else { return Self { first: 1, mask: 0 } };
        let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
        Self { first: address.to_bits() & mask, mask }
    }

    #[inline]
    pub(crate) fn has(self, address: u128) -> bool {
        address & self.mask == self.first
    }
}

/// The way of a packet that is routed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed {
    /// Source and destination as they came.
    pub(crate) source: u128,
    destination: u128,
    /// The side that the packet leaves by.
    pub(crate) to: Side,
}

impl Translator {
    /// Routes a packet that no table between the families claims to the other side, by another
    /// prefix if a pair of prefixes has its address.
    pub(crate) fn forward(&mut self, now: Timestamp, from: Side, packet: &mut Packet<'_>) -> Taken {
        let Routed { source, destination, to } = self.route(from, packet)?;
        //= rfc6296#section-7-filter
        match from {
            Side::Inside => self.note_sender(now, source, packet.bytes())?,
            Side::Outside => self.check_asked_for(now, packet.bytes(), destination)?,
        }
        let hop_limit = packet.bytes()[HOP_LIMIT] - 1;
        packet.bytes_mut()[HOP_LIMIT] = hop_limit;
        Ok((Direction::forwarded(from, to), to, None))
    }

    /// True if a packet to be routed that came in on a side would turn round to an external prefix.
    pub(crate) fn turns(&self, from: Side, destination: u128) -> bool {
        from == Side::Inside && self.pairs.is_external(destination.into())
    }

    /// Translates the prefixes of a packet that is routed, before the filter sees it.
    pub(crate) fn route(&self, from: Side, packet: &mut Packet<'_>) -> Result<Routed, Refusal> {
        let header = Ipv6::new_checked(packet.bytes()).map_err(|_| DropReason::BadLength)?;
        let (source, destination) = (header.source(), header.destination());
        if from == Side::Outside && self.is_translated(destination) {
            return Err(DropReason::NotForUs.into());
        }
        let turns = self.turns(from, destination);
        if !turns && self.is_beside(from, destination) {
            return Err(DropReason::SameSide.into());
        }
        if self.filter.is_some() {
            self.check_beyond(from, (source, destination), packet.bytes())?;
        }
        let is_paired = turns
            || match from {
                Side::Inside => self.pairs.is_internal(source.into()),
                Side::Outside => self.pairs.is_external(destination.into()),
            };
        if !self.settings.forwarding && !is_paired {
            return Err(DropReason::NoRoute.into());
        }
        let to = if turns { Side::Inside } else { from.other() };
        check_hop(packet.bytes())?;
        let mtu = self.mtus[to as usize];
        if packet.len() > usize::from(mtu) {
            let error = ErrorMessage::packet_too_big(mtu.into());
            return Err(Refusal::with(DropReason::TooBig, error));
        }
        let translated = match from {
            Side::Inside => self.pairs.from_inside(packet.bytes_mut()),
            Side::Outside => self.pairs.from_outside(packet.bytes_mut()),
        };
        match translated {
            Some(Err(refusal)) => Err(refusal),
            _ => Ok(Routed { source, destination, to }),
        }
    }

    /// True if an address is in the network that is connected to a side, or, inside, in an internal
    /// prefix. A network within the other side's network is meant if it has the address.
    #[inline]
    fn is_beside(&self, side: Side, address: u128) -> bool {
        let [own, other] = [side, side.other()].map(|side| self.networks[side as usize]);
        own.has(address) && (own.mask > other.mask || !other.has(address))
            || side == Side::Inside && self.pairs.is_internal(address.into())
    }

    /// Refuses what simple security never lets pass: sources that belong to the other side,
    /// deprecated addresses, and routing headers of type 0 (RFC 6092 section 3.1).
    fn check_beyond(
        &self,
        from: Side,
        (source, destination): (u128, u128),
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        //= rfc6092#REC-3
        if is_deprecated(source) {
            return Err(DropReason::MartianSource);
        }
        if is_deprecated(destination) {
            return Err(DropReason::MartianDestination);
        }
        //= rfc6092#REC-6
        let is_external = from == Side::Outside && self.pairs.is_external(source.into());
        if is_external || self.is_beside(from.other(), source) {
            return Err(DropReason::SpoofedSource);
        }
        let walk = Ipv6::new_checked(bytes).ok().and_then(|header| header.walk().ok());
        let left = walk.and_then(|walk| walk.segments_left);
        //= rfc6092#REC-4
        // The type is the byte before the number of segments left.
        let is_type_0 = left.is_some_and(|at| bytes.get(at - 1) == Some(&0));
        if is_type_0 { Err(DropReason::SegmentsLeft) } else { Ok(()) }
    }

    /// Asks the filter, if there is one, what it would do with a packet that came in on a side;
    /// changes nothing. `source` is its source as it came.
    pub(crate) fn foretell_filter(
        &self,
        now: Timestamp,
        from: Side,
        source: u128,
        bytes: &[u8],
    ) -> Result<Option<bool>, DropReason> {
        let Some(filter) = &self.filter else { return Ok(None) };
        let header = Ipv6::new_checked(bytes).map_err(|_| DropReason::BadLength)?;
        let walk = header.walk().map_err(|_| DropReason::ExtensionHeaders)?;
        Ok(Some(match from {
            Side::Inside => filter.has_room(source, &walk, bytes, now.0),
            Side::Outside => filter.would_admit(&header, &walk, bytes, now.0),
        }))
    }

    /// Has the filter, if there is one, record the sender of a packet from inside, whose source
    /// address may be translated already.
    fn note_sender(
        &mut self,
        now: Timestamp,
        source: u128,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let Some(filter) = &mut self.filter else { return Ok(()) };
        let header = Ipv6::new_checked(bytes).map_err(|_| DropReason::BadLength)?;
        let walk = header.walk().map_err(|_| DropReason::ExtensionHeaders)?;
        match filter.note(source, &walk, bytes, now.0) {
            true => Ok(()),
            false => Err(DropReason::SessionTableFull),
        }
    }

    /// Asks the filter, if there is one, whether a packet from outside may come in. `received` is
    /// its destination as it came.
    fn check_asked_for(
        &mut self,
        now: Timestamp,
        bytes: &[u8],
        received: u128,
    ) -> Result<(), DropReason> {
        let Some(filter) = &mut self.filter else { return Ok(()) };
        let header = Ipv6::new_checked(bytes).map_err(|_| DropReason::BadLength)?;
        let walk = header.walk().map_err(|_| DropReason::ExtensionHeaders)?;
        if filter.admits(&header, &walk, bytes, now.0) {
            return Ok(());
        }
        if !filter.remember(&header, &walk, bytes, (received, now.0)) {
            self.errors.suppressed += 1;
        }
        Err(DropReason::Filtered)
    }

    /// Answers the requests from outside that the filter has refused and whose answers are due.
    #[inline]
    pub(crate) fn answer_refused(&mut self, now: Timestamp) {
        while self.errors.has_room()
            && let Some(filter) = &mut self.filter
            && let Some(request) = filter.pop_unanswered(now.0)
        {
            self.send_error(now, Side::Outside, &request, ErrorMessage::PROHIBITED_IPV6);
        }
    }

    /// True if packets from inside to this address are translated to IPv4.
    pub(crate) fn is_translated(&self, destination: u128) -> bool {
        let is_dmr = |softwires: &Softwires| softwires.has_dmr(destination);
        self.nat64.as_ref().is_some_and(|nat64| nat64.claims(destination))
            || self.softwires.as_ref().is_some_and(is_dmr)
            || self.is_siit_prefix(destination)
    }
}

/// Offset of the hop limit in the header.
const HOP_LIMIT: usize = 7;
