//! Routes that somebody else has learnt, such as a routing daemon on the same machine: many, and
//! often other ones.
//!
//! They are made into a table apart from the router, which only takes the finished table into its
//! place and hands back the one before. Several routers can share a table.

use super::routes::{is_neighbor, key};
use crate::settings::{Route, Settings};
use natgate_engine::{Prefix, Side};
use prefix_trie::PrefixMap;
use std::net::Ipv4Addr;

/// Most learnt routes.
pub const MOST_LEARNT: usize = 1 << 20;

/// One side's: the next hop by prefix.
pub(super) type Table = PrefixMap<(u32, u8), Ipv4Addr>;

/// Routes of both sides that have been learnt. Realms other than that of `[inside]` have none.
#[derive(Debug, Default)]
pub struct LearntRoutes {
    /// In the order of the router's first two links: inside, outside.
    tables: [Table; 2],
}

impl LearntRoutes {
    /// A table of those routes whose next hop is a neighbour's address on its side; of two for the
    /// same prefix and side the earlier stays. `networks` are those of inside and outside. Also
    /// returns how many routes are not in it.
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

    /// All of them, in order of side and prefix.
    pub fn iter(&self) -> impl Iterator<Item = Route> + '_ {
        let sides = [Side::Inside, Side::Outside].into_iter().zip(&self.tables);
        sides.flat_map(|(side, table)| {
            table.iter().map(move |((first, len), via)| {
                let prefix = Prefix::new(Ipv4Addr::from_bits(first), len);
                Route { prefix, via: *via, side }
            })
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.tables.iter().map(PrefixMap::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those of a link, by its place; `None`: there are none.
    pub(super) fn of(&self, place: usize) -> Option<&Table> {
        self.tables.get(place).filter(|table| !table.is_empty())
    }
}

/// The networks that settings put on the two sides' links.
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
