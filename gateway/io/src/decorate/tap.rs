//! Records what passes, both ways, as a capture.
//!
//! Bounded: when the capture has reached its size it ends, and what passes is only counted. Written
//! by the thread that moves the frames, so a slow disk is felt.

use super::{Watcher, Way};
use crate::pcap::{Direction, Interface, LinkType, Writer};
use std::fmt;
use std::io::{self, Write};

/// A capture of one device or several.
pub struct Tap<W> {
    writer: Option<Writer<W>>,
    /// Bytes that it may still take.
    left: u64,
    failure: Option<io::Error>,
    recorded: u64,
    missed: u64,
}

impl<W> fmt::Debug for Tap<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { recorded, missed, failure, .. } = self;
        let mut shown = f.debug_struct("Tap");
        shown.field("recorded", recorded).field("missed", missed).field("failure", failure);
        shown.finish_non_exhaustive()
    }
}

impl<W: Write> Tap<W> {
    /// Begins a capture of at most so many bytes of packets; the devices are known by their place
    /// among these names.
    ///
    /// # Errors
    /// Those of the output.
    pub fn new(output: W, names: &[&str], limit: u64) -> io::Result<Self> {
        let interface = |name: &&str| Interface {
            name: Some(name.as_bytes().to_vec()),
            link: LinkType::ETHERNET,
            snaplen: 0,
        };
        let interfaces: Vec<_> = names.iter().map(interface).collect();
        let writer = Writer::new(output, &interfaces)?;
        Ok(Self { writer: Some(writer), left: limit, failure: None, recorded: 0, missed: 0 })
    }

    /// How many frames it has, and how many it lacks because they came after its end.
    pub fn counts(&self) -> (u64, u64) {
        (self.recorded, self.missed)
    }

    /// Hands everything on to the output.
    ///
    /// # Errors
    /// Those of the output, now or earlier.
    pub fn flush(&mut self) -> io::Result<()> {
        match (self.failure.take(), &mut self.writer) {
            (Some(error), _) => Err(error),
            (None, Some(writer)) => writer.flush(),
            (None, None) => Ok(()),
        }
    }

    /// The output, unless the capture has ended.
    pub fn into_inner(self) -> Option<W> {
        self.writer.map(Writer::into_inner)
    }

    /// Ends the capture.
    fn end(&mut self) {
        if let Some(mut writer) = self.writer.take()
            && let Err(error) = writer.flush()
        {
            self.failure = Some(error);
        }
    }
}

impl<W: Write + Send> Watcher for Tap<W> {
    fn frame(&mut self, port: u32, way: Way, time: u64, frame: &[u8]) {
        let Some(writer) = &mut self.writer else {
            self.missed += 1;
            return;
        };
        // What surrounds a packet in the file is less.
        let taken = frame.len() as u64 + 64;
        if taken > self.left {
            self.missed += 1;
            return self.end();
        }
        self.left -= taken;
        let direction = match way {
            Way::In => Direction::Inbound,
            Way::Out => Direction::Outbound,
        };
        match writer.packet_going(port, time, direction, frame) {
            Ok(()) => self.recorded += 1,
            Err(error) => {
                self.missed += 1;
                self.failure = Some(error);
                self.writer = None;
            }
        }
    }
}
