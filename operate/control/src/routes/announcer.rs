//! Announces the external addresses as routes in a table of the kernel while the gateway works.
//!
//! The routes have the type blackhole, so the machine itself drops packets to these addresses:
//! natgate takes packets from the devices. The routes exist while the links of both sides are up,
//! and are removed when the gateway ends. The kernel keeps them when the process is killed, so a
//! start first removes the routes with its protocol number.
//!
//! The announcer restores routes that another program removes, with growing pauses. It counts and
//! reports missing routes at once. It also tries again to remove routes that the kernel did not let
//! go.

use super::follower::Follower;
use super::netlink::{KernelRoute, Netlink};
use super::plan::AnnouncedRoute;
use super::watch::{Announced, Backoff, watch};
use super::{RoutesError, Tell};
use crate::config::show_prefix;
use natgate_engine::Side;
use natgate_gateway::{AnnounceSettings, AnnouncedRoutes, panics};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most prefixes in a line.
const MOST_NAMED: usize = 4;

/// Attempts to remove routes at the end, and the pause between them.
const END_ATTEMPTS: usize = 3;
const END_PAUSE: Duration = Duration::from_millis(100);

/// Shortest time between two looks at the table.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// Shortest pause before a repair that is worth a line of its own.
const LONG_PAUSE: Duration = Duration::from_secs(1);

/// Counts of announced routes.
#[derive(Debug, Default)]
struct Counts {
    present: AtomicU64,
    missing: AtomicU64,
    restored: AtomicU64,
}

/// Counts of this process.
static COUNTS: Counts =
    Counts { present: AtomicU64::new(0), missing: AtomicU64::new(0), restored: AtomicU64::new(0) };

impl Counts {
    fn state(&self) -> AnnouncedRoutes {
        let [present, missing, restored] =
            [&self.present, &self.missing, &self.restored].map(|one| one.load(Ordering::Relaxed));
        AnnouncedRoutes { present, missing, restored }
    }

    /// Stores the state of the wanted routes.
    fn note(&self, wanted: &BTreeSet<AnnouncedRoute>, there: &BTreeSet<AnnouncedRoute>) {
        let present = wanted.intersection(there).count();
        self.present.store(present as u64, Ordering::Relaxed);
        self.missing.store((wanted.len() - present) as u64, Ordering::Relaxed);
    }
}

/// The state of the routes that this process announces.
pub fn announced() -> AnnouncedRoutes {
    COUNTS.state()
}

/// Requests to the announcer's thread. Later values replace earlier ones, so no request waits for
/// room and none is lost.
#[derive(Debug, Default)]
struct Requests {
    pending: Mutex<Pending>,
    changed: Condvar,
    /// True if another gateway has taken over the routes: the thread changes nothing any more.
    is_released: AtomicBool,
}

#[derive(Debug, Default)]
struct Pending {
    /// True if another program may have changed announced routes.
    hint: bool,
    links: [Option<bool>; 2],
    routes: Option<Vec<AnnouncedRoute>>,
    withdraw: bool,
    /// True if the routes of the latest withdrawal are gone.
    withdrawn: bool,
    stop: bool,
}

impl Requests {
    fn request(&self, change: impl FnOnce(&mut Pending)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for requests until `due`, and takes them. `None` if none came.
    fn wait(&self, due: Option<Instant>) -> Option<Pending> {
        let mut pending = self.lock();
        while !pending.is_any() {
            pending = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(pending).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    let waited = self.changed.wait_timeout(pending, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        let withdrawn = pending.withdrawn;
        Some(std::mem::replace(&mut *pending, Pending { withdrawn, ..Pending::default() }))
    }

    fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Relaxed)
    }
}

impl Pending {
    fn is_any(&self) -> bool {
        self.hint
            || self.links.iter().any(Option::is_some)
            || self.routes.is_some()
            || self.withdraw
            || self.stop
    }
}

/// A thread that announces routes. Dropping it removes the routes, unless they were released.
#[derive(Debug)]
pub struct Announcer {
    requests: Arc<Requests>,
    watch: Option<Follower>,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// Starts with the routes that an earlier gateway left, and announces `routes` if both links
    /// are `up`, inside and outside. Problems with single routes are reported.
    ///
    /// # Errors
    /// [`RoutesError`] if the kernel's table cannot be read or changed.
    pub fn start(
        settings: &AnnounceSettings,
        routes: Vec<AnnouncedRoute>,
        up: [bool; 2],
        tell: Tell,
    ) -> Result<Self, RoutesError> {
        let failed = |error| {
            let table = settings.table;
            RoutesError { what: format!("announce: table {table} of the kernel's routes"), error }
        };
        let netlink = Netlink::open().map_err(failed)?;
        let table = KernelTable { netlink, settings: settings.clone() };
        let watched = Announced::default();
        let requests = Arc::new(Requests::default());
        let hints = Arc::clone(&requests);
        let hint = move || hints.request(|pending| pending.hint = true);
        let watch = watch(settings.table, watched.clone(), hint).map_err(failed)?;
        let mut work = Work::new(table, settings.table, Arc::clone(&requests), tell);
        work.up = up;
        work.wanted = routes.into_iter().collect();
        work.watched = watched;
        work.begin().map_err(failed)?;
        work.agree();
        let thread = thread::Builder::new().name("announcer".into());
        let thread = thread.spawn(move || panics::contain(|| work.run())).map_err(failed)?;
        Ok(Self { requests, watch: Some(watch), thread: Some(thread) })
    }

    /// Removes the routes that an earlier gateway left, and returns their number. No gateway may
    /// announce routes with these settings.
    ///
    /// # Errors
    /// [`RoutesError`] if the kernel's table cannot be read or changed.
    pub fn remove_left(settings: &AnnounceSettings) -> Result<usize, RoutesError> {
        let failed = |error| {
            let table = settings.table;
            RoutesError { what: format!("announce: table {table} of the kernel's routes"), error }
        };
        let netlink = Netlink::open().map_err(failed)?;
        let mut routes = KernelTable { netlink, settings: settings.clone() };
        let own = routes.own().map_err(failed)?;
        own.iter().try_for_each(|one| routes.remove(*one)).map_err(failed)?;
        Ok(own.len())
    }

    /// Reports a link change of a side.
    pub fn link(&self, side: Side, up: bool) {
        self.requests.request(|pending| pending.links[place(side)] = Some(up));
    }

    /// Replaces the external addresses.
    pub fn announce(&self, routes: Vec<AnnouncedRoute>) {
        self.requests.request(|pending| pending.routes = Some(routes));
    }

    /// Returns a handle that ends the announcement while the gateway still works.
    pub fn handle(&self) -> AnnouncementHandle {
        AnnouncementHandle(Arc::clone(&self.requests))
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.watch = None;
        self.requests.request(|pending| pending.stop = true);
        if let Some(thread) = self.thread.take() {
            // The thread has reported all problems already.
            let _ = thread.join();
        }
    }
}

/// Ends an announcement regardless of later changes of links and configuration.
#[derive(Clone, Debug)]
pub struct AnnouncementHandle(Arc<Requests>);

impl AnnouncementHandle {
    /// Removes the routes, and waits at most `patience` until they are gone.
    pub fn withdraw(&self, patience: Duration) {
        let due = Instant::now() + patience;
        self.0.request(|pending| pending.withdraw = true);
        let mut pending = self.0.lock();
        while !pending.withdrawn {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.0.changed.wait_timeout(pending, left);
            pending = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Leaves the routes to the gateway that takes over. This announcer neither restores nor
    /// removes routes from now on.
    pub fn release(&self) {
        self.0.is_released.store(true, Ordering::Relaxed);
    }
}

fn place(side: Side) -> usize {
    match side {
        Side::Inside => 0,
        Side::Outside => 1,
    }
}

/// A table of routes that drop packets.
trait RouteTable {
    /// Routes with our protocol number.
    fn own(&mut self) -> io::Result<BTreeSet<AnnouncedRoute>>;
    fn add(&mut self, route: AnnouncedRoute) -> io::Result<()>;
    /// Succeeds if the route does not exist.
    fn remove(&mut self, route: AnnouncedRoute) -> io::Result<()>;
}

/// A table of the kernel.
struct KernelTable {
    netlink: Netlink,
    settings: AnnounceSettings,
}

impl RouteTable for KernelTable {
    fn own(&mut self) -> io::Result<BTreeSet<AnnouncedRoute>> {
        let AnnounceSettings { table, protocol, .. } = self.settings;
        let routes = self.netlink.routes(table)?;
        let own = routes.iter().filter(|route| route.protocol == protocol && route.blackhole);
        let announced =
            |route: &KernelRoute| AnnouncedRoute { prefix: route.prefix, metric: route.metric };
        Ok(own.map(announced).collect())
    }

    fn add(&mut self, route: AnnouncedRoute) -> io::Result<()> {
        self.netlink.add_blackhole(route, self.settings.table, self.settings.protocol)
    }

    fn remove(&mut self, route: AnnouncedRoute) -> io::Result<()> {
        let AnnounceSettings { table, protocol, .. } = self.settings;
        self.netlink.remove_blackhole(route, table, protocol).map(drop)
    }
}

struct Work<T> {
    /// True if the gateway is leaving.
    leaving: bool,
    routes: T,
    /// The table's number, for messages.
    table: u32,
    up: [bool; 2],
    wanted: BTreeSet<AnnouncedRoute>,
    there: BTreeSet<AnnouncedRoute>,
    /// Routes that the kernel refused to add, already reported.
    refused: BTreeSet<AnnouncedRoute>,
    /// Routes that the kernel refused to remove, already reported. They are tried again.
    stuck: BTreeSet<AnnouncedRoute>,
    /// Prefixes of the watch: all routes that should exist.
    watched: Announced,
    backoff: Backoff,
    /// Time of the next look at the table, if a route may be missing.
    look: Option<Instant>,
    /// Time of the last look.
    looked: Option<Instant>,
    /// Time of the next repair, if there is a reason.
    repair: Option<Instant>,
    counts: &'static Counts,
    requests: Arc<Requests>,
    tell: Tell,
}

impl<T: RouteTable> Work<T> {
    fn new(routes: T, table: u32, requests: Arc<Requests>, tell: Tell) -> Self {
        Self {
            leaving: false,
            routes,
            table,
            up: [true; 2],
            wanted: BTreeSet::new(),
            there: BTreeSet::new(),
            refused: BTreeSet::new(),
            stuck: BTreeSet::new(),
            watched: Announced::default(),
            backoff: Backoff::default(),
            look: None,
            looked: None,
            repair: None,
            counts: &COUNTS,
            requests,
            tell,
        }
    }

    fn run(&mut self) {
        loop {
            let due = self.look.into_iter().chain(self.repair).min();
            let Some(pending) = self.requests.clone().wait(due) else {
                let now = Instant::now();
                if self.look.is_some_and(|look| look <= now) {
                    self.look();
                }
                if self.repair.is_some_and(|repair| repair <= now) {
                    self.repair();
                }
                continue;
            };
            let has_link = pending.links.iter().any(Option::is_some);
            for (up, change) in self.up.iter_mut().zip(pending.links) {
                *up = change.unwrap_or(*up);
            }
            let has_routes = pending.routes.is_some();
            if let Some(routes) = pending.routes {
                self.wanted = routes.into_iter().collect();
            }
            self.leaving |= pending.withdraw;
            if has_link || has_routes || pending.withdraw {
                self.agree();
            }
            if pending.withdraw {
                self.requests.request(|pending| pending.withdrawn = true);
            }
            if pending.hint && self.look.is_none() {
                let next = self.looked.map(|looked| looked + LOOK_PAUSE);
                self.look = Some(next.unwrap_or_else(Instant::now));
            }
            if pending.stop {
                return self.end();
            }
        }
    }

    /// Removes the routes at the end, with a few attempts.
    fn end(&mut self) {
        self.wanted.clear();
        for _ in 0..END_ATTEMPTS {
            self.agree();
            if self.there.is_empty() || self.requests.is_released() {
                return;
            }
            thread::sleep(END_PAUSE);
        }
    }

    fn plan_repair(&mut self) {
        if self.repair.is_none() {
            self.repair = Some(self.backoff.next(Instant::now()));
        }
    }

    /// Looks which routes are missing, counts them, and plans their repair.
    fn look(&mut self) {
        (self.look, self.looked) = (None, Some(Instant::now()));
        if self.requests.is_released() {
            return;
        }
        let Ok(present) = self.routes.own() else {
            // The repair reports the error.
            return self.plan_repair();
        };
        let wanted = self.watched.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.counts.note(&wanted, &present);
        let mut removed: BTreeSet<_> = self.there.difference(&present).copied().collect();
        removed.retain(|one| wanted.contains(one));
        if removed.is_empty() || self.repair.is_some() {
            return;
        }
        self.plan_repair();
        let pause = self.repair.map_or(Duration::ZERO, |due| due - Instant::now());
        if pause >= LONG_PAUSE / 2 {
            (self.tell)(format!(
                "warning: another program keeps removing announced routes from table {}: {}; \
                 they are missing now, and natgate adds them again in {} s",
                self.table,
                named(&removed),
                pause.as_secs_f64().round()
            ));
        }
    }

    /// Restores routes that other programs removed.
    fn repair(&mut self) {
        self.repair = None;
        if self.requests.is_released() {
            return;
        }
        let table = self.table;
        let present = match self.routes.own() {
            Ok(present) => present,
            Err(error) => {
                (self.tell)(format!(
                    "warning: announced routes cannot be looked after: table {table} cannot be \
                     read: {error}; it is tried again"
                ));
                return self.plan_repair();
            }
        };
        let mut removed: BTreeSet<_> = self.there.difference(&present).copied().collect();
        removed.retain(|one| !self.stuck.contains(one));
        self.there.retain(|one| present.contains(one));
        self.agree();
        let back: Vec<_> = removed.intersection(&self.there).copied().collect();
        self.counts.restored.fetch_add(back.len() as u64, Ordering::Relaxed);
        if !removed.is_empty() {
            (self.tell)(format!(
                "warning: another program removed announced routes from table {table}: {}; {} of \
                 {} are there again",
                named(&removed),
                back.len(),
                removed.len()
            ));
        }
        match removed.len() {
            0 if self.stuck.is_empty() => self.backoff.nothing_found(),
            all if back.len() < all => self.plan_repair(),
            _ => {}
        }
    }

    /// Adopts the routes with our protocol number. [`Self::agree`] removes those that are not
    /// wanted after it has added the others, so that routers do not lose a prefix for a moment.
    fn begin(&mut self) -> io::Result<()> {
        self.there = self.routes.own()?;
        Ok(())
    }

    /// Makes the table agree with the wanted routes.
    fn agree(&mut self) {
        if self.requests.is_released() {
            return;
        }
        let wanted = match self.up {
            [true, true] if !self.leaving => self.wanted.clone(),
            _ => BTreeSet::new(),
        };
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = wanted.clone();
        // First, so that routers have a route while a metric or a length changes.
        self.refused.retain(|one| wanted.contains(one));
        for new in wanted.difference(&self.there).copied().collect::<Vec<_>>() {
            if self.requests.is_released() {
                return;
            }
            match self.routes.add(new) {
                Ok(()) => {
                    self.there.insert(new);
                    self.refused.remove(&new);
                }
                Err(error) if self.refused.insert(new) => self.complain("announced", new, &error),
                Err(_) => {}
            }
        }
        for gone in self.removable(&wanted) {
            if self.requests.is_released() {
                return;
            }
            match self.routes.remove(gone) {
                Ok(_) => {
                    self.there.remove(&gone);
                    self.stuck.remove(&gone);
                }
                Err(error) if self.stuck.insert(gone) => self.complain("withdrawn", gone, &error),
                Err(_) => {}
            }
        }
        self.stuck.retain(|one| self.there.contains(one) && !wanted.contains(one));
        if !self.stuck.is_empty() {
            self.plan_repair();
        }
        self.counts.note(&wanted, &self.there);
    }

    /// Routes to remove. The kernel takes a removal without a metric for the route of the prefix
    /// with the least one. So if a prefix stays with a metric, no route is removed that another
    /// program has removed already.
    fn removable(&mut self, wanted: &BTreeSet<AnnouncedRoute>) -> Vec<AnnouncedRoute> {
        let mut gone: Vec<_> = self.there.difference(wanted).copied().collect();
        let stays = |one: &AnnouncedRoute| {
            let next = wanted.range(*one..).next();
            one.metric == 0 && next.is_some_and(|next| next.prefix == one.prefix)
        };
        if !gone.iter().any(stays) {
            return gone;
        }
        match self.routes.own() {
            Ok(present) => {
                self.there.retain(|one| wanted.contains(one) || present.contains(one));
                gone.retain(|one| present.contains(one));
            }
            Err(error) => {
                for one in gone.extract_if(.., |one| stays(one)) {
                    if self.stuck.insert(one) {
                        self.complain("withdrawn", one, &error);
                    }
                }
            }
        }
        gone
    }

    fn complain(&mut self, what: &str, route: AnnouncedRoute, error: &io::Error) {
        let (prefix, table) = (show_prefix(route.prefix), self.table);
        let remedy = match error.kind() {
            io::ErrorKind::AlreadyExists => {
                format!("; `ip route show table {table} {prefix}` shows whose it is")
            }
            _ => String::new(),
        };
        (self.tell)(format!(
            "warning: {prefix} cannot be {what} in table {table}: {error}{remedy}"
        ));
    }
}

/// Formats the first few prefixes.
fn named(routes: &BTreeSet<AnnouncedRoute>) -> String {
    let names: Vec<String> =
        routes.iter().take(MOST_NAMED).map(|route| show_prefix(route.prefix)).collect();
    match routes.len().saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::Prefix;
    use std::net::Ipv4Addr;

    const ONE: AnnouncedRoute =
        AnnouncedRoute { prefix: Prefix::new(Ipv4Addr::new(203, 0, 113, 0), 24), metric: 0 };
    const TWO: AnnouncedRoute =
        AnnouncedRoute { prefix: Prefix::new(Ipv4Addr::new(198, 51, 100, 0), 24), metric: 0 };

    /// Long enough for a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// A table in memory that other programs change, too.
    #[derive(Clone, Default)]
    struct Table(Arc<Mutex<Routes>>);

    #[derive(Default)]
    struct Routes {
        present: BTreeSet<AnnouncedRoute>,
        /// Removals that fail before one succeeds.
        failures: usize,
        /// Prefixes whose last route was removed.
        lost: Vec<Prefix>,
    }

    impl Table {
        fn lock(&self) -> MutexGuard<'_, Routes> {
            self.0.lock().unwrap()
        }

        fn comes_to(&self, wanted: &[AnnouncedRoute]) -> bool {
            let begin = Instant::now();
            while self.lock().present != wanted.iter().copied().collect() {
                if begin.elapsed() > PATIENCE {
                    return false;
                }
                thread::sleep(Duration::from_millis(5));
            }
            true
        }
    }

    impl RouteTable for Table {
        fn own(&mut self) -> io::Result<BTreeSet<AnnouncedRoute>> {
            Ok(self.lock().present.clone())
        }

        fn add(&mut self, route: AnnouncedRoute) -> io::Result<()> {
            self.lock().present.insert(route);
            Ok(())
        }

        fn remove(&mut self, route: AnnouncedRoute) -> io::Result<()> {
            let mut routes = self.lock();
            if routes.failures > 0 {
                routes.failures -= 1;
                return Err(io::ErrorKind::TimedOut.into());
            }
            // As the kernel does: the least metric, if none is said.
            let is_meant = |one: &&AnnouncedRoute| {
                one.prefix == route.prefix && [0, one.metric].contains(&route.metric)
            };
            if let Some(meant) = routes.present.iter().find(is_meant).copied() {
                routes.present.remove(&meant);
            }
            if !routes.present.iter().any(|one| one.prefix == route.prefix) {
                routes.lost.push(route.prefix);
            }
            Ok(())
        }
    }

    /// Announces routes in a table in memory.
    fn announce(table: &Table, routes: &[AnnouncedRoute]) -> Announcer {
        announce_with(table, routes, Box::new(|_| ())).0
    }

    fn announce_with(
        table: &Table,
        routes: &[AnnouncedRoute],
        tell: Tell,
    ) -> (Announcer, &'static Counts) {
        let requests = Arc::new(Requests::default());
        let counts: &'static Counts = Box::leak(Box::default());
        let mut work = Work::new(table.clone(), 100, Arc::clone(&requests), tell);
        work.wanted = routes.iter().copied().collect();
        work.counts = counts;
        work.begin().unwrap();
        work.agree();
        let thread = Some(thread::spawn(move || work.run()));
        (Announcer { requests, watch: None, thread }, counts)
    }

    fn hint(announcer: &Announcer) {
        announcer.requests.request(|pending| pending.hint = true);
    }

    #[test]
    fn a_withdrawal_is_not_lost_behind_hints_and_link_changes() {
        let table = Table::default();
        let announcer = announce(&table, &[ONE, TWO]);
        for _ in 0..1000 {
            hint(&announcer);
            announcer.link(Side::Outside, false);
            announcer.link(Side::Outside, true);
        }
        announcer.handle().withdraw(PATIENCE);
        assert!(table.lock().present.is_empty());
        announcer.link(Side::Inside, true);
        announcer.announce(vec![ONE]);
        drop(announcer);
        assert!(table.lock().present.is_empty());
    }

    #[test]
    fn removed_routes_come_back_until_they_are_released() {
        let table = Table::default();
        let old = announce(&table, &[ONE, TWO]);
        table.lock().present.clear();
        hint(&old);
        assert!(table.comes_to(&[ONE, TWO]));

        // The heir's configuration has one prefix less.
        old.handle().release();
        let heir = announce(&table, &[ONE]);
        assert_eq!(table.lock().present, BTreeSet::from([ONE]));
        hint(&old);
        old.announce(vec![TWO]);
        old.handle().withdraw(PATIENCE);
        drop(old);
        assert_eq!(table.lock().present, BTreeSet::from([ONE]));
        drop(heir);
        assert!(table.lock().present.is_empty());
    }

    #[test]
    fn missing_routes_are_counted_and_told_while_they_are_missing() {
        let (table, (sender, lines)) = (Table::default(), std::sync::mpsc::channel());
        let tell: Tell = Box::new(move |line| sender.send(line).unwrap());
        let (announcer, counts) = announce_with(&table, &[ONE, TWO], tell);
        assert_eq!(counts.state(), AnnouncedRoutes { present: 2, missing: 0, restored: 0 });
        // The second repair waits for a second.
        for restored in [1, 2] {
            table.lock().present.remove(&TWO);
            hint(&announcer);
            if restored == 2 {
                let line = lines.recv_timeout(PATIENCE).unwrap();
                assert!(line.contains("198.51.100.0/24; they are missing now"), "{line}");
                let state = counts.state();
                assert_eq!((state.present, state.missing, state.restored), (1, 1, 1));
                assert!(!table.lock().present.contains(&TWO));
            }
            assert!(table.comes_to(&[ONE, TWO]));
            let line = lines.recv_timeout(PATIENCE).unwrap();
            assert!(line.contains("1 of 1 are there again"), "{line}");
            assert_eq!(counts.state(), AnnouncedRoutes { present: 2, missing: 0, restored });
        }
    }

    #[test]
    fn a_route_with_another_metric_comes_before_the_former_one_goes() {
        let table = Table::default();
        let announcer = announce(&table, &[ONE, TWO]);
        // The former one cannot go yet.
        table.lock().failures = 1;
        let worse = AnnouncedRoute { metric: 100, ..ONE };
        announcer.announce(vec![worse, TWO]);
        assert!(table.comes_to(&[worse, TWO]));
        announcer.announce(vec![ONE, TWO]);
        assert!(table.comes_to(&[ONE, TWO]));
        assert!(table.lock().lost.is_empty());
    }

    #[test]
    fn routes_of_an_earlier_gateway_go_after_the_new_ones_have_come() {
        let table = Table::default();
        table.lock().present = BTreeSet::from([ONE, TWO]);
        let worse = AnnouncedRoute { metric: 100, ..ONE };
        let announcer = announce(&table, &[worse]);
        assert_eq!(table.lock().present, BTreeSet::from([worse]));
        assert_eq!(table.lock().lost, [TWO.prefix]);
        drop(announcer);
    }

    #[test]
    fn a_route_that_another_program_has_removed_takes_no_other_one_along() {
        let table = Table::default();
        let announcer = announce(&table, &[ONE, TWO]);
        table.lock().present.remove(&ONE);
        let worse = AnnouncedRoute { metric: 100, ..ONE };
        announcer.announce(vec![worse, TWO]);
        assert!(table.comes_to(&[worse, TWO]));
        assert!(table.lock().lost.is_empty());
    }

    #[test]
    fn a_failed_removal_is_tried_again() {
        let table = Table::default();
        let announcer = announce(&table, &[ONE, TWO]);
        table.lock().failures = 2;
        announcer.announce(vec![ONE]);
        assert!(table.comes_to(&[ONE]));
        table.lock().failures = 1;
        drop(announcer);
        assert!(table.comes_to(&[]));
    }
}
