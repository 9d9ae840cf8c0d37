//! Relations of a gateway to the kernel of its machine, besides devices: the kernel's own
//! addresses, and routes that each learns from the other.

use natgate_engine::Side;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Settings for the kernel. By default the kernel keeps its addresses, and no routes are exchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelSettings {
    /// The kernel's own addresses, `[inside, outside]`; `None`: the kernel's addresses on the
    /// device.
    pub management: [Option<Vec<Ipv4Addr>>; 2],
    /// Routing table of the kernel that gets routes to the external addresses; `None`: none does.
    pub announce: Option<AnnounceSettings>,
    /// Routing table of the kernel from which routes are learnt; `None`: none.
    pub learn: Option<LearnSettings>,
    /// Time for which packets are still translated at the end, after the announced routes have been
    /// withdrawn; `None`: see [`KernelSettings::drain`].
    pub drain: Option<Duration>,
}

/// Announcement of the external addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnnounceSettings {
    /// The kernel's routing table.
    pub table: u32,
    /// Protocol number of the routes, which tells them from other routes.
    pub protocol: u8,
    /// Metric of the routes to slices of a pair that the other node owns. Others have none.
    pub partner_metric: u32,
}

/// State of the announced routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnouncedRoutes {
    /// Routes present in the kernel's table.
    pub present: u64,
    /// Routes missing from the kernel's table.
    pub missing: u64,
    /// Routes that other programs removed and that were put back, since the start.
    pub restored: u64,
}

/// Source of learnt routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LearnSettings {
    /// The kernel's routing table.
    pub table: u32,
}

impl KernelSettings {
    /// The kernel's main routing table.
    pub const MAIN_TABLE: u32 = 254;

    /// Default protocol number of announced routes.
    pub const PROTOCOL: u8 = 78;
    /// Metric of the routes to the other node's slices, unless the configuration says otherwise.
    pub const PARTNER_METRIC: u32 = 100;

    /// Usual time until routers send packets elsewhere.
    pub const DRAIN: Duration = Duration::from_secs(2);

    /// Time for which packets are still translated when the gateway ends. Without a configured time
    /// it is zero, unless routes are announced.
    pub fn drain(&self) -> Duration {
        let usual = if self.announce.is_some() { Self::DRAIN } else { Duration::ZERO };
        self.drain.unwrap_or(usual)
    }

    /// The kernel's own known addresses on a side's device.
    pub fn management(&self, side: Side) -> &[Ipv4Addr] {
        self.management[place(side)].as_deref().unwrap_or_default()
    }

    /// The kernel's own addresses on a side's device, to be set.
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
        let announce = Some(AnnounceSettings { table: 254, protocol: 78, partner_metric: 1 });
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
