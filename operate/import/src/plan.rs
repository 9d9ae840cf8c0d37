//! The future configuration of natgate, as the readers of other formats build it.
//!
//! [`Plan::settle`] establishes natgate's requirements: pools overlap neither each other nor the
//! subscribers, static mappings do not overlap, and the order of rules is expressed by priorities.
//! A line that gives way becomes a remark.

use crate::address::{Ports, Range};
use crate::plan6::Plan6;
use crate::softwires::Softwires;
use crate::{Hints, ImportError, order};
use std::collections::{BTreeMap, HashMap};

/// Longest excerpt of a line in a remark, characters.
const LONGEST_EXCERPT: usize = 160;

/// Most characters of the comment of a rule. nft permits 128 bytes.
const LONGEST_COMMENT: usize = 256;

/// Most static mappings and rules of one file.
pub(crate) const MOST_ENTRIES: usize = 20_000;

/// Result for one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// natgate does something different in its place.
    Differs,
    /// The line has no equivalent.
    Without,
    /// The line has no equivalent, and other hosts are translated, or pass, than before.
    Lost,
}

/// A remark on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Number of the line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Text of the line, or its beginning.
    pub text: String,
    /// Result for the line.
    pub grade: Grade,
    /// Reason, and advice.
    pub message: String,
}

/// Origin of an entry in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origin {
    pub(crate) line: usize,
    pub(crate) text: String,
}

impl Origin {
    pub(crate) fn new(line: usize, text: &str) -> Self {
        let mut all = text.trim().chars().map(|one| if one.is_control() { ' ' } else { one });
        let mut text: String = all.by_ref().take(LONGEST_EXCERPT).collect();
        if all.next().is_some() {
            text += " ...";
        }
        Self { line, text }
    }

    /// The origin of an entry that has a comment of its own. The comment comes first and is not
    /// shortened, unless it is longer than any program permits.
    pub(crate) fn with_comment(line: usize, comment: Option<&str>, text: &str) -> Self {
        let own = Self::new(line, text);
        let Some(comment) = comment else { return own };
        let plain = |one: char| if one.is_control() { ' ' } else { one };
        let comment: String = comment.chars().take(LONGEST_COMMENT).map(plain).collect();
        Self { line, text: format!("comment \"{comment}\": {}", own.text) }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    pub(crate) device: Option<String>,
    /// An address with the length of its prefix.
    pub(crate) address: Option<(u32, u8)>,
    pub(crate) gateway: Option<u32>,
    /// An IPv6 address with the length of its prefix.
    pub(crate) address6: Option<(u128, u8)>,
    pub(crate) gateway6: Option<u128>,
    /// Further keys with values in TOML.
    pub(crate) keys: BTreeMap<&'static str, String>,
}

impl Side {
    /// True if the file names an address or a router of IPv6 there.
    pub(crate) fn has_ipv6(&self) -> bool {
        self.address6.is_some() || self.gateway6.is_some()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) addresses: Vec<Range>,
    pub(crate) ports: Option<Ports>,
    /// Subscribers of a deterministic pool.
    pub(crate) subscribers: Vec<Range>,
    pub(crate) origin: Origin,
}

/// Directions of a static mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Both,
    Inbound,
    Outbound,
}

#[derive(Clone, Debug)]
pub(crate) struct Static {
    pub(crate) internal: (u32, Option<Ports>),
    /// Further servers with weights; then `internal` is not used.
    pub(crate) servers: Vec<(u32, u16, u16)>,
    /// `None` means the gateway's own outside address.
    pub(crate) external: (Option<u32>, Option<Ports>),
    pub(crate) protocol: Option<&'static str>,
    pub(crate) way: Way,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Translation from the pool with this number.
    Snat(usize),
    /// Translation from one address of a pool.
    Address(u32),
    Bypass,
    Drop,
    Dnat(u32, Option<u16>),
}

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) kind: Kind,
    /// True if the rule matches the source; false for the destination.
    pub(crate) is_source: bool,
    /// A prefix.
    pub(crate) prefix: Range,
    /// 0 means any port.
    pub(crate) port: u16,
    pub(crate) priority: i32,
    /// Place among all rules: the first match decides.
    pub(crate) place: usize,
    pub(crate) origin: Origin,
}

/// All entries of the future configuration.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) inside: Side,
    pub(crate) outside: Side,
    pub(crate) pools: Vec<Pool>,
    pub(crate) subscribers: Vec<Range>,
    pub(crate) statics: Vec<Static>,
    pub(crate) rules: Vec<Rule>,
    /// Keys of `[nat]`, `[timeouts]`, `[limits]` with values in TOML.
    pub(crate) nat: BTreeMap<&'static str, String>,
    pub(crate) timeouts: BTreeMap<&'static str, String>,
    pub(crate) limits: BTreeMap<&'static str, String>,
    pub(crate) remarks: Vec<Remark>,
    /// External addresses for rules that say "the address of the outside's device".
    pub(crate) external: Vec<Range>,
    /// Place of the rules that are added now.
    pub(crate) place: usize,
    /// True while lines are read that decide which hosts are translated.
    pub(crate) decides: bool,
    /// True if `external` is a placeholder.
    pub(crate) is_made_up: bool,
    /// Ports of all pools, if the file sets them for all together.
    pub(crate) nat_ports: Option<Ports>,
    pub(crate) ipv6: Plan6,
    pub(crate) softwires: Softwires,
}

/// An address for documentation (RFC 5737), which no host has.
const NOBODY: u32 = 0xc000_0201;

impl Plan {
    pub(crate) fn new(hints: &Hints) -> Result<Self, ImportError> {
        let mut plan = Self { is_made_up: true, ..Self::default() };
        plan.inside.device.clone_from(&hints.inside);
        plan.outside.device.clone_from(&hints.outside);
        if let Some(text) = &hints.external {
            let range = Range::parse(text).filter(|range| range.is_usable());
            plan.external.push(range.ok_or_else(|| ImportError::External(text.clone()))?);
            plan.is_made_up = false;
        }
        Ok(plan)
    }

    pub(crate) fn differs(&mut self, origin: &Origin, message: impl Into<String>) {
        self.remark(origin, Grade::Differs, message.into());
    }

    /// Remarks that there is no equivalent. If [`Self::decides`] is set, the line counts as lost.
    pub(crate) fn without(&mut self, origin: &Origin, message: impl Into<String>) {
        let grade = if self.decides { Grade::Lost } else { Grade::Without };
        self.remark(origin, grade, message.into());
    }

    /// Remarks that there is no equivalent, and other hosts are translated, or pass, than before.
    pub(crate) fn lost(&mut self, origin: &Origin, message: impl Into<String>) {
        self.remark(origin, Grade::Lost, message.into());
    }

    /// Remarks that there is no equivalent, and none is needed.
    pub(crate) fn unneeded(&mut self, origin: &Origin, message: impl Into<String>) {
        self.remark(origin, Grade::Without, message.into());
    }

    fn remark(&mut self, origin: &Origin, grade: Grade, message: String) {
        let Origin { line, text } = origin.clone();
        let remark = Remark { line, text, grade, message };
        // One sentence is enough for a line with sets.
        if self.remarks.iter().rev().take(8).all(|known| *known != remark) {
            self.remarks.push(remark);
        }
    }

    /// Addresses for a rule that says "the address of the outside's device".
    pub(crate) fn own_addresses(&mut self, origin: &Origin) -> Vec<Range> {
        if self.external.is_empty() {
            let known = self.outside.address.map(|(address, _)| address);
            self.is_made_up = known.is_none();
            self.external.push(Range::of(known.unwrap_or(NOBODY)));
        }
        if self.is_made_up {
            let device = self.outside.device.as_deref().unwrap_or("the outside's device");
            let message = format!(
                "stands for the address of {device}, which the file does not say: {} is written in \
                 its place; edit it, or give --external ADDRESS",
                self.external[0]
            );
            self.differs(origin, message);
        }
        self.external.clone()
    }

    /// Number of the pool with these addresses and ports; creates it if it does not exist.
    pub(crate) fn pool(
        &mut self,
        addresses: &[Range],
        ports: Option<Ports>,
        origin: &Origin,
    ) -> usize {
        let same = |pool: &Pool| pool.addresses == addresses;
        if let Some(number) = self.pools.iter().position(same) {
            let known = &self.pools[number];
            if known.ports != ports {
                let message = format!(
                    "has ports of its own: a pool's serve all protocols, and line {} has said \
                     which",
                    known.origin.line
                );
                self.differs(origin, message);
            }
            return number;
        }
        let name = match self.pools.len() {
            0 => "default".to_owned(),
            number => format!("pool-{}", number + 1),
        };
        let (addresses, origin) = (addresses.to_vec(), origin.clone());
        self.pools.push(Pool { name, addresses, ports, subscribers: Vec::new(), origin });
        self.pools.len() - 1
    }

    /// True if there is room for another entry; otherwise one remark says so.
    pub(crate) fn has_room(&mut self, origin: &Origin) -> bool {
        let full = self.statics.len() + self.rules.len() >= MOST_ENTRIES;
        if full {
            let message = format!("is one more than the {MOST_ENTRIES} entries that are imported");
            if self.remarks.last().is_none_or(|last| last.message != message) {
                self.without(origin, message);
            }
        }
        !full
    }

    /// True if nothing that is translated needs a pool.
    fn needs_no_pool(&self) -> bool {
        let (siit, softwires) = (self.ipv6.needs_no_pool(), self.softwires.needs_no_pool());
        let others = self.ipv6.stateful.is_empty() && self.softwires.aftr.is_none();
        let is_tunneled = softwires && self.statics.is_empty() && self.rules.is_empty();
        others && (siit || is_tunneled)
    }

    /// Establishes natgate's requirements.
    pub(crate) fn settle(&mut self) {
        self.settle6();
        self.settle_subscribers();
        self.settle_pools();
        self.settle_sides();
        self.settle_statics();
        self.settle_softwires();
        order::settle(self);
    }

    fn settle_subscribers(&mut self) {
        self.subscribers.sort_unstable();
        let mut kept: Vec<Range> = Vec::new();
        for range in self.subscribers.drain(..) {
            if !kept.iter().any(|known| known.contains(range)) {
                kept.push(range);
            }
        }
        self.subscribers = kept;
    }

    fn settle_pools(&mut self) {
        let mut remarks = Vec::new();
        let mut taken: Vec<Range> = Vec::new();
        for pool in &mut self.pools {
            let mut own = Vec::new();
            for range in std::mem::take(&mut pool.addresses) {
                let mut left = vec![range];
                for other in taken.iter().chain(&own) {
                    left = left.into_iter().flat_map(|part: Range| part.without(*other)).collect();
                }
                own.extend(left);
            }
            if own.is_empty() {
                let message = "has no address of its own: another pool has them all, and pools do \
                               not overlap";
                remarks.push((pool.origin.clone(), message.to_owned()));
            }
            taken.extend(&own);
            pool.addresses = own;
        }
        for (origin, message) in remarks {
            self.differs(&origin, message);
        }
        self.merge_empty_pools();
        if self.pools.is_empty() && !self.needs_no_pool() {
            let origin = Origin::default();
            let addresses = self.own_addresses(&origin);
            self.pool(&addresses, None, &origin);
        }
        self.keep_subscribers_apart();
    }

    /// Removes empty pools; rules for them get the first pool that is left.
    fn merge_empty_pools(&mut self) {
        let old = std::mem::take(&mut self.pools);
        let mut numbers = HashMap::new();
        for (number, pool) in old.into_iter().enumerate() {
            if !pool.addresses.is_empty() {
                numbers.insert(number, self.pools.len());
                self.pools.push(pool);
            }
        }
        for rule in &mut self.rules {
            if let Kind::Snat(number) = &mut rule.kind {
                *number = numbers.get(number).copied().unwrap_or(0);
            }
        }
        if let Some(first) = self.pools.first_mut() {
            first.name = "default".to_owned();
        }
    }

    /// Separates subscribers from external addresses.
    fn keep_subscribers_apart(&mut self) {
        const PRIVATE: [(u32, u8); 4] =
            [(0x0a00_0000, 8), (0xac10_0000, 12), (0xc0a8_0000, 16), (0x6440_0000, 10)];
        let pools: Vec<Range> = self.pools.iter().flat_map(|pool| pool.addresses.clone()).collect();
        let is_apart = |range: &Range| !pools.iter().any(|pool| pool.overlaps(*range));
        let private = PRIVATE.map(|(address, len)| Range::prefix(address, len));
        if self.subscribers.is_empty() {
            if private.iter().all(is_apart) {
                return;
            }
            self.subscribers = private.into_iter().filter(is_apart).collect();
            let message = "an external address is private: nat.subscribers has the private \
                           networks that it is not in; edit it";
            return self.differs(&Origin::default(), message);
        }
        for range in std::mem::take(&mut self.subscribers) {
            if is_apart(&range) {
                self.subscribers.push(range);
                continue;
            }
            let mut left = vec![range];
            for pool in &pools {
                left = left.into_iter().flat_map(|part: Range| part.without(*pool)).collect();
            }
            let message = format!(
                "{range} is subscribers' and has external addresses in it: those are left out of \
                 nat.subscribers"
            );
            self.differs(&Origin::default(), message);
            self.subscribers.extend(left.into_iter().flat_map(Range::prefixes));
        }
    }

    /// Keeps a side's address and gateway if natgate accepts them.
    fn settle_sides(&mut self) {
        let pools: Vec<Range> = self.pools.iter().flat_map(|pool| pool.addresses.clone()).collect();
        let is_external = |address: u32| pools.iter().any(|pool| pool.contains(Range::of(address)));
        let mut lost = Vec::new();
        if let Some((address, _)) = self.inside.address.filter(|(address, _)| is_external(*address))
        {
            self.inside.address = None;
            lost.push(address);
        }
        let networks = [&self.inside, &self.outside].map(|side| side.address);
        if let [Some((inner, inner_len)), Some((outer, outer_len))] = networks
            && Range::prefix(inner, inner_len).overlaps(Range::prefix(outer, outer_len))
        {
            self.inside.address = None;
            lost.push(inner);
        }
        for side in [&mut self.inside, &mut self.outside] {
            let usable = side.address.filter(|(address, _)| Range::of(*address).is_usable());
            side.address = usable;
            let network = side.address.map(|(address, len)| Range::prefix(address, len));
            let hop = side.gateway.map(Range::of);
            let fits = network.zip(hop).is_some_and(|(network, hop)| network.contains(hop));
            if !fits || side.gateway.is_some_and(is_external) {
                lost.extend(side.gateway.take());
            }
        }
        for address in lost {
            let message = format!(
                "{} is left out: it is external, or both sides', or in no network of the outside's",
                Range::of(address)
            );
            self.differs(&Origin::default(), message);
        }
    }

    /// Merges mappings of one endpoint in both directions; leaves out conflicting ones.
    fn settle_statics(&mut self) {
        let unsaid = self.statics.iter().find(|fixed| fixed.external.0.is_none());
        let own =
            unsaid.map(|fixed| fixed.origin.clone()).map_or(0, |origin| self.own_external(&origin));
        let mut kept: Vec<Static> = Vec::new();
        let mut by_external: HashMap<u32, Vec<usize>> = HashMap::new();
        for mut fixed in std::mem::take(&mut self.statics) {
            let address = *fixed.external.0.get_or_insert(own);
            let places = by_external.entry(address).or_default();
            let rival = places.iter().copied().find(|place| kept[*place].overlaps(&fixed));
            let Some(rival) = rival else {
                places.push(kept.len());
                kept.push(fixed);
                continue;
            };
            let known = &mut kept[rival];
            if known.is_same(&fixed) {
                if known.way != fixed.way {
                    known.way = Way::Both;
                }
                continue;
            }
            let message = format!(
                "never applies: line {} has that external endpoint already",
                known.origin.line
            );
            self.without(&fixed.origin, message);
        }
        self.statics = kept;
        self.settle_internal();
    }

    /// External address of the outside itself: the configured one, otherwise the first address of
    /// the pools.
    fn own_external(&mut self, origin: &Origin) -> u32 {
        let first = self.pools.first().and_then(|pool| pool.addresses.first());
        match (self.external.first(), first) {
            (Some(own), _) => own.first,
            (None, Some(pool)) => {
                let pool = *pool;
                if pool.single().is_none() || self.pools.len() > 1 {
                    let message = format!(
                        "says no external address, nor do other lines like it: they have {}, the \
                         first of the pool",
                        Range::of(pool.first)
                    );
                    self.differs(origin, message);
                }
                pool.first
            }
            (None, None) => NOBODY,
        }
    }

    /// Leaves out mappings that share an internal endpoint, unless each has one direction.
    fn settle_internal(&mut self) {
        let mut seen: HashMap<u32, Vec<usize>> = HashMap::new();
        for place in 0..self.statics.len() {
            let (address, ports) = self.statics[place].internal;
            if self.statics[place].way == Way::Inbound || !self.statics[place].servers.is_empty() {
                continue;
            }
            let places = seen.entry(address).or_default();
            let overlaps = |other: &usize| {
                let other = &self.statics[*other];
                ports.zip(other.internal.1).is_none_or(|(own, other)| own.overlaps(other))
                    && has_common(self.statics[place].protocol, other.protocol)
            };
            if places.iter().any(overlaps) {
                let origin = self.statics[place].origin.clone();
                self.statics[place].way = Way::Inbound;
                let message =
                    "is for what comes in only: another mapping has the internal endpoint already";
                self.differs(&origin, message);
            } else {
                places.push(place);
            }
        }
    }
}

/// True if a protocol matches both.
fn has_common(one: Option<&str>, other: Option<&str>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

impl Static {
    fn overlaps(&self, other: &Self) -> bool {
        has_common(self.protocol, other.protocol)
            && self.external.1.zip(other.external.1).is_none_or(|(own, other)| own.overlaps(other))
    }

    fn is_same(&self, other: &Self) -> bool {
        self.internal == other.internal
            && self.external.1 == other.external.1
            && self.protocol == other.protocol
            && self.servers == other.servers
    }
}
