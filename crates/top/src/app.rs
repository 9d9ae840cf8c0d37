//! What is shown and how: the view, what it is sorted by, whether it stands still.

use serde_json::Value;

/// A gateway at one time, as the control socket tells it.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// GET /v1/status.
    pub status: Value,
    /// GET /v1/counters.
    pub counters: Value,
    /// The pools.
    pub pools: Value,
    /// The workers.
    pub workers: Value,
    /// The subscribers with most mappings, if they were asked for.
    pub subscribers: Option<Vec<Value>>,
}

/// What can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Packets and bits a second by direction and verdict.
    Rates,
    /// Drops by reason.
    Drops,
    /// Pools.
    Pools,
    /// Those who have most mappings.
    Subscribers,
    /// Workers.
    Workers,
}

impl View {
    /// All of them, in order.
    pub const ALL: [Self; 5] =
        [Self::Rates, Self::Drops, Self::Pools, Self::Subscribers, Self::Workers];

    /// Its title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Rates => "Rates",
            Self::Drops => "Drops",
            Self::Pools => "Pools",
            Self::Subscribers => "Subscribers",
            Self::Workers => "Workers",
        }
    }
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Next,
    Previous,
    Up,
    Down,
    Sort,
    Pause,
}

/// What is shown.
#[derive(Clone, Debug)]
pub struct App {
    pub(crate) view: View,
    /// The column that lists are sorted by, counted from the usual one.
    pub(crate) sort: usize,
    pub(crate) paused: bool,
    /// Rows that are scrolled past.
    pub(crate) first: usize,
    /// Why nothing new comes.
    pub(crate) trouble: Option<String>,
    /// The latest, and the one before it.
    snapshots: [Option<Snapshot>; 2],
}

impl App {
    /// Nothing yet, beginning with a view.
    pub fn new(view: View) -> Self {
        let snapshots = [None, None];
        Self { view, sort: 0, paused: false, first: 0, trouble: None, snapshots }
    }

    /// Takes what has come, unless it stands still.
    pub fn take(&mut self, mut snapshot: Snapshot) {
        self.trouble = None;
        if self.paused {
            return;
        }
        let before = self.snapshots[0].take();
        if snapshot.subscribers.is_none() {
            // Asked for less often.
            snapshot.subscribers = before.as_ref().and_then(|before| before.subscribers.clone());
        }
        self.snapshots = [Some(snapshot), before];
    }

    pub(crate) fn press(&mut self, key: Key) {
        let place = View::ALL.iter().position(|view| *view == self.view).unwrap_or_default();
        let turn = |by: usize| View::ALL[(place + by) % View::ALL.len()];
        match key {
            Key::Next | Key::Previous => {
                self.view = turn(if key == Key::Next { 1 } else { View::ALL.len() - 1 });
                (self.sort, self.first) = (0, 0);
            }
            Key::Up => self.first = self.first.saturating_sub(1),
            Key::Down => self.first = (self.first + 1).min(1000),
            Key::Sort => self.sort = (self.sort + 1) % 2,
            Key::Pause => self.paused = !self.paused,
        }
    }

    pub(crate) fn now(&self) -> Option<&Snapshot> {
        self.snapshots[0].as_ref()
    }

    /// Seconds between the two snapshots.
    fn interval(&self) -> Option<f64> {
        let [Some(now), Some(before)] = &self.snapshots else { return None };
        let time = |snapshot: &Snapshot| snapshot.status["time"].as_f64();
        Some(time(now)? - time(before)?).filter(|interval| *interval > 0.0)
    }

    /// How fast a count grows, a second; `None`: it was not looked at twice.
    pub(crate) fn rate(&self, count: impl Fn(&Snapshot) -> u64) -> Option<f64> {
        let [Some(now), Some(before)] = &self.snapshots else { return None };
        Some(count(now).saturating_sub(count(before)) as f64 / self.interval()?)
    }
}
