//! The list of expectations of application-level gateways.

use super::query::TableQuery;
use super::{Answer, Of, lists, stopping};
use crate::json;
use crate::socket::blocking;
use axum::extract::{RawQuery, State};
use natgate_gateway::ipv6::HostName;
use natgate_gateway::{OpenExpectation, Settings};
use natgate_logs::endpoint;
use serde_json::{Value, json};

/// Lists the expectations whose flow may begin.
pub(super) async fn expectations(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
    let settings = interface.settings();
    let open = blocking(move || interface.commander().expectations()).await?.map_err(stopping)?;
    let objects = open.iter().map(|one| object(one, &settings));
    lists::whole("expectations", objects.collect(), false)
}

fn object(open: &OpenExpectation, settings: &Settings) -> Value {
    let OpenExpectation { made, left, once, host } = open;
    let mut object = json!({
        "kind": made.kind.name(),
        "protocol": json::protocol(made.protocol),
        "internal": endpoint(made.internal),
        "external": endpoint(made.external),
        "subscriber": made.internal.address,
        "remote": json::remote(made),
        "expires_in_s": left.as_secs_f64(),
        "once": once,
    });
    if let Some(HostName { address, prefix, len }) = *host {
        object["subscriber"] = json::prefix((prefix, len)).into();
        if let Some(address) = address {
            object["internal"] = json::host_endpoint(address, made.internal.port).into();
        }
    }
    if !settings.realms.is_empty() {
        object["realm"] = settings.realm_name(made.realm).into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{Config, Endpoint, Timestamp};
    use natgate_gateway::{AlgExpectation, AlgKind, SideSettings};
    use std::net::Ipv4Addr;
    use std::time::Duration;

    #[test]
    fn an_expectation_names_its_ends_and_its_time() {
        let [inside, outside] = [SideSettings::new("in"), SideSettings::new("out")];
        let settings = Settings::new(Config::default(), inside, outside);
        let made = AlgExpectation {
            time: Timestamp(0),
            kind: AlgKind::Tftp,
            protocol: 17,
            realm: 0,
            internal: Endpoint::new(0x0a00_0005, 4000),
            external: Endpoint::new(0xcb00_7101, 5000),
            remote: Some(Ipv4Addr::new(192, 0, 2, 1)),
            remote_port: 0,
        };
        let open =
            OpenExpectation { made, left: Duration::from_millis(29_500), once: true, host: None };
        let mut expected = json!({
            "kind": "tftp", "protocol": "udp", "internal": "10.0.0.5:4000",
            "external": "203.0.113.1:5000", "subscriber": "10.0.0.5", "remote": "192.0.2.1",
            "expires_in_s": 29.5, "once": true,
        });
        assert_eq!(object(&open, &settings), expected);
        let anybody = AlgExpectation { remote: None, ..made };
        expected["remote"] = Value::Null;
        assert_eq!(object(&OpenExpectation { made: anybody, ..open }, &settings), expected);
        let prefix = "2001:db8::".parse().unwrap();
        let name = HostName { address: Some("2001:db8::5".parse().unwrap()), prefix, len: 64 };
        let of_host = object(&OpenExpectation { host: Some(name), ..open }, &settings);
        assert_eq!(of_host["internal"], "[2001:db8::5]:4000");
        assert_eq!(of_host["subscriber"], "2001:db8::/64");
    }
}
