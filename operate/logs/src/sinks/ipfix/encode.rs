//! Templates and the records that use them.
//!
//! A template is a list of fields, and a record's fields are written by the same list, so that the
//! two always agree. Template numbers are fixed; those of records that name a realm are [`NAMED`]
//! higher.

use crate::json::Names;
use crate::record::{Gap, Record, host_before};
use natgate_engine::{Change, Endpoint, Event, MappingId, Resource, Timestamp};
use natgate_gateway::ipv6::HostName;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Version and header length of messages (RFC 7011 section 3.1).
const VERSION: u16 = 10;
const HEADER: usize = 16;
/// Sets of templates and options templates (section 3.3.2).
const TEMPLATES: u16 = 2;
const OPTIONS: u16 = 3;
/// Length of a field with its own length.
const VARIABLE: u16 = 65_535;
/// Offset of template numbers for records that name a realm.
const NAMED: u16 = 100;

/// Number of this exporting process on the machine, and of this NAT.
const PROCESS: u32 = 1;
const INSTANCE: u32 = 1;

/// Information element: number in IANA's registry, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Element(u16, u16);

const PROTOCOL: Element = Element(4, 1);
const SOURCE_PORT: Element = Element(7, 2);
const SOURCE: Element = Element(8, 4);
const DESTINATION_PORT: Element = Element(11, 2);
const DESTINATION: Element = Element(12, 4);
const SOURCE6: Element = Element(27, 16);
const SOURCE6_LEN: Element = Element(29, 1);
const PROCESS_ID: Element = Element(144, 4);
const NOT_SENT_FLOWS: Element = Element(166, 8);
const POST_SOURCE: Element = Element(225, 4);
const POST_DESTINATION: Element = Element(226, 4);
const POST_SOURCE_PORT: Element = Element(227, 2);
const POST_DESTINATION_PORT: Element = Element(228, 2);
const NAT_EVENT: Element = Element(230, 1);
const POOL: Element = Element(283, 4);
const TIME: Element = Element(323, 8);
const RANGE_START: Element = Element(361, 2);
const RANGE_END: Element = Element(362, 2);
const NAT_INSTANCE: Element = Element(463, 4);
const INTERNAL_REALM: Element = Element(464, VARIABLE);
const QUOTA: Element = Element(466, 4);
const THRESHOLD: Element = Element(467, 4);
const MOST_MAPPINGS: Element = Element(472, 4);
const MOST_OF_SUBSCRIBER: Element = Element(473, 4);
const ADDRESSES_HIGH: Element = Element(476, 4);
const MAPPINGS_HIGH: Element = Element(478, 4);
const OF_SUBSCRIBER_HIGH: Element = Element(480, 4);

/// A template: its number; true if it has options, whose first field is the scope; its fields.
#[derive(Debug)]
struct Template(u16, bool, &'static [Element]);

//= rfc8158#section-4.6-mandatory
/// Mappings, and sessions without their remotes (RFC 8158 sections 4.6.1 and 4.6.3).
const MAPPING: Template = Template(
    256,
    false,
    &[TIME, NAT_EVENT, SOURCE, POST_SOURCE, PROTOCOL, SOURCE_PORT, POST_SOURCE_PORT, NAT_INSTANCE],
);
/// Sessions with their remotes (section 4.6.1).
const SESSION: Template = Template(
    257,
    false,
    &[
        TIME,
        NAT_EVENT,
        SOURCE,
        POST_SOURCE,
        PROTOCOL,
        SOURCE_PORT,
        POST_SOURCE_PORT,
        DESTINATION,
        POST_DESTINATION,
        DESTINATION_PORT,
        POST_DESTINATION_PORT,
        NAT_INSTANCE,
    ],
);
//= rfc8158#section-4.6.10-range
/// Blocks of ports (section 4.6.10).
const BLOCK: Template = Template(
    258,
    false,
    &[TIME, NAT_EVENT, SOURCE, POST_SOURCE, RANGE_START, RANGE_END, NAT_INSTANCE],
);
/// A pool without a free port of a protocol (section 4.6.5).
const EXHAUSTED: Template = Template(259, false, &[TIME, NAT_EVENT, POOL, PROTOCOL, NAT_INSTANCE]);
/// A subscriber's quota of a protocol (section 4.6.7.3).
const QUOTA_REACHED: Template = Template(
    260,
    false,
    &[TIME, NAT_EVENT, QUOTA, MOST_OF_SUBSCRIBER, SOURCE, PROTOCOL, NAT_INSTANCE],
);
/// The total of a class; the nearest event is the most of all mappings (section 4.6.7.2). The value
/// stays 0, because it is not the NAT's limit.
const CLASS_QUOTA: Template =
    Template(261, false, &[TIME, NAT_EVENT, QUOTA, MOST_MAPPINGS, PROTOCOL, NAT_INSTANCE]);
/// Blocks of a pool (section 4.6.8.1).
const BLOCKS_HIGH: Template =
    Template(262, false, &[TIME, NAT_EVENT, THRESHOLD, POOL, ADDRESSES_HIGH, NAT_INSTANCE]);
/// Ports of a pool of a protocol (section 4.6.8.2).
const PORTS_HIGH: Template = Template(
    263,
    false,
    &[TIME, NAT_EVENT, THRESHOLD, POOL, MAPPINGS_HIGH, PROTOCOL, NAT_INSTANCE],
);
/// Mappings of a subscriber (section 4.6.8.3; the registry has an element of that name, too).
const SUBSCRIBER_HIGH: Template = Template(
    264,
    false,
    &[TIME, NAT_EVENT, THRESHOLD, MAPPINGS_HIGH, OF_SUBSCRIBER_HIGH, SOURCE, NAT_INSTANCE],
);
/// Mappings of a class' subscribers.
const CLASS_HIGH: Template =
    Template(265, false, &[TIME, NAT_EVENT, THRESHOLD, MAPPINGS_HIGH, NAT_INSTANCE]);
//= rfc7011#section-4.3-reliability
/// Missing records: number, and times of the first and the last (RFC 7011 section 4.3).
const RELIABILITY: Template = Template(266, true, &[PROCESS_ID, NOT_SENT_FLOWS, TIME, TIME]);

/// Mappings of hosts of NAT64 (RFC 8158 section 4.6.4), and sessions without their remotes.
const MAPPING6: Template = Template(
    267,
    false,
    &[TIME, NAT_EVENT, SOURCE6, POST_SOURCE, PROTOCOL, SOURCE_PORT, POST_SOURCE_PORT, NAT_INSTANCE],
);
/// Sessions of hosts of NAT64 with their remotes (section 4.6.2).
const SESSION6: Template = Template(
    268,
    false,
    &[
        TIME,
        NAT_EVENT,
        SOURCE6,
        POST_SOURCE,
        PROTOCOL,
        SOURCE_PORT,
        POST_SOURCE_PORT,
        POST_DESTINATION,
        POST_DESTINATION_PORT,
        NAT_INSTANCE,
    ],
);
/// The same events as of [`BLOCK`], [`QUOTA_REACHED`] and [`SUBSCRIBER_HIGH`], about a subscriber
/// of NAT64: the source is its prefix.
const BLOCK6: Template = Template(
    269,
    false,
    &[TIME, NAT_EVENT, SOURCE6, SOURCE6_LEN, POST_SOURCE, RANGE_START, RANGE_END, NAT_INSTANCE],
);
const QUOTA_REACHED6: Template = Template(
    270,
    false,
    &[TIME, NAT_EVENT, QUOTA, MOST_OF_SUBSCRIBER, SOURCE6, SOURCE6_LEN, PROTOCOL, NAT_INSTANCE],
);
const SUBSCRIBER_HIGH6: Template = Template(
    271,
    false,
    &[
        TIME,
        NAT_EVENT,
        THRESHOLD,
        MAPPINGS_HIGH,
        OF_SUBSCRIBER_HIGH,
        SOURCE6,
        SOURCE6_LEN,
        NAT_INSTANCE,
    ],
);

const ALL: [&Template; 16] = [
    &MAPPING,
    &SESSION,
    &BLOCK,
    &EXHAUSTED,
    &QUOTA_REACHED,
    &CLASS_QUOTA,
    &BLOCKS_HIGH,
    &PORTS_HIGH,
    &SUBSCRIBER_HIGH,
    &CLASS_HIGH,
    &RELIABILITY,
    &MAPPING6,
    &SESSION6,
    &BLOCK6,
    &QUOTA_REACHED6,
    &SUBSCRIBER_HIGH6,
];

/// Templates about subscribers, and those about subscribers of NAT64 in their place.
const OF_NAT64: [(&Template, &Template); 5] = [
    (&MAPPING, &MAPPING6),
    (&SESSION, &SESSION6),
    (&BLOCK, &BLOCK6),
    (&QUOTA_REACHED, &QUOTA_REACHED6),
    (&SUBSCRIBER_HIGH, &SUBSCRIBER_HIGH6),
];

/// Templates whose subscriber is in a realm.
const OF_REALMS: [&Template; 5] = [&MAPPING, &SESSION, &BLOCK, &QUOTA_REACHED, &SUBSCRIBER_HIGH];

//= rfc8158#section-4.3-historic
/// natEvent (RFC 8158 section 4.3).
mod nat_event {
    pub(super) const ADDRESSES_EXHAUSTED: u8 = 3;
    pub(super) const SESSION_CREATE: u8 = 4;
    pub(super) const SESSION_DELETE: u8 = 5;
    pub(super) const NAT64_SESSION_CREATE: u8 = 6;
    pub(super) const NAT64_SESSION_DELETE: u8 = 7;
    pub(super) const BIB_CREATE: u8 = 8;
    pub(super) const BIB_DELETE: u8 = 9;
    pub(super) const NAT64_BIB_CREATE: u8 = 10;
    pub(super) const NAT64_BIB_DELETE: u8 = 11;
    pub(super) const QUOTA_EXCEEDED: u8 = 13;
    pub(super) const BLOCK_ALLOCATION: u8 = 16;
    pub(super) const BLOCK_DEALLOCATION: u8 = 17;
    pub(super) const THRESHOLD_REACHED: u8 = 18;

    /// The event of NAT64 in place of one of IPv4.
    pub(super) fn of_nat64(event: u8) -> u8 {
        match event {
            SESSION_CREATE => NAT64_SESSION_CREATE,
            SESSION_DELETE => NAT64_SESSION_DELETE,
            BIB_CREATE => NAT64_BIB_CREATE,
            BIB_DELETE => NAT64_BIB_DELETE,
            other => other,
        }
    }
}

/// natQuotaExceededEvent and natThresholdEvent (sections 4.4 and 4.5).
mod limit {
    pub(super) const BIB_ENTRIES: u32 = 2;
    pub(super) const ENTRIES_OF_USER: u32 = 3;
    pub(super) const POOL_HIGH: u32 = 1;
    pub(super) const MAPPINGS_HIGH: u32 = 3;
    pub(super) const MAPPINGS_OF_USER_HIGH: u32 = 4;
}

/// Encoder of messages.
#[derive(Debug)]
pub(super) struct Encoder {
    domain: u32,
    remotes: bool,
    /// Most bytes of a message.
    most: usize,
    /// Number of data records sent.
    sequence: u32,
}

/// A message with data records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    /// Number of records of the log that it stands for.
    pub(super) taken: usize,
    /// Number of data records.
    pub(super) count: usize,
}

/// Values for a record's fields.
#[derive(Clone, Copy, Debug, Default)]
struct Values<'n> {
    time: Timestamp,
    nat_event: u8,
    mapping: Option<MappingId>,
    remote: Option<(Endpoint, Endpoint)>,
    subscriber: Option<Ipv4Addr>,
    /// The host of NAT64, in place of the subscriber and the internal address.
    host: Option<HostName>,
    external: Option<Ipv4Addr>,
    protocol: u8,
    ports: (u16, u16),
    pool: u32,
    /// Kind of a limit, and its value.
    limit: (u32, u32),
    realm: Option<&'n str>,
    gap: Option<Gap>,
}

impl Encoder {
    pub(super) fn new(domain: u32, remotes: bool, most: usize) -> Self {
        Self { domain, remotes, most, sequence: 0 }
    }

    /// Restarts the sequence numbers for another stream.
    pub(super) fn restart(&mut self) {
        self.sequence = 0;
    }

    /// Counts data records that have been sent.
    pub(super) fn sent(&mut self, records: usize) {
        self.sequence = self.sequence.wrapping_add(records as u32);
    }

    /// Message with all templates.
    pub(super) fn templates(&self, now: Timestamp) -> Vec<u8> {
        let mut message = self.begin(now);
        for (set, options) in [(TEMPLATES, false), (OPTIONS, true)] {
            let start = begin_set(&mut message, set);
            for template in ALL.iter().filter(|template| template.1 == options) {
                template.define(false, &mut message);
            }
            if !options {
                OF_REALMS.iter().for_each(|template| template.define(true, &mut message));
            }
            end_set(&mut message, start);
        }
        end(&mut message);
        message
    }

    /// Message with as many of these records as fit, at least one.
    pub(super) fn message(&self, records: &[Record], names: &Names, now: Timestamp) -> Message {
        let mut message = self.begin(now);
        let mut set: Option<(u16, usize)> = None;
        let (mut taken, mut count) = (0, 0);
        for (place, record) in records.iter().enumerate() {
            if let Record::Host(_) = record {
                continue;
            }
            let (mut template, mut values) = self.values(record, names);
            if let Some(host) = host_before(records, place) {
                let of_nat64 = OF_NAT64.iter().find(|(of_ipv4, _)| of_ipv4.0 == template.0);
                template = of_nat64.map_or(template, |(_, of_nat64)| *of_nat64);
                values.nat_event = nat_event::of_nat64(values.nat_event);
                values.host = Some(host.name());
            }
            let named = values.realm.is_some() && OF_REALMS.iter().any(|one| one.0 == template.0);
            let number = template.0 + if named { NAMED } else { 0 };
            let mut bytes = Vec::with_capacity(64);
            template
                .2
                .iter()
                .enumerate()
                .for_each(|(at, field)| values.put(*field, at, &mut bytes));
            if named {
                values.put(INTERNAL_REALM, template.2.len(), &mut bytes);
            }
            if count > 0 && message.len() + 4 + bytes.len() > self.most {
                break;
            }
            if let Some((_, start)) = set.filter(|(open, _)| *open != number) {
                end_set(&mut message, start);
                set = None;
            }
            if set.is_none() {
                set = Some((number, begin_set(&mut message, number)));
            }
            message.extend(bytes);
            (taken, count) = (place + 1, count + 1);
        }
        if let Some((_, start)) = set {
            end_set(&mut message, start);
        }
        end(&mut message);
        Message { bytes: message, taken, count }
    }

    //= rfc7011#section-3.1-sequence
    fn begin(&self, now: Timestamp) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.most);
        message.extend(VERSION.to_be_bytes());
        message.extend([0; 2]);
        message.extend(((now.0 / 1_000_000_000) as u32).to_be_bytes());
        message.extend(self.sequence.to_be_bytes());
        message.extend(self.domain.to_be_bytes());
        debug_assert_eq!(message.len(), HEADER);
        message
    }

    /// Template of a record, and values of its fields.
    fn values<'n>(&self, record: &Record, names: &'n Names) -> (&'static Template, Values<'n>) {
        let base = Values { time: record.time(), ..Values::default() };
        match record {
            Record::Event(event) => self.of_event(event, names, base),
            Record::Gap(gap) => (&RELIABILITY, Values { gap: Some(*gap), ..base }),
            // The sink leaves these records out.
            Record::Host(_)
            | Record::ClockSet(_)
            | Record::Summary(_)
            | Record::Expectation(_)
            | Record::Slice(_) => (&RELIABILITY, base),
        }
    }

    fn of_event<'n>(
        &self,
        event: &Event,
        names: &'n Names,
        base: Values<'n>,
    ) -> (&'static Template, Values<'n>) {
        let about = |nat_event, id: MappingId| Values {
            nat_event,
            mapping: Some(id),
            protocol: id.protocol,
            realm: names.realm(id.realm),
            ..base
        };
        let session = |nat_event, id: natgate_engine::SessionId| {
            let remote = (id.remote_inside, id.remote);
            let values = about(nat_event, id.mapping);
            match self.remotes {
                true => (&SESSION, Values { remote: Some(remote), ..values }),
                false => (&MAPPING, values),
            }
        };
        let block = |nat_event, id: natgate_engine::BlockId| Values {
            nat_event,
            subscriber: Some(id.subscriber),
            external: Some(id.external),
            ports: id.ports,
            realm: names.realm(id.realm),
            ..base
        };
        let reached = Values { nat_event: nat_event::THRESHOLD_REACHED, ..base };
        let exceeded = Values { nat_event: nat_event::QUOTA_EXCEEDED, ..base };
        match event.change {
            Change::MappingCreated(id) => (&MAPPING, about(nat_event::BIB_CREATE, id)),
            Change::MappingRemoved(id) => (&MAPPING, about(nat_event::BIB_DELETE, id)),
            Change::SessionCreated(id) => session(nat_event::SESSION_CREATE, id),
            Change::SessionRemoved(id) => session(nat_event::SESSION_DELETE, id),
            Change::BlockAssigned(id) => (&BLOCK, block(nat_event::BLOCK_ALLOCATION, id)),
            Change::BlockReleased(id) => (&BLOCK, block(nat_event::BLOCK_DEALLOCATION, id)),
            Change::QuotaReached { realm, subscriber, protocol } => {
                let limit = (limit::ENTRIES_OF_USER, names.quota(protocol));
                let (subscriber, realm) = (Some(subscriber), names.realm(realm));
                (&QUOTA_REACHED, Values { limit, subscriber, protocol, realm, ..exceeded })
            }
            Change::ClassQuotaReached { protocol, .. } => {
                (&CLASS_QUOTA, Values { limit: (limit::BIB_ENTRIES, 0), protocol, ..exceeded })
            }
            Change::PoolExhausted { pool, protocol } => {
                let nat_event = nat_event::ADDRESSES_EXHAUSTED;
                (&EXHAUSTED, Values { nat_event, pool: pool as u32, protocol, ..base })
            }
            Change::ThresholdReached { realm, subscriber, percent, resource } => {
                let most = names.quota(number_of(resource));
                let limit = (limit::MAPPINGS_OF_USER_HIGH, part(most, percent));
                let (subscriber, realm) = (Some(subscriber), names.realm(realm));
                (&SUBSCRIBER_HIGH, Values { limit, subscriber, realm, ..reached })
            }
            Change::ClassThresholdReached { .. } => {
                (&CLASS_HIGH, Values { limit: (limit::MAPPINGS_HIGH, 0), ..reached })
            }
            Change::PoolThresholdReached { pool, resource, percent } => {
                let (template, limit) = pool_threshold(names, pool, resource, percent);
                let protocol = number_of(resource);
                (template, Values { pool: pool as u32, limit, protocol, ..reached })
            }
        }
    }
}

/// Template, type and value of a threshold of a pool.
fn pool_threshold(
    names: &Names,
    pool: usize,
    resource: Resource,
    percent: u8,
) -> (&'static Template, (u32, u32)) {
    let (addresses, ports) = names.sizes.get(pool).copied().unwrap_or_default();
    match resource {
        Resource::Blocks => (&BLOCKS_HIGH, (limit::POOL_HIGH, part(addresses, percent))),
        _ => {
            let all = addresses.saturating_mul(ports);
            (&PORTS_HIGH, (limit::MAPPINGS_HIGH, part(all, percent)))
        }
    }
}

/// A percentage of a number, rounded up.
fn part(all: u32, percent: u8) -> u32 {
    (u64::from(all) * u64::from(percent)).div_ceil(100) as u32
}

/// Protocol of a resource.
fn number_of(resource: Resource) -> u8 {
    use natgate_wire::protocol::{DCCP, ICMP, TCP, UDP};
    match resource {
        Resource::Tcp => TCP,
        Resource::Udp => UDP,
        Resource::Icmp => ICMP,
        Resource::Dccp => DCCP,
        Resource::Sessions | Resource::Blocks => 0,
    }
}

impl Template {
    fn define(&self, named: bool, message: &mut Vec<u8>) {
        let Self(number, options, fields) = self;
        let number = number + if named { NAMED } else { 0 };
        let realm = named.then_some(INTERNAL_REALM);
        message.extend(number.to_be_bytes());
        message.extend(((fields.len() + usize::from(named)) as u16).to_be_bytes());
        if *options {
            // The first field is the scope.
            message.extend(1_u16.to_be_bytes());
        }
        for Element(number, len) in fields.iter().copied().chain(realm) {
            message.extend(number.to_be_bytes());
            message.extend(len.to_be_bytes());
        }
    }
}

impl Values<'_> {
    /// Address of the host of NAT64 that has a mapping; else prefix of the subscriber, and its
    /// length.
    fn source6(&self) -> (Ipv6Addr, u8) {
        let Some(host) = self.host else { return (Ipv6Addr::UNSPECIFIED, 0) };
        // A tunnel's end stands for the hosts behind it.
        let address = host.address.filter(|_| self.mapping.is_some() && host.inner().is_none());
        (address.unwrap_or(host.prefix), host.len)
    }

    /// Writes the field at index `place` of the template.
    fn put(&self, field: Element, place: usize, into: &mut Vec<u8>) {
        let nowhere = Endpoint::new(0, 0);
        let internal = self.mapping.map_or(nowhere, |id| id.internal);
        let external = self.mapping.map_or(nowhere, |id| id.external);
        let (inside, outside) = self.remote.unwrap_or((nowhere, nowhere));
        let (source6, source6_len) = self.source6();
        let gap = self.gap.unwrap_or(Gap { lost: 0, from: self.time, to: self.time });
        match field {
            // The first time of a gap is its beginning.
            TIME if self.gap.is_some() && place == 2 => put_time(gap.from, into),
            TIME => put_time(self.time, into),
            NAT_EVENT => into.push(self.nat_event),
            SOURCE => into.extend(self.subscriber.unwrap_or(internal.address).octets()),
            SOURCE6 => into.extend(source6.octets()),
            SOURCE6_LEN => into.push(source6_len),
            POST_SOURCE => into.extend(self.external.unwrap_or(external.address).octets()),
            PROTOCOL => into.push(self.protocol),
            SOURCE_PORT => into.extend(internal.port.to_be_bytes()),
            POST_SOURCE_PORT => into.extend(external.port.to_be_bytes()),
            DESTINATION => into.extend(inside.address.octets()),
            POST_DESTINATION => into.extend(outside.address.octets()),
            DESTINATION_PORT => into.extend(inside.port.to_be_bytes()),
            POST_DESTINATION_PORT => into.extend(outside.port.to_be_bytes()),
            RANGE_START => into.extend(self.ports.0.to_be_bytes()),
            RANGE_END => into.extend(self.ports.1.to_be_bytes()),
            POOL => into.extend(self.pool.to_be_bytes()),
            QUOTA | THRESHOLD => into.extend(self.limit.0.to_be_bytes()),
            MOST_MAPPINGS | MOST_OF_SUBSCRIBER | ADDRESSES_HIGH | MAPPINGS_HIGH
            | OF_SUBSCRIBER_HIGH => into.extend(self.limit.1.to_be_bytes()),
            NAT_INSTANCE => into.extend(INSTANCE.to_be_bytes()),
            PROCESS_ID => into.extend(PROCESS.to_be_bytes()),
            NOT_SENT_FLOWS => into.extend(gap.lost.to_be_bytes()),
            INTERNAL_REALM => put_text(self.realm.unwrap_or_default(), into),
            Element(number, _) => unreachable!("no template has element {number}"),
        }
    }
}

fn put_time(time: Timestamp, into: &mut Vec<u8>) {
    into.extend((time.0 / 1_000_000).to_be_bytes());
}

/// Writes a field with its own length (RFC 7011 section 7).
fn put_text(text: &str, into: &mut Vec<u8>) {
    let bytes = &text.as_bytes()[..text.len().min(254)];
    into.push(bytes.len() as u8);
    into.extend(bytes);
}

fn begin_set(message: &mut Vec<u8>, number: u16) -> usize {
    let start = message.len();
    message.extend(number.to_be_bytes());
    message.extend([0; 2]);
    start
}

fn end_set(message: &mut [u8], start: usize) {
    let len = (message.len() - start) as u16;
    message[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
}

fn end(message: &mut [u8]) {
    let len = message.len() as u16;
    message[2..4].copy_from_slice(&len.to_be_bytes());
}
