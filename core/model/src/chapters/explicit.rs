//! Mappings that hosts request (specification, section 16).

use crate::allocation::Source;
use crate::bytes::is_martian;
use crate::chapters::MappingMarks;
use crate::points::DecisionPoints as _;
use crate::tcp::{Segment, State};
use crate::{Key, Model, tick};
use natgate_engine::{
    Allocation, Behavior, DropReason, Endpoint, Explicit, ExplicitError, MapRequest, MappingKind,
    Nonce, PeerRequest, Pooling, RemoteFilter, RuleAction, Side, Timestamp, WantedEndpoint,
};
use natgate_wire::protocol::{DCCP, TCP, UDP};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

/// A hold on a mapping, or on a session of it (16.1).
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    nonce: Nonce,
    pub(crate) until: Timestamp,
    filters: Vec<RemoteFilter>,
}

impl Hold {
    /// 16.13.
    pub(crate) fn admits(&self, remote: Endpoint) -> bool {
        let end = natgate_engine::AddressPort::new(remote.address.to_bits(), remote.port);
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.admits(end))
    }
}

/// The holds on a mapping: for all remote endpoints (`None`), or for one.
pub(crate) type Holds = BTreeMap<Option<Endpoint>, Hold>;

const UNSPECIFIED: Endpoint = Endpoint { address: Ipv4Addr::UNSPECIFIED, port: 0 };

type Asked<T> = Result<T, ExplicitError>;

impl Model {
    /// 16.7: grants or refuses a request for a mapping for all remote endpoints. `choice` is the
    /// engine's external endpoint, if it made a mapping.
    ///
    /// # Errors
    /// The errors of the same method of [`natgate_engine::Engine`].
    pub fn map(
        &mut self,
        now: Timestamp,
        request: &MapRequest<'_>,
        choice: Option<Endpoint>,
    ) -> Asked<Explicit> {
        self.see(now);
        let MapRequest { protocol, realm, internal, wanted, .. } = *request;
        self.check_host(protocol, realm, internal)?;
        if let Some((_, external)) = self.static_external(protocol, realm, internal) {
            return as_wanted(wanted, Explicit { external, lifetime: None });
        }
        let source = self.source_for(protocol, realm, internal, UNSPECIFIED)?;
        let key = self.key_for_all(protocol, realm, internal);
        let hold =
            self.mappings.get(&key).and_then(|mapping| mapping.marks.holds.get(&None)).cloned();
        self.check_nonce(hold.as_ref(), request.nonce)?;
        let had = hold.as_ref().filter(|_| !request.replaces_filters);
        let mut filters = had.map_or_else(Vec::new, |hold| hold.filters.clone());
        for filter in request.filters {
            if !filters.contains(filter) {
                filters.push(*filter);
            }
        }
        if filters.len() > RemoteFilter::MOST {
            return Err(ExplicitError::Filters);
        }
        if hold.is_none() {
            self.check_room(key)?;
        }
        let present = self.now;
        if let Some(mapping) = self.mappings.get(&key) {
            let external = mapping.external;
            as_wanted(wanted, Explicit { external, lifetime: None })?;
            if self.is_overloaded(key) || is_own_port(protocol, external.port) {
                return Err(ExplicitError::Full);
            }
        } else {
            let external = self.allot(key, source, wanted, choice)?;
            let until = present.plus(request.lifetime);
            let hold = Hold { nonce: request.nonce, until, filters: filters.clone() };
            let holds = Holds::from([(None, hold)]);
            let marks = MappingMarks { holds, ..MappingMarks::default() };
            self.make(key, source, external, UNSPECIFIED, marks);
        }
        self.note_asking(key);
        let mapping = self.mappings.get_mut(&key).expect("there, or just made");
        let latest = mapping.sessions.values().map(|session| session.expires).max();
        let until = present.plus(request.lifetime).max(latest.unwrap_or(Timestamp(0)));
        mapping.marks.holds.insert(None, Hold { nonce: request.nonce, until, filters });
        let external = mapping.external;
        Ok(Explicit { external, lifetime: Some(self.time_to(until)) })
    }

    /// 16.11: gives up a requested mapping.
    ///
    /// # Errors
    /// The errors of the same method of [`natgate_engine::Engine`].
    pub fn unmap(
        &mut self,
        now: Timestamp,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        nonce: Nonce,
    ) -> Asked<Duration> {
        self.see(now);
        if !is_mapped(protocol) || !self.config.has_realm(realm) {
            return Ok(Duration::ZERO);
        }
        if self.static_external(protocol, realm, internal).is_some() {
            return Err(ExplicitError::NotExplicit);
        }
        let key = self.key_for_all(protocol, realm, internal);
        let Some(mapping) = self.mappings.get(&key) else { return Ok(Duration::ZERO) };
        let hold = mapping.marks.holds.get(&None).ok_or(ExplicitError::NotExplicit)?;
        self.check_nonce(Some(hold), nonce)?;
        let latest = mapping.sessions.values().map(|session| session.expires).max();
        let left = latest.map_or(Duration::ZERO, |latest| self.time_to(latest));
        self.end_hold(key, None);
        Ok(left)
    }

    /// 16.15: grants or refuses a request for a session. `choice` is the engine's external
    /// endpoint, if it made a mapping.
    ///
    /// # Errors
    /// The errors of the same method of [`natgate_engine::Engine`].
    pub fn peer(
        &mut self,
        now: Timestamp,
        request: &PeerRequest,
        choice: Option<Endpoint>,
    ) -> Asked<Explicit> {
        self.see(now);
        let PeerRequest { protocol, realm, internal, remote, lifetime, nonce, .. } = *request;
        let wanted = WantedEndpoint { strict: true, ..request.wanted };
        self.check_host(protocol, realm, internal)?;
        self.check_remote(realm, remote)?;
        if let Some((_, external)) = self.static_external(protocol, realm, internal) {
            return as_wanted(wanted, Explicit { external, lifetime: None });
        }
        let source = self.source_for(protocol, realm, internal, remote)?;
        let other = self.dnat(protocol, realm, remote);
        let other = other.or_else(|| self.seen_as_another(protocol, realm, internal, remote));
        if other.is_some_and(|other| other != remote) {
            return Err(ExplicitError::Full);
        }
        let key = self.key_of(protocol, realm, internal, remote);
        let hold =
            self.mappings.get(&key).and_then(|mapping| mapping.marks.holds.get(&Some(remote)));
        self.check_nonce(hold, nonce)?;
        if hold.is_none() && !lifetime.is_zero() {
            self.check_room(key)?;
        }
        let has_session =
            self.mappings.get(&key).is_some_and(|one| one.sessions.contains_key(&remote));
        let is_there = self.mappings.contains_key(&key);
        if is_there && !lifetime.is_zero() && self.is_overloaded(key) {
            return Err(ExplicitError::Full);
        }
        if !has_session {
            self.begin_for(key, remote, request, (source, wanted), choice)?;
        }
        let present = self.now;
        let mapping = &self.mappings[&key];
        let (external, natural) = (mapping.external, mapping.sessions[&remote].expires);
        if lifetime.is_zero() {
            if mapping.marks.holds.contains_key(&Some(remote)) {
                self.end_hold(key, Some(remote));
            }
            return Ok(Explicit { external, lifetime: Some(self.time_to(natural)) });
        }
        self.note_asking(key);
        let until = present.plus(lifetime).max(natural);
        let mapping = self.mappings.get_mut(&key).expect("there, or just made");
        mapping.marks.holds.insert(Some(remote), Hold { nonce, until, filters: Vec::new() });
        Ok(Explicit { external, lifetime: Some(self.time_to(until)) })
    }

    /// Begins a session as the host's first packet would.
    fn begin_for(
        &mut self,
        key: Key,
        remote: Endpoint,
        request: &PeerRequest,
        (source, wanted): (Source, WantedEndpoint),
        choice: Option<Endpoint>,
    ) -> Asked<()> {
        if request.lifetime.is_zero() {
            return Err(ExplicitError::NotExplicit);
        }
        if let Some(mapping) = self.mappings.get(&key) {
            as_wanted(wanted, Explicit { external: mapping.external, lifetime: None })?;
            self.room_for_session(key, remote, Side::Inside).map_err(refusal)?;
        } else {
            let external = self.allot(key, source, wanted, choice)?;
            self.make(key, source, external, remote, MappingMarks::default());
        }
        let is_connected = matches!(key.protocol, TCP | DCCP);
        let first = is_connected.then(Segment::opening);
        self.touch(key, (remote, remote), Side::Inside, first);
        Ok(())
    }

    /// The key of a mapping for all remote endpoints.
    fn key_for_all(&self, protocol: u8, realm: u16, internal: Endpoint) -> Key {
        let host_bits = self.host_bits(realm).unwrap_or(0);
        Key { protocol, realm, internal, remote: None, beside: None, host_bits }
    }

    fn check_host(&self, protocol: u8, realm: u16, internal: Endpoint) -> Asked<()> {
        if !is_mapped(protocol) {
            return Err(ExplicitError::Protocol);
        }
        let address = internal.address.to_bits();
        let is_host = self.config.has_realm(realm)
            && internal.port != 0
            && (self.host_bits(realm).is_some()
                || !is_martian(address)
                    && !self.is_ours_in(realm, address)
                    && !self.is_broadcast_in(realm, address));
        if is_host { Ok(()) } else { Err(ExplicitError::NotSubscriber) }
    }

    fn check_remote(&self, realm: u16, remote: Endpoint) -> Asked<()> {
        let address = remote.address.to_bits();
        let nobody = remote.port == 0
            || is_martian(address)
            || self.is_ours_in(realm, address)
            || self.is_inside(realm, address)
            || self.is_routed_inside(realm, address)
            || self.is_broadcast_in(realm, address);
        if nobody { Err(ExplicitError::Remote) } else { Ok(()) }
    }

    fn is_ours_in(&self, realm: u16, address: u32) -> bool {
        self.is_own(realm, address) || self.is_external(address)
    }

    fn is_broadcast_in(&self, realm: u16, address: u32) -> bool {
        let sides = [self.config.inside_of(realm), &self.config.outside];
        let mut networks = sides.into_iter().filter_map(|side| side.network);
        networks.any(|net| net.len() <= 30 && [net.first(), net.last()].contains(&address))
            && !self.is_external(address)
    }

    fn source_for(
        &self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        remote: Endpoint,
    ) -> Asked<Source> {
        match self.rule_between(realm, protocol, internal, remote) {
            Some(RuleAction::Snat(pool)) => Ok((*pool, None)),
            Some(RuleAction::SnatTo(pool, address)) => Ok((*pool, Some(*address))),
            Some(_) => Err(ExplicitError::NotSubscriber),
            None => {
                let mut subscribers = self.config.subscribers_of(realm).iter();
                let host = (realm, internal.address);
                let is_subscriber = subscribers
                    .any(|prefix| prefix.contains(internal.address.to_bits()))
                    || self
                        .chapters
                        .fixed
                        .iter()
                        .any(|fixed| (fixed.realm, fixed.internal.0) == host);
                let pool = self.config.default_pool_of(realm);
                is_subscriber.then_some((pool, None)).ok_or(ExplicitError::NotSubscriber)
            }
        }
    }

    fn check_nonce(&self, hold: Option<&Hold>, nonce: Nonce) -> Asked<()> {
        match hold {
            Some(hold) if hold.nonce != nonce => {
                Err(ExplicitError::Nonce(self.time_to(hold.until)))
            }
            _ => Ok(()),
        }
    }

    fn check_room(&self, key: Key) -> Asked<()> {
        let limits = &self.config.limits;
        let own = self.mappings.iter().filter(|(other, _)| other.host() == key.host());
        let own: usize = own.map(|(_, mapping)| mapping.marks.holds.len()).sum();
        if own >= limits.explicit_per_subscriber as usize {
            return Err(ExplicitError::Quota);
        }
        let all: usize = self.mappings.values().map(|mapping| mapping.marks.holds.len()).sum();
        if all >= self.chapters.holds_room { Err(ExplicitError::Full) } else { Ok(()) }
    }

    /// True if another mapping has the same external port.
    fn is_overloaded(&self, key: Key) -> bool {
        let external = self.mappings[&key].external;
        self.dynamic().any(|(other, mapping)| {
            *other != key && other.protocol == key.protocol && mapping.external == external
        })
    }

    /// 16.20: chooses an external endpoint within the subscriber's limits.
    fn allot(
        &mut self,
        key: Key,
        source: Source,
        wanted: WantedEndpoint,
        choice: Option<Endpoint>,
    ) -> Asked<Endpoint> {
        let (pool, fixed) = source;
        if let Err(reason) = self.limits_permit(key, pool) {
            self.report(key, pool, reason);
            return Err(refusal(reason));
        }
        if fixed.is_some_and(|fixed| self.pool_of(fixed.to_bits()) != Some(pool)) {
            return Err(ExplicitError::Full);
        }
        let place = self.wanted_place(key, source, wanted);
        if wanted.address.is_some() && place.is_none() && wanted.strict {
            return Err(ExplicitError::External);
        }
        let only = || {
            let mut open = self.open_addresses(pool);
            open.next().filter(|_| open.next().is_none())
        };
        let likely = fixed.or(self.pair_of(key.host(), pool)).or_else(only);
        if wanted.port != 0
            && let Some(address) = place.or(likely)
            && self.may_take(key, pool, Endpoint { address, port: wanted.port })
        {
            return Ok(Endpoint { address, port: wanted.port });
        }
        if wanted.port != 0 && wanted.strict {
            return Err(ExplicitError::External);
        }
        let open = self.open_beside(key, source, place, wanted).map_err(|reason| {
            if reason == DropReason::PoolExhausted && place.is_some() && wanted.strict {
                return ExplicitError::External;
            }
            self.report(key, pool, reason);
            refusal(reason)
        })?;
        let chosen = match choice {
            Some(_) => self.choose(choice, &open),
            // A refused request would have got an endpoint at another address.
            None => {
                let elsewhere = open.iter().find(|end| Some(end.address) != place);
                *elsewhere.filter(|_| wanted.strict).unwrap_or(&open[0])
            }
        };
        match place {
            Some(place) if wanted.strict && chosen.address != place => Err(ExplicitError::External),
            _ => Ok(chosen),
        }
    }

    /// The suggested address, if the mapping may have it.
    fn wanted_place(
        &self,
        key: Key,
        (pool, fixed): Source,
        wanted: WantedEndpoint,
    ) -> Option<Ipv4Addr> {
        let bound = match self.config.pooling {
            Pooling::Paired => fixed.or(self.pair_of(key.host(), pool)),
            _ => fixed,
        };
        wanted.address.filter(|address| {
            bound.is_none_or(|bound| bound == *address) && self.is_open(*address, pool)
        })
    }

    /// The open endpoints at the suggested address, or at any.
    fn open_beside(
        &self,
        key: Key,
        (pool, fixed): Source,
        place: Option<Ipv4Addr>,
        wanted: WantedEndpoint,
    ) -> Result<Vec<Endpoint>, DropReason> {
        let here = place.filter(|_| fixed.is_none() && !self.is_shared_out(pool));
        let anywhere = || self.open_to_ask(key, (pool, fixed));
        match here.map(|here| self.open_to_ask(key, (pool, Some(here)))) {
            Some(Err(_)) if !wanted.strict => anywhere(),
            Some(open) => open,
            None => anywhere(),
        }
    }

    /// The endpoints that section 5 leaves open, without the protocols' own ports. In place of
    /// these ports the other free ports of their address are open, limited to the subscriber's own
    /// ports if it has any.
    fn open_to_ask(&self, key: Key, source: Source) -> Result<Vec<Endpoint>, DropReason> {
        let all = self.open_choices(key, source)?;
        let (pool, _) = source;
        let (reserved, mut open): (Vec<Endpoint>, Vec<Endpoint>) =
            all.into_iter().partition(|end| is_own_port(key.protocol, end.port));
        let addresses: BTreeSet<Ipv4Addr> = reserved.iter().map(|end| end.address).collect();
        for address in addresses {
            if open.iter().any(|end| end.address == address) {
                continue; // Of these.
            }
            let mut free = self.free_ports(key, pool, address);
            free.retain(|end| !is_own_port(key.protocol, end.port));
            open.extend(self.keep_parity(key, self.own_of(key, pool, free)));
        }
        if open.is_empty() { Err(DropReason::PoolExhausted) } else { Ok(open) }
    }

    /// True if a subscriber may have a suggested external endpoint.
    fn may_take(&self, key: Key, pool: usize, end: Endpoint) -> bool {
        let own = match self.config.allocation_of(&self.config.pools[pool]) {
            Allocation::Random | Allocation::Preserve => true,
            Allocation::Address if end.port != key.internal.port => false, // 5.66
            Allocation::Block(_) | Allocation::Address => {
                self.own_ports(key.host(), pool).is_some_and(|own| own.contains(&end))
            }
            Allocation::Deterministic(_) => {
                self.own_ports(key.host(), pool).is_some_and(|own| own.contains(&end))
                    || self.kind_of(key, pool, end) == MappingKind::Dynamic
            }
        };
        let used = self
            .mappings
            .iter()
            .any(|(other, one)| other.protocol == key.protocol && one.external == end);
        let (first, last) = self.config.pools[pool].ports;
        !is_own_port(key.protocol, end.port)
            && (first..=last).contains(&end.port)
            && self.gives_out(pool, key.protocol, end)
            && !used
            && !self.held.contains_key(&(key.protocol, end))
            && own
    }

    /// Removes a hold. The mapping goes if nothing else keeps it.
    fn end_hold(&mut self, key: Key, of: Option<Endpoint>) {
        let mapping = self.mappings.get_mut(&key).expect("it is held");
        if mapping.sessions.is_empty() && mapping.marks.holds.len() == 1 {
            self.remove_all(vec![key], self.now);
            self.note_empty_since_next_tick();
        } else {
            mapping.marks.holds.remove(&of);
        }
    }

    /// 16.18: keeps sessions with a hold as long as the hold, unless they are ending.
    pub(crate) fn extend_held_sessions(&mut self, time: Timestamp) {
        for mapping in self.mappings.values_mut() {
            for (remote, session) in &mut mapping.sessions {
                let held = mapping.marks.holds.get(&Some(*remote)).map(|hold| hold.until);
                let is_ending =
                    matches!(session.connection.state, Some(State::Closed | State::Transitory));
                if let Some(until) = held.filter(|until| tick(*until) > time)
                    && tick(session.expires) <= time
                    && !is_ending
                {
                    session.expires = until;
                }
            }
        }
    }

    /// 16.6: ends holds with their session, or with their time. A mapping without sessions keeps
    /// its last hold, and goes with it.
    pub(crate) fn end_holds(&mut self, time: Timestamp) {
        for mapping in self.mappings.values_mut() {
            let sessions = &mapping.sessions;
            let holds = &mut mapping.marks.holds;
            holds.retain(|of, _| of.is_none_or(|remote| sessions.contains_key(&remote)));
            if !sessions.is_empty() {
                holds.retain(|_, hold| tick(hold.until) > time);
            }
        }
    }

    /// The time from now to the tick of `time`.
    fn time_to(&self, time: Timestamp) -> Duration {
        tick(time).since(self.now)
    }

    /// True if mappings for all remote endpoints have keys of another kind than mappings by packets
    /// (16.25).
    pub(crate) fn files_apart(&self) -> bool {
        self.config.mapping != Behavior::EndpointIndependent
    }
}

fn is_mapped(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | DCCP)
}

fn is_own_port(protocol: u8, port: u16) -> bool {
    protocol == UDP && matches!(port, 5350 | 5351)
}

fn as_wanted(wanted: WantedEndpoint, explicit: Explicit) -> Asked<Explicit> {
    let Endpoint { address, port } = explicit.external;
    let is_it = wanted.address.is_none_or(|wanted| wanted == address)
        && (wanted.port == 0 || wanted.port == port);
    if is_it || !wanted.strict { Ok(explicit) } else { Err(ExplicitError::External) }
}

fn refusal(reason: DropReason) -> ExplicitError {
    match reason {
        DropReason::PortQuota | DropReason::MappingRate | DropReason::SessionLimit => {
            ExplicitError::Quota
        }
        DropReason::Ambiguous => ExplicitError::External,
        _ => ExplicitError::Full,
    }
}
