//! The health of a gateway at a glance: links, next hops, event logs, routes, workers, and which
//! gateway it is. Each part has a state in one word; what needs somebody's attention is listed in
//! sentences as well.

use super::query::Asked;
use super::{Answer, Interface, Of, figures};
use crate::routes::announced;
use crate::socket::{Response, blocking};
use axum::extract::{RawQuery, State};
use natgate_engine::Side;
use natgate_gateway::router::NeighborInfo;
use natgate_gateway::{CommandError, Figures, Link, LoadNow, Settings};
use natgate_logs::SinkMetrics;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the workers may take to answer; then those are found that make no progress.
const PATIENCE: Duration = Duration::from_secs(2);

/// The shortest time over which a worker's load is told.
const WINDOW: Duration = Duration::from_secs(1);

/// Next hops that are told.
const MOST_HOPS: usize = 64;

/// A log whose queue is so full is lagging: records that wait, of those that can.
const LAGGING: f64 = 0.5;

/// Tells of the event logs.
pub type Sinks = Arc<dyn Fn() -> Vec<SinkMetrics> + Send + Sync>;

/// What the workers had done at an earlier look.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Option<(Instant, Vec<LoadNow>)>>);

/// What the workers say of themselves.
struct Answers {
    figures: Vec<Figures>,
    neighbors: Vec<(Link, NeighborInfo)>,
}

pub(super) async fn health(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    Asked::parse(query.as_deref(), &[])?;
    let before = interface.loads_now();
    let asked = Arc::clone(&interface);
    let answers = tokio::time::timeout(PATIENCE, blocking(move || ask(&asked))).await;
    let answers = match answers {
        Ok(answers) => Some(answers?.map_err(super::stopping)?),
        Err(_) => None,
    };
    let settings = interface.settings();
    let mut problems = Vec::new();
    let workers = interface.workers(answers.is_none().then_some(&before), &mut problems);
    let links = answers.as_ref().map(|all| links(&all.figures, &settings, &mut problems));
    let hops = answers.as_ref().map(|all| next_hops(&all.neighbors, &settings, &mut problems));
    let announced = settings.kernel.announce.as_ref().map(|announce| {
        let routes = announced();
        if routes.missing > 0 {
            let (missing, table) = (routes.missing, announce.table);
            problems.push(format!("{missing} announced routes are missing in table {table}"));
        }
        routes.present
    });
    let all = answers.iter().flat_map(|all| &all.figures);
    let learnt = all.map(|one| one.router.learnt_routes).max();
    let learnt = settings.kernel.learn.as_ref().and(learnt);
    let logs = logs(&interface.logs(), &mut problems);
    Ok(Response::done(json!({
        "ok": problems.is_empty(),
        "problems": problems,
        "host": host(),
        "version": env!("CARGO_PKG_VERSION"),
        "running_s": interface.began.elapsed().as_secs_f64(),
        "links": links,
        "next_hops": hops,
        "logs": logs,
        "routes": { "announced": announced, "learnt": learnt },
        "workers": workers,
    })))
}

fn ask(interface: &Interface) -> Result<Answers, CommandError> {
    let figures = interface.commander().figures()?;
    let neighbors = interface.commander().neighbors()?.into_iter().flatten().collect();
    Ok(Answers { figures, neighbors })
}

/// The machine's name, as the kernel has it.
fn host() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned())
}

impl Interface {
    fn loads_now(&self) -> Vec<LoadNow> {
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        loads.iter().map(|load| load.now()).collect()
    }

    fn logs(&self) -> Vec<SinkMetrics> {
        self.sinks.as_ref().map(|sinks| sinks()).unwrap_or_default()
    }

    /// The workers; `unanswered`: what they had done before they were asked, if one has not
    /// answered.
    fn workers(&self, unanswered: Option<&Vec<LoadNow>>, problems: &mut Vec<String>) -> Vec<Value> {
        let now = self.loads_now();
        let mut looks = self.looks.0.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = looks.as_ref().map(|(_, loads)| loads.clone()).unwrap_or_default();
        if looks.as_ref().is_none_or(|(at, _)| at.elapsed() >= WINDOW) {
            *looks = Some((Instant::now(), now.clone()));
        }
        drop(looks);
        let worker = |(number, now): (usize, &LoadNow)| {
            let before = unanswered.and_then(|all| all.get(number));
            let alive = before.is_none_or(|before| before.age_ns < now.age_ns);
            if !alive {
                problems.push(format!("worker {number} makes no progress"));
            }
            let before = earlier.get(number).copied().unwrap_or_default();
            let age = now.age_ns.saturating_sub(before.age_ns);
            let busy = now.busy_ns.saturating_sub(before.busy_ns);
            let busy = (age > 0).then(|| (busy as f64 / age as f64).min(1.0));
            json!({ "worker": number, "state": if alive { "alive" } else { "stuck" }, "busy": busy })
        };
        now.iter().enumerate().map(worker).collect()
    }
}

fn links(figures: &[Figures], settings: &Settings, problems: &mut Vec<String>) -> Vec<Value> {
    let devices = figures::devices(figures, settings);
    let link = |mut device: Value| {
        let up = device["up"] == true;
        let name = device["device"].as_str().unwrap_or_default();
        if !up {
            let side = device["side"].as_str().unwrap_or_default();
            problems.push(format!("link {name} ({side}) is down"));
        }
        let mut link = json!({ "device": name, "state": if up { "up" } else { "down" } });
        for key in ["side", "realm"] {
            if let Some(value) = device.get_mut(key) {
                link[key] = value.take();
            }
        }
        link
    };
    devices.into_iter().map(link).collect()
}

/// The next hops that the configuration names, each with its link.
fn hops(settings: &Settings) -> BTreeSet<(bool, u16, Ipv4Addr)> {
    let mut all = BTreeSet::new();
    all.extend(settings.outside.gateway.map(|address| (true, 0, address)));
    all.extend(settings.inside.gateway.map(|address| (false, 0, address)));
    all.extend(settings.routes.iter().map(|one| (one.side == Side::Outside, 0, one.via)));
    for (place, realm) in settings.realms.iter().enumerate() {
        let number = place as u16 + 1;
        all.extend(realm.inside.gateway.map(|address| (false, number, address)));
        all.extend(realm.routes.iter().map(|route| (false, number, route.via)));
    }
    all
}

fn next_hops(
    neighbors: &[(Link, NeighborInfo)],
    settings: &Settings,
    problems: &mut Vec<String>,
) -> Vec<Value> {
    let hop = |(is_outside, realm, address): (bool, u16, Ipv4Addr)| {
        let side = if is_outside { Side::Outside } else { Side::Inside };
        let same = neighbors.iter().filter(|(link, neighbor)| {
            link.side == side && link.realm == realm && neighbor.address == address
        });
        let known = same.clone().find_map(|(_, neighbor)| neighbor.mac);
        let state = match known {
            Some(_) => "resolved",
            None if same.clone().any(|(_, neighbor)| neighbor.asking) => "unresolved",
            // Nothing was sent there so far, or not for a while.
            None => "unasked",
        };
        if state == "unresolved" {
            problems.push(format!("next hop {address} does not answer ARP"));
        }
        let mut hop = figures::place(Link { side, realm }, settings);
        hop["address"] = json!(address);
        hop["state"] = state.into();
        hop["mac"] = json!(known.map(|mac| mac.to_string()));
        hop
    };
    hops(settings).into_iter().take(MOST_HOPS).map(hop).collect()
}

fn logs(sinks: &[SinkMetrics], problems: &mut Vec<String>) -> Vec<Value> {
    let log = |sink: &SinkMetrics| {
        let full = sink.waiting as f64 >= LAGGING * sink.capacity.max(1) as f64;
        let state = match (sink.connected, full) {
            (false, _) => "failed",
            (true, true) => "lagging",
            (true, false) => "connected",
        };
        if state != "connected" {
            let what = if sink.connected { "is lagging" } else { "cannot be written" };
            problems.push(format!("log {} {what}", sink.name));
        }
        json!({
            "name": sink.name,
            "state": state,
            "waiting": sink.waiting,
            "lost": sink.lost,
            "gaps": sink.gaps,
        })
    };
    sinks.iter().map(log).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sink(name: &str, waiting: u64, connected: bool) -> SinkMetrics {
        let (written, gaps, lost, capacity, failures) = (0, 0, 0, 100, 0);
        let name = name.to_owned();
        SinkMetrics { name, written, gaps, lost, waiting, capacity, connected, failures }
    }

    #[test]
    fn a_log_is_connected_lagging_or_failed() {
        let all = [sink("a", 49, true), sink("b", 50, true), sink("c", 0, false)];
        let mut problems = Vec::new();
        let told = logs(&all, &mut problems);
        let states: Vec<_> = told.iter().map(|log| log["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["connected", "lagging", "failed"]);
        assert_eq!(problems, ["log b is lagging", "log c cannot be written"]);
    }
}
