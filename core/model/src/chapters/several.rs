//! Several mappings of one endpoint: static ones, requested ones, servers and overloaded ports
//! (specification, sections 3.23, 4.10, 5.53 and 16.25).

use crate::{Key, Model, has_ports};
use natgate_engine::Endpoint;

impl Model {
    /// The mapping of an internal and a remote endpoint. `ordinary` is its key without features.
    pub(crate) fn key_among_several(&mut self, ordinary: Key, remote: Endpoint) -> Key {
        let Key { protocol, realm, internal, .. } = ordinary;
        let by_remote = (!has_ports(protocol)).then_some(remote); // 5.13
        let mut key = match self.static_external(protocol, realm, internal) {
            Some((fixed, external)) => self.fixed(&fixed, protocol, internal, external, by_remote),
            None => ordinary,
        };
        let for_all = Key { remote: None, ..key };
        if has_ports(protocol)
            && self.files_apart()
            && !self.mappings.contains_key(&key)
            && self.mappings.get(&for_all).is_some_and(|mapping| {
                !mapping.marks.holds.is_empty() || mapping.sessions.contains_key(&remote)
            })
        {
            key = for_all; // 16.26
        }
        let known = |key: &Key| {
            self.mappings.get(key).is_some_and(|mapping| mapping.sessions.contains_key(&remote))
        };
        if known(&key) {
            return key;
        }
        let mut beside = self.mappings.keys().filter(|other| {
            other.beside.is_some()
                && (other.protocol, other.realm, other.internal) == (protocol, realm, internal)
        });
        beside.find(|other| known(other)).copied().unwrap_or(key)
    }

    /// 4.8, and 5.13 for protocols without ports. Of several mappings with one external endpoint,
    /// the one with a session to the remote endpoint wins; otherwise a static one; otherwise the
    /// first owner.
    pub(crate) fn by_external(
        &mut self,
        protocol: u8,
        external: Endpoint,
        remote: Endpoint,
    ) -> Option<Key> {
        let by_remote = (!has_ports(protocol)).then_some(remote); // 5.13
        let fixed = self.static_internals(protocol, external);
        let first = fixed
            .first()
            .map(|(fixed, internal)| self.fixed(fixed, protocol, *internal, external, by_remote));
        let meant = self.mappings.iter().filter(|(key, mapping)| {
            key.protocol == protocol
                && mapping.external == external
                && (has_ports(protocol) || key.remote == Some(remote))
        });
        let known = meant
            .clone()
            .find(|(_, mapping)| mapping.sessions.contains_key(&remote))
            .or_else(|| {
                let mut meant = meant.clone();
                meant.clone().find(|(key, _)| key.beside.is_none()).or_else(|| meant.next())
            });
        let known = known.map(|(key, _)| *key);
        match known {
            Some(known) if self.mappings[&known].sessions.contains_key(&remote) => Some(known),
            known => first.or(known),
        }
    }
}
