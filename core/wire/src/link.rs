//! Link headers: Ethernet with VLAN tags (IEEE 802.1Q, 802.1ad), Linux cooked captures of both
//! versions.
//!
//! Each function finds the place and the type of the network packet in a frame. A frame with a
//! length instead of an EtherType (IEEE 802.3) has that length as its type, and a router does not
//! forward such frames. The bytes before the network packet stay with the caller: a forwarded
//! packet keeps its tags.

use crate::get_u16;

/// Known EtherTypes.
pub mod ethertype {
    /// Internet Protocol version 4.
    pub const IPV4: u16 = 0x0800;
    /// Address Resolution Protocol.
    pub const ARP: u16 = 0x0806;
    /// Internet Protocol version 6.
    pub const IPV6: u16 = 0x86dd;
    /// A VLAN tag (IEEE 802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// A service VLAN tag (IEEE 802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// A service VLAN tag from before IEEE 802.1ad.
    pub const OLD_SERVICE_VLAN: u16 = 0x9100;
}

/// Length of an Ethernet header without tags, bytes.
pub const ETHERNET_LEN: usize = 14;

/// Length of a VLAN tag, bytes.
pub const VLAN_LEN: usize = 4;

/// Most VLAN tags that are skipped. A frame with more tags has an unknown type.
pub const MAX_VLAN_TAGS: usize = 8;

/// Length of a Linux cooked header (version 1), bytes.
pub const COOKED_LEN: usize = 16;

/// Length of a Linux cooked header version 2, bytes.
pub const COOKED2_LEN: usize = 20;

/// Place and type of the network packet in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// EtherType of the network packet.
    pub ethertype: u16,
    /// Offset of the network packet: the length of the link header with its tags, bytes.
    pub offset: usize,
}

/// Finds the packet behind an Ethernet header and its VLAN tags. `None`: the frame ends too early.
pub fn ethernet(frame: &[u8]) -> Option<Network> {
    behind_tags(frame, ETHERNET_LEN - 2, ETHERNET_LEN)
}

/// Finds the packet behind a Linux cooked header (LINKTYPE_LINUX_SLL). `None`: the frame ends too
/// early.
pub fn cooked(frame: &[u8]) -> Option<Network> {
    behind_tags(frame, COOKED_LEN - 2, COOKED_LEN)
}

/// Finds the packet behind a Linux cooked header version 2 (LINKTYPE_LINUX_SLL2). `None`: the frame
/// ends too early.
pub fn cooked2(frame: &[u8]) -> Option<Network> {
    behind_tags(frame, 0, COOKED2_LEN)
}

/// Finds the packet behind tags. The type field at `type_at` is the type of the bytes from `offset`
/// on. A tag is two bytes of its own, and then the type of the bytes after the tag.
fn behind_tags(frame: &[u8], type_at: usize, mut offset: usize) -> Option<Network> {
    if frame.len() < offset {
        return None;
    }
    let mut ethertype = get_u16(frame, type_at);
    for _ in 0..MAX_VLAN_TAGS {
        if !is_vlan(ethertype) {
            break;
        }
        if frame.len() < offset + VLAN_LEN {
            return None;
        }
        ethertype = get_u16(frame, offset + 2);
        offset += VLAN_LEN;
    }
    Some(Network { ethertype, offset })
}

fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::VLAN | ethertype::SERVICE_VLAN | ethertype::OLD_SERVICE_VLAN)
}

/// A view of an Ethernet frame: its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Ethernet<T>(T);

impl<T: AsRef<[u8]>> Ethernet<T> {
    /// Wraps a frame; `None` when it is shorter than the header.
    pub fn new_checked(bytes: T) -> Option<Self> {
        (bytes.as_ref().len() >= ETHERNET_LEN).then_some(Self(bytes))
    }

    /// Destination address.
    pub fn destination(&self) -> [u8; 6] {
        core::array::from_fn(|i| self.0.as_ref()[i])
    }

    /// Source address.
    pub fn source(&self) -> [u8; 6] {
        core::array::from_fn(|i| self.0.as_ref()[6 + i])
    }

    /// The type field: of the network packet, or of the first VLAN tag.
    pub fn ethertype(&self) -> u16 {
        get_u16(self.0.as_ref(), 12)
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ethernet<T> {
    /// Sets the destination address.
    pub fn set_destination(&mut self, address: [u8; 6]) {
        self.0.as_mut()[..6].copy_from_slice(&address);
    }

    /// Sets the source address.
    pub fn set_source(&mut self, address: [u8; 6]) {
        self.0.as_mut()[6..12].copy_from_slice(&address);
    }

    /// Sets the type field.
    pub fn set_ethertype(&mut self, value: u16) {
        crate::put_u16(self.0.as_mut(), 12, value);
    }

    /// Exchanges source and destination, as for a reply.
    pub fn exchange(&mut self) {
        let (destination, source) = (self.destination(), self.source());
        self.set_destination(source);
        self.set_source(destination);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    /// Makes a frame with these tag types, then IPv4.
    fn tagged(header: &[u8], tags: &[u16]) -> Vec<u8> {
        let mut frame = header.to_vec();
        for (i, tag) in tags.iter().enumerate() {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, i as u8]);
        }
        frame.extend(ethertype::IPV4.to_be_bytes());
        frame
    }

    #[test]
    fn finds_the_packet_behind_any_tags() {
        for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100], &[0x9100, 0x9100, 0x8100]] {
            let frame = tagged(&[1; 12], tags);
            let expected = Network { ethertype: ethertype::IPV4, offset: 14 + 4 * tags.len() };
            assert_eq!(ethernet(&frame), Some(expected));
            assert_eq!(ethernet(&frame[..frame.len() - 1]), None);
        }
    }

    #[test]
    fn stops_at_the_limit_of_tags() {
        let frame = tagged(&[1; 12], &[ethertype::VLAN; MAX_VLAN_TAGS]);
        assert_eq!(ethernet(&frame).unwrap().ethertype, ethertype::IPV4);
        let frame = tagged(&[1; 12], &[ethertype::VLAN; MAX_VLAN_TAGS + 1]);
        assert_eq!(ethernet(&frame).unwrap().ethertype, ethertype::VLAN);
    }

    #[test]
    fn shows_a_length_as_it_is() {
        let frame = [&[1; 12][..], &[0, 38, 0x42, 0x42, 3]].concat();
        assert_eq!(ethernet(&frame), Some(Network { ethertype: 38, offset: 14 }));
    }

    #[test]
    fn cooked_headers_of_both_versions() {
        let frame = tagged(&[0; 14], &[]);
        let plain = Network { ethertype: ethertype::IPV4, offset: 16 };
        assert_eq!(cooked(&frame), Some(plain));
        assert_eq!(cooked(&frame[..15]), None);
        let frame = tagged(&[0; 14], &[ethertype::VLAN]);
        assert_eq!(cooked(&frame), Some(Network { offset: 20, ..plain }));

        let mut frame = [0; 24];
        frame[..2].copy_from_slice(&ethertype::IPV6.to_be_bytes());
        assert_eq!(cooked2(&frame), Some(Network { ethertype: ethertype::IPV6, offset: 20 }));
        assert_eq!(cooked2(&frame[..19]), None);
        frame[..2].copy_from_slice(&ethertype::VLAN.to_be_bytes());
        frame[22..].copy_from_slice(&ethertype::IPV4.to_be_bytes());
        assert_eq!(cooked2(&frame), Some(Network { ethertype: ethertype::IPV4, offset: 24 }));
    }

    #[test]
    fn an_answer_exchanges_addresses_and_keeps_the_type() {
        let mut frame = [0; 14];
        let mut view = Ethernet::new_checked(&mut frame[..]).unwrap();
        view.set_destination([1; 6]);
        view.set_source([2; 6]);
        view.set_ethertype(ethertype::ARP);
        view.exchange();
        assert_eq!((view.destination(), view.source()), ([2; 6], [1; 6]));
        assert_eq!(view.ethertype(), ethertype::ARP);
        assert!(Ethernet::new_checked(&[0; 13][..]).is_none());
    }
}
