//! The translated capture: each packet leaves through its side's interface, under a link header.
//!
//! A forwarded packet keeps its link header, addresses and VLAN tags unchanged, except for the tags
//! that tell realms apart: the tag that the packet came with is removed, and the tag of the
//! destination realm is added. An answer gets the header of the packet that provoked it, with the
//! Ethernet addresses exchanged. A packet without such a header was made by a timer, or came in
//! under another type of header. It gets the header of the last frame that came in on its side,
//! exchanged; if no frame has come, addresses are zero. The type is that of the packet's family. In
//! Linux cooked headers an exchange makes the packet one that this machine sent, from an unknown
//! address.

use super::Interfaces;
use crate::link::tag;
use natgate_engine::{Side, Timestamp};
use natgate_io::pcap::{LinkType, Writer};
use natgate_wire::link::{self, Ethernet, ethertype};
use std::io::{self, Write};

/// Longest link header, bytes: Linux cooked version 2 with the most tags.
const MAX_HEADER: usize = link::COOKED2_LEN + link::MAX_VLAN_TAGS * link::VLAN_LEN;

/// Offset of tags in an Ethernet header: behind the addresses.
const TAG_AT: usize = 12;

/// A link header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    link: LinkType,
    bytes: [u8; MAX_HEADER],
    len: usize,
}

/// Origin of a packet's link header.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause {
    /// The packet came with this header and goes on.
    Passed(Header),
    /// The packet answers one that came with this header.
    Answered(Header),
    /// The packet has no such header.
    Unknown,
}

impl Header {
    /// Copies the link header in front of a packet.
    pub(super) fn new(link: LinkType, header: &[u8]) -> Self {
        let mut bytes = [0; MAX_HEADER];
        bytes[..header.len()].copy_from_slice(header);
        Self { link, bytes, len: header.len() }
    }

    /// A header with zero addresses.
    fn blank(link: LinkType) -> Self {
        const ARPHRD_ETHER: u8 = 1;
        let [high, low] = ethertype::IPV4.to_be_bytes();
        let mut bytes = [0; MAX_HEADER];
        let len = match link {
            LinkType::ETHERNET => {
                bytes[12..14].copy_from_slice(&[high, low]);
                link::ETHERNET_LEN
            }
            LinkType::COOKED => {
                bytes[3] = ARPHRD_ETHER;
                bytes[14..16].copy_from_slice(&[high, low]);
                link::COOKED_LEN
            }
            LinkType::COOKED2 => {
                bytes[..2].copy_from_slice(&[high, low]);
                bytes[9] = ARPHRD_ETHER;
                link::COOKED2_LEN
            }
            _ => 0,
        };
        Self { link, bytes, len }.exchanged()
    }

    /// Header of an answer.
    fn exchanged(mut self) -> Self {
        const SENT_BY_US: u8 = 4;
        match self.link {
            LinkType::ETHERNET => {
                if let Some(mut frame) = Ethernet::new_checked(&mut self.bytes[..self.len]) {
                    frame.exchange();
                }
            }
            LinkType::COOKED => {
                self.bytes[..2].copy_from_slice(&[0, SENT_BY_US]);
                self.bytes[4..14].fill(0);
            }
            LinkType::COOKED2 => {
                self.bytes[10] = SENT_BY_US;
                self.bytes[11..20].fill(0);
            }
            _ => {}
        }
        self
    }

    /// Removes the first VLAN tag of an Ethernet header.
    pub(super) fn without_tag(mut self) -> Self {
        self.bytes.copy_within(TAG_AT + link::VLAN_LEN..self.len, TAG_AT);
        self.len -= link::VLAN_LEN;
        self
    }

    /// Adds a VLAN tag before all others, if the header is one of Ethernet.
    fn tagged(mut self, vlan: u16) -> Self {
        let len = self.len + link::VLAN_LEN;
        if self.link == LinkType::ETHERNET && len <= MAX_HEADER {
            self.bytes.copy_within(TAG_AT..self.len, TAG_AT + link::VLAN_LEN);
            self.bytes[TAG_AT..TAG_AT + link::VLAN_LEN].copy_from_slice(&tag(vlan));
            self.len = len;
        }
        self
    }

    /// The header with the type of the packet's family.
    fn for_packet(mut self, packet: &[u8]) -> Self {
        let family = match packet.first().map(|first| first >> 4) {
            Some(4) => ethertype::IPV4,
            Some(6) => ethertype::IPV6,
            _ => return self,
        };
        // The type is at the end of the header, behind the tags.
        let at = match self.link {
            LinkType::COOKED2 if self.len == link::COOKED2_LEN => 0,
            LinkType::ETHERNET | LinkType::COOKED | LinkType::COOKED2 => self.len - 2,
            _ => return self,
        };
        self.bytes[at..at + 2].copy_from_slice(&family.to_be_bytes());
        self
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The output. It gets its first blocks as soon as the interfaces are known.
pub(super) struct Output<W>(State<W>);

enum State<W> {
    Fresh(Option<W>),
    Begun(Begun<W>),
}

struct Begun<W> {
    writer: Writer<W>,
    /// Interface number, link type, and the header last seen, for inside and outside.
    sides: [(u32, LinkType, Option<Header>); 2],
}

impl<W: Write> Output<W> {
    pub(super) fn new(output: W) -> Self {
        Self(State::Fresh(Some(output)))
    }

    /// Writes the blocks before the first packet, unless they are written.
    pub(super) fn begin(&mut self, interfaces: impl FnOnce() -> Interfaces) -> io::Result<()> {
        let State::Fresh(output) = &mut self.0 else { return Ok(()) };
        let Some(output) = output.take() else { return Ok(()) };
        let interfaces = interfaces();
        let number = |side| u32::from(interfaces[1].0 == side);
        let of = |side| (number(side), interfaces[number(side) as usize].1.link, None);
        let sides = [of(Side::Inside), of(Side::Outside)];
        let [first, second] = interfaces.map(|(_, interface)| interface);
        self.0 = State::Begun(Begun { writer: Writer::new(output, &[first, second])?, sides });
        Ok(())
    }

    /// Saves the link header of a frame that came in.
    pub(super) fn saw(&mut self, side: Side, header: Header) {
        if let State::Begun(begun) = &mut self.0 {
            begun.sides[side as usize].2 = Some(header);
        }
    }

    /// Writes a packet that leaves by `side`, tagged for a VLAN if one is given.
    pub(super) fn packet(
        &mut self,
        (side, vlan): (Side, Option<u16>),
        time: Timestamp,
        cause: Cause,
        packet: &[u8],
    ) -> io::Result<()> {
        let State::Begun(begun) = &mut self.0 else { return Ok(()) };
        let (number, link, last) = begun.sides[side as usize];
        let header = match cause {
            Cause::Passed(header) if header.link == link => header,
            Cause::Answered(header) if header.link == link => header.exchanged(),
            _ => match last {
                Some(header) if header.link == link => header.exchanged(),
                _ => Header::blank(link),
            },
        };
        let header = vlan.map_or(header, |vlan| header.tagged(vlan)).for_packet(packet);
        begun.writer.packet(number, time.0, header.bytes(), packet)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            State::Fresh(_) => Ok(()),
            State::Begun(begun) => begun.writer.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use natgate_io::pcap::{Capture, Interface, Item};

    const ETHERNET: [u8; 18] = [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x81, 0, 0, 9, 8, 0];
    const EXCHANGED: [u8; 18] = [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 0x81, 0, 0, 9, 8, 0];

    /// Frames of an output after `write`; inside and outside have these link types.
    fn frames(
        [inside, outside]: [LinkType; 2],
        write: impl FnOnce(&mut Output<&mut Vec<u8>>),
    ) -> Vec<(usize, Vec<u8>)> {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes);
        let interface = |link| Interface { name: None, link, snaplen: 0 };
        // The outside is the capture's first interface.
        let interfaces = [(Side::Outside, interface(outside)), (Side::Inside, interface(inside))];
        output.begin(|| interfaces.clone()).unwrap();
        output.begin(|| unreachable!()).unwrap();
        write(&mut output);
        let mut capture = Capture::new(&bytes[..]);
        let mut frames = Vec::new();
        while let Some(item) = capture.next_item().unwrap() {
            if let Item::Packet(record) = item {
                frames.push((record.interface, capture.frame().to_vec()));
            }
        }
        frames
    }

    fn sent(links: [LinkType; 2], seen: Option<Header>, cause: Cause) -> Vec<u8> {
        sent_to(links, None, seen, cause)
    }

    fn sent_to(
        links: [LinkType; 2],
        vlan: Option<u16>,
        seen: Option<Header>,
        cause: Cause,
    ) -> Vec<u8> {
        let frames = frames(links, |output| {
            if let Some(header) = seen {
                output.saw(Side::Inside, header);
            }
            output.packet((Side::Inside, vlan), Timestamp(5), cause, b"packet").unwrap();
        });
        let [(interface, frame)] = &frames[..] else { panic!("{frames:?}") };
        assert_eq!(*interface, 1);
        frame.strip_suffix(b"packet").unwrap().to_vec()
    }

    #[test]
    fn headers_pass_are_exchanged_or_made() {
        let header = Header::new(LinkType::ETHERNET, &ETHERNET);
        let raw = Header::new(LinkType::RAW, &[]);
        let blank = [&[0; 12][..], &[8, 0]].concat();
        let to = |seen, cause| sent([LinkType::ETHERNET; 2], seen, cause);
        assert_eq!(to(None, Cause::Passed(header)), ETHERNET);
        assert_eq!(to(None, Cause::Answered(header)), EXCHANGED);
        assert_eq!(to(Some(header), Cause::Unknown), EXCHANGED);
        assert_eq!(to(Some(header), Cause::Passed(raw)), EXCHANGED);
        assert_eq!(to(Some(raw), Cause::Passed(raw)), blank);
        assert_eq!(to(None, Cause::Unknown), blank);
        let bare = [LinkType::RAW, LinkType::ETHERNET];
        assert_eq!(sent(bare, Some(raw), Cause::Passed(header)), []);
    }

    #[test]
    fn tags_of_realms_come_and_go() {
        let header = Header::new(LinkType::ETHERNET, &ETHERNET);
        let bare = header.without_tag();
        let plain = [&ETHERNET[..12], &[8, 0]].concat();
        let to = |vlan, header| sent_to([LinkType::ETHERNET; 2], vlan, None, Cause::Passed(header));
        assert_eq!(to(None, bare), plain);
        let tagged = [&ETHERNET[..12], &[0x81, 0, 1, 2, 8, 0]].concat();
        assert_eq!(to(Some(0x102), bare), tagged);
        let twice = [&ETHERNET[..12], &[0x81, 0, 1, 2, 0x81, 0, 0, 9, 8, 0]].concat();
        assert_eq!(to(Some(0x102), header), twice);
        let raw = Header::new(LinkType::RAW, &[]);
        let links = [LinkType::RAW; 2];
        assert_eq!(sent_to(links, Some(5), None, Cause::Passed(raw)), []);
    }

    #[test]
    fn cooked_answers_are_sent_by_us() {
        let cooked = [0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0];
        let header = Header::new(LinkType::COOKED, &cooked);
        let answer = [0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        let to = |cause| sent([LinkType::COOKED, LinkType::RAW], None, cause);
        assert_eq!(to(Cause::Passed(header)), cooked);
        assert_eq!(to(Cause::Answered(header)), answer);
        assert_eq!(to(Cause::Unknown), answer);

        let cooked = [8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0];
        let header = Header::new(LinkType::COOKED2, &cooked);
        let answer = [8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let to = |cause| sent([LinkType::COOKED2, LinkType::RAW], None, cause);
        assert_eq!(to(Cause::Passed(header)), cooked);
        assert_eq!(to(Cause::Answered(header)), answer);
        assert_eq!(to(Cause::Unknown), answer);
    }

    #[test]
    fn the_longest_header_fits() {
        let mut frame = vec![0; link::COOKED2_LEN];
        frame[..2].copy_from_slice(&ethertype::VLAN.to_be_bytes());
        for _ in 0..link::MAX_VLAN_TAGS + 1 {
            frame.extend([0, 1, 0x81, 0]);
        }
        let network = LinkType::COOKED2.locate(&frame).unwrap();
        let header = Header::new(LinkType::COOKED2, &frame[..network.offset]);
        assert_eq!(header.bytes().len(), MAX_HEADER);
    }
}
