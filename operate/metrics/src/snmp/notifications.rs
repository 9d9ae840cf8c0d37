//! Notifications: sent when a threshold is reached, and again only after the value has fallen below
//! it and risen anew; about one instance, pool or subscriber at most once in the interval.
//!
//! A threshold that is reached within the interval is notified at its end. Subject several
//! notifications of one kind only the one with the highest value is sent, or the lowest value for a
//! low threshold.

use super::long_tables::number_of;
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

/// Most subscribers with notifications within an interval; there are none about further ones.
const MOST_SUBSCRIBERS: usize = 4096;

/// Kinds of notifications, by their numbers.
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

/// The subject of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Instance,
    /// A pool, by its number.
    Pool(u32),
    /// A subscriber, by its number.
    Subscriber(u32),
}

/// The variable bindings of a notification.
pub(super) type Bindings = Vec<(Oid, Value)>;

/// Thresholds that are reached, and notifications that wait.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    /// Thresholds that are reached.
    reached: HashSet<(Kind, Subject)>,
    /// Pools that have been above the low threshold.
    been_above: HashSet<u32>,
    limits: HashMap<Subject, RateLimit>,
}

/// The rate limit of notifications about one subject.
#[derive(Debug, Default)]
struct RateLimit {
    /// The earliest time of the next notification.
    next: Option<Instant>,
    waiting: Vec<PendingNotification>,
}

/// A notification that waits.
#[derive(Debug)]
struct PendingNotification {
    kind: Kind,
    value: u64,
    bindings: Bindings,
    not_before: Instant,
}

impl RateLimit {
    /// Adds a notification of a threshold that is reached now.
    //= rfc7659#section-4-notify-once
    //= rfc7659#section-4-notify-upper
    fn reach(
        &mut self,
        kind: Kind,
        value: u64,
        bindings: Bindings,
        (now, interval): (Instant, Duration),
    ) {
        let waits = |kind| move |waiting: &PendingNotification| waiting.kind == kind;
        let mut not_before = now;
        match kind {
            Kind::PoolLow if self.waiting.iter().any(waits(Kind::PoolHigh)) => return,
            // If the pool fills up within the interval, only that is notified.
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
                (waiting.value, waiting.bindings) = (value, bindings);
            }
            Some(_) => {}
            None => self.waiting.push(PendingNotification { kind, value, bindings, not_before }),
        }
    }

    /// The notification to send now, if any.
    fn open(&mut self, now: Instant, interval: Duration) -> Option<Bindings> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        let due = self.waiting.iter().position(|waiting| waiting.not_before <= now)?;
        self.next = Some(now + interval);
        Some(self.waiting.remove(due).bindings)
    }

    /// True if notifications wait, or the interval has not passed.
    fn is_closed(&self, now: Instant) -> bool {
        !self.waiting.is_empty() || self.next.is_some_and(|next| now < next)
    }
}

impl Notifier {
    /// The notifications to send now.
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
        let due = self.limits.values_mut().filter_map(|limit| limit.open(now, pace.1)).collect();
        self.limits.retain(|_, limit| limit.is_closed(now));
        due
    }

    //= rfc7659#section-4-notify-subscriber
    /// Adds a notification about a subscriber with so many mappings, a limit or threshold of it.
    pub(super) fn subscriber_reached(
        &mut self,
        settings: &SnmpSettings,
        (realm, address): (u16, Ipv4Addr),
        mappings: u64,
        now: Instant,
    ) {
        let number = number_of(realm, address);
        let subject = Subject::Subscriber(number);
        let has_room = self.limits.len() < MOST_SUBSCRIBERS || self.limits.contains_key(&subject);
        if number == 0 || !has_room {
            return;
        }
        let objects = vec![(subscriber_name(7, number), unsigned(mappings))];
        let interval = Duration::from_secs(settings.interval.into());
        let bindings = notification(Kind::SubscriberHigh, objects);
        let limit = self.limits.entry(subject).or_default();
        limit.reach(Kind::SubscriberHigh, mappings, bindings, (now, interval));
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
            if self.rises(kind, Subject::Instance, threshold > 0 && used >= threshold) {
                let objects = vec![
                    (name(1, entries, &[INSTANCE]), unsigned(used)),
                    (name(1, creations, &[INSTANCE]), Value::Counter(made)),
                ];
                self.reach(kind, Subject::Instance, used, objects, pace);
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
            let subject = || Subject::Pool(number);
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
            if self.rises(Kind::PoolHigh, subject(), is_high) {
                self.reach(Kind::PoolHigh, subject(), usage.used, objects(), pace);
            }
            let Some(low) = settings.pools_low_threshold else { continue };
            let is_low = usage.used * 100 <= all * u64::from(low);
            // A pool that was never used has not fallen.
            let falls =
                self.rises(Kind::PoolLow, subject(), is_low) && self.been_above.contains(&number);
            if falls {
                self.reach(Kind::PoolLow, subject(), usage.used, objects(), pace);
            }
            if !is_low {
                self.been_above.insert(number);
            }
        }
    }

    /// True if a threshold is reached now and was not before.
    fn rises(&mut self, kind: Kind, subject: Subject, reached: bool) -> bool {
        match reached {
            true => self.reached.insert((kind, subject)),
            false => {
                self.reached.remove(&(kind, subject));
                false
            }
        }
    }

    fn reach(
        &mut self,
        kind: Kind,
        subject: Subject,
        value: u64,
        objects: Bindings,
        pace: (Instant, Duration),
    ) {
        self.limits.entry(subject).or_default().reach(
            kind,
            value,
            notification(kind, objects),
            pace,
        );
    }
}

fn notification(kind: Kind, objects: Bindings) -> Bindings {
    let kind = Value::Oid([&MIB[..], &[0, kind as u32]].concat());
    std::iter::once((TRAP.to_vec(), kind)).chain(objects).collect()
}
