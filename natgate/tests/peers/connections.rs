//! Ten thousand short TCP connections leave no mappings behind.
//!
//! Real kernels open and close them in every way: either end may close first, in order or by a
//! reset. After the closing timeout no mapping and no session may be left (RFC 7857 section 2; RFC
//! 6888 REQ-4: unused mappings of a subscriber do not count).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use natgate_testnet::{Gateway, Network, SERVER1, config, traffic, wait_for};
use socket2::SockRef;

use crate::{gateway, run, turn};

const CONNECTIONS: usize = 10_000;

/// Simultaneous clients, half of them on each subscriber.
const CLIENTS: usize = 8;

const PORT: u16 = 9100;

/// The closing timeout.
const CLOSING: Duration = Duration::from_secs(4);

/// A mapping is removed at the first tick after its timeout, and the gateway has ten thousand to
/// remove.
const SLACK: Duration = Duration::from_secs(2);

const CONFIG: &str = "[limits]\n\
     new_mappings_per_second = 100000\n\
     ports_per_subscriber = { tcp = 20000, udp = 2000, icmp = 200 }\n\
     [timeouts]\n\
     tcp_closing = \"4s\"\n";

/// End that closes a connection, and its method. The client requests it by a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Client,
    Server,
    ClientResets,
    ServerResets,
}

impl Ending {
    const ALL: [Self; 4] = [Self::Client, Self::Server, Self::ClientResets, Self::ServerResets];
}

//= test rfc5382#REQ-5a
//= test rfc7857#section-2
//= test rfc7857#section-2.1
//= test rfc7857#section-2.2
#[test]
fn ten_thousand_short_connections_leave_nothing_behind() {
    let turn = turn();
    let network = turn.network();
    let gateway = gateway(&network, &config(CONFIG));
    let endpoint = SocketAddrV4::new(SERVER1, PORT);
    let server = network.node("server1");
    let listener = traffic::listen(server, endpoint, Duration::from_secs(5)).unwrap();
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| serve(&listener, CONNECTIONS / CLIENTS));
        }
        for client in 0..CLIENTS {
            let network = &network;
            scope.spawn(move || visit(network, client, endpoint));
        }
    });
    let ended = Instant::now();
    let (mappings, sessions) = sizes(&gateway);
    assert!(mappings > 0 && sessions > 0, "the last connections have just ended");
    wait_for("the end of every mapping", CLOSING + SLACK, || {
        Ok((sizes(&gateway) == (0, 0)).then_some(()))
    })
    .unwrap();
    assert!(ended.elapsed() + Duration::from_secs(1) > CLOSING, "after {:?}", ended.elapsed());
    let status = gateway.status().unwrap();
    let refused: Vec<_> = status["counters"]["drops"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(_, count)| **count != 0)
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    let still_open = run(server, "ss", "-H -t -n state established");
    assert_eq!(still_open, "");
}

/// Numbers of mappings and sessions.
fn sizes(gateway: &Gateway) -> (usize, usize) {
    let status = gateway.status().unwrap();
    let length = |name: &str| status[name].as_array().unwrap().len();
    (length("mappings"), length("sessions"))
}

/// Runs one client: its share of connections, each ending in another way than the one before.
fn visit(network: &Network, client: usize, to: SocketAddrV4) {
    let node = network.node(if client.is_multiple_of(2) { "sub1" } else { "sub2" });
    node.enter(|| {
        for number in 0..CONNECTIONS / CLIENTS {
            let ending = Ending::ALL[(client + number) % 4];
            let result = TcpStream::connect(to).and_then(|stream| converse(stream, ending));
            result.unwrap_or_else(|error| panic!("{client}, {number}, {ending:?}: {error}"));
        }
    })
    .unwrap();
}

/// Client's end of a connection.
fn converse(mut stream: TcpStream, ending: Ending) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(&[ending as u8])?;
    let mut answer = [0; 1];
    stream.read_exact(&mut answer)?;
    match ending {
        Ending::Client => {}
        Ending::ClientResets => return reset(&stream),
        Ending::Server => {
            let more = stream.read(&mut answer)?;
            assert_eq!(more, 0, "nothing follows the answer");
        }
        Ending::ServerResets => {
            let error = stream.read(&mut answer).expect_err("a reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
    }
    Ok(())
}

/// Thread of a server: accepts a share of the connections, of any client.
fn serve(listener: &TcpListener, count: usize) {
    for _ in 0..count {
        let (stream, _) = listener.accept().expect("a client");
        answer(stream).expect("a connection that ends as agreed");
    }
}

/// Server's end of a connection.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut asked = [0; 1];
    stream.read_exact(&mut asked)?;
    stream.write_all(b"x")?;
    let ending = Ending::ALL[usize::from(asked[0])];
    match ending {
        Ending::Client => assert_eq!(stream.read(&mut asked)?, 0, "nothing follows the request"),
        Ending::ClientResets => {
            let error = stream.read(&mut asked).expect_err("a reset");
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        }
        Ending::Server => {}
        Ending::ServerResets => reset(&stream)?,
    }
    Ok(())
}

/// Makes the kernel reset the connection when it is dropped.
fn reset(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}
