//! Reads `[[realm]]`: internal networks beside that of `[inside]`, which may use the same
//! addresses. Reads the key `realm` of other tables.
//!
//! The network of `[inside]` is realm 0, named `default`. A realm has its own VLAN, its own device,
//! or both.

use super::devices::kernel_device;
use super::draft::{Draft, RuleDraft, SideDraft};
use super::problem::{Located, Place, Report};
use super::reader::{Section, Value};
use super::sections::{plain_name, read_link, read_prefixes};
use super::values::show_prefix;
use natgate_engine::{Allocation, Config, Prefix, RealmConfig, Rule, Side};
use natgate_gateway::ipv6::HostKind;
use natgate_gateway::{MOST_DEVICES, RealmSettings, Route, SideSettings, StaticNeighbor};
use std::collections::{HashMap, HashSet};

/// Name of the realm of `[inside]`.
pub(crate) const DEFAULT: &str = "default";

/// VLAN numbers (IEEE 802.1Q).
const VLANS: std::ops::RangeInclusive<u64> = 1..=4094;

/// The realm that a table names, if any.
pub(super) type RealmName = Option<Box<Located<String>>>;

/// A realm.
pub(super) struct RealmDraft {
    pub(super) place: Place,
    pub(super) name: Located<String>,
    pub(super) vlan: Option<Located<u16>>,
    /// The side of the realm. Its device is that of `[inside]` if absent.
    pub(super) inside: SideDraft,
    /// Defaults to `nat.subscribers`.
    pub(super) subscribers: Option<Vec<Located<Prefix>>>,
    /// The place of the list if it is empty.
    no_subscribers: Option<Place>,
    /// Defaults to the pool for subscribers without a rule.
    pub(super) pool: Option<Located<String>>,
    pub(super) hairpin_to: Vec<Located<String>>,
}

/// Reads the realms. A faulty realm stays in the list, so that tables which name it are not
/// reported.
pub(super) fn read_realms(root: &Section<'_>) -> Vec<RealmDraft> {
    root.sections("realm").iter().map(read_realm).collect()
}

fn read_realm(section: &Section<'_>) -> RealmDraft {
    let name = section.require("name", "\"homes\"");
    let name = name.and_then(|value| value.parsed("a name", plain_name));
    let nameless = || Located { value: section.place.key.clone(), place: section.place.clone() };
    let vlan = section.get("vlan").and_then(|value| {
        let vlan = value.integer(VLANS)?;
        Some(Located { value: u16::try_from(vlan).ok()?, place: value.place })
    });
    let device = section.get("device").and_then(|value| value.parsed("a device", kernel_device));
    if section.get("vlan").is_none() && section.get("device").is_none() {
        let message = "names neither vlan nor device; write vlan = 100";
        section.report.missing(&section.place, message);
    }
    section.require("address", "\"10.0.0.1/8\"");
    let listed = section.get("subscribers");
    let (subscribers, is_empty) = listed.as_ref().and_then(read_prefixes).unzip();
    let word = |value: Value<'_>| value.parsed("the name of a pool", |name| Ok(name.to_owned()));
    RealmDraft {
        place: section.place.clone(),
        name: name.unwrap_or_else(nameless),
        vlan,
        inside: SideDraft { device, ..read_link(section, &section.place.key) },
        subscribers,
        no_subscribers: listed.filter(|_| is_empty == Some(true)).map(|value| value.place),
        pool: section.get("pool").and_then(word),
        hairpin_to: read_hairpin_to(section),
    }
}

/// Reads the realms that are reachable from a realm.
pub(super) fn read_hairpin_to(section: &Section<'_>) -> Vec<Located<String>> {
    let entries = section.get("hairpin_to").and_then(|value| value.items("an array of realms"));
    let name = |entry: &Value<'_>| {
        entry.parsed("the name of a realm in quotes", |name| Ok(name.to_owned()))
    };
    entries.unwrap_or_default().iter().filter_map(name).collect()
}

/// Reads the realm of a table. `Err`: the value is faulty and has been reported.
pub(super) fn read_whose(section: &Section<'_>) -> Result<RealmName, ()> {
    let Some(value) = section.get("realm") else { return Ok(None) };
    let name = value.parsed("the name of a realm", |name| Ok(name.to_owned()));
    name.map(|name| Some(Box::new(name))).ok_or(())
}

/// Reads the side of a table and its realm. Without a key the side is the outside; with a realm it
/// is the inside. `None`: the combination is impossible.
pub(super) fn read_side(section: &Section<'_>) -> Option<(Side, RealmName)> {
    let sides = [("inside", Ok(Side::Inside)), ("outside", Ok(Side::Outside))];
    let realm = read_whose(section);
    let side = match (section.get("side"), &realm) {
        (Some(value), Ok(Some(_))) if value.word(&sides)? == Side::Outside => {
            value.wrong("is no side of a realm; leave it out, or leave realm out");
            return None;
        }
        (Some(value), _) => value.word(&sides)?,
        (None, Ok(Some(_))) => Side::Inside,
        (None, _) => Side::Outside,
    };
    Some((side, realm.ok()?))
}

/// Numbers of realms by name.
pub(super) struct Names<'a>(HashMap<&'a str, u16>);

impl Names<'_> {
    /// The number of a named realm.
    pub(super) fn get(&self, name: &str) -> Option<u16> {
        self.0.get(name).copied()
    }

    /// The number of a table's realm, if the realm exists.
    pub(super) fn of(&self, whose: &RealmName) -> Option<u16> {
        whose.as_ref().map_or(Some(0), |name| self.get(&name.value))
    }
}

impl Draft {
    /// Indexes the realms by name.
    pub(super) fn realm_names(&self) -> Names<'_> {
        // If two realms have one name, the first is used. The other one is reported.
        let further = self.realms.iter().map(|realm| &realm.name.value[..]);
        let all = std::iter::once(DEFAULT).chain(further).zip(0..);
        let mut names: HashMap<&str, u16> = HashMap::new();
        for (name, number) in all {
            names.entry(name).or_insert(number);
        }
        Names(names)
    }

    /// The sides of all realms, `[inside]` first.
    pub(super) fn insides(&self) -> impl Iterator<Item = &SideDraft> {
        std::iter::once(&self.inside).chain(self.realms.iter().map(|realm| &realm.inside))
    }

    /// The side of a realm.
    pub(super) fn inside_of(&self, realm: u16) -> &SideDraft {
        let place = usize::from(realm).checked_sub(1);
        place.map_or(&self.inside, |place| &self.realms[place].inside)
    }

    /// The prefixes of a realm's subscribers.
    pub(super) fn subscribers_of(&self, realm: u16) -> &[Located<Prefix>] {
        let place = usize::from(realm).checked_sub(1);
        let own = place.and_then(|place| self.realms[place].subscribers.as_deref());
        own.unwrap_or(&self.subscribers)
    }

    /// The pool of a realm's subscribers without a rule.
    fn pool_of_realm(&self, realm: &RealmDraft) -> usize {
        let named = realm.pool.as_ref().and_then(|pool| self.targets().pool(&pool.value));
        named.unwrap_or_else(|| self.default_pool())
    }

    /// The realms that use a pool, each once, with the place that says so.
    pub(super) fn users(&self, pool: usize) -> Vec<(u16, Place)> {
        let (names, targets) = (self.realm_names(), self.targets());
        let mut users: Vec<(u16, Place)> = Vec::new();
        if self.default_pool() == pool {
            users.push((0, Place::default()));
        }
        for (number, realm) in (1..).zip(&self.realms) {
            if self.pool_of_realm(realm) == pool {
                let place = realm.pool.as_ref().map_or(&realm.place, |pool| &pool.place);
                users.push((number, place.clone()));
            }
        }
        for rule in &self.rules {
            if targets.of(&rule.action) == Some(pool)
                && let Some(realm) = names.of(&rule.realm)
                && !users.iter().any(|(known, _)| *known == realm)
            {
                users.push((realm, rule.matches.place.clone()));
            }
        }
        users
    }

    /// The realm of a deterministic pool's subscribers.
    pub(super) fn realm_of_pool(&self, pool: usize) -> u16 {
        match self.realms.is_empty() {
            true => 0,
            false => self.users(pool).first().map_or(0, |(realm, _)| *realm),
        }
    }

    /// Converts the realms for the engine and the gateway; all lists are by realm.
    pub(super) fn to_realms(
        &self,
        rules: Vec<Vec<Rule>>,
        routes: Vec<Vec<Route>>,
        neighbors: Vec<Vec<StaticNeighbor>>,
    ) -> (Vec<RealmConfig>, Vec<RealmSettings>) {
        let realm = |(number, realm, rules, routes): (u16, &RealmDraft, Vec<Rule>, Vec<Route>)| {
            let subscribers = self.subscribers_of(number).iter().map(|prefix| prefix.value);
            let engine = RealmConfig {
                name: realm.name.value.clone(),
                inside: realm.inside.engine(),
                subscribers: subscribers.collect(),
                default_pool: self.pool_of_realm(realm),
                hairpin_to: self.to_numbers(&realm.hairpin_to),
                inside_routes: Vec::new(),
                rules,
                gone: false,
                order: 0,
                host_bits: None,
            };
            let own = realm.inside.device.as_ref().or(self.inside.device.as_ref());
            let settings = RealmSettings {
                name: realm.name.value.clone(),
                inside: SideSettings {
                    device: own.map(|device| device.value.clone()).unwrap_or_default(),
                    ..realm.inside.settings()
                },
                vlan: realm.vlan.as_ref().map(|vlan| vlan.value),
                routes,
                neighbors: Vec::new(),
            };
            (engine, settings)
        };
        let all = (1..).zip(&self.realms).zip(rules).zip(routes);
        let all = all.map(|(((number, own), rules), routes)| realm((number, own, rules, routes)));
        let (realms, settings): (Vec<_>, Vec<_>) = all.unzip();
        let settings = settings.into_iter().zip(neighbors);
        let settings =
            settings.map(|(settings, neighbors)| RealmSettings { neighbors, ..settings });
        (realms, settings.collect())
    }

    /// Routes by realm. Realm 0 includes those of the outside.
    pub(super) fn to_routes(&self) -> Vec<Vec<Route>> {
        let names = self.realm_names();
        let mut routes = vec![Vec::new(); self.realms.len() + 1];
        for route in &self.routes {
            if let Some(realm) = names.of(&route.realm) {
                routes[usize::from(realm)].push(route.to_settings());
            }
        }
        routes
    }

    /// Converts names of realms to numbers.
    pub(super) fn to_numbers(&self, names: &[Located<String>]) -> Vec<u16> {
        let known = self.realm_names();
        names.iter().filter_map(|name| known.get(&name.value)).collect()
    }
}

/// Checks the realms, and that tables name existing realms.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    names_differ(draft, report);
    links_differ(draft, report);
    pools_are_there(draft, report);
    let names = draft.realm_names();
    let routes = draft.routes.iter().map(|route| &route.realm);
    let statics = draft.statics.iter().map(|fixed| &fixed.realm);
    let rules = draft.rules.iter().map(|rule| &rule.realm);
    let classes = draft.classes.iter().map(|class| &class.realm);
    let neighbors = draft.neighbors.iter().map(|neighbor| &neighbor.realm);
    for whose in routes.chain(neighbors).chain(statics).chain(rules).chain(classes).flatten() {
        is_there(whose, &names, draft, report);
    }
    hairpin_is_permitted(0, &draft.hairpin_to, &names, draft, report);
    for (number, realm) in (1..).zip(&draft.realms) {
        hairpin_is_permitted(number, &realm.hairpin_to, &names, draft, report);
    }
    if draft.realms.is_empty() {
        return;
    }
    somebody_is_there(draft, &names, report);
    plans_have_one_realm(draft, report);
}

/// Reports a realm without subscribers, static mappings, snat rules and bypass rules.
fn somebody_is_there(draft: &Draft, names: &Names<'_>, report: &Report<'_>) {
    let statics = draft.statics.iter().map(|fixed| &fixed.realm);
    let lets_pass = |rule: &&RuleDraft| rule.action.is_snat() || rule.action.is_bypass();
    let rules = draft.rules.iter().filter(lets_pass).map(|rule| &rule.realm);
    let named: HashSet<u16> = statics.chain(rules).filter_map(|whose| names.of(whose)).collect();
    for (number, realm) in (1..).zip(&draft.realms) {
        let remedy = "write inside prefixes";
        if named.contains(&number) {
            continue;
        }
        if let Some(place) = &realm.no_subscribers {
            let message = "names nobody, nor does a rule or a static mapping of the realm";
            report.wrong(place, format!("{message}; {remedy}"));
        } else if realm.subscribers.is_none() && draft.no_subscribers.is_some() {
            let message = "has no subscribers of its own, and nat.subscribers names nobody";
            report.wrong(&realm.place, format!("{message}; {remedy} as subscribers"));
        }
    }
}

fn is_there(whose: &Located<String>, names: &Names<'_>, draft: &Draft, report: &Report<'_>) {
    if names.get(&whose.value).is_none() {
        let further = draft.realms.iter().map(|realm| &realm.name.value[..]);
        let all = std::iter::once(DEFAULT).chain(further);
        let all: Vec<String> = all.map(|name| format!("{name:?}")).collect();
        let message = format!("there is no realm {:?}", whose.value);
        report.missing(&whose.place, format!("{message}; write one of {}", all.join(", ")));
    }
}

fn names_differ(draft: &Draft, report: &Report<'_>) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let of_hosts = [draft.ipv6.nat64.is_some(), draft.ipv6.dslite.is_some()];
    let most = Config::MOST_REALMS - 1 - of_hosts.iter().filter(|there| **there).count();
    for (number, realm) in draft.realms.iter().enumerate() {
        let Located { value: name, place } = &realm.name;
        if name == DEFAULT {
            let message = format!("\"{DEFAULT}\" is what the network of [inside] is called");
            report.wrong(place, format!("{message}; write another name"));
        }
        // Whatever tables there are: a later process may have them, and takes mappings over by the
        // names of their realms.
        if HostKind::ALL.iter().any(|kind| kind.realm_name() == *name) {
            let message =
                format!("\"{name}\" is what the realm of the hosts of [{name}] is called");
            report.wrong(place, format!("{message}; write another name"));
        }
        if let Some(line) = seen.insert(name, report.line(place.offset)) {
            let message = format!("\"{name}\" is the name of the realm in line {line}");
            report.wrong(place, format!("{message}; give each realm its own"));
        }
        if number == most {
            report.wrong(&realm.place, format!("is one too many; at most {most} are possible"));
        }
    }
}

/// Reports two realms that would receive the same frames.
fn links_differ(draft: &Draft, report: &Report<'_>) {
    let inside = draft.inside.device.as_ref().map_or("", |device| &device.value[..]);
    let outside = draft.outside.device.as_ref().map(|device| &device.value[..]);
    let mut seen: HashMap<(&str, Option<u16>), usize> = HashMap::new();
    let mut devices = vec![inside];
    for realm in &draft.realms {
        let own = realm.inside.device.as_ref();
        let device = own.map_or(inside, |device| &device.value);
        let vlan = realm.vlan.as_ref();
        let place = vlan.map(|vlan| &vlan.place).or(own.map(|device| &device.place));
        let place = place.unwrap_or(&realm.place);
        if let Some(own) = own.filter(|_| outside == Some(device)) {
            let message = format!("\"{device}\" is the outside's device; write one of the inside");
            report.wrong(&own.place, message);
        } else if device == inside && vlan.is_none() && own.is_some() {
            let message = format!("\"{device}\" without vlan is the inside's device itself");
            report.wrong(place, format!("{message}; add vlan = 100, or write another device"));
        }
        let vlan = vlan.map(|vlan| vlan.value);
        let line = report.line(place.offset);
        if let Some(line) = seen.insert((device, vlan), line).filter(|_| place != &realm.place) {
            let what =
                vlan.map_or(format!("\"{device}\""), |vlan| format!("VLAN {vlan} of \"{device}\""));
            let message = format!("{what} is that of the realm in line {line}");
            report.wrong(place, format!("{message}; give each realm its own"));
        }
        if !devices.contains(&device) {
            devices.push(device);
            if devices.len() == MOST_DEVICES {
                let message =
                    format!("is one device too many; at most {} are possible", MOST_DEVICES - 2);
                report.wrong(place, format!("{message} beside the two sides'; use VLANs"));
            }
        }
    }
}

fn pools_are_there(draft: &Draft, report: &Report<'_>) {
    let targets = draft.targets();
    for pool in draft.realms.iter().filter_map(|realm| realm.pool.as_ref()) {
        if targets.pool(&pool.value).is_none() {
            let names: Vec<String> =
                draft.pools.iter().map(|pool| format!("\"{}\"", pool.name.value)).collect();
            let message = format!("there is no pool {:?}", pool.value);
            report.missing(&pool.place, format!("{message}; write one of {}", names.join(", ")));
        }
    }
}

fn hairpin_is_permitted(
    from: u16,
    to: &[Located<String>],
    names: &Names<'_>,
    draft: &Draft,
    report: &Report<'_>,
) {
    for name in to {
        is_there(name, names, draft, report);
        if names.get(&name.value) == Some(from) {
            let message = "is the realm itself, within which hairpinning is permitted anyway";
            report.wrong(&name.place, format!("{message}; leave it out"));
        } else if !draft.config.hairpinning {
            report.wrong(
                &name.place,
                "has no effect, for nat.hairpinning is off; keep one of the two",
            );
        }
    }
}

/// Reports a deterministic pool that more than one realm uses.
fn plans_have_one_realm(draft: &Draft, report: &Report<'_>) {
    for (number, pool) in draft.pools.iter().enumerate() {
        if !matches!(draft.allocation(pool), Allocation::Deterministic(_)) {
            continue;
        }
        let users = draft.users(number);
        let Some(((first, _), others)) = users.split_first() else { continue };
        let name = |realm: u16| match usize::from(realm).checked_sub(1) {
            None => DEFAULT,
            Some(place) => &draft.realms[place].name.value,
        };
        for (realm, place) in others {
            let (pool, one, other) = (&pool.name.value, name(*first), name(*realm));
            let message = format!("deterministic pool \"{pool}\" serves realm \"{one}\"");
            let why = "and an address tells its ports in one realm only";
            let remedy = format!("give \"{other}\" a pool of its own by pool = ");
            report.wrong(place, format!("{message} already, {why}; {remedy}"));
        }
    }
}

/// The networks of realms and of the outside, checked like those of the two sides.
pub(super) fn networks(draft: &Draft, report: &Report<'_>) {
    let (Some(outer), Some(own)) = (draft.outside.network(), &draft.outside.address) else {
        return;
    };
    for realm in &draft.realms {
        let (Some(inner), Some(address)) = (realm.inside.network(), &realm.inside.address) else {
            continue;
        };
        if inner.contains(own.value.0.into()) || outer.contains(address.value.0.into()) {
            let (inner, outer) = (show_prefix(inner), show_prefix(outer));
            let message = format!("the network {inner} overlaps that of outside.address ({outer})");
            report.unwise(
                &address.place,
                format!("{message}; hosts there are told apart by the side"),
            );
        }
    }
}
