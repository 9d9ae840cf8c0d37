//! The decision points at which optional features speak. Each default is what the core does alone;
//! `chapters` answers them with every feature.

use crate::allocation::Source;
use crate::chapters::MappingMarks;
use crate::tcp::State as TcpState;
use crate::timers::StillHeld;
use crate::{Fate, Host, Key, Mapping, Packet};
use natgate_engine::{DropReason, Endpoint, MappingKind, Side, TimeoutSet, Timestamp};
use std::net::Ipv4Addr;

type Permit = Result<(), DropReason>;

/// Questions of the core. A point named `note`, `before` or `after` asks nothing: it reports.
#[rustfmt::skip]
#[allow(unused_variables, reason = "the defaults use few of their arguments")]
pub(crate) trait DecisionPoints {
    // ---- addresses (2.6, 3.1, 15) ----

    /// The translator has been made, empty.
    fn begin(&mut self) {}
    /// The pool that an external address counts with.
    fn pool_with(&self, address: u32) -> Option<usize>;
    /// Whether an address of a pool gives out ports.
    fn is_open(&self, address: Ipv4Addr, pool: usize) -> bool;
    /// Whether an address is external without a pool.
    fn has_static_external(&self, address: u32) -> bool { false }
    /// Whether a host is translated though it is no subscriber.
    fn has_static_internal(&self, host: Host) -> bool { false }
    /// Whether the packet's realm is there.
    fn check_realm(&self, packet: &Packet) -> Permit { Ok(()) }
    /// Whether it is known so early which realm a packet belongs to.
    fn knows_realm(&self, packet: &Packet) -> bool { true }

    // ---- from the inside (3) ----

    /// Finds the packet's rule, and gives the packet the destination that it has outside.
    fn redirect(&mut self, packet: &mut Packet) {}
    /// The fate of a packet that is dropped by a rule or forwarded without translation.
    fn passes_untranslated(&mut self, packet: &mut Packet) -> Option<Fate> { None }
    /// Whether the packet may go where it has been redirected.
    fn check_redirect(&self, packet: &Packet) -> Permit { Ok(()) }
    /// The MTU of a hairpin from a realm.
    fn mtu_of_hairpin(&self, realm: u16) -> u16;
    /// Another mapping that the endpoints belong to.
    fn key_instead(&mut self, ordinary: Key, remote: Endpoint) -> Key { ordinary }
    /// Whether there is room for a session that is seen as another.
    fn check_place(&self, remote: Endpoint, seen: Endpoint) -> Permit { Ok(()) }
    /// Whether limits permit a mapping.
    fn permits(&self, key: Key) -> Permit { Ok(()) }
    /// Whether a mapping may have one session more, which a packet from a side makes.
    fn room_for_session(&self, key: Key, remote: Endpoint, from: Side) -> Permit { Ok(()) }
    /// A mapping was refused.
    fn note_refusal(&mut self, key: Key, pool: usize, reason: DropReason) {}

    // ---- from the outside (4) ----

    /// The fate of a packet to an address that is not external.
    fn not_for_us(&mut self, packet: &mut Packet) -> Fate { Err(DropReason::NotForUs) }
    /// The endpoint that the source of a packet is seen as from inside.
    fn source_seen(&mut self, packet: &Packet) -> Endpoint { packet.seen }
    /// The mapping that an external endpoint names.
    fn mapping_behind(&mut self, protocol: u8, external: Endpoint, remote: Endpoint) -> Option<Key>;
    /// The mapping that a new session belongs to; `None`: it is filtered.
    fn mapping_for_new(
        &mut self, key: Key, external: Endpoint, ends: (Endpoint, Endpoint),
    ) -> Option<Key> { Some(key) }
    /// Lets a packet into the realm that it is for.
    fn enter(&self, packet: &mut Packet, to: u16, in_session: bool, as_is: bool) -> Permit {
        packet.exit = to;
        Ok(())
    }
    /// Whether a rule drops what comes in by a mapping.
    fn drops_session(&self, key: Key, seen: Endpoint) -> bool { false }
    /// Whether something else than the filtering behavior admits a new session, or does not.
    fn admits(&self, key: Key, external: Endpoint, seen: Endpoint) -> Option<bool> { None }
    /// Whether a new session may be seen as this.
    fn check_seen(&mut self, key: Key, remote: Endpoint, seen: Endpoint) -> Permit { Ok(()) }
    /// A packet from outside has been dropped as `no_mapping` or `filtered`.
    fn note_refused(&mut self, packet: &Packet, external: Endpoint, remote: Endpoint) {}
    /// Changes a translated packet further.
    fn edit(&self, packet: &mut Packet, remote: Endpoint, seen: Endpoint) {}

    // ---- allocation (5) ----

    /// The endpoints that a mapping may get, where ports are not everybody's.
    fn open_shares(
        &self, key: Key, pool: usize, paired: Option<Ipv4Addr>,
    ) -> Option<Result<Vec<Endpoint>, DropReason>> { None }
    /// The address that a subscriber is paired with, `paired` by its mappings alone.
    fn pair_with_shares(
        &self, host: Host, pool: usize, paired: Option<Ipv4Addr>,
    ) -> Option<Ipv4Addr> { paired }
    /// Endpoints in use that a new mapping may share.
    fn overload(
        &self, packet: &Packet, key: Key, source: Source, remote: Endpoint,
    ) -> Vec<Endpoint> { Vec::new() }
    /// Whether a static mapping has an external endpoint.
    fn is_reserved(&self, protocol: u8, end: Endpoint) -> bool { false }
    /// A mapping is about to be made.
    fn before_mapping(&mut self, key: Key, pool: usize, end: Endpoint, marks: &mut MappingMarks) {}
    /// The kind of a mapping with this endpoint.
    fn kind_for(&self, key: Key, pool: usize, external: Endpoint) -> MappingKind {
        MappingKind::Dynamic
    }
    /// The timeouts of the rule that a new mapping's first packet meets.
    fn timeouts_for(&self, key: Key, destination: Endpoint) -> TimeoutSet { TimeoutSet::default() }
    /// Whether a mapping raises events.
    fn has_events(&self, key: Key, mapping: &Mapping) -> bool { true }
    /// A mapping has been made.
    fn after_mapping(&mut self, key: Key, pool: usize) {}

    // ---- ICMP errors (6) ----

    /// The remote endpoint that is seen as another.
    fn original_of(
        &self, protocol: u8, realm: u16, internal: Endpoint, seen: Endpoint,
    ) -> Option<Endpoint> { None }
    /// Whether a rule drops an error about a session.
    fn drops_error(&self, sender: Ipv4Addr, key: Key, seen: Endpoint) -> bool { false }
    /// Changes a translated error further: the far end that it embeds, and its source.
    fn edit_error(
        &self, packet: &mut Packet, from: Side, far: Endpoint, source: Option<Ipv4Addr>,
    ) {}

    // ---- sessions and time (9) ----

    /// A session has been made by a packet from a side.
    fn note_session(&mut self, key: Key, remote: Endpoint, from: Side) {}
    /// A packet from a side has gone through a session, whose connection was in a state before.
    fn note_packet(&mut self, key: Key, remote: Endpoint, from: Side, before: Option<TcpState>) {}
    /// The last mapping of a subscriber has gone.
    fn forget_host(&mut self, host: Host) {}
    /// When something is due that the core does not know.
    fn next_due(&self) -> Option<Timestamp> { None }
    /// Time is about to pass.
    fn before_time(&mut self) {}
    /// Sessions are about to run out at a tick.
    fn before_expiry(&mut self, time: Timestamp) {}
    /// Sessions have run out, and mappings have not.
    fn after_expiry(&mut self, time: Timestamp) {}
    /// Sessions, mappings and resting ports of a tick are done.
    fn at_tick(&mut self, time: Timestamp, still_held: Option<StillHeld<'_>>) {}
    /// Time has passed.
    fn after_time(&mut self, still_held: Option<StillHeld<'_>>) {}
}
