//! Mappings that hosts of NAT64 and DS-Lite request: the names in a request become those that the
//! engine knows.
//!
//! A host has its number, a remote host its IPv4 address. A host without a number gets one, as with
//! its first packet, and loses it if the request leads to no mapping.

use crate::addresses::{is_link_local, is_martian};
use crate::nat64::Reached;
use crate::translator::Translator;
use crate::{HostKind, Pref64, Prefix6};
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{DropReason, Side, Timestamp, Verdict};

/// A host with a number in the engine that requests a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requester {
    /// A host of NAT64.
    Ipv6(Ipv6Addr),
    /// A host behind a tunnel of DS-Lite.
    Tunneled {
        /// The far end of the tunnel: the subscriber.
        b4: Ipv6Addr,
        /// The host's address behind the tunnel.
        inner: Ipv4Addr,
    },
}

impl Requester {
    /// The kind of the host.
    pub fn kind(self) -> HostKind {
        match self {
            Self::Ipv6(_) => HostKind::Nat64,
            Self::Tunneled { .. } => HostKind::Dslite,
        }
    }
}

impl From<Ipv6Addr> for Requester {
    fn from(host: Ipv6Addr) -> Self {
        Self::Ipv6(host)
    }
}

impl Translator {
    /// Prefixes of NAT64; the first is that of new sources.
    pub fn nat64_prefixes(&self) -> impl Iterator<Item = Prefix6> + '_ {
        let prefixes = self.settings.nat64.iter().flat_map(|nat64| &nat64.prefixes);
        prefixes.map(|prefix| prefix.prefix())
    }

    /// Length of the prefix that is a subscriber of hosts of a kind, bits.
    pub fn subscriber_length(&self, kind: HostKind) -> u8 {
        self.settings.subscriber_length(kind).unwrap_or(128)
    }

    /// True if packets of a host are translated.
    pub fn translates_for(&self, host: Requester) -> bool {
        match host {
            Requester::Ipv6(host) => self.translates_for_ipv6(host.to_bits()),
            Requester::Tunneled { b4, inner } => self.permits_requester(b4, inner),
        }
    }

    fn translates_for_ipv6(&self, address: u128) -> bool {
        self.nat64.as_ref().is_some_and(|nat64| {
            nat64.is_subscriber(address)
                && !nat64.claims(address)
                && !is_martian(address)
                && !is_link_local(address)
                && !self.own_addresses().contains(&Some(address))
        })
    }

    /// Realm and number of a host that has a number.
    pub fn number_of(&self, host: Requester) -> Option<(u16, Ipv4Addr)> {
        let number = match host {
            Requester::Ipv6(host) => self.nat64.as_ref()?.hosts.number(host.to_bits()),
            Requester::Tunneled { b4, inner } => self.number_behind(b4, inner),
        };
        Some((self.realms.of(host.kind())?, number?))
    }

    /// Realm and number of a host that gives mappings up, which does not count as a packet of the
    /// host: it stays in its tunnel. `None`: it has no number, so it has no mappings.
    ///
    /// # Errors
    /// [`DropReason::NotSubscriber`] and [`DropReason::SoftwireSource`] as
    /// [`Translator::number_requester`].
    pub fn known_requester(
        &self,
        host: Requester,
        now: Timestamp,
    ) -> Result<Option<(u16, Ipv4Addr)>, DropReason> {
        if !self.translates_for(host) {
            return Err(DropReason::NotSubscriber);
        }
        if let (Requester::Tunneled { b4, .. }, Some(hosts)) = (host, self.tunneled_hosts())
            && !hosts.may_send_from(b4.to_bits(), now.0)
        {
            return Err(DropReason::SoftwireSource);
        }
        Ok(self.number_of(host))
    }

    /// Realm and number of a host that requests a mapping. If the request leads to no mapping, call
    /// [`Translator::refuse_requester`] with the number.
    ///
    /// # Errors
    /// [`DropReason::NotSubscriber`] if packets of the host are not translated,
    /// [`DropReason::SoftwireSource`] if its B4 has changed too early,
    /// [`DropReason::PortQuota`] and [`DropReason::MappingTableFull`] as for the first packet of a
    /// host.
    pub fn number_requester(
        &mut self,
        host: Requester,
        now: Timestamp,
    ) -> Result<(u16, Ipv4Addr), DropReason> {
        let is_permitted = self.translates_for(host);
        let realm = self.realms.of(host.kind()).ok_or(DropReason::NotSubscriber)?;
        let hosts = self.hosts_of_mut(realm).filter(|_| is_permitted);
        let hosts = hosts.ok_or(DropReason::NotSubscriber)?;
        // A host that was refused before must not keep a number that is about to be freed.
        hosts.forget_refused();
        let number = match host {
            Requester::Ipv6(host) => hosts.intern(host.to_bits(), now.0)?,
            Requester::Tunneled { b4, inner } => self.intern_behind(b4, inner, now)?,
        };
        Ok((realm, number))
    }

    /// Notes that the last request for a number of a realm has led to no mapping: a new host loses
    /// the number, when its events have been named.
    pub fn refuse_requester(&mut self, (realm, number): (u16, Ipv4Addr)) {
        if let Some(hosts) = self.hosts_of_mut(realm) {
            hosts.note_refused(Some(number));
        }
    }

    /// The IPv4 address of a remote host that a host of a kind knows by an address of IPv6;
    /// `None`: packets to that address are not translated.
    pub fn remote_of(&self, kind: HostKind, remote: Ipv6Addr) -> Option<Ipv4Addr> {
        let nat64 = self.nat64.as_ref().filter(|_| kind == HostKind::Nat64)?;
        let (_, address) = nat64.extract(remote.to_bits()).ok()?;
        Some(Ipv4Addr::from_bits(address))
    }

    /// The address by which a host of NAT64 knows a remote host, with the prefix of the address
    /// `beside`, by which it knows another one. `None`: packets to that address are not translated.
    pub fn known_beside(&self, beside: Ipv6Addr, remote: Ipv4Addr) -> Option<Ipv6Addr> {
        let (place, _) = self.nat64.as_ref()?.extract(beside.to_bits()).ok()?;
        let prefix = *self.settings.nat64.as_ref()?.prefixes.get(place)?;
        let address = prefix.embed(remote);
        (self.remote_of(HostKind::Nat64, address) == Some(remote)).then_some(address)
    }

    /// Notes by which prefix a host of NAT64, with realm and number, reaches a remote host.
    pub fn note_remote(&mut self, (realm, number): (u16, Ipv4Addr), remote: Ipv6Addr) {
        if let Some(nat64) = &mut self.nat64
            && nat64.realm == realm
            && let Ok((prefix, remote)) = nat64.extract(remote.to_bits())
        {
            let verdict = Verdict::Forward(Side::Outside);
            nat64.note_prefix(number.to_bits(), Reached { remote, prefix }, verdict);
        }
    }

    /// The IPv4 addresses of remote hosts that a host of a kind knows by addresses of a prefix of
    /// `len` bits, as a prefix; `None`: there are none.
    pub fn remotes_of(&self, kind: HostKind, address: Ipv6Addr, len: u8) -> Option<(Ipv4Addr, u8)> {
        let nat64 = self.settings.nat64.as_ref().filter(|_| kind == HostKind::Nat64)?;
        let prefixes = &nat64.prefixes;
        prefixes.iter().find_map(|prefix| embedded(*prefix, address, len))
    }
}

/// The IPv4 addresses that stand in the addresses of a prefix of `len` bits.
fn embedded(prefix: Pref64, address: Ipv6Addr, len: u8) -> Option<(Ipv4Addr, u8)> {
    let Prefix6 { address: of_prefix, len: prefix_len } = prefix.prefix();
    if len <= prefix_len {
        let other = Prefix6 { address, len };
        return other.contains(of_prefix).then_some((Ipv4Addr::UNSPECIFIED, 0));
    }
    // The reserved octet, bits 64 to 71, is no part of the embedded address.
    let len = match prefix_len {
        96 => len - 96,
        _ => len.min(64) - prefix_len + len.saturating_sub(72),
    };
    let len = len.min(32);
    let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
    Some((Ipv4Addr::from_bits(prefix.extract(address)?.to_bits() & mask), len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LENGTHS;

    #[test]
    fn prefixes_of_remote_hosts_stand_in_addresses() {
        let remote = Ipv4Addr::new(198, 51, 100, 7);
        for prefix_len in LENGTHS {
            let network: Ipv6Addr = "2001:db8::".parse().unwrap();
            let prefix = Pref64::new(Prefix6 { address: network, len: prefix_len }).unwrap();
            let address = prefix.embed(remote);
            let end = if prefix_len == 96 { 128 } else { prefix_len + 40 };
            assert_eq!(embedded(prefix, address, 128), Some((remote, 32)), "{prefix_len}");
            assert_eq!(embedded(prefix, address, end), Some((remote, 32)), "{prefix_len}");
            for len in 0..=prefix_len {
                let all = Some((Ipv4Addr::UNSPECIFIED, 0));
                assert_eq!(embedded(prefix, address, len), all, "{prefix_len}, {len}");
            }
            // A prefix has exactly the remote hosts whose addresses begin with its bits.
            for len in prefix_len..=128 {
                let found = embedded(prefix, address, len).expect("the prefix agrees");
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                for bit in 0..32 {
                    let other = Ipv4Addr::from_bits(remote.to_bits() ^ 1 << (31 - bit));
                    let differs = prefix.embed(other).to_bits() ^ address.to_bits();
                    let is_in = differs & mask == 0;
                    assert_eq!(is_in, bit >= found.1, "{prefix_len}, {len}, {bit}");
                }
            }
            let other: Ipv6Addr = "2001:db9::".parse().unwrap();
            assert_eq!(embedded(prefix, other, 128), None);
            assert_eq!(embedded(prefix, other, 32), None);
        }
    }
}
