//! Reads `[pcp]`: requests for mappings by PCP and NAT-PMP.

use super::dslite::DsliteDraft;
use super::problem::Located;
use super::reader::{Section, Value};
use super::sections::{bounded, read_duration};
use super::values::{self, show_duration};
use super::values6;
use natgate_engine::{Limits, Prefix};
use natgate_gateway::PcpSettings;
use natgate_gateway::ipv6::Prefix6;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bounds of a mapping's lifetime.
const LIFETIMES: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(30 * 86_400);
/// Shortest lifetime without a warning (RFC 6887 section 15).
const WISE: Duration = Duration::from_secs(120);
/// Default of the total of requested mappings.
const DEFAULT_MAPPINGS: u32 = 65_536;
const MOST_MAPPINGS: u64 = 1 << 24;
/// The server searches a subscriber's mappings one by one.
const MOST_PER_SUBSCRIBER: u64 = 1024;
const MOST_TRUSTED: usize = 256;

/// The tables whose hosts have numbers.
#[derive(Clone, Copy)]
pub(super) struct Numbered<'d> {
    /// Number of workers that the hosts of `[nat64]` are divided among, if there are any.
    pub(super) nat64: Option<usize>,
    /// `[dslite]`, if there is one.
    pub(super) dslite: Option<&'d DsliteDraft>,
}

/// Reads the table. The total of requested mappings goes to the translator's `limits`.
/// `numbered`: the tables whose hosts have numbers.
pub(super) fn read(
    section: &Section<'_>,
    numbered: Numbered<'_>,
    limits: &mut Limits,
) -> PcpSettings {
    let mut settings = PcpSettings::default();
    for (key, slot) in [
        ("enabled", &mut settings.enabled),
        ("nat_pmp", &mut settings.nat_pmp),
        ("announce", &mut settings.announce),
    ] {
        if let Some(value) = section.get(key).and_then(|value| value.boolean()) {
            *slot = value;
        }
    }
    settings.lifetime = read_lifetimes(section, settings.lifetime);
    if let Some(value) = section.get("third_party") {
        read_trusted(&value, numbered, &mut settings);
    }
    let (each, all) = settings.requests_per_second;
    let most = 1_000_000;
    settings.requests_per_second = (
        bounded(section, "client_requests_per_second", 1, most).unwrap_or(each),
        bounded(section, "requests_per_second", 1, most).unwrap_or(all),
    );
    let port_set = section.get("port_set").and_then(|value| value.integer(1..=256));
    settings.port_set = port_set.map_or(settings.port_set, |value| value as u16);
    let mappings = bounded(section, "mappings", 1, MOST_MAPPINGS).unwrap_or(DEFAULT_MAPPINGS);
    // Without PCP no room is reserved.
    limits.explicit_mappings = if settings.enabled { mappings } else { 0 };
    if let Some(each) = bounded(section, "mappings_per_subscriber", 1, MOST_PER_SUBSCRIBER) {
        limits.explicit_per_subscriber = each;
    }
    settings
}

//= rfc6887#section-15-configurable
fn read_lifetimes(section: &Section<'_>, usual: (Duration, Duration)) -> (Duration, Duration) {
    let read = |key| {
        let value = section.get(key)?;
        let lifetime = read_duration(&value, &LIFETIMES)?;
        if lifetime.subsec_nanos() != 0 {
            value.wrong("must be whole seconds, as the protocol has it");
            return None;
        }
        Some(Located { value: lifetime, place: value.place })
    };
    let (least, most) = (read("min_lifetime"), read("max_lifetime"));
    if let Some(least) = least.as_ref().filter(|least| least.value < WISE) {
        let shown = show_duration(least.value);
        let message = format!("{shown} is below the 2m that RFC 6887 section 15 asks for");
        section.report.unwise(&least.place, message);
    }
    let place = least.as_ref().or(most.as_ref()).map(|found| found.place.clone());
    let value = |found: Option<Located<Duration>>, usual| found.map_or(usual, |found| found.value);
    let (least, most) = (value(least, usual.0), value(most, usual.1));
    if let Some(place) = place.filter(|_| least > most) {
        let (least, most) = (show_duration(least), show_duration(most));
        let message = format!("min_lifetime {least} is above max_lifetime {most}; exchange them");
        section.report.wrong(&place, message);
    }
    (least, most)
}

/// A prefix of either family.
enum Trusted {
    Ipv4(Prefix),
    Ipv6(Prefix6),
}

/// Reads the hosts that may request mappings for other hosts.
fn read_trusted(value: &Value<'_>, numbered: Numbered<'_>, settings: &mut PcpSettings) {
    let Some(items) = value.items("an array of prefixes") else { return };
    if items.len() > MOST_TRUSTED {
        value.wrong(format!("has {} prefixes; it may have {MOST_TRUSTED}", items.len()));
        return;
    }
    let read = |text: &str| match text.contains(':') {
        true => values6::prefix6(text).map(Trusted::Ipv6),
        false => values::prefix(text).map(Trusted::Ipv4),
    };
    for item in &items {
        let Some(found) = item.parsed("a prefix in quotes", read) else { continue };
        match found.value {
            Trusted::Ipv4(prefix) if !prefix.is_empty() => settings.third_party.push(prefix),
            Trusted::Ipv6(_) if numbered.nat64.is_none() && numbered.dslite.is_none() => {
                item.wrong("is of IPv6, and no [nat64] translates for it; name hosts of IPv4");
            }
            // B4s are trusted in their tunnels alone, which one worker each has.
            Trusted::Ipv6(prefix)
                if numbered.nat64 > Some(1)
                    && !numbered.dslite.is_some_and(|dslite| dslite.has_all(prefix)) =>
            {
                item.wrong(
                    "is of IPv6: that works with one worker so far; write workers.count = 1",
                );
            }
            Trusted::Ipv6(prefix) if prefix.len > 0 => settings.third_party_ipv6.push(prefix),
            _ => {
                item.wrong("lets every subscriber take and give away the others' ports; name hosts")
            }
        }
    }
}
