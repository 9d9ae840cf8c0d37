//! IPFIX (RFC 7011) with the events of RFC 8158.
//!
//! Templates go ahead of data: once for each connection, and by UDP again after a time and a number
//! of messages. Sequence numbers count data records of the connection, or of the UDP session. A gap
//! is reported as the reliability of the exporting process (RFC 7011 section 4.3). An event without
//! an equivalent in RFC 8158, such as a class' limit, is reported as the nearest event there.

mod encode;
#[cfg(test)]
mod tests;

use super::connection::Connection;
use crate::drive::Sink;
use crate::json::Names;
use crate::record::Record;
use encode::Encoder;
use natgate_engine::Timestamp;
use natgate_gateway::IpfixSettings;
use std::io;
use std::time::Duration;

/// Bytes of a message by UDP: every path carries it without fragments (RFC 7011 section 10.3.3).
const DATAGRAM: usize = 1400;

/// Bytes of a message by a connection.
const STREAM: usize = 16_384;

/// Sends IPFIX messages.
#[derive(Debug)]
pub struct IpfixSink {
    connection: Connection,
    encoder: Encoder,
    interval: Duration,
    messages: u32,
    /// Time at which templates are due again by UDP.
    templates_due: Timestamp,
    /// Messages since the templates were sent.
    since_templates: u32,
}

impl IpfixSink {
    /// Creates a sink that is not connected yet.
    ///
    /// # Errors
    /// The error if certificates cannot be used.
    pub fn new(settings: &IpfixSettings, remotes: bool) -> io::Result<Self> {
        let connection = Connection::new(&settings.collector)?;
        let most = if connection.is_datagram() { DATAGRAM } else { STREAM };
        Ok(Self {
            connection,
            encoder: Encoder::new(settings.domain, remotes, most),
            interval: settings.template_interval,
            messages: settings.template_messages,
            templates_due: Timestamp(0),
            since_templates: 0,
        })
    }

    fn send_templates(&mut self, now: Timestamp) -> io::Result<()> {
        let templates = self.encoder.templates(now);
        self.connection.send(&templates).1?;
        self.templates_due = now.plus(self.interval);
        self.since_templates = 0;
        Ok(())
    }

    //= rfc7011#section-8.4-resend
    /// True if templates are to be sent again.
    fn is_due(&self, now: Timestamp) -> bool {
        self.connection.is_datagram()
            && (now >= self.templates_due
                || self.since_templates >= self.messages
                // The clock was set back.
                || self.templates_due.since(now) > self.interval)
    }
}

/// True if RFC 8158 or RFC 7011 has a record for it, or it names the host of the next record.
/// Steps of the clock need none: times of later records are right. Summaries have none: the first
/// event of an episode and the later ones that are written are records.
fn has_template(record: &Record) -> bool {
    matches!(record, Record::Event(_) | Record::Gap(_) | Record::Host(_))
}

impl Sink for IpfixSink {
    fn connect(&mut self, now: Timestamp) -> io::Result<()> {
        self.connection.open()?;
        // Another connection, or port, is another session.
        self.encoder.restart();
        //= rfc7011#section-10.4.4-templates
        self.send_templates(now)?;
        if self.connection.is_datagram() {
            // A port without a listener is reported by an answer.
            std::thread::sleep(Duration::from_millis(20));
            self.connection.look()?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        records: &[Record],
        names: &Names,
        now: Timestamp,
    ) -> (usize, io::Result<()>) {
        let mut done = 0;
        while done < records.len() {
            if self.is_due(now)
                && let Err(error) = self.send_templates(now)
            {
                return (done, Err(error));
            }
            let left = &records[done..];
            let count = left.iter().take_while(|record| has_template(record)).count();
            if count == 0 {
                done += 1;
                continue;
            }
            let message = self.encoder.message(&left[..count], names, now);
            if message.count == 0 {
                done += count;
                continue;
            }
            if let (_, Err(error)) = self.connection.send(&message.bytes) {
                return (done, Err(error));
            }
            self.encoder.sent(message.count);
            self.since_templates += 1;
            done += message.taken;
        }
        (done, Ok(()))
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        if self.is_due(now) {
            self.send_templates(now)?;
        }
        self.connection.look()
    }

    fn hurry(&mut self) {
        self.connection.hurry();
    }
}
