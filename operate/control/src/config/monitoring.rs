//! Reads `[metrics]` and `[snmp]`: listeners and clients of the monitoring.

use super::page::read_names;
use super::places::Target;
use super::reader::{Section, Value};
use super::values::quoted;
use natgate_gateway::{Master, MetricsPlace, MonitoringSettings, SnmpSettings};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The default socket of net-snmp's agent.
const USUAL_MASTER: &str = "/var/agentx/master";

/// Longest path of a Unix socket, bytes: the kernel takes 107, and the last is 0.
const LONGEST_PATH: usize = 96;

const USUAL_THRESHOLD: u64 = 90;
const USUAL_INTERVAL: u64 = 60;

const EXAMPLE: &str = "write one such as \"127.0.0.1:9464\", or \"off\"";

pub(super) fn read(root: &Section<'_>) -> MonitoringSettings {
    let metrics = root.section("metrics", "metrics");
    let place = read_metrics(&metrics);
    let names = metrics.get("names").map(|value| read_names(&value)).unwrap_or_default();
    if let (MetricsPlace::Nowhere, Some(value), false) =
        (place, metrics.get("names"), names.is_empty())
    {
        value.wrong("is without effect, since metrics.listen is \"off\"; leave one of them out");
    }
    MonitoringSettings {
        metrics: place,
        metrics_names: names,
        snmp: read_snmp(&root.section("snmp", "snmp")),
    }
}

fn read_metrics(section: &Section<'_>) -> MetricsPlace {
    let Some(value) = section.get("listen") else {
        section.registers_default("listen");
        return MetricsPlace::default();
    };
    let place = value.parsed("an address and a port in quotes, or \"off\"", |text| match text {
        "off" => Ok(MetricsPlace::Nowhere),
        text => address(text, EXAMPLE).map(MetricsPlace::At),
    });
    let Some(place) = place.map(|place| place.value) else { return MetricsPlace::default() };
    if let MetricsPlace::At(address) = place {
        section.registers("listen", &value.place, Target::Address(address));
    }
    if let MetricsPlace::At(address) = place
        && !address.ip().is_loopback()
    {
        let message = format!(
            "lets everybody who can reach {address} read the metrics; let a firewall admit those \
             who are to"
        );
        section.report.unwise(&value.place, message);
    }
    place
}

fn read_snmp(section: &Section<'_>) -> Option<SnmpSettings> {
    if !section.is_present() {
        return None;
    }
    let master = section.get("agentx").map(|value| {
        let master = read_master(&value)?;
        let target = match &master {
            Master::Unix(path) => Target::Path(path.clone()),
            Master::Tcp(address) => Target::Address(*address),
        };
        section.registers("agentx", &value.place, target);
        Some(master)
    });
    if master.is_none() {
        section.registers_default("agentx");
    }
    let number = |key, bounds, usual| {
        section.get(key).map_or(Some(usual), |value: Value<'_>| value.integer(bounds))
    };
    // 0 stands for no notification.
    let percent =
        |key, usual| number(key, 0..=100, usual).map(|percent| u8::try_from(percent).ok());
    let mappings = percent("mappings_threshold", USUAL_THRESHOLD);
    let addresses = percent("subscribers_threshold", USUAL_THRESHOLD);
    let low = percent("pools_low_threshold", 0);
    let interval = number("interval", 1..=3600, USUAL_INTERVAL);
    let subscribers = section.get("subscribers").map_or(Some(false), |value| value.boolean());
    Some(SnmpSettings {
        master: master.unwrap_or(Some(Master::Unix(USUAL_MASTER.into())))?,
        mappings_threshold: mappings?.filter(|percent| *percent > 0),
        subscribers_threshold: addresses?.filter(|percent| *percent > 0),
        pools_low_threshold: low?.filter(|percent| *percent > 0),
        interval: u16::try_from(interval?).ok()?,
        subscribers: subscribers?,
    })
}

fn read_master(value: &Value<'_>) -> Option<Master> {
    let example = "write an absolute path such as \"/var/agentx/master\", or a port such as \
                   \"127.0.0.1:705\"";
    let wanted = "the path of a socket in quotes, or an address and a port";
    let master = value.parsed(wanted, |text| match text.starts_with('/') {
        true if text.len() > LONGEST_PATH => {
            Err(format!("{} is too long for a socket; at most {LONGEST_PATH} bytes", quoted(text)))
        }
        true if text.contains(char::is_control) => {
            Err(format!("{} has control characters; {example}", quoted(text)))
        }
        true => Ok(Master::Unix(PathBuf::from(text))),
        false => address(text, example).map(Master::Tcp),
    });
    master.map(|master| master.value)
}

fn address(text: &str, example: &str) -> Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok();
    match address {
        None => Err(format!("{} is no address with a port; {example}", quoted(text))),
        Some(address) if address.port() == 0 => {
            Err(format!("{} has no port that one could go to; {example}", quoted(text)))
        }
        Some(address) => Ok(address),
    }
}
