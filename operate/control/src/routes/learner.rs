//! Follows a table of the kernel and gives its routes to the router.
//!
//! The learner collects notifications for a moment, builds the whole table anew in its own thread,
//! and gives it to the gateway in one step: the workers neither allocate nor free anything. The
//! pause grows with the time that a table takes. After any event that may have made the copy differ
//! from the kernel's table (a changed link, lost notifications) the learner reads it again.

use super::follower::{Follower, Stop};
use super::netlink::{Netlink, News};
use super::table::Table;
use super::{RoutesError, Tell};
use natgate_gateway::router::{LearntRoutes, networks};
use natgate_gateway::{CommandError, Commander, LearnSettings, Route, Settings};
use natgate_io::kernel_index;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for which notifications are collected.
const COLLECT: Duration = Duration::from_millis(200);

/// Pause after building a table, in multiples of the time that it took.
const REST: u32 = 10;

/// Longest time between two complete readings.
const REREAD: Duration = Duration::from_secs(60);

/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// A thread that learns routes until dropped.
#[derive(Debug)]
pub struct Learner {
    _follower: Follower,
}

impl Learner {
    /// Learns the current table and follows its changes. Only routes to a neighbor's address
    /// through a device of the two sides count.
    ///
    /// # Errors
    /// [`RoutesError`] if the kernel's table cannot be read.
    pub fn start(
        learn: &LearnSettings,
        settings: &Settings,
        commander: Commander,
        tell: Tell,
    ) -> Result<Self, RoutesError> {
        let failed = |error| {
            let table = learn.table;
            RoutesError { what: format!("learn: table {table} of the kernel's routes"), error }
        };
        let follower = Follower::start("learner", |stop| {
            // Subscribing before reading leaves no gap.
            let news = Netlink::listen()?;
            let mut work = Work {
                table_number: learn.table,
                devices: [&settings.inside, &settings.outside].map(|side| side.device.clone()),
                numbers: [None; 2],
                networks: networks(settings),
                news,
                questions: Netlink::open()?,
                stop,
                table: Table::default(),
                useful: Vec::new(),
                commander,
                tell,
                told: None,
            };
            work.read()?;
            Ok(move || work.run())
        });
        Ok(Self { _follower: follower.map_err(failed)? })
    }
}

struct Work {
    table_number: u32,
    /// Device names of inside and outside.
    devices: [String; 2],
    /// Interface indexes of the devices, if they exist.
    numbers: [Option<u32>; 2],
    networks: [Option<natgate_engine::Prefix>; 2],
    news: Netlink,
    /// Socket for reading the whole table. Opened at the start, so that no descriptor is needed
    /// later.
    questions: Netlink,
    stop: Stop,
    table: Table,
    /// The routes that the gateway has.
    useful: Vec<Route>,
    commander: Commander,
    tell: Tell,
    /// Number of omitted routes in the last report.
    told: Option<usize>,
}

impl Work {
    fn run(&mut self) {
        let mut last_read = Instant::now();
        let mut took = self.publish();
        while let Some(cost) = took {
            // Notifications wait in the socket meanwhile.
            let pause = COLLECT.max(cost * REST);
            match self.wait(REREAD.saturating_sub(last_read.elapsed())) {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => self.complain(&error),
            }
            if self.stop.comes_within(pause) {
                return;
            }
            let begin = Instant::now();
            match self.catch_up(last_read.elapsed() >= REREAD) {
                Ok(reread) => {
                    if reread {
                        last_read = Instant::now();
                    }
                    took = self.publish().map(|_| begin.elapsed());
                }
                Err(error) => {
                    self.complain(&error);
                    // The next attempt reads the table from the beginning.
                    last_read = begin.checked_sub(REREAD).unwrap_or(begin);
                    if self.stop.comes_within(RETRY) {
                        return;
                    }
                }
            }
        }
    }

    /// Waits for notifications; returns true on the stop signal.
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        natgate_io::wait(&[self.news.readiness(), self.stop.as_fd()], timeout)?;
        Ok(self.stop.comes_within(Duration::ZERO))
    }

    /// Handles notifications; returns true if the whole table was read.
    fn catch_up(&mut self, reread: bool) -> io::Result<bool> {
        let Self { table_number, news, table, .. } = self;
        let mut reread = reread;
        news.news(|one| match one {
            News::Came(route, place) if route.table == *table_number => table.came(route, place),
            News::Went(route) if route.table == *table_number => table.went(&route),
            News::Came(..) | News::Went(_) => {}
            News::Unknown => reread = true,
        })?;
        if reread {
            self.read()?;
        }
        Ok(reread)
    }

    fn read(&mut self) -> io::Result<()> {
        self.table = Table::of(self.questions.routes(self.table_number)?);
        Ok(())
    }

    /// Gives the gateway the table if it differs from the last one. Returns the time that it took,
    /// or `None` if the gateway has stopped.
    fn publish(&mut self) -> Option<Duration> {
        let begin = Instant::now();
        self.renumber();
        let useful = self.table.useful(self.numbers);
        if useful != self.useful {
            let (learnt, left_out) = LearntRoutes::new(self.networks, useful.iter().copied());
            self.useful = useful;
            self.tell_of(learnt.len(), left_out + self.table.left_out());
            match self.commander.learn(Arc::new(learnt)) {
                Ok(()) => {}
                Err(CommandError::Stopping) => return None,
                Err(error) => (self.tell)(format!("warning: routes are not learnt: {error}")),
            }
        }
        Some(begin.elapsed())
    }

    /// Updates the interface indexes. An absent device has no index and no routes. If the system
    /// does not answer, the device keeps its index.
    fn renumber(&mut self) {
        for (number, name) in self.numbers.iter_mut().zip(&self.devices) {
            if let Ok(now) = kernel_index(name) {
                *number = now;
            }
        }
    }

    /// Reports the number of omitted routes if it has changed.
    fn tell_of(&mut self, learnt: usize, left_out: usize) {
        if self.told.replace(left_out) != Some(left_out) && left_out > 0 {
            let table = self.table_number;
            (self.tell)(format!(
                "warning: {left_out} routes of table {table} are not used, because their next hop \
                 is not in the network of their side's address or there are too many; {learnt} are"
            ));
        }
    }

    fn complain(&mut self, error: &io::Error) {
        let table = self.table_number;
        (self.tell)(format!(
            "warning: table {table} of the kernel's routes cannot be followed: {error}; the routes \
             learnt so far stay, and it is tried again"
        ));
    }
}
