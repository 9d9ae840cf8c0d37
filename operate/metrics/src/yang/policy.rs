//! Policies: each pool with its subscribers, the allocation of its ports, and the timers.

use super::{Network, object, put_list, show_prefix};
use natgate_engine::{
    AddressRange, Allocation, Behavior, Config, Match, PoolConfig, Pooling, RuleAction,
};
use natgate_wire::protocol;
use serde_json::{Map, Value, json};
use std::net::Ipv4Addr;
use std::time::Duration;

/// The policies of a network: of its default pool, and of pools that its rules name.
pub(super) fn policies(
    config: &Config,
    network: &Network<'_>,
    left_out: &mut Vec<String>,
) -> Vec<Value> {
    let pools = config.pools.iter().enumerate();
    let used = pools.filter(|(pool, _)| network.realm == 0 || uses(network, *pool));
    used.map(|(pool, of)| policy(config, network, (pool, of), left_out).into()).collect()
}

/// True if mappings of a network may use a pool.
fn uses(network: &Network<'_>, pool: usize) -> bool {
    let by_rule = network.rules.iter().any(|rule| match rule.action {
        RuleAction::Snat(named) | RuleAction::SnatTo(named, _) => named == pool,
        _ => false,
    });
    by_rule || network.default_pool == pool
}

fn policy(
    config: &Config,
    network: &Network<'_>,
    (number, pool): (usize, &PoolConfig),
    left_out: &mut Vec<String>,
) -> Map<String, Value> {
    let (first, last) = pool.ports;
    let quota = |kind: u8, limit: u32| {
        let limit = limit.min(u16::MAX.into());
        json!({ "quota-type": kind, "port-limit": limit })
    };
    let limits = &config.limits;
    let mut policy = object(json!({
        "id": number + 1,
        "external-ip-address-pool": prefixes(config, number),
        //= rfc8512#section-3-ports
        "port-set-restrict": { "start-port-number": first.max(1), "end-port-number": last },
        "transport-protocols": transport_protocols(),
        "address-allocation-type": match config.pooling {
            Pooling::Paired | Pooling::SoftPaired => "paired",
            Pooling::Arbitrary => "arbitrary",
        },
        "port-allocation-type": allocation_type(config, pool),
        "mapping-type": behavior(config.mapping, ["eim", "adm", "edm"]),
        "filtering-type": behavior(config.filtering, ["eif", "adf", "edf"]),
        "fragment-behavior": "out-of-order",
        "port-quota": [
            quota(protocol::ICMP, limits.icmp_ports),
            quota(protocol::TCP, limits.tcp_ports),
            quota(protocol::UDP, limits.udp_ports),
        ],
        "timers": timers(config),
        "all-algs-enable": false,
    }));
    if let Allocation::Block(blocks) = config.allocation_of(pool) {
        let (size, timeout) = (blocks.size, blocks.release_after.as_secs());
        let set = json!({ "port-set-size": size, "port-set-timeout": timeout });
        policy.insert("port-set".into(), set);
    }
    put_list(&mut policy, "subscriber-match", subscribers(network, number, left_out));
    if let Some(high) = pool.thresholds.iter().max() {
        //= rfc8512#section-3-thresholds
        // Below 0 it never falls: nobody is told that use has become low.
        let usage = json!({ "low-threshold": 0, "high-threshold": high, "notify-interval": 60 });
        policy.insert("notify-pool-usage".into(), usage);
    }
    if number == network.default_pool {
        let destinations = destinations(network, left_out);
        if !destinations.is_empty() {
            policy.insert("dst-nat-enable".into(), true.into());
        }
        put_list(&mut policy, "dst-ip-address-pool", destinations);
    }
    left_out_of_pool(config, pool, network, left_out);
    policy
}

/// The protocols that are translated by ports.
pub(super) fn transport_protocols() -> Value {
    let names = [
        (protocol::ICMP, "ICMP"),
        (protocol::TCP, "TCP"),
        (protocol::UDP, "UDP"),
        (protocol::DCCP, "DCCP"),
    ];
    names.map(|(id, name)| json!({ "protocol-id": id, "protocol-name": name })).into()
}

fn allocation_type(config: &Config, pool: &PoolConfig) -> &'static str {
    match config.allocation_of(pool) {
        Allocation::Preserve | Allocation::Address => "port-preservation",
        Allocation::Random if config.port_parity => "port-parity-preservation",
        Allocation::Random => "random",
        Allocation::Block(_) | Allocation::Deterministic(_) => "port-range-allocation",
    }
}

fn behavior(behavior: Behavior, names: [&'static str; 3]) -> &'static str {
    match behavior {
        Behavior::EndpointIndependent => names[0],
        Behavior::AddressDependent => names[1],
        Behavior::AddressAndPortDependent => names[2],
    }
}

/// A pool's addresses as prefixes, each with a number that no other pool's has.
fn prefixes(config: &Config, number: usize) -> Vec<Value> {
    let before: usize = config.pools[..number].iter().map(count_prefixes).sum();
    let all = config.pools[number].addresses.iter().flat_map(|range| split(*range));
    let numbered = all.enumerate().map(|(place, (first, len))| {
        let prefix = format!("{}/{len}", Ipv4Addr::from_bits(first));
        json!({ "pool-id": before + place + 1, "external-ip-pool": prefix })
    });
    numbered.collect()
}

/// The number of prefixes that cover a pool's addresses.
pub(super) fn count_prefixes(pool: &PoolConfig) -> usize {
    pool.addresses.iter().map(|range| split(*range).len()).sum()
}

/// The fewest prefixes that cover a range.
fn split(range: AddressRange) -> Vec<(u32, u32)> {
    let (mut first, last) = (u64::from(range.first.to_bits()), u64::from(range.last.to_bits()));
    let mut prefixes = Vec::new();
    while first <= last {
        let aligned = if first == 0 { 32 } else { first.trailing_zeros().min(32) };
        let bits = aligned.min((last - first + 1).ilog2());
        // Both fit: the range is of 32-bit addresses.
        prefixes.push((first as u32, 32 - bits));
        first += 1 << bits;
    }
    prefixes
}

/// Subscribers of a pool: all of the network if the pool is its default, and the sources of rules.
fn subscribers(network: &Network<'_>, pool: usize, left_out: &mut Vec<String>) -> Vec<Value> {
    let mut prefixes = Vec::new();
    if network.default_pool == pool {
        prefixes.extend(network.subscribers.iter().map(|prefix| show_prefix(*prefix)));
    }
    for rule in network.rules {
        match (&rule.action, rule.matches) {
            (RuleAction::Snat(named), Match::Source(prefix, 0)) if *named == pool => {
                prefixes.push(show_prefix(prefix));
            }
            (RuleAction::Snat(named) | RuleAction::SnatTo(named, _), _) if *named == pool => {
                left_out.push(format!(
                    "an snat rule{} that looks at a port or a destination, or names an address: \
                     subscriber-match has sources alone",
                    network.shown()
                ));
            }
            _ => {}
        }
    }
    let numbered = prefixes.into_iter().enumerate();
    numbered.map(|(place, subnet)| json!({ "match-id": place + 1, "subnet": subnet })).collect()
}

/// Destinations that are translated address by address.
fn destinations(network: &Network<'_>, left_out: &mut Vec<String>) -> Vec<Value> {
    let mut all = Vec::new();
    for rule in network.rules {
        let to = match rule.action {
            RuleAction::Dnat(address, None) => format!("{address}/32"),
            RuleAction::DnatPrefix(prefix) => show_prefix(prefix),
            RuleAction::Dnat(address, Some(port)) => {
                left_out.push(format!(
                    "the dnat rule{} to {address}:{port}: dst-ip-address-pool has no ports",
                    network.shown()
                ));
                continue;
            }
            _ => continue,
        };
        match rule.matches {
            Match::Destination(prefix, 0) => all.push(json!({
                "pool-id": all.len() + 1,
                "dst-in-ip-pool": show_prefix(prefix),
                "dst-out-ip-pool": to,
            })),
            _ => left_out.push(format!(
                "the dnat rule{} to {to} that looks at a port: dst-ip-address-pool has none",
                network.shown()
            )),
        }
    }
    all
}

/// Names the parts of a pool that have no place, once for all realms.
fn left_out_of_pool(
    config: &Config,
    pool: &PoolConfig,
    network: &Network<'_>,
    left_out: &mut Vec<String>,
) {
    if network.realm != 0 {
        return;
    }
    let name = &pool.name;
    if !pool.excluded_ports.is_empty() {
        left_out.push(format!("exclude_ports of pool {name:?}: port-set-restrict is one range"));
    }
    if !pool.draining.is_empty() {
        left_out.push(format!("drain of pool {name:?}: a pool has its addresses or not"));
    }
    if pool.overloading {
        left_out.push(format!("overloading of pool {name:?}"));
    }
    if let Allocation::Deterministic(_) = config.allocation_of(pool) {
        left_out.push(format!("whose ports of pool {name:?} are whose by arithmetic (RFC 7422)"));
    }
}

fn timers(config: &Config) -> Map<String, Value> {
    let timeouts = &config.timeouts;
    let seconds = |time: Duration| Value::from(u32::try_from(time.as_secs()).unwrap_or(u32::MAX));
    let mut timers = object(json!({
        "udp-timeout": seconds(timeouts.udp),
        "tcp-idle-timeout": seconds(timeouts.tcp_established),
        "tcp-trans-open-timeout": seconds(timeouts.tcp_opening),
        "tcp-trans-close-timeout": seconds(timeouts.tcp_closing),
        "tcp-in-syn-timeout": 6,
        "fragment-min-timeout": seconds(timeouts.fragment),
        "icmp-timeout": seconds(timeouts.icmp),
        "hold-down-timeout": seconds(timeouts.hold_down),
    }));
    if let Some(most) = config.limits.held_ports {
        timers.insert("hold-down-max".into(), most.into());
    }
    // The list's key is the port alone: the first of several protocols is exported.
    let mut ports = Map::new();
    for one in &config.port_timeouts {
        for port in one.ports.0..=one.ports.1 {
            let entry = || {
                json!({
                    "port-number": port, "protocol": one.protocol, "timeout": seconds(one.idle),
                })
            };
            if ports.len() < MOST_PORTS {
                ports.entry(port.to_string()).or_insert_with(entry);
            }
        }
    }
    put_list(&mut timers, "per-port-timeout", ports.into_iter().map(|(_, entry)| entry).collect());
    timers
}

/// Most ports with a timeout of their own.
const MOST_PORTS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_fewest_prefixes() {
        let range = |first: [u8; 4], last: [u8; 4]| {
            let shown = |(first, len)| format!("{}/{len}", Ipv4Addr::from_bits(first));
            let range = AddressRange { first: first.into(), last: last.into() };
            split(range).into_iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(range([192, 0, 2, 1], [192, 0, 2, 1]), ["192.0.2.1/32"]);
        assert_eq!(range([192, 0, 2, 0], [192, 0, 2, 255]), ["192.0.2.0/24"]);
        let odd = ["192.0.2.1/32", "192.0.2.2/31", "192.0.2.4/31", "192.0.2.6/32"];
        assert_eq!(range([192, 0, 2, 1], [192, 0, 2, 6]), odd);
        assert_eq!(range([0, 0, 0, 0], [255, 255, 255, 255]), ["0.0.0.0/0"]);
    }
}
