//! Finished link headers of neighbours.
//!
//! All frames to a neighbour begin with the same bytes: both hardware addresses and, on some links,
//! a VLAN tag. They are kept in 16 bytes, so that one store writes them in front of a packet. The
//! type of the payload follows apart, because it depends on the packet.

use crate::link::tag;
use natgate_io::Frame;
use natgate_wire::arp::Mac;
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN, ethertype};

/// Bytes of the type of the payload.
const TYPE: usize = 2;

/// Bytes of both hardware addresses.
pub(super) const ADDRESSES: usize = ETHERNET_LEN - TYPE;

/// Bytes that one store writes.
const STORE: usize = 16;

/// Header of the frames of a link, without the type: the bytes right before the type. Without a tag
/// the first bytes are unused; they lie before the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkHeader([u8; STORE]);

impl LinkHeader {
    /// Bytes before the hardware addresses if there is no tag.
    const UNUSED: usize = STORE - ADDRESSES;

    /// Writes a packet's header into the headroom of its frame, which then begins with the header.
    /// `len` is the length of the link's headers.
    ///
    /// # Panics
    /// If there is no headroom for an Ethernet header with a tag.
    #[inline]
    pub(super) fn write(&self, frame: &mut Frame<'_>, len: usize) {
        let room = frame.room_mut::<{ STORE + TYPE }>().expect("headroom for a header");
        room[..STORE].copy_from_slice(&self.0);
        room[STORE..].copy_from_slice(&ethertype::IPV4.to_be_bytes());
        frame.set_start(frame.start() - len);
    }
}

/// Own part of the headers of a link: its hardware address and VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeaderTemplate {
    header: LinkHeader,
    /// Offset of the receiver's hardware address in `header`.
    offset: usize,
}

impl HeaderTemplate {
    /// Template of the frames that `source` sends, with a tag or without one.
    pub(super) fn new(source: Mac, vlan: Option<u16>) -> Self {
        let offset = if vlan.is_some() { 0 } else { LinkHeader::UNUSED };
        let mut bytes = [0; STORE];
        bytes[offset + size_of::<Mac>()..offset + ADDRESSES].copy_from_slice(&source.0);
        if let Some(vlan) = vlan {
            bytes[ADDRESSES..].copy_from_slice(&tag(vlan));
        }
        Self { header: LinkHeader(bytes), offset }
    }

    /// Header of the frames to a neighbour.
    pub(super) fn to(&self, neighbor: Mac) -> LinkHeader {
        let mut header = self.header;
        header.0[self.offset..self.offset + size_of::<Mac>()].copy_from_slice(&neighbor.0);
        header
    }

    /// Neighbour to which a header of this template leads.
    pub(super) fn neighbor(&self, header: &LinkHeader) -> Mac {
        let mut mac = Mac::default();
        mac.0.copy_from_slice(&header.0[self.offset..self.offset + size_of::<Mac>()]);
        mac
    }

    /// Length of the headers with their type, bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        STORE - self.offset + TYPE
    }
}

const _: () = assert!(LinkHeader::UNUSED == VLAN_LEN);

#[cfg(test)]
mod tests {
    use super::*;

    const TO: Mac = Mac([2, 0, 0, 0, 0, 7]);
    const FROM: Mac = Mac([2, 0, 0, 0, 0, 9]);

    fn written(vlan: Option<u16>) -> Vec<u8> {
        let template = HeaderTemplate::new(FROM, vlan);
        let mut buffer = [0xee; 20];
        let mut frame = Frame::of(&mut buffer, 18, 20);
        template.to(TO).write(&mut frame, template.len());
        frame.bytes().to_vec()
    }

    #[test]
    fn a_header_has_both_addresses_the_tag_and_the_type() {
        let addresses = [TO.0, FROM.0].concat();
        assert_eq!(written(None), [&addresses[..], &[8, 0, 0xee, 0xee]].concat());
        let tagged = [&addresses[..], &[0x81, 0, 0x0a, 0xbc, 8, 0, 0xee, 0xee]].concat();
        assert_eq!(written(Some(0xabc)), tagged);
        for vlan in [None, Some(0xabc)] {
            let template = HeaderTemplate::new(FROM, vlan);
            assert_eq!(template.neighbor(&template.to(TO)), TO);
        }
    }

    #[test]
    #[should_panic(expected = "headroom for a header")]
    fn too_little_headroom_is_refused() {
        let mut buffer = [0; 20];
        let template = HeaderTemplate::new(FROM, None);
        template.to(TO).write(&mut Frame::of(&mut buffer, 17, 20), template.len());
    }
}
