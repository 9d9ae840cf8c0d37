//! Drives the engine and the model side by side and says where they part.
//!
//! [`Pair`] gives both the same calls and compares verdicts, bytes, events, packets of their own,
//! counters and, by [`Pair::check_state`], everything that the engine tells of its state.
//! What can be said of the engine without the model is checked apart from it (`invariants`), so
//! that an error that both made would still be seen.

mod choice;
mod explained;
mod fill;
mod invariants;

pub use fill::First;

use crate::realms::replace_rules;
use crate::timers::{StillHeld, tick};
use crate::{Effects, Model, Transmit};
use natgate_engine::{
    Change, Config, ConfigError, Endpoint, Engine, Event, ExplicitError, MapRequest, MappingId,
    MappingInfo, MappingKind, Packet, PeerRequest, PoolChange, PoolConfig, Reconfiguration, Review,
    Rule, RuleAction, RuleSet, SessionInfo, Side, Timestamp, Verdict,
};
use natgate_wire::Ipv4;
use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
use std::collections::HashMap;
use std::fmt::Debug;
use std::net::Ipv4Addr;

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

/// What became of a packet, both agreeing.
#[derive(Clone, Debug)]
pub struct Done {
    /// Its fate.
    pub verdict: Verdict,
    /// Its bytes afterwards, meaningful unless it was dropped.
    pub bytes: Vec<u8>,
    /// The realm that it goes to, if it leaves by the inside.
    pub realm: u16,
}

/// Where engine and model, or engine and invariant, part: a sentence and the two sides.
pub type Divergence = String;

impl Pair {
    /// Both, empty.
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

    /// Lets time pass for both; returns the packets that were made.
    ///
    /// # Errors
    /// Where they part.
    pub fn advance(&mut self, now: Timestamp) -> Result<Vec<Transmit>, Divergence> {
        let mut transmits = Vec::new();
        // Where too many ports are held the engine says which are free, and the model can ask only
        // what is so now; blocks make a difference of when that was.
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

    /// Gives a batch to both; returns what became of each packet, and the packets that were made.
    ///
    /// # Errors
    /// Where they part.
    pub fn process(
        &mut self,
        now: Timestamp,
        from: Side,
        packets: &[Vec<u8>],
    ) -> Result<(Vec<Done>, Vec<Transmit>), Divergence> {
        let packets: Vec<(u16, Vec<u8>)> = packets.iter().map(|bytes| (0, bytes.clone())).collect();
        self.process_in(now, from, &packets)
    }

    /// The same of packets with the realms that they come from, if from inside.
    ///
    /// # Errors
    /// Where they part.
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
            // A batch that comes with an earlier time is counted once (1.1).
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

    /// Asks both for a mapping for all; both must say the same.
    ///
    /// # Errors
    /// Where they part.
    pub fn map(&mut self, now: Timestamp, request: &MapRequest<'_>) -> Result<(), Divergence> {
        self.reclaim(now)?;
        let got = self.engine.map(now, request);
        let choice = got.ok().map(|explicit| explicit.external);
        let expected = self.model.map(now, request, choice);
        same("what was asked for", &got, &expected)?;
        if got == Err(ExplicitError::External) && !request.wanted.strict {
            return Err("a mere wish was refused".into());
        }
        self.asked()
    }

    /// Gives back to both what was asked for.
    ///
    /// # Errors
    /// Where they part.
    pub fn unmap(&mut self, now: Timestamp, of: &MapRequest<'_>) -> Result<(), Divergence> {
        let MapRequest { protocol, realm, internal, nonce, .. } = *of;
        let got = self.engine.unmap(now, protocol, realm, internal, nonce);
        let expected = self.model.unmap(now, protocol, realm, internal, nonce);
        same("what was given back", &got, &expected)?;
        self.asked()
    }

    /// Asks both for a session.
    ///
    /// # Errors
    /// Where they part.
    pub fn peer(&mut self, now: Timestamp, request: &PeerRequest) -> Result<(), Divergence> {
        self.reclaim(now)?;
        let got = self.engine.peer(now, request);
        let choice = got.ok().map(|explicit| explicit.external);
        let expected = self.model.peer(now, request, choice);
        same("the session that was asked for", &got, &expected)?;
        self.asked()
    }

    /// Has unanswered subscribers of both give way, as a batch and a request do first, and all that
    /// have to. What the engine explains of a packet is then what becomes of the packet.
    fn reclaim(&mut self, now: Timestamp) -> Result<(), Divergence> {
        let mut made = Effects::default();
        while self.engine.reclaim(now) {
            self.drain(&mut made)?;
        }
        self.drain(&mut made)?;
        let expected = self.model.reclaim(now);
        same("events of what gives way", &made.events, &expected.events)?;
        same("counters", self.engine.counters(), self.model.counters())
    }

    /// What else a request has brought about.
    fn asked(&mut self) -> Result<(), Divergence> {
        let mut made = Effects::default();
        self.drain(&mut made)?;
        // What is given back may be held.
        let engine = &self.engine;
        self.model.limit_held(Some(&|protocol, end| is_taken(engine, protocol, end)));
        let expected = self.model.take_made();
        legal("what the engine chose", &expected)?;
        same("events of a request", &made.events, &expected.events)?;
        same("packets of a request", &made.transmits, &expected.transmits)
    }

    /// Puts a new engine, which holds the ports that the old one had taken, in its place; and so
    /// with the model.
    ///
    /// # Errors
    /// When the engine refuses the configuration, or a choice of its own was not open.
    pub fn restart(&mut self, seed: [u8; 32]) -> Result<(), Divergence> {
        let old = &self.engine;
        let mut engine = Engine::new(&self.config, seed, self.model.now())
            .map_err(|error| format!("the engine refused the configuration: {}", error.message))?;
        for protocol in [TCP, UDP, ICMP, DCCP] {
            for (address, ports) in taken(old, protocol) {
                engine.hold_ports(address, protocol, &ports);
            }
        }
        self.engine = engine;
        self.changed = invariants::Changed {
            addresses: self.changed.addresses,
            ..invariants::Changed::default()
        };
        let engine = &self.engine;
        let still_held = |protocol, end| is_taken(engine, protocol, end);
        self.model = self.model.restarted(Some(&still_held));
        legal("ports held", &self.model.made)
    }

    /// Puts other rules in the place of those in force, with both.
    ///
    /// # Errors
    /// When the engine refuses them, or where they part.
    pub fn replace_rules(&mut self, rules: &[Rule]) -> Result<(), Divergence> {
        self.replace_rules_of(0, rules)
    }

    /// The same of a realm's rules.
    ///
    /// # Errors
    /// When the engine refuses them.
    pub fn replace_rules_of(&mut self, realm: u16, rules: &[Rule]) -> Result<(), Divergence> {
        // What is due by now happens before.
        self.advance(self.model.now())?;
        RuleSet::new(rules)
            .and_then(|set| self.engine.replace_rules_of(realm, set))
            .map_err(|error| format!("the engine refused the rules: {}", error.message))?;
        let mut config = self.config.clone();
        replace_rules(&mut config, realm, rules);
        self.reconfigured(config, |model, still_held| {
            model.replace_rules_of(realm, rules, Some(still_held))
        })
    }

    /// Puts another configuration in force, with both. What the engine said beforehand of which
    /// mappings would go must come true.
    ///
    /// # Errors
    /// When the engine refuses it, or where they part.
    pub fn reconfigure(&mut self, config: &Config) -> Result<(), Divergence> {
        // What is due by now happens before.
        self.advance(self.model.now())?;
        let config = &config.in_numbers_of(self.engine.config());
        self.model.check_numbers(config)?;
        let refused =
            |error: &dyn Debug| format!("the engine refused the configuration: {error:?}");
        let mut new =
            Reconfiguration::new(self.engine.config(), config).map_err(|error| refused(&error))?;
        let exact = self.engine.draining().all(|one| !one.leaves);
        let mut review = Review::new(usize::MAX);
        while self.engine.review(&new, &mut review) {}
        let mut expected = self.mapping_ids();
        self.engine.prepare_configuration(&mut new).map_err(|error| refused(&error))?;
        while !self.engine.is_prepared() {
            self.engine.advance(self.model.now());
        }
        self.engine.reconfigure(new);
        self.reconfigured(config.clone(), |model, still_held| {
            model.reconfigure(config, Some(still_held))
        })?;
        if !exact {
            return Ok(());
        }
        same("mappings that stay and go", &self.engine.departed(), &(review.stay, review.go))?;
        // Where an external port is shared, mappings may differ in the remote alone: ids are
        // counted.
        for leaving in &review.named {
            *expected.entry(leaving.mapping).or_default() -= 1;
        }
        let there = self.mapping_ids();
        let left = |id| there.get(id).copied().unwrap_or_default();
        match review.named.iter().find(|one| left(&one.mapping) > expected[&one.mapping]) {
            Some(leaving) => Err(format!("{:?} was to go and is there", leaving.mapping)),
            None => Ok(()),
        }
    }

    /// How many of the engine's mappings have each id.
    fn mapping_ids(&self) -> HashMap<MappingId, isize> {
        let mut ids = HashMap::new();
        for mapping in self.engine.mappings() {
            *ids.entry(mapping.id).or_default() += 1;
        }
        ids
    }

    /// Lets both remove what may not stay.
    fn reconfigured(
        &mut self,
        config: Config,
        in_model: impl FnOnce(&mut Model, StillHeld<'_>) -> Effects,
    ) -> Result<(), Divergence> {
        let mut made = Effects::default();
        while self.engine.advance(self.model.now()) {
            self.drain(&mut made)?;
        }
        self.drain(&mut made)?;
        if !self.engine.is_settled() {
            return Err("mappings have not been asked, and nothing is left to do".into());
        }
        let engine = &self.engine;
        let still_held = |protocol, end| is_taken(engine, protocol, end);
        let expected = in_model(&mut self.model, &still_held);
        legal("ports held", &expected)?;
        same("events of a reconfiguration", &by_time(&made.events), &by_time(&expected.events))?;
        same("packets of it", &made.transmits, &expected.transmits)?;
        self.changed.addresses |= chooses(&config) || config.pooling != self.config.pooling;
        self.changed.pools |= config.pools != self.config.pools;
        self.changed.limits |=
            (&config.limits, &config.classes) != (&self.config.limits, &self.config.classes);
        self.config = config;
        Ok(())
    }

    /// Puts other pools in the place of those in force, with both; they must be those by name.
    ///
    /// # Errors
    /// When the engine refuses them, or gives them other numbers.
    pub fn change_pools(&mut self, pools: &[PoolConfig]) -> Result<(), Divergence> {
        let config = Config { pools: pools.to_vec(), ..self.config.clone() };
        let refused =
            |error: ConfigError| format!("the engine refused the pools: {}", error.message);
        let change = PoolChange::new(self.engine.config(), &config).map_err(refused)?;
        let arranged = change.config().clone();
        let names = |config: &Config| -> Vec<String> {
            config.pools.iter().map(|pool| pool.name.clone()).collect()
        };
        same("pools", &names(&arranged), &names(&config))?;
        self.engine.change_pools(change).map_err(refused)?;
        self.model.change_pools(arranged);
        self.config = config;
        self.changed.pools = true;
        Ok(())
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

    /// Takes what the engine has made.
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

    /// Compares mappings, sessions and pools, and checks what must always hold of them.
    ///
    /// # Errors
    /// Where they part.
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
        // Several mappings of a protocol without ports differ in nothing but what they count.
        let order_mappings = |one: &MappingInfo| {
            (order(&one.id), one.expires, one.sessions, one.packets_out, one.packets_in)
        };
        mappings.sort_by_key(order_mappings);
        expected.sort_by_key(order_mappings);
        sessions.sort_by_key(|session| (order(&session.mapping), session.remote));
        expected_sessions.sort_by_key(|session| (order(&session.mapping), session.remote));
        for (mapping, expected) in mappings.iter_mut().zip(&expected) {
            // Told by the engine in ticks.
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
                // Ports may be held that the pool has no more.
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

/// Whether a rule chooses the external address of mappings.
fn chooses(config: &Config) -> bool {
    choose(&config.rules) || config.realms.iter().any(|realm| choose(&realm.rules))
}

fn choose(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| matches!(rule.action, RuleAction::SnatTo(..)))
}

/// The ports that the engine would give to nobody now, a bit each, by external address.
fn taken(engine: &Engine, protocol: u8) -> impl Iterator<Item = (Ipv4Addr, [u64; 1024])> {
    (0..).map_while(move |index| {
        let mut ports = [0; 1024];
        let address = engine.taken_ports(index, protocol, &mut ports)?;
        Some((address, ports))
    })
}

/// Whether the engine would give a port to nobody now.
fn is_taken(engine: &Engine, protocol: u8, end: Endpoint) -> bool {
    let bit = |ports: [u64; 1024]| ports[usize::from(end.port) / 64] >> (end.port % 64) & 1 != 0;
    taken(engine, protocol).any(|(address, ports)| address == end.address && bit(ports))
}

/// An error if the engine made a choice that was not open.
fn legal(what: &str, made: &Effects) -> Result<(), Divergence> {
    match &made.illegal {
        Some(illegal) => Err(format!("{what}: {illegal}")),
        None => Ok(()),
    }
}

/// Events as a multiset for each time (specification, 1.2 and 10): equal if these texts are. Which
/// of several sessions goes first is open, and with it whether the others' mapping is still one
/// that a host has asked for.
fn by_time(events: &[Event]) -> Vec<String> {
    let text = |event: &Event| {
        let mut event = *event;
        if let Change::SessionRemoved(session) = &mut event.change
            && session.mapping.kind == MappingKind::Pcp
        {
            session.mapping.kind = MappingKind::Dynamic;
        }
        (event.time, format!("{event:?}"))
    };
    let mut texts: Vec<(Timestamp, String)> = events.iter().map(text).collect();
    texts.sort();
    texts.into_iter().map(|(_, text)| text).collect()
}

/// A packet that the engine made, without what the specification leaves open.
fn without_free_fields(bytes: &[u8]) -> Result<Vec<u8>, Divergence> {
    let mut bytes = bytes.to_vec();
    let mut ip = match Ipv4::new_checked(&mut bytes[..]) {
        Ok(ip) if ip.checksum_valid() => ip,
        _ => return Err(format!("the engine sent what is no IPv4 packet: {bytes:02x?}")),
    };
    if ip.more_fragments() || ip.fragment_offset() != 0 {
        return Err(format!("the engine sent a fragment: {bytes:02x?}"));
    }
    ip.set_identification(0);
    ip.fill_checksum();
    Ok(bytes)
}

/// Bytes, printed in hexadecimal.
#[derive(PartialEq)]
struct Hex<'b>(&'b [u8]);

impl Debug for Hex<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

fn same<T: PartialEq + Debug>(what: &str, engine: &T, model: &T) -> Result<(), Divergence> {
    if engine == model {
        Ok(())
    } else {
        Err(format!("{what} differ\n engine: {engine:?}\n model:  {model:?}"))
    }
}

/// As [`same`], but prints only the elements that one side alone has.
fn same_lists<T: PartialEq + Debug>(
    what: &str,
    engine: &[T],
    model: &[T],
) -> Result<(), Divergence> {
    if engine == model {
        return Ok(());
    }
    let only = |these: &[T], those: &[T]| {
        let only = these.iter().filter(|one| !those.contains(one));
        only.map(|one| format!("\n  {one:?}")).collect::<String>()
    };
    let (engine, model) = (only(engine, model), only(model, engine));
    Err(format!("{what} differ\n engine alone:{engine}\n model alone:{model}"))
}
