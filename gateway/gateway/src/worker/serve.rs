//! Requests for mappings that wait at the gateway: some are served each turn, between batches.

use super::Worker;
use super::families::{Families, Passage};
use super::stages::{Stages, transmitters};
use crate::link::Link;
use crate::pcp::{Admission, Datagram, Next, Sender, write_datagram, write_datagram_ipv6};
use crate::router::{Onward, Router};
use crate::router6::{AddressState, Onward6};
use crate::team::Way;
use natgate_engine::{Cursor, DropReason, Engine, Filter, Prefix, Side, SubscriberInfo, Timestamp};
use natgate_io::{Frame, HEADROOM, Transmit};
use natgate_ipv6::softwire::TunneledRequest;
use natgate_ipv6::{HostKind, Prefix6};
use natgate_pcp::{ALL_HOSTS, ALL_NODES, CLIENT_PORT, SERVER_PORT};
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Requests that are served in one turn. One request may ask for a whole port set; packets wait for
/// it.
const BUDGET: usize = 2;
/// TTL of an announcement to all hosts of a link.
const ONE_LINK: u8 = 1;
/// Bits by which subscribers of one group of senders differ.
const GROUP_BITS: u8 = 8;

impl Worker {
    /// Serves some requests, and sends announcements that are due.
    pub(super) fn serve(&mut self, now: Timestamp) {
        if !self.stages.pcp.is_open() {
            return;
        }
        let Self { stages, devices, scratch, .. } = self;
        stages.pcp.watch(&stages.engine, now);
        for _ in 0..BUDGET {
            let Some(datagram) = stages.pcp.next(now) else { break };
            let len = stages.answer(now, &datagram, &mut scratch[HEADROOM..]);
            let (link, own) = (Link::inside(datagram.realm), (&mut scratch[..], len));
            match datagram.client.0 {
                _ if len == 0 => {}
                IpAddr::V4(_) if datagram.tunnel.is_none() => {
                    stages.send_own(now, link, own, &mut transmitters(devices));
                }
                _ => stages.send_own_ipv6(now, own, &mut transmitters(devices)),
            }
        }
        stages.announce(now, scratch);
    }
}

impl Stages {
    /// Serves a request. Writes the packet with the answer to the front of a buffer; returns its
    /// length, 0 if there is none.
    fn answer(&mut self, now: Timestamp, datagram: &Datagram, into: &mut [u8]) -> usize {
        let answer = match self.pcp.read(datagram, now) {
            Next::Nothing => return 0,
            Next::Answer(answer) => answer,
            Next::Ask(request) => {
                if request.is_third_party
                    && !datagram.is_here
                    && let Some(team) = &mut self.team
                    && let IpAddr::V4(host) = request.host
                    && let Some(len) = datagram.packet(into)
                {
                    let host = (datagram.realm, host);
                    let (class, packet) = (datagram.class, &into[..len]);
                    if team.dispatch_request(&self.engine, host, class, packet) != Way::Here {
                        return 0;
                    }
                }
                let Self { pcp, engine, families, .. } = self;
                let translator = families.as_mut().map(|families| &mut families.translator);
                let answer = pcp.carry_out((engine, translator), datagram, &request, now);
                if datagram.numbered(request.host).is_some() {
                    self.name_hosts();
                }
                answer
            }
        };
        datagram.reply(&answer, into)
    }

    /// Takes a packet to an own address of IPv6, or to the end of the tunnels of DS-Lite, if it is
    /// a request for a mapping.
    //= rfc6887#section-8.2-interface
    #[cold]
    pub(super) fn take_own_ipv6(
        &mut self,
        families: &mut Families,
        now: Timestamp,
        frame: &mut Frame<'_>,
    ) {
        if !self.pcp.is_open() {
            return;
        }
        let hardware = source(frame, self.router.mac(Link::inside(0)));
        let admission = match families.translator.tunneled_request(frame.bytes()) {
            Some(request) => self.admit_tunneled(families, now, hardware, &request),
            None if self.pcp.serves_nat64() => {
                self.admit_ipv6(families, now, hardware, frame.bytes())
            }
            None => Admission::NoRequest,
        };
        let other = match admission {
            Admission::NoRequest => return,
            Admission::Waiting => None,
            Admission::Refused => Some(DropReason::RequestLimit),
        };
        families.translator.count_local(other, frame.len());
    }

    /// Takes a packet to the link-local address inside, if it is a request for a mapping: hosts ask
    /// their default router (RFC 6887 section 8.1), which they know by that address.
    /// Returns true if it is one.
    pub(super) fn take_link_local(&mut self, now: Timestamp, hardware: Mac, packet: &[u8]) -> bool {
        let Some(families) = self.families.take() else { return false };
        let is_request = self.pcp.serves_nat64()
            && self.admit_ipv6(&families, now, Some(hardware), packet) != Admission::NoRequest;
        self.families = Some(families);
        is_request
    }

    /// Admits a request that came by IPv6 to an own address inside.
    fn admit_ipv6(
        &mut self,
        families: &Families,
        now: Timestamp,
        hardware: Option<Mac>,
        packet: &[u8],
    ) -> Admission {
        let own = families.router.addresses(Link::inside(0));
        let is_own = |address| own.contains(&(address, AddressState::Assigned));
        let request = Datagram::read_ipv6(packet, is_own);
        let Some((request, IpAddr::V6(client))) = request.map(|one| (one, one.client.0)) else {
            return Admission::NoRequest;
        };
        if client.is_multicast()
            || client.is_unspecified()
            || client.is_loopback()
            || is_own(client)
        {
            return Admission::NoRequest;
        }
        let sender = sender_ipv6((families, &self.engine), hardware, client);
        self.pcp.admit(now, request, sender)
    }

    /// Admits a request that came through a tunnel of DS-Lite. It counts for the subscriber, which
    /// is the B4.
    fn admit_tunneled(
        &mut self,
        families: &Families,
        now: Timestamp,
        hardware: Option<Mac>,
        request: &TunneledRequest<'_>,
    ) -> Admission {
        let Some(datagram) = Datagram::read_tunneled(request) else { return Admission::NoRequest };
        let b4 = request.b4;
        let sender = sender_by_ipv6(families, hardware, (HostKind::Dslite, b4), || {
            let numbers = families.translator.numbers(HostKind::Dslite, b4, 128);
            numbers.is_some_and(|(realm, hosts)| has_subscriber(&self.engine, realm, hosts))
        });
        self.pcp.admit(now, datagram, sender)
    }

    /// Sends a packet of IPv6 of `len` bytes that lies behind headroom to the inside.
    fn send_own_ipv6(
        &mut self,
        now: Timestamp,
        (scratch, len): (&mut [u8], usize),
        transmitters: &mut [&mut dyn Transmit],
    ) {
        let Some(mut families) = self.families.take() else { return };
        let frame = Frame::of(scratch, HEADROOM, HEADROOM + len);
        if self.captures.is_on() {
            self.captures.leaving(now, Side::Inside, frame.bytes());
        }
        let mut passage = Passage::new(self, &mut families, now, transmitters);
        passage.send_now((Side::Inside, 0), frame, None);
        self.families = Some(families);
    }

    /// Keeps the names of the hosts that the last events are about.
    fn name_hosts(&mut self) {
        let Some(families) = &mut self.families else { return };
        while let Some(event) = self.engine.poll_event() {
            let name = families.name(&event);
            families.told.push((event, name));
        }
    }

    /// Announces to all hosts inside that mappings may have been lost.
    //= rfc6887#section-14.1.3-inform
    fn announce(&mut self, now: Timestamp, scratch: &mut [u8]) {
        let Some(announcement) = self.pcp.announcement(now) else { return };
        let further: Vec<u16> = self.cables.further().collect();
        for realm in std::iter::once(0).chain(further) {
            let link = Link::new(Side::Inside, realm);
            if self.engine.config().inside_of(realm).address.is_none() {
                continue;
            }
            //= rfc6887#section-14.1.3-source
            let ends = ((self.router.address(link), SERVER_PORT), (ALL_HOSTS, CLIENT_PORT));
            for message in announcement.messages(self.engine.sole_address(realm)) {
                let len = write_datagram(ends, ONE_LINK, &message, scratch);
                if self.captures.is_on() {
                    self.captures.leaving(now, Side::Inside, &scratch[..len]);
                }
                self.router.send_to_all(link, &scratch[..len]);
            }
        }
        if self.pcp.serves_nat64() {
            let message = self.pcp.message_to_nat64(announcement);
            self.announce_to_nat64(now, &message, scratch);
        }
    }

    /// Announces to all hosts of IPv6 inside, from each address that is asked.
    fn announce_to_nat64(&mut self, now: Timestamp, message: &[u8], scratch: &mut [u8]) {
        let Self { families: Some(families), captures, .. } = self else { return };
        let link = Link::inside(0);
        for (address, state) in families.router.addresses(link) {
            if state != AddressState::Assigned {
                continue;
            }
            //= rfc6887#section-14.1.3-source
            let ends = ((address, SERVER_PORT), (ALL_NODES, CLIENT_PORT));
            let len = write_datagram_ipv6(ends, ONE_LINK, message, scratch);
            if captures.is_on() {
                captures.leaving(now, Side::Inside, &scratch[..len]);
            }
            families.router.send_to_all(link, &scratch[..len]);
        }
    }
}

/// Facts about the sender of a request from inside by IPv6. `hardware`: see [`Sender::hardware`].
pub(super) fn sender_ipv6(
    (families, engine): (&Families, &Engine),
    hardware: Option<Mac>,
    client: Ipv6Addr,
) -> Sender {
    sender_by_ipv6(families, hardware, (HostKind::Nat64, client), || {
        let number = families.translator.number_of(client.into());
        number.is_some_and(|(realm, number)| is_subscriber(engine, realm, number))
    })
}

/// As [`sender_ipv6`], for a host or a B4.
fn sender_by_ipv6(
    families: &Families,
    hardware: Option<Mac>,
    (kind, client): (HostKind, Ipv6Addr),
    has_mappings: impl FnOnce() -> bool,
) -> Sender {
    let (hop, expected) = match families.router.onward(Link::inside(0), client, 0) {
        Onward6::Hop { address, mac, .. } => (Some(address), mac),
        Onward6::NoRoute => (None, None),
    };
    let len = families.translator.subscriber_length(kind);
    let prefix_of = |len| Prefix6 { address: client, len }.first().to_bits();
    let names = (prefix_of(len), prefix_of(len - GROUP_BITS));
    sender_by_route((hop == Some(client), expected), hardware, names, has_mappings)
}

/// Facts about the source address of a request from a realm; `hardware`: see [`Sender::hardware`].
pub(super) fn sender(
    (router, engine): (&Router, &Engine),
    realm: u16,
    hardware: Option<Mac>,
    client: Ipv4Addr,
) -> Sender {
    let link = Link::inside(realm);
    let (hop, expected) = match router.onward(link, client, 0, false) {
        Onward::Hop { address, mac, .. } => (Some(address), mac),
        Onward::NoRoute | Onward::Everybody => (None, None),
    };
    let account = u128::from(client.to_bits());
    sender_by_route(
        (hop == Some(client), expected),
        hardware,
        (account, account >> GROUP_BITS),
        || is_subscriber(engine, realm, client),
    )
}

/// Facts about a sender by the route to it: true if it is a neighbor, and the hardware address of
/// the next hop. `account` and `group`: see [`Sender::account`] and [`Sender::prefix`].
fn sender_by_route(
    (is_neighbor, expected): (bool, Option<Mac>),
    hardware: Option<Mac>,
    (account, group): (u128, u128),
    has_mappings: impl FnOnce() -> bool,
) -> Sender {
    let agrees = expected.is_some() && (hardware.is_none() || hardware == expected);
    let is_known = agrees && (is_neighbor || has_mappings());
    let is_routed = agrees && !is_neighbor;
    let prefix = (is_routed || hardware.is_none()).then_some(group);
    Sender { is_known, hardware, prefix, account }
}

/// The source of the Ethernet frame to `own` that a packet came in, or `None` if the packet came
/// without a frame. A packet that another worker has handed over has a header with the source.
pub(super) fn source(frame: &mut Frame<'_>, own: Mac) -> Option<Mac> {
    let (start, _) = frame.range();
    [ETHERNET_LEN, ETHERNET_LEN + VLAN_LEN].into_iter().find_map(|len| {
        let header = frame.buffer_mut().get(start.checked_sub(len)?..start)?;
        let (destination, source, _) = arp::read_ethernet(header)?;
        (destination == own).then_some(source)
    })
}

/// True if a host has mappings.
fn is_subscriber(engine: &Engine, realm: u16, host: Ipv4Addr) -> bool {
    has_subscriber(engine, realm, Prefix::new(host, 32))
}

/// True if a host in a prefix has mappings.
fn has_subscriber(engine: &Engine, realm: u16, hosts: Prefix) -> bool {
    let subscriber = Some(hosts);
    let filter = Filter { realm: Some(realm), subscriber, ..Filter::default() };
    let mut found: Vec<SubscriberInfo> = Vec::with_capacity(1);
    engine.scan_subscribers(&mut Cursor::default(), 1, &filter, &mut found);
    !found.is_empty()
}
