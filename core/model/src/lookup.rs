//! Who is meant: mappings by either end (specification, 3.8, 4.4, 5.7), static mappings, rules, and
//! the gateway's own and external addresses.

use crate::bytes::{check_error, ends, icmp_kind, ip};
use crate::{Key, Model, Packet, has_ports};
use natgate_engine::{Behavior, Endpoint, Match, Rule, RuleAction, Side, TimeoutSet};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::net::Ipv4Addr;

impl Model {
    /// What the mapping between an internal and a remote endpoint is looked up by (3.8, 3.8a, 5.7).
    pub(crate) fn key_of_internal(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        remote: Endpoint,
    ) -> Key {
        let mut key = self.ordinary_key(protocol, realm, internal, remote);
        let for_all = Key { remote: None, ..key };
        if has_ports(protocol)
            && self.files_apart()
            && !self.mappings.contains_key(&key)
            && self.mappings.get(&for_all).is_some_and(|mapping| {
                !mapping.holds.is_empty() || mapping.sessions.contains_key(&remote)
            })
        {
            key = for_all; // 16.7
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

    fn ordinary_key(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        remote: Endpoint,
    ) -> Key {
        let by_remote = (!has_ports(protocol)).then_some(remote); // 5.7
        if let Some((fixed, external)) = self.static_external(protocol, realm, internal) {
            return self.fixed(&fixed, protocol, internal, external, by_remote);
        }
        let remote = match self.config.mapping {
            _ if by_remote.is_some() => by_remote,
            Behavior::EndpointIndependent => None,
            Behavior::AddressDependent => Some(Endpoint { port: 0, ..remote }),
            Behavior::AddressAndPortDependent => Some(remote),
        };
        Key { protocol, realm, internal, remote, beside: None }
    }

    /// 4.4, and for protocols without ports 5.7. Of several with one external endpoint the one that
    /// has a session with the remote; there being none, of a static one any, else the one that had
    /// the endpoint first.
    pub(crate) fn by_external(
        &mut self,
        protocol: u8,
        external: Endpoint,
        remote: Endpoint,
    ) -> Option<Key> {
        let by_remote = (!has_ports(protocol)).then_some(remote); // 5.7
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

    /// A realm's rule for a packet (3.3). What bypasses translation, or is dropped, takes the
    /// errors about it along (3.4a).
    pub(crate) fn rule(&self, packet: &Packet, realm: u16) -> Option<&RuleAction> {
        let rule = self.rule_of(realm, &packet.bytes, packet.from);
        if matches!(icmp_kind(&packet.bytes), Some(3 | 4 | 11 | 12))
            && check_error(&packet.bytes).is_ok()
        {
            let embedded = &packet.bytes[ip(&packet.bytes).header_len() + 8..];
            return with_errors(rule, self.rule_of(realm, embedded, packet.from.other()));
        }
        rule
    }

    fn rule_of(&self, realm: u16, bytes: &[u8], from: Side) -> Option<&RuleAction> {
        let (near, far) = ends(bytes, from);
        self.rule_between(realm, ip(bytes).protocol(), near, far)
    }

    /// 4.4a: whether what comes in by a mapping is dropped.
    pub(crate) fn is_dropped(&self, key: Key, remote: Endpoint) -> bool {
        let rule = self.rule_between(key.realm, key.protocol, key.internal, remote);
        rule == Some(&RuleAction::Drop)
    }

    /// 6.2: whether an ICMP error from outside about a session is dropped.
    pub(crate) fn is_error_dropped(&self, sender: Ipv4Addr, key: Key, remote: Endpoint) -> bool {
        let sender = Endpoint { address: sender, port: 0 };
        let host = Endpoint { port: 0, ..key.internal };
        let rule = self.rule_between(key.realm, ICMP, host, sender);
        let about = self.rule_between(key.realm, key.protocol, key.internal, remote);
        with_errors(rule, about) == Some(&RuleAction::Drop)
    }

    /// 3.3: the highest priority, then the longest prefix, then the exact port, then that of the
    /// source; seen from the inside.
    pub(crate) fn rule_between(
        &self,
        realm: u16,
        protocol: u8,
        near: Endpoint,
        far: Endpoint,
    ) -> Option<&RuleAction> {
        self.best_rule(realm, protocol, near, far).map(|rule| &rule.action)
    }

    /// 9.6: the set of timeouts that the rule has which a new mapping's first packet meets.
    pub(crate) fn timeouts_of_rule(&self, key: Key, far: Endpoint) -> Option<TimeoutSet> {
        let number = self.best_rule(key.realm, key.protocol, key.internal, far)?.timeouts;
        let place = usize::from(number).checked_sub(1)?;
        Some(self.config.timeout_sets[place].clone())
    }

    fn best_rule(&self, realm: u16, protocol: u8, near: Endpoint, far: Endpoint) -> Option<&Rule> {
        let rules = self.rules_of(realm);
        let has_ports = matches!(protocol, TCP | UDP | DCCP);
        let destinations =
            |rule: &&Rule| matches!(rule.action, RuleAction::Dnat(..) | RuleAction::DnatPrefix(_));
        let rules = rules.iter().filter(|rule| !destinations(rule)); // 13.1
        let fits = rules.filter_map(|rule| {
            let (prefix, port, end, by_source) = match rule.matches {
                Match::Source(prefix, port) => (prefix, port, near, true),
                Match::Destination(prefix, port) => (prefix, port, far, false),
            };
            let fits = prefix.contains(end.address.to_bits())
                && (port == 0 || has_ports && port == end.port);
            let rank = (rule.priority, prefix.len(), port != 0, by_source);
            fits.then_some((rank, rule))
        });
        fits.max_by_key(|(rank, _)| *rank).map(|(_, rule)| rule)
    }

    pub(crate) fn is_outside_own(&self, address: u32) -> bool {
        self.config.outside.address.is_some_and(|own| own.to_bits() == address)
    }

    pub(crate) fn is_external(&self, address: u32) -> bool {
        self.pool_of(address).is_some()
            || self.fixed.iter().any(|fixed| fixed.external.0.to_bits() == address)
    }
}

/// 3.4a: which rule holds for an ICMP error, of those that apply to it and to what it embeds.
fn with_errors<'a>(
    rule: Option<&'a RuleAction>,
    about: Option<&'a RuleAction>,
) -> Option<&'a RuleAction> {
    let decides = |rule: &&RuleAction| matches!(rule, RuleAction::Bypass | RuleAction::Drop);
    rule.filter(decides).or(about.filter(decides)).or(rule)
}
