//! Random policies for some subscribers: classes and thresholds.

use crate::common::end;
use natgate_engine::{
    Class, ClassLimits, Config, PoolConfig, PortTimeout, Prefix, Rule, RuleAction, Thresholds,
    TimeoutSet, Totals,
};
use natgate_wire::protocol::{DCCP, TCP, UDP};
use proptest::prelude::*;
use std::time::Duration;

/// Classes and thresholds of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    classes: Vec<Class>,
    sessions_per_subscriber: Option<u32>,
    thresholds: Vec<u8>,
    pool_thresholds: [Vec<u8>; 2],
    port_timeouts: Vec<PortTimeout>,
    timeout_sets: Vec<TimeoutSet>,
}

impl Policy {
    /// The configuration with this policy.
    pub(crate) fn add_to(self, mut config: Config) -> Config {
        config.classes = self.classes;
        config.limits.sessions_per_subscriber = self.sessions_per_subscriber;
        config.limits.thresholds = self.thresholds;
        for (pool, thresholds) in config.pools.iter_mut().zip(self.pool_thresholds) {
            *pool = PoolConfig { thresholds, ..pool.clone() };
        }
        config.port_timeouts = self.port_timeouts;
        config.timeout_sets = self.timeout_sets;
        give_timeouts(&mut config.rules, config.timeout_sets.len());
        config
    }
}

/// Gives timeouts to rules that translate sources, as far as there are sets.
pub(crate) fn give_timeouts(rules: &mut [Rule], sets: usize) {
    for (number, rule) in rules.iter_mut().enumerate() {
        let translates = matches!(rule.action, RuleAction::Snat(_) | RuleAction::SnatTo(..));
        rule.timeouts = if translates { (number % (sets + 1)) as u8 } else { 0 };
    }
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::from_secs(1)),
        Just(Duration::from_secs(240)),
        (1_000_000_000u64..20_000_000_000).prop_map(Duration::from_nanos),
    ]
}

/// Timeouts of some of the occurring ports.
fn port_timeouts() -> impl Strategy<Value = Vec<PortTimeout>> {
    let all = [(UDP, (80, 80)), (UDP, (1023, 1024)), (TCP, (5000, 65_535)), (DCCP, (0, 65_535))];
    let some = prop::sample::subsequence(all.to_vec(), 0..=4);
    let timeouts = (some, prop::array::uniform4(time())).prop_map(|(some, times)| {
        let timeout = |((protocol, ports), idle)| PortTimeout { protocol, ports, idle };
        some.into_iter().zip(times).map(timeout).collect()
    });
    prop_oneof![2 => Just(vec![]), 1 => timeouts]
}

fn timeout_sets() -> impl Strategy<Value = Vec<TimeoutSet>> {
    let maybe = || prop::option::weighted(0.5, time());
    let set = (maybe(), maybe(), maybe(), maybe(), maybe(), maybe()).prop_map(
        |(udp, tcp_established, tcp_opening, tcp_closing, icmp, other)| TimeoutSet {
            udp,
            tcp_established,
            tcp_opening,
            tcp_closing,
            icmp,
            other,
        },
    );
    prop_oneof![1 => Just(vec![]), 2 => prop::collection::vec(set, 1..4)]
}

fn thresholds() -> impl Strategy<Value = Vec<u8>> {
    let any = prop::collection::btree_set(Thresholds::BOUNDS, 0..=Thresholds::MOST);
    prop_oneof![3 => Just(vec![]), 1 => Just(vec![80, 95]), 2 => any.prop_map(Vec::from_iter)]
}

fn few() -> BoxedStrategy<Option<u32>> {
    prop_oneof![6 => Just(None), 4 => (1u32..7).prop_map(Some), 1 => Just(Some(0))].boxed()
}

fn rate() -> BoxedStrategy<Option<u32>> {
    prop_oneof![3 => Just(None), 1 => (1u32..9).prop_map(Some)].boxed()
}

fn class() -> impl Strategy<Value = Class> {
    let of_mapping = prop::option::weighted(0.3, 1u16..5);
    let own_thresholds = prop::option::weighted(0.4, thresholds());
    let limits = (few(), few(), few(), few(), of_mapping, rate(), own_thresholds).prop_map(
        |(tcp_ports, udp_ports, icmp_ports, sessions, of_mapping, rate, thresholds)| ClassLimits {
            tcp_ports,
            udp_ports,
            icmp_ports,
            sessions_per_subscriber: sessions,
            sessions_per_mapping: of_mapping,
            new_mappings_per_second: rate,
            thresholds,
        },
    );
    let total = (few(), few(), few(), few(), rate(), thresholds()).prop_map(
        |(tcp_ports, udp_ports, icmp_ports, sessions, rate, thresholds)| Totals {
            tcp_ports,
            udp_ports,
            icmp_ports,
            sessions,
            new_mappings_per_second: rate,
            thresholds,
        },
    );
    let realm = prop::option::weighted(0.4, 0u16..3);
    (limits, total, realm).prop_map(|(limits, total, realm)| Class {
        limits,
        total,
        realm,
        ..Class::default()
    })
}

/// Up to three classes with nested prefixes.
fn classes() -> impl Strategy<Value = Vec<Class>> {
    let prefix = |address, len| Prefix::new(end(address, 0).address, len);
    let groups = [
        vec![prefix([10, 0, 0, 0], 30)],
        vec![prefix([10, 0, 0, 2], 32), prefix([11, 0, 0, 0], 8)],
        vec![prefix([0, 0, 0, 0], 0), prefix([10, 0, 0, 3], 32), prefix([10, 0, 0, 0], 30)],
    ];
    let some = prop::array::uniform3(class()).prop_map(move |classes| {
        let named = classes.into_iter().zip(groups.clone()).enumerate();
        let named = named.map(|(number, (class, subscribers))| Class {
            name: format!("class-{number}"),
            subscribers,
            ..class
        });
        named.collect::<Vec<Class>>()
    });
    let kept = prop::sample::select(vec![0usize, 0, 0, 1, 2, 3]);
    (some, kept, 0usize..3).prop_map(|(mut classes, kept, turn)| {
        classes.rotate_left(turn);
        classes.truncate(kept);
        classes
    })
}

pub(crate) fn policy() -> BoxedStrategy<Policy> {
    let all_thresholds = (thresholds(), prop::array::uniform2(thresholds()));
    (classes(), few(), all_thresholds, port_timeouts(), timeout_sets())
        .prop_map(|(classes, sessions_per_subscriber, all_thresholds, port_timeouts, sets)| {
            let (thresholds, pool_thresholds) = all_thresholds;
            Policy {
                classes,
                sessions_per_subscriber,
                thresholds,
                pool_thresholds,
                port_timeouts,
                timeout_sets: sets,
            }
        })
        .boxed()
}
