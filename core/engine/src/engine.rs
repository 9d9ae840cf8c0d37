//! The translator's state, its clock, its events and its own packets.
//!
//! `start` builds the state, `removal` ends sessions and mappings, `report` describes the state,
//! and `due` handles timers. `translate` decides about packets.

mod due;
mod removal;
mod report;
mod start;

use crate::config::Config;
use crate::controls::Controls;
use crate::endpoint::{AddressPort, External};
use crate::event::Events;
use crate::explicit::Holds;
use crate::external::ExternalPorts;
use crate::fragments::Fragments;
use crate::host::Host;
use crate::identification::Identifications;
use crate::near::Octets;
use crate::packet::{Counters, Outcome, Side};
use crate::pair::Pair;
use crate::random::Generator;
use crate::rate::REPORT_INTERVAL;
use crate::realms::Realms;
use crate::reconfigure::Sweep;
use crate::respond::{Connection, Envelope, Message, PENDING_SYN_NANOS, PendingSyns, Responder};
use crate::rules::{RuleBatch, RuleSet};
use crate::services::Services;
use crate::subscriber::Subscribers;
use crate::table::Table;
use crate::time::{TICK, nanos};
use crate::timeouts::{self, Timers};
use crate::translate::{PoolWatches, Rings, Workspace};
use crate::twice::Twice;
use crate::whole::WholeStatics;
use crate::{Change, DropReason, Event, Timestamp};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
pub(crate) use removal::SESSIONS_A_STEP;

/// The latest time that the engine knows, nanoseconds.
const LATEST: u64 = i64::MAX as u64;

/// The translator. A clone continues as the original would, but the clone may allocate while it
/// grows.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) timeouts: Timers,
    pub(crate) table: Table,
    pub(crate) external: ExternalPorts,
    pub(crate) subscribers: Subscribers,
    pub(crate) pool_watches: PoolWatches,
    pub(crate) rules: RuleSet,
    pub(crate) realms: Realms,
    /// Searches in `rules` for a batch of packets.
    pub(crate) searches: RuleBatch,
    /// Headers of a batch, parsed by one stage for the next ones.
    pub(crate) workspace: Workspace,
    /// Ports of flows that application-level gateways read.
    pub(crate) controls: Controls,
    /// True if a reload shrank the subscriber prefixes: records of former subscribers may remain.
    pub(crate) strangers: bool,
    /// Mappings that the present configuration has not judged yet.
    pub(crate) sweep: Sweep,
    /// Remote endpoints that the inside knows by another endpoint.
    pub(crate) twice: Twice,
    pub(crate) statics: WholeStatics,
    pub(crate) services: Services,
    pub(crate) rings: Rings,
    /// Mappings that hosts requested by PCP or NAT-PMP.
    pub(crate) holds: Holds,
    /// Hosts that static mappings name, sorted.
    pub(crate) static_hosts: Vec<Host>,
    /// First and last address of each connected network; 0 if it is an external address.
    pub(crate) broadcasts: [u32; 4],
    /// First octets of addresses that may be other than remote hosts'.
    pub(crate) near: Octets,
    pub(crate) generator: Generator,
    /// Sessions that a subscriber may have beyond the first of each mapping.
    pub(crate) further_each: u32,
    pub(crate) responder: Responder,
    pub(crate) pending: PendingSyns,
    pub(crate) fragments: Fragments,
    pub(crate) identifications: Identifications,
    pub(crate) counters: Counters,
    /// Packets that took the complete way in a batch.
    pub(crate) complete_ways: u64,
    /// Dynamic mappings made, and removed, by [`quota_class`](crate::protocols::quota_class).
    pub(crate) made: [u64; 3],
    pub(crate) gone: [u64; 3],
    /// Dynamic mappings of each pool by [`place_of`](crate::protocols::place_of).
    pub(crate) used: Vec<[u64; 5]>,
    events: Events,
    /// Blocks assigned at the start whose events are still to be raised, last first.
    pub(crate) pinned: Vec<u32>,
    /// True if something was taken since unanswered subscribers last made room: something may be
    /// scarce.
    pub(crate) may_be_short: bool,
    /// True if several engines divide the work.
    pub(crate) is_divided: bool,
    /// True if packets that turn round take two steps although the engine is alone.
    pub(crate) turns_in_steps: bool,
    /// True if the caller has the last word about new subscribers in a crowded table.
    pub(crate) guards_newcomers: bool,
    /// True if the packet that [`Engine::poll_transmit`] gave last is hairpinned.
    pub(crate) turns: bool,
    /// Time of the latest exhaustion report of each pool, nanoseconds.
    pub(crate) pool_reported: Vec<Option<u64>>,
    started: Timestamp,
    /// Time of tick 0, nanoseconds.
    base: u64,
    /// Latest time seen, nanoseconds.
    pub(crate) now: u64,
    /// Latest tick whose timers have been handled.
    pub(crate) tick: u32,
    leads: due::Leads,
    /// State of one of a pair; `None`: the engine is none.
    pub(crate) pair: Option<Box<Pair>>,
}

impl Engine {
    /// Most packets that one call of [`Engine::process`] takes.
    pub const MAX_BATCH: usize = 256;

    // ---- time ----

    /// The present time, nanoseconds since that of tick 0.
    pub(crate) fn since_base(&self) -> u64 {
        self.now.saturating_sub(self.base)
    }

    /// The time of tick 0, nanoseconds.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Start of this engine, or of the first engine in the chain of take-overs.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// Counts ticks as an earlier engine did, if this new engine continues its state. A time base
    /// that is not possible is ignored.
    pub(crate) fn go_on_from(&mut self, base: u64, started: u64, now: u64) {
        let since = now.saturating_sub(base) / nanos(TICK);
        if base.is_multiple_of(nanos(TICK)) && since < u64::from(u32::MAX >> 2) {
            self.base = base;
        }
        self.started = Timestamp(started.min(now));
        self.observe(Timestamp(now));
        self.tick = self.tick_of(self.now) as u32;
    }

    pub(crate) fn tick_of(&self, time: u64) -> u64 {
        time.saturating_sub(self.base) / nanos(TICK)
    }

    /// The latest tick that is not after the present time.
    pub(crate) fn present_tick(&self) -> u32 {
        self.tick_of(self.now) as u32
    }

    pub(crate) fn time_of(&self, tick: u32) -> u64 {
        self.base + u64::from(tick) * nanos(TICK)
    }

    /// The first tick that is not before a time plus a duration, both in nanoseconds.
    pub(crate) fn deadline(&self, time: u64, duration: u64) -> u32 {
        timeouts::deadline(time.saturating_sub(self.base), duration)
    }

    /// Moves the present time forward to `now`. The time never goes back, nor beyond the year 2262.
    pub(crate) fn observe(&mut self, now: Timestamp) {
        self.now = self.now.max(now.0.min(LATEST));
    }

    /// Remembers an inbound SYN that no mapping takes. An ICMP error answers the SYN after six
    /// seconds unless its connection has come about by then.
    pub(crate) fn remember_syn(
        &mut self,
        envelope: Envelope,
        connection: Connection,
        packet: &[u8],
    ) {
        //= rfc5382#REQ-4
        //= rfc5597#REQ-4
        let due = self.now + PENDING_SYN_NANOS;
        if !self.pending.add(due, envelope, connection, packet) {
            self.counters.errors_suppressed += 1;
        }
    }

    fn answer_syn(&mut self) {
        let Some(syn) = self.pending.pop() else { return };
        let (protocol, AddressPort { address, port }, remote) = syn.connection;
        let index = self.external.index(address);
        let owner = index
            .and_then(|index| self.find_external(protocol, External::new(index, port), remote));
        //= rfc5382#REQ-4-outbound
        //= rfc5597#REQ-4-outbound
        if owner.is_some_and(|slot| self.table.find_session(slot, remote).is_some()) {
            return;
        }
        //= rfc5382#REQ-4-answer
        //= rfc5597#REQ-4-answer
        let message = Message::PORT_UNREACHABLE;
        if !self.responder.send(syn.due, message, syn.envelope, syn.quoted()) {
            self.counters.errors_suppressed += 1;
        }
    }

    /// Corrects the counters for a packet of `len` bytes to the gateway itself. [`Engine::process`]
    /// dropped the packet as [`DropReason::LocalUnsupported`]; the gateway has now answered it
    /// (`None`), or dropped it for another reason.
    pub fn count_local(&mut self, other: Option<DropReason>, len: usize) {
        self.counters.recount_local(other, len);
    }

    /// Marks a server of a service as up or down, both by their places in the configuration. A
    /// server that is down gets no new sessions and keeps its present ones. At first all servers
    /// are up; an engine of another process does not learn which are down. Places that do not
    /// exist are ignored.
    pub fn mark_server(&mut self, service: usize, server: usize, is_up: bool) {
        self.services.mark(service, server, is_up);
    }

    // ---- restarts ----

    /// Writes the taken ports of an external address to `into`: used ports, held ports and, in a
    /// pool, ports of static mappings. `address` counts from 0; `None`: there is no such address.
    /// `into` has 1,024 words, a bit a port. `protocol` is TCP, UDP, ICMP or DCCP.
    ///
    /// # Panics
    /// When the protocol is another, or `into` has another length.
    pub fn taken_ports(&self, address: usize, protocol: u8, into: &mut [u64]) -> Option<Ipv4Addr> {
        assert_eq!(into.len(), 1024, "a bit a port");
        self.external.taken(address as u32, protocol, into).map(Ipv4Addr::from_bits)
    }

    /// Holds ports of an external address for the hold-down from now on. `ports` is the answer of
    /// [`Engine::taken_ports`] of an earlier engine. Ports of every protocol are held, because the
    /// connections that used them are not known any more. Ports in use, and ports in no pool, stay
    /// as they are. Returns `false` if the limit of held ports left some of them free.
    ///
    /// # Panics
    /// When the protocol is another, or `ports` has another length.
    pub fn hold_ports(&mut self, address: Ipv4Addr, protocol: u8, ports: &[u64]) -> bool {
        assert_eq!(ports.len(), 1024, "a bit a port");
        let Some(index) = self.external.index(address.to_bits()) else { return true };
        //= rfc6888#REQ-8-restart
        let release = self.deadline(self.now, self.timeouts.hold_down);
        if release <= self.tick {
            return true;
        }
        for (word, &bits) in ports.iter().enumerate() {
            let mut bits = bits;
            while bits != 0 {
                let port = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                self.external.hold(protocol, index, port as u16, release);
            }
        }
        !self.external.holds_most()
    }

    // ---- events ----

    #[inline(always)]
    pub(crate) fn raise(&mut self, time: u64, change: Change) {
        if !self.events.push(Timestamp(time), change) {
            self.counters.events_lost += 1;
        }
    }

    /// Says whether events that find no room in the queue are kept, too, from now on.
    pub(crate) fn keep_all_events(&mut self, keeps_all: bool) {
        self.events.keep_all(keeps_all);
    }

    /// True if the queue has room for the events of a few removals. Half of it is free.
    pub fn has_room_for_events(&self) -> bool {
        self.events.len() <= Events::ROOM / 2
    }

    //= rfc8158#section-4.6.5-rate
    /// Reports that a pool has no free port, at most once a second.
    pub(crate) fn report_exhausted(&mut self, pool: usize, protocol: u8) {
        let reported = &mut self.pool_reported[pool];
        if reported.is_none_or(|at| self.now - at >= REPORT_INTERVAL) {
            *reported = Some(self.now);
            self.raise(self.now, Change::PoolExhausted { pool, protocol });
        }
    }

    /// Returns the next event, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(block) = self.pinned.pop() {
            let change = Change::BlockAssigned(self.external.block(block));
            return Some(Event { time: self.started, change });
        }
        self.events.pop()
    }

    /// Writes the next packet that the engine sends to the front of `buffer`: a packet of the
    /// engine's own, or a fragment that had waited, oldest first. Returns the time the packet was
    /// made, the side to send it by, and its length.
    ///
    /// # Panics
    /// When the buffer is shorter than the packet. 65,535 bytes hold any packet.
    pub fn poll_transmit(&mut self, buffer: &mut [u8]) -> Option<(Timestamp, Side, usize)> {
        loop {
            let (time, side, len) = self.next_transmit(buffer)?;
            if side == Side::Outside || self.has_realm(self.realms.handed_out) {
                return Some((time, side, len));
            }
            // The realm of the packet was removed in the meantime.
        }
    }

    fn next_transmit(&mut self, buffer: &mut [u8]) -> Option<(Timestamp, Side, usize)> {
        let own = self.responder.next_time();
        let released = self.fragments.next_released();
        if released.is_some_and(|released| own.is_none_or(|own| released.0 <= own)) {
            let released = self.fragments.poll_released(buffer)?;
            self.turns = released.hands_over();
            if !self.turns {
                self.counters.count(released.direction, Outcome::Forwarded, released.len);
            }
            self.realms.handed_out = released.realm;
            return Some((released.time, released.out, released.len));
        }
        let error = self.responder.poll()?;
        self.realms.handed_out = error.realm;
        self.turns = false;
        let bytes = error.bytes();
        buffer[..bytes.len()].copy_from_slice(bytes);
        self.counters.generated += 1;
        Some((Timestamp(error.time), error.side, bytes.len()))
    }
}
