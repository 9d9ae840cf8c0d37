//! Mappings that hosts request, and that stay without traffic until a time that host and gateway
//! know (section 16 of the specification). These are the effects of PCP's MAP and PEER on the
//! tables.
//!
//! A requested mapping is an ordinary mapping with a hold: a record beside the table with the end
//! of the hold, the nonce of later requests, and the remote endpoints that are admitted. A hold for
//! all remote endpoints keeps the mapping and admits remote endpoints by its filters. A hold for a
//! single remote endpoint keeps the session with that endpoint. Without its last hold the mapping
//! is like any other, and stays as long as its sessions do. Packets look at holds only if they come
//! from outside and would begin a session.

mod holds;
mod making;
mod once;
mod peer;

use crate::config::Behavior;
use crate::endpoint::{AddressPort, External, Internal};
use crate::engine::Engine;
use crate::event::Endpoint;
use crate::host::Host;
use crate::rules::{Ruling, Snat};
use crate::table::{Key, SessionRef};
use crate::time::nanos;
use crate::{DropReason, Timestamp};
use core::net::Ipv4Addr;
use core::time::Duration;
pub(crate) use holds::{Filters, Holds, New};
use natgate_wire::protocol::{DCCP, TCP, UDP};
pub use once::Keeper;

/// Secret of a mapping's owner. Later requests about the mapping prove themselves by it.
pub type Nonce = [u8; 12];

/// External UDP ports of the protocols themselves. No mapping gets these ports.
const OWN_PORTS: [u16; 2] = [5350, 5351];

/// Remote endpoints that may send packets to a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteFilter {
    /// The remote address, as seen from inside. Only its first bits count.
    pub address: u32,
    /// Number of bits of `address` that count.
    pub prefix_len: u8,
    /// The remote port; 0: any.
    pub port: u16,
}

impl RemoteFilter {
    /// Most filters of a mapping.
    pub const MOST: usize = 8;

    /// True if the filter admits a remote endpoint.
    pub fn admits(self, AddressPort { address, port }: AddressPort) -> bool {
        let ignored = 32 - u32::from(self.prefix_len.min(32));
        let differs = u64::from(address ^ self.address) >> ignored != 0;
        !differs && (self.port == 0 || self.port == port)
    }
}

/// The external endpoint that a request suggests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedEndpoint {
    /// The suggested address; `None`: any.
    pub address: Option<Ipv4Addr>,
    /// The suggested port; 0: any.
    pub port: u16,
    /// True if the request fails without this endpoint.
    pub strict: bool,
}

/// A host's request for a mapping towards all remote endpoints.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest<'r> {
    /// IP protocol number.
    pub protocol: u8,
    /// The host's realm.
    pub realm: u16,
    /// The host's endpoint.
    pub internal: Endpoint,
    /// The suggested external endpoint.
    pub wanted: WantedEndpoint,
    /// Duration of the hold.
    pub lifetime: Duration,
    /// Nonce that later requests about the mapping must have.
    pub nonce: Nonce,
    /// True if the mapping's present filters are removed.
    pub replaces_filters: bool,
    /// Filters to add.
    pub filters: &'r [RemoteFilter],
}

/// A host's request for a mapping towards one remote endpoint.
#[derive(Clone, Copy, Debug)]
pub struct PeerRequest {
    /// IP protocol number.
    pub protocol: u8,
    /// The host's realm.
    pub realm: u16,
    /// The host's endpoint.
    pub internal: Endpoint,
    /// The remote endpoint.
    pub remote: Endpoint,
    /// External endpoint that a new mapping must have. It is always strict.
    pub wanted: WantedEndpoint,
    /// Duration of the hold. Zero: only traffic keeps the mapping.
    pub lifetime: Duration,
    /// Nonce that later requests about the mapping must have.
    pub nonce: Nonce,
}

/// Answer to a request: the mapping that the host has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explicit {
    /// The mapping's external endpoint.
    pub external: Endpoint,
    /// Remaining duration of the mapping; `None`: no end.
    pub lifetime: Option<Duration>,
}

/// Reason why a request for a mapping failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplicitError {
    /// The host is no subscriber, or rules let its packets bypass translation.
    NotSubscriber,
    /// The mapping has another nonce. The duration is the mapping's remaining time.
    Nonce(Duration),
    /// The mapping was not made by a request.
    NotExplicit,
    /// The protocol does not allow requests.
    Protocol,
    /// The subscriber, or its class, is at the limit of mappings or of their rate.
    Quota,
    /// A table is full, or no port is free.
    Full,
    /// The external endpoint is not available.
    External,
    /// There are too many filters.
    Filters,
    /// No host can be reached at the remote endpoint.
    Remote,
    /// The other engine of a pair decides about the mapping, and the request would change it; or
    /// this engine may lack the copy of a mapping that the request ends.
    Others,
}

impl Engine {
    /// Makes a mapping for all remote endpoints at a host's request, or keeps the present mapping.
    ///
    /// # Errors
    /// [`ExplicitError`]. Nothing has changed then.
    pub fn map(
        &mut self,
        now: Timestamp,
        request: &MapRequest<'_>,
    ) -> Result<Explicit, ExplicitError> {
        self.reclaim(now);
        let MapRequest { protocol, realm, wanted, .. } = *request;
        let Internal { host, port } = self.check_host(protocol, realm, request.internal)?;
        let found = self.find_for_all(protocol, Internal::new(host, port));
        //= rfc6887#section-11.3-static
        //= rfc6887#section-11.3-existing-static
        if let Some(external) = self.static_end(protocol, Internal::new(host, port), found) {
            return as_wanted(wanted, Explicit { external, lifetime: None });
        }
        let snat = self.source_for(protocol, Internal::new(host, port), AddressPort::new(0, 0))?;
        let hold = found.and_then(|slot| self.holds.find(slot, None));
        //= rfc6887#section-11.3-nonce
        self.check_nonce(hold, request.nonce)?;
        let filters = self.holds.filters(hold, request.replaces_filters, request.filters);
        //= rfc6887#section-7.4-filters
        let filters = filters.ok_or(ExplicitError::Filters)?;
        if let Some(slot) = found.filter(|&slot| self.is_of_other(slot)) {
            let is_same = |hold: &u32| self.holds.get(*hold).filters == filters;
            return as_wanted(wanted, self.told_of_other(slot, hold.filter(is_same))?);
        }
        if hold.is_none() {
            self.check_room(host)?;
        }
        let slot = match found {
            //= rfc6887#section-11.3-existing-outbound
            //= rfc6886#section-3.3-existing
            Some(slot) => {
                let external = self.endpoint_of(slot);
                //= rfc6887#section-11.3-existing-prefer-failure
                as_wanted(wanted, Explicit { external, lifetime: None })?;
                if self.rings.has(slot) || is_reserved(protocol, external.port) {
                    return Err(ExplicitError::Full);
                }
                slot
            }
            None => self.make_for_all(protocol, Internal::new(host, port), snat, wanted)?,
        };
        self.note_asking(slot);
        let until = self.until(slot, request.lifetime);
        //= rfc6887#section-15-active
        //= rfc6887#section-15.1-closing
        self.table.set_permanent(slot, true);
        let nonce = request.nonce;
        //= rfc6887#section-11.3-existing-explicit
        self.holds.put(New { slot, remote: None, host, nonce, until, filters }, self.tick);
        self.note_change(slot);
        Ok(Explicit { external: self.endpoint_of(slot), lifetime: Some(self.time_to(until)) })
    }

    /// Gives up a mapping that [`Engine::map`] made. Returns the time for which its sessions still
    /// keep the mapping.
    ///
    /// # Errors
    /// [`ExplicitError::Nonce`]; [`ExplicitError::NotExplicit`] when the mapping was not requested;
    /// [`ExplicitError::Others`] when the other engine of a pair has it, or may have it.
    pub fn unmap(
        &mut self,
        now: Timestamp,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        nonce: Nonce,
    ) -> Result<Duration, ExplicitError> {
        self.observe(now);
        if !is_mapped(protocol) || !self.has_realm(realm) {
            return Ok(Duration::ZERO);
        }
        let end = Internal::new(Host::new(realm, internal.address.to_bits()), internal.port);
        let found = self.find_for_all(protocol, end);
        //= rfc6887#section-15.1-not-explicit
        //= rfc6886#section-3.4-manual
        if self.static_end(protocol, end, found).is_some() {
            return Err(ExplicitError::NotExplicit);
        }
        //= rfc6887#section-15.1-none
        //= rfc6886#section-3.4-none
        let Some(slot) = found else {
            return if self.may_lack_copies() {
                Err(ExplicitError::Others)
            } else {
                Ok(Duration::ZERO)
            };
        };
        let without = match self.is_of_other(slot) {
            // The owner may have granted the request, and its record is on its way.
            true => ExplicitError::Others,
            false => ExplicitError::NotExplicit,
        };
        let hold = self.holds.find(slot, None).ok_or(without)?;
        self.check_nonce(Some(hold), nonce)?;
        if self.is_of_other(slot) {
            return Err(ExplicitError::Others);
        }
        //= rfc6887#section-15-sooner
        let left = self.latest_session(slot).map_or(Duration::ZERO, |tick| self.time_to(tick));
        self.end_hold(hold, self.now);
        Ok(left)
    }

    /// Gives up all mappings of a protocol that a host requested with a nonce, as far as this
    /// engine decides about them.
    ///
    /// # Errors
    /// A mapping is left: [`ExplicitError::Others`] if the other engine of a pair has one, or may
    /// have one; [`ExplicitError::NotExplicit`] if one is static.
    pub fn unmap_all(
        &mut self,
        now: Timestamp,
        protocol: u8,
        realm: u16,
        host: Ipv4Addr,
        nonce: Nonce,
    ) -> Result<(), ExplicitError> {
        self.observe(now);
        if !self.has_realm(realm) {
            return Ok(());
        }
        let host = Host::new(realm, host.to_bits());
        let is_one = |engine: &Self, hold: u32, is_of_other: bool| {
            let of = engine.holds.get(hold);
            let mapping = engine.table.mapping(of.slot);
            of.remote.is_none()
                && of.nonce == nonce
                && mapping.protocol == protocol
                && mapping.host() == host
                && engine.is_of_other(of.slot) == is_of_other
        };
        loop {
            let hold = self.holds.of_subscriber(host).find(|&hold| is_one(self, hold, false));
            let Some(hold) = hold else { break };
            self.end_hold(hold, self.now);
        }
        let others = self.holds.of_subscriber(host).any(|hold| is_one(self, hold, true));
        if others || self.may_lack_copies() {
            return Err(ExplicitError::Others);
        }
        //= rfc6886#section-3.4-all-partly
        let mut others = self.config.statics.iter().filter(|one| one.realm == realm);
        let is_left = others.any(|one| {
            one.internal.0.to_bits() == host.address()
                && one.protocol.is_none_or(|only| only == protocol)
        });
        if is_left { Err(ExplicitError::NotExplicit) } else { Ok(()) }
    }

    /// The external address of a host's mappings of its default pool. If the host has no such
    /// mapping, the pool's only address. `None`: not known yet. An address that gives out no ports
    /// does not count if another one of the pool does: the host's next mapping gets that one.
    pub fn external_address(&self, realm: u16, host: Ipv4Addr) -> Option<Ipv4Addr> {
        let host = Host::new(realm, host.to_bits());
        if !self.has_realm(realm) {
            return None;
        }
        if let Some((index, _)) = self.statics.external(host, UDP) {
            return Some(Ipv4Addr::from_bits(self.external.address(index)));
        }
        let pool = self.config.default_pool_of(realm);
        let record = self.subscribers.find(host);
        let paired = record.and_then(|at| self.subscribers.paired(at, pool));
        let paired = self.external.pairing(pool, host, paired);
        let paired = paired.filter(|&index| !self.external.leaves(pool, index));
        let only = || self.external.only_address(pool);
        paired.or_else(only).map(|index| Ipv4Addr::from_bits(self.external.address(index)))
    }

    /// True if a remote endpoint has answered the subscriber of a host, or if no subscriber has to
    /// be answered to keep what it has ([`Limits::unanswered_give_way`](crate::Limits)).
    pub fn is_answered(&self, realm: u16, host: Ipv4Addr) -> bool {
        let record = self.subscribers.find(Host::new(realm, host.to_bits()));
        let is_answered = record.is_some_and(|at| !self.subscribers.is_unanswered(at));
        is_answered || !self.config.limits.unanswered_give_way
    }

    /// The external address of all default mappings of a realm, if the pool has only one address.
    pub fn sole_address(&self, realm: u16) -> Option<Ipv4Addr> {
        let pool = self.has_realm(realm).then(|| self.config.default_pool_of(realm))?;
        let index = self.external.only_address(pool)?;
        Some(Ipv4Addr::from_bits(self.external.address(index)))
    }

    /// Number of requested mappings that were lost to a new configuration or to the operator. Their
    /// hosts do not know of the loss.
    pub fn explicit_lost(&self) -> u64 {
        self.holds.lost
    }

    /// True if mappings for all remote endpoints may exist beside mappings of another kind of the
    /// same host: static mappings, or requested mappings where the mapping behavior depends on the
    /// remote.
    pub(crate) fn has_for_all(&self) -> bool {
        !self.config.statics.is_empty()
            || self.holds.has_room() && self.config.mapping != Behavior::EndpointIndependent
    }

    // ---- checks of a request ----

    fn check_host(
        &self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
    ) -> Result<Internal, ExplicitError> {
        //= rfc6887#section-11.3-protocol
        if !is_mapped(protocol) {
            return Err(ExplicitError::Protocol);
        }
        let address = internal.address.to_bits();
        // A number is no address, so it may equal an address of the gateway.
        let is_host = self.has_realm(realm)
            && internal.port != 0
            && (self.has_numbers(realm)
                || !crate::parse::is_martian(address)
                    && !self.is_ours(Some(realm), address)
                    && !self.is_broadcast(Some(realm), address));
        let end = || Internal::new(Host::new(realm, address), internal.port);
        is_host.then(end).ok_or(ExplicitError::NotSubscriber)
    }

    /// The source translation for packets of a host, if the host is translated. Requests for all
    /// remote endpoints use remote 0.0.0.0, port 0.
    fn source_for(
        &self,
        protocol: u8,
        Internal { host, port }: Internal,
        remote: AddressPort,
    ) -> Result<Snat, ExplicitError> {
        debug_assert!(is_mapped(protocol));
        match self.rules_of(host.realm()).find(AddressPort::new(host.address(), port), remote) {
            Some(Ruling::Snat(snat)) => Ok(snat),
            Some(Ruling::Bypass | Ruling::Drop) => Err(ExplicitError::NotSubscriber),
            None if self.is_subscriber(host) => {
                let pool = self.config.default_pool_of(host.realm());
                Ok(Snat::of_pool(pool))
            }
            None => Err(ExplicitError::NotSubscriber),
        }
    }

    /// Finds the mapping of an internal endpoint for all remote endpoints.
    fn find_for_all(&mut self, protocol: u8, internal: Internal) -> Option<u32> {
        loop {
            let slot =
                self.table.find(Key { protocol, internal, remote: AddressPort::new(0, 0) })?;
            if self.table.is_asked(slot) || self.ask(slot) {
                return Some(slot);
            }
        }
    }

    /// The external endpoint that a static mapping gives to an internal endpoint.
    fn static_end(
        &self,
        protocol: u8,
        Internal { host, port }: Internal,
        found: Option<u32>,
    ) -> Option<Endpoint> {
        if let Some((index, _)) = self.statics.external(host, protocol) {
            return Some(Endpoint::new(self.external.address(index), port));
        }
        let slot = found.filter(|&slot| self.table.mapping(slot).is_static())?;
        Some(self.endpoint_of(slot))
    }

    fn endpoint_of(&self, slot: u32) -> Endpoint {
        let External { index, port } = self.table.mapping(slot).external();
        Endpoint::new(self.external.address(index), port)
    }

    fn check_nonce(&self, hold: Option<u32>, nonce: Nonce) -> Result<(), ExplicitError> {
        match hold.map(|hold| self.holds.get(hold)) {
            Some(hold) if hold.nonce != nonce => {
                Err(ExplicitError::Nonce(self.time_to(hold.until)))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a host may have one more hold.
    fn check_room(&self, host: Host) -> Result<(), ExplicitError> {
        //= rfc6887#section-11.3-limit
        //= rfc6887#section-17.2
        let most = self.config.limits.explicit_per_subscriber as usize;
        if self.holds.of_subscriber(host).take(most).count() >= most {
            return Err(ExplicitError::Quota);
        }
        if self.holds.is_full() { Err(ExplicitError::Full) } else { Ok(()) }
    }

    /// True if the other engine of a pair decides about a mapping.
    fn is_of_other(&self, slot: u32) -> bool {
        let mapping = self.table.mapping(slot);
        !mapping.is_static() && self.is_others(mapping.external().index)
    }

    /// Answer to a request that changes nothing of a mapping about which the other engine decides.
    /// `hold`: the hold that the request asks for, if there is one. The lifetime told is within a
    /// hold-down: so long no other subscriber gets the port, whatever the owner does meanwhile.
    fn told_of_other(&self, slot: u32, hold: Option<u32>) -> Result<Explicit, ExplicitError> {
        let hold = self.holds.get(hold.ok_or(ExplicitError::Others)?);
        let left = self.time_to(hold.until).min(Duration::from_nanos(self.timeouts.hold_down));
        let is_some = left >= Duration::from_secs(1);
        let told = Explicit { external: self.endpoint_of(slot), lifetime: Some(left) };
        is_some.then_some(told).ok_or(ExplicitError::Others)
    }

    // ---- time ----

    /// The end of a hold that is requested now, as a tick. It is not before the end of the
    /// mapping's sessions.
    //= rfc6887#section-15-sooner
    fn until(&self, slot: u32, lifetime: Duration) -> u32 {
        let until = self.deadline(self.now, nanos(lifetime));
        self.latest_session(slot).map_or(until, |tick| tick.max(until))
    }

    /// The tick at which the last session of a mapping ends unless it is refreshed.
    fn latest_session(&self, slot: u32) -> Option<u32> {
        self.table.sessions(slot).map(|session| self.table.session(session).expires).max()
    }

    /// The time from now to a tick.
    fn time_to(&self, tick: u32) -> Duration {
        Duration::from_nanos(self.time_of(tick).saturating_sub(self.now))
    }

    /// The tick at which the last hold on a mapping ends, if there is a hold.
    pub(crate) fn held_at_most(&self, slot: u32) -> Option<u32> {
        let mapping = self.table.mapping(slot);
        mapping.is_explicit().then(|| self.holds.latest(mapping.host(), slot)).flatten()
    }

    /// Handles the due timer of a hold.
    pub(crate) fn hold_due(&mut self, hold: u32, tick: u32) {
        let slot = self.holds.get(hold).slot;
        if !self.table.is_asked(slot) && !self.ask(slot) {
            return;
        }
        let until = self.holds.get(hold).until;
        let External { index, .. } = self.table.mapping(slot).external();
        if until > tick {
            self.holds.schedule(hold, tick);
        } else if let Some(later) = self.keeps_hold(index, tick) {
            self.holds.wait(hold, later, tick);
        } else {
            self.end_hold(hold, self.time_of(tick));
        }
    }

    /// Removes a hold. Its mapping goes too if nothing else keeps it.
    fn end_hold(&mut self, hold: u32, time: u64) {
        let (slot, is_last) = self.holds.remove(hold);
        self.note_change(slot);
        if !is_last {
            return;
        }
        //= rfc6886#section-3.4-expire
        if self.table.mapping(slot).sessions == 0 {
            self.remove_mapping(slot, time);
        } else {
            //= rfc6887#section-12.3-reverts
            self.table.set_permanent(slot, false);
        }
    }

    /// Counts a session that is about to be removed before its time, if a host requested it.
    pub(crate) fn note_lost_session(&mut self, slot: u32, session: SessionRef) {
        let of = self.table.session(session);
        let hold = self.holds.find(slot, Some(of.remote()));
        self.holds.lost += u64::from(hold.is_some());
    }

    /// Removes the hold on a session that ends.
    pub(crate) fn end_session_hold(&mut self, slot: u32, remote: AddressPort) {
        if let Some(hold) = self.holds.find(slot, Some(remote)) {
            let (slot, is_last) = self.holds.remove(hold);
            if is_last {
                self.table.set_permanent(slot, false);
            }
        }
    }

    /// Removes the holds on sessions of a mapping.
    pub(crate) fn end_session_holds(&mut self, slot: u32) {
        let mapping = self.table.mapping(slot);
        if mapping.is_explicit() {
            let is_for_all = self.holds.remove_sessions(mapping.host(), slot);
            self.table.set_permanent(slot, is_for_all);
            self.note_change(slot);
        }
    }

    /// True if a remote endpoint, as seen from inside, may begin a session of a mapping with a hold
    /// for all. `None`: the mapping has no such hold.
    //= rfc6887#section-11-independent
    //= rfc6887#section-13.3-filter
    pub(crate) fn admits_held(&self, slot: u32, seen: AddressPort) -> Option<bool> {
        self.holds.find(slot, None).map(|hold| self.holds.get(hold).admits(seen))
    }
}

/// True if hosts may request mappings of a protocol.
pub(crate) fn is_mapped(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | DCCP)
}

fn is_reserved(protocol: u8, port: u16) -> bool {
    protocol == UDP && OWN_PORTS.contains(&port)
}

/// Returns the present mapping, or an error if the request accepts only another endpoint.
fn as_wanted(wanted: WantedEndpoint, explicit: Explicit) -> Result<Explicit, ExplicitError> {
    let Endpoint { address, port } = explicit.external;
    let is_it = wanted.address.is_none_or(|wanted| wanted == address)
        && (wanted.port == 0 || wanted.port == port);
    //= rfc6887#section-7.4-external
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
