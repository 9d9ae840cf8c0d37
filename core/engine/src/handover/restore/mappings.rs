//! Restoration of mappings: each is made as its record says, moved, left out, or deferred until
//! there is room.

use super::{ABSENT, LEFT_OUT, MappingParts, Restoration, RestoreError};
use crate::Departure;
use crate::calendar::NONE;
use crate::endpoint::{AddressPort, External, Internal};
use crate::engine::Engine;
use crate::handover::record::{MappingFields, OVERLOADS, Reader, STATIC};
use crate::host::Host;
use crate::protocols::{has_ports, place_of, quota_class};
use crate::session::Session;
use crate::table::{Mapping, NewMapping, SHARED_EXTERNAL, SHARED_INTERNAL};
use crate::whole::flags_of;
use natgate_wire::protocol::DCCP;

/// Place of a restored mapping.
enum Place {
    At(u32),
    NoRoom,
    Left(Departure),
}

impl Engine {
    /// Makes a mapping as its record says, or keeps the record until there is room.
    pub(super) fn restore_mapping(
        &mut self,
        restoration: &mut Restoration,
        from: &mut Reader<'_>,
        record: &[u8],
    ) -> Result<Option<()>, RestoreError> {
        let mut parts = core::mem::take(&mut restoration.parts);
        let mut fields = parts.read(from).map_err(RestoreError::Damaged)?;
        restoration.renumber(&mut fields);
        if !self.place_restored(restoration, &fields, &parts)? {
            // A mapping in the way may have been removed in the other engine. Its record comes
            // later.
            self.drop_restored(restoration, fields.number);
            restoration.deferred.insert(fields.number, record.to_vec());
        }
        restoration.parts = parts;
        Ok(Some(()))
    }

    /// Tries the deferred records again. Returns the number of mappings that still find no room.
    pub(super) fn restore_deferred(
        &mut self,
        restoration: &mut Restoration,
    ) -> Result<u64, RestoreError> {
        let (mut no_room, mut parts) = (0, MappingParts::default());
        for record in core::mem::take(&mut restoration.deferred).into_values() {
            let mut fields =
                parts.read(&mut Reader::new(&record)).map_err(RestoreError::Damaged)?;
            restoration.renumber(&mut fields);
            no_room += u64::from(!self.place_restored(restoration, &fields, &parts)?);
        }
        Ok(no_room)
    }

    /// Makes a mapping with these fields, whose realm and set of timeouts have this engine's
    /// numbers. Returns `false` if there is no room for all of it; a part of it may be there.
    pub(super) fn place_restored(
        &mut self,
        restoration: &mut Restoration,
        fields: &MappingFields,
        parts: &MappingParts,
    ) -> Result<bool, RestoreError> {
        restoration.deferred.remove(&fields.number);
        restoration.lost.remove(&fields.number);
        let known = restoration.slot(fields.number);
        let slot = match self.place_of(restoration, fields, known) {
            Place::At(slot) => slot,
            Place::NoRoom => return Ok(false),
            Place::Left(why) => {
                restoration.put(fields.number, LEFT_OUT + why as u32);
                if fields.holds > 0 {
                    restoration.lost.insert(fields.number);
                }
                return Ok(true);
            }
        };
        restoration.put(fields.number, slot);
        let fit =
            [self.restore_sessions(slot, &parts.sessions)?, self.restore_holds(slot, &parts.holds)];
        Ok(fit == [true; 2])
    }

    /// The slot that a mapping has or gets.
    fn place_of(
        &mut self,
        restoration: &mut Restoration,
        fields: &MappingFields,
        known: u32,
    ) -> Place {
        if !self.has_realm(fields.realm) {
            self.drop_restored(restoration, fields.number);
            return Place::Left(Departure::NotSubscriber);
        }
        let host = Host::new(fields.realm, fields.internal.address);
        let internal = Internal::new(host, fields.internal.port);
        let Some(index) = self.external.index(fields.external.address) else {
            self.drop_restored(restoration, fields.number);
            return Place::Left(Departure::Pool);
        };
        let external = External::new(index, fields.external.port);
        if known < LEFT_OUT && self.is_restored(known, fields, internal, external) {
            return Place::At(known);
        }
        self.drop_restored(restoration, fields.number);
        if fields.is_fixed() {
            let found = restoration.permanent.get(&(fields.protocol, external, internal));
            // A reload may have removed the mapping since.
            let is_there = |slot: &u32| {
                self.table.is_live(*slot) && self.is_restored(*slot, fields, internal, external)
            };
            let found = found.copied().filter(is_there);
            return found.map_or(Place::Left(Departure::Static), Place::At);
        }
        if fields.flags & STATIC != 0 {
            return self.place_whole(restoration, fields, internal, external);
        }
        self.place_dynamic(restoration, fields, internal, external)
    }

    /// True if the mapping in a slot is the mapping of a record.
    fn is_restored(
        &self,
        slot: u32,
        fields: &MappingFields,
        internal: Internal,
        external: External,
    ) -> bool {
        let mapping = self.table.mapping(slot);
        let remote = mapping.first.remote();
        let filed = |remote: AddressPort| self.table.key(fields.protocol, internal, remote);
        let overloads = !mapping.is_static() && mapping.shares_internal();
        mapping.protocol == fields.protocol
            && mapping.internal() == internal
            && mapping.external() == external
            && mapping.is_fixed() == fields.is_fixed()
            && mapping.is_static() == (fields.flags & STATIC != 0)
            && overloads == (fields.flags & OVERLOADS != 0)
            && (mapping.is_fixed()
                || self.time_of(self.created(mapping)) == fields.created
                    && filed(remote) == filed(fields.remote))
    }

    fn new_restored(
        &self,
        fields: &MappingFields,
        internal: Internal,
        external: External,
        flags: u8,
    ) -> NewMapping {
        NewMapping {
            protocol: fields.protocol,
            internal,
            external,
            timeouts: fields.timeouts,
            is_static: fields.flags & STATIC != 0,
            permanent: false,
            flags,
        }
    }

    /// Adds a mapping to the table, without a session.
    fn add_restored(&mut self, new: NewMapping, fields: &MappingFields) -> Option<u32> {
        let key = match new.is_static {
            true => self.table.static_key(new.protocol, new.internal, fields.remote),
            false => self.table.key(new.protocol, new.internal, fields.remote),
        };
        let hash = self.table.hash(key);
        let created = self.restored_tick(fields.created);
        self.table.add(new, (Session::new(fields.remote), created), hash)
    }

    /// Clears a port for a mapping. Removes owners that the other engine no longer has, unless
    /// `may_be` allows to share the port with the owner. Returns true if the port is shared. `Err`:
    /// a static mapping has the port.
    fn clear_restored(
        &mut self,
        restoration: &mut Restoration,
        (protocol, remote): (u8, AddressPort),
        external: External,
        may_be: impl Fn(&Mapping) -> bool,
    ) -> Result<bool, Departure> {
        while let Some(owner) = self.owner_at(protocol, external, remote) {
            let mapping = self.table.mapping(owner);
            if may_be(mapping) {
                return Ok(true);
            }
            let number = restoration.numbers.get(owner as usize).copied().unwrap_or(ABSENT);
            if mapping.is_fixed() || number == ABSENT {
                return Err(Departure::Displaced);
            }
            self.drop_restored(restoration, number);
        }
        Ok(false)
    }

    /// The slot of the mapping that has an external port; without ports, of the one that has the
    /// external address for a remote address.
    pub(super) fn owner_at(
        &self,
        protocol: u8,
        External { index, port }: External,
        remote: AddressPort,
    ) -> Option<u32> {
        match has_ports(protocol) {
            true => self.external.owner(protocol, index, port),
            false => self.table.portless(protocol, index, AddressPort::new(remote.address, 0)),
        }
    }

    fn place_whole(
        &mut self,
        restoration: &mut Restoration,
        fields: &MappingFields,
        internal: Internal,
        external: External,
    ) -> Place {
        let protocol = fields.protocol;
        if (protocol, external.port) == (DCCP, 0) {
            // It stands for the address.
            return Place::Left(Departure::Static);
        }
        let begun = match self.statics.internal(external.index, protocol) {
            Some((host, begun)) if host == internal.host && internal.port == external.port => begun,
            _ => return Place::Left(Departure::Static),
        };
        if has_ports(protocol)
            && let Err(why) =
                self.clear_restored(restoration, (protocol, fields.remote), external, |_| false)
        {
            return Place::Left(why);
        }
        if !self.statics.count(external.index, protocol) {
            return Place::NoRoom;
        }
        let new = self.new_restored(fields, internal, external, flags_of(begun));
        let Some(slot) = self.add_restored(new, fields) else {
            self.statics.release(external.index, protocol);
            return Place::NoRoom;
        };
        if has_ports(protocol) {
            // The port is the static mapping's: no block counts it.
            let External { index, port } = external;
            self.external.unhold(protocol, index, port, self.tick);
            self.external.take(protocol, index, port, slot);
        }
        Place::At(slot)
    }

    fn place_dynamic(
        &mut self,
        restoration: &mut Restoration,
        fields: &MappingFields,
        internal: Internal,
        external: External,
    ) -> Place {
        let (protocol, overloads) = (fields.protocol, fields.flags & OVERLOADS != 0);
        let External { index, port } = external;
        if !self.external.is_of_pool(index) || overloads && !self.rings.are_kept() {
            return Place::Left(Departure::Pool);
        }
        // Mappings that share a port come in any order. Two mappings may share the port if one of
        // them overloads it.
        let shares = self.rings.are_kept();
        let may_be = |owner: &Mapping| {
            shares && !owner.is_static() && (overloads || owner.shares_internal())
        };
        let cleared = self.clear_restored(restoration, (protocol, fields.remote), external, may_be);
        let joins = match cleared {
            Ok(joins) => joins,
            Err(why) => return Place::Left(why),
        };
        let (pool, kind) = (self.external.pool_of(index), quota_class(protocol));
        let record = self.subscribers.find(internal.host);
        let is_known = record.is_some_and(|at| self.subscribers.has(at, pool));
        if self.table.is_full(protocol) || !is_known && self.subscribers.is_full(record.is_none()) {
            return Place::NoRoom;
        }
        let flags = if overloads { SHARED_EXTERNAL | SHARED_INTERNAL } else { 0 };
        let new = self.new_restored(fields, internal, external, flags);
        let Some(slot) = self.add_restored(new, fields) else { return Place::NoRoom };
        self.external.count(index, place_of(protocol));
        if let Some(used) = self.used.get_mut(pool) {
            used[place_of(protocol)] += 1;
        }
        // The time 0 is long past, so the rate of new mappings does not change. Pairs have their
        // own records, but not among the nodes of a pair: there the first copy pairs its
        // subscriber, which tells each node the owner of the subscriber's next mapping. An address
        // that rules name pairs nobody.
        let pairs = restoration.is_running && !restoration.ruled.contains(&fields.external.address);
        let paired = pairs.then_some(index);
        let record = self.subscribers.count(record, internal.host, (pool, paired), kind, 0);
        // The subscriber was answered in the other engine, or no record tells.
        self.answer_subscriber(record);
        self.may_be_short = true;
        if joins {
            self.join_port(protocol, external, slot);
            if !overloads {
                // The owner of a shared port is the mapping that does not overload it, in any order
                // of records.
                self.external.hand_over(protocol, index, port, slot);
            }
        } else if has_ports(protocol) {
            self.external.restore_port(protocol, external, slot, self.tick);
            if restoration.is_running && self.external.has_shares() {
                self.copy_block(external, internal.host);
            }
        } else {
            self.external.begin_portless(index);
            if restoration.is_running && self.external.is_whole(pool) {
                self.copy_block(external, internal.host);
            }
        }
        Place::At(slot)
    }

    /// Removes a mapping that was removed in the other engine. No event is raised. The port is not
    /// held, because records of held ports tell the holds.
    pub(super) fn drop_restored(&mut self, restoration: &mut Restoration, number: u32) {
        restoration.deferred.remove(&number);
        restoration.lost.remove(&number);
        let slot = restoration.slot(number);
        if slot == ABSENT {
            return;
        }
        restoration.put(number, ABSENT);
        if slot >= LEFT_OUT {
            return;
        }
        while let Some(session) = self.table.last_session(slot) {
            self.end_session(session, slot, self.tick);
        }
        if self.table.mapping(slot).is_fixed() {
            return;
        }
        if self.table.mapping(slot).is_static() {
            self.remove_mapping(slot, self.now);
            return;
        }
        let mapping = self.table.remove(slot);
        if mapping.is_explicit() {
            self.holds.remove_all(mapping.host(), slot);
        }
        let (protocol, External { index, port }) = (mapping.protocol, mapping.external());
        if let Some(heir) = self.rings.leave(slot) {
            if self.external.owner(protocol, index, port) == Some(slot) {
                self.external.hand_over(protocol, index, port, heir);
            }
        } else if has_ports(protocol) {
            self.external.drop_port(protocol, index, port, restoration.tick);
            self.leave_block(External::new(index, port));
        } else {
            self.external.end_portless(index, restoration.tick + 1);
        }
        self.external.uncount(index, place_of(protocol));
        self.leave_whole(index);
        let pool = self.external.pool_of(index);
        if let Some(used) = self.used.get_mut(pool) {
            used[place_of(protocol)] -= 1;
        }
        let (host, sibling) = (mapping.host(), mapping.created().err());
        self.subscribers.release((NONE, host), sibling, pool, place_of(protocol));
    }
}
