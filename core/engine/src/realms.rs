//! Realms: internal networks that may use the same addresses, each with subscribers, rules and a
//! place of the gateway's in it (RFC 2663 section 2.1).
//!
//! Realm 0 is what the configuration says outside of [`Config::realms`], and all that plain
//! configurations have: what is asked of every packet is asked of it without a detour. What is
//! asked of all realms together, because a packet from outside does not tell to which it goes, is
//! worked out when realms or rules change.

mod change;

use crate::config::{AddressRange, Config, Prefix, RealmConfig, SideConfig};
use crate::engine::Engine;
use crate::external::ExternalPorts;
use crate::host::Host;
use crate::respond::DEFAULT_MTU;
use crate::rules::RuleSet;
use crate::{ConfigError, DropReason, Side};
use alloc::format;
use alloc::vec::Vec;
use change::Closing;
use core::ops::RangeInclusive;

/// The least MTU that a link of IPv4 may have, bytes (RFC 791 section 3.2).
const LEAST_MTU: u16 = 68;

impl Config {
    /// Most realms, number 0 among them.
    pub const MOST_REALMS: usize = Host::REALMS as usize;

    /// What is said of a realm other than number 0.
    fn realm(&self, realm: u16) -> Option<&RealmConfig> {
        self.realms.get(usize::from(realm).checked_sub(1)?)
    }

    /// The numbers of all realms.
    pub fn realm_numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.all_numbers().filter(|realm| self.has_realm(*realm))
    }

    /// The numbers of all realms in the order in which they are asked whether a packet from outside
    /// bypasses translation.
    pub fn realms_in_order(&self) -> impl Iterator<Item = u16> + use<> {
        let mut numbers: Vec<u16> = self.realm_numbers().collect();
        numbers.sort_by_key(|number| self.realm(*number).map_or(0, |realm| realm.order));
        // Number 0 has no order, and was the first.
        numbers.into_iter()
    }

    /// The same, and those of realms that are gone.
    pub(crate) fn all_numbers(&self) -> RangeInclusive<u16> {
        0..=self.realms.len() as u16
    }

    /// Whether there is such a realm.
    pub fn has_realm(&self, realm: u16) -> bool {
        realm == 0 || self.realm(realm).is_some_and(|realm| !realm.gone)
    }

    /// Whether there is a realm beside number 0.
    pub fn has_realms(&self) -> bool {
        self.realms.iter().any(|realm| !realm.gone)
    }

    /// The gateway's place in a realm.
    pub fn inside_of(&self, realm: u16) -> &SideConfig {
        self.realm(realm).map_or(&self.inside, |realm| &realm.inside)
    }

    /// Prefixes of a realm that are translated.
    pub fn subscribers_of(&self, realm: u16) -> &[Prefix] {
        self.realm(realm).map_or(&self.subscribers, |realm| &realm.subscribers)
    }

    /// Addresses behind routers in a realm, in order and apart.
    pub fn inside_routes_of(&self, realm: u16) -> &[AddressRange] {
        self.realm(realm).map_or(&self.inside_routes, |realm| &realm.inside_routes)
    }

    /// Index of the pool that is used for a realm without a rule.
    pub fn default_pool_of(&self, realm: u16) -> usize {
        self.realm(realm).map_or(self.default_pool, |realm| realm.default_pool)
    }

    /// Whether external endpoints of one realm may be reached from another.
    pub fn may_hairpin(&self, from: u16, to: u16) -> bool {
        let to_others = self.realm(from).map_or(&self.hairpin_to, |realm| &realm.hairpin_to);
        from == to || to_others.contains(&to)
    }
}

/// What the engine keeps of realms beside their configuration.
#[derive(Clone, Debug)]
pub(crate) struct Realms {
    /// The rules of realms 1 and up.
    rules: Vec<RuleSet>,
    /// Of all realms: those with rules that bypass translation or drop, in order; whether any has a
    /// rule, one that looks at a port.
    plain: Vec<u16>,
    order: Vec<u16>,
    any_rules: bool,
    any_by_port: bool,
    any_destinations: bool,
    /// Whether there is no other than number 0.
    is_alone: bool,
    /// Largest packet that the outside takes, and each realm's inside, bytes.
    outside_mtu: u16,
    inside_mtus: Vec<u16>,
    /// Largest packets: that any realm takes; and, by realm, that all those take whom packets that
    /// turn round there may be for.
    least_mtu: u16,
    hairpin_mtus: Vec<u16>,
    /// The realm that the packet in hand leaves to, if it leaves by the inside.
    pub(crate) leaving: u16,
    /// The realm of the packet that was handed out last.
    pub(crate) handed_out: u16,
    /// Those that are gone and have left something.
    closing: Vec<Closing>,
}

impl Realms {
    /// `zero` are the rules of realm 0.
    pub(crate) fn new(config: &Config, zero: &RuleSet) -> Result<Self, ConfigError> {
        let rules: Result<Vec<_>, _> =
            config.realms.iter().map(|realm| RuleSet::new(&realm.rules)).collect();
        let mtu = |realm| config.inside_of(realm).mtu.unwrap_or(DEFAULT_MTU);
        let inside_mtus: Vec<u16> = config.all_numbers().map(mtu).collect();
        let mut realms = Self {
            rules: rules?,
            plain: Vec::with_capacity(config.realms.len() + 1),
            order: config.realms_in_order().collect(),
            any_rules: false,
            any_by_port: false,
            any_destinations: false,
            is_alone: !config.has_realms(),
            outside_mtu: config.outside.mtu.unwrap_or(DEFAULT_MTU),
            least_mtu: DEFAULT_MTU,
            hairpin_mtus: inside_mtus.clone(),
            inside_mtus,
            leaving: 0,
            handed_out: 0,
            closing: change::closing(config),
        };
        realms.look_at(zero);
        realms.measure(config);
        Ok(realms)
    }

    /// Works out the largest packets that several realms together take.
    fn measure(&mut self, config: &Config) {
        let Self { inside_mtus, hairpin_mtus, .. } = self;
        let mtu = |realm: u16| inside_mtus[usize::from(realm)];
        let near = |from: u16| {
            let met =
                move |to: &u16| config.may_hairpin(from, *to) || config.may_hairpin(*to, from);
            config.realm_numbers().filter(met).map(mtu).min().unwrap_or(DEFAULT_MTU)
        };
        hairpin_mtus.iter_mut().zip(config.all_numbers()).for_each(|(mtu, from)| *mtu = near(from));
        self.least_mtu = config.realm_numbers().map(mtu).min().unwrap_or(DEFAULT_MTU);
    }

    /// Works out what is asked of all rules together.
    pub(crate) fn look_at(&mut self, zero: &RuleSet) {
        let Self { rules, plain, order, .. } = self;
        let all = || core::iter::once(zero).chain(rules.iter());
        plain.clear();
        plain.extend(order.iter().copied().filter(|&realm| {
            let rules = all().nth(realm.into()).expect("every realm has rules");
            rules.drops() || rules.bypasses()
        }));
        self.any_rules = all().any(|rules| !rules.is_empty());
        self.any_by_port = all().any(RuleSet::by_port);
        self.any_destinations = all().any(RuleSet::translates_destinations);
    }

    /// The rules of a realm; `zero` are those of number 0.
    #[inline(always)]
    pub(crate) fn rules_of<'a>(&'a self, zero: &'a RuleSet, realm: u16) -> &'a RuleSet {
        match usize::from(realm).checked_sub(1) {
            None => zero,
            Some(place) => &self.rules[place],
        }
    }

    /// The rules of the realms beside number 0.
    pub(crate) fn further_rules(&self) -> &[RuleSet] {
        &self.rules
    }

    /// Whether any realm has rules.
    #[inline(always)]
    pub(crate) fn any_rules(&self) -> bool {
        self.any_rules
    }

    /// Whether a rule of any realm looks at a port.
    #[inline(always)]
    pub(crate) fn any_by_port(&self) -> bool {
        self.any_by_port
    }

    /// Whether a rule of any realm translates destinations.
    #[inline(always)]
    pub(crate) fn any_destinations(&self) -> bool {
        self.any_destinations
    }

    /// The realms whose rules may bypass translation or drop, in order: by their place.
    pub(crate) fn plain(&self, place: usize) -> Option<u16> {
        self.plain.get(place).copied()
    }

    /// Largest packet that every realm takes, bytes.
    #[inline(always)]
    pub(crate) fn least_mtu(&self) -> u16 {
        self.least_mtu
    }
}

impl Engine {
    /// The rules for packets of a realm.
    #[inline(always)]
    pub(crate) fn rules_of(&self, realm: u16) -> &RuleSet {
        self.realms.rules_of(&self.rules, realm)
    }

    /// Puts other rules in the place of those of a realm, as [`Engine::replace_rules`] does.
    ///
    /// # Errors
    /// As there, and when there is no such realm.
    pub fn replace_rules_of(&mut self, realm: u16, rules: RuleSet) -> Result<RuleSet, ConfigError> {
        let place = usize::from(realm).checked_sub(1);
        if !self.has_realm(realm) {
            return Err(ConfigError { message: format!("there is no realm {realm}") });
        }
        self.check_rules(&rules)?;
        let place = place.map_or(&mut self.rules, |place| &mut self.realms.rules[place]);
        let before = core::mem::replace(place, rules);
        self.realms.look_at(&self.rules);
        self.ask_anew();
        Ok(before)
    }

    /// Puts other rules and relations in the place of those of the realms beside number 0, whose
    /// rules are in force already, and hands back the former.
    pub(crate) fn replace_realms(&mut self, mut realms: Realms) -> Realms {
        realms.leaving = self.realms.leaving;
        realms.handed_out = self.realms.handed_out;
        realms.go_on(&self.realms, self.last_of_today());
        core::mem::replace(&mut self.realms, realms)
    }

    /// The number of the realm that the packet which [`Engine::poll_transmit`] gave last is to be
    /// sent to, if it leaves by the inside.
    pub fn transmit_realm(&self) -> u16 {
        self.realms.handed_out
    }

    /// Whether there is such a realm.
    pub(crate) fn has_realm(&self, realm: u16) -> bool {
        self.config.has_realm(realm)
    }

    /// Whether an address is the gateway's own, seen from a realm.
    #[inline]
    pub(crate) fn is_own(&self, realm: u16, address: u32) -> bool {
        let own = [self.config.inside_of(realm).address, self.config.outside.address];
        own.iter().flatten().any(|own| own.to_bits() == address)
    }

    /// Whether an address is of the network that is connected in a realm.
    #[inline]
    pub(crate) fn is_inside(&self, realm: u16, address: u32) -> bool {
        self.config.inside_of(realm).network.is_some_and(|network| network.contains(address))
    }

    /// Whether an address is behind a router in a realm: packets from there go to it untranslated.
    #[inline]
    pub(crate) fn is_routed_inside(&self, realm: u16, address: u32) -> bool {
        let ranges = self.config.inside_routes_of(realm);
        if ranges.is_empty() {
            return false;
        }
        let after = ranges.partition_point(|range| range.first.to_bits() <= address);
        after > 0 && address <= ranges[after - 1].last.to_bits()
    }

    /// Whether there is no realm but number 0, to which packets from outside must then go.
    pub(crate) fn is_plain(&self) -> bool {
        self.realms.is_alone
    }

    /// Whether nobody may send from an address because it is ours, seen from a realm or, with
    /// `None`, from outside before it is known which realm is meant.
    pub(crate) fn is_ours(&self, realm: Option<u16>, address: u32) -> bool {
        let own = match realm.or(self.is_plain().then_some(0)) {
            Some(realm) => self.is_own(realm, address),
            None => self.config.outside.address.is_some_and(|own| own.to_bits() == address),
        };
        own || self.external.index(address).is_some()
    }

    /// Whether an address means every host of a network that is connected, seen like that; external
    /// ones do not.
    #[inline]
    pub(crate) fn is_broadcast(&self, realm: Option<u16>, address: u32) -> bool {
        if self.is_plain() {
            return self.broadcasts.contains(&address);
        }
        let [_, _, outside @ ..] = self.broadcasts;
        let in_realm = |realm: u16| {
            let ends = self.config.inside_of(realm).network.and_then(broadcasts_of);
            ends.is_some_and(|ends| ends.contains(&address))
        };
        outside.contains(&address)
            || realm.is_some_and(in_realm) && self.external.index(address).is_none()
    }

    /// Whether a packet from outside that goes to a realm may have this source: it must not be one
    /// of that realm's. Without realms that is asked before.
    pub(crate) fn check_entry(&self, realm: u16, source: u32) -> Result<(), DropReason> {
        if self.is_plain() || !(self.is_inside(realm, source) || self.is_own(realm, source)) {
            return Ok(());
        }
        Err(DropReason::SpoofedSource)
    }

    /// The same of one that bypasses translation, and of its ends.
    pub(crate) fn check_bypass(
        &self,
        realm: u16,
        (source, destination): (u32, u32),
    ) -> Result<(), DropReason> {
        if self.is_broadcast(Some(realm), source) {
            return Err(DropReason::MartianSource);
        }
        if self.is_broadcast(Some(realm), destination) {
            return Err(DropReason::MartianDestination);
        }
        if self.is_own(realm, source) {
            return Err(DropReason::SpoofedSource);
        }
        Ok(())
    }

    /// Sets the largest packets that links take, bytes: `mtu` is asked for the outside and for the
    /// inside of each realm. They hold until a reconfiguration sets them as it says.
    pub fn set_mtus(&mut self, mtu: impl Fn(Side, u16) -> u16) {
        let Self { realms, responder, config, .. } = self;
        realms.outside_mtu = mtu(Side::Outside, 0).max(LEAST_MTU);
        responder.fit(Side::Outside, 0, realms.outside_mtu);
        for (own, realm) in realms.inside_mtus.iter_mut().zip(config.all_numbers()) {
            *own = mtu(Side::Inside, realm).max(LEAST_MTU);
            responder.fit(Side::Inside, realm, *own);
        }
        realms.measure(config);
    }

    /// Largest packet that the outside takes, bytes.
    #[inline]
    pub(crate) fn outside_mtu(&self) -> u16 {
        self.realms.outside_mtu
    }

    /// Largest packet that a realm takes, bytes.
    pub(crate) fn inside_mtu(&self, realm: u16) -> u16 {
        self.realms.inside_mtus.get(usize::from(realm)).copied().unwrap_or(DEFAULT_MTU)
    }

    /// Largest packet that turns round in a realm, bytes, whoever it is for.
    pub(crate) fn hairpin_mtu(&self, realm: u16) -> u16 {
        self.realms.hairpin_mtus[usize::from(realm)]
    }

    /// Whether a packet that turns round may go from a realm to another. What answers in a session
    /// that is there may go back.
    pub(crate) fn check_realms(
        &self,
        from: u16,
        to: u16,
        in_session: bool,
    ) -> Result<(), DropReason> {
        if from == to {
            return Ok(());
        }
        let answers = in_session && self.config.may_hairpin(to, from);
        match answers || self.config.may_hairpin(from, to) {
            true => Ok(()),
            false => Err(DropReason::OtherRealm),
        }
    }
}

/// The addresses of a network that mean all of its hosts.
pub(crate) fn broadcasts_of(network: Prefix) -> Option<[u32; 2]> {
    (network.len() <= 30).then(|| [network.first(), network.last()])
}

/// The addresses that mean every host of a connected network (the last; the first of old), unless
/// the operator has made them external.
pub(crate) fn broadcasts(config: &Config, external: &ExternalPorts) -> [u32; 4] {
    let ends = [&config.inside, &config.outside]
        .map(|side| side.network.and_then(broadcasts_of).unwrap_or_default());
    let [[a, b], [c, d]] = ends;
    [a, b, c, d].map(|address| if external.index(address).is_some() { 0 } else { address })
}
