//! Reports about limits that are near or reached: thresholds of subscribers, classes and pools, and
//! refusals.

use super::Engine;
use crate::class::{KINDS, SESSIONS};
use crate::config::Config;
use crate::external::ExternalPorts;
use crate::host::Host;
use crate::protocols::{PROTOCOLS, has_ports, protocol_index, quota_class};
use crate::rate::REPORT_INTERVAL;
use crate::statics::FixedPorts;
use crate::threshold::{Marks, Watch};
use crate::{Change, DropReason, Resource};
use alloc::vec::Vec;

/// Resources with thresholds of a subscriber or a class, by their place.
const OF_SUBSCRIBER: [Resource; KINDS + 1] =
    [Resource::Tcp, Resource::Udp, Resource::Icmp, Resource::Sessions];
/// Resources with thresholds of a pool, by their place.
const OF_POOL: [Resource; PROTOCOLS.len() + 1] =
    [Resource::Tcp, Resource::Udp, Resource::Icmp, Resource::Dccp, Resource::Blocks];
/// The place of blocks in `OF_POOL`.
pub(super) const BLOCKS: usize = PROTOCOLS.len();

/// The thresholds of a pool: of its ports for each protocol, or of its blocks.
#[derive(Clone, Debug)]
pub(crate) struct PoolWatch {
    /// Number of ports, or blocks, that the pool gives out.
    all: [u32; OF_POOL.len()],
    marks: [Marks; OF_POOL.len()],
    watch: Watch,
}

/// The thresholds of all pools. It is empty if no pool has thresholds.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolWatches(Vec<PoolWatch>);

impl PoolWatches {
    /// Makes the watches without reports so far.
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

    /// Computes the number of ports and blocks that the pools give out.
    pub(crate) fn renew(&mut self, config: &Config, external: &ExternalPorts) {
        if self.is_empty() {
            return;
        }
        let fixed = FixedPorts::new(config);
        for (number, (pool, watch)) in config.pools.iter().zip(&mut self.0).enumerate() {
            watch.all = external.all_of(number, &fixed);
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
    /// Reports the thresholds that a new mapping of a subscriber has reached. `index` is the index
    /// of its external address. The mapping took a port of the address or shares one.
    #[inline(never)]
    pub(super) fn watch_mapping(&mut self, record: u32, protocol: u8, index: u32, shares: bool) {
        if self.subscribers.is_watched(record) {
            self.watch_subscriber(record, quota_class(protocol));
            self.watch_subscriber(record, SESSIONS);
        }
        let pool = self.external.pool_of(index);
        // A pool of blocks is used up when its blocks are used up.
        if has_ports(protocol) && !self.external.has_blocks(pool) {
            self.watch_pool(pool, protocol_index(protocol), if shares { 0 } else { 1 });
        }
    }

    /// Reports the thresholds that a new session of a subscriber, or a mapping, has reached.
    pub(super) fn watch_subscriber(&mut self, record: u32, thing: usize) {
        let reached = self.subscribers.rise(record, thing, self.now);
        let resource = OF_SUBSCRIBER[thing];
        if let Some(percent) = reached.subscriber {
            let host = self.subscribers.host(record);
            let (realm, subscriber) = (host.realm(), host.ip());
            let change = Change::ThresholdReached { realm, subscriber, resource, percent };
            self.raise(self.now, change);
        }
        if let Some(percent) = reached.class {
            let class = usize::from(self.subscribers.get(record).class) - 1;
            self.raise(self.now, Change::ClassThresholdReached { class, resource, percent });
        }
    }

    /// Reports the threshold that a pool has reached after `taken` of its ports or blocks were
    /// taken.
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

    /// Reports the refusal of a mapping, if such refusals are reported, at most once a second.
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

    /// Reports a refusal by the subscriber's own limits.
    fn report_quota(&mut self, subscriber: Host, protocol: u8) {
        //= rfc6888#REQ-11c
        let Some(record) = self.subscribers.find(subscriber) else { return };
        if self.subscribers.get_mut(record).may_report(self.now, REPORT_INTERVAL) {
            let (realm, subscriber) = (subscriber.realm(), subscriber.ip());
            self.raise(self.now, Change::QuotaReached { realm, subscriber, protocol });
        }
    }
}
