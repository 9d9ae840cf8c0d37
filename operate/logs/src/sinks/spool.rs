//! Writes records into the spool: one frame a second, or whenever one is full.

use crate::drive::Sink;
use crate::in_force::InForce;
use crate::json::Names;
use crate::record::{Host, Record, host_before};
use crate::spool::format::{CameIntoForce, Entry, MOST_ENTRIES};
use crate::spool::outline::Outline;
use crate::spool::segments::Writer;
use natgate_engine::Timestamp;
use natgate_gateway::SpoolSettings;
use std::io;

/// Most entries of a frame that are not about holdings: of a beginning, a step of the clock, a
/// configuration, and the end of a run.
const SPARE: usize = 8;

/// Sink of a spool.
#[derive(Debug)]
pub struct SpoolSink {
    writer: Writer,
    remotes: bool,
    /// Entries of the next frame, and their size in entries of the smallest size.
    entries: Vec<Entry>,
    size: usize,
    /// First entry of the run, written as soon as the gateway works: a gateway that fails at its
    /// start has neither begun nor ended anything.
    beginning: Option<Beginning>,
    /// Time of the first connection.
    connected: Option<Timestamp>,
    /// Time until which all records are in the frames.
    until: Timestamp,
    /// Time that was noted last.
    noted: Timestamp,
    /// True if a configuration was put in force.
    has_configuration: bool,
}

/// First entry of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    /// No endpoint has a holder.
    Start,
    /// The run continues where the one before ends.
    Continues,
    /// Mappings continue, but no earlier run has all of them.
    Resumes,
}

impl SpoolSink {
    /// Opens a spool; creates the folder if needed. All holdings in the spool end here, unless the
    /// gateway continues with existing mappings.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(settings: &SpoolSettings, remotes: bool) -> io::Result<Self> {
        let writer = Writer::new(&settings.folder, settings.max_size, settings.max_age)?;
        Ok(Self {
            writer,
            remotes,
            entries: Vec::with_capacity(MOST_ENTRIES),
            size: 0,
            beginning: Some(Beginning::Start),
            connected: None,
            until: Timestamp(0),
            noted: Timestamp(0),
            has_configuration: false,
        })
    }

    /// Notes that the gateway continues with existing mappings. A process that still writes the
    /// spool has not closed it yet; a closed spool is from another time.
    ///
    /// # Errors
    /// The system's error.
    pub fn continued(self) -> io::Result<Self> {
        let beginning = match Outline::is_closed(self.writer.folder())? {
            true => Beginning::Resumes,
            false => Beginning::Continues,
        };
        Ok(Self { beginning: Some(beginning), ..self })
    }

    /// Writes the first entry of the run, if that is not done, no later than at a time.
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
        self.size = 0;
        Ok(())
    }

    fn put(&mut self, record: &Record, host: Option<&Host>, now: Timestamp) -> io::Result<()> {
        if let Record::ClockSet(set) = record {
            if self.beginning.is_some() {
                // No entry has a time by the old clock.
                self.connected = Some(set.to);
                return Ok(());
            }
            // Times only grow within a segment.
            self.write_frame(now)?;
            self.writer.end_segment();
            self.entries.extend(Entry::of(record, None, self.remotes));
            self.until = set.to;
            return Ok(());
        }
        let Some(entry) = Entry::of(record, host, self.remotes) else { return Ok(()) };
        // The frame has room for the entries that are not about holdings, too.
        if self.size + entry.size() + SPARE > MOST_ENTRIES {
            self.write_frame(now)?;
        }
        self.begin(entry.time());
        self.until = self.until.max(entry.time());
        self.size += entry.size();
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
            if let Err(error) = self.put(record, host_before(records, number), now) {
                return (number, Err(error));
            }
        }
        (records.len(), Ok(()))
    }

    fn put_in_force(&mut self, new: &InForce, now: Timestamp) -> io::Result<()> {
        if self.has_configuration && self.beginning.is_some() {
            // The run begins with the former configuration.
            self.begin(new.from);
            self.until = self.entries.first().map_or(self.until, Entry::time);
        }
        if self.beginning.is_none() {
            self.write_frame(now)?;
        }
        let is_other = self.writer.put_in_force(&new.packed);
        if is_other && self.beginning.is_none() {
            let (time, from, until) = (self.until, new.from, new.until);
            self.entries.push(Entry::InForce(CameIntoForce { time, from, until }));
        }
        self.has_configuration = true;
        Ok(())
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
        // A gateway that ends before any event has begun nevertheless.
        if self.beginning.is_some() {
            self.passed(self.connected.unwrap_or(now));
        }
        self.entries.push(Entry::Closed(self.until));
        self.flush(now)
    }
}
