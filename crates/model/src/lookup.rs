//! Who is meant: mappings by either end (specification, 3.8, 4.4, 5.7), static mappings, rules, and
//! the gateway's own and external addresses.

use crate::bytes::{check_error, ends, icmp_kind, ip};
use crate::{Key, Mapping, Model, Packet, has_ports};
use natgate_engine::{Behavior, Endpoint, MappingKind, Match, Rule, RuleAction, Side, TimeoutSet};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

impl Model {
    /// What the mapping between an internal and a remote endpoint is looked up by (3.8, 5.7).
    pub(crate) fn key_of_internal(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        remote: Endpoint,
    ) -> Key {
        let by_remote = (!has_ports(protocol)).then_some(remote); // 5.7
        if let Some(external) = self.static_external(protocol, realm, internal) {
            return self.fixed(protocol, realm, internal, external, by_remote);
        }
        let remote = match self.config.mapping {
            _ if by_remote.is_some() => by_remote,
            Behavior::EndpointIndependent => None,
            Behavior::AddressDependent => Some(Endpoint { port: 0, ..remote }),
            Behavior::AddressAndPortDependent => Some(remote),
        };
        Key { protocol, realm, internal, remote }
    }

    /// 4.4, and for protocols without ports 5.7.
    pub(crate) fn by_external(
        &mut self,
        protocol: u8,
        external: Endpoint,
        remote: Endpoint,
    ) -> Option<Key> {
        if let Some((realm, internal)) = self.static_internal(protocol, external) {
            let by_remote = (!has_ports(protocol)).then_some(remote); // 5.7
            return Some(self.fixed(protocol, realm, internal, external, by_remote));
        }
        let meant = self.mappings.iter().find(|(key, mapping)| {
            key.protocol == protocol
                && mapping.external == external
                && (has_ports(protocol) || key.remote == Some(remote))
        });
        meant.map(|(key, _)| *key)
    }

    /// The external endpoint that a static mapping gives to an internal one.
    pub(crate) fn static_external(
        &self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
    ) -> Option<Endpoint> {
        let statics = self.config.statics.iter().filter(|fixed| fixed.realm == realm);
        statics.filter(|fixed| fixed.protocol.is_none_or(|only| only == protocol)).find_map(
            |fixed| {
                let (address, port) = fixed.internal;
                let meant = address == internal.address
                    && port.is_none_or(|port| has_ports(protocol) && port == internal.port);
                let port = fixed.external.1.unwrap_or(internal.port);
                meant.then_some(Endpoint { address: fixed.external.0, port })
            },
        )
    }

    /// The realm and the internal endpoint that a static mapping gives to an external one.
    pub(crate) fn static_internal(
        &self,
        protocol: u8,
        external: Endpoint,
    ) -> Option<(u16, Endpoint)> {
        let statics = self.config.statics.iter();
        statics.filter(|fixed| fixed.protocol.is_none_or(|only| only == protocol)).find_map(
            |fixed| {
                let (address, port) = fixed.external;
                let meant = address == external.address
                    && port.is_none_or(|port| has_ports(protocol) && port == external.port);
                let port = fixed.internal.1.unwrap_or(external.port);
                meant.then_some((fixed.realm, Endpoint { address: fixed.internal.0, port }))
            },
        )
    }

    /// The static mapping between two endpoints. Those of whole addresses are as many as there are
    /// ports, and written down only when looked at.
    pub(crate) fn fixed(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        external: Endpoint,
        remote: Option<Endpoint>,
    ) -> Key {
        let key = Key { protocol, realm, internal, remote };
        self.mappings.entry(key).or_insert(Mapping {
            external,
            kind: MappingKind::Static,
            permanent: false,
            created: self.started,
            timeouts: TimeoutSet::default(),
            sessions: BTreeMap::new(),
            first: None,
        });
        key
    }

    /// A realm's rule for a packet (3.3). What bypasses translation, or is dropped, takes the errors about
    /// it along (3.4a).
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
    fn rule_between(
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
            || self.config.statics.iter().any(|fixed| fixed.external.0.to_bits() == address)
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
