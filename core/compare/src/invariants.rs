//! Invariants of the engine, independent of the model: the bytes of a packet that may change, and
//! conditions on mappings, sessions and pools.

use crate::Divergence;
use natgate_engine::{
    Allocation, Class, Config, Endpoint, Limits, MappingId, MappingInfo, MappingKind, Plan,
    PoolUsage, Pooling, SessionInfo, Timestamp, Verdict,
};
use natgate_model::{Host, addresses, has_ports};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP, UDP_LITE};
use natgate_wire::{Ipv4, Tcp, icmp, tcp::flags::SYN};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Checks a forwarded packet. Only addresses, ports and identifiers, the time to live and checksums
/// may change. In an ICMP error the same holds for the embedded packet, except for its time to
/// live. The maximum segment size of a SYN may go down to the configured value.
pub(crate) fn permitted_change(
    before: &[u8],
    after: &[u8],
    verdict: Verdict,
    tcp_mss: Option<u16>,
) -> Result<(), Divergence> {
    let ip = Ipv4::new_checked(before).map_err(|_| "what is not IPv4 was sent on")?;
    let mut before = before[..usize::from(ip.total_len())].to_vec();
    if before.len() != after.len() {
        return Err(format!("{} bytes became {}", before.len(), after.len()));
    }
    let ttl = if matches!(verdict, Verdict::Reply(_)) { 64 } else { ip.ttl().wrapping_sub(1) };
    if after[8] != ttl {
        return Err(format!("the time to live {} became {}", ip.ttl(), after[8]));
    }
    let mut may_change: Vec<usize> = vec![8];
    let icmp_at = ip.header_len();
    let is_icmp = ip.protocol() == ICMP;
    may_change.extend(changeable(&before));
    if is_icmp && icmp::is_error(before[icmp_at]) {
        may_change.retain(|at| !(icmp_at + 4..icmp_at + 6).contains(at));
        let body = icmp_at + icmp::HEADER_LEN;
        may_change.extend(changeable(&before[body..]).into_iter().map(|at| body + at));
    }
    if matches!(verdict, Verdict::Reply(_)) {
        may_change.push(icmp_at); // the type
    }
    if let (Some((at, old)), Some((_, new)), Some(limit)) = (mss(&before), mss(after), tcp_mss)
        && old > limit
        && new == limit
    {
        may_change.extend([at, at + 1]);
    }
    for at in may_change {
        if let (Some(old), Some(new)) = (before.get_mut(at), after.get(at)) {
            *old = *new;
        }
    }
    match before.iter().zip(after).position(|(old, new)| old != new) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} changed")),
    }
}

/// Offset and value of the maximum segment size in a packet with SYN.
fn mss(packet: &[u8]) -> Option<(usize, u16)> {
    let ip = Ipv4::new_checked(packet).ok().filter(|ip| ip.protocol() == TCP)?;
    let tcp = Tcp::new_checked(ip.payload()).filter(|tcp| tcp.flags() & SYN != 0)?;
    tcp.max_segment_size().map(|(at, size)| (ip.header_len() + at, size))
}

/// Offsets of addresses, ports or identifiers, and checksums in a packet.
fn changeable(packet: &[u8]) -> Vec<usize> {
    let Ok(ip) = Ipv4::new_header_checked(packet) else { return Vec::new() };
    let transport: &[usize] = match ip.protocol() {
        TCP => &[0, 1, 2, 3, 16, 17],
        UDP => &[0, 1, 2, 3, 6, 7],
        DCCP => &[0, 1, 2, 3, 6, 7],
        UDP_LITE => &[6, 7],
        ICMP => &[2, 3, 4, 5],
        _ => &[],
    };
    let end = ip.header_len() + ip.payload().len();
    let transport = transport.iter().map(|at| ip.header_len() + at).filter(|at| *at < end);
    (10..20).chain(transport).collect()
}

/// Checks a pool's usage: its ports, on its own addresses, add up, and the used ones are the ports
/// of its mappings.
pub(crate) fn pool(
    pool: usize,
    (first, last): (u16, u16),
    own: &BTreeSet<Ipv4Addr>,
    protocol: u8,
    usage: PoolUsage,
    mappings: &[MappingInfo],
) -> Result<(), Divergence> {
    let all = own.len() as u64 * (u64::from(last - first) + 1);
    let used = mappings.iter().filter(|mapping| {
        mapping.id.kind != MappingKind::Static
            && mapping.id.protocol == protocol
            && own.contains(&mapping.id.external.address)
            && (first..=last).contains(&mapping.id.external.port)
    });
    let used: BTreeSet<Endpoint> = used.map(|mapping| mapping.id.external).collect();
    let used = used.len() as u64;
    if usage.free + usage.used + usage.held + usage.reserved != all || usage.used != used {
        return Err(format!(
            "pool {pool} has {all} ports, {used} of them mapped, but says {usage:?}"
        ));
    }
    Ok(())
}

/// Invariants that may be broken since a change of the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Changed {
    /// The invariant that a subscriber has one address: a rule has chosen addresses, or the pooling
    /// behavior was another.
    pub(crate) addresses: bool,
    /// The invariant that no subscriber exceeds its limits.
    pub(crate) limits: bool,
    /// The invariant that mappings have addresses of present pools.
    pub(crate) pools: bool,
}

/// Checks: no shared external endpoints, one external address a subscriber (unless a rule has
/// chosen any), quotas. After a change of the pools, mappings may have addresses of no present
/// pool.
pub(crate) fn state(
    config: &Config,
    changed: Changed,
    mappings: &[MappingInfo],
    sessions: &[SessionInfo],
) -> Result<(), Divergence> {
    one_to_one(config, changed, mappings)?;
    told_apart(sessions)?;
    let mut used_by: BTreeMap<(Host, u8), u32> = BTreeMap::new();
    let mut address_of: BTreeMap<(Host, usize), Ipv4Addr> = BTreeMap::new();
    for mapping in mappings {
        let id = mapping.id;
        let has_ports = has_ports(id.protocol);
        if id.kind == MappingKind::Static {
            continue;
        }
        let class = if matches!(id.protocol, TCP | UDP) { id.protocol } else { ICMP };
        let host = (id.realm, id.internal.address);
        *used_by.entry((host, class)).or_default() += 1;
        if changed.pools {
            continue;
        }
        let pool = config.pools.iter().position(|pool| {
            addresses(pool).any(|address| address == id.external.address)
                && (!has_ports || (pool.ports.0..=pool.ports.1).contains(&id.external.port))
        });
        let Some(pool) = pool else { return Err(format!("{id:?} is of no pool")) };
        let first = *address_of.entry((host, pool)).or_insert(id.external.address);
        let paired = config.pooling == Pooling::Paired && !changed.addresses;
        if paired && first != id.external.address {
            return Err(format!("{host:?} has two external addresses"));
        }
    }
    for ((subscriber, protocol), used) in used_by {
        let limits = limits_of(config, subscriber);
        let quota = match protocol {
            TCP => limits.tcp_ports,
            UDP => limits.udp_ports,
            _ => limits.icmp_ports,
        };
        if used > quota && !changed.limits {
            return Err(format!("{subscriber:?} has {used} mappings of protocol {protocol}"));
        }
    }
    if !changed.limits {
        totals(config, mappings)?;
        session_limits(config, mappings)?;
    }
    if !changed.pools {
        shares(config, mappings)?;
    }
    portless(sessions)
}

/// Checks that no two mappings share an external endpoint, except servers of a service and
/// overloaded ports (5.1).
fn one_to_one(
    config: &Config,
    changed: Changed,
    mappings: &[MappingInfo],
) -> Result<(), Divergence> {
    let mut external = BTreeSet::new();
    for id in mappings.iter().map(|mapping| mapping.id) {
        let end = (id.external.address, id.external.port);
        let served = config.services.iter().any(|service| service.external == end);
        // An address may have left the pool that overloaded its ports.
        let overloaded = changed.pools
            || config.pools.iter().any(|pool| {
                pool.overloading && addresses(pool).any(|address| address == id.external.address)
            });
        let may_share = served || overloaded && id.kind != MappingKind::Static;
        if has_ports(id.protocol) && !may_share && !external.insert((id.protocol, id.external)) {
            return Err(format!("{:?} is the external endpoint of two mappings", id.external));
        }
    }
    Ok(())
}

/// Checks that no two sessions share an external endpoint and a remote endpoint (3.36).
fn told_apart(sessions: &[SessionInfo]) -> Result<(), Divergence> {
    let mut seen = BTreeSet::new();
    for session in sessions.iter().filter(|session| has_ports(session.mapping.protocol)) {
        let MappingId { protocol, external, .. } = session.mapping;
        if !seen.insert((protocol, external, session.remote)) {
            return Err(format!("{external:?} has two sessions with {:?}", session.remote));
        }
    }
    Ok(())
}

/// The class of a subscriber: the class of the longest prefix, the realm's own class first.
fn class_of(config: &Config, (realm, subscriber): Host) -> Option<&Class> {
    let len = |class: &Class| {
        let own = class.subscribers.iter().filter(|prefix| prefix.contains(subscriber.to_bits()));
        own.map(|prefix| (prefix.len(), class.realm.is_some())).max()
    };
    let there = |class: &&Class| class.realm.is_none() || class.realm == Some(realm);
    let holds = config.classes.iter().filter(there);
    let holds = holds.filter_map(|class| Some((len(class)?, class)));
    holds.max_by_key(|(len, _)| *len).map(|(_, class)| class)
}

/// The limits of a subscriber.
fn limits_of(config: &Config, subscriber: Host) -> Limits {
    let common = config.limits.clone();
    let Some(class) = class_of(config, subscriber) else { return common };
    let own = &class.limits;
    Limits {
        tcp_ports: own.tcp_ports.unwrap_or(common.tcp_ports),
        udp_ports: own.udp_ports.unwrap_or(common.udp_ports),
        icmp_ports: own.icmp_ports.unwrap_or(common.icmp_ports),
        sessions_per_mapping: own.sessions_per_mapping.unwrap_or(common.sessions_per_mapping),
        sessions_per_subscriber: own.sessions_per_subscriber.or(common.sessions_per_subscriber),
        ..common
    }
}

/// Checks that no class, and no subscriber, exceeds its totals (3.27, 3.33).
fn totals(config: &Config, mappings: &[MappingInfo]) -> Result<(), Divergence> {
    let mut of_subscriber: BTreeMap<Host, u32> = BTreeMap::new();
    let mut of_class: BTreeMap<&str, (u32, [u32; 3])> = BTreeMap::new();
    for mapping in mappings.iter().filter(|one| one.id.kind != MappingKind::Static) {
        let subscriber = (mapping.id.realm, mapping.id.internal.address);
        *of_subscriber.entry(subscriber).or_default() += mapping.sessions;
        let Some(class) = class_of(config, subscriber) else { continue };
        let (sessions, by_kind) = of_class.entry(&class.name).or_default();
        *sessions += mapping.sessions;
        by_kind[match mapping.id.protocol {
            TCP => 0,
            UDP => 1,
            _ => 2,
        }] += 1;
    }
    for (subscriber, has) in of_subscriber {
        let most = limits_of(config, subscriber).sessions_per_subscriber;
        if most.is_some_and(|most| has > most) {
            return Err(format!("{subscriber:?} has {has} sessions"));
        }
    }
    for class in &config.classes {
        let Some((sessions, [tcp, udp, icmp])) = of_class.get(&class.name[..]) else { continue };
        let total = &class.total;
        let all = [
            (*sessions, total.sessions),
            (*tcp, total.tcp_ports),
            (*udp, total.udp_ports),
            (*icmp, total.icmp_ports),
        ];
        if all.iter().any(|(has, most)| most.is_some_and(|most| *has > most)) {
            return Err(format!("class {} has more than it may: {all:?}", class.name));
        }
    }
    Ok(())
}

/// Checks that no subscriber has a port of another's block, or of another's share by arithmetic
/// (5.18, 5.30).
fn shares(config: &Config, mappings: &[MappingInfo]) -> Result<(), Divergence> {
    let mut owner_of: BTreeMap<(Ipv4Addr, u16), Host> = BTreeMap::new();
    for pool in &config.pools {
        let own: BTreeSet<Ipv4Addr> = addresses(pool).collect();
        let plan = match config.allocation_of(pool) {
            Allocation::Deterministic(shares) => Plan::new(shares, pool).ok(),
            _ => None,
        };
        let of_pool = mappings.iter().map(|mapping| mapping.id).filter(|id| {
            id.kind != MappingKind::Static
                && has_ports(id.protocol)
                && own.contains(&id.external.address)
        });
        for MappingId { realm, internal, external, kind, .. } in of_pool {
            let host = (realm, internal.address);
            if let Allocation::Block(block) = config.allocation_of(pool) {
                let first =
                    if external.port < 1024 { pool.ports.0 } else { pool.ports.0.max(1024) };
                let number = (external.port - first) / block.size;
                let side = u16::from(external.port >= 1024) << 15;
                let block = (external.address, number | side);
                let owner = *owner_of.entry(block).or_insert(host);
                if owner != host {
                    return Err(format!("{owner:?} and {host:?} have one block"));
                }
            }
            if *config.allocation_of(pool) == Allocation::Address {
                let owner = *owner_of.entry((external.address, 0)).or_insert(host);
                if owner != host {
                    return Err(format!("{owner:?} and {host:?} have one address"));
                }
            }
            let owner = plan.as_ref().and_then(|plan| {
                Some((plan.realm(), plan.reverse(external.address, external.port)?))
            });
            if owner.is_some_and(|owner| owner != host)
                || kind != MappingKind::Pcp
                    && (kind == MappingKind::Deterministic) != owner.is_some()
            {
                return Err(format!("{external:?} is {owner:?}'s, and {internal:?} has it"));
            }
        }
    }
    Ok(())
}

/// Checks the limits of sessions of a mapping, of a subscriber and in all (3.33). At most one
/// session of a mapping is no further session.
fn session_limits(config: &Config, mappings: &[MappingInfo]) -> Result<(), Divergence> {
    let limits = &config.limits;
    let further = |mapping: &MappingInfo| mapping.sessions.saturating_sub(1);
    let mut of_subscriber: BTreeMap<Host, u32> = BTreeMap::new();
    for mapping in mappings.iter().filter(|one| one.id.kind != MappingKind::Static) {
        let host = (mapping.id.realm, mapping.id.internal.address);
        *of_subscriber.entry(host).or_default() += further(mapping);
        let own = limits_of(config, host);
        if mapping.sessions > u32::from(own.sessions_per_mapping) {
            return Err(format!("{:?} has {} sessions", mapping.id, mapping.sessions));
        }
    }
    let each = limits.extra_sessions_per_subscriber.unwrap_or(u32::MAX);
    if let Some((subscriber, has)) = of_subscriber.iter().find(|(_, has)| **has > each) {
        return Err(format!("{subscriber:?} has {has} further sessions"));
    }
    let all: u32 = mappings.iter().map(further).sum();
    match limits.extra_sessions.is_some_and(|most| all > most) {
        true => Err(format!("there are {all} further sessions")),
        false => Ok(()),
    }
}

/// Checks that packets from outside refresh nothing, if so configured: no mapping has more time
/// after a batch of them than before. The check is for subscribers' mappings of protocols without
/// connections. (Sessions of TCP and DCCP may end, and then have times of their own.)
pub(crate) fn not_refreshed(
    before: &[MappingInfo],
    after: &[MappingInfo],
) -> Result<(), Divergence> {
    let ends = |id: &MappingId| (id.protocol, id.realm, id.internal, id.external);
    let mut known: BTreeMap<_, Vec<Option<Timestamp>>> = BTreeMap::new();
    for one in before {
        known.entry(ends(&one.id)).or_default().push(one.expires);
    }
    let refreshed = after.iter().find(|one| {
        one.id.kind != MappingKind::Static
            && !matches!(one.id.protocol, TCP | DCCP)
            && !known.get(&ends(&one.id)).is_some_and(|times| times.contains(&one.expires))
    });
    match refreshed {
        Some(mapping) => Err(format!("a packet from outside refreshed {mapping:?}")),
        None => Ok(()),
    }
}

/// Checks that no two subscribers share an external address towards one remote address (5.13).
fn portless(sessions: &[SessionInfo]) -> Result<(), Divergence> {
    let mut seen: BTreeMap<(u8, Endpoint, Endpoint), (u16, Endpoint)> = BTreeMap::new();
    for session in sessions {
        let id = session.mapping;
        if has_ports(id.protocol) {
            continue;
        }
        let internal = (id.realm, id.internal);
        let first = *seen.entry((id.protocol, id.external, session.remote)).or_insert(internal);
        if first != internal {
            return Err(format!("{first:?} and {internal:?} cannot be told apart"));
        }
    }
    Ok(())
}
