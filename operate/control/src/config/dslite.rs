//! Reads `[dslite]`, and compares it with other tables.

use super::draft::Draft;
use super::ipv6::Nat64Draft;
use super::problem::{Located, Place, Report};
use super::reader::Section;
use super::sections::read_duration;
use super::softwires::{read_end, read_softwire};
use super::values6;
use natgate_ipv6::softwire::{DsliteSettings, MapMode, SoftwireSettings};
use natgate_ipv6::{Prefix6, StaticHost};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bounds of the bits that name a subscriber: a site's prefix, one address.
const SUBSCRIBER_LENGTHS: (u64, u64) = (48, 128);
/// Least time between two changes of a B4, if the file does not say (RFC 7785 section 4).
const INTERVAL: Duration = Duration::from_secs(1800);
/// Bounds of this time.
const INTERVALS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(30 * 86_400);

/// `[dslite]`. A faulty value is absent.
pub(super) struct DsliteDraft {
    pub(super) place: Place,
    address: Option<Located<Ipv6Addr>>,
    b4: Vec<Located<Prefix6>>,
    pub(super) subscriber_length: u8,
    b4_change_interval: Duration,
    softwire: SoftwireSettings,
}

/// Reads the table.
pub(super) fn read(section: &Section<'_>) -> Option<DsliteDraft> {
    if !section.is_present() {
        return None;
    }
    let address = section.require("address", "\"2001:db8:ffff::1\"");
    let address = address.and_then(|value| read_end(&value));
    let mut b4: Vec<Located<Prefix6>> = Vec::new();
    if let Some(value) = section.require("b4", "[\"2001:db8:b4::/40\"]") {
        let items = value.items("an array of IPv6 prefixes").unwrap_or_default();
        if items.is_empty() {
            value.wrong("has no prefix, so no B4 could send; write its prefix");
        }
        for item in items {
            b4.extend(item.parsed("an IPv6 prefix", values6::prefix6_around));
        }
    }
    let length = section.get("subscriber_length");
    let length =
        length.and_then(|value| value.integer(SUBSCRIBER_LENGTHS.0..=SUBSCRIBER_LENGTHS.1));
    let interval = section.get("b4_change_interval");
    let interval = interval.and_then(|value| read_duration(&value, &INTERVALS));
    Some(DsliteDraft {
        place: section.place.clone(),
        address,
        b4,
        subscriber_length: length.map_or(128, |length| length as u8),
        b4_change_interval: interval.unwrap_or(INTERVAL),
        softwire: read_softwire(section, true),
    })
}

/// Warns of the first prefix of B4s that are one subscriber together. A subscriber has one tunnel,
/// so customers who share it would take it from one another.
fn warn_of_shared(dslite: &DsliteDraft, report: &Report<'_>) {
    let len = dslite.subscriber_length;
    let subscriber = |b4: Prefix6| Prefix6 { address: Prefix6 { len, ..b4 }.first(), len };
    let mut alone: BTreeMap<u128, Ipv6Addr> = BTreeMap::new();
    let mut is_shared = |b4: Prefix6| {
        let mut first = || *alone.entry(subscriber(b4).address.to_bits()).or_insert(b4.address);
        b4.len > len && (b4.len < 128 || first() != b4.address)
    };
    let Some(b4) = dslite.b4.iter().find(|b4| is_shared(b4.value)) else { return };
    let prefix = Prefix6 { address: b4.value.first(), len: b4.value.len };
    let message =
        format!("{prefix} is in {}, one subscriber with one tunnel", subscriber(b4.value));
    let message = format!("{message}: other customers there would take it");
    let advice = "if each customer has a longer prefix, write subscriber_length of their length";
    report.unwise(&b4.place, format!("{message}; {advice}"));
}

/// Reports what disagrees with `[nat64]`. A packet from one of its prefixes would turn round.
fn agrees_with_nat64(dslite: &DsliteDraft, nat64: &Nat64Draft, report: &Report<'_>) {
    for prefix in nat64.prefixes.iter().map(|prefix| prefix.value.prefix()) {
        let advice = "addresses there stand for IPv4 ones; write another";
        if let Some(address) = dslite.address.as_ref().filter(|own| prefix.contains(own.value)) {
            let message = format!("{} is in {prefix} of nat64.prefixes", address.value);
            report.wrong(&address.place, format!("{message}: {advice}"));
        }
        let overlaps = |b4: &&Located<Prefix6>| {
            prefix.contains(b4.value.first()) || b4.value.contains(prefix.first())
        };
        for b4 in dslite.b4.iter().filter(overlaps) {
            let message = format!("{} overlaps {prefix} of nat64.prefixes", b4.value);
            report.wrong(&b4.place, format!("{message}: {advice}"));
        }
    }
}

/// Reports what disagrees with other tables.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    let Some(dslite) = &draft.ipv6.dslite else { return };
    if let Some(nat64) = &draft.ipv6.nat64 {
        agrees_with_nat64(dslite, nat64, report);
    }
    warn_of_shared(dslite, report);
    let Some(address) = &dslite.address else { return };
    let own = address.value;
    let in_lw4o6 = draft.ipv6.lw4o6.iter().any(|lw4o6| lw4o6.has_end(own));
    let in_map = draft.ipv6.map.iter().any(|map| map.mode() == MapMode::Encapsulation(own));
    if in_lw4o6 || in_map {
        let table = if in_lw4o6 { "[lw4o6]" } else { "[[map]]" };
        let message = format!("{own} is an end of tunnels of {table} too");
        report.wrong(&address.place, format!("{message}; packets need one table, write another"));
    }
    for b4 in dslite.b4.iter().filter(|b4| b4.value.contains(own)) {
        if b4.value.len == 128 {
            let message = format!("{own} is dslite.address, the gateway's end of the tunnels");
            report.wrong(&b4.place, format!("{message}; write the prefix of the B4s"));
        } else {
            let message = format!("{} contains dslite.address ({own}), which is no B4", b4.value);
            report.unwise(&b4.place, format!("{message}; write prefixes of B4s alone"));
        }
    }
}

impl DsliteDraft {
    /// True if no value is faulty or missing.
    pub(super) fn is_whole(&self) -> bool {
        self.address.is_some() && !self.b4.is_empty()
    }

    /// The gateway's end of the tunnels.
    pub(super) fn end(&self) -> Option<Ipv6Addr> {
        self.address.as_ref().map(|address| address.value)
    }

    /// The place of [`DsliteDraft::end`] in the file.
    pub(super) fn end_place(&self) -> Option<&Place> {
        self.address.as_ref().map(|address| &address.place)
    }

    /// True if all addresses of a prefix are those of B4s.
    pub(super) fn has_all(&self, prefix: Prefix6) -> bool {
        self.b4.iter().any(|b4| b4.value.len <= prefix.len && b4.value.contains(prefix.address))
    }

    /// The prefixes of the B4s, as a list, if an address is in none of them.
    pub(super) fn others(&self, b4: Ipv6Addr) -> Option<String> {
        let is_one = self.b4.iter().any(|prefix| prefix.value.contains(b4));
        let shown = || self.b4.iter().map(|prefix| prefix.value.to_string()).collect::<Vec<_>>();
        (!is_one).then(|| shown().join(", "))
    }

    /// Converts the table to settings.
    ///
    /// # Panics
    /// If a value is faulty, which is a problem of the file.
    pub(super) fn settings(&self, static_hosts: Vec<StaticHost>) -> DsliteSettings {
        DsliteSettings {
            address: self.address.as_ref().expect("a table without its values is a problem").value,
            b4: self.b4.iter().map(|prefix| prefix.value).collect(),
            subscriber_length: self.subscriber_length,
            b4_change_interval: self.b4_change_interval,
            softwire: self.softwire,
            static_hosts,
        }
    }
}
