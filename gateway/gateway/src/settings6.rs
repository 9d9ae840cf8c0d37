//! Settings of the router for IPv6: static routes, static neighbours, router advertisements.
//!
//! Addresses and next hops of the sides are in [`natgate_ipv6::Settings`].

use natgate_engine::Side;
use natgate_ipv6::{Pref64, Prefix6};
use natgate_wire::arp::Mac;
use std::net::Ipv6Addr;
use std::time::Duration;

/// Settings of the router for IPv6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings6 {
    /// Static routes; the longest prefix wins. For equal prefixes, connected networks come first.
    pub routes: Vec<Route6>,
    /// Static neighbours.
    pub neighbors: Vec<StaticNeighbor6>,
    /// Router advertisements inside; `None`: the gateway sends none.
    pub advertise: Option<AdvertiseSettings>,
}

/// A static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route6 {
    /// Destinations.
    pub prefix: Prefix6,
    /// Next hop, an address that is directly connected. It may be link-local.
    pub via: Ipv6Addr,
    /// Side of the next hop.
    pub side: Side,
}

/// A neighbour with a configured hardware address: the gateway never asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbor6 {
    /// Side of the neighbour.
    pub side: Side,
    /// Address, directly connected. It may be link-local.
    pub address: Ipv6Addr,
    /// Hardware address.
    pub mac: Mac,
}

/// Router advertisements on the inside link, RFC 4861 section 6.2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvertiseSettings {
    /// Longest time between two advertisements to all hosts.
    pub interval: Duration,
    /// Time for which hosts use the gateway as a default router; zero: they do not.
    pub lifetime: Duration,
    /// Time for which hosts use addresses of the link's prefix for new connections.
    pub preferred_lifetime: Duration,
    /// Time for which addresses of the link's prefix are valid.
    pub valid_lifetime: Duration,
    /// True if hosts form addresses from the link's prefix (RFC 4862).
    pub autonomous: bool,
    /// True if hosts get addresses by DHCPv6.
    pub managed: bool,
    /// True if hosts get other parameters by DHCPv6.
    pub other: bool,
    /// Prefix of NAT64 that hosts learn (RFC 8781).
    pub pref64: Option<Pref64>,
    /// Servers of names that hosts learn (RFC 8106).
    pub dns: Vec<Ipv6Addr>,
}

impl Default for AdvertiseSettings {
    /// The defaults of RFC 4861 section 6.2.1.
    fn default() -> Self {
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60);
        Self {
            interval: Duration::from_secs(600),
            lifetime: Duration::from_secs(1800),
            preferred_lifetime: days(7),
            valid_lifetime: days(30),
            autonomous: true,
            managed: false,
            other: false,
            pref64: None,
            dns: Vec::new(),
        }
    }
}
