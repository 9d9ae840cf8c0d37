//! What a partner refuses to copy of a slice, and why: this node has no realm with the name that a
//! record tells, or no number for its host, or the two nodes give ports to subscribers by other
//! arithmetic. The owner hears of it by the answer to its state.

use crate::alg::{AlgSums, Kind};
use std::collections::{BTreeMap, BTreeSet};

use natgate_engine::{Arithmetic, CopyEnds, NoNumber};
use std::net::Ipv4Addr;

/// Names of realms that are told. More are refused without their name.
const MOST_NAMES: usize = 8;

/// Longest name that is told, bytes.
const LONGEST: usize = 64;

/// In place of the length of a name: the number of mappings without a gateway follows, and nothing
/// else. Earlier versions do not read it, and have no gateways.
const GATEWAYS: u8 = u8::MAX;

/// In place of the length of a name: gateways that differ follow.
const OTHER_GATEWAYS: u8 = u8::MAX - 1;

/// What a partner does not copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// Mappings that have no copy, because the partner has no realm with their realm's name.
    pub without_realm: u32,
    /// Mappings of NAT64 or DS-Lite that have no copy, because the partner has no number for their
    /// host.
    pub without_number: u32,
    /// Mappings among `without_number` whose subscriber has all possible hosts at the partner.
    pub of_full_subscribers: u32,
    /// Mappings among `without_number` of hosts whose packets the partner does not translate.
    pub unfit: u32,
    /// Mappings of control flows that have no copy, because the partner lacks their gateway, or has
    /// no room for flows.
    pub without_gateway: u32,
    /// The names of the missing realms, as far as they are told.
    pub realms: Vec<String>,
    /// Keys of the configuration that give ports to subscribers and differ between the nodes. If
    /// there is one, nothing is copied.
    pub differences: Vec<&'static str>,
    /// Gateways that only one node has, or that have other ports at the two.
    pub other_gateways: Vec<&'static str>,
}

/// The names of the gateways whose settings have other sums at two nodes.
pub(super) fn other_gateways(one: AlgSums, other: AlgSums) -> Vec<&'static str> {
    let sums = one.iter().zip(other);
    let kinds = Kind::ALL.into_iter().zip(sums);
    kinds.filter(|(_, (one, other))| *one != other).map(|(kind, _)| kind.name()).collect()
}

impl Refusal {
    /// True if the partner copies everything that it has room for.
    pub fn is_empty(&self) -> bool {
        let counts = [self.without_realm, self.without_number, self.without_gateway];
        counts == [0; 3] && self.differences.is_empty()
    }

    /// What two workers of the partner refuse together.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        let counts = [
            (&mut self.without_realm, other.without_realm),
            (&mut self.without_number, other.without_number),
            (&mut self.of_full_subscribers, other.of_full_subscribers),
            (&mut self.unfit, other.unfit),
            (&mut self.without_gateway, other.without_gateway),
        ];
        for (count, more) in counts {
            *count = count.saturating_add(more);
        }
        for name in &other.realms {
            if self.realms.len() < MOST_NAMES && !self.realms.contains(name) {
                self.realms.push(name.clone());
            }
        }
        for (all, more) in [
            (&mut self.differences, &other.differences),
            (&mut self.other_gateways, &other.other_gateways),
        ] {
            let new: Vec<_> = more.iter().filter(|key| !all.contains(key)).copied().collect();
            all.extend(new);
        }
        self
    }

    /// A clause for people. `who` has no such realm. `None`: nothing is refused.
    pub(super) fn text(&self, who: &str) -> Option<String> {
        if !self.differences.is_empty() {
            let keys = self.differences.join(", ");
            return Some(format!(
                "nothing is copied, because the configurations of the two nodes differ in {keys}"
            ));
        }
        let Self { without_realm, without_number, realms, .. } = self;
        let mut reasons = Vec::new();
        if *without_realm > 0 {
            let names = if realms.is_empty() { "(unnamed)".into() } else { realms.join(", ") };
            reasons.push(format!(
                "{without_realm} mappings have no copy, because {who} has no realm {names}"
            ));
        }
        let (quota, unfit) = (self.of_full_subscribers, self.unfit);
        let full = without_number.saturating_sub(quota).saturating_sub(unfit);
        if full > 0 {
            reasons.push(format!(
                "{full} mappings have no copy, because {who} has no room for more hosts \
                 of NAT64 or DS-Lite (limits.subscribers)"
            ));
        }
        if quota > 0 {
            reasons.push(format!(
                "{quota} mappings have no copy, because their subscribers of NAT64 or DS-Lite have \
                 as many hosts as possible at {who}"
            ));
        }
        if unfit > 0 {
            reasons.push(format!(
                "{unfit} mappings have no copy, because {who} does not translate packets of their \
                 hosts"
            ));
        }
        if self.without_gateway > 0 {
            reasons.push(format!(
                "{} mappings have no copy, because {who} lacks the gateway of their control \
                 flows ([alg]), or has no room for more flows",
                self.without_gateway
            ));
        }
        if !self.other_gateways.is_empty() {
            let keys: Vec<_> =
                self.other_gateways.iter().map(|name| format!("alg.{name}")).collect();
            reasons.push(format!(
                "control flows may have no copy, because the configurations of the two nodes \
                 differ in {}",
                keys.join(", ")
            ));
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// The refusal as bytes.
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::from(self.without_realm.to_le_bytes());
        for count in [self.without_number, self.of_full_subscribers, self.unfit] {
            bytes.extend(count.to_le_bytes());
        }
        let is_in = |key: &&str| self.differences.contains(key);
        let bits = Arithmetic::KEYS.iter().enumerate().filter(|(_, key)| is_in(key));
        bytes.extend(bits.fold(0_u16, |bits, (at, _)| bits | 1 << at).to_le_bytes());
        for name in &self.realms {
            bytes.push(name.len() as u8);
            bytes.extend(name.as_bytes());
        }
        if !self.other_gateways.is_empty() {
            let is_in = |kind: &Kind| self.other_gateways.contains(&kind.name());
            let bits = Kind::ALL.iter().enumerate().filter(|(_, kind)| is_in(kind));
            bytes.push(OTHER_GATEWAYS);
            bytes.extend(bits.fold(0_u16, |bits, (at, _)| bits | 1 << at).to_le_bytes());
        }
        if self.without_gateway > 0 {
            bytes.push(GATEWAYS);
            bytes.extend(self.without_gateway.to_le_bytes());
        }
        bytes
    }

    /// Reads a refusal. `None`: it is damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (without_realm, rest) = bytes.split_first_chunk()?;
        let (without_number, rest) = rest.split_first_chunk()?;
        let (of_full_subscribers, rest) = rest.split_first_chunk()?;
        let (unfit, rest) = rest.split_first_chunk()?;
        let (bits, mut rest) = rest.split_first_chunk()?;
        let bits = u16::from_le_bytes(*bits);
        let (mut realms, mut without_gateway) = (Vec::new(), 0);
        let mut other_gateways = Vec::new();
        while let Some((len, after)) = rest.split_first() {
            if *len == OTHER_GATEWAYS {
                let (bits, after) = after.split_first_chunk()?;
                let bits = u16::from_le_bytes(*bits);
                let kinds = Kind::ALL.iter().enumerate().filter(|(at, _)| bits >> at & 1 != 0);
                other_gateways = kinds.map(|(_, kind)| kind.name()).collect();
                rest = after;
                continue;
            }
            if *len == GATEWAYS {
                without_gateway = u32::from_le_bytes(after.try_into().ok()?);
                break;
            }
            let (name, after) = after.split_at_checked(usize::from(*len))?;
            realms.push(shown(name));
            rest = after;
            if realms.len() > MOST_NAMES {
                return None;
            }
        }
        let keys = Arithmetic::KEYS.into_iter().enumerate();
        Some(Self {
            without_realm: u32::from_le_bytes(*without_realm),
            without_number: u32::from_le_bytes(*without_number),
            of_full_subscribers: u32::from_le_bytes(*of_full_subscribers),
            unfit: u32::from_le_bytes(*unfit),
            without_gateway,
            realms,
            differences: keys.filter(|(at, _)| bits >> at & 1 != 0).map(|(_, key)| key).collect(),
            other_gateways,
        })
    }
}

/// A name of the other node, as it may be shown.
fn shown(name: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic();
    let bytes = name.iter().copied().take(LONGEST);
    bytes.map(|byte| if plain(&byte) { char::from(byte) } else { '?' }).collect()
}

/// Most keys in a list of refused ones.
const MOST_KEYS: usize = 4096;

/// Bytes of a key in such a list.
const KEY: usize = 11;

/// A mapping of the owner that the partner refuses: key, protocol and external endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefusedKey {
    pub(super) key: u32,
    pub(super) protocol: u8,
    pub(super) external: (Ipv4Addr, u16),
}

impl RefusedKey {
    /// Keys as bytes, [`MOST_KEYS`] at most.
    pub(super) fn write(keys: impl Iterator<Item = Self>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for Self { key, protocol, external: (address, port) } in keys.take(MOST_KEYS) {
            bytes.extend(key.to_le_bytes());
            bytes.push(protocol);
            bytes.extend(address.octets());
            bytes.extend(port.to_le_bytes());
        }
        bytes
    }

    /// Reads keys. `None`: they are damaged.
    pub(super) fn read(bytes: &[u8]) -> Option<impl Iterator<Item = Self>> {
        let (keys, odd) = bytes.as_chunks::<KEY>();
        let read = |bytes: &[u8; KEY]| {
            let [k0, k1, k2, k3, protocol, a, b, c, d, low, high] = *bytes;
            let external = (Ipv4Addr::new(a, b, c, d), u16::from_le_bytes([low, high]));
            Self { key: u32::from_le_bytes([k0, k1, k2, k3]), protocol, external }
        };
        (odd.is_empty() && keys.len() <= MOST_KEYS).then(|| keys.iter().map(read))
    }
}

/// Keys without a realm at this node, with the names of these realms, and keys without a number for
/// their host.
#[derive(Debug, Default)]
pub(super) struct Refused {
    keys: BTreeSet<u32>,
    names: BTreeSet<String>,
    /// Records without a realm that were refused since the stream began.
    records: u64,
    numberless: BTreeMap<u32, Numberless>,
    gatewayless: BTreeMap<u32, CopyEnds>,
}

/// A record whose host gets no number.
#[derive(Clone, Copy, Debug)]
struct Numberless {
    why: NoNumber,
    protocol: u8,
    external: (Ipv4Addr, u16),
}

impl Refused {
    /// The record of a key was refused, because its host gets no number at this node.
    pub(super) fn without_number(&mut self, key: u32, why: NoNumber, ends: CopyEnds) {
        let CopyEnds { protocol, external, .. } = ends;
        self.numberless.insert(key, Numberless { why, protocol, external });
    }

    /// The record of a key was refused, because this node lacks the gateway of its flows.
    pub(super) fn without_gateway(&mut self, key: u32, ends: CopyEnds) {
        self.gatewayless.insert(key, ends);
    }

    /// Keys that were refused for a reason that time does not cure: their subscribers have as many
    /// hosts as possible, or a gateway is missing.
    pub(super) fn incurable(&self) -> impl Iterator<Item = RefusedKey> {
        let full = self.numberless.iter().filter(|(_, one)| one.why == NoNumber::Subscriber);
        let full = full.map(|(key, one)| (*key, one.protocol, one.external));
        let missing = self.gatewayless.iter();
        let missing = missing.map(|(key, ends)| (*key, ends.protocol, ends.external));
        let read = |(key, protocol, external)| RefusedKey { key, protocol, external };
        full.chain(missing).map(read)
    }

    /// The record of a key was refused, because this node has no realm with this name.
    pub(super) fn without_realm(&mut self, key: u32, name: &[u8]) {
        self.records += 1;
        self.keys.insert(key);
        if self.names.len() < MOST_NAMES {
            self.names.insert(shown(name));
        }
    }

    /// The mappings whose gateway is missing at this node.
    pub(super) fn gatewayless(&self) -> impl Iterator<Item = &CopyEnds> {
        self.gatewayless.values()
    }

    /// A key has another record, or none.
    pub(super) fn forget(&mut self, key: u32) {
        self.numberless.remove(&key);
        self.gatewayless.remove(&key);
        if self.keys.remove(&key) && self.keys.is_empty() {
            self.names.clear();
        }
    }

    /// This node has other realms: names are noted anew.
    pub(super) fn renew(&mut self) {
        self.names.clear();
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn refusal(&self, differences: Vec<&'static str>) -> Refusal {
        let count = |why| self.numberless.values().filter(|one| one.why == why).count() as u32;
        Refusal {
            without_realm: self.keys.len() as u32,
            without_number: self.numberless.len() as u32,
            of_full_subscribers: count(NoNumber::Subscriber),
            unfit: count(NoNumber::Unfit),
            without_gateway: self.gatewayless.len() as u32,
            realms: self.names.iter().cloned().collect(),
            differences,
            other_gateways: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alg::AlgSettings;

    #[test]
    fn a_refusal_is_read_as_it_was_written() {
        let mut without = Refused::default();
        without.without_realm(7, b"red");
        without.without_realm(7, b"red");
        without.without_realm(9, b"bl\nue");
        let refusal = without.refusal(vec!["ports", "subscribers"]);
        assert_eq!(Refusal::read(&refusal.write()), Some(refusal.clone()));
        assert_eq!((refusal.without_realm, without.records()), (2, 3));
        let bytes = refusal.write();
        for len in 0..bytes.len() {
            assert_ne!(Refusal::read(&bytes[..len]), Some(refusal.clone()));
        }
        let text = refusal.text("node b").expect("something is refused");
        assert!(text.ends_with("differ in ports, subscribers"), "{text}");
        let text = without.refusal(Vec::new()).text("node b").expect("something is refused");
        assert_eq!(text, "2 mappings have no copy, because node b has no realm bl?ue, red");
        [7, 9].iter().for_each(|key| without.forget(*key));
        for (why, told) in [
            (NoNumber::Full, "1 mappings have no copy, because node b has no room"),
            (NoNumber::Subscriber, "1 mappings have no copy, because their subscribers"),
            (NoNumber::Unfit, "1 mappings have no copy, because node b does not translate"),
        ] {
            let external = (Ipv4Addr::new(203, 0, 113, 1), 2300);
            let ends = CopyEnds { protocol: 17, internal: (Ipv4Addr::LOCALHOST, 1), external };
            without.without_number(9, why, ends);
            let keys: Vec<RefusedKey> = without.incurable().collect();
            let bytes = RefusedKey::write(keys.iter().copied());
            let read: Vec<RefusedKey> = RefusedKey::read(&bytes).expect("keys").collect();
            assert_eq!(read, keys);
            assert_eq!(keys.len(), usize::from(why == NoNumber::Subscriber));
            let refusal = without.refusal(Vec::new());
            assert_eq!(Refusal::read(&refusal.write()), Some(refusal.clone()));
            let text = refusal.text("node b").expect("something is refused");
            assert!(text.starts_with(told), "{text}");
            assert!(!text.contains(';'), "{text}");
        }
        without.forget(9);
        let external = (Ipv4Addr::new(203, 0, 113, 1), 2300);
        let ends = CopyEnds { protocol: 6, internal: (Ipv4Addr::LOCALHOST, 1), external };
        without.without_gateway(9, ends);
        let refusal = without.refusal(Vec::new());
        assert_eq!(Refusal::read(&refusal.write()), Some(refusal.clone()));
        assert!(!refusal.is_empty() && refusal.text("node b").is_some());
        assert_eq!(without.incurable().map(|one| one.external).collect::<Vec<_>>(), [external]);
        let ports = |ports: &[u16]| {
            let mut settings = AlgSettings::default();
            settings.set(Kind::Ftp, ports.to_vec());
            settings.set(Kind::Sip, vec![5060]);
            settings.sums()
        };
        assert_eq!(other_gateways(ports(&[21, 2121]), ports(&[2121, 21])), [""; 0]);
        assert_eq!(other_gateways(ports(&[21]), ports(&[2121])), ["ftp"]);
        let other_gateways = other_gateways(ports(&[21]), AlgSettings::default().sums());
        let refusal = Refusal { other_gateways, ..refusal }.plus(&Refusal::default());
        assert_eq!(Refusal::read(&refusal.write()), Some(refusal.clone()));
        let text = refusal.text("node b").expect("something is refused");
        assert!(text.ends_with("the two nodes differ in alg.ftp, alg.sip"), "{text}");
        without.forget(9);
        assert!(without.refusal(Vec::new()).is_empty());
        assert_eq!(Refusal::default().text("node b"), None);
    }

    #[test]
    fn a_list_of_keys_has_whole_keys_and_a_bound() {
        let key = |key| RefusedKey { key, protocol: 6, external: (Ipv4Addr::BROADCAST, 7) };
        let bytes = RefusedKey::write((0..10_000).map(key));
        assert_eq!(bytes.len(), MOST_KEYS * KEY);
        assert_eq!(RefusedKey::read(&bytes).map(Iterator::last), Some(Some(key(4095))));
        assert!(RefusedKey::read(&bytes[1..]).is_none());
        assert!(RefusedKey::read(&[&bytes[..], &[0; KEY]].concat()).is_none());
        assert_eq!(RefusedKey::read(&[]).map(Iterator::count), Some(0));
    }

    #[test]
    fn names_without_end_are_not_kept() {
        let mut without = Refused::default();
        for key in 0..100 {
            without.without_realm(key, format!("{key}").repeat(100).as_bytes());
        }
        let refusal = without.refusal(Vec::new());
        assert_eq!((refusal.without_realm, refusal.realms.len()), (100, MOST_NAMES));
        assert!(refusal.write().len() < 1000);
    }
}
