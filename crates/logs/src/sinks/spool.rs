//! Records into the spool: a frame a second, or whenever one is full.

use crate::drive::Sink;
use crate::json::Names;
use crate::record::Record;
use crate::spool::format::{Entry, MOST_ENTRIES};
use crate::spool::segments::Writer;
use natgate_engine::Timestamp;
use natgate_gateway::SpoolSettings;
use std::io;

/// Writes a spool.
#[derive(Debug)]
pub struct SpoolSink {
    writer: Writer,
    remotes: bool,
    /// The next frame's entries.
    entries: Vec<Entry>,
    has_begun: bool,
}

impl SpoolSink {
    /// Makes the folder if need be. Unless the gateway goes on with mappings that there were, what is in
    /// the spool ends here.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(settings: &SpoolSettings, remotes: bool) -> io::Result<Self> {
        let writer = Writer::new(&settings.folder, settings.max_size, settings.max_age)?;
        let entries = Vec::with_capacity(MOST_ENTRIES);
        Ok(Self { writer, remotes, entries, has_begun: false })
    }

    /// The gateway goes on with the mappings that there were.
    #[must_use]
    pub fn continued(self) -> Self {
        Self { has_begun: true, ..self }
    }

    fn write_frame(&mut self, now: Timestamp) -> io::Result<()> {
        self.writer.write(&self.entries, now)?;
        self.entries.clear();
        Ok(())
    }
}

impl Sink for SpoolSink {
    fn connect(&mut self, now: Timestamp) -> io::Result<()> {
        if !self.has_begun {
            self.has_begun = true;
            self.entries.push(Entry::Start(now));
        }
        self.write_frame(now)
    }

    fn write(
        &mut self,
        records: &[Record],
        names: &Names,
        now: Timestamp,
    ) -> (usize, io::Result<()>) {
        if let Err(error) = self.writer.name_realms(&names.realms) {
            return (0, Err(error));
        }
        for (number, record) in records.iter().enumerate() {
            if self.entries.len() >= MOST_ENTRIES
                && let Err(error) = self.write_frame(now)
            {
                return (number, Err(error));
            }
            self.entries.extend(Entry::of(record, self.remotes));
        }
        (records.len(), Ok(()))
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        self.write_frame(now)
    }
}
