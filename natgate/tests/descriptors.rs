//! A gateway with few descriptors. Many idle connections occupy its page and metrics.
//!
//! The network is that of the demonstration (`natgate-testnet`). Needs root, prlimit, curl and
//! ping, and fails without them.

use natgate_testnet::{Gateway, Network, SERVER1, TestNetwork, config, wait_for};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "bfiles";
const LIMIT: Duration = Duration::from_secs(60);

/// Ports of the metrics and of the page.
const PORTS: [u16; 2] = [9464, 9465];
/// Idle connections to each port.
const CROWD: usize = 1200;
/// Duration of the idle connections. Devices are checked once a second, and every check must
/// succeed.
const SIEGE: Duration = Duration::from_secs(6);

/// A script that runs natgate with at most 1,024 descriptors.
fn limited(network: &Network) -> PathBuf {
    let script = network.file("limited");
    let text = format!("#!/bin/sh\nexec prlimit --nofile=1024:1024 {PROGRAM} \"$@\"\n");
    fs::write(&script, text).expect("the script is written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it may be run");
    script
}

/// Opens the idle connections; a refused one counts as opened.
fn crowd(network: &Network) -> Vec<TcpStream> {
    let open = || {
        let addresses = PORTS.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let each = addresses.into_iter().flat_map(|address| [address; CROWD]);
        each.filter_map(|address| {
            TcpStream::connect_timeout(&address, Duration::from_millis(200)).ok()
        })
        .collect()
    };
    network.node("nat").enter(open).expect("the namespace is there")
}

fn ping(network: &Network) -> io::Result<()> {
    let arguments = ["-c", "3", "-i", "0.2", "-w", "5", &SERVER1.to_string()];
    network.node("sub1").run(8, "ping", &arguments).map(drop)
}

fn counters(network: &Network, socket: &Path) -> io::Result<()> {
    let socket = socket.to_str().expect("a path of ours is text");
    let arguments = ["show", "counters", "--json", "--socket", socket];
    network.node("nat").run(20, PROGRAM, &arguments).map(drop)
}

fn metrics(network: &Network) -> io::Result<String> {
    let page = format!("http://127.0.0.1:{}/metrics", PORTS[0]);
    let output = network.node("nat").run(20, "curl", &["-sS", "--max-time", "10", &page])?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn idle_connections_take_no_descriptor_that_packets_or_commands_need() {
    let network = TestNetwork::new(TAG);
    network.node("nat").ip_batch("link set lo up\n").expect("the crowd comes by the loopback");
    let socket = network.file("control.sock");
    let more = format!("[control]\nsocket = \"{}\"\n", socket.display());
    let gateway = Gateway::start(&network, &limited(&network), &config(&more)).expect("natgate");
    ping(&network).expect("answers come through");

    let began = Instant::now();
    let mut connections = crowd(&network);
    while began.elapsed() < SIEGE {
        ping(&network).unwrap_or_else(|error| panic!("{error}: {}", gateway.log()));
        counters(&network, &socket).unwrap_or_else(|error| panic!("{error}: {}", gateway.log()));
        connections.extend(crowd(&network));
        // The gateway still holds the latest connections.
        connections.drain(..connections.len().saturating_sub(PORTS.len() * CROWD));
    }
    let log = gateway.log();
    for trouble in ["is gone", "is down", "cannot be"] {
        assert!(!log.contains(trouble), "{log}");
    }

    drop(connections);
    let page = wait_for("metrics after the crowd has gone", LIMIT, || {
        Ok(metrics(&network).ok().filter(|page| page.contains("natgate_mappings ")))
    });
    let page = page.expect("metrics come again");
    for listener in ["page", "metrics"] {
        let name = format!("natgate_connections_refused_total{{listener=\"{listener}\"}} ");
        let refused = page.lines().find_map(|line| line.strip_prefix(&*name)?.parse::<f64>().ok());
        assert!(refused.is_some_and(|count| count > 0.0), "no {name} in\n{page}");
    }
    ping(&network).expect("answers still come through");
    assert!(gateway.stop().expect("it stops").success());
}
