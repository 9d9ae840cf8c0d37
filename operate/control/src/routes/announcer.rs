//! Announces the external addresses as routes in a table of the kernel while the gateway works.
//!
//! The routes have the type blackhole, so the machine itself drops packets to these addresses:
//! natgate takes packets from the devices. The routes exist while the links of both sides are up,
//! and are removed when the gateway ends. The kernel keeps them when the process is killed, so a
//! start first removes the routes with its protocol number.
//!
//! The announcer restores routes that another program removes, with growing pauses.

use super::follower::Follower;
use super::netlink::Netlink;
use super::watch::{Announced, Backoff, watch};
use super::{RoutesError, Tell};
use crate::config::show_prefix;
use natgate_engine::{AddressRange, Config, Prefix, Side};
use natgate_gateway::{AnnounceSettings, AnnouncedRoutes, panics};
use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Most waiting messages. Links that change once a second cause fewer.
const MOST_WAITING: usize = 64;

/// Most announced prefixes.
const MOST_ANNOUNCED: usize = 100_000;

/// Most prefixes in a line.
const MOST_NAMED: usize = 4;

static PRESENT: AtomicU64 = AtomicU64::new(0);
static MISSING: AtomicU64 = AtomicU64::new(0);
static RESTORED: AtomicU64 = AtomicU64::new(0);

/// The state of the routes that this process announces.
pub fn announced() -> AnnouncedRoutes {
    let [present, missing, restored] =
        [&PRESENT, &MISSING, &RESTORED].map(|count| count.load(Ordering::Relaxed));
    AnnouncedRoutes { present, missing, restored }
}

enum Message {
    /// Another program may have changed announced routes.
    Look,
    Link(Side, bool),
    Prefixes(Vec<Prefix>),
    /// Remove all routes for good; the sender is notified when they are gone.
    Withdraw(SyncSender<()>),
    Stop,
}

/// A thread that announces routes. Dropping it removes the routes.
#[derive(Debug)]
pub struct Announcer {
    messages: SyncSender<Message>,
    watch: Option<Follower>,
    thread: Option<JoinHandle<()>>,
}

impl Announcer {
    /// Starts with the routes that an earlier gateway left, and announces `prefixes` if both links
    /// are `up`, inside and outside. Problems with single routes are reported.
    ///
    /// # Errors
    /// [`RoutesError`] if the kernel's table cannot be read or changed.
    pub fn start(
        settings: &AnnounceSettings,
        prefixes: Vec<Prefix>,
        up: [bool; 2],
        tell: Tell,
    ) -> Result<Self, RoutesError> {
        let failed = |error| {
            let table = settings.table;
            RoutesError { what: format!("announce: table {table} of the kernel's routes"), error }
        };
        let netlink = Netlink::open().map_err(failed)?;
        let settings = settings.clone();
        let watched = Announced::default();
        let (messages, waiting) = sync_channel(MOST_WAITING);
        let hints = messages.clone();
        // If the queue is full, another hint follows with the next news.
        let hint = move || drop(hints.try_send(Message::Look));
        let watch = watch(settings.table, watched.clone(), hint).map_err(failed)?;
        let mut work = Work {
            leaving: false,
            netlink,
            settings: settings.clone(),
            up,
            wanted: prefixes.into_iter().collect(),
            there: BTreeSet::new(),
            refused: BTreeSet::new(),
            watched,
            backoff: Backoff::default(),
            repair: None,
            tell,
        };
        work.begin().map_err(failed)?;
        work.agree();
        let thread = thread::Builder::new().name("announcer".into());
        let thread =
            thread.spawn(move || panics::contain(|| work.run(&waiting))).map_err(failed)?;
        Ok(Self { messages, watch: Some(watch), thread: Some(thread) })
    }

    /// Reports a link change of a side.
    pub fn link(&self, side: Side, up: bool) {
        self.give(Message::Link(side, up));
    }

    /// Replaces the external addresses.
    pub fn announce(&self, prefixes: Vec<Prefix>) {
        self.give(Message::Prefixes(prefixes));
    }

    /// Returns a handle that removes the routes while the gateway still works.
    pub fn withdrawal(&self) -> Withdrawal {
        Withdrawal(self.messages.clone())
    }

    fn give(&self, message: Message) {
        // The thread ends on this message only.
        let _ = self.messages.send(message);
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.watch = None;
        self.give(Message::Stop);
        if let Some(thread) = self.thread.take() {
            // The thread has reported all problems already.
            let _ = thread.join();
        }
    }
}

/// Removes an announcer's routes regardless of later changes of links and configuration.
#[derive(Clone, Debug)]
pub struct Withdrawal(SyncSender<Message>);

impl Withdrawal {
    /// Removes the routes, and waits at most `patience` until they are gone.
    pub fn withdraw(&self, patience: Duration) {
        let (done, is_done) = sync_channel(1);
        // If the message is not taken or answered, the announcer has ended and removed its routes.
        if self.0.try_send(Message::Withdraw(done)).is_ok() {
            let _ = is_done.recv_timeout(patience);
        }
    }
}

struct Work {
    /// True if the gateway is leaving.
    leaving: bool,
    netlink: Netlink,
    settings: AnnounceSettings,
    up: [bool; 2],
    wanted: BTreeSet<Prefix>,
    there: BTreeSet<Prefix>,
    /// Routes that the kernel refused, already reported.
    refused: BTreeSet<Prefix>,
    /// Prefixes of the watch: all routes that should exist.
    watched: Announced,
    backoff: Backoff,
    /// Time of the next look for removed routes, if there is a reason.
    repair: Option<Instant>,
    tell: Tell,
}

impl Work {
    fn run(&mut self, messages: &Receiver<Message>) {
        while let Some(message) = self.next(messages) {
            match message {
                Message::Look => {
                    self.plan_repair();
                    continue;
                }
                Message::Link(Side::Inside, up) => self.up[0] = up,
                Message::Link(Side::Outside, up) => self.up[1] = up,
                Message::Prefixes(prefixes) => self.wanted = prefixes.into_iter().collect(),
                Message::Withdraw(done) => {
                    self.leaving = true;
                    self.agree();
                    // The sender may have stopped waiting.
                    let _ = done.try_send(());
                }
                Message::Stop => break,
            }
            self.agree();
        }
        self.wanted.clear();
        self.agree();
    }

    /// Waits for the next message; does due repairs meanwhile.
    fn next(&mut self, messages: &Receiver<Message>) -> Option<Message> {
        while let Some(due) = self.repair {
            match messages.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.repair(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        messages.recv().ok()
    }

    fn plan_repair(&mut self) {
        if self.repair.is_none() {
            self.repair = Some(self.backoff.next(Instant::now()));
        }
    }

    /// Restores routes that other programs removed.
    fn repair(&mut self) {
        self.repair = None;
        let AnnounceSettings { table, protocol } = self.settings;
        let routes = match self.netlink.routes(table) {
            Ok(routes) => routes,
            Err(error) => {
                (self.tell)(format!(
                    "warning: announced routes cannot be looked after: table {table} cannot be \
                     read: {error}; it is tried again"
                ));
                return self.plan_repair();
            }
        };
        let own = routes
            .iter()
            .filter(|route| route.protocol == protocol && route.blackhole && route.metric == 0);
        let present: BTreeSet<_> = own.map(|route| route.prefix).collect();
        let removed: BTreeSet<_> = self.there.difference(&present).copied().collect();
        self.there.retain(|one| present.contains(one));
        self.agree();
        let back: Vec<_> = removed.intersection(&self.there).copied().collect();
        RESTORED.fetch_add(back.len() as u64, Ordering::Relaxed);
        if !removed.is_empty() {
            (self.tell)(format!(
                "warning: another program removed announced routes from table {table}: {}; {} of {} \
                 are there again",
                named(&removed),
                back.len(),
                removed.len()
            ));
        }
        if back.len() < removed.len() {
            self.plan_repair();
        }
    }

    /// Adopts routes with our protocol number that are wanted, so that routers do not lose them for
    /// a moment, and removes the others.
    fn begin(&mut self) -> io::Result<()> {
        let AnnounceSettings { table, protocol } = self.settings;
        for route in self.netlink.routes(table)? {
            if route.protocol != protocol || !route.blackhole || route.metric != 0 {
                continue;
            }
            let one = route.prefix;
            if self.up == [true, true] && self.wanted.contains(&one) {
                self.there.insert(one);
            } else {
                self.netlink.remove_blackhole(route.prefix, table, protocol)?;
            }
        }
        Ok(())
    }

    /// Makes the table agree with the wanted routes.
    fn agree(&mut self) {
        let AnnounceSettings { table, protocol } = self.settings;
        let wanted = match self.up {
            [true, true] if !self.leaving => self.wanted.clone(),
            _ => BTreeSet::new(),
        };
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = wanted.clone();
        for gone in self.there.difference(&wanted).copied().collect::<Vec<_>>() {
            match self.netlink.remove_blackhole(gone, table, protocol) {
                Ok(_) => {}
                Err(error) => self.complain("withdrawn", gone, &error),
            }
            self.there.remove(&gone);
        }
        self.refused.retain(|one| wanted.contains(one));
        for new in wanted.difference(&self.there).copied().collect::<Vec<_>>() {
            match self.netlink.add_blackhole(new, table, protocol) {
                Ok(()) => {
                    self.there.insert(new);
                    self.refused.remove(&new);
                }
                Err(error) if self.refused.insert(new) => self.complain("announced", new, &error),
                Err(_) => {}
            }
        }
        PRESENT.store(self.there.len() as u64, Ordering::Relaxed);
        MISSING.store(wanted.difference(&self.there).count() as u64, Ordering::Relaxed);
    }

    fn complain(&mut self, what: &str, prefix: Prefix, error: &io::Error) {
        let (prefix, table) = (show_prefix(prefix), self.settings.table);
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
fn named(prefixes: &BTreeSet<Prefix>) -> String {
    let names: Vec<String> =
        prefixes.iter().take(MOST_NAMED).map(|prefix| show_prefix(*prefix)).collect();
    match prefixes.len().saturating_sub(names.len()) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The external addresses of a configuration in as few ranges as possible, in order.
pub fn external_ranges(config: &Config) -> Vec<AddressRange> {
    let pools = config.pools.iter().flat_map(|pool| &pool.addresses);
    let pools = pools.map(|range| (range.first.to_bits(), range.last.to_bits()));
    let statics = config.statics.iter().map(|fixed| fixed.external.0);
    let services = config.services.iter().map(|service| service.external.0);
    let single = statics.chain(services).map(|address| (address.to_bits(), address.to_bits()));
    let mut ranges: Vec<(u32, u32)> = pools.chain(single).collect();
    ranges.sort_unstable();
    let mut merged = Vec::new();
    let mut ranges = ranges.into_iter().peekable();
    while let Some((first, mut last)) = ranges.next() {
        while let Some((_, end)) = ranges.next_if(|(next, _)| *next <= last.saturating_add(1)) {
            last = last.max(end);
        }
        let [first, last] = [first, last].map(Ipv4Addr::from_bits);
        merged.push(AddressRange { first, last });
    }
    merged
}

/// The fewest prefixes that contain exactly the external addresses of a configuration.
pub fn external_prefixes(config: &Config) -> Vec<Prefix> {
    let mut prefixes = Vec::new();
    for range in external_ranges(config) {
        cover(range.first.to_bits(), range.last.to_bits(), &mut prefixes);
    }
    prefixes.truncate(MOST_ANNOUNCED);
    prefixes
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
    use natgate_engine::{PoolConfig, StaticMapping};

    fn shown(ranges: &[([u8; 4], [u8; 4])], fixed: &[[u8; 4]]) -> Vec<String> {
        let addresses = ranges
            .iter()
            .map(|(first, last)| AddressRange { first: (*first).into(), last: (*last).into() });
        let pool = PoolConfig { addresses: addresses.collect(), ..PoolConfig::default() };
        let fixed = fixed.iter().map(|external| StaticMapping {
            external: ((*external).into(), None),
            ..StaticMapping::default()
        });
        let config = Config { pools: vec![pool], statics: fixed.collect(), ..Config::default() };
        let prefixes = external_prefixes(&config);
        prefixes.into_iter().map(show_prefix).collect()
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
}
