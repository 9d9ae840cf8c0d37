//! Softwires: the kernel is the customer's end of a tunnel. A source routes IPv4 packets into
//! IPv6 packets (`encap seg6`, without a routing header), and `End.DX4` takes them out.

use super::world::World;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use std::{fs, thread};

const SERVER: &str = "192.0.2.1";
const ADDRESS: &str = "203.0.113.9";

/// A customer: its end of the tunnel, the gateway's end, and its ports without gaps.
struct Customer {
    end: &'static str,
    gateway: &'static str,
    ports: (u16, u16),
}

/// Customer 0x12 of 256 at an address.
const LW4O6: Customer =
    Customer { end: "2001:db8:b4::1", gateway: "2001:db8:ffff::2", ports: (0x1200, 0x12ff) };

/// The same customer by a rule: the suffix of its address and its port set follow the prefix, and
/// its first four ports are 1096 to 1099.
const MAP_E: Customer = Customer {
    end: "2001:db8:8009:1200:0:cb00:7109:12",
    gateway: "2001:db8:ffff::3",
    ports: (1096, 1099),
};

fn world(customer: &Customer) -> World {
    let world = World::new(&["client", "nat", "server"]);
    let Customer { end, gateway, ports } = customer;
    world.host(
        "client",
        &format!(
            "address add 2001:db8:1::5/64 dev eth0 nodad\n\
             address add {ADDRESS}/32 dev lo\n\
             route add ::/0 via 2001:db8:1::1\n\
             sr tunsrc set {end}\n\
             route add 0.0.0.0/0 src {ADDRESS} \
             encap seg6 mode encap.red segs {gateway} dev eth0\n\
             route add {end}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev eth0\n"
        ),
    );
    let range = format!("sysctl -w net.ipv4.ip_local_port_range='{} {}'", ports.0, ports.1);
    assert!(world.run("client", &range).contains(" = "));
    world.host(
        "server",
        &format!("address add {SERVER}/24 dev eth0\nroute add 203.0.113.0/24 via 192.0.2.2\n"),
    );
    world
}

fn config(more: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
         gateway6 = \"2001:db8:1::5\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n{more}"
    )
}

/// Sends an echo request of the customer with an identifier; true if it is answered.
fn answered(world: &World, identifier: u16) -> bool {
    let said = world.run("client", &format!("ping -n -c 1 -W 1 -e {identifier} {SERVER}"));
    said.contains(" 1 received, ")
}

/// Everything that a customer does, and what it may not do.
fn try_customer(world: &World, customer: &Customer) {
    let (first, last) = customer.ports;
    let server: IpAddr = SERVER.parse().unwrap();
    world.serve("server", server);
    world.ping("client", SERVER, &format!("-s 1400 -e {last}"));
    for seen in [world.tcp("client", server), world.udp("client", server, 1200)] {
        assert_eq!(seen.ip().to_string(), ADDRESS);
        assert!((first..=last).contains(&seen.port()), "{seen}");
    }
    assert!(!answered(world, first - 1), "the neighbor's port set served the customer");
    let counters = world.ask("nat", &["show", "counters"]);
    let refused =
        ["softwire_source", "no_binding"].map(|reason| counters["drops"][reason].as_u64());
    assert_eq!(refused.map(Option::unwrap).iter().sum::<u64>(), 1, "{counters}");
}

#[test]
fn a_binding_connects_the_kernel_and_follows_its_file() {
    let world = world(&LW4O6);
    let bindings = world.file("bindings.csv");
    let line = format!("{ADDRESS},0,8,18,{}\n", LW4O6.end);
    fs::write(&bindings, &line).unwrap();
    let _gateway = world.start(
        "nat",
        &config(&format!("[lw4o6]\naddress = \"{}\"\nbindings = {bindings:?}\n", LW4O6.gateway)),
    );
    try_customer(&world, &LW4O6);
    let becomes = |expected: bool| {
        let end = Instant::now() + Duration::from_secs(20);
        while answered(&world, 0x1234) != expected {
            assert!(Instant::now() < end, "the file's change has no effect");
            thread::sleep(Duration::from_millis(100));
        }
    };
    fs::write(&bindings, line.replace(",18,", ",19,")).unwrap();
    becomes(false);
    fs::write(&bindings, format!("{line}a line that is wrong\n")).unwrap();
    thread::sleep(Duration::from_secs(2));
    assert!(!answered(&world, 0x1234), "half a file is in force");
    fs::write(&bindings, &line).unwrap();
    becomes(true);
}

#[test]
fn a_rule_of_map_e_connects_the_kernel() {
    let world = world(&MAP_E);
    let _gateway = world.start(
        "nat",
        &config(&format!(
            "[[map]]\nmode = \"encapsulation\"\nipv6 = \"2001:db8:8000::/40\"\n\
             ipv4 = \"203.0.113.0/24\"\nea_length = 16\npsid_offset = 6\nbr = \"{}\"\n",
            MAP_E.gateway
        )),
    );
    try_customer(&world, &MAP_E);
}
