//! What a gateway and the kernel of its machine have to do with each other, beside devices: whose
//! packets are the kernel's, and which routes each tells the other.

use natgate_engine::Side;
use std::net::Ipv4Addr;

/// What is said of the kernel; the default leaves to it what it has, and tells it nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSettings {
    /// The kernel's own addresses, `[inside, outside]`; `None`: those that it has on the device.
    pub management: [Option<Vec<Ipv4Addr>>; 2],
    /// Which of the kernel's tables gets routes to the external addresses, if one does.
    pub announce: Option<AnnounceSettings>,
    /// Which of the kernel's tables routes are learnt from, if one is.
    pub learn: Option<LearnSettings>,
}

/// Where the external addresses are announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceSettings {
    /// The kernel's routing table.
    pub table: u32,
    /// What the routes have as their protocol, by which they are told from others'.
    pub protocol: u8,
}

/// Where routes are learnt from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnSettings {
    /// The kernel's routing table.
    pub table: u32,
}

impl KernelSettings {
    /// The kernel's main routing table.
    pub const MAIN_TABLE: u32 = 254;

    /// The protocol of announced routes, unless another is given.
    pub const PROTOCOL: u8 = 78;

    /// The kernel's own addresses on a side's device, as far as they are known.
    pub fn management(&self, side: Side) -> &[Ipv4Addr] {
        self.management[place(side)].as_deref().unwrap_or_default()
    }

    /// The same, to be filled in.
    pub fn management_mut(&mut self, side: Side) -> &mut Option<Vec<Ipv4Addr>> {
        &mut self.management[place(side)]
    }
}

fn place(side: Side) -> usize {
    match side {
        Side::Inside => 0,
        Side::Outside => 1,
    }
}
