//! `[fleet]`: which other tables a pair shares the state of, and which are refused at their place.

mod common;

use common::{HEAD, texts};
use natgate_control::config::{parse, read_text};
use natgate_gateway::fleet::FleetSettings;

/// Node a of a pair. Its line 18 is `[fleet]`.
const PAIR: &str = include_str!("../../../packaging/examples/pair-a.toml");

fn read(more: &str) -> FleetSettings {
    let settings = parse(&format!("{PAIR}\n{more}"), "t").expect("it is right");
    settings.fleet.expect("it is one of a pair")
}

#[track_caller]
fn refused(text: &str, expected: &str) {
    let problems = read_text(text, "t").err().unwrap_or_default();
    let texts = texts(&problems);
    assert!(texts.iter().any(|text| text.contains(expected)), "{texts:?}");
}

/// The configuration with more keys of its pool.
fn pool(keys: &str) -> String {
    PAIR.replace("[[pool]]\n", &format!("[[pool]]\n{keys}\n"))
}

#[test]
fn a_pair_shares_these_tables() {
    assert_eq!(read("").node, "a");
    assert_eq!(read("[pcp]\nenabled = true\n").slices.len(), 2);
    let realm = "[[realm]]\nname = \"homes\"\nvlan = 100\naddress = \"10.0.0.1/8\"\n";
    assert_eq!(read(realm).slices.len(), 2);
    let inside = PAIR.replace("[inside]\n", "[inside]\naddress6 = \"2001:db8:1::1/64\"\n");
    let nat64 = "[nat64]\nprefixes = [\"64:ff9b::/96\", \"2001:db8:64::/96\"]\n";
    parse(&format!("{inside}\n{nat64}"), "t").expect("it is right");
    let arithmetic =
        "deterministic\"\nsubscribers = [\"10.0.0.0/24\"]\nports_per_subscriber = 64 # \"";
    for keys in ["block", "preserve", arithmetic] {
        parse(&pool(&format!("allocation = \"{keys}\"")), "t").expect("it is right");
    }
}

#[test]
fn a_pair_refuses_what_it_does_not_share() {
    for (more, expected) in [
        ("[alg]\nftp = true\n", "application-level gateways yet; take [alg] out"),
        ("[workers]\ncount = 2\n", "several workers yet; write workers.count = 1"),
    ] {
        refused(&format!("{PAIR}\n{more}"), expected);
    }
    let inside = "[inside]\naddress6 = \"2001:db8:1::1/64\"\n";
    let tunnels = "[dslite]\naddress = \"2001:db8:1::ff\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    let both = format!("{}\n{tunnels}", PAIR.replace("[inside]\n", inside));
    refused(&both, "2001:db8:1::ff is in the inside network, where both nodes would answer");
    let elsewhere = both.replace("1::ff", "ffff::1");
    parse(&elsewhere, "t").expect("it is on no link");
    let moving = elsewhere.replace("[dslite]\n", "[dslite]\nsubscriber_length = 56\n");
    refused(&moving, "tunnels that move within a prefix yet; take dslite.subscriber_length out");
    refused(&pool("overloading = true"), "does not share overloaded ports yet");
    refused(&pool("allocation = \"address\""), "does not share addresses of subscribers yet");
    let (before, _) = PAIR.split_once("# The number of this node's").expect("a comment");
    refused(before, "needs [state]");
    refused(&format!("{HEAD}[fleet]\n"), "fleet.partner: is missing");
}
