//! The router around the translator between real kernels: errors for ping about missing hosts, and
//! datagrams that a narrow link fragments.
//!
//! The network is that of the demonstration (`natgate-testnet`). Needs root and the programs that
//! `make test` installs, and fails without them.

use natgate_testnet::{GATEWAY_INSIDE, ROUTER, SERVER1, TestNetwork, config};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngway";

/// Output of ping in the first subscriber's namespace, with this configuration.
fn ping(config: &str, arguments: &[&str]) -> String {
    let network = TestNetwork::with_servers(TAG, 4);
    let _gateway = network.start(PROGRAM, config);
    // ping fails without an answer; the test needs its output in both cases.
    let command = format!("ping -n {}; true", arguments.join(" "));
    network.run("sub1", "sh", &["-c", &command])
}

//= test rfc1812#section-4.3.3.1-host
#[test]
fn ping_is_told_that_nobody_is_there() {
    let said = ping(&config(""), &["-c", "1", "-W", "8", "192.0.2.77"]);
    let expected = format!("From {GATEWAY_INSIDE} icmp_seq=1 Destination Host Unreachable");
    assert!(said.contains(&expected), "{said}");
}

//= test rfc1812#section-4.3.3.1-network
#[test]
fn ping_is_told_that_no_route_leads_there() {
    let without_gateway = config("").replace(&format!("gateway = \"{ROUTER}\"\n"), "");
    let said = ping(&without_gateway, &["-c", "1", "-W", "8", &SERVER1.to_string()]);
    let expected = format!("From {GATEWAY_INSIDE} icmp_seq=1 Destination Net Unreachable");
    assert!(said.contains(&expected), "{said}");
}

//= test rfc4787#REQ-13a
//= test rfc1812#section-4.2.2.7
#[test]
fn datagrams_longer_than_the_outsides_link_arrive() {
    let narrow = config("").replace("[outside]\n", "[outside]\nmtu = 700\n");
    let arguments = ["-c", "3", "-i", "0.1", "-W", "2", "-M", "dont", "-s", "1400"];
    let said = ping(&narrow, &[&arguments[..], &[&SERVER1.to_string()]].concat());
    assert!(said.contains(" 3 received, "), "{said}");
}
