//! Other programs beside natgate: BIND as DNS64, and the kernel's translation of prefixes as a
//! second opinion.

use super::nat64;
use super::world::World;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

/// Source addresses whose translation is compared: several subnets and interface identifiers.
const SOURCES: [&str; 5] = [
    "fd01:203:405:1::1234",
    "fd01:203:405::5",
    "fd01:203:405:2ab0::5",
    "fd01:203:405:d54e:1234:5678:9abc:def0",
    "fd01:203:405:fffe:ffff:ffff:ffff:fffe",
];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A host with addresses in many subnets, and a server that knows them by another prefix.
fn renumbered() -> World {
    let world = World::new(&["client", "nat", "server"]);
    let own: String =
        SOURCES.iter().map(|source| format!("address add {source}/128 dev lo\n")).collect();
    world.host(
        "client",
        &format!(
            "address add fd01:203:405:99::5/64 dev eth0 nodad\n{own}\
             route add ::/0 via fd01:203:405:99::1\n"
        ),
    );
    world.host(
        "server",
        "address add 2001:db8:2::10/64 dev eth0 nodad\n\
         route add 2001:db8:7::/48 via 2001:db8:2::1\n",
    );
    world.serve("server", address("2001:db8:2::10"));
    world
}

/// Sources as the server sees them; each gets its answer.
fn external_sources(world: &World) -> Vec<IpAddr> {
    let seen = |source: &&str| {
        let from = SocketAddr::new(address(source), 0);
        world.udp_from("client", from, address("2001:db8:2::10"), 100).ip()
    };
    SOURCES.iter().map(seen).collect()
}

#[test]
fn the_kernel_translates_prefixes_to_the_same_addresses() {
    let by_natgate = {
        let world = renumbered();
        let _gateway = world.start(
            "nat",
            "[inside]\ndevice = \"inside\"\naddress6 = \"fd01:203:405:99::1/64\"\n\
             [outside]\ndevice = \"outside\"\naddress6 = \"2001:db8:2::1/64\"\n\
             [[route]]\nprefix = \"fd01:203:405::/48\"\nvia = \"fd01:203:405:99::5\"\n\
             side = \"inside\"\n\
             [[nptv6]]\ninternal = \"fd01:203:405::/48\"\nexternal = \"2001:db8:7::/48\"\n",
        );
        external_sources(&world)
    };
    let world = renumbered();
    let prefixes = ["fd01:203:405::/48", "2001:db8:7::/48"];
    let [internal, external] = prefixes;
    world.router(
        "nat",
        &format!(
            "address add fd01:203:405:99::1/64 dev inside nodad\n\
             address add 2001:db8:2::1/64 dev outside nodad\n\
             route add {internal} via fd01:203:405:99::5\n"
        ),
    );
    let said = world.run(
        "nat",
        &format!(
            "ip6tables -t mangle -A POSTROUTING -o outside -s {internal} \
             -j SNPT --src-pfx {internal} --dst-pfx {external} && \
             ip6tables -t mangle -A PREROUTING -i outside -d {external} \
             -j DNPT --src-pfx {external} --dst-pfx {internal}"
        ),
    );
    assert_eq!(said, "");
    assert_eq!(by_natgate, external_sources(&world));
}

/// Configuration of BIND: one zone, and addresses for names without IPv6.
fn named_config(directory: &str) -> String {
    format!(
        "options {{ directory \"{directory}\"; pid-file none; session-keyfile none; \
         listen-on {{ {}; }}; listen-on-v6 {{ none; }}; recursion no; dnssec-validation no; \
         minimal-responses yes; allow-query {{ any; }}; \
         dns64 64:ff9b::/96 {{ clients {{ any; }}; }}; }};\n\
         controls {{ }};\n\
         zone \"example\" {{ type primary; file \"example.zone\"; }};\n",
        nat64::SERVER
    )
}

/// The IPv6 address of a name, by a server's answer to the client.
fn resolve(world: &World, name: &str, server: IpAddr) -> IpAddr {
    const AAAA: u8 = 28;
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.extend([0, 0, AAAA, 0, 1]);
    let socket = world.enter("client", || UdpSocket::bind("[::]:0").unwrap());
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let ask = || {
        let mut answer = [0; 512];
        socket.send_to(&query, SocketAddr::new(server, 53)).unwrap();
        socket.recv_from(&mut answer).map(|(len, _)| (len, answer)).unwrap()
    };
    // A server that has not read its zones yet has no answer (code 2).
    let is_late = |answer: &[u8]| answer[3] & 0x0f == 2;
    let (mut len, mut answer) = ask();
    for _ in 0..100 {
        if !is_late(&answer) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
        (len, answer) = ask();
    }
    // One answer, no error, and nothing behind the answer.
    assert_eq!((answer[3] & 0x0f, &answer[6..8]), (0, &[0, 1][..]), "{:x?}", &answer[..len]);
    let octets: [u8; 16] = answer[len - 16..len].try_into().unwrap();
    IpAddr::from(octets)
}

#[test]
fn bind_gives_names_without_ipv6_addresses_in_the_prefix() {
    let world = nat64::world();
    let _gateway = world.start("nat", &nat64::config("", ""));
    let zone = format!(
        "$TTL 60\n@ SOA ns.example. nobody.example. 1 60 60 60 60\n@ NS ns.example.\n\
         ns A {0}\nfour A {0}\nsix AAAA 2001:db8:5::5\n",
        nat64::SERVER
    );
    let file = world.file("example.zone");
    std::fs::write(&file, zone).unwrap();
    let directory = file.trim_end_matches("example.zone");
    let config = world.file("named.conf");
    std::fs::write(&config, named_config(directory)).unwrap();
    world.spawn("server", "named", &["-g", "-c", &config], 53);
    world.serve("server", address(nat64::SERVER));
    // The question goes through NAT64, too.
    let resolver = address(&format!("64:ff9b::{}", nat64::SERVER));
    assert_eq!(resolve(&world, "six.example", resolver), address("2001:db8:5::5"));
    let found = resolve(&world, "four.example", resolver);
    assert_eq!(found, resolver);
    world.tcp("client", found);
}
