//! The HTTP interface of the control socket: paths, requests and responses (docs/control.md, and
//! `schema.json` in this folder, which the gateway serves). A new command is a new line in
//! [`Interface::router`].
//!
//! Tables are read from the workers in parts while the client reads ([`lists`]). So a response of
//! any length takes little memory, and a slow client delays no other.

pub mod changes;
mod endpoint_owner;
mod expectations;
mod figures;
pub mod fleet;
pub mod health;
mod lists;
mod partner_table;
mod pools;
pub mod query;
mod servers;
mod softwires;
#[cfg(test)]
mod tests;
mod top;

use crate::host_names::HostNames;
use crate::json::Names;
use crate::past::Searches;
use crate::reload::{Attempt, ReloadError, Reloaded, Reloader};
use crate::socket::{ClientGroup, Response, blocking, fallbacks};
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::{get, post};
use axum::{Extension, Router};
use changes::Change;
pub use endpoint_owner::PairAsker;
use natgate_engine::{Filter, Prefix};
use natgate_gateway::{CommandError, Commander, Load, Settings};
use natgate_logs::CatchUp;
use query::TableQuery;
use serde::Deserialize;
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Mappings that a dry run names by default, and the most that a client may ask for.
const USUALLY_NAMED: usize = 20;
const MOST_NAMED: usize = 100_000;

/// Realms that the answer to an unknown realm names.
const REALMS_NAMED: usize = 10;

/// The OpenAPI schema of the interface.
pub const SCHEMA: &str = include_str!("schema.json");

/// Answers the requests of the control socket.
pub struct Interface {
    reloader: Arc<Reloader>,
    /// Load of each worker.
    loads: Loads,
    began: Instant,
    /// Subscribers with the most mappings.
    top: top::Latest,
    /// State of the event logs.
    sinks: Option<health::Sinks>,
    history: health::History,
    /// Searches of the event logs on disk, for each client group.
    searches: [Searches; ClientGroup::COUNT],
    /// The means to wait for the last events in the logs on disk.
    catch_up: Option<CatchUp>,
    /// The means of a node of a pair.
    pair: Option<PairAsker>,
    asking: endpoint_owner::Asking,
}

/// The load of each worker. A worker that joins adds an entry.
pub type Loads = Arc<Mutex<Vec<Arc<Load>>>>;

/// Body of a request to `/v1/reload`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ReloadRequest {
    dry_run: bool,
    /// Mappings to name; `None`: [`USUALLY_NAMED`].
    most: Option<usize>,
}

type Of = State<Arc<Interface>>;

/// A response, or an error response.
type Answer = Result<Response, Response>;

impl Interface {
    /// Makes the interface of a gateway with a configuration that can be reread and with the loads
    /// of its workers.
    pub fn new(reloader: Arc<Reloader>, loads: Loads) -> Self {
        let (top, history) = (top::Latest::default(), health::History::default());
        let searches = std::array::from_fn(|_| Searches::new());
        let (sinks, catch_up, pair, began) = (None, None, None, Instant::now());
        let asking = endpoint_owner::Asking::default();
        Self { reloader, loads, began, top, sinks, history, searches, catch_up, pair, asking }
    }

    /// Adds the event logs, whose state `sinks` returns.
    #[must_use]
    pub fn watching(self, sinks: health::Sinks) -> Self {
        Self { sinks: Some(sinks), ..self }
    }

    /// Adds the logs on disk, whose last events a search waits for.
    #[must_use]
    pub fn catching_up(self, catch_up: CatchUp) -> Self {
        Self { catch_up: Some(catch_up), ..self }
    }

    /// Adds the means of a node of a pair.
    #[must_use]
    pub fn paired(self, pair: Option<PairAsker>) -> Self {
        Self { pair, ..self }
    }

    /// Returns the function that answers questions of the pair's other node, as long as the
    /// interface exists. It may take long; the function that is passed to it returns false when the
    /// answer is needed no longer. `None`: the question is malformed.
    pub fn answerer(
        self: &Arc<Self>,
    ) -> impl Fn(&[u8], &dyn Fn() -> bool) -> Option<Vec<u8>> + Send + Sync + 'static {
        let interface = Arc::downgrade(self);
        move |question, go_on| endpoint_owner::answer_partner(&interface, question, go_on)
    }

    /// The routes of the interface. Other routers may be merged; [`Interface::complete`] comes
    /// last.
    pub fn router(self: Arc<Self>) -> Router {
        let interface = self;
        health::watch(&interface);
        Router::new()
            .route("/v1/addresses", get(pools::addresses))
            .route("/v1/bindings", get(softwires::bindings).post(softwires::change))
            .route("/v1/blocks", get(lists::blocks))
            .route("/v1/clear", post(clear))
            .route("/v1/counters", get(figures::counters))
            .route("/v1/domains", get(softwires::domains))
            .route("/v1/expectations", get(expectations::expectations))
            .route("/v1/health", get(health::health))
            .route("/v1/mappings", get(lists::mappings))
            .route("/v1/neighbors", get(figures::neighbors))
            .route("/v1/pools", get(pools::pools))
            .route("/v1/reload", post(reload))
            .route("/v1/routes", get(lists::routes))
            .route("/v1/rules", get(lists::rules))
            .route("/v1/schema", get(schema))
            .route("/v1/servers", get(servers::servers))
            .route("/v1/sessions", get(lists::sessions))
            .route("/v1/status", get(figures::status))
            .route("/v1/subscribers", get(lists::subscribers))
            .route("/v1/who", get(endpoint_owner::who))
            .route("/v1/workers", get(figures::workers))
            .with_state(interface)
    }

    /// Adds the answer to unknown paths.
    pub fn complete(router: Router) -> Router {
        fallbacks(router, "GET /v1/schema has the list")
    }

    fn commander(&self) -> &Commander {
        self.reloader.commander()
    }

    fn settings(&self) -> Arc<Settings> {
        self.reloader.settings()
    }

    fn names(&self) -> Names {
        Names::of_settings(&self.settings())
    }

    /// Converts a query to a filter with the gateway's numbers.
    fn filter(&self, asked: &TableQuery) -> Result<Filter, Response> {
        let settings = self.settings();
        let realm = |name: &String| -> Result<u16, Response> {
            let further = &settings.engine.realms;
            let place = further.iter().position(|realm| !realm.gone && realm.name == *name);
            // The realms of hosts with numbers are in these settings after a reload only.
            let mut of_hosts = settings.ipv6.host_realms(settings.realms.len()).all();
            match place {
                _ if name == settings.realm_name(0) => Ok(0),
                Some(place) => Ok(place as u16 + 1),
                None => of_hosts
                    .find(|(_, kind)| kind.realm_name() == *name)
                    .map(|(realm, _)| realm)
                    .ok_or_else(|| Response::failure(404, no_realm(name, &settings))),
            }
        };
        Ok(Filter {
            internal_port: None,
            realm: asked.realm.as_ref().map(realm).transpose()?,
            subscriber: asked.subscriber,
            external: asked.external,
            external_port: asked.external_port,
            remote: asked.remote,
            remote_port: asked.remote_port,
            protocol: asked.protocol,
        })
    }

    /// As [`Interface::filter`], with a subscriber of either family.
    async fn filter_of_all(self: &Arc<Self>, asked: &TableQuery) -> Result<Filter, Response> {
        let (filter, of, asked) = (self.filter(asked)?, Arc::clone(self), asked.clone());
        if asked.subscriber6.is_none() {
            return Ok(filter);
        }
        blocking(move || of.with_subscriber6(&asked, filter)).await?
    }

    /// Adds a subscriber of IPv6 to a filter: its hosts have numbers in a realm of their own. A
    /// customer of NAT64 and DS-Lite has both: the query tells which by the realm.
    fn with_subscriber6(&self, asked: &TableQuery, filter: Filter) -> Result<Filter, Response> {
        let Some(prefix) = asked.subscriber6 else { return Ok(filter) };
        let mut found = self.commander().numbers(prefix).map_err(stopping)?;
        found.retain(|(realm, _)| filter.realm.is_none_or(|asked| asked == *realm));
        let (realm, numbers) = match found[..] {
            [] => (None, Prefix::new(Ipv4Addr::UNSPECIFIED, 32)),
            [(realm, numbers)] => (Some(realm), numbers),
            _ => {
                let which = "has hosts of [nat64] and of [dslite]; say realm=nat64 or realm=dslite";
                let shown = crate::json::prefix(prefix);
                return Err(Response::failure(400, format!("{shown} {which}")));
            }
        };
        Ok(Filter { realm, subscriber: Some(numbers), ..filter })
    }

    /// Names of the hosts with numbers among some hosts, each with realm and number.
    fn host_names(
        &self,
        hosts: impl Iterator<Item = (u16, Ipv4Addr)>,
    ) -> Result<HostNames, CommandError> {
        HostNames::ask(self.commander(), &self.settings(), hosts)
    }

    fn reload(&self, body: &[u8]) -> (Response, Option<Change>) {
        let asked = match body {
            [] => Ok(ReloadRequest::default()),
            body => serde_json::from_slice(body),
        };
        let asked: ReloadRequest = match asked {
            Ok(asked) => asked,
            Err(error) => {
                return (Response::failure(400, format!("the body is wrong: {error}")), None);
            }
        };
        let most = asked.most.unwrap_or(USUALLY_NAMED).min(MOST_NAMED);
        if asked.dry_run {
            return (answer(self.reloader.try_out(most)), Some(Change::Nothing));
        }
        let attempt = self.reloader.attempt();
        let change = Change::Done(attempt.sentence());
        let Attempt { result, .. } = attempt;
        (answer(result), Some(change))
    }

    fn clear(&self, asked: &TableQuery) -> Result<HttpResponse, Response> {
        let Some(what) = asked.what else {
            let message = "what is to be cleared? Say what=mappings or what=sessions";
            return Err(Response::failure(400, message));
        };
        let sessions = what == query::What::Sessions;
        let filter = self.with_subscriber6(asked, self.filter(asked)?)?;
        let cleared = self.commander().clear(filter, sessions).map_err(stopping)?;
        let body = json!({ "ok": true, "what": what.name(), "cleared": cleared });
        let change = Change::Done(format!("{cleared} {} cleared", what.name()));
        Ok((Extension(change), Response::done(body)).into_response())
    }
}

/// The sentence about an unknown realm, with some of the existing realms.
fn no_realm(name: &str, settings: &Settings) -> String {
    let further = settings.engine.realms.iter();
    let further = further.filter(|realm| !realm.gone && realm.host_bits.is_none());
    let names = std::iter::once(settings.realm_name(0)).chain(further.map(|realm| &realm.name[..]));
    let of_hosts = settings.ipv6.host_realms(settings.realms.len()).all();
    let names = names.take(REALMS_NAMED).chain(of_hosts.map(|(_, kind)| kind.realm_name()));
    let known: Vec<&str> = names.collect();
    let shown: String = name.chars().take(40).collect();
    format!("there is no realm {shown:?}; there is {}", known.join(", "))
}

/// The response of a gateway that is stopping.
fn stopping(error: CommandError) -> Response {
    Response::failure(503, error.to_string())
}

async fn reload(State(interface): Of, body: Bytes) -> Result<HttpResponse, Response> {
    let (response, change) = blocking(move || interface.reload(&body)).await?;
    let mut response = response.into_response();
    change.and_then(|change| response.extensions_mut().insert(change));
    Ok(response)
}

async fn clear(State(interface): Of, RawQuery(query): RawQuery) -> Result<HttpResponse, Response> {
    let keys = ["what", "subscriber", "realm", "external", "remote", "protocol"];
    let asked = TableQuery::parse(query.as_deref(), &keys)?;
    blocking(move || interface.clear(&asked)).await?
}

async fn schema() -> HttpResponse {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], SCHEMA).into_response()
}

/// True if the client wants one object per line.
fn wants_lines(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("application/x-ndjson"))
}

fn answer(result: Result<Reloaded, ReloadError>) -> Response {
    match result {
        Ok(reloaded) => Response::done(reloaded.object()),
        Err(ReloadError::Configuration(errors)) => {
            Response { status: 422, body: json!({ "ok": false, "errors": errors }) }
        }
        Err(ReloadError::Gateway(error)) => Response::failure(503, error.to_string()),
    }
}
