//! One check of a server: a small client of TCP, HTTP or ICMP, as a state machine.
//!
//! Packets and times come in, packets go out. An attempt ends by an answer, by a refusal, or by its
//! deadline, which the caller keeps. A connection is ended by a RST: one that only tests the port
//! is reset before the server's program sees it. If the server's last acknowledgment is lost, the
//! RST may not fit, and the server keeps the connection until its own timeout.

use super::settings::CheckKind;
use natgate_engine::Timestamp;
use natgate_wire::tcp::flags::{ACK, PSH, RST, SYN};
use natgate_wire::{Icmp, Ipv4, Tcp, checksum, icmp, protocol, tcp};
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddrV4;
use std::time::Duration;

/// Time after which an unanswered packet is sent again; it doubles each time (RFC 6298 sections 2
/// and 5).
const AGAIN: Duration = Duration::from_secs(1);

/// Length of a header of IPv4 without options.
const IP_HEADER: usize = 20;

/// Bytes that are read of a response of HTTP: "HTTP/1.1 200".
const STATUS_LINE: usize = 12;

/// Receive window, bytes. More than the status line is of no use.
const WINDOW: u16 = 4096;

/// Reason why a check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckFailure {
    /// No answer came in time.
    Silent,
    /// The server reset the connection.
    Refused,
    /// The response has this status.
    Status(u16),
    /// The response is not of HTTP.
    NotHttp,
}

impl Display for CheckFailure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => f.write_str("no answer"),
            Self::Refused => f.write_str("connection refused"),
            Self::Status(status) => write!(f, "status {status}"),
            Self::NotHttp => f.write_str("no response of HTTP"),
        }
    }
}

/// Result of a check.
pub(super) type Outcome = Result<(), CheckFailure>;

/// What the attempt waits for.
#[derive(Clone, Debug)]
enum Stage {
    Echo,
    /// The answer to the SYN.
    Synchronized,
    /// The response. `next` is the next sequence number of the server, `sent` the last one that the
    /// server has acknowledged; `line` has the first bytes.
    Connected {
        next: u32,
        sent: u32,
        line: Vec<u8>,
    },
}

/// One check in progress.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    local: SocketAddrV4,
    server: SocketAddrV4,
    /// Request of HTTP; empty: the connection itself is the check.
    request: Vec<u8>,
    stage: Stage,
    /// Initial sequence number.
    first: u32,
    /// Time when the packet of the stage is sent (again).
    due: Timestamp,
    /// Time until it is sent again.
    again: Duration,
    /// True if the server needs an acknowledgment now.
    owes: bool,
}

impl Attempt {
    /// Begins a check from `local` (for ICMP its port is the identifier). `first` is a number that
    /// nobody can guess.
    pub(super) fn new(
        now: Timestamp,
        kind: &CheckKind,
        (local, server): (SocketAddrV4, SocketAddrV4),
        first: u32,
    ) -> Self {
        let stage = match kind {
            CheckKind::Icmp => Stage::Echo,
            CheckKind::Tcp | CheckKind::Http { .. } => Stage::Synchronized,
        };
        let request = kind.request(server).into_bytes();
        Self { local, server, request, stage, first, due: now, again: AGAIN, owes: false }
    }

    /// Port or identifier of the gateway.
    pub(super) fn local_port(&self) -> u16 {
        self.local.port()
    }

    /// Time when a packet is due.
    pub(super) fn due(&self) -> Timestamp {
        if self.owes { Timestamp(0) } else { self.due }
    }

    /// True if the connection has to be reset at the end.
    pub(super) fn is_connected(&self) -> bool {
        matches!(self.stage, Stage::Connected { .. })
    }

    /// Writes the packet that is due; returns its length.
    pub(super) fn write(&mut self, now: Timestamp, into: &mut [u8]) -> usize {
        let owes = std::mem::take(&mut self.owes);
        let is_due = now >= self.due;
        if is_due {
            self.due = now.plus(self.again);
            self.again *= 2;
        }
        match &self.stage {
            Stage::Echo => self.write_echo(into),
            Stage::Synchronized => {
                const MAX_SEGMENT_SIZE: [u8; 4] = [2, 4, 2, 24]; // 536
                self.write_segment((self.first, 0), SYN, &MAX_SEGMENT_SIZE, &[], into)
            }
            // The request is repeated until a byte of the response acknowledges it.
            Stage::Connected { next, line, .. } if line.is_empty() && (is_due || !owes) => {
                let numbers = (self.first.wrapping_add(1), *next);
                self.write_segment(numbers, ACK | PSH, &[], &self.request, into)
            }
            Stage::Connected { next, .. } => {
                self.write_segment((self.after_request(), *next), ACK, &[], &[], into)
            }
        }
    }

    /// Writes the packet that ends the connection; returns its length.
    pub(super) fn write_reset(&self, into: &mut [u8]) -> usize {
        let (number, next) = match &self.stage {
            Stage::Connected { next, sent, .. } => (*sent, *next),
            _ => (self.first.wrapping_add(1), 0),
        };
        self.write_segment((number, next), RST | ACK, &[], &[], into)
    }

    /// Sequence number behind the request.
    fn after_request(&self) -> u32 {
        self.first.wrapping_add(1).wrapping_add(self.request.len() as u32)
    }

    /// Takes a packet from the server to the gateway; returns the result if the check ends.
    pub(super) fn take(&mut self, packet: &Ipv4<&[u8]>) -> Option<Outcome> {
        match packet.protocol() {
            protocol::ICMP => self.take_echo(packet.payload()),
            protocol::TCP => self.take_segment(packet),
            _ => None,
        }
    }

    fn take_echo(&self, message: &[u8]) -> Option<Outcome> {
        let reply = Icmp::new_checked(message).filter(Icmp::checksum_valid)?;
        let is_ours = matches!(self.stage, Stage::Echo)
            && reply.kind() == icmp::kind::ECHO_REPLY
            && message.get(8..12) == Some(&self.first.to_be_bytes()[..]);
        is_ours.then_some(Ok(()))
    }

    fn take_segment(&mut self, packet: &Ipv4<&[u8]>) -> Option<Outcome> {
        let segment = packet.payload();
        let len = u16::try_from(segment.len()).ok()?;
        let (source, destination) = (packet.source(), packet.destination());
        let pseudo = checksum::pseudo_header(source, destination, protocol::TCP, len);
        let header = Tcp::new_checked(segment)?;
        let is_right = checksum::fold(checksum::sum(segment, pseudo)) == 0xffff;
        if !is_right || header.source_port() != self.server.port() {
            return None;
        }
        let (flags, acknowledged) = (header.flags(), header.acknowledgment());
        let after = self.after_request();
        match &mut self.stage {
            Stage::Echo => None,
            Stage::Synchronized => {
                if flags & ACK == 0 || acknowledged != self.first.wrapping_add(1) {
                    return None;
                }
                if flags & RST != 0 {
                    return Some(Err(CheckFailure::Refused));
                }
                if flags & SYN == 0 {
                    return None;
                }
                let next = header.sequence().wrapping_add(1);
                self.stage = Stage::Connected { next, sent: acknowledged, line: Vec::new() };
                (self.due, self.again) = (Timestamp(0), AGAIN);
                self.request.is_empty().then_some(Ok(()))
            }
            Stage::Connected { next, sent, line } => {
                if flags & RST != 0 {
                    return (header.sequence() == *next).then_some(Err(CheckFailure::Refused));
                }
                if flags & SYN != 0 {
                    // The server has not got the acknowledgment.
                    self.owes |= header.sequence().wrapping_add(1) == *next;
                    return None;
                }
                if flags & ACK != 0 && acknowledged == after {
                    *sent = after;
                }
                let data = &segment[header.header_len()..];
                if data.is_empty() && flags & tcp::flags::FIN == 0 {
                    return None;
                }
                self.owes = true;
                if header.sequence() != *next || acknowledged != after {
                    return None;
                }
                line.extend(data.iter().take(STATUS_LINE - line.len()));
                *next = next.wrapping_add(data.len() as u32);
                let is_over = line.len() == STATUS_LINE || flags & tcp::flags::FIN != 0;
                is_over.then(|| status(line))
            }
        }
    }

    fn write_echo(&self, into: &mut [u8]) -> usize {
        let len = IP_HEADER + icmp::HEADER_LEN + size_of::<u32>();
        let message = &mut into[IP_HEADER..len];
        message.fill(0);
        message[4..6].copy_from_slice(&self.local.port().to_be_bytes());
        message[6..8].copy_from_slice(&1_u16.to_be_bytes());
        message[8..].copy_from_slice(&self.first.to_be_bytes());
        let mut header = Icmp::new_checked(message).expect("it has a header");
        header.set_kind(icmp::kind::ECHO_REQUEST);
        header.fill_checksum();
        self.write_header(protocol::ICMP, len, into)
    }

    fn write_segment(
        &self,
        (number, acknowledged): (u32, u32),
        flags: u8,
        options: &[u8],
        data: &[u8],
        into: &mut [u8],
    ) -> usize {
        let header_len = tcp::HEADER_LEN + options.len();
        let len = IP_HEADER + header_len + data.len();
        let segment = &mut into[IP_HEADER..len];
        segment[..2].copy_from_slice(&self.local.port().to_be_bytes());
        segment[2..4].copy_from_slice(&self.server.port().to_be_bytes());
        segment[4..8].copy_from_slice(&number.to_be_bytes());
        segment[8..12].copy_from_slice(&acknowledged.to_be_bytes());
        segment[12] = (header_len as u8 / 4) << 4;
        segment[13] = flags;
        segment[14..16].copy_from_slice(&WINDOW.to_be_bytes());
        segment[16..20].fill(0);
        segment[tcp::HEADER_LEN..header_len].copy_from_slice(options);
        segment[header_len..].copy_from_slice(data);
        let (source, destination) = (self.local.ip().to_bits(), self.server.ip().to_bits());
        let length = segment.len() as u16;
        let pseudo = checksum::pseudo_header(source, destination, protocol::TCP, length);
        let sum = !checksum::fold(checksum::sum(segment, pseudo));
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        self.write_header(protocol::TCP, len, into)
    }

    fn write_header(&self, protocol: u8, len: usize, into: &mut [u8]) -> usize {
        const DONT_FRAGMENT: u16 = 0x4000;
        let mut header = Ipv4::init(&mut into[..len], IP_HEADER);
        header.set_total_len(len as u16);
        header.set_fragment_field(DONT_FRAGMENT);
        header.set_ttl(64);
        header.set_protocol(protocol);
        header.set_source(self.local.ip().to_bits());
        header.set_destination(self.server.ip().to_bits());
        header.fill_checksum();
        len
    }
}

/// Result by the first bytes of a response (RFC 9112 section 4).
fn status(line: &[u8]) -> Outcome {
    let status = line.strip_prefix(b"HTTP/1.").and_then(|rest| match rest {
        [b'0'..=b'9', b' ', digits @ ..] if digits.len() == 3 => {
            std::str::from_utf8(digits).ok()?.parse::<u16>().ok()
        }
        _ => None,
    });
    match status {
        Some(200..=399) => Ok(()),
        Some(status) => Err(CheckFailure::Status(status)),
        None => Err(CheckFailure::NotHttp),
    }
}

#[cfg(test)]
mod tests;
