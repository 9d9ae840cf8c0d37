//! The tables of a configuration that differ from the settings in force.

use crate::config::DEFAULT_REALM;
use natgate_engine::{Config, Limits, Rule};
use natgate_gateway::{RealmSettings, Route, Settings, StaticNeighbor};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// The tables of the configuration that differ.
pub(super) fn changed(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let (own, next) = (&old.engine, &new.engine.in_numbers_of(&old.engine));
    let pools = |config: &Config| (config.pools.clone(), config.default_pool);
    let nat_differs = nat(own) != nat(next) || old.inside_routes != new.inside_routes;
    // Room for requested mappings comes with the first gateway.
    let room = if old.alg == new.alg { next } else { own }.limits.explicit_mappings;
    let limits = Limits { explicit_mappings: room, ..next.limits.clone() };
    let limits_differ = own.limits != limits || old.neighbors_limit != new.neighbors_limit;
    let realms_differ = realms(own) != realms(next) || links(old) != links(new);
    let (own6, next6) = (&old.router6, &new.router6);
    let hosts = |settings: &Settings| settings.ipv6.static_hosts().copied().collect::<Vec<_>>();
    let statics_differ =
        own.statics != next.statics || hosts(old) != hosts(new) || old.health != new.health;
    let tables = [
        (pools(own) != pools(next), "pool"),
        (nat_differs, "nat"),
        (limits_differ, "limits"),
        (own.classes != next.classes, "class"),
        (own.timeouts != next.timeouts, "timeouts"),
        (own.port_timeouts != next.port_timeouts, "timeout"),
        (statics_differ, "static"),
        (realms_differ, "realm"),
        (rules(own) != rules(next), "rule"),
        (routes(old) != routes(new) || own6.routes != next6.routes, "route"),
        (neighbors(old) != neighbors(new) || own6.neighbors != next6.neighbors, "neighbor"),
        (own6.advertise != next6.advertise, "ipv6.advertise"),
        (old.ipv6.nptv6 != new.ipv6.nptv6, "nptv6"),
        (bindings(old, new).is_some(), "lw4o6"),
        (old.workers != new.workers, "workers"),
        (old.kernel.drain() != new.kernel.drain(), "shutdown"),
        (old.alg != new.alg, "alg"),
        (old.logs != new.logs, "log"),
        (old.control != new.control, "control"),
    ];
    tables.into_iter().filter_map(|(differs, table)| differs.then_some(table)).collect()
}

/// Numbers of bindings of lw4o6 in force and in new settings, if the bindings differ.
pub(super) fn bindings(old: &Settings, new: &Settings) -> Option<[usize; 2]> {
    let (old, new) = (old.bindings.as_ref()?.table(), new.bindings.as_ref()?.table());
    (old != new).then(|| [old.len(), new.len()])
}

/// Names `[nat.block]` in place of the pools, or of all of `[nat]`, if nothing else of these tables
/// differs between the texts of the files.
pub(super) fn named(mut changed: Vec<&'static str>, old: &str, new: &str) -> Vec<&'static str> {
    let Some(place) = changed.iter().position(|table| ["pool", "nat"].contains(table)) else {
        return changed;
    };
    let (Ok(old), Ok(new)) = (old.parse::<Table>(), new.parse::<Table>()) else { return changed };
    let nat = |text: &Table| text.get("nat").and_then(Value::as_table).cloned().unwrap_or_default();
    let (mut before, mut after) = (nat(&old), nat(&new));
    let blocks_differ = before.remove("block") != after.remove("block");
    if blocks_differ && before == after && old.get("pool") == new.get("pool") {
        changed[place] = "nat.block";
        changed.retain(|table| !["pool", "nat"].contains(table));
    }
    changed
}

/// The realms' devices and addresses. The order of realms has no meaning.
fn links(settings: &Settings) -> BTreeMap<String, RealmSettings> {
    let realms = settings.realms.iter().cloned();
    let bare = |realm| RealmSettings { routes: vec![], neighbors: vec![], ..realm };
    realms.map(|realm| (realm.name.clone(), bare(realm))).collect()
}

fn routes(settings: &Settings) -> BTreeMap<String, Vec<Route>> {
    let realms = settings.realms.iter().map(|realm| (realm.name.clone(), realm.routes.clone()));
    let default = (DEFAULT_REALM.to_owned(), settings.routes.clone());
    realms.filter(|(_, routes)| !routes.is_empty()).chain([default]).collect()
}

fn neighbors(settings: &Settings) -> BTreeMap<String, Vec<StaticNeighbor>> {
    let realms = settings.realms.iter().map(|realm| (realm.name.clone(), realm.neighbors.clone()));
    let default = (DEFAULT_REALM.to_owned(), settings.neighbors.clone());
    realms.filter(|(_, neighbors)| !neighbors.is_empty()).chain([default]).collect()
}

/// The configuration without the parts that have tables of their own.
fn nat(config: &Config) -> Config {
    let Config { limits, timeouts, .. } = Config::default();
    Config {
        inside_routes: Vec::new(),
        pools: Vec::new(),
        default_pool: 0,
        rules: Vec::new(),
        statics: Vec::new(),
        limits,
        timeouts,
        classes: Vec::new(),
        port_timeouts: Vec::new(),
        timeout_sets: Vec::new(),
        realms: Vec::new(),
        ..config.clone()
    }
}

/// The rules of each realm, and their timeouts.
fn rules(config: &Config) -> impl PartialEq + use<> {
    let realms = config.realms.iter().filter(|realm| !realm.rules.is_empty());
    let of_realms: BTreeMap<String, Vec<Rule>> =
        realms.map(|realm| (realm.name.clone(), realm.rules.clone())).collect();
    (config.rules.clone(), of_realms, config.timeout_sets.clone())
}

/// The realms of the translator without their rules and routes.
fn realms(config: &Config) -> impl PartialEq + use<> {
    let mut realms = config.realms.clone();
    for realm in &mut realms {
        (realm.rules, realm.order) = (Vec::new(), 0);
        realm.inside_routes = Vec::new();
    }
    realms
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn blocks_of_all_pools_have_their_own_name() {
        let text = |nat: &str, pool: &str| format!("[nat]\n{nat}[[pool]]\nallocation = {pool}\n");
        let block = |size: u16| format!("block.size = {size}\n");
        let old = text(&block(512), "\"block\"");
        let of = |changed: &[&'static str], new: &str| named(changed.to_vec(), &old, new);
        let other_size = text(&block(256), "\"block\"");
        assert_eq!(of(&["pool", "log"], &other_size), ["nat.block", "log"]);
        assert_eq!(of(&["nat"], &other_size), ["nat.block"]);
        assert_eq!(of(&["pool", "nat"], &other_size), ["nat.block"]);
        assert_eq!(of(&["pool"], &text(&block(256), "\"random\"")), ["pool"]);
        assert_eq!(of(&["pool"], &text(&block(512), "\"random\"")), ["pool"]);
        let more = text(&format!("{}pooling = \"arbitrary\"\n", block(256)), "\"block\"");
        assert_eq!(of(&["pool", "nat"], &more), ["pool", "nat"]);
        assert_eq!(of(&["log"], &other_size), ["log"]);
    }
}
