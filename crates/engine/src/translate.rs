//! What happens to a packet, in the order of the specification's sections 3 to 7. Everything is
//! decided before the first byte is changed, so that an ICMP error can quote the packet as it came.
//! Fragments take a turn on the way (section 11): the first is translated as a whole packet is, the
//! others get its rewrite.
//!
//! A batch goes through three stages: all headers are read and the index lines fetched, then the
//! mappings' lines, then each packet is decided. The first two only warm caches; the third would come
//! to the same without them.

use crate::config::{Behavior, SideConfig};
use crate::engine::{Engine, direction_from, identify, quota_class};
use crate::external::Wish;
use crate::fragments::{Fragment, Later, Rewrite as FragmentRewrite};
use crate::identification;
use crate::packet::{Direction, Outcome, Packet, Side, Verdict};
use crate::parse::{Embedded, Headers, Kind, has_ports, parse};
use crate::respond::{Envelope, Message, echo_reply};
use crate::rewrite::{Rewrite, apply, apply_embedded};
use crate::rules::Ruling;
use crate::session::{Idle, Session, State, Way};
use crate::subscriber::Rate;
use crate::table::{NewMapping, SessionRef};
use crate::{Change, DropReason, Timestamp};
use natgate_wire::tcp::flags::RST;
use natgate_wire::{Icmp, Ipv4, icmp, protocol};

/// Packets whose cache misses overlap.
const STAGE: usize = 32;
/// Source of ICMP errors to the inside when no address is configured there (RFC 7600).
const DUMMY_ADDRESS: u32 = 0xc000_0008;
/// IP packets up to this size go out when no MTU is configured, bytes.
const DEFAULT_MTU: u16 = 1500;

/// What was decided of a packet.
type Fate = Result<Verdict, DropReason>;

/// Where an inbound packet goes: the mapping, and the session if there is one already.
#[derive(Clone, Copy, Debug)]
enum Found {
    Mapping(u32, Option<SessionRef>),
    /// A whole address is mapped; the mapping for this port is yet to be made: its internal address.
    Whole(u32),
}

/// The inbound view of a packet: by which mapping it comes in and from whom.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    index: u32,
    port: u16,
    remote: (u32, u16),
}

impl Engine {
    /// Translates a batch that came in on one side, in order: rewrites each packet in place and says
    /// what to do with it.
    ///
    /// # Panics
    /// When the slices differ in length or hold more than [`Engine::MAX_BATCH`].
    pub fn process(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        assert!(packets.len() == verdicts.len() && packets.len() <= Self::MAX_BATCH);
        if now.0 < self.now {
            self.counters.clock_backwards += 1;
        }
        self.now = self.now.max(now.0);
        for (packets, verdicts) in packets.chunks_mut(STAGE).zip(verdicts.chunks_mut(STAGE)) {
            let mut headers = [Err(DropReason::NotIpv4); STAGE];
            for (packet, headers) in packets.iter().zip(&mut headers) {
                *headers = parse(packet.bytes());
                if let Ok(headers) = headers {
                    self.prefetch_index(from, headers);
                }
            }
            for headers in headers.iter().flatten() {
                self.prefetch_mapping(from, headers);
            }
            for ((packet, headers), verdict) in packets.iter_mut().zip(&headers).zip(verdicts) {
                *verdict = self.decide(from, packet, headers);
            }
        }
    }

    #[inline]
    fn prefetch_index(&self, from: Side, headers: &Headers) {
        if !has_ports(headers.protocol) {
            return;
        }
        match from {
            Side::Inside => {
                let remote = headers.remote_outbound();
                let key = self.table.key(headers.protocol, headers.source, remote);
                self.table.prefetch_index(key);
            }
            Side::Outside => {
                let (address, port) = headers.destination;
                if let Some(index) = self.external.index(address) {
                    self.external.prefetch(headers.protocol, index, port);
                }
            }
        }
    }

    #[inline]
    fn prefetch_mapping(&self, from: Side, headers: &Headers) {
        if !has_ports(headers.protocol) {
            return;
        }
        match from {
            Side::Inside => {
                let remote = headers.remote_outbound();
                let key = self.table.key(headers.protocol, headers.source, remote);
                self.table.prefetch_candidate(key);
            }
            Side::Outside => {
                let (address, port) = headers.destination;
                let index = self.external.index(address);
                if let Some(slot) =
                    index.and_then(|i| self.external.owner(headers.protocol, i, port))
                {
                    self.table.prefetch_mapping(slot);
                }
            }
        }
    }

    /// Decides one packet and counts it.
    fn decide(
        &mut self,
        from: Side,
        packet: &mut Packet<'_>,
        headers: &Result<Headers, DropReason>,
    ) -> Verdict {
        let mut direction = direction_from(from);
        let (fate, len) = match headers {
            Err(reason) => (Err(*reason), packet.len()),
            Ok(headers) => {
                let len = usize::from(headers.total_len);
                packet.truncate(len);
                let bytes = packet.bytes_mut();
                let fate = match from {
                    Side::Inside => self.take_inside(bytes, headers, &mut direction),
                    Side::Outside => self.take_outside(bytes, headers, &mut direction),
                };
                (fate, len)
            }
        };
        match fate {
            // Counted when it is released or given up.
            Ok(Verdict::Held) => Verdict::Held,
            Ok(verdict) => {
                let outcome = match verdict {
                    Verdict::Reply(_) => Outcome::Replied,
                    _ => Outcome::Forwarded,
                };
                self.counters.count(direction, outcome, len);
                verdict
            }
            Err(reason) => {
                self.counters.count_drop(direction, reason, len);
                Verdict::Drop(reason)
            }
        }
    }

    // ---- from the inside ----

    fn take_inside(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        direction: &mut Direction,
    ) -> Fate {
        let (source, destination) = (headers.source.0, headers.destination.0);
        if self.is_ours(source) {
            return Err(DropReason::SpoofedSource);
        }
        let external = self.external.index(destination);
        if external.is_none() && self.is_own(destination) {
            *direction = Direction::Local;
            return self.local(bytes, headers, Side::Inside);
        }
        let ruling = self.rules.find(with_port(headers, headers.source), outer(headers));
        if ruling == Some(Ruling::Bypass) {
            return self.bypass(bytes, headers, Side::Inside);
        }
        let pool = match ruling {
            Some(Ruling::Pool { pool, by_source }) => {
                if !by_source && !self.is_subscriber(source) {
                    return Err(DropReason::NotSubscriber);
                }
                pool
            }
            _ if self.is_subscriber(source) => self.config.default_pool,
            _ => return Err(DropReason::NotSubscriber),
        };
        if let Some(index) = external {
            *direction = Direction::Hairpin;
            if !self.config.hairpinning {
                return Err(DropReason::HairpinDisabled);
            }
            self.check_transit(bytes, headers, Side::Inside, Side::Inside)?;
            let fate =
                self.by_fragment(bytes, headers, Side::Inside, direction, |engine, bytes| {
                    engine.hairpin(bytes, headers, pool, index)
                });
            if fate == Err(DropReason::NoMapping)
                && self.is_own(destination)
                && is_echo_request(bytes, headers)
            {
                *direction = Direction::Local;
                return self.local(bytes, headers, Side::Inside);
            }
            return fate;
        }
        if self.config.inside.network.is_some_and(|network| network.contains(destination)) {
            return Err(DropReason::SameSide);
        }
        self.check_transit(bytes, headers, Side::Inside, Side::Outside)?;
        self.by_fragment(bytes, headers, Side::Inside, direction, |engine, bytes| {
            engine.send_out(bytes, headers, pool)
        })
    }

    fn send_out(&mut self, bytes: &mut [u8], headers: &Headers, pool: usize) -> Fate {
        match headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => {
                self.translate_error_outbound(bytes, headers)?;
                return Ok(Verdict::Forward(Side::Outside));
            }
            _ => {}
        }
        let slot = self.outbound(bytes, headers, pool)?;
        let mapping = self.table.mapping(slot);
        let source = Some((mapping.external_address, mapping.external_port));
        apply(bytes, headers, Rewrite { source, destination: None });
        self.count_portless(headers);
        Ok(Verdict::Forward(Side::Outside))
    }

    /// The mapping that a packet from inside goes out by, made if need be, its session refreshed.
    fn outbound(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        pool: usize,
    ) -> Result<u32, DropReason> {
        let remote = headers.remote_outbound();
        let key = self.table.key(headers.protocol, headers.source, remote);
        let found = self.table.find(key).or_else(|| self.find_static(headers));
        let Some(slot) = found else {
            return self.outbound_new(bytes, headers, pool, remote);
        };
        match self.table.find_session(slot, remote) {
            Some(session) => self.refresh(session, Way::Out, headers),
            None => {
                self.may_open(headers)?;
                self.add_session(slot, remote, Way::Out, headers)?;
            }
        }
        Ok(slot)
    }

    /// A static mapping serves all remotes, also when the mapping behavior files others by remote.
    fn find_static(&self, headers: &Headers) -> Option<u32> {
        if self.config.mapping == Behavior::EndpointIndependent
            || self.config.statics.is_empty()
            || !has_ports(headers.protocol)
        {
            return None;
        }
        let key = crate::table::Key {
            protocol: headers.protocol,
            address: headers.source.0,
            port: headers.source.1,
            remote: (0, 0),
        };
        self.table.find(key).filter(|&slot| self.table.mapping(slot).is_static())
    }

    #[cold]
    fn outbound_new(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        pool: usize,
        remote: (u32, u16),
    ) -> Result<u32, DropReason> {
        self.may_open(headers)?;
        if let Some(index) = self.statics.external(headers.source.0) {
            let external = (self.external.address(index), headers.source.1);
            return self.add_whole(headers.source, external, remote, Way::Out, headers);
        }
        if headers.kind == (Kind::IcmpQuery { request: false }) {
            return Err(DropReason::NoMapping);
        }
        let made = self.make_mapping(headers, pool, remote);
        if let Err(reason) = made {
            match reason {
                DropReason::MappingRate | DropReason::PortQuota => {
                    self.report_quota(headers.source.0, headers.protocol);
                }
                DropReason::PoolExhausted => self.report_exhausted(pool, headers.protocol),
                _ => {}
            }
            if reason != DropReason::Ambiguous {
                self.answer(bytes, headers, Side::Inside, Message::HOST_UNREACHABLE);
            }
        }
        made
    }

    /// Makes a mapping within the subscriber's limits.
    fn make_mapping(
        &mut self,
        headers: &Headers,
        pool: usize,
        remote: (u32, u16),
    ) -> Result<u32, DropReason> {
        let (protocol, internal) = (headers.protocol, headers.source);
        let class = quota_class(protocol);
        let limits = &self.config.limits;
        let quota = [limits.tcp_ports, limits.udp_ports, limits.icmp_ports][class];
        let per_second = limits.new_mappings_per_second;
        let record = self.subscribers.find(internal.0);
        let (rate, held) = record.map_or((Rate::default(), 0), |at| {
            let record = self.subscribers.get(at);
            (record.rate, record.mappings[class])
        });
        if !rate.permits(self.now, per_second) {
            return Err(DropReason::MappingRate);
        }
        if held >= quota {
            return Err(DropReason::PortQuota);
        }
        if self.table.is_full() || !has_ports(protocol) && self.table.portless_is_full() {
            return Err(DropReason::MappingTableFull);
        }
        let paired = record.and_then(|at| self.subscribers.paired(at, pool));
        let (index, port) = self.choose_external(headers, pool, paired, remote)?;
        let record = self.subscribers.count(internal.0, pool, index, class);
        self.subscribers.get_mut(record).rate.count(self.now, per_second);
        let new = NewMapping {
            protocol,
            internal,
            external: (self.external.address(index), port),
            is_static: false,
            permanent: false,
        };
        let slot = self.install(new, index, remote, Way::Out, headers);
        let id = identify(self.table.mapping(slot));
        self.raise(self.now, Change::MappingCreated(id));
        Ok(slot)
    }

    fn choose_external(
        &mut self,
        headers: &Headers,
        pool: usize,
        paired: Option<u32>,
        remote: (u32, u16),
    ) -> Result<(u32, u16), DropReason> {
        let protocol = headers.protocol;
        if has_ports(protocol) {
            let wish = Wish { pool, protocol, internal_port: headers.source.1, paired };
            let chosen = self.external.choose(wish, &mut self.generator);
            return chosen.ok_or(DropReason::PoolExhausted);
        }
        let (table, external) = (&self.table, &self.external);
        let is_free =
            |index| table.find_portless(external.address(index), protocol, remote.0).is_none();
        let index = external.choose_portless(pool, paired, &mut self.generator, is_free);
        Ok((index.ok_or(DropReason::Ambiguous)?, 0))
    }

    /// Puts a new mapping with its first session into the table, which has room.
    fn install(
        &mut self,
        new: NewMapping,
        index: u32,
        remote: (u32, u16),
        way: Way,
        headers: &Headers,
    ) -> u32 {
        let session = self.new_session(remote, way, headers);
        let created = self.present_tick();
        let slot = self.table.add(new, session, created).expect("the table has room");
        self.table.schedule(SessionRef::First(slot), self.tick);
        if has_ports(new.protocol) {
            self.external.take(new.protocol, index, new.external.1, slot);
        }
        slot
    }

    /// Makes the mapping for one port of an address that is mapped as a whole.
    fn add_whole(
        &mut self,
        internal: (u32, u16),
        external: (u32, u16),
        remote: (u32, u16),
        way: Way,
        headers: &Headers,
    ) -> Result<u32, DropReason> {
        let protocol = headers.protocol;
        if self.table.is_full() || !has_ports(protocol) && self.table.portless_is_full() {
            return Err(DropReason::MappingTableFull);
        }
        let index = self.external.index(external.0).expect("a static address is external");
        let new = NewMapping { protocol, internal, external, is_static: true, permanent: false };
        Ok(self.install(new, index, remote, way, headers))
    }

    // ---- from the outside ----

    fn take_outside(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        direction: &mut Direction,
    ) -> Fate {
        let destination = headers.destination.0;
        if self.is_ours(headers.source.0) {
            return Err(DropReason::SpoofedSource);
        }
        let own = self.config.outside.address.is_some_and(|own| own.to_bits() == destination);
        let Some(index) = self.external.index(destination) else {
            if own {
                *direction = Direction::Local;
                return self.local(bytes, headers, Side::Outside);
            }
            let inner = with_port(headers, headers.destination);
            let outer = with_port(headers, headers.source);
            if self.rules.find(inner, outer) == Some(Ruling::Bypass) {
                return self.bypass(bytes, headers, Side::Outside);
            }
            return Err(DropReason::NotForUs);
        };
        if headers.kind == Kind::LaterFragment {
            self.check_transit(bytes, headers, Side::Outside, Side::Inside)?;
        }
        let fate = self.by_fragment(bytes, headers, Side::Outside, direction, |engine, bytes| {
            engine.inbound(bytes, headers, index)
        });
        if own && fate == Err(DropReason::NoMapping) && is_echo_request(bytes, headers) {
            *direction = Direction::Local;
            return self.local(bytes, headers, Side::Outside);
        }
        if matches!(fate, Err(DropReason::NoMapping | DropReason::Filtered))
            && headers.kind == Kind::Tcp
            && headers.segment.opens()
        {
            let envelope = Envelope {
                side: Side::Outside,
                source: destination,
                destination: headers.source.0,
            };
            self.remember_syn(envelope, headers.destination, headers.source, bytes);
        }
        fate
    }

    fn inbound(&mut self, bytes: &mut [u8], headers: &Headers, index: u32) -> Fate {
        match headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => {
                self.translate_error_inbound(bytes, headers, Side::Outside)?;
                return Ok(Verdict::Forward(Side::Inside));
            }
            _ => {}
        }
        let arrival =
            Arrival { index, port: headers.destination.1, remote: headers.remote_inbound() };
        let found = self.admit(headers, arrival)?;
        self.check_transit(bytes, headers, Side::Outside, Side::Inside)?;
        let slot = self.enter(headers, arrival, found)?;
        let mapping = self.table.mapping(slot);
        let destination = Some((mapping.internal_address, mapping.internal_port));
        apply(bytes, headers, Rewrite { source: None, destination });
        self.count_portless(headers);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Finds the mapping that a packet comes in by and asks the filter; changes nothing.
    fn admit(&self, headers: &Headers, arrival: Arrival) -> Result<Found, DropReason> {
        let Arrival { index, port, remote } = arrival;
        let owner = if has_ports(headers.protocol) {
            self.external.owner(headers.protocol, index, port)
        } else {
            let address = self.external.address(index);
            self.table.find_portless(address, headers.protocol, remote.0)
        };
        let Some(slot) = owner else {
            let internal = self.statics.internal(index).ok_or(DropReason::NoMapping)?;
            self.may_open(headers)?;
            return Ok(Found::Whole(internal));
        };
        let session = self.table.find_session(slot, remote);
        if session.is_none() {
            let admitted = self.table.mapping(slot).is_static()
                || match self.config.filtering {
                    Behavior::EndpointIndependent => true,
                    Behavior::AddressDependent => self.table.knows_address(slot, remote.0),
                    Behavior::AddressAndPortDependent => false,
                };
            if !admitted {
                return Err(DropReason::Filtered);
            }
            self.may_open(headers)?;
        }
        Ok(Found::Mapping(slot, session))
    }

    /// Lets an admitted packet in: refreshes its session or makes it.
    fn enter(
        &mut self,
        headers: &Headers,
        arrival: Arrival,
        found: Found,
    ) -> Result<u32, DropReason> {
        match found {
            Found::Mapping(slot, Some(session)) => {
                self.refresh(session, Way::In, headers);
                Ok(slot)
            }
            Found::Mapping(slot, None) => {
                self.add_session(slot, arrival.remote, Way::In, headers)?;
                Ok(slot)
            }
            Found::Whole(internal) => {
                let external = (self.external.address(arrival.index), arrival.port);
                let internal = (internal, arrival.port);
                self.add_whole(internal, external, arrival.remote, Way::In, headers)
            }
        }
    }

    // ---- hairpin ----

    fn hairpin(&mut self, bytes: &mut [u8], headers: &Headers, pool: usize, index: u32) -> Fate {
        match headers.kind {
            Kind::IcmpOther => return Err(DropReason::IcmpUnsupported),
            Kind::IcmpError => {
                self.hairpin_error(bytes, headers)?;
                return Ok(Verdict::Forward(Side::Inside));
            }
            _ => {}
        }
        let sender = self.outbound(bytes, headers, pool)?;
        let sender = self.table.mapping(sender);
        let source = (sender.external_address, sender.external_port);
        // A query's identifier is all it has of ports: outside, it would be the sender's.
        let query = matches!(headers.kind, Kind::IcmpQuery { .. });
        let arrival = Arrival {
            index,
            port: if query { source.1 } else { headers.destination.1 },
            remote: if query { (source.0, 0) } else { source },
        };
        let entered =
            self.admit(headers, arrival).and_then(|found| self.enter(headers, arrival, found));
        let receiver = match entered {
            Ok(slot) => self.table.mapping(slot),
            Err(reason) => {
                self.refuse_hairpin(bytes, headers, reason, arrival.remote);
                return Err(reason);
            }
        };
        let destination = Some((receiver.internal_address, receiver.internal_port));
        apply(bytes, headers, Rewrite { source: Some(source), destination });
        self.count_portless(headers);
        Ok(Verdict::Forward(Side::Inside))
    }

    /// Remembers a hairpinned SYN that was refused; its sender is told at its internal endpoint.
    fn refuse_hairpin(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        reason: DropReason,
        remote: (u32, u16),
    ) {
        if matches!(reason, DropReason::NoMapping | DropReason::Filtered)
            && headers.kind == Kind::Tcp
            && headers.segment.opens()
        {
            let envelope = Envelope {
                side: Side::Inside,
                source: headers.destination.0,
                destination: headers.source.0,
            };
            self.remember_syn(envelope, headers.destination, remote, bytes);
        }
    }

    // ---- fragments ----

    /// Translates a packet that is no fragment, or a first one; others get the first's rewrite.
    #[inline]
    fn by_fragment(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        from: Side,
        direction: &mut Direction,
        translate: impl FnOnce(&mut Self, &mut [u8]) -> Fate,
    ) -> Fate {
        if !headers.fragment {
            return translate(self, bytes);
        }
        let now = Timestamp(self.now);
        let packet = Ipv4::new_checked(&bytes[..]).expect("a parsed packet stays one");
        let fragment = Fragment::of(from, &packet).expect("it is a fragment");
        if headers.kind == Kind::LaterFragment {
            return match self.fragments.later(now, &fragment, bytes, &mut self.counters) {
                Later::Apply(rewrite) => {
                    rewrite.apply(bytes);
                    *direction = rewrite.direction;
                    Ok(Verdict::Forward(rewrite.out))
                }
                Later::Held => Ok(Verdict::Held),
                Later::Drop(reason) => Err(reason),
            };
        }
        self.fragments.first(now, &fragment, &mut self.counters)?;
        let fate = translate(self, bytes)
            .and_then(|verdict| self.identify_fragment(bytes, verdict, *direction));
        let rewrite = fate.ok().map(|(_, rewrite)| rewrite);
        self.fragments.decided(now, &fragment, rewrite, &mut self.counters);
        fate.map(|(verdict, _)| verdict)
    }

    /// Gives a translated first fragment an identification of its external address's own, and says
    /// what the rest of its datagram gets.
    fn identify_fragment(
        &mut self,
        bytes: &mut [u8],
        verdict: Verdict,
        direction: Direction,
    ) -> Result<(Verdict, FragmentRewrite), DropReason> {
        let Verdict::Forward(out) = verdict else { return Err(DropReason::LocalUnsupported) };
        let packet = Ipv4::new_checked(&bytes[..]).expect("a translated packet stays one");
        let (source, destination) = (packet.source(), packet.destination());
        let mut identification = packet.identification();
        if let Some(index) = self.external.index(source) {
            identification = self
                .identifications
                .next(Timestamp(self.now), index as usize)
                .ok_or(DropReason::FragmentLimit)?;
            identification::write(bytes, identification);
        }
        Ok((verdict, FragmentRewrite { source, destination, identification, out, direction }))
    }

    // ---- sessions ----

    /// Whether a packet may start a session: of TCP only a SYN, unless flows are picked up.
    fn may_open(&self, headers: &Headers) -> Result<(), DropReason> {
        let segment = headers.segment;
        let picked_up = self.config.tcp_pickup && segment.flags & RST == 0;
        if headers.kind != Kind::Tcp || segment.opens() || picked_up {
            Ok(())
        } else {
            Err(DropReason::TcpNotSyn)
        }
    }

    /// A session as its first packet makes it.
    fn new_session(&self, remote: (u32, u16), way: Way, headers: &Headers) -> Session {
        let mut session = Session::new(remote.0, remote.1);
        let idle = if headers.kind == Kind::Tcp {
            session.take_segment(way, headers.segment)
        } else {
            session.set_state(State::Open);
            Idle::Established
        };
        session.count(way);
        session.expires = self.deadline(self.now, self.idle_timeout(idle, headers.protocol));
        session
    }

    fn add_session(
        &mut self,
        slot: u32,
        remote: (u32, u16),
        way: Way,
        headers: &Headers,
    ) -> Result<(), DropReason> {
        if self.table.mapping(slot).sessions >= self.config.limits.sessions_per_mapping {
            return Err(DropReason::SessionLimit);
        }
        let session = self.new_session(remote, way, headers);
        let session = self.table.add_session(slot, session).ok_or(DropReason::SessionTableFull)?;
        self.table.schedule(session, self.tick);
        Ok(())
    }

    /// Counts a packet of a session, moves its state and restarts its timer as it is due.
    #[inline]
    fn refresh(&mut self, at: SessionRef, way: Way, headers: &Headers) {
        let session = self.table.session_mut(at);
        session.count(way);
        let idle = if headers.kind == Kind::Tcp {
            session.take_segment(way, headers.segment)
        } else {
            Idle::Established
        };
        let refreshes = way == Way::Out || self.config.inbound_refresh || idle == Idle::Closing;
        if idle == Idle::Keep || !refreshes {
            return;
        }
        let expires = self.deadline(self.now, self.idle_timeout(idle, headers.protocol));
        let session = self.table.session_mut(at);
        let sooner = expires < session.expires;
        session.expires = expires;
        if sooner {
            // A timer that fires too early only looks again; one too late would be wrong.
            self.table.schedule(at, self.tick);
        }
    }

    #[inline]
    fn idle_timeout(&self, idle: Idle, protocol: u8) -> u64 {
        match (protocol, idle) {
            (protocol::TCP, Idle::Opening) => self.timeouts.opening,
            (protocol::TCP, Idle::Closing) => self.timeouts.closing,
            (protocol::TCP, _) => self.timeouts.established,
            (protocol::UDP, _) => self.timeouts.udp,
            (protocol::ICMP, _) => self.timeouts.icmp,
            _ => self.timeouts.other,
        }
    }

    // ---- ICMP errors ----

    fn translate_error_outbound(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
    ) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        let external = self.error_external(&embedded)?;
        let rewrite = Rewrite { source: None, destination: Some(external) };
        apply_embedded(message, &embedded, rewrite);
        let outer = Rewrite { source: Some((external.0, 0)), destination: None };
        apply(bytes, headers, outer);
        Ok(())
    }

    /// The external endpoint of the session that an error from inside is about: the embedded packet
    /// went to its internal endpoint.
    fn error_external(&self, embedded: &Embedded) -> Result<(u32, u16), DropReason> {
        let remote = embedded.remote_of_destination();
        let key = self.table.key(embedded.protocol, embedded.destination, remote);
        let slot = self.table.find(key).or_else(|| self.find_static_error(embedded));
        let slot = slot.ok_or(DropReason::IcmpNoSession)?;
        self.table.find_session(slot, remote).ok_or(DropReason::IcmpNoSession)?;
        let mapping = self.table.mapping(slot);
        Ok((mapping.external_address, mapping.external_port))
    }

    fn find_static_error(&self, embedded: &Embedded) -> Option<u32> {
        let key = crate::table::Key {
            protocol: embedded.protocol,
            address: embedded.destination.0,
            port: embedded.destination.1,
            remote: (0, 0),
        };
        self.table.find(key).filter(|&slot| self.table.mapping(slot).is_static())
    }

    fn translate_error_inbound(
        &mut self,
        bytes: &mut [u8],
        headers: &Headers,
        from: Side,
    ) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        let internal = self.error_internal(&embedded, embedded.remote_of_source())?;
        self.check_transit(bytes, headers, from, Side::Inside)?;
        let message = &mut bytes[usize::from(headers.header_len)..];
        apply_embedded(message, &embedded, Rewrite { source: Some(internal), destination: None });
        apply(bytes, headers, Rewrite { source: None, destination: Some((internal.0, 0)) });
        Ok(())
    }

    /// The internal endpoint of the session that an error from outside is about: the embedded packet
    /// came from its external endpoint.
    fn error_internal(
        &self,
        embedded: &Embedded,
        remote: (u32, u16),
    ) -> Result<(u32, u16), DropReason> {
        let (address, port) = embedded.source;
        let index = self.external.index(address).ok_or(DropReason::IcmpNoSession)?;
        let owner = if has_ports(embedded.protocol) {
            self.external.owner(embedded.protocol, index, port)
        } else {
            self.table.find_portless(address, embedded.protocol, remote.0)
        };
        let slot = owner.ok_or(DropReason::IcmpNoSession)?;
        self.table.find_session(slot, remote).ok_or(DropReason::IcmpNoSession)?;
        let mapping = self.table.mapping(slot);
        Ok((mapping.internal_address, mapping.internal_port))
    }

    /// An error from inside about a hairpinned packet: translated as outbound, then as inbound.
    fn hairpin_error(&mut self, bytes: &mut [u8], headers: &Headers) -> Result<(), DropReason> {
        let message = &mut bytes[usize::from(headers.header_len)..];
        let embedded = Embedded::read(message)?;
        let external = self.error_external(&embedded)?;
        let query = embedded.protocol == protocol::ICMP;
        let remote = if query { (external.0, 0) } else { external };
        let mut seen_outside = embedded;
        if query {
            seen_outside.source.1 = external.1;
        }
        let internal = self.error_internal(&seen_outside, remote)?;
        let rewrite = Rewrite { source: Some(internal), destination: Some(external) };
        apply_embedded(message, &embedded, rewrite);
        let outer = Rewrite { source: Some((external.0, 0)), destination: Some((internal.0, 0)) };
        apply(bytes, headers, outer);
        Ok(())
    }

    // ---- the router's part ----

    /// Answers an echo request to the gateway itself.
    fn local(&mut self, bytes: &mut [u8], headers: &Headers, from: Side) -> Fate {
        if !is_echo_request(bytes, headers) {
            return Err(DropReason::LocalUnsupported);
        }
        echo_reply(bytes);
        Ok(Verdict::Reply(from))
    }

    /// Forwards a packet untranslated.
    fn bypass(&mut self, bytes: &mut [u8], headers: &Headers, from: Side) -> Fate {
        self.check_transit(bytes, headers, from, from.other())?;
        apply(bytes, headers, Rewrite::default());
        Ok(Verdict::Forward(from.other()))
    }

    /// Whether a packet may travel on: its TTL lasts and it fits.
    fn check_transit(
        &mut self,
        bytes: &[u8],
        headers: &Headers,
        from: Side,
        to: Side,
    ) -> Result<(), DropReason> {
        if headers.ttl <= 1 {
            self.answer(bytes, headers, from, Message::TTL_EXCEEDED);
            return Err(DropReason::TtlExceeded);
        }
        let mtu = self.side(to).mtu.unwrap_or(DEFAULT_MTU);
        if headers.dont_fragment && headers.total_len > mtu {
            self.answer(bytes, headers, from, Message::fragmentation_needed(mtu));
            return Err(DropReason::TooBig);
        }
        Ok(())
    }

    /// Sends an ICMP error about a packet back where it came from, unless it is of a kind that gets
    /// none (RFC 1812 section 4.3.2.7).
    fn answer(&mut self, bytes: &[u8], headers: &Headers, from: Side, message: Message) {
        let redirect = headers.kind == Kind::IcmpOther
            && bytes[usize::from(headers.header_len)] == icmp::kind::REDIRECT;
        if redirect || matches!(headers.kind, Kind::IcmpError | Kind::LaterFragment) {
            return;
        }
        let envelope =
            Envelope { side: from, source: self.own_address(from), destination: headers.source.0 };
        if !self.responder.send(self.now, message, envelope, bytes) {
            self.counters.errors_suppressed += 1;
        }
    }

    fn side(&self, side: Side) -> &SideConfig {
        match side {
            Side::Inside => &self.config.inside,
            Side::Outside => &self.config.outside,
        }
    }

    /// The source of ICMP errors that leave by a side.
    fn own_address(&self, side: Side) -> u32 {
        match (self.side(side).address, side) {
            (Some(address), _) => address.to_bits(),
            (None, Side::Inside) => DUMMY_ADDRESS,
            (None, Side::Outside) => self.external.address(0),
        }
    }

    fn is_own(&self, address: u32) -> bool {
        let own = [self.config.inside.address, self.config.outside.address];
        own.iter().flatten().any(|own| own.to_bits() == address)
    }

    fn is_ours(&self, address: u32) -> bool {
        self.is_own(address) || self.external.index(address).is_some()
    }

    fn is_subscriber(&self, address: u32) -> bool {
        let named =
            || self.config.statics.iter().any(|mapping| mapping.internal.0.to_bits() == address);
        self.config.subscribers.iter().any(|prefix| prefix.contains(address)) || named()
    }

    fn count_portless(&mut self, headers: &Headers) {
        if headers.kind == Kind::Portless {
            self.counters.portless += 1;
        }
    }
}

/// Whether a packet is an echo request that a host would answer.
fn is_echo_request(bytes: &[u8], headers: &Headers) -> bool {
    headers.kind == (Kind::IcmpQuery { request: true })
        && !headers.fragment
        && Icmp::new_checked(&bytes[usize::from(headers.header_len)..]).is_some_and(|message| {
            message.kind() == icmp::kind::ECHO_REQUEST && message.checksum_valid()
        })
}

/// The outer end of a packet from inside, as rules see it.
fn outer(headers: &Headers) -> (u32, u16) {
    with_port(headers, headers.destination)
}

/// An endpoint as rules see it: ICMP identifiers are no ports.
fn with_port(headers: &Headers, endpoint: (u32, u16)) -> (u32, u16) {
    match headers.kind {
        Kind::Tcp | Kind::Udp => endpoint,
        _ => (endpoint.0, 0),
    }
}
