//! Many mappings of many subscribers, and the external endpoint of each as the server sees it.
//!
//! The subscribers' namespace has all their addresses. One raw socket sends with the address of
//! each, and receives the answers.

use super::streams::Crew;
use anyhow::{Context, ensure};
use natgate_testnet::{PAIR_SERVER, PAIR_SUBSCRIBERS, PairNetwork};
use std::collections::HashSet;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Mappings of one subscriber.
const EACH: u16 = 100;

/// The first internal port.
const FIRST_PORT: u16 = 20_000;

/// Port of the server.
const PORT: u16 = 7001;

/// Packets without an answer at a time, and the longest wait for the answers.
const IN_FLIGHT: usize = 128;
const ANSWERS: Duration = Duration::from_millis(100);

/// Attempts for each mapping.
const ROUNDS: usize = 5;

/// Beginning of a packet.
const MAGIC: [u8; 4] = *b"pair";

/// The mappings.
pub(super) struct Flows {
    count: u32,
    socket: socket2::Socket,
    /// Without them the subscribers' kernel would answer that ports are closed.
    _ports: Vec<UdpSocket>,
    _crew: Crew,
    /// Endpoint of each mapping at the first time.
    first: Vec<Option<SocketAddrV4>>,
}

/// Comparison with the first time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Mappings with the endpoint of the first time.
    pub(crate) same: usize,
    /// Mappings with another endpoint.
    pub(crate) other: usize,
    /// Mappings without an answer.
    pub(crate) silent: usize,
}

impl Flows {
    /// Opens the sockets for this number of mappings.
    pub(super) fn prepare(network: &PairNetwork, count: u32) -> anyhow::Result<Self> {
        let node = network.node("sub");
        let (subscribers, len) = PAIR_SUBSCRIBERS;
        node.ip_batch(&format!("route add local {subscribers}/{len} dev lo\n"))?;
        let ports = (FIRST_PORT..FIRST_PORT + EACH)
            .map(|port| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)));
        let ports = node.enter(|| ports.collect::<Result<_, _>>())??;
        let socket = node.enter(|| {
            let udp = Some(socket2::Protocol::UDP);
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::RAW, udp)?;
            socket.set_header_included_v4(true)?;
            socket.set_read_timeout(Some(ANSWERS))?;
            Ok::<_, std::io::Error>(socket)
        })??;
        let server = network.node("srv").enter(|| {
            let socket = UdpSocket::bind(SocketAddrV4::new(*PAIR_SERVER.ip(), PORT))?;
            socket.set_read_timeout(Some(ANSWERS))?;
            Ok::<_, std::io::Error>(socket)
        })??;
        let mut crew = Crew::default();
        crew.spawn(move |stop| {
            while !stop.load(Ordering::Relaxed) {
                answer(&server);
            }
        });
        Ok(Self { count, socket, _ports: ports, _crew: crew, first: Vec::new() })
    }

    /// Makes the mappings. Returns the number of subscribers.
    pub(super) fn begin(&mut self) -> anyhow::Result<u32> {
        let endpoints = self.ask()?;
        let missing = endpoints.iter().filter(|one| one.is_none()).count();
        ensure!(missing == 0, "{missing} of {} mappings got no answer", self.count);
        let distinct: HashSet<_> = endpoints.iter().collect();
        ensure!(distinct.len() == endpoints.len(), "two mappings have one endpoint");
        self.first = endpoints;
        Ok(self.count.div_ceil(EACH.into()))
    }

    /// Sends in every mapping again, and compares the endpoints.
    pub(super) fn compare(&self) -> anyhow::Result<Kept> {
        let mut kept = Kept::default();
        for (now, first) in self.ask()?.iter().zip(&self.first) {
            *match now {
                None => &mut kept.silent,
                now if now == first => &mut kept.same,
                _ => &mut kept.other,
            } += 1;
        }
        Ok(kept)
    }

    /// Sends in every mapping until there is an answer, and returns the endpoints.
    fn ask(&self) -> anyhow::Result<Vec<Option<SocketAddrV4>>> {
        let mut endpoints = vec![None; self.count as usize];
        for _ in 0..ROUNDS {
            let silent: Vec<u32> =
                (0..self.count).filter(|id| endpoints[*id as usize].is_none()).collect();
            for some in silent.chunks(IN_FLIGHT) {
                some.iter().try_for_each(|id| self.send(*id))?;
                self.receive(some.len(), &mut endpoints)?;
            }
        }
        Ok(endpoints)
    }

    fn send(&self, id: u32) -> anyhow::Result<()> {
        let to = SocketAddrV4::new(*PAIR_SERVER.ip(), PORT);
        let packet = request(internal(id), to, id);
        self.socket.send_to(&packet, &SocketAddr::from(to).into()).context("a raw packet")?;
        Ok(())
    }

    /// Receives answers until this number has come, or the time is over.
    fn receive(
        &self,
        mut count: usize,
        endpoints: &mut [Option<SocketAddrV4>],
    ) -> anyhow::Result<()> {
        let end = Instant::now() + ANSWERS;
        let mut buffer = [0; 2048];
        while count > 0 && Instant::now() < end {
            let Ok(len) = (&self.socket).read(&mut buffer) else { break };
            let Some((to, id, endpoint)) = read_answer(&buffer[..len]) else { continue };
            ensure!(to == internal(id), "an answer of {} came to {to}", internal(id));
            if let Some(place @ None) = endpoints.get_mut(id as usize) {
                *place = Some(endpoint);
                count -= 1;
            }
        }
        Ok(())
    }
}

/// Internal endpoint of a mapping.
fn internal(id: u32) -> SocketAddrV4 {
    let each = u32::from(EACH);
    let address = Ipv4Addr::from_bits(PAIR_SUBSCRIBERS.0.to_bits() + 1 + id / each);
    SocketAddrV4::new(address, FIRST_PORT + (id % each) as u16)
}

/// An IPv4 packet. The kernel completes length, identification and checksum of its header.
fn request(from: SocketAddrV4, to: SocketAddrV4, id: u32) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    // Length, and no checksum.
    packet.extend([0, 16, 0, 0]);
    packet.extend(MAGIC);
    packet.extend(id.to_be_bytes());
    packet
}

/// The receiver of an answer, the number in it, and the endpoint that the server has seen.
fn read_answer(packet: &[u8]) -> Option<(SocketAddrV4, u32, SocketAddrV4)> {
    let udp = packet.get(usize::from(packet.first()? & 15) * 4..)?;
    let to = Ipv4Addr::from(*packet.get(16..)?.first_chunk::<4>()?);
    let port = u16::from_be_bytes(*udp.get(2..)?.first_chunk()?);
    let (id, rest) = udp.get(8..)?.strip_prefix(&MAGIC)?.split_first_chunk()?;
    let (address, port_seen) = rest.split_first_chunk::<4>()?;
    let seen = SocketAddrV4::new((*address).into(), u16::from_be_bytes(*port_seen.first_chunk()?));
    Some((SocketAddrV4::new(to, port), u32::from_be_bytes(*id), seen))
}

/// Answers one packet with its content and the endpoint that it came from.
fn answer(server: &UdpSocket) {
    let mut buffer = [0; 64];
    let Ok((len, SocketAddr::V4(from))) = server.recv_from(&mut buffer) else { return };
    if buffer[..len].starts_with(&MAGIC) && len == 8 {
        let mut answer = buffer[..len].to_vec();
        answer.extend(from.ip().octets());
        answer.extend(from.port().to_be_bytes());
        let _ = server.send_to(&answer, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_endpoints_are_read_from_answers() {
        assert_eq!(internal(0), "10.8.0.1:20000".parse().expect("an endpoint"));
        assert_eq!(internal(99_999), "10.8.3.232:20099".parse().expect("an endpoint"));
        let seen: SocketAddrV4 = "203.0.113.9:4000".parse().expect("an endpoint");
        let mut packet = request(seen, internal(7), 7);
        assert_eq!(read_answer(&packet), None, "a request has no endpoint");
        packet.extend(seen.ip().octets());
        packet.extend(seen.port().to_be_bytes());
        assert_eq!(read_answer(&packet), Some((internal(7), 7, seen)));
        assert!((0..packet.len()).all(|len| read_answer(&packet[..len]).is_none()));
    }
}
