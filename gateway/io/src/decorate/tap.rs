//! Records passing frames, in both directions, as a capture.
//!
//! The size is bounded: when the capture is full it ends, and later frames are only counted. The
//! thread that moves the frames writes the capture, so a slow disk delays frames.

use super::{Watcher, Way};
use crate::pcap::{Direction, Interface, LinkType, Writer};
use std::fmt;
use std::io::{self, Write};

/// A capture of one device or several.
pub struct Tap<W> {
    writer: Option<Writer<W>>,
    /// Bytes of packets that the capture may still take.
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
    /// Begins a capture of at most `limit` bytes of packets. A device is known by its index among
    /// `names`.
    ///
    /// # Errors
    /// The error of the output.
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

    /// Number of frames in the capture, and number of frames that came after its end.
    pub fn counts(&self) -> (u64, u64) {
        (self.recorded, self.missed)
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// The error of the output, now or earlier.
    pub fn flush(&mut self) -> io::Result<()> {
        match (self.failure.take(), &mut self.writer) {
            (Some(error), _) => Err(error),
            (None, Some(writer)) => writer.flush(),
            (None, None) => Ok(()),
        }
    }

    /// Returns the output, unless the capture has ended.
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
        // The file adds less than that around a packet.
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
