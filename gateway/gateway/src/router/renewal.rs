//! Changes of a router at work: links, routes, external addresses, and the rate of ICMP errors.

use super::owned::OwnedAddresses;
use super::port::Port;
use super::{Link, MOST_ANNOUNCED, Router, RouterError, index, least_mtu, link_at, links};
use crate::settings::{Route, Settings, SideSettings, StaticNeighbor};
use natgate_engine::{DropReason, Side};
use natgate_wire::arp::Mac;
use std::net::Ipv4Addr;

/// Change of one link.
#[derive(Debug)]
enum Change {
    /// The link stays as it is.
    Same,
    /// The network stays the same: its neighbours stay known.
    Renewed(Port),
    /// The network is another, or gone.
    Other(Port),
}

/// Changes of a router, prepared apart from it.
#[derive(Debug)]
pub struct Renewal {
    /// Changes by the index of the link.
    changes: Vec<Change>,
    /// New external addresses, at most [`MOST_ANNOUNCED`].
    new: Vec<Ipv4Addr>,
    errors_per_second: u32,
}

/// Former links, to be dropped in another thread.
#[derive(Debug)]
pub struct Retired {
    _ports: Vec<Port>,
}

impl Renewal {
    /// Prepares the change from the settings in force to new ones, whose realms have the same
    /// numbers.
    ///
    /// # Errors
    /// [`RouterError`] if the new settings name no address or an unreachable next hop.
    pub fn new(in_force: &Settings, new: &Settings) -> Result<Self, RouterError> {
        let change = |link: Link| {
            if link.realm != 0 && !new.engine.has_realm(link.realm) {
                return Ok(Change::Other(Port::nowhere()));
            }
            let (before, after) = (described(in_force, link), described(new, link));
            let same_network = match (&before, &after) {
                (Some(before), Some(after)) => network(before) == network(after),
                _ => false,
            };
            Ok(if same_network && before == after && link != Link::OUTSIDE {
                Change::Same
            } else {
                let port = Port::new(new, link, Mac::default())?;
                if same_network { Change::Renewed(port) } else { Change::Other(port) }
            })
        };
        let changes: Result<Vec<Change>, RouterError> = links(new).map(change).collect();
        let owned =
            |settings: &Settings| OwnedAddresses::new(&settings.outside, Some(&settings.engine));
        let (before, owned) = (owned(in_force), owned(new));
        let new_addresses = owned.addresses().filter(|address| !before.contains(*address));
        Ok(Self {
            changes: changes?,
            new: new_addresses.take(MOST_ANNOUNCED).collect(),
            errors_per_second: new.engine.limits.icmp_errors_per_second,
        })
    }
}

/// Everything that describes a link.
#[derive(PartialEq)]
struct Described<'s> {
    /// Settings of the side.
    side: &'s SideSettings,
    /// True if the link gets no ICMP errors.
    silent: bool,
    vlan: Option<u16>,
    routes: Vec<Route>,
    neighbors: Vec<StaticNeighbor>,
    most_neighbors: Option<usize>,
}

/// Describes a link, if it exists.
fn described(settings: &Settings, link: Link) -> Option<Described<'_>> {
    let (vlan, routes, neighbors) = match usize::from(link.realm).checked_sub(1) {
        None => (None, &settings.routes, &settings.neighbors),
        Some(place) => {
            let realm = settings.realms.get(place)?;
            if !settings.engine.has_realm(link.realm) {
                return None;
            }
            (realm.vlan, &realm.routes, &realm.neighbors)
        }
    };
    Some(Described {
        side: settings.link(link),
        silent: settings.engine_link(link).silent,
        vlan,
        routes: routes.iter().filter(|route| route.side == link.side).copied().collect(),
        neighbors: neighbors.iter().filter(|one| one.side == link.side).copied().collect(),
        most_neighbors: settings.neighbors_limit,
    })
}

/// Identity of a link's network. While it is the same, neighbours stay known.
fn network<'s>(link: &Described<'s>) -> (&'s str, Option<(Ipv4Addr, u8)>, Option<u16>) {
    (&link.side.device, link.side.address, link.vlan)
}

impl Router {
    /// Puts the change in force: links, external addresses and the rate of errors. `mac` gives the
    /// hardware address of a link. New addresses are announced.
    pub fn renew(&mut self, renewal: Renewal, mac: impl Fn(Link) -> Mac) -> Retired {
        let Renewal { changes, new, errors_per_second } = renewal;
        let mut retired: Vec<Port> =
            self.ports.drain(changes.len().min(self.ports.len())..).collect();
        for held in retired.iter_mut().flat_map(|port| port.neighbors.clear()) {
            self.outbox.held -= 1;
            self.outbox.losses.note(held.origin, DropReason::NoNeighbor);
        }
        for (place, change) in changes.into_iter().enumerate() {
            let link = link_at(place);
            match change {
                Change::Same => {}
                Change::Renewed(mut port) => {
                    let old = &mut self.ports[place];
                    std::mem::swap(&mut port.neighbors, &mut old.neighbors);
                    port.set_mac(old.mac);
                    let released = port.neighbors.renew(&old.neighbors);
                    retired.push(std::mem::replace(old, port));
                    for (hardware, held) in released {
                        self.release(link, hardware, held);
                    }
                }
                Change::Other(mut port) => {
                    port.set_mac(mac(link));
                    self.replace(link, port, &mut retired);
                }
            }
        }
        self.announce(Side::Outside.into(), new);
        self.outbox.errors.renew(errors_per_second, least_mtu(&self.ports));
        Retired { _ports: retired }
    }

    /// Replaces a link, or adds the next one.
    fn replace(&mut self, link: Link, port: Port, retired: &mut Vec<Port>) {
        let addresses: Vec<Ipv4Addr> = port.owned.addresses().take(MOST_ANNOUNCED).collect();
        self.outbox.forget(link);
        match self.ports.get_mut(index(link)) {
            Some(place) => {
                let mut old = std::mem::replace(place, port);
                for held in old.neighbors.clear() {
                    self.outbox.held -= 1;
                    self.outbox.losses.note(held.origin, DropReason::NoNeighbor);
                }
                retired.push(old);
            }
            None => self.ports.push(port),
        }
        self.announce(link, addresses);
    }
}
