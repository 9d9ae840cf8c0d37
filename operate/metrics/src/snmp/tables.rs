//! The MIB's objects of a gateway at one time, but for tables that are as long as the traffic makes
//! them: names and values, in order.

use super::pools::PoolNumbers;
use super::{SnmpSettings, View};
use crate::Figures;
use natgate_engine::{Behavior, Config, Counters, Direction, DropReason, Outcome, Pooling};
use natgate_wire::protocol;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// An object's name.
pub type Oid = Vec<u32>;

/// natv2MIB: `{ mib-2 234 }`.
pub(super) const MIB: [u32; 7] = [1, 3, 6, 1, 2, 1, 234];

//= rfc6888#REQ-10
//= rfc7659#section-3.4-instance
//= rfc7659#section-4-instance-index
/// The one instance.
pub(super) const INSTANCE: u32 = 1;

/// Ranges of a pool that are shown.
const MOST_RANGES: usize = 1024;

/// The realm of external addresses.
pub(super) const OUTSIDE: &[u8] = b"outside";

/// InetAddressType's `ipv4`.
pub(super) const IPV4: i32 = 1;

/// A threshold that there is not.
pub(super) const OFF: i32 = -1;

/// An object's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// INTEGER, Integer32.
    Integer(i32),
    /// OCTET STRING.
    Octets(Vec<u8>),
    /// OBJECT IDENTIFIER.
    Oid(Oid),
    /// Unsigned32.
    Unsigned(u32),
    /// TimeStamp, hundredths of a second.
    Ticks(u32),
    /// Counter64.
    Counter(u64),
    /// There is no such object.
    NoSuchObject,
    /// There is no such instance of an object.
    NoSuchInstance,
    /// There is nothing behind.
    EndOfView,
}

/// All objects. `began` is the agent's uptime when the gateway began, with the packets translated
/// since, and `since` that when a pool became what it is.
pub(super) fn tables(
    settings: &SnmpSettings,
    View { config, figures }: &View,
    pools: &PoolNumbers,
    (began, translated): (u32, u64),
    since: &dyn Fn(&str) -> u32,
) -> BTreeMap<Oid, Value> {
    let mut tables = Tables { all: BTreeMap::new(), settings, config, figures, numbers: pools };
    tables.instance(began, translated);
    tables.protocols();
    tables.pools(since);
    tables.ranges();
    tables.all
}

/// The name of a column's object.
pub(super) fn name(table: u32, column: u32, index: &[u32]) -> Oid {
    [&MIB[..], &[2, table, 1, column], index].concat()
}

/// The number of mappings that managers are notified of, if any.
pub(super) fn mappings_threshold(settings: &SnmpSettings, figures: &Figures) -> Option<u64> {
    let limit = figures.mappings.limit;
    settings.mappings_threshold.map(|percent| limit.saturating_mul(percent.into()) / 100)
}

/// The number of subscribers that managers are notified of, if any: each has an address.
pub(super) fn subscribers_threshold(settings: &SnmpSettings, figures: &Figures) -> Option<u64> {
    let limit = figures.subscribers.limit;
    settings.subscribers_threshold.map(|percent| limit.saturating_mul(percent.into()) / 100)
}

/// The name of a column's object of a subscriber.
pub(super) fn subscriber_name(column: u32, number: u32) -> Oid {
    [&MIB[..], &[1, 1, 1, column, number]].concat()
}

struct Tables<'a> {
    all: BTreeMap<Oid, Value>,
    settings: &'a SnmpSettings,
    config: &'a Config,
    figures: &'a Figures,
    numbers: &'a PoolNumbers,
}

impl Tables<'_> {
    fn put(&mut self, table: u32, index: &[u32], columns: Vec<(u32, Value)>) {
        let named = columns.into_iter().map(|(column, value)| (name(table, column, index), value));
        self.all.extend(named);
    }

    /// natv2InstanceTable.
    fn instance(&mut self, began: u32, translated: u64) {
        let Self { settings, config, figures, .. } = *self;
        let drops = |reasons: &[DropReason]| Value::Counter(dropped(&figures.counters, reasons));
        let behavior = |behavior| match behavior {
            Behavior::EndpointIndependent => 0,
            Behavior::AddressDependent => 1,
            Behavior::AddressAndPortDependent => 2,
        };
        let pooling = match config.pooling {
            Pooling::Arbitrary | Pooling::SoftPaired => 0,
            Pooling::Paired => 1,
        };
        let threshold = |most: Option<u64>| {
            Value::Integer(most.map_or(OFF, |most| i32::try_from(most).unwrap_or(i32::MAX)))
        };
        self.put(
            1,
            &[INSTANCE],
            vec![
                (2, Value::Octets(b"natgate".to_vec())),
                (3, Value::Integer(behavior(config.mapping))),
                (4, Value::Integer(behavior(config.filtering))),
                (5, Value::Integer(pooling)),
                // fragmentOutOfOrder
                (6, Value::Integer(2)),
                // A subscriber has one external address here, even if it has several.
                (7, unsigned(figures.subscribers.used)),
                (8, unsigned(figures.mappings.used)),
                (9, Value::Counter(translated)),
                (10, Value::Counter(figures.subscribers_made)),
                (11, Value::Counter(figures.made.iter().sum())),
                // There is no such limit.
                (12, Value::Counter(0)),
                (13, drops(&[DropReason::MappingTableFull])),
                // A packet without an address has no port either, and counts there.
                (15, Value::Counter(0)),
                (16, drops(&[DropReason::PoolExhausted, DropReason::PortQuota])),
                (17, drops(&[DropReason::FragmentLimit])),
                (18, drops(&[DropReason::SessionTableFull, DropReason::HandOverFull])),
                (19, Value::Ticks(began)),
                (20, threshold(subscribers_threshold(settings, figures))),
                (21, threshold(mappings_threshold(settings, figures))),
                (22, Value::Unsigned(settings.interval.into())),
                (23, Value::Unsigned(0)),
                (24, unsigned(figures.mappings.limit)),
                // The limit is in bytes.
                (25, Value::Unsigned(0)),
                (26, unsigned(figures.subscribers.limit)),
            ],
        );
    }

    /// natv2ProtocolTable. Protocols other than TCP and UDP are counted together, as ICMP.
    //= rfc7659#section-3.3.5-protocols
    fn protocols(&mut self) {
        let figures = self.figures;
        let kinds = [protocol::TCP, protocol::UDP, protocol::ICMP];
        for (kind, protocol) in kinds.into_iter().enumerate() {
            let (made, gone) = (figures.made[kind], figures.gone[kind]);
            let columns = vec![(3, unsigned(made.saturating_sub(gone))), (5, Value::Counter(made))];
            self.put(2, &[INSTANCE, protocol.into()], columns);
        }
    }

    /// natv2PoolTable.
    fn pools(&mut self, since: &dyn Fn(&str) -> u32) {
        let Self { settings, config, figures, numbers, .. } = *self;
        for pool in &config.pools {
            let Some(number) = numbers.number(&pool.name) else { continue };
            let found = figures.pools.iter().find(|figures| figures.name == pool.name);
            let used =
                found.map_or(0, |figures| figures.ports.iter().map(|(_, usage)| usage.used).sum());
            let low = settings.pools_low_threshold.map_or(OFF, i32::from);
            let high = pool.thresholds.iter().max().map_or(OFF, |high| i32::from(*high));
            self.put(
                3,
                &[INSTANCE, number],
                vec![
                    (3, Value::Octets(OUTSIDE.to_vec())),
                    (4, Value::Integer(IPV4)),
                    (5, Value::Unsigned(pool.ports.0.max(1).into())),
                    (6, Value::Unsigned(pool.ports.1.into())),
                    (8, unsigned(used)),
                    (13, Value::Ticks(since(&pool.name))),
                    (14, Value::Integer(low)),
                    (15, Value::Integer(high)),
                    (18, Value::Unsigned(settings.interval.into())),
                ],
            );
        }
    }

    /// natv2PoolRangeTable.
    fn ranges(&mut self) {
        let Self { config, numbers, .. } = *self;
        let octets = |address: Ipv4Addr| Value::Octets(address.octets().to_vec());
        for pool in &config.pools {
            let Some(number) = numbers.number(&pool.name) else { continue };
            for (row, range) in (1..).zip(pool.addresses.iter().take(MOST_RANGES)) {
                let columns = vec![(4, octets(range.first)), (5, octets(range.last))];
                self.put(4, &[INSTANCE, number, row], columns);
            }
        }
    }
}

/// An Unsigned32 that stays at its highest value.
pub(super) fn unsigned(value: u64) -> Value {
    Value::Unsigned(u32::try_from(value).unwrap_or(u32::MAX))
}

fn dropped(counters: &Counters, reasons: &[DropReason]) -> u64 {
    reasons.iter().map(|reason| counters.drops[*reason as usize]).sum()
}

/// Packets translated so far.
pub(super) fn translated(counters: &Counters) -> u64 {
    let ways = [Direction::Outbound, Direction::Inbound, Direction::Hairpin];
    ways.map(|way| counters.packets[way as usize][Outcome::Forwarded as usize]).iter().sum()
}
