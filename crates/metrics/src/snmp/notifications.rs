//! Notifications: told when a threshold is reached, and again only when use has fallen below it and risen
//! anew; of one instance, pool or subscriber not more often than the interval allows.
//!
//! What is reached while the interval has not passed is told at its end, and of several of a kind only
//! the one with the highest value, or the lowest where a low threshold is meant.

use super::long::number_of;
use super::pools::PoolNumbers;
use super::tables::{
    INSTANCE, MIB, Oid, Value, mappings_threshold, name, subscriber_name, subscribers_threshold,
    unsigned,
};
use super::{SnmpSettings, View};
use natgate_wire::protocol;
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// snmpTrapOID.0.
const TRAP: [u32; 11] = [1, 3, 6, 1, 6, 3, 1, 1, 4, 1, 0];

/// Subscribers of whom something is told within an interval; of more nothing is.
const MOST_SUBSCRIBERS: usize = 4096;

/// What is told of, by the number of its notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    /// natv2NotificationPoolUsageLow.
    PoolLow = 1,
    /// natv2NotificationPoolUsageHigh.
    PoolHigh = 2,
    /// natv2NotificationInstanceAddressMapEntriesHigh.
    AddressesHigh = 3,
    /// natv2NotificationInstancePortMapEntriesHigh.
    MappingsHigh = 4,
    /// natv2NotificationSubscriberPortMappingEntriesHigh.
    SubscriberHigh = 5,
}

/// Of what something is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Of {
    Instance,
    /// By number.
    Pool(u32),
    /// By number.
    Subscriber(u32),
}

/// What a notification says.
pub(super) type Bindings = Vec<(Oid, Value)>;

/// What has been told, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Thresholds that use has not been on the right side of since they were reached.
    reached: HashSet<(Kind, Of)>,
    /// Pools whose use has been above the low threshold.
    been_above: HashSet<u32>,
    gates: HashMap<Of, Gate>,
}

/// What lets notifications of one thing through.
#[derive(Debug, Default)]
struct Gate {
    /// When the next may be told.
    next: Option<Instant>,
    waiting: Vec<Waiting>,
}

/// What is to be told.
#[derive(Debug)]
struct Waiting {
    kind: Kind,
    value: u64,
    said: Bindings,
    not_before: Instant,
}

impl Gate {
    /// Takes something that was reached now.
    //= rfc7659#section-4-notify-once
    //= rfc7659#section-4-notify-upper
    fn reach(
        &mut self,
        kind: Kind,
        value: u64,
        said: Bindings,
        (now, interval): (Instant, Duration),
    ) {
        let waits = |kind| move |waiting: &Waiting| waiting.kind == kind;
        let mut not_before = now;
        match kind {
            Kind::PoolLow if self.waiting.iter().any(waits(Kind::PoolHigh)) => return,
            // Should the pool fill up within the interval, that alone is told.
            Kind::PoolLow => not_before = now + interval,
            Kind::PoolHigh => self.waiting.retain(|waiting| waiting.kind != Kind::PoolLow),
            _ => {}
        }
        let is_worse = |other: u64| match kind {
            Kind::PoolLow => value < other,
            _ => value > other,
        };
        match self.waiting.iter_mut().find(|waiting| waiting.kind == kind) {
            Some(waiting) if is_worse(waiting.value) => {
                (waiting.value, waiting.said) = (value, said);
            }
            Some(_) => {}
            None => self.waiting.push(Waiting { kind, value, said, not_before }),
        }
    }

    /// What is to be told now, if anything.
    fn open(&mut self, now: Instant, interval: Duration) -> Option<Bindings> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        let due = self.waiting.iter().position(|waiting| waiting.not_before <= now)?;
        self.next = Some(now + interval);
        Some(self.waiting.remove(due).said)
    }

    /// Whether it has something to remember.
    fn is_closed(&self, now: Instant) -> bool {
        !self.waiting.is_empty() || self.next.is_some_and(|next| now < next)
    }
}

impl Watch {
    /// What is to be told now.
    pub(super) fn due(
        &mut self,
        settings: &SnmpSettings,
        view: &View,
        pools: &PoolNumbers,
        now: Instant,
    ) -> Vec<Bindings> {
        let pace = (now, Duration::from_secs(settings.interval.into()));
        self.look_at_instance(settings, view, pace);
        self.look_at_pools(settings, view, pools, pace);
        let due = self.gates.values_mut().filter_map(|gate| gate.open(now, pace.1)).collect();
        self.gates.retain(|_, gate| gate.is_closed(now));
        due
    }

    //= rfc7659#section-4-notify-subscriber
    /// Takes that a subscriber has so many mappings, which is one of its limits or thresholds.
    pub(super) fn subscriber_reached(
        &mut self,
        settings: &SnmpSettings,
        (realm, address): (u16, Ipv4Addr),
        mappings: u64,
        now: Instant,
    ) {
        let number = number_of(realm, address);
        let of = Of::Subscriber(number);
        let has_room = self.gates.len() < MOST_SUBSCRIBERS || self.gates.contains_key(&of);
        if number == 0 || !has_room {
            return;
        }
        let objects = vec![(subscriber_name(7, number), unsigned(mappings))];
        let interval = Duration::from_secs(settings.interval.into());
        let said = notification(Kind::SubscriberHigh, objects);
        let gate = self.gates.entry(of).or_default();
        gate.reach(Kind::SubscriberHigh, mappings, said, (now, interval));
    }

    //= rfc7659#section-4-notify-basic
    fn look_at_instance(
        &mut self,
        settings: &SnmpSettings,
        View { figures, .. }: &View,
        pace: (Instant, Duration),
    ) {
        let cases = [
            (
                Kind::MappingsHigh,
                mappings_threshold(settings, figures),
                figures.mappings.used,
                (8, 11, figures.made.iter().sum()),
            ),
            (
                Kind::AddressesHigh,
                subscribers_threshold(settings, figures),
                figures.subscribers.used,
                (7, 10, figures.subscribers_made),
            ),
        ];
        for (kind, threshold, used, (entries, creations, made)) in cases {
            let Some(threshold) = threshold else { continue };
            if self.rises(kind, Of::Instance, threshold > 0 && used >= threshold) {
                let objects = vec![
                    (name(1, entries, &[INSTANCE]), unsigned(used)),
                    (name(1, creations, &[INSTANCE]), Value::Counter(made)),
                ];
                self.reach(kind, Of::Instance, used, objects, pace);
            }
        }
    }

    //= rfc7659#section-4-notify-pooled
    fn look_at_pools(
        &mut self,
        settings: &SnmpSettings,
        View { config, figures }: &View,
        pools: &PoolNumbers,
        pace: (Instant, Duration),
    ) {
        for pool in &config.pools {
            let Some(number) = pools.number(&pool.name) else { continue };
            let found = figures.pools.iter().find(|figures| figures.name == pool.name);
            let most = found.and_then(|pool| pool.ports.iter().max_by_key(|(_, usage)| usage.used));
            let Some((name_of_protocol, usage)) = most else { continue };
            let all = usage.free + usage.used;
            let of = || Of::Pool(number);
            let objects = || {
                let index = [INSTANCE, number];
                let protocol = protocol::number(name_of_protocol).unwrap_or(protocol::ICMP);
                vec![
                    (name(3, 16, &index), unsigned(usage.used)),
                    (name(3, 17, &index), Value::Unsigned(protocol.into())),
                ]
            };
            let at_least =
                |percent: u8| usage.used > 0 && usage.used * 100 >= all * u64::from(percent);
            let is_high = pool.thresholds.iter().max().is_some_and(|high| at_least(*high));
            if self.rises(Kind::PoolHigh, of(), is_high) {
                self.reach(Kind::PoolHigh, of(), usage.used, objects(), pace);
            }
            let Some(low) = settings.pools_low_threshold else { continue };
            let is_low = usage.used * 100 <= all * u64::from(low);
            // A pool that nobody has used yet is no news.
            let falls =
                self.rises(Kind::PoolLow, of(), is_low) && self.been_above.contains(&number);
            if falls {
                self.reach(Kind::PoolLow, of(), usage.used, objects(), pace);
            }
            if !is_low {
                self.been_above.insert(number);
            }
        }
    }

    /// Whether something is reached now that was not before.
    fn rises(&mut self, kind: Kind, of: Of, reached: bool) -> bool {
        match reached {
            true => self.reached.insert((kind, of)),
            false => {
                self.reached.remove(&(kind, of));
                false
            }
        }
    }

    fn reach(
        &mut self,
        kind: Kind,
        of: Of,
        value: u64,
        objects: Bindings,
        pace: (Instant, Duration),
    ) {
        self.gates.entry(of).or_default().reach(kind, value, notification(kind, objects), pace);
    }
}

fn notification(kind: Kind, objects: Bindings) -> Bindings {
    let kind = Value::Oid([&MIB[..], &[0, kind as u32]].concat());
    std::iter::once((TRAP.to_vec(), kind)).chain(objects).collect()
}
