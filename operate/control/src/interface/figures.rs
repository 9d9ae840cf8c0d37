//! Answers without lists from the tables: counters, workers, neighbors, status.

use super::query::TableQuery;
use super::{Answer, Of, lists, stopping};
use crate::json;
use crate::socket::{Response, blocking};
use axum::extract::{RawQuery, State};
use natgate_engine::{Counters, Side, TableTotals};
use natgate_gateway::router::NeighborState;
use natgate_gateway::router6::NeighborState6;
use natgate_gateway::{AlgCounters, AlgKind, Figures, Link, LinkFigures, Settings};
use natgate_io::Statistics;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, PoisonError};

/// Sums over all workers.
pub(super) struct Sum {
    pub(super) counters: Counters,
    pub(super) totals: TableTotals,
    /// Frames that the receive queues lost.
    pub(super) overrun: u64,
    /// Counters of the application-level gateways that are on.
    pub(super) algs: Vec<(AlgKind, AlgCounters)>,
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
        let overrun = all.iter().map(Figures::overrun).sum();
        Self { counters, totals, overrun, algs: Figures::algs_of(all) }
    }
}

pub(super) async fn counters(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
    let figures = blocking(move || interface.commander().figures()).await?.map_err(stopping)?;
    let sum = Sum::of(&figures);
    let mut object = json::counters(&sum.counters);
    json::add_algs(&mut object, &sum.algs);
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
        "sources_refused": more(|one| one.router.sources_refused),
        "neighbor_conflicts": more(|one| one.router.neighbor_conflicts),
        "neighbor_changes": more(|one| one.router.neighbor_changes),
        "errors_made": more(|one| one.router.errors_made),
        "errors_suppressed": more(|one| one.router.errors_suppressed),
        "own_packets_lost": more(|one| one.own_lost),
        "frames_not_addressed": more(|one| one.not_addressed),
    });
    if let Some(router) = Figures::router6_of(&figures) {
        let counts = router.each().map(|(name, count)| (name.to_owned(), Value::from(count)));
        object["router6"] = Map::from_iter(counts).into();
    }
    Ok(Response::done(object))
}

pub(super) async fn workers(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
    // Reading the loads needs no answer of the workers.
    let loads = interface.loads.lock().unwrap_or_else(PoisonError::into_inner);
    let workers = loads.iter().enumerate().map(|(number, load)| json::load(number, &load.now()));
    Ok(Response::done(json!({ "workers": workers.collect::<Vec<_>>() })))
}

pub(super) async fn status(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
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
        "pair": settings.fleet.is_some(),
        "mappings": { "now": mappings, "most": most_mappings },
        "subscribers": {
            "now": subscribers, "most": most_subscribers, "unanswered": unanswered,
        },
        "further_sessions": { "now": further_sessions, "most": most_further_sessions },
        "devices": devices(&figures, &settings),
    })))
}

/// The devices of all links. Workers share a device, or each has a queue of it.
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

/// The side of a link, and its realm if there are several.
pub(super) fn place(link: Link, settings: &Settings) -> Value {
    match link.side {
        Side::Outside => json!({ "side": "outside" }),
        Side::Inside if settings.realms.is_empty() => json!({ "side": "inside" }),
        Side::Inside => json!({ "side": "inside", "realm": settings.realm_name(link.realm) }),
    }
}

pub(super) async fn neighbors(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
    let settings = interface.settings();
    let of = Arc::clone(&interface);
    let of_ipv6 = blocking(move || of.commander().neighbors6()).await?.map_err(stopping)?;
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
        // Each worker has its own table of neighbors.
        let state = states.entry(key).or_insert(neighbor.state);
        *state = neighbor.state.max(*state);
        entry["state"] = state.name().into();
        entry["asking"] = (entry["asking"] == true || neighbor.asking).into();
        entry["held"] = (entry["held"].as_u64().unwrap_or_default() + neighbor.held as u64).into();
    }
    let of_ipv6 = of_ipv6.into_iter().map(|(link, neighbor)| {
        let mut object = place(link, &settings);
        object["address"] = neighbor.address.to_string().into();
        object["mac"] = json!(neighbor.mac.map(|mac| mac.to_string()));
        object["state"] = neighbor.state.name().into();
        let asks = [NeighborState6::Incomplete, NeighborState6::Probe];
        object["asking"] = asks.contains(&neighbor.state).into();
        object["held"] = neighbor.held.into();
        object
    });
    lists::whole("neighbors", all.into_values().chain(of_ipv6).collect(), false)
}
