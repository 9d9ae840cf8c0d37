//! Reads `[alg]`, application-level gateways, and the gateways of single rules.

use super::draft::{Draft, NamedAlgs};
use super::problem::{Located, Report};
use super::reader::{Section, Value};
use natgate_engine::Limits;
use natgate_gateway::{AlgKind, AlgSettings};

/// Most ports of one protocol.
const MOST_PORTS: usize = 16;

/// Numbers of control flows of a worker.
const FLOWS: std::ops::RangeInclusive<u64> = 64..=1_048_576;

/// The protocols, with the names of their tables in the schema.
const PROTOCOLS: [(AlgKind, &str); AlgKind::ALL.len()] = [
    (AlgKind::Ftp, "alg.ftp"),
    (AlgKind::Tftp, "alg.tftp"),
    (AlgKind::Sip, "alg.sip"),
    (AlgKind::Rtsp, "alg.rtsp"),
    (AlgKind::Irc, "alg.irc"),
    (AlgKind::Dns, "alg.dns"),
    (AlgKind::Pptp, "alg.pptp"),
    (AlgKind::H323, "alg.h323"),
];

/// Reads the table. Room for expectations goes to the translator's `limits`, in which `[pcp]` has
/// been read.
pub(super) fn read(section: &Section<'_>, limits: &mut Limits) -> AlgSettings {
    let mut settings = AlgSettings::default();
    for (kind, name) in PROTOCOLS {
        let Some(table) = section.switch(kind.name(), name) else { continue };
        let ports = match table.get("ports") {
            Some(value) => read_ports(&value),
            None => AlgSettings::usual_ports(kind).to_vec(),
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
    if let Some(value) = section.get("flows") {
        if let Some(flows) = value.integer(FLOWS).and_then(|flows| u32::try_from(flows).ok()) {
            settings.set_flows(flows);
        }
        if settings.is_off() {
            let message = "has no effect: no protocol of [alg] is on; take it out";
            section.report.unwise(&value.place, message);
        }
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

/// Reads the gateways that a rule names, if it names some. `None`: they are wrong.
pub(super) fn read_rule(rule: &Section<'_>) -> Option<Option<NamedAlgs>> {
    let Some(value) = rule.get("alg") else { return Some(None) };
    let items = value.items("an array of protocols such as [\"ftp\"], or []")?;
    let words = PROTOCOLS.map(|(kind, _)| (kind.name(), Ok(kind)));
    let mut kinds: Vec<Located<AlgKind>> = Vec::new();
    for item in &items {
        let kind = item.word(&words)?;
        if kinds.iter().any(|other| other.value == kind) {
            item.wrong(format!("\"{}\" is there more than once; take it out", kind.name()));
            return None;
        }
        kinds.push(Located { value: kind, place: item.place.clone() });
    }
    Some(Some(Box::new(Located { value: kinds, place: value.place })))
}

/// Reports gateways of rules that `[alg]` does not switch on.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    for algs in draft.rules.iter().filter_map(|rule| rule.alg.as_deref()) {
        if draft.alg.is_off() && algs.value.is_empty() {
            let message = "has no effect: no protocol of [alg] is on; take it out";
            report.unwise(&algs.place, message);
        }
        for Located { value: kind, place } in &algs.value {
            if !draft.alg.has(*kind) {
                let name = kind.name();
                let remedy = format!("write {name} = true in [alg], or take it out");
                report.wrong(place, format!("\"{name}\" is off; {remedy}"));
            }
        }
    }
}
