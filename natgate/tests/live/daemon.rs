//! A routing daemon beside natgate. BIRD speaks BGP with the router, over a device that natgate
//! uses by AF_XDP. It exports the external addresses that natgate announces, and natgate follows
//! the routes that it learns.

use super::PROGRAM;
use natgate_testnet::{Gateway, SERVER1, SERVER2, TestNetwork, config, traffic, wait_for};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Configuration on natgate's machine. It has two kernel protocols, so it needs two tables.
const NEAR: &str = r#"
router id 192.0.2.3;
protocol device { scan time 1; }
ipv4 table pools;
protocol kernel from_natgate {
    learn;
    scan time 1;
    ipv4 { table pools; import where krt_source = 78; export none; };
}
protocol pipe { table master4; peer table pools; import all; export none; }
protocol kernel to_natgate {
    kernel table 100;
    scan time 1;
    ipv4 { import none; export where source = RTS_BGP; };
}
protocol bgp upstream {
    local 192.0.2.3 as 65001;
    neighbor 192.0.2.1 as 65000;
    connect delay time 1;
    connect retry time 1;
    error wait time 1, 2;
    # Packets go to natgate's address, not to the machine's.
    ipv4 { import all; export where source = RTS_INHERIT; next hop address 192.0.2.2; };
}
"#;

/// Configuration on the router.
const FAR: &str = r#"
router id 192.0.2.1;
protocol device { scan time 1; }
protocol direct { ipv4; }
protocol kernel { scan time 1; ipv4 { import none; export where source = RTS_BGP; }; }
protocol bgp customer {
    local 192.0.2.1 as 65000;
    neighbor 192.0.2.3 as 65001;
    connect delay time 1;
    connect retry time 1;
    error wait time 1, 2;
    ipv4 { import all; export where net ~ [ 198.51.100.0/24+ ]; next hop self; };
}
"#;

fn start(network: &TestNetwork, node: &str, text: &str) -> Child {
    let file = |end: &str| network.file(&format!("bird-{node}.{end}"));
    std::fs::write(file("conf"), text).unwrap();
    let (conf, socket) = (file("conf"), file("ctl"));
    let arguments = ["-f", "-c", conf.to_str().unwrap(), "-s", socket.to_str().unwrap()];
    let bird = Path::new("/usr/sbin/bird");
    assert!(bird.exists(), "BIRD is missing: apt-get install bird2, or run `make test`");
    network.node(node).start(bird, &arguments, &file("log")).unwrap()
}

/// The router's routes to the external addresses.
fn ways(network: &TestNetwork) -> Vec<String> {
    let said = network.ip("router", "route show proto bird");
    let words = |line: &str| line.split(" dev ").next().unwrap_or_default().to_owned();
    said.lines().map(words).collect()
}

fn wait_until_announced(network: &TestNetwork, expected: &[&str]) {
    let seen = wait_for("BGP", PATIENCE, || Ok((ways(network) == expected).then_some(())));
    assert!(seen.is_ok(), "{:?}, not {expected:?}: {}", ways(network), said(network));
}

/// Logs of the daemons.
fn said(network: &TestNetwork) -> String {
    let said = ["nat", "router"].map(|node| {
        let socket = network.file(&format!("bird-{node}.ctl"));
        let socket = socket.to_str().unwrap();
        let shown = ["protocols", "route"]
            .map(|what| network.run(node, "/usr/sbin/birdc", &["-s", socket, "show", what, "all"]));
        shown.concat()
    });
    said.concat()
}

#[test]
fn a_routing_daemon_passes_on_what_is_announced_and_learnt() {
    let network = super::network();
    network.ip("router", "route delete 203.0.113.0/24");
    network.ip("nat", "address add 192.0.2.3/24 dev outside");
    let text = config("[announce]\n[learn]\ntable = 100\n").replace("af-packet", "af-xdp");
    let text = text.replace("gateway = \"192.0.2.1\"\n", "");
    let announced =
        ["203.0.113.1 via 192.0.2.2", "203.0.113.2/31 via 192.0.2.2", "203.0.113.4 via 192.0.2.2"];
    let _daemons = Daemons([start(&network, "nat", NEAR), start(&network, "router", FAR)]);
    for _ in 0..2 {
        let gateway = Gateway::start_in(&network, "nat", Path::new(PROGRAM), &text).unwrap();
        wait_until_announced(&network, &announced);
        let socket = network.udp_socket("sub1");
        let external = wait_for("the way there and back", PATIENCE, || {
            Ok(traffic::ask_udp_once(&socket, SERVER1, b"anybody").ok())
        });
        let external = external.unwrap_or_else(|error| panic!("{error}: {}", gateway.log()));
        assert_eq!(traffic::ask_udp(&socket, SERVER2).unwrap(), external);
        assert_eq!(gateway.status().unwrap()["router"]["learnt_routes"], 2);
        assert_eq!(gateway.stop().unwrap().code(), Some(0));
        wait_until_announced(&network, &[]);
    }
}

/// Daemons; they end with the test.
struct Daemons([Child; 2]);

impl Drop for Daemons {
    fn drop(&mut self) {
        for daemon in &mut self.0 {
            // Both calls fail only if the daemon has already ended.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
