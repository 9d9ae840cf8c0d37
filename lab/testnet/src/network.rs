//! Connections and addresses of the network.
//!
//! ```text
//! sub1 10.0.0.11 ---+                                                  +--- server1 198.51.100.10
//!                 switch --- inside [nat] outside --- nat [router] ----+
//! sub2 10.0.0.12 ---+      10.0.0.1       192.0.2.2   192.0.2.1        +--- server2 198.51.100.130
//! ```
//!
//! The pool, 203.0.113.1 to .4, is on no interface: the router has a route for it to the gateway.
//! The kernel in `nat` has no addresses and forwards nothing, so only natgate passes packets.
//! Offloads are off everywhere, so that frames look like those on a real wire.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::namespace::{Namespace, directory, sweep_in_turn};

/// The first subscriber.
pub const SUBSCRIBER1: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 11);
/// The second subscriber.
pub const SUBSCRIBER2: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 12);
/// The gateway's own address towards the subscribers.
pub const GATEWAY_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The gateway's own address towards the router.
pub const GATEWAY_OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The router's address towards the gateway.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The first server.
pub const SERVER1: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// The second server, in another network.
pub const SERVER2: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 130);
/// The external addresses.
pub const POOL: [Ipv4Addr; 4] = [
    Ipv4Addr::new(203, 0, 113, 1),
    Ipv4Addr::new(203, 0, 113, 2),
    Ipv4Addr::new(203, 0, 113, 3),
    Ipv4Addr::new(203, 0, 113, 4),
];

/// Cables: node and device, node and device.
const LINKS: [[&str; 4]; 6] = [
    ["sub1", "eth0", "switch", "sub1"],
    ["sub2", "eth0", "switch", "sub2"],
    ["nat", "inside", "switch", "nat"],
    ["nat", "outside", "router", "nat"],
    ["server1", "eth0", "router", "server1"],
    ["server2", "eth0", "router", "server2"],
];

/// The namespaces with cables and addresses. When dropped, they are removed with every process in
/// them.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    nodes: Vec<Namespace>,
}

impl Network {
    /// Creates the whole network. The name consists of a tag, the process id, and, for one of
    /// several networks, a dash and a number. The names of the namespaces begin with it
    /// (`<name>-sub1`).
    ///
    /// # Errors
    /// The error of `ip` or `ethtool`; no part of the network is left.
    pub fn build(name: &str) -> io::Result<Self> {
        let mut network = Self::empty(name)?;
        for node in ["sub1", "sub2", "switch", "nat", "router", "server1", "server2"] {
            network.add(node)?;
        }
        network.connect()?;
        network.address()?;
        Ok(network)
    }

    /// Creates an empty network, for other topologies than the one above; the name is as for
    /// [`Network::build`].
    ///
    /// # Errors
    /// The system's error if its directory cannot be created.
    pub fn empty(name: &str) -> io::Result<Self> {
        let network = Self { prefix: format!("{name}-"), nodes: Vec::new() };
        std::fs::create_dir(network.directory())?;
        Ok(network)
    }

    /// Creates a node without devices and without IPv6.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn add(&mut self, node: &str) -> io::Result<()> {
        self.nodes.push(Namespace::create(format!("{}{node}", self.prefix))?);
        for scope in ["all", "default"] {
            self.node(node).set(&format!("ipv6/conf/{scope}/disable_ipv6"), "1")?;
        }
        Ok(())
    }

    /// Creates a cable: node and device, node and device. Both ends are up, without addresses, and
    /// without offloads.
    ///
    /// # Errors
    /// The error of `ip` or `ethtool`.
    pub fn cable(&self, [node, device, other, peer]: [&str; 4]) -> io::Result<()> {
        let (near, far) = (self.node(node), self.node(other));
        near.ip_batch(&format!(
            "link add {device} type veth peer name {peer} netns {}\n\
             link set {device} up\n",
            far.name()
        ))?;
        far.ip_batch(&format!("link set {peer} up\n"))?;
        for (namespace, device) in [(near, device), (far, peer)] {
            let features = ["tx", "off", "tso", "off", "gso", "off", "gro", "off"];
            namespace.run(5, "ethtool", &[&["-K", device], &features[..]].concat())?;
        }
        Ok(())
    }

    /// Node by its name in the drawing above.
    ///
    /// # Panics
    /// If there is none.
    pub fn node(&self, node: &str) -> &Namespace {
        let found = self.nodes.iter().find(|n| n.name().strip_prefix(&self.prefix) == Some(node));
        found.unwrap_or_else(|| panic!("there is no node {node}"))
    }

    /// Directory for files of this network.
    pub fn directory(&self) -> PathBuf {
        directory(&self.prefix)
    }

    /// Path of a file in that directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Creates the cables.
    fn connect(&self) -> io::Result<()> {
        for link in LINKS {
            self.cable(link)?;
        }
        self.node("switch").ip_batch(
            "link add bridge type bridge\n\
             link set bridge up\n\
             link set sub1 master bridge\n\
             link set sub2 master bridge\n\
             link set nat master bridge\n",
        )
    }

    /// Gives all nodes addresses and routes.
    fn address(&self) -> io::Result<()> {
        for (node, address) in [("sub1", SUBSCRIBER1), ("sub2", SUBSCRIBER2)] {
            self.node(node).ip_batch(&host(address, 24, GATEWAY_INSIDE))?;
        }
        let near = Ipv4Addr::new(198, 51, 100, 1);
        let far = Ipv4Addr::new(198, 51, 100, 129);
        self.node("server1").ip_batch(&host(SERVER1, 25, near))?;
        self.node("server2").ip_batch(&host(SERVER2, 25, far))?;
        // Monitoring programs use it.
        self.node("nat").ip_batch("link set lo up\n")?;
        let router = self.node("router");
        router.set("ipv4/ip_forward", "1")?;
        // Otherwise fast requests of traceroute get no answer.
        for node in ["router", "server1", "server2"] {
            self.node(node).set("ipv4/icmp_ratelimit", "0")?;
        }
        router.ip_batch(&format!(
            "link set lo up\n\
             address add {ROUTER}/24 dev nat\n\
             address add {near}/25 dev server1\n\
             address add {far}/25 dev server2\n\
             route add 203.0.113.0/24 via {GATEWAY_OUTSIDE}\n"
        ))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        sweep_in_turn(&self.prefix);
    }
}

fn host(address: Ipv4Addr, prefix: u8, gateway: Ipv4Addr) -> String {
    format!(
        "link set lo up\n\
         address add {address}/{prefix} dev eth0\n\
         route add default via {gateway}\n"
    )
}

/// A path as text for a program's arguments.
///
/// # Panics
/// If the path is not Unicode, which needs an unusual name of the temporary directory.
pub(crate) fn argument(path: &Path) -> &str {
    path.to_str().expect("the temporary directory has a readable name")
}
