//! Keys about the kernel of the machine: `management` of a side, `[announce]`, `[learn]` and
//! `[shutdown]`.

use super::draft::{Draft, SideDraft};
use super::problem::{Located, Place, Report};
use super::reader::{Section, Value};
use super::sections::{is_usable, read_duration};
use super::values;
use natgate_gateway::{AnnounceSettings, Backend, KernelSettings, LearnSettings};
use natgate_io::xdp::MOST_SHARED;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Numbers of routing tables that natgate may use. 0 stands for the main table, 255 is the kernel's
/// own.
const TABLES: RangeInclusive<u64> = 1..=u32::MAX as u64;
const LOCAL_TABLE: u32 = 255;

/// Numbers of routing protocols that natgate may use. Lower numbers belong to the kernel and to
/// routes added by hand.
const PROTOCOLS: RangeInclusive<u64> = 5..=255;

/// Metrics of routes to slices that the other node of a pair owns. Own slices have 0.
const METRICS: RangeInclusive<u64> = 1..=u32::MAX as u64;

/// Bounds of the time to drain before the gateway ends.
const DRAINS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);

/// Addresses that belong to the kernel.
pub(super) type Management = Option<Located<Vec<Located<Ipv4Addr>>>>;

/// The keys about the kernel.
pub(super) struct KernelDraft {
    announce: Option<AnnounceSettings>,
    learn: Option<LearnSettings>,
    drain: Option<Duration>,
}

impl KernelDraft {
    pub(super) fn read(root: &Section<'_>) -> Self {
        Self {
            announce: read_announce(&root.section("announce", "announce")),
            learn: read_learn(&root.section("learn", "learn")),
            drain: read_drain(&root.section("shutdown", "shutdown")),
        }
    }

    /// Converts the keys, with those of the sides, to settings.
    pub(super) fn settings(&self, sides: [&SideDraft; 2]) -> KernelSettings {
        let values = |addresses: &Located<Vec<Located<Ipv4Addr>>>| {
            addresses.value.iter().map(|address| address.value).collect()
        };
        KernelSettings {
            management: sides.map(|side| side.management.as_ref().map(values)),
            announce: self.announce.clone(),
            learn: self.learn.clone(),
            drain: self.drain,
        }
    }
}

/// Reads the addresses on a side's device that belong to the kernel.
pub(super) fn read_management(side: &Section<'_>) -> Management {
    let value = side.get("management")?;
    let items = value.items("an array of addresses")?;
    if items.len() > MOST_SHARED {
        value.wrong(format!("has {} addresses; it may have {MOST_SHARED}", items.len()));
        return None;
    }
    let read = |item: &Value<'_>| {
        let address = item.parsed("an IPv4 address in quotes", values::address)?;
        is_usable(item, address.value).then_some(address)
    };
    Some(Located { value: items.iter().filter_map(read).collect(), place: value.place })
}

fn read_announce(section: &Section<'_>) -> Option<AnnounceSettings> {
    if !section.is_present() {
        return None;
    }
    let table = section.get("table").map(|value| read_table(&value));
    let protocol = section.get("protocol").map(|value| value.integer(PROTOCOLS));
    let protocol = protocol.unwrap_or(Some(KernelSettings::PROTOCOL.into()))?;
    let metric = section.get("partner_metric").map(|value| value.integer(METRICS));
    let metric = metric.unwrap_or(Some(KernelSettings::PARTNER_METRIC.into()))?;
    Some(AnnounceSettings {
        table: table.unwrap_or(Some(KernelSettings::MAIN_TABLE))?,
        protocol: u8::try_from(protocol).ok()?,
        partner_metric: u32::try_from(metric).ok()?,
    })
}

fn read_learn(section: &Section<'_>) -> Option<LearnSettings> {
    if !section.is_present() {
        return None;
    }
    let table = section.require("table", "100").and_then(|value| read_table(&value))?;
    Some(LearnSettings { table })
}

fn read_drain(section: &Section<'_>) -> Option<Duration> {
    section.get("drain").and_then(|value| read_duration(&value, &DRAINS))
}

fn read_table(value: &Value<'_>) -> Option<u32> {
    let table = u32::try_from(value.integer(TABLES)?).ok()?;
    if table == LOCAL_TABLE {
        value.wrong(
            "is the table of the kernel's own addresses; write 254, the main one, or another",
        );
        return None;
    }
    Some(table)
}

/// Checks that the kernel may have its addresses.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    for side in [&draft.inside, &draft.outside] {
        let Some(addresses) = &side.management else { continue };
        has_a_kernel(side, &addresses.place, report);
        for address in &addresses.value {
            is_the_kernels(draft, side, address, report);
        }
    }
}

fn has_a_kernel(side: &SideDraft, place: &Place, report: &Report<'_>) {
    let why = match side.backend {
        Backend::AfPacket | Backend::AfXdp => return,
        Backend::Dpdk => "the kernel does not see the frames of a DPDK port",
        Backend::Tun => "the kernel itself is the other end of a TUN device",
    };
    report.wrong(place, format!("has no effect, because {why}; take it out"));
}

fn is_the_kernels(
    draft: &Draft,
    side: &SideDraft,
    address: &Located<Ipv4Addr>,
    report: &Report<'_>,
) {
    let Located { value, place } = address;
    if side.own() == Some(*value) {
        let message = format!("{value} is {}.address, which is natgate's own", side.name());
        report.wrong(place, format!("{message}; give the kernel another"));
    }
    let mut ranges =
        draft.pools.iter().flat_map(|pool| pool.ranges.iter().map(move |range| (pool, range)));
    let inside = ranges.find(|(_, range)| (range.value.first..=range.value.last).contains(value));
    if let Some((pool, _)) = inside {
        let message = format!("{value} is an address of pool \"{}\"", pool.name.value);
        report.wrong(place, format!("{message}; give the kernel another"));
    }
    if draft.statics.iter().any(|fixed| fixed.external.value.0 == *value) {
        let message = format!("{value} is the external address of a static mapping");
        report.wrong(place, format!("{message}; give the kernel another"));
    }
}
