//! One link of the router: its addresses, its routes and its neighbors, as the settings have them.

use super::header::HeaderTemplate;
use super::neighbors::Neighbors;
use super::owned::OwnedAddresses;
use super::routes::Routes;
use super::{RouterError, name};
use crate::link::Link;
use crate::settings::Settings;
use natgate_engine::{Prefix, Side};
use natgate_wire::arp::{self, Mac};
use natgate_wire::link::{ETHERNET_LEN, ethertype};
use std::net::Ipv4Addr;

/// One link.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) mac: Mac,
    /// VLAN tag of the link's frames.
    pub(super) vlan: Option<u16>,
    /// Length of a frame's header, bytes.
    pub(super) header_len: usize,
    pub(super) address: Ipv4Addr,
    /// Largest packet that leaves in one piece, bytes: the lesser of the configuration's value and
    /// the device's.
    pub(super) mtu: usize,
    pub(super) configured_mtu: usize,
    /// True if the gateway sends no ICMP errors of its own there.
    pub(super) silent: bool,
    pub(super) owned: OwnedAddresses,
    /// Addresses of the kernel on this link.
    pub(super) kernels: Vec<Ipv4Addr>,
    pub(super) routes: Routes,
    pub(super) neighbors: Neighbors,
}

impl Port {
    /// A placeholder for the link of a missing realm: no route leads there.
    pub(super) fn nowhere() -> Self {
        Self {
            mac: Mac::default(),
            vlan: None,
            header_len: ETHERNET_LEN,
            address: Ipv4Addr::UNSPECIFIED,
            mtu: usize::MAX,
            configured_mtu: usize::MAX,
            silent: true,
            owned: OwnedAddresses::none(),
            kernels: Vec::new(),
            routes: Routes::new(Prefix::new(Ipv4Addr::BROADCAST, 32)),
            neighbors: Neighbors::default(),
        }
    }

    /// A link with IPv6 alone: it has no address and no route of IPv4, and answers no ARP request.
    fn without_ipv4(settings: &Settings, link: Link, mac: Mac) -> Self {
        let mtu = usize::from(settings.link(link).mtu);
        let mut port = Self { mtu, configured_mtu: mtu, ..Self::nowhere() };
        port.set_mac(mac);
        port
    }

    /// Creates the link of some settings, with its hardware address.
    pub(super) fn new(settings: &Settings, link: Link, mac: Mac) -> Result<Self, RouterError> {
        if link.side == Side::Inside && !settings.engine.has_realm(link.realm) {
            return Ok(Self::nowhere());
        }
        let (side, own) = (link.side, settings.link(link));
        let name = name(settings, link);
        if own.address.is_none() && settings.has_ipv6_only(link) {
            return Ok(Self::without_ipv4(settings, link, mac));
        }
        let Some((address, prefix_len)) = own.address else {
            let example = if side == Side::Inside { "10.0.0.1/8" } else { "192.0.2.1/24" };
            let device = own.device.clone();
            return Err(RouterError::NoAddress { name, device, example });
        };
        let network = Prefix::new(address, prefix_len);
        let mut routes = Routes::new(network);
        let mut add = |key: String, prefix, via| {
            let network = format!("{}/{}", Ipv4Addr::from_bits(network.first()), network.len());
            let reachable = routes.add(prefix, via);
            reachable.then_some(()).ok_or(RouterError::Unreachable {
                key,
                via: via.into(),
                name: name.clone(),
                network,
            })
        };
        let realm = usize::from(link.realm).checked_sub(1).map(|place| &settings.realms[place]);
        let all = realm.map_or(&settings.routes, |realm| &realm.routes);
        for (number, route) in all.iter().enumerate().filter(|(_, r)| r.side == side) {
            add(format!("route[{number}].via"), route.prefix, route.via)?;
        }
        if let Some(gateway) = own.gateway {
            add(format!("{name}.gateway"), Prefix::new(Ipv4Addr::UNSPECIFIED, 0), gateway)?;
        }
        routes.settle();
        let own_neighbors = realm.map_or(&settings.neighbors, |realm| &realm.neighbors);
        let fixed = own_neighbors.iter().filter(|one| one.side == side);
        let fixed = fixed.map(|one| (one.address, one.mac)).collect();
        let neighbors = Neighbors::new(settings.most_neighbors(prefix_len), fixed);
        let owned = OwnedAddresses::new(own, (side == Side::Outside).then_some(&settings.engine));
        let silent = settings.engine_link(link).silent;
        let (mtu, vlan) = (usize::from(own.mtu), realm.and_then(|realm| realm.vlan));
        let kernels = match link.realm {
            0 => settings.kernel.management(side).to_vec(),
            _ => Vec::new(),
        };
        let configured_mtu = mtu;
        let mut port = Self {
            mac,
            vlan,
            header_len: ETHERNET_LEN,
            address,
            mtu,
            configured_mtu,
            silent,
            owned,
            kernels,
            routes,
            neighbors,
        };
        port.set_mac(mac);
        Ok(port)
    }

    /// Sets the link's hardware address.
    pub(super) fn set_mac(&mut self, mac: Mac) {
        self.mac = mac;
        let template = self.template();
        self.header_len = template.len();
        self.neighbors.set_template(template);
    }

    /// Own part of the headers of the link's frames.
    pub(super) fn template(&self) -> HeaderTemplate {
        HeaderTemplate::new(self.mac, self.vlan)
    }

    /// Fills in the Ethernet header of an IP packet.
    pub(super) fn write_header(&self, frame: &mut [u8], destination: Mac) {
        if let Some(header) = frame.first_chunk_mut() {
            arp::write_ethernet(header, destination, self.mac, ethertype::IPV4);
        }
    }
}
