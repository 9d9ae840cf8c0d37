//! Follows one of the kernel's tables, and has the router go by what is there.
//!
//! News is collected for a moment, then the whole table is made anew, here, and given to the
//! gateway in one step: it neither makes nor frees anything. A large table is made the less often
//! the longer that takes. Whatever may have made the copy differ from the kernel's table (a link
//! that changed, news that was lost) has it read from the beginning.

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

/// How long news is collected.
const COLLECT: Duration = Duration::from_millis(200);

/// How many times as long as a table took to make the next one waits.
const REST: u32 = 10;

/// How often everything is read even if nothing is told.
const REREAD: Duration = Duration::from_secs(60);

/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// A thread that learns; ends when it is dropped.
#[derive(Debug)]
pub struct Learner {
    _follower: Follower,
}

impl Learner {
    /// Learns the table as it is now, and follows it. Routes count that leave by the devices of the
    /// two sides to a neighbour's address there.
    ///
    /// # Errors
    /// [`RoutesError`] when the kernel's table cannot be read.
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
            // First the news, then the table: so nothing falls between.
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
    /// Inside's and outside's.
    devices: [String; 2],
    /// Their numbers, as far as they are there.
    numbers: [Option<u32>; 2],
    networks: [Option<natgate_engine::Prefix>; 2],
    news: Netlink,
    /// Asks for the whole table; open from the start, so that no descriptor is needed later.
    questions: Netlink,
    stop: Stop,
    table: Table,
    /// What the gateway goes by.
    useful: Vec<Route>,
    commander: Commander,
    tell: Tell,
    /// How many routes were told to be left out.
    told: Option<usize>,
}

impl Work {
    fn run(&mut self) {
        let mut last_read = Instant::now();
        let mut took = self.publish();
        while let Some(cost) = took {
            // News waits in the socket meanwhile.
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
                    // It is read from the beginning when that works again.
                    last_read = begin.checked_sub(REREAD).unwrap_or(begin);
                    if self.stop.comes_within(RETRY) {
                        return;
                    }
                }
            }
        }
    }

    /// Waits for news; returns whether to end.
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        natgate_io::wait(&[self.news.readiness(), self.stop.as_fd()], timeout)?;
        Ok(self.stop.comes_within(Duration::ZERO))
    }

    /// Takes the news; returns whether everything was read.
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

    /// Has the gateway go by the table if it differs from before; returns how long that took, or
    /// nothing when the gateway has stopped.
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

    /// Asks for the devices' numbers. A device that is away has none, and no routes; a device that
    /// the system does not tell about keeps its number.
    fn renumber(&mut self) {
        for (number, name) in self.numbers.iter_mut().zip(&self.devices) {
            if let Ok(now) = kernel_index(name) {
                *number = now;
            }
        }
    }

    /// Says what is left out, when that is another number than before.
    fn tell_of(&mut self, learnt: usize, left_out: usize) {
        if self.told.replace(left_out) != Some(left_out) && left_out > 0 {
            let table = self.table_number;
            (self.tell)(format!(
                "warning: {left_out} routes of table {table} are not used, because their next hop is \
                 not in the network of their side's address or there are too many; {learnt} are"
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
