//! Held ports that leave their hold-down early, in an engine that is one of a pair.
//!
//! A list of held ports has one link for each entry, so an entry in the middle leaves its list only
//! after a walk. A copied mapping may take any held port, and a planned move brings many. So the
//! entry of such a port lingers in its list until the list's tick. Meanwhile the port is free,
//! used, resting, or held again until a later tick.

use super::{ExternalPorts, HELD, LAST};
use crate::calendar::{NONE, lane};

/// An entry that lingers in the list of an earlier hold-down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lingering {
    /// The entry behind it in the list, or [`LAST`].
    pub(super) next: u32,
    /// The tick until which the port is held again, if it is.
    pub(super) until: Option<u32>,
}

impl ExternalPorts {
    /// The link of an entry that lingers; `protocol` is the protocol's place.
    pub(super) fn lingering(&self, protocol: usize, entry: u32) -> Option<Lingering> {
        self.lingering.get(&(protocol, entry)).copied()
    }

    /// Leaves the entry of a held port in its list: the port is about to have another state.
    pub(super) fn linger(&mut self, protocol: usize, entry: usize) {
        let next = self.ports[protocol].owner[entry] & !HELD;
        let lingering = Lingering { next, until: None };
        let known = self.lingering.entry((protocol, entry as u32)).or_insert(lingering);
        known.until = None;
    }

    /// Holds a port that is not free until a tick; `protocol` is the protocol's place.
    #[inline(always)]
    pub(super) fn hold_until(&mut self, protocol: usize, index: u32, port: u16, release: u32) {
        if self.lingering.is_empty() || !self.hold_longer(protocol, (index, port), release) {
            self.ports[protocol].hold_until(index, port, release);
        }
    }

    /// Holds a port whose entry lingers. Returns false if the entry does not.
    #[cold]
    fn hold_longer(&mut self, protocol: usize, (index, port): (u32, u16), release: u32) -> bool {
        let entry = Self::entry(index, port);
        let Some(lingering) = self.lingering.get_mut(&(protocol, entry as u32)) else {
            return false;
        };
        lingering.until = Some(release);
        self.ports[protocol].owner[entry] = HELD | LAST;
        true
    }

    /// Takes the first entry of a list of a tick out, if it lingers there. A port that is held
    /// longer enters the list of that tick; otherwise it is free at time `at`. Returns false if the
    /// entry does not linger.
    #[cold]
    pub(super) fn end_lingering(&mut self, port: (usize, u32), tick: u32, at: u32) -> bool {
        let Some(Lingering { next, until }) = self.lingering.remove(&port) else { return false };
        let (protocol, entry) = port;
        let ports = &mut self.ports[protocol];
        ports.holds.advance(tick, lane(entry), if next == LAST { NONE } else { next });
        let Some(until) = until else { return true };
        if until > tick {
            // `NONE` without its uppermost bit is `LAST`.
            let next = ports.holds.push(until, lane(entry), entry) & !HELD;
            match self.evicted.get_mut(&port) {
                // A static mapping has taken the port since.
                Some(link) => *link = next,
                None => ports.owner[entry as usize] = HELD | next,
            }
        } else if self.evicted.remove(&port).is_none() {
            self.free_held(protocol, entry as usize, at);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AddressRange, Config, PoolConfig};
    use crate::endpoint::External;
    use crate::external::{EMPTY, Rest};
    use crate::random::{Generator, HashKey};
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;
    use natgate_wire::protocol::UDP;

    /// Hold-down of the tests, ticks.
    const HOLD: u32 = 40;

    /// Place of UDP.
    fn place() -> usize {
        crate::protocols::protocol_index(UDP)
    }

    fn external(first: u16, last: u16, limit: Option<u32>) -> ExternalPorts {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let addresses = vec![AddressRange { first: address, last: address }];
        let pools = vec![PoolConfig { addresses, ports: (first, last), ..PoolConfig::default() }];
        let mut config = Config { pools, ..Config::default() };
        config.limits.held_ports = limit;
        let key = HashKey::new(&mut Generator::new([3; 32]));
        let mut external = ExternalPorts::new(&config, 1, HOLD, key);
        external.is_of_pair = true;
        external
    }

    /// State of a port, as an engine without lists would know it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        Free,
        Used,
        Rests(Rest),
        Held(u32),
        /// A static mapping has the port; the state is the one that it left.
        Static(Option<u32>),
        /// A static mapping has the port, which rested before and has not ended its rest.
        StaticRests(Rest),
    }

    impl State {
        /// The state after the end of a rest, without hold-down or with a hold-down until a tick.
        fn after(rest: Rest, until: u32) -> Self {
            if rest == Rest::Free { Self::Free } else { Self::Held(until) }
        }
    }

    fn seen(external: &ExternalPorts, port: u16) -> (bool, bool) {
        let owner = external.ports[place()].owner[ExternalPorts::entry(0, port)];
        (external.ports[place()].is_free(0, port), owner & HELD != 0)
    }

    /// Makes one of six changes of a port, if it is possible in the port's state.
    fn change(
        ports: &mut ExternalPorts,
        (state, port): (&mut State, u16),
        (what, coin): (u64, bool),
        now: u32,
    ) {
        let (end, until) = (External::new(0, port), now + HOLD);
        *state = match (what, *state) {
            // A copied mapping takes the port, whatever its state.
            (0 | 1, State::Free | State::Held(_) | State::Rests(_)) => {
                ports.restore_port(UDP, end, 7, now);
                State::Used
            }
            (2, State::Free | State::Held(_) | State::Rests(_)) => {
                assert!(ports.guard(UDP, end, now));
                match *state {
                    State::Rests(rest) => State::Rests(rest),
                    _ => State::Rests(Rest::HoldDown),
                }
            }
            (2, State::Used) => {
                assert!(!ports.guard(UDP, end, now));
                State::Used
            }
            (3, State::Used) => {
                let rest = if coin { Rest::Free } else { Rest::HoldDown };
                ports.rest(UDP, end, rest);
                State::Rests(rest)
            }
            (4, State::Used) => {
                ports.give(UDP, end, [now, until], now);
                State::Held(until)
            }
            (4, State::Rests(rest)) => {
                ports.end_rest(UDP, end, until, now);
                State::after(rest, until)
            }
            (5, State::Held(until)) if coin => {
                ports.evict(UDP, 0, port, now);
                State::Static(Some(until))
            }
            (5, State::Static(before)) => {
                ports.unreserve(UDP, 0, port, now);
                before.map_or(State::Free, State::Held)
            }
            (5, State::Rests(rest)) if coin => {
                ports.evict(UDP, 0, port, now);
                State::StaticRests(rest)
            }
            (5, State::StaticRests(rest)) if coin => {
                ports.unreserve(UDP, 0, port, now);
                State::Rests(rest)
            }
            // The hold-down begins although a static mapping has the port.
            (4 | 5, State::StaticRests(rest)) => {
                ports.end_rest(UDP, end, until, now);
                State::Static((rest == Rest::HoldDown).then_some(until))
            }
            (_, state) => state,
        };
    }

    /// Random changes of a few ports against states without lists.
    #[test]
    fn ports_that_linger_have_the_states_of_ports_that_do_not() {
        const PORTS: (u16, u16) = (2000, 2023);
        for seed in 1..=200_u64 {
            let mut random = seed;
            let mut below = |bound: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % bound
            };
            let mut ports = external(PORTS.0, PORTS.1, None);
            let mut states = vec![State::Free; usize::from(PORTS.1 - PORTS.0) + 1];
            let mut now = 1;
            for step in 0..400 {
                let at = below(states.len() as u64) as usize;
                let port = PORTS.0 + at as u16;
                match (below(9), below(2) == 0) {
                    (what @ 0..=5, coin) => {
                        change(&mut ports, (&mut states[at], port), (what, coin), now);
                    }
                    _ => {
                        let to = now + below(6) as u32;
                        ports.release_until(now, to);
                        now = to;
                    }
                }
                for (port, state) in (PORTS.0..).zip(&mut states) {
                    match *state {
                        State::Held(until) if until <= now => *state = State::Free,
                        State::Static(Some(until)) if until <= now => *state = State::Static(None),
                        _ => {}
                    }
                    let is_held = matches!(state, State::Held(_) | State::Rests(_));
                    let expected = (*state == State::Free, is_held);
                    let place = (seed, step, port);
                    assert_eq!(seen(&ports, port), expected, "seed, step and port: {place:?}");
                }
                let held = states.iter().filter(|state| matches!(state, State::Held(_))).count();
                assert_eq!(ports.held as usize, held, "seed {seed}, step {step}");
                let returns = |state: &&State| {
                    matches!(state, State::Rests(Rest::Free) | State::StaticRests(Rest::Free))
                };
                let returning = states.iter().filter(returns).count();
                assert_eq!(ports.returning(0, place()) as usize, returning, "seed {seed}");
            }
        }
    }

    /// A move brings copies for ports that are held, all until one tick.
    #[test]
    fn ports_of_a_long_list_are_taken_without_a_walk() {
        let mut ports = external(1, 65535, None);
        let all: Vec<u16> = (1..=65535).collect();
        all.iter().for_each(|port| ports.hold(UDP, 0, *port, 30));
        for port in &all {
            ports.restore_port(UDP, External::new(0, *port), 7, 1);
        }
        assert_eq!((ports.lingering.len(), ports.held), (all.len(), 0));
        ports.release_until(1, 30);
        assert!(ports.lingering.is_empty() && ports.ports[place()].holds.next(1).is_none());
        let used = |port: &u16| ports.ports[place()].owner[ExternalPorts::entry(0, *port)] != EMPTY;
        assert!(all.iter().all(used));
    }

    #[test]
    fn ports_that_rest_leave_the_limit_of_held_ports_to_others() {
        let mut ports = external(2000, 2009, Some(1));
        for port in 2000..2009 {
            assert!(ports.guard(UDP, External::new(0, port), 1));
        }
        ports.take(UDP, 0, 2009, 7);
        ports.give(UDP, External::new(0, 2009), [1, 30], 1);
        assert_eq!(seen(&ports, 2009), (false, true), "it is held");
        // The first rest that ends takes the place of the port that is due first.
        ports.end_rest(UDP, External::new(0, 2000), 31, 1);
        assert_eq!((seen(&ports, 2009), seen(&ports, 2000)), ((true, false), (false, true)));
        assert_eq!((ports.held, ports.resting()), (1, 8));
    }
}
