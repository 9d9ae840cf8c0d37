//! Rules about destinations: redirections of outside hosts to inside become static mappings, and
//! redirections of subscribers' packets become rules of kind dnat.

use crate::address::{Ports, Range};
use crate::netfilter::{Action, Condition, Device, Entry, add_rule, clamp, is_odd, single_ports};
use crate::plan::{Kind, Plan, Side, Static, Way};

/// Most addresses of a network that is mapped to another, one to one.
const MOST_NETMAP: u64 = 1024;

/// Converts a rule about destinations.
pub(crate) fn prerouting(entry: &Entry, plan: &mut Plan) {
    let Entry { origin, condition, action } = entry;
    let (to, ports) = match action {
        Action::Dnat(to, ports) => (*to, *ports),
        Action::Netmap(to) => {
            let from = condition.destination.as_deref().and_then(|all| all.first().copied());
            if !is_odd(entry, plan) {
                match from {
                    Some(from) => netmap(entry, Some(*to), from, Way::Inbound, plan),
                    None => netmap(entry, None, *to, Way::Inbound, plan),
                }
            }
            return;
        }
        Action::Redirect => {
            let message = "sends packets to the machine itself; use DNAT to an address that \
                           packets can be sent to";
            return plan.without(origin, message);
        }
        Action::Accept | Action::Return => {
            return plan
                .without(origin, "exempts packets from what follows, for which there is no rule");
        }
        Action::Clamp(most) => return clamp(*most, plan),
        Action::Nothing => {
            return plan
                .without(origin, "does nothing to packets; natgate logs events, not packets");
        }
        Action::Odd(what) => {
            return plan.without(origin, format!("{what} has no counterpart in natgate"));
        }
        _ => return plan.without(origin, "is not about destinations"),
    };
    if is_odd(entry, plan) {
        return;
    }
    let Some(to_address) = to.single() else {
        let message = "spreads over a range of addresses; write [[static]] with servers = [...]";
        return plan.without(origin, message);
    };
    if !to.is_usable() {
        return plan.without(origin, format!("{to} is no address that a host can have"));
    }
    if comes_from_inside(condition, plan) {
        return outgoing(entry, to_address, ports, plan);
    }
    if condition.source.is_some() {
        return plan
            .without(origin, "is for some remote hosts only; anybody may reach a static mapping");
    }
    forward(entry, to_address, ports, plan);
}

/// True if a rule about destinations is for packets of subscribers.
fn comes_from_inside(condition: &Condition, plan: &Plan) -> bool {
    let is_inside = |device: &Device| {
        let is = |side: &Side| side.device.as_deref() == Some(device.name.as_str());
        if device.negated { is(&plan.outside) } else { is(&plan.inside) }
    };
    let by_device = condition.input.as_ref().is_some_and(is_inside);
    let by_destination =
        condition.destination.as_ref().is_some_and(|all| all.contains(&Range::ALL));
    let subscribers = |source: &Range| {
        [(0x0a00_0000, 8), (0xac10_0000, 12), (0xc0a8_0000, 16), (0x6440_0000, 10)]
            .iter()
            .any(|(address, len)| Range::prefix(*address, *len).contains(*source))
    };
    let by_source = condition.source.as_ref().is_some_and(|all| all.iter().all(subscribers));
    by_device || by_source || by_destination
}

/// Converts a redirection of subscribers' packets.
fn outgoing(entry: &Entry, to: u32, ports: Option<Ports>, plan: &mut Plan) {
    let Entry { origin, condition, .. } = entry;
    if condition.source.is_some() {
        plan.differs(
            origin,
            "is for all subscribers now: rules of kind dnat look at the destination only",
        );
    }
    if let Some(protocols) = &condition.protocols {
        let message = format!("is for TCP, UDP and DCCP now, not only {}", protocols.join(", "));
        plan.differs(origin, message);
    }
    let port = match ports {
        Some(ports) if ports.count() > 1 => {
            return plan
                .without(origin, "spreads over a range of ports; a rule of kind dnat has one");
        }
        ports => ports.map(|ports| ports.first),
    };
    let all = [Range::ALL];
    let destinations = condition.destination.as_deref().unwrap_or(&all);
    let own = single_ports(entry, plan);
    for range in destinations.iter().flat_map(|range| range.prefixes()) {
        for matched in &own {
            add_rule(plan, Kind::Dnat(to, port), false, range, *matched, origin);
        }
    }
}

/// Converts a redirection of outside hosts to an inside host.
fn forward(entry: &Entry, to: u32, ports: Option<Ports>, plan: &mut Plan) {
    let Entry { origin, condition, .. } = entry;
    let all = condition.destination.clone().unwrap_or_default();
    let externals: Vec<Option<u32>> = match &all[..] {
        [] if condition.ports.is_none() => {
            let message = "sends everything that comes in to one host; write [[static]] with an \
                           external address of its own";
            return plan.without(origin, message);
        }
        [] => vec![None],
        [range] if range.single().is_some() => vec![range.single()],
        _ => {
            let message = "is for several addresses; a static mapping has one";
            return plan.without(origin, message);
        }
    };
    let default = vec!["tcp".to_owned(), "udp".to_owned()];
    let protocols = condition.protocols.clone().unwrap_or_default();
    let protocols = match (&protocols[..], &condition.ports) {
        ([], Some(_)) => default,
        ([], None) => vec![String::new()],
        _ => protocols,
    };
    for protocol in protocols {
        let name = match &protocol[..] {
            "tcp" => Some("tcp"),
            "udp" => Some("udp"),
            "dccp" => Some("dccp"),
            "icmp" => Some("icmp"),
            "" => None,
            other => {
                plan.without(
                    origin,
                    format!(
                        "is about protocol {other}; static mappings are of tcp, udp, icmp or dccp"
                    ),
                );
                continue;
            }
        };
        for external in &externals {
            forward_ports(entry, *external, to, ports, name, plan);
        }
    }
}

/// Adds one static mapping for each range of ports.
fn forward_ports(
    entry: &Entry,
    external: Option<u32>,
    to: u32,
    ports: Option<Ports>,
    protocol: Option<&'static str>,
    plan: &mut Plan,
) {
    let origin = &entry.origin;
    let whole = [None];
    let matched: Vec<Option<Ports>> = match &entry.condition.ports {
        Some(all) => all.iter().copied().map(Some).collect(),
        None => whole.to_vec(),
    };
    for matched in matched {
        let internal = match (matched, ports) {
            (Some(matched), None) => Some(matched),
            (Some(matched), Some(ports)) if matched.count() == ports.count() => Some(ports),
            (None, None) => None,
            (Some(_), Some(_)) => {
                plan.without(
                    origin,
                    "sends several ports to another number of them; natgate maps one to one",
                );
                continue;
            }
            (None, Some(_)) => {
                plan.without(origin, "sends all ports to one; natgate maps one to one");
                continue;
            }
        };
        if plan.has_room(origin) {
            plan.statics.push(Static {
                internal: (to, internal),
                servers: Vec::new(),
                external: (external, matched),
                protocol,
                way: Way::Inbound,
                origin: origin.clone(),
            });
        }
    }
}

/// Converts a mapping of one network to another, address by address.
pub(crate) fn netmap(entry: &Entry, from: Option<Range>, to: Range, way: Way, plan: &mut Plan) {
    let origin = &entry.origin;
    let Some(from) = from.filter(|from| from.count() == to.count() && from.count() <= MOST_NETMAP)
    else {
        let message = format!(
            "maps networks one to one, of which at most {MOST_NETMAP} addresses are written out"
        );
        return plan.without(origin, message);
    };
    if !from.is_usable() || !to.is_usable() {
        return plan.without(origin, "has addresses that no host can have");
    }
    for (internal, external) in (from.first..=from.last).zip(to.first..=to.last) {
        if plan.has_room(origin) {
            plan.statics.push(Static {
                internal: (internal, None),
                servers: Vec::new(),
                external: (Some(external), None),
                protocol: None,
                way,
                origin: origin.clone(),
            });
        }
    }
}
