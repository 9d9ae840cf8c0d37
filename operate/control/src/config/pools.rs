//! Exclusions of a pool: excluded addresses and ports, draining addresses. Checks that something is
//! left and that there is room for all addresses.

use super::checks::MOST_ADDRESSES;
use super::draft::{Draft, PoolDraft};
use super::problem::{Located, Report};
use super::reader::{Section, Value};
use super::values::{self, show_range};
use natgate_engine::{AddressRange, Allocation, BlockConfig, Blocking, Plan, PoolConfig};
use std::net::Ipv4Addr;

/// Default of the room for external addresses.
const LEAST_ROOM: u64 = 64;

/// Exclusions of a pool.
pub(super) struct LeftOut {
    pub(super) ports: Vec<Located<(u16, u16)>>,
    pub(super) draining: Vec<Located<AddressRange>>,
}

/// Reads a pool's exclusions, and removes excluded addresses from `ranges`.
pub(super) fn read(section: &Section<'_>, ranges: &mut Vec<Located<AddressRange>>) -> LeftOut {
    let wanted = "an array of addresses";
    let range =
        |value: &Value<'_>| value.parsed("an address, a prefix or a range", values::address_range);
    let listed = |key: &'static str| -> Vec<Located<AddressRange>> {
        let items = section.get(key).and_then(|value| value.items(wanted)).unwrap_or_default();
        items.iter().filter_map(range).collect()
    };
    let excluded = listed("exclude");
    let meets = |one: &AddressRange, other: &AddressRange| {
        one.first <= other.last && other.first <= one.last
    };
    for one in &excluded {
        if !ranges.is_empty() && !ranges.iter().any(|range| meets(&range.value, &one.value)) {
            let shown = show_range(one.value);
            let message =
                format!("{shown} is not among the pool's addresses, so this excludes nothing");
            section.report.wrong(&one.place, format!("{message}; remove it"));
        }
    }
    let before: u64 = ranges.iter().map(|range| size(range.value)).sum();
    *ranges = ranges.drain(..).flat_map(|range| without(&range, &excluded)).collect();
    if let (true, Some(first)) = (before > 0 && ranges.is_empty(), excluded.first()) {
        let message = format!("leaves none of the pool's {before} addresses; exclude less");
        section.report.wrong(&first.place, message);
    }
    let ports = section.get("exclude_ports").and_then(|value| value.items("an array of ports"));
    let ports = ports.unwrap_or_default();
    let port = |value: &Value<'_>| {
        value.parsed("a string such as \"8080\" or \"5000-5010\"", values::ports)
    };
    LeftOut { ports: ports.iter().filter_map(port).collect(), draining: listed("drain") }
}

/// Removes addresses from a range.
fn without(
    range: &Located<AddressRange>,
    excluded: &[Located<AddressRange>],
) -> Vec<Located<AddressRange>> {
    let mut left = vec![(range.value.first.to_bits(), range.value.last.to_bits())];
    for hole in excluded {
        let (from, to) = (hole.value.first.to_bits(), hole.value.last.to_bits());
        let cut = |(first, last): (u32, u32)| -> Vec<(u32, u32)> {
            if to < first || last < from {
                return vec![(first, last)];
            }
            let before = (first < from).then(|| (first, from - 1));
            let after = (to < last).then(|| (to + 1, last));
            before.into_iter().chain(after).collect()
        };
        left = left.into_iter().flat_map(cut).collect();
    }
    let located = |(first, last)| Located {
        value: AddressRange { first: Ipv4Addr::from_bits(first), last: Ipv4Addr::from_bits(last) },
        place: range.place.clone(),
    };
    left.into_iter().map(located).collect()
}

fn size(range: AddressRange) -> u64 {
    u64::from(range.last.to_bits() - range.first.to_bits()) + 1
}

/// Reads the number of external addresses to reserve room for.
pub(super) fn read_room(limits: &Section<'_>) -> Option<Located<u32>> {
    let value = limits.get("external_addresses")?;
    let room = value.integer(1..=MOST_ADDRESSES)?;
    Some(Located { value: u32::try_from(room).ok()?, place: value.place })
}

/// Checks that each pool has addresses and ports left, owns what drains, and has room.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    for pool in &draft.pools {
        excluded_ports(draft, pool, report);
        draining(draft, pool, report);
    }
    room(draft, report);
}

fn excluded_ports(draft: &Draft, pool: &PoolDraft, report: &Report<'_>) {
    let (first, last) = pool.ports.value;
    let all = u32::from(last) - u32::from(first) + 1;
    for one in &pool.left_out.ports {
        let (from, to) = one.value;
        if to < first || last < from {
            let message =
                format!("{from}-{to} excludes nothing: the pool's ports are {first}-{last}");
            report.wrong(&one.place, format!("{message}; remove it"));
        }
    }
    let Some(place) = pool.left_out.ports.first().map(|one| &one.place) else { return };
    let config = pool.to_engine(Some(draft.allocation(pool)));
    let left = config.ports_used();
    if left == 0 {
        let message = format!("excludes all of the {all} ports {first}-{last}");
        report.wrong(place, format!("{message}; leave some"));
        return;
    }
    match config.allocation.as_ref() {
        Some(Allocation::Block(block)) => holes_in_blocks(block, &config, (place, report)),
        Some(Allocation::Deterministic(plan)) if !pool.ranges.is_empty() => {
            if let Ok(plan) = Plan::new(plan, &config) {
                holes_in_shares(&plan, &config, (place, report));
            }
        }
        _ => {}
    }
}

type At<'a, 'r> = (&'a super::problem::Place, &'a Report<'r>);

/// Number of usable ports of a range.
fn left(pool: &PoolConfig, (first, last): (u16, u16)) -> usize {
    (first..=last).filter(|&port| pool.uses_port(port)).count()
}

fn holes_in_blocks(block: &BlockConfig, pool: &PoolConfig, (place, report): At<'_, '_>) {
    let blocking = Blocking::new(pool.ports, block.size);
    let blocks: Vec<usize> = blocking.all().map(|ports| left(pool, ports)).collect();
    let full = usize::from(block.size);
    let (empty, short) = (
        blocks.iter().filter(|&&left| left == 0).count(),
        blocks.iter().filter(|&&left| 0 < left && left < full).count(),
    );
    if empty + short > 0 {
        let message = format!("of the {} blocks an address, {short} have", blocks.len());
        let message = format!("{message} fewer than {full} ports now and {empty} have none");
        report.unwise(place, format!("{message}; these are given to nobody"));
    }
}

fn holes_in_shares(plan: &Plan, pool: &PoolConfig, (place, report): At<'_, '_>) {
    let (first, share) = (u32::from(pool.ports.0), plan.ports_per_subscriber());
    let ranges = (0..plan.subscribers_per_address()).map(|place| {
        let from = first + place * share;
        (from as u16, (from + share - 1) as u16)
    });
    let ranges: Vec<((u16, u16), usize)> = ranges.map(|ports| (ports, left(pool, ports))).collect();
    if let Some(((from, to), _)) = ranges.iter().find(|(_, left)| *left == 0) {
        let message =
            format!("leaves whom {from}-{to} of an address are given none of the {share}");
        report.wrong(place, format!("{message} ports; exclude fewer, or give subscribers more"));
        return;
    }
    let short = ranges.iter().filter(|(_, left)| *left < share as usize).count();
    if short > 0 {
        let message = format!("of the {} ranges of {share} ports an address", ranges.len());
        report.unwise(place, format!("{message}, {short} have fewer now"));
    }
}

fn draining(draft: &Draft, pool: &PoolDraft, report: &Report<'_>) {
    let Some(first) = pool.left_out.draining.first() else { return };
    if matches!(draft.allocation(pool), Allocation::Deterministic(_)) {
        let message = "is of a deterministic pool, whose subscribers have no other ports";
        report.wrong(&first.place, format!("{message}; give the pool other addresses instead"));
        return;
    }
    let all: u64 = pool.ranges.iter().map(|range| size(range.value)).sum();
    let mut drains = 0;
    for one in &pool.left_out.draining {
        let of_pool = |range: &Located<AddressRange>| {
            let first = range.value.first.max(one.value.first);
            let last = range.value.last.min(one.value.last);
            if first <= last { size(AddressRange { first, last }) } else { 0 }
        };
        let own: u64 = pool.ranges.iter().map(of_pool).sum();
        drains += own;
        if own < size(one.value) {
            let others = size(one.value) - own;
            let message = format!("{} has {others} that", show_range(one.value));
            let message = match size(one.value) {
                1 => show_range(one.value),
                _ => message,
            };
            report.wrong(&one.place, format!("{message} the pool does not have; write its own"));
        }
    }
    if drains >= all && all > 0 {
        let message = format!("drains all {all} addresses of pool \"{}\"", pool.name.value);
        report.unwise(&first.place, format!("{message}: nobody gets a new mapping of it"));
    }
}

/// Checks that there is room for all named addresses.
fn room(draft: &Draft, report: &Report<'_>) {
    let Some(room) = &draft.room else { return };
    let ranges = draft.pools.iter().flat_map(|pool| &pool.ranges);
    let of_pools: u64 = ranges.clone().map(|range| size(range.value)).sum();
    let mut statics: Vec<Ipv4Addr> =
        draft.statics.iter().map(|mapping| mapping.external.value.0).collect();
    statics.sort_unstable();
    statics.dedup();
    let in_pool = |address: &Ipv4Addr| ranges.clone().any(|range| range.value.contains(*address));
    let others = statics.iter().filter(|address| !in_pool(address)).count() as u64;
    let named = of_pools + others;
    if u64::from(room.value) < named {
        let sum = format!("{of_pools} addresses of pools + {others} of static mappings = {named}");
        let message = format!("{} is less than the {sum}", room.value);
        report.wrong(&room.place, format!("{message}; write {} or more", named.max(LEAST_ROOM)));
    }
}
