//! Bindings of lw4o6 and domains of MAP: lists, and changes of single bindings.

use super::changes::Change;
use super::lists::{Entries, PART, write};
use super::query::TableQuery;
use super::{Answer, Interface, Of, blocking, stopping};
use crate::config;
use crate::socket::Response;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response as HttpResponse};
use natgate_gateway::{BindingChange, Figures, Settings};
use natgate_ipv6::Prefix6;
use natgate_ipv6::softwire::{Binding, DomainCounters, MapMode, MapRule};
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// Places of the table that one part of a list looks at.
const PLACES_A_PART: usize = 1 << 16;

/// Body of a change of bindings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeRequest {
    /// Bindings as lines of the file.
    #[serde(default)]
    set: Vec<String>,
    /// Bindings to be removed.
    #[serde(default)]
    remove: Vec<Removed>,
}

/// Address and port set of a binding to be removed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Removed {
    ipv4: Ipv4Addr,
    #[serde(default)]
    psid: u16,
}

/// Lists the bindings.
pub(super) async fn bindings(
    State(interface): Of,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<HttpResponse, Response> {
    let asked = TableQuery::parse(query.as_deref(), &["subscriber", "external", "limit"])?;
    let limit = asked.limit;
    let table = interface.settings().bindings.as_ref().map(|bindings| bindings.table());
    let mut place = 0;
    let next = move |into: &mut Entries| {
        let Some(table) = &table else { return Ok(false) };
        let end = place + PLACES_A_PART;
        let mut count = 0;
        for (after, binding) in table.iter_from(place) {
            place = after;
            if is_asked_for(&binding, &asked) {
                write(into, &binding_object(&binding))?;
                count += 1;
            }
            if count >= PART || place >= end {
                return Ok(true);
            }
        }
        Ok(false)
    };
    Ok(Entries::new(next).answer("bindings", limit, &headers))
}

fn is_asked_for(binding: &Binding, asked: &TableQuery) -> bool {
    let of_subscriber = asked
        .subscriber6
        .is_none_or(|(address, len)| Prefix6 { address, len }.contains(binding.b4));
    let of_port =
        asked.external_port.is_none_or(|port| binding.sets.set_of(port) == Some(binding.psid));
    of_subscriber
        && asked.subscriber.is_none()
        && of_port
        && asked.external.is_none_or(|prefix| prefix.contains(binding.ipv4.to_bits()))
}

fn binding_object(binding: &Binding) -> Value {
    let ports: Vec<String> =
        binding.sets.ranges(binding.psid).map(|(first, last)| format!("{first}-{last}")).collect();
    json!({
        "ipv4": binding.ipv4,
        "psid_offset": binding.sets.offset(),
        "psid_length": binding.sets.bits(),
        "psid": binding.psid,
        "ports": ports.join(","),
        "b4": binding.b4,
        "br": binding.br,
    })
}

/// Lists lw4o6, the domains of MAP, and DS-Lite.
pub(super) async fn domains(State(interface): Of, RawQuery(query): RawQuery) -> Answer {
    TableQuery::parse(query.as_deref(), &[])?;
    let settings = interface.settings();
    let figures = blocking(move || interface.commander().figures()).await?.map_err(stopping)?;
    let counters = Figures::domains_of(&figures);
    super::lists::whole("domains", domain_objects(&settings, &counters), false)
}

/// lw4o6, the rules of MAP, and DS-Lite, with their counters.
pub(super) fn domain_objects(settings: &Settings, counters: &[DomainCounters]) -> Vec<Value> {
    let counted = |place: usize| counters.get(place).copied().unwrap_or_default();
    let ipv6 = &settings.ipv6;
    let relay = ipv6.lw4o6.as_ref().map(|lw4o6| {
        let table = settings.bindings.as_ref().map(|bindings| bindings.table());
        let mut object = json!({
            "kind": "lw4o6",
            "end": lw4o6.address,
            "bindings": table.map_or(0, |table| table.len()),
        });
        add_counters(&mut object, counted(0));
        object
    });
    let rules = (1..).zip(&ipv6.map).map(|(place, map)| {
        let mut object = rule_object(&map.rule);
        add_counters(&mut object, counted(place));
        object
    });
    let aftr = ipv6.dslite.as_ref().map(|dslite| {
        let b4: Vec<String> = dslite.b4.iter().map(ToString::to_string).collect();
        let mut object = json!({ "kind": "dslite", "end": dslite.address, "b4": b4.join(", ") });
        add_counters(&mut object, counted(ipv6.map.len() + 1));
        object
    });
    relay.into_iter().chain(rules).chain(aftr).collect()
}

fn rule_object(rule: &MapRule) -> Value {
    let parameters = rule.parameters();
    let (kind, end) = match parameters.mode {
        MapMode::Encapsulation(br) => ("map-e", br.to_string()),
        MapMode::Translation(dmr) => ("map-t", dmr.to_string()),
    };
    json!({
        "kind": kind,
        "end": end,
        "ipv6": parameters.ipv6.to_string(),
        "ipv4": config::show_prefix(parameters.ipv4),
        "ea_length": parameters.ea_length,
        "psid_offset": parameters.psid_offset,
        "psid_length": rule.sets().bits(),
        "psid": rule.own_psid(),
    })
}

fn add_counters(object: &mut Value, counters: DomainCounters) {
    object["packets_out"] = counters.outbound.0.into();
    object["bytes_out"] = counters.outbound.1.into();
    object["packets_in"] = counters.inbound.0.into();
    object["bytes_in"] = counters.inbound.1.into();
    object["spoofed"] = counters.spoofed.into();
}

/// Changes bindings.
pub(super) async fn change(State(interface): Of, body: Bytes) -> Result<HttpResponse, Response> {
    blocking(move || interface.change_bindings(&body)).await?
}

impl Interface {
    fn change_bindings(&self, body: &[u8]) -> Result<HttpResponse, Response> {
        let wrong = |message: String| Response::failure(400, message);
        let asked: ChangeRequest = serde_json::from_slice(body)
            .map_err(|error| wrong(format!("the body is wrong: {error}")))?;
        let settings = self.settings();
        let (Some(bindings), Some(lw4o6)) = (&settings.bindings, &settings.ipv6.lw4o6) else {
            return Err(Response::failure(404, "the configuration has no [lw4o6]"));
        };
        let rivals = config::Rivals::of(&settings);
        let mut changes = Vec::with_capacity(asked.set.len() + asked.remove.len());
        let removed = asked.remove.iter();
        changes.extend(removed.map(|one| BindingChange::Remove(one.ipv4, one.psid)));
        for (number, line) in asked.set.iter().enumerate() {
            let fault = |message| wrong(format!("set[{number}]: {message}"));
            let binding = config::parse_binding(line, lw4o6.address).map_err(fault)?;
            if let Some(message) = rivals.fault(&binding) {
                return Err(wrong(format!("set[{number}]: {message}")));
            }
            changes.push(BindingChange::Set(binding));
        }
        let done = bindings.change(&changes, lw4o6.address).map_err(|binding| {
            let message = "has another division of ports than other bindings of its address";
            Response::failure(409, format!("{} {message}", binding.ipv4))
        })?;
        let body = json!({
            "ok": true,
            "added": done.added,
            "replaced": done.replaced,
            "removed": done.removed,
            "absent": done.absent,
        });
        let sentence = format!(
            "bindings: {} added, {} replaced, {} removed",
            done.added, done.replaced, done.removed
        );
        Ok((Extension(Change::Done(sentence)), Response::done(body)).into_response())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_ipv6::softwire::PortSets;
    use std::net::Ipv6Addr;

    #[test]
    fn a_binding_is_asked_for_by_its_ends() {
        let binding = Binding {
            ipv4: [203, 0, 113, 7].into(),
            sets: PortSets::new(0, 6).expect("6 bits"),
            psid: 1,
            b4: "2001:db8:b4::1".parse().expect("an address"),
            br: Ipv6Addr::LOCALHOST,
        };
        let is_asked = |query: &str| {
            let keys = ["subscriber", "external", "limit"];
            let asked = TableQuery::parse(Some(query), &keys);
            is_asked_for(&binding, &asked.unwrap_or_else(|_| panic!("{query}")))
        };
        for query in [
            "",
            "external=203.0.113.7",
            "external=203.0.113.7:1024",
            "external=203.0.113.0/24",
            "subscriber=2001:db8:b4::1",
            "subscriber=2001:db8:b4::/48",
        ] {
            assert!(is_asked(query), "{query}");
        }
        for query in [
            "external=203.0.113.8",
            "external=203.0.113.7:2048",
            "subscriber=2001:db8:b4::2",
            "subscriber=10.0.0.1",
        ] {
            assert!(!is_asked(query), "{query}");
        }
        assert_eq!(binding_object(&binding)["ports"], "1024-2047");
    }
}
