//! The NAT in P4 in place of natgate: `natgate p4 run` between the subscribers and the router.

use super::PROGRAM;
use natgate_testnet::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, POOL, ROUTER, SERVER1, SERVER2, SUBSCRIBER1, SUBSCRIBER2,
    TestNetwork, terminate, traffic, wait_for,
};
use std::fs;
use std::io;
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
    fn start(network: &TestNetwork, [inside, outside]: [&str; 2], options: &[&str]) -> Self {
        let entries = entries(network);
        let mut arguments = vec!["p4", "run", NAT, "--inside", inside, "--outside", outside];
        arguments.extend(options);
        arguments.extend(entries.iter().flat_map(|entry| ["--entry", entry]));
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
