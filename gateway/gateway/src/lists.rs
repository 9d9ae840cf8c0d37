//! Reading figures and lists of all workers, part by part.

use crate::alg::OpenExpectation;
use crate::command::{CommandError, Commander};
use crate::health::ServerHealth;
use crate::link::Link;
use crate::router::{LearntRoutes, NeighborInfo};
use crate::router6::NeighborInfo6;
use crate::survey::{Figures, Listed, NumberedHost, Part, Question, Removal};
use natgate_engine::{Cursor, Filter, Prefix, Side, Timestamp};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Most neighbours in one answer, all links together.
const MOST_NEIGHBORS: usize = 1 << 18;

/// A reader of one list.
#[derive(Debug)]
pub struct List<T> {
    commander: Commander,
    filter: Filter,
    /// The worker to ask next.
    worker: usize,
    part: Option<Box<Part<T>>>,
}

impl<T: Listed> List<T> {
    /// Returns the next entries, possibly none, and the time when they were read; `None` at the
    /// end.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn next_part(&mut self) -> Result<Option<(&[T], Timestamp)>, CommandError> {
        if self.part.as_ref().is_some_and(|part| part.done) {
            self.worker += 1;
            if let Some(part) = &mut self.part {
                (part.cursor, part.done) = (Cursor::default(), false);
            }
        }
        if self.worker >= self.commander.workers() {
            return Ok(None);
        }
        let Some(mut part) = self.part.take() else { return Err(CommandError::Stopping) };
        part.found.clear();
        part.filter = self.filter;
        let part = self.commander.question(self.worker, |reply| T::question(part, reply))?;
        let part = self.part.insert(part);
        Ok(Some((&part.found, part.now)))
    }
}

impl Commander {
    /// Counters and table sizes of each worker.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn figures(&self) -> Result<Vec<Figures>, CommandError> {
        let figures = |worker| {
            let empty = Box::new(Figures::with_room());
            self.question(worker, |reply| Question::Figures(empty, reply)).map(|figures| *figures)
        };
        (0..self.workers()).map(figures).collect()
    }

    /// Lists the mappings, sessions (each with its mapping), subscribers or pool addresses that
    /// match a filter, in parts of at most `room` entries. Each worker lists its own; of a pool
    /// address every worker lists the ports that it uses.
    pub fn list<T: Listed>(&self, filter: Filter, room: usize) -> List<T> {
        let (cursor, found) = (Cursor::default(), Vec::with_capacity(room.max(1)));
        let part = Some(Box::new(Part { cursor, filter, found, now: Timestamp(0), done: false }));
        List { commander: self.clone(), filter, worker: 0, part }
    }

    /// Returns at most `most` entries of one worker from a cursor on, and true if these were all.
    pub(crate) fn page<T: Listed>(
        &self,
        worker: usize,
        cursor: Cursor,
        most: usize,
    ) -> Result<(Vec<T>, bool), CommandError> {
        let (filter, found) = (Filter::default(), Vec::with_capacity(most));
        let mut part = Box::new(Part { cursor, filter, found, now: Timestamp(0), done: false });
        while !part.done && !part.is_full() {
            part = self.question(worker, |reply| T::question(part, reply))?;
        }
        Ok((part.found, part.done))
    }

    /// Removes the dynamic mappings that match a filter, or their sessions; returns the number.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn clear(&self, filter: Filter, sessions: bool) -> Result<u64, CommandError> {
        let mut all = 0;
        for worker in 0..self.workers() {
            let cursor = Cursor::default();
            let mut removal = Box::new(Removal { cursor, filter, sessions, count: 0, done: false });
            while !removal.done {
                removal = self.question(worker, |reply| Question::Clear(removal, reply))?;
            }
            all += removal.count;
        }
        Ok(all)
    }

    /// Neighbours of each worker, in order of link and address. Several workers may know the same
    /// neighbour.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn neighbors(&self) -> Result<Vec<Vec<(Link, NeighborInfo)>>, CommandError> {
        let neighbors = |worker| {
            let room = Vec::with_capacity(MOST_NEIGHBORS);
            let list = self.question(worker, |reply| Question::Neighbors(room, reply));
            list.map(|mut list| {
                let order = |link: Link| (link.side == Side::Outside, link.realm);
                list.sort_by_key(|(link, neighbor)| (order(*link), neighbor.address));
                list
            })
        };
        (0..self.workers()).map(neighbors).collect()
    }

    /// Names of hosts of NAT64, by realm and number; hosts of other realms have none.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn hosts(
        &self,
        numbers: impl Iterator<Item = (u16, Ipv4Addr)>,
    ) -> Result<Vec<NumberedHost>, CommandError> {
        let mut hosts = numbers.map(|(realm, number)| (realm, number, None)).collect();
        for worker in 0..self.workers() {
            // A worker names its own hosts.
            hosts = self.question(worker, |reply| Question::Hosts(hosts, reply))?;
        }
        Ok(hosts)
    }

    /// Realms and numbers of the hosts of NAT64, and of DS-Lite, in a prefix: a host, or a
    /// subscriber of each. A customer may have both.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn numbers(&self, prefix: (Ipv6Addr, u8)) -> Result<Vec<(u16, Prefix)>, CommandError> {
        let mut all = Vec::new();
        for worker in 0..self.workers() {
            all.extend(self.question(worker, |reply| Question::Numbers(prefix, reply))?);
        }
        Ok(all)
    }

    /// Neighbours of IPv6, in order of link and address. Each worker has its own table; of a
    /// neighbour that several know, the list has the best state, and the packets that wait in all.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn neighbors6(&self) -> Result<Vec<(Link, NeighborInfo6)>, CommandError> {
        let mut all: BTreeMap<(bool, u16, Ipv6Addr), (Link, NeighborInfo6)> = BTreeMap::new();
        for worker in 0..self.workers() {
            for (link, neighbor) in self.question(worker, Question::Neighbors6)? {
                let key = (link.side == Side::Outside, link.realm, neighbor.address);
                let new = NeighborInfo6 { held: 0, ..neighbor };
                let (_, known) = all.entry(key).or_insert((link, new));
                let held = known.held + neighbor.held;
                if known.state < neighbor.state {
                    *known = neighbor;
                }
                known.held = held;
            }
        }
        Ok(all.into_values().collect())
    }

    /// Expectations of application-level gateways whose flow may begin, the oldest first.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn expectations(&self) -> Result<Vec<OpenExpectation>, CommandError> {
        let mut all = Vec::new();
        for worker in 0..self.workers() {
            all.extend(self.question(worker, Question::Expectations)?);
        }
        all.sort_by_key(|open| (open.made.time, open.made.external));
        Ok(all)
    }

    /// State of the servers that are checked, in the order of the configuration.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn servers(&self) -> Result<Vec<ServerHealth>, CommandError> {
        let mut all = Vec::new();
        for worker in 0..self.workers() {
            all.extend(self.question(worker, Question::Servers)?);
        }
        all.sort_by_key(|server| server.place);
        Ok(all)
    }

    /// Learnt routes in force.
    ///
    /// # Errors
    /// [`CommandError::Stopping`].
    pub fn learnt(&self) -> Result<Arc<LearntRoutes>, CommandError> {
        self.question(0, Question::Learnt)
    }
}
