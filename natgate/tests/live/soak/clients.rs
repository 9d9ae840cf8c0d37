//! Subscribers that expect answers: datagrams, connections, pings, tunnels, calls to each other.
//! Each is a thread in its namespace that runs until the end of the round and counts its results.

use super::raw::Raw;
use super::{HOSTS, Random, World};
use natgate_testnet::{GATEWAY_INSIDE, POOL, REFLECTOR_PORT, ROUTER, SERVER1, SERVER2, traffic};
use natgate_wire::Ipv4;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A port without a listener.
const CLOSED: u16 = 9;

/// GRE.
const GRE: i32 = 47;

const SERVERS: [Ipv4Addr; 2] = [SERVER1, SERVER2];

/// Longest wait for a datagram's answer.
const GLANCE: Duration = Duration::from_millis(300);

/// Longest time between the requests to both servers in which the mapping must stay.
const AT_ONCE: Duration = Duration::from_millis(400);

/// A random subscriber of a node.
pub(super) fn host(node: &str, random: &mut Random) -> Ipv4Addr {
    let (_, first) = HOSTS.into_iter().find(|(name, _)| *name == node).expect("it has some");
    Ipv4Addr::new(10, 0, 0, first + random.below(super::HOSTS_EACH.into()) as u8)
}

fn socket(address: Ipv4Addr) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    socket.set_read_timeout(Some(GLANCE)).unwrap();
    socket
}

/// UDP flows of limited duration: short datagrams, long ones in fragments, and some to a closed
/// port, about which an ICMP error comes.
pub(super) fn flows(world: &World<'_>, node: &str, mut random: Random) {
    const MOST: usize = 32;
    let mut sockets: Vec<UdpSocket> = Vec::new();
    while world.goes_on() {
        match random.below(8) {
            0 | 1 if sockets.len() < MOST => sockets.push(socket(host(node, &mut random))),
            2 if !sockets.is_empty() => {
                let which = random.below(sockets.len() as u64);
                drop(sockets.swap_remove(which as usize));
            }
            3 => refusal(world, host(node, &mut random), &mut random),
            _ if !sockets.is_empty() => {
                let which = random.below(sockets.len() as u64) as usize;
                if !question(world, &sockets[which], &mut random) {
                    // A late answer could be confused with the next.
                    sockets.swap_remove(which);
                }
            }
            _ => {}
        }
        random.nap(5);
    }
}

/// Sends a request to both servers, which must see one external endpoint; returns true if both have
/// answered.
fn question(world: &World<'_>, socket: &UdpSocket, random: &mut Random) -> bool {
    let len = match random.below(6) {
        0 => 1500 + random.below(7000),
        _ => random.below(1400),
    };
    let bytes = random.bytes(len as usize);
    let begin = Instant::now();
    let seen = SERVERS.map(|server| traffic::ask_udp_once(socket, server, &bytes).ok());
    if let [Some(one), Some(other)] = seen {
        assert!(one == other || begin.elapsed() > AT_ONCE, "{one} and {other} are one mapping");
    }
    for external in seen.into_iter().flatten() {
        assert!(POOL.contains(external.ip()), "{external}");
        world.tally.answers.fetch_add(1, Ordering::Relaxed);
        world.meet(external);
    }
    let answered = seen.iter().all(Option::is_some);
    world.tally.unanswered.fetch_add(u64::from(!answered), Ordering::Relaxed);
    answered
}

/// Sends to a closed port, and receives the error.
fn refusal(world: &World<'_>, address: Ipv4Addr, random: &mut Random) {
    let socket = socket(address);
    let server = SERVERS[random.below(2) as usize];
    socket.connect((server, CLOSED)).unwrap();
    let mut buffer = [0; 16];
    let sent = socket.send(b"anybody");
    let heard = sent.and_then(|_| socket.recv(&mut buffer));
    if heard.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        world.tally.refusals.fetch_add(1, Ordering::Relaxed);
    }
}

/// TCP connections with compared bytes, which end in three ways.
pub(super) fn connections(world: &World<'_>, node: &str, mut random: Random) {
    while world.goes_on() {
        let server = SERVERS[random.below(2) as usize];
        match connect(host(node, &mut random), server) {
            Ok(stream) => {
                converse(world, &stream, &mut random);
                if random.below(4) == 0 {
                    // The connection is reset and not closed.
                    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                }
                world.tally.connections.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => drop(world.tally.unconnected.fetch_add(1, Ordering::Relaxed)),
        }
        random.nap(20);
    }
}

fn connect(address: Ipv4Addr, server: Ipv4Addr) -> io::Result<TcpStream> {
    const PATIENCE: Duration = Duration::from_millis(1500);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddrV4::new(address, 0).into())?;
    socket.connect_timeout(&SocketAddrV4::new(server, REFLECTOR_PORT).into(), PATIENCE)?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    socket.set_write_timeout(Some(Duration::from_secs(20)))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Sends bytes over a connection; all of them must arrive unchanged.
fn converse(world: &World<'_>, stream: &TcpStream, random: &mut Random) {
    let ends = (stream.local_addr(), stream.peer_addr());
    let external = traffic::read_endpoint(stream);
    let external = external.unwrap_or_else(|error| panic!("no first line: {error}: {ends:?}"));
    assert!(POOL.contains(external.ip()), "{external}");
    for _ in 0..random.below(4) {
        let len = 1 + random.below(50_000);
        let bytes = random.bytes(len as usize);
        if let Err(error) = traffic::echo(stream, &bytes) {
            panic!("{len} bytes: {error}: {ends:?} as {external}");
        }
        world.tally.bytes.fetch_add(len, Ordering::Relaxed);
        random.nap(5);
    }
}

/// Pings of all sizes: the large ones are fragmented both ways.
pub(super) fn pings(world: &World<'_>, node: &str, mut random: Random) {
    let targets = [SERVER1, SERVER2, ROUTER, GATEWAY_INSIDE];
    while world.goes_on() {
        let target = targets[random.below(4) as usize];
        // The gateway answers unfragmented pings only.
        let sizes = if target == GATEWAY_INSIDE { 2 } else { 4 };
        let size = [56, 1400, 4000, 20_000][random.below(sizes) as usize];
        let source = host(node, &mut random);
        let line = format!("-n -q -c 4 -i 0.05 -w 1 -I {source} -s {size} {target}");
        let arguments: Vec<&str> = line.split(' ').collect();
        match world.network.node(node).run(5, "ping", &arguments) {
            Ok(_) if size > 1500 => &world.tally.large_pings,
            Ok(_) => &world.tally.pings,
            Err(_) => &world.tally.unanswered,
        }
        .fetch_add(1, Ordering::Relaxed);
        random.nap(50);
    }
}

/// Subscribers that send to each other's external endpoints, in datagrams of all sizes.
pub(super) fn meetings(world: &World<'_>, _: &str, mut random: Random) {
    let ends = ["sub1", "sub2"];
    while world.goes_on() {
        let [one, two] = ends.map(|_| {
            let node = ends[random.below(2) as usize];
            let address = host(node, &mut random);
            world.network.node(node).enter(|| socket(address)).unwrap()
        });
        let [called, caller] =
            [&one, &two].map(|socket| traffic::ask_udp_once(socket, SERVER1, b"where").ok());
        let (Some(called), Some(caller)) = (called, caller) else { continue };
        for _ in 0..4 {
            let len = 1 + random.below(4000) as usize;
            let bytes = random.bytes(len);
            let _ = two.send_to(&bytes, called);
            let Some(came) = receive_from(&one, caller) else {
                // As above.
                world.tally.unanswered.fetch_add(1, Ordering::Relaxed);
                break;
            };
            assert_eq!(came, bytes, "from {caller} to {called}");
            world.tally.meetings.fetch_add(1, Ordering::Relaxed);
        }
        random.nap(20);
    }
}

/// Next datagram of a sender; floods come to all ports.
fn receive_from(socket: &UdpSocket, sender: SocketAddrV4) -> Option<Vec<u8>> {
    let mut buffer = [0; 4096];
    let begin = Instant::now();
    while begin.elapsed() < GLANCE {
        let (len, from) = socket.recv_from(&mut buffer).ok()?;
        if from == sender.into() {
            return Some(buffer[..len].to_vec());
        }
    }
    None
}

/// Sends GRE to a server that reflects it.
pub(super) fn tunnels(world: &World<'_>, node: &str, mut random: Random) {
    while world.goes_on() {
        let address = host(node, &mut random);
        let socket = Raw::of(GRE);
        socket.bind(&SocketAddrV4::new(address, 0).into()).unwrap();
        socket.set_read_timeout(Some(GLANCE)).unwrap();
        // While one subscriber has a tunnel, others cannot have one to that server by the same
        // address.
        for _ in 0..1 + random.below(10) {
            tunnel(world, &socket, &mut random);
        }
        random.nap(100);
    }
}

fn tunnel(world: &World<'_>, socket: &Socket, random: &mut Random) {
    let server = SockAddr::from(SocketAddrV4::new(SERVER2, 0));
    let len = 4 + random.below(1000) as usize;
    let mut bytes = random.bytes(len);
    // Neither options nor a checksum; the payload is IPv4.
    bytes[..4].copy_from_slice(&[0, 0, 8, 0]);
    let _ = socket.send_to(&bytes, &server);
    match read_payload(socket) {
        Some((came, _)) if came == bytes => &world.tally.tunnels,
        _ => &world.tally.unanswered,
    }
    .fetch_add(1, Ordering::Relaxed);
}

/// Reflects GRE packets.
pub(super) fn tunnels_end(world: &World<'_>, _: &str, _: Random) {
    let socket = Raw::of(GRE);
    socket.set_read_timeout(Some(GLANCE)).unwrap();
    while world.goes_on() {
        let Some((bytes, from)) = read_payload(&socket) else { continue };
        let _ = socket.send_to(&bytes, &from);
    }
}

/// Payload and sender of a packet from a raw socket.
fn read_payload(mut socket: &Socket) -> Option<(Vec<u8>, SockAddr)> {
    let mut buffer = [0; 2048];
    let len = socket.read(&mut buffer).ok()?;
    let packet = Ipv4::new_checked(&buffer[..len]).ok()?;
    let from = SocketAddrV4::new(Ipv4Addr::from_bits(packet.source()), 0);
    Some((packet.payload().to_vec(), from.into()))
}
