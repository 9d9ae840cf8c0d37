//! Reads `[static.health]`: health checks of the servers of a static mapping.

use super::draft::{Draft, ServerDraft, StaticDraft, Targeted};
use super::problem::{Located, Report};
use super::reader::Section;
use super::sections::{bounded, read_duration};
use super::values::quoted;
use natgate_gateway::{CheckKind, HealthSettings, LONGEST_REQUEST, MOST_CHECKED};
use std::net::SocketAddrV4;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bounds of the interval and of the timeout.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

/// Most checks in a row that decide.
const MOST_IN_A_ROW: u64 = 100;

/// Reads the checks, if the table is there. `Err`: it has an error.
pub(super) fn read_health(section: &Section<'_>) -> Result<Option<Located<HealthSettings>>, ()> {
    let table = section.section("health", "static.health");
    if !table.is_present() {
        return if section.get("health").is_some() { Err(()) } else { Ok(None) };
    }
    let usual = HealthSettings::default();
    let kind = read_kind(&table).ok_or(())?;
    let duration = |key, usual| match table.get(key) {
        Some(value) => read_duration(&value, &INTERVALS).ok_or(()),
        None => Ok(usual),
    };
    let in_a_row = |key, usual: u8| match table.get(key) {
        Some(value) => value.integer(1..=MOST_IN_A_ROW).map(|count| count as u8).ok_or(()),
        None => Ok(usual),
    };
    let interval = duration("interval", usual.interval)?;
    let timeout = duration("timeout", usual.timeout.min(interval))?;
    if timeout > interval
        && let Some(value) = table.get("timeout")
    {
        value.wrong("is longer than interval; a check ends before the next begins");
        return Err(());
    }
    let port = match (table.get("port"), &kind) {
        (None, _) => None,
        (Some(value), CheckKind::Icmp) => {
            value.wrong("has no effect with kind = \"icmp\"; leave it out");
            return Err(());
        }
        (Some(_), _) => Some(bounded(&table, "port", 1, u16::MAX.into()).ok_or(())? as u16),
    };
    let ends_sessions = match table.get("sessions") {
        Some(value) => value.word(&[("keep", Ok(false)), ("end", Ok(true))]).ok_or(())?,
        None => false,
    };
    let failures = in_a_row("failures", usual.failures)?;
    let successes = in_a_row("successes", usual.successes)?;
    let value =
        HealthSettings { kind, port, interval, timeout, failures, successes, ends_sessions };
    Ok(Some(Located { value, place: table.place.clone() }))
}

fn read_kind(table: &Section<'_>) -> Option<CheckKind> {
    let kinds = [("tcp", Ok("tcp")), ("icmp", Ok("icmp")), ("http", Ok("http"))];
    let kind = table.require("kind", "\"tcp\"")?.word(&kinds)?;
    if kind == "http" {
        let path = match table.get("target") {
            Some(value) => {
                value.parsed("the path of a request, such as \"/health\"", target)?.value
            }
            None => "/".to_owned(),
        };
        let host = match table.get("host") {
            Some(value) => Some(value.parsed("a host name in quotes", host)?.value),
            None => None,
        };
        return Some(CheckKind::Http { path, host });
    }
    for key in ["target", "host"] {
        if let Some(value) = table.get(key) {
            value.wrong(format!("has no effect with kind = \"{kind}\"; leave it out"));
            return None;
        }
    }
    Some(if kind == "tcp" { CheckKind::Tcp } else { CheckKind::Icmp })
}

/// The target of a request (RFC 9112 section 3.2.1): visible ASCII that begins with a slash.
fn target(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path {
        return Ok(text.to_owned());
    }
    Err(format!("{} is no path of a request; it begins with / and has no spaces", quoted(text)))
}

/// The value of the field Host: a name or an address, with or without a port.
fn host(text: &str) -> Result<String, String> {
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_of_host) {
        return Ok(text.to_owned());
    }
    Err(format!("{} is no host name; write letters, digits, dots and hyphens", quoted(text)))
}

/// Reports checks that do not fit: too many servers, requests that are too long, and backup servers
/// that are never or always used.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    let mut count = 0;
    for StaticDraft { target, .. } in &draft.statics {
        let Targeted::Servers { members, health, place, .. } = target else { continue };
        if members.iter().all(|member| member.backup) {
            let message = "every server is a backup, so there is nothing to stand in for";
            report.unwise(place, message);
        } else if health.is_none() && members.iter().any(|member| member.backup) {
            let message = "a backup server without health checks gets sessions only while all \
                           others drain; add [static.health]";
            report.unwise(place, message);
        }
        let Some(health) = health else { continue };
        count += members.len();
        if count > MOST_CHECKED {
            let message = format!("checks {count} servers with those before it");
            report.wrong(&health.place, format!("{message}; at most {MOST_CHECKED} are possible"));
            return;
        }
        let request = |member: &ServerDraft| {
            let (address, port) = member.internal.value;
            health.value.kind.request(SocketAddrV4::new(address, port)).len()
        };
        let longest = members.iter().map(request).max().unwrap_or(0);
        if longest > LONGEST_REQUEST {
            let message = format!("makes a request of {longest} bytes");
            let remedy = format!("at most {LONGEST_REQUEST} are possible; shorten target or host");
            report.wrong(&health.place, format!("{message}; {remedy}"));
        }
    }
}
