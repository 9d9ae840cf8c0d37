//! The MIB's tables that grow with the traffic: subscribers, address maps, port maps.
//!
//! Rows are read by pages. A row comes from the cached page that it is in, or from a new page that
//! begins with it. One page of each table is cached for a moment, because managers ask for one row
//! after another, and column by column. So the longest table takes no more memory here than a page,
//! no worker is asked for more than a part of a list at a time, and tables of any length can be
//! walked.

use super::SnmpSettings;
use super::index::{Index, Part};
use super::pdu::Range;
use super::pools::PoolNumbers;
use super::tables::{INSTANCE, IPV4, MIB, OFF, OUTSIDE, Oid, Value, unsigned};
use natgate_engine::{Config, MappingInfo, Pooling, SubscriberInfo};
use natgate_gateway::{Commander, MappingPlace, Page, SubscriberPlace};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// Rows of a page. Each page of subscribers takes a look at all of them; a page of mappings does
/// not.
const SUBSCRIBERS: usize = 65_536;
const MAPPINGS: usize = 1024;

/// Time for which a page is valid.
const FRESH: Duration = Duration::from_secs(5);

/// Longest name of a realm, octets (SnmpAdminString, as the MIB has it).
const LONGEST: usize = 32;

/// A source of rows.
pub trait Rows: Send {
    /// At most so many mappings from a place on, in the order of protocol number, external address
    /// and port.
    ///
    /// # Errors A sentence, if the gateway does not answer.
    fn mappings_from(&self, from: MappingPlace, most: usize) -> Result<Page<MappingInfo>, String>;

    /// At most so many subscribers from a place on, in the order of `rank` and of addresses;
    /// subscribers without a rank are left out.
    ///
    /// # Errors As [`Rows::mappings_from`].
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

/// A table; the order is that of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Subscribers,
    AddressMap,
    PortMap,
}

impl Table {
    pub(super) const ALL: [Self; 3] = [Self::Subscribers, Self::AddressMap, Self::PortMap];

    /// The prefix of the names of its columns.
    //= rfc7659#section-3.3.3-subscribers
    fn head(self) -> Oid {
        let own: &[u32] = match self {
            Self::Subscribers => &[1, 1, 1],
            Self::AddressMap => &[2, 5, 1],
            Self::PortMap => &[2, 6, 1],
        };
        [&MIB, own].concat()
    }

    fn columns(self, context: &RowContext<'_>) -> &'static [u32] {
        match self {
            // The limits of a class have no object.
            Self::Subscribers if !context.config.classes.is_empty() => &[2, 3, 4, 5, 6, 7, 14, 17],
            Self::Subscribers => &[2, 3, 4, 5, 6, 7, 14, 15, 16, 17],
            Self::AddressMap => &[6, 7, 8, 9, 10, 11, 12],
            Self::PortMap => &[7, 8, 9, 10, 11, 12, 13, 14],
        }
    }
}

/// The place of a row: the rank of its form of index, and its own numbers in the index.
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

/// A page of rows.
#[derive(Debug)]
struct CachedRows {
    from: Key,
    /// The last key of the page; `None`: the page reaches to the end of the table.
    until: Option<Key>,
    rows: Vec<(Key, Row)>,
    made: Instant,
}

impl CachedRows {
    fn covers(&self, key: &Key) -> bool {
        self.made.elapsed() < FRESH
            && self.from <= *key
            && self.until.as_ref().is_none_or(|until| key <= until)
    }

    fn first_from(&self, key: &Key) -> Option<&(Key, Row)> {
        self.rows.get(self.rows.partition_point(|(other, _)| other < key))
    }
}

/// Configuration and numbers for the values of rows.
pub(super) struct RowContext<'a> {
    pub(super) settings: &'a SnmpSettings,
    pub(super) config: &'a Config,
    pub(super) pools: &'a PoolNumbers,
    pub(super) discontinuity: u32,
    //= rfc7659#section-3.4-realms
    /// The realms in the order of their names: number and name.
    realms: Vec<(u16, String)>,
}

impl<'a> RowContext<'a> {
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
        // Names may be the same after shortening; the first realm has the name.
        realms.dedup_by(|(_, b), (_, a)| a == b);
        Self { settings, config, pools, discontinuity, realms }
    }

    /// The forms of a table's indexes, by rank.
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

    /// The number of the pool of an address; 0: no pool has the address.
    fn pool(&self, address: Ipv4Addr) -> Value {
        let holds =
            |range: &natgate_engine::AddressRange| (range.first..=range.last).contains(&address);
        let pool = self.config.pools.iter().find(|pool| pool.addresses.iter().any(holds));
        Value::Unsigned(pool.and_then(|pool| self.pools.number(&pool.name)).unwrap_or(0))
    }

    /// The quota of a subscriber, over all protocols.
    fn quota(&self) -> u64 {
        let limits = &self.config.limits;
        [limits.tcp_ports, limits.udp_ports, limits.icmp_ports].map(u64::from).iter().sum()
    }
}

/// An address has one row, for it is paired with one external address.
const ROW: u32 = 1;

/// The name of a realm. The realm without a name has the MIB's name, or natgate's if there are
/// several.
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

/// The index of a subscriber: its address as a number, if it is of the first realm. Addresses of
/// other realms may be the same.
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

/// The long tables and their cached pages.
pub(super) struct LongTables {
    rows: Box<dyn Rows>,
    cached: [Option<CachedRows>; Table::ALL.len()],
}

impl LongTables {
    pub(super) fn new(rows: Box<dyn Rows>) -> Self {
        Self { rows, cached: [const { None }; Table::ALL.len()] }
    }

    pub(super) fn rows(&self) -> &dyn Rows {
        &*self.rows
    }

    /// An object of these tables; `None`: the name is of another table.
    pub(super) fn get(
        &mut self,
        context: &RowContext<'_>,
        name: &[u32],
    ) -> Result<Option<Value>, String> {
        let is_of = |table: &Table| name.starts_with(&table.head());
        let Some(table) = Table::ALL.into_iter().find(is_of) else { return Ok(None) };
        let tail = &name[table.head().len()..];
        let Some((column, index)) = tail.split_first() else {
            return Ok(Some(Value::NoSuchObject));
        };
        if !table.columns(context).contains(column) {
            return Ok(Some(Value::NoSuchObject));
        }
        let indexes = context.indexes(table).into_iter().zip(0..);
        let key =
            indexes.filter_map(|(form, rank)| Some(Key { rank, own: form.own(index)? })).next();
        let Some(key) = key else { return Ok(Some(Value::NoSuchInstance)) };
        let row = self.row(table, context, &key)?;
        Ok(Some(row.map_or(Value::NoSuchInstance, |row| value(context, table, &row, *column))))
    }

    /// The first object of a table in a range.
    pub(super) fn next(
        &mut self,
        table: Table,
        context: &RowContext<'_>,
        range: &Range,
    ) -> Result<Option<(Oid, Value)>, String> {
        let (head, columns) = (table.head(), table.columns(context));
        let Some((first, mut tail)) = place(&head, columns, &range.start) else { return Ok(None) };
        let (indexes, mut included) = (context.indexes(table), range.included || tail.is_empty());
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
                && let Some((key, row)) = self.row_from(table, context, key)?
            {
                let index = indexes[usize::from(key.rank)].name(&key.own);
                let value = value(context, table, &row, *column);
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
        context: &RowContext<'_>,
        key: Key,
    ) -> Result<Option<(Key, Row)>, String> {
        let cached = self.cached[table as usize].take().filter(|cached| cached.covers(&key));
        let cached = match cached {
            Some(cached) => cached,
            None => self.page(table, context, key.clone())?,
        };
        let row = cached.first_from(&key).cloned();
        self.cached[table as usize] = Some(cached);
        Ok(row)
    }

    /// One row, without a new page: a request for one row is seldom followed by one for the next.
    fn row(
        &self,
        table: Table,
        context: &RowContext<'_>,
        key: &Key,
    ) -> Result<Option<Row>, String> {
        if let Some(cached) =
            self.cached[table as usize].as_ref().filter(|cached| cached.covers(key))
        {
            let row = cached.first_from(key).filter(|(found, _)| found == key);
            return Ok(row.map(|(_, row)| *row));
        }
        let subscriber = |realm: u16, address| -> Result<Option<Row>, String> {
            let found = self.rows.subscriber(realm, address)?;
            let found = found.filter(|info| rank_in(table, context, info).is_some());
            Ok(found.map(Row::Subscriber))
        };
        match table {
            Table::Subscribers => subscriber(0, Ipv4Addr::from_bits(key.own[0])),
            Table::AddressMap => {
                let (realm, _) = context.realms[usize::from(key.rank)];
                subscriber(realm, address_of(&key.own))
            }
            Table::PortMap => {
                let found = self.rows.mappings_from(mapping_place(&key.own), 1)?.entries;
                let found = found.into_iter().find(|info| mapping_key(info) == *key);
                Ok(found.map(Row::Mapping))
            }
        }
    }

    /// A new page of rows from a key on.
    fn page(
        &self,
        table: Table,
        context: &RowContext<'_>,
        from: Key,
    ) -> Result<CachedRows, String> {
        let subscribers = |address| -> Result<(Vec<_>, bool), String> {
            let rank = |info: &SubscriberInfo| rank_in(table, context, info);
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
        Ok(CachedRows { from, until, rows, made: Instant::now() })
    }
}

/// The rank of a subscriber's row in a table, if it has a row there.
fn rank_in(table: Table, context: &RowContext<'_>, info: &SubscriberInfo) -> Option<u16> {
    match table {
        Table::Subscribers => (info.realm == 0).then_some(0),
        _ => info.external.and_then(|_| context.rank(info.realm)),
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

/// The column of a name and the rest of the name; `None`: the name is after all columns.
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
fn value(context: &RowContext<'_>, table: Table, row: &Row, column: u32) -> Value {
    match (table, row) {
        (Table::Subscribers, Row::Subscriber(info)) => of_subscriber(context, info, column),
        (_, Row::Subscriber(info)) => of_address(context, info, column),
        (_, Row::Mapping(info)) => of_mapping(context, info, column),
    }
}

/// natv2SubscriberTable.
fn of_subscriber(context: &RowContext<'_>, info: &SubscriberInfo, column: u32) -> Value {
    match column {
        2 => context.name(info.realm),
        3 => Value::Integer(IPV4),
        4 => octets(info.address),
        5 => Value::Unsigned(32),
        6 => Value::Unsigned(info.external.is_some().into()),
        7 => unsigned(mappings_of(info)),
        14 => Value::Ticks(context.discontinuity),
        15 => unsigned(context.quota()),
        16 => Value::Integer(match context.settings.subscribers {
            true => threshold(context),
            false => OFF,
        }),
        17 => Value::Unsigned(context.settings.interval.into()),
        _ => Value::NoSuchObject,
    }
}

/// A subscriber's mappings.
pub(super) fn mappings_of(info: &SubscriberInfo) -> u64 {
    info.mappings.iter().map(|count| u64::from(*count)).sum()
}

/// The number of mappings that managers are notified of: the highest threshold, or the quota.
fn threshold(context: &RowContext<'_>) -> i32 {
    let percent = context.config.limits.thresholds.iter().max().copied().unwrap_or(100);
    i32::try_from(context.quota() * u64::from(percent) / 100).unwrap_or(i32::MAX)
}

/// natv2AddressMapTable.
fn of_address(context: &RowContext<'_>, info: &SubscriberInfo, column: u32) -> Value {
    let external = info.external.unwrap_or(Ipv4Addr::UNSPECIFIED);
    match column {
        6 | 9 => Value::Integer(IPV4),
        7 => octets(info.address),
        8 => Value::Octets(OUTSIDE.to_vec()),
        10 => octets(external),
        11 => context.pool(external),
        12 => Value::Unsigned(number_of(info.realm, info.address)),
        _ => Value::NoSuchObject,
    }
}

/// natv2PortMapTable.
fn of_mapping(context: &RowContext<'_>, info: &MappingInfo, column: u32) -> Value {
    let (realm, internal) = (info.id.realm, info.id.internal);
    match column {
        7 => context.name(realm),
        8 | 10 => Value::Integer(IPV4),
        9 | 11 => octets(internal.address),
        12 => Value::Unsigned(internal.port.into()),
        13 => context.pool(info.id.external.address),
        14 => Value::Unsigned(number_of(realm, internal.address)),
        _ => Value::NoSuchObject,
    }
}
