//! Common parts of the attacks: a victim, packets that no honest sender makes, a picture of all
//! that an attack could change, and random numbers from a fixed seed.

use crate::common::*;
use natgate_engine::{Config, DropReason, MappingInfo, SessionInfo, Side, Timestamp, Verdict};
use natgate_wire::{Ipv4, Udp, checksum, protocol};

/// The victim's internal endpoint; it talks to [`REMOTE`].
pub(crate) const VICTIM: &str = "10.0.0.5:4000";
/// A host outside that no host inside has sent to.
pub(crate) const ATTACKER: &str = "198.51.100.66:6666";

/// Numbers from a fixed seed (SplitMix64): they are the same in every run, so a failure repeats.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.next() as u32
    }
}

/// The fields of a TCP segment that matter to a session.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) flags: &'static str,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) window: u16,
    pub(crate) scale: Option<u8>,
}

/// A segment with a window of 1000.
pub(crate) fn segment(flags: &'static str, sequence: u32, acknowledgment: u32) -> Segment {
    Segment { flags, sequence, acknowledgment, window: 1000, scale: None }
}

impl Segment {
    pub(crate) fn packet(self, source: &str, destination: &str) -> Vec<u8> {
        let mut bytes = tcp(source, destination, self.flags, self.sequence, self.acknowledgment);
        if let Some(scale) = self.scale {
            bytes.extend([3, 3, scale, 0]);
            bytes[32] = 6 << 4;
        }
        bytes[34..36].copy_from_slice(&self.window.to_be_bytes());
        sealed(bytes)
    }
}

/// The packet with its total length and its checksums right, the TCP checksum included.
pub(crate) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let total_len = bytes.len() as u16;
    let mut packet = Ipv4::new_header_checked(&mut bytes[..]).unwrap();
    packet.set_total_len(total_len);
    packet.fill_checksum();
    if packet.protocol() == protocol::TCP {
        let (source, destination) = (packet.source(), packet.destination());
        let pseudo = checksum::pseudo_header(source, destination, protocol::TCP, total_len - 20);
        let payload = packet.payload_mut();
        payload[16..18].fill(0);
        let sum = !checksum::fold(checksum::sum(payload, pseudo));
        payload[16..18].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

/// A packet with another sequence number. Its checksum is not checked on the way.
pub(crate) fn with_sequence(segment: &[u8], sequence: u32) -> Vec<u8> {
    let mut bytes = segment.to_vec();
    bytes[24..28].copy_from_slice(&sequence.to_be_bytes());
    bytes
}

/// A packet with other ports.
pub(crate) fn with_ports(packet: &[u8], source: u16, destination: u16) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    // The ports are at the same place in TCP.
    let mut ports = Udp::new_checked(&mut bytes[20..]).unwrap();
    ports.set_source_port(source);
    ports.set_destination_port(destination);
    bytes
}

/// The present mappings and sessions, timers and packet counts included.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Picture {
    pub(crate) mappings: Vec<MappingInfo>,
    pub(crate) sessions: Vec<SessionInfo>,
    pub(crate) next_deadline: Option<Timestamp>,
}

pub(crate) fn picture(lab: &Lab) -> Picture {
    let mut mappings: Vec<_> = lab.engine.mappings().collect();
    mappings.sort_by_key(|mapping| (mapping.id.protocol, mapping.id.external));
    let mut sessions: Vec<_> = lab.engine.sessions().collect();
    sessions.sort_by_key(|session| {
        (session.mapping.protocol, session.mapping.external, session.remote)
    });
    Picture { mappings, sessions, next_deadline: lab.engine.next_deadline() }
}

/// The victim's TCP session with a remote.
pub(crate) fn session(lab: &Lab, remote: &str) -> SessionInfo {
    let (address, port) = endpoint(remote);
    let with_remote = |session: &SessionInfo| {
        (session.remote.address.to_bits(), session.remote.port) == (address, port)
            && session.mapping.protocol == protocol::TCP
            && session.mapping.internal.address.to_bits() == endpoint(VICTIM).0
    };
    let mut sessions = lab.engine.sessions().filter(with_remote);
    let session = sessions.next().expect("the victim has a session with the remote");
    assert!(sessions.next().is_none(), "the victim has one session with the remote");
    session
}

/// The victim's established TCP connection: the inside expects 501 and the outside 101, each with a
/// window of 1000. Returns it with its external endpoint.
pub(crate) fn established(config: &Config) -> (Lab, String) {
    let mut lab = Lab::new(config);
    let external = lab.external_of(&tcp(VICTIM, REMOTE, "S", 100, 0));
    lab.inward(&tcp(REMOTE, &external, "SA", 500, 101));
    lab.out(&tcp(VICTIM, REMOTE, "A", 101, 501));
    // A restart of a timer shows from here on.
    lab.wait_s(1.0);
    lab.events.clear();
    (lab, external)
}

/// True if a packet is forwarded, to either side.
pub(crate) fn passes(lab: &mut Lab, from: Side, bytes: &[u8]) -> bool {
    matches!(lab.pass(from, bytes).0, Verdict::Forward(_))
}

pub(crate) fn dropped(lab: &Lab, reason: DropReason) -> u64 {
    lab.engine.counters().drops[reason as usize]
}

/// Bytes of packets with a final outcome: forwarded, answered or dropped.
pub(crate) fn settled_bytes(lab: &Lab) -> u64 {
    lab.engine.counters().bytes.iter().flatten().sum()
}

/// The part of a datagram's payload from `start` to `end` as a fragment.
pub(crate) fn part(datagram: &[u8], identification: u16, start: usize, end: usize) -> Vec<u8> {
    let more = 20 + end < datagram.len();
    fragment(datagram, identification, start, &datagram[20 + start..20 + end], more)
}

/// A fragment with `payload` at offset `start`, valid or not.
pub(crate) fn fragment(
    header: &[u8],
    identification: u16,
    start: usize,
    payload: &[u8],
    more: bool,
) -> Vec<u8> {
    let mut bytes = [&header[..20], payload].concat();
    let total_len = bytes.len() as u16;
    let mut packet = Ipv4::new_header_checked(&mut bytes[..]).unwrap();
    packet.set_total_len(total_len);
    packet.set_identification(identification);
    packet.set_fragment_field(u16::from(more) << 13 | (start / 8) as u16);
    packet.fill_checksum();
    bytes
}
