//! The quick way: whole UDP datagrams and TCP segments, without IP options, of sessions that are there
//! and stay in their state. Most packets are such.
//!
//! What the first packet of a session was asked, its session answers for: source and destination
//! have been looked at, the filter has let them pass. Left are the headers, TTL, MTU, and what may
//! differ from packet to packet. Whatever is not as expected goes on as it came to the complete way
//! (`translate.rs`), which would do the same with every packet that passes here, only slower; the
//! model and the tests of this module hold the two against each other.

use super::Engine;
use super::mappings::Flow;
use crate::calendar::NONE;
use crate::external::{Draw, External, Wish};
use crate::packet::{Direction, Packet, Side};
use crate::parse::is_martian;
use crate::respond::DEFAULT_MTU;
use crate::session::{Segment, Session, State, Way};
use natgate_wire::checksum::fold;
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use natgate_wire::{Tcp, protocol, tcp, udp};

const IPV4_LEN: usize = 20;
const UDP_END: usize = IPV4_LEN + 8;
const TCP_END: usize = IPV4_LEN + 20;

/// What of a packet matters here; read once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glance {
    /// From inside: the hash that the mapping is filed by. From outside: the place of the external
    /// port among all of its protocol.
    place: u64,
    source_address: u32,
    destination_address: u32,
    source_port: u16,
    destination_port: u16,
    total_len: u16,
    /// TCP, UDP, or 0: the packet is for the complete way.
    protocol: u8,
    flags: u8,
    /// The mapping's slot, most likely, or [`NONE`].
    slot: u32,
    /// The sender's record, and a port drawn for a new mapping, if there is none and it may get one.
    record: u32,
    draw: Option<Draw>,
}

impl Glance {
    pub(super) const OTHER: Self = Self {
        place: 0,
        source_address: 0,
        destination_address: 0,
        source_port: 0,
        destination_port: 0,
        total_len: 0,
        protocol: 0,
        flags: 0,
        slot: NONE,
        record: NONE,
        draw: None,
    };

    /// Reads the headers of a packet; says whether it is of the usual kind.
    #[inline(always)]
    fn read(&mut self, bytes: &[u8]) -> bool {
        const VERSION_AND_LEN: u8 = 0x45;
        const RESERVED_AND_FRAGMENT: u16 = 0xbfff;
        let Some(head) = bytes.first_chunk::<UDP_END>() else { return false };
        let sum = (native_at(head, 0) + native_at(head, 4))
            + (native_at(head, 8) + native_at(head, 12))
            + native_at(head, 16);
        self.total_len = u16_at(head, 2);
        self.source_address = u32_at(head, 12);
        self.destination_address = u32_at(head, 16);
        self.source_port = u16_at(head, 20);
        self.destination_port = u16_at(head, 22);
        let len = usize::from(self.total_len);
        let usual = head[0] == VERSION_AND_LEN
            && u16_at(head, 6) & RESERVED_AND_FRAGMENT == 0
            && (UDP_END..=bytes.len()).contains(&len)
            && head[8] > 1
            && is_all_ones(sum);
        let whole = if head[9] == protocol::UDP {
            let length = usize::from(u16_at(head, 24));
            self.flags = 0;
            (udp::HEADER_LEN..=len.wrapping_sub(IPV4_LEN)).contains(&length)
        } else if head[9] == protocol::TCP
            && let Some(head) = bytes.first_chunk::<TCP_END>()
        {
            let header_len = usize::from(head[32] >> 4) * 4;
            self.flags = head[33];
            (tcp::HEADER_LEN..=len.wrapping_sub(IPV4_LEN)).contains(&header_len)
        } else {
            false
        };
        let good = usual && whole;
        self.protocol = if good { head[9] } else { 0 };
        good
    }
}

/// From which side packets come, known when the code is made.
pub(super) trait From {
    const SIDE: Side;
    const WAY: Way;
}

/// From the inside.
pub(super) enum Inside {}

impl From for Inside {
    const SIDE: Side = Side::Inside;
    const WAY: Way = Way::Out;
}

/// From the outside.
pub(super) enum Outside {}

impl From for Outside {
    const SIDE: Side = Side::Outside;
    const WAY: Way = Way::In;
}

/// What is the same for every packet of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    mtu: u16,
    udp: u32,
    established: u32,
    opening: u32,
    inbound_refresh: bool,
    /// Whether sources are translated by subscriber alone: no rules, no static mappings, and any may
    /// have any port.
    plain: bool,
}

/// Packets that went the quick way, to be counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Engine {
    pub(super) fn round<F: From>(&self) -> Round {
        let other = match F::SIDE {
            Side::Inside => &self.config.outside,
            Side::Outside => &self.config.inside,
        };
        Round {
            mtu: other.mtu.unwrap_or(DEFAULT_MTU),
            udp: self.deadline(self.now, self.timeouts.udp),
            established: self.deadline(self.now, self.timeouts.established),
            opening: self.deadline(self.now, self.timeouts.opening),
            inbound_refresh: self.config.inbound_refresh,
            plain: self.rules.is_empty()
                && self.config.statics.is_empty()
                && self.external.is_shared(self.config.default_pool),
        }
    }

    /// Stage one: reads a packet and fetches the line by which its mapping will be found.
    #[inline(always)]
    pub(super) fn glance<F: From>(&self, glance: &mut Glance, bytes: &[u8]) {
        // What stood here before was about another packet.
        *glance = Glance::OTHER;
        if !glance.read(bytes) {
            return;
        }
        let destination = (glance.destination_address, glance.destination_port);
        match F::SIDE {
            Side::Inside => {
                let source = (glance.source_address, glance.source_port);
                let key = self.table.key(glance.protocol, source, destination);
                glance.place = self.table.prefetch_index(key);
            }
            Side::Outside => match self.external.index(destination.0) {
                Some(index) => {
                    glance.place = External::entry(index, destination.1) as u64;
                    self.external.prefetch(glance.protocol, glance.place as usize);
                }
                None => glance.protocol = 0,
            },
        }
    }

    /// Stage two: fetches the line of the mapping; says whether there seems to be none for a packet
    /// from inside, and stage three has something to do.
    #[inline(always)]
    pub(super) fn approach<F: From>(&self, round: &Round, glance: &mut Glance) -> bool {
        if glance.protocol == 0 {
            return false;
        }
        let slot = match F::SIDE {
            Side::Inside => self.table.candidate(glance.place),
            Side::Outside => self.external.owner_at(glance.protocol, glance.place as usize),
        };
        if let Some(slot) = slot {
            glance.slot = slot;
            self.table.prefetch_mapping(slot);
        }
        let new = F::SIDE == Side::Inside && slot.is_none() && round.plain;
        if new {
            self.subscribers.prefetch(glance.source_address);
        }
        new
    }

    /// Stage three, of packets from inside that seem to have no mapping: looks the sender up, draws a
    /// port for it, and fetches what a new mapping will touch.
    #[inline(never)]
    pub(super) fn prepare(&mut self, glances: &mut [Glance]) {
        let is_new = |glance: &&mut Glance| glance.slot == NONE && glance.protocol != 0;
        for glance in glances.iter_mut().filter(is_new) {
            self.subscribers.prefetch_record(glance.source_address);
        }
        for glance in glances.iter_mut().filter(is_new) {
            let record = self.subscribers.find(glance.source_address);
            glance.record = record.unwrap_or(NONE);
            glance.draw = self.external.draw(&self.wish(glance, record), &mut self.generator);
        }
    }

    #[inline]
    fn wish(&self, glance: &Glance, record: Option<u32>) -> Wish {
        let pool = self.config.default_pool;
        Wish {
            pool,
            protocol: glance.protocol,
            internal_port: glance.source_port,
            paired: record.and_then(|at| self.subscribers.paired(at, pool)),
        }
    }

    /// Stage four, of what is no established session: makes the mapping of a subscriber's new flow
    /// and translates its first packet, or leaves both to the complete way.
    #[inline(never)]
    pub(super) fn quick_new(
        &mut self,
        round: &Round,
        glance: &Glance,
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> bool {
        let (source, destination) = (glance.source_address, glance.destination_address);
        let internal = (source, glance.source_port);
        let remote = (destination, glance.destination_port);
        let protocol = glance.protocol;
        let opens = protocol == protocol::UDP
            || glance.flags & (SYN | ACK | RST | FIN) == SYN && self.config.tcp_mss.is_none();
        if !round.plain
            || protocol == 0
            || !opens
            || glance.total_len > round.mtu
            || source == destination
            || [source, destination]
                .iter()
                .any(|&end| is_martian(end) || self.external.may_have(end) || self.is_own(end))
            || [source, destination].iter().any(|end| self.broadcasts.contains(end))
            || !self.is_subscriber(source)
            || self.is_inside(destination)
        {
            return false;
        }
        let key = self.table.key(protocol, internal, remote);
        if self.table.find_hashed(glance.place, key).is_some() {
            return false;
        }
        let record = match glance.record {
            // An earlier packet may have brought the sender its record.
            NONE => self.subscribers.find(source),
            record => Some(record),
        };
        let wish = self.wish(glance, record);
        if self.check_limits(record, wish.paired, protocol).is_err() {
            return false;
        }
        let external = match self.external.drawn(&wish, glance.draw) {
            None => self.external.choose(wish, self.subscribers.tenants(), &mut self.generator),
            drawn => drawn,
        };
        let Some(external) = external else { return false };
        let mut session = Session::new(remote.0, remote.1);
        session.expires = round.udp;
        session.set_state(State::Open);
        if protocol == protocol::TCP {
            session.set_state(State::None);
            session.take_segment(Way::Out, opening_segment(packet.bytes(), glance));
            session.expires = round.opening;
        }
        session.count(Way::Out);
        let pool = self.config.default_pool;
        let flow = Flow { protocol, internal, pool, record, hash: glance.place, session };
        self.add_dynamic(&flow, external);
        packet.truncate(usize::from(glance.total_len));
        tally.packets += 1;
        tally.bytes += u64::from(glance.total_len);
        let external = (self.external.address(external.0), external.1);
        rewrite::<12, 20>(packet.bytes_mut(), protocol, internal, external);
        true
    }

    /// Stage four: translates the packet, or leaves it untouched for the complete way.
    #[inline(always)]
    pub(super) fn quick<F: From>(
        &mut self,
        round: &Round,
        glance: &Glance,
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> bool {
        let remote = match F::WAY {
            Way::Out => (glance.destination_address, glance.destination_port),
            Way::In => (glance.source_address, glance.source_port),
        };
        // A hairpinned packet's remote is an external address.
        if glance.slot == NONE
            || glance.total_len > round.mtu
            || self.external.may_have(remote.0)
            || F::WAY == Way::Out && !self.rules.is_empty()
        {
            return false;
        }
        let mapping = self.table.mapping_mut(glance.slot);
        let session = &mut mapping.first;
        let is_its_own = session.remote_address == remote.0
            && session.remote_port == remote.1
            && (F::WAY == Way::In
                || mapping.internal_address == glance.source_address
                    && mapping.internal_port == glance.source_port
                    && mapping.protocol == glance.protocol);
        let connected = session.is(State::Established);
        let stays = session.is(State::Open) || connected && glance.flags & (SYN | RST | FIN) == 0;
        let expires = if connected { round.established } else { round.udp };
        let refreshes = F::WAY == Way::Out || round.inbound_refresh;
        // A timer that would have to run sooner is the complete way's business.
        if !is_its_own || !stays || refreshes && expires < session.expires {
            return false;
        }
        if refreshes {
            session.expires = expires;
        }
        if connected {
            session.learn(F::WAY, segment(packet.bytes(), glance.flags));
        }
        session.count(F::WAY);
        packet.truncate(usize::from(glance.total_len));
        tally.packets += 1;
        tally.bytes += u64::from(glance.total_len);
        let internal = (mapping.internal_address, mapping.internal_port);
        let external = (mapping.external_address, mapping.external_port);
        match F::WAY {
            Way::Out => rewrite::<12, 20>(packet.bytes_mut(), glance.protocol, internal, external),
            Way::In => rewrite::<16, 22>(packet.bytes_mut(), glance.protocol, external, internal),
        }
        true
    }

    /// Counts packets that went the quick way.
    pub(super) fn count_quick<F: From>(&mut self, tally: Tally) {
        let direction = match F::SIDE {
            Side::Inside => Direction::Outbound,
            Side::Outside => Direction::Inbound,
        };
        self.counters.count_forwarded(direction, tally.packets, tally.bytes);
    }
}

/// What a SYN says.
fn opening_segment(bytes: &[u8], glance: &Glance) -> Segment {
    let bytes = &bytes[..usize::from(glance.total_len)];
    let header = bytes.get(IPV4_LEN..).and_then(Tcp::new_checked);
    let scale = header.and_then(|header| header.window_scale());
    Segment { scale, ..segment(bytes, glance.flags) }
}

fn segment(bytes: &[u8], flags: u8) -> Segment {
    match bytes.first_chunk::<TCP_END>() {
        Some(head) => Segment {
            flags,
            sequence: u32_at(head, 24),
            acknowledgment: u32_at(head, 28),
            window: u16_at(head, 34),
            scale: None,
        },
        None => Segment::default(),
    }
}

/// Puts one new endpoint in the place of an old one, whose address and port stand at these offsets,
/// takes one from the TTL, and updates both checksums by what changed (RFC 1624).
#[inline(always)]
fn rewrite<const ADDRESS: usize, const PORT: usize>(
    bytes: &mut [u8],
    protocol: u8,
    old: (u32, u16),
    new: (u32, u16),
) {
    /// What one less in the upper byte of a word does.
    const TTL: u32 = 0xfeff;
    let address = (!old.0 >> 16) + (!old.0 & 0xffff) + (new.0 >> 16) + (new.0 & 0xffff);
    let transport = address + u32::from(!old.1) + u32::from(new.1);
    let Some(head) = bytes.first_chunk_mut::<UDP_END>() else { return };
    head[8] -= 1;
    let checksum = updated(u16_at(head, 10), address + TTL);
    head[10..12].copy_from_slice(&checksum.to_be_bytes());
    head[ADDRESS..ADDRESS + 4].copy_from_slice(&new.0.to_be_bytes());
    head[PORT..PORT + 2].copy_from_slice(&new.1.to_be_bytes());
    if protocol == protocol::UDP {
        let checksum = u16_at(head, IPV4_LEN + udp::CHECKSUM);
        if checksum != 0 {
            let updated = match updated(checksum, transport) {
                0 => 0xffff,
                updated => updated,
            };
            head[IPV4_LEN + udp::CHECKSUM..].copy_from_slice(&updated.to_be_bytes());
        }
    } else if let Some(head) = bytes.first_chunk_mut::<TCP_END>() {
        let at = IPV4_LEN + tcp::CHECKSUM;
        let updated = updated(u16_at(head, at), transport);
        head[at..at + 2].copy_from_slice(&updated.to_be_bytes());
    }
}

/// Whether the ones' complement sum that 32-bit words add up to has sixteen ones: a header with its
/// checksum right. The sum does not depend on the order of bytes (RFC 1071 section 2).
#[inline(always)]
fn is_all_ones(sum: u64) -> bool {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[inline(always)]
fn updated(checksum: u16, delta: u32) -> u16 {
    !fold(u32::from(!checksum) + delta)
}

#[inline(always)]
fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn native_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}
