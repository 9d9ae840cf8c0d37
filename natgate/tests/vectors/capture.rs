//! Captures of both sides, made from lines of the vectors' notation and shown in it.
//!
//! A line has the time in seconds since the begin of the capture, the side, and the packet. The
//! bytes before an IP packet are shown at the end of the line. A datagram is reassembled after its
//! last fragment, so that its checksum can be verified.

use crate::read::{self, hex};
use crate::words::{Result, Words};
use crate::write;
use natgate_io::pcap::{Capture, Interface, Item, LinkType, Writer};
use natgate_wire::Ipv4;
use std::collections::BTreeMap;

/// Begin of captures that are made from text, seconds since 1970.
pub(crate) const BEGIN: u64 = 1_700_000_000;

const SECOND: u64 = 1_000_000_000;
const SIDES: [&str; 2] = ["inside", "outside"];

/// Capture of a text, with raw IP packets.
pub(crate) fn from_text(text: &str) -> Result<Vec<u8>> {
    let interface = |name: &str| Interface {
        name: Some(name.as_bytes().to_vec()),
        link: LinkType::RAW,
        snaplen: 0,
    };
    let mut bytes = Vec::new();
    let mut writer =
        Writer::new(&mut bytes, &SIDES.map(interface)).map_err(|error| error.to_string())?;
    for (number, line) in text.lines().enumerate() {
        let at = |error: String| format!("line {}: {error}", number + 1);
        let mut words = Words::new(line).map_err(at)?;
        if words.plain.is_empty() {
            continue;
        }
        let (time, side) = heading(&mut words).map_err(at)?;
        let packet = write::packet(&mut words).map_err(at)?;
        writer.packet(side, time, &[], &packet).map_err(|error| error.to_string())?;
    }
    Ok(bytes)
}

/// Time, nanoseconds since 1970, and side of a line.
fn heading(words: &mut Words) -> Result<(u64, u32)> {
    let time = words.next("a time")?;
    let (seconds, fraction) = time.split_once('.').unwrap_or((&time, "0"));
    let nanos: u64 = crate::words::number(&format!("{fraction:0<9}"))?;
    let seconds: u64 = crate::words::number(seconds)?;
    let side = words.next("a side")?;
    let side = SIDES.iter().position(|name| *name == side).ok_or("a side is inside or outside")?;
    Ok(((BEGIN + seconds) * SECOND + nanos, side as u32))
}

/// A packet of a capture.
pub(crate) struct Frame {
    /// Nanoseconds since 1970.
    time: u64,
    /// 0: inside, 1: outside.
    pub(crate) side: usize,
    link: LinkType,
    bytes: Vec<u8>,
}

impl Frame {
    /// Nanoseconds since 1970.
    pub(crate) fn time(&self) -> u64 {
        self.time
    }

    /// The IP packet, or all bytes if there is none.
    pub(crate) fn packet(&self) -> &[u8] {
        let offset = self.link.locate(&self.bytes).map_or(0, |network| network.offset);
        &self.bytes[offset..]
    }
}

/// Packets of a capture of both sides, or of the given side.
pub(crate) fn frames(bytes: &[u8], side: Option<usize>) -> Vec<Frame> {
    let mut capture = Capture::new(bytes);
    let mut frames = Vec::new();
    while let Some(item) = capture.next_item().expect("the capture is whole") {
        let Item::Packet(record) = item else { continue };
        let side = side.unwrap_or_else(|| {
            let name = capture.interfaces()[record.interface].name.clone();
            let named = SIDES.iter().position(|side| name.as_deref() == Some(side.as_bytes()));
            named.unwrap_or(record.interface)
        });
        frames.push(Frame {
            time: record.time,
            side,
            link: capture.interfaces()[record.interface].link,
            bytes: capture.frame().to_vec(),
        });
    }
    frames
}

/// Begin of the times of these packets, seconds since 1970.
pub(crate) fn begin(frames: &[Frame]) -> u64 {
    frames.first().map_or(BEGIN, |frame| frame.time / SECOND)
}

/// The packets, one for each line.
pub(crate) fn to_text(frames: &[Frame], begin: u64) -> String {
    let mut datagrams = Datagrams::default();
    let mut text = String::new();
    for frame in frames {
        let time = frame.time - begin * SECOND;
        let fraction = format!("{:09}", time % SECOND);
        let digits = fraction.trim_end_matches('0').len().max(3);
        let time = format!("{}.{}", time / SECOND, &fraction[..digits]);
        let packet = read::packet(frame.packet());
        text += &format!("{time} {:7} {packet}{}", SIDES[frame.side], link_header(frame));
        text += &datagrams.completed_by(frame);
        text += "\n";
    }
    text
}

/// Bytes before the packet.
fn link_header(frame: &Frame) -> String {
    let header = &frame.bytes[..frame.bytes.len() - frame.packet().len()];
    match frame.link {
        _ if header.is_empty() => String::new(),
        LinkType::ETHERNET => {
            let (ends, rest) = header.split_at(12);
            let ends = format!(" eth={}>{}", hex(&ends[6..]), hex(&ends[..6]));
            match rest {
                [_, _] => ends,
                [tags @ .., _, _] => format!("{ends} tags={}", hex(tags)),
                _ => ends,
            }
        }
        _ => format!(" cooked={}", hex(header)),
    }
}

/// Seen fragments, by their datagram.
#[derive(Default)]
struct Datagrams(BTreeMap<Datagram, Vec<Fragment>>);

/// Side, addresses, protocol and identification.
type Datagram = (usize, u32, u32, u8, u16);
/// First byte, true if it is the last fragment, and payload.
type Fragment = (usize, bool, Vec<u8>);

impl Datagrams {
    /// Text about the datagram that a frame completes.
    fn completed_by(&mut self, frame: &Frame) -> String {
        let Ok(packet) = Ipv4::new_checked(frame.packet()) else { return String::new() };
        if packet.fragment_offset() == 0 && !packet.more_fragments() {
            return String::new();
        }
        let ends = (packet.source(), packet.destination());
        let key = (frame.side, ends.0, ends.1, packet.protocol(), packet.identification());
        let parts = self.0.entry(key).or_default();
        let last = !packet.more_fragments();
        parts.push((packet.fragment_offset(), last, packet.payload().to_vec()));
        parts.sort();
        let mut payload = Vec::new();
        for (from, _, part) in parts.iter() {
            if *from != payload.len() {
                return String::new();
            }
            payload.extend_from_slice(part);
        }
        if !parts.iter().any(|(_, last, _)| *last) {
            return String::new();
        }
        self.0.remove(&key);
        let mut whole = vec![0; 20 + payload.len()];
        let total_len = whole.len() as u16;
        let mut header = Ipv4::init(&mut whole[..], 20);
        header.set_total_len(total_len);
        header.set_ttl(write::TTL);
        header.set_protocol(key.3);
        header.set_source(ends.0);
        header.set_destination(ends.1);
        header.payload_mut().copy_from_slice(&payload);
        header.fill_checksum();
        format!("  # completes {}", read::packet(&whole))
    }
}
