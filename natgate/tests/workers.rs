//! Several workers in real use: threads, devices of several back ends, and their statistics.
//!
//! Needs root and the programs that `make test` installs, and fails without them. One test runs at
//! a time, because the tests share two cores with the gateway.

use std::net::{Ipv4Addr, UdpSocket};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use natgate_testnet::{
    GATEWAY_INSIDE, Gateway, Network, ROUTER, SERVER1, SERVER2, TestNetwork, config, traffic,
};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngwork";

/// Additional subscribers, enough to give each worker some.
const HOSTS: Range<u8> = 100..116;

/// Address of an additional subscriber.
fn subscriber(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

/// A network with these subscribers, without a gateway.
fn network() -> TestNetwork {
    let network = TestNetwork::with_servers(TAG, 500_000);
    for host in HOSTS {
        network.ip("sub1", &format!("address add {}/24 dev eth0", subscriber(host)));
    }
    network
}

/// A socket of an additional subscriber.
fn host_socket(network: &Network, host: u8) -> UdpSocket {
    let bind = || UdpSocket::bind((subscriber(host), 0));
    let socket = network.node("sub1").enter(bind).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    socket
}

/// Pings, sends requests and downloads from both subscribers, and connects them with each other.
/// The port is for TCP, which cannot reuse it at once.
fn works(network: &TestNetwork, port: u16) {
    for node in ["sub1", "sub2"] {
        for address in [GATEWAY_INSIDE, ROUTER, SERVER1] {
            network.ping(node, address, 3);
        }
        let large = ["-n", "-c", "2", "-i", "0.1", "-s", "4000", &SERVER1.to_string()];
        let said = network.run(node, "ping", &large);
        assert!(said.contains(" 2 received, "), "fragments: {said}");
        network.download(node);
    }
    let meeting = traffic::hairpin_udp(network).unwrap();
    assert_eq!(meeting.seen, meeting.caller);
    traffic::hairpin_tcp(network, port).unwrap();
    // Subscribers of both workers, each with each.
    let ends: Vec<_> = HOSTS
        .map(|host| {
            let socket = host_socket(network, host);
            let external = traffic::ask_udp(&socket, SERVER1).unwrap();
            assert_eq!(traffic::ask_udp(&socket, SERVER2).unwrap(), external);
            (socket, external)
        })
        .collect();
    let mut buffer = [0; 64];
    for (one, external) in &ends {
        for (other, called) in &ends {
            one.send_to(b"question", called).unwrap();
            let (len, from) = other.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..len], from), (&b"question"[..], (*external).into()));
        }
    }
}

/// A configuration with this back end, two workers, and `more`.
fn two(backend: &str, more: &str) -> String {
    config(&format!("[workers]\ncount = 2\n{more}")).replace("af-packet", backend)
}

fn sum(workers: &Value, key: &str) -> u64 {
    let workers = workers["workers"].as_array().expect("a list of workers");
    assert_eq!(workers.len(), 2, "{workers:?}");
    workers.iter().map(|worker| worker[key].as_u64().expect("a number")).sum()
}

#[test]
fn two_workers_do_what_one_does_on_every_back_end_of_the_kernel() {
    let network = network();
    for (backend, port) in [("af-packet", 5000), ("af-xdp", 5001)] {
        let gateway = network.start(PROGRAM, &two(backend, ""));
        works(&network, port);
        let status = gateway.status().unwrap();
        assert_eq!(sum(&status, "hand_over_full"), 0);
        assert!(sum(&status, "frames") > 500, "{}", status["workers"]);
        let mappings = status["mappings"].as_array().expect("a list of mappings");
        for host in HOSTS {
            let of_host = |mapping: &&Value| mapping["subscriber"] == subscriber(host).to_string();
            assert!(mappings.iter().any(|mapping| of_host(&mapping)), "{host} has a mapping");
        }
        let forwarded = &status["counters"]["packets"]["outbound"]["forwarded"];
        // The number of acknowledgements of a download depends on the load of the machine.
        assert!(forwarded.as_u64() > Some(100), "{forwarded}");
        assert_eq!(gateway.stop().unwrap().code(), Some(0));
    }
}

#[test]
fn what_workers_do_is_shown() {
    let network = network();
    let socket = network.file("control.sock");
    let socket = socket.to_str().unwrap();
    let config = two("af-packet", &format!("[control]\nsocket = \"{socket}\"\n"));
    let gateway = network.start(PROGRAM, &config);
    works(&network, 5000);
    let show = |more: &[&str]| {
        let arguments = [&["show", "workers", "--socket", socket], more].concat();
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let workers: Value = serde_json::from_str(&show(&["--json"])).unwrap();
    assert!(sum(&workers, "frames") > 200, "{workers}");
    assert!(sum(&workers, "busy_ns") > 0 && sum(&workers, "asleep_ns") > 0, "{workers}");
    assert_eq!(sum(&workers, "handed_over"), sum(&workers, "taken_over"), "{workers}");
    let table = show(&[]);
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(table.starts_with("worker   mappings   frames/s"), "{table}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn events_of_all_workers_are_in_order_of_time() {
    let network = network();
    let file = network.file("events.jsonl");
    let options = ["--events", file.to_str().unwrap()];
    let config = two("af-packet", "");
    let gateway = Gateway::start_with(&network, "nat", Path::new(PROGRAM), &config, &options);
    let gateway = gateway.unwrap();
    for _ in 0..100 {
        for host in [HOSTS.start, HOSTS.end - 1] {
            let _ = traffic::ask_udp_once(&host_socket(&network, host), SERVER1, b"hello");
        }
    }
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    let text = std::fs::read_to_string(file).unwrap();
    let times: Vec<f64> = text
        .lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).expect("an object a line");
            event["time"].as_f64().expect("a time")
        })
        .collect();
    assert!(times.len() >= 150, "{} events", times.len());
    assert!(times.is_sorted());
}

#[test]
fn ports_are_remembered_over_a_restart_with_another_number_of_workers() {
    let network = network();
    let state = network.file("ports");
    let with = |workers: usize| {
        let state = format!("[state]\nfile = {state:?}\ninterval = \"100ms\"\n");
        config(&format!("[workers]\ncount = {workers}\n{state}"))
    };
    let gateway = network.start(PROGRAM, &with(2));
    works(&network, 5000);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    let gateway = network.start(PROGRAM, &with(1));
    let log = gateway.log();
    let held = log.lines().find(|line| line.contains("ports that were in use before are held"));
    let held = held.unwrap_or_else(|| panic!("{log}"));
    let ports = held.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    assert!(ports > Some(HOSTS.len() as u64), "of both workers: {held}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn a_worker_joins_at_a_reload_and_mappings_stay() {
    let network = network();
    let socket = network.file("control.sock");
    let socket = socket.to_str().unwrap();
    let natgate = |arguments: &[&str]| {
        let arguments = [arguments, &["--socket", socket]].concat();
        let output = Command::new(PROGRAM).args(arguments).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    for (backend, port) in [("af-packet", 5000), ("af-xdp", 5001)] {
        let with = |workers: usize| {
            let more = format!("[workers]\ncount = {workers}\n[control]\nsocket = {socket:?}\n");
            config(&more).replace("af-packet", backend)
        };
        let gateway = network.start(PROGRAM, &with(1));
        let ends: Vec<_> = HOSTS
            .map(|host| {
                let socket = host_socket(&network, host);
                let external = traffic::ask_udp(&socket, SERVER1).unwrap();
                (socket, external)
            })
            .collect();
        for workers in [2, 3] {
            std::fs::write(network.file("natgate.toml"), with(workers)).unwrap();
            let (code, said) = natgate(&["reload"]);
            assert_eq!(code, Some(0), "{said} {}", gateway.log());
            assert!(said.contains("with other workers"), "{said}");
            for (socket, external) in &ends {
                assert_eq!(traffic::ask_udp(socket, SERVER2).unwrap(), *external, "it stays");
            }
        }
        // New mappings belong to all three workers.
        works(&network, port);
        let (_, said) = natgate(&["show", "workers", "--json"]);
        let shown: Value = serde_json::from_str(&said).unwrap();
        let shown = shown["workers"].as_array().expect("a list of workers");
        assert_eq!(shown.len(), 3);
        assert!(shown[1]["taken_over"].as_u64() > Some(0), "{said}");
        let status = gateway.status().unwrap();
        assert_eq!(status["workers"].as_array().map(Vec::len), Some(3));
        // No worker leaves.
        std::fs::write(network.file("natgate.toml"), with(2)).unwrap();
        let (code, said) = natgate(&["reload"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("workers.count: a reload can add workers, not remove them"),
            "{said}"
        );
        assert_eq!(gateway.stop().unwrap().code(), Some(0));
    }
}

#[test]
fn processors_that_cannot_be_had_are_refused() {
    let network = network();
    let text = config("[workers]\ncores = [0, 4000]\n");
    let refused = Gateway::start(&network, Path::new(PROGRAM), &text);
    let message = refused.expect_err("it does not start").to_string();
    let expected = "workers.cores names processor 4000, which this process may not use";
    assert!(message.contains(expected), "{message}");
}
