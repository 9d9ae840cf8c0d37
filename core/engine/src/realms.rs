//! Realms: internal networks that may use the same addresses, each with subscribers, rules and an
//! address of the gateway (RFC 2663 section 2.1).
//!
//! Realm 0 is the part of the configuration outside [`Config::realms`], and the only realm of
//! simple configurations. Questions about realm 0 are answered without a detour, because every
//! packet asks them. A packet from outside does not tell its realm, so some questions are about all
//! realms together. Their answers are computed when realms or rules change.

mod change;

use crate::config::{AddressRange, Config, Prefix, RealmConfig, SideConfig};
use crate::engine::Engine;
use crate::external::ExternalPorts;
use crate::host::Host;
use crate::ranges::Ranges;
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
    /// Most realms, realm 0 included.
    pub const MOST_REALMS: usize = Host::REALMS as usize;
    /// Most realms of numbers ([`RealmConfig::host_bits`]).
    pub const MOST_NUMBERED: usize = 2;

    /// The configuration of a realm other than realm 0.
    fn realm(&self, realm: u16) -> Option<&RealmConfig> {
        self.realms.get(usize::from(realm).checked_sub(1)?)
    }

    /// The numbers of all realms.
    pub fn realm_numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.all_numbers().filter(|realm| self.has_realm(*realm))
    }

    /// The numbers of all realms, in the order in which their rules decide about the bypass of a
    /// packet from outside.
    pub fn realms_in_order(&self) -> impl Iterator<Item = u16> + use<> {
        let mut numbers: Vec<u16> = self.realm_numbers().collect();
        numbers.sort_by_key(|number| self.realm(*number).map_or(0, |realm| realm.order));
        // Realm 0 has no order. It comes first, because the sort is stable.
        numbers.into_iter()
    }

    /// The numbers of all realms, removed realms included.
    pub(crate) fn all_numbers(&self) -> RangeInclusive<u16> {
        0..=self.realms.len() as u16
    }

    /// True if a realm exists.
    pub fn has_realm(&self, realm: u16) -> bool {
        realm == 0 || self.realm(realm).is_some_and(|realm| !realm.gone)
    }

    /// True if there is a realm besides realm 0.
    pub fn has_realms(&self) -> bool {
        self.realms.iter().any(|realm| !realm.gone)
    }

    /// The gateway's side in a realm.
    pub fn inside_of(&self, realm: u16) -> &SideConfig {
        self.realm(realm).map_or(&self.inside, |realm| &realm.inside)
    }

    /// Prefixes of a realm that are translated.
    pub fn subscribers_of(&self, realm: u16) -> &[Prefix] {
        self.realm(realm).map_or(&self.subscribers, |realm| &realm.subscribers)
    }

    /// Addresses behind routers in a realm, ascending and disjoint.
    pub fn inside_routes_of(&self, realm: u16) -> &[AddressRange] {
        self.realm(realm).map_or(&self.inside_routes, |realm| &realm.inside_routes)
    }

    /// Index of a realm's pool without a rule.
    pub fn default_pool_of(&self, realm: u16) -> usize {
        self.realm(realm).map_or(self.default_pool, |realm| realm.default_pool)
    }

    /// True if hosts of realm `from` may reach external endpoints of realm `to`.
    pub fn may_hairpin(&self, from: u16, to: u16) -> bool {
        let to_others = self.realm(from).map_or(&self.hairpin_to, |realm| &realm.hairpin_to);
        from == to || to_others.contains(&to)
    }
}

/// State of the realms besides their configuration.
#[derive(Clone, Debug)]
pub(crate) struct Realms {
    /// Addresses of the subscribers of each realm.
    subscribers: Vec<Ranges<u32>>,
    /// The rules of realms from number 1 on.
    rules: Vec<RuleSet>,
    /// Facts about all realms: in order, the realms with rules that bypass translation or drop;
    /// true if any realm has a rule; true if any rule looks at a port.
    plain: Vec<u16>,
    order: Vec<u16>,
    any_rules: bool,
    any_by_port: bool,
    any_destinations: bool,
    /// True if realm 0 is the only realm.
    is_alone: bool,
    /// Largest packet of the outside link, and of each realm's link, bytes.
    outside_mtu: u16,
    inside_mtus: Vec<u16>,
    /// Largest packet that every realm takes; and, for each realm, the largest packet that every
    /// possible receiver of its hairpinned packets takes. Bytes.
    least_mtu: u16,
    hairpin_mtus: Vec<u16>,
    /// The realm of the packet that was handed out last.
    pub(crate) handed_out: u16,
    /// Removed realms that still have something left.
    closing: Vec<Closing>,
}

impl Realms {
    /// Makes the state of all realms. `zero` are the rules of realm 0.
    pub(crate) fn new(config: &Config, zero: &RuleSet) -> Result<Self, ConfigError> {
        let rules: Result<Vec<_>, _> =
            config.realms.iter().map(|realm| RuleSet::new(&realm.rules)).collect();
        let mtu = |realm| config.inside_of(realm).mtu.unwrap_or(DEFAULT_MTU);
        let inside_mtus: Vec<u16> = config.all_numbers().map(mtu).collect();
        let subscribers = |realm| Ranges::of_ipv4(config.subscribers_of(realm));
        let mut realms = Self {
            subscribers: config.all_numbers().map(subscribers).collect(),
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
            handed_out: 0,
            closing: change::closing(config),
        };
        realms.look_at(zero);
        realms.measure(config);
        Ok(realms)
    }

    /// Computes the largest packets for groups of realms.
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

    /// Computes the facts about the rules of all realms.
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

    /// The rules of a realm. `zero` are the rules of realm 0.
    #[inline(always)]
    pub(crate) fn rules_of<'a>(&'a self, zero: &'a RuleSet, realm: u16) -> &'a RuleSet {
        match usize::from(realm).checked_sub(1) {
            None => zero,
            Some(place) => &self.rules[place],
        }
    }

    /// True if a host has an address of its realm's subscribers.
    #[inline]
    pub(crate) fn has_subscriber(&self, host: Host) -> bool {
        let of_realm = self.subscribers.get(usize::from(host.realm()));
        of_realm.is_some_and(|subscribers| subscribers.has(host.address()))
    }

    /// The rules of the realms besides realm 0.
    pub(crate) fn further_rules(&self) -> &[RuleSet] {
        &self.rules
    }

    /// True if any realm has rules.
    #[inline(always)]
    pub(crate) fn any_rules(&self) -> bool {
        self.any_rules
    }

    /// True if a rule of any realm looks at a port.
    #[inline(always)]
    pub(crate) fn any_by_port(&self) -> bool {
        self.any_by_port
    }

    /// True if a rule of any realm translates destinations.
    #[inline(always)]
    pub(crate) fn any_destinations(&self) -> bool {
        self.any_destinations
    }

    /// The realm at a place among the realms with rules that bypass translation or drop, in order.
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

    /// The rules for packets of a realm that exists, to be searched.
    pub fn rules(&self, realm: u16) -> &RuleSet {
        self.rules_of(realm)
    }

    /// Replaces the rules of a realm, as [`Engine::replace_rules`] does for realm 0.
    ///
    /// # Errors
    /// [`ConfigError`], as for [`Engine::replace_rules`], and when the realm does not exist.
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

    /// Replaces the state of the realms, and returns the old state. The rules of realm 0 must be in
    /// force already.
    pub(crate) fn replace_realms(&mut self, mut realms: Realms) -> Realms {
        realms.handed_out = self.realms.handed_out;
        realms.go_on(&self.realms, self.last_of_today());
        core::mem::replace(&mut self.realms, realms)
    }

    /// The number of the realm to send the latest packet of [`Engine::poll_transmit`] to, if it
    /// leaves by the inside.
    pub fn transmit_realm(&self) -> u16 {
        self.realms.handed_out
    }

    /// True if a realm exists.
    pub(crate) fn has_realm(&self, realm: u16) -> bool {
        self.config.has_realm(realm)
    }

    /// True if the addresses of a realm's hosts are numbers
    /// ([`RealmConfig::host_bits`](crate::RealmConfig::host_bits)).
    pub(crate) fn has_numbers(&self, realm: u16) -> bool {
        self.config.realm(realm).is_some_and(|realm| realm.host_bits.is_some())
    }

    /// True if an address is the gateway's own, seen from a realm.
    #[inline]
    pub(crate) fn is_own(&self, realm: u16, address: u32) -> bool {
        let own = [self.config.inside_of(realm).address, self.config.outside.address];
        own.iter().flatten().any(|own| own.to_bits() == address)
    }

    /// True if an address is the gateway's own outside.
    #[inline]
    pub(crate) fn is_outside_own(&self, address: u32) -> bool {
        self.config.outside.address.is_some_and(|own| own.to_bits() == address)
    }

    /// True if an address is in the network that is connected in a realm.
    #[inline]
    pub(crate) fn is_inside(&self, realm: u16, address: u32) -> bool {
        self.config.inside_of(realm).network.is_some_and(|network| network.contains(address))
    }

    /// True if an address is behind a router in a realm. Packets from the realm go there
    /// untranslated.
    #[inline]
    pub(crate) fn is_routed_inside(&self, realm: u16, address: u32) -> bool {
        let ranges = self.config.inside_routes_of(realm);
        if ranges.is_empty() {
            return false;
        }
        let after = ranges.partition_point(|range| range.first.to_bits() <= address);
        after > 0 && address <= ranges[after - 1].last.to_bits()
    }

    /// True if realm 0 is the only realm. All packets from outside then go to realm 0.
    pub(crate) fn is_plain(&self) -> bool {
        self.realms.is_alone
    }

    /// True if an address is the gateway's own or external, so that no host may send from it. The
    /// view is from a realm; `None`: from outside, before the realm is known.
    pub(crate) fn is_ours(&self, realm: Option<u16>, address: u32) -> bool {
        let own = match realm.or(self.is_plain().then_some(0)) {
            Some(realm) => self.is_own(realm, address),
            None => self.config.outside.address.is_some_and(|own| own.to_bits() == address),
        };
        own || self.external.index(address).is_some()
    }

    /// True if an address means all hosts of a connected network, in the same view as
    /// [`Engine::is_ours`]. An external address does not.
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

    /// Checks the source of a packet from outside to a realm. The source must not be an address of
    /// that realm. With realm 0 alone, an earlier check does this.
    pub(crate) fn check_entry(&self, realm: u16, source: u32) -> Result<(), DropReason> {
        if self.is_plain() || !(self.is_inside(realm, source) || self.is_own(realm, source)) {
            return Ok(());
        }
        Err(DropReason::SpoofedSource)
    }

    /// Checks the endpoints of a packet from outside to a realm that bypasses translation.
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

    /// Sets the largest packets of the links, bytes. `mtu` is called for the outside and for the
    /// inside of each realm. The values hold until the next reconfiguration.
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
    pub fn outside_mtu(&self) -> u16 {
        self.realms.outside_mtu
    }

    /// Largest packet that a realm takes, bytes.
    pub fn inside_mtu(&self, realm: u16) -> u16 {
        self.realms.inside_mtus.get(usize::from(realm)).copied().unwrap_or(DEFAULT_MTU)
    }

    /// Largest hairpinned packet of a realm, bytes, for any receiver.
    pub(crate) fn hairpin_mtu(&self, realm: u16) -> u16 {
        self.realms.hairpin_mtus[usize::from(realm)]
    }

    /// Checks that a hairpinned packet may go from one realm to another. A reply in an existing
    /// session may go back.
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

/// The addresses that mean every host of a connected network: the last, and the first by an old
/// convention. Addresses that the operator has made external are 0.
pub(crate) fn broadcasts(config: &Config, external: &ExternalPorts) -> [u32; 4] {
    let ends = [&config.inside, &config.outside]
        .map(|side| side.network.and_then(broadcasts_of).unwrap_or_default());
    let [[a, b], [c, d]] = ends;
    [a, b, c, d].map(|address| if external.index(address).is_some() { 0 } else { address })
}
