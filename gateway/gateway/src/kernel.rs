//! What a gateway and the kernel of its machine have to do with each other, beside devices: whose
//! packets are the kernel's, and which routes each tells the other.

use natgate_engine::Side;
use std::net::Ipv4Addr;
use std::time::Duration;

/// What is said of the kernel; the default leaves to it what it has, and tells it nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSettings {
    /// The kernel's own addresses, `[inside, outside]`; `None`: those that it has on the device.
    pub management: [Option<Vec<Ipv4Addr>>; 2],
    /// Which of the kernel's tables gets routes to the external addresses, if one does.
    pub announce: Option<AnnounceSettings>,
    /// Which of the kernel's tables routes are learnt from, if one is.
    pub learn: Option<LearnSettings>,
    /// How long packets are translated after the announced routes have been withdrawn, when the
    /// gateway is to end; `None`: see [`KernelSettings::drain`].
    pub drain: Option<Duration>,
}

/// Where the external addresses are announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceSettings {
    /// The kernel's routing table.
    pub table: u32,
    /// What the routes have as their protocol, by which they are told from others'.
    pub protocol: u8,
}

/// How it stands with the announced routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedRoutes {
    /// Routes that are in the kernel's table.
    pub present: u64,
    /// Routes that should be there and are not.
    pub missing: u64,
    /// Routes that other programs removed and that were put back, since the start.
    pub restored: u64,
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

    /// How long routers usually take to send packets elsewhere.
    pub const DRAIN: Duration = Duration::from_secs(2);

    /// How long packets are translated when the gateway is to end. Unless that is said, only where
    /// routers are told to send them elsewhere.
    pub fn drain(&self) -> Duration {
        let usual = if self.announce.is_some() { Self::DRAIN } else { Duration::ZERO };
        self.drain.unwrap_or(usual)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_drains_where_routers_are_told_or_where_it_is_said() {
        let announce = Some(AnnounceSettings { table: 254, protocol: 78 });
        let none = KernelSettings::default();
        assert_eq!(none.drain(), Duration::ZERO);
        let announced = KernelSettings { announce, ..none.clone() };
        assert_eq!(announced.drain(), KernelSettings::DRAIN);
        let said = Some(Duration::from_secs(7));
        assert_eq!(KernelSettings { drain: said, ..none }.drain(), Duration::from_secs(7));
        let at_once = KernelSettings { drain: Some(Duration::ZERO), ..announced };
        assert_eq!(at_once.drain(), Duration::ZERO);
    }
}
