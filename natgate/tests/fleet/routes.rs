//! Steering by routes: a routing daemon beside each node announces the slices by BGP, and the
//! border router's daemon learns both ways. Nobody changes the border router's routes by hand. The
//! daemons beside the nodes have the configurations of docs/pair.md.

use super::steering::{Daemons, signal_all, written};
use super::{PATIENCE, build, endpoint_of, flows, has_first_slice, is_alive, is_of, is_whole};
use super::{PROGRAM, TAG, datagrams, seen, succeeds, wait_until};
use natgate_testnet::{PairNetwork, PairNode, PairSide, Turn, traffic, wait_for};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Child;

/// The first slice, whose home is `a`, and the second.
const SLICES: [&str; 2] = ["203.0.113.0/29", "203.0.113.8/29"];

/// Configuration of the border router.
const FAR: &str = r#"
router id 192.0.2.1;
protocol device { scan time 1; }
protocol direct { ipv4; }
protocol kernel { scan time 1; ipv4 { import none; export where source = RTS_BGP; }; }
protocol bfd { }
template bgp node {
    local as 65000;
    bfd;
    connect delay time 1;
    connect retry time 1;
    error wait time 1, 2;
    ipv4 { import all; export none; };
}
protocol bgp a from node { local 192.0.2.1 as 65000; neighbor 192.0.2.3 as 65001; }
protocol bgp b from node { local 192.0.3.1 as 65000; neighbor 192.0.3.3 as 65001; }
"#;

/// Starts the border router's daemon.
fn border(network: &PairNetwork) -> Child {
    let file = |end: &str| network.file(&format!("bird-border.{end}"));
    fs::write(file("conf"), FAR).expect("a file");
    let (conf, socket) = (file("conf"), file("ctl"));
    let [conf, socket] = [&conf, &socket].map(|path| path.to_str().expect("text"));
    let arguments = ["-f", "-c", conf, "-s", socket];
    network.node("border").start(bird(), &arguments, &file("log")).expect("it starts")
}

fn bird() -> &'static Path {
    let bird = Path::new("/usr/sbin/bird");
    assert!(bird.exists(), "BIRD is missing: apt-get install bird2, or run `make test`");
    bird
}

/// Puts a file of the document into a node's `/etc`. The text is that of node a.
fn configure(network: &PairNetwork, node: &str, place: &str) {
    let text = match node {
        "a" => written(place),
        _ => written(place).replace("192.0.2.", "192.0.3."),
    };
    network.node(node).write_etc(place.trim_start_matches("/etc/"), &text).expect("a file");
}

/// Starts BIRD beside a node.
fn start_bird(network: &PairNetwork, node: &str) -> Vec<Child> {
    configure(network, node, "/etc/bird/bird.conf");
    let file = |end: &str| network.file(&format!("bird-{node}.{end}"));
    let socket = file("ctl");
    let arguments = ["-f", "-s", socket.to_str().expect("text")];
    vec![network.node(node).start(bird(), &arguments, &file("log")).expect("it starts")]
}

/// Starts FRR beside a node: first the daemon that the others need.
fn start_frr(network: &PairNetwork, node: &str) -> Vec<Child> {
    configure(network, node, "/etc/frr/frr.conf");
    let folder = network.file(&format!("frr-{node}"));
    fs::create_dir(&folder).expect("a folder");
    // The daemons become another user.
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("a mode");
    let path = |name: &str| folder.join(name).to_str().expect("text").to_owned();
    let daemons = ["zebra", "bgpd", "bfdd"].map(|name| {
        let program = Path::new("/usr/lib/frr").join(name);
        assert!(program.exists(), "FRR is missing: apt-get install frr, or run `make test`");
        let (number, server, sockets) = (path(&format!("{name}.pid")), path("server"), path(""));
        let control = path("bfdd.ctl");
        let common = ["-f", "/dev/null", "-i", &number, "-z", &server, "--vty_socket", &sockets];
        let own: &[&str] = if name == "bfdd" { &["--bfdctl", control.as_str()] } else { &[] };
        let log = network.file(&format!("{name}-{node}.log"));
        let all = [&common[..], own].concat();
        let daemon = network.node(node).start(&program, &all, &log).expect("it starts");
        let socket = folder.join(format!("{name}.vty"));
        wait_for(name, PATIENCE, || Ok(socket.exists().then_some(())))
            .unwrap_or_else(|_| panic!("{}", fs::read_to_string(&log).unwrap_or_default()));
        daemon
    });
    // As Debian's service does.
    let words = ["--vty_socket", &path(""), "-b"];
    network.node(node).run(10, "vtysh", &words).expect("the configuration is right");
    daemons.into()
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

/// Waits until the border router notices the end of either node's machine.
fn wait_for_bfd(network: &PairNetwork) {
    let socket = network.file("bird-border.ctl");
    let words = ["-s", socket.to_str().expect("text"), "show", "bfd", "sessions"];
    let sessions = || output(network, "border", "/usr/sbin/birdc", &words);
    let is_up = || sessions().lines().filter(|line| line.contains(" Up ")).count() == 2;
    let seen = wait_for("BFD", PATIENCE, || Ok(is_up().then_some(())));
    assert!(seen.is_ok(), "{}", sessions());
}

fn start(network: &PairNetwork, node: &str) -> PairNode {
    let config = network.config(node, "[announce]\n");
    network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
}

#[test]
fn by_bird_a_router_finds_the_partner_after_a_kill_and_when_the_machine_stands_still() {
    steer(start_bird);
}

#[test]
fn by_frr_a_router_finds_the_partner_after_a_kill_and_when_the_machine_stands_still() {
    steer(start_frr);
}

fn steer(start_daemons: fn(&PairNetwork, &str) -> Vec<Child>) {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    for (node, address) in [("a", "192.0.2.3/24"), ("b", "192.0.3.3/24")] {
        network.node(node).ip_batch(&format!("address add {address} dev outside0\n")).expect("ip");
    }
    network.node("border").ip_batch(&"route del 203.0.113.0/24\n".repeat(2)).expect("ip");
    let mut daemons = Daemons(vec![border(&network)]);
    for node in ["a", "b"] {
        daemons.0.extend(start_daemons(&network, node));
    }
    let [a, b] = ["a", "b"].map(|node| start(&network, node));
    for node in [&a, &b] {
        wait_until(node, "the pair is whole", is_whole);
    }
    // The way by the owner is the best, and the worse one is there before it is needed.
    wait_for_ways(&network, ["a", "b"]);
    SLICES.iter().for_each(|slice| wait_for_both_ways(&network, slice));
    wait_for_bfd(&network);
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

    // The daemons notice a machine that stands still, and it is the owner again when it goes on.
    SLICES.iter().for_each(|slice| wait_for_both_ways(&network, slice));
    wait_until(&b, "the copy is complete", is_whole);
    signal_all(&network, "a", Signal::STOP);
    network.withdraw(PairSide::Access).expect("the access router's route");
    wait_for_ways(&network, ["b", "b"]);
    assert!(is_alive(&tcp));
    assert_eq!(seen(&udp), external);
    signal_all(&network, "a", Signal::CONT);
    wait_until(&a, "the pair is whole", is_whole);
    wait_until(&a, "a is the owner", has_first_slice);
    wait_for_ways(&network, ["a", "b"]);
    network.restore(PairSide::Access).expect("the access router's route");
    assert!(is_alive(&tcp));
    assert_eq!(seen(&udp), external);
    for node in [a, b] {
        node.stop().expect("it ends");
    }
    let gone = wait_for("no way", PATIENCE, || Ok(ways(&network).is_empty().then_some(())));
    assert!(gone.is_ok(), "{:?}", ways(&network));
}
