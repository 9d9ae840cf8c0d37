//! The whole program over every back end: real hosts ping, send UDP requests and download through
//! it.
//!
//! The network is that of the demonstration. Needs root and the programs that `make test` installs,
//! and fails without them. One test runs at a time, because the tests share two cores with the
//! gateway.

use std::path::Path;
use std::thread;
use std::time::Duration;

use natgate_testnet::{
    GATEWAY_INSIDE, Gateway, POOL, ROUTER, SERVER1, SERVER2, TestNetwork, config, traffic, wait_for,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngback";

fn network() -> TestNetwork {
    TestNetwork::with_servers(TAG, 2_000_000)
}

/// Pings, sends UDP requests and downloads from a node by the gateway.
fn works(network: &TestNetwork, node: &str) {
    for address in [GATEWAY_INSIDE, ROUTER, SERVER1] {
        network.ping(node, address, 3);
    }
    let large = ["-n", "-c", "2", "-i", "0.1", "-s", "4000", &SERVER1.to_string()];
    assert!(network.run(node, "ping", &large).contains(" 2 received, "), "fragments");
    let socket = network.udp_socket(node);
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();
    assert_eq!(traffic::ask_udp(&socket, SERVER2).unwrap(), external);
    assert!(POOL.contains(external.ip()), "{external}");
    network.download(node);
    let stream = traffic::connect_reflector(network.node(node), 0, SERVER2).unwrap();
    traffic::read_endpoint(&stream).unwrap();
    traffic::echo(&stream, &network.body()[..50_000]).unwrap();
}

fn with(backend: &str) -> String {
    config("").replace("af-packet", backend)
}

#[test]
fn af_xdp_carries_everything() {
    let network = network();
    let gateway = network.start(PROGRAM, &with("af-xdp"));
    let log = gateway.log();
    for side in ["inside", "outside"] {
        let said =
            format!("natgate: {side} device {side}: AF_XDP in native mode, copying, 1 queue");
        assert!(log.contains(&said), "{log}");
    }
    assert!(log.contains("note: hosts of this machine that send to inside must finish"), "{log}");
    works(&network, "sub1");
    works(&network, "sub2");
    let meeting = traffic::hairpin_udp(&network).unwrap();
    assert_eq!(meeting.seen, meeting.caller);
    traffic::hairpin_tcp(&network, 5000).unwrap();
    let status = gateway.status().unwrap();
    for side in ["inside", "outside"] {
        let device = &status["devices"][side];
        assert!(device["received"].as_u64() > Some(500), "{device}");
        for lost in ["receive_overrun", "receive_oversize", "transmit_refused"] {
            assert_eq!(device[lost], 0, "{device}");
        }
    }
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    // A second start at once: nothing is left of the first.
    let _gateway = network.start(PROGRAM, &with("af-xdp"));
    works(&network, "sub1");
}

#[test]
fn packet_sockets_for_rate_carry_everything() {
    let network = network();
    let rate = config("").replace("\"af-packet\"", "\"af-packet\"\nmode = \"rate\"\nring = 512");
    let gateway = network.start(PROGRAM, &rate);
    works(&network, "sub1");
    let meeting = traffic::hairpin_udp(&network).unwrap();
    assert_eq!(meeting.seen, meeting.caller);
    let status = gateway.status().unwrap();
    for side in ["inside", "outside"] {
        let device = &status["devices"][side];
        assert!(device["received"].as_u64() > Some(100), "{device}");
        for lost in ["receive_oversize", "receive_unfinished", "transmit_full", "transmit_refused"]
        {
            assert_eq!(device[lost], 0, "{device}");
        }
    }
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn back_ends_can_differ_by_side() {
    let network = network();
    let mixed = config("").replacen("af-packet", "af-xdp", 1);
    let _gateway = network.start(PROGRAM, &mixed);
    works(&network, "sub1");
}

#[test]
fn what_passes_is_recorded_and_harmed_frames_are_sent_again() {
    let network = network();
    let file = network.file("tap.pcapng");
    let options = ["--tap", file.to_str().unwrap(), "--inject", "loss=0.02,reorder=0.02,seed=3"];
    let config = with("af-xdp");
    let gateway = Gateway::start_with(&network, "nat", Path::new(PROGRAM), &config, &options);
    let gateway = gateway.unwrap();
    let url = format!("http://{SERVER1}/");
    let arguments = ["--silent", "--show-error", "--fail", "--retry", "3", &url];
    let output = network.node("sub1").run(20, "curl", &arguments).unwrap();
    assert!(output.stdout == *network.body(), "TCP makes good what is lost");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    let tshark = |filter: &str| {
        let arguments = ["-n", "-r", file.to_str().unwrap(), "-Y", filter];
        let said = network.run("nat", "tshark", &arguments);
        said.lines().count()
    };
    // Inside is interface 0; the direction is in the packets' flags.
    let (asked, sent_on) = (
        "frame.interface_id == 0 && frame.packet_flags_direction == 1 && tcp.dstport == 80",
        "frame.interface_id == 1 && frame.packet_flags_direction == 2 && tcp.dstport == 80",
    );
    assert!(tshark(asked) > 20);
    assert_eq!(tshark(asked), tshark(sent_on), "nothing is lost between the two devices");
    assert!(tshark("tcp.analysis.retransmission || tcp.analysis.fast_retransmission") > 0);
}

#[test]
fn af_xdp_survives_links_that_flap_and_devices_that_go() {
    let network = network();
    let gateway = network.start(PROGRAM, &with("af-xdp"));
    let socket = network.udp_socket("sub1");
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();
    let recovers = |what: &str| {
        let seen = wait_for(what, Duration::from_secs(10), || {
            Ok(traffic::ask_udp_once(&socket, SERVER1, b"again").ok())
        });
        assert_eq!(seen.unwrap(), external, "the mapping was kept");
    };
    for device in ["outside", "inside"] {
        network.ip("nat", &format!("link set {device} down"));
        thread::sleep(Duration::from_millis(300));
        network.ip("nat", &format!("link set {device} up"));
        recovers("an answer after the flapping");
    }
    network.ip("nat", "link delete outside");
    wait_for("its noticing", Duration::from_secs(10), || {
        Ok(gateway.log().contains("outside device outside is gone").then_some(()))
    })
    .unwrap();
    network.cable(["nat", "outside", "router", "nat"]).unwrap();
    network.ip("router", &format!("address add {ROUTER}/24 dev nat"));
    network.ip("router", "route add 203.0.113.0/24 via 192.0.2.2");
    recovers("an answer after the device came back");
    works(&network, "sub2");
}

#[test]
fn a_tun_device_takes_the_kernels_own_traffic_through_the_gateway() {
    let network = network();
    // The subscriber is on the gateway's own machine, as in a container.
    let text = config("").replacen("\"inside\"", "\"subscriber\"", 1);
    let text = text.replacen("af-packet", "tun", 1);
    let gateway = Gateway::start_in(&network, "nat", Path::new(PROGRAM), &text).unwrap();
    let log = gateway.log();
    assert!(log.contains("made TUN device subscriber; give the kernel its address"), "{log}");
    network.ip("nat", "address add 10.0.0.77/24 dev subscriber");
    network.ip("nat", "link set subscriber up");
    network.ip("nat", &format!("route add default via {GATEWAY_INSIDE}"));
    wait_for("its noticing", Duration::from_secs(10), || {
        Ok(gateway.log().contains("inside device subscriber is up").then_some(()))
    })
    .unwrap();
    works(&network, "nat");
    let status = gateway.status().unwrap();
    let neighbor = &status["neighbors"]["inside"][0];
    assert_eq!(neighbor["mac"], "02:00:00:00:00:02", "{neighbor}");
    assert_eq!(status["devices"]["inside"]["transmit_refused"], 0);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}
