//! The whole program among what is around it: the kernel of its machine with addresses and routes
//! of its own, senders that are too fast, cables that are pulled, devices that go.
//!
//! The network is that of the demonstration. Needs root and the programs that `make test` installs,
//! and fails without. One test runs at a time: they share two cores with the gateway.

mod daemon;
mod insight;
mod management;
mod overload;
mod p4;
mod recovery;
mod routes;
mod soak;
mod tester;
mod top;

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use natgate_testnet::{
    Gateway, Network, Servers, config, is_root, raise_open_files, remove_leftovers, traffic,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "nglive";

static TURN: Mutex<()> = Mutex::new(());
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A network without a gateway; what is first here goes first.
struct Scene {
    _servers: Servers,
    network: Network,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    fn new() -> Self {
        let turn = turn();
        let network = Network::build(&name()).unwrap();
        let servers = Servers::start(&network, Arc::from(&b"a page"[..])).unwrap();
        Self { _servers: servers, network, _turn: turn }
    }

    /// Starts the gateway with this back end on both sides and more configuration.
    fn start(&self, backend: &str, more: &str) -> Gateway {
        let config = config(more).replace("af-packet", backend);
        Gateway::start(&self.network, Path::new(PROGRAM), &config).unwrap()
    }

    fn run(&self, node: &str, program: &str, arguments: &[&str]) -> String {
        let output = self.network.node(node).run(20, program, arguments).unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn ip(&self, node: &str, arguments: &str) -> String {
        self.run(node, "ip", &arguments.split(' ').collect::<Vec<_>>())
    }

    fn udp_socket(&self, node: &str) -> UdpSocket {
        traffic::udp_socket(self.network.node(node)).unwrap()
    }
}

/// One test at a time, as root; one that failed does not keep the others from running.
fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(is_root(), "network namespaces need root: run the tests as root");
    remove_leftovers(TAG);
    raise_open_files().unwrap();
    turn
}

/// A network's name.
fn name() -> String {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{TAG}{}-{number}", std::process::id())
}
