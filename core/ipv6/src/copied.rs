//! The hosts of NAT64, and those behind the tunnels of DS-Lite, as hosts of a pair of gateways
//! (`docs/design/pair.md`): each node has numbers of its own for the same hosts.

use crate::nat64::Reached;
use crate::{HostKind, Prefix6, Requester, Translator};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use natgate_engine::{DropReason, HostIdentity, HostNumbers, NoNumber, RealmNumber, Timestamp};

/// The hosts of a translator at a time; of none, if there is neither NAT64 nor DS-Lite.
#[derive(Debug)]
pub struct CopiedHosts<'t> {
    translator: Option<&'t mut Translator>,
    now: Timestamp,
    /// The host that got its number by the last call.
    new: Option<RealmNumber>,
}

impl<'t> CopiedHosts<'t> {
    /// The hosts of a translator now.
    pub fn new(translator: Option<&'t mut Translator>, now: Timestamp) -> Self {
        Self { translator, now, new: None }
    }

    /// Keys of the configuration that both nodes must have alike, and their values: what an
    /// identity means, and which hosts are one subscriber.
    pub fn keys(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut keys = Vec::new();
        let Some(translator) = &self.translator else { return keys };
        let settings = &translator.settings;
        if let Some(nat64) = &settings.nat64 {
            let prefixes: Vec<_> = nat64.prefixes.iter().map(|prefix| prefix.prefix()).collect();
            keys.push(("nat64.prefixes", bytes_of(&prefixes)));
            keys.push(("nat64.subscribers", bytes_of(&sorted(&nat64.subscribers))));
            keys.push(("nat64.subscriber_length", Vec::from([nat64.subscriber_length])));
        }
        if let Some(dslite) = &settings.dslite {
            keys.push(("dslite.address", dslite.address.octets().to_vec()));
            keys.push(("dslite.b4", bytes_of(&sorted(&dslite.b4))));
        }
        keys
    }
}

impl HostNumbers for CopiedHosts<'_> {
    fn identity(&self, (realm, number): RealmNumber) -> Option<HostIdentity> {
        let hosts = self.translator.as_ref()?.hosts_of(realm)?;
        let (address, inner) = hosts.behind(number.to_bits())?;
        Some(HostIdentity { address, inner })
    }

    fn number(
        &mut self,
        realm: u16,
        HostIdentity { address, inner }: HostIdentity,
    ) -> Result<Ipv4Addr, NoNumber> {
        self.new = None;
        let translator = self.translator.as_mut().ok_or(NoNumber::Unfit)?;
        let ipv6 = Ipv6Addr::from_bits(address);
        let host = match inner {
            0 => Requester::Ipv6(ipv6),
            inner => Requester::Tunneled { b4: ipv6, inner: Ipv4Addr::from_bits(inner) },
        };
        let is_tunneled = translator.realms.kind(realm) == Some(HostKind::Dslite);
        // A host of a static mapping has its number, whatever its packets may do.
        let is_known = translator.number_of(host).is_some();
        if is_tunneled != (inner != 0) || !is_known && !translator.translates_for(host) {
            return Err(NoNumber::Unfit);
        }
        let hosts = translator.hosts_of_mut(realm).ok_or(NoNumber::Unfit)?;
        match hosts.intern_copied((address, inner), self.now.0) {
            Ok((number, is_new)) => {
                self.new = is_new.then_some((realm, number));
                Ok(number)
            }
            Err(DropReason::PortQuota) => Err(NoNumber::Subscriber),
            Err(_) => Err(NoNumber::Full),
        }
    }

    fn take_back(&mut self, (realm, number): RealmNumber) {
        if self.new.take() == Some((realm, number))
            && let Some(hosts) = self.translator.as_mut().and_then(|one| one.hosts_of_mut(realm))
        {
            // Its number stays until events have been named.
            hosts.turn_away(number.to_bits());
        }
    }

    fn path(&self, (realm, number): RealmNumber, remote: Ipv4Addr) -> Option<u8> {
        let nat64 = self.translator.as_ref()?.nat64.as_ref();
        nat64.filter(|nat64| nat64.realm == realm)?.path(number, remote)
    }

    fn note_path(&mut self, (realm, number): RealmNumber, remote: Ipv4Addr, path: u8) {
        let nat64 = self.translator.as_mut().and_then(|one| one.nat64.as_mut());
        if let Some(nat64) = nat64.filter(|nat64| nat64.realm == realm) {
            let reached = Reached { remote: remote.to_bits(), prefix: path.into() };
            nat64.note_path(number, reached);
        }
    }
}

/// Prefixes in an order that does not depend on the configuration's.
fn sorted(prefixes: &[Prefix6]) -> Vec<Prefix6> {
    let mut prefixes = prefixes.to_vec();
    prefixes.sort_unstable_by_key(|prefix| (prefix.first(), prefix.len));
    prefixes.dedup();
    prefixes
}

fn bytes_of(prefixes: &[Prefix6]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for prefix in prefixes {
        bytes.extend(prefix.first().octets());
        bytes.push(prefix.len);
    }
    bytes
}
