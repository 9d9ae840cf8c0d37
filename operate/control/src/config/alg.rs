//! Reads `[alg]`: application-level gateways.

use super::reader::{Section, Value};
use natgate_engine::Limits;
use natgate_gateway::{AlgKind, AlgSettings};

/// Most ports of one protocol.
const MOST_PORTS: usize = 16;

/// The protocols, with the names of their tables in the schema.
const PROTOCOLS: [(AlgKind, &str); AlgKind::ALL.len()] = [
    (AlgKind::Ftp, "alg.ftp"),
    (AlgKind::Tftp, "alg.tftp"),
    (AlgKind::Sip, "alg.sip"),
    (AlgKind::Rtsp, "alg.rtsp"),
    (AlgKind::Irc, "alg.irc"),
];

/// Reads the table. Room for expectations goes to the translator's `limits`, in which `[pcp]` has
/// been read.
pub(super) fn read(section: &Section<'_>, limits: &mut Limits) -> AlgSettings {
    let mut settings = AlgSettings::default();
    for (kind, name) in PROTOCOLS {
        let Some(table) = section.switch(kind.name(), name) else { continue };
        let usual = AlgSettings::usual_port(kind);
        let ports = match table.get("ports") {
            Some(value) => read_ports(&value),
            None => vec![usual],
        };
        let taken = ports.iter().find_map(|port| Some((*port, settings.rival(kind, *port)?)));
        if let Some((port, other)) = taken {
            let (port_of, other) = (table.get("ports"), other.name());
            let place = port_of.map_or_else(|| table.place.clone(), |value| value.place);
            let message = format!("port {port} is a port of alg.{other}; use it for one of them");
            section.report.wrong(&place, message);
        }
        settings.set(kind, ports);
    }
    settings.reserve(limits);
    settings
}

fn read_ports(value: &Value<'_>) -> Vec<u16> {
    let Some(items) = value.items("an array of ports") else { return Vec::new() };
    if items.is_empty() {
        value.wrong("has no port; name one, or take the protocol out");
    }
    if items.len() > MOST_PORTS {
        value.wrong(format!("has {} ports; it may have {MOST_PORTS}", items.len()));
        return Vec::new();
    }
    let mut ports = Vec::new();
    for item in &items {
        let port = item.integer(1..=u64::from(u16::MAX)).and_then(|port| u16::try_from(port).ok());
        let Some(port) = port else { continue };
        if ports.contains(&port) {
            item.wrong(format!("{port} is there more than once; take it out"));
        } else {
            ports.push(port);
        }
    }
    ports
}
