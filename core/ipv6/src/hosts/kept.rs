//! Hosts of static mappings: they keep their numbers without mappings.

use super::{FIRST, Hosts, NO_INNER, place_in_all, prefix_of};
use crate::settings::StaticHost;
use crate::share::{self, Share};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::DropReason;

/// Says that the host of a static mapping gets no number.
pub(crate) fn no_number(host: Ipv6Addr, most: usize) -> String {
    format!(
        "the static mapping of {host} has no room: hosts of {most} subscribers have numbers \
         (limits.subscribers), and at most 256 hosts of one subscriber"
    )
}

/// Hosts that keep their numbers without mappings, sorted: each an address and, behind a tunnel,
/// the inner address.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// Hosts of the static mappings in force.
    in_force: Vec<(u128, u32)>,
    /// Ends of their tunnels, sorted, if subscribers are prefixes.
    ends: Vec<u128>,
    /// Hosts of static mappings that may come into force until a time, nanoseconds.
    reserved: Vec<(u128, u32)>,
    until: u64,
}

impl Kept {
    pub(super) fn has(&self, host: (u128, u32), now: u64) -> bool {
        let is_in = |hosts: &[(u128, u32)]| hosts.binary_search(&host).is_ok();
        is_in(&self.in_force) || now < self.until && is_in(&self.reserved)
    }

    /// True if a static mapping in force has an address as the end of its host's tunnel.
    pub(super) fn has_end(&self, address: u128) -> bool {
        self.ends.binary_search(&address).is_ok()
    }
}

/// The numbers that an empty table gives to hosts, in this order. `length` and `host_bits` are bits
/// of a subscriber's prefix, and bits that tell its hosts apart.
pub(crate) fn first_numbers(
    hosts: &[(Ipv6Addr, Option<Ipv4Addr>)],
    (subscriber_length, host_bits): (u8, u8),
    translators: u16,
) -> Vec<StaticHost> {
    let mut subscribers: BTreeMap<u128, (u32, u32)> = BTreeMap::new();
    let mut counts = vec![0; translators.max(1).into()];
    let number = |(address, inner): &(Ipv6Addr, Option<Ipv4Addr>)| {
        let prefix = prefix_of(address.to_bits(), subscriber_length);
        let (subscriber, count) = subscribers.entry(prefix).or_insert_with(|| {
            let share = Share { place: share::owner(prefix, translators), of: translators };
            let count: &mut u32 = &mut counts[usize::from(share.place)];
            *count += 1;
            (place_in_all(share, *count - 1), 0)
        });
        let within = *count;
        *count += 1;
        // The table refuses hosts that there is no room for.
        let number = FIRST.wrapping_add(*subscriber << host_bits).wrapping_add(within);
        StaticHost { address: *address, inner: *inner, number: Ipv4Addr::from_bits(number) }
    };
    hosts.iter().map(number).collect()
}

impl Hosts {
    /// Gives the hosts of static mappings their numbers in an empty table, and keeps them.
    ///
    /// # Errors
    /// A sentence about a host that gets none, or another one than the engine's configuration has.
    pub(crate) fn begin_with(&mut self, hosts: &[StaticHost]) -> Result<(), String> {
        let most = self.most_subscribers;
        let numbers = self.reserve(hosts, (0, 0)).map_err(|(host, _)| no_number(host, most))?;
        let own = hosts.iter().zip(numbers);
        let mut own = own.filter_map(|(host, number)| Some((host, number?)));
        if let Some((host, number)) = own.find(|(host, number)| host.number != *number) {
            return Err(format!("the number of {host} is {number}, not {}", host.number));
        }
        self.keep(hosts);
        Ok(())
    }

    /// Gives numbers to hosts of static mappings that may come into force until a time,
    /// nanoseconds, and returns them; `None` for hosts of other translators. An earlier reservation
    /// ends.
    ///
    /// # Errors
    /// As [`Hosts::intern`], with the first host that gets no number. The others keep theirs.
    pub fn reserve(
        &mut self,
        hosts: &[StaticHost],
        (now, until): (u64, u64),
    ) -> Result<Vec<Option<Ipv4Addr>>, (Ipv6Addr, DropReason)> {
        self.kept.reserved = self.sorted(hosts);
        self.kept.until = until;
        let number = |host: &StaticHost| {
            let address = host.address.to_bits();
            if !self.share.has(self.prefix_of(address)) {
                return Ok(None);
            }
            let inner = inner_of(host);
            let number = self.intern_behind(address, inner, now);
            let number = number.map_err(|reason| (host.address, reason))?;
            self.begin_end(number.to_bits(), address, now);
            Ok(Some(number))
        };
        let numbers = hosts.iter().map(number).collect();
        self.is_new = false;
        numbers
    }

    /// Keeps the numbers of these hosts, which have been reserved, and of no others.
    pub fn keep(&mut self, hosts: &[StaticHost]) {
        let mut ends = Vec::new();
        if self.ends.is_some() {
            ends.extend(hosts.iter().map(|host| host.address.to_bits()));
            ends.sort_unstable();
            ends.dedup();
        }
        self.kept = Kept { in_force: self.sorted(hosts), ends, ..Kept::default() };
    }

    /// The addresses by which hosts are found, and their inner addresses.
    fn sorted(&self, hosts: &[StaticHost]) -> Vec<(u128, u32)> {
        let name = |host: &StaticHost| {
            let inner = inner_of(host);
            (self.key_of(host.address.to_bits(), inner), inner)
        };
        let mut hosts: Vec<(u128, u32)> = hosts.iter().map(name).collect();
        hosts.sort_unstable();
        hosts
    }
}

/// The inner address of a host in the table.
fn inner_of(host: &StaticHost) -> u32 {
    host.inner.map_or(NO_INNER, Ipv4Addr::to_bits)
}
