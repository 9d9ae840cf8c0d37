//! Places of the suite's hosts around a gateway with a given configuration.
//!
//! In simulated time no device and no network exists. So this module fills in the missing parts of
//! a configuration, such as the gateway's own addresses. It places hosts where the configuration
//! permits them. Inside, they are subscribers outside of pools and without static mappings.
//! Outside, they have any address except the gateway's own networks and pools.

use crate::setup::{Families, Hosts, Setup, Siit, embed};
use natgate_engine::{Config, Match, Prefix, RuleAction, Side, SideConfig};
use natgate_gateway::ipv6::{Pref64, Prefix6};
use natgate_gateway::{Settings, SideSettings};
use std::net::Ipv4Addr;

/// Number of hosts on a side.
const COUNT: u32 = 200;

/// Networks for documentation and benchmarks (RFC 5737, RFC 2544), for the outside.
const OUTSIDE: [[u8; 4]; 5] =
    [[198, 51, 100, 0], [203, 0, 113, 0], [192, 0, 2, 0], [198, 18, 5, 0], [198, 19, 7, 0]];

/// Error: there is no place for the hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no place for {COUNT} hosts was found {side}; {advice}")]
pub struct NoPlace {
    side: &'static str,
    advice: &'static str,
}

/// Fills in missing settings, and places hosts around the gateway.
///
/// # Errors
/// [`NoPlace`] if the networks are too small for the hosts.
pub fn surround(settings: &mut Settings) -> Result<Setup, NoPlace> {
    let inside = NoPlace {
        side: "inside",
        advice: "give inside.address a prefix of at most 24 bits, whose addresses are subscribers, \
                 201 of them in a row that no [[static]] names",
    };
    let outside = NoPlace {
        side: "outside",
        advice: "give outside.address a prefix of at most 24 bits, or set outside.gateway",
    };
    let (inside_gateway, inside_hosts) = place_inside(settings).ok_or(inside)?;
    let (outside_gateway, outside_hosts) = place_outside(settings).ok_or(outside)?;
    let nobody = outside_gateway.is_none().then(|| next(outside_hosts.last, 1));
    let untranslated = untranslated(&settings.engine);
    let families = families(settings, inside_hosts);
    Ok(Setup {
        inside_gateway,
        inside_hosts,
        outside_hosts,
        outside_gateway,
        nobody,
        untranslated,
        families,
    })
}

/// IPv6 on the inside, if the configuration translates between the families with prefixes of 96
/// bits.
fn families(settings: &Settings, hosts: Hosts) -> Option<Families> {
    let ipv6 = &settings.ipv6;
    let (gateway, len) = ipv6.inside.address.filter(|(_, len)| *len <= 96)?;
    let prefix = Prefix6 { address: gateway, len }.first();
    let first = |prefixes: &[Pref64]| {
        let mut prefixes = prefixes.iter().map(|one| one.prefix());
        prefixes.find(|one| one.len == 96).map(Prefix6::first)
    };
    let nat64 = ipv6.nat64.as_ref().and_then(|nat64| first(&nat64.prefixes));
    let siit = ipv6.siit.as_ref().and_then(|siit| {
        let ends = [hosts.first, hosts.last].map(|host| embed(prefix, host));
        let mut maps = siit.maps.iter().filter(|map| map.ipv6.len == 96 + map.ipv4.len());
        let map = maps.find(|map| ends.iter().all(|end| map.ipv6.contains(*end)))?;
        let ipv4 = Ipv4Addr::from_bits(map.ipv4.first());
        Some(Siit { prefix: first(&siit.prefixes)?, ipv6: map.ipv6.first(), ipv4 })
    });
    let is_any = nat64.is_some() || siit.is_some();
    is_any.then_some(Families { gateway, prefix, nat64, siit })
}

fn place_inside(settings: &mut Settings) -> Option<(Ipv4Addr, Hosts)> {
    let (address, len) = match settings.inside.address {
        Some(known) => known,
        None => {
            let prefix = settings.engine.subscribers.iter().find(|prefix| prefix.len() <= 24)?;
            let address = (next(Ipv4Addr::from_bits(prefix.first()), 1), prefix.len());
            give(&mut settings.inside, &mut settings.engine.inside, address);
            address
        }
    };
    let config = &settings.engine;
    let mapped = |host: Ipv4Addr| config.statics.iter().any(|mapping| mapping.internal.0 == host);
    let subscriber =
        |host: Ipv4Addr| config.subscribers.iter().any(|it| it.contains(host.to_bits()));
    let may = |host| host != address && subscriber(host) && !mapped(host) && !taken(config, host);
    Some((address, in_network(Prefix::new(address, len), &may)?))
}

fn place_outside(settings: &mut Settings) -> Option<(Option<Ipv4Addr>, Hosts)> {
    if settings.outside.address.is_none() {
        // A named next hop determines the gateway's network.
        let routes = settings.routes.iter().filter(|route| route.side == Side::Outside);
        let hop = settings.outside.gateway.or(routes.map(|route| route.via).next());
        let network = match hop {
            Some(hop) => Ipv4Addr::from_bits(Prefix::new(hop, 24).first()),
            None => free_network(settings)?,
        };
        let hop = hop.unwrap_or(next(network, 254));
        let mut hosts = (1..255).map(|number| next(network, number));
        let own = hosts.find(|host| *host != hop && !taken(&settings.engine, *host))?;
        give(&mut settings.outside, &mut settings.engine.outside, (own, 24));
        settings.outside.gateway = Some(hop);
    }
    let (address, len) = settings.outside.address?;
    let network = Prefix::new(address, len);
    match settings.outside.gateway {
        Some(gateway) => {
            let first = next(free_network(settings)?, 16);
            Some((Some(gateway), Hosts { first, last: next(first, COUNT - 1) }))
        }
        None => {
            let may = |host| host != address && !taken(&settings.engine, host);
            Some((None, in_network(network, &may)?))
        }
    }
}

/// A network of 256 addresses that the configuration does not use.
fn free_network(settings: &Settings) -> Option<Ipv4Addr> {
    let config = &settings.engine;
    let own = [&config.inside, &config.outside].into_iter().filter_map(|side| side.network);
    let maps = settings.ipv6.siit.iter().flat_map(|siit| &siit.maps).map(|map| map.ipv4);
    let known: Vec<Prefix> = own.chain(config.subscribers.iter().copied()).chain(maps).collect();
    let free = |network: &Ipv4Addr| {
        let first = network.to_bits();
        let own = |prefix: &Prefix| prefix.first() <= first + 255 && prefix.last() >= first;
        !known.iter().any(own) && (0..256).all(|host| !taken(config, next(*network, host)))
    };
    OUTSIDE.map(Ipv4Addr::from).into_iter().find(free)
}

/// Consecutive hosts in a network. The address behind them must be free.
fn in_network(network: Prefix, may: &dyn Fn(Ipv4Addr) -> bool) -> Option<Hosts> {
    const TRIES: u32 = 64;
    let size = network.last() - network.first();
    // Round numbers are easier to read in a report; any other range is possible.
    let round = (0..TRIES).map(|number| 16 + number * 64);
    let starts = round.chain(2..TRIES * 64).filter(|start| start + COUNT < size);
    let row = |start| {
        let first = Ipv4Addr::from_bits(network.first() + start);
        Hosts { first, last: next(first, COUNT - 1) }
    };
    starts.map(row).find(|hosts| hosts.iter().all(may) && may(next(hosts.last, 1)))
}

/// Returns true if an address is external.
fn taken(config: &Config, host: Ipv4Addr) -> bool {
    let ranges = config.pools.iter().flat_map(|pool| &pool.addresses);
    let statics = config.statics.iter().map(|mapping| mapping.external.0);
    ranges.into_iter().any(|range| (range.first..=range.last).contains(&host))
        || statics.into_iter().any(|external| external == host)
}

/// An address whose packets bypass translation by a rule. The gateway's own addresses are excluded,
/// because the gateway takes their packets itself.
fn untranslated(config: &Config) -> Option<Ipv4Addr> {
    let own = [config.inside.address, config.outside.address];
    config.rules.iter().find_map(|rule| match (&rule.matches, &rule.action) {
        (Match::Destination(prefix, 0), RuleAction::Bypass) => {
            let inner = u32::from(prefix.len() < 31);
            let hosts = prefix.first() + inner..=prefix.last() - inner;
            hosts.take(3).map(Ipv4Addr::from_bits).find(|host| !own.contains(&Some(*host)))
        }
        _ => None,
    })
}

fn give(side: &mut SideSettings, engine: &mut SideConfig, (address, len): (Ipv4Addr, u8)) {
    side.address = Some((address, len));
    engine.address = Some(address);
    engine.network = Some(Prefix::new(address, len));
}

fn next(address: Ipv4Addr, by: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits().wrapping_add(by))
}
