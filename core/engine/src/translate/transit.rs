//! The work of any router: its own addresses, TTL, MTU, ICMP errors about packets that cannot
//! travel on, and packets that pass untranslated (sections 3.2, 3.5, 3.15 and 8 of the
//! specification).

use super::{Engine, Fate};
use crate::DropReason;
use crate::config::Refusal;
use crate::host::Host;
use crate::packet::{Side, Verdict};
use crate::parse::{Embedded, Headers, Kind};
use crate::respond::{Envelope, Message, echo_reply};
use crate::rewrite::{apply_transit, lower_mss};
use natgate_wire::tcp::flags::SYN;
use natgate_wire::{Icmp, icmp};

/// Source of ICMP errors to the inside when no address is configured there (RFC 7600).
const DUMMY_ADDRESS: u32 = 0xc000_0008;

impl Engine {
    /// Answers an echo request to the gateway itself.
    pub(super) fn local(&mut self, bytes: &mut [u8], headers: &Headers, from: Side) -> Fate {
        //= rfc1812#section-4.3.2.1
        //= rfc1812#section-4.3.3.2-ignore
        //= rfc1812#section-4.3.3.3-ignore
        //= rfc1812#section-4.3.3.7
        if !is_echo_request(bytes, headers) {
            return Err(DropReason::LocalUnsupported);
        }
        //= rfc5508#REQ-10a
        //= rfc1812#section-4.2.2.9-local
        //= rfc1812#section-4.3.3.6-echo
        echo_reply(bytes);
        Ok(Verdict::Reply(from))
    }

    /// Forwards a packet untranslated.
    pub(super) fn bypass(&mut self, bytes: &mut [u8], headers: &Headers, from: Side) -> Fate {
        let mtu = match from {
            Side::Inside => self.outside_mtu(),
            Side::Outside => self.inside_mtu(self.realms.leaving),
        };
        self.check_transit(bytes, headers, from, mtu)?;
        apply_transit(bytes, headers);
        Ok(Verdict::Forward(from.other()))
    }

    /// True if a packet from inside goes to a router of its own realm. Such packets are not
    /// translated.
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

    /// Forwards a packet from inside, or an error about it, within its own realm.
    #[cold]
    pub(super) fn route_inside(&mut self, bytes: &mut [u8], headers: &Headers) -> Fate {
        let mtu = self.inside_mtu(headers.realm);
        self.check_transit(bytes, headers, Side::Inside, mtu)?;
        apply_transit(bytes, headers);
        self.realms.leaving = headers.realm;
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Checks that a packet may travel on: its TTL suffices and it fits into `mtu` bytes.
    pub(super) fn check_transit(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        from: Side,
        mtu: u16,
    ) -> Result<(), DropReason> {
        //= rfc5508#REQ-10a
        //= rfc5508#section-7.2
        //= rfc1812#section-4.2.2.9-zero
        //= rfc1812#section-5.2.7.3
        //= rfc1812#section-5.3.1-error
        //= rfc1812#section-5.3.1-predict
        if headers.ttl <= 1 {
            self.answer(bytes, headers, from, Message::TTL_EXCEEDED);
            return Err(DropReason::TtlExceeded);
        }
        //= rfc4787#REQ-13
        //= rfc5508#REQ-10a
        //= rfc5508#section-7.1.1-honour
        //= rfc6864#section-4.3-df
        if headers.dont_fragment && headers.total_len > mtu {
            self.answer(bytes, headers, from, Message::fragmentation_needed(mtu));
            return Err(DropReason::TooBig);
        }
        Ok(())
    }

    /// [`Engine::check_transit`] for a fragment other than the first, whose other checks are
    /// skipped.
    pub(super) fn check_later(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        from: Side,
    ) -> Result<(), DropReason> {
        if headers.kind != Kind::LaterFragment {
            return Ok(());
        }
        let mtu = match from {
            Side::Inside if self.external.index(headers.destination.address).is_some() => {
                self.hairpin_mtu(headers.realm)
            }
            Side::Inside if self.stays_inside(headers) => self.inside_mtu(headers.realm),
            Side::Inside => self.outside_mtu(),
            // Only the first fragment tells the realm.
            Side::Outside => self.realms.least_mtu(),
        };
        self.check_transit(bytes, headers, from, mtu)
    }

    /// Sends an ICMP error about a packet back to its source, unless the packet is of a kind that
    /// gets none (RFC 1812 section 4.3.2.7). ICMP other than queries may be an error.
    pub(super) fn answer(&mut self, bytes: &[u8], headers: &Headers, from: Side, message: Message) {
        //= rfc5508#REQ-10e
        //= rfc1812#section-4.3.2.7-error
        //= rfc1812#section-4.3.2.7-fragment
        if matches!(headers.kind, Kind::IcmpError | Kind::IcmpOther | Kind::LaterFragment) {
            return;
        }
        let envelope = Envelope {
            side: from,
            realm: headers.realm,
            source: self.own_address(from, headers.realm),
            destination: headers.source.address,
        };
        if !self.responder.send(self.now, message, envelope, bytes) {
            self.counters.errors_suppressed += 1;
        }
    }

    /// Tells a subscriber that a packet found no room, by the configured answer.
    pub(super) fn refuse(&mut self, bytes: &[u8], headers: &Headers) {
        let message = match self.config.refusal {
            Refusal::HostUnreachable => Message::HOST_UNREACHABLE,
            //= rfc5508#REQ-8-code
            Refusal::Prohibited => Message::PROHIBITED,
            Refusal::Silent => return,
        };
        self.answer(bytes, headers, Side::Inside, message);
    }

    /// Lowers the maximum segment size in a translated SYN to the configured value.
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
    fn own_address(&self, side: Side, realm: u16) -> u32 {
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
        //= rfc1812#section-4.2.2.11-directed
        if self.is_broadcast(realm, source) {
            return Err(DropReason::MartianSource);
        }
        //= rfc1812#section-4.2.3.1
        if self.is_broadcast(realm, destination) {
            return Err(DropReason::MartianDestination);
        }
        if self.is_ours(realm, source) {
            return Err(DropReason::SpoofedSource);
        }
        Ok(())
    }

    pub(crate) fn is_subscriber(&self, host: Host) -> bool {
        let subscribers = self.config.subscribers_of(host.realm());
        subscribers.iter().any(|prefix| prefix.contains(host.address()))
            || self.static_hosts.binary_search(&host).is_ok()
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
