//! Networks of tests: one test of a program at a time, and common helpers of tests.
//!
//! Tests with networks measure time and share the machine's processors with the gateway. A [`Turn`]
//! lets one of them run while the others wait. A [`TestNetwork`] is the demonstration's network
//! together with its turn. Failures are panics, because only tests use both.

use std::net::{Ipv4Addr, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::namespace::remove_leftovers;
use crate::network::{Network, SERVER1};
use crate::{Gateway, Servers, is_root, raise_open_files, traffic};

/// Longest run of a program in a node, seconds.
const LIMIT: u32 = 20;

static LOCK: Mutex<()> = Mutex::new(());
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// Right of one test to have networks; the next test of the process waits until it is dropped.
#[derive(Debug)]
pub struct Turn {
    tag: &'static str,
    _lock: MutexGuard<'static, ()>,
}

impl Turn {
    /// Waits for the earlier tests. Removes the remains of earlier processes under this tag.
    ///
    /// # Panics
    /// Without root.
    pub fn take(tag: &'static str) -> Self {
        // A failed test does not prevent the others from running.
        let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(is_root(), "network namespaces need root: run the tests as root");
        remove_leftovers(tag);
        raise_open_files().expect("the limit of open files can be raised to the hard one");
        Self { tag, _lock: lock }
    }

    /// A name that no other network has, for [`Network::empty`].
    pub fn name(&self) -> String {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        format!("{}{}-{number}", self.tag, std::process::id())
    }

    /// Creates the demonstration's network.
    ///
    /// # Panics
    /// If the network cannot be created.
    pub fn network(&self) -> Network {
        Network::build(&self.name()).expect("the network can be made")
    }
}

/// The demonstration's network for one test, without a gateway. Drop a gateway before its network.
#[derive(Debug)]
pub struct TestNetwork {
    // The fields are dropped in this order.
    _servers: Option<Servers>,
    network: Network,
    body: Arc<[u8]>,
    _turn: Turn,
}

impl TestNetwork {
    /// Creates a network without servers.
    ///
    /// # Panics
    /// Without root, or if the network cannot be created.
    pub fn new(tag: &'static str) -> Self {
        let turn = Turn::take(tag);
        Self { _servers: None, network: turn.network(), body: Arc::default(), _turn: turn }
    }

    /// Creates a network with servers; the web server's answer has `body_len` bytes.
    ///
    /// # Panics
    /// Like [`Self::new`].
    pub fn with_servers(tag: &'static str, body_len: u32) -> Self {
        let body = (0..body_len).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8);
        Self::with_body(tag, body.collect())
    }

    /// Creates a network with servers. The first server answers HTTP requests with this body.
    ///
    /// # Panics
    /// Like [`Self::new`].
    pub fn with_body(tag: &'static str, body: Arc<[u8]>) -> Self {
        let network = Self::new(tag);
        let servers = Servers::start(&network, Arc::clone(&body)).expect("the servers start");
        Self { _servers: Some(servers), body, ..network }
    }

    /// The web server's answer.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Starts a gateway; see [`Gateway::start`].
    ///
    /// # Panics
    /// With the gateway's own messages if it does not run.
    pub fn start(&self, program: &str, config: &str) -> Gateway {
        Gateway::start(&self.network, Path::new(program), config)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    fn output(&self, node: &str, program: &str, arguments: &[&str]) -> Output {
        let output = self.network.node(node).run(LIMIT, program, arguments);
        output.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a program in a node to its end and returns its output.
    ///
    /// # Panics
    /// If the program fails, or takes longer than 20 seconds.
    pub fn run(&self, node: &str, program: &str, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.output(node, program, arguments).stdout).into_owned()
    }

    /// Runs `ip` in a node; single spaces separate the arguments.
    ///
    /// # Panics
    /// Like [`Self::run`].
    pub fn ip(&self, node: &str, arguments: &str) -> String {
        self.run(node, "ip", &arguments.split(' ').collect::<Vec<_>>())
    }

    /// Sends `count` echo requests from a node; returns the output of `ping`.
    ///
    /// # Panics
    /// If any request gets no answer.
    pub fn ping(&self, node: &str, address: Ipv4Addr, count: u32) -> String {
        let (count, address) = (count.to_string(), address.to_string());
        let said = self.run(node, "ping", &["-n", "-c", &count, "-i", "0.1", "-W", "2", &address]);
        assert!(said.contains(&format!(" {count} received, ")), "{node}: {said}");
        said
    }

    /// Downloads from the web server and compares the body.
    ///
    /// # Panics
    /// If the download fails or differs.
    pub fn download(&self, node: &str) {
        let url = format!("http://{SERVER1}/");
        let arguments = ["--silent", "--show-error", "--fail", &url];
        let body = self.output(node, "curl", &arguments).stdout;
        assert!(body == *self.body, "{} bytes came that differ", body.len());
    }

    /// A datagram socket of a node.
    ///
    /// # Panics
    /// If no socket can be created.
    pub fn udp_socket(&self, node: &str) -> UdpSocket {
        traffic::udp_socket(self.network.node(node)).expect("a datagram socket")
    }
}

impl Deref for TestNetwork {
    type Target = Network;

    fn deref(&self) -> &Network {
        &self.network
    }
}

impl DerefMut for TestNetwork {
    fn deref_mut(&mut self) -> &mut Network {
        &mut self.network
    }
}
