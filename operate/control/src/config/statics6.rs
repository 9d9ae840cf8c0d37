//! Static mappings of IPv6 hosts, by `[nat64]`, and of hosts behind B4s, by `[dslite]`: reads their
//! internal ends, checks their hosts, and gives the hosts their numbers.

use super::draft::{Draft, StaticDraft, Targeted};
use super::problem::{Located, Place, Report};
use super::values::{self, Span};
use super::values6;
use natgate_engine::StaticMapping;
use natgate_ipv6::softwire::may_be_behind;
use natgate_ipv6::{HostKind, Prefix6, StaticHost};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most hosts of one subscriber that have numbers, by the length of its prefix.
fn most_hosts(subscriber_length: u8) -> u32 {
    1 << natgate_ipv6::Hosts::host_bits(subscriber_length)
}

/// Most hosts behind one B4 that have numbers.
const MOST_BEHIND: u32 = 256;
/// Subscribers by default.
const SUBSCRIBERS: u32 = 1 << 16;
/// Hosts that there is room for, for each subscriber.
const HOSTS_EACH: u64 = 16;

/// True if an endpoint is one of IPv6.
pub(super) fn is_ipv6(text: &str) -> bool {
    text.starts_with('[') || text.matches(':').count() > 1
}

/// Parses an IPv6 endpoint whose port may be absent or a range. An address with a port stands in
/// brackets.
pub(super) fn endpoint_range(text: &str) -> Result<(Ipv6Addr, Option<Span>), String> {
    let Some(inner) = text.strip_prefix('[') else {
        return values6::routed_address6(text).map(|address| (address, None));
    };
    let shown = values::quoted(text);
    let Some((host, rest)) = inner.split_once(']') else {
        return Err(format!("{shown} has no closing bracket; write \"[2001:db8::5]:80\""));
    };
    let address = values6::routed_address6(host)?;
    match (rest, rest.strip_prefix(':')) {
        ("", _) => Ok((address, None)),
        (_, Some(ports)) => Ok((address, Some(values::span(ports)?))),
        _ => Err(format!("{shown} is no endpoint; write \"[{address}]:80\"")),
    }
}

/// The host of a static mapping that has a number.
struct Numbered<'d> {
    mapping: &'d StaticDraft,
    place: &'d Place,
    /// The host's address, or its B4's.
    address: Ipv6Addr,
    /// The host's address behind the B4.
    inner: Option<Ipv4Addr>,
    ports: Option<Span>,
}

impl Numbered<'_> {
    fn kind(&self) -> HostKind {
        if self.inner.is_some() { HostKind::Dslite } else { HostKind::Nat64 }
    }
}

impl Display for Numbered<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.inner {
            Some(inner) => write!(f, "{inner} behind {}", self.address),
            None => self.address.fmt(f),
        }
    }
}

impl Draft {
    /// The hosts of static mappings that have numbers: of NAT64 and of DS-Lite.
    fn numbered(&self) -> impl Iterator<Item = Numbered<'_>> {
        self.statics.iter().filter_map(|mapping| match &mapping.target {
            Targeted::Host6(Located { value: (address, ports), place }) => {
                Some(Numbered { mapping, place, address: *address, inner: None, ports: *ports })
            }
            Targeted::Tunneled { b4, internal: Located { value: (inner, ports), place } } => {
                let (address, inner) = (b4.value, Some(*inner));
                Some(Numbered { mapping, place, address, inner, ports: *ports })
            }
            Targeted::Host(_) | Targeted::Servers { .. } => None,
        })
    }

    /// The hosts of a kind that have static mappings, each once, with the numbers of a new
    /// translator.
    pub(super) fn static_hosts(&self, kind: HostKind) -> Vec<StaticHost> {
        let mut seen = BTreeSet::new();
        let hosts = self.numbered().filter(|host| host.kind() == kind);
        let hosts = hosts.map(|host| (host.address, host.inner));
        let hosts: Vec<_> = hosts.filter(|host| seen.insert(*host)).collect();
        let (length, workers) = (self.subscriber_length(kind), self.workers.count as u16);
        match kind {
            HostKind::Nat64 => {
                let hosts: Vec<Ipv6Addr> = hosts.iter().map(|(address, _)| *address).collect();
                StaticHost::first(&hosts, length, workers)
            }
            HostKind::Dslite => {
                let hosts = hosts.iter().filter_map(|(b4, inner)| Some((*b4, (*inner)?)));
                StaticHost::first_behind(&hosts.collect::<Vec<_>>(), length, workers)
            }
        }
    }

    /// The static mappings of hosts that have numbers as the translator has them: in the realm of
    /// each host's kind, with a number in place of each host.
    pub(super) fn statics6(&self) -> Vec<StaticMapping> {
        let hosts = HostKind::ALL.into_iter().flat_map(|kind| self.static_hosts(kind));
        let numbers: HashMap<(Ipv6Addr, Option<Ipv4Addr>), _> =
            hosts.map(|host| ((host.address, host.inner), host.number)).collect();
        let behind = self.realms.len() as u16 + 1;
        let mappings = self.numbered().filter_map(|host| {
            let number = *numbers.get(&(host.address, host.inner))?;
            let is_second = host.kind() == HostKind::Dslite && self.ipv6.nat64.is_some();
            let realm = behind + u16::from(is_second);
            Some(host.mapping.each(realm, (number, host.ports)))
        });
        mappings.flatten().collect()
    }

    /// Length of the prefix that is the subscriber of a host of a kind.
    fn subscriber_length(&self, kind: HostKind) -> u8 {
        let length = match kind {
            HostKind::Nat64 => self.ipv6.nat64.as_ref().map(|nat64| nat64.subscriber_length),
            HostKind::Dslite => self.ipv6.dslite.as_ref().map(|dslite| dslite.subscriber_length),
        };
        length.unwrap_or(128)
    }

    /// The subscriber of an IPv6 host, or of a host behind a B4.
    pub(super) fn subscriber6(&self, kind: HostKind, address: Ipv6Addr) -> Prefix6 {
        let len = self.subscriber_length(kind);
        Prefix6 { address: Prefix6 { address, len }.first(), len }
    }
}

/// Reports hosts that are not translated, and hosts without room.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    for host in draft.numbered() {
        match &host.mapping.target {
            Targeted::Tunneled { b4, internal } => is_behind_b4(draft, report, b4, internal),
            _ => is_translated(draft, report, (host.place, host.address)),
        }
        if let Some(realm) = &host.mapping.realm {
            let which = if host.inner.is_some() { "behind B4s" } else { "of IPv6" };
            let message = format!("has no effect: hosts {which} are in no realm; leave it out");
            report.wrong(&realm.place, message);
        }
    }
    have_one_b4_each(draft, report);
    for kind in HostKind::ALL {
        have_room(draft, kind, report);
    }
}

/// Reports a host behind another B4 than a former host of its subscriber: a subscriber has one
/// tunnel.
fn have_one_b4_each(draft: &Draft, report: &Report<'_>) {
    let mut b4s: BTreeMap<u128, Ipv6Addr> = BTreeMap::new();
    for host in draft.numbered().filter(|host| host.inner.is_some()) {
        let prefix = draft.subscriber6(HostKind::Dslite, host.address);
        let first = *b4s.entry(prefix.address.to_bits()).or_insert(host.address);
        if first != host.address {
            let message = format!("{host} is of {prefix}, as {first} is, and a subscriber has one");
            report.wrong(host.place, format!("{message} B4; write {first} as softwire"));
        }
    }
}

/// A host behind a B4 may send what DS-Lite translates.
fn is_behind_b4(
    draft: &Draft,
    report: &Report<'_>,
    b4: &Located<Ipv6Addr>,
    internal: &Located<(Ipv4Addr, Option<Span>)>,
) {
    let Some(dslite) = &draft.ipv6.dslite else {
        let message = format!("{} is a B4, and no [dslite] has its tunnel", b4.value);
        report.wrong(&b4.place, format!("{message}; write the table, or leave the key out"));
        return;
    };
    if let Some(prefixes) = dslite.others(b4.value) {
        let message = format!("{} is not in dslite.b4 ({prefixes})", b4.value);
        report.wrong(&b4.place, format!("{message}; add its prefix there, or write another B4"));
    }
    if dslite.end().into_iter().chain(draft.own_addresses6()).any(|own| own == b4.value) {
        let message = format!("{} is an address of the gateway itself", b4.value);
        report.wrong(&b4.place, format!("{message}; write the B4's address"));
    }
    let address = internal.value.0;
    let permitted = draft.subscribers.iter().map(|prefix| prefix.value);
    if address == Ipv4Addr::new(192, 0, 0, 1) {
        let message = format!("{address} is the gateway itself; write a host's address");
        report.wrong(&internal.place, message);
    } else if [0, 7].map(|last| Ipv4Addr::new(192, 0, 0, last)).contains(&address) {
        let message = format!("{address} is no address of a host; write one from 192.0.0.2 on");
        report.wrong(&internal.place, message);
    } else if !may_be_behind(address, permitted) {
        let message = format!("{address} is not in nat.subscribers, so the host could not answer");
        report.wrong(&internal.place, format!("{message}; add its prefix there"));
    }
}

fn is_translated(draft: &Draft, report: &Report<'_>, (place, address): (&Place, Ipv6Addr)) {
    let Some(nat64) = &draft.ipv6.nat64 else {
        let message = format!("{address} is a host of IPv6, and no [nat64] translates for it");
        report.wrong(place, format!("{message}; write the table, or a host of IPv4"));
        return;
    };
    let prefixes = nat64.prefixes.iter().map(|prefix| prefix.value.prefix());
    let mut prefixes = prefixes.filter(|prefix| prefix.contains(address));
    let own = [&draft.inside, &draft.outside].map(|side| side.address6.as_ref());
    let mut own = own.into_iter().flatten().map(|own| own.value.0);
    let subscribers = &nat64.subscribers;
    if let Some(prefix) = prefixes.next() {
        let message = format!("{address} is in {prefix} of nat64.prefixes");
        let message = format!("{message}, whose addresses stand for IPv4 ones");
        report.wrong(place, format!("{message}; write a host's address"));
    } else if own.any(|own| own == address) {
        report.wrong(place, format!("{address} is the gateway itself; write a host's address"));
    } else if !subscribers.is_empty()
        && !subscribers.iter().any(|prefix| prefix.value.contains(address))
    {
        let shown: Vec<String> =
            subscribers.iter().map(|prefix| prefix.value.to_string()).collect();
        let message = format!("{address} is not in nat64.subscribers ({})", shown.join(", "));
        report.wrong(place, format!("{message}; add its prefix there, or write another host"));
    }
}

/// Reports the first host of a kind that gets no number.
fn have_room(draft: &Draft, kind: HostKind, report: &Report<'_>) {
    let most_subscribers = draft.config.limits.subscribers.unwrap_or(SUBSCRIBERS);
    let most_each = match kind {
        HostKind::Nat64 if draft.ipv6.nat64.is_some() => most_hosts(draft.subscriber_length(kind)),
        HostKind::Dslite if draft.ipv6.dslite.is_some() => MOST_BEHIND,
        _ => return,
    };
    let most_all = u64::from(most_subscribers) * HOSTS_EACH.min(most_each.into());
    let most_all = most_all.max(most_each.into());
    let mut subscribers: BTreeMap<u128, BTreeSet<(Ipv6Addr, Option<Ipv4Addr>)>> = BTreeMap::new();
    let mut all = 0;
    for host in draft.numbered().filter(|host| host.kind() == kind) {
        let (place, address) = (host.place, host.address);
        let prefix = draft.subscriber6(kind, address);
        let hosts = subscribers.entry(prefix.address.to_bits()).or_default();
        all += u64::from(hosts.insert((address, host.inner)));
        let (count, each) = (hosts.len() as u64, subscribers.len() as u64);
        let message = if count > most_each.into() {
            let of = if prefix.len == 128 { address.to_string() } else { prefix.to_string() };
            format!("is host {count} of {of}, and a subscriber has at most {most_each} hosts")
        } else if each > most_subscribers.into() {
            format!("is in subscriber {each}, and limits.subscribers is {most_subscribers}")
        } else if all > most_all {
            let product = format!("{HOSTS_EACH} times limits.subscribers ({most_subscribers})");
            format!("is host {all}, and there is room for {most_all}: {product}")
        } else {
            continue;
        };
        report.wrong(place, format!("{host} {message}; map fewer hosts, or raise the limit"));
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_both_forms_are_read() {
        let address: Ipv6Addr = "2001:db8::5".parse().expect("an address");
        let read = |text: &str| endpoint_range(text);
        let span = |first, last| Some(Span { first, last });
        assert_eq!(read("2001:db8::5"), Ok((address, None)));
        assert_eq!(read("[2001:db8::5]"), Ok((address, None)));
        assert_eq!(read("[2001:db8::5]:80"), Ok((address, span(80, 80))));
        assert_eq!(read("[2001:db8::5]:80-89"), Ok((address, span(80, 89))));
        for wrong in ["[2001:db8::5", "[2001:db8::5]80", "[2001:db8::5]:0", "[::1]:80", "[fe80::1]"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(is_ipv6("2001:db8::5") && is_ipv6("[::]:1"));
        assert!(!is_ipv6("10.0.0.1:80") && !is_ipv6("10.0.0.1"));
    }
}
