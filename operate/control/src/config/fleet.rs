//! Reads `[fleet]` and `[[slice]]`, and compares them with other tables.

use super::checks::all_ranges;
use super::draft::Draft;
use super::places::Target;
use super::problem::{Located, Place, Report};
use super::reader::{Section, Value};
use super::sections::{plain_name, read_duration, read_name};
use super::values::{self, overlaps, quoted, show_range, socket_address};
use natgate_engine::AddressRange;
use natgate_gateway::fleet::{FleetSettings, PartnerSettings, SliceSettings};
use natgate_gateway::{AlgKind, StateSettings};
use natgate_ipv6::Prefix6;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Most slices.
const MOST_SLICES: usize = 256;

/// Times without progress after which the guardian ends the gateway.
const HANGS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);
const DEFAULT_HANG: Duration = Duration::from_secs(3);

/// `[fleet]`. A faulty value is absent.
pub(super) struct FleetDraft {
    place: Place,
    node: Option<Located<String>>,
    listen: Option<SocketAddr>,
    files: [Option<PathBuf>; 3],
    /// The other node.
    partner: Option<PartnerSettings>,
    hang: Option<Duration>,
    slices: Vec<SliceDraft>,
}

/// A slice.
struct SliceDraft {
    ranges: Vec<Located<AddressRange>>,
    owner: Option<Located<String>>,
}

/// Reads the tables.
pub(super) fn read(root: &Section<'_>) -> Option<FleetDraft> {
    let section = root.section("fleet", "fleet");
    let slices = root.sections("slice");
    if !section.is_present() {
        if let Some(slice) = slices.first() {
            let message =
                "is a part of the addresses of a pair; write [fleet] too, or leave it out";
            slice.report.wrong(&slice.place, message);
        }
        return None;
    }
    let node = section.require("node", "\"a\"").and_then(|value| read_name(&value));
    let partner = read_partner(&section, node.as_ref());
    if slices.is_empty() {
        section.report.wrong(&section.place, "needs a [[slice]]: addresses, and their owner");
    }
    if let Some(further) = slices.get(MOST_SLICES) {
        let message = format!("there may be {MOST_SLICES} slices");
        section.report.wrong(&further.place, message);
    }
    let listen = section.require("listen", "\"192.0.2.10:7600\"");
    let listen = listen.and_then(|value| {
        let address = value.parsed("an address and a port in quotes", endpoint)?;
        section.registers("listen", &address.place, Target::Address(address.value));
        Some(address.value)
    });
    Some(FleetDraft {
        place: section.place.clone(),
        node,
        listen,
        files: ["certificate", "key", "authorities"].map(|key| section.required_path(key)),
        partner,
        hang: section.get("hang").and_then(|value| read_duration(&value, &HANGS)),
        slices: slices.iter().map(read_slice).collect(),
    })
}

fn read_partner(section: &Section<'_>, node: Option<&Located<String>>) -> Option<PartnerSettings> {
    section.require("partner", "{ node = \"b\", address = \"192.0.2.11:7600\" }")?;
    let partner = section.section("partner", "fleet.partner");
    let name = partner.require("node", "\"b\"").and_then(|value| read_name(&value));
    let address = partner.require("address", "\"192.0.2.11:7600\"");
    let address = address.and_then(|value| {
        let address = value.parsed("an address and a port in quotes", endpoint)?;
        partner.registers("address", &address.place, Target::Address(address.value));
        Some(address.value)
    });
    if let (Some(name), Some(node)) = (&name, node)
        && name.value.eq_ignore_ascii_case(&node.value)
    {
        let message = format!("{} is fleet.node, this node's own name", quoted(&name.value));
        partner.report.wrong(&name.place, format!("{message}; write the other node's"));
        return None;
    }
    Some(PartnerSettings { node: name?.value, address: address? })
}

fn endpoint(text: &str) -> Result<SocketAddr, String> {
    const REMEDY: &str = "write one such as \"192.0.2.10:7600\"";
    let address = socket_address(text, REMEDY)?;
    match address.port() {
        0 => Err(format!("{} is no address with a port; {REMEDY}", quoted(text))),
        _ => Ok(address),
    }
}

fn read_slice(section: &Section<'_>) -> SliceDraft {
    let items = section.require("addresses", "[\"203.0.113.0/29\"]");
    let items = items.and_then(|value| {
        let items = value.items("an array of addresses")?;
        if items.is_empty() {
            value.wrong("has no address; write one such as [\"203.0.113.0/29\"]");
        }
        Some(items)
    });
    let range =
        |value: &Value<'_>| value.parsed("an address, a prefix or a range", values::address_range);
    let owner = section.require("owner", "\"a\"");
    SliceDraft {
        ranges: items.unwrap_or_default().iter().filter_map(range).collect(),
        owner: owner.and_then(|value| value.parsed("the name of a node", plain_name)),
    }
}

/// Reports what disagrees with other tables.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    let Some(fleet) = &draft.fleet else { return };
    owners_are_nodes(fleet, report);
    slices_are_the_pools(draft, fleet, report);
    parts_are_built_in(draft, fleet, report);
    tunnels_have_one_end(draft, report);
}

/// The end of the tunnels of DS-Lite is the same address at both nodes, so it is on no link.
fn tunnels_have_one_end(draft: &Draft, report: &Report<'_>) {
    let Some(dslite) = &draft.ipv6.dslite else { return };
    let (Some(end), Some(place)) = (dslite.end(), dslite.end_place()) else { return };
    let network = draft.inside.address6.as_ref().map(|own| own.value);
    let network = network.map(|(address, len)| Prefix6 { address, len });
    if network.is_some_and(|network| network.contains(end)) {
        let message = format!("{end} is in the inside network, where both nodes would answer for");
        report.wrong(
            place,
            format!("{message} it; use an address that routers reach by a route to either node"),
        );
    }
}

fn owners_are_nodes(fleet: &FleetDraft, report: &Report<'_>) {
    let (Some(node), Some(partner)) = (&fleet.node, &fleet.partner) else { return };
    let names = [&node.value, &partner.node];
    for owner in fleet.slices.iter().filter_map(|slice| slice.owner.as_ref()) {
        if !names.contains(&&owner.value) {
            let message = format!("{} is no node", quoted(&owner.value));
            let [node, partner] = names.map(|name| quoted(name));
            report.wrong(&owner.place, format!("{message}; the nodes are {node} and {partner}"));
        }
    }
}

/// Every address of a pool is in one slice, and every address of a slice in a pool.
fn slices_are_the_pools(draft: &Draft, fleet: &FleetDraft, report: &Report<'_>) {
    let all: Vec<&Located<AddressRange>> =
        fleet.slices.iter().flat_map(|slice| &slice.ranges).collect();
    for (place, range) in all.iter().enumerate() {
        if let Some(other) = all[..place].iter().find(|other| meet(other.value, range.value)) {
            let (line, _) = report.position(other.place.offset);
            let message = format!("{} has addresses of the slice", show_range(range.value));
            report
                .wrong(&range.place, format!("{message} of line {line}; an address has one owner"));
        }
    }
    for range in &all {
        if let Some(address) = range
            .value
            .each()
            .find(|address| !all_ranges(draft).any(|pool| pool.value.contains(*address)))
        {
            report.wrong(&range.place, format!("{address} is in no [[pool]]; add it to one"));
        }
        if let Some(network) = draft.outside.network()
            && overlaps(range.value, network)
        {
            report.wrong(
                &range.place,
                "has addresses of the outside network, where both nodes would answer ARP; use \
                 addresses that routers reach by a route to either node",
            );
        }
    }
    if all.is_empty() {
        return;
    }
    for range in all_ranges(draft) {
        let is_in =
            |address: &std::net::Ipv4Addr| all.iter().any(|one| one.value.contains(*address));
        if let Some(address) = range.value.each().find(|address| !is_in(address)) {
            let message = format!("{address} is in no [[slice]]; add it to the slice of its owner");
            report.wrong(&range.place, message);
        }
    }
}

/// True if two ranges have an address in common.
fn meet(one: AddressRange, other: AddressRange) -> bool {
    one.first <= other.last && other.first <= one.last
}

/// Reports tables whose state a pair does not share yet.
fn parts_are_built_in(draft: &Draft, fleet: &FleetDraft, report: &Report<'_>) {
    let place = &fleet.place;
    let wrong = |what: &str, remedy: &str| {
        report.wrong(place, format!("a pair does not share {what} yet; {remedy}"));
    };
    if draft.state.is_none() {
        report.wrong(
            place,
            "needs [state]: the number of this node's starts stands beside state.file",
        );
    }
    if draft.alg.has(AlgKind::Pptp) {
        wrong("calls of PPTP", "take alg.pptp out");
    }
    if draft.ipv6.dslite.as_ref().is_some_and(|dslite| dslite.subscriber_length < 128) {
        wrong("tunnels that move within a prefix", "take dslite.subscriber_length out");
    }
    for pool in draft.pools.iter().filter(|pool| pool.overloading) {
        let message = "a pair does not share overloaded ports yet; take overloading out";
        report.wrong(&pool.name.place, message);
    }
}

impl FleetDraft {
    /// Converts the tables to settings.
    ///
    /// # Panics
    /// If a value is faulty, which is a problem of the file.
    pub(super) fn settings(self, workers: usize, state: Option<&StateSettings>) -> FleetSettings {
        const COMPLETE: &str = "a table without its values is a problem";
        let [certificate, key, authorities] = self.files.map(|file| file.expect(COMPLETE));
        let partner = self.partner.expect(COMPLETE);
        let slice = |slice: SliceDraft| SliceSettings {
            addresses: slice.ranges.iter().map(|range| range.value).collect(),
            owner: slice.owner.expect(COMPLETE).value,
        };
        FleetSettings {
            node: self.node.expect(COMPLETE).value,
            workers,
            listen: self.listen.expect(COMPLETE),
            certificate,
            key,
            authorities,
            partner,
            slices: self.slices.into_iter().map(slice).collect(),
            starts: state.expect(COMPLETE).file.with_added_extension("starts"),
            hang: self.hang.unwrap_or(DEFAULT_HANG),
        }
    }
}
