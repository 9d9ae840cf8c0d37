//! NAT64: a client with IPv6 alone and a server with IPv4 alone.

use super::PROGRAM;
use super::world::World;
use natgate_testnet::wait_for;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

pub(crate) const CLIENT: &str = "2001:db8:1::5";
pub(crate) const SERVER: &str = "198.51.100.10";
const SERVER6: &str = "64:ff9b::198.51.100.10";
const EXTERNAL: &str = "203.0.113.1";
/// A static mapping of a host, which has a number from the start.
const STATIC_HOST: &str = "[[static]]\nprotocol = \"tcp\"\ninternal = \"[2001:db8:1:7::80]:80\"\n\
     external = \"203.0.113.1:8080\"\n";

/// Configuration, with more keys of the outside, and more tables.
pub(crate) fn config(outside: &str, more: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\ngateway = \"192.0.2.1\"\n\
         {outside}\
         [[pool]]\naddresses = [\"{EXTERNAL}\"]\n[nat64]\n{more}"
    )
}

/// A host with IPv6 alone, a gateway, and a server with IPv4 alone.
pub(crate) fn world() -> World {
    let world = World::new(&["client", "nat", "server"]);
    world.host(
        "client",
        &format!("address add {CLIENT}/64 dev eth0 nodad\nroute add ::/0 via 2001:db8:1::1\n"),
    );
    world.host(
        "server",
        &format!(
            "address add 192.0.2.1/24 dev eth0\naddress add {SERVER}/32 dev lo\n\
             route add 203.0.113.0/24 via 192.0.2.2\n"
        ),
    );
    world
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_host_with_ipv6_alone_reaches_ipv4() {
    let world = world();
    let gateway = world.start("nat", &config("", ""));
    world.serve("server", address(SERVER));
    world.ping("client", SERVER6, "");
    world.ping("client", SERVER6, "-s 1400");
    world.ping("client", "2001:db8:1::1", "");
    let seen = world.tcp("client", address(SERVER6));
    assert_eq!(seen.ip(), address(EXTERNAL));
    // The last datagram comes in fragments.
    for len in [1, 1300, 3000] {
        assert_eq!(world.udp("client", address(SERVER6), len).ip(), address(EXTERNAL));
    }
    let status = gateway.status().unwrap();
    let counts = &status["counters"]["packets"];
    assert!(counts["outbound"]["forwarded"].as_u64() > Some(100), "{counts}");
    assert!(counts["inbound"]["forwarded"].as_u64() > Some(100), "{counts}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn the_host_may_be_the_kernel_at_the_other_end_of_a_tun_device() {
    let world = World::new(&["nat", "server"]);
    world.host(
        "server",
        &format!(
            "address add 192.0.2.1/24 dev eth0\naddress add {SERVER}/32 dev lo\n\
             route add 203.0.113.0/24 via 192.0.2.2\n"
        ),
    );
    let made = world.run(
        "nat",
        &format!(
            "ip tuntap add dev inside mode tun && \
             echo 0 > /proc/sys/net/ipv6/conf/inside/disable_ipv6 && \
             ip link set inside up && ip address add {CLIENT}/64 dev inside && \
             ip route add 64:ff9b::/96 dev inside"
        ),
    );
    assert_eq!(made, "");
    let tun = config("", "").replacen("\"inside\"", "\"inside\"\nbackend = \"tun\"", 1);
    let gateway = world.start("nat", &tun);
    world.serve("server", address(SERVER));
    world.ping("nat", "2001:db8:1::1", "");
    world.ping("nat", SERVER6, "");
    assert_eq!(world.tcp("nat", address(SERVER6)).ip(), address(EXTERNAL));
    for len in [1, 3000] {
        assert_eq!(world.udp("nat", address(SERVER6), len).ip(), address(EXTERNAL));
    }
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn an_explanation_says_what_happens() {
    let world = world();
    let gateway = world.start("nat", &config("", ""));
    let trace = |packet: &str| world.ask("nat", &["trace", packet]);
    let steps = |object: &Value, wanted: &str| {
        let steps = object["steps"].as_array().cloned().unwrap_or_default();
        steps.into_iter().find(|step| step["step"] == wanted)
    };
    let ping = format!("icmp {CLIENT} > 64:ff9b::{SERVER} id 77");
    let new = trace(&ping);
    assert_eq!(steps(&new, "host").unwrap()["new"], true, "{new:#}");
    world.serve("server", address(SERVER));
    let seen = world.udp("client", address(SERVER6), 30);
    // What was asked has left no host behind, and the datagram has one.
    let known = trace(&ping);
    assert_eq!(steps(&known, "host").unwrap()["new"], false, "{known:#}");
    assert_eq!((&known["verdict"], &known["by"]), (&"forward".into(), &"outside".into()));
    assert!(steps(&known, "route").unwrap()["neighbor"].is_string(), "{known:#}");
    let back = trace(&format!("udp {SERVER}:7000 > {seen}"));
    let mapping = steps(&back, "mapping").unwrap();
    assert!(mapping["internal"].as_str().unwrap().starts_with("[2001:db8:1::5]:"), "{back:#}");
    let route = steps(&back, "route").unwrap();
    assert_eq!(route["next_hop"], CLIENT);
    // Nobody has confirmed the neighbor for some seconds on a busy machine.
    let known = ["reachable", "stale", "delay", "probe"];
    assert!(known.iter().any(|state| route["state"] == *state), "{back:#}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn af_xdp_carries_both_families() {
    let world = world();
    // Hosts of this machine have to finish their checksums.
    for node in ["client", "server"] {
        world.run(node, "ethtool -K eth0 tx off");
    }
    let config = config("", "").replace("\ndevice = ", "\nbackend = \"af-xdp\"\ndevice = ");
    let gateway = world.start("nat", &config);
    assert!(gateway.log().contains("inside device inside: AF_XDP"), "{}", gateway.log());
    world.serve("server", address(SERVER));
    world.ping("client", SERVER6, "-s 1400");
    assert_eq!(world.tcp("client", address(SERVER6)).ip(), address(EXTERNAL));
    assert_eq!(world.udp("client", address(SERVER6), 3000).ip(), address(EXTERNAL));
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn errors_come_as_icmpv6() {
    let world = world();
    let _gateway = world.start("nat", &config("mtu = 1300\n", ""));
    world.serve("server", address(SERVER));
    let ping = |to: &str, more: &str| {
        world.run("client", &format!("ping -n -c 1 -W 5 {more} 64:ff9b::{to}"))
    };
    let said = ping("192.0.2.77", "");
    assert!(said.contains("From 2001:db8:1::1 ") && said.contains("unreachable"), "{said}");
    let said = ping(SERVER, "-t 1");
    assert!(said.contains("From 2001:db8:1::1 ") && said.contains("Hop limit"), "{said}");
    // A private address does not stand in the well-known prefix.
    let said = ping("10.1.2.3", "");
    assert!(!said.contains(" 1 received"), "{said}");
    // The sender of packets that do not fit outside is told, and learns the path's length.
    assert_eq!(world.tcp("client", address(SERVER6)).ip(), address(EXTERNAL));
}

#[test]
fn hosts_are_named_by_their_addresses() {
    let world = world();
    let events = world.file("events.jsonl");
    let spool = world.file("spool");
    let log = format!(
        "[[log]]\nkind = \"file\"\npath = {events:?}\n\
         [[log]]\nkind = \"spool\"\nfolder = {spool:?}\n"
    );
    let gateway = world.start("nat", &config("", &log));
    world.serve("server", address(SERVER));
    let seen = world.udp("client", address(SERVER6), 10);
    let (subscriber, host) = ("2001:db8:1::/64", format!("[{CLIENT}]:"));
    let is_named = |entry: &Value| {
        let internal = entry["internal"].as_str().unwrap_or_default();
        entry["subscriber"] == subscriber && internal.starts_with(&host)
    };
    for asked in [&[][..], &["--subscriber", CLIENT], &["--subscriber", subscriber]] {
        for table in ["mappings", "sessions"] {
            let shown = world.ask("nat", &[&["show", table], asked].concat());
            let entries = shown[table].as_array().unwrap();
            assert!(!entries.is_empty() && entries.iter().all(is_named), "{table}: {shown}");
        }
    }
    let shown = world.ask("nat", &["show", "mappings", "--subscriber", "2001:db8:1::6"]);
    assert_eq!(shown["mappings"], serde_json::json!([]), "{shown}");
    let shown = world.ask("nat", &["show", "subscribers"]);
    assert_eq!(shown["subscribers"][0]["subscriber"], subscriber, "{shown}");
    let shown = world.ask("nat", &["who", &seen.to_string(), "--protocol", "udp"]);
    assert!(is_named(&shown), "{shown}");
    let asked = ["who", &seen.to_string(), "--protocol", "udp", "--at", "now"];
    let shown = world.ask("nat", &asked);
    assert!(is_named(&shown) && shown["since"].is_number(), "{shown}");
    let shown = world.ask("nat", &["who", subscriber]);
    assert!(is_named(&shown), "{shown}");
    let shown = world.ask("nat", &["show", "neighbors"]);
    let neighbors = shown["neighbors"].as_array().unwrap();
    assert!(neighbors.iter().any(|one| one["address"] == CLIENT), "{shown}");
    let cleared = world.ask("nat", &["clear", "mappings", "--subscriber", subscriber]);
    assert!(cleared["cleared"].as_u64() > Some(0), "{cleared}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
    let lines = std::fs::read_to_string(&events).unwrap();
    for event in ["mapping_created", "mapping_removed"] {
        let mut found = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        assert!(found.any(|line| line["event"] == event && is_named(&line)), "{event}: {lines}");
    }
}

#[test]
fn a_capture_has_packets_of_both_families() {
    let world = world();
    let gateway = world.start("nat", &config("", ""));
    world.serve("server", address(SERVER));
    let file = world.file("host.pcapng");
    let mut capture = Command::new(PROGRAM)
        .args(["capture", "--subscriber", CLIENT, "--protocol", "udp", "--count", "4"])
        .args(["--write", &file, "--socket", &world.socket("nat")])
        .spawn()
        .unwrap();
    // The head is written as soon as packets are copied.
    let begun = || Ok(std::fs::metadata(&file).is_ok_and(|file| file.len() > 0).then_some(()));
    wait_for("the capture", Duration::from_secs(30), begun).unwrap();
    world.udp("client", address(SERVER6), 10);
    assert!(capture.wait().unwrap().success());
    let fields = ["frame.interface_name", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst"];
    let said =
        world.run("nat", &format!("tshark -n -r {file} -T fields -e {}", fields.join(" -e ")));
    let packets: Vec<Vec<&str>> = said
        .lines()
        .filter(|line| line.contains("side\t"))
        .map(|line| line.split('\t').filter(|field| !field.is_empty()).collect())
        .collect();
    let server6 = address(SERVER6).to_string();
    let expected = [
        ["inside", CLIENT, &server6],
        ["outside", EXTERNAL, SERVER],
        ["outside", SERVER, EXTERNAL],
        ["inside", &server6, CLIENT],
    ];
    assert_eq!(packets, expected, "{said}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn a_reload_keeps_the_mappings_of_hosts() {
    let world = world();
    let gateway = world.start("nat", &config("", ""));
    world.serve("server", address(SERVER));
    let seen = world.udp("client", address(SERVER6), 10);
    let mappings = || world.ask("nat", &["show", "mappings"])["mappings"].clone();
    let file = world.file("natgate.toml");
    let changed = std::fs::read_to_string(&file).unwrap() + "[timeouts]\nudp = \"10m\"\n";
    std::fs::write(&file, &changed).unwrap();
    world.ask("nat", &["reload"]);
    assert_eq!(mappings()[0]["external"], seen.to_string());
    world.ping("client", SERVER6, "");
    std::fs::write(&file, changed.replace("[nat64]", "[nat64]\nsubscriber_length = 56")).unwrap();
    let said = world.run("nat", &format!("{PROGRAM} reload --socket {}", world.socket("nat")));
    assert!(said.contains("nat64: changes only at a restart"), "{said}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

/// Static mappings of the client: the server's port, outside as 9000 and more.
fn static_ports(hosts: &[&str]) -> String {
    let one = |(number, host): (usize, &&str)| {
        let (host, external) = (format!("[{host}]:7000"), format!("{EXTERNAL}:{}", 9000 + number));
        format!("[[static]]\ninternal = \"{host}\"\nexternal = \"{external}\"\n")
    };
    hosts.iter().enumerate().map(one).collect()
}

#[test]
fn a_static_mapping_serves_ipv4_clients_over_reloads() {
    let world = world();
    let gateway = world.start("nat", &config("", &static_ports(&[CLIENT])));
    world.serve("client", address(CLIENT));
    // The host has not sent anything yet.
    let seen = world.tcp_to("server", &format!("{EXTERNAL}:9000"));
    assert_eq!(seen.ip(), address("64:ff9b::192.0.2.1"));
    let shown = world.ask("nat", &["who", &format!("{EXTERNAL}:9000"), "--protocol", "tcp"]);
    assert_eq!(shown["internal"], format!("[{CLIENT}]:7000"), "{shown}");
    // Other hosts come first in the new file, so the client has another place there.
    let hosts = ["2001:db8:1::99", "2001:db8:1:1::9", CLIENT];
    let file = world.file("natgate.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let after = before.replace(&static_ports(&[CLIENT]), &static_ports(&hosts));
    std::fs::write(&file, &after).unwrap();
    let changed = world.ask("nat", &["reload"]);
    assert_eq!(changed["changed"], serde_json::json!(["static"]), "{changed}");
    assert_eq!(world.tcp_to("server", &format!("{EXTERNAL}:9002")).ip(), seen.ip());
    // The mapping of before has gone with its line.
    std::fs::write(&file, &before).unwrap();
    world.ask("nat", &["reload", "--dry-run"]);
    world.ask("nat", &["reload"]);
    assert_eq!(world.tcp_to("server", &format!("{EXTERNAL}:9000")).ip(), seen.ip());
    let shown = world.ask("nat", &["show", "mappings"]);
    let all = shown["mappings"].as_array().unwrap();
    let fixed = all.iter().filter(|one| one["kind"] == "static" && one["protocol"] == "tcp");
    let ends: Vec<&Value> = fixed.map(|one| &one["internal"]).collect();
    assert_eq!(ends, [&Value::from(format!("[{CLIENT}]:7000"))], "{shown}");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn workers_share_the_hosts() {
    for backend in ["af-packet", "af-xdp"] {
        let world = world();
        for node in ["client", "server"] {
            world.run(node, "ethtool -K eth0 tx off");
        }
        let hosts: Vec<String> = (0x10..0x20).map(|last| format!("2001:db8:1::{last:x}")).collect();
        for host in &hosts {
            world.run("client", &format!("ip address add {host}/64 dev eth0 nodad"));
        }
        let more = "subscriber_length = 128\n[workers]\ncount = 2\n";
        let device = format!("\nbackend = \"{backend}\"\ndevice = ");
        let gateway = world.start("nat", &config("", more).replace("\ndevice = ", &device));
        world.serve("server", address(SERVER));
        for host in &hosts {
            world.ping("client", SERVER6, &format!("-I {host} -s 1400"));
        }
        assert_eq!(world.tcp("client", address(SERVER6)).ip(), address(EXTERNAL));
        // The datagram comes in fragments both ways.
        assert_eq!(world.udp("client", address(SERVER6), 3000).ip(), address(EXTERNAL));
        let workers = world.ask("nat", &["show", "workers"]);
        let workers = workers["workers"].as_array().cloned().unwrap_or_default();
        assert_eq!(workers.len(), 2, "{workers:#?}");
        assert!(workers.iter().all(|one| one["mappings"].as_u64() > Some(2)), "{workers:#?}");
        // Lists have the names of the hosts of both workers.
        let mappings = world.ask("nat", &["show", "mappings"]);
        let mappings = mappings["mappings"].as_array().cloned().unwrap_or_default();
        let is_named = |host: &String| {
            mappings.iter().any(|one| one["subscriber"] == format!("{host}/128"))
                || mappings.iter().any(|one| one["subscriber"] == *host)
        };
        assert!(hosts.iter().all(is_named), "{mappings:#?}");
        assert_eq!(gateway.stop().unwrap().code(), Some(0));
    }
}

#[test]
fn a_new_process_takes_over_the_hosts() {
    let world = world();
    world.serve("server", address(SERVER));
    for (workers, more) in [("", ""), ("[workers]\ncount = 2\n", STATIC_HOST)] {
        let config = config("", &format!("{more}{workers}"));
        let old = world.start("nat", &config);
        let (mut stream, seen) = world.connect("client", address(SERVER6));
        let before = world.ask("nat", &["show", "mappings", "--subscriber", "2001:db8:1::/64"]);
        let new = world.take_over("nat", &config);
        assert_eq!(old.wait().unwrap().code(), Some(0));
        // The connection goes on, and the host has its name and its number.
        stream.write_all(b"still connected").unwrap();
        let mut back = [0; 15];
        stream.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"still connected");
        let after = world.ask("nat", &["show", "mappings", "--subscriber", "2001:db8:1::/64"]);
        let ends = |shown: &Value| {
            let all = shown["mappings"].as_array().unwrap().iter();
            let ends = |one: &Value| (one["internal"].clone(), one["external"].clone());
            all.map(ends).collect::<Vec<_>>()
        };
        assert_eq!(ends(&after), ends(&before));
        assert_eq!(world.udp("client", address(SERVER6), 30).ip(), seen.ip());
        assert_eq!(new.stop().unwrap().code(), Some(0));
    }
}

#[test]
fn hosts_whose_numbers_would_change_are_not_taken_over() {
    let world = world();
    world.serve("server", address(SERVER));
    let old = world.start("nat", &config("", ""));
    let (mut stream, _) = world.connect("client", address(SERVER6));
    // The first number is now that of another host.
    let error = world.refused_take_over("nat", &config("", STATIC_HOST));
    assert!(error.contains("has another number by this configuration"), "{error}");
    stream.write_all(b"still connected").unwrap();
    stream.read_exact(&mut [0; 15]).unwrap();
    assert_eq!(old.stop().unwrap().code(), Some(0));
}
