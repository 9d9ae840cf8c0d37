//! Resting ports (specification, section 5.9): their largest number, and their state after a
//! restart.

use crate::{Model, StillHeld, has_ports, tick};
use natgate_engine::Endpoint;

impl Model {
    /// 5.11: frees ports that are due first while too many are held. A call after time has passed
    /// is enough, because no port is taken before.
    pub fn limit_held(&mut self, still_held: Option<StillHeld<'_>>) {
        let most = self.config.limits.held_ports.map_or(usize::MAX, |most| most as usize);
        while self.held.len() > most {
            let first = self.held.values().map(|until| tick(*until)).min().expect("some are held");
            let due: Vec<(u8, Endpoint)> = self
                .held
                .iter()
                .filter(|(_, until)| tick(**until) == first)
                .map(|(held, _)| *held)
                .collect();
            let excess = self.held.len() - most;
            let free: Vec<(u8, Endpoint)> = match still_held {
                Some(still_held) if excess < due.len() => {
                    due.iter().filter(|(of, end)| !still_held(*of, *end)).copied().collect()
                }
                _ => due.iter().take(excess).copied().collect(),
            };
            if free.len() != excess.min(due.len()) {
                self.made.illegal =
                    Some(format!("of {due:?}, {excess} should be free, but {free:?} are"));
                return;
            }
            self.held.retain(|held, _| !free.contains(held));
        }
    }

    /// 5.11 between two ticks, after a request. Blocks that it empties are empty from the next tick
    /// on.
    pub fn limit_held_now(&mut self, still_held: Option<StillHeld<'_>>) {
        let before = self.held.len();
        self.limit_held(still_held);
        if self.held.len() < before {
            self.note_empty_since_next_tick();
        }
    }

    /// A translator that replaces this one: it has no mapping, but holds the taken ports (5.12).
    #[must_use]
    pub fn restarted(&self, still_held: Option<StillHeld<'_>>) -> Self {
        let mut after = Self::new(&self.config, self.now);
        let until = self.now.plus(self.config.timeouts.hold_down);
        let used = self.dynamic().map(|(key, mapping)| (key.protocol, mapping.external));
        let used = used.filter(|(protocol, _)| has_ports(*protocol));
        let taken = used.chain(self.held.keys().copied());
        let is_of_pool = |(_, end): &(u8, Endpoint)| {
            let pool = after.pool_of(end.address.to_bits()).map(|pool| &after.config.pools[pool]);
            pool.is_some_and(|pool| (pool.ports.0..=pool.ports.1).contains(&end.port))
        };
        let taken: Vec<(u8, Endpoint)> = taken.filter(is_of_pool).collect();
        if tick(until) > self.now {
            after.held = taken.into_iter().map(|taken| (taken, until)).collect();
        }
        after.limit_held(still_held);
        after
    }
}
