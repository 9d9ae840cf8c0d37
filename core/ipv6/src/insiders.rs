//! IPv4 hosts inside, whose packets the translations between families leave to the engine.

use crate::quick::Octets;
use natgate_engine::{Config, Ranges};

/// Addresses of IPv4 hosts inside.
#[derive(Clone, Debug)]
pub(crate) struct Insiders {
    /// Addresses that are inside for all packets.
    all: Ranges<u32>,
    /// Remote addresses whose packets bypass translation, and the hosts that these reach.
    remotes: Ranges<u32>,
    subscribers: Ranges<u32>,
}

impl Insiders {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            all: Ranges::of_ranges(&config.inside_ranges()),
            remotes: Ranges::of_ranges(&config.bypassed_ranges()),
            subscribers: Ranges::of_ranges(&config.subscriber_ranges()),
        }
    }

    /// True if a packet from outside, with these addresses, is for one of these hosts.
    #[inline]
    pub(crate) fn have(&self, source: u32, destination: u32) -> bool {
        self.all.has(destination) || self.remotes.has(source) && self.subscribers.has(destination)
    }

    /// First octets of these hosts, of own addresses and of the engine's.
    pub(crate) fn octets(&self, own: [Option<u32>; 2], externals: &Ranges<u32>) -> Octets {
        let bypassed = Some(&self.subscribers).filter(|_| !self.remotes.is_empty());
        let sets = [externals, &self.all].into_iter().chain(bypassed);
        Octets::of(own, sets.flat_map(Ranges::iter))
    }
}
