//! Packets of IPv6 that are routed, without translation.

use super::world::World;
use std::net::IpAddr;

const SERVER: &str = "2001:db8:2::10";

fn config(more: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n\
         address6 = \"2001:db8:2::1/64\"\n\
         [[pool]]\naddresses = [\"203.0.113.1\"]\n[ipv6]\n{more}"
    )
}

fn world() -> World {
    let world = World::new(&["client", "nat", "server"]);
    world.host(
        "client",
        "address add 2001:db8:1::5/64 dev eth0 nodad\nroute add ::/0 via 2001:db8:1::1\n",
    );
    let server = format!(
        "address add {SERVER}/64 dev eth0 nodad\nroute add 2001:db8:1::/64 via 2001:db8:2::1\n"
    );
    world.host("server", &server);
    world
}

#[test]
fn packets_are_routed_both_ways() {
    let world = world();
    let gateway = world.start("nat", &config(""));
    let (server, client): (IpAddr, IpAddr) =
        (SERVER.parse().unwrap(), "2001:db8:1::5".parse().unwrap());
    world.serve("server", server);
    world.serve("client", client);
    world.ping("client", SERVER, "-s 1400");
    assert_eq!(world.tcp("client", server).ip(), client);
    assert_eq!(world.tcp("server", client).ip(), server);
    assert_eq!(world.udp("client", server, 3000).ip(), client);
    let said = world.run("client", "ping -n -c 1 -W 5 2001:db8:2::77");
    assert!(said.contains("From 2001:db8:1::1 ") && said.contains("Address unr"), "{said}");
    let said = world.run("client", "ping -n -c 1 -W 5 2001:db8:7::1");
    assert!(said.contains("From 2001:db8:1::1 ") && said.contains("No route"), "{said}");
    let said = world.run("client", &format!("ping -n -c 1 -W 5 -t 1 {SERVER}"));
    assert!(said.contains("From 2001:db8:1::1 ") && said.contains("Hop limit"), "{said}");
    let neighbors = &gateway.status().unwrap()["ipv6"]["inside"]["neighbors"];
    assert!(neighbors.to_string().contains("2001:db8:1::5"), "{neighbors}");
}

#[test]
fn a_filter_lets_in_what_the_inside_began() {
    let world = world();
    let _gateway = world.start("nat", &config("filter = \"outbound-only\"\n"));
    let server: IpAddr = SERVER.parse().unwrap();
    world.serve("server", server);
    let said = world.run("server", "ping -n -c 1 -W 1 2001:db8:1::5");
    assert!(said.contains(" 0 received"), "{said}");
    assert_eq!(world.tcp("client", server).ip().to_string(), "2001:db8:1::5");
    world.ping("client", SERVER, "");
}
