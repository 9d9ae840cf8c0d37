//! Traffic through a guest, and measurements of it from outside, with the kernels at both ends and
//! the usual programs.

use natgate_testnet::{
    CARD_INSIDE, GATEWAY_INSIDE, Guest, Machine, Network, SERVER1, SERVER2, traffic,
};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Number of simultaneous connections, as in the paper.
const CONNECTIONS: &str = "16";
/// The smallest segment of Linux, for the highest number of packets.
const SMALLEST: u16 = 88;
/// Payload of a datagram as long as such a segment with its header.
const DATAGRAM: [u8; 100] = [0x55; 100];
/// In mixed traffic one packet in this number is a datagram.
const ONE_IN: u64 = 5;
/// Time before the count, in which TCP finds its rate; and seconds of TCP after it.
const BEFORE: Duration = Duration::from_secs(1);
const BEYOND: u32 = 2;
/// Destination of datagrams without an answer.
const SINK: SocketAddrV4 = SocketAddrV4::new(SERVER2, 9);
/// Longest time to the first forwarded packet, and longest time to an answer.
const START: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval of packets to a starting guest.
const KNOCK: Duration = Duration::from_millis(1);

/// Forwarded packets.
pub(super) struct Packets {
    /// Packets a second.
    pub(super) rate: f64,
    /// Share of UDP.
    pub(super) udp_share: f64,
}

/// Tells the second subscriber the gateway's hardware address. Otherwise the subscriber would ask
/// for it once a second until the gateway has started.
pub(super) fn introduce(network: &Network) -> io::Result<()> {
    network.node("sub2").ip_batch(&format!(
        "neighbor replace {GATEWAY_INSIDE} lladdr {CARD_INSIDE} dev eth0 nud permanent\n"
    ))
}

/// Boots a guest; returns the seconds until the first datagram arrived behind it.
pub(super) fn first_packet(network: &Network, guest: &Guest<'_>) -> io::Result<(Machine, f64)> {
    let sink = network.node("server2").enter(|| UdpSocket::bind(SINK))??;
    sink.set_read_timeout(Some(KNOCK))?;
    let source = traffic::udp_socket(network.node("sub2"))?;
    let begin = Instant::now();
    let mut machine = Machine::boot(network, guest)?;
    while begin.elapsed() < START && machine.is_on()? {
        // The gateway may not accept packets yet.
        let _ = source.send_to(&DATAGRAM, SINK);
        if sink.recv_from(&mut [0; 128]).is_ok() {
            return Ok((machine, begin.elapsed().as_secs_f64()));
        }
    }
    let message = format!("no packet is forwarded: {}", machine.log());
    Err(io::Error::new(ErrorKind::TimedOut, message))
}

/// Waits until packets and their answers arrive. The forwarder may have to ask for hardware
/// addresses first.
pub(super) fn awaken(network: &Network) -> io::Result<()> {
    let server = SERVER1.to_string();
    network.node("sub1").run(20, "ping", &["-c", "3", "-i", "0.05", "-w", "15", &server]).map(drop)
}

/// Microseconds of each of `count` pings with `bytes` payload bytes.
pub(super) fn round_trips(network: &Network, bytes: u16, count: u32) -> io::Result<Vec<f64>> {
    let (bytes, count) = (bytes.to_string(), count.to_string());
    let server = SERVER1.to_string();
    let arguments = ["-n", "-c", &count, "-i", "0.005", "-W", "2", "-s", &bytes, &server];
    let output = network.node("sub1").run(60, "ping", &arguments)?;
    Ok(times(&String::from_utf8_lossy(&output.stdout)))
}

/// Times in the output of ping: `... time=0.312 ms`.
fn times(said: &str) -> Vec<f64> {
    let each = said.split("time=").skip(1);
    each.filter_map(|rest| rest.split(' ').next()?.parse::<f64>().ok()).map(|ms| ms * 1e3).collect()
}

/// Fetches a page from the web server `count` times. Returns microseconds to each connection, and
/// from each request to the first byte of the answer.
pub(super) fn fetch(network: &Network, count: u32) -> io::Result<Vec<[f64; 2]>> {
    network.node("sub1").enter(|| (0..count).map(|_| fetch_once()).collect())?
}

fn fetch_once() -> io::Result<[f64; 2]> {
    let us = |begin: Instant| begin.elapsed().as_secs_f64() * 1e6;
    let begin = Instant::now();
    let mut stream = TcpStream::connect_timeout(&SocketAddrV4::new(SERVER1, 80).into(), PATIENCE)?;
    let connection = us(begin);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let begin = Instant::now();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: server1\r\n\r\n")?;
    let mut body = [0; 4096];
    let mut len = stream.read(&mut body)?;
    let response = us(begin);
    while len > 0 {
        len = stream.read(&mut body)?;
    }
    Ok([connection, response])
}

/// Mbit/s that arrive by TCP with segments of at most `segment` bytes.
pub(super) fn throughput(network: &Network, segment: u16, seconds: u32) -> io::Result<f64> {
    let segment = segment.to_string();
    let arguments = ["--parallel", CONNECTIONS, "--set-mss", &segment];
    Ok(traffic::iperf3(network, seconds, &arguments)? / 1e6)
}

/// Counts forwarded packets while TCP sends small segments. In mixed traffic datagrams are sent
/// between them.
pub(super) fn packets(network: &Network, seconds: u32, is_mixed: bool) -> io::Result<Packets> {
    // No program reads the datagrams. Without a socket the kernel would answer each with an error.
    let _sink = network.node("server2").enter(|| UdpSocket::bind(SINK))??;
    let source = traffic::udp_socket(network.node("sub2"))?;
    let source = is_mixed.then_some(&source);
    let time = Duration::from_secs(seconds.into());
    std::thread::scope(|scope| {
        let load = scope.spawn(|| throughput(network, SMALLEST, seconds + BEYOND));
        let packets = network.node("router").enter(|| count(source, time));
        let load = load.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        load.and(packets?)
    })
}

/// Counts in the router, where each packet passes once, and keeps the datagrams' share.
fn count(source: Option<&UdpSocket>, time: Duration) -> io::Result<Packets> {
    std::thread::sleep(BEFORE);
    let (begin, first) = (Instant::now(), Passed::look()?);
    let mut sent = 0;
    while begin.elapsed() < time {
        if let Some(source) = source {
            let due = (Passed::look()?.all - first.all) / ONE_IN;
            while sent < due {
                source.send_to(&DATAGRAM, SINK)?;
                sent += 1;
            }
        }
        std::thread::sleep(KNOCK);
    }
    let (elapsed, last) = (begin.elapsed().as_secs_f64(), Passed::look()?);
    let (all, udp) = (last.all - first.all, last.udp - first.udp);
    Ok(Packets { rate: all as f64 / elapsed, udp_share: udp as f64 / all.max(1) as f64 })
}

/// Packets that have passed the router.
#[derive(Debug, PartialEq)]
struct Passed {
    /// Packets from and to the gateway.
    all: u64,
    /// Packets to the second server, which gets only datagrams.
    udp: u64,
}

impl Passed {
    /// Reads the counters of this thread's namespace.
    fn look() -> io::Result<Self> {
        let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        Self::read(&table).ok_or_else(|| io::Error::other(format!("no counters in {table}")))
    }

    fn read(table: &str) -> Option<Self> {
        let packets = |device: &str| {
            let fields = table.lines().find_map(|line| line.trim().strip_prefix(device))?;
            let field = |at| fields.split_whitespace().nth(at)?.parse::<u64>().ok();
            Some((field(1)?, field(9)?))
        };
        let (received, sent) = packets("nat:")?;
        Some(Self { all: received + sent, udp: packets("server2:")?.1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ping_says_is_read() {
        let said = "PING 198.51.100.10 56(84) bytes of data.\n\
            64 bytes from 198.51.100.10: icmp_seq=1 ttl=62 time=0.512 ms\n\
            64 bytes from 198.51.100.10: icmp_seq=3 ttl=62 time=12 ms\n\
            3 packets transmitted, 2 received, 33% packet loss, time 11ms\n";
        assert_eq!(times(said), [512.0, 12_000.0]);
    }

    #[test]
    fn counters_are_read() {
        let table = "Inter-| Receive | Transmit\n face |bytes packets errs\n\
            server1: 1 2 0 0 0 0 0 0 3 4 0 0 0 0 0 0\n\
            server2: 5 6 0 0 0 0 0 0 7 8 0 0 0 0 0 0\n    \
            nat: 9 10 0 0 0 0 0 0 11 12 0 0 0 0 0 0\n";
        assert_eq!(Passed::read(table), Some(Passed { all: 22, udp: 8 }));
        assert_eq!(Passed::read("nat: 1"), None);
    }
}
