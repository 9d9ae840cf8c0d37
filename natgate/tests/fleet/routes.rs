//! Steering by routes: a routing daemon beside each node announces the slices by BGP, and the
//! border router's daemon learns both ways. Nobody changes the border router's routes by hand.

use super::{PATIENCE, build, endpoint_of, flows, has_first_slice, is_alive, is_of, is_whole};
use super::{PROGRAM, TAG, datagrams, seen, succeeds, wait_until};
use natgate_testnet::{PairNetwork, PairNode, PairSide, Turn, traffic, wait_for};
use std::path::Path;
use std::process::Child;

/// The first slice, whose home is `a`, and the second.
const SLICES: [&str; 2] = ["203.0.113.0/29", "203.0.113.8/29"];

/// Configuration beside a node. The kernel has the next address after the node's. The metric of an
/// announced route becomes the MED of BGP: a router prefers the least.
fn near(network: &str) -> String {
    format!(
        r#"
router id {network}.3;
protocol device {{ scan time 1; }}
protocol kernel from_natgate {{
    learn;
    scan time 1;
    ipv4 {{ import where krt_source = 78; export none; }};
}}
filter slices {{
    if source != RTS_INHERIT then reject;
    bgp_med = 0;
    if defined(krt_metric) then bgp_med = krt_metric;
    accept;
}}
protocol bgp border {{
    local {network}.3 as 65001;
    neighbor {network}.1 as 65000;
    connect delay time 1;
    connect retry time 1;
    error wait time 1, 2;
    ipv4 {{ import none; export filter slices; next hop address {network}.2; }};
}}
"#
    )
}

/// Configuration of the border router.
const FAR: &str = r#"
router id 192.0.2.1;
protocol device { scan time 1; }
protocol direct { ipv4; }
protocol kernel { scan time 1; ipv4 { import none; export where source = RTS_BGP; }; }
template bgp node {
    local as 65000;
    connect delay time 1;
    connect retry time 1;
    error wait time 1, 2;
    ipv4 { import all; export none; };
}
protocol bgp a from node { local 192.0.2.1 as 65000; neighbor 192.0.2.3 as 65001; }
protocol bgp b from node { local 192.0.3.1 as 65000; neighbor 192.0.3.3 as 65001; }
"#;

/// Daemons; they end with the test.
struct Daemons(Vec<Child>);

impl Drop for Daemons {
    fn drop(&mut self) {
        for daemon in &mut self.0 {
            // Both calls fail only if the daemon has already ended.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn start_daemons(network: &PairNetwork) -> Daemons {
    let daemon = |node: &str, text: &str| {
        let file = |end: &str| network.file(&format!("bird-{node}.{end}"));
        std::fs::write(file("conf"), text).expect("a file");
        let (conf, socket) = (file("conf"), file("ctl"));
        let [conf, socket] = [&conf, &socket].map(|path| path.to_str().expect("text"));
        let bird = Path::new("/usr/sbin/bird");
        assert!(bird.exists(), "BIRD is missing: apt-get install bird2, or run `make test`");
        let arguments = ["-f", "-c", conf, "-s", socket];
        network.node(node).start(bird, &arguments, &file("log")).expect("it starts")
    };
    Daemons(vec![
        daemon("a", &near("192.0.2")),
        daemon("b", &near("192.0.3")),
        daemon("border", FAR),
    ])
}

fn output(network: &PairNetwork, node: &str, program: &str, words: &[&str]) -> String {
    let output = network.node(node).run(5, program, words).expect("it runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The border router's best ways to the slices.
fn ways(network: &PairNetwork) -> Vec<String> {
    let said = output(network, "border", "ip", &["route", "show", "proto", "bird"]);
    let words = |line: &str| line.split(" dev ").next().unwrap_or_default().to_owned();
    said.lines().map(words).collect()
}

/// All ways to a slice that the border router knows.
fn known(network: &PairNetwork, slice: &str) -> String {
    let socket = network.file("bird-border.ctl");
    let words = ["-s", socket.to_str().expect("text"), "show", "route", slice, "all"];
    output(network, "border", "/usr/sbin/birdc", &words)
}

/// Waits until the best ways to the slices are by these nodes.
fn wait_for_ways(network: &PairNetwork, nodes: [&str; 2]) {
    let way =
        |(slice, node): (&str, &str)| format!("{slice} via {}", PairSide::Border.gateway(node));
    let expected: Vec<String> = SLICES.into_iter().zip(nodes).map(way).collect();
    let seen = wait_for("the ways", PATIENCE, || Ok((ways(network) == expected).then_some(())));
    assert!(seen.is_ok(), "{:?}, not {expected:?}: {}", ways(network), known(network, SLICES[0]));
}

/// Waits until the border router has a way to a slice by both nodes.
fn wait_for_both_ways(network: &PairNetwork, slice: &str) {
    let both = ["a", "b"].map(|node| PairSide::Border.gateway(node).to_string());
    let has_both = || both.iter().all(|way| known(network, slice).contains(&way[..]));
    let seen = wait_for("both ways", PATIENCE, || Ok(has_both().then_some(())));
    assert!(seen.is_ok(), "{}", known(network, slice));
}

fn start(network: &PairNetwork, node: &str) -> PairNode {
    let config = network.config(node, "[announce]\n");
    network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
}

#[test]
fn a_router_that_learns_both_ways_finds_the_partner_after_a_kill() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    for (node, address) in [("a", "192.0.2.3/24"), ("b", "192.0.3.3/24")] {
        network.node(node).ip_batch(&format!("address add {address} dev outside0\n")).expect("ip");
    }
    network.node("border").ip_batch(&"route del 203.0.113.0/24\n".repeat(2)).expect("ip");
    let _daemons = start_daemons(&network);
    let [a, b] = ["a", "b"].map(|node| start(&network, node));
    for node in [&a, &b] {
        wait_until(node, "the pair is whole", is_whole);
    }
    // The way by the owner is the best, and the worse one is there before it is needed.
    wait_for_ways(&network, ["a", "b"]);
    SLICES.iter().for_each(|slice| wait_for_both_ways(&network, slice));
    let (udp, external, tcp) = flows(&network, &a);

    a.kill().expect("killed");
    network.withdraw(PairSide::Access).expect("the access router's route");
    wait_for_ways(&network, ["b", "b"]);
    assert!(is_alive(&tcp), "the connection continues");
    assert_eq!(seen(&udp), external, "the flow keeps its endpoint");
    wait_until(&b, "b takes the slice", has_first_slice);
    assert_eq!(seen(&udp), external);

    // The node that comes back is the partner: its way is known, and is not the best.
    let a = start(&network, "a");
    wait_until(&a, "a has the copy", is_whole);
    SLICES.iter().for_each(|slice| wait_for_both_ways(&network, slice));
    wait_for_ways(&network, ["b", "b"]);
    assert!(is_alive(&tcp));

    // A planned move takes the best way along.
    assert!(succeeds(&b, &["move", "0", "a"]));
    wait_until(&a, "the slice is back", has_first_slice);
    wait_for_ways(&network, ["a", "b"]);
    network.restore(PairSide::Access).expect("the access router's route");
    assert!(is_alive(&tcp), "the connection came back");
    assert_eq!(seen(&udp), external);
    let new = traffic::connect(network.node("sub"), 0, natgate_testnet::PAIR_SERVER);
    assert!(is_of(&endpoint_of(&new.expect("a connection")), "a"));
    assert!(is_of(&seen(&datagrams(&network)), "a"));
    for node in [a, b] {
        node.stop().expect("it ends");
    }
    let gone = wait_for("no way", PATIENCE, || Ok(ways(&network).is_empty().then_some(())));
    assert!(gone.is_ok(), "{:?}", ways(&network));
}
