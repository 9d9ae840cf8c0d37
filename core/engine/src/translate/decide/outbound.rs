//! The mapping and the session that a packet from inside goes out by (sections 3.21 to 3.35 of the
//! specification).

use super::{Decided, Decision, Recorder, Step};
use crate::DropReason;
use crate::endpoint::{AddressPort, External};
use crate::external::{Chosen, Wish};
use crate::host::Host;
use crate::parse::Kind;
use crate::protocols::{has_ports, protocol_index};
use crate::rules::Snat;
use crate::session::Way;
use crate::translate::explain::AddressChoice;
use crate::translate::mappings::WholeMapping;
use crate::translate::overload::find_shared;
use crate::translate::plan::{NewFlow, SessionPlan, Stop};
use core::net::Ipv4Addr;

impl<R: Recorder> Decision<'_, R> {
    pub(super) fn outbound(&mut self, snat: Snat) -> Decided<SessionPlan> {
        let (engine, headers) = (self.engine, &*self.headers);
        let (remote, seen) = (headers.remote_outbound(), headers.remote_seen());
        let found = self.find_internal(headers.protocol, headers.internal(), remote)?;
        let Some(slot) = found else {
            self.note(Step::NoMapping);
            return self.outbound_new(snat, remote);
        };
        self.note_mapping(slot);
        match engine.table.find_session(slot, remote) {
            Some(session) => {
                engine.check_seen(slot, remote, seen)?;
                Ok(self.refresh(slot, session, Way::Out))
            }
            None => {
                self.note_no_session(remote);
                self.may_open()?;
                engine.check_room_to_see(remote, seen)?;
                self.begin_session(slot, remote, Way::Out)
            }
        }
    }

    #[cold]
    fn outbound_new(&mut self, snat: Snat, remote: AddressPort) -> Decided<SessionPlan> {
        let engine = self.engine;
        self.may_open()?;
        engine.check_room_to_see(remote, self.headers.remote_seen())?;
        let whole = engine.statics.external(self.headers.host(), self.headers.protocol);
        if let Some((index, begun)) = whole {
            self.note(Step::Whole(Ipv4Addr::from_bits(engine.external.address(index))));
            let external = External::new(index, self.headers.source.port);
            let whole = WholeMapping { internal: self.headers.internal(), external, begun };
            let planned = self.map_whole(whole, remote, Way::Out);
            if let Err(Stop::Drop(DropReason::MappingTableFull)) = planned {
                self.refuse();
            }
            return planned;
        }
        if self.headers.kind == (Kind::IcmpQuery { request: false }) {
            return Err(DropReason::NoMapping.into());
        }
        if !R::KEEPS && engine.is_left_alone(self.headers.host()) {
            return Err(Stop::Newcomer);
        }
        let planned = self.map(snat, remote);
        if let Err(Stop::Drop(reason)) = planned {
            self.plan.refused = Some(snat.pool);
            //= rfc5508#REQ-8
            //= rfc6888#REQ-11b
            if reason != DropReason::Ambiguous {
                self.refuse();
            }
        }
        planned
    }

    /// A new mapping within the subscriber's limits.
    fn map(&mut self, snat: Snat, remote: AddressPort) -> Decided<SessionPlan> {
        let engine = self.engine;
        let (protocol, internal, pool) =
            (self.headers.protocol, self.headers.internal(), snat.pool);
        let record = self.settled(engine.subscribers.find(internal.host))?;
        let known = record.is_some_and(|at| engine.subscribers.has(at, pool));
        let subscriber = (record, internal.host);
        engine.limits_permit(subscriber, known, protocol, self.now, self.recorder)?;
        if R::KEEPS {
            let has_ports = has_ports(protocol);
            let free = has_ports.then(|| engine.external.free_of(pool, protocol_index(protocol)));
            self.note(Step::Pool { pool, free });
        }
        let (wish, parts) = engine.wish(protocol, internal, snat, record)?;
        let (chosen, overloads) = self.choose(wish, internal.host, remote)?;
        self.note_new_session(remote, Way::Out, snat.timeouts);
        Ok(SessionPlan::Map(NewFlow { snat, record, parts, overloads, chosen }))
    }

    /// An external endpoint for a new mapping, and whether it is in use.
    fn choose(
        &mut self,
        wish: Wish,
        subscriber: Host,
        remote: AddressPort,
    ) -> Decided<(Chosen, bool)> {
        let engine = self.engine;
        self.begin_to_draw();
        let generator = self.draws.as_mut().expect("it was just made");
        let chosen = engine.choose_external(wish, subscriber, remote, generator, self.recorder);
        let reason = match chosen {
            Ok(chosen) => return Ok((chosen, false)),
            Err(reason) => reason,
        };
        let parts = (&engine.table, &engine.external);
        if engine.config.pools[wish.pool].overloading {
            // Only so many ports are looked at, from a random one on.
            self.recorder.doubt();
        }
        let shared = find_shared(&engine.config, parts, (wish, subscriber), remote, generator);
        let external = shared.ok_or(reason)?;
        self.note(Step::Overload);
        self.note(Step::Address { why: AddressChoice::Drawn, address: None });
        self.note(Step::Port(None));
        Ok((Chosen { external, block: None }, true))
    }
}
