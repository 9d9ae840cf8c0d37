//! The NAT in P4 in place of natgate: `natgate p4 run` between the subscribers and the router.

use super::PROGRAM;
use natgate_testnet::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, POOL, ROUTER, SERVER1, SERVER2, SUBSCRIBER1, SUBSCRIBER2,
    TestNetwork, terminate, traffic, wait_for,
};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

const NAT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/nat.p4");
const DEVICES: [&str; 2] = ["inside", "outside"];
const PATIENCE: Duration = Duration::from_secs(20);

/// The running program; killed when dropped.
struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts the NAT with its entries.
    fn start(network: &TestNetwork, devices: [&str; 2], options: &[&str]) -> Self {
        let entries = entries(network);
        let mut options = options.to_vec();
        options.extend(entries.iter().flat_map(|entry| ["--entry", entry]));
        Self::start_program(network, NAT, devices, &options)
    }

    fn start_program(
        network: &TestNetwork,
        program: &str,
        [inside, outside]: [&str; 2],
        options: &[&str],
    ) -> Self {
        let mut arguments = vec!["p4", "run", program, "--inside", inside, "--outside", outside];
        arguments.extend(options);
        let log = network.file("p4.log");
        let child = network.node("nat").start(Path::new(PROGRAM), &arguments, &log).unwrap();
        let mut running = Self { child, log };
        wait_for("the program's start", PATIENCE, || {
            if let Some(status) = running.child.try_wait()? {
                return Err(io::Error::other(format!("it ended with {status}: {}", running.log())));
            }
            Ok(running.log().contains("natgate: running ").then_some(()))
        })
        .unwrap();
        running
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends the program; returns its output.
    fn stop(mut self) -> String {
        terminate(&self.child).unwrap();
        let status = wait_for("the program's end", PATIENCE, || self.child.try_wait()).unwrap();
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail only if the program has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Table entries of a controller.
fn entries(network: &TestNetwork) -> Vec<String> {
    let mac = |node, device| {
        let path = format!("/sys/class/net/{device}/address");
        network.run(node, "cat", &[&path]).trim().to_owned()
    };
    let (inside, outside) = (mac("nat", "inside"), mac("nat", "outside"));
    let external = POOL[0];
    let mut entries = vec![
        format!("interfaces 1 inside {inside}"),
        format!("interfaces 2 outside {outside}"),
        format!("addresses 1,{GATEWAY_INSIDE} answer {inside}"),
        format!("addresses 2,{GATEWAY_OUTSIDE} answer {outside}"),
        "subscribers 10.0.0.0/8 subscriber 7,0".to_owned(),
        format!("pool 0 external_address {external},1024,65535"),
        "routes 10.0.0.0/24 on_link 1".to_owned(),
        format!("routes 0.0.0.0/0 via {ROUTER},2"),
        format!("next_hops 2,{ROUTER} neighbor {outside},{}", mac("router", "nat")),
    ];
    for (node, address) in [("sub1", SUBSCRIBER1), ("sub2", SUBSCRIBER2)] {
        let own = mac(node, "eth0");
        entries.push(format!("next_hops 1,{address} neighbor {inside},{own}"));
    }
    entries
}

/// Ping, UDP and HTTP like in the demonstration.
fn passes(devices: [&str; 2], options: &[&str]) {
    let network = super::network();
    let running = Running::start(&network, devices, options);
    let pinged = network.run(
        "sub1",
        "ping",
        &["-n", "-c", "3", "-i", "0.2", "-W", "2", &SERVER1.to_string()],
    );
    assert!(pinged.contains(" 3 received, "), "{pinged}");
    let socket = network.udp_socket("sub1");
    let seen = [SERVER1, SERVER2].map(|server| traffic::ask_udp(&socket, server).unwrap());
    assert_eq!(seen[0], seen[1], "one mapping towards both");
    assert_eq!(*seen[0].ip(), POOL[0]);
    for node in ["sub1", "sub2"] {
        let url = format!("http://{SERVER1}/");
        let page = network.run(node, "curl", &["--silent", "--show-error", "--fail", &url]);
        assert_eq!(page, "a page", "{node}");
    }
    let said = running.stop();
    assert!(said.contains("natgate: stopped; ") && !said.contains(" 0 sent"), "{said}");
}

/// UDP sockets of both subscribers.
fn sockets(network: &TestNetwork) -> Vec<UdpSocket> {
    let nodes = ["sub1", "sub2"].into_iter();
    nodes.flat_map(|node| (0..64).map(move |_| network.udp_socket(node))).collect()
}

/// Many flows: each subscriber's socket gets answers, has one mapping of its own, and hears a
/// remote endpoint that it has not asked. Connections echo.
fn many_flows(network: &TestNetwork) {
    let sockets = sockets(network);
    let ask = |socket, server| traffic::ask_udp(socket, server).unwrap();
    let external: Vec<_> = sockets.iter().map(|socket| ask(socket, SERVER1)).collect();
    assert_eq!(external.iter().collect::<BTreeSet<_>>().len(), sockets.len(), "{external:?}");
    for (socket, external) in sockets.iter().zip(&external) {
        assert_eq!(ask(socket, SERVER2), *external);
    }
    for (number, (socket, external)) in sockets.iter().zip(&external).enumerate() {
        let caller = network.udp_socket("server2");
        for socket in [&caller, socket] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let (text, mut buffer) = (number.to_string(), [0; 64]);
        caller.send_to(text.as_bytes(), external).unwrap();
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], text.as_bytes(), "from {from}");
        assert_eq!(from.ip(), SERVER2);
        // The answer leaves from the same endpoint.
        socket.send_to(b"yes", from).unwrap();
        let (len, from) = caller.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&b"yes"[..], (*external).into()));
    }
    let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
    for node in ["sub1", "sub2"].into_iter().cycle().take(16) {
        let stream = traffic::connect_reflector(network.node(node), 0, SERVER1).unwrap();
        assert_eq!(*traffic::read_endpoint(&stream).unwrap().ip(), POOL[0]);
        traffic::echo(&stream, &bytes).unwrap();
    }
}

/// Counters in a line of the output, behind `words`.
fn counts(said: &str, words: &str) -> Vec<u64> {
    let line = said.lines().find_map(|line| line.split_once(words).map(|(_, counts)| counts));
    let line = line.unwrap_or_else(|| panic!("no line with {words:?}: {said}"));
    let number = |part: &str| part.split(' ').next().and_then(|word| word.parse().ok());
    line.split(", ").map(|part| number(part).unwrap_or_else(|| panic!("{line}"))).collect()
}

/// Checks that both workers have sent, that nothing was lost, and that the sum is the whole.
fn both_have_worked(said: &str) {
    let [one, two] = [1, 2].map(|number| counts(said, &format!("natgate: worker {number}: ")));
    // The second counter is that of sent frames, the last that of lost ones.
    assert!(one[1] > 50 && two[1] > 50, "{said}");
    assert_eq!((one.last(), two.last()), (Some(&0), Some(&0)), "{said}");
    let sum: Vec<u64> = one.iter().zip(&two).map(|(one, two)| one + two).collect();
    assert_eq!(counts(said, "natgate: stopped; "), sum, "{said}");
}

/// The NAT with two workers.
fn two_workers(network: &TestNetwork, devices: [&str; 2], options: &[&str]) {
    let options = [&["--workers", "2"], options].concat();
    let running = Running::start(network, devices, &options);
    many_flows(network);
    let said = running.stop();
    let sentence = "natgate: 2 workers take turns with one program, because packets change \
                    NatMain.stations, NatMain.upload, NatMain.download, NatMain.subscriber_rate\n";
    assert!(said.contains(sentence), "{said}");
    both_have_worked(&said);
}

#[test]
fn two_workers_are_one_nat() {
    two_workers(&super::network(), DEVICES, &[]);
}

#[test]
fn two_workers_have_queues_of_af_xdp() {
    let network = super::network();
    let options = ["--backend", "af-xdp", "--workers", "2"];
    let [inside, outside] = DEVICES;
    let arguments = [&["p4", "run", NAT, "--inside", inside, "--outside", outside], &options[..]];
    let refused = network.node("nat").run(20, PROGRAM, &arguments.concat());
    let said = refused.expect_err("there is one queue").to_string();
    let sentence = "the number of receive queues of inside is 1, and that of --workers 2; make \
                    more: `ethtool -L inside combined 2` (or rx 2 tx 2)";
    assert!(said.contains(sentence), "{said}");
    for (device, peer) in [(inside, "switch"), (outside, "router")] {
        network.run("nat", "ethtool", &["-L", device, "rx", "2", "tx", "2"]);
        network.run(peer, "ethtool", &["-L", "nat", "rx", "2", "tx", "2"]);
    }
    two_workers(&network, DEVICES, &options[..2]);
}

/// A program that takes frames from one side to the other, and counts them by side.
const CABLE: &str = "\
#include <core.p4>
#include <dpdk/pna.p4>
header ethernet_t { bit<48> destination; bit<48> source; bit<16> ethertype; }
struct headers_t { ethernet_t ethernet; }
struct metadata_t { bit<16> side; }
parser CableParser(packet_in pkt, out headers_t hdr, inout metadata_t meta,
                   in pna_main_parser_input_metadata_t istd) {
    state start { pkt.extract(hdr.ethernet); transition accept; }
}
control Pre(in headers_t hdr, inout metadata_t meta, in pna_pre_input_metadata_t istd,
            inout pna_pre_output_metadata_t ostd) {
    apply {}
}
control Cable(inout headers_t hdr, inout metadata_t meta, in pna_main_input_metadata_t istd,
              inout pna_main_output_metadata_t ostd) {
    Counter<bit<64>, bit<16>>(3, PNA_CounterType_t.PACKETS) passed;
    action to(PortId_t port, bit<16> side) { send_to_port(port); meta.side = side; }
    action nowhere() { drop_packet(); }
    table ends {
        key = { istd.input_port : exact; }
        actions = { to; @defaultonly nowhere; }
        const default_action = nowhere();
        size = 4;
    }
    apply { ends.apply(); passed.count(meta.side); }
}
control Deparser(packet_out pkt, in headers_t hdr, in metadata_t meta,
                 in pna_main_output_metadata_t ostd) {
    apply { pkt.emit(hdr.ethernet); }
}
PNA_NIC(CableParser(), Pre(), Cable(), Deparser()) main;
";

#[test]
fn workers_have_copies_of_a_program_whose_packets_leave_nothing() {
    let network = super::network();
    let file = network.file("cable.p4");
    fs::write(&file, CABLE).unwrap();
    let options = ["--workers", "2", "--entry", "ends 1 to 2,1", "--entry", "ends 2 to 1,2"];
    let file = file.to_str().unwrap();
    let running = Running::start_program(&network, file, DEVICES, &options);
    // Subscribers and the router are on one link now.
    network.ip("router", &format!("address add {GATEWAY_INSIDE}/24 dev nat"));
    for (number, socket) in sockets(&network).iter().enumerate() {
        let seen = traffic::ask_udp(socket, SERVER1).unwrap();
        let own = if number < 64 { SUBSCRIBER1 } else { SUBSCRIBER2 };
        assert_eq!((*seen.ip(), seen.port()), (own, socket.local_addr().unwrap().port()));
    }
    let said = running.stop();
    assert!(said.contains("natgate: 2 workers, each with a copy of the program\n"), "{said}");
    both_have_worked(&said);
}

#[test]
fn the_nat_in_p4_interpreted_passes_ping_udp_and_http() {
    passes(DEVICES, &["--with", "interpreter"]);
}

#[test]
fn the_nat_in_p4_as_rust_passes_ping_udp_and_http() {
    passes(DEVICES, &["--with", "rust"]);
}

#[test]
fn the_nat_in_p4_runs_on_af_xdp() {
    passes(DEVICES, &["--backend", "af-xdp"]);
}

#[cfg(feature = "dpdk")]
const PORTS: [&str; 2] = ["net_af_packet0,iface=inside", "net_af_packet1,iface=outside"];

#[cfg(feature = "dpdk")]
#[test]
fn the_nat_in_p4_runs_on_ports_of_dpdk() {
    passes(PORTS, &["--backend", "dpdk"]);
}

#[cfg(feature = "dpdk")]
#[test]
fn two_workers_have_queues_of_dpdk() {
    let network = super::network();
    let queues = PORTS.map(|port| format!("{port},qpairs=2"));
    let queues = queues.each_ref().map(String::as_str);
    for with in ["rust", "swx"] {
        two_workers(&network, queues, &["--backend", "dpdk", "--with", with]);
    }
}

#[cfg(feature = "dpdk")]
#[test]
fn the_nat_in_p4_by_swx_runs_on_ports_of_dpdk() {
    passes(PORTS, &["--backend", "dpdk", "--with", "swx"]);
}

#[test]
fn controllers_are_answered_while_it_runs() {
    let network = super::network();
    let running = Running::start(&network, DEVICES, &["--p4runtime"]);
    assert!(running.log().contains("natgate: P4Runtime at 127.0.0.1:9559\n"), "{}", running.log());
    // HTTP/2's preface is answered by settings, which are a frame of type 4.
    let greet = "exec 3<>/dev/tcp/127.0.0.1/9559; \
                 printf 'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n\\0\\0\\0\\4\\0\\0\\0\\0\\0' >&3; \
                 head -c 4 <&3 | od -An -tx1";
    let answer = network.run("nat", "bash", &["-c", greet]);
    assert!(answer.trim_end().ends_with(" 04"), "{answer}");
    running.stop();
}
