//! The quick way: whole UDP datagrams and TCP segments, without IP options, of sessions that are
//! there and stay in their state. Most packets are such.
//!
//! The first packet of a session has passed the checks of source, destination and filter. Later
//! packets need the checks that may differ from packet to packet: headers, TTL, MTU. Any other
//! packet goes unchanged to the complete way (`translate.rs`), which gives equal results for the
//! packets of the quick way, only slower. The model and the tests of this module compare the two.

use super::Engine;
use super::mappings::Flow;
use super::parsed::ParsedHeaders;
use super::patch::{rewrite, u16_at, u32_at};
use crate::calendar::NONE;
use crate::endpoint::{AddressPort, Internal};
use crate::external::{Draw, ExternalPorts};
use crate::packet::{Direction, Packet, Side, Verdict};
use crate::parse::is_martian;
use crate::protocols::quota_class;
use crate::session::{Idle, Segment, Session, State, Way};
use crate::table::Epoch;
use crate::timeouts::{SETS, Timers, deadline};
use natgate_wire::tcp::flags::{ACK, FIN, RST, SYN};
use natgate_wire::{Tcp, protocol};

pub(super) const IPV4_LEN: usize = 20;
pub(super) const UDP_END: usize = IPV4_LEN + 8;
pub(super) const TCP_END: usize = IPV4_LEN + 20;

/// Results of stage three for a packet from inside that seems to have no mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFlow {
    pub(super) rule: FlowRule,
    /// The sender's record, and the port drawn for a new mapping, if the flow may get one.
    pub(super) record: u32,
    pub(super) draw: Option<Draw>,
    /// The port that the draw gives; 0: none.
    pub(super) port: u16,
    /// The hash by which the sender's record is found; known from stage two on.
    sender: u64,
}

const _: () = assert!(size_of::<NewFlow>() == size_of::<ParsedHeaders>());

/// The packets of a group that seem to have no mapping.
#[inline(always)]
pub(super) fn new_flows<'g>(
    headers: &'g [ParsedHeaders],
    flows: &'g mut [NewFlow],
) -> impl Iterator<Item = (&'g ParsedHeaders, &'g mut NewFlow)> {
    headers.iter().zip(flows).filter(|(headers, _)| headers.is_new())
}

impl NewFlow {
    pub(super) const NONE: Self =
        Self { rule: FlowRule::Not, record: NONE, draw: None, port: 0, sender: 0 };
}

/// The rule for a flow that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowRule {
    /// No rule matches.
    Not,
    /// The flow is translated: to a port of a pool, perhaps of this address alone, with this set of
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

/// Values that are equal for all packets of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) mtu: u16,
    /// Deadlines of UDP's sessions, and of established ones, by their mappings' sets of timeouts; 0
    /// if timeouts may depend on the remote port.
    udp: [u32; SETS],
    established: [u32; SETS],
    opening: u32,
    /// The present tick.
    tick: u32,
    /// True if timeouts may depend on the remote port. `since_base`: present time since tick 0.
    by_port: bool,
    since_base: u64,
    inbound_refresh: bool,
    /// True if there are rules.
    rules: bool,
    /// Epoch in which mappings answer for the packets of their first sessions.
    epoch: Epoch,
    /// True if a host that is no subscriber may have a record.
    strangers: bool,
    /// True if mappings may be filed under another key than the key of the first lookup.
    statics: bool,
    /// True if a pool shares ports out.
    shares: bool,
    /// True if flows may begin here: no remote endpoint has another name inside.
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
    /// Packets of the batch that went another way.
    pub(super) others: u64,
    /// Bytes of those that went the quick way.
    pub(super) bytes: u64,
}

impl Engine {
    pub(super) fn round<F: From>(&self) -> Round {
        let since_base = self.since_base();
        let by_port = self.timeouts.by_port();
        let (mut udp, mut established) = ([0; SETS], [0; SETS]);
        for set in 0..if by_port { 0 } else { self.timeouts.sets() } {
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
            tick: self.present_tick(),
            by_port,
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

    /// Stage one: reads a packet, and says where its mapping will be found.
    #[inline(always)]
    pub(super) fn read<F: From>(&self, packet: &Packet<'_>, headers: &mut ParsedHeaders) {
        headers.read::<F>(packet.bytes());
        if headers.protocol == 0 {
            return;
        }
        match F::SIDE {
            Side::Inside => {
                headers.near |= u64::from(packet.realm()) << 32;
                headers.place =
                    self.table.flow_hash(headers.protocol, headers.near, headers.remote);
            }
            Side::Outside => {
                let external = headers.source();
                match self.external.index(external.address) {
                    Some(index) => {
                        headers.place = ExternalPorts::entry(index, external.port) as u64;
                    }
                    None => headers.protocol = 0,
                }
            }
        }
    }

    /// Ends stage one: fetches the line by which the mapping will be found.
    #[inline(always)]
    pub(super) fn fetch_place<F: From>(&self, headers: &ParsedHeaders) {
        match F::SIDE {
            _ if headers.protocol == 0 => {}
            Side::Inside => self.table.prefetch_index(headers.place),
            Side::Outside => self.external.prefetch(headers.protocol, headers.place as usize),
        }
    }

    /// Stage two: finds the mapping, most likely. Says whether there seems to be none for a packet
    /// from inside, and stage three has something to do.
    #[inline(always)]
    pub(super) fn approach<F: From>(
        &self,
        round: &Round,
        headers: &mut ParsedHeaders,
        flow: &mut NewFlow,
    ) -> bool {
        headers.slot = match F::SIDE {
            _ if headers.protocol == 0 => NONE,
            Side::Inside => self.table.candidate(headers.place),
            Side::Outside => {
                let owner = self.external.owner_at(headers.protocol, headers.place as usize);
                owner.unwrap_or(NONE)
            }
        };
        F::SIDE == Side::Inside && headers.is_new() && self.approach_new(round, headers, flow)
    }

    /// The part of stage two for a packet that seems to have no mapping.
    #[inline(always)]
    fn approach_new(&self, round: &Round, headers: &mut ParsedHeaders, flow: &mut NewFlow) -> bool {
        if headers.realm() > round.last_realm || !round.news {
            headers.protocol = 0;
            return false;
        }
        flow.sender = self.subscribers.prefetch(headers.host());
        true
    }

    /// Ends stage two: fetches the line of the mapping.
    #[inline(always)]
    pub(super) fn fetch_mapping(&self, headers: &ParsedHeaders) {
        self.table.prefetch_mapping(headers.slot);
    }

    /// Stage three, of packets from inside that seem to have no mapping: asks the rules, looks the
    /// sender up, draws a port for it, and fetches what a new mapping will touch. A sender without
    /// a record is for the complete way.
    #[inline(never)]
    pub(super) fn prepare(
        &mut self,
        round: &Round,
        headers: &[ParsedHeaders],
        flows: &mut [NewFlow],
    ) {
        for (_, flow) in new_flows(headers, flows) {
            let record = self.subscribers.approach(flow.sender);
            (flow.rule, flow.record, flow.draw) = (FlowRule::Not, record, None);
        }
        if round.rules {
            self.ask_rules(round, headers, flows);
        }
        for (headers, flow) in new_flows(headers, flows) {
            self.draw_for(round, headers, flow);
        }
        if round.shares {
            self.draw_shares(headers, flows);
        }
        for (headers, flow) in new_flows(headers, flows) {
            if let Some(draw) = &flow.draw {
                flow.port = self.external.prefetch_drawn(headers.protocol, draw);
            }
        }
        self.table.prefetch_free();
    }

    /// Looks up the sender of a new flow, and draws a port unless the pool shares ports out.
    #[inline(always)]
    fn draw_for(&mut self, round: &Round, headers: &ParsedHeaders, flow: &mut NewFlow) {
        let approached = core::mem::replace(&mut flow.record, NONE);
        let Some((pool, fixed)) = self.source_of(headers, flow) else { return };
        let host = headers.host();
        let Some(record) = self.subscribers.find_from(approached, host) else { return };
        self.subscribers.settle(record);
        let Some(paired) = self.subscribers.known_pair(record, pool) else { return };
        // A subscriber that is paired with an address that gives out nothing there is paired anew.
        if fixed.is_none() && paired.is_some_and(|index| !self.external.is_open(index, pool)) {
            return;
        }
        flow.record = record;
        if round.shares && !self.external.is_shared(pool) {
            self.external.approach_share(pool, host, headers.protocol);
            return;
        }
        let wish = headers.wish(pool, paired, fixed);
        flow.draw = self.external.draw(wish, &mut self.generator);
    }

    /// Source of a new flow's external endpoint: the pool, and the index of the address if a rule
    /// fixes it; `None`: the flow is not translated, or not here.
    #[inline(always)]
    pub(super) fn source_of(
        &self,
        headers: &ParsedHeaders,
        flow: &NewFlow,
    ) -> Option<(usize, Option<u32>)> {
        match flow.rule {
            FlowRule::Not => Some((self.config.default_pool_of(headers.realm()), None)),
            FlowRule::Snat { pool, fixed, .. } => Some((usize::from(pool), fixed.map(u32::from))),
            _ => None,
        }
    }

    /// True if a packet from inside may begin a session the quick way.
    #[inline(always)]
    fn may_begin(&self, round: &Round, headers: &ParsedHeaders, flow: &NewFlow) -> bool {
        let (source, remote, protocol) = (headers.source(), headers.remote(), headers.protocol);
        let opens = protocol == protocol::UDP
            || headers.flags & (SYN | ACK | RST | FIN) == SYN && self.config.tcp_mss.is_none();
        let is_stranger = || {
            (round.strangers || round.rules)
                && flow.rule == FlowRule::Not
                && !self.is_subscriber(headers.host())
        };
        opens
            && headers.total_len <= round.mtu
            && source.address != remote.address
            && !is_stranger()
            && self.may_be_remote(remote.address)
            && (headers.realm() == 0
                || self.may_leave(headers.realm(), source.address, remote.address))
    }

    /// Stage four, of what is no established session: makes the mapping of a subscriber's new flow
    /// and translates its first packet, or does what a rule says; or leaves all to the complete
    /// way.
    #[inline(always)]
    pub(super) fn quick_new(
        &mut self,
        round: &Round,
        headers: &ParsedHeaders,
        flow: &NewFlow,
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> Option<Verdict> {
        let (protocol, remote) = (headers.protocol, headers.remote());
        if self.is_control_port(headers.source().port) || self.is_control_port(remote.port) {
            return None;
        }
        // A subscriber with a record has made a mapping before: its address was checked then.
        let Some(draw) = flow.draw else {
            return match flow.rule {
                FlowRule::Bypass | FlowRule::Drop => {
                    self.untranslated(round, headers, flow.rule, packet, tally)
                }
                _ => None,
            };
        };
        if !self.may_begin(round, headers, flow) {
            return None;
        }
        let internal = headers.internal();
        // An earlier packet of the batch may have made the mapping.
        if self.table.find_flow(headers.place, protocol, internal, remote).is_some()
            || round.statics && self.is_static(protocol, internal, remote)
            || self.table.has_shared_internal()
                && self.table.find_shared_internal(protocol, internal, remote).is_some()
            || self.table.is_full(protocol)
        {
            return None;
        }
        let kind = quota_class(protocol);
        let external = self.external_of_draw(headers, flow, (&draw, kind))?;
        let (pool, fixed, timeouts) = match flow.rule {
            FlowRule::Snat { pool, fixed, timeouts } => (pool.into(), fixed.is_some(), timeouts),
            _ => (self.config.default_pool_of(headers.realm()), false, 0),
        };
        let (hash, overloads, tick) = (headers.place, false, round.tick);
        let record = Some(flow.record);
        let begun =
            Flow { protocol, internal, pool, fixed, timeouts, record, hash, overloads, tick };
        let (record, pair) = (flow.record, begun.pair(external));
        if !self.subscribers.count_if_permitted((record, internal.host), pair, kind, self.now) {
            return None;
        }
        let expires = round.first_deadline(&self.timeouts, timeouts, protocol, remote.port);
        let session = match protocol {
            protocol::TCP => open_connection(remote, expires, packet.bytes(), headers),
            _ => Session::open(remote, expires),
        };
        let slot = self.add_counted(&begun, record, external, session);
        if self.config.session_events {
            self.tell_begun(slot, remote, remote);
        }
        packet.cut(usize::from(headers.total_len));
        tally.bytes += u64::from(headers.total_len);
        let external = AddressPort::new(self.external.address(external.index), external.port);
        rewrite::<Inside>(packet.tail_mut(), protocol, external);
        Some(Verdict::Forward(Side::Outside))
    }

    /// True if this destination of a packet from inside is a remote host, as far as the tables of
    /// realm 0 tell.
    #[inline(always)]
    pub(super) fn may_be_remote(&self, destination: u32) -> bool {
        let is_far = !self.near.has(destination);
        debug_assert!(!is_far || self.is_far(destination));
        !self.external.has_address(destination) && (is_far || self.is_far(destination))
    }

    /// True if an address that is not external is none of those that [`Octets::near`] lists.
    ///
    /// [`Octets::near`]: crate::near::Octets::near
    #[inline(never)]
    pub(crate) fn is_far(&self, destination: u32) -> bool {
        !is_martian(destination)
            && !self.broadcasts.contains(&destination)
            && !self.is_own(0, destination)
            && !self.is_inside(0, destination)
            && !self.is_routed_inside(0, destination)
    }

    /// True if the tables of a realm permit the ends of a packet from it: a host may send as the
    /// packet's source, and the destination is outside. Broadcast addresses of the realm's network
    /// are inside.
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
        headers: &ParsedHeaders,
        packet: &mut Packet<'_>,
        tally: &mut Tally,
    ) -> bool {
        let remote = headers.remote();
        // [`NONE`] is no slot.
        let Some(mapping) = self.table.mapping_at(headers.slot) else { return false };
        if headers.total_len > round.mtu {
            return false;
        }
        let is_tcp = headers.protocol == protocol::TCP;
        let state = if is_tcp { State::Established } else { State::Open };
        let inside = match F::WAY {
            Way::Out => mapping.differs_inside(headers.near),
            Way::In => 0,
        };
        // The first answer to an unanswered session takes the complete way.
        let differs = inside
            | mapping.doubts(round.epoch, headers.protocol)
            | mapping.first.differs(F::WAY, headers.remote, state);
        if differs != 0 || headers.flags & (SYN | RST | FIN) != 0 {
            return false;
        }
        if F::WAY == Way::Out || round.inbound_refresh {
            let set = mapping.timeouts();
            let mut expires = match is_tcp {
                true => round.established[usize::from(set)],
                false => round.udp[usize::from(set)],
            };
            if expires < mapping.first.expires {
                if round.by_port {
                    let time = self.timeouts.of_open(set, headers.protocol, remote.port);
                    expires = deadline(round.since_base, time);
                }
                // A timer that would have to run sooner is the complete way's business.
                if expires < mapping.first.expires {
                    return false;
                }
            }
            mapping.first.expires = expires;
        }
        if is_tcp {
            mapping.first.learn(F::WAY, segment(packet.bytes(), headers.flags));
        }
        mapping.first.count(F::WAY);
        tally.bytes += u64::from(headers.total_len);
        let new = match F::WAY {
            Way::Out => {
                let external = mapping.external();
                AddressPort::new(self.external.address(external.index), external.port)
            }
            Way::In => {
                let Internal { host, port } = mapping.internal();
                packet.set_realm(host.realm());
                AddressPort::new(host.address(), port)
            }
        };
        packet.cut(usize::from(headers.total_len));
        rewrite::<F>(packet.tail_mut(), headers.protocol, new);
        true
    }

    /// Counts the packets that went the quick way, of `all` that are translated.
    pub(super) fn count_quick<F: From>(&mut self, tally: Tally, all: usize) {
        let direction = match F::SIDE {
            Side::Inside => Direction::Outbound,
            Side::Outside => Direction::Inbound,
        };
        self.complete_ways += tally.others;
        let packets = all as u64 - tally.others;
        self.counters.count_forwarded(direction, packets, tally.bytes);
    }
}

/// The session of a connection that a SYN from inside opens.
fn open_connection(
    remote: AddressPort,
    expires: u32,
    bytes: &[u8],
    headers: &ParsedHeaders,
) -> Session {
    let mut session = Session::new(remote);
    session.take_segment(Way::Out, opening_segment(bytes, headers));
    session.expires = expires;
    session.count(Way::Out);
    session
}

/// The connection's fields in a SYN.
fn opening_segment(bytes: &[u8], headers: &ParsedHeaders) -> Segment {
    let bytes = &bytes[..usize::from(headers.total_len)];
    let header = bytes.get(IPV4_LEN..).and_then(Tcp::new_checked);
    let scale = header.and_then(|header| header.window_scale());
    Segment { scale, ..segment(bytes, headers.flags) }
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
