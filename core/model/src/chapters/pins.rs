//! Blocks that belong to the hosts of forwarded ports (specification, 5.27 and 14.24 to 14.26).

use super::shares::{Block, first_ports, is_in};
use crate::{Host, Model};
use natgate_engine::{Allocation, Change, Config, Endpoint, Pooling};
use std::collections::BTreeMap;

/// The blocks of forwarded ports, by their first endpoint, with their hosts.
pub(crate) fn pins(config: &Config) -> BTreeMap<Endpoint, Host> {
    let statics = config.statics.iter().filter_map(|one| {
        let end = Endpoint { address: one.external.0, port: one.external.1? };
        Some((end, (one.realm, one.internal.0)))
    });
    let services = config.services.iter().filter_map(|service| {
        let (host, _) = service.servers.first()?.internal;
        let alone = service.servers.iter().all(|server| server.internal.0 == host);
        let (address, port) = service.external;
        alone.then_some((Endpoint { address, port }, (service.realm, host)))
    });
    let start = |(end, host): (Endpoint, Host)| {
        let pool = config.pools.iter().find(|pool| pool.has(end.address))?;
        let Allocation::Block(block) = config.allocation_of(pool) else { return None };
        let starts = first_ports(pool, block).into_iter().map(|port| Endpoint { port, ..end });
        Some((starts.into_iter().find(|start| is_in(end, *start, block))?, host))
    };
    statics.chain(services).filter_map(start).collect()
}

impl Model {
    /// 5.27: gives pinned blocks to their hosts. The blocks of an address that has yet to join its
    /// pool wait.
    pub(crate) fn pin_blocks(&mut self) {
        for (start, subscriber) in self.chapters.pins.clone() {
            if self.chapters.left.contains_key(&start.address) || self.block_of(start).is_none() {
                continue;
            }
            if let Some(block) = self.chapters.blocks.get_mut(&start) {
                (block.pinned, block.empty_since) = (true, None);
                continue;
            }
            let block = Block { subscriber, pinned: true, empty_since: None };
            self.chapters.blocks.insert(start, block);
            self.raise(self.now, Change::BlockAssigned(self.block_id(start, subscriber)));
        }
    }

    /// 14.25: replaces the pins. Blocks that are pinned no longer are released if they are empty.
    pub(crate) fn change_pins(&mut self) {
        self.chapters.pins = pins(&self.config);
        for (start, block) in self.chapters.blocks.clone() {
            let goes_on = self.chapters.pins.get(&start) == Some(&block.subscriber)
                && !self.chapters.left.contains_key(&start.address);
            if !block.pinned || goes_on {
                continue;
            }
            if self.is_busy(start) {
                self.chapters.blocks.get_mut(&start).expect("just seen").pinned = false;
            } else {
                let id = self.block_id(start, block.subscriber);
                self.chapters.blocks.remove(&start);
                self.raise(self.now, Change::BlockReleased(id));
            }
        }
        self.pin_blocks();
    }

    /// 14.24: true if a host cannot have a block that a new configuration pins.
    pub fn refuses_blocks(&self, config: &Config) -> bool {
        let wanted = pins(config);
        let is_spare = |start: &Endpoint, block: &Block| block.pinned && !self.is_busy(*start);
        let mut added: BTreeMap<(usize, Host), usize> = BTreeMap::new();
        wanted.iter().any(|(start, host)| {
            let Some(pool) = self.pool_of(start.address.to_bits()) else { return false };
            let place = config.pools.iter().position(|pool| pool.has(start.address));
            if place != Some(pool) || self.block_of(*start).is_none() {
                return false;
            }
            match self.chapters.blocks.get(start) {
                Some(block) if block.subscriber == *host => return false,
                Some(block) if !is_spare(start, block) => return true,
                _ => {}
            }
            let own: Vec<Endpoint> = (self.chapters.blocks.iter())
                .filter(|(at, block)| {
                    let stays = wanted.get(at) == Some(host)
                        && config.pools.iter().position(|pool| pool.has(at.address)) == Some(pool);
                    block.subscriber == *host
                        && self.pool_of(at.address.to_bits()) == Some(pool)
                        && (stays || !is_spare(at, block))
                })
                .map(|(at, _)| *at)
                .collect();
            let Allocation::Block(block) = config.allocation_of(&config.pools[pool]) else {
                return false;
            };
            let added = added.entry((pool, *host)).or_default();
            *added += 1;
            own.len() + *added > usize::from(block.max_per_subscriber)
                || config.pooling == Pooling::Paired
                    && own.iter().any(|other| other.address != start.address)
        })
    }
}
