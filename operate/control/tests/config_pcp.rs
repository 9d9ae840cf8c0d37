//! `[pcp]`: what is read, what is refused and warned of, at its place.

mod common;

use common::{HEAD, texts};
use natgate_control::config::{parse, read_text};
use natgate_engine::Prefix;
use natgate_gateway::PcpSettings;
use natgate_gateway::ipv6::Prefix6;
use std::time::Duration;

#[track_caller]
fn refused(key: &str, expected: &str) {
    let text = format!("{HEAD}[pcp]\n{key}\n");
    let problems = read_text(&text, "t").err().unwrap_or_default();
    assert_eq!(texts(&problems), [expected], "{text}");
}

#[test]
fn nothing_is_served_unless_the_file_says_so() {
    let read = |more: &str| parse(&format!("{HEAD}{more}"), "t").unwrap();
    for silent in ["", "[pcp]\n", "[pcp]\nmappings = 7\n"] {
        let settings = read(silent);
        assert_eq!(settings.pcp, PcpSettings::default());
        assert!(!settings.pcp.enabled && settings.engine.limits.explicit_mappings == 0);
    }
    let usual = read("[pcp]\nenabled = true\n");
    assert!(usual.pcp.enabled);
    assert_eq!(usual.engine.limits.explicit_mappings, 65_536);
    assert_eq!(usual.engine.limits.explicit_per_subscriber, 64);
}

//= test rfc6887#section-15-configurable
#[test]
fn all_of_it_is_read() {
    let text = "[pcp]\nenabled = true\nmin_lifetime = \"5m\"\nmax_lifetime = \"2h\"\n\
                mappings = 100\n\
                mappings_per_subscriber = 3\nthird_party = [\"10.0.0.7/32\", \"10.9.0.0/16\"]\n\
                nat_pmp = false\nannounce = false\nport_set = 1\nrequests_per_second = 9\n\
                client_requests_per_second = 2\n";
    let read = parse(&format!("{HEAD}{text}"), "t").unwrap();
    let prefix = |address: [u8; 4], len| Prefix::new(address.into(), len);
    assert_eq!(
        read.pcp,
        PcpSettings {
            enabled: true,
            lifetime: (Duration::from_secs(300), Duration::from_secs(7200)),
            third_party: vec![prefix([10, 0, 0, 7], 32), prefix([10, 9, 0, 0], 16)],
            third_party_ipv6: Vec::new(),
            nat_pmp: false,
            announce: false,
            port_set: 1,
            requests_per_second: (2, 9),
        }
    );
    let limits = &read.engine.limits;
    assert_eq!((limits.explicit_mappings, limits.explicit_per_subscriber), (100, 3));
}

#[test]
fn hosts_of_nat64_may_speak_for_others() {
    let text = "[pcp]\nenabled = true\nthird_party = [\"10.0.0.7/32\", \"2001:db8:1::7/128\"]\n";
    let read = read_text(&format!("{HEAD}{text}[nat64]\n"), "t").unwrap().settings.pcp;
    assert_eq!(read.third_party, [Prefix::new([10, 0, 0, 7].into(), 32)]);
    let address = "2001:db8:1::7".parse().unwrap();
    assert_eq!(read.third_party_ipv6, [Prefix6 { address, len: 128 }]);
    refused(
        "third_party = [\"2001:db8:1::7/128\"]",
        "8:16 pcp.third_party[0]: is of IPv6, and no [nat64] translates for it; name hosts of IPv4",
    );
}

#[test]
fn b4s_may_be_trusted_whatever_the_number_of_workers() {
    let text = "[pcp]\nenabled = true\nthird_party = [\"192.0.0.2/32\", \"2001:db8:b4::/48\"]\n\
                [workers]\ncount = 2\n\
                [[route]]\nprefix = \"2001:db8::/32\"\nvia = \"fe80::9\"\nside = \"inside\"\n\
                [dslite]\naddress = \"2001:db8:ffff::1\"\nb4 = [\"2001:db8:b4::/40\"]\n";
    let read = read_text(&format!("{HEAD}{text}"), "t").unwrap().settings.pcp;
    assert_eq!(read.third_party, [Prefix::new([192, 0, 0, 2].into(), 32)]);
    let address = "2001:db8:b4::".parse().unwrap();
    assert_eq!(read.third_party_ipv6, [Prefix6 { address, len: 48 }]);
    // Beside NAT64, too; hosts of NAT64 need one worker.
    let both = format!("{text}subscriber_length = 64\n[nat64]\n");
    let beside = read_text(&format!("{HEAD}{both}"), "t").unwrap().settings.pcp;
    assert_eq!(beside, read);
    for other in ["2001:db8:500::/48", "2001:db8::/32"] {
        let text = format!("{HEAD}{}", both.replace("2001:db8:b4::/48", other));
        let problems = texts(&read_text(&text, "t").err().unwrap_or_default());
        assert!(problems[0].contains("that works with one worker so far"), "{problems:?}");
    }
}

#[test]
fn what_cannot_be_is_said() {
    refused(
        "min_lifetime = \"0s\"",
        "8:16 pcp.min_lifetime: 0s is out of bounds; it must be from 1s to 30d",
    );
    refused(
        "max_lifetime = \"31d\"",
        "8:16 pcp.max_lifetime: 31d is out of bounds; it must be from 1s to 30d",
    );
    refused(
        "max_lifetime = \"2500ms\"",
        "8:16 pcp.max_lifetime: must be whole seconds, as the protocol has it",
    );
    refused(
        "min_lifetime = \"2d\"",
        "8:16 pcp.min_lifetime: min_lifetime 2d is above max_lifetime 1d; exchange them",
    );
    refused(
        "max_lifetime = \"1m\"",
        "8:16 pcp.max_lifetime: min_lifetime 2m is above max_lifetime 1m; exchange them",
    );
    refused(
        "third_party = [\"0.0.0.0/0\"]",
        "8:16 pcp.third_party[0]: lets every subscriber take and give away the others' ports; name \
         hosts",
    );
    refused("mappings = 0", "8:12 pcp.mappings: 0 is out of bounds; it must be from 1 to 16777216");
    refused(
        "mappings_per_subscriber = 1025",
        "8:27 pcp.mappings_per_subscriber: 1025 is out of bounds; it must be from 1 to 1024",
    );
    refused("port_set = 257", "8:12 pcp.port_set: 257 is out of bounds; it must be from 1 to 256");
    refused(
        "requests_per_second = 0",
        "8:23 pcp.requests_per_second: 0 is out of bounds; it must be from 1 to 1000000",
    );
    let short = format!("{HEAD}[pcp]\nmin_lifetime = \"1m\"\n");
    assert_eq!(
        texts(&read_text(&short, "t").unwrap().warnings),
        ["8:16 pcp.min_lifetime: 1m is below the 2m that RFC 6887 section 15 asks for"]
    );
}

#[test]
fn admission_that_has_no_effect_or_is_off_is_warned_of() {
    let warned = |tables: &str, expected: &[&str]| {
        let read = read_text(&format!("{HEAD}{tables}"), "t").expect("it is right");
        assert_eq!(texts(&read.warnings), expected, "{tables}");
    };
    let pcp = "[pcp]\nenabled = true\n";
    warned(&format!("{pcp}[limits]\nasking_share = 10\n"), &[]);
    warned("[limits]\nunanswered_give_way = false\n", &[]);
    warned(
        "[limits]\nasking_share = 10\n",
        &["8:16 limits.asking_share: has no effect, because [pcp] is off; take it out"],
    );
    warned(
        &format!("{pcp}[limits]\nunanswered_give_way = false\nasking_share = 10\n"),
        &[
            "10:23 limits.unanswered_give_way: lets forged requests by PCP keep the places of all \
             subscribers for a lifetime; leave it true unless others check source addresses",
            "11:16 limits.asking_share: has no effect, because unanswered_give_way is false; take \
             it out",
        ],
    );
}

#[test]
fn what_only_a_restart_brings_is_said() {
    let of = |keys: &str| parse(&format!("{HEAD}[pcp]\n{keys}"), "t").unwrap().engine;
    let (off, few) = (of(""), of("enabled = true\nmappings = 1000\n"));
    let many = of("enabled = true\nmappings = 2000\n");
    assert_eq!(natgate_engine::restart_keys(&few, &many), ["pcp.mappings"]);
    assert!(natgate_engine::restart_keys(&many, &few).is_empty());
    // The first room for requested mappings can be made at any time.
    assert!(natgate_engine::restart_keys(&off, &few).is_empty());
}
