//! What a case consists of, and carrying it out: operations, the packets that they stand for, and
//! the packets that came out before, which answers and errors refer to.

use crate::common::{Spec, Sum, end, error_about, set_icmp_sum, side};
use crate::policy::give_timeouts;
use crate::strategies::fit;
use natgate_compare::{Divergence, Pair};
use natgate_engine::{
    AddressRange, Allocation, Begun, Behavior, Config, Endpoint, Limits, MapRequest, PeerRequest,
    PoolConfig, Prefix, RemoteFilter, Rule, Side, Timestamp, Verdict, WantedEndpoint,
};
use natgate_wire::protocol::{DCCP, ESP, GRE, ICMP, TCP, UDP, UDP_LITE};
use natgate_wire::tcp::flags::{ACK, SYN};
use natgate_wire::{Ipv4, dccp};
use std::time::Duration;

/// Subscribers; one has a static mapping if there are any. The last but one is none, and the last
/// means all.
pub(crate) const INSIDE: [[u8; 4]; 6] =
    [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3], [10, 0, 0, 80], [11, 0, 0, 1], [10, 0, 255, 255]];
pub(crate) const REMOTE: [[u8; 4]; 3] = [[198, 51, 100, 1], [198, 51, 100, 2], [192, 0, 2, 200]];
/// Who sends from outside. The last three lie: they belong inside, or to some link.
pub(crate) const OUTSIDE: [[u8; 4]; 6] =
    [REMOTE[0], REMOTE[1], REMOTE[2], INSIDE[1], [169, 254, 9, 9], [10, 0, 9, 9]];
/// The gateway's own addresses, inside and outside.
pub(crate) const OWN: [[u8; 4]; 2] = [[10, 0, 0, 254], [192, 0, 2, 1]];
pub(crate) const POOL: [u8; 4] = [203, 0, 113, 1];
/// External addresses of static mappings: outside the pool, and in it.
pub(crate) const FIXED: [[u8; 4]; 2] = [[203, 0, 113, 80], [203, 0, 113, 2]];
pub(crate) const PORTS: [u16; 8] = [5000, 5001, 1023, 1024, 2000, 2001, 80, 0];
pub(crate) const PROTOCOLS: [u8; 7] = [TCP, UDP, ICMP, DCCP, GRE, ESP, UDP_LITE];
pub(crate) const START: Timestamp = Timestamp(1_000_000_000_000_000_077);

/// More packets than this are sorted by side, so that their batches are large.
const LARGE: usize = 16;

/// Where a fresh packet goes.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Remote(usize, usize),
    /// The external endpoint of one of the mappings there are.
    Mapping(usize),
    Pool(u8, u16),
    Own(usize),
    Fixed(usize, usize),
    Raw([u8; 4]),
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) flags: u8,
    pub(crate) sequence: Sequence,
    pub(crate) acknowledgment: i32,
    pub(crate) window: u16,
    pub(crate) scale: Option<u8>,
    pub(crate) mss: Option<(u16, usize)>,
    pub(crate) dccp: (u8, bool),
    pub(crate) service: u8,
    pub(crate) icmp_kind: Option<u8>,
    pub(crate) len: u8,
    pub(crate) sum: Sum,
    pub(crate) ttl: u8,
    pub(crate) oddity: Oddity,
}

/// A sequence number in terms of what the other end of an earlier packet expects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sequence {
    Off(i32),
    /// Off the end of the earlier packet's window, scaled by its own shift.
    OffWindow(i32, u8),
    Any(u32),
}

/// What is wrong or rare with a packet's header.
#[derive(Clone, Debug)]
pub(crate) enum Oddity {
    None,
    DontFragment,
    Long(bool),
    Trailing(u8),
    Options(Vec<u8>),
    /// A byte of the header (or of what follows) is changed, the header checksum set right or not.
    Byte(usize, u8, bool),
    Cut(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Send {
    Fresh { outside: bool, near: (usize, usize), target: Target, protocol: usize, body: Body },
    Again { pick: usize, body: Body },
    Back { pick: usize, exact: bool, body: Body },
    Error { pick: usize, kind: (u8, u8), from: Option<usize>, len: usize, about: About },
}

/// What is rare with the packet that an ICMP error embeds.
#[derive(Clone, Debug)]
pub(crate) struct About {
    /// It claims to end where more follows it (RFC 4884).
    pub(crate) short: bool,
    /// It has these options, a multiple of four bytes.
    pub(crate) options: Vec<u8>,
    /// It is a fragment other than the first.
    pub(crate) later: bool,
    /// A byte of the error is wrong.
    pub(crate) spoil: Option<usize>,
}

/// Many packets that differ in an end: to be answered, if their time to live has run out, else to
/// make sessions.
#[derive(Clone, Debug)]
pub(crate) struct Burst {
    pub(crate) outside: bool,
    pub(crate) first: usize,
    pub(crate) ttl: u8,
    /// From one source address to the next; 0: all have one.
    pub(crate) step: u32,
    /// From one remote port to the next.
    pub(crate) port_step: u16,
    pub(crate) count: usize,
    pub(crate) target: Target,
    pub(crate) protocol: usize,
}

/// Segments in the names of both ends of a connection, as one might send who knows of it, or who
/// has a part in it.
#[derive(Clone, Debug)]
pub(crate) struct Forgery {
    pub(crate) pick: usize,
    /// How far from the truth the lies begin.
    pub(crate) lie: i32,
    pub(crate) segments: Vec<Forged>,
}

#[derive(Clone, Debug)]
pub(crate) struct Forged {
    pub(crate) back: bool,
    pub(crate) flags: u8,
    pub(crate) jump: Jump,
}

/// A sequence number, from the one that would be right.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Jump {
    Off(i32),
    /// Off the lie.
    Lie(i32),
    /// Off as far as the largest window with this shift, ahead or behind.
    Window(bool, u8, i32),
}

#[derive(Clone, Debug)]
pub(crate) enum Wait {
    Nanos(u64),
    /// To the next thing that is due, and some nanoseconds.
    Next(i64),
    /// One of the timeouts, and some nanoseconds.
    Timeout(usize, i64),
    Hours(u64),
    Back(u64),
}

/// Another configuration, and which parts of it are taken.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    pub(crate) config: Config,
    pub(crate) subscribers: Vec<Prefix>,
    pub(crate) parts: [bool; 8],
}

impl Other {
    /// The configuration that takes the place of one in force.
    fn in_place_of(&self, in_force: &Config) -> Config {
        let mut config = in_force.clone();
        let new = &self.config;
        let [rules, limits, timeouts, subscribers, switches, filters, statics, _] = self.parts;
        // No rule may name an address that its pool has lost.
        let sets: Vec<u8> = config.rules.iter().map(|rule| rule.timeouts).collect();
        config.rules = fit(&config.rules, &in_force.pools);
        for (rule, set) in config.rules.iter_mut().zip(sets) {
            rule.timeouts = set;
        }
        if rules {
            config.rules = fit(&new.rules, &in_force.pools);
            give_timeouts(&mut config.rules, in_force.timeout_sets.len());
        }
        if limits {
            config.classes.clone_from(&new.classes);
            // The sizes of tables stay.
            let sizes = in_force.limits.clone();
            config.limits = Limits {
                subscribers: sizes.subscribers,
                mappings: sizes.mappings,
                extra_sessions: sizes.extra_sessions,
                twice_sessions: sizes.twice_sessions,
                fragment_memory: sizes.fragment_memory,
                external_addresses: sizes.external_addresses,
                held_ports: sizes.held_ports,
                explicit_mappings: sizes.explicit_mappings,
                ..new.limits.clone()
            };
        }
        if timeouts {
            config.timeouts = new.timeouts.clone();
            config.port_timeouts.clone_from(&new.port_timeouts);
            config.timeout_sets.clone_from(&new.timeout_sets);
            give_timeouts(&mut config.rules, config.timeout_sets.len());
        }
        if subscribers {
            config.subscribers.clone_from(&self.subscribers);
        }
        crate::realms::change(&mut config, new, self.parts);
        // Ports of whole addresses that were held, one-way mappings and pinned blocks are not
        // followed.
        let plain = |config: &Config| {
            let is_plain = |one: &natgate_engine::StaticMapping| {
                let pooled = in_force.pools.iter().any(|pool| pool.has(one.external.0));
                one.begun == Begun::Anywhere && (one.external.1.is_some() || !pooled)
            };
            let mut pools = in_force.pools.iter();
            let shared = |pool| {
                let allocation = in_force.allocation_of(pool);
                matches!(allocation, Allocation::Random | Allocation::Preserve)
            };
            config.statics.iter().all(is_plain) && pools.all(shared)
        };
        if statics && in_force.services.is_empty() && plain(in_force) && plain(new) {
            config.statics.clone_from(&new.statics);
            let live: Vec<u16> = config.realm_numbers().collect();
            for fixed in &mut config.statics {
                fixed.realm = live[usize::from(fixed.realm) % live.len()];
            }
        }
        if switches {
            config = Config {
                pooling: new.pooling,
                port_parity: new.port_parity,
                hairpinning: new.hairpinning,
                inside_routes: new.inside_routes.clone(),
                inbound_refresh: new.inbound_refresh,
                tcp_pickup: new.tcp_pickup,
                session_events: new.session_events,
                tcp_mss: new.tcp_mss,
                answer_unsolicited_syn: new.answer_unsolicited_syn,
                refusal: new.refusal,
                ..config
            };
        }
        let by_address = |config: &Config| {
            [Some(config.filtering), config.filtering_tcp]
                .contains(&Some(Behavior::AddressDependent))
        };
        if filters && (by_address(in_force) || !by_address(new)) {
            config.filtering = new.filtering;
            config.filtering_tcp = new.filtering_tcp;
        }
        config
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Packets(Vec<Send>),
    /// A connection of TCP or DCCP is opened by both ends.
    Connect {
        near: (usize, usize),
        target: Target,
        protocol: usize,
        body: Body,
    },
    Burst(Burst),
    Forgery(Forgery),
    Restart([u8; 32]),
    /// The pools change.
    Pools(Vec<PoolEdit>),
    /// Other rules, with pools as far as there are any.
    Rules(Vec<Rule>, usize),
    /// Another configuration, as far as it can take the place of the one in force.
    Reconfigure(Box<Other>),
    /// A host asks for a mapping.
    Ask(Ask),
    Wait(Wait),
    /// Time goes on, but `advance` is not told before the next packets.
    Unnoticed(u64),
}

/// What a host asks for.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) what: What,
    pub(crate) near: (usize, usize),
    pub(crate) far: (usize, usize),
    pub(crate) protocol: usize,
    pub(crate) realm: usize,
    /// Off the first address of the pools, if one is named, and its port.
    pub(crate) wanted: (Option<u8>, u16),
    pub(crate) strict: bool,
    /// Milliseconds.
    pub(crate) lifetime: u64,
    pub(crate) nonce: u8,
    /// Of the far address so many bits, and perhaps its port.
    pub(crate) filter: Option<(u8, bool)>,
    pub(crate) replaces: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Map,
    Unmap,
    Peer,
}

/// A packet, and the side and the realm that it comes from.
type Sent = (Side, u16, Vec<u8>);

/// How a pool changes, if it can.
#[derive(Clone, Debug)]
pub(crate) enum PoolEdit {
    /// These of its addresses drain, by place.
    Drain(usize, Vec<u8>),
    /// An address more, off the first of all.
    Grow(usize, u8),
    /// Its last addresses go, all but so many.
    Shrink(usize, u8),
    /// Its addresses become another pool's, and the other way round.
    Exchange,
    /// These ports are excluded, from the first on.
    Exclude(usize, Vec<(u16, u16)>),
    /// Ports off those that it has.
    Ports(usize, i8, i8),
}

impl PoolEdit {
    /// The pools with this change, if they can be so.
    fn apply(&self, config: &Config) -> Vec<PoolConfig> {
        let mut pools = config.pools.clone();
        let place = |pool: usize| pool % config.pools.len();
        let computed =
            |pool: &PoolConfig| matches!(config.allocation_of(pool), Allocation::Deterministic(_));
        let shared = |pool: &PoolConfig| {
            computed(pool) || matches!(config.allocation_of(pool), Allocation::Block(_))
        };
        match self {
            Self::Drain(pool, places) if !computed(&pools[place(*pool)]) => {
                let pool = &mut pools[place(*pool)];
                let all: Vec<_> = pool.each_address().collect();
                let of = |at: &u8| all[usize::from(*at) % all.len()];
                pool.draining = places.iter().map(of).map(one_address).collect();
            }
            Self::Grow(pool, off) if !computed(&pools[place(*pool)]) => {
                let first = u32::from_be_bytes(POOL) + u32::from(*off);
                let address = std::net::Ipv4Addr::from_bits(first);
                if !pools.iter().any(|pool| pool.has(address)) {
                    pools[place(*pool)].addresses.push(one_address(address));
                }
            }
            Self::Shrink(pool, left) if !computed(&pools[place(*pool)]) => {
                let pool = &mut pools[place(*pool)];
                let left = pool.each_address().take(usize::from(*left).max(1));
                pool.addresses = left.map(one_address).collect();
                let PoolConfig { addresses, draining, .. } = pool;
                draining.retain(|one| addresses.iter().any(|range| range.contains(one.first)));
            }
            Self::Exchange if pools.len() == 2 && !pools.iter().any(computed) => {
                let [one, other] = &mut pools[..] else { return pools };
                std::mem::swap(&mut one.addresses, &mut other.addresses);
                std::mem::swap(&mut one.draining, &mut other.draining);
            }
            Self::Exclude(pool, ranges) => {
                let pool = &mut pools[place(*pool)];
                let before = pool.excluded_ports.clone();
                let at = |off: u16| pool.ports.0.saturating_add(off);
                pool.excluded_ports =
                    ranges.iter().map(|(off, len)| (at(*off), at(off + len))).collect();
                if pool.ports_used() == 0 {
                    pool.excluded_ports = before;
                }
            }
            Self::Ports(pool, first, last) if !shared(&pools[place(*pool)]) => {
                let pool = &mut pools[place(*pool)];
                let before = pool.ports;
                let moved = |port: u16, by: i8| port.saturating_add_signed(by.into()).max(1);
                pool.ports = (moved(before.0, *first), moved(before.1, *last));
                if pool.ports.0 > pool.ports.1 || pool.ports_used() == 0 {
                    pool.ports = before;
                }
            }
            _ => {}
        }
        pools
    }
}

fn one_address(address: std::net::Ipv4Addr) -> AddressRange {
    AddressRange { first: address, last: address }
}

/// A packet that was sent on.
pub(crate) struct Seen {
    from: Side,
    exit: Side,
    /// The realms that it came from and went to, inside.
    realms: (u16, u16),
    input: Vec<u8>,
    output: Vec<u8>,
}

pub(crate) struct World {
    pub(crate) pair: Pair,
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    pub(crate) seen: Vec<Seen>,
}

impl World {
    fn ask(&mut self, ask: &Ask) -> Result<(), Divergence> {
        let protocol = PROTOCOLS[ask.protocol];
        let live: Vec<u16> = self.config.realm_numbers().collect();
        let realm = live[ask.realm % live.len()];
        let internal = end(INSIDE[ask.near.0], PORTS[ask.near.1]);
        let remote = end(REMOTE[ask.far.0], PORTS[ask.far.1]);
        let first = end(POOL, 0).address.to_bits();
        let address = ask.wanted.0.map(|off| (first + u32::from(off)).into());
        let wanted = WantedEndpoint { address, port: ask.wanted.1, strict: ask.strict };
        let (lifetime, nonce) = (Duration::from_millis(ask.lifetime), [ask.nonce; 12]);
        if let What::Peer = ask.what {
            let request =
                PeerRequest { protocol, realm, internal, remote, wanted, lifetime, nonce };
            return self.pair.peer(self.now, &request);
        }
        let filter = |(prefix_len, port): (u8, bool)| RemoteFilter {
            address: remote.address.to_bits(),
            prefix_len,
            port: if port { remote.port } else { 0 },
        };
        let filters: Vec<RemoteFilter> = ask.filter.map(filter).into_iter().collect();
        let request = MapRequest {
            protocol,
            realm,
            internal,
            wanted,
            lifetime,
            nonce,
            replaces_filters: ask.replaces,
            filters: &filters,
        };
        match ask.what {
            What::Unmap => self.pair.unmap(self.now, &request),
            _ => self.pair.map(self.now, &request),
        }
    }

    pub(crate) fn apply(&mut self, operation: &Operation) -> Result<(), Divergence> {
        match operation {
            Operation::Unnoticed(nanos) => {
                self.now.0 += nanos;
                // Which held ports are free first is asked of the engine at each tick
                // (`Pair::advance`).
                let has_blocks = |pool: &PoolConfig| {
                    matches!(self.config.allocation_of(pool), Allocation::Block(_))
                };
                let limited = self.config.limits.held_ports.is_some();
                if limited && self.config.pools.iter().any(has_blocks) {
                    self.pair.advance(self.now)?;
                }
            }
            Operation::Ask(ask) => self.ask(ask)?,
            Operation::Wait(wait) => {
                let told = self.wait(wait);
                self.pair.advance(told)?;
            }
            Operation::Restart(seed) => {
                // No rule may name an address that its pool has lost.
                let pools = &self.config.pools;
                let gone: Vec<u16> = (1..)
                    .zip(&self.config.realms)
                    .filter_map(|(number, realm)| realm.gone.then_some(number))
                    .collect();
                let realms = self.config.realms.iter_mut().map(|realm| &mut realm.rules);
                for (number, rules) in
                    (0..).zip(std::iter::once(&mut self.config.rules).chain(realms))
                {
                    let timeouts: Vec<u8> = rules.iter().map(|rule| rule.timeouts).collect();
                    *rules = fit(rules, pools);
                    for (rule, timeouts) in rules.iter_mut().zip(timeouts) {
                        rule.timeouts = timeouts;
                    }
                    if !gone.contains(&number) {
                        self.pair.replace_rules_of(number, rules)?;
                    }
                }
                self.pair.restart(*seed)?;
            }
            Operation::Rules(rules, realm) => {
                let live: Vec<u16> = self.config.realm_numbers().collect();
                let realm = live[realm % live.len()];
                self.pair.advance(self.now)?;
                let mut rules = fit(rules, &self.config.pools);
                give_timeouts(&mut rules, self.config.timeout_sets.len());
                self.pair.replace_rules_of(realm, &rules)?;
                match usize::from(realm).checked_sub(1) {
                    None => self.config.rules = rules,
                    Some(place) => self.config.realms[place].rules = rules,
                }
            }
            Operation::Reconfigure(other) => {
                self.pair.advance(self.now)?;
                let config = other.in_place_of(&self.config);
                let config = config.in_numbers_of(self.pair.engine.config());
                self.pair.reconfigure(&config)?;
                self.config = config;
            }
            Operation::Pools(edits) => {
                for edit in edits {
                    self.config.pools = edit.apply(&self.config);
                }
                self.pair.advance(self.now)?;
                self.pair.change_pools(&self.config.pools)?;
                self.pair.advance(self.now)?;
            }
            Operation::Connect { near, target, protocol, body } => {
                let send = Send::Fresh {
                    outside: false,
                    near: *near,
                    target: target.clone(),
                    protocol: *protocol,
                    body: body.clone(),
                };
                self.connect(&send)?;
            }
            Operation::Burst(burst) => self.send(&self.burst(burst))?,
            Operation::Forgery(forgery) => {
                // One by one: they come from both sides.
                for packet in self.forgery(forgery) {
                    self.send(&[packet])?;
                }
            }
            Operation::Packets(sends) => {
                let mut packets: Vec<Sent> =
                    sends.iter().filter_map(|send| self.packet(send)).collect();
                if sends.len() > LARGE {
                    packets.sort_by_key(|sent| sent.0 == Side::Outside);
                }
                // One batch for as many as come from one side after each other.
                for batch in packets.chunk_by(|one, next| one.0 == next.0) {
                    self.send(batch)?;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, batch: &[Sent]) -> Result<(), Divergence> {
        let from = batch[0].0;
        let inputs: Vec<(u16, Vec<u8>)> =
            batch.iter().map(|(_, realm, bytes)| (*realm, bytes.clone())).collect();
        let (results, _) = self.pair.process_in(self.now, from, &inputs)?;
        for ((realm, input), done) in inputs.into_iter().zip(results) {
            if let Verdict::Forward(exit) = done.verdict {
                let realms = (realm, done.realm);
                self.seen.push(Seen { from, exit, realms, input, output: done.bytes });
            }
        }
        let excess = self.seen.len().saturating_sub(32);
        self.seen.drain(..excess);
        Ok(())
    }

    /// The first packet, an answer, and an answer to that, as far as they get.
    fn connect(&mut self, first: &Send) -> Result<(), Divergence> {
        let Some(mut packet) = self.packet(first) else { return Ok(()) };
        for (flags, kind) in [(SYN | ACK, dccp::kind::RESPONSE), (ACK, dccp::kind::ACK)] {
            let known = self.seen.last().map(|seen| seen.input.clone());
            self.send(&[packet.clone()])?;
            let Some(seen) = self.seen.last().filter(|seen| Some(&seen.input) != known.as_ref())
            else {
                return Ok(());
            };
            if is_icmp_error(&seen.output) {
                return Ok(());
            }
            let answer = Spec::answer(&seen.output);
            packet =
                (seen.exit, seen.realms.1, Spec { flags, dccp: (kind, true), ..answer }.bytes());
        }
        self.send(&[packet])
    }

    fn burst(&self, burst: &Burst) -> Vec<Sent> {
        let first = match burst.outside {
            false => INSIDE[burst.first % INSIDE.len()],
            true => OUTSIDE[burst.first % OUTSIDE.len()],
        };
        let protocol = PROTOCOLS[burst.protocol % PROTOCOLS.len()];
        let destination = self.target(&burst.target, PORTS[0]);
        let packet = |index: u32| {
            let source = u32::from_be_bytes(first) + index * burst.step;
            let mut spec = Spec::new(protocol, Endpoint::new(source, PORTS[0]), destination);
            let remote = if burst.outside { &mut spec.source } else { &mut spec.destination };
            remote.port = remote.port.wrapping_add(burst.port_step.wrapping_mul(index as u16));
            let identifier = if burst.outside { destination.port } else { spec.identifier };
            let service = index as u8;
            let realm = self.realm(burst.first / INSIDE.len());
            (
                side(burst.outside),
                realm,
                Spec { identifier, service, ttl: burst.ttl, ..spec }.bytes(),
            )
        };
        (0..burst.count as u32).map(packet).collect()
    }

    /// Nothing, if nothing of TCP has been sent on.
    fn forgery(&self, forgery: &Forgery) -> Vec<Sent> {
        let is_tcp = |seen: &&Seen| ip(&seen.input).protocol() == TCP;
        let all: Vec<&Seen> = self.seen.iter().filter(is_tcp).collect();
        let Some(at) = forgery.pick.checked_rem(all.len()) else { return Vec::new() };
        let seen = all[at];
        let forge = |forged: &Forged| {
            let (from, realm, mut spec) = match forged.back {
                true => (seen.exit, seen.realms.1, Spec::answer(&seen.output)),
                false => (seen.from, seen.realms.0, Spec::like(&seen.input)),
            };
            let jump = match forged.jump {
                Jump::Off(off) => off,
                Jump::Lie(off) => forgery.lie.wrapping_add(off),
                Jump::Window(ahead, shift, off) => {
                    (0xffff << shift) * if ahead { 1 } else { -1 } + off
                }
            };
            spec.sequence = spec.sequence.wrapping_add_signed(jump);
            spec.flags = forged.flags;
            (from, realm, spec.bytes())
        };
        forgery.segments.iter().map(forge).collect()
    }

    /// Moves the clock and returns the time to tell.
    fn wait(&mut self, wait: &Wait) -> Timestamp {
        let times = &self.config.timeouts;
        let ahead = match *wait {
            Wait::Nanos(nanos) => nanos,
            Wait::Next(off) => {
                let next = self.pair.model.next_tick().unwrap_or(self.now);
                next.0.saturating_sub(self.now.0).saturating_add_signed(off)
            }
            Wait::Timeout(index, off) => {
                let times = [
                    times.udp,
                    times.tcp_opening,
                    times.tcp_established,
                    times.tcp_closing,
                    times.icmp,
                    times.other,
                    times.hold_down,
                    Duration::from_secs(6),
                    Duration::from_secs(1),
                ];
                (times[index % times.len()].as_nanos() as u64).saturating_add_signed(off)
            }
            Wait::Hours(hours) => hours * 3_600_000_000_000,
            Wait::Back(nanos) => return Timestamp(self.now.0 - nanos),
        };
        self.now.0 += ahead;
        self.now
    }

    fn target(&self, target: &Target, port: u16) -> Endpoint {
        match *target {
            Target::Remote(address, port) => {
                end(REMOTE[address % REMOTE.len()], PORTS[port % PORTS.len()])
            }
            Target::Mapping(pick) => {
                let mappings = self.pair.model.mappings();
                match mappings.len() {
                    0 => end(POOL, port),
                    len => mappings[pick % len].id.external,
                }
            }
            Target::Pool(address, port) => {
                Endpoint::new(u32::from_be_bytes(POOL) + u32::from(address), port)
            }
            Target::Own(index) => end(OWN[index % 2], port),
            Target::Fixed(index, port) => end(FIXED[index % 2], PORTS[port % PORTS.len()]),
            Target::Raw(address) => end(address, port),
        }
    }

    /// One of the realms that there are, or have been.
    fn realm(&self, pick: usize) -> u16 {
        (pick % (self.config.realms.len() + 1)) as u16
    }

    /// The packet that is sent, and from which side and realm; `None` when it is about one that
    /// there is not.
    fn packet(&self, send: &Send) -> Option<Sent> {
        let picked = |pick: usize| self.seen.get(pick.checked_rem(self.seen.len())?);
        Some(match send {
            Send::Fresh { outside, near, target, protocol, body } => {
                let protocol = PROTOCOLS[protocol % PROTOCOLS.len()];
                let port = PORTS[near.1 % PORTS.len()];
                let source = match outside {
                    false => end(INSIDE[near.0 % INSIDE.len()], port),
                    true => end(OUTSIDE[near.0 % OUTSIDE.len()], port),
                };
                let destination = self.target(target, port);
                let mut spec = Spec::new(protocol, source, destination);
                if *outside {
                    spec.identifier = destination.port;
                }
                let realm = self.realm(near.0 / INSIDE.len());
                (side(*outside), realm, body.apply(spec, None))
            }
            Send::Again { pick, body } => {
                let seen = picked(*pick)?;
                if is_icmp_error(&seen.input) {
                    return None;
                }
                let spec = Spec::like(&seen.input);
                (seen.from, seen.realms.0, body.apply(spec, Some(&seen.output)))
            }
            Send::Back { pick, exact, body } => {
                let seen = picked(*pick)?;
                if is_icmp_error(&seen.output) {
                    return None;
                }
                let spec = Spec::answer(&seen.output);
                let bytes = if *exact { spec.bytes() } else { body.apply(spec, None) };
                (seen.exit, seen.realms.1, bytes)
            }
            Send::Error { pick, kind, from, len, about } => {
                let seen = picked(*pick)?;
                let arrived = Ipv4::new_checked(&seen.output[..]).expect("came out");
                let source = match (from, seen.exit) {
                    (None, _) => Endpoint::new(arrived.destination(), 0),
                    (Some(index), Side::Inside) => end(INSIDE[index % INSIDE.len()], 0),
                    (Some(index), Side::Outside) => end(OUTSIDE[index % OUTSIDE.len()], 0),
                };
                let mut bytes = error_about(&about.of(&seen.output), source, *kind, (*len).max(20));
                if let Some(at) = about.spoil {
                    let at = 20 + at % (bytes.len() - 20);
                    bytes[at] ^= 0x41;
                    if at.is_multiple_of(2) {
                        set_icmp_sum(&mut bytes);
                    }
                }
                (seen.exit, seen.realms.1, bytes)
            }
        })
    }
}

/// The header of a packet that was sent on.
fn ip(packet: &[u8]) -> Ipv4<&[u8]> {
    Ipv4::new_checked(packet).expect("came out")
}

pub(crate) fn is_icmp_error(packet: &[u8]) -> bool {
    let ip = ip(packet);
    ip.protocol() == ICMP && natgate_wire::icmp::is_error(ip.payload()[0])
}

impl About {
    /// The packet that is embedded.
    fn of(&self, packet: &[u8]) -> Vec<u8> {
        let mut about = packet.to_vec();
        let mut header_len = Ipv4::new_checked(packet).expect("came out").header_len();
        if header_len + self.options.len() <= 60 {
            about.splice(header_len..header_len, self.options.iter().copied());
            header_len += self.options.len();
            about[0] = 0x40 | (header_len / 4) as u8;
        }
        let len = if self.short { about.len().min(header_len + 8) } else { about.len() };
        about[2..4].copy_from_slice(&(len as u16).to_be_bytes());
        let mut ip = Ipv4::new_checked(&mut about[..]).expect("came out");
        if self.later {
            ip.set_fragment_field(1);
        }
        ip.fill_checksum();
        about
    }
}

impl Body {
    /// Fills a packet in; `output` is what became of an earlier one with the same payload.
    fn apply(&self, mut spec: Spec, output: Option<&[u8]>) -> Vec<u8> {
        let end_of_window =
            |off: i32, shift: u8| (u32::from(spec.window) << shift).wrapping_add_signed(off);
        spec.sequence = match self.sequence {
            Sequence::Off(off) => spec.sequence.wrapping_add_signed(off),
            Sequence::OffWindow(off, shift) => {
                spec.sequence.wrapping_add(end_of_window(off, shift))
            }
            Sequence::Any(number) => number,
        };
        spec.acknowledgment = spec.acknowledgment.wrapping_add_signed(self.acknowledgment);
        (spec.flags, spec.window, spec.scale) = (self.flags, self.window, self.scale);
        (spec.mss, spec.dccp, spec.service) = (self.mss, self.dccp, self.service);
        if let Some(kind) = self.icmp_kind {
            spec.icmp = (kind, 0);
        }
        spec.payload = (0..self.len).collect();
        (spec.ttl, spec.sum) = (self.ttl, self.sum);
        match &self.oddity {
            Oddity::DontFragment => spec.dont_fragment = true,
            Oddity::Long(dont_fragment) => {
                spec.payload.resize(1600, 7);
                spec.dont_fragment = *dont_fragment;
            }
            Oddity::Options(options) => {
                spec.options.clone_from(options);
                spec.options.resize(options.len().div_ceil(4) * 4, 0);
            }
            _ => {}
        }
        if let (Sum::Aimed(_), Some(output)) = (self.sum, output) {
            // The checksum after translation is what should be met: aim with its ends.
            let after = Spec::like(output);
            let aimed = Spec {
                source: after.source,
                destination: after.destination,
                identifier: after.identifier,
                ..spec.clone()
            };
            spec.payload = Spec::like(&aimed.bytes()).payload;
            spec.sum = Sum::Right;
        }
        self.oddity.spoil(spec.bytes())
    }
}

impl Oddity {
    fn spoil(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        match *self {
            Self::Trailing(len) => bytes.resize(bytes.len() + usize::from(len), 0xee),
            Self::Byte(at, value, fix) => {
                let at = at % bytes.len();
                bytes[at] ^= value;
                if at == 6 || at == 7 {
                    bytes[at] &= 0x40 * u8::from(at == 6); // fragments are not modelled
                }
                if fix && let Ok(mut ip) = Ipv4::new_checked(&mut bytes[..]) {
                    ip.fill_checksum();
                }
            }
            Self::Cut(len) => bytes.truncate(len),
            _ => {}
        }
        bytes
    }
}
