//! Keys that a running gateway cannot change. A new file that changes one is refused, with the
//! place of every such key.

use super::problem::{Place, Problem, Report};
use super::{Configuration, parse_piece, pieces, values};
use natgate_engine::{
    AddressRange, Allocation, Arithmetic, Begun, BlockConflict, Config, PoolConfig, RealmConfig,
    StaticMapping, restart_keys,
};
use natgate_gateway::{Backend, ControlSettings, Settings, SideSettings};
use natgate_ipv6::softwire::{DsliteSettings, Lw4o6Settings};
use natgate_ipv6::{Nat64Settings, Settings as Ipv6Settings};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Problems of a configuration that is to replace the settings in force. `in_force` has the
/// settings as the file gave them.
pub(super) fn problems(
    text: &str,
    name: &str,
    in_force: &Settings,
    new: &Configuration,
) -> Vec<Problem> {
    let keys = keys(in_force, &new.settings);
    if keys.is_empty() {
        return Vec::new();
    }
    let report = Report::new(name, text);
    let (head, _) = pieces::cut(text, pieces::RULES);
    let tree = parse_piece(text, 0..head, &report);
    for key in keys {
        let fixed = (key == "static")
            .then(|| changed_static(&in_force.engine, &numbered(in_force, &new.settings)));
        let place = fixed.flatten().and_then(|end| place_of_static(tree.get_ref(), end));
        let key_itself = || Place { offset: offset(tree.get_ref(), &key), key: key.clone() };
        let place = place.unwrap_or_else(key_itself);
        let message = match key.as_str() {
            "workers.count" if in_force.ipv6.configured => {
                "with IPv6 the number of workers changes only at a restart; write what was there, \
                 or restart natgate"
            }
            "workers.count" => {
                "a reload can add workers, not remove them; write what was there, or restart \
                 natgate"
            }
            key if key.starts_with("pool[") => {
                "gives ports of a pair to other workers, which changes only at a restart; write \
                 what was there, or restart natgate"
            }
            _ => "changes only at a restart; write what was there, or restart natgate",
        };
        report.wrong(&place, message);
    }
    report.finish().0
}

/// The problem of a forwarded port in a block that its host cannot have while the gateway runs.
pub(super) fn block_conflict(
    text: &str,
    name: &str,
    conflict: &BlockConflict,
    settings: &Settings,
) -> Problem {
    let report = Report::new(name, text);
    let (head, _) = pieces::cut(text, pieces::RULES);
    let tree = parse_piece(text, 0..head, &report);
    let engine = &settings.engine;
    let of_realm = |realm: u16| engine.realms.get(usize::from(realm).checked_sub(1)?);
    let host = |realm, address: Ipv4Addr| match of_realm(realm) {
        Some(of) if of.host_bits.is_some() => {
            let kind = settings.ipv6.host_realms(settings.realms.len()).kind(realm);
            match kind.and_then(|kind| settings.ipv6.static_host(kind, address)) {
                Some(host) => host.to_string(),
                None => format!("another subscriber of {}", of.name),
            }
        }
        Some(realm) => format!("{address} of realm {}", realm.name),
        None => address.to_string(),
    };
    let (address, port) = conflict.external;
    let sentence = conflict.sentence(host);
    let remedy = "use a port in no block or in a free one, reload when the block is released, or \
                  restart natgate";
    let message = format!("{address}:{port} {sentence}; {remedy}");
    match place_of_static(tree.get_ref(), conflict.external) {
        None => Problem::of_file(name, message),
        Some(place) => report.in_order(vec![(place, message)]).remove(0),
    }
}

/// The external endpoint of the first static mapping of the new configuration that only a restart
/// makes: a one-way mapping or a service.
fn changed_static(in_force: &Config, new: &Config) -> Option<(Ipv4Addr, u16)> {
    let key = |one: &StaticMapping| (one.external, one.protocol, one.realm, one.internal);
    let one_way = |config: &Config| -> Vec<StaticMapping> {
        let all = config.statics.iter().filter(|one| one.begun != Begun::Anywhere);
        all.copied().collect()
    };
    let known: BTreeSet<_> =
        one_way(in_force).iter().map(|one| (key(one), one.begun == Begun::Inside)).collect();
    let is_known = |one: &StaticMapping| known.contains(&(key(one), one.begun == Begun::Inside));
    let mapping = one_way(new).into_iter().find(|one| !is_known(one));
    let service = || new.services.iter().find(|service| !in_force.services.contains(service));
    let end = |(address, port): (Ipv4Addr, Option<u16>)| (address, port.unwrap_or(0));
    mapping.map(|one| end(one.external)).or_else(|| service().map(|service| service.external))
}

/// The place of the external endpoint of the static mapping that has a port of an address.
fn place_of_static(tree: &DeTable<'_>, (address, port): (Ipv4Addr, u16)) -> Option<Place> {
    let DeValue::Array(all) = tree.get("static")?.get_ref() else { return None };
    all.iter().enumerate().find_map(|(number, item)| {
        let DeValue::Table(table) = item.get_ref() else { return None };
        let external = table.get("external")?;
        let DeValue::String(text) = external.get_ref() else { return None };
        let (of, ports) = values::endpoint_range(text).ok()?;
        let has = of == address && ports.is_none_or(|span| span.ports().any(|one| one == port));
        has.then(|| Place {
            key: format!("static[{number}].external"),
            offset: external.span().start,
        })
    })
}

/// The keys that differ and need a restart.
fn keys(in_force: &Settings, new: &Settings) -> Vec<String> {
    let mut keys = Vec::new();
    for (side, [old, new], errors) in [
        (
            "inside",
            [&in_force.inside, &new.inside],
            in_force.engine.inside.silent != new.engine.inside.silent,
        ),
        (
            "outside",
            [&in_force.outside, &new.outside],
            in_force.engine.outside.silent != new.engine.outside.silent,
        ),
    ] {
        keys.extend(of_side(side, old, new, errors));
    }
    keys.extend(of_ipv6(in_force, new).into_iter().map(str::to_owned));
    let of_engine = restart_keys(&in_force.engine, &numbered(in_force, new));
    // The exact keys of these tables are reported by the other comparisons.
    let of_engine = of_engine.into_iter().filter(|key| !["inside", "outside"].contains(key));
    let starts = !in_force.pcp.enabled && new.pcp.enabled;
    keys.extend(of_engine.map(str::to_owned));
    keys.extend(of_computed_ports(in_force, new));
    let (before, after) = (&in_force.kernel, &new.kernel);
    let (before_control, control) = (&in_force.control, &new.control);
    let (alg, next_alg) = (&in_force.alg, &new.alg);
    let have_other_room = alg.flows() != next_alg.flows() && !alg.is_off() && !next_alg.is_off();
    let rest = [
        (!may_have_workers(in_force, new), "workers.count"),
        (!new.workers.cores.starts_with(&in_force.workers.cores), "workers.cores"),
        (in_force.dpdk != new.dpdk, "dpdk.eal"),
        (before.management[0] != after.management[0], "inside.management"),
        (before.management[1] != after.management[1], "outside.management"),
        (before.announce != after.announce, "announce"),
        (before.learn != after.learn, "learn"),
        (in_force.state != new.state, "state"),
        (in_force.fleet != new.fleet, "fleet"),
        (starts, "pcp.enabled"),
        (have_other_room, "alg.flows"),
        (before_control.socket != control.socket, "control.socket"),
        (before_control.group != control.group, "control.group"),
        (before_control.read_socket != control.read_socket, "control.read_socket"),
        (before_control.read_group != control.read_group, "control.read_group"),
        (listens(before_control) != listens(control), "control.listen"),
        (in_force.page != new.page, "page"),
        (in_force.monitoring.metrics != new.monitoring.metrics, "metrics.listen"),
        (in_force.monitoring.metrics_names != new.monitoring.metrics_names, "metrics.names"),
        (in_force.monitoring.snmp != new.monitoring.snmp, "snmp"),
    ];
    keys.extend(rest.into_iter().filter(|(differs, _)| *differs).map(|(_, key)| key.to_owned()));
    keys
}

/// The keys that give computed ports to other subscribers, in a pair whose node has several
/// workers: a port would go to a worker that does not know whether the port rests. Nor do workers
/// know that of an address that comes from a pool of whole addresses, or goes to one.
fn of_computed_ports(in_force: &Settings, new: &Settings) -> Vec<String> {
    let is_shared = |settings: &Settings| settings.fleet.is_some() && settings.workers.count > 1;
    if !is_shared(in_force) || !is_shared(new) {
        return Vec::new();
    }
    let pools = new.engine.pools.iter().enumerate();
    pools
        .flat_map(|(number, pool)| {
            let of = |settings: &Settings| Arithmetic::of(&settings.engine, &pool.addresses);
            let keys = of(new).differences(&of(in_force));
            // Keys of other tables are compared above.
            let mut of_pool: Vec<_> = keys.into_iter().filter(|key| !key.contains('.')).collect();
            if of_pool.is_empty() && takes_others(&in_force.engine, &new.engine, pool) {
                of_pool.push("addresses");
            }
            of_pool.into_iter().map(move |key| format!("pool[{number}].{key}"))
        })
        .collect()
}

/// True if a pool has an address from one of another kind: with whole addresses, or without.
fn takes_others(in_force: &Config, new: &Config, pool: &PoolConfig) -> bool {
    let is_whole =
        |config: &Config, pool: &PoolConfig| *config.allocation_of(pool) == Allocation::Address;
    let meet = |one: &AddressRange, other: &AddressRange| {
        one.first <= other.last && other.first <= one.last
    };
    let others = in_force.pools.iter();
    let mut others = others.filter(|other| is_whole(in_force, other) != is_whole(new, pool));
    others.any(|other| {
        other.addresses.iter().any(|one| pool.addresses.iter().any(|range| meet(one, range)))
    })
}

/// The keys and tables of IPv6 that differ.
fn of_ipv6(in_force: &Settings, new: &Settings) -> Vec<&'static str> {
    let (old, engine) = (&in_force.ipv6, &in_force.engine);
    let names = |realms: &[RealmConfig]| -> Vec<String> {
        realms.iter().map(|realm| realm.name.clone()).collect()
    };
    // The hosts of NAT64 and of DS-Lite are realms of the engine, behind all others.
    let has_numbers = old.nat64.is_some() || old.dslite.is_some();
    let is_numbered = has_numbers && names(&engine.realms) != names(&new.engine.realms);
    let new = &new.ipv6;
    let nat64 = |settings: &Ipv6Settings| {
        let nat64 = settings.nat64.clone()?;
        Some(Nat64Settings { static_hosts: Vec::new(), ..nat64 })
    };
    let dslite = |settings: &Ipv6Settings| {
        let dslite = settings.dslite.clone()?;
        Some(DsliteSettings { static_hosts: Vec::new(), ..dslite })
    };
    let differs = [
        (old.inside.address != new.inside.address, "inside.address6"),
        (old.inside.gateway != new.inside.gateway, "inside.gateway6"),
        (old.outside.address != new.outside.address, "outside.address6"),
        (old.outside.gateway != new.outside.gateway, "outside.gateway6"),
        (
            (old.forwarding, old.filter, old.conversion)
                != (new.forwarding, new.filter, new.conversion),
            "ipv6",
        ),
        (nat64(old) != nat64(new), "nat64"),
        (old.siit != new.siit, "siit"),
        (old.clat != new.clat, "clat"),
        // Without IPv6 at the start there is no translator that could have pairs.
        (!old.configured && !new.nptv6.is_empty(), "nptv6"),
        (dslite(old) != dslite(new), "dslite"),
        (!is_same_relay(old, new), "lw4o6"),
        (old.map != new.map, "map"),
        (is_numbered, "realm"),
    ];
    differs.into_iter().filter(|(differs, _)| *differs).map(|(_, key)| key).collect()
}

/// True if two configurations have one relay of lw4o6, whatever its bindings.
fn is_same_relay(old: &natgate_ipv6::Settings, new: &natgate_ipv6::Settings) -> bool {
    match (&old.lw4o6, &new.lw4o6) {
        (None, None) => true,
        (Some(old), Some(new)) => {
            let bindings = std::sync::Arc::clone(&new.bindings);
            Lw4o6Settings { bindings, ..old.clone() } == *new
        }
        _ => false,
    }
}

/// The engine's new configuration with the numbers in force for hosts of static mappings. A host
/// without a number there gets one that no host has.
fn numbered<'s>(in_force: &Settings, new: &'s Settings) -> Cow<'s, Config> {
    if new.ipv6.static_hosts().next().is_none() {
        return Cow::Borrowed(&new.engine);
    }
    let before = in_force.ipv6.static_hosts();
    let before: HashMap<(Ipv6Addr, Option<Ipv4Addr>), Ipv4Addr> =
        before.map(|host| ((host.address, host.inner), host.number)).collect();
    let unknown = (Ipv4Addr::LOCALHOST.to_bits()..).map(Ipv4Addr::from_bits);
    let realms = new.ipv6.host_realms(new.realms.len());
    let hosts = new.ipv6.static_hosts().zip(unknown);
    let numbers: HashMap<(Option<u16>, Ipv4Addr), Ipv4Addr> = hosts
        .map(|(host, unknown)| {
            let known = before.get(&(host.address, host.inner)).copied();
            ((realms.of(host.kind()), host.number), known.unwrap_or(unknown))
        })
        .collect();
    let mut engine = new.engine.clone();
    for one in engine.statics.iter_mut().filter(|one| realms.has(one.realm)) {
        let number = numbers.get(&(Some(one.realm), one.internal.0)).copied();
        one.internal.0 = number.unwrap_or(one.internal.0);
    }
    Cow::Owned(engine)
}

/// The listener for other machines. Its certificates and operator names can be reread.
fn listens(control: &ControlSettings) -> Option<SocketAddr> {
    control.remote.as_ref().map(|remote| remote.listen)
}

/// True if the new number of workers can be reached without a restart: workers may join, none
/// leaves. DPDK ports and TUN devices keep their number of queues. Hosts of IPv6 keep the workers
/// that their prefixes had at the start.
fn may_have_workers(in_force: &Settings, new: &Settings) -> bool {
    let fixed = |side: &SideSettings| matches!(side.backend, Backend::Dpdk | Backend::Tun);
    let (before, after) = (in_force.workers.count, new.workers.count);
    let may_join = !in_force.ipv6.configured && !new.ipv6.configured;
    let may_join = may_join && !fixed(&in_force.inside) && !fixed(&in_force.outside);
    before == after || before < after && may_join
}

fn of_side(
    side: &str,
    old: &SideSettings,
    new: &SideSettings,
    errors: bool,
) -> impl Iterator<Item = String> {
    let SideSettings { device, backend, address, gateway, mtu, mode, ring } = old;
    let differs = [
        (*device != new.device, "device"),
        (*backend != new.backend, "backend"),
        (*address != new.address, "address"),
        (*gateway != new.gateway, "gateway"),
        (*mtu != new.mtu, "mtu"),
        (*mode != new.mode, "mode"),
        (*ring != new.ring, "ring"),
        (errors, "icmp_errors"),
    ];
    let differing = differs.into_iter().filter(|(differs, _)| *differs);
    differing.map(move |(_, key)| format!("{side}.{key}"))
}

/// The offset of a key; if absent, of its table or of the file.
fn offset(tree: &DeTable<'_>, key: &str) -> usize {
    let mut table = tree;
    let mut offset = 0;
    for part in key.split('.') {
        // An index selects one table of an array.
        let (part, number) = match part.split_once('[') {
            Some((part, number)) => (part, number.trim_end_matches(']').parse().unwrap_or(0)),
            None => (part, 0_usize),
        };
        let Some((name, value)) = table.get_key_value(part) else { break };
        offset = start(name, value);
        let inner = match value.get_ref() {
            DeValue::Array(items) => match items.get(number) {
                Some(item) => {
                    offset = item.span().start;
                    item.get_ref()
                }
                None => break,
            },
            inner => inner,
        };
        match inner {
            DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    offset
}

fn start(name: &Spanned<std::borrow::Cow<'_, str>>, value: &Spanned<DeValue<'_>>) -> usize {
    if value.span().is_empty() { name.span().start } else { value.span().start }
}
