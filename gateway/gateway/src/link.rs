//! Names of a gateway's links, and their VLAN tags (IEEE 802.1Q).

use natgate_engine::Side;
use natgate_wire::link::{VLAN_LEN, ethertype};

/// Bits of a tag that hold the VLAN identifier.
pub(crate) const VLAN_BITS: u16 = 0x0fff;

/// A link: the outside, or a realm's inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// Side of the link.
    pub side: Side,
    /// Number of the realm; 0 outside.
    pub realm: u16,
}

impl Link {
    /// The outside.
    pub const OUTSIDE: Self = Self { side: Side::Outside, realm: 0 };

    /// The inside of a realm.
    pub const fn inside(realm: u16) -> Self {
        Self { side: Side::Inside, realm }
    }

    /// Link by which a packet leaves; the realm counts on the inside only.
    pub const fn new(side: Side, realm: u16) -> Self {
        match side {
            Side::Inside => Self::inside(realm),
            Side::Outside => Self::OUTSIDE,
        }
    }
}

impl From<Side> for Link {
    fn from(side: Side) -> Self {
        Self::new(side, 0)
    }
}

/// VLAN tag, as it stands behind the hardware addresses.
pub(crate) fn tag(vlan: u16) -> [u8; VLAN_LEN] {
    let [a, b] = ethertype::VLAN.to_be_bytes();
    let [c, d] = vlan.to_be_bytes();
    [a, b, c, d]
}
