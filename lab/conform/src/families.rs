//! The stage of a test between the families: the inside hosts of a [`Stage`] with their IPv6
//! addresses, and the outside hosts with their IPv4 addresses.
//!
//! Each inside host has the IPv6 address that its IPv4 address makes behind a prefix, so hosts of
//! tests that run at a time differ in both families.

use crate::flow::{DATA, Transport};
use crate::hosts6;
use crate::packet::{Packet, Received};
use crate::packet6::{Packet6, Received6, describe6, end6, protocol4};
use crate::setup::{Families, Siit, embed};
use crate::stage::{Stage, Stop, failed, not_applicable};
use natgate_engine::Side;
use natgate_wire::arp::Mac;
use natgate_wire::protocol::ICMP;
use natgate_wire::{icmp, icmpv6};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::time::Duration;

/// Hosts of a test, and the prefix in which the inside hosts have the outside hosts.
pub(crate) struct FamilyStage<'s> {
    pub(crate) stage: &'s Stage,
    families: Families,
    prefix: Ipv6Addr,
}

impl<'s> FamilyStage<'s> {
    /// Hosts of NAT64.
    pub(crate) fn nat64(stage: &'s Stage) -> Result<Self, Stop> {
        let families = stage.setup().families;
        match families.and_then(|families| Some((families, families.nat64?))) {
            Some((families, prefix)) => Ok(Self { stage, families, prefix }),
            None => not_applicable("It is no NAT64, or no prefix of NAT64 is named."),
        }
    }

    /// Hosts of a stateless translator, and its mapping of addresses.
    pub(crate) fn siit(stage: &'s Stage) -> Result<(Self, Siit), Stop> {
        let families = stage.setup().families;
        match families.and_then(|families| Some((families, families.siit?))) {
            Some((families, siit)) => Ok((Self { stage, families, prefix: siit.prefix }, siit)),
            None => not_applicable(
                "It does not translate without state, or no mapping of addresses is named.",
            ),
        }
    }

    /// IPv6 address of an inside host of this test.
    pub(crate) fn inside(&self, number: usize) -> Ipv6Addr {
        self.families.host(self.stage.inside(number))
    }

    /// A new endpoint of an inside host.
    pub(crate) fn near(&self, number: usize) -> SocketAddrV6 {
        end6(self.inside(number), self.stage.port())
    }

    /// The address that has the place of an IPv4 address inside.
    pub(crate) fn embed(&self, address: Ipv4Addr) -> Ipv6Addr {
        embed(self.prefix, address)
    }

    /// The endpoint that has the place of an IPv4 endpoint inside.
    pub(crate) fn six(&self, end: SocketAddrV4) -> SocketAddrV6 {
        end6(self.embed(*end.ip()), end.port())
    }

    /// Sends a packet from inside to the translator.
    pub(crate) fn send(&self, packet: &Packet6) {
        self.send_bytes(&packet.bytes());
    }

    /// Sends these bytes as a packet from inside.
    pub(crate) fn send_bytes(&self, packet: &[u8]) {
        let stage = self.stage;
        stage.note(stage.now(), format!("sent inside: {}", describe6(packet)));
        let mut world = stage.world.borrow_mut();
        let to = world.hosts.translator(Side::Inside).unwrap_or(Mac::BROADCAST);
        hosts6::send(&mut *world.bench, to, packet);
    }

    /// Waits until a time for the next packet to an inside host that satisfies a condition.
    pub(crate) async fn take_until(
        &self,
        deadline: Duration,
        host: Ipv6Addr,
        wanted: impl Fn(&Received6) -> bool,
    ) -> Option<Received6> {
        self.stage.wait_for(deadline, || self.take_now(host, &wanted)).await
    }

    /// Waits for the next packet to an inside host that satisfies a condition, for the transit time
    /// of a packet.
    pub(crate) async fn take(
        &self,
        host: Ipv6Addr,
        wanted: impl Fn(&Received6) -> bool,
    ) -> Option<Received6> {
        self.take_until(self.stage.now() + self.stage.transit(), host, wanted).await
    }

    fn take_now(&self, host: Ipv6Addr, wanted: &dyn Fn(&Received6) -> bool) -> Option<Received6> {
        let found = self.stage.world.borrow_mut().hosts.six.take(host, wanted)?;
        self.stage.note(found.at, format!("came inside: {}", describe6(&found.bytes)));
        Some(found)
    }

    /// Takes all packets that have come to an inside host.
    pub(crate) fn drain(&self, host: Ipv6Addr) -> Vec<Received6> {
        std::iter::from_fn(|| self.take_now(host, &|_| true)).collect()
    }

    /// Sends a packet from inside, and waits for it at an outside host.
    pub(crate) async fn outward(&self, packet: &Packet6) -> Option<Received> {
        let host = Ipv4Addr::from_bits(packet.destination.to_bits() as u32);
        self.stage.drain(Side::Outside, host);
        self.send(packet);
        let is_error = is_error6(packet.protocol, &packet.payload);
        let wanted = |came: &Received| {
            let protocol = came.ip().protocol();
            protocol == protocol4(packet.protocol)
                && (protocol != ICMP || came.error().is_some() == is_error)
        };
        self.stage.take((Side::Outside, host), wanted).await
    }

    /// Sends a packet from outside, and waits for it at an inside host.
    pub(crate) async fn inward(&self, packet: &Packet, host: Ipv6Addr) -> Option<Received6> {
        self.drain(host);
        self.stage.send(Side::Outside, packet);
        let is_error = packet.protocol == ICMP
            && packet.payload.first().is_some_and(|kind| icmp::is_error(*kind));
        let wanted = |came: &Received6| {
            protocol4(came.protocol()) == packet.protocol && came.error().is_some() == is_error
        };
        self.take(host, wanted).await
    }

    /// Sends a packet from inside, and waits for it at another inside host.
    pub(crate) async fn turned(&self, packet: &Packet6, host: Ipv6Addr) -> Option<Received6> {
        self.drain(host);
        self.send(packet);
        let is_error = is_error6(packet.protocol, &packet.payload);
        let wanted = |came: &Received6| {
            came.protocol() == packet.protocol && came.error().is_some() == is_error
        };
        self.take(host, wanted).await
    }
}

impl FamilyStage<'_> {
    /// The first packet of a flow from inside.
    pub(crate) fn opening(
        &self,
        transport: Transport,
        from: SocketAddrV6,
        to: SocketAddrV4,
    ) -> Packet6 {
        let four = transport.opening(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, from.port()), to);
        Packet6::like(four, *from.ip(), self.embed(*to.ip()))
    }

    /// The answer of an inside host to the first packet of a flow.
    pub(crate) fn answer(
        &self,
        transport: Transport,
        from: SocketAddrV6,
        to: SocketAddrV4,
    ) -> Packet6 {
        let four = transport.answer(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, from.port()), to);
        Packet6::like(four, *from.ip(), self.embed(*to.ip()))
    }

    /// Opens a flow from inside; returns the first packet as it came out.
    pub(crate) async fn opened(
        &self,
        transport: Transport,
        from: SocketAddrV6,
        to: SocketAddrV4,
    ) -> Result<Received, Stop> {
        let packet = self.opening(transport, from, to);
        let Some(came) = self.outward(&packet).await else {
            return failed(format!("{} did not come out.", describe6(&packet.bytes())));
        };
        match came.valid() {
            true => Ok(came),
            false => failed(format!(
                "What came out has a wrong checksum: {}.",
                crate::packet::describe(&came.bytes)
            )),
        }
    }

    /// Opens a flow from inside; returns its external endpoint.
    pub(crate) async fn map(
        &self,
        transport: Transport,
        from: SocketAddrV6,
        to: SocketAddrV4,
    ) -> Result<SocketAddrV4, Stop> {
        Ok(self.opened(transport, from, to).await?.source())
    }

    /// Returns true if the remote end's answer gets to an inside endpoint, from the address that
    /// has the remote's place.
    pub(crate) async fn answers(
        &self,
        transport: Transport,
        from: SocketAddrV4,
        external: SocketAddrV4,
        to: SocketAddrV6,
    ) -> bool {
        let came = self.inward(&transport.answer(from, external), *to.ip()).await;
        came.is_some_and(|came| {
            let source = self.embed(*from.ip());
            came.destination() == to && *came.source().ip() == source && came.valid()
        })
    }

    /// Returns true if the first packet of a flow from outside gets to an inside host.
    pub(crate) async fn enters(
        &self,
        transport: Transport,
        from: SocketAddrV4,
        external: SocketAddrV4,
        host: Ipv6Addr,
    ) -> bool {
        let packet = match transport {
            Transport::Echo => {
                let port = external.port();
                Packet::query(icmp::kind::ECHO_REQUEST, *from.ip(), *external.ip(), port, DATA)
            }
            _ => transport.opening(from, external),
        };
        self.inward(&packet, host).await.is_some()
    }
}

fn is_error6(protocol: u8, payload: &[u8]) -> bool {
    protocol4(protocol) == ICMP && payload.first().is_some_and(|kind| icmpv6::is_error(*kind))
}
