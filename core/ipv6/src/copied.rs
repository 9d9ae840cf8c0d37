//! The hosts of NAT64, or those behind the tunnels of DS-Lite, as hosts of a pair of gateways
//! (`docs/design/pair.md`): each node has numbers of its own for the same hosts.

use crate::Translator;
use crate::nat64::Reached;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use natgate_engine::{HostIdentity, HostNumbers, Timestamp};

/// The hosts of a translator at a time; of none, if there is neither NAT64 nor DS-Lite.
#[derive(Debug)]
pub struct CopiedHosts<'t> {
    translator: Option<&'t mut Translator>,
    now: Timestamp,
}

impl<'t> CopiedHosts<'t> {
    /// The hosts of a translator now.
    pub fn new(translator: Option<&'t mut Translator>, now: Timestamp) -> Self {
        Self { translator, now }
    }

    /// Keys of the configuration that both nodes must have alike, and their values: what an
    /// identity means, and which hosts are one subscriber.
    pub fn keys(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut keys = Vec::new();
        let Some(translator) = &self.translator else { return keys };
        let settings = &translator.settings;
        if let Some(nat64) = &settings.nat64 {
            let mut prefixes = Vec::new();
            for prefix in nat64.prefixes.iter().map(|prefix| prefix.prefix()) {
                prefixes.extend(prefix.first().octets());
                prefixes.push(prefix.len);
            }
            keys.push(("nat64.prefixes", prefixes));
            keys.push(("nat64.subscriber_length", Vec::from([nat64.subscriber_length])));
        }
        if let Some(dslite) = &settings.dslite {
            keys.push(("dslite.address", dslite.address.octets().to_vec()));
        }
        keys
    }
}

impl HostNumbers for CopiedHosts<'_> {
    fn identity(&self, number: Ipv4Addr) -> Option<HostIdentity> {
        let hosts = self.translator.as_ref()?.hosts()?;
        let (address, inner) = hosts.behind(number.to_bits())?;
        Some(HostIdentity { address, inner })
    }

    fn number(&mut self, HostIdentity { address, inner }: HostIdentity) -> Option<Ipv4Addr> {
        let translator = self.translator.as_mut()?;
        let is_tunneled = translator.nat64.is_none();
        if is_tunneled != (inner != 0) {
            return None;
        }
        translator.hosts_mut()?.intern_copied((address, inner), self.now.0)
    }

    fn path(&self, number: Ipv4Addr, remote: Ipv4Addr) -> Option<u8> {
        self.translator.as_ref()?.nat64.as_ref()?.path(number, remote)
    }

    fn note_path(&mut self, number: Ipv4Addr, remote: Ipv4Addr, path: u8) {
        if let Some(nat64) = self.translator.as_mut().and_then(|one| one.nat64.as_mut()) {
            let reached = Reached { remote: remote.to_bits(), prefix: path.into() };
            nat64.note_path(number, reached);
        }
    }
}
