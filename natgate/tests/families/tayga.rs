//! tayga, another translator without state: as the customer's side of 464XLAT before a NAT64, and
//! back to IPv4 what SIIT has translated to IPv6. It refuses addresses for documentation in the
//! well-known prefix.

use super::world::World;
use natgate_testnet::Gateway;
use std::net::IpAddr;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A client with IPv4 alone, tayga, a gateway with these tables, and a server with IPv4 alone.
fn behind_tayga(tables: &str) -> (World, Gateway) {
    let world = World::new(&["client", "clat", "nat", "server"]);
    world.host("client", "address add 10.0.0.11/24 dev eth0\nroute add default via 10.0.0.1\n");
    world.host(
        "server",
        "address add 192.0.2.1/24 dev eth0\nroute add 203.0.113.0/24 via 192.0.2.2\n",
    );
    let gateway = world.start(
        "nat",
        &format!(
            "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:9::1/64\"\n\
             gateway6 = \"2001:db8:9::2\"\n\
             [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n{tables}"
        ),
    );
    world.router(
        "clat",
        "address add 10.0.0.1/24 dev inside\n\
         address add 2001:db8:9::2/64 dev outside nodad\n\
         route add 2001:db8:64::/96 via 2001:db8:9::1\n",
    );
    world.tayga("clat", "2001:db8:64::/96", &[("10.0.0.11", "2001:db8:aaaa::11")]);
    let routes = "ip route add default dev tayga && ip route add 2001:db8:aaaa::/64 dev tayga";
    assert_eq!(world.run("clat", routes), "");
    (world, gateway)
}

#[test]
fn tayga_is_the_clat_of_a_nat64() {
    let (world, _gateway) = behind_tayga(
        "[[pool]]\naddresses = [\"203.0.113.1\"]\n[nat64]\nprefixes = [\"2001:db8:64::/96\"]\n",
    );
    let server = address("192.0.2.1");
    world.serve("server", server);
    world.ping("client", "192.0.2.1", "");
    world.ping("client", "192.0.2.1", "-s 1200");
    assert_eq!(world.tcp("client", server).ip(), address("203.0.113.1"));
    // The last datagram comes in fragments.
    for len in [1, 1200, 3000] {
        assert_eq!(world.udp("client", server, len).ip(), address("203.0.113.1"));
    }
    let said = world.run("client", "ping -n -c 1 -W 5 192.0.2.77");
    assert!(said.contains("unreachable") || said.contains("Unreachable"), "{said}");
}

#[test]
fn tayga_and_natgate_translate_without_state_to_ipv6_and_back() {
    let (world, _gateway) = behind_tayga(
        "[siit]\nprefixes = [\"2001:db8:64::/96\"]\n\
         [[siit.map]]\nipv6 = \"2001:db8:aaaa::11\"\nipv4 = \"203.0.113.11\"\n",
    );
    let (server, client) = (address("192.0.2.1"), address("203.0.113.11"));
    world.serve("server", server);
    world.serve("client", address("10.0.0.11"));
    world.ping("client", "192.0.2.1", "-s 1200");
    world.ping("server", "203.0.113.11", "-s 1200");
    assert_eq!(world.tcp("client", server).ip(), client);
    assert_eq!(world.tcp("server", client).ip(), server);
    for len in [1, 1200, 3000] {
        assert_eq!(world.udp("client", server, len).ip(), client);
        assert_eq!(world.udp("server", client, len).ip(), server);
    }
}
