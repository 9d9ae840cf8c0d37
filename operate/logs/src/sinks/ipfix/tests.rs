//! Messages against a decoder that knows RFC 7011 and the registry, and does not use the encoder.

use super::IpfixSink;
use super::encode::Encoder;
use crate::drive::Sink;
use crate::json::Names;
use crate::record::{Gap, Host, Record, host_before};
use natgate_engine::{
    BlockId, Change, Endpoint, Event, MappingId, MappingKind, Resource, SessionId, Timestamp,
};
use natgate_gateway::ipv6::HostName;
use natgate_gateway::{Collector, IpfixSettings, Transport};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::time::Duration;

/// A decoded data record: its template, and its fields by number, in order.
#[derive(Clone, Debug, PartialEq)]
struct Decoded {
    template: u16,
    fields: Vec<(u16, Vec<u8>)>,
}

impl Decoded {
    fn number(&self, element: u16) -> u64 {
        let field = self.fields.iter().find(|(number, _)| *number == element);
        let (_, bytes) = field.unwrap_or_else(|| panic!("{element} is not in {self:?}"));
        bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    fn has(&self, element: u16) -> bool {
        self.fields.iter().any(|(number, _)| *number == element)
    }
}

#[derive(Default)]
struct Decoder {
    templates: HashMap<u16, Vec<(u16, u16)>>,
    /// Sequence number that the next message must have.
    sequence: Option<u32>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Decoder {
    /// Decodes a message; panics on a violation of RFC 7011.
    fn decode(&mut self, message: &[u8], domain: u32) -> Vec<Decoded> {
        assert_eq!((u16_at(message, 0), usize::from(u16_at(message, 2))), (10, message.len()));
        assert_eq!(u32_at(message, 12), domain);
        let sequence = u32_at(message, 8);
        assert_eq!(self.sequence.unwrap_or(sequence), sequence);
        let (mut rest, mut records) = (&message[16..], Vec::new());
        while !rest.is_empty() {
            let (set, len) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
            assert!(len > 4 && len <= rest.len());
            let (body, others) = (&rest[4..len], &rest[len..]);
            match set {
                2 => self.templates_of(body, false),
                3 => self.templates_of(body, true),
                256.. => records.extend(self.data(set, body)),
                _ => panic!("set {set}"),
            }
            rest = others;
        }
        self.sequence = Some(sequence.wrapping_add(records.len() as u32));
        records
    }

    fn templates_of(&mut self, mut body: &[u8], options: bool) {
        while !body.is_empty() {
            let (number, count) = (u16_at(body, 0), usize::from(u16_at(body, 2)));
            assert!(number >= 256 && count > 0);
            let begin = if options { 6 } else { 4 };
            if options {
                let scopes = usize::from(u16_at(body, 4));
                assert!(scopes >= 1 && scopes <= count);
            }
            let field = |at| (u16_at(body, begin + 4 * at), u16_at(body, begin + 4 * at + 2));
            let fields: Vec<_> = (0..count).map(field).collect();
            let known = self.templates.insert(number, fields.clone());
            assert!(known.is_none_or(|known| known == fields), "template {number} has changed");
            body = &body[begin + 4 * count..];
        }
    }

    fn data(&self, template: u16, mut body: &[u8]) -> Vec<Decoded> {
        let layout = &self.templates[&template];
        let mut records = Vec::new();
        while !body.is_empty() {
            let mut fields = Vec::new();
            for &(element, len) in layout {
                let len = match len {
                    u16::MAX => {
                        let len = usize::from(body[0]);
                        assert!(len < 255);
                        body = &body[1..];
                        len
                    }
                    len => usize::from(len),
                };
                fields.push((element, body[..len].to_vec()));
                body = &body[len..];
            }
            records.push(Decoded { template, fields });
        }
        records
    }
}

const DOMAIN: u32 = 77;

fn encoder(remotes: bool) -> Encoder {
    Encoder::new(DOMAIN, remotes, 1400)
}

fn mapping() -> MappingId {
    MappingId {
        protocol: 17,
        realm: 1,
        internal: Endpoint::new(0x0a00_0005, 4000),
        external: Endpoint::new(0xcb00_7101, 5000),
        kind: MappingKind::Dynamic,
    }
}

fn block() -> BlockId {
    let (subscriber, external) = (Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::new(203, 0, 113, 1));
    BlockId { realm: 0, subscriber, external, ports: (2048, 2559) }
}

fn names() -> Names {
    Names { quotas: [1000, 2000, 30], sizes: vec![(4, 1000)], ..Names::default() }
}

fn session() -> SessionId {
    let (remote, remote_inside) = (Endpoint::new(0xc000_0201, 53), Endpoint::new(0xc000_0202, 54));
    SessionId { mapping: mapping(), remote, remote_inside }
}

/// Decoded record of one event.
fn told(change: Change, remotes: bool, names: &Names) -> Decoded {
    told_of(None, change, remotes, names)
}

/// The record about a change, of a host of NAT64 if there is one.
fn told_of(host: Option<&HostName>, change: Change, remotes: bool, names: &Names) -> Decoded {
    let encoder = encoder(remotes);
    let mut decoder = Decoder::default();
    decoder.decode(&encoder.templates(Timestamp(0)), DOMAIN);
    let event = Event { time: Timestamp(1_700_000_000_123_456_789), change };
    let host = host.map(|name| Record::Host(Host::new(event.time, name)));
    let records: Vec<Record> = host.into_iter().chain([Record::Event(event)]).collect();
    let message = encoder.message(&records, names, Timestamp(0));
    assert_eq!((message.count, message.taken), (1, records.len()));
    let mut records = decoder.decode(&message.bytes, DOMAIN);
    assert_eq!(records.len(), 1);
    let record = records.remove(0);
    assert_eq!(record.number(323), 1_700_000_000_123);
    assert_eq!(record.number(463), 1);
    record
}

//= test rfc8158#section-4.6-mandatory
//= test rfc8158#section-4.3-historic
#[test]
fn mappings_and_sessions_have_the_fields_that_they_must() {
    let subject = [(8, 0x0a00_0005), (225, 0xcb00_7101), (4, 17), (7, 4000), (227, 5000)];
    for (change, nat_event) in [
        (Change::MappingCreated(mapping()), 8),
        (Change::MappingRemoved(mapping()), 9),
        (Change::SessionCreated(session()), 4),
        (Change::SessionRemoved(session()), 5),
    ] {
        for remotes in [false, true] {
            let record = told(change, remotes, &names());
            assert_eq!(record.number(230), nat_event);
            for (element, value) in subject {
                assert_eq!(record.number(element), value, "{element} of {change:?}");
            }
            let of_session = [(12, 0xc000_0202), (11, 54), (226, 0xc000_0201), (228, 53)];
            for (element, value) in of_session {
                if remotes && [4, 5].contains(&nat_event) {
                    assert_eq!(record.number(element), value);
                } else {
                    assert!(!record.has(element), "a remote that nobody asked for");
                }
            }
            assert!(!record.has(464), "there is one realm");
        }
    }
    let realms = vec!["default".into(), "red".into()];
    let record = told(Change::MappingCreated(mapping()), false, &Names { realms, ..names() });
    assert!(record.fields.contains(&(464, b"red".to_vec())), "{record:?}");
}

//= test rfc8158#section-4.6-mandatory
#[test]
fn hosts_of_nat64_have_their_addresses_and_subscribers_their_prefixes() {
    let parsed = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap();
    let (address, prefix) = (parsed("2001:db8:1:2::5"), parsed("2001:db8:1:2::"));
    let host = HostName { address: Some(address), prefix, len: 64 };
    let octets = |address: std::net::Ipv6Addr| (27, address.octets().to_vec());
    for (change, nat_event) in [
        (Change::MappingCreated(mapping()), 10),
        (Change::MappingRemoved(mapping()), 11),
        (Change::SessionCreated(session()), 6),
        (Change::SessionRemoved(session()), 7),
    ] {
        for remotes in [false, true] {
            let record = told_of(Some(&host), change, remotes, &names());
            assert_eq!(record.number(230), nat_event);
            assert!(record.fields.contains(&octets(address)) && !record.has(8), "{record:?}");
            for (element, value) in [(225, 0xcb00_7101), (4, 17), (7, 4000), (227, 5000)] {
                assert_eq!(record.number(element), value, "{element} of {change:?}");
            }
            assert_eq!(record.has(226), remotes && nat_event < 8);
        }
    }
    for (change, nat_event) in
        [(Change::BlockAssigned(block()), 16), (Change::BlockReleased(block()), 17)]
    {
        let record = told_of(Some(&host), change, false, &names());
        assert_eq!((record.number(230), record.number(29)), (nat_event, 64));
        assert!(record.fields.contains(&octets(prefix)), "{record:?}");
    }
}

//= test rfc8158#section-4.6.10-range
#[test]
fn the_document_lists_the_elements_of_every_template() {
    let mut decoder = Decoder::default();
    decoder.decode(&encoder(true).templates(Timestamp(0)), DOMAIN);
    let document = include_str!("../../../../../docs/logs.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| 2"));
    let mut listed = HashMap::new();
    for row in rows.filter_map(|row| row.strip_suffix(" |")) {
        let (number, elements) = row.split_once(" | ").expect("a row has two cells");
        let number = format!("2{number}").parse::<u16>().expect("a template's number");
        let elements = elements.split(", ").map(|one| one.parse::<u16>().expect("an element"));
        listed.insert(number, elements.collect::<Vec<_>>());
    }
    assert_eq!(listed.len(), 16);
    let mut numbers = std::collections::BTreeSet::new();
    for (number, fields) in &decoder.templates {
        let mut elements: Vec<u16> = fields.iter().map(|(element, _)| *element).collect();
        numbers.extend(elements.iter().copied());
        let base = if *number >= 300 { number - 100 } else { *number };
        // In records of realms the name is the last element.
        assert_eq!(*number >= 300, elements.last() == Some(&464), "{number}");
        elements.retain(|element| *element != 464);
        assert_eq!(listed.get(&base), Some(&elements), "template {number}");
    }
    // A line may end between the number and the name.
    let text = document.split_whitespace().collect::<Vec<_>>().join(" ");
    for number in numbers {
        assert!(text.contains(&format!("{number} `")), "element {number} has a name");
    }
}

#[test]
fn blocks_have_their_range() {
    for (change, nat_event) in
        [(Change::BlockAssigned(block()), 16), (Change::BlockReleased(block()), 17)]
    {
        let record = told(change, false, &names());
        let fields =
            [(230, nat_event), (8, 0x0a00_0005), (225, 0xcb00_7101), (361, 2048), (362, 2559)];
        for (element, value) in fields {
            assert_eq!(record.number(element), value, "{element} of {change:?}");
        }
    }
}

#[test]
fn limits_say_which_and_how_much() {
    let subscriber = Ipv4Addr::new(10, 0, 0, 5);
    let (realm, class, pool, percent) = (0, 0, 0, 80);
    let quota = Change::QuotaReached { realm, subscriber, protocol: 6 };
    let own = Change::ThresholdReached { realm, subscriber, resource: Resource::Udp, percent };
    let of_class = Change::ClassQuotaReached { class, protocol: 6 };
    let near = Change::ClassThresholdReached { class, resource: Resource::Udp, percent };
    let of_pool = |resource| Change::PoolThresholdReached { pool, resource, percent };
    for (change, fields) in [
        (quota, &[(230, 13), (466, 3), (473, 1000), (8, 0x0a00_0005)][..]),
        (of_class, &[(230, 13), (466, 2), (472, 0), (4, 6)]),
        (own, &[(230, 18), (467, 4), (478, 1600), (480, 1600), (8, 0x0a00_0005)]),
        (near, &[(230, 18), (467, 3), (478, 0)]),
        (of_pool(Resource::Tcp), &[(230, 18), (467, 3), (478, 3200), (283, 0), (4, 6)]),
        (of_pool(Resource::Blocks), &[(230, 18), (467, 1), (476, 4), (283, 0)]),
        (Change::PoolExhausted { pool: 2, protocol: 17 }, &[(230, 3), (283, 2), (4, 17)]),
    ] {
        let record = told(change, false, &names());
        for (element, value) in fields {
            assert_eq!(record.number(*element), *value, "{element} of {change:?}");
        }
    }
}

//= test rfc7011#section-4.3-reliability
#[test]
fn a_gap_is_told_as_the_reliability_of_the_exporter() {
    let encoder = encoder(false);
    let mut decoder = Decoder::default();
    decoder.decode(&encoder.templates(Timestamp(0)), DOMAIN);
    let gap = Gap { lost: 12, from: Timestamp(5_000_000), to: Timestamp(9_000_000) };
    let message = encoder.message(&[Record::Gap(gap)], &names(), Timestamp(0));
    let records = decoder.decode(&message.bytes, DOMAIN);
    let time = |ms: u64| (323, ms.to_be_bytes().to_vec());
    let lost = (166, 12_u64.to_be_bytes().to_vec());
    let process = (144, 1_u32.to_be_bytes().to_vec());
    assert_eq!(records[0].fields, [process, lost, time(5), time(9)]);
}

/// Any record.
fn record() -> impl Strategy<Value = Record> {
    let any_mapping = (any::<[u32; 2]>(), any::<[u16; 2]>(), 0..3_u16, any::<u8>()).prop_map(
        |([internal, external], [near, far], realm, protocol)| MappingId {
            protocol,
            realm,
            internal: Endpoint::new(internal, near),
            external: Endpoint::new(external, far),
            kind: MappingKind::Static,
        },
    );
    let change = prop_oneof![
        any_mapping.clone().prop_map(Change::MappingCreated),
        any_mapping.prop_map(|mapping| Change::SessionRemoved(SessionId { mapping, ..session() })),
        Just(Change::BlockAssigned(block())),
        any::<usize>().prop_map(|pool| Change::PoolExhausted { pool, protocol: 6 }),
    ];
    let event = (any::<u64>(), change)
        .prop_map(|(time, change)| Record::Event(Event { time: Timestamp(time), change }));
    let host =
        (any::<u64>(), any::<Option<u128>>(), 0..=128_u8).prop_map(|(time, address, len)| {
            let name = HostName {
                address: address.map(std::net::Ipv6Addr::from_bits),
                prefix: "2001:db8::".parse().unwrap(),
                len,
            };
            Record::Host(Host::new(Timestamp(time), &name))
        });
    let gap = any::<[u64; 3]>().prop_map(|[lost, from, to]| {
        Record::Gap(Gap { lost, from: Timestamp(from), to: Timestamp(to) })
    });
    prop_oneof![9 => event, 3 => host, 1 => gap]
}

proptest! {
    //= test rfc7011#section-3.1-sequence
    #[test]
    fn any_records_are_decoded_and_none_is_missing(
        records in prop::collection::vec(record(), 1..400),
        remotes: bool,
        realms in prop::option::of(prop::array::uniform3(any::<String>())),
    ) {
        let mut encoder = encoder(remotes);
        let names = Names { realms: realms.map(Vec::from).unwrap_or_default(), ..names() };
        let mut decoder = Decoder::default();
        decoder.decode(&encoder.templates(Timestamp(0)), DOMAIN);
        let (mut done, mut decoded) = (0, Vec::new());
        while done < records.len() {
            let message = encoder.message(&records[done..], &names, Timestamp(0));
            prop_assert!(message.bytes.len() <= 1400);
            if message.count == 0 {
                // Only hosts are left, and no event of theirs.
                break;
            }
            decoded.extend(decoder.decode(&message.bytes, DOMAIN));
            encoder.sent(message.count);
            done += message.taken;
            // Repeated templates do not count as records.
            decoder.decode(&encoder.templates(Timestamp(0)), DOMAIN);
        }
        let places = (0..records.len()).filter(|at| !matches!(records[*at], Record::Host(_)));
        prop_assert_eq!(decoded.len(), places.clone().count());
        for (place, decoded) in places.zip(decoded) {
            let Record::Event(event) = records[place] else { continue };
            prop_assert_eq!(decoded.number(323), event.time.0 / 1_000_000);
            if host_before(&records, place).is_some() {
                prop_assert!(!decoded.has(8));
            } else if let Change::MappingCreated(id) = event.change {
                prop_assert_eq!(decoded.number(8), u64::from(id.internal.address.to_bits()));
                prop_assert_eq!(decoded.number(227), u64::from(id.external.port));
                let realm = names.realm(id.realm).map(|name| name.as_bytes().to_vec());
                let told = decoded.fields.iter().find(|(number, _)| *number == 464);
                prop_assert_eq!(told.map(|(_, name)| &name[..]), realm.as_deref());
            }
        }
    }
}

fn sink(transport: Transport, port: u16) -> IpfixSink {
    let settings = IpfixSettings {
        collector: Collector { address: format!("127.0.0.1:{port}"), transport },
        domain: DOMAIN,
        template_interval: Duration::from_secs(60),
        template_messages: 3,
    };
    IpfixSink::new(&settings, false).unwrap()
}

fn some() -> [Record; 1] {
    let change = Change::MappingCreated(mapping());
    [Record::Event(Event { time: Timestamp(0), change })]
}

//= test rfc7011#section-8.4-resend
#[test]
fn by_udp_templates_come_again_after_a_time_and_after_some_messages() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sink = sink(Transport::Udp, collector.local_addr().unwrap().port());
    let at = |seconds: u64| Timestamp(seconds * 1_000_000_000);
    let kind = || {
        let mut message = [0; 2000];
        let len = collector.recv(&mut message).unwrap();
        assert!(len > 20);
        u16_at(&message, 16)
    };
    sink.connect(at(0)).unwrap();
    assert_eq!(kind(), 2, "templates go first");
    for _ in 0..2 {
        for _ in 0..3 {
            sink.write(&some(), &names(), at(1)).1.unwrap();
            assert_eq!(kind(), 256);
        }
        sink.write(&some(), &names(), at(1)).1.unwrap();
        assert_eq!((kind(), kind()), (2, 256), "after three messages");
        sink.flush(at(30)).unwrap();
        sink.flush(at(61)).unwrap();
        assert_eq!(kind(), 2, "after a minute");
        sink.templates_due = at(61);
    }
}

//= test rfc7011#section-10.4.4-templates
#[test]
fn every_connection_begins_with_templates_and_counts_from_nothing() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sink = sink(Transport::Tcp, collector.local_addr().unwrap().port());
    for _ in 0..2 {
        sink.connect(Timestamp(0)).unwrap();
        let (mut stream, _) = collector.accept().unwrap();
        for _ in 0..3 {
            assert_eq!(sink.write(&some(), &names(), Timestamp(0)).0, 1);
        }
        drop(stream.shutdown(std::net::Shutdown::Write));
        let mut decoder = Decoder { sequence: Some(0), ..Decoder::default() };
        let mut records = 0;
        for _ in 0..4 {
            let mut message = vec![0; 4];
            stream.read_exact(&mut message).unwrap();
            message.resize(usize::from(u16_at(&message, 2)), 0);
            stream.read_exact(&mut message[4..]).unwrap();
            records += decoder.decode(&message, DOMAIN).len();
        }
        assert_eq!(records, 3);
        // The collector has closed the connection, which is detected before a record is lost.
        drop(stream);
        let (written, result) = sink.write(&some(), &names(), Timestamp(0));
        assert!(written == 0 && result.is_err());
    }
}
