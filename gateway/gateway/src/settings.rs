//! Settings of a gateway: the engine's configuration and everything around the engine.

use crate::alg::AlgSettings;
use crate::bindings::Bindings;
use crate::fleet_settings::FleetSettings;
use crate::health::HealthSettings;
use crate::kernel::KernelSettings;
use crate::limits::{FEWEST_NEIGHBORS, MOST_NEIGHBORS};
use crate::link::Link;
use crate::logs::LogSettings;
use crate::monitoring::MonitoringSettings;
use crate::pcp::PcpSettings;
use crate::settings6::Settings6;
use natgate_engine::{Config, Prefix, RealmConfig, Side, SideConfig};
pub use natgate_io::packet::Mode as ReceiveMode;
use natgate_wire::arp::Mac;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Back end of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Packet sockets of the Linux kernel.
    #[default]
    AfPacket,
    /// AF_XDP sockets of the Linux kernel.
    AfXdp,
    /// Ports of DPDK.
    Dpdk,
    /// A layer 3 device of the Linux kernel.
    Tun,
}

impl Backend {
    /// Name of the back end in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::AfPacket => "af-packet",
            Self::AfXdp => "af-xdp",
            Self::Dpdk => "dpdk",
            Self::Tun => "tun",
        }
    }
}

/// One side: its device and its place in the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SideSettings {
    /// Name of the device. With [`Backend::Dpdk`] it is the name of a port, or of a virtual device
    /// to be made, with its arguments.
    pub device: String,
    /// Back end of the device.
    pub backend: Backend,
    /// The gateway's own address there and the length of its prefix, bits. `None`: the device's
    /// address.
    pub address: Option<(Ipv4Addr, u8)>,
    /// Next hop of destinations without a route.
    pub gateway: Option<Ipv4Addr>,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Goal of packet sockets that receive: latency or throughput.
    pub mode: ReceiveMode,
    /// Frames that a receive queue holds; `None`: the back end's usual number.
    pub ring: Option<u32>,
}

/// A static route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Destinations.
    pub prefix: Prefix,
    /// Next hop, an address that is directly connected.
    pub via: Ipv4Addr,
    /// Side of the next hop.
    pub side: Side,
}

/// A neighbour with a configured hardware address: the gateway never asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbor {
    /// Side of the neighbour.
    pub side: Side,
    /// Address, directly connected.
    pub address: Ipv4Addr,
    /// Hardware address.
    pub mac: Mac,
}

/// A realm other than realm 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmSettings {
    /// Name of the realm.
    pub name: String,
    /// Device, which realms may share, and the gateway's address there.
    pub inside: SideSettings,
    /// VLAN of the realm's frames on the device; `None`: frames without a tag.
    pub vlan: Option<u16>,
    /// Static routes of the realm; the side of all of them is the inside.
    pub routes: Vec<Route>,
    /// Static neighbours of the realm, all inside.
    pub neighbors: Vec<StaticNeighbor>,
}

/// Number of workers and their processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// Number of workers, each with a thread of its own.
    pub count: usize,
    /// Processors of the workers, one each. If empty, several workers take the processors that the
    /// process may use, and a single worker is not bound.
    pub cores: Vec<usize>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { count: 1, cores: Vec::new() }
    }
}

/// Sockets for commands, and who may use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlSettings {
    /// Path of the control socket; `None`: its usual path, if that can be created.
    pub socket: Option<PathBuf>,
    /// Group of the socket's file; `None`: the process's group.
    pub group: Option<String>,
    /// Path of a further socket, for clients that may only read.
    pub read_socket: Option<PathBuf>,
    /// Group of that socket's file.
    pub read_group: Option<String>,
    /// Access for other machines; `None`: none.
    pub remote: Option<RemoteSettings>,
}

/// Access of other machines to the control interface: by TLS, with certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSettings {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// The gateway's certificate, a PEM file.
    pub certificate: PathBuf,
    /// Key of the certificate, a PEM file.
    pub key: PathBuf,
    /// Certificates of the authorities that sign clients' certificates, a PEM file.
    pub clients: PathBuf,
    /// Lists of revoked clients' certificates, a PEM file; `None`: none is revoked.
    pub revoked: Option<PathBuf>,
    /// Common names of clients that may do everything; other clients may only read.
    pub operators: Vec<String>,
}

/// All settings of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Configuration of the translator; the addresses and MTUs of its sides agree with those below.
    pub engine: Config,
    /// The subscribers' side.
    pub inside: SideSettings,
    /// The Internet's side.
    pub outside: SideSettings,
    /// Realms 1 and up, as many as the translator has besides that of NAT64's hosts. Realms that
    /// are gone there are not here either.
    pub realms: Vec<RealmSettings>,
    /// Static routes of realm 0 and outside; the longest prefix wins. For equal prefixes, connected
    /// networks come first.
    pub routes: Vec<Route>,
    /// Fate of packets from inside to destinations behind routers inside.
    pub inside_routes: InsideRoutes,
    /// Static neighbours of realm 0 and outside.
    pub neighbors: Vec<StaticNeighbor>,
    /// Most neighbours of a link; `None`: as many as its network can have, within limits.
    pub neighbors_limit: Option<usize>,
    /// Number of workers and their processors.
    pub workers: WorkerSettings,
    /// Arguments of DPDK's environment; `None`: the arguments that virtual devices need.
    pub dpdk: Option<Vec<String>>,
    /// Settings for the kernel of the machine.
    pub kernel: KernelSettings,
    /// File that saves the ports in use over a restart; `None`: ports are not saved.
    pub state: Option<StateSettings>,
    /// The part of one of two gateways that share addresses; `None`: the gateway stands alone.
    pub fleet: Option<FleetSettings>,
    /// Sockets for commands, and who may use them.
    pub control: ControlSettings,
    /// Event logs.
    pub logs: Vec<LogSettings>,
    /// Address of the page for browsers.
    pub page: PageSettings,
    /// Settings of the service for requests for mappings.
    pub pcp: PcpSettings,
    /// Settings of monitoring.
    pub monitoring: MonitoringSettings,
    /// Application-level gateways.
    pub alg: AlgSettings,
    /// Health checks of the servers of each service, in the order of the engine's services.
    pub health: Vec<Option<HealthSettings>>,
    /// Settings of IPv6; its translators stand beside the engine.
    pub ipv6: natgate_ipv6::Settings,
    /// File of the bindings of lw4o6, which is read again when it changes.
    pub bindings: Option<Bindings>,
    /// Settings of the router for IPv6.
    pub router6: Settings6,
}

/// Fate of packets from inside whose destination is behind a router inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InsideRoutes {
    /// Such packets are forwarded to that router, untranslated.
    #[default]
    Forward,
    /// Such packets are translated, and leave outside.
    Translate,
}

impl InsideRoutes {
    /// Name of the value in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Translate => "translate",
        }
    }
}

/// File that saves the ports in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// Path of the file.
    pub file: PathBuf,
    /// Interval of the writes.
    pub interval: Duration,
}

/// Address and host names of the page for browsers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSettings {
    /// Address of the page.
    pub place: PagePlace,
    /// Host names of the page, besides addresses and `localhost`.
    pub names: Vec<String>,
}

/// Address of the page for browsers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PagePlace {
    /// The usual address, if it is free.
    #[default]
    Usual,
    /// This address; the gateway does not start without it.
    At(SocketAddr),
    /// None: there is no page.
    Nowhere,
}

impl PagePlace {
    /// The usual address; only this machine reaches it.
    pub const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9465);
}

impl SideSettings {
    /// Creates settings of a device with packet sockets and Ethernet's usual MTU; the rest is
    /// default.
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            backend: Backend::default(),
            address: None,
            gateway: None,
            mtu: 1500,
            mode: ReceiveMode::default(),
            ring: None,
        }
    }
}

impl Settings {
    /// Creates settings of a translator between two devices, and nothing more.
    pub fn new(engine: Config, inside: SideSettings, outside: SideSettings) -> Self {
        Self {
            engine,
            inside,
            outside,
            realms: Vec::new(),
            routes: Vec::new(),
            inside_routes: InsideRoutes::default(),
            neighbors: Vec::new(),
            neighbors_limit: None,
            workers: WorkerSettings::default(),
            dpdk: None,
            kernel: KernelSettings::default(),
            state: None,
            fleet: None,
            control: ControlSettings::default(),
            logs: Vec::new(),
            page: PageSettings::default(),
            pcp: PcpSettings::default(),
            monitoring: MonitoringSettings::default(),
            alg: AlgSettings::default(),
            health: Vec::new(),
            ipv6: natgate_ipv6::Settings::default(),
            bindings: None,
            router6: Settings6::default(),
        }
    }

    /// Settings of one side.
    pub fn side(&self, side: Side) -> &SideSettings {
        match side {
            Side::Inside => &self.inside,
            Side::Outside => &self.outside,
        }
    }

    /// Settings of one link.
    ///
    /// # Panics
    /// If there is no such realm.
    pub fn link(&self, link: Link) -> &SideSettings {
        match usize::from(link.realm).checked_sub(1) {
            Some(place) if link.side == Side::Inside => &self.realms[place].inside,
            _ => self.side(link.side),
        }
    }

    /// True if a link has an address of IPv6 and none of IPv4.
    pub(crate) fn has_ipv6_only(&self, link: Link) -> bool {
        let own = match link.side {
            Side::Inside => &self.ipv6.inside,
            Side::Outside => &self.ipv6.outside,
        };
        link.realm == 0 && self.link(link).address.is_none() && own.address.is_some()
    }

    /// Most neighbours of a link whose network has a prefix of `prefix_len` bits.
    pub(crate) fn most_neighbors(&self, prefix_len: u8) -> usize {
        let stations = 1_usize << (32 - u32::from(prefix_len.min(32))).min(usize::BITS - 1);
        self.neighbors_limit.unwrap_or_else(|| stations.clamp(FEWEST_NEIGHBORS, MOST_NEIGHBORS))
    }

    /// The translator's settings of one link.
    pub fn engine_link(&self, link: Link) -> &SideConfig {
        match link.side {
            Side::Inside => self.engine.inside_of(link.realm),
            Side::Outside => &self.engine.outside,
        }
    }

    /// Devices that a gateway needs: the inside's, the outside's, and further ones of realms.
    pub fn devices(&self) -> Vec<&str> {
        let mut devices = vec![&self.inside.device[..], &self.outside.device];
        for (_, device, _) in self.insides() {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        devices
    }

    /// Number, device and VLAN of each realm that is not gone.
    pub(crate) fn insides(&self) -> impl Iterator<Item = (u16, &str, Option<u16>)> {
        let further = (1..).zip(&self.realms).filter(|(realm, _)| self.engine.has_realm(*realm));
        let further = further.map(|(number, realm)| (number, &realm.inside.device[..], realm.vlan));
        std::iter::once((0, &self.inside.device[..], None)).chain(further)
    }

    /// Index in [`Settings::devices`] of each realm's device; `None` for a realm that is gone.
    pub(crate) fn places(&self) -> Vec<Option<usize>> {
        let devices = self.devices();
        let mut places = vec![None; self.realms.len() + 1];
        for (realm, device, _) in self.insides() {
            places[usize::from(realm)] = devices.iter().position(|name| *name == device);
        }
        places
    }

    /// Renumbers the realms after the configuration of a translator at work.
    pub(crate) fn in_numbers_of(self, in_force: &Config) -> Self {
        let engine = self.engine.in_numbers_of(in_force);
        let named = self.realms.iter().map(|realm| (&realm.name[..], realm));
        let named: HashMap<&str, &RealmSettings> = named.collect();
        let gone = |name: &str| RealmSettings {
            name: name.to_owned(),
            inside: self.inside.clone(),
            vlan: None,
            routes: Vec::new(),
            neighbors: Vec::new(),
        };
        let settings = |realm: &RealmConfig| match named.get(&realm.name[..]) {
            Some(settings) if !realm.gone => (*settings).clone(),
            _ => gone(&realm.name),
        };
        // Realms of hosts with numbers are behind all others, and have no devices.
        let with_device = engine.realms.iter().filter(|realm| realm.host_bits.is_none());
        let realms = with_device.map(settings).collect();
        Self { engine, realms, ..self }
    }

    /// Name of a realm; realm 0 is called `default`.
    pub fn realm_name(&self, realm: u16) -> &str {
        let further = usize::from(realm).checked_sub(1).and_then(|place| self.realms.get(place));
        further.map_or("default", |realm| &realm.name)
    }
}
