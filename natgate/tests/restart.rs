//! Restarts between real kernels. Remote hosts still send to a subscriber's external port when the
//! gateway comes back. So no other subscriber gets that port until the hold-down is over (RFC 6888
//! REQ-8).
//!
//! The network is that of the demonstration (`natgate-testnet`), and the pool has four ports of one
//! address. Subscribers take three, the gateway restarts, and one is free. Needs root and the
//! programs that `make test` installs, and fails without them.

use natgate_control::config::load;
use natgate_gateway::SavedPorts;
use natgate_testnet::{
    Gateway, Network, REFLECTOR_PORT, SERVER1, TestNetwork, config_with_pool, traffic, wait_for,
};
use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngback";
const POOL: &str = "addresses = [\"203.0.113.1\"]\nports = \"5000-5003\"";
const HOLD_DOWN: Duration = Duration::from_secs(8);
/// Ports become free at a tick of the clock, an eighth of a second later at most.
const A_TICK: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_secs(10);

/// The subscribers, and the sockets that keep their ports busy.
struct Clients<'a> {
    network: &'a Network,
    sockets: Vec<UdpSocket>,
    streams: Vec<TcpStream>,
}

impl Clients<'_> {
    /// External port of a new socket, if it gets one.
    fn udp_port(&mut self, node: &str) -> Option<u16> {
        let socket = traffic::udp_socket(self.network.node(node)).unwrap();
        let seen = traffic::ask_udp_once(&socket, SERVER1, b"where am I").ok()?;
        self.sockets.push(socket);
        Some(seen.port())
    }

    /// External port of a new connection, if it gets one.
    fn tcp_port(&mut self, node: &str) -> Option<u16> {
        let anywhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        let limit = Duration::from_millis(1500);
        let reflector = SocketAddrV4::new(SERVER1, REFLECTOR_PORT);
        let stream =
            traffic::connect_from(self.network.node(node), anywhere, reflector, limit).ok()?;
        let seen = traffic::read_endpoint(&stream).unwrap();
        self.streams.push(stream);
        Some(seen.port())
    }
}

/// Takes three ports of each protocol, restarts the gateway, and takes the free ports.
fn come_back_after(stop: impl Fn(Gateway)) {
    let network = TestNetwork::with_servers(TAG, 4);
    let file = network.file("ports");
    let more = format!(
        "[nat]\nport_parity = false\n[timeouts]\nhold_down = \"{}s\"\n\
         [state]\nfile = {:?}\ninterval = \"100ms\"\n",
        HOLD_DOWN.as_secs(),
        file.display().to_string()
    );
    let config = config_with_pool(POOL, &more);
    let start = || network.start(PROGRAM, &config);
    let mut clients = Clients { network: &network, sockets: Vec::new(), streams: Vec::new() };

    let gateway = start();
    let udp: BTreeSet<u16> = (0..3).map(|_| clients.udp_port("sub1").unwrap()).collect();
    let tcp: BTreeSet<u16> = (0..3).map(|_| clients.tcp_port("sub1").unwrap()).collect();
    assert_eq!((udp.len(), tcp.len()), (3, 3));
    wait_for("the ports in the file", PATIENCE, || Ok((saved(&network) == 6).then_some(())))
        .unwrap();
    stop(gateway);

    let gateway = start();
    let back = Instant::now();
    let said = "6 ports that were in use before are held for 8s";
    assert!(gateway.log().contains(said), "{}", gateway.log());
    let left = |used: &BTreeSet<u16>| (5000..=5003).find(|port| !used.contains(port));
    assert_eq!(clients.udp_port("sub2"), left(&udp));
    assert_eq!(clients.tcp_port("sub2"), left(&tcp));
    assert_eq!((clients.udp_port("sub2"), clients.tcp_port("sub2")), (None, None));
    assert!(back.elapsed() < HOLD_DOWN, "the machine is too slow to say anything");

    std::thread::sleep((HOLD_DOWN + A_TICK).saturating_sub(back.elapsed()));
    assert!(clients.udp_port("sub2").is_some_and(|port| udp.contains(&port)));
    assert!(clients.tcp_port("sub2").is_some_and(|port| tcp.contains(&port)));
}

/// Number of ports in the state file.
fn saved(network: &Network) -> u64 {
    let copy = network.file("copy");
    if fs::copy(network.file("ports"), &copy).is_err() {
        return 0;
    }
    let mut settings = load(&network.file("natgate.toml")).unwrap();
    if let Some(state) = &mut settings.state {
        state.file = copy;
    }
    SavedPorts::open(&settings).unwrap().unwrap().ports()
}

//= test rfc6888#REQ-8-restart
#[test]
fn ports_in_use_before_a_crash_and_before_a_stop_are_held() {
    // Dropping the gateway kills it.
    come_back_after(drop);
    come_back_after(|gateway| assert!(gateway.stop().unwrap().success()));
}
