//! Customers with a translator of their own, as RFC 7596, 7597 and 7599 have them: the kernel's NAT
//! puts a home's hosts behind the ports of the customer (nft), and the customer's router has the
//! tunnel, or tayga translates to IPv6.
//!
//! ```text
//! client ---- cpe ---- edge ---- [nat] ---- server
//!  10.0.0.11   NAT44    IPv4 in IPv6, or IPv4 as IPv6
//! ```

use super::world::World;
use std::net::IpAddr;

const SERVER: &str = "192.0.2.1";
/// The address that customers share.
const ADDRESS: &str = "203.0.113.9";
/// What fits the tunnel: the edge tells nobody that a packet does not.
const TUNNEL_MTU: u16 = 1460;
/// A customer's address by a rule of MAP: the suffix has the IPv4 address and the port set.
const BY_RULE: &str = "2001:db8:8009:1200:0:cb00:7109:12";
/// Two ranges of the customer's port set by the rule: it has four ports in each 1,024.
const RANGES: [(u16, u16); 2] = [(1096, 1099), (2120, 2123)];

/// The network, without the edge: the customer's translator uses these ports in turn.
fn world(ranges: [(u16, u16); 2]) -> World {
    let world = World::new(&["client", "cpe", "edge", "nat", "server"]);
    world.host("client", "address add 10.0.0.11/24 dev eth0\nroute add default via 10.0.0.1\n");
    world.router(
        "cpe",
        &format!(
            "link set outside mtu {TUNNEL_MTU}\n\
             address add 10.0.0.1/24 dev inside\naddress add {ADDRESS}/32 dev outside\n\
             route add 10.9.0.1/32 dev outside src {ADDRESS}\n\
             route add default via 10.9.0.1 src {ADDRESS}\n"
        ),
    );
    let protocols = ["tcp", "udp", "icmp"];
    let rules: String = protocols
        .iter()
        .flat_map(|protocol| ranges.into_iter().enumerate().map(move |it| (protocol, it)))
        .map(|(protocol, (turn, (first, last)))| {
            format!(
                "add rule ip nat post oifname outside meta l4proto {protocol} \
                 numgen inc mod {} == 0 snat to {ADDRESS}:{first}-{last};",
                2 - turn
            )
        })
        .collect();
    let said = world.run(
        "cpe",
        &format!(
            "nft 'add table ip nat; \
             add chain ip nat post {{ type nat hook postrouting priority srcnat; }}; {rules}'"
        ),
    );
    assert_eq!(said, "");
    world.host(
        "server",
        &format!("address add {SERVER}/24 dev eth0\nroute add 203.0.113.0/24 via 192.0.2.2\n"),
    );
    world
}

/// Makes the edge a router between the customer's translator and natgate, with more lines.
fn edge(world: &World, lines: &str) {
    world.router(
        "edge",
        &format!(
            "link set inside mtu {TUNNEL_MTU}\naddress add 10.9.0.1/32 dev inside\n\
             address add 2001:db8:1::5/64 dev outside nodad\n\
             route add {ADDRESS}/32 dev inside src 10.9.0.1\n\
             route add 2001:db8::/32 via 2001:db8:1::1\n{lines}"
        ),
    );
}

/// The customer's router puts IPv4 packets into IPv6 packets between these ends.
fn edge_of_tunnel(world: &World, end: &str, gateway: &str) {
    edge(
        world,
        &format!(
            "sr tunsrc set {end}\n\
             route add default encap seg6 mode encap.red segs {gateway} dev outside\n\
             route add {end}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev outside\n"
        ),
    );
}

fn config(tables: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
         gateway6 = \"2001:db8:1::5\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n{tables}"
    )
}

/// A rule of MAP with 256 customers at an address.
fn rule(mode: &str) -> String {
    config(&format!(
        "[[map]]\n{mode}\nipv6 = \"2001:db8:8000::/40\"\nipv4 = \"203.0.113.0/24\"\n\
         ea_length = 16\npsid_offset = 6\n"
    ))
}

/// What a host in the home does: the server sees the ports of the customer, from both ranges.
fn try_home(world: &World, ranges: [(u16, u16); 2]) {
    let server: IpAddr = SERVER.parse().unwrap();
    world.serve("server", server);
    for _ in ranges {
        world.ping("client", SERVER, "-s 1200");
    }
    let connect = || world.tcp("client", server);
    let ask = || world.udp("client", server, 1200);
    for what in [&connect as &dyn Fn() -> _, &ask] {
        let seen = [what(), what()];
        assert!(seen.iter().all(|seen| seen.ip().to_string() == ADDRESS), "{seen:?}");
        let has = |&(first, last): &(u16, u16)| {
            seen.iter().any(|seen| (first..=last).contains(&seen.port()))
        };
        assert!(ranges.iter().all(has), "{seen:?}");
    }
    // The datagram comes in fragments.
    assert_eq!(world.udp("client", server, 3000).ip().to_string(), ADDRESS);
    let counters = world.ask("nat", &["show", "counters"]);
    for reason in ["softwire_source", "no_binding"] {
        assert_eq!(counters["drops"][reason], 0, "{counters}");
    }
}

#[test]
fn lw4o6_carries_a_home() {
    const RANGES: [(u16, u16); 2] = [(0x1200, 0x1207), (0x1210, 0x1217)];
    let world = world(RANGES);
    edge_of_tunnel(&world, "2001:db8:b4::1", "2001:db8:ffff::2");
    let bindings = world.file("bindings.csv");
    std::fs::write(&bindings, format!("{ADDRESS},0,8,18,2001:db8:b4::1\n")).unwrap();
    let _gateway = world.start(
        "nat",
        &config(&format!("[lw4o6]\naddress = \"2001:db8:ffff::2\"\nbindings = {bindings:?}\n")),
    );
    try_home(&world, RANGES);
}

#[test]
fn map_e_carries_a_home() {
    let world = world(RANGES);
    edge_of_tunnel(&world, BY_RULE, "2001:db8:ffff::3");
    let mode = "mode = \"encapsulation\"\nbr = \"2001:db8:ffff::3\"";
    let _gateway = world.start("nat", &rule(mode));
    try_home(&world, RANGES);
}

#[test]
fn map_t_carries_a_home_behind_tayga() {
    let world = world(RANGES);
    edge(&world, "");
    world.tayga("edge", "2001:db8:ffff::/64", &[(ADDRESS, BY_RULE)]);
    let routes = format!("ip route add default dev tayga && ip route add {BY_RULE}/128 dev tayga");
    assert_eq!(world.run("edge", &routes), "");
    let _gateway =
        world.start("nat", &rule("mode = \"translation\"\ndmr = \"2001:db8:ffff::/64\""));
    try_home(&world, RANGES);
}
