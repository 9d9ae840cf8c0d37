//! Monitoring: Prometheus, an SNMP agent, and data in YANG.
//!
//! Each request asks the workers for their figures.

use super::say;
use crate::Failure;
use axum::Router;
use axum::extract::RawQuery;
use axum::routing::get;
use natgate_control::interface::{Loads, query::TableQuery};
use natgate_control::reload::Reloader;
use natgate_control::routes::announced;
use natgate_control::socket::{Response, Server, blocking};
use natgate_engine::{Change, Event, Filter, MappingInfo};
use natgate_gateway::fleet::{FleetAsker, FleetRequest};
use natgate_gateway::{
    CommandError, LogWhat, MetricsPlace, MonitoringSettings, ServerHealth, ServerState, Settings,
    panics,
};
use natgate_logs::{Record, SinkMetrics, Subscribers};
use natgate_metrics::snmp::{Agent, Reached, Sources, View};
use natgate_metrics::yang::{Export, MappingState, state};
use natgate_metrics::{Figures, ListenerFigures, Reloads, ServerFigures, SinkFigures, export};
use serde_json::json;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

/// Mappings in an export by default, and at most.
const USUALLY_EXPORTED: u64 = 1000;
const MOST_EXPORTED: u64 = 100_000;

/// Most events that wait for the thread that tells managers about subscribers.
const MOST_REACHED: usize = 4096;

/// Mappings of one part of a list.
const PART: usize = 512;

/// State that all monitoring reads.
#[derive(Clone)]
pub(super) struct MonitoringState {
    reloader: Arc<Reloader>,
    loads: Loads,
    began: SystemTime,
    sinks: Sinks,
    fleet: Option<FleetAsker>,
    /// Refused connections, by [`Listener`].
    refused: [Arc<AtomicU64>; Listener::ALL.len()],
}

/// A TCP port that limits its connections.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listener {
    /// The page for browsers.
    Page,
    /// The page for Prometheus.
    Metrics,
}

impl Listener {
    const ALL: [Self; 2] = [Self::Page, Self::Metrics];

    fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Metrics => "metrics",
        }
    }
}

/// Returns figures of the event logs.
pub(super) type Sinks = Arc<dyn Fn() -> Vec<SinkFigures> + Send + Sync>;

/// Converts the metrics of event logs to figures.
pub(super) fn sinks(metrics: impl Fn() -> Vec<SinkMetrics> + Send + Sync + 'static) -> Sinks {
    let figures = |sink: SinkMetrics| SinkFigures {
        name: sink.name,
        written: sink.written,
        lost: sink.lost,
        gaps: sink.gaps,
        waiting: sink.waiting,
        up: sink.connected,
    };
    Arc::new(move || metrics().into_iter().map(figures).collect())
}

/// Figures of a server that is checked.
fn server(settings: &Settings, health: &ServerHealth) -> Option<ServerFigures> {
    let (service, number) = health.place;
    let service = settings.engine.services.get(service)?;
    let end = |(address, port)| SocketAddrV4::new(address, port);
    Some(ServerFigures {
        external: end(service.external),
        internal: end(service.servers.get(number)?.internal),
        realm: settings.realm_name(service.realm).to_owned(),
        up: health.state != ServerState::Down,
        succeeded: health.checks[0],
        failed: health.checks[1],
    })
}

impl MonitoringState {
    pub(super) fn new(
        reloader: &Arc<Reloader>,
        loads: &Loads,
        sinks: Sinks,
        fleet: Option<FleetAsker>,
    ) -> Self {
        let (reloader, loads) = (Arc::clone(reloader), Arc::clone(loads));
        Self { reloader, loads, began: SystemTime::now(), sinks, fleet, refused: <_>::default() }
    }

    /// Counter of refused connections of a listener.
    pub(super) fn refused(&self, listener: Listener) -> Arc<AtomicU64> {
        Arc::clone(&self.refused[listener as usize])
    }

    /// Connects to an SNMP agent, if the settings name one. Dropping the agent waits for the
    /// workers' answers.
    pub(super) fn connect(
        &self,
        settings: &MonitoringSettings,
        events: &Subscribers,
    ) -> Option<Agent> {
        let (watched, settings) = (self.clone(), settings.snmp.clone()?);
        let sources = Sources {
            view: Box::new(move || watched.view()),
            rows: Box::new(self.reloader.commander().clone()),
            reached: if settings.subscribers { self.reached(events) } else { Box::new(Vec::new) },
        };
        let agent = Agent::start(settings, sources, say);
        agent.map_err(|error| say(format!("warning: no SNMP: no thread can be made: {error}"))).ok()
    }

    /// Listens for subscribers that reach a limit or the highest threshold.
    fn reached(&self, events: &Subscribers) -> Reached {
        let subscription = events.listen_undamped(MOST_REACHED, LogWhat::Blocks);
        let (reloader, mut records) = (Arc::clone(&self.reloader), Vec::new());
        Box::new(move || {
            records.clear();
            subscription.take(MOST_REACHED, Duration::ZERO, &mut records);
            let highest = reloader.settings().engine.limits.thresholds.iter().max().copied();
            let who = |record: &Record| match record {
                Record::Event(Event {
                    change: Change::QuotaReached { realm, subscriber, .. },
                    ..
                }) => Some((*realm, *subscriber)),
                Record::Event(Event {
                    change: Change::ThresholdReached { realm, subscriber, percent, .. },
                    ..
                }) if Some(*percent) >= highest => Some((*realm, *subscriber)),
                _ => None,
            };
            let mut all: Vec<_> = records.iter().filter_map(who).collect();
            all.sort_unstable();
            all.dedup();
            all
        })
    }

    /// Serves metrics from now on, unless the configuration says otherwise.
    pub(super) fn serve(&self, settings: &MonitoringSettings) -> Result<Option<Server>, Failure> {
        let (address, is_named) = match settings.metrics {
            MetricsPlace::Nowhere => return Ok(None),
            MetricsPlace::Usual => (MetricsPlace::USUAL, false),
            MetricsPlace::At(address) => (address, true),
        };
        let watched = self.clone();
        match export(
            address,
            &settings.metrics_names,
            Arc::new(move || Ok(watched.view()?.figures)),
            self.refused(Listener::Metrics),
        ) {
            Ok(server) => Ok(Some(server)),
            Err(error) if is_named => {
                Err(anyhow::Error::from(error).context("metrics.listen cannot be used").into())
            }
            Err(error) => {
                say(format!("warning: no metrics: {error} (metrics.listen; it may be \"off\")"));
                Ok(None)
            }
        }
    }

    /// Configuration and figures of now.
    fn view(&self) -> Result<View, String> {
        let told = self.reloader.commander().figures().map_err(|error| error.to_string())?;
        let settings = self.reloader.settings();
        let loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let timings = loads.iter().map(|load| load.timing());
        let mut figures =
            Figures::gather((&settings.engine, &settings.ipv6), self.began, &told, timings);
        figures.bindings = settings.bindings.as_ref().map(|all| all.table().len() as u64);
        let health = self.reloader.commander().servers().map_err(|error| error.to_string())?;
        figures.servers = health.iter().filter_map(|one| server(&settings, one)).collect();
        figures.sinks = (self.sinks)();
        let listener = |listener: Listener| ListenerFigures {
            name: listener.name(),
            refused: self.refused[listener as usize].load(Ordering::Relaxed),
        };
        figures.listeners = Listener::ALL.map(listener).to_vec();
        figures.control_panics = panics::count();
        figures.announced = settings.kernel.announce.as_ref().map(|_| announced());
        let fleet = self.fleet.as_ref().map(|fleet| fleet.ask(FleetRequest::Status));
        figures.fleet = fleet.and_then(Result::ok);
        let tally = self.reloader.tally();
        figures.reloads = Reloads {
            succeeded: tally.succeeded,
            failed: tally.failed,
            last_success: tally.last_success,
        };
        Ok(View { config: Arc::new(settings.engine.clone()), figures })
    }

    /// Router of the monitoring requests at the control socket.
    pub(super) fn router(&self) -> Router {
        let watched = self.clone();
        let yang = move |RawQuery(query): RawQuery| async move {
            let asked = TableQuery::parse(query.as_deref(), &["limit"])?;
            let most = asked.limit.unwrap_or(USUALLY_EXPORTED).min(MOST_EXPORTED);
            blocking(move || watched.yang(most)).await?
        };
        Router::new().route("/v1/yang", get(yang))
    }

    /// Configuration, state, and at most `most` mappings as data of YANG modules.
    fn yang(&self, most: u64) -> Result<Response, Response> {
        let stopping = |error: CommandError| Response::failure(503, error.to_string());
        let view = self.view().map_err(|message| Response::failure(503, message))?;
        let mut mappings = Vec::new();
        let mut list = self.reloader.commander().list::<MappingInfo>(Filter::default(), PART);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        while mappings.len() < most {
            let Some((part, now)) = list.next_part().map_err(stopping)? else { break };
            let state = |info: &MappingInfo| MappingState {
                id: info.id,
                lifetime: info.expires.map(|expires| expires.since(now).as_secs()),
            };
            mappings.extend(part.iter().map(state).take(most - mappings.len()));
        }
        let settings = self.reloader.settings();
        let mut ipv6 = settings.ipv6.clone();
        // The file of bindings is read again by itself.
        if let (Some(lw4o6), Some(bindings)) = (&mut ipv6.lw4o6, &settings.bindings) {
            lw4o6.bindings = bindings.table();
        }
        let Export { data, left_out } = state((&view.config, &ipv6), &view.figures, &mappings);
        Ok(Response::done(json!({ "data": data, "left_out": left_out })))
    }
}
