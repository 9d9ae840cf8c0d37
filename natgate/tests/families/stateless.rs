//! Translation without state: SIIT, NPTv6, and the customer's side of 464XLAT with a NAT64.

use super::world::World;
use std::net::IpAddr;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn siit_carries_both_directions() {
    let world = World::new(&["client", "nat", "server"]);
    world.host(
        "client",
        "address add 2001:db8:1::5/64 dev eth0 nodad\nroute add ::/0 via 2001:db8:1::1\n",
    );
    world.host(
        "server",
        "address add 192.0.2.1/24 dev eth0\nroute add 203.0.113.0/24 via 192.0.2.2\n",
    );
    let _gateway = world.start(
        "nat",
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n\
         [siit]\nprefixes = [\"2001:db8:100::/96\"]\n\
         [[siit.map]]\nipv6 = \"2001:db8:1::5\"\nipv4 = \"203.0.113.5\"\n",
    );
    let (server, server6) = (address("192.0.2.1"), address("2001:db8:100::192.0.2.1"));
    world.serve("server", server);
    world.serve("client", address("2001:db8:1::5"));
    world.ping("client", &server6.to_string(), "-s 1400");
    world.ping("server", "203.0.113.5", "-s 1400");
    assert_eq!(world.tcp("client", server6).ip(), address("203.0.113.5"));
    assert_eq!(world.udp("client", server6, 3000).ip(), address("203.0.113.5"));
    assert_eq!(world.tcp("server", address("203.0.113.5")).ip(), server6);
    assert_eq!(world.udp("server", address("203.0.113.5"), 1200).ip(), server6);
}

#[test]
fn nptv6_exchanges_prefixes() {
    let world = World::new(&["client", "nat", "server"]);
    world.host(
        "client",
        "address add fd01:203:405:1::5/64 dev eth0 nodad\n\
         route add ::/0 via fd01:203:405:1::1\n",
    );
    world.host(
        "server",
        "address add 2001:db8:2::10/64 dev eth0 nodad\n\
         route add 2001:db8:7::/48 via 2001:db8:2::1\n",
    );
    let _gateway = world.start(
        "nat",
        "[inside]\ndevice = \"inside\"\naddress6 = \"fd01:203:405:1::1/64\"\n\
         [outside]\ndevice = \"outside\"\naddress6 = \"2001:db8:2::1/64\"\n\
         [[nptv6]]\ninternal = \"fd01:203:405::/48\"\nexternal = \"2001:db8:7::/48\"\n",
    );
    let server = address("2001:db8:2::10");
    world.serve("server", server);
    world.serve("client", address("fd01:203:405:1::5"));
    world.ping("client", "2001:db8:2::10", "-s 1400");
    let seen = world.tcp("client", server).ip();
    let IpAddr::V6(external) = seen else { panic!("{seen} is IPv4") };
    assert_eq!(external.segments()[..3], [0x2001, 0xdb8, 7], "{external}");
    assert_eq!(world.udp("client", server, 1200).ip(), seen);
    assert_eq!(world.tcp("server", seen).ip(), server);
}

#[test]
fn a_clat_and_a_nat64_carry_ipv4_across_ipv6() {
    let world = World::new(&["client", "clat", "nat", "server"]);
    world.host("client", "address add 10.0.0.11/24 dev eth0\nroute add default via 10.0.0.1\n");
    world.host(
        "server",
        "address add 192.0.2.1/24 dev eth0\nroute add 203.0.113.0/24 via 192.0.2.2\n",
    );
    let _provider = world.start(
        "nat",
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:9::1/64\"\n\
         gateway6 = \"2001:db8:9::2\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n\
         [[pool]]\naddresses = [\"203.0.113.1\"]\n[nat64]\n",
    );
    let _customer = world.start(
        "clat",
        "[inside]\ndevice = \"inside\"\naddress = \"10.0.0.1/24\"\n\
         [outside]\ndevice = \"outside\"\naddress6 = \"2001:db8:9::2/64\"\n\
         gateway6 = \"2001:db8:9::1\"\n\
         [clat]\nprefix = \"64:ff9b::/96\"\nsource = \"2001:db8:aaaa::/96\"\n",
    );
    let server = address("192.0.2.1");
    world.serve("server", server);
    world.ping("client", "192.0.2.1", "");
    // A packet that is longer than `lowest_mtu` and may be cut is cut, and fragmented ICMP is not
    // translated.
    world.ping("client", "192.0.2.1", "-s 1200");
    world.ping("client", "10.0.0.1", "");
    assert_eq!(world.tcp("client", server).ip(), address("203.0.113.1"));
    assert_eq!(world.udp("client", server, 3000).ip(), address("203.0.113.1"));
    let said = world.run("client", "ping -n -c 1 -W 5 192.0.2.77");
    assert!(said.contains("unreachable") || said.contains("Unreachable"), "{said}");
}
