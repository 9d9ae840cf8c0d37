//! `natgate trace -c` explains packets of IPv6, of translation between the families, and of
//! tunnels.

use super::bench::*;
use serde_json::{Value, json};

const NAT64: &str = "\
[inside]
device = \"eth1\"
address6 = \"2001:db8:1::1/64\"
[outside]
device = \"eth0\"
address = \"192.0.2.2/24\"
address6 = \"2001:db8:2::1/64\"
[[pool]]
addresses = [\"203.0.113.1\"]
[nat64]
subscribers = [\"2001:db8::/32\"]
[[nptv6]]
internal = \"fd00:1::/48\"
external = \"2001:db8:99::/48\"
[ipv6]
filter = \"outbound-only\"
[[static]]
protocol = \"udp\"
internal = \"[2001:db8:1::5]:53\"
external = \"203.0.113.1:53\"
";

const STATELESS: &str = "\
[inside]
device = \"eth1\"
address6 = \"2001:db8:1::1/64\"
[outside]
device = \"eth0\"
address = \"192.0.2.2/24\"
[siit]
prefixes = [\"2001:db8:100::/40\"]
[[siit.map]]
ipv6 = \"2001:db8:3::/120\"
ipv4 = \"198.18.0.0/24\"
[lw4o6]
address = \"2001:db8:ffff::2\"
bindings = \"bindings.csv\"
[[map]]
mode = \"translation\"
ipv6 = \"2001:db8:8000::/40\"
ipv4 = \"203.0.114.0/24\"
ea_length = 16
psid_offset = 6
dmr = \"2001:db8:d::/96\"
";

const DSLITE: &str = "\
[inside]
device = \"eth1\"
address6 = \"2001:db8:1::1/64\"
[outside]
device = \"eth0\"
address = \"192.0.2.2/24\"
[[pool]]
addresses = [\"203.0.113.1\"]
[dslite]
address = \"2001:db8:ffff::1\"
b4 = [\"2001:db8:b4::/48\"]
";

const CLAT: &str = "\
[inside]
device = \"eth1\"
address = \"192.168.1.1/24\"
[outside]
device = \"eth0\"
address6 = \"2001:db8:2::1/64\"
[nat]
subscribers = [\"192.168.1.0/24\"]
[clat]
prefix = \"64:ff9b::/96\"
source = \"2001:db8:aaaa::/96\"
";

struct Traces(Directory);

impl Traces {
    fn new(name: &str, config: &str) -> Self {
        let directory = Directory::new(name);
        directory.write("natgate.toml", config.as_bytes());
        directory.write("bindings.csv", b"203.0.115.5,0,8,3,2001:db8:b4::1\n");
        Self(directory)
    }

    fn run(&self, packet: &str, more: &[&str]) -> String {
        let arguments = [&["trace", "-c", "natgate.toml", packet], more].concat();
        let output = self.0.natgate(&arguments).output().unwrap();
        assert_succeeded(&output);
        String::from_utf8(output.stdout).unwrap()
    }

    /// The explanation of a packet. Its sentences have these parts, in order.
    fn ask(&self, packet: &str, parts: &[&str]) -> Value {
        let text = self.run(packet, &[]);
        let mut rest = &text[..];
        for part in parts {
            let at = rest.find(part).unwrap_or_else(|| panic!("{packet}: {part:?} in {text}"));
            rest = &rest[at + part.len()..];
        }
        serde_json::from_str(&self.run(packet, &["--json"])).unwrap()
    }
}

#[test]
fn nat64_is_explained_with_the_names_of_hosts() {
    let traces = Traces::new("trace-nat64", NAT64);
    let out = traces.ask(
        "udp [2001:db8:1::7]:4000 > [64:ff9b::198.51.100.10]:53",
        &[
            "udp [2001:db8:1::7]:4000 > [64:ff9b::c633:640a]:53, hop limit 64",
            "prefix 64:ff9b::/96 of [nat64] has its destination; it embeds 198.51.100.10",
            "its source is a subscriber (nat64.subscribers)",
            "host 2001:db8:1::7 of subscriber 2001:db8:1::/64, which has no mapping yet",
            "there is no mapping",
            "sent on by the outside",
            "DRAWN > 198.51.100.10:53",
        ],
    );
    assert_eq!((&out["verdict"], &out["direction"]), (&json!("forward"), &json!("outbound")));
    assert_eq!(out["certain"], true);
    let back = traces.ask(
        "udp 198.51.100.10:999 > 203.0.113.1:53",
        &[
            "static mapping [2001:db8:1::5]:53 = 203.0.113.1:53",
            "host 2001:db8:1::5 of subscriber 2001:db8:1::/64 gets it",
            "[64:ff9b::c633:640a]:999 > [2001:db8:1::5]:53",
        ],
    );
    assert_eq!(back["becomes"]["destination"], "[2001:db8:1::5]:53");
    let turned = traces.ask(
        "udp [2001:db8:1::7]:4000 > [64:ff9b::203.0.113.1]:53",
        &["hairpin path", "host 2001:db8:1::5 of", "DRAWN > [2001:db8:1::5]:53"],
    );
    assert_eq!(turned["direction"], "hairpin");
    let refused = traces.ask(
        "udp [2001:dead::1]:4000 > [64:ff9b::198.51.100.10]:53",
        &["its source is no subscriber: nat64.subscribers does not have it"],
    );
    assert_eq!(refused["reason"], "not_subscriber");
    let private = traces.ask("icmp 2001:db8:1::7 > 64:ff9b::10.1.2.3", &["it embeds 10.1.2.3"]);
    assert_eq!(private["reason"], "not_global");
}

#[test]
fn routed_packets_and_prefixes_are_explained() {
    let traces = Traces::new("trace-routed", NAT64);
    let routed = traces.ask(
        "tcp [2001:db8:1::7]:4000 > [2001:db8:77::1]:80",
        &["it is routed", "\"outbound-only\" lets it pass", "it leaves with 60 bytes"],
    );
    assert_eq!((&routed["verdict"], &routed["by"]), (&json!("forward"), &json!("outside")));
    let inbound = traces.ask(
        "tcp [2001:db8:77::1]:80 > [2001:db8:1::7]:4000",
        &["\"outbound-only\" does not let it pass"],
    );
    assert_eq!((&inbound["reason"], &inbound["from"]), (&json!("filtered"), &json!("outside")));
    traces.ask(
        "udp [fd00:1:0:1::5]:4000 > [2001:db8:77::1]:53",
        &["fd00:1:0:1::5 becomes 2001:db8:99:", "by nptv6 fd00:1::/48 = 2001:db8:99::/48"],
    );
    let expired = traces.ask(
        "udp [2001:db8:1::7]:4000 > [2001:db8:77::1]:53 ttl 1",
        &["its sender gets ICMPv6 3/0"],
    );
    assert_eq!(expired["reason"], "ttl_exceeded");
    let own = traces.ask("icmp 2001:db8:1::7 > 2001:db8:1::1", &["to the gateway itself"]);
    assert_eq!((&own["verdict"], &own["by"]), (&json!("reply"), &json!("inside")));
}

#[test]
fn stateless_tables_name_the_entry_that_decides() {
    let traces = Traces::new("trace-siit", STATELESS);
    traces.ask(
        "udp [2001:db8:3::9]:4000 > [2001:db8:1c6:3364:a::]:53",
        &[
            "2001:db8:3::9 becomes 198.18.0.9 by map 2001:db8:3::/120 = 198.18.0.0/24",
            "becomes 198.51.100.10 by prefix 2001:db8:100::/40",
            "198.18.0.9:4000 > 198.51.100.10:53",
        ],
    );
    let traces = Traces::new("trace-clat", CLAT);
    let out = traces.ask(
        "udp 192.168.1.7:4000 > 198.51.100.10:53",
        &["192.168.1.7 becomes 2001:db8:aaaa::c0a8:107 by prefix 2001:db8:aaaa::/96"],
    );
    assert_eq!(out["becomes"]["destination"], "[64:ff9b::c633:640a]:53");
    let back = traces.ask("udp [64:ff9b::c633:640a]:53 > [2001:db8:aaaa::c0a8:107]:4000", &[]);
    assert_eq!(back["becomes"]["destination"], "192.168.1.7:4000");
}

#[test]
fn customers_of_softwires_are_named_with_what_was_expected() {
    let traces = Traces::new("trace-softwires", STATELESS);
    // Port set 3 of 256 has the ports from 768 to 1023.
    let right = traces.ask(
        "udp 203.0.115.5:800 > 198.51.100.10:53 b4 2001:db8:b4::1",
        &[
            "the tunnel from 2001:db8:b4::1 to 2001:db8:ffff::2",
            "in it: udp 203.0.115.5:800 > 198.51.100.10:53",
            "a binding of [lw4o6] has its source 203.0.115.5:800, port set 3 of 256: customer \
             2001:db8:b4::1",
            "it came in the tunnel of this customer",
        ],
    );
    assert_eq!((&right["verdict"], &right["by"]), (&json!("forward"), &json!("outside")));
    let wrong = traces.ask(
        "udp 203.0.115.5:800 > 198.51.100.10:53 b4 2001:db8:b4::2",
        &["customer 2001:db8:b4::1", "expected was the one from 2001:db8:b4::1 to", "ICMPv6 1/5"],
    );
    assert_eq!(wrong["reason"], "softwire_source");
    let unbound = traces.ask(
        "udp 203.0.115.5:80 > 198.51.100.10:53 b4 2001:db8:b4::1",
        &["no binding of [lw4o6] and no rule of [[map]] has 203.0.115.5:80"],
    );
    assert_eq!(unbound["reason"], "no_binding");
    let inbound = traces.ask(
        "udp 198.51.100.10:53 > 203.0.115.5:800",
        &["has its destination 203.0.115.5:800", "in the tunnel to 2001:db8:b4::1"],
    );
    assert_eq!(inbound["becomes"]["tunnel"]["gateway"], "2001:db8:ffff::2");
    traces.ask(
        "udp 198.51.100.10:53 > 203.0.114.7:5000",
        &["rule 1 of [[map]] (2001:db8:8000::/40 = 203.0.114.0/24) has its destination"],
    );
}

#[test]
fn a_packet_of_map_t_has_the_port_set_of_its_address() {
    let traces = Traces::new("trace-map-t", STATELESS);
    let inbound = traces.ask("udp 198.51.100.10:53 > 203.0.114.7:5000", &[]);
    let customer = inbound["becomes"]["destination"].as_str().unwrap().to_owned();
    let address = customer.trim_start_matches('[').split(']').next().unwrap();
    let server = "[2001:db8:d::198.51.100.10]:53";
    let right = traces.ask(&format!("udp [{address}]:5000 > {server}"), &["has its source"]);
    assert_eq!(right["becomes"]["source"], "203.0.114.7:5000");
    let wrong = traces.ask(&format!("udp [{address}]:6000 > {server}"), &["has port set", "is in"]);
    assert_eq!(wrong["reason"], "softwire_source");
}

#[test]
fn hosts_behind_tunnels_are_named_by_tunnel_and_inner_address() {
    let traces = Traces::new("trace-dslite", DSLITE);
    let out = traces.ask(
        "udp 192.168.1.2:4000 > 198.51.100.10:53 b4 2001:db8:b4::1",
        &[
            "the tunnel from 2001:db8:b4::1 to 2001:db8:ffff::1",
            "the tunnel's end is a subscriber (dslite.b4)",
            "host 192.168.1.2 of subscriber 2001:db8:b4::1, which has no mapping yet",
            "DRAWN > 198.51.100.10:53",
        ],
    );
    assert_eq!((&out["verdict"], &out["by"]), (&json!("forward"), &json!("outside")));
    let stranger = traces.ask(
        "udp 192.168.1.2:4000 > 198.51.100.10:53 b4 2001:db8:bad::1 aftr 2001:db8:ffff::1",
        &["the tunnel's end is no subscriber: dslite.b4 does not have it"],
    );
    assert_eq!(stranger["reason"], "softwire_source");
}
