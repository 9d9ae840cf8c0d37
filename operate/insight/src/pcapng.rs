//! Captures as pcapng: interface 0 is the inside, 1 the outside, packets begin with the IP header.
//! Each packet has its direction and a comment: the verdict on a packet that came in, the origin of
//! one that leaves, and the number of packets that are missing before it. At the end each interface
//! has its statistics.

use natgate_engine::{Side, Verdict};
use natgate_gateway::capture::{Record, SNAPLEN, Way};
use natgate_io::pcap::{Direction, Interface, LinkType, Writer};
use std::io::{self, Write};

/// A writer of one capture.
#[derive(Debug)]
pub struct CaptureWriter<W> {
    writer: Writer<W>,
    /// Packets written, by interface.
    written: [u64; 2],
    missing: u64,
    last: u64,
}

impl<W: Write> CaptureWriter<W> {
    /// Begins a capture.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn new(output: W) -> io::Result<Self> {
        let interface = |name: &[u8]| Interface {
            name: Some(name.to_vec()),
            link: LinkType::RAW,
            snaplen: SNAPLEN as u32,
        };
        let writer = Writer::new(output, &[interface(b"inside"), interface(b"outside")])?;
        Ok(Self { writer, written: [0; 2], missing: 0, last: 0 })
    }

    /// Packets written so far.
    pub fn written(&self) -> u64 {
        self.written.iter().sum()
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn put(&mut self, record: &Record<'_>) -> io::Result<()> {
        let interface = usize::from(record.side == Side::Outside);
        let direction = if record.way.leaves() { Direction::Outbound } else { Direction::Inbound };
        let mut comment = match record.way {
            Way::Came => comment_of(record.verdict),
            Way::Left => "after translation".to_owned(),
            Way::Made => "made by natgate".to_owned(),
            Way::Released => "after translation; it had waited for the first fragment".to_owned(),
        };
        if record.missing > 0 {
            comment += &format!("; {} packets are missing before this one", record.missing);
        }
        self.missing += record.missing;
        self.written[interface] += 1;
        self.last = record.time.0;
        let place = (interface as u32, record.time.0);
        self.writer.packet_told(place, direction, &comment, record.bytes, record.len)
    }

    /// Writes the statistics so far. Missing packets count at the inside, because their side is
    /// unknown.
    ///
    /// # Errors Errors of the output.
    pub fn statistics(&mut self) -> io::Result<()> {
        for (interface, missing) in [(0, self.missing), (1, 0)] {
            let all = self.written[interface as usize] + missing;
            self.writer.statistics(interface, self.last, all, missing)?;
        }
        Ok(())
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    /// Ends the capture with its statistics.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.statistics()?;
        self.writer.flush()?;
        Ok(self.writer.into_inner())
    }
}

fn comment_of(verdict: Verdict) -> String {
    let name = |side| if side == Side::Inside { "inside" } else { "outside" };
    match verdict {
        Verdict::Forward(side) => format!("forward by the {}", name(side)),
        Verdict::Reply(side) => format!("reply by the {}", name(side)),
        Verdict::Drop(reason) => format!("drop {}: {}", reason.name(), reason.text()),
        Verdict::HandOver => "turns round".to_owned(),
        Verdict::Held => "held: it waits for the first fragment".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_engine::{DropReason, Timestamp};
    use natgate_io::pcap::{Capture, Item};

    #[test]
    fn packets_come_back_with_what_was_said() {
        let mut writer = CaptureWriter::new(Vec::new()).unwrap();
        let verdict = Verdict::Drop(DropReason::NoMapping);
        let record = Record {
            time: Timestamp(1_700_000_000_123_456_789),
            side: Side::Outside,
            way: Way::Came,
            verdict,
            len: 9,
            missing: 3,
            bytes: b"1234567",
        };
        writer.put(&record).unwrap();
        let verdict = Verdict::Forward(Side::Outside);
        writer.put(&Record { side: Side::Inside, verdict, missing: 0, len: 7, ..record }).unwrap();
        writer.put(&Record { way: Way::Made, ..record }).unwrap();
        writer.put(&Record { way: Way::Released, ..record }).unwrap();
        assert_eq!(writer.written(), 4);
        let file = writer.finish().unwrap();
        let has = |text: &[u8]| file.windows(text.len()).any(|window| window == text);
        assert!(has(b"drop no_mapping") && has(b"3 packets are missing") && has(b"forward by"));
        assert!(has(b"made by natgate") && has(b"had waited for the first fragment"));
        let mut capture = Capture::new(&file[..]);
        let mut packets = Vec::new();
        while let Some(item) = capture.next_item().unwrap() {
            let Item::Packet(packet) = item else { continue };
            packets.push((packet.interface, packet.time, capture.frame().to_vec()));
        }
        let (frame, record) = (b"1234567".to_vec(), record.time.0);
        let outside = (1, record, frame.clone());
        assert_eq!(packets, [outside.clone(), (0, record, frame), outside.clone(), outside]);
    }
}
