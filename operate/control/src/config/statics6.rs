//! Static mappings of IPv6 hosts, by `[nat64]`: reads their internal ends, checks their hosts, and
//! gives the hosts their numbers.

use super::draft::{Draft, StaticDraft, Targeted};
use super::problem::{Located, Place, Report};
use super::values::{self, Span};
use super::values6;
use natgate_engine::StaticMapping;
use natgate_ipv6::{Prefix6, StaticHost};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv6Addr;

/// Most hosts of one subscriber that have numbers, by the length of its prefix.
fn most_hosts(subscriber_length: u8) -> u32 {
    1 << natgate_ipv6::Hosts::host_bits(subscriber_length)
}

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

impl Draft {
    /// The static mappings of IPv6 hosts: place of the host, and the host.
    fn hosts6(&self) -> impl Iterator<Item = (&StaticDraft, &Place, Ipv6Addr)> {
        self.statics.iter().filter_map(|mapping| match &mapping.target {
            Targeted::Host6(Located { value: (address, _), place }) => {
                Some((mapping, place, *address))
            }
            _ => None,
        })
    }

    /// The hosts of static mappings, each once, with the numbers of a new translator.
    pub(super) fn static_hosts(&self) -> Vec<StaticHost> {
        let Some(nat64) = &self.ipv6.nat64 else { return Vec::new() };
        let mut seen = BTreeSet::new();
        let hosts = self.hosts6().map(|(_, _, address)| address);
        let hosts: Vec<Ipv6Addr> = hosts.filter(|address| seen.insert(*address)).collect();
        StaticHost::first(&hosts, nat64.subscriber_length, self.workers.count as u16)
    }

    /// The static mappings of IPv6 hosts as the translator has them: in the realm behind all
    /// others, with a number in place of each host.
    pub(super) fn statics6(&self) -> Vec<StaticMapping> {
        let realm = self.realms.len() as u16 + 1;
        let hosts = self.static_hosts();
        let numbers: HashMap<Ipv6Addr, _> =
            hosts.iter().map(|host| (host.address, host.number)).collect();
        let mappings = self.statics.iter().filter_map(|mapping| {
            let Targeted::Host6(internal) = &mapping.target else { return None };
            let (address, ports) = internal.value;
            Some(mapping.each(realm, (*numbers.get(&address)?, ports)))
        });
        mappings.flatten().collect()
    }

    /// The subscriber of an IPv6 host.
    pub(super) fn subscriber6(&self, address: Ipv6Addr) -> Prefix6 {
        let len = self.ipv6.nat64.as_ref().map_or(128, |nat64| nat64.subscriber_length);
        Prefix6 { address: Prefix6 { address, len }.first(), len }
    }
}

/// Reports hosts that NAT64 does not translate for, and hosts without room.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    for (mapping, place, address) in draft.hosts6() {
        is_translated(draft, report, (place, address));
        if let Some(realm) = &mapping.realm {
            let message = "has no effect: hosts of IPv6 are in no realm; leave it out";
            report.wrong(&realm.place, message);
        }
    }
    have_room(draft, report);
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

/// Reports the first host that gets no number.
fn have_room(draft: &Draft, report: &Report<'_>) {
    let Some(nat64) = &draft.ipv6.nat64 else { return };
    let length = nat64.subscriber_length;
    let most_subscribers = draft.config.limits.subscribers.unwrap_or(SUBSCRIBERS);
    let most_each = most_hosts(length);
    let most_all = u64::from(most_subscribers) * HOSTS_EACH.min(most_each.into());
    let most_all = most_all.max(most_each.into());
    let mut subscribers: BTreeMap<u128, BTreeSet<Ipv6Addr>> = BTreeMap::new();
    let mut all = 0;
    for (_, place, address) in draft.hosts6() {
        let prefix = draft.subscriber6(address);
        let hosts = subscribers.entry(prefix.address.to_bits()).or_default();
        all += u64::from(hosts.insert(address));
        let (count, each) = (hosts.len() as u64, subscribers.len() as u64);
        let message = if count > most_each.into() {
            format!("is host {count} of {prefix}, and a subscriber has at most {most_each} hosts")
        } else if each > most_subscribers.into() {
            format!("is in subscriber {each}, and limits.subscribers is {most_subscribers}")
        } else if all > most_all {
            let product = format!("{HOSTS_EACH} times limits.subscribers ({most_subscribers})");
            format!("is host {all}, and there is room for {most_all}: {product}")
        } else {
            continue;
        };
        report.wrong(place, format!("{address} {message}; map fewer hosts, or raise the limit"));
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
