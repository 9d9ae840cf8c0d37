//! Limits of a subscriber by itself and together with its class, and thresholds that are reported
//! before the limits (specification, sections 3.27 to 3.48 and 5.39).

use crate::errors::{conforms, spend};
use crate::{Host, Key, Model, has_ports};
use natgate_engine::{
    Allocation, Change, Class, DropReason, Endpoint, Resource, Thresholds, Timestamp,
};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Shortest time between two reports about one owner (3.44).
const INTERVAL: Duration = Duration::from_secs(60);

/// The owner of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LimitOwner {
    Subscriber(Host),
    Class(usize),
    Pool(usize),
}

/// The limits of an owner; `None`: no limit.
#[derive(Debug, Default)]
struct Allowance {
    mappings: BTreeMap<u8, u32>,
    sessions: Option<u32>,
    rate: Option<u32>,
    thresholds: Vec<u8>,
}

/// Reports about an owner's thresholds.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThresholdState {
    last: Option<Timestamp>,
    /// Thresholds that were reported, and that use has not fallen far enough below since.
    thresholds: Vec<(Resource, u8)>,
}

impl ThresholdState {
    /// Forgets the reports: each threshold may be reported again (14.6).
    pub(crate) fn forget(&mut self) {
        self.thresholds.clear();
    }

    /// The part of the state that matters from now on.
    pub(crate) fn recent(&self, now: Timestamp) -> (Duration, &[(Resource, u8)]) {
        let since = self.last.map_or(INTERVAL, |last| now.since(last).min(INTERVAL));
        (since, &self.thresholds)
    }
}

/// The protocol whose quota counts a protocol's mappings (5.16).
pub(crate) fn counts_as(protocol: u8) -> u8 {
    if matches!(protocol, TCP | UDP) { protocol } else { ICMP }
}

fn resource(protocol: u8) -> Resource {
    match protocol {
        TCP => Resource::Tcp,
        UDP => Resource::Udp,
        DCCP => Resource::Dccp,
        _ => Resource::Icmp,
    }
}

impl Model {
    /// The class of a subscriber: the class of the longest prefix. Of two equal prefixes, the
    /// realm's own class goes before a class of all realms (15.9).
    pub(crate) fn class_of(&self, (realm, address): Host) -> Option<usize> {
        let there = |class: &Class| class.realm.is_none_or(|own| own == realm);
        let classes = self.config.classes.iter().enumerate().filter(|(_, class)| there(class));
        let prefixes = classes.flat_map(|(number, class)| {
            let own = class.realm.is_some();
            class.subscribers.iter().map(move |prefix| (prefix, own, number))
        });
        let held = prefixes.filter(|(prefix, ..)| prefix.contains(address.to_bits()));
        held.max_by_key(|(prefix, own, _)| (prefix.len(), *own)).map(|(_, _, number)| number)
    }

    fn class(&self, subscriber: Host) -> Option<&Class> {
        self.class_of(subscriber).map(|number| &self.config.classes[number])
    }

    /// Largest number of sessions of a subscriber's mapping.
    pub(crate) fn sessions_per_mapping(&self, subscriber: Host) -> usize {
        let own = self.class(subscriber).and_then(|class| class.limits.sessions_per_mapping);
        usize::from(own.unwrap_or(self.config.limits.sessions_per_mapping))
    }

    fn allowance(&self, whose: LimitOwner) -> Allowance {
        let limits = &self.config.limits;
        match whose {
            LimitOwner::Subscriber(subscriber) => {
                let own = self.class(subscriber).map(|class| class.limits.clone());
                let own = own.unwrap_or_default();
                let mappings = [
                    (TCP, own.tcp_ports.unwrap_or(limits.tcp_ports)),
                    (UDP, own.udp_ports.unwrap_or(limits.udp_ports)),
                    (ICMP, own.icmp_ports.unwrap_or(limits.icmp_ports)),
                ];
                let rate = own.new_mappings_per_second.unwrap_or(limits.new_mappings_per_second);
                Allowance {
                    mappings: mappings.into(),
                    sessions: own.sessions_per_subscriber.or(limits.sessions_per_subscriber),
                    rate: Some(rate),
                    thresholds: own.thresholds.unwrap_or(limits.thresholds.clone()),
                }
            }
            LimitOwner::Class(number) => {
                let total = &self.config.classes[number].total;
                let mappings =
                    [(TCP, total.tcp_ports), (UDP, total.udp_ports), (ICMP, total.icmp_ports)];
                let limited = mappings.into_iter().filter_map(|(of, limit)| Some((of, limit?)));
                Allowance {
                    mappings: limited.collect(),
                    sessions: total.sessions,
                    rate: total.new_mappings_per_second,
                    thresholds: total.thresholds.clone(),
                }
            }
            LimitOwner::Pool(number) => Allowance {
                thresholds: self.config.pools[number].thresholds.clone(),
                ..Allowance::default()
            },
        }
    }

    /// True if a subscriber's mappings count for an owner of limits.
    fn is_of(&self, subscriber: Host, whose: LimitOwner) -> bool {
        match whose {
            LimitOwner::Subscriber(one) => one == subscriber,
            LimitOwner::Class(number) => self.class_of(subscriber) == Some(number),
            LimitOwner::Pool(_) => false,
        }
    }

    /// Number of mappings of a quota that an owner has.
    fn mappings_of(&self, whose: LimitOwner, quota: u8) -> u64 {
        let own = self
            .dynamic()
            .filter(|(key, _)| self.is_of(key.host(), whose) && counts_as(key.protocol) == quota);
        own.count() as u64
    }

    /// Number of an owner's sessions: one a mapping, and the further ones.
    pub(crate) fn sessions_of(&self, whose: LimitOwner) -> u64 {
        let own = self.dynamic().filter(|(key, _)| self.is_of(key.host(), whose));
        own.map(|(_, mapping)| 1 + mapping.further() as u64).sum()
    }

    /// 3.27: checks rate, quota and sessions, first of the subscriber, then of its class. The error
    /// has the owner of the limit.
    pub(crate) fn permits_mapping(&self, key: Key) -> Result<(), (LimitOwner, DropReason)> {
        let subscriber = key.host();
        let class = self.class_of(subscriber).map(LimitOwner::Class);
        for whose in [Some(LimitOwner::Subscriber(subscriber)), class].into_iter().flatten() {
            let allowance = self.allowance(whose);
            let due = self.chapters.mapping_rate.get(&whose).copied().unwrap_or(0);
            if allowance.rate.is_some_and(|rate| !conforms(due, self.now, rate)) {
                return Err((whose, DropReason::MappingRate));
            }
            let quota = counts_as(key.protocol);
            let limit = allowance.mappings.get(&quota);
            if limit.is_some_and(|limit| self.mappings_of(whose, quota) >= u64::from(*limit)) {
                return Err((whose, DropReason::PortQuota));
            }
            if allowance.sessions.is_some_and(|most| self.sessions_of(whose) >= u64::from(most)) {
                return Err((whose, DropReason::SessionLimit));
            }
        }
        Ok(())
    }

    /// 5.64: checks that a subscriber has left half of its quota and of a second's rate.
    pub(crate) fn leaves_half(&self, key: Key) -> Result<(), DropReason> {
        let whose = LimitOwner::Subscriber(key.host());
        let allowance = self.allowance(whose);
        let due = self.chapters.mapping_rate.get(&whose).copied().unwrap_or(0);
        let earlier = Timestamp(self.now.0.saturating_sub(500_000_000));
        if allowance.rate.is_some_and(|rate| !conforms(due, earlier, rate)) {
            return Err(DropReason::MappingRate);
        }
        let quota = counts_as(key.protocol);
        let used = 2 * self.mappings_of(whose, quota);
        let limit = allowance.mappings.get(&quota);
        match limit.is_some_and(|limit| used >= u64::from(*limit)) {
            true => Err(DropReason::PortQuota),
            false => Ok(()),
        }
    }

    /// 3.33: true if a subscriber may have one more session, by its own limit and its class's.
    pub(crate) fn permits_session(&self, subscriber: Host) -> bool {
        let class = self.class_of(subscriber).map(LimitOwner::Class);
        [Some(LimitOwner::Subscriber(subscriber)), class].into_iter().flatten().all(|whose| {
            let most = self.allowance(whose).sessions;
            most.is_none_or(|most| self.sessions_of(whose) < u64::from(most))
        })
    }

    /// 3.30: takes a token of the subscriber, and of its class, for a new mapping.
    pub(crate) fn take_tokens(&mut self, subscriber: Host) {
        let class = self.class_of(subscriber).map(LimitOwner::Class);
        for whose in [Some(LimitOwner::Subscriber(subscriber)), class].into_iter().flatten() {
            if let Some(rate) = self.allowance(whose).rate {
                let due = self.chapters.mapping_rate.entry(whose).or_default();
                *due = spend(*due, self.now, rate);
            }
        }
    }

    // ---- thresholds ----

    /// 3.44: use and limit of a resource of an owner.
    fn use_of(&self, whose: LimitOwner, resource: Resource) -> Option<(u64, u64)> {
        if let LimitOwner::Pool(pool) = whose {
            return self.use_of_pool(pool, resource);
        }
        let allowance = self.allowance(whose);
        let quota = match resource {
            Resource::Tcp => TCP,
            Resource::Udp => UDP,
            Resource::Icmp => ICMP,
            _ => return Some((self.sessions_of(whose), u64::from(allowance.sessions?))),
        };
        Some((self.mappings_of(whose, quota), u64::from(*allowance.mappings.get(&quota)?)))
    }

    /// 5.39: use and limit of a pool's resource.
    fn use_of_pool(&self, pool: usize, resource: Resource) -> Option<(u64, u64)> {
        let protocol = match resource {
            Resource::Blocks => return self.use_of_blocks(pool),
            Resource::Tcp => TCP,
            Resource::Udp => UDP,
            Resource::Icmp => ICMP,
            Resource::Dccp => DCCP,
            Resource::Sessions => return None,
        };
        let usage = self.pool_usage(pool, protocol);
        let used = self.dynamic().filter(|(key, _)| key.protocol == protocol);
        let held = self.held.keys().filter(|(of, _)| *of == protocol).map(|(_, end)| *end);
        let used = used.map(|(_, mapping)| mapping.external).chain(held);
        let used = used.filter(|end| self.gives_out(pool, protocol, *end));
        let used = used.collect::<BTreeSet<Endpoint>>().len() as u64;
        (used + usage.free > 0).then_some((used, used + usage.free))
    }

    /// Reports the highest threshold that use has reached, unless it was reported (3.44).
    fn tell(&mut self, whose: LimitOwner, resource: Resource) {
        let thresholds = self.allowance(whose).thresholds;
        if thresholds.is_empty() {
            return;
        }
        let Some((used, most)) = self.use_of(whose, resource) else { return };
        let is_at = |percent: &u8| used * 100 >= most * u64::from(*percent);
        let Some(percent) = thresholds.iter().copied().filter(is_at).max() else { return };
        let told = self.chapters.reported_thresholds.entry(whose).or_default();
        let recently = told.last.is_some_and(|last| self.now.since(last) < INTERVAL);
        if recently || told.thresholds.contains(&(resource, percent)) {
            return;
        }
        told.last = Some(self.now);
        // A report of one threshold covers lower ones.
        let below = thresholds.into_iter().filter(|one| *one <= percent);
        told.thresholds.extend(below.map(|percent| (resource, percent)));
        let change = match whose {
            LimitOwner::Subscriber((realm, subscriber)) => {
                Change::ThresholdReached { realm, subscriber, resource, percent }
            }
            LimitOwner::Class(class) => Change::ClassThresholdReached { class, resource, percent },
            LimitOwner::Pool(pool) => Change::PoolThresholdReached { pool, resource, percent },
        };
        self.raise(self.now, change);
    }

    /// 3.44: reports thresholds of a subscriber and its class after one more of a resource.
    pub(crate) fn report_subscriber_use(&mut self, subscriber: Host, resource: Resource) {
        self.tell(LimitOwner::Subscriber(subscriber), resource);
        if let Some(class) = self.class_of(subscriber) {
            self.tell(LimitOwner::Class(class), resource);
        }
    }

    /// 3.44 and 5.39: reports thresholds after a new mapping.
    pub(crate) fn report_mapping_use(&mut self, key: Key, pool: usize) {
        let subscriber = key.host();
        self.report_subscriber_use(subscriber, resource(counts_as(key.protocol)));
        self.report_subscriber_use(subscriber, Resource::Sessions);
        let allocation = self.config.allocation_of(&self.config.pools[pool]);
        let has_blocks = matches!(allocation, Allocation::Block(_) | Allocation::Address);
        if has_ports(key.protocol) && !has_blocks {
            self.tell(LimitOwner::Pool(pool), resource(key.protocol));
        }
    }

    /// 5.39: reports thresholds after the assignment of a block.
    pub(crate) fn report_block_use(&mut self, pool: usize) {
        self.tell(LimitOwner::Pool(pool), Resource::Blocks);
    }

    /// 3.44: forgets reports of thresholds that use has fallen far enough below, and all reports
    /// about subscribers without mappings.
    pub(crate) fn forget_thresholds(&mut self) {
        let mut reported_thresholds = std::mem::take(&mut self.chapters.reported_thresholds);
        reported_thresholds.retain(|whose, told| {
            told.thresholds.retain(|(resource, percent)| {
                let used = self.use_of(*whose, *resource);
                used.is_some_and(|(used, most)| {
                    used * 100 > most * u64::from(*percent - Thresholds::DAMPING)
                })
            });
            match whose {
                LimitOwner::Subscriber(_) => self.sessions_of(*whose) > 0,
                _ => true,
            }
        });
        self.chapters.reported_thresholds = reported_thresholds;
    }
}
