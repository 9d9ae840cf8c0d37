//! Mappings that a subscriber's host has asked for, and that stay without traffic until a time that
//! both know (section 16 of the specification): what PCP's MAP and PEER come to in the table.
//!
//! Such a mapping is an ordinary one with a hold on it: a record beside the table that says until
//! when, by which nonce it can be asked for again, and from where packets may come. A hold for all
//! remote endpoints keeps the mapping and lets in whoever its filters admit; one for a single
//! remote endpoint keeps the session with that. When the last hold goes, the mapping is as any
//! other, and stays as long as its sessions do. So packets never look at holds, but for one that
//! comes from outside and is to begin a session.

mod holds;
mod making;
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

/// What whoever made a mapping proves that by.
pub type Nonce = [u8; 12];

/// External UDP ports that are the protocols' own, and so nobody's.
const OWN_PORTS: [u16; 2] = [5350, 5351];

/// Where packets to a mapping may come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteFilter {
    /// The first bits of the remote address, as seen from inside.
    pub address: u32,
    /// How many of them count.
    pub prefix_len: u8,
    /// The remote port; 0: any.
    pub port: u16,
}

impl RemoteFilter {
    /// Most filters of a mapping.
    pub const MOST: usize = 8;

    /// Whether a remote endpoint is admitted.
    pub fn admits(self, AddressPort { address, port }: AddressPort) -> bool {
        let ignored = 32 - u32::from(self.prefix_len.min(32));
        let differs = u64::from(address ^ self.address) >> ignored != 0;
        !differs && (self.port == 0 || self.port == port)
    }
}

/// The external endpoint that somebody would like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedEndpoint {
    /// Its address; `None`: any.
    pub address: Option<Ipv4Addr>,
    /// Its port; 0: any.
    pub port: u16,
    /// Whether another is of no use.
    pub strict: bool,
}

/// A mapping for all remote endpoints that a host asks for.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest<'r> {
    /// IP protocol number.
    pub protocol: u8,
    /// The host's realm.
    pub realm: u16,
    /// Its endpoint.
    pub internal: Endpoint,
    /// What it is to be mapped to.
    pub wanted: WantedEndpoint,
    /// For how long.
    pub lifetime: Duration,
    /// What later requests about it will have.
    pub nonce: Nonce,
    /// Whether those filters go that it has.
    pub replaces_filters: bool,
    /// Filters that it gets.
    pub filters: &'r [RemoteFilter],
}

/// A mapping towards one remote endpoint that a host asks for.
#[derive(Clone, Copy, Debug)]
pub struct PeerRequest {
    /// IP protocol number.
    pub protocol: u8,
    /// The host's realm.
    pub realm: u16,
    /// Its endpoint.
    pub internal: Endpoint,
    /// The remote endpoint.
    pub remote: Endpoint,
    /// What it must be mapped to, if there is no such mapping yet; always strict.
    pub wanted: WantedEndpoint,
    /// For how long; zero: no longer than traffic keeps it.
    pub lifetime: Duration,
    /// What later requests about it will have.
    pub nonce: Nonce,
}

/// A mapping that a host has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explicit {
    /// Its external endpoint.
    pub external: Endpoint,
    /// How long it will be there; `None`: it does not end.
    pub lifetime: Option<Duration>,
}

/// Why a host has not got a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExplicitError {
    /// The host is no subscriber, or rules send its packets past the translator.
    NotSubscriber,
    /// The mapping was asked for with another nonce, and is there for so long.
    Nonce(Duration),
    /// The mapping is not one that was asked for.
    NotExplicit,
    /// The protocol has no such mappings.
    Protocol,
    /// The subscriber, or its class, has as many mappings as it may have, or makes them too fast.
    Quota,
    /// There is no room, or no port.
    Full,
    /// The external endpoint cannot be had.
    External,
    /// So many filters are not possible.
    Filters,
    /// Nobody can be reached at the remote endpoint.
    Remote,
}

impl Engine {
    /// Makes a mapping for all remote endpoints that a host asks for, or keeps one that is there.
    ///
    /// # Errors
    /// [`ExplicitError`]; then nothing has changed.
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
        self.note_asking(host);
        let until = self.until(slot, request.lifetime);
        //= rfc6887#section-15-active
        //= rfc6887#section-15.1-closing
        self.table.set_permanent(slot, true);
        let nonce = request.nonce;
        //= rfc6887#section-11.3-existing-explicit
        self.holds.put(New { slot, remote: None, host, nonce, until, filters }, self.tick);
        Ok(Explicit { external: self.endpoint_of(slot), lifetime: Some(self.time_to(until)) })
    }

    /// Gives up a mapping that [`Engine::map`] made; returns how long it will be there still, for
    /// its sessions keep it.
    ///
    /// # Errors
    /// [`ExplicitError::Nonce`], or [`ExplicitError::NotExplicit`] when it was made otherwise.
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
        let Some(slot) = found else { return Ok(Duration::ZERO) };
        let hold = self.holds.find(slot, None).ok_or(ExplicitError::NotExplicit)?;
        self.check_nonce(Some(hold), nonce)?;
        //= rfc6887#section-15-sooner
        let left = self.latest_session(slot).map_or(Duration::ZERO, |tick| self.time_to(tick));
        self.end_hold(hold, self.now);
        Ok(left)
    }

    /// Gives up all mappings of a protocol that a host has asked for with a nonce; returns whether
    /// nothing is left.
    pub fn unmap_all(
        &mut self,
        now: Timestamp,
        protocol: u8,
        realm: u16,
        host: Ipv4Addr,
        nonce: Nonce,
    ) -> bool {
        self.observe(now);
        if !self.has_realm(realm) {
            return true;
        }
        let host = Host::new(realm, host.to_bits());
        let is_one = |engine: &Self, hold: u32| {
            let of = engine.holds.get(hold);
            let mapping = engine.table.mapping(of.slot);
            of.remote.is_none() && of.nonce == nonce && mapping.protocol == protocol
        };
        loop {
            let hold = self.holds.of_host(host).find(|&hold| is_one(self, hold));
            let Some(hold) = hold else { break };
            self.end_hold(hold, self.now);
        }
        //= rfc6886#section-3.4-all-partly
        let mut others = self.config.statics.iter().filter(|one| one.realm == realm);
        !others.any(|one| {
            one.internal.0.to_bits() == host.address()
                && one.protocol.is_none_or(|only| only == protocol)
        })
    }

    /// The external address that a host's mappings have, if it has any of the pool that is its by
    /// default, or must have, as it is the only one.
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
        let only = || self.external.only_address(pool);
        paired.or_else(only).map(|index| Ipv4Addr::from_bits(self.external.address(index)))
    }

    /// The external address that all of a realm's mappings have by default, if it has no other.
    pub fn sole_address(&self, realm: u16) -> Option<Ipv4Addr> {
        let pool = self.has_realm(realm).then(|| self.config.default_pool_of(realm))?;
        let index = self.external.only_address(pool)?;
        Some(Ipv4Addr::from_bits(self.external.address(index)))
    }

    /// How many mappings that hosts had asked for have been lost to other settings, or to the
    /// operator: those hosts do not know.
    pub fn explicit_lost(&self) -> u64 {
        self.holds.lost
    }

    /// Whether there may be mappings for all remote endpoints that others of their hosts are not:
    /// static ones, or those that hosts ask for where the mapping behavior files others by remote.
    pub(crate) fn has_for_all(&self) -> bool {
        !self.config.statics.is_empty()
            || self.holds.has_room() && self.config.mapping != Behavior::EndpointIndependent
    }

    // ---- what is asked of a request ----

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
        let is_host = self.has_realm(realm)
            && internal.port != 0
            && !crate::parse::is_martian(address)
            && !self.is_ours(Some(realm), address)
            && !self.is_broadcast(Some(realm), address);
        let end = || Internal::new(Host::new(realm, address), internal.port);
        is_host.then(end).ok_or(ExplicitError::NotSubscriber)
    }

    /// Where what a host begins goes out, if it is translated at all; towards all remote endpoints
    /// as towards 0.0.0.0, port 0.
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
                Ok(Snat { pool, address: None, timeouts: 0 })
            }
            None => Err(ExplicitError::NotSubscriber),
        }
    }

    /// The mapping of an internal endpoint that is for all remote endpoints.
    fn find_for_all(&mut self, protocol: u8, internal: Internal) -> Option<u32> {
        loop {
            let slot =
                self.table.find(Key { protocol, internal, remote: AddressPort::new(0, 0) })?;
            if self.table.is_asked(slot) || self.ask(slot) {
                return Some(slot);
            }
        }
    }

    /// The external endpoint of an internal one that the operator has mapped.
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

    /// Whether a host may have one hold more.
    fn check_room(&self, host: Host) -> Result<(), ExplicitError> {
        //= rfc6887#section-11.3-limit
        //= rfc6887#section-17.2
        let most = self.config.limits.explicit_per_subscriber as usize;
        if self.holds.of_host(host).take(most).count() >= most {
            return Err(ExplicitError::Quota);
        }
        if self.holds.is_full() { Err(ExplicitError::Full) } else { Ok(()) }
    }

    // ---- time ----

    /// The tick until which a mapping is held that is asked for now: no sooner than its sessions
    /// would let it go.
    //= rfc6887#section-15-sooner
    fn until(&self, slot: u32, lifetime: Duration) -> u32 {
        let until = self.deadline(self.now, nanos(lifetime));
        self.latest_session(slot).map_or(until, |tick| tick.max(until))
    }

    /// The tick at which the last of a mapping's sessions goes unless refreshed.
    fn latest_session(&self, slot: u32) -> Option<u32> {
        self.table.sessions(slot).map(|session| self.table.session(session).expires).max()
    }

    /// The time from now to a tick.
    fn time_to(&self, tick: u32) -> Duration {
        Duration::from_nanos(self.time_of(tick).saturating_sub(self.now))
    }

    /// When the last hold on a mapping ends, if there is one.
    pub(crate) fn held_at_most(&self, slot: u32) -> Option<u32> {
        let mapping = self.table.mapping(slot);
        mapping.is_explicit().then(|| self.holds.latest(mapping.host(), slot)).flatten()
    }

    /// Looks at a hold whose timer is due.
    pub(crate) fn hold_due(&mut self, hold: u32, tick: u32) {
        let slot = self.holds.get(hold).slot;
        if !self.table.is_asked(slot) && !self.ask(slot) {
            return;
        }
        if self.holds.get(hold).until > tick {
            self.holds.schedule(hold, tick);
        } else {
            self.end_hold(hold, self.time_of(tick));
        }
    }

    /// Takes a hold from its mapping, which goes if nothing else keeps it.
    fn end_hold(&mut self, hold: u32, time: u64) {
        let (slot, is_last) = self.holds.remove(hold);
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

    /// Notes that a session is to go other than by its time, which a host may have asked for.
    pub(crate) fn note_lost_session(&mut self, slot: u32, session: SessionRef) {
        let of = self.table.session(session);
        let hold = self.holds.find(slot, Some(of.remote()));
        self.holds.lost += u64::from(hold.is_some());
    }

    /// Takes the hold that a session had, which goes, from its mapping.
    pub(crate) fn end_session_hold(&mut self, slot: u32, remote: AddressPort) {
        if let Some(hold) = self.holds.find(slot, Some(remote)) {
            let (slot, is_last) = self.holds.remove(hold);
            if is_last {
                self.table.set_permanent(slot, false);
            }
        }
    }

    /// Takes the holds that sessions had from their mapping.
    pub(crate) fn end_session_holds(&mut self, slot: u32) {
        let mapping = self.table.mapping(slot);
        if mapping.is_explicit() {
            let is_for_all = self.holds.remove_sessions(mapping.host(), slot);
            self.table.set_permanent(slot, is_for_all);
        }
    }

    /// Whether a packet from a remote endpoint, as seen from inside, may begin a session of a
    /// mapping that is held for all; `None`: it is not.
    //= rfc6887#section-11-independent
    //= rfc6887#section-13.3-filter
    pub(crate) fn admits_held(&self, slot: u32, seen: AddressPort) -> Option<bool> {
        self.holds.find(slot, None).map(|hold| self.holds.get(hold).admits(seen))
    }
}

/// Whether mappings of a protocol can be asked for.
pub(crate) fn is_mapped(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | DCCP)
}

fn is_reserved(protocol: u8, port: u16) -> bool {
    protocol == UDP && OWN_PORTS.contains(&port)
}

/// A mapping that there is, unless only another would be of use.
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
