//! Pools whose allocation is "address": a host gets a whole external address, so nothing else may
//! take or leave out ports of it.

use super::draft::{Draft, PoolDraft};
use super::problem::{Place, Report};
use natgate_engine::{Allocation, Behavior};

/// Number of ports of an address.
const PORTS: u32 = 65_535;

/// Gives pools of whole addresses all ports, unless the file names ports.
pub(super) fn give_all_ports(draft: &mut Draft) {
    let is_whole = |pool: &PoolDraft| draft.allocation(pool) == Allocation::Address;
    let whole: Vec<bool> = draft.pools.iter().map(is_whole).collect();
    for (pool, _) in draft.pools.iter_mut().zip(whole).filter(|(_, whole)| *whole) {
        if !has_own_ports(pool) {
            pool.ports.value = Allocation::ALL_PORTS;
        }
    }
}

/// True if the file names the pool's ports.
fn has_own_ports(pool: &PoolDraft) -> bool {
    pool.ports.place.key.ends_with("ports")
}

/// Checks a pool of whole addresses. `kind` is the place of its allocation.
pub(super) fn check(draft: &Draft, pool: &PoolDraft, kind: &Place, report: &Report<'_>) {
    let why = "allocation \"address\" gives a host a whole address";
    if has_own_ports(pool) && pool.ports.value != Allocation::ALL_PORTS {
        let (first, last) = pool.ports.value;
        let count = u32::from(last - first) + 1;
        let message = format!("{first}-{last} are {count} of the {PORTS} ports, and {why}");
        report.wrong(&pool.ports.place, format!("{message}; remove the key"));
    }
    if let Some(excluded) = pool.left_out.ports.first() {
        report.wrong(&excluded.place, format!("excludes ports, and {why}; remove it"));
    }
    if pool.overloading {
        let message = format!("overloads ports, and {why} that has them all");
        report.wrong(&pool.name.place, format!("{message}; remove overloading"));
    }
    if draft.config.mapping != Behavior::EndpointIndependent {
        let message = "keeps ports, so one internal endpoint has one external endpoint";
        let remedy = "write nat.mapping = \"endpoint-independent\" or another allocation";
        report.wrong(kind, format!("{message}; {remedy}"));
    }
}

/// Checks that static mappings take whole addresses of a pool of whole addresses.
pub(super) fn statics_fit(draft: &Draft, pool: &PoolDraft, report: &Report<'_>) {
    for mapping in &draft.statics {
        let (address, ports) = mapping.external.value;
        let is_whole = ports.is_none() && mapping.protocol.is_none();
        if is_whole || !pool.ranges.iter().any(|range| range.value.contains(address)) {
            continue;
        }
        let name = &pool.name.value;
        let message =
            format!("takes a part of {address}, of which pool \"{name}\" gives hosts all");
        let remedy = "map the whole address for all protocols, or exclude it from the pool";
        report.wrong(&mapping.external.place, format!("{message}; {remedy}"));
    }
}
