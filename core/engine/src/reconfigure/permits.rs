//! What a configuration lets stay: a mapping's host, its external endpoint and, if it is static,
//! the mapping itself. Made apart from the engine, from the configuration alone, so that a
//! configuration that is only tried says the same as one that comes into force.

use super::Departure;
use crate::config::{AddressRange, Allocation, Begun, Config, PoolConfig, Prefix};
use crate::deterministic::Plan;
use crate::endpoint::{AddressPort, Internal};
use crate::host::Host;
use crate::protocols::{has_ports, protocol_index};
use crate::rules::{RuleSet, Ruling};
use crate::statics::permanent;
use crate::statics::static_hosts;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// A mapping, as far as it matters whether it may stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) protocol: u8,
    pub(crate) internal: Internal,
    /// Address, host byte order, and port.
    pub(crate) external: AddressPort,
    pub(crate) is_static: bool,
    /// Whether it is one port's static mapping.
    pub(crate) is_permanent: bool,
    /// Whether it is one server's of several; these change only at a restart.
    pub(crate) is_server: bool,
}

/// External addresses that follow each other.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: u32,
    last: u32,
    /// The pool that they stay in, if they do.
    pool: Option<usize>,
}

/// The ports of a pool.
#[derive(Clone, Debug)]
struct Ports {
    /// First and last.
    used: (u16, u16),
    excluded: Vec<(u16, u16)>,
    /// What says whose they are.
    plan: Option<Plan>,
}

/// A static mapping of a whole address.
#[derive(Clone, Copy, Debug)]
struct Whole {
    internal: Host,
    external: u32,
    protocol: Option<u8>,
    /// Whether what its host begins goes out by it.
    goes_out: bool,
}

impl Whole {
    fn is_for(&self, protocol: u8) -> bool {
        self.protocol.is_none_or(|only| only == protocol)
    }

    /// Whether it keeps others from having mappings of a protocol at its external address.
    fn keeps(&self, protocol: u8) -> bool {
        let portless = |protocol| !has_ports(protocol);
        self.is_for(protocol) || portless(protocol) && self.protocol.is_some_and(portless)
    }
}

/// An end of a static mapping with ports: protocol, address and port in one number.
type End = (u64, u32);

fn end(protocol: u8, address: u64, port: u16) -> End {
    (address, (protocol_index(protocol) as u32) << 16 | u32::from(port))
}

/// What may stay.
#[derive(Clone, Debug)]
pub(crate) struct Permits {
    /// By realm; so with own addresses.
    subscribers: Vec<Vec<Prefix>>,
    /// Hosts that static mappings name, sorted.
    hosts: Vec<Host>,
    own: Vec<[u32; 2]>,
    /// Sorted.
    stretches: Vec<Stretch>,
    pools: Vec<Ports>,
    /// External ends of static mappings with the internal ones that they belong to, sorted; and the
    /// latter, sorted.
    by_external: Vec<(End, Internal)>,
    by_internal: Vec<End>,
    /// Sorted by the external address, and by the internal one.
    whole: Vec<Whole>,
    whole_by_internal: Vec<Whole>,
}

impl Permits {
    /// What a configuration lets stay of what was made under the one in force; their pools are
    /// numbered alike.
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
            // What begins at an internal endpoint that is only answered for goes out as if it were
            // not.
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
        let subscribers = |realm| config.subscribers_of(realm).to_vec();
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

    /// Why a mapping may not stay; `None`: it may. `remotes` are those that it has sessions with.
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
        let subscribers = &self.subscribers[usize::from(host.realm())];
        subscribers.iter().any(|prefix| prefix.contains(host.address()))
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

    /// Whether a static mapping has an end of a dynamic one.
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

    /// Whether the pools leave a dynamic mapping its external endpoint, as far as can be told
    /// before they are in force.
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

/// Cuts a range of a pool where those addresses begin and end that the pool had before.
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

/// An endpoint as rules see it: identifiers of queries are no ports.
fn with_port(protocol: u8, AddressPort { address, port }: AddressPort) -> AddressPort {
    use natgate_wire::protocol::{DCCP, TCP, UDP};
    AddressPort::new(address, if matches!(protocol, TCP | UDP | DCCP) { port } else { 0 })
}
