//! Conditions of a configuration for mappings to stay: the mapping's host, its external endpoint
//! and, if the mapping is static, the mapping itself. They are made apart from the engine and from
//! the configuration alone, so that a trial gives the same result as the real change.

use super::Departure;
use crate::config::{AddressRange, Allocation, Begun, Config, PoolConfig};
use crate::deterministic::Plan;
use crate::endpoint::{AddressPort, Internal};
use crate::host::Host;
use crate::protocols::{has_ports, protocol_index};
use crate::ranges::Ranges;
use crate::rules::{RuleSet, Ruling};
use crate::statics::permanent;
use crate::statics::static_hosts;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Attributes of a mapping that matter for its check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) protocol: u8,
    pub(crate) internal: Internal,
    /// Address, host byte order, and port.
    pub(crate) external: AddressPort,
    pub(crate) is_static: bool,
    /// True for a static mapping of a port.
    pub(crate) is_permanent: bool,
    /// True for the mapping of a service's server. Services change only at a restart.
    pub(crate) is_server: bool,
}

/// Consecutive external addresses.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: u32,
    last: u32,
    /// The pool that the addresses stay in, if they stay.
    pool: Option<usize>,
}

/// The ports of a pool.
#[derive(Clone, Debug)]
struct Ports {
    /// First and last.
    used: (u16, u16),
    excluded: Vec<(u16, u16)>,
    /// Owners of the ports, in a deterministic pool.
    plan: Option<Plan>,
}

/// A static mapping of a whole address.
#[derive(Clone, Copy, Debug)]
struct Whole {
    internal: Host,
    external: u32,
    protocol: Option<u8>,
    /// True if sessions that the host begins use the external address.
    goes_out: bool,
}

impl Whole {
    fn is_for(&self, protocol: u8) -> bool {
        self.protocol.is_none_or(|only| only == protocol)
    }

    /// True if no other mapping of a protocol may have the external address.
    fn keeps(&self, protocol: u8) -> bool {
        let portless = |protocol| !has_ports(protocol);
        self.is_for(protocol) || portless(protocol) && self.protocol.is_some_and(portless)
    }
}

/// An endpoint of a static mapping with ports: address, and protocol with port in one number.
type End = (u64, u32);

fn end(protocol: u8, address: u64, port: u16) -> End {
    (address, (protocol_index(protocol) as u32) << 16 | u32::from(port))
}

/// Conditions for mappings to stay.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    /// Subscribers by realm. `own` is by realm too.
    subscribers: Vec<Ranges<u32>>,
    /// Hosts that static mappings name, sorted.
    hosts: Vec<Host>,
    own: Vec<[u32; 2]>,
    /// Sorted by address.
    stretches: Vec<Stretch>,
    pools: Vec<Ports>,
    /// External endpoints of static mappings with their internal endpoints, sorted; and the
    /// internal endpoints, sorted.
    by_external: Vec<(End, Internal)>,
    by_internal: Vec<End>,
    /// Sorted by external address, and by internal host.
    whole: Vec<Whole>,
    whole_by_internal: Vec<Whole>,
}

impl Permits {
    /// Makes the conditions of `config` for mappings that were made under `in_force`. Both number
    /// their pools alike.
    pub(crate) fn new(in_force: &Config, config: &Config) -> Self {
        let (mut by_external, mut by_internal) = (Vec::new(), Vec::new());
        let mut whole = Vec::new();
        for mapping in &config.statics {
            let internal = Host::new(mapping.realm, mapping.internal.0.to_bits());
            let external = mapping.external.0.to_bits();
            let (Some(inside), Some(outside)) = (mapping.internal.1, mapping.external.1) else {
                let goes_out = mapping.begun != Begun::Outside;
                whole.push(Whole { internal, external, protocol: mapping.protocol, goes_out });
                continue;
            };
            // A mapping that begins only outside does not translate what its host begins.
            let goes_out = mapping.begun != Begun::Outside;
            for protocol in permanent(mapping) {
                if goes_out {
                    by_internal.push(end(protocol, internal.bits(), inside));
                }
                by_external.push((
                    end(protocol, external.into(), outside),
                    Internal::new(internal, inside),
                ));
            }
        }
        by_external.sort_unstable();
        by_internal.sort_unstable();
        whole.sort_by_key(|whole| whole.external);
        let mut whole_by_internal = whole.clone();
        whole_by_internal.retain(|whole| whole.goes_out);
        whole_by_internal.sort_by_key(|whole| whole.internal);
        let stretches = config.pools.iter().enumerate().flat_map(|(number, pool)| {
            let before = in_force.pools.get(number);
            pool.addresses.iter().flat_map(move |range| cut(range, number, before))
        });
        let mut stretches: Vec<Stretch> = stretches.collect();
        stretches.sort_by_key(|stretch| stretch.first);
        let ports = |pool: &PoolConfig| Ports {
            used: (pool.ports.0.max(1), pool.ports.1),
            excluded: pool.excluded_ports.clone(),
            plan: match config.allocation_of(pool) {
                Allocation::Deterministic(plan) => Plan::new(plan, pool).ok(),
                _ => None,
            },
        };
        let own = |realm| {
            [config.inside_of(realm), &config.outside]
                .map(|side| side.address.map_or(0, core::net::Ipv4Addr::to_bits))
        };
        let subscribers = |realm| Ranges::of_ipv4(config.subscribers_of(realm));
        Self {
            subscribers: config.all_numbers().map(subscribers).collect(),
            hosts: static_hosts(config),
            own: config.all_numbers().map(own).collect(),
            stretches,
            pools: config.pools.iter().map(ports).collect(),
            by_external,
            by_internal,
            whole,
            whole_by_internal,
        }
    }

    /// Reason why a mapping may not stay; `None`: it may stay. `remotes` are the remote endpoints
    /// of its sessions.
    pub(crate) fn judge(
        &self,
        rules: &RuleSet,
        asked: &Asked,
        remotes: impl Iterator<Item = AddressPort>,
    ) -> Option<Departure> {
        if asked.is_server {
            return None;
        }
        if asked.is_static {
            return (!self.has_static(asked)).then_some(Departure::Static);
        }
        if self.is_displaced(asked) {
            return Some(Departure::Displaced);
        }
        let Internal { host, port } = asked.internal;
        let is_ours = self.own[usize::from(host.realm())].contains(&host.address())
            || self.is_external(host.address());
        let mut translated = remotes.map(|remote| {
            rules.find(
                with_port(asked.protocol, AddressPort::new(host.address(), port)),
                with_port(asked.protocol, remote),
            )
        });
        let may_have = self.is_subscriber(host)
            || translated.any(|ruling| matches!(ruling, Some(Ruling::Snat(_))));
        (is_ours || !may_have).then_some(Departure::NotSubscriber)
    }

    fn is_subscriber(&self, host: Host) -> bool {
        self.subscribers[usize::from(host.realm())].has(host.address())
            || self.hosts.binary_search(&host).is_ok()
    }

    fn has_static(&self, asked: &Asked) -> bool {
        let AddressPort { address, port } = asked.external;
        if asked.is_permanent {
            let end = end(asked.protocol, address.into(), port);
            let found = self.by_external.binary_search_by_key(&end, |(end, _)| *end);
            return found.is_ok_and(|at| self.by_external[at].1 == asked.internal);
        }
        self.whole_of(address)
            .any(|whole| whole.internal == asked.internal.host && whole.is_for(asked.protocol))
    }

    /// The static mappings of a whole external address.
    fn whole_of(&self, external: u32) -> impl Iterator<Item = &Whole> {
        let start = self.whole.partition_point(|whole| whole.external < external);
        self.whole[start..].iter().take_while(move |whole| whole.external == external)
    }

    /// True if a static mapping has an endpoint of a dynamic mapping.
    fn is_displaced(&self, asked: &Asked) -> bool {
        let Asked {
            protocol,
            internal: Internal { host, port: inside },
            external: AddressPort { address, port: outside },
            ..
        } = *asked;
        let start = self.whole_by_internal.partition_point(|whole| whole.internal < host);
        let mut whole_inside = self.whole_by_internal[start..]
            .iter()
            .take_while(|whole| whole.internal == host)
            .filter(|whole| whole.is_for(protocol));
        if whole_inside.next().is_some()
            || self.whole_of(address).any(|whole| whole.keeps(protocol))
        {
            return true;
        }
        let external = || end(protocol, address.into(), outside);
        has_ports(protocol)
            && (self.by_internal.binary_search(&end(protocol, host.bits(), inside)).is_ok()
                || self.by_external.binary_search_by_key(&external(), |(end, _)| *end).is_ok())
    }

    fn stretch(&self, address: u32) -> Option<&Stretch> {
        let after = self.stretches.partition_point(|stretch| stretch.first <= address);
        self.stretches[..after].last().filter(|stretch| address <= stretch.last)
    }

    fn is_external(&self, address: u32) -> bool {
        let before = |(end, _): &(End, _)| end.0 < u64::from(address);
        let place = self.by_external.partition_point(before);
        let next = self.by_external.get(place);
        next.is_some_and(|((one, _), _)| *one == u64::from(address))
            || self.stretch(address).is_some()
            || self.whole_of(address).next().is_some()
    }

    /// True if the pools leave a dynamic mapping its external endpoint, as far as is known before
    /// the pools are in force.
    pub(crate) fn keeps_end(&self, asked: &Asked) -> bool {
        let AddressPort { address, port } = asked.external;
        let Some(pool) = self.stretch(address).and_then(|stretch| stretch.pool) else {
            return false;
        };
        let Ports { used, excluded, plan } = &self.pools[pool];
        let is_in = |&(first, last): &(u16, u16)| (first..=last).contains(&port);
        let is_own = |plan: &Plan| {
            let owner = plan.reverse(Ipv4Addr::from_bits(address), port);
            owner.is_some_and(|owner| {
                Host::new(plan.realm(), owner.to_bits()) == asked.internal.host
            }) || plan.dynamic().is_some_and(|(first, _)| port >= first)
        };
        !has_ports(asked.protocol)
            || is_in(used) && !excluded.iter().any(is_in) && plan.as_ref().is_none_or(is_own)
    }
}

/// Cuts a range of a pool at the bounds of the pool's former addresses.
fn cut(range: &AddressRange, number: usize, before: Option<&PoolConfig>) -> Vec<Stretch> {
    let (first, last) = (range.first.to_bits(), range.last.to_bits());
    let mut old: Vec<(u32, u32)> = before
        .into_iter()
        .flat_map(|pool| &pool.addresses)
        .map(|old| (old.first.to_bits().max(first), old.last.to_bits().min(last)))
        .filter(|(first, last)| first <= last)
        .collect();
    old.sort_unstable();
    let mut stretches = Vec::new();
    let mut next = Some(first);
    for (old_first, old_last) in old {
        let from = next.unwrap_or(old_first);
        if from < old_first {
            stretches.push(Stretch { first: from, last: old_first - 1, pool: None });
        }
        stretches.push(Stretch { first: old_first, last: old_last, pool: Some(number) });
        next = old_last.checked_add(1);
    }
    if let Some(from) = next.filter(|&from| from <= last) {
        stretches.push(Stretch { first: from, last, pool: None });
    }
    stretches
}

/// The endpoint that rules see. Identifiers of queries are no ports.
fn with_port(protocol: u8, AddressPort { address, port }: AddressPort) -> AddressPort {
    use natgate_wire::protocol::{DCCP, TCP, UDP};
    AddressPort::new(address, if matches!(protocol, TCP | UDP | DCCP) { port } else { 0 })
}
