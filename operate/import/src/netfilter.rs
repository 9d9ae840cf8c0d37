//! Common parts of iptables and nftables: chains of rules, of which the first that matches decides.
//! They become natgate's pools, rules and static mappings.

use crate::address::{Ports, Range};
use crate::filter;
use crate::forwards::{netmap, prerouting};
use crate::plan::{Kind, Origin, Plan, Rule, Way};
use std::collections::{BTreeMap, BTreeSet};

/// Greatest depth of calls between chains, and most rules that are read, each as often as it is
/// called.
const MOST_DEPTH: usize = 8;
const MOST_RULES: usize = 50_000;

/// Hook at which a chain is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Prerouting,
    Postrouting,
    /// The filter of packets that are forwarded.
    Forward,
    /// Packets of the machine itself.
    Local,
    /// The hook of any other table.
    Other,
}

/// A device by name, or every other device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) negated: bool,
}

/// Condition of a rule; all parts must hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    pub(crate) source: Option<Vec<Range>>,
    pub(crate) destination: Option<Vec<Range>>,
    pub(crate) not_destination: Vec<Range>,
    pub(crate) protocols: Option<Vec<String>>,
    /// Ports of the destination.
    pub(crate) ports: Option<Vec<Ports>>,
    pub(crate) input: Option<Device>,
    pub(crate) output: Option<Device>,
    /// Parts that natgate's rules do not support.
    pub(crate) odd: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Masquerade(Option<Ports>),
    Snat(Vec<Range>, Option<Ports>),
    Dnat(Range, Option<Ports>),
    Netmap(Range),
    Accept,
    Return,
    Drop,
    Redirect,
    /// The largest maximum segment size; `None`: derived from the MTU.
    Clamp(Option<u16>),
    Jump(String),
    /// Nothing happens to the packet.
    Nothing,
    /// natgate has no equivalent.
    Odd(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) origin: Origin,
    pub(crate) condition: Condition,
    pub(crate) action: Action,
}

#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) hook: Option<Hook>,
    /// Line that makes dropping the chain's default.
    pub(crate) policy: Option<Origin>,
    pub(crate) entries: Vec<Entry>,
}

pub(crate) type Chains = BTreeMap<String, Chain>;

/// Source translation: sources, and external addresses.
struct Snat {
    sources: Option<Vec<Range>>,
    /// Destination ports, if the rule is about some.
    ports: Option<Vec<Ports>>,
    addresses: Vec<Range>,
    pool_ports: Option<Ports>,
    place: usize,
    origin: Origin,
}

/// Converts the chains to natgate's pools, rules and mappings.
pub(crate) fn lower(chains: &Chains, plan: &mut Plan) {
    let before = of_hook(chains, Hook::Prerouting, plan);
    plan.decides = true;
    let after = of_hook(chains, Hook::Postrouting, plan);
    plan.decides = false;
    find_devices(&before, &after, plan);
    for (place, entry) in before.iter().enumerate() {
        plan.place = place;
        prerouting(entry, plan);
    }
    let mut snats = Vec::new();
    for (place, entry) in after.iter().enumerate() {
        // Forwarded packets are filtered before their sources are translated: the filter has place
        // 0.
        plan.place = place + 1;
        plan.decides = decides(&entry.action);
        snats.extend(postrouting(entry, plan));
    }
    plan.decides = true;
    sources(snats, plan);
    plan.place = 0;
    for chain in chains.values().filter(|chain| chain.hook == Some(Hook::Forward)) {
        let entries = of_chain(chains, chain, plan);
        filter::forwarded(&entries, chain.policy.as_ref(), plan);
    }
    plan.decides = false;
    for hook in [Hook::Local, Hook::Other] {
        for entry in of_hook(chains, hook, plan) {
            elsewhere(&entry, hook, plan);
        }
    }
}

/// True if a rule about source addresses decides which hosts are translated.
fn decides(action: &Action) -> bool {
    match action {
        Action::Masquerade(_)
        | Action::Snat(..)
        | Action::Netmap(_)
        | Action::Accept
        | Action::Return
        | Action::Drop => true,
        Action::Dnat(..)
        | Action::Redirect
        | Action::Clamp(_)
        | Action::Jump(_)
        | Action::Nothing
        | Action::Odd(_) => false,
    }
}

/// Rules of all chains of a hook, each with the rules of called chains.
fn of_hook(chains: &Chains, hook: Hook, plan: &mut Plan) -> Vec<Entry> {
    let mut flat = Flat::default();
    for chain in chains.values().filter(|chain| chain.hook == Some(hook)) {
        flatten(chains, chain, &Condition::default(), 0, plan, &mut flat);
    }
    flat.all
}

/// Rules of a chain and of the chains that it calls.
fn of_chain(chains: &Chains, chain: &Chain, plan: &mut Plan) -> Vec<Entry> {
    let mut flat = Flat::default();
    flatten(chains, chain, &Condition::default(), 0, plan, &mut flat);
    flat.all
}

/// Rules of a hook, and number of rules read for it.
#[derive(Default)]
struct Flat {
    all: Vec<Entry>,
    looked_at: usize,
}

/// Replaces calls of chains by the rules of these chains.
fn flatten(
    chains: &Chains,
    chain: &Chain,
    outer: &Condition,
    depth: usize,
    plan: &mut Plan,
    flat: &mut Flat,
) {
    for entry in &chain.entries {
        if flat.looked_at >= MOST_RULES {
            return plan.without(&entry.origin, format!("is beyond {MOST_RULES} rules"));
        }
        flat.looked_at += 1;
        let condition = match both(outer, &entry.condition) {
            Some(condition) => condition,
            None => {
                plan.unneeded(
                    &entry.origin,
                    "never applies: what it matches, its chain is not called for",
                );
                continue;
            }
        };
        match &entry.action {
            Action::Jump(name) => match chains.get(name) {
                Some(called) if depth < MOST_DEPTH => {
                    flatten(chains, called, &condition, depth + 1, plan, flat);
                }
                Some(_) => plan.without(&entry.origin, "calls chains too deep, or in a circle"),
                None => {
                    plan.without(&entry.origin, format!("calls chain {name}, which is not there"))
                }
            },
            Action::Return if depth > 0 => {
                let last = chain.entries.last().is_some_and(|last| std::ptr::eq(last, entry));
                if !last {
                    plan.without(
                        &entry.origin,
                        "leaves its chain early, and natgate has no chains",
                    );
                }
            }
            action => {
                let (origin, action) = (entry.origin.clone(), action.clone());
                flat.all.push(Entry { origin, condition, action });
            }
        }
    }
}

/// Condition that holds if both hold; `None` if no packet can match both.
fn both(outer: &Condition, inner: &Condition) -> Option<Condition> {
    let ranges = |one: &Option<Vec<Range>>, other: &Option<Vec<Range>>| match (one, other) {
        (Some(one), Some(other)) => {
            let mut common = Vec::new();
            for (one, other) in
                one.iter().flat_map(|one| other.iter().map(move |other| (one, other)))
            {
                if one.overlaps(*other) && common.len() < MOST_RULES {
                    common.push(Range {
                        first: one.first.max(other.first),
                        last: one.last.min(other.last),
                    });
                }
            }
            (!common.is_empty()).then_some(Some(common))
        }
        (one, other) => Some(one.clone().or_else(|| other.clone())),
    };
    let devices = |one: &Option<Device>, other: &Option<Device>| match (one, other) {
        (Some(one), Some(other)) if one != other => None,
        (one, other) => Some(one.clone().or_else(|| other.clone())),
    };
    Some(Condition {
        source: ranges(&outer.source, &inner.source)?,
        destination: ranges(&outer.destination, &inner.destination)?,
        not_destination: [&outer.not_destination[..], &inner.not_destination].concat(),
        protocols: inner.protocols.clone().or_else(|| outer.protocols.clone()),
        ports: inner.ports.clone().or_else(|| outer.ports.clone()),
        input: devices(&outer.input, &inner.input)?,
        output: devices(&outer.output, &inner.output)?,
        odd: [&outer.odd[..], &inner.odd].concat(),
    })
}

/// Finds the devices. Translated packets leave by the outside; the inside is the device where
/// packets return to their sender's side, or where other packets come in.
fn find_devices(before: &[Entry], after: &[Entry], plan: &mut Plan) {
    let translates =
        |entry: &&Entry| matches!(entry.action, Action::Masquerade(_) | Action::Snat(..));
    for Entry { condition, .. } in after.iter().filter(translates) {
        let Some(Device { name, negated }) = &condition.output else { continue };
        let turns_round = match (&condition.source, &condition.destination) {
            (Some(source), Some(destination)) => {
                source.iter().any(|one| destination.iter().any(|other| one.overlaps(*other)))
            }
            _ => false,
        };
        let is_inside = *negated || turns_round;
        let side = if is_inside { &mut plan.inside } else { &mut plan.outside };
        side.device.get_or_insert_with(|| name.clone());
    }
    let inputs = before.iter().filter_map(|entry| entry.condition.input.as_ref());
    for Device { name, negated } in inputs {
        let [inside, outside] = [&plan.inside, &plan.outside].map(|side| side.device.as_deref());
        if inside == Some(name) || outside == Some(name) {
            continue;
        }
        match (inside, outside) {
            (_, None) if !negated => plan.outside.device = Some(name.clone()),
            (None, _) => plan.inside.device = Some(name.clone()),
            _ => {}
        }
    }
}

/// Remarks that a rule has parts that natgate's rules do not support; returns true if it has.
pub(crate) fn is_odd(entry: &Entry, plan: &mut Plan) -> bool {
    let odd = &entry.condition.odd;
    if !odd.is_empty() {
        let message = format!(
            "matches {}; natgate's rules match a source or a destination with its port",
            odd.join(", ")
        );
        plan.without(&entry.origin, message);
    }
    !odd.is_empty()
}

pub(crate) fn says_protocol(condition: &Condition, entry: &Entry, plan: &mut Plan) {
    if let Some(protocols) = &condition.protocols {
        let message = format!("is for all protocols now, not only {}", protocols.join(", "));
        plan.differs(&entry.origin, message);
    }
}

/// Converts a rule about source addresses; returns its translation, if it has one.
fn postrouting(entry: &Entry, plan: &mut Plan) -> Option<Snat> {
    let Entry { origin, condition, action } = entry;
    if matches!(action, Action::Nothing) {
        plan.without(origin, "does nothing to packets; natgate logs events, not packets");
        return None;
    }
    if is_odd(entry, plan) || !leaves_outside(entry, plan) {
        return None;
    }
    if !matches!(action, Action::Masquerade(_) | Action::Snat(..)) {
        other_than_source(entry, plan);
        return None;
    }
    if condition.source.is_some() && condition.destination.is_some() {
        plan.without(
            origin,
            "matches source and destination; a natgate rule looks at one endpoint",
        );
        return None;
    }
    if condition.source.is_some() && condition.ports.is_some() {
        plan.without(
            origin,
            "matches source and destination port; a natgate rule looks at one endpoint",
        );
        return None;
    }
    says_protocol(condition, entry, plan);
    for range in condition.not_destination.iter().flat_map(|range| range.prefixes()) {
        let message = format!("packets to {range} bypass translation now, whoever sends them");
        plan.differs(origin, message);
        add_rule(plan, Kind::Bypass, false, range, 0, origin);
    }
    let (addresses, pool_ports) = match action {
        Action::Snat(addresses, ports) => (addresses.clone(), *ports),
        Action::Masquerade(ports) => (plan.own_addresses(origin), *ports),
        _ => return None,
    };
    if let Some(wrong) = addresses.iter().find(|range| !range.is_usable()) {
        plan.without(origin, format!("{wrong} is no address that a host can have"));
        return None;
    }
    let (sources, ports) = match &condition.destination {
        Some(destinations) => {
            by_destination(entry, destinations, &addresses, pool_ports, plan);
            return None;
        }
        None => (condition.source.clone(), condition.ports.clone()),
    };
    let sources = sources.filter(|sources| !sources.contains(&Range::ALL));
    let (place, origin) = (plan.place, origin.clone());
    Some(Snat { sources, ports, addresses, pool_ports, place, origin })
}

/// Converts actions after routing other than source translation.
fn other_than_source(entry: &Entry, plan: &mut Plan) {
    let Entry { origin, condition, action } = entry;
    match action {
        Action::Accept | Action::Return => bypass(entry, plan),
        Action::Clamp(most) => clamp(*most, plan),
        Action::Netmap(to) => {
            let from = condition.source.as_deref().and_then(|sources| sources.first().copied());
            netmap(entry, from, *to, Way::Outbound, plan);
        }
        Action::Drop => {
            plan.without(origin, "drops in a chain for translation; write a rule of kind drop");
        }
        Action::Odd(what) => plan.without(origin, format!("{what} has no counterpart in natgate")),
        _ => plan.without(origin, "is not about source addresses"),
    }
}

/// Returns true if the rule is about packets that leave by the outside.
fn leaves_outside(entry: &Entry, plan: &mut Plan) -> bool {
    let Some(Device { name, negated }) = &entry.condition.output else { return true };
    if plan.inside.device.as_deref() == Some(name) && !negated {
        let message = "is about packets that go back inside, which natgate turns round by itself \
                       (nat.hairpinning)";
        plan.unneeded(&entry.origin, message);
        return false;
    }
    let is_outside = plan.outside.device.as_deref() == Some(name);
    if *negated && is_outside || !negated && !is_outside {
        let outside = plan.outside.device.as_deref().unwrap_or("another").to_owned();
        let message = format!("is about another device than {outside}; natgate has one outside");
        // Packets that leave by this device were not translated, and are not now.
        match entry.action {
            Action::Accept | Action::Return | Action::Drop => {
                plan.unneeded(&entry.origin, message);
            }
            _ => plan.without(&entry.origin, message),
        }
        return false;
    }
    true
}

fn by_destination(
    entry: &Entry,
    destinations: &[Range],
    addresses: &[Range],
    ports: Option<Ports>,
    plan: &mut Plan,
) {
    let pool = plan.pool(addresses, ports, &entry.origin);
    let own = single_ports(entry, plan);
    for range in destinations.iter().flat_map(|range| range.prefixes()) {
        for port in &own {
            add_rule(plan, Kind::Snat(pool), false, range, *port, &entry.origin);
        }
    }
}

/// Destination ports of a rule, one for each of natgate's rules; 0 for any port.
pub(crate) fn single_ports(entry: &Entry, plan: &mut Plan) -> Vec<u16> {
    const MOST: u32 = 64;
    let Some(ports) = &entry.condition.ports else { return vec![0] };
    let count: u32 = ports.iter().map(|ports| ports.count()).sum();
    if count > MOST {
        let message = format!(
            "matches {count} ports; a natgate rule has one, and at most {MOST} are written out"
        );
        plan.without(&entry.origin, message);
        return Vec::new();
    }
    ports.iter().flat_map(|ports| ports.first..=ports.last).collect()
}

/// Adds pools and rules for the source translations.
fn sources(snats: Vec<Snat>, plan: &mut Plan) {
    let kinds: BTreeSet<_> =
        snats.iter().map(|snat| (snat.addresses.clone(), snat.pool_ports)).collect();
    // Subscribers without a rule get the pool `default`, which is the first.
    let (all, named): (Vec<_>, Vec<_>) =
        snats.into_iter().partition(|snat| snat.sources.is_none() && snat.ports.is_none());
    for snat in &all {
        plan.pool(&snat.addresses, snat.pool_ports, &snat.origin);
    }
    for snat in all.iter().skip(1) {
        plan.unneeded(
            &snat.origin,
            format!("never applies: line {} translates all", all[0].origin.line),
        );
    }
    for snat in named {
        if let Some(all) = all.first().filter(|all| all.place < snat.place) {
            let message = format!("never applies: line {} translates all", all.origin.line);
            plan.unneeded(&snat.origin, message);
            continue;
        }
        plan.place = snat.place;
        let sources: Vec<Range> =
            snat.sources.iter().flatten().flat_map(|range| range.prefixes()).collect();
        if all.is_empty() {
            plan.subscribers.extend(&sources);
        }
        if is_one_to_one(&snat, &sources, plan) {
            continue;
        }
        let kind = kind_of(&snat, plan);
        // If there is one pool for all configured subscribers, no rule is needed.
        if kinds.len() == 1 && snat.ports.is_none() {
            continue;
        }
        if let Some(ports) = &snat.ports {
            for ports in ports.iter().take(64) {
                for port in (ports.first..=ports.last).take(64) {
                    add_rule(plan, kind.clone(), false, Range::ALL, port, &snat.origin);
                }
            }
        }
        for source in sources {
            add_rule(plan, kind.clone(), true, source, 0, &snat.origin);
        }
    }
}

/// True if a static mapping of a whole address does the translation, because the other direction is
/// configured already.
fn is_one_to_one(snat: &Snat, sources: &[Range], plan: &mut Plan) -> bool {
    let ([source], [external]) = (sources, &snat.addresses[..]) else { return false };
    let pair = (source.single(), external.single());
    let known = plan.statics.iter_mut().find(|fixed| {
        (Some(fixed.internal.0), fixed.external.0) == pair
            && pair.0.is_some()
            && fixed.internal.1.is_none()
            && fixed.protocol.is_none()
    });
    known.map(|known| known.way = Way::Both).is_some()
}

/// Selects the pool, or an address of an existing pool.
fn kind_of(snat: &Snat, plan: &mut Plan) -> Kind {
    if let [range] = snat.addresses[..] {
        let holds = |pool: &crate::plan::Pool| {
            pool.ports == snat.pool_ports
                && pool.addresses.iter().any(|own| own.contains(range) && *own != range)
        };
        if let Some(address) = range.single().filter(|_| plan.pools.iter().any(holds)) {
            return Kind::Address(address);
        }
    }
    Kind::Snat(plan.pool(&snat.addresses, snat.pool_ports, &snat.origin))
}

pub(crate) fn add_rule(
    plan: &mut Plan,
    kind: Kind,
    is_source: bool,
    prefix: Range,
    port: u16,
    origin: &Origin,
) {
    if plan.has_room(origin) {
        let origin = origin.clone();
        let place = plan.place;
        plan.rules.push(Rule { kind, is_source, prefix, port, priority: 0, place, origin });
    }
}

fn bypass(entry: &Entry, plan: &mut Plan) {
    let Entry { origin, condition, .. } = entry;
    let (is_source, ranges) = match (&condition.source, &condition.destination) {
        (Some(source), None) if condition.ports.is_none() => (true, source.clone()),
        (None, Some(destination)) => (false, destination.clone()),
        (None, None) => {
            return plan.without(origin, "exempts packets by nothing that a natgate rule looks at");
        }
        _ => {
            let message = "matches source and destination; a natgate rule looks at one endpoint";
            return plan.without(origin, message);
        }
    };
    says_protocol(condition, entry, plan);
    let ports = single_ports(entry, plan);
    for range in ranges.iter().flat_map(|range| range.prefixes()) {
        for port in &ports {
            add_rule(plan, Kind::Bypass, is_source, range, *port, origin);
        }
    }
}

pub(crate) fn clamp(most: Option<u16>, plan: &mut Plan) {
    let value = most.map_or_else(|| "\"mtu\"".to_owned(), |most| most.max(536).to_string());
    plan.nat.insert("tcp_mss", value);
}

/// Remarks on a rule that is not about translation of forwarded packets.
pub(crate) fn elsewhere(entry: &Entry, hook: Hook, plan: &mut Plan) {
    let Entry { origin, action, .. } = entry;
    match (action, hook) {
        (Action::Clamp(most), _) => clamp(*most, plan),
        (_, Hook::Local) => {
            plan.without(
                origin,
                "is about packets of the machine itself, which natgate does not see",
            );
        }
        (Action::Accept | Action::Return | Action::Nothing, _) => {
            plan.without(
                origin,
                "is a firewall's: natgate has no filter but nat.filtering and rules of kind drop",
            );
        }
        _ => {
            let message = "is no translation: natgate is no firewall; keep one on the hosts, or in \
                           front of it";
            plan.without(origin, message);
        }
    }
}
