//! What a gateway is told when it starts: the engine's configuration and what is around it.

use crate::StateSettings;
use natgate_engine::{Config, Prefix, Side, SideConfig};
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// How packets get in and out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Packet sockets of the Linux kernel.
    #[default]
    AfPacket,
    /// Ports of DPDK.
    Dpdk,
}

/// One side: its device and its place in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideSettings {
    /// The device's name. With [`Backend::Dpdk`] a port's, or that of a virtual device to be made,
    /// with its arguments.
    pub device: String,
    /// How packets get in and out of it.
    pub backend: Backend,
    /// The gateway's own address there and the length of its prefix, bits. `None`: taken from the
    /// device.
    pub address: Option<(Ipv4Addr, u8)>,
    /// Next hop for what no route names.
    pub gateway: Option<Ipv4Addr>,
    /// Largest IP packet, bytes.
    pub mtu: u16,
}

/// A static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: Prefix,
    /// Next hop, an address that is directly connected.
    pub via: Ipv4Addr,
    /// The side that the next hop is on.
    pub side: Side,
}

/// Everything about a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The translator's part; its sides' addresses and MTUs agree with those below.
    pub engine: Config,
    /// The subscribers' side.
    pub inside: SideSettings,
    /// The Internet's side.
    pub outside: SideSettings,
    /// Static routes; the longest prefix wins, connected networks first among equals.
    pub routes: Vec<Route>,
    /// Arguments of DPDK's environment; `None`: those that virtual devices need.
    pub dpdk: Option<Vec<String>>,
    /// Where ports in use are remembered over a restart; `None`: they are not.
    pub state: Option<StateSettings>,
    /// Where the control socket is; `None`: at its usual place, if that can be had.
    pub control: Option<PathBuf>,
}

impl Settings {
    /// One side's settings.
    pub fn side(&self, side: Side) -> &SideSettings {
        match side {
            Side::Inside => &self.inside,
            Side::Outside => &self.outside,
        }
    }
    /// What the translator is told of one side.
    pub fn engine_side(&self, side: Side) -> &SideConfig {
        match side {
            Side::Inside => &self.engine.inside,
            Side::Outside => &self.engine.outside,
        }
    }
}
