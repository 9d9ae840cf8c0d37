//! Replacement of the configuration in force (specification, section 14): the mappings that stay,
//! and the mappings that go.

use crate::chapters::classes::{LimitOwner, ThresholdState};
use crate::chapters::realms::replace_rules;
use crate::chapters::services;
use crate::{Effects, Key, Mapping, Model, StillHeld, has_ports};
use natgate_engine::{Config, Endpoint, MappingKind, Rule, RuleAction, TimeoutSet};
use std::collections::BTreeMap;

impl Model {
    /// Puts another configuration in force. Mappings that it does not allow go at once.
    /// `still_held` is as in [`Model::advance`].
    pub fn reconfigure(&mut self, config: &Config, still_held: Option<StillHeld<'_>>) -> Effects {
        self.go_on(config);
        self.chapters.fixed = services::fixed(config, &self.chapters.down);
        if self.chapters.holds_room == 0 {
            self.chapters.holds_room = config.limits.explicit_mappings as usize; // 14.27
        }
        self.change_pools(config.clone());
        self.change_pins();
        self.ask_all(still_held)
    }

    /// Replaces the rules of a realm, and nothing else.
    pub fn replace_rules_of(
        &mut self,
        realm: u16,
        rules: &[Rule],
        still_held: Option<StillHeld<'_>>,
    ) -> Effects {
        replace_rules(&mut self.config, realm, rules);
        self.ask_all(still_held)
    }

    /// 14.7: checks every mapping.
    fn ask_all(&mut self, still_held: Option<StillHeld<'_>>) -> Effects {
        let gone = self.mappings.iter().filter(|(key, mapping)| !self.may_stay(key, mapping));
        self.remove_all(gone.map(|(key, _)| *key).collect(), self.now);
        self.make_statics();
        let mut held = std::mem::take(&mut self.held);
        held.append(&mut self.chapters.evicted);
        // A port stays held when a static mapping takes its whole address.
        let is_static = |(protocol, end): &(u8, Endpoint)| {
            let external = (end.address, Some(end.port));
            let mut all = self.chapters.fixed.iter();
            all.any(|fixed| fixed.external == external && fixed.is_for(*protocol))
        };
        (self.chapters.evicted, self.held) =
            held.into_iter().partition(|(port, _)| is_static(port));
        self.limit_held(still_held);
        self.settle_pools();
        self.note_empty_since_next_tick(); // 14.10
        self.forget_thresholds();
        std::mem::take(&mut self.made)
    }

    /// 14.6: keeps the state of rates, refusals and thresholds.
    fn go_on(&mut self, config: &Config) {
        let old = &self.config.classes;
        let now = |whose: &LimitOwner| match *whose {
            LimitOwner::Class(number) => {
                let place = config.classes.iter().position(|class| class.name == old[number].name);
                place.map(LimitOwner::Class)
            }
            other => Some(other),
        };
        fn renamed<T>(
            map: &mut BTreeMap<LimitOwner, T>,
            now: impl Fn(&LimitOwner) -> Option<LimitOwner>,
        ) {
            let old = std::mem::take(map);
            map.extend(old.into_iter().filter_map(|(whose, of)| Some((now(&whose)?, of))));
        }
        renamed(&mut self.chapters.mapping_rate, now);
        renamed(&mut self.chapters.quota_reported, now);
        renamed(&mut self.chapters.reported_thresholds, now);
        self.chapters.reported_thresholds.values_mut().for_each(ThresholdState::forget);
        for mapping in self.mappings.values_mut() {
            if !config.timeout_sets.contains(&mapping.timeouts) {
                mapping.timeouts = TimeoutSet::default();
            }
        }
    }

    /// 14.11 and 14.17: true if a mapping may stay.
    fn may_stay(&self, key: &Key, mapping: &Mapping) -> bool {
        let Key { protocol, internal, realm, .. } = *key;
        let fixed = self.static_internals(protocol, mapping.external);
        if mapping.kind == MappingKind::Static {
            return fixed.iter().any(|(one, end)| (one.realm, *end) == (realm, internal));
        }
        let displaced = self.static_external(protocol, realm, internal).is_some()
            || !fixed.is_empty()
            || self.is_kept(protocol, mapping.external.address);
        let host = internal.address.to_bits();
        let mut subscribers = self.config.subscribers_of(realm).iter();
        let is_subscriber = subscribers.any(|prefix| prefix.contains(host))
            || self.chapters.fixed.iter().any(|one| (one.realm, one.internal.0) == key.host());
        let any = (!mapping.marks.holds.is_empty()).then_some(Endpoint::new(0, 0)); // 16.28
        let is_translated =
            mapping.sessions.values().map(|session| session.seen).chain(any).any(|seen| {
                let rule = self.rule_between(realm, protocol, internal, seen);
                matches!(rule, Some(RuleAction::Snat(_) | RuleAction::SnatTo(..)))
            });
        let is_ours = self.is_own(realm, host) || self.is_external(host);
        let end = mapping.external;
        let is_pooled = !self.chapters.left.contains_key(&end.address)
            && self.pool_of(end.address.to_bits()).is_some_and(|pool| {
                let pool = &self.config.pools[pool];
                pool.has(end.address) && (!has_ports(protocol) || pool.uses_port(end.port))
            });
        !displaced && !is_ours && (is_subscriber || is_translated) && is_pooled
    }
}
