//! Remote endpoints as inside hosts see them, if rules translate destinations: twice NAT (section
//! 13 of the specification), for `decide/twice.rs`.

use super::Engine;
use super::mappings::Arrival;
use crate::DropReason;
use crate::endpoint::AddressPort;
use crate::parse::{Headers, Kind, is_martian};

impl Headers {
    /// True if the packet's destination has another name outside.
    #[inline]
    pub(super) fn is_aimed(&self) -> bool {
        self.outside != self.destination
    }

    /// The new destination of a packet from inside, if it differs. Both endpoints share a query's
    /// identifier, so it is translated to `identifier` with the source's.
    #[inline]
    pub(super) fn new_destination(&self, identifier: u16) -> Option<AddressPort> {
        let port = match self.kind {
            Kind::IcmpQuery { .. } => identifier,
            _ => self.outside.port,
        };
        self.is_aimed().then_some(AddressPort::new(self.outside.address, port))
    }
}

impl Arrival {
    /// The new source of the packet, if the source has another name inside.
    #[inline]
    pub(super) fn new_source(&self) -> Option<AddressPort> {
        (self.seen != self.remote).then_some(self.seen)
    }
}

impl Engine {
    /// True if any remote endpoint has another name inside, or may get one.
    #[inline]
    pub(super) fn has_twice(&self) -> bool {
        self.realms.any_destinations() || !self.twice.is_empty()
    }

    /// Checks that a packet may go to the destination that a rule gives it.
    pub(super) fn check_outside(&self, headers: &Headers) -> Result<(), DropReason> {
        let AddressPort { address: destination, .. } = headers.outside;
        if !headers.is_aimed() {
            Ok(())
        } else if is_martian(destination) || self.is_broadcast(Some(headers.realm), destination) {
            Err(DropReason::MartianDestination)
        } else if self.is_own(headers.realm, destination)
            && self.external.index(destination).is_none()
        {
            Err(DropReason::LocalUnsupported)
        } else {
            Ok(())
        }
    }

    /// The remote endpoint of a session of this mapping, as inside hosts see it.
    #[inline]
    pub(crate) fn seen(&self, slot: u32, remote: AddressPort) -> AddressPort {
        match self.table.mapping(slot).is_twice() {
            true => self.twice.seen(slot, remote).unwrap_or(remote),
            false => remote,
        }
    }

    /// Checks that the remote endpoint of a session has the name to which a packet from inside
    /// goes. With two names, replies would be ambiguous.
    #[inline]
    pub(super) fn check_seen(
        &self,
        slot: u32,
        remote: AddressPort,
        seen: AddressPort,
    ) -> Result<(), DropReason> {
        if self.seen(slot, remote) == seen { Ok(()) } else { Err(DropReason::Ambiguous) }
    }

    /// Checks that there is room for a session whose remote endpoint is seen as `seen`.
    #[inline]
    pub(super) fn check_room_to_see(
        &self,
        remote: AddressPort,
        seen: AddressPort,
    ) -> Result<(), DropReason> {
        match remote != seen && self.twice.is_full() {
            true => Err(DropReason::SessionTableFull),
            false => Ok(()),
        }
    }

    /// Notes what the remote endpoint of a new session is seen as.
    #[inline]
    pub(super) fn note_seen(&mut self, slot: u32, remote: AddressPort, seen: AddressPort) {
        if remote != seen {
            let mapping = self.table.mapping_mut(slot);
            mapping.set_twice();
            let flow = (mapping.protocol, mapping.internal());
            self.twice.add(slot, flow, remote, seen);
        }
    }
}
