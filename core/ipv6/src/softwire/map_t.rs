//! MAP-T, RFC 7599: packets between customers and the Internet are translated by RFC 7915.

use super::endpoint::{self, End, End6, Port};
use super::fragments::{Datagram, Ports};
use super::from_tunnel::is_later;
use super::to_tunnel::Passed;
use super::tunnel::set_hop;
use super::{Location, Owner, Softwires};
use crate::Pref64;
use crate::convert::{Addresses, Cut, DIFFERENCE, ErrorMessage, Place, Refusal};
use crate::errors::SOURCE_POLICY;
use crate::siit::is_forbidden;
use crate::translator::{Fate, Translator, cut_of};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{Direction, DropReason, Packet, Side, Timestamp, is_martian};
use natgate_wire::{Ipv4, Ipv6, ipv6};

/// Addresses of a translation: those of the customer, and the prefix of all others.
struct Customer {
    dmr: Pref64,
    ipv4: u32,
    address: u128,
    /// Source of errors from addresses without a counterpart.
    error_source: Option<u32>,
}

impl Customer {
    /// The IPv4 address of an address outside.
    fn outside(&self, address: u128) -> Result<u32, Refusal> {
        let found = self.dmr.extract(Ipv6Addr::from_bits(address));
        let ipv4 = found.ok_or(DropReason::Untranslatable)?;
        match is_forbidden(self.dmr, ipv4) {
            true => Err(DropReason::NotGlobal.into()),
            false => Ok(ipv4.to_bits()),
        }
    }

    /// The IPv6 address of an address outside.
    fn embedded(&self, ipv4: u32) -> Result<u128, Refusal> {
        let ipv4 = Ipv4Addr::from_bits(ipv4);
        match is_forbidden(self.dmr, ipv4) {
            true => Err(DropReason::NotGlobal.into()),
            false => Ok(self.dmr.embed(ipv4).to_bits()),
        }
    }

    fn own_ipv4(&self, address: u128) -> Result<u32, Refusal> {
        let is_own = address == self.address;
        is_own.then_some(self.ipv4).ok_or(DropReason::Untranslatable.into())
    }

    fn own_ipv6(&self, ipv4: u32) -> Result<u128, Refusal> {
        let is_own = ipv4 == self.ipv4;
        is_own.then_some(self.address).ok_or(DropReason::Untranslatable.into())
    }
}

impl Addresses for Customer {
    //= rfc7599#section-8.3-derive
    fn to_ipv4(
        &mut self,
        place: Place,
        source: u128,
        destination: u128,
    ) -> Result<(u32, u32), Refusal> {
        if place == Place::Quoted {
            return Ok((self.outside(source)?, self.own_ipv4(destination)?));
        }
        let new_source = match (self.own_ipv4(source), place) {
            (Err(refusal), Place::Error) => self.error_source.ok_or(refusal)?,
            (own, _) => own?,
        };
        let new_destination = self.outside(destination)?;
        match is_martian(new_destination) {
            true => Err(DropReason::MartianDestination.into()),
            false => Ok((new_source, new_destination)),
        }
    }

    //= rfc7599#section-8.4-apply
    fn to_ipv6(
        &mut self,
        place: Place,
        source: u32,
        destination: u32,
    ) -> Result<(u128, u128), Refusal> {
        match place {
            Place::Packet | Place::Error => {
                Ok((self.embedded(source)?, self.own_ipv6(destination)?))
            }
            Place::Quoted => Ok((self.own_ipv6(source)?, self.embedded(destination)?)),
        }
    }
}

/// A packet from a customer, checked.
#[derive(Clone, Copy, Debug)]
struct Origin {
    place: usize,
    ipv4: u32,
    address: u128,
    /// Ports of both ends of a later fragment.
    ports: Option<Ports>,
}

impl Softwires {
    /// Translates an IPv4 packet to a customer.
    #[inline]
    pub(super) fn translate_to_customer(
        &mut self,
        packet: &mut Packet<'_>,
        (place, dmr): (usize, Pref64),
        address: u128,
        service: u8,
        from: Option<Owner>,
    ) -> Result<Option<Cut>, Refusal> {
        let header = Ipv4::new_header_checked(packet.bytes()).map_err(|_| DropReason::BadLength)?;
        let (ipv4, ttl, old) = (header.destination(), header.ttl(), header.service());
        let mut customer = Customer { dmr, ipv4, address, error_source: None };
        if self.mss.is_some() {
            let both = [Some(Owner::Rule(place)), from].into_iter().flatten();
            let mtu = both.map(|owner| self.tunnel_mtu(owner)).fold(u16::MAX, u16::min);
            self.clamp_mss(packet, mtu);
        }
        if service != old {
            set_hop(packet.bytes_mut(), ttl, service);
        }
        Ok(cut_of(self.group(place).plain.to_ipv6(packet, &mut customer)?))
    }

    /// Translates a packet back to IPv6 that has become IPv4 already.
    fn turn(
        &mut self,
        packet: &mut Packet<'_>,
        from: Owner,
        receiver: Location,
    ) -> Result<Option<Cut>, Refusal> {
        let Location::Customer(to) = receiver else { return Err(DropReason::NoBinding.into()) };
        let is_closed = to.owner == Owner::Bindings
            && self.lw4o6.as_ref().is_some_and(|lw4o6| !lw4o6.hairpinning);
        if is_closed {
            return Err(DropReason::HairpinDisabled.into());
        }
        let header = Ipv4::new_header_checked(packet.bytes()).map_err(|_| DropReason::BadLength)?;
        let (ipv4, ttl, service) = (header.destination(), header.ttl(), header.service());
        debug_assert!(from != Owner::Bindings, "a customer of lw4o6 has a tunnel");
        let dmr = match to.owner {
            Owner::Rule(place) => match self.domains.mode(place) {
                super::MapMode::Translation(dmr) => Some((place, dmr)),
                super::MapMode::Encapsulation(_) => None,
            },
            Owner::Bindings => None,
        };
        let Some((place, dmr)) = dmr else {
            // The hop has been counted, and an encapsulation counts one.
            set_hop(packet.bytes_mut(), ttl.saturating_add(1), service);
            let cut = self.send_to_customer(packet, to, service, None)?;
            self.count_to(to.owner, packet.len());
            return Ok(cut);
        };
        let address = to.tunnel.customer;
        let mut customer = Customer { dmr, ipv4, address, error_source: None };
        if self.mss.is_some() {
            self.clamp_mss(packet, self.tunnel_mtu(to.owner));
        }
        let group = self.group(place);
        let cut = cut_of(group.turning.to_ipv6(packet, &mut customer)?);
        self.count_to(to.owner, packet.len());
        Ok(cut)
    }

    /// Finds the customer that sent a packet to a default mapping rule's prefix, and checks its
    /// source. A fragment without a port waits for the first one of its datagram.
    //= rfc7599#section-8.3-select
    //= rfc7599#section-8.3-validate
    fn origin_of_translated(
        &mut self,
        bytes: &[u8],
        dmr: Pref64,
    ) -> Result<Result<Origin, Datagram>, Refusal> {
        let packet = Ipv6::new_checked(bytes).map_err(|_| DropReason::BadLength)?;
        let End6 { address, port, is_quoted } = endpoint::source6(&packet)?;
        //= rfc7599#section-8.3-error
        let spoofed = match is_quoted {
            false => Refusal::with(DropReason::SoftwireSource, SOURCE_POLICY),
            true => DropReason::IcmpNoSession.into(),
        };
        let place = self.domains.find6(address).ok_or(spoofed)?;
        let rule = self.domains.line(place).arithmetic;
        let is_of_dmr = self.domains.mode(place) == super::MapMode::Translation(dmr);
        let Some((ipv4, psid)) = rule.customer_of(address).filter(|_| is_of_dmr) else {
            self.counter(Owner::Rule(place)).spoofed += 1;
            return Err(spoofed);
        };
        let mut ports = None;
        let mut port = port;
        let needs_port = || {
            let to = dmr.extract(Ipv6Addr::from_bits(packet.destination()));
            let later = || Ok(Port::Later);
            to.is_some_and(|to| self.locate(to.to_bits(), later) == Ok(Location::NeedsPort))
        };
        // The port tells the sender of a shared address, and the receiver.
        if is_later(port) && (!rule.sets.is_whole() || needs_port()) {
            let datagram = datagram6(&packet).ok_or(DropReason::FragmentTiny)?;
            ports = self.fragments.ports(&datagram);
            let Some(Ports { source, .. }) = ports else { return Ok(Err(datagram)) };
            port = source;
        }
        let is_own = rule.sets.is_whole()
            || matches!(port, Port::Number(port) if rule.psid_of(port) == Some(psid));
        // Answers to an address of a longer rule are of the longer rule's customer.
        if !is_own || !self.domains.is_found(place, ipv4, psid) {
            self.counter(Owner::Rule(place)).spoofed += 1;
            return Err(spoofed);
        }
        Ok(Ok(Origin { place, ipv4, address, ports }))
    }

    /// Translates a packet that came to a default mapping rule's prefix. Returns the place of the
    /// rule that has its sender.
    pub(super) fn leave_domain(
        &mut self,
        packet: &mut Packet<'_>,
        dmr: Pref64,
        error_source: Option<u32>,
    ) -> Result<(Passed, Option<usize>), Refusal> {
        match self.origin_of_translated(packet.bytes(), dmr)? {
            Err(datagram) => Ok((Passed::Hold(datagram), None)),
            Ok(origin) => {
                let passed = self.translate_from_customer(packet, origin, dmr, error_source)?;
                Ok((passed, Some(origin.place)))
            }
        }
    }

    /// Translates a packet from a customer to IPv4; back to IPv6 if another customer has its
    /// destination.
    fn translate_from_customer(
        &mut self,
        packet: &mut Packet<'_>,
        origin: Origin,
        dmr: Pref64,
        error_source: Option<u32>,
    ) -> Result<Passed, Refusal> {
        let Origin { place, ipv4, address, ports } = origin;
        let mut customer = Customer { dmr, ipv4, address, error_source };
        let received = Head::of(packet);
        let group = usize::from(self.domains.line(place).group);
        let cut = cut_of(self.groups[group].plain.to_ipv4(packet, &mut customer)?);
        if self.mss.is_some() {
            self.clamp_mss(packet, self.tunnel_mtu(Owner::Rule(place)));
        }
        let header = Ipv4::new_checked(packet.bytes()).map_err(|_| DropReason::BadLength)?;
        let port = || match ports {
            Some(Ports { destination, .. }) => Ok(destination),
            None => endpoint::port(&header, End::Destination),
        };
        // The packet has changed, so no error can quote it.
        match self.locate(header.destination(), port).map_err(Refusal::silent)? {
            Location::Elsewhere => Ok(Passed::Sent(Direction::Outbound, Side::Outside, cut)),
            Location::Customer(to)
                if to.tunnel.customer == address && header.destination() == ipv4 =>
            {
                Err(DropReason::Land.into())
            }
            receiver => {
                let turned = self.turn(packet, Owner::Rule(place), receiver);
                let cut = turned.map_err(|refusal| too_big(refusal, received, packet))?;
                Ok(Passed::Sent(Direction::Hairpin, Side::Inside, cut))
            }
        }
    }
}

impl Translator {
    /// Takes an IPv6 packet from inside to a default mapping rule's prefix.
    pub(super) fn take_translated(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        dmr: Pref64,
    ) -> Fate {
        let len = packet.len();
        let error_source = self.error_source_ipv4(Side::Outside);
        let Some(softwires) = &mut self.softwires else { return Fate::Nothing };
        let first = first_fragment(packet.bytes(), dmr);
        let fate = match softwires.leave_domain(packet, dmr, error_source) {
            Ok((passed, place)) => {
                if let Some(place) = place {
                    softwires.count_from(Owner::Rule(place), len);
                }
                self.pass((now, Side::Inside), packet, passed, len)
            }
            Err(refusal) => self.refuse(now, Side::Inside, packet, len, refusal),
        };
        if let Some((datagram, ports)) = first {
            self.learn(now, datagram, ports);
        }
        fate
    }
}

/// The part of a packet as received that a conversion to IPv4 overwrites. The rest of the payload
/// stays where it is.
struct Head {
    start: usize,
    bytes: [u8; Self::LEN],
}

impl Head {
    /// Bytes of headers, extension headers and transport headers that are kept.
    const LEN: usize = 128;

    /// The head of a packet that may be too big for a way; `None`: every way carries the packet.
    #[inline]
    fn of(packet: &Packet<'_>) -> Option<Self> {
        let bytes = *packet.bytes().first_chunk().filter(|_| packet.len() > ipv6::MIN_MTU)?;
        Some(Self { start: packet.start(), bytes })
    }
}

/// The refusal of a packet that has become IPv4 and was to turn round. A packet that is too big for
/// the way to the other customer becomes what it was, for the error to its sender. Other errors
/// could not quote it.
#[cold]
fn too_big(refusal: Refusal, received: Option<Head>, packet: &mut Packet<'_>) -> Refusal {
    let (Some(head), Some(error)) = (received, refusal.error) else { return refusal.quiet() };
    if refusal.reason != DropReason::TooBig {
        return refusal.quiet();
    }
    packet.set_start(head.start);
    packet.bytes_mut()[..Head::LEN].copy_from_slice(&head.bytes);
    let error = ErrorMessage::packet_too_big(error.word + DIFFERENCE);
    Refusal::with(DropReason::TooBig, error)
}

/// The name of the datagram of an IPv6 fragment.
fn datagram6(packet: &Ipv6<&[u8]>) -> Option<Datagram> {
    let walk = packet.walk().ok()?;
    let (_, fragment) = walk.fragment?;
    Some(Datagram {
        customer: packet.source(),
        ends: (packet.source(), packet.destination()),
        identification: fragment.identification,
        protocol: walk.protocol,
    })
}

/// The datagram and the ports of a first fragment.
fn first_fragment(bytes: &[u8], dmr: Pref64) -> Option<(Datagram, Ports)> {
    let packet = Ipv6::new_checked(bytes).ok()?;
    let walk = packet.walk().ok()?;
    let (_, fragment) = walk.fragment?;
    if fragment.offset != 0 || !fragment.more {
        return None;
    }
    let source = endpoint::source6(&packet).map_or(Port::Absent, |end| end.port);
    let transport = bytes.get(walk.transport..).unwrap_or_default();
    let destination = endpoint::destination6(walk.protocol, transport);
    debug_assert!(dmr.contains(Ipv6Addr::from_bits(packet.destination())));
    Some((datagram6(&packet)?, Ports { source, destination }))
}
