//! The quick way: whole UDP datagrams and TCP segments, without IP options, of sessions that are
//! there and stay in their state. Most packets are such.
//!
//! What the first packet of a session was asked, its session answers for: source and destination
//! have been looked at, the filter has let them pass. Left are the headers, TTL, MTU, and what may
//! differ from packet to packet. Whatever is not as expected goes on as it came to the complete way
//! (`translate.rs`), which would do the same with every packet that passes here, only slower; the
//! model and the tests of this module hold the two against each other.

use super::Engine;
use super::mappings::Flow;
use super::patch::{rewrite, u16_at, u32_at, u64_at};
use crate::calendar::NONE;
use crate::endpoint::{AddressPort, External, Internal};
use crate::external::{Draw, ExternalPorts, Wish};
use crate::host::Host;
use crate::packet::{Direction, Packet, Side, Verdict};
use crate::parse::is_martian;
use crate::protocols::quota_class;
use crate::session::{Idle, Segment, State, Way};
use crate::table::Epoch;
use crate::timeouts::{SETS, Timers, deadline};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use natgate_wire::{Tcp, protocol, tcp, udp};

pub(super) const IPV4_LEN: usize = 20;
pub(super) const UDP_END: usize = IPV4_LEN + 8;
pub(super) const TCP_END: usize = IPV4_LEN + 20;

/// What of a packet matters here; read once.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParsedHeaders {
    /// From inside: the hash that the mapping is filed by. From outside: the place of the external
    /// port among all of its protocol.
    place: u64,
    pub(super) source: AddressPort,
    pub(super) destination: AddressPort,
    pub(super) total_len: u16,
    /// The realm that it came from, if from inside.
    pub(super) realm: u16,
    /// TCP, UDP, or 0: the packet is for the complete way.
    pub(super) protocol: u8,
    flags: u8,
    /// The mapping's slot, most likely, or [`NONE`].
    slot: u32,
    /// What the rules say of a packet that seems to have no mapping; known from stage three on.
    pub(super) ruled: FlowRule,
    /// The sender's record and the port drawn for a new mapping, if there is none and it may get
    /// one.
    pub(super) record: u32,
    pub(super) draw: Option<Draw>,
}

/// What becomes of a flow that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowRule {
    /// No rule says anything.
    Not,
    /// It is translated: to a port of a pool, perhaps of this address alone, by this set of
    /// timeouts.
    Snat {
        pool: u16,
        fixed: Option<u16>,
        timeouts: u8,
    },
    Bypass,
    Drop,
    /// The complete way finds out.
    Unknown,
}

impl ParsedHeaders {
    pub(super) const OTHER: Self = Self {
        place: 0,
        source: AddressPort::new(0, 0),
        destination: AddressPort::new(0, 0),
        total_len: 0,
        realm: 0,
        protocol: 0,
        flags: 0,
        slot: NONE,
        ruled: FlowRule::Not,
        record: NONE,
        draw: None,
    };

    /// Whether it is one from inside that seems to have no mapping.
    #[inline(always)]
    pub(super) fn is_new(&self) -> bool {
        self.slot == NONE && self.protocol != 0
    }

    /// What a new mapping for it asks for.
    #[inline(always)]
    pub(super) fn wish(&self, pool: usize, paired: Option<u32>, fixed: Option<u32>) -> Wish {
        Wish { pool, protocol: self.protocol, internal_port: self.source.port, paired, fixed }
    }

    /// The host inside that sent it.
    #[inline(always)]
    pub(super) fn host(&self) -> Host {
        Host::new(self.realm, self.source.address)
    }

    /// The internal endpoint that sent it.
    #[inline(always)]
    fn internal(&self) -> Internal {
        Internal::new(self.host(), self.source.port)
    }

    /// Reads the headers of a packet; one that is not of the usual kind is
    /// [`ParsedHeaders::OTHER`].
    #[inline(always)]
    fn read(bytes: &[u8]) -> Self {
        /// Version, header length, and the flags and offset that only fragments have.
        const SHAPE: u64 = 0xff00_0000_0000_bfff;
        const USUAL: u64 = 0x4500_0000_0000_0000;
        let Some(head) = bytes.first_chunk::<UDP_END>() else { return Self::OTHER };
        let [first, second, third] = [u64_at(head, 0), u64_at(head, 8), u64_at(head, 16)];
        let halves = |word: u64| (word >> 32) + (word & 0xffff_ffff);
        let sum = halves(first) + halves(second) + (third >> 32);
        let (total_len, protocol) = ((first >> 32) as u16, (second >> 48) as u8);
        // What follows the first 28 bytes.
        let rest = usize::from(total_len).wrapping_sub(UDP_END);
        let usual = first & SHAPE == USUAL
            && rest <= bytes.len() - UDP_END
            && second >> 56 > 1
            // Not all of it is zero, so that this says whether all bits of the folded sum are ones.
            && sum % 0xffff == 0;
        let mut flags = 0;
        let whole = if protocol == protocol::UDP {
            usize::from(u16_at(head, 24)).wrapping_sub(udp::HEADER_LEN) <= rest
        } else if protocol == protocol::TCP
            && let Some(head) = bytes.first_chunk::<TCP_END>()
        {
            let header_len = usize::from(head[32] >> 4) * 4;
            flags = head[33];
            (tcp::HEADER_LEN..=rest.wrapping_add(udp::HEADER_LEN)).contains(&header_len)
        } else {
            false
        };
        if !usual || !whole {
            return Self::OTHER;
        }
        Self {
            source: AddressPort::new(second as u32, (third >> 16) as u16),
            destination: AddressPort::new((third >> 32) as u32, third as u16),
            total_len,
            protocol,
            flags,
            ..Self::OTHER
        }
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
    pub(super) mtu: u16,
    /// Deadlines of UDP's sessions, and of established ones, by their mappings' sets of timeouts.
    udp: [u32; SETS],
    established: [u32; SETS],
    opening: u32,
    /// Whether the remote port may say otherwise; the present time since that of tick 0.
    by_port: bool,
    since_base: u64,
    inbound_refresh: bool,
    /// Whether there are rules.
    rules: bool,
    /// In which mappings answer for their first session's packets.
    epoch: Epoch,
    /// Whether somebody who is no subscriber may have a record.
    strangers: bool,
    /// Whether mappings may be filed apart from what they are looked up by first.
    statics: bool,
    /// Whether there are pools whose ports are shared out.
    shares: bool,
    /// Whether flows may begin here: no destination is another outside.
    news: bool,
    /// The largest number of a realm.
    pub(super) last_realm: u16,
}

impl Round {
    /// The deadline of a session that begins, of a mapping with this set of timeouts.
    #[inline(always)]
    fn first_deadline(&self, timers: &Timers, set: u8, protocol: u8, remote_port: u16) -> u32 {
        let is_tcp = protocol == protocol::TCP;
        if set == 0 && !self.by_port {
            return if is_tcp { self.opening } else { self.udp[0] };
        }
        let idle = if is_tcp { Idle::Opening } else { Idle::Established };
        deadline(self.since_base, timers.of(set, idle, protocol, remote_port))
    }
}

/// Packets that went the quick way, to be counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Engine {
    pub(super) fn round<F: From>(&self) -> Round {
        let since_base = self.since_base();
        let (mut udp, mut established) = ([0; SETS], [0; SETS]);
        for set in 0..self.timeouts.sets() {
            let times = self.timeouts.usual(set);
            udp[set] = deadline(since_base, times.0);
            established[set] = deadline(since_base, times.1);
        }
        Round {
            mtu: match F::SIDE {
                Side::Inside => self.outside_mtu(),
                // To which realm, is not known yet.
                Side::Outside => self.realms.least_mtu(),
            },
            udp,
            established,
            opening: self.deadline(self.now, self.timeouts.of(0, Idle::Opening, protocol::TCP, 0)),
            by_port: self.timeouts.by_port(),
            since_base,
            inbound_refresh: self.config.inbound_refresh,
            rules: self.realms.any_rules(),
            epoch: self.table.epoch(),
            strangers: self.strangers,
            statics: self.has_for_all(),
            shares: self.external.has_shares(),
            news: !self.has_twice(),
            last_realm: self.config.realms.len() as u16,
        }
    }

    /// Stage one: reads a packet and fetches the line by which its mapping will be found.
    #[inline(always)]
    pub(super) fn glance<F: From>(&self, packet: &Packet<'_>) -> ParsedHeaders {
        let mut glance = ParsedHeaders::read(packet.bytes());
        if glance.protocol == 0 {
            return glance;
        }
        match F::SIDE {
            Side::Inside => {
                glance.realm = packet.realm();
                let (internal, remote) = (glance.internal(), glance.destination);
                glance.place = self.table.prefetch_index(glance.protocol, internal, remote);
            }
            Side::Outside => match self.external.index(glance.destination.address) {
                Some(index) => {
                    glance.place = ExternalPorts::entry(index, glance.destination.port) as u64;
                    self.external.prefetch(glance.protocol, glance.place as usize);
                }
                None => glance.protocol = 0,
            },
        }
        glance
    }

    /// Stage two: fetches the line of the mapping; says whether there seems to be none for a packet
    /// from inside, and stage three has something to do.
    #[inline(always)]
    pub(super) fn approach<F: From>(&self, round: &Round, glance: &mut ParsedHeaders) -> bool {
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
        if F::SIDE == Side::Outside || slot.is_some() || !round.news {
            return false;
        }
        if glance.realm > round.last_realm {
            glance.protocol = 0;
            return false;
        }
        self.subscribers.prefetch(glance.host());
        true
    }

    /// Stage three, of packets from inside that seem to have no mapping: asks the rules, looks the
    /// sender up, draws a port for it, and fetches what a new mapping will touch. A sender without
    /// a record is for the complete way.
    #[inline(never)]
    pub(super) fn prepare(&mut self, round: &Round, glances: &mut [ParsedHeaders]) {
        for glance in glances.iter_mut().filter(|glance| glance.is_new()) {
            glance.record = self.subscribers.approach(glance.host());
        }
        if round.rules {
            self.ask_rules(round, glances);
        }
        for glance in glances.iter_mut().filter(|glance| glance.is_new()) {
            let approached = core::mem::replace(&mut glance.record, NONE);
            let Some((pool, fixed)) = self.source_of(glance) else { continue };
            let host = glance.host();
            let Some(record) = self.subscribers.find_from(approached, host) else { continue };
            self.subscribers.settle(record);
            let Some(paired) = self.subscribers.known_pair(record, pool) else { continue };
            // Who is paired with an address that gives out nothing there is paired anew.
            if fixed.is_none() && paired.is_some_and(|index| !self.external.is_open(index, pool)) {
                continue;
            }
            glance.record = record;
            if round.shares && !self.external.is_shared(pool) {
                self.external.approach_share(pool, host, glance.protocol);
                continue;
            }
            let wish = glance.wish(pool, paired, fixed);
            glance.draw = self.external.draw(wish, &mut self.generator);
        }
        if round.shares {
            self.draw_shares(glances);
        }
        for glance in glances.iter() {
            if let Some(draw) = &glance.draw {
                self.external.prefetch_drawn(glance.protocol, draw);
            }
        }
        self.table.prefetch_free();
    }

    /// Where the external endpoint of a new flow comes from: the pool, and the index of the one
    /// address that it is to be; `None`: the flow is not translated, or not here.
    #[inline(always)]
    pub(super) fn source_of(&self, glance: &ParsedHeaders) -> Option<(usize, Option<u32>)> {
        match glance.ruled {
            FlowRule::Not => Some((self.config.default_pool_of(glance.realm), None)),
            FlowRule::Snat { pool, fixed, .. } => Some((usize::from(pool), fixed.map(u32::from))),
            _ => None,
        }
    }

    /// True if a packet from inside may begin a session the quick way.
    #[inline(always)]
    fn may_begin(&self, round: &Round, glance: &ParsedHeaders) -> bool {
        let ParsedHeaders { source, destination: remote, protocol, .. } = *glance;
        let opens = protocol == protocol::UDP
            || glance.flags & (SYN | ACK | RST | FIN) == SYN && self.config.tcp_mss.is_none();
        let is_stranger = || {
            (round.strangers || round.rules)
                && glance.ruled == FlowRule::Not
                && !self.is_subscriber(glance.host())
        };
        opens
            && glance.total_len <= round.mtu
            && source.address != remote.address
            && !is_stranger()
            && self.may_be_remote(remote.address)
            && (glance.realm == 0 || self.may_leave(glance.realm, source.address, remote.address))
    }

    /// Stage four, of what is no established session: makes the mapping of a subscriber's new flow
    /// and translates its first packet, or does what a rule says; or leaves all to the complete
    /// way.
    #[inline(never)]
    pub(super) fn quick_new(
        &mut self,
        round: &Round,
        glance: &ParsedHeaders,
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> Option<Verdict> {
        let ParsedHeaders { source, destination: remote, protocol, record, .. } = *glance;
        // A subscriber with a record has made a mapping before: its address was checked then.
        let Some(draw) = glance.draw else {
            return match glance.ruled {
                FlowRule::Bypass | FlowRule::Drop => {
                    self.untranslated(round, glance, packet, tally)
                }
                _ => None,
            };
        };
        if !self.may_begin(round, glance) {
            return None;
        }
        let internal = glance.internal();
        // An earlier packet of the batch may have made the mapping.
        if self.table.find_flow(glance.place, protocol, internal, remote).is_some()
            || round.statics && self.is_static(protocol, internal, remote)
            || self.table.has_shared_internal()
                && self.table.find_shared_internal(protocol, internal, remote).is_some()
            || self.subscribers.check_record(record, quota_class(protocol), self.now).is_err()
            || self.table.is_full(protocol)
        {
            return None;
        }
        let External { index, port } = match self.external.drawn(protocol, &draw) {
            Some(external) => external,
            None => self.draw_again(glance, &draw)?,
        };
        let (pool, fixed, timeouts) = match glance.ruled {
            FlowRule::Snat { pool, fixed, timeouts } => (pool.into(), fixed.is_some(), timeouts),
            _ => (self.config.default_pool_of(glance.realm), false, 0),
        };
        let (record, hash) = (Some(record), glance.place);
        let overloads = false;
        let flow = Flow { protocol, internal, pool, fixed, timeouts, record, hash, overloads };
        let expires = round.first_deadline(&self.timeouts, timeouts, protocol, remote.port);
        let slot = self.add_dynamic(&flow, External::new(index, port), |session| {
            AddressPort { address: session.remote_address, port: session.remote_port } = remote;
            if protocol == protocol::TCP {
                session.take_segment(Way::Out, opening_segment(packet.bytes(), glance));
            } else {
                session.set_state(State::Open);
            }
            session.expires = expires;
            session.count(Way::Out);
        });
        if self.config.session_events {
            self.tell_begun(slot, remote, remote);
        }
        packet.truncate(usize::from(glance.total_len));
        tally.packets += 1;
        tally.bytes += u64::from(glance.total_len);
        let external = AddressPort::new(self.external.address(index), port);
        rewrite::<Inside>(packet.bytes_mut(), protocol, source, external);
        Some(Verdict::Forward(Side::Outside))
    }

    /// Whether a packet from inside that goes there is for somebody outside, as far as realm 0
    /// knows.
    #[inline(always)]
    pub(super) fn may_be_remote(&self, destination: u32) -> bool {
        !is_martian(destination)
            && !self.external.may_have(destination)
            && !self.broadcasts.contains(&destination)
            && !self.is_own(0, destination)
            && !self.is_inside(0, destination)
            && !self.is_routed_inside(0, destination)
    }

    /// Whether a realm says no more against the ends of a packet from there: somebody may send as
    /// its source, and its destination is outside. Broadcast addresses of its network are inside.
    #[inline(never)]
    pub(super) fn may_leave(&self, realm: u16, source: u32, destination: u32) -> bool {
        !self.is_broadcast(Some(realm), source)
            && !self.is_ours(Some(realm), source)
            && !self.is_own(realm, destination)
            && !self.is_inside(realm, destination)
            && !self.is_routed_inside(realm, destination)
    }

    /// Stage four: translates the packet, or leaves it untouched for the complete way.
    #[inline(always)]
    pub(super) fn quick<F: From>(
        &mut self,
        round: &Round,
        glance: &ParsedHeaders,
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> bool {
        let remote = match F::WAY {
            Way::Out => glance.destination,
            Way::In => glance.source,
        };
        // A hairpinned packet's remote is an external address.
        if glance.slot == NONE
            || glance.total_len > round.mtu
            || self.external.may_have(remote.address)
        {
            return false;
        }
        let mapping = self.table.mapping_mut(glance.slot);
        let (internal, external) = (mapping.internal(), mapping.external());
        let answers = mapping.answers(round.epoch);
        let set = mapping.timeouts();
        let session = &mut mapping.first;
        let is_its_own = answers
            && session.remote() == remote
            && (F::WAY == Way::In
                || internal == glance.internal() && mapping.protocol == glance.protocol);
        // The first answer to an unanswered session takes the complete way.
        let connected = session.is_towards(F::WAY, State::Established);
        let open = session.is_towards(F::WAY, State::Open);
        let stays = open || connected && glance.flags & (SYN | RST | FIN) == 0;
        let expires = match round.by_port {
            true => {
                let time = self.timeouts.of_open(set, glance.protocol, remote.port);
                deadline(round.since_base, time)
            }
            false if connected => round.established[usize::from(set)],
            false => round.udp[usize::from(set)],
        };
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
        match F::WAY {
            Way::Out => {
                let new = AddressPort::new(self.external.address(external.index), external.port);
                rewrite::<F>(packet.bytes_mut(), glance.protocol, glance.source, new);
            }
            Way::In => {
                packet.set_realm(internal.host.realm());
                let (old, new) =
                    (glance.destination, AddressPort::new(internal.host.address(), internal.port));
                rewrite::<F>(packet.bytes_mut(), glance.protocol, old, new);
            }
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
fn opening_segment(bytes: &[u8], glance: &ParsedHeaders) -> Segment {
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
