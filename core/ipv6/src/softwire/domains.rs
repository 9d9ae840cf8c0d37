//! All mapping rules of MAP in one table. The longest prefix wins, for IPv4 and for IPv6.
//!
//! A lookup asks a hash table once for each length of prefix that there is, the longest first.
//! Rules nearly always have one length, so a lookup touches a line of the hash table and the line
//! of the rule. The first half of an IPv4 address says of most addresses of others that no rule has
//! them.

use super::halves::FirstHalves;
use super::rule::{Arithmetic, MapMode, MapRule};
use crate::Pref64;
use crate::keyed::{Index, hash};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use natgate_engine::{HashKey, Prefix, prefetch};

/// Two rules contradict each other. Rules are named by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleConflict {
    /// The two have one IPv4 prefix, and not each an own port set.
    Ipv4(usize, usize),
    /// The two have one IPv6 prefix.
    Ipv6(usize, usize),
    /// The two divide the ports of one address in different ways.
    Divided(usize, usize),
}

/// What packets need of a rule: one line of memory.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(crate) struct RuleLine {
    pub(crate) arithmetic: Arithmetic,
    /// Place of the rule's mode among those of all rules.
    mode: u32,
    /// A number that the user of the table gives the rule.
    pub(crate) group: u16,
}

const _: () = assert!(size_of::<RuleLine>() == 64);

/// The first halves of the IPv4 addresses that rules have.
fn halves(rules: &[MapRule]) -> FirstHalves {
    let halves = FirstHalves::none();
    for rule in rules {
        let (first, len) = (rule.parameters().ipv4.first(), rule.parameters().ipv4.len());
        halves.add(first, (u64::from(first) | ((1_u64 << (32 - len)) - 1)) as u32);
    }
    halves
}

/// The rules of all domains.
#[derive(Clone, Debug)]
pub struct Domains {
    rules: Vec<MapRule>,
    /// The same, for packets.
    lines: Vec<RuleLine>,
    /// The modes of the rules, each once.
    modes: Vec<MapMode>,
    halves: FirstHalves,
    key: HashKey,
    /// Lengths of IPv4 prefixes, the longest first, and rules by prefix.
    lengths4: Vec<u8>,
    by_ipv4: Index,
    /// Lengths of IPv6 prefixes, the longest first, and rules by prefix.
    lengths6: Vec<u8>,
    by_ipv6: Index,
    /// Addresses of border relays, ascending.
    brs: Vec<u128>,
    /// Prefixes of default mapping rules, ascending.
    dmrs: Vec<Pref64>,
}

/// The lines of rules, and their modes.
fn lines(rules: &[MapRule]) -> (Vec<RuleLine>, Vec<MapMode>) {
    let mut modes = Vec::new();
    let mut places = BTreeMap::new();
    let line = |rule: &MapRule| {
        let mode = rule.parameters().mode;
        let key = match mode {
            MapMode::Encapsulation(br) => (br, 0),
            // A prefix of no bits is no default mapping rule's.
            MapMode::Translation(dmr) => (dmr.prefix().first(), dmr.prefix().len),
        };
        let place = *places.entry(key).or_insert_with(|| {
            modes.push(mode);
            modes.len() as u32 - 1
        });
        RuleLine { arithmetic: *rule.arithmetic(), mode: place, group: 0 }
    };
    (rules.iter().map(line).collect(), modes)
}

fn lengths(all: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut lengths: Vec<u8> = all.collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths.dedup();
    lengths
}

/// The value under which a prefix of IPv4 is found; with a port set, that of one customer.
fn value4(first: u32, len: u8, psid: Option<u16>) -> u128 {
    let psid = psid.map_or(0, |psid| u128::from(psid) + 1);
    psid << 40 | u128::from(len) << 32 | u128::from(first)
}

fn first4(ipv4: u32, len: u8) -> u32 {
    (u64::from(ipv4) >> (32 - len) << (32 - len)) as u32
}

fn first6(address: u128, len: u8) -> u128 {
    address & !crate::Prefix6::host_bits(len)
}

impl Domains {
    /// The rules in one table. The seed keeps outsiders from choosing addresses that collide.
    ///
    /// # Errors
    /// The first [`RuleConflict`].
    pub fn new(rules: &[MapRule], seed: [u8; 32]) -> Result<Self, RuleConflict> {
        let mut brs = Vec::new();
        let mut dmrs: Vec<Pref64> = Vec::new();
        for rule in rules {
            match rule.parameters().mode {
                MapMode::Encapsulation(br) => brs.push(br.to_bits()),
                MapMode::Translation(dmr) => dmrs.push(dmr),
            }
        }
        brs.sort_unstable();
        brs.dedup();
        dmrs.sort_unstable_by_key(|dmr| dmr.prefix().first());
        dmrs.dedup();
        let (lines, modes) = lines(rules);
        let mut domains = Self {
            rules: rules.to_vec(),
            lines,
            modes,
            halves: halves(rules),
            key: HashKey::from_seed(seed, 0x6d61_7065),
            lengths4: lengths(rules.iter().map(|rule| rule.parameters().ipv4.len())),
            by_ipv4: Index::new(2 * rules.len()),
            lengths6: lengths(rules.iter().map(|rule| rule.parameters().ipv6.len)),
            by_ipv6: Index::new(rules.len()),
            brs,
            dmrs,
        };
        (0..rules.len()).try_for_each(|place| domains.add(place))?;
        Ok(domains)
    }

    fn add(&mut self, place: usize) -> Result<(), RuleConflict> {
        let rule = self.rules[place];
        let Prefix6Key { first, len } = Prefix6Key::of(&rule);
        if let Some(other) = self.of_prefix6(first, len) {
            return Err(RuleConflict::Ipv6(other, place));
        }
        self.by_ipv6.insert(hash(self.key, first ^ u128::from(len)), place as u32);
        let ipv4 = rule.parameters().ipv4;
        let other = self.of_prefix4(ipv4.first(), ipv4.len());
        if let (Some(other), Some(own)) = (other, rule.own_psid())
            && self.rules[other].own_psid().is_some()
        {
            if self.rules[other].sets() != rule.sets() {
                return Err(RuleConflict::Divided(other, place));
            }
            if let Some(same) = self.of_set(ipv4, own) {
                return Err(RuleConflict::Ipv4(same, place));
            }
        } else if let Some(other) = other {
            return Err(RuleConflict::Ipv4(other, place));
        } else {
            self.insert4(value4(ipv4.first(), ipv4.len(), None), place);
        }
        if let Some(own) = rule.own_psid() {
            self.insert4(value4(ipv4.first(), ipv4.len(), Some(own)), place);
        }
        Ok(())
    }

    fn insert4(&mut self, value: u128, place: usize) {
        self.by_ipv4.insert(hash(self.key, value), place as u32);
    }

    /// A rule with an IPv4 prefix.
    #[inline]
    fn of_prefix4(&self, first: u32, len: u8) -> Option<usize> {
        let is_it = |place: u32| {
            let rule = &self.lines[place as usize].arithmetic;
            (rule.ipv4, rule.ipv4_len) == (first, len)
        };
        let hash = hash(self.key, value4(first, len, None));
        self.by_ipv4.find(hash, is_it).map(|place| place as usize)
    }

    /// The rule that gives a port set of an address to its only customer.
    fn of_set(&self, ipv4: Prefix, psid: u16) -> Option<usize> {
        let is_it = |place: u32| {
            let rule = &self.rules[place as usize];
            rule.parameters().ipv4 == ipv4 && rule.own_psid() == Some(psid)
        };
        let hash = hash(self.key, value4(ipv4.first(), ipv4.len(), Some(psid)));
        self.by_ipv4.find(hash, is_it).map(|place| place as usize)
    }

    #[inline]
    fn of_prefix6(&self, first: u128, len: u8) -> Option<usize> {
        let is_it = |place: u32| {
            let rule = &self.lines[place as usize].arithmetic;
            (rule.ipv6, rule.ipv6_len) == (first, len)
        };
        let hash = hash(self.key, first ^ u128::from(len));
        self.by_ipv6.find(hash, is_it).map(|place| place as usize)
    }

    /// The rules, in the order in which they were given.
    pub fn rules(&self) -> &[MapRule] {
        &self.rules
    }

    /// What packets need of the rule at a place.
    #[inline]
    pub(crate) fn line(&self, place: usize) -> &RuleLine {
        &self.lines[place]
    }

    /// The treatment of the packets of the rule at a place.
    #[inline]
    pub(crate) fn mode(&self, place: usize) -> MapMode {
        self.modes[self.lines[place].mode as usize]
    }

    /// Gives each rule the number of a group.
    pub(crate) fn set_groups(&mut self, groups: impl Iterator<Item = u16>) {
        self.lines.iter_mut().zip(groups).for_each(|(line, group)| line.group = group);
    }

    /// True if there is no rule.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// False if certainly no rule has an IPv4 address.
    #[inline]
    pub(crate) fn may_have(&self, ipv4: u32) -> bool {
        self.halves.may_have(ipv4)
    }

    /// The place of the rule with the longest IPv4 prefix that has an address. If several rules
    /// give port sets of the address, it is one of them.
    //= rfc7597#section-5-longest
    #[inline]
    pub fn find(&self, ipv4: u32) -> Option<usize> {
        if !self.halves.may_have(ipv4) {
            return None;
        }
        match self.lengths4[..] {
            // Most tables.
            [len] => self.of_prefix4(first4(ipv4, len), len),
            _ => self.lengths4.iter().find_map(|&len| self.of_prefix4(first4(ipv4, len), len)),
        }
    }

    /// The hashes by which the rule of an IPv4 address, or of an IPv6 address, is found, if its
    /// prefix is of the greatest length.
    #[inline]
    pub(crate) fn hashes(&self, ipv4: Option<u32>, ipv6: Option<u128>) -> [Option<u64>; 2] {
        let by_ipv4 = |(ipv4, &len)| hash(self.key, value4(first4(ipv4, len), len, None));
        let by_ipv6 = |(ipv6, &len)| hash(self.key, first6(ipv6, len) ^ u128::from(len));
        [ipv4.zip(self.lengths4.first()).map(by_ipv4), ipv6.zip(self.lengths6.first()).map(by_ipv6)]
    }

    /// Starts to fetch the places of hashes in the indexes.
    #[inline]
    pub(crate) fn approach(&self, [by_ipv4, by_ipv6]: [Option<u64>; 2]) {
        by_ipv4.into_iter().for_each(|hash| self.by_ipv4.prefetch(hash));
        by_ipv6.into_iter().for_each(|hash| self.by_ipv6.prefetch(hash));
    }

    /// Starts to fetch the rules with hashes that have been approached a while ago. Returns their
    /// likely places.
    #[inline]
    pub(crate) fn fetch(&self, [by_ipv4, by_ipv6]: [Option<u64>; 2]) -> [Option<usize>; 2] {
        let places = [
            by_ipv4.and_then(|hash| self.by_ipv4.likely_place(hash)),
            by_ipv6.and_then(|hash| self.by_ipv6.likely_place(hash)),
        ];
        for place in places.into_iter().flatten() {
            prefetch(&self.lines, place);
        }
        places
    }

    /// The place of the rule whose customer has an address and a port set. `place` is what
    /// [`Domains::find`] says about the address.
    #[inline]
    pub fn of_customer(&self, place: usize, psid: u16) -> Option<usize> {
        match self.lines[place].arithmetic.own_psid {
            None => Some(place),
            Some(own) if own == psid => Some(place),
            Some(_) => self.of_set(self.rules[place].parameters().ipv4, psid),
        }
    }

    /// True if a customer's packets to its IPv4 address are found by the rule at a place, which has
    /// the address. A rule with a longer prefix may have the address, too.
    #[inline]
    pub(crate) fn is_found(&self, place: usize, ipv4: u32, psid: u16) -> bool {
        let nested = self.lengths4.len() > 1;
        let found = || self.find(ipv4).and_then(|found| self.of_customer(found, psid));
        !nested || found() == Some(place)
    }

    /// The place of the rule with the longest IPv6 prefix that has an address.
    #[inline]
    pub fn find6(&self, address: u128) -> Option<usize> {
        match self.lengths6[..] {
            [len] => self.of_prefix6(first6(address, len), len),
            _ => self.lengths6.iter().find_map(|&len| self.of_prefix6(first6(address, len), len)),
        }
    }

    /// True if a customer has an IPv6 address.
    pub fn has_customer(&self, address: u128) -> bool {
        let has = |place: usize| self.line(place).arithmetic.customer_of(address).is_some();
        self.lengths6.iter().any(|&len| self.of_prefix6(first6(address, len), len).is_some_and(has))
    }

    /// True if an address is that of a border relay.
    #[inline]
    pub fn is_br(&self, address: u128) -> bool {
        match &self.brs[..] {
            [one] => *one == address,
            brs => brs.binary_search(&address).is_ok(),
        }
    }

    /// The default mapping rule's prefix that has an address. No two of them overlap.
    #[inline]
    pub fn dmr(&self, address: u128) -> Option<Pref64> {
        let address = Ipv6Addr::from_bits(address);
        if let [one] = &self.dmrs[..] {
            return one.contains(address).then_some(*one);
        }
        let after = self.dmrs.partition_point(|dmr| dmr.prefix().first() <= address);
        let dmr = *self.dmrs.get(after.checked_sub(1)?)?;
        dmr.contains(address).then_some(dmr)
    }

    /// Addresses of border relays, ascending.
    pub fn brs(&self) -> &[u128] {
        &self.brs
    }

    /// Prefixes of default mapping rules, ascending.
    pub fn dmrs(&self) -> &[Pref64] {
        &self.dmrs
    }
}

/// An IPv6 prefix as a key.
struct Prefix6Key {
    first: u128,
    len: u8,
}

impl Prefix6Key {
    fn of(rule: &MapRule) -> Self {
        let ipv6 = rule.parameters().ipv6;
        Self { first: ipv6.first().to_bits(), len: ipv6.len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Prefix6;
    use crate::softwire::rule::MapParameters;

    fn rule(ipv6: (u128, u8), ipv4: (u32, u8), ea_length: u8, psid: Option<(u8, u16)>) -> MapRule {
        MapRule::new(MapParameters {
            ipv6: Prefix6 { address: Ipv6Addr::from_bits(ipv6.0), len: ipv6.1 },
            ipv4: Prefix::new(ipv4.0.into(), ipv4.1),
            ea_length,
            psid_offset: 4,
            psid,
            mode: MapMode::Encapsulation(Ipv6Addr::LOCALHOST),
        })
        .expect("parameters that fit")
    }

    const NET: u128 = 0x2001_0db8 << 96;

    //= test rfc7597#section-5-longest
    #[test]
    fn the_longest_prefix_wins() {
        let rules = [
            rule((NET, 40), (0xc000_0000, 8), 24, None),
            rule((NET | 1 << 88, 40), (0xc000_0200, 24), 16, None),
            rule((NET | 1 << 80, 48), (0xc000_0207, 32), 0, None),
        ];
        let domains = Domains::new(&rules, [1; 32]).expect("prefixes that differ");
        assert_eq!(domains.find(0xc000_0207), Some(2));
        assert_eq!(domains.find(0xc000_0208), Some(1));
        assert_eq!(domains.find(0xc100_0208), None);
        assert_eq!(domains.find(0xc0ff_0208), Some(0));
        assert_eq!(domains.find6(NET | 1 << 80 | 5), Some(2));
        assert_eq!(domains.find6(NET | 1 << 81), Some(0));
        assert_eq!(domains.find6(NET | 1 << 88 | 9), Some(1));
        assert_eq!(domains.find6(NET | 1 << 90), None);
        assert!(domains.is_br(1) && !domains.is_br(2) && domains.dmr(5).is_none());
    }

    #[test]
    fn rules_may_share_an_address_by_port_sets() {
        let one = |number: u16, len| {
            rule((NET | u128::from(number) << 64, 64), (0xc000_0201, 32), 0, Some((len, number)))
        };
        let rules: Vec<MapRule> = (0..200).map(|number| one(number, 8)).collect();
        let domains = Domains::new(&rules, [2; 32]).expect("port sets that differ");
        let found = domains.find(0xc000_0201).expect("a rule");
        for psid in 0..200_u16 {
            assert_eq!(domains.of_customer(found, psid), Some(psid.into()));
        }
        assert_eq!(domains.of_customer(found, 200), None);
        let conflict = |second: MapRule| {
            Domains::new(&[rules[0], rules[1], second], [2; 32]).expect_err("a conflict")
        };
        let moved = |rule: MapRule| {
            let mut parameters = *rule.parameters();
            parameters.ipv6.address = Ipv6Addr::from_bits(NET | 77 << 90);
            MapRule::new(parameters).expect("parameters that fit")
        };
        assert_eq!(conflict(rules[1]), RuleConflict::Ipv6(1, 2));
        assert_eq!(conflict(moved(rules[1])), RuleConflict::Ipv4(1, 2));
        assert_eq!(conflict(moved(one(2, 7))), RuleConflict::Divided(0, 2));
        let whole = rule((NET | 1 << 95, 64), (0xc000_0201, 32), 0, None);
        assert_eq!(conflict(whole), RuleConflict::Ipv4(0, 2));
    }
}
