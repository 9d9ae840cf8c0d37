//! The sweep that frees hosts without mappings.

use super::{FREE, Host, Hosts, STEP, Subscriber};
use core::net::Ipv4Addr;
use natgate_engine::{Cursor, Engine, Filter};

/// Nanoseconds from the start of one sweep to the start of the next.
const PAUSE: u64 = 60_000_000_000;
/// Nanoseconds that a host keeps its number after its last packet, mapping or not: fragments may
/// wait in the engine.
const GRACE: u64 = 10_000_000_000;

/// The stage of a sweep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// No sweep goes on; this is the time of the start of the last one.
    Idle(u64),
    /// The sweep looks at the engine's mappings.
    Mappings(Cursor),
    /// The sweep looks at the hosts from this entry on.
    Hosts(usize),
}

impl Hosts {
    /// Looks at some of the engine's mappings, and frees hosts without any. Call it with every
    /// batch of packets. `realm` is the number of the realm in the engine.
    pub fn sweep(&mut self, engine: &Engine, realm: u16, now: u64) {
        match &mut self.stage {
            Stage::Idle(last) => {
                let is_crowded = self.refusals > 0 || self.used_hosts > self.most_hosts / 8 * 7;
                let pause = if is_crowded { GRACE } else { PAUSE };
                if self.used_hosts > 0 && now.saturating_sub(*last) >= pause {
                    self.begin_sweep(now);
                }
            }
            Stage::Mappings(cursor) => {
                let filter = Filter { realm: Some(realm), ..Filter::default() };
                self.mappings.clear();
                let is_done = engine.scan_mappings(cursor, STEP, &filter, &mut self.mappings);
                for place in 0..self.mappings.len() {
                    let number = self.mappings[place].id.internal.address.to_bits();
                    if let Some(at) = self.find_number(number) {
                        self.hosts[at as usize].found = self.sweep;
                    }
                }
                if is_done {
                    self.stage = Stage::Hosts(0);
                }
            }
            Stage::Hosts(from) => {
                let from = *from;
                self.sweep_hosts(from, engine, realm, now);
            }
        }
    }

    /// True if a host is the only one of its subscriber.
    fn is_last(&self, host: &Host) -> bool {
        let subscriber = self.subscriber_of(host.number).map(|place| &self.subscribers[place]);
        let count = |one: &Subscriber| one.taken.iter().map(|word| word.count_ones()).sum::<u32>();
        subscriber.is_some_and(|subscriber| count(subscriber) == 1)
    }

    fn begin_sweep(&mut self, now: u64) {
        self.sweep = self.sweep.wrapping_add(1);
        self.swept = now;
        self.refusals = 0;
        self.stage = Stage::Mappings(Cursor::default());
    }

    fn sweep_hosts(&mut self, from: usize, engine: &Engine, realm: u16, now: u64) {
        let to = (from + STEP).min(self.hosts.len());
        for at in from..to {
            let host = self.hosts[at];
            // A mapping that was made during the sweep was made by a packet during the sweep.
            let silent = host.silent_from();
            let is_silent = silent <= self.swept && now.saturating_sub(silent) >= GRACE;
            //= rfc6146#section-3.1-manual-kept
            let is_idle = host.number != FREE && host.found != self.sweep && is_silent;
            if is_idle && !self.kept.has((host.address, host.inner), now) {
                let number = Ipv4Addr::from_bits(host.number);
                let is_last = self.is_last(&host);
                if !is_last || !engine.has_blocks(realm, number) {
                    self.free(at as u32);
                }
            }
        }
        self.stage = match to == self.hosts.len() {
            true => Stage::Idle(self.swept),
            false => Stage::Hosts(to),
        };
    }
}
