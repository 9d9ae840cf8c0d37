//! Hosts of static mappings: they keep their numbers without mappings.

use super::{FIRST, Hosts, place_in_all, prefix_of};
use crate::settings::StaticHost;
use crate::share::{self, Share};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::DropReason;

/// Hosts that keep their numbers without mappings, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// Hosts of the static mappings in force.
    in_force: Vec<u128>,
    /// Hosts of static mappings that may come into force until a time, nanoseconds.
    reserved: Vec<u128>,
    until: u64,
}

impl Kept {
    pub(super) fn has(&self, address: u128, now: u64) -> bool {
        let is_in = |hosts: &[u128]| hosts.binary_search(&address).is_ok();
        is_in(&self.in_force) || now < self.until && is_in(&self.reserved)
    }
}

/// The numbers that an empty table gives to hosts, in this order.
pub(crate) fn first_numbers(
    hosts: &[Ipv6Addr],
    subscriber_length: u8,
    translators: u16,
) -> Vec<StaticHost> {
    let host_bits = Hosts::host_bits(subscriber_length);
    let mut subscribers: BTreeMap<u128, (u32, u32)> = BTreeMap::new();
    let mut counts = vec![0; translators.max(1).into()];
    let number = |host: &Ipv6Addr| {
        let prefix = prefix_of(host.to_bits(), subscriber_length);
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
        StaticHost { address: *host, number: Ipv4Addr::from_bits(number) }
    };
    hosts.iter().map(number).collect()
}

impl Hosts {
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
        self.kept.reserved = sorted(hosts);
        self.kept.until = until;
        let number = |host: &StaticHost| {
            let address = host.address.to_bits();
            if !self.share.has(self.prefix_of(address)) {
                return Ok(None);
            }
            self.intern(address, now).map(Some).map_err(|reason| (host.address, reason))
        };
        let numbers = hosts.iter().map(number).collect();
        self.is_new = false;
        numbers
    }

    /// Keeps the numbers of these hosts, which have been reserved, and of no others.
    pub fn keep(&mut self, hosts: &[StaticHost]) {
        self.kept = Kept { in_force: sorted(hosts), ..Kept::default() };
    }
}

fn sorted(hosts: &[StaticHost]) -> Vec<u128> {
    let mut hosts: Vec<u128> = hosts.iter().map(|host| host.address.to_bits()).collect();
    hosts.sort_unstable();
    hosts
}
