//! The MIB's tables that are as long as the traffic makes them: subscribers, address maps, port maps.
//!
//! They are shown by pages. What is asked for comes from the page it is in, or from a page made now that
//! begins there; of each table one page is kept, for a moment, because managers ask for one row after
//! another, and column by column. So the longest table takes no more memory here than a page, no worker
//! is asked for more than a part of a list at a time, and there is no limit to what can be walked.

use super::SnmpSettings;
use super::index::{Index, Part};
use super::pdu::Range;
use super::pools::PoolNumbers;
use super::tables::{INSTANCE, IPV4, MIB, OFF, OUTSIDE, Oid, Value, unsigned};
use natgate_engine::{Config, MappingInfo, Pooling, SubscriberInfo};
use natgate_gateway::{Commander, MappingPlace, Page, SubscriberPlace};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Rows of a page: subscribers are all looked at for each page, mappings are not.
const SUBSCRIBERS: usize = 65_536;
const MAPPINGS: usize = 1024;

/// How long a page is what there is.
const FRESH: Duration = Duration::from_secs(5);

/// Longest name of a realm, octets (SnmpAdminString, as the MIB has it).
const LONGEST: usize = 32;

/// Where rows come from.
pub trait Rows: Send {
    /// At most so many mappings in the order of protocol number, external address and port, from a place
    /// on.
    ///
    /// # Errors
    /// Why there are none to be had.
    fn mappings_from(&self, from: MappingPlace, most: usize) -> Result<Page<MappingInfo>, String>;

    /// At most so many subscribers in the order of a rank that each is given and of their addresses, from
    /// a place on; those without a rank are left out.
    ///
    /// # Errors
    /// As [`Rows::mappings_from`].
    fn subscribers_from(
        &self,
        rank: &dyn Fn(&SubscriberInfo) -> Option<u16>,
        from: SubscriberPlace,
        most: usize,
    ) -> Result<Page<SubscriberInfo>, String>;

    /// A subscriber of a realm, if it has mappings.
    ///
    /// # Errors
    /// As [`Rows::mappings_from`].
    fn subscriber(&self, realm: u16, address: Ipv4Addr) -> Result<Option<SubscriberInfo>, String>;
}

impl Rows for Commander {
    fn mappings_from(&self, from: MappingPlace, most: usize) -> Result<Page<MappingInfo>, String> {
        self.mappings_from(from, most).map_err(|error| error.to_string())
    }

    fn subscribers_from(
        &self,
        rank: &dyn Fn(&SubscriberInfo) -> Option<u16>,
        from: SubscriberPlace,
        most: usize,
    ) -> Result<Page<SubscriberInfo>, String> {
        self.subscribers_from(rank, from, most).map_err(|error| error.to_string())
    }

    fn subscriber(&self, realm: u16, address: Ipv4Addr) -> Result<Option<SubscriberInfo>, String> {
        self.subscriber(realm, address).map_err(|error| error.to_string())
    }
}

/// A table, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Subscribers,
    AddressMap,
    PortMap,
}

impl Table {
    pub(super) const ALL: [Self; 3] = [Self::Subscribers, Self::AddressMap, Self::PortMap];

    /// What the names of its columns begin with.
    //= rfc7659#section-3.3.3-subscribers
    fn head(self) -> Oid {
        let own: &[u32] = match self {
            Self::Subscribers => &[1, 1, 1],
            Self::AddressMap => &[2, 5, 1],
            Self::PortMap => &[2, 6, 1],
        };
        [&MIB, own].concat()
    }

    fn columns(self, about: &About<'_>) -> &'static [u32] {
        match self {
            // What a subscriber of a class may have is not said.
            Self::Subscribers if !about.config.classes.is_empty() => &[2, 3, 4, 5, 6, 7, 14, 17],
            Self::Subscribers => &[2, 3, 4, 5, 6, 7, 14, 15, 16, 17],
            Self::AddressMap => &[6, 7, 8, 9, 10, 11, 12],
            Self::PortMap => &[7, 8, 9, 10, 11, 12, 13, 14],
        }
    }
}

/// Where a row stands: the rank of the form that its index has, and its own numbers there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    rank: u16,
    own: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
enum Row {
    Subscriber(SubscriberInfo),
    Mapping(MappingInfo),
}

/// Rows from one on, as they were at a time.
#[derive(Debug)]
struct Kept {
    from: Key,
    /// Until where there are no others; to the end.
    until: Option<Key>,
    rows: Vec<(Key, Row)>,
    made: Instant,
}

impl Kept {
    fn covers(&self, key: &Key) -> bool {
        self.made.elapsed() < FRESH
            && self.from <= *key
            && self.until.as_ref().is_none_or(|until| key <= until)
    }

    fn first_from(&self, key: &Key) -> Option<&(Key, Row)> {
        self.rows.get(self.rows.partition_point(|(other, _)| other < key))
    }
}

/// What rows are told by.
pub(super) struct About<'a> {
    pub(super) settings: &'a SnmpSettings,
    pub(super) config: &'a Config,
    pub(super) pools: &'a PoolNumbers,
    pub(super) discontinuity: u32,
    //= rfc7659#section-3.4-realms
    /// The realms in the order of their names: number and name.
    realms: Vec<(u16, String)>,
}

impl<'a> About<'a> {
    pub(super) fn new(
        settings: &'a SnmpSettings,
        config: &'a Config,
        pools: &'a PoolNumbers,
        discontinuity: u32,
    ) -> Self {
        let numbers = 0..=u16::try_from(config.realms.len()).unwrap_or(u16::MAX);
        let mut realms: Vec<_> =
            numbers.filter_map(|number| Some((number, realm_name(config, number)?))).collect();
        realms.sort_by(|(_, a), (_, b)| (a.len(), a).cmp(&(b.len(), b)));
        // Of such as are the same as far as they can be told there is the first.
        realms.dedup_by(|(_, b), (_, a)| a == b);
        Self { settings, config, pools, discontinuity, realms }
    }

    /// The forms that a table's indexes have, by rank.
    fn indexes(&self, table: Table) -> Vec<Index> {
        let instance = Part::Is(INSTANCE);
        match table {
            Table::Subscribers => vec![Index::new([Part::UpTo(u32::MAX)])],
            Table::AddressMap if self.config.pooling == Pooling::Arbitrary => Vec::new(),
            Table::AddressMap => {
                let of_realm = |(_, name): &(u16, String)| {
                    let name = std::iter::once(instance).chain(Index::text(name.as_bytes()));
                    Index::new(name.chain(Index::address()).chain([Part::Is(ROW)]))
                };
                self.realms.iter().map(of_realm).collect()
            }
            //= rfc7659#section-3.3.9-port-map
            Table::PortMap => {
                let head = [instance, Part::UpTo(u8::MAX.into())].into_iter();
                let external = Index::text(OUTSIDE).chain(Index::address());
                vec![Index::new(head.chain(external).chain([Part::UpTo(u16::MAX.into())]))]
            }
        }
    }

    fn rank(&self, realm: u16) -> Option<u16> {
        let place = self.realms.iter().position(|(number, _)| *number == realm)?;
        u16::try_from(place).ok()
    }

    //= rfc7659#section-4-realm-same
    fn name(&self, realm: u16) -> Value {
        let name = realm_name(self.config, realm).unwrap_or_default();
        Value::Octets(name.into_bytes())
    }

    /// The number of the pool that has an address; 0: none has.
    fn pool(&self, address: Ipv4Addr) -> Value {
        let holds =
            |range: &natgate_engine::AddressRange| (range.first..=range.last).contains(&address);
        let pool = self.config.pools.iter().find(|pool| pool.addresses.iter().any(holds));
        Value::Unsigned(pool.and_then(|pool| self.pools.number(&pool.name)).unwrap_or(0))
    }

    /// How many mappings a subscriber may have of all protocols.
    fn quota(&self) -> u64 {
        let limits = &self.config.limits;
        [limits.tcp_ports, limits.udp_ports, limits.icmp_ports].map(u64::from).iter().sum()
    }
}

/// An address has one row, for it is paired with one external address.
const ROW: u32 = 1;

/// What a realm is called; the one without a name as the MIB has it, or natgate where there are several.
fn realm_name(config: &Config, number: u16) -> Option<String> {
    let mut name = match usize::from(number).checked_sub(1) {
        None if config.realms.is_empty() => "internal".to_owned(),
        None => "default".to_owned(),
        Some(place) => config.realms.get(place).filter(|realm| !realm.gone)?.name.clone(),
    };
    let cut = (0..=LONGEST.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    name.truncate(cut.unwrap_or_default());
    Some(name)
}

/// The index of a subscriber: its address as a number, if it is of the first realm. Addresses of other
/// realms may be the same.
//= rfc7659#section-4-subscriber-index
pub(super) fn number_of(realm: u16, address: Ipv4Addr) -> u32 {
    if realm == 0 { address.to_bits() } else { 0 }
}

fn octets(address: Ipv4Addr) -> Value {
    Value::Octets(address.octets().to_vec())
}

fn numbers(address: Ipv4Addr) -> [u32; 4] {
    address.octets().map(u32::from)
}

fn address_of(own: &[u32]) -> Ipv4Addr {
    let octet = |at: usize| own.get(at).and_then(|one| u8::try_from(*one).ok()).unwrap_or_default();
    Ipv4Addr::new(octet(0), octet(1), octet(2), octet(3))
}

/// The tables, and the pages of them that are kept.
pub(super) struct Long {
    rows: Box<dyn Rows>,
    kept: [Option<Kept>; Table::ALL.len()],
}

impl Long {
    pub(super) fn new(rows: Box<dyn Rows>) -> Self {
        Self { rows, kept: [const { None }; Table::ALL.len()] }
    }

    pub(super) fn rows(&self) -> &dyn Rows {
        &*self.rows
    }

    /// An object of these tables; `None`: it would be elsewhere.
    pub(super) fn get(&mut self, about: &About<'_>, name: &[u32]) -> Result<Option<Value>, String> {
        let is_of = |table: &Table| name.starts_with(&table.head());
        let Some(table) = Table::ALL.into_iter().find(is_of) else { return Ok(None) };
        let tail = &name[table.head().len()..];
        let Some((column, index)) = tail.split_first() else {
            return Ok(Some(Value::NoSuchObject));
        };
        if !table.columns(about).contains(column) {
            return Ok(Some(Value::NoSuchObject));
        }
        let indexes = about.indexes(table).into_iter().zip(0..);
        let key =
            indexes.filter_map(|(form, rank)| Some(Key { rank, own: form.own(index)? })).next();
        let Some(key) = key else { return Ok(Some(Value::NoSuchInstance)) };
        let row = self.row(table, about, &key)?;
        Ok(Some(row.map_or(Value::NoSuchInstance, |row| value(about, table, &row, *column))))
    }

    /// The first object of a table in a range.
    pub(super) fn next(
        &mut self,
        table: Table,
        about: &About<'_>,
        range: &Range,
    ) -> Result<Option<(Oid, Value)>, String> {
        let (head, columns) = (table.head(), table.columns(about));
        let Some((first, mut tail)) = place(&head, columns, &range.start) else { return Ok(None) };
        let (indexes, mut included) = (about.indexes(table), range.included || tail.is_empty());
        for column in &columns[first..] {
            let begin = [&head[..], &[*column]].concat();
            if !range.end.is_empty() && begin >= range.end {
                return Ok(None);
            }
            let key = indexes
                .iter()
                .zip(0..)
                .find_map(|(form, rank)| Some(Key { rank, own: form.first_from(tail, included)? }));
            if let Some(key) = key
                && let Some((key, row)) = self.row_from(table, about, key)?
            {
                let index = indexes[usize::from(key.rank)].name(&key.own);
                let value = value(about, table, &row, *column);
                return Ok(Some(([begin, index].concat(), value)));
            }
            (tail, included) = (&[], true);
        }
        Ok(None)
    }

    /// The first row from one on.
    fn row_from(
        &mut self,
        table: Table,
        about: &About<'_>,
        key: Key,
    ) -> Result<Option<(Key, Row)>, String> {
        let kept = self.kept[table as usize].take().filter(|kept| kept.covers(&key));
        let kept = match kept {
            Some(kept) => kept,
            None => self.page(table, about, key.clone())?,
        };
        let row = kept.first_from(&key).cloned();
        self.kept[table as usize] = Some(kept);
        Ok(row)
    }

    /// One row: who asks for one seldom asks for the next.
    fn row(&self, table: Table, about: &About<'_>, key: &Key) -> Result<Option<Row>, String> {
        if let Some(kept) = self.kept[table as usize].as_ref().filter(|kept| kept.covers(key)) {
            let row = kept.first_from(key).filter(|(found, _)| found == key);
            return Ok(row.map(|(_, row)| *row));
        }
        let subscriber = |realm: u16, address| -> Result<Option<Row>, String> {
            let found = self.rows.subscriber(realm, address)?;
            let found = found.filter(|info| rank_in(table, about, info).is_some());
            Ok(found.map(Row::Subscriber))
        };
        match table {
            Table::Subscribers => subscriber(0, Ipv4Addr::from_bits(key.own[0])),
            Table::AddressMap => {
                let (realm, _) = about.realms[usize::from(key.rank)];
                subscriber(realm, address_of(&key.own))
            }
            Table::PortMap => {
                let found = self.rows.mappings_from(mapping_place(&key.own), 1)?.entries;
                let found = found.into_iter().find(|info| mapping_key(info) == *key);
                Ok(found.map(Row::Mapping))
            }
        }
    }

    /// The rows from one on, as many as a page has.
    fn page(&self, table: Table, about: &About<'_>, from: Key) -> Result<Kept, String> {
        let subscribers = |address| -> Result<(Vec<_>, bool), String> {
            let rank = |info: &SubscriberInfo| rank_in(table, about, info);
            let place = (from.rank, address);
            let Page { entries, is_last } =
                self.rows.subscribers_from(&rank, place, SUBSCRIBERS)?;
            let row = |info: SubscriberInfo| {
                let own = match table {
                    Table::Subscribers => vec![info.address.to_bits()],
                    _ => numbers(info.address).to_vec(),
                };
                Some((Key { rank: rank(&info)?, own }, Row::Subscriber(info)))
            };
            Ok((entries.into_iter().filter_map(row).collect(), is_last))
        };
        let (rows, is_last) = match table {
            Table::Subscribers => subscribers(Ipv4Addr::from_bits(from.own[0]))?,
            Table::AddressMap => subscribers(address_of(&from.own))?,
            Table::PortMap => {
                let page = self.rows.mappings_from(mapping_place(&from.own), MAPPINGS)?;
                let row = |info: MappingInfo| (mapping_key(&info), Row::Mapping(info));
                (page.entries.into_iter().map(row).collect(), page.is_last)
            }
        };
        let last = rows.last().map(|(key, _): &(Key, Row)| key.clone());
        let until = if is_last { None } else { last };
        Ok(Kept { from, until, rows, made: Instant::now() })
    }
}

/// The rank that a subscriber's row has in a table, if it has one there.
fn rank_in(table: Table, about: &About<'_>, info: &SubscriberInfo) -> Option<u16> {
    match table {
        Table::Subscribers => (info.realm == 0).then_some(0),
        _ => info.external.and_then(|_| about.rank(info.realm)),
    }
}

fn mapping_key(info: &MappingInfo) -> Key {
    let external = info.id.external;
    let [a, b, c, d] = numbers(external.address);
    Key { rank: 0, own: vec![info.id.protocol.into(), a, b, c, d, external.port.into()] }
}

fn mapping_place(own: &[u32]) -> MappingPlace {
    let protocol = own.first().and_then(|one| u8::try_from(*one).ok()).unwrap_or(u8::MAX);
    let port = own.get(5).and_then(|one| u16::try_from(*one).ok()).unwrap_or(u16::MAX);
    (protocol, address_of(own.get(1..).unwrap_or_default()), port)
}

/// Where in a table a name is: the place of the column, and what is behind that; `None`: behind all.
fn place<'n>(head: &[u32], columns: &[u32], name: &'n [u32]) -> Option<(usize, &'n [u32])> {
    if !name.starts_with(head) {
        return (name < head).then_some((0, &[]));
    }
    let Some((column, tail)) = name[head.len()..].split_first() else { return Some((0, &[])) };
    let place = columns.partition_point(|one| one < column);
    let is_it = columns.get(place)? == column;
    Some((place, if is_it { tail } else { &[] }))
}

/// The value of a column.
fn value(about: &About<'_>, table: Table, row: &Row, column: u32) -> Value {
    match (table, row) {
        (Table::Subscribers, Row::Subscriber(info)) => of_subscriber(about, info, column),
        (_, Row::Subscriber(info)) => of_address(about, info, column),
        (_, Row::Mapping(info)) => of_mapping(about, info, column),
    }
}

/// natv2SubscriberTable.
fn of_subscriber(about: &About<'_>, info: &SubscriberInfo, column: u32) -> Value {
    match column {
        2 => about.name(info.realm),
        3 => Value::Integer(IPV4),
        4 => octets(info.address),
        5 => Value::Unsigned(32),
        6 => Value::Unsigned(info.external.is_some().into()),
        7 => unsigned(mappings_of(info)),
        14 => Value::Ticks(about.discontinuity),
        15 => unsigned(about.quota()),
        16 => Value::Integer(match about.settings.subscribers {
            true => threshold(about),
            false => OFF,
        }),
        17 => Value::Unsigned(about.settings.interval.into()),
        _ => Value::NoSuchObject,
    }
}

/// A subscriber's mappings.
pub(super) fn mappings_of(info: &SubscriberInfo) -> u64 {
    info.mappings.iter().map(|count| u64::from(*count)).sum()
}

/// How many mappings of a subscriber are told of: those at the highest threshold, or at the quota.
fn threshold(about: &About<'_>) -> i32 {
    let percent = about.config.limits.thresholds.iter().max().copied().unwrap_or(100);
    i32::try_from(about.quota() * u64::from(percent) / 100).unwrap_or(i32::MAX)
}

/// natv2AddressMapTable.
fn of_address(about: &About<'_>, info: &SubscriberInfo, column: u32) -> Value {
    let external = info.external.unwrap_or(Ipv4Addr::UNSPECIFIED);
    match column {
        6 | 9 => Value::Integer(IPV4),
        7 => octets(info.address),
        8 => Value::Octets(OUTSIDE.to_vec()),
        10 => octets(external),
        11 => about.pool(external),
        12 => Value::Unsigned(number_of(info.realm, info.address)),
        _ => Value::NoSuchObject,
    }
}

/// natv2PortMapTable.
fn of_mapping(about: &About<'_>, info: &MappingInfo, column: u32) -> Value {
    let (realm, internal) = (info.id.realm, info.id.internal);
    match column {
        7 => about.name(realm),
        8 | 10 => Value::Integer(IPV4),
        9 | 11 => octets(internal.address),
        12 => Value::Unsigned(internal.port.into()),
        13 => about.pool(info.id.external.address),
        14 => Value::Unsigned(number_of(realm, internal.address)),
        _ => Value::NoSuchObject,
    }
}
