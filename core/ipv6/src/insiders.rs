//! IPv4 hosts inside, whose packets the translations between families leave to the engine.

use crate::quick::Octets;
use alloc::vec::Vec;
use natgate_engine::{AddressRange, Config};

/// IPv4 hosts inside, as ascending ranges of addresses.
#[derive(Clone, Debug)]
pub(crate) struct Insiders {
    /// Addresses that are inside for all packets.
    all: Vec<AddressRange>,
    /// Remote addresses whose packets bypass translation, and the hosts that these reach.
    remotes: Vec<AddressRange>,
    subscribers: Vec<AddressRange>,
}

impl Insiders {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            all: config.inside_ranges(),
            remotes: config.bypassed_ranges(),
            subscribers: config.subscriber_ranges(),
        }
    }

    /// True if a packet from outside, with these addresses, is for one of these hosts.
    #[inline]
    pub(crate) fn have(&self, source: u32, destination: u32) -> bool {
        has(&self.all, destination)
            || has(&self.remotes, source) && has(&self.subscribers, destination)
    }

    /// First octets of these hosts, of own addresses and of the engine's.
    pub(crate) fn octets(&self, own: [Option<u32>; 2], externals: &[AddressRange]) -> Octets {
        let bypassed = if self.remotes.is_empty() { &[][..] } else { &self.subscribers };
        Octets::of(own, [externals, &self.all, bypassed].into_iter().flatten())
    }
}

/// True if one of ascending ranges has an address.
#[inline]
pub(crate) fn has(ranges: &[AddressRange], address: u32) -> bool {
    let after = ranges.partition_point(|range| range.first.to_bits() <= address);
    after > 0 && address <= ranges[after - 1].last.to_bits()
}
