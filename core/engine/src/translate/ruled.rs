//! New flows that need more than a port of the default pool: searches of rules for a group of flows
//! together, subscribers' own ports, and packets that rules drop or do not translate.

use super::Engine;
use super::patch::forward_as_it_is;
use super::quick::{FlowRule, ParsedHeaders, Round, Tally};
use crate::DropReason;
use crate::calendar::NONE;
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::Draw;
use crate::packet::{Direction, Packet, Side, Verdict};
use crate::parse::is_martian;
use crate::rules::Ruling;

impl Engine {
    /// Searches the rules for packets of a group that seem to have no mapping.
    #[inline(never)]
    pub(super) fn ask_rules(&mut self, round: &Round, glances: &mut [ParsedHeaders]) {
        let mut next = Some(0);
        while let Some(realm) = next {
            if !self.rules_of(realm).is_empty() {
                self.ask_rules_of(realm, glances);
            }
            if round.last_realm == 0 {
                break;
            }
            let later = glances.iter().filter(|glance| glance.is_new() && glance.realm > realm);
            next = later.map(|glance| glance.realm).min();
        }
    }

    /// Searches the rules of one realm for its packets, all searches together.
    #[inline(always)]
    fn ask_rules_of(&mut self, realm: u16, glances: &mut [ParsedHeaders]) {
        let rules = self.realms.rules_of(&self.rules, realm);
        let searches = &mut self.searches;
        let is_asked = |glance: &ParsedHeaders| glance.is_new() && glance.realm == realm;
        searches.clear();
        for glance in glances.iter().filter(|glance| is_asked(glance)) {
            searches.add(rules, glance.source, glance.destination);
        }
        while searches.step(rules) {}
        for (number, glance) in glances.iter_mut().filter(|glance| is_asked(glance)).enumerate() {
            glance.ruled = match searches.ruling(rules, number) {
                None => FlowRule::Not,
                Some(Ruling::Bypass) => FlowRule::Bypass,
                Some(Ruling::Drop) => FlowRule::Drop,
                Some(Ruling::Snat(snat)) => {
                    let index = snat.address.map(|address| self.external.index(address.to_bits()));
                    let timeouts = snat.timeouts;
                    match (u16::try_from(snat.pool), index) {
                        (Ok(pool), None) => FlowRule::Snat { pool, fixed: None, timeouts },
                        (Ok(pool), Some(Some(index)))
                            if self.external.pool_of(index) == snat.pool =>
                        {
                            FlowRule::Snat { pool, fixed: Some(index as u16), timeouts }
                        }
                        _ => FlowRule::Unknown,
                    }
                }
            };
        }
    }

    /// Draws ports for new flows of senders with ports of their own. The data for these draws is on
    /// its way from memory.
    pub(super) fn draw_shares(&mut self, glances: &mut [ParsedHeaders]) {
        let pool_of = |engine: &Self, glance: &ParsedHeaders| {
            let known = glance.is_new() && glance.record != NONE && glance.draw.is_none();
            let (pool, _) = engine.source_of(glance).filter(|_| known)?;
            (!engine.external.is_shared(pool)).then_some(pool)
        };
        for glance in glances.iter() {
            if let Some(pool) = pool_of(self, glance) {
                self.external.approach_block(pool, glance.host(), glance.protocol);
            }
        }
        for glance in glances.iter_mut() {
            let Some(pool) = pool_of(self, glance) else { continue };
            let host = glance.host();
            let paired = self.subscribers.paired(glance.record, pool);
            let wish = glance.wish(pool, self.external.pairing(pool, host, paired), None);
            glance.draw = self.external.draw_share(wish, host, &mut self.generator);
        }
    }

    /// Chooses an external endpoint for a new flow whose draw failed, if the pool chooses ports
    /// freely.
    #[cold]
    pub(super) fn draw_again(&mut self, glance: &ParsedHeaders, draw: &Draw) -> Option<External> {
        let (pool, fixed) = self.source_of(glance)?;
        if !self.external.is_shared(pool) {
            return None;
        }
        let wish = glance.wish(pool, Some(draw.index()), fixed);
        self.external.choose(wish, self.subscribers.tenants(), &mut self.generator)
    }

    /// Stage four for a packet that a rule drops or does not translate. `None`: the packet needs
    /// more checks and takes the complete way.
    pub(super) fn untranslated(
        &mut self,
        round: &Round,
        glance: &ParsedHeaders,
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> Option<Verdict> {
        let (source, destination) = (glance.source.address, glance.destination.address);
        if is_martian(source)
            || source == destination
            || !self.may_leave(glance.realm, source, destination)
            || !self.may_be_remote(destination)
            || glance.total_len > round.mtu
        {
            return None;
        }
        let len = usize::from(glance.total_len);
        packet.truncate(len);
        if glance.ruled == FlowRule::Drop {
            self.counters.count_drop(Direction::Outbound, DropReason::Rule, len);
            return Some(Verdict::Drop(DropReason::Rule));
        }
        tally.packets += 1;
        tally.bytes += len as u64;
        forward_as_it_is(packet.bytes_mut());
        Some(Verdict::Forward(Side::Outside))
    }

    /// True if a flow that seems to have no mapping has a static mapping, or may get a mapping of a
    /// whole mapped address.
    #[inline]
    pub(super) fn is_static(&self, protocol: u8, internal: Internal, remote: AddressPort) -> bool {
        self.statics.external(internal.host, protocol).is_some()
            || self.look_up_internal(protocol, internal, remote).is_some()
    }
}
