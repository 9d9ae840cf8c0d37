//! Changes of static mappings with a configuration. Removed static mappings go when they are
//! checked, like all others. New static mappings are present at once, so a mapping with one of
//! their endpoints is checked first.

use crate::config::{Begun, Config, StaticMapping};
use crate::endpoint::{AddressPort, External, Internal};
use crate::engine::Engine;
use crate::event::Change;
use crate::external::{Pin, PinChange};
use crate::host::Host;
use crate::statics::{count_statics, permanent};
use crate::table::NewMapping;
use crate::whole::{WholeStatics, flags_of};
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// Changes of static mappings, made apart from the engine.
#[derive(Clone, Debug)]
pub(super) struct StaticChange {
    /// New mappings with ports.
    new: Vec<StaticMapping>,
    /// Whole addresses with changed mappings, and the new mappings of these addresses.
    addresses: Vec<Ipv4Addr>,
    whole: Vec<StaticMapping>,
    /// Number of former and new mappings together.
    pub(super) count: usize,
}

impl StaticChange {
    pub(super) fn new(in_force: &Config, new: &Config) -> Self {
        let sorted = |config: &Config, has_port: bool| {
            let own = config.statics.iter().filter(|one| one.external.1.is_some() == has_port);
            let mut own: Vec<StaticMapping> = own.copied().collect();
            own.sort_unstable_by_key(key);
            own
        };
        let missing = |of: &[StaticMapping], one: &StaticMapping| {
            of.binary_search_by_key(&key(one), key).is_err()
        };
        let (old_ports, mut new_ports) = (sorted(in_force, true), sorted(new, true));
        new_ports.retain(|one| missing(&old_ports, one));
        let (old_whole, mut whole) = (sorted(in_force, false), sorted(new, false));
        let come = whole.iter().filter(|one| missing(&old_whole, one));
        let gone = old_whole.iter().filter(|one| missing(&whole, one));
        let mut addresses: Vec<Ipv4Addr> = come.chain(gone).map(|one| one.external.0).collect();
        addresses.sort_unstable();
        addresses.dedup();
        whole.retain(|one| addresses.binary_search(&one.external.0).is_ok());
        let count =
            count_statics(&in_force.statics) + count_statics(&new_ports) + count_statics(&whole);
        Self { new: new_ports, addresses, whole, count }
    }
}

type StaticKey = (Ipv4Addr, Option<u16>, Option<u8>, u16, Ipv4Addr, Option<u16>);

fn key(one: &StaticMapping) -> StaticKey {
    (one.external.0, one.external.1, one.protocol, one.realm, one.internal.0, one.internal.1)
}

/// True if static mappings change that were built into tables at the start: one-way mappings and
/// services.
pub(super) fn needs_restart(in_force: &Config, new: &Config) -> bool {
    let fixed = |config: &Config| {
        let is_fixed = |one: &&StaticMapping| one.begun != Begun::Anywhere;
        let mut fixed: Vec<StaticMapping> =
            config.statics.iter().filter(is_fixed).copied().collect();
        fixed.sort_unstable_by_key(key);
        fixed
    };
    in_force.services != new.services || fixed(in_force) != fixed(new)
}

impl Engine {
    /// Gives blocks to the hosts of the new static mappings, and takes back blocks that no static
    /// mapping pins any more, once the configuration is in force.
    pub(super) fn change_pins(&mut self, pins: Vec<Pin>) {
        let PinChange { released, assigned } = self.external.change_pins(pins);
        for block in released {
            self.raise(self.now, Change::BlockReleased(block));
        }
        for block in assigned {
            self.raise(self.now, Change::BlockAssigned(block));
        }
    }

    /// Makes the new static mappings, once the configuration is in force.
    pub(super) fn change_statics(&mut self, change: StaticChange) {
        let mut whole = WholeStatics::new(&self.config, &self.external);
        whole.go_on(&self.statics);
        self.statics = whole;
        for address in change.addresses {
            if let Some(index) = self.external.index(address.to_bits()) {
                self.external.unreserve_address(index);
            }
        }
        for one in change.whole {
            if let Some(index) = self.external.index(one.external.0.to_bits()) {
                self.external.reserve_address(index, one.protocol);
            }
        }
        for one in change.new {
            self.make_static(&one);
        }
    }

    fn make_static(&mut self, one: &StaticMapping) {
        let (Some(inside), Some(outside)) = (one.internal.1, one.external.1) else { return };
        let index = self.external.index(one.external.0.to_bits()).expect("its address is external");
        let internal = Internal::new(Host::new(one.realm, one.internal.0.to_bits()), inside);
        for protocol in permanent(one) {
            let key = self.table.static_key(protocol, internal, AddressPort::new(0, 0));
            if let Some(slot) = self.table.find(key)
                && !self.table.is_asked(slot)
            {
                self.ask(slot);
            }
            self.clear_end(protocol, External::new(index, outside));
            let slot = self.add_fixed(NewMapping {
                protocol,
                internal,
                external: External::new(index, outside),
                timeouts: 0,
                is_static: true,
                permanent: true,
                flags: flags_of(one.begun),
            });
            self.external.reserve(protocol, index, outside);
            self.external.take(protocol, index, outside, slot);
        }
    }

    /// Clears the external endpoint of a static mapping. An owner that may not stay is removed, and
    /// a hold of the port ends.
    pub(crate) fn clear_end(&mut self, protocol: u8, External { index, port }: External) {
        if let Some(slot) = self.external.owner(protocol, index, port)
            && !self.table.is_asked(slot)
        {
            self.ask(slot);
        }
        self.external.evict(protocol, index, port, self.tick);
    }
}
