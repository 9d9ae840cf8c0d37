//! Customers of DS-Lite in the network: two homes with one IPv4 address, and a gateway of their
//! own.
//!
//! ```text
//! home1 --- switch --- inside [aftr] outside --- aftr [router]
//! home2 ---+         2001:db8:6::1     203.0.113.202   203.0.113.201
//! ```
//!
//! The network of the homes has IPv6 alone. The kernel of each home is the customer's end of the
//! tunnel: a route puts IPv4 packets into IPv6 packets (`encap seg6`), and `End.DX4` takes them
//! out.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::network::Network;

/// The gateway's end of the tunnels.
pub const AFTR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 1);
/// The gateway's address in every tunnel (RFC 6333 section 6.5).
pub const IN_TUNNELS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
/// The external address of the homes.
pub const AFTR_EXTERNAL: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 129);
/// The router's address towards the gateway of the homes.
pub const AFTR_ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 201);
/// The IPv4 address of every home.
pub const INNER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 2);
/// The ends of the tunnels in the homes.
pub const B4S: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 0xb4, 1, 0, 0, 0, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0xb4, 2, 0, 0, 0, 1),
];

/// The gateway's address towards the router.
const AFTR_OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 202);
/// Addresses of the homes in the access network.
const HOMES: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 0x11),
    Ipv6Addr::new(0x2001, 0xdb8, 6, 0, 0, 0, 0, 0x12),
];

/// Configuration of the gateway of the homes.
pub fn config_of_aftr(network: &Network) -> String {
    let routes = HOMES.iter().zip(B4S).map(|(home, b4)| {
        format!("[[route]]\nprefix = \"{b4}/128\"\nvia = \"{home}\"\nside = \"inside\"\n")
    });
    let routes: String = routes.collect();
    format!(
        "[inside]\n\
         device = \"inside\"\n\
         backend = \"af-packet\"\n\
         address6 = \"{AFTR}/64\"\n\
         [outside]\n\
         device = \"outside\"\n\
         backend = \"af-packet\"\n\
         address = \"{AFTR_OUTSIDE}/30\"\n\
         gateway = \"{AFTR_ROUTER}\"\n\
         [[pool]]\n\
         addresses = [\"{AFTR_EXTERNAL}\"]\n\
         [dslite]\n\
         address = \"{AFTR}\"\n\
         b4 = [\"2001:db8:b4::/48\"]\n\
         {routes}\
         [control]\n\
         socket = {:?}\n",
        network.file("aftr.sock")
    )
}

impl Network {
    /// Adds the homes, and the node of their gateway, to a network with IPv6. Returns false, and
    /// adds no home, if this kernel cannot be the customer's end of a tunnel.
    ///
    /// # Errors
    /// The error of `ip` or `ethtool`.
    pub fn add_tunnels(&mut self) -> io::Result<bool> {
        for node in ["home1", "home2", "aftr"] {
            self.add(node)?;
        }
        for node in ["home1", "home2"].map(|node| self.node(node)) {
            for scope in ["all", "default", "lo", "eth0"] {
                node.set(&format!("ipv6/conf/{scope}/disable_ipv6"), "0")?;
            }
            node.ip_batch("link set lo up\n")?;
        }
        let [end, ..] = B4S;
        if self.node("home1").ip_batch(&tunnel(end, "lo")).is_err() {
            return Ok(false);
        }
        let undo = format!("route del 0.0.0.0/0 dev lo\nroute del {end}/128 dev lo\n");
        self.node("home1").ip_batch(&undo)?;
        self.connect_homes()?;
        for ((node, home), b4) in ["home1", "home2"].into_iter().zip(HOMES).zip(B4S) {
            self.node(node).ip_batch(&format!(
                "address add {home}/64 dev eth0 nodad\n\
                 address add {INNER}/32 dev lo\n\
                 {}",
                tunnel(b4, "eth0")
            ))?;
        }
        Ok(true)
    }

    fn connect_homes(&self) -> io::Result<()> {
        for cable in [
            ["home1", "eth0", "switch", "home1"],
            ["home2", "eth0", "switch", "home2"],
            ["aftr", "inside", "switch", "aftr"],
            ["aftr", "outside", "router", "aftr"],
        ] {
            self.cable(cable)?;
        }
        self.node("switch").ip_batch(
            "link add access type bridge\n\
             link set access up\n\
             link set home1 master access\n\
             link set home2 master access\n\
             link set aftr master access\n",
        )?;
        self.node("router").ip_batch(&format!(
            "address add {AFTR_ROUTER}/30 dev aftr\n\
             route add 203.0.113.128/26 via {AFTR_OUTSIDE}\n"
        ))
    }
}

/// Commands for the customer's end of a tunnel.
fn tunnel(b4: Ipv6Addr, device: &str) -> String {
    format!(
        "sr tunsrc set {b4}\n\
         route add 0.0.0.0/0 encap seg6 mode encap.red segs {AFTR} dev {device}\n\
         route add {b4}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev {device}\n"
    )
}
