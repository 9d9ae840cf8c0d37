//! The quick way of softwires: plain packets between customers and the Internet, with nothing to be
//! said against them. [`crate::quick`] has the reasons.

use super::endpoint::Port;
use super::tunnel::{IPV4, encapsulate};
use super::{Located, Location, MapMode, Owner, Softwires};
use crate::Pref64;
use crate::convert::{Plain4, Plain6};
use crate::quick::{OwnFolded, Passed, is_ordinary, is_ordinary_ipv4};
use crate::siit::is_forbidden;
use crate::translator::Translator;
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{Direction, Packet, Side, Timestamp};
use natgate_wire::ipv6;

/// Congestion marks of a traffic class.
const ECN: u8 = 0b11;

/// The gateway's own addresses, and the MTU of the outside link, bytes.
#[derive(Clone, Copy)]
pub(crate) struct Gateway {
    pub(crate) own: OwnFolded,
    pub(crate) own_ipv4: [Option<u32>; 2],
    pub(crate) mtu: u16,
}

/// The outer header of a packet in a tunnel.
struct Outer {
    source: u128,
    destination: u128,
    class: u8,
    payload_len: usize,
}

impl Outer {
    /// Reads the header of a packet that has an IPv4 packet right behind it.
    #[inline(always)]
    fn read(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&head[at..at + 16]);
            u128::from_be_bytes(octets)
        };
        let payload_len = usize::from(u16::from_be_bytes([head[4], head[5]]));
        let is_whole = head[0] >> 4 == 6
            && head[ipv6::NEXT_HEADER] == IPV4
            && payload_len <= bytes.len() - ipv6::HEADER_LEN;
        is_whole.then(|| Self {
            source: address(8),
            destination: address(24),
            class: head[0] << 4 | head[1] >> 4,
            payload_len,
        })
    }
}

/// True if the marks of congestion of an outer header change nothing in the packet inside (RFC
/// 6040 section 4.2).
#[inline(always)]
fn keeps_marks(class: u8, plain: &Plain4) -> bool {
    class & ECN == 0 || (class ^ plain.service) & ECN == 0
}

impl Softwires {
    /// True if an IPv6 address is a tunnel's end, or in the prefix of a default mapping rule.
    #[inline(always)]
    pub(crate) fn claims_ipv6(&self, destination: u128) -> bool {
        !self.leaves_to_nat64(destination) || self.has_dmr(destination)
    }

    /// Takes a packet from inside. `None`: the packet is unchanged, and has to go the complete way.
    #[inline(never)]
    pub(crate) fn pass_from_inside(
        &mut self,
        packet: &mut Packet<'_>,
        gateway: Gateway,
    ) -> Option<Passed> {
        match packet.bytes().get(ipv6::NEXT_HEADER) {
            Some(&IPV4) => self.pass_from_tunnel(packet, gateway),
            _ => self.pass_from_domain(packet, gateway),
        }
    }

    /// Takes a packet out of its tunnel.
    #[inline(always)]
    fn pass_from_tunnel(&mut self, packet: &mut Packet<'_>, gateway: Gateway) -> Option<Passed> {
        let bytes = packet.bytes();
        let Outer { source, destination, class, payload_len } = Outer::read(bytes)?;
        let is_fine = is_ordinary(source)
            && is_ordinary(destination)
            && source != destination
            && !gateway.own.may_have(source)
            && self.is_tunnel_end(destination);
        if !is_fine {
            return None;
        }
        let inner = &bytes[ipv6::HEADER_LEN..ipv6::HEADER_LEN + payload_len];
        let plain = Plain4::read(inner)?;
        if !keeps_marks(class, &plain) {
            return None;
        }
        let from = self.customer(plain.source, plain.source_port(inner))?;
        let is_own = from.tunnel.customer == source && from.tunnel.br == destination;
        let is_over = plain.ttl <= 1 || plain.len() > usize::from(gateway.mtu);
        if !is_own
            || is_over
            || !self.is_for_outside(&plain, gateway)
            || self.clamps(plain.is_syn(inner))
        {
            return None;
        }
        self.count_from(from.owner, ipv6::HEADER_LEN + payload_len);
        packet.set_start(packet.start() + ipv6::HEADER_LEN);
        packet.truncate(plain.len());
        plain.count_hop(packet.bytes_mut());
        Some((Direction::Outbound, Side::Outside, ipv6::HEADER_LEN + payload_len))
    }

    /// Takes a packet of DS-Lite with a known host out of its tunnel, and gives its source the
    /// number of the host, whose hash is known. Returns the number, and the length as received.
    /// `None`: the packet is unchanged, and has to go the complete way.
    #[inline(always)]
    fn leave_tunnel_quickly(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        (hash, own): (u64, OwnFolded),
    ) -> Option<(u32, usize)> {
        let clamps = self.mss.is_some();
        let dslite = self.dslite.as_mut()?;
        let bytes = packet.bytes();
        let Outer { source, destination, class, payload_len } = Outer::read(bytes)?;
        let len = ipv6::HEADER_LEN + payload_len;
        let inner = &bytes[ipv6::HEADER_LEN..len];
        let plain = Plain4::read(inner)?;
        let is_fine = is_ordinary(source)
            && is_ordinary(destination)
            && source != destination
            && !own.may_have(source)
            && keeps_marks(class, &plain)
            && is_ordinary_ipv4(plain.source)
            && plain.source != plain.destination
            && !(clamps && plain.is_syn(inner));
        if !is_fine {
            return None;
        }
        let number = dslite.known(now, (source, plain.source), hash)?;
        packet.set_start(packet.start() + ipv6::HEADER_LEN);
        packet.truncate(plain.len());
        plain.replace_source(packet.bytes_mut(), number);
        packet.set_realm(dslite.realm());
        let (packets, bytes) = &mut self.counter_of_dslite().outbound;
        (*packets, *bytes) = (*packets + 1, *bytes + len as u64);
        Some((number, len))
    }

    /// True if the receiver of a packet from a customer is certainly neither a customer nor the
    /// gateway.
    #[inline(always)]
    fn is_for_outside(&self, plain: &Plain4, gateway: Gateway) -> bool {
        is_ordinary_ipv4(plain.destination)
            && !self.has_address(plain.destination)
            && !gateway.own_ipv4.contains(&Some(plain.destination))
    }

    /// True if the segment size that a packet announces may have to be lowered.
    #[inline(always)]
    fn clamps(&self, is_syn: bool) -> bool {
        is_syn && self.mss.is_some()
    }

    /// The customer that has an address and a port.
    #[inline(always)]
    fn customer(&self, ipv4: u32, port: u16) -> Option<Located> {
        match self.locate(ipv4, || Ok(Port::Number(port))) {
            Ok(Location::Customer(located)) => Some(located),
            _ => None,
        }
    }

    /// Takes an IPv4 packet from outside, whose addresses are ordinary.
    #[inline(never)]
    pub(crate) fn pass_from_outside(
        &mut self,
        packet: &mut Packet<'_>,
        plain: &Plain4,
    ) -> Option<Passed> {
        let to = self.customer(plain.destination, plain.destination_port(packet.bytes()))?;
        if self.clamps(plain.is_syn(packet.bytes())) {
            return None;
        }
        if let Owner::Rule(place) = to.owner
            && let MapMode::Translation(dmr) = self.domains.mode(place)
        {
            self.pass_to_domain(packet, plain, (to, place, dmr))?;
        } else {
            let len = plain.len() + ipv6::HEADER_LEN;
            if plain.ttl <= 1 || len > usize::from(self.mtu_to(to)) {
                return None;
            }
            packet.truncate(plain.len());
            plain.count_hop(packet.bytes_mut());
            let class = self.traffic_class;
            let class = class.map_or(plain.service, |it| it & !ECN | plain.service & ECN);
            encapsulate(packet, to.tunnel, class);
        }
        self.count_to(to.owner, packet.len());
        Some((Direction::Inbound, Side::Inside, plain.len()))
    }

    /// Translates an IPv4 packet to a customer of MAP-T.
    #[inline(always)]
    fn pass_to_domain(
        &self,
        packet: &mut Packet<'_>,
        plain: &Plain4,
        (to, place, dmr): (Located, usize, Pref64),
    ) -> Option<()> {
        let converter = &self.group(place).plain;
        let source = Ipv4Addr::from_bits(plain.source);
        if !converter.passes_to_ipv6(plain) || is_forbidden(dmr, source) {
            return None;
        }
        converter.plain_to_ipv6(packet, plain, (dmr.embed(source).to_bits(), to.tunnel.customer));
        Some(())
    }

    /// Translates a packet from a customer of MAP-T.
    #[inline(always)]
    fn pass_from_domain(&mut self, packet: &mut Packet<'_>, gateway: Gateway) -> Option<Passed> {
        let plain = Plain6::read(packet.bytes())?;
        let is_fine = gateway.own.has_nothing_against(&plain);
        let is_end = self.is_tunnel_end(plain.destination);
        if !is_fine || is_end || self.clamps(plain.is_syn(packet.bytes())) {
            return None;
        }
        let dmr = self.domains.dmr(plain.destination)?;
        let destination = dmr.extract(Ipv6Addr::from_bits(plain.destination))?;
        let place = self.domains.find6(plain.source)?;
        let rule = &self.domains.line(place).arithmetic;
        let (source, psid) = rule.customer_of(plain.source)?;
        let port = plain.source_port(packet.bytes());
        let is_own = self.domains.mode(place) == MapMode::Translation(dmr)
            && (rule.sets.is_whole() || rule.psid_of(port) == Some(psid))
            && self.domains.is_found(place, source, psid);
        let is_outside =
            is_ordinary_ipv4(destination.to_bits()) && !self.has_address(destination.to_bits());
        let group = usize::from(self.domains.line(place).group);
        let converter = &mut self.groups[group].plain;
        let passes = converter.passes_to_ipv4(&plain);
        if !is_own || !is_outside || !passes || is_forbidden(dmr, destination) {
            return None;
        }
        converter.plain_to_ipv4(packet, &plain, (source, destination.to_bits()));
        self.count_from(Owner::Rule(place), plain.len());
        Some((Direction::Outbound, Side::Outside, plain.len()))
    }
}

impl Translator {
    /// [`Softwires::leave_tunnel_quickly`].
    #[inline]
    pub(crate) fn leave_tunnel_quickly(
        &mut self,
        now: Timestamp,
        packet: &mut Packet<'_>,
        hash: u64,
    ) -> Option<(u32, usize)> {
        let own = self.own_folded;
        self.softwires.as_mut()?.leave_tunnel_quickly(now, packet, (hash, own))
    }
}
