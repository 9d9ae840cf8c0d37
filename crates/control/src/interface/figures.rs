//! What is told at once: counters, pools, workers, neighbours, the state as a whole.

use super::query::Asked;
use super::{Answer, Of, lists, stopping};
use crate::json;
use crate::socket::{Response, blocking};
use axum::extract::{RawQuery, State};
use natgate_engine::{AddressUsage, Counters, Side, TableTotals};
use natgate_gateway::router::NeighborState;
use natgate_gateway::{Figures, Link, LinkFigures, List, PoolFigures, Settings};
use natgate_io::Statistics;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::PoisonError;

/// Addresses that are told unless another number is asked for.
const USUAL_ADDRESSES: u64 = 65_536;

/// Addresses that are asked of a worker at once.
const PART: usize = 1024;

/// The protocols that have ports, as figures have them.
const PROTOCOLS: [&str; 4] = ["tcp", "udp", "icmp", "dccp"];

/// What all workers have counted together.
pub(super) struct Sum {
    pub(super) counters: Counters,
    pub(super) totals: TableTotals,
    /// Frames that came too fast.
    pub(super) overrun: u64,
}

impl Sum {
    pub(super) fn of(all: &[Figures]) -> Self {
        let (mut counters, mut totals) = (Counters::default(), TableTotals::default());
        for one in all {
            counters.add(&one.counters);
            let TableTotals { mappings, subscribers, unanswered, further_sessions, .. } =
                one.totals;
            totals.mappings += mappings;
            totals.subscribers += subscribers;
            totals.unanswered += unanswered;
            totals.further_sessions += further_sessions;
            totals.most_mappings += one.totals.most_mappings;
            totals.most_subscribers += one.totals.most_subscribers;
            totals.most_further_sessions += one.totals.most_further_sessions;
        }
        Self { counters, totals, overrun: all.iter().map(Figures::overrun).sum() }
    }
}

pub(super) async fn counters(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    Asked::parse(query.as_deref(), &[])?;
    let figures = blocking(move || interface.commander().figures()).await?.map_err(stopping)?;
    let sum = Sum::of(&figures);
    let mut object = json::counters(&sum.counters);
    object["time"] = figures.first().map(|one| one.now.0 as f64 / 1e9).into();
    object["frames_too_fast"] = sum.overrun.into();
    let more = |count: fn(&Figures) -> u64| Value::from(figures.iter().map(count).sum::<u64>());
    object["router"] = json!({
        "arp_received": more(|one| one.router.arp_received),
        "arp_asked": more(|one| one.router.arp_asked),
        "arp_answered": more(|one| one.router.arp_answered),
        "arp_ignored": more(|one| one.router.arp_ignored),
        "arp_conflicts": more(|one| one.router.arp_conflicts),
        "left_to_the_kernel": more(|one| one.router.left_to_the_kernel),
        "learnt_routes": figures.iter().map(|one| one.router.learnt_routes).max(),
        "neighbors_lost": more(|one| one.router.neighbors_lost),
        "neighbors_refused": more(|one| one.router.neighbors_refused),
        "neighbor_conflicts": more(|one| one.router.neighbor_conflicts),
        "neighbor_changes": more(|one| one.router.neighbor_changes),
        "errors_made": more(|one| one.router.errors_made),
        "errors_suppressed": more(|one| one.router.errors_suppressed),
        "own_packets_lost": more(|one| one.own_lost),
        "frames_not_addressed": more(|one| one.not_addressed),
    });
    Ok(Response::done(object))
}

pub(super) async fn workers(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    Asked::parse(query.as_deref(), &[])?;
    // Reading these disturbs nobody, and they are there whatever the workers do.
    let loads = interface.loads.lock().unwrap_or_else(PoisonError::into_inner);
    let workers = loads.iter().enumerate().map(|(number, load)| json::load(number, &load.now()));
    Ok(Response::done(json!({ "workers": workers.collect::<Vec<_>>() })))
}

pub(super) async fn status(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    Asked::parse(query.as_deref(), &[])?;
    let (settings, began) = (interface.settings(), interface.began);
    let figures = blocking(move || interface.commander().figures()).await?.map_err(stopping)?;
    let TableTotals {
        mappings,
        subscribers,
        unanswered,
        further_sessions,
        most_mappings,
        most_subscribers,
        most_further_sessions,
        ..
    } = Sum::of(&figures).totals;
    Ok(Response::done(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "time": figures.first().map(|one| one.now.0 as f64 / 1e9),
        "running_s": began.elapsed().as_secs_f64(),
        "workers": figures.len(),
        "mappings": { "now": mappings, "most": most_mappings },
        "subscribers": {
            "now": subscribers, "most": most_subscribers, "unanswered": unanswered,
        },
        "further_sessions": { "now": further_sessions, "most": most_further_sessions },
        "devices": devices(&figures, &settings),
    })))
}

/// The devices of all links; workers share them, or have queues of them.
pub(super) fn devices(figures: &[Figures], settings: &Settings) -> Vec<Value> {
    let Some(first) = figures.first() else { return Vec::new() };
    let device = |link: &LinkFigures| {
        let same = figures.iter().flat_map(|one| &one.links).filter(|one| one.link == link.link);
        let mut object = place(link.link, settings);
        object["device"] = link.device.clone().into();
        object["mac"] = link.mac.to_string().into();
        object["mtu"] = link.mtu.into();
        object["up"] = same.clone().all(|one| one.up).into();
        let frames = Statistics::of_group(same.map(|one| one.frames));
        object["received"] = frames.received.into();
        object["transmitted"] = frames.transmitted.into();
        object["receive_overrun"] = frames.receive_overrun.into();
        object["receive_no_buffer"] = frames.receive_no_buffer.into();
        object["receive_oversize"] = frames.receive_oversize.into();
        object["receive_unfinished"] = frames.receive_unfinished.into();
        object["transmit_full"] = frames.transmit_full.into();
        object["transmit_refused"] = frames.transmit_refused.into();
        object["link_losses"] = frames.link_losses.into();
        object
    };
    first.links.iter().map(device).collect()
}

/// A link's side, and its realm where there are several.
pub(super) fn place(link: Link, settings: &Settings) -> Value {
    match link.side {
        Side::Outside => json!({ "side": "outside" }),
        Side::Inside if settings.realms.is_empty() => json!({ "side": "inside" }),
        Side::Inside => json!({ "side": "inside", "realm": settings.realm_name(link.realm) }),
    }
}

pub(super) async fn neighbors(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    Asked::parse(query.as_deref(), &[])?;
    let settings = interface.settings();
    let told = blocking(move || interface.commander().neighbors()).await?.map_err(stopping)?;
    let mut all: BTreeMap<(bool, u16, Ipv4Addr), Value> = BTreeMap::new();
    let mut states: BTreeMap<(bool, u16, Ipv4Addr), NeighborState> = BTreeMap::new();
    for (link, neighbor) in told.into_iter().flatten() {
        let key = (link.side == Side::Outside, link.realm, neighbor.address);
        let entry = all.entry(key).or_insert_with(|| {
            let mut object = place(link, &settings);
            object["address"] = neighbor.address.to_string().into();
            object["mac"] = Value::Null;
            object["asking"] = false.into();
            object["held"] = 0.into();
            object
        });
        if let Some(mac) = neighbor.mac {
            entry["mac"] = mac.to_string().into();
        }
        // Each worker has neighbors of its own.
        let state = states.entry(key).or_insert(neighbor.state);
        *state = neighbor.state.max(*state);
        entry["state"] = state.name().into();
        entry["asking"] = (entry["asking"] == true || neighbor.asking).into();
        entry["held"] = (entry["held"].as_u64().unwrap_or_default() + neighbor.held as u64).into();
    }
    lists::whole("neighbors", all.into_values().collect(), false)
}

/// What all workers together use of each address, in order.
fn usage(
    interface: &super::Interface,
    asked: &Asked,
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
                held: [0; 4],
                blocks: usage.blocks.map(|_| [0; 2]),
                ..*usage
            });
            sum.mappings += usage.mappings;
            sum.subscribers += usage.subscribers;
            sum.free.iter_mut().zip(usage.free).for_each(|(sum, more)| *sum += more);
            sum.held.iter_mut().zip(usage.held).for_each(|(sum, more)| *sum += more);
            let blocks = sum.blocks.iter_mut().flatten().zip(usage.blocks.iter().flatten());
            blocks.for_each(|(sum, more)| *sum += more);
        }
    }
    Ok(all)
}

/// Ports by protocol.
fn by_protocol(ports: [u64; 4]) -> Value {
    let entries = PROTOCOLS.iter().zip(ports);
    Value::Object(
        entries.map(|(name, count)| ((*name).into(), count.into())).collect::<Map<_, _>>(),
    )
}

pub(super) async fn addresses(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    let asked = Asked::parse(query.as_deref(), &["external", "limit"])?;
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
            "held": by_protocol(usage.held.map(u64::from)),
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
    Asked::parse(query.as_deref(), &[])?;
    let settings = interface.settings();
    let told = blocking(move || {
        let figures = interface.commander().figures().map_err(stopping)?;
        Ok::<_, Response>((figures, usage(&interface, &Asked::default())?))
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
            "taken_blocks": taken_blocks,
            "free_blocks": blocks,
            "mappings": its.iter().map(|usage| u64::from(usage.mappings)).sum::<u64>(),
            "subscribers": its.iter().map(|usage| u64::from(usage.subscribers)).sum::<u64>(),
        })
    });
    lists::whole("pools", pools.collect(), false)
}
