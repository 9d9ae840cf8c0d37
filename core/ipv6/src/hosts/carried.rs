//! Hosts that another process hands over. They keep their numbers, because its mappings have them.

use super::{FREE, Host, Hosts, NO_INNER, NONE, Subscriber, units};
use crate::realms::HostKind;
use core::fmt::{self, Display, Formatter};
use core::net::{Ipv4Addr, Ipv6Addr};

/// A host and its number, as one process hands it over to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedHost {
    /// Address of the host, or far end of its tunnel.
    pub address: u128,
    /// IPv4 address behind the tunnel; 0: there is no tunnel.
    pub inner: u32,
    /// Number of the host.
    pub number: u32,
}

impl CarriedHost {
    /// The kind of the host.
    pub(crate) fn kind(&self) -> HostKind {
        if self.inner == NO_INNER { HostKind::Nat64 } else { HostKind::Dslite }
    }
}

/// Reason why the hosts of another process do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnfitHost {
    /// The host has, or another host has, another number by this configuration.
    Number(CarriedHost),
    /// There is no room for the host.
    Room(CarriedHost),
}

impl Display for UnfitHost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (Self::Number(host) | Self::Room(host)) = self;
        let address = Ipv6Addr::from_bits(host.address);
        match host.inner {
            0 => write!(f, "host {address} ")?,
            inner => write!(f, "host {} of {address} ", Ipv4Addr::from_bits(inner))?,
        }
        match self {
            Self::Number(_) => write!(
                f,
                "has another number by this configuration: static mappings of hosts, or what is a \
                 subscriber, have changed"
            ),
            Self::Room(_) => write!(f, "has no room: limits.subscribers is smaller"),
        }
    }
}

impl Hosts {
    /// All hosts, in no order.
    pub fn carried(&self) -> impl Iterator<Item = CarriedHost> {
        let used = self.hosts.iter().filter(|host| host.number != FREE);
        used.map(|&Host { address, inner, number, .. }| {
            let address = self.end_of(number, address);
            CarriedHost { address, inner, number }
        })
    }

    /// Takes the hosts of another process's table. Only hosts of static mappings may be there.
    ///
    /// # Errors
    /// The first host that does not fit. The table is not to be used then.
    pub fn adopt(
        &mut self,
        hosts: impl IntoIterator<Item = CarriedHost>,
        now: u64,
    ) -> Result<(), UnfitHost> {
        for host in hosts {
            self.adopt_one(host, now)?;
        }
        self.free_subscriber = NONE;
        for at in (0..self.subscribers.len()).rev() {
            if self.subscribers[at].is_empty() {
                self.subscribers[at].next = self.free_subscriber;
                self.free_subscriber = at as u32;
            }
        }
        Ok(())
    }

    fn adopt_one(&mut self, carried: CarriedHost, now: u64) -> Result<(), UnfitHost> {
        let CarriedHost { address, inner, number } = carried;
        let other_number = UnfitHost::Number(carried);
        let seen = units(now);
        if let Some(at) = self.find_host(address, inner) {
            let known = &mut self.hosts[at as usize];
            known.seen = known.seen.max(seen);
            if known.number != number {
                return Err(other_number);
            }
            self.note_end(number, address, now);
            return Ok(());
        }
        let is_taken = self.find_number(number).is_some();
        let place = self.subscriber_of(number).filter(|_| !is_taken).ok_or(other_number)?;
        if place >= self.most_subscribers || self.used_hosts >= self.most_hosts {
            return Err(UnfitHost::Room(carried));
        }
        let prefix = self.prefix_of(address);
        if !self.place_subscriber(prefix, place) {
            return Err(other_number);
        }
        let within = self.within(number);
        self.subscribers[place].taken[within / 64] |= 1 << (within % 64);
        let key = self.key_of(address, inner);
        self.insert(Host { address: key, inner, number, seen, found: 0 });
        self.note_end(number, address, now);
        Ok(())
    }

    /// Gives a subscriber a place. Returns `false` if the place, or the subscriber, is another's.
    fn place_subscriber(&mut self, prefix: u128, place: usize) -> bool {
        if let Some(known) = self.find_subscriber(prefix) {
            return known as usize == place;
        }
        let free = Subscriber { prefix: 0, taken: [0; 4], next: NONE };
        if self.subscribers.len() <= place {
            self.subscribers.resize(place + 1, free);
        }
        if !self.subscribers[place].is_empty() {
            return false;
        }
        self.subscribers[place].prefix = prefix;
        self.note_subscriber(prefix, place as u32);
        true
    }
}
