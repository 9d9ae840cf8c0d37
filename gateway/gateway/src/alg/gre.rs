//! Packets of enhanced GRE (RFC 2637 section 4.1), and ICMP errors that quote them: where their
//! addresses and Call IDs are, and how they change.
//!
//! Enhanced GRE has no checksum. Packets with options of IP are not read.

use natgate_wire::checksum::Delta;
use natgate_wire::icmp::{self, kind};
use natgate_wire::{Ipv4, protocol};
use std::net::SocketAddrV4;

/// Protocol type of enhanced GRE: PPP.
pub(super) const PPP: u16 = 0x880b;

/// Place of the Call ID in enhanced GRE.
const CALL_AT: usize = 6;

/// What names the call of a packet: the addresses of its tunnel, and the receiver's Call ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tunnel {
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) call: u16,
}

/// What names a fragmented datagram of GRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Datagram {
    pub(super) source: u32,
    pub(super) destination: u32,
    pub(super) identification: u16,
}

/// A packet that has to do with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// Enhanced GRE in one piece.
    Data(Tunnel),
    /// The first fragment of a datagram of enhanced GRE.
    First(Tunnel, Datagram),
    /// A later fragment of a datagram of GRE.
    Later(Datagram),
    /// An ICMP error about a packet of enhanced GRE, which it quotes.
    Error(Tunnel),
}

impl Packet {
    /// The address of the host inside that has to do with a packet from inside.
    pub(super) fn host(&self) -> u32 {
        match self {
            Self::Data(tunnel) | Self::First(tunnel, _) => tunnel.source,
            Self::Later(datagram) => datagram.source,
            Self::Error(quoted) => quoted.destination,
        }
    }

    /// The same packet with another address of this host.
    pub(super) fn of_host(self, host: u32) -> Self {
        let tunnel = |tunnel| Tunnel { source: host, ..tunnel };
        let datagram = |datagram| Datagram { source: host, ..datagram };
        match self {
            Self::Data(of) => Self::Data(tunnel(of)),
            Self::First(of, piece) => Self::First(tunnel(of), datagram(piece)),
            Self::Later(piece) => Self::Later(datagram(piece)),
            Self::Error(quoted) => Self::Error(Tunnel { destination: host, ..quoted }),
        }
    }
}

/// New values of a packet's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rewrite {
    /// Addresses of the packet, or of the packet that an ICMP error quotes.
    pub(super) source: u32,
    pub(super) destination: u32,
    /// The Call ID.
    pub(super) call: Option<u16>,
    /// The identification.
    pub(super) identification: Option<u16>,
    /// Source and destination of an ICMP error itself.
    pub(super) error: Option<(u32, u32)>,
}

/// Words at the start of packets of [`read`], where others have their ports: the types and codes of
/// ICMP errors that report on a packet's way, and the protocol type of enhanced GRE.
pub(super) fn first_words() -> impl Iterator<Item = u16> {
    let of = |kind: u8, codes: u8| (0..=codes).map(move |code| u16::from_be_bytes([kind, code]));
    of(kind::UNREACHABLE, 15)
        .chain(of(kind::TIME_EXCEEDED, 1))
        .chain(of(kind::PARAMETER_PROBLEM, 2))
        .chain([PPP])
}

/// Reads a packet. `None`: it has nothing to do with a call.
pub(super) fn read(bytes: &[u8]) -> Option<Packet> {
    let ip = Ipv4::new_checked(bytes).ok()?;
    let number = ip.protocol();
    let is_known = number == protocol::GRE || number == protocol::ICMP;
    if !is_known || ip.header_len() != 20 || !ip.checksum_valid() {
        return None;
    }
    let is_piece = ip.is_fragment();
    let datagram = Datagram {
        source: ip.source(),
        destination: ip.destination(),
        identification: ip.identification(),
    };
    match number {
        protocol::GRE if ip.fragment_offset() > 0 => Some(Packet::Later(datagram)),
        protocol::GRE if is_piece => Some(Packet::First(tunnel(&ip, ip.payload())?, datagram)),
        protocol::GRE => Some(Packet::Data(tunnel(&ip, ip.payload())?)),
        _ if is_piece => None,
        _ => quoted(&ip).map(Packet::Error),
    }
}

/// The tunnel of the packet that an ICMP error quotes.
fn quoted(ip: &Ipv4<&[u8]>) -> Option<Tunnel> {
    let message = ip.payload();
    let is_known = matches!(
        *message.first()?,
        kind::UNREACHABLE | kind::TIME_EXCEEDED | kind::PARAMETER_PROBLEM
    );
    let quoted = message.get(icmp::HEADER_LEN..).filter(|_| is_known)?;
    let about = Ipv4::new_header_checked(quoted).ok()?;
    let is_first = about.fragment_offset() == 0 && about.protocol() == protocol::GRE;
    let is_answer = ip.destination() == about.source();
    let payload = quoted.get(about.header_len()..).filter(|_| is_first && is_answer)?;
    tunnel(&about, payload)
}

fn tunnel<T: AsRef<[u8]>>(ip: &Ipv4<T>, payload: &[u8]) -> Option<Tunnel> {
    // A key, and neither checksum nor routing, which would come before the key; version 1.
    let &[first, second, high, low, _, _, call_high, call_low] = payload.first_chunk()?;
    let is_enhanced = first & 0b1110_0000 == 0b0010_0000 && second & 0b111 == 1;
    let is_of_ppp = is_enhanced && u16::from_be_bytes([high, low]) == PPP;
    let call = u16::from_be_bytes([call_high, call_low]);
    is_of_ppp.then(|| Tunnel { source: ip.source(), destination: ip.destination(), call })
}

/// True if a packet may travel on: its TTL lasts, and it fits into `mtu` bytes or may be cut.
pub(super) fn may_pass(bytes: &[u8], mtu: u16) -> bool {
    let ip = Ipv4::new_checked(bytes);
    ip.is_ok_and(|ip| ip.ttl() > 1 && !(ip.dont_fragment() && ip.total_len() > mtu))
}

/// Changes a packet of [`read`], and decreases its TTL. Wrong checksums stay wrong.
pub(super) fn rewrite(bytes: &mut [u8], rewrite: Rewrite) {
    let Rewrite { source, destination, call, identification, error } = rewrite;
    let ttl = bytes[8];
    let (own_source, own_destination) = error.unwrap_or((source, destination));
    let mut delta = set_addresses(bytes, own_source, own_destination);
    bytes[8] = ttl - 1;
    let words = |ttl: u8| u16::from_be_bytes([ttl, bytes[9]]);
    delta = delta.replace_u16(words(ttl), words(ttl - 1));
    if let Some(new) = identification {
        let (old, new) = set_word(bytes, 4, new);
        delta = delta.replace_u16(old, new);
    }
    update(bytes, 10, delta);
    let message = &mut bytes[20..];
    if error.is_none() {
        if let Some(call) = call {
            set_word(message, CALL_AT, call);
        }
        return;
    }
    let quoted = &mut message[icmp::HEADER_LEN..];
    let header_len = usize::from(quoted[0] & 15) * 4;
    let delta = set_addresses(quoted, source, destination);
    let (old, new) = update(quoted, 10, delta);
    let mut all = delta.replace_u16(old, new);
    if let Some(call) = call {
        let (old, new) = set_word(quoted, header_len + CALL_AT, call);
        all = all.replace_u16(old, new);
    }
    update(message, 2, all);
}

/// Sets the destination of a segment. Wrong checksums stay wrong.
pub(super) fn redirect(segment: &mut [u8], to: SocketAddrV4) {
    const PORT_AT: usize = 2;
    const SUM_AT: usize = 16;
    let tcp = usize::from(segment[0] & 15) * 4;
    let source = segment[12..16].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let delta = set_addresses(segment, source, to.ip().to_bits());
    update(segment, 10, delta);
    let (old, new) = set_word(segment, tcp + PORT_AT, to.port());
    update(segment, tcp + SUM_AT, delta.replace_u16(old, new));
}

/// Sets the addresses of a header; returns the change of its checksum.
fn set_addresses(header: &mut [u8], source: u32, destination: u32) -> Delta {
    let mut delta = Delta::NONE;
    for (at, new) in [(12, source), (16, destination)] {
        let place = &mut header[at..at + 4];
        let old = place.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        place.copy_from_slice(&new.to_be_bytes());
        delta = delta.replace_u32(old, new);
    }
    delta
}

/// Updates a checksum; returns the old and the new one.
fn update(bytes: &mut [u8], at: usize, delta: Delta) -> (u16, u16) {
    let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    set_word(bytes, at, delta.apply(old))
}

/// Sets a word; returns the old and the new one.
fn set_word(bytes: &mut [u8], at: usize, new: u16) -> (u16, u16) {
    let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
    (old, new)
}
