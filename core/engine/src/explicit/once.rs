//! Holds that several keepers share, and changes of what a hold admits: a single session from
//! outside, fewer remote endpoints, or none.
//!
//! The keepers have one nonce, and a number each. Of a hold, the last one that asked may take back
//! what it asked for, and nothing that others asked for before.

use super::holds::{Hold, New};
use super::{Explicit, ExplicitError, MapRequest, Nonce, RemoteFilter, is_mapped};
use crate::endpoint::{AddressPort, Internal};
use crate::engine::Engine;
use crate::event::Endpoint;
use crate::host::Host;
use crate::time::Timestamp;
use core::time::Duration;

/// A keeper of a hold with a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keeper {
    /// The nonce that all keepers of the hold have.
    pub nonce: Nonce,
    /// Number of the keeper; 0: that of [`Engine::map`].
    pub number: u32,
    /// The remote endpoints that the keeper has asked for.
    pub filter: RemoteFilter,
}

impl Engine {
    /// Makes a mapping for all remote endpoints as [`Engine::map`] does, for the keeper with this
    /// number. A hold that lasts longer keeps its time.
    ///
    /// # Errors
    /// As [`Engine::map`]; [`ExplicitError::Filters`] also if the request admits everybody, and the
    /// hold has filters and lasts longer than the request asks for.
    pub fn map_for(
        &mut self,
        now: Timestamp,
        request: &MapRequest<'_>,
        keeper: u32,
    ) -> Result<Explicit, ExplicitError> {
        self.observe(now);
        let MapRequest { protocol, realm, internal, nonce, .. } = *request;
        let before = self.hold_with(nonce, protocol, realm, internal);
        let before = before.map(|hold| *self.holds.get(hold));
        let is_open = request.replaces_filters && request.filters.is_empty();
        if let Some(Hold { slot, until, filters, .. }) = before.filter(|_| is_open)
            && !filters.as_slice().is_empty()
            && until > self.until(slot, request.lifetime)
        {
            return Err(ExplicitError::Filters);
        }
        let made = self.map(now, request)?;
        let Some(hold) = self.hold_with(nonce, protocol, realm, internal) else { return Ok(made) };
        self.holds.keep(hold, keeper, before, self.tick);
        let lifetime = Some(self.time_to(self.holds.get(hold).until));
        Ok(Explicit { lifetime, ..made })
    }

    /// True if a hold on the mapping with a key admits one session only. The mapping's record says
    /// so in words that earlier versions of the hand-over did not have.
    pub fn admits_once(&self, key: u32) -> bool {
        if key >= self.table.extent() || !self.table.is_live(key) {
            return false;
        }
        let mapping = self.table.mapping(key);
        let host = mapping.is_explicit().then(|| mapping.host());
        let holds = host.into_iter().flat_map(|host| self.holds.of_subscriber(host));
        let mut of_mapping = holds.map(|hold| self.holds.get(hold)).filter(|hold| hold.slot == key);
        of_mapping.any(|hold| hold.filters.once() != 0)
    }

    /// Limits what [`Engine::map`] admits to one session that begins outside: that of a filter of
    /// the hold, or of a hold without filters. Then the filter goes, and with the last filter the
    /// hold. Returns `false` if there is no such hold or filter.
    pub fn admit_once(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        filter: Option<RemoteFilter>,
    ) -> bool {
        let hold = self.hold_for_all(protocol, realm, internal);
        hold.is_some_and(|hold| self.holds.filters_mut(hold).limit_to_one(filter))
    }

    /// Limits a hold without filters to a remote endpoint, or adds one to a hold with filters. The
    /// time of the hold stays. Returns the mapping's external endpoint. `None`: there is no hold
    /// with this nonce, the filter is not new, or there are too many.
    pub fn admit_only(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        nonce: Nonce,
        filter: RemoteFilter,
    ) -> Option<Endpoint> {
        let hold = self.hold_with(nonce, protocol, realm, internal)?;
        let of = self.holds.get(hold);
        if of.filters.as_slice().contains(&filter) {
            return None;
        }
        let slot = of.slot;
        let is_added = self.holds.filters_mut(hold).add(filter);
        self.note_change(slot);
        is_added.then(|| self.endpoint_of(slot))
    }

    /// Lets a hold end sooner, after `lifetime`, but not before the mapping's sessions, nor before
    /// the end for which others have asked. A hold that ends before stays as it is. So does one for
    /// which another keeper has asked last, and one that does not admit the remote endpoint of the
    /// keeper's filter. All filters last until the end. Nothing is made.
    pub fn shorten(
        &mut self,
        now: Timestamp,
        (protocol, realm, internal): (u8, u16, Endpoint),
        keeper: Keeper,
        lifetime: Duration,
    ) {
        self.observe(now);
        let Some(hold) = self.hold_of(keeper, protocol, realm, internal) else { return };
        let Hold { slot, until, others, filters, .. } = *self.holds.get(hold);
        let sooner = self.until(slot, lifetime).max(others);
        if sooner >= until || !filters.as_slice().contains(&keeper.filter) {
            return;
        }
        let host = Host::new(realm, internal.address.to_bits());
        let new = New { slot, remote: None, host, nonce: keeper.nonce, until: sooner, filters };
        self.holds.put(new, self.tick);
        self.note_change(slot);
    }

    /// Removes a keeper's filter of a hold, and with the last filter the hold, if this keeper has
    /// asked last. For others the hold stays with its filters until their end.
    pub fn withdraw(
        &mut self,
        now: Timestamp,
        (protocol, realm, internal): (u8, u16, Endpoint),
        keeper: Keeper,
    ) {
        self.observe(now);
        let Some(hold) = self.hold_of(keeper, protocol, realm, internal) else { return };
        let Hold { slot, until, others, filters, .. } = *self.holds.get(hold);
        if others > self.tick {
            let sooner = self.until(slot, Duration::ZERO).max(others);
            if sooner < until {
                let host = Host::new(realm, internal.address.to_bits());
                let (remote, nonce, until) = (None, keeper.nonce, sooner);
                self.holds.put(New { slot, remote, host, nonce, until, filters }, self.tick);
                self.note_change(slot);
            }
            return;
        }
        self.note_change(slot);
        if self.holds.filters_mut(hold).remove(keeper.filter) {
            self.end_hold(hold, self.now);
        }
    }

    /// True if there is a hold for all remote endpoints on the mapping of an internal endpoint.
    pub fn is_requested(&mut self, protocol: u8, realm: u16, internal: Endpoint) -> bool {
        self.hold_for_all(protocol, realm, internal).is_some()
    }

    /// Time for which the remote endpoints of a filter may begin sessions of a mapping that
    /// [`Engine::map`] made. `None`: they may not.
    pub fn admits_requested(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        filter: Option<RemoteFilter>,
    ) -> Option<Duration> {
        let hold = self.hold_for_all(protocol, realm, internal)?;
        let Hold { filters, until, .. } = *self.holds.get(hold);
        let is_admitted = match filter {
            Some(filter) => filters.as_slice().contains(&filter),
            None => filters.as_slice().is_empty(),
        };
        is_admitted.then(|| self.time_to(until))
    }

    /// The hold for all remote endpoints on the mapping of an internal endpoint.
    fn hold_for_all(&mut self, protocol: u8, realm: u16, internal: Endpoint) -> Option<u32> {
        if !is_mapped(protocol) || !self.has_realm(realm) {
            return None;
        }
        let host = Host::new(realm, internal.address.to_bits());
        let slot = self.find_for_all(protocol, Internal::new(host, internal.port))?;
        self.holds.find(slot, None)
    }

    /// The hold for all remote endpoints, if this keeper has asked for it last.
    fn hold_of(
        &mut self,
        keeper: Keeper,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
    ) -> Option<u32> {
        let hold = self.hold_with(keeper.nonce, protocol, realm, internal)?;
        (self.holds.get(hold).keeper == keeper.number).then_some(hold)
    }

    /// The hold for all remote endpoints, if the request that made it had this nonce, and no other
    /// engine of a pair decides about the mapping.
    fn hold_with(
        &mut self,
        nonce: Nonce,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
    ) -> Option<u32> {
        let hold = self.hold_for_all(protocol, realm, internal)?;
        let Hold { slot, nonce: own, .. } = *self.holds.get(hold);
        (own == nonce && !self.is_of_other(slot)).then_some(hold)
    }

    /// Notes that a session of a requested mapping has begun outside.
    #[cold]
    pub(crate) fn use_up(&mut self, slot: u32, seen: AddressPort) {
        if let Some(hold) = self.holds.find(slot, None)
            && self.holds.filters_mut(hold).use_up(seen)
        {
            self.end_hold(hold, self.now);
        }
    }
}
