//! Sessions that a packet begins or refreshes: whether it may, and what the recorder is told.

use super::limits::note_of;
use super::{Decided, Decision, Recorder, Step};
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::Chosen;
use crate::host::Host;
use crate::limits::{Filled, Limit, LimitOwner};
use crate::parse::Kind;
use crate::protocols::{has_ports, quota_class};
use crate::rules::Snat;
use crate::session::{Session, State, Way};
use crate::table::{NewMapping, SessionRef};
use crate::translate::explain::endpoint;
use crate::translate::mappings::{Arrival, WholeMapping, begin, is_refreshed, step};
use crate::translate::plan::{NewFlow, SessionPlan, Unsettled};
use crate::{DropReason, Timestamp};
use natgate_wire::protocol::DCCP;
use natgate_wire::tcp::flags::RST;

impl<R: Recorder> Decision<'_, R> {
    /// Checks that the packet may start a session: of TCP only a SYN, unless flows are picked up.
    pub(super) fn may_open(&mut self) -> Decided<()> {
        let segment = self.headers.segment;
        //= rfc6146#section-3.5.2-closed
        let picked_up = self.engine.config.tcp_pickup && segment.flags & RST == 0;
        if !matches!(self.headers.kind, Kind::Tcp | Kind::Dccp) {
            return Ok(());
        }
        let opens = segment.opens() || picked_up;
        self.note(Step::Opens(opens));
        if opens { Ok(()) } else { Err(DropReason::TcpNotSyn.into()) }
    }

    /// A subscriber's record, which must be of a class.
    pub(super) fn settled(&self, record: Option<u32>) -> Decided<Option<u32>> {
        match record {
            Some(at) if !R::KEEPS && !self.engine.subscribers.is_settled(at) => {
                Err(Unsettled::Subscriber(at).into())
            }
            _ => Ok(record),
        }
    }

    /// A new session of a mapping that is there.
    pub(super) fn begin_session(
        &mut self,
        slot: u32,
        remote: AddressPort,
        way: Way,
    ) -> Decided<SessionPlan> {
        let engine = self.engine;
        let mapping = engine.table.mapping(slot);
        let record = match mapping.is_static() {
            true => None,
            false => self.settled(engine.subscribers.find(mapping.host()))?,
        };
        engine.permits_session((slot, record), remote, way, self.now, self.recorder)?;
        self.note_new_session(remote, way, mapping.timeouts());
        Ok(SessionPlan::Begin(slot, record))
    }

    /// A new mapping for one port of an address that is mapped as a whole.
    pub(super) fn map_whole(
        &mut self,
        whole: WholeMapping,
        remote: AddressPort,
        way: Way,
    ) -> Decided<SessionPlan> {
        let (engine, protocol) = (self.engine, self.headers.protocol);
        let External { index, port } = whole.external;
        if has_ports(protocol) {
            self.judged(engine.external.owner(protocol, index, port))?;
        }
        if (protocol, port) == (DCCP, 0) {
            // A reserved port, which stands for the whole address while a pair guards it.
            return Err(DropReason::NoMapping.into());
        }
        if engine.table.clashes(&whole.as_new(protocol), remote) {
            return Err(DropReason::Ambiguous.into());
        }
        let Filled { used, most } = engine.statics.filled(index, protocol);
        let counts = (used.into(), most.into());
        note_of(self.recorder, LimitOwner::Static, Limit::Mappings, counts);
        if used >= most {
            return Err(DropReason::MappingTableFull.into());
        }
        self.note_new_session(remote, way, 0);
        Ok(SessionPlan::MapWhole(whole))
    }

    /// A new mapping of the port of an inbound packet, at the address that a host has. Remote
    /// endpoints get half of what the host may have.
    #[cold]
    pub(super) fn map_to_owner(&mut self, arrival: Arrival, host: Host) -> Decided<SessionPlan> {
        let (engine, protocol) = (self.engine, self.headers.protocol);
        let Arrival { index, port, remote, .. } = arrival;
        let record = self.settled(engine.subscribers.find(host))?;
        let at = record.expect("a host with an address in use has a record");
        engine.subscribers.permits_inbound(at, quota_class(protocol), self.now)?;
        engine.limits_permit((record, host), true, protocol, self.now, self.recorder)?;
        let (external, internal) = (External::new(index, port), Internal::new(host, port));
        let new = NewMapping {
            protocol,
            internal,
            external,
            timeouts: 0,
            is_static: false,
            permanent: false,
            flags: 0,
        };
        if engine.table.clashes(&new, remote) {
            return Err(DropReason::Ambiguous.into());
        }
        let snat = Snat::of_pool(engine.external.pool_of(index));
        let chosen = Chosen { external, block: None };
        let flow = NewFlow { snat, record, parts: false, overloads: false, chosen };
        self.note_new_session(remote, Way::In, 0);
        Ok(SessionPlan::MapToOwner(flow, internal))
    }

    /// Notes the session that the packet begins, of a mapping with this set of timeouts.
    pub(super) fn note_new_session(&mut self, remote: AddressPort, way: Way, timeouts: u8) {
        if R::KEEPS {
            let mut session = Session::new(remote);
            let idle = begin(&mut session, way, self.headers);
            let protocol = self.headers.protocol;
            let timeout = self.engine.timeouts.of(timeouts, idle, protocol, remote.port);
            let state = session.state().name();
            self.note(Step::NewSession { remote: endpoint(remote), state });
            self.note(Step::Timer(timeout));
        }
    }

    /// A session that is there.
    pub(super) fn refresh(&mut self, slot: u32, at: SessionRef, way: Way) -> SessionPlan {
        if R::KEEPS {
            self.note_refresh(slot, at, way);
        }
        SessionPlan::Refresh(slot, at)
    }

    fn note_refresh(&mut self, slot: u32, at: SessionRef, way: Way) {
        let engine = self.engine;
        let before = *engine.table.session(at);
        let mut session = before;
        let idle = step(&mut session, way, self.headers);
        let refreshed = is_refreshed(idle, way, engine.config.inbound_refresh);
        let next = match before.state() {
            // Only the inside brings back what is about to go.
            State::Transitory if !refreshed => State::Transitory,
            _ => session.state(),
        };
        self.note(Step::Session {
            remote: endpoint(before.remote()),
            state: before.state().name(),
            next: next.name(),
            expires: Timestamp(engine.time_of(before.expires)),
        });
        let set = engine.table.mapping(slot).timeouts();
        let timeout = engine.timeouts.of(set, idle, self.headers.protocol, before.remote().port);
        self.note(if refreshed { Step::Timer(timeout) } else { Step::NotRefreshed });
    }
}
