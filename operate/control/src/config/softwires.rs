//! Reads `[lw4o6]` and `[[map]]`, and compares them with each other and with other tables.

use super::bindings::read_bindings;
use super::draft::Draft;
use super::ipv6::read_pref64;
use super::places::Target;
use super::problem::{Located, Place, Report};
use super::reader::{Section, Value};
use super::values::{self, overlaps, overlaps_prefix, show_prefix, show_range};
use super::values6;
use natgate_engine::{Prefix, Side};
use natgate_gateway::{Bindings, FileVersion};
use natgate_ipv6::softwire::{
    BindingTable, Domains, Lw4o6Settings, MapMode, MapParameters, MapRule, MapSettings,
    RuleConflict, RuleError, SoftwireSettings,
};
use natgate_ipv6::{Pref64, Prefix6};
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

/// Bounds of the MTU of tunnels: the packet that every link must carry, and the largest packet.
const MTU_BOUNDS: (u64, u64) = (1280, 65_535);
/// Bits before the identifier, if a rule does not say (RFC 7597 section 5.1).
const OFFSET: u8 = 6;
/// Most rules: a rule is one table of the file.
const MOST_RULES: usize = 1 << 20;

/// `[lw4o6]`. A faulty value is absent.
pub(super) struct Lw4o6Draft {
    pub(super) place: Place,
    pub(super) address: Option<Located<Ipv6Addr>>,
    bindings: Option<Located<Arc<BindingTable>>>,
    file: PathBuf,
    version: FileVersion,
    hairpinning: bool,
    icmp_errors: bool,
    inbound_icmp: bool,
    softwire: SoftwireSettings,
}

/// One of `[[map]]`.
pub(super) struct MapDraft {
    pub(super) place: Place,
    ipv6: Located<Prefix6>,
    ipv4: Located<Prefix>,
    /// Place of `br` or `dmr`.
    end: Place,
    rule: MapRule,
    softwire: SoftwireSettings,
}

/// Reads the keys that both tables have.
pub(super) fn read_softwire(section: &Section<'_>, path_mtu: bool) -> SoftwireSettings {
    let mtu = section.get("mtu");
    let mtu = mtu.and_then(|value| value.integer(MTU_BOUNDS.0..=MTU_BOUNDS.1));
    let path = section.get("mtu_discovery").and_then(|value| value.boolean());
    SoftwireSettings { mtu: mtu.map(|mtu| mtu as u16), path_mtu: path.unwrap_or(path_mtu) }
}

pub(super) fn read_end(value: &Value<'_>) -> Option<Located<Ipv6Addr>> {
    value.parsed("an IPv6 address", values6::routed_address6)
}

/// Reads `[lw4o6]`.
pub(super) fn read_lw4o6(section: &Section<'_>) -> Option<Lw4o6Draft> {
    if !section.is_present() {
        return None;
    }
    let address = section.require("address", "\"2001:db8:ffff::2\"");
    let address = address.and_then(|value| read_end(&value));
    let flag = |key| section.get(key).and_then(|value: Value<'_>| value.boolean()).unwrap_or(true);
    let mut file = PathBuf::new();
    let mut version = FileVersion::default();
    let bindings = section.require("bindings", "\"bindings.csv\"").and_then(|value| {
        let text = value.string("a path in quotes")?;
        let path = match section.report.folder() {
            Some(folder) => folder.join(text),
            None => PathBuf::from(text),
        };
        section.registers("bindings", &value.place, Target::Path(path.clone()));
        file = path;
        let br = address.as_ref().map_or(Ipv6Addr::LOCALHOST, |address| address.value);
        let place = value.place.clone();
        if section.report.folder().is_none() {
            // A text without a file: there is no folder to look in.
            let table = BindingTable::new(&[], br, 1).ok()?;
            return Some(Located { value: Arc::new(table), place });
        }
        // Noted before: a change while the file is read must not be missed.
        version = FileVersion::of(&file);
        match read_bindings(&file, br) {
            Ok(table) => Some(Located { value: Arc::new(table), place }),
            // A file that cannot be read has no line of its own.
            Err(problems) if problems.iter().all(|problem| problem.line.is_none()) => {
                for problem in problems {
                    value.wrong(format!("{} {}", problem.file, problem.message));
                }
                None
            }
            Err(problems) => {
                section.report.adopt(problems);
                None
            }
        }
    });
    Some(Lw4o6Draft {
        place: section.place.clone(),
        address,
        bindings,
        file,
        version,
        hairpinning: flag("hairpinning"),
        icmp_errors: flag("icmp_errors"),
        inbound_icmp: flag("inbound_icmp"),
        softwire: read_softwire(section, true),
    })
}

/// Reads one of `[[map]]`.
pub(super) fn read_map(section: &Section<'_>) -> Option<MapDraft> {
    #[derive(Clone, Copy)]
    enum Word {
        Encapsulation,
        Translation,
    }
    let words =
        [("encapsulation", Ok(Word::Encapsulation)), ("translation", Ok(Word::Translation))];
    let mode = section.require("mode", "\"encapsulation\"").and_then(|value| value.word(&words));
    let ipv6 = section.require("ipv6", "\"2001:db8:8000::/40\"");
    let ipv6 = ipv6.and_then(|value| value.parsed("an IPv6 prefix", values6::unicast_prefix6));
    let ipv4 = section.require("ipv4", "\"192.0.2.0/24\"");
    let ipv4 = ipv4.and_then(|value| value.parsed("an IPv4 prefix", values::prefix));
    let ea = section.require("ea_length", "16").and_then(|value| value.integer(0..=48));
    let offset = section.get("psid_offset").map(|value| value.integer(0..=15));
    let psid = read_psid(section);
    let end = mode.and_then(|mode| match mode {
        Word::Encapsulation => {
            no_key(section, "dmr", "is for translation; write br");
            let br = section.require("br", "\"2001:db8:ffff::3\"").and_then(|br| read_end(&br))?;
            Some((MapMode::Encapsulation(br.value), br.place))
        }
        Word::Translation => {
            no_key(section, "br", "is for encapsulation; write dmr");
            no_key(section, "mtu_discovery", "is for encapsulation; leave it out");
            let dmr = section.require("dmr", "\"64:ff9b::/96\"");
            let dmr = dmr.and_then(|dmr| read_pref64(&dmr))?;
            Some((MapMode::Translation(dmr.value), dmr.place))
        }
    });
    let softwire = read_softwire(section, false);
    let (ipv6, ipv4, (mode, end)) = (ipv6?, ipv4?, end?);
    let parameters = MapParameters {
        ipv6: ipv6.value,
        ipv4: ipv4.value,
        ea_length: ea? as u8,
        psid_offset: offset.map_or(Some(OFFSET.into()), |offset| offset)? as u8,
        psid: psid?,
        mode,
    };
    match MapRule::new(parameters) {
        Ok(rule) => {
            let place = section.place.clone();
            Some(MapDraft { place, ipv6, ipv4, end, rule, softwire })
        }
        Err(error) => {
            report_rule(section, parameters, error);
            None
        }
    }
}

/// Reports a key that belongs to the other mode.
fn no_key(section: &Section<'_>, key: &'static str, message: &str) {
    if let Some(value) = section.get(key) {
        value.wrong(message);
    }
}

/// Reads the port set that a rule gives to its only customer. The outer `None`: it is faulty.
fn read_psid(section: &Section<'_>) -> Option<Option<(u8, u16)>> {
    let length = section.get("psid_length").map(|value| (value.integer(0..=16), value));
    let psid = section.get("psid").map(|value| (value.integer(0..=u16::MAX.into()), value));
    match (length, psid) {
        (None, None) => Some(None),
        (Some((length, _)), Some((psid, _))) => Some(Some((length? as u8, psid? as u16))),
        (Some((_, value)), None) => {
            value.wrong("is the length of psid, which is missing; write both");
            None
        }
        (None, Some((_, value))) => {
            value.wrong("needs psid_length; write both");
            None
        }
    }
}

/// Reports parameters that are no rule, with a remedy.
fn report_rule(section: &Section<'_>, parameters: MapParameters, error: RuleError) {
    let (key, remedy) = match error {
        RuleError::Ea(_) => ("ea_length", "write at most 48".to_owned()),
        RuleError::Ipv6(prefix, _) => ("ea_length", format!("write at most {}", 128 - prefix.len)),
        RuleError::Psid { ipv4, .. } => {
            let most = 32 - ipv4 + 16 - parameters.psid_offset.min(16);
            ("ea_length", format!("write at most {most}"))
        }
        RuleError::Sets(_) => ("psid_length", "write a smaller length".to_owned()),
        RuleError::Beyond(..) => ("psid", "write a smaller PSID".to_owned()),
        RuleError::Several { ipv4, .. } => {
            ("psid", format!("write ea_length = {}, or take psid out", 32 - ipv4))
        }
    };
    let place = section.get(key).map_or(section.place.clone(), |value| value.place);
    section.report.wrong(&place, format!("{error}; {remedy}"));
}

/// Reports all parts that disagree.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    inside_has_ipv6(draft, report);
    rules_differ(draft, report);
    ends_differ(draft, report);
    dmrs_differ(draft, report);
    addresses_are_free(draft, report);
    addresses_are_routed(draft, report);
    warn_of_no_customer(draft, report);
    warn_of_ends(draft, report);
}

/// Warns of a file without a binding.
fn warn_of_no_customer(draft: &Draft, report: &Report<'_>) {
    let Some(lw4o6) = &draft.ipv6.lw4o6 else { return };
    let has_none = |table: &&Located<Arc<BindingTable>>| table.value.is_empty();
    if let Some(table) = lw4o6.bindings.as_ref().filter(has_none)
        && lw4o6.version.exists()
    {
        let message = format!("{} has no binding, so [lw4o6] serves nobody", lw4o6.file.display());
        report.unwise(&table.place, format!("{message}; add the customers"));
    }
}

/// Warns of ends of tunnels, and prefixes of the Internet, among addresses of customers.
fn warn_of_ends(draft: &Draft, report: &Report<'_>) {
    for map in &draft.ipv6.map {
        let (end, is_own) = match map.mode() {
            MapMode::Encapsulation(br) => (br.to_string(), map.ipv6.value.contains(br)),
            MapMode::Translation(dmr) => (dmr.to_string(), map.ipv6.value.overlaps(dmr.prefix())),
        };
        if is_own {
            let message = format!("{end} overlaps {} ({})", map.ipv6.place.key, map.ipv6.value);
            let why = "a customer may have its addresses";
            report.unwise(&map.end, format!("{message}, so {why}; write one of its own"));
        }
    }
}

/// Customers of tunnels send by IPv6. Without IPv6 inside, the tables would have no effect.
fn inside_has_ipv6(draft: &Draft, report: &Report<'_>) {
    let (inside, ipv6) = (&draft.inside, &draft.ipv6);
    let is_described = inside.address6.is_some() || inside.gateway6.is_some();
    if is_described || ipv6.advertise.is_some() || draft.router6.is_on(Side::Inside) {
        return;
    }
    // A table with a faulty value has a problem of its own.
    let dslite = ipv6.dslite.as_ref().filter(|table| table.is_whole()).map(|table| &table.place);
    let lw4o6 = ipv6.lw4o6.as_ref().filter(|table| table.address.is_some());
    let lw4o6 = lw4o6.map(|table| &table.place);
    let map = ipv6.map.first().map(|table| &table.place);
    for place in [dslite, lw4o6, map].into_iter().flatten() {
        let message = "its customers send by IPv6, and the inside has none";
        let example = "inside.address6 = \"2001:db8:0:1::1/64\"";
        report.wrong(place, format!("{message}; write {example}"));
    }
}

fn rules_differ(draft: &Draft, report: &Report<'_>) {
    let maps = &draft.ipv6.map;
    if maps.len() > MOST_RULES {
        let message = format!("{} tables are too many; write at most {MOST_RULES}", maps.len());
        report.wrong(&maps[MOST_RULES].place, message);
        return;
    }
    let rules: Vec<MapRule> = maps.iter().map(|map| map.rule).collect();
    let line = |place: &Place| report.line(place.offset);
    match Domains::new(&rules, [0; 32]) {
        Ok(_) => {}
        Err(RuleConflict::Ipv4(one, other)) => {
            let (earlier, later) = (&maps[one].ipv4, &maps[other].ipv4);
            let message = format!(
                "{} is in {} in line {} already",
                show_prefix(later.value),
                earlier.place.key,
                line(&earlier.place)
            );
            let remedy = "a prefix has one domain, or each domain its own psid";
            report.wrong(&later.place, format!("{message}; {remedy}"));
        }
        Err(RuleConflict::Ipv6(one, other)) => {
            let (earlier, later) = (&maps[one].ipv6, &maps[other].ipv6);
            let (key, number) = (&earlier.place.key, line(&earlier.place));
            let message = format!("{} is in {key} in line {number} already", later.value);
            report.wrong(&later.place, format!("{message}; a prefix has one domain"));
        }
        Err(RuleConflict::Divided(one, other)) => {
            let (first, second) = (maps[one].rule.sets(), maps[other].rule.sets());
            let message = format!(
                "{} has PSIDs of {} bits after {} here, and of {} after {} in line {}",
                show_prefix(maps[other].ipv4.value),
                second.bits(),
                second.offset(),
                first.bits(),
                first.offset(),
                line(&maps[one].place)
            );
            let remedy = "all port sets of an address need the same (RFC 7597 section 5.1)";
            report.wrong(&maps[other].place, format!("{message}; {remedy}"));
        }
    }
}

/// A tunnel's end is that of lw4o6 or of MAP.
fn ends_differ(draft: &Draft, report: &Report<'_>) {
    let Some(lw4o6) = &draft.ipv6.lw4o6 else { return };
    let brs = lw4o6.bindings.iter().flat_map(|table| table.value.brs()).copied();
    let own = lw4o6.address.iter().map(|address| address.value.to_bits());
    let ends: std::collections::HashSet<u128> = brs.chain(own).collect();
    for map in &draft.ipv6.map {
        if let MapMode::Encapsulation(br) = map.rule.parameters().mode
            && ends.contains(&br.to_bits())
        {
            let message = format!("{br} is an end of tunnels of [lw4o6] too");
            report.wrong(&map.end, format!("{message}; packets need one table, write another"));
        }
    }
}

/// An address has one translation: no `dmr` overlaps another one, or prefixes of other tables.
fn dmrs_differ(draft: &Draft, report: &Report<'_>) {
    let dmr = |map: &MapDraft| match map.rule.parameters().mode {
        MapMode::Translation(dmr) => Some(dmr),
        MapMode::Encapsulation(_) => None,
    };
    let mut seen: Vec<(Pref64, &Place)> = Vec::new();
    let nat64 = draft.ipv6.nat64.iter().flat_map(|table| &table.prefixes);
    let siit = draft.ipv6.siit.iter().flat_map(|table| &table.prefixes);
    let others: Vec<(Pref64, &Place)> =
        nat64.chain(siit).map(|prefix| (prefix.value, &prefix.place)).collect();
    for map in &draft.ipv6.map {
        let Some(own) = dmr(map) else { continue };
        if seen.iter().any(|(known, _)| *known == own) {
            continue;
        }
        let rival = seen.iter().chain(&others);
        let rival = rival.into_iter().find(|(other, _)| other.prefix().overlaps(own.prefix()));
        if let Some((other, place)) = rival {
            let (key, line) = (&place.key, report.line(place.offset));
            let message = format!("{own} overlaps {key} in line {line} ({other})");
            report.wrong(&map.end, format!("{message}; each address needs one translation"));
        }
        seen.push((own, &map.end));
    }
}

/// An IPv4 address belongs to a pool, a rule or the bindings.
fn addresses_are_free(draft: &Draft, report: &Report<'_>) {
    let mut ranges: Vec<_> = draft.pools.iter().flat_map(|pool| &pool.ranges).collect();
    ranges.sort_by_key(|range| range.value.first);
    let pool_of = |prefix: Prefix| {
        let after = ranges.partition_point(|range| range.value.first.to_bits() <= prefix.last());
        let last = ranges.get(after.checked_sub(1)?)?;
        overlaps(last.value, prefix).then_some(*last)
    };
    let remedy = "take the addresses out of one of them";
    let mut fixed = HashMap::new();
    for external in draft.statics.iter().map(|one| &one.external) {
        fixed.entry(external.value.0).or_insert(external);
    }
    let prefixes = Prefixes::new(draft.ipv6.map.iter().map(|map| map.ipv4.value));
    for one in draft.statics.iter().map(|one| &one.external) {
        let Some(map) = prefixes.first_with(one.value.0) else { continue };
        let map = &draft.ipv6.map[map];
        let (key, line) = (&map.ipv4.place.key, report.line(map.ipv4.place.offset));
        let message = format!("{} is in {key} in line {line}", one.value.0);
        report.wrong(&one.place, format!("{message}, whose ports are customers'; {remedy}"));
    }
    for map in &draft.ipv6.map {
        if let Some(range) = pool_of(map.ipv4.value) {
            let (key, line) = (&range.place.key, report.line(range.place.offset));
            let (one, other) = (show_prefix(map.ipv4.value), show_range(range.value));
            let message = format!("{one} overlaps {key} in line {line} ({other})");
            report.wrong(&map.ipv4.place, format!("{message}; {remedy}"));
        }
    }
    let Some(lw4o6) = &draft.ipv6.lw4o6 else { return };
    let Some(table) = &lw4o6.bindings else { return };
    if ranges.is_empty() && draft.ipv6.map.is_empty() && draft.statics.is_empty() {
        return;
    }
    let rules: Vec<MapRule> = draft.ipv6.map.iter().map(|map| map.rule).collect();
    let domains = Domains::new(&rules, [0; 32]).ok();
    for binding in table.value.iter() {
        let ipv4 = binding.ipv4;
        let of_map = domains.as_ref().and_then(|domains| domains.find(ipv4.to_bits()));
        let rival = match (pool_of(Prefix::new(ipv4, 32)), of_map) {
            (Some(range), _) => &range.place,
            (None, Some(place)) => &draft.ipv6.map[place].ipv4.place,
            (None, None) => match fixed.get(&ipv4) {
                Some(external) => &external.place,
                None => continue,
            },
        };
        let (key, line) = (&rival.key, report.line(rival.offset));
        let message = format!("{ipv4} of {} is in {key} in line {line}", lw4o6.file.display());
        report.wrong(&table.place, format!("{message} too; {remedy}"));
        break;
    }
}

/// Remedy for an address in the network of the outside.
pub(super) const ROUTED: &str =
    "the gateway answers no ARP for it; write addresses that your routers send to the gateway";

/// The gateway answers no ARP for addresses of rules and bindings, so none is in the network of the
/// outside.
fn addresses_are_routed(draft: &Draft, report: &Report<'_>) {
    let Some(network) = draft.outside.network() else { return };
    let shown = format!("{}, the network of outside.address", show_prefix(network));
    for ipv4 in draft.ipv6.map.iter().map(|map| &map.ipv4) {
        if overlaps_prefix(ipv4.value, network) {
            let message = format!("{} overlaps {shown}", show_prefix(ipv4.value));
            report.wrong(&ipv4.place, format!("{message}; {ROUTED}"));
        }
    }
    let Some(lw4o6) = &draft.ipv6.lw4o6 else { return };
    let Some(table) = &lw4o6.bindings else { return };
    let mut addresses = table.value.iter().map(|binding| binding.ipv4);
    if let Some(ipv4) = addresses.find(|ipv4| network.contains(ipv4.to_bits())) {
        let message = format!("{ipv4} of {} is in {shown}", lw4o6.file.display());
        report.wrong(&table.place, format!("{message}; {ROUTED}"));
    }
}

/// The places of prefixes in a list: a search takes one look for each length.
struct Prefixes {
    lengths: BTreeSet<u8>,
    places: HashMap<(u8, u32), usize>,
}

impl Prefixes {
    fn new(prefixes: impl Iterator<Item = Prefix>) -> Self {
        let (mut lengths, mut places) = (BTreeSet::new(), HashMap::new());
        for (place, prefix) in prefixes.enumerate() {
            lengths.insert(prefix.len());
            places.entry((prefix.len(), prefix.first())).or_insert(place);
        }
        Self { lengths, places }
    }

    /// The place of the first prefix of the list that has an address.
    fn first_with(&self, address: Ipv4Addr) -> Option<usize> {
        let place = |&len: &u8| self.places.get(&(len, Prefix::new(address, len).first()));
        self.lengths.iter().filter_map(place).min().copied()
    }
}

impl Lw4o6Draft {
    /// Converts the table to settings.
    ///
    /// # Panics
    /// If a value is faulty, which is a problem of the file.
    pub(super) fn settings(&self) -> Lw4o6Settings {
        let missing = "a table without its values is a problem";
        Lw4o6Settings {
            address: self.address.as_ref().expect(missing).value,
            bindings: Arc::clone(&self.bindings.as_ref().expect(missing).value),
            hairpinning: self.hairpinning,
            icmp_errors: self.icmp_errors,
            inbound_icmp: self.inbound_icmp,
            softwire: self.softwire,
        }
    }

    /// True if an address is the gateway's end of a tunnel.
    pub(super) fn has_end(&self, address: Ipv6Addr) -> bool {
        let mut brs = self.bindings.iter().flat_map(|table| table.value.brs());
        self.address.as_ref().is_some_and(|own| own.value == address)
            || brs.any(|br| *br == address.to_bits())
    }

    /// The bindings, to be shared with those that change them.
    ///
    /// # Panics
    /// As [`Lw4o6Draft::settings`].
    pub(super) fn bindings(&self) -> Bindings {
        Bindings::new(self.file.clone(), self.settings().bindings, self.version)
    }
}

impl MapDraft {
    /// The mode of the rule.
    pub(super) fn mode(&self) -> MapMode {
        self.rule.parameters().mode
    }

    /// Converts the table to settings.
    pub(super) fn settings(&self) -> MapSettings {
        MapSettings { rule: self.rule, softwire: self.softwire }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_prefix_with_an_address_is_found(
            prefixes in proptest::collection::vec((0..64_u32, 24..=32_u8), 0..12),
            all in any::<bool>(),
        ) {
            let narrow = |(low, len)| Prefix::new(Ipv4Addr::from_bits(low << 2), len);
            let mut prefixes: Vec<Prefix> = prefixes.into_iter().map(narrow).collect();
            if all {
                prefixes.push(Prefix::new(Ipv4Addr::UNSPECIFIED, 0));
            }
            let found = Prefixes::new(prefixes.iter().copied());
            for address in (0..=0x120_u32).chain([u32::MAX]) {
                let expected = prefixes.iter().position(|prefix| prefix.contains(address));
                let address = Ipv4Addr::from_bits(address);
                prop_assert_eq!(found.first_with(address), expected, "{}", address);
            }
        }
    }
}
