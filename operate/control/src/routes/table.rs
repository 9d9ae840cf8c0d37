//! A copy of a table of the kernel, updated by notifications, and the routes of it that natgate can
//! use.

use super::netlink::{KernelRoute, NextHop, Place};
use natgate_engine::{Prefix, Side};
use natgate_gateway::Route;
use natgate_gateway::router::MOST_LEARNT;
use std::collections::BTreeMap;

/// First address, prefix length, metric. The kernel uses the route with the smallest metric.
type Key = (u32, u8, u32);

/// The copy of a table.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Routes by key. Of routes with the same key the kernel uses the first.
    routes: BTreeMap<Key, Vec<Hops>>,
    /// Routes that arrived when the copy was full.
    left_out: usize,
}

type Hops = Vec<NextHop>;

impl Table {
    /// Makes a copy from routes.
    pub(super) fn of(routes: impl IntoIterator<Item = KernelRoute>) -> Self {
        let mut table = Self::default();
        routes.into_iter().for_each(|route| table.came(route, Place::Behind));
        table
    }

    pub(super) fn came(&mut self, route: KernelRoute, place: Place) {
        if !route.general {
            return;
        }
        // Some prefixes have several metrics.
        if self.routes.len() >= 2 * MOST_LEARNT && !self.routes.contains_key(&key(&route)) {
            self.left_out += 1;
            return;
        }
        let same = self.routes.entry(key(&route)).or_default();
        match place {
            Place::Instead if !same.is_empty() => same[0] = route.hops,
            Place::Instead | Place::Before => same.insert(0, route.hops),
            Place::Behind => same.push(route.hops),
        }
    }

    pub(super) fn went(&mut self, route: &KernelRoute) {
        let Some(same) = self.routes.get_mut(&key(route)).filter(|_| route.general) else { return };
        if let Some(at) = same.iter().position(|hops| *hops == route.hops) {
            same.remove(at);
        }
        if same.is_empty() {
            self.routes.remove(&key(route));
        }
    }

    /// Number of routes that the copy has no room for.
    pub(super) fn left_out(&self) -> usize {
        self.left_out
    }

    /// The routes that send packets through a side's device, in order of prefix. `devices` has the
    /// interface indexes of inside and outside. A best route that leads elsewhere, or nowhere,
    /// hides those with a larger metric and is left out itself.
    pub(super) fn useful(&self, devices: [Option<u32>; 2]) -> Vec<Route> {
        let mut best: Option<(u32, u8)> = None;
        let mut useful = Vec::new();
        for ((first, len, _), same) in &self.routes {
            if best.replace((*first, *len)) == Some((*first, *len)) {
                continue;
            }
            let hops = same.first().into_iter().flatten();
            let known = hops.filter_map(|hop| Some((side(devices, hop.device)?, hop.via)));
            useful.extend(known.take(1).map(|(side, via)| Route {
                prefix: Prefix::new((*first).into(), *len),
                via,
                side,
            }));
        }
        useful
    }
}

fn side(devices: [Option<u32>; 2], device: u32) -> Option<Side> {
    match devices {
        [Some(inside), _] if inside == device => Some(Side::Inside),
        [_, Some(outside)] if outside == device => Some(Side::Outside),
        _ => None,
    }
}

fn key(route: &KernelRoute) -> Key {
    (route.prefix.first(), route.prefix.len(), route.metric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const DEVICES: [Option<u32>; 2] = [Some(1), Some(2)];

    fn hop(last: u8, device: u32) -> NextHop {
        NextHop { via: Ipv4Addr::new(192, 0, 2, last), device }
    }

    fn route(first: [u8; 4], len: u8, metric: u32, hops: &[NextHop]) -> KernelRoute {
        let prefix = Prefix::new(first.into(), len);
        let hops = hops.to_vec();
        KernelRoute {
            prefix,
            table: 254,
            protocol: 186,
            metric,
            blackhole: false,
            general: true,
            hops,
        }
    }

    fn vias(table: &Table) -> Vec<(u8, u8, Side)> {
        let of = |route: &Route| (route.prefix.len(), route.via.octets()[3], route.side);
        table.useful(DEVICES).iter().map(of).collect()
    }

    #[test]
    fn the_least_metric_counts_and_of_equals_the_first() {
        let net = [198, 51, 100, 0];
        let mut table = Table::of([
            route(net, 24, 20, &[hop(1, 2)]),
            route(net, 24, 10, &[hop(2, 2)]),
            route(net, 25, 30, &[hop(3, 1)]),
        ]);
        assert_eq!(vias(&table), [(24, 2, Side::Outside), (25, 3, Side::Inside)]);
        table.came(route(net, 24, 10, &[hop(4, 2)]), Place::Behind);
        assert_eq!(vias(&table)[0].1, 2);
        table.went(&route(net, 24, 10, &[hop(2, 2)]));
        assert_eq!(vias(&table)[0].1, 4);
        table.came(route(net, 24, 10, &[hop(5, 2)]), Place::Before);
        assert_eq!(vias(&table)[0].1, 5);
        table.came(route(net, 24, 10, &[hop(6, 2)]), Place::Instead);
        assert_eq!(vias(&table)[0].1, 6);
        table.went(&route(net, 24, 10, &[hop(6, 2)]));
        table.went(&route(net, 24, 10, &[hop(4, 2)]));
        assert_eq!(vias(&table), [(24, 1, Side::Outside), (25, 3, Side::Inside)]);
        table.went(&route(net, 24, 20, &[hop(1, 2)]));
        // Removes an absent route.
        table.went(&route(net, 24, 20, &[hop(1, 2)]));
        assert_eq!(vias(&table), [(25, 3, Side::Inside)]);
    }

    #[test]
    fn routes_that_lead_elsewhere_are_none_and_hide_others() {
        let net = [198, 51, 100, 0];
        let of_others = KernelRoute { general: false, ..route(net, 26, 1, &[hop(1, 2)]) };
        let table = Table::of([
            route(net, 24, 1, &[]),
            route(net, 24, 2, &[hop(1, 2)]),
            route(net, 25, 1, &[hop(1, 9)]),
            // The first of several next hops that uses a known device.
            route(net, 27, 1, &[hop(1, 9), hop(2, 1), hop(3, 2)]),
            of_others,
        ]);
        assert_eq!(vias(&table), [(27, 2, Side::Inside)]);
        assert_eq!(table.useful([None, None]), []);
    }
}
