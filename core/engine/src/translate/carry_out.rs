//! The one place that does what a plan says: sessions and mappings are made or refreshed, the
//! packet is rewritten, its sender is told. Whatever could stand against it, the decision has
//! asked.

use super::Engine;
use super::decide::{Decision, Silent};
use super::mappings::Flow;
use super::plan::{Act, Answer, NewFlow, Plan, SessionPlan, Unsettled};
use crate::DropReason;
use crate::endpoint::{AddressPort, Internal};
use crate::packet::{Side, Verdict, direction_from};
use crate::parse::Headers;
use crate::reconfigure::Checked;
use crate::respond::{Envelope, Message, echo_reply};
use crate::rewrite::{Rewrite, apply, apply_embedded, apply_transit};
use crate::session::Way;

impl Engine {
    /// Decides about a packet that came in on a side, with a plan in which nothing stands yet. Work
    /// that the decision depends on is done.
    #[inline]
    pub(super) fn decide(
        &mut self,
        (bytes, headers): (&[u8], &mut Headers),
        from: Side,
        plan: &mut Plan,
        decide: impl Fn(&mut Decision<'_, Silent>) -> Result<(), Unsettled>,
    ) {
        loop {
            let mut draws = None;
            let decided = decide(&mut Decision {
                engine: self,
                now: self.now,
                bytes,
                headers,
                from,
                draws: &mut draws,
                recorder: &mut Silent,
                plan,
            });
            match decided {
                Ok(()) => {
                    if let Some(generator) = draws {
                        self.generator = generator;
                    }
                    return;
                }
                Err(Unsettled::Mapping(slot)) => {
                    // A step has more events than the queue may have room for within a batch.
                    self.keep_all_events(true);
                    let checked = self.ask_some(slot);
                    self.keep_all_events(false);
                    if checked == Checked::Going {
                        *plan = Plan::new(direction_from(from), headers.realm);
                        plan.fate = Err(DropReason::NoMapping);
                        return;
                    }
                }
                Err(Unsettled::Subscriber(record)) => self.subscribers.settle(record),
                Err(Unsettled::Reopened(session)) => {
                    self.remove_session_at(session, self.tick, self.now);
                }
            }
            *plan = Plan::new(direction_from(from), headers.realm);
        }
    }

    /// Carries out the plan for a packet that came in on a side. Afterwards the plan says what has
    /// come of it: a hairpinned packet has the plan for its receiver, and the table of fragments
    /// has had its word.
    #[inline]
    pub(super) fn carry_out(
        &mut self,
        bytes: &mut [u8],
        headers: &mut Headers,
        from: Side,
        plan: &mut Plan,
    ) {
        match plan.first {
            None if plan.fate.is_ok() => self.act(bytes, headers, from, plan),
            None => {}
            Some(fragment) => self.act_first(bytes, headers, from, plan, &fragment),
        }
        if plan.answer != Answer::None || plan.refused.is_some() {
            self.tell_sender(bytes, headers, from, plan);
        }
    }

    #[inline]
    pub(super) fn act(
        &mut self,
        bytes: &mut [u8],
        headers: &mut Headers,
        from: Side,
        plan: &mut Plan,
    ) {
        if let Act::Turn(by, index) = plan.act {
            let sender = self.go_out(headers, &by);
            let (first, source) = (plan.first, self.external_of(sender));
            *plan = Plan::new(plan.direction, headers.realm);
            self.decide((bytes, headers), from, plan, |it| it.take_turning(index, source));
            plan.first = first;
        }
        match &plan.act {
            Act::Nothing | Act::Turn(..) => {}
            Act::Echo => echo_reply(bytes),
            Act::Forward => apply_transit(bytes, headers),
            Act::Later(fragment) => {
                let fragment = *fragment;
                self.act_later(bytes, plan, &fragment);
            }
            Act::Send(by) => {
                let slot = self.go_out(headers, by);
                let source = self.external_of(slot);
                let destination = headers.new_destination(source.port);
                apply(bytes, headers, Rewrite { source: Some(source), destination });
                self.clamp_mss(bytes, headers);
                if plan.fate != Ok(Verdict::HandOver) {
                    self.count_portless(headers);
                }
            }
            Act::Receive { by, arrival, source } => {
                let slot = self.go_by(headers, by, Way::In, (arrival.remote, arrival.seen));
                let destination = Some(self.internal_of(slot));
                apply(bytes, headers, Rewrite { source: *source, destination });
                self.clamp_mss(bytes, headers);
                self.count_portless(headers);
            }
            Act::Error { embedded, inner, outer } => {
                let message = &mut bytes[usize::from(headers.header_len)..];
                apply_embedded(message, embedded, *inner);
                apply(bytes, headers, *outer);
            }
        }
    }

    // ---- sessions ----

    /// Has a packet from inside go by a session; says which mapping that is of.
    #[inline(always)]
    fn go_out(&mut self, headers: &Headers, by: &SessionPlan) -> u32 {
        self.go_by(headers, by, Way::Out, (headers.remote_outbound(), headers.remote_seen()))
    }

    /// Has a packet go by a session with a remote endpoint that is seen inside as another, or as
    /// what it is; says which mapping that is of.
    #[inline(always)]
    fn go_by(
        &mut self,
        headers: &Headers,
        by: &SessionPlan,
        way: Way,
        (remote, seen): (AddressPort, AddressPort),
    ) -> u32 {
        if let SessionPlan::Refresh(slot, session) = by {
            self.refresh(*session, way, headers);
            self.mark_control(*slot);
            return *slot;
        }
        let slot = self.begin_by(headers, by, way, remote);
        self.mark_control(slot);
        self.begun(slot, remote, seen);
        if way == Way::In && self.table.mapping(slot).is_explicit() {
            self.use_up(slot, seen);
        }
        slot
    }

    /// Makes the session that a packet goes by, if none is there.
    fn begin_by(
        &mut self,
        headers: &Headers,
        by: &SessionPlan,
        way: Way,
        remote: AddressPort,
    ) -> u32 {
        match by {
            SessionPlan::Refresh(slot, _) => *slot,
            SessionPlan::Begin(slot, record) => {
                self.add_session((*slot, *record), remote, way, headers);
                *slot
            }
            SessionPlan::Map(flow) => {
                self.add_mapping((flow, headers.internal()), headers, remote, way)
            }
            SessionPlan::MapToOwner(flow, internal) => {
                self.add_mapping((flow, *internal), headers, remote, way)
            }
            SessionPlan::MapWhole(whole) => self.add_whole(whole, remote, way, headers),
        }
    }

    fn add_mapping(
        &mut self,
        (new, internal): (&NewFlow, Internal),
        headers: &Headers,
        remote: AddressPort,
        way: Way,
    ) -> u32 {
        let NewFlow { snat, record, parts, overloads, chosen } = *new;
        let (protocol, pool) = (headers.protocol, snat.pool);
        self.take_block(chosen.block, internal.host, pool);
        let hash = self.table.hash(self.table.key(protocol, internal, remote));
        let session = self.new_session(remote, way, headers, snat.timeouts);
        if let Some(at) = record.filter(|_| parts) {
            self.subscribers.part(at, pool);
        }
        let (fixed, timeouts) = (snat.address.is_some(), snat.timeouts);
        let tick = self.present_tick();
        let flow =
            Flow { protocol, internal, pool, fixed, timeouts, record, hash, overloads, tick };
        let slot = self.add_dynamic(&flow, chosen.external, session);
        if way == Way::In {
            // No packet from inside waits for an answer.
            let first = &mut self.table.mapping_mut(slot).first;
            first.set_state(first.state());
        }
        self.note_answers(slot, way);
        slot
    }

    // ---- answers ----

    /// Tells of a refusal, and tells the sender of a packet that is dropped.
    fn tell_sender(&mut self, bytes: &[u8], headers: &Headers, from: Side, plan: &Plan) {
        if let (Some(pool), Err(reason)) = (plan.refused, plan.fate) {
            self.report_refusal(reason, headers.host(), pool, headers.protocol);
        }
        match plan.answer {
            Answer::None => {}
            Answer::Now(message) => self.answer(bytes, headers, from, message),
            Answer::Late(remote) => {
                let envelope = Envelope {
                    side: from,
                    realm: headers.realm,
                    source: headers.destination.address,
                    destination: headers.source.address,
                };
                let connection = (headers.protocol, headers.outside, remote);
                self.remember_syn(envelope, connection, bytes);
            }
        }
    }

    /// Sends an ICMP error about a packet back where it came from.
    fn answer(&mut self, bytes: &[u8], headers: &Headers, from: Side, message: Message) {
        let envelope = Envelope {
            side: from,
            realm: headers.realm,
            source: self.own_address(from, headers.realm),
            destination: headers.source.address,
        };
        if !self.responder.send(self.now, message, envelope, bytes) {
            self.counters.errors_suppressed += 1;
        }
    }
}
