//! The mapping table: what the operator made, and what packets made.

use super::object;
use natgate_engine::{Config, MappingKind};
use natgate_wire::protocol;
use serde_json::{Map, Value, json};
use std::net::Ipv4Addr;

/// An address, and a port if it is not mapped as a whole.
type End = (Ipv4Addr, Option<u16>);

/// The static mappings of a realm, numbered from 1.
pub(super) fn configured(config: &Config, realm: u16) -> Vec<Value> {
    let own = config.statics.iter().filter(|mapping| mapping.realm == realm);
    let all = own.enumerate().map(|(place, mapping)| {
        entry(place + 1, "static", mapping.protocol, mapping.internal, mapping.external).into()
    });
    all.collect()
}

/// A mapping that packets made.
pub(super) fn made(index: usize, mapping: &super::MappingState) -> Option<Value> {
    let id = &mapping.id;
    if id.kind == MappingKind::Static {
        return None;
    }
    let has_ports =
        matches!(id.protocol, protocol::TCP | protocol::UDP | protocol::ICMP | protocol::DCCP);
    let end = |end: natgate_engine::Endpoint| (end.address, has_ports.then_some(end.port));
    let (internal, external) = (end(id.internal), end(id.external));
    let mut entry = entry(index, "dynamic-implicit", Some(id.protocol), internal, external);
    if let Some(seconds) = mapping.lifetime {
        entry.insert("lifetime".into(), u32::try_from(seconds).unwrap_or(u32::MAX).into());
    }
    Some(entry.into())
}

fn entry(
    index: usize,
    kind: &str,
    protocol: Option<u8>,
    internal: End,
    external: End,
) -> Map<String, Value> {
    let mut entry = object(json!({
        "index": index,
        "type": kind,
        "internal-src-address": format!("{}/32", internal.0),
        "external-src-address": format!("{}/32", external.0),
    }));
    if let Some(protocol) = protocol {
        entry.insert("transport-protocol".into(), protocol.into());
    }
    for (name, port) in [("internal-src-port", internal.1), ("external-src-port", external.1)] {
        if let Some(port) = port {
            entry.insert(name.into(), json!({ "start-port-number": port }));
        }
    }
    entry
}
