//! The traffic model: presence of subscribers, their sessions, and the durations of these.
//!
//! Every figure here is an assumption; README.md beside this file names the source of each. The
//! random choices do not depend on the translator, so every way to choose ports meets the same day.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rand_distr::{Distribution, Exp1, LogNormal};
use serde::Serialize;

/// Activity in each hour of the day, in any unit; between the hours it is interpolated linearly.
const ACTIVITY: [f64; 24] = [
    0.75, 0.55, 0.42, 0.34, 0.30, 0.30, 0.36, 0.48, 0.60, 0.68, 0.74, 0.80, 0.86, 0.88, 0.90, 0.94,
    1.00, 1.10, 1.22, 1.36, 1.50, 1.55, 1.40, 1.10,
];
/// Variation of subscribers: sigma of the lognormal distribution of a subscriber's sessions a day.
const APPETITE_SIGMA: f64 = 1.5;
/// Shape of the Pareto distribution of the number of sessions in a burst, and its highest number.
const BURST_SHAPE: f64 = 1.3;
const MOST_AT_ONCE: u32 = 50;
/// Duration of a stay: median, seconds, and sigma of the lognormal distribution.
const STAY: (f64, f64) = (6.0 * 3600.0, 0.8);
/// Mean duration of an absence at average activity, seconds.
const AWAY: f64 = 4.0 * 3600.0;
const HOUR: f64 = 3600.0;

/// Internal ports: the ephemeral ports of Linux.
const PORTS: std::ops::Range<u16> = 32_768..61_000;

/// Sort of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sort {
    /// One exchange over UDP.
    UdpShort,
    /// A long UDP session: calls, games, QUIC.
    UdpLong,
    /// A TCP connection that both ends close.
    TcpShort,
    /// A TCP connection that is kept for later messages.
    TcpLong,
    /// A TCP connection that neither end closes.
    TcpForgotten,
}

/// Share of a sort among all sessions, and its duration.
struct Kind {
    sort: Sort,
    share: f64,
    /// Median, seconds, and sigma of a lognormal distribution; `None` if the duration does not
    /// matter.
    lasts: Option<(f64, f64)>,
}

const KINDS: [Kind; 5] = [
    Kind { sort: Sort::UdpShort, share: 0.35, lasts: None },
    Kind { sort: Sort::UdpLong, share: 0.05, lasts: Some((300.0, 1.5)) },
    Kind { sort: Sort::TcpShort, share: 0.25, lasts: Some((20.0, 2.0)) },
    Kind { sort: Sort::TcpLong, share: 0.15, lasts: Some((3600.0, 1.0)) },
    Kind { sort: Sort::TcpForgotten, share: 0.20, lasts: None },
];

/// A session at its opening.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) sort: Sort,
    pub(super) port: u16,
    /// Duration, seconds; 0 if it does not matter.
    pub(super) seconds: u32,
}

/// A subscriber: the present holder of an internal address.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Subscriber {
    /// Sessions that the subscriber opens, relative to the average.
    appetite: f32,
    /// Internal port of its latest session.
    port: u16,
    /// Number of the present holder of the address.
    pub(super) stay: u8,
    pub(super) present: bool,
    /// True if a session of it was refused.
    pub(super) refused: bool,
}

/// All subscribers, and the random generator.
pub(super) struct Population {
    pub(super) subscribers: Vec<Subscriber>,
    random: ChaCha8Rng,
    appetite: LogNormal<f64>,
    stay: LogNormal<f64>,
    durations: [Option<LogNormal<f64>>; KINDS.len()],
    /// Bursts a second of an average subscriber at average activity.
    bursts: f64,
}

impl Population {
    /// Creates a population of `subscribers` internal addresses. An address in use all day opens
    /// `sessions_a_day` sessions on average.
    pub(super) fn new(subscribers: u32, sessions_a_day: u32, seed: u64) -> Self {
        let by_median = |(median, sigma): (f64, f64)| {
            LogNormal::new(median.ln(), sigma).expect("the model's figures are finite")
        };
        Self {
            subscribers: vec![Subscriber::default(); subscribers as usize],
            random: ChaCha8Rng::seed_from_u64(seed),
            // With this median the mean is 1.
            appetite: by_median(((-APPETITE_SIGMA * APPETITE_SIGMA / 2.0).exp(), APPETITE_SIGMA)),
            stay: by_median(STAY),
            durations: KINDS.map(|kind| kind.lasts.map(by_median)),
            bursts: f64::from(sessions_a_day) / 86_400.0 / mean_burst(),
        }
    }

    /// Random number from 0 to below 1.
    fn roll(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        Exp1.sample(&mut self.random)
    }

    /// Returns true if an address is in use at the beginning, and the seconds until this changes.
    pub(super) fn begin(&mut self, who: u32, time: f64) -> (bool, u32) {
        let present = self.roll() < 0.75;
        let rest = self.roll();
        let lasts = if present { self.arrive(who) } else { self.away(time) };
        (present, (f64::from(lasts) * rest) as u32)
    }

    /// Gives an address to a new subscriber; returns the seconds of its stay.
    pub(super) fn arrive(&mut self, who: u32) -> u32 {
        let appetite = self.appetite.sample(&mut self.random) as f32;
        let port = PORTS.start + (self.roll() * f64::from(PORTS.end - PORTS.start)) as u16;
        let stay = self.stay.sample(&mut self.random);
        let subscriber = &mut self.subscribers[who as usize];
        *subscriber = Subscriber { appetite, port, present: true, refused: false, ..*subscriber };
        stay as u32 + 1
    }

    /// Ends a subscriber's stay; returns the seconds until the address is in use again.
    pub(super) fn leave(&mut self, who: u32, time: f64) -> u32 {
        let subscriber = &mut self.subscribers[who as usize];
        subscriber.present = false;
        subscriber.stay = subscriber.stay.wrapping_add(1);
        self.away(time)
    }

    fn away(&mut self, time: f64) -> u32 {
        (self.exponential() * AWAY / activity(time)) as u32 + 1
    }

    /// Seconds to a subscriber's next burst.
    pub(super) fn pause(&mut self, who: u32, time: f64) -> f64 {
        let appetite = f64::from(self.subscribers[who as usize].appetite);
        let rate = self.bursts * appetite * activity(time);
        // A subscriber without sessions is scheduled again after a day.
        (self.exponential() / rate).min(86_400.0)
    }

    /// Random number of sessions in a burst.
    pub(super) fn burst(&mut self) -> u32 {
        let size = (1.0 - self.roll()).powf(-1.0 / BURST_SHAPE);
        size.min(f64::from(MOST_AT_ONCE)) as u32
    }

    /// Draws the next session of a subscriber.
    pub(super) fn open(&mut self, who: u32) -> Opening {
        let mut rest = self.roll();
        let at = KINDS.iter().position(|kind| {
            rest -= kind.share;
            rest < 0.0
        });
        // Rounding may leave a small rest.
        let at = at.unwrap_or(0);
        let duration = self.durations[at].map(|duration| duration.sample(&mut self.random));
        let port = &mut self.subscribers[who as usize].port;
        *port = if *port + 1 < PORTS.end { *port + 1 } else { PORTS.start };
        let seconds = duration.map_or(0, |seconds| seconds.min(7.0 * 86_400.0) as u32 + 1);
        Opening { sort: KINDS[at].sort, port: *port, seconds }
    }
}

/// The mean of [`Population::burst`].
fn mean_burst() -> f64 {
    (1..=MOST_AT_ONCE).map(|size| f64::from(size).powf(-BURST_SHAPE)).sum()
}

/// Activity at a time of day in seconds; the mean is 1.
pub(super) fn activity(time: f64) -> f64 {
    let mean = ACTIVITY.iter().sum::<f64>() / ACTIVITY.len() as f64;
    let hour = (time / HOUR).rem_euclid(24.0);
    let [this, next] = [0, 1].map(|more| ACTIVITY[(hour as usize + more) % 24]);
    (this + (next - this) * hour.fract()) / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_day_has_the_mean_that_was_asked_for() {
        let mean = (0..86_400).map(|second| activity(f64::from(second))).sum::<f64>() / 86_400.0;
        assert!((mean - 1.0).abs() < 1e-3, "{mean}");
        assert!(activity(21.0 * HOUR) > 4.0 * activity(4.5 * HOUR));
        assert_eq!(activity(-HOUR), activity(23.0 * HOUR));
        let shares: f64 = KINDS.iter().map(|kind| kind.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    }

    #[test]
    fn what_is_drawn_has_the_models_means() {
        let mut population = Population::new(1, 1000, 3);
        let many = 300_000;
        let bursts = (0..many).map(|_| population.burst()).collect::<Vec<_>>();
        let mean = f64::from(bursts.iter().sum::<u32>()) / f64::from(many);
        assert!((mean / mean_burst() - 1.0).abs() < 0.03, "{mean} and {}", mean_burst());
        assert_eq!(bursts.iter().max(), Some(&MOST_AT_ONCE));

        let mut appetites = Vec::new();
        for _ in 0..many {
            population.arrive(0);
            appetites.push(f64::from(population.subscribers[0].appetite));
        }
        let mean = appetites.iter().sum::<f64>() / f64::from(many);
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
        // A hundredth of the subscribers opens about a fifth of all sessions.
        appetites.sort_by(f64::total_cmp);
        let top = appetites[appetites.len() / 100 * 99..].iter().sum::<f64>();
        assert!((0.1..0.35).contains(&(top / f64::from(many))), "{top}");
    }

    #[test]
    fn sessions_have_the_ports_of_a_host_in_turn() {
        let mut population = Population::new(1, 1000, 3);
        population.arrive(0);
        let first = population.open(0).port;
        let all = u32::from(PORTS.end - PORTS.start);
        let ports: Vec<u16> = (1..all).map(|_| population.open(0).port).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        assert_eq!(population.open(0).port, first);
    }
}
