//! One link of the router: its addresses, its routes and its neighbours, as the settings have them.

use super::RouterError;
use super::advertise::Advertiser;
use super::neighbors::Neighbors;
use super::own::OwnAddresses;
use super::routes::Routes;
use crate::limits::MOST_NEIGHBORS;
use crate::link::Link;
use crate::pace::Rate;
use crate::settings::Settings;
use crate::settings6::{AdvertiseSettings, Route6, StaticNeighbor6};
use natgate_engine::Side;
use natgate_ipv6::{Prefix6, Side6};
use natgate_wire::arp::Mac;
use natgate_wire::{ipv6, nd};
use std::net::Ipv6Addr;

/// All that describes a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    device: String,
    side: Side6,
    routes: Vec<Route6>,
    neighbors: Vec<StaticNeighbor6>,
    advertise: Option<AdvertiseSettings>,
    limit: usize,
}

impl Described {
    pub(super) fn new(settings: &Settings, link: Link) -> Self {
        let own = &settings.router6;
        Self {
            device: settings.link(link).device.clone(),
            side: *side(settings, link),
            routes: own.routes.iter().filter(|one| one.side == link.side).copied().collect(),
            neighbors: own.neighbors.iter().filter(|one| one.side == link.side).copied().collect(),
            advertise: own.advertise.clone().filter(|_| link.side == Side::Inside),
            limit: settings.neighbors_limit.unwrap_or(MOST_NEIGHBORS),
        }
    }

    /// True if IPv6 uses the link.
    pub(super) fn is_used(&self) -> bool {
        self.side.address.is_some()
            || self.side.gateway.is_some()
            || !self.routes.is_empty()
            || !self.neighbors.is_empty()
            || self.advertise.is_some()
    }

    /// True if another description is about the same network: its neighbours stay known.
    pub(super) fn has_network_of(&self, other: &Self) -> bool {
        self.device == other.device && self.network() == other.network()
    }

    fn network(&self) -> Option<Prefix6> {
        self.side.address.map(|(address, len)| {
            let network = Prefix6 { address, len };
            Prefix6 { address: network.first(), len }
        })
    }
}

/// One link.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) described: Described,
    pub(super) mac: Mac,
    /// Largest packet that leaves, bytes: the lesser of the configuration's value and the device's.
    pub(super) mtu: usize,
    pub(super) own: OwnAddresses,
    pub(super) routes: Routes,
    pub(super) neighbors: Neighbors,
    pub(super) advertiser: Option<Advertiser>,
    /// Rate of reports of groups.
    pub(super) reports: Rate,
}

impl Port {
    /// Creates the link of some settings, with its hardware address.
    pub(super) fn new(settings: &Settings, link: Link, mac: Mac) -> Result<Self, RouterError> {
        let described = Described::new(settings, link);
        let network = described.network();
        let mut routes = Routes::new(network);
        let name = if link.side == Side::Inside { "inside" } else { "outside" };
        let mut add = |key: String, prefix, via: Ipv6Addr| {
            let reachable = routes.add(prefix, via);
            reachable.then_some(()).ok_or_else(|| RouterError::Unreachable {
                key,
                via: via.into(),
                name: name.into(),
                network: network.map_or("fe80::/10".into(), |network| network.to_string()),
            })
        };
        for route in &described.routes {
            add(format!("route {}: via", route.prefix), route.prefix, route.via)?;
        }
        if let Some(gateway) = described.side.gateway {
            let all = Prefix6 { address: Ipv6Addr::UNSPECIFIED, len: 0 };
            add(format!("{name}.gateway6"), all, gateway)?;
        }
        let fixed = described.neighbors.iter().map(|one| (one.address, one.mac)).collect();
        let neighbors = Neighbors::new(described.limit, fixed);
        let mtu = usize::from(described.side.mtu).max(ipv6::MIN_MTU);
        let mut port = Self {
            described,
            mac,
            mtu,
            own: OwnAddresses::default(),
            routes,
            neighbors,
            advertiser: None,
            reports: Rate::default(),
        };
        port.set_mac(mac);
        Ok(port)
    }

    /// Sets the link's hardware address. All addresses are tentative again.
    pub(super) fn set_mac(&mut self, mac: Mac) {
        self.mac = mac;
        let link_local = self.described.is_used().then(|| nd::link_local(mac));
        let global = self.described.side.address.map(|(address, _)| address);
        self.own = OwnAddresses::new(link_local.into_iter().chain(global));
        let (advertise, network) = (self.described.advertise.clone(), self.described.network());
        self.advertiser = advertise.map(|settings| Advertiser::new(settings, network, mac));
    }

    /// Groups that the router listens to, besides that of all nodes.
    //= rfc4861#section-6.2.2-group
    //= rfc4861#section-7.2.1
    pub(super) fn groups(&self) -> Vec<Ipv6Addr> {
        let mut groups = vec![nd::ALL_ROUTERS];
        groups.extend(self.own.list().map(|(address, _)| nd::solicited_node(address)));
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// True if the gateway sends no ICMPv6 errors of its own there.
    pub(super) fn is_silent(&self) -> bool {
        !self.described.side.icmp_errors
    }

    /// Largest packet that the configuration lets leave, bytes.
    pub(super) fn configured_mtu(&self) -> usize {
        usize::from(self.described.side.mtu).max(ipv6::MIN_MTU)
    }

    /// Source of the questions for a neighbour that a packet needs: the packet's, if that is the
    /// router's own.
    //= rfc4861#section-7.2.2-source
    pub(super) fn asker_of(&self, source: Option<Ipv6Addr>) -> Option<Ipv6Addr> {
        source.filter(|source| self.own.is_assigned(*source)).or_else(|| self.asker())
    }

    /// Source of questions for neighbours, if the router has an address on the link.
    pub(super) fn asker(&self) -> Option<Ipv6Addr> {
        self.own.assigned(true).or_else(|| self.own.assigned(false))
    }
}

/// Settings of the side of a link.
pub(super) fn side(settings: &Settings, link: Link) -> &Side6 {
    match link.side {
        Side::Inside => &settings.ipv6.inside,
        Side::Outside => &settings.ipv6.outside,
    }
}
