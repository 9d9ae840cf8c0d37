//! Reads `allocation`, port blocks and the keys of deterministic pools, and checks that a pool has
//! enough ports for them.
//!
//! The keys of `[nat]` are the defaults of every pool, key by key. The arithmetic is the engine's
//! own, so both refuse the same configurations.

use super::draft::{Draft, PoolDraft};
use super::problem::{Located, Place, Report};
use super::reader::{Section, Value};
use super::sections::read_duration;
use super::values::{self, overlaps_prefix, show_prefix};
use super::whole;
use natgate_engine::{
    Allocation, BlockConfig, Blocking, DeterministicConfig, Plan, Pooling, Prefix,
};
use std::time::Duration;

/// Fewer ports per subscriber than this cause a warning.
const FEW_PORTS: u32 = 256;

/// The values of `allocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Random,
    Preserve,
    Block,
    Deterministic,
    Address,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Preserve => "preserve",
            Self::Block => "block",
            Self::Deterministic => "deterministic",
            Self::Address => "address",
        }
    }
}

/// A table of block keys.
#[derive(Default)]
pub(super) struct BlockDraft {
    place: Option<Place>,
    size: Option<Located<u16>>,
    max: Option<Located<u16>>,
    release_after: Option<Duration>,
}

/// The allocation keys of `[nat]` or of a pool.
pub(super) struct SharesDraft {
    place: Place,
    kind: Option<Located<Kind>>,
    block: BlockDraft,
    /// Only pools have this key.
    subscribers: Option<Located<Vec<Prefix>>>,
    each: Option<Located<u16>>,
    dynamic: Option<Located<u16>>,
}

/// Reads the allocation keys of `[nat]`.
pub(super) fn read_nat(nat: &Section<'_>) -> SharesDraft {
    SharesDraft {
        place: nat.place.clone(),
        kind: read_kind(nat),
        block: read_block(&nat.section("block", "nat.block")),
        subscribers: None,
        each: None,
        dynamic: None,
    }
}

/// Reads the allocation keys of a pool.
pub(super) fn read_pool(pool: &Section<'_>) -> SharesDraft {
    let subscribers = pool.get("subscribers").and_then(|value| {
        let entries = value.items("an array of prefixes")?;
        let prefix = |entry: &Value<'_>| entry.parsed("a prefix", values::prefix);
        let prefixes: Option<Vec<_>> = entries.iter().map(prefix).collect();
        let value_of = prefixes?.into_iter().map(|prefix| prefix.value).collect();
        Some(Located { value: value_of, place: value.place })
    });
    SharesDraft {
        place: pool.place.clone(),
        kind: read_kind(pool),
        block: read_block(&pool.section("block", "pool.block")),
        subscribers,
        each: number(pool, "ports_per_subscriber", 1, u16::MAX),
        dynamic: number(pool, "dynamic_ports", 0, u16::MAX),
    }
}

fn read_kind(section: &Section<'_>) -> Option<Located<Kind>> {
    let kinds = [Kind::Random, Kind::Preserve, Kind::Block, Kind::Deterministic, Kind::Address];
    let words = kinds.map(|kind| (kind.word(), Ok(kind)));
    let value = section.get("allocation")?;
    Some(Located { value: value.word(&words)?, place: value.place })
}

fn number(section: &Section<'_>, key: &'static str, least: u16, most: u16) -> Option<Located<u16>> {
    let value = section.get(key)?;
    let number = value.integer(u64::from(least)..=u64::from(most))?;
    Some(Located { value: u16::try_from(number).ok()?, place: value.place })
}

fn read_block(section: &Section<'_>) -> BlockDraft {
    let (least, most) = (*BlockConfig::SIZES.start(), *BlockConfig::SIZES.end());
    let size = number(section, "size", least, most);
    let is_power = |size: &Located<u16>| {
        let power = size.value.is_power_of_two();
        if !power {
            let above = size.value.next_power_of_two();
            let message = format!("{} is no power of two", size.value);
            section.report.wrong(&size.place, format!("{message}; write {} or {above}", above / 2));
        }
        power
    };
    let release_after = section
        .get("release_after")
        .and_then(|value| read_duration(&value, &(Duration::ZERO..=BlockConfig::LONGEST)));
    BlockDraft {
        place: section.is_present().then(|| section.place.clone()),
        size: size.filter(is_power),
        max: number(section, "max_per_subscriber", 1, BlockConfig::MOST),
        release_after,
    }
}

impl Draft {
    fn kind(&self, pool: &PoolDraft) -> Kind {
        let said = pool.shares.kind.as_ref().or(self.shares.kind.as_ref());
        said.map_or(Kind::Random, |kind| kind.value)
    }

    /// The place that determines the allocation of a pool, or where it would be.
    fn kind_place<'d>(&'d self, pool: &'d PoolDraft) -> &'d Place {
        let said = pool.shares.kind.as_ref().or(self.shares.kind.as_ref());
        said.map_or(&pool.shares.place, |kind| &kind.place)
    }

    /// The allocation of pools without their own. A deterministic pool always has its own.
    pub(super) fn common_allocation(&self) -> Allocation {
        match self.shares.kind.as_ref().map(|kind| kind.value) {
            None | Some(Kind::Random | Kind::Deterministic) => Allocation::Random,
            Some(Kind::Preserve) => Allocation::Preserve,
            Some(Kind::Block) => Allocation::Block(self.block(&self.shares.block)),
            Some(Kind::Address) => Allocation::Address,
        }
    }

    fn block(&self, own: &BlockDraft) -> BlockConfig {
        let common = &self.shares.block;
        let default = BlockConfig::default();
        let value = |own: &Option<Located<u16>>, common: &Option<Located<u16>>, default| {
            own.as_ref().or(common.as_ref()).map_or(default, |number| number.value)
        };
        BlockConfig {
            size: value(&own.size, &common.size, default.size),
            max_per_subscriber: value(&own.max, &common.max, default.max_per_subscriber),
            release_after: own
                .release_after
                .or(common.release_after)
                .unwrap_or(default.release_after),
        }
    }

    fn plan(&self, pool: &PoolDraft) -> DeterministicConfig {
        let number = self.pools.iter().position(|one| std::ptr::eq(one, pool));
        let realm = number.map_or(0, |number| self.realm_of_pool(number));
        let all = || self.subscribers_of(realm).iter().map(|prefix| prefix.value).collect();
        let subscribers = pool.shares.subscribers.as_ref().map(|listed| listed.value.clone());
        DeterministicConfig {
            realm,
            subscribers: subscribers.unwrap_or_else(all),
            ports_per_subscriber: pool.shares.each.as_ref().map(|each| each.value),
            dynamic_ports: pool.shares.dynamic.as_ref().map_or(0, |dynamic| dynamic.value),
        }
    }

    /// The allocation of a pool.
    pub(super) fn allocation(&self, pool: &PoolDraft) -> Allocation {
        match self.kind(pool) {
            Kind::Random => Allocation::Random,
            Kind::Preserve => Allocation::Preserve,
            Kind::Block => Allocation::Block(self.block(&pool.shares.block)),
            Kind::Deterministic => Allocation::Deterministic(self.plan(pool)),
            Kind::Address => Allocation::Address,
        }
    }
}

/// Checks that pools have enough ports for their allocation, and that all keys have an effect.
pub(super) fn check(draft: &Draft, report: &Report<'_>) {
    for pool in &draft.pools {
        keys_have_an_effect(draft, pool, report);
        match draft.kind(pool) {
            Kind::Random | Kind::Preserve => {}
            Kind::Address => whole::check(draft, pool, draft.kind_place(pool), report),
            Kind::Block => blocks_fit(draft, pool, report),
            Kind::Deterministic => shares_fit(draft, pool, report),
        }
    }
    let has_blocks = draft.pools.iter().any(|pool| draft.kind(pool) == Kind::Block);
    if let Some(place) = draft.shares.block.place.as_ref().filter(|_| !has_blocks) {
        report.unwise(place, "has no effect: no pool's allocation is \"block\"");
    }
}

fn keys_have_an_effect(draft: &Draft, pool: &PoolDraft, report: &Report<'_>) {
    let shares = &pool.shares;
    let kind = draft.kind(pool);
    let deterministic = [
        shares.subscribers.as_ref().map(|listed| &listed.place),
        shares.each.as_ref().map(|each| &each.place),
        shares.dynamic.as_ref().map(|dynamic| &dynamic.place),
    ];
    let keys = deterministic.into_iter().map(|place| (place, Kind::Deterministic));
    for (place, needed) in keys.chain([(shares.block.place.as_ref(), Kind::Block)]) {
        if let Some(place) = place.filter(|_| kind != needed) {
            let message = format!("has no effect: the pool's allocation is \"{}\"", kind.word());
            report.wrong(place, format!("{message}; only \"{}\" has it", needed.word()));
        }
    }
}

fn blocks_fit(draft: &Draft, pool: &PoolDraft, report: &Report<'_>) {
    let (first, last) = pool.ports.value;
    let BlockConfig { size, max_per_subscriber: max, .. } = draft.block(&pool.shares.block);
    let blocking = Blocking::new(pool.ports.value, size);
    let (own, common) = (&pool.shares.block, &draft.shares.block);
    let (count, ports) = (blocking.count(), u32::from(last - first) + 1);
    if count == 0 {
        let size_place = own.size.as_ref().or(common.size.as_ref()).map(|size| &size.place);
        let message = format!("ports {first}-{last} are {ports}, too few for a block of {size}");
        let place = size_place.unwrap_or_else(|| draft.kind_place(pool));
        report.wrong(place, format!("{message}; write a smaller size or more ports"));
        return;
    }
    let unused = blocking.ports_unused();
    if unused > 0 {
        let sum = format!("{ports} ports are {count} x {size} and {unused} that fill no block");
        report.unwise(&pool.ports.place, format!("{sum}; nobody gets these"));
    }
    if draft.workers.count > 1 && !blocking.has_borders() {
        let step = size.min(64);
        let message =
            format!("blocks of {size} from port {first} on are not in line with words of");
        let why = "64 ports, so each trade of ports between workers keeps blocks from subscribers";
        let remedy = format!("write ports from a multiple of {step} on");
        report.unwise(&pool.ports.place, format!("{message} {why}; {remedy}"));
    }
    let addresses: usize = pool.ranges.iter().map(|range| range.value.count()).sum();
    let (has, of) = match draft.config.pooling {
        Pooling::Paired => (u64::from(count), "an address"),
        Pooling::SoftPaired | Pooling::Arbitrary => (u64::from(count) * addresses as u64, "all"),
    };
    let said = own.max.as_ref().or(common.max.as_ref());
    if let Some(said) = said.filter(|_| u64::from(max) > has) {
        let name = &pool.name.value;
        let message = format!("{max} blocks are more than the {has} of {of} of pool \"{name}\"");
        let why = format!("{ports} ports / {size}");
        report.unwise(&said.place, format!("{message} ({why}), so nobody gets so many"));
    }
    quota_is_reached(draft, u64::from(max).min(has) * u64::from(size), pool, report);
}

/// Warns of a configured quota that no subscriber can use up.
fn quota_is_reached(draft: &Draft, ports: u64, pool: &PoolDraft, report: &Report<'_>) {
    let (limits, default) = (&draft.config.limits, natgate_engine::Limits::default());
    for (protocol, quota, default) in [
        ("TCP", limits.tcp_ports, default.tcp_ports),
        ("UDP", limits.udp_ports, default.udp_ports),
        ("ICMP", limits.icmp_ports, default.icmp_ports),
    ] {
        if quota != default && u64::from(quota) > ports {
            let name = &pool.name.value;
            let message = format!("the {protocol} quota of {quota} is more than the {ports} ports");
            let message = format!("{message} that a subscriber can have of pool \"{name}\"");
            report.unwise(&draft.quota_place, message);
        }
    }
}

fn shares_fit(draft: &Draft, pool: &PoolDraft, report: &Report<'_>) {
    let shares = &pool.shares;
    if shares.subscribers.is_none() && draft.pools.len() > 1 {
        let key = format!("{}.subscribers", shares.place.key);
        let place = Place { key, offset: shares.place.offset };
        let message = "is missing: with several pools each says whose its ports are";
        report.missing(&place, format!("{message}; write subscribers = [\"10.0.0.0/24\"]"));
        return;
    }
    if pool.ranges.is_empty() {
        return;
    }
    let plan = match Plan::new(&draft.plan(pool), &pool.to_engine(None)) {
        Ok(plan) => plan,
        Err(error) => {
            let listed = shares.subscribers.as_ref().map(|listed| &listed.place);
            let common = draft.subscribers.first().map(|prefix| &prefix.place);
            let place = match error.key {
                "ports" => Some(&pool.ports.place),
                "ports_per_subscriber" => shares.each.as_ref().map(|each| &each.place),
                "dynamic_ports" => shares.dynamic.as_ref().map(|dynamic| &dynamic.place),
                _ => listed.or(common),
            };
            report.wrong(place.unwrap_or_else(|| draft.kind_place(pool)), error.message);
            return;
        }
    };
    if plan.dynamic().is_none() {
        quota_is_reached(draft, plan.ports_per_subscriber().into(), pool, report);
    }
    ports_are_enough(draft, pool, &plan, report);
    everybody_is_served(draft, pool, &plan, report);
    rules_send_members(draft, pool, &plan, report);
    statics_take_nobodys(draft, &plan, report);
}

/// Warns of subscribers with ports for a few sessions only.
fn ports_are_enough(draft: &Draft, pool: &PoolDraft, plan: &Plan, report: &Report<'_>) {
    let dynamic = plan.dynamic().map_or(0, |(first, last)| u32::from(last - first) + 1);
    let share_of_dynamic = dynamic / plan.subscribers_per_address().max(1);
    let each = plan.ports_per_subscriber();
    if each + share_of_dynamic >= FEW_PORTS {
        return;
    }
    let name = &pool.name.value;
    let ports = if each == 1 { "1 port".to_owned() } else { format!("{each} ports") };
    let dynamic = match share_of_dynamic {
        0 => String::new(),
        more => format!(" and {more} dynamic ones on average"),
    };
    let message = format!("pool \"{name}\" leaves each subscriber {ports}{dynamic}");
    let why = format!("fewer than {FEW_PORTS}, and one web page may take dozens");
    let remedy = "the examples of RFC 7422 have 1000 and more; add addresses, or name fewer \
                  subscribers";
    let place = shares_place(draft, pool);
    report.unwise(place, format!("{message}: {why}; {remedy}"));
}

/// The place of the number of ports per subscriber, or of the allocation.
fn shares_place<'d>(draft: &'d Draft, pool: &'d PoolDraft) -> &'d Place {
    match &pool.shares.each {
        Some(each) => &each.place,
        None => draft.kind_place(pool),
    }
}

/// Warns of a rule that sends subscribers to a pool without ports for them.
fn rules_send_members(draft: &Draft, pool: &PoolDraft, plan: &Plan, report: &Report<'_>) {
    let (names, targets) = (draft.realm_names(), draft.targets());
    let number = draft.pools.iter().position(|one| std::ptr::eq(one, pool));
    let config = draft.plan(pool);
    for rule in draft.rules.iter().filter(|rule| targets.of(&rule.action) == number) {
        // A pool of another realm is reported elsewhere.
        if names.of(&rule.realm) != Some(plan.realm()) {
            continue;
        }
        let sent = match rule.looks_at() {
            (true, prefix, _) => vec![prefix],
            (false, ..) => {
                let all = draft.subscribers_of(plan.realm());
                all.iter().map(|prefix| prefix.value).collect()
            }
        };
        for prefix in sent {
            let others = size_of(prefix).saturating_sub(in_common(prefix, &config.subscribers));
            if others == 0 {
                continue;
            }
            let (shown, name) = (show_prefix(prefix), &pool.name.value);
            let members: Vec<String> =
                config.subscribers.iter().take(3).map(|prefix| show_prefix(*prefix)).collect();
            let more = if config.subscribers.len() > 3 { ", ..." } else { "" };
            let members = format!("{}{more}", members.join(", "));
            let who = match others == size_of(prefix) {
                true => format!("no address of {shown} is"),
                false => format!("{others} addresses of {shown} are not"),
            };
            let message = format!("{who} among the subscribers of deterministic pool \"{name}\"");
            let remedy = "name another pool, or add the prefix to the pool's subscribers";
            match plan.dynamic() {
                Some(_) => {
                    let fate = "they get dynamic ports only";
                    report.unwise(&rule.matches.place, format!("{message} ({members}): {fate}"));
                }
                None if others == size_of(prefix) => {
                    let fate = "the rule translates nobody";
                    let message = format!("{message} ({members}): {fate}; {remedy}");
                    report.wrong(&rule.matches.place, message);
                }
                None => {
                    let fate = "they get no port";
                    let message = format!("{message} ({members}): {fate}; {remedy}");
                    report.unwise(&rule.matches.place, message);
                }
            }
        }
    }
}

fn size_of(prefix: Prefix) -> u64 {
    u64::from(prefix.last() - prefix.first()) + 1
}

/// Number of a prefix's addresses in `others`, which do not overlap.
fn in_common(prefix: Prefix, others: &[Prefix]) -> u64 {
    let common = others.iter().filter(|one| overlaps_prefix(**one, prefix));
    common.map(|one| size_of(*one).min(size_of(prefix))).sum()
}

/// Warns of a static mapping of a whole address that takes the ports of a deterministic pool's
/// subscribers.
fn statics_take_nobodys(draft: &Draft, plan: &Plan, report: &Report<'_>) {
    for fixed in draft.statics.iter().filter(|fixed| fixed.external.value.1.is_none()) {
        let address = fixed.external.value.0;
        let owners = (1..=u16::MAX).filter_map(|port| plan.reverse(address, port));
        let mut owners: Vec<_> = owners.collect();
        owners.dedup();
        if let (Some(first), count @ 1..) = (owners.first(), owners.len()) {
            let message = format!("takes the ports that {count} subscribers have of {address}");
            let message = format!("{message}, {first} the first of them");
            report.unwise(&fixed.external.place, message);
        }
    }
}

/// Warns of a default pool without ports for some subscribers.
fn everybody_is_served(draft: &Draft, pool: &PoolDraft, plan: &Plan, report: &Report<'_>) {
    let Some(listed) = &pool.shares.subscribers else { return };
    if draft.pools.get(draft.default_pool()).is_none_or(|one| one.name.value != pool.name.value) {
        return;
    }
    for subscribers in draft.subscribers_of(plan.realm()) {
        let own = in_common(subscribers.value, &listed.value);
        let others = size_of(subscribers.value).saturating_sub(own);
        if others > 0 {
            let shown = show_prefix(subscribers.value);
            let message = format!(
                "pool.subscribers lacks {others} addresses of {shown}, which nat.subscribers has"
            );
            let fate = match plan.dynamic() {
                Some(_) => "they get dynamic ports only",
                None => "they get no port of this pool",
            };
            report.unwise(&listed.place, format!("{message}; {fate}"));
        }
    }
}
