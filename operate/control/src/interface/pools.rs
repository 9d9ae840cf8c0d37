//! Usage of pools and of their external addresses, over all workers.

use super::query::TableQuery;
use super::{Answer, Interface, Of, lists, stopping};
use crate::socket::{Response, blocking};
use axum::extract::{RawQuery, State};
use natgate_engine::AddressUsage;
use natgate_gateway::{List, PoolFigures};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Default limit of addresses in an answer.
const USUAL_ADDRESSES: u64 = 65_536;

/// Addresses per request to a worker.
const PART: usize = 1024;

/// Names of the protocols with ports, in the engine's order.
const PROTOCOLS: [&str; 4] = ["tcp", "udp", "icmp", "dccp"];

/// Usage of each address, in order, summed over all workers.
fn usage(
    interface: &Interface,
    asked: &TableQuery,
) -> Result<BTreeMap<Ipv4Addr, AddressUsage>, Response> {
    let mut all: BTreeMap<Ipv4Addr, AddressUsage> = BTreeMap::new();
    let mut list: List<AddressUsage> = interface.commander().list(interface.filter(asked)?, PART);
    while let Some((part, _)) = list.next_part().map_err(stopping)? {
        for usage in part {
            let known = all.entry(usage.address);
            let sum = known.or_insert(AddressUsage {
                mappings: 0,
                subscribers: 0,
                free: [0; 4],
                used: [0; 4],
                held: [0; 4],
                blocks: usage.blocks.map(|_| [0; 2]),
                ..*usage
            });
            sum.mappings += usage.mappings;
            sum.subscribers += usage.subscribers;
            sum.free.iter_mut().zip(usage.free).for_each(|(sum, more)| *sum += more);
            sum.used.iter_mut().zip(usage.used).for_each(|(sum, more)| *sum += more);
            sum.held.iter_mut().zip(usage.held).for_each(|(sum, more)| *sum += more);
            let blocks = sum.blocks.iter_mut().flatten().zip(usage.blocks.iter().flatten());
            blocks.for_each(|(sum, more)| *sum += more);
        }
    }
    Ok(all)
}

/// Ports by protocol, as an object.
fn by_protocol(ports: [u64; 4]) -> Value {
    let entries = PROTOCOLS.iter().zip(ports);
    Value::Object(
        entries.map(|(name, count)| ((*name).into(), count.into())).collect::<Map<_, _>>(),
    )
}

/// Share of ports in use, by protocol: the ports of mappings, divided by these and the ports that a
/// new mapping may take. Ports in hold-down and reserved ports are not counted, as in the alert of
/// `contrib/prometheus`. `null`: there are no such ports.
fn in_use(used: [u64; 4], free: [u64; 4]) -> Value {
    let share = |place: usize| {
        let all = used[place] + free[place];
        (all > 0).then(|| used[place] as f64 / all as f64)
    };
    let entries =
        PROTOCOLS.iter().enumerate().map(|(place, name)| ((*name).into(), share(place).into()));
    Value::Object(entries.collect::<Map<_, _>>())
}

pub(super) async fn addresses(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    let asked = TableQuery::parse(query.as_deref(), &["external", "limit"])?;
    let settings = interface.settings();
    let limit = asked.limit.unwrap_or(USUAL_ADDRESSES);
    let all = blocking(move || usage(&interface, &asked)).await??;
    let more = all.len() as u64 > limit;
    let one = |usage: AddressUsage| {
        let pool = settings.engine.pools.get(usage.pool);
        json!({
            "address": usage.address,
            "pool": pool.map(|pool| &pool.name),
            "ports": pool.map(|pool| pool.ports_used()),
            "free": by_protocol(usage.free.map(u64::from)),
            "used": by_protocol(usage.used.map(u64::from)),
            "held": by_protocol(usage.held.map(u64::from)),
            "in_use": in_use(usage.used.map(u64::from), usage.free.map(u64::from)),
            "mappings": usage.mappings,
            "subscribers": usage.subscribers,
            "taken_blocks": usage.blocks.map(|[taken, _]| taken),
            "free_blocks": usage.blocks.map(|[_, free]| free),
            "draining": usage.draining,
        })
    };
    let entries = all.into_values().take(usize::try_from(limit).unwrap_or(usize::MAX)).map(one);
    lists::whole("addresses", entries.collect(), more)
}

pub(super) async fn pools(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
    let settings = interface.settings();
    let told = blocking(move || {
        let figures = interface.commander().figures().map_err(stopping)?;
        Ok::<_, Response>((figures, usage(&interface, &TableQuery::default())?))
    });
    let (figures, addresses) = told.await??;
    let Some(first) = figures.first() else { return lists::whole("pools", Vec::new(), false) };
    let pools = first.pools.iter().enumerate().map(|(number, pool)| {
        let its: Vec<_> = addresses.values().filter(|usage| usage.pool == number).collect();
        let ports = settings.engine.pools.get(number).map_or(0, |pool| pool.ports_used());
        let all = its.len() as u64 * u64::from(ports);
        let free = std::array::from_fn(|protocol| {
            its.iter().map(|usage| u64::from(usage.free[protocol])).sum::<u64>()
        });
        let of_workers = || figures.iter().filter_map(|one| one.pools.get(number));
        let [held, used] = std::array::from_fn(|which| {
            std::array::from_fn::<u64, 4, _>(|protocol| {
                let count = |pool: &PoolFigures| {
                    [u64::from(pool.held[protocol]), pool.used[protocol]][which]
                };
                of_workers().map(count).sum()
            })
        });
        let taken = free.map(|free| all.saturating_sub(free));
        let reserved = std::array::from_fn(|protocol| {
            taken[protocol].saturating_sub(held[protocol] + used[protocol])
        });
        let blocks: Option<u64> = figures
            .iter()
            .map(|one| one.pools.get(number).and_then(|pool| pool.free_blocks).map(u64::from))
            .sum();
        let taken_blocks = blocks.is_some().then(|| {
            its.iter()
                .filter_map(|usage| usage.blocks)
                .map(|[taken, _]| u64::from(taken))
                .sum::<u64>()
        });
        json!({
            "name": pool.name,
            "addresses": its.len(),
            "draining": its.iter().filter(|usage| usage.draining).count(),
            "ports": all,
            "free": by_protocol(free),
            "taken": by_protocol(taken),
            "used": by_protocol(used),
            "held": by_protocol(held),
            "reserved": by_protocol(reserved),
            "in_use": in_use(used, free),
            "taken_blocks": taken_blocks,
            "free_blocks": blocks,
            "mappings": its.iter().map(|usage| u64::from(usage.mappings)).sum::<u64>(),
            "subscribers": its.iter().map(|usage| u64::from(usage.subscribers)).sum::<u64>(),
        })
    });
    lists::whole("pools", pools.collect(), false)
}
