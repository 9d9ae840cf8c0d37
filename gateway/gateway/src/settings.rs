//! What a gateway is told when it starts: the engine's configuration and what is around it.

use crate::kernel::KernelSettings;
use crate::limits::{FEWEST_NEIGHBORS, MOST_NEIGHBORS};
use crate::link::Link;
use crate::logs::LogSettings;
use crate::monitoring::MonitoringSettings;
use crate::pcp::PcpSettings;
use natgate_engine::{Config, Prefix, RealmConfig, Side, SideConfig};
pub use natgate_io::packet::Mode as ReceiveMode;
use natgate_wire::arp::Mac;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How packets get in and out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// Packet sockets of the Linux kernel.
    #[default]
    AfPacket,
    /// AF_XDP sockets of the Linux kernel.
    AfXdp,
    /// Ports of DPDK.
    Dpdk,
    /// A layer 3 device of the Linux kernel's.
    Tun,
}

impl Backend {
    /// Its name in configurations.
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
    /// What matters more where packet sockets receive.
    pub mode: ReceiveMode,
    /// Frames that a receive queue holds; `None`: as many as is usual with the back end.
    pub ring: Option<u32>,
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

/// A neighbour whose hardware address the configuration gives: it is never asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNeighbor {
    /// The side that it is on.
    pub side: Side,
    /// Its address, which is directly connected.
    pub address: Ipv4Addr,
    /// Its hardware address.
    pub mac: Mac,
}

/// A realm beside the one that the rest of the settings is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmSettings {
    /// Its name.
    pub name: String,
    /// Its device, which may be another's too, and the gateway's place there.
    pub inside: SideSettings,
    /// Which frames of the device are its own; `None`: those without a tag.
    pub vlan: Option<u16>,
    /// Static routes there; of all of them the side is the inside.
    pub routes: Vec<Route>,
    /// Static neighbours there, all inside.
    pub neighbors: Vec<StaticNeighbor>,
}

/// How many threads do the gateway's work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSettings {
    /// How many workers there are, each with a thread of its own.
    pub count: usize,
    /// The processors that they run on, one each; none: several workers take those that the process
    /// may use, and one worker alone is not bound.
    pub cores: Vec<usize>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { count: 1, cores: Vec::new() }
    }
}

/// Where commands are taken, and from whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlSettings {
    /// Where the control socket is; `None`: at its usual place, if that can be had.
    pub socket: Option<PathBuf>,
    /// The group of its file; `None`: the process's.
    pub group: Option<String>,
    /// A further socket, for those who may only ask.
    pub read_socket: Option<PathBuf>,
    /// The group of its file.
    pub read_group: Option<String>,
    /// What other machines may do; `None`: nothing.
    pub remote: Option<RemoteSettings>,
}

/// How other machines come to the control interface: by TLS, with certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The gateway's certificate, a PEM file.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificates of those who sign clients' certificates.
    pub clients: PathBuf,
    /// Lists of revoked clients' certificates, a PEM file; `None`: nobody revokes.
    pub revoked: Option<PathBuf>,
    /// Common names of clients that may do everything; others may ask.
    pub operators: Vec<String>,
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
    /// Realms 1 and up, as many as the translator has; those that are gone there are not here
    /// either.
    pub realms: Vec<RealmSettings>,
    /// Static routes; the longest prefix wins, connected networks first among equals.
    pub routes: Vec<Route>,
    /// What happens to packets from inside to destinations behind routers inside.
    pub inside_routes: InsideRoutes,
    /// Static neighbours of realm 0 and outside.
    pub neighbors: Vec<StaticNeighbor>,
    /// Most neighbours of a link; `None`: as many as its network can have, within limits.
    pub neighbors_limit: Option<usize>,
    /// How many workers there are.
    pub workers: WorkerSettings,
    /// Arguments of DPDK's environment; `None`: those that virtual devices need.
    pub dpdk: Option<Vec<String>>,
    /// What the kernel of the machine has to do with it.
    pub kernel: KernelSettings,
    /// Where ports in use are remembered over a restart; `None`: they are not.
    pub state: Option<StateSettings>,
    /// Where commands are taken, and from whom.
    pub control: ControlSettings,
    /// Which event logs are kept.
    pub logs: Vec<LogSettings>,
    /// Where the page for browsers is.
    pub page: PageSettings,
    /// What is said of requests for mappings.
    pub pcp: PcpSettings,
    /// Who watches.
    pub monitoring: MonitoringSettings,
}

/// What happens to packets from inside whose destination is behind a router inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InsideRoutes {
    /// They are forwarded there, untranslated.
    #[default]
    Forward,
    /// They are translated, and leave outside.
    Translate,
}

impl InsideRoutes {
    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Translate => "translate",
        }
    }
}

/// Where ports in use are remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateSettings {
    /// The file.
    pub file: PathBuf,
    /// How often it is written.
    pub interval: Duration,
}

/// Where the page for browsers is, and under which names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSettings {
    /// Where.
    pub place: PagePlace,
    /// Host names, besides addresses and `localhost`, under which it may be asked for.
    pub names: Vec<String>,
}

/// Where the page for browsers is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PagePlace {
    /// At its usual place, if that can be had.
    #[default]
    Usual,
    /// There, or the gateway does not start.
    At(SocketAddr),
    /// Nowhere.
    Nowhere,
}

impl PagePlace {
    /// The usual place: only this machine reaches it.
    pub const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9465);
}

impl SideSettings {
    /// A device with packet sockets that carries Ethernet's usual packets, of which nothing else is
    /// said.
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
    /// A translator between two devices, and nothing more.
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
            control: ControlSettings::default(),
            logs: Vec::new(),
            page: PageSettings::default(),
            pcp: PcpSettings::default(),
            monitoring: MonitoringSettings::default(),
        }
    }

    /// One side's settings.
    pub fn side(&self, side: Side) -> &SideSettings {
        match side {
            Side::Inside => &self.inside,
            Side::Outside => &self.outside,
        }
    }

    /// The settings of a link.
    ///
    /// # Panics
    /// When there is no such realm.
    pub fn link(&self, link: Link) -> &SideSettings {
        match usize::from(link.realm).checked_sub(1) {
            Some(place) if link.side == Side::Inside => &self.realms[place].inside,
            _ => self.side(link.side),
        }
    }

    /// Most neighbours of a link whose network has a prefix of so many bits.
    pub(crate) fn most_neighbors(&self, prefix_len: u8) -> usize {
        let stations = 1_usize << (32 - u32::from(prefix_len.min(32))).min(usize::BITS - 1);
        self.neighbors_limit.unwrap_or_else(|| stations.clamp(FEWEST_NEIGHBORS, MOST_NEIGHBORS))
    }

    /// What the translator is told of a link.
    pub fn engine_link(&self, link: Link) -> &SideConfig {
        match link.side {
            Side::Inside => self.engine.inside_of(link.realm),
            Side::Outside => &self.engine.outside,
        }
    }

    /// The devices that a gateway needs: the inside's, the outside's, and those that only realms
    /// have.
    pub fn devices(&self) -> Vec<&str> {
        let mut devices = vec![&self.inside.device[..], &self.outside.device];
        for (_, device, _) in self.insides() {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        devices
    }

    /// Of each realm that there is its number, its device, and its VLAN if it has one.
    pub(crate) fn insides(&self) -> impl Iterator<Item = (u16, &str, Option<u16>)> {
        let further = (1..).zip(&self.realms).filter(|(realm, _)| self.engine.has_realm(*realm));
        let further = further.map(|(number, realm)| (number, &realm.inside.device[..], realm.vlan));
        std::iter::once((0, &self.inside.device[..], None)).chain(further)
    }

    /// The place of each realm's device among [`Settings::devices`], if there is such a realm.
    pub(crate) fn places(&self) -> Vec<Option<usize>> {
        let devices = self.devices();
        let mut places = vec![None; self.realms.len() + 1];
        for (realm, device, _) in self.insides() {
            places[usize::from(realm)] = devices.iter().position(|name| *name == device);
        }
        places
    }

    /// The same with realms in the numbering of a translator at work, whose configuration is given.
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
        let realms = engine.realms.iter().map(settings).collect();
        Self { engine, realms, ..self }
    }

    /// The name of a realm; realm 0 is called `default`.
    pub fn realm_name(&self, realm: u16) -> &str {
        let further = usize::from(realm).checked_sub(1).and_then(|place| self.realms.get(place));
        further.map_or("default", |realm| &realm.name)
    }
}
