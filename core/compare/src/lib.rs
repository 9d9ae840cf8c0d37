//! Engine and model side by side: each call goes to both, and a sentence reports a difference.
//!
//! [`Pair::new`] begins with two empty translators. [`Pair::process`] and [`Pair::process_in`] give
//! a batch of packets to both, and [`Pair::advance`] lets time pass. [`Pair::map`], [`Pair::unmap`]
//! and [`Pair::peer`] carry requests of hosts. [`Pair::restart`], [`Pair::replace_rules`],
//! [`Pair::reconfigure`] and [`Pair::change_pools`] change the configuration. Each call compares
//! verdicts, bytes, events, own packets and counters. [`Pair::check_state`] compares the whole
//! state afterwards. Invariants of the engine are checked without the model (`invariants`), so an
//! error that both share is still found.
//!
//! ```
//! use natgate_compare::Pair;
//! use natgate_engine::{
//!     AddressRange, Config, DropReason, PoolConfig, Side, Timestamp, Verdict,
//! };
//!
//! let address = [203, 0, 113, 1].into();
//! let addresses = vec![AddressRange { first: address, last: address }];
//! let pool = PoolConfig { addresses, ports: (1024, 65535), ..PoolConfig::default() };
//! let config = Config { pools: vec![pool], ..Config::default() };
//! let mut pair = Pair::new(&config, [0; 32], Timestamp(0))?;
//! let (results, _) = pair.process(Timestamp(1), Side::Inside, &[vec![0x60; 40]])?;
//! assert_eq!(results[0].verdict, Verdict::Drop(DropReason::NotIpv4));
//! pair.advance(Timestamp(1_000_000_000))?;
//! pair.check_state()?;
//! # Ok::<(), String>(())
//! ```

#![forbid(unsafe_code)]

mod changes;
mod choice;
mod explained;
mod families;
mod fill;
mod invariants;
mod requests;
mod requests6;
mod same;

pub use families::{FamilyPair, Left};
pub use fill::First;
pub use requests6::HostRequest;

use changes::{chooses, is_taken};
use natgate_engine::{
    Config, Engine, MappingId, MappingInfo, Packet, SessionInfo, Side, Timestamp, Verdict,
};
use natgate_model::{Effects, Model, Transmit, tick};
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use same::{Hex, by_time, legal, same, same_lists, without_free_fields};

/// Engine and model in lock-step.
#[derive(Debug)]
pub struct Pair {
    /// The engine.
    pub engine: Engine,
    /// The model.
    pub model: Model,
    config: Config,
    changed: invariants::Changed,
    buffer: Vec<u8>,
}

/// The result for a packet, equal in engine and model.
#[derive(Clone, Debug)]
pub struct Done {
    /// The verdict about the packet.
    pub verdict: Verdict,
    /// The packet's bytes afterwards. They have no meaning for a dropped packet.
    pub bytes: Vec<u8>,
    /// The realm that the packet goes to, if it leaves by the inside.
    pub realm: u16,
}

/// Difference between engine and model, or between engine and invariant: a sentence and the two
/// sides.
pub type Divergence = String;

impl Pair {
    /// Makes both translators, empty.
    ///
    /// # Errors
    /// When the engine refuses the configuration.
    pub fn new(config: &Config, seed: [u8; 32], now: Timestamp) -> Result<Self, Divergence> {
        let engine = Engine::new(config, seed, now)
            .map_err(|error| format!("the engine refused the configuration: {}", error.message))?;
        let model = Model::new(config, now);
        Ok(Self {
            engine,
            model,
            changed: invariants::Changed {
                addresses: chooses(config),
                ..invariants::Changed::default()
            },
            config: config.clone(),
            buffer: vec![0; 65_535],
        })
    }

    /// Lets time pass for both. Returns the packets that they made.
    ///
    /// # Errors
    /// When the results differ.
    pub fn advance(&mut self, now: Timestamp) -> Result<Vec<Transmit>, Divergence> {
        let mut transmits = Vec::new();
        // If too many ports are held, the engine decides which become free, and the model can only
        // ask for the engine's present state. With blocks, the time of each release matters.
        if self.config.limits.held_ports.is_some() && self.model.has_blocks() {
            while let Some(due) = self.model.next_tick().filter(|due| *due < now) {
                transmits.extend(self.advance_to(due)?);
            }
        }
        transmits.extend(self.advance_to(now)?);
        Ok(transmits)
    }

    fn advance_to(&mut self, now: Timestamp) -> Result<Vec<Transmit>, Divergence> {
        if let Some(due) = self.model.next_tick() {
            let told = self.engine.next_deadline();
            if told.is_none_or(|told| told > due) {
                return Err(format!("{due:?} is due, the engine's next deadline is {told:?}"));
            }
        }
        let mut made = Effects::default();
        while self.engine.advance(now) {
            self.drain(&mut made)?;
        }
        self.drain(&mut made)?;
        let engine = &self.engine;
        let still_held = |protocol, end| is_taken(engine, protocol, end);
        let expected = self.model.advance(now, Some(&still_held));
        legal("ports held", &expected)?;
        same("events of advance", &by_time(&made.events), &by_time(&expected.events))?;
        same("packets of advance", &made.transmits, &expected.transmits)?;
        same("counters", self.engine.counters(), self.model.counters())?;
        Ok(made.transmits)
    }

    /// Gives a batch to both. Returns the result of each packet, and the packets that both made.
    ///
    /// # Errors
    /// When the results differ.
    pub fn process(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &[Vec<u8>],
    ) -> Result<(Vec<Done>, Vec<Transmit>), Divergence> {
        let packets: Vec<(u16, Vec<u8>)> = packets.iter().map(|bytes| (0, bytes.clone())).collect();
        self.process_in(now, from, &packets)
    }

    /// [`Pair::process`] for packets with the realms that they come from, if from inside.
    ///
    /// # Errors
    /// When the results differ.
    pub fn process_in(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &[(u16, Vec<u8>)],
    ) -> Result<(Vec<Done>, Vec<Transmit>), Divergence> {
        self.reclaim(now)?;
        let may_refresh = from == Side::Inside || self.config.inbound_refresh;
        let before: Vec<MappingInfo> =
            if may_refresh { Vec::new() } else { self.engine.mappings().collect() };
        let explanation = explained::explain(&self.engine, now, from, packets);
        let counted = self.engine.counters().packets;
        let (results, made) = self.run_engine(now, from, packets)?;
        if let (Some(explanation), Some(done)) = (explanation, results.first()) {
            let after = &self.engine.counters().packets;
            let alone = (results.len() == 1).then_some([&counted, after]);
            explained::check(&explanation, &packets[0].1, done, alone)?;
        }
        if !may_refresh {
            let after: Vec<MappingInfo> = self.engine.mappings().collect();
            invariants::not_refreshed(&before, &after)?;
        }
        let choices = choice::Choices::of(&self.engine, from, packets);
        self.model.hint_servers(self.engine.sessions());
        let mut expected_all = Effects::default();
        for (index, (packet, result)) in packets.iter().zip(&results).enumerate() {
            let (realm, bytes) = packet;
            // A batch with an earlier time is counted once (1.1).
            let now = if index == 0 { now } else { now.max(self.model.now()) };
            let choice = choices.choice(&self.model, packet);
            self.model.hint_verdict(result.verdict);
            let expected = self.model.process_in(now, from, *realm, bytes, choice);
            let what =
                |what: &str| format!("{what} of packet {index} from {from:?} {:?}", Hex(bytes));
            legal(&what("external endpoint"), &expected.made)?;
            same(&what("verdict"), &result.verdict, &expected.verdict)?;
            if !matches!(expected.verdict, Verdict::Drop(_)) {
                same(&what("bytes"), &Hex(&result.bytes), &Hex(&expected.bytes))?;
                if matches!(expected.verdict, Verdict::Forward(Side::Inside)) {
                    same(&what("realm"), &result.realm, &expected.realm)?;
                }
                let tcp_mss = self.config.tcp_mss;
                invariants::permitted_change(bytes, &result.bytes, result.verdict, tcp_mss)
                    .map_err(|wrong| format!("{}: {wrong}", what("bytes")))?;
            }
            expected_all.events.extend(expected.made.events);
            expected_all.transmits.extend(expected.made.transmits);
        }
        same("events of process", &made.events, &expected_all.events)?;
        same("packets of process", &made.transmits, &expected_all.transmits)?;
        same("counters", self.engine.counters(), self.model.counters())?;
        let dropped = results.iter().filter(|done| matches!(done.verdict, Verdict::Drop(_)));
        if made.transmits.len() > dropped.count() {
            return Err("more packets were answered than were dropped".into());
        }
        Ok((results, made.transmits))
    }

    fn run_engine(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &[(u16, Vec<u8>)],
    ) -> Result<(Vec<Done>, Effects), Divergence> {
        // Headroom of varying size, with a pattern that must survive.
        let headroom = |index: usize| index % 7 * 3;
        let mut buffers: Vec<Vec<u8>> = packets
            .iter()
            .enumerate()
            .map(|(index, (_, bytes))| [&vec![0xa5; headroom(index)][..], bytes].concat())
            .collect();
        let mut views: Vec<Packet<'_>> = buffers
            .iter_mut()
            .zip(packets)
            .enumerate()
            .map(|(index, (buffer, (realm, _)))| {
                Packet::new(buffer, headroom(index)).in_realm(*realm)
            })
            .collect();
        let mut verdicts = vec![Verdict::Held; packets.len()];
        self.engine.process(now, from, &mut views, &mut verdicts);
        let results = views
            .iter()
            .zip(&verdicts)
            .map(|(view, verdict)| Done {
                verdict: *verdict,
                bytes: view.bytes().to_vec(),
                realm: view.realm(),
            })
            .collect();
        if buffers
            .iter()
            .enumerate()
            .any(|(index, b)| b[..headroom(index)].iter().any(|b| *b != 0xa5))
        {
            return Err("bytes before a packet changed".into());
        }
        let mut made = Effects::default();
        self.drain(&mut made)?;
        Ok((results, made))
    }

    /// Takes the engine's events and packets.
    fn drain(&mut self, made: &mut Effects) -> Result<(), Divergence> {
        while let Some(event) = self.engine.poll_event() {
            made.events.push(event);
        }
        while let Some((time, side, len)) = self.engine.poll_transmit(&mut self.buffer) {
            let bytes = without_free_fields(&self.buffer[..len])?;
            let realm = self.engine.transmit_realm();
            made.transmits.push(Transmit { time, side, realm, bytes });
        }
        let in_order = made.events.is_sorted_by_key(|event| event.time);
        if in_order && made.transmits.is_sorted_by_key(|packet| packet.time) {
            Ok(())
        } else {
            Err(format!("not in order of time: {made:?}"))
        }
    }

    /// Compares mappings, sessions and pools, and checks their invariants.
    ///
    /// # Errors
    /// When the states differ.
    pub fn check_state(&self) -> Result<(), Divergence> {
        let mut mappings: Vec<MappingInfo> = self.engine.mappings().collect();
        let mut sessions: Vec<SessionInfo> = self.engine.sessions().collect();
        for mapping in &mut mappings {
            mapping.expires = mapping.expires.map(tick);
        }
        for session in &mut sessions {
            session.expires = tick(session.expires);
        }
        let (mut expected, mut expected_sessions) = (self.model.mappings(), self.model.sessions());
        let order = |id: &MappingId| (id.protocol, id.realm, id.internal, id.external);
        // Several mappings of a protocol without ports may differ only in their counts.
        let order_mappings = |one: &MappingInfo| {
            (order(&one.id), one.expires, one.sessions, one.packets_out, one.packets_in)
        };
        mappings.sort_by_key(order_mappings);
        expected.sort_by_key(order_mappings);
        sessions.sort_by_key(|session| (order(&session.mapping), session.remote));
        expected_sessions.sort_by_key(|session| (order(&session.mapping), session.remote));
        for (mapping, expected) in mappings.iter_mut().zip(&expected) {
            // The engine gives this time in ticks.
            if mapping.id == expected.id && mapping.created <= self.model.now() {
                mapping.created = expected.created;
            }
        }
        same_lists("mappings", &mappings, &expected)?;
        same_lists("sessions", &sessions, &expected_sessions)?;
        for pool in 0..self.config.pools.len() {
            let own = self.model.addresses_of(pool).collect();
            let held = self.engine.pool_held(pool).map(u64::from);
            for (protocol, held) in [TCP, UDP, ICMP, DCCP].into_iter().zip(held) {
                let usage = self.engine.pool_usage(pool, protocol);
                // Ports may be held that the pool does not have any more.
                if held < usage.held || held > usage.held && !self.changed.pools {
                    return Err(format!("pool {pool} counts {held} held ports, has {usage:?}"));
                }
                same("pool usage", &usage, &self.model.pool_usage(pool, protocol))?;
                let ports = self.config.pools[pool].ports;
                invariants::pool(pool, ports, &own, protocol, usage, &mappings)?;
            }
        }
        invariants::state(&self.config, self.changed, &mappings, &sessions)
    }
}
