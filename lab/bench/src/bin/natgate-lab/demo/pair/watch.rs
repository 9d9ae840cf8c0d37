//! Detection of a dead gateway by the router on each side. The better route is withdrawn then. A
//! router finds the death as BFD does, by a request every 50 ms and three without an answer, or it
//! is told as by a routing daemon: the gateway's announced routes have left the kernel.

use super::streams::Crew;
use anyhow::Context;
use natgate_testnet::{PairNetwork, PairSide};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs;
use std::io::Read;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval of requests.
pub(super) const INTERVAL: Duration = Duration::from_millis(50);

/// Requests without an answer after which a gateway is dead.
pub(super) const DEAD: u32 = 3;

/// Interval of looks at what the kernel says about routes.
const LOOKS: Duration = Duration::from_millis(1);

/// Type of an ICMP message.
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;

/// How routers learn that the better gateway has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// By requests without an answer.
    Requests,
    /// By the end of the routes that the gateway announces.
    Routes,
}

/// The watch of both routers over the better gateway.
pub(super) struct Watch {
    network: Arc<PairNetwork>,
    /// When each router has withdrawn its route.
    withdrawn: Arc<Mutex<[Option<Instant>; 2]>>,
    _crew: Crew,
}

impl Watch {
    pub(super) fn start(network: &Arc<PairNetwork>, by: Notice) -> anyhow::Result<Self> {
        let mut crew = Crew::default();
        let withdrawn = Arc::new(Mutex::new([None; 2]));
        let withdraw = {
            let (network, withdrawn) = (Arc::clone(network), Arc::clone(&withdrawn));
            move |side: PairSide| {
                let mut withdrawn = withdrawn.lock().unwrap_or_else(PoisonError::into_inner);
                let place = &mut withdrawn[usize::from(side == PairSide::Border)];
                if place.is_none() && network.withdraw(side).is_ok() {
                    *place = Some(Instant::now());
                }
            }
        };
        if by == Notice::Routes {
            watch_routes(network, &mut crew, withdraw)?;
            return Ok(Self { network: Arc::clone(network), withdrawn, _crew: crew });
        }
        for side in PairSide::BOTH {
            let socket = network
                .node(side.router())
                .enter(|| Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)))??;
            let withdraw = withdraw.clone();
            crew.spawn(move |stop| watch(&socket, side, stop, || withdraw(side)));
        }
        Ok(Self { network: Arc::clone(network), withdrawn, _crew: crew })
    }

    /// When both routers had withdrawn their routes; `None`: one has not.
    pub(super) fn withdrawn(&self) -> Option<Instant> {
        let [access, border] = *self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner);
        Some(access?.max(border?))
    }

    /// Gives both routers the better route again.
    pub(super) fn restore(&self) -> anyhow::Result<()> {
        let mut withdrawn = self.withdrawn.lock().unwrap_or_else(PoisonError::into_inner);
        PairSide::BOTH.into_iter().try_for_each(|side| self.network.restore(side))?;
        *withdrawn = [None; 2];
        Ok(())
    }
}

/// Calls `dead` for both sides when the kernel of the better gateway has lost an announced route.
fn watch_routes(
    network: &Arc<PairNetwork>,
    crew: &mut Crew,
    dead: impl Fn(PairSide) + Send + 'static,
) -> anyhow::Result<()> {
    let log = network.file("routes.log");
    let program = "ip".as_ref();
    let monitor = network.node("a").start(program, &["monitor", "route"], &log);
    let mut monitor = monitor.context("ip monitor")?;
    crew.spawn(move |stop| {
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOKS);
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.lines().any(|line| line.starts_with("Deleted") && line.contains("203.0.113.")) {
                PairSide::BOTH.into_iter().for_each(&dead);
                break;
            }
        }
        // Both fail only if it has ended already.
        let _ = monitor.kill();
        let _ = monitor.wait();
    });
    Ok(())
}

/// Sends requests, and calls `dead` each time that too many have no answer.
fn watch(socket: &Socket, side: PairSide, stop: &AtomicBool, dead: impl Fn()) {
    let to = SocketAddrV4::new(side.gateway("a"), 0);
    let (mut number, mut unanswered) = (0_u16, 0);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        number = number.wrapping_add(1);
        let _ = socket.send_to(&echo_request(number), &std::net::SocketAddr::from(to).into());
        let mut is_answered = false;
        while let Some(left) = INTERVAL.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
        {
            let _ = socket.set_read_timeout(Some(left));
            let mut buffer = [0; 256];
            let len = (&*socket).read(&mut buffer).unwrap_or_default();
            is_answered |= is_reply(&buffer[..len], *to.ip());
        }
        unanswered = if is_answered { 0 } else { unanswered + 1 };
        if unanswered >= DEAD {
            dead();
        }
    }
}

fn echo_request(number: u16) -> [u8; 8] {
    let number = number.to_be_bytes();
    let words = [[ECHO_REQUEST, 0], [0, 0], *b"ng", number].map(u16::from_be_bytes);
    let sum: u32 = words.iter().map(|word| u32::from(*word)).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    let [high, low] = checksum.to_be_bytes();
    [ECHO_REQUEST, 0, high, low, b'n', b'g', number[0], number[1]]
}

/// True for an IP packet that is an answer from this address.
fn is_reply(packet: &[u8], from: std::net::Ipv4Addr) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    packet.get(12..16) == Some(&from.octets())
        && packet.get(header) == Some(&ECHO_REPLY)
        && packet.get(header + 4..header + 6) == Some(b"ng")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_right_checksum() {
        for number in [0, 1, 0xff00, u16::MAX] {
            let sum: u32 = echo_request(number)
                .as_chunks()
                .0
                .iter()
                .map(|word| u32::from(u16::from_be_bytes(*word)))
                .sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{number}");
        }
    }
}
