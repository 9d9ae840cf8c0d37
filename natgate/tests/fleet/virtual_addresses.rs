//! Steering on one link: keepalived beside each node has the configuration of docs/pair.md, and
//! moves the virtual addresses of a slice with the slice. Routes do not change.

use super::steering::{Daemons, signal_all, written};
use super::{PATIENCE, PROGRAM, TAG, build, datagrams, flows, has_first_slice, is_alive, is_of};
use super::{is_whole, seen, succeeds, wait_until};
use natgate_testnet::{PairNetwork, PairNode, Turn, wait_for};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Child;

/// Connects both nodes to one link on each side. The routers' routes lead to virtual addresses.
fn join_links(network: &PairNetwork) {
    let remote = "route del 198.51.100.0/24\n".repeat(2);
    let pool = "route del 203.0.113.0/24\n".repeat(2);
    for (router, removed, lines) in [
        (
            "access",
            format!("{remote}address del 10.1.0.2/24 dev toa\naddress del 10.2.0.2/24 dev tob\n"),
            "address add 10.1.0.2/24 dev nodes\nroute add 198.51.100.0/24 via 10.1.0.250\n",
        ),
        (
            "border",
            format!("{pool}address del 192.0.2.1/24 dev toa\naddress del 192.0.3.1/24 dev tob\n"),
            "address add 192.0.2.1/24 dev nodes\nroute add 203.0.113.0/29 via 192.0.2.250\n\
             route add 203.0.113.8/29 via 192.0.2.251\n",
        ),
    ] {
        let bridge = "link add nodes type bridge\nlink set nodes up\nlink set toa master nodes\n\
                      link set tob master nodes\n";
        network.node(router).ip_batch(&format!("{removed}{bridge}{lines}")).expect("a link");
    }
    for (node, last) in [("a", 12), ("b", 13)] {
        let lines = format!(
            "address add 10.1.0.{last}/24 dev inside0\naddress add 192.0.2.{last}/24 dev outside0\n"
        );
        network.node(node).ip_batch(&lines).expect("addresses");
    }
}

fn start(network: &PairNetwork, node: &str) -> PairNode {
    let mut config = network.config(node, "");
    if node == "b" {
        for (former, present) in [
            ("10.2.0.1/24", "10.1.0.3/24"),
            ("10.2.0.2", "10.1.0.2"),
            ("192.0.3.2/24", "192.0.2.3/24"),
            ("192.0.3.1", "192.0.2.1"),
        ] {
            assert!(config.contains(former), "{config}");
            config = config.replace(former, present);
        }
    }
    let kernels = written("/etc/natgate/natgate.toml");
    let kernels = if node == "b" { kernels.replace(".12\"", ".13\"") } else { kernels };
    let (inside, outside) = kernels.split_once("[outside]\n").expect("both sides");
    for (side, keys) in [("[inside]\n", &inside["[inside]\n".len()..]), ("[outside]\n", outside)] {
        assert_eq!(config.matches(side).count(), 1, "{config}");
        config = config.replace(side, &format!("{side}{keys}"));
    }
    network.start(PROGRAM.as_ref(), node, &config).expect("it starts")
}

/// Starts keepalived beside a node. Its programs ask the node that the test has started.
fn start_keepalived(network: &PairNetwork, node: &str) -> Child {
    let socket = network.file(&format!("{node}.sock"));
    let natgate = format!("{PROGRAM} fleet --socket {}", socket.display());
    let (namespace, conf) = (network.node(node), written("/etc/keepalived/keepalived.conf"));
    namespace.write_etc("keepalived/keepalived.conf", &conf).expect("a file");
    for name in ["keepalived/natgate", "keepalived/drain"] {
        let program = written(&format!("/etc/{name}"));
        assert!(program.contains("natgate fleet"), "{program}");
        let program = program.replace("natgate fleet", &natgate);
        namespace.write_etc(name, &program).expect("a file");
        let file = PathBuf::from(format!("/etc/netns/{}/{name}", namespace.name()));
        fs::set_permissions(file, Permissions::from_mode(0o755)).expect("a mode");
    }
    let path = |name: &str| {
        network.file(&format!("{name}-{node}")).to_str().expect("a readable name").to_owned()
    };
    let arguments = ["-P", "-n", "-l", "-D", "-p", &path("parent.pid"), "-r", &path("vrrp.pid")];
    let program = Path::new("/usr/sbin/keepalived");
    for (needed, package) in [(program, "keepalived"), (Path::new("/usr/bin/jq"), "jq")] {
        assert!(needed.exists(), "apt-get install {package}, or run `make test`");
    }
    namespace.start(program, &arguments, &network.file(&log(node))).expect("it starts")
}

fn log(node: &str) -> String {
    format!("keepalived-{node}.log")
}

/// Virtual addresses of a slice that a node has.
fn has_addresses(network: &PairNetwork, node: &str, slice: usize) -> usize {
    let output = network.node(node).run(5, "ip", &["-brief", "address", "show"]);
    let said = String::from_utf8_lossy(&output.expect("addresses").stdout).into_owned();
    let has = |prefix: &str| said.contains(&format!("{prefix}.25{slice}/32"));
    ["10.1.0", "192.0.2"].iter().filter(|prefix| has(prefix)).count()
}

/// Waits until the addresses of both slices are at these nodes, and there alone.
fn wait_for_addresses(network: &PairNetwork, at: [&str; 2], running: &[&str]) {
    let is_there = || {
        running.iter().all(|node| {
            at.iter().enumerate().all(|(slice, owner)| {
                has_addresses(network, node, slice) == if owner == node { 2 } else { 0 }
            })
        })
    };
    let seen = wait_for("the addresses", PATIENCE, || Ok(is_there().then_some(())));
    let logs = ["a", "b"].map(|node| fs::read_to_string(network.file(&log(node))));
    assert!(seen.is_ok(), "not at {at:?}: {logs:#?}");
}

#[test]
fn virtual_addresses_follow_the_slices() {
    let turn = Turn::take(TAG);
    let network = build(&turn);
    join_links(&network);
    let [a, b] = ["a", "b"].map(|node| start(&network, node));
    for node in [&a, &b] {
        wait_until(node, "the pair is whole", is_whole);
    }
    let _daemons = Daemons(["a", "b"].map(|node| start_keepalived(&network, node)).into());
    wait_for_addresses(&network, ["a", "b"], &["a", "b"]);
    let (udp, external, tcp) = flows(&network, &a);

    a.kill().expect("killed");
    wait_for_addresses(&network, ["b", "b"], &["a", "b"]);
    assert!(is_alive(&tcp), "the connection continues");
    assert_eq!(seen(&udp), external, "the flow keeps its endpoint");
    wait_until(&b, "b takes the slice", has_first_slice);

    // A node that comes back without its slice does not get the addresses.
    let a = start(&network, "a");
    wait_until(&a, "a has the copy", is_whole);
    assert_eq!([0, 1].map(|slice| has_addresses(&network, "b", slice)), [2, 2]);
    assert!(is_alive(&tcp));

    assert!(succeeds(&b, &["move", "0", "a"]));
    wait_until(&a, "the slice is back", has_first_slice);
    wait_for_addresses(&network, ["a", "b"], &["a", "b"]);
    assert!(is_alive(&tcp), "the connection came back");
    assert_eq!(seen(&udp), external);
    assert!(is_of(&seen(&datagrams(&network)), "a"));
    wait_until(&b, "the copy is complete", is_whole);

    // A machine that stands still keeps its addresses, but the routers use those of the partner.
    signal_all(&network, "a", Signal::STOP);
    wait_for_addresses(&network, ["b", "b"], &["b"]);
    assert!(is_alive(&tcp));
    assert_eq!(seen(&udp), external);
    signal_all(&network, "a", Signal::CONT);
    wait_for_addresses(&network, ["a", "b"], &["a", "b"]);
    wait_until(&a, "the pair is whole", is_whole);
    assert!(is_alive(&tcp));
    assert_eq!(seen(&udp), external);

    // A cable fails: the slice follows its addresses.
    network.node("access").ip_batch("link set toa down\n").expect("a cable");
    wait_for_addresses(&network, ["b", "b"], &["a", "b"]);
    wait_until(&b, "b has the slice", has_first_slice);
    assert!(is_alive(&tcp));
    assert_eq!(seen(&udp), external);
}
