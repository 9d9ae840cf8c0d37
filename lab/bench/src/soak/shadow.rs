//! The content of the engine's events, in as few bytes for each mapping as possible, and the
//! checked invariants:
//!
//! - No two mappings of a protocol have the same external endpoint, and every external endpoint
//!   belongs to the pool.
//! - An internal endpoint keeps its external endpoint during the life of its mapping, for every
//!   remote endpoint. A packet to the external endpoint gets to that internal endpoint and to no
//!   other.
//! - All mappings of a subscriber have one external address, and their number is at most the quota.
//! - A packet to an endpoint without a mapping does not get in.
//! - The table, its sessions and the pools agree with the events.

use super::traffic::{Kind, Sent, Universe};
use super::{POOL, PORTS, out_of};
use crate::frame::{End, destination, source};
use natgate_engine::{Change, Config, Engine, MappingId, TICK, Timestamp, Verdict};
use natgate_wire::protocol::{TCP, UDP};

/// Value for no external endpoint.
const NONE: End = (0, 0);

/// Mappings of a subscriber.
#[derive(Clone, Copy, Debug, Default)]
struct Subscriber {
    /// External address, while the subscriber has mappings.
    address: u32,
    mappings: [u32; 2],
}

/// State according to the events.
#[derive(Debug)]
pub(super) struct Shadow {
    config: Config,
    universe: Universe,
    addresses: u32,
    /// External endpoint of each session.
    external: Vec<End>,
    /// One bit for each port of each address, for UDP and for TCP.
    taken: [Vec<u64>; 2],
    subscribers: Vec<Subscriber>,
    made: u64,
    removed: u64,
}

fn class(protocol: u8) -> usize {
    usize::from(protocol == TCP)
}

impl Shadow {
    pub(super) fn new(config: Config, universe: Universe) -> Self {
        let addresses = config.pools[0].addresses[0].count() as u32;
        Self {
            universe,
            addresses,
            external: vec![NONE; universe.sessions() as usize],
            taken: [(); 2].map(|()| vec![0; addresses as usize * 1024]),
            subscribers: vec![Subscriber::default(); universe.subscribers() as usize],
            config,
            made: 0,
            removed: 0,
        }
    }

    pub(super) fn live(&self) -> u64 {
        self.made - self.removed
    }

    /// Numbers of created and of removed mappings.
    pub(super) fn changes(&self) -> (u64, u64) {
        (self.made, self.removed)
    }

    pub(super) fn addresses(&self) -> u32 {
        self.addresses
    }

    /// External endpoint of a session's mapping.
    pub(super) fn external(&self, number: u64) -> Option<End> {
        Some(self.external[number as usize]).filter(|external| *external != NONE)
    }

    /// Returns true if a mapping has this external endpoint.
    pub(super) fn is_taken(&self, protocol: u8, external: End) -> bool {
        let (word, bit) = self.place(external).expect("an address of the pool");
        self.taken[class(protocol)][word] & bit != 0
    }

    fn place(&self, (address, port): End) -> Option<(usize, u64)> {
        let index = address.checked_sub(POOL).filter(|index| *index < self.addresses)?;
        Some((index as usize * 1024 + usize::from(port / 64), 1 << (port % 64)))
    }

    /// Applies an event.
    pub(super) fn note(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::MappingCreated(id) => self.created(id),
            Change::MappingRemoved(id) => self.gone(id),
            Change::BlockAssigned(_)
            | Change::BlockReleased(_)
            | Change::QuotaReached { .. }
            | Change::ClassQuotaReached { .. }
            | Change::ThresholdReached { .. }
            | Change::ClassThresholdReached { .. }
            | Change::PoolThresholdReached { .. }
            | Change::PoolExhausted { .. }
            | Change::SessionCreated(_)
            | Change::SessionRemoved(_) => Ok(()),
        }
    }

    fn ends(id: &MappingId) -> (End, End) {
        let end = |end: natgate_engine::Endpoint| (end.address.to_bits(), end.port);
        (end(id.internal), end(id.external))
    }

    fn created(&mut self, id: &MappingId) -> Result<(), String> {
        let (internal, external) = Self::ends(id);
        let Some((number, subscriber)) = self.whose(id.protocol, internal) else {
            return Err(format!("{id:?} is of an internal endpoint that never sent"));
        };
        let in_range = (PORTS.0..=PORTS.1).contains(&external.1);
        let Some((word, bit)) = self.place(external).filter(|_| in_range) else {
            return Err(format!("{id:?} has an external endpoint that is not of the pool"));
        };
        let taken = &mut self.taken[class(id.protocol)][word];
        if *taken & bit != 0 {
            return Err(format!("{id:?} has the external endpoint of another mapping"));
        }
        *taken |= bit;
        if self.external[number as usize] != NONE {
            return Err(format!("{id:?} is the second mapping of its internal endpoint"));
        }
        self.external[number as usize] = external;
        let own = &mut self.subscribers[subscriber];
        if own.mappings != [0, 0] && own.address != external.0 {
            return Err(format!("{id:?}: the subscriber's other mappings have another address"));
        }
        own.address = external.0;
        own.mappings[class(id.protocol)] += 1;
        let limits = &self.config.limits;
        if own.mappings[0] > limits.udp_ports || own.mappings[1] > limits.tcp_ports {
            return Err(format!("{id:?} is more than the subscriber's quota"));
        }
        self.made += 1;
        if self.live() > u64::from(limits.mappings.unwrap_or(u32::MAX)) {
            return Err(format!("{id:?} is more than the table's room"));
        }
        Ok(())
    }

    fn gone(&mut self, id: &MappingId) -> Result<(), String> {
        let (internal, external) = Self::ends(id);
        let known = self.whose(id.protocol, internal).zip(self.place(external));
        let Some(((number, subscriber), (word, bit))) =
            known.filter(|((number, _), _)| self.external[*number as usize] == external)
        else {
            return Err(format!("{id:?} was removed and was not there"));
        };
        self.external[number as usize] = NONE;
        self.taken[class(id.protocol)][word] &= !bit;
        self.subscribers[subscriber].mappings[class(id.protocol)] -= 1;
        self.removed += 1;
        Ok(())
    }

    /// Session and subscriber of an internal endpoint.
    fn whose(&self, protocol: u8, internal: End) -> Option<(u64, usize)> {
        self.universe.number(protocol, internal).zip(self.universe.subscriber(internal.0))
    }

    /// Checks the verdict of a packet against the state after it.
    pub(super) fn check(&self, sent: &Sent<'_>, verdict: Verdict) -> Result<(), String> {
        let broken = |what: &str| Err(format!("{what}: {sent:?}, {verdict:?}"));
        let forwarded = verdict == out_of(sent.kind.from());
        if matches!(verdict, Verdict::Forward(_)) && !forwarded {
            // The test sends no hairpins on purpose. Noise may become a hairpin by chance; the
            // check of its mapping covers it.
            return if matches!(sent.kind, Kind::Noise) { Ok(()) } else { broken("turned round") };
        }
        match sent.kind {
            Kind::Noise => Ok(()),
            Kind::Create(_) | Kind::Outbound => {
                let external = sent.number.and_then(|number| self.external(number));
                if forwarded && external != Some(source(sent.frame)) {
                    return broken("left with an endpoint that is not its mapping's");
                }
                if !forwarded && sent.was_live && sent.protocol == UDP {
                    return broken("has a mapping and was not sent");
                }
                Ok(())
            }
            Kind::Inbound | Kind::Stray => {
                if forwarded && !sent.was_live {
                    return broken("came in where there is no mapping");
                }
                if !forwarded {
                    return Ok(());
                }
                let at = destination(sent.frame);
                match (sent.number, self.whose(sent.protocol, at)) {
                    (_, None) => broken("got to an endpoint that never sent"),
                    (Some(number), Some((reached, _))) if number != reached => {
                        broken("got to another session")
                    }
                    (_, Some((reached, _))) if self.external(reached).is_none() => {
                        broken("got to an endpoint without a mapping")
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// Checks the engine's whole state against the events.
    pub(super) fn look(&self, engine: &Engine, now: Timestamp) -> Result<(), String> {
        if engine.counters().events_lost > 0 {
            return Err("events were lost".into());
        }
        // One more tick, because timers are rounded up to a tick.
        let timeouts = &self.config.timeouts;
        let longest = timeouts.tcp_established + timeouts.tcp_closing + TICK;
        let (mut mappings, mut sessions) = ([0; 2], 0);
        for mapping in engine.mappings() {
            let (internal, external) = Self::ends(&mapping.id);
            let number = self.universe.number(mapping.id.protocol, internal);
            // Each internal endpoint has one place here. So equal numbers of mappings and places
            // mean equal sets.
            if number.and_then(|number| self.external(number)) != Some(external) {
                return Err(format!("{mapping:?} is not what the events told"));
            }
            let in_time = |at: Timestamp| at >= now && at.0 <= now.0 + longest.as_nanos() as u64;
            if mapping.sessions == 0 || !mapping.expires.is_some_and(in_time) {
                return Err(format!("{mapping:?} should be gone at {now:?}"));
            }
            mappings[class(mapping.id.protocol)] += 1;
            sessions += u64::from(mapping.sessions);
        }
        if mappings.iter().sum::<u64>() != self.live() {
            return Err(format!("{mappings:?} mappings, {} by the events", self.live()));
        }
        let listed = engine.sessions().count() as u64;
        if listed != sessions {
            return Err(format!("{listed} sessions, {sessions} by the mappings"));
        }
        self.look_at_pool(engine, mappings)
    }

    fn look_at_pool(&self, engine: &Engine, mappings: [u64; 2]) -> Result<(), String> {
        let all = u64::from(self.addresses) * (u64::from(PORTS.1 - PORTS.0) + 1);
        for (protocol, mappings) in [UDP, TCP].into_iter().zip(mappings) {
            let usage = engine.pool_usage(0, protocol);
            let sum = usage.free + usage.used + usage.held + usage.reserved;
            let bits: u64 =
                self.taken[class(protocol)].iter().map(|word| u64::from(word.count_ones())).sum();
            if sum != all || usage.used != mappings || bits != mappings || usage.reserved != 0 {
                return Err(format!(
                    "protocol {protocol}: {usage:?} of {all}, {mappings} mappings, {bits} told"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, Frame};
    use natgate_engine::{Endpoint, MappingKind, Side};

    fn shadow() -> Shadow {
        let universe = Universe::new(6400);
        Shadow::new(crate::soak::config(6400, universe), universe)
    }

    fn id(internal: End, external: End) -> MappingId {
        let end = |(address, port)| Endpoint::new(address, port);
        let (internal, external) = (end(internal), end(external));
        MappingId { protocol: UDP, realm: 0, internal, external, kind: MappingKind::Dynamic }
    }

    #[test]
    fn broken_promises_of_events_are_noticed() {
        let mut shadow = shadow();
        let internal = |number| shadow.universe.internal(number);
        let (first, second) = (internal(0), internal(2));
        let neighbour = (first.0, first.1 + 1);
        let created = Change::MappingCreated;
        shadow.note(&created(id(first, (POOL, 2000)))).expect("the first");
        for (broken, wrong) in [
            ("of another mapping", id(second, (POOL, 2000))),
            ("second mapping", id(first, (POOL, 2001))),
            ("another address", id(neighbour, (POOL + 1, 2000))),
            ("not of the pool", id(second, (POOL + 2, 2000))),
            ("not of the pool", id(second, (POOL, 80))),
            ("never sent", id((1, 1), (POOL, 2001))),
        ] {
            let said = shadow.note(&created(wrong)).expect_err(broken);
            assert!(said.contains(broken), "{said}");
            // After an error the state is not used any more, so the test begins with a new one.
            shadow = self::shadow();
            shadow.note(&created(id(first, (POOL, 2000)))).expect("the first");
        }
        let gone = Change::MappingRemoved;
        assert!(shadow.note(&gone(id(first, (POOL, 2001)))).is_err());
        assert!(shadow.note(&gone(id(first, (POOL, 2000)))).is_ok());
        assert!(shadow.note(&gone(id(first, (POOL, 2000)))).is_err());
        assert_eq!(shadow.changes(), (1, 1));
    }

    #[test]
    fn broken_promises_of_packets_are_noticed() {
        let mut shadow = shadow();
        let (internal, external) = (shadow.universe.internal(0), (POOL, 2000));
        shadow.note(&Change::MappingCreated(id(internal, external))).expect("the first");
        let remote = (0xc612_0001, 443);
        let check = |kind, was_live, source, destination, verdict| {
            let mut frame = Frame([0; 64]);
            frame::udp(&mut frame, source, destination);
            let number = Some(0);
            shadow.check(&Sent { kind, protocol: UDP, number, was_live, frame: &frame }, verdict)
        };
        let (out, inward) = (Verdict::Forward(Side::Outside), Verdict::Forward(Side::Inside));
        let dropped = Verdict::Drop(natgate_engine::DropReason::NotIpv4);
        assert!(check(Kind::Outbound, true, external, remote, out).is_ok());
        assert!(check(Kind::Outbound, true, (POOL, 2001), remote, out).is_err());
        assert!(check(Kind::Outbound, true, internal, remote, dropped).is_err());
        assert!(check(Kind::Inbound, true, remote, internal, inward).is_ok());
        assert!(check(Kind::Inbound, false, remote, internal, inward).is_err());
        assert!(check(Kind::Inbound, true, remote, shadow.universe.internal(2), inward).is_err());
        assert!(check(Kind::Stray, false, remote, external, dropped).is_ok());
    }

    #[test]
    fn a_table_that_differs_is_noticed() {
        let mut shadow = shadow();
        let engine = Engine::new(&shadow.config, [1; 32], Timestamp(0)).unwrap();
        assert_eq!(shadow.look(&engine, Timestamp(0)), Ok(()));
        let internal = shadow.universe.internal(0);
        shadow.note(&Change::MappingCreated(id(internal, (POOL, 2000)))).expect("the first");
        assert!(shadow.look(&engine, Timestamp(0)).is_err());
    }
}
