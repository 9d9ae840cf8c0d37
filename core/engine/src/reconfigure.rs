//! Replacement of the configuration at run time (section 14 of the specification).
//!
//! A [`Reconfiguration`] is made apart, in another thread if need be: it contains everything that
//! is large or has to be checked. [`Engine::reconfigure`] puts it in force between two batches,
//! completely or not at all. The time of the call does not depend on the number of mappings. Each
//! mapping is checked later: a packet for the mapping triggers its check, and [`Engine::advance`]
//! checks the others, some at a time (the sweep). One bit of a mapping, its epoch, says whether it
//! has been checked. So the next reconfiguration waits until all mappings have been checked.
//!
//! Another bit says whether the packets of a mapping's first session need no further look at the
//! rules. The bit is computed when the mapping is checked, and when its first session changes.

mod differences;
mod permits;
mod statics;
mod sweep;

use crate::class::Classes;
use crate::config::Config;
use crate::config::realms::without_rules;
use crate::endpoint::{AddressPort, External, Internal};
use crate::engine::Engine;
use crate::explicit::Holds;
use crate::external::{BlockConflict, Pin, PoolChange, pins, report_only};
use crate::host::{Grouping, Host};
use crate::near::Octets;
use crate::random::HashKey;
use crate::realms::Realms;
use crate::respond::longest_inside;
use crate::rules::{RuleSet, Ruling};
use crate::statics::static_hosts;
use crate::timeouts::Timers;
use crate::{ConfigError, MappingId};
use alloc::format;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
pub use differences::restart_keys;
use differences::{before, different_keys, same_sets};
use permits::Asked;
pub(crate) use permits::Permits;
use statics::StaticChange;
pub(crate) use sweep::{Checked, Sweep};

/// Slots of the table that one call of [`Engine::review`] looks at.
const SLOTS_A_CALL: u32 = 512;

/// Reason for the removal of a mapping after a change of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Departure {
    /// The mapping's host is no subscriber, and no rule translates any of its sessions.
    NotSubscriber,
    /// The mapping's external endpoint is in no pool any more, or belongs to another subscriber
    /// there.
    Pool,
    /// A static mapping has the mapping's internal or external endpoint.
    Displaced,
    /// The mapping is static, and the configuration no longer has it.
    Static,
}

impl Departure {
    /// All reasons, in order.
    pub const ALL: [Self; 4] = [Self::NotSubscriber, Self::Pool, Self::Displaced, Self::Static];

    /// The reason's name in JSON and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotSubscriber => "not_subscriber",
            Self::Pool => "pool",
            Self::Displaced => "displaced",
            Self::Static => "static",
        }
    }
}

/// Error of a configuration that cannot be put in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconfigureError {
    /// Mappings are still being checked after the last reconfiguration: let time pass.
    Unsettled,
    /// Only a restart changes these keys.
    Restart(Vec<&'static str>),
    /// The configuration contradicts itself.
    Config(ConfigError),
    /// A forwarded port is in a block that its host cannot have now.
    Block(BlockConflict),
}

/// A mapping that would be removed, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The mapping.
    pub mapping: MappingId,
    /// The reason.
    pub why: Departure,
}

/// A configuration that is ready to be put in force.
#[derive(Clone, Debug)]
pub struct Reconfiguration {
    /// The configuration with its pools in the engine's numbering, and without its rules.
    config: Config,
    pools: Option<PoolChange>,
    rules: RuleSet,
    realms: Realms,
    timeouts: Timers,
    classes: Classes,
    permits: Permits,
    static_hosts: Vec<Host>,
    statics: StaticChange,
    pins: Vec<Pin>,
    /// Room for requested mappings, if there was none.
    holds: Option<Holds>,
    /// Longest ICMP errors towards each realm, bytes.
    longest_inside: Vec<usize>,
    /// Keys that only a restart changes.
    restart: Vec<&'static str>,
}

impl Reconfiguration {
    /// Makes all parts that need no engine. `in_force` is the configuration of the engine, with the
    /// pools and realms of [`Engine::config`].
    ///
    /// # Errors
    /// [`ConfigError`] names the contradiction in the new configuration.
    pub fn new(in_force: &Config, new: &Config) -> Result<Self, ConfigError> {
        let new = &new.in_numbers_of(in_force);
        let pools = PoolChange::new(in_force, new)?;
        let config = pools.config();
        let rules = RuleSet::new(&config.rules)?;
        let realms = Realms::new(config, &rules)?;
        let has = |pool: usize, address| config.pools[pool].has(address);
        let room = config.limits.explicit_mappings as usize;
        let has_new_room = in_force.limits.explicit_mappings == 0 && room > 0;
        for rules in core::iter::once(&rules).chain(realms.further_rules()) {
            rules.check(config, has)?;
        }
        Ok(Self {
            rules,
            realms,
            timeouts: Timers::new(config),
            classes: Classes::new(config),
            permits: Permits::new(in_force, config),
            static_hosts: static_hosts(config),
            statics: StaticChange::new(in_force, config),
            pins: pins(config)?,
            // The holds in force keep their key and their grouping.
            holds: has_new_room
                .then(|| Holds::new(room, Grouping::NONE, HashKey::from_words([0; 3]))),
            longest_inside: longest_inside(config),
            restart: different_keys(in_force, config),
            config: without_rules(config),
            pools: Some(pools),
        })
    }
}

impl Reconfiguration {
    /// The configuration with its pools and realms in the engine's numbering, and without its
    /// rules.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Makes this the configuration of one of several engines: the engine reports blocks of
    /// forwarded ports only of the hosts that `has` names.
    pub fn divide(&mut self, has: impl Fn(u16, Ipv4Addr) -> bool) {
        report_only(&mut self.pins, has);
    }
}

/// The replaced configuration. It is large: drop it in another thread.
#[derive(Debug)]
pub struct Superseded {
    _config: Config,
    _rules: RuleSet,
    _realms: Realms,
    _permits: Option<Permits>,
    _classes: Classes,
    _timeouts: Timers,
    _static_hosts: Vec<Host>,
    _holds: Option<Holds>,
    _longest_inside: Vec<usize>,
}

/// Number of mappings that stay and go, and the first mappings that go.
#[derive(Clone, Debug, Default)]
pub struct Review {
    next: u32,
    most: usize,
    /// Mappings that stay.
    pub stay: u64,
    /// Mappings that go, by [`Departure`].
    pub go: [u64; Departure::ALL.len()],
    /// The first mappings that go.
    pub named: Vec<Leaving>,
}

impl Review {
    /// Makes a review that names at most `most` mappings.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }
}

impl Engine {
    /// Begins a change to another configuration. [`Engine::advance`] then prepares the pools until
    /// [`Engine::is_prepared`].
    ///
    /// # Errors
    /// [`ReconfigureError`]. Nothing has changed then.
    pub fn prepare_configuration(
        &mut self,
        new: &mut Reconfiguration,
    ) -> Result<(), ReconfigureError> {
        self.check_configuration(new)?;
        self.begin(new)
    }

    /// Begins a change to a configuration that [`Engine::check_configuration`] has permitted in
    /// every engine that shares the pools. A subscriber that got the block of a forwarded port
    /// since then loses the block.
    ///
    /// # Errors
    /// [`ReconfigureError`], never because of a block. Nothing has changed then.
    pub fn prepare_checked(&mut self, new: &mut Reconfiguration) -> Result<(), ReconfigureError> {
        self.check_settings(new)?;
        self.begin(new)
    }

    /// Begins a change that has been checked.
    fn begin(&mut self, new: &mut Reconfiguration) -> Result<(), ReconfigureError> {
        let pools = new.pools.take().expect("a configuration is prepared once");
        self.prepare_pools(pools).map_err(ReconfigureError::Config)
    }

    /// Checks that another configuration can be put in force.
    ///
    /// # Errors
    /// [`ReconfigureError`].
    pub fn check_configuration(&self, new: &Reconfiguration) -> Result<(), ReconfigureError> {
        self.check_settings(new)?;
        self.check_blocks(new)
    }

    /// Checks what packets do not change.
    fn check_settings(&self, new: &Reconfiguration) -> Result<(), ReconfigureError> {
        if !self.is_settled() {
            return Err(ReconfigureError::Unsettled);
        }
        if !new.restart.is_empty() {
            return Err(ReconfigureError::Restart(new.restart.clone()));
        }
        let (count, room) = (new.statics.count, self.table.room_for_statics());
        if count > room {
            let message = format!(
                "static: {count} mappings, of those there were and of new ones, are more than the \
                 {room} that there is room for since the start; restart"
            );
            return Err(ReconfigureError::Config(ConfigError { message }));
        }
        let (count, room) = (new.config.limits.explicit_mappings, self.holds.room());
        if room > 0 && count as usize > room {
            let message = format!(
                "pcp.mappings: {count} are more than the {room} that there is room for since \
                 mappings could first be requested; restart"
            );
            return Err(ReconfigureError::Config(ConfigError { message }));
        }
        let pools = new.pools.as_ref().expect("a configuration is prepared once");
        self.external.check(pools).map_err(ReconfigureError::Config)
    }

    /// Checks that the hosts of forwarded ports can have the blocks of these ports now.
    ///
    /// # Errors
    /// [`ReconfigureError::Block`].
    pub fn check_blocks(&self, new: &Reconfiguration) -> Result<(), ReconfigureError> {
        let pools = new.pools.as_ref().expect("a configuration is prepared once");
        self.external.check_pins(&new.pins, pools).map_err(ReconfigureError::Block)
    }

    /// True if the prepared configuration can be put in force now.
    pub fn is_prepared(&self) -> bool {
        self.pools_prepared()
    }

    /// Puts a prepared configuration in force, all of it at once. Mappings that it does not allow
    /// serve no packet from now on. Calls of [`Engine::advance`] remove them.
    ///
    /// # Panics
    /// When the configuration is not prepared.
    pub fn reconfigure(&mut self, new: Reconfiguration) -> Superseded {
        let Reconfiguration {
            config,
            rules,
            realms,
            timeouts,
            classes,
            permits,
            static_hosts,
            statics,
            pins,
            holds,
            longest_inside,
            ..
        } = new;
        let sets = same_sets(&self.config.timeout_sets, &config.timeout_sets);
        let classes = self.set_limits(classes, &config);
        let timeouts = self.set_timeouts(timeouts, &config);
        let per_second = config.limits.icmp_errors_per_second;
        let longest_inside = self.responder.renew(per_second, longest_inside);
        self.external.set_choice(config.pooling, config.port_parity);
        let superseded = Superseded {
            _config: core::mem::replace(&mut self.config, config),
            _rules: core::mem::replace(&mut self.rules, rules),
            _realms: self.replace_realms(realms),
            _static_hosts: core::mem::replace(&mut self.static_hosts, static_hosts),
            _permits: self.sweep.permits.take(),
            _classes: classes,
            _timeouts: timeouts,
            _holds: holds.map(|holds| self.holds.take_room(holds)),
            _longest_inside: longest_inside,
        };
        self.near = Octets::near(&self.config);
        self.may_be_short = true;
        self.exchange_pools();
        self.begin_sweep(permits);
        self.sweep.sets = sets;
        self.change_pins(pins);
        self.change_statics(statics);
        superseded
    }

    /// Replaces the rules, and returns the old rules. They are large: drop them in another thread.
    /// The time of the call depends on the number of different addresses that rules translate to,
    /// not on the number of rules. Mappings are checked as after [`Engine::reconfigure`].
    ///
    /// # Errors
    /// [`ConfigError`] when the rules name a pool that does not exist, or an address that its pool
    /// does not have, or when mappings are still being checked. The old rules then stay in force.
    pub fn replace_rules(&mut self, rules: RuleSet) -> Result<RuleSet, ConfigError> {
        self.replace_rules_of(0, rules)
    }

    /// Checks that these rules can be put in force.
    pub(crate) fn check_rules(&self, rules: &RuleSet) -> Result<(), ConfigError> {
        rules.check(&self.config, |pool, address| self.external.has(pool, address))?;
        if !self.is_settled() {
            let message = "mappings are still being asked whether they may stay: let time pass";
            return Err(ConfigError { message: message.into() });
        }
        Ok(())
    }

    /// Starts a check of every mapping after a change of the rules.
    pub(crate) fn ask_anew(&mut self) {
        let permits = Permits::new(&self.config, &self.config);
        self.begin_sweep(permits);
        self.sweep.sets = core::array::from_fn(|number| number as u8);
    }

    fn set_limits(&mut self, mut classes: Classes, config: &Config) -> Classes {
        let limits = &config.limits;
        self.further_each = self.table.further_each(limits);
        classes.go_on(&self.subscribers.classes, before(&self.config.classes, &config.classes));
        self.subscribers.replace_classes(classes)
    }

    fn set_timeouts(&mut self, timeouts: Timers, config: &Config) -> Timers {
        self.external.set_hold(timeouts.hold_ticks);
        self.fragments.set_timeout(config.timeouts.fragment);
        self.fragments.set_most(config.limits.fragments_per_datagram);
        core::mem::replace(&mut self.timeouts, timeouts)
    }

    // ---- the sweep ----

    /// True if every mapping has been checked since the last reconfiguration.
    pub fn is_settled(&self) -> bool {
        self.sweep.is_done() && self.pools_settled()
    }

    /// Number of mappings that have been checked since the last reconfiguration and stayed, and
    /// number removed, by [`Departure`].
    pub fn departed(&self) -> (u64, [u64; Departure::ALL.len()]) {
        (self.sweep.stayed, self.sweep.removed)
    }

    /// Reason why a mapping may not stay, by the rules of its realm. `pools_allow` decides whether
    /// its external endpoint, of the address with an index, still belongs to its subscriber.
    fn judge(
        &self,
        permits: &Permits,
        rules: &RuleSet,
        slot: u32,
        pools_allow: impl FnOnce(&Asked, u32) -> bool,
    ) -> Option<Departure> {
        let mapping = self.table.mapping(slot);
        let External { index, port } = mapping.external();
        let asked = Asked {
            protocol: mapping.protocol,
            internal: mapping.internal(),
            external: AddressPort::new(self.external.address(index), port),
            is_static: mapping.is_static(),
            is_permanent: mapping.is_permanent(),
            is_server: mapping.is_permanent() && mapping.is_static() && mapping.shares_external(),
        };
        let remotes = self.table.sessions(slot).map(|session| {
            let session = self.table.session(session);
            let remote = session.remote();
            // The remote endpoint as seen from inside.
            if mapping.is_twice() {
                self.twice.seen(slot, remote).unwrap_or(remote)
            } else {
                remote
            }
        });
        // A hold for all remote endpoints counts as a session with 0.0.0.0, port 0, as in the
        // request.
        let remotes = remotes.chain(mapping.is_explicit().then_some(AddressPort::default()));
        let why = permits.judge(rules, &asked, remotes);
        why.or_else(|| {
            let stays = asked.is_static || pools_allow(&asked, index);
            (!stays).then_some(Departure::Pool)
        })
    }

    /// True if rules, the realm's network and its routes translate every packet between a mapping's
    /// internal endpoint and the remote endpoint of its first session. False if some packet would
    /// be dropped, forwarded untranslated or hairpinned, or may be of a control flow.
    pub(crate) fn first_answers(&self, slot: u32) -> bool {
        if self.is_odd(slot) {
            return false;
        }
        let mapping = self.table.mapping(slot);
        let Internal { host, port } = mapping.internal();
        let remote = mapping.first.remote();
        let realm = host.realm();
        let is_barred = |end| self.is_broadcast(Some(realm), end) || self.is_ours(Some(realm), end);
        if is_barred(host.address())
            || is_barred(remote.address)
            || self.is_inside(realm, remote.address)
            || self.is_routed_inside(realm, remote.address)
        {
            return false;
        }
        let rules = self.rules_of(realm);
        if rules.is_empty() {
            return true;
        }
        match rules.find(AddressPort::new(host.address(), port), remote) {
            Some(Ruling::Snat(_)) => true,
            Some(Ruling::Bypass | Ruling::Drop) => false,
            None => self.is_subscriber(host),
        }
    }

    // ---- review of a configuration ----

    /// Checks some of the mappings against a configuration that is not in force, and counts the
    /// results. Returns `false` if all have been checked. Mappings that are made or removed
    /// meanwhile may be missing.
    pub fn review(&self, new: &Reconfiguration, review: &mut Review) -> bool {
        let end = self.table.extent();
        let until = end.min(review.next.saturating_add(SLOTS_A_CALL));
        for slot in review.next..until {
            if !self.table.is_live(slot) {
                continue;
            }
            let permits = &new.permits;
            let realm = self.table.mapping(slot).host().realm();
            let rules = new.realms.rules_of(&new.rules, realm);
            match self.judge(permits, rules, slot, |asked, _| permits.keeps_end(asked)) {
                None => review.stay += 1,
                Some(why) => {
                    review.go[why as usize] += 1;
                    if review.named.len() < review.most {
                        let mapping = self.name_of(self.table.mapping(slot));
                        review.named.push(Leaving { mapping, why });
                    }
                }
            }
        }
        review.next = until;
        until < end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AddressRange, Match, PoolConfig, Prefix, Rule, RuleAction};
    use crate::{Packet, Side, Timestamp, Verdict};
    use alloc::vec;
    use natgate_wire::{Ipv4, protocol};

    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);

    fn engine() -> Engine {
        let address = Ipv4Addr::new(203, 0, 113, 1);
        let pool = PoolConfig {
            addresses: vec![AddressRange { first: address, last: address }],
            ..PoolConfig::default()
        };
        let config = Config { pools: vec![pool], ..Config::default() };
        Engine::new(&config, [1; 32], Timestamp(0)).unwrap()
    }

    /// Sends a datagram out.
    fn send(engine: &mut Engine) {
        let mut bytes = [0; 28];
        let mut packet = Ipv4::init(&mut bytes[..], 20);
        packet.set_total_len(28);
        packet.set_ttl(64);
        packet.set_protocol(protocol::UDP);
        packet.set_source(HOST.to_bits());
        packet.set_destination(Ipv4Addr::new(198, 51, 100, 7).to_bits());
        packet.fill_checksum();
        bytes[20..26].copy_from_slice(&[15, 160, 0, 53, 0, 8]);
        let mut verdict = [Verdict::Held];
        engine.process(Timestamp(0), Side::Inside, &mut [Packet::new(&mut bytes, 0)], &mut verdict);
        assert_eq!(verdict, [Verdict::Forward(Side::Outside)]);
    }

    /// True if packets of the only mapping go the quick way.
    fn is_quick(engine: &Engine) -> bool {
        let slot = engine.table.slots().next().expect("a mapping");
        let mapping = engine.table.mapping(slot);
        mapping.doubts(engine.table.epoch(), mapping.protocol) == 0
    }

    #[test]
    fn a_session_is_asked_once_and_goes_on_the_quick_way() {
        let mut engine = engine();
        send(&mut engine);
        assert!(is_quick(&engine));
        let rule = |address: Ipv4Addr, action| {
            Rule::new(Match::Source(Prefix::new(address, 32), 0), action)
        };
        let other = rule(Ipv4Addr::new(10, 0, 0, 6), RuleAction::Drop);
        engine.replace_rules(RuleSet::new(&[other]).unwrap()).unwrap();
        assert!(!is_quick(&engine));
        send(&mut engine);
        assert!(is_quick(&engine));
        while engine.advance(Timestamp(0)) {}
        let own = rule(HOST, RuleAction::Bypass);
        engine.replace_rules(RuleSet::new(&[own]).unwrap()).unwrap();
        while engine.advance(Timestamp(0)) {}
        // The sweep checks the mapping, and its packets are not translated any more.
        assert!(!is_quick(&engine));
        engine.replace_rules(RuleSet::new(&[]).unwrap()).unwrap();
        while engine.advance(Timestamp(0)) {}
        assert!(is_quick(&engine));
    }
}
