//! What must hold of the engine whatever the model says: which bytes of a packet may change, and
//! what its mappings, sessions and pools never do.

use super::Divergence;
use crate::allocation::addresses;
use crate::bytes::UDP_LITE;
use natgate_engine::{
    Config, Endpoint, MappingInfo, MappingKind, PoolUsage, Pooling, SessionInfo, Verdict,
};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use natgate_wire::{Ipv4, icmp};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// Of a packet that is sent on only addresses, ports and identifiers, the time to live and
/// checksums may change; in an ICMP error the embedded packet's likewise, except its time to live.
pub(super) fn permitted_change(
    before: &[u8],
    after: &[u8],
    verdict: Verdict,
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

/// Where addresses, ports or identifiers, and checksums are in a packet.
fn changeable(packet: &[u8]) -> Vec<usize> {
    let Ok(ip) = Ipv4::new_header_checked(packet) else { return Vec::new() };
    let transport: &[usize] = match ip.protocol() {
        TCP => &[0, 1, 2, 3, 16, 17],
        UDP => &[0, 1, 2, 3, 6, 7],
        DCCP | UDP_LITE => &[6, 7],
        ICMP => &[2, 3, 4, 5],
        _ => &[],
    };
    let end = ip.header_len() + ip.payload().len();
    let transport = transport.iter().map(|at| ip.header_len() + at).filter(|at| *at < end);
    (10..20).chain(transport).collect()
}

/// A pool's ports add up, and those in use are those of its mappings.
pub(super) fn pool(
    config: &Config,
    pool: usize,
    protocol: u8,
    usage: PoolUsage,
    mappings: &[MappingInfo],
) -> Result<(), Divergence> {
    let (first, last) = config.pools[pool].ports;
    let own: BTreeSet<Ipv4Addr> = addresses(&config.pools[pool]).collect();
    let all = own.len() as u64 * (u64::from(last - first) + 1);
    let used = mappings.iter().filter(|mapping| {
        mapping.id.kind == MappingKind::Dynamic
            && mapping.id.protocol == protocol
            && own.contains(&mapping.id.external.address)
    });
    let used = used.count() as u64;
    if usage.free + usage.used + usage.held + usage.reserved != all || usage.used != used {
        return Err(format!(
            "pool {pool} has {all} ports, {used} of them mapped, but says {usage:?}"
        ));
    }
    Ok(())
}

/// One to one, one external address a subscriber, quotas.
pub(super) fn state(
    config: &Config,
    mappings: &[MappingInfo],
    sessions: &[SessionInfo],
) -> Result<(), Divergence> {
    let mut external = BTreeSet::new();
    let mut used_by: BTreeMap<(Ipv4Addr, u8), u32> = BTreeMap::new();
    let mut address_of: BTreeMap<(Ipv4Addr, usize), Ipv4Addr> = BTreeMap::new();
    for mapping in mappings {
        let id = mapping.id;
        let has_ports = matches!(id.protocol, TCP | UDP | ICMP);
        if has_ports && !external.insert((id.protocol, id.external)) {
            return Err(format!("{:?} is the external endpoint of two mappings", id.external));
        }
        if id.kind == MappingKind::Static {
            continue;
        }
        let class = if has_ports { id.protocol } else { ICMP };
        *used_by.entry((id.internal.address, class)).or_default() += 1;
        let pool = config.pools.iter().position(|pool| {
            addresses(pool).any(|address| address == id.external.address)
                && (!has_ports || (pool.ports.0..=pool.ports.1).contains(&id.external.port))
        });
        let Some(pool) = pool else { return Err(format!("{id:?} is of no pool")) };
        let first = *address_of.entry((id.internal.address, pool)).or_insert(id.external.address);
        if config.pooling == Pooling::Paired && first != id.external.address {
            return Err(format!("{} has two external addresses", id.internal.address));
        }
    }
    let limits = &config.limits;
    for ((subscriber, protocol), used) in used_by {
        let quota = match protocol {
            TCP => limits.tcp_ports,
            UDP => limits.udp_ports,
            _ => limits.icmp_ports,
        };
        if used > quota {
            return Err(format!("{subscriber} has {used} mappings of protocol {protocol}"));
        }
    }
    portless(sessions)
}

/// No two subscribers share an external address towards one remote address (5.7).
fn portless(sessions: &[SessionInfo]) -> Result<(), Divergence> {
    let mut seen: BTreeMap<(u8, Endpoint, Endpoint), Endpoint> = BTreeMap::new();
    for session in sessions {
        let id = session.mapping;
        if matches!(id.protocol, TCP | UDP | ICMP) {
            continue;
        }
        let first = *seen.entry((id.protocol, id.external, session.remote)).or_insert(id.internal);
        if first != id.internal {
            return Err(format!("{first:?} and {:?} cannot be told apart", id.internal));
        }
    }
    Ok(())
}
