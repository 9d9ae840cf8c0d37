//! Several translators that share the work, one for each worker. Each has the packets of some
//! inside addresses, by prefixes, and numbers of its own for its hosts.

use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::Side;
use natgate_wire::{Ipv6, ipv6};

use crate::Settings;
use crate::hosts::{place_of, prefix_of};
use crate::pairs::{Pairs, quote};

/// The part that a translator has in the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Place of the translator among all, from 0.
    pub place: u16,
    /// Number of translators; not zero.
    pub of: u16,
}

impl Default for Share {
    /// The part of a translator alone: all.
    fn default() -> Self {
        Self { place: 0, of: 1 }
    }
}

impl Share {
    /// True if the translator has the hosts of a prefix, which is without its lower bits.
    pub(crate) fn has(self, prefix: u128) -> bool {
        owner(prefix, self.of) == self.place
    }
}

/// Place of the translator, out of `of`, that has the hosts of a prefix without its lower bits.
pub(crate) fn owner(prefix: u128, of: u16) -> u16 {
    (ipv6::bucket(prefix) % usize::from(of.max(1))) as u16
}

/// The division of IPv6 packets among workers: all packets of an inside prefix go to one.
#[derive(Clone, Debug)]
pub struct Division {
    prefix_len: u8,
    host_bits: Option<u8>,
    pairs: Pairs,
}

impl Division {
    /// The division by some settings, which have passed the checks of the configuration.
    pub fn new(settings: &Settings) -> Self {
        let pairs = Pairs::new(&settings.nptv6).unwrap_or_default();
        Self { prefix_len: settings.subscriber_length(), host_bits: settings.host_bits(), pairs }
    }

    /// True if hosts have numbers in the engine.
    pub fn has_numbers(&self) -> bool {
        self.host_bits.is_some()
    }

    /// Worker, of `workers`, that has the host with a number.
    pub fn worker_of_number(&self, number: Ipv4Addr, workers: usize) -> usize {
        place_of(number.to_bits(), self.host_bits.unwrap_or_default()) as usize % workers.max(1)
    }

    /// Worker, of `workers`, that takes an IPv6 packet which came in by a side. A packet that
    /// cannot be read belongs to worker 0, which drops it.
    pub fn worker(&self, from: Side, packet: &[u8], workers: usize) -> usize {
        let Ok(header) = Ipv6::new_header_checked(packet) else { return 0 };
        let inside = match from {
            // An error, by any router, is about a packet to a host inside.
            Side::Inside => receiver_of_quoted(packet).unwrap_or_else(|| header.source()),
            Side::Outside => {
                let destination = Ipv6Addr::from_bits(header.destination());
                self.pairs.internal(destination).unwrap_or(destination).to_bits()
            }
        };
        usize::from(owner(prefix_of(inside, self.prefix_len), workers as u16))
    }
}

/// Destination of the packet that an ICMPv6 error quotes.
fn receiver_of_quoted(packet: &[u8]) -> Option<u128> {
    let at = quote(&Ipv6::new_checked(packet).ok()?)?;
    Some(Ipv6::new_header_checked(packet.get(at..)?).ok()?.destination())
}
