//! Watches the announced routes, and gives the announcer a hint when another program may have
//! removed or replaced one of them in the kernel's table.
//!
//! A thread reads the kernel's notifications of IPv4 routes and considers announced prefixes only.
//! A hint is not proof: the announcer itself may have caused the notification, so the announcer
//! reads the table before it changes anything.

use super::follower::{Follower, Stop};
use super::netlink::{KernelRoute, Netlink, News, Place};
use super::plan::AnnouncedRoute;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest wait for notifications, and pause after a failure.
const TURN: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_secs(5);

/// Currently announced routes.
pub(super) type Announced = Arc<Mutex<BTreeSet<AnnouncedRoute>>>;

/// Watches the announced prefixes of a table until the follower is dropped. Calls `hint` when the
/// announcer should look at the table.
pub(super) fn watch(
    table: u32,
    announced: Announced,
    hint: impl Fn() + Send + 'static,
) -> io::Result<Follower> {
    Follower::start("route watch", |stop| {
        let mut work = Work { table, announced, news: Netlink::listen_to_routes()?, stop };
        Ok(move || work.run(&hint))
    })
}

struct Work {
    table: u32,
    announced: Announced,
    news: Netlink,
    stop: Stop,
}

impl Work {
    fn run(&mut self, hint: &dyn Fn()) {
        loop {
            let waited = natgate_io::wait(&[self.news.readiness(), self.stop.as_fd()], TURN);
            let looked = waited.and_then(|_| self.is_concerned());
            let pause = if looked.is_ok() { Duration::ZERO } else { RETRY };
            // A failure to read notifications causes a hint, too.
            if looked.unwrap_or(true) {
                hint();
            }
            if self.stop.comes_within(pause) {
                return;
            }
        }
    }

    /// Takes the notifications; returns true if one may concern an announced prefix.
    fn is_concerned(&mut self) -> io::Result<bool> {
        let Self { table, announced, news, .. } = self;
        let announced = announced.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_concerned = false;
        news.news(|one| is_concerned |= concerns(&one, *table, &announced))?;
        Ok(is_concerned)
    }
}

/// True if a notification may mean that an announced route is gone.
fn concerns(news: &News, table: u32, announced: &BTreeSet<AnnouncedRoute>) -> bool {
    let is_place = |route: &KernelRoute| {
        let KernelRoute { prefix, metric, .. } = *route;
        route.table == table && announced.contains(&AnnouncedRoute { prefix, metric })
    };
    match news {
        News::Went(route) => is_place(route),
        News::Came(route, Place::Instead) => is_place(route),
        News::Came(..) => false,
        News::Unknown => true,
    }
}

/// Times of repairs: the first at once, later ones with growing pauses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    last: Option<Instant>,
    pause: Duration,
}

impl Backoff {
    /// Long enough for a flush of the table to end.
    pub(super) const FIRST: Duration = Duration::from_millis(100);
    const SECOND: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(60);

    /// Time without repairs after which the pauses begin again.
    const CALM: Duration = Duration::from_secs(300);

    /// Returns the time of the next attempt.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let is_calm = self.last.is_none_or(|last| now.saturating_duration_since(last) > Self::CALM);
        self.pause = match is_calm {
            true => Self::FIRST,
            false => (self.pause * 2).clamp(Self::SECOND, Self::LONGEST),
        };
        let due = now + self.pause;
        self.last = Some(due);
        due
    }

    /// Shortens the next pause after a look that found no removed route. Looks without a reason
    /// must not delay the repair of a real removal.
    pub(super) fn nothing_found(&mut self) {
        self.pause = self.pause.min(Self::SECOND / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::Prefix;

    fn route(table: u32, address: [u8; 4], len: u8, metric: u32) -> KernelRoute {
        KernelRoute {
            prefix: Prefix::new(address.into(), len),
            table,
            protocol: 78,
            metric,
            blackhole: true,
            general: true,
            hops: Vec::new(),
        }
    }

    #[test]
    fn only_news_of_announced_prefixes_is_a_reason_to_look() {
        let own = [203, 0, 113, 0];
        let announced = BTreeSet::from([
            AnnouncedRoute { prefix: Prefix::new(own.into(), 24), metric: 0 },
            AnnouncedRoute { prefix: Prefix::new(own.into(), 25), metric: 9 },
        ]);
        let concerns = |news: News| concerns(&news, 100, &announced);
        assert!(concerns(News::Went(route(100, own, 24, 0))));
        assert!(concerns(News::Came(route(100, own, 24, 0), Place::Instead)));
        assert!(concerns(News::Went(route(100, own, 25, 9))));
        assert!(concerns(News::Unknown));
        for other in [route(101, own, 24, 0), route(100, own, 25, 0), route(100, own, 24, 7)] {
            assert!(!concerns(News::Went(other.clone())), "{other:?}");
        }
        assert!(!concerns(News::Came(route(100, own, 24, 0), Place::Behind)));
    }

    #[test]
    fn attempts_come_the_later_the_more_often_routes_are_removed() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let due = backoff.next(now);
            pauses.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(pauses, [100, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
        now += Backoff::CALM + Duration::from_secs(1);
        assert_eq!(backoff.next(now) - now, Backoff::FIRST);
    }

    #[test]
    fn looks_that_find_nothing_do_not_delay_a_repair() {
        let (mut backoff, mut now) = (Backoff::default(), Instant::now());
        for _ in 0..10 {
            now = backoff.next(now);
            backoff.nothing_found();
        }
        assert_eq!(backoff.next(now) - now, Backoff::SECOND);
    }
}
