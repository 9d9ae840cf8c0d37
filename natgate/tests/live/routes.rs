//! Exchange of routes with the kernel: announcement of pools by a running gateway, and use of the
//! kernel's routes.

use natgate_testnet::{Gateway, POOL, SERVER1, SERVER2, TestNetwork, traffic, wait_for};
use serde_json::Value;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

/// Routes in the kernel's tables with natgate's protocol number.
fn announced(network: &TestNetwork) -> Vec<String> {
    let said = network.ip("nat", "route show table all proto 78");
    said.lines().map(|line| line.trim().to_owned()).collect()
}

#[track_caller]
fn wait_until_announced(network: &TestNetwork, expected: &[&str]) {
    let what = format!("{expected:?}");
    let seen = wait_for(&what, PATIENCE, || Ok((announced(network) == expected).then_some(())));
    assert!(seen.is_ok(), "{:?}, not {expected:?}", announced(network));
}

#[test]
fn pools_are_announced_while_the_gateway_works() {
    let network = super::network();
    let lines = [
        "blackhole 203.0.113.1 table 100",
        "blackhole 203.0.113.2/31 table 100",
        "blackhole 203.0.113.4 table 100",
    ];
    let more = "[announce]\ntable = 100\n";
    let gateway = super::start(&network, "af-packet", more);
    wait_until_announced(&network, &lines);
    for device in ["outside", "inside"] {
        network.ip("nat", &format!("link set {device} down"));
        wait_until_announced(&network, &[]);
        network.ip("nat", &format!("link set {device} up"));
        wait_until_announced(&network, &lines);
    }
    // A killed gateway leaves its routes. The next one finds them, and a route that it does not
    // need any more.
    drop(gateway);
    assert_eq!(announced(&network), lines);
    network.ip("nat", "route add blackhole 203.0.113.9 table 100 proto 78");
    // Routes of other programs stay.
    network.ip("nat", "route add blackhole 203.0.113.10 table 100 proto 79");
    let gateway = super::start(&network, "af-packet", more);
    wait_until_announced(&network, &lines);
    let log = gateway.log();
    assert!(!log.contains("announced"), "{log}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    assert_eq!(announced(&network), [""; 0]);
    let others = network.ip("nat", "route show table 100");
    assert_eq!(others.trim(), "blackhole 203.0.113.10 proto 79", "{others}");
}

/// A start that fails removes the routes of a killed gateway, and never those of a running one.
#[test]
fn a_start_that_fails_leaves_no_routes_of_a_killed_gateway() {
    let network = super::network();
    let line = ["blackhole 203.0.113.9 table 100"];
    let more = "[announce]\ntable = 100\n";
    let fails = |text: &str, because: &str| {
        let file = network.file("failing.toml");
        std::fs::write(&file, text).unwrap();
        let arguments = ["run", "-c", file.to_str().unwrap()];
        let failure = network.node("nat").run(20, super::PROGRAM, &arguments).unwrap_err();
        let said = failure.to_string();
        assert!(said.contains("exit status: 1") && said.contains(because), "{said}");
        said
    };
    let leave = || network.ip("nat", "route add blackhole 203.0.113.9 table 100 proto 78");
    let good = super::config(more);
    // A device is missing; and a log cannot be written, once the devices are open.
    let missing = good.replace("\"outside\"", "\"missing0\"");
    let log = format!("{good}[[log]]\nkind = \"file\"\npath = \"/proc/none/events.jsonl\"\n");
    for (text, because) in [(&missing, "missing0"), (&log, "/proc/none")] {
        leave();
        assert_eq!(announced(&network), line);
        let said = fails(text, because);
        assert!(said.contains("removed announced routes of an earlier natgate: 1"), "{said}");
        assert_eq!(announced(&network), [""; 0]);
    }
    let gateway = super::start(&network, "af-packet", more);
    let lines = [
        "blackhole 203.0.113.1 table 100",
        "blackhole 203.0.113.2/31 table 100",
        "blackhole 203.0.113.4 table 100",
    ];
    wait_until_announced(&network, &lines);
    fails(&missing, "missing0");
    assert_eq!(announced(&network), lines);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn what_is_announced_changes_with_a_reload_and_conflicts_are_told() {
    let network = super::network();
    let [first, ..] = POOL;
    network.ip("nat", "link set lo up");
    network.ip("nat", &format!("route add {first}/32 dev lo"));
    let gateway = super::start(&network, "af-packet", "[announce]\nprotocol = 78\n");
    let rest = ["blackhole 203.0.113.2/31", "blackhole 203.0.113.4"];
    wait_until_announced(&network, &rest);
    let warning = format!("warning: {first}/32 cannot be announced in table 254: File exists");
    assert!(gateway.log().contains(&warning), "{}", gateway.log());
    let file = network.file("natgate.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("203.0.113.4\"", "203.0.113.7\"")).unwrap();
    gateway.reload().unwrap();
    wait_until_announced(&network, &["blackhole 203.0.113.2/31", "blackhole 203.0.113.4/30"]);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    assert_eq!(announced(&network), [""; 0]);
}

#[test]
fn announced_routes_that_others_remove_come_back() {
    let network = super::network();
    let lines = [
        "blackhole 203.0.113.1 table 100",
        "blackhole 203.0.113.2/31 table 100",
        "blackhole 203.0.113.4 table 100",
    ];
    let gateway = super::start(&network, "af-packet", "[announce]\ntable = 100\n");
    wait_until_announced(&network, &lines);
    let says = |words: &str| {
        let said = || Ok(gateway.log().contains(words).then_some(()));
        let seen = wait_for(words, PATIENCE, said);
        assert!(seen.is_ok(), "{words:?} was not said: {}", gateway.log());
    };
    network.ip("nat", "route flush table 100 proto 78");
    wait_until_announced(&network, &lines);
    says(
        "warning: another program removed announced routes from table 100: 203.0.113.1/32, \
         203.0.113.2/31, 203.0.113.4/32; 3 of 3 are there again",
    );
    // Another program's route in place of one of natgate's stays.
    network.ip("nat", "route replace unreachable 203.0.113.4/32 table 100 proto 99");
    says("203.0.113.4/32 cannot be announced in table 100: File exists");
    assert_eq!(announced(&network), lines[..2]);
    network.ip("nat", "route delete unreachable 203.0.113.4/32 table 100 proto 99");
    wait_until_announced(&network, &lines);
    // Routes that natgate itself has withdrawn do not come back.
    network.ip("nat", "link set outside down");
    wait_until_announced(&network, &[]);
    network.ip("nat", "route add blackhole 203.0.113.1 table 100 proto 78");
    network.ip("nat", "route flush table 100 proto 78");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(announced(&network), [""; 0]);
    network.ip("nat", "link set outside up");
    wait_until_announced(&network, &lines);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    assert_eq!(announced(&network), [""; 0]);
}

fn learnt(gateway: &Gateway) -> u64 {
    let status: Value = gateway.status().unwrap();
    status["router"]["learnt_routes"].as_u64().expect("a number")
}

#[track_caller]
fn wait_until_learnt(gateway: &Gateway, expected: u64) {
    let what = format!("{expected} learnt routes");
    let seen = wait_for(&what, PATIENCE, || Ok((learnt(gateway) == expected).then_some(())));
    assert!(seen.is_ok(), "{} and not {expected}: {}", learnt(gateway), gateway.log());
}

/// A configuration with a route to the servers, and without a default route.
fn without_default(more: &str) -> String {
    natgate_testnet::config(more).replace("gateway = \"192.0.2.1\"\n", "")
}

#[test]
fn routes_of_the_kernel_are_followed() {
    let network = super::network();
    // A machine with a routing daemon has an address of its own.
    network.ip("nat", "address add 192.0.2.3/24 dev outside");
    let text = without_default("[learn]\ntable = 100\n");
    let program = std::path::Path::new(super::PROGRAM);
    network.ip("nat", "route add 198.51.100.0/25 via 192.0.2.1 table 100");
    let gateway = Gateway::start(&network, program, &text).unwrap();
    wait_until_learnt(&gateway, 1);
    let socket = network.udp_socket("sub1");
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();
    assert!(traffic::ask_udp_once(&socket, SERVER2, b"too early").is_err());
    network.ip("nat", "route add 198.51.100.128/25 via 192.0.2.1 table 100 proto bgp");
    wait_until_learnt(&gateway, 2);
    assert_eq!(traffic::ask_udp(&socket, SERVER2).unwrap(), external);
    // natgate ignores routes of another table, and routes by other devices.
    network.ip("nat", "route add 198.18.0.0/15 via 192.0.2.1");
    network.ip("nat", "route add blackhole 198.19.0.0/16 table 100");
    network.ip("nat", "route add 198.20.0.0/16 dev outside table 100");
    network.ip("nat", "route replace 198.51.100.128/25 via 192.0.2.99 table 100 proto bgp");
    wait_for("the other next hop", PATIENCE, || {
        Ok(traffic::ask_udp_once(&socket, SERVER2, b"elsewhere").is_err().then_some(()))
    })
    .unwrap();
    network.ip("nat", "route delete 198.51.100.128/25 table 100");
    wait_until_learnt(&gateway, 1);
    assert_eq!(traffic::ask_udp(&socket, SERVER1).unwrap(), external);
    // A reload keeps learned routes.
    let file = network.file("natgate.toml");
    std::fs::write(
        &file,
        format!("{text}[[route]]\nprefix = \"198.51.100.128/25\"\nvia = \"192.0.2.1\"\n"),
    )
    .unwrap();
    gateway.reload().unwrap();
    wait_for("the configured route", PATIENCE, || {
        Ok(traffic::ask_udp_once(&socket, SERVER2, b"again").ok())
    })
    .unwrap();
    assert_eq!(traffic::ask_udp(&socket, SERVER1).unwrap(), external);
    assert_eq!(learnt(&gateway), 1);
    // When a device goes down, the kernel removes its routes without a notification.
    network.ip("nat", "link set outside down");
    wait_until_learnt(&gateway, 0);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn a_hundred_thousand_routes_are_learnt_and_forgotten() {
    const COUNT: u32 = 100_000;
    let network = super::network();
    network.ip("nat", "address add 192.0.2.3/24 dev outside");
    let program = std::path::Path::new(super::PROGRAM);
    let text = natgate_testnet::config("[learn]\ntable = 100\n");
    let gateway = Gateway::start(&network, program, &text).unwrap();
    let socket = network.udp_socket("sub1");
    let external = traffic::ask_udp(&socket, SERVER1).unwrap();
    let batch = |verb: &str| {
        let mut lines = String::new();
        for number in 0..COUNT {
            let address = Ipv4Addr::from_bits(0x0b00_0000 + (number << 8));
            writeln!(lines, "route {verb} {address}/24 via 192.0.2.1 table 100").unwrap();
        }
        network.node("nat").ip_batch(&lines).unwrap();
    };
    batch("add");
    wait_until_learnt(&gateway, COUNT.into());
    assert_eq!(traffic::ask_udp(&socket, SERVER1).unwrap(), external);
    batch("delete");
    wait_until_learnt(&gateway, 0);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}
