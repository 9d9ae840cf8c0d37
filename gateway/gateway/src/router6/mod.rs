//! The router for IPv6 around the translator: routes, next hops, and Neighbor Discovery (RFC 4861).
//!
//! The router is a state machine without a device or a clock, like [`crate::router`] for IPv4.
//! Packets and times come in, and frames to send come out of [`Router6::poll_transmit`]. There is
//! one link inside and one outside; realms besides realm 0 have no IPv6. On each link the router
//! has a link-local address, the configured address, routes and neighbours of its own. It answers
//! Neighbor Discovery, and echo requests to link-local addresses. The translator answers echo
//! requests to the configured addresses, and decides whether a packet may pass.
//!
//! Call order: [`Router6::accepts`] tells whether a frame is for the gateway. [`Router6::receive`]
//! takes its packet, and returns [`Received::Forward`] if the translator has to take it. Packets
//! that leave go through [`Router6::send`]. Call [`Router6::advance`] at
//! [`Router6::next_deadline`], also once at the start: it begins duplicate address detection.
//!
//! A packet that cannot be delivered counts as lost, and an ICMPv6 error tells its sender. The
//! error quotes the packet as the router has it, after translation. [`Router6::poll_error`] returns
//! the error; the translator then processes it like a packet that came in by the link that the lost
//! packet would have left by, and [`Router6::send_error`] sends it.

mod advertise;
mod counters;
mod discovery;
mod errors;
mod listener;
mod neighbors;
mod onward;
mod outbox;
mod own;
mod port;
mod routes;
#[cfg(test)]
mod tests;

pub use crate::router::{Fate, RouterError};
pub use counters::Router6Counters;
pub use neighbors::{
    DELAY, MOST_INCOMPLETE, NeighborInfo6, NeighborState6, REACHABLE, RETRANSMIT, STALE, TRIES,
};
pub use onward::Onward6;
pub use own::AddressState;

use crate::counters::{Losses, Origin};
use crate::limits::OUTSIDE;
use crate::link::Link;
use crate::router::MOST_HELD_IN_ALL;
use crate::settings::Settings;
use errors::{Errors, Undelivered};
use natgate_engine::{Counters, DropReason, Side, Timestamp};
use natgate_io::Frame;
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use natgate_wire::{Ipv6, ipv6, nd};
use neighbors::{Action, WaitingPacket};
use outbox::{Outbox, with_header_room};
use port::{Described, Port};
use std::collections::VecDeque;
use std::net::Ipv6Addr;

/// Both links, in the order of the ports.
const LINKS: [Link; 2] = [Link::inside(0), Link::OUTSIDE];

/// Fate of a packet that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The translator takes the packet.
    Forward,
    /// The packet was for the router itself.
    Taken,
    /// As `Taken`; the routers of other workers have to hear the packet, too
    /// ([`Router6::overhear`]).
    Discovery,
    /// The packet is for nobody here; it is counted.
    Ignored,
}

/// The part of a router in a message of Neighbor Discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    /// The router has received the message, and answers it.
    Receives,
    /// The router of another worker has received the message.
    Overhears,
}

/// The router for IPv6.
#[derive(Debug)]
pub struct Router6 {
    /// The inside of realm 0, the outside.
    ports: [Port; 2],
    outbox: Outbox,
}

impl Router6 {
    /// Creates a router. `macs` are the devices' hardware addresses in the order of
    /// [`Settings::devices`]. `None`: the settings have nothing about IPv6.
    ///
    /// # Errors
    /// [`RouterError`] if the settings name an unreachable next hop.
    pub fn new(settings: &Settings, macs: &[Mac]) -> Result<Option<Self>, RouterError> {
        if !settings.ipv6.configured {
            return Ok(None);
        }
        let inside = Port::new(settings, Link::inside(0), macs[0])?;
        let outside = Port::new(settings, Link::OUTSIDE, macs[OUTSIDE])?;
        let outbox = Outbox::new(Errors::new(&settings.engine.limits));
        Ok(Some(Self { ports: [inside, outside], outbox }))
    }

    /// True if frames to a hardware address are for the gateway: its own, those of all nodes and
    /// all routers, and those of the groups of its own addresses.
    pub fn accepts(&self, link: impl Into<Link>, destination: Mac) -> bool {
        let Some(port) = self.port(link.into()) else { return false };
        let is_group = |group: Ipv6Addr| nd::group_mac(group) == destination;
        destination == port.mac
            || port.described.is_used()
                && (is_group(nd::ALL_NODES)
                    || is_group(nd::ALL_ROUTERS)
                    || port.own.list().any(|(own, _)| is_group(nd::solicited_node(own))))
    }

    /// Takes a packet that came in by a link, from hardware address `source`. Bytes after the
    /// packet do not count.
    pub fn receive(
        &mut self,
        now: Timestamp,
        link: impl Into<Link>,
        source: Mac,
        packet: &[u8],
    ) -> Received {
        let link = link.into();
        let Some(port) = index(link).map(|place| &self.ports[place]) else { return self.ignore() };
        let Ok(header) = Ipv6::new_checked(packet) else { return Received::Forward };
        let destination = Ipv6Addr::from_bits(header.destination());
        if !port.described.is_used() {
            return self.ignore();
        }
        let state = port.own.state(destination);
        let stays = destination.is_multicast() || destination.is_unicast_link_local();
        if !stays && state.is_none() {
            return Received::Forward;
        }
        let packet = &packet[..header.total_len()];
        if discovery::is_discovery(&header, packet) {
            self.outbox.counters.discovery_received += 1;
            self.discover(now, link, (source, Hearing::Receives), packet);
            return Received::Discovery;
        }
        match state {
            Some(AddressState::Assigned) if !stays => Received::Forward,
            _ if listener::is_query(packet) => {
                self.report_groups(now, link);
                Received::Taken
            }
            _ if self.answer_echo(now, link, destination, packet) => Received::Taken,
            _ => self.ignore(),
        }
    }

    /// Learns from a message of Neighbor Discovery that the router of another worker has received,
    /// and answered.
    pub fn overhear(&mut self, now: Timestamp, link: impl Into<Link>, source: Mac, packet: &[u8]) {
        let kept = self.outbox.counters;
        self.discover(now, link.into(), (source, Hearing::Overhears), packet);
        // The router that has received the message counts it.
        let counters = &mut self.outbox.counters;
        counters.discovery_invalid = kept.discovery_invalid;
        counters.address_conflicts = kept.address_conflicts;
        counters.router_solicitations = kept.router_solicitations;
    }

    /// Leaves to the router of another worker what a gateway sends once: advertisements of routers,
    /// reports of groups, and questions and announcements about own addresses.
    pub fn be_silent(&mut self) {
        self.outbox.speaks = false;
    }

    fn ignore(&mut self) -> Received {
        self.outbox.counters.packets_ignored += 1;
        Received::Ignored
    }

    /// Corrects the counters: the last packet that was [`Received::Ignored`] has been taken.
    pub fn take_ignored(&mut self) {
        self.outbox.counters.packets_ignored -= 1;
    }

    /// Finds the next hop of an IPv6 packet that leaves by a link. The frame's bytes are the
    /// packet. After [`Fate::Ready`] they are the Ethernet frame; the header has taken headroom.
    /// The router's own packets have no origin.
    ///
    /// # Panics
    /// If there is no headroom for an Ethernet header.
    pub fn send(
        &mut self,
        now: Timestamp,
        link: impl Into<Link>,
        frame: &mut Frame<'_>,
        origin: Option<Origin>,
    ) -> Fate {
        let link = link.into();
        match self.find(now, link, frame.bytes(), origin) {
            Ok((source, destination)) => {
                let (start, end) = frame.range();
                frame.set_range(start - ETHERNET_LEN, end);
                if let Some(header) = frame.bytes_mut().first_chunk_mut() {
                    arp::write_ethernet(header, destination, source, ethertype::IPV6);
                }
                Fate::Ready
            }
            Err(fate) => fate,
        }
    }

    /// Finds the hardware addresses for a packet that leaves by a link. Otherwise the packet waits
    /// or is lost.
    fn find(
        &mut self,
        now: Timestamp,
        link: Link,
        packet: &[u8],
        origin: Option<Origin>,
    ) -> Result<(Mac, Mac), Fate> {
        let Self { ports, outbox } = self;
        let Some(port) = index(link).map(|place| &mut ports[place]) else {
            return Err(outbox.lose(origin, DropReason::NoRoute));
        };
        let hop = destination(packet).and_then(|to| port.routes.next_hop(to));
        let Some(hop) = hop.filter(|_| port.described.is_used()) else {
            report(outbox, link, packet, origin, Undelivered::NoRoute);
            return Err(outbox.lose(origin, DropReason::NoRoute));
        };
        if packet.len() > port.mtu {
            report(outbox, link, packet, origin, Undelivered::TooBig(port.mtu));
            return Err(outbox.lose(origin, DropReason::TooBig));
        }
        match port.neighbors.resolve(now, hop) {
            Some(mac) => Ok((port.mac, mac)),
            None => {
                let held = WaitingPacket { frame: with_header_room(packet), origin };
                Err(hold(now, link, hop, held, port, outbox))
            }
        }
    }

    /// Sends a packet of the router's own by a link. The frame has room for the Ethernet header.
    fn send_own(&mut self, now: Timestamp, link: Link, frame: Vec<u8>) {
        if let Ok(ends) = self.find(now, link, &frame[ETHERNET_LEN..], None) {
            self.outbox.push(link, ends, frame, None);
        }
    }

    /// Sends an IPv6 packet of the gateway's own to all hosts of a link.
    pub fn send_to_all(&mut self, link: impl Into<Link>, packet: &[u8]) {
        let link = link.into();
        let mac = self.mac(link);
        self.outbox.push_own(link, (mac, nd::group_mac(nd::ALL_NODES)), packet);
    }

    /// Returns the next frame to send, oldest first: its link, its bytes, and the origin if it was
    /// an input packet.
    pub fn poll_transmit(&mut self) -> Option<(Link, Vec<u8>, Option<Origin>)> {
        self.outbox.pop()
    }

    /// Returns the next ICMPv6 error about a packet that could not be delivered, and the link that
    /// it counts as coming in by. The error is a whole packet, as a host beyond that link would
    /// have sent it. Translate it, then send it by [`Router6::send_error`]; if it has become IPv4,
    /// by [`crate::router::Router::send_error`].
    pub fn poll_error(&mut self) -> Option<(Link, Vec<u8>)> {
        self.outbox.errors.poll()
    }

    /// Sends a translated ICMPv6 error of [`Router6::poll_error`] or of the IPv4 router; otherwise
    /// like [`Router6::send`]. The source becomes the router's own address. The error is not sent
    /// if the limits, or the configuration of that link, forbid it.
    pub fn send_error(
        &mut self,
        now: Timestamp,
        link: impl Into<Link>,
        frame: &mut Frame<'_>,
    ) -> Fate {
        let link = link.into();
        let Some(place) = index(link) else { return self.suppress() };
        let (port, other) = (&self.ports[place], &self.ports[1 - place]);
        let source = port.own.assigned(false).or_else(|| other.own.assigned(false));
        let requester = destination(frame.bytes());
        let (Some(source), Some(requester), false) = (source, requester, port.is_silent()) else {
            return self.suppress();
        };
        if !errors::set_source(frame.bytes_mut(), source.to_bits())
            || !self.outbox.errors.permits(now, requester.to_bits())
        {
            return self.suppress();
        }
        let fate = self.send(now, link, frame, None);
        match fate {
            Fate::Lost => self.suppress_error(),
            _ => self.outbox.counters.errors_made += 1,
        }
        fate
    }

    fn suppress(&mut self) -> Fate {
        self.suppress_error();
        Fate::Lost
    }

    /// Counts an error that is not sent because there is no room for it.
    pub fn suppress_error(&mut self) {
        self.outbox.counters.errors_suppressed += 1;
    }

    /// Does the work that is due.
    pub fn advance(&mut self, now: Timestamp) {
        for (link, port) in LINKS.into_iter().zip(&mut self.ports) {
            discovery::advance(now, link, port, &mut self.outbox);
        }
    }

    /// Time of the next work for [`Router6::advance`].
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.ports.iter().filter_map(discovery::next_deadline).min()
    }

    /// Restarts a link that was down or has changed: neighbours are asked for again, and the
    /// router's addresses are tentative until nobody else has them.
    pub fn relink(&mut self, link: impl Into<Link>, mac: Mac) {
        let link = link.into();
        let Some(place) = index(link) else { return };
        self.outbox.forget(link);
        let port = &mut self.ports[place];
        port.set_mac(mac);
        self.outbox.give_up(port.neighbors.clear());
    }

    /// Adapts a link's MTU to its device: the lesser of `carried`, bytes, and the configuration's
    /// value, but no less than every link of IPv6 has. Returns true if the MTU has changed.
    pub fn follow_mtu(&mut self, link: impl Into<Link>, carried: u32) -> bool {
        let Some(place) = index(link.into()) else { return false };
        let port = &mut self.ports[place];
        let carried = usize::try_from(carried).unwrap_or(usize::MAX).max(ipv6::MIN_MTU);
        let mtu = port.configured_mtu().min(carried);
        std::mem::replace(&mut port.mtu, mtu) != mtu
    }

    /// Puts other settings in force. Neighbours and addresses of links with the same network stay
    /// known. If the settings have nothing about IPv6, both links carry none.
    ///
    /// # Errors
    /// [`RouterError`] if the settings name an unreachable next hop; then nothing has changed.
    pub fn reconfigure(&mut self, settings: &Settings) -> Result<(), RouterError> {
        let mut renewed = Vec::new();
        for (link, port) in LINKS.into_iter().zip(&self.ports) {
            if Described::new(settings, link) != port.described {
                renewed.push((link, Port::new(settings, link, port.mac)?));
            }
        }
        for (link, port) in renewed {
            self.replace(link, port);
        }
        self.outbox.errors.renew(&settings.engine.limits);
        Ok(())
    }

    fn replace(&mut self, link: Link, mut port: Port) {
        let Some(place) = index(link) else { return };
        let old = &mut self.ports[place];
        let (farewell, mac) = (discovery::farewell(old, &port), old.mac);
        if let (Some(advertiser), Some(former)) = (&mut port.advertiser, old.advertiser.take()) {
            advertiser.succeed(former);
        }
        port.mtu = port.configured_mtu().min(match old.mtu < old.configured_mtu() {
            true => old.mtu,
            false => usize::MAX,
        });
        if !port.described.has_network_of(&old.described) {
            self.outbox.forget(link);
            self.outbox.give_up(old.neighbors.clear());
            *old = port;
        } else {
            port.own.keep(&old.own);
            std::mem::swap(&mut port.neighbors, &mut old.neighbors);
            let released = port.neighbors.renew(&old.neighbors);
            *old = port;
            for (neighbor, held) in released {
                release(link, mac, neighbor, held, &mut self.outbox);
            }
        }
        if let Some(packet) = farewell {
            discovery::advertise(link, mac, &packet, &mut self.outbox);
        }
    }

    /// Tells the hosts that the router ends. Nobody else goes on as this router.
    //= rfc4861#section-6.2.5
    pub fn take_leave(&mut self) {
        for (link, port) in LINKS.into_iter().zip(&self.ports) {
            if let Some(packet) = discovery::last_advertisement(port) {
                discovery::advertise(link, port.mac, &packet, &mut self.outbox);
            }
        }
    }

    /// Counts a packet that `poll_transmit` returned and that could not be sent.
    pub fn note_loss(&mut self, origin: Option<Origin>, reason: DropReason) {
        self.outbox.losses.note(origin, reason);
    }

    /// Excludes packets that did not come in: subtracts the difference between two readings of the
    /// translator's counters.
    pub fn exclude(&mut self, before: &Counters, after: &Counters) {
        self.outbox.losses.exclude(before, after);
    }

    /// Packets lost after the translator let them pass.
    pub fn losses(&self) -> &Losses {
        &self.outbox.losses
    }

    /// Counters besides those of packets.
    pub fn counters(&self) -> Router6Counters {
        self.outbox.counters
    }

    /// A link's neighbours, in order of address.
    pub fn neighbors(&self, link: impl Into<Link>) -> Vec<NeighborInfo6> {
        self.port(link.into()).map(|port| port.neighbors.list()).unwrap_or_default()
    }

    /// The router's own addresses on a link, link-local first.
    pub fn addresses(&self, link: impl Into<Link>) -> Vec<(Ipv6Addr, AddressState)> {
        self.port(link.into()).map(|port| port.own.list().collect()).unwrap_or_default()
    }

    /// Largest packet that leaves by a link, bytes; zero if the link carries no IPv6.
    pub fn mtu(&self, link: impl Into<Link>) -> usize {
        let port = self.port(link.into()).filter(|port| port.described.is_used());
        port.map_or(0, |port| port.mtu)
    }

    /// A link's hardware address.
    pub fn mac(&self, link: impl Into<Link>) -> Mac {
        self.port(link.into()).map(|port| port.mac).unwrap_or_default()
    }

    fn port(&self, link: Link) -> Option<&Port> {
        index(link).map(|place| &self.ports[place])
    }
}

/// True if IPv6 uses the link of a side.
pub fn is_used(settings: &Settings, side: Side) -> bool {
    Described::new(settings, Link::new(side, 0)).is_used()
}

/// Index of a link among the ports; `None`: the link has no IPv6.
fn index(link: Link) -> Option<usize> {
    LINKS.iter().position(|own| *own == link)
}

/// Source of a packet; `None` if the packet is shorter than a header.
fn source(packet: &[u8]) -> Option<Ipv6Addr> {
    Ipv6::new_header_checked(packet).ok().map(|header| Ipv6Addr::from_bits(header.source()))
}

/// Destination of a packet; `None` if the packet is shorter than a header.
fn destination(packet: &[u8]) -> Option<Ipv6Addr> {
    Ipv6::new_header_checked(packet).ok().map(|header| Ipv6Addr::from_bits(header.destination()))
}

/// Makes the error about a packet that cannot be delivered.
fn report(
    outbox: &mut Outbox,
    link: Link,
    packet: &[u8],
    origin: Option<Origin>,
    reason: Undelivered,
) {
    let made = outbox.errors.report(link, packet, origin, reason);
    outbox.counters.errors_suppressed += u64::from(made == Some(false));
}

/// Lets a packet wait for a neighbour, which is asked for if it is not yet.
fn hold(
    now: Timestamp,
    link: Link,
    hop: Ipv6Addr,
    held: WaitingPacket,
    port: &mut Port,
    outbox: &mut Outbox,
) -> Fate {
    let source = source(&held.frame[ETHERNET_LEN..]);
    let asker = Asker { mac: port.mac, source: port.asker_of(source) };
    let origin = held.origin;
    if !port.neighbors.ask(now, hop, &mut |action| asker.act(action, link, outbox)) {
        outbox.counters.neighbors_refused += 1;
        return outbox.lose(origin, DropReason::NoNeighbor);
    }
    if outbox.held >= MOST_HELD_IN_ALL {
        port.neighbors.evict_question(hop, &mut |action| asker.act(action, link, outbox));
    }
    if outbox.held >= MOST_HELD_IN_ALL {
        return outbox.lose(origin, DropReason::NoNeighbor);
    }
    outbox.held += 1;
    if let Some(displaced) = port.neighbors.hold(hop, held) {
        outbox.give_up([displaced]);
    }
    Fate::Kept
}

/// Sends packets that waited for a neighbour.
fn release(
    link: Link,
    source: Mac,
    destination: Mac,
    held: VecDeque<WaitingPacket>,
    outbox: &mut Outbox,
) {
    for held in held {
        outbox.held -= 1;
        outbox.push(link, (source, destination), held.frame, held.origin);
    }
}

/// The router as it asks for neighbours on a link.
struct Asker {
    mac: Mac,
    /// Source of the questions; without one the router waits for its addresses.
    source: Option<Ipv6Addr>,
}

impl Asker {
    /// Does what a table of neighbours wants done.
    fn act(&self, action: Action, link: Link, outbox: &mut Outbox) {
        match action {
            Action::Ask(target, mac) => self.ask(link, target, mac, outbox),
            //= rfc4861#section-7.2.2-failure
            Action::GiveUp(held) => {
                outbox.counters.neighbors_lost += 1;
                for held in &held {
                    let packet = &held.frame[ETHERNET_LEN..];
                    report(outbox, link, packet, held.origin, Undelivered::Address);
                }
                outbox.give_up(held);
            }
            Action::Evict(held) => outbox.give_up(held),
        }
    }

    fn ask(&self, link: Link, target: Ipv6Addr, mac: Option<Mac>, outbox: &mut Outbox) {
        let Some(source) = self.source else { return };
        //= rfc4861#section-7.2.2-option
        let group = nd::solicited_node(target);
        let (to, mac) = mac.map_or((group, nd::group_mac(group)), |mac| (target, mac));
        let question = nd::Solicitation { target, mac: self.mac }.packet(Some(source), to);
        let is_sent = outbox.push_own(link, (self.mac, mac), question.bytes());
        outbox.counters.solicitations_sent += u64::from(is_sent);
    }
}
