//! Routes learnt from another program, such as a routing daemon on the same machine: many, and
//! often changing.
//!
//! The table is built apart from the router. The router only replaces its table by the finished one
//! and returns the former. Several routers can share a table.

use super::routes::{is_neighbor, key};
use crate::settings::{Route, Settings};
use natgate_engine::{Prefix, Side};
use prefix_trie::PrefixMap;
use std::net::Ipv4Addr;

/// Most learnt routes.
pub const MOST_LEARNT: usize = 1 << 20;

/// Routes of one side: next hop by prefix.
pub(super) type Table = PrefixMap<(u32, u8), Ipv4Addr>;

/// Learnt routes of both sides. Realms other than that of `[inside]` have none.
#[derive(Debug, Default)]
pub struct LearntRoutes {
    /// Tables in the order of the router's first two links: inside, outside.
    tables: [Table; 2],
}

impl LearntRoutes {
    /// Builds a table of the routes whose next hop is a neighbour's address on its side. Of two
    /// routes for the same prefix and side the earlier stays. `networks` are the networks of inside
    /// and outside. Also returns the number of routes that were left out.
    pub fn new(
        networks: [Option<Prefix>; 2],
        routes: impl IntoIterator<Item = Route>,
    ) -> (Self, usize) {
        let (mut learnt, mut left_out) = (Self::default(), 0);
        for Route { prefix, via, side } in routes {
            let place = place(side);
            let reachable = networks[place].is_some_and(|network| is_neighbor(network, via));
            if !reachable || learnt.len() == MOST_LEARNT {
                left_out += 1;
                continue;
            }
            let table = &mut learnt.tables[place];
            let before = table.len();
            table.entry(key(prefix)).or_insert(via);
            left_out += usize::from(table.len() == before);
        }
        (learnt, left_out)
    }

    /// All routes, in order of side and prefix.
    pub fn iter(&self) -> impl Iterator<Item = Route> + '_ {
        let sides = [Side::Inside, Side::Outside].into_iter().zip(&self.tables);
        sides.flat_map(|(side, table)| {
            table.iter().map(move |((first, len), via)| {
                let prefix = Prefix::new(Ipv4Addr::from_bits(first), len);
                Route { prefix, via: *via, side }
            })
        })
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.tables.iter().map(PrefixMap::len).sum()
    }

    /// True if there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Routes of a link, by its index; `None` if there are none.
    pub(super) fn of(&self, place: usize) -> Option<&Table> {
        self.tables.get(place).filter(|table| !table.is_empty())
    }
}

/// Networks of the two sides' links.
pub fn networks(settings: &Settings) -> [Option<Prefix>; 2] {
    [&settings.inside, &settings.outside]
        .map(|side| side.address.map(|(address, len)| Prefix::new(address, len)))
}

fn place(side: Side) -> usize {
    match side {
        Side::Inside => 0,
        Side::Outside => 1,
    }
}
