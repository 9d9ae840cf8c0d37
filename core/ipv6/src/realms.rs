//! The engine's realms in which numbers stand for hosts: that of NAT64, and that of the hosts
//! behind the tunnels of DS-Lite. They are behind all other realms, in this order. Each has numbers
//! of its own.

use crate::settings::Settings;
use crate::{nat64, softwire};
use natgate_engine::Config;

/// Kind of the hosts that have numbers in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostKind {
    /// Hosts of NAT64.
    Nat64,
    /// Hosts behind tunnels of DS-Lite.
    Dslite,
}

impl HostKind {
    /// Both kinds, in the order of their realms.
    pub const ALL: [Self; 2] = [Self::Nat64, Self::Dslite];

    /// Name of the realm in the engine.
    pub const fn realm_name(self) -> &'static str {
        match self {
            Self::Nat64 => nat64::REALM,
            Self::Dslite => softwire::REALM,
        }
    }

    /// Name of the mechanism.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nat64 => "NAT64",
            Self::Dslite => "DS-Lite",
        }
    }

    /// The kind of a host with an address behind a tunnel, or without one.
    pub(crate) const fn of<T>(inner: &Option<T>) -> Self {
        match inner {
            Some(_) => Self::Dslite,
            None => Self::Nat64,
        }
    }
}

/// Numbers of the realms of hosts with numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRealms {
    /// The first of them, or [`NO_REALM`].
    first: u16,
    /// That of DS-Lite, or [`NO_REALM`].
    dslite: u16,
}

/// No realm has this number.
const NO_REALM: u16 = u16::MAX;

impl HostRealms {
    /// There are neither hosts of NAT64 nor of DS-Lite.
    pub const NONE: Self = Self { first: NO_REALM, dslite: NO_REALM };

    /// The realms behind `others`, a number of realms besides realm 0.
    pub(crate) fn behind(others: usize, (nat64, dslite): (bool, bool)) -> Self {
        let first = others as u16 + 1;
        match (nat64, dslite) {
            (false, false) => Self::NONE,
            (true, false) => Self { first, ..Self::NONE },
            (_, true) => Self { first, dslite: first + u16::from(nat64) },
        }
    }

    /// True if hosts of a realm have numbers.
    #[inline(always)]
    pub fn has(self, realm: u16) -> bool {
        realm >= self.first
    }

    /// The kind of the hosts of a realm; `None`: they have addresses.
    #[inline]
    pub fn kind(self, realm: u16) -> Option<HostKind> {
        match self.has(realm) {
            false => None,
            true if realm == self.dslite => Some(HostKind::Dslite),
            true => Some(HostKind::Nat64),
        }
    }

    /// The realm of a kind of hosts, if there is one.
    pub fn of(self, kind: HostKind) -> Option<u16> {
        let realm = match kind {
            HostKind::Dslite => self.dslite,
            HostKind::Nat64 if self.first == self.dslite => NO_REALM,
            HostKind::Nat64 => self.first,
        };
        (realm != NO_REALM).then_some(realm)
    }

    /// True if there are neither hosts of NAT64 nor of DS-Lite.
    pub fn is_empty(self) -> bool {
        self.first == NO_REALM
    }

    /// All realms with numbers, and the kinds of their hosts.
    pub fn all(self) -> impl Iterator<Item = (u16, HostKind)> + Clone {
        HostKind::ALL.into_iter().filter_map(move |kind| Some((self.of(kind)?, kind)))
    }
}

/// Adds the realms of hosts with numbers to the engine's configuration. Their hosts, and those of
/// realm 0, may reach each other.
pub(crate) fn add(settings: &Settings, config: &mut Config) -> HostRealms {
    let realms = settings.host_realms(config.realms.len());
    if let Some(nat64) = &settings.nat64 {
        let mtu = settings.inside.mtu.max(crate::translator::LEAST_MTU);
        config.realms.push(nat64::realm_of(nat64, mtu, config));
    }
    if settings.dslite.is_some() {
        config.realms.push(softwire::realm_of(config));
    }
    for (realm, _) in realms.all() {
        let others = realms.all().map(|(other, _)| other).filter(|other| *other != realm);
        config.hairpin_to.push(realm);
        config.realms[usize::from(realm) - 1].hairpin_to.extend(core::iter::once(0).chain(others));
    }
    realms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn realms_of_hosts_are_behind_all_others() {
        for others in [0_u16, 1, 7] {
            let at = usize::from(others);
            let neither = HostRealms::behind(at, (false, false));
            assert!(neither.is_empty() && !neither.has(others) && !neither.has(4095));
            let one = HostRealms::behind(at, (true, false));
            let other = HostRealms::behind(at, (false, true));
            let both = HostRealms::behind(at, (true, true));
            for (realms, kinds) in [
                (one, &[HostKind::Nat64][..]),
                (other, &[HostKind::Dslite]),
                (both, &HostKind::ALL),
            ] {
                let wanted: alloc::vec::Vec<_> =
                    (others + 1..).zip(kinds.iter().copied()).collect();
                assert_eq!(realms.all().collect::<alloc::vec::Vec<_>>(), wanted);
                for (realm, kind) in wanted {
                    assert_eq!((realms.kind(realm), realms.of(kind)), (Some(kind), Some(realm)));
                }
                assert!(!realms.is_empty() && !realms.has(others) && realms.kind(0).is_none());
            }
        }
    }
}
