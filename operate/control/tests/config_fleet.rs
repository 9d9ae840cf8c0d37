//! `[fleet]`: which other tables a pair shares the state of, and which are refused at their place.

mod common;

use common::{HEAD, texts};
use natgate_control::config::{parse, read_text, reread};
use natgate_gateway::fleet::FleetSettings;
use std::path::Path;

/// Node a of a pair.
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
    let alg = "[alg]\nftp = true\ntftp = true\nsip = true\nrtsp = true\nirc = true\ndns = true\n";
    assert_eq!(read(alg).slices.len(), 2);
    let realm = "[[realm]]\nname = \"homes\"\nvlan = 100\naddress = \"10.0.0.1/8\"\n";
    assert_eq!(read(realm).slices.len(), 2);
    let inside = PAIR.replace("[inside]\n", "[inside]\naddress6 = \"2001:db8:1::1/64\"\n");
    let nat64 = "[nat64]\nprefixes = [\"64:ff9b::/96\", \"2001:db8:64::/96\"]\n";
    parse(&format!("{inside}\n{nat64}"), "t").expect("it is right");
    parse(&format!("{inside}\n{nat64}{alg}"), "t").expect("it is right");
    parse(&format!("{PAIR}\n[workers]\ncount = 2\n{alg}"), "t").expect("it is right");
    let arithmetic =
        "deterministic\"\nsubscribers = [\"10.0.0.0/24\"]\nports_per_subscriber = 64 # \"";
    for keys in ["block", "preserve", "address", arithmetic] {
        parse(&pool(&format!("allocation = \"{keys}\"")), "t").expect("it is right");
    }
}

#[test]
fn a_pair_has_several_workers_and_does_not_tell_those_of_the_other_node() {
    const WORKERS: &str = "[workers]\ncount = 2\n";
    assert_eq!((read("").workers, read(WORKERS).workers), (1, 2));
    let arithmetic =
        "deterministic\"\nsubscribers = [\"10.0.0.0/24\"]\nports_per_subscriber = 64 # \"";
    for keys in ["preserve", "block", "address", arithmetic] {
        let text = pool(&format!("allocation = \"{keys}\""));
        parse(&format!("{text}\n{WORKERS}"), "t").expect("it is right");
    }
    let of_partner = PAIR.replace(":7600\" }", ":7600\", workers = 2 }");
    refused(&of_partner, "fleet.partner.workers");
}

#[test]
fn several_workers_share_hosts_with_numbers_and_services() {
    const WORKERS: &str = "[workers]\ncount = 2\n";
    let inside = PAIR.replace("[inside]\n", "[inside]\naddress6 = \"2001:db8:1::1/64\"\n");
    let nat64 = format!("{inside}\n[nat64]\nprefixes = [\"64:ff9b::/96\"]\n");
    let servers = "{ internal = \"10.0.0.8:80\" }, { internal = \"10.0.0.9:80\" }";
    let service =
        format!("{PAIR}\n[[static]]\nexternal = \"203.0.113.1:80\"\nservers = [{servers}]\n");
    let tunnels = "[dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    let (both, dslite) = (format!("{nat64}{tunnels}"), format!("{inside}\n{tunnels}"));
    for text in [nat64, dslite, both, service] {
        parse(&format!("{text}{WORKERS}"), "t").expect("it is right");
    }
}

#[test]
fn a_pair_refuses_what_it_does_not_share() {
    let gateways = format!("{PAIR}\n[alg]\nftp = true\nh323 = true\n");
    parse(&gateways, "t").expect("both are shared");
    let expected = "does not share calls of PPTP yet; take alg.pptp out";
    refused(&format!("{gateways}pptp = true\n"), expected);
    let inside = "[inside]\naddress6 = \"2001:db8:1::1/64\"\n";
    let tunnels = "[dslite]\naddress = \"2001:db8:1::ff\"\nb4 = [\"2001:db8:b4::/48\"]\n";
    let both = format!("{}\n{tunnels}", PAIR.replace("[inside]\n", inside));
    refused(&both, "2001:db8:1::ff is in the inside network, where both nodes would answer");
    let elsewhere = both.replace("1::ff", "ffff::1");
    parse(&elsewhere, "t").expect("it is on no link");
    let moving = elsewhere.replace("[dslite]\n", "[dslite]\nsubscriber_length = 56\n");
    refused(&moving, "tunnels that move within a prefix yet; take dslite.subscriber_length out");
    refused(&pool("overloading = true"), "does not share overloaded ports yet");
    let (before, _) = PAIR.split_once("# The number of this node's").expect("a comment");
    refused(before, "needs [state]");
    refused(&format!("{HEAD}[fleet]\n"), "fleet.partner: is missing");
}

/// A reload gives computed ports to other workers only if the node has one.
#[test]
fn several_workers_change_the_arithmetic_of_a_pool_at_a_restart() {
    const WORKERS: &str = "[workers]\ncount = 2\n";
    let keys = |subscribers: &str, ports: u16| {
        pool(&format!(
            "allocation = \"deterministic\"\nsubscribers = [\"{subscribers}\"]\n\
             ports_per_subscriber = {ports}"
        ))
    };
    let differ = |before: &str, after: &str, workers: &str| {
        let in_force = parse(&format!("{before}\n{workers}"), "t").expect("it is right");
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fleet-workers.toml");
        std::fs::write(&file, format!("{after}\n{workers}")).expect("written");
        let problems = reread(&file, &in_force).err().unwrap_or_default();
        texts(&problems)
    };
    let before = keys("10.0.0.0/24", 64);
    let (more, other) = (keys("10.0.0.0/24", 128), pool("allocation = \"preserve\""));
    let said = |key: &str| format!("{key}: gives ports of a pair to other workers");
    for (after, key) in [
        (&more, "pool[0].ports_per_subscriber"),
        (&keys("10.0.1.0/24", 64), "pool[0].subscribers"),
        (&other, "pool[0].allocation"),
    ] {
        let problems = differ(&before, after, WORKERS);
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.contains(&said(key)), "{problem}");
        assert!(differ(&before, after, "").is_empty(), "one worker knows which ports rest");
    }
    assert!(differ(&other, &before, WORKERS)[0].contains(&said("pool[0].allocation")));
    assert!(differ(&before, &format!("{before}\n[pcp]\nenabled = false\n"), WORKERS).is_empty());
    let preserved = pool("allocation = \"preserve\"\nports = \"2000-2999\"");
    assert!(differ(&other, &preserved, WORKERS).is_empty(), "any port may be any worker's");
    // An address does not change between a pool of whole addresses and another one.
    let two = |first: &str, second: &str| {
        let whole =
            format!("[[pool]]\nname = \"w\"\naddresses = [{second}]\nallocation = \"address\"");
        let others = format!("[[pool]]\nname = \"o\"\naddresses = [{first}]\n{whole}");
        PAIR.replace("[[pool]]\naddresses = [\"203.0.113.0/28\"]", &others)
    };
    let range = |first: u8, last: u8| format!("\"203.0.113.{first}-203.0.113.{last}\"");
    let before = two(&range(8, 15), &range(0, 7));
    for (first, second) in [(10, 9), (6, 5)] {
        let after = two(&range(first, 15), &range(0, second));
        let problems = differ(&before, &after, WORKERS);
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.contains("gives ports of a pair to other workers"), "{problem}");
        assert!(differ(&before, &after, "").is_empty());
    }
}
