//! What a stage hands over to another process besides control flows: calls of PPTP, and the flows
//! that messages of H.323 have named. Each is a record of bytes beside those of the flows, and
//! begins with a byte of its own.
//!
//! The number of a realm may be another one in the other process. So realms have marks: that of
//! hosts with numbers, which keep them, is marked by its kind, and a further realm by a number that
//! a record gives to its name. A realm that is not there takes nothing: its flows are left out. The
//! reader believes nothing: bytes that mean nothing are none.

use super::calls::Call;
use super::further::Carried;
use super::{Stage, seconds};
use natgate_engine::{AddressPort, Config, Engine, RealmConfig, Timestamp};
use natgate_ipv6::{HostKind, HostRealms};
use natgate_payload::{CopiedHost, Endpoints, Kind};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};

/// First byte of a record.
const CALL: u8 = 0x91;
const FURTHER: u8 = 0x92;
const REALM: u8 = 0x93;

/// The mark of the first realm. The next ones are of kinds of hosts, and then of names.
const FIRST: u16 = 0;
const NAMED: u16 = 16;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Call(Call),
    Further(Carried),
}

/// Marks of the realms that go over.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    numbered: HostRealms,
    /// Further realms by their marks.
    named: BTreeMap<u16, u16>,
}

impl Marks {
    /// Marks without further realms.
    pub(super) fn new(numbered: HostRealms) -> Self {
        Self { numbered, named: BTreeMap::new() }
    }

    /// Marks of realms of a configuration, and a record for each of the further ones.
    fn of(config: &Config, numbered: HostRealms, realms: &[u16]) -> (Self, Vec<Vec<u8>>) {
        let (mut marks, mut records) = (Self::new(numbered), Vec::new());
        for (realm, one) in (1..).zip(&config.realms) {
            if one.gone || numbered.has(realm) || !realms.contains(&realm) {
                continue;
            }
            let mark = NAMED + realm;
            marks.named.insert(mark, realm);
            records.push([&[REALM], &mark.to_le_bytes()[..], one.name.as_bytes()].concat());
        }
        (marks, records)
    }

    /// Takes a record of a realm. A realm that is not there has no mark.
    fn learn(&mut self, config: &Config, record: &[u8]) {
        let Some((&[REALM, low, high], name)) = record.split_first_chunk() else { return };
        let is_it = |(realm, one): &(u16, &RealmConfig)| {
            one.name.as_bytes() == name && !one.gone && !self.numbered.has(*realm)
        };
        if let Some((realm, _)) = (1..).zip(&config.realms).find(is_it) {
            self.named.insert(u16::from_le_bytes([low, high]), realm);
        }
    }

    /// The mark of a realm that goes over.
    fn mark(&self, realm: u16) -> Option<u16> {
        if realm == 0 {
            return Some(FIRST);
        }
        let kind = self.numbered.kind(realm).map(|kind| kind as u16 + 1);
        let mut named = self.named.iter();
        kind.or_else(|| named.find(|(_, of)| **of == realm).map(|(mark, _)| *mark))
    }

    /// The realm of a mark.
    fn realm(&self, mark: u16) -> Option<u16> {
        let mut kinds = HostKind::ALL.into_iter();
        match mark {
            FIRST => Some(0),
            NAMED.. => self.named.get(&mark).copied(),
            mark => self.numbered.of(kinds.find(|kind| *kind as u16 + 1 == mark)?),
        }
    }
}

impl Stage {
    /// The control flows, calls and named flows as bytes, for another process. `config`: the
    /// engine's configuration, which has the names of realms.
    pub(crate) fn saved_flows(&self, config: &Config, numbered: HostRealms) -> Vec<Vec<u8>> {
        let further = self.further.carried().map(Record::Further);
        let all: Vec<_> = self.calls.carried().map(Record::Call).chain(further).collect();
        let flows = self.payloads.each().map(|(_, _, ends)| ends.realm);
        let mut realms: Vec<u16> = flows.chain(all.iter().map(Record::realm)).collect();
        realms.sort_unstable();
        realms.dedup();
        let (marks, mut saved) = Marks::of(config, numbered, &realms);
        saved.extend(all.iter().filter_map(|record| record.save(&marks)));
        saved.extend(self.payloads.save(|realm| marks.mark(realm)));
        saved
    }

    /// Takes what another process has saved, if its protocol is on here, too.
    pub(crate) fn restore_flows(
        &mut self,
        (engine, now): (&mut Engine, Timestamp),
        flows: &[Vec<u8>],
        numbered: HostRealms,
    ) {
        let mut marks = Marks::new(numbered);
        flows.iter().for_each(|record| marks.learn(engine.config(), record));
        // Records come before the flows that need them.
        for flow in flows {
            let Self { payloads, settings, servers, calls, further, .. } = self;
            let is_wanted = |kind, protocol, ends: &Endpoints| {
                let server = servers.get(&(protocol, ends.external)).map(|(kind, _)| *kind);
                let named = server.or_else(|| settings.kind(protocol, ends.remote.port()));
                named.or_else(|| further.kind(protocol, ends)) == Some(kind)
            };
            match Record::restore(flow, &marks) {
                Some(Record::Call(call)) if settings.has(Kind::Pptp) => calls.adopt(call),
                Some(Record::Further(one)) if settings.has(one.kind) => {
                    further.adopt(&one, seconds(now));
                }
                Some(_) => {}
                None => {
                    // A flow that is not taken passes unread, as one that began before its protocol
                    // was on.
                    let _ = payloads.restore(flow, |mark| marks.realm(mark), is_wanted);
                }
            }
        }
        self.watch();
        self.tell_ports(engine);
        let end = |end: SocketAddrV4| AddressPort::new(end.ip().to_bits(), end.port());
        for (_, protocol, flow) in self.payloads.each() {
            engine.doubt_control(protocol, end(flow.external), end(flow.remote));
        }
    }
}

impl Carried {
    /// Bytes of an entry in the record of a mapping, for the partner of a pair, and those of them
    /// that do not change with time.
    pub(super) const ENTRY: usize = 18;
    pub(super) const LASTING: usize = 14;

    /// The entry in the record of a mapping of its host. Its time is the number of seconds that are
    /// left: the other node has another clock.
    pub(super) fn write_entry(&self, now: u32) -> Vec<u8> {
        let mut to = Writer::default();
        to.put([self.kind as u8, u8::from(self.external.is_some())]);
        to.put(self.host.octets());
        to.put(self.port.to_le_bytes());
        to.end(self.remote);
        to.put(self.until.saturating_sub(now).to_le_bytes());
        to.0
    }

    /// Reads an entry in the record of a mapping, which has this external endpoint, and this host
    /// with a port here. `None`: it is none of the mapping.
    pub(super) fn read_entry(
        bytes: &[u8; Self::ENTRY],
        (external, host, port): (SocketAddrV4, CopiedHost, u16),
        now: u32,
    ) -> Option<Self> {
        let mut from = Reader(bytes);
        let [kind] = from.take()?;
        let kind = Kind::ALL.into_iter().find(|one| *one as u8 == kind)?;
        let is_inside = from.flag()?;
        let (own, own_port) = (from.address()?, from.number()?);
        let remote = from.end()?;
        let until = now.saturating_add(u32::from_le_bytes(from.take()?));
        let CopiedHost { realm, address, has_number } = host;
        let of = Self {
            kind,
            realm,
            host: address,
            number: None,
            port: 0,
            external: None,
            remote,
            until,
        };
        if !is_inside {
            return Some(of);
        }
        let is_its = own_port == port && (has_number || own == address);
        let number = has_number.then_some(address);
        let (external, remote) = (Some(external), SocketAddrV4::new(*remote.ip(), 0));
        is_its.then_some(Self { host: own, number, port, external, remote, ..of })
    }
}

/// The bytes of a record.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend(bytes);
    }

    fn end(&mut self, end: SocketAddrV4) {
        self.put(end.ip().octets());
        self.put(end.port().to_le_bytes());
    }

    fn maybe<const N: usize>(&mut self, bytes: Option<[u8; N]>) {
        self.put([u8::from(bytes.is_some())]);
        self.put(bytes.unwrap_or([0; N]));
    }
}

/// The bytes of a record that are not read yet.
struct Reader<'b>(&'b [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn flag(&mut self) -> Option<bool> {
        let [flag] = self.take()?;
        (flag < 2).then_some(flag == 1)
    }

    fn number(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn address(&mut self) -> Option<Ipv4Addr> {
        self.take::<4>().map(Ipv4Addr::from)
    }

    fn end(&mut self) -> Option<SocketAddrV4> {
        Some(SocketAddrV4::new(self.address()?, self.number()?))
    }

    fn maybe<const N: usize>(&mut self) -> Option<Option<[u8; N]>> {
        let is_there = self.flag()?;
        let bytes = self.take()?;
        Some(is_there.then_some(bytes))
    }
}

impl Record {
    /// The realm of the host inside.
    fn realm(&self) -> u16 {
        match self {
            Self::Call(call) => call.realm,
            Self::Further(one) => one.realm,
        }
    }

    /// The bytes of the record. `None`: its realm does not go over.
    pub(super) fn save(&self, marks: &Marks) -> Option<Vec<u8>> {
        let (mut to, mark) = (Writer::default(), marks.mark(self.realm())?.to_le_bytes());
        match self {
            Self::Call(call) => {
                to.put([CALL]);
                to.put(mark);
                for end in [call.internal, call.external, call.remote] {
                    to.end(end);
                }
                to.put(call.own.to_le_bytes());
                to.put(call.outer.to_le_bytes());
                to.maybe(call.peer.map(u16::to_le_bytes));
                to.put(call.expires.to_le_bytes());
                to.put(call.made.0.to_le_bytes());
                to.put([call.has_begun, call.is_closing].map(u8::from));
            }
            Self::Further(one) => {
                to.put([FURTHER]);
                to.put(mark);
                to.put([one.kind as u8]);
                to.put([u8::from(one.external.is_some())]);
                to.end(one.external.unwrap_or(one.remote));
                to.put(one.host.octets());
                to.maybe(one.number.map(|number| number.octets()));
                to.put(one.port.to_le_bytes());
                to.end(one.remote);
                to.put(one.until.to_le_bytes());
            }
        }
        Some(to.0)
    }

    /// Reads what [`Record::save`] wrote. `None`: it is none.
    pub(super) fn restore(bytes: &[u8], marks: &Marks) -> Option<Self> {
        let mut from = Reader(bytes);
        let [first] = from.take()?;
        let realm = marks.realm(from.number()?)?;
        let record = match first {
            CALL => {
                let [internal, external, remote] = [from.end()?, from.end()?, from.end()?];
                let (own, outer) = (from.number()?, from.number()?);
                let mut call = Call::new((realm, internal, external, remote), (own, outer));
                call.peer = from.maybe()?.map(u16::from_le_bytes);
                call.expires = u32::from_le_bytes(from.take()?);
                call.made = Timestamp(u64::from_le_bytes(from.take()?));
                (call.has_begun, call.is_closing) = (from.flag()?, from.flag()?);
                (outer != 0).then_some(Self::Call(call))?
            }
            FURTHER => {
                let [kind] = from.take()?;
                let kind = Kind::ALL.into_iter().find(|one| *one as u8 == kind)?;
                let is_inside = from.flag()?;
                let external = Some(from.end()?).filter(|_| is_inside);
                let host = from.address()?;
                let number = from.maybe()?.map(Ipv4Addr::from);
                let (port, remote) = (from.number()?, from.end()?);
                let until = u32::from_le_bytes(from.take()?);
                Self::Further(Carried { kind, realm, host, number, port, external, remote, until })
            }
            _ => return None,
        };
        from.0.is_empty().then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> SocketAddrV4 {
        text.parse().unwrap()
    }

    fn records() -> Vec<Record> {
        let ends = ["1.0.0.3:4000", "203.0.113.1:50000", "198.51.100.2:1723"].map(end);
        let mut call = Call::new((0, ends[0], ends[1], ends[2]), (7, 9));
        (call.expires, call.made, call.has_begun) = (1000, Timestamp(5), true);
        let mut known = call;
        (known.peer, known.is_closing) = (Some(9000), true);
        let inside = Carried {
            kind: Kind::H323,
            realm: 0,
            host: [10, 0, 0, 9].into(),
            number: Some([1, 0, 0, 3].into()),
            port: 41_000,
            external: Some(ends[1]),
            remote: ends[2],
            until: 77,
        };
        let outside = Carried { number: None, external: None, ..inside };
        let further = [inside, outside].map(Record::Further);
        [[call, known].map(Record::Call), further].concat()
    }

    #[test]
    fn a_record_comes_back_whole_and_not_in_part() {
        let marks = Marks::new(HostRealms::NONE);
        for record in records() {
            let bytes = record.save(&marks).expect("the first realm goes over");
            assert_eq!(Record::restore(&bytes, &marks), Some(record));
            for len in 0..bytes.len() {
                assert_eq!(Record::restore(&bytes[..len], &marks), None);
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Record::restore(&longer, &marks), None);
            let mut other = bytes.clone();
            other[1] = 2;
            assert_eq!(Record::restore(&other, &marks), None, "a realm that is not there");
            // Bytes that mean something else are a record or none.
            for at in 0..bytes.len() {
                for value in [0, 1, 2, 0x91, 0xff] {
                    let mut other = bytes.clone();
                    other[at] = value;
                    let _ = Record::restore(&other, &marks);
                }
            }
        }
    }

    #[test]
    fn an_entry_of_a_mapping_comes_back() {
        let host = CopiedHost { realm: 4, address: [10, 0, 0, 9].into(), has_number: false };
        let behind = CopiedHost { has_number: true, ..host };
        let of = |host: CopiedHost| (end("203.0.113.1:50000"), host, 41_000);
        let further = records().into_iter().filter_map(|record| match record {
            Record::Further(one) => Some(Carried { realm: 4, ..one }),
            Record::Call(_) => None,
        });
        for one in further {
            let bytes = one.write_entry(70);
            let whole: [u8; Carried::ENTRY] = bytes[..].try_into().expect("the length");
            let read = |host, bytes: &[u8]| {
                Carried::read_entry(bytes.try_into().expect("the length"), of(host), 1000)
            };
            let known = Carried { until: 1007, ..one };
            match one.external {
                Some(_) => {
                    let remote = SocketAddrV4::new(*one.remote.ip(), 0);
                    let own = Carried { number: None, remote, ..known };
                    assert_eq!(read(host, &whole), Some(own));
                    let number = Some(behind.address);
                    assert_eq!(read(behind, &whole), Some(Carried { number, ..own }));
                    let other = CopiedHost { address: Ipv4Addr::LOCALHOST, ..host };
                    assert_eq!(read(other, &whole), None, "another host's");
                }
                None => {
                    let own = Carried { host: host.address, port: 0, ..known };
                    assert_eq!(read(host, &whole), Some(own));
                    assert_eq!(read(behind, &whole), Some(own));
                }
            }
            let later = one.write_entry(75);
            assert_eq!(later[..Carried::LASTING], whole[..Carried::LASTING]);
            assert_ne!(later[..], whole[..]);
            // Bytes that mean something else are an entry or none.
            for at in 0..whole.len() {
                for value in [0, 1, 2, 0x91, 0xff] {
                    let mut other = whole;
                    other[at] = value;
                    let _ = read(host, &other);
                }
            }
        }
    }
}
