//! Mappings come into the table, and leave it.

use super::{
    LISTED, Mapping, NewMapping, PERMANENT, SHARED_EXTERNAL, SHARED_INTERNAL, STATIC, Table,
};
use crate::calendar::{Link, NONE};
use crate::host::Host;
use crate::session::{Session, State};

impl Table {
    /// Adds a mapping, made at a tick, with its first session. A permanent mapping may have none.
    /// `hash` is that of its key. `None`: the table is full.
    pub(crate) fn add(
        &mut self,
        new: NewMapping,
        (first, created): (Session, u32),
        hash: u64,
    ) -> Option<u32> {
        let slot = self.mappings.take()?;
        self.put(slot, new, (first, created, Link::OUT), hash);
        Some(slot)
    }

    /// [`Table::add`] of a mapping with a first session, whose timer starts; `now` is the latest
    /// completed tick.
    #[inline(always)]
    pub(crate) fn add_timed(
        &mut self,
        new: NewMapping,
        (first, created): (Session, u32),
        hash: u64,
        now: u32,
    ) -> Option<u32> {
        let slot = self.mappings.take()?;
        let link = self.timers.begin(slot, self.timer_tick(first.expires, now));
        self.put(slot, new, (first, created, link), hash);
        link.announce(&mut self.mappings, slot);
        Some(slot)
    }

    /// Writes a new mapping to a slot, field by field: a mapping made elsewhere and copied would
    /// wait for every write before it that misses the cache.
    #[inline(always)]
    fn put(
        &mut self,
        slot: u32,
        new: NewMapping,
        (first, created, timer): (Session, u32, Link),
        hash: u64,
    ) {
        let flags = self.epoch.0
            | if new.is_static { STATIC } else { 0 }
            | if new.permanent { PERMANENT } else { 0 }
            | if crate::protocols::has_ports(new.protocol) { 0 } else { SHARED_EXTERNAL }
            | new.flags;
        let mapping = &mut self.mappings.slots[slot as usize];
        *mapping = Mapping {
            internal_address: new.internal.host.address(),
            realm_and_timeouts: u16::from(new.timeouts) * Host::REALMS + new.internal.host.realm(),
            internal_port: new.internal.port,
            external: new.external.index as u16,
            external_port: new.external.port,
            protocol: new.protocol,
            flags,
            sessions: u16::from(first.state() != State::None),
            created: created & !LISTED,
            more: NONE,
            timer,
            first,
        };
        let remote = first.remote();
        let shares = flags & (SHARED_EXTERNAL | SHARED_INTERNAL) != 0 && mapping.sessions != 0;
        if flags & SHARED_INTERNAL == 0 {
            debug_assert_eq!(hash, self.hash(self.key_of(self.mapping(slot))));
            self.by_internal.insert(hash, slot);
        }
        if shares {
            self.share(slot, remote);
        }
        self.count_dynamic(new.protocol, !new.is_static, 1);
    }

    #[inline(always)]
    fn count_dynamic(&mut self, protocol: u8, dynamic: bool, change: isize) {
        if dynamic {
            self.dynamic = self.dynamic.strict_add_signed(change);
            if !crate::protocols::has_ports(protocol) {
                self.dynamic_portless = self.dynamic_portless.strict_add_signed(change);
            }
        }
    }

    /// Removes a mapping without sessions; its external port is the caller's to free.
    pub(crate) fn remove(&mut self, slot: u32) -> Mapping {
        let mapping = *self.mapping(slot);
        assert_eq!(mapping.sessions, 0, "a mapping goes after its sessions");
        if !mapping.shares_internal() {
            self.by_internal.remove(self.hash_of(&mapping), slot);
        }
        self.count_dynamic(mapping.protocol, !mapping.is_static(), -1);
        self.timers.take(&mut self.mappings, slot);
        self.mappings.give(slot, Mapping::default());
        mapping
    }
}
