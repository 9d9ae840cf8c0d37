//! Whether a node can deliver the packets of the other one: its devices are up, and a router
//! outside answers. Otherwise it does not say that it is there.
//!
//! One silent router is no reason: any host inside can send a packet to a router that has gone, if
//! there is a route. A router counts as answering as long as a worker has its hardware address.
//! After all have been silent, one has to answer: workers ask for them. So it is also if no route
//! leads to a router any more: a routing daemon withdraws the routes to one that has gone. Only a
//! reload of the configuration forgets a router without a route. A router that was silent answers
//! to the worker that noticed its silence: others may know its address of before.

use natgate_engine::Timestamp;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Time for which a device counts as down, or a router as silent, after it was so.
const BLOCKED: Duration = Duration::from_secs(5);

/// Most routers that count as silent.
const MOST_SILENT: usize = 64;

/// What the workers of a node know about the ways to hosts.
#[derive(Debug, Default)]
pub(crate) struct Ways {
    workers: Vec<OfWorker>,
    /// Routers outside that have not answered. They stay until a worker knows a router.
    silent: Mutex<Vec<Silent>>,
}

/// A router outside that has not answered.
#[derive(Debug)]
struct Silent {
    router: Ipv4Addr,
    /// The worker that it has not answered.
    worker: usize,
    /// Time until which it counts as silent, whatever that worker knows.
    until: Timestamp,
}

#[derive(Debug, Default)]
struct OfWorker {
    /// Time until which a device counts as down.
    down: AtomicU64,
    /// True if the worker knows the hardware address of a router outside that is not silent.
    has_router: AtomicBool,
}

impl Ways {
    pub(crate) fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| OfWorker::default()).collect();
        Self { workers, silent: Mutex::default() }
    }

    /// A device of a worker is down.
    pub(crate) fn note_down(&self, worker: usize, now: Timestamp) {
        self.workers[worker].down.store(now.plus(BLOCKED).0, Ordering::Relaxed);
    }

    /// Adds routers that have not answered a worker. Returns all that count as silent for it, and
    /// whether others are to be asked for.
    pub(crate) fn note_silent(
        &self,
        worker: usize,
        now: Timestamp,
        routers: &[Ipv4Addr],
    ) -> (Vec<Ipv4Addr>, bool) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let has_router = self.has_router();
        silent.retain(|one| (now < one.until || !has_router) && !routers.contains(&one.router));
        for router in routers {
            if silent.len() == MOST_SILENT {
                silent.remove(0);
            }
            silent.push(Silent { router: *router, worker, until: now.plus(BLOCKED) });
        }
        let counts = |one: &&Silent| now < one.until || one.worker != worker;
        let routers = silent.iter().filter(counts).map(|one| one.router).collect();
        (routers, !silent.is_empty())
    }

    /// Forgets silent routers that are no longer `hops`: the configuration has changed.
    pub(crate) fn keep_silent(&self, hops: impl Fn(Ipv4Addr) -> bool) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.retain(|one| hops(one.router));
    }

    /// Tells whether a worker knows a router that does not count as silent.
    pub(crate) fn note_router(&self, worker: usize, has_router: bool) {
        self.workers[worker].has_router.store(has_router, Ordering::Relaxed);
    }

    fn has_router(&self) -> bool {
        self.workers.iter().any(|worker| worker.has_router.load(Ordering::Relaxed))
    }

    /// True if the node can deliver packets.
    pub(crate) fn deliver(&self, now: Timestamp) -> bool {
        let is_up = |worker: &OfWorker| now.0 >= worker.down.load(Ordering::Relaxed);
        let none_was_silent =
            || self.silent.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        self.workers.iter().all(is_up) && (self.has_router() || none_was_silent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(last: u8) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, last)
    }

    #[test]
    fn a_silent_router_counts_only_if_no_worker_knows_another_one() {
        let (ways, now) = (Ways::new(2), Timestamp(1_000_000_000));
        assert!(ways.deliver(now), "nobody has asked a router yet");
        assert_eq!(ways.note_silent(0, now, &[router(1)]), (vec![router(1)], true));
        assert!(!ways.deliver(now));
        ways.note_router(1, true);
        assert!(ways.deliver(now));
        assert_eq!(ways.note_silent(0, now, &[router(2)]).0, [router(1), router(2)]);
        ways.note_router(1, false);
        assert!(!ways.deliver(now), "all are silent");
    }

    #[test]
    fn a_router_that_was_silent_has_to_answer() {
        let (ways, now) = (Ways::new(2), Timestamp(1_000_000_000));
        ways.note_silent(0, now, &[router(1)]);
        let later = now.plus(BLOCKED);
        assert!(!ways.deliver(later), "it has not answered");
        assert_eq!(ways.note_silent(0, later, &[]), (vec![], true), "it is asked for, too");
        let of_other = ways.note_silent(1, later, &[]);
        assert_eq!(of_other, (vec![router(1)], true), "this worker may know a former address");
        let later = later.plus(100 * BLOCKED);
        assert_eq!(ways.note_silent(0, later, &[]), (vec![], true));
        assert!(!ways.deliver(later));
        ways.note_router(0, true);
        assert!(ways.deliver(later));
        assert_eq!(ways.note_silent(1, later, &[]), (vec![], false));
        ways.note_router(0, false);
        assert!(ways.deliver(later), "it is no longer in use, and has not been silent");
    }

    #[test]
    fn a_reload_forgets_silent_routers_without_routes() {
        let (ways, now) = (Ways::new(2), Timestamp(1_000_000_000));
        ways.note_silent(0, now, &[router(1), router(2)]);
        ways.keep_silent(|hop| hop == router(2));
        assert!(!ways.deliver(now), "a router is left");
        assert_eq!(ways.note_silent(1, now, &[]), (vec![router(2)], true));
        ways.keep_silent(|_| false);
        assert!(ways.deliver(now), "no packet needs a router");
    }

    #[test]
    fn a_device_that_is_down_counts_whatever_routers_there_are() {
        let (ways, now) = (Ways::new(2), Timestamp(1_000_000_000));
        ways.note_router(0, true);
        ways.note_down(1, now);
        assert!(!ways.deliver(now));
        assert!(ways.deliver(now.plus(BLOCKED)));
    }

    #[test]
    fn silent_routers_have_a_limit_and_the_oldest_make_room() {
        let (ways, now) = (Ways::new(1), Timestamp(1_000_000_000));
        for last in 0..=MOST_SILENT as u8 {
            ways.note_silent(0, now, &[router(last)]);
        }
        // One that is silent again is the latest one.
        let (silent, _) = ways.note_silent(0, now, &[router(2)]);
        assert_eq!((silent.len(), silent[0]), (MOST_SILENT, router(1)));
        assert_eq!(silent.last(), Some(&router(2)));
    }
}
