//! Routes learnt from another program, such as a routing daemon on the same machine: many, and
//! often changing.
//!
//! The table is built apart from the router. The router only replaces its table by the finished one
//! and returns the former. Several routers can share a table.

use super::routes::{is_neighbor, key};
use super::runs::{Best, Runs};
use crate::settings::{Route, Settings};
use natgate_engine::{Prefix, Side};
use prefix_trie::PrefixMap;
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most learnt routes.
pub const MOST_LEARNT: usize = 1 << 20;

/// Number of the latest finished table.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Routes of one side.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Next hop by prefix.
    routes: PrefixMap<(u32, u8), Ipv4Addr>,
    /// The routes as runs, unless there are very many.
    runs: Option<Runs<Ipv4Addr>>,
    /// Next hops of all routes.
    hops: HashSet<Ipv4Addr>,
    /// A number that no other finished table of this process has.
    generation: u64,
}

impl Table {
    /// Finishes a table of these routes.
    fn settle(&mut self) {
        self.runs = Runs::of(&self.routes);
        self.hops = self.routes.values().copied().collect();
        self.generation = GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Next hops of all routes.
    pub(super) fn hops(&self) -> impl Iterator<Item = Ipv4Addr> + Clone + '_ {
        self.hops.iter().copied()
    }

    pub(super) fn runs(&self) -> Option<&Runs<Ipv4Addr>> {
        self.runs.as_ref()
    }

    /// The longest prefix of a host, and its next hop.
    pub(super) fn search(&self, host: (u32, u8)) -> Best<Ipv4Addr> {
        self.routes.get_lpm(&host).map(|((_, len), via)| (len, *via))
    }

    /// Number of routes.
    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }
}

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
            let table = &mut learnt.tables[place].routes;
            let before = table.len();
            table.entry(key(prefix)).or_insert(via);
            left_out += usize::from(table.len() == before);
        }
        learnt.tables.iter_mut().for_each(Table::settle);
        (learnt, left_out)
    }

    /// All routes, in order of side and prefix.
    pub fn iter(&self) -> impl Iterator<Item = Route> + '_ {
        let sides = [Side::Inside, Side::Outside].into_iter().zip(&self.tables);
        sides.flat_map(|(side, table)| {
            table.routes.iter().map(move |((first, len), via)| {
                let prefix = Prefix::new(Ipv4Addr::from_bits(first), len);
                Route { prefix, via: *via, side }
            })
        })
    }

    /// Number of routes.
    pub fn len(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// True if there are no routes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Routes of a link, by its index; `None` if there are none.
    pub(super) fn of(&self, place: usize) -> Option<&Table> {
        self.tables.get(place).filter(|table| table.len() > 0)
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
