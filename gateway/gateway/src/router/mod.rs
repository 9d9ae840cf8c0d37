//! The router around the translator: routes, next hops, and ARP for the hardware addresses.
//!
//! The router is a state machine without a device or a clock: frames and times come in, and frames
//! to send come out of [`Router::poll_transmit`]. There is one link outside and one inside for each
//! realm. On each link the router has an address, routes and neighbours of its own. It answers ARP
//! requests for its own addresses and, outside, for every external address. The translator decides
//! whether a packet may pass, and by which side.
//!
//! A packet that cannot be delivered counts as lost, and an ICMP error tells its sender. The error
//! quotes the packet as the router has it, after translation. [`Router::poll_error`] returns the
//! error; the translator then processes it like a packet that came in by the link that the lost
//! packet would have left by.

mod budget;
mod claims;
mod errors;
mod exit;
mod header;
mod learnt;
mod neighbors;
mod outbox;
mod owned;
mod port;
mod recent;
mod renewal;
mod resolution;
mod routes;
mod runs;
mod sought;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::settings as settings_of_tests;

pub use crate::limits::{FEWEST_NEIGHBORS, MOST_NEIGHBORS};
pub use budget::{MOST_FORMER_PER_SECOND, MOST_NEW_PER_SECOND, SHARE_PER_SECOND};
pub use claims::MOST_VERIFIED_PER_SECOND;
pub use learnt::{LearntRoutes, MOST_LEARNT, networks};
pub use neighbors::{KNOWN, MOST_HELD, NeighborInfo, NeighborState, RETRY, TRIES};
pub use resolution::{MOST_CHECKED_PER_SECOND, NeighborEvent, NeighborReport};

use crate::counters::{Losses, Origin};
use crate::link::{Link, tag};
use crate::settings::Settings;
use errors::{Errors, Unreachable};
pub(crate) use exit::Exit;
use header::ADDRESSES;
use natgate_engine::{Counters, DropReason, Side, Timestamp};
use natgate_io::Frame;
use natgate_wire::Ipv4;
use natgate_wire::arp::{Mac, Operation, Repr};
use natgate_wire::link::ETHERNET_LEN;
use neighbors::WaitingPacket;
use outbox::Outbox;
use port::Port;
pub use renewal::{Renewal, Retired};
use resolution::hold;
use routes::Hop;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Most packets that wait for neighbours in all.
pub const MOST_HELD_IN_ALL: usize = 1024;

/// Most addresses that are announced on a new link. Neighbours find the others by ARP requests.
const MOST_ANNOUNCED: usize = 256;

/// Least MTU of a link of IPv4, bytes (RFC 791 section 3.2).
const LEAST_MTU: usize = 68;

/// Reason why settings do not make a router.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouterError {
    /// A side has no address.
    #[error(
        "{name}.address is missing and device {device:?} has none; give the gateway's own address \
         there and the length of its network's prefix, such as address = \"{example}\""
    )]
    NoAddress {
        /// Name of the side or the realm.
        name: String,
        /// Device of the side.
        device: String,
        /// Example of a correct value.
        example: &'static str,
    },
    /// A next hop cannot be reached.
    #[error(
        "{key} {via} is not a neighbour's address in {name}'s network {network}; the next hop must \
         be directly connected"
    )]
    Unreachable {
        /// Key that names the next hop.
        key: String,
        /// Next hop.
        via: IpAddr,
        /// Name of the side or the realm.
        name: String,
        /// Network of the side, as in the configuration.
        network: String,
    },
}

/// Counters of the router besides those of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterCounters {
    /// ARP frames that came in.
    pub arp_received: u64,
    /// ARP requests that were answered.
    pub arp_answered: u64,
    /// ARP requests sent.
    pub arp_asked: u64,
    /// ARP messages that could not be read, or whose sender is no valid neighbour.
    pub arp_ignored: u64,
    /// ARP messages from other hosts that use one of the gateway's addresses.
    pub arp_conflicts: u64,
    /// Packets to the kernel's own addresses.
    pub left_to_the_kernel: u64,
    /// Learnt routes now.
    pub learnt_routes: u64,
    /// Neighbours that did not answer.
    pub neighbors_lost: u64,
    /// Neighbours that were not asked for or not learnt, because of the limits.
    pub neighbors_refused: u64,
    /// Claims to a neighbour's address that were rejected.
    pub neighbor_conflicts: u64,
    /// Neighbours that got another hardware address.
    pub neighbor_changes: u64,
    /// Packets of hosts without mappings that were refused while the table of subscribers was more
    /// than half full, because no neighbour entry agreed with their source.
    pub sources_refused: u64,
    /// ICMP errors sent about packets that could not be delivered.
    pub errors_made: u64,
    /// ICMP errors that were due and not sent: a limit was reached, a queue was full, or the side
    /// is configured to get none.
    pub errors_suppressed: u64,
}

/// Fate of a packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The packet is a finished Ethernet frame now: send it.
    Ready,
    /// The router has kept a copy. It sends the copy later, or counts it as lost.
    Kept,
    /// The packet cannot be sent; the loss is counted.
    Lost,
}

/// Next hop of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Onward {
    /// No route leads to the destination.
    NoRoute,
    /// The destination is a broadcast address of the link: the packet is not forwarded.
    Everybody,
    /// A neighbour gets the packet.
    Hop {
        /// Address of the neighbour.
        address: Ipv4Addr,
        /// Hardware address of the neighbour; `None` if an ARP request would be needed first.
        mac: Option<Mac>,
        /// True if the packet fits the link, or may be cut into fragments.
        passes: bool,
    },
}

/// A neighbour with a known hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownNeighbor {
    /// The link.
    pub link: Link,
    /// Address on that link.
    pub address: Ipv4Addr,
    /// Hardware address.
    pub mac: Mac,
}

/// The router.
#[derive(Debug)]
pub struct Router {
    /// The inside of realm 0, the outside, the insides of realms 1 and up.
    ports: Vec<Port>,
    learnt: Arc<LearntRoutes>,
    outbox: Outbox,
    /// True if routes may be learnt: routers outside come and go with them.
    learns: bool,
    /// Number of the first router outside to ask for, of those that are not known, and the time up
    /// to which it is the first one.
    sought: (usize, Timestamp),
}

impl Router {
    /// Creates a router. `macs` are the devices' hardware addresses in the order of
    /// [`Settings::devices`].
    ///
    /// # Errors
    /// [`RouterError`] if the settings name no address or an unreachable next hop.
    pub fn new(settings: &Settings, macs: &[Mac]) -> Result<Self, RouterError> {
        let devices = settings.devices();
        let port = |link| {
            let device = &settings.link(link).device;
            let place = devices.iter().position(|name| name == device).unwrap_or_default();
            Port::new(settings, link, macs[if link == Link::OUTSIDE { 1 } else { place }])
        };
        let ports: Result<Vec<Port>, RouterError> = links(settings).map(port).collect();
        let ports = ports?;
        let errors = Errors::new(&settings.engine.limits, least_mtu(&ports));
        let (learnt, outbox) = (Arc::default(), Outbox::new(errors));
        let (learns, sought) = (settings.kernel.learn.is_some(), (0, Timestamp(0)));
        Ok(Self { ports, learnt, outbox, learns, sought })
    }

    /// Finds the next hop of an IP packet that leaves by a link. The frame's bytes are the packet.
    /// After [`Fate::Ready`] they are the Ethernet frame; the header has taken headroom.
    ///
    /// # Panics
    /// If there is no headroom for an Ethernet header with a tag.
    pub fn send(
        &mut self,
        now: Timestamp,
        link: impl Into<Link>,
        frame: &mut Frame<'_>,
        origin: Option<Origin>,
    ) -> Fate {
        let link = link.into();
        match self.exit(link).send(frame) {
            true => Fate::Ready,
            false => self.send_after_search(now, link, frame, origin),
        }
    }

    /// The way out by a link, for several packets.
    #[inline]
    pub(crate) fn exit(&self, link: Link) -> Exit<'_> {
        Exit::new(&self.ports[index(link)], self.learnt.of(index(link)))
    }

    /// Does what [`Router::send`] does, for packets whose neighbour was not used recently.
    #[cold]
    #[inline(never)]
    fn send_after_search(
        &mut self,
        now: Timestamp,
        link: Link,
        frame: &mut Frame<'_>,
        origin: Option<Origin>,
    ) -> Fate {
        let Self { ports, learnt, outbox, .. } = self;
        let (port, learnt) = (&mut ports[index(link)], learnt.of(index(link)));
        let hop = match destination(frame.bytes()).map(|to| port.routes.next_hop(to, learnt)) {
            Some(Hop::Neighbor(hop)) => hop,
            Some(Hop::Everybody) => return outbox.lose(origin, DropReason::NoRoute),
            Some(Hop::Nowhere) | None => {
                outbox.report(link, frame.bytes(), origin, Unreachable::Network);
                return outbox.lose(origin, DropReason::NoRoute);
            }
        };
        let fits = frame.len() <= port.mtu;
        if !fits && !may_be_cut(frame.bytes()) {
            return outbox.lose(origin, DropReason::TooBig);
        }
        match port.neighbors.resolve(hop) {
            Some(mac) if fits => {
                port.template().to(mac).write(frame, port.header_len);
                Fate::Ready
            }
            Some(mac) => {
                outbox.push_packet(link, port, mac, with_header_room(frame.bytes()), origin)
            }
            None => {
                let held = WaitingPacket { frame: with_header_room(frame.bytes()), origin };
                hold(now, link, hop, held, port, outbox)
            }
        }
    }

    /// Finds the next hop of a packet of `len` bytes that leaves by a link; changes nothing.
    pub fn onward(
        &self,
        link: Link,
        destination: Ipv4Addr,
        len: usize,
        dont_fragment: bool,
    ) -> Onward {
        let Some(port) = self.ports.get(index(link)) else { return Onward::NoRoute };
        match port.routes.next_hop(destination, self.learnt.of(index(link))) {
            Hop::Nowhere => Onward::NoRoute,
            Hop::Everybody => Onward::Everybody,
            Hop::Neighbor(address) => Onward::Hop {
                address,
                mac: port.neighbors.known(address),
                passes: len <= port.mtu || !dont_fragment,
            },
        }
    }

    /// Returns true, and counts the packet, if its destination is an address of this machine's
    /// kernel. The kernel has its own copy of the packet.
    pub fn is_for_the_kernel(&mut self, link: Link, packet: &[u8]) -> bool {
        let kernels = &self.ports[index(link)].kernels;
        if kernels.is_empty() {
            return false;
        }
        let is = destination(packet).is_some_and(|to| kernels.contains(&to));
        self.outbox.counters.left_to_the_kernel += u64::from(is);
        is
    }

    /// Time of the next work for [`Router::advance`].
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.ports.iter().filter_map(|port| port.neighbors.next_deadline()).min()
    }

    /// Returns the next frame to send, oldest first: its link, its bytes, and the origin if it was
    /// an input packet.
    pub fn poll_transmit(&mut self) -> Option<(Link, Vec<u8>, Option<Origin>)> {
        let (link, mut frame, origin) = self.outbox.pop()?;
        if let Some(vlan) = self.ports[index(link)].vlan {
            frame.splice(ADDRESSES..ADDRESSES, tag(vlan));
        }
        Some((link, frame, origin))
    }

    /// Returns the next ICMP error about a packet that could not be delivered, and the link that it
    /// counts as coming in by. The error is a whole packet, as a host beyond that link would have
    /// sent it. Translate it, then send it by [`Router::send_error`].
    pub fn poll_error(&mut self) -> Option<(Link, Vec<u8>)> {
        self.outbox.errors.poll()
    }

    /// Sends a translated ICMP error of [`Router::poll_error`]; otherwise like [`Router::send`].
    /// The source becomes the router's own address on the link. The error is not sent if the
    /// limits, or the configuration of that link, forbid it.
    ///
    /// # Panics
    /// If the frame holds no IPv4 packet, or there is no headroom for an Ethernet header.
    //= rfc1812#section-4.3.2.4
    pub fn send_error(
        &mut self,
        now: Timestamp,
        link: impl Into<Link>,
        frame: &mut Frame<'_>,
    ) -> Fate {
        let link = link.into();
        let port = &self.ports[index(link)];
        let mut packet = Ipv4::new_checked(frame.bytes_mut()).expect("an error is a packet");
        if port.silent || !self.outbox.errors.permits(now, requester(link, packet.destination())) {
            self.outbox.counters.errors_suppressed += 1;
            return Fate::Lost;
        }
        self.outbox.counters.errors_made += 1;
        packet.set_source(port.address.to_bits());
        packet.fill_checksum();
        self.send(now, link, frame, None)
    }

    /// Counts an error that is not sent because there is no room for it.
    pub fn suppress_error(&mut self) {
        self.outbox.counters.errors_suppressed += 1;
    }

    /// Restarts a link that was down or has changed: neighbours are asked for again, and the
    /// gateway's addresses are announced (RFC 5227 section 2.3).
    pub fn relink(&mut self, link: impl Into<Link>, mac: Mac) {
        let link = link.into();
        let port = &mut self.ports[index(link)];
        port.set_mac(mac);
        for held in port.neighbors.clear() {
            self.outbox.held -= 1;
            self.outbox.losses.note(held.origin, DropReason::NoNeighbor);
        }
        let addresses: Vec<Ipv4Addr> = port.owned.addresses().take(MOST_ANNOUNCED).collect();
        self.announce(link, addresses);
    }

    /// Announces the hardware address of `addresses` on a link (RFC 5227 section 2.3).
    fn announce(&mut self, link: Link, addresses: Vec<Ipv4Addr>) {
        let mac = self.mac(link);
        for address in addresses {
            let announcement = Repr {
                operation: Operation::Request,
                sender_mac: mac,
                sender: address,
                target_mac: Mac::default(),
                target: address,
            };
            self.outbox.push(link, announcement.frame(Mac::BROADCAST).to_vec(), None);
        }
    }

    /// Sends an IP packet to all hosts of a link.
    pub fn send_to_all(&mut self, link: impl Into<Link>, packet: &[u8]) {
        /// Hardware address of 224.0.0.1 (RFC 1112 section 6.4).
        const ALL_HOSTS: Mac = Mac([0x01, 0x00, 0x5e, 0x00, 0x00, 0x01]);
        let link = link.into();
        let mut frame = with_header_room(packet);
        self.ports[index(link)].write_header(&mut frame, ALL_HOSTS);
        if !self.outbox.is_full() {
            self.outbox.push(link, frame, None);
        }
    }

    /// The gateway's own address on a link.
    pub fn address(&self, link: impl Into<Link>) -> Ipv4Addr {
        self.ports[index(link.into())].address
    }

    /// Replaces the learnt routes; returns the former ones.
    pub fn learn(&mut self, learnt: Arc<LearntRoutes>) -> Arc<LearntRoutes> {
        std::mem::replace(&mut self.learnt, learnt)
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

    /// Largest packet that leaves by a link in one piece, bytes.
    pub fn mtu(&self, link: impl Into<Link>) -> usize {
        self.ports[index(link.into())].mtu
    }

    /// Adapts a link's MTU to its device: the lesser of `carried`, bytes, and the configuration's
    /// value. Returns true if the MTU has changed.
    //= rfc1812#section-3.3.4
    pub fn follow_mtu(&mut self, link: impl Into<Link>, carried: u32) -> bool {
        let port = &mut self.ports[index(link.into())];
        let carried = usize::try_from(carried).unwrap_or(usize::MAX).max(LEAST_MTU);
        let before = std::mem::replace(&mut port.mtu, port.configured_mtu.min(carried));
        let changed = port.mtu != before;
        if changed {
            self.outbox.errors.fit(least_mtu(&self.ports));
        }
        changed
    }

    /// Length of the header of a link's frames, bytes.
    pub(crate) fn header_len(&self, link: Link) -> usize {
        self.ports[index(link)].header_len
    }

    /// True if the device of any link carries less than the configuration requires.
    pub fn is_narrowed(&self) -> bool {
        self.ports.iter().any(|port| port.mtu < port.configured_mtu)
    }

    /// True if some packets that come by a link are for this machine's kernel.
    pub fn has_kernel(&self, link: Link) -> bool {
        !self.ports[index(link)].kernels.is_empty()
    }

    /// A link's hardware address.
    pub fn mac(&self, link: impl Into<Link>) -> Mac {
        self.ports[index(link.into())].mac
    }

    /// Packets lost after the translator let them pass.
    pub fn losses(&self) -> &Losses {
        &self.outbox.losses
    }

    /// Losses, to be corrected.
    pub(crate) fn losses_mut(&mut self) -> &mut Losses {
        &mut self.outbox.losses
    }

    /// Counters besides those of packets.
    pub fn counters(&self) -> RouterCounters {
        RouterCounters { learnt_routes: self.learnt.len() as u64, ..self.outbox.counters }
    }

    /// The learnt routes in force.
    pub fn learnt(&self) -> Arc<LearntRoutes> {
        Arc::clone(&self.learnt)
    }

    /// Calls `tell` with each neighbour of a link, in any order.
    pub fn tell_neighbors(&self, link: impl Into<Link>, tell: impl FnMut(NeighborInfo)) {
        self.ports[index(link.into())].neighbors.each().for_each(tell);
    }

    /// A link's neighbours, in order of address.
    pub fn neighbors(&self, link: impl Into<Link>) -> Vec<NeighborInfo> {
        self.ports[index(link.into())].neighbors.list()
    }

    /// Neighbours with a known hardware address, outside and in the network of realm 0. Other
    /// realms are left out: the reader may number them differently.
    pub(crate) fn acquaintances(&self) -> Vec<KnownNeighbor> {
        let links = [Link::OUTSIDE, Link::inside(0)].into_iter();
        let of = |link: Link| {
            let known = self.neighbors(link).into_iter();
            known.filter_map(move |one| {
                Some(KnownNeighbor { link, address: one.address, mac: one.mac? })
            })
        };
        links.flat_map(of).collect()
    }

    /// Adds a neighbour with its hardware address, as if an answer had come.
    pub(crate) fn introduce(&mut self, now: Timestamp, link: Link, address: Ipv4Addr, mac: Mac) {
        if let Some(port) = self.ports.get_mut(index(link)) {
            port.neighbors.introduce(now, address, mac);
        }
    }
}

/// Destination of a packet; `None` if the packet is shorter than a header.
fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    Some(Ipv4Addr::from(octets))
}

/// True if a packet may be cut into fragments.
fn may_be_cut(packet: &[u8]) -> bool {
    Ipv4::new_checked(packet).is_ok_and(|packet| !packet.dont_fragment())
}

/// Copies a packet, with room for an Ethernet header in front.
fn with_header_room(packet: &[u8]) -> Vec<u8> {
    [&[0; ETHERNET_LEN], packet].concat()
}

/// Key of an error's receiver, for the limits.
fn requester(link: Link, address: u32) -> u32 {
    address.wrapping_add(link.realm.into())
}

/// All links of some settings, in the order of the ports.
fn links(settings: &Settings) -> impl Iterator<Item = Link> + use<> {
    let further = (1..=settings.realms.len() as u16).map(Link::inside);
    [Link::inside(0), Link::OUTSIDE].into_iter().chain(further)
}

/// Largest packet that every link takes, bytes.
fn least_mtu(ports: &[Port]) -> usize {
    ports.iter().map(|port| port.mtu).min().unwrap_or_default()
}

/// Index of a link among the ports.
fn index(link: Link) -> usize {
    match (link.side, link.realm) {
        (Side::Inside, 0) => 0,
        (Side::Outside, _) => 1,
        (Side::Inside, realm) => usize::from(realm) + 1,
    }
}

/// Link at an index among the ports.
fn link_at(place: usize) -> Link {
    match place {
        0 => Link::inside(0),
        1 => Link::OUTSIDE,
        place => Link::inside(place as u16 - 1),
    }
}

/// A link's name in configuration and messages.
pub(crate) fn name(settings: &Settings, link: Link) -> String {
    match (link.side, usize::from(link.realm).checked_sub(1)) {
        (Side::Outside, _) => "outside".into(),
        (Side::Inside, None) => "inside".into(),
        (Side::Inside, Some(place)) => {
            format!("realm[{place}] ({:?})", settings.realms[place].name)
        }
    }
}
