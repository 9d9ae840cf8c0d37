//! Health of the gateway: links, next hops, event logs, routes, workers, bindings, the pair,
//! identity. Each part has a state in one word. Every part that needs an operator raises an alarm
//! with a sentence, a severity and a start time.
//!
//! A thread examines the gateway every few seconds without any client, so that the start time of an
//! alarm is right for the first client.

mod alarms;
mod pair;

use super::query::TableQuery;
use super::{Answer, Interface, Of, figures};
use crate::routes::announced;
use crate::socket::{ClientGroup, Response, blocking};
use alarms::{Alarm, Alarms};
use axum::Extension;
use axum::extract::{RawQuery, State};
use natgate_engine::Side;
use natgate_gateway::fleet::FleetStatus;
use natgate_gateway::router::NeighborInfo;
use natgate_gateway::router6::{NeighborInfo6, NeighborState6};
use natgate_gateway::{
    CommandError, Figures, Link, LoadNow, ServerHealth, ServerState, Settings, panics,
};
use natgate_logs::SinkMetrics;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Time that the workers have to answer. Afterwards the workers without progress are determined.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time between two examinations of the thread.
const PERIOD: Duration = Duration::from_secs(5);

/// The shortest time over which a worker's load is measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Most next hops in an answer.
const MOST_HOPS: usize = 64;

/// A log is lagging if this share of its queue is in use.
const LAGGING: f64 = 0.5;

/// Returns the state of the event logs.
pub type Sinks = Arc<dyn Fn() -> Vec<SinkMetrics> + Send + Sync>;

/// State of the examinations from one to the next.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Loads of the workers at an earlier examination.
    loads: Mutex<Option<(Instant, Vec<LoadNow>)>>,
    alarms: Alarms,
    /// Held while the workers are asked: one question at a time for each client group, and, with
    /// the last index, for this module's thread. A stuck worker then occupies one thread per group.
    questions: [Arc<tokio::sync::Mutex<()>>; ClientGroup::COUNT + 1],
}

/// Answers of the workers.
struct Answers {
    figures: Vec<Figures>,
    neighbors: Vec<Neighbor>,
    servers: Vec<ServerHealth>,
    pair: Option<FleetStatus>,
}

/// A neighbour of a link.
struct Neighbor {
    link: Link,
    address: IpAddr,
    mac: Option<String>,
    /// The neighbour is unknown, and an answer is expected.
    asking: bool,
}

impl From<(Link, NeighborInfo)> for Neighbor {
    fn from((link, info): (Link, NeighborInfo)) -> Self {
        let mac = info.mac.map(|mac| mac.to_string());
        Self { link, address: info.address.into(), mac, asking: info.asking }
    }
}

impl From<(Link, NeighborInfo6)> for Neighbor {
    fn from((link, info): (Link, NeighborInfo6)) -> Self {
        let asking = info.state == NeighborState6::Incomplete;
        let mac = info.mac.map(|mac| mac.to_string());
        Self { link, address: info.address.into(), mac, asking }
    }
}

pub(super) async fn health(
    State(interface): Of,
    Extension(group): Extension<ClientGroup>,
    RawQuery(query): RawQuery,
) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
    examine(&interface, group as usize).await
}

/// Examines the gateway in a thread until the interface is dropped.
pub(super) fn watch(interface: &Arc<Interface>) {
    let interface = Arc::downgrade(interface);
    let work = move || panics::contain(|| examine_for_ever(&interface));
    // Without the thread, alarms start with the first client.
    let _ = thread::Builder::new().name("health".into()).spawn(work);
}

fn examine_for_ever(interface: &Weak<Interface>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let Ok(runtime) = runtime else { return };
    loop {
        thread::sleep(PERIOD);
        let Some(interface) = interface.upgrade() else { break };
        // A gateway that ends answers with an error; its interface is dropped soon after.
        let _ = runtime.block_on(examine(&interface, ClientGroup::COUNT));
    }
    runtime.shutdown_background();
}

/// Returns the health as an object. `place` is the index in [`History::questions`].
async fn examine(interface: &Arc<Interface>, place: usize) -> Answer {
    let before = interface.loads_now();
    let (asked, question) =
        (Arc::clone(interface), Arc::clone(&interface.history.questions[place]));
    let answers = tokio::time::timeout(PATIENCE, async {
        let held = question.lock_owned().await;
        blocking(move || {
            let answers = ask(&asked);
            drop(held);
            answers
        })
        .await
    });
    let answers = match answers.await {
        Ok(answers) => Some(answers?.map_err(super::stopping)?),
        Err(_) => None,
    };
    let settings = interface.settings();
    let mut alarms = Vec::new();
    let workers = interface.workers(answers.is_none().then_some(&before), &mut alarms);
    let links = answers.as_ref().map(|all| links(&all.figures, &settings, &mut alarms));
    let hops = answers.as_ref().map(|all| next_hops(&all.neighbors, &settings, &mut alarms));
    let servers = answers.as_ref().map(|all| servers(&all.servers, &settings, &mut alarms));
    let of_pair = answers.as_ref().and_then(|all| all.pair.as_ref());
    let of_pair = of_pair.map(|status| pair::pair(status, &mut alarms));
    let announced = settings.kernel.announce.as_ref().map(|announce| {
        let routes = announced();
        if routes.missing > 0 {
            let (missing, table) = (routes.missing, announce.table);
            let text = format!("{missing} announced routes are missing in table {table}");
            alarms.push(Alarm::critical(text));
        }
        routes.present
    });
    let all = answers.iter().flat_map(|all| &all.figures);
    let learnt = all.map(|one| one.router.learnt_routes).max();
    let learnt = settings.kernel.learn.as_ref().and(learnt);
    let logs = logs(&interface.logs(), &mut alarms);
    // The bindings of an earlier version stay in force.
    let fault = settings.bindings.as_ref().and_then(|bindings| bindings.fault());
    alarms.extend(fault.map(Alarm::warning));
    let problems: Vec<&String> = alarms.iter().map(|alarm| &alarm.text).collect();
    // Without answers, earlier alarms may still hold and keep their start.
    let keep = answers.is_none();
    Ok(Response::done(json!({
        "ok": alarms.is_empty(),
        "problems": problems,
        "alarms": interface.history.alarms.dated(&alarms, keep, SystemTime::now()),
        "host": host(),
        "version": env!("CARGO_PKG_VERSION"),
        "running_s": interface.began.elapsed().as_secs_f64(),
        "links": links,
        "next_hops": hops,
        "servers": servers,
        "logs": logs,
        "routes": { "announced": announced, "learnt": learnt },
        "workers": workers,
        "pair": of_pair,
    })))
}

/// States of the servers that are checked.
fn servers(health: &[ServerHealth], settings: &Settings, alarms: &mut Vec<Alarm>) -> Vec<Value> {
    let is_down = |one: &ServerHealth| one.state == ServerState::Down;
    let server = |one: &ServerHealth| {
        let (service, number) = one.place;
        let service = settings.engine.services.get(service)?;
        let (address, port) = service.servers.get(number)?.internal;
        let (external, external_port) = service.external;
        if is_down(one) {
            let server = format!("server {address}:{port} of {external}:{external_port} is down");
            let gets_sessions = |other: &&ServerHealth| {
                let server = service.servers.get(other.place.1);
                other.place.0 == one.place.0 && server.is_some_and(|it| it.share() > 0)
            };
            let mut others = health.iter().filter(gets_sessions);
            alarms.push(match others.all(is_down) {
                true => Alarm::critical(server),
                false => Alarm::warning(server),
            });
        }
        Some(json!({
            "internal": format!("{address}:{port}"),
            "external": format!("{external}:{external_port}"),
            "state": one.state.name(),
        }))
    };
    health.iter().filter_map(server).collect()
}

fn ask(interface: &Interface) -> Result<Answers, CommandError> {
    let figures = interface.commander().figures()?;
    let of_ipv4 = interface.commander().neighbors()?.into_iter().flatten().map(Neighbor::from);
    let of_ipv6 = interface.commander().neighbors6()?.into_iter().map(Neighbor::from);
    let servers = interface.commander().servers()?;
    let pair = interface.pair.as_ref().and_then(|pair| (pair.state)());
    Ok(Answers { figures, neighbors: of_ipv4.chain(of_ipv6).collect(), servers, pair })
}

/// The host name of the machine, from the kernel.
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

    /// States of the workers. `unanswered`: their loads before the question, if a worker did not
    /// answer.
    fn workers(&self, unanswered: Option<&Vec<LoadNow>>, alarms: &mut Vec<Alarm>) -> Vec<Value> {
        let now = self.loads_now();
        let mut looks = self.history.loads.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = looks.as_ref().map(|(_, loads)| loads.clone()).unwrap_or_default();
        if looks.as_ref().is_none_or(|(at, _)| at.elapsed() >= WINDOW) {
            *looks = Some((Instant::now(), now.clone()));
        }
        drop(looks);
        let worker = |(number, now): (usize, &LoadNow)| {
            let before = unanswered.and_then(|all| all.get(number));
            let alive = before.is_none_or(|before| before.age_ns < now.age_ns);
            if !alive {
                alarms.push(Alarm::critical(format!("worker {number} makes no progress")));
            }
            let before = earlier.get(number).copied().unwrap_or_default();
            let age = now.age_ns.saturating_sub(before.age_ns);
            let busy = now.busy_ns.saturating_sub(before.busy_ns);
            let busy = (age > 0).then(|| (busy as f64 / age as f64).min(1.0));
            let state = if alive { "alive" } else { "stuck" };
            json!({ "worker": number, "state": state, "busy": busy })
        };
        now.iter().enumerate().map(worker).collect()
    }
}

fn links(figures: &[Figures], settings: &Settings, alarms: &mut Vec<Alarm>) -> Vec<Value> {
    let devices = figures::devices(figures, settings);
    let link = |mut device: Value| {
        let up = device["up"] == true;
        let name = device["device"].as_str().unwrap_or_default();
        if !up {
            let side = device["side"].as_str().unwrap_or_default();
            alarms.push(Alarm::critical(format!("link {name} ({side}) is down")));
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

/// The next hops of the configuration, each with its link.
fn hops(settings: &Settings) -> BTreeSet<(bool, u16, IpAddr)> {
    let mut all = BTreeSet::new();
    let mut add = |side: Side, realm: u16, address: IpAddr| {
        all.insert((side == Side::Outside, realm, address));
    };
    for (side, of_ipv4, of_ipv6) in [
        (Side::Outside, &settings.outside.gateway, &settings.ipv6.outside.gateway),
        (Side::Inside, &settings.inside.gateway, &settings.ipv6.inside.gateway),
    ] {
        of_ipv4.iter().for_each(|address| add(side, 0, (*address).into()));
        of_ipv6.iter().for_each(|address| add(side, 0, (*address).into()));
    }
    settings.routes.iter().for_each(|route| add(route.side, 0, route.via.into()));
    settings.router6.routes.iter().for_each(|route| add(route.side, 0, route.via.into()));
    for (place, realm) in settings.realms.iter().enumerate() {
        let number = place as u16 + 1;
        realm.inside.gateway.iter().for_each(|hop| add(Side::Inside, number, (*hop).into()));
        realm.routes.iter().for_each(|route| add(Side::Inside, number, route.via.into()));
    }
    all
}

fn next_hops(neighbors: &[Neighbor], settings: &Settings, alarms: &mut Vec<Alarm>) -> Vec<Value> {
    let hop = |(is_outside, realm, address): (bool, u16, IpAddr)| {
        let side = if is_outside { Side::Outside } else { Side::Inside };
        let same = neighbors.iter().filter(|neighbor| {
            neighbor.link == Link { side, realm } && neighbor.address == address
        });
        let known = same.clone().find_map(|neighbor| neighbor.mac.as_ref());
        let state = match known {
            Some(_) => "resolved",
            None if same.clone().any(|neighbor| neighbor.asking) => "unresolved",
            // No packet was sent to it yet, or not recently.
            None => "unasked",
        };
        if state == "unresolved" {
            let question = if address.is_ipv4() { "ARP" } else { "Neighbor Discovery" };
            alarms.push(Alarm::critical(format!("next hop {address} does not answer {question}")));
        }
        let mut hop = figures::place(Link { side, realm }, settings);
        hop["address"] = json!(address);
        hop["state"] = state.into();
        hop["mac"] = json!(known);
        hop
    };
    hops(settings).into_iter().take(MOST_HOPS).map(hop).collect()
}

fn logs(sinks: &[SinkMetrics], alarms: &mut Vec<Alarm>) -> Vec<Value> {
    let log = |sink: &SinkMetrics| {
        let full = sink.waiting as f64 >= LAGGING * sink.capacity.max(1) as f64;
        let state = match (sink.connected, full) {
            (false, _) => "failed",
            (true, true) => "lagging",
            (true, false) => "connected",
        };
        let name = &sink.name;
        match state {
            "failed" => alarms.push(Alarm::critical(format!("log {name} cannot be written"))),
            "lagging" => alarms.push(Alarm::warning(format!("log {name} is lagging"))),
            _ => {}
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
    use super::alarms::Severity;
    use super::*;
    use crate::config;

    const TEXT: &str = r#"
        [inside]
        device = "in"
        address = "10.0.0.1/8"
        address6 = "2001:db8:1::1/64"
        [outside]
        device = "out"
        address = "192.0.2.1/24"
        gateway = "192.0.2.254"
        address6 = "2001:db8:2::1/64"
        gateway6 = "fe80::fe"
        [[pool]]
        addresses = ["203.0.113.1"]
        [[route]]
        prefix = "2001:db8:5::/48"
        via = "2001:db8:1::5"
        side = "inside"
    "#;

    fn sink(name: &str, waiting: u64, connected: bool) -> SinkMetrics {
        let (written, gaps, lost, capacity, failures) = (0, 0, 0, 100, 0);
        let name = name.to_owned();
        SinkMetrics { name, written, gaps, lost, waiting, capacity, connected, failures }
    }

    #[test]
    fn a_log_is_connected_lagging_or_failed() {
        let all = [sink("a", 49, true), sink("b", 50, true), sink("c", 0, false)];
        let mut alarms = Vec::new();
        let told = logs(&all, &mut alarms);
        let states: Vec<_> = told.iter().map(|log| log["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["connected", "lagging", "failed"]);
        let problems: Vec<_> = alarms.iter().map(|alarm| &alarm.text[..]).collect();
        assert_eq!(problems, ["log b is lagging", "log c cannot be written"]);
        let severities: Vec<_> = alarms.iter().map(|alarm| alarm.severity).collect();
        assert_eq!(severities, [Severity::Warning, Severity::Critical]);
    }

    #[test]
    fn a_silent_next_hop_of_ipv6_raises_an_alarm() {
        let settings = config::parse(TEXT, "test").expect("it is right");
        let neighbor = |side: Side, address: &str, state: NeighborState6| {
            let address = address.parse().expect("an address");
            let mac = (state == NeighborState6::Reachable).then(Default::default);
            let info = NeighborInfo6 { address, mac, state, router: true, held: 0 };
            Neighbor::from((Link { side, realm: 0 }, info))
        };
        let neighbors = [
            neighbor(Side::Outside, "fe80::fe", NeighborState6::Incomplete),
            neighbor(Side::Inside, "2001:db8:1::5", NeighborState6::Reachable),
        ];
        let mut alarms = Vec::new();
        let hops = next_hops(&neighbors, &settings, &mut alarms);
        let of = |hop: &Value| (hop["address"].clone(), hop["state"].clone());
        assert_eq!(
            hops.iter().map(of).collect::<Vec<_>>(),
            [
                (json!("2001:db8:1::5"), json!("resolved")),
                (json!("192.0.2.254"), json!("unasked")),
                (json!("fe80::fe"), json!("unresolved")),
            ]
        );
        let texts: Vec<&str> = alarms.iter().map(|alarm| &alarm.text[..]).collect();
        assert_eq!(texts, ["next hop fe80::fe does not answer Neighbor Discovery"]);
    }
}
