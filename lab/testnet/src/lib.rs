//! Network namespaces of the demonstration and of the tests.
//!
//! [`Network`] has two subscribers, the gateway, a router and two servers. Each is a network
//! namespace of its own with the kernel's own TCP/IP. [`Gateway`] is a `natgate run` between them.
//! [`Machine`] is a gateway in an emulator, such as the image without an operating system, or a
//! router with another kernel ([`LinuxGuest`]).
//! [`Servers`] are threads of this process that serve the clients. [`traffic`] has clients that
//! need sockets of a particular kind. [`Namespace::run`] runs programs such as curl.
//! [`Network::add_ipv6`] adds a subscriber with IPv6 alone, for which [`Resolver`] is a DNS64.
//! [`Network::add_tunnels`] adds customers of DS-Lite with a gateway of their own. [`PairNetwork`]
//! has two gateways that share external addresses.
//!
//! All names begin with the network's prefix, which contains the process id, and everything is
//! removed when the [`Network`] is dropped. [`abandon`] is for ends of the process that drop
//! nothing, and [`remove_leftovers`] for killed processes. Needs root. Every wait is bounded.
//!
//! ```no_run
//! use natgate_testnet::{Gateway, Network, config};
//! use std::path::Path;
//!
//! let network = Network::build("example")?;
//! let gateway = Gateway::start(&network, Path::new("target/release/natgate"), &config(""))?;
//! let ping = network.node("sub1").run(10, "ping", &["-c1", "198.51.100.10"])?;
//! assert!(ping.status.success(), "{}", gateway.log());
//! gateway.stop()?;
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

mod gateway;
mod ipv6;
mod linux;
mod machine;
mod namespace;
mod network;
mod pair;
mod servers;
pub mod traffic;
mod tunnels;
mod turn;

pub use gateway::{Gateway, config, config_with_pool};
pub use ipv6::{
    Autoconfiguration, GATEWAY_INSIDE6, GATEWAY_OUTSIDE6, NAME, PREFIX64, RESOLVER, ROUTER6,
    Resolver, config_with_ipv6, kernel_has_ipv6,
};
pub use linux::{LinuxGuest, LinuxMachine};
pub use machine::{CARD_INSIDE, Guest, Machine, VIRTIO};
pub use namespace::{Namespace, abandon, remove_leftovers};
pub use network::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, Network, POOL, ROUTER, SERVER1, SERVER2, SUBSCRIBER1,
    SUBSCRIBER2,
};
pub use pair::{
    PAIR_SERVER, PAIR_SUBSCRIBER, PAIR_SUBSCRIBER6, PAIR_SUBSCRIBERS, PairNetwork, PairNode,
    PairSide,
};
pub use servers::{REFLECTOR_PORT, Servers};
pub use tunnels::{AFTR, AFTR_EXTERNAL, AFTR_ROUTER, B4S, IN_TUNNELS, INNER, config_of_aftr};
pub use turn::{TestNetwork, Turn};

use std::io;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Signal, geteuid, getrlimit, kill_process, setrlimit};

/// Raises the limit of open files for thousands of sockets.
///
/// # Errors
/// The system's error if even the hard limit is refused.
pub fn raise_open_files() -> io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    Ok(setrlimit(Resource::Nofile, limit)?)
}

/// Returns true if this process may create network namespaces.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Asks a child process to end, by SIGTERM.
///
/// # Errors
/// The system's error if the child has ended and been waited for.
pub fn terminate(child: &Child) -> io::Result<()> {
    Ok(kill_process(Pid::from_child(child), Signal::TERM)?)
}

/// Waits until a program in the namespace listens on a TCP port.
///
/// # Errors
/// If no program listens within the time.
pub fn wait_for_listener(node: &Namespace, port: u16, limit: Duration) -> io::Result<()> {
    const LISTEN: &str = "0A";
    let end = format!(":{port:04X}");
    let listens = |table: &str| {
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().is_some_and(|local| local.ends_with(&end));
            local && words.nth(1) == Some(LISTEN)
        })
    };
    wait_for(&format!("a listener on port {port}"), limit, || {
        node.enter(|| {
            let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
            // Without IPv6 there is no second table.
            let tables = tables.map(|path| std::fs::read_to_string(path).unwrap_or_default());
            tables.iter().any(|table| listens(table)).then_some(())
        })
    })
}

/// Calls `attempt` every 20 ms until it returns a value or the time has passed.
///
/// # Errors
/// The error of `attempt`, or `TimedOut` with `what` in the message.
pub fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> io::Result<Option<T>>,
) -> io::Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        if Instant::now() >= end {
            let message = format!("{what}: nothing within {limit:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
