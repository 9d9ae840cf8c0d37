//! The pair: its state, and the commands to it.

use super::changes::Change;
use crate::config::show_range;
use crate::socket::{Response, blocking};
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::get;
use axum::{Extension, Router};
use natgate_gateway::fleet::{
    FleetAnswer, FleetAsker, FleetRequest, FleetStatus, SliceStatus, TunnelCounters,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// A command.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, tag = "do", rename_all = "lowercase")]
enum Command {
    /// A node gives its slices to the other.
    Drain { node: String },
    /// A slice goes to a node.
    Move { slice: usize, node: String },
    /// A node has ended and runs nowhere.
    Forget { node: String },
}

/// The routes; without a pair they say that there is none.
pub fn router(asker: Option<FleetAsker>) -> Router {
    Router::new().route("/v1/fleet", get(state).post(command)).with_state(asker)
}

type Of = State<Option<FleetAsker>>;

async fn ask(asker: Option<FleetAsker>, request: FleetRequest) -> Result<FleetAnswer, Response> {
    let Some(asker) = asker else {
        let message = "this gateway is none of a pair: its configuration has no [fleet]";
        return Err(Response::failure(404, message));
    };
    blocking(move || asker.ask(request)).await
}

async fn state(State(asker): Of) -> Result<Response, Response> {
    let answer = ask(asker, FleetRequest::Status).await?;
    let status = answer.map_err(|message| Response::failure(503, message))?;
    Ok(Response::done(object(&status)))
}

async fn command(State(asker): Of, body: Bytes) -> Result<HttpResponse, Response> {
    let command: Command = serde_json::from_slice(&body).map_err(|error| {
        let example = r#"{"do": "move", "slice": 0, "node": "b"}"#;
        Response::failure(400, format!("the body is no command ({error}); write {example}"))
    })?;
    let (request, done) = match command {
        Command::Drain { node } => (FleetRequest::Drain(node.clone()), format!("{node} drains")),
        Command::Move { slice, node } => {
            (FleetRequest::Move(slice, node.clone()), format!("slice {slice} moves to {node}"))
        }
        Command::Forget { node } => {
            (FleetRequest::Forget(node.clone()), format!("{node} is forgotten"))
        }
    };
    let answer = ask(asker, request).await?;
    let status = answer.map_err(|message| Response::failure(409, message))?;
    let response = Response::done(object(&status));
    Ok((Extension(Change::Done(done)), response).into_response())
}

/// The state as JSON.
fn object(status: &FleetStatus) -> Value {
    let link = &status.link;
    let slices: Vec<Value> = (0..).zip(&status.slices).map(slice).collect();
    let faults: Vec<String> = (0..)
        .zip(&status.slices)
        .filter_map(|(number, slice): (usize, _)| {
            Some(format!("slice {number}: {}", slice.fault()?))
        })
        .collect();
    json!({
        "ok": faults.is_empty(),
        "node": status.node,
        "partner": status.partner,
        "boot": status.boot,
        "partner_boot": status.partner_boot,
        "partner_ended": status.has_partner_ended,
        "link": {
            "connected": link.connected.is_some(),
            "connected_s": link.connected.map(|time| time.as_secs_f64()),
            "round_trip_s": link.round_trip.map(|time| time.as_secs_f64()),
            "clock_lead_s": link.clock_lead.map(|lead| lead as f64 / 1e9),
            "clock_fault": link.clock_fault(),
            "flows_fault": link.flows_fault(),
            "connections": link.connections,
            "refused": link.refused,
            "lost": link.lost,
            "reason": link.reason,
        },
        "resting_ports": status.resting,
        "refused_views": status.refused_views,
        "tunnel": tunnel(&status.tunnel),
        "slices": slices,
        "faults": faults,
    })
}

/// The tunnel as JSON.
fn tunnel(counters: &TunnelCounters) -> Value {
    let TunnelCounters { passed, full, long, taken, foreign, unknown, partial, damaged } = counters;
    json!({
        "passed": by_direction(passed),
        "taken": by_direction(taken),
        "dropped": { "full": full, "long": long },
        "refused": {
            "foreign": foreign, "unknown": unknown, "partial": partial, "damaged": damaged,
        },
    })
}

fn by_direction([outbound, inbound, hairpin]: &[u64; 3]) -> Value {
    json!({ "outbound": outbound, "inbound": inbound, "hairpin": hairpin })
}

fn slice((number, slice): (usize, &SliceStatus)) -> Value {
    let addresses: Vec<String> = slice.addresses.iter().copied().map(show_range).collect();
    let mut object = json!({
        "slice": number,
        "addresses": addresses,
        "home": slice.home,
        "owner": slice.owner,
        "role": slice.role,
        "epoch": slice.epoch,
        "assigns": slice.assigns,
        "rests_s": slice.rests.map(|time| time.as_secs_f64()),
        "drains": slice.drains,
        "moves_to": slice.moves_to,
        "passes": slice.passes,
        "complete": slice.is_complete,
        "age_s": slice.age.map(|time| time.as_secs_f64()),
        "lag_s": slice.lag.as_secs_f64(),
        "disputed": slice.is_disputed,
        "fault": slice.fault(),
        "ended_to_move": slice.ended_to_move,
        "refused": {
            "without_realm": slice.refusal.without_realm,
            "without_number": slice.refusal.without_number,
            "of_full_subscribers": slice.refusal.of_full_subscribers,
            "unfit": slice.refusal.unfit,
            "without_gateway": slice.refusal.without_gateway,
            "realms": slice.refusal.realms,
            "differences": slice.refusal.differences,
        },
    });
    if let Some(sent) = slice.sent {
        let lag = sent.waits.of_99_percent().map(|time| Duration::from_nanos(time).as_secs_f64());
        object["sent"] = json!({
            "packets": sent.packets, "records": sent.records, "bytes": sent.bytes,
            "lost": sent.lost, "repaired": sent.repaired, "lag_p99_s": lag,
        });
    }
    if let Some(received) = slice.received {
        object["received"] = json!({
            "packets": received.packets, "records": received.records,
            "repeated": received.repeated, "foreign": received.foreign,
            "damaged": received.damaged, "gaps": received.gaps,
            "without_room": received.without_room, "void": received.void,
            "compared": received.compared, "divergent": received.divergent,
            "without_realm": slice.records_without_realm,
        });
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_gateway::fleet::{LinkStatus, Refusal};

    #[test]
    fn a_command_has_its_parts_and_no_others() {
        let read = |text: &str| serde_json::from_str::<Command>(text);
        assert!(matches!(
            read(r#"{"do": "move", "slice": 3, "node": "b"}"#),
            Ok(Command::Move { slice: 3, .. })
        ));
        assert!(read(r#"{"do": "drain"}"#).is_err());
        assert!(read(r#"{"do": "drain", "node": "a", "slice": 1}"#).is_err());
        assert!(read(r#"{"do": "explode", "node": "a"}"#).is_err());
    }

    /// State of a node that knows no owner.
    fn unknown() -> FleetStatus {
        let address = std::net::Ipv4Addr::new(203, 0, 113, 1);
        let slice = SliceStatus {
            addresses: vec![natgate_engine::AddressRange { first: address, last: address }],
            home: "a".into(),
            owner: None,
            role: "unknown",
            epoch: 0,
            assigns: false,
            rests: None,
            drains: false,
            moves_to: None,
            is_move_overdue: false,
            passes: false,
            is_complete: false,
            age: None,
            lag: Duration::ZERO,
            is_disputed: false,
            sent: None,
            received: None,
            refusal: Refusal::default(),
            records_without_realm: None,
            ended_to_move: 0,
        };
        FleetStatus {
            node: "a".into(),
            partner: "b".into(),
            boot: 1 << 32,
            partner_boot: 0,
            has_partner_ended: false,
            link: LinkStatus { clock_lead: Some(-3_210_000_000), ..LinkStatus::default() },
            resting: 0,
            refused_views: 0,
            tunnel: TunnelCounters { passed: [7, 8, 9], foreign: 3, ..TunnelCounters::default() },
            slices: vec![slice],
            owners: Vec::new(),
        }
    }

    #[test]
    fn a_state_names_what_is_wrong() {
        let object = object(&unknown());
        assert_eq!(object["ok"], false);
        assert_eq!(object["faults"][0], "slice 0: no node is known to own it");
        assert_eq!(object["slices"][0]["addresses"][0], "203.0.113.1");
        assert_eq!(object["link"]["clock_lead_s"], -3.21);
        assert_eq!(object["link"]["clock_fault"], "the clocks of the nodes differ by 3.2 s");
        assert!(object["link"]["flows_fault"].is_null());
        assert_eq!(object["tunnel"]["passed"], json!({"outbound": 7, "inbound": 8, "hairpin": 9}));
        assert_eq!(object["tunnel"]["refused"]["foreign"], 3);
        let near = LinkStatus { clock_lead: Some(1_000_000_000), ..LinkStatus::default() };
        assert_eq!(near.clock_fault(), None);
    }

    #[test]
    fn a_slice_that_rests_with_a_complete_copy_is_no_fault() {
        let mut status = unknown();
        status.slices[0] = SliceStatus {
            owner: Some("a".into()),
            role: "owner",
            rests: Some(Duration::from_secs(90)),
            is_complete: true,
            age: Some(Duration::from_secs(1)),
            ..status.slices[0].clone()
        };
        let object = object(&status);
        assert_eq!(object["slices"][0]["rests_s"], 90.0);
        assert_eq!((&object["ok"], &object["faults"]), (&json!(true), &json!([])));
    }
}
