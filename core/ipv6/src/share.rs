//! Several translators that share the work, one for each worker. Each has the packets of some
//! inside addresses, by prefixes, and numbers of its own for its hosts.

use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::Side;
use natgate_wire::{Ipv6, ipv6};

use crate::hosts::{place_of, prefix_of};
use crate::pairs::{Pairs, quote};
use crate::{HostKind, HostRealms, Settings};

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
    /// Bits of a number that tell the hosts of a subscriber apart, for each kind of hosts.
    host_bits: [Option<u8>; HostKind::ALL.len()],
    pairs: Pairs,
}

impl Division {
    /// The division by some settings, which have passed the checks of the configuration.
    pub fn new(settings: &Settings) -> Self {
        let pairs = Pairs::new(&settings.nptv6).unwrap_or_default();
        let host_bits = HostKind::ALL.map(|kind| settings.host_bits(kind));
        Self { prefix_len: settings.shared_length(), host_bits, pairs }
    }

    /// The realms of hosts with numbers, behind `others`: realms of the engine besides realm 0.
    pub fn realms(&self, others: usize) -> HostRealms {
        let [nat64, dslite] = self.host_bits.map(|bits| bits.is_some());
        HostRealms::behind(others, (nat64, dslite))
    }

    /// Worker, of `workers`, that has the host of a kind with a number.
    pub fn worker_of_number(&self, kind: HostKind, number: Ipv4Addr, workers: usize) -> usize {
        let host_bits = self.host_bits[kind as usize].unwrap_or_default();
        place_of(number.to_bits(), host_bits) as usize % workers.max(1)
    }

    /// Worker, of `workers`, that has the hosts with an address inside; behind a tunnel, with the
    /// address of the tunnel's far end.
    pub fn worker_of_address(&self, address: u128, workers: usize) -> usize {
        usize::from(owner(prefix_of(address, self.prefix_len), workers as u16))
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
        self.worker_of_address(inside, workers)
    }
}

/// Destination of the packet that an ICMPv6 error quotes.
fn receiver_of_quoted(packet: &[u8]) -> Option<u128> {
    let at = quote(&Ipv6::new_checked(packet).ok()?)?;
    Some(Ipv6::new_header_checked(packet.get(at..)?).ok()?.destination())
}
