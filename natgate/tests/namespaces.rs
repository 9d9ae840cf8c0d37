//! The whole program between real kernels: network namespaces with curl, ping, traceroute and a
//! thousand sockets at their ends, and natgate on packet sockets in the middle.
//!
//! The network is that of the demonstration (`natgate-testnet`). The tests need root and the
//! programs that `make test` installs, and fail without them. One test runs at a time, because the
//! tests measure time and share two cores with the gateway.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use natgate_testnet::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, Gateway, Network, POOL, ROUTER, SERVER1, SERVER2, TestNetwork,
    config, terminate, traffic, wait_for,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngtest";

/// Creates a network with all servers and a running gateway. `more` is additional configuration.
/// The gateway is dropped before its network.
fn running(more: &str) -> (TestNetwork, Gateway) {
    let network = TestNetwork::with_servers(TAG, 4_000_000);
    let gateway = network.start(PROGRAM, &config(more));
    (network, gateway)
}

#[test]
fn pings_are_answered_by_gateway_and_servers() {
    let (network, _gateway) = running("");
    for (node, address) in [
        ("sub1", GATEWAY_INSIDE),
        ("server1", GATEWAY_OUTSIDE),
        ("router", GATEWAY_OUTSIDE),
        ("sub1", SERVER1),
        ("sub2", SERVER2),
    ] {
        network.ping(node, address, 3);
    }
}

#[test]
fn web_downloads_arrive_unchanged() {
    let (network, _gateway) = running("");
    network.download("sub1");
    network.download("sub2");
}

#[test]
fn traceroute_shows_every_hop() {
    let (network, _gateway) = running("");
    let arguments = ["-n", "-q", "1", "-w", "2", "-m", "6", &SERVER1.to_string()];
    let said = network.run("sub1", "traceroute", &arguments);
    let hops: Vec<_> = said.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)).collect();
    assert_eq!(hops, [GATEWAY_INSIDE, ROUTER, SERVER1].map(|hop| hop.to_string()), "{said}");
}

#[test]
fn one_socket_is_one_endpoint_and_open_to_strangers() {
    let (network, _gateway) = running("");
    let socket = network.udp_socket("sub1");
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();
    assert_eq!(traffic::ask_udp(&socket, SERVER2).unwrap(), external);
    assert!(POOL.contains(external.ip()), "{external}");
    let stranger = network.udp_socket("router");
    assert_eq!(reaches(&stranger, external, &socket), Some(stranger_endpoint(&stranger, ROUTER)));
}

#[test]
fn address_dependent_filtering_keeps_strangers_out() {
    let (network, _gateway) = running("[nat]\nfiltering = \"address-dependent\"\n");
    let socket = network.udp_socket("sub1");
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();
    assert_eq!(reaches(&network.udp_socket("server2"), external, &socket), None);
    let known = network.udp_socket("server1");
    assert_eq!(reaches(&known, external, &socket), Some(stranger_endpoint(&known, SERVER1)));
}

/// Sends from `from` to the external endpoint of `to`; returns the sender that `to` sees, or `None`
/// if no packet arrives.
fn reaches(from: &UdpSocket, external: SocketAddrV4, to: &UdpSocket) -> Option<SocketAddrV4> {
    from.send_to(b"hello", external).unwrap();
    let mut buffer = [0; 16];
    match to.recv_from(&mut buffer) {
        Ok((length, seen)) => {
            assert_eq!(&buffer[..length], b"hello");
            Some(seen.to_string().parse().unwrap())
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        Err(error) => panic!("{error}"),
    }
}

fn stranger_endpoint(socket: &UdpSocket, address: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(address, socket.local_addr().unwrap().port())
}

#[test]
fn subscribers_meet_by_their_external_endpoints() {
    let (network, _gateway) = running("");
    for meeting in
        [traffic::hairpin_udp(&network).unwrap(), traffic::hairpin_tcp(&network, 5000).unwrap()]
    {
        assert_eq!(meeting.seen, meeting.caller);
        assert!(POOL.contains(meeting.called.ip()) && POOL.contains(meeting.caller.ip()));
    }
}

#[test]
fn a_thousand_tcp_connections_at_once() {
    let (network, _gateway) = running("[limits]\nnew_mappings_per_second = 5000\n");
    let endpoints = traffic::many_connections(&network, 500).unwrap();
    let distinct: BTreeSet<_> = endpoints.iter().collect();
    assert_eq!(distinct.len(), 1000, "external endpoints must differ");
    assert!(endpoints.iter().all(|endpoint| POOL.contains(endpoint.ip())));
}

#[test]
fn an_uninvited_syn_is_refused_after_six_seconds() {
    let (network, _gateway) = running("");
    let began = Instant::now();
    let nobody = SocketAddrV4::new(POOL[0], 40_000);
    let error = traffic::connect(network.node("server1"), 0, nobody).unwrap_err();
    let took = began.elapsed();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error} after {took:?}");
    assert!((5.8..8.0).contains(&took.as_secs_f64()), "{took:?}");
}

#[test]
fn path_mtu_discovery_works_through_the_translator() {
    let (network, _gateway) = running("");
    // The server continues to announce its former segment size. Otherwise TCP would never send
    // packets that are too large.
    for (node, arguments) in [
        ("router", "link set server1 mtu 1300"),
        ("server1", "link set eth0 mtu 1300"),
        ("server1", "route change default via 198.51.100.1 advmss 1460"),
    ] {
        network.ip(node, arguments);
    }
    let arguments = ["-n", "-c", "1", "-M", "do", "-s", "1400", &SERVER1.to_string()];
    let refused = network.node("sub1").run(20, "ping", &arguments);
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("Frag needed") && said.contains("mtu = 1300"), "{said}");
    let stream = traffic::connect_reflector(network.node("sub2"), 0, SERVER1).unwrap();
    traffic::read_endpoint(&stream).unwrap();
    traffic::echo(&stream, &network.body()[..100_000]).unwrap();
}

#[test]
fn a_flapping_link_under_load_costs_no_mapping() {
    let (network, _gateway) = running("");
    let node = network.node("sub1");
    let stream = traffic::connect_reflector(node, 0, SERVER1).unwrap();
    traffic::read_endpoint(&stream).unwrap();
    let socket = network.udp_socket("sub1");
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();

    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // A link that is down gives no answer.
                if let Ok(seen) = traffic::ask_udp_once(&socket, SERVER1, b"load") {
                    assert_eq!(seen, external);
                }
            }
        });
        for device in ["outside", "inside", "outside", "inside"] {
            network.ip("nat", &format!("link set {device} down"));
            thread::sleep(Duration::from_millis(300));
            network.ip("nat", &format!("link set {device} up"));
            thread::sleep(Duration::from_millis(200));
        }
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
    });

    let seen = wait_for("an answer after the flapping", Duration::from_secs(5), || {
        Ok(traffic::ask_udp(&socket, SERVER1).ok())
    });
    assert_eq!(seen.unwrap(), external);
    traffic::echo(&stream, &network.body()[..50_000]).unwrap();
    network.download("sub2");
}

#[test]
fn sigterm_ends_the_gateway_under_load_with_exit_code_0() {
    let (network, gateway) = running("");
    let socket = network.udp_socket("sub1");
    traffic::ask_udp(&socket, SERVER1).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let load = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.send_to(b"load", (SERVER1, 9));
                thread::sleep(Duration::from_micros(100));
            }
        }
    });
    thread::sleep(Duration::from_millis(200));
    let status = gateway.stop().unwrap();
    stop.store(true, Ordering::Relaxed);
    load.join().unwrap();
    assert_eq!(status.code(), Some(0));
}

/// A capture on one device, written by dumpcap; stopped by [`Capture::stop`] or with its thread.
struct Capture {
    child: Child,
    file: PathBuf,
}

impl Capture {
    fn start(network: &Network, node: &str, device: &str) -> Self {
        let (file, log) = (network.file(&format!("{node}.pcapng")), network.file("dumpcap.log"));
        let arguments = ["-q", "-i", device, "-w", file.to_str().unwrap()];
        let child = network.node(node).start("dumpcap".as_ref(), &arguments, &log).unwrap();
        wait_for("dumpcap's start", Duration::from_secs(10), || {
            Ok(std::fs::read_to_string(&log)?.contains("File: ").then_some(()))
        })
        .unwrap();
        Self { child, file }
    }

    fn stop(mut self) -> PathBuf {
        // dumpcap writes captured packets in blocks, every 100 ms at the latest.
        thread::sleep(Duration::from_millis(500));
        terminate(&self.child).unwrap();
        wait_for("dumpcap's end", Duration::from_secs(10), || self.child.try_wait()).unwrap();
        self.file
    }
}

/// Frames that match a display filter, one line each; every checksum is verified.
fn tshark(file: &Path, filter: &str) -> Vec<String> {
    let mut command = Command::new("timeout");
    command.args(["60", "tshark", "-n", "-r"]).arg(file);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    let output = command.args(["-Y", filter]).output().unwrap();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {wrong}");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn tshark_finds_every_checksum_right_on_both_sides() {
    // The kernel of a sender writes 0xffff for a TCP checksum of zero, which is equivalent.
    const BAD: &str = "ip.checksum.status == 0 \
                       || (tcp.checksum.status == 0 && tcp.checksum != 0xffff) \
                       || udp.checksum.status == 0 || icmp.checksum.status == 0";
    let (network, _gateway) = running("");
    let outside = Capture::start(&network, "router", "nat");
    let inside = Capture::start(&network, "switch", "bridge");
    network.download("sub1");
    let large = ["-n", "-c", "2", "-i", "0.1", "-s", "8000", &SERVER1.to_string()];
    network.run("sub1", "ping", &large);
    network.run("sub2", "traceroute", &["-n", "-q", "1", "-w", "2", &SERVER2.to_string()]);
    traffic::ask_udp_once(&network.udp_socket("sub2"), SERVER2, &[0xaa; 5000]).unwrap();
    traffic::hairpin_udp(&network).unwrap();
    traffic::hairpin_tcp(&network, 5000).unwrap();

    let (outside, inside) = (outside.stop(), inside.stop());
    for file in [&outside, &inside] {
        assert_eq!(tshark(file, BAD), [""; 0], "{}", file.display());
        // tshark must have verified enough checksums.
        for (good, least) in [("tcp", 500), ("udp", 10), ("icmp", 5)] {
            let seen = tshark(file, &format!("{good}.checksum.status == 1")).len();
            assert!(seen >= least, "{}: {seen} good {good} packets", file.display());
        }
    }
    assert_eq!(tshark(&outside, "ip.addr == 10.0.0.0/8"), [""; 0], "internal addresses outside");
}
