//! The router around the translator between real kernels: what ping is told when nobody is there,
//! and datagrams that a narrow link makes fragments of.
//!
//! The network is that of the demonstration (`natgate-testnet`). Needs root and the programs that
//! `make test` installs, and fails without them.

use natgate_testnet::{
    GATEWAY_INSIDE, Gateway, Network, ROUTER, SERVER1, Servers, config, is_root, remove_leftovers,
};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const PROGRAM: &str = env!("CARGO_BIN_EXE_natgate");
const TAG: &str = "ngway";

/// One test at a time; one that failed does not keep the others from running.
static TURN: Mutex<()> = Mutex::new(());

/// What ping says in the first subscriber's namespace, with this configuration.
fn ping(config: &str, arguments: &[&str]) -> String {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(is_root(), "network namespaces need root: run the tests as root");
    remove_leftovers(TAG);
    let network = Network::build(&format!("{TAG}{}", std::process::id())).unwrap();
    let _servers = Servers::start(&network, Arc::from(&b"body"[..])).unwrap();
    let _gateway = Gateway::start(&network, Path::new(PROGRAM), config).unwrap();
    // ping fails when nobody answers; what it says is in either case what we want.
    let command = format!("ping -n {}; true", arguments.join(" "));
    let output = network.node("sub1").run(20, "sh", &["-c", &command]).unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
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
