//! Messages of Neighbor Discovery that come in, and the router's answers (RFC 4861 section 7, RFC
//! 4862 section 5.4).
//!
//! [`natgate_wire::nd`] has checked the messages; [`super::neighbors`] keeps the neighbours.

use super::advertise::Advertiser;
use super::listener::{self, Reason};
use super::outbox::{Outbox, with_header_room};
use super::own::{AddressState, Step};
use super::port::Port;
use super::{Asker, Hearing, Router6, errors, index, release};
use crate::link::Link;
use natgate_engine::Timestamp;
use natgate_wire::arp::Mac;
use natgate_wire::link::ETHERNET_LEN;
use natgate_wire::nd::{Advertisement, Message, Solicitation};
use natgate_wire::{Ipv6, nd, protocol};
use std::net::Ipv6Addr;

/// Most queries for groups that are answered in a second.
const MOST_REPORTS_PER_SECOND: u32 = 10;

/// True if a packet to the router is a message of Neighbor Discovery.
pub(super) fn is_discovery(header: &Ipv6<&[u8]>, packet: &[u8]) -> bool {
    header.walk().is_ok_and(|walk| {
        let kind = packet.get(walk.transport).copied();
        walk.protocol == protocol::ICMPV6 && kind.is_some_and(nd::is_discovery)
    })
}

/// Does the work of a link that is due.
pub(super) fn advance(now: Timestamp, link: Link, port: &mut Port, outbox: &mut Outbox) {
    let (mac, mut steps) = (port.mac, Vec::new());
    port.own.advance(now, &mut |step| steps.push(step));
    let asks = steps.iter().any(|step| matches!(step, Step::Ask(_)));
    let begins = steps
        .iter()
        .any(|step| matches!(step, Step::Announce(address) if address.is_unicast_link_local()));
    //= rfc4862#section-5.4.2-join
    //= rfc4861#section-7.2.1
    if asks || begins {
        let (groups, source) = (port.groups(), port.own.assigned(true));
        report_groups(link, mac, (&groups, Reason::Begins, source), outbox);
    }
    for step in steps {
        match step {
            Step::Ask(address) => probe(link, mac, address, outbox),
            Step::Announce(address) => announce(link, mac, address, outbox),
        }
    }
    let own = (mac, port.own.assigned(true));
    let mtu = port.mtu;
    let due = port.advertiser.as_mut().and_then(|one| one.advance(now, own, mtu));
    if let Some(packet) = due {
        advertise(link, mac, &packet, outbox);
    }
    let asker = Asker { mac, source: port.asker() };
    port.neighbors.advance(now, &mut |action| asker.act(action, link, outbox));
}

/// Time of the next work of a link.
pub(super) fn next_deadline(port: &Port) -> Option<Timestamp> {
    let advertiser = port.advertiser.as_ref().map(Advertiser::next_deadline);
    let deadlines = [port.own.next_deadline(), port.neighbors.next_deadline(), advertiser];
    deadlines.into_iter().flatten().min()
}

/// The advertisement by which hosts learn not to use a router or prefix any longer that the link
/// was advertised with. `None`: the new link is advertised with them, too.
pub(super) fn farewell(old: &Port, new: &Port) -> Option<Vec<u8>> {
    let former = old.advertiser.as_ref()?;
    let stays = new.advertiser.as_ref().is_some_and(|new| new.has_network_of(former));
    last_advertisement(old).filter(|_| !stays)
}

/// The advertisement by which hosts learn not to use the router and its prefix any longer. `None`:
/// the router does not advertise itself on the link.
pub(super) fn last_advertisement(port: &Port) -> Option<Vec<u8>> {
    let (advertiser, source) = (port.advertiser.as_ref()?, port.own.assigned(true)?);
    Some(advertiser.farewell((port.mac, source), port.mtu))
}

/// Sends a router advertisement.
pub(super) fn advertise(link: Link, mac: Mac, packet: &[u8], outbox: &mut Outbox) {
    let is_sent = outbox.push_once(link, (mac, nd::group_mac(nd::ALL_NODES)), packet);
    outbox.counters.advertisements_sent += u64::from(is_sent);
}

/// Reports the groups that the router listens to.
fn report_groups(
    link: Link,
    mac: Mac,
    (groups, reason, source): (&[Ipv6Addr], Reason, Option<Ipv6Addr>),
    outbox: &mut Outbox,
) {
    let report = listener::report(groups, reason, source);
    outbox.push_once(link, (mac, listener::receivers()), &report);
}

/// Asks whether another host of a link has an address.
fn probe(link: Link, mac: Mac, address: Ipv6Addr, outbox: &mut Outbox) {
    let group = nd::solicited_node(address);
    let question = Solicitation { target: address, mac }.packet(None, group);
    outbox.push_once(link, (mac, nd::group_mac(group)), question.bytes());
}

/// Tells all hosts of a link that the router has an address.
fn announce(link: Link, mac: Mac, address: Ipv6Addr, outbox: &mut Outbox) {
    let said = advertisement(mac, address, false).packet(address, nd::ALL_NODES);
    outbox.push_once(link, (mac, nd::group_mac(nd::ALL_NODES)), &said);
}

/// Advertisement of an own address.
//= rfc4861#section-7.2.4-option
//= rfc4861#section-7.2.4-router
//= rfc4861#section-7.2.4-override
fn advertisement(mac: Mac, target: Ipv6Addr, solicited: bool) -> Advertisement {
    Advertisement { target, mac: Some(mac), router: true, solicited, replaces: true }
}

impl Router6 {
    /// Processes a message of Neighbor Discovery.
    pub(super) fn discover(
        &mut self,
        now: Timestamp,
        link: Link,
        (sender, hearing): (Mac, Hearing),
        packet: &[u8],
    ) {
        let Some(place) = index(link) else { return };
        let (Ok(message), Ok(header)) = (nd::read(packet), Ipv6::new_checked(packet)) else {
            self.outbox.counters.discovery_invalid += 1;
            return;
        };
        // A message of the router's own that a switch has sent back says nothing.
        if sender == self.ports[place].mac {
            return;
        }
        let source = Ipv6Addr::from_bits(header.source());
        if self.ports[place].own.is_assigned(source) {
            self.outbox.counters.address_conflicts += 1;
            return;
        }
        match message {
            Message::NeighborSolicitation { target, mac } => {
                let is_asked = self.take_solicitation(now, link, (source, mac), target);
                if is_asked && hearing == Hearing::Receives {
                    self.answer(link, (source, mac, sender), target);
                }
            }
            Message::NeighborAdvertisement(said) => self.take_advertisement(now, link, &said),
            Message::RouterSolicitation { mac } => {
                self.outbox.counters.router_solicitations += 1;
                if let Some(mac) = mac {
                    self.learn(now, link, source, mac);
                }
                //= rfc4861#section-6.2.6-host
                self.ports[place].neighbors.is_host(source);
                if let Some(advertiser) = &mut self.ports[place].advertiser {
                    advertiser.solicit(now);
                }
            }
            //= rfc4861#section-8.2-update
            Message::RouterAdvertisement | Message::Redirect => {}
        }
    }

    /// Answers a query for the groups that the router listens to.
    pub(super) fn report_groups(&mut self, now: Timestamp, link: Link) {
        let Some(port) = index(link).map(|place| &mut self.ports[place]) else { return };
        if port.reports.take(now, MOST_REPORTS_PER_SECOND) {
            let (groups, source) = (port.groups(), port.own.assigned(true));
            report_groups(link, port.mac, (&groups, Reason::Asked, source), &mut self.outbox);
        }
    }

    /// Takes a solicitation; true if it is for an own address, and is to be answered.
    //= rfc4861#section-7.2.3
    fn take_solicitation(
        &mut self,
        now: Timestamp,
        link: Link,
        (source, stated): (Ipv6Addr, Option<Mac>),
        target: Ipv6Addr,
    ) -> bool {
        let Some(place) = index(link) else { return false };
        let port = &mut self.ports[place];
        match port.own.state(target) {
            Some(AddressState::Assigned) => {}
            //= rfc4862#section-5.4.3
            Some(AddressState::Tentative) if source.is_unspecified() => {
                self.outbox.counters.address_conflicts += 1;
                port.own.collide(now, target);
                return false;
            }
            _ => return false,
        }
        //= rfc4861#section-7.2
        if let Some(mac) = stated {
            self.learn(now, link, source, mac);
        }
        true
    }

    /// Answers a solicitation for an own address.
    fn answer(
        &mut self,
        link: Link,
        (source, stated, sender): (Ipv6Addr, Option<Mac>, Mac),
        target: Ipv6Addr,
    ) {
        let Some(place) = index(link) else { return };
        let (own, probes) = (self.ports[place].mac, source.is_unspecified());
        let known = self.ports[place].neighbors.known(source);
        //= rfc4861#section-7.2.4-probe
        //= rfc4861#section-7.2.4-solicited
        let (to, mac) = match probes {
            true => (nd::ALL_NODES, nd::group_mac(nd::ALL_NODES)),
            false => (source, stated.or(known).unwrap_or(sender)),
        };
        let said = advertisement(own, target, !probes).packet(target, to);
        let is_sent = self.outbox.push_own(link, (own, mac), &said);
        self.outbox.counters.solicitations_answered += u64::from(is_sent);
    }

    /// Learns a neighbour from its own message, if it is a neighbour's address.
    fn learn(&mut self, now: Timestamp, link: Link, source: Ipv6Addr, mac: Mac) {
        let Some(place) = index(link) else { return };
        let Self { ports, outbox } = self;
        let port = &mut ports[place];
        //= rfc4861#section-6.2.6-source
        //= rfc4861#section-7.2.3-probe
        if source.is_unspecified() || !port.routes.is_on_link(source) {
            return;
        }
        let before = port.neighbors.known(source);
        let asker = Asker { mac: port.mac, source: port.asker() };
        let act = &mut |action| asker.act(action, link, outbox);
        match port.neighbors.learn(now, source, mac, act) {
            Some(held) => release(link, port.mac, mac, held, outbox),
            None => outbox.counters.neighbors_refused += 1,
        }
        let after = port.neighbors.known(source);
        outbox.counters.neighbor_changes += u64::from(before.is_some() && before != after);
    }

    /// Takes an advertisement of another host.
    fn take_advertisement(&mut self, now: Timestamp, link: Link, said: &Advertisement) {
        let Some(place) = index(link) else { return };
        let Self { ports, outbox } = self;
        let port = &mut ports[place];
        //= rfc4862#section-5.4.4
        if port.own.state(said.target).is_some() {
            outbox.counters.address_conflicts += 1;
            return port.own.collide(now, said.target);
        }
        let (held, is_other) = port.neighbors.hear(now, said);
        outbox.counters.neighbor_changes += u64::from(is_other);
        if let Some(mac) = port.neighbors.known(said.target) {
            release(link, port.mac, mac, held, outbox);
        }
    }

    /// Answers an echo request to an own link-local address or to a group; false if it is none.
    pub(super) fn answer_echo(
        &mut self,
        now: Timestamp,
        link: Link,
        destination: Ipv6Addr,
        packet: &[u8],
    ) -> bool {
        let Some(port) = index(link).map(|place| &self.ports[place]) else { return false };
        let is_group = destination == nd::ALL_NODES || destination == nd::ALL_ROUTERS;
        let own = if is_group { port.own.assigned(true) } else { Some(destination) };
        let Some(own) = own.filter(|own| port.own.is_assigned(*own)) else { return false };
        let mut frame = with_header_room(packet);
        let reply = &mut frame[ETHERNET_LEN..];
        if !natgate_ipv6::answer_echo(reply) || !errors::set_source(reply, own.to_bits()) {
            return false;
        }
        self.outbox.counters.echoes_answered += 1;
        self.send_own(now, link, frame);
        true
    }
}
