//! Telling that limits are near or reached: thresholds of subscribers, classes and pools, and
//! refusals.

use super::Engine;
use crate::class::{KINDS, SESSIONS};
use crate::config::Config;
use crate::external::ExternalPorts;
use crate::host::Host;
use crate::protocols::{PROTOCOLS, has_ports, protocol_index, quota_class};
use crate::rate::REPORT_INTERVAL;
use crate::threshold::{Marks, Watch};
use crate::{Change, DropReason, Resource};
use alloc::vec::Vec;

/// What thresholds of a subscriber or a class are about, by its place.
const OF_SUBSCRIBER: [Resource; KINDS + 1] =
    [Resource::Tcp, Resource::Udp, Resource::Icmp, Resource::Sessions];
/// The same of a pool.
const OF_POOL: [Resource; PROTOCOLS.len() + 1] =
    [Resource::Tcp, Resource::Udp, Resource::Icmp, Resource::Dccp, Resource::Blocks];
/// The place of blocks among them.
pub(super) const BLOCKS: usize = PROTOCOLS.len();

/// The thresholds of a pool: of its ports for each protocol, or of its blocks.
#[derive(Clone, Debug)]
pub(crate) struct PoolWatch {
    /// How many there are to be given out.
    all: [u32; OF_POOL.len()],
    marks: [Marks; OF_POOL.len()],
    watch: Watch,
}

/// The thresholds of all pools; of none if there is no threshold.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolWatches(Vec<PoolWatch>);

impl PoolWatches {
    /// Of pools of which nothing was told yet.
    pub(crate) fn new(config: &Config, external: &ExternalPorts) -> Self {
        let mut watches = Self::default();
        if config.pools.iter().any(|pool| !pool.thresholds.is_empty()) {
            let nothing = PoolWatch {
                all: [0; OF_POOL.len()],
                marks: [Marks::NONE; OF_POOL.len()],
                watch: Watch::default(),
            };
            watches.0.resize(config.pools.len(), nothing);
            watches.renew(config, external);
        }
        watches
    }

    /// Finds out anew how much the pools have to give out.
    pub(crate) fn renew(&mut self, config: &Config, external: &ExternalPorts) {
        for (number, (pool, watch)) in config.pools.iter().zip(&mut self.0).enumerate() {
            watch.all = external.all_of(number, config);
            watch.marks = watch.all.map(|all| match all {
                0 => Marks::NONE,
                all => Marks::new(&pool.thresholds, all),
            });
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Engine {
    /// Tells which thresholds a new mapping of a subscriber has reached; `index` is that of its
    /// external address, of which it took a port or shares one.
    #[inline(never)]
    pub(super) fn watch_mapping(&mut self, record: u32, protocol: u8, index: u32, shares: bool) {
        if self.subscribers.is_watched(record) {
            self.watch_subscriber(record, quota_class(protocol));
            self.watch_subscriber(record, SESSIONS);
        }
        let pool = self.external.pool_of(index);
        // A pool of blocks is used up when its blocks are.
        if has_ports(protocol) && !self.external.has_blocks(pool) {
            self.watch_pool(pool, protocol_index(protocol), if shares { 0 } else { 1 });
        }
    }

    /// Tells which thresholds a new session of a subscriber, or a mapping, has reached.
    pub(super) fn watch_subscriber(&mut self, record: u32, thing: usize) {
        let (own, of_class) = self.subscribers.rise(record, thing, self.now);
        let resource = OF_SUBSCRIBER[thing];
        if let Some(percent) = own {
            let host = self.subscribers.host(record);
            let (realm, subscriber) = (host.realm(), host.ip());
            let change = Change::ThresholdReached { realm, subscriber, resource, percent };
            self.raise(self.now, change);
        }
        if let Some(percent) = of_class {
            let class = usize::from(self.subscribers.get(record).class) - 1;
            self.raise(self.now, Change::ClassThresholdReached { class, resource, percent });
        }
    }

    /// Tells which threshold a pool has reached of which so many ports or blocks were taken just
    /// now.
    pub(super) fn watch_pool(&mut self, pool: usize, thing: usize, taken: u32) {
        let Some(of_pool) = self.pool_watches.0.get_mut(pool) else { return };
        let used = of_pool.all[thing].saturating_sub(self.external.free_of(pool, thing));
        let uses = (used.saturating_sub(taken), used);
        let told = of_pool.watch.rise(thing, &of_pool.marks[thing], uses, self.now);
        if let Some(percent) = told {
            let resource = OF_POOL[thing];
            self.raise(self.now, Change::PoolThresholdReached { pool, resource, percent });
        }
    }

    /// Tells that a mapping was refused, if it is something that is told, and was not within the
    /// last second.
    pub(crate) fn report_refusal(
        &mut self,
        reason: DropReason,
        subscriber: Host,
        pool: usize,
        protocol: u8,
    ) {
        match reason {
            DropReason::MappingRate | DropReason::PortQuota | DropReason::SessionLimit => {
                let kind = quota_class(protocol);
                match self.subscribers.full_class(subscriber, kind, self.now) {
                    Some(class) => self.report_class(class, protocol),
                    None => self.report_quota(subscriber, protocol),
                }
            }
            DropReason::PoolExhausted => self.report_exhausted(pool, protocol),
            _ => {}
        }
    }

    fn report_class(&mut self, class: u16, protocol: u8) {
        if self.subscribers.classes.may_report(class, self.now, REPORT_INTERVAL) {
            let class = usize::from(class) - 1;
            self.raise(self.now, Change::ClassQuotaReached { class, protocol });
        }
    }

    /// Reports that a subscriber was refused.
    fn report_quota(&mut self, subscriber: Host, protocol: u8) {
        //= rfc6888#REQ-11c
        let Some(record) = self.subscribers.find(subscriber) else { return };
        if self.subscribers.get_mut(record).may_report(self.now, REPORT_INTERVAL) {
            let (realm, subscriber) = (subscriber.realm(), subscriber.ip());
            self.raise(self.now, Change::QuotaReached { realm, subscriber, protocol });
        }
    }
}
