//! The state of the screen: the view, its order, whether it is paused, and the text being typed.

use serde_json::Value;

/// Longest text that can be typed, characters.
const LONGEST_TEXT: usize = 48;

/// A gateway at one time, as its control socket answers.
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
    /// The subscribers with the most mappings, if they were asked for.
    pub subscribers: Option<Vec<Value>>,
    /// Owners of blocks of ports or of one endpoint, if they were asked for.
    pub owners: Option<Owners>,
}

/// Blocks of ports and their owners, or the owner of one endpoint.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// The search that is answered.
    pub search: String,
    /// Objects of `/v1/blocks` and `/v1/who`.
    pub entries: Vec<Value>,
    /// A sentence in place of entries.
    pub message: Option<String>,
}

/// A view of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Packets and bits a second by direction and verdict.
    Rates,
    /// Drops by reason.
    Drops,
    /// Pools.
    Pools,
    /// The subscribers with the most mappings.
    Subscribers,
    /// Workers.
    Workers,
    /// Blocks of ports and their owners, or the owner of one endpoint.
    Blocks,
}

impl View {
    /// All views, in order.
    pub const ALL: [Self; 6] =
        [Self::Rates, Self::Drops, Self::Pools, Self::Subscribers, Self::Workers, Self::Blocks];

    /// The title of the view.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Rates => "Rates",
            Self::Drops => "Drops",
            Self::Pools => "Pools",
            Self::Subscribers => "Subscribers",
            Self::Workers => "Workers",
            Self::Blocks => "Blocks",
        }
    }
}

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Next,
    Previous,
    Up,
    Down,
    Sort,
    Pause,
    /// Begins a search for an owner; the keys after it are text until it is sent or given up.
    Find,
    Letter(char),
    Erase,
    Send,
    GiveUp,
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct App {
    pub(crate) view: View,
    /// The order of lists: 0 the usual one, 1 the other.
    pub(crate) sort: usize,
    pub(crate) paused: bool,
    /// Rows that are scrolled past.
    pub(crate) first: usize,
    /// The reason why nothing new comes.
    pub(crate) trouble: Option<String>,
    /// The search that is being typed.
    pub(crate) typed: Option<String>,
    /// The address or endpoint to find the owner of; empty: all blocks.
    pub(crate) search: String,
    /// The latest, and the one before it.
    snapshots: [Option<Snapshot>; 2],
}

impl App {
    /// The first screen, before the gateway has answered.
    pub fn new(view: View) -> Self {
        let (snapshots, search) = ([None, None], String::new());
        let (trouble, typed) = (None, None);
        Self { view, sort: 0, paused: false, first: 0, trouble, typed, search, snapshots }
    }

    /// Takes a snapshot, unless the screen is paused.
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
        if snapshot.owners.is_none() {
            snapshot.owners = before.as_ref().and_then(|before| before.owners.clone());
        }
        // An answer to an earlier search has come too late.
        snapshot.owners = snapshot.owners.filter(|owners| owners.search == self.search);
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
            Key::Find => self.typed = Some(String::new()),
            Key::GiveUp => self.typed = None,
            Key::Send => self.send(),
            Key::Letter(letter) => {
                let typed = self.typed.as_mut().filter(|typed| typed.len() < LONGEST_TEXT);
                typed.into_iter().for_each(|typed| typed.push(letter));
            }
            Key::Erase => drop(self.typed.as_mut().and_then(String::pop)),
        }
    }

    /// Looks for the owner that was typed. The answer comes even if the screen was paused.
    fn send(&mut self) {
        let Some(typed) = self.typed.take() else { return };
        self.search = typed.trim().to_owned();
        (self.view, self.paused, self.sort, self.first) = (View::Blocks, false, 0, 0);
        if let Some(now) = &mut self.snapshots[0] {
            now.owners = None;
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

    /// The growth of a count a second; `None`: there are no two snapshots.
    pub(crate) fn rate(&self, count: impl Fn(&Snapshot) -> u64) -> Option<f64> {
        let [Some(now), Some(before)] = &self.snapshots else { return None };
        Some(count(now).saturating_sub(count(before)) as f64 / self.interval()?)
    }
}
