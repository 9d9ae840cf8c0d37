//! The servers of static mappings: their shares and their health.

use super::query::TableQuery;
use super::{Answer, Of, lists, stopping};
use crate::json;
use crate::socket::blocking;
use axum::extract::{RawQuery, State};
use natgate_engine::{Server, Service, Timestamp};
use natgate_gateway::{ServerHealth, Settings};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddrV4;

/// Lists the servers of all services.
pub(super) async fn servers(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
    let settings = interface.settings();
    let answers = blocking(move || {
        let commander = interface.commander();
        let now = commander.figures()?.first().map_or(Timestamp(0), |figures| figures.now);
        Ok((commander.servers()?, now))
    });
    let (health, now) = answers.await?.map_err(stopping)?;
    lists::whole("servers", objects(&settings, &health, now), false)
}

/// An object for each server, in the order of the configuration.
fn objects(settings: &Settings, health: &[ServerHealth], now: Timestamp) -> Vec<Value> {
    let health: HashMap<_, _> = health.iter().map(|one| (one.place, one)).collect();
    let services = settings.engine.services.iter().enumerate();
    let objects = services.flat_map(|(place, service)| {
        let health = &health;
        let servers = service.servers.iter().enumerate();
        servers.map(move |(number, server)| {
            let health = health.get(&(place, number)).copied();
            object(settings, service, server, health, now)
        })
    });
    objects.collect()
}

fn object(
    settings: &Settings,
    service: &Service,
    server: &Server,
    health: Option<&ServerHealth>,
    now: Timestamp,
) -> Value {
    let end = |(address, port)| SocketAddrV4::new(address, port).to_string();
    let mut object = json!({
        "external": end(service.external),
        "protocol": service.protocol.map(json::protocol),
        "internal": end(server.internal),
        "weight": server.weight,
        "drain": server.draining,
        "backup": server.backup,
        "state": health.map(|health| health.state.name()),
        "since_s": health.map(|health| now.since(health.since).as_secs_f64()),
        "succeeded": health.map(|health| health.checks[0]),
        "failed": health.map(|health| health.checks[1]),
        "failure": health.and_then(|health| health.failure).map(|failure| failure.to_string()),
    });
    if !settings.realms.is_empty() {
        object["realm"] = settings.realm_name(service.realm).into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{Affinity, Config};
    use natgate_gateway::{CheckFailure, ServerState, SideSettings};
    use std::net::Ipv4Addr;

    #[test]
    fn servers_have_their_shares_and_their_health() {
        let [inside, outside] = [SideSettings::new("in"), SideSettings::new("out")];
        let server = |last, backup| Server {
            internal: (Ipv4Addr::new(10, 0, 0, last), 8080),
            weight: 2,
            draining: false,
            backup,
        };
        let service = Service {
            realm: 0,
            protocol: Some(6),
            external: (Ipv4Addr::new(203, 0, 113, 1), 80),
            servers: vec![server(5, false), server(6, true)],
            affinity: Affinity::Address,
        };
        let engine = Config { services: vec![service], ..Config::default() };
        let settings = Settings::new(engine, inside, outside);
        let health = ServerHealth {
            place: (0, 1),
            state: ServerState::Down,
            since: Timestamp(1_000_000_000),
            checks: [7, 3],
            failure: Some(CheckFailure::Status(503)),
        };
        let objects = objects(&settings, &[health], Timestamp(3_500_000_000));
        let unchecked = json!({
            "external": "203.0.113.1:80", "protocol": "tcp", "internal": "10.0.0.5:8080",
            "weight": 2, "drain": false, "backup": false, "state": null, "since_s": null,
            "succeeded": null, "failed": null, "failure": null,
        });
        let down = json!({
            "external": "203.0.113.1:80", "protocol": "tcp", "internal": "10.0.0.6:8080",
            "weight": 2, "drain": false, "backup": true, "state": "down", "since_s": 2.5,
            "succeeded": 7, "failed": 3, "failure": "status 503",
        });
        assert_eq!(objects, [unchecked, down]);
    }
}
