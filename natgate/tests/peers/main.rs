//! The whole program with programs of other projects: STUN clients and servers, traceroute and mtr,
//! ping, and the kernel's own TCP at both ends, in network namespaces.
//!
//! Each file answers one question. [`behaviors`]: does a STUN client find the configured mapping
//! and filtering? [`routes`]: what does a traceroute show, from either side? [`sizes`]: do packets
//! that are too large for a link still arrive? [`connections`]: does traffic leave mappings behind?
//!
//! The network is that of the demonstration (`natgate-testnet`), sometimes extended. The tests need
//! root and the programs that `make test` installs, and fail without them. One test runs at a time,
//! because the tests measure time and share the machine's cores with the gateway.

mod behaviors;
mod connections;
mod routes;
mod sizes;

use std::path::Path;

use natgate_testnet::{Gateway, Namespace, Network, Turn};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngpeer";

/// The turn of one test.
fn turn() -> Turn {
    Turn::take(TAG)
}

/// A host behind the first subscriber, which becomes a router.
///
/// ```text
/// home 10.1.0.10 --- 10.1.0.1 [sub1] 10.0.0.11 --- 10.0.0.1 natgate
/// ```
const HOME: &str = "10.1.0.10";

/// Configuration for the host: a route to it, and an external address of its own.
const HOME_CONFIG: &str = "[[route]]\n\
     prefix = \"10.1.0.0/24\"\n\
     via = \"10.0.0.11\"\n\
     side = \"inside\"\n\
     [[static]]\n\
     internal = \"10.1.0.10\"\n\
     external = \"203.0.113.9\"\n";

/// External address of the host.
const HOME_EXTERNAL: &str = "203.0.113.9";

/// Adds this host.
fn add_home(network: &mut Network) {
    network.add("home").unwrap();
    network.cable(["home", "eth0", "sub1", "home"]).unwrap();
    let home = network.node("home");
    home.ip_batch(&format!(
        "link set lo up\n\
         address add {HOME}/24 dev eth0\n\
         route add default via 10.1.0.1\n"
    ))
    .unwrap();
    let router = network.node("sub1");
    router.ip_batch("address add 10.1.0.1/24 dev home\n").unwrap();
    router.set("ipv4/ip_forward", "1").unwrap();
    // Otherwise fast requests of traceroute get no answer.
    for node in [home, router] {
        node.set("ipv4/icmp_ratelimit", "0").unwrap();
    }
}

fn gateway(network: &Network, config: &str) -> Gateway {
    Gateway::start(network, Path::new(PROGRAM), config).unwrap()
}

/// Runs a program to its end and returns its output. An exit code other than 0, or a duration of
/// more than half a minute, fails the test.
fn run(node: &Namespace, program: &str, arguments: &str) -> String {
    let arguments: Vec<_> = arguments.split_whitespace().collect();
    let output = node.run(30, program, &arguments).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Number of packets that the gateway has dropped for this reason.
fn drops(gateway: &Gateway, reason: &str) -> u64 {
    let status = gateway.status().unwrap();
    let count = status["counters"]["drops"][reason].as_u64();
    count.unwrap_or_else(|| panic!("{reason} is no reason for a drop"))
}
