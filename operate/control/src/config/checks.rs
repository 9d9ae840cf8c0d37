//! Checks that compare the parts of a configuration.
//!
//! Each check is one small function of the draft. An error is a setting that cannot work or would
//! silently have no effect. A warning is a setting that works but that an operator should know
//! about. If two parts disagree, the later one in the file is reported.

use super::alg;
use super::devices;
use super::draft::{Draft, SideDraft, TCP_HEADERS};
use super::fleet;
use super::ipv6_checks;
use super::kernel;
use super::neighbors;
use super::policy;
use super::pools;
use super::problem::{Located, Report};
use super::realms;
use super::rule_checks;
use super::sections::SegmentSize;
use super::shares;
use super::static_checks;
use super::values::{overlaps, show_prefix, show_range};
use natgate_engine::{AddressRange, Allocation, Plan, Pooling, Prefix, Side};
use natgate_gateway::Backend;
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

/// Addresses that pools and static mappings may have together: the engine's limit.
pub(super) const MOST_ADDRESSES: u64 = (1 << 15) - 1;

/// Reports all parts that disagree.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    for side in draft.insides().chain([&draft.outside]) {
        gateway_is_a_neighbor(side, report);
    }
    sides_differ(draft, report);
    realms::check(draft, report);
    realms::networks(draft, report);
    dpdk_is_used(draft, report);
    kernel::check(draft, report);
    routes(draft, report);
    neighbors::check(draft, report);
    pool_names_differ(draft, report);
    pool_addresses_do_not_overlap(draft, report);
    addresses_are_not_too_many(draft, report);
    subscribers(draft, report);
    external_addresses(draft, report);
    static_checks::check(draft, report);
    rule_checks::check(draft, report);
    alg::check(draft, report);
    pools_are_used(draft, report);
    quota_fits(draft, report);
    segments_are_limited(draft, report);
    policy::check(draft, report);
    parity_can_be_kept(draft, report);
    shares::check(draft, report);
    pools::check(draft, report);
    table_is_not_too_large(draft, report);
    ipv6_checks::check(draft, report);
    fleet::check(draft, report);
}

fn gateway_is_a_neighbor(side: &SideDraft, report: &Report<'_>) {
    let (Some(gateway), Some(network)) = (&side.gateway, side.network()) else { return };
    neighbor(gateway, network, side, report);
}

/// A next hop must be in the connected network, and not the gateway itself.
fn neighbor(hop: &Located<Ipv4Addr>, network: Prefix, side: &SideDraft, report: &Report<'_>) {
    let (name, shown) = (side.name(), show_prefix(network));
    if side.own() == Some(hop.value) {
        report.wrong(&hop.place, format!("is {name}.address itself; write the next router's"));
    } else if !network.contains(hop.value.into()) {
        let message = format!("{} is not in {shown}, the network of {name}.address", hop.value);
        report.wrong(&hop.place, format!("{message}; write a neighbor's address"));
    }
}

fn sides_differ(draft: &Draft, report: &Report<'_>) {
    let (inside, outside) = (&draft.inside, &draft.outside);
    if let Some(other) = &outside.device
        && devices::is_one(inside, outside)
    {
        let message = format!("\"{}\" is the inside's device too", other.value);
        report.wrong(&other.place, format!("{message}; each side needs its own"));
    }
    let (Some(one), Some(other)) = (&inside.address, &outside.address) else { return };
    let (Some(inner), Some(outer)) = (inside.network(), outside.network()) else { return };
    let outside_in_inner = inner.contains(other.value.0.into());
    let inside_in_outer = outer.contains(one.value.0.into());
    let (inner, outer) = (show_prefix(inner), show_prefix(outer));
    if outside_in_inner && inside_in_outer {
        let message = format!("is in one network with inside.address ({inner} and {outer})");
        report.wrong(&other.place, format!("{message}; the sides need different networks"));
    } else if outside_in_inner {
        let message = format!("the inside network {inner} contains outside.address");
        report.unwise(&one.place, format!("{message}; hosts there cannot reach the outside's"));
    } else if inside_in_outer {
        let message = format!("the outside network {outer} contains inside.address");
        report.unwise(&other.place, format!("{message}; hosts there cannot be told apart"));
    }
}

fn dpdk_is_used(draft: &Draft, report: &Report<'_>) {
    let used = [&draft.inside, &draft.outside].iter().any(|side| side.backend == Backend::Dpdk);
    if let Some(dpdk) = &draft.dpdk
        && !used
    {
        let message = "has no effect, because no side has backend = \"dpdk\"; take it out";
        report.wrong(&dpdk.place, message);
    }
}

fn routes(draft: &Draft, report: &Report<'_>) {
    let mut seen: HashMap<(u16, Prefix), usize> = HashMap::new();
    let names = draft.realm_names();
    for route in &draft.routes {
        let Some(realm) = names.of(&route.realm) else { continue };
        let side = match route.side {
            Side::Inside => draft.inside_of(realm),
            Side::Outside => &draft.outside,
        };
        if let Some(network) = side.network() {
            neighbor(&route.via, network, side, report);
        }
        let (prefix, place) = (route.prefix.value, &route.prefix.place);
        let shown = show_prefix(prefix);
        if let Some(line) = seen.insert((realm, prefix), report.line(place.offset)) {
            let message = format!("{shown} has a route in line {line} already; keep one");
            report.wrong(place, message);
        }
        if let Some(connected) = [draft.inside_of(realm), &draft.outside]
            .iter()
            .find(|side| side.network() == Some(prefix))
        {
            let name = connected.name();
            let message = format!("{shown} is the network of {name}.address, which goes first");
            report.wrong(place, format!("{message}; remove the route"));
        }
        if prefix.is_empty() && side.gateway.is_some() {
            let message = format!("stands beside {}.gateway, which means the same", side.name());
            report.wrong(place, format!("{message}; keep one of the two"));
        }
    }
}

fn pool_names_differ(draft: &Draft, report: &Report<'_>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for pool in &draft.pools {
        let line = report.line(pool.name.place.offset);
        if let Some(line) = seen.insert(&pool.name.value, line) {
            let message = format!("\"{}\" is the name of the pool in line {line}", pool.name.value);
            report.wrong(&pool.name.place, format!("{message}; give each pool its own"));
        }
    }
}

/// Sweeps over all ranges in order of address. Reports each range that overlaps an earlier one, at
/// the later of both in the file.
fn pool_addresses_do_not_overlap(draft: &Draft, report: &Report<'_>) {
    let mut ranges: Vec<&Located<AddressRange>> = all_ranges(draft).collect();
    ranges.sort_by_key(|range| (range.value.first, range.place.offset));
    let mut farthest: Option<&Located<AddressRange>> = None;
    for range in ranges {
        if let Some(seen) = farthest.filter(|seen| range.value.first <= seen.value.last) {
            let (earlier, later) =
                if seen.place.offset < range.place.offset { (seen, range) } else { (range, seen) };
            let (one, other) = (show_range(later.value), show_range(earlier.value));
            let line = report.line(earlier.place.offset);
            let message = format!("{one} overlaps {} in line {line} ({other})", earlier.place.key);
            report.wrong(&later.place, format!("{message}; name each address once"));
        }
        if farthest.is_none_or(|seen| range.value.last > seen.value.last) {
            farthest = Some(range);
        }
    }
}

/// The ranges of all pools.
pub(super) fn all_ranges(draft: &Draft) -> impl Iterator<Item = &Located<AddressRange>> {
    draft.pools.iter().flat_map(|pool| &pool.ranges)
}

/// Reports the first entry that exceeds the limit.
fn addresses_are_not_too_many(draft: &Draft, report: &Report<'_>) {
    let of_pools = all_ranges(draft).map(|range| (size(range.value), &range.place));
    let targets = draft.targets();
    let mut seen = HashSet::new();
    let of_statics = draft.statics.iter().filter_map(|mapping| {
        let address = mapping.external.value.0;
        let more = targets.pool_of(address).is_none() && seen.insert(address);
        more.then_some((1, &mapping.external.place))
    });
    let mut total = 0;
    for (count, place) in of_pools.chain(of_statics) {
        total += count;
        if total > MOST_ADDRESSES {
            let message = format!("makes {total} external addresses with those before it");
            report.wrong(place, format!("{message}; at most {MOST_ADDRESSES} are possible"));
            return;
        }
    }
}

fn subscribers(draft: &Draft, report: &Report<'_>) {
    // With several realms the default realm may have no subscribers.
    let names_others = !draft.statics.is_empty()
        || !draft.realms.is_empty()
        || draft.rules.iter().any(|rule| rule.action.is_snat());
    if let Some(place) = draft.no_subscribers.as_ref().filter(|_| !names_others) {
        report.wrong(place, "names nobody, nor does a rule; write inside prefixes");
    }
    let further = draft.realms.iter().filter_map(|realm| realm.subscribers.as_ref());
    for subscribers in std::iter::once(&draft.subscribers).chain(further) {
        no_prefix_in_another(subscribers, report);
    }
}

fn no_prefix_in_another(subscribers: &[Located<Prefix>], report: &Report<'_>) {
    let mut seen: Vec<&Located<Prefix>> = Vec::new();
    let mut sorted: Vec<&Located<Prefix>> = subscribers.iter().collect();
    sorted.sort_by_key(|prefix| (prefix.value.first(), prefix.value.len(), prefix.place.offset));
    for prefix in sorted {
        if let Some(wider) = seen.last().filter(|wider| wider.value.contains(prefix.value.first()))
        {
            let (one, other) = (show_prefix(prefix.value), show_prefix(wider.value));
            report.unwise(&prefix.place, format!("{one} has no effect: {other} contains it"));
        } else {
            seen.push(prefix);
        }
    }
}

/// Reports external addresses, of pools and static mappings, that hosts or the gateway have.
fn external_addresses(draft: &Draft, report: &Report<'_>) {
    let statics = draft.statics.iter().map(|mapping| Located {
        value: AddressRange { first: mapping.external.value.0, last: mapping.external.value.0 },
        place: mapping.external.place.clone(),
    });
    for range in all_ranges(draft).cloned().chain(statics) {
        let shown = show_range(range.value);
        if let Some(inside) = draft.subscribers.iter().find(|s| overlaps(range.value, s.value)) {
            let prefix = show_prefix(inside.value);
            let remedy = "set nat.subscribers to the inside prefixes only";
            let message = format!("{shown} overlaps {prefix} of nat.subscribers; {remedy}");
            report.wrong(&range.place, message);
        }
        let further = draft.realms.iter().filter_map(|realm| realm.subscribers.as_ref());
        if let Some(inside) = further.flatten().find(|s| overlaps(range.value, s.value)) {
            let (prefix, key) = (show_prefix(inside.value), &inside.place.key);
            let message =
                format!("{shown} overlaps {prefix} of {key}; write inside prefixes there");
            report.wrong(&range.place, message);
        }
        let gateway = |side: &SideDraft| side.gateway.as_ref().map(|gateway| gateway.value);
        let inside = draft.insides().flat_map(|side| {
            let name = |key: &str| format!("{}.{key}", side.name());
            [(name("address"), side.own()), (name("gateway"), gateway(side))]
        });
        let outside = ("outside.gateway".to_owned(), gateway(&draft.outside));
        for (name, address) in inside.chain([outside]) {
            let Some(address) = address.filter(|address| contains(range.value, *address)) else {
                continue;
            };
            let message = format!("{shown} contains {name} ({address}); leave that address out");
            report.wrong(&range.place, message);
        }
        for side in draft.insides() {
            if let Some(network) = side.network().filter(|n| overlaps(range.value, *n)) {
                let (network, name) = (show_prefix(network), side.name());
                let message = format!("{shown} is in {network}, the network of {name}.address");
                report.unwise(&range.place, message);
            }
        }
    }
}

fn contains(range: AddressRange, address: Ipv4Addr) -> bool {
    (range.first..=range.last).contains(&address)
}

fn pools_are_used(draft: &Draft, report: &Report<'_>) {
    let mut used = vec![false; draft.pools.len()];
    let targets = draft.targets();
    let named = draft.rules.iter().filter_map(|rule| targets.of(&rule.action));
    let by_realms = draft.realms.iter().filter_map(|realm| realm.pool.as_ref());
    let named = named.chain(by_realms.filter_map(|pool| targets.pool(&pool.value)));
    for index in named.chain([draft.default_pool()]) {
        if let Some(pool) = used.get_mut(index) {
            *pool = true;
        }
    }
    for (pool, _) in draft.pools.iter().zip(used).filter(|(_, used)| !used) {
        let message = format!("no rule names pool \"{}\", so it is never used", pool.name.value);
        report.unwise(&pool.name.place, message);
    }
}

fn quota_fits(draft: &Draft, report: &Report<'_>) {
    if draft.config.pooling != Pooling::Paired {
        return;
    }
    let limits = &draft.config.limits;
    let everybodys = |pool: &&super::draft::PoolDraft| {
        matches!(draft.allocation(pool), Allocation::Random | Allocation::Preserve)
    };
    for pool in draft.pools.iter().filter(everybodys) {
        let (first, last) = pool.ports.value;
        let ports = u32::from(last - first) + 1;
        for (protocol, quota) in
            [("TCP", limits.tcp_ports), ("UDP", limits.udp_ports), ("ICMP", limits.icmp_ports)]
        {
            if quota > ports {
                let name = &pool.name.value;
                let message =
                    format!("the {protocol} quota of {quota} is more than the {ports} ports");
                let why = "which is all that a subscriber gets under paired pooling";
                let message = format!("{message} of an address of pool \"{name}\", {why}");
                report.unwise(&draft.quota_place, message);
            }
        }
    }
}

/// A limit above the largest MTU would change no packet.
fn segments_are_limited(draft: &Draft, report: &Report<'_>) {
    let SegmentSize::Bytes(size) = &draft.segment_size else { return };
    let mtu = draft.largest_mtu();
    let largest = mtu.saturating_sub(TCP_HEADERS);
    if size.value > largest {
        let message =
            format!("{} has no effect: the largest mtu, {mtu}, leaves {largest}", size.value);
        report.wrong(&size.place, format!("{message}; write less than that, or \"mtu\""));
    }
}

fn parity_can_be_kept(draft: &Draft, report: &Report<'_>) {
    for pool in draft.pools.iter().filter(|_| draft.config.port_parity) {
        let (first, last) = pool.ports.value;
        if first == last {
            let lost = if first % 2 == 0 { "odd" } else { "even" };
            let message = format!("port {first} alone leaves {lost} ports without nat.port_parity");
            report.unwise(&pool.ports.place, message);
        }
    }
}

fn table_is_not_too_large(draft: &Draft, report: &Report<'_>) {
    let Some(mappings) = draft.config.limits.mappings.map(u64::from) else { return };
    let endpoints = |pool: &super::draft::PoolDraft| {
        let (first, last) = pool.ports.value;
        let addresses = pool.ranges.iter().map(|range| size(range.value)).sum::<u64>();
        let per_port = if pool.overloading { u64::from(u16::MAX) } else { 1 };
        let all = addresses * (u64::from(last - first) + 1);
        let plan = match draft.allocation(pool) {
            Allocation::Deterministic(plan) => Plan::new(&plan, &pool.to_engine(None)).ok(),
            _ => None,
        };
        plan.map_or(all, |plan| plan.ports_usable()).saturating_mul(3 * per_port)
    };
    let statics = draft.statics.iter().map(|mapping| u64::from(mapping.count()) * 3).sum();
    let all = draft.pools.iter().map(endpoints).fold(statics, u64::saturating_add);
    if mappings > all {
        let message = format!("{mappings} mappings take memory for more than the pools' {all}");
        report.unwise(&draft.mappings_place, message);
    }
}

fn size(range: AddressRange) -> u64 {
    u64::from(u32::from(range.last) - u32::from(range.first)) + 1
}
