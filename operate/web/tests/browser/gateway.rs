//! A gateway for tests: the interface's paths with figures that the test decides, behind the page,
//! at a port of this machine. It can stop and start again at the same port.

use axum::body::Bytes;
use axum::extract::Query;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use hyper::body::{Body, Frame};
use natgate_http::{Listen, Server, fallbacks};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};
use tokio::time::Interval;

/// The first address of the pool, and how many it has.
const POOL: (u32, u32) = (u32::from_be_bytes([203, 0, 113, 0]), 256);

/// Ports of each protocol that an address has.
const PORTS: u64 = 64_512;

/// Ports of each address of the pool "business" that are reserved for static mappings.
const RESERVED: u64 = 512;

/// A gateway, its address and its controls.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    figures: Arc<Figures>,
    server: Option<Server>,
}

/// The state that the figures are made of.
struct Figures {
    /// Packets a second, outbound.
    rate: AtomicU64,
    /// True if there is a pool of more addresses than cells.
    is_large: bool,
    /// True if a link and two logs have alarms.
    is_ill: AtomicBool,
    /// True if the gateway is one of two.
    is_pair: AtomicBool,
    began: Instant,
    /// Packets forwarded outbound, and when that was reckoned.
    sent: Mutex<(f64, Instant)>,
}

impl Gateway {
    /// A gateway that forwards `rate` packets a second.
    pub(crate) fn start(rate: u64) -> Self {
        Self::with(rate, false)
    }

    /// A gateway that has another pool, of 2048 addresses.
    pub(crate) fn large() -> Self {
        Self::with(1000, true)
    }

    fn with(rate: u64, is_large: bool) -> Self {
        let now = Instant::now();
        let sent = Mutex::new((0.0, now));
        let (rate, is_ill) = (AtomicU64::new(rate), AtomicBool::new(false));
        let is_pair = AtomicBool::new(false);
        let figures = Figures { rate, is_large, is_ill, is_pair, began: now, sent };
        let figures = Arc::new(figures);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut gateway = Self { address, figures, server: None };
        gateway.come();
        gateway
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn set_rate(&self, rate: u64) {
        self.figures.sent();
        self.figures.rate.store(rate, Ordering::Relaxed);
    }

    /// Raises alarms, or ends them.
    pub(crate) fn set_ill(&self, is_ill: bool) {
        self.figures.is_ill.store(is_ill, Ordering::Relaxed);
    }

    /// Becomes one of two gateways, of which the other has ended.
    pub(crate) fn set_pair(&self) {
        self.figures.is_pair.store(true, Ordering::Relaxed);
    }

    /// Goes, with all its connections.
    pub(crate) fn go(&mut self) {
        self.server = None;
    }

    /// Comes, where it was before.
    pub(crate) fn come(&mut self) {
        let router = natgate_web::router(interface(&self.figures), &[]);
        let server = Server::start(Listen::tcp(self.address), router).expect("the port is free");
        self.address = server.address().expect("a TCP port");
        self.server = Some(server);
    }
}

impl Figures {
    /// Packets forwarded outbound so far.
    fn sent(&self) -> u64 {
        let mut sent = self.sent.lock().unwrap();
        let now = Instant::now();
        let rate = self.rate.load(Ordering::Relaxed) as f64;
        // Traffic is never quite even.
        let wave = 1.0 + 0.25 * (self.began.elapsed().as_secs_f64() / 9.0).sin();
        sent.0 += rate * wave * now.duration_since(sent.1).as_secs_f64();
        sent.1 = now;
        sent.0 as u64
    }
}

fn interface(figures: &Arc<Figures>) -> Router {
    let of = |answer: fn(&Figures) -> Value| {
        let figures = Arc::clone(figures);
        get(move || async move { Json(answer(&figures)) })
    };
    let router = Router::new()
        .route("/v1/counters", of(counters))
        .route("/v1/workers", of(workers))
        .route("/v1/status", of(status))
        .route("/v1/fleet", of(|_| fleet()))
        .route("/v1/health", of(health))
        .route("/v1/pools", of(pools))
        .route("/v1/addresses", of(addresses))
        .route("/v1/subscribers", of(|_| subscribers()))
        .route("/v1/events", get(events))
        .route("/v1/who", get(who))
        .route("/v1/mappings", get(mappings))
        .route("/v1/blocks", get(blocks));
    fallbacks(router, "docs/control.md has the list")
}

fn counters(figures: &Figures) -> Value {
    let sent = figures.sent();
    let flow = |forwarded: u64, dropped: u64, size: u64| {
        let of = |size| {
            let (forwarded, dropped) = (forwarded * size, dropped * size);
            json!({ "forwarded": forwarded, "dropped": dropped, "replied": 0 })
        };
        (of(1), of(size))
    };
    let flows = [
        ("outbound", flow(sent, sent / 400, 212)),
        ("inbound", flow(sent * 17 / 10, sent / 900, 1104)),
        ("hairpin", flow(sent / 120, 0, 340)),
        ("local", flow(sent / 9000, 0, 84)),
    ];
    let pick = |which: fn(&(Value, Value)) -> &Value| -> Map<String, Value> {
        flows.iter().map(|(way, flow)| ((*way).to_owned(), which(flow).clone())).collect()
    };
    let mut drops: Map<String, Value> =
        natgate_engine::DropReason::ALL.iter().map(|one| (one.name().into(), 0.into())).collect();
    for (reason, part) in
        [("port_quota", 420), ("no_mapping", 1100), ("filtered", 5200), ("mapping_rate", 9100)]
    {
        drops[reason] = (sent / part).into();
    }
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let (packets, bytes) = (pick(|flow| &flow.0), pick(|flow| &flow.1));
    json!({ "time": time, "packets": packets, "bytes": bytes, "drops": drops })
}

fn status(figures: &Figures) -> Value {
    json!({
        "version": "0.1.0", "running_s": 271_000 + figures.began.elapsed().as_secs(),
        "subscribers": { "now": 10_480, "most": 65_536 },
        "pair": figures.is_pair.load(Ordering::Relaxed),
    })
}

fn fleet() -> Value {
    json!({
        "ok": false, "node": "a", "partner": "b", "partner_ended": true,
        "link": { "connected": false, "reason": "the partner is silent" },
        "resting_ports": 12, "faults": ["slice 1: its copy is not complete"],
        "slices": [
            {
                "slice": 0, "addresses": ["203.0.113.0/25"], "owner": "a", "epoch": 3,
                "assigns": true, "complete": true, "age_s": 1.25, "lag_s": 0.004,
            },
            {
                "slice": 1, "addresses": ["203.0.113.128/25"], "owner": null, "epoch": 0,
                "assigns": false, "complete": false, "age_s": null, "lag_s": 0.0,
            },
        ],
    })
}

/// Two hours before the test's time, so that an alarm has an age.
const ALARM_AGE: f64 = 7500.0;

fn health(figures: &Figures) -> Value {
    let is_ill = figures.is_ill.load(Ordering::Relaxed);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let since = now - ALARM_AGE;
    let alarm = |severity: &str, text: &str| {
        json!({
            "severity": severity,
            "text": text,
            "since": since,
        })
    };
    let alarms = match is_ill {
        false => vec![],
        true => vec![
            alarm("critical", "link ens2f1 (inside) is down"),
            alarm("critical", "log syslog tcp 192.0.2.9:6514 cannot be written"),
            alarm("warning", "log ipfix udp 192.0.2.9:4739 is lagging"),
        ],
    };
    let state = |ill: &'static str, well: &'static str| if is_ill { ill } else { well };
    let log = |name: &str, state: &str| {
        json!({
            "name": name,
            "state": state,
            "waiting": 3,
            "lost": 0,
            "gaps": 0,
        })
    };
    let problems: Vec<Value> = alarms.iter().map(|alarm| alarm["text"].clone()).collect();
    json!({
        "ok": !is_ill, "problems": problems, "alarms": alarms,
        "host": "nat1.example.net", "version": "0.1.0", "running_s": 271_000,
        "links": [
            { "device": "ens2f0", "state": "up", "side": "outside" },
            { "device": "ens2f1", "state": state("down", "up"), "side": "inside" },
        ],
        "next_hops": [{
            "address": "192.0.2.1", "state": "resolved", "side": "outside",
            "mac": "02:00:00:00:00:01",
        }],
        "logs": [
            log("spool /var/log/natgate", "connected"),
            log("file /var/log/natgate.jsonl", "connected"),
            log("syslog tcp 192.0.2.9:6514", state("failed", "connected")),
            log("ipfix udp 192.0.2.9:4739", state("lagging", "connected")),
        ],
        "routes": { "announced": 4, "learnt": null },
        "workers": [
            { "worker": 0, "state": "alive", "busy": 0.41 },
            { "worker": 1, "state": "alive", "busy": 0.63 },
        ],
    })
}

fn workers(figures: &Figures) -> Value {
    let age = figures.began.elapsed().as_nanos() as u64 + 1;
    let worker = |number: u64, busy: u64| {
        json!({
            "worker": number, "mappings": 118_000 + 9001 * number, "age_ns": age,
            "busy_ns": age / 100 * busy, "asleep_ns": age / 100 * (90 - busy),
            "frames": figures.sent() * 13 / 10, "bursts": figures.sent() / 11,
            "largest_burst": 256, "handed_over": figures.sent() / 70, "hand_over_full": 0,
            "taken_over": figures.sent() / 70, "ports_borrowed": 128, "ports_lent": 64,
        })
    };
    json!({ "workers": [worker(0, 41), worker(1, 63)] })
}

/// Thousandths of an address in use, by its place: more in the middle, and one as good as
/// exhausted.
fn fullness(place: u32) -> u64 {
    match place {
        97 => 998,
        0 | 255 => 0,
        place => ((u64::from(place) * 2_654_435_761) >> 7) % 700 * u64::from(place + 40) / 300,
    }
}

/// The addresses of all pools: each pool's name, its addresses, whether it has blocks.
fn addresses(figures: &Figures) -> Value {
    let one = |pool: &str, address: u32, full: u64, blocks: Option<u64>, draining: bool| {
        let used = |thousandths: u64| PORTS * thousandths / 1000;
        let reserved = if pool == "business" { RESERVED } else { 0 };
        let free = |thousandths: u64| PORTS - reserved - used(thousandths);
        let mut one = json!({
            "address": Ipv4Addr::from(address), "pool": pool, "ports": PORTS, "mappings": full * 90,
            "free": {
                "tcp": free(full), "udp": free(full / 2), "icmp": free(full / 40), "dccp": free(0),
            },
            "used": {
                "tcp": used(full), "udp": used(full / 2), "icmp": used(full / 40), "dccp": 0,
            },
            "subscribers": full / 20, "draining": draining,
        });
        one["taken_blocks"] = blocks.map(|all| all * full / 1000).into();
        one["free_blocks"] = blocks.map(|all| all - all * full / 1000).into();
        one
    };
    let first = |network: [u8; 4]| u32::from_be_bytes(network);
    let mut all: Vec<Value> = (0..POOL.1)
        .map(|place| one("default", POOL.0 + place, fullness(place), Some(126), place == 200))
        .collect();
    let small = first([198, 51, 100, 8]);
    all.extend((0..12).map(|n| one("business", small + n, 37 * u64::from(n), None, false)));
    if figures.is_large {
        let large = first([198, 18, 0, 0]);
        let full = |place: u32| if place == 1026 { 600 } else { 0 };
        all.extend((0..2048).map(|place| one("large", large + place, full(place), None, false)));
    }
    json!({ "addresses": all, "more": false })
}

fn pools(figures: &Figures) -> Value {
    let all = addresses(figures);
    let all = all["addresses"].as_array().unwrap();
    let pool = |name: &str| {
        let its: Vec<&Value> = all.iter().filter(|one| one["pool"] == name).collect();
        let sum = |key: &dyn Fn(&Value) -> Option<u64>| -> u64 {
            its.iter().filter_map(|one| key(one)).sum()
        };
        let free = |kind: &'static str| sum(&|one| one["free"][kind].as_u64());
        let used = |kind: &'static str| sum(&|one| one["used"][kind].as_u64());
        let ports = sum(&|one| one["ports"].as_u64());
        let blocks = |key| (name == "default").then(|| sum(&|one| one[key].as_u64()));
        json!({
            "name": name, "addresses": its.len(), "ports": ports,
            "free": { "tcp": free("tcp"), "udp": free("udp"), "icmp": free("icmp"), "dccp": ports },
            "used": { "tcp": used("tcp"), "udp": used("udp"), "icmp": used("icmp"), "dccp": 0 },
            "free_blocks": blocks("free_blocks"), "taken_blocks": blocks("taken_blocks"),
            "mappings": sum(&|one| one["mappings"].as_u64()),
        })
    };
    let mut names = vec!["default", "business"];
    names.extend(figures.is_large.then_some("large"));
    json!({ "pools": names.into_iter().map(pool).collect::<Vec<_>>(), "more": false })
}

fn subscribers() -> Value {
    let one = |place: u8| {
        let mappings = 1900 / (u32::from(place) + 1);
        json!({
            "subscriber": Ipv4Addr::new(100, 64, place / 3, 7 * place + 5),
            "external": "203.0.113.97",
            "mappings": { "tcp": mappings * 6 / 10, "udp": mappings * 4 / 10, "other": place % 2 },
            "sessions": mappings * 2,
        })
    };
    json!({ "subscribers": (0..10).map(one).collect::<Vec<_>>(), "more": true })
}

type Parameters = Query<HashMap<String, String>>;

/// Mappings of a subscriber of IPv4, of hosts of NAT64, and of a subscriber with hosts of NAT64 and
/// of DS-Lite.
fn held() -> Vec<Value> {
    let mapping = |protocol: &str, internal: &str, external: &str, subscriber: &str| {
        json!({
            "protocol": protocol, "internal": internal, "external": external,
            "subscriber": subscriber, "kind": "dynamic", "sessions": 3, "age_s": 754.2,
            "expires_in_s": 288.0, "packets_out": 48_120, "packets_in": 91_233,
        })
    };
    let of_realm = |realm: &str, internal: &str, external: &str, subscriber: &str| {
        let mut one = mapping("udp", internal, external, subscriber);
        one["realm"] = realm.into();
        one
    };
    let both = "2001:db8:b4::/64";
    vec![
        mapping("udp", "100.64.0.5:4000", "203.0.113.97:40000", "100.64.0.5"),
        mapping("tcp", "100.64.0.5:51515", "203.0.113.97:40001", "100.64.0.5"),
        of_realm("nat64", "[2001:db8:1::5]:4000", "203.0.113.98:1", "2001:db8:1::5"),
        of_realm("nat64", "[2001:db8:1::5]:14000", "203.0.113.98:2", "2001:db8:1::5"),
        of_realm("nat64", "[2001:db8:b4::7]:4000", "203.0.113.98:3", both),
        of_realm("dslite", "192.168.1.9:4001", "203.0.113.98:4", both),
    ]
}

fn admits(mapping: &Value, query: &HashMap<String, String>) -> bool {
    query.iter().all(|(key, wanted)| match key.as_str() {
        "external" => {
            let external = mapping["external"].as_str().unwrap();
            external == wanted || external.starts_with(&format!("{wanted}:"))
        }
        "limit" => true,
        other => mapping[other] == wanted.as_str(),
    })
}

/// The refusal of a subscriber with hosts of two realms, if the question names none.
fn two_realms(query: &HashMap<String, String>) -> Option<Response> {
    let is_both = query.get("subscriber").is_some_and(|of| of == "2001:db8:b4::/64");
    let message = "2001:db8:b4::/64 has hosts of [nat64] and of [dslite]; say realm=nat64 or \
                   realm=dslite";
    let body = Json(json!({ "message": message }));
    (is_both && !query.contains_key("realm"))
        .then(|| (StatusCode::BAD_REQUEST, body).into_response())
}

async fn mappings(Query(query): Parameters) -> Response {
    if let Some(refused) = two_realms(&query) {
        return refused;
    }
    let found: Vec<Value> = held().into_iter().filter(|one| admits(one, &query)).collect();
    Json(json!({ "mappings": found, "more": false })).into_response()
}

/// The one block that is listed: none of its ports has a mapping.
fn block() -> Value {
    json!({
        "pool": "default", "external": "203.0.113.50", "ports": "2048-2559",
        "subscriber": "100.64.0.21", "kind": "block", "age_s": 7500.0, "released_in_s": 108.0,
        "used": { "tcp": 0, "udp": 0, "icmp": 0, "dccp": 0 },
        "held": { "tcp": 0, "udp": 1, "icmp": 0, "dccp": 0 },
    })
}

async fn blocks(Query(query): Parameters) -> Response {
    let block = block();
    let is_meant =
        query.iter().all(|(key, wanted)| key == "limit" || block[key] == wanted.as_str());
    let found = if is_meant { vec![block] } else { vec![] };
    Json(json!({ "blocks": found, "more": false })).into_response()
}

/// Answers about ports that no mapping has but a block or hold-down tells of.
fn who_without_mapping(external: &str) -> Option<Response> {
    let resting = json!([{ "protocol": "udp", "for_s": 42.3, "until": 1_772_368_200.0 }]);
    let mut owner = block();
    owner["by"] = "block".into();
    match external {
        "203.0.113.50:2100" => {}
        "203.0.113.50:2101" => owner["resting"] = resting,
        "203.0.113.51:2100" => {
            let message =
                format!("{external}: nobody has it now; it is in hold-down for udp, 42 s more");
            let body = json!({ "answers": [], "message": message, "resting": resting });
            return Some((StatusCode::NOT_FOUND, Json(body)).into_response());
        }
        _ => return None,
    }
    Some(Json(json!({ "answers": [owner] })).into_response())
}

/// The subscriber that had an endpoint at a time; one endpoint had another subscriber then.
fn who_then(query: &HashMap<String, String>) -> Response {
    let refused = |status: StatusCode, message: &str| {
        (status, Json(json!({ "message": message, "answers": [] }))).into_response()
    };
    match (query["external"].as_str(), query["at"].as_str()) {
        (_, "yesterday") => refused(
            StatusCode::BAD_REQUEST,
            "at is \"yesterday\"; write a time such as 2026-03-01T12:30:00Z",
        ),
        ("203.0.113.97:40000", _) => Json(json!({ "answers": [{
            "subscriber": "100.64.0.9", "protocol": "udp", "internal": "100.64.0.9:5000",
            "external": "203.0.113.97", "ports": "40000", "since": 1_772_368_190.125, "until": null,
            "missing": 12,
        }] }))
        .into_response(),
        ("198.51.100.8:2300", _) => Json(json!({ "answers": [{
            "subscriber": "100.64.0.7", "external": "198.51.100.8", "ports": "2048-2559",
            "pool": "business", "kind": "deterministic",
        }] }))
        .into_response(),
        _ => refused(StatusCode::NOT_FOUND, "the log names nobody who had it then"),
    }
}

async fn who(Query(query): Parameters) -> Response {
    if query.contains_key("at") {
        return who_then(&query);
    }
    if let Some(answer) = query.get("external").and_then(|one| who_without_mapping(one)) {
        return answer;
    }
    let held = held();
    let found: Vec<&Value> = held.iter().filter(|one| admits(one, &query)).collect();
    let status = if found.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
    (status, Json(json!({ "answers": found, "message": "nobody has it now" }))).into_response()
}

/// Two events a second, for ever.
struct Stream {
    interval: Interval,
    count: u32,
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.interval.poll_tick(context).map(|_| {
            self.count += 1;
            Some(Ok(Frame::data(format!("{}\n", event(self.count)).into())))
        })
    }
}

fn event(count: u32) -> Value {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let subscriber = format!("100.64.{}.{}", count % 4, count % 250 + 1);
    match count % 7 {
        3 => json!({
            "time": now, "event": "quota_reached", "protocol": "udp", "subscriber": subscriber,
        }),
        1 | 4 | 6 => json!({
            "time": now, "event": "block_assigned", "subscriber": subscriber,
            "external": format!("203.0.113.{}", count % 256), "ports": "20480-20991",
        }),
        _ => json!({
            "time": now, "event": "mapping_created", "protocol": "tcp", "subscriber": subscriber,
            "internal": format!("{subscriber}:50123"), "kind": "dynamic",
            "external": format!("203.0.113.{}:40{:03}", count % 256, count % 1000),
        }),
    }
}

async fn events() -> Response {
    let interval = tokio::time::interval(Duration::from_millis(500));
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    let stream = Stream { interval, count: 0 };
    (kind, axum::body::Body::new(stream)).into_response()
}
