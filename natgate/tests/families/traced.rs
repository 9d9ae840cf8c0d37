//! traceroute sees every router on the path, of both families and from either side.
//!
//! ```text
//! client ---- home ---- [nat] ---- router ---- server
//!       IPv6       IPv6       IPv4        IPv4
//! ```
//!
//! natgate shows its own address on the asking side. An IPv4 router has the place of its address in
//! the prefix. An IPv6 router without an IPv4 address has the external address of the host, or the
//! `icmp_source` of a stateless translation.

use super::world::World;

/// Options of traceroute for probes by UDP, ICMP and TCP.
const KINDS: [&str; 3] = ["-U", "-I", "-T"];

const CLIENT: &str = "2001:db8:1::5";
const EXTERNAL: &str = "203.0.113.5";
const SERVER: &str = "198.51.100.10";

fn world() -> World {
    let world = World::new(&["client", "home", "nat", "router", "server"]);
    world.host(
        "client",
        &format!("address add {CLIENT}/64 dev eth0 nodad\nroute add ::/0 via 2001:db8:1::1\n"),
    );
    world.router(
        "home",
        "address add 2001:db8:1::1/64 dev inside nodad\n\
         address add 2001:db8:9::2/64 dev outside nodad\n\
         route add ::/0 via 2001:db8:9::1\n",
    );
    world.router(
        "router",
        "address add 192.0.2.1/24 dev inside\naddress add 198.51.100.1/24 dev outside\n\
         route add 203.0.113.0/24 via 192.0.2.2\n",
    );
    world.host(
        "server",
        &format!("address add {SERVER}/24 dev eth0\nroute add default via 198.51.100.1\n"),
    );
    world
}

fn config(tables: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:9::1/64\"\n\
         gateway6 = \"2001:db8:9::2\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n\
         gateway = \"192.0.2.1\"\n{tables}"
    )
}

/// Traces the path from the client to the server by a prefix, and the path back.
fn trace(world: &World, prefix: &str, home_outside: &str) {
    let (router, server) = (format!("{prefix}c000:201"), format!("{prefix}c633:640a"));
    for kind in KINDS {
        let hops = ["2001:db8:1::1", "2001:db8:9::1", &router, &server];
        assert_eq!(world.traceroute("client", &format!("-6 {kind}"), &server), hops, "{kind}");
        let hops = ["198.51.100.1", "192.0.2.2", home_outside, EXTERNAL];
        assert_eq!(world.traceroute("server", kind, EXTERNAL), hops, "{kind}");
    }
}

#[test]
fn nat64_shows_every_hop() {
    let world = world();
    let gateway = world.start(
        "nat",
        &config(&format!(
            "[[pool]]\naddresses = [\"203.0.113.1\"]\n[nat64]\n\
             [[static]]\ninternal = \"{CLIENT}\"\nexternal = \"{EXTERNAL}\"\n"
        )),
    );
    trace(&world, "64:ff9b::", EXTERNAL);
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn a_stateless_translation_shows_every_hop() {
    let world = world();
    let gateway = world.start(
        "nat",
        &config(&format!(
            "[siit]\nprefixes = [\"2001:db8:64::/96\"]\nicmp_source = [\"203.0.113.200\"]\n\
             [[siit.map]]\nipv6 = \"{CLIENT}\"\nipv4 = \"{EXTERNAL}\"\n"
        )),
    );
    trace(&world, "2001:db8:64::", "203.0.113.200");
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}
