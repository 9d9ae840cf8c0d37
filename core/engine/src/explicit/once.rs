//! Changes of what a hold admits: a single session from outside, fewer remote endpoints, or none.

use super::holds::{Hold, New};
use super::{Nonce, RemoteFilter, is_mapped};
use crate::endpoint::{AddressPort, Internal};
use crate::engine::Engine;
use crate::event::Endpoint;
use crate::host::Host;
use crate::time::Timestamp;
use core::time::Duration;

impl Engine {
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

    /// Lets a hold end sooner, after `lifetime`, but not before the mapping's sessions. A hold that
    /// ends before stays as it is, and so does one that admits another remote endpoint than that of
    /// `filter`. Nothing is made.
    pub fn shorten(
        &mut self,
        now: Timestamp,
        (protocol, realm, internal): (u8, u16, Endpoint),
        (nonce, filter): (Nonce, RemoteFilter),
        lifetime: Duration,
    ) {
        self.observe(now);
        let Some(hold) = self.hold_with(nonce, protocol, realm, internal) else { return };
        let Hold { slot, until, filters, .. } = *self.holds.get(hold);
        let sooner = self.until(slot, lifetime);
        if sooner >= until || *filters.as_slice() != [filter] {
            return;
        }
        let host = Host::new(realm, internal.address.to_bits());
        let new = New { slot, remote: None, host, nonce, until: sooner, filters };
        self.holds.put(new, self.tick);
        self.note_change(slot);
    }

    /// Removes a filter of a hold, and with the last filter the hold.
    pub fn withdraw(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        nonce: Nonce,
        filter: RemoteFilter,
    ) {
        let Some(hold) = self.hold_with(nonce, protocol, realm, internal) else { return };
        let slot = self.holds.get(hold).slot;
        self.note_change(slot);
        if self.holds.filters_mut(hold).remove(filter) {
            self.end_hold(hold, self.now);
        }
    }

    /// True if a remote endpoint may begin a session of a mapping that [`Engine::map`] made.
    pub fn admits_requested(
        &mut self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        filter: Option<RemoteFilter>,
    ) -> bool {
        let Some(hold) = self.hold_for_all(protocol, realm, internal) else { return false };
        let filters = self.holds.get(hold).filters;
        match filter {
            Some(filter) => filters.as_slice().contains(&filter),
            None => filters.as_slice().is_empty(),
        }
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

    /// The hold for all remote endpoints, if the request that made it had this nonce.
    fn hold_with(
        &mut self,
        nonce: Nonce,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
    ) -> Option<u32> {
        let hold = self.hold_for_all(protocol, realm, internal)?;
        (self.holds.get(hold).nonce == nonce).then_some(hold)
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
