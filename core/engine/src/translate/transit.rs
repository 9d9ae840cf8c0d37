//! The tables of any router: its own addresses, its realms' routes, the ends that a packet may have
//! (sections 3.2, 3.5, 3.15 and 8 of the specification).

use super::Engine;
use crate::DropReason;
use crate::host::Host;
use crate::packet::Side;
use crate::parse::{Embedded, Headers, Kind};
use crate::rewrite::lower_mss;
use natgate_wire::tcp::flags::SYN;
use natgate_wire::{Icmp, icmp};

/// Source of ICMP errors to the inside when no address is configured there (RFC 7600).
const DUMMY_ADDRESS: u32 = 0xc000_0008;

impl Engine {
    /// True if a packet from inside goes to a router of its own realm: it is not translated.
    #[inline]
    pub(super) fn stays_inside(&self, headers: &Headers) -> bool {
        let (realm, destination) = (headers.realm, headers.destination.address);
        self.is_routed_inside(realm, destination)
            && !headers.is_aimed()
            && self.external.index(destination).is_none()
    }

    /// True if a packet is an ICMP error to a host of the connected network about a packet that was
    /// forwarded to a router of the realm. That packet was not translated, so the error is not
    /// translated either.
    pub(super) fn is_error_that_stays(&self, bytes: &[u8], headers: &Headers) -> bool {
        let (realm, destination) = (headers.realm, headers.destination.address);
        let is_candidate = headers.kind == Kind::IcmpError && !headers.is_aimed();
        if !is_candidate || !self.is_inside(realm, destination) {
            return false;
        }
        let message = &bytes[usize::from(headers.header_len)..];
        Embedded::read(message).is_ok_and(|about| {
            about.source.address == destination
                && self.is_routed_inside(realm, about.destination.address)
                && self.external.index(about.destination.address).is_none()
        })
    }

    /// Lowers the maximum segment size that a translated SYN announces to what the configuration
    /// says.
    #[inline]
    pub(super) fn clamp_mss(&self, bytes: &mut [u8], headers: &Headers) {
        if let Some(limit) = self.config.tcp_mss
            && headers.segment.flags & SYN != 0
            && headers.kind == Kind::Tcp
        {
            lower_mss(&mut bytes[usize::from(headers.header_len)..], limit);
        }
    }

    /// The source of ICMP errors that leave by a side, to a realm if by the inside.
    pub(super) fn own_address(&self, side: Side, realm: u16) -> u32 {
        //= rfc1812#section-4.2.2.11-own-source
        //= rfc1812#section-4.3.2.4
        let own = match side {
            Side::Inside => self.config.inside_of(realm),
            Side::Outside => &self.config.outside,
        };
        match (own.address, side) {
            (Some(address), _) => address.to_bits(),
            (None, Side::Inside) => DUMMY_ADDRESS,
            (None, Side::Outside) => self.external.first_address(),
        }
    }

    /// Checks a packet's endpoints, from either side: the source is not ours, and neither is the
    /// broadcast address of a connected network (RFC 1812 section 5.3.5, RFC 2644).
    #[inline]
    pub(super) fn check_ends(&self, headers: &Headers, from: Side) -> Result<(), DropReason> {
        let realm = (from == Side::Inside).then_some(headers.realm);
        let (source, destination) = (headers.source.address, headers.destination.address);
        let is_number = realm.is_some_and(|realm| self.has_numbers(realm));
        //= rfc1812#section-4.2.2.11-directed
        if !is_number && self.is_broadcast(realm, source) {
            return Err(DropReason::MartianSource);
        }
        //= rfc1812#section-4.2.3.1
        if self.is_broadcast(realm, destination) {
            return Err(DropReason::MartianDestination);
        }
        if !is_number && self.is_ours(realm, source) {
            return Err(DropReason::SpoofedSource);
        }
        Ok(())
    }

    pub(crate) fn is_subscriber(&self, host: Host) -> bool {
        self.realms.has_subscriber(host) || self.static_hosts.binary_search(&host).is_ok()
    }

    pub(super) fn count_portless(&mut self, headers: &Headers) {
        if headers.kind == Kind::Portless {
            self.counters.portless += 1;
        }
    }
}

/// True if a packet is an echo request that a host would answer.
pub(super) fn is_echo_request(bytes: &[u8], headers: &Headers) -> bool {
    headers.kind == (Kind::IcmpQuery { request: true })
        && !headers.fragment
        && Icmp::new_checked(&bytes[usize::from(headers.header_len)..]).is_some_and(|message| {
            message.kind() == icmp::kind::ECHO_REQUEST && message.checksum_valid()
        })
}
