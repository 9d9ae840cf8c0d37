//! Rules (specification, section 3.5): the rule for a packet, an error or a mapping, and packets
//! that pass without translation.

use crate::bytes::{check_error, ends, icmp_kind, ip, lower_ttl};
use crate::{Fate, Key, Model, Packet};
use natgate_engine::{
    Direction, DropReason, Endpoint, Match, Rule, RuleAction, Side, TimeoutSet, Verdict,
};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::net::Ipv4Addr;

impl Model {
    /// 3.5, 3.9: the fate of a packet from inside that is not translated.
    pub(crate) fn pass_from_inside(&mut self, packet: &mut Packet) -> Option<Fate> {
        let exit = match packet.rule {
            Some(RuleAction::Drop) => return Some(Err(DropReason::Rule)),
            Some(RuleAction::Bypass) => Side::Outside,
            _ if self.stays_inside(packet) => Side::Inside,
            _ => return None,
        };
        if exit == Side::Inside {
            packet.direction = Direction::Hairpin;
        }
        Some(self.pass(packet, exit))
    }

    /// 4.2: the fate of a packet from outside to an address that is not external.
    pub(crate) fn pass_from_outside(&mut self, packet: &mut Packet) -> Fate {
        let decides = |one: &&RuleAction| matches!(one, RuleAction::Bypass | RuleAction::Drop);
        let rule = |realm| Some((realm, self.rule(packet, realm).filter(decides)?));
        match self.config.realms_in_order().find_map(rule) {
            Some((realm, RuleAction::Bypass)) => packet.exit = realm, // 15.10
            Some(_) => return Err(DropReason::Rule),
            None => return Err(DropReason::NotForUs),
        }
        let (source, destination) = packet.addresses();
        self.may_pass(packet.exit, source, destination)?;
        self.pass(packet, Side::Inside)
    }

    fn pass(&mut self, packet: &mut Packet, exit: Side) -> Fate {
        self.hop(packet, self.mtu(exit, packet.exit))?;
        lower_ttl(&mut packet.bytes);
        Ok(Verdict::Forward(exit))
    }

    /// A realm's rule for a packet (3.5). Errors about packets that bypass translation, or are
    /// dropped, get the same fate (3.13).
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

    /// 4.9: true if a rule drops inbound packets of a mapping.
    pub(crate) fn is_dropped(&self, key: Key, remote: Endpoint) -> bool {
        let rule = self.rule_between(key.realm, key.protocol, key.internal, remote);
        rule == Some(&RuleAction::Drop)
    }

    /// 6.6: true if a rule drops an ICMP error from outside about a session.
    pub(crate) fn is_error_dropped(&self, sender: Ipv4Addr, key: Key, remote: Endpoint) -> bool {
        let sender = Endpoint { address: sender, port: 0 };
        let host = Endpoint { port: 0, ..key.internal };
        let rule = self.rule_between(key.realm, ICMP, host, sender);
        let about = self.rule_between(key.realm, key.protocol, key.internal, remote);
        with_errors(rule, about) == Some(&RuleAction::Drop)
    }

    /// 3.5: the rule with the highest priority, then the longest prefix, then the exact port, then
    /// the source; seen from the inside.
    pub(crate) fn rule_between(
        &self,
        realm: u16,
        protocol: u8,
        near: Endpoint,
        far: Endpoint,
    ) -> Option<&RuleAction> {
        self.best_rule(realm, protocol, near, far).map(|rule| &rule.action)
    }

    /// 9.11: the set of timeouts of the rule for a new mapping's first packet.
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
}

/// 3.13: the rule for an ICMP error, from the rules for the error and for its embedded packet.
fn with_errors<'a>(
    rule: Option<&'a RuleAction>,
    about: Option<&'a RuleAction>,
) -> Option<&'a RuleAction> {
    let decides = |rule: &&RuleAction| matches!(rule, RuleAction::Bypass | RuleAction::Drop);
    rule.filter(decides).or(about.filter(decides)).or(rule)
}
