//! Syslog messages (RFC 5424): each event as structured data, and in words.
//!
//! By UDP a message is a datagram (RFC 5426). By TCP and TLS its length precedes it (RFC 6587, RFC
//! 5425), so that no byte of the message can be taken for its end.

use super::connection::Connection;
use crate::drive::Sink;
use crate::json::{self, Names};
use crate::record::Record;
use jiff::Timestamp as Time;
use natgate_engine::{Change, Timestamp};
use natgate_gateway::SyslogSettings;
use serde_json::Value;
use std::fmt::Write;
use std::{fs, io, process};

/// Value of an unknown header field.
const NIL: &str = "-";

/// Severities (RFC 5424 section 6.2.1).
const WARNING: u8 = 4;
const INFORMATIONAL: u8 = 6;

/// Sends syslog messages.
#[derive(Debug)]
pub struct SyslogSink {
    connection: Connection,
    messages: Messages,
    remotes: bool,
    /// True if the last attempt failed.
    failed: bool,
}

/// Formatter of messages, independent of the transport.
#[derive(Debug)]
pub struct Messages {
    facility: u8,
    /// HOSTNAME, APP-NAME and PROCID.
    whence: String,
    /// SD-ID.
    id: String,
}

impl SyslogSink {
    /// Creates a sink that is not connected yet.
    ///
    /// # Errors
    /// The error if certificates cannot be used.
    pub fn new(settings: &SyslogSettings, remotes: bool) -> io::Result<Self> {
        let host = machine().unwrap_or_else(|| NIL.to_owned());
        let messages = Messages::new(settings, &host, &process::id().to_string());
        let connection = Connection::new(&settings.collector)?;
        Ok(Self { connection, messages, remotes, failed: false })
    }

    /// Writes a message with the framing of its transport.
    fn frame(&self, message: &str, into: &mut Vec<u8>) {
        if !self.connection.is_datagram() {
            into.extend_from_slice(format!("{} ", message.len()).as_bytes());
        }
        into.extend_from_slice(message.as_bytes());
    }
}

/// Name of the machine.
fn machine() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

impl Sink for SyslogSink {
    fn connect(&mut self, now: Timestamp) -> io::Result<()> {
        self.connection.open()?;
        if self.connection.is_datagram() && self.failed {
            // The absence of a receiver shows after a datagram: this one has no content that
            // matters.
            let probe = self.messages.plain(INFORMATIONAL, now, "probe", "is anybody there");
            self.connection.send(probe.as_bytes()).1?;
            std::thread::sleep(std::time::Duration::from_millis(20));
            self.connection.look()?;
        }
        self.failed = false;
        Ok(())
    }

    fn write(
        &mut self,
        records: &[Record],
        names: &Names,
        _: Timestamp,
    ) -> (usize, io::Result<()>) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for number in 0..records.len() {
            let Some(message) = self.messages.message(records, number, names, self.remotes) else {
                ends.push(bytes.len());
                continue;
            };
            if self.connection.is_datagram() {
                if let (_, Err(error)) = self.connection.send(message.as_bytes()) {
                    self.failed = true;
                    return (number, Err(error));
                }
            } else {
                self.frame(&message, &mut bytes);
                ends.push(bytes.len());
            }
        }
        if self.connection.is_datagram() {
            return (records.len(), Ok(()));
        }
        let (sent, result) = self.connection.send(&bytes);
        self.failed = result.is_err();
        (ends.iter().filter(|&&end| end <= sent).count(), result)
    }

    fn flush(&mut self, _: Timestamp) -> io::Result<()> {
        let result = self.connection.look();
        self.failed = result.is_err();
        result
    }

    fn hurry(&mut self) {
        self.connection.hurry();
    }
}

impl Messages {
    /// Creates the formatter of a log. `host` is HOSTNAME if the settings have none, `process`
    /// PROCID.
    pub fn new(settings: &SyslogSettings, host: &str, process: &str) -> Self {
        let host = settings.host_name.as_deref().unwrap_or(host);
        let app = printable(&settings.app_name, 48);
        Self {
            facility: settings.facility,
            whence: format!("{} {app} {}", printable(host, 255), printable(process, 128)),
            id: format!("natgate@{}", settings.enterprise),
        }
    }

    /// Beginning of a message, up to its structured data.
    fn begin(&self, severity: u8, time: Timestamp, kind: &str) -> String {
        let priority = self.facility * 8 + severity;
        format!("<{priority}>1 {} {} {kind} ", stamp(time), self.whence)
    }

    /// A message without structured data.
    fn plain(&self, severity: u8, time: Timestamp, kind: &str, text: &str) -> String {
        format!("{}{NIL} {text}", self.begin(severity, time, kind))
    }

    /// Message about the record at a place, without the framing of a transport. It has the remote
    /// endpoints of sessions if `remotes` is set. `None`: the record belongs to the next one.
    pub fn message(
        &self,
        records: &[Record],
        place: usize,
        names: &Names,
        remotes: bool,
    ) -> Option<String> {
        let (record, object) = (&records[place], json::record(records, place, names, remotes)?);
        let severity = if is_ordinary(record) { INFORMATIONAL } else { WARNING };
        let mut fields = match serde_json::to_value(&object) {
            Ok(Value::Object(fields)) => fields,
            // A record is always an object.
            _ => serde_json::Map::new(),
        };
        fields.remove("time");
        let kind = fields.remove("event");
        let kind = kind.as_ref().and_then(Value::as_str).unwrap_or(NIL);
        let mut message = self.begin(severity, record.time(), kind);
        message.push('[');
        message.push_str(&self.id);
        let mut words = kind.replace('_', " ");
        for (name, value) in &fields {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            // Writing to a string does not fail.
            let _ = write!(message, " {name}=\"{}\"", escape(&value));
            let _ = write!(words, " {name} {}", plain(&value));
        }
        message.push_str("] ");
        message.push_str(&words);
        Some(message)
    }
}

/// True if the record needs no attention.
fn is_ordinary(record: &Record) -> bool {
    let Record::Event(event) = record else { return false };
    matches!(
        event.change,
        Change::MappingCreated(_)
            | Change::MappingRemoved(_)
            | Change::SessionCreated(_)
            | Change::SessionRemoved(_)
            | Change::BlockAssigned(_)
            | Change::BlockReleased(_)
    )
}

/// TIMESTAMP (section 6.2.3), to the microsecond.
fn stamp(time: Timestamp) -> String {
    let micros = i64::try_from(time.0 / 1000).unwrap_or(i64::MAX);
    Time::from_microsecond(micros).map_or_else(|_| NIL.to_owned(), |time| format!("{time:.6}"))
}

/// A field of the header: printable ASCII without spaces, at most `most` characters (section 6).
fn printable(text: &str, most: usize) -> String {
    let fit = |c: char| if c.is_ascii_graphic() { c } else { '?' };
    let fitted: String = text.chars().take(most).map(fit).collect();
    if fitted.is_empty() { NIL.to_owned() } else { fitted }
}

/// PARAM-VALUE (section 6.3.3).
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in clean(text).chars() {
        if matches!(c, '"' | '\\' | ']') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Replaces control characters, which receivers may misinterpret (section 8.2).
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Text for people, in characters that need no declared encoding.
fn plain(text: &str) -> String {
    let fit = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    text.chars().map(fit).collect()
}

#[cfg(test)]
mod tests;
