//! traceroute and mtr see every router on the path, from either side of the translator.
//!
//! They send packets whose time to live ends on the path, and show the senders of the errors.
//! Errors of outside routers must be translated to reach the internal host that caused them (RFC
//! 5508 REQ-4). Errors of internal routers must reach a host outside (REQ-5). They then have the
//! external address as their source, because the router's own address means nothing outside.
//! natgate shows its own address on the asking side.

use natgate_testnet::{
    GATEWAY_INSIDE, GATEWAY_OUTSIDE, Network, ROUTER, SERVER1, SERVER2, SUBSCRIBER1, config,
};
use serde_json::Value;

use crate::{HOME_CONFIG, HOME_EXTERNAL, add_home, drops, gateway, run, turn};

/// Options of traceroute for probes by UDP, ICMP and TCP.
const TRACEROUTE: [&str; 3] = ["-U", "-I", "-T"];

/// Options of mtr for probes by UDP, ICMP and TCP.
const MTR: [&str; 3] = ["--udp", "", "--tcp"];

//= test rfc5508#REQ-1
//= test rfc5508#REQ-4a
//= test rfc5508#REQ-4b
//= test rfc5508#REQ-4c
//= test rfc5508#section-7.2
#[test]
fn outbound_every_hop_shows() {
    let turn = turn();
    let mut network = turn.network();
    add_home(&mut network);
    let _gateway = gateway(&network, &config(HOME_CONFIG));
    let home = ["10.1.0.1".to_owned(), GATEWAY_INSIDE.to_string(), ROUTER.to_string()];
    let subscriber = &home[1..];
    for (node, hops) in [("home", &home[..]), ("sub1", subscriber), ("sub2", subscriber)] {
        for server in [SERVER1, SERVER2].map(|server| server.to_string()) {
            let hops = [hops, std::slice::from_ref(&server)].concat();
            for kind in TRACEROUTE {
                assert_eq!(traceroute(&network, node, kind, &server), hops, "{node} {kind}");
            }
        }
    }
    let server = SERVER1.to_string();
    for kind in MTR {
        let hops = [&home[..], std::slice::from_ref(&server)].concat();
        assert_eq!(mtr(&network, "home", kind, &server), hops, "{kind}");
    }
}

//= test rfc5508#REQ-5
//= test rfc5508#REQ-5a
//= test rfc5508#REQ-5b
//= test rfc5508#REQ-5c
//= test rfc5508#section-7.2
#[test]
fn inbound_every_hop_shows_and_the_inside_stays_hidden() {
    let turn = turn();
    let mut network = turn.network();
    add_home(&mut network);
    let gateway = gateway(&network, &config(HOME_CONFIG));
    // The internal router (third) sends with the address of the packet's destination.
    let hops = ["198.51.100.1", &GATEWAY_OUTSIDE.to_string(), HOME_EXTERNAL, HOME_EXTERNAL];
    for kind in TRACEROUTE {
        assert_eq!(traceroute(&network, "server1", kind, HOME_EXTERNAL), hops, "{kind}");
    }
    for kind in MTR {
        // mtr ends at the first answer from the destination's address.
        assert_eq!(mtr(&network, "server1", kind, HOME_EXTERNAL), hops[..3], "{kind}");
    }
    assert_eq!(drops(&gateway, "icmp_no_session"), 0);
    assert!(drops(&gateway, "ttl_exceeded") > 0, "natgate's own hop is what it dropped");
}

//= test rfc4787#REQ-12b
//= test rfc5508#REQ-4c
//= test rfc5508#REQ-5c
#[test]
fn an_unreachable_host_is_said_to_be_so_in_both_directions() {
    let turn = turn();
    let mut network = turn.network();
    add_home(&mut network);
    let _gateway = gateway(&network, &config(HOME_CONFIG));
    // Neither network is reachable; the routers before them report it.
    for (router, prefix) in [("router", "198.51.100.128/25"), ("sub1", "10.1.0.10/32")] {
        let line = format!("route replace unreachable {prefix}\n");
        if router == "router" {
            network.node(router).ip_batch("address flush dev server2\n").unwrap();
        }
        network.node(router).ip_batch(&line).unwrap();
    }
    let ask = |node: &str, address: &str| {
        let arguments = ["-n", "-c", "1", "-W", "2", address];
        network.node(node).run(10, "ping", &arguments).unwrap_err().to_string()
    };
    let said = ask("sub2", &SERVER2.to_string());
    assert!(said.contains(&format!("From {ROUTER} ")), "{said}");
    assert!(said.contains("Destination Host Unreachable"), "{said}");
    let said = ask("server1", HOME_EXTERNAL);
    assert!(said.contains(&format!("From {HOME_EXTERNAL} ")), "{said}");
    assert!(said.contains("Destination Host Unreachable"), "{said}");
    assert!(!said.contains(&SUBSCRIBER1.to_string()), "{said}");
}

/// Hops in traceroute's output.
fn traceroute(network: &Network, node: &str, kind: &str, to: &str) -> Vec<String> {
    let said = run(network.node(node), "traceroute", &format!("{kind} -n -q 1 -w 2 -m 8 {to}"));
    let hops = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
    hops.map(str::to_owned).collect()
}

/// Hops in mtr's output.
fn mtr(network: &Network, node: &str, kind: &str, to: &str) -> Vec<String> {
    let said = run(network.node(node), "mtr", &format!("{kind} -n -j -c 1 -G 1 -m 8 {to}"));
    let said: Value = serde_json::from_str(&said).unwrap();
    let hops = said["report"]["hubs"].as_array().unwrap().iter();
    hops.map(|hop| hop["host"].as_str().unwrap().to_owned()).collect()
}
