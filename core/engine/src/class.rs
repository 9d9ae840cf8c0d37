//! Classes of subscribers: limits of each member, limits of all members together, and the present
//! use. Class 0 contains every subscriber in no configured class. The configured classes follow.
//!
//! The subscriber's own limits are checked first, then the limits of its class. Only granted
//! requests count for the class. So a subscriber at a limit of its own takes nothing from its
//! class, and a class at its limit takes nothing from others.

use crate::DropReason;
use crate::config::{Class, Config, Totals};
use crate::host::Host;
use crate::limits::{Limit, Standing};
use crate::rate::Rate;
use crate::threshold::{Marks, Watch};
use alloc::vec;
use alloc::vec::Vec;

/// Quotas of mappings: TCP, UDP, all others.
pub(crate) const KINDS: usize = 3;
/// Index of sessions among the things with thresholds, after the kinds of mappings.
pub(crate) const SESSIONS: usize = KINDS;

/// Limits of a subscriber or of a whole class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    mappings: [u32; KINDS],
    sessions: u32,
    /// The time between mappings at the permitted rate, nanoseconds.
    spacing: u64,
    /// Thresholds of mappings and of sessions.
    marks: [Marks; KINDS + 1],
    /// True if there are thresholds.
    watched: bool,
}

/// Present use of a subscriber or of a whole class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// Mappings: TCP, UDP, all others.
    pub(crate) mappings: [u32; KINDS],
    /// Sessions beyond the first of each mapping.
    pub(crate) further_sessions: u32,
    /// Time at which the next mapping would be due at the permitted rate.
    pub(crate) rate: Rate,
}

impl Holding {
    pub(crate) const NONE: Self =
        Self { mappings: [0; KINDS], further_sessions: 0, rate: Rate::NEW };

    /// Number of sessions: one a mapping, and the further ones.
    pub(crate) fn sessions(&self) -> u32 {
        self.mappings.iter().fold(self.further_sessions, |sum, &more| sum.saturating_add(more))
    }
}

impl Allowance {
    fn new(mappings: [u32; KINDS], sessions: u32, spacing: u64, thresholds: &[u8]) -> Self {
        let mark = |limit| Marks::new(thresholds, limit);
        let [tcp, udp, other] = mappings.map(mark);
        let marks = [tcp, udp, other, mark(sessions)];
        Self { mappings, sessions, spacing, marks, watched: !thresholds.is_empty() }
    }

    /// Limits of each subscriber of a class, or of a subscriber in no class.
    fn of_each(config: &Config, class: Option<&Class>) -> Self {
        let (common, own) = (&config.limits, class.map(|class| &class.limits));
        let number = |own: Option<Option<u32>>, common| own.flatten().unwrap_or(common);
        let mappings = [
            number(own.map(|own| own.tcp_ports), common.tcp_ports),
            number(own.map(|own| own.udp_ports), common.udp_ports),
            number(own.map(|own| own.icmp_ports), common.icmp_ports),
        ];
        let sessions = common.sessions_per_subscriber.unwrap_or(u32::MAX);
        let sessions = number(own.map(|own| own.sessions_per_subscriber), sessions);
        let rate = common.new_mappings_per_second;
        let rate = number(own.map(|own| own.new_mappings_per_second), rate);
        let thresholds = own.and_then(|own| own.thresholds.as_ref()).unwrap_or(&common.thresholds);
        Self::new(mappings, sessions, Rate::spacing(rate), thresholds)
    }

    /// Limits of all subscribers of a class together.
    fn of_all(total: &Totals) -> Self {
        let number = |limit: Option<u32>| limit.unwrap_or(u32::MAX);
        let mappings = [total.tcp_ports, total.udp_ports, total.icmp_ports].map(number);
        // A class without a rate has spacing 0: a mapping takes no time.
        let spacing = total.new_mappings_per_second.map_or(0, Rate::spacing);
        Self::new(mappings, number(total.sessions), spacing, &total.thresholds)
    }

    /// Checks that a holder with this use may have one more mapping of a kind now.
    #[inline(always)]
    fn check(&self, holding: &Holding, kind: usize, now: u64) -> Result<(), DropReason> {
        //= rfc6888#REQ-4c
        //= rfc6888#REQ-5b
        if !holding.rate.permits_spaced(now, self.spacing, Rate::SECOND) {
            return Err(DropReason::MappingRate);
        }
        //= rfc6888#REQ-4
        //= rfc6888#REQ-4b
        if holding.mappings[kind] >= self.mappings[kind] {
            return Err(DropReason::PortQuota);
        }
        if self.permits_session(holding) { Ok(()) } else { Err(DropReason::SessionLimit) }
    }

    /// Use and limits of everything that one more mapping of a kind takes.
    fn standings(&self, holding: &Holding, kind: usize, now: u64) -> [Standing; 3] {
        let limited = |most: u32| (most != u32::MAX).then_some(u64::from(most));
        let most = Rate::SECOND.checked_div(self.spacing);
        let of_late = most.map_or(0, |_| holding.rate.of_late(now, self.spacing));
        [
            Standing { limit: Limit::NewMappings, used: of_late, most },
            Standing {
                limit: Limit::Mappings,
                used: holding.mappings[kind].into(),
                most: limited(self.mappings[kind]),
            },
            Standing {
                limit: Limit::Sessions,
                used: holding.sessions().into(),
                most: limited(self.sessions),
            },
        ]
    }

    #[inline(always)]
    fn permits_session(&self, holding: &Holding) -> bool {
        // Most often there is no limit.
        self.sessions == u32::MAX || holding.sessions() < self.sessions
    }

    /// Notes one more of a thing. Returns the percentage to report.
    fn rise(&self, has: &Holding, watch: &mut Watch, thing: usize, now: u64) -> Option<u8> {
        let used = if thing == SESSIONS { has.sessions() } else { has.mappings[thing] };
        watch.rise(thing, &self.marks[thing], (used.saturating_sub(1), used), now)
    }
}

/// Limits and use of a class.
#[derive(Clone, Debug)]
struct State {
    each: Allowance,
    /// True if there are thresholds, of each member or of the class.
    watched: bool,
    /// Sessions that each mapping of a subscriber may have.
    sessions_per_mapping: u16,
    all: Allowance,
    has: Holding,
    watch: Watch,
    /// Time of the latest report of a refusal, nanoseconds.
    reported: Option<u64>,
}

/// Start of a range of addresses of one class, up to the next `Stretch`. The first starts with
/// address 0.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    start: u32,
    class: u16,
    /// Length of the deciding prefix plus one; 0: no prefix decides.
    weight: u8,
}

/// All classes.
#[derive(Clone, Debug)]
pub(crate) struct Classes {
    /// First the stretches of classes that name no realm, then, by realm, of classes that name it.
    /// The list ends with the last realm that a class names.
    stretches: Vec<Vec<Stretch>>,
    states: Vec<State>,
    /// True if a class, or its members, have thresholds.
    pub(crate) watched: bool,
}

impl Classes {
    pub(crate) fn new(config: &Config) -> Self {
        let common = config.limits.sessions_per_mapping;
        let state = |class: Option<&Class>| {
            let total = class.map(|class| class.total.clone()).unwrap_or_default();
            let (each, all) = (Allowance::of_each(config, class), Allowance::of_all(&total));
            State {
                each,
                watched: each.watched || all.watched,
                sessions_per_mapping: class
                    .and_then(|class| class.limits.sessions_per_mapping)
                    .unwrap_or(common),
                all,
                has: Holding::NONE,
                watch: Watch::default(),
                reported: None,
            }
        };
        let named = config.classes.iter().map(|class| state(Some(class)));
        let states: Vec<State> = core::iter::once(state(None)).chain(named).collect();
        let watched = states.iter().any(|state| state.watched);
        Self { stretches: stretches_by_realm(&config.classes), states, watched }
    }

    /// Takes over rates and reports from earlier classes. `before` gives for each class, number 0
    /// first, its earlier number. The use by subscribers is counted anew.
    pub(crate) fn go_on(&mut self, others: &Self, before: impl Iterator<Item = Option<usize>>) {
        for (state, before) in self.states.iter_mut().zip(before) {
            let Some(before) = before.map(|number| &others.states[number]) else { continue };
            state.has.rate = before.has.rate;
            state.reported = before.reported;
            state.watch = before.watch;
            state.watch.forget();
        }
    }

    /// Counts the use of a subscriber for its class.
    pub(crate) fn add(&mut self, class: u16, own: &Holding) {
        if class == 0 {
            // Class 0 has no limit in all, so its use is not counted.
            return;
        }
        let has = &mut self.states[usize::from(class)].has;
        for (all, own) in has.mappings.iter_mut().zip(own.mappings) {
            *all += own;
        }
        has.further_sessions += own.further_sessions;
    }

    /// Bytes that the classes take.
    pub(crate) fn memory(config: &Config) -> u64 {
        let prefixes: usize = config.classes.iter().map(|class| class.subscribers.len()).sum();
        let realms = 1 + config
            .classes
            .iter()
            .filter_map(|one| one.realm)
            .max()
            .map_or(0, |last| usize::from(last) + 1);
        let stretches = realms * (size_of::<Vec<Stretch>>() + size_of::<Stretch>())
            + 2 * prefixes * size_of::<Stretch>();
        (stretches + (config.classes.len() + 1) * size_of::<State>()) as u64
    }

    /// The class of a subscriber: the class of the longest prefix that contains its address. Of two
    /// classes with prefixes of one length, the class that names the realm wins.
    pub(crate) fn of(&self, host: Host) -> u16 {
        if self.states.len() == 1 {
            return 0;
        }
        let find = |stretches: &Vec<Stretch>| {
            let after = stretches.partition_point(|stretch| stretch.start <= host.address());
            stretches[after - 1]
        };
        let common = find(&self.stretches[0]);
        let own = self.stretches.get(usize::from(host.realm()) + 1).map(find);
        own.filter(|own| own.weight != 0 && own.weight >= common.weight).unwrap_or(common).class
    }

    /// Checks that a subscriber of a class may have one more mapping of a kind now, by its own
    /// limits and by the limits of its class.
    #[inline(always)]
    pub(crate) fn check(
        &self,
        class: u16,
        own: &Holding,
        kind: usize,
        now: u64,
    ) -> Result<(), DropReason> {
        let state = &self.states[usize::from(class)];
        state.each.check(own, kind, now)?;
        if class == 0 { Ok(()) } else { state.all.check(&state.has, kind, now) }
    }

    /// Checks that remote endpoints may make one more mapping of a kind for a subscriber: half of
    /// its own quota and half of a second's rate are left.
    #[cold]
    pub(crate) fn permits_inbound(
        &self,
        class: u16,
        own: &Holding,
        kind: usize,
        now: u64,
    ) -> Result<(), DropReason> {
        let each = &self.states[usize::from(class)].each;
        let earlier = now.saturating_sub(Rate::SECOND / 2);
        if !own.rate.permits_spaced(earlier, each.spacing, Rate::SECOND) {
            return Err(DropReason::MappingRate);
        }
        let used = u64::from(own.mappings[kind]);
        if 2 * used >= each.mappings[kind].into() { Err(DropReason::PortQuota) } else { Ok(()) }
    }

    /// Use and limits of everything that one more mapping of a kind takes, in the order of the
    /// checks: of the subscriber, then of its class.
    pub(crate) fn standings(
        &self,
        class: u16,
        own: &Holding,
        kind: usize,
        now: u64,
    ) -> [Option<[Standing; 3]>; 2] {
        let state = &self.states[usize::from(class)];
        let all = (class != 0).then(|| state.all.standings(&state.has, kind, now));
        [Some(state.each.standings(own, kind, now)), all]
    }

    /// True if the class is at a limit, and the subscriber is not.
    pub(crate) fn is_full(&self, class: u16, own: &Holding, kind: usize, now: u64) -> bool {
        let state = &self.states[usize::from(class)];
        state.each.check(own, kind, now).is_ok() && self.check(class, own, kind, now).is_err()
    }

    /// Returns true, and notes a report, if no refusal by the class was reported within the
    /// interval (nanoseconds).
    pub(crate) fn may_report(&mut self, class: u16, now: u64, interval: u64) -> bool {
        let reported = &mut self.states[usize::from(class)].reported;
        let may = reported.is_none_or(|at| now - at >= interval);
        *reported = if may { Some(now) } else { *reported };
        may
    }

    /// True if a subscriber of a class may have one more session.
    pub(crate) fn permits_session(&self, class: u16, own: &Holding) -> bool {
        let state = &self.states[usize::from(class)];
        state.each.permits_session(own) && state.all.permits_session(&state.has)
    }

    /// Limit of sessions of one mapping of a subscriber.
    pub(crate) fn sessions_per_mapping(&self, class: u16) -> u16 {
        self.states[usize::from(class)].sessions_per_mapping
    }

    /// Counts a new mapping of a kind for a subscriber and for its class. Class 0 has no limit in
    /// all, so its use is not counted.
    #[inline(always)]
    pub(crate) fn count(&mut self, class: u16, own: &mut Holding, kind: usize, now: u64) {
        let state = &mut self.states[usize::from(class)];
        own.mappings[kind] += 1;
        own.rate.count_spaced(now, state.each.spacing);
        if class != 0 {
            state.has.mappings[kind] += 1;
            state.has.rate.count_spaced(now, state.all.spacing);
        }
    }

    /// Counts the removal of a mapping of a kind for a class.
    pub(crate) fn release(&mut self, class: u16, kind: usize) {
        if class != 0 {
            self.states[usize::from(class)].has.mappings[kind] -= 1;
        }
    }

    /// Counts further sessions, more or less, for a subscriber and for its class.
    pub(crate) fn count_further(&mut self, class: u16, own: &mut Holding, change: i32) {
        own.further_sessions = own.further_sessions.strict_add_signed(change);
        if class != 0 {
            let has = &mut self.states[usize::from(class)].has;
            has.further_sessions = has.further_sessions.strict_add_signed(change);
        }
    }

    /// True if a class, or its members, have thresholds.
    #[inline(always)]
    pub(crate) fn is_watched(&self, class: u16) -> bool {
        self.watched && self.states[usize::from(class)].watched
    }

    /// Notes that a subscriber has one more of a thing. Returns the percentages to report.
    pub(crate) fn rise(
        &mut self,
        class: u16,
        own: (&Holding, &mut Watch),
        thing: usize,
        now: u64,
    ) -> Reached {
        let State { each, all, has, watch, .. } = &mut self.states[usize::from(class)];
        let subscriber = each.rise(own.0, own.1, thing, now);
        Reached { subscriber, class: all.rise(has, watch, thing, now) }
    }
}

/// Thresholds that were reached, percent of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// The threshold of the subscriber.
    pub(crate) subscriber: Option<u8>,
    /// The threshold of its class.
    pub(crate) class: Option<u8>,
}

fn stretches_by_realm(classes: &[Class]) -> Vec<Vec<Stretch>> {
    let last = classes.iter().filter_map(|class| class.realm).max();
    let realms = last.into_iter().flat_map(|last| 0..=last).map(Some);
    core::iter::once(None).chain(realms).map(|realm| stretches(classes, realm)).collect()
}

/// Cuts the address space into stretches of one class, for the classes that name `realm`. Prefixes
/// are nested or disjoint. They are visited in order, with the open ones on a stack.
fn stretches(classes: &[Class], realm: Option<u16>) -> Vec<Stretch> {
    let of = |(number, class): (usize, &Class)| {
        let number = number as u16 + 1;
        class.subscribers.clone().into_iter().map(move |prefix| (prefix, number))
    };
    let named = classes.iter().enumerate().filter(|(_, class)| class.realm == realm);
    let mut prefixes: Vec<_> = named.flat_map(of).collect();
    prefixes.sort_unstable_by_key(|(prefix, _)| (prefix.first(), prefix.len()));
    let mut stretches = vec![Stretch { start: 0, class: 0, weight: 0 }];
    let mut begin = |start, (class, weight)| {
        let next = Stretch { start, class, weight };
        match stretches.last_mut() {
            Some(last) if last.start == start => *last = next,
            _ => stretches.push(next),
        }
    };
    let mut open: Vec<(u32, (u16, u8))> = Vec::new();
    for next in prefixes.into_iter().map(Some).chain([None]) {
        while let Some(&(last, _)) = open.last()
            && next.is_none_or(|(prefix, _)| last < prefix.first())
        {
            open.pop();
            if let Some(after) = last.checked_add(1) {
                begin(after, open.last().map_or((0, 0), |&(_, class)| class));
            }
        }
        if let Some((prefix, class)) = next {
            let class = (class, prefix.len() + 1);
            begin(prefix.first(), class);
            open.push((prefix.last(), class));
        }
    }
    stretches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Prefix;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    proptest! {
        /// For any prefixes, the longest prefix that contains a subscriber gives its class. With
        /// equal lengths, the realm's own class goes before a class of all realms.
        #[test]
        fn the_longest_prefix_wins(
            prefixes in proptest::collection::vec((0_u32..64, 26_u8..=32, 0_usize..5), 0..20),
            realms in proptest::array::uniform5(proptest::option::of(0_u16..3)),
            first in proptest::sample::select(vec![0, 0x0a00_0000, u32::MAX - 63]),
        ) {
            let mut classes = realms.map(|realm| Class { realm, ..Class::default() }).to_vec();
            let mut seen = Vec::new();
            for (offset, len, class) in prefixes {
                let prefix = Prefix::new(Ipv4Addr::from_bits(first + offset), len);
                if !seen.contains(&(prefix, realms[class])) {
                    seen.push((prefix, realms[class]));
                    classes[class].subscribers.push(prefix);
                }
            }
            let all = Classes::new(&Config { classes: classes.clone(), ..Config::default() });
            let mut addresses: Vec<u32> = (0..64).map(|offset| first + offset).collect();
            addresses.extend([0, u32::MAX, first.saturating_sub(1), first.saturating_add(64)]);
            let there = |address: &u32| [0, 1, 2, 3].map(|realm| (*address, realm));
            let hosts = addresses.iter().flat_map(there);
            for (address, realm) in hosts {
                let holds = |class: &Class| {
                    let there = class.realm.is_none_or(|own| own == realm);
                    let own = class.subscribers.iter().filter(|one| there && one.contains(address));
                    own.map(|prefix| (prefix.len(), class.realm.is_some())).max()
                };
                let numbered = classes.iter().enumerate();
                let lens = numbered.filter_map(|(at, one)| Some((holds(one)?, at)));
                let best = lens.max().map_or(0, |(_, class)| class as u16 + 1);
                let found = all.of(Host::new(realm, address));
                prop_assert_eq!(found, best, "{:08x} {}", address, realm);
            }
        }
    }
}
