//! Realms (specification, section 15): effects of the realm of a packet or a mapping.

use crate::bytes::ip;
use crate::{Model, Packet};
use natgate_engine::{Config, Direction, DropReason, Rule, Side};

impl Model {
    /// 15.12: lets a packet into the realm of its receiver. `in_session`: its session exists.
    /// `as_is`: its source has the same name inside and outside.
    pub(crate) fn enter_realm(
        &self,
        packet: &mut Packet,
        to: u16,
        in_session: bool,
        as_is: bool,
    ) -> Result<(), DropReason> {
        let from = packet.realm;
        packet.exit = to;
        if packet.direction != Direction::Hairpin {
            let source = ip(&packet.bytes).source();
            let inside = self.is_inside(to, source) || self.is_own(to, source);
            let spoofed = as_is && inside && self.config.has_realms(); // 15.7
            return if spoofed { Err(DropReason::SpoofedSource) } else { Ok(()) };
        }
        let permitted =
            self.config.may_hairpin(from, to) || in_session && self.config.may_hairpin(to, from);
        if permitted { Ok(()) } else { Err(DropReason::OtherRealm) }
    }

    /// 15.7: checks the endpoints of a packet from outside that bypasses translation into a realm.
    pub(crate) fn may_pass(
        &self,
        realm: u16,
        source: u32,
        destination: u32,
    ) -> Result<(), DropReason> {
        let network = self.config.inside_of(realm).network.filter(|net| net.len() <= 30);
        let everybody = |address: u32| {
            network.is_some_and(|net| [net.first(), net.last()].contains(&address))
                && !self.is_external(address)
        };
        if everybody(source) {
            return Err(DropReason::MartianSource);
        }
        if everybody(destination) {
            return Err(DropReason::MartianDestination);
        }
        if self.is_own(realm, source) { Err(DropReason::SpoofedSource) } else { Ok(()) }
    }

    /// 15.25: checks that the realms of a configuration may have their numbers.
    ///
    /// # Errors
    /// A sentence that names the realm.
    pub fn check_numbers(&self, new: &Config) -> Result<(), String> {
        let name = |config: &Config, number: u16| {
            config.has_realm(number).then(|| config.realms[usize::from(number) - 1].name.clone())
        };
        let of = |config: &Config, wanted: &str| {
            config
                .realm_numbers()
                .skip(1)
                .find(|number| name(config, *number).as_deref() == Some(wanted))
        };
        for number in new.realm_numbers().skip(1) {
            let now = name(new, number).unwrap_or_default();
            let before = of(&self.config, &now);
            let late = self.config.realms.get(usize::from(number) - 1);
            let is_its_own = late.is_some_and(|late| late.name == now);
            let is_left =
                self.mappings.keys().any(|key| key.realm == number) || self.blocks_of_realm(number);
            if before.is_some_and(|before| before != number) {
                return Err(format!("realm {now} had number {before:?} and has {number}"));
            }
            if before.is_none() && !is_its_own && (name(&self.config, number).is_some() || is_left)
            {
                return Err(format!("realm {now} has number {number}, which another had"));
            }
        }
        Ok(())
    }

    /// The rules of a realm.
    pub(crate) fn rules_of(&self, realm: u16) -> &[Rule] {
        match usize::from(realm).checked_sub(1) {
            None => &self.config.rules,
            Some(place) => &self.config.realms[place].rules,
        }
    }

    /// 15.15: the least MTU of the realms that a realm may reach, or that may reach it.
    pub(crate) fn hairpin_mtu(&self, realm: u16) -> u16 {
        let near = |other: &u16| {
            self.config.may_hairpin(realm, *other) || self.config.may_hairpin(*other, realm)
        };
        let mtus = self.config.realm_numbers().filter(near);
        let mtus = mtus.map(|other| self.mtu(Side::Inside, other));
        mtus.min().unwrap_or_else(|| self.mtu(Side::Inside, realm))
    }
}

/// Replaces the rules of a realm.
pub(crate) fn replace_rules(config: &mut Config, realm: u16, rules: &[Rule]) {
    let place = match usize::from(realm).checked_sub(1) {
        None => &mut config.rules,
        Some(place) => &mut config.realms[place].rules,
    };
    *place = rules.to_vec();
}
