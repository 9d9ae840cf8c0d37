//! Destinations behind routers inside, in the form that the translator uses.
//!
//! The translator knows no routes. So the prefixes of a realm's inside routes become ranges of
//! addresses, without the parts to which a longer prefix leads elsewhere: a connected network, or a
//! route outside. The inside's default route is left out: it would contain every address.

use crate::settings::{InsideRoutes, Route, Settings};
use natgate_engine::{AddressRange, Prefix, Side};
use std::net::Ipv4Addr;

impl Settings {
    /// Sets the translator's list of destinations behind routers inside. Call it again when routes
    /// or networks change.
    pub fn derive_inside_routes(&mut self) {
        let outside = &self.engine.outside.network;
        let outward: Vec<Prefix> =
            outside.iter().copied().chain(via(&self.routes, Side::Outside)).collect();
        let of = |network: Option<Prefix>, routes: &[Route]| match self.inside_routes {
            InsideRoutes::Forward => {
                let elsewhere = network.iter().chain(&outward).copied().collect();
                ranges(via(routes, Side::Inside).collect(), elsewhere)
            }
            InsideRoutes::Translate => Vec::new(),
        };
        let own = of(self.engine.inside.network, &self.routes);
        let realms = self.engine.realms.iter().zip(&self.realms);
        let realms: Vec<Vec<AddressRange>> =
            realms.map(|(realm, settings)| of(realm.inside.network, &settings.routes)).collect();
        self.engine.inside_routes = own;
        for (realm, ranges) in self.engine.realms.iter_mut().zip(realms) {
            realm.inside_routes = ranges;
        }
    }
}

/// Prefixes of a side's routes, except the default route's.
fn via(routes: &[Route], side: Side) -> impl Iterator<Item = Prefix> + '_ {
    let routes = routes.iter().filter(move |route| route.side == side);
    routes.map(|route| route.prefix).filter(|prefix| !prefix.is_empty())
}

/// A prefix that is still open in [`ranges`], and its last address.
#[derive(Clone, Copy)]
struct Open {
    last: u64,
    inside: bool,
}

/// Ranges of addresses whose longest prefix is in `inside`, in order and apart; for equal prefixes
/// `elsewhere` counts.
fn ranges(inside: Vec<Prefix>, elsewhere: Vec<Prefix>) -> Vec<AddressRange> {
    if inside.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<(Prefix, bool)> = inside.into_iter().map(|prefix| (prefix, true)).collect();
    all.extend(elsewhere.into_iter().map(|prefix| (prefix, false)));
    all.sort_by_key(|(prefix, inside)| (prefix.first(), prefix.len(), !inside));
    let mut ranges = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut next = 0;
    for (prefix, inside) in all {
        let first = u64::from(prefix.first());
        while let Some(top) = open.pop_if(|top| top.last < first) {
            add(&mut ranges, (next, top.last), top.inside);
            next = next.max(top.last + 1);
        }
        if let Some(top) = open.last().filter(|_| next < first) {
            add(&mut ranges, (next, first - 1), top.inside);
        }
        next = first;
        open.push(Open { last: prefix.last().into(), inside });
    }
    while let Some(top) = open.pop() {
        add(&mut ranges, (next, top.last), top.inside);
        next = next.max(top.last + 1);
    }
    ranges
}

/// Appends a range of addresses.
fn add(ranges: &mut Vec<AddressRange>, (first, last): (u64, u64), inside: bool) {
    let (Ok(from), Ok(to)) = (u32::try_from(first), u32::try_from(last)) else { return };
    if !inside || from > to {
        return;
    }
    match ranges.last_mut() {
        Some(before) if u64::from(before.last.to_bits()) + 1 == first => {
            before.last = Ipv4Addr::from_bits(to);
        }
        _ => {
            let (first, last) = (Ipv4Addr::from_bits(from), Ipv4Addr::from_bits(to));
            ranges.push(AddressRange { first, last });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        let (address, len) = text.split_once('/').expect("a prefix");
        Prefix::new(address.parse().expect("an address"), len.parse().expect("a length"))
    }

    fn shown(inside: &[&str], elsewhere: &[&str]) -> Vec<String> {
        let read = |all: &[&str]| all.iter().map(|text| prefix(text)).collect();
        let ranges = ranges(read(inside), read(elsewhere));
        ranges.iter().map(|range| format!("{}-{}", range.first, range.last)).collect()
    }

    #[test]
    fn what_is_connected_or_leads_outside_by_a_longer_prefix_is_left_out() {
        assert_eq!(shown(&["10.0.0.0/8"], &[]), ["10.0.0.0-10.255.255.255"]);
        assert_eq!(
            shown(&["10.0.0.0/8"], &["10.0.0.0/24", "10.9.0.0/16"]),
            ["10.0.1.0-10.8.255.255", "10.10.0.0-10.255.255.255"]
        );
        assert_eq!(shown(&["10.200.0.0/16"], &["10.0.0.0/8"]), ["10.200.0.0-10.200.255.255"]);
        assert_eq!(shown(&["10.0.0.0/24"], &["10.0.0.0/24"]), [""; 0]);
        assert_eq!(shown(&["10.0.0.0/25", "10.0.0.128/25"], &[]), ["10.0.0.0-10.0.0.255"]);
        assert_eq!(shown(&["255.255.255.255/32"], &[]), ["255.255.255.255-255.255.255.255"]);
    }

    /// Prefixes close together, so that many lie within others.
    fn prefixes() -> impl Strategy<Value = Vec<Prefix>> {
        let one = (0..64_u32, 24..=32_u8)
            .prop_map(|(low, len)| Prefix::new(Ipv4Addr::from_bits(0x0a00_0000 | low << 2), len));
        proptest::collection::vec(one, 0..10)
    }

    proptest! {
        #[test]
        fn ranges_say_what_a_search_for_the_longest_prefix_says(
            inside in prefixes(),
            elsewhere in prefixes(),
        ) {
            let ranges = ranges(inside.clone(), elsewhere.clone());
            prop_assert!(ranges.windows(2).all(|pair| pair[0].last < pair[1].first));
            let longest = |all: &[Prefix], address| {
                let holding = all.iter().filter(|prefix| prefix.contains(address));
                holding.map(|prefix| prefix.len()).max()
            };
            for address in 0x09ff_fff0..0x0a00_0110_u32 {
                let expected = longest(&inside, address) > longest(&elsewhere, address);
                let found = ranges.iter().any(|range| range.contains(Ipv4Addr::from_bits(address)));
                prop_assert_eq!(found, expected, "{}", Ipv4Addr::from_bits(address));
            }
        }
    }
}
