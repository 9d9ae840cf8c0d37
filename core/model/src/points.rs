//! The decision points at which optional features act. The defaults are the core alone; `chapters`
//! answers with every feature.

use crate::allocation::Source;
use crate::chapters::MappingMarks;
use crate::tcp::State as TcpState;
use crate::timers::StillHeld;
use crate::{Fate, Host, Key, Mapping, Packet};
use natgate_engine::{DropReason, Endpoint, MappingKind, Side, TimeoutSet, Timestamp};
use std::net::Ipv4Addr;

type Permit = Result<(), DropReason>;

/// Questions of the core. Points named `note`, `before` or `after` are no questions: they report.
#[rustfmt::skip]
#[allow(unused_variables, reason = "the defaults use few of their arguments")]
pub(crate) trait DecisionPoints {
    // ---- addresses (2.6, 3.1, 15) ----

    /// Reports a new, empty translator.
    fn begin(&mut self) {}
    /// The pool that counts an external address.
    fn pool_with(&self, address: u32) -> Option<usize>;
    /// True if an address of a pool gives out ports.
    fn is_open(&self, address: Ipv4Addr, pool: usize) -> bool;
    /// True if an address is external without a pool.
    fn has_static_external(&self, address: u32) -> bool { false }
    /// True if a host is translated without being a subscriber.
    fn has_static_internal(&self, host: Host) -> bool { false }
    /// Checks that the packet's realm exists.
    fn check_realm(&self, packet: &Packet) -> Permit { Ok(()) }
    /// True if the realm of a packet is known at this point.
    fn knows_realm(&self, packet: &Packet) -> bool { true }

    // ---- from the inside (3) ----

    /// Finds the packet's rule, and gives the packet its destination outside.
    fn redirect(&mut self, packet: &mut Packet) {}
    /// The fate of a packet that a rule drops or forwards without translation.
    fn passes_untranslated(&mut self, packet: &mut Packet) -> Option<Fate> { None }
    /// Checks that the packet may go to its new destination.
    fn check_redirect(&self, packet: &Packet) -> Permit { Ok(()) }
    /// Largest hairpinned packet of a realm.
    fn mtu_of_hairpin(&self, realm: u16) -> u16;
    /// The key of another mapping that the endpoints belong to.
    fn key_instead(&mut self, ordinary: Key, remote: Endpoint) -> Key { ordinary }
    /// Checks that there is room for a session whose remote endpoint has another name inside.
    fn check_place(&self, remote: Endpoint, seen: Endpoint) -> Permit { Ok(()) }
    /// Checks that limits permit a mapping.
    fn permits(&self, key: Key, pool: usize) -> Permit { Ok(()) }
    /// Checks that a mapping may have one more session, which a packet from a side makes.
    fn room_for_session(&self, key: Key, remote: Endpoint, from: Side) -> Permit { Ok(()) }
    /// Reports the refusal of a mapping.
    fn note_refusal(&mut self, key: Key, pool: usize, reason: DropReason) {}

    // ---- from the outside (4) ----

    /// The fate of a packet to an address that is not external.
    fn not_for_us(&mut self, packet: &mut Packet) -> Fate { Err(DropReason::NotForUs) }
    /// The source of a packet from outside, as seen from inside.
    fn source_seen(&mut self, packet: &Packet) -> Endpoint { packet.seen }
    /// Reports a packet to an external endpoint before its mapping is looked up. Returns true if
    /// the packet has ended a session.
    fn before_inbound(&mut self, packet: &Packet, external: Endpoint, remote: Endpoint) -> bool {
        false
    }
    /// The mapping of an external endpoint.
    fn mapping_behind(&mut self, protocol: u8, external: Endpoint, remote: Endpoint) -> Option<Key>;
    /// The mapping of a new session; `None`: the session is filtered.
    fn mapping_for_new(
        &mut self, key: Key, external: Endpoint, ends: (Endpoint, Endpoint),
    ) -> Option<Key> { Some(key) }
    /// The mapping that a packet to an endpoint without a mapping could make, and its pool.
    fn key_without_mapping(
        &mut self, protocol: u8, external: Endpoint, remote: Endpoint,
    ) -> Option<(Key, usize)> { None }
    /// True if that mapping may be made as far as its endpoints are concerned.
    fn may_map(&self, key: Key, pool: usize, external: Endpoint) -> bool { false }
    /// Checks that limits permit that mapping.
    fn permits_from_outside(&self, key: Key, pool: usize) -> Permit { Ok(()) }
    /// True if its first session could not be told apart from another session.
    fn is_ambiguous_new(&self, key: Key, remote: Endpoint) -> bool { false }
    /// True if ports of a pool below 1024 are for internal ports below 1024 alone.
    fn splits_ports(&self, pool: usize) -> bool { true }
    /// True if a port rests after its mapping.
    fn rests(&self, external: Endpoint) -> bool { true }
    /// Lets a packet into the realm of its receiver.
    fn enter(&self, packet: &mut Packet, to: u16, in_session: bool, as_is: bool) -> Permit {
        packet.exit = to;
        Ok(())
    }
    /// True if a rule drops inbound packets of a mapping.
    fn drops_session(&self, key: Key, seen: Endpoint) -> bool { false }
    /// The decision about a new session by something other than the filtering behavior.
    fn admits(&self, key: Key, external: Endpoint, seen: Endpoint) -> Option<bool> { None }
    /// Checks that a new session may have this name of its remote endpoint inside.
    fn check_seen(&mut self, key: Key, remote: Endpoint, seen: Endpoint) -> Permit { Ok(()) }
    /// Reports a packet from outside that was dropped as `no_mapping` or `filtered`.
    fn note_refused(&mut self, packet: &Packet, external: Endpoint, remote: Endpoint) {}
    /// Changes a translated packet further.
    fn edit(&self, packet: &mut Packet, remote: Endpoint, seen: Endpoint) {}

    // ---- allocation (5) ----

    /// The endpoints that are open for a mapping, in a pool that shares ports out.
    fn open_shares(
        &self, key: Key, pool: usize, paired: Option<Ipv4Addr>,
    ) -> Option<Result<Vec<Endpoint>, DropReason>> { None }
    /// The address that a subscriber is paired with. `paired` is the address by its mappings alone.
    fn pair_with_shares(
        &self, host: Host, pool: usize, paired: Option<Ipv4Addr>,
    ) -> Option<Ipv4Addr> { paired }
    /// Endpoints in use that a new mapping may share.
    fn overload(
        &self, packet: &Packet, key: Key, source: Source, remote: Endpoint,
    ) -> Vec<Endpoint> { Vec::new() }
    /// True if a static mapping has an external endpoint.
    fn is_reserved(&self, protocol: u8, end: Endpoint) -> bool { false }
    /// Reports a mapping that is about to be made.
    fn before_mapping(&mut self, key: Key, pool: usize, end: Endpoint, marks: &mut MappingMarks) {}
    /// The kind of a mapping with this endpoint.
    fn kind_for(&self, key: Key, pool: usize, external: Endpoint) -> MappingKind {
        MappingKind::Dynamic
    }
    /// The timeouts of the rule for a new mapping's first packet.
    fn timeouts_for(&self, key: Key, destination: Endpoint) -> TimeoutSet { TimeoutSet::default() }
    /// True if a mapping raises events.
    fn has_events(&self, key: Key, mapping: &Mapping) -> bool { true }
    /// Reports a new mapping.
    fn after_mapping(&mut self, key: Key, pool: usize) {}

    // ---- ICMP errors (6) ----

    /// The remote endpoint that is seen inside by another name.
    fn original_of(
        &self, protocol: u8, realm: u16, internal: Endpoint, seen: Endpoint,
    ) -> Option<Endpoint> { None }
    /// True if a rule drops an error about a session.
    fn drops_error(&self, sender: Ipv4Addr, key: Key, seen: Endpoint) -> bool { false }
    /// Changes a translated error further: the far endpoint of its embedded packet, and its source.
    fn edit_error(
        &self, packet: &mut Packet, from: Side, far: Endpoint, source: Option<Ipv4Addr>,
    ) {}

    // ---- sessions and time (9) ----

    /// Reports a new session, made by a packet from a side.
    fn note_session(&mut self, key: Key, remote: Endpoint, from: Side) {}
    /// Reports a packet from a side in a session. `before` is the state of its connection before.
    fn note_packet(&mut self, key: Key, remote: Endpoint, from: Side, before: Option<TcpState>) {}
    /// Reports the end of a subscriber's last mapping.
    fn forget_host(&mut self, host: Host) {}
    /// The time of the next due thing that the core does not know.
    fn next_due(&self) -> Option<Timestamp> { None }
    /// Reports that time is about to pass.
    fn before_time(&mut self) {}
    /// Reports that sessions are about to run out at a tick.
    fn before_expiry(&mut self, time: Timestamp) {}
    /// Reports that sessions have run out, before mappings do.
    fn after_expiry(&mut self, time: Timestamp) {}
    /// Reports that sessions, mappings and resting ports of a tick are done.
    fn at_tick(&mut self, time: Timestamp, still_held: Option<StillHeld<'_>>) {}
    /// Reports that time has passed.
    fn after_time(&mut self, still_held: Option<StillHeld<'_>>) {}
}
