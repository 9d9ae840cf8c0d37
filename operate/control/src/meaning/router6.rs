//! The meaning of what the router for IPv6 needs: routes, static neighbors, router advertisements.

use super::plural;
use super::text::{list, side_name};
use crate::config::show_duration;
use natgate_gateway::{AdvertiseSettings, Route6, Settings, StaticNeighbor6};
use serde::Serialize;
use std::fmt::{self, Formatter};

/// Most routes and neighbors that the text lists.
const MOST: usize = 100;

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Route6Meaning {
    /// Destinations.
    pub prefix: String,
    /// Next hop.
    pub via: String,
    /// `inside` or `outside`.
    pub side: &'static str,
}

/// A static neighbor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbor6Meaning {
    /// Address.
    pub address: String,
    /// Hardware address.
    pub mac: String,
    /// `inside` or `outside`.
    pub side: &'static str,
}

/// Router advertisements inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdvertiseMeaning {
    /// Longest time between two advertisements, seconds.
    pub interval_seconds: u64,
    /// Time for which hosts use the gateway as a default router, seconds.
    pub lifetime_seconds: u64,
    /// Time for which addresses of the prefix are used for new connections, seconds.
    pub preferred_lifetime_seconds: u64,
    /// Time for which addresses of the prefix are valid, seconds.
    pub valid_lifetime_seconds: u64,
    /// True if hosts form addresses from the prefix.
    pub autonomous: bool,
    /// True if hosts get addresses by DHCPv6.
    pub managed: bool,
    /// True if hosts get other parameters by DHCPv6.
    pub other: bool,
    /// Prefix of NAT64 that hosts learn.
    pub pref64: Option<String>,
    /// Servers of names.
    pub dns: Vec<String>,
    #[serde(skip)]
    settings: AdvertiseSettings,
}

/// Routes, static neighbors and advertisements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Router6Meaning {
    /// Static routes, in the file's order.
    pub routes: Vec<Route6Meaning>,
    /// Static neighbors, in the file's order.
    pub neighbors: Vec<Neighbor6Meaning>,
    /// Router advertisements inside.
    pub advertise: Option<AdvertiseMeaning>,
}

impl Router6Meaning {
    pub(super) fn of(settings: &Settings) -> Self {
        let route = |Route6 { prefix, via, side }: &Route6| Route6Meaning {
            prefix: prefix.to_string(),
            via: via.to_string(),
            side: side_name(*side),
        };
        let neighbor = |StaticNeighbor6 { side, address, mac }: &StaticNeighbor6| {
            let (address, mac) = (address.to_string(), mac.to_string());
            Neighbor6Meaning { address, mac, side: side_name(*side) }
        };
        let own = &settings.router6;
        Self {
            routes: own.routes.iter().map(route).collect(),
            neighbors: own.neighbors.iter().map(neighbor).collect(),
            advertise: own.advertise.as_ref().map(AdvertiseMeaning::of),
        }
    }

    /// Writes routes, neighbors and advertisements.
    pub(super) fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for Route6Meaning { prefix, via, side } in self.routes.iter().take(MOST) {
            writeln!(f, "  route: {prefix} via {via}, {side}")?;
        }
        more(f, self.routes.len(), ("route", "routes"))?;
        for Neighbor6Meaning { address, mac, side } in self.neighbors.iter().take(MOST) {
            writeln!(f, "  neighbor: {address} has {mac}, {side}")?;
        }
        more(f, self.neighbors.len(), ("neighbor", "neighbors"))?;
        match &self.advertise {
            Some(advertise) => advertise.text(f),
            None => Ok(()),
        }
    }
}

fn more(f: &mut Formatter<'_>, all: usize, (one, many): (&str, &str)) -> fmt::Result {
    match all.saturating_sub(MOST) {
        0 => Ok(()),
        more => writeln!(f, "  and {} more", plural(more as u64, one, many)),
    }
}

impl AdvertiseMeaning {
    fn of(settings: &AdvertiseSettings) -> Self {
        Self {
            interval_seconds: settings.interval.as_secs(),
            lifetime_seconds: settings.lifetime.as_secs(),
            preferred_lifetime_seconds: settings.preferred_lifetime.as_secs(),
            valid_lifetime_seconds: settings.valid_lifetime.as_secs(),
            autonomous: settings.autonomous,
            managed: settings.managed,
            other: settings.other,
            pref64: settings.pref64.map(|prefix| prefix.to_string()),
            dns: settings.dns.iter().map(ToString::to_string).collect(),
            settings: settings.clone(),
        }
    }

    fn text(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let own = &self.settings;
        let interval = show_duration(own.interval);
        write!(f, "  router advertisements inside: at least every {interval}, ")?;
        match own.lifetime.is_zero() {
            true => writeln!(f, "no default router")?,
            false => writeln!(f, "default router for {}", show_duration(own.lifetime))?,
        }
        let formed = if own.autonomous { "hosts form addresses" } else { "for hosts on the link" };
        let (preferred, valid) = (own.preferred_lifetime, own.valid_lifetime);
        let (preferred, valid) = (show_duration(preferred), show_duration(valid));
        writeln!(f, "    prefix: {formed}, preferred for {preferred}, valid for {valid}")?;
        match (own.managed, own.other) {
            (true, _) => writeln!(f, "    addresses by DHCPv6")?,
            (false, true) => writeln!(f, "    other parameters by DHCPv6")?,
            (false, false) => {}
        }
        if let Some(prefix) = &self.pref64 {
            writeln!(f, "    NAT64 prefix: {prefix}")?;
        }
        if !self.dns.is_empty() {
            writeln!(f, "    servers of names: {}", list(&own.dns, |server| server.to_string()))?;
        }
        Ok(())
    }
}
