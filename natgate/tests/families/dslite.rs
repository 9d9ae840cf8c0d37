//! DS-Lite: two customers with one inner address, each a kernel or a socket at the end of its
//! tunnel.
//!
//! ```text
//! client eth0 ---- inside home outside ---- inside [nat] outside ---- eth0 server
//! ```
//!
//! `home` is a router of the access network and a customer of its own. The kernel's `End.DX4` takes
//! no fragments, so large packets have a socket at the end of their tunnel, and the kernel puts the
//! outer packets together.

use super::world::{PORT, World};
use natgate_testnet::Gateway;
use natgate_wire::Ipv4;
use natgate_wire::checksum::checksum;
use serde_json::Value;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

const AFTR: &str = "2001:db8:ffff::1";
/// The ends of the tunnels: of the client's kernel, of the client's socket, of the home's kernel.
pub(crate) const CLIENT: &str = "2001:db8:b4::1";
const SOCKET: &str = "2001:db8:b4::3";
pub(crate) const HOME: &str = "2001:db8:b4:1::1";
/// An end outside `dslite.b4`.
const FORGED: &str = "2001:db8:bad::1";
/// The inner address of all.
pub(crate) const INNER: &str = "192.168.1.2";
pub(crate) const EXTERNAL: &str = "203.0.113.1";
const SERVER: &str = "192.0.2.1";
/// The next header of IPv4 in IPv6.
const IPV4: i32 = 4;

/// The kernel at the end of a tunnel, with the route through the tunnel by a device.
fn kernel_b4(end: &str, device: &str) -> String {
    format!(
        "address add {INNER}/32 dev lo\n\
         sr tunsrc set {end}\n\
         route add 0.0.0.0/0 src {INNER} encap seg6 mode encap.red segs {AFTR} dev {device}\n\
         route add {end}/128 encap seg6local action End.DX4 nh4 0.0.0.0 dev {device}\n"
    )
}

pub(crate) fn world() -> World {
    let world = World::new(&["client", "home", "nat", "server"]);
    world.host(
        "client",
        &format!(
            "address add 2001:db8:2::5/64 dev eth0 nodad\n\
             route add ::/0 via 2001:db8:2::1\n\
             address add {SOCKET}/128 dev lo nodad\n\
             address add {FORGED}/128 dev lo nodad\n\
             {}",
            kernel_b4(CLIENT, "eth0")
        ),
    );
    world.host(
        "home",
        &format!(
            "address add 2001:db8:1::5/64 dev outside nodad\n\
             address add 2001:db8:2::1/64 dev inside nodad\n\
             route add ::/0 via 2001:db8:1::1\n\
             route add 2001:db8:b4::/64 via 2001:db8:2::5\n\
             {}",
            kernel_b4(HOME, "outside")
        ),
    );
    assert!(world.run("home", "sysctl -w net.ipv6.conf.all.forwarding=1").contains(" = 1"));
    world.host(
        "server",
        &format!("address add {SERVER}/24 dev eth0\nroute add 203.0.113.0/24 via 192.0.2.2\n"),
    );
    world.serve("server", server());
    world
}

fn start(world: &World) -> Gateway {
    start_with(world, "")
}

/// Starts a gateway with more tables.
pub(crate) fn start_with(world: &World, more: &str) -> Gateway {
    world.start("nat", &config(more))
}

/// A configuration with more tables.
pub(crate) fn config(more: &str) -> String {
    format!(
        "[inside]\ndevice = \"inside\"\naddress6 = \"2001:db8:1::1/64\"\n\
         gateway6 = \"2001:db8:1::5\"\n\
         [outside]\ndevice = \"outside\"\naddress = \"192.0.2.2/24\"\n\
         [[pool]]\naddresses = [\"{EXTERNAL}\"]\n\
         [dslite]\naddress = \"{AFTR}\"\nb4 = [\"2001:db8:b4::/48\"]\n{more}"
    )
}

fn server() -> IpAddr {
    SERVER.parse().unwrap()
}

/// Asks for a table with only the entries of a subscriber.
fn of_subscriber(world: &World, table: &str, b4: &str) -> Vec<Value> {
    let shown = world.ask("nat", &["show", table, "--subscriber", b4]);
    shown[table].as_array().unwrap().clone()
}

fn drops(world: &World, reason: &str) -> u64 {
    world.ask("nat", &["show", "counters"])["drops"][reason].as_u64().unwrap()
}

#[test]
fn customers_with_one_inner_address_use_the_same_server() {
    let world = world();
    let gateway = start(&world);
    for node in ["client", "home"] {
        world.ping(node, SERVER, "-s 1300");
        let seen = [world.tcp(node, server()), world.udp(node, server(), 1200)];
        assert!(seen.iter().all(|seen| seen.ip().to_string() == EXTERNAL), "{node}: {seen:?}");
    }
    assert_eq!(gateway.stop().unwrap().code(), Some(0));
}

#[test]
fn a_customer_is_named_by_its_tunnel() {
    let world = world();
    let _gateway = start(&world);
    let seen = ["client", "home"].map(|node| world.udp(node, server(), 10));
    for (b4, seen) in [CLIENT, HOME].into_iter().zip(seen) {
        let is_named = |entry: &Value| {
            let internal = entry["internal"].as_str().unwrap_or_default();
            entry["subscriber"] == b4 && internal.starts_with("192.168.1.2:")
        };
        for table in ["mappings", "sessions"] {
            let entries = of_subscriber(&world, table, b4);
            assert!(!entries.is_empty() && entries.iter().all(is_named), "{table}: {entries:?}");
        }
        let shown = world.ask("nat", &["who", &seen.to_string(), "--protocol", "udp"]);
        assert!(is_named(&shown), "{shown}");
    }
    let shown = world.ask("nat", &["show", "subscribers"]);
    let all = shown["subscribers"].as_array().unwrap();
    let names: BTreeSet<&str> = all.iter().map(|one| one["subscriber"].as_str().unwrap()).collect();
    assert_eq!(names, BTreeSet::from([CLIENT, HOME]), "{shown}");
    let cleared = world.ask("nat", &["clear", "mappings", "--subscriber", CLIENT]);
    assert!(cleared["cleared"].as_u64() > Some(0), "{cleared}");
    assert_eq!(of_subscriber(&world, "mappings", CLIENT), [] as [Value; 0]);
    assert_ne!(of_subscriber(&world, "mappings", HOME), [] as [Value; 0]);
}

#[test]
fn icmp_errors_come_through_the_tunnel() {
    let world = world();
    let _gateway = start(&world);
    // The gateway's own, from its address in all tunnels.
    let said = world.run("client", &format!("ping -n -c 1 -W 5 -t 1 {SERVER}"));
    assert!(said.contains("From 192.0.0.1 ") && said.contains("Time to live"), "{said}");
    world.ping("client", "192.0.0.1", "");
    // The server's, about a port that nobody has.
    let refused = world.enter("client", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.connect((SERVER, PORT + 1)).unwrap();
        socket.send(b"hello").unwrap();
        socket.recv(&mut [0; 16]).map_err(|error| error.kind())
    });
    assert_eq!(refused, Err(ErrorKind::ConnectionRefused));
}

#[test]
fn customers_reach_each_other_by_their_external_endpoints() {
    let world = world();
    let _gateway = start(&world);
    let open = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    };
    let external = |socket: &UdpSocket| -> SocketAddr {
        let mut buffer = [0; 64];
        socket.send_to(b"who am I?", (SERVER, PORT)).unwrap();
        let (len, _) = socket.recv_from(&mut buffer).unwrap();
        std::str::from_utf8(&buffer[..len]).unwrap().parse().unwrap()
    };
    let sockets = ["client", "home"].map(|node| world.enter(node, open));
    let [client, home] = [external(&sockets[0]), external(&sockets[1])];
    let mut buffer = [0; 16];
    sockets[0].send_to(b"a question", home).unwrap();
    let (len, from) = sockets[1].recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"a question"[..], client));
    sockets[1].send_to(b"an answer", from).unwrap();
    let (len, from) = sockets[0].recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..len], from), (&b"an answer"[..], home));
}

/// A socket at the end of a tunnel, which sends and receives whole IPv4 packets.
struct Tunnel {
    socket: Socket,
}

impl Tunnel {
    fn open(world: &World, node: &str, end: &str) -> Self {
        let endpoint = |address: &str| {
            let address: Ipv6Addr = address.parse().unwrap();
            SocketAddrV6::new(address, 0, 0, 0).into()
        };
        let socket = world.enter(node, || {
            let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::from(IPV4))).unwrap();
            socket.bind(&endpoint(end)).unwrap();
            socket.connect(&endpoint(AFTR)).unwrap();
            socket
        });
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        Self { socket }
    }

    fn receive(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        let len = (&self.socket).read(&mut buffer).ok()?;
        buffer.truncate(len);
        Some(buffer)
    }

    /// Sends an echo request of `len` bytes in all, which may not be cut; returns what comes back.
    fn echo(&self, len: usize) -> Option<Vec<u8>> {
        let sent = echo_request(len);
        // A reported path is narrower from the next packet on, which the kernel says by an error.
        let _ = self.socket.send(&sent);
        self.receive()
    }

    /// Sends echo requests until one is answered whole; each report about the path takes one.
    fn must_echo(&self, len: usize) {
        let wanted = &echo_request(len)[28..];
        let answered = (0..4).any(|_| {
            let answer = self.echo(len).filter(|answer| answer.len() == len);
            answer.is_some_and(|answer| answer[20] == 0 && &answer[28..] == wanted)
        });
        assert!(answered, "an echo request of {len} bytes is not answered");
    }
}

fn echo_request(len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
    let source: Ipv4Addr = INNER.parse().unwrap();
    let destination: Ipv4Addr = SERVER.parse().unwrap();
    bytes[20..28].copy_from_slice(&[8, 0, 0, 0, 0, 77, 0, 1]);
    let sum = checksum(&bytes[20..]);
    bytes[22..24].copy_from_slice(&sum.to_be_bytes());
    bytes[..20].fill(0);
    let mut header = Ipv4::init(&mut bytes[..], 20);
    header.set_total_len(len as u16);
    header.set_fragment_field(0x4000);
    header.set_ttl(64);
    header.set_protocol(1);
    header.set_source(source.to_bits());
    header.set_destination(destination.to_bits());
    header.fill_checksum();
    bytes
}

#[test]
fn packets_of_all_lengths_pass_a_tunnel_of_any_width() {
    let world = world();
    let _gateway = start(&world);
    let tunnel = Tunnel::open(&world, "client", SOCKET);
    for width in [1500, 1400, 1280] {
        // The gateway does not see this link: the router reports that packets do not fit it.
        for (node, device) in [("client", "eth0"), ("home", "inside")] {
            let said = world.run(node, &format!("ip link set {device} mtu {width}"));
            assert_eq!(said, "", "{node}");
        }
        for len in (1232..=1500).step_by(4).chain([1241, 1453, 1461]) {
            tunnel.must_echo(len);
        }
    }
    // The link outside is too narrow: the sender in the tunnel learns its width.
    let error = tunnel.echo(1600).expect("an ICMP error");
    assert_eq!(
        (&error[12..20], &error[20..22]),
        (&[192, 0, 0, 1, 192, 168, 1, 2][..], &[3, 4][..])
    );
    assert_eq!(error[26..28], 1500_u16.to_be_bytes());
    assert_eq!(error[28..48], echo_request(1600)[..20]);
}

#[test]
fn forged_ends_of_tunnels_have_no_service() {
    let world = world();
    let _gateway = start(&world);
    let forged = Tunnel::open(&world, "client", FORGED);
    // The first packet waits until the router has found the gateway.
    let refused = (0..20).any(|_| {
        assert_eq!(forged.echo(100), None);
        drops(&world, "softwire_source") > 0
    });
    assert!(refused, "the gateway saw nothing of it");
    assert_eq!(world.ask("nat", &["show", "mappings"])["mappings"], serde_json::json!([]));
}
