//! Records into the spool: a frame a second, or whenever one is full.

use crate::drive::Sink;
use crate::json::Names;
use crate::record::Record;
use crate::spool::format::{Entry, MOST_ENTRIES};
use crate::spool::outline::Outline;
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
    /// What is written first, as soon as the gateway works: one that fails at its start has neither
    /// begun nor ended anything.
    beginning: Option<Beginning>,
    /// When it was connected first.
    connected: Option<Timestamp>,
    /// Until when all is in the frames.
    until: Timestamp,
    /// The time that was noted last.
    noted: Timestamp,
}

/// What a run begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// Nobody has anything.
    Start,
    /// It goes on where the run before ends.
    Continues,
    /// Mappings go on, but no run before has all of them.
    Resumes,
}

impl SpoolSink {
    /// Makes the folder if need be. Unless the gateway goes on with mappings that there were, what
    /// is in the spool ends here.
    ///
    /// # Errors
    /// As the system says.
    pub fn open(settings: &SpoolSettings, remotes: bool) -> io::Result<Self> {
        let writer = Writer::new(&settings.folder, settings.max_size, settings.max_age)?;
        Ok(Self {
            writer,
            remotes,
            entries: Vec::with_capacity(MOST_ENTRIES),
            beginning: Some(Beginning::Start),
            connected: None,
            until: Timestamp(0),
            noted: Timestamp(0),
        })
    }

    /// The gateway goes on with the mappings that there were. Somebody who writes the spool until
    /// now has not closed it yet; what was closed before is of another time.
    ///
    /// # Errors
    /// As the system says.
    pub fn continued(self) -> io::Result<Self> {
        let beginning = match Outline::is_closed(self.writer.folder())? {
            true => Beginning::Resumes,
            false => Beginning::Continues,
        };
        Ok(Self { beginning: Some(beginning), ..self })
    }

    /// Says how the run begins, if nothing has been said yet, no later than at that time.
    fn begin(&mut self, time: Timestamp) {
        let Some(beginning) = self.beginning.take() else { return };
        let connected = self.connected.unwrap_or(time);
        self.entries.push(match beginning {
            Beginning::Start => Entry::Start(connected.min(time)),
            Beginning::Continues => Entry::Continues(time),
            Beginning::Resumes => Entry::Resumes(time),
        });
    }

    fn write_frame(&mut self, now: Timestamp) -> io::Result<()> {
        self.writer.write(&self.entries, now)?;
        self.entries.clear();
        Ok(())
    }

    fn put(&mut self, record: &Record, now: Timestamp) -> io::Result<()> {
        if let Record::ClockSet(set) = record {
            if self.beginning.is_some() {
                // Nothing has a time by the old clock.
                self.connected = Some(set.to);
                return Ok(());
            }
            // In a segment times only grow.
            self.write_frame(now)?;
            self.writer.end_segment();
            self.entries.extend(Entry::of(record, self.remotes));
            self.until = set.to;
            return Ok(());
        }
        let Some(entry) = Entry::of(record, self.remotes) else { return Ok(()) };
        // There is room for how the run begins, too.
        if self.entries.len() + 2 > MOST_ENTRIES {
            self.write_frame(now)?;
        }
        self.begin(entry.time());
        self.until = self.until.max(entry.time());
        self.entries.push(entry);
        Ok(())
    }
}

impl Sink for SpoolSink {
    fn connect(&mut self, now: Timestamp) -> io::Result<()> {
        self.connected = self.connected.or(Some(now));
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
            if let Err(error) = self.put(record, now) {
                return (number, Err(error));
            }
        }
        (records.len(), Ok(()))
    }

    fn passed(&mut self, until: Timestamp) {
        self.begin(until);
        self.until = self.until.max(until);
    }

    fn flush(&mut self, now: Timestamp) -> io::Result<()> {
        self.write_frame(now)?;
        if self.beginning.is_none() && self.noted != self.until {
            self.writer.note(self.until)?;
            self.noted = self.until;
        }
        Ok(())
    }

    fn close(&mut self, now: Timestamp) -> io::Result<()> {
        // A gateway that ends before anything happened has begun nevertheless.
        if self.beginning.is_some() {
            self.passed(self.connected.unwrap_or(now));
        }
        self.entries.push(Entry::Closed(self.until));
        self.flush(now)
    }
}
