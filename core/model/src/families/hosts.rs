//! The hosts of NAT64 (specification, 19.13) and of DS-Lite (20.21), and the address that stands
//! for each in a realm of the translator of IPv4. A host that has once got its address keeps it,
//! but counts only as long as the translator remembers it. When a host without a mapping ceases to
//! count is left open.

use std::collections::BTreeSet;

/// The first address that stands for a host.
const FIRST: u32 = 1 << 24;

/// A host: the prefix or the tunnel that is its subscriber, and its address.
pub type Host = (u128, u128);

/// The hosts inside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    /// Lower bits of an address that tell the hosts of a subscriber apart.
    host_bits: u8,
    /// The hosts of each subscriber, in the order of their first packets.
    subscribers: Vec<(u128, Vec<u128>)>,
    /// Hosts that do not count any more.
    gone: BTreeSet<Host>,
}

impl Hosts {
    pub(crate) fn new(host_bits: u8) -> Self {
        Self { host_bits, ..Self::default() }
    }

    /// The address that stands for a host.
    pub(crate) fn place(&self, (subscriber, host): Host) -> Option<u32> {
        let number = self.subscribers.iter().position(|(own, _)| *own == subscriber)?;
        let within = self.subscribers[number].1.iter().position(|one| *one == host)?;
        Some(FIRST + ((number as u32) << self.host_bits) + within as u32)
    }

    /// The address that stands for a host which counts.
    pub(crate) fn known(&self, host: Host) -> Option<u32> {
        self.place(host).filter(|_| !self.gone.contains(&host))
    }

    /// The host for which an address stands.
    pub(crate) fn host(&self, place: u32) -> Option<Host> {
        let offset = place.checked_sub(FIRST)?;
        let (subscriber, hosts) = self.subscribers.get((offset >> self.host_bits) as usize)?;
        let host = hosts.get((offset & !(u32::MAX << self.host_bits)) as usize)?;
        Some((*subscriber, *host))
    }

    /// The address that stands for a host; a new host gets one.
    pub(crate) fn place_or_new(&mut self, host: Host) -> u32 {
        self.gone.remove(&host);
        if self.place(host).is_none() {
            match self.subscribers.iter_mut().find(|(own, _)| *own == host.0) {
                Some((_, hosts)) => hosts.push(host.1),
                None => self.subscribers.push((host.0, vec![host.1])),
            }
        }
        self.place(host).expect("just added")
    }

    fn all(&self) -> impl Iterator<Item = Host> {
        self.subscribers.iter().flat_map(|(own, hosts)| hosts.iter().map(|host| (*own, *host)))
    }

    /// The hosts that count.
    pub(crate) fn counting(&self) -> impl Iterator<Item = Host> {
        self.all().filter(|host| !self.gone.contains(host))
    }

    /// Has only those hosts count that `counts` tells.
    pub(crate) fn forget(&mut self, counts: impl Fn(Host) -> bool) {
        self.gone = self.all().filter(|host| !counts(*host)).collect();
    }

    /// True if an address stands for a host that does not count any more.
    pub(crate) fn is_gone(&self, place: u32) -> bool {
        self.host(place).is_some_and(|host| self.gone.contains(&host))
    }
}
