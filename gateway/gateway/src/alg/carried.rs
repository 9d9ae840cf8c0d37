//! What a stage hands over to another process besides control flows: calls of PPTP, and the flows
//! that messages of H.323 have named. Each is a record of bytes beside those of the flows, and
//! begins with a byte of its own.
//!
//! Hosts with numbers keep them in the other process. A realm is marked by its kind, because its
//! number may be another one there. The reader believes nothing: bytes that mean nothing are none.

use super::calls::Call;
use super::further::Carried;
use natgate_engine::Timestamp;
use natgate_ipv6::{HostKind, HostRealms};
use natgate_payload::Kind;
use std::net::{Ipv4Addr, SocketAddrV4};

/// First byte of a record.
const CALL: u8 = 0x91;
const FURTHER: u8 = 0x92;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    Call(Call),
    Further(Carried),
}

/// The mark of a realm that goes over: the first one, or one of hosts with numbers.
pub(super) fn mark(numbered: HostRealms, realm: u16) -> Option<u8> {
    match realm {
        0 => Some(0),
        realm => numbered.kind(realm).map(|kind| kind as u8 + 1),
    }
}

/// The realm of a mark.
pub(super) fn realm(numbered: HostRealms, mark: u8) -> Option<u16> {
    match mark {
        0 => Some(0),
        mark => {
            let mut kinds = HostKind::ALL.into_iter();
            numbered.of(kinds.find(|kind| *kind as u8 + 1 == mark)?)
        }
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
    /// The bytes of the record. `None`: its realm does not go over.
    pub(super) fn save(&self, numbered: HostRealms) -> Option<Vec<u8>> {
        let mut to = Writer::default();
        match self {
            Self::Call(call) => {
                to.put([CALL, mark(numbered, call.realm)?]);
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
                to.put([FURTHER, mark(numbered, one.realm)?, one.kind as u8]);
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
    pub(super) fn restore(bytes: &[u8], numbered: HostRealms) -> Option<Self> {
        let mut from = Reader(bytes);
        let [first, mark] = from.take()?;
        let realm = realm(numbered, mark)?;
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
        for record in records() {
            let bytes = record.save(HostRealms::NONE).expect("the first realm goes over");
            assert_eq!(Record::restore(&bytes, HostRealms::NONE), Some(record));
            for len in 0..bytes.len() {
                assert_eq!(Record::restore(&bytes[..len], HostRealms::NONE), None);
            }
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Record::restore(&longer, HostRealms::NONE), None);
            let mut other = bytes.clone();
            other[1] = 2;
            assert_eq!(
                Record::restore(&other, HostRealms::NONE),
                None,
                "a realm that is not there"
            );
            // Bytes that mean something else are a record or none.
            for at in 0..bytes.len() {
                for value in [0, 1, 2, 0x91, 0xff] {
                    let mut other = bytes.clone();
                    other[at] = value;
                    let _ = Record::restore(&other, HostRealms::NONE);
                }
            }
        }
    }
}
