//! Other external addresses, and another rate of ICMP errors, while the router is at work.

use super::{MOST_ANNOUNCED, Owned, Router, index};
use crate::Settings;
use natgate_engine::Side;
use std::net::Ipv4Addr;

/// What becomes different; made apart from the router.
#[derive(Debug)]
pub struct Renewal {
    /// What is answered for outside.
    owned: Owned,
    /// Addresses that have come, at most [`MOST_ANNOUNCED`].
    new: Vec<Ipv4Addr>,
    errors_per_second: u32,
}

impl Renewal {
    /// What other settings make of a router.
    pub fn new(in_force: &Settings, new: &Settings) -> Self {
        let owned = |settings: &Settings| Owned::new(&settings.outside, Some(&settings.engine));
        let (before, owned) = (owned(in_force), owned(new));
        let new_addresses = owned.addresses().filter(|address| !before.contains(*address));
        Self {
            new: new_addresses.take(MOST_ANNOUNCED).collect(),
            owned,
            errors_per_second: new.engine.limits.icmp_errors_per_second,
        }
    }
}

impl Router {
    /// Answers for other external addresses from now on, tells the neighbours outside of those that
    /// are new, and makes errors at another rate.
    pub fn renew(&mut self, renewal: Renewal) {
        let Renewal { owned, new, errors_per_second } = renewal;
        self.ports[index(Side::Outside.into())].owned = owned;
        self.announce(Side::Outside.into(), new);
        self.outbox.errors.set_rate(errors_per_second);
    }
}
