//! Flows in the records of their mappings.

use super::super::further::{Carried, FurtherFlows};
use super::super::{Kind, Stage, seconds};
use super::{MappingEnds, end, internal_of, is_of};
use natgate_engine::{AddressPort, CopyFacts, Endpoint, Engine, Timestamp, fingerprint};
use natgate_payload::{CopiedHost, Endpoints};
use natgate_wire::protocol::TCP;
use std::net::SocketAddrV4;

/// Beginning of a record with flows. A mapping's record begins with a smaller number.
const FLOWS: [u8; 4] = [0xfe, 0xff, 0xff, 0xff];

/// Flows in a record, with their fingerprint.
pub(crate) type Flows<'r> = (u64, &'r [u8]);

/// The fingerprint of a mapping's record with that of its flows.
fn joined(of_mapping: u64, of_flows: u64) -> u64 {
    (of_mapping ^ of_flows.rotate_left(32)).max(1)
}

/// The parts of a mapping's record: that of the mapping alone, and its flows with their
/// fingerprint. `None`: it is damaged.
pub(crate) fn divide(record: &[u8]) -> Option<(&[u8], Option<Flows<'_>>)> {
    let Some(rest) = record.strip_prefix(&FLOWS) else { return Some((record, None)) };
    let (print, rest) = rest.split_first_chunk()?;
    let (mapping, flows) = take_sized(rest)?;
    Some((mapping, Some((u64::from_le_bytes(*print), flows))))
}

/// The fingerprint of a whole record, by that of its mapping.
pub(crate) fn print_with(of_mapping: u64, flows: Option<Flows<'_>>) -> u64 {
    flows.map_or(of_mapping, |(of_flows, _)| joined(of_mapping, of_flows))
}

fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn take_sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*len) as usize)
}

impl Stage {
    /// Adds the flows of a mapping to its record, which begins at `start` of `out`. Returns the
    /// fingerprint of the whole by that of the mapping. `None`: the mapping has flows, and the
    /// partner takes none; or it has had some that the partner must not have. A static mapping
    /// goes along without its flows as long as none has changed.
    pub(crate) fn add_flows(
        &self,
        now: Timestamp,
        ((protocol, external, internal), is_static): (MappingEnds, bool),
        (start, of_mapping): (usize, u64),
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        let lacks_flows = self.lacks_flows();
        let (mut flows, mut of_flows) = (Vec::new(), 0_u64);
        if !lacks_flows {
            let mapping = (protocol, external, internal);
            of_flows = self.put_entries(seconds(now), mapping, &mut flows);
        }
        let external = SocketAddrV4::new(external.address, external.port);
        let is_its = |ends: &Endpoints| is_of(ends, internal) && self.is_read(protocol, ends);
        self.payloads.records(seconds(now), (protocol, external), is_its, |record, print| {
            put_sized(record, &mut flows);
            of_flows = fold(of_flows, print);
        });
        if flows.is_empty() {
            let has_reset =
                self.paired.as_ref().is_some_and(|paired| paired.has_reset(protocol, external));
            return (!has_reset || is_static || !lacks_flows).then_some(of_mapping);
        }
        if lacks_flows {
            // The numbers of such connections are right without the gateway.
            let is_plain = is_static && !self.payloads.has_changed(external);
            return is_plain.then_some(of_mapping);
        }
        self.paired.as_ref()?;
        let mapping = out.split_off(start);
        out.extend(FLOWS);
        out.extend(of_flows.to_le_bytes());
        put_sized(&mapping, out);
        out.extend(flows);
        Some(joined(of_mapping, of_flows))
    }

    /// Puts the flows that messages have named and that a mapping tells of before its own flows,
    /// behind an empty one: a partner that does not know them refuses the record. Returns their
    /// fingerprint.
    fn put_entries(&self, now: u32, mapping: MappingEnds, out: &mut Vec<u8>) -> u64 {
        let (number, external, internal) = mapping;
        let external = SocketAddrV4::new(external.address, external.port);
        let flows = self.payloads.flows_at(number, external);
        let flows = flows.filter(|ends| is_of(ends, internal));
        let (mut entries, mut sum) = (Vec::new(), 0);
        for one in self.further.of_mapping(mapping, flows) {
            let entry = one.write_entry(now);
            sum = fold(sum, fingerprint(&entry[..Carried::LASTING]));
            entries.extend(entry);
        }
        if !entries.is_empty() {
            put_sized(&[], out);
            put_sized(&entries, out);
        }
        sum
    }

    /// False for a flow that passes unread since a message has named its server for another remote
    /// host.
    fn is_read(&self, number: u8, ends: &Endpoints) -> bool {
        let is_known = || {
            self.servers.contains_key(&(number, ends.external))
                || self.settings.kind(number, ends.remote.port()).is_some()
                || self.further.kind(number, ends).is_some()
        };
        let known = self.payloads.find(number, ends.external, ends.remote);
        let may_be_named = number == TCP && known.is_some_and(|(kind, _)| kind == Kind::H323);
        !may_be_named || !self.former.is_off() || is_known()
    }

    /// False if no mapping with an internal port has control flows or servers in its record. Most
    /// have none, and this costs less than a search.
    pub(crate) fn may_have_flows(&self, port: u16) -> bool {
        self.payloads.may_have(port) || !self.further.is_empty() || self.lacks_flows()
    }

    /// True if a mapping has control flows.
    pub(crate) fn has_flows(&self, (protocol, external, internal): MappingEnds) -> bool {
        let external = SocketAddrV4::new(external.address, external.port);
        self.payloads.flows_at(protocol, external).any(|ends| is_of(&ends, internal))
    }

    /// Takes the flows of the record of a mapping that has been copied, and its server inside, in
    /// place of those that are there. Returns false if one cannot be taken: then the mapping has no
    /// flow here.
    pub(crate) fn copy_flows(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        (protocol, external, facts): (u8, Endpoint, CopyFacts),
        flows: Option<Flows<'_>>,
    ) -> bool {
        let mapping = (protocol, external, internal_of(&facts));
        self.forget_flows(mapping);
        self.forget_server(mapping);
        let Some(flows) = flows else { return true };
        let is_taken = self.take_flows(engine, now, (protocol, external, facts), flows).is_some();
        if !is_taken {
            self.forget_flows(mapping);
            self.further.forget_those_of(mapping);
        }
        is_taken
    }

    fn take_flows(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        (number, external, facts): (u8, Endpoint, CopyFacts),
        (print, mut flows): (u64, &[u8]),
    ) -> Option<()> {
        let (realm, address) = facts.host;
        let place = usize::from(realm).checked_sub(1);
        let config = place.and_then(|place| engine.config().realms.get(place));
        let has_number = config.is_some_and(|config| config.host_bits.is_some());
        let host = CopiedHost { realm, address, has_number };
        let external = SocketAddrV4::new(external.address, external.port);
        let (mut sum, mut left_out) = (0, FurtherFlows::default());
        if let Some(([], rest)) = take_sized(flows) {
            let (entries, rest) = take_sized(rest)?;
            let mapping = (number, external, host, facts.port);
            (sum, left_out) = self.take_entries(engine, now, mapping, entries)?;
            flows = rest;
        }
        while !flows.is_empty() {
            let (record, rest) = take_sized(flows)?;
            let Self { payloads, settings, servers, further, .. } = self;
            let mut unread = None;
            let is_wanted = |kind, protocol, ends: &Endpoints| {
                let server = servers.get(&(protocol, ends.external)).map(|(kind, _)| *kind);
                let named = server.or_else(|| settings.kind(protocol, ends.remote.port()));
                let named = named.or_else(|| further.kind(protocol, ends));
                let without = || left_out.kind(protocol, ends).inspect(|_| unread = Some(*ends));
                named.or_else(without) == Some(kind) && ends.internal.port() == facts.port
            };
            let of = (number, external, host);
            sum = fold(sum, payloads.take_copy(seconds(now), record, of, is_wanted).ok()?);
            if let Some(ends) = unread {
                payloads.forget((number, external, ends.remote));
            }
            flows = rest;
        }
        (sum == print).then_some(())?;
        let port = |end: SocketAddrV4| AddressPort::new(end.ip().to_bits(), end.port());
        for Endpoints { remote, .. } in self.payloads.flows_at(number, external) {
            engine.doubt_control(number, port(external), port(remote));
            if let Some(paired) = &mut self.paired {
                paired.unread.remove(&(number, external, remote));
            }
        }
        Some(())
    }

    /// Takes the entries of a mapping's record, and watches their ports. Returns the fingerprint of
    /// all, and those that have no place: they are left out. `None`: they are no entries, or of a
    /// gateway that is off.
    fn take_entries(
        &mut self,
        engine: &mut Engine,
        now: Timestamp,
        (number, external, host, port): (u8, SocketAddrV4, CopiedHost, u16),
        entries: &[u8],
    ) -> Option<(u64, FurtherFlows)> {
        let internal = Endpoint { address: host.address, port };
        let mapping = (number, end(external), Some(internal));
        let (entries, []) = entries.as_chunks() else { return None };
        let (mut sum, mut are_watched) = (0, true);
        let mut left_out = FurtherFlows::default();
        for entry in entries {
            let one = Carried::read_entry(entry, (external, host, port), seconds(now))?;
            let is_wanted =
                self.settings.has(one.kind) && (number == TCP || one.external.is_none());
            is_wanted.then_some(())?;
            sum = fold(sum, fingerprint(&entry[..Carried::LASTING]));
            let Self { further, paired, .. } = self;
            let is_own = |address| paired.as_ref().is_some_and(|paired| paired.is_own(address));
            if !further.copy(&one, mapping, seconds(now), is_own) {
                self.payloads.count_left_out(one.kind);
                left_out.copy(&one, mapping, seconds(now), |_| false);
                continue;
            }
            let ports = match one.external {
                Some(external) => [one.port, external.port()],
                None => [one.remote.port(); 2],
            };
            are_watched &= ports.into_iter().all(|port| self.watched.has(port));
        }
        if self.further.take_change() && !are_watched {
            self.watch();
            self.tell_ports(engine);
        }
        Some((sum, left_out))
    }
}

/// The fingerprint of flows with one more.
fn fold(sum: u64, print: u64) -> u64 {
    sum.rotate_left(9).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ print
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_divided_as_it_was_put_together_and_not_in_part() {
        assert_eq!(divide(b"mapping"), Some((&b"mapping"[..], None)));
        let mut record = FLOWS.to_vec();
        record.extend(7_u64.to_le_bytes());
        put_sized(b"mapping", &mut record);
        put_sized(b"flow", &mut record);
        let (mapping, flows) = divide(&record).expect("whole");
        let (print, flows) = flows.expect("flows");
        assert_eq!((mapping, print), (&b"mapping"[..], 7));
        assert_eq!(take_sized(flows), Some((&b"flow"[..], &b""[..])));
        for len in FLOWS.len()..record.len() - b"....flow".len() {
            assert_eq!(divide(&record[..len]), None, "{len}");
        }
        assert_eq!(print_with(5, None), 5);
        assert_ne!(print_with(5, Some((7, b""))), 5);
        assert_ne!(fold(fold(0, 1), 2), fold(fold(0, 2), 1));
    }
}
