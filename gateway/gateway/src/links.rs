//! Links of a gateway: one outside, and one inside for each realm. Several links may share a
//! device; VLAN tags (IEEE 802.1Q) tell them apart.

use crate::link::VLAN_BITS;
use crate::settings::Settings;
use natgate_wire::link::{ETHERNET_LEN, VLAN_LEN, ethertype};

/// The links of one device.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceLinks {
    /// Realm of frames without a tag.
    untagged: Option<u16>,
    /// Realms of tagged frames: VLAN and realm, sorted by VLAN.
    tagged: Vec<(u16, u16)>,
}

/// Result of reading a frame's link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// The frame belongs to a realm: its number, the type of the payload, and the header's length
    /// in bytes.
    Of(u16, u16, usize),
    /// The frame belongs to no realm: the type of the payload, and the header's length in bytes.
    Unknown(u16, usize),
}

impl DeviceLinks {
    /// Links of each device, in the order of [`Settings::devices`].
    pub(crate) fn by_device(settings: &Settings) -> Vec<Self> {
        let mut all = vec![Self::default(); settings.devices().len()];
        let places = settings.places();
        for (realm, _, vlan) in settings.insides() {
            let carried = &mut all[places[usize::from(realm)].unwrap_or_default()];
            match vlan {
                None => carried.untagged = Some(realm),
                Some(vlan) => carried.tagged.push((vlan, realm)),
            }
        }
        // The outside has one link.
        all[1].untagged = Some(0);
        for carried in &mut all {
            carried.tagged.sort_unstable();
        }
        all
    }

    /// True if tags tell realms apart on this device.
    pub(crate) fn has_vlans(&self) -> bool {
        !self.tagged.is_empty()
    }

    /// Realm of frames without a tag.
    pub(crate) fn untagged(&self) -> Option<u16> {
        self.untagged
    }

    /// Realms of the device.
    pub(crate) fn realms(&self) -> impl Iterator<Item = u16> + '_ {
        self.untagged.into_iter().chain(self.tagged.iter().map(|(_, realm)| *realm))
    }

    /// Reads the link header of a frame with type field `kind`. On a device without VLANs tags are
    /// ignored.
    pub(crate) fn header(&self, frame: &[u8], kind: u16) -> Header {
        let tag = frame.get(ETHERNET_LEN..).and_then(|rest| rest.first_chunk::<VLAN_LEN>());
        match (kind, tag) {
            (ethertype::VLAN, Some([high, low, after @ ..])) if self.has_vlans() => {
                let vlan = u16::from_be_bytes([*high, *low]) & VLAN_BITS;
                let (kind, len) = (u16::from_be_bytes(*after), ETHERNET_LEN + VLAN_LEN);
                match self.realm(vlan) {
                    Some(realm) => Header::Of(realm, kind, len),
                    None => Header::Unknown(kind, len),
                }
            }
            _ => match self.untagged {
                Some(realm) => Header::Of(realm, kind, ETHERNET_LEN),
                None => Header::Unknown(kind, ETHERNET_LEN),
            },
        }
    }

    /// Realm of frames of a VLAN; 0 stands for frames without a VLAN.
    pub(crate) fn realm(&self, vlan: u16) -> Option<u16> {
        if vlan == 0 {
            return self.untagged;
        }
        let place = self.tagged.binary_search_by_key(&vlan, |(vlan, _)| *vlan);
        place.ok().map(|place| self.tagged[place].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::tag;

    fn frame(rest: &[u8]) -> Vec<u8> {
        [&[1; 12][..], rest].concat()
    }

    fn header(carried: &DeviceLinks, rest: &[u8]) -> Header {
        let frame = frame(rest);
        carried.header(&frame, u16::from_be_bytes([frame[12], frame[13]]))
    }

    #[test]
    fn tags_tell_realms_apart() {
        let carried = DeviceLinks { untagged: Some(0), tagged: vec![(100, 1), (200, 2)] };
        assert_eq!(header(&carried, &[8, 0]), Header::Of(0, 0x0800, 14));
        for (vlan, realm) in [(0, 0), (100, 1), (200, 2)] {
            // The priority in the tag is ignored.
            let rest = [0x81, 0, 0xe0, vlan, 8, 6];
            assert_eq!(header(&carried, &rest), Header::Of(realm, 0x0806, 18));
        }
        assert_eq!(header(&carried, &[0x81, 0, 0, 7, 8, 0]), Header::Unknown(0x0800, 18));
        assert_eq!(header(&carried, &[0x81, 0, 0, 100, 8]), Header::Of(0, 0x8100, 14));
        // Only the outer tag counts.
        let rest = [0x81, 0, 0, 100, 0x81, 0, 0, 200, 8, 0];
        assert_eq!(header(&carried, &rest), Header::Of(1, 0x8100, 18));
    }

    #[test]
    fn without_vlans_tags_are_no_matter_and_without_a_realm_all_is_unknown() {
        let plain = DeviceLinks { untagged: Some(3), tagged: vec![] };
        assert_eq!(header(&plain, &[0x81, 0, 0, 7, 8, 0]), Header::Of(3, 0x8100, 14));
        let tagged = DeviceLinks { untagged: None, tagged: vec![(5, 1)] };
        assert_eq!(header(&tagged, &[8, 0]), Header::Unknown(0x0800, 14));
        assert_eq!(header(&tagged, &[0x81, 0, 0, 0, 8, 0]), Header::Unknown(0x0800, 18));
    }

    #[test]
    fn a_tag_is_what_is_read_again() {
        assert_eq!(tag(0xabc), [0x81, 0, 0x0a, 0xbc]);
    }
}
