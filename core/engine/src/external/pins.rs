//! Pins: blocks that belong to a host because the configuration forwards one of their ports to it
//! (section 5.27 of the specification), and changes of pins with a configuration (14.24 to 14.26).
//!
//! A pin is about one block. An address that is about to change its pool keeps no pin, and gets the
//! pins of its new pool when it joins that pool.

use super::change::PoolChange;
use super::shares::{Mode, cut};
use super::{ExternalPorts, NO_POOL};
use crate::blocks::Blocking;
use crate::config::{AddressRange, Config, Pooling};
use crate::host::{Grouping, Host};
use crate::{BlockId, ConfigError};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

/// A block that a host has because of a forwarded port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pin {
    /// External address, host byte order, and the first port of the block.
    place: (u32, u16),
    /// The first port of the configuration that pins the block.
    port: u16,
    host: Host,
    /// True if this engine reports the assignment and the release of the block.
    is_reported: bool,
}

/// A block that a new configuration pins and that its host cannot have now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockConflict {
    /// The forwarded port.
    pub external: (Ipv4Addr, u16),
    /// Realm and address of its host.
    pub host: (u16, Ipv4Addr),
    /// The ports of the block, first to last.
    pub ports: (u16, u16),
    /// The reason.
    pub why: ConflictReason,
}

/// Reason why a host cannot have a block now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictReason {
    /// Another subscriber has the block: its realm and address.
    Owned(u16, Ipv4Addr),
    /// The host would have this number of blocks of the pool, and may have the second number.
    Count(u32, u32),
    /// Under paired pooling, the host has a block of this address.
    Address(Ipv4Addr),
}

impl BlockConflict {
    /// Description, for people, of the forwarded port's effect. `name` names a host of a realm.
    pub fn sentence(&self, name: impl Fn(u16, Ipv4Addr) -> String) -> String {
        let ((first, last), host) = (self.ports, name(self.host.0, self.host.1));
        let block = format!("block {first}-{last} of {}", self.external.0);
        match self.why {
            ConflictReason::Owned(realm, owner) => {
                format!("is in {block}, which subscriber {} has now", name(realm, owner))
            }
            ConflictReason::Count(count, max) => {
                let sum = format!("{count} blocks, and max_per_subscriber is {max}");
                format!("gives subscriber {host} {block} beside the blocks that it has now: {sum}")
            }
            ConflictReason::Address(other) => {
                let has = format!("which has blocks of {other} now");
                let why = "under paired pooling a host has one external address";
                format!("gives {block} to subscriber {host}, {has}; {why}")
            }
        }
    }
}

/// The pins of a configuration, sorted by place.
///
/// # Errors
/// [`ConfigError`], when forwarded ports give a block to two hosts, or too many blocks to a host.
pub(crate) fn pins(config: &Config) -> Result<Vec<Pin>, ConfigError> {
    let grouping = Grouping::new(config);
    let mut pins: BTreeMap<(u32, u16), Pin> = BTreeMap::new();
    let mut blocks: BTreeMap<(usize, Host), Vec<u32>> = BTreeMap::new();
    let cuts: Vec<Option<(Blocking, u16, u32)>> =
        config.pools.iter().map(|pool| cut(config, pool)).collect();
    let mut ranges: Vec<(AddressRange, usize)> = config
        .pools
        .iter()
        .enumerate()
        .flat_map(|(number, pool)| pool.addresses.iter().map(move |range| (*range, number)))
        .collect();
    ranges.sort_unstable_by_key(|(range, _)| range.first);
    let pool_of = |address: Ipv4Addr| {
        let after = ranges.partition_point(|(range, _)| range.first <= address);
        let (range, pool) = ranges[..after].last()?;
        (address <= range.last).then_some(*pool)
    };
    for ((address, port), host) in forwarded(config) {
        let pool = pool_of(address);
        let Some((pool, (blocking, max, _))) = pool.and_then(|at| Some((at, cuts[at]?))) else {
            continue;
        };
        let Some(block) = blocking.block_of(port) else { continue };
        let fail =
            |message: String| Err(ConfigError { message: format!("{address}:{port} {message}") });
        let place = (address.to_bits(), blocking.ports(block).0);
        let subscriber = grouping.subscriber(host);
        if let Some(pin) = pins.get(&place) {
            if grouping.subscriber(pin.host) != subscriber {
                let (owner, host) = (pin.host.ip(), host.ip());
                return fail(format!("is in a block of {owner}, not of {host}"));
            }
            continue;
        }
        pins.insert(place, Pin { place, port, host, is_reported: true });
        let of_host = blocks.entry((pool, subscriber)).or_default();
        of_host.push(place.0);
        let count = of_host.len();
        if count > usize::from(max) {
            let sum = format!("{count} blocks, more than the {max} it may have");
            return fail(format!("gives {} {sum}", host.ip()));
        }
        if config.pooling == Pooling::Paired && of_host.iter().any(|other| *other != place.0) {
            let why = "blocks of two addresses, which paired pooling does not permit";
            return fail(format!("gives {} {why}", host.ip()));
        }
    }
    Ok(pins.into_values().collect())
}

/// The forwarded ports with their hosts. A service with several hosts has no owner, and its port
/// pins no block.
fn forwarded(config: &Config) -> impl Iterator<Item = ((Ipv4Addr, u16), Host)> {
    let statics = config.statics.iter().filter_map(|mapping| {
        let (address, port) = mapping.external;
        Some(((address, port?), Host::new(mapping.realm, mapping.internal.0.to_bits())))
    });
    let services = config.services.iter().filter_map(|service| {
        let (host, _) = service.servers.first()?.internal;
        let alone = service.servers.iter().all(|server| server.internal.0 == host);
        alone.then_some((service.external, Host::new(service.realm, host.to_bits())))
    });
    statics.chain(services)
}

/// Leaves the reports about blocks of other hosts to other engines.
pub(crate) fn report_only(pins: &mut [Pin], has: impl Fn(u16, Ipv4Addr) -> bool) {
    for pin in pins {
        pin.is_reported = has(pin.host.realm(), pin.host.ip());
    }
}

/// Effects of a change of pins, for events.
#[derive(Debug, Default)]
pub(crate) struct PinChange {
    pub(crate) released: Vec<BlockId>,
    pub(crate) assigned: Vec<BlockId>,
}

impl ExternalPorts {
    /// Pins blocks at the start. Returns the blocks.
    pub(crate) fn pin_first(&mut self, pins: Vec<Pin>) -> Vec<u32> {
        self.pins = pins;
        let pins = self.pins.clone();
        pins.iter().filter_map(|pin| self.blocks.pin(self.pinned(pin)?, pin.host)).collect()
    }

    /// Leaves the reports about blocks of other hosts to other engines.
    pub(crate) fn report_only(&mut self, has: impl Fn(u16, Ipv4Addr) -> bool) {
        report_only(&mut self.pins, has);
    }

    /// The block of a pin, if its address is in a pool with blocks and stays there.
    fn pinned(&self, pin: &Pin) -> Option<u32> {
        let index = self.index(pin.place.0)?;
        let slot = &self.slots[index as usize];
        (slot.pool == slot.target).then(|| self.block_of_pin(pin, index)).flatten()
    }

    fn block_of_pin(&self, pin: &Pin, index: u32) -> Option<u32> {
        let pool = self.pool_of(index);
        let has_blocks = self.pools.get(pool).is_some_and(|pool| pool.mode == Mode::Block);
        has_blocks.then(|| self.blocks.find(pool, index, pin.place.1)).flatten()
    }

    /// Checks that hosts can have the blocks that a new configuration pins.
    ///
    /// # Errors
    /// The first block that its host cannot have, and the reason.
    pub(crate) fn check_pins(&self, new: &[Pin], change: &PoolChange) -> Result<(), BlockConflict> {
        let is_wanted = |block: u32, owner: Host| {
            let (index, (first, _)) = self.blocks.place_of(block);
            let place = (self.address(index), first);
            let pool = change.find(place.0).map_or(NO_POOL, |wanted| wanted.pool);
            let pin = new.binary_search_by_key(&place, |pin| pin.place);
            usize::from(pool) == self.pool_of(index)
                && pin.is_ok_and(|at| self.blocks.subscriber(new[at].host) == owner)
        };
        let mut added: BTreeMap<(usize, Host), u32> = BTreeMap::new();
        for pin in new {
            let Some(index) = self.index(pin.place.0) else { continue };
            let pool = self.pool_of(index);
            let wanted = change.find(pin.place.0).map_or(NO_POOL, |wanted| wanted.pool);
            let Some(block) = self.block_of_pin(pin, index).filter(|_| usize::from(wanted) == pool)
            else {
                continue;
            };
            let conflict = |why| {
                let (_, ports) = self.blocks.place_of(block);
                let external = (Ipv4Addr::from_bits(pin.place.0), pin.port);
                let host = (pin.host.realm(), pin.host.ip());
                Err(BlockConflict { external, host, ports, why })
            };
            match self.blocks.owner_of(block) {
                Some(owner) if owner == self.blocks.subscriber(pin.host) => continue,
                Some(owner) if !self.blocks.is_only_pinned(block) => {
                    return conflict(ConflictReason::Owned(owner.realm(), owner.ip()));
                }
                _ => {}
            }
            let owner = self.blocks.subscriber(pin.host);
            let stays =
                |&block: &u32| is_wanted(block, owner) || !self.blocks.is_only_pinned(block);
            let mut own = self.blocks.of(pin.host, pool).filter(stays);
            let added = added.entry((pool, owner)).or_default();
            *added += 1;
            let count = own.clone().count() as u32 + *added;
            let config = change.config();
            let max = cut(config, &config.pools[pool]).map_or(0, |(_, max, _)| u32::from(max));
            if count > max {
                return conflict(ConflictReason::Count(count, max));
            }
            let elsewhere = own.find(|&block| self.blocks.place_of(block).0 != index);
            if let Some(other) = elsewhere.filter(|_| config.pooling == Pooling::Paired) {
                let (other, _) = self.blocks.place_of(other);
                let address = Ipv4Addr::from_bits(self.address(other));
                return conflict(ConflictReason::Address(address));
            }
        }
        Ok(())
    }

    /// Replaces the pins, once the new pools are in force. A block that is pinned no longer is
    /// released at once if it is empty. A subscriber that got a block since the check loses it, and
    /// its mappings of the block with it.
    pub(crate) fn change_pins(&mut self, new: Vec<Pin>) -> PinChange {
        let mut change = PinChange::default();
        let old = core::mem::replace(&mut self.pins, new);
        for pin in old {
            let Some(index) = self.index(pin.place.0) else { continue };
            let Some(block) = self.block_of_pin(&pin, index) else { continue };
            let at = self.pins.binary_search_by_key(&pin.place, |other| other.place);
            let host = |pin: &Pin| self.blocks.subscriber(pin.host);
            let goes_on = at.is_ok_and(|at| host(&self.pins[at]) == host(&pin));
            if goes_on && self.pinned(&pin).is_some() || !self.blocks.unpin(block) {
                continue;
            }
            let released = self.take_block(block);
            change.released.extend(pin.is_reported.then_some(released));
        }
        for pin in self.pins.clone() {
            if let Some(block) = self.pinned(&pin) {
                self.pin_now(&pin, block, &mut change);
            }
        }
        change
    }

    /// Pins the blocks of an address that has joined a pool. [`ExternalPorts::take_pinned`] tells
    /// them.
    pub(super) fn pin_joined(&mut self, index: u32) {
        let address = self.address(index);
        let from = self.pins.partition_point(|pin| pin.place.0 < address);
        let of_address = self.pins[from..].iter().take_while(|pin| pin.place.0 == address);
        for pin in of_address.copied().collect::<Vec<Pin>>() {
            if let Some(block) = self.pinned(&pin) {
                let mut change = PinChange::default();
                self.pin_now(&pin, block, &mut change);
                self.pinned_later.append(&mut change.assigned);
            }
        }
    }

    /// Returns the blocks that were pinned since the last call because their addresses have joined
    /// a pool.
    pub(crate) fn take_pinned(&mut self) -> Vec<BlockId> {
        core::mem::take(&mut self.pinned_later)
    }

    fn pin_now(&mut self, pin: &Pin, block: u32, change: &mut PinChange) {
        let owner = self.blocks.owner_of(block);
        if owner.is_some_and(|owner| owner != self.blocks.subscriber(pin.host)) {
            change.released.push(self.take_block(block));
        }
        if let Some(block) = self.blocks.pin(block, pin.host).filter(|_| pin.is_reported) {
            change.assigned.push(self.block(block));
        }
    }
}
