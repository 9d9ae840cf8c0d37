//! Routes that a gateway announces: the fewest prefixes that contain exactly the external
//! addresses. Of a pair, each slice has prefixes of its own, and those of the other node's slices
//! have a metric. So routers know the way by either node before it is needed, and prefer the
//! owner.

use natgate_engine::{AddressRange, Prefix};
use natgate_gateway::Settings;
use std::net::Ipv4Addr;

/// Most announced prefixes.
const MOST_ANNOUNCED: usize = 100_000;

/// A route to external addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnnouncedRoute {
    /// The addresses.
    pub prefix: Prefix,
    /// The kernel's metric; 0: none.
    pub metric: u32,
}

/// The routes of a configuration, and the owners of the slices.
#[derive(Clone, Debug, Default)]
pub struct RoutePlan {
    ranges: Vec<AddressRange>,
    /// Name of this node of a pair.
    node: String,
    slices: Vec<SlicePlan>,
    partner_metric: u32,
}

#[derive(Clone, Debug, Default)]
struct SlicePlan {
    ranges: Vec<AddressRange>,
    /// True if this node owns the slice.
    is_own: bool,
}

impl RoutePlan {
    /// The routes of a configuration, before this node knows of an owner: the other node may own
    /// all slices.
    pub fn of(settings: &Settings) -> Self {
        let fleet = settings.fleet.as_ref();
        let slices = fleet.iter().flat_map(|fleet| &fleet.slices);
        let slice =
            |ranges: &Vec<AddressRange>| SlicePlan { ranges: ranges.clone(), is_own: false };
        Self {
            ranges: settings.engine.external_ranges(),
            node: fleet.map(|fleet| fleet.node.clone()).unwrap_or_default(),
            slices: slices.map(|one| slice(&one.addresses)).collect(),
            partner_metric: settings.kernel.announce.as_ref().map_or(0, |it| it.partner_metric),
        }
    }

    /// Takes other settings. The slices do not change by a reload, and so their owners do not.
    pub fn renew(&mut self, settings: &Settings) {
        let former = std::mem::replace(self, Self::of(settings));
        for (slice, former) in self.slices.iter_mut().zip(former.slices) {
            slice.is_own = former.is_own;
        }
    }

    /// Notes the owner of a slice.
    pub fn set_owner(&mut self, slice: usize, owner: &str) {
        let is_own = owner == self.node;
        if let Some(slice) = self.slices.get_mut(slice) {
            slice.is_own = is_own;
        }
    }

    /// The routes, in the order of their addresses. Slices that change their owner keep their
    /// prefixes.
    pub fn routes(&self) -> Vec<AnnouncedRoute> {
        let mut routes = Vec::new();
        let mut rest = self.ranges.clone();
        for slice in &self.slices {
            let metric = if slice.is_own { 0 } else { self.partner_metric };
            let mut own = Vec::new();
            for range in &slice.ranges {
                own.extend(rest.iter().filter_map(|one| common(*one, *range)));
                rest = rest.iter().flat_map(|one| without(*one, *range)).flatten().collect();
            }
            add(own, metric, &mut routes);
        }
        // Addresses of no slice have no other owner.
        add(rest, 0, &mut routes);
        routes.sort_unstable();
        routes.truncate(MOST_ANNOUNCED);
        routes
    }
}

/// Adds the routes with a metric to ranges that do not overlap.
fn add(mut ranges: Vec<AddressRange>, metric: u32, routes: &mut Vec<AnnouncedRoute>) {
    ranges.sort_unstable_by_key(|range| range.first);
    let (mut prefixes, mut ranges) = (Vec::new(), ranges.into_iter().peekable());
    while let Some(AddressRange { first, last }) = ranges.next() {
        let mut last = last.to_bits();
        let follows =
            |next: &AddressRange, last: u32| last.checked_add(1) == Some(next.first.to_bits());
        while let Some(next) = ranges.next_if(|next| follows(next, last)) {
            last = next.last.to_bits();
        }
        cover(first.to_bits(), last, &mut prefixes);
    }
    routes.extend(prefixes.into_iter().map(|prefix| AnnouncedRoute { prefix, metric }));
}

/// Addresses of both ranges.
fn common(one: AddressRange, other: AddressRange) -> Option<AddressRange> {
    let (first, last) = (one.first.max(other.first), one.last.min(other.last));
    (first <= last).then_some(AddressRange { first, last })
}

/// Addresses of a range before and after those of another.
fn without(one: AddressRange, other: AddressRange) -> [Option<AddressRange>; 2] {
    let (first, last) = (one.first.to_bits(), one.last.to_bits());
    let (from, until) = (other.first.to_bits(), other.last.to_bits());
    let range = |first: u32, last: u32| AddressRange { first: first.into(), last: last.into() };
    let before = (first < from).then(|| range(first, last.min(from - 1)));
    let after = (until < last).then(|| range(first.max(until + 1), last));
    [before, after]
}

/// Adds the fewest prefixes that cover a range.
fn cover(mut first: u32, last: u32, prefixes: &mut Vec<Prefix>) {
    loop {
        // The largest prefix that the alignment of the first address and the end of the range
        // allow.
        let aligned = first.trailing_zeros();
        let room = (u64::from(last) - u64::from(first) + 1).ilog2();
        let bits = aligned.min(room);
        prefixes.push(Prefix::new(Ipv4Addr::from_bits(first), 32 - bits as u8));
        let next = u64::from(first) + (1 << bits);
        if next > u64::from(last) {
            return;
        }
        first = next as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::show_prefix;
    use natgate_engine::{Config, PoolConfig, StaticMapping};

    fn range((first, last): ([u8; 4], [u8; 4])) -> AddressRange {
        AddressRange { first: first.into(), last: last.into() }
    }

    fn routes(plan: &RoutePlan) -> Vec<String> {
        let shown = |route: &AnnouncedRoute| match route.metric {
            0 => show_prefix(route.prefix),
            metric => format!("{} metric {metric}", show_prefix(route.prefix)),
        };
        plan.routes().iter().map(shown).collect()
    }

    fn shown(ranges: &[([u8; 4], [u8; 4])], fixed: &[[u8; 4]]) -> Vec<String> {
        let addresses = ranges.iter().map(|one| range(*one));
        let pool = PoolConfig { addresses: addresses.collect(), ..PoolConfig::default() };
        let fixed = fixed.iter().map(|external| StaticMapping {
            external: ((*external).into(), None),
            ..StaticMapping::default()
        });
        let config = Config { pools: vec![pool], statics: fixed.collect(), ..Config::default() };
        routes(&RoutePlan { ranges: config.external_ranges(), ..RoutePlan::default() })
    }

    #[test]
    fn ranges_become_the_fewest_prefixes() {
        assert_eq!(shown(&[([203, 0, 113, 0], [203, 0, 113, 255])], &[]), ["203.0.113.0/24"]);
        assert_eq!(
            shown(&[([203, 0, 113, 1], [203, 0, 113, 4])], &[]),
            ["203.0.113.1/32", "203.0.113.2/31", "203.0.113.4/32"]
        );
        assert_eq!(shown(&[([0, 0, 0, 0], [255, 255, 255, 255])], &[]), ["0.0.0.0/0"]);
        assert_eq!(
            shown(&[([255, 255, 255, 254], [255, 255, 255, 255])], &[]),
            ["255.255.255.254/31"]
        );
    }

    #[test]
    fn neighbouring_ranges_are_one() {
        let ranges = [([203, 0, 113, 4], [203, 0, 113, 7]), ([203, 0, 113, 0], [203, 0, 113, 3])];
        assert_eq!(shown(&ranges, &[[203, 0, 113, 2]]), ["203.0.113.0/29"]);
        assert_eq!(
            shown(&ranges[..1], &[[198, 51, 100, 9], [203, 0, 113, 8]]),
            ["198.51.100.9/32", "203.0.113.4/30", "203.0.113.8/32"]
        );
    }

    #[test]
    fn the_other_nodes_slices_have_a_metric_until_this_node_takes_them() {
        let slice = |first: [u8; 4], last: [u8; 4]| SlicePlan {
            ranges: vec![range((first, last))],
            is_own: false,
        };
        let mut plan = RoutePlan {
            ranges: vec![range(([203, 0, 113, 0], [203, 0, 113, 19]))],
            node: "a".into(),
            slices: vec![
                slice([203, 0, 113, 0], [203, 0, 113, 7]),
                slice([203, 0, 113, 8], [203, 0, 113, 15]),
                // A part of it is in no pool.
                slice([203, 0, 113, 18], [203, 0, 113, 30]),
            ],
            partner_metric: 100,
        };
        let rest = ["203.0.113.16/31", "203.0.113.18/31 metric 100"];
        let with = |first: &[&'static str]| [first, &rest[..]].concat();
        let first = ["203.0.113.0/29 metric 100", "203.0.113.8/29 metric 100"];
        assert_eq!(routes(&plan), with(&first));
        plan.set_owner(0, "a");
        plan.set_owner(1, "b");
        assert_eq!(routes(&plan), with(&["203.0.113.0/29", "203.0.113.8/29 metric 100"]));
        plan.set_owner(1, "a");
        assert_eq!(routes(&plan), with(&["203.0.113.0/29", "203.0.113.8/29"]));
        plan.set_owner(0, "b");
        assert_eq!(routes(&plan), with(&["203.0.113.0/29 metric 100", "203.0.113.8/29"]));
        plan.set_owner(9, "a");
    }
}
