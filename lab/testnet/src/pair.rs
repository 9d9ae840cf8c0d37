//! Two gateways as a pair, with a router on each side of them.
//!
//! ```text
//!                      +-- 10.1.0.1 [a] 192.0.2.2 --+
//! sub 10.0.0.11 -- access      | 10.99.0.0/24     border -- srv 198.51.100.10
//!                      +-- 10.2.0.1 [b] 192.0.3.2 --+
//! ```
//!
//! Each router has two routes through the pair: the one by `a` is better. [`PairNetwork::prefer`]
//! and [`PairNetwork::withdraw`] change them, as a routing daemon does. The external addresses,
//! 203.0.113.0/24, are on no interface.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::Value;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::Duration;

use crate::network::{Network, argument};
use crate::{terminate, wait_for};

/// The subscriber's address.
pub const PAIR_SUBSCRIBER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 11);
/// The subscriber's address with [`PairNetwork::add_ipv6`].
pub const PAIR_SUBSCRIBER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0x100);
/// Addresses that the access router has a route to the subscriber for, too: the first one, and the
/// length of the prefix.
pub const PAIR_SUBSCRIBERS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 8, 0, 0), 15);
/// The server, with the port of its usual service.
pub const PAIR_SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 10), 7000);

/// The configurations that docs/pair.md describes, of `a` and `b`.
const EXAMPLES: [&str; 2] = [
    include_str!("../../../packaging/examples/pair-a.toml"),
    include_str!("../../../packaging/examples/pair-b.toml"),
];

/// Longest time of a node to start and to end.
const PATIENCE: Duration = Duration::from_secs(15);

/// The network of a pair. When dropped, it is removed with every process in it.
#[derive(Debug)]
pub struct PairNetwork(Network);

/// A side of the pair, by the router there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairSide {
    /// Towards the subscriber.
    Access,
    /// Towards the server.
    Border,
}

/// A running gateway of a pair; killed when dropped.
#[derive(Debug)]
pub struct PairNode {
    program: PathBuf,
    socket: PathBuf,
    log: PathBuf,
    child: Child,
}

impl PairSide {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::Access, Self::Border];

    /// The router's name.
    pub fn router(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Border => "border",
        }
    }

    /// Address of a gateway (`a` or `b`) on this side.
    pub fn gateway(self, node: &str) -> Ipv4Addr {
        match self {
            Self::Access => Ipv4Addr::new(10, number(node), 0, 1),
            Self::Border => Ipv4Addr::new(192, 0, 1 + number(node), 2),
        }
    }

    /// What the router reaches through the pair.
    fn prefix(self) -> &'static str {
        match self {
            Self::Access => "198.51.100.0/24",
            Self::Border => "203.0.113.0/24",
        }
    }
}

fn number(node: &str) -> u8 {
    if node == "a" { 1 } else { 2 }
}

impl PairNetwork {
    /// Creates the network, and certificates for both nodes. The name is as for
    /// [`Network::build`].
    ///
    /// # Errors
    /// The error of `ip` or `ethtool`, or of a file.
    pub fn build(name: &str) -> io::Result<Self> {
        let mut network = Network::empty(name)?;
        for node in ["sub", "access", "a", "b", "border", "srv"] {
            network.add(node)?;
        }
        for router in PairSide::BOTH.map(PairSide::router) {
            network.node(router).set("ipv4/ip_forward", "1")?;
            // Packets come back by the worse route, too.
            for scope in ["all", "default"] {
                network.node(router).set(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
            }
        }
        for cable in [
            ["sub", "eth0", "access", "sub"],
            ["access", "toa", "a", "inside0"],
            ["access", "tob", "b", "inside0"],
            ["a", "outside0", "border", "toa"],
            ["b", "outside0", "border", "tob"],
            ["srv", "eth0", "border", "srv"],
            ["a", "pair0", "b", "pair0"],
        ] {
            network.cable(cable)?;
        }
        let network = Self(network);
        network.address()?;
        make_certificates(&network.0.directory())?;
        Ok(network)
    }

    fn address(&self) -> io::Result<()> {
        let (subscribers, len) = PAIR_SUBSCRIBERS;
        let addresses = [
            (
                "sub",
                format!(
                    "address add {PAIR_SUBSCRIBER}/24 dev eth0\nroute add default via 10.0.0.1\n"
                ),
            ),
            (
                "srv",
                format!(
                    "address add {}/24 dev eth0\nroute add default via 198.51.100.1\n",
                    PAIR_SERVER.ip()
                ),
            ),
            (
                "access",
                format!(
                    "address add 10.0.0.1/24 dev sub\naddress add 10.1.0.2/24 dev toa\n\
                     address add 10.2.0.2/24 dev tob\n\
                     route add {subscribers}/{len} via {PAIR_SUBSCRIBER}\n"
                ),
            ),
            (
                "border",
                "address add 198.51.100.1/24 dev srv\naddress add 192.0.2.1/24 dev toa\n\
                 address add 192.0.3.1/24 dev tob\n"
                    .to_owned(),
            ),
            ("a", "address add 10.99.0.1/24 dev pair0\n".to_owned()),
            ("b", "address add 10.99.0.2/24 dev pair0\n".to_owned()),
        ];
        for (node, lines) in addresses {
            self.0.node(node).ip_batch(&format!("link set lo up\n{lines}"))?;
        }
        for side in PairSide::BOTH {
            for (node, metric) in [("a", 100), ("b", 200)] {
                self.route(side, "add", node, metric)?;
            }
        }
        Ok(())
    }

    /// Adds a subscriber with a link of its own to either gateway, whose device there has the name.
    /// It has the addresses of the subscriber and of the access router. Its packets go by `a`.
    ///
    /// # Errors
    /// The error of `ip` or `ethtool`.
    pub fn add_realm(&mut self, name: &str) -> io::Result<()> {
        self.0.add(name)?;
        let host = self.0.node(name);
        for scope in ["all", "default"] {
            host.set(&format!("ipv4/conf/{scope}/rp_filter"), "0")?;
        }
        self.0.cable([name, "toa", "a", name])?;
        self.0.cable([name, "tob", "b", name])?;
        host.ip_batch(&format!(
            "link set lo up\naddress add {PAIR_SUBSCRIBER}/32 dev lo\n\
             address add 10.1.0.2/24 dev toa\naddress add 10.2.0.2/24 dev tob\n"
        ))?;
        self.prefer_in(name, "a")
    }

    /// Makes the route by a node the best one of a subscriber of [`PairNetwork::add_realm`].
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn prefer_in(&self, name: &str, node: &str) -> io::Result<()> {
        let (prefix, gateway) = (PairSide::Access.prefix(), PairSide::Access.gateway(node));
        let line = format!("route replace {prefix} via {gateway} src {PAIR_SUBSCRIBER}\n");
        self.0.node(name).ip_batch(&line)
    }

    /// Adds IPv6 between the subscriber and both gateways. Packets to `remote`, prefixes, go by
    /// `a`.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn add_ipv6(&self, remote: &[&str]) -> io::Result<()> {
        let host = format!(
            "address add {PAIR_SUBSCRIBER6}/64 dev eth0 nodad\n\
             route add default via 2001:db8:0:1::1\n"
        );
        let mut router = "address add 2001:db8:0:1::1/64 dev sub nodad\n".to_owned();
        for node in ["a", "b"] {
            let own = Self::gateway6(node).to_bits() + 1;
            router += &format!("address add {}/64 dev to{node} nodad\n", Ipv6Addr::from_bits(own));
        }
        for (node, lines) in [("sub", host), ("access", router)] {
            let node = self.0.node(node);
            for scope in ["all", "default"] {
                node.set(&format!("ipv6/conf/{scope}/disable_ipv6"), "0")?;
            }
            node.ip_batch(&lines)?;
        }
        self.0.node(PairSide::Access.router()).set("ipv6/conf/all/forwarding", "1")?;
        self.prefer6(remote, "a")
    }

    /// Inside address of a gateway. The router's is the next one.
    pub fn gateway6(node: &str) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0xa + u16::from(number(node)) - 1, 0, 0, 0, 1)
    }

    /// Makes the routes by a node the best ones to prefixes of IPv6.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn prefer6(&self, remote: &[&str], node: &str) -> io::Result<()> {
        let gateway = Self::gateway6(node);
        let route = |prefix: &&str| format!("route replace {prefix} via {gateway} dev to{node}\n");
        let lines: String = remote.iter().map(route).collect();
        self.0.node(PairSide::Access.router()).ip_batch(&lines)
    }

    fn route(&self, side: PairSide, verb: &str, node: &str, metric: u16) -> io::Result<()> {
        let (prefix, gateway) = (side.prefix(), side.gateway(node));
        let line = format!("route {verb} {prefix} via {gateway} metric {metric}\n");
        self.0.node(side.router()).ip_batch(&line)
    }

    /// Makes a node's routes the best ones of both routers.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn prefer(&self, node: &str) -> io::Result<()> {
        PairSide::BOTH.into_iter().try_for_each(|side| self.route(side, "replace", node, 50))
    }

    /// Makes a node's route the best one of the router on one side.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn lead(&self, side: PairSide, node: &str) -> io::Result<()> {
        self.route(side, "replace", node, 30)
    }

    /// Has the router on one side choose a node for each flow, by addresses and ports.
    ///
    /// # Errors
    /// The error of `ip`, or of a file.
    pub fn balance(&self, side: PairSide) -> io::Result<()> {
        let router = self.0.node(side.router());
        router.set("ipv4/fib_multipath_hash_policy", "1")?;
        let (prefix, [a, b]) = (side.prefix(), ["a", "b"].map(|node| side.gateway(node)));
        router.ip_batch(&format!(
            "route replace {prefix} metric 30 nexthop via {a} nexthop via {b}\n"
        ))
    }

    /// Takes the better route, by `a`, from a router.
    ///
    /// # Errors
    /// The error of `ip`; there may be no such route.
    pub fn withdraw(&self, side: PairSide) -> io::Result<()> {
        self.route(side, "del", "a", 100)
    }

    /// Gives the router the better route again.
    ///
    /// # Errors
    /// The error of `ip`.
    pub fn restore(&self, side: PairSide) -> io::Result<()> {
        self.route(side, "replace", "a", 100)
    }

    /// Configuration of a node: its example, with files in the network's directory and a short
    /// hold-down, and `more` tables.
    pub fn config(&self, node: &str, more: &str) -> String {
        let folder = self.0.directory();
        let folder = folder.display();
        let example = EXAMPLES[usize::from(number(node)) - 1]
            .replace("/var/lib/natgate/", &format!("{folder}/{node}."))
            .replace("/etc/natgate/", &format!("{folder}/"));
        format!(
            "{example}\n\
             [timeouts]\n\
             hold_down = \"1s\"\n\
             [control]\n\
             socket = \"{folder}/{node}.sock\"\n\
             [page]\n\
             listen = \"off\"\n\
             [metrics]\n\
             listen = \"off\"\n\
             {more}"
        )
    }

    /// Starts a program as a node with this configuration, and waits until it translates.
    ///
    /// # Errors
    /// The node's own messages if it ends or takes too long.
    pub fn start(&self, program: &Path, node: &str, config: &str) -> io::Result<PairNode> {
        let file = self.0.file(&format!("{node}.toml"));
        fs::write(&file, config)?;
        let log = self.0.file(&format!("{node}.log"));
        let child = self.0.node(node).start(program, &["run", "-c", argument(&file)], &log)?;
        let socket = self.0.file(&format!("{node}.sock"));
        let mut running = PairNode { program: program.to_owned(), socket, log, child };
        wait_for("the start", PATIENCE, || {
            let text = running.log();
            if let Some(status) = running.child.try_wait()? {
                return Err(io::Error::other(format!("natgate ended with {status}: {text}")));
            }
            Ok(text.contains("natgate: running, ").then_some(()))
        })?;
        Ok(running)
    }
}

impl std::ops::Deref for PairNetwork {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.0
    }
}

impl PairNode {
    /// Process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Standard output and error so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Runs `natgate fleet` at this node.
    ///
    /// # Errors
    /// The system's error if the program cannot be started.
    pub fn fleet(&self, words: &[&str]) -> io::Result<Output> {
        let socket = ["fleet", "--socket", argument(&self.socket)];
        Command::new(&self.program).args(socket).args(words).output()
    }

    /// Runs a command of `natgate fleet`, which must succeed.
    ///
    /// # Errors
    /// What the program said.
    pub fn command(&self, words: &[&str]) -> io::Result<()> {
        succeeded(self.fleet(words)?).map(drop)
    }

    /// State of the pair, as this node knows it.
    ///
    /// # Errors
    /// What the program said.
    pub fn status(&self) -> io::Result<Value> {
        let output = succeeded(self.fleet(&["status", "--json"])?)?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Waits until a condition holds for the state.
    ///
    /// # Errors
    /// The state after that time.
    pub fn wait_until(
        &self,
        what: &str,
        limit: Duration,
        is_so: impl Fn(&Value) -> bool,
    ) -> io::Result<()> {
        let mut last = Value::Null;
        wait_for(what, limit, || {
            last = self.status()?;
            Ok(is_so(&last).then_some(()))
        })
        .map_err(|error| io::Error::new(error.kind(), format!("{error}: {last:#}")))
    }

    /// Ends the node as `kill -9` does, and waits for its end.
    ///
    /// # Errors
    /// The system's.
    pub fn kill(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Ends the node by SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// If it does not end, or with another exit code than 0, with what it said.
    pub fn stop(mut self) -> io::Result<()> {
        terminate(&self.child)?;
        let status = wait_for("the node's end", PATIENCE, || self.child.try_wait())?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("natgate ended with {status}: {}", self.log())))
    }
}

impl Drop for PairNode {
    fn drop(&mut self) {
        // Both calls fail only if the node has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn succeeded(output: Output) -> io::Result<Output> {
    if output.status.success() {
        return Ok(output);
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Makes the authority's certificate and those of the nodes.
fn make_certificates(folder: &Path) -> io::Result<()> {
    let failed = |error: rcgen::Error| io::Error::other(error.to_string());
    let write = |name: &str, text: String| fs::write(folder.join(name), text);
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "pair authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().map_err(failed)?;
    write("ca.pem", authority.self_signed(&key).map_err(failed)?.pem())?;
    let issuer = Issuer::new(authority, key);
    for node in ["a", "b"] {
        let mut params = CertificateParams::new(vec![node.to_owned()]).map_err(failed)?;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().map_err(failed)?;
        let signed = params.signed_by(&key, &issuer).map_err(failed)?;
        write(&format!("{node}.pem"), signed.pem())?;
        write(&format!("{node}.key"), key.serialize_pem())?;
    }
    Ok(())
}
