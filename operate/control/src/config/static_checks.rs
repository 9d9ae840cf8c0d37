//! Checks of static mappings and services against each other and against the pools of their
//! external endpoints: overlaps, impossible hosts, repeated servers, blocks of two hosts, ports of
//! other subscribers.
//!
//! There may be a million ports, so ranges are compared as ranges.

use super::draft::{Draft, PoolDraft, ServerDraft, StaticDraft, Targeted};
use super::health;
use super::problem::{Located, Place, Report};
use super::statics6;
use super::values::Span;
use super::whole;
use natgate_engine::{Allocation, Begun, BlockConfig, Blocking, Plan, Pooling};
use natgate_ipv6::{HostKind, Prefix6};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most static mappings, each port of a range counted.
const MOST: u64 = 1 << 20;

/// Reports static mappings that disagree.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    are_not_too_many(draft, report);
    do_not_overlap(draft, report);
    internals(draft, report);
    statics6::check(draft, report);
    health::check(draft, report);
    for mapping in &draft.statics {
        if let Targeted::Servers { place, members, .. } = &mapping.target {
            servers_differ(members, report);
            servers_serve(place, members, report);
        }
    }
    for pool in &draft.pools {
        match draft.allocation(pool) {
            Allocation::Random | Allocation::Preserve => {}
            Allocation::Address => whole::statics_fit(draft, pool, report),
            Allocation::Block(block) => Blocks::check(draft, pool, &block, report),
            Allocation::Deterministic(plan) => {
                if let Ok(plan) = Plan::new(&plan, &pool.to_engine(None)) {
                    ports_are_the_hosts(draft, pool, &plan, report);
                }
            }
        }
    }
}

/// Reports the first static mapping that exceeds the limit.
fn are_not_too_many(draft: &Draft, report: &Report<'_>) {
    let mut total = 0;
    for mapping in &draft.statics {
        total += u64::from(mapping.count());
        if total > MOST {
            let message = format!("makes {total} static mappings with those before it");
            let message = format!("{message}, each port counted; at most {MOST} are possible");
            report.wrong(&mapping.external.place, message);
            return;
        }
    }
}

/// The ports that a mapping takes at one end for one protocol. Protocol 0 stands for all protocols
/// without ports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ClaimedPorts {
    /// Realm of an internal address.
    realm: u16,
    /// Far end of the tunnel of an internal address.
    b4: Option<Ipv6Addr>,
    address: IpAddr,
    protocol: u8,
    first: u16,
    last: u16,
    /// Index of the mapping in the file.
    number: usize,
}

impl ClaimedPorts {
    fn whose(&self) -> (u16, Option<Ipv6Addr>, IpAddr, u8) {
        (self.realm, self.b4, self.address, self.protocol)
    }
}

fn do_not_overlap(draft: &Draft, report: &Report<'_>) {
    let (mut inner, mut outer) = (Vec::new(), Vec::new());
    let all = |ports: Option<Span>| ports.unwrap_or(Span { first: 0, last: u16::MAX });
    let names = draft.realm_names();
    for (number, mapping) in draft.statics.iter().enumerate() {
        let Some(realm) = names.of(&mapping.realm) else { continue };
        for &protocol in protocols(mapping) {
            let taken = |realm, b4, address, ports| {
                let Span { first, last } = all(ports);
                ClaimedPorts { realm, b4, address, protocol, first, last, number }
            };
            outer.push(taken(0, None, mapping.external.value.0.into(), mapping.external.value.1));
            // Several external endpoints may lead to one host if sessions begin outside only.
            let internal = mapping.internal().filter(|_| mapping.begun != Begun::Outside);
            if let Some((_, address, ports)) = internal {
                inner.push(taken(realm, mapping.b4(), address, ports));
            }
        }
    }
    for (number, earlier) in overlapping(inner) {
        let Some((place, ..)) = draft.statics[number].internal() else { continue };
        let line = report.line(draft.statics[earlier].place.offset);
        let message = format!("overlaps the static mapping in line {line}");
        let remedy = "map each endpoint once, or all but one with direction = \"inbound\"";
        report.wrong(place, format!("{message}; {remedy}"));
    }
    for (number, earlier) in overlapping(outer) {
        let line = report.line(draft.statics[earlier].place.offset);
        let message = format!("overlaps the static mapping in line {line}");
        let place = &draft.statics[number].external.place;
        report.wrong(place, format!("{message}; map each endpoint once"));
    }
}

/// Mappings that overlap an earlier one in the file, with the earlier one.
fn overlapping(mut taken: Vec<ClaimedPorts>) -> BTreeMap<usize, usize> {
    taken.sort_unstable();
    let mut found = BTreeMap::new();
    let mut farthest: Option<ClaimedPorts> = None;
    for one in taken {
        let same = farthest.filter(|far| far.whose() == one.whose());
        if let Some(far) = same.filter(|far| one.first <= far.last) {
            let (earlier, later) = (far.number.min(one.number), far.number.max(one.number));
            let named = found.entry(later).or_insert(earlier);
            *named = earlier.min(*named);
        }
        if same.is_none_or(|far| one.last > far.last) {
            farthest = Some(one);
        }
    }
    found
}

impl StaticDraft {
    /// The internal end of a mapping of one host: place, address and ports.
    fn internal(&self) -> Option<(&Place, IpAddr, Option<Span>)> {
        match &self.target {
            Targeted::Host(Located { value: (address, ports), place }) => {
                Some((place, (*address).into(), *ports))
            }
            Targeted::Host6(Located { value: (address, ports), place }) => {
                Some((place, (*address).into(), *ports))
            }
            Targeted::Tunneled { internal: Located { value: (address, ports), place }, .. } => {
                Some((place, (*address).into(), *ports))
            }
            Targeted::Servers { .. } => None,
        }
    }

    /// The B4 that the host of a mapping is behind.
    fn b4(&self) -> Option<Ipv6Addr> {
        match &self.target {
            Targeted::Tunneled { b4, .. } => Some(b4.value),
            _ => None,
        }
    }
}

/// The protocols of a static mapping.
fn protocols(mapping: &StaticDraft) -> &[u8] {
    match &mapping.protocol {
        Some(protocol) => std::slice::from_ref(protocol),
        None if mapping.external.value.1.is_some() => &[1, 6, 17, 33],
        None => &[1, 6, 17, 33, 0],
    }
}

fn internals(draft: &Draft, report: &Report<'_>) {
    let names = draft.realm_names();
    let externals: HashSet<Ipv4Addr> = draft.statics.iter().map(|m| m.external.value.0).collect();
    let targets = draft.targets();
    let ends = |mapping: &'_ StaticDraft| names.of(&mapping.realm).unwrap_or_default();
    let all = draft.statics.iter();
    let all = all.flat_map(|one| one.internals().into_iter().map(move |end| (ends(one), end)));
    for (realm, (place, address, _)) in all {
        let own = [draft.inside_of(realm).own(), draft.outside.own()];
        if own.contains(&Some(address)) {
            report.wrong(place, format!("{address} is the gateway itself; write a host's address"));
        } else if externals.contains(&address) || targets.pool_of(address).is_some() {
            report.wrong(place, format!("{address} is an external address; write an internal one"));
        }
    }
}

fn servers_differ(members: &[ServerDraft], report: &Report<'_>) {
    let mut seen = HashMap::new();
    for member in members {
        let (address, port) = member.internal.value;
        if let Some(before) = seen.insert((address, port), &member.internal.place.key) {
            let message = format!("{address}:{port} is {before} already");
            report.wrong(
                &member.internal.place,
                format!("{message}; name each server once, with its weight"),
            );
        }
    }
}

fn servers_serve(place: &Place, members: &[ServerDraft], report: &Report<'_>) {
    if members.iter().all(|member| member.weight == 0) {
        let count = members.len();
        let message = format!("the weights of all {count} servers are 0, so none gets a session");
        report.wrong(place, format!("{message}; give one a weight of 1 or more"));
    } else if members.iter().all(|member| member.draining || member.weight == 0) {
        let message = "every server drains, so new sessions are refused";
        report.unwise(place, message);
    }
}

/// The static mappings with ports whose external address belongs to a pool.
fn of_pool<'d>(
    draft: &'d Draft,
    pool: &'d PoolDraft,
) -> impl Iterator<Item = (&'d StaticDraft, Ipv4Addr, Span)> {
    draft.statics.iter().filter_map(move |mapping| {
        let (address, ports) = mapping.external.value;
        let contains = |range: &super::problem::Located<natgate_engine::AddressRange>| {
            (range.value.first..=range.value.last).contains(&address)
        };
        pool.ranges.iter().any(contains).then_some((mapping, address, ports?))
    })
}

/// A subscriber behind a mapping: a host, the prefix of a host of NAT64, or a B4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Holder {
    Host(Ipv4Addr),
    Prefix(Ipv6Addr, u8),
    B4(Ipv6Addr),
}

impl Display for Holder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(address) => write!(f, "{address}"),
            Self::Prefix(address, len) => write!(f, "{address}/{len}"),
            Self::B4(address) => write!(f, "{address}"),
        }
    }
}

/// The subscribers behind a mapping, each once.
fn hosts(draft: &Draft, mapping: &StaticDraft) -> BTreeSet<Holder> {
    if let Targeted::Host6(internal) = &mapping.target {
        let Prefix6 { address, len } = draft.subscriber6(HostKind::Nat64, internal.value.0);
        return BTreeSet::from([Holder::Prefix(address, len)]);
    }
    if let Some(b4) = mapping.b4() {
        return BTreeSet::from([Holder::B4(b4)]);
    }
    mapping.internals().into_iter().map(|(_, address, _)| Holder::Host(address)).collect()
}

/// Blocks that hosts have permanently because of static mappings.
struct Blocks<'d> {
    pool: &'d PoolDraft,
    blocking: Blocking,
    max: usize,
    paired: bool,
    /// Owner and line by external address and block.
    owners: HashMap<(Ipv4Addr, u32), (Holder, usize)>,
    /// Blocks by host.
    had: HashMap<Holder, BTreeSet<(Ipv4Addr, u32)>>,
}

impl<'d> Blocks<'d> {
    fn check(draft: &'d Draft, pool: &'d PoolDraft, block: &BlockConfig, report: &Report<'_>) {
        let mut blocks = Self {
            pool,
            blocking: Blocking::new(pool.ports.value, block.size),
            max: block.max_per_subscriber.into(),
            paired: draft.config.pooling == Pooling::Paired,
            owners: HashMap::new(),
            had: HashMap::new(),
        };
        for (mapping, address, ports) in of_pool(draft, pool) {
            let all: BTreeSet<u32> =
                ports.ports().filter_map(|port| blocks.blocking.block_of(port)).collect();
            let hosts = hosts(draft, mapping);
            let place = &mapping.external.place;
            if let (Some(&block), true) = (all.first(), hosts.len() > 1) {
                let (first, last) = blocks.blocking.ports(block);
                let message = format!("is in block {first}-{last} of pool {}", blocks.name());
                let why = format!("a block is one host's, and the servers are {}", hosts.len());
                report.wrong(place, format!("{message}; {why}, so use a port outside blocks"));
                continue;
            }
            let (Some(&host), line) = (hosts.first(), report.line(mapping.place.offset)) else {
                continue;
            };
            let problem = all.iter().find_map(|&block| blocks.give(host, (address, block), line));
            if let Some(problem) = problem {
                report.wrong(place, problem);
            }
        }
    }

    fn name(&self) -> String {
        format!("\"{}\"", self.pool.name.value)
    }

    /// Assigns a block to a host, or says why it is impossible.
    fn give(&mut self, host: Holder, block: (Ipv4Addr, u32), line: usize) -> Option<String> {
        let (first, last) = self.blocking.ports(block.1);
        let shown = format!("block {first}-{last} of {}", block.0);
        if let Some((other, line)) = self.owners.get(&block).filter(|(other, _)| *other != host) {
            let message = format!("is in {shown}, which {other} has by the mapping in line {line}");
            return Some(format!("{message}; a block is one host's, so use a port of another"));
        }
        self.owners.insert(block, (host, line));
        let had = self.had.entry(host).or_default();
        had.insert(block);
        let (count, max) = (had.len(), self.max);
        if count > max {
            let size = last - first + 1;
            let sum = format!("{count} x {size} ports");
            let message = format!("gives {host} {count} blocks of pool {} ({sum})", self.name());
            return Some(format!("{message}, and max_per_subscriber is {max}; use ports of fewer"));
        }
        let other = had.iter().find(|other| other.0 != block.0).filter(|_| self.paired)?;
        let message = format!("gives {host} {shown} beside blocks of {}", other.0);
        Some(format!("{message}; under paired pooling a host has one external address"))
    }
}

/// A port of a deterministic subscriber can be forwarded to that subscriber only.
fn ports_are_the_hosts(draft: &Draft, pool: &PoolDraft, plan: &Plan, report: &Report<'_>) {
    for (mapping, address, ports) in of_pool(draft, pool) {
        let hosts = hosts(draft, mapping);
        let (Some(&host), alone) = (hosts.first(), hosts.len() == 1) else { continue };
        let others = |port: &u16| {
            plan.reverse(address, *port).is_some_and(|owner| !alone || Holder::Host(owner) != host)
        };
        let Some(port) = ports.ports().find(others) else { continue };
        let Some(owner) = plan.reverse(address, port) else { continue };
        let range = |host| {
            let (external, (first, last)) = plan.forward(host)?;
            Some(format!("{first}-{last} of {external}"))
        };
        let theirs = range(owner).unwrap_or_default();
        let own = match host {
            Holder::Host(host) if alone => range(host),
            _ => None,
        };
        let own = own.map(|own| format!("one of {host}'s own ({own})"));
        let nobodys = match plan.dynamic() {
            Some((first, last)) => format!("a dynamic one ({first}-{last})"),
            None => "one that is nobody's".to_owned(),
        };
        let remedy: Vec<String> = own.into_iter().chain([nobodys]).collect();
        let message = format!("port {port} of {address} is {owner}'s ({theirs})");
        let remedy = remedy.join(" or ");
        report.wrong(&mapping.external.place, format!("{message}; write {remedy}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_where_they_share_a_port() {
        let taken = |number, first, last| ClaimedPorts {
            realm: 0,
            b4: None,
            address: Ipv4Addr::LOCALHOST.into(),
            protocol: 6,
            first,
            last,
            number,
        };
        let all = vec![taken(0, 10, 20), taken(1, 21, 30), taken(2, 5, 10), taken(3, 30, 30)];
        assert_eq!(overlapping(all), BTreeMap::from([(2, 0), (3, 1)]));
        let inner = vec![taken(0, 0, 65_535), taken(1, 80, 80), taken(2, 90, 99)];
        assert_eq!(overlapping(inner), BTreeMap::from([(1, 0), (2, 0)]));
    }
}
