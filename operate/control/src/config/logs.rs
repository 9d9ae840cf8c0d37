//! Reads `[[log]]`: kind, destination and content of event logs.

use super::places::Target;
use super::reader::{Section, Value};
use super::sections::{bounded, read_duration};
use super::values::{self, quoted};
use natgate_gateway::{
    Collector, IpfixSettings, LogSettings, LogTo, LogWhat, SpoolSettings, SyslogSettings,
    TlsSettings, Transport,
};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Largest number of logs. Each log has a thread.
const MOST_LOGS: usize = 16;

/// Bounds of a log's queue, events. An event takes some 40 bytes.
const QUEUES: RangeInclusive<u64> = 1024..=(1 << 24);

const TEMPLATE_INTERVALS: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(86_400);
const AGES: RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(20 * 366 * 86_400);
const SIZES: RangeInclusive<u64> = 1 << 20..=1 << 50;
const DEFAULT_SIZE: u64 = 10 << 30;
const DEFAULT_AGE: Duration = Duration::from_secs(180 * 86_400);

/// The enterprise number for documentation (RFC 5612); no organisation has it.
const ENTERPRISE: u32 = 32_473;

/// The facilities of RFC 5424 section 6.2.1 that a program may use.
const FACILITIES: [(&str, Result<u8, &str>); 13] = [
    ("user", Ok(1)),
    ("daemon", Ok(3)),
    ("auth", Ok(4)),
    ("syslog", Ok(5)),
    ("authpriv", Ok(10)),
    ("local0", Ok(16)),
    ("local1", Ok(17)),
    ("local2", Ok(18)),
    ("local3", Ok(19)),
    ("local4", Ok(20)),
    ("local5", Ok(21)),
    ("local6", Ok(22)),
    ("local7", Ok(23)),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    File,
    Syslog,
    Ipfix,
    Spool,
}

const KINDS: [(&str, Result<Kind, &str>); 4] = [
    ("file", Ok(Kind::File)),
    ("syslog", Ok(Kind::Syslog)),
    ("ipfix", Ok(Kind::Ipfix)),
    ("spool", Ok(Kind::Spool)),
];

/// Keys that only some kinds of log have.
const KEYS: [(&str, &[Kind]); 14] = [
    ("path", &[Kind::File]),
    ("collector", &[Kind::Syslog, Kind::Ipfix]),
    ("transport", &[Kind::Syslog, Kind::Ipfix]),
    ("tls", &[Kind::Syslog, Kind::Ipfix]),
    ("facility", &[Kind::Syslog]),
    ("host_name", &[Kind::Syslog]),
    ("app_name", &[Kind::Syslog]),
    ("enterprise", &[Kind::Syslog]),
    ("domain", &[Kind::Ipfix]),
    ("template_interval", &[Kind::Ipfix]),
    ("template_messages", &[Kind::Ipfix]),
    ("folder", &[Kind::Spool]),
    ("max_size", &[Kind::Spool]),
    ("max_age", &[Kind::Spool]),
];

/// Reads all logs of a file.
pub(super) fn read(root: &Section<'_>) -> Vec<LogSettings> {
    let sections = root.sections("log");
    if let Some(more) = sections.get(MOST_LOGS) {
        root.report.wrong(&more.place, format!("is one too many; there may be {MOST_LOGS} logs"));
    }
    let logs: Vec<_> = sections.iter().map(read_log).collect();
    logs.into_iter().flatten().collect()
}

fn read_log(section: &Section<'_>) -> Option<LogSettings> {
    let kind = section.require("kind", "\"file\"").and_then(|value| value.word(&KINDS))?;
    for (key, kinds) in KEYS {
        if let (false, Some(value)) = (kinds.contains(&kind), section.get(key)) {
            let name = KINDS.iter().find(|(_, one)| *one == Ok(kind)).map_or("", |(name, _)| name);
            value.wrong(format!("has no effect with kind = \"{name}\"; take it out"));
        }
    }
    let whats = [
        ("mappings", Ok(LogWhat::Mappings)),
        ("blocks", Ok(LogWhat::Blocks)),
        ("sessions", Ok(LogWhat::Sessions)),
    ];
    let what = section.get("what").and_then(|value| value.word(&whats)).unwrap_or_default();
    let remotes = section.get("remotes");
    let asked = remotes.as_ref().and_then(Value::boolean).unwrap_or(false);
    if let (Some(value), true) = (remotes, asked && what != LogWhat::Sessions) {
        value.wrong("has no effect, because only sessions have remotes; write what = \"sessions\"");
    }
    let queue = section.get("queue").and_then(|value| value.integer(QUEUES));
    let to = match kind {
        Kind::File => LogTo::File(section.required_path("path")?),
        Kind::Syslog => LogTo::Syslog(read_syslog(section)?),
        Kind::Ipfix => LogTo::Ipfix(read_ipfix(section)?),
        Kind::Spool => LogTo::Spool(read_spool(section)?),
    };
    let queue = queue.map_or(LogSettings::QUEUE, |queue| queue as usize);
    Some(LogSettings { what, remotes: asked, queue, to })
}

fn read_collector(section: &Section<'_>) -> Option<Collector> {
    let transports = [("udp", Ok(0_u8)), ("tcp", Ok(1)), ("tls", Ok(2))];
    let value = section.require("collector", "\"192.0.2.10:514\"");
    let address = value.and_then(|value| value.parsed("an address and a port", host_and_port));
    let transport = section.get("transport").map(|value| value.word(&transports));
    let tls = section.section("tls", "log.tls");
    let transport = match transport.unwrap_or(Some(0))? {
        2 => Transport::Tls(read_tls(&tls)?),
        other => {
            if tls.is_present() {
                let message = "has no effect without transport = \"tls\"; take it out";
                section.report.wrong(&tls.place, message);
            }
            if other == 0 { Transport::Udp } else { Transport::Tcp }
        }
    };
    let address = address?;
    // Names are not resolved here, and no listener takes datagrams.
    if let (Ok(collector), false) = (address.value.parse(), transport == Transport::Udp) {
        section.registers("collector", &address.place, Target::Address(collector));
    }
    Some(Collector { address: address.value, transport })
}

/// Checks an address or a name with a port.
fn host_and_port(text: &str) -> Result<String, String> {
    let wrong = || {
        format!(
            "{} is no address with a port; write one such as \"192.0.2.10:514\", \
             \"[2001:db8::1]:514\" or \"logs.example.net:6514\"",
            quoted(text)
        )
    };
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0);
    let is_name = |host: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        !host.is_empty() && host.len() <= 253 && host.chars().all(fits)
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match bare {
        Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    if port.is_some() && is_host { Ok(text.to_owned()) } else { Err(wrong()) }
}

fn read_tls(section: &Section<'_>) -> Option<TlsSettings> {
    let authorities = section.required_path("authorities");
    let name = section.get("name").and_then(|value| value.string("a name in quotes"));
    let own = match (section.get("certificate"), section.get("key")) {
        (None, None) => None,
        _ => {
            let certificate = section.required_path("certificate");
            let key = section.required_path("key");
            Some((certificate?, key?))
        }
    };
    Some(TlsSettings { authorities: authorities?, name: name.map(str::to_owned), own })
}

fn read_syslog(section: &Section<'_>) -> Option<SyslogSettings> {
    let facility = section.get("facility").and_then(|value| value.word(&FACILITIES));
    let name = |key, most| {
        let value = section.get(key)?;
        Some(value.parsed("a name in quotes", |text| header_field(text, most))?.value)
    };
    let (host_name, app_name) = (name("host_name", 255), name("app_name", 48));
    let enterprise = bounded(section, "enterprise", 1, u64::from(u32::MAX));
    Some(SyslogSettings {
        collector: read_collector(section)?,
        facility: facility.unwrap_or(16),
        host_name,
        app_name: app_name.unwrap_or_else(|| "natgate".to_owned()),
        enterprise: enterprise.unwrap_or(ENTERPRISE),
    })
}

/// Checks a field of a syslog header.
fn header_field(text: &str, most: usize) -> Result<String, String> {
    let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    fits.then(|| text.to_owned()).ok_or_else(|| {
        let shown = quoted(text);
        format!("{shown} does not fit; write 1 to {most} printable ASCII characters without spaces")
    })
}

fn read_ipfix(section: &Section<'_>) -> Option<IpfixSettings> {
    let interval = section.get("template_interval");
    let interval = interval.and_then(|value| read_duration(&value, &TEMPLATE_INTERVALS));
    let messages = bounded(section, "template_messages", 1, 1_000_000);
    let domain = bounded(section, "domain", 0, u64::from(u32::MAX));
    Some(IpfixSettings {
        collector: read_collector(section)?,
        domain: domain.unwrap_or(1),
        template_interval: interval.unwrap_or(Duration::from_secs(60)),
        template_messages: messages.unwrap_or(1000),
    })
}

fn read_spool(section: &Section<'_>) -> Option<SpoolSettings> {
    let folder = section.required_path("folder");
    let size = section.get("max_size").and_then(|value| {
        let size = value.parsed("a size in quotes, such as \"10GiB\"", values::size)?.value;
        if !SIZES.contains(&size) {
            value.wrong("is out of bounds; it must be from \"1MiB\" to \"1PiB\"");
            return None;
        }
        Some(size)
    });
    let age = section.get("max_age").and_then(|value| read_duration(&value, &AGES));
    Some(SpoolSettings {
        folder: folder?,
        max_size: size.unwrap_or(DEFAULT_SIZE),
        max_age: age.unwrap_or(DEFAULT_AGE),
    })
}
