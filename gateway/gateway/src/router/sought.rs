//! Routers outside: those that are silent, and the search for others.

use super::learnt::Table;
use super::{RETRY, Router, TRIES, index};
use crate::link::Link;
use natgate_engine::Timestamp;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

/// Most routers outside that are asked for at once after some have been silent.
pub(super) const MOST_SOUGHT: usize = 16;

impl Router {
    /// Routers outside that have not answered for their hardware addresses since the last call.
    pub(crate) fn take_silent(&mut self) -> Vec<Ipv4Addr> {
        let mut silent = std::mem::take(&mut self.outbox.silent);
        silent.retain(|router| self.may_be_hop(*router));
        silent
    }

    /// True if a route may lead to a router outside. Without learnt routes, those of the
    /// configuration tell.
    pub(crate) fn may_be_hop(&self, router: Ipv4Addr) -> bool {
        self.learns || self.ports[index(Link::OUTSIDE)].routes.is_next_hop(router)
    }

    /// True if the hardware address of a router outside is known that is none of `silent`. If it is
    /// not, and the caller `asks`, the others are asked for, a few at a time, in turn.
    pub(crate) fn finds_router(&mut self, now: Timestamp, silent: &[Ipv4Addr], asks: bool) -> bool {
        let place = index(Link::OUTSIDE);
        let port = &self.ports[place];
        let learnt = self.learnt.of(place).into_iter().flat_map(Table::hops);
        let others = port.routes.hops().chain(learnt).filter(|hop| !silent.contains(hop));
        if others.clone().any(|hop| port.neighbors.known(hop).is_some()) {
            return true;
        }
        let others: BTreeSet<Ipv4Addr> = others.filter(|_| asks).collect();
        let count = others.len();
        if count == 0 {
            return false;
        }
        let (first, until) = &mut self.sought;
        if now >= *until {
            (*first, *until) = (*first + MOST_SOUGHT, now.plus(RETRY * TRIES.into()));
        }
        let in_turn = others.iter().cycle().skip(*first % count);
        in_turn.take(count.min(MOST_SOUGHT)).for_each(|hop| self.seek(now, Link::OUTSIDE, *hop));
        false
    }
}
