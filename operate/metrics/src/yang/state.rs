//! The state: what the gateway can do, what it has counted, and what it has now.

use super::{Export, Network, families, instances, mappings, module, policy, softwires};
use crate::{Figures, PoolFigures};
use natgate_engine::{Config, Direction, DropReason, MappingId, Outcome};
use natgate_gateway::ipv6::Settings;
use natgate_wire::protocol;
use serde_json::{Value, json};
use std::time::SystemTime;

/// A mapping, as far as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingState {
    /// Its ends.
    pub id: MappingId,
    /// Seconds until it goes if nothing refreshes it; `None`: it does not go.
    pub lifetime: Option<u64>,
}

/// The configuration together with the state, and some mappings.
pub fn state(
    (config, ipv6): (&Config, &Settings),
    figures: &Figures,
    mapped: &[MappingState],
) -> Export {
    let Export { left_out, .. } = super::configuration(config, ipv6);
    let mut all = instances(config, &mut Vec::new());
    let realms = config.realms.iter().enumerate().filter(|(_, realm)| !realm.gone);
    let numbers: Vec<u16> = std::iter::once(0)
        .chain(realms.map(|(place, realm)| Network::of_realm(place + 1, realm).realm))
        .collect();
    for (instance, realm) in all.iter_mut().zip(numbers) {
        instance.insert("capabilities".into(), capabilities());
        let table =
            instance.entry("mapping-table").or_insert_with(|| json!({ "mapping-entry": [] }));
        if let Some(entries) = table["mapping-entry"].as_array_mut() {
            for mapping in mapped.iter().filter(|mapping| mapping.id.realm == realm) {
                entries.extend(mappings::made(entries.len() + 1, mapping));
            }
        }
        // The counters are those of all realms together.
        let statistics = match realm {
            0 => statistics(config, figures),
            //= rfc8512#section-3-discontinuity
            _ => json!({ "discontinuity-time": date(figures.began) }),
        };
        instance.insert("statistics".into(), statistics);
    }
    let mut further = families::instances(config, ipv6, &mut Vec::new());
    for instance in &mut further {
        instance.insert("capabilities".into(), capabilities());
        //= rfc8512#section-3-discontinuity
        let statistics = json!({ "discontinuity-time": date(figures.began) });
        instance.insert("statistics".into(), statistics);
    }
    all.extend(further);
    let relay = softwires::relay(ipv6, Some(figures), &mut Vec::new());
    Export { data: module(all.into_iter().map(Value::Object).collect(), relay), left_out }
}

/// Capabilities, the same for every natgate.
fn capabilities() -> Value {
    json!({
        "nat-flavor": [
            "ietf-nat:napt44", "ietf-nat:dst-nat", "ietf-nat:nat64", "ietf-nat:siit",
            "ietf-nat:clat", "ietf-nat:eam", "ietf-nat:nptv6",
        ],
        "per-interface-binding": ["dslite"],
        "transport-protocols": policy::transport_protocols(),
        "restricted-port-support": false,
        "static-mapping-support": true,
        "port-randomization-support": true,
        "port-range-allocation-support": true,
        // The module spells it so.
        "port-preservation-suport": true,
        "port-parity-preservation-support": true,
        "address-roundrobin-support": false,
        "paired-address-pooling-support": true,
        "endpoint-independent-mapping-support": true,
        "address-dependent-mapping-support": true,
        "address-and-port-dependent-mapping-support": true,
        "endpoint-independent-filtering-support": true,
        "address-dependent-filtering": true,
        "address-and-port-dependent-filtering": true,
        "fragment-behavior": "out-of-order",
    })
}

fn statistics(config: &Config, figures: &Figures) -> Value {
    let began = date(figures.began);
    let counters = &figures.counters;
    let forwarded = |counts: &[[u64; 3]; 4], direction: Direction| {
        counts[direction as usize][Outcome::Forwarded as usize]
    };
    let dropped = |counts: &[[u64; 3]; 4]| {
        counter(counts.iter().map(|ways| ways[Outcome::Dropped as usize]).sum())
    };
    let drops = |reasons: &[DropReason]| {
        counter(reasons.iter().map(|reason| counters.drops[*reason as usize]).sum())
    };
    let fragments = [
        DropReason::FragmentUnmatched,
        DropReason::FragmentOverlap,
        DropReason::FragmentTooLong,
        DropReason::FragmentTiny,
        DropReason::FragmentLimit,
    ];
    let [tcp, udp, others] = present(figures);
    let ports = |read: fn(&PoolFigures) -> u64| gauge(figures.pools.iter().map(read).sum());
    json!({
        "discontinuity-time": began,
        "traffic-statistics": {
            "sent-packets": counter(forwarded(&counters.packets, Direction::Outbound)),
            "sent-bytes": counter(forwarded(&counters.bytes, Direction::Outbound)),
            "rcvd-packets": counter(forwarded(&counters.packets, Direction::Inbound)),
            "rcvd-bytes": counter(forwarded(&counters.bytes, Direction::Inbound)),
            "dropped-packets": dropped(&counters.packets),
            "dropped-bytes": dropped(&counters.bytes),
            "dropped-fragments": drops(&fragments),
            "dropped-port-limit-packets": drops(&[DropReason::PortQuota, DropReason::MappingRate]),
            "dropped-port-packets": drops(&[DropReason::PoolExhausted]),
            "dropped-subscriber-limit-packets": drops(&[DropReason::MappingTableFull]),
        },
        "mappings-statistics": {
            "total-active-subscribers": gauge(figures.subscribers.used),
            "total-port-mappings": gauge(figures.mappings.used),
            "total-per-protocol": [
                { "protocol-id": protocol::ICMP, "total": gauge(others) },
                { "protocol-id": protocol::TCP, "total": gauge(tcp) },
                { "protocol-id": protocol::UDP, "total": gauge(udp) },
            ],
        },
        "pools-stats": {
            "ports-stats": { "ports-allocated": ports(allocated), "ports-free": ports(free) },
            "per-pool-stats": per_pool(config, figures, &began),
        },
    })
}

/// Dynamic mappings that there are: TCP, UDP, others.
fn present(figures: &Figures) -> [u64; 3] {
    [0, 1, 2].map(|kind| figures.made[kind].saturating_sub(figures.gone[kind]))
}

/// Pools that are one prefix: the module counts by prefix, natgate by pool.
fn per_pool(config: &Config, figures: &Figures, began: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut numbers = 1;
    for pool in &config.pools {
        let prefixes = policy::count_prefixes(pool);
        let figures = figures.pools.iter().find(|figures| figures.name == pool.name);
        if let Some(figures) = figures.filter(|_| prefixes == 1) {
            all.push(json!({
                "pool-id": numbers,
                "discontinuity-time": began,
                "port-stats": {
                    "ports-allocated": gauge(allocated(figures)),
                    "ports-free": gauge(free(figures)),
                },
            }));
        }
        numbers += prefixes;
    }
    all
}

fn allocated(pool: &PoolFigures) -> u64 {
    pool.ports.iter().map(|(_, usage)| usage.used).sum()
}

fn free(pool: &PoolFigures) -> u64 {
    pool.ports.iter().map(|(_, usage)| usage.free).sum()
}

/// Numbers of 64 bits are strings (RFC 7951 section 6.1).
pub(super) fn counter(value: u64) -> Value {
    value.to_string().into()
}

/// A gauge stays at its highest value (RFC 6991 section 3).
fn gauge(value: u64) -> Value {
    u32::try_from(value).unwrap_or(u32::MAX).into()
}

pub(super) fn date(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).unwrap_or_default().to_string()
}
