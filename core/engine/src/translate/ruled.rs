//! New flows that need more than a port of the default pool: searches of rules for a group of flows
//! together, subscribers' own ports, and packets that rules drop or do not translate.

use super::Engine;
use super::parsed::ParsedHeaders;
use super::patch::forward_as_it_is;
use super::quick::{FlowRule, NewFlow, Round, Tally, new_flows};
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
    pub(super) fn ask_rules(
        &mut self,
        round: &Round,
        headers: &[ParsedHeaders],
        flows: &mut [NewFlow],
    ) {
        let mut next = Some(0);
        while let Some(realm) = next {
            if !self.rules_of(realm).is_empty() {
                self.ask_rules_of(realm, headers, flows);
            }
            if round.last_realm == 0 {
                break;
            }
            let later = headers.iter().filter(|one| one.is_new() && one.realm() > realm);
            next = later.map(ParsedHeaders::realm).min();
        }
    }

    /// Searches the rules of one realm for its packets, all searches together.
    #[inline(always)]
    fn ask_rules_of(&mut self, realm: u16, headers: &[ParsedHeaders], flows: &mut [NewFlow]) {
        let rules = self.realms.rules_of(&self.rules, realm);
        let searches = &mut self.searches;
        let is_asked = |headers: &ParsedHeaders| headers.is_new() && headers.realm() == realm;
        searches.clear();
        for headers in headers.iter().filter(|headers| is_asked(headers)) {
            searches.add(rules, headers.source(), headers.remote());
        }
        while searches.step(rules) {}
        let asked = new_flows(headers, flows).filter(|(headers, _)| is_asked(headers));
        for (number, (_, flow)) in asked.enumerate() {
            flow.rule = match searches.ruling(rules, number) {
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
    pub(super) fn draw_shares(&mut self, headers: &[ParsedHeaders], flows: &mut [NewFlow]) {
        let pool_of = |engine: &Self, headers: &ParsedHeaders, flow: &NewFlow| {
            let known = headers.is_new() && flow.record != NONE && flow.draw.is_none();
            let (pool, _) = known.then(|| engine.source_of(headers, flow))??;
            (!engine.external.is_shared(pool)).then_some(pool)
        };
        for (headers, flow) in headers.iter().zip(&*flows) {
            if let Some(pool) = pool_of(self, headers, flow) {
                self.external.approach_block(pool, headers.host(), headers.protocol);
            }
        }
        for (headers, flow) in headers.iter().zip(flows) {
            let Some(pool) = pool_of(self, headers, flow) else { continue };
            let host = headers.host();
            let paired = self.subscribers.paired(flow.record, pool);
            let wish = headers.wish(pool, self.external.pairing(pool, host, paired), None);
            flow.draw = self.external.draw_share(wish, host, &mut self.generator);
        }
    }

    /// The external endpoint of a new flow. `None`: the complete way finds one, or refuses.
    #[inline(always)]
    pub(super) fn external_of_draw(
        &mut self,
        headers: &ParsedHeaders,
        flow: &NewFlow,
        (draw, kind): (&Draw, usize),
    ) -> Option<External> {
        let external = match self.external.drawn(headers.protocol, draw, flow.port) {
            Some(external) => external,
            None => {
                // A subscriber that is refused draws nothing.
                self.subscribers.check_record(flow.record, kind, self.now).ok()?;
                self.draw_again(headers, flow, draw)?
            }
        };
        (!self.is_control_port(external.port)).then_some(external)
    }

    /// Chooses an external endpoint for a new flow whose draw failed, if the pool chooses ports
    /// freely.
    #[cold]
    fn draw_again(
        &mut self,
        headers: &ParsedHeaders,
        flow: &NewFlow,
        draw: &Draw,
    ) -> Option<External> {
        let (pool, fixed) = self.source_of(headers, flow)?;
        if !self.external.is_shared(pool) {
            return None;
        }
        let wish = headers.wish(pool, Some(draw.index()), fixed);
        self.external.choose(wish, self.subscribers.tenants(), &mut self.generator)
    }

    /// Stage four for a packet that a rule drops or does not translate. `None`: the packet needs
    /// more checks and takes the complete way.
    pub(super) fn untranslated(
        &mut self,
        round: &Round,
        headers: &ParsedHeaders,
        rule: FlowRule,
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> Option<Verdict> {
        let (source, destination) = (headers.source().address, headers.remote().address);
        if is_martian(source)
            || source == destination
            || !self.may_leave(headers.realm(), source, destination)
            || !self.may_be_remote(destination)
            || headers.total_len > round.mtu
        {
            return None;
        }
        let len = usize::from(headers.total_len);
        packet.truncate(len);
        if rule == FlowRule::Drop {
            self.counters.count_drop(Direction::Outbound, DropReason::Rule, len);
            tally.others += 1;
            return Some(Verdict::Drop(DropReason::Rule));
        }
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
