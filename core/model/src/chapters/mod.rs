//! Optional features, a file each: the chapters. This file has their answers at the decision points
//! of the core, and their state.

mod classes;
mod digest;
mod explicit;
mod far;
pub(crate) mod harness;
mod held;
mod limits;
mod overload;
mod pins;
mod pools;
mod realms;
mod reclaim;
mod reconfigure;
mod routes;
mod rules;
mod services;
mod several;
mod shares;
mod twice;
mod unsolicited;

pub(crate) use far::lower_mss;

use crate::allocation::Source;
use crate::points::DecisionPoints;
use crate::tcp::State as TcpState;
use crate::{Fate, Host, Key, Mapping, Model, Packet, StillHeld, has_ports, tick};
use classes::{LimitOwner, ThresholdState};
use natgate_engine::{
    Config, DropReason, Endpoint, MappingKind, RuleAction, Side, TimeoutSet, Timestamp,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

/// State of chapters.
#[derive(Clone, Debug)]
pub(crate) struct State {
    started: Timestamp,
    /// Static mappings and servers.
    fixed: Vec<services::StaticEntry>,
    /// Servers that are down.
    down: services::Down,
    /// The server for new sessions, by service and remote address.
    bound: BTreeMap<(u8, Endpoint, Ipv4Addr), Endpoint>,
    /// The engine's choices between servers (see [`Model::hint_servers`]).
    hint: services::Hint,
    /// Ports that would be held if a static mapping had not taken them (14.17).
    evicted: BTreeMap<(u8, Endpoint), Timestamp>,
    syns: Vec<unsolicited::Syn>,
    /// True if some session's remote endpoint has another name inside (13).
    has_twice: bool,
    /// Blocks of subscribers, by their first endpoint.
    blocks: BTreeMap<Endpoint, shares::Block>,
    /// Blocks of forwarded ports, with their hosts (5.27).
    pins: BTreeMap<Endpoint, Host>,
    /// For each pool the ports that a subscriber may get; `None`: all.
    given: Vec<Option<BTreeSet<Endpoint>>>,
    /// Addresses that have left their pools except for their mappings and blocks, with those pools
    /// (5.45).
    left: BTreeMap<Ipv4Addr, usize>,
    /// Largest numbers of dynamic mappings and further sessions, fixed at the start (14.21).
    room: usize,
    further_room: usize,
    /// Largest number of holds (14.27).
    holds_room: usize,
    mapping_rate: BTreeMap<LimitOwner, u64>,
    quota_reported: BTreeMap<LimitOwner, Option<Timestamp>>,
    exhaustion_reported: BTreeMap<usize, Option<Timestamp>>,
    /// Thresholds that were reported.
    reported_thresholds: BTreeMap<LimitOwner, ThresholdState>,
    /// Unanswered subscribers (18.1), and the latest number of a subscriber or a mapping.
    unanswered: reclaim::Unanswered,
    numbers: u64,
    /// Number of pools at the start, and the pool of each subscriber's first mapping (14.21).
    pools_at_start: usize,
    first_pools: BTreeMap<Host, usize>,
}

impl State {
    pub(crate) fn new(config: &Config, now: Timestamp) -> Self {
        Self {
            started: now,
            fixed: services::fixed(config, &services::Down::new()),
            down: services::Down::new(),
            bound: BTreeMap::new(),
            hint: services::Hint::default(),
            evicted: BTreeMap::new(),
            syns: Vec::new(),
            has_twice: false,
            blocks: BTreeMap::new(),
            pins: pins::pins(config),
            given: config.pools.iter().map(|pool| shares::given(config, pool)).collect(),
            left: BTreeMap::new(),
            room: limits::most_mappings(config),
            further_room: 0,
            holds_room: config.limits.explicit_mappings as usize,
            mapping_rate: BTreeMap::new(),
            quota_reported: BTreeMap::new(),
            exhaustion_reported: BTreeMap::new(),
            reported_thresholds: BTreeMap::new(),
            unanswered: BTreeMap::new(),
            numbers: 0,
            pools_at_start: config.pools.len(),
            first_pools: BTreeMap::new(),
        }
    }
}

/// State of chapters in a mapping.
#[derive(Clone, Debug, Default)]
pub(crate) struct MappingMarks {
    /// Increases from mapping to mapping of subscribers.
    number: u64,
    /// True for a static mapping with ports: it needs no sessions.
    permanent: bool,
    /// The remote endpoint of the mapping's first session (3.35), if it has one.
    first: Option<Endpoint>,
    /// Holds that hosts requested (16).
    holds: explicit::Holds,
}

/// State of chapters in a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionMarks {
    /// True if an unanswered subscriber has begun the session, and no packet has answered it
    /// (18.2).
    is_unanswered: bool,
}

impl MappingMarks {
    /// 16.4: a requested mapping has a kind of its own.
    pub(crate) fn kind_of(&self, kind: MappingKind) -> MappingKind {
        if self.holds.is_empty() { kind } else { MappingKind::Pcp }
    }

    /// The end of the last hold.
    pub(crate) fn held_until(&self) -> Option<Timestamp> {
        self.holds.values().map(|hold| hold.until).max()
    }

    pub(crate) fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Removes holds of sessions, which go with the sessions.
    pub(crate) fn forget_sessions(&mut self) {
        self.holds.retain(|of, _| of.is_none());
    }
}

impl DecisionPoints for Model {
    // ---- addresses ----

    fn begin(&mut self) {
        self.make_statics();
        self.pin_blocks();
        self.chapters.further_room = self.room_for_further();
    }

    fn pool_with(&self, address: u32) -> Option<usize> {
        self.pool_of(address)
    }

    fn is_open(&self, address: Ipv4Addr, pool: usize) -> bool {
        self.gives_out_ports(address, pool)
    }

    fn has_static_external(&self, address: u32) -> bool {
        self.chapters.fixed.iter().any(|fixed| fixed.external.0.to_bits() == address)
    }

    fn has_static_internal(&self, host: Host) -> bool {
        self.chapters.fixed.iter().any(|fixed| (fixed.realm, fixed.internal.0) == host)
    }

    fn check_realm(&self, packet: &Packet) -> Result<(), DropReason> {
        let there = self.config.has_realm(packet.realm);
        if there { Ok(()) } else { Err(DropReason::UnknownRealm) } // 15.3
    }

    fn knows_realm(&self, packet: &Packet) -> bool {
        packet.from == Side::Inside || !self.config.has_realms() // 15.7
    }

    // ---- from the inside ----

    fn redirect(&mut self, packet: &mut Packet) {
        packet.rule = self.rule(packet, packet.realm).cloned(); // 3.5
        if !matches!(packet.rule, Some(RuleAction::Bypass | RuleAction::Drop)) {
            self.aim(packet); // 13.3
        }
    }

    fn passes_untranslated(&mut self, packet: &mut Packet) -> Option<Fate> {
        self.pass_from_inside(packet)
    }

    fn check_redirect(&self, packet: &Packet) -> Result<(), DropReason> {
        self.check_aim(packet) // 13.5
    }

    fn mtu_of_hairpin(&self, realm: u16) -> u16 {
        self.hairpin_mtu(realm) // 15.15
    }

    fn key_instead(&mut self, ordinary: Key, remote: Endpoint) -> Key {
        self.key_among_several(ordinary, remote)
    }

    fn check_place(&self, remote: Endpoint, seen: Endpoint) -> Result<(), DropReason> {
        self.room_to_see(remote, seen) // 13.8
    }

    fn permits(&self, key: Key, pool: usize) -> Result<(), DropReason> {
        self.limits_permit(key, pool)
    }

    fn room_for_session(&self, key: Key, remote: Endpoint, from: Side) -> Result<(), DropReason> {
        self.limits_permit_session(key, remote, from)
    }

    fn note_refusal(&mut self, key: Key, pool: usize, reason: DropReason) {
        self.report(key, pool, reason);
    }

    // ---- from the outside ----

    fn not_for_us(&mut self, packet: &mut Packet) -> Fate {
        self.pass_from_outside(packet)
    }

    fn source_seen(&mut self, packet: &Packet) -> Endpoint {
        self.seen_from_inside(packet) // 13.9
    }

    fn before_inbound(&mut self, packet: &Packet, external: Endpoint, remote: Endpoint) -> bool {
        self.end_closed(packet, external, remote) // 4.27
    }

    fn mapping_behind(
        &mut self,
        protocol: u8,
        external: Endpoint,
        remote: Endpoint,
    ) -> Option<Key> {
        self.by_external(protocol, external, remote)
    }

    fn mapping_for_new(
        &mut self,
        key: Key,
        external: Endpoint,
        ends: (Endpoint, Endpoint),
    ) -> Option<Key> {
        let key = self.server_for(key, external, ends)?; // 4.12
        let is_static = self.mappings[&key].kind == MappingKind::Static;
        (is_static || key.beside.is_none()).then_some(key) // 5.53
    }

    fn key_without_mapping(
        &mut self,
        protocol: u8,
        external: Endpoint,
        remote: Endpoint,
    ) -> Option<(Key, usize)> {
        self.key_at_owner(protocol, external, remote) // 5.64
    }

    fn may_map(&self, key: Key, pool: usize, external: Endpoint) -> bool {
        self.may_map_at_owner(key, pool, external) // 5.64
    }

    fn permits_from_outside(&self, key: Key, pool: usize) -> Result<(), DropReason> {
        self.leaves_half(key)?; // 5.64
        self.limits_permit(key, pool)
    }

    fn is_ambiguous_new(&self, key: Key, remote: Endpoint) -> bool {
        self.is_ambiguous(key, remote) // 3.36
    }

    fn splits_ports(&self, pool: usize) -> bool {
        !self.is_whole(pool) // 5.58
    }

    fn rests(&self, external: Endpoint) -> bool {
        let pool = self.pool_of(external.address.to_bits());
        !pool.is_some_and(|pool| self.is_whole(pool)) // 5.63
    }

    fn enter(
        &self,
        packet: &mut Packet,
        to: u16,
        in_session: bool,
        as_is: bool,
    ) -> Result<(), DropReason> {
        self.enter_realm(packet, to, in_session, as_is) // 15.12
    }

    fn drops_session(&self, key: Key, seen: Endpoint) -> bool {
        self.is_dropped(key, seen)
    }

    fn admits(&self, key: Key, external: Endpoint, seen: Endpoint) -> Option<bool> {
        let mapping = &self.mappings[&key];
        match mapping.kind {
            MappingKind::Static => Some(!self.is_outbound_only(key, external)), // 4.18
            _ => mapping.marks.holds.get(&None).map(|hold| hold.admits(seen)),  // 16.13
        }
    }

    fn check_seen(&mut self, key: Key, remote: Endpoint, seen: Endpoint) -> Result<(), DropReason> {
        self.may_be_seen(key, remote, seen) // 13.11
    }

    fn note_refused(&mut self, packet: &Packet, external: Endpoint, remote: Endpoint) {
        self.remember(packet, external, remote); // 4.21
    }

    fn edit(&self, packet: &mut Packet, remote: Endpoint, seen: Endpoint) {
        if seen != remote {
            far::set_far(&mut packet.bytes, Side::Outside, seen); // 13.12
        }
        if let Some(limit) = self.config.tcp_mss {
            far::lower_mss(&mut packet.bytes, limit); // 4.25
        }
    }

    // ---- allocation ----

    fn open_shares(
        &self,
        key: Key,
        pool: usize,
        paired: Option<Ipv4Addr>,
    ) -> Option<Result<Vec<Endpoint>, DropReason>> {
        let is_shared_out =
            self.is_shared_out(pool) && (has_ports(key.protocol) || self.is_whole(pool));
        is_shared_out.then(|| self.shares_open(key, pool, paired)) // 5.18, 5.35
    }

    fn pair_with_shares(
        &self,
        host: Host,
        pool: usize,
        paired: Option<Ipv4Addr>,
    ) -> Option<Ipv4Addr> {
        self.pair_of_shares(host, pool, paired) // 5.25, 5.35
    }

    fn overload(
        &self,
        packet: &Packet,
        key: Key,
        source: Source,
        remote: Endpoint,
    ) -> Vec<Endpoint> {
        self.overloadable(packet, key, source, remote) // 5.53
    }

    fn is_reserved(&self, protocol: u8, end: Endpoint) -> bool {
        match has_ports(protocol) {
            true => !self.static_internals(protocol, end).is_empty(),
            false => self.is_kept(protocol, end.address), // 5.17
        }
    }

    fn before_mapping(&mut self, key: Key, pool: usize, end: Endpoint, marks: &mut MappingMarks) {
        self.take_tokens(key.host()); // 3.30
        let counts = has_ports(key.protocol) || self.is_whole(pool); // 5.61
        if counts && self.use_block(key.host(), end) {
            self.report_block_use(pool); // 5.39
        }
        self.note_newcomer(key, pool); // 18.1
        marks.number = self.next_number();
    }

    fn kind_for(&self, key: Key, pool: usize, external: Endpoint) -> MappingKind {
        self.kind_of(key, pool, external) // 5.30
    }

    fn timeouts_for(&self, key: Key, destination: Endpoint) -> TimeoutSet {
        self.timeouts_of_rule(key, destination).unwrap_or_default() // 9.11
    }

    fn has_events(&self, key: Key, mapping: &Mapping) -> bool {
        self.raises_events(key, mapping) // 5.37
    }

    fn after_mapping(&mut self, key: Key, pool: usize) {
        self.report_mapping_use(key, pool); // 3.43
    }

    // ---- ICMP errors ----

    fn original_of(
        &self,
        protocol: u8,
        realm: u16,
        internal: Endpoint,
        seen: Endpoint,
    ) -> Option<Endpoint> {
        self.seen_as_another(protocol, realm, internal, seen) // 13.14
    }

    fn drops_error(&self, sender: Ipv4Addr, key: Key, seen: Endpoint) -> bool {
        self.is_error_dropped(sender, key, seen) // 6.6
    }

    fn edit_error(&self, packet: &mut Packet, from: Side, far: Endpoint, source: Option<Ipv4Addr>) {
        far::set_error_far(&mut packet.bytes, from, far, source); // 13.14
    }

    // ---- sessions and time ----

    fn note_session(&mut self, key: Key, remote: Endpoint, from: Side) {
        self.chapters.has_twice |= self.mappings[&key].sessions[&remote].seen != remote; // 13.6
        self.count_session(key, remote); // 3.35
        self.mark_unanswered(key, remote, from); // 18.2
    }

    fn note_packet(&mut self, key: Key, remote: Endpoint, from: Side, before: Option<TcpState>) {
        self.note_service(key, remote, from, before); // 18.3
        self.note_answer(key, remote, from); // 18.2
    }

    fn forget_host(&mut self, host: Host) {
        let subscriber = LimitOwner::Subscriber(host);
        self.chapters.quota_reported.remove(&subscriber);
        self.chapters.mapping_rate.remove(&subscriber);
        self.chapters.reported_thresholds.remove(&subscriber);
        self.chapters.unanswered.remove(&host);
        self.chapters.first_pools.remove(&host);
    }

    fn next_due(&self) -> Option<Timestamp> {
        let holds = self.mappings.values().flat_map(|mapping| mapping.marks.holds.values());
        let holds = holds.map(|hold| tick(hold.until));
        let syns = self.chapters.syns.iter().map(|syn| syn.due);
        holds.chain(syns).chain(self.next_block()).min()
    }

    fn before_time(&mut self) {
        self.settle_pools(); // The last mapping of an address may have given way (18).
    }

    fn before_expiry(&mut self, time: Timestamp) {
        self.extend_held_sessions(time); // 16.18
    }

    fn after_expiry(&mut self, time: Timestamp) {
        self.end_holds(time); // 16.6
        self.replace_firsts(); // 3.35
        self.end_waiting(); // 18.2
    }

    fn at_tick(&mut self, time: Timestamp, still_held: Option<StillHeld<'_>>) {
        self.answer_syns(time); // 4.21
        self.chapters.evicted.retain(|_, until| tick(*until) > time);
        if self.has_blocks() {
            self.limit_held(still_held); // The release of a port may empty a block.
            self.release_blocks(time); // 5.28
        }
        self.settle_pools(); // 5.47
        self.forget_thresholds(); // 3.43
    }

    fn after_time(&mut self, still_held: Option<StillHeld<'_>>) {
        self.limit_held(still_held); // 5.11
        self.forget_thresholds(); // 3.43
    }
}
