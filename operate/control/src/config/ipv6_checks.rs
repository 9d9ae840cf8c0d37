//! Checks that compare the keys and tables of IPv6 with each other, and with pools.

use super::draft::{Draft, SideDraft};
use super::ipv6::{ClatDraft, MapDraft, Nptv6Draft};
use super::problem::{Located, Place, Report};
use super::router6;
use super::softwires;
use super::values::{overlaps, show_prefix, show_range};
use natgate_engine::Prefix;
use natgate_ipv6::{Pref64, Prefix6};
use std::collections::HashMap;
use std::fmt::Display;
use std::hash::Hash;

/// The packet that every link of IPv6 must carry, bytes (RFC 8200 section 5).
const LEAST_MTU: u16 = 1280;

/// Reports all parts that disagree.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    for side in [&draft.inside, &draft.outside] {
        next_hop_is_a_neighbor(side, report);
    }
    router6::check(draft, report);
    sides_differ(draft, report);
    links_are_wide_enough(draft, report);
    embedding_prefixes_differ(draft, report);
    nat64_hosts(draft, report);
    maps_differ(draft, report);
    maps_and_pools_differ(draft, report);
    clat_prefixes_differ(draft, report);
    nptv6_prefixes_differ(draft, report);
    softwires::check(draft, report);
    super::dslite::check(draft, report);
    conversion_is_used(draft, report);
}

fn next_hop_is_a_neighbor(side: &SideDraft, report: &Report<'_>) {
    let (Some(gateway), Some(own)) = (&side.gateway6, &side.address6) else { return };
    let Some(network) = side.network6() else { return };
    let (hop, name) = (gateway.value, side.name());
    if own.value.0 == hop {
        let message = format!("is {name}.address6 itself; write the next router's");
        report.wrong(&gateway.place, message);
    } else if !network.contains(hop) && !hop.is_unicast_link_local() {
        let message = format!("{hop} is not in {network}, the network of {name}.address6");
        report.wrong(&gateway.place, format!("{message}; write a neighbor's address"));
    }
}

fn sides_differ(draft: &Draft, report: &Report<'_>) {
    let (inside, outside) = (&draft.inside, &draft.outside);
    let (Some(one), Some(other)) = (&inside.address6, &outside.address6) else { return };
    let (Some(inner), Some(outer)) = (inside.network6(), outside.network6()) else { return };
    match (inner.contains(other.value.0), outer.contains(one.value.0)) {
        (true, true) => {
            let message = format!("is in one network with inside.address6 ({inner} and {outer})");
            report.wrong(&other.place, format!("{message}; the sides need different networks"));
        }
        (true, false) => {
            let message = format!("the inside network {inner} contains outside.address6");
            report.unwise(&one.place, format!("{message}; hosts there cannot reach the outside's"));
        }
        (false, true) => {
            let message = format!("the outside network {outer} contains inside.address6");
            report.unwise(&other.place, format!("{message}; hosts there cannot be told apart"));
        }
        (false, false) => {}
    }
}

/// Each link that carries IPv6 has IPv6's smallest MTU.
fn links_are_wide_enough(draft: &Draft, report: &Report<'_>) {
    let ipv6 = &draft.ipv6;
    let nat64 = ipv6.nat64.as_ref().map(|table| &table.place);
    let siit = ipv6.siit.as_ref().map(|table| &table.place);
    let clat = ipv6.clat.as_ref().map(|table| &table.place);
    let nptv6 = ipv6.nptv6.first().map(|table| &table.place);
    let lw4o6 = ipv6.lw4o6.as_ref().map(|table| &table.place);
    let dslite = ipv6.dslite.as_ref().map(|table| &table.place);
    let map = ipv6.map.first().map(|table| &table.place);
    let inside = [nat64, siit, nptv6, dslite, lw4o6, map];
    for (side, tables) in
        [(&draft.inside, inside), (&draft.outside, [clat, nptv6, None, None, None, None])]
    {
        let own = side.address6.as_ref().map(|address| &address.place);
        let Some(place) = own.or(tables.into_iter().flatten().next()) else { continue };
        if side.mtu < LEAST_MTU {
            let (name, mtu) = (side.name(), side.mtu);
            let message =
                format!("{name}.mtu is {mtu}, and a link of IPv6 has {LEAST_MTU} or more");
            report.wrong(place, format!("{message} (RFC 8200 section 5); raise it"));
        }
    }
}

/// An address has one translation: no two prefixes of `[nat64]` and `[siit]` overlap.
fn embedding_prefixes_differ(draft: &Draft, report: &Report<'_>) {
    let nat64 = draft.ipv6.nat64.iter().flat_map(|table| &table.prefixes);
    let siit = draft.ipv6.siit.iter().flat_map(|table| &table.prefixes);
    let mut seen: Vec<&Located<Pref64>> = Vec::new();
    let mut all: Vec<&Located<Pref64>> = nat64.chain(siit).collect();
    all.sort_by_key(|prefix| prefix.place.offset);
    for prefix in all {
        let own = prefix.value.prefix();
        if let Some(other) = seen.iter().find(|seen| seen.value.prefix().overlaps(own)) {
            let (line, key) = (report.line(other.place.offset), &other.place.key);
            let message = format!("{own} overlaps {key} in line {line} ({})", other.value);
            report.wrong(&prefix.place, format!("{message}; each address needs one translation"));
        }
        seen.push(prefix);
    }
}

/// Hosts of `[nat64]` have addresses outside of its prefixes.
fn nat64_hosts(draft: &Draft, report: &Report<'_>) {
    let Some(nat64) = &draft.ipv6.nat64 else { return };
    let within = |inner: Prefix6| {
        let prefixes = nat64.prefixes.iter().map(|prefix| prefix.value.prefix());
        prefixes.into_iter().find(|outer| outer.len <= inner.len && outer.overlaps(inner))
    };
    for subscribers in &nat64.subscribers {
        if let Some(prefix) = within(subscribers.value) {
            let message = format!("{} is in {prefix} of prefixes", subscribers.value);
            let message = format!("{message}, whose addresses stand for IPv4 ones");
            report.wrong(&subscribers.place, format!("{message}; write prefixes of hosts"));
        }
    }
    for side in [&draft.inside, &draft.outside] {
        let Some(Located { value: (address, _), place }) = &side.address6 else { continue };
        if let Some(prefix) = within(Prefix6 { address: *address, len: 128 }) {
            let message = format!("{address} is in {prefix} of nat64.prefixes");
            let message = format!("{message}, whose addresses stand for IPv4 ones");
            report.wrong(place, format!("{message}; write another address"));
        }
    }
    let mut wider: Option<&Located<Prefix6>> = None;
    let mut sorted: Vec<&Located<Prefix6>> = nat64.subscribers.iter().collect();
    sorted.sort_by_key(|prefix| (prefix.value.first(), prefix.value.len, prefix.place.offset));
    for prefix in sorted {
        match wider.filter(|wider| wider.value.contains(prefix.value.address)) {
            Some(wider) => {
                let message =
                    format!("{} has no effect: {} contains it", prefix.value, wider.value);
                report.unwise(&prefix.place, message);
            }
            None => wider = Some(prefix),
        }
    }
}

/// No two maps have one prefix, and no map is in a prefix of `[nat64]`.
fn maps_differ(draft: &Draft, report: &Report<'_>) {
    let Some(siit) = &draft.ipv6.siit else { return };
    let mut by_ipv6 = HashMap::new();
    let mut by_ipv4 = HashMap::new();
    for map in &siit.maps {
        let (ipv6, ipv4) = (map.ipv6.value, map.ipv4.value);
        once(&mut by_ipv6, (ipv6.first(), ipv6.len), ipv6, &map.ipv6.place, report);
        once(&mut by_ipv4, ipv4, show_prefix(ipv4), &map.ipv4.place, report);
        let nat64 = draft.ipv6.nat64.iter().flat_map(|table| &table.prefixes);
        for prefix in nat64.filter(|prefix| prefix.value.prefix().overlaps(ipv6)) {
            let (line, key) = (report.line(prefix.place.offset), &prefix.place.key);
            let message = format!("{ipv6} overlaps {key} in line {line} ({})", prefix.value);
            let message = format!("{message}; each address needs one translation");
            report.wrong(&map.ipv6.place, message);
        }
    }
}

/// Reports a prefix that an earlier map has.
fn once<K: Hash + Eq>(
    seen: &mut HashMap<K, usize>,
    key: K,
    shown: impl Display,
    place: &Place,
    report: &Report<'_>,
) {
    if let Some(line) = seen.insert(key, report.line(place.offset)) {
        let message = format!("{shown} has a map in line {line} already, and a map is one to one");
        report.wrong(place, format!("{message} (RFC 7757 section 3.1); keep one"));
    }
}

/// An external address belongs to a pool or to a map.
fn maps_and_pools_differ(draft: &Draft, report: &Report<'_>) {
    let Some(siit) = &draft.ipv6.siit else { return };
    let mut ranges: Vec<_> = draft.pools.iter().flat_map(|pool| &pool.ranges).collect();
    ranges.sort_by_key(|range| range.value.first);
    let conflict = |prefix: Prefix| {
        // Ranges do not overlap here: an overlap has been reported.
        let after = ranges.partition_point(|range| range.value.first.to_bits() <= prefix.last());
        let last = ranges.get(after.checked_sub(1)?)?;
        overlaps(last.value, prefix).then_some(*last)
    };
    for MapDraft { ipv4, .. } in &siit.maps {
        if let Some(range) = conflict(ipv4.value) {
            let (key, line) = (&range.place.key, report.line(range.place.offset));
            let (one, other) = (show_prefix(ipv4.value), show_range(range.value));
            let message = format!("{one} overlaps {key} in line {line} ({other})");
            report.wrong(&ipv4.place, format!("{message}; take the addresses out of one of them"));
        }
    }
}

//= rfc6877#section-2-prefixes
fn clat_prefixes_differ(draft: &Draft, report: &Report<'_>) {
    let Some(ClatDraft { prefix: Some(prefix), source: Some(source), .. }) = &draft.ipv6.clat
    else {
        return;
    };
    if prefix.value.prefix().overlaps(source.value.prefix()) {
        let message = format!("{} overlaps clat.prefix ({})", source.value, prefix.value);
        let message = format!("{message}, so hosts could not be told from the Internet");
        report.wrong(&source.place, format!("{message}; write a prefix of your own"));
    }
}

/// An address is in one prefix of one pair.
fn nptv6_prefixes_differ(draft: &Draft, report: &Report<'_>) {
    let mut seen: Vec<&Nptv6Draft> = Vec::new();
    for pair in &draft.ipv6.nptv6 {
        for own in [&pair.internal, &pair.external] {
            let others = seen.iter().flat_map(|other| [&other.internal, &other.external]);
            let Some(other) = others.into_iter().find(|other| other.value.overlaps(own.value))
            else {
                continue;
            };
            let (line, key) = (report.line(other.place.offset), &other.place.key);
            let message = format!("{} overlaps {key} in line {line} ({})", own.value, other.value);
            report.wrong(&own.place, format!("{message}; each address needs one translation"));
        }
        seen.push(pair);
    }
}

/// Keys about conversion need a table that converts.
fn conversion_is_used(draft: &Draft, report: &Report<'_>) {
    let ipv6 = &draft.ipv6;
    let has_softwires = ipv6.dslite.is_some() || ipv6.lw4o6.is_some() || !ipv6.map.is_empty();
    if ipv6.nat64.is_some() || ipv6.siit.is_some() || ipv6.clat.is_some() || has_softwires {
        return;
    }
    for place in &ipv6.converting {
        let message = "has no effect, because no table translates between IPv4 and IPv6";
        report.wrong(place, format!("{message}; take it out, or write [nat64], [siit] or [clat]"));
    }
}
